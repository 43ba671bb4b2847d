"""Attention as functions: the one place where a softmax meets a mask, and what goes with masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from perception.checks import check_attended, check_pairs
from perception.scores import Score

# From this number of scores in a matrix on, attention does not write them down: memory then grows with the sequence
# instead of its square. Below it the written-out form is faster.
_LONG_FROM = 256 * 256

# Scores that are written down at a time where PyTorch's fused kernel does not serve, for 32 to 256 queries.
_BLOCK = 2**19


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
    keyless: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """``softmax(score(query, key)) value``; leading axes broadcast.

    Args:
        query: (..., L, d_q).
        key: (..., S, d_k).
        value: (..., S, d_v).
        score: one of :mod:`perception.scores`; None: the dot product.
        mask: broadcastable to (..., L, S), of 0 and 1 in any dtype; 1 where a key takes part. None: all do.
        causal: query i may look at the keys up to i only; L must be S.
        dropout: chance that a weight is set to 0 (the others grow to make up for it); 0 when not training.
        need_weights: return the weights too. Without them memory grows with L + S instead of L * S where the score
            is a dot product and the sequences are long.
        keyless: whether there may be queries without any key whose output matters. If not, a product is saved.

    Returns:
        The outputs (..., L, d_v), and the weights (..., L, S) or None. A key that is masked out has weight exactly
        0; a query without any key has weights and output 0, and finite gradients. A key that no query may look at,
        and its value, may be NaN or infinite: neither outputs nor gradients depend on them.

    Raises:
        ValueError: shapes that do not fit, or causal with L other than S.
        TypeError: the mask is not a tensor.
    """
    check_attended(query, key, value, causal)
    if mask is not None:
        mask = check_pairs(mask, query.shape[-2], key.shape[-2])
        seen = mask.any(-2)
        key, value = finite_if_unseen(key, seen), finite_if_unseen(value, seen)
    return attend_finite(
        query, key, value, score=score, mask=mask, causal=causal, dropout=dropout, need_weights=need_weights,
        keyless=keyless,
    )  # fmt: skip


def attend_finite(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
    keyless: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """:func:`attend` for a bool mask of two axes or more, and finite keys and values."""
    if not need_weights and is_long(query, key):
        changed = query if score is None else score.as_dot(query)
        if changed is not None:
            pairwise = mask is not None and mask.shape[-2] > 1
            if dropout > 0.0 or (causal and pairwise) or is_transformed(changed, key, value):
                return _in_blocks(changed, key, value, mask, causal, dropout), None
            return _fused(changed, key, value, mask, causal), None
    if causal:
        triangle = causal_mask(query.shape[-2], query.device)
        mask = triangle if mask is None else mask & triangle
    scores = product(query, key.mT) if score is None else score(query, key)
    weights = masked_softmax(scores, mask, keyless=keyless)
    if dropout > 0.0:
        weights = functional.dropout(weights, dropout)
    return product(weights, value), weights if need_weights else None


def masked_softmax(scores: Tensor, mask: Tensor | None, *, keyless: bool = True) -> Tensor:
    """Softmax over the last axis (..., L, S) of what the bool mask leaves; zeros where it leaves nothing.

    Without `keyless` a row of which it leaves nothing has equal weights instead.
    """
    if mask is None:
        return scores.softmax(-1)
    # The lowest finite number rather than -inf: a row without keys then stays free of NaN, and the product
    # with the mask makes its weights exact zeros.
    weights = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1)
    return weights * mask if keyless else weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(length, length) bool: query i may look at the keys up to i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product; the general one takes its time to find out that three axes are a batch."""
    if not is_recorded() and a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0]:
        return torch.bmm(a, b)
    return a @ b


def is_long(query: Tensor, key: Tensor) -> bool:
    """Whether the scores are too many to write down."""
    # What is recorded is to serve every length: the choice must not be made by that of its example.
    return not is_recorded() and query.shape[-2] * key.shape[-2] >= _LONG_FROM


def is_recorded() -> bool:
    """Whether the computation is compiled, exported or traced, rather than done here and now."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed(*tensors: Tensor) -> bool:
    """Whether a transform of ``torch.func`` is at work, or one of the tensors carries a forward derivative."""
    return torch._C._are_functorch_transforms_active() or any(
        forward_ad.unpack_dual(x).tangent is not None for x in tensors
    )


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Dot-product attention by PyTorch's fused kernel; causal with a mask of the keys (..., 1, S) at most."""
    inputs = (query, key, value)
    masks = () if mask is None else (mask.shape[:-2],)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs), *masks)
    some = there = None
    if mask is not None and causal:
        # The kernel takes no mask beside `causal`: the keys get a number more, 0 or a very low one, the queries a 1.
        kind = key.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else key.dtype
        low = key.new_zeros(mask.mT.shape).masked_fill(~mask.mT, torch.finfo(dtype).min / 4)  # (..., S, 1)
        key = torch.cat((key.expand(*lead, *key.shape[-2:]), low.expand(*lead, *key.shape[-2:-1], 1)), -1)
        query = functional.pad(query, (0, 1), value=1.0)
        some = mask.mT.cumsum(-2) > 0  # (..., L, 1)
    elif mask is not None:
        # Some versions of the kernel give NaN for a query without keys: let it look at all, and drop what it sees.
        some = mask.any(-1, keepdim=True)  # (..., L or 1, 1)
        there = _four_axes_of_a_mask((mask | ~some).expand(*mask.shape[:-1], key.shape[-2]), lead)
    width = max(query.shape[-1], value.shape[-1])

    def four_axes(x: Tensor) -> Tensor:  # the kernel takes (N, heads, length, width), all of one width
        x = functional.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x
        return x.expand(*lead, *x.shape[-2:]).reshape(-1, lead[-1] if len(lead) > 1 else 1, *x.shape[-2:])

    output = functional.scaled_dot_product_attention(
        four_axes(query), four_axes(key), four_axes(value), attn_mask=there, is_causal=causal, scale=1.0
    )
    output = output.reshape(*lead, *output.shape[-2:])[..., : value.shape[-1]]
    output = output if some is None else output * some
    if torch.is_grad_enabled() and output.requires_grad:
        return _TwiceDifferentiable.apply(output, *inputs, mask, causal)
    return output


def _four_axes_of_a_mask(mask: Tensor, lead: torch.Size) -> Tensor:
    """A mask (..., L, S) for inputs (*lead, length, width) as (N or 1, heads or 1, L, S)."""
    mask = mask.reshape(*(1,) * (len(lead) + 2 - mask.ndim), *mask.shape)
    if len(lead) < 2:
        mask = mask.unsqueeze(-3)
    if mask.shape[:-3].numel() > 1:  # a mask that all share is not written down for each
        mask = mask.expand(*(lead if len(lead) < 2 else lead[:-1]), *mask.shape[-3:])
    return mask.reshape(-1, *mask.shape[-3:])


class _TwiceDifferentiable(torch.autograd.Function):
    """The output of the fused kernel, which has first derivatives only, with derivatives of any order.

    The first derivative alone is the kernel's. If it is to be differentiated in turn, or taken for a batch of
    gradients, it is that of the same attention in blocks.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal = causal
        return output.clone()  # not a view, which nobody could change in place

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        if not again and not is_transformed(gradient):
            return gradient, None, None, None, None, None
        *inputs, mask = ctx.saved_tensors
        with torch.enable_grad():
            # Views, so that one input that was computed from another is a variable of its own.
            query, key, value = inputs = [x.view_as(x) for x in inputs]
            output = _in_blocks(query, key, value, mask, ctx.causal, 0.0)
            needed = ctx.needs_input_grad[1:4]
            wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
            found = iter(torch.autograd.grad(output, wanted, gradient.to(output.dtype), create_graph=again))
        return None, *(next(found) if need else None for need in needed), None, None


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """Dot-product attention written out for some queries at a time; a backward pass computes their scores again."""
    length, keys = query.shape[-2], key.shape[-2]
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    rows = min(max(_BLOCK // max(lead.numel() * keys, 1), 32), 256)
    recompute = torch.is_grad_enabled() and not is_transformed(query, key, value)
    outputs = []
    for first in range(0, length, rows):
        last = min(first + rows, length)
        stop = last if causal else keys  # no query of the block may look further
        there = mask
        if there is not None:
            there = there if there.shape[-2] == 1 else there[..., first:last, :]
            there = there if there.shape[-1] == 1 else there[..., :stop]
        block = (query[..., first:last, :], key[..., :stop, :], value[..., :stop, :], there, causal, dropout)
        outputs.append(
            checkpoint(_block, *block, use_reentrant=False, preserve_rng_state=dropout > 0.0)
            if recompute
            else _block(*block)
        )
    return torch.cat(outputs, -2)


def _block(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """Dot-product attention written out; if causal, the last query may look at all keys, the one before at one less."""
    scores = product(query, key.mT)
    if causal:
        rows, stop = scores.shape[-2:]
        triangle = torch.ones(rows, stop, dtype=torch.bool, device=query.device).tril(stop - rows)
        mask = triangle if mask is None else mask & triangle
    weights = masked_softmax(scores, mask)
    return product(functional.dropout(weights, dropout) if dropout > 0.0 else weights, value)


def zero_masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (..., L, d) with zeros where the bool mask (..., L) is False."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


def finite_if_unseen(x: Tensor, seen: Tensor) -> Tensor:
    """`x` (..., L, d) with zeros for NaN and what is too large to be squared, in tokens where `seen` (..., L) is False.

    Such numbers become infinite in the next linear map or in a score, and infinity times a weight of 0 is NaN.
    """
    return torch.where(seen.unsqueeze(-1) | (x.abs() < torch.finfo(x.dtype).max ** 0.5), x, 0.0)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(..., L, d) as (..., num_heads, L, d / num_heads); a single head is left as it is."""
    return x if num_heads == 1 else x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)


def join_heads(x: Tensor, num_heads: int) -> Tensor:
    """The inverse of :func:`split_heads`."""
    return x if num_heads == 1 else x.transpose(-2, -3).flatten(-2)


def weights_by_head(weights: Tensor, num_heads: int) -> Tensor:
    """Weights with an axis for the heads, also of a single one."""
    return weights.unsqueeze(-3) if num_heads == 1 else weights


def count(mask: Tensor) -> Tensor:
    """(..., 1): how many of the last axis are there, 1 where none is, to divide by."""
    return mask.sum(-1, keepdim=True).clamp(min=1)


def pool(x: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """The ``"sum"`` or ``"mean"`` of tokens (..., L, d); those that the mask (..., L) takes out are zero already."""
    # With gradients a product, since that of a sum is a view that later products are slow on.
    total = (x.new_ones(1, x.shape[-2]) @ x).squeeze(-2) if x.requires_grad else x.sum(-2)
    return total if pooling == "sum" else total / count_tokens(x, mask)


def count_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """How many tokens (..., L, d) are there, 1 where none is, to divide by."""
    return count(x.new_ones(x.shape[-2]) if mask is None else mask)
