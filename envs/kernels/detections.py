"""Detections without names: lists of places, with misses, errors and false ones. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.formulas import disc_blocks, unit, wall_blocks
from hitmac.envs.kernels.sight import disc_at
from hitmac.envs.kernels.state import KernelState, X, Y
from hitmac.envs.kernels.streams import MOST_DRAWS, noise_key, pair_number, two_normals, uniform, word
from hitmac.envs.kernels.threads import blocks, compiled, inlined, kernel

_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


class DetectionModel(NamedTuple):
    """Errors of detections."""

    noise: np.ndarray  # (2,) standard deviation along and across the line of sight
    missed: np.ndarray  # (2,) probability of a miss at the sensor, and at its range or beyond
    false: np.ndarray  # (K,) probability of at most 0, 1, ... K - 1 false detections
    everywhere: bool  # targets are detected wherever they are
    half_width: float  # of the arena
    half_height: float


@inlined
def _direction(dx, dy):
    """Return the unit vector of an offset."""
    return unit(dx, dy, math.sqrt(dx * dx + dy * dy))


@compiled
def _is_detected(state, model, key, i, j, b):
    """Return True if the working sensor i of scene b detects target j."""
    if not (state.visible[i, j, b] or (model.everywhere and state.present[j, b])):
        return False
    dx, dy = state.target[j, X, b] - state.sensor[i, X, b], state.target[j, Y, b] - state.sensor[i, Y, b]
    share = min(math.sqrt((dx * dx + dy * dy) / state.sensor[i, at.RANGE_SQUARED, b]), 1.0)
    missed = model.missed[0] + share * (model.missed[1] - model.missed[0])
    return uniform(key, _FOUR * pair_number(state, i, j) + _TWO) >= missed


@compiled
def _measure(state, model, key, i, j, b):
    """Return the place of target j that sensor i measures."""
    x, y = state.target[j, X, b], state.target[j, Y, b]
    if model.noise[0] > 0.0 or model.noise[1] > 0.0:
        east, north = _direction(x - state.sensor[i, X, b], y - state.sensor[i, Y, b])
        along, across = two_normals(1.0, key, pair_number(state, i, j))
        along, across = along * model.noise[0], across * model.noise[1]
        x += along * east - across * north
        y += along * north + across * east
    return x, y


@compiled
def _draw_place(state, model, key, counter, i, b):
    """Draw a place, uniform in the view of sensor i inside the arena and in front of obstacles.

    Returns the counter after the draw, True if a place was found, and x and y.
    """
    sensor = state.sensor[i]
    x, y = sensor[X, b], sensor[Y, b]
    for _ in range(MOST_DRAWS):
        first, second = uniform(key, counter), uniform(key, counter + _ONE)
        counter += _TWO
        if model.everywhere:
            return counter, True, (2.0 * first - 1.0) * model.half_width, (2.0 * second - 1.0) * model.half_height
        angle = math.radians(sensor[at.FIELD_OF_VIEW, b] * (first - 0.5))
        distance = math.sqrt(sensor[at.RANGE_SQUARED, b] * second)
        ahead, aside = distance * math.cos(angle), distance * math.sin(angle)
        dx = ahead * sensor[at.DIRECTION_X, b] - aside * sensor[at.DIRECTION_Y, b]
        dy = ahead * sensor[at.DIRECTION_Y, b] + aside * sensor[at.DIRECTION_X, b]
        clear = abs(x + dx) <= model.half_width and abs(y + dy) <= model.half_height
        for k in range(state.disc.shape[0]):
            clear = clear and not disc_blocks(x, y, dx, dy, disc_at(state.disc, k, b))
        for k in range(state.walls.shape[0]):
            clear = clear and not wall_blocks(x, y, dx, dy, state.walls[k])
        if clear:
            return counter, True, x + dx, y + dy
    return counter, False, 0.0, 0.0


@compiled
def _insert(model, sensor, b, x, y, chance, count, places):
    """Insert a detection at (x, y) at a random place of the first `count` + 1, as in a shuffle by Fisher and Yates.

    `chance` is a number in [0, 1). The covariance is that of the error about the line of sight to the detection.
    """
    chosen = int(chance * (count + 1))
    for c in range(places.shape[1]):
        places[count, c] = places[chosen, c]
    east, north = _direction(x - sensor[X, b], y - sensor[Y, b])
    across = model.noise[1] * model.noise[1]
    longer = model.noise[0] * model.noise[0] - across
    places[chosen, 0], places[chosen, 1] = x, y
    places[chosen, 2] = across + longer * east * east
    places[chosen, 3] = longer * east * north
    places[chosen, 4] = across + longer * north * north


@compiled
def _list_detections(state, model, i, b, places):
    """Write the detections of the working sensor i into zeros (d, 5); return their number."""
    n, m = state.sensor.shape[0], state.target.shape[0]
    key, count = noise_key(state, b), 0
    for j in range(m):
        if _is_detected(state, model, key, i, j, b):
            x, y = _measure(state, model, key, i, j, b)
            chance = uniform(key, _FOUR * pair_number(state, i, j) + _THREE)
            _insert(model, state.sensor[i], b, x, y, chance, count, places)
            count += 1
    if model.false.shape[0] > 0:
        # A stream of its own, since the number of its draws varies.
        key, counter = word(key, _FOUR * np.uint64(n * m) + np.uint64(i)), _ONE
        number, chance = 0, uniform(key, np.uint64(0))
        while number < model.false.shape[0] and model.false[number] <= chance:
            number += 1
        for _ in range(number):
            counter, found, x, y = _draw_place(state, model, key, counter, i, b)
            if not found:  # the view is empty
                break
            _insert(model, state.sensor[i], b, x, y, uniform(key, counter), count, places)
            counter += _ONE
            count += 1
    return count


@inlined
def _detect_scenes(state, model, detections, mask, sensors, first, last):
    """Write the observation of the scenes `first` to `last` - 1."""
    for b in range(first, last):
        for i in range(sensors.shape[1]):
            if state.working[i, b]:
                own, sensor = sensors[b, i], state.sensor[i]
                own[0], own[1] = sensor[X, b], sensor[Y, b]
                own[2], own[3] = sensor[at.DIRECTION_Y, b], sensor[at.DIRECTION_X, b]
                own[4], own[5] = 0.5 * sensor[at.FIELD_OF_VIEW, b], math.sqrt(sensor[at.RANGE_SQUARED, b])
                if sensor[at.RAIL_LENGTH, b] > 0.0:
                    own[6] = sensor[at.ALONG, b] / sensor[at.RAIL_LENGTH, b]
                if own.shape[0] > 7:
                    own[7], own[8] = sensor[at.RATE, b], sensor[at.PENDING, b]
                count = _list_detections(state, model, i, b, detections[b, i])
                for k in range(count):
                    mask[b, i, k] = 1


@kernel
def detect(rows, model, detections, mask, sensors, share):
    """Write lists of detections (B, n, d, 5), their mask (B, n, d) and the sensors (B, n, 7 or 9) into zeros.

    See :class:`hitmac.envs.observation.DetectionObserver`. The same state gives the same detections.
    """
    state = KernelState(*rows)
    for low, high in blocks(detections.shape[0], share):
        _detect_scenes(state, model, detections, mask, sensors, np.uint64(low), np.uint64(high))
