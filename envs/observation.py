"""What an agent is shown of every pair of a sensor and a target: features by name, as one array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numba import prange

from envs.compiled import compiled, inlined, kernel
from envs.physics import BLOCK
from envs.random import GOLDEN, mix, uniform
from envs.scenario import Scenario
from envs.simulator import Simulator
from envs.state import (
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


class Feature(NamedTuple):
    """One number that describes a pair."""

    code: int
    low: float
    high: float
    meaning: str


FEATURES: dict[str, Feature] = {
    "sensor_id": Feature(_SENSOR_ID, 0, 1, "i / n of the paper, i counted from 0"),
    "target_id": Feature(_TARGET_ID, 0, 1, "j / m of the paper, j counted from 0"),
    "bearing": Feature(_BEARING, -1, 1, "angle from the heading to the target / 180 deg, counter-clockwise"),
    "distance": Feature(_DISTANCE, 0, math.inf, "distance / distance_scale of the scenario"),
    "bearing_sin": Feature(_BEARING_SIN, -1, 1, "sine of the bearing"),
    "bearing_cos": Feature(_BEARING_COS, -1, 1, "cosine of the bearing"),
    "in_range": Feature(_IN_RANGE, 0, 1, "1 if the target is within the sensing range"),
    "visible": Feature(_VISIBLE, 0, 1, "1 if the sensor sees the target"),
    "others_seeing": Feature(_OTHERS_SEEING, 0, math.inf, "how many other sensors see the target"),
    "radial_velocity": Feature(_RADIAL_VELOCITY, -1, 1, "speed away from the sensor / top speed, in the last move"),
    "tangential_velocity": Feature(_TANGENTIAL_VELOCITY, -1, 1, "speed counter-clockwise around the sensor, likewise"),
    "field_of_view": Feature(_FIELD_OF_VIEW, 0, 1, "the sensor's field of view / 360 deg"),
    "sensing_range": Feature(_SENSING_RANGE, 0, math.inf, "the sensor's range / distance_scale of the scenario"),
    "turn": Feature(_TURN, 0, 1, "how far the sensor turns in a sub-step / 180 deg"),
}
"""The observation features, by name."""

PAPER_FEATURES = ("sensor_id", "target_id", "bearing", "distance")
"""The four numbers of HiT-MAC (Xu, Zhong, Wang 2020, section 4)."""

DEFAULT_FEATURES = (
    "bearing_sin",
    "bearing_cos",
    "distance",
    "in_range",
    "visible",
    "others_seeing",
    "radial_velocity",
    "tangential_velocity",
)
"""What the environments show when nothing else is asked for; it names no sensor and no target."""

FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "hit-mac": PAPER_FEATURES,
    "frame": ("bearing_sin", "bearing_cos", "bearing", "distance", "in_range", "visible", "others_seeing"),
    "motion": DEFAULT_FEATURES,
}
"""Sets of features by name: the paper's; what one picture shows; the default, with velocities."""


class _Scales(NamedTuple):
    """What the kernels need of the scenario."""

    per_distance: float
    per_speed: float
    per_time: float
    most_speed: float  # as shown
    position_noise: float
    missed_detections: float
    all_there: bool  # no pair is ever masked


_SCALES = np.dtype([(name, bool if name == "all_there" else float) for name in _Scales._fields], align=True)


_NOISE = np.uint64(0x6E6F697365)  # sets the stream of the errors of observation apart from the scene's own
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)


@inlined
def _turns(y, x):
    """``atan2(y, x) / pi`` in [-1, 1), to 1e-8, by a polynomial, of which the compiler makes vector instructions.

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
    """The key of the errors in what is observed of scene b when it has drawn so many numbers, at that time."""
    return mix(mix(mix(state.stream[KEY, b] ^ _NOISE) + draws * GOLDEN) + np.uint64(time) * GOLDEN)


@inlined
def _noise_key(state, b):
    """The key of the errors in what is observed of scene b now: to look twice, or not to look, changes nothing."""
    return _key_at(state, b, state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def _error(scales, key, pair):
    """The errors (x, y) in the position of a target, two independent normal numbers by Box and Muller."""
    radius = scales.position_noise * math.sqrt(-2.0 * math.log(1.0 - uniform(key, _FOUR * pair)))
    angle = 2.0 * math.pi * uniform(key, _FOUR * pair + _ONE)
    return radius * math.cos(angle), radius * math.sin(angle)


@inlined
def _notice(state, scales, i, j, first, last):
    """Write whether sensor i sees target j and does not miss it into the flags."""
    for b in range(first, last):
        state.flag[b] = state.visible[i, j, b]
    if scales.missed_detections > 0.0:
        pair = np.uint64(i * state.target.shape[0] + j)
        for b in range(first, last):
            state.flag[b] &= uniform(_noise_key(state, b), _FOUR * pair + _TWO) >= scales.missed_detections


@compiled
def _offset(state, scales, i, j, first, last):
    """Write the offset from sensor i to target j, as observed, into the working rows 0 and 1."""
    for axis in range(2):
        for b in range(first, last):
            state.work[axis, b] = state.target[j, X + axis, b] - state.sensor[i, X + axis, b]
    if scales.position_noise > 0.0:
        pair = np.uint64(i * state.target.shape[0] + j)
        for b in range(first, last):
            error_x, error_y = _error(scales, _noise_key(state, b), pair)
            state.work[0, b] += error_x
            state.work[1, b] += error_y


@compiled
def _velocity(state, scales, i, j, first, last):
    """Write the velocity of target j, as sensor i observes it, into the working rows 6 and 7.

    ``(position - position before the last move) / time_step``, with the errors in both positions; 0 before the first.
    """
    pair = np.uint64(i * state.target.shape[0] + j)
    for b in range(first, last):
        state.work[6, b] = state.target[j, VELOCITY_X, b]
        state.work[7, b] = state.target[j, VELOCITY_Y, b]
        if state.scene[TIME_BEFORE, b] >= 0:
            error_x, error_y = _error(scales, _noise_key(state, b), pair)
            key = _key_at(state, b, state.stream[DRAWS_BEFORE, b], state.scene[TIME_BEFORE, b])
            before_x, before_y = _error(scales, key, pair)
            state.work[6, b] += (error_x - before_x) * scales.per_time
            state.work[7, b] += (error_y - before_y) * scales.per_time


@inlined
def _observe_scenes(state, scales, features, pairs, mask, first, last):
    """Write the features of every pair, and which pairs are there, of the scenes `first` to `last` - 1."""
    sensor, target = state.sensor, state.target
    n, m = sensor.shape[0], target.shape[0]
    dx, dy, distance, east, north, seeing = (
        state.work[0], state.work[1], state.work[2], state.work[3], state.work[4], state.work[5],
    )  # fmt: skip
    noticed = state.flag
    observe_velocity = False  # where it errs
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
            # A target on the very place of the sensor is taken to lie along +x, as atan2(0, 0) = 0 has it.
            for b in range(first, last):
                east[b] = dx[b] / distance[b] if distance[b] > 0.0 else 1.0
            for b in range(first, last):
                north[b] = dy[b] / distance[b] if distance[b] > 0.0 else 0.0
            velocity_x, velocity_y = target[j, VELOCITY_X], target[j, VELOCITY_Y]
            if observe_velocity:
                _velocity(state, scales, i, j, first, last)
                velocity_x, velocity_y = state.work[6], state.work[7]
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
def _observe(state, scales, features, pairs, mask, low, high):
    # An array, since a call is the faster the fewer arguments it has; and numbers, since the loops are faster on them.
    s = scales[0]
    own = _Scales(
        s.per_distance, s.per_speed, s.per_time, s.most_speed, s.position_noise, s.missed_detections, s.all_there
    )
    for block in range(low, high, BLOCK):
        _observe_scenes(state, own, features, pairs, mask, np.uint64(block), np.uint64(min(block + BLOCK, high)))


@kernel(parallel=True)
def _observe_threads(state, scales, features, pairs, mask, bounds):
    for chunk in prange(bounds.shape[0] - 1):
        _observe(state, scales, features, pairs, mask, bounds[chunk], bounds[chunk + 1])


class Observer:
    """Writes the chosen features of every pair.

    Args:
        scenario: the scenario of the simulators that will be observed.
        features: names out of :data:`FEATURES`, in the order in which they stand in the last axis.

    Attributes:
        space: ``Dict(pairs=Box (n, m, d) float32, mask=MultiBinary (n, m))``; a mask of 0 marks a pair that
            is not there.

    Raises:
        ValueError: no feature, an unknown one, or one given twice.
    """

    def __init__(self, scenario: Scenario, features: Sequence[str] = DEFAULT_FEATURES) -> None:
        self.features = check_features(features)
        self._shape = (scenario.num_sensors, scenario.num_targets, len(self.features))
        self._codes = np.array([FEATURES[name].code for name in self.features], np.int64)
        # The errors of a position have a bound: Box and Muller's numbers stay under 9. Those of a velocity are of two.
        error = 9 * scenario.position_noise
        fastest = 1 + 2 * error / scenario.time_step / scenario.top_speed
        scales = _Scales(
            per_distance=1 / scenario.distance_scale,
            per_speed=1 / scenario.top_speed,
            per_time=1 / scenario.time_step,
            most_speed=fastest,
            position_noise=scenario.position_noise,
            missed_detections=scenario.missed_detections,
            all_there=not scenario.varies,
        )
        self._scales = np.array([tuple(scales)], _SCALES)
        # What has no bound of its own has one from the scenario: the arena's diagonal, the number of sensors.
        reach = scenario.of_each_sensor("sensing_range")
        if scenario.zoom:
            reach = reach * np.sqrt(scenario.of_each_sensor("field_of_view") / scenario.zoom[0])
        farthest = math.sqrt(8) * (scenario.arena + error)
        bounds = {
            "distance": farthest / scenario.distance_scale,
            "others_seeing": self._shape[0],
            "sensing_range": reach.max() / scenario.distance_scale,
            "radial_velocity": fastest,
            "tangential_velocity": fastest,
        }
        low = np.array([FEATURES[name].low * bounds.get(name, 1) for name in self.features], np.float32)  # -high or 0
        high = np.array([bounds.get(name, FEATURES[name].high) for name in self.features], np.float32)
        self.space = spaces.Dict(
            pairs=spaces.Box(np.broadcast_to(low, self._shape), np.broadcast_to(high, self._shape), dtype=np.float32),
            mask=spaces.MultiBinary(self._shape[:2]),
        )

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """The observation of every scene: fresh arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m)."""
        if simulator.rows.visible.shape[:2] != self._shape[:2]:
            raise ValueError(
                f"the simulator has {simulator.rows.visible.shape[:2]} sensors and targets; "
                f"this observer is for {self._shape[:2]}"
            )
        pairs = np.empty((simulator.num_envs, *self._shape), np.float32)
        mask = np.empty((simulator.num_envs, *self._shape[:2]), np.int8)
        mask.fill(1)
        if simulator.num_threads == 1:
            _observe(simulator.rows, self._scales, self._codes, pairs, mask, 0, simulator.num_envs)
        else:
            _observe_threads(simulator.rows, self._scales, self._codes, pairs, mask, simulator.bounds)
        return {"pairs": pairs, "mask": mask}


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """`features` as a tuple, that of a set by its name alone; or a ValueError that lists the known ones."""
    names = (features,) if isinstance(features, str) else tuple(features)
    if len(names) == 1 and names[0] in FEATURE_SETS:
        return FEATURE_SETS[names[0]]
    unknown = [str(name) for name in names if name not in FEATURES]
    if unknown or not names:
        problem = f"unknown feature {', '.join(unknown)}" if unknown else "no feature given"
        raise ValueError(f"{problem}: known are {', '.join(FEATURES)}, and the sets {', '.join(FEATURE_SETS)}")
    if len(set(names)) != len(names):
        raise ValueError(f"features {', '.join(names)} name one twice; give each once")
    return names
