"""Obstacles, and what the sensors see past them. Compiled by numba.

In small scenes every sensor looks at every target, in many scenes at a time. In large scenes, whose state has a grid, a
sensor looks only at the cells within its range.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import compiled, inlined
from hitmac.envs.base.formulas import disc_blocks, in_view, row_or_0, wall_blocks
from hitmac.envs.base.nearest import box_of, sort_places
from hitmac.envs.base.state import X, Y
from hitmac.envs.base.streams import MOST_DRAWS, draw_between
from hitmac.envs.deployment import walls_of
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import OVER_VIEWS, Area, Disc, Shape, Wall, scaled
from hitmac.envs.validation import Natural, over

GREY = (112, 106, 98)  # of obstacles in pictures


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the obstacles."""

    discs: tuple[Disc, ...] = ()
    """(x, y, radius) of round obstacles, which block the view and not the targets."""
    random_discs: Natural = 0
    """Number of further discs at random positions, drawn for every episode, none over a sensor; fewer if space is
    short."""
    disc_radius: Annotated[tuple[float, ...], over(0)] = scaled((25.0, 100.0))
    """Lowest and highest radius of random discs, at most half the arena's shorter side."""
    disc_areas: tuple[Area, ...] = ()
    """(x low, x high, y low, y high) of the areas of random discs, with warehouses, dealt out as sensor_areas; empty:
    the arena."""

    def _rules_of_discs(self: Any) -> validation.Rules:
        small, large, most = min(self.disc_radius, default=0), max(self.disc_radius, default=0), min(self.extent)
        yield "discs", all(radius > 0 for *_, radius in self.discs), "[x, y, radius] with a radius over 0"
        yield "disc_radius", self.disc_radius == (small, large), "the lowest and the highest radius"
        if self.random_discs:
            free = self.num_sensors * large**2 <= self._room
            yield "disc_radius", large <= most, f"at most the arena ({most:g})"
            yield "disc_radius", free, "smaller, since no disc may cover any sensor"
        yield "disc_areas", self.is_game or not self.disc_areas, "empty without warehouses"
        fits = all(map(self._holds_area, self.disc_areas))
        yield "disc_areas", fits, f"[x low, x high, y low, y high] {self._inside}"

    walls: tuple[Wall, ...] = ()
    """(x1, y1, x2, y2) of straight walls, which block the view and not the targets."""

    @property
    def all_walls(self: Any) -> np.ndarray:
        """(w, 4) x1, y1, x2, y2 of `walls`, and of the sides of `blocks`."""
        return walls_of(self.walls, self.extent, self.blocks, self.street_width)

    @property
    def has_obstacles(self: Any) -> bool:
        """True with walls, blocks or discs."""
        return bool(self.walls or self.blocks or self.discs or self.random_discs)


def shapes(scenario: Any) -> list[Shape]:
    """Return the walls; discs differ from scene to scene."""
    return [Shape("line", OVER_VIEWS + 1, np.reshape(wall, (2, 2)), fill=GREY) for wall in scenario.walls]


@inlined
def disc_at(disc, k, b):
    """Return x, y and radius of disc k of scene b."""
    return disc[k, X, b], disc[k, Y, b], disc[k, at.RADIUS, b]


@compiled
def _see_all(state, first, last):
    """Compute :func:`see` from all pairs of a sensor and a target."""
    # Each loop over the scenes has one test and no branch, so that the compiler can vectorise it.
    sensor, target, disc, num_present = state.sensor, state.target, state.disc, state.scratch[0]
    for b in range(first, last):
        state.scene[at.NUM_COVERED, b] = 0
    for b in range(first, last):
        num_present[b] = 0.0
    for j in range(target.shape[0]):
        for b in range(first, last):
            state.covered[j, b] = False
        for i in range(sensor.shape[0]):
            for b in range(first, last):
                state.visible[i, j, b] = in_view(
                    sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b],
                    sensor[i, at.RANGE_SQUARED, b], sensor[i, at.COS_HALF_VIEW, b],
                    target[j, X, b] - sensor[i, X, b], target[j, Y, b] - sensor[i, Y, b],
                )  # fmt: skip
            for b in range(first, last if sensor.shape[1] > at.NUM_ROWS else first):
                dx, dy = target[j, X, b] - sensor[i, X, b], target[j, Y, b] - sensor[i, Y, b]
                state.visible[i, j, b] &= dx * dx + dy * dy >= sensor[i, at.NEAR_SQUARED, b]
            for b in range(first, last):
                state.visible[i, j, b] &= state.working[i, b] & state.present[j, b]
            for k in range(disc.shape[0]):
                for b in range(first, last):
                    x, y = sensor[i, X, b], sensor[i, Y, b]
                    state.visible[i, j, b] &= not disc_blocks(
                        x, y, target[j, X, b] - x, target[j, Y, b] - y, disc_at(disc, k, b)
                    )
            for k in range(state.walls.shape[0]):
                for b in range(first, last):
                    x, y = sensor[i, X, b], sensor[i, Y, b]
                    state.visible[i, j, b] &= not wall_blocks(
                        x, y, target[j, X, b] - x, target[j, Y, b] - y, state.walls[k]
                    )
            for b in range(first, last):
                state.covered[j, b] |= state.visible[i, j, b]
        for b in range(first, last):
            state.scene[at.NUM_COVERED, b] += state.covered[j, b]
        for b in range(first, last):
            num_present[b] += state.present[j, b]
    for b in range(first, last):
        state.coverage[b] = state.scene[at.NUM_COVERED, b] / num_present[b] if num_present[b] > 0.0 else 1.0


@compiled
def sort_scene(state, grid, b):
    """Sort the targets and the discs of scene b into cells."""
    sort_places(grid.cells, state.target, state.present, b, grid.targets)
    if state.disc.shape[0] > 0:
        sort_places(grid.cells, state.disc, None, b, grid.discs)


@inlined
def widest_disc(disc, b):
    """Return the largest radius of a disc of scene b, 0 without discs."""
    widest = 0.0
    for k in range(disc.shape[0]):
        widest = max(widest, disc[k, at.RADIUS, b])
    return widest


@compiled
def is_clear(disc, walls, grid, b, widest, x, y, dx, dy):
    """Return True if no disc, of a radius up to `widest`, and no wall blocks the view from (x, y) to (dx, dy) from it.

    `grid` has the cells, discs and walls of a :class:`~hitmac.envs.base.nearest.Grid`.
    """
    low_x, high_x, low_y, high_y = x + min(dx, 0.0), x + max(dx, 0.0), y + min(dy, 0.0), y + max(dy, 0.0)
    columns = grid.cells.columns
    left, right, low, high = box_of(grid.cells, low_x - widest, high_x + widest, low_y - widest, high_y + widest)
    for row in range(low, high + 1):
        for s in range(grid.discs.start[b, row * columns + left], grid.discs.start[b, row * columns + right + 1]):
            k = grid.discs.number[b, s]
            if disc_blocks(x, y, dx, dy, disc_at(disc, k, b)):
                return False
    left, right, low, high = box_of(grid.cells, low_x, high_x, low_y, high_y)
    for row in range(low, high + 1):
        for s in range(grid.wall_start[row * columns + left], grid.wall_start[row * columns + right + 1]):
            if wall_blocks(x, y, dx, dy, walls[grid.wall[s]]):
                return False
    return True


@compiled
def look_around(state, grid, b, i):
    """Compute the targets that sensor i of scene b sees, after :func:`sort_scene`."""
    # Only the targets seen before are cleared, unless their list was too short.
    if grid.num_seen[b, i] > grid.seen.shape[2]:
        for j in range(state.visible.shape[1]):
            state.visible[i, j, b] = False
    else:
        for s in range(grid.num_seen[b, i]):
            state.visible[i, grid.seen[b, i, s], b] = False
    count = 0
    if state.working[i, b]:
        x, y = state.sensor[i, X, b], state.sensor[i, Y, b]
        direction_x, direction_y = state.sensor[i, at.DIRECTION_X, b], state.sensor[i, at.DIRECTION_Y, b]
        range_squared, cos_half_view = state.sensor[i, at.RANGE_SQUARED, b], state.sensor[i, at.COS_HALF_VIEW, b]
        near_squared = row_or_0(state.sensor[i], at.NEAR_SQUARED, b)
        reach, widest = math.sqrt(range_squared), widest_disc(state.disc, b)
        left, right, low, high = box_of(grid.cells, x - reach, x + reach, y - reach, y + reach)
        open_view, start = state.disc.shape[0] + state.walls.shape[0] == 0, grid.targets.start[b]
        for row in range(low, high + 1):
            for s in range(start[row * grid.cells.columns + left], start[row * grid.cells.columns + right + 1]):
                dx, dy = grid.targets.x[b, s] - x, grid.targets.y[b, s] - y
                if (
                    in_view(direction_x, direction_y, range_squared, cos_half_view, dx, dy)
                    and dx * dx + dy * dy >= near_squared
                    and (open_view or is_clear(state.disc, state.walls, grid, b, widest, x, y, dx, dy))
                ):
                    j = grid.targets.number[b, s]
                    state.visible[i, j, b] = True
                    if count < grid.seen.shape[2]:
                        grid.seen[b, i, count] = j
                    count += 1
    grid.num_seen[b, i] = count


@compiled
def look_from(state, grid, chosen, low, high):
    """Call :func:`look_around` for sensors `low` to `high` - 1, counted scene by scene, of the chosen scenes."""
    n = state.sensor.shape[0]
    for item in range(low, high):
        if chosen[item // n]:
            look_around(state, grid, item // n, item % n)


@compiled
def count_covered(state, grid, b):
    """Compute the first sensor that sees each target of scene b, and coverage, after :func:`look_around`."""
    for j in range(grid.seer.shape[1]):
        grid.seer[b, j] = -1
    for i in range(grid.num_seen.shape[1]):
        if grid.num_seen[b, i] > grid.seen.shape[2]:
            for j in range(grid.seer.shape[1]):
                if state.visible[i, j, b] and grid.seer[b, j] < 0:
                    grid.seer[b, j] = i
        else:
            for s in range(grid.num_seen[b, i]):
                if grid.seer[b, grid.seen[b, i, s]] < 0:
                    grid.seer[b, grid.seen[b, i, s]] = i
    covered, present = 0, 0
    for j in range(grid.seer.shape[1]):
        state.covered[j, b] = grid.seer[b, j] >= 0
        covered += grid.seer[b, j] >= 0
        present += state.present[j, b]
    state.scene[at.NUM_COVERED, b] = covered
    state.coverage[b] = covered / present if present > 0 else 1.0


@compiled
def see(state, grid, first, last):
    """Compute visibility, covered targets and coverage.

    A target is visible if ``near edge <= distance <= range`` (sensors that do not tilt have no near edge),
    ``abs(bearing) < field_of_view / 2`` (computed as ``dot(direction, offset) > cos(field_of_view / 2) * distance``),
    and no obstacle blocks the view. `grid` is an argument of its own, since numba omits code under ``is not None`` only
    for arguments.
    """
    if grid is not None:
        for b in range(first, last):
            sort_scene(state, grid, b)
            for i in range(state.sensor.shape[0]):
                look_around(state, grid, b, i)
            count_covered(state, grid, b)
    else:
        _see_all(state, first, last)


@inlined
def place_discs(state, p, b):
    """Place the random discs of scene b inside the arena and over no sensor.

    A disc for which no such place is found gets the radius 0, so that it blocks no view.
    """
    for k in range(p.fixed_discs, state.disc.shape[0]):
        free, draws = False, 0
        while not free and draws < MOST_DRAWS:
            draws += 1
            radius = draw_between(state.stream, b, p.disc_radius[0], p.disc_radius[1], False)
            x = draw_between(state.stream, b, radius - p.half_width, p.half_width - radius, False)
            y = draw_between(state.stream, b, radius - p.half_height, p.half_height - radius, False)
            free = True
            for i in range(state.sensor.shape[0]):
                dx = x - state.sensor[i, X, b]
                dy = y - state.sensor[i, Y, b]
                free = free and dx * dx + dy * dy > radius * radius
            state.disc[k, X, b] = x
            state.disc[k, Y, b] = y
            state.disc[k, at.RADIUS, b] = radius if free else 0.0
