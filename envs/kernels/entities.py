"""Entities that the sensors or the targets of a duel observe. Compiled by numba.

Every function fills zeros with the features of :func:`hitmac.envs.entities.kinds_of`, in their order. An observer at
(x, y) has a frame (c, s): the direction of a sensor, and +x for a target.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.duel import slide
from hitmac.envs.kernels.knowledge import place_of, row_of
from hitmac.envs.kernels.sight import disc_blocks
from hitmac.envs.kernels.state import X, Y
from hitmac.envs.kernels.threads import blocks, compiled, inlined, kernel

_ANGLES = np.radians(np.arange(0.0, 360.0, 22.5))
MOVES = np.vstack([np.zeros((1, 2)), np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], -1)])
"""Candidate moves of a target, (17, 2): stay, then 16 directions counter-clockwise from +x."""

HORIZONS = (1.0, 3.0, 10.0)
"""Numbers of steps in the same direction after which a candidate move is looked at."""


class EntityScales(NamedTuple):
    """Constants of a scenario for the features."""

    half_width: float
    half_height: float
    per_length: float  # 1 / the larger of both
    per_margin: float  # 1 / the longest way in 10 steps
    per_speed: float
    per_time: float  # 1 / length of an episode
    time_step: float


class Entities(NamedTuple):
    """Features (B, A, count, d) and masks (B, A, count) of what the A sensors or targets of a team observe."""

    own: np.ndarray
    sensors: np.ndarray
    targets: np.ndarray
    discs: np.ndarray
    warehouses: np.ndarray
    moves: np.ndarray
    own_mask: np.ndarray
    sensors_mask: np.ndarray
    targets_mask: np.ndarray
    discs_mask: np.ndarray
    warehouses_mask: np.ndarray
    moves_mask: np.ndarray


@inlined
def _clip(value, most):
    return min(max(value, -most), most)


@inlined
def _turn(row, k, x, y, c, s, scale):
    """Write a vector in the frame (c, s)."""
    row[k], row[k + 1] = (c * x + s * y) * scale, (c * y - s * x) * scale


@inlined
def _sector_of(sensor, i, b):
    """Return direction, cosine and sine of half the view, and range of sensor i."""
    cosine = sensor[i, at.COS_HALF_VIEW, b]
    sine, reach = math.sqrt(max(1.0 - cosine * cosine, 0.0)), math.sqrt(sensor[i, at.RANGE_SQUARED, b])
    return sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b], cosine, sine, reach


@inlined
def _margin(dx, dy, sector):
    """Return the signed distance from the offset (dx, dy) of a sensor to its sector; it is negative inside."""
    east, north, cosine, sine, reach = sector
    along, across, distance = east * dx + north * dy, abs(east * dy - north * dx), math.sqrt(dx * dx + dy * dy)
    edge = across * cosine - along * sine
    edge = edge if along * cosine + across * sine >= 0.0 else math.copysign(distance, edge)
    return max(edge, distance - reach)


@inlined
def _to_warehouse(game, w, x, y):
    """Return the offset from a point to the nearest point of warehouse w."""
    dx, dy = game.warehouse[w, X] - x, game.warehouse[w, Y] - y
    return dx - _clip(dx, game.size), dy - _clip(dy, game.size)


@compiled
def _aim_of(state, cargo, game, shown, b, j):
    """Return the goal of target j; without one, the nearest warehouse not known to be empty; -1: none."""
    aim, nearest = cargo.goal[j, b], np.inf
    for w in range(0 if aim >= 0 else game.warehouse.shape[0]):
        dx, dy = _to_warehouse(game, w, state.target[j, X, b], state.target[j, Y, b])
        if dx * dx + dy * dy < nearest and shown.warehouses[b, j, w, 3] == 0.0:
            aim, nearest = w, dx * dx + dy * dy
    return aim


@compiled
def _show_sensor(row, state, scales, i, b, x, y, c, s):
    """Write place, heading, view and range of sensor i."""
    _turn(row, 0, state.sensor[i, X, b] - x, state.sensor[i, Y, b] - y, c, s, scales.per_length)
    _turn(row, 2, state.sensor[i, at.DIRECTION_X, b], state.sensor[i, at.DIRECTION_Y, b], c, s, 1.0)
    row[4] = state.sensor[i, at.FIELD_OF_VIEW, b] / 180.0
    row[5] = math.sqrt(state.sensor[i, at.RANGE_SQUARED, b]) * scales.per_length


@compiled
def _show_places(state, game, scales, shown, b, a, x, y, c, s):
    """Write the discs of the mask and the warehouses."""
    for k in range(state.disc.shape[0]):
        if shown.discs_mask[b, a, k]:
            row = shown.discs[b, a, k]
            _turn(row, 0, state.disc[k, X, b] - x, state.disc[k, Y, b] - y, c, s, scales.per_length)
            row[2] = state.disc[k, at.RADIUS, b] * scales.per_length
    for w in range(game.warehouse.shape[0]):
        row = shown.warehouses[b, a, w]
        _turn(row, 0, game.warehouse[w, X] - x, game.warehouse[w, Y] - y, c, s, scales.per_length)
        shown.warehouses_mask[b, a, w] = 1


@compiled
def _share(state, cargo, game, shown, b):
    """Write the sensors and discs that any target sees, and the warehouses that any target found empty."""
    m = state.target.shape[0]
    for a in range(m):
        for j in range(m):
            for i in range(state.sensor.shape[0]):
                shown.sensors_mask[b, a, i] |= cargo.sees_sensor[j, i, b]
            for k in range(state.disc.shape[0]):
                shown.discs_mask[b, a, k] |= cargo.sees_disc[j, k, b] and state.disc[k, at.RADIUS, b] > 0.0
            for w in range(game.warehouse.shape[0]):
                shown.warehouses[b, a, w, 3] = max(shown.warehouses[b, a, w, 3], cargo.empty[j, w, b])


@compiled
def _end_of_step(state, game, scales, b, x, y, dx, dy):
    """Return where a step from (x, y) ends, after its contacts with sensors, discs and the border."""
    reach = math.sqrt(dx * dx + dy * dy)
    for i in range(state.sensor.shape[0]):
        to_x, to_y = state.sensor[i, X, b], state.sensor[i, Y, b]
        if (to_x - x) ** 2 + (to_y - y) ** 2 < (reach + game.sensor_radius) ** 2:
            dx, dy = slide(x, y, dx, dy, to_x, to_y, game.sensor_radius)
    for k in range(state.disc.shape[0]):
        to_x, to_y, radius = state.disc[k, X, b], state.disc[k, Y, b], state.disc[k, at.RADIUS, b]
        if (to_x - x) ** 2 + (to_y - y) ** 2 < (reach + radius) ** 2:
            dx, dy = slide(x, y, dx, dy, to_x, to_y, radius)
    return _clip(x + dx, scales.half_width), _clip(y + dy, scales.half_height)


@compiled
def _find_seen(state, scales, known, step, i, b, x, y, moves, inside):
    """Add sensor i to ``seen_1``, ... and ``margin`` of the moves from (x, y), with `inside` (3, 17) as scratch."""
    own_x, own_y, sector = state.sensor[i, X, b], state.sensor[i, Y, b], _sector_of(state.sensor, i, b)
    east, north, cosine, sine, reach = sector
    if _margin(x - own_x, y - own_y, sector) * scales.per_margin > 1.1:  # too far for the longest step
        return
    for h in range(inside.shape[0]):
        for k in range(inside.shape[1]):
            dx = _clip(x + HORIZONS[h] * step * MOVES[k, X], scales.half_width) - own_x
            dy = _clip(y + HORIZONS[h] * step * MOVES[k, Y], scales.half_height) - own_y
            along, across = east * dx + north * dy, abs(east * dy - north * dx)
            inside[h, k] = (dx * dx + dy * dy <= reach * reach) & (across * cosine <= along * sine)
            if h == 0:
                moves[k, 8] = min(moves[k, 8], max(_margin(dx, dy, sector) * scales.per_margin, -1.0))
    far = HORIZONS[-1] * step
    for d in range(known.shape[0]):
        to_x, to_y, radius = state.disc[d, X, b], state.disc[d, Y, b], state.disc[d, at.RADIUS, b]
        if known[d] and disc_blocks(own_x, own_y, x - own_x, y - own_y, to_x, to_y, radius + far):
            for h in range(inside.shape[0]):
                for k in range(inside.shape[1]):
                    if inside[h, k]:
                        dx = _clip(x + HORIZONS[h] * step * MOVES[k, X], scales.half_width) - own_x
                        dy = _clip(y + HORIZONS[h] * step * MOVES[k, Y], scales.half_height) - own_y
                        inside[h, k] = not disc_blocks(own_x, own_y, dx, dy, to_x, to_y, radius)
    for h in range(inside.shape[0]):
        for k in range(inside.shape[1]):
            moves[k, 5 + h] = min(moves[k, 5 + h] + 0.5 * inside[h, k], 1.0)


@compiled
def _show_moves(state, game, scales, shown, aim, b, j, inside):
    """Write the candidate moves of target j."""
    x, y, moves = state.target[j, X, b], state.target[j, Y, b], shown.moves[b, j]
    step = state.target[j, at.SPEED, b] * scales.time_step
    dx, dy = _to_warehouse(game, aim, x, y) if aim >= 0 else (0.0, 0.0)
    distance = math.sqrt(dx * dx + dy * dy)
    for k in range(MOVES.shape[0]):
        row, east, north = moves[k], MOVES[k, X], MOVES[k, Y]
        end_x, end_y = _end_of_step(state, game, scales, b, x, y, step * east, step * north)
        row[0], row[1], row[8] = east, north, 1.0
        if distance > 0.0:
            left_x, left_y = _to_warehouse(game, aim, end_x, end_y)
            row[2] = (east * dx + north * dy) / distance
            row[3] = (distance - math.sqrt(left_x * left_x + left_y * left_y)) / step
        row[4] = math.sqrt((end_x - x) ** 2 + (end_y - y) ** 2) / step
        shown.moves_mask[b, j, k] = 1
    for i in range(state.sensor.shape[0]):
        if shown.sensors_mask[b, j, i]:
            _find_seen(state, scales, shown.discs_mask[b, j, : state.disc.shape[0]], step, i, b, x, y, moves, inside)


@compiled
def _show_to_target(state, cargo, game, scales, shown, b, j, inside):
    """Write the observation of target j."""
    x, y, own, seen = state.target[j, X, b], state.target[j, Y, b], shown.own[b, j, 0], 0
    for i in range(state.sensor.shape[0]):
        if shown.sensors_mask[b, j, i]:
            row, dx, dy = shown.sensors[b, j, i], x - state.sensor[i, X, b], y - state.sensor[i, Y, b]
            _show_sensor(row, state, scales, i, b, x, y, 1.0, 0.0)
            row[6] = state.visible[i, j, b]
            row[7] = _clip(_margin(dx, dy, _sector_of(state.sensor, i, b)) * scales.per_margin, 1.0)
            seen += state.visible[i, j, b]
    aim = _aim_of(state, cargo, game, shown, b, j)
    _turn(own, 0, x, y, 1.0, 0.0, scales.per_length)
    if aim >= 0:
        _turn(own, 2, game.warehouse[aim, X] - x, game.warehouse[aim, Y] - y, 1.0, 0.0, scales.per_length)
    if cargo.goal[j, b] >= 0:
        own[4], own[5] = 1.0, 0.5 * cargo.weight[j, b]
        own[7] = cargo.bounty[j, b] / (game.worth * cargo.weight[j, b])
        shown.warehouses[b, j, aim, 2] = 1.0
    own[6], own[8], own[9] = 0.5 * cargo.capacity[j, b], 0.5 * min(seen, 2), state.scene[at.TIME, b] * scales.per_time
    shown.own_mask[b, j, 0] = 1
    for other in range(state.target.shape[0]):
        if other != j:
            row = shown.targets[b, j, other]
            _turn(row, 0, state.target[other, X, b] - x, state.target[other, Y, b] - y, 1.0, 0.0, scales.per_length)
            speed_x, speed_y = state.target[other, at.VELOCITY_X, b], state.target[other, at.VELOCITY_Y, b]
            _turn(row, 2, speed_x, speed_y, 1.0, 0.0, scales.per_speed)
            row[4] = cargo.goal[other, b] >= 0
            shown.targets_mask[b, j, other] = 1
    _show_places(state, game, scales, shown, b, j, x, y, 1.0, 0.0)
    _show_moves(state, game, scales, shown, aim, b, j, inside)


@kernel
def show_to_targets(state, cargo, game, scales, shown, share):
    """Write the observations of all targets into zeros."""
    inside = np.empty((len(HORIZONS), MOVES.shape[0]), np.bool_)
    for low, high in blocks(shown.own.shape[0], share):
        for b in range(low, high):
            _share(state, cargo, game, shown, b)
            for j in range(state.target.shape[0]):
                _show_to_target(state, cargo, game, scales, shown, b, j, inside)


@compiled
def _show_to_sensor(state, knowledge, cargo, game, scales, shown, b, i):
    """Write the observation of sensor i."""
    sensor, target, own = state.sensor, state.target, shown.own[b, i, 0]
    x, y, c, s = sensor[i, X, b], sensor[i, Y, b], sensor[i, at.DIRECTION_X, b], sensor[i, at.DIRECTION_Y, b]
    for j in range(target.shape[0]):
        known, to_x, to_y = place_of(state, knowledge, i, j, b)
        if known:
            row = shown.targets[b, i, j]
            speed_x, speed_y, age = target[j, at.VELOCITY_X, b], target[j, at.VELOCITY_Y, b], 0.0
            if knowledge is not None:
                memory = knowledge.known[row_of(knowledge.known, i), j]
                speed_x, speed_y = memory[at.KNOWN_VELOCITY_X, b], memory[at.KNOWN_VELOCITY_Y, b]
                age = memory[at.AGE, b]
            _turn(row, 0, to_x - x, to_y - y, c, s, scales.per_length)
            _turn(row, 2, speed_x, speed_y, c, s, scales.per_speed)
            row[4] = state.covered[j, b] and cargo.goal[j, b] >= 0
            row[5], row[7] = state.visible[i, j, b], 0.01 * min(age, 100.0)
            row[6] = _clip(_margin(to_x - x, to_y - y, _sector_of(sensor, i, b)) * scales.per_margin, 1.0)
            for other in range(sensor.shape[0]):
                row[8] = min(row[8] + 0.5 * (other != i and state.visible[other, j, b]), 1.0)
            shown.targets_mask[b, i, j] = 1
    _show_sensor(own, state, scales, i, b, 0.0, 0.0, 1.0, 0.0)
    own[6] = state.scene[at.TIME, b] * scales.per_time
    shown.own_mask[b, i, 0] = 1
    for other in range(sensor.shape[0]):
        if other != i:
            _show_sensor(shown.sensors[b, i, other], state, scales, other, b, x, y, c, s)
            shown.sensors_mask[b, i, other] = 1
    for k in range(state.disc.shape[0]):
        shown.discs_mask[b, i, k] = state.disc[k, at.RADIUS, b] > 0.0
    _show_places(state, game, scales, shown, b, i, x, y, c, s)


@kernel
def show_to_sensors(state, cargo, game, scales, shown, share):
    """Write the observations of all sensors into zeros."""
    for low, high in blocks(shown.own.shape[0], share):
        for b in range(low, high):
            for i in range(state.sensor.shape[0]):
                _show_to_sensor(state, state.knowledge, cargo, game, scales, shown, b, i)
