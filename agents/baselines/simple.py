"""Trivial agents: random, still, nearest."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hitmac.agents.baselines.rule import RandomPolicy, RulePolicy
from hitmac.agents.observed import check_size
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY


class RandomAgent(RandomPolicy):
    """Agent that takes every decision of every sensor (turn, zoom, move) at random at every sub-step.

    Without a scenario it is an executor, for rows of single sensors.
    """

    alone: ClassVar[bool] = True

    def near(self) -> dict[str, Any]:
        """Return the nearest target alone: the agent reads none."""
        return {"nearest": 1}

    def decisions(self, mask: np.ndarray) -> int:
        """Return d n, d decisions for every sensor; 1 without a scenario."""
        if self._scenario is None:
            return 1
        return mask.shape[1] * len(self._scenario.decisions)


class StillAgent(RulePolicy):
    """Agent that never turns a sensor; without a scenario it is an executor, for rows of single sensors."""

    alone: ClassVar[bool] = True

    def near(self) -> dict[str, Any]:
        """Return the nearest target alone: the agent reads none."""
        return {"nearest": 1}

    def act(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return stay for every sensor."""
        return np.full(mask.shape[:-1], STAY)

    def checked(self, pairs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the observation, of which the agent reads the mask's shape only."""
        check_size(mask := np.asarray(mask), (None,) * len(self.size))
        return pairs, mask


class NearestAgent(RulePolicy):
    """Agent whose sensors turn towards their nearest target, and stay while its bearing is within half a turn."""

    features: ClassVar[tuple[str, ...]] = ("bearing", "distance")

    def near(self) -> dict[str, Any]:
        """Return the nearest target alone."""
        return {"nearest": 1}

    def act(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return left or right, towards the nearest target; stay without any target."""
        bearing = pairs[..., 0] * 180.0  # (B, n, m) degrees
        distance = np.where(mask, pairs[..., 1], np.inf)
        nearest = distance.argmin(-1)[..., None]
        towards = np.take_along_axis(bearing, nearest, -1)[..., 0]  # (B, n)
        there = np.isfinite(np.take_along_axis(distance, nearest, -1)[..., 0])
        action = np.where(towards > 0, LEFT, RIGHT)
        return np.where(there & (np.abs(towards) > self.scenario.of_each_sensor("turn_angle") / 2), action, STAY)
