"""Agents without learning: what every result has to be compared with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from envs.physics import LEFT, RIGHT, STAY
from envs.scenario import Scenario


class ScriptedAgent:
    """An agent that decides by rule.

    Attributes:
        features: the observation features that it needs, names out of :data:`envs.FEATURES`.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing", "distance")

    def __init__(self, scenario: Scenario, seed: int = 0) -> None:
        self.scenario = scenario
        self.generator = np.random.default_rng(seed)

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The turns (B, n) for the features (B, n, m, d) and the mask (B, n, m) of a batch."""
        raise NotImplementedError

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """See :class:`agents.policy.Policy`; it keeps no state, and lenses that zoom as they are."""
        turns = self.act(observation["pairs"], observation["mask"])
        if self.scenario.zoom and turns.shape[1] == self.scenario.num_sensors:
            return np.concatenate((turns, np.zeros_like(turns)), -1), None
        return turns, None


class RandomAgent(ScriptedAgent):
    """Every sensor takes one of the three actions at random at every sub-step, and so does every lens that zooms."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Uniform over stay, left and right."""
        return self.generator.integers(0, 3, (len(pairs), pairs.shape[1] * (2 if self.scenario.zoom else 1)))


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


SCRIPTED: dict[str, type[ScriptedAgent]] = {"random": RandomAgent, "still": StillAgent, "nearest": NearestAgent}
"""The scripted agents, by name."""


def scripted_agent(name: str, scenario: Scenario, **options: Any) -> ScriptedAgent:
    """The scripted agent of that name; an unknown one is a ValueError that lists the known."""
    if name not in SCRIPTED:
        raise ValueError(f"unknown agent {name!r}: known are {', '.join(SCRIPTED)}")
    return SCRIPTED[name](scenario, **options)
