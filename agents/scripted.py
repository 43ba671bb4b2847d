"""Agents without learning: what every result has to be compared with."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envs.physics import LEFT, RIGHT, STAY
from envs.random import stream_integers, stream_keys
from envs.scenario import Scenario, load_scenario


class BatchRandom(NamedTuple):
    """Random whole numbers for a batch, from a stream for each row; also the state of a policy that needs no more.

    The k-th number of a row is a function of the row's seed and k (see :mod:`envs.random`). It depends neither on the
    other rows of the batch nor on what was drawn elsewhere.
    """

    keys: np.ndarray  # (B,) uint64, the streams
    drawn: np.ndarray  # (B,) uint64, how many numbers each has given

    @classmethod
    def start(cls, seeds: Sequence[int] | np.ndarray, seed: int, purpose: str) -> BatchRandom:
        """The streams of rows with these seeds (B,), for an agent's seed; those for another purpose are others."""
        salt = np.bitwise_xor.reduce(stream_keys(np.array([seed, zlib.crc32(purpose.encode())])))
        keys = stream_keys(stream_keys(np.asarray(seeds)) ^ salt)
        return cls(keys, np.zeros_like(keys))

    def integers(self, high: int, columns: int) -> tuple[np.ndarray, BatchRandom]:
        """The next numbers (B, columns) int64 of every row, uniform over 0 to high - 1, and what comes after them."""
        drawn = stream_integers(self.keys, self.drawn, columns, high)
        return drawn, BatchRandom(self.keys, self.drawn + np.uint64(columns))


class Randomly:
    """A policy that decides by random numbers: those of the seed of a scene, whatever batch the scene is in.

    Its state, :class:`BatchRandom`, is to be handed on. Without one, row i begins as the scene with the seed i does.
    """

    high: ClassVar[int] = 3
    """Decisions are uniform over 0 to this - 1."""
    seed: int

    def start(self, seeds: Sequence[int] | np.ndarray) -> BatchRandom:
        """The state in which the scenes with these seeds (B,) begin."""
        return BatchRandom.start(seeds, self.seed, type(self).__name__)

    def decisions(self, mask: np.ndarray) -> int:
        """How many a row takes, where the observation has this mask."""
        raise NotImplementedError

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, BatchRandom]:
        """See :class:`agents.policy.Policy`."""
        mask = observation["mask"]
        random = self.start(np.arange(len(mask))) if state is None else BatchRandom(*state)
        return random.integers(self.high, self.decisions(mask))


class ScriptedAgent:
    """An agent that decides by rule.

    Attributes:
        features: the observation features that it needs, names out of :data:`envs.FEATURES`.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing", "distance")

    def __init__(self, scenario: Scenario | str | Path, seed: int = 0) -> None:
        self.scenario = load_scenario(scenario)
        self.seed = seed

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The turns (B, n) for the features (B, n, m, d) and the mask (B, n, m) of a batch."""
        raise NotImplementedError

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """See :class:`agents.policy.Policy`; it keeps no state, and lenses that zoom as they are."""
        return self.with_zoom(self.act(observation["pairs"], observation["mask"])), None

    def with_zoom(self, turns: np.ndarray) -> np.ndarray:
        """The actions (B, n), or (B, 2 n) where lenses zoom, with these turns (B, n)."""
        if self.scenario.zoom and turns.shape[1] == self.scenario.num_sensors:
            return np.concatenate((turns, np.zeros_like(turns)), -1)
        return turns


def due(age: np.ndarray, every: int, episode_start: np.ndarray | None) -> np.ndarray:
    """The scenes (B,) whose plan, `age` sub-steps old, is made anew: after `every`, and when an episode begins."""
    return age >= every if episode_start is None else (age >= every) | episode_start


class RandomAgent(Randomly, ScriptedAgent):
    """Every sensor takes one of the three actions at random at every sub-step, and so does every lens that zooms."""

    def decisions(self, mask: np.ndarray) -> int:
        """One for every sensor, two where lenses zoom."""
        return mask.shape[1] * (2 if self.scenario.zoom else 1)


class StillAgent(ScriptedAgent):
    """No sensor ever turns."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Stay."""
        return np.zeros(pairs.shape[:2], np.int64)


class NearestAgent(ScriptedAgent):
    """Every sensor turns towards the target nearest to it, and rests while it is within half a turn's angle."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Left or right, towards the nearest target; stay where there is none."""
        bearing = pairs[..., 0] * 180.0  # (B, n, m) degrees
        distance = np.where(mask.astype(bool), pairs[..., 1], np.inf)
        nearest = distance.argmin(-1)[..., None]
        towards = np.take_along_axis(bearing, nearest, -1)[..., 0]  # (B, n)
        there = np.isfinite(np.take_along_axis(distance, nearest, -1)[..., 0])
        action = np.where(towards > 0, LEFT, RIGHT)
        return np.where(there & (np.abs(towards) > self.scenario.of_each_sensor("turn") / 2), action, STAY)


class GreedyAgent(ScriptedAgent):
    """Every sensor turns towards the heading that sees most of the targets which no sensor before it will see.

    Sensor by sensor, in their order; headings are whole numbers of turns away, and of equally good ones the nearest is
    taken. Targets are taken to stand still.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing", "distance", "field_of_view", "sensing_range", "turn")

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The turn towards each sensor's heading."""
        bearing, distance, view, reach, turn = np.moveaxis(pairs.astype(np.float64), -1, 0)
        in_range = (distance <= reach) & mask.astype(bool)  # (B, n, m)
        actions = np.zeros(pairs.shape[:2], np.int64)
        open_targets = np.ones((len(pairs), pairs.shape[2]), bool)
        for i in range(pairs.shape[1]):
            # Of a masked pair all features are 0; those of the sensor stand in any of the others.
            half_view, step = 180 * view[:, i].max(-1), 180 * turn[:, i].max(-1)
            most = int(np.ceil(180 / step.min(initial=180, where=step > 0)))
            steps = np.array(sorted(range(-most, most + 1), key=abs))  # nearest first
            off = 180 * bearing[:, i, None] - (steps * step[:, None])[:, :, None]  # (B, steps, m)
            sees = (np.abs((off + 180) % 360 - 180) < half_view[:, None, None]) & in_range[:, i, None]
            best = (sees & open_targets[:, None]).sum(-1).argmax(-1)  # (B,), the first of equals
            actions[:, i] = np.where(steps[best] > 0, LEFT, np.where(steps[best] < 0, RIGHT, STAY))
            open_targets &= ~sees[np.arange(len(pairs)), best]
        return actions
