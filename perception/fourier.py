"""Sines and cosines of features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


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

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"num_frequencies={self.num_frequencies}"
