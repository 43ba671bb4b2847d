"""Encoder of agent-target features into per-target, per-agent and global features."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from perception.ablations import RecurrentLayer
from perception.checks import check_choice, check_count, check_tokens, check_widths
from perception.functional import pool, zero_masked
from perception.tanh_attention import AttentionLayer

ATTEND_OVER = ("agents", "targets", "pairs", "axes")
"""The sets that the encoder can attend over."""


class Features(NamedTuple):
    """Encoder outputs for a scene with n agents and m targets."""

    per_target: Tensor
    """(..., n, m, f): one feature for every pair of an agent and a target."""
    per_agent: Tensor
    """(..., n, f): one feature for every agent."""
    global_feature: Tensor
    """(..., f): one feature for the whole scene."""


class Weights(NamedTuple):
    """Attention weights; None where the encoder does not attend. The axis of the h heads precedes the last two."""

    targets: Tensor | None = None
    """(..., n, h, m, m): for every agent, from each of its targets to each."""
    agents: Tensor | None = None
    """(..., h, n, n): from each agent to each; with ``"axes"`` for every target, (..., m, h, n, n)."""
    pairs: Tensor | None = None
    """(..., h, n * m, n * m): from each pair to each, in the order i * m + j."""


class FourierFeatures(nn.Module):
    """Layer that appends sines and cosines to features: (..., d) -> (..., d * (1 + 2 K))."""

    def __init__(self, frequencies: int) -> None:
        super().__init__()
        self.frequencies = frequencies

    def forward(self, x: Tensor) -> Tensor:
        """Return x, then all sin(pi k x), then all cos(pi k x)."""
        # Not a buffer: a change of dtype would round it, and loading tensors would leave it empty.
        wide = torch.promote_types(x.dtype, torch.float32)
        multiples = math.pi * torch.arange(1, self.frequencies + 1, dtype=wide, device=x.device)
        angles = (x.to(wide).unsqueeze(-1) * multiples).flatten(-2)  # (..., d * K)
        return torch.cat((x, angles.sin().to(x.dtype), angles.cos().to(x.dtype)), -1)

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"frequencies={self.frequencies}"


class AgentTargetEncoder(nn.Module):
    """Encoder of n agents' features of m targets, with the tanh-projected attention of HiT-MAC.

    Every pair's features pass through a linear layer with a ReLU, and then through attention in one of four ways:

    - ``"agents"``: over each agent's targets, then over the agents, so that each agent takes the others into account;
    - ``"targets"``: over each agent's own targets only;
    - ``"pairs"``: over all n * m pairs as one sequence, as in the paper's coordinator;
    - ``"axes"``: from every pair over the pairs of its agent, and over the pairs of its target. Both results are added
      to the pair's embedding. Such layers are equivariant to permutations of rows and columns (Hartford and others,
      "Deep models of interactions across sets", ICML 2018). The cost is n m (n + m) instead of (n m)^2.

    The encoder accepts any n and m at run time. Permuting agents or targets permutes the outputs in the same way.

    Args:
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs.
        attend_over: ``"agents"``, ``"targets"``, ``"pairs"`` or ``"axes"``.
        pooling: ``"sum"``, the paper's, or ``"mean"``, which does not grow with n and m.
        num_heads, scaled: see :class:`perception.AttentionLayer`.
        embed_layers: number of linear layers with a ReLU before the attention; 1 or more (the paper's coordinator
            has 2).
        frequencies: K, number of sines and cosines appended to every input feature x: sin(pi k x) and cos(pi k x) for
            k = 1 .. K; 0 or more. They remove the jump of a bearing, given in half turns, behind the sensor, and make
            thresholds easier to learn (Tancik and others, "Fourier features let networks learn high frequency
            functions in low dimensional domains", NeurIPS 2020).
        layer: ``"attention"``, or ``"recurrent"`` for :class:`perception.ablations.RecurrentLayer`, the paper's
            ablation, which depends on the order of agents and targets.

    Raises:
        ValueError: a width or number under 1, an unknown `attend_over`, `pooling` or `layer`, heads that do not
            divide weight_dim.
    """

    def __init__(
        self,
        feature_dim: int,
        weight_dim: int,
        *,
        attend_over: str = "agents",
        pooling: str = "sum",
        num_heads: int = 1,
        scaled: bool = False,
        embed_layers: int = 1,
        frequencies: int = 0,
        layer: str = "attention",
    ) -> None:
        super().__init__()
        check_widths(feature_dim=feature_dim, weight_dim=weight_dim, embed_layers=embed_layers)
        check_choice("pooling", pooling, ("sum", "mean"))
        check_choice("attend_over", attend_over, ATTEND_OVER)
        check_choice("layer", layer, ("attention", "recurrent"))
        self.feature_dim, self.weight_dim = feature_dim, weight_dim
        self.attend_over, self.pooling = attend_over, pooling
        self.embed = nn.Sequential()
        if check_count(frequencies=frequencies):
            self.embed.append(FourierFeatures(frequencies))
        for width in (feature_dim * (1 + 2 * frequencies), *[weight_dim] * (embed_layers - 1)):
            linear = nn.Linear(width, weight_dim)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            self.embed.extend((linear, nn.ReLU()))
        options: dict[str, Any] = {"pooling": pooling}
        kind: type[nn.Module] = RecurrentLayer
        if layer == "attention":
            kind, options = AttentionLayer, {"pooling": pooling, "num_heads": num_heads, "scaled": scaled}
        self.attention = kind(weight_dim, weight_dim, **options)
        self.between_agents = kind(weight_dim, weight_dim, **options) if attend_over in ("agents", "axes") else None

    def forward(
        self, pairs: Tensor, mask: Tensor | None = None, *, need_weights: bool = False
    ) -> Features | tuple[Features, Weights]:
        """Encode a batch of scenes.

        Args:
            pairs: (..., n, m, feature_dim) with any number of leading axes, or none; n and m are 0 or more.
            mask: (..., n, m), 0 and 1 in any dtype (the environments' int8, Stable-Baselines3's float32); 1 marks a
                valid pair. None: all are valid. An agent without any valid pair counts as absent.
            need_weights: also return the attention weights.

        Returns:
            :class:`Features`, zero for absent pairs and agents, and with `need_weights` also :class:`Weights`.

        Raises:
            ValueError: the last axis is not feature_dim, or the mask's shape is not (..., n, m).
            TypeError: the mask is not a tensor.
        """
        mask = check_tokens(pairs, mask, self.feature_dim, axes=2)
        embedded = self.embed(zero_masked(pairs, mask))  # (..., n, m, f)
        if self.attend_over == "pairs":
            all_there = None if mask is None else mask.flatten(-2)
            z, global_feature, *weights = self.attention(embedded.flatten(-3, -2), all_there, need_weights=need_weights)
            per_target = z.unflatten(-2, pairs.shape[-3:-1])
            features = Features(per_target, pool(per_target, mask, self.pooling), global_feature)
            return (features, Weights(pairs=weights[0])) if need_weights else features
        if self.attend_over == "axes":
            assert self.between_agents is not None
            of_agent, _, *of_targets = self.attention(embedded, mask, need_weights=need_weights)
            columns = None if mask is None else mask.mT  # (..., m, n)
            of_target, _, *of_agents = self.between_agents(
                embedded.transpose(-2, -3), columns, need_weights=need_weights
            )
            per_target = zero_masked(embedded + of_agent + of_target.transpose(-2, -3), mask)
            per_agent = pool(per_target, mask, self.pooling)
            present = None if mask is None else mask.any(-1)
            features = Features(per_target, per_agent, pool(per_agent, present, self.pooling))
            return (features, Weights(targets=of_targets[0], agents=of_agents[0])) if need_weights else features
        per_target, per_agent, *of_targets = self.attention(embedded, mask, need_weights=need_weights)
        present = None if mask is None else mask.any(-1)  # (..., n)
        if self.between_agents is None:
            features = Features(per_target, per_agent, pool(per_agent, present, self.pooling))
            return (features, Weights(targets=of_targets[0])) if need_weights else features
        of_others, global_feature, *of_agents = self.between_agents(per_agent, present, need_weights=need_weights)
        features = Features(per_target, per_agent + of_others, global_feature)
        return (features, Weights(of_targets[0], of_agents[0])) if need_weights else features

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"attend_over={self.attend_over!r}, pooling={self.pooling!r}"
