"""Tracks and the detections of sensors: prediction, gating, assignment, existence, births. Compiled by numba."""

import math

import numpy as np

from hitmac.agents.tracking import particles, sight, track_states
from hitmac.agents.tracking.beliefs import AGE, moves_at
from hitmac.agents.tracking.particles import to_border
from hitmac.agents.tracking.recorded import add_arrivals, follow_pieces, start_unseen, take_pieces
from hitmac.agents.tracking.sight import VIEW_COS, VIEW_HALF, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, in_view, is_clear
from hitmac.agents.tracking.track_states import LOST, TURNING, modes_of
from hitmac.agents.tracking.walk_model import X, Y
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.streams import draw_uniform
from hitmac.envs.base.threads import blocks

LEAST, _MOST = 0.01, 0.999  # existence of a track
_BIRTH = 0.02  # least existence of a new track
_STRANGE = 0.02  # expected number of targets in the arena that no belief explains
_NEARBY = 0.1  # least probability of detection of a track in whose gate a detection is
_RAYS = 8  # of the area of a view


@inlined
def _chance(model, watch, i, x, y):
    """Return the probability that sensor i detects a target at (x, y)."""
    view = watch.views[i]
    if not model.everywhere and not in_view(view, watch, i, x, y):
        return 0.0
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    away = min(math.sqrt((dx * dx + dy * dy) / view[VIEW_RANGE]), 1.0)
    return 1.0 - model.missed_near - (model.missed_far - model.missed_near) * away


@inlined
def _area(model, walk, view, clear):
    """Return the area of a view inside the arena and in front of obstacles, from the lengths of some rays."""
    if model.everywhere:
        return 4.0 * walk.half_width * walk.half_height
    half = math.acos(max(view[VIEW_HALF], -1.0))
    total, near = 0.0, view[sight.VIEW_NEAR] if view.shape[0] > sight.VIEW_NEAR else 0.0
    for k in range(_RAYS):
        turn = half * (2.0 * (k + 0.5) / _RAYS - 1.0)
        c, s = math.cos(turn), math.sin(turn)
        dx, dy = c * view[VIEW_COS] - s * view[VIEW_SIN], s * view[VIEW_COS] + c * view[VIEW_SIN]
        length = min(to_border(walk, view[VIEW_X], view[VIEW_Y], dx, dy), math.sqrt(view[VIEW_RANGE]))
        if clear.shape[0] > 0:
            low, high = 0.0, length  # of the ray, until the obstacle is found by bisection
            for _ in range(10):
                middle = 0.5 * (low + high)
                if is_clear(clear, middle * dx, middle * dy):
                    low = middle
                else:
                    high = middle
            length = high
        total += max(length * length - near, 0.0)
    return max(total * half / _RAYS, 4e-6 * walk.half_width * walk.half_height)


@allocating
def assign(cost):
    """Return the column assigned to each row of a square matrix of costs so that their sum is least.

    Costs are finite; with others, a row may get -1. Shortest augmenting paths with potentials, row by row. Source:
    Jonker, Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment problems", Computing
    1987.
    """
    size, column_of = len(cost), np.full(len(cost), -1)
    u, v = np.zeros(size + 1), np.zeros(size + 1)
    row_of, before = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)  # from 1; 0: none
    least, used = np.empty(size + 1), np.empty(size + 1, np.bool_)
    for row in range(1, size + 1):
        row_of[0], column = row, 0
        least[:], used[:] = np.inf, False
        for _ in range(row):  # a path has at most as many columns
            used[column] = True
            k, delta, following = row_of[column], np.inf, 0
            for c in range(1, size + 1):
                if not used[c]:
                    reduced = cost[k - 1, c - 1] - u[k] - v[c]
                    if reduced < least[c]:
                        least[c], before[c] = reduced, column
                    if least[c] < delta:
                        delta, following = least[c], c
            for c in range(size + 1):
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
    for c in range(1, size + 1):
        if row_of[c] > 0:
            column_of[row_of[c] - 1] = c - 1
    return column_of


@allocating
def _assign_some(cost, number, slots):
    """Return the column of each of the first `number` rows in the best assignment; -1 for a row without a cost below 0.

    A track needs at most as many candidates as there are tracks, its best ones; other rows take no part.
    """
    column, rows = np.full(number, -1), np.empty(number, np.int64)
    taken, best = np.zeros(number, np.bool_), np.empty(slots)
    for j in range(slots):
        best[:] = 0.0  # the lowest costs of the track, in rising order
        for d in range(number):
            place = slots
            while place > 0 and cost[d, j] < best[place - 1]:
                place -= 1
            for e in range(slots - 1, place, -1):
                best[e] = best[e - 1]
            if place < slots:
                best[place] = cost[d, j]
        for d in range(number):
            taken[d] |= cost[d, j] < 0.0 and cost[d, j] <= best[slots - 1]
    count = 0
    for d in range(number):
        if taken[d]:
            rows[count] = d
            count += 1
    if count > 0:
        size = max(count, slots)
        some = np.zeros((size, size))
        for e in range(count):
            for j in range(slots):
                some[e, j] = cost[rows[e], j]
        found = assign(some)
        for e in range(count):
            if found[e] < slots and some[e, found[e]] < 0.0:
                column[rows[e]] = found[e]
    return column


@inlined
def _miss_unseen(model, body, weight, watch, i):
    """Multiply the weights of unseen targets by the probability that sensor i does not detect them."""
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            weight[p] *= 1.0 - _chance(model, watch, i, body[X, p], body[Y, p])


@allocating
def _expect(model, state, belief, r, watch, i):
    """Return the probability that sensor i detects each track (k,), and each particle of those that are lost (k, P).

    That of normal distributions is a weighted mean over their mean and the places 1.5 standard deviations from it along
    either axis.
    """
    slots, number = state.existence.shape[1], belief.weight.shape[2]
    chance, particle = np.zeros(slots), np.zeros((slots, number))
    for j in range(slots):
        if state.existence[r, j] == 0.0:
            continue
        if state.age[r, j] >= LOST:
            body, weight, total = belief.body[r, j], belief.weight[r, j], 0.0
            for p in range(number):
                if weight[p] > 0.0:
                    particle[j, p] = _chance(model, watch, i, body[X, p], body[Y, p])
                total += weight[p] * particle[j, p]
            chance[j] = total / state.existence[r, j]
        else:
            k = int(state.mode[r, j, TURNING] > 0.5)
            mean, own = state.mean[r, j, k], state.covariance[r, j, k]
            dx, dy = math.sqrt(own[0, 0]), math.sqrt(own[1, 1])
            total = 2.0 * _chance(model, watch, i, mean[0], mean[1])
            for sign in (-1.5, 1.5):
                total += _chance(model, watch, i, mean[0] + sign * dx, mean[1])
                total += _chance(model, watch, i, mean[0], mean[1] + sign * dy)
            chance[j] = total / 6.0
    return chance, particle


@inlined
def _miss(state, belief, r, j, chance, particle):
    """Update the existence, and the weights of the particles, of a track that a sensor does not detect.

    `chance` is the probability that it detects the track, and `particle` (P,) each of its particles.
    """
    if chance > 0.0:
        missed = max(1.0 - state.existence[r, j] * chance, 1e-12)
        if state.age[r, j] >= LOST:
            weight, total = belief.weight[r, j], 0.0
            for p in range(weight.shape[0]):
                weight[p] *= (1.0 - particle[p]) / missed
                total += weight[p]
            state.existence[r, j] = total
        else:
            state.existence[r, j] *= (1.0 - chance) / missed


@compiled
def _scale(numbers, factor):
    """Multiply all elements of an array, see :data:`hitmac.envs.base.compile.allocating`."""
    for index in np.ndindex(numbers.shape):
        numbers[index] *= factor


@allocating
def _take_scan(rules, model, state, scene, r, i, detections, fused):
    """Update the tracks of row r by the detections (d, 5) of sensor i: gating, assignment, misses and births.

    If `fused`, they are tracks of the sensor, whose errors depend on those of the row, and covariances are doubled: the
    covariance intersection with equal weights.
    """
    walk, belief, slots, number = rules.walk, scene.belief, state.existence.shape[1], len(detections)
    watch = sight.watch_of(scene, r, scene.views[r], sight.NO_CELLS)
    if fused:
        _scale(detections[:, 2:], 2.0)
    chances, particle = _expect(model, state, belief, r, watch, i)
    spread, densities = np.empty(slots), np.empty((number, slots))  # of the kernels at particles; of detections
    unknown, cost = np.empty(number), np.zeros((number, slots))  # intensity of a detection without a track
    area = 4.0 * walk.half_width * walk.half_height
    false = max(model.false, 1e-4) / _area(model, walk, watch.views[i], watch.clear[i])
    unseen_body, unseen = belief.body[r, slots], belief.weight[r, slots]
    radius = area / unseen.shape[0]  # squared, times pi: the area of pi particles
    for j in range(slots if number > 0 else 0):
        if state.existence[r, j] > 0.0 and state.age[r, j] >= LOST:
            spread[j] = track_states.spread_of(walk, belief.body[r, j], belief.weight[r, j])
    for d in range(number):
        detection, here = detections[d], 0.0
        for p in range(unseen.shape[0]):
            dx, dy = detection[X] - unseen_body[X, p], detection[Y] - unseen_body[Y, p]
            if dx * dx + dy * dy < radius:
                here += unseen[p]
        born = (here / (math.pi * radius) + _STRANGE / area) * max(
            _chance(model, watch, i, detection[X], detection[Y]), _NEARBY
        )
        unknown[d] = false + born
        for j in range(slots):
            if state.existence[r, j] > 0.0:
                if state.age[r, j] >= LOST:
                    body, weight = belief.body[r, j], belief.weight[r, j]
                    density = track_states.likelihood_of_particles(body, weight, spread[j], detection)
                else:
                    density = track_states.likelihood(modes_of(state, r, j), detection)
                densities[d, j] = density
                chance = min(state.existence[r, j] * max(chances[j], _NEARBY), _MOST)
                if density > 0.0:
                    # Log odds of the detection and the track together, against a missed track and an unknown source.
                    gain = math.log(chance * min(density, 1e100) / ((1.0 - chance) * unknown[d]))
                    cost[d, j] = min(-gain, 0.0)
    column = _assign_some(cost, number, slots)
    detection_of = np.full(slots, -1)  # of each track
    for d in range(number):
        if column[d] >= 0:
            detection_of[column[d]] = d
    # A track with a detection is updated by it; another one is missed, where a view should have seen it.
    for j in range(slots):
        existence, d = state.existence[r, j], detection_of[j]
        if existence == 0.0:
            continue
        if d < 0:
            _miss(state, belief, r, j, chances[j], particle[j])
            continue
        modes = modes_of(state, r, j)
        chance = max(chances[j], _NEARBY)
        # Bayes' rule for the existence; the detection may still be of another source.
        ratio = 1.0 - chance + chance * densities[d, j] / unknown[d]
        state.existence[r, j] = min(existence * ratio / (1.0 - existence + existence * ratio), _MOST)
        if state.age[r, j] >= LOST:
            body, weight = belief.body[r, j], belief.weight[r, j]
            track_states.find_again(model, walk, body, weight, spread[j], modes, detections[d])
        else:
            if fused:  # a track of another sensor shares an unknown part of its errors
                _scale(modes.covariance, 2.0)
            track_states.update(modes, detections[d])
        state.age[r, j] = 0
    # A detection without a track may be a new target; it takes the place of the least likely track.
    for d in range(number):
        existence = 1.0 - false / unknown[d]
        if column[d] < 0 and existence > _BIRTH:
            slot = state.existence[r].argmin()
            if state.existence[r, slot] < existence:
                state.existence[r, slot], state.age[r, slot] = existence, 0
                state.labels[r] += 1
                state.label[r, slot] = state.labels[r]
                modes = modes_of(state, r, slot)
                track_states.begin(model, modes, detections[d], 0.0, 0.0, model.speed * model.speed)


@allocating
def _move(rules, model, state, scene, r, pieces):
    """Predict the tracks and the unseen targets of row r."""
    watch = particles.nobody()
    walk, belief, time, slots = rules.walk, scene.belief, scene.time[r], state.existence.shape[1]
    moves = moves_at(rules, time - 1)
    for j in range(slots):
        if state.existence[r, j] == 0.0:
            continue
        state.age[r, j] += 1
        state.existence[r, j] *= model.survival
        scene.known[r, j, AGE] += 1.0
        if state.age[r, j] < LOST:
            track_states.predict(model, modes_of(state, r, j), moves * walk.time_step)
        elif pieces.rest.shape[0] > 0:  # lost: from here on, particles
            follow_pieces(pieces, belief, r, j)
            state.existence[r, j] = belief.weight[r, j].sum()
        else:
            _scale(belief.weight[r, j], model.survival)
            for _ in range(moves):
                particles.advance(walk, None, belief, r, j, watch)
    if pieces.rest.shape[0] > 0:
        follow_pieces(pieces, belief, r, slots)
        add_arrivals(pieces, belief, r, slots, time)
    else:
        for _ in range(moves):
            particles.advance(walk, None, belief, r, slots, watch)
        if model.arrivals > 0.0:  # now and then, the lightest particle becomes new arrivals
            weight = belief.weight[r, slots]
            every = max(int(2.0 * model.expected / (model.arrivals * weight.shape[0])), 1)
            if time % every == 0:
                p = weight.argmin()
                particles.put_anywhere(walk, belief, r, slots, p)
                particles.set_out(walk, None, belief, r, slots, p)
                weight[p] += model.arrivals * every


@kernel
def track_all(rules, model, state, scene, detections, mask, pieces, share):
    """Update the tracks of all R rows of knowledge by the detections (B, n, d, 5) of `mask` (B, n, d).

    `state` is the :class:`~hitmac.agents.tracking.tracks.TracksState` of the rows. A row is fed by all sensors of its
    scene, or by its own where every sensor has a row.
    """
    belief, known, views, time = scene.belief, scene.known, scene.views, scene.time
    slots, (scenes, n, _) = known.shape[1], mask.shape
    rows, number = known.shape[0] // scenes, belief.weight.shape[2]
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b = r // rows
            if time[r] > 0:
                _move(rules, model, state, scene, r, pieces)
            elif pieces.rest.shape[0] > 0:
                start_unseen(pieces, belief, r, slots)
            else:
                for p in range(number):
                    particles.put_anywhere(rules.walk, belief, r, slots, p)
                    particles.set_out(rules.walk, None, belief, r, slots, p)
                belief.weight[r, slots] = model.expected / number
            first, last = (r % rows, r % rows + 1) if rows > 1 else (0, n)
            for i in range(first, last):
                if views[r, i, VIEW_RANGE] > 0.0:
                    _take_scan(rules, model, state, scene, r, i, detections[b, i][mask[b, i]], False)
            watch = sight.watch_of(scene, r, views[r], sight.NO_CELLS)
            for i in range(first, last):
                if views[r, i, VIEW_RANGE] > 0.0:
                    _miss_unseen(model, belief.body[r, slots], belief.weight[r, slots], watch, i)


@kernel
def exchange_all(rules, model, link, state, scene, tracks, sent, share):
    """Update the tracks of every sensor's row by the `tracks` (B, n, k, 5) that others have `sent` (B, n, k).

    `link` is the square of the communication range and the probability that a message is lost.
    """
    belief, known, views = scene.belief, scene.known, scene.views
    slots, n = known.shape[1], sent.shape[1]
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b, i, watch = r // n, r % n, sight.watch_of(scene, r, views[r], sight.NO_CELLS)
            for k in range(n):
                dx, dy = views[r, i, VIEW_X] - views[r, k, VIEW_X], views[r, i, VIEW_Y] - views[r, k, VIEW_Y]
                near = dx * dx + dy * dy <= link[0] and views[r, i, VIEW_RANGE] > 0.0 and views[r, k, VIEW_RANGE] > 0.0
                if k != i and near and draw_uniform(belief.stream, r) >= link[1]:
                    _take_scan(rules, model, state, scene, r, k, tracks[b, k][sent[b, k]], True)
                    _miss_unseen(model, belief.body[r, slots], belief.weight[r, slots], watch, k)


@kernel
def scatter_all(rules, state, scene, every, new, draws, share):
    """End tracks, and give particles to the detected ones: to all if `every`, or to those that are about to be lost.

    With recorded motion, the pieces `new` are those of the new particles.
    """
    belief = scene.belief
    for low, high in blocks(state.existence.shape[0], share):
        for r in range(low, high):
            for j in range(state.existence.shape[1]):
                if state.existence[r, j] < LEAST:
                    state.existence[r, j], scene.known[r, j, AGE], belief.weight[r, j] = 0.0, np.inf, 0.0
                age, existence = state.age[r, j], state.existence[r, j]
                modes = modes_of(state, r, j)
                scene.present[r, j] = existence > 0.0
                if age == 0 and existence > 0.0:
                    for a in range(4):
                        scene.known[r, j, a] = modes.mode[0] * modes.mean[0, a] + modes.mode[1] * modes.mean[1, a]
                    scene.known[r, j, AGE] = 0.0
                # The state of a track that is lost from the next sub-step on goes on as particles.
                if existence > 0.0 and (age == LOST - 1 or (every and age < LOST)):
                    if new.places.shape[1] == 0:
                        body, weight = belief.body[r, j], belief.weight[r, j]
                        track_states.scatter(rules.walk, body, weight, modes, existence, draws)
                    else:
                        new.deviation[r, j] = track_states.deviation_of(modes)
                        k = int(modes.mode[TURNING] > 0.5)
                        take_pieces(new, belief, r, j, modes.mean[k, 0], modes.mean[k, 1])
                        for p in range(belief.weight.shape[2]):
                            belief.weight[r, j, p] *= existence
