"""Attention scores of queries and keys, as small modules with one interface.

``score(query (..., L, d_q), key (..., S, d_k)) -> (..., L, S)``. A score that is the dot product of a transformed query
and the key returns that query from ``as_dot(query) -> (..., L, d_k)``. Attention then uses PyTorch's fused kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_choice, check_widths


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
