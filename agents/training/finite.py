"""Numbers that are not finite, which end a training before they are saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import nn


class NotFiniteError(ArithmeticError):
    """Training has met NaN or infinity; what was saved before is still good."""


def check_finite(what: str, values: np.ndarray, step: int) -> None:
    """Raise :class:`NotFiniteError` if any of the values (B, ...), the first axis that of the scenes, is not finite."""
    if (place := not_finite(values)) is not None:
        raise NotFiniteError(f"step {step}: {what} of scene {place[0]} holds {values[place]} at {list(place[1:])}")


def not_finite(values: np.ndarray) -> tuple[int, ...] | None:
    """Return the place of the first value that is not finite; None if all are."""
    finite = np.isfinite(values)
    return None if finite.all() else tuple(int(axis) for axis in np.argwhere(~finite)[0])


@contextmanager
def finite_update(model: BaseAlgorithm) -> Iterator[None]:
    """Raise :class:`NotFiniteError` if a loss or a weight is not finite after an update, or if it fails for that."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        check_update(model.policy, model.logger.name_to_value, model.num_timesteps, error)
        raise
    check_update(model.policy, model.logger.name_to_value, model.num_timesteps)


def check_update(policy: nn.Module, logged: Mapping[str, Any], step: int, cause: Exception | None = None) -> None:
    """Raise :class:`NotFiniteError` if a weight, or a number logged under the name of a loss, is not finite."""
    weights = [name for name, weight in policy.named_parameters() if not weight.isfinite().all()]
    losses = [name for name, loss in logged.items() if name.endswith("loss") and not np.isfinite(loss)]
    if weights or losses:
        what = f"the weight {weights[0]}" if weights else f"{losses[0]}, {float(logged[losses[0]])},"
        raise NotFiniteError(f"step {step}: {what} is not finite after the update") from cause
