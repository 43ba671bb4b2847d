"""Ways of attending over the embedded pairs of a scene, by name.

A way is a function with the names of the layers that it needs. Each layer maps tokens (..., L, f) and a mask (..., L)
to outputs (..., L, f), their pooled feature (..., f) and on request the weights, as
:class:`hitmac.perception.AttentionLayer` does. The function takes

- layers: the encoder's layers, in the order of the names;
- embedded: (..., n, m, f), the pairs' embeddings;
- mask: (..., n, m) bool, or None where every pair is valid;
- pooling: a name out of :data:`hitmac.perception.pooling.FIXED_POOLINGS`;
- need_weights: whether the weights are asked for.

It returns :class:`hitmac.perception.Features`, zero for absent pairs and agents, and
:class:`hitmac.perception.Weights`.

A way may have a second function, for pairs that are listed by index, see :mod:`hitmac.perception.listed`. It takes the
layers, the :class:`~hitmac.perception.listed.Listed` pairs, their embeddings (T, f), pooling and need_weights, and
returns features per pair (T, f), per agent (B * n, f) and global (B, f), and the weights. Where everything is listed,
both compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hitmac.perception.features import Features, Weights
from hitmac.perception.functional import is_recorded, zero_masked
from hitmac.perception.listed import Listed, between, within
from hitmac.perception.pooling import pool

Layers = Sequence[nn.Module]


class Attending(NamedTuple):
    """Way of attending."""

    attend: Callable[[Layers, Tensor, Tensor | None, str, bool], tuple[Features, Weights]]
    """Function from the layers and the embedded pairs to the features and the weights."""
    layers: tuple[str, ...] = ("attention",)
    """Names of its layers in the encoder, and so in its tensors."""
    listed: Callable[[Layers, Listed, Tensor, str, bool], tuple[Features, Weights]] | None = None
    """Function for listed pairs; None: they cannot be attended over in this way."""
    columns: bool = False
    """Pairs of the same target attend to each other."""


def over_agents(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's targets, then over the agents, so that each agent takes the others into account."""
    per_target, per_agent, of_targets = _apply(layers[0], embedded, mask, need_weights)
    of_others, global_feature, of_agents = _apply(layers[1], per_agent, _present(mask), need_weights)
    return Features(per_target, per_agent + of_others, global_feature), Weights(targets=of_targets, agents=of_agents)


def over_targets(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's own targets only."""
    per_target, per_agent, of_targets = _apply(layers[0], embedded, mask, need_weights)
    global_feature = pool(per_agent, _present(mask), pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets)


def over_pairs(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over all n * m pairs as one sequence, as the paper's coordinator does."""
    sequence = None if mask is None else mask.flatten(-2)  # (..., n * m)
    z, global_feature, of_pairs = _apply(layers[0], embedded.flatten(-3, -2), sequence, need_weights)
    per_target = z.unflatten(-2, embedded.shape[-3:-1])
    return Features(per_target, pool(per_target, mask, pooling), global_feature), Weights(pairs=of_pairs)


def over_axes(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend from every pair over the pairs of its agent and over those of its target, and add both to its embedding.

    Such layers are equivariant to permutations of rows and columns (Hartford and others, "Deep models of interactions
    across sets", ICML 2018). The cost is n m (n + m) instead of (n m)^2.
    """
    of_agent, _, of_targets = _apply(layers[0], embedded, mask, need_weights)
    columns = None if mask is None else mask.mT  # (..., m, n)
    of_target, _, of_agents = _apply(layers[1], embedded.transpose(-2, -3), columns, need_weights)
    per_target = zero_masked(embedded + of_agent + of_target.transpose(-2, -3), mask)
    per_agent = pool(per_target, mask, pooling)
    global_feature = pool(per_agent, _present(mask), pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets, agents=of_agents)


def listed_agents(
    layers: Layers, listed: Listed, embedded: Tensor, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's listed targets, then over the agents near it."""
    per_target, of_targets = within(layers[0], embedded, listed.rows, need_weights)
    per_agent, present = listed.pool(per_target, pooling), listed.present
    if listed.neighbours is None:
        of_others, global_feature, of_agents = _apply(
            layers[1], per_agent.unflatten(0, present.shape), present, need_weights
        )
        of_others = of_others.flatten(0, 1)
    else:
        of_others, of_agents = between(layers[1], per_agent, listed, need_weights)
        of_others = zero_masked(of_others, present.flatten())
        global_feature = pool(of_others.unflatten(0, present.shape), present, pooling)
        if of_agents is not None:  # (B n, h, l)
            of_agents = of_agents.unflatten(0, present.shape).transpose(1, 2) * present[:, None, :, None]
    return Features(per_target, per_agent + of_others, global_feature), Weights(targets=of_targets, agents=of_agents)


def listed_targets(
    layers: Layers, listed: Listed, embedded: Tensor, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's own listed targets only."""
    per_target, of_targets = within(layers[0], embedded, listed.rows, need_weights)
    per_agent, present = listed.pool(per_target, pooling), listed.present
    global_feature = pool(per_agent.unflatten(0, present.shape), present, pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets)


def listed_axes(
    layers: Layers, listed: Listed, embedded: Tensor, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend from every listed pair over those of its agent and those of its target, and add both to its embedding."""
    assert listed.columns is not None
    of_agent, of_targets = within(layers[0], embedded, listed.rows, need_weights)
    of_target, of_agents = within(layers[1], embedded, listed.columns, need_weights)
    if torch.is_grad_enabled() or is_recorded():
        per_target = embedded + of_agent + of_target
    else:
        per_target = of_target.add_(of_agent).add_(embedded)  # in place: new memory costs more than the sum
    per_agent, present = listed.pool(per_target, pooling), listed.present
    global_feature = pool(per_agent.unflatten(0, present.shape), present, pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets, agents=of_agents)


ATTEND_OVER: dict[str, Attending] = {
    "agents": Attending(over_agents, ("attention", "between_agents"), listed_agents),
    "targets": Attending(over_targets, listed=listed_targets),
    "pairs": Attending(over_pairs),
    "axes": Attending(over_axes, ("attention", "between_agents"), listed_axes, columns=True),
}
"""All ways of attending."""


def _apply(
    layer: nn.Module, tokens: Tensor, mask: Tensor | None, need_weights: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the layer's outputs, their pooled feature and the weights, None if they are not asked for."""
    outputs, pooled, *weights = layer(tokens, mask, need_weights=need_weights)
    return outputs, pooled, weights[0] if weights else None


def _present(mask: Tensor | None) -> Tensor | None:
    """Return which agents (..., n) have a valid pair."""
    return None if mask is None else mask.any(-1)
