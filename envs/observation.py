"""Observations: named features of every pair of a sensor and a target, as one array."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from hitmac.envs.errors import did_you_mean
from hitmac.envs.kernels.feature_table import FEATURES, Scales, most_speed
from hitmac.envs.kernels.observe import SCALES, observe
from hitmac.envs.machine import check_memory
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator

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
    "last-known": (*DEFAULT_FEATURES, "age", "seen_now", "expected_distance", "expected_sin", "expected_cos", "spread"),
}
"""Sets of features by name: the paper's; those of a single frame; the default, with velocities; and with all that is
known of targets that are not seen."""


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
        self._codes = np.array([list(FEATURES).index(name) for name in self.features], np.int64)
        self._of_sensor = np.array([FEATURES[name].of_sensor for name in self.features])
        check_memory(
            8.0 * math.prod(self._shape),
            "an observation of {} sensors, {} targets and {} features".format(*self._shape),
        )
        noisy = scenario.position_noise > 0
        half_width, half_height = scenario.extent
        scales = Scales(
            per_distance=1 / scenario.distance_scale,
            per_speed=1 / scenario.top_speed,
            per_time=1 / scenario.time_step,
            most_speed=most_speed(scenario),
            position_noise=scenario.position_noise,
            missed_detections=scenario.missed_detections,
            noisy_velocity=noisy and any(FEATURES[name].moving for name in self.features),
            all_there=not scenario.varies and scenario.knowledge == "full",
            half_width=half_width,
            half_height=half_height,
            diagonal=2 * math.hypot(half_width, half_height),
            pace=scenario.time_step * (1 + (1 / scenario.extra_move_interval if scenario.extra_move_interval else 0)),
            top_speed=scenario.top_speed,
        )
        self._scales = np.array([tuple(scales), tuple(scales._replace(all_there=False))], SCALES)[:, None]
        low, high = np.array([FEATURES[name].bounds(scenario) for name in self.features], np.float32).T
        self.space = spaces.Dict(
            pairs=spaces.Box(np.broadcast_to(low, self._shape), np.broadcast_to(high, self._shape), dtype=np.float32),
            mask=spaces.MultiBinary(self._shape[:2]),
        )

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return the observation of every scene: new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m)."""
        # Without what the kernel does not read, it is compiled once for all kinds of sensors and paths of targets.
        state = simulator.rows._replace(tracks=None, rails=None, recordings=None, mounts=None)
        if state.visible.shape[:2] != self._shape[:2]:
            raise ValueError(
                f"the simulator has {state.visible.shape[:2]} sensors and targets; this observer is for "
                f"{self._shape[:2]}"
            )
        pairs = np.empty((simulator.num_envs, *self._shape), np.float32)
        mask = np.empty((simulator.num_envs, *self._shape[:2]), np.int8)
        mask.fill(1)
        simulator.threads.run(
            observe, state, self._scales[int(simulator.absences)], self._codes, self._of_sensor, pairs, mask
        )
        return {"pairs": pairs, "mask": mask}


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return `features`, or the set that it names, as a tuple; raise ValueError that lists the known features."""
    names = (features,) if isinstance(features, str) else tuple(features)
    if len(names) == 1 and names[0] in FEATURE_SETS:
        return FEATURE_SETS[names[0]]
    unknown = [f"{name}{did_you_mean(name, (*FEATURES, *FEATURE_SETS))}" for name in names if name not in FEATURES]
    if unknown or not names:
        problem = f"unknown feature {', '.join(unknown)}" if unknown else "no feature given"
        raise ValueError(f"{problem}: known are {', '.join(FEATURES)}, and the sets {', '.join(FEATURE_SETS)}")
    if len(set(names)) != len(names):
        raise ValueError(f"features {', '.join(names)} name a feature twice; give each once")
    return names
