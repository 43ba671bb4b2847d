"""Pairs that are listed by index: for every agent the targets near it, and the agents near it.

Encoders then attend over lists of indices instead of over all agents and targets, with the same layers, so that their
cost grows with the number of listed pairs. All scenes of a batch are one set of tokens, a token for each pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hitmac.perception.checks import as_mask, check_index
from hitmac.perception.fast_paths import Groups, group, rows_of, valid_rows, whole
from hitmac.perception.functional import Features, Weights, count, is_recorded, pool
from hitmac.perception.tanh_attention import AttentionLayer


class Listed(NamedTuple):
    """Listed pairs of B scenes with n agents each, T in all."""

    scenes: torch.Size
    """The leading axes; B is their product."""
    size: tuple[int, int]
    """n, and the number of places k in an agent's list."""
    places: Tensor | None
    """(T,) int64: places of the pairs in the lists (B * n * k); None: every place is a token."""
    mask: Tensor
    """(B * n, k) bool, the valid places."""
    agent: Tensor
    """(T,) int64: the agent of each pair, out of all B * n."""
    rows: Groups
    """The pairs of each agent."""
    columns: Groups | None
    """The pairs of each target; None where nothing attends over them."""
    num_targets: int
    """Number of the groups in `columns`, of a scene."""
    neighbours: tuple[Tensor, Tensor] | None
    """(B * n, l) int64, the agents near each, out of all B * n, and which of them count; None: all of the scene."""

    @property
    def present(self) -> Tensor:
        """(B, n) bool, the agents with a valid pair."""
        return self.mask.any(-1).reshape(math.prod(self.scenes), self.size[0])

    def take(self, x: Tensor) -> Tensor:
        """Return the tokens (T, d) of pairs (..., n, k, d), zero where a token is not valid."""
        flat = x.reshape(-1, x.shape[-1])
        if self.places is not None:
            return flat.index_select(0, self.places)
        return torch.where(self.mask.reshape(-1, 1), flat, 0.0)

    def put(self, tokens: Tensor) -> Tensor:
        """Return the pairs (..., n, k, f) of tokens (T, f), zero where a pair is not valid."""
        width = tokens.shape[-1]
        if self.places is None:
            pairs = tokens * self.mask.reshape(-1, 1)
        else:
            pairs = tokens.new_zeros(self.mask.numel(), width).index_copy(0, self.places, tokens)
        return pairs.reshape(*self.scenes, *self.size, width)

    def pool(self, tokens: Tensor, pooling: str) -> Tensor:
        """Pool the tokens (T, f) of each agent: (B * n, f), 0 for an agent without any."""
        half = tokens.dtype in (torch.float16, torch.bfloat16)  # index_add would round every sum
        if self.places is None or pooling == "max" or half:
            return pool(self.put(tokens).reshape(*self.mask.shape, -1), self.mask, pooling)
        total = tokens.new_zeros(len(self.mask), tokens.shape[-1]).index_add(0, self.agent, tokens)
        return total / count(self.mask) if pooling == "mean" else total

    def features(self, found: Features, need_pairs: bool) -> Features:
        """Return the features of the scenes, from those of the tokens, of all agents and of all scenes."""
        width = found.per_target.shape[-1]
        if need_pairs:
            per_target = self.put(found.per_target)
        else:
            per_target = found.per_target.new_empty(*self.scenes, self.size[0], 0, width)
        per_agent = found.per_agent.reshape(*self.scenes, self.size[0], width)
        return Features(per_target, per_agent, found.global_feature.reshape(*self.scenes, width))

    def weights(self, found: Weights) -> Weights:
        """Return the weights of the scenes, from those of all groups of tokens."""
        targets, agents = found.targets, found.agents
        if targets is not None:
            targets = targets.reshape(*self.scenes, self.size[0], *targets.shape[1:])
        if agents is not None:
            groups = () if self.columns is None else (self.num_targets,)
            agents = agents.reshape(*self.scenes, *groups, *agents.shape[1:])
        return Weights(targets, agents)


def list_pairs(
    pairs: Tensor,
    mask: Tensor | None,
    targets: Tensor | None,
    neighbours: Tensor | None,
    *,
    columns: bool,
    every_place: bool,
) -> Listed:
    """Return the listed pairs of scenes.

    Args:
        pairs: (..., n, k, d).
        mask: (..., n, k) bool; None: all are valid.
        targets: (..., n, k), whole numbers: the target of every place, -1 where there is none; None: place j is
            target j.
        neighbours: (..., n, l), whole numbers: the agents near each, -1 where there is none; None: all.
        columns: group the pairs of each target too.
        every_place: make every place a token, valid or not, which keeps the shapes of the lists. Without it, and
            outside of compiled and exported programs, only valid places are tokens.

    Raises:
        ValueError: `targets` or `neighbours` of another shape.
        TypeError: they are not whole numbers.
    """
    *scenes, n, k, _ = pairs.shape
    for name, index, last in (("targets", targets, k), ("neighbours", neighbours, None)):
        if index is not None:
            check_index(name, index, (*scenes, n, last))
    batch = math.prod(scenes)
    there = torch.ones(batch * n, k, dtype=torch.bool, device=pairs.device)
    if mask is not None:
        there = as_mask(mask).reshape(batch * n, k)
    if targets is not None:
        there = there & (targets.reshape(batch * n, k) >= 0)
    every_place = every_place or is_recorded()
    agent = torch.arange(batch * n, device=pairs.device)
    if every_place:
        places, rows, of_pair = None, rows_of(there), agent.unsqueeze(-1).expand(-1, k).reshape(-1)
    else:
        places, rows = valid_rows(there)
        of_pair = torch.div(places, max(k, 1), rounding_mode="floor")
    by_target, number = None, k
    if columns:
        assert targets is not None
        flat = targets.reshape(-1).to(torch.int64)
        number = whole(flat.max() + 1) if is_recorded() or len(flat) else 1
        keys = flat if places is None else flat.index_select(0, places)
        keys = keys + torch.div(of_pair, max(n, 1), rounding_mode="floor") * number
        if places is None:
            keys = torch.where(there.flatten(), keys, batch * number)
        by_target = group(keys, max(batch * number, 1), of_pair, max(batch * n, 1), one_bucket=every_place)
    near = None
    if neighbours is not None:
        whom = neighbours.reshape(batch * n, neighbours.shape[-1]).to(torch.int64)
        first = torch.div(agent, max(n, 1), rounding_mode="floor") * n
        others = whom.clamp(min=0) + first.unsqueeze(-1)
        near = others, (whom >= 0) & there.any(-1)[others]
    return Listed(torch.Size(scenes), (n, k), places, there, of_pair, rows, by_target, number, near)


def within(layer: nn.Module, tokens: Tensor, groups: Groups, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """Apply a layer over sequences within each group of tokens (T, f); return its outputs and the weights."""
    if isinstance(layer, AttentionLayer):
        return layer.within(tokens, groups, need_weights=need_weights)
    parts = []
    for part, bucket in zip(groups.apart(tokens), groups.buckets, strict=True):
        parts.append(layer(part, bucket.mask, need_weights=need_weights)[0])
    return groups.together(parts, tokens), None


def between(layer: nn.Module, agents: Tensor, listed: Listed, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """Apply a layer over sequences to the agents (B * n, f) near each, and to itself."""
    assert listed.neighbours is not None
    others, mask = listed.neighbours
    if isinstance(layer, AttentionLayer):
        return layer.between(agents, others, mask, need_weights=need_weights)
    outputs = layer(agents[others], mask, need_weights=need_weights)[0]  # (B n, l, f)
    own = others == torch.arange(len(agents), device=agents.device).unsqueeze(-1)
    return (outputs * own.unsqueeze(-1)).sum(-2), None


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
    for row, there, scene in zip(pairs, mask, scenes, strict=True):
        row[: scene.shape[0], : scene.shape[1]] = scene
        there[: scene.shape[0], : scene.shape[1]] = True
    return pairs, mask


def unpad_scenes(per_target: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the features (n_b, m_b, f) of each scene of a padded batch (B, n, m, f).

    In the mask (B, n, m), 0 and 1 in any dtype, the agents of a scene are the rows with any 1, and its targets the
    columns with any 1, in any position. A scene without agents or without targets is returned as (0, 0, f), since its
    mask is all 0.
    """
    return [row[there.any(1)][:, there.any(0)] for row, there in zip(per_target, mask != 0, strict=True)]
