"""Mounts: places, start headings and pan limits that sensors have of their own. Compiled by numba.

Without mounts all of this compiles to nothing.
"""

import math
from typing import Any

import numpy as np

from hitmac.envs.kernels.compiled import inlined
from hitmac.envs.kernels.state import HEADING, TURN, Mounts, X, Y
from hitmac.envs.kernels.streams import draw_between

_ROUNDING = 1e-9  # degrees by which a heading may pass its limit


def make_mounts(scenario: Any, num_envs: int) -> Mounts | None:
    """Return the kernels' form of `sensor_positions`, `sensor_headings` and `pan_limits`; None if there are none."""
    n, fixed = scenario.num_sensors, scenario.placement == "fixed"
    if not (fixed or scenario.sensor_headings or scenario.pan_limits):
        return None
    return Mounts(
        place=np.array(scenario.sensor_positions if fixed else (), np.float64).reshape(-1, 2)[:n],
        heading=np.array(scenario.sensor_headings, np.float64)[:n],
        limit=limits_of(scenario),
        stopped=np.zeros((n, num_envs), np.bool_),
    )


def limits_of(scenario: Any) -> np.ndarray:
    """Return the lowest and the highest heading (n, 2) of every sensor, degrees; -inf and inf for one without limits.

    Limits of a whole turn or more are none.
    """
    limits = np.array(scenario.pan_limits or [(-np.inf, np.inf)], np.float64)
    limits[limits[:, 1] - limits[:, 0] >= 360.0] = -np.inf, np.inf
    return np.broadcast_to(limits, (scenario.num_sensors, 2)).copy()


def within(heading: Any, limit: np.ndarray) -> Any:
    """Return a heading, or the one of the same direction, that is nearest to the middle of its limits, degrees.

    Args:
        heading: (..., n).
        limit: (n, 2).
    """
    limited = np.isfinite(limit[:, 0])
    middle = np.where(limited[:, None], limit, 0.0).sum(-1) / 2.0
    return np.where(limited, heading - 360.0 * np.round((heading - middle) / 360.0), heading)


def outside(heading: Any, limit: np.ndarray) -> Any:
    """Return whether headings (..., n) are beyond their limits (n, 2)."""
    return (heading < limit[:, 0] - _ROUNDING) | (heading > limit[:, 1] + _ROUNDING)


def turns_to_limits(heading: Any, limit: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Return the most turns (..., n, 2) to the right and to the left within the limits; inf for a sensor without them.

    Args:
        heading: (..., n) degrees.
        limit: (n, 2) degrees.
        turn: (n,) angles of a turn, degrees.
    """
    ways = np.stack((within(heading, limit) - limit[:, 0], limit[:, 1] - within(heading, limit)), -1)
    return np.floor((ways + _ROUNDING) / turn[:, None])


@inlined
def kept_within(mounts, i, heading):
    """Return the heading within the limits of sensor i that is nearest to `heading`, degrees."""
    if mounts is None:
        return heading
    low, high = mounts.limit[i, 0], mounts.limit[i, 1]
    if low == -np.inf:
        return heading
    middle = (low + high) / 2.0
    return min(max(heading - 360.0 * math.floor((heading - middle + 180.0) / 360.0), low), high)


@inlined
def place_at_mounts(state, mounts, b):
    """Place the sensors of scene b at their mounts."""
    if mounts is not None:
        for i in range(mounts.place.shape[0]):
            state.sensor[i, X, b] = mounts.place[i, 0]
            state.sensor[i, Y, b] = mounts.place[i, 1]


@inlined
def draw_heading(state, mounts, b, i, whole):
    """Draw a heading of sensor i, degrees: uniform in [-180, 180], or within its limits."""
    if mounts is None:
        return draw_between(state.stream, b, -180.0, 180.0, whole)
    limited = mounts.limit[i, 0] > -np.inf
    low, high = (mounts.limit[i, 0], mounts.limit[i, 1]) if limited else (-180.0, 180.0)
    return draw_between(state.stream, b, low, high, whole)


@inlined
def has_heading(mounts):
    """Return whether the sensors have start headings of their own."""
    if mounts is None:
        return False
    return mounts.heading.shape[0] > 0


@inlined
def own_heading(mounts, i, heading):
    """Return the start heading of sensor i, degrees; `heading` if it has none of its own."""
    if mounts is None:
        return heading
    return mounts.heading[i] if mounts.heading.shape[0] > 0 else heading


@inlined
def stop_at_limits(state, mounts, i, sign, first, last):
    """Set ``sign[b]`` to 0 where a turn of that sign would take sensor i beyond its limits."""
    if mounts is not None:
        low, high = mounts.limit[i, 0] - _ROUNDING, mounts.limit[i, 1] + _ROUNDING
        for b in range(first, last):
            then = state.sensor[i, HEADING, b] + sign[b] * state.sensor[i, TURN, b]
            mounts.stopped[i, b] = (sign[b] != 0.0) & ((then < low) | (then > high))
        for b in range(first, last):
            sign[b] = 0.0 if mounts.stopped[i, b] else sign[b]


@inlined
def was_stopped(mounts, i, b):
    """Return whether a limit stopped the last turn of sensor i."""
    if mounts is None:
        return False
    return mounts.stopped[i, b]
