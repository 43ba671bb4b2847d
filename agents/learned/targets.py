"""Learned targets of a game of two teams, as a player."""

from typing import Any

import numpy as np

from hitmac.agents.policy import Policy
from hitmac.envs.entities import EntityObserver
from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks.base import flatten_sensors


class TargetPlayer:
    """Policy of one target as a player: every target of a game takes its best move."""

    team = "targets"

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        self.policy = policy
        self._observer = EntityObserver(scenario, "targets")

    def act(self, duel: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the displacements (B, m, 2) of the targets of a :class:`hitmac.envs.duel.Duel`."""
        scenes = np.arange(duel.num_envs) if chosen is None else np.flatnonzero(chosen)
        shown = {name: array[scenes] for name, array in self._observer.observe(duel).items()}
        moves = np.zeros(duel.state.target_position.shape[:2], np.int64)
        moves[scenes] = self.policy.predict(flatten_sensors(shown), deterministic=True)[0].reshape(len(scenes), -1)
        return MOVES[moves] * duel.state.speed[..., None] * duel.scenario.time_step
