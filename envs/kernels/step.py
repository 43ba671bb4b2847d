"""Sub-step: sensors turn and move, targets move, sensors see. Compiled by numba.

Every function changes only the scenes ``first`` to ``last - 1`` of a batch. So a scene is the same in any batch and on
any thread. Angles are in degrees, counter-clockwise, 0 along +x.
Source: Xu, Zhong, Wang, NeurIPS 2020.
"""

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import inlined, kernel
from hitmac.envs.base.formulas import row_or_0
from hitmac.envs.base.state import KernelState, core_of
from hitmac.envs.base.streams import draw_integer
from hitmac.envs.base.threads import blocks, next_run, runs
from hitmac.envs.parts import cargo
from hitmac.envs.parts.knowledge import forget, learn
from hitmac.envs.parts.lenses import set_field_of_view, zoom
from hitmac.envs.parts.motors import drive
from hitmac.envs.parts.obstacles import count_covered, look_from, place_discs, see, sort_scene
from hitmac.envs.parts.rails import move_along, put_on_rail
from hitmac.envs.parts.recordings import begin_recording, leave_out_followers
from hitmac.envs.parts.sensors import (
    count_rotated,
    fail_and_recover,
    kept_within,
    place_sensors,
    set_heading,
    start_heading,
    turn,
)
from hitmac.envs.parts.tilt import begin_tilt, set_tilt, tilt
from hitmac.envs.parts.values import weigh
from hitmac.envs.parts.walks import enter, leave_and_return, move_targets


@inlined
def _turn(state, poses, motors, time_step, action, first, last):
    """Turn the sensors, by their motors if they have any."""
    if motors is not None:
        drive(state, poses, motors, time_step, action, first, last)
    else:
        turn(state, poses, action, first, last)


@inlined
def _begin_scene(state, p, poses, rails, streets, recordings, b):
    """Start an episode of scene b: sensors, targets and obstacles, headings, goals and speeds.

    The state that depends on headings and fields of view is left to :func:`settle`.
    """
    n = state.sensor.shape[0]
    m = state.target.shape[0]
    state.scene[at.NUM_SENSORS, b] = n if p.min_sensors == n else int(draw_integer(state.stream, b, p.min_sensors, n))
    state.scene[at.NUM_TARGETS, b] = m if p.min_targets == m else int(draw_integer(state.stream, b, p.min_targets, m))
    place_sensors(p.placement, state, p, poses, rails, streets, b)
    place_discs(state, p, b)
    for j in range(m):
        enter(state, p, streets, b, j)
        state.present[j, b] = j < state.scene[at.NUM_TARGETS, b]
    begin_recording(state, p, recordings, b)
    for i in range(n):
        state.working[i, b] = i < state.scene[at.NUM_SENSORS, b]
        state.sensor[i, at.FIELD_OF_VIEW, b] = state.sensor[i, at.START_VIEW, b]
        state.sensor[i, at.HEADING, b] = start_heading(state, p, poses, b, i)
        state.sensor[i, at.RATE, b] = state.sensor[i, at.PENDING, b] = 0.0


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
    """Update failures and departures, move sensors in all their ways, and all targets, in a game by `moves`."""
    p = state.parameters[0]
    fail_and_recover(core, p, first, last)
    leave_and_return(core, p, state.streets, first, last)
    if moves is not None:
        cargo.move_teams(core, p, state.game, action, moves, first, last)
    if no_game is not None:
        _turn(core, state.poses, state.motors, p.time_step, action, first, last)
        zoom(core, p, action, first, last)
        tilt(core, state.tilts, action, first, last)
        move_along(core, p, state.rails, action, first, last)
        move_targets(core, p, state.paths, state.recordings, state.streets, state.grid, first, last)
    count_rotated(core, first, last)


@inlined
def _see(state, core, game, no_game, first, last):
    """Compute what the sensors see, in a game also the targets."""
    if game is not None:
        cargo.see(core, state.parameters[0], state.cargo, game, first, last)
    if no_game is not None:
        see(core, state.grid, first, last)


@inlined
def advance(state, p, action, moves, first, last):
    """Advance by one sub-step: moves, visibility, cargoes, time and knowledge."""
    core = core_of(state)
    _move_all(state, core, action, moves, state.no_game, first, last)
    _see(state, core, state.game, state.no_game, first, last)
    cargo.carry(core, state.cargo, state.game, first, last)
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
        core.scene[at.TIME, b], core.scene[at.TIME_BEFORE, b], core.scene[at.TURNED, b] = 0, -1, 0
        for i in range(core.rotated.shape[0]):
            core.rotated[i, b] = False
        if game is not None:
            cargo.begin(core, p, state.cargo, game, b)
        if no_game is not None:
            _begin_scene(core, p, state.poses, state.rails, state.streets, state.recordings, b)
            begin_tilt(core, state.tilts, b)


@inlined
def _begin(rows, first, last):
    state = KernelState(*rows)
    _begin_scenes(state, state.game, state.no_game, first, last)


@kernel
def begin(rows, chosen, share):
    """Place sensors and targets for a new episode of the chosen scenes; the state is derived from :func:`settle` on."""
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


# After a start or a change of places, the state is derived in four kernels. These and the kernels of large scenes are
# compiled for the parts that they need, in PARTS_OF, and not for every combination of parts.


@inlined
def _settle(rows, first, last):
    state = KernelState(*rows)
    core = core_of(state)
    for b in range(first, last):
        for i in range(core.sensor.shape[0]):
            set_heading(core, b, i, kept_within(state.poses, i, core.sensor[i, at.HEADING, b]))
            set_field_of_view(core, b, i, core.sensor[i, at.FIELD_OF_VIEW, b])
            set_tilt(core, state.tilts, b, i, row_or_0(core.sensor[i], at.TILT, b))
            put_on_rail(core, state.rails, b, i, core.sensor[i, at.ALONG, b])


@kernel
def settle(rows, chosen, share):
    """Compute what follows from headings, fields of view, tilts and places on rails of the chosen scenes."""
    for first, last in runs(chosen, share):
        _settle(rows, first, last)


@inlined
def _look(rows, first, last):
    state = KernelState(*rows)
    core = core_of(state)
    cargo.draw(core, state.game, first, last)
    _see(state, core, state.game, state.no_game, first, last)


@kernel
def look(rows, chosen, share):
    """Compute what the sensors of the chosen scenes see."""
    for first, last in runs(chosen, share):
        _look(rows, first, last)


@inlined
def _count(rows, first, last):
    state = KernelState(*rows)
    weigh(core_of(state), state.parameters[0], state.values, first, last)


@kernel
def count(rows, chosen, share):
    """Compute the coverage by value of the chosen scenes."""
    for first, last in runs(chosen, share):
        _count(rows, first, last)


@inlined
def _recall(rows, first, last):
    state = KernelState(*rows)
    core, p = core_of(state), state.parameters[0]
    for b in range(first, last):
        if core.scene[at.TIME, b] == 0:
            forget(state.knowledge, b)
    learn(core, p, state.knowledge, first, last)


@kernel
def recall(rows, chosen, share):
    """Update the knowledge of the chosen scenes: at time 0 the previous one is cleared, later it ages by a sub-step."""
    for first, last in runs(chosen, share):
        _recall(rows, first, last)


PARTS_OF = {
    begin: ("rails", "recordings", "poses", "streets", "tilts", "cargo", "game"),
    settle: ("rails", "poses", "tilts"),
    look: ("grid", "cargo", "game"),
    count: ("values",),
    recall: ("knowledge",),
    move: ("paths", "rails", "recordings", "poses", "streets", "grid", "motors", "tilts"),
    look_near: ("grid",),
    end: ("knowledge", "grid", "values"),
}
"""Parts of a :class:`~hitmac.envs.base.state.KernelState` that a kernel needs; it gets None for the others."""
