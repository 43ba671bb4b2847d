"""Faster equivalents of operations of the layers, each chosen by the size of its input."""

import math
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def is_recorded() -> bool:
    """Return True while a program for all sizes is compiled, exported or traced, whose path no size may choose."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed(*tensors: Tensor) -> bool:
    """Return True if a transform of ``torch.func`` is active, or a tensor is batched or has a derivative."""
    dual = any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)
    batched = any(torch._C._functorch.is_legacy_batchedtensor(x) for x in tensors)  # of ``is_grads_batched``
    return dual or batched or torch._C._are_functorch_transforms_active()


# ---- attention within short sequences ----

_HAS_NUMBA = find_spec("numba") is not None  # this folder alone needs only torch
_MANY_FROM = 2**16
"""Numbers in the input from which kernels compiled by numba are used on a CPU: a first call loads or compiles them."""

_THREADS_TO = 2
"""PyTorch's threads up to which the kernels, of one thread each, are faster."""

SHORT_TO, LISTED_TO = 8, 32
"""Tokens of a sequence up to which a kernel attends faster than matrix products, and than those of listed tokens, which
would be gathered first."""

Sequences = Sequence[tuple[Tensor, Tensor | None]]
"""Sequences of one length each: the rows (G, L) int64 of their tokens, and a mask (G, L) bool; None: all are valid."""


def short_pays(x: Tensor, length: int, most: int, maps: tuple[nn.Linear, ...]) -> bool:
    """Return True if :func:`attend_short` applies to tokens x and the maps, and is faster up to `most` tokens."""
    return (
        _HAS_NUMBA
        and not is_recorded()
        and type(x) is Tensor
        and x.numel() >= _MANY_FROM
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.get_num_threads() <= _THREADS_TO
        and 1 <= length <= most
        and all(  # only `x W^T + b`: a parametrised map has another class
            type(linear) is nn.Linear and linear.bias is not None and not is_hooked(linear) for linear in maps
        )
        and not is_transformed(x, *(linear.weight for linear in maps), *(linear.bias for linear in maps))
    )


def attend_rows(x: Tensor, mask: Tensor | None, maps: tuple[nn.Linear, ...], heads: int, scale: float) -> Tensor:
    """Return :func:`attend_short` (..., L, f) within sequences (..., L, d), 0 at masked tokens."""
    # A transposed scene is mapped as it lies in memory, without a copy; `rows` says where the tokens of a sequence are.
    swapped = x.ndim > 3 and not x.is_contiguous() and x.transpose(-2, -3).is_contiguous()
    x = x.transpose(-2, -3) if swapped else x
    rows = torch.arange(x.shape[:-1].numel(), device=x.device).view(x.shape[:-1])
    rows = rows.mT if swapped else rows
    valid = None if mask is None else mask.reshape(-1, rows.shape[-1])
    z = attend_short(x.reshape(-1, x.shape[-1]), [(rows.reshape(-1, rows.shape[-1]), valid)], maps, heads, scale)
    z = z.view(*x.shape[:-1], z.shape[-1])
    return z.transpose(-2, -3) if swapped else z


def attend_short(x: Tensor, among: Sequences, maps: tuple[nn.Linear, ...], heads: int, scale: float) -> Tensor:
    """Return ``z = softmax(scale q k^T) v`` within sequences of rows x (T, d), 0 in rows of none.

    ``q, k, v = tanh(Q x), tanh(K x), tanh(V x)``, equations (3) and (4).
    """

    def written_out(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        projected, output = functional.linear(x, weight, bias).tanh(), x.new_zeros(len(x), len(bias) // 3)
        for rows, mask in among:
            valid = torch.ones_like(rows, dtype=torch.bool) if mask is None else mask
            query, key, value = projected[rows].unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # (G, h, L, f / h)
            scores = torch.where(valid[:, None, None], scale * query @ key.mT, torch.finfo(x.dtype).min)
            z = (scores.softmax(-1) @ value).transpose(1, 2).flatten(-2)
            output = output.index_put((rows[valid],), z[valid])
        return output

    weight, bias = (torch.cat([getattr(linear, name) for linear in maps]) for name in ("weight", "bias"))
    output = _ShortAttention.apply(x, weight, bias, among, heads, scale)
    return _TwiceDifferentiable.apply(output, x, weight, bias, written_out) if output.requires_grad else output


class _ShortAttention(torch.autograd.Function):
    """Output of :func:`attend_short`, with first derivatives only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, among: Sequences, heads: int, scale: float
    ) -> Tensor:
        from hitmac.perception import short_sequences as kernels

        projected = x @ weight.t()
        kernels.to_tanh(projected.numpy(), bias.numpy())
        every = all(mask is None for _, mask in among) and sum(rows.numel() for rows, _ in among) == len(x)
        ctx.new = Tensor.new_empty if every else Tensor.new_zeros  # the kernels write the rows of valid tokens
        output, ctx.scale = ctx.new(x, (len(x), len(bias) // 3)), np.float32(scale)
        kept: list[Tensor] = []
        for rows, mask in among:
            valid = rows.new_empty(0, 0, dtype=torch.bool) if mask is None else mask.contiguous()
            rows, weights = rows.contiguous(), x.new_empty(len(rows), heads, rows.shape[1], rows.shape[1])
            kernels.attend(projected.numpy(), rows.numpy(), valid.numpy(), ctx.scale, weights.numpy(), output.numpy())
            kept += rows, valid, weights
        ctx.save_for_backward(x, weight, projected, *kept)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from hitmac.perception import short_sequences as kernels

        x, weight, projected, *kept = ctx.saved_tensors
        found, dz = ctx.new(x, projected.shape), gradient.contiguous().numpy()
        for rows, valid, weights in zip(kept[::3], kept[1::3], kept[2::3], strict=True):
            own = rows.numpy(), valid.numpy(), ctx.scale, weights.numpy()
            kernels.differentiate(projected.numpy(), *own, dz, found.numpy())
        return found @ weight if ctx.needs_input_grad[0] else None, found.t() @ x, found.sum(0), None, None, None


# ---- attention over long sequences ----

_LONG_FROM = 256 * 256
"""Scores from which their matrix is not materialised: memory then grows with the sequence, not its square, and with
1000 tokens or more the time falls by a tenth to three quarters."""


def fused_kernel_pays(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Return True if the matrix of scores is large, and the kernel accepts the mask: of the keys, or causal."""
    return (
        not is_recorded()
        and query.shape[-2] * key.shape[-2] >= _LONG_FROM
        and (mask is None or (mask.shape[-2] == 1 and not causal))
        and not is_transformed(query, key, value)
    )


def fused_attention(
    written_out: Callable[[Tensor, Tensor, Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
) -> Tensor:
    """Compute ``softmax(q k^T) v``, equation (1), by PyTorch's fused kernel, for a bool mask (..., 1, S) of the keys.

    `written_out` is the same function of query, key and value, for derivatives that the kernel lacks.
    """
    inputs = query, key, value
    masks = () if mask is None else (mask.shape[:-2],)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs), *masks)
    allowed = some = None
    if mask is not None:
        # A query without keys, NaN in some versions, attends to all of them, and its output is zeroed.
        some = mask.any(-1, keepdim=True)  # (..., 1, 1)
        allowed = (mask | ~some).expand(*lead, 1, key.shape[-2]).reshape(-1, 1, 1, key.shape[-2])
    width = max(query.shape[-1], value.shape[-1])

    def four_axes(x: Tensor) -> Tensor:  # the kernel expects (N, 1, length, width) with a common width
        x = functional.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x
        return x.expand(*lead, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:])

    output = functional.scaled_dot_product_attention(
        four_axes(query), four_axes(key), four_axes(value), attn_mask=allowed, is_causal=causal, scale=1.0
    )
    output = output.reshape(*lead, *output.shape[-2:])[..., : value.shape[-1]]
    output = output if some is None else output * some
    if torch.is_grad_enabled() and output.requires_grad:
        return _TwiceDifferentiable.apply(output, *inputs, written_out)
    return output


class _TwiceDifferentiable(torch.autograd.Function):
    """Output of a kernel, which has only first derivatives; the written-out form provides all others."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, *arguments: Any) -> Tensor:
        *inputs, ctx.written_out = arguments
        ctx.save_for_backward(*inputs)
        return output.clone()  # not a view, which could not be changed in place

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        if not again and not is_transformed(gradient):
            return gradient, None, None, None, None
        with torch.enable_grad():
            inputs = [x.view_as(x) for x in ctx.saved_tensors]  # views: one may be computed from another
            output = ctx.written_out(*inputs)
            needed = ctx.needs_input_grad[1:4]
            wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
            found = iter(torch.autograd.grad(output, wanted, gradient.to(output.dtype), create_graph=again))
        return None, *(next(found) if need else None for need in needed), None


# ---- attention within every prefix ----

_PREFIX_BLOCK, _PREFIX_ROWS = 2**17, 16
"""Approximate number of scores, and least number of rows, in a block. Its size depends only on the length, so that the
order of summation is the same in every batch."""

_LIMIT = {torch.float64: 256.0, torch.float32: 32.0}
"""Largest scores for which exp(), its inverse, and the square of the inverse, for second derivatives, stay in range."""


def prefix_sums(query: Tensor, key: Tensor, added: Tensor, mask: Tensor | None, bound: float) -> Tensor:
    """Return ``g_j = u . G(z_1 .. z_j)``, the prefixes' part of equation (6), from q, k and ``u . v_l``.

    ``g_j = sum over i <= j of N[i, j] / S[i, j]``, equation (7), with the scores ``s = q k^T`` and the running sums
    ``S[i, j] = sum over l <= j of exp(s[i, l])`` and ``N[i, j] = sum over l <= j of exp(s[i, l]) u . v_l``.

    q and k are (..., L, d), ``u . v`` = `added` is (..., L); the bool `mask` (..., L) is True for valid tokens, and the
    others are skipped. `bound` limits the absolute value of a score. The result g (..., L) is in double precision where
    the device supports it. Memory grows with L, since the backward pass computes each block of rows again; in compiled,
    exported and transformed programs, with L squared.
    """
    double = _double(query)
    if query.dtype in (torch.float16, torch.bfloat16):  # exp() would amplify the rounding of a score
        query, key = query.to(double), key.to(double)
    added, valid = added.to(double), None if mask is None else mask.to(double)

    def sums(rows: Tensor, key: Tensor, added: Tensor, first: int) -> Tensor:
        total = added * 0.0
        for powers, reached in _levels(rows, key, valid, bound, first):
            # The sums of the other prefixes may be 0; adding 1 allows the division.
            means = (powers * added.unsqueeze(-2)).cumsum(-1) / (powers.cumsum(-1) + (1.0 - reached))
            total = total + (means * reached).sum(-2)
        return total

    length = query.shape[-2]
    number = max(_PREFIX_ROWS, _PREFIX_BLOCK // max(length, 1))
    if is_recorded() or length <= number or is_transformed(query, key, added):
        return sums(query, key, added, 0)  # a program for every length has no fixed number of blocks
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False, "determinism_check": "none"}
    total = added * 0.0
    for block, rows in enumerate(query.split(number, -2)):
        total = total + checkpoint(sums, rows, key, added, block * number, **options)
    return total


def _levels(
    rows: Tensor, key: Tensor, valid: Tensor | None, bound: float, first: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield exp(s) (..., rows, L) of the rows from `first` on, and 1 for the prefixes for which they are valid.

    The scores of a wide layer exceed the range of exp(), so they are split into levels, each with its own shift. A
    prefix belongs to the level of its largest score: larger scores come later, much lower ones add nothing.
    """
    double = _double(rows)
    scores = (rows @ key.mT).to(double)
    within = scores.new_ones(scores.shape[-2:]).triu(first)  # [i, j]: 1 for i <= j
    if valid is not None:
        scores = scores + valid.log().unsqueeze(-2)  # -inf for masked tokens
        within = within * valid[..., first : first + rows.shape[-2]].unsqueeze(-1)
    limit = _LIMIT[double]
    levels = max(1, math.ceil(bound / limit))
    if levels == 1:
        yield scores.exp(), within
        return
    passed: Tensor | float = 1.0  # 1 for the prefixes with a score of this level or a higher one
    for level in range(levels):
        shift = (2 * level + 1 - levels) * limit
        higher = 0.0 if level == levels - 1 else (scores > shift + limit).to(double).cumsum(-1).clamp(max=1.0)
        yield (scores - shift).clamp(max=limit).exp(), within * (passed - higher)
        passed = higher


def _double(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64  # MPS has no double precision


# ---- sequences of any lengths ----

_PADDED_TO = 4096
"""Tokens from which padding costs more than further buckets."""


class Bucket(NamedTuple):
    """Sequences of similar length, padded to a common one."""

    tokens: Tensor  # (G, c) int64, the tokens of each sequence; any token where padded
    mask: Tensor | None  # (G, c) bool, False where padded; None: no padding
    first: int | None = None  # first of consecutive tokens; None: they may not be consecutive

    def of(self, x: Tensor) -> Tensor:
        """Return the tokens (G, c, f) of the sequences from all tokens x (T, f)."""
        if self.first is None:
            return x.index_select(0, self.tokens.flatten()).unflatten(0, self.tokens.shape)
        return x.narrow(0, self.first, self.tokens.numel()).unflatten(0, self.tokens.shape)


class Groups(NamedTuple):
    """Division of T tokens into sequences; a token belongs to at most one sequence."""

    buckets: list[Bucket]
    place: Tensor | None  # (T,) int64, of each token among those of all buckets, any without a sequence; None: its own

    def together(self, parts: list[Tensor]) -> Tensor:
        """Return all tokens (T, f) from those (G, c, f) of each bucket, one or more."""
        tokens = torch.cat([part.flatten(0, 1) for part in parts])
        return tokens if self.place is None else tokens.index_select(0, self.place)


def group_rows(mask: Tensor) -> tuple[Tensor, Groups]:
    """Return the valid places (T,) of a bool mask (N, k), shorter rows first, grouped by row."""
    counts = mask.sum(-1)
    order = counts.argsort(stable=True)
    row, column = mask[order].nonzero(as_tuple=True)
    places = order[row] * mask.shape[-1] + column
    buckets, first, steps = [], 0, torch.arange(len(places), device=mask.device)
    for size, number in enumerate(torch.bincount(counts, minlength=1).tolist()):
        if size * number:
            buckets.append(Bucket(steps[first : first + size * number].view(number, size), None, first))
            first += size * number
    return places, Groups(buckets, None)


def group_tokens(keys: Tensor, number: int, rank: Tensor, ranks: int, *, one_bucket: bool = False) -> Groups:
    """Group tokens (T,) by keys 0 to number - 1, `number` for no group; rank, 0 to ranks - 1, orders a group.

    Groups of more than 2^(i - 1) and up to 2^i tokens share a bucket; with many tokens, each size up to 32 has its own.
    `one_bucket` pads all groups to the size of the largest.
    """
    length, device = keys.shape[0], keys.device
    if not is_recorded() and length == 0:
        return Groups([], keys)
    order = (keys * ranks + rank).argsort()
    counts = keys.new_zeros(number + 1).scatter_add(0, keys, torch.ones_like(keys))
    first = counts.cumsum(0) - counts
    within = torch.empty_like(order).scatter(0, order, torch.arange(length, device=device) - first[keys[order]])
    counts, first = counts[:-1], first[:-1]

    def bucket(first: Tensor, counts: Tensor, size: int) -> Bucket:
        step = torch.arange(size, device=device)
        mask = step < counts.unsqueeze(-1)
        places = first.unsqueeze(-1) + torch.where(mask, step, 0)
        # An empty group at the end begins after the last token.
        tokens = order[places.clamp(max=length - 1)]
        return Bucket(tokens, None if not one_bucket and bool(mask.all()) else mask)

    if one_bucket:
        largest = as_size(counts.max())
        return Groups([bucket(first, counts, largest)], (keys * largest + within).clamp(max=number * largest - 1))
    sizes = 2 ** (2 * counts - 1).clamp(min=1).double().log2().floor().to(torch.int64)
    if length >= _PADDED_TO:
        sizes = torch.where(counts <= 32, counts, sizes)
    start, buckets, done = keys.new_zeros(number + 1), [], 0
    for size in sizes[counts > 0].unique().tolist():
        chosen = ((sizes == size) & (counts > 0)).nonzero().squeeze(-1)
        most = int(counts[chosen].max())
        start[chosen] = done + most * torch.arange(len(chosen), device=device)
        done += most * len(chosen)
        buckets.append(bucket(first[chosen], counts[chosen], most))
    return Groups(buckets, start[keys] + within)


def as_size(number: Tensor) -> int:
    """Return a whole number, at least 1, that shapes may depend on, also in compiled or exported programs."""
    found = number.clamp(min=1).item()
    if is_recorded():
        torch._check(found >= 1)
    return found  # type: ignore[return-value]


def is_hooked(module: nn.Module) -> bool:
    """Return True if something expects calls of the module: hooks, or a `forward` of its own, as Accelerate sets.

    Hooks are those of pruning, sharding, profilers and users.
    """
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or "forward" in vars(module)
