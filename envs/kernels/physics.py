"""Sub-step: sensors turn and move, targets move, sensors see. Compiled by numba.

Every function changes only the scenes ``first`` to ``last - 1`` of a batch, so that a scene is the same in any batch
and on any thread. Angles are in degrees, counter-clockwise, 0 along +x.
Source: Xu, Zhong, Wang, NeurIPS 2020.
"""

import math

import numpy as np

from hitmac.envs.kernels.compiled import allocating, compiled, inlined
from hitmac.envs.kernels.episode import set_field_of_view, update_availability
from hitmac.envs.kernels.knowledge import learn
from hitmac.envs.kernels.mounts import stop_at_limits
from hitmac.envs.kernels.rails import move_along
from hitmac.envs.kernels.recordings import leave_out_followers
from hitmac.envs.kernels.state import (
    COS_HALF_VIEW,
    COS_TURN,
    DIRECTION_X,
    DIRECTION_Y,
    DRAWS,
    DRAWS_BEFORE,
    FIELD_OF_VIEW,
    HEADING,
    NUM_COVERED,
    RADIUS,
    RANGE_SQUARED,
    SIN_TURN,
    TIME,
    TIME_BEFORE,
    TURN,
    TURNED,
    X,
    Y,
)  # fmt: skip
from hitmac.envs.kernels.threads import blocks
from hitmac.envs.kernels.walks import move_targets

STAY, LEFT, RIGHT = 0, 1, 2  # actions of a sensor: stay, turn counter-clockwise, turn clockwise
KEEP, NARROWER, WIDER = 0, 1, 2  # actions of a zooming lens

BLOCK = 256  # scenes at a time: enough to amortise the start of every loop, few enough for the processor's caches


@inlined
def _next_run(chosen, low, high):
    """Return the next run of consecutive chosen scenes in [low, high), of at most BLOCK: first, last + 1."""
    first = np.int64(low)
    while first < high and not chosen[first]:
        first += 1
    last = first
    while last < high and last - first < BLOCK and chosen[last]:
        last += 1
    return np.uint64(first), np.uint64(last)


@allocating
def runs(chosen, share):
    """Yield runs of consecutive chosen scenes (first, last + 1) out of the blocks that fall to this thread."""
    for low, high in blocks(chosen.shape[0], share):
        first, last = _next_run(chosen, low, high)
        while first < last:
            yield first, last
            first, last = _next_run(chosen, last, high)


@inlined
def _cosine_and_sine(sensor, sign, i, b):
    """Return the cosine and the sine of ``sign[b]`` (-1, 0 or 1) times the angle by which sensor i turns."""
    return (sensor[i, COS_TURN, b] if sign[b] != 0.0 else 1.0), sign[b] * sensor[i, SIN_TURN, b]


@inlined
def _turn(state, mounts, action, first, last):
    """Turn every working sensor i by `action[b, i]` (stay, left, right), within its limits; count those that turned.

    The direction (x, y) becomes (c x - s y, s x + c y), with c and s the cosine and sine of the angle. This is much
    cheaper than a new cosine and sine of the heading. Over a thousand turns the rounding errors stay under 1e-13.
    """
    sensor, sign, turned_x = state.sensor, state.scratch[0], state.scratch[1]
    for b in range(first, last):
        state.scene[TURNED, b] = 0
    for i in range(sensor.shape[0]):
        x, y = sensor[i, DIRECTION_X], sensor[i, DIRECTION_Y]
        for b in range(first, last):
            sign[b] = (action[b, i] == LEFT) * 1.0 - (action[b, i] == RIGHT) * 1.0
        for b in range(first, last):
            sign[b] *= state.working[i, b]
        stop_at_limits(state, mounts, i, sign, first, last)
        for b in range(first, last):
            state.scene[TURNED, b] += sign[b] != 0.0
        for b in range(first, last):
            sensor[i, HEADING, b] += sign[b] * sensor[i, TURN, b]
        for b in range(first, last):
            c, s = _cosine_and_sine(sensor, sign, i, b)
            turned_x[b] = c * x[b] - s * y[b]
        for b in range(first, last):
            c, s = _cosine_and_sine(sensor, sign, i, b)
            y[b] = s * x[b] + c * y[b]
        for b in range(first, last):
            x[b] = turned_x[b]


@inlined
def _zoom(state, p, action, first, last):
    """Narrow or widen the view of every working sensor i by `action[b, n + i]`, if the action has zooms."""
    n = state.sensor.shape[0]
    if p.zoom_step > 0.0 and action.shape[1] > n:
        for b in range(first, last):
            for i in range(n):
                if state.working[i, b] and action[b, n + i] != KEEP:
                    step = -p.zoom_step if action[b, n + i] == NARROWER else p.zoom_step
                    view = min(max(state.sensor[i, FIELD_OF_VIEW, b] + step, p.narrowest), p.widest)
                    set_field_of_view(state, b, i, view)


@inlined
def _disc_blocks(x, y, to_x, to_y, disc_x, disc_y, radius):
    """Return True if the line of sight from (x, y) to (to_x, to_y) passes a disc's centre at less than its radius."""
    dx = to_x - x
    dy = to_y - y
    squared = dx * dx + dy * dy
    along = ((disc_x - x) * dx + (disc_y - y) * dy) / squared if squared > 0.0 else 0.0
    along = min(max(along, 0.0), 1.0)
    off_x = disc_x - x - along * dx
    off_y = disc_y - y - along * dy
    return off_x * off_x + off_y * off_y < radius * radius


@inlined
def _wall_blocks(x, y, to_x, to_y, wall):
    """Return True if the line of sight from (x, y) to (to_x, to_y) meets a wall (x1, y1, x2, y2)."""
    dx = to_x - x
    dy = to_y - y
    wall_x = wall[2] - wall[0]
    wall_y = wall[3] - wall[1]
    cross = dx * wall_y - dy * wall_x
    sight = (wall[0] - x) * wall_y - (wall[1] - y) * wall_x  # / cross: position of the meeting on the line of sight
    place = (wall[0] - x) * dy - (wall[1] - y) * dx  # / cross: position of the meeting on the wall
    sight = sight if cross > 0.0 else -sight
    place = place if cross > 0.0 else -place
    length = abs(cross)
    return (length > 0.0) & (sight >= 0.0) & (sight <= length) & (place >= 0.0) & (place <= length)


@compiled
def _look_past_obstacles(state, i, j, first, last):
    """Mark target j as not visible to sensor i where a disc or a wall blocks the view."""
    sensor, target, disc = state.sensor, state.target, state.disc
    for k in range(disc.shape[0]):
        for b in range(first, last):
            state.visible[i, j, b] &= not _disc_blocks(
                sensor[i, X, b], sensor[i, Y, b], target[j, X, b], target[j, Y, b],
                disc[k, X, b], disc[k, Y, b], disc[k, RADIUS, b],
            )  # fmt: skip
    for k in range(state.walls.shape[0]):
        for b in range(first, last):
            state.visible[i, j, b] &= not _wall_blocks(
                sensor[i, X, b], sensor[i, Y, b], target[j, X, b], target[j, Y, b], state.walls[k]
            )


@compiled
def see(state, first, last):
    """Compute visibility, covered targets and coverage.

    A target is visible if ``distance <= range``, ``abs(bearing) < field_of_view / 2`` (computed as
    ``dot(direction, offset) > cos(field_of_view / 2) * distance``), and no obstacle blocks the view.
    """
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


@inlined
def about_to_move(state, first, last):
    """Store the draws and the time before a move: a velocity observed after it also has the errors of before it.

    Call it after the last observation and before any draw.
    """
    for b in range(first, last):
        state.stream[DRAWS_BEFORE, b] = state.stream[DRAWS, b]
    for b in range(first, last):
        state.scene[TIME_BEFORE, b] = state.scene[TIME, b]


@inlined
def extra_moves(state, p, first, last):
    """Move the targets once in the scenes in which an extra move is due; recorded tracks have none."""
    if p.extra_move_every > 0:
        for b in range(first, last):
            state.scratch_mask[b] = state.scene[TIME, b] % p.extra_move_every == 0
        leave_out_followers(state, state.tracks, first, last)
        # The walk also writes into `scratch_mask`, only for scenes that this loop has already passed.
        at, end = _next_run(state.scratch_mask, first, last)
        while at < end:
            about_to_move(state, at, end)
            move_targets(state, p, at, end)
            at, end = _next_run(state.scratch_mask, end, last)


@inlined
def sub_step(state, p, action, first, last):
    """Advance by one sub-step: all sensors turn and move, all targets move, all sensors see and learn."""
    update_availability(state, p, first, last)
    _turn(state, state.mounts, action, first, last)
    _zoom(state, p, action, first, last)
    move_along(state, p, state.rails, action, first, last)
    move_targets(state, p, first, last)
    see(state, first, last)
    for b in range(first, last):
        state.scene[TIME, b] += 1
    learn(state, p, first, last)
