"""Many tokens without gradients, in chunks that stay in a core's cache: their temporaries take no new memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from hitmac.perception.functional import bounded_softmax, is_recorded, is_transformed

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(x: Tensor, *modules: nn.Module) -> bool:
    """Return True in eager mode on a CPU, without transforms, and where the modules and theirs have no hooks."""
    return (
        not is_recorded()  # first: the size of an example must not decide for all sizes
        and type(x) in (Tensor, nn.Parameter)
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not _has_any_global_hook()
        and not any(getattr(part, hooks) for module in modules for part in module.modules() for hooks in _HOOKS)
        and not is_transformed(x, *(parameter for module in modules for parameter in module.parameters()))
    )


def are_plain_maps(x: Tensor, maps: tuple[nn.Linear, ...]) -> bool:
    """Return True if each map of x is plain and only ``x W^T + b``: no subclass, plain tensors of the dtype of x."""
    return is_plain(x, *maps) and all(
        type(linear) is nn.Linear  # a parametrised module has another class
        and "forward" not in vars(linear)
        and all(type(one) in (Tensor, nn.Parameter) and one.dtype == x.dtype for one in (linear.weight, linear.bias))
        for linear in maps
    )


_MANY = 4096
"""Tokens from which on padding costs more than further buckets."""


class Bucket(NamedTuple):
    """Some groups of like size, padded to a common one."""

    tokens: Tensor
    """(G, c) int64: numbers of each group's tokens. In a padded place stands a token of the same group, or any token in
    an empty group."""
    mask: Tensor | None
    """(G, c) bool, False where padded; None: no place is."""
    first: int | None = None
    """The tokens follow each other, from this one on; None: they may not."""


class Groups(NamedTuple):
    """Division of T tokens into groups; a token belongs to one group at most."""

    buckets: list[Bucket]
    place: Tensor | None
    """(T,) int64: place of each token in the concatenation of all buckets (G * c); any place if it is in no group.
    None: its own."""

    def apart(self, x: Tensor) -> list[Tensor]:
        """Return the tokens (G, c, ...) of each bucket, of tokens (T, ...)."""
        return [take(x, bucket) for bucket in self.buckets]

    def together(self, parts: list[Tensor], like: Tensor) -> Tensor:
        """Invert :meth:`apart`; `like` is the result if there are no buckets, and so no tokens."""
        if not parts:
            return like
        flat = [part.flatten(0, 1) for part in parts]
        whole = flat[0] if len(flat) == 1 else torch.cat(flat)
        return whole if self.place is None else whole.index_select(0, self.place)


def take(x: Tensor, bucket: Bucket) -> Tensor:
    """Return the tokens (G, c, ...) of a bucket, of tokens (T, ...)."""
    shape = bucket.tokens.shape
    if bucket.first is None:
        return x.index_select(0, bucket.tokens.flatten()).unflatten(0, shape)
    return x.narrow(0, bucket.first, bucket.tokens.numel()).unflatten(0, shape)


def rows_of(mask: Tensor) -> Groups:
    """Return the groups of N rows of k tokens each, the valid ones of a mask (N, k) bool; all rows are one bucket."""
    return Groups([Bucket(torch.arange(mask.numel(), device=mask.device).view(mask.shape), mask, 0)], None)


def valid_rows(mask: Tensor) -> tuple[Tensor, Groups]:
    """Return the valid places (T,) of a mask (N, k) bool, shorter rows first, and the groups of each row's."""
    counts = mask.sum(-1)
    order = counts.argsort(stable=True)
    kept = mask[order].flatten().nonzero().squeeze(-1)
    width = max(mask.shape[-1], 1)
    row = torch.div(kept, width, rounding_mode="floor")
    places = kept + (order[row] - row) * width
    buckets, first, steps = [], 0, torch.arange(len(places), device=mask.device)
    for size, number in enumerate(torch.bincount(counts, minlength=1).tolist()):
        if size * number:
            buckets.append(Bucket(steps[first : first + size * number].view(number, size), None, first))
            first += size * number
    return places, Groups(buckets, None)


def group(keys: Tensor, number: int, rank: Tensor, ranks: int, *, one_bucket: bool = False) -> Groups:
    """Group tokens by key; within a group they are ordered by rank.

    Args:
        keys: (T,) int64, 0 to number - 1; `number` for a token of no group.
        number: number of groups; 1 or more.
        rank: (T,) int64, 0 to ranks - 1; no two tokens of a group have the same.
        ranks: number of ranks.
        one_bucket: pad all groups to the size of the largest. Without it, groups of more than 2^(i - 1) and up to 2^i
            tokens share a bucket, so that at most every other place is padded; many tokens get a bucket for each size
            up to 32.
    """
    length = keys.shape[0]
    if not is_recorded() and length == 0:
        return Groups([], keys)
    steps = torch.arange(length, device=keys.device)
    order = (keys * ranks + rank).argsort()
    counts = keys.new_zeros(number + 1).scatter_add(0, keys, torch.ones_like(keys))
    first = counts.cumsum(0) - counts
    within = torch.empty_like(order).scatter(0, order, steps - first[keys[order]])
    counts, first = counts[:-1], first[:-1]
    if one_bucket or is_recorded():
        largest = whole(counts.max())
        bucket = _bucket(order, first, counts, largest)
        return Groups([bucket], (keys * largest + within).clamp(max=number * largest - 1))
    start, buckets, done = torch.zeros(number + 1, dtype=torch.int64, device=keys.device), [], 0
    sizes = 2 ** (2 * counts - 1).clamp(min=1).double().log2().floor().to(torch.int64)
    if length >= _MANY:
        sizes = torch.where(counts <= 32, counts, sizes)
    sizes = torch.where(counts > 0, sizes, 0)
    for size in sizes.unique().tolist():
        if size == 0:
            continue
        chosen = (sizes == size).nonzero().squeeze(-1)
        most = int(counts[chosen].max())
        start[chosen] = done + most * torch.arange(len(chosen), device=keys.device)
        done += most * len(chosen)
        buckets.append(_bucket(order, first[chosen], counts[chosen], most))
    return Groups(buckets, start[keys] + within)


def whole(number: Tensor) -> int:
    """Return a whole number, at least 1, that a shape may depend on, also of a compiled or exported program."""
    found = number.clamp(min=1).item()
    if is_recorded():
        torch._check(found >= 1)
    return found  # type: ignore[return-value]


def _bucket(order: Tensor, first: Tensor, counts: Tensor, size: int) -> Bucket:
    """Return the bucket of the groups that begin at `first` (G,) of the sorted tokens and have `counts` tokens (G,)."""
    step = torch.arange(size, device=order.device)
    mask = step < counts.unsqueeze(-1)
    places = first.unsqueeze(-1) + torch.where(mask, step, 0)
    # An empty group at the end of the tokens begins behind the last of them.
    tokens = order[places.clamp(max=order.shape[0] - 1)]
    return Bucket(tokens, None if not is_recorded() and bool(mask.all()) else mask)


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
