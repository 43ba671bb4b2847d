"""Cells of the arena: things sorted by place, so that the near ones are found without a look at the others.

Every search finds a superset of what is near: the cell of a coordinate grows with it, also after rounding. Compiled by
numba.
"""

import math
from typing import Any

import numpy as np

from hitmac.envs.kernels.compiled import compiled, inlined
from hitmac.envs.kernels.grid import Cells, Grid
from hitmac.envs.kernels.state import X, Y

PER_CELL = 2.0
"""Things in a cell, on average."""

SEEN_LISTED = 32
"""Most targets that a sensor of a large scene sees of which a list is kept; of more, all targets are looked through."""

PAD = 1e-9
"""Share of the arena by which a search is wider than needed: far more than all rounding."""


def make_cells(scenario: Any, things: int) -> Cells:
    """Return square cells of the arena for a number of things."""
    half_width, half_height = scenario.extent
    side = math.sqrt(4.0 * half_width * half_height * PER_CELL / things)
    columns, rows = (max(1, min(round(2.0 * half / side), things)) for half in scenario.extent)
    width, height = 2.0 * half_width / columns, 2.0 * half_height / rows
    return Cells(columns, rows, width, height, 1.0 / width, 1.0 / height, half_width, half_height)


@inlined
def column_of(cells, x):
    """Return the column of a coordinate; the outer ones reach beyond the arena."""
    return min(max(math.floor((x + cells.half_width) * cells.per_x), 0), cells.columns - 1)


@inlined
def row_of_cells(cells, y):
    """Return the row of a coordinate; the outer ones reach beyond the arena."""
    return min(max(math.floor((y + cells.half_height) * cells.per_y), 0), cells.rows - 1)


@compiled
def box_of(cells, low_x, high_x, low_y, high_y):
    """Return the first and last column and the first and last row of a box, a little wider than given."""
    pad = PAD * (cells.half_width + cells.half_height)
    return (
        column_of(cells, low_x - pad), column_of(cells, high_x + pad),
        row_of_cells(cells, low_y - pad), row_of_cells(cells, high_y + pad),
    )  # fmt: skip


@compiled
def sort_into_cells(cells, things, there, b, start, order, x, y):
    """Sort the things that are there in scene b by cell, those of a cell by number.

    Args:
        cells: the division of the arena.
        things: (count, rows, B), beginning with the rows x and y.
        there: (count, B) bool, or None for all.
        b: the scene.
        start: (C + 2,) int32, written.
        order: (count,), written: numbers of the things.
        x: (count,), written: their positions.
        y: (count,), written.
    """
    for c in range(start.shape[0]):
        start[c] = 0
    for j in range(things.shape[0]):
        if _is_there(there, j, b):
            start[_cell(cells, things, j, b) + 2] += 1
    for c in range(2, start.shape[0]):
        start[c] += start[c - 1]
    for j in range(things.shape[0]):
        if _is_there(there, j, b):
            c = _cell(cells, things, j, b) + 1
            place = start[c]  # moves from the beginning of the cell to its end
            start[c] = place + 1
            order[place] = j
            x[place] = things[j, X, b]
            y[place] = things[j, Y, b]


@inlined
def _cell(cells, things, j, b):
    return row_of_cells(cells, things[j, Y, b]) * cells.columns + column_of(cells, things[j, X, b])


@inlined
def _is_there(there, j, b):
    if there is None:
        return True
    return there[j, b]


def sort_walls(cells: Cells, walls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the walls (w, 4) by cell, each in every cell that its bounding box touches: start (C + 1,) and numbers."""
    pad = PAD * (cells.half_width + cells.half_height)
    ends = walls.reshape(-1, 2, 2)
    low, high = ends.min(1) - pad, ends.max(1) + pad
    per, half = np.array((cells.per_x, cells.per_y)), np.array((cells.half_width, cells.half_height))
    most = np.array((cells.columns - 1, cells.rows - 1))
    first, last = (np.clip(np.floor((edge + half) * per), 0, most).astype(np.int64) for edge in (low, high))
    across, count = (last - first + 1)[:, 0], (last - first + 1).prod(-1)
    number = np.repeat(np.arange(len(walls)), count)
    within = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
    row, column = np.divmod(within, across[number])
    cell = (first[number, 1] + row) * cells.columns + first[number, 0] + column
    order = np.argsort(cell, kind="stable")
    start = np.searchsorted(cell[order], np.arange(cells.columns * cells.rows + 1))
    return start.astype(np.int32), number[order].astype(np.int32)


def make_grid(scenario: Any, walls: np.ndarray, discs: int, b: int) -> Grid:
    """Return the empty index of b large scenes with walls (w, 4), which it holds already, and a number of discs."""
    n, m = scenario.num_sensors, scenario.num_targets
    cells = make_cells(scenario, max(n, m))
    starts = b, cells.columns * cells.rows + 2
    wall_start, wall = sort_walls(cells, walls)
    return Grid(
        cells=cells,
        start=np.zeros(starts, np.int32),
        target=np.zeros((b, m), np.int32),
        target_x=np.zeros((b, m)),
        target_y=np.zeros((b, m)),
        disc_start=np.zeros(starts, np.int32),
        disc=np.zeros((b, discs), np.int32),
        disc_x=np.zeros((b, discs)),
        disc_y=np.zeros((b, discs)),
        wall_start=wall_start,
        wall=wall,
        seen=np.zeros((b, n, SEEN_LISTED), np.int32),
        num_seen=np.zeros((b, n), np.int32),
        seer=np.full((b, m), -1, np.int32),
    )
