"""Features of the nearest targets of every sensor, and its neighbours. Compiled by numba.

The loops over the scenes of a batch, which write the features of one pair each, here run over the slots of a row.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels.cells import sort_into_cells
from hitmac.envs.kernels.compiled import compiled, inlined, kernel
from hitmac.envs.kernels.feature_table import Pair, Scales
from hitmac.envs.kernels.features import write_feature
from hitmac.envs.kernels.grid import Cells
from hitmac.envs.kernels.knowledge import place_of, row_of
from hitmac.envs.kernels.nearest import BINS, choose_nearest, collect_near, write_sorted
from hitmac.envs.kernels.noise import noise_key, pair_number, position_error, seen_and_noticed, velocity_error
from hitmac.envs.kernels.state import (
    AGE,
    KNOWN_VELOCITY_X,
    KNOWN_VELOCITY_Y,
    RANGE_SQUARED,
    TIME_BEFORE,
    VELOCITY_X,
    VELOCITY_Y,
    X,
    Y,
)  # fmt: skip
from hitmac.envs.kernels.threads import blocks

(
    _DX, _DY, _DISTANCE, _EAST, _NORTH, _VELOCITY_X, _VELOCITY_Y, _NOTICED, _SEEING, _AGE,
) = range(10)  # fmt: skip


class Index(NamedTuple):
    """Targets and sensors by place, for one observation; see :class:`hitmac.envs.kernels.grid.Grid`."""

    cells: Cells
    start: np.ndarray  # (B, C + 2) int32
    target: np.ndarray  # (B, m) int32
    target_x: np.ndarray  # (B, m)
    target_y: np.ndarray  # (B, m)
    seeing: np.ndarray  # (B, m) int32: sensors that notice the target; or (B, 0)
    seen: np.ndarray  # (B, n, S) int32: targets that each sensor sees; or (B, n, 0)
    num_seen: np.ndarray  # (B, n) int32: their number; over S: they are not listed
    sensor_start: np.ndarray  # (B, C + 2) int32
    sensor: np.ndarray  # (B, n) int32: the working sensors; or (B, 0)
    sensor_x: np.ndarray  # (B, n)
    sensor_y: np.ndarray  # (B, n)
    reach: np.ndarray  # (B, n) their ranges
    longest: np.ndarray  # (B,) longest range


class Buffers(NamedTuple):
    """Arrays of one thread for a row of k slots, overwritten for every sensor."""

    distance: np.ndarray  # squared distances and numbers of candidates
    candidate: np.ndarray  # int32
    bins: np.ndarray  # (BINS,) int32
    chosen: np.ndarray  # int32: the nearest candidates
    sensor: np.ndarray  # (17, k) rows of the sensor
    row: np.ndarray  # (10, k) what it observes
    number: np.ndarray  # (k,) int64: targets


class Shown(NamedTuple):
    """Observation of the nearest targets."""

    pairs: np.ndarray  # (B, n, k, d) float32
    mask: np.ndarray  # (B, n, k) int8
    targets: np.ndarray  # (B, n, k) int32
    neighbours: np.ndarray  # (B, n, l) int32


@compiled
def _count_noticing(state, index, missed_detections, b):
    """Write the number of sensors that see each target of scene b and do not miss it."""
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


@compiled
def _sort_sensors(state, index, b):
    """Sort the working sensors of scene b into cells."""
    sort_into_cells(
        index.cells, state.sensor, state.working, b, index.sensor_start[b], index.sensor[b], index.sensor_x[b],
        index.sensor_y[b],
    )  # fmt: skip
    index.longest[b] = 0.0
    for s in range(index.sensor_start[b, index.sensor_start.shape[1] - 1]):
        index.reach[b, s] = math.sqrt(state.sensor[index.sensor[b, s], RANGE_SQUARED, b])
        index.longest[b] = max(index.longest[b], index.reach[b, s])


@kernel
def index_scenes(state, missed_detections, index, share):
    """Sort targets and sensors by place, and count the sensors that see each target.

    Args:
        state: the state; with partial knowledge the targets are left out, which each sensor then looks up itself.
        missed_detections: probability that a sensor misses a target.
        index: the results.
        share: part of this thread.
    """
    for low, high in blocks(index.start.shape[0], share):
        for b in range(low, high):
            if index.target.shape[1] > 0:
                sort_into_cells(
                    index.cells, state.target, state.present, b, index.start[b], index.target[b], index.target_x[b],
                    index.target_y[b],
                )  # fmt: skip
            if index.seeing.shape[1] > 0:
                _count_noticing(state, index, missed_detections, b)
            if index.sensor.shape[1] > 0:
                _sort_sensors(state, index, b)


@compiled
def _is_shown(state, knowledge, b, i, j, limit):
    """Return whether sensor i of scene b is shown target j, and the squared distance of where it is known to be."""
    known, x, y = place_of(state, knowledge, i, j, b)
    dx, dy = x - state.sensor[i, X, b], y - state.sensor[i, Y, b]
    squared = dx * dx + dy * dy
    return state.working[i, b] and known and squared <= limit, squared


@compiled
def _choose(state, knowledge, index, b, i, limit, buffers, targets):
    """Write the targets of the slots (k,) of sensor i, -1 for an empty one."""
    k, m = targets.shape[0], state.target.shape[0]
    if k == m:
        for j in range(k):
            targets[j] = j if _is_shown(state, knowledge, b, i, j, limit)[0] else -1
        return
    distance, candidate, count = buffers.distance, buffers.candidate, 0
    if state.working[i, b]:
        if knowledge is None:
            count = collect_near(
                index.cells, index.start[b], index.target[b], index.target_x[b], index.target_y[b], None, 0.0,
                state.sensor[i, X, b], state.sensor[i, Y, b], limit, -1, k, distance, candidate, 0,
            )  # fmt: skip
        else:
            for j in range(m):
                shown, distance[count] = _is_shown(state, knowledge, b, i, j, limit)
                candidate[count] = j
                count += shown
    count = choose_nearest(k, distance, candidate, count, buffers.bins, buffers.chosen)
    write_sorted(buffers.chosen, count, targets)


@compiled
def _find_neighbours(state, index, b, i, buffers, neighbours):
    """Write the neighbours of sensor i, ascending, -1 for none."""
    own = math.sqrt(state.sensor[i, RANGE_SQUARED, b])
    most, limit = neighbours.shape[0], (own + index.longest[b]) * (own + index.longest[b])
    buffers.distance[0], buffers.candidate[0] = -1.0, i  # itself before all others
    count = collect_near(
        index.cells, index.sensor_start[b], index.sensor[b], index.sensor_x[b], index.sensor_y[b], index.reach[b], own,
        state.sensor[i, X, b], state.sensor[i, Y, b], limit, i, most, buffers.distance, buffers.candidate, 1,
    )  # fmt: skip
    count = choose_nearest(most, buffers.distance, buffers.candidate, count, buffers.bins, buffers.chosen)
    write_sorted(buffers.chosen, count, neighbours)


@inlined
def _notices(state, scales, index, b, i, targets, noticed):
    """Write whether sensor i notices the target of every slot; only the few that it sees are looked up if listed."""
    listed = index.num_seen[b, i] <= index.seen.shape[2]
    for s in range(targets.shape[0]):
        j = max(np.int64(targets[s]), 0)
        noticed[s] = 0.0 if listed else seen_and_noticed(state, scales.missed_detections, i, j, b)
    if listed:
        for one in range(index.num_seen[b, i]):
            j = index.seen[b, i, one]
            for s in range(targets.shape[0]):
                if targets[s] == j:
                    noticed[s] = seen_and_noticed(state, scales.missed_detections, i, j, b)


@compiled
def _measure(state, knowledge, scales, index, b, i, targets, row, number):
    """Write what sensor i observes of the target of every slot into `row` (10, k), and its number into `number`."""
    if knowledge is None:
        _notices(state, scales, index, b, i, targets, row[_NOTICED])
    for s in range(targets.shape[0]):
        j = max(np.int64(targets[s]), 0)
        number[s] = j
        if knowledge is None:
            row[_DX, s] = state.target[j, X, b] - state.sensor[i, X, b]
            row[_DY, s] = state.target[j, Y, b] - state.sensor[i, Y, b]
            row[_VELOCITY_X, s], row[_VELOCITY_Y, s] = state.target[j, VELOCITY_X, b], state.target[j, VELOCITY_Y, b]
            row[_SEEING, s] = index.seeing[b, j] if index.seeing.shape[1] > 0 else 0
            row[_AGE, s] = 0.0
            if scales.position_noise > 0.0:
                pair = pair_number(state, i, j)
                error_x, error_y = position_error(scales.position_noise, noise_key(state, b), pair)
                row[_DX, s] += error_x
                row[_DY, s] += error_y
                if scales.noisy_velocity and state.scene[TIME_BEFORE, b] >= 0:
                    error_x, error_y = velocity_error(state, b, scales.position_noise, scales.per_time, pair)
                    row[_VELOCITY_X, s] += error_x
                    row[_VELOCITY_Y, s] += error_y
        else:
            r = row_of(knowledge.known, i)
            known = knowledge.known[r, j]
            row[_DX, s], row[_DY, s] = known[X, b] - state.sensor[i, X, b], known[Y, b] - state.sensor[i, Y, b]
            row[_VELOCITY_X, s], row[_VELOCITY_Y, s] = known[KNOWN_VELOCITY_X, b], known[KNOWN_VELOCITY_Y, b]
            row[_NOTICED, s], row[_SEEING, s] = knowledge.noticed[i, j, b], knowledge.seeing[r, j, b]
            row[_AGE, s] = known[AGE, b]


@compiled
def _write_features(state, scales, codes, of_sensor, b, i, targets, buffers, pairs):
    """Write the features of every slot (k, d) of sensor i; those of an empty one are 0, save those of the sensor."""
    n, m, k, sensor, row = (
        state.sensor.shape[0], state.target.shape[0], targets.shape[0], buffers.sensor, buffers.row,
    )  # fmt: skip
    dx, dy, distance, east, north = row[_DX], row[_DY], row[_DISTANCE], row[_EAST], row[_NORTH]
    for part in range(sensor.shape[0]):
        for s in range(k):
            sensor[part, s] = state.sensor[i, part, b]
    for s in range(k):
        distance[s] = math.sqrt(dx[s] * dx[s] + dy[s] * dy[s])
    # A target at the position of the sensor counts as lying along +x, since atan2(0, 0) = 0.
    for s in range(k):
        east[s] = dx[s] / distance[s] if distance[s] > 0.0 else 1.0
    for s in range(k):
        north[s] = dy[s] / distance[s] if distance[s] > 0.0 else 0.0
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
def _observe_sensors(state, scales, codes, of_sensor, index, limit, shown, buffers, low, high):
    """Write the rows of the sensors `low` to `high` - 1, counted scene by scene."""
    n = shown.pairs.shape[1]
    for item in range(low, high):
        b, i = item // n, item % n
        targets = shown.targets[b, i]
        _choose(state, state.knowledge, index, b, i, limit, buffers, targets)
        for slot in range(targets.shape[0]):
            shown.mask[b, i, slot] = targets[slot] >= 0
        _measure(state, state.knowledge, scales, index, b, i, targets, buffers.row, buffers.number)
        _write_features(state, scales, codes, of_sensor, b, i, targets, buffers, shown.pairs[b, i])
        if shown.neighbours.shape[2] > 0:
            _find_neighbours(state, index, b, i, buffers, shown.neighbours[b, i])


@kernel
def observe_near(state, scales, codes, of_sensor, index, limit, shown, share):
    """Write the features of the nearest targets of every sensor, their mask and numbers, and the sensor's neighbours.

    The share of a thread are sensors, scene by scene.
    """
    s = scales[0]
    own = Scales(
        s.per_distance, s.per_speed, s.per_time, s.most_speed, s.position_noise, s.missed_detections, s.noisy_velocity,
        s.all_there, s.half_width, s.half_height, s.diagonal, s.pace, s.top_speed,
    )  # fmt: skip
    n, k, most = shown.pairs.shape[1], shown.pairs.shape[2], shown.neighbours.shape[2]
    things, slots = max(n, state.target.shape[0]) + 1, max(k, most)
    buffers = Buffers(
        np.empty(things), np.empty(things, np.int32), np.empty(BINS, np.int32), np.empty(slots, np.int32),
        np.empty((state.sensor.shape[1], k)), np.empty((10, k)), np.empty(k, np.int64),
    )  # fmt: skip
    for low, high in blocks(shown.pairs.shape[0] * n, share):
        _observe_sensors(state, own, codes, of_sensor, index, limit, shown, buffers, low, high)
