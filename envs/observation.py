"""Observations: named features of every pair of a sensor and a target, as one array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from hitmac.envs.errors import in_short, is_among
from hitmac.envs.kernels.feature_table import FEATURES, Scales, most_speed
from hitmac.envs.kernels.observe import SCALES, observe
from hitmac.envs.machine import check_memory
from hitmac.envs.measured import check_nearness
from hitmac.envs.nearest import Nearest
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
        nearest: k, the number of targets shown to each sensor; None: all m. A row then holds the k' = min(k, m) nearest
            valid targets by ascending index, of two at the same distance the one of the lower index. If there are
            fewer, empty slots follow. With k >= m slot j is target j. Nearness is that of the true positions, or with
            partial knowledge of the last known ones.
        radius: largest distance of a target that is shown, in the scenario's units; None: any. Only with `nearest`.
        neighbours: l, the number of neighbours listed for each sensor; None: no list. Neighbours are sensors at a
            distance of at most the sum of both ranges, so that they may share targets: the l' = min(l, n) nearest
            that work, the sensor itself included. Only with `nearest`.

    Attributes:
        space: ``Dict(pairs=Box (n, m, d) float32, mask=MultiBinary (n, m))``; the mask is 0 for a pair that is not
            valid. With `nearest`, ``pairs`` (n, k', d), ``mask`` (n, k') and ``targets=Box (n, k') int32``, the index
            of the target in each slot, -1 where the mask is 0; with `neighbours` also ``neighbours=Box (n, l') int32``,
            ascending, -1 for none.

    Raises:
        ValueError: no feature, an unknown feature, or a feature given twice; `nearest` or `neighbours` is no whole
            number or under 1, `radius` is not over 0 and finite, or either of them is given without `nearest`.
    """

    def __init__(
        self,
        scenario: Scenario,
        features: Sequence[str] = DEFAULT_FEATURES,
        *,
        nearest: int | None = None,
        radius: float | None = None,
        neighbours: int | None = None,
    ) -> None:
        self.features = check_features(features)
        self.nearest, self.radius, self.neighbours = check_nearness(nearest, radius, neighbours)
        self._shape = (scenario.num_sensors, scenario.num_targets, len(self.features))
        self._codes = np.array([list(FEATURES).index(name) for name in self.features], np.int64)
        self._of_sensor = np.array([FEATURES[name].of_sensor for name in self.features])
        shown = min(self.nearest or scenario.num_targets, scenario.num_targets)
        check_memory(
            8.0 * scenario.num_sensors * shown * len(self.features),
            f"an observation of {scenario.num_sensors} sensors, {shown} targets and {len(self.features)} features",
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
        n, m, d = self._shape
        slots = min(nearest or m, m)
        self.space = spaces.Dict(
            pairs=spaces.Box(
                np.broadcast_to(low, (n, slots, d)), np.broadcast_to(high, (n, slots, d)), dtype=np.float32
            ),
            mask=spaces.MultiBinary((n, slots)),
        )
        if nearest is not None:
            self.space["targets"] = spaces.Box(-1, m - 1, (n, slots), np.int32)
        if neighbours is not None:
            self.space["neighbours"] = spaces.Box(-1, n - 1, (n, min(neighbours, n)), np.int32)
        self._near = None
        if self.nearest is not None:
            self._near = Nearest(
                scenario,
                self._codes,
                self._of_sensor,
                counted="others_seeing" in self.features,
                nearest=self.nearest,
                radius=self.radius,
                neighbours=self.neighbours,
            )

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return the observation of every scene: new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m).

        With `nearest`, those of :attr:`space` with the scenes along a first axis.
        """
        if simulator.rows.visible.shape[:2] != self._shape[:2]:
            raise ValueError(
                f"the simulator has {simulator.rows.visible.shape[:2]} sensors and targets; this observer is for "
                f"{self._shape[:2]}"
            )
        scales = self._scales[int(simulator.absences)]
        if self._near is not None:
            return self._near.observe(simulator, scales)
        pairs = np.empty((simulator.num_envs, *self._shape), np.float32)
        mask = np.empty((simulator.num_envs, *self._shape[:2]), np.int8)
        mask.fill(1)
        simulator.threads.run(observe, simulator.observed, scales, self._codes, self._of_sensor, pairs, mask)
        return {"pairs": pairs, "mask": mask}


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return `features`, or the set that it names, as a tuple; raise ValueError that lists the known features."""
    several = isinstance(features, Iterable) and not isinstance(features, str)
    names: tuple[Any, ...] = tuple(features) if several else (features,)
    if len(names) == 1 and is_among(names[0], FEATURE_SETS):
        return FEATURE_SETS[names[0]]
    unknown = [name for name in names if not is_among(name, FEATURES)]
    if unknown or not names:
        problem = f"unknown feature {in_short(unknown, (*FEATURES, *FEATURE_SETS))}" if unknown else "no feature given"
        raise ValueError(f"{problem}: known are {', '.join(FEATURES)}, and the sets {', '.join(FEATURE_SETS)}")
    if len(set(names)) != len(names):
        raise ValueError(f"features {', '.join(names)} name a feature twice; give each once")
    return names
