"""Checks of the observations and states that callers hand to policies, before a kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hitmac.envs.errors import as_array, shortly
from hitmac.envs.magnitudes import MOST

AnyState = TypeVar("AnyState", bound=tuple)


Size = tuple[int | None, ...]
"""Sizes of an observation's axes after that of the scenes, or of the rows: n and m, or m alone; None: any from 1 up."""


def check_parts(observation: Any) -> None:
    """Raise ValueError unless an observation has the parts `pairs` and `mask`."""
    if not isinstance(observation, Mapping) or not {"pairs", "mask"} <= observation.keys():
        raise ValueError(f"the observation is {shortly(observation)}; it must be a dict of pairs and mask")


def check_size(mask: np.ndarray, size: Size) -> None:
    """Raise ValueError unless the mask of an observation is of a size."""
    own = mask.shape[1:]
    if len(own) != len(size) or not all(n >= 1 and most in (None, n) for n, most in zip(own, size, strict=True)):
        first, *others = ("scenes", "sensors", "targets") if len(size) == 2 else ("rows", "targets")
        names = [f"{n or '1 or more'} {name}" for n, name in zip(size, others, strict=True)]
        hint = f"; give mask[None] and pairs[None] for one of the {first}" if mask.ndim == len(size) else ""
        raise ValueError(f"mask has shape {mask.shape}; it must be ({', '.join((first, *names))}){hint}")


def checked_observation(pairs: Any, mask: Any, features: Sequence[str], size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and the mask of an observation, contiguous and the mask bool, for kernels.

    Args:
        pairs: (B, n, m, d) features, or (R, m, d) of rows.
        mask: (B, n, m), or (R, m), not 0 for valid pairs.
        features: names of the d features.
        size: n and m, or m.

    Raises:
        ValueError: an array of another shape or type, or a number that is not finite.
    """
    pairs, mask = (np.require(as_array(*one), requirements=["C", "W"]) for one in (("pairs", pairs), ("mask", mask)))
    check_size(mask, size)
    if pairs.ndim < 1 or pairs.shape[-1] != len(features) or pairs.dtype.kind != "f":
        raise ValueError(
            f"pairs have shape {pairs.shape} and type {pairs.dtype}; their last axis must hold the {len(features)} "
            f"features {', '.join(features)} as floating-point numbers"
        )
    if mask.shape != pairs.shape[:-1] or mask.dtype.kind not in "biuf":
        raise ValueError(f"mask is {mask.dtype} of shape {mask.shape}; it must be 0 or 1, of shape {pairs.shape[:-1]}")
    check_finite("pairs", pairs)
    return pairs, mask if mask.dtype == np.bool_ else mask != 0


def checked_lists(targets: Any, mask: Any, num_targets: int) -> np.ndarray:
    """Return the targets (B, n, k) that an observation lists, contiguous int32, for kernels.

    Raises:
        ValueError: an array of another shape or type than the mask (B, n, k) needs, or a target that is not there.
    """
    targets, mask = np.require(as_array("targets", targets), requirements=["C", "W"]), as_array("mask", mask)
    if targets.shape != mask.shape or targets.dtype.kind not in "iu":
        raise ValueError(
            f"targets are {targets.dtype} of shape {targets.shape}; they must be whole numbers, of shape {mask.shape}"
        )
    check_range("targets", targets, -1, num_targets - 1)
    if (targets[mask != 0] < 0).any():
        raise ValueError("targets hold -1 where the mask is 1; -1 is for an empty place")
    return targets.astype(np.int32, copy=False)


def check_finite(name: str, numbers: np.ndarray) -> None:
    """Raise ValueError unless all numbers are finite, and of a magnitude whose square is."""
    if numbers.size and not np.abs(numbers).max().item() <= MOST:
        wrong = numbers[~(np.abs(numbers) <= np.float64(MOST))]
        raise ValueError(f"{name} holds {wrong.flat[0]}; every number must be finite and at most {MOST:g} in magnitude")


def check_length(state: Any, length: int) -> None:
    """Raise ValueError unless a policy's state is a tuple or a list of this length."""
    if not isinstance(state, tuple | list) or len(state) != length:
        given = f"a {type(state).__name__} of {len(state)}" if isinstance(state, tuple | list) else shortly(state)
        raise ValueError(f"state is {given}; it must be the {length} arrays of the last call")


def copied_state(state: tuple[Any, ...], fresh: AnyState) -> AnyState:
    """Return a copy of a policy's state.

    Args:
        state: as given back by the caller.
        fresh: the state before the first call, of the same kind and shapes.

    Raises:
        ValueError: other arrays than those of `fresh`; the message names the first.
    """
    names = getattr(fresh, "_fields", range(len(fresh)))
    check_length(state, len(fresh))
    for name, array, own in zip(names, state, fresh, strict=True):
        if not isinstance(array, np.ndarray) or array.shape != own.shape or array.dtype != own.dtype:
            given = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"state {name} is {given}; it must be {own.dtype} of shape {own.shape}")
    copies = [array.copy() for array in state]
    return type(fresh)(*copies) if hasattr(fresh, "_fields") else type(fresh)(copies)


def as_numbers(name: str, value: Any) -> np.ndarray:
    """Return `value` as an array; raise ValueError, with `name`, unless it holds numbers, of at most 64 bits."""
    array = as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} is {shortly(value)}; it must be numbers")
    return array


def check_range(name: str, value: Any, low: float, high: float) -> None:
    """Raise ValueError unless `value`, an array or a number, holds numbers from `low` to `high` only."""
    numbers = as_numbers(name, value)
    if numbers.size and not (numbers.min().item() >= low and numbers.max().item() <= high):
        raise ValueError(f"{name} holds {numbers.min()} to {numbers.max()}; it must be from {low} to {high}")


def checked_number(name: str, value: Any, low: float, high: float) -> float:
    """Return `value` as a float; raise ValueError unless it is one number from `low` to `high`."""
    if np.ndim(as_numbers(name, value)) != 0:
        raise ValueError(f"{name} is {shortly(value)}; it must be one number")
    check_range(name, value, low, high)
    return float(value)


def checked_starts(episode_start: Any, number: int) -> np.ndarray | None:
    """Return the scenes in which an episode begins, (B,) bool; None for None; else raise ValueError."""
    if episode_start is None:
        return None
    starts = as_array("episode_start", episode_start)
    if starts.shape != (number,) or starts.dtype != np.bool_:
        raise ValueError(
            f"episode_start is {starts.dtype} of shape {starts.shape}; it must be bool of shape ({number},)"
        )
    return starts
