"""The attention policy for Stable-Baselines3: the encoder, a head for the actions, a critic."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from agents.credit import SensorBernoulli
from perception import AgentTargetEncoder, AMCCritic, FlatEncoder
from perception.amc import KINDS
from perception.checks import check_choice, check_widths

ENCODERS = ("attention", "recurrent", "mlp")
"""HiT-MAC's encoder; the paper's ablation with a GRU in place of attention; a plain network."""


class AttentionExtractor(BaseFeaturesExtractor):
    """:class:`perception.AgentTargetEncoder` as a Stable-Baselines3 features extractor.

    The features of a scene are its global feature and then every sensor's, ``(B, (1 + n) * weight_dim)``; with
    `per_target` every pair's follow, and then the mask, ``(B, (1 + n + n * m) * weight_dim + n * m)``.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m), or of one sensor (m, d) and (m,).
        weight_dim: width of the encoder.
        encoder: ``"attention"``, ``"recurrent"`` or ``"mlp"`` (:class:`perception.FlatEncoder`, for n and m as
            they are in the observation space alone).
        attend_over, pooling, embed_layers, frequencies: see :class:`perception.AgentTargetEncoder`; ``"mlp"`` has none
            of them.
        per_target: the features hold every pair's too.

    Raises:
        ValueError: the observation space is another, or an option is out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        weight_dim: int = 64,
        encoder: str = "attention",
        attend_over: str = "agents",
        pooling: str = "sum",
        embed_layers: int = 1,
        frequencies: int = 0,
        per_target: bool = False,
    ) -> None:
        check_widths(weight_dim=weight_dim)
        check_choice("encoder", encoder, ENCODERS)
        n, m, feature_dim = shape_of(observation_space)
        features_dim = (1 + n) * weight_dim + (n * m * (weight_dim + 1) if per_target else 0)
        super().__init__(observation_space, features_dim)
        self.num_sensors, self.num_targets, self.weight_dim, self.per_target = n, m, weight_dim, per_target
        self.encoder: nn.Module = (
            FlatEncoder(n, m, feature_dim, weight_dim)
            if encoder == "mlp"
            else AgentTargetEncoder(
                feature_dim,
                weight_dim,
                attend_over=attend_over,
                pooling=pooling,
                embed_layers=embed_layers,
                frequencies=frequencies,
                layer=encoder,
            )
        )

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """The features of every scene, flat."""
        pairs, mask = observations["pairs"], observations["mask"].bool()
        if pairs.ndim == 3:  # a sensor by itself is a scene with one sensor
            pairs, mask = pairs.unsqueeze(1), mask.unsqueeze(1)
        # Attention without a mask is faster, and whole scenes are the rule.
        features = self.encoder(pairs, None if bool(mask.all()) else mask)
        parts = [features.global_feature, features.per_agent.flatten(1)]
        if self.per_target:
            parts += [features.per_target.flatten(1), mask.flatten(1).to(pairs.dtype)]
        return torch.cat(parts, -1)


class _Split(nn.Module):
    """The features of a scene as what the actor and what the critic start from."""

    def __init__(self, extractor: AttentionExtractor, pairs_to_critic: bool, credit: str) -> None:
        super().__init__()
        self.credit = credit
        self.n, self.m, self.width = extractor.num_sensors, extractor.num_targets, extractor.weight_dim
        self.per_target, self.pairs_to_critic = extractor.per_target, pairs_to_critic
        self.latent_dim_pi = (3 if self.per_target else 2) * self.width
        self.latent_dim_vf = self.width + 1 if pairs_to_critic else self.width * (2 if credit == "sensors" else 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What :meth:`forward_actor` and :meth:`forward_critic` give."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """Each sensor's feature beside the global one (B, n, 2 f); or each pair's beside these (B, n * m, 3 f)."""
        sensors = self._sensors(features)
        if not self.per_target:
            return sensors
        return torch.cat((self._pairs(features)[..., :-1], sensors.repeat_interleave(self.m, 1)), -1)

    def forward_critic(self, features: Tensor) -> Tensor:
        """The global feature (B, f), or each sensor's beside it; or every pair's and its mask (B, n * m, f + 1)."""
        if self.pairs_to_critic:
            return self._pairs(features)
        return self._sensors(features) if self.credit == "sensors" else features[:, : self.width]

    def _sensors(self, features: Tensor) -> Tensor:
        """Each sensor's feature beside the global one (B, n, 2 f)."""
        sensors = features[:, self.width : (1 + self.n) * self.width].unflatten(-1, (self.n, self.width))
        return torch.cat((sensors, features[:, None, : self.width].expand_as(sensors)), -1)

    def _pairs(self, features: Tensor) -> Tensor:
        """Every pair's feature and its mask (B, n * m, f + 1)."""
        count = self.n * self.m
        z, mask = features[:, (1 + self.n) * self.width :].split((count * self.width, count), -1)
        return torch.cat((z.unflatten(-1, (count, self.width)), mask.unsqueeze(-1)), -1)


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


class _PairsCritic(nn.Module):
    """The AMC critic on every pair's feature and mask (B, n * m, f + 1): one value (B, 1), or every sensor's (B, n)."""

    def __init__(self, width: int, kind: str, num_sensors: int, credit: str) -> None:
        super().__init__()
        self.critic = AMCCritic(width, kind=kind)
        # Its value is a sum over all pairs: started small, since its errors would drown the actor's gradient.
        nn.init.xavier_uniform_(self.critic.linear.weight, 0.01)
        self.num_sensors, self.credit = num_sensors, credit

    def forward(self, latent: Tensor) -> Tensor:
        """The value of the scene, or what each sensor's pairs contribute to it."""
        z, mask = latent[..., :-1], latent[..., -1].bool()
        value, contributions = self.critic(z, None if bool(mask.all()) else mask, return_contributions=True)
        if self.credit == "team":
            return value.unsqueeze(-1)
        return contributions.unflatten(-1, (self.num_sensors, -1)).sum(-1)


class AttentionPolicy(ActorCriticPolicy):
    """Actor and critic on the attention encoder.

    The action space says what drives the actions. Turns come from a sensor's feature and the global one, by one head
    that all sensors share; an assignment comes from a pair's feature, its sensor's and the global one, by one head
    that all pairs share, independently for every pair (Xu, Zhong, Wang, NeurIPS 2020, section 3.2). The value comes
    from the global feature, or from all pairs by the paper's AMC critic. All start Xavier-uniform:
    Stable-Baselines3's orthogonal start, which would overwrite the encoder's, is never applied.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m), or of one sensor (m, d) and (m,).
        action_space: ``MultiDiscrete([k] * n)``, one action for each of the n sensors, or ``[k] * (n * j)``, the
            first action of every sensor, then the second of every sensor, ...; ``Discrete(k)`` of one sensor;
            ``MultiBinary(n * m)``, an assignment, pair (i, j) at i * m + j.
        lr_schedule: Stable-Baselines3's learning rate schedule.
        weight_dim, encoder, attend_over, pooling, embed_layers, frequencies: see :class:`AttentionExtractor`.
        critic: ``"amc"``, ``"no_prefix"`` (see :class:`perception.AMCCritic`) or ``"value_head"``, on the global
            feature; None: ``"amc"`` for an assignment, ``"value_head"`` for turns.
        credit: ``"team"``: one value; ``"sensors"``: of an assignment, values and likelihoods are every sensor's own,
            see :mod:`agents.credit`.
        **kwargs: what Stable-Baselines3's ``ActorCriticPolicy`` takes besides.

    Raises:
        ValueError: the spaces are others, or an option is out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *,
        weight_dim: int = 64,
        encoder: str = "attention",
        attend_over: str = "agents",
        pooling: str = "sum",
        embed_layers: int = 1,
        frequencies: int = 0,
        critic: str | None = None,
        credit: str = "team",
        **kwargs: Any,
    ) -> None:
        self.assigns = isinstance(action_space, spaces.MultiBinary)
        check_choice("credit", credit, ("team", "sensors"))
        if credit == "sensors" and not self.assigns:
            raise ValueError(f"credit is 'sensors', for an assignment; the action space is {action_space}")
        self.credit = credit
        self.critic_kind = critic or ("amc" if self.assigns else "value_head")
        check_choice("critic", self.critic_kind, KINDS)
        n, m, _ = shape_of(observation_space)
        self.num_actions, self.decisions = _actions(action_space, n, m)
        kwargs.setdefault("features_extractor_class", AttentionExtractor)
        kwargs.setdefault(
            "features_extractor_kwargs",
            {
                "weight_dim": weight_dim,
                "encoder": encoder,
                "attend_over": attend_over,
                "pooling": pooling,
                "embed_layers": embed_layers,
                "frequencies": frequencies,
                "per_target": self.assigns or self.critic_kind != "value_head",
            },
        )
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        extractor = self.features_extractor
        assert isinstance(extractor, AttentionExtractor)
        width, value_head = extractor.weight_dim, self.critic_kind == "value_head"
        # Stable-Baselines3 names these for its own kinds of network, and calls them as it would call those.
        split = _Split(extractor, pairs_to_critic=not value_head, credit=self.credit)
        self.mlp_extractor = split  # type: ignore[assignment]
        outputs = self.decisions * self.num_actions
        head = _head(split.latent_dim_pi, width, outputs, gain=0.01)
        self.action_net = nn.Sequential(head, nn.Flatten() if self.assigns else _Decisions(self.decisions))
        n, m = extractor.num_sensors, extractor.num_targets
        if not value_head:
            self.value_net = _PairsCritic(width, self.critic_kind, n, self.credit)  # type: ignore[assignment]
        else:
            value = _head(split.latent_dim_vf, width, 1, gain=1.0)
            self.value_net = nn.Sequential(value, nn.Flatten(-2)) if self.credit == "sensors" else value  # type: ignore[assignment]
        if self.credit == "sensors":
            self.action_dist = SensorBernoulli(n, m)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def predict_values(self, obs: Any) -> Any:
        """The values (B, 1); with credit for sensors (B, n), as a numpy array.

        Stable-Baselines3 adds what comes after a time limit to the rewards of a scene, and a row of an array takes no
        tensor.
        """
        values = super().predict_values(obs)
        return values.detach().cpu().numpy() if self.credit == "sensors" else values

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        """The actions in their space's own type; Stable-Baselines3 gives those of an assignment as floats."""
        actions = super()._predict(observation, deterministic)
        return actions.to(torch.int8) if self.assigns else actions


def shape_of(observation_space: spaces.Space) -> tuple[int, int, int]:
    """The n, m and d of an observation space, or a ValueError; a sensor by itself is a scene with one sensor."""
    if not isinstance(observation_space, spaces.Dict) or set(observation_space) != {"pairs", "mask"}:
        raise ValueError(f"the observation space is {observation_space}; it must be a Dict of pairs and mask")
    pairs = observation_space["pairs"].shape or ()
    n, m, feature_dim = pairs if len(pairs) == 3 else (1, *pairs)
    return n, m, feature_dim


def _actions(action_space: spaces.Space, n: int, m: int) -> tuple[int, int]:
    """How many actions there are to choose from, and how often every sensor (or pair) chooses; or a ValueError."""
    if isinstance(action_space, spaces.MultiBinary):
        if action_space.shape != (n * m,):
            raise ValueError(f"the action space is {action_space}; it must be MultiBinary({n * m}), one for every pair")
        return 1, 1
    if isinstance(action_space, spaces.Discrete):
        choices = [int(action_space.n)]
    elif isinstance(action_space, spaces.MultiDiscrete):
        choices = action_space.nvec.tolist()
    else:
        choices = []
    if len(set(choices)) != 1:
        raise ValueError(
            f"the action space is {action_space}; it must be MultiDiscrete([k] * n), Discrete(k) or MultiBinary(n * m)"
        )
    decisions, rest = divmod(len(choices), n)
    if rest or not decisions:
        raise ValueError(
            f"the action space has {len(choices)} actions, the observation {n} sensors; "
            "there must be as many actions for each"
        )
    return choices[0], decisions
