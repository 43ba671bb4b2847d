"""Tracks of targets from detections without identities. Compiled by numba.

A track is a potential target: a label that never changes, a probability of existence, and a state. While a track is
detected, its state is a mixture of two normal distributions of position and velocity, one for each mode of an
interacting multiple model; after some sub-steps without a detection, it is the particles that move as the targets do.
Targets that were never detected are an intensity: weighted particles whose sum is their expected number.
"""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.policy import Starts, State, checked_starts, copied_state
from hitmac.agents.tracking import particles
from hitmac.agents.tracking.beliefs import AGE, Rules, Scene, moves_at
from hitmac.agents.tracking.particles import (
    AIM_X,
    AIM_Y,
    GOALS,
    MOVES,
    SPEED,
    STEP,
    Belief,
    X,
    Y,
    begin_course,
    to_border,
    walk_model,
)
from hitmac.agents.tracking.recorded import PieceFinder, add_arrivals, follow_pieces, start_unseen, take_pieces
from hitmac.agents.tracking.sight import (
    VIEW_COS,
    VIEW_RANGE,
    VIEW_SIN,
    VIEW_X,
    VIEW_Y,
    Sight,
    in_view,
    is_clear,
)
from hitmac.envs.kernels.streams import draw_uniform, stream_keys
from hitmac.envs.kernels.threads import Threads, allocating, blocks, cores, inlined, kernel
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive

QUIET, TURNING = range(2)
"""Modes of a track: a nearly constant velocity, and a velocity that is about to change."""

_LOST = 5  # sub-steps without a detection after which particles replace the normal distributions
_GATE = 16.0  # squared Mahalanobis distance
_LEAST, _MOST = 0.01, 0.999  # existence of a track
_BIRTH = 0.02  # least existence of a new track
_STRANGE = 0.02  # expected number of targets in the arena that no belief explains
_NEARBY = 0.1  # least probability of detection of a track in whose gate a detection is
_RAYS = 8  # of the area of a view
_ERRORS = 8.0  # standard deviations that a detection may be outside the arena


class Model(NamedTuple):
    """Sensors, and motion of a target in a sub-step, as tracks assume them."""

    speed: float  # standard deviation of an unknown velocity, in each axis
    quiet: float  # power of the acceleration in each mode, units^2 / s^3
    turning: float
    begin: float  # probability that a quiet target begins to turn, and that a turning one ends
    end: float
    survival: float  # probability that a present target stays
    expected: float  # number of targets at first
    arrivals: float  # expected number of new targets
    missed_near: float  # probability of a missed detection at the sensor, and at its range
    missed_far: float
    false: float  # mean number of false detections of a sensor
    everywhere: bool  # all places are in view of all sensors


class Filters(NamedTuple):
    """Most tracks of R rows of knowledge; a slot without existence is free."""

    mean: np.ndarray  # (R, k, 2, 4) x, y and velocity in each mode
    covariance: np.ndarray  # (R, k, 2, 4, 4)
    mode: np.ndarray  # (R, k, 2) probabilities of the modes
    existence: np.ndarray  # (R, k)
    age: np.ndarray  # (R, k) int64: sub-steps since the last detection
    label: np.ndarray  # (R, k) int64, from 1
    labels: np.ndarray  # (R,) int64: labels given so far


@inlined
def _chance(model, view, clear, x, y):
    """Return the probability that a sensor detects a target at (x, y)."""
    if not model.everywhere and not in_view(view, clear, x, y):
        return 0.0
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    away = min(math.sqrt((dx * dx + dy * dy) / view[VIEW_RANGE]), 1.0)
    return 1.0 - model.missed_near - (model.missed_far - model.missed_near) * away


@inlined
def _area(model, walk, view, clear):
    """Return the area of a view inside the arena and in front of obstacles, from the lengths of some rays."""
    if model.everywhere:
        return 4.0 * walk.half_width * walk.half_height
    half = math.acos(max(view[4], -1.0))
    total = 0.0
    for k in range(_RAYS):
        turn = half * (2.0 * (k + 0.5) / _RAYS - 1.0)
        c, s = math.cos(turn), math.sin(turn)
        dx, dy = c * view[VIEW_COS] - s * view[VIEW_SIN], s * view[VIEW_COS] + c * view[VIEW_SIN]
        length = min(to_border(walk, view[VIEW_X], view[VIEW_Y], dx, dy), math.sqrt(view[VIEW_RANGE]))
        if clear is not None:
            low, high = 0.0, length
            for _ in range(10):
                middle = 0.5 * (low + high)
                if is_clear(clear, middle * dx, middle * dy):
                    low = middle
                else:
                    high = middle
            length = high
        total += length * length
    return max(total * half / _RAYS, 1.0)


@allocating
def _predict(model, mean, covariance, mode, t):
    """Predict the modes of a track after t seconds: mixing, then white noise of acceleration; see :class:`Tracks`."""
    old_mean, old_covariance = mean.copy(), covariance.copy()
    first, second = mode[QUIET], mode[TURNING]
    for k in range(2):
        from_quiet = first * (model.begin if k == TURNING else 1.0 - model.begin)
        from_turning = second * (1.0 - model.end if k == TURNING else model.end)
        mode[k] = from_quiet + from_turning
        share = from_quiet / mode[k]
        q = model.turning if k == TURNING else model.quiet
        for a in range(4):
            mean[k, a] = share * old_mean[0, a] + (1.0 - share) * old_mean[1, a]
        for a in range(4):
            apart = share * (1.0 - share) * (old_mean[0, a] - old_mean[1, a])
            for b in range(4):
                covariance[k, a, b] = (
                    share * old_covariance[0, a, b] + (1.0 - share) * old_covariance[1, a, b]
                    + apart * (old_mean[0, b] - old_mean[1, b])
                )  # fmt: skip
        for a in range(2):
            mean[k, a] += t * mean[k, a + 2]
        own = covariance[k]
        for a in range(2):  # F C F^T, rows and then columns
            for b in range(4):
                own[a, b] += t * own[a + 2, b]
        for a in range(4):
            for b in range(2):
                own[a, b] += t * own[a, b + 2]
        for a in range(2):
            own[a, a] += q * t * t * t / 3.0
            own[a, a + 2] += q * t * t / 2.0
            own[a + 2, a] += q * t * t / 2.0
            own[a + 2, a + 2] += q * t


@inlined
def _density(dx, dy, xx, xy, yy):
    """Return the density of a normal distribution at an offset from its mean, and the squared Mahalanobis distance."""
    determinant = xx * yy - xy * xy
    squared = (yy * dx * dx - 2.0 * xy * dx * dy + xx * dy * dy) / determinant
    return math.exp(-0.5 * squared) / (2.0 * math.pi * math.sqrt(determinant)), squared


@inlined
def _likelihood(mean, covariance, mode, detection):
    """Return the density of a detection of a track in its modes, 0 out of all gates."""
    total = 0.0
    for k in range(2):
        own = covariance[k]
        density, squared = _density(
            detection[0] - mean[k, 0], detection[1] - mean[k, 1],
            own[0, 0] + detection[2], own[0, 1] + detection[3], own[1, 1] + detection[4],
        )  # fmt: skip
        if squared < _GATE:
            total += mode[k] * density
    return total


@allocating
def _update(mean, covariance, mode, detection):
    """Update the modes of a track by its detection, as the Kalman filter does."""
    gain = np.empty((4, 2))
    total = 0.0
    for k in range(2):
        own = covariance[k]
        dx, dy = detection[0] - mean[k, 0], detection[1] - mean[k, 1]
        xx, xy, yy = own[0, 0] + detection[2], own[0, 1] + detection[3], own[1, 1] + detection[4]
        density, _ = _density(dx, dy, xx, xy, yy)
        mode[k] *= density
        total += mode[k]
        determinant = xx * yy - xy * xy
        for a in range(4):
            gain[a, 0] = (own[a, 0] * yy - own[a, 1] * xy) / determinant
            gain[a, 1] = (own[a, 1] * xx - own[a, 0] * xy) / determinant
            mean[k, a] += gain[a, 0] * dx + gain[a, 1] * dy
        row_x, row_y = own[0].copy(), own[1].copy()
        for a in range(4):
            for b in range(4):
                own[a, b] -= gain[a, 0] * row_x[b] + gain[a, 1] * row_y[b]
    for k in range(2):
        mode[k] = max(mode[k] / total, 1e-6) if total > 0.0 else 0.5
    total = mode[0] + mode[1]
    mode[0], mode[1] = mode[0] / total, mode[1] / total


@inlined
def _begin(model, mean, covariance, mode, detection, velocity_x, velocity_y, variance):
    """Start the modes of a track at a detection, with a mean velocity and its variance in each axis."""
    for k in range(2):
        mean[k, 0], mean[k, 1], mean[k, 2], mean[k, 3] = detection[0], detection[1], velocity_x, velocity_y
        covariance[k] = 0.0
        covariance[k, 0, 0], covariance[k, 1, 1] = detection[2], detection[4]
        covariance[k, 0, 1] = covariance[k, 1, 0] = detection[3]
        covariance[k, 2, 2] = covariance[k, 3, 3] = variance
    mode[QUIET], mode[TURNING] = 1.0 - model.begin, model.begin


@inlined
def velocity_of(walk, body, p):
    """Return the mean velocity (x, y) of particle p."""
    dx, dy = body[AIM_X, p], body[AIM_Y, p]
    if walk.model == GOALS:
        dx, dy = dx - body[X, p], dy - body[Y, p]
    away = math.sqrt(dx * dx + dy * dy)
    scale = body[SPEED, p] * (1.0 + 0.5 * walk.speed_noise) / away if away > 0.0 else 0.0
    return scale * dx, scale * dy


@inlined
def _spread_of(body, weight):
    """Return the variance of the kernel at each particle, by Silverman's rule: that of the places times P^(-1/3)."""
    total, mean_x, mean_y, squares = 1e-300, 0.0, 0.0, 0.0
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            total += weight[p]
            mean_x += weight[p] * body[X, p]
            mean_y += weight[p] * body[Y, p]
            squares += weight[p] * (body[X, p] * body[X, p] + body[Y, p] * body[Y, p])
    mean_x, mean_y = mean_x / total, mean_y / total
    variance = max(0.5 * (squares / total - mean_x * mean_x - mean_y * mean_y), 1.0)
    return variance * weight.shape[0] ** (-1.0 / 3.0)


@inlined
def _likelihood_of_particles(body, weight, spread, detection):
    """Return the density of a detection of a target with these particles, as normal kernels."""
    density, total = 0.0, 1e-300
    xx, xy, yy = detection[2] + spread, detection[3], detection[4] + spread
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            dx, dy = detection[0] - body[X, p], detection[1] - body[Y, p]
            total += weight[p]
            if dx * dx + dy * dy < _GATE * (xx + yy):
                density += weight[p] * _density(dx, dy, xx, xy, yy)[0]
    return density / total


@inlined
def _find_again(model, walk, body, weight, spread, mean, covariance, mode, detection):
    """Start the modes of a track at a detection, with the velocities of the particles nearby."""
    total, velocity_x, velocity_y, squares = 1e-300, 0.0, 0.0, 0.0
    xx, xy, yy = detection[2] + spread, detection[3], detection[4] + spread
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            near = weight[p] * _density(detection[0] - body[X, p], detection[1] - body[Y, p], xx, xy, yy)[0]
            vx, vy = velocity_of(walk, body, p)
            total += near
            velocity_x += near * vx
            velocity_y += near * vy
            squares += near * (vx * vx + vy * vy)
    velocity_x, velocity_y = velocity_x / total, velocity_y / total
    variance = 0.5 * (squares / total - velocity_x * velocity_x - velocity_y * velocity_y)
    variance = min(max(variance, 0.04 * model.speed * model.speed), model.speed * model.speed)
    _begin(model, mean, covariance, mode, detection, velocity_x, velocity_y, variance)


@allocating
def assign(cost, rows, columns, column_of):
    """Write the column assigned to each row of the `rows` by `columns` matrix of least total cost, rows <= columns.

    Shortest augmenting paths with potentials, row by row. Source: Jonker, Volgenant, "A shortest augmenting path
    algorithm for dense and sparse linear assignment problems", Computing 1987.
    """
    u, v = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of, before = np.zeros(columns + 1, np.int64), np.zeros(columns + 1, np.int64)  # from 1; 0: none
    least, used = np.empty(columns + 1), np.empty(columns + 1, np.bool_)
    for row in range(1, rows + 1):
        row_of[0], column = row, 0
        least[:], used[:] = np.inf, False
        while True:
            used[column] = True
            k, delta, following = row_of[column], np.inf, 0
            for c in range(1, columns + 1):
                if not used[c]:
                    reduced = cost[k - 1, c - 1] - u[k] - v[c]
                    if reduced < least[c]:
                        least[c], before[c] = reduced, column
                    if least[c] < delta:
                        delta, following = least[c], c
            for c in range(columns + 1):
                if used[c]:
                    u[row_of[c]] += delta
                    v[c] -= delta
                else:
                    least[c] -= delta
            column = following
            if row_of[column] == 0:
                break
        while column != 0:
            row_of[column] = row_of[before[column]]
            column = before[column]
    for c in range(1, columns + 1):
        if row_of[c] > 0:
            column_of[row_of[c] - 1] = c - 1


class Room(NamedTuple):
    """Scratch memory of a thread, for k tracks, d detections and P particles."""

    chance: np.ndarray  # (k,) probability of detecting each track
    particle: np.ndarray  # (k, P) the same of its particles
    spread: np.ndarray  # (k,) variance of the kernels at its particles
    density: np.ndarray  # (d, k) of each detection of each track
    unknown: np.ndarray  # (d,) intensity of each detection without a track
    cost: np.ndarray  # (max(d, k), max(d, k))
    column: np.ndarray  # (max(d, k),) int64


@allocating
def make_room(slots, most, number):
    """Return scratch memory for `slots` tracks, at most `most` detections and `number` particles."""
    size = max(slots, most)
    return Room(
        np.zeros(slots), np.zeros((slots, number)), np.zeros(slots), np.zeros((most, slots)), np.zeros(most),
        np.zeros((size, size)), np.zeros(size, np.int64),
    )  # fmt: skip


@inlined
def _list(detections, mask, listed, factor):
    """Write the valid detections (d, 5), with covariances times `factor`, into `listed`; return their number."""
    found = 0
    for d in range(mask.shape[0]):
        if mask[d]:
            for a in range(5):
                listed[found, a] = detections[d, a] * (factor if a > 1 else 1.0)
            found += 1
    return found


@inlined
def _look_for_unseen(model, body, weight, view, clear):
    """Multiply the weights of unseen targets by the probability that a sensor does not detect them."""
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            weight[p] *= 1.0 - _chance(model, view, clear, body[X, p], body[Y, p])


@inlined
def _expect(model, filters, belief, r, view, clear, room):
    """Write the probability that a sensor detects each track.

    That of normal distributions is the mean over the mean place and two standard deviations along either axis.
    """
    for j in range(filters.existence.shape[1]):
        if filters.existence[r, j] == 0.0:
            continue
        if filters.age[r, j] >= _LOST:
            body, weight, total = belief.body[r, j], belief.weight[r, j], 0.0
            for p in range(weight.shape[0]):
                room.particle[j, p] = _chance(model, view, clear, body[X, p], body[Y, p]) if weight[p] > 0.0 else 0.0
                total += weight[p] * room.particle[j, p]
            room.chance[j] = total / filters.existence[r, j]
        else:
            k = int(filters.mode[r, j, TURNING] > 0.5)
            mean, own = filters.mean[r, j, k], filters.covariance[r, j, k]
            dx, dy = math.sqrt(own[0, 0]), math.sqrt(own[1, 1])
            total = 2.0 * _chance(model, view, clear, mean[0], mean[1])
            for sign in (-1.5, 1.5):
                total += _chance(model, view, clear, mean[0] + sign * dx, mean[1])
                total += _chance(model, view, clear, mean[0], mean[1] + sign * dy)
            room.chance[j] = total / 6.0


@inlined
def _miss(filters, belief, r, j, room):
    """Update the existence, and the weights of the particles, of a track that a sensor does not detect."""
    if room.chance[j] > 0.0:
        missed = 1.0 - filters.existence[r, j] * room.chance[j]
        if filters.age[r, j] >= _LOST:
            weight, total = belief.weight[r, j], 0.0
            for p in range(weight.shape[0]):
                weight[p] *= (1.0 - room.particle[j, p]) / missed
                total += weight[p]
            filters.existence[r, j] = total
        else:
            filters.existence[r, j] *= (1.0 - room.chance[j]) / missed


@allocating
def _take_scan(rules, model, filters, scene, r, i, detections, number, clear, room, fused):
    """Update the tracks of row r by the detections (number, 5) of sensor i: gating, assignment, misses and births.

    If `fused`, they are tracks of the sensor, whose errors depend on those of the row, and covariances are doubled: the
    covariance intersection with equal weights.
    """
    walk, belief, view, slots = rules.walk, scene.belief, scene.views[r, i], filters.existence.shape[1]
    _expect(model, filters, belief, r, view, clear, room)
    area = 4.0 * walk.half_width * walk.half_height
    false = max(model.false, 1e-4) / _area(model, walk, view, clear)
    unseen_body, unseen = belief.body[r, slots], belief.weight[r, slots]
    radius = area / unseen.shape[0]  # squared, times pi: the area of pi particles
    size = max(number, slots)
    for j in range(slots):
        if number > 0 and filters.existence[r, j] > 0.0 and filters.age[r, j] >= _LOST:
            room.spread[j] = _spread_of(belief.body[r, j], belief.weight[r, j])
    for d in range(number):
        detection, here = detections[d], 0.0
        for p in range(unseen.shape[0]):
            dx, dy = detection[0] - unseen_body[X, p], detection[1] - unseen_body[Y, p]
            if dx * dx + dy * dy < radius:
                here += unseen[p]
        born = (here / (math.pi * radius) + _STRANGE / area) * max(
            _chance(model, view, clear, detection[0], detection[1]), _NEARBY
        )
        room.unknown[d] = false + born
        for j in range(size):
            room.cost[d, j] = 0.0
            if j < slots and filters.existence[r, j] > 0.0:
                if filters.age[r, j] >= _LOST:
                    density = _likelihood_of_particles(
                        belief.body[r, j], belief.weight[r, j], room.spread[j], detection
                    )
                else:
                    density = _likelihood(filters.mean[r, j], filters.covariance[r, j], filters.mode[r, j], detection)
                room.density[d, j] = density
                chance = filters.existence[r, j] * max(room.chance[j], _NEARBY)
                if density > 0.0:
                    room.cost[d, j] = min(-math.log(chance * density / ((1.0 - chance) * room.unknown[d])), 0.0)
    room.column[:] = -1
    if number > 0:
        for d in range(number, size):
            room.cost[d] = 0.0
        assign(room.cost, size, size, room.column)
    for d in range(number):
        if room.cost[d, room.column[d]] == 0.0:
            room.column[d] = -1
    for j in range(slots):
        if filters.existence[r, j] == 0.0:
            continue
        mine = -1
        for d in range(number):
            if room.column[d] == j:
                mine = d
        if mine < 0:
            _miss(filters, belief, r, j, room)
            continue
        chance = max(room.chance[j], _NEARBY)
        ratio = 1.0 - chance + chance * room.density[mine, j] / room.unknown[mine]
        existence = filters.existence[r, j]
        filters.existence[r, j] = min(existence * ratio / (1.0 - existence + existence * ratio), _MOST)
        if filters.age[r, j] >= _LOST:
            _find_again(
                model, walk, belief.body[r, j], belief.weight[r, j], room.spread[j], filters.mean[r, j],
                filters.covariance[r, j], filters.mode[r, j], detections[mine],
            )  # fmt: skip
        else:
            if fused:
                filters.covariance[r, j] *= 2.0
            _update(filters.mean[r, j], filters.covariance[r, j], filters.mode[r, j], detections[mine])
        filters.age[r, j] = 0
    for d in range(number):
        existence = 1.0 - false / room.unknown[d]
        if room.column[d] < 0 and existence > _BIRTH:
            slot = filters.existence[r].argmin()
            if filters.existence[r, slot] < existence:
                filters.existence[r, slot], filters.age[r, slot] = existence, 0
                filters.labels[r] += 1
                filters.label[r, slot] = filters.labels[r]
                _begin(
                    model, filters.mean[r, slot], filters.covariance[r, slot], filters.mode[r, slot], detections[d],
                    0.0, 0.0, model.speed * model.speed,
                )  # fmt: skip


@allocating
def _move(rules, model, filters, scene, r, pieces):
    """Predict the tracks and the unseen targets of row r."""
    walk, belief, time, slots = rules.walk, scene.belief, scene.time[r], filters.existence.shape[1]
    moves = moves_at(rules, time - 1)
    for j in range(slots):
        if filters.existence[r, j] == 0.0:
            continue
        filters.age[r, j] += 1
        filters.existence[r, j] *= model.survival
        scene.known[r, j, AGE] += 1.0
        if filters.age[r, j] < _LOST:
            _predict(model, filters.mean[r, j], filters.covariance[r, j], filters.mode[r, j], moves * walk.time_step)
        elif pieces is not None:
            follow_pieces(pieces, belief, r, j)
            filters.existence[r, j] = belief.weight[r, j].sum()
        else:
            belief.weight[r, j] *= model.survival
            for _ in range(moves):
                particles.advance(walk, belief, r, j)
    if pieces is not None:
        follow_pieces(pieces, belief, r, slots)
        add_arrivals(pieces, belief, r, slots, time)
    else:
        for _ in range(moves):
            particles.advance(walk, belief, r, slots)
        if model.arrivals > 0.0:
            weight = belief.weight[r, slots]
            every = max(int(2.0 * model.expected / (model.arrivals * weight.shape[0])), 1)
            if time % every == 0:
                p = weight.argmin()
                _place_unseen(walk, belief, r, slots, p)
                weight[p] += model.arrivals * every


@inlined
def _place_unseen(walk, belief, r, j, p):
    """Put a particle of the unseen anywhere in the area of unknown targets."""
    body = belief.body[r, j]
    body[X, p] = walk.x_low + (walk.x_high - walk.x_low) * draw_uniform(belief.stream, r)
    body[Y, p] = walk.y_low + (walk.y_high - walk.y_low) * draw_uniform(belief.stream, r)
    begin_course(walk, body, p, belief.stream[particles.KEY, r], belief.stream[particles.DRAWN, r])
    belief.stream[particles.DRAWN, r] += np.uint64(3)
    body[STEP, p] = np.inf


@kernel
def track_all(rules, model, filters, scene, detections, mask, clear, pieces, share):
    """Update the tracks of all R rows of knowledge by the detections (B, n, d, 5) of `mask` (B, n, d).

    A row is fed by all sensors of its scene, or by its own where every sensor has a row.
    """
    belief, known, views, _, _, time = scene
    slots, (scenes, n, most) = known.shape[1], mask.shape
    rows, number = known.shape[0] // scenes, belief.weight.shape[2]
    room = make_room(slots, most, number)
    listed = np.zeros((most, 5))
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b = r // rows
            if time[r] > 0:
                _move(rules, model, filters, scene, r, pieces)
            elif pieces is not None:
                start_unseen(pieces, belief, r, slots)
            else:
                for p in range(number):
                    _place_unseen(rules.walk, belief, r, slots, p)
                belief.weight[r, slots] = model.expected / number
            first, last = (r % rows, r % rows + 1) if rows > 1 else (0, n)
            for i in range(first, last):
                if views[r, i, VIEW_RANGE] > 0.0:
                    own = None if clear is None else clear[b % clear.shape[0], i]
                    found = _list(detections[b, i], mask[b, i], listed, 1.0)
                    _take_scan(rules, model, filters, scene, r, i, listed, found, own, room, False)
            for i in range(first, last):
                if views[r, i, VIEW_RANGE] > 0.0:
                    own = None if clear is None else clear[b % clear.shape[0], i]
                    _look_for_unseen(model, belief.body[r, slots], belief.weight[r, slots], views[r, i], own)


@kernel
def exchange_all(rules, model, link, filters, scene, tracks, sent, clear, share):
    """Update the tracks of every sensor's row by the `tracks` (B, n, k, 5) that others have `sent` (B, n, k).

    `link` is the square of the communication range and the probability that a message is lost.
    """
    belief, known, views, _, _, _ = scene
    slots, (_, n, most), number = known.shape[1], sent.shape, belief.weight.shape[2]
    room = make_room(slots, most, number)
    listed = np.zeros((most, 5))
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b, i = r // n, r % n
            for k in range(n):
                dx, dy = views[r, i, VIEW_X] - views[r, k, VIEW_X], views[r, i, VIEW_Y] - views[r, k, VIEW_Y]
                near = dx * dx + dy * dy <= link[0] and views[r, i, VIEW_RANGE] > 0.0 and views[r, k, VIEW_RANGE] > 0.0
                if k != i and near and draw_uniform(belief.stream, r) >= link[1]:
                    own = None if clear is None else clear[b % clear.shape[0], k]
                    found = _list(tracks[b, k], sent[b, k], listed, 2.0)
                    _take_scan(rules, model, filters, scene, r, k, listed, found, own, room, True)
                    _look_for_unseen(model, belief.body[r, slots], belief.weight[r, slots], views[r, k], own)


@allocating
def _root(covariance, lower):
    """Write the Cholesky factor of a covariance matrix (4, 4); a dimension without variance gets zeros."""
    lower[:] = 0.0
    for a in range(4):
        for b in range(a + 1):
            rest = covariance[a, b]
            for c in range(b):
                rest -= lower[a, c] * lower[b, c]
            if a == b:
                lower[a, a] = math.sqrt(max(rest, 0.0))
            else:
                lower[a, b] = rest / lower[b, b] if lower[b, b] > 1e-9 else 0.0


@allocating
def _scatter(walk, body, weight, mean, covariance, mode, existence, draws, lower):
    """Replace the particles of a track by quantiles of its normal distributions.

    `draws` (P, 6) are four normal numbers and two uniform ones for each particle, the same for all tracks. A particle
    that walks to goals gets one straight ahead, of the distribution of :func:`~.particles.pin` on a course whose start
    was not seen.
    """
    number, slowest = weight.shape[0], walk.min_speed
    turning = number - int(number * mode[TURNING] + 0.5)
    factor = 1.0 + 0.5 * walk.speed_noise
    if walk.model == GOALS:  # slower targets get stuck at once
        slowest = max(slowest, walk.stuck_distance / (walk.time_step * (1.0 + walk.speed_noise)))
    for p in range(number):
        k = int(p >= turning)
        if p == 0 or p == turning:
            _root(covariance[k], lower)
        x = mean[k, 0] + lower[0, 0] * draws[p, 0]
        y = mean[k, 1] + lower[1, 0] * draws[p, 0] + lower[1, 1] * draws[p, 1]
        dx, dy = mean[k, 2], mean[k, 3]
        for a in range(3):
            dx += lower[2, a] * draws[p, a]
            dy += lower[3, a] * draws[p, a]
        dy += lower[3, 3] * draws[p, 3]
        x, y = min(max(x, -walk.half_width), walk.half_width), min(max(y, -walk.half_height), walk.half_height)
        speed = math.sqrt(dx * dx + dy * dy)
        dx, dy = (dx / speed, dy / speed) if speed > 0.0 else (1.0, 0.0)
        speed = min(max(speed / factor, slowest), walk.max_speed)
        body[X, p], body[Y, p], body[SPEED, p] = x, y, speed
        body[STEP, p], body[MOVES, p] = np.inf, 0.0
        body[AIM_X, p], body[AIM_Y, p] = dx, dy
        if walk.model == GOALS:
            pace = max(speed * factor * walk.time_step, 1e-9)
            ahead = to_border(walk, x, y, dx, dy)
            before = min(walk.patience * pace, to_border(walk, x, y, -dx, -dy))
            half = 0.5 * ahead
            gone = math.sqrt(half * half + draws[p, 4] * before * (before + 2.0 * half)) - half
            goal = math.sqrt(gone * gone + draws[p, 5] * ahead * (ahead + 2.0 * gone)) - gone
            body[MOVES, p] = max(gone / pace - 1.0, 0.0)
            body[AIM_X, p], body[AIM_Y, p] = x + dx * goal, y + dy * goal
    weight[:] = existence / number


@kernel
def scatter_all(rules, filters, scene, every, pieces, places, draws, share):
    """End tracks, and give particles to the detected ones: to all if `every`, or to those that are about to be lost.

    With recorded motion, `pieces` and the `places` (R, k, P) of the new particles are given.
    """
    belief, lower = scene.belief, np.zeros((4, 4))
    for low, high in blocks(filters.existence.shape[0], share):
        for r in range(low, high):
            for j in range(filters.existence.shape[1]):
                if filters.existence[r, j] < _LEAST:
                    filters.existence[r, j], scene.known[r, j, AGE], belief.weight[r, j] = 0.0, np.inf, 0.0
                age, existence = filters.age[r, j], filters.existence[r, j]
                scene.present[r, j] = existence > 0.0
                if age == 0 and existence > 0.0:
                    for a in range(4):
                        scene.known[r, j, a] = (
                            filters.mode[r, j, 0] * filters.mean[r, j, 0, a]
                            + filters.mode[r, j, 1] * filters.mean[r, j, 1, a]
                        )  # fmt: skip
                    scene.known[r, j, AGE] = 0.0
                if existence > 0.0 and (age == _LOST - 1 or (every and age < _LOST)):
                    mean, covariance, mode = filters.mean[r, j], filters.covariance[r, j], filters.mode[r, j]
                    if pieces is None:
                        _scatter(
                            rules.walk, belief.body[r, j], belief.weight[r, j], mean, covariance, mode, existence,
                            draws, lower,
                        )  # fmt: skip
                    else:
                        k = int(mode[TURNING] > 0.5)
                        deviation = math.sqrt(0.5 * (covariance[k, 0, 0] + covariance[k, 1, 1]))
                        take_pieces(pieces, belief, r, j, mean[k, 0], mean[k, 1], places[r, j], deviation)
                        belief.weight[r, j] *= existence


class TracksState(NamedTuple):
    """Tracks in B scenes, each with g rows of knowledge: one shared by all sensors, or one for each."""

    body: np.ndarray  # (B, g, k + 1, 7, P) rows of the particles of k tracks and of unseen targets
    weight: np.ndarray  # (B, g, k + 1, P), whose sum is the existence of a track, or the expected number of the unseen
    course: np.ndarray  # (B, g, k + 1, 8), unused
    stream: np.ndarray  # (B, g, 2) uint64
    mean: np.ndarray  # the arrays of Filters, (B, g, k, ...)
    covariance: np.ndarray
    mode: np.ndarray
    existence: np.ndarray
    age: np.ndarray
    label: np.ndarray
    labels: np.ndarray
    known: np.ndarray  # (B, g, k, 5) position and velocity at the last detection, sub-steps since then
    time: np.ndarray  # (B,) int64: calls since the episode began


class Estimate(NamedTuple):
    """Tracks in B scenes, for g rows of knowledge."""

    place: np.ndarray  # (B, g, k, 2) means
    covariance: np.ndarray  # (B, g, k, 2, 2)
    label: np.ndarray  # (B, g, k), 0 for none


def _moments(points: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (..., 2) and the covariance (..., 2, 2) of points (..., P, 2) with the weights (..., P, 1)."""
    mean = (points * share).sum(-2)
    apart = points - mean[..., None, :]
    return mean, (apart * share).swapaxes(-1, -2) @ apart


class Tracks:
    """Multi-target tracker: from detections without identities to tracks, with the interface of ``Beliefs``.

    Detections have errors of known covariance, miss targets, and include false ones. A track j has a probability of
    existence r, and two normal distributions of (x, v), for a quiet and a turning target: an interacting multiple
    model with white noise of acceleration (Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to Tracking and
    Navigation", 2001, section 11.6). One sensor after the other, with the probability p that it detects the track (0
    out of view and behind obstacles) and the densities g of its detections:

        assignment   the largest sum of log(r p g / ((1 - r p) (f + b))) over pairs inside the gate: the global nearest
                     neighbour (Blackman, Popoli, "Design and Analysis of Modern Tracking Systems", 1999, chapter 6)
        detected     r' = r L / (1 - r + r L),  L = 1 - p + p g / (f + b), then the Kalman filter
        missed       r' = r (1 - p) / (1 - r p)
        new          a detection without a track begins one with r = b / (f + b)

    f is the density of false detections, their mean number over the area in view, b that of detections of unseen
    targets: p times the intensity of the particles of targets that were never detected (Musicki, Evans, Stankovic,
    "Integrated probabilistic data association", IEEE TAC 1994; Williams, "Marginal multi-Bernoulli filters", IEEE TAES
    2015). After 5 sub-steps without a detection, the particles of the planner replace the normal distributions: they
    move as the targets do, and every view without the target reduces their weights. A track ends below the existence
    0.01.

    With the knowledge ``"own"`` or ``"neighbours"`` every sensor has its own tracks. Neighbours send those that they
    detect at that moment, over one link and without delay, whatever the scenario's `hops` and `message_delay`; messages
    are lost at random. The receiver treats them as detections, and fuses them by covariance intersection (Julier,
    Uhlmann, "A non-divergent estimation algorithm in the presence of unknown correlations", ACC 1997).

    Args:
        scenario: the scenario; of the targets, their walk is assumed to be known, but not how many are present.
        particles: P, particles of a track; 1 or more.
        seed: seed of the particles, which is the same in all scenes.
        most: k, most tracks; None: twice the targets of the scenario.
        expected: expected number of targets at first; None: half of `most`, and with recorded motion its mean.
        forecast: give particles to all tracks, as planners need; False: only to those that are lost, which is faster.

    Attributes:
        per_sensor: True if every sensor has its own tracks.
        rows: g, rows of knowledge of a scene: n if `per_sensor`, else 1. R is B * g.
        rules: the scenario, for kernels.
    """

    features: ClassVar[tuple[str, ...]] = ("detections",)

    def __init__(
        self,
        scenario: Scenario,
        particles: int = 64,
        seed: int = 0,
        *,
        most: int | None = None,
        expected: float | None = None,
        forecast: bool = True,
    ) -> None:
        self.scenario, self.particles, self.forecast = scenario, positive("particles", particles), forecast
        self.most = 2 * scenario.num_targets if most is None else positive("most", most)
        self.per_sensor = scenario.knowledge in ("neighbours", "own")
        self.rows = scenario.num_sensors if self.per_sensor else 1
        noise = float(np.max(scenario.position_errors))
        self.rules = Rules(walk_model(scenario), scenario.extra_move_interval, max(noise, 1e-3), False, True)
        self._finder = PieceFinder(scenario) if scenario.walk == "recorded" else None
        self.pieces = None if self._finder is None else self._finder.pieces
        self.model = self._model(0.5 * self.most if expected is None else expected)
        self._sight = Sight(scenario)
        self._key = stream_keys(np.array([seed + 2**62]))[0]
        rng = np.random.default_rng(seed)
        normal = rng.standard_normal((self.particles, 4))
        self._draws = np.hstack((normal - normal.mean(0), rng.random((self.particles, 2))))

    def update(
        self,
        detections: np.ndarray,
        mask: np.ndarray,
        sensors: np.ndarray,
        state: State = None,
        episode_start: Starts = None,
    ) -> tuple[Scene, TracksState]:
        """Return the tracks after an observation, needed at every sub-step, and the state, which share their arrays.

        The tracks of the :class:`~hitmac.agents.tracking.beliefs.Scene` take the place of targets; the weights of the
        particles of a track sum to its existence.

        Args:
            detections: (B, n, d, 5) x, y and the covariance xx, xy, yy of their errors.
            mask: (B, n, d) bool, the valid detections.
            sensors: (B, n, 6 or 7) x, y, sine and cosine of the heading, half the field of view in degrees, range, and
                further columns, which are ignored; all 0 for a sensor that does not work.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins; their tracks are forgotten.

        Raises:
            ValueError: another shape, or an invalid detection, which the message names.
        """
        detections, mask, sensors = self.checked(detections, mask, sensors)
        b, g, k, p = len(mask), self.rows, self.most, self.particles
        body_shape = b, g, k + 1, particles.ROWS, p
        if state is None:
            new = TracksState(
                np.zeros(body_shape),
                np.zeros((b, g, k + 1, p)),
                np.zeros((b, g, k + 1, particles.COURSE)),
                np.zeros((b, g, 2), np.uint64),
                np.zeros((b, g, k, 2, 4)),
                np.zeros((b, g, k, 2, 4, 4)),
                np.zeros((b, g, k, 2)),
                np.zeros((b, g, k)),
                np.zeros((b, g, k), np.int64),
                np.zeros((b, g, k), np.int64),
                np.zeros((b, g), np.int64),
                np.zeros((b, g, k, 5)),
                np.zeros(b, np.int64),
            )
            starts = np.ones(b, np.bool_)
        else:
            new = TracksState(*copied_state(state, body_shape))
            given = checked_starts(episode_start, b)
            starts = np.zeros(b, np.bool_) if given is None else given
        new.stream[starts] = np.array([self._key, 0], np.uint64)
        new.existence[starts], new.labels[starts], new.time[starts] = 0.0, 0, 0
        new.known[starts, ..., AGE] = np.inf
        body, weight, course, stream, *filters, known = (array.reshape(b * g, *array.shape[2:]) for array in new[:-1])
        belief = Belief(body, weight, course, np.ascontiguousarray(stream.T))
        views = self._views(sensors)
        clear = None if self.model.everywhere else self._sight.clear(sensors[..., 0], sensors[..., 1])
        present = np.zeros((b * g, k), np.bool_)
        scene = Scene(belief, known, views, clear, present, np.repeat(new.time, g))
        threads, own = Threads(b * g, cores(), block=8), Filters(*filters)
        threads.run(track_all, self.rules, self.model, own, scene, detections, mask, clear, self.pieces)
        if self.scenario.knowledge == "neighbours":
            estimate = self.estimate(new)
            covariance = estimate.covariance[..., (0, 0, 1), (0, 1, 1)]
            told, sent = np.concatenate((estimate.place, covariance), -1), (estimate.label > 0) & (new.age == 0)
            link = self.scenario.communication_range**2, self.scenario.message_loss_rate
            threads.run(exchange_all, self.rules, self.model, link, own, scene, told, sent, clear)
        places = None
        if self._finder is not None:
            mean = np.take_along_axis(own.mean, own.mode.argmax(-1)[..., None, None], 2)[:, :, 0]
            found = (own.existence > 0.0) & (own.age < _LOST) & (self.forecast | (own.age == _LOST - 1))
            places = self._finder.nearest(mean, found, p)
        threads.run(scatter_all, self.rules, own, scene, self.forecast, self.pieces, places, self._draws)
        new.stream[:] = belief.stream.T.reshape(b, g, 2)
        new.time[:] += 1
        return scene, new

    def estimate(self, state: TracksState, least: float = 0.5) -> Estimate:
        """Return the tracks that exist with a probability of at least `least`."""
        lost = state.age[..., None] >= _LOST
        share = state.weight[:, :, :-1] / np.maximum(state.existence, _LEAST)[..., None]
        places, share = state.body[:, :, :-1, :2].swapaxes(-1, -2), np.where(share > 0.0, share, 0.0)[..., None]
        mean, covariance = _moments(state.mean[..., :2], state.mode[..., None])
        covariance += (state.covariance[..., :2, :2] * state.mode[..., None, None]).sum(-3)
        far, spread = _moments(np.where(share > 0.0, places, 0.0), share)
        return Estimate(
            np.where(lost, far, mean),
            np.where(lost[..., None], spread, covariance),
            np.where(state.existence >= least, state.label, 0),
        )

    def of_sensors(self, of_rows: np.ndarray) -> np.ndarray:
        """Return the values (B, k n, ...) of the sensors, each from its own row of `of_rows` (R, k n, ...)."""
        values = of_rows.reshape(-1, self.rows, *of_rows.shape[1:])
        numbers = np.arange(values.shape[2])
        owners = numbers % self.scenario.num_sensors if self.per_sensor else np.zeros_like(numbers)
        return np.ascontiguousarray(values[:, owners, numbers])

    def checked(self, detections: Any, mask: Any, sensors: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arrays of an observation as float64 and bool; raise ValueError as :meth:`update` does."""
        n = self.scenario.num_sensors
        detections, mask, sensors = np.asarray(detections), np.asarray(mask), np.asarray(sensors)
        shapes = [((*mask.shape, 5), (*mask.shape[:1], n, columns)) for columns in (6, 7)]
        if mask.ndim != 3 or mask.shape[1] != n or (detections.shape, sensors.shape) not in shapes:
            raise ValueError(
                f"detections, mask and sensors have shapes {detections.shape}, {mask.shape} and {sensors.shape}; they "
                f"must be (B, {n}, d, 5), (B, {n}, d) and (B, {n}, 6 or 7)"
            )
        detections, mask = np.ascontiguousarray(detections, np.float64), np.ascontiguousarray(mask != 0)
        x, y, xx, xy, yy = np.moveaxis(detections, -1, 0)
        finite = np.isfinite(detections).all(-1)
        valid = (xx >= 0.0) & (yy >= 0.0) & (xy * xy <= xx * yy * (1.0 + 1e-5) + 1e-9)
        width, height = (half * (1.0 + 1e-6) for half in self.scenario.extent)
        inside = (np.abs(x) <= width + _ERRORS * np.sqrt(np.abs(xx))) & (
            np.abs(y) <= height + _ERRORS * np.sqrt(np.abs(yy))
        )
        for fits, words in (
            (finite, "every number must be finite"),
            (valid, "xx, xy and yy must be a covariance: none negative, and xy^2 at most xx yy"),
            (inside, f"it must be inside the arena of {self.scenario.arena_words}, but for its error"),
        ):
            if (wrong := mask & ~fits).any():
                b, i, d = np.argwhere(wrong)[0].tolist()
                numbers = ", ".join(f"{number:g}" for number in detections[b, i, d])
                raise ValueError(f"detection {d} of sensor {i} in scene {b} is ({numbers}); {words}")
        if not np.isfinite(sensors).all():
            b, i, _ = np.argwhere(~np.isfinite(sensors))[0].tolist()
            raise ValueError(f"sensor {i} in scene {b} is {sensors[b, i].tolist()}; every number must be finite")
        return detections, mask, np.ascontiguousarray(sensors, np.float64)

    def _views(self, sensors: np.ndarray) -> np.ndarray:
        """Return the views (R, n, 7) of the sensors, with the probabilities that they report to the rows."""
        x, y, sin, cos, half, reach = np.moveaxis(sensors[..., :6], -1, 0)
        half_cosine = np.where(half < 180.0, np.cos(np.radians(half)), -2.0)
        chance = (1.0 - np.mean(self.scenario.miss_rates)) * (reach > 0.0)
        views = np.stack((x, y, cos, sin, half_cosine, reach**2, chance), -1)
        return np.repeat(views, self.rows, 0)

    def _model(self, expected: float) -> Model:
        """Return the model of the scenario's sensors and targets."""
        s = self.scenario
        area = math.prod(s.extent) * 4.0
        near, far = s.miss_rates
        stays, returns = 1.0 - s.leave_rate, expected * s.leave_rate * s.return_rate
        arrivals = returns / (s.leave_rate + s.return_rate) if returns > 0.0 else 0.0
        motion, t = self.rules.walk, s.time_step
        if self.pieces is not None:
            velocity, rest = self.pieces.velocity, self.pieces.rest
            change = np.diff(velocity, axis=0)[rest[:-1] > 0]
            speed = float(np.sqrt(np.square(velocity).mean()))
            quiet = float(np.square(change).mean()) / t
            expected, stays = self.pieces.expected, 1.0 - min(self.pieces.rate / self.pieces.expected, 1.0)
            begin = 0.01
        else:
            speed = 0.5 * (motion.min_speed + motion.max_speed) * (1.0 + 0.5 * s.speed_noise) / math.sqrt(2.0)
            swerve = motion.swerve if motion.model != particles.RANDOM else math.pi
            # A swerve turns the velocity, and the noise of the length changes it.
            quiet = (2.0 * speed * speed * min(swerve * swerve / 3.0, 1.0) + (0.1 * s.speed_noise * speed) ** 2) / t
            begin = 0.01
        return Model(
            max(speed, 1e-6 * math.sqrt(area)), quiet, speed * speed / t, begin, 0.3, stays, expected, arrivals,
            near, far, s.false_detections, s.knowledge == "full",
        )  # fmt: skip
