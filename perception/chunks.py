"""Many tokens without gradients, in chunks that stay in a core's cache: their temporaries take no new memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hitmac.perception.functional import bounded_softmax
from hitmac.perception.groups import Groups

_TOKENS = 4096
"""Tokens of a chunk."""


def in_chunks(function: Callable[..., Tensor], *inputs: Tensor, at_once: bool = False) -> Tensor:
    """Return ``function(*inputs)`` (T, f), each row of which depends on the same rows of the inputs (T, ...) alone."""
    if at_once or (length := len(inputs[0])) <= _TOKENS:
        return function(*inputs)
    first = function(*(one[:_TOKENS] for one in inputs))
    outputs = first.new_empty(length, *first.shape[1:])
    outputs[:_TOKENS] = first
    for done in range(_TOKENS, length, _TOKENS):
        outputs[done : done + _TOKENS] = function(*(one[done : done + _TOKENS] for one in inputs))
    return outputs


def attend_in_chunks(x: Tensor, groups: Groups, maps: tuple[nn.Linear, ...], scale: float) -> Tensor:
    """Return ``softmax(scale q k^T) v`` (T, f) within each group, for tokens x (T, d) and the maps of q, k and v.

    Scores must be small enough for ``exp``.
    """
    width = maps[0].out_features
    # tanh(u) = 2 sigmoid(2 u) - 1, which PyTorch computes faster on a CPU.
    weight = torch.cat([linear.weight for linear in maps]).mul_(2.0).t()  # (d, 3 f)
    bias = torch.cat([linear.bias for linear in maps]).mul_(2.0)
    outputs = x.new_empty(sum(bucket.tokens.numel() for bucket in groups.buckets), width)
    done = 0
    for tokens, mask, first in groups.buckets:
        size = tokens.shape[1]
        for rows in range(0, len(tokens), step := max(_TOKENS // size, 1)):
            some = tokens[rows : rows + step]
            own = x.index_select(0, some.flatten()) if first is None else x.narrow(0, first + rows * size, some.numel())
            projected = torch.addmm(bias, own, weight).sigmoid_().mul_(2.0).sub_(1.0)
            query, key, value = projected.unflatten(0, some.shape).split(width, -1)  # (G, c, f)
            scores = torch.bmm(query, key.mT)
            if scale != 1.0:
                scores.mul_(scale)
            weights = bounded_softmax(scores, None if mask is None else mask[rows : rows + step].unsqueeze(-2))
            torch.bmm(weights, value, out=outputs[done : done + some.numel()].view(*some.shape, width))
            done += some.numel()
    return outputs if groups.place is None else outputs.index_select(0, groups.place)
