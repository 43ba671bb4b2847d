"""Observations: named features of every pair of a sensor and a target as one array, or detections without names."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from hitmac.envs.base import formulas
from hitmac.envs.base.nearest import make_cells, make_places, sort_walls
from hitmac.envs.base.state import NO_PARTS
from hitmac.envs.deployment import check_nearness
from hitmac.envs.features import FEATURES, SCALES, longest_range
from hitmac.envs.kernels.observe import Index, NearestObservation, index_scenes, observe, observe_near
from hitmac.envs.parts.arena import check_sizes
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.validation import in_short, is_among

_scales: Any = formulas.Scales

PAPER_FEATURES = ("sensor_id", "target_id", "bearing", "distance")
"""The features of HiT-MAC (Xu, Zhong, Wang 2020, section 4)."""

DEFAULT_FEATURES = (
    "bearing_sin", "bearing_cos", "distance", "in_range", "visible", "others_seeing", "radial_velocity",
    "tangential_velocity",
)  # fmt: skip
"""The default features of most scenarios, see :func:`default_features`; none identifies a sensor or a target."""

SITE_FEATURES = (
    "in_sight", "seen_if_turned", "relative_bearing", "relative_distance", "turn", "sensor_x", "sensor_y",
    "heading_sin", "heading_cos",
)  # fmt: skip
"""Lines of sight, and the place and kind of each sensor."""

_OF_PARTS = {
    "turn_rates": ("rate", "pending_turn"),
    "zoom": ("relative_bearing", "relative_distance"),
    "tilt_limits": ("tilt", "beyond_edges"),
    "has_values": ("value",),
}
"""Features that the default has besides, by the parameter or property of a scenario with which it has them."""

FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "hit-mac": PAPER_FEATURES,
    "frame": ("bearing_sin", "bearing_cos", "bearing", "distance", "in_range", "visible", "others_seeing"),
    "motion": DEFAULT_FEATURES,
    "site": (*DEFAULT_FEATURES, *SITE_FEATURES),
    "last-known": (*DEFAULT_FEATURES, "age", "seen_now", "expected_distance", "expected_sin", "expected_cos", "spread"),
    "motors": (*DEFAULT_FEATURES, *_OF_PARTS["turn_rates"]),
}
"""Sets of features by name: the paper's; those of a single frame; the default, with velocities; these with lines of
sight and sensors, for scenes with obstacles; the default with all that is known of targets that are not seen; and with
the motion of motors."""


def default_features(scenario: Scenario, features: tuple[str, ...] = DEFAULT_FEATURES) -> tuple[str, ...]:
    """Return the features that environments and agents observe by default: `features` and those of the parts in use."""
    more = (name for given, names in _OF_PARTS.items() if getattr(scenario, given) for name in names)
    return tuple(dict.fromkeys((*features, *more)))


OBSERVERS: dict[str, Callable[[Scenario], Any]] = {}
"""Observers of :func:`hitmac.envs.register_observer`, by the name that stands in place of the features."""


def registered(features: Any, **others: Callable[[Scenario], Any]) -> Any:
    """Return the observer that a name, or a sequence of only this name, stands for; features as they are."""
    return next((made for name, made in (OBSERVERS | others).items() if features in (name, (name,), [name])), features)


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
        discs: also observe the discs whose edge is within the longest range of a sensor; see `space`.

    Attributes:
        space: ``Dict(pairs=Box (n, m, d) float32, mask=MultiBinary (n, m))``; the mask is 0 for a pair that is not
            valid. With `nearest`, ``pairs`` (n, k', d), ``mask`` (n, k') and ``targets=Box (n, k') int32``, the index
            of the target in each slot, -1 where the mask is 0; with `neighbours` also ``neighbours=Box (n, l') int32``,
            ascending, -1 for none. With `discs` also ``discs=Box (k, 3) float32``, x, y and radius of every disc, 0 for
            one that no sensor observes.

    Raises ``ValueError`` for an unknown feature, one given twice, for options out of their range, and for a scenario
    without identities.
    """

    def __init__(
        self,
        scenario: Scenario,
        features: Sequence[str] = DEFAULT_FEATURES,
        *,
        nearest: int | None = None,
        radius: float | None = None,
        neighbours: int | None = None,
        discs: bool | None = None,
    ) -> None:
        self.features = check_features(features)
        if not scenario.identities:
            names = ", ".join(self.features)
            raise ValueError(
                f"identities is false; it must be true for the features {names}; without features, detections are "
                "observed"
            )
        self.nearest, self.radius, self.neighbours = check_nearness(nearest, radius, neighbours)
        chosen = [FEATURES[name] for name in self.features]
        n, m, d = self._shape = (scenario.num_sensors, scenario.num_targets, len(chosen))
        self._codes = np.array([list(FEATURES).index(name) for name in self.features], np.int64)
        self._of_sensor = np.array([feature.of_sensor for feature in chosen])
        scales = _scales(
            **{name: scale(scenario) for name, scale in SCALES.items()},
            position_noise=scenario.position_errors[0],
            missed_detections=scenario.miss_rates[0],
            noisy_velocity=scenario.position_errors[0] > 0 and any(feature.moving for feature in chosen),
            line_of_sight=any(feature.line_of_sight for feature in chosen),
            all_there=not scenario.varies and scenario.knowledge == "full",
        )
        self._scales = np.array([tuple(scales), tuple(scales._replace(all_there=False))], formulas.SCALES)[:, None]
        self._slots = slots = min(self.nearest or m, m)
        self._listed = min(self.neighbours or 0, n)
        bounds = np.array([feature.bounds(scenario) for feature in chosen])
        if (beyond := np.abs(bounds).max(-1) > np.finfo(np.float32).max).any():
            raise ValueError(
                f"the feature {self.features[beyond.argmax()]} reaches {np.abs(bounds).max():g}, beyond float32"
            )
        low, high = bounds.astype(np.float32).T
        self.space = spaces.Dict(
            pairs=spaces.Box(
                np.broadcast_to(low, (n, slots, d)), np.broadcast_to(high, (n, slots, d)), dtype=np.float32
            ),
            mask=spaces.MultiBinary((n, slots)),
        )
        if self.nearest:
            self.space["targets"] = spaces.Box(-1, m - 1, (n, slots), np.int32)
            self._cells = make_cells(scenario, max(n, m))
            self._discs = None if scales.line_of_sight else make_places(self._cells, 0, 0)
            self._walls = sort_walls(self._cells, scenario.all_walls if scales.line_of_sight else np.empty((0, 4)))
        if self.neighbours:
            self.space["neighbours"] = spaces.Box(-1, n - 1, (n, self._listed), np.int32)
        self.discs, self._longest = discs, scenario.distance_scale * longest_range(scenario)
        if discs:
            high = np.array([*scenario.extent, max(scenario.extent)], np.float32)
            high = np.tile(high, (len(scenario.discs) + scenario.random_discs, 1))
            self.space["discs"] = spaces.Box(-high, high, dtype=np.float32)

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return new arrays, those of :attr:`space` with the scenes along a first axis."""
        scenes, (n, m, d) = simulator.num_envs, self._shape
        check_sizes(simulator, n, m)
        scales = self._scales[int(simulator.absences)]
        pairs = np.empty((scenes, n, self._slots, d), np.float32)
        mask = np.empty((scenes, n, self._slots), np.int8)
        if not self.nearest:
            mask.fill(1)
            simulator.run(observe, scales, self._codes, self._of_sensor, pairs, mask, rows=simulator.observed)
            return {"pairs": pairs, "mask": mask, **self._observed_discs(simulator)}
        grid, full = simulator.rows.grid, simulator.known is None
        ordered = m if full and self._slots < m else 0
        counted = m if full and "others_seeing" in self.features else 0
        listed = n if self._listed else 0
        index = Index(
            cells=self._cells,
            targets=make_places(self._cells, scenes, ordered),
            sensors=make_places(self._cells, scenes, listed),
            discs=self._discs or make_places(self._cells, scenes, len(simulator.rows.disc)),
            wall_start=self._walls[0],
            wall=self._walls[1],
            seeing=np.empty((scenes, counted), np.int32),
            seen=np.empty((scenes, n, 0), np.int32) if grid is None else grid.seen,
            num_seen=np.ones((scenes, n), np.int32) if grid is None else grid.num_seen,
            reach=np.empty((scenes, listed)),
            longest=np.empty(scenes),
            limit=math.inf if self.radius is None else float(self.radius) ** 2,
        )
        targets = np.empty((scenes, n, self._slots), np.int32)
        shown = NearestObservation(pairs, mask, targets, np.empty((scenes, n, self._listed), np.int32))
        state = simulator.observed
        missed = simulator.scenario.missed_detections
        simulator.run(index_scenes, missed, index, rows=state._replace(**NO_PARTS))
        chosen = self._codes, self._of_sensor
        simulator.sensor_threads.run(observe_near, tuple(state), scales, *chosen, index, shown)
        lists = {name: array for name, array in shown._asdict().items() if name in self.space.spaces}
        return lists | self._observed_discs(simulator)

    def _observed_discs(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return the part ``discs`` (B, k, 3); nothing without that option."""
        if not self.discs:
            return {}
        disc, places = simulator.state.disc, simulator.state.sensor_position
        away = np.linalg.norm(disc[:, None, :, :2] - places[:, :, None], axis=-1)  # (B, n, k)
        near = (away < self._longest + disc[:, None, :, 2]).any(1)
        return {"discs": np.where(near[..., None], disc, 0.0).astype(np.float32)}


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


def feature_table() -> str:
    """Return a Markdown table of the features: name, range, meaning."""
    rows = ["| feature | range | meaning |", "|---|---|---|"]
    for name, one in FEATURES.items():
        interval = f"{one.low:g} up" if one.high == math.inf else f"{one.low:g} to {one.high:g}"
        rows.append(f"| `{name}` | {interval} | {one.meaning} |")
    return "\n".join(rows)
