"""The Stable-Baselines3 shell: a batch of scenes as one native VecEnv."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from envs.render import Picture
from envs.simulator import positive
from envs.tasks import SUB_STEPS, CoverageTask


class CoverageVecEnv(VecEnv):
    """A batch of ``dsn/Coverage-v0`` scenes for Stable-Baselines3, all sensors of a scene as one agent.

    An ended scene starts anew within the step; its last observation is ``info["terminal_observation"]``, the
    time limit is ``info["TimeLimit.truncated"]``, return and length are ``info["episode"]``.

    Args:
        num_envs: B, how many scenes.
        scenario, seed, features, turn_cost, num_threads: see :class:`~envs.tasks.CoverageTask`.
        max_episode_steps: sub-steps after which an episode is truncated; 1 or more.
        stagger: end the first episode of scene b early, by the share b / B of its length, so that the scenes of a
            training batch do not all end at once.
        render_mode: ``"rgb_array"`` or None.
    """

    def __init__(
        self,
        num_envs: int = 1,
        scenario: Any = "hit-mac",
        seed: int | None = None,
        *,
        max_episode_steps: int = SUB_STEPS,
        stagger: bool = False,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.max_episode_steps = positive("max_episode_steps", max_episode_steps)
        self.task = CoverageTask(scenario, num_envs, seed, **options)
        self.scenario = self.task.scenario
        self.features = self.task.observer.features
        self.render_mode = render_mode
        self.stagger = stagger
        self.returns = np.zeros(self.task.num_envs)
        self._picture = Picture(self.scenario) if render_mode else None
        self._started = time.time()
        self._actions = np.zeros(0)
        self._first = np.zeros(self.task.num_envs, np.int64)  # the time at which each scene's episode began
        super().__init__(self.task.num_envs, self.task.observation_space, self.task.action_space)

    def reset(self) -> dict[str, np.ndarray]:
        """Start new episodes in all scenes, with the seeds of :meth:`seed` if it was called."""
        seeds = [seed for seed in self._seeds if seed is not None]
        self.task.reset(seed=seeds or None)
        self.returns[:] = 0.0
        self._first = np.arange(self.num_envs) * (self.max_episode_steps * self.stagger) // self.num_envs
        self.task.simulator.state.time[:] = self._first
        self.reset_infos = self._infos()
        self._reset_seeds()
        self._reset_options()
        return self.task.observe()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions (B, n) for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One sub-step of every scene."""
        reward = self.task.step(self._actions)
        self.returns += reward
        observation, infos = self.task.observe(), self._infos()
        done = self.task.time >= self.max_episode_steps
        if done.any():
            seconds = round(time.time() - self._started, 6)
            for b in np.flatnonzero(done):
                infos[b]["terminal_observation"] = {key: value[b] for key, value in observation.items()}
                infos[b]["TimeLimit.truncated"] = True
                infos[b]["episode"] = {"r": self.returns[b], "l": int(self.task.time[b] - self._first[b]), "t": seconds}
            self.task.reset(mask=done)
            self.returns[done] = 0.0
            self._first[done] = 0
            observation = self.task.observe()
        return observation, reward.astype(np.float32), done, infos

    def _infos(self) -> list[dict[str, Any]]:
        coverage, turned, visible = self.task.info().values()
        rows = zip(coverage.tolist(), turned.tolist(), visible, strict=True)
        return [{"coverage": c, "turned": t, "visible": v, "TimeLimit.truncated": False} for c, t, v in rows]

    def get_images(self) -> list[np.ndarray | None]:
        """One RGB picture of every scene."""
        if self._picture is None:
            return [None] * self.num_envs
        return [self._picture.draw(self.task.simulator.state, b) for b in range(self.num_envs)]

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """The attribute, once for each scene asked for: the scenes share all but their states."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def has_attr(self, attr_name: str) -> bool:
        """Whether there is such an attribute."""
        return hasattr(self, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of all scenes at once; for some of them it is a ValueError."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ValueError(f"the scenes share {attr_name!r}; it cannot be set for {indices!r} alone")
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: int | Iterable[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        """The scenes are no environments of their own that could be called; this is an AttributeError."""
        raise AttributeError(f"the scenes of {type(self).__name__} have no method {method_name!r} of their own")

    def env_is_wrapped(self, wrapper_class: type, indices: int | Iterable[int] | None = None) -> list[bool]:
        """False for every scene."""
        return [False] * len(list(self._get_indices(indices)))
