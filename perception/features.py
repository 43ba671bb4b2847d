"""Outputs of the encoders."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Features(NamedTuple):
    """Encoder outputs for a scene with n agents and m targets."""

    per_target: Tensor
    """(..., n, m, f): one feature for every pair of an agent and a target."""
    per_agent: Tensor
    """(..., n, f): one feature for every agent."""
    global_feature: Tensor
    """(..., f): one feature for the whole scene."""


class Weights(NamedTuple):
    """Attention weights; None where the encoder does not attend. The axis of the h heads precedes the last two."""

    targets: Tensor | None = None
    """(..., n, h, m, m): for every agent, from each of its targets to each; of listed targets (..., n, h, k, k)."""
    agents: Tensor | None = None
    """(..., h, n, n): from each agent to each; with `neighbours` (..., h, n, l), to each of its list. With ``"axes"``
    for every target (..., m, h, n, n), of listed targets (..., m, h, c, c), from each agent that lists the target to
    each, in their order; c is the largest number of them, and m the highest listed index + 1."""
    pairs: Tensor | None = None
    """(..., h, n * m, n * m): from each pair to each, in the order i * m + j."""
