"""Forecasts of the targets from observations, for the planner. Compiled by numba.

Lengths are in units of the observation feature `distance`, speeds are relative to the scenario's top speed.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.links import farthest_link
from hitmac.envs.kernels.compiled import allocating, inlined
from hitmac.envs.kernels.rails import gone_along, rail_of, way_between
from hitmac.envs.kernels.state import Rails

# Features of a pair, the heading's with pan limits or on rails only, the last on rails only.
SIN, COS, DISTANCE, RADIAL, TANGENTIAL, VIEW, RANGE, TURN, HEADING_SIN, HEADING_COS, ALONG = range(11)
# Memory of a target: moves since its last turn (-1: unknown), observations since then, their mean speed, last speed.
MOVES, SEEN, SPEED, SHOWN = range(4)
STRAIGHT = 0.03  # largest sine of the angle between two velocities of a target that has not turned


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


@allocating
def _ride(motion, features, i, along, other):
    """Return the way from one place on the rail of sensor i to another, ahead and to the left of its heading."""
    r = rail_of(motion.rails, i)
    dx, dy = way_between(motion.rails, r, along, other)
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
def moved_twice(pairs, mask, old_pairs, old_mask, links, walk):
    """Return True if targets moved twice since the last observation: they were not there before their last move."""
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            before = j if links is None else links.before[i, j]
            if mask[i, j] and before >= 0 and old_mask[i, before]:
                now = pairs[i, j]
                along = now[DISTANCE] - now[RADIAL] * walk.step
                across = now[TANGENTIAL] * walk.step
                error = abs(math.sqrt(along * along + across * across) - old_pairs[i, before, DISTANCE])
                if 1e-5 < error < 1.5 * walk.step:
                    return True
    return False


@allocating
def remember(pairs, mask, old_pairs, old_mask, links, walk, motion, moves, memory):
    """Update the memory (m, 4) of the targets, which have made `moves` moves since the last observation.

    `links` are the :class:`~hitmac.agents.baselines.links.Links` of pairs that are listed; None: all are there.
    """
    for j in range(memory.shape[0]):
        best, place, old_place = -1, j, j  # farthest sensor: there the line of sight changes least
        if links is None:
            for i in range(mask.shape[0]):
                if mask[i, j] and (best < 0 or pairs[i, j, DISTANCE] > pairs[best, j, DISTANCE]):
                    best = i
        else:
            best, place, old_place = farthest_link(pairs, links, j)
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
                memory[j, MOVES] += moves if memory[j, MOVES] >= 0.0 else 0.0
                memory[j, SEEN] += 1.0
                memory[j, SPEED] += (speed - memory[j, SPEED]) / memory[j, SEEN]
                continue
            memory[j, MOVES] = 1.0 if turned and not jumped else -1.0
        else:
            memory[j, MOVES] = -1.0
        memory[j, SEEN] = 1.0
        memory[j, SPEED] = speed


@allocating
def middle(pairs, mask, links, j):
    """Return the mean place of all sensors and targets, ahead and to the left of target j on its course.

    Of pairs that are listed by `links`, it is that of the sensors that list target j and of the targets of the first.
    """
    x, y, number = 0.0, 0.0, 0
    for e in range(mask.shape[0] if links is None else links.first[j + 1] - links.first[j]):
        i, place = (e, j) if links is None else (links.sensor[links.first[j] + e], links.place[links.first[j] + e])
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
def _to_border(x, y, ahead, aside, radius):
    """Return the distance from (x, y), in a direction, to the border of the disc of a radius about the origin."""
    along = x * ahead + y * aside
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
def _moves_on_course(walk, step, moves, x, y, first):
    """Return how many more moves a target at (x, y) from the middle makes on its course, for draws (3,).

    Goals are uniform in the arena: the density of the goal's distance from the last turn grows with that distance.
    """
    ahead = _to_border(x, y, 1.0, 0.0, walk.arena)
    if moves < 0.0:
        moves = first[0] * min(walk.patience, _to_border(x, y, -1.0, 0.0, walk.arena) / step)
    gone = moves * step
    goal = math.sqrt(gone * gone + first[1] * ((gone + ahead) * (gone + ahead) - gone * gone))
    left = min((goal - gone) / step, max(walk.patience + 1.0 - moves, 0.0))
    return min(left, _moves_until_stuck(walk, step / (1.0 + 0.5 * walk.noise), first[2]))


@allocating
def foresee(remembered, centre, walk, moves, first, later, wandering, when, who, where):
    """Write where a target can be at each sub-step, ahead and to the left of its present place on its course.

    Entry e: at sub-step `when[e]`, the samples in the bits `who[e]` are at `where[:, e]`. Samples that have not turned
    yet share an entry.

    Args:
        remembered: memory (4,) of the target.
        centre: place (x, y) of the middle of the arena.
        walk: rule of the walk.
        moves: (H + 1,) number of moves until each sub-step.
        first: (S, 3) draws in (0, 1) for the present course.
        later: (S, D, 4) draws for goal, speed and length of the later ones.
        wandering: (S, M + 1, 2) places after 0 to M moves of length 1, without goals.
        when: (E,) result.
        who: (E,) result.
        where: (2, E) result.

    Returns:
        The number of entries.
    """
    horizon = moves.shape[0] - 1
    samples = first.shape[0]
    step = remembered[SPEED] * walk.step
    everyone = ~np.uint64(0) >> np.uint64(64 - samples)
    if not walk.goals:
        for s in range(wandering.shape[0]):
            for h in range(1, horizon + 1):
                e = s * horizon + h - 1
                when[e], who[e] = h, np.uint64(1) << np.uint64(s)
                where[0, e] = wandering[s, round(moves[h]), 0] * step
                where[1, e] = wandering[s, round(moves[h]), 1] * step
        return samples * horizon
    if samples == 1 or remembered[SHOWN] == 0.0:
        for h in range(1, horizon + 1):
            when[h - 1], who[h - 1] = h, everyone
            where[0, h - 1], where[1, h - 1] = moves[h] * step, 0.0
        return horizon
    for h in range(1, horizon + 1):
        when[h - 1], who[h - 1] = h, 0
        where[0, h - 1], where[1, h - 1] = moves[h] * step, 0.0
    entries = horizon
    for s in range(samples):
        bit = np.uint64(1) << np.uint64(s)
        left = 0.0
        if remembered[SHOWN] * walk.step >= walk.stuck:
            left = _moves_on_course(walk, step, remembered[MOVES], -centre[0], -centre[1], first[s])
        h = 1
        while h <= horizon and moves[h] <= left:
            who[h - 1] |= bit
            h += 1
        x, y, ahead, aside, at, pace, turns = left * step, 0.0, 1.0, 0.0, left, step, 0
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
