"""Search for the nearest things, sorted into cells or not. Compiled by numba."""

import math
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.base.compile import compiled, inlined
from hitmac.envs.base.state import X, Y

PER_CELL = 2.0
"""Average number of things in a cell."""

BINS = 64
"""Bins of the squared distances of candidates."""

SEEN_LISTED = 32
"""Maximum length of the list of targets that a sensor of a large scene sees; with more, all targets are searched."""

PAD = 1e-9
"""Margin of searches, as a share of the arena, far above rounding errors."""


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


class Places(NamedTuple):
    """Things sorted by cell: those of cell c are ``start[b, c]`` to ``start[b, c + 1] - 1``."""

    start: np.ndarray  # (B, C + 2) int32
    number: np.ndarray  # (B, count) int32, ascending in a cell
    x: np.ndarray  # (B, count)
    y: np.ndarray  # (B, count)


class Grid(NamedTuple):
    """Index of a large scene by place, so that sensors look only nearby.

    The targets that each sensor sees are listed up to S; of more, only the number is stored.
    """

    cells: Cells
    targets: Places  # present targets
    discs: Places  # by centre
    wall_start: np.ndarray  # (C + 1,) int32; walls lie in every cell that their bounding box touches
    wall: np.ndarray  # (w',) int32
    seen: np.ndarray  # (B, n, S) int32
    num_seen: np.ndarray  # (B, n) int32
    seer: np.ndarray  # (B, m) int32: first sensor that sees the target; -1: none


def make_cells(scenario: Any, things: int) -> Cells:
    """Return square cells of the arena for a number of things."""
    half_width, half_height = scenario.extent
    side = math.sqrt(4.0 * half_width * half_height * PER_CELL / things)
    columns, rows = (max(1, min(round(2.0 * half / side), things)) for half in scenario.extent)
    width, height = 2.0 * half_width / columns, 2.0 * half_height / rows
    return Cells(columns, rows, width, height, 1.0 / width, 1.0 / height, half_width, half_height)


@inlined
def column_of(cells, x):
    """Return the column of a coordinate; the outer columns extend beyond the arena."""
    return min(max(math.floor((x + cells.half_width) * cells.per_x), 0), cells.columns - 1)


@inlined
def row_of_cells(cells, y):
    """Return the row of a coordinate; the outer rows extend beyond the arena."""
    return min(max(math.floor((y + cells.half_height) * cells.per_y), 0), cells.rows - 1)


@compiled
def box_of(cells, low_x, high_x, low_y, high_y):
    """Return the first and last column and the first and last row of a slightly enlarged box."""
    pad = PAD * (cells.half_width + cells.half_height)
    return (
        column_of(cells, low_x - pad), column_of(cells, high_x + pad),
        row_of_cells(cells, low_y - pad), row_of_cells(cells, high_y + pad),
    )  # fmt: skip


@compiled
def sort_into_cells(cells, things, present, b, start, order, x, y):
    """Sort the present things of scene b by cell, and by number within a cell.

    `things` (count, rows, B) begin with the rows x and y; `present` (count, B) is None for all. `start` (C + 2,),
    `order`, `x` and `y` are the outputs, as in :class:`~hitmac.envs.base.nearest.Places`.
    """
    for c in range(start.shape[0]):
        start[c] = 0
    for j in range(things.shape[0]):
        if _is_present(present, j, b):
            start[_cell(cells, things, j, b) + 2] += 1
    for c in range(2, start.shape[0]):
        start[c] += start[c - 1]
    for j in range(things.shape[0]):
        if _is_present(present, j, b):
            c = _cell(cells, things, j, b) + 1
            place = start[c]  # moves from the beginning of the cell to its end
            start[c] = place + 1
            order[place] = j
            x[place] = things[j, X, b]
            y[place] = things[j, Y, b]


@inlined
def sort_places(cells, things, present, b, places):
    """Sort the present things of scene b into its `places`."""
    sort_into_cells(cells, things, present, b, places.start[b], places.number[b], places.x[b], places.y[b])


def make_places(cells: Cells, scenes: int, count: int) -> Places:
    """Return empty places for `count` things in each of some scenes."""
    start, shape = np.zeros((scenes, cells.columns * cells.rows + 2), np.int32), (scenes, count)
    return Places(start, np.empty(shape, np.int32), np.empty(shape), np.empty(shape))


@inlined
def _cell(cells, things, j, b):
    return row_of_cells(cells, things[j, Y, b]) * cells.columns + column_of(cells, things[j, X, b])


@inlined
def _is_present(present, j, b):
    if present is None:
        return True
    return present[j, b]


def sort_walls(cells: Cells, walls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the walls (w, 4) by cell, each in every cell touched by its bounding box: start (C + 1,) and numbers."""
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
    """Return an index of b large scenes that contains only their walls (w, 4)."""
    n, m = scenario.num_sensors, scenario.num_targets
    cells = make_cells(scenario, max(n, m))
    wall_start, wall = sort_walls(cells, walls)
    return Grid(
        cells=cells,
        targets=make_places(cells, b, m),
        discs=make_places(cells, b, discs),
        wall_start=wall_start,
        wall=wall,
        seen=np.zeros((b, n, SEEN_LISTED), np.int32),
        num_seen=np.zeros((b, n), np.int32),
        seer=np.full((b, m), -1, np.int32),
    )


@inlined
def _gap(cells, left, right, low, high, at_x, at_y):
    """Return a lower bound of the distance to anything outside the cells `left` to `right`, `low` to `high`."""
    gap = math.inf
    if left > 0:
        gap = min(gap, at_x + cells.half_width - left * cells.width)
    if right < cells.columns - 1:
        gap = min(gap, (right + 1) * cells.width - cells.half_width - at_x)
    if low > 0:
        gap = min(gap, at_y + cells.half_height - low * cells.height)
    if high < cells.rows - 1:
        gap = min(gap, (high + 1) * cells.height - cells.half_height - at_y)
    return gap - PAD * (cells.half_width + cells.half_height)


class Circle(NamedTuple):
    """Place around which the nearest things are searched."""

    x: float
    y: float
    limit: float  # squared distance of the farthest
    own: float  # distance up to which a thing without a reach of its own would count, where things have one
    skip: int  # a thing that does not count; -1: none


@compiled
def search(cells, places, b, reach, around, k, square, candidate, already):
    """Collect candidates for the k nearest things of scene b, from a box of cells that grows until it contains them.

    Candidates are `places` within the circle `around`; if they have a reach (count,), within the sum of it and
    `own`. Candidates follow the `already` collected ones; returns their total number.
    """
    start, number, x, y = places.start[b], places.number[b], places.x[b], places.y[b]
    at_x, at_y, limit, own, skip = around
    column, row = column_of(cells, at_x), row_of_cells(cells, at_y)
    # A circle of this many cells contains k things on average, or all within the limit.
    area = min(k * cells.columns * cells.rows / (math.pi * max(start[-1], 1)), limit * cells.per_x * cells.per_y)
    ring = int(math.sqrt(area) + 0.5)
    while True:
        left, right = max(column - ring, 0), min(column + ring, cells.columns - 1)
        low, high = max(row - ring, 0), min(row + ring, cells.rows - 1)
        count = already
        for r in range(low, high + 1):
            for s in range(start[r * cells.columns + left], start[r * cells.columns + right + 1]):
                dx = x[s] - at_x
                dy = y[s] - at_y
                squared = dx * dx + dy * dy
                square[count] = squared
                candidate[count] = number[s]
                most = limit if reach is None else (reach[s] + own) * (reach[s] + own)
                count += (squared <= most) & (number[s] != skip)
        # Nothing outside the box is nearer than the gap, so k candidates within it are the nearest.
        gap = _gap(cells, left, right, low, high, at_x, at_y)
        within = 0
        for s in range(count):
            within += square[s] < gap * gap
        if gap == math.inf or (gap > 0.0 and (gap * gap > limit or within >= k)):
            return count
        ring += 1 + ring // 4


@inlined
def _bin(squared, scale):
    return max(min(int(squared * scale), BINS - 1), 0)


@compiled
def choose_nearest(k, square, candidate, count, bins, listed):
    """List the k nearest of `count` candidates, in no order; ties go to the lower number. Return their number.

    Candidates are counted in bins of the squared distance. Those of the first bins are among the nearest, and only
    those in the bin of the k-th are compared.
    """
    if count <= k:
        for s in range(count):
            listed[s] = candidate[s]
        return count
    farthest = 0.0
    for s in range(count):
        farthest = max(farthest, square[s])
    scale = (BINS - 1) / farthest if farthest > 0.0 else 0.0
    for c in range(BINS):
        bins[c] = 0
    for s in range(count):
        bins[_bin(square[s], scale)] += 1
    last, before = 0, 0  # the bin of the k-th candidate, and the number in those before it
    while before + bins[last] <= k:
        before += bins[last]
        last += 1
    taken, few = 0, 0
    for s in range(count):
        c = _bin(square[s], scale)
        if c < last:
            listed[taken] = candidate[s]
            taken += 1
        elif c == last:  # kept at the front, to compare
            square[few], candidate[few] = square[s], candidate[s]
            few += 1
    while taken < k:
        best = 0
        for s in range(1, few):
            if square[s] < square[best] or (square[s] == square[best] and candidate[s] < candidate[best]):
                best = s
        listed[taken] = candidate[best]
        taken, few = taken + 1, few - 1
        square[best], candidate[best] = square[few], candidate[few]
    return k


@compiled
def write_sorted(chosen, count, slots):
    """Write the first `count` numbers of `chosen`, all different, into the slots in ascending order, then -1."""
    for s in range(count):
        rank = 0
        for other in range(count):
            rank += chosen[other] < chosen[s]
        slots[rank] = chosen[s]
    for s in range(count, slots.shape[0]):
        slots[s] = -1
