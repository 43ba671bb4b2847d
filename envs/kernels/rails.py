"""Rails, on which sensors move, and pan limits, within which they turn. Compiled by numba.

A rail is a polyline; a place on it is the distance along it from the first corner.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hitmac.envs.features import rail_corners, wrapped
from hitmac.envs.kernels import formulas
from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.state import Poses, Rails, X, Y
from hitmac.envs.kernels.threads import inlined

STAND, FORWARD, BACK = 0, 1, 2  # actions of a sensor on a rail: stay, move away from the first corner, towards it


def make_rails(polylines: Sequence[Sequence[Sequence[float]]], starts: Sequence[float] = ()) -> Rails:
    """Return polylines, lists of one or more corners [x, y], in the form of the kernels.

    A rail that ends at its first corner is closed; one of a single corner has length 0.
    """
    most = max(map(len, polylines))
    corner = np.full((len(polylines), most, 5), np.inf)
    length, closed = np.zeros(len(polylines)), np.zeros(len(polylines), np.bool_)
    for r, polyline in enumerate(polylines):
        own = rail_corners(polyline)
        corner[r, : len(own)] = own
        closed[r] = len(polyline) > 1 and tuple(polyline[0]) == tuple(polyline[-1])
        length[r] = own[-1, at.CORNER_ALONG]
    return Rails(corner, length, closed, np.array(starts, np.float64))


@inlined
def rail_of(rails, i):
    """Return the number of the rail of sensor i: its own, or the shared one."""
    return i if rails.length.shape[0] > 1 else 0


@inlined
def gone_along(rails, r, along, distance):
    """Return the place at a signed distance from `along`: round a closed rail, up to the ends of an open one."""
    along += distance
    if rails.closed[r]:
        return along - rails.length[r] * math.floor(along / rails.length[r])
    return min(max(along, 0.0), rails.length[r])


@inlined
def point_on(rails, r, along):
    """Return x, y and the unit vector (x, y) of rail r at a place."""
    k = 0
    while k + 1 < rails.corner.shape[1] and rails.corner[r, k + 1, at.CORNER_ALONG] <= along:
        k += 1
    x, y, rest = rails.corner[r, k, X], rails.corner[r, k, Y], along - rails.corner[r, k, at.CORNER_ALONG]
    way_x, way_y = rails.corner[r, k, at.TO_NEXT_X], rails.corner[r, k, at.TO_NEXT_Y]
    return x + rest * way_x, y + rest * way_y, way_x, way_y


@inlined
def way_between(rails, r, along, other):
    """Return the offset (x, y) from one place on rail r to another."""
    x, y, _, _ = point_on(rails, r, along)
    to_x, to_y, _, _ = point_on(rails, r, other)
    return to_x - x, to_y - y


@inlined
def put_on_rail(state, rails, b, i, along):
    """Put sensor i of scene b at a place on its rail."""
    if rails is not None:
        x, y, way_x, way_y = point_on(rails, rail_of(rails, i), along)
        state.sensor[i, at.ALONG, b] = along
        state.sensor[i, X, b] = x
        state.sensor[i, Y, b] = y
        state.sensor[i, at.RAIL_X, b] = way_x
        state.sensor[i, at.RAIL_Y, b] = way_y


@inlined
def move_along(state, p, rails, action, first, last):
    """Move every working sensor i along its rail by its last decision in `action[b]`, if the action has moves."""
    if rails is not None:
        n = state.sensor.shape[0]
        moves = action.shape[1] - n
        if moves > 0:
            for b in range(first, last):
                for i in range(n):
                    way = (action[b, moves + i] == FORWARD) * 1.0 - (action[b, moves + i] == BACK) * 1.0
                    if way != 0.0 and state.working[i, b] and state.sensor[i, at.RAIL_LENGTH, b] > 0.0:
                        along = state.sensor[i, at.ALONG, b]
                        put_on_rail(state, rails, b, i, gone_along(rails, rail_of(rails, i), along, way * p.rail_step))


_ROUNDING = 1e-9  # tolerance of the limits, degrees


def make_poses(scenario: Any, num_envs: int) -> Poses | None:
    """Return `sensor_positions`, `sensor_headings` and `pan_limits` in the form of the kernels; None without any."""
    n, fixed = scenario.num_sensors, scenario.placement == "fixed"
    if not (fixed or scenario.sensor_headings or scenario.pan_limits):
        return None
    return Poses(
        position=np.array(scenario.sensor_positions if fixed else (), np.float64).reshape(-1, 2)[:n],
        heading=np.array(scenario.sensor_headings, np.float64)[:n],
        pan_limit=limits_of(scenario),
        at_limit=np.zeros((n, num_envs), np.bool_),
    )


def limits_of(scenario: Any) -> np.ndarray:
    """Return the lowest and highest heading (n, 2) of every sensor, degrees; -inf and inf without limits.

    A range of a whole turn or more does not limit.
    """
    limits = np.array(scenario.pan_limits or [(-np.inf, np.inf)], np.float64)
    limits[limits[:, 1] - limits[:, 0] >= 360.0] = -np.inf, np.inf
    return np.broadcast_to(limits, (scenario.num_sensors, 2)).copy()


def within(heading: Any, limit: np.ndarray) -> Any:
    """Return headings (..., n), shifted by whole turns to the middle of their limits (n, 2), degrees."""
    limited = np.isfinite(limit[:, 0])
    middle = np.where(limited[:, None], limit, 0.0).sum(-1) / 2.0
    return np.where(limited, wrapped(heading, middle), heading)


def outside(heading: Any, limit: np.ndarray) -> Any:
    """Return a mask of the headings (..., n) beyond their limits (n, 2)."""
    return (heading < limit[:, 0] - _ROUNDING) | (heading > limit[:, 1] + _ROUNDING)


def turns_to_limits(heading: Any, limit: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Return the maximum numbers of turns (..., n, 2) right and left by `turn` (n,) within the limits, or inf."""
    ways = np.stack((within(heading, limit) - limit[:, 0], limit[:, 1] - within(heading, limit)), -1)
    return np.floor((ways + _ROUNDING) / turn[:, None])


@inlined
def kept_within(poses, i, heading):
    """Return the heading within the limits of sensor i nearest to `heading`, degrees."""
    if poses is None:
        return heading
    low, high = poses.pan_limit[i, 0], poses.pan_limit[i, 1]
    if low == -np.inf:
        return heading
    return min(max(formulas.wrapped(heading, (low + high) / 2.0), low), high)


@inlined
def stop_at_limits(state, poses, i, sign, first, last):
    """Set ``sign[b]`` to 0 where a turn of that sign would take sensor i beyond its limits."""
    if poses is not None:
        low, high = poses.pan_limit[i, 0] - _ROUNDING, poses.pan_limit[i, 1] + _ROUNDING
        for b in range(first, last):
            then = state.sensor[i, at.HEADING, b] + sign[b] * state.sensor[i, at.TURN, b]
            poses.at_limit[i, b] = (sign[b] != 0.0) & ((then < low) | (then > high))
        for b in range(first, last):
            sign[b] = 0.0 if poses.at_limit[i, b] else sign[b]


@inlined
def was_stopped(poses, i, b):
    """Return True if a limit stopped the last turn of sensor i."""
    if poses is None:
        return False
    return poses.at_limit[i, b]
