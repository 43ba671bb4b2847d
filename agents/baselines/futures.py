"""Sampled futures of targets, listed by look: where each target can be, as bits of 64-bit words. Compiled by numba.

A look counts for one or several consecutive sub-steps of the horizon, by the views in the middle one. The samples of as
many targets as fit share a word, from bit 0 on. An entry of a list is a place with the samples that are there.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.views import CHUNK
from hitmac.agents.tracking.belief_kernels import moves_at
from hitmac.agents.tracking.walk_models import AIM_X, AIM_Y, MOVES, SPEED, STEP, X, Y, move
from hitmac.envs.kernels.compiled import allocating, inlined
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform

_LENGTHS = np.uint64(1 << 32)  # where the draws of a future's lengths begin in its stream
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_DRAWS = np.uint64(4)  # numbers drawn for a course
_NOWHERE = np.float32(1e18)  # out of every range; its square is finite


class Futures(NamedTuple):
    """Lists of entries for each of L looks and W words; look 0 is not used."""

    x: np.ndarray  # (L + 1, W, E) float32
    y: np.ndarray  # (L + 1, W, E) float32
    who: np.ndarray  # (L + 1, W, E) uint64
    length: np.ndarray  # (L + 1, W) int64: number of entries


@allocating
def empty_futures(looks, m, samples, per_word):
    """Return lists of undefined content for m targets, of which `per_word` share a word."""
    words, most = (m - 1) // per_word + 1, min(m, per_word) * (samples + 1)
    shape = looks + 1, words, (most + CHUNK - 1) // CHUNK * CHUNK
    return Futures(
        np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.uint64),
        np.zeros((looks + 1, words), np.int64),
    )  # fmt: skip


@allocating
def spans(looks):
    """Return the middle and the last sub-step (L + 1,) of each look, given the look of each sub-step (H + 1,)."""
    last = np.zeros(looks[-1] + 1, np.int64)
    for h in range(1, looks.shape[0]):
        last[looks[h]] = h
    middle = np.zeros_like(last)
    for look in range(1, last.shape[0]):
        middle[look] = (last[look - 1] + 1 + last[look]) // 2
    return middle, last


@inlined
def clear(futures):
    """Empty all lists."""
    for look in range(futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            futures.length[look, word] = 0


@inlined
def put(futures, look, word, x, y, members):
    """Append an entry to a list."""
    e = futures.length[look, word]
    futures.x[look, word, e], futures.y[look, word, e], futures.who[look, word, e] = x, y, members
    futures.length[look, word] = e + 1


@allocating
def close(futures):
    """Fill the last chunk of every list with entries that nobody sees."""
    for look in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            while futures.length[look, word] % CHUNK != 0:
                put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _share(futures, word, shared):
    """Begin an entry at every look for the samples of a target that go the same way; write its number."""
    for look in range(1, shared.shape[0]):
        shared[look] = futures.length[look, word]
        put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _add(futures, look, word, shared, straight, x, y, bit):
    """Add a sample to the shared entry, which is where the first one is, or to an entry of its own."""
    if straight:
        e = shared[look]
        if futures.who[look, word, e] == 0:
            futures.x[look, word, e], futures.y[look, word, e] = x, y
        futures.who[look, word, e] |= bit
    else:
        put(futures, look, word, x, y, bit)


@inlined
def _place_of(j, sampling):
    """Return the word of target j, and its first bit there."""
    return j // sampling.per_word, np.uint64(j % sampling.per_word * sampling.samples)


@allocating
def foresee_moves(rules, sampling, body, weight, together, time, j, looks, middle, shared, futures):
    """Add where target j can be at each look, move by move.

    The futures are those of particles, drawn at even steps of their weights. If all particles go the same way,
    `together`, samples share an entry until they turn. The draws of a future depend only on target, sample, number of
    turns and time, so that plans of consecutive sub-steps are for the same futures. `shared` is scratch memory.
    """
    samples = sampling.samples
    word, shift = _place_of(j, sampling)
    one = np.empty((body.shape[0], 1))
    if together:
        _share(futures, word, shared)
    total, source = weight[0], 0
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        one[:, 0] = body[:, source]
        key, counter = mix(sampling.key + np.uint64(j * 64 + s) * GOLDEN), np.uint64(0)
        bit, straight = np.uint64(1) << (np.uint64(s) + shift), together
        for h in range(1, looks.shape[0]):
            for k in range(moves_at(rules, time + h - 1)):
                before = one[MOVES, 0]
                counter = move(rules.walk, one, 0, key, counter, 0.5)
                straight = straight and one[MOVES, 0] >= before
                draw = uniform(key, _LENGTHS + np.uint64(2 * (time + h) + k))
                one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
            if middle[looks[h]] == h:
                _add(futures, looks[h], word, shared, straight, one[X, 0], one[Y, 0], bit)


@inlined
def _moves_on_course(walk, shortest, away, last, made, draw):
    """Return the number of moves until a target takes a new goal.

    Args:
        walk: walk of the targets.
        shortest: length of the target's shortest move.
        away: distance to its goal.
        last: length of its last move.
        made: moves that it has made towards the goal.
        draw: number in [0, 1) for the moves until one is so short that it takes a new goal.
    """
    if last < walk.stuck_distance:
        return 0.0
    mean = shortest * (1.0 + 0.5 * walk.speed_noise)
    near = max(walk.goal_radius, 0.5 * mean)
    left = walk.patience - made
    if away <= near:
        return 0.0
    if mean > 0.0:
        left = min(left, math.ceil((away - near) / mean))
    if shortest < walk.stuck_distance:
        chance = 1.0
        if walk.speed_noise > 0.0 and shortest > 0.0:
            chance = min((walk.stuck_distance / shortest - 1.0) / walk.speed_noise, 1.0)
        left = min(left, 1.0 + math.floor(math.log(1.0 - draw) / math.log(1.0 - chance)) if chance < 1.0 else 1.0)
    return max(left, 0.0)


@allocating
def foresee_courses(walk, sampling, body, weight, together, moves, j, shared, futures):
    """Add where target j, which walks to goals, can be at each look, course by course.

    All moves of a course have the mean length. It ends at the goal, or when the target's patience does, or after a move
    that is too short, of which the time is drawn. See also :func:`foresee_moves`.

    Args:
        walk: walk of the targets.
        sampling: options.
        body: (7, P) particles.
        weight: (P,) their weights.
        together: all particles go the same way.
        moves: (L + 1,) number of moves until each look.
        j: number of the target.
        shared: (L + 1,) scratch memory.
        futures: lists, extended in place.
    """
    samples, looks = sampling.samples, moves.shape[0] - 1
    word, shift = _place_of(j, sampling)
    if together:
        _share(futures, word, shared)
    total, source = weight[0], 0
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        key, counter = mix(sampling.key + np.uint64(j * 64 + s) * GOLDEN), np.uint64(0)
        bit, straight = np.uint64(1) << (np.uint64(s) + shift), together
        x, y, aim_x, aim_y = body[X, source], body[Y, source], body[AIM_X, source], body[AIM_Y, source]
        shortest, last, made = body[SPEED, source] * walk.time_step, body[STEP, source], body[MOVES, source]
        look, gone, least, courses = 1, 0.0, 0.0, 0
        # Every course but the first is a move or more, so that the bound on their number ends no finite forecast.
        while look <= looks and courses <= moves[looks] + 1:
            courses += 1
            dx, dy = aim_x - x, aim_y - y
            away = math.sqrt(dx * dx + dy * dy)
            number = max(_moves_on_course(walk, shortest, away, last, made, uniform(key, counter)), least)
            scale = shortest * (1.0 + 0.5 * walk.speed_noise) / away if away > 0.0 else 0.0
            dx, dy = dx * scale, dy * scale  # of a move
            while look <= looks and moves[look] <= gone + number:
                after = moves[look] - gone
                _add(futures, look, word, shared, straight, x + after * dx, y + after * dy, bit)
                look += 1
            x, y, gone = x + number * dx, y + number * dy, gone + number
            speed = walk.min_speed + (walk.max_speed - walk.min_speed) * uniform(key, counter + _ONE)
            aim_x = walk.half_width * (2.0 * uniform(key, counter + _TWO) - 1.0)
            aim_y = walk.half_height * (2.0 * uniform(key, counter + _THREE) - 1.0)
            counter += _DRAWS
            shortest, last, made, straight = speed * walk.time_step, np.inf, 0.0, False
            least = 1.0  # a target that takes a goal makes a move towards it
