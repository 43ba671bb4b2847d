"""The attention policy for Stable-Baselines3: the encoder, one action head per sensor, a value head."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from perception import AgentTargetEncoder
from perception.checks import check_widths


class AttentionExtractor(BaseFeaturesExtractor):
    """:class:`perception.AgentTargetEncoder` as a Stable-Baselines3 features extractor.

    The features of a scene are its global feature and then every sensor's: ``(B, (1 + n) * weight_dim)``.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m).
        weight_dim: width of the encoder.
        attend_over, pooling: see :class:`perception.AgentTargetEncoder`.

    Raises:
        ValueError: the observation space is another, or an option is out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        weight_dim: int = 64,
        attend_over: str = "agents",
        pooling: str = "sum",
    ) -> None:
        if not isinstance(observation_space, spaces.Dict) or set(observation_space) != {"pairs", "mask"}:
            raise ValueError(f"the observation space is {observation_space}; it must be a Dict of pairs and mask")
        check_widths(weight_dim=weight_dim)
        num_sensors, _, feature_dim = observation_space["pairs"].shape or ()
        super().__init__(observation_space, features_dim=(1 + num_sensors) * weight_dim)
        self.num_sensors, self.weight_dim = num_sensors, weight_dim
        self.encoder = AgentTargetEncoder(feature_dim, weight_dim, attend_over=attend_over, pooling=pooling)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """(B, (1 + n) * weight_dim): the global feature, then each sensor's."""
        mask = observations["mask"].bool()
        # Attention without a mask is faster, and whole scenes are the rule.
        features = self.encoder(observations["pairs"], None if bool(mask.all()) else mask)
        return torch.cat((features.global_feature, features.per_agent.flatten(-2)), -1)


class _Split(nn.Module):
    """The features of a scene as what the actor and what the critic start from."""

    def __init__(self, num_sensors: int, weight_dim: int) -> None:
        super().__init__()
        self.num_sensors, self.weight_dim = num_sensors, weight_dim
        self.latent_dim_pi, self.latent_dim_vf = 2 * weight_dim, weight_dim

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, n, 2 * weight_dim) for the actor and (B, weight_dim) for the critic."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """Each sensor's feature beside the global one."""
        scene, sensors = features.split((self.weight_dim, self.num_sensors * self.weight_dim), -1)
        sensors = sensors.unflatten(-1, (self.num_sensors, self.weight_dim))
        return torch.cat((sensors, scene.unsqueeze(-2).expand_as(sensors)), -1)

    def forward_critic(self, features: Tensor) -> Tensor:
        """The global feature."""
        return features[..., : self.weight_dim]


def _head(width: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """A hidden layer with ReLU and a linear output whose start is scaled by `gain`."""
    first, last = nn.Linear(width, hidden), nn.Linear(hidden, outputs)
    for layer, layer_gain in ((first, 1.0), (last, gain)):
        nn.init.xavier_uniform_(layer.weight, layer_gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.ReLU(), last)


class _Decisions(nn.Module):
    """The logits of every sensor's decisions (B, n, j * k) in the order of the action space, (B, j * n * k)."""

    def __init__(self, decisions: int) -> None:
        super().__init__()
        self.decisions = decisions

    def forward(self, logits: Tensor) -> Tensor:
        """First the first decision of every sensor, then the second."""
        return logits.unflatten(-1, (self.decisions, -1)).transpose(-2, -3).flatten(-3)


class AttentionPolicy(ActorCriticPolicy):
    """Actor and critic on the attention encoder.

    One head, shared by all sensors, maps a sensor's feature and the global feature to the logits of its
    actions; another maps the global feature to the value. All start Xavier-uniform: Stable-Baselines3's
    orthogonal start, which would overwrite the encoder's, is never applied.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m).
        action_space: ``MultiDiscrete([k] * n)``, one action for each of the n sensors, or ``[k] * (n * j)``, the
            first action of every sensor, then the second of every sensor, ...
        lr_schedule: Stable-Baselines3's learning rate schedule.
        weight_dim, attend_over, pooling: see :class:`AttentionExtractor`.
        **kwargs: what Stable-Baselines3's ``ActorCriticPolicy`` takes besides.

    Raises:
        ValueError: the spaces are others.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *,
        weight_dim: int = 64,
        attend_over: str = "agents",
        pooling: str = "sum",
        **kwargs: Any,
    ) -> None:
        if not isinstance(action_space, spaces.MultiDiscrete) or len(set(action_space.nvec.tolist())) != 1:
            raise ValueError(f"the action space is {action_space}; it must be MultiDiscrete([k] * n)")
        kwargs.setdefault("features_extractor_class", AttentionExtractor)
        kwargs.setdefault(
            "features_extractor_kwargs", {"weight_dim": weight_dim, "attend_over": attend_over, "pooling": pooling}
        )
        num_sensors = observation_space["pairs"].shape[0]  # type: ignore[index]
        self.decisions, rest = divmod(len(action_space.nvec), num_sensors)  # of every sensor
        if rest or not self.decisions:
            raise ValueError(
                f"the action space has {len(action_space.nvec)} actions, "
                f"the observation {num_sensors} sensors; there must be as many actions for each"
            )
        self.num_actions = int(action_space.nvec[0])
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        extractor = self.features_extractor
        assert isinstance(extractor, AttentionExtractor)
        width = extractor.weight_dim
        # Stable-Baselines3 names these for its own kinds of network, and calls them as it would call those.
        self.mlp_extractor = _Split(extractor.num_sensors, width)  # type: ignore[assignment]
        head = _head(2 * width, width, self.decisions * self.num_actions, gain=0.01)
        self.action_net = nn.Sequential(head, _Decisions(self.decisions))
        self.value_net = _head(width, width, 1, gain=1.0)  # type: ignore[assignment]
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]
