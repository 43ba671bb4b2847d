"""What an agent is shown of every pair of a sensor and a target: features by name, as one array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numba import njit, prange

from envs.compiled import kernel
from envs.physics import State
from envs.scenario import Scenario
from envs.simulator import Simulator

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
) = range(11)


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


class _Scales(NamedTuple):
    range_squared: float
    per_distance: float
    per_speed: float


@njit
def _observe_scene(state, scales, features, b, pairs):
    n = state.heading.shape[1]
    m = state.speed.shape[1]
    for j in range(m):
        seeing = 0
        for i in range(n):
            seeing += state.visible[b, i, j]
        for i in range(n):
            dx = state.target_position[b, j, 0] - state.sensor_position[b, i, 0]
            dy = state.target_position[b, j, 1] - state.sensor_position[b, i, 1]
            squared = dx * dx + dy * dy
            distance = math.sqrt(squared)
            # A target on the very place of the sensor is taken to lie along +x, as atan2(0, 0) = 0 has it.
            east = dx / distance if distance > 0.0 else 1.0
            north = dy / distance if distance > 0.0 else 0.0
            for k in range(features.shape[0]):
                feature = features[k]
                if feature == _BEARING_SIN:
                    value = state.direction[b, i, 0] * north - state.direction[b, i, 1] * east
                elif feature == _BEARING_COS:
                    value = state.direction[b, i, 0] * east + state.direction[b, i, 1] * north
                elif feature == _DISTANCE:
                    value = distance * scales.per_distance
                elif feature == _IN_RANGE:
                    value = 1.0 if squared <= scales.range_squared else 0.0
                elif feature == _VISIBLE:
                    value = 1.0 if state.visible[b, i, j] else 0.0
                elif feature == _OTHERS_SEEING:
                    value = seeing - (1.0 if state.visible[b, i, j] else 0.0)
                elif feature == _RADIAL_VELOCITY:
                    value = (state.velocity[b, j, 0] * east + state.velocity[b, j, 1] * north) * scales.per_speed
                elif feature == _TANGENTIAL_VELOCITY:
                    value = (state.velocity[b, j, 1] * east - state.velocity[b, j, 0] * north) * scales.per_speed
                elif feature == _BEARING:
                    bearing = math.degrees(math.atan2(dy, dx)) - state.heading[b, i]
                    value = (bearing - 360.0 * math.floor((bearing + 180.0) / 360.0)) / 180.0
                elif feature == _SENSOR_ID:
                    value = i / n
                else:
                    value = j / m
                pairs[b, i, j, k] = value


@kernel(nogil=True)
def _observe(state, scales, features, pairs, low, high):
    for b in range(low, high):
        _observe_scene(state, scales, features, b, pairs)


@kernel(parallel=True)
def _observe_threads(state, scales, features, pairs, bounds):
    for chunk in prange(bounds.shape[0] - 1):
        _observe(state, scales, features, pairs, bounds[chunk], bounds[chunk + 1])


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
        self._scales = _Scales(scenario.sensing_range**2, 1 / scenario.distance_scale, 1 / scenario.top_speed)
        # What has no bound of its own has one from the scenario: the arena's diagonal, the number of sensors.
        bounds = {
            "distance": math.sqrt(8) * scenario.arena * self._scales.per_distance,
            "others_seeing": self._shape[0],
        }
        low = np.array([FEATURES[name].low for name in self.features], np.float32)
        high = np.array([bounds.get(name, FEATURES[name].high) for name in self.features], np.float32)
        self.space = spaces.Dict(
            pairs=spaces.Box(np.broadcast_to(low, self._shape), np.broadcast_to(high, self._shape), dtype=np.float32),
            mask=spaces.MultiBinary(self._shape[:2]),
        )

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """The observation of every scene: fresh arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m)."""
        state: State = simulator.state
        pairs = np.empty((simulator.num_envs, *self._shape), np.float32)
        if simulator.num_threads == 1:
            _observe(state, self._scales, self._codes, pairs, 0, simulator.num_envs)
        else:
            _observe_threads(state, self._scales, self._codes, pairs, simulator.bounds)
        mask = np.empty((simulator.num_envs, *self._shape[:2]), np.int8)
        mask.fill(1)
        return {"pairs": pairs, "mask": mask}


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """`features` as a tuple, or a ValueError that lists the known ones."""
    names = (features,) if isinstance(features, str) else tuple(features)
    unknown = [str(name) for name in names if name not in FEATURES]
    if unknown or not names:
        problem = f"unknown feature {', '.join(unknown)}" if unknown else "no feature given"
        raise ValueError(f"{problem}: known are {', '.join(FEATURES)}")
    if len(set(names)) != len(names):
        raise ValueError(f"features {', '.join(names)} name one twice; give each once")
    return names
