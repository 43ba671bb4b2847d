"""PettingZoo environment of one scene, in which every member of the acting team is an agent."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from hitmac.envs.simulator import PLACES
from hitmac.envs.tasks.base import Task, by_sensor, own_observation_space
from hitmac.envs.validation import as_options
from hitmac.envs.wrappers.shell import METADATA, Shell

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError:
    raise ModuleNotFoundError("parallel environments require PettingZoo: pip install 'hitmac[pettingzoo]'") from None


class DirectionalSensorParallelEnv(Shell, ParallelEnv):
    """One scene of a task as a ``pettingzoo.ParallelEnv`` with the agents ``sensor_0``, ``sensor_1``, ...

    An agent observes its own row, ``pairs`` (m, d) and ``mask`` (m,). Its action is a turn, ``Discrete(3)``; with k
    decisions of a sensor ``MultiDiscrete([3] * k)``; with ``action: rate`` of the scenario a rate, ``Box(-1, 1,
    (1,))``; in a task of assignments, its targets, ``MultiBinary(m)``. Its reward is that of the sensor if the task has
    one, else that of the scene. All agents live until the episode ends. The mask of a sensor that is not part of the
    episode is 0. In a task of targets the agents are ``target_0``, ``target_1``, ...

    ``reset(options=...)`` accepts the options of the gymnasium environments and, by PettingZoo's convention, ignores
    others.

    Args:
        task, scenario, max_episode_steps, render_mode, options: see :class:`~hitmac.envs.wrappers.shell.Shell`.
    """

    metadata: dict[str, Any] = {**METADATA, "name": "directional_sensors_v0"}
    names: ClassVar[dict[str, str]] = {"sensors": "sensor", "targets": "target"}

    def __init__(self, task: Any, scenario: Any = None, **options: Any) -> None:
        made = self._set_scene(task, scenario, **options)
        self.possible_agents = self._agents_of(made)
        self.agents: list[str] = []
        # Agents do not share spaces, since a space has a random stream.
        self._spaces = {
            agent: (own_observation_space(made.observation_space), made.actor_space) for agent in self.possible_agents
        }

    def observation_space(self, agent: str) -> spaces.Space:
        """Return the agent's ``Dict(pairs=Box (m, d), mask=MultiBinary (m,), ...)``."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> spaces.Space:
        """Return the agent's ``Discrete(3)``, ``MultiDiscrete([3, 3])``, ``Box(-1, 1, (1,))`` or ``MultiBinary(m)``."""
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; without a seed, continue the scene's random stream."""
        places = {name: value for name, value in as_options(options).items() if name in PLACES}
        self.task.reset(seed=seed, options=places)
        self.agents, self.begun = list(self.possible_agents), True
        self._show()
        return self._observe(), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Advance by one step; raise ValueError, before anything moves, unless every agent has an action."""
        self._check_begun()
        if set(actions) != set(self.agents):
            raise ValueError(f"actions are for {', '.join(actions) or 'no agent'}; they must be for {self.agents}")
        if not self.agents:
            return {}, {}, {}, {}, {}
        rewards = self._advance(actions)
        self._show()
        ended, terminated = bool(self.task.ended(self.max_episode_steps)[0]), bool(self.task.terminated[0])
        results = (
            self._observe(),
            rewards,
            dict.fromkeys(self.agents, terminated),
            dict.fromkeys(self.agents, ended and not terminated),
            self._infos(),
        )
        if ended:
            self.agents = []
        return results

    def _advance(self, actions: dict[str, Any]) -> dict[str, float]:
        """Advance by one step; return the rewards."""
        reward, apart = self.task.step(self._joint_action(self.task, actions)), self.task.sensor_rewards()
        rewards = np.full(self.task.actors, reward[0]) if apart is None else apart[0]
        return dict(zip(self._agents_of(self.task), rewards.tolist(), strict=True))

    def _agents_of(self, task: Task) -> list[str]:
        return [f"{self.names[task.team]}_{i}" for i in range(task.actors)]

    def _joint_action(self, task: Task, actions: dict[str, Any]) -> np.ndarray:
        own = np.stack([np.asarray(actions[agent]) for agent in self._agents_of(task)])
        return task.joint_action(own.reshape(1, len(own), -1))

    def state(self) -> np.ndarray:
        """Return the features of all sensors as one vector, (n * m * d,) float32, for a centralised critic."""
        shown = self.task.observer.observe(self.task.simulator).values()
        return np.concatenate([array.ravel() for array in shown if array.dtype == np.float32])

    @property
    def state_space(self) -> spaces.Box:
        """Space of :meth:`state`."""
        whole = self.task.observer.space.spaces
        boxes = [whole[name] for name in self.task.observer.observe(self.task.simulator)]
        shown = [box for box in boxes if box.dtype == np.float32]
        low, high = (np.concatenate([getattr(box, end).ravel() for box in shown]) for end in ("low", "high"))
        return spaces.Box(low, high, dtype=np.float32)

    def _observe(self) -> dict[str, dict[str, np.ndarray]]:
        return self._rows_of(self.task)

    def _rows_of(self, task: Task) -> dict[str, dict[str, np.ndarray]]:
        shown = by_sensor(task.observe())
        rows = enumerate(self._agents_of(task))
        return {agent: {key: value[0, i] for key, value in shown.items()} for i, agent in rows}

    def _infos(self) -> dict[str, dict[str, Any]]:
        info = self.task.infos()[0]
        return {agent: dict(info) for agent in self.agents}
