"""Rails, on which sensors move. Compiled by numba.

A rail is a polyline; a place on it is the distance along it from the first corner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import inlined
from hitmac.envs.base.state import X, Y
from hitmac.envs.features import rail_corners
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Corner, Decision, Shape, scaled
from hitmac.envs.validation import Positive, Range

STAND, FORWARD, BACK = 0, 1, 2  # actions of a sensor on a rail: stay, move away from the first corner, towards it
DECISION = Decision(
    "move", "rails", "sensors move",
    ("stay", "forward along the rail by rail_step", "back along the rail by rail_step"),
)  # fmt: skip
# Columns of a corner of a rail after X and Y: its distance along the rail, and the unit vector to the next corner.
CORNER_ALONG, TO_NEXT_X, TO_NEXT_Y = range(2, 5)


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the rails."""

    rails: tuple[tuple[Corner, ...], ...] = ()
    """Polylines on which the sensors move, each a list of corners, closed if the last is the first: one for all
    sensors, or one for each (a rail of one corner is a fixed place); empty: no sensor moves."""
    rail_step: Positive = scaled(10.0)
    """Distance that a sensor moves along its rail in one sub-step."""
    rail_starts: Annotated[tuple[float, ...], Range(0)] = ()
    """Distances along the rail from its first corner at which sensors start: on a shared rail the first n, assigned at
    random, on rails of their own the i-th for sensor i; empty: anywhere."""

    def _rules_of_rails(self: Any) -> validation.Rules:
        n, starts = self.num_sensors, self.rail_starts[: self.num_sensors] if self.rails else ()
        corners = all(self.rails) and all(one != other for rail in self.rails for one, other in pairwise(rail))
        yield "placement", (self.placement == "rails") == bool(self.rails), "rails if and only if rails are given"
        yield "rails", len(self.rails) in (0, 1, n), f"empty, one rail, or {self._each}"
        yield "rails", corners, "lists of corners [x, y], at least one each, and no two in a row the same"
        yield "rails", all(map(self._holds, self.rails)), self._inside
        yield "rail_starts", len(starts) in (0, n), f"empty, or a place for each of the {n} sensors"
        if starts and corners and len(self.rails) in (1, n):
            lengths = np.broadcast_to(make_rails(self.rails).length, n)[: len(starts)]
            yield "rail_starts", (np.array(starts) <= lengths).all(), "at most the lengths of the rails"


class Rails(NamedTuple):
    """Rails of the sensors, the same in all scenes: R = 1, shared by all sensors, or R = n."""

    corner: np.ndarray  # (R, V, 5); missing corners are at distance inf
    length: np.ndarray  # (R,)
    closed: np.ndarray  # (R,) bool
    start: np.ndarray  # (S,) start distances along the rails; empty: anywhere


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
        length[r] = own[-1, CORNER_ALONG]
    return Rails(corner, length, closed, np.array(starts, np.float64))


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`."""
    return {"rails": make_rails(scenario.rails, scenario.rail_starts) if scenario.rails else None}


def shapes(scenario: Any) -> list[Shape]:
    """Return the rails."""
    return [Shape("line", 2, rail, fill=(200, 198, 190), width=4) for rail in scenario.rails]


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
    while k + 1 < rails.corner.shape[1] and rails.corner[r, k + 1, CORNER_ALONG] <= along:
        k += 1
    x, y, rest = rails.corner[r, k, X], rails.corner[r, k, Y], along - rails.corner[r, k, CORNER_ALONG]
    way_x, way_y = rails.corner[r, k, TO_NEXT_X], rails.corner[r, k, TO_NEXT_Y]
    return x + rest * way_x, y + rest * way_y, way_x, way_y


@inlined
def place_ahead(rails, r, step, action, times, along):
    """Return the offset (x, y) of a sensor on rail r after moves by `step`, and the number of the place, for plans.

    `along` is its share of the rail. Places are counted in steps from the first corner; -1: the present one.
    """
    steps = times * (int(action == FORWARD) - int(action == BACK))
    begin = along * rails.length[r]
    then = gone_along(rails, r, begin, steps * step)
    x, y, _, _ = point_on(rails, r, begin)
    to_x, to_y, _, _ = point_on(rails, r, then)
    return np.float32(to_x - x), np.float32(to_y - y), (-1 if steps == 0 else round(then / step))


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
