"""Attention as functions, and operations on masks. Only this module combines a softmax with a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hitmac.perception.checks import check_attended, check_choice, check_pairs, check_widths


class Score(nn.Module):
    """Base class of all scores."""

    def as_dot(self, query: Tensor) -> Tensor | None:
        """Return the query (..., L, d_k) whose dot product with the key is the score; None if there is none."""
        return None

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (..., L, S) of query (..., L, d_q) and key (..., S, d_k); ValueError if widths mismatch."""
        changed = self.as_dot(query)
        assert changed is not None
        if changed.shape[-1] != key.shape[-1]:
            raise ValueError(
                f"query has width {changed.shape[-1]} and key {key.shape[-1]}; {type(self).__name__} needs them to fit"
            )
        return changed @ key.transpose(-2, -1)


class Dot(Score):
    """Dot product, ``q . k``."""

    def as_dot(self, query: Tensor) -> Tensor:
        """Return the query itself."""
        return query


class ScaledDot(Score):
    """Scaled dot product, ``q . k / sqrt(d)`` (Vaswani and others, NeurIPS 2017, section 3.2.1)."""

    def as_dot(self, query: Tensor) -> Tensor:
        """Return ``q / sqrt(d)``."""
        return query / query.shape[-1] ** 0.5


class Bilinear(Score):
    """Bilinear score, ``q^T W k`` (Luong, Pham, Manning, EMNLP 2015, "general"), with W initialised Xavier-uniform.

    Args:
        query_dim: width of a query.
        key_dim: width of a key; None: the query's.

    Attributes:
        weight: W (query_dim, key_dim).
    """

    def __init__(self, query_dim: int, key_dim: int | None = None) -> None:
        super().__init__()
        key_dim = query_dim if key_dim is None else key_dim
        check_widths(query_dim=query_dim, key_dim=key_dim)
        self.weight = nn.Parameter(torch.empty(query_dim, key_dim))
        nn.init.xavier_uniform_(self.weight)

    def as_dot(self, query: Tensor) -> Tensor:
        """Return ``q^T W``."""
        if query.shape[-1] != self.weight.shape[0]:
            raise ValueError(f"query has width {query.shape[-1]}; it must be {self.weight.shape[0]}")
        return query @ self.weight


class Additive(Score):
    """Additive score, ``w . tanh(W_q q + W_k k)`` (Bahdanau, Cho, Bengio, ICLR 2015), without biases.

    The weights are initialised Xavier-uniform. The score is also known as the concat score (Luong, Pham, Manning, EMNLP
    2015), since ``W_q q + W_k k = [W_q W_k] [q; k]``, and as the MLP score, a network with one hidden layer.

    Args:
        query_dim: width of a query.
        key_dim: width of a key; None: the query's.
        hidden_dim: h, width of the sum; None: the query's.

    Attributes:
        query_weight, key_weight, weight: W_q (h, query_dim), W_k (h, key_dim), w (h,).
    """

    def __init__(self, query_dim: int, key_dim: int | None = None, hidden_dim: int | None = None) -> None:
        super().__init__()
        key_dim = query_dim if key_dim is None else key_dim
        hidden_dim = query_dim if hidden_dim is None else hidden_dim
        check_widths(query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim)
        self.query_weight = nn.Parameter(torch.empty(hidden_dim, query_dim))
        self.key_weight = nn.Parameter(torch.empty(hidden_dim, key_dim))
        self.weight = nn.Parameter(torch.empty(hidden_dim))
        for parameter in (self.query_weight, self.key_weight, self.weight.unsqueeze(0)):
            nn.init.xavier_uniform_(parameter)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (..., L, S), from an intermediate (..., L, S, h); ValueError if widths mismatch."""
        for name, given, weight in (("query", query, self.query_weight), ("key", key, self.key_weight)):
            if given.shape[-1] != weight.shape[-1]:
                raise ValueError(f"{name} has width {given.shape[-1]}; it must be {weight.shape[-1]}")
        hidden = (query @ self.query_weight.T).unsqueeze(-2) + (key @ self.key_weight.T).unsqueeze(-3)
        return hidden.tanh() @ self.weight


SCORES: dict[str, Callable[[int], Score]] = {
    "dot": lambda width: Dot(),
    "scaled_dot": lambda width: ScaledDot(),
    "bilinear": Bilinear,
    "additive": Additive,
}
"""Scores for queries and keys of one width, by name."""


def make_score(score: str | Score, width: int) -> Score:
    """Build the score of a name for queries and keys of a width; a module is returned unchanged.

    Raises ``ValueError`` for an unknown name; the message lists the known names.
    """
    if isinstance(score, Score):
        return score
    check_choice("score", score, SCORES)
    return SCORES[score](width)


# From this number of scores on, attention does not materialise their matrix: memory then grows with the sequence
# instead of its square. Below it the materialised form is faster.
_LONG_FROM = 256 * 256

# Scores materialised at a time, for 32 to 256 queries, where PyTorch's fused kernel does not apply.
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
    allow_empty_rows: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Compute ``softmax(score(query, key)) value``; leading axes broadcast.

    Args:
        query: (..., L, d_q).
        key: (..., S, d_k).
        value: (..., S, d_v).
        score: a score of :mod:`hitmac.perception.functional`; None: the dot product.
        mask: broadcastable to (..., L, S), 0 and 1 in any dtype; 1 lets a query attend to a key. None: all ones.
        causal: query i attends only to the keys up to i; L must equal S.
        dropout: probability of setting a weight to 0 (the others are scaled up to compensate); 0 when not training.
        need_weights: also return the weights. Without them, memory grows with L + S instead of L * S where the score
            is a dot product and the sequences are long.
        allow_empty_rows: False promises that no query without any key has an output that matters, which saves a
            product.

    Returns:
        The outputs (..., L, d_v), and the weights (..., L, S) or None. A masked key has weight exactly 0. A query
        without any key has weights and output 0, and finite gradients. A key that no query may attend to, and its
        value, may be NaN or infinite: neither outputs nor gradients depend on them.

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
        allow_empty_rows=allow_empty_rows,
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
    allow_empty_rows: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Compute :func:`attend` for a bool mask of two axes or more, and finite keys and values."""
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
    weights = masked_softmax(scores, mask, allow_empty_rows=allow_empty_rows)
    if dropout > 0.0:
        weights = functional.dropout(weights, dropout)
    return product(weights, value), weights if need_weights else None


def masked_softmax(scores: Tensor, mask: Tensor | None, *, allow_empty_rows: bool = True) -> Tensor:
    """Compute the softmax over the last axis of scores (..., L, S) where the bool mask is True; 0 elsewhere.

    A fully masked row is all zeros, or without `allow_empty_rows` has equal weights.
    """
    if mask is None:
        return scores.softmax(-1)
    # The lowest finite number rather than -inf keeps a row without keys free of NaN; the product with the mask then
    # makes its weights exact zeros.
    weights = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1)
    return weights * mask if allow_empty_rows else weights


def bounded_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Compute :func:`masked_softmax` for scores with a finite ``exp``, in place; each row has a key."""
    weights = scores.exp_()
    if mask is not None:
        weights.mul_(mask)
    return weights.div_(weights.sum(-1, keepdim=True))


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return the causal mask (length, length) bool: query i attends to the keys up to i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product a b; ``bmm`` skips the overhead of ``@`` for three axes."""
    if not is_recorded() and a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0]:
        return torch.bmm(a, b)
    return a @ b


def is_long(query: Tensor, key: Tensor) -> bool:
    """Return True if the matrix of scores is too large to materialise."""
    # A recorded graph serves every length: the length of its example must not decide.
    return not is_recorded() and query.shape[-2] * key.shape[-2] >= _LONG_FROM


def is_recorded() -> bool:
    """Return True while the computation is compiled, exported or traced rather than run eagerly."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed(*tensors: Tensor) -> bool:
    """Return True if a transform of ``torch.func`` is active or a tensor carries a forward derivative."""
    return torch._C._are_functorch_transforms_active() or any(
        forward_ad.unpack_dual(x).tangent is not None for x in tensors
    )


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Compute dot-product attention with PyTorch's fused kernel; a causal call takes only a mask (..., 1, S)."""
    inputs = (query, key, value)
    masks = () if mask is None else (mask.shape[:-2],)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs), *masks)
    some = there = None
    if mask is not None and causal:
        # The kernel takes no mask together with `causal`. An extra column, 0 or very low in the keys and 1 in the
        # queries, masks the keys instead.
        kind = key.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else key.dtype
        low = key.new_zeros(mask.mT.shape).masked_fill(~mask.mT, torch.finfo(dtype).min / 4)  # (..., S, 1)
        key = torch.cat((key.expand(*lead, *key.shape[-2:]), low.expand(*lead, *key.shape[-2:-1], 1)), -1)
        query = functional.pad(query, (0, 1), value=1.0)
        some = mask.mT.cumsum(-2) > 0  # (..., L, 1)
    elif mask is not None:
        # Some versions of the kernel give NaN for a query without keys: let it attend to all keys, and zero its output.
        some = mask.any(-1, keepdim=True)  # (..., L or 1, 1)
        there = _four_axes_of_a_mask((mask | ~some).expand(*mask.shape[:-1], key.shape[-2]), lead)
    width = max(query.shape[-1], value.shape[-1])

    def four_axes(x: Tensor) -> Tensor:  # the kernel takes (N, heads, length, width) with a common width
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
    """Reshape a mask (..., L, S) for inputs (*lead, length, width) to (N or 1, heads or 1, L, S)."""
    mask = mask.reshape(*(1,) * (len(lead) + 2 - mask.ndim), *mask.shape)
    if len(lead) < 2:
        mask = mask.unsqueeze(-3)
    if mask.shape[:-3].numel() > 1:  # a shared mask is not copied
        mask = mask.expand(*(lead if len(lead) < 2 else lead[:-1]), *mask.shape[-3:])
    return mask.reshape(-1, *mask.shape[-3:])


class _TwiceDifferentiable(torch.autograd.Function):
    """Output of the fused kernel, which has only first derivatives, with derivatives of any order.

    A first derivative alone comes from the kernel. One that is differentiated again, or taken for a batch of
    gradients, comes from the same attention in blocks.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal = causal
        return output.clone()  # not a view, which could not be changed in place

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        if not again and not is_transformed(gradient):
            return gradient, None, None, None, None, None
        *inputs, mask = ctx.saved_tensors
        with torch.enable_grad():
            # Views, so that an input computed from another is a separate variable.
            query, key, value = inputs = [x.view_as(x) for x in inputs]
            output = _in_blocks(query, key, value, mask, ctx.causal, 0.0)
            needed = ctx.needs_input_grad[1:4]
            wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
            found = iter(torch.autograd.grad(output, wanted, gradient.to(output.dtype), create_graph=again))
        return None, *(next(found) if need else None for need in needed), None, None


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """Compute dot-product attention for a block of queries at a time; the backward pass recomputes their scores."""
    length, keys = query.shape[-2], key.shape[-2]
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    rows = min(max(_BLOCK // max(lead.numel() * keys, 1), 32), 256)
    recompute = torch.is_grad_enabled() and not is_transformed(query, key, value)
    outputs = []
    for first in range(0, length, rows):
        last = min(first + rows, length)
        stop = last if causal else keys  # no query of the block attends further
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
    """Compute one block of attention; if causal, the last query attends to all keys, the one before to one fewer."""
    scores = product(query, key.mT)
    if causal:
        rows, stop = scores.shape[-2:]
        triangle = torch.ones(rows, stop, dtype=torch.bool, device=query.device).tril(stop - rows)
        mask = triangle if mask is None else mask & triangle
    weights = masked_softmax(scores, mask)
    return product(functional.dropout(weights, dropout) if dropout > 0.0 else weights, value)


def zero_masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (..., L, d) with zeros where the bool mask (..., L) is False."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


def finite_if_unseen(x: Tensor, seen: Tensor) -> Tensor:
    """Return `x` (..., L, d) with zeros for numbers that are NaN or too large to be squared in tokens that nobody sees.

    `seen` (..., L) is False there. A larger number would be infinite after the next linear map, or in a score, and
    infinity times a weight of 0 is NaN.
    """
    return torch.where(seen.unsqueeze(-1) | (x.abs() < torch.finfo(x.dtype).max ** 0.5), x, 0.0)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Reshape (..., L, d) to (..., num_heads, L, d / num_heads); a single head is left unchanged."""
    return x if num_heads == 1 else x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)


def join_heads(x: Tensor, num_heads: int) -> Tensor:
    """Invert :func:`split_heads`."""
    return x if num_heads == 1 else x.transpose(-2, -3).flatten(-2)


def weights_by_head(weights: Tensor, num_heads: int) -> Tensor:
    """Return the weights with an axis for the heads, even for a single head."""
    return weights.unsqueeze(-3) if num_heads == 1 else weights


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


class Features(NamedTuple):
    """Encoder outputs for a scene with n agents and m targets."""

    per_target: Tensor
    """(..., n, m, f): one feature for every pair of an agent and a target."""
    per_agent: Tensor
    """(..., n, f): one feature for every agent."""
    global_feature: Tensor
    """(..., f): one feature for the whole scene."""


class Weights(NamedTuple):
    """Attention weights; None where the encoder does not attend. The axis of the h heads precedes the last two."""

    targets: Tensor | None = None
    """(..., n, h, m, m): for every agent, from each of its targets to each; of listed targets (..., n, h, k, k)."""
    agents: Tensor | None = None
    """(..., h, n, n): from each agent to each; with `neighbours` (..., h, n, l), to each of its list. With ``"axes"``
    for every target (..., m, h, n, n), of listed targets (..., m, h, c, c), from each agent that lists the target to
    each, in their order; c is the largest number of them, and m the highest listed index + 1."""
    pairs: Tensor | None = None
    """(..., h, n * m, n * m): from each pair to each, in the order i * m + j."""
