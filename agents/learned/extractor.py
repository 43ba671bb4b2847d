"""Encoder as a Stable-Baselines3 features extractor."""

from __future__ import annotations

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from perception import AgentTargetEncoder, Features, FlatEncoder
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
        encoder: ``"attention"``, ``"recurrent"`` or ``"mlp"`` (:class:`perception.FlatEncoder`, only for n and m as
            they are in the observation space).
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
        self.weight_dim, self.per_target = weight_dim, per_target
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

    def encode(self, observations: dict[str, Tensor]) -> tuple[Features, Tensor | None]:
        """Return the features and the mask (B, n, m) bool, None where every pair is there."""
        pairs, mask = observations["pairs"], observations["mask"].bool()
        if pairs.ndim == 3:  # a sensor by itself is a scene with one sensor
            pairs, mask = pairs.unsqueeze(1), mask.unsqueeze(1)
        # Attention without a mask is faster, and whole scenes are the rule.
        some = None if bool(mask.all()) else mask
        return self.encoder(pairs, some), some

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return the features of every scene, flat."""
        features, mask = self.encode(observations)
        parts = [features.global_feature, features.per_agent.flatten(1)]
        if self.per_target:
            pairs = features.per_target
            there = pairs.new_ones(pairs.shape[:-1]) if mask is None else mask.to(pairs.dtype)
            parts += [pairs.flatten(1), there.flatten(1)]
        return torch.cat(parts, -1)


def shape_of(observation_space: spaces.Space) -> tuple[int, int, int]:
    """Return n, m and d of an observation space, or raise ValueError; a sensor by itself is a scene with one sensor."""
    if not isinstance(observation_space, spaces.Dict) or set(observation_space) != {"pairs", "mask"}:
        raise ValueError(f"the observation space is {observation_space}; it must be a Dict of pairs and mask")
    pairs = observation_space["pairs"].shape or ()
    n, m, feature_dim = pairs if len(pairs) == 3 else (1, *pairs)
    return n, m, feature_dim
