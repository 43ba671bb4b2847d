"""Policy on beliefs, run on what sensors really see."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hitmac.agents.policy import Policy
from hitmac.agents.tracking.belief_observer import BeliefFeatures
from hitmac.agents.tracking.beliefs import Beliefs, BeliefState
from hitmac.envs.scenario import Scenario


class BeliefPolicy:
    """Policy that observes beliefs, made one that observes the scene: beliefs are its memory.

    With the knowledge ``"neighbours"`` or ``"own"`` every sensor acts on its own beliefs, and on those alone.

    Args:
        policy: policy on the features of :class:`~hitmac.agents.tracking.belief_observer.BeliefFeatures`, of turns.
        scenario: the scenario to play.
    """

    features: ClassVar[tuple[str, ...]] = Beliefs.features

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        self.policy, self._features = policy, BeliefFeatures(scenario)

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, BeliefState]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies."""
        beliefs = self._features.beliefs
        scene, new = beliefs.take_in(observation["pairs"], observation["mask"] != 0, state, episode_start)
        actions, _ = self.policy.predict(self._features.describe(scene), deterministic=deterministic)
        n = self._features.scenario.num_sensors
        own = beliefs.of_own(actions.reshape(len(actions), -1, n).swapaxes(1, 2))  # (B, n, turns and zooms)
        return own.swapaxes(1, 2).reshape(len(own), -1), new
