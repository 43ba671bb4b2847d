"""Observations: named features of every pair of a sensor and a target, as one array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from envs.kernels.observe import CODES, SCALES, Scales, observe, observe_threads
from envs.scenario import Scenario
from envs.simulator import Simulator


class Feature(NamedTuple):
    """Range and meaning of an observation feature, one number of a pair."""

    low: float
    high: float
    meaning: str


FEATURES: dict[str, Feature] = {
    "sensor_id": Feature(0, 1, "i / n of the paper, i counted from 0"),
    "target_id": Feature(0, 1, "j / m of the paper, j counted from 0"),
    "bearing": Feature(-1, 1, "angle from the heading to the target / 180 deg, counter-clockwise"),
    "distance": Feature(0, math.inf, "distance / distance_scale of the scenario"),
    "bearing_sin": Feature(-1, 1, "sine of the bearing"),
    "bearing_cos": Feature(-1, 1, "cosine of the bearing"),
    "in_range": Feature(0, 1, "1 if the target is within the sensing range"),
    "visible": Feature(0, 1, "1 if the sensor sees the target"),
    "others_seeing": Feature(0, math.inf, "number of other sensors that see the target"),
    "radial_velocity": Feature(-1, 1, "speed away from the sensor / top speed, in the last move"),
    "tangential_velocity": Feature(-1, 1, "speed counter-clockwise around the sensor / top speed, in the last move"),
    "field_of_view": Feature(0, 1, "the sensor's field of view / 360 deg"),
    "sensing_range": Feature(0, math.inf, "the sensor's range / distance_scale of the scenario"),
    "turn": Feature(0, 1, "angle that the sensor turns in a sub-step / 180 deg"),
}
"""The observation features, by name."""

PAPER_FEATURES = ("sensor_id", "target_id", "bearing", "distance")
"""The features of HiT-MAC (Xu, Zhong, Wang 2020, section 4)."""

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
"""The default features; none identifies a sensor or a target."""

FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "hit-mac": PAPER_FEATURES,
    "frame": ("bearing_sin", "bearing_cos", "bearing", "distance", "in_range", "visible", "others_seeing"),
    "motion": DEFAULT_FEATURES,
}
"""Sets of features by name: the paper's; those of a single frame; the default, with velocities."""


class Observer:
    """Observer of chosen features of every pair.

    Args:
        scenario: the scenario of the simulators to observe.
        features: names out of :data:`FEATURES`, in the order of the last axis, or the name of a set out of
            :data:`FEATURE_SETS`.

    Attributes:
        space: ``Dict(pairs=Box (n, m, d) float32, mask=MultiBinary (n, m))``; the mask is 0 for a pair that is not
            valid.

    Raises:
        ValueError: no feature, an unknown feature, or a feature given twice.
    """

    def __init__(self, scenario: Scenario, features: Sequence[str] = DEFAULT_FEATURES) -> None:
        self.features = check_features(features)
        self._shape = (scenario.num_sensors, scenario.num_targets, len(self.features))
        self._codes = np.array([CODES[name] for name in self.features], np.int64)
        # The error of a position is bounded: Box and Muller's numbers stay under 9. A velocity has the errors of two.
        error = 9 * scenario.position_noise
        fastest = 1 + 2 * error / scenario.time_step / scenario.top_speed
        scales = Scales(
            per_distance=1 / scenario.distance_scale,
            per_speed=1 / scenario.top_speed,
            per_time=1 / scenario.time_step,
            most_speed=fastest,
            position_noise=scenario.position_noise,
            missed_detections=scenario.missed_detections,
            all_there=not scenario.varies,
        )
        self._scales = np.array([tuple(scales)], SCALES)
        # The scenario bounds features without a bound of their own, by the arena's diagonal or the number of sensors.
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
        """Return the observation of every scene: new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m)."""
        if simulator.rows.visible.shape[:2] != self._shape[:2]:
            raise ValueError(
                f"the simulator has {simulator.rows.visible.shape[:2]} sensors and targets; "
                f"this observer is for {self._shape[:2]}"
            )
        pairs = np.empty((simulator.num_envs, *self._shape), np.float32)
        mask = np.empty((simulator.num_envs, *self._shape[:2]), np.int8)
        mask.fill(1)
        if simulator.num_threads == 1:
            observe(simulator.rows, self._scales, self._codes, pairs, mask, 0, simulator.num_envs)
        else:
            observe_threads(simulator.rows, self._scales, self._codes, pairs, mask, simulator.bounds)
        return {"pairs": pairs, "mask": mask}


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return `features`, or the set that it names, as a tuple; raise ValueError that lists the known features."""
    names = (features,) if isinstance(features, str) else tuple(features)
    if len(names) == 1 and names[0] in FEATURE_SETS:
        return FEATURE_SETS[names[0]]
    unknown = [str(name) for name in names if name not in FEATURES]
    if unknown or not names:
        problem = f"unknown feature {', '.join(unknown)}" if unknown else "no feature given"
        raise ValueError(f"{problem}: known are {', '.join(FEATURES)}, and the sets {', '.join(FEATURE_SETS)}")
    if len(set(names)) != len(names):
        raise ValueError(f"features {', '.join(names)} name a feature twice; give each once")
    return names
