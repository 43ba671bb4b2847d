"""Rule-based agents without planning (random, still, nearest, greedy) and their base class."""

import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.policy import (
    Observation,
    Size,
    Starts,
    State,
    check_parts,
    check_size,
    checked_lists,
    checked_observation,
    farthest_reach,
    is_large,
    padded_actions,
)
from hitmac.envs.base.streams import stream_integers, stream_keys
from hitmac.envs.features import wrapped
from hitmac.envs.parts.sensors import LEFT, RIGHT, STAY
from hitmac.envs.parts.tilt import DOWN, UP
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import checked_seed

_MOST_TURNS = 10_000  # to the farthest heading considered


def towards(turns: np.ndarray) -> np.ndarray:
    """Return left for positive numbers, right for negative numbers, and stay for 0."""
    return np.where(turns > 0, LEFT, np.where(turns < 0, RIGHT, STAY))


def tilts_towards(pairs: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the tilts (...,) towards the target, of the `chosen` (..., m), least beyond an edge of the view.

    The last one of the features `pairs` (..., m, d) is `beyond_edges`.
    """
    beyond = pairs[..., -1]
    least = np.where(chosen, np.abs(beyond), np.inf).argmin(-1)[..., None]
    to_least = np.take_along_axis(np.where(chosen, beyond, 0.0), least, -1)[..., 0]
    return np.where(to_least < 0, DOWN, np.where(to_least > 0, UP, STAY))


def nearest_headings(turn: float) -> np.ndarray:
    """Return all headings, in turns of `turn` degrees from the present one, nearest first: 0, -1, 1, -2, ..."""
    most = min(math.ceil(180 / turn), _MOST_TURNS) if turn > 0 else 0
    return np.array(sorted(range(-most, most + 1), key=abs))


class BatchRandom(NamedTuple):
    """Random integers for a batch, with a stream for each row; the state of a :class:`RandomAgent`.

    The k-th number of a row depends only on the row's seed and k (see :mod:`hitmac.envs.base.streams`).
    """

    keys: np.ndarray  # (B,) uint64, the streams
    drawn: np.ndarray  # (B,) uint64, numbers drawn so far

    @classmethod
    def start(cls, seeds: Sequence[int] | np.ndarray, seed: int, purpose: str) -> "BatchRandom":
        """Return the streams of rows with the given seeds (B,), an agent's seed and a purpose."""
        salt = np.bitwise_xor.reduce(stream_keys(np.array([seed, zlib.crc32(purpose.encode())])))
        keys = stream_keys(stream_keys(np.asarray(seeds)) ^ salt)
        return cls(keys, np.zeros_like(keys))

    def integers(self, high: int, columns: int) -> "tuple[np.ndarray, BatchRandom]":
        """Return the next numbers (B, columns) int64, uniform over 0 to high - 1, and the new state."""
        drawn = stream_integers(self.keys, self.drawn, columns, high)
        return drawn, BatchRandom(self.keys, self.drawn + np.uint64(columns))


class RulePolicy:
    """Base class of rule-based policies: whole agents, coordinators and executors.

    Args:
        scenario: the scenario to play; None for a level that does not depend on it.
        seed: seed of the random numbers, if any.

    Attributes:
        features: the observation features of the policy, names out of :data:`hitmac.envs.FEATURES`.
        tilts: True if the policy also observes `beyond_edges` where sensors tilt, as its last feature, and tilts them.
        by_value: True if the policy also observes `value`, after its features, in a scenario with values.
        needs_scenario: True if a level of the hierarchy requires the scenario.
        per_sensor: True if the policy without a scenario decides for rows of single sensors.
        nearest: number of nearest targets that suffices in a large scene; None: all are needed.
        decides: decisions of the policy for each sensor, out of :attr:`hitmac.envs.Scenario.decisions`.
    """

    features: tuple[str, ...] = ("distance",)
    tilts: ClassVar[bool] = False
    by_value: ClassVar[bool] = False
    needs_scenario: ClassVar[bool] = False
    per_sensor: ClassVar[bool] = False
    nearest: ClassVar[int | None] = None
    decides: tuple[str, ...] = ("turn",)

    def __init__(self, scenario: Scenario | str | Path | None = None, seed: int = 0) -> None:
        self.scenario: Scenario = None if scenario is None else load_scenario(scenario)  # type: ignore[assignment]
        self.seed = checked_seed(seed)
        if self.by_value and self.scenario.has_values:
            self.features = (*self.features, "value")
        if self.tilts and self.scenario is not None and self.scenario.tilt_limits:
            self.features = (*self.features, "beyond_edges")
            self.decides = ("turn", "tilt")

    def near(self) -> dict[str, Any] | None:
        """Return the observation options for the nearest targets that suffice in a large scene; None: all are needed.

        Unless None, :meth:`act` also accepts `targets` (B, n, k), the targets listed in pairs (B, n, k, d) and mask
        (B, n, k); -1 marks an empty place.
        """
        return None if self.nearest is None else {"nearest": self.nearest}

    def shown(self, nearness: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the observation options for the nearest targets: those given, or in a large scene :meth:`near`.

        Raises ``ValueError`` if options are given and the policy needs all targets.
        """
        own = self.near()
        if nearness and own is None:
            raise ValueError(f"{', '.join(nearness)} is given, but {type(self).__name__} requires all targets")
        return nearness or (own if own and is_large(self.scenario) else {})

    def lists_of(self, observation: Observation) -> dict[str, np.ndarray]:
        """Return the argument `targets` of :meth:`act` if an observation lists targets.

        Raises ``ValueError`` if the policy needs all targets, or for an object that is not an observation.
        """
        check_parts(observation)
        if "targets" in observation and self.near() is None:
            raise ValueError(
                f"the observation lists the nearest targets of each sensor; {type(self).__name__} requires all "
                "targets, without the option nearest"
            )
        if "targets" not in observation or observation["targets"].shape[-1] == self.scenario.num_targets:
            return {}  # lists of all targets are in order
        return {"targets": checked_lists(observation["targets"], observation["mask"], self.scenario.num_targets)}

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Decide for features (B, n, m, d) and mask (B, n, m) bool of a batch, or (R, m, d) and (R, m) of rows.

        A whole agent returns turns (B, n), or k decisions (B, k n); a coordinator returns assignments (B, n * m);
        an executor returns turns (R,).
        """
        raise NotImplementedError

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, State]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies; decisions other than :attr:`decides` are 0.

        Raises ``ValueError`` unless the observation has the :attr:`size` and the features of the policy, and all
        numbers are finite.
        """
        actions, new = self.decide(observation, state, episode_start)
        if self.scenario is None or actions.shape[1] != len(self.decides) * self.scenario.num_sensors:
            return actions, new  # such as assignments
        return padded_actions(actions, self.decides, self.scenario.decisions), new

    def decide(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, State]:
        """Return the actions :attr:`decides` and the state (None without a memory)."""
        lists = self.lists_of(observation)
        return self.act(*self.checked(observation["pairs"], observation["mask"]), **lists), None

    def checked(self, pairs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the checked features and the mask as bool."""
        return checked_observation(pairs, mask, self.features, self.size)

    @property
    def size(self) -> Size:
        """Sizes of the observations' axes after the first: the scenario's number of sensors, any number of targets."""
        if self.scenario is None:
            return (None,) if self.per_sensor else (None, None)
        return self.scenario.num_sensors, None


class RandomAgent(RulePolicy):
    """Agent that takes every decision of every sensor at random at every sub-step.

    Without a scenario it is an executor for rows of single sensors. The state is a :class:`BatchRandom`; without one,
    row i starts like the scene with the seed i.
    """

    per_sensor: ClassVar[bool] = True
    nearest: ClassVar[int | None] = 1
    high: ClassVar[int] = 3
    """Decisions are uniform over 0 to high - 1."""

    def checked(self, pairs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an observation of any features and sizes with as many axes as :attr:`size`."""
        check_size(mask := np.asarray(mask), (None,) * len(self.size))
        return pairs, mask

    def start(self, seeds: Sequence[int] | np.ndarray) -> BatchRandom:
        """Return the initial state of scenes with the given seeds (B,)."""
        return BatchRandom.start(seeds, self.seed, type(self).__name__)

    def decisions(self, mask: np.ndarray) -> int:
        """Return the number of decisions of a row of the mask."""
        return 1 if self.scenario is None else mask.shape[1] * len(self.scenario.decisions)

    def decide(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, BatchRandom]:
        """Draw the actions."""
        self.lists_of(observation)
        _, mask = self.checked(observation["pairs"], observation["mask"])
        random = self.start(np.arange(len(mask))) if state is None else BatchRandom(*state)
        return random.integers(self.high, self.decisions(mask))


class StillAgent(RulePolicy):
    """Agent that never turns a sensor; without a scenario an executor for rows of single sensors."""

    per_sensor: ClassVar[bool] = True
    nearest: ClassVar[int | None] = 1
    checked = RandomAgent.checked

    def act(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return "stay" for every sensor."""
        return np.full(mask.shape[:-1], STAY)


class NearestAgent(RulePolicy):
    """Agent whose sensors turn and tilt towards their nearest target, unless it is within half a turn, or the edges."""

    features: tuple[str, ...] = ("bearing", "distance")
    tilts: ClassVar[bool] = True
    nearest: ClassVar[int | None] = 1

    def act(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return the turns (B, n), and tilts (B, 2 n), towards the nearest targets; sensors without any stay."""
        bearing = pairs[..., 0] * 180.0  # (B, n, m) degrees
        distance = np.where(mask, pairs[..., 1], np.inf)
        nearest = distance.argmin(-1)[..., None]
        to_nearest = np.take_along_axis(bearing, nearest, -1)[..., 0]  # (B, n)
        off = np.abs(to_nearest) > self.scenario.of_each_sensor("turn_angle") / 2
        turns = towards(np.where(mask.any(-1) & off, to_nearest, 0.0))
        if len(self.decides) == 1:
            return turns
        chosen = (np.arange(mask.shape[-1]) == nearest) & mask
        return np.concatenate((turns, tilts_towards(pairs, chosen)), -1)


class GreedyAgent(RulePolicy):
    """Agent whose sensors turn, in order, to the heading with most targets in view that no earlier sensor has chosen.

    Targets count by value, and until `seen_by` sensors have chosen them. Headings are whole numbers of turns away, at
    most 10,000; ties go to the nearest heading. The agent assumes targets that stand still and sensors without pan
    limits. Sensors that tilt count the targets in the range of their lenses, and tilt towards the one in view at that
    heading that is least beyond an edge.
    """

    features: tuple[str, ...] = ("bearing", "distance", "field_of_view", "sensing_range", "turn")
    by_value: ClassVar[bool] = True
    tilts: ClassVar[bool] = True

    def near(self) -> dict[str, Any]:
        """Return the targets in range, 16 at most."""
        return {"nearest": 16, "radius": farthest_reach(self.scenario)}

    def act(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return the turn (B, n) towards each sensor's heading, and the tilt (B, 2 n)."""
        bearing, distance, view, reach, turn, *values = np.moveaxis(pairs.astype(np.float64), -1, 0)
        if tilting := "tilt" in self.decides:
            reach = self.scenario.of_each_sensor("sensing_range")[:, None] / self.scenario.distance_scale
        in_range = (distance <= reach) & mask  # (B, n, m)
        actions, tilts = np.zeros((2, *pairs.shape[:2]), np.int64)
        targets = np.broadcast_to(np.arange(pairs.shape[2]), mask.shape) if targets is None else targets
        scenes = np.arange(len(pairs))
        wanted = np.full((len(pairs), targets.max(initial=0) + 1), self.scenario.seen_by)
        for i in range(pairs.shape[1]):
            # The features of a masked pair are 0; all others share those of the sensor.
            half_view, step = 180 * view[:, i].max(-1), 180 * turn[:, i].max(-1)
            steps = nearest_headings(step.min(initial=180, where=step > 0))
            off = 180 * bearing[:, i, None] - (steps * step[:, None])[:, :, None]  # (B, steps, m)
            sees = (np.abs(wrapped(off)) < half_view[:, None, None]) & in_range[:, i, None]
            listed = targets[:, i]  # (B, k)
            worth = (wanted[scenes[:, None], listed] > 0) * (values[0][:, i] if self.scenario.has_values else 1)
            best = (sees * worth[:, None]).sum(-1).argmax(-1)  # (B,), the first of equals
            actions[:, i] = towards(steps[best])
            if tilting:
                tilts[:, i] = tilts_towards(pairs[:, i], sees[scenes, best] & (worth > 0))
            scene, place = np.nonzero(sees[scenes, best])
            wanted[scene, listed[scene, place]] -= 1
        return np.concatenate((actions, tilts), -1) if tilting else actions
