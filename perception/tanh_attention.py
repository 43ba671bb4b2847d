"""Tanh-projected attention of HiT-MAC."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_choice, check_heads, check_share, check_tokens, check_widths
from hitmac.perception.fast_paths import Groups, are_plain_maps, attend_in_chunks
from hitmac.perception.functional import (
    FIXED_POOLINGS,
    POOLINGS,
    attend_finite,
    count_tokens,
    is_long,
    is_recorded,
    is_transformed,
    join_heads,
    masked_softmax,
    product,
    split_heads,
    weights_by_head,
    zero_masked,
)

# From this many input numbers on, each projection is one function with a gradient of its own; below it, calling that
# function costs more than it saves.
_ONE_FUNCTION_FROM = 2**16

# Up to this score, sums of exp() and their inverses are finite in single precision; tanh bounds a score by the width.
_MOST_SCORE = 64


class _TanhMap(torch.autograd.Function):
    """``tanh(x W^T + b)`` of x (N, d), faster than in two steps.

    PyTorch's tanh takes six times as long on a CPU as its sigmoid, and ``tanh(u) = 2 sigmoid(2 u) - 1`` is accurate to
    the rounding of 1.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        output = torch.addmm(bias + bias, x, (weight + weight).t()).sigmoid_().mul_(2.0).sub_(1.0)
        ctx.save_for_backward(x, weight, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, output = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        # The gradient itself is to be differentiated or mapped over: PyTorch's fused one is not for that.
        again = torch.is_grad_enabled() or is_transformed(gradient)
        inner = gradient * (1.0 - output * output) if again else torch.ops.aten.tanh_backward(gradient, output)
        return (
            inner @ weight if of_x else None,
            inner.t() @ x if of_weight else None,
            inner.sum(0) if of_bias else None,
        )


def _in_one_function(x: Tensor, maps: tuple[nn.Linear, ...]) -> bool:
    """Return True if each projection of x can be one function."""
    return (
        not is_recorded()
        and x.numel() >= _ONE_FUNCTION_FROM
        and x.dtype in (torch.float32, torch.float64)  # in half precision, 2 sigmoid - 1 is too inaccurate near 0
        and are_plain_maps(x, maps)
    )


class AttentionLayer(nn.Module):
    """Tanh-projected self-attention of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    ``q, k, v = tanh(Q x), tanh(K x), tanh(V x)``, each a linear projection with bias;
    ``z = softmax(q k^T) v`` without scaling; ``global_feature = sum of z over the sequence``.
    The defaults are the paper's; the options follow other attention layers.

    Args:
        feature_dim: width of an input token.
        weight_dim: width of q, k and v, and so of the outputs.
        num_heads: number of heads; it must divide weight_dim.
        scaled: divide the scores by the square root of a head's width.
        pooling: pooling of z into the global feature: ``"sum"``, the paper's, which grows with the sequence;
            ``"mean"`` and ``"max"``, which do not; ``"attention"``, weighted by a learned query.
        residual: add the input to z (feature_dim must be weight_dim).
        layer_norm: normalise z, after the residual.
        dropout: probability of dropping a weight while training; in [0, 1).

    Attributes:
        Q, K, V: the three ``nn.Linear(feature_dim, weight_dim)``; weights are initialised Xavier-uniform, biases 0.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        feature_dim: int,
        weight_dim: int,
        *,
        num_heads: int = 1,
        scaled: bool = False,
        pooling: str = "sum",
        residual: bool = False,
        layer_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_heads(weight_dim, num_heads)
        check_choice("pooling", pooling, POOLINGS)
        check_share("dropout", dropout)
        if residual and feature_dim != weight_dim:
            raise ValueError(f"residual needs feature_dim ({feature_dim}) and weight_dim ({weight_dim}) to be equal")
        self.feature_dim, self.weight_dim, self.num_heads = feature_dim, weight_dim, num_heads
        self.scaled, self.pooling, self.residual, self.dropout = scaled, pooling, residual, dropout
        self.Q, self.K, self.V = (nn.Linear(feature_dim, weight_dim) for _ in range(3))
        for linear in (self.Q, self.K, self.V):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.norm = nn.LayerNorm(weight_dim) if layer_norm else None
        self.pool_query = None if pooling in FIXED_POOLINGS else nn.Parameter(torch.zeros(weight_dim))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, need_weights: bool = False) -> tuple[Tensor, ...]:
        """Attend over a sequence.

        Args:
            x: (..., L, feature_dim) with any number of leading axes, or none; L is 0 or more.
            mask: (..., L), 0 and 1 in any dtype; 1 marks a valid token. None: all are valid.
            need_weights: also return the weights.

        Returns:
            ``z`` (..., L, weight_dim), zero at masked tokens, ``global_feature`` (..., weight_dim), and with
            `need_weights` the weights (..., num_heads, L, L). The content of a masked token affects neither values nor
            gradients.

        Raises:
            ValueError: the last axis of x is not feature_dim, or the mask's shape is not (..., L).
            TypeError: the mask is not a tensor.
        """
        mask = check_tokens(x, mask, self.feature_dim)
        x = zero_masked(x, mask)
        query, key, value = self.project(x)
        z, weights = attend_finite(
            query,
            key,
            value,
            mask=_over_keys(mask, self.num_heads),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
            allow_empty_rows=False,  # a row is empty only without any valid token, and then all of z is zeroed
        )
        z = self._finish(join_heads(z, self.num_heads), x, mask)
        global_feature = self._pool(z, mask)
        if not need_weights:
            return z, global_feature
        assert weights is not None
        weights = weights_by_head(weights, self.num_heads)
        return z, global_feature, weights if mask is None else weights * mask[..., None, :, None]

    def global_feature(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return only the global feature (..., weight_dim); for shorter sequences this is cheaper than computing z.

        See :meth:`forward`.
        """
        mask = check_tokens(x, mask, self.feature_dim)
        plain = self.pooling in ("sum", "mean") and not self.residual and self.norm is None
        if not plain or (self.training and self.dropout > 0.0) or is_long(x, x):
            return self(x, mask)[1]
        query, key, value = self.project(zero_masked(x, mask))
        keys = _over_keys(mask, self.num_heads)
        weights = masked_softmax(product(query, key.mT), keys, allow_empty_rows=False)
        # Pooling the weights before the product equals pooling z: sum_i z_i = (sum_i w_i) v.
        pooled = weights.sum(-2, keepdim=True) if keys is None else product(keys.to(x.dtype), weights)
        total = join_heads(product(pooled, value), self.num_heads).squeeze(-2)
        return total if self.pooling == "sum" else total / count_tokens(x, mask)

    def within(self, x: Tensor, groups: Groups, *, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """Attend within each group of tokens, as :meth:`forward` does over a sequence.

        Args:
            x: (T, feature_dim).
            groups: division of the tokens; the output of a token that is in no group has no meaning.
            need_weights: also return the weights of the last bucket.

        Returns:
            ``z`` (T, weight_dim), and the weights (G, num_heads, c, c) or None.
        """
        linear = (self.Q, self.K, self.V)
        plain = self.num_heads == 1 and not need_weights and not (self.training and self.dropout > 0.0)
        if plain and not torch.is_grad_enabled() and self.weight_dim <= _MOST_SCORE and _in_one_function(x, linear):
            scale = self.weight_dim**-0.5 if self.scaled else 1.0
            return self._finish(attend_in_chunks(x, groups, linear, scale), x, None), None
        maps = self._map(x)
        outputs, weights = [], None
        for bucket, *parts in zip(groups.buckets, *map(groups.apart, maps), strict=True):
            z, weights = attend_finite(
                *(split_heads(one, self.num_heads) for one in parts),
                mask=_over_keys(bucket.mask, self.num_heads),
                dropout=self.dropout if self.training else 0.0,
                need_weights=need_weights,
                allow_empty_rows=False,
            )
            outputs.append(join_heads(z, self.num_heads))
            if weights is not None:
                weights = weights_by_head(weights, self.num_heads)
                weights = weights if bucket.mask is None else weights * bucket.mask[:, None, :, None]
        return self._finish(groups.together(outputs, maps[2]), x, None), weights

    def between(
        self, x: Tensor, others: Tensor, mask: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each token to some others.

        Args:
            x: (T, feature_dim).
            others: (T, l) int64, the tokens that each attends to.
            mask: (T, l) bool, those that count.
            need_weights: also return the weights.

        Returns:
            ``z`` (T, weight_dim), and the weights (T, num_heads, l) or None.
        """
        query, key, value = self._map(x)
        heads = self.num_heads
        key, value = (split_heads(one[others], heads) for one in (key, value))  # (T, l, f), or with heads
        z, weights = attend_finite(
            split_heads(query.unsqueeze(-2), heads),
            key,
            value,
            mask=_over_keys(mask, heads),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        z = self._finish(join_heads(z, heads).squeeze(-2), x, None)
        return z, None if weights is None else weights_by_head(weights, heads).squeeze(-2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v (..., L, weight_dim), or with several heads (..., num_heads, L, weight_dim / num_heads)."""
        query, key, value = self._map(x)
        if self.num_heads > 1:
            query, key, value = (split_heads(one, self.num_heads) for one in (query, key, value))
        return query, key, value

    def _map(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v (..., L, weight_dim), whose heads are side by side."""
        maps = (self.Q, self.K, self.V)
        if _in_one_function(x, maps):
            flat = x.reshape(-1, self.feature_dim)
            query, key, value = (
                _TanhMap.apply(flat, linear.weight, linear.bias).view(*x.shape[:-1], linear.out_features)
                for linear in maps
            )
        else:
            query, key, value = maps[0](x).tanh(), maps[1](x).tanh(), maps[2](x).tanh()
        if self.scaled:
            query = query / (self.weight_dim // self.num_heads) ** 0.5
        return query, key, value

    def _finish(self, z: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.residual:
            z = z + x
        if self.norm is not None:
            z = self.norm(z)
        return z if mask is None else z * mask.unsqueeze(-1)

    def _pool(self, z: Tensor, mask: Tensor | None) -> Tensor:
        """Pool z (..., L, weight_dim), zero at masked tokens, into (..., weight_dim)."""
        learned = () if self.pool_query is None else (self.pool_query,)
        return POOLINGS[self.pooling](z, mask, *learned)

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"pooling={self.pooling!r}, num_heads={self.num_heads}"


def _over_keys(mask: Tensor | None, num_heads: int) -> Tensor | None:
    """Expand a mask (..., L) of tokens into a mask of keys, with axes for queries and heads."""
    if mask is None:
        return None
    return mask.unsqueeze(-2) if num_heads == 1 else mask.unsqueeze(-2).unsqueeze(-2)
