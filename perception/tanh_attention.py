"""Tanh-projected attention of HiT-MAC."""

from typing import TypeGuard

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_choice, check_heads, check_share, check_tokens, check_widths
from hitmac.perception.fast_paths import SHORT_TO, attend_rows, is_hooked, short_pays
from hitmac.perception.functional import FIXED_POOLINGS, POOLINGS, attend_heads, zero_masked


class AttentionLayer(nn.Module):
    """Tanh-projected self-attention of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    ``q, k, v = tanh(Q x), tanh(K x), tanh(V x)``, each a linear projection with bias, equation (3);
    ``z = softmax(q k^T) v`` without scaling and ``global_feature = sum of z over the sequence``, equation (4).
    The defaults are the paper's; the options follow other attention layers.

    Args:
        feature_dim: width of an input token.
        weight_dim: width of q, k and v, and so of the outputs.
        num_heads: number of heads; it must divide weight_dim.
        scaled: divide the scores by the square root of a head's width.
        pooling: pooling of z into the global feature: ``"sum"``, the paper's, which grows with the sequence;
            ``"mean"``; ``"max"``; ``"attention"``, weighted by a learned query.
        residual: add the input to z (feature_dim must be weight_dim).
        layer_norm: normalise z, after the residual.
        dropout: probability of dropping a weight while training; in [0, 1).

    Attributes:
        Q, K, V: the three ``nn.Linear(feature_dim, weight_dim)``; weights are initialised Xavier-uniform, biases 0.
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
        feature_dim, weight_dim = check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        num_heads = check_heads(weight_dim, num_heads)
        check_choice("pooling", pooling, POOLINGS)
        check_share("dropout", dropout)
        if residual and feature_dim != weight_dim:
            raise ValueError(f"residual requires feature_dim ({feature_dim}) and weight_dim ({weight_dim}) to be equal")
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
            `need_weights` the weights (..., num_heads, L, L).
        """
        mask = check_tokens(x, mask, self.feature_dim, "x", "L")
        x = zero_masked(x, mask)
        maps = self.Q, self.K, self.V
        if self.is_plain(need_weights) and short_pays(x, x.shape[-2], SHORT_TO, maps):
            z, weights = attend_rows(x, mask, maps, self.num_heads, self.score_scale), None
        else:
            query, key, value = self.project(x)  # q, k, v = tanh(Q x), tanh(K x), tanh(V x)
            z, weights = self.attend(query, key, value, mask, need_weights)  # z = softmax(q k^T) v
        z = z + x if self.residual else z
        z = z if self.norm is None else self.norm(z)
        if mask is not None:
            z = z * mask.unsqueeze(-1)
            weights = None if weights is None else weights * mask[..., None, :, None]
        global_feature = POOLINGS[self.pooling](z, mask, *(() if self.pool_query is None else (self.pool_query,)))
        return (z, global_feature) if weights is None else (z, global_feature, weights)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``q, k, v = tanh(Q x), tanh(K x), tanh(V x)``, equation (3), each (..., L, weight_dim)."""
        query, key, value = (linear(x).tanh() for linear in (self.Q, self.K, self.V))
        return query * self.score_scale if self.scaled else query, key, value

    @property
    def score_scale(self) -> float:
        """Factor of the scores."""
        return (self.weight_dim // self.num_heads) ** -0.5 if self.scaled else 1.0

    def is_plain(self, need_weights: bool) -> bool:
        """Return True if `project` and `attend` are this class's, and compute no weights that are dropped or needed."""
        return type(self) is AttentionLayer and not (need_weights or (self.training and self.dropout))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return ``softmax(q k^T) v`` and the weights of each head, or None, for a mask (..., S) of the keys."""
        keys = None if mask is None else mask.unsqueeze(-2)
        dropout = self.dropout if self.training else 0.0
        return attend_heads(query, key, value, keys, self.num_heads, None, False, dropout, need_weights)


def is_two_steps(layer: nn.Module) -> TypeGuard[AttentionLayer]:
    """Return True if the layer is `project`, then `attend`, so that each token is projected once for all its groups."""
    return type(layer) is AttentionLayer and not (layer.residual or layer.norm is not None or is_hooked(layer))
