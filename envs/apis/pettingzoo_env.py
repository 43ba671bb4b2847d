"""The PettingZoo shell: one scene, every sensor an agent of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError:
    raise ModuleNotFoundError("parallel environments need PettingZoo: pip install 'hitmac[pettingzoo]'") from None

from envs.apis.gym_env import DirectionalSensorEnv
from envs.render import Viewer
from envs.simulator import PLACES, positive
from envs.tasks import Task, own_turning_space


class DirectionalSensorParallelEnv(ParallelEnv):
    """One scene of a task as a ``pettingzoo.ParallelEnv`` with the agents ``sensor_0``, ``sensor_1``, ...

    An agent is shown its own row, ``pairs`` (m, d) and ``mask`` (m,). It decides on its turn, ``Discrete(3)``
    (where lenses zoom on turn and zoom, ``MultiDiscrete([3, 3])``), or, in the coordinator's task, on which targets
    it takes, ``MultiBinary(m)``. Its reward is its own where the task has one, else the scene's. All agents live
    until the episode is truncated; one whose sensor is not part of the episode is shown a mask of 0.

    Args:
        task: the task, of one scene.
        max_episode_steps: steps after which the episode is truncated; 1 or more.
        render_mode: ``"rgb_array"``: `render` gives pictures; ``"human"``: a window shows every step; or None.

    ``reset(options=...)`` takes what the gymnasium environments take; by PettingZoo's convention it ignores
    any other option.
    """

    metadata: dict[str, Any] = {**DirectionalSensorEnv.metadata, "name": "directional_sensors_v0"}

    def __init__(self, task: Task, *, max_episode_steps: int, render_mode: str | None = None) -> None:
        self.task = task
        self.scenario = task.scenario
        self.features = task.observer.features
        self.max_episode_steps = positive("max_episode_steps", max_episode_steps)
        self.render_mode = render_mode
        self._viewer = Viewer(self.scenario, render_mode, DirectionalSensorEnv.metadata["render_fps"])
        self.possible_agents = [f"sensor_{i}" for i in range(self.scenario.num_sensors)]
        self.agents: list[str] = []
        pairs = task.observation_space["pairs"]
        assert isinstance(pairs, spaces.Box)
        m = self.scenario.num_targets
        self._observation_spaces = {
            agent: spaces.Dict(
                pairs=spaces.Box(pairs.low[i], pairs.high[i], dtype=np.float32), mask=spaces.MultiBinary(m)
            )
            for i, agent in enumerate(self.possible_agents)
        }
        self._action_spaces: dict[str, spaces.Space] = {agent: _own_decision(task) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space:
        """``Dict(pairs=Box (m, d), mask=MultiBinary (m,))``."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """``Discrete(3)`` or ``MultiDiscrete([3, 3])``, or ``MultiBinary(m)`` in the coordinator's task."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; without a seed it goes on in the scene's random stream."""
        places = {name: value for name, value in (options or {}).items() if name in PLACES}
        self.task.reset(seed=seed, options=places)
        self.agents = list(self.possible_agents)
        self._viewer.show(self.task, 0)
        return self._observe(), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """One step; ``actions`` holds one for every agent, else it is a ValueError before anything moves."""
        if set(actions) != set(self.agents):
            raise ValueError(f"actions are for {', '.join(actions) or 'nobody'}; they must be for {self.agents}")
        if not self.agents:
            return {}, {}, {}, {}, {}
        joint = np.stack([np.asarray(actions[agent]) for agent in self.possible_agents]).reshape(len(self.agents), -1)
        if isinstance(self.task.action_space, spaces.MultiDiscrete):
            joint = joint.T  # all turns, then all zooms
        reward = self.task.step(joint.reshape(1, -1))
        self._viewer.show(self.task, 0)
        apart = getattr(self.task, "rewards", None)
        rewards = np.full(len(self.agents), reward[0]) if apart is None else apart[0]
        ended = bool(self.task.time[0] >= self.max_episode_steps or self.task.simulator.track_ended[0])
        results = (
            self._observe(),
            dict(zip(self.agents, rewards.tolist(), strict=True)),
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, ended),
            self._infos(),
        )
        if ended:
            self.agents = []
        return results

    def render(self) -> np.ndarray | None:
        """The scene as an RGB picture; None with a window or without a render mode."""
        return self._viewer.render(self.task, 0)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._viewer.close()

    def state(self) -> np.ndarray:
        """All sensors' pairs as one vector, for a centralised critic: (n * m * d,) float32."""
        return self.task.observer.observe(self.task.simulator)["pairs"].ravel()

    def _observe(self) -> dict[str, dict[str, np.ndarray]]:
        shown = self.task.observe()
        return {agent: {key: value[0, i] for key, value in shown.items()} for i, agent in enumerate(self.agents)}

    def _infos(self) -> dict[str, dict[str, Any]]:
        """The scene's info, to every agent."""
        info = {key: value[0] if value.ndim > 1 else value[0].item() for key, value in self.task.info().items()}
        return {agent: dict(info) for agent in self.agents}


def _own_decision(task: Task) -> spaces.Space:
    """What one sensor decides on in a task."""
    if isinstance(task.action_space, spaces.MultiBinary):
        return spaces.MultiBinary(task.scenario.num_targets)
    return own_turning_space(task.scenario)
