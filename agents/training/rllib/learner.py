"""PPO of RLlib with the samples, advantages and rates of the engine of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor

from hitmac.agents.learned.difference_rewards import acting_or_all
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training.resume import Moments, moments_of, put_moments
from hitmac.agents.training.rllib.module import AttentionRLModule
from hitmac.agents.training.rllib.runner import ACTING, ACTING_NEXT
from hitmac.agents.training.train import check_finite

Weights = dict[str, np.ndarray]
"""Tensors of a policy by their names in a checkpoint."""


class AttentionPPOLearner(PPOTorchLearner):
    """Learner of RLlib with the policy's own optimiser, and advantages normalised in each minibatch."""

    @property
    def policy(self) -> AttentionPolicy:
        """The policy that learns."""
        module = self.module[DEFAULT_MODULE_ID].unwrapped()
        assert isinstance(module, AttentionRLModule)
        return module.policy

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register the policy's optimiser, whose learning rate :meth:`set_rates` sets."""
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(module_id=module_id, optimizer=self.policy.optimizer, params=params)

    def compute_loss_for_module(self, *, batch: dict[str, Any], **kwargs: Any) -> Tensor:
        """Return the loss of PPO."""
        advantages = batch[Postprocessing.ADVANTAGES]
        if len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss: Any = super().compute_loss_for_module(batch={**batch, Postprocessing.ADVANTAGES: advantages}, **kwargs)
        return loss

    def set_rates(self, learning_rate: float, entropy: float) -> None:
        """Set the learning rate and the weight of the entropy bonus."""
        for group in self.policy.optimizer.param_groups:
            group["lr"] = learning_rate
        schedule = Scheduler(fixed_value_or_schedule=entropy, framework=self.framework)
        self.entropy_coeff_schedulers_per_module[DEFAULT_MODULE_ID] = schedule

    def begin(self, weights: Weights, moments: Moments, seed: int) -> None:
        """Take over the weights of a policy and the moments of its optimiser; `seed` is that of the minibatches."""
        self.module[DEFAULT_MODULE_ID].unwrapped().set_state(weights)
        put_moments(self.policy.optimizer, moments)
        np.random.seed(seed)  # noqa: NPY002 - what RLlib shuffles with

    def moments(self) -> Moments:
        """Return the moments of the optimiser."""
        return moments_of(self.policy.optimizer)


class TrainBatch(ConnectorV2):
    """Connector from chunks of episodes to the rows to learn from, in random order: those in which a sensor acts.

    Args:
        gamma: discount for a step.
        gae_lambda: lambda of the generalised advantage estimate.
        rows: most rows whose values are computed at once.
    """

    def __init__(self, *spaces: Any, gamma: float, gae_lambda: float, rows: int) -> None:
        super().__init__(*spaces)
        self.gamma, self.gae_lambda, self.rows = gamma, gae_lambda, rows

    def __call__(self, *, rl_module: Any, episodes: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the batch of the one module."""
        module = rl_module[DEFAULT_MODULE_ID].unwrapped()
        assert isinstance(module, AttentionRLModule)
        device = next(module.parameters()).device
        episodes = sorted(episodes, key=lambda one: int(one.id_))  # whichever env runner was first
        lengths = np.array([len(one) for one in episodes])
        seen = {
            name: np.concatenate([one.observations.data[name] for one in episodes])
            for name in episodes[0].observations.data
        }
        rewards = np.concatenate([one.rewards.data for one in episodes])
        names = [one.id_ for one in episodes]
        check_finite("the reward", rewards, np.repeat(names, lengths))
        check_finite("the observation", seen["pairs"], np.repeat(names, lengths + 1))
        columns = {
            name: np.concatenate([one.extra_model_outputs[name].data for one in episodes])
            for name in (Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS, ACTING, ACTING_NEXT)
        }
        acting, acting_next = columns.pop(ACTING), columns.pop(ACTING_NEXT)
        ends = np.array([one.is_truncated for one in episodes])
        observations = {name: torch.from_numpy(array).to(device) for name, array in seen.items()}
        values = self._values(module, observations)
        advantages, returns = estimates(
            lengths, ends, rewards, values, acting_next, gamma=self.gamma, gae_lambda=self.gae_lambda
        )
        rows = np.random.permutation(np.flatnonzero(acting_or_all(acting)))  # noqa: NPY002 - RLlib's own stream
        columns |= {
            Columns.ACTIONS: np.concatenate([one.actions.data for one in episodes]),
            Postprocessing.ADVANTAGES: advantages,
            Postprocessing.VALUE_TARGETS: returns,
        }
        taken = torch.from_numpy(not_last(lengths)[rows]).to(device)
        batch: dict[str, Any] = {name: torch.from_numpy(array[rows]).to(device) for name, array in columns.items()}
        batch[Columns.OBS] = {name: tensor[taken] for name, tensor in observations.items()}
        return {DEFAULT_MODULE_ID: batch}

    def _values(self, module: AttentionRLModule, observations: dict[str, Tensor]) -> np.ndarray:
        """Return the values of all observations, a part at a time."""
        parts = zip(*(tensor.split(self.rows) for tensor in observations.values()), strict=True)
        with torch.no_grad():
            values = [
                module.compute_values({Columns.OBS: dict(zip(observations, part, strict=True))}) for part in parts
            ]
        return torch.cat(values).cpu().numpy()


def not_last(lengths: np.ndarray) -> np.ndarray:
    """Return the places of all observations but the last of each chunk, for chunks of `lengths` steps one by one."""
    return np.arange(lengths.sum()) + np.repeat(np.arange(len(lengths)), lengths)


def estimates(
    lengths: np.ndarray,
    ends: np.ndarray,
    rewards: np.ndarray,
    values: np.ndarray,
    acting_next: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return generalised advantage estimates of chunks of episodes one after the other, and the returns.

    ``A_t = delta_t + gamma lambda A_(t+1)``, ``delta_t = r_t + gamma V_(t+1) - V_t``, from the end of each chunk, where
    the value of the last observation counts on. Where no sensor acts at t + 1, V_t stands for V_(t+1) and the sum is
    cut.

    Args:
        lengths: (C,), steps of each chunk.
        ends: (C,) bool, where a chunk ends by the time limit of its episode, not by the end of the rollout.
        rewards: (S,) of all steps.
        values: (S + C,) of all observations, one more for each chunk than it has steps.
        acting_next: (S,) bool, whether a sensor acts in the step after.
        gamma: discount for a step.
        gae_lambda: lambda.
    """
    before = not_last(lengths)
    acts = acting_next.copy()
    last = lengths.cumsum() - 1
    acts[last] |= ends  # the episode's last observation is not that of the step after, which is of the next episode
    value = values[before]
    delta = rewards + gamma * np.where(acts, values[before + 1], value) - value
    advantages, following = np.zeros_like(delta), np.zeros(len(lengths), delta.dtype)
    for step in reversed(range(int(lengths.max()))):
        chunks = np.flatnonzero(lengths > step)
        places = (last + 1 - lengths)[chunks] + step
        following[chunks] = delta[places] + gamma * gae_lambda * acts[places] * following[chunks]
        advantages[places] = following[chunks]
    return advantages, advantages + value
