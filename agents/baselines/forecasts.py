"""Forecasts of all targets, from the particles of beliefs about them. Compiled by numba.

Every sample of a target's futures is a bit; entries list the positions of samples at each look of the sensors.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.search import CHUNK
from hitmac.agents.tracking import particles
from hitmac.agents.tracking.beliefs import moves_at
from hitmac.agents.tracking.particles import AIM_X, AIM_Y, GOALS, MOVES, SPEED, STEP, X, Y, move, moves_until_stuck
from hitmac.agents.tracking.recorded import PLACE
from hitmac.agents.tracking.sight import VIEW_COS, VIEW_SIN, VIEW_X, VIEW_Y, in_view
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform
from hitmac.envs.kernels.threads import allocating, inlined

_LENGTHS = np.uint64(1 << 32)  # first draw of the moves' lengths in the stream of a future
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_DRAWS = np.uint64(4)  # draws of a course
_NOWHERE = np.float32(1e18)  # out of every range; its square is finite


class Futures(NamedTuple):
    """Lists of entries for each of L looks and W words; look 0 is unused.

    The samples in the bits ``who[look, word, e]`` of entry e are at (x, y) at that look.
    """

    x: np.ndarray  # (L + 1, W, E) float32
    y: np.ndarray  # (L + 1, W, E) float32
    who: np.ndarray  # (L + 1, W, E) uint64
    length: np.ndarray  # (L + 1, W) int64: number of entries


class Sampling(NamedTuple):
    """Options of sampled futures."""

    key: np.uint64  # of their draws
    per_word: int  # targets in a word
    unseen: int  # further targets, for those that no sensor has seen
    delay: int  # sub-steps from now to those of the plans


@allocating
def empty_futures(looks, words, entries):
    """Return empty lists with space for `entries` each, rounded up to whole chunks."""
    shape = looks + 1, words, (entries + CHUNK - 1) // CHUNK * CHUNK
    return Futures(
        np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.uint64),
        np.zeros((looks + 1, words), np.int64),
    )  # fmt: skip


@inlined
def put(futures, look, word, x, y, members):
    """Append an entry to a list."""
    e = futures.length[look, word]
    futures.x[look, word, e], futures.y[look, word, e], futures.who[look, word, e] = x, y, members
    futures.length[look, word] = e + 1


@allocating
def close(futures):
    """Fill the last chunk of every list with entries out of every view."""
    for look in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            while futures.length[look, word] % CHUNK != 0:
                put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _add(futures, look, word, shared, straight, x, y, members):
    """Add samples to the shared entry, at the position of the first one, or as a new entry."""
    if straight:
        e = shared[look]
        if futures.who[look, word, e] == 0:
            futures.x[look, word, e], futures.y[look, word, e] = x, y
        futures.who[look, word, e] |= members
    else:
        put(futures, look, word, x, y, members)


@allocating
def spans(looks):
    """Return the middle and the last sub-step (L + 1,) of each look, given the look of each sub-step (H + 1,)."""
    last = np.searchsorted(looks, np.arange(looks[-1] + 1), side="right") - 1
    middle = last.copy()
    middle[1:] = (last[:-1] + 1 + last[1:]) // 2
    return middle, last


@allocating
def planned_views(views, turn, plans, delay):
    """Return the views (D + H + 1, n, 7) of sensors that have `views` (n, 7), and after a delay turn by their plans."""
    planned = np.empty((delay + plans.shape[1], *views.shape))
    for h in range(planned.shape[0]):
        planned[h] = views
        for i in range(0 if h <= delay else views.shape[0]):
            angle = math.radians(plans[i, h - delay] * turn[i])
            c, s, x, y = math.cos(angle), math.sin(angle), views[i, VIEW_COS], views[i, VIEW_SIN]
            planned[h, i, VIEW_COS], planned[h, i, VIEW_SIN] = c * x - s * y, s * x + c * y
    return planned


@inlined
def _first_view(views, clear, x, y):
    """Return the number of the first view (n, 7) with (x, y); -1: none."""
    for i in range(views.shape[0]):
        if in_view(views[i], None if clear is None else clear[i], x, y):
            return i
    return -1


@allocating
def _follow_moves(rules, particle, key, time, word, bit, straight, looks, middle, views, clear, shared, futures):
    """Add the position of a particle at each look, forecast move by move, as one sample.

    It moves out of the first of the `views` (H + 1, n, 7) that it is in, as the walk `evade`; None: it ignores them.
    """
    one, counter = particle.copy().reshape(-1, 1), np.uint64(0)
    for h in range(1, looks.shape[0]):
        seen_x, seen_y = one[X, 0], one[Y, 0]  # the walk sees views as of the last sub-step
        for k in range(moves_at(rules, time + h - 1)):
            before = one[MOVES, 0]
            if views is not None:
                i = _first_view(views[h - 1], clear, seen_x, seen_y)
                if i >= 0:
                    dx, dy = one[X, 0] - views[h, i, VIEW_X], one[Y, 0] - views[h, i, VIEW_Y]
                    away = math.sqrt(dx * dx + dy * dy)
                    if away > 0.0:
                        side = math.copysign(1.0, views[h, i, VIEW_COS] * dy - views[h, i, VIEW_SIN] * dx)
                        one[AIM_X, 0], one[AIM_Y, 0] = -side * dy / away, side * dx / away
            counter = move(rules.walk, one, 0, key, counter, 0.5)
            straight = straight and one[MOVES, 0] >= before
            draw = uniform(key, _LENGTHS + np.uint64(2 * (time + h) + k))
            one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
        if middle[looks[h]] == h:
            _add(futures, looks[h], word, shared, straight, one[X, 0], one[Y, 0], bit)


@allocating
def _follow_carrier(rules, discs, particle, key, time, word, bit, looks, middle, futures):
    """Add the position of a particle that carries loads at each look, as one sample; its draws are those of a time."""
    one = particle.copy().reshape(-1, 1)
    for h in range(1, looks.shape[0]):
        for k in range(moves_at(rules, time + h - 1)):
            particles.carry(rules.walk, discs, one, 0, key, _DRAWS * np.uint64(2 * (time + h) + k))
        if middle[looks[h]] == h:
            put(futures, looks[h], word, one[X, 0], one[Y, 0], bit)


@inlined
def _follow_piece(pieces, body, p, word, bit, middle, futures):
    """Add the position of particle p of a recorded place at each look until its track ends, as one sample."""
    place = int(body[PLACE, p])
    shift_x, shift_y = body[X, p] - pieces.position[place, 0], body[Y, p] - pieces.position[place, 1]
    for look in range(1, middle.shape[0]):
        if middle[look] > pieces.rest[place]:
            break
        x, y = pieces.position[place + middle[look], 0], pieces.position[place + middle[look], 1]
        put(futures, look, word, x + shift_x, y + shift_y, bit)


@inlined
def _moves_on_course(walk, shortest, away, last, made, draw):
    """Return the number of moves until a target takes a new goal.

    The target has `made` moves towards a goal at the distance `away`; its shortest move has the length `shortest`, the
    last one had the length `last`. `draw` in [0, 1) determines the move that is too short.
    """
    mean = shortest * (1.0 + 0.5 * walk.speed_noise)
    near = max(walk.goal_radius, 0.5 * mean)
    if last < walk.stuck_distance or away <= near:
        return 0.0
    left = walk.patience - made
    if mean > 0.0:
        left = min(left, math.ceil((away - near) / mean))
    if shortest < walk.stuck_distance:
        left = min(left, 1.0 + moves_until_stuck(walk.stuck_distance, walk.speed_noise, shortest, 1.0 - draw))
    return max(left, 0.0)


@allocating
def _follow_courses(walk, particle, key, word, bit, straight, moves, shared, futures):
    """Add the position of a particle that walks to goals at each look, forecast course by course, as one sample.

    All moves of a course have the mean length. It ends at the goal, at the end of the target's patience, or after a
    move that is too short, whose time is random.
    """
    looks, counter = moves.shape[0] - 1, np.uint64(0)
    x, y, aim_x, aim_y = particle[X], particle[Y], particle[AIM_X], particle[AIM_Y]
    shortest, last, made = particle[SPEED] * walk.time_step, particle[STEP], particle[MOVES]
    look, gone, least, courses = 1, 0.0, 0.0, 0
    # Every course but the first has at least one move, so the bound on their number ends no finite forecast.
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


@allocating
def foresee(
    rules, samples, sampling, pieces, discs, body, weight, together, time, j, most, looks, middle, moves, views, clear,
    shared, futures,
):  # fmt: skip
    """List the positions of target j at each look, from particles (7, P) sampled at even steps of their weights (P,).

    A sample is a ``1 / samples`` of a target; those of a weight over 1 also take the words of the `most` - 1 next
    targets. The draws of a future depend only on target, sample, number of turns and time, so consecutive sub-steps
    plan for the same futures. If all particles move `together`, samples share an entry until they turn. `looks`
    (D + H + 1,) are the looks of the sub-steps from now, `middle` and `moves` (L + 1,) the middle sub-step of each look
    and the moves until then; `shared` (L + 1,) is scratch memory.
    Targets that carry loads slide along `discs` (k, 3). With recorded motion, `pieces` are given; `views` and `clear`
    are those of targets that evade, see :func:`_follow_moves`.
    """
    if together:
        word = j // sampling.per_word
        for look in range(1, shared.shape[0]):
            shared[look] = futures.length[look, word]
            put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))
    total, source = weight[0], 0
    for s in range(min(int(weight.sum() * samples + 0.5), most * samples)):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        k = j + s // samples
        word, bit = k // sampling.per_word, _ONE << np.uint64(k % sampling.per_word * samples + s % samples)
        key = mix(sampling.key + np.uint64(j * 64 + s) * GOLDEN)
        if pieces is not None:
            _follow_piece(pieces, body, source, word, bit, middle, futures)
        elif rules.walk.model == particles.CARRY:
            _follow_carrier(rules, discs, body[:, source], key, time, word, bit, looks, middle, futures)
        elif rules.walk.model == GOALS:
            _follow_courses(rules.walk, body[:, source], key, word, bit, together, moves, shared, futures)
        else:
            _follow_moves(
                rules, body[:, source], key, time, word, bit, together, looks, middle, views, clear, shared, futures
            )
