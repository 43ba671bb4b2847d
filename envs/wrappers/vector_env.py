"""Gymnasium vector environments: a batch of scenes as one native VectorEnv."""

from typing import Annotated, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from hitmac.envs.validation import Choice, as_options, convert
from hitmac.envs.wrappers.shell import METADATA, Shell


class DirectionalSensorVectorEnv(VectorEnv, Shell):
    """Batch of scenes of one task, as made by ``gymnasium.make_vec(id, num_envs=B)``.

    Scene i equals the single environment with the seed ``seed + i``, bit for bit. A step returns only new arrays.

    Args:
        task, num_envs, scenario, max_episode_steps, render_mode, options: see
            :class:`~hitmac.envs.wrappers.shell.Shell`; `render` returns pictures of all scenes.
        autoreset_mode: one of gymnasium's three modes, as the member or its value. ``NextStep``: the next step resets
            an ended scene and ignores its action. ``SameStep``: the same step resets it; ``info["final_obs"]`` and
            ``info["final_info"]`` hold its last observation and info. ``Disabled``:
            ``reset(options={"reset_mask": mask})`` resets it.
    """

    def __init__(
        self, task: Any, num_envs: int = 1, scenario: Any = None, *, autoreset_mode: Any = "NextStep", **options: Any
    ) -> None:
        self.closed = True  # gymnasium closes garbage, also if this raises
        modes = Annotated[str, Choice([mode.value for mode in AutoresetMode])]
        mode = getattr(autoreset_mode, "value", autoreset_mode)
        self.autoreset_mode = AutoresetMode(convert("autoreset_mode", modes, mode))
        made = self._set_task(task, scenario, num_envs, **options)
        self.num_envs = made.num_envs
        self.single_observation_space, self.single_action_space = made.observation_space, made.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**METADATA, "autoreset_mode": self.autoreset_mode}
        self._ended = np.zeros(self.num_envs, np.bool_)
        self.closed = False

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start new episodes, in all scenes or in those of ``options["reset_mask"]`` (B,) bool.

        The other options are those of the single environment, shared by all scenes or with the scene axis first.
        """
        places = as_options(options)
        mask = places.pop("reset_mask", None)
        chosen = self.task.simulator.chosen(mask, "reset_mask")
        self.task.reset(seed=seed, mask=chosen, options=places)
        if seed is not None:
            super().reset(seed=int(np.ravel(seed)[0]))
        self._ended[chosen], self.begun = False, True
        self._show()
        return self.task.observe(), batched(self.task.info())

    def step(self, actions: np.ndarray) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Advance every scene by one step."""
        self._check_begun()
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            scenes = np.flatnonzero(self._ended)
            raise RuntimeError(f"scene {scenes[0]} has ended; reset it with reset(options={{'reset_mask': mask}})")
        resetting = self._ended  # only ever set in NEXT_STEP mode from here on
        reward = np.array(self.task.step(actions, ~resetting))  # the task may keep its own
        if resetting.any():
            self.task.reset(mask=resetting)
            reward[resetting] = 0.0
        self._show()
        ended, terminated = self.task.ended(self.max_episode_steps), self.task.terminated
        observation, info = self.task.observe(), batched(self.task.info())
        self._ended = ended
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            final = np.full(self.num_envs, None, dtype=object)
            for b in np.flatnonzero(ended):
                final[b] = {key: value[b] for key, value in observation.items()}
            last = {"final_obs": final, "final_info": info}
            self.task.reset(mask=ended)
            observation, info = self.task.observe(), batched(self.task.info())
            info |= last | {f"_{key}": ended.copy() for key in last}
            self._ended = np.zeros_like(ended)
        return observation, reward, terminated, ended & ~terminated, info

    def render(self) -> Any:
        """Return an RGB picture of every scene, as a tuple; None with a window or without a render mode."""
        self._show()
        return tuple(map(self._drawn, range(self.num_envs))) if self.render_mode == "rgb_array" else None

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window, if it is open."""
        Shell.close(self)


def batched(info: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return a batch of infos in gymnasium's form: each array with a mask of the scenes for which it is valid."""
    return info | {f"_{key}": np.ones(len(value), np.bool_) for key, value in info.items()}
