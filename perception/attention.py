"""Attention: the one place where a softmax meets a mask, and the tanh-projected layer of HiT-MAC."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
    """Softmax over the keys of ``scale * query . key``.

    Args:
        query: (..., L, d).
        key: (..., S, d).
        mask: bool, broadcastable to (..., L, S); True where a key takes part. None: all do.
        scale: factor of the dot products.

    Returns:
        (..., L, S). A key that is masked out has weight exactly 0; a query without any key has zeros
        throughout, and finite gradients.
    """
    scores = query @ key.transpose(-2, -1)  # (..., L, S)
    if scale != 1.0:
        scores = scores * scale
    if mask is None:
        return scores.softmax(-1)
    # The lowest finite number rather than -inf: a row without keys then stays free of NaN, and the product
    # with the mask makes its weights, and those of all padding, exact zeros.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


class AttentionLayer(nn.Module):
    """The tanh-projected self-attention of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    ``q, k, v = tanh(Q x), tanh(K x), tanh(V x)``, each a linear map with bias;
    ``z = softmax(q k^T) v`` without scaling; ``global_feature = sum of z over the sequence``.

    Args:
        feature_dim: width of an input token.
        weight_dim: width of q, k and v, and so of the outputs.
        pooling: how z becomes the global feature: ``"sum"``, the paper's, which grows with the sequence, or
            ``"mean"``, which does not.

    Attributes:
        Q, K, V: the three ``nn.Linear(feature_dim, weight_dim)``; weights start Xavier-uniform, biases 0.

    Raises:
        ValueError: a width under 1 or an unknown pooling.
    """

    def __init__(self, feature_dim: int, weight_dim: int, *, pooling: str = "sum") -> None:
        super().__init__()
        check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_pooling(pooling)
        self.feature_dim, self.weight_dim, self.pooling = feature_dim, weight_dim, pooling
        self.Q, self.K, self.V = (nn.Linear(feature_dim, weight_dim) for _ in range(3))
        for linear in (self.Q, self.K, self.V):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attend over a sequence.

        Args:
            x: (..., L, feature_dim), any number of leading axes, also none; L from 0 up.
            mask: bool (..., L), True where a token is there. None: all are.

        Returns:
            ``z`` (..., L, weight_dim), zero at masked tokens, and ``global_feature`` (..., weight_dim). What
            a masked token holds changes neither values nor gradients.

        Raises:
            ValueError: the last axis of x is not feature_dim, or the mask's shape is not (..., L).
            TypeError: the mask is not bool.
        """
        check_tokens(x, mask, self.feature_dim)
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        # One matrix product for the three maps: at the sizes of a policy its start costs more than its work.
        weight = torch.cat((self.Q.weight, self.K.weight, self.V.weight))
        bias = torch.cat((self.Q.bias, self.K.bias, self.V.bias))
        query, key, value = functional.linear(x, weight, bias).tanh().split(self.weight_dim, -1)  # (..., L, weight_dim)
        weights = attention_weights(query, key, None if mask is None else mask.unsqueeze(-2))  # (..., L, L)
        if mask is not None:
            weights = weights * mask.unsqueeze(-1)
        # Pooling the weights before the values is pooling z, and cheaper: sum_i z_i = (sum_i w_i) v.
        global_feature = (weights.sum(-2, keepdim=True) @ value).squeeze(-2)  # (..., weight_dim)
        if self.pooling == "mean":
            global_feature = global_feature / (x.shape[-2] or 1 if mask is None else count(mask))
        return weights @ value, global_feature

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"pooling={self.pooling!r}"


def count(mask: Tensor) -> Tensor:
    """(..., 1): how many of the last axis are there, 1 where none is, to divide by."""
    return mask.sum(-1, keepdim=True).clamp(min=1)


def check_widths(**widths: int) -> None:
    """Raise ValueError unless every width is a whole number, 1 or more."""
    for name, width in widths.items():
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise ValueError(f"{name} is {width!r}; it must be a whole number, 1 or more")


def check_pooling(pooling: str) -> None:
    """Raise ValueError unless the pooling is one that there is."""
    if pooling not in ("sum", "mean"):
        raise ValueError(f"pooling is {pooling!r}; it must be sum or mean")


def check_tokens(x: Tensor, mask: Tensor | None, feature_dim: int, axes: int = 1) -> None:
    """Raise unless x is (..., *token axes, feature_dim) and the mask a bool of x's shape without its last axis."""
    if x.ndim < axes + 1 or x.shape[-1] != feature_dim:
        raise ValueError(f"x has shape {tuple(x.shape)}; it needs {axes} token axes or more, then {feature_dim}")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}; it must be torch.bool, True where a token is there")
    if mask.shape != x.shape[:-1]:
        raise ValueError(f"mask has shape {tuple(mask.shape)}; x needs {tuple(x.shape[:-1])}")
