"""Trivial agents: random, still, nearest."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from agents.baselines.rule import RandomPolicy, RulePolicy
from envs.kernels.physics import LEFT, RIGHT, STAY


class RandomAgent(RandomPolicy):
    """Every sensor takes one of the three actions at random at every sub-step, and so does every lens that zooms.

    Without a scenario it is an executor, for rows of single sensors.
    """

    def decisions(self, mask: np.ndarray) -> int:
        """Return one for every sensor, two where lenses zoom."""
        if self._scenario is None:
            return 1
        return mask.shape[1] * (2 if self._scenario.zoom else 1)


class StillAgent(RulePolicy):
    """No sensor ever turns; without a scenario it is an executor, for rows of single sensors."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Stay."""
        return np.full(mask.shape[:-1], STAY)


class NearestAgent(RulePolicy):
    """Every sensor turns towards the target nearest to it, and rests while it is within half a turn's angle."""

    features: ClassVar[tuple[str, ...]] = ("bearing", "distance")

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Left or right, towards the nearest target; stay where there is none."""
        bearing = pairs[..., 0] * 180.0  # (B, n, m) degrees
        distance = np.where(mask, pairs[..., 1], np.inf)
        nearest = distance.argmin(-1)[..., None]
        towards = np.take_along_axis(bearing, nearest, -1)[..., 0]  # (B, n)
        there = np.isfinite(np.take_along_axis(distance, nearest, -1)[..., 0])
        action = np.where(towards > 0, LEFT, RIGHT)
        return np.where(there & (np.abs(towards) > self.scenario.of_each_sensor("turn") / 2), action, STAY)
