"""Features of every pair of a sensor and a target, written for a whole batch. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np
from numba import prange

from envs.kernels.compiled import compiled, inlined, kernel
from envs.kernels.physics import BLOCK
from envs.kernels.state import (
    DIRECTION_X,
    DIRECTION_Y,
    DRAWS,
    DRAWS_BEFORE,
    FIELD_OF_VIEW,
    KEY,
    RANGE_SQUARED,
    TIME,
    TIME_BEFORE,
    TURN,
    VELOCITY_X,
    VELOCITY_Y,
    X,
)  # fmt: skip
from envs.kernels.streams import GOLDEN, mix, uniform

(
    _SENSOR_ID,
    _TARGET_ID,
    _BEARING,
    _DISTANCE,
    _BEARING_SIN,
    _BEARING_COS,
    _IN_RANGE,
    _VISIBLE,
    _OTHERS_SEEING,
    _RADIAL_VELOCITY,
    _TANGENTIAL_VELOCITY,
    _FIELD_OF_VIEW,
    _SENSING_RANGE,
    _TURN,
) = range(14)

CODES = {
    "sensor_id": _SENSOR_ID,
    "target_id": _TARGET_ID,
    "bearing": _BEARING,
    "distance": _DISTANCE,
    "bearing_sin": _BEARING_SIN,
    "bearing_cos": _BEARING_COS,
    "in_range": _IN_RANGE,
    "visible": _VISIBLE,
    "others_seeing": _OTHERS_SEEING,
    "radial_velocity": _RADIAL_VELOCITY,
    "tangential_velocity": _TANGENTIAL_VELOCITY,
    "field_of_view": _FIELD_OF_VIEW,
    "sensing_range": _SENSING_RANGE,
    "turn": _TURN,
}
"""Codes of the observation features, by name."""


class Scales(NamedTuple):
    """Scales and noise of the observation, from the scenario."""

    per_distance: float
    per_speed: float
    per_time: float
    most_speed: float  # scaled
    position_noise: float
    missed_detections: float
    all_there: bool  # no pair is ever masked


SCALES = np.dtype([(name, bool if name == "all_there" else float) for name in Scales._fields], align=True)


_NOISE = np.uint64(0x6E6F697365)  # separates the stream of the observation errors from the scene's own stream
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)


@inlined
def _turns(y, x):
    """Return ``atan2(y, x) / pi`` in [-1, 1), to 1e-8, by a polynomial, which the compiler can vectorise.

    The polynomial for atan on [0, 1] is 4.4.49 of Abramowitz and Stegun, Handbook of Mathematical Functions (1964).
    """
    across, along = abs(y), abs(x)
    longer = max(across, along)
    ratio = min(across, along) / longer if longer > 0.0 else 0.0
    s = ratio * ratio
    angle = ratio * (
        1.0
        + s * (-0.3333314528 + s * (0.1999355085 + s * (-0.1420889944 + s * (0.1065626393
        + s * (-0.0752896400 + s * (0.0429096138 + s * (-0.0161657367 + s * 0.0028662257)))))))
    )  # fmt: skip
    angle = 0.5 * math.pi - angle if across > along else angle
    angle = math.pi - angle if x < 0.0 else angle
    turns = angle / math.pi
    return turns if (y >= 0.0) & (turns < 1.0) else -turns


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
def _observe_scenes(state, scales, features, pairs, mask, first, last):
    """Write the features of every pair, and the mask of valid pairs, of the scenes `first` to `last` - 1."""
    sensor, target = state.sensor, state.target
    n, m = sensor.shape[0], target.shape[0]
    dx, dy, distance, east, north, seeing = (
        state.scratch[0], state.scratch[1], state.scratch[2], state.scratch[3], state.scratch[4], state.scratch[5],
    )  # fmt: skip
    noticed = state.scratch_mask
    observe_velocity = False  # only where it has errors
    for k in range(features.shape[0]):
        moving = (features[k] == _RADIAL_VELOCITY) | (features[k] == _TANGENTIAL_VELOCITY)
        observe_velocity |= moving & (scales.position_noise > 0.0)
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
            if observe_velocity:
                _velocity(state, scales, i, j, first, last)
                velocity_x, velocity_y = state.scratch[6], state.scratch[7]
            for k in range(features.shape[0]):
                feature = features[k]
                out = pairs[:, i, j, k]
                if feature == _BEARING_SIN:
                    for b in range(first, last):
                        out[b] = sensor[i, DIRECTION_X, b] * north[b] - sensor[i, DIRECTION_Y, b] * east[b]
                elif feature == _BEARING_COS:
                    for b in range(first, last):
                        out[b] = sensor[i, DIRECTION_X, b] * east[b] + sensor[i, DIRECTION_Y, b] * north[b]
                elif feature == _BEARING:
                    for b in range(first, last):
                        out[b] = _turns(
                            sensor[i, DIRECTION_X, b] * north[b] - sensor[i, DIRECTION_Y, b] * east[b],
                            sensor[i, DIRECTION_X, b] * east[b] + sensor[i, DIRECTION_Y, b] * north[b],
                        )
                elif feature == _DISTANCE:
                    for b in range(first, last):
                        out[b] = distance[b] * scales.per_distance
                elif feature == _IN_RANGE:
                    for b in range(first, last):
                        out[b] = dx[b] * dx[b] + dy[b] * dy[b] <= sensor[i, RANGE_SQUARED, b]
                elif feature == _VISIBLE:
                    for b in range(first, last):
                        out[b] = noticed[b]
                elif feature == _OTHERS_SEEING:
                    for b in range(first, last):
                        out[b] = seeing[b] - noticed[b]
                elif feature == _RADIAL_VELOCITY:
                    for b in range(first, last):
                        speed = (velocity_x[b] * east[b] + velocity_y[b] * north[b]) * scales.per_speed
                        out[b] = min(max(speed, -scales.most_speed), scales.most_speed)
                elif feature == _TANGENTIAL_VELOCITY:
                    for b in range(first, last):
                        speed = (velocity_y[b] * east[b] - velocity_x[b] * north[b]) * scales.per_speed
                        out[b] = min(max(speed, -scales.most_speed), scales.most_speed)
                elif feature == _FIELD_OF_VIEW:
                    for b in range(first, last):
                        out[b] = sensor[i, FIELD_OF_VIEW, b] / 360.0
                elif feature == _SENSING_RANGE:
                    for b in range(first, last):
                        out[b] = math.sqrt(sensor[i, RANGE_SQUARED, b]) * scales.per_distance
                elif feature == _TURN:
                    for b in range(first, last):
                        out[b] = sensor[i, TURN, b] / 180.0
                else:
                    value = i / n if feature == _SENSOR_ID else j / m
                    for b in range(first, last):
                        out[b] = value
            if not scales.all_there:
                for b in range(first, last):
                    mask[b, i, j] = state.working[i, b] & state.present[j, b]
                    if mask[b, i, j] == 0:
                        for k in range(features.shape[0]):
                            pairs[b, i, j, k] = 0.0


@kernel(nogil=True)
def observe(state, scales, features, pairs, mask, low, high):
    """Write the features of every pair, and the mask of valid pairs, of the scenes `low` to `high` - 1."""
    # One array as argument, since fewer arguments make a call faster; then scalars, since they make the loops faster.
    s = scales[0]
    own = Scales(
        s.per_distance, s.per_speed, s.per_time, s.most_speed, s.position_noise, s.missed_detections, s.all_there
    )
    for block in range(low, high, BLOCK):
        _observe_scenes(state, own, features, pairs, mask, np.uint64(block), np.uint64(min(block + BLOCK, high)))


@kernel(parallel=True)
def observe_threads(state, scales, features, pairs, mask, bounds):
    """Run `observe` on several threads."""
    for chunk in prange(bounds.shape[0] - 1):
        observe(state, scales, features, pairs, mask, bounds[chunk], bounds[chunk + 1])
