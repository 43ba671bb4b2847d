"""Attention: the one place where a softmax meets a mask; HiT-MAC's tanh-projected layer; multi-head attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from perception.checks import as_mask, check_choice, check_heads, check_share, check_tokens, check_widths
from perception.scores import Score, make_score

POOLINGS = ("sum", "mean", "max", "attention")
"""How a sequence of outputs becomes one."""

# From so many scores of a matrix on, attention does not write them down, but uses PyTorch's fused kernel, whose memory
# grows with the sequence instead of its square. Under it the written-out form is faster.
_FUSED_FROM = 256 * 256

# From so many numbers of input on, the three maps of the tanh-projected layer are one function with a gradient of its
# own; under it the start of that function costs more than it saves.
_ONE_FUNCTION_FROM = 2**16


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    keyless: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """``softmax(score(query, key)) value``.

    Args:
        query: (..., L, d_q).
        key: (..., S, d_k).
        value: (..., S, d_v).
        score: one of :mod:`perception.scores`; None: the dot product.
        mask: broadcastable to (..., L, S), of 0 and 1 in any dtype; 1 where a key takes part. None: all do.
        dropout: chance that a weight is set to 0 (the others grow to make up for it); 0 when not training.
        need_weights: return the weights too. Without them memory grows with L + S instead of L * S where the score
            is a dot product and the sequences are long.
        keyless: whether there may be queries without any key whose output matters. If not, a product is saved.

    Returns:
        The outputs (..., L, d_v), and the weights (..., L, S) or None. A key that is masked out has weight exactly
        0; a query without any key has weights and output 0, and finite gradients.
    """
    mask = None if mask is None else as_mask(mask)
    if not need_weights and _is_long(query, key):
        changed = query if score is None else score.as_dot(query)
        if changed is not None:
            return _fused(changed, key, value, mask, dropout), None
    scores = _product(query, key.mT) if score is None else score(query, key)
    weights = masked_softmax(scores, mask, keyless=keyless)
    if dropout > 0.0:
        weights = functional.dropout(weights, dropout)
    return _product(weights, value), weights if need_weights else None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product; the general one takes its time to find out that three axes are a batch."""
    return torch.bmm(a, b) if a.ndim == b.ndim == 3 else a @ b


def masked_softmax(scores: Tensor, mask: Tensor | None, *, keyless: bool = True) -> Tensor:
    """Softmax over the last axis (..., L, S) of what the mask leaves; zeros where it leaves nothing.

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


def _is_plain(x: Tensor) -> bool:
    """Whether x is to be computed as it is, here and now, on a CPU."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu")


def _is_long(query: Tensor, key: Tensor) -> bool:
    # What is compiled or exported is to serve every length: the choice must not be made by that of its example.
    return not torch.compiler.is_compiling() and query.shape[-2] * key.shape[-2] >= _FUSED_FROM


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Dot-product attention whose scores are never written down."""
    lead = query.shape[:-2]

    def flat(x: Tensor) -> Tensor:  # the fused kernel takes exactly two leading axes
        return x.expand(*lead, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:])

    some = None
    if mask is not None:
        # Some versions of the kernel give NaN for a query without keys: let it look at all, and drop what it sees.
        some = mask.any(-1, keepdim=True)  # (..., L or 1, 1)
        mask = flat(mask | ~some)
    output = functional.scaled_dot_product_attention(
        flat(query), flat(key), flat(value), attn_mask=mask, dropout_p=dropout, scale=1.0
    ).reshape(*lead, query.shape[-2], value.shape[-1])
    return output if some is None else output * some


class _TanhMaps(torch.autograd.Function):
    """``tanh(x W_i^T + b_i)`` for the three maps of one x (N, d), faster than apart.

    PyTorch's tanh takes six times as long on a CPU as its sigmoid, and ``tanh(u) = 2 sigmoid(2 u) - 1``; the gradients
    of the three maps by x are added up in the matrix product, without a tensor for each.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, *maps: Tensor) -> tuple[Tensor, ...]:
        weights, biases = maps[:3], maps[3:]
        return tuple(
            torch.addmm(bias + bias, x, (weight + weight).t()).sigmoid_().mul_(2.0).sub_(1.0)
            for weight, bias in zip(weights, biases, strict=True)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(inputs[0], *inputs[1:4], *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, *rest = ctx.saved_tensors
        of_x, of_weights, of_biases = None, [], []
        again = torch.is_grad_enabled()  # the gradient itself is to be differentiated
        for gradient, weight, output in zip(gradients, rest[:3], rest[3:], strict=True):
            inner = gradient * (1.0 - output * output) if again else _tanh_backward(gradient, output)
            if of_x is not None and not again:
                of_x.addmm_(inner, weight)
            else:
                of_x = inner @ weight if of_x is None else of_x + inner @ weight
            of_weights.append(inner.t() @ x)
            of_biases.append(inner.sum(0))
        assert of_x is not None
        return of_x, *of_weights, *of_biases


_tanh_backward = torch.ops.aten.tanh_backward


class AttentionLayer(nn.Module):
    """The tanh-projected self-attention of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    ``q, k, v = tanh(Q x), tanh(K x), tanh(V x)``, each a linear map with bias;
    ``z = softmax(q k^T) v`` without scaling; ``global_feature = sum of z over the sequence``.
    The options, all off by default, are what others do.

    Args:
        feature_dim: width of an input token.
        weight_dim: width of q, k and v, and so of the outputs.
        num_heads: attend in so many parts of the width apart; it must divide weight_dim.
        scaled: divide the scores by the root of a head's width.
        pooling: how z becomes the global feature: ``"sum"``, the paper's, which grows with the sequence; ``"mean"``
            and ``"max"``, which do not; ``"attention"``: weighted by a learned query.
        residual: add the input to z (feature_dim must be weight_dim).
        layer_norm: normalise z, after the residual.
        dropout: of the weights, while training.

    Attributes:
        Q, K, V: the three ``nn.Linear(feature_dim, weight_dim)``; weights start Xavier-uniform, biases 0.

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
            raise ValueError(f"residual needs feature_dim ({feature_dim}) and weight_dim ({weight_dim}) to be the same")
        self.feature_dim, self.weight_dim, self.num_heads = feature_dim, weight_dim, num_heads
        self.scaled, self.pooling, self.residual, self.dropout = scaled, pooling, residual, dropout
        self.Q, self.K, self.V = (nn.Linear(feature_dim, weight_dim) for _ in range(3))
        for linear in (self.Q, self.K, self.V):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.norm = nn.LayerNorm(weight_dim) if layer_norm else None
        self.pool_query = nn.Parameter(torch.zeros(weight_dim)) if pooling == "attention" else None

    def forward(self, x: Tensor, mask: Tensor | None = None, *, need_weights: bool = False) -> tuple[Tensor, ...]:
        """Attend over a sequence.

        Args:
            x: (..., L, feature_dim), any number of leading axes, also none; L from 0 up.
            mask: (..., L), of 0 and 1 in any dtype, 1 where a token is there. None: all are.
            need_weights: return the weights too.

        Returns:
            ``z`` (..., L, weight_dim), zero at masked tokens, ``global_feature`` (..., weight_dim), and if asked for
            the weights (..., num_heads, L, L). What a masked token holds changes neither values nor gradients.

        Raises:
            ValueError: the last axis of x is not feature_dim, or the mask's shape is not (..., L).
            TypeError: the mask is not a tensor.
        """
        mask = check_tokens(x, mask, self.feature_dim)
        x = zero_masked(x, mask)
        query, key, value = self.project(x)
        z, weights = attend(
            query,
            key,
            value,
            mask=None if mask is None else _over_keys(mask, self.num_heads),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
            keyless=False,  # only where no token is there at all, and then all of z is dropped
        )
        z = self._finish(_join(z, self.num_heads), x, mask)
        global_feature = self._pool(z, mask)
        if not need_weights:
            return z, global_feature
        assert weights is not None
        weights = _apart(weights, self.num_heads)
        return z, global_feature, weights if mask is None else weights * mask[..., None, :, None]

    def global_feature(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The global feature (..., weight_dim) alone; it costs less than with all of z, but for long sequences.

        See :meth:`forward`.
        """
        mask = check_tokens(x, mask, self.feature_dim)
        plain = self.pooling in ("sum", "mean") and not self.residual and self.norm is None
        if not plain or (self.training and self.dropout > 0.0) or _is_long(x, x):
            return self(x, mask)[1]
        query, key, value = self.project(zero_masked(x, mask))
        keys = None if mask is None else _over_keys(mask, self.num_heads)
        weights = masked_softmax(_product(query, key.mT), keys, keyless=False)
        # Pooling the weights before the values is pooling z: sum_i z_i = (sum_i w_i) v.
        pooled = weights.sum(-2, keepdim=True) if keys is None else _product(keys.to(x.dtype), weights)
        total = _join(_product(pooled, value), self.num_heads).squeeze(-2)
        return total if self.pooling == "sum" else total / _count(x, mask)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, (..., L, weight_dim) or with several heads (..., num_heads, L, weight_dim / num_heads)."""
        maps = (self.Q, self.K, self.V)
        if _is_plain(x) and x.numel() >= _ONE_FUNCTION_FROM:
            flat = _TanhMaps.apply(
                x.reshape(-1, self.feature_dim), *(linear.weight for linear in maps), *(linear.bias for linear in maps)
            )
            query, key, value = (one.view(*x.shape[:-1], self.weight_dim) for one in flat)
        else:
            query, key, value = maps[0](x).tanh(), maps[1](x).tanh(), maps[2](x).tanh()
        if self.num_heads > 1:
            query, key, value = (_split(one, self.num_heads) for one in (query, key, value))
        if self.scaled:
            query = query / query.shape[-1] ** 0.5
        return query, key, value

    def _finish(self, z: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.residual:
            z = z + x
        if self.norm is not None:
            z = self.norm(z)
        return z if mask is None else z * mask.unsqueeze(-1)

    def _pool(self, z: Tensor, mask: Tensor | None) -> Tensor:
        """One (..., weight_dim) for all of z, whose masked tokens are zero."""
        if self.pooling == "attention":
            assert self.pool_query is not None
            keys = None if mask is None else mask.unsqueeze(-2)
            return (masked_softmax((z @ self.pool_query).unsqueeze(-2), keys) @ z).squeeze(-2)
        if self.pooling == "max":
            if z.shape[-2] == 0:
                return z.sum(-2)
            if mask is None:
                return z.amax(-2)
            highest = z.masked_fill(~mask.unsqueeze(-1), torch.finfo(z.dtype).min).amax(-2)
            return highest * mask.any(-1, keepdim=True)
        return pool(z, mask, self.pooling)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"pooling={self.pooling!r}, num_heads={self.num_heads}"


class MultiHeadAttention(nn.Module):
    """Multi-head attention, self- or cross- (Vaswani and others, NeurIPS 2017, section 3.2.2).

    ``output = W_o [head_1; ...; head_h]``, ``head_i = softmax(score(q_i, k_i)) v_i``, where q, k, v are linear maps of
    the inputs, cut into h parts.

    Args:
        embed_dim: width of q, k, v and the output.
        num_heads: h; it must divide embed_dim.
        query_dim, key_dim, value_dim: widths of the inputs; None: embed_dim.
        score: a name out of :data:`perception.scores.SCORES`, or a score for the width of a head.
        bias: whether the linear maps have one.
        dropout: of the weights, while training.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 1,
        *,
        query_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        score: str | Score = "scaled_dot",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = [embed_dim if width is None else width for width in (query_dim, key_dim, value_dim)]
        check_widths(embed_dim=embed_dim, query_dim=widths[0], key_dim=widths[1], value_dim=widths[2])
        check_heads(embed_dim, num_heads)
        check_share("dropout", dropout)
        self.num_heads, self.dropout = num_heads, dropout
        self.query, self.key, self.value = (nn.Linear(width, embed_dim, bias=bias) for width in widths)
        self.output = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.score = make_score(score, embed_dim // num_heads)
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: (..., L, query_dim).
            key: (..., S, key_dim); None: the query (self-attention).
            value: (..., S, value_dim); None: the key.
            mask: of 0 and 1 in any dtype, (..., S), which keys are there, or (..., L, S), which query may look at which.
            causal: query i may look at the keys up to i.
            need_weights: return the weights too.

        Returns:
            The outputs (..., L, embed_dim), and the weights (..., num_heads, L, S) or None. What no key is left to
            has the output map's bias.

        Raises:
            ValueError: a width that is not the module's, or a mask whose shape does not fit.
            TypeError: the mask is not a tensor.
        """
        key = query if key is None else key
        value = key if value is None else value
        for name, given, linear in (
            ("query", query, self.query), ("key", key, self.key), ("value", value, self.value)
        ):  # fmt: skip
            if given.ndim < 2 or given.shape[-1] != linear.in_features:
                raise ValueError(
                    f"{name} has shape {tuple(given.shape)}; it must be (..., length, {linear.in_features})"
                )
        q, k, v = (
            _split(linear(given), self.num_heads)
            for linear, given in ((self.query, query), (self.key, key), (self.value, value))
        )
        heads, weights = attend(
            q,
            k,
            v,
            score=self.score,
            mask=self._mask(mask, query, key, causal),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self.output(_join(heads, self.num_heads)), None if weights is None else _apart(weights, self.num_heads)

    def _mask(self, mask: Tensor | None, query: Tensor, key: Tensor, causal: bool) -> Tensor | None:
        """Which query of which head may look at which key."""
        length, keys = query.shape[-2], key.shape[-2]
        whole = None
        if mask is not None:
            mask = as_mask(mask)
            if mask.shape == key.shape[:-1]:
                whole = mask.unsqueeze(-2)
            elif mask.ndim >= 2 and mask.shape[-2:] == (length, keys):
                whole = mask
            else:
                raise ValueError(
                    f"mask has shape {tuple(mask.shape)}; it must be {tuple(key.shape[:-1])} or (..., {length}, {keys})"
                )
            if self.num_heads > 1:
                whole = whole.unsqueeze(-3)
        if causal:
            if length != keys:
                raise ValueError(f"causal attention needs as many keys ({keys}) as queries ({length})")
            triangle = causal_mask(length, query.device)
            whole = triangle if whole is None else whole & triangle
        return whole


def zero_masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (..., L, d) with zeros where the mask (..., L) is False."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


def _over_keys(mask: Tensor, num_heads: int) -> Tensor:
    """A mask (..., L) of the tokens as one of the keys, for all queries and heads."""
    return mask.unsqueeze(-2) if num_heads == 1 else mask.unsqueeze(-2).unsqueeze(-2)


def _split(x: Tensor, num_heads: int) -> Tensor:
    """(..., L, d) as (..., num_heads, L, d / num_heads); a single head is left as it is."""
    return x if num_heads == 1 else x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)


def _join(x: Tensor, num_heads: int) -> Tensor:
    """The inverse of `_split`."""
    return x if num_heads == 1 else x.transpose(-2, -3).flatten(-2)


def _apart(weights: Tensor, num_heads: int) -> Tensor:
    """Weights with an axis for the heads, also of a single one."""
    return weights.unsqueeze(-3) if num_heads == 1 else weights


def _count(x: Tensor, mask: Tensor | None) -> Tensor:
    """How many tokens (..., L, d) are there, 1 where none is, to divide by."""
    return count(x.new_ones(x.shape[-2]) if mask is None else mask)


def count(mask: Tensor) -> Tensor:
    """(..., 1): how many of the last axis are there, 1 where none is, to divide by."""
    return mask.sum(-1, keepdim=True).clamp(min=1)


def pool(x: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """The ``"sum"`` or ``"mean"`` of tokens (..., L, d); those that the mask (..., L) takes out are zero already."""
    # With gradients a product, since that of a sum is a view that later products are slow on.
    total = (x.new_ones(1, x.shape[-2]) @ x).squeeze(-2) if x.requires_grad else x.sum(-2)
    return total if pooling == "sum" else total / _count(x, mask)
