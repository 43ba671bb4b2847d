"""Env runner of RLlib that steps a batch of scenes at once, as the default engine collects its rollouts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numba
import numpy as np
import ray
import torch
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from hitmac.agents.learned.difference_rewards import ActingRolloutBuffer
from hitmac.agents.training.train import build

ACTING, ROW = "acting", "row"
"""Columns of every step of a row: whether a sensor of it acts, and its number among those of all env runners."""

MEANS = ("coverage", "rotation", "reward")
"""Metrics of a rollout, sums over its steps and rows."""


class RolloutMeans(BaseCallback):
    """Callback of Stable-Baselines3 that takes the means of coverage, rotation and reward over a rollout."""

    def _on_rollout_start(self) -> None:
        self.means = np.zeros(len(MEANS))

    def _on_step(self) -> bool:
        simulator = self.training_env.task.simulator  # type: ignore[attr-defined]
        means = simulator.coverage.mean(), simulator.rotation.mean(), self.locals["rewards"].mean()
        self.means += np.array(means) / self.locals["n_rollout_steps"]
        return True


class SceneEnvRunner(EnvRunner):
    """Env runner with a share of the scenes of a training, in one batch, and a learner that collects rollouts in them.

    ``env_config`` holds ``options``, the job's, and ``scenario``. Before the first rollout, :meth:`begin` sets the seed
    of the first scene.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.spaces = (self.config.observation_space, self.config.action_space)
        spec: Any = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()
        self._callback: Any = None
        self._weights_seq_no = 0
        if self.num_workers and not self.worker_index:
            return  # the local one of several only keeps the policy
        if self.worker_index:  # a process of its own, one of several on its machine
            torch.set_num_threads(1)
            numba.set_num_threads(1)
        options, scenario = self.config.env_config["options"], self.config.env_config["scenario"]
        scenes = np.array_split(np.arange(options.num_envs), max(self.num_workers, 1))[max(self.worker_index, 1) - 1]
        options = dataclasses.replace(options, num_envs=len(scenes), device="cpu")
        model, self.envs, _ = build(options, scenario)
        assert isinstance(model, PPO)
        model.policy = self.module.policy
        self.model, self._first_row = model, scenes[0] * (self.envs.num_envs // len(scenes))
        self.envs.reset()
        self.envs.step(np.stack([self.envs.action_space.sample() for _ in range(self.envs.num_envs)]))  # compiles

    def begin(self, seed: int) -> None:
        """Start new episodes in all scenes, scene i with the seed ``seed + i``; `seed` is also that of the actions."""
        torch.manual_seed(seed)
        self.envs.seed(seed)
        _, self._callback = self.model._setup_learn(0, RolloutMeans())

    def sample(self, **kwargs: Any) -> list[SingleAgentEpisode]:
        """Return a rollout as one episode of RLlib: the steps of the first row, then those of the second, ..."""
        if self._callback is None:  # started again, without scenes so far
            return []
        buffer = self.model.rollout_buffer
        assert isinstance(buffer, ActingRolloutBuffer)
        self.model.collect_rollouts(self.envs, self._callback, buffer, buffer.buffer_size)
        size = buffer.buffer_size * buffer.n_envs
        for name, mean in zip(MEANS, self._callback.means, strict=True):
            self.metrics.log_value(name, mean * size, reduce="sum")
        self.num_env_steps_sampled_lifetime += size
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, size, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, size, reduce="lifetime_sum")
        rows = np.tile(np.arange(buffer.n_envs), (buffer.buffer_size, 1)) + self._first_row
        columns = {
            ACTING: buffer.acting,
            ROW: rows,
            Columns.ACTION_LOGP: buffer.log_probs,
            Postprocessing.ADVANTAGES: buffer.advantages,
            Postprocessing.VALUE_TARGETS: buffer.returns,
        }
        # An episode has one more observation than steps: the first again, which nothing reads.
        flat = {name: buffer.swap_and_flatten(array) for name, array in buffer.observations.items()}
        observations: Any = {name: np.concatenate((array, array[:1])) for name, array in flat.items()}
        return [
            SingleAgentEpisode(
                observations=InfiniteLookbackBuffer(observations),
                infos=InfiniteLookbackBuffer([{}] * (size + 1)),
                actions=InfiniteLookbackBuffer(
                    buffer.actions.swapaxes(0, 1).reshape(size, *(self.model.action_space.shape or ()))
                ),
                rewards=_numbers(buffer.rewards),
                extra_model_outputs={name: _numbers(array) for name, array in columns.items()},
                len_lookback_buffer=0,
            )
        ]

    def get_metrics(self) -> Any:
        """Return the metrics since the last call, for RLlib."""
        return self.metrics.reduce()

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces of the policy, for RLlib."""
        return dict.fromkeys((INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, DEFAULT_MODULE_ID), self.spaces)

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the weights of the policy and their number, for RLlib."""
        return {COMPONENT_RL_MODULE: self.module.get_state(), WEIGHTS_SEQ_NO: self._weights_seq_no}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the weights of RLlib's learner."""
        if COMPONENT_RL_MODULE in state:
            weights = state[COMPONENT_RL_MODULE]
            weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
            self._weights_seq_no = state.get(WEIGHTS_SEQ_NO, 0)

    def assert_healthy(self) -> None:
        """Do nothing: an env runner that was made is whole."""


def _numbers(array: np.ndarray) -> InfiniteLookbackBuffer:
    """Return numbers (T, B) of a rollout, one row of the environments after the other."""
    return InfiniteLookbackBuffer(ActingRolloutBuffer.swap_and_flatten(array).ravel())
