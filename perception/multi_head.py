"""Multi-head self- and cross-attention."""

from __future__ import annotations

from torch import Tensor, nn

from hitmac.perception.checks import as_mask, check_attended, check_heads, check_pairs, check_share, check_widths
from hitmac.perception.functional import Score, attend_heads, finite_if_unseen, make_score


class MultiHeadAttention(nn.Module):
    """Multi-head self- or cross-attention (Vaswani and others, NeurIPS 2017, section 3.2.2).

    ``output = W_o [head_1; ...; head_h]``, ``head_i = softmax(score(q_i, k_i)) v_i``, where q, k, v are linear
    projections of the inputs, split into h parts.

    Args:
        embed_dim: width of the inputs and of the output, unless given separately.
        num_heads: h; without `head_dim` it must divide embed_dim.
        query_dim, key_dim, value_dim: widths of the inputs; None: embed_dim.
        head_dim: width of a head's q, k and v; None: embed_dim / h.
        output_dim: width of the output; None: embed_dim. Only with `output_map`.
        output_map: apply W_o. If False, the output is the concatenated heads, h * head_dim wide.
        score: a name out of :data:`hitmac.perception.functional.SCORES`, or a score for the width of a head.
        bias: add a bias to the linear projections.
        dropout: probability of dropping a weight while training; in [0, 1).

    Attributes:
        query, key, value: linear projections to h * head_dim.
        output: W_o, or ``nn.Identity`` without an output map.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 1,
        *,
        query_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        head_dim: int | None = None,
        output_dim: int | None = None,
        output_map: bool = True,
        score: str | Score = "scaled_dot",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if output_dim is not None and not output_map:
            raise ValueError(f"output_dim is {output_dim}; without the output map it must be None")
        given = {"query_dim": query_dim, "key_dim": key_dim, "value_dim": value_dim, "output_dim": output_dim}
        widths = {name: embed_dim if width is None else width for name, width in given.items()}
        check_widths(embed_dim=embed_dim, **widths)
        if head_dim is None:
            check_heads(embed_dim, num_heads)
            head_dim = embed_dim // num_heads
        check_widths(num_heads=num_heads, head_dim=head_dim)
        check_share("dropout", dropout)
        self.num_heads, self.dropout = num_heads, dropout
        *inputs, output_dim = widths.values()
        inner = num_heads * head_dim
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=bias) for width in inputs)
        self.output = nn.Linear(inner, output_dim, bias=bias) if output_map else nn.Identity()
        self.score = make_score(score, head_dim)
        for linear in (self.query, self.key, self.value, self.output):
            if isinstance(linear, nn.Linear):
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
        key_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the keys that `mask`, `key_mask` and `causal` all allow. Leading axes broadcast.

        Args:
            query: (..., L, query_dim).
            key: (..., S, key_dim); None: the query (self-attention).
            value: (..., S, value_dim); None: the key.
            mask: 1 lets a query attend to a key, broadcastable to (..., L, S), 0 and 1 in any dtype; shared by all
                heads. A padding mask with an axis for the queries, (..., 1, S), is valid here.
            key_mask: 1 marks a valid key (padding is 0), (..., S), 0 and 1 in any dtype.
            causal: query i attends only to the keys up to i.
            need_weights: also return the weights.

        Returns:
            The outputs (..., L, output_dim), and the weights (..., num_heads, L, S) or None. The output of a query
            without any key is the bias of the output map. Tokens that no query may attend to may be NaN or infinite
            (in self-attention also as queries): neither the other outputs nor gradients depend on them.
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
        check_attended(query, key, value, causal)
        mask = pairwise_mask(query, key, mask, key_mask)
        if mask is not None:
            seen = mask.any(-2)
            query = finite_if_unseen(query, seen) if query is key else query
            key, value = finite_if_unseen(key, seen), finite_if_unseen(value, seen)
        heads, weights = attend_heads(
            self.query(query),
            self.key(key),
            self.value(value),
            mask,
            self.num_heads,
            score=self.score,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return self.output(heads), weights


def pairwise_mask(query: Tensor, key: Tensor, mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """Combine both masks of :meth:`MultiHeadAttention.forward` as bool (..., L or 1, S or 1); None if both are None."""
    length, keys = query.shape[-2], key.shape[-2]
    axes = max(query.ndim, key.ndim)
    if mask is not None:
        mask = check_pairs(mask, length, keys, axes)
    if key_mask is None:
        return mask
    key_mask = as_mask(key_mask, "key_mask")
    if not 1 <= key_mask.ndim < axes or key_mask.shape[-1] != keys:
        raise ValueError(
            f"key_mask has shape {tuple(key_mask.shape)}; it must be {(*key.shape[:-2], keys)}. A mask from each query "
            f"to each key, (..., {length}, {keys}), is mask"
        )
    key_mask = key_mask.unsqueeze(-2)
    return key_mask if mask is None else mask & key_mask
