"""Baseline levels of the hierarchy: coordinators, and executors of single sensors, that decide by rule."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hitmac.agents.baselines.rule import RandomPolicy, RulePolicy
from hitmac.agents.baselines.simple import RandomAgent, StillAgent
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY


class AssignAll(RulePolicy):
    """Coordinator that assigns every target to every sensor."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m), all 1."""
        return np.ones((len(mask), mask[0].size), np.int8)


class AssignInRange(RulePolicy):
    """Coordinator that assigns to every sensor the targets within its range."""

    features: ClassVar[tuple[str, ...]] = ("in_range",)

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m), 1 where the target is in range."""
        return ((pairs[..., 0] != 0) & mask).reshape(len(mask), -1).astype(np.int8)


class AssignRandomly(RandomPolicy):
    """Coordinator that assigns each target to each sensor with probability 1/2."""

    high: ClassVar[int] = 2

    def decisions(self, mask: np.ndarray) -> int:
        """Return n * m, one number for every pair of a scene."""
        return mask[0].size


class ScriptedExecutor(RulePolicy):
    """Scripted executor of ``dsn/Coordinator-v0``, which turns towards the mean position of the assigned targets.

    ``turn * clip(floor(bearing / turn), -1, 1)``, where the bearing is that of the mean position.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing_sin", "bearing_cos", "distance", "turn")

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the turns (R,) of rows (R, m, d) with the mask (R, m); stay where no target is assigned."""
        sin, cos, distance, turn = np.moveaxis(pairs.astype(np.float64), -1, 0)
        aside = (sin * distance * mask).sum(-1)
        ahead = (cos * distance * mask).sum(-1)
        step = np.where(mask, turn, 0.0).max(-1) * 180.0  # the features of masked rows are 0
        bearing = np.degrees(np.arctan2(aside, ahead))
        turns = np.floor(bearing / np.where(step > 0, step, np.inf))
        return np.where(mask.any(-1), np.where(turns > 0, LEFT, np.where(turns < 0, RIGHT, STAY)), STAY)


COORDINATORS: dict[str, type[RulePolicy]] = {
    "assign-all": AssignAll,
    "assign-in-range": AssignInRange,
    "assign-randomly": AssignRandomly,
}
"""Coordinators that decide by rule, by name."""


EXECUTORS: dict[str, type[RulePolicy]] = {"scripted": ScriptedExecutor, "random": RandomAgent, "still": StillAgent}
"""Executors that decide by rule, by name."""
