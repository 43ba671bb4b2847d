"""PettingZoo environment of one duel, in which the sensors and the targets are agents."""

from typing import Any, ClassVar

import numpy as np

from hitmac.envs.duel import Duel
from hitmac.envs.entities import mate_states
from hitmac.envs.tasks.base import own_observation_space
from hitmac.envs.tasks.transport import TransportTask
from hitmac.envs.wrappers.pettingzoo_env import DirectionalSensorParallelEnv


class DuelParallelEnv(DirectionalSensorParallelEnv):
    """One duel as a ``pettingzoo.ParallelEnv`` with the agents of both teams, ``camera_0``, ..., ``target_0``, ...

    All act at once. An agent observes its own rows of the entities that its team observes, see
    :class:`~hitmac.envs.entities.EntityObserver`, or with `features` a sensor what they select. Actions are those of
    :class:`~hitmac.envs.tasks.CoverageTask` and :class:`~hitmac.envs.tasks.TransportTask`; a target's is
    ``Discrete(17)``, or with ``action: rate`` of the scenario ``Box(-1, 1, (2,))``. The reward of each target is that
    of its team, the reward of each sensor its negative. All agents live until all cargoes have arrived, or the time
    limit. The infos have `coverage` and `transport`.

    Args:
        scenario: a scenario with `warehouses`: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a YAML
            file's path.
        options: other options of :class:`~hitmac.envs.wrappers.shell.Shell` and
            :class:`~hitmac.envs.tasks.CoverageTask`.
    """

    metadata: dict[str, Any] = {**DirectionalSensorParallelEnv.metadata, "name": "directional_sensors_duel_v0"}
    names: ClassVar[dict[str, str]] = {"sensors": "camera", "targets": "target"}

    def __init__(self, scenario: Any = "mate-4v8-9", **options: Any) -> None:
        super().__init__("Coverage", scenario, **{"features": "entities", "reward": "duel"} | options, opponent=self)
        self.targets = TransportTask(self.scenario)
        self.targets.simulator = self.task.simulator
        self.possible_agents += self._agents_of(self.targets)
        self._spaces |= {
            agent: (own_observation_space(self.targets.observation_space), self.targets.actor_space)
            for agent in self._agents_of(self.targets)
        }

    def act(self, duel: Duel, starts: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return the displacements (1, m, 2) of the targets in the current step."""
        return self.targets.displacements(self._moves)

    def _advance(self, actions: dict[str, Any]) -> dict[str, float]:
        self._moves = self.targets.checked(self._joint_action(self.targets, actions))
        rewards, reward = super()._advance(actions), float(self.targets.duel.target_reward[0])
        return rewards | dict.fromkeys(self._agents_of(self.targets), reward)

    def state(self) -> np.ndarray:
        """Return the states of all sensors, targets and discs, the bounties and the cargoes left, as one vector."""
        duel = self.targets.duel
        parts = (*mate_states(duel), duel.cargo.bounty, duel.cargo.remaining)
        return np.concatenate([part.ravel() for part in parts])

    def _observe(self) -> dict[str, dict[str, np.ndarray]]:
        return super()._observe() | self._rows_of(self.targets)
