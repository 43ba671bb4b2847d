"""Numbers that are not finite, which end a training before they are saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm


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
        _check_update(model, error)
        raise
    _check_update(model)


def _check_update(model: BaseAlgorithm, cause: Exception | None = None) -> None:
    weights = [name for name, weight in model.policy.named_parameters() if not weight.isfinite().all()]
    logged = model.logger.name_to_value
    losses = [name for name, loss in logged.items() if name.endswith("loss") and not np.isfinite(loss)]
    if weights or losses:
        what = f"the weight {weights[0]}" if weights else f"{losses[0]}, {logged[losses[0]]},"
        raise NotFiniteError(f"step {model.num_timesteps}: {what} is not finite after the update") from cause
