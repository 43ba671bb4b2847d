"""Base of the agents that decide by rule, and random numbers for batches."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envs.kernels.streams import stream_integers, stream_keys
from envs.scenario import Scenario, load_scenario


class BatchRandom(NamedTuple):
    """Random whole numbers for a batch, from a stream for each row; also the state of a policy that needs no more.

    The k-th number of a row is a function of the row's seed and k (see :mod:`envs.kernels.streams`). It depends neither
    on the other rows of the batch nor on what was drawn elsewhere.
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


class RulePolicy:
    """A policy that decides by rule: a whole agent, a coordinator or an executor.

    Args:
        scenario: what it plays; None for a level that needs nothing of it.
        seed: of its random numbers, where it draws any.

    Attributes:
        features: the observation features that it needs, names out of :data:`envs.FEATURES`.
    """

    features: ClassVar[tuple[str, ...]] = ("distance",)

    def __init__(self, scenario: Scenario | str | Path | None = None, seed: int = 0) -> None:
        self._scenario = None if scenario is None else load_scenario(scenario)
        self.seed = seed

    @property
    def scenario(self) -> Scenario:
        """The scenario that it plays."""
        assert self._scenario is not None
        return self._scenario

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Decide for the features (B, n, m, d) and the mask (B, n, m) bool of a batch, or (R, m, d) and (R, m) of rows.

        A whole agent gives turns (B, n), or turns and zooms (B, 2 n); a coordinator assignments (B, n * m); an executor
        turns (R,).
        """
        raise NotImplementedError

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """See :class:`agents.policy.Policy`; it keeps no state."""
        return self.with_zoom(self.act(observation["pairs"], observation["mask"] != 0)), None

    def with_zoom(self, actions: np.ndarray) -> np.ndarray:
        """Return the actions; where lenses zoom and these are turns (B, n), all lenses stay as they are."""
        if self._scenario is not None and self._scenario.zoom and actions.shape[1] == self._scenario.num_sensors:
            return np.concatenate((actions, np.zeros_like(actions)), -1)
        return actions


class RandomPolicy(RulePolicy):
    """A policy that decides by random numbers: those of the seed of a scene, whatever batch the scene is in.

    Its state, :class:`BatchRandom`, is to be handed on. Without one, row i begins as the scene with the seed i does.
    """

    high: ClassVar[int] = 3
    """Decisions are uniform over 0 to this - 1."""

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


def needs_replanning(age: np.ndarray, every: int, episode_start: np.ndarray | None) -> np.ndarray:
    """Return which scenes (B,) must replan: those whose plan is `every` sub-steps old, or whose episode begins."""
    return age >= every if episode_start is None else (age >= every) | episode_start
