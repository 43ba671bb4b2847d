"""Attention over every prefix of a sequence at once, in memory that grows with the length instead of its square."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# A block of rows of the table of scores has about so many of them, and so many rows at least. It depends on the length
# alone: the sums of a sequence are taken in the same order in every batch.
_BLOCK, _ROWS = 2**17, 16

# exp() of scores up to this, one over it, and the square of that, which second derivatives hold, stay in range.
_LIMIT = {torch.float64: 256.0, torch.float32: 32.0}


def prefix_sums(query: Tensor, key: Tensor, added: Tensor, mask: Tensor | None, bound: float) -> Tensor:
    """Attend within every prefix and sum the outputs, where a value is one number.

    ``g_j = sum over i <= j of N[i, j] / S[i, j]`` with the scores ``s = q k^T`` and the running sums
    ``S[i, j] = sum over l <= j of exp(s[i, l])`` and ``N[i, j] = sum over l <= j of exp(s[i, l]) u_l``.

    Args:
        query: q (..., L, d).
        key: k (..., L, d).
        added: u (..., L).
        mask: bool (..., L), True where a token is there; the others are skipped. None: all are.
        bound: the largest absolute value that a score can have; any number will do.

    Returns:
        g (..., L), in double precision where the device has it. Values, gradients and forward-mode derivatives take
        memory that grows with L; second derivatives, and what is compiled or exported, with L squared.
    """
    double = torch.float32 if query.device.type == "mps" else torch.float64
    if query.dtype in (torch.float16, torch.bfloat16):  # exp() would multiply the rounding of a score in these
        query, key = query.to(double), key.to(double)
    added = added.to(double)
    there = None if mask is None else mask.to(double)
    if torch.compiler.is_compiling():  # a program for every length has no number of blocks
        return _value(query, key, added, there, bound, [slice(None)])
    result: Tensor = _PrefixSums.apply(query, key, added, there, bound)
    return result


class _PrefixSums(torch.autograd.Function):
    """:func:`prefix_sums` block by block; what a block needs for its gradients is computed a second time."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query: Tensor, key: Tensor, added: Tensor, there: Tensor | None, bound: float) -> Tensor:
        return _value(query, key, added, there, bound, _blocks(query))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.bound = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, added, there = ctx.saved_tensors
        gradient, added = gradient.unsqueeze(-2), added.unsqueeze(-2)  # (..., 1, L)
        of_query, of_key, of_added = None, key * 0.0, added * 0.0
        for block in _blocks(query):
            rows, of_scores = query[..., block, :], None
            for powers, sums, reached in _levels(rows, key, there, ctx.bound, block):
                share = gradient * reached / sums
                # exp(s[i, l]) is in the sums of all prefixes from l on.
                later = _from_behind(share)
                of_added = of_added + (powers * later).sum(-2, keepdim=True)
                means = (powers * added).cumsum(-1) / sums
                part = powers * (added * later - _from_behind(share * means))
                of_scores = part if of_scores is None else of_scores + part
            assert of_scores is not None
            of_scores = of_scores.to(query.dtype)
            of_rows, of_key = of_scores @ key, of_key + of_scores.mT @ rows
            if of_query is None:
                of_query = of_rows.new_zeros(*of_rows.shape[:-2], *query.shape[-2:])
            # In place: pieces kept for later would lie in the holes that a block leaves, and the next need new ones.
            of_query[..., block, :] = of_rows
        return of_query, of_key, of_added.squeeze(-2), None, None

    @staticmethod
    def jvp(ctx: Any, of_query: Tensor, of_key: Tensor, of_added: Tensor, of_there: Any, of_bound: None) -> Tensor:
        query, key, added, there = ctx.saved_tensors
        added, of_added = added.unsqueeze(-2), of_added.unsqueeze(-2)
        total = added * 0.0
        for block in _blocks(query):
            rows = query[..., block, :]
            of_scores = (of_query[..., block, :] @ key.mT + rows @ of_key.mT).to(added.dtype)
            for powers, sums, reached in _levels(rows, key, there, ctx.bound, block):
                means = (powers * added).cumsum(-1) / sums
                of_means = (powers * (of_scores * added + of_added)).cumsum(-1)
                of_means = (of_means - means * (powers * of_scores).cumsum(-1)) / sums
                total = total + (of_means * reached).sum(-2, keepdim=True)
        return total.squeeze(-2)


def _value(
    query: Tensor, key: Tensor, added: Tensor, there: Tensor | None, bound: float, blocks: list[slice]
) -> Tensor:
    total = added * 0.0
    for block in blocks:
        for powers, sums, reached in _levels(query[..., block, :], key, there, bound, block):
            means = (powers * added.unsqueeze(-2)).cumsum(-1) / sums
            total = total + (means * reached).sum(-2)
    return total


def _blocks(query: Tensor) -> list[slice]:
    length = query.shape[-2]
    rows = max(_ROWS, _BLOCK // max(length, 1))
    return [slice(first, first + rows) for first in range(0, max(length, 1), rows)]


def _levels(
    rows: Tensor, key: Tensor, there: Tensor | None, bound: float, block: slice
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """A block of rows as exp(s) (..., rows, L), its running sums, and 1 for the prefixes that both are right for.

    The range of exp() is not enough for all scores of a wide layer. They are cut into levels, each with a shift of its
    own, and a prefix belongs to the level of its largest score: larger ones come after it, and much lower ones add
    nothing.
    """
    double = torch.float32 if rows.device.type == "mps" else torch.float64
    scores = (rows @ key.mT).to(double)
    within = scores.new_ones(scores.shape[-2:]).triu(block.start or 0)  # [i, j]: 1 for i <= j
    if there is not None:
        scores = scores + there.log().unsqueeze(-2)  # minus infinity where no token is
        within = within * there[..., block].unsqueeze(-1)
    limit = _LIMIT[double]
    levels = max(1, math.ceil(bound / limit))
    passed: Tensor | float = 1.0  # 1 for the prefixes that have a score of this level or a higher one
    for level in range(levels):
        powers, reached = scores, within
        if levels > 1:
            shift = (2 * level + 1 - levels) * limit
            last = level == levels - 1
            higher = 0.0 if last else (scores > shift + limit).to(double).cumsum(-1).clamp(max=1.0)
            powers, reached, passed = (scores - shift).clamp(max=limit), within * (passed - higher), higher
        powers = powers.exp()
        # The other prefixes may have a sum of 0, which must not be divided by.
        yield powers, powers.cumsum(-1) + (1.0 - reached), reached


def _from_behind(x: Tensor) -> Tensor:
    """Running sums from the end of the last axis; a difference of sums from the front would lose small ones."""
    return x.flip(-1).cumsum(-1).flip(-1)
