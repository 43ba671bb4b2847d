"""Ablations of the paper: a recurrent layer in place of attention, and noisy linear layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from hitmac.perception.checks import check_choice, check_tokens, check_widths
from hitmac.perception.functional import zero_masked
from hitmac.perception.pooling import FIXED_POOLINGS, pool
from hitmac.perception.recurrent import Recurrence


class RecurrentLayer(nn.Module):
    """Bidirectional GRU with the interface of :class:`hitmac.perception.AttentionLayer`, the paper's ablation.

    ``z`` concatenates the states of both directions at each token, and ``global_feature`` pools z. The outputs depend
    on the order of the tokens. Masked tokens are skipped.

    Args:
        feature_dim: width of an input token.
        weight_dim: width of z; even, since each direction takes half of it.
        pooling: ``"sum"``, ``"mean"`` or ``"max"``.
        cell: ``"gru"``, the paper's, or ``"lstm"``.
        num_layers: number of recurrent layers, 1 or more; each further layer reads both directions of the one before.

    Attributes:
        gru, lstm: the :class:`hitmac.perception.recurrent.Recurrence`, under the name of its cell. Its parameters have
            the names of those of ``nn.GRU`` and ``nn.LSTM``.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self, feature_dim: int, weight_dim: int, *, pooling: str = "sum", cell: str = "gru", num_layers: int = 1
    ) -> None:
        super().__init__()
        check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_choice("pooling", pooling, FIXED_POOLINGS)
        if weight_dim % 2:
            raise ValueError(f"weight_dim is {weight_dim}; it must be even, half for each direction")
        self.feature_dim, self.weight_dim, self.pooling = feature_dim, weight_dim, pooling
        self.cell = cell
        self.add_module(cell, Recurrence(feature_dim, weight_dim // 2, cell, num_layers))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, need_weights: bool = False) -> tuple[Tensor, Tensor]:
        """Map x (..., L, feature_dim) and mask (..., L) to z (..., L, weight_dim) and global_feature (..., weight_dim).

        Raises the errors of :meth:`hitmac.perception.AttentionLayer.forward`, and ``ValueError`` if `need_weights` is
        True, since the layer has no attention weights.
        """
        if need_weights:
            raise ValueError("need_weights is True; a recurrent layer has no attention weights")
        mask = check_tokens(x, mask, self.feature_dim)
        flat = zero_masked(x, mask).reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        z = self.get_submodule(self.cell)(flat, None if mask is None else mask.reshape(flat.shape[:-1]))
        z = zero_masked(z.reshape(*x.shape[:-1], self.weight_dim), mask)
        return z, pool(z, mask, self.pooling)


class NoisyLinear(nn.Module):
    """Linear layer with learned noise in its parameters (Fortunato and others, "Noisy networks", ICLR 2018).

    ``y = (w + sigma_w * e_w) x + b + sigma_b * e_b`` with factorised noise, ``e_w = f(e_out) f(e_in)^T``,
    ``e_b = f(e_out)``, ``f(e) = sign(e) sqrt(|e|)``, e standard normal (their section 3.1 (b)).

    The noise is constant between calls of :meth:`sample_noise`. In evaluation mode, and after :meth:`remove_noise`,
    the layer computes the plain ``w x + b``.

    Args:
        in_features, out_features: widths of input and output.
        sigma: initial scale of the noise: sigma_w and sigma_b start at ``sigma / sqrt(in_features)``; 0 or more.

    Raises:
        ValueError: an option out of its range.
    """

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, in_features: int, out_features: int, *, sigma: float = 0.5) -> None:
        super().__init__()
        check_widths(in_features=in_features, out_features=out_features)
        if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not sigma >= 0:
            raise ValueError(f"sigma is {sigma!r}; it must be a number, 0 or more")
        self.in_features, self.out_features = in_features, out_features
        bound = in_features**-0.5
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma * bound))
        self.register_buffer("noise_in", torch.zeros(in_features), persistent=False)
        self.register_buffer("noise_out", torch.zeros(out_features), persistent=False)
        self.sample_noise()

    def sample_noise(self, generator: torch.Generator | None = None) -> None:
        """Draw new noise, from `generator` if one is given."""
        for noise in (self.noise_in, self.noise_out):
            drawn = torch.randn(noise.shape, generator=generator, dtype=noise.dtype, device=noise.device)
            noise.copy_(drawn.sign() * drawn.abs().sqrt())

    def remove_noise(self) -> None:
        """Set the noise to zero until it is drawn again."""
        self.noise_in.zero_()
        self.noise_out.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to y (..., out_features)."""
        if not self.training:
            return functional.linear(x, self.weight, self.bias)
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return functional.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}"
