"""Credit assignment: samples only of acting sensors, and a reward of every sensor.

A sensor that is absent or has failed neither acts nor sees: its steps are no samples, and its trajectory is truncated
where it stops working.

With one reward for the team, the effect of one sensor is lost among that of the others. With difference rewards every
sensor i has its own reward r_i, its contribution to the coverage, its own value V_i, and in PPO its own ratio, so that
its part of the action is judged by its own advantage::

    loss = -mean over i of min(rho_i A_i, clip(rho_i, 1 - c, 1 + c) A_i),   rho_i = pi(a_i | s) / pi_old(a_i | s)

where i runs over the acting sensors. The rewards come from ``credit="difference_rewards"`` of
:class:`hitmac.envs.wrappers.sb3_env.DirectionalSensorVecEnv`. Stable-Baselines3's algorithms need no change.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.distributions import BernoulliDistribution
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor


class SensorBernoulli(BernoulliDistribution):
    """Assignment of m targets to n sensors (B, n * m), independent for each pair, with a likelihood of every sensor."""

    def __init__(self, num_sensors: int, num_targets: int) -> None:
        super().__init__(num_sensors * num_targets)
        self.sizes = num_sensors, num_targets

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-likelihood (B, n) of every sensor's part of the actions."""
        return self.distribution.log_prob(actions).unflatten(-1, self.sizes).sum(-1)

    def entropy(self) -> Tensor:
        """Return the entropy (B, n) of every sensor's part of the actions."""
        return self.distribution.entropy().unflatten(-1, self.sizes).sum(-1)


def acting_or_all(acting: Any) -> Any:
    """Return the mask of acting sensors of a minibatch, or of all if none acts, so that no mean is empty."""
    return acting | ~acting.any()


class ActingRolloutBuffer(DictRolloutBuffer):
    """Stable-Baselines3's rollout buffer with samples only of rows in which a sensor acts.

    `acting` returns the current mask (B,) of these rows, as
    :meth:`hitmac.envs.wrappers.sb3_env.DirectionalSensorVecEnv.acting` does.
    """

    def __init__(self, *args: Any, acting: Callable[[], np.ndarray], **kwargs: Any) -> None:
        self._read_acting = acting
        super().__init__(*args, **kwargs)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of the numbers of a step: (B,)."""
        return (self.n_envs,)

    def reset(self) -> None:
        """Start a rollout with empty arrays (steps, B)."""
        super().reset()
        self._acting_now = self._read_acting().copy()
        shape = self.buffer_size, *self.row_shape
        self.acting = np.ones(shape, np.bool_)
        for name in ("rewards", "values", "log_probs", "advantages", "returns"):
            setattr(self, name, np.zeros(shape, np.float32))

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add one step of all rows, see ``DictRolloutBuffer``; call it after the environment's step."""
        self.acting[self.pos], self._acting_now = self._acting_now, self._read_acting().copy()
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Any, dones: np.ndarray) -> None:
        """Compute generalised advantage estimates of every row, or of every sensor.

        ``A_t = delta_t + gamma lambda A_(t+1)``, ``delta_t = r_t + gamma V_(t+1) - V_t``, truncated where an episode
        ends. Where a sensor stops acting at t + 1, V_t replaces V_(t+1) and the sum is truncated.
        """
        shape = self.values.shape[1:]
        value = torch.as_tensor(last_values).cpu().numpy().reshape(shape)
        goes_on, acts = 1.0 - dones.astype(np.float32), self._acting_now
        advantage = np.zeros(shape, np.float32)
        for step in reversed(range(self.buffer_size)):
            more = goes_on.reshape(-1, *[1] * (len(shape) - 1))
            then = np.where(acts, value, self.values[step])
            delta = self.rewards[step] + self.gamma * then * more - self.values[step]
            advantage = delta + self.gamma * self.gae_lambda * (more * acts) * advantage
            self.advantages[step] = advantage
            value, goes_on, acts = self.values[step], 1.0 - self.episode_starts[step], self.acting[step]
        self.returns = self.advantages + self.values

    def get(self, batch_size: int | None = None) -> Iterator[Any]:  # type: ignore[override]
        """Yield minibatches in random order."""
        total = self.buffer_size * self.n_envs
        indices = np.random.permutation(total)  # noqa: NPY002 - Stable-Baselines3's own stream
        if not self.generator_ready:
            self.observations = {name: self.swap_and_flatten(array) for name, array in self.observations.items()}
            for name in ("actions", "values", "log_probs", "advantages", "returns", "acting"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))  # (steps * B, ...)
            self.generator_ready = True
        indices = indices[acting_or_all(self.acting.any(-1))[indices]]
        size = total if batch_size is None else batch_size
        for first in range(0, len(indices), size):
            yield self._get_samples(indices[first : first + size])


class SensorRolloutBuffer(ActingRolloutBuffer):
    """Rollout buffer with rewards, values, likelihoods and advantages of every acting sensor (B, n)."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of the numbers of a step: (B, n)."""
        return self.n_envs, self.observation_space["mask"].shape[0]  # type: ignore[index]

    def add(self, *args: Any) -> None:
        """Add one step of all scenes; reward, value and likelihood are (B, n)."""
        *others, value, log_prob = args
        super().add(*others, value[:1, :1], log_prob)  # Stable-Baselines3 flattens the values
        self.values[self.pos - 1] = value.cpu().numpy()

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> Any:
        """Return the samples of acting sensors, in the order of the policy's ``evaluate_actions``."""
        samples, acting = super()._get_samples(batch_inds), acting_or_all(self.acting[batch_inds]).ravel()
        names = ("old_values", "old_log_prob", "advantages", "returns")
        return samples._replace(**{name: getattr(samples, name)[acting] for name in names})
