"""One row per sensor: the targets assigned to it, its observation and its actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from gymnasium import spaces

from hitmac.envs.kernels import assignment
from hitmac.envs.kernels.physics import STAY
from hitmac.envs.validation import Choice

PADDINGS = ("attended", "masked", "unfiltered")
"""Layouts of the assigned targets in the m rows of a sensor; see :func:`mask_unassigned`."""

Padding = Annotated[str, Choice(PADDINGS)]


def mask_unassigned(
    shown: dict[str, np.ndarray], assigned: np.ndarray, padding: str, row_id: int = -1
) -> dict[str, np.ndarray]:
    """Return the observation of an executor: the assigned targets of every sensor.

    ``"attended"`` and ``"masked"`` pack each sensor's rows of assigned targets to the front, followed by zero rows.
    With ``"attended"`` the mask is 1 throughout, as in the released program; with ``"masked"`` it is 1 for the packed
    rows only. ``"unfiltered"``, the paper's ablation, keeps all rows in place and appends a feature that is 1 for
    assigned targets.

    Args:
        shown: ``pairs`` (B, n, m, d) and ``mask`` (B, n, m), as observed; of the k nearest targets also their indices
            ``targets`` (B, n, k), which move with the rows.
        assigned: (B, n, m) bool.
        padding: one of :data:`PADDINGS`.
        row_id: index of the feature to replace by the index of the packed row / m; -1: none.
    """
    pairs, there = shown["pairs"], shown["mask"]
    if "targets" in shown:
        assigned = np.take_along_axis(assigned, np.maximum(shown["targets"], 0), -1)
    if not assigned.shape == there.shape == pairs.shape[:-1]:
        shapes = f"{pairs.shape}, {there.shape} and {assigned.shape}"
        raise ValueError(f"pairs, mask and assignment have shapes {shapes}; they must be (B, n, m, d), (B, n, m) twice")
    assigned = assigned & (there != 0)
    if padding == "unfiltered":
        return shown | {"pairs": np.concatenate((pairs, assigned[..., None]), -1, dtype=np.float32)}
    packed = np.zeros_like(pairs)
    front = np.zeros(assigned.shape, np.int8)
    assignment.pack(pairs, assigned, row_id, packed, front)
    goals = shown | {"pairs": packed, "mask": front}
    if "targets" in shown:
        order = np.argsort(~assigned, -1, kind="stable")
        goals["targets"] = np.where(front, np.take_along_axis(shown["targets"], order, -1), -1).astype(np.int32)
    if padding == "attended":
        front.fill(1)
    return goals


def flatten_sensors(shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reshape observations of scenes (B, n, ...) to rows of single sensors (B * n, ...)."""
    return {key: value.reshape(-1, *value.shape[2:]) for key, value in shown.items()}


def unflatten_sensors(actions: np.ndarray, num_sensors: int, decisions: int) -> np.ndarray:
    """Reshape actions of single sensors (B * n,), or (B * n, k) with k decisions each, to the actions of their scenes.

    Args:
        actions: turns, and optionally further decisions, of the rows of :func:`flatten_sensors`.
        num_sensors: n.
        decisions: d, decisions of a sensor in the scenes; see :attr:`hitmac.envs.Scenario.decisions`. Those that are
            not given are 0: a lens keeps its field of view, a sensor stays in its place. Further ones are dropped.

    Returns:
        (B, d n), all turns and then one further decision of all sensors after the other.
    """
    parts = actions.reshape(-1, num_sensors, 1 if actions.ndim == 1 else actions.shape[-1])[..., :decisions]
    parts = np.pad(parts, ((0, 0), (0, 0), (0, decisions - parts.shape[-1])))  # (B, n, d)
    return parts.swapaxes(1, 2).reshape(len(parts), -1)


def executed(chosen: np.ndarray, assigned: np.ndarray, mask: np.ndarray, decisions: int) -> np.ndarray:
    """Return the actions of all sensors: those of the executor for sensors with assigned targets, stay for the others.

    Args:
        chosen: turns (B * n,), or k decisions (B * n, k), of the rows of :func:`flatten_sensors`.
        assigned: (B, n, m) bool.
        mask: (B, n, m), 1 for valid pairs.
        decisions: d, see :func:`unflatten_sensors`.

    Returns:
        Actions (B, d n) of 0, 1, 2. A sensor without any assigned target decides on 0 throughout: it stays.

    Raises:
        ValueError: `chosen` has another size or type, or holds a number other than 0, 1 and 2.
    """
    scenes, sensors = assigned.shape[:2]
    rows, chosen = scenes * sensors, np.asarray(chosen)
    fits = chosen.size in (rows, 2 * rows, 3 * rows) and chosen.dtype.kind in "iu"
    if not fits or chosen.min() < 0 or chosen.max() > 2:
        raise ValueError(
            f"the executor gave {chosen!r}; it must give {rows} numbers 0, 1 or 2, or the same number of pairs or "
            "triples"
        )
    actions = unflatten_sensors(chosen.reshape(rows, -1), sensors, decisions)
    nothing = ~(assigned & (mask != 0)).any(-1)
    return np.where(np.tile(nothing, decisions), STAY, actions)


def goals_space(space: spaces.Dict, padding: str) -> spaces.Dict:
    """Return the space of the observations that :func:`mask_unassigned` makes from those of `space`."""
    if padding != "unfiltered":
        return space
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    low, high = (
        np.pad(edge, ((0, 0), (0, 0), (0, 1)), constant_values=c) for edge, c in ((pairs.low, 0), (pairs.high, 1))
    )
    return spaces.Dict({**space.spaces, "pairs": spaces.Box(low, high, dtype=np.float32)})


def place_of_row_id(features: Sequence[str]) -> int:
    """Return the index of the feature `target_id`, for :func:`mask_unassigned`; -1 if it is missing."""
    return list(features).index("target_id") if "target_id" in features else -1
