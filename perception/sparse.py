"""Neighbour lists, the targets and the agents near each agent, and scenes of different sizes.

The encoder attends over lists of indices instead of over all agents and targets, with the same layers, so that its cost
grows with the number of listed pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_index
from hitmac.perception.fast_paths import Bucket, Groups, as_size, group_rows, group_tokens, is_recorded
from hitmac.perception.functional import Features, count_tokens, pool, zero_masked
from hitmac.perception.tanh_attention import AttentionLayer


class SparsePairs:
    """Pairs of each agent and the targets of its list, as the tokens that a way of attending works on.

    All scenes are one set of T tokens, one for each valid pair. If the weights are needed too, and in compiled and
    exported programs, every place is a token, valid or not, which keeps the shapes of the lists. `by_target` groups the
    pairs of each target too. For the other arguments see :meth:`hitmac.perception.AgentTargetEncoder.forward`.
    """

    def __init__(
        self,
        pairs: Tensor,
        mask: Tensor | None,
        targets: Tensor | None,
        neighbours: Tensor | None,
        pooling: str,
        need_weights: bool,
        by_target: bool,
    ) -> None:
        shape, device = pairs.shape[:-1], pairs.device
        *scenes, n, k = shape
        if targets is not None:
            check_index("targets", targets, tuple(shape))
        if neighbours is not None:
            check_index("neighbours", neighbours, (*scenes, n, "any"))
        self.shape, self.pooling, self.need_weights = shape, pooling, need_weights
        self.neighbours = neighbours
        valid = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask
        self.mask = valid if targets is None else valid & (targets >= 0)
        self.present = self.mask.any(-1)  # (..., n)
        self.every_place = need_weights or is_recorded()
        rows = self.mask.reshape(self.present.numel(), k)
        if self.every_place:
            self.places = torch.arange(rows.numel(), device=device)
            self.rows = Groups([Bucket(self.places.reshape(rows.shape), rows)], self.places)
        else:
            self.places, self.rows = group_rows(rows)
        self.agent = torch.div(self.places, max(k, 1), rounding_mode="floor")  # (T,)
        if by_target:
            assert targets is not None
            self.num_targets, self.columns = self._columns(targets)

    def embed(self, layer: nn.Module, pairs: Tensor) -> Tensor:
        """Apply a layer to each of the pairs (..., n, k, d); return its tokens (T, f)."""
        pairs = zero_masked(pairs, self.mask) if self.every_place else pairs
        return layer(pairs.reshape(-1, pairs.shape[-1]).index_select(0, self.places))

    def embed_features(self, layer: nn.Module, found: Features) -> Tensor:
        """Apply a layer to the features of each token and of its agent; return its tokens."""
        per_agent = found.per_agent.reshape(-1, found.per_agent.shape[-1])
        return layer(found.per_target, per_agent.index_select(0, self.agent))

    def pairs(self, tokens: Tensor, *, empty: bool = False) -> Tensor:
        """Return the pairs (..., n, k, f) of tokens (T, f), zero where not valid; empty: (..., n, 0, f)."""
        width = tokens.shape[-1]
        if empty:
            return tokens.new_empty(*self.shape[:-1], 0, width)
        if self.every_place:
            return zero_masked(tokens.reshape(*self.shape, width), self.mask)
        pairs = tokens.new_zeros(self.mask.numel(), width).index_copy(0, self.places, tokens)
        return pairs.reshape(*self.shape, width)

    def pool(self, tokens: Tensor) -> Tensor:
        """Pool the tokens (T, f) of each agent into (..., n, f)."""
        half = tokens.dtype in (torch.float16, torch.bfloat16)  # index_add would round every sum
        if self.every_place or self.pooling == "max" or half:
            return pool(self.pairs(tokens), self.mask, self.pooling)
        total = tokens.new_zeros(self.present.numel(), tokens.shape[-1]).index_add(0, self.agent, tokens)
        total = total.reshape(*self.present.shape, tokens.shape[-1])
        return total / count_tokens(total, self.mask) if self.pooling == "mean" else total

    def _columns(self, targets: Tensor) -> tuple[int, Groups]:
        """Return the highest target of a list + 1, and the pairs of each target, of one scene after the other."""
        *scenes, n, _ = self.shape
        most = as_size(targets.max() + 1) if is_recorded() or targets.numel() else 1
        keys = targets.reshape(-1).to(torch.int64).index_select(0, self.places)
        keys = keys + torch.div(self.agent, max(n, 1), rounding_mode="floor") * most
        number = max(math.prod(scenes) * most, 1)
        if self.every_place:
            keys = torch.where(self.mask.flatten(), keys, number)
        return most, group_tokens(keys, number, self.agent, max(self.present.numel(), 1), one_bucket=self.every_place)

    def within_agents(self, layer: nn.Module, tokens: Tensor) -> tuple[Tensor, Callable[[], Tensor], Tensor | None]:
        """Apply a layer to the pairs of each agent; return its outputs, what pools them by agent, and the weights."""
        z, weights = _within(layer, tokens, self.rows, self.need_weights)
        weights = None if weights is None else weights.reshape(*self.shape[:-1], *weights.shape[1:])
        return z, lambda: self.pool(z), weights

    def within_targets(self, layer: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply a layer to the pairs of each target; return its outputs and the weights."""
        z, weights = _within(layer, tokens, self.columns, self.need_weights)
        if weights is not None:
            weights = weights.reshape(*self.shape[:-2], self.num_targets, *weights.shape[1:])
        return z, weights

    def total(self, tokens: Tensor, of_agent: Tensor, of_target: Tensor) -> Tensor:
        """Return the sum of three features of the pairs; without gradients it overwrites the last."""
        if torch.is_grad_enabled() or is_recorded():
            return tokens + of_agent + of_target
        return of_target.add_(of_agent).add_(tokens)  # in place: new memory costs more than the sum

    def between_agents(self, layer: nn.Module, per_agent: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Apply a layer to the agents (..., n, f) near each; return its outputs, pooled, and the weights."""
        if self.neighbours is None:
            outputs, pooled, *found = layer(per_agent, self.present, need_weights=self.need_weights)
            return outputs, pooled, found[0] if found else None
        n = self.shape[-2]
        flat, present = per_agent.reshape(-1, per_agent.shape[-1]), self.present.flatten()
        near = self.neighbours.reshape(present.shape[0], self.neighbours.shape[-1]).to(torch.int64)
        itself = torch.arange(present.shape[0], device=near.device).unsqueeze(-1)
        lists = near.clamp(min=0) + torch.div(itself, max(n, 1), rounding_mode="floor") * n  # out of all scenes
        mask, weights = (near >= 0) & present[lists], None
        if isinstance(layer, AttentionLayer):
            z, weights = layer.attend_to_lists(flat, lists, mask, need_weights=self.need_weights)
        else:
            z = (layer(flat[lists], mask)[0] * (lists == itself).unsqueeze(-1)).sum(-2)
        z = zero_masked(z.reshape(per_agent.shape), self.present)
        if weights is not None:  # (all agents, h, l)
            weights = weights.reshape(*self.present.shape, *weights.shape[1:]).transpose(-3, -2)
            weights = weights * self.present[..., None, :, None]
        return z, pool(z, self.present, self.pooling), weights


def _within(layer: nn.Module, tokens: Tensor, groups: Groups, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """Apply a layer over sequences within each group of tokens (T, f); return its outputs and the weights."""
    if isinstance(layer, AttentionLayer):
        return layer.within(tokens, groups, need_weights=need_weights)
    outputs = [layer(bucket.of(tokens), bucket.mask, need_weights=need_weights)[0] for bucket in groups.buckets]
    return groups.together(outputs, tokens), None


def pad_scenes(scenes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad scenes with different numbers of agents and targets into one batch.

    Args:
        scenes: B tensors (n_b, m_b, d) of one width, dtype and device; n_b and m_b are 0 or more.

    Returns:
        The pairs (B, n, m, d), zero outside each scene, where n and m are the largest sizes; and the mask (B, n, m).

    Raises:
        ValueError: no scene, or a scene whose shape does not fit the others; the message names it.
    """
    if not scenes:
        raise ValueError("there is no scene to pad; give one or more")
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

    In the mask (B, n, m), 0 and 1 in any dtype, the agents of a scene are the rows with any 1, and its targets the
    columns with any 1, in any position. A scene without agents or without targets is returned as (0, 0, f), since its
    mask is all 0.
    """
    return [scene[valid.any(1)][:, valid.any(0)] for scene, valid in zip(per_target, mask != 0, strict=True)]
