"""Features of every pair of a sensor and a target, written for a whole batch. Compiled by numba."""

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.features import Pair, measure_offsets, scales_of, write_feature
from hitmac.envs.kernels.knowledge import place_of, row_of
from hitmac.envs.kernels.physics import BLOCK
from hitmac.envs.kernels.state import X
from hitmac.envs.kernels.streams import notice, pair_number, position_error, velocity_error
from hitmac.envs.kernels.threads import blocks, compiled, inlined, kernel


@inlined
def _view_of(state, knowledge, scales, i, j, first, last):
    """Write the observed offset of target j from sensor i into rows 0 and 1 of `scratch`.

    Returns arrays (B,): velocity x and y, a mask of detections, the number of sensors that detect the target, and the
    age of the knowledge.
    """
    if knowledge is None:
        notice(state, scales.missed_detections, i, j, first, last)
        pair = pair_number(state, i, j)
        for axis in range(2):
            for b in range(first, last):
                state.scratch[axis, b] = state.target[j, X + axis, b] - state.sensor[i, X + axis, b]
        if scales.position_noise > 0.0:
            for b in range(first, last):
                error_x, error_y = position_error(state, b, scales.position_noise, pair)
                state.scratch[0, b] += error_x
                state.scratch[1, b] += error_y
        velocity_x, velocity_y = state.target[j, at.VELOCITY_X], state.target[j, at.VELOCITY_Y]
        if scales.noisy_velocity:
            for b in range(first, last):
                state.scratch[6, b], state.scratch[7, b] = velocity_x[b], velocity_y[b]
                if state.scene[at.TIME_BEFORE, b] >= 0:
                    error_x, error_y = velocity_error(state, b, scales.position_noise, scales.per_time, pair)
                    state.scratch[6, b] += error_x
                    state.scratch[7, b] += error_y
            velocity_x, velocity_y = state.scratch[6], state.scratch[7]
        return velocity_x, velocity_y, state.scratch_mask, state.scratch[5], state.scratch[8]
    r = row_of(knowledge.known, i)
    known = knowledge.known[r, j]
    for axis in range(2):
        for b in range(first, last):
            state.scratch[axis, b] = known[at.KNOWN_X + axis, b] - state.sensor[i, X + axis, b]
    for b in range(first, last):
        state.scratch[5, b] = knowledge.seeing[r, j, b]
    velocity_x, velocity_y = known[at.KNOWN_VELOCITY_X], known[at.KNOWN_VELOCITY_Y]
    return velocity_x, velocity_y, knowledge.noticed[i, j], state.scratch[5], known[at.AGE]


@compiled
def _mark_valid(state, knowledge, i, j, mask, first, last):
    """Write the mask of sensor i and target j."""
    for b in range(first, last):
        mask[b, i, j] = state.working[i, b] & place_of(state, knowledge, i, j, b)[0]


@inlined
def _observe_scenes(state, knowledge, scales, codes, of_sensor, pairs, mask, first, last):
    """Write the features of every pair and the mask of valid pairs of the scenes `first` to `last` - 1."""
    sensor = state.sensor
    n, m = sensor.shape[0], state.target.shape[0]
    dx, dy, distance, east, north = (
        state.scratch[0], state.scratch[1], state.scratch[2], state.scratch[3], state.scratch[4],
    )  # fmt: skip
    for b in range(first, last):
        state.scratch[8, b] = 0.0  # age with full knowledge
    for j in range(m):
        if knowledge is None:
            for b in range(first, last):
                state.scratch[5, b] = 0.0
            for i in range(n):
                notice(state, scales.missed_detections, i, j, first, last)
                for b in range(first, last):
                    state.scratch[5, b] += state.scratch_mask[b]
        for i in range(n):
            velocity_x, velocity_y, noticed, seeing, age = _view_of(state, knowledge, scales, i, j, first, last)
            measure_offsets(dx, dy, distance, east, north, first, last)
            pair = Pair(
                i, j, n, m, sensor[i], dx, dy, distance, east, north, velocity_x, velocity_y, noticed, seeing, age,
                None,
            )  # fmt: skip
            for k in range(codes.shape[0]):
                write_feature(codes[k], pairs[:, i, j, k], pair, scales, first, last)
            if not scales.all_there:
                _mark_valid(state, knowledge, i, j, mask, first, last)
                for b in range(first, last):
                    if mask[b, i, j] == 0:
                        for k in range(codes.shape[0]):
                            if not (of_sensor[k] and state.working[i, b]):
                                pairs[b, i, j, k] = 0.0


@kernel
def observe(state, scales, codes, of_sensor, pairs, mask, share):
    """Write the features `codes` of every pair and the mask of valid pairs.

    Features `of_sensor` (d,) are also shown for unknown targets.
    """
    own = scales_of(scales)
    for low, high in blocks(pairs.shape[0], share):
        for first in range(low, high, BLOCK):
            last = min(first + BLOCK, high)
            _observe_scenes(
                state, state.knowledge, own, codes, of_sensor, pairs, mask, np.uint64(first), np.uint64(last)
            )
