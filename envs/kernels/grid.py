"""Arrays of places that all scenes share, and of large scenes by place: streets, cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Streets(NamedTuple):
    """Streets of a city: a lattice of lines, which cross everywhere."""

    x: np.ndarray  # (columns + 1,) middle lines of the streets that run along y
    y: np.ndarray  # (rows + 1,) middle lines of the streets that run along x
    kept: bool  # the targets keep to the streets


class Cells(NamedTuple):
    """Division of the arena into equal cells, row by row."""

    columns: int
    rows: int
    width: float  # of a cell
    height: float
    per_x: float  # 1 / width
    per_y: float
    half_width: float
    half_height: float


class Grid(NamedTuple):
    """Index of a large scene by place, so that a sensor looks only at what is near.

    The things of cell c are those from ``start[b, c]`` to ``start[b, c + 1] - 1``, by ascending number. What every
    sensor sees is listed, up to S targets; where there are more, only their number is.
    """

    cells: Cells
    start: np.ndarray  # (B, C + 2) int32
    target: np.ndarray  # (B, m) int32: the present targets in the order of their cells, and their positions
    target_x: np.ndarray  # (B, m)
    target_y: np.ndarray  # (B, m)
    disc_start: np.ndarray  # (B, C + 2) int32; discs lie in the cell of their middle
    disc: np.ndarray  # (B, k) int32
    disc_x: np.ndarray  # (B, k)
    disc_y: np.ndarray  # (B, k)
    wall_start: np.ndarray  # (C + 1,) int32; walls lie in every cell that their bounding box touches
    wall: np.ndarray  # (w',) int32
    seen: np.ndarray  # (B, n, S) int32
    num_seen: np.ndarray  # (B, n) int32
    seer: np.ndarray  # (B, m) int32: first sensor that sees the target; -1: none
