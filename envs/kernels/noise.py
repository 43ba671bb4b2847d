"""Errors of observations, functions of the scene's stream, its draws and its time. Compiled by numba.

They are no draws of the stream themselves: who observes, and how often, changes nothing.
"""

import math

import numpy as np

from hitmac.envs.kernels.compiled import compiled, inlined
from hitmac.envs.kernels.state import DRAWS, DRAWS_BEFORE, KEY, TIME, TIME_BEFORE
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform

_NOISE = np.uint64(0x6E6F697365)  # separates the stream of the observation errors from the scene's own stream
_MESSAGES = np.uint64(0x6D657373616765)
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)


@inlined
def _key_at(state, b, purpose, draws, time):
    """Return the key of a purpose in scene b after `draws` draws, at sub-step `time`."""
    return mix(mix(mix(state.stream[KEY, b] ^ purpose) + draws * GOLDEN) + np.uint64(time) * GOLDEN)


@inlined
def noise_key(state, b):
    """Return the key of the current observation errors of scene b, whether it was observed before or not."""
    return _key_at(state, b, _NOISE, state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def message_key(state, b):
    """Return the key of the messages lost in the current sub-step of scene b."""
    return _key_at(state, b, _MESSAGES, state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def position_error(deviation, key, pair):
    """Return the errors (x, y) of a target's position, two independent normal numbers by Box and Muller."""
    radius = deviation * math.sqrt(-2.0 * math.log(1.0 - uniform(key, _FOUR * pair)))
    angle = 2.0 * math.pi * uniform(key, _FOUR * pair + _ONE)
    return radius * math.cos(angle), radius * math.sin(angle)


@inlined
def velocity_error(state, b, deviation, per_time, pair):
    """Return the errors (x, y) of a target's velocity: those of its positions after and before its last move.

    Call it only after a move.
    """
    x, y = position_error(deviation, noise_key(state, b), pair)
    key = _key_at(state, b, _NOISE, state.stream[DRAWS_BEFORE, b], state.scene[TIME_BEFORE, b])
    before_x, before_y = position_error(deviation, key, pair)
    return (x - before_x) * per_time, (y - before_y) * per_time


@inlined
def pair_number(state, i, j):
    """Return the number of the pair of sensor i and target j."""
    return np.uint64(i * state.target.shape[0] + j)


@inlined
def seen_and_noticed(state, missed_detections, i, j, b):
    """Return whether sensor i of scene b sees target j and does not miss it."""
    if missed_detections > 0.0:
        missed = uniform(noise_key(state, b), _FOUR * pair_number(state, i, j) + _TWO) < missed_detections
        return state.visible[i, j, b] and not missed
    return state.visible[i, j, b]


@compiled
def notice(state, missed_detections, i, j, first, last):
    """Write into `scratch_mask` whether sensor i sees target j and does not miss it."""
    for b in range(first, last):
        state.scratch_mask[b] = state.visible[i, j, b]
    if missed_detections > 0.0:
        pair = pair_number(state, i, j)
        for b in range(first, last):
            state.scratch_mask[b] &= uniform(noise_key(state, b), _FOUR * pair + _TWO) >= missed_detections
