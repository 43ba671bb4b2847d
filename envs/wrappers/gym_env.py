"""Gymnasium environments of one scene."""

from typing import Any

import gymnasium
import numpy as np

from hitmac.envs.wrappers.shell import Shell


class DirectionalSensorEnv(Shell, gymnasium.Env):
    """One scene of a task as a ``gymnasium.Env``, as made by ``gymnasium.make("dsn/<task>-v0")``.

    The task's docstring specifies actions, observations and rewards: ``help(envs.TASKS["Coverage"])``.

    ``reset(options=...)`` takes any of ``sensor_position`` (n, 2), ``heading`` (n,) in degrees,
    ``target_position`` (m, 2) and ``target_tracks`` (K, m, 2), the positions after the 1st, 2nd, ... sub-step; on rails
    ``along`` (n,) in place of ``sensor_position``. ``target_moves`` are the positions after each move, extra moves
    included. All positions must be inside the arena; a target at NaN is absent. The end of the tracks, also of the
    scenario's, truncates the episode.

    Args:
        task, scenario, max_episode_steps, render_mode, options: see :class:`~hitmac.envs.wrappers.shell.Shell`;
            the `max_episode_steps` of ``gymnasium.make`` only shortens episodes.
    """

    def __init__(self, task: Any, scenario: Any = None, **options: Any) -> None:
        made = self._set_scene(task, scenario, **options)
        self.observation_space, self.action_space = made.observation_space, made.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; without a seed, continue the scene's random stream."""
        super().reset(seed=seed)
        self.task.reset(seed=seed, options=options)
        self.begun = True
        self._show()
        return self._observation(), self.task.infos()[0]

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        """Advance by one step; an action of the wrong shape, type or range is an error before anything moves."""
        self._check_begun()
        reward = self.task.step(np.asarray(action)[None])
        self._show()
        terminated = bool(self.task.terminated[0])
        truncated = not terminated and bool(self.task.ended(self.max_episode_steps)[0])
        return self._observation(), float(reward[0]), terminated, truncated, self.task.infos()[0]

    def _observation(self) -> dict[str, np.ndarray]:
        return {key: value[0] for key, value in self.task.observe().items()}
