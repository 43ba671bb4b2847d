"""Observations: named features of every pair of a sensor and a target, as one array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from hitmac.envs.allocation import check_memory
from hitmac.envs.deployment import check_nearness
from hitmac.envs.kernels import assignment
from hitmac.envs.kernels.features import FEATURES, Scales, most_speed
from hitmac.envs.kernels.nearest import Index, Shown, index_scenes, make_cells, observe_near
from hitmac.envs.kernels.observe import SCALES, observe
from hitmac.envs.kernels.physics import STAY
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.validation import did_you_mean, in_short, is_among


class Nearest:
    """Part of :class:`~hitmac.envs.observation.Observer` that observes the nearest targets.

    Args:
        scenario: the scenario of the simulators to observe.
        codes: (d,) index of every feature in the table.
        of_sensor: (d,) bool, the feature is the sensor's alone.
        counted: the number of sensors that see each target is observed.
        nearest, radius, neighbours: those of the observer, checked.
    """

    def __init__(
        self,
        scenario: Scenario,
        codes: np.ndarray,
        of_sensor: np.ndarray,
        *,
        counted: bool,
        nearest: int,
        radius: float | None,
        neighbours: int | None,
    ) -> None:
        n, m = scenario.num_sensors, scenario.num_targets
        self._codes, self._of_sensor = codes, of_sensor
        self._shape = n, min(nearest, m), len(codes)
        self._listed = 0 if neighbours is None else min(neighbours, n)
        self._limit = math.inf if radius is None else radius * radius
        full = scenario.knowledge == "full"
        self._sorted = m if full and nearest < m else 0
        self._counted = m if full and counted else 0
        self._cells = make_cells(scenario, max(n, m))

    def observe(self, simulator: Simulator, scales: np.ndarray) -> dict[str, np.ndarray]:
        """Return new arrays ``pairs``, ``mask``, ``targets`` and, if they are asked for, ``neighbours``."""
        scenes, grid = simulator.num_envs, simulator.rows.grid
        n, slots, d = self._shape
        shown = Shown(
            pairs=np.empty((scenes, n, slots, d), np.float32),
            mask=np.empty((scenes, n, slots), np.int8),
            targets=np.empty((scenes, n, slots), np.int32),
            neighbours=np.empty((scenes, n, self._listed), np.int32),
        )
        listed = n if self._listed else 0
        starts = scenes, self._cells.columns * self._cells.rows + 2
        index = Index(
            cells=self._cells,
            start=np.empty(starts, np.int32),
            target=np.empty((scenes, self._sorted), np.int32),
            target_x=np.empty((scenes, self._sorted)),
            target_y=np.empty((scenes, self._sorted)),
            seeing=np.empty((scenes, self._counted), np.int32),
            seen=np.empty((scenes, n, 0), np.int32) if grid is None else grid.seen,
            num_seen=np.ones((scenes, n), np.int32) if grid is None else grid.num_seen,
            sensor_start=np.empty(starts, np.int32),
            sensor=np.empty((scenes, listed), np.int32),
            sensor_x=np.empty((scenes, listed)),
            sensor_y=np.empty((scenes, listed)),
            reach=np.empty((scenes, listed)),
            longest=np.empty(scenes),
        )
        state = simulator.observed
        simulator.threads.run(index_scenes, state._replace(knowledge=None), simulator.scenario.missed_detections, index)
        simulator.sensor_threads.run(
            observe_near, state, scales, self._codes, self._of_sensor, index, self._limit, shown
        )
        observed = shown._asdict()
        if not self._listed:
            del observed["neighbours"]
        return observed


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


PADDINGS = ("attended", "masked", "unfiltered")
"""Layouts of the assigned targets in the m rows of a sensor; see :func:`mask_unassigned`."""


def mask_unassigned(
    shown: dict[str, np.ndarray], assigned: np.ndarray, padding: str, row_id: int = -1
) -> dict[str, np.ndarray]:
    """Return the observation of an executor: the assigned targets of every sensor.

    ``"attended"`` and ``"masked"`` pack each sensor's rows of assigned targets to the front, followed by zero rows.
    With ``"attended"`` the mask is 1 throughout, as in the released program; with ``"masked"`` it is 1 for the packed
    rows only. ``"unfiltered"``, the paper's ablation, keeps all rows in place and appends a feature that is 1 for
    assigned targets.

    Args:
        shown: ``pairs`` (B, n, m, d) and ``mask`` (B, n, m), as observed; of the k nearest targets also their indices
            ``targets`` (B, n, k), which move with the rows.
        assigned: (B, n, m) bool.
        padding: one of :data:`PADDINGS`.
        row_id: index of the feature to replace by the index of the packed row / m; -1: none.
    """
    pairs, there = shown["pairs"], shown["mask"]
    if "targets" in shown:
        assigned = np.take_along_axis(assigned, np.maximum(shown["targets"], 0), -1)
    if there.shape != pairs.shape[:-1] or assigned.shape != there.shape:
        raise ValueError(
            f"pairs, mask and assignment have shapes {pairs.shape}, {there.shape} and {assigned.shape}; they must be "
            f"(B, n, m, d), (B, n, m) and (B, n, m)"
        )
    assigned = assigned & (there != 0)
    if padding == "unfiltered":
        return shown | {"pairs": np.concatenate((pairs, assigned[..., None]), -1, dtype=np.float32)}
    packed = np.zeros_like(pairs)
    front = np.zeros(assigned.shape, np.int8)
    assignment.pack(pairs, assigned, row_id, packed, front)
    goals = shown | {"pairs": packed, "mask": front}
    if "targets" in shown:
        order = np.argsort(~assigned, -1, kind="stable")
        goals["targets"] = np.where(front, np.take_along_axis(shown["targets"], order, -1), -1).astype(np.int32)
    if padding == "attended":
        front.fill(1)
    return goals


def flatten_sensors(shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reshape observations of scenes (B, n, ...) to rows of single sensors (B * n, ...)."""
    return {key: value.reshape(-1, *value.shape[2:]) for key, value in shown.items()}


def unflatten_sensors(actions: np.ndarray, num_sensors: int, decisions: int) -> np.ndarray:
    """Reshape actions of single sensors (B * n,), or (B * n, k) with k decisions each, to the actions of their scenes.

    Args:
        actions: turns, and optionally further decisions, of the rows of :func:`flatten_sensors`.
        num_sensors: n.
        decisions: d, decisions of a sensor in the scenes; see :attr:`hitmac.envs.Scenario.decisions`. Those that are
            not given are 0: a lens keeps its field of view, a sensor stays in its place. Further ones are dropped.

    Returns:
        (B, d n), all turns and then one further decision of all sensors after the other.
    """
    parts = actions.reshape(-1, num_sensors, 1 if actions.ndim == 1 else actions.shape[-1])[..., :decisions]
    parts = np.pad(parts, ((0, 0), (0, 0), (0, decisions - parts.shape[-1])))  # (B, n, d)
    return parts.swapaxes(1, 2).reshape(len(parts), -1)


def executed(chosen: np.ndarray, assigned: np.ndarray, mask: np.ndarray, decisions: int) -> np.ndarray:
    """Return the actions of all sensors: those of the executor for sensors with assigned targets, stay for the others.

    Args:
        chosen: turns (B * n,), or k decisions (B * n, k), of the rows of :func:`flatten_sensors`.
        assigned: (B, n, m) bool.
        mask: (B, n, m), 1 for valid pairs.
        decisions: d, see :func:`unflatten_sensors`.

    Returns:
        Actions (B, d n) of 0, 1, 2. A sensor without any assigned target decides on 0 throughout: it stays.

    Raises:
        ValueError: `chosen` has another size or type, or holds a number other than 0, 1 and 2.
    """
    scenes, sensors = assigned.shape[:2]
    rows, chosen = scenes * sensors, np.asarray(chosen)
    fits = chosen.size in (rows, 2 * rows, 3 * rows) and chosen.dtype.kind in "iu"
    if not fits or chosen.min() < 0 or chosen.max() > 2:
        raise ValueError(
            f"the executor gave {chosen!r}; it must give {rows} numbers 0, 1 or 2, or the same number of pairs or "
            "triples"
        )
    actions = unflatten_sensors(chosen.reshape(rows, -1), sensors, decisions)
    nothing = ~(assigned & (mask != 0)).any(-1)
    return np.where(np.tile(nothing, decisions), STAY, actions)


def goals_space(space: spaces.Dict, padding: str) -> spaces.Dict:
    """Return the space of the observations that :func:`mask_unassigned` makes from those of `space`."""
    if padding != "unfiltered":
        return space
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    low, high = (
        np.pad(edge, ((0, 0), (0, 0), (0, 1)), constant_values=c) for edge, c in ((pairs.low, 0), (pairs.high, 1))
    )
    return spaces.Dict({**space.spaces, "pairs": spaces.Box(low, high, dtype=np.float32)})


def place_of_row_id(features: Sequence[str]) -> int:
    """Return the index of the feature `target_id`, for :func:`mask_unassigned`; -1 if it is missing."""
    return list(features).index("target_id") if "target_id" in features else -1


def check_padding(padding: str) -> str:
    """Return `padding`; raise ValueError that lists :data:`PADDINGS` if it is none of them."""
    if not is_among(padding, PADDINGS):
        raise ValueError(
            f"padding is {padding!r}; it must be one of {', '.join(PADDINGS)}{did_you_mean(padding, PADDINGS)}"
        )
    return padding
