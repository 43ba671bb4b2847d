"""Transformer parts around attention: token embedding, positional encoding, encoder block."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_share, check_widths
from hitmac.perception.functional import Score, finite_if_unseen
from hitmac.perception.multi_head import MultiHeadAttention, pairwise_mask


class TokenEmbedding(nn.Module):
    """Token embedding, ``sqrt(d) * E[token]`` (Vaswani and others, NeurIPS 2017, section 3.4).

    Args:
        num_tokens: size of the vocabulary.
        embed_dim: d, width of a vector.
        scaled: multiply by sqrt(d). If False, the embedding is ``E[token]``. The vectors are initialised with variance
            1 either way.
    """

    def __init__(self, num_tokens: int, embed_dim: int, *, scaled: bool = True) -> None:
        super().__init__()
        check_widths(num_tokens=num_tokens, embed_dim=embed_dim)
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
        dropout: probability of dropping a number of the sum while training; in [0, 1).
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_widths(embed_dim=embed_dim)
        check_share("dropout", dropout)
        self.embed_dim = embed_dim
        # Frequency and phase of every column, with cos(x) = sin(x + pi / 2).
        self._waves = [
            (10000.0 ** -((column - column % 2) / embed_dim), column % 2 * math.pi / 2) for column in range(embed_dim)
        ]
        self.dropout = nn.Dropout(dropout)

    def encoding(
        self, length: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Return the encoding (length, embed_dim), by default in PyTorch's default dtype and on its default device."""
        # Double precision up to the last step: angles grow with the position, and half types have 8 to 11 bits.
        # Not a buffer: a change of dtype would round it, and loading tensors would leave it empty.
        device = torch.get_default_device() if device is None else torch.device(device)
        maker = torch.device("cpu") if device.type == "mps" else device  # MPS has no double precision
        frequencies, phases = torch.tensor(self._waves, dtype=torch.float64, device=maker).unbind(-1)
        places = torch.arange(length, dtype=torch.float64, device=maker).unsqueeze(-1)
        waves = torch.sin(places * frequencies + phases)
        return waves.to(torch.get_default_dtype() if dtype is None else dtype).to(device)

    def forward(self, x: Tensor) -> Tensor:
        """Add the positional encoding to x (..., L, embed_dim)."""
        return self.dropout(x + self.encoding(x.shape[-2], dtype=x.dtype, device=x.device))


class EncoderBlock(nn.Module):
    """Attention and feed-forward layers, each with a residual and a layer norm (Vaswani and others, section 3.1).

    ``y = norm(x + attention(x))``, ``out = norm(y + W_2 relu(W_1 y))``; with `norm_first`
    ``y = x + attention(norm(x))``, ``out = y + W_2 relu(W_1 norm(y))`` (Xiong and others, ICML 2020).

    Args:
        embed_dim: width of a token.
        num_heads: see :class:`hitmac.perception.MultiHeadAttention`.
        hidden_dim: width between W_1 and W_2; None: four times embed_dim.
        score: see :class:`hitmac.perception.MultiHeadAttention`.
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
        hidden_dim = 4 * embed_dim if hidden_dim is None else hidden_dim
        check_widths(embed_dim=embed_dim, hidden_dim=hidden_dim)
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

        For the masks see :meth:`hitmac.perception.MultiHeadAttention.forward`. Tokens that no query may attend to may
        be NaN or infinite.
        """
        mask = pairwise_mask(x, x, mask, key_mask)
        x = x if mask is None else finite_if_unseen(x, mask.any(-2))
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

    They are sin(pi k x) and cos(pi k x) for k = 1 .. K. They remove the jump of a bearing, given in half turns, behind
    the sensor, and make thresholds easier to learn (Tancik and others, "Fourier features let networks learn high
    frequency functions in low dimensional domains", NeurIPS 2020).

    Args:
        num_frequencies: K.
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
