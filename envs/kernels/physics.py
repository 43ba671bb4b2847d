"""Sub-step: sensors turn and move, targets move, sensors see. Compiled by numba.

Every function changes only the scenes ``first`` to ``last - 1`` of a batch, so that a scene is the same in any batch
and on any thread. Angles are in degrees, counter-clockwise, 0 along +x.
Source: Xu, Zhong, Wang, NeurIPS 2020.
"""

import numpy as np

from hitmac.envs.kernels import episode
from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.episode import set_field_of_view, update_availability
from hitmac.envs.kernels.knowledge import forget, learn
from hitmac.envs.kernels.rails import kept_within, move_along, put_on_rail, stop_at_limits
from hitmac.envs.kernels.recordings import leave_out_followers
from hitmac.envs.kernels.sight import count_covered, look_from, see, sort_scene
from hitmac.envs.kernels.threads import allocating, blocks, inlined, kernel
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
def _turn(state, poses, action, first, last):
    """Turn every working sensor i by `action[b, i]` (stay, left, right), within its limits; count those that turned.

    The direction (x, y) becomes (c x - s y, s x + c y), with c and s the cosine and sine of the angle. This is much
    cheaper than a new cosine and sine of the heading. Over a thousand turns the rounding errors stay under 1e-13.
    """
    sensor, sign, turned_x = state.sensor, state.scratch[0], state.scratch[1]
    for b in range(first, last):
        state.scene[at.TURNED, b] = 0
    for i in range(sensor.shape[0]):
        x, y = sensor[i, at.DIRECTION_X], sensor[i, at.DIRECTION_Y]
        for b in range(first, last):
            sign[b] = (action[b, i] == LEFT) * 1.0 - (action[b, i] == RIGHT) * 1.0
        for b in range(first, last):
            sign[b] *= state.working[i, b]
        stop_at_limits(state, poses, i, sign, first, last)
        for b in range(first, last):
            state.scene[at.TURNED, b] += sign[b] != 0.0
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
def _zoom(state, p, action, first, last):
    """Narrow or widen the view of every working sensor i by `action[b, n + i]`, if the action has zooms."""
    n = state.sensor.shape[0]
    if p.zoom_step > 0.0 and action.shape[1] > n:
        for b in range(first, last):
            for i in range(n):
                if state.working[i, b] and action[b, n + i] != KEEP:
                    step = -p.zoom_step if action[b, n + i] == NARROWER else p.zoom_step
                    view = min(max(state.sensor[i, at.FIELD_OF_VIEW, b] + step, p.narrowest), p.widest)
                    set_field_of_view(state, b, i, view)


@inlined
def about_to_move(state, first, last):
    """Store the draws and the time before a move: a velocity observed after it also has the errors of before it.

    Call it after the last observation and before any draw.
    """
    for b in range(first, last):
        state.stream[at.DRAWS_BEFORE, b] = state.stream[at.DRAWS, b]
    for b in range(first, last):
        state.scene[at.TIME_BEFORE, b] = state.scene[at.TIME, b]


@inlined
def extra_moves(state, p, first, last):
    """Move the targets once in the scenes in which an extra move is due; recorded tracks have none."""
    if p.extra_move_every > 0:
        for b in range(first, last):
            state.scratch_mask[b] = state.scene[at.TIME, b] % p.extra_move_every == 0
        leave_out_followers(state, state.tracks, first, last)
        # The walk also writes into `scratch_mask`, only for scenes that this loop has already passed.
        low, high = _next_run(state.scratch_mask, first, last)
        while low < high:
            about_to_move(state, low, high)
            move_targets(state, p, state.tracks, state.recordings, low, high)
            low, high = _next_run(state.scratch_mask, high, last)


@inlined
def _move_all(state, p, action, first, last):
    """Let sensors and targets fail, leave and return, all sensors turn, zoom and move, and all targets move."""
    update_availability(state, p, first, last)
    _turn(state, state.poses, action, first, last)
    _zoom(state, p, action, first, last)
    move_along(state, p, state.rails, action, first, last)
    move_targets(state, p, state.tracks, state.recordings, first, last)


@inlined
def advance(state, p, action, first, last):
    """Advance by one sub-step: all sensors turn and move, all targets move, all sensors see and learn."""
    _move_all(state, p, action, first, last)
    see(state, state.grid, first, last)
    for b in range(first, last):
        state.scene[at.TIME, b] += 1
    learn(state, p, state.knowledge, first, last)


@kernel
def begin(state, chosen, share):
    """Start an episode in the chosen scenes."""
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        for b in range(first, last):
            episode.begin(state, p, b)
        see(state, state.grid, first, last)
        forget(state.knowledge, first, last)
        learn(state, p, state.knowledge, first, last)


@kernel
def sub_step(state, action, chosen, share):
    """Advance the chosen scenes by one sub-step, after an extra move of the targets if one is due."""
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        extra_moves(state, p, first, last)
        about_to_move(state, first, last)
        advance(state, p, action, first, last)


@kernel
def move(state, action, chosen, share):
    """Begin a sub-step of the chosen large scenes: move their sensors and targets, and index them by place."""
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        extra_moves(state, p, first, last)
        about_to_move(state, first, last)
        _move_all(state, p, action, first, last)
        for b in range(first, last):
            sort_scene(state, state.grid, b)


@kernel
def look_near(state, chosen, share):
    """Let the sensors of the chosen large scenes see; a thread's share are sensors, scene by scene."""
    for low, high in blocks(chosen.shape[0] * state.sensor.shape[0], share):
        look_from(state, state.grid, chosen, low, high)


@kernel
def end(state, chosen, share):
    """End a sub-step of the chosen large scenes: count what is covered, and let the sensors learn."""
    for first, last in runs(chosen, share):
        for b in range(first, last):
            count_covered(state, state.grid, b)
            state.scene[at.TIME, b] += 1
        learn(state, state.parameters[0], state.knowledge, first, last)


@kernel
def index(state, chosen, share):
    """Index the chosen large scenes by place, after their state was set."""
    for first, last in runs(chosen, share):
        for b in range(first, last):
            sort_scene(state, state.grid, b)
            state.grid.num_seen[b, :] = state.grid.seen.shape[2] + 1  # what is seen is not listed
            count_covered(state, state.grid, b)


@kernel
def look(state, chosen, share):
    """Let the sensors of the chosen scenes see again, after a change of positions, headings or fields of view.

    In an episode that has begun, what they know ages by a sub-step; before, what they knew is forgotten.
    """
    for first, last in runs(chosen, share):
        for b in range(first, last):
            for i in range(state.sensor.shape[0]):
                episode.set_heading(state, b, i, kept_within(state.poses, i, state.sensor[i, at.HEADING, b]))
                episode.set_field_of_view(state, b, i, state.sensor[i, at.FIELD_OF_VIEW, b])
                put_on_rail(state, state.rails, b, i, state.sensor[i, at.ALONG, b])
        see(state, state.grid, first, last)
        for b in range(first, last):
            if state.scene[at.TIME, b] == 0:
                forget(state.knowledge, b, b + np.uint64(1))
        learn(state, state.parameters[0], state.knowledge, first, last)
