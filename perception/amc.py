"""AMC critic of HiT-MAC: the value of an assignment as a sum of approximate marginal contributions, in one pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from hitmac.perception.checks import check_choice, check_tokens, check_widths
from hitmac.perception.functional import zero_masked
from hitmac.perception.tanh_attention import AttentionLayer

# Scores in a block of rows, about, and least number of its rows. The size depends only on the length, so the sums of a
# sequence are taken in the same order in every batch.
_BLOCK, _ROWS = 2**17, 16

# For scores up to this, exp(), its inverse, and the square of the inverse (needed by second derivatives) stay in range.
_LIMIT = {torch.float64: 256.0, torch.float32: 32.0}


def prefix_sums(query: Tensor, key: Tensor, added: Tensor, mask: Tensor | None, bound: float) -> Tensor:
    """Attend within every prefix and sum the outputs, for values of width 1.

    ``g_j = sum over i <= j of N[i, j] / S[i, j]`` with the scores ``s = q k^T`` and the running sums
    ``S[i, j] = sum over l <= j of exp(s[i, l])`` and ``N[i, j] = sum over l <= j of exp(s[i, l]) u_l``.

    Args:
        query: q (..., L, d).
        key: k (..., L, d).
        added: u (..., L).
        mask: bool (..., L), True for valid tokens; the others are skipped. None: all are valid.
        bound: upper bound of a score's absolute value; any size.

    Returns:
        g (..., L), in double precision where the device supports it. The memory of values, gradients and forward-mode
        derivatives that are not recorded for a backward pass grows with L; that of second derivatives, and of compiled
        or exported programs, with L squared.
    """
    double = torch.float32 if query.device.type == "mps" else torch.float64
    if query.dtype in (torch.float16, torch.bfloat16):  # exp() would amplify the rounding of a score
        query, key = query.to(double), key.to(double)
    added = added.to(double)
    there = None if mask is None else mask.to(double)
    if torch.compiler.is_compiling():  # a program for every length has no fixed number of blocks
        return _value(query, key, added, there, bound, [slice(None)])
    if forward_ad._current_level >= 0:  # a function of one's own has forward-mode derivatives of the first order only
        return _value(query, key, added, there, bound, _blocks(query))
    result: Tensor = _PrefixSums.apply(query, key, added, there, bound)
    return result


class _PrefixSums(torch.autograd.Function):
    """:func:`prefix_sums` block by block; the backward pass recomputes what a block needs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query: Tensor, key: Tensor, added: Tensor, there: Tensor | None, bound: float) -> Tensor:
        return _value(query, key, added, there, bound, _blocks(query))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.bound = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, added, there = ctx.saved_tensors
        gradient, added = gradient.unsqueeze(-2), added.unsqueeze(-2)  # (..., 1, L)
        of_query, of_key, of_added = None, key * 0.0, added * 0.0
        for block in _blocks(query):
            rows, of_scores = query[..., block, :], None
            for powers, sums, reached in _levels(rows, key, there, ctx.bound, block):
                share = gradient * reached / sums
                # exp(s[i, l]) is a term of the sums of all prefixes from l on.
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
            # In place: separate pieces would fragment the heap, and the next block would need new memory.
            of_query[..., block, :] = of_rows
        return of_query, of_key, of_added.squeeze(-2), None, None


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
    """Yield exp(s) (..., rows, L) of a block, its running sums, and 1 for the prefixes for which both are valid.

    The range of exp() is too small for all scores of a wide layer. The scores are split into levels, each with its own
    shift. A prefix belongs to the level of its largest score: larger scores come after it, and much lower ones add
    nothing.
    """
    double = torch.float32 if rows.device.type == "mps" else torch.float64
    scores = (rows @ key.mT).to(double)
    within = scores.new_ones(scores.shape[-2:]).triu(block.start or 0)  # [i, j]: 1 for i <= j
    if there is not None:
        scores = scores + there.log().unsqueeze(-2)  # -inf for masked tokens
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
        # The sums of the other prefixes may be 0: add 1, to divide by.
        yield powers, powers.cumsum(-1) + (1.0 - reached), reached


def _from_behind(x: Tensor) -> Tensor:
    """Return running sums from the end of the last axis; a difference of sums from the front would lose small terms."""
    return x.flip(-1).cumsum(-1).flip(-1)


class CriticKind(NamedTuple):
    """Variant of :class:`AMCCritic`."""

    summary: str
    """Description of the variant in one line."""
    prefix: bool
    """A pair's contribution depends on the pairs before it."""
    bias_per_pair: bool
    """The linear layer's bias counts once for every pair, instead of once for the scene."""


CRITICS = {
    "amc": CriticKind("The paper's: each pair counts by what it adds to the pairs before it.", True, True),
    "no_prefix": CriticKind("Without G, so that each pair counts by itself (the paper's ablation onlyJ).", False, True),
    "value_head": CriticKind("A linear layer over the sum of all z.", False, False),
}
"""The paper's critic and its two ablations."""


class AMCCritic(nn.Module):
    """Critic that values a sequence of pairs as the sum of the contributions that each adds to the pairs before it.

    ``value = sum over j of linear([G(z_1 .. z_(j-1)); z_j])``, where G is the global feature of a second attention
    layer over the prefix, and 0 for the empty prefix (Xu, Zhong, Wang, NeurIPS 2020, section 3.2: approximate marginal
    contribution, after Shapley).

    One pass computes all prefixes. With the scores ``s = q k^T``, the prefix 1..j has ``G_j = sum over i <= j of
    (sum over l <= j of exp(s[i, l]) v_l) / (sum over l <= j of exp(s[i, l]))``, two running sums along each row. The
    linear layer needs one number of every v, so the sums cost L^2 operations. Memory grows with L.

    Args:
        feature_dim: width of a pair's feature z.
        weight_dim: width of G; None: feature_dim.
        kind: ``"amc"``, ``"no_prefix"`` or ``"value_head"``, see :data:`CRITICS`.

    Attributes:
        attention: the second :class:`hitmac.perception.AttentionLayer` (``"amc"`` only).
        linear: maps [G; z], or z alone, to a number.

    Raises:
        ValueError: a width under 1 or an unknown kind.
    """

    def __init__(self, feature_dim: int, weight_dim: int | None = None, *, kind: str = "amc") -> None:
        super().__init__()
        weight_dim = feature_dim if weight_dim is None else weight_dim
        check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_choice("kind", kind, CRITICS)
        self.feature_dim, self.weight_dim, self.kind = feature_dim, weight_dim, kind
        prefix = CRITICS[kind].prefix
        self.attention = AttentionLayer(feature_dim, weight_dim) if prefix else None
        self.linear = nn.Linear(feature_dim + weight_dim if prefix else feature_dim, 1)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(
        self, z: Tensor, mask: Tensor | None = None, *, return_contributions: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the value of a sequence.

        Args:
            z: (..., L, feature_dim), the pairs in order; L is 0 or more.
            mask: (..., L), 0 and 1 in any dtype; 1 marks a valid pair, and the others are skipped. None: all are valid.
            return_contributions: also return the contribution of each pair.

        Returns:
            The value (...,). With `return_contributions` also the contributions (..., L), whose sum is the value (for
            ``"value_head"`` up to the bias, which belongs to no pair).

        Raises:
            ValueError: the last axis of z is not feature_dim, or the mask's shape is not (..., L).
            TypeError: the mask is not a tensor.
        """
        mask = check_tokens(z, mask, self.feature_dim)
        z = zero_masked(z, mask)
        if self.attention is not None:
            # Split the linear layer over [G; z]: of G it needs only the one number that each v adds.
            of_prefix, of_pair = self.linear.weight.squeeze(0).split((self.weight_dim, self.feature_dim))
            query, key, value = self.attention.project(z)
            # tanh bounds every score by +-weight_dim.
            sums = prefix_sums(query, key, value @ of_prefix, mask, float(self.weight_dim)).to(value.dtype)
            # Each pair takes the prefix of the pairs before it; the first takes none.
            contributions = functional.pad(sums, (1, 0))[..., : z.shape[-2]] + z @ of_pair
        else:
            contributions = z @ self.linear.weight.squeeze(0)
        if CRITICS[self.kind].bias_per_pair:
            contributions = contributions + self.linear.bias
            if mask is not None:
                contributions = contributions * mask
            total = contributions.sum(-1)
        else:
            total = contributions.sum(-1) + self.linear.bias.squeeze(0)
        return (total, contributions) if return_contributions else total
