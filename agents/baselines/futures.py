"""Sampled futures of targets, listed by look: where each target can be, as bits of 64-bit words. Compiled by numba.

A look is a sub-step of the horizon at which views are counted. The samples of as many targets as fit share a word, from
bit 0 on, and an entry of a list is a place with the samples that are there.
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
_DRAWS = np.uint64(4)  # numbers of a course
_NOWHERE = np.float32(1e18)


class Futures(NamedTuple):
    """Lists of entries for each of L looks and W words; the first look is not used."""

    x: np.ndarray  # (L + 1, W, E) float32
    y: np.ndarray  # (L + 1, W, E) float32
    who: np.ndarray  # (L + 1, W, E) uint64
    count: np.ndarray  # (L + 1, W) int64


@allocating
def empty_futures(looks, m, samples):
    """Return lists of undefined content for m targets."""
    targets_per_word = 64 // samples
    words, most = (m - 1) // targets_per_word + 1, min(m, targets_per_word) * (samples + 1)
    shape = looks + 1, words, (most + CHUNK - 1) // CHUNK * CHUNK
    return Futures(
        np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.uint64),
        np.zeros((looks + 1, words), np.int64),
    )  # fmt: skip


@inlined
def _put(futures, look, word, x, y, members):
    """Append an entry to a list."""
    e = futures.count[look, word]
    futures.x[look, word, e], futures.y[look, word, e], futures.who[look, word, e] = x, y, members
    futures.count[look, word] = e + 1


@allocating
def close(futures):
    """Fill the last chunk of every list."""
    for look in range(1, futures.count.shape[0]):
        for word in range(futures.count.shape[1]):
            while futures.count[look, word] % CHUNK != 0:
                _put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@allocating
def foresee_moves(rules, key_of_all, body, weight, together, time, j, looks, samples, shared, futures):
    """Add where target j can be at each look, move by move.

    The futures are those of particles, drawn at even steps of their weights. If all particles go the same way,
    `together`, samples share an entry until they turn. The draws of a future depend only on target, sample, number of
    turns and time, so that plans of consecutive sub-steps are for the same futures.
    """
    targets_per_word = 64 // samples
    word, shift = j // targets_per_word, np.uint64(j % targets_per_word * samples)
    one = np.empty((body.shape[0], 1))
    if together:
        _share(futures, word, shared)
    total, source = weight[0], 0
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        one[:, 0] = body[:, source]
        key, counter = mix(key_of_all + np.uint64(j * 64 + s) * GOLDEN), np.uint64(0)
        bit, straight = np.uint64(1) << (np.uint64(s) + shift), together
        for h in range(1, looks.shape[0]):
            for k in range(moves_at(rules, time + h - 1)):
                before = one[MOVES, 0]
                counter = move(rules.walk, one, 0, key, counter, 0.5)
                straight = straight and one[MOVES, 0] >= before
                draw = uniform(key, _LENGTHS + np.uint64(2 * (time + h) + k))
                one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
            if looks[h] > 0:
                _add(futures, looks[h], word, shared, straight, one[X, 0], one[Y, 0], bit)


@inlined
def _share(futures, word, shared):
    """Begin an entry at every look for the samples that go the same way."""
    for look in range(1, shared.shape[0]):
        shared[look] = futures.count[look, word]
        _put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _add(futures, look, word, shared, straight, x, y, bit):
    """Add a sample: to the shared entry, which is where its first sample is, or to one of its own."""
    if straight:
        e = shared[look]
        if futures.who[look, word, e] == 0:
            futures.x[look, word, e], futures.y[look, word, e] = x, y
        futures.who[look, word, e] |= bit
    else:
        _put(futures, look, word, x, y, bit)


@inlined
def _moves_on_course(walk, pace, speed, away, last, made, draw):
    """Return the number of moves that a target makes before it takes a new goal.

    Args:
        walk: walk of the targets.
        pace: mean length of a move.
        speed: length of the shortest.
        away: distance to the goal.
        last: length of the last move.
        made: moves made towards the goal.
        draw: number in [0, 1) for the moves until one is too short.
    """
    if last < walk.stuck_distance:
        return 0.0
    near = max(walk.goal_radius, 0.5 * pace)
    left = min(math.ceil((away - near) / pace) if away > near else 0.0, walk.patience - made)
    if speed < walk.stuck_distance:
        rate = (walk.stuck_distance / speed - 1.0) / walk.speed_noise if walk.speed_noise > 0.0 else 1.0
        left = min(left, 1.0 + math.floor(math.log(1.0 - draw) / math.log(1.0 - rate)) if rate < 1.0 else 1.0)
    return max(left, 0.0)


@allocating
def foresee_courses(rules, key_of_all, body, weight, together, moves, j, samples, shared, futures):
    """Add where target j, which walks to goals, can be at each look, course by course.

    All moves on a course have their mean length. A course ends after as many moves as bring the target to its goal, use
    up its patience, or come before one that is too short, of which the number is drawn. See :func:`foresee_moves`.

    Args:
        moves: (L + 1,) number of moves until each look.
    """
    walk = rules.walk
    targets_per_word = 64 // samples
    word, shift = j // targets_per_word, np.uint64(j % targets_per_word * samples)
    if together:
        _share(futures, word, shared)
    total, source, last_look = weight[0], 0, moves.shape[0] - 1
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        key, counter = mix(key_of_all + np.uint64(j * 64 + s) * GOLDEN), np.uint64(0)
        bit, straight = np.uint64(1) << (np.uint64(s) + shift), together
        x, y, speed = body[X, source], body[Y, source], body[SPEED, source] * walk.time_step
        aim_x, aim_y, last, made = body[AIM_X, source], body[AIM_Y, source], body[STEP, source], body[MOVES, source]
        look, at = 1, 0.0
        while look <= last_look:
            dx, dy = aim_x - x, aim_y - y
            away, pace = math.sqrt(dx * dx + dy * dy), speed * (1.0 + 0.5 * walk.speed_noise)
            left = _moves_on_course(walk, pace, speed, away, last, made, uniform(key, counter))
            scale = pace / away if away > 0.0 else 0.0
            dx, dy = dx * scale, dy * scale
            while look <= last_look and moves[look] <= at + left:
                gone = moves[look] - at
                _add(futures, look, word, shared, straight, x + gone * dx, y + gone * dy, bit)
                look += 1
            x, y, at = x + left * dx, y + left * dy, at + left
            speed = (walk.min_speed + (walk.max_speed - walk.min_speed) * uniform(key, counter + np.uint64(1))) * walk.time_step
            aim_x = walk.half_width * (2.0 * uniform(key, counter + np.uint64(2)) - 1.0)
            aim_y = walk.half_height * (2.0 * uniform(key, counter + np.uint64(3)) - 1.0)
            counter += _DRAWS
            last, made, straight = np.inf, 0.0, False
