"""Plans of all sensors from observations alone. Compiled by numba.

For every scene: update the memory of each target's course, forecast its positions relative to its course, mark for each
sensor the samples in view from each of its headings, and search for the best plans. Lengths are in units of the
observation feature `distance`, speeds relative to the scenario's top speed.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.search import (
    ascend,
    bits_of,
    candidate_pairs,
    everyone,
    make_room,
    write_exclusive_shares,
    write_reach,
    write_sides,
)
from hitmac.agents.tracking.particles import STRAIGHT, moves_until_stuck
from hitmac.envs.kernels.rails import FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.threads import allocating, blocks, inlined, kernel

# Features of a pair: the heading only with pan limits or on rails, the last only on rails.
SIN, COS, DISTANCE, RADIAL, TANGENTIAL, VIEW, RANGE, TURN, HEADING_SIN, HEADING_COS, ALONG = range(11)
# Memory of a target: moves since its last turn (-1: unknown), observations since then, their mean speed, last speed.
COURSE_MOVES, SEEN, COURSE_SPEED, SHOWN = range(4)

_ONE = np.uint64(1)


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


@allocating
def _ride(motion, features, i, along, other):
    """Return the displacement between two positions on the rail of sensor i, ahead and to the left of its heading."""
    dx, dy = way_between(motion.rails, rail_of(motion.rails, i), along, other)
    dx, dy = dx * motion.step / motion.rail_step, dy * motion.step / motion.rail_step
    c, s = features[HEADING_COS], features[HEADING_SIN]
    return c * dx + s * dy, c * dy - s * dx


@allocating
def _places_before(targets, mask, old_targets, old_mask):
    """Return the place (n, k) of each listed target in the sensor's previous list; -1: none."""
    (n, k), before = mask.shape, np.full(mask.shape, -1, np.int32)
    for i in range(n):
        old = 0
        for s in range(k):
            if mask[i, s]:
                for one in range(k):  # mostly in the next place
                    at = (old + one) % k
                    if old_mask[i, at] and old_targets[i, at] == targets[i, s]:
                        before[i, s] = old = at
                        break
    return before


@allocating
def moved_twice(pairs, mask, old_pairs, old_mask, before, walk):
    """Return True if targets moved twice since the last observation: one move does not lead to their positions."""
    for i in range(mask.shape[0]):
        for s in range(mask.shape[1]):
            old = before[i, s]
            if mask[i, s] and old >= 0 and old_mask[i, old]:
                now = pairs[i, s]
                along = now[DISTANCE] - now[RADIAL] * walk.step
                across = now[TANGENTIAL] * walk.step
                error = abs(math.sqrt(along * along + across * across) - old_pairs[i, old, DISTANCE])
                if 1e-5 < error < 1.5 * walk.step:
                    return True
    return False


@allocating
def _farthest_pair(pairs, candidates, before, j):
    """Return the sensor farthest from target j and the target's places in its current and previous lists; -1: none.

    Its line of sight changes least. Sensors whose previous list has the target take precedence.
    """
    best, place, old_place = -1, -1, -1
    for e in range(candidates.first[j], candidates.first[j + 1]):
        i, s = candidates.sensor[e], candidates.place[e]
        better = best < 0 or (before[i, s] >= 0) > (old_place >= 0)
        same = (before[i, s] >= 0) == (old_place >= 0)
        if better or (same and pairs[i, s, DISTANCE] > pairs[best, place, DISTANCE]):
            best, place, old_place = i, s, before[i, s]
    return best, place, old_place


@allocating
def remember(pairs, old_pairs, old_mask, candidates, before, walk, motion, moves, memory):
    """Update the memory (m, 4) of the targets after `moves` moves since the last observation."""
    for j in range(memory.shape[0]):
        best, place, old_place = _farthest_pair(pairs, candidates, before, j)
        if best < 0:
            memory[j, SEEN] = 0.0
            continue
        now, old = pairs[best, place], old_pairs[best, max(old_place, 0)]
        speed = math.hypot(now[RADIAL], now[TANGENTIAL])
        memory[j, SHOWN] = speed
        known = old_place >= 0 and old_mask[best, old_place] != 0 and memory[j, SEEN] > 0.0
        # Position before the moves, along and across the line of sight, and the velocity relative to it.
        along = now[DISTANCE] - moves * now[RADIAL] * walk.step
        across = -moves * now[TANGENTIAL] * walk.step
        if motion is not None:  # as seen from the sensor's previous position
            length = motion.rails.length[rail_of(motion.rails, best)]
            ahead, left = _ride(motion, now, best, old[ALONG] * length, now[ALONG] * length)
            along += now[COS] * ahead + now[SIN] * left
            across += now[COS] * left - now[SIN] * ahead
        away = math.hypot(along, across)
        if known and away > 0.0 and speed > 0.0:
            radial = (now[RADIAL] * along + now[TANGENTIAL] * across) / away
            tangential = (now[TANGENTIAL] * along - now[RADIAL] * across) / away
            pace = math.hypot(old[RADIAL], old[TANGENTIAL])
            cross = abs(old[RADIAL] * tangential - old[TANGENTIAL] * radial)
            dot = old[RADIAL] * radial + old[TANGENTIAL] * tangential
            turned = walk.exact and (cross > STRAIGHT * pace * speed or dot <= 0.0)
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
    """Return the mean position of sensors and targets, ahead and to the left of target j on its course.

    It includes the sensors that list target j, and the targets listed by the first of them.
    """
    x, y, number = 0.0, 0.0, 0
    for e in range(candidates.first[j], candidates.first[j + 1]):
        i = candidates.sensor[e]
        own = pairs[i, candidates.place[e]]
        speed = math.hypot(own[RADIAL], own[TANGENTIAL])
        if speed > 0.0:
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
def _moves_on_seen_course(walk, step, moves, x, y, first):
    """Return the number of moves left on the course of a target at (x, y) from the middle, for draws (3,).

    Goals are uniform in the arena, so the density of the goal's distance from the last turn grows with that distance.
    """
    ahead = _to_border(x, y, 1.0, walk.arena)
    if moves < 0.0:
        moves = first[0] * min(walk.patience, _to_border(x, y, -1.0, walk.arena) / step)
    gone = moves * step
    goal = math.sqrt(gone * gone + first[1] * ((gone + ahead) * (gone + ahead) - gone * gone))
    left = min((goal - gone) / step, max(walk.patience + 1.0 - moves, 0.0))
    return min(left, moves_until_stuck(walk.stuck, walk.noise, step / (1.0 + 0.5 * walk.noise), first[2]))


@allocating
def foresee_observed(memory, centre, walk, moves, draws, when, who, where):
    """Write the positions of a target at each sub-step, ahead and to the left of its present one; return their number.

    Entry e: at sub-step ``when[e]``, the samples in the bits ``who[e]`` are at ``where[:, e]``. Samples that have not
    turned yet share an entry.

    `memory` (4,) is the target's, `centre` the middle of the arena, and `moves` (H + 1,) the moves until each sub-step.
    The draws are (S, 3) in (0, 1) for the present course, (S, D, 4) for goal, speed and length of the later ones, and,
    without goals, positions (S, M + 1, 2) after 0 to M moves of length 1.
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
        # Every course has at least one move, so the bound on their number ends no finite forecast.
        while h <= horizon and turns <= moves[horizon]:
            draw = later[s, turns % later.shape[1]]
            turns += 1
            dx = centre[0] + walk.arena * draw[0] - x
            dy = centre[1] + walk.arena * draw[1] - y
            distance = math.hypot(dx, dy) + 1e-9
            ahead, aside = dx / distance, dy / distance
            pace = (walk.slowest + (walk.fastest - walk.slowest) * draw[2]) * walk.step
            left = 1.0 + moves_until_stuck(walk.stuck, walk.noise, pace, draw[3])
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
def _mark_observed(pairs, candidates, i, foreseen, most_gone, samples, farthest, moved, sides, sees):
    """Write the samples in view of sensor i from each heading at each sub-step into `sees` (H + 1, W, K + CHUNK).

    `most_gone` is the largest displacement of a target relative to the sensor, which moves by `moved` (H + 1, 2) ahead
    and to the left; None: not at all. `foreseen` are the entries of each target; `sides` (4, E) is scratch memory.
    """
    entries, when, who, where = foreseen
    sees[:] = 0
    half_view = np.float32(pairs[i, :, VIEW].max() * 180.0)
    per_turn = np.float32(1.0 / max(pairs[i, :, TURN].max() * 180.0, 1e-6))
    most = np.float32(farthest)
    for s in range(pairs.shape[1]):
        own = pairs[i, s]
        if not candidates.valid[i, s] or own[DISTANCE] > own[RANGE] + most_gone:
            continue
        speed = math.hypot(own[RADIAL], own[TANGENTIAL])
        east = np.float32((own[COS] * own[RADIAL] - own[SIN] * own[TANGENTIAL]) / speed if speed > 0.0 else 1.0)
        north = np.float32((own[SIN] * own[RADIAL] + own[COS] * own[TANGENTIAL]) / speed if speed > 0.0 else 0.0)
        at_x, at_y, squared = own[COS] * own[DISTANCE], own[SIN] * own[DISTANCE], own[RANGE] * own[RANGE]
        j = candidates.targets[i, s]
        ahead, aside = where[j, 0], where[j, 1]
        for e in range(entries[j]):
            x = at_x + east * ahead[e] - north * aside[e]
            y = at_y + north * ahead[e] + east * aside[e]
            if moved is not None:
                x -= moved[when[j, e], 0]
                y -= moved[when[j, e], 1]
            write_sides(sides, e, x, y, x * x + y * y <= squared, half_view, per_turn, most)
        word, bit = bits_of(s, samples)
        for e in range(entries[j]):
            row, members = sees[when[j, e], word], who[j, e] << bit
            for k in range(4):
                row[np.uint64(sides[k, e])] ^= members
    for h in range(1, sees.shape[0]):
        for w in range(sees.shape[1]):
            row, members = sees[h, w], np.uint64(0)
            for k in range(2 * farthest + 1):
                members ^= row[k]
                row[k] = members


@kernel
def plan(pairs, mask, targets, history, walk, motion, search, draws, values, own, share):
    """Write the values (B, n, 3) of the next actions of B scenes, on rails (B, 2 n, 3).

    Pairs are (B, n, k, 8), with limits (B, n, k, 10), on rails (B, n, k, 11). They list `targets` (B, n, k); None: all
    m in order. `history` are the arrays of the :class:`~hitmac.agents.baselines.planner.PlannerState`; memory and plans
    are changed in place. `motion` is None without rails, `draws` are those of :func:`foresee_observed`, and `own` is
    the window (0: disabled) and the output (B, n, m) of :func:`write_exclusive_shares`.
    """
    old_pairs, old_mask, memory, clock, steps, kept, kept_ways, old_targets = history
    (n, k), m, samples, horizon = mask.shape[1:], memory.shape[1], search.samples, search.looks.shape[0] - 1
    most = horizon * (samples + 1 if samples > 1 else 1)
    moves, sides = np.empty(horizon + 1), np.empty((4, most), np.int32)
    foreseen = (
        np.empty(m, np.int64), np.empty((m, most), np.int32), np.empty((m, most), np.uint64),
        np.empty((m, 2, most), np.float32),
    )  # fmt: skip
    entries, when, who, where = foreseen
    room = make_room(search, n, (k - 1) // (64 // samples) + 1, 1 if motion is None else 3)
    moved, in_order = np.zeros((horizon + 1, 2), np.float32), np.empty((n, k), np.int32)
    in_order[:] = np.arange(k)
    for low, high in blocks(pairs.shape[0], share):
        for b in range(low, high):
            new, valid, old, old_valid = pairs[b], mask[b], old_pairs[b], old_mask[b]
            listed, before = in_order, in_order
            if targets is not None:
                listed, before = targets[b], _places_before(targets[b], valid, old_targets[b], old_valid)
            candidates = candidate_pairs(listed, valid, m)
            extra = walk.every > 0 and walk.exact and moved_twice(new, valid, old, old_valid, before, walk)
            remember(new, old, old_valid, candidates, before, walk, motion, 2.0 if extra else 1.0, memory[b])
            if extra:
                clock[b] = 1
            elif clock[b] >= 0 and steps[b] > 0:
                clock[b] += 1
            for h in range(1, horizon + 1):
                if clock[b] >= 0:
                    moves[h] = h + (clock[b] + h - 1) // walk.every - (clock[b] - 1) // walk.every
                else:
                    moves[h] = h * (1.0 + 1.0 / walk.every) if walk.every > 0 else h
            for j in range(m):
                centre = middle(new, valid, candidates, j) if walk.goals and samples > 1 else (0.0, 0.0)
                entries[j] = foresee_observed(memory[b, j], centre, walk, moves, draws, when[j], who[j], where[j])
            most_gone = moves[horizon] * walk.step * max(1.0 + walk.noise, memory[b, :, COURSE_SPEED].max())
            for i in range(n):
                turn, half_view = new[i, :, TURN].max() * 180.0, new[i, :, VIEW].max() * 180.0
                east, north = (new[i, 0, HEADING_COS], new[i, 0, HEADING_SIN]) if search.limited else (1.0, 0.0)
                write_reach(search, room, i, half_view, turn, turn > 0.0, east, north)
                farthest, sees = room.farthest[i], room.sees[i]
                _mark_observed(new, candidates, i, foreseen, most_gone, samples, farthest, None, sides, sees[0])
                if motion is not None:
                    rail = rail_of(motion.rails, i)
                    along = new[i, 0, ALONG] * motion.rails.length[rail]
                    for way in range(1, sees.shape[0]):
                        for h in range(1, horizon + 1):
                            steps_on = h if way == FORWARD else -h
                            place = gone_along(motion.rails, rail, along, steps_on * motion.rail_step)
                            moved[h] = _ride(motion, new[i, 0], i, along, place)
                        _mark_observed(
                            new, candidates, i, foreseen, most_gone + horizon * motion.step, samples, farthest, moved,
                            sides, sees[way],
                        )  # fmt: skip
            ascend(search, room, None if targets is None else candidates, steps[b], kept[b], kept_ways[b], values[b])
            if own[0] > 0:
                write_exclusive_shares(search, room, own[0], own[1][b])
            steps[b] += 1
