"""Entities that the sensors or the targets of a duel observe. Compiled by numba.

The features are those of :data:`hitmac.envs.entities.FEATURES`, in their order; all others are left unchanged. An
observer at (x, y) has a frame (c, s): the direction of a sensor, and +x for a target. Lengths are divided by half the
larger side of the arena, margins by the longest way in 10 steps.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import compiled, inlined, kernel
from hitmac.envs.base.formulas import disc_blocks
from hitmac.envs.base.state import KernelState, X, Y
from hitmac.envs.base.threads import blocks
from hitmac.envs.parts.cargo import end_of_step, sector_of
from hitmac.envs.parts.knowledge import place_of, row_of
from hitmac.envs.parts.obstacles import disc_at

_ANGLES = np.radians(np.arange(0.0, 360.0, 22.5))
MOVES = np.vstack([np.zeros((1, 2)), np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], -1)])
"""Candidate moves of a target, (17, 2): stay, then 16 directions counter-clockwise from +x."""

HORIZONS = (1.0, 3.0, 10.0)
"""Numbers of steps in the same direction after which a candidate move is looked at."""


class Entities(NamedTuple):
    """Features (B, A, count, d) and masks (B, A, count) of what the A sensors or targets of a team observe."""

    own: np.ndarray
    sensors: np.ndarray
    targets: np.ndarray
    discs: np.ndarray
    warehouses: np.ndarray
    moves: np.ndarray
    sensors_mask: np.ndarray
    targets_mask: np.ndarray
    discs_mask: np.ndarray


@inlined
def _clip(value, most):
    return min(max(value, -most), most)


@inlined
def _turn(row, k, frame, x, y, scale):
    """Write a vector in a frame."""
    _, _, c, s = frame
    row[k], row[k + 1] = (c * x + s * y) * scale, (c * y - s * x) * scale


@inlined
def _place(row, k, frame, x, y, p):
    """Write a place in a frame."""
    _turn(row, k, frame, x - frame[0], y - frame[1], 1.0 / max(p.half_width, p.half_height))


@inlined
def _margin(sector, x, y):
    """Return the signed distance from a point to a sector; it is negative inside."""
    own_x, own_y, east, north, cosine, sine, reach = sector
    dx, dy = x - own_x, y - own_y
    along, across, distance = east * dx + north * dy, abs(east * dy - north * dx), math.sqrt(dx * dx + dy * dy)
    edge = across * cosine - along * sine
    edge = edge if along * cosine + across * sine >= 0.0 else math.copysign(distance, edge)
    return max(edge, distance - reach)


@inlined
def _share(margin, p):
    """Return a margin as a feature."""
    return _clip(margin * (1.0 / (10.0 * (p.max_speed * p.time_step))), 1.0)


@inlined
def _to_warehouse(game, w, x, y):
    """Return the offset from a point to the nearest point of warehouse w."""
    dx, dy = game.warehouse[w, X] - x, game.warehouse[w, Y] - y
    return dx - _clip(dx, game.size), dy - _clip(dy, game.size)


@compiled
def _show_sensor(row, state, p, i, b, frame):
    """Write place, heading, view and range of sensor i."""
    _place(row, 0, frame, state.sensor[i, X, b], state.sensor[i, Y, b], p)
    _turn(row, 2, frame, state.sensor[i, at.DIRECTION_X, b], state.sensor[i, at.DIRECTION_Y, b], 1.0)
    row[4] = state.sensor[i, at.FIELD_OF_VIEW, b] / 180.0
    row[5] = min(math.sqrt(state.sensor[i, at.RANGE_SQUARED, b]) * (1.0 / max(p.half_width, p.half_height)), 3.0)


@compiled
def _show_movers(state, p, knowledge, cargo, shown, b, a, frame):
    """Write the sensors and targets of the masks that member a of a team observes."""
    for i in range(state.sensor.shape[0]):
        if shown.sensors_mask[b, a, i]:
            _show_sensor(shown.sensors[b, a, i], state, p, i, b, frame)
    for j in range(state.target.shape[0]):
        if shown.targets_mask[b, a, j]:
            row, (_, x, y) = shown.targets[b, a, j], place_of(state, knowledge, a, j, b)
            speed_x, speed_y = state.target[j, at.VELOCITY_X, b], state.target[j, at.VELOCITY_Y, b]
            if knowledge is not None:
                known = knowledge.known[row_of(knowledge.known, a), j]
                speed_x, speed_y = known[at.VELOCITY_X, b], known[at.VELOCITY_Y, b]
            _place(row, 0, frame, x, y, p)
            _turn(row, 2, frame, speed_x, speed_y, 1.0 / p.max_speed)
            row[4] = cargo.goal[j, b] >= 0


@compiled
def _show_places(state, p, game, shown, b, a, frame):
    """Write the discs of the mask, and the warehouses, that member a of a team observes."""
    for k in range(state.disc.shape[0]):
        if shown.discs_mask[b, a, k]:
            _place(shown.discs[b, a, k], 0, frame, state.disc[k, X, b], state.disc[k, Y, b], p)
            shown.discs[b, a, k, 2] = state.disc[k, at.RADIUS, b] * (1.0 / max(p.half_width, p.half_height))
    for w in range(game.warehouse.shape[0]):
        _place(shown.warehouses[b, a, w], 0, frame, game.warehouse[w, X], game.warehouse[w, Y], p)


@compiled
def _is_clear(disc, known, b, sector, x, y):
    """Return True if no known disc hides a point from the sensor of a sector."""
    own_x, own_y, dx, dy = sector[0], sector[1], x - sector[0], y - sector[1]
    clear = True
    for k in range(disc.shape[0]):
        clear = clear and not (known[k] and disc_blocks(own_x, own_y, dx, dy, disc_at(disc, k, b)))
    return clear


@compiled
def _show_moves(state, p, game, shown, aim, b, j):
    """Write the candidate moves of target j."""
    x, y, moves = state.target[j, X, b], state.target[j, Y, b], shown.moves[b, j]
    step = state.target[j, at.SPEED, b] * p.time_step
    dx, dy = _to_warehouse(game, aim, x, y) if aim >= 0 else (0.0, 0.0)
    distance = math.sqrt(dx * dx + dy * dy)
    for k in range(MOVES.shape[0]):
        row, east, north = moves[k], MOVES[k, X], MOVES[k, Y]
        end_x, end_y = end_of_step(state, game, p, b, x, y, step * east, step * north)
        row[0], row[1], row[8] = east, north, 1.0
        if distance > 0.0:
            left_x, left_y = _to_warehouse(game, aim, end_x, end_y)
            row[2] = (east * dx + north * dy) / distance
            row[3] = (distance - math.sqrt(left_x * left_x + left_y * left_y)) / step
        row[4] = math.sqrt((end_x - x) ** 2 + (end_y - y) ** 2) / step
    for i in range(state.sensor.shape[0]):
        sector = sector_of(state.sensor, i, b)
        near = shown.sensors_mask[b, j, i] and _margin(sector, x, y) < 11.0 * p.max_speed * p.time_step
        for k in range(MOVES.shape[0] if near else 0):
            for h in range(len(HORIZONS)):
                end_x = _clip(x + HORIZONS[h] * step * MOVES[k, X], p.half_width)
                end_y = _clip(y + HORIZONS[h] * step * MOVES[k, Y], p.half_height)
                margin = _margin(sector, end_x, end_y)
                if h == 0:
                    moves[k, 8] = min(moves[k, 8], _share(margin, p))
                if margin <= 0.0 and moves[k, 5 + h] < 1.0:
                    moves[k, 5 + h] += 0.5 * _is_clear(state.disc, shown.discs_mask[b, j], b, sector, end_x, end_y)


@compiled
def _show_to_target(state, p, cargo, game, shown, b, j):
    """Write the observation of target j; features that do not depend on places are given."""
    x, y, own = state.target[j, X, b], state.target[j, Y, b], shown.own[b, j, 0]
    frame, aim, nearest = (x, y, 1.0, 0.0), cargo.goal[j, b], np.inf
    _show_movers(state, p, None, cargo, shown, b, j, frame)
    _show_places(state, p, game, shown, b, j, frame)
    for i in range(state.sensor.shape[0]):
        if shown.sensors_mask[b, j, i]:
            row = shown.sensors[b, j, i]
            row[6], row[7] = state.visible[i, j, b], _share(_margin(sector_of(state.sensor, i, b), x, y), p)
            own[8] = min(own[8] + 0.5 * state.visible[i, j, b], 1.0)
    if aim < 0:
        for w in range(game.warehouse.shape[0]):
            dx, dy = _to_warehouse(game, w, x, y)
            if dx * dx + dy * dy < nearest and shown.warehouses[b, j, w, 3] == 0.0:
                aim, nearest = w, dx * dx + dy * dy
    _place(own, 0, (0.0, 0.0, 1.0, 0.0), x, y, p)
    if aim >= 0:
        _place(own, 2, frame, game.warehouse[aim, X], game.warehouse[aim, Y], p)
    _show_moves(state, p, game, shown, aim, b, j)


@compiled
def _show_to_sensor(state, p, knowledge, cargo, game, shown, b, i):
    """Write the observation of sensor i."""
    x, y, own = state.sensor[i, X, b], state.sensor[i, Y, b], shown.own[b, i, 0]
    frame = x, y, state.sensor[i, at.DIRECTION_X, b], state.sensor[i, at.DIRECTION_Y, b]
    _show_movers(state, p, knowledge, cargo, shown, b, i, frame)
    _show_places(state, p, game, shown, b, i, frame)
    for j in range(state.target.shape[0]):
        if shown.targets_mask[b, i, j]:
            row, (_, to_x, to_y) = shown.targets[b, i, j], place_of(state, knowledge, i, j, b)
            row[4] *= state.covered[j, b]
            row[5] = state.visible[i, j, b]
            row[6] = _share(_margin(sector_of(state.sensor, i, b), to_x, to_y), p)
            if knowledge is not None:
                row[7] = 0.01 * min(knowledge.known[row_of(knowledge.known, i), j, at.AGE, b], 100.0)
            for other in range(state.sensor.shape[0]):
                row[8] = min(row[8] + 0.5 * (other != i and state.visible[other, j, b]), 1.0)
    _show_sensor(own, state, p, i, b, (0.0, 0.0, 1.0, 0.0))


@kernel
def show(rows, cargo, game, shown, share):
    """Write the features that all targets, or without moves all sensors, observe."""
    state = KernelState(*rows)
    p = state.parameters[0]
    for low, high in blocks(shown.own.shape[0], share):
        for b in range(low, high):
            for a in range(shown.own.shape[1]):
                if shown.moves.shape[0] > 0:
                    _show_to_target(state, p, cargo, game, shown, b, a)
                else:
                    _show_to_sensor(state, p, state.knowledge, cargo, game, shown, b, a)
