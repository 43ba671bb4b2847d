"""Sight: which sensor sees which target, in small scenes by a look at every pair. Compiled by numba."""

import math

from hitmac.envs.kernels.compiled import compiled
from hitmac.envs.kernels.near_sight import see_near
from hitmac.envs.kernels.obstruction import disc_blocks, wall_blocks
from hitmac.envs.kernels.state import (
    COS_HALF_VIEW,
    DIRECTION_X,
    DIRECTION_Y,
    NUM_COVERED,
    RADIUS,
    RANGE_SQUARED,
    X,
    Y,
)  # fmt: skip


@compiled
def _look_past_obstacles(state, i, j, first, last):
    """Mark target j as not visible to sensor i where a disc or a wall blocks the view."""
    sensor, target, disc = state.sensor, state.target, state.disc
    for k in range(disc.shape[0]):
        for b in range(first, last):
            state.visible[i, j, b] &= not disc_blocks(
                sensor[i, X, b], sensor[i, Y, b], target[j, X, b], target[j, Y, b],
                disc[k, X, b], disc[k, Y, b], disc[k, RADIUS, b],
            )  # fmt: skip
    for k in range(state.walls.shape[0]):
        for b in range(first, last):
            state.visible[i, j, b] &= not wall_blocks(
                sensor[i, X, b], sensor[i, Y, b], target[j, X, b], target[j, Y, b], state.walls[k]
            )


@compiled
def _see_all(state, first, last):
    """Compute what :func:`see` says, by a look of every sensor at every target."""
    sensor, target = state.sensor, state.target
    obstacles = state.disc.shape[0] + state.walls.shape[0] > 0
    num_present = state.scratch[0]
    for b in range(first, last):
        state.scene[NUM_COVERED, b] = 0
    for b in range(first, last):
        num_present[b] = 0.0
    for j in range(target.shape[0]):
        for b in range(first, last):
            state.covered[j, b] = False
        for i in range(sensor.shape[0]):
            for b in range(first, last):
                dx = target[j, X, b] - sensor[i, X, b]
                dy = target[j, Y, b] - sensor[i, Y, b]
                # A target at the position of the sensor counts as lying along +x, since atan2(0, 0) = 0.
                dx = 1.0 if (dx == 0.0) & (dy == 0.0) else dx
                squared = dx * dx + dy * dy
                ahead = sensor[i, DIRECTION_X, b] * dx + sensor[i, DIRECTION_Y, b] * dy
                state.visible[i, j, b] = (squared <= sensor[i, RANGE_SQUARED, b]) & (
                    ahead > sensor[i, COS_HALF_VIEW, b] * math.sqrt(squared)
                )
            for b in range(first, last):
                state.visible[i, j, b] &= state.working[i, b] & state.present[j, b]
            if obstacles:
                _look_past_obstacles(state, i, j, first, last)
            for b in range(first, last):
                state.covered[j, b] |= state.visible[i, j, b]
        for b in range(first, last):
            state.scene[NUM_COVERED, b] += state.covered[j, b]
        for b in range(first, last):
            num_present[b] += state.present[j, b]
    for b in range(first, last):
        state.coverage[b] = state.scene[NUM_COVERED, b] / num_present[b] if num_present[b] > 0.0 else 1.0


@compiled
def _see(state, grid, first, last):
    """Compute what :func:`see` says; `grid` is an argument of its own, since numba then compiles only one branch."""
    if grid is None:
        _see_all(state, first, last)
    else:
        see_near(state, grid, first, last)


@compiled
def see(state, first, last):
    """Compute visibility, covered targets and coverage.

    A target is visible if ``distance <= range``, ``abs(bearing) < field_of_view / 2`` (computed as
    ``dot(direction, offset) > cos(field_of_view / 2) * distance``), and no obstacle blocks the view.
    """
    _see(state, state.grid, first, last)
