"""Search for the nearest things, among those sorted into cells or among all. Compiled by numba."""

import math

from hitmac.envs.kernels.cells import PAD, column_of, row_of_cells
from hitmac.envs.kernels.compiled import compiled, inlined

BINS = 64
"""Bins of the squared distances of candidates."""


@inlined
def _limit(reach, own, limit, s):
    if reach is None:
        return limit
    return (reach[s] + own) * (reach[s] + own)


@inlined
def _collect(first, last, order, x, y, reach, own, at_x, at_y, limit, skip, distance, index, count):
    """Append the things `first` to `last` - 1 of the order that are near enough; return the number of candidates."""
    for s in range(first, last):
        dx = x[s] - at_x
        dy = y[s] - at_y
        squared = dx * dx + dy * dy
        distance[count] = squared
        index[count] = order[s]
        count += squared <= _limit(reach, own, limit, s) and order[s] != skip
    return count


@inlined
def _gap(cells, left, right, low, high, at_x, at_y):
    """Return a distance that is less than that of anything outside the cells `left` to `right`, `low` to `high`."""
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


@inlined
def _within(distance, count, bound):
    """Return the number of candidates under a squared distance."""
    within = 0
    for s in range(count):
        within += distance[s] < bound
    return within


@compiled
def collect_near(cells, start, order, x, y, reach, own, at_x, at_y, limit, skip, k, distance, index, count):
    """Collect things around a place, among them the k nearest, or all within the limit.

    The search goes ring by ring around the place's cell. It ends when there are k candidates nearer than all that is
    outside the rings, or when that is beyond the limit.

    Args:
        cells: the division of the arena.
        start: (C + 2,) first thing of each cell.
        order: (count,) numbers of the things by cell.
        x: (count,) their positions.
        y: (count,)
        reach: (count,) reach of each thing, or None.
        own: reach of the searching thing: only things within the sum of both are near.
        at_x: the place.
        at_y: the place.
        limit: largest squared distance.
        skip: number of a thing to leave out.
        k: number of things that are searched.
        distance: squared distances of the candidates, written; one place more than there are things.
        index: numbers of the candidates, written.
        count: number of candidates that are there already.

    Returns:
        Number of candidates.
    """
    column, row = column_of(cells, at_x), row_of_cells(cells, at_y)
    ring = 0
    while True:
        left, right, low, high = column - ring, column + ring, row - ring, row + ring
        for r in range(max(low, 0), min(high, cells.rows - 1) + 1):
            # The whole row above and below, else the two ends.
            ends = ring > 0 and low < r < high
            for end in range(2 if ends else 1):
                first = max(right if end == 1 else left, 0)
                last = min(left if ends and end == 0 else right, cells.columns - 1)
                if first <= last:
                    before = r * cells.columns
                    count = _collect(
                        start[before + first], start[before + last + 1], order, x, y, reach, own, at_x, at_y, limit,
                        skip, distance, index, count,
                    )  # fmt: skip
        gap = _gap(cells, left, right, low, high, at_x, at_y)
        if gap == math.inf or (gap > 0.0 and (gap * gap > limit or _within(distance, count, gap * gap) >= k)):
            return count
        ring += 1


@compiled
def choose_nearest(k, distance, index, count, bins, chosen):
    """Choose the k nearest of some candidates, of two at the same distance the one of the lower number.

    Candidates are counted by bins of the squared distance. Those of the first bins are among the nearest, and only
    those of the bin that holds the k-th are compared.

    Args:
        k: number of candidates to choose.
        distance: squared distances of the candidates, overwritten.
        index: their numbers, overwritten.
        count: number of candidates.
        bins: (BINS,) int32, overwritten.
        chosen: the numbers of the nearest, written, in no order.

    Returns:
        Number of candidates chosen, k at most.
    """
    if count <= k:
        for s in range(count):
            chosen[s] = index[s]
        return count
    farthest = 0.0
    for s in range(count):
        farthest = max(farthest, distance[s])
    scale = (BINS - 1) / farthest if farthest > 0.0 else 0.0
    for c in range(BINS):
        bins[c] = 0
    for s in range(count):
        bins[_bin(distance[s], scale)] += 1
    last, before = 0, 0
    while before + bins[last] <= k:
        before += bins[last]
        last += 1
    taken, few = 0, 0
    for s in range(count):
        c = _bin(distance[s], scale)
        if c < last:
            chosen[taken] = index[s]
            taken += 1
        elif c == last:
            distance[few] = distance[s]
            index[few] = index[s]
            few += 1
    while taken < k:
        best = 0
        for s in range(1, few):
            if distance[s] < distance[best] or (distance[s] == distance[best] and index[s] < index[best]):
                best = s
        chosen[taken] = index[best]
        taken += 1
        few -= 1
        distance[best] = distance[few]
        index[best] = index[few]
    return k


@inlined
def _bin(squared, scale):
    return max(min(int(squared * scale), BINS - 1), 0)


@compiled
def write_sorted(chosen, count, slots):
    """Write the first `count` different numbers of `chosen` into the slots, ascending, and -1 into the others."""
    for s in range(count):
        rank = 0
        for other in range(count):
            rank += chosen[other] < chosen[s]
        slots[rank] = chosen[s]
    for s in range(count, slots.shape[0]):
        slots[s] = -1
