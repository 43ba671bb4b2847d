"""Attention policy as an RLModule of RLlib."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, Independent

from hitmac.agents.learned.checkpoint import tensors_of
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.perception import Features

try:
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.distribution.torch.torch_distribution import TorchDeterministic, TorchDistribution
    from ray.rllib.core.rl_module.apis import ValueFunctionAPI
    from ray.rllib.core.rl_module.torch import TorchRLModule
except ModuleNotFoundError:
    raise ModuleNotFoundError("RLModules require RLlib: pip install 'hitmac[rllib]'") from None


def weights_of(policy: nn.Module) -> dict[str, np.ndarray]:
    """Return the tensors of a policy by their names in a checkpoint."""
    return {name: tensor.cpu().numpy() for name, tensor in tensors_of(policy).items()}


def put_weights(policy: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load the result of :func:`weights_of`."""
    for name, own in tensors_of(policy).items():
        own.copy_(torch.tensor(weights[name]))  # a copy, since Ray's memory is read-only


class Choices(TorchDistribution):
    """Distribution of c independent choices of one of k actions, with logits (B, c * k)."""

    num_actions: int  # k
    shape: tuple[int, ...]  # (c,), or () for a single choice

    @classmethod
    def of(cls, space: spaces.Space) -> "type[Choices]":
        """Return the class for an action space: MultiDiscrete, Discrete, or MultiBinary, with k = 2."""
        k = 2 if isinstance(space, spaces.MultiBinary) else int(np.max(getattr(space, "nvec", getattr(space, "n", 0))))
        return type(cls.__name__, (cls,), {"num_actions": k, "shape": space.shape})

    @staticmethod
    def required_input_dim(space: spaces.Space, **kwargs: Any) -> int:
        """Return c * k."""
        return Choices.of(space).num_actions * int(np.prod(space.shape or ()))

    def _get_torch_distribution(self, logits: Tensor) -> Independent:
        logits = logits.unflatten(-1, (*self.shape, self.num_actions))
        return Independent(Categorical(logits=logits, validate_args=False), len(self.shape), validate_args=False)

    def to_deterministic(self) -> TorchDeterministic:
        """Return the distribution of the most likely actions alone."""
        return TorchDeterministic(self._dist.base_dist.logits.argmax(-1))


class AttentionRLModule(TorchRLModule, ValueFunctionAPI):
    """:class:`~hitmac.agents.learned.policy.AttentionPolicy` for RLlib's algorithms with a value function.

    Observation and action spaces are the policy's. With likelihood 1, a sensor without any pair stays, and an absent
    pair is not assigned. ``model_config`` has the policy's options ``encoder_config`` and ``critic``:
    ``RLModuleSpec(AttentionRLModule, model_config={"encoder_config": EncoderConfig(weight_dim=32)})``.

    The module is an agent for ``evaluate(algorithm.get_module())``.

    Attributes:
        policy: the policy, for :func:`hitmac.agents.save_policy`.

    Raises:
        ValueError: unsupported spaces, or an option out of its range.
        TypeError: an unknown option.
    """

    def setup(self) -> None:
        """Build the networks."""
        assert self.observation_space is not None
        assert self.action_space is not None
        config: Any = self.model_config or {}
        options = {name: config[name] for name in ("encoder_config", "critic") if config.get(name) is not None}
        self.policy = AttentionPolicy(self.observation_space, self.action_space, lambda _: 1e-3, **options)
        self.action_dist_cls: Any = Choices.of(self.action_space)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features, mask = self.policy.encode(batch[Columns.OBS])
        logits = self.policy.action_net(features, mask)
        if self.policy.assigns:
            logits = torch.stack((torch.zeros_like(logits), logits), -1).flatten(-2)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: (features, mask)}

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward_inference(batch)

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        with torch.no_grad():
            return {Columns.ACTION_DIST_INPUTS: self._forward(batch)[Columns.ACTION_DIST_INPUTS]}

    def compute_values(self, batch: dict[str, Any], embeddings: tuple[Features, Tensor | None] | None = None) -> Tensor:
        """Return the values (B,) of a batch, from its features and mask if they are given."""
        features, mask = self.policy.encode(batch[Columns.OBS]) if embeddings is None else embeddings
        return self.policy.value_net(features, mask).squeeze(-1)

    def get_state(self, components: str | Collection[str] | None = None, **kwargs: Any) -> dict[str, np.ndarray]:
        """Return the tensors of the policy by their names in a checkpoint."""
        return weights_of(self.policy)

    def set_state(self, state: dict[str, Any]) -> None:
        """Load the tensors of :meth:`get_state`."""
        put_weights(self.policy, state)

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies, on scenes (B, n, m, d)."""
        actions, _ = self.policy.predict(observation, deterministic=deterministic)
        return actions, None
