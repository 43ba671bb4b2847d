"""Streets of a city, with sensors at their crossings and targets that walk along them. Compiled by numba."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base.compile import compiled, inlined
from hitmac.envs.base.state import GOAL_X, GOAL_Y, SPEED, VELOCITY_X, VELOCITY_Y, X, Y
from hitmac.envs.base.streams import draw_uniform
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import OVER_VIEWS, Shape, scaled
from hitmac.envs.parts.obstacles import GREY
from hitmac.envs.validation import Positive, Range


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of a city."""

    blocks: Annotated[tuple[int, ...], Range(1, 10_000)] = ()
    """[rows, columns] of the blocks of a city, whose sides are further walls; the streets between and around them cross
    at (rows + 1) * (columns + 1) places; empty: no city."""
    street_width: Positive = scaled(50.0)
    """Width of the streets between blocks."""

    def _rules_of_streets(self: Any) -> validation.Rules:
        n, (width, height) = self.num_sensors, self.extent
        yield "walk", self.walk != "streets" or self.blocks, "streets only with blocks"
        yield "placement", self.placement != "crossings" or self.blocks, "crossings only with blocks"
        yield "blocks", len(self.blocks) in (0, 2), "empty, or [rows, columns]"
        if len(self.blocks) == 2:
            rows, columns = self.blocks
            most = min(2 * width / (columns + 1), 2 * height / (rows + 1))
            fits = self.placement != "crossings" or (rows + 1) * (columns + 1) >= n
            yield "street_width", self.street_width < most, f"under {most:g} with these blocks"
            yield "blocks", fits, f"enough for a crossing for each of {n} sensors"


class Streets(NamedTuple):
    """Streets of a city: a lattice of lines."""

    x: np.ndarray  # (columns + 1,) middle lines of the streets that run along y
    y: np.ndarray  # (rows + 1,) middle lines of the streets that run along x
    kept: bool  # the targets keep to the streets


def make_streets(scenario: Any) -> Streets | None:
    """Return the streets between `blocks` in the form of the kernels; None if no sensor or target needs them."""
    if scenario.walk != "streets" and scenario.placement != "crossings":
        return None
    rows, columns = scenario.blocks
    x, y = (
        np.linspace(0.5 * scenario.street_width - half, half - 0.5 * scenario.street_width, count + 1)
        for half, count in zip(scenario.extent, (columns, rows), strict=True)
    )
    return Streets(x, y, scenario.walk == "streets")


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`."""
    return {"streets": make_streets(scenario)}


def shapes(scenario: Any) -> list[Shape]:
    """Return the blocks."""
    sides = scenario.all_walls[len(scenario.walls) :].reshape(-1, 4, 4)  # of each: south, east, north, west
    corners = np.stack((sides[:, 0, :2], sides[:, 1, 2:]), 1)  # lower left and upper right
    return [Shape("rectangle", OVER_VIEWS, block, fill=(232, 229, 221), outline=GREY) for block in corners]


@inlined
def _nearest_line(lines, place):
    """Return the number of the line nearest to a coordinate."""
    k = math.floor((place - lines[0]) / (lines[1] - lines[0]) + 0.5)
    return min(max(k, 0), lines.shape[0] - 1)


@inlined
def _line_ahead(lines, place, up):
    """Return the number of the next line from a coordinate, up or down."""
    k = math.floor((place - lines[0]) / (lines[1] - lines[0]))
    return min(max(k + 1 if up else k, 0), lines.shape[0] - 1)


@inlined
def step_onto_street(state, streets, b, j):
    """Move target j of scene b onto the nearest street; its goal becomes the next crossing towards its former goal."""
    if streets is not None and streets.kept:
        x, y = state.target[j, X, b], state.target[j, Y, b]
        at_x, at_y = streets.x[_nearest_line(streets.x, x)], streets.y[_nearest_line(streets.y, y)]
        if abs(at_x - x) < abs(at_y - y):
            at_y = min(max(y, streets.y[0]), streets.y[-1])
            goal_x, goal_y = at_x, streets.y[_line_ahead(streets.y, at_y, state.target[j, GOAL_Y, b] > y)]
        else:
            at_x = min(max(x, streets.x[0]), streets.x[-1])
            goal_x, goal_y = streets.x[_line_ahead(streets.x, at_x, state.target[j, GOAL_X, b] > x)], at_y
        state.target[j, X, b], state.target[j, Y, b] = at_x, at_y
        state.target[j, GOAL_X, b], state.target[j, GOAL_Y, b] = goal_x, goal_y


@inlined
def _leads_on(streets, column, row, way, back):
    """Return True if a street leads from a crossing in direction `way` (0 east, 1 north, 2 west, 3 south), not back."""
    across, up = (way == 0) - (way == 2), (way == 1) - (way == 3)
    inside = 0 <= column + across < streets.x.shape[0] and 0 <= row + up < streets.y.shape[0]
    return inside and way != back


@inlined
def _take_street(state, streets, b, j, back):
    """Give target j of scene b, at a crossing, the next crossing along a random street except `back` as its goal."""
    column, row = _nearest_line(streets.x, state.target[j, X, b]), _nearest_line(streets.y, state.target[j, Y, b])
    ways = 0
    for way in range(4):
        ways += _leads_on(streets, column, row, way, back)
    drawn = int(draw_uniform(state.stream, b) * ways)
    for way in range(4):
        if _leads_on(streets, column, row, way, back):
            if drawn == 0:
                state.target[j, GOAL_X, b] = streets.x[column + (way == 0) - (way == 2)]
                state.target[j, GOAL_Y, b] = streets.y[row + (way == 1) - (way == 3)]
            drawn -= 1


@inlined
def _go(state, b, j, length):
    """Move target j of scene b towards its goal; return the remaining length, negative if the goal is not reached."""
    to_x, to_y = state.target[j, GOAL_X, b] - state.target[j, X, b], state.target[j, GOAL_Y, b] - state.target[j, Y, b]
    away = math.sqrt(to_x * to_x + to_y * to_y)
    if away <= length:
        state.target[j, X, b], state.target[j, Y, b] = state.target[j, GOAL_X, b], state.target[j, GOAL_Y, b]
    else:
        state.target[j, X, b] += to_x * (length / away)
        state.target[j, Y, b] += to_y * (length / away)
    return length - away


@inlined
def _back(to_x, to_y):
    """Return the direction opposite to an offset along a street, or -1."""
    if to_x != 0.0 and to_y != 0.0:
        return -1
    if to_x != 0.0:
        return 2 if to_x > 0.0 else 0
    if to_y != 0.0:
        return 3 if to_y > 0.0 else 1
    return -1


@compiled
def walk_streets(state, p, streets, grid, first, last):
    """Along the streets between `blocks`, from crossing to crossing, into any street except back.

    A move ends at the second crossing at the latest. A target placed off the streets goes to the nearest crossing
    first.
    """
    if streets is not None:
        for b in range(first, last):
            for j in range(state.target.shape[0]):
                length = state.target[j, SPEED, b] * p.time_step
                if p.speed_noise > 0.0:
                    length *= 1.0 + p.speed_noise * draw_uniform(state.stream, b)
                x, y = state.target[j, X, b], state.target[j, Y, b]
                to_x, to_y = state.target[j, GOAL_X, b] - x, state.target[j, GOAL_Y, b] - y
                if to_x != 0.0 and to_y != 0.0:
                    state.target[j, GOAL_X, b] = streets.x[_nearest_line(streets.x, x)]
                    state.target[j, GOAL_Y, b] = streets.y[_nearest_line(streets.y, y)]
                rest = _go(state, b, j, length)
                if rest >= 0.0:
                    _take_street(state, streets, b, j, _back(to_x, to_y))
                    _go(state, b, j, rest)
                state.target[j, VELOCITY_X, b] = (state.target[j, X, b] - x) / p.time_step
                state.target[j, VELOCITY_Y, b] = (state.target[j, Y, b] - y) / p.time_step
