"""PettingZoo environment of one duel, in which the sensors and the targets are agents."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

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
        super().__init__("Coverage", scenario, **{"features": "entities", "reward": "duel"} | options)
        self.targets = TransportTask(simulator=self.task.simulator)
        self.possible_agents += self._agents_of(self.targets)
        self._spaces |= {
            agent: (own_observation_space(self.targets.observation_space), self.targets.actor_space)
            for agent in self._agents_of(self.targets)
        }

    def _advance(self, actions: dict[str, Any]) -> dict[str, float]:
        moves = self.targets.displacements(self.targets.checked(self._joint_action(self.targets, actions)))
        cameras: Any = self.task
        reward = cameras.step(self._joint_action(self.task, actions), target_action=moves)
        of_targets = self.task.simulator.game.target_reward
        rewards = ((self.task, reward), (self.targets, of_targets))
        return {agent: float(one[0]) for task, one in rewards for agent in self._agents_of(task)}

    def state(self) -> np.ndarray:
        """Return the states of all sensors, targets and discs, the bounties and the cargoes left, float32."""
        cargo = self.task.simulator.game.cargo
        parts = (*mate_states(self.task.simulator), cargo.bounty, cargo.remaining)
        return np.concatenate([part.ravel() for part in parts], dtype=np.float32)

    @property
    def state_space(self) -> spaces.Box:
        """Space of :meth:`state`."""
        return spaces.Box(-np.inf, np.inf, self.state().shape, np.float32)

    def _observe(self) -> dict[str, dict[str, np.ndarray]]:
        return super()._observe() | self._rows_of(self.targets)
