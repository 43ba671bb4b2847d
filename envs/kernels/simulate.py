"""Kernels of the simulator: begin episodes, advance, look again after a change. Compiled by numba."""

from hitmac.envs.kernels import episode, physics
from hitmac.envs.kernels.compiled import kernel
from hitmac.envs.kernels.knowledge import forget, forget_placed, learn
from hitmac.envs.kernels.mounts import kept_within
from hitmac.envs.kernels.near_sight import count_covered, look_from, resume, sort_scene
from hitmac.envs.kernels.physics import runs
from hitmac.envs.kernels.rails import put_on_rail
from hitmac.envs.kernels.sight import see
from hitmac.envs.kernels.state import ALONG, FIELD_OF_VIEW, HEADING
from hitmac.envs.kernels.threads import blocks


@kernel
def begin(state, chosen, share):
    """Start an episode in the chosen scenes."""
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        for b in range(first, last):
            episode.begin(state, p, b)
        see(state, first, last)
        forget(state, first, last)
        learn(state, p, first, last)


@kernel
def sub_step(state, action, chosen, share):
    """Advance the chosen scenes by one sub-step, after an extra move of the targets if one is due."""
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        physics.extra_moves(state, p, first, last)
        physics.about_to_move(state, first, last)
        physics.sub_step(state, p, action, first, last)


@kernel
def move(state, action, chosen, share):
    """Begin a sub-step of the chosen large scenes: move their sensors and targets, and index them by place."""
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        physics.extra_moves(state, p, first, last)
        physics.about_to_move(state, first, last)
        physics.move_all(state, p, action, first, last)
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
        physics.end_sub_step(state, state.parameters[0], first, last)


@kernel
def index(state, chosen, share):
    """Index the chosen large scenes by place, after their state was set."""
    for first, last in runs(chosen, share):
        for b in range(first, last):
            resume(state, state.grid, b)


@kernel
def look(state, chosen, share):
    """Let the sensors of the chosen scenes see again, after a change of positions, headings or fields of view.

    In an episode that has begun, what they know grows older by a sub-step.
    """
    for first, last in runs(chosen, share):
        for b in range(first, last):
            for i in range(state.sensor.shape[0]):
                episode.set_heading(state, b, i, kept_within(state.mounts, i, state.sensor[i, HEADING, b]))
                episode.set_field_of_view(state, b, i, state.sensor[i, FIELD_OF_VIEW, b])
                put_on_rail(state, state.rails, b, i, state.sensor[i, ALONG, b])
        see(state, first, last)
        forget_placed(state, first, last)
        learn(state, state.parameters[0], first, last)
