"""Features of every pair of a sensor and a target, or of each sensor's nearest targets. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import compiled, inlined, kernel
from hitmac.envs.base.formulas import disc_blocks, scales_of, unit, wall_blocks, write_feature
from hitmac.envs.base.nearest import BINS, Cells, Circle, Places, choose_nearest, search, sort_places, write_sorted
from hitmac.envs.base.state import KernelState, X, Y
from hitmac.envs.base.streams import notice, pair_number, position_error, seen_and_noticed, velocity_error
from hitmac.envs.base.threads import SCENES_PER_RUN, blocks
from hitmac.envs.features import Pair
from hitmac.envs.parts.knowledge import place_of, row_of
from hitmac.envs.parts.obstacles import disc_at, is_clear, widest_disc

# Rows of observed quantities, of `scratch` (scenes in its columns) and of Buffers.row (slots), which has also the last.
_DX, _DY, _DISTANCE, _EAST, _NORTH, _VELOCITY_X, _VELOCITY_Y, _SEEING, _AGE, _CLEAR, _NOTICED = range(11)


@inlined
def _view_of(state, knowledge, scales, i, j, first, last):
    """Write the observed offset of target j from sensor i into the rows _DX and _DY.

    Returns arrays (B,): velocity x and y, a mask of detections, the number of sensors that detect the target, and the
    age of the knowledge.
    """
    if knowledge is None:
        if scales.missed_detections > 0.0:
            notice(state, scales.missed_detections, i, j, first, last)
        pair = pair_number(state, i, j)
        for b in range(first, last):
            state.scratch[_DX, b] = state.target[j, X, b] - state.sensor[i, X, b]
            state.scratch[_DY, b] = state.target[j, Y, b] - state.sensor[i, Y, b]
        if scales.position_noise > 0.0:
            for b in range(first, last):
                error_x, error_y = position_error(state, b, scales.position_noise, pair)
                state.scratch[_DX, b] += error_x
                state.scratch[_DY, b] += error_y
        velocity_x, velocity_y = state.target[j, at.VELOCITY_X], state.target[j, at.VELOCITY_Y]
        if scales.noisy_velocity:
            for b in range(first, last):
                state.scratch[_VELOCITY_X, b], state.scratch[_VELOCITY_Y, b] = velocity_x[b], velocity_y[b]
                if state.scene[at.TIME_BEFORE, b] >= 0:
                    error_x, error_y = velocity_error(state, b, scales.position_noise, scales.per_time, pair)
                    state.scratch[_VELOCITY_X, b] += error_x
                    state.scratch[_VELOCITY_Y, b] += error_y
            velocity_x, velocity_y = state.scratch[_VELOCITY_X], state.scratch[_VELOCITY_Y]
        noticed = state.scratch_mask if scales.missed_detections > 0.0 else state.visible[i, j]
        return velocity_x, velocity_y, noticed, state.scratch[_SEEING], state.scratch[_AGE]
    r = row_of(knowledge.known, i)
    known = knowledge.known[r, j]
    for b in range(first, last):
        state.scratch[_DX, b] = known[X, b] - state.sensor[i, X, b]
        state.scratch[_DY, b] = known[Y, b] - state.sensor[i, Y, b]
    for b in range(first, last):
        state.scratch[_SEEING, b] = knowledge.seeing[r, j, b]
    velocity_x, velocity_y = known[at.VELOCITY_X], known[at.VELOCITY_Y]
    return velocity_x, velocity_y, knowledge.noticed[i, j], state.scratch[_SEEING], known[at.AGE]


@inlined
def measure_offsets(dx, dy, distance, east, north, first, last):
    """Write distance and unit vector (east, north) of offsets."""
    for b in range(first, last):
        distance[b] = math.sqrt(dx[b] * dx[b] + dy[b] * dy[b])
    for b in range(first, last):
        east[b], north[b] = unit(dx[b], dy[b], distance[b])


@compiled
def _find_clear(sensor, disc, walls, scratch, first, last):
    """Write into the row _CLEAR 1 where nothing stands between a sensor and its offset (_DX, _DY), else 0."""
    dx, dy, clear, x, y = scratch[_DX], scratch[_DY], scratch[_CLEAR], sensor[X], sensor[Y]
    for b in range(first, last):
        clear[b] = 1.0
    for k in range(disc.shape[0]):
        for b in range(first, last):
            blocked = disc_blocks(x[b], y[b], dx[b], dy[b], disc_at(disc, k, b))
            clear[b] = 0.0 if blocked else clear[b]
    for k in range(walls.shape[0]):
        for b in range(first, last):
            blocked = wall_blocks(x[b], y[b], dx[b], dy[b], walls[k])
            clear[b] = 0.0 if blocked else clear[b]


@inlined
def _count_seeing(state, knowledge, scales, j, first, last):
    """Write the number of sensors that detect target j into the row _SEEING, with full knowledge."""
    if knowledge is None:
        for b in range(first, last):
            state.scratch[_SEEING, b] = 0.0
        for i in range(state.sensor.shape[0]):
            if scales.missed_detections > 0.0:
                notice(state, scales.missed_detections, i, j, first, last)
                for b in range(first, last):
                    state.scratch[_SEEING, b] += state.scratch_mask[b]
            else:
                for b in range(first, last):
                    state.scratch[_SEEING, b] += state.visible[i, j, b]


@inlined
def _observe_scenes(rows, scales, codes, of_sensor, pairs, mask, first, last):
    """Write the features of every pair and the mask of valid pairs of the scenes `first` to `last` - 1."""
    state, scales = KernelState(*rows), scales_of(scales)
    sensor, knowledge = state.sensor, state.knowledge
    n, m = sensor.shape[0], state.target.shape[0]
    dx, dy, distance, east, north = (
        state.scratch[_DX], state.scratch[_DY], state.scratch[_DISTANCE], state.scratch[_EAST], state.scratch[_NORTH],
    )  # fmt: skip
    for b in range(first, last):
        state.scratch[_AGE, b] = 0.0  # age with full knowledge
    for j in range(m):
        _count_seeing(state, knowledge, scales, j, first, last)
        for i in range(n):
            velocity_x, velocity_y, noticed, seeing, age = _view_of(state, knowledge, scales, i, j, first, last)
            measure_offsets(dx, dy, distance, east, north, first, last)
            if scales.line_of_sight:
                _find_clear(sensor[i], state.disc, state.walls, state.scratch, first, last)
            pair = Pair(
                i, j, n, m, sensor[i], dx, dy, distance, east, north, velocity_x, velocity_y, noticed, seeing, age,
                state.scratch[_CLEAR], state.values, None,
            )  # fmt: skip
            for k in range(codes.shape[0]):
                write_feature(codes[k], pairs[:, i, j, k], pair, scales, first, last)
            if not scales.all_there:
                for b in range(first, last):
                    mask[b, i, j] = state.working[i, b] & place_of(state, knowledge, i, j, b)[0]
                    if mask[b, i, j] == 0:
                        for k in range(codes.shape[0]):
                            if not (of_sensor[k] and state.working[i, b]):
                                pairs[b, i, j, k] = 0.0


@kernel
def observe(rows, scales, codes, of_sensor, pairs, mask, share):
    """Write the features `codes` of every pair and the mask of valid pairs.

    Features `of_sensor` (d,) are also shown for unknown targets.
    """
    for low, high in blocks(pairs.shape[0], share):
        for first in range(low, high, SCENES_PER_RUN):
            last = min(first + SCENES_PER_RUN, high)
            _observe_scenes(rows, scales, codes, of_sensor, pairs, mask, np.uint64(first), np.uint64(last))


class Index(NamedTuple):
    """Targets and sensors by place, for one observation; see :class:`hitmac.envs.base.nearest.Grid`."""

    cells: Cells
    targets: Places
    sensors: Places  # working sensors, or none
    discs: Places  # or none, like the walls, where no feature needs the line of sight
    wall_start: np.ndarray  # (C + 1,) int32
    wall: np.ndarray  # (w',) int32
    seeing: np.ndarray  # (B, m) int32: number of sensors that detect the target; or (B, 0)
    seen: np.ndarray  # (B, n, S) int32: targets that each sensor sees; or (B, n, 0)
    num_seen: np.ndarray  # (B, n) int32: their number; over S, they are not listed
    reach: np.ndarray  # (B, n) their ranges
    longest: np.ndarray  # (B,) longest range
    limit: float  # squared distance of the farthest target that is shown


class Buffers(NamedTuple):
    """Work arrays of one thread for k slots, overwritten for every sensor."""

    square: np.ndarray  # squared distances and numbers of candidates
    candidate: np.ndarray  # int32
    bins: np.ndarray  # (BINS,) int32
    listed: np.ndarray  # int32: the nearest candidates
    sensor: np.ndarray  # (23 or 25, k) rows of the sensor
    row: np.ndarray  # (11, k) observed quantities
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
def index_scenes(rows, missed_detections, index, share):
    """Sort targets and sensors by place, and count the sensors that see each target.

    With partial knowledge, targets are not sorted, since their places differ between sensors.
    """
    state = KernelState(*rows)
    for low, high in blocks(index.longest.shape[0], share):
        for b in range(low, high):
            if index.targets.number.shape[1] > 0:
                sort_places(index.cells, state.target, state.present, b, index.targets)
            if index.discs.number.shape[1] > 0:
                sort_places(index.cells, state.disc, None, b, index.discs)
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
def _choose(state, knowledge, index, b, i, buffers, targets):
    """Write the targets of the slots (k,) of sensor i, -1 for empty slots."""
    k, m = targets.shape[0], state.target.shape[0]
    if k == m:  # nothing to choose: all in order
        for j in range(k):
            targets[j] = j if _is_shown(state, knowledge, b, i, j, index.limit)[0] else -1
        return
    count = 0
    if state.working[i, b]:
        if knowledge is None:
            around = Circle(state.sensor[i, X, b], state.sensor[i, Y, b], index.limit, 0.0, -1)
            count = search(index.cells, index.targets, b, None, around, k, buffers.square, buffers.candidate, 0)
        else:
            for j in range(m):
                shown, buffers.square[count] = _is_shown(state, knowledge, b, i, j, index.limit)
                buffers.candidate[count] = j
                count += shown
    count = choose_nearest(k, buffers.square, buffers.candidate, count, buffers.bins, buffers.listed)
    write_sorted(buffers.listed, count, targets)


@compiled
def _find_neighbours(state, index, b, i, buffers, neighbours):
    """Write the neighbours of sensor i, ascending, -1 for none."""
    own = math.sqrt(state.sensor[i, at.RANGE_SQUARED, b])
    most, limit = neighbours.shape[0], (own + index.longest[b]) * (own + index.longest[b])
    buffers.square[0], buffers.candidate[0] = -1.0, i  # the sensor itself before all others
    around = Circle(state.sensor[i, X, b], state.sensor[i, Y, b], limit, own, i)
    count = search(index.cells, index.sensors, b, index.reach[b], around, most, buffers.square, buffers.candidate, 1)
    count = choose_nearest(most, buffers.square, buffers.candidate, count, buffers.bins, buffers.listed)
    write_sorted(buffers.listed, count, neighbours)


@compiled
def _measure(state, knowledge, scales, index, b, i, targets, buffers):
    """Write the observed quantities of the target of every slot into the row (11, k), and its number."""
    row, number = buffers.row, buffers.number
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
            row[_VELOCITY_X, s], row[_VELOCITY_Y, s] = known[at.VELOCITY_X, b], known[at.VELOCITY_Y, b]
            row[_NOTICED, s], row[_SEEING, s] = knowledge.noticed[i, j, b], knowledge.seeing[r, j, b]
            row[_AGE, s] = known[at.AGE, b]
    if scales.line_of_sight:
        x, y, widest = state.sensor[i, X, b], state.sensor[i, Y, b], widest_disc(state.disc, b)
        for s in range(targets.shape[0]):
            row[_CLEAR, s] = is_clear(state.disc, state.walls, index, b, widest, x, y, row[_DX, s], row[_DY, s])


@compiled
def _write_features(state, scales, chosen, b, i, targets, buffers, pairs):
    """Write the features of every slot (k, d) of sensor i; those of empty slots are 0, except those of the sensor."""
    (codes, of_sensor), sensor, row = chosen, buffers.sensor, buffers.row
    n, m, k = state.sensor.shape[0], state.target.shape[0], targets.shape[0]
    dx, dy, distance, east, north = row[_DX], row[_DY], row[_DISTANCE], row[_EAST], row[_NORTH]
    # The rows from PAN_X on are read only with the line of sight (`seen_if_turned`), and where sensors tilt.
    for part in range(sensor.shape[0] if scales.line_of_sight or sensor.shape[0] > at.NUM_ROWS else at.PAN_X):
        for s in range(k):
            sensor[part, s] = state.sensor[i, part, b]
    measure_offsets(dx, dy, distance, east, north, 0, k)
    pair = Pair(
        i, 0, n, m, sensor, dx, dy, distance, east, north, row[_VELOCITY_X], row[_VELOCITY_Y], row[_NOTICED],
        row[_SEEING], row[_AGE], row[_CLEAR], state.values, buffers.number,
    )  # fmt: skip
    for f in range(codes.shape[0]):
        write_feature(codes[f], pairs[:, f], pair, scales, np.uint64(0), np.uint64(k))
    for s in range(k):
        if targets[s] < 0:
            for f in range(codes.shape[0]):
                if not (of_sensor[f] and state.working[i, b]):
                    pairs[s, f] = 0.0


@compiled
def _observe_sensors(state, scales, chosen, index, shown, buffers, low, high):
    """Write the rows of the sensors `low` to `high` - 1, counted scene by scene."""
    n = shown.pairs.shape[1]
    for item in range(low, high):
        b, i = item // n, item % n
        targets = shown.targets[b, i]
        _choose(state, state.knowledge, index, b, i, buffers, targets)
        for slot in range(targets.shape[0]):
            shown.mask[b, i, slot] = targets[slot] >= 0
        _measure(state, state.knowledge, scales, index, b, i, targets, buffers)
        _write_features(state, scales, chosen, b, i, targets, buffers, shown.pairs[b, i])
        if shown.neighbours.shape[2] > 0:
            _find_neighbours(state, index, b, i, buffers, shown.neighbours[b, i])


@kernel
def observe_near(rows, scales, codes, of_sensor, index, shown, share):
    """Write the features of the nearest targets of every sensor, their mask and numbers, and the sensor's neighbours.

    Threads divide the sensors, counted scene by scene.
    """
    state = KernelState(*rows)
    own = scales_of(scales)
    n, k, most = shown.pairs.shape[1], shown.pairs.shape[2], shown.neighbours.shape[2]
    things = max(n, state.target.shape[0]) + 1
    buffers = Buffers(
        np.empty(things), np.empty(things, np.int32), np.empty(BINS, np.int32), np.empty(max(k, most), np.int32),
        np.empty((state.sensor.shape[1], k)), np.empty((11, k)), np.empty(k, np.int64),
    )  # fmt: skip
    for low, high in blocks(shown.pairs.shape[0] * n, share):
        _observe_sensors(state, own, (codes, of_sensor), index, shown, buffers, low, high)
