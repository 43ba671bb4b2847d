"""Rows of experience in parts of like size, which threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from gymnasium import spaces
from torch import Tensor

from hitmac.agents.learned.extractor import LISTS

_Result = TypeVar("_Result")


class Scenes(NamedTuple):
    """Observations with the teacher's answers to them, a row for each row of the environments."""

    pairs: np.ndarray  # (K, n, m, d) float32, of one sensor (K, m, d)
    mask: np.ndarray  # (K, n, m) int8
    values: np.ndarray  # (K, ...) float32, see the lesson
    lists: dict[str, np.ndarray] = {}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {"pairs": self.pairs, "mask": self.mask, "values": self.values, **self.lists}

    @classmethod
    def of(cls, observation: Mapping[str, np.ndarray], values: np.ndarray) -> Scenes:
        """Return the rows of an observation with the teacher's answers."""
        lists = {name: observation[name] for name in LISTS if name in observation}
        return cls(observation["pairs"], observation["mask"], values, lists)

    @classmethod
    def empty(cls, size: int, space: spaces.Space, answer: tuple[int, ...]) -> Scenes:
        """Return `size` rows for observations of a space, with answers of a shape."""
        assert isinstance(space, spaces.Dict)
        shapes = {name: (size, *(one.shape or ())) for name, one in space.items()}
        return cls(
            np.zeros(shapes["pairs"], np.float32),
            np.zeros(shapes["mask"], np.int8),
            np.zeros((size, *answer), np.float32),
            {name: np.full(shapes[name], -1, np.int32) for name in LISTS if name in shapes},
        )


class PartGradient(NamedTuple):
    """Gradient and loss of part of a batch, summed over its decisions."""

    gradient: Iterable[Tensor | None]  # of each parameter
    loss: float
    decisions: int


def sizes(mask: np.ndarray) -> np.ndarray:
    """Return (K, 2), the numbers of sensors and targets up to the last with a valid pair, of masks (K, n, m)."""
    ends = [mask.any(axis) * np.arange(1, mask.shape[3 - axis] + 1) for axis in (2, 1)]
    return np.stack([end.max(-1) for end in ends], -1)


def part(scenes: Scenes, rows: np.ndarray, *, crop: bool) -> Scenes:
    """Return some rows, with `crop` without the last sensors and targets that have no valid pair in any of them."""
    if not crop:
        lists = {name: array[rows] for name, array in scenes.lists.items()}
        return Scenes(scenes.pairs[rows], scenes.mask[rows], scenes.values[rows], lists)
    n, m = np.maximum(sizes(scenes.mask[rows]).max(0, initial=0), 1)
    lists = {name: array[rows, :n] for name, array in scenes.lists.items()}
    if "targets" in lists:
        lists["targets"] = lists["targets"][:, :, :m]
    if "neighbours" in lists:  # those that are cropped have no pair, and so are not attended to
        lists["neighbours"] = np.where(lists["neighbours"] < n, lists["neighbours"], -1)
    return Scenes(scenes.pairs[rows, :n, :m], scenes.mask[rows, :n, :m], scenes.values[rows, :n], lists)


def halves(mask: np.ndarray) -> list[np.ndarray]:
    """Divide rows with their masks into two parts."""
    return np.array_split(np.arange(len(mask)), 2)


def of_like_size(mask: np.ndarray) -> list[np.ndarray]:
    """Divide rows with their masks into nine parts: by their numbers of sensors, and each by the numbers of targets."""
    n, m = sizes(mask).T
    parts = []
    for rows in np.array_split(np.argsort(n, kind="stable"), 3):
        parts += np.array_split(rows[np.argsort(m[rows], kind="stable")], 3)
    return parts


def spread(
    threads: ThreadPoolExecutor, function: Callable[[np.ndarray], _Result], parts: Sequence[np.ndarray]
) -> list[_Result]:
    """Return the results of a function of each part, computed by this thread and those of a pool.

    The pool begins with the first part and this thread with the last. It computes whatever the pool has not begun, so
    that it waits for one part at most.
    """
    futures = [threads.submit(function, one) for one in parts]
    own = {}
    for number in reversed(range(len(parts))):
        if futures[number].cancel():
            own[number] = function(parts[number])
    return [own[number] if number in own else future.result() for number, future in enumerate(futures)]
