"""Stable-Baselines3 environments: a batch of scenes as one native VecEnv."""

import time
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from hitmac.envs.tasks.base import flatten_sensors, own_observation_space
from hitmac.envs.validation import Choice, convert, positive
from hitmac.envs.wrappers.shell import Shell


class DirectionalSensorVecEnv(VecEnv, Shell):
    """Batch of scenes of one task for Stable-Baselines3.

    A row is a scene with all its sensors, or with ``per_sensor=True`` one sensor of a scene, for a policy that all
    sensors share. Each of these B * n rows has the observation ``pairs`` (m, d) and ``mask`` (m,), the decisions of the
    sensor as action, and the reward of the sensor if the task has one, else that of the scene.

    An ended scene is reset within the step. Its last observation is ``info["terminal_observation"]``, its time limit
    ``info["TimeLimit.truncated"]``, its return and length ``info["episode"]``.

    Args:
        task, num_envs, scenario, max_episode_steps, render_mode, options: see
            :class:`~hitmac.envs.wrappers.shell.Shell`; `get_images` returns pictures of all scenes.
        seed: scene i gets ``seed + i``, and the first reset goes on in its stream, in contrast to that after
            :meth:`seed`; None: a seed from the operating system.
        per_sensor: make one row for every sensor; None: only in a task of executors. Not in a task of assignments.
        credit: ``"team"``: a row's reward is one number; ``"difference_rewards"``: a row's reward is that of each
            sensor, (B, n), or of its sensor with `per_sensor`: its contribution to the team's, see
            ``task.difference_rewards``, for a learner with credit for every sensor,
            :class:`hitmac.agents.training.ppo.PPO`. The returns in the infos are those of the task's reward.
        frame_skip: steps of the task for which an action holds, 1 or more, or until the episode ends; a reward is the
            mean over them. Learning then sees more of the episodes, and more of what follows an action.
        stagger: end the first episode of scene b early, by the share b / B of its length, so that the scenes of a
            training batch do not all end at once.
        end_infos: leave the infos of scenes that go on empty, for learners that do not read them; making all of them
            takes longer than a step of a large batch.
    """

    def __init__(
        self,
        task: Any,
        num_envs: int = 1,
        scenario: Any = None,
        seed: int | None = None,
        *,
        per_sensor: bool | None = None,
        credit: str = "team",
        frame_skip: int = 1,
        stagger: bool = False,
        end_infos: bool = False,
        **options: Any,
    ) -> None:
        task = self._set_task(task, scenario, num_envs, seed, **options)
        per_sensor = task.spec.role == "executor" if per_sensor is None else per_sensor
        self.credit = convert("credit", Annotated[str, Choice(("team", "difference_rewards"))], credit)
        self.frame_skip = positive("frame_skip", frame_skip)
        if credit == "difference_rewards" and task.difference_rewards() is None:
            raise ValueError(f"credit is {credit!r}; {type(task).__name__} has no difference rewards")
        if per_sensor and not task.turning:
            raise ValueError(f"per_sensor is True; {type(task).__name__} decides for all sensors at once")
        self.per_sensor, self.stagger, self.end_infos = per_sensor, stagger, end_infos
        observed, decided = task.observation_space, task.action_space
        if per_sensor:
            observed, decided = own_observation_space(observed), task.actor_space
        self._rows = task.actors if per_sensor else 1
        self.returns = np.zeros(task.num_envs * self._rows)
        self.rewards = np.zeros(task.num_envs * self._rows)  # of the last step, the task's, whatever the credit
        self.coverage = self.rotation = np.zeros(task.num_envs)  # at its end, before scenes that ended are reset
        self._started = time.time()
        self._actions = np.zeros(0)
        self.cut = np.zeros(task.num_envs, np.int64)  # steps by which each scene's episode is shorter
        super().__init__(len(self.returns), observed, decided)

    def reset(self) -> dict[str, np.ndarray]:
        """Start new episodes in all scenes, with the seeds of :meth:`seed` and options of `set_options`, if given.

        Options are a dictionary for all rows, or one for each row, such as ``{"heading": (n,)}``, also with different
        names; with ``per_sensor=True`` those of a scene's first row count.
        """
        scenes = self.task.num_envs
        seeds = [seed for seed in self._seeds[:scenes] if seed is not None]
        given = self._options[:: self._rows]  # of the scenes
        names = [tuple(sorted(options)) for options in given]
        for each in sorted(set(names)):
            chosen = np.array([own == each for own in names])
            some = given[int(chosen.argmax())]  # stands for the scenes of other names, whose values are not read
            rows = [options if own else some for options, own in zip(given, chosen, strict=True)]
            options = {name: np.stack([row[name] for row in rows]) for name in each}
            self.task.reset(seed=seeds or None, mask=chosen, options=options)
        self.returns[:], self.begun = 0.0, True
        self.cut[:] = np.arange(scenes) * (self.max_episode_steps * self.stagger) // scenes
        self.reset_infos = self._infos()
        self._reset_seeds()
        self._reset_options()
        self._show()
        return self.observe()

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions, one for each row, for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Advance every scene by one step, or by `frame_skip`."""
        self._check_begun()
        actions = np.asarray(self._actions)
        if self.per_sensor:
            shape = (self.num_envs, *self.action_space.shape)  # type: ignore[misc]
            if actions.shape != shape:
                raise ValueError(f"action has shape {actions.shape}; it must have shape {shape}")
            actions = self.task.joint_action(actions.reshape(self.task.num_envs, self._rows, -1))
        going = np.ones(self.task.num_envs, np.bool_)  # scenes whose episode goes on
        rewards: Any = 0.0
        credits: Any = 0.0
        held: Any = 0  # steps of each row
        for _ in range(self.frame_skip):
            own, credited = self._rewards_of(self.task.step(actions, going))
            rows = np.repeat(going, self._rows)
            rewards, credits, held = rewards + own * rows, credits + (credited.T * rows).T, held + rows
            self._show()
            observation = self.observe()  # at every sub-step, since some observers have a memory
            ended = self.task.ended(self.max_episode_steps - self.cut)
            going = ~ended
        self.returns += rewards
        self.rewards, reward = rewards / held, (credits.T / held).T
        self.coverage = self.task.simulator.observed_coverage
        self.rotation = self.task.info()["turned"] / self.task.scenario.num_sensors
        infos, terminated, done = self._infos(), self.task.terminated, np.repeat(ended, self._rows)
        if ended.any():
            seconds = round(time.time() - self._started, 6)
            for row in np.flatnonzero(done):
                scene = row // self._rows
                infos[row]["terminal_observation"] = {key: value[row] for key, value in observation.items()}
                infos[row]["TimeLimit.truncated"] = not terminated[scene]
                infos[row]["episode"] = {"r": self.returns[row], "l": int(self.task.time[scene]), "t": seconds}
            self.task.reset(mask=ended)
            self.returns[done], self.cut[ended] = 0.0, 0
            observation = self.observe()
        return observation, reward.astype(np.float32), done, infos

    def _rewards_of(self, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rewards of the rows in the task's last step, and those by `credit`, given that of its scenes."""
        own = self.task.sensor_rewards() if self.per_sensor else None
        rows = np.repeat(reward, self._rows) if own is None else own.flatten()
        if self.credit == "team":
            return rows, rows
        parts = np.asarray(self.task.difference_rewards())
        return rows, parts.flatten() if self.per_sensor else parts

    def observe(self) -> dict[str, np.ndarray]:
        """Return the current observation of every row."""
        observation = self.task.observe()
        return flatten_sensors(observation) if self.per_sensor else observation

    def acting(self) -> np.ndarray:
        """Return True (rows,) for rows in which a sensor works, or a target is present.

        With ``credit="difference_rewards"``, return the result of every sensor of a row, (rows, n).
        """
        sensors = self.task.acting
        if self.per_sensor:
            return sensors.reshape(-1)
        return sensors if self.credit == "difference_rewards" else np.asarray(sensors.any(-1))

    def _infos(self) -> list[dict[str, Any]]:
        if self.end_infos:
            return [{} for _ in range(self.num_envs)]
        return [scene | {"TimeLimit.truncated": False} for scene in self.task.infos() for _ in range(self._rows)]

    def get_images(self) -> list[np.ndarray | None]:
        """Return an RGB picture of every scene; None without ``render_mode="rgb_array"``."""
        return [self._drawn(b) for b in range(self.task.num_envs)]

    def render(self, mode: str | None = None) -> np.ndarray | None:
        """Return a picture of all scenes side by side; None with a window, which is updated, or without a mode."""
        if self.render_mode == "human":
            return Shell.render(self)
        return super().render(mode)

    close = Shell.close

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return the attribute once for each index; the scenes share all attributes."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of all scenes at once; raise ValueError for a part of the scenes."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ValueError(f"the scenes share {attr_name!r}; it cannot be set for {indices!r} only")
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Raise AttributeError, since the scenes are not separate environments."""
        raise AttributeError(f"the scenes of {type(self).__name__} have no method {method_name!r} of their own")

    def env_is_wrapped(self, wrapper_class: type, indices: int | Iterable[int] | None = None) -> list[bool]:
        """Return False for every index, since the scenes have no wrappers.

        Stable-Baselines3's ``VecMonitor`` and ``evaluate_policy`` ask for a monitor, and then add up one reward of each
        row. Raises ``ValueError`` for a monitor where a row has a reward of every sensor.
        """
        if wrapper_class is Monitor and self.credit == "difference_rewards" and not self.per_sensor:
            raise ValueError(
                "credit is 'difference_rewards', for which a row has a reward of every sensor; for VecMonitor and "
                "evaluate_policy it must be 'team'. A training needs no VecMonitor: the infos have the returns."
            )
        return [False] * len(list(self._get_indices(indices)))
