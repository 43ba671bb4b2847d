"""Transformer: token embedding, positional encoding, multi-head attention, encoder block."""

import math

import torch
from torch import Tensor, nn

from hitmac.perception.checks import (
    check_attended,
    check_heads,
    check_keys,
    check_pairs,
    check_share,
    check_tokens,
    check_widths,
)
from hitmac.perception.functional import Score, attend_heads, finite_if_unseen, make_score, zero_masked


class TokenEmbedding(nn.Module):
    """Token embedding, ``sqrt(d) * E[token]`` (Vaswani and others, NeurIPS 2017, section 3.4).

    Args:
        num_tokens: size of the vocabulary.
        embed_dim: d, width of a vector.
        scaled: multiply by sqrt(d); otherwise the embedding is ``E[token]``. The initial variance of the result is 1
            in both cases.
    """

    def __init__(self, num_tokens: int, embed_dim: int, *, scaled: bool = True) -> None:
        super().__init__()
        num_tokens, embed_dim = check_widths(num_tokens=num_tokens, embed_dim=embed_dim)
        self.factor = embed_dim**0.5 if scaled else 1.0
        self.table = nn.Embedding(num_tokens, embed_dim)
        nn.init.normal_(self.table.weight, std=embed_dim**-0.5 if scaled else 1.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (..., L), whole numbers under num_tokens, to vectors (..., L, embed_dim)."""
        return self.table(tokens) * self.factor


class PositionalEncoding(nn.Module):
    """Layer that adds sines and cosines of the position (Vaswani and others, NeurIPS 2017, section 3.5).

    ``PE[p, 2k] = sin(p / 10000^(2k/d))`` and ``PE[p, 2k + 1] = cos(p / 10000^(2k/d))``, for sequences of any length.

    Args:
        embed_dim: d, width of a token.
        dropout: probability of dropping an element of the sum while training; in [0, 1).
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_share("dropout", dropout)
        (self.embed_dim,) = check_widths(embed_dim=embed_dim)
        self.dropout = nn.Dropout(dropout)

    def encoding(
        self, length: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Return the encoding (length, embed_dim), by default in PyTorch's default dtype and on its default device."""
        # Double precision until the last step: angles grow with the position, and half types have 8 to 11 bits.
        # Not a buffer: a change of dtype would round it, and loading tensors would leave it empty.
        device = torch.get_default_device() if device is None else torch.device(device)
        maker = torch.device("cpu") if device.type == "mps" else device  # MPS has no double precision
        places = torch.arange(length, dtype=torch.float64, device=maker).unsqueeze(-1)
        column = torch.arange(self.embed_dim, dtype=torch.float64, device=maker)
        frequency, phase = 10000.0 ** -((column - column % 2) / self.embed_dim), column % 2 * math.pi / 2
        waves = torch.sin(places * frequency + phase)  # cos(x) = sin(x + pi / 2)
        return waves.to(torch.get_default_dtype() if dtype is None else dtype).to(device)

    def forward(self, x: Tensor) -> Tensor:
        """Add the positional encoding to x (..., L, embed_dim)."""
        check_tokens(x, None, self.embed_dim, "x", "L")
        return self.dropout(x + self.encoding(x.shape[-2], dtype=x.dtype, device=x.device))


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
        score: a name in :data:`hitmac.perception.functional.SCORES`, or a score for the width of a head.
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
        embed_dim, *inputs, output_dim = check_widths(embed_dim=embed_dim, **widths)
        if head_dim is None:
            head_dim = embed_dim // check_heads(embed_dim, num_heads)
        num_heads, head_dim = check_widths(num_heads=num_heads, head_dim=head_dim)
        check_share("dropout", dropout)
        self.num_heads, self.dropout = num_heads, dropout
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
            mask: 1 lets a query attend to a key, broadcastable to (..., L, S), 0 and 1 in any dtype. It is the same for
                all heads: its leading axes are those of the sequences, never of the heads.
                A bool mask of ``nn.MultiheadAttention`` is the opposite, ``~mask``; an additive one is ``mask == 0``.
            key_mask: 1 marks a valid key (padding is 0), (..., S), 0 and 1 in any dtype.
            causal: query i attends only to the keys up to i.
            need_weights: also return the weights.

        Returns:
            The outputs (..., L, output_dim), and the weights (..., num_heads, L, S) or None. The output of a query
            without keys is the bias of the output map. Tokens that no query may attend to may be NaN or infinite (in
            self-attention also as queries): neither the other outputs nor gradients depend on them.
        """
        key = query if key is None else key
        value = key if value is None else value
        check_attended(query, key, value, causal, [linear.in_features for linear in (self.query, self.key, self.value)])
        mask = pairwise_mask(query, key, value, mask, key_mask)
        seen = None if mask is None else mask.any(-2)
        of_key, of_value = self.key(zero_masked(key, seen)), self.value(zero_masked(value, seen))
        if query is key and seen is not None:
            query = finite_if_unseen(query, seen, of_key.dtype)  # that of the scores, also under autocast
        options = self.score, causal, self.dropout * self.training, need_weights
        heads, weights = attend_heads(self.query(query), of_key, of_value, mask, self.num_heads, *options)
        return self.output(heads), weights


def pairwise_mask(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, key_mask: Tensor | None
) -> Tensor | None:
    """Combine both masks of :meth:`MultiHeadAttention.forward` as bool (..., L or 1, S or 1); None if both are None."""
    if mask is None and key_mask is None:
        return None
    length, keys = query.shape[-2], key.shape[-2]
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    if mask is not None:
        mask = check_pairs(mask, length, keys, lead)
    if key_mask is None:
        return mask
    key_mask = check_keys(key_mask, length, keys, lead).unsqueeze(-2)
    return key_mask if mask is None else mask & key_mask


class EncoderBlock(nn.Module):
    """Attention and feed-forward layers, each with a residual and a layer norm (Vaswani and others, section 3.1).

    ``y = norm(x + attention(x))``, ``out = norm(y + W_2 relu(W_1 y))``; with `norm_first`
    ``y = x + attention(norm(x))``, ``out = y + W_2 relu(W_1 norm(y))`` (Xiong and others, ICML 2020).

    Args:
        embed_dim: width of a token.
        num_heads, score: see :class:`hitmac.perception.MultiHeadAttention`.
        hidden_dim: width between W_1 and W_2; None: four times embed_dim.
        dropout: probability of dropping weights and outputs of both branches while training; in [0, 1).
        norm_first: normalise before the branches instead of after the sums.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 1,
        *,
        hidden_dim: int | None = None,
        score: str | Score = "scaled_dot",
        dropout: float = 0.0,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        (embed_dim,) = check_widths(embed_dim=embed_dim)
        (hidden_dim,) = check_widths(hidden_dim=4 * embed_dim if hidden_dim is None else hidden_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads, score=score, dropout=dropout)
        self.feed_forward = nn.Sequential(nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim))
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)])
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Map x (..., L, embed_dim) to the same shape; also return the weights (..., num_heads, L, L) or None.

        See :meth:`hitmac.perception.MultiHeadAttention.forward`.
        """
        mask = pairwise_mask(x, x, x, mask, key_mask)
        x = x if mask is None else finite_if_unseen(x, mask.any(-2), x.dtype)
        first, second = self.norms
        attended, weights = self.attention(
            first(x) if self.norm_first else x, mask=mask, causal=causal, need_weights=need_weights
        )
        x = x + self.dropout(attended)
        x = x if self.norm_first else first(x)
        x = x + self.dropout(self.feed_forward(second(x) if self.norm_first else x))
        return x if self.norm_first else second(x), weights


class FourierFeatures(nn.Module):
    """Layer that appends sines and cosines to features: (..., d) -> (..., d * (1 + 2 K)).

    These are sin(pi k x) and cos(pi k x) for k = 1 .. K = `num_frequencies`. They remove the jump of a bearing, in half
    turns, behind the sensor, and make thresholds easier to learn (Tancik and others, NeurIPS 2020).
    """

    def __init__(self, num_frequencies: int) -> None:
        super().__init__()
        self.num_frequencies = num_frequencies

    def forward(self, x: Tensor) -> Tensor:
        """Return x, then all sin(pi k x), then all cos(pi k x)."""
        # Not a buffer: a change of dtype would round it, and loading tensors would leave it empty.
        wide = torch.promote_types(x.dtype, torch.float32)
        multiples = math.pi * torch.arange(1, self.num_frequencies + 1, dtype=wide, device=x.device)
        angles = (x.to(wide).unsqueeze(-1) * multiples).flatten(-2)  # (..., d * K)
        return torch.cat((x, angles.sin().to(x.dtype), angles.cos().to(x.dtype)), -1)
