"""PettingZoo environment of one scene, in which every sensor is an agent."""

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

    An agent observes its own row, ``pairs`` (m, d) and ``mask`` (m,). Its action is a turn, ``Discrete(3)``, with
    zooming lenses a turn and a zoom, ``MultiDiscrete([3, 3])``, and in the coordinator's task the targets assigned to
    it, ``MultiBinary(m)``. Its reward is that of the sensor where the task has one, else that of the scene. All agents
    live until the episode is truncated. The mask of a sensor that is not part of the episode is 0.

    ``reset(options=...)`` takes the options of the gymnasium environments. By PettingZoo's convention it ignores any
    other option.

    Args:
        task: the task, of one scene.
        max_episode_steps: steps after which the episode is truncated; 1 or more.
        render_mode: ``"rgb_array"``: `render` returns pictures; ``"human"``: a window shows every step; or None.
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
        """Return ``Dict(pairs=Box (m, d), mask=MultiBinary (m,))``."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """Return ``Discrete(3)`` or ``MultiDiscrete([3, 3])``, or ``MultiBinary(m)`` in the coordinator's task."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; without a seed, continue the scene's random stream."""
        places = {name: value for name, value in (options or {}).items() if name in PLACES}
        self.task.reset(seed=seed, options=places)
        self.agents = list(self.possible_agents)
        self._viewer.show(self.task, 0)
        return self._observe(), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Advance by one step; raise ValueError, before anything moves, unless every agent has an action."""
        if set(actions) != set(self.agents):
            raise ValueError(f"actions are for {', '.join(actions) or 'no agent'}; they must be for {self.agents}")
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
        """Return an RGB picture; None with a window or without a render mode."""
        return self._viewer.render(self.task, 0)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._viewer.close()

    def state(self) -> np.ndarray:
        """Return all sensors' pairs as one vector (n * m * d,) float32, for a centralised critic."""
        return self.task.observer.observe(self.task.simulator)["pairs"].ravel()

    def _observe(self) -> dict[str, dict[str, np.ndarray]]:
        shown = self.task.observe()
        return {agent: {key: value[0, i] for key, value in shown.items()} for i, agent in enumerate(self.agents)}

    def _infos(self) -> dict[str, dict[str, Any]]:
        """Return the scene's info for every agent."""
        info = {key: value[0] if value.ndim > 1 else value[0].item() for key, value in self.task.info().items()}
        return {agent: dict(info) for agent in self.agents}


def _own_decision(task: Task) -> spaces.Space:
    """Return the action space of one sensor in a task."""
    if isinstance(task.action_space, spaces.MultiBinary):
        return spaces.MultiBinary(task.scenario.num_targets)
    return own_turning_space(task.scenario)
