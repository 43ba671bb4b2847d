"""Recorded tracks that targets follow instead of walking. Compiled by numba.

Without any all of this compiles to nothing.
"""

import math

from hitmac.envs.kernels.state import NUM_TARGETS, VELOCITY_X, VELOCITY_Y, X, Y
from hitmac.envs.kernels.streams import draw_integer
from hitmac.envs.kernels.threads import inlined


@inlined
def _go_to(state, p, b, j, x, y):
    """Move target j of scene b to (x, y); NaN: it is not there, and keeps its place.

    Who comes and goes is the tracks' alone if the scenario has no departures of its own.
    """
    there = not math.isnan(x)
    before_x, before_y = state.target[j, X, b], state.target[j, Y, b]
    comes = False
    if p.leave_rate == 0.0:
        comes = there and not state.present[j, b] and j < state.scene[NUM_TARGETS, b]
        state.present[j, b] = there and (comes or state.present[j, b])
    state.target[j, X, b] = x if there else before_x
    state.target[j, Y, b] = y if there else before_y
    goes = there and not comes
    state.target[j, VELOCITY_X, b] = (x - before_x) / p.time_step if goes else 0.0
    state.target[j, VELOCITY_Y, b] = (y - before_y) / p.time_step if goes else 0.0


@inlined
def begin_recording(state, p, recordings, b):
    """Choose a file for an episode of scene b and a row to start at, and place its targets.

    As many rows follow the start as the episode has sub-steps, if the file is that long; of an episode without a length
    the start is the first row.
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
    """Move every target of scene b to the next row of its file; after the last one, keep it there."""
    recordings.row[b] = min(recordings.row[b] + 1, recordings.end[b])
    row = recordings.row[b]
    for j in range(state.target.shape[0]):
        _go_to(state, p, b, j, recordings.place[row, j, 0], recordings.place[row, j, 1])


@inlined
def follow_tracks(state, p, tracks, b):
    """Move every target of scene b to its next position of the tracks; return False if the scene follows none."""
    if tracks is None or tracks.track_length[b] == 0:
        return False
    move = tracks.track_moves[b]
    if move < tracks.track_length[b]:
        for j in range(state.target.shape[0]):
            _go_to(state, p, b, j, tracks.track_position[b, move, j, 0], tracks.track_position[b, move, j, 1])
        tracks.track_moves[b] = move + 1
    else:
        for j in range(state.target.shape[0]):
            state.target[j, VELOCITY_X, b] = 0.0
            state.target[j, VELOCITY_Y, b] = 0.0
    return True


@inlined
def leave_out_followers(state, tracks, first, last):
    """Clear `scratch_mask` for the scenes that follow tracks without extra moves."""
    if tracks is not None:
        for b in range(first, last):
            state.scratch_mask[b] &= (tracks.track_length[b] == 0) | tracks.track_extra[b]


@inlined
def may_leave(state, p):
    """Return True if targets can leave."""
    return p.leave_rate > 0.0 or state.tracks is not None or state.recordings is not None
