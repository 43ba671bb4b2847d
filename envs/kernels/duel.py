"""Game of two teams: sensors watch targets that carry cargoes between warehouses. Compiled by numba.

The rules are those of MATE (Pan and others, NeurIPS 2022, Datasets and Benchmarks). A step moves the sensors, then the
targets, computes all views, and then the rewards and cargoes.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.episode import deal, set_field_of_view, set_heading, update_availability
from hitmac.envs.kernels.knowledge import forget, learn
from hitmac.envs.kernels.physics import about_to_move, runs
from hitmac.envs.kernels.sight import disc_blocks
from hitmac.envs.kernels.state import X, Y, core_of
from hitmac.envs.kernels.streams import draw_between, draw_integer, draw_uniform, uniform
from hitmac.envs.kernels.threads import allocating, compiled, inlined, kernel
from hitmac.envs.kernels.values import weigh

MOST_PLACES = 500
"""Most draws of the place of a sensor, disc or target at the start of an episode."""

_TOLERANCE = 1.0 + 1e-6


class Cargo(NamedTuple):
    """Cargoes, rewards, and what targets see, in scenes of n sensors, m targets, k discs and W warehouses.

    For users the scenes are along the first axis, for kernels along the last.
    """

    capacity: np.ndarray  # (B, m) int64: most cargoes of a load
    weight: np.ndarray  # (B, m) int64: cargoes of the load; 0: no load
    goal: np.ndarray  # (B, m) int64: warehouse to which the load goes; -1: no load
    bounty: np.ndarray  # (B, m) what the sensors have left of the load's delivery
    empty: np.ndarray  # (B, m, W) bool: the warehouse had none to send when the target was there last
    remaining: np.ndarray  # (B, W, W) int64: cargoes to load at v for w
    awaiting: np.ndarray  # (B, W) int64: cargoes that have not arrived
    delivered: np.ndarray  # (B,) int64: cargoes that have arrived
    paid: np.ndarray  # (B,) sum of the sparse rewards
    reward: np.ndarray  # (B, m) each target's part of its team's reward in the last step; the sensors' is its negative
    sparse_reward: np.ndarray  # (B,)
    collides: np.ndarray  # (B, m) bool: a disc, a sensor or the border changed the last step
    sees_sensor: np.ndarray  # (B, m, n) bool: target j sees sensor i
    sees_disc: np.ndarray  # (B, m, k) bool
    sees_target: np.ndarray  # (B, m, m) bool
    sensors_seen: np.ndarray  # (B, n, n) bool: sensor i sees sensor k


class Game(NamedTuple):
    """Constants of the game, and the random numbers of a step."""

    warehouse: np.ndarray  # (W, 2) centres
    size: float  # half the side of a warehouse
    disc_area: np.ndarray  # (a, 4) areas of random discs
    cargoes: int  # at the start of an episode
    worth: float  # of the delivery of one cargo
    target_range: float
    sensor_radius: float
    transmittance: float
    rays: bool  # occlusion by MATE's table of rays
    # Undefined between two steps, for B scenes:
    body: np.ndarray  # (n + k, 3, B) x, y and radius of what targets slide along: sensors, then discs
    transmitted: np.ndarray  # (n, m, B) bool: a disc between sensor i and target j does not block the view
    chance: np.ndarray  # (m, B) in [0, 1): choice of the goal of target j's next load


@inlined
def _draw(state, game, first, last):
    """Draw the random numbers of a step."""
    n, m = state.visible.shape[0], state.visible.shape[1]
    if game.transmittance > 0.0 and state.disc.shape[0] > 0:
        for i in range(n):
            for j in range(m):
                pair = np.uint64(i * m + j)
                for b in range(first, last):
                    chance = uniform(state.stream[at.KEY, b], state.stream[at.DRAWS, b] + pair)
                    game.transmitted[i, j, b] = chance < game.transmittance
        for b in range(first, last):
            state.stream[at.DRAWS, b] += np.uint64(n * m)
    for j in range(m):
        for b in range(first, last):
            game.chance[j, b] = uniform(state.stream[at.KEY, b], state.stream[at.DRAWS, b] + np.uint64(j))
    for b in range(first, last):
        state.stream[at.DRAWS, b] += np.uint64(m)


@inlined
def _turn(state, p, action, first, last):
    """Turn and zoom every working sensor i by ``action[b, i]``, degrees, within its limits."""
    sensor = state.sensor
    for b in range(first, last):
        state.scene[at.TURNED, b] = 0
        for i in range(sensor.shape[0]):
            if state.working[i, b]:
                turn = min(max(action[b, i, 0], -sensor[i, at.TURN, b]), sensor[i, at.TURN, b])
                zoom = min(max(action[b, i, 1], -p.zoom_step), p.zoom_step)
                heading = sensor[i, at.HEADING, b] + turn
                set_heading(state, b, i, heading - 360.0 * math.floor((heading + 180.0) / 360.0))
                view = sensor[i, at.FIELD_OF_VIEW, b] + zoom
                set_field_of_view(state, b, i, min(max(view, p.narrowest), p.widest))
                state.scene[at.TURNED, b] += turn != 0.0


@inlined
def _touches(to_x, to_y, step_x, step_y, length, radius):
    """Return True if a step can touch a disc whose centre is (to_x, to_y) away, with less work than :func:`slide`."""
    squared, cross = to_x * to_x + to_y * to_y, to_x * step_y - to_y * step_x
    ahead = (to_x * step_x + to_y * step_y >= 0.0) & (cross * cross < radius * radius * length * length)
    reach = length + radius
    return (ahead & (squared < reach * reach)) | (squared < radius * radius)


@inlined
def slide(x, y, step_x, step_y, disc_x, disc_y, radius):
    """Return a step from (x, y) after its contact with a disc: the rest keeps only its part along the tangent.

    A step from inside the disc is turned round.
    """
    to_x, to_y = disc_x - x, disc_y - y
    squared, length = to_x * to_x + to_y * to_y, math.sqrt(step_x * step_x + step_y * step_y)
    if length == 0.0 or squared < radius * radius:
        return -step_x, -step_y
    along = (to_x * step_x + to_y * step_y) / length
    half_squared = radius * radius - (squared - along * along)  # of the chord
    if along < 0.0 or half_squared <= 0.0:
        return step_x, step_y
    half = math.sqrt(half_squared)
    contact = max(along - half, 0.0)
    if contact >= length:
        return step_x, step_y
    rest, share = (length - contact) * half / (radius * radius), contact / length
    return step_x + (share * step_x - to_x) * rest, step_y + (share * step_y - to_y) * rest


@inlined
def _gather(state, game, first, last):
    """Copy places and radii of the sensors, then of the discs, to the bodies."""
    n = state.sensor.shape[0]
    for c in range(game.body.shape[0]):
        for row in range(3):
            for b in range(first, last):
                game.body[c, row, b] = state.disc[c - n, row, b] if c >= n else state.sensor[c, row, b]
        if c < n:
            for b in range(first, last):
                game.body[c, at.RADIUS, b] = game.sensor_radius


@inlined
def _move(state, p, cargo, game, action, first, last):
    """Move every target j by ``action[b, j]``, scaled to its longest step, along the bodies."""
    target, body, touched = state.target, game.body, state.scratch_mask
    step, before, length = state.scratch[0:2], state.scratch[2:4], state.scratch[4]
    for j in range(target.shape[0]):
        for b in range(first, last):
            wanted = math.sqrt(action[b, j, 0] * action[b, j, 0] + action[b, j, 1] * action[b, j, 1])
            longest = target[j, at.SPEED, b] * p.time_step
            length[b] = longest / wanted if wanted > longest else 1.0
        for axis in range(2):
            for b in range(first, last):
                step[axis, b] = action[b, j, axis] * length[b]
            for b in range(first, last):
                before[axis, b] = target[j, axis, b]
            for b in range(first, last):
                target[j, axis, b] += step[axis, b]
        for b in range(first, last):
            length[b] = math.sqrt(step[X, b] * step[X, b] + step[Y, b] * step[Y, b])
        for b in range(first, last):
            touched[b] = False
        for c in range(body.shape[0]):
            for b in range(first, last):
                to_x, to_y = body[c, X, b] - before[X, b], body[c, Y, b] - before[Y, b]
                touched[b] |= _touches(to_x, to_y, step[X, b], step[Y, b], length[b], body[c, at.RADIUS, b])
        for b in range(first, last):
            if touched[b]:
                x, y, to_x, to_y = before[X, b], before[Y, b], step[X, b], step[Y, b]
                for c in range(body.shape[0]):
                    to_x, to_y = slide(x, y, to_x, to_y, body[c, X, b], body[c, Y, b], body[c, at.RADIUS, b])
                target[j, X, b], target[j, Y, b] = x + to_x, y + to_y
        for b in range(first, last):
            cargo.collides[j, b] = False
        for axis in range(2):
            border = p.half_width if axis == 0 else p.half_height
            for b in range(first, last):
                target[j, axis, b] = min(max(target[j, axis, b], -border), border)
            for b in range(first, last):
                target[j, at.VELOCITY_X + axis, b] = (target[j, axis, b] - before[axis, b]) / p.time_step
            for b in range(first, last):
                cargo.collides[j, b] |= abs(before[axis, b] + step[axis, b] - target[j, axis, b]) > 1e-6


@inlined
def _cut(state, i, b, reach, length, bearing):
    """Return the length of a ray from sensor i at a bearing, radians, cut by the discs within `reach`."""
    ray_x, ray_y = math.cos(bearing), math.sin(bearing)
    for k in range(state.disc.shape[0]):
        radius = state.disc[k, at.RADIUS, b]
        to_x, to_y = state.disc[k, X, b] - state.sensor[i, X, b], state.disc[k, Y, b] - state.sensor[i, Y, b]
        squared, along = to_x * to_x + to_y * to_y, to_x * ray_x + to_y * ray_y
        half_squared = radius * radius - (squared - along * along)
        counts = squared < (reach + radius) ** 2 and squared < (length + radius) ** 2
        if counts and along >= 0.0 and half_squared > 0.0:
            length = min(length, along - math.sqrt(half_squared))
    return length


@compiled
def _boundary(state, p, i, b, dx, dy):
    """Return how far sensor i of scene b sees towards (dx, dy) by MATE's table of rays.

    The table has rays at whole degrees, at the tangents of every disc +- 0.01 degrees, and evenly spaced between its
    tangents. All are cut by the discs; the length is linear in the bearing between neighbouring rays.
    """
    reach = math.sqrt(state.sensor[i, at.VIEW_AREA, b] / p.narrowest)
    bearing = math.degrees(math.atan2(dy, dx))
    low, high = math.floor(bearing) - bearing, math.floor(bearing) + 1.0 - bearing  # rays, relative to the bearing
    low_length, high_length = reach, reach
    for k in range(state.disc.shape[0]):
        to_x, to_y = state.disc[k, X, b] - state.sensor[i, X, b], state.disc[k, Y, b] - state.sensor[i, Y, b]
        radius, distance = state.disc[k, at.RADIUS, b], math.sqrt(to_x * to_x + to_y * to_y)
        if distance < reach + radius:
            if distance <= radius:
                return 0.0
            off = math.degrees(math.atan2(to_y, to_x)) - bearing
            off -= 360.0 * math.floor((off + 180.0) / 360.0)
            half = math.degrees(math.asin(radius / distance))
            count = max(16, int(2.0 * half))
            below = min(max(math.floor((half - off) / (2.0 * half) * count), 0), count) if half > 0.0 else 0
            for ray in range(6):
                length = reach
                if ray < 4:
                    angle = off + (half if ray < 2 else -half) + (0.01 if ray % 2 else -0.01)
                else:
                    angle = off - half + 2.0 * half * min(below + ray - 4, count) / count
                    length = min(reach, distance + radius)
                if angle <= 0.0 and angle >= low:
                    low_length = min(length, low_length) if angle == low else length
                    low = angle
                if angle > 0.0 and angle <= high:
                    high_length = min(length, high_length) if angle == high else length
                    high = angle
    low_length = _cut(state, i, b, reach, low_length, math.radians(bearing + low))
    high_length = _cut(state, i, b, reach, high_length, math.radians(bearing + high))
    return low_length + (high_length - low_length) * (-low / (high - low))


@inlined
def _see_places(state, p, game, i, place, through, seen, first, last):
    """Compute whether sensor i sees the places (2, B); `through`, all or some of them also through discs."""
    sensor, disc, clear = state.sensor, state.disc, state.scratch_mask
    for b in range(first, last):
        dx, dy = place[X, b] - sensor[i, X, b], place[Y, b] - sensor[i, Y, b]
        squared = dx * dx + dy * dy
        ahead = sensor[i, at.DIRECTION_X, b] * dx + sensor[i, at.DIRECTION_Y, b] * dy
        inside = ahead >= sensor[i, at.COS_HALF_VIEW, b] * math.sqrt(squared)
        seen[b] = (squared <= sensor[i, at.RANGE_SQUARED, b]) & inside & state.working[i, b]
    if game.rays:
        for b in range(first, last):
            if seen[b]:
                dx, dy = place[X, b] - sensor[i, X, b], place[Y, b] - sensor[i, Y, b]
                within = math.sqrt(dx * dx + dy * dy) <= _boundary(state, p, i, b, dx, dy) * _TOLERANCE
                seen[b] = within or (through is not None and through[b])
    else:
        for b in range(first, last):
            clear[b] = True
        for k in range(disc.shape[0]):
            for b in range(first, last):
                x, y = sensor[i, X, b], sensor[i, Y, b]
                dx, dy, radius = place[X, b] - x, place[Y, b] - y, disc[k, at.RADIUS, b]
                clear[b] &= not disc_blocks(x, y, dx, dy, disc[k, X, b], disc[k, Y, b], radius)
        if through is not None:
            for b in range(first, last):
                clear[b] |= through[b]
        for b in range(first, last):
            seen[b] &= clear[b]


@inlined
def _see(state, p, cargo, game, first, last):
    """Compute all views, covered targets and coverage."""
    n, m = state.visible.shape[0], state.visible.shape[1]
    for b in range(first, last):
        state.scene[at.NUM_COVERED, b] = 0
    for j in range(m):
        for b in range(first, last):
            state.covered[j, b] = False
        for i in range(n):
            _see_places(state, p, game, i, state.target[j], game.transmitted[i, j], state.visible[i, j], first, last)
            for b in range(first, last):
                state.covered[j, b] |= state.visible[i, j, b]
        for b in range(first, last):
            state.scene[at.NUM_COVERED, b] += state.covered[j, b]
        for c in range(game.body.shape[0]):
            seen, body = cargo.sees_sensor[j, c] if c < n else cargo.sees_disc[j, c - n], game.body[c]
            for b in range(first, last):
                dx, dy = body[X, b] - state.target[j, X, b], body[Y, b] - state.target[j, Y, b]
                reach = game.target_range + body[at.RADIUS, b]
                seen[b] = dx * dx + dy * dy <= reach * reach
        for other in range(m):
            for b in range(first, last):
                dx = state.target[other, X, b] - state.target[j, X, b]
                dy = state.target[other, Y, b] - state.target[j, Y, b]
                cargo.sees_target[j, other, b] = dx * dx + dy * dy <= game.target_range * game.target_range
    for i in range(n):
        for k in range(n):
            _see_places(state, p, game, i, state.sensor[k], None, cargo.sensors_seen[i, k], first, last)
        for b in range(first, last):
            cargo.sensors_seen[i, i, b] = True
    for b in range(first, last):
        state.coverage[b] = state.scene[at.NUM_COVERED, b] / m


@inlined
def _warehouse_of(state, game, j, b):
    """Return the warehouse in which target j of scene b is, -1 for none."""
    for v in range(game.warehouse.shape[0]):
        dx, dy = state.target[j, X, b] - game.warehouse[v, X], state.target[j, Y, b] - game.warehouse[v, Y]
        if max(abs(dx), abs(dy)) <= game.size:
            return v
    return -1


@inlined
def _load(state, cargo, game, j, v, b, chance):
    """Replace the load of target j of scene b by one from warehouse v, if any is left; return True if so.

    The goal is uniform among those of the cargoes left, by a number `chance` in [0, 1).
    """
    cargo.goal[j, b], cargo.weight[j, b], cargo.bounty[j, b] = -1, 0, 0.0
    choices = 0
    for w in range(game.warehouse.shape[0]):
        choices += cargo.remaining[v, w, b] > 0
    chosen = int(chance * choices)
    for w in range(game.warehouse.shape[0]):
        if cargo.remaining[v, w, b] > 0:
            if chosen == 0:
                weight = min(cargo.capacity[j, b], cargo.remaining[v, w, b])
                cargo.remaining[v, w, b] -= weight
                cargo.goal[j, b], cargo.weight[j, b], cargo.bounty[j, b] = w, weight, game.worth * weight
                state.target[j, at.GOAL_X, b] = game.warehouse[w, X]
                state.target[j, at.GOAL_Y, b] = game.warehouse[w, Y]
            chosen -= 1
    return choices > 0


@inlined
def _visit(state, cargo, game, j, v, b):
    """Deliver the load of target j of scene b if its goal is warehouse v, and load there."""
    goal, weight = cargo.goal[j, b], cargo.weight[j, b]
    if goal == v:
        cargo.reward[j, b] += game.worth * weight + cargo.bounty[j, b]
        cargo.sparse_reward[b] += 2.0 * cargo.bounty[j, b]
        cargo.delivered[b] += weight
        cargo.awaiting[v, b] -= weight
    if goal == v or goal < 0:
        _load(state, cargo, game, j, v, b, game.chance[j, b])
    left = 0
    for w in range(game.warehouse.shape[0]):
        left += cargo.remaining[v, w, b]
    cargo.empty[j, v, b] = left == 0


@inlined
def _carry(state, cargo, game, first, last):
    """Compute the rewards, deliver and load."""
    for b in range(first, last):
        cargo.sparse_reward[b] = 0.0
    for j in range(state.target.shape[0]):
        for b in range(first, last):
            cargo.reward[j, b] = -1.0 if state.covered[j, b] and cargo.bounty[j, b] > 0.0 else 0.0
        for b in range(first, last):
            left = cargo.bounty[j, b]
            cargo.bounty[j, b] = max(left - 1.0, 0.0) if state.covered[j, b] else left
    for j in range(state.target.shape[0]):
        for b in range(first, last):
            v = _warehouse_of(state, game, j, b)
            if v >= 0:
                _visit(state, cargo, game, j, v, b)
    for b in range(first, last):
        cargo.paid[b] += cargo.sparse_reward[b]


@inlined
def _is_free(game, b, x, y, radius, gap):
    """Return True if a disc overlaps no warehouse and no body placed before."""
    free = True
    for v in range(game.warehouse.shape[0]):
        distance = math.hypot(x - game.warehouse[v, X], y - game.warehouse[v, Y])
        free &= distance * _TOLERANCE >= radius + 0.75 * game.size + gap
    for c in range(game.body.shape[0]):
        distance = math.hypot(x - game.body[c, X, b], y - game.body[c, Y, b])
        free &= distance * _TOLERANCE >= radius + game.body[c, at.RADIUS, b] + gap
    return free


@inlined
def _draw_place(state, p, b, area, radius):
    """Draw a place in an area, inside the arena by 1.2 times the radius."""
    x = draw_between(state.stream, b, area[0], area[1], False)
    y = draw_between(state.stream, b, area[2], area[3], False)
    wide, high = p.half_width - 1.2 * radius, p.half_height - 1.2 * radius
    return min(max(x, -wide), wide), min(max(y, -high), high)


@allocating
def _place_sensors(state, p, game, gap, b):
    """Place and aim the sensors, none nearer to another than a tenth of the shorter range."""
    sensor = state.sensor
    dealt = deal(state, b, sensor.shape[0], state.areas.shape[0])
    for i in range(sensor.shape[0]):
        free, draws = False, 0
        while not free and draws < MOST_PLACES:
            draws += 1
            x, y = _draw_place(state, p, b, state.areas[dealt[i]], game.sensor_radius)
            turn = sensor[i, at.TURN, b]
            sensor[i, at.HEADING, b] = turn * draw_integer(state.stream, b, 0.0, math.ceil(360.0 / turn) - 1.0) - 180.0
            view = draw_between(state.stream, b, p.narrowest, p.widest, False)
            free = _is_free(game, b, x, y, game.sensor_radius, gap)
            for k in range(i):
                other = sensor[k, at.VIEW_AREA, b] / sensor[k, at.FIELD_OF_VIEW, b]
                nearest = 0.1 * math.sqrt(min(sensor[i, at.VIEW_AREA, b] / view, other))
                free &= math.hypot(x - sensor[k, X, b], y - sensor[k, Y, b]) >= nearest
            sensor[i, X, b], sensor[i, Y, b], sensor[i, at.FIELD_OF_VIEW, b] = x, y, view
        game.body[i, X, b], game.body[i, Y, b], game.body[i, at.RADIUS, b] = x, y, game.sensor_radius
        state.working[i, b] = True


@allocating
def _place_discs(state, p, game, gap, b):
    """Place the random discs; one for which no place is found gets the radius 0."""
    n, dealt = state.sensor.shape[0], deal(state, b, game.disc_area.shape[0], game.disc_area.shape[0])
    for k in range(p.fixed_discs, state.disc.shape[0]):
        free, draws = False, 0
        while not free and draws < MOST_PLACES:
            draws += 1
            radius = draw_between(state.stream, b, p.disc_radius[0], p.disc_radius[1], False)
            x, y = _draw_place(state, p, b, game.disc_area[dealt[k - p.fixed_discs]], radius)
            free = _is_free(game, b, x, y, radius, gap)
            state.disc[k, X, b], state.disc[k, Y, b], state.disc[k, at.RADIUS, b] = x, y, radius if free else 0.0
        for row in range(3):
            game.body[n + k, row, b] = state.disc[k, row, b]


@allocating
def _place_targets(state, p, cargo, game, b):
    """Place the targets; half of them, at random, carry two cargoes at half the speed."""
    target = state.target
    m = target.shape[0]
    dealt = deal(state, b, m, m)
    for j in range(m):
        cargo.capacity[dealt[j], b] = 2 if j < m // 2 else 1
    for j in range(m):
        free, draws = False, 0
        while not free and draws < MOST_PLACES:
            draws += 1
            x, y = _draw_place(state, p, b, p.target_area, 0.0)
            free = _is_free(game, b, x, y, 0.0, 0.0)
        for row in (X, at.GOAL_X):
            target[j, row, b], target[j, row + 1, b] = x, y
        for row in range(4):
            target[j, at.LAST_X + row, b] = np.inf
        target[j, at.VELOCITY_X, b] = target[j, at.VELOCITY_Y, b] = 0.0
        target[j, at.SPEED, b] = p.max_speed / cargo.capacity[j, b]
        target[j, at.MOVES, b] = target[j, at.COURSE, b] = 0.0
        state.present[j, b] = True


@allocating
def _deal_cargoes(state, cargo, game, b):
    """Draw the cargoes and the first loads."""
    count = game.warehouse.shape[0]
    for v in range(count):
        for w in range(count):
            cargo.remaining[v, w, b] = 0
    short = True
    while short:
        for _ in range(game.cargoes):
            v, w = int(draw_integer(state.stream, b, 0, count - 1)), int(draw_integer(state.stream, b, 0, count - 2))
            cargo.remaining[v, w + (w >= v), b] += 1
        short = False
        for v in range(count):
            sent = 0
            for w in range(count):
                sent += cargo.remaining[v, w, b]
            short |= sent == 0
    for w in range(count):
        cargo.awaiting[w, b] = 0
        for v in range(count):
            cargo.awaiting[w, b] += cargo.remaining[v, w, b]
    for j in range(state.target.shape[0]):
        for v in range(count):
            cargo.empty[j, v, b] = False
        chance, v, order = draw_uniform(state.stream, b), _warehouse_of(state, game, j, b), deal(state, b, count, count)
        loaded = _load(state, cargo, game, j, v if v >= 0 else order[0], b, chance)
        for k in range(1, count if v < 0 else 0):
            if not loaded:
                loaded = _load(state, cargo, game, j, order[k], b, chance)


@allocating
def _begin(state, p, cargo, game, b):
    """Start an episode of scene b; :func:`look` then completes its state."""
    state.scene[at.TIME, b] = state.scene[at.TURNED, b] = 0
    state.scene[at.TIME_BEFORE, b] = -1
    n, m = state.sensor.shape[0], state.target.shape[0]
    state.scene[at.NUM_SENSORS, b], state.scene[at.NUM_TARGETS, b] = n, m
    gap = p.max_speed * p.time_step
    _gather(state, game, b, b + np.uint64(1))
    for c in range(game.body.shape[0]):
        if not n <= c < n + p.fixed_discs:
            game.body[c, at.RADIUS, b] = -np.inf  # not placed yet
    _place_sensors(state, p, game, gap, b)
    _place_discs(state, p, game, gap, b)
    _place_targets(state, p, cargo, game, b)
    _deal_cargoes(state, cargo, game, b)
    cargo.delivered[b] = 0
    cargo.paid[b] = cargo.sparse_reward[b] = 0.0
    for j in range(m):
        cargo.collides[j, b], cargo.reward[j, b] = False, 0.0


@kernel
def begin(state, cargo, game, chosen, share):
    """Place sensors, discs and targets, and deal the cargoes, for a new episode of the chosen scenes."""
    for first, last in runs(chosen, share):
        for b in range(first, last):
            _begin(state, state.parameters[0], cargo, game, b)


@inlined
def _look(state, p, cargo, game, first, last):
    core = core_of(state)
    for b in range(first, last):
        for i in range(core.sensor.shape[0]):
            set_heading(core, b, i, core.sensor[i, at.HEADING, b])
            set_field_of_view(core, b, i, core.sensor[i, at.FIELD_OF_VIEW, b])
    _draw(core, game, first, last)
    _gather(core, game, first, last)
    _see(core, p, cargo, game, first, last)
    weigh(core, p, state.values, first, last)
    for b in range(first, last):
        if core.scene[at.TIME, b] == 0:
            forget(state.knowledge, b, b + np.uint64(1))
    learn(core, p, state.knowledge, first, last)


@kernel
def look(state, cargo, game, chosen, share):
    """Update the derived state, views and knowledge of the chosen scenes, after a start or a change of places."""
    for first, last in runs(chosen, share):
        _look(state, state.parameters[0], cargo, game, first, last)


@inlined
def _step(state, p, cargo, game, action, target_action, drawn, first, last):
    core = core_of(state)
    about_to_move(core, first, last)
    update_availability(core, p, None, first, last)
    if not drawn:
        _draw(core, game, first, last)
    _turn(core, p, action, first, last)
    _gather(core, game, first, last)
    _move(core, p, cargo, game, target_action, first, last)
    _see(core, p, cargo, game, first, last)
    _carry(core, cargo, game, first, last)
    weigh(core, p, state.values, first, last)
    for b in range(first, last):
        core.scene[at.TIME, b] += 1
    learn(core, p, state.knowledge, first, last)


@kernel
def step(state, cargo, game, action, target_action, drawn, chosen, share):
    """Advance the chosen scenes by one step of both teams; `drawn`: `game` holds the random numbers of the step."""
    for first, last in runs(chosen, share):
        _step(state, state.parameters[0], cargo, game, action, target_action, drawn, first, last)
