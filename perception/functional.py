"""Attention as functions, scores, poolings. Only this module combines a softmax with a mask."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from hitmac.perception.checks import check_attended, check_choice, check_pairs, check_widths
from hitmac.perception.fast_paths import SHORT_TO, fused_attention, fused_kernel_pays, is_recorded


class Score(nn.Module):
    """Base class of scores, which map query (..., L, d_q) and key (..., S, d_k) to (..., L, S).

    Raises ``ValueError`` for mismatched widths.
    """

    def as_dot(self, query: Tensor) -> Tensor | None:
        """Return the query (..., L, d_k) whose dot product with the key is the score; None if it does not exist."""
        return None

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores."""
        changed = self.as_dot(query)
        assert changed is not None
        if changed.shape[-1] != key.shape[-1]:
            raise ValueError(
                f"{type(self).__name__} requires equal widths; query has {changed.shape[-1]}, key {key.shape[-1]}"
            )
        return changed @ key.mT


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
        query_dim, key_dim = check_widths(query_dim=query_dim, key_dim=key_dim)
        self.weight = nn.Parameter(torch.empty(query_dim, key_dim))
        nn.init.xavier_uniform_(self.weight)

    def as_dot(self, query: Tensor) -> Tensor:
        """Return ``q^T W``."""
        return query @ self.weight


class Additive(Score):
    """Additive score, ``w . tanh(W_q q + W_k k)`` (Bahdanau, Cho, Bengio, ICLR 2015), without biases.

    The weights are initialised Xavier-uniform. Also known as the concat score (Luong, Pham, Manning, EMNLP 2015), since
    ``W_q q + W_k k = [W_q W_k] [q; k]``, and as the MLP score, a network with one hidden layer.

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
        query_dim, key_dim, hidden_dim = check_widths(query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim)
        self.query_weight = nn.Parameter(torch.empty(hidden_dim, query_dim))
        self.key_weight = nn.Parameter(torch.empty(hidden_dim, key_dim))
        self.weight = nn.Parameter(torch.empty(hidden_dim))
        for parameter in (self.query_weight, self.key_weight, self.weight.unsqueeze(0)):
            nn.init.xavier_uniform_(parameter)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (..., L, S), from an intermediate (..., L, S, h)."""
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
    """Build a named score for queries and keys of a width; return a module unchanged."""
    if isinstance(score, Score):
        return score
    check_choice("score", score, SCORES)
    return SCORES[score](width)


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
) -> tuple[Tensor, Tensor | None]:
    """Compute ``softmax(score(query, key)) value``, equations (1) and (2); leading axes broadcast.

    Args:
        query: (..., L, d_q).
        key: (..., S, d_k).
        value: (..., S, d_v).
        score: a score of :mod:`hitmac.perception.functional`; None: the dot product.
        mask: broadcastable to (..., L, S), 0 and 1 in any dtype; 1 lets a query attend to a key. None: all ones.
        causal: query i attends only to the keys up to i; L must equal S.
        dropout: probability of setting a weight to 0 (the others are scaled up to compensate); 0 when not training.
        need_weights: also return the weights. Without weights and dropout, memory grows with L + S instead of L * S
            if the score is a dot product, the sequences are long, and only the keys are masked, or `causal` alone.

    Returns:
        The outputs (..., L, d_v), and the weights (..., L, S) or None. Masked keys have weight exactly 0. Queries
        without keys have weights and output 0, and finite gradients. Keys and values that no query may attend to may
        be NaN or infinite: neither outputs nor gradients depend on them.
    """
    check_attended(query, key, value, causal)
    if mask is not None:
        mask = check_pairs(mask, query.shape[-2], key.shape[-2])
        seen = mask.any(-2)
        key, value = zero_masked(key, seen), zero_masked(value, seen)
    return attend_finite(query, key, value, mask, score, causal, dropout, need_weights)


def attend_finite(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    score: Score | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute :func:`attend`, equation (1), for a bool mask of at least two axes, and finite keys and values."""
    if not need_weights and dropout == 0.0 and fused_kernel_pays(query, key, value, mask, causal):
        changed = query if score is None else score.as_dot(query)
        if changed is not None:

            def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                return attend_finite(query, key, value, mask, causal=causal, need_weights=True)[0]

            return fused_attention(written_out, changed, key, value, mask, causal), None
    if causal:
        triangle = causal_mask(query.shape[-2], query.device)
        mask = triangle if mask is None else mask & triangle
    weights = masked_softmax(query @ key.mT if score is None else score(query, key), mask)
    weights = functional.dropout(weights, dropout) if dropout > 0.0 else weights
    return weights @ value, weights if need_weights else None


def attend_heads(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, num_heads: int, *options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute :func:`attend_finite` for each head; inputs and outputs concatenate the heads.

    The weights are (..., num_heads, L, S) or None.
    """
    if num_heads == 1:
        z, weights = attend_finite(query, key, value, mask, *options)
        return z, None if weights is None else weights.unsqueeze(-3)
    query, key, value = (x.unflatten(-1, (num_heads, -1)).transpose(-2, -3) for x in (query, key, value))
    z, weights = attend_finite(query, key, value, None if mask is None else mask.unsqueeze(-3), *options)
    return z.transpose(-2, -3).flatten(-2), weights


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the weights of scores s (..., L, S) for a bool mask, 0 where it is False and in rows without keys.

    ``w_il = mask_il exp(s_il) / sum over r of mask_ir exp(s_ir)``, equation (2).
    """
    if mask is None:
        return scores.softmax(-1)
    return masked_scores(scores, mask).softmax(-1) * mask  # in rows without keys, the softmax alone is not 0


def masked_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores (..., S), the lowest finite number where the bool mask is False.

    Unlike -inf, it keeps the softmax of rows without keys free of NaN.
    """
    return scores if mask is None else torch.where(mask, scores, torch.finfo(scores.dtype).min)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return the causal mask (length, length) bool: query i attends to the keys up to i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def xavier_linear(inputs: int, outputs: int) -> nn.Linear:
    """Build a linear layer initialised Xavier-uniform, with zero biases."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def zero_masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (..., L, d) with zeros where the bool mask (..., L) is False."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


def finite_if_unseen(x: Tensor, seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `x` (..., L, d) with zeros, where `seen` is False, for NaN and numbers too large for a score in `dtype`.

    In half precision, whose square root of the largest number is 256, only infinity is too large.
    """
    most = max(torch.finfo(dtype).max ** 0.5, torch.finfo(torch.float16).max)
    return torch.where(seen.unsqueeze(-1) | (x.abs() <= most), x, 0.0)


def pool_sum(x: Tensor, mask: Tensor | None) -> Tensor:
    """Sum the tokens, as the paper does; the result grows with their number."""
    learning = x.requires_grad and not is_recorded()
    if learning and x.shape[-2] > SHORT_TO and not torch.is_autocast_enabled(x.device.type):
        # A product: the gradient of a sum is an expanded view, for which products and fused attention take long.
        # Autocast would round it to half precision.
        return (x.new_ones(1, x.shape[-2]) @ x).squeeze(-2)
    return x.sum(-2)


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


FIXED_POOLINGS = {"sum": pool_sum, "mean": pool_mean, "max": pool_max}
"""Poolings without parameters."""

POOLINGS: dict[str, Callable[..., Tensor]] = FIXED_POOLINGS | {"attention": pool_by_query}
"""All poolings; ``"attention"`` also takes a query."""


def pool(x: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """Pool tokens by a fixed pooling."""
    return FIXED_POOLINGS[pooling](x, mask)


def count_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number (..., 1) of valid tokens of x (..., L, d), at least 1, as a divisor."""
    valid = x.new_ones(x.shape[-2]) if mask is None else mask
    return valid.sum(-1, keepdim=True).clamp(min=1)


class Features(NamedTuple):
    """Encoder outputs for a scene with n agents and m targets."""

    per_target: Tensor
    """(..., n, m, f): feature of each pair of an agent and a target."""
    per_agent: Tensor
    """(..., n, f): feature of each agent."""
    global_feature: Tensor
    """(..., f): feature of the scene."""


class Weights(NamedTuple):
    """Attention weights, None where the encoder does not attend; the axis of the h heads precedes the last two."""

    targets: Tensor | None = None
    """(..., n, h, m, m): for each agent, from each of its targets to each; with lists (..., n, h, k, k)."""
    agents: Tensor | None = None
    """(..., h, n, n): from each agent to each; with `neighbours` (..., h, n, l), to each in its list. With ``"axes"``
    for each target (..., m, h, n, n); with lists (..., m, h, c, c), between the up to c agents that list the target, in
    their order, where m is the highest index in a valid place + 1."""
    pairs: Tensor | None = None
    """(..., h, n * m, n * m): from each pair to each, in the order i * m + j."""
