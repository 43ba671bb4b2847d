"""Credit for every sensor: advantages, values and likelihood ratios of each by itself, in Stable-Baselines3.

With one reward for the team, what a sensor did drowns in what the others did. Here every sensor i has its own reward
r_i, what it added to the coverage, its own value V_i, and in PPO its own ratio, so that its part of the action is
judged by its own advantage::

    loss = -mean over i of min(rho_i A_i, clip(rho_i, 1 - c, 1 + c) A_i),   rho_i = pi(a_i | s) / pi_old(a_i | s)

The rewards come from ``credit="sensors"`` of :class:`envs.sb3_env.DirectionalSensorVecEnv`. Stable-Baselines3's
algorithms need no change: their arrays get one axis more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.distributions import BernoulliDistribution
from stable_baselines3.common.type_aliases import DictRolloutBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor


class SensorBernoulli(BernoulliDistribution):
    """An assignment of m targets to n sensors, each pair independently, with a likelihood for every sensor.

    Args:
        num_sensors, num_targets: n and m; the actions are (B, n * m).
    """

    def __init__(self, num_sensors: int, num_targets: int) -> None:
        super().__init__(num_sensors * num_targets)
        self.sizes = num_sensors, num_targets

    def log_prob(self, actions: Tensor) -> Tensor:
        """(B, n) of every sensor's part of the actions."""
        return self.distribution.log_prob(actions).unflatten(-1, self.sizes).sum(-1)

    def entropy(self) -> Tensor:
        """(B, n) of every sensor's part of the actions."""
        return self.distribution.entropy().unflatten(-1, self.sizes).sum(-1)


class SensorRolloutBuffer(DictRolloutBuffer):
    """Stable-Baselines3's rollout buffer, with rewards, values, likelihoods and advantages for every sensor.

    Args:
        buffer_size, observation_space, action_space, and so on: see ``DictRolloutBuffer``; the observation's ``mask``
            (n, m) says how many sensors there are.
    """

    def reset(self) -> None:
        """Empty arrays, (steps, B, n) where the original has (steps, B)."""
        super().reset()
        assert isinstance(self.observation_space, spaces.Dict)
        self.num_sensors = self.observation_space["mask"].shape[0]  # type: ignore[index]
        for name in ("rewards", "values", "log_probs", "advantages", "returns"):
            setattr(self, name, np.zeros((self.buffer_size, self.n_envs, self.num_sensors), np.float32))

    def add(  # type: ignore[override]
        self,
        obs: dict[str, np.ndarray],
        action: np.ndarray,
        reward: np.ndarray,
        episode_start: np.ndarray,
        value: Tensor,
        log_prob: Tensor,
    ) -> None:
        """One step of all scenes: `reward`, `value` and `log_prob` are (B, n)."""
        for key in self.observations:
            self.observations[key][self.pos] = np.asarray(obs[key]).reshape(self.n_envs, *self.obs_shape[key])
        self.actions[self.pos] = np.asarray(action).reshape(self.n_envs, self.action_dim)
        self.rewards[self.pos] = reward
        self.episode_starts[self.pos] = episode_start
        self.values[self.pos] = value.cpu().numpy()
        self.log_probs[self.pos] = log_prob.cpu().numpy()
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def compute_returns_and_advantage(self, last_values: Any, dones: np.ndarray) -> None:
        """Generalised advantage estimates of every sensor.

        ``A_t = delta_t + gamma lambda A_(t+1)``, ``delta_t = r_t + gamma V_(t+1) - V_t``, cut where an episode ends.
        """
        value, goes_on = np.asarray(last_values), 1.0 - dones.astype(np.float32)
        advantage = np.zeros_like(value)
        for step in reversed(range(self.buffer_size)):
            delta = self.rewards[step] + self.gamma * value * goes_on[:, None] - self.values[step]
            advantage = delta + self.gamma * self.gae_lambda * goes_on[:, None] * advantage
            self.advantages[step] = advantage
            value, goes_on = self.values[step], 1.0 - self.episode_starts[step]
        self.returns = self.advantages + self.values

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> Any:
        """Samples as the algorithms take them: they flatten the values before they compare them with the returns."""
        samples: dict[str, Any] = {
            "observations": {key: self.to_torch(array[batch_inds]) for key, array in self.observations.items()},
            "actions": self.to_torch(self.actions[batch_inds].astype(np.float32, copy=False)),
            "old_values": self.to_torch(self.values[batch_inds].flatten()),
            "old_log_prob": self.to_torch(self.log_probs[batch_inds]),
            "advantages": self.to_torch(self.advantages[batch_inds]),
            "returns": self.to_torch(self.returns[batch_inds].flatten()),
        }
        return DictRolloutBufferSamples(**samples)
