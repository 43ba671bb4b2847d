"""Tokens of the encoder: all pairs of agents and targets, or those of each agent's list. Scenes of different sizes.

The same layers attend over both; with lists, the cost grows with the number of listed pairs.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hitmac.perception.checks import as_mask, check_entries, check_index, check_tokens
from hitmac.perception.fast_paths import (
    LISTED_TO,
    Bucket,
    Groups,
    as_size,
    attend_short,
    group_rows,
    group_tokens,
    is_recorded,
    is_transformed,
    short_pays,
)
from hitmac.perception.functional import Features, count_tokens, pool, zero_masked
from hitmac.perception.tanh_attention import is_two_steps

Attended = tuple[Tensor, Tensor, Tensor | None]
"""Outputs of a layer, the same pooled, and the weights or None."""


class AllPairs:
    """All pairs (..., n, m) of agents and targets, as tokens."""

    def __init__(self, mask: Tensor | None, pooling: str, need_weights: bool) -> None:
        self.mask: Any = mask  # (..., n, m) bool; None: all are valid
        self.present: Any = None if mask is None else mask.any(-1)  # (..., n), the agents with a valid pair
        self.pooling, self.need_weights = pooling, need_weights

    def embed(self, layer: nn.Module, pairs: Tensor) -> Tensor:
        """Apply a layer to each of the pairs (..., n, m, d); return its tokens (..., n, m, f)."""
        return layer(zero_masked(pairs, self.mask))

    def embed_features(self, layer: nn.Module, found: Features) -> Tensor:
        """Apply a layer to the features of each token and of its agent; return its tokens."""
        return layer(found.per_target, found.per_agent.unsqueeze(-2))

    def total(self, tokens: Tensor, of_agent: Tensor, of_target: Tensor) -> Tensor:
        """Return the sum of three features of the pairs, zero where invalid."""
        return zero_masked(tokens + of_agent + of_target, self.mask)

    def pairs(self, tokens: Tensor, need_pairs: bool) -> Tensor:
        """Return the pairs (..., n, m, f) of tokens, zero where invalid."""
        return tokens

    def pool(self, tokens: Tensor) -> Tensor:
        """Pool the tokens of each agent into (..., n, f)."""
        return pool(tokens, self.mask, self.pooling)

    def within_agents(self, layer: nn.Module, tokens: Tensor, *, pooled: bool = True) -> Attended:
        """Apply a layer to the pairs of each agent; without `pooled`, the second output has no meaning."""
        return self._apply(layer, tokens, self.mask)

    def within_targets(self, layer: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply a layer to the pairs of each target; return its outputs and the weights."""
        mask = None if self.mask is None else self.mask.mT  # (..., m, n)
        z, _, weights = self._apply(layer, tokens.transpose(-2, -3), mask)
        return z.transpose(-2, -3), weights

    def between_agents(self, layer: nn.Module, per_agent: Tensor) -> Attended:
        """Apply a layer to the agents (..., n, f)."""
        return self._apply(layer, per_agent, self.present)

    def within_scenes(self, layer: nn.Module, tokens: Tensor) -> Attended:
        """Apply a layer to all n * m pairs as one sequence."""
        mask = None if self.mask is None else self.mask.flatten(-2)
        z, pooled, weights = self._apply(layer, tokens.flatten(-3, -2), mask)
        return z.unflatten(-2, tokens.shape[-3:-1]), pooled, weights

    def _apply(self, layer: nn.Module, x: Tensor, mask: Tensor | None) -> Attended:
        z, pooled, *weights = layer(x, mask, need_weights=self.need_weights)
        return z, pooled, weights[0] if weights else None


class SparsePairs(AllPairs):
    """Pairs of each agent and the targets of its list.

    All scenes are one set of T tokens, one for each valid pair. If the weights are needed, and in compiled, exported
    and transformed programs, every place is a token, valid or not, which keeps the shapes of the lists. `by_target`
    also groups the pairs of each target. For the lists see :meth:`hitmac.perception.AgentTargetEncoder.forward`.
    """

    def __init__(
        self, dense: AllPairs, pairs: Tensor, targets: Tensor | None, neighbours: Tensor | None, by_target: bool
    ) -> None:
        shape, device = pairs.shape[:-1], pairs.device
        *scenes, n, k = shape
        valid = torch.ones(shape, dtype=torch.bool, device=device) if dense.mask is None else dense.mask
        if targets is not None:
            check_index("targets", targets, tuple(shape))
            valid = valid & (targets >= 0)
            check_entries("targets", targets, valid)
        if neighbours is not None:
            check_index("neighbours", neighbours, (*scenes, n, "any"))
            check_entries("neighbours", neighbours, neighbours >= 0, n)
        super().__init__(valid, dense.pooling, dense.need_weights)
        self.neighbours = neighbours
        rows = valid.reshape(self.present.numel(), k)
        self.every_place = dense.need_weights or is_recorded() or is_transformed()
        if self.every_place:
            self.places = torch.arange(rows.numel(), device=device)
            self.rows = Groups([Bucket(self.places.reshape(rows.shape), rows)], self.places)
        else:
            self.places, self.rows = group_rows(rows)
        self.agent = torch.div(self.places, max(k, 1), rounding_mode="floor")  # (T,)
        if by_target and targets is not None:  # the pairs of each target, of one scene after the other
            listed = torch.where(valid, targets.to(torch.int64), -1).reshape(-1).index_select(0, self.places)
            self.num_targets = as_size(listed.max() + 1) if is_recorded() or listed.numel() else 1
            keys = listed + torch.div(self.agent, max(n, 1), rounding_mode="floor") * self.num_targets
            number = max(math.prod(scenes) * self.num_targets, 1)
            if self.every_place:
                keys = torch.where(listed >= 0, keys, number)
            elif number > len(keys):  # so that large indices, such as those of tracks, take no memory
                found, keys = keys.unique(return_inverse=True)
                number = len(found)
            self.columns = group_tokens(keys, number, self.agent, max(rows.shape[0], 1), one_bucket=self.every_place)

    def embed(self, layer: nn.Module, pairs: Tensor) -> Tensor:
        """Apply a layer to each of the pairs (..., n, k, d); return its tokens (T, f)."""
        pairs = zero_masked(pairs, self.mask) if self.every_place else pairs
        return layer(pairs.reshape(-1, pairs.shape[-1]).index_select(0, self.places))

    def embed_features(self, layer: nn.Module, found: Features) -> Tensor:
        """Apply a layer to the features of each token and of its agent; return its tokens."""
        per_agent = found.per_agent.reshape(-1, found.per_agent.shape[-1])
        return layer(found.per_target, per_agent.index_select(0, self.agent))

    def total(self, tokens: Tensor, of_agent: Tensor, of_target: Tensor) -> Tensor:
        """Return the sum of three features of the pairs; without gradients, overwrite the last."""
        if torch.is_grad_enabled() or is_recorded():
            return tokens + of_agent + of_target
        return of_target.add_(of_agent).add_(tokens)  # in place: new memory costs more than the sum

    def pairs(self, tokens: Tensor, need_pairs: bool = True) -> Tensor:
        """Return the pairs (..., n, k, f), or (..., n, 0, f) if they are not needed, of tokens (T, f)."""
        shape, width = self.mask.shape, tokens.shape[-1]
        if not need_pairs:
            return tokens.new_empty(*shape[:-1], 0, width)
        if self.every_place:
            return zero_masked(tokens.reshape(*shape, width), self.mask)
        return tokens.new_zeros(self.mask.numel(), width).index_copy(0, self.places, tokens).reshape(*shape, width)

    def pool(self, tokens: Tensor) -> Tensor:
        """Pool the tokens (T, f) of each agent into (..., n, f)."""
        half = tokens.dtype in (torch.float16, torch.bfloat16)  # index_add would round every sum
        if self.every_place or self.pooling == "max" or half:
            return pool(self.pairs(tokens), self.mask, self.pooling)
        total = tokens.new_zeros(self.present.numel(), tokens.shape[-1]).index_add(0, self.agent, tokens)
        total = total.reshape(*self.present.shape, tokens.shape[-1])
        return total / count_tokens(total, self.mask) if self.pooling == "mean" else total

    def within_agents(self, layer: nn.Module, tokens: Tensor, *, pooled: bool = True) -> Attended:
        """Apply a layer to the pairs of each agent."""
        z, weights = _within(layer, tokens, self.rows, self.need_weights)
        weights = None if weights is None else weights.reshape(*self.present.shape, *weights.shape[1:])
        return z, self.pool(z) if pooled else z, weights

    def within_targets(self, layer: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply a layer to the pairs of each target."""
        z, weights = _within(layer, tokens, self.columns, self.need_weights)
        if weights is not None:
            weights = weights.reshape(*self.present.shape[:-1], self.num_targets, *weights.shape[1:])
        return z, weights

    def between_agents(self, layer: nn.Module, per_agent: Tensor) -> Attended:
        """Apply a layer to the agents (..., n, f) near each, or to all."""
        if self.neighbours is None:
            return super().between_agents(layer, per_agent)
        flat, present = per_agent.reshape(-1, per_agent.shape[-1]), self.present.flatten()
        near = self.neighbours.reshape(present.shape[0], self.neighbours.shape[-1]).to(torch.int64)
        itself = torch.arange(present.shape[0], device=near.device).unsqueeze(-1)
        n = self.present.shape[-1]
        lists = near.clamp(min=0) + torch.div(itself, max(n, 1), rounding_mode="floor") * n  # out of all scenes
        mask, weights = (near >= 0) & present[lists], None
        if is_two_steps(layer):
            query, key, value = layer.project(flat)
            z, weights = layer.attend(query.unsqueeze(-2), key[lists], value[lists], mask, self.need_weights)
            z = z.squeeze(-2)
        else:
            z = (layer(flat[lists], mask)[0] * (lists == itself).unsqueeze(-1)).sum(-2)
        z = zero_masked(z.reshape(per_agent.shape), self.present)
        if weights is not None:  # (all agents, h, 1, l)
            weights = weights.squeeze(-2).reshape(*self.present.shape, *weights.shape[1::2]).transpose(-3, -2)
            weights = weights * self.present[..., None, :, None]
        return z, pool(z, self.present, self.pooling), weights


def _within(layer: nn.Module, x: Tensor, groups: Groups, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """Apply a layer within each group of tokens x (T, f); return the outputs and the weights of the last bucket."""
    if not groups.buckets:  # no token at all: through the layer, so that its parameters have gradients, of 0
        z, _, *weights = layer(x.unsqueeze(0), need_weights=need_weights)
        return z.squeeze(0), weights[0] if weights else None
    if not is_two_steps(layer):
        outputs = [layer(bucket.of(x), bucket.mask, need_weights=need_weights)[0] for bucket in groups.buckets]
        return groups.together(outputs), None
    maps = layer.Q, layer.K, layer.V
    longest = max(bucket.tokens.shape[1] for bucket in groups.buckets)
    if layer.is_plain(need_weights) and short_pays(x, longest, LISTED_TO, maps):
        rows = [(bucket.tokens, bucket.mask) for bucket in groups.buckets]
        return attend_short(x, rows, maps, layer.num_heads, layer.score_scale), None
    projected, outputs, weights = layer.project(x), [], None
    for bucket in groups.buckets:
        query, key, value = (bucket.of(each) for each in projected)
        z, weights = layer.attend(query, key, value, bucket.mask, need_weights)
        outputs.append(z)
        if weights is not None and bucket.mask is not None:
            weights = weights * bucket.mask[:, None, :, None]
    return groups.together(outputs), weights


def pad_scenes(scenes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad scenes with different numbers of agents and targets into one batch.

    Args:
        scenes: B tensors (n_b, m_b, d) of one width, dtype and device; n_b and m_b are 0 or more.

    Returns:
        The pairs (B, n, m, d), zero outside each scene, where n and m are the largest sizes, and the mask (B, n, m).
    """
    if not scenes:
        raise ValueError("scenes is empty; expected one scene or more")
    for number, scene in enumerate(scenes):
        if scene.ndim != 3 or scene.shape[-1] != scenes[0].shape[-1]:
            raise ValueError(
                f"scene {number} has shape {tuple(scene.shape)}; it must be (agents, targets, {scenes[0].shape[-1]})"
            )
    n, m = (max(scene.shape[axis] for scene in scenes) for axis in (0, 1))
    pairs = scenes[0].new_zeros(len(scenes), n, m, scenes[0].shape[-1])
    mask = torch.zeros(len(scenes), n, m, dtype=torch.bool, device=pairs.device)
    for row, scene in enumerate(scenes):
        pairs[row, : scene.shape[0], : scene.shape[1]] = scene
        mask[row, : scene.shape[0], : scene.shape[1]] = True
    return pairs, mask


def unpad_scenes(per_target: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the features (n_b, m_b, f) of each scene of a padded batch (B, n, m, f).

    The agents of a scene are the rows with any 1 in the mask (B, n, m), 0 and 1 in any dtype, and its targets the
    columns with any 1. A scene without agents or without targets is returned as (0, 0, f), since its mask is all 0.
    """
    check_tokens(per_target, mask, per_target.shape[-1], "per_target", "B, agents, targets")
    return [scene[valid.any(1)][:, valid.any(0)] for scene, valid in zip(per_target, as_mask(mask), strict=True)]
