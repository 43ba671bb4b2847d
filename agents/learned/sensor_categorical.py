"""Distribution of the decisions of many sensors, computed at once."""

from __future__ import annotations

from typing import Any, Self

from stable_baselines3.common.distributions import Distribution
from torch import Tensor, nn
from torch.distributions import Categorical


class SensorCategorical(Distribution):
    """Independent choices of one of k actions, as of Stable-Baselines3's distribution of a ``MultiDiscrete`` space.

    Args:
        num_actions: k.
    """

    distribution: Categorical

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.num_actions = num_actions

    def proba_distribution_net(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Raise NotImplementedError, since the policy has heads of its own."""
        raise NotImplementedError

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Take the logits (B, c * k) of c choices."""
        self.distribution = Categorical(logits=action_logits.unflatten(-1, (-1, self.num_actions)), validate_args=False)
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return (B,) the log-likelihoods of actions (B, c)."""
        return self.distribution.log_prob(actions).sum(-1)

    def entropy(self) -> Tensor:
        """Return (B,)."""
        return self.distribution.entropy().sum(-1)

    def sample(self) -> Tensor:
        """Draw actions (B, c)."""
        return self.distribution.sample()

    def mode(self) -> Tensor:
        """Return the most likely actions (B, c)."""
        return self.distribution.logits.argmax(-1)

    def actions_from_params(self, action_logits: Tensor, deterministic: bool = False) -> Tensor:
        """Return actions (B, c), given the logits."""
        return self.proba_distribution(action_logits).get_actions(deterministic)

    def log_prob_from_params(self, action_logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (B, c) and their log-likelihoods (B,), given the logits."""
        actions = self.actions_from_params(action_logits)
        return actions, self.log_prob(actions)
