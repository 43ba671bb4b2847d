"""What an executor is shown: of every sensor the targets assigned to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from envs.kernels import assignment
from envs.kernels.physics import KEEP, STAY

PADDINGS = ("attended", "masked", "unfiltered")
"""How the m rows of a sensor show the targets assigned to it; see :func:`mask_unassigned`."""


def mask_unassigned(
    shown: dict[str, np.ndarray], assigned: np.ndarray, padding: str, row_id: int = -1
) -> dict[str, np.ndarray]:
    """The assigned targets of every sensor, as an executor is shown them.

    ``"attended"`` and ``"masked"`` pack the rows of the assigned targets to the front of each sensor's and put zeros
    behind them; the mask says 1 throughout, as in the released program, or tells the two apart. ``"unfiltered"``, the
    paper's ablation, leaves all rows in place and adds a feature that is 1 for the assigned.

    Args:
        shown: ``pairs`` (B, n, m, d) and ``mask`` (B, n, m), as observed.
        assigned: (B, n, m) bool.
        padding: out of :data:`PADDINGS`.
        row_id: which feature to replace by the number of the packed row / m; -1: none.
    """
    pairs, there = shown["pairs"], shown["mask"]
    assigned = assigned & (there != 0)
    if padding == "unfiltered":
        return {"pairs": np.concatenate((pairs, assigned[..., None]), -1, dtype=np.float32), "mask": there}
    packed = np.zeros_like(pairs)
    front = np.zeros(assigned.shape, np.int8)
    assignment.pack(pairs, assigned, row_id, packed, front)
    if padding == "attended":
        front.fill(1)
    return {"pairs": packed, "mask": front}


def flatten_sensors(shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is shown of scenes (B, n, ...) as rows of single sensors (B * n, ...)."""
    return {key: value.reshape(-1, *value.shape[2:]) for key, value in shown.items()}


def unflatten_sensors(actions: np.ndarray, num_sensors: int, zooms: bool) -> np.ndarray:
    """What single sensors decide on (B * n,), or (B * n, 2) with their zooms, as the actions of their scenes.

    Args:
        actions: turns, and perhaps zooms, of the rows that :func:`flatten_sensors` makes.
        num_sensors: n.
        zooms: whether the lenses of the scenes zoom. If they do not, zooms are left out; if they do and none is given,
            they keep their field of view.

    Returns:
        (B, n) turns, or (B, 2 n), all turns and then all zooms.
    """
    parts = actions.reshape(-1, num_sensors, 1 if actions.ndim == 1 else actions.shape[-1])  # (B, n, 1 or 2)
    if not zooms:
        return parts[..., 0]
    if parts.shape[-1] == 1:
        parts = np.concatenate((parts, np.full_like(parts, KEEP)), -1)
    return parts.swapaxes(1, 2).reshape(len(parts), -1)


def executed(chosen: np.ndarray, assigned: np.ndarray, mask: np.ndarray, zooms: bool) -> np.ndarray:
    """The actions of all sensors, of which an executor chose those that have something assigned.

    Args:
        chosen: turns (B * n,), or turns and zooms (B * n, 2), of the rows that :func:`flatten_sensors` makes.
        assigned: (B, n, m) bool.
        mask: (B, n, m), which pairs are there.
        zooms: see :func:`unflatten_sensors`.

    Returns:
        Actions (B, n) or (B, 2 n) of 0, 1, 2. A sensor without any assigned target stays and keeps its field of view.

    Raises:
        ValueError: `chosen` is something else.
    """
    scenes, sensors = assigned.shape[:2]
    rows, chosen = scenes * sensors, np.asarray(chosen)
    fits = chosen.size in (rows, 2 * rows) and chosen.dtype.kind in "iu"
    if not fits or chosen.min() < 0 or chosen.max() > 2:
        raise ValueError(
            f"the executor gave {chosen!r}; it must give {rows} numbers 0, 1 or 2, or as many pairs of them"
        )
    actions = unflatten_sensors(chosen.reshape(rows, -1), sensors, zooms)
    nothing = ~(assigned & (mask != 0)).any(-1)
    return np.where(np.tile(nothing, 2) if zooms else nothing, STAY, actions)


def goals_space(space: spaces.Dict, padding: str) -> spaces.Dict:
    """The space of what :func:`mask_unassigned` makes of observations out of `space`."""
    if padding != "unfiltered":
        return space
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    low, high = (
        np.pad(edge, ((0, 0), (0, 0), (0, 1)), constant_values=c) for edge, c in ((pairs.low, 0), (pairs.high, 1))
    )
    return spaces.Dict(pairs=spaces.Box(low, high, dtype=np.float32), mask=space["mask"])


def place_of_row_id(features: Sequence[str]) -> int:
    """Which of the features is `target_id`, for :func:`mask_unassigned`; -1: none."""
    return list(features).index("target_id") if "target_id" in features else -1


def check_padding(padding: str) -> str:
    """`padding`, or a ValueError that says what it may be."""
    if padding not in PADDINGS:
        raise ValueError(f"padding is {padding!r}; it must be one of {', '.join(PADDINGS)}")
    return padding
