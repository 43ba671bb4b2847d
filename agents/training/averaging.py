"""Average of a policy's weights, for ``torch.optim.swa_utils.AveragedModel``."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

_LATE = 9  # eta: the higher, the more the latest weights count


def move_average(average: Sequence[Tensor], weights: Sequence[Tensor], updates: Tensor | int) -> None:
    """Move the average of weights after `updates` updates towards the next weights."""
    share = (_LATE + 1) / (int(updates) + 1 + _LATE)
    for one, new in zip(average, weights, strict=True):
        one.lerp_(new, share)
