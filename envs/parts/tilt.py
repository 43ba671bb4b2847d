"""Tilt: a sensor at a height sees the floor between a near and a far edge. Compiled by numba.

With the mounting height h, the tilt t below the horizon and the vertical field of view v, they are at the distances
``h / tan(t + v / 2)``, and ``h / tan(t - v / 2)`` or the range, if that is less or the edge is over the horizon. The
row of a sensor's range is the far edge.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import features, validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import inlined
from hitmac.envs.base.formulas import floor_edges, range_squared
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Decision
from hitmac.envs.parts.lenses import squared_ranges
from hitmac.envs.parts.motors import COMMANDED
from hitmac.envs.validation import Positive, Range, Row, over

DOWN, UP = 1, 2  # actions of a sensor that tilts; 0: stay
DECISION = Decision("tilt", "tilt_limits", "sensors tilt", ("stay", "down by tilt_step", "up by tilt_step"))


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the tilt."""

    tilt_limits: tuple[Annotated[tuple[float, float], Row(("lowest", "highest"))], ...] = ()
    """Lowest and highest tilt of a sensor below the horizon, 0 to 90 degrees; episodes start in the middle. One pair
    for all sensors, or one for each; empty: sensors do not tilt, and see the floor from their feet to their range."""
    tilt_step: Positive = 5.0
    """Change of the tilt in one sub-step of tilting, degrees."""
    mount_height: Annotated[float | tuple[float, ...], Range(0)] = 0.0
    """Height of a sensor that tilts over the floor. One number, or one for each sensor."""
    vertical_view: Annotated[float | tuple[float, ...], over(0, 180, "degrees")] = 50.0
    """Vertical opening angle of a sensor that tilts, at its `field_of_view`; a zoom changes both in proportion. One
    number, or one for each sensor."""

    def _rules_of_tilt(self: Any) -> validation.Rules:
        limits, each = self.tilt_limits, f"one number, or {self._each}"
        pairs = len(limits) in (0, 1, self.num_sensors) and all(0 <= low <= high <= 90 for low, high in limits)
        yield "tilt_limits", pairs, "empty, or [lowest, highest] from 0 to 90 degrees, one pair or " + self._each
        yield "tilt_limits", not (limits and self.is_game), "empty with warehouses"
        for name in ("mount_height", "vertical_view"):
            yield name, np.size(getattr(self, name)) in (1, self.num_sensors), each
        yield "mount_height", not limits or np.all(np.array(self.mount_height) > 0), "over 0 with tilt_limits"


class Mount(NamedTuple):
    """Mounts of n sensors that tilt, for planners too; n = 0: they do not."""

    height: np.ndarray  # (n,)
    vertical: np.ndarray  # (n,) vertical / horizontal field of view
    limit: np.ndarray  # (n, 2) degrees
    step: float  # degrees


class Tilts(NamedTuple):
    """Sensors that tilt. Their tilts and near edges are rows of the sensors, which others do not have."""

    mount: Mount
    decision: int  # number of the tilt among the decisions of a sensor
    # Undefined between two sub-steps:
    share: np.ndarray  # (n, B) commanded shares of the step, down over 0


def make_mount(scenario: Any) -> Mount:
    """Return the mounts of a scenario."""
    n = scenario.num_sensors if scenario.tilt_limits else 0
    height, vertical, view = map(scenario.of_each_sensor, ("mount_height", "vertical_view", "field_of_view"))
    limit = np.broadcast_to(np.array(scenario.tilt_limits or [(0.0, 0.0)], np.float64), (scenario.num_sensors, 2))
    return Mount(height[:n], (vertical / view)[:n], limit[:n].copy(), float(scenario.tilt_step))


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`."""
    if not scenario.tilt_limits:
        return {"tilts": None}
    share = np.zeros((scenario.num_sensors, padded))
    return {"tilts": Tilts(make_mount(scenario), scenario.decisions.index("tilt"), share)}


def edges_of(scenario: Any, squared: Any, view: Any, tilt: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared distances (..., n) of the far and the near edge of lenses with a squared range and a view."""
    mount = make_mount(scenario)
    with np.errstate(divide="ignore"):
        return features.floor_edges(squared, mount.height, tilt, 0.5 * mount.vertical * view)


def footprints(scenario: Any, view: Any, tilt: Any) -> dict[str, np.ndarray]:
    """Return the distances (..., n) of what sensors with a view and a tilt see of the floor.

    They are ``reach``, and where sensors tilt ``near``, that of the near edge.
    """
    squared = squared_ranges(scenario, view)
    edges = edges_of(scenario, squared, view, tilt) if scenario.tilt_limits else (squared,)
    return {name: np.sqrt(edge) for name, edge in zip(("reach", "near"), edges, strict=False)}


def nearest_edges(scenario: Any) -> float:
    """Return the largest distance of a near edge."""
    view = min(scenario.zoom or scenario.of_each_sensor("field_of_view"))
    return float(np.sqrt(edges_of(scenario, 0.0, view, make_mount(scenario).limit[:, 0])[1].max()))


@inlined
def set_tilt(state, tilts, b, i, tilt):
    """Set the tilt of sensor i of scene b, degrees, and the edges of its view, which follow from it and the lens."""
    if tilts is not None:
        sensor, mount = state.sensor[i], tilts.mount
        half = 0.5 * mount.vertical[i] * sensor[at.FIELD_OF_VIEW, b]
        longest = range_squared(sensor[at.VIEW_AREA, b], sensor[at.FIELD_OF_VIEW, b])
        far, near = floor_edges(longest, mount.height[i], tilt, half)
        sensor[at.TILT, b], sensor[at.RANGE_SQUARED, b], sensor[at.NEAR_SQUARED, b] = tilt, far, near


@inlined
def begin_tilt(state, tilts, b):
    """Tilt the sensors of scene b to the middle of their limits."""
    if tilts is not None:
        for i in range(state.sensor.shape[0]):
            state.sensor[i, at.TILT, b] = 0.5 * (tilts.mount.limit[i, 0] + tilts.mount.limit[i, 1])


@inlined
def tilted(mount, i, tilt, steps):
    """Return the tilt of sensor i after a number of steps down, within its limits."""
    return min(max(tilt + mount.step * steps, mount.limit[i, 0]), mount.limit[i, 1])


@inlined
def tilt(state, tilts, action, first, last):
    """Tilt every working sensor i by its decision in `action[b]`, if the action has tilts, after turns and zooms."""
    if tilts is not None:
        n = state.sensor.shape[0]
        for b in range(first, last):
            for i in range(n):
                now, steps = state.sensor[i, at.TILT, b], 0.0
                if action.shape[1] > n and state.working[i, b]:
                    way = action[b, tilts.decision * n + i]
                    steps = tilts.share[i, b] if way == COMMANDED else (way == DOWN) * 1.0 - (way == UP) * 1.0
                then = tilted(tilts.mount, i, now, steps)
                state.rotated[i, b] |= then != now
                set_tilt(state, tilts, b, i, then)  # also without a tilt: a zoom has set the range


@inlined
def edges_ahead(mount, i, action, times, now, half_view, squared):
    """Return the squared far and near edge of sensor i after `times` tilts from `now`, degrees, for plans.

    Its lens then has half a field of view of `half_view` degrees, and a `squared` range.
    """
    if mount.height.shape[0] == 0:
        return squared, 0.0
    then = tilted(mount, i, now, times * ((action == DOWN) * 1.0 - (action == UP) * 1.0))
    return floor_edges(squared, mount.height[i], then, mount.vertical[i] * half_view)
