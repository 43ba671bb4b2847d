"""Sensors: their views, places, headings, turns, pan limits and failures. Compiled by numba."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import formulas
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import allocating, compiled, inlined, one_of
from hitmac.envs.base.state import X, Y
from hitmac.envs.base.streams import MOST_DRAWS, draw_between, draw_integer, draw_point, draw_uniform
from hitmac.envs.features import wrapped
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Area, Corner, Decision, Pan, scaled
from hitmac.envs.parts.rails import put_on_rail
from hitmac.envs.validation import Choice, Fraction, NotNegative, Range, over

STAY, LEFT, RIGHT = 0, 1, 2  # actions of a sensor
DECISION = Decision(
    "turn", "turn_angle", "sensors turn",
    ("stay", "left (counter-clockwise) by turn_angle", "right (clockwise) by turn_angle"),
)  # fmt: skip
_ROUNDING = 1e-9  # tolerance of the limits, degrees


class Poses(NamedTuple):
    """Positions, start headings and pan limits of the sensors, the same in all scenes."""

    position: np.ndarray  # (n, 2), or (0, 2) without fixed positions
    heading: np.ndarray  # (n,) degrees, or (0,) without fixed start headings
    pan_limit: np.ndarray  # (n, 2) degrees, lowest and highest heading; -inf and inf: none


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


def check_pan(headings: np.ndarray, limit: np.ndarray, name: str) -> None:
    """Raise ValueError, with `name`, for a heading (..., n) beyond its limits (n, 2), degrees."""
    if (wrong := outside(headings, limit)).any():
        low, high = np.broadcast_to(limit, (*headings.shape, 2))[wrong][0]
        raise ValueError(f"{name} holds {headings[wrong][0]:g}; it must be within the pan_limits {low:g} to {high:g}")


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`."""
    n, fixed = scenario.num_sensors, scenario.placement == "fixed"
    if not (fixed or scenario.sensor_headings or scenario.pan_limits):
        return {}
    poses = Poses(
        position=np.array(scenario.sensor_positions if fixed else (), np.float64).reshape(-1, 2)[:n],
        heading=np.array(scenario.sensor_headings, np.float64)[:n],
        pan_limit=limits_of(scenario),
    )
    return {"poses": poses}


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
            sign[b] = 0.0 if (then < low) | (then > high) else sign[b]


@allocating
def deal(state, b, n, count):
    """Return n different ones of the numbers 0 to count - 1, drawn at random (Fisher and Yates)."""
    dealt = np.arange(count)
    for i in range(min(n, count - 1)):
        k = int(draw_integer(state.stream, b, i, count - 1))
        dealt[i], dealt[k] = dealt[k], dealt[i]
    return dealt[:n]


@allocating
def _in_areas(state, p, poses, rails, streets, b):
    """Anywhere in `sensor_areas`, dealt out to the sensors at random."""
    dealt = deal(state, b, state.sensor.shape[0], state.areas.shape[0])
    for i in range(state.sensor.shape[0]):
        area = state.areas[dealt[i]]
        point = draw_point(state, p, b, area[0], area[1], area[2], area[3])
        state.sensor[i, X, b], state.sensor[i, Y, b] = point


@allocating
def _on_grid(state, p, poses, rails, streets, b):
    """In the centres of different random cells of a grid over the arena, with `grid` cells along each side."""
    dealt = deal(state, b, state.sensor.shape[0], p.grid * p.grid)
    for i in range(state.sensor.shape[0]):
        x = ((dealt[i] % p.grid + 0.5) / p.grid * 2.0 - 1.0) * p.half_width
        y = ((dealt[i] // p.grid + 0.5) / p.grid * 2.0 - 1.0) * p.half_height
        state.sensor[i, X, b], state.sensor[i, Y, b] = draw_point(state, p, b, x, x, y, y)


@compiled
def _anywhere(state, p, poses, rails, streets, b):
    """Anywhere in the arena outside the discs, at least `spacing` from the other sensors."""
    for i in range(state.sensor.shape[0]):
        free, draws = False, 0
        while not free and draws < MOST_DRAWS:  # a valid scenario has a quarter of the arena free
            draws += 1
            x = draw_between(state.stream, b, -p.half_width, p.half_width, False)
            y = draw_between(state.stream, b, -p.half_height, p.half_height, False)
            free = True
            for other in range(i if p.spacing > 0.0 else 0):
                dx = x - state.sensor[other, X, b]
                dy = y - state.sensor[other, Y, b]
                free = free and dx * dx + dy * dy >= p.spacing * p.spacing
            for k in range(p.fixed_discs):
                dx = x - state.disc[k, X, b]
                dy = y - state.disc[k, Y, b]
                free = free and dx * dx + dy * dy > state.disc[k, at.RADIUS, b] ** 2
            state.sensor[i, X, b] = x
            state.sensor[i, Y, b] = y


@allocating
def _on_rails(state, p, poses, rails, streets, b):
    """On their rails, at `rail_starts`, on a shared rail dealt out at random, or anywhere without starts."""
    if rails is not None:
        n, given, shared = state.sensor.shape[0], rails.start.shape[0] > 0, rails.length.shape[0] == 1
        dealt = deal(state, b, n, n) if given and shared else np.arange(n)
        for i in range(n):
            if given:
                along = rails.start[dealt[i]]
            else:
                along = draw_between(state.stream, b, 0.0, state.sensor[i, at.RAIL_LENGTH, b], False)
            put_on_rail(state, rails, b, i, along)


@compiled
def _fixed(state, p, poses, rails, streets, b):
    """At `sensor_positions`, sensor i at the i-th."""
    if poses is not None:
        for i in range(poses.position.shape[0]):
            state.sensor[i, X, b] = poses.position[i, 0]
            state.sensor[i, Y, b] = poses.position[i, 1]


@allocating
def _at_crossings(state, p, poses, rails, streets, b):
    """At different random crossings of the streets between `blocks`."""
    if streets is not None:
        columns = streets.x.shape[0]
        dealt = deal(state, b, state.sensor.shape[0], columns * streets.y.shape[0])
        for i in range(state.sensor.shape[0]):
            state.sensor[i, X, b] = streets.x[dealt[i] % columns]
            state.sensor[i, Y, b] = streets.y[dealt[i] // columns]


PLACEMENTS = {
    "areas": _in_areas, "grid": _on_grid, "random": _anywhere, "rails": _on_rails, "fixed": _fixed,
    "crossings": _at_crossings,
}  # fmt: skip
"""The placements of the sensors, by name: functions that place all sensors of a scene.

Poses, rails and streets are arguments of their own, since numba omits code under ``is not None`` only for arguments.
"""


place_sensors = one_of(tuple(PLACEMENTS.values()))
"""Place the sensors of a scene by the placement of a code, its index in the table."""


@inlined
def set_heading(state, b, i, heading):
    """Turn sensor i of scene b to `heading`, degrees."""
    state.sensor[i, at.HEADING, b] = heading
    radians = math.radians(heading)
    state.sensor[i, at.DIRECTION_X, b] = math.cos(radians)
    state.sensor[i, at.DIRECTION_Y, b] = math.sin(radians)


@inlined
def start_heading(state, p, poses, b, i):
    """Return the start heading of sensor i, degrees: its own, towards a target, or random within its limits."""
    low, high = -180.0, 180.0
    if poses is not None:
        if poses.heading.shape[0] > 0:
            return poses.heading[i]
        if poses.pan_limit[i, 0] > -np.inf:
            low, high = poses.pan_limit[i, 0], poses.pan_limit[i, 1]
    if p.start_facing_target:
        j = i % state.scene[at.NUM_TARGETS, b]
        return math.degrees(
            math.atan2(state.target[j, Y, b] - state.sensor[i, Y, b], state.target[j, X, b] - state.sensor[i, X, b])
        )
    return draw_between(state.stream, b, low, high, p.whole_numbers)


@inlined
def fail_and_recover(state, p, first, last):
    """Let sensors fail and recover, with their probabilities per sub-step."""
    if p.failure_rate > 0.0:
        for b in range(first, last):
            for i in range(min(state.scene[at.NUM_SENSORS, b], state.working.shape[0])):
                u = draw_uniform(state.stream, b)
                state.working[i, b] = u >= p.failure_rate if state.working[i, b] else u < p.recovery_rate


@inlined
def rotate(sensor, i, b, angle):
    """Rotate the direction of sensor i of scene b by an angle, radians."""
    c, s, x, y = math.cos(angle), math.sin(angle), sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b]
    sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b] = c * x - s * y, s * x + c * y


@inlined
def turn(state, poses, action, first, last):
    """Turn every working sensor i by `action[b, i]` (stay, left, right), within its limits.

    The direction (x, y) becomes (c x - s y, s x + c y), with c and s the cosine and sine of the angle, which is much
    cheaper than cosine and sine of the heading. Rounding errors stay under 1e-13 over a thousand turns.
    """
    sensor, sign, turned_x = state.sensor, state.scratch[0], state.scratch[1]
    for i in range(sensor.shape[0]):
        x, y = sensor[i, at.DIRECTION_X], sensor[i, at.DIRECTION_Y]
        for b in range(first, last):
            sign[b] = (action[b, i] == LEFT) * 1.0 - (action[b, i] == RIGHT) * 1.0
        for b in range(first, last):
            sign[b] *= state.working[i, b]
        stop_at_limits(state, poses, i, sign, first, last)
        for b in range(first, last):
            state.rotated[i, b] = sign[b] != 0.0
        for b in range(first, last):
            sensor[i, at.HEADING, b] += sign[b] * sensor[i, at.TURN, b]
        for b in range(first, last):
            c, s = (sensor[i, at.COS_TURN, b] if sign[b] != 0.0 else 1.0), sign[b] * sensor[i, at.SIN_TURN, b]
            turned_x[b] = c * x[b] - s * y[b]
        for b in range(first, last):
            c, s = (sensor[i, at.COS_TURN, b] if sign[b] != 0.0 else 1.0), sign[b] * sensor[i, at.SIN_TURN, b]
            y[b] = s * x[b] + c * y[b]
        for b in range(first, last):
            x[b] = turned_x[b]


@inlined
def count_rotated(state, first, last):
    """Count the sensors that turned or tilted."""
    for b in range(first, last):
        state.scene[at.TURNED, b] = 0
    for i in range(state.rotated.shape[0]):
        for b in range(first, last):
            state.scene[at.TURNED, b] += state.rotated[i, b]


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the sensors."""

    sensing_range: Annotated[float | tuple[float, ...], over(0)] = scaled(800.0)
    """Largest distance at which a sensor sees a target. One number, or one for each sensor."""
    field_of_view: Annotated[float | tuple[float, ...], over(0, 360, "degrees")] = 90.0
    """Full opening angle, 360 all round; a target is in view if strictly within half of it. One number, or one for each
    sensor."""
    turn_angle: Annotated[float | tuple[float, ...], over(0, 180, "degrees")] = 5.0
    """Angle that a sensor turns in one sub-step. One number, or one for each sensor."""

    def _rules_of_views(self: Any) -> validation.Rules:
        for name in ("sensing_range", "field_of_view", "turn_angle"):
            yield name, np.size(getattr(self, name)) in (1, self.num_sensors), f"one number, or {self._each}"

    failure_rate: Fraction = 0.0
    """Probability that a working sensor fails in a sub-step; it then neither sees nor turns."""
    recovery_rate: Fraction = 0.0
    """Probability that a failed sensor recovers in a sub-step."""
    placement: Annotated[str, Choice(PLACEMENTS)] = "areas"
    """Placement of the sensors:"""
    sensor_positions: tuple[Corner, ...] = ()
    """(x, y) of each sensor, with the placement `fixed`."""
    sensor_headings: tuple[float, ...] = ()
    """Initial heading of each sensor, degrees; empty: by start_heading."""
    pan_limits: tuple[Pan, ...] = ()
    """Lowest and highest heading of a sensor, degrees; a turn beyond them counts as staying. One pair for all sensors,
    or one for each; a whole turn or more, or empty: no limits."""
    sensor_areas: tuple[Area, ...] = scaled((
        (250, 750, 250, 750), (250, 750, -750, -250), (-1250, -750, -250, 250),
        (-750, -250, 250, 750), (750, 1250, -250, 250), (-750, -250, -750, -250),
    ))  # fmt: skip
    """(x low, x high, y low, y high) of the areas of the sensors; the first n, or all again and again if fewer, are
    assigned to the sensors at random."""
    grid: Annotated[int, Range(1, 10_000)] = 10
    """Cells along a side of the grid."""
    spacing: NotNegative = 0.0
    """Least distance between sensors placed at random."""
    start_heading: Annotated[str, Choice(("random", "target"))] = "random"
    """Initial headings: `random`: uniform in [-180, 180] degrees; `target`: sensor i faces target i (modulo m).
    With pan_limits, uniform within them, or the nearest heading within."""

    def _rules_of_placements(self: Any) -> validation.Rules:
        n, each, places, headings = self.num_sensors, self._each, self.sensor_positions, self.sensor_headings
        areas = self.sensor_areas if self.placement == "areas" else ()
        yield "sensor_areas", self.placement != "areas" or areas, "at least one area"
        yield "sensor_areas", all(map(self._holds_area, areas)), f"[x low, x high, y low, y high] {self._inside}"
        fits = self.placement != "grid" or self.grid**2 >= n
        yield "grid", fits, f"large enough for one cell for each of {n} sensors"
        taken = (n - 1) * self.spacing**2 + sum(radius**2 for *_, radius in self.discs)
        fits = self.placement != "random" or taken <= self._room
        yield "spacing", fits, f"smaller, since {n} sensors would fill the arena"
        fits = (self.placement == "fixed") == bool(places)
        yield "placement", fits, "fixed if and only if sensor_positions are given"
        yield "sensor_positions", len(places) in (0, n), f"[x, y] of each of the {n} sensors"
        yield "sensor_positions", self._holds(places), f"[x, y] of each of the {n} sensors, {self._inside}"
        pans = len(self.pan_limits) in (0, 1, n) and all(low <= high for low, high in self.pan_limits)
        yield "pan_limits", pans, f"empty, or [low, high] with low at most high, one pair or {each}"
        yield "sensor_headings", len(headings) in (0, n), f"empty, or {each}"
        if headings and pans and len(headings) == n:
            limits = limits_of(self)
            far = outside(within(np.array(headings), limits), limits)
            yield "sensor_headings", not far.any(), f"within pan_limits {self.pan_limits}"
