"""Futures of the targets, for the planners: samples of where each can be at every sub-step. Compiled by numba.

The planner without beliefs remembers how each target has moved, and foresees it ahead and to the left of its present
place on its course; lengths are then in units of the observation feature `distance`, speeds relative to the scenario's
top speed. The planner on beliefs foresees particles, in the arena.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.search import CHUNK, everyone
from hitmac.agents.tracking.motion import AIM_X, AIM_Y, MOVES, SPEED, STEP, X, Y, move, moves_at
from hitmac.envs.kernels.rails import gone_along, rail_of, way_between
from hitmac.envs.kernels.state import Rails
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform
from hitmac.envs.kernels.threads import allocating, inlined

# Features of a pair, the heading's with pan limits or on rails only, the last on rails only.
SIN, COS, DISTANCE, RADIAL, TANGENTIAL, VIEW, RANGE, TURN, HEADING_SIN, HEADING_COS, ALONG = range(11)
# Memory of a target: moves since its last turn (-1: unknown), observations since then, their mean speed, last speed.
COURSE_MOVES, SEEN, COURSE_SPEED, SHOWN = range(4)
STRAIGHT = 0.03  # largest sine of the angle between two velocities of a target that has not turned

_LENGTHS = np.uint64(1 << 32)  # where the draws of a future's lengths begin in its stream
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_DRAWS = np.uint64(4)  # numbers drawn for a course
_NOWHERE = np.float32(1e18)  # out of every range; its square is finite


class Walk(NamedTuple):
    """Rule of the targets' walk."""

    goals: bool  # from goal to goal
    arena: float  # radius of the disc that has the arena's area
    step: float  # length of a move of a target of speed 1
    slowest: float
    fastest: float
    noise: float  # largest relative increase of a move's length
    stuck: float  # length of a move below which a target takes a new goal
    patience: float  # most moves towards one goal
    every: int  # sub-steps between extra moves; 0: none
    exact: bool  # positions are observed without errors


class Motion(NamedTuple):
    """Motion of sensors on rails."""

    rails: Rails
    step: float  # of a sensor, in units of the observation
    rail_step: float  # the same, in units of the arena


class Futures(NamedTuple):
    """Lists of entries for each of L looks and W words; look 0 is not used.

    Entry e: the samples in the bits ``who[look, word, e]`` are at (x, y) at that look.
    """

    x: np.ndarray  # (L + 1, W, E) float32
    y: np.ndarray  # (L + 1, W, E) float32
    who: np.ndarray  # (L + 1, W, E) uint64
    length: np.ndarray  # (L + 1, W) int64: number of entries


class Sampling(NamedTuple):
    """Options of the futures of particles."""

    key: np.uint64  # of their draws
    samples: int  # futures of each target
    by_course: bool  # foresee a target course by course, not move by move
    per_word: int  # targets whose samples share a word: as many as fit, or one


@allocating
def empty_futures(looks, words, entries):
    """Return lists of undefined content, of whole chunks that hold `entries` each."""
    shape = looks + 1, words, (entries + CHUNK - 1) // CHUNK * CHUNK
    return Futures(
        np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.uint64),
        np.zeros((looks + 1, words), np.int64),
    )  # fmt: skip


@allocating
def clear(futures):
    """Empty all lists."""
    futures.length[:] = 0


@inlined
def put(futures, look, word, x, y, members):
    """Append an entry to a list."""
    e = futures.length[look, word]
    futures.x[look, word, e], futures.y[look, word, e], futures.who[look, word, e] = x, y, members
    futures.length[look, word] = e + 1


@allocating
def close(futures):
    """Fill the last chunk of every list with entries that are in no view."""
    for look in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            while futures.length[look, word] % CHUNK != 0:
                put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _begin_shared(futures, word, shared):
    """Begin an entry at every look for the samples of a target that go the same way; write its number."""
    for look in range(1, shared.shape[0]):
        shared[look] = futures.length[look, word]
        put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _add(futures, look, word, shared, straight, x, y, members):
    """Add samples to the shared entry, which is where the first one is, or in an entry of their own."""
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
    last = np.zeros(looks[-1] + 1, np.int64)
    for h in range(1, looks.shape[0]):
        last[looks[h]] = h
    middle = np.zeros_like(last)
    for look in range(1, last.shape[0]):
        middle[look] = (last[look - 1] + 1 + last[look]) // 2
    return middle, last


@allocating
def _ride(motion, features, i, along, other):
    """Return the way from one place on the rail of sensor i to another, ahead and to the left of its heading."""
    dx, dy = way_between(motion.rails, rail_of(motion.rails, i), along, other)
    dx, dy = dx * motion.step / motion.rail_step, dy * motion.step / motion.rail_step
    c, s = features[HEADING_COS], features[HEADING_SIN]
    return c * dx + s * dy, c * dy - s * dx


@allocating
def gone_on_rail(motion, features, i, steps):
    """Return where sensor i will be after some steps along its rail, ahead and to the left of its heading."""
    r = rail_of(motion.rails, i)
    along = features[ALONG] * motion.rails.length[r]
    return _ride(motion, features, i, along, gone_along(motion.rails, r, along, steps * motion.rail_step))


@allocating
def moved_twice(pairs, mask, old_pairs, old_mask, candidates, walk):
    """Return True if targets moved twice since the last observation: a place before the last move is another."""
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            before = j if candidates is None else candidates.before[i, j]
            if mask[i, j] and before >= 0 and old_mask[i, before]:
                now = pairs[i, j]
                along = now[DISTANCE] - now[RADIAL] * walk.step
                across = now[TANGENTIAL] * walk.step
                error = abs(math.sqrt(along * along + across * across) - old_pairs[i, before, DISTANCE])
                if 1e-5 < error < 1.5 * walk.step:
                    return True
    return False


@allocating
def _farthest_pair(pairs, mask, candidates, j):
    """Return the sensor farthest from target j, and the target's places in its list now and before; -1: none.

    From there the line of sight changes least. Sensors that listed it in the last observation too come first.
    """
    best, place, old_place = -1, -1, -1
    if candidates is None:
        for i in range(mask.shape[0]):
            if mask[i, j] and (best < 0 or pairs[i, j, DISTANCE] > pairs[best, j, DISTANCE]):
                best, place, old_place = i, j, j
    else:
        for e in range(candidates.first[j], candidates.first[j + 1]):
            i, s = candidates.sensor[e], candidates.place[e]
            before = candidates.before[i, s]
            better = best < 0 or (before >= 0) > (old_place >= 0)
            same = (before >= 0) == (old_place >= 0)
            if better or (same and pairs[i, s, DISTANCE] > pairs[best, place, DISTANCE]):
                best, place, old_place = i, s, before
    return best, place, old_place


@allocating
def remember(pairs, mask, old_pairs, old_mask, candidates, walk, motion, moves, memory):
    """Update the memory (m, 4) of the targets, which have made `moves` moves since the last observation."""
    for j in range(memory.shape[0]):
        best, place, old_place = _farthest_pair(pairs, mask, candidates, j)
        if best < 0:
            memory[j, SEEN] = 0.0
            continue
        now, old = pairs[best, place], old_pairs[best, max(old_place, 0)]
        speed = math.hypot(now[RADIAL], now[TANGENTIAL])
        memory[j, SHOWN] = speed
        known = old_place >= 0 and old_mask[best, old_place] != 0 and memory[j, SEEN] > 0.0
        # Place before the moves, along and across the line of sight, and the velocity now with respect to that place.
        along = now[DISTANCE] - moves * now[RADIAL] * walk.step
        across = -moves * now[TANGENTIAL] * walk.step
        if motion is not None:  # seen from where the sensor was
            length = motion.rails.length[rail_of(motion.rails, best)]
            ahead, left = _ride(motion, now, best, old[ALONG] * length, now[ALONG] * length)
            along += now[COS] * ahead + now[SIN] * left
            across += now[COS] * left - now[SIN] * ahead
        away = math.hypot(along, across)
        if known and away > 0.0 and speed > 0.0:
            radial = (now[RADIAL] * along + now[TANGENTIAL] * across) / away
            tangential = (now[TANGENTIAL] * along - now[RADIAL] * across) / away
            before = math.hypot(old[RADIAL], old[TANGENTIAL])
            cross = abs(old[RADIAL] * tangential - old[TANGENTIAL] * radial)
            dot = old[RADIAL] * radial + old[TANGENTIAL] * tangential
            turned = walk.exact and (cross > STRAIGHT * before * speed or dot <= 0.0)
            jumped = abs(away - old[DISTANCE]) > 2.0 * walk.step
            if not turned and not jumped:
                memory[j, COURSE_MOVES] += moves if memory[j, COURSE_MOVES] >= 0.0 else 0.0
                memory[j, SEEN] += 1.0
                memory[j, COURSE_SPEED] += (speed - memory[j, COURSE_SPEED]) / memory[j, SEEN]
                continue
            memory[j, COURSE_MOVES] = 1.0 if turned and not jumped else -1.0
        else:
            memory[j, COURSE_MOVES] = -1.0
        memory[j, SEEN] = 1.0
        memory[j, COURSE_SPEED] = speed


@allocating
def middle(pairs, mask, candidates, j):
    """Return the mean place of all sensors and targets, ahead and to the left of target j on its course.

    Of candidate pairs, it is that of the sensors that list target j and of the targets of the first.
    """
    x, y, number = 0.0, 0.0, 0
    first, last = 0, mask.shape[0]
    if candidates is not None:
        first, last = candidates.first[j], candidates.first[j + 1]
    for e in range(first, last):
        i, place = (e, j) if candidates is None else (candidates.sensor[e], candidates.place[e])
        own = pairs[i, place]
        speed = math.hypot(own[RADIAL], own[TANGENTIAL])
        if mask[i, place] and speed > 0.0:
            x -= own[DISTANCE] * own[RADIAL] / speed
            y += own[DISTANCE] * own[TANGENTIAL] / speed
            if number == 0:
                east = (own[COS] * own[RADIAL] - own[SIN] * own[TANGENTIAL]) / speed
                north = (own[SIN] * own[RADIAL] + own[COS] * own[TANGENTIAL]) / speed
                for other in range(mask.shape[1]):
                    if mask[i, other]:
                        dx = pairs[i, other, COS] * pairs[i, other, DISTANCE] - own[COS] * own[DISTANCE]
                        dy = pairs[i, other, SIN] * pairs[i, other, DISTANCE] - own[SIN] * own[DISTANCE]
                        x += dx * east + dy * north
                        y += dy * east - dx * north
                        number += 1
            number += 1
    return x / max(number, 1), y / max(number, 1)


@inlined
def _to_border(x, y, ahead, radius):
    """Return the distance from (x, y) to the border of a disc about the origin, along +x (`ahead` 1) or -x (-1)."""
    along = x * ahead
    rest = radius * radius - x * x - y * y + along * along
    return max(math.sqrt(max(rest, 0.0)) - along, 0.05 * radius)


@inlined
def _moves_until_stuck(walk, step, draw):
    """Return the number of moves until one is so short that the target takes a new goal, for a draw in (0, 1)."""
    rate = (walk.stuck / step - 1.0) / walk.noise if walk.noise > 0.0 else (1.0 if step < walk.stuck else 0.0)
    if rate <= 0.0:
        return math.inf
    return math.floor(math.log(draw) / math.log(1.0 - rate)) if rate < 1.0 else 0.0


@inlined
def _moves_on_seen_course(walk, step, moves, x, y, first):
    """Return how many more moves a target at (x, y) from the middle makes on its course, for draws (3,).

    Goals are uniform in the arena: the density of the goal's distance from the last turn grows with that distance.
    """
    ahead = _to_border(x, y, 1.0, walk.arena)
    if moves < 0.0:
        moves = first[0] * min(walk.patience, _to_border(x, y, -1.0, walk.arena) / step)
    gone = moves * step
    goal = math.sqrt(gone * gone + first[1] * ((gone + ahead) * (gone + ahead) - gone * gone))
    left = min((goal - gone) / step, max(walk.patience + 1.0 - moves, 0.0))
    return min(left, _moves_until_stuck(walk, step / (1.0 + 0.5 * walk.noise), first[2]))


@allocating
def foresee_observed(memory, centre, walk, moves, draws, when, who, where):
    """Write where a target can be at each sub-step, ahead and to the left of its present place on its course.

    Entry e: at sub-step `when[e]`, the samples in the bits `who[e]` are at `where[:, e]`. Samples that have not turned
    yet share an entry.

    Args:
        memory: (4,) memory of the target.
        centre: place (x, y) of the middle of the arena.
        walk: rule of the walk.
        moves: (H + 1,) number of moves until each sub-step.
        draws: (S, 3) in (0, 1) for the present course, (S, D, 4) for goal, speed and length of the later ones, and
            places (S, M + 1, 2) after 0 to M moves of length 1, without goals.
        when: (E,) result.
        who: (E,) result.
        where: (2, E) result.

    Returns:
        The number of entries.
    """
    first, later, wandering = draws
    samples, horizon, step = first.shape[0], moves.shape[0] - 1, memory[COURSE_SPEED] * walk.step
    if not walk.goals:
        for s in range(samples):
            for h in range(1, horizon + 1):
                e, place = s * horizon + h - 1, wandering[s, round(moves[h])]
                when[e], who[e] = h, _ONE << np.uint64(s)
                where[0, e], where[1, e] = place[0] * step, place[1] * step
        return samples * horizon
    straight = samples == 1 or memory[SHOWN] == 0.0
    for h in range(1, horizon + 1):
        when[h - 1], who[h - 1] = h, everyone(samples) if straight else np.uint64(0)
        where[0, h - 1], where[1, h - 1] = moves[h] * step, 0.0
    entries = horizon
    for s in range(0 if straight else samples):
        bit, left, h, turns = _ONE << np.uint64(s), 0.0, 1, 0
        if memory[SHOWN] * walk.step >= walk.stuck:
            left = _moves_on_seen_course(walk, step, memory[COURSE_MOVES], -centre[0], -centre[1], first[s])
        while h <= horizon and moves[h] <= left:
            who[h - 1] |= bit
            h += 1
        x, y, at = left * step, 0.0, left
        # Every course is a move or more, so that the bound on their number ends no finite forecast.
        while h <= horizon and turns <= moves[horizon]:
            draw = later[s, turns % later.shape[1]]
            turns += 1
            dx = centre[0] + walk.arena * draw[0] - x
            dy = centre[1] + walk.arena * draw[1] - y
            distance = math.hypot(dx, dy) + 1e-9
            ahead, aside = dx / distance, dy / distance
            pace = (walk.slowest + (walk.fastest - walk.slowest) * draw[2]) * walk.step
            left = 1.0 + _moves_until_stuck(walk, pace, draw[3])
            pace *= 1.0 + 0.5 * walk.noise
            left = min(left, min(max(distance / pace, 1.0), walk.patience))
            while h <= horizon and moves[h] <= at + left:
                when[entries], who[entries] = h, bit
                where[0, entries] = x + ahead * pace * (moves[h] - at)
                where[1, entries] = y + aside * pace * (moves[h] - at)
                entries += 1
                h += 1
            x += ahead * pace * left
            y += aside * pace * left
            at += left
    return entries


@allocating
def _follow_moves(rules, particle, key, time, word, bit, straight, looks, middle, shared, futures):
    """Add where a particle can be at each look, move by move, as one sample."""
    one, counter = particle.copy().reshape(-1, 1), np.uint64(0)
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

    Its shortest move is `shortest` long, its last one was `last` long, and it has `made` moves to a goal that is `away`
    from it. The `draw` in [0, 1) is for the moves until one is so short that it takes a new goal.
    """
    mean = shortest * (1.0 + 0.5 * walk.speed_noise)
    near = max(walk.goal_radius, 0.5 * mean)
    if last < walk.stuck_distance or away <= near:
        return 0.0
    left = walk.patience - made
    if mean > 0.0:
        left = min(left, math.ceil((away - near) / mean))
    if shortest < walk.stuck_distance:
        chance = 1.0
        if walk.speed_noise > 0.0 and shortest > 0.0:
            chance = min((walk.stuck_distance / shortest - 1.0) / walk.speed_noise, 1.0)
        left = min(left, 1.0 + math.floor(math.log(1.0 - draw) / math.log(1.0 - chance)) if chance < 1.0 else 1.0)
    return max(left, 0.0)


@allocating
def _follow_courses(walk, particle, key, word, bit, straight, moves, shared, futures):
    """Add where a particle that walks to goals can be at each look, course by course, as one sample.

    All moves of a course have the mean length. It ends at the goal, or when the target's patience does, or after a move
    that is too short, of which the time is drawn.
    """
    looks, counter = moves.shape[0] - 1, np.uint64(0)
    x, y, aim_x, aim_y = particle[X], particle[Y], particle[AIM_X], particle[AIM_Y]
    shortest, last, made = particle[SPEED] * walk.time_step, particle[STEP], particle[MOVES]
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


@allocating
def foresee_believed(rules, sampling, body, weight, together, time, j, looks, middle, moves, shared, futures):
    """List where target j can be at each look, by P particles (7, P) and their weights (P,).

    Futures are those of particles drawn at even steps of their weights. The draws of a future depend only on target,
    sample, number of turns and time, so that plans of consecutive sub-steps are for the same futures. If all particles
    go the same way, `together`, samples share an entry until they turn. `middle` and `moves` (L + 1,) are the sub-step
    in the middle of each look, and the moves until then. `shared` (L + 1,) is scratch memory.
    """
    samples, word = sampling.samples, j // sampling.per_word
    first = j % sampling.per_word * samples
    if together:
        _begin_shared(futures, word, shared)
    total, source = weight[0], 0
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        key, bit = mix(sampling.key + np.uint64(j * 64 + s) * GOLDEN), _ONE << np.uint64(first + s)
        if sampling.by_course:
            _follow_courses(rules.walk, body[:, source], key, word, bit, together, moves, shared, futures)
        else:
            _follow_moves(
                rules, body[:, source], key, time, word, bit, together, looks, middle, shared, futures
            )  # fmt: skip
