"""Features of every pair of a sensor and a target, written for a whole batch. Compiled by numba."""

import math

import numpy as np

from hitmac.envs.kernels.compiled import compiled, inlined, kernel
from hitmac.envs.kernels.features import Pair, Scales, write_feature
from hitmac.envs.kernels.physics import BLOCK
from hitmac.envs.kernels.state import (
    DRAWS,
    DRAWS_BEFORE,
    KEY,
    TIME,
    TIME_BEFORE,
    VELOCITY_X,
    VELOCITY_Y,
    X,
)  # fmt: skip
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform
from hitmac.envs.kernels.threads import blocks

SCALES = np.dtype(list(Scales.__annotations__.items()), align=True)
"""Record of :class:`Scales`."""

_NOISE = np.uint64(0x6E6F697365)  # separates the stream of the observation errors from the scene's own stream
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)


@inlined
def _key_at(state, b, draws, time):
    """Return the key of the observation errors of scene b after `draws` draws, at sub-step `time`."""
    return mix(mix(mix(state.stream[KEY, b] ^ _NOISE) + draws * GOLDEN) + np.uint64(time) * GOLDEN)


@inlined
def _noise_key(state, b):
    """Return the key of the current observation errors of scene b, whether it was observed before or not."""
    return _key_at(state, b, state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def _error(scales, key, pair):
    """Return the errors (x, y) of a target's position, two independent normal numbers by Box and Muller."""
    radius = scales.position_noise * math.sqrt(-2.0 * math.log(1.0 - uniform(key, _FOUR * pair)))
    angle = 2.0 * math.pi * uniform(key, _FOUR * pair + _ONE)
    return radius * math.cos(angle), radius * math.sin(angle)


@inlined
def _notice(state, scales, i, j, first, last):
    """Write into `scratch_mask` whether sensor i sees target j and does not miss it."""
    for b in range(first, last):
        state.scratch_mask[b] = state.visible[i, j, b]
    if scales.missed_detections > 0.0:
        pair = np.uint64(i * state.target.shape[0] + j)
        for b in range(first, last):
            state.scratch_mask[b] &= uniform(_noise_key(state, b), _FOUR * pair + _TWO) >= scales.missed_detections


@compiled
def _offset(state, scales, i, j, first, last):
    """Write the observed offset from sensor i to target j into rows 0 and 1 of `scratch`."""
    for axis in range(2):
        for b in range(first, last):
            state.scratch[axis, b] = state.target[j, X + axis, b] - state.sensor[i, X + axis, b]
    if scales.position_noise > 0.0:
        pair = np.uint64(i * state.target.shape[0] + j)
        for b in range(first, last):
            error_x, error_y = _error(scales, _noise_key(state, b), pair)
            state.scratch[0, b] += error_x
            state.scratch[1, b] += error_y


@compiled
def _velocity(state, scales, i, j, first, last):
    """Write the velocity of target j, as sensor i observes it, into rows 6 and 7 of `scratch`.

    ``(position - position before the last move) / time_step``, with the errors of both positions; 0 before any move.
    """
    pair = np.uint64(i * state.target.shape[0] + j)
    for b in range(first, last):
        state.scratch[6, b] = state.target[j, VELOCITY_X, b]
        state.scratch[7, b] = state.target[j, VELOCITY_Y, b]
        if state.scene[TIME_BEFORE, b] >= 0:
            error_x, error_y = _error(scales, _noise_key(state, b), pair)
            key = _key_at(state, b, state.stream[DRAWS_BEFORE, b], state.scene[TIME_BEFORE, b])
            before_x, before_y = _error(scales, key, pair)
            state.scratch[6, b] += (error_x - before_x) * scales.per_time
            state.scratch[7, b] += (error_y - before_y) * scales.per_time


@inlined
def _observe_scenes(state, scales, codes, pairs, mask, first, last):
    """Write the features of every pair, and the mask of valid pairs, of the scenes `first` to `last` - 1."""
    sensor, target = state.sensor, state.target
    n, m = sensor.shape[0], target.shape[0]
    dx, dy, distance, east, north, seeing = (
        state.scratch[0], state.scratch[1], state.scratch[2], state.scratch[3], state.scratch[4], state.scratch[5],
    )  # fmt: skip
    noticed = state.scratch_mask
    for j in range(m):
        for b in range(first, last):
            seeing[b] = 0.0
        for i in range(n):
            _notice(state, scales, i, j, first, last)
            for b in range(first, last):
                seeing[b] += noticed[b]
        for i in range(n):
            _notice(state, scales, i, j, first, last)
            _offset(state, scales, i, j, first, last)
            for b in range(first, last):
                distance[b] = math.sqrt(dx[b] * dx[b] + dy[b] * dy[b])
            # A target at the position of the sensor counts as lying along +x, since atan2(0, 0) = 0.
            for b in range(first, last):
                east[b] = dx[b] / distance[b] if distance[b] > 0.0 else 1.0
            for b in range(first, last):
                north[b] = dy[b] / distance[b] if distance[b] > 0.0 else 0.0
            velocity_x, velocity_y = target[j, VELOCITY_X], target[j, VELOCITY_Y]
            if scales.noisy_velocity:
                _velocity(state, scales, i, j, first, last)
                velocity_x, velocity_y = state.scratch[6], state.scratch[7]
            pair = Pair(
                i, j, n, m, sensor[i], dx, dy, distance, east, north, velocity_x, velocity_y, noticed, seeing
            )  # fmt: skip
            for k in range(codes.shape[0]):
                write_feature(codes[k], pairs[:, i, j, k], pair, scales, first, last)
            if not scales.all_there:
                for b in range(first, last):
                    mask[b, i, j] = state.working[i, b] & state.present[j, b]
                    if mask[b, i, j] == 0:
                        for k in range(codes.shape[0]):
                            pairs[b, i, j, k] = 0.0


@kernel
def observe(state, scales, codes, pairs, mask, share):
    """Write the features of `codes` of every pair, and the mask of valid pairs."""
    # One array as argument, since fewer arguments make a call faster; then scalars, since they make the loops faster.
    s = scales[0]
    own = Scales(
        s.per_distance, s.per_speed, s.per_time, s.most_speed, s.position_noise, s.missed_detections, s.noisy_velocity,
        s.all_there,
    )  # fmt: skip
    for low, high in blocks(pairs.shape[0], share):
        for first in range(low, high, BLOCK):
            last = min(first + BLOCK, high)
            _observe_scenes(state, own, codes, pairs, mask, np.uint64(first), np.uint64(last))
