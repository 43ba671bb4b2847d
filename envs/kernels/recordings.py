"""Recordings and paths that targets follow instead of walking. Compiled by numba."""

import math

from hitmac.envs.kernels.state import NUM_TARGETS, VELOCITY_X, VELOCITY_Y, X, Y
from hitmac.envs.kernels.streams import draw_integer
from hitmac.envs.kernels.threads import inlined


@inlined
def _go_to(state, p, b, j, x, y):
    """Move target j of scene b to (x, y); with NaN, it is absent and keeps its place.

    Only the recordings and paths decide which targets are present, unless the scenario has a `leave_rate`.
    """
    here = not math.isnan(x)
    before_x, before_y = state.target[j, X, b], state.target[j, Y, b]
    comes = False
    if p.leave_rate == 0.0:
        comes = here and not state.present[j, b] and j < state.scene[NUM_TARGETS, b]
        state.present[j, b] = here and (comes or state.present[j, b])
    state.target[j, X, b] = x if here else before_x
    state.target[j, Y, b] = y if here else before_y
    goes = here and not comes
    state.target[j, VELOCITY_X, b] = (x - before_x) / p.time_step if goes else 0.0
    state.target[j, VELOCITY_Y, b] = (y - before_y) / p.time_step if goes else 0.0


@inlined
def begin_recording(state, p, recordings, b):
    """Draw a file and a start row for an episode of scene b, and place its targets.

    The start leaves as many rows as the episode has sub-steps, if the file is long enough; an episode without a length
    starts at the first row.
    """
    if recordings is not None:
        file = int(draw_integer(state.stream, b, 0, recordings.first.shape[0] - 1))
        first, last = recordings.first[file], recordings.last[file]
        latest = max(first, last - p.episode_steps) if p.episode_steps > 0 else first
        row = int(draw_integer(state.stream, b, first, latest))
        recordings.row[b], recordings.end[b] = row, last
        for j in range(state.target.shape[0]):
            state.present[j, b] = False
            _go_to(state, p, b, j, recordings.place[row, j, 0], recordings.place[row, j, 1])


@inlined
def follow_recording(state, p, recordings, b):
    """Move every target of scene b to the next row of its file; after the last row, it stays."""
    recordings.row[b] = min(recordings.row[b] + 1, recordings.end[b])
    row = recordings.row[b]
    for j in range(state.target.shape[0]):
        _go_to(state, p, b, j, recordings.place[row, j, 0], recordings.place[row, j, 1])


@inlined
def follow_path(state, p, paths, b):
    """Move every target of scene b to its next position of its path; return False if the scene has none."""
    if paths is None or paths.track_length[b] == 0:
        return False
    move = paths.track_moves[b]
    if move < paths.track_length[b]:
        for j in range(state.target.shape[0]):
            _go_to(state, p, b, j, paths.track_position[b, move, j, 0], paths.track_position[b, move, j, 1])
        paths.track_moves[b] = move + 1
    else:
        for j in range(state.target.shape[0]):
            state.target[j, VELOCITY_X, b] = 0.0
            state.target[j, VELOCITY_Y, b] = 0.0
    return True


@inlined
def leave_out_followers(state, paths, first, last):
    """Clear `scratch_mask` for the scenes that follow paths without extra moves."""
    if paths is not None:
        for b in range(first, last):
            state.scratch_mask[b] &= (paths.track_length[b] == 0) | paths.track_extra[b]
