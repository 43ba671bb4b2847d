"""Gradient steps on batches in parts that two threads share."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def learn_from(
    parts: Sequence[Any],
    loss_of: Callable[[Any], tuple[Tensor, int]],
    policy: Any,
    max_grad_norm: float,
    threads: ThreadPoolExecutor,
) -> Tensor | None:
    """Make one gradient step of a policy's optimizer on the parts of a batch; return the mean loss.

    `loss_of` returns the loss of a part, summed over its decisions, and their number. Gradients are summed in the order
    of the parts, so that the result does not depend on the threads. Parameters that need no gradient keep their values.
    Without any decision nothing changes, and the result is None.
    """
    learning = [parameter for parameter in policy.parameters() if parameter.requires_grad]

    def gradient_of(part: Any) -> tuple[Sequence[Tensor | None], Tensor, int]:
        loss, decisions = loss_of(part)
        return torch.autograd.grad(loss, learning, allow_unused=True), loss.detach(), decisions

    gradients, losses, decisions = zip(*in_parallel(threads, gradient_of, parts), strict=True)
    number = sum(decisions)
    if number == 0:
        return None
    for parameter, *found in zip(learning, *gradients, strict=True):
        known = [gradient for gradient in found if gradient is not None]
        parameter.grad = sum(known[1:], known[0]) / number if known else None
    nn.utils.clip_grad_norm_(learning, max_grad_norm)
    policy.optimizer.step()
    return sum(losses[1:], losses[0]) / number


def sizes(mask: np.ndarray) -> np.ndarray:
    """Return the numbers (K, 2) of sensors and targets up to the last with a valid pair, of masks (K, n, m)."""
    ends = [mask.any(axis) * np.arange(1, mask.shape[3 - axis] + 1) for axis in (2, 1)]
    return np.stack([end.max(-1) for end in ends], -1)


def select(scenes: Mapping[str, np.ndarray], rows: np.ndarray, *, crop: bool) -> dict[str, np.ndarray]:
    """Return some rows; with `crop`, drop the last sensors and targets without a valid pair in any of them."""
    if not crop:
        return {name: array[rows] for name, array in scenes.items()}
    n, m = np.maximum(sizes(scenes["mask"][rows]).max(0, initial=0), 1)
    of_sensors = {"values", "neighbours"}  # the others are of pairs
    cut = {name: array[rows, :n] if name in of_sensors else array[rows, :n, :m] for name, array in scenes.items()}
    if "neighbours" in cut:  # cropped ones have no pair: no attention
        cut["neighbours"] = np.where(cut["neighbours"] < n, cut["neighbours"], -1)
    return cut


def halves(mask: np.ndarray) -> list[np.ndarray]:
    """Divide rows into two parts."""
    return np.array_split(np.arange(len(mask)), 2)


def by_size(mask: np.ndarray) -> list[np.ndarray]:
    """Divide rows into nine parts, by their numbers of sensors, then of targets."""
    n, m = sizes(mask).T
    thirds = np.array_split(np.argsort(n, kind="stable"), 3)
    return [part for rows in thirds for part in np.array_split(rows[np.argsort(m[rows], kind="stable")], 3)]


def in_parallel(threads: ThreadPoolExecutor, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Return the results of a function of each part, computed by this thread and a pool.

    The pool begins with the first part, this thread with the last; it takes every part that the pool has not begun, and
    so waits for one part at most. A single part is this thread's.
    """
    futures = [threads.submit(function, one) for one in parts[:-1]]
    own = {len(futures): function(parts[-1])}
    for number in reversed(range(len(futures))):
        if futures[number].cancel():
            own[number] = function(parts[number])
    return [own[number] if number in own else futures[number].result() for number in range(len(parts))]
