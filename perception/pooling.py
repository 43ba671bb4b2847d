"""Poolings of a sequence of tokens into one, by name.

``pooling(x (..., L, d), mask (..., L) or None) -> (..., d)`` of tokens that are already zero where the bool mask is
False. An empty sequence gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hitmac.perception.functional import masked_softmax


def pool_sum(x: Tensor, mask: Tensor | None) -> Tensor:
    """Sum the tokens, as the paper does; the result grows with their number."""
    # With gradients a product: the gradient of a sum is an expanded view, which slows later products.
    return (x.new_ones(1, x.shape[-2]) @ x).squeeze(-2) if x.requires_grad else x.sum(-2)


def pool_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the valid tokens."""
    return pool_sum(x, mask) / count_tokens(x, mask)


def pool_max(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the maximum of the valid tokens, number by number."""
    if x.shape[-2] == 0:
        return x.sum(-2)
    if mask is None:
        return x.amax(-2)
    highest = x.masked_fill(~mask.unsqueeze(-1), torch.finfo(x.dtype).min).amax(-2)
    return highest * mask.any(-1, keepdim=True)


def pool_by_query(x: Tensor, mask: Tensor | None, query: Tensor) -> Tensor:
    """Return the sum of the tokens weighted by the softmax of their dot products with a learned query (d,)."""
    keys = None if mask is None else mask.unsqueeze(-2)
    return (masked_softmax((x @ query).unsqueeze(-2), keys) @ x).squeeze(-2)


FIXED_POOLINGS: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "sum": pool_sum,
    "mean": pool_mean,
    "max": pool_max,
}
"""Poolings without parameters."""

POOLINGS: dict[str, Callable[..., Tensor]] = FIXED_POOLINGS | {"attention": pool_by_query}
"""All poolings; those that are not fixed also take a query."""


def pool(x: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """Pool tokens by the name of a fixed pooling."""
    return FIXED_POOLINGS[pooling](x, mask)


def count(mask: Tensor) -> Tensor:
    """Count the ones along the last axis, (..., 1); at least 1, as a divisor."""
    return mask.sum(-1, keepdim=True).clamp(min=1)


def count_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """Count the valid tokens of x (..., L, d); at least 1, as a divisor."""
    return count(x.new_ones(x.shape[-2]) if mask is None else mask)
