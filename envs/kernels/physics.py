"""Sub-step: sensors turn and move, targets move, sensors see. Compiled by numba.

Every function changes only the scenes ``first`` to ``last - 1`` of a batch. So a scene is the same in any batch and on
any thread. Angles are in degrees, counter-clockwise, 0 along +x.
Source: Xu, Zhong, Wang, NeurIPS 2020.
"""

import math

import numpy as np

from hitmac.envs.kernels import duel, episode
from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.episode import set_field_of_view, update_availability
from hitmac.envs.kernels.formulas import coasted, follow_command
from hitmac.envs.kernels.knowledge import forget, learn
from hitmac.envs.kernels.rails import kept_within, move_along, put_on_rail, stop_at_limits, was_stopped
from hitmac.envs.kernels.recordings import leave_out_followers
from hitmac.envs.kernels.sight import count_covered, look_from, see, sort_scene
from hitmac.envs.kernels.state import KernelState, core_of
from hitmac.envs.kernels.streams import heading_error
from hitmac.envs.kernels.threads import blocks, inlined, kernel, next_run, runs
from hitmac.envs.kernels.values import weigh
from hitmac.envs.kernels.walks import move_targets

STAY, LEFT, RIGHT = 0, 1, 2  # actions of a sensor: stay, turn counter-clockwise, turn clockwise
KEEP, NARROWER, WIDER = 0, 1, 2  # actions of a zooming lens
COMMANDED = -1  # in place of the turn of a sensor whose motor has been given a rate

_ONE = np.uint64(1)


@inlined
def rotate(sensor, i, b, angle):
    """Rotate the direction of sensor i of scene b by an angle, radians."""
    c, s, x, y = math.cos(angle), math.sin(angle), sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b]
    sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b] = c * x - s * y, s * x + c * y


@inlined
def _drive(state, poses, motors, time_step, action, first, last):
    """Turn every working sensor i by its motor, within its limits, where it stops; count those that turned.

    ``action[b, i]`` commands a rate, which takes effect with a delay. A failed sensor stops at once, and the commands
    that would take effect are lost.
    """
    sensor, slots = state.sensor, motors.command.shape[0]
    for b in range(first, last):
        state.scene[at.TURNED, b] = 0
    for i in range(sensor.shape[0]):
        low, high = -np.inf, np.inf
        if poses is not None:
            low, high = poses.pan_limit[i, 0], poses.pan_limit[i, 1]
        for b in range(first, last):
            now, command = state.scene[at.TIME, b] % slots, motors.command[:, i, b]
            if action[b, i] != COMMANDED:
                way = (action[b, i] == LEFT) * 1.0 - (action[b, i] == RIGHT) * 1.0
                command[now] = way * sensor[i, at.TURN, b] / time_step
            heading, rate, angle = sensor[i, at.HEADING, b], 0.0, 0.0
            if state.working[i, b]:
                rate, angle = follow_command(motors.law, time_step, sensor[i, at.RATE, b], command[(now + 1) % slots])
            if (heading + angle < low and angle < 0.0) or (heading + angle > high and angle > 0.0):
                angle, rate = (low if angle < 0.0 else high) - heading, 0.0
            motors.moved[i, b] = angle != 0.0
            state.scene[at.TURNED, b] += motors.moved[i, b]
            sensor[i, at.HEADING, b] = heading + angle
            rotate(sensor, i, b, math.radians(angle))
            sensor[i, at.RATE, b], pending = rate, 0.0
            for k in range(2, slots + 1):
                rate, angle = follow_command(motors.law, time_step, rate, command[(now + k) % slots])
                pending += angle
            sensor[i, at.PENDING, b] = pending + coasted(motors.law, rate)


@inlined
def _turn(state, poses, motors, time_step, action, first, last):
    """Turn every working sensor i by `action[b, i]` (stay, left, right), within its limits; count those that turned.

    The direction (x, y) becomes (c x - s y, s x + c y), with c and s the cosine and sine of the angle, which is much
    cheaper than cosine and sine of the heading. Rounding errors stay under 1e-13 over a thousand turns.
    """
    if motors is not None:
        _drive(state, poses, motors, time_step, action, first, last)
        return
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
def has_turned(state, poses, motors, action, i, b):
    """Return True if sensor i of scene b turned in the last sub-step, with this action."""
    if motors is None:
        return action[b, i] != STAY and state.working[i, b] and not was_stopped(poses, i, b)
    return motors.moved[i, b]


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
    """Store the draws and the time before a move, for the errors of velocities observed after it.

    Call it after the last observation and before any draw.
    """
    for b in range(first, last):
        state.stream[at.DRAWS_BEFORE, b] = state.stream[at.DRAWS, b]
    for b in range(first, last):
        state.scene[at.TIME_BEFORE, b] = state.scene[at.TIME, b]


@inlined
def extra_moves(state, p, no_game, first, last):
    """Move the targets once in the scenes in which an extra move is due, except along paths."""
    core = core_of(state)
    if no_game is not None and p.extra_move_every > 0:
        for b in range(first, last):
            core.scratch_mask[b] = core.scene[at.TIME, b] % p.extra_move_every == 0
        leave_out_followers(core, state.paths, first, last)
        # The walk also writes to `scratch_mask`, but only for scenes that this loop has passed.
        low, high = next_run(core.scratch_mask, first, last)
        while low < high:
            about_to_move(core, low, high)
            move_targets(core, p, state.paths, state.recordings, state.streets, state.grid, low, high)
            low, high = next_run(core.scratch_mask, high, last)


@inlined
def _move_all(state, core, action, moves, no_game, first, last):
    """Update failures and departures, turn, zoom and move all sensors, and move all targets, in a game by `moves`."""
    p = state.parameters[0]
    update_availability(core, p, state.streets, first, last)
    if moves is not None:
        duel.move_teams(core, p, state.game, action, moves, first, last)
    if no_game is not None:
        _turn(core, state.poses, state.motors, p.time_step, action, first, last)
        _zoom(core, p, action, first, last)
        move_along(core, p, state.rails, action, first, last)
        move_targets(core, p, state.paths, state.recordings, state.streets, state.grid, first, last)


@inlined
def _see(state, core, game, no_game, first, last):
    """Compute what the sensors see, in a game also the targets."""
    if game is not None:
        duel.see(core, state.parameters[0], state.cargo, game, first, last)
    if no_game is not None:
        see(core, state.grid, first, last)


@inlined
def advance(state, p, action, moves, first, last):
    """Advance by one sub-step: moves, visibility, cargoes, time and knowledge."""
    core = core_of(state)
    _move_all(state, core, action, moves, state.no_game, first, last)
    _see(state, core, state.game, state.no_game, first, last)
    duel.carry(core, state.cargo, state.game, first, last)
    weigh(core, p, state.values, first, last)
    for b in range(first, last):
        core.scene[at.TIME, b] += 1
    learn(core, p, state.knowledge, first, last)


# Kernels pass the rows on as they are: in a kernel, a named tuple would count the references to every array. A part on
# which code depends is an argument: numba omits code under ``is not None`` only for arguments, and only where they are
# None.


@inlined
def _begin_scenes(state, game, no_game, first, last):
    core, p = core_of(state), state.parameters[0]
    for b in range(first, last):
        if game is not None:
            duel.begin(core, p, state.cargo, game, b)
        if no_game is not None:
            episode.begin(core, p, state.poses, state.rails, state.streets, state.recordings, b)


@inlined
def _begin(rows, first, last):
    state = KernelState(*rows)
    _begin_scenes(state, state.game, state.no_game, first, last)


@kernel
def begin(rows, chosen, share):
    """Place sensors and targets for a new episode of the chosen scenes; :func:`look` then completes their state."""
    for first, last in runs(chosen, share):
        _begin(rows, first, last)


@inlined
def _sub_step(rows, action, moves, first, last):
    state = KernelState(*rows)
    extra_moves(state, state.parameters[0], state.no_game, first, last)
    about_to_move(state, first, last)
    advance(state, state.parameters[0], action, moves, first, last)


@kernel
def sub_step(rows, action, moves, chosen, share):
    """Advance the chosen scenes by one sub-step, after an extra move of the targets if one is due.

    The targets of a game move by `moves` (B, m, 2); otherwise it is None.
    """
    for first, last in runs(chosen, share):
        _sub_step(rows, action, moves, first, last)


@inlined
def _move(rows, action, first, last):
    state = KernelState(*rows)
    core, p = core_of(state), state.parameters[0]
    extra_moves(state, p, state.no_game, first, last)
    about_to_move(state, first, last)
    _move_all(state, core, action, None, state.no_game, first, last)
    for b in range(first, last):
        sort_scene(core, state.grid, b)


@kernel
def move(rows, action, chosen, share):
    """Begin a sub-step of the chosen large scenes: move their sensors and targets, and index them by place."""
    for first, last in runs(chosen, share):
        _move(rows, action, first, last)


@kernel
def look_near(rows, chosen, share):
    """Compute visibility in the chosen large scenes; threads divide the sensors, counted scene by scene."""
    state = KernelState(*rows)
    for low, high in blocks(chosen.shape[0] * state.sensor.shape[0], share):
        look_from(state, state.grid, chosen, low, high)


@inlined
def _end(rows, first, last):
    state = KernelState(*rows)
    core, p = core_of(state), state.parameters[0]
    for b in range(first, last):
        count_covered(core, state.grid, b)
        core.scene[at.TIME, b] += 1
    weigh(core, p, state.values, first, last)
    learn(core, p, state.knowledge, first, last)


@kernel
def end(rows, chosen, share):
    """End a sub-step of the chosen large scenes: coverage, time and knowledge."""
    for first, last in runs(chosen, share):
        _end(rows, first, last)


@inlined
def _index(rows, first, last):
    state = KernelState(*rows)
    core, grid = core_of(state), state.grid
    for b in range(first, last):
        sort_scene(core, grid, b)
        for i in range(core.sensor.shape[0]):
            grid.num_seen[b, i] = grid.seen.shape[2] + 1  # type: ignore[union-attr] # the seen targets are not listed
        count_covered(core, grid, b)
    weigh(core, state.parameters[0], state.values, first, last)


@kernel
def index(rows, chosen, share):
    """Index the chosen large scenes by place after their state is set."""
    for first, last in runs(chosen, share):
        _index(rows, first, last)


@inlined
def _look(rows, first, last):
    state = KernelState(*rows)
    core, p = core_of(state), state.parameters[0]
    for b in range(first, last):
        for i in range(core.sensor.shape[0]):
            episode.set_heading(core, b, i, kept_within(state.poses, i, core.sensor[i, at.HEADING, b]))
            episode.set_field_of_view(core, b, i, core.sensor[i, at.FIELD_OF_VIEW, b])
            put_on_rail(core, state.rails, b, i, core.sensor[i, at.ALONG, b])
    duel.draw(core, state.game, first, last)
    _see(state, core, state.game, state.no_game, first, last)
    weigh(core, p, state.values, first, last)
    low = first
    while low < last:  # the knowledge of runs of scenes at time 0
        high = low
        while high < last and core.scene[at.TIME, high] == 0:
            high += _ONE
        forget(state.knowledge, low, high)
        low = high + _ONE
    learn(core, p, state.knowledge, first, last)


@kernel
def look(rows, chosen, share):
    """Update the derived state, visibility and knowledge of the chosen scenes, after a start or a change of places.

    At time 0 the previous knowledge is cleared; later it ages by a sub-step.
    """
    for first, last in runs(chosen, share):
        _look(rows, first, last)


@kernel
def misread_headings(rows, deviation, sensor, share):
    """Rotate the directions in a copy of the sensors' rows by the errors of observed headings."""
    state = KernelState(*rows)
    for low, high in blocks(sensor.shape[2], share):
        for i in range(sensor.shape[0]):
            for b in range(low, high):
                rotate(sensor, i, b, math.radians(heading_error(state, b, deviation, i)))
