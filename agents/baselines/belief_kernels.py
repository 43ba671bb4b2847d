"""Planning on beliefs: particles are tracked, and their futures are the samples of the planner. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.planner_kernels import degrees, improve
from hitmac.agents.tracking.particle_kernels import (
    COUNT,
    VIEW_CHANCE,
    VIEW_COS,
    VIEW_RANGE,
    VIEW_SIN,
    VIEW_X,
    VIEW_Y,
    advance,
    look_in_vain,
    pin,
    scatter,
)  # fmt: skip
from hitmac.agents.tracking.walk_models import MOVES, SPEED, STEP, WalkModel, X, Y, move
from hitmac.envs.kernels.compiled import allocating, inlined, kernel
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform
from hitmac.envs.kernels.threads import blocks

# Columns of what a row of knowledge says of a target: place, velocity, sub-steps since then (inf: not known).
PLACE_X, PLACE_Y, SPEED_X, SPEED_Y, AGE = range(5)
_LENGTHS = np.uint64(1 << 32)  # where the draws of a future's lengths begin in its stream


class Rules(NamedTuple):
    """What the planner knows of the scenario."""

    walk: WalkModel
    every: int  # sub-steps between extra moves; 0: none
    deviation: float  # of observed positions
    all_known: bool  # a target that is not shown is not there
    returns: bool  # a target that has left can return
    half_view: np.ndarray  # (n,) degrees
    turn: np.ndarray  # (n,) degrees
    key: np.uint64  # stream of the futures


@inlined
def _moves(rules, time):
    """Return the number of moves of the targets in the sub-step that begins at `time`."""
    return 2 if rules.every > 0 and time % rules.every == 0 else 1


@allocating
def _track(rules, belief, r, known, views, time, last_age, there):
    """Take an observation into the belief of row r, and write into `there` (m,) which targets to plan for.

    Args:
        rules: the scenario.
        belief: beliefs of all rows.
        r: row.
        known: (m, 5) what the row knows.
        views: (n, 7) views of those sensors that would have reported a target in view.
        time: sub-steps since the episode began.
        last_age: (m,) age of what was known at the last observation, changed in place; inf: nothing.
        there: (m,) bool result.
    """
    moves = _moves(rules, time - 1) if time > 0 else 0
    for j in range(known.shape[0]):
        age = known[j, AGE]
        there[j] = age < np.inf or (not rules.all_known and (rules.returns or there[j]))
        if age < min(last_age[j] + 1.0, 1000.0):
            x, y = known[j, PLACE_X], known[j, PLACE_Y]
            pin(rules.walk, belief, r, j, x, y, known[j, SPEED_X], known[j, SPEED_Y], rules.deviation)
            for back in range(int(age), 0, -1):
                for _ in range(_moves(rules, time - back)):
                    advance(rules.walk, belief, r, j)
        else:
            belief.course[r, j, COUNT] = 0.0
            if age == np.inf and last_age[j] < np.inf:
                there[j] = rules.returns and not rules.all_known
                scatter(rules.walk, belief, r, j, views)
            for _ in range(moves):
                advance(rules.walk, belief, r, j)
            look_in_vain(rules.walk, belief, r, j, views)
        last_age[j] = age


@allocating
def _foresee(rules, body, weight, together, time, j, horizon, samples, when, who, where):
    """Write where a target can be at each sub-step: the futures of particles, drawn at even steps of their weights.

    Entry e: at sub-step `when[e]`, the samples in the bits `who[e]` are at `where[:, e]`. If all particles go the same
    way, `together`, samples share an entry until they turn. The draws of a future depend only on target, sample, number
    of turns and time, so that plans of consecutive sub-steps are for the same futures.

    Returns:
        The number of entries.
    """
    one = np.empty((body.shape[0], 1))
    entries = horizon if together else 0
    when[:entries], who[:entries], where[:, :entries] = 1, 0, 0.0  # in case that no sample goes so far straight on
    total, source = weight[0], 0
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        one[:, 0] = body[:, source]
        key, counter = mix(rules.key + np.uint64(j * 64 + s) * GOLDEN), np.uint64(0)
        bit, straight = np.uint64(1) << np.uint64(s), together
        for h in range(1, horizon + 1):
            for k in range(_moves(rules, time + h - 1)):
                before = one[MOVES, 0]
                counter = move(rules.walk, one, 0, key, counter, 0.5)
                straight = straight and one[MOVES, 0] >= before
                draw = uniform(key, _LENGTHS + np.uint64(2 * (time + h) + k))
                one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
            e = h - 1 if straight else entries
            if straight:
                who[e] |= bit
            else:
                who[e] = bit
                entries += 1
            when[e] = h
            where[0, e], where[1, e] = one[X, 0], one[Y, 0]
    return entries


@allocating
def _mark(view, half_view, turn, entries, when, who, where, there, samples, farthest, sides, sees):
    """Write the samples that a sensor has in view from each heading at each sub-step into `sees` (H + 1, W, K + 1).

    The samples of as many targets as fit share a word, from bit 0 on. `sides` (4, E) is scratch memory.
    """
    sees[:] = 0
    x, y = np.float32(view[VIEW_X]), np.float32(view[VIEW_Y])
    c, s = np.float32(view[VIEW_COS]), np.float32(view[VIEW_SIN])
    half_view, per_turn, squared = np.float32(half_view), np.float32(1.0 / turn), np.float32(view[VIEW_RANGE])
    most, full, zero, one = np.float32(farthest), np.float32(360.0), np.float32(0.0), np.float32(1.0)
    targets_per_word = 64 // samples
    for j in range(there.shape[0]):
        number = entries[j]
        if not there[j]:
            continue
        for e in range(number):
            dx, dy = where[j, 0, e] - x, where[j, 1, e] - y
            bearing = degrees(c * dy - s * dx, c * dx + s * dy)
            again = bearing - full if bearing > zero else bearing + full  # the same bearing, a whole turn away
            half = half_view if dx * dx + dy * dy <= squared else zero
            # In view from the first side on, and no longer from the second on; the interval is empty if out of range.
            first = np.floor((bearing - half) * per_turn) + one
            last = np.ceil((bearing + half) * per_turn) if half > zero else first
            other_first = np.floor((again - half) * per_turn) + one
            other_last = np.ceil((again + half) * per_turn) if half > zero else other_first
            sides[0, e] = np.int32(min(max(first, -most), most + one) + most)
            sides[1, e] = np.int32(min(max(last, -most), most + one) + most)
            sides[2, e] = np.int32(min(max(other_first, -most), most + one) + most)
            sides[3, e] = np.int32(min(max(other_last, -most), most + one) + most)
        word, shift = j // targets_per_word, np.uint64(j % targets_per_word * samples)
        for e in range(number):
            row = sees[when[j, e], word]
            members = who[j, e] << shift
            for k in range(4):
                row[np.uint64(sides[k, e])] ^= members
    for h in range(1, sees.shape[0]):
        for w in range(sees.shape[1]):
            row = sees[h, w]
            members = np.uint64(0)
            for k in range(2 * farthest + 1):
                members ^= row[k]
                row[k] = members


@allocating
def _plan_rows(rules, search, weight, samples, belief, known, views, reports, time, memory, values, low, high):
    """Track, and write the values (n, 3) of the first turns, of the rows of knowledge `low` to `high` - 1.

    Args:
        rules: the scenario.
        search: options.
        weight: (H + 1,) float32 weight of a sample at each sub-step.
        samples: number of futures of each target.
        belief: beliefs of the rows, changed in place.
        known: (R, m, 5) what each row knows.
        views: (R, n, 7) views of the sensors; those that do not work have a range of 0.
        reports: (R, n) probability that a sensor detects a target in view and that the row is told at once.
        time: (R,) sub-steps since the episode began.
        memory: `last_age` (R, m), `there` (R, m) and `kept` (R, n, H + 1) plans, changed in place.
        values: (R, n, 3) result.
        low: first row.
        high: last row + 1.
    """
    last_age, there, kept = memory
    n, m, horizon = views.shape[1], known.shape[1], weight.shape[0] - 1
    words, headings, room = (m - 1) // (64 // samples) + 1, 2 * search.farthest + 1, horizon * (samples + 1)
    entries, sides = np.empty(m, np.int64), np.empty((4, room), np.int32)
    when, who, where = np.empty((m, room), np.int32), np.empty((m, room), np.uint64), np.empty((m, 2, room), np.float32)
    sees = np.empty((n, horizon + 1, words, headings + 1), np.uint64)
    farthest, planned, looks = np.empty(n, np.int64), np.empty(n, np.bool_), np.empty((n, 7))
    plans, best_plans = np.zeros((n, horizon + 1), np.int64), np.zeros((n, horizon + 1), np.int64)
    covers, own_values = np.zeros((n, horizon + 1, words), np.uint64), np.empty((n, 3))
    scratch = (
        np.empty((horizon + 1, words), np.uint64), np.empty((horizon + 2, headings + 2), np.float32),
        np.empty(headings, np.float32), np.empty(horizon + 1, np.int64),
    )  # fmt: skip
    for r in range(low, high):
        looks[:] = views[r]
        looks[:, VIEW_CHANCE] = reports[r]
        _track(rules, belief, r, known[r], looks, time[r], last_age[r], there[r])
        for j in range(m):
            if there[r, j]:
                moving = known[r, j, SPEED_X] != 0.0 or known[r, j, SPEED_Y] != 0.0
                together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0
                entries[j] = _foresee(
                    rules, belief.body[r, j], belief.weight[r, j], together, time[r], j, horizon, samples,
                    when[j], who[j], where[j],
                )  # fmt: skip
        for i in range(n):
            works = views[r, i, VIEW_RANGE] > 0.0
            farthest[i] = min(search.farthest, math.ceil(180.0 / rules.turn[i])) if works else 0
            _mark(
                views[r, i], rules.half_view[i], rules.turn[i], entries, when, who, where, there[r], samples,
                farthest[i], sides, sees[i],
            )  # fmt: skip
        highest = -np.inf
        for candidate in range(search.restarts + 1):
            planned[:] = candidate == 0 and time[r] > 0
            for i in range(n):
                for h in range(1, horizon + 1):
                    plans[i, h] = min(max(kept[r, i, h], -farthest[i]), farthest[i]) if planned[i] else 0
            order = time[r] * search.restarts + candidate
            total = improve(sees, weight, search, farthest, order, planned, plans, covers, own_values, scratch)
            if total > highest:
                highest = total
                best_plans[:] = plans
                values[r] = own_values
        for i in range(n):
            for h in range(1, horizon + 1):
                kept[r, i, h] = best_plans[i, min(h + 1, horizon)] - best_plans[i, 1]


@kernel
def plan_beliefs(rules, search, weight, samples, belief, known, views, reports, time, memory, values, share):
    """Track and plan for the blocks of rows that fall to this thread; see :func:`_plan_rows`."""
    for low, high in blocks(known.shape[0], share):
        _plan_rows(rules, search, weight, samples, belief, known, views, reports, time, memory, values, low, high)
