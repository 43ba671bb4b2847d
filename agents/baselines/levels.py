"""Levels of the hierarchy that decide by rule: coordinators, and executors for single sensors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from agents.baselines.rule import RandomPolicy, RulePolicy
from agents.baselines.simple import RandomAgent, StillAgent
from envs.kernels.physics import LEFT, RIGHT, STAY


class AssignAll(RulePolicy):
    """Every target to every sensor."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(B, n * m), all 1."""
        return np.ones((len(mask), mask[0].size), np.int8)


class AssignInRange(RulePolicy):
    """To every sensor the targets within its range."""

    features: ClassVar[tuple[str, ...]] = ("in_range",)

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(B, n * m), 1 where the target is in range."""
        return ((pairs[..., 0] != 0) & mask).reshape(len(mask), -1).astype(np.int8)


class AssignRandomly(RandomPolicy):
    """Every target to every sensor or not, by the toss of a coin."""

    high: ClassVar[int] = 2

    def decisions(self, mask: np.ndarray) -> int:
        """One for every pair, (B, n * m) in all."""
        return mask[0].size


class ScriptedExecutor(RulePolicy):
    """The scripted executor of ``dsn/Coordinator-v0``: towards the mean position of the assigned targets.

    ``turn * clip(floor(bearing / turn), -1, 1)``, where the bearing is that of the mean position.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing_sin", "bearing_cos", "distance", "turn")

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The turns (R,) of rows (R, m, d) with the mask (R, m); stay where nothing is assigned."""
        sin, cos, distance, turn = np.moveaxis(pairs.astype(np.float64), -1, 0)
        aside = (sin * distance * mask).sum(-1)
        ahead = (cos * distance * mask).sum(-1)
        step = np.where(mask, turn, 0.0).max(-1) * 180.0  # of masked rows all features are 0
        bearing = np.degrees(np.arctan2(aside, ahead))
        turns = np.floor(bearing / np.where(step > 0, step, np.inf))
        return np.where(mask.any(-1), np.where(turns > 0, LEFT, np.where(turns < 0, RIGHT, STAY)), STAY)


COORDINATORS: dict[str, type[RulePolicy]] = {
    "assign-all": AssignAll,
    "assign-in-range": AssignInRange,
    "assign-randomly": AssignRandomly,
}
"""The coordinators without learning, by name."""


EXECUTORS: dict[str, type[RulePolicy]] = {"scripted": ScriptedExecutor, "random": RandomAgent, "still": StillAgent}
"""The executors without learning, by name."""
