"""Search for the nearest things, sorted into cells or not. Compiled by numba."""

import math
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.features import Pair, measure_offsets, scales_of, write_feature
from hitmac.envs.kernels.knowledge import place_of, row_of
from hitmac.envs.kernels.state import Cells, Grid, Places, X, Y
from hitmac.envs.kernels.streams import pair_number, position_error, seen_and_noticed, velocity_error
from hitmac.envs.kernels.threads import blocks, compiled, inlined, kernel

PER_CELL = 2.0
"""Average number of things in a cell."""

BINS = 64
"""Bins of the squared distances of candidates."""

SEEN_LISTED = 32
"""Maximum length of the list of targets that a sensor of a large scene sees; with more, all targets are searched."""

PAD = 1e-9
"""Margin of searches, as a share of the arena, far above rounding errors."""


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
    `order`, `x` and `y` are the outputs, as in :class:`~hitmac.envs.kernels.state.Places`.
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


@compiled
def search(cells, start, number, x, y, reach, at_x, at_y, limit, own, skip, k, square, candidate, already):
    """Collect candidates for the k nearest to (at_x, at_y), from a box of cells that grows until it contains them.

    Candidates are things within the squared distance `limit`; if things have a reach (count,), within the sum of it and
    `own`. Thing `skip` is excluded. Candidates follow the `already` collected ones; returns their total number.
    """
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
                count += (squared <= _limit(reach, own, limit, s)) & (number[s] != skip)
        gap = _gap(cells, left, right, low, high, at_x, at_y)
        within = 0
        for s in range(count):
            within += square[s] < gap * gap
        if gap == math.inf or (gap > 0.0 and (gap * gap > limit or within >= k)):
            return count
        ring += 1 + ring // 4


@inlined
def _limit(reach, own, limit, s):
    if reach is None:
        return limit
    return (reach[s] + own) * (reach[s] + own)


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
    last, before = 0, 0
    while before + bins[last] <= k:
        before += bins[last]
        last += 1
    taken, few = 0, 0
    for s in range(count):
        c = _bin(square[s], scale)
        if c < last:
            listed[taken] = candidate[s]
            taken += 1
        elif c == last:
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
def _write_sorted(chosen, count, slots):
    """Write the first `count` numbers of `chosen`, all different, into the slots in ascending order, then -1."""
    for s in range(count):
        rank = 0
        for other in range(count):
            rank += chosen[other] < chosen[s]
        slots[rank] = chosen[s]
    for s in range(count, slots.shape[0]):
        slots[s] = -1


(
    _DX, _DY, _DISTANCE, _EAST, _NORTH, _VELOCITY_X, _VELOCITY_Y, _NOTICED, _SEEING, _AGE,
) = range(10)  # fmt: skip


class Index(NamedTuple):
    """Targets and sensors by place, for one observation; see :class:`hitmac.envs.kernels.state.Grid`."""

    cells: Cells
    targets: Places
    sensors: Places  # working sensors, or none
    seeing: np.ndarray  # (B, m) int32: number of sensors that detect the target; or (B, 0)
    seen: np.ndarray  # (B, n, S) int32: targets that each sensor sees; or (B, n, 0)
    num_seen: np.ndarray  # (B, n) int32: their number; over S, they are not listed
    reach: np.ndarray  # (B, n) their ranges
    longest: np.ndarray  # (B,) longest range


class Buffers(NamedTuple):
    """Work arrays of one thread for k slots, overwritten for every sensor."""

    square: np.ndarray  # squared distances and numbers of candidates
    candidate: np.ndarray  # int32
    bins: np.ndarray  # (BINS,) int32
    listed: np.ndarray  # int32: the nearest candidates
    sensor: np.ndarray  # (17, k) rows of the sensor
    row: np.ndarray  # (10, k) observed quantities
    number: np.ndarray  # (k,) int64: targets


class NearestObservation(NamedTuple):
    """Observation of the nearest targets."""

    pairs: np.ndarray  # (B, n, k, d) float32
    mask: np.ndarray  # (B, n, k) int8
    targets: np.ndarray  # (B, n, k) int32
    neighbours: np.ndarray  # (B, n, l) int32


@compiled
def _count_noticing(state, index, missed_detections, b):
    """Write the number of sensors that detect each target of scene b."""
    seeing = index.seeing[b]
    for j in range(seeing.shape[0]):
        seeing[j] = 0
    for i in range(state.sensor.shape[0]):
        if index.num_seen[b, i] > index.seen.shape[2]:
            for j in range(seeing.shape[0]):
                seeing[j] += seen_and_noticed(state, missed_detections, i, j, b)
        else:
            for s in range(index.num_seen[b, i]):
                j = index.seen[b, i, s]
                seeing[j] += seen_and_noticed(state, missed_detections, i, j, b)


@kernel
def index_scenes(state, missed_detections, index, share):
    """Sort targets and sensors by place, and count the sensors that see each target.

    With partial knowledge, targets are not sorted, since their places differ between sensors.
    """
    for low, high in blocks(index.longest.shape[0], share):
        for b in range(low, high):
            if index.targets.number.shape[1] > 0:
                sort_places(index.cells, state.target, state.present, b, index.targets)
            if index.seeing.shape[1] > 0:
                _count_noticing(state, index, missed_detections, b)
            if index.sensors.number.shape[1] > 0:
                sort_places(index.cells, state.sensor, state.working, b, index.sensors)
                index.longest[b] = 0.0
                for s in range(index.sensors.start[b, -1]):
                    index.reach[b, s] = math.sqrt(state.sensor[index.sensors.number[b, s], at.RANGE_SQUARED, b])
                    index.longest[b] = max(index.longest[b], index.reach[b, s])


@compiled
def _is_shown(state, knowledge, b, i, j, limit):
    """Return whether sensor i of scene b observes target j, and the squared distance to its known place."""
    known, x, y = place_of(state, knowledge, i, j, b)
    dx, dy = x - state.sensor[i, X, b], y - state.sensor[i, Y, b]
    squared = dx * dx + dy * dy
    return state.working[i, b] and known and squared <= limit, squared


@compiled
def _choose(state, knowledge, index, b, i, limit, buffers, targets):
    """Write the targets of the slots (k,) of sensor i, -1 for empty slots."""
    k, m = targets.shape[0], state.target.shape[0]
    if k == m:
        for j in range(k):
            targets[j] = j if _is_shown(state, knowledge, b, i, j, limit)[0] else -1
        return
    count = 0
    if state.working[i, b]:
        if knowledge is None:
            x, y = state.sensor[i, X, b], state.sensor[i, Y, b]
            count = search(
                index.cells, index.targets.start[b], index.targets.number[b], index.targets.x[b], index.targets.y[b],
                None, x, y, limit, 0.0, -1, k, buffers.square, buffers.candidate, 0,
            )  # fmt: skip
        else:
            for j in range(m):
                shown, buffers.square[count] = _is_shown(state, knowledge, b, i, j, limit)
                buffers.candidate[count] = j
                count += shown
    count = choose_nearest(k, buffers.square, buffers.candidate, count, buffers.bins, buffers.listed)
    _write_sorted(buffers.listed, count, targets)


@compiled
def _find_neighbours(state, index, b, i, buffers, neighbours):
    """Write the neighbours of sensor i, ascending, -1 for none."""
    own = math.sqrt(state.sensor[i, at.RANGE_SQUARED, b])
    most, limit = neighbours.shape[0], (own + index.longest[b]) * (own + index.longest[b])
    buffers.square[0], buffers.candidate[0] = -1.0, i  # the sensor itself before all others
    x, y = state.sensor[i, X, b], state.sensor[i, Y, b]
    count = search(
        index.cells, index.sensors.start[b], index.sensors.number[b], index.sensors.x[b], index.sensors.y[b],
        index.reach[b], x, y, limit, own, i, most, buffers.square, buffers.candidate, 1,
    )  # fmt: skip
    count = choose_nearest(most, buffers.square, buffers.candidate, count, buffers.bins, buffers.listed)
    _write_sorted(buffers.listed, count, neighbours)


@compiled
def _measure(state, knowledge, scales, index, b, i, targets, row, number):
    """Write the observed quantities of the target of every slot into `row` (10, k), and its number into `number`."""
    if knowledge is None:
        listed = index.num_seen[b, i] <= index.seen.shape[2]  # then only the few listed targets are looked up
        for s in range(targets.shape[0]):
            j = max(np.int64(targets[s]), 0)
            row[_NOTICED, s] = 0.0 if listed else seen_and_noticed(state, scales.missed_detections, i, j, b)
        for one in range(index.num_seen[b, i] if listed else 0):
            j = np.int64(index.seen[b, i, one])
            for s in range(targets.shape[0]):
                if targets[s] == j:
                    row[_NOTICED, s] = seen_and_noticed(state, scales.missed_detections, i, j, b)
    for s in range(targets.shape[0]):
        j = max(np.int64(targets[s]), 0)
        number[s] = j
        if knowledge is None:
            row[_DX, s] = state.target[j, X, b] - state.sensor[i, X, b]
            row[_DY, s] = state.target[j, Y, b] - state.sensor[i, Y, b]
            row[_VELOCITY_X, s] = state.target[j, at.VELOCITY_X, b]
            row[_VELOCITY_Y, s] = state.target[j, at.VELOCITY_Y, b]
            row[_SEEING, s] = index.seeing[b, j] if index.seeing.shape[1] > 0 else 0
            row[_AGE, s] = 0.0
            if scales.position_noise > 0.0:
                pair = pair_number(state, i, j)
                error_x, error_y = position_error(state, b, scales.position_noise, pair)
                row[_DX, s] += error_x
                row[_DY, s] += error_y
                if scales.noisy_velocity and state.scene[at.TIME_BEFORE, b] >= 0:
                    error_x, error_y = velocity_error(state, b, scales.position_noise, scales.per_time, pair)
                    row[_VELOCITY_X, s] += error_x
                    row[_VELOCITY_Y, s] += error_y
        else:
            r = row_of(knowledge.known, i)
            known = knowledge.known[r, j]
            row[_DX, s], row[_DY, s] = known[X, b] - state.sensor[i, X, b], known[Y, b] - state.sensor[i, Y, b]
            row[_VELOCITY_X, s], row[_VELOCITY_Y, s] = known[at.KNOWN_VELOCITY_X, b], known[at.KNOWN_VELOCITY_Y, b]
            row[_NOTICED, s], row[_SEEING, s] = knowledge.noticed[i, j, b], knowledge.seeing[r, j, b]
            row[_AGE, s] = known[at.AGE, b]


@compiled
def _write_features(state, scales, codes, of_sensor, b, i, targets, buffers, pairs):
    """Write the features of every slot (k, d) of sensor i; those of empty slots are 0, except those of the sensor."""
    n, m, k, sensor, row = (
        state.sensor.shape[0], state.target.shape[0], targets.shape[0], buffers.sensor, buffers.row,
    )  # fmt: skip
    dx, dy, distance, east, north = row[_DX], row[_DY], row[_DISTANCE], row[_EAST], row[_NORTH]
    for part in range(sensor.shape[0]):
        for s in range(k):
            sensor[part, s] = state.sensor[i, part, b]
    measure_offsets(dx, dy, distance, east, north, 0, k)
    pair = Pair(
        i, 0, n, m, sensor, dx, dy, distance, east, north, row[_VELOCITY_X], row[_VELOCITY_Y], row[_NOTICED],
        row[_SEEING], row[_AGE], buffers.number,
    )  # fmt: skip
    for f in range(codes.shape[0]):
        write_feature(codes[f], pairs[:, f], pair, scales, np.uint64(0), np.uint64(k))
    for s in range(k):
        if targets[s] < 0:
            for f in range(codes.shape[0]):
                if not (of_sensor[f] and state.working[i, b]):
                    pairs[s, f] = 0.0


@compiled
def _observe_sensors(state, knowledge, scales, codes, of_sensor, index, limit, shown, buffers, low, high):
    """Write the rows of the sensors `low` to `high` - 1, counted scene by scene."""
    n = shown.pairs.shape[1]
    for item in range(low, high):
        b, i = item // n, item % n
        targets = shown.targets[b, i]
        _choose(state, knowledge, index, b, i, limit, buffers, targets)
        for slot in range(targets.shape[0]):
            shown.mask[b, i, slot] = targets[slot] >= 0
        _measure(state, knowledge, scales, index, b, i, targets, buffers.row, buffers.number)
        _write_features(state, scales, codes, of_sensor, b, i, targets, buffers, shown.pairs[b, i])
        if shown.neighbours.shape[2] > 0:
            _find_neighbours(state, index, b, i, buffers, shown.neighbours[b, i])


@kernel
def observe_near(state, scales, codes, of_sensor, index, limit, shown, share):
    """Write the features of the nearest targets of every sensor, their mask and numbers, and the sensor's neighbours.

    Threads divide the sensors, counted scene by scene.
    """
    own = scales_of(scales)
    n, k, most = shown.pairs.shape[1], shown.pairs.shape[2], shown.neighbours.shape[2]
    things = max(n, state.target.shape[0]) + 1
    buffers = Buffers(
        np.empty(things), np.empty(things, np.int32), np.empty(BINS, np.int32), np.empty(max(k, most), np.int32),
        np.empty((state.sensor.shape[1], k)), np.empty((10, k)), np.empty(k, np.int64),
    )  # fmt: skip
    for low, high in blocks(shown.pairs.shape[0] * n, share):
        _observe_sensors(state, state.knowledge, own, codes, of_sensor, index, limit, shown, buffers, low, high)
