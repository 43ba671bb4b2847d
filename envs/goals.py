"""What an executor is shown: of every sensor the targets assigned to it."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from envs import assignment

PADDINGS = ("attended", "masked", "unfiltered")
"""How the m rows of a sensor show the targets assigned to it; see :func:`show_goals`."""


def show_goals(
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


def by_sensor(shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is shown of scenes (B, n, ...) as rows of single sensors (B * n, ...)."""
    return {key: value.reshape(-1, *value.shape[2:]) for key, value in shown.items()}


def goals_space(space: spaces.Dict, padding: str) -> spaces.Dict:
    """The space of what :func:`show_goals` makes of observations out of `space`."""
    if padding != "unfiltered":
        return space
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    low, high = (
        np.pad(edge, ((0, 0), (0, 0), (0, 1)), constant_values=c) for edge, c in ((pairs.low, 0), (pairs.high, 1))
    )
    return spaces.Dict(pairs=spaces.Box(low, high, dtype=np.float32), mask=space["mask"])


def check_padding(padding: str) -> str:
    """`padding`, or a ValueError that says what it may be."""
    if padding not in PADDINGS:
        raise ValueError(f"padding is {padding!r}; it must be one of {', '.join(PADDINGS)}")
    return padding
