"""Search for plans of all sensors, given forecasts of the targets. Compiled by numba.

A plan of a sensor is a heading for each sub-step of the horizon, in turns from its present heading. Samples of the
targets' futures are bits of 64-bit words, so that sets of samples in view are joined and counted at once.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.forecast import (
    COS,
    DISTANCE,
    RADIAL,
    RANGE,
    SIN,
    SPEED,
    TANGENTIAL,
    TURN,
    VIEW,
    foresee,
    middle,
    moved_twice,
    remember,
)  # fmt: skip
from hitmac.agents.baselines.words import alone, size
from hitmac.envs.kernels.compiled import allocating, inlined, kernel
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY
from hitmac.envs.kernels.threads import blocks


class Search(NamedTuple):
    """Options of the search."""

    farthest: int  # most turns to either side, of any sensor
    restarts: int
    rounds: int
    turn_cost: float


@inlined
def degrees(y, x):
    """Return ``atan2(y, x)`` in degrees and float32, to 1e-5, by a polynomial, which the compiler can vectorise.

    The polynomial for atan on [0, 1] is 4.4.49 of Abramowitz and Stegun, Handbook of Mathematical Functions (1964).
    """
    one = np.float32
    across, along = abs(y), abs(x)
    ratio = min(across, along) / max(max(across, along), one(1e-30))
    s = ratio * ratio
    angle = ratio * (
        one(57.29577951)
        + s * (one(-19.09848529) + s * (one(11.45546107) + s * (one(-8.14008784) + s * (one(6.10559287)
        + s * (one(-4.31378128) + s * (one(2.45854439) + s * (one(-0.92647698) + s * one(0.16422854))))))))
    )  # fmt: skip
    angle = one(90.0) - angle if across > along else angle
    angle = one(180.0) - angle if x < one(0.0) else angle
    return angle if y >= one(0.0) else -angle


@allocating
def _mark(pairs, mask, i, entries, when, who, where, most_gone, samples, farthest, sides, sees):
    """Write the samples that sensor i has in view from each heading at each sub-step into `sees` (H + 1, W, K + 1).

    The samples of as many targets as fit share a word, from bit 0 on. No target goes farther than `most_gone`. `sides`
    (4, E) is scratch memory.
    """
    sees[:] = 0
    half_view = np.float32(pairs[i, :, VIEW].max() * 180.0)
    per_turn = np.float32(1.0 / max(pairs[i, :, TURN].max() * 180.0, 1e-6))
    most, full, zero = np.float32(farthest), np.float32(360.0), np.float32(0.0)
    targets_per_word = 64 // samples
    for j in range(mask.shape[1]):
        own = pairs[i, j]
        if mask[i, j] == 0 or own[DISTANCE] > own[RANGE] + most_gone:
            continue
        speed = math.hypot(own[RADIAL], own[TANGENTIAL])
        east = np.float32((own[COS] * own[RADIAL] - own[SIN] * own[TANGENTIAL]) / speed if speed > 0.0 else 1.0)
        north = np.float32((own[SIN] * own[RADIAL] + own[COS] * own[TANGENTIAL]) / speed if speed > 0.0 else 0.0)
        at_x, at_y, squared = own[COS] * own[DISTANCE], own[SIN] * own[DISTANCE], own[RANGE] * own[RANGE]
        ahead, aside = where[j, 0], where[j, 1]
        for e in range(entries[j]):
            x = at_x + east * ahead[e] - north * aside[e]
            y = at_y + north * ahead[e] + east * aside[e]
            bearing = degrees(y, x)
            again = bearing - full if bearing > zero else bearing + full  # the same bearing, a whole turn away
            half = half_view if x * x + y * y <= squared else zero
            # In view from the first side on, and no longer from the second on; the interval is empty if out of range.
            first = np.floor((bearing - half) * per_turn) + np.float32(1.0)
            last = np.ceil((bearing + half) * per_turn) if half > zero else first
            other_first = np.floor((again - half) * per_turn) + np.float32(1.0)
            other_last = np.ceil((again + half) * per_turn) if half > zero else other_first
            sides[0, e] = np.int32(min(max(first, -most), most + np.float32(1.0)) + most)
            sides[1, e] = np.int32(min(max(last, -most), most + np.float32(1.0)) + most)
            sides[2, e] = np.int32(min(max(other_first, -most), most + np.float32(1.0)) + most)
            sides[3, e] = np.int32(min(max(other_last, -most), most + np.float32(1.0)) + most)
        word, shift = j // targets_per_word, np.uint64(j % targets_per_word * samples)
        for e in range(entries[j]):
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
def _best_plan(sees, covered, weight, farthest, turn_cost, value, gain, plan):
    """Write the best plan (H + 1,), given the samples that others cover; ties go to staying, then to the left.

    ``value[h, k + farthest + 1]`` is the highest value of the sub-steps from h on, with heading k at sub-step h: the
    samples that no other sensor covers, times `weight` (H + 1,), less `turn_cost` for every turn after h.
    """
    horizon = plan.shape[0] - 1
    cost = np.float32(turn_cost)
    middle = farthest + 1
    for h in range(1, horizon + 2):
        value[h, 0] = value[h, middle + middle] = -np.inf
    value[horizon + 1, 1 : middle + middle] = 0.0
    for h in range(horizon, 0, -1):
        reach = min(h, farthest)
        low, number = farthest - reach, 2 * reach + 1
        gain[:number] = 0.0
        for w in range(sees.shape[1]):
            free = ~covered[h, w]
            members = sees[h, w, low : low + number]
            for k in range(number):
                gain[k] += np.float32(size(members[k] & free))
        right, stay, left = value[h + 1, low:], value[h + 1, low + 1 :], value[h + 1, low + 2 :]
        now = value[h, low + 1 :]
        for k in range(number):
            turned = (left[k] if left[k] > right[k] else right[k]) - cost
            now[k] = (stay[k] if stay[k] >= turned else turned) + weight[h] * gain[k]
    heading = middle
    for h in range(1, horizon + 1):
        best = heading
        if value[h, heading + 1] - cost > value[h, best]:
            best = heading + 1
        if value[h, heading - 1] - cost > value[h, best] - (cost if best != heading else np.float32(0.0)):
            best = heading - 1
        heading = best
        plan[h] = heading - middle


@allocating
def improve(sees, weight, search, farthest, order, planned, plans, covers, values, scratch):
    """Let each sensor in turn take its best plan, until no plan changes; return the joint value.

    Args:
        sees: (n, H + 1, W, K + 1) samples in view.
        weight: (H + 1,) weight of a sample at a sub-step.
        search: options.
        farthest: (n,) most turns to either side.
        order: number of the order of the sensors; odd ones run backwards.
        planned: (n,) bool, the sensors that already have a plan; all have one afterwards.
        plans: (n, H + 1) plans, changed in place.
        covers: (n, H + 1, W) samples that each sensor's plan covers, changed in place.
        values: (n, 3) result: value of staying, turning left and turning right.
        scratch: arrays of undefined content.
    """
    n, horizon = plans.shape[0], plans.shape[1] - 1
    covered, value, gain, old = scratch
    for i in range(n):
        _cover(sees[i], farthest[i], planned[i], plans[i], covers[i])
    for _ in range(search.rounds):
        changed = False
        for q in range(n):
            i = (order + q if order // n % 2 == 0 else order - q) % n
            covered[:] = 0
            for other in range(n):
                if other != i:
                    covered |= covers[other]
            old[:] = plans[i]
            _best_plan(sees[i], covered, weight, farthest[i], search.turn_cost, value, gain, plans[i])
            _cover(sees[i], farthest[i], True, plans[i], covers[i])
            now = farthest[i] + 1
            values[i, STAY] = value[1, now]
            values[i, LEFT] = value[1, now + 1] - search.turn_cost
            values[i, RIGHT] = value[1, now - 1] - search.turn_cost
            for h in range(1, horizon + 1):
                changed |= plans[i, h] != old[h]
        if not changed:
            break
    total = 0.0
    for h in range(1, horizon + 1):
        for w in range(covers.shape[2]):
            members = np.uint64(0)
            for i in range(n):
                members |= covers[i, h, w]
            total += weight[h] * size(members)
        for i in range(n):
            total -= search.turn_cost * abs(plans[i, h] - plans[i, h - 1])
    return total


@inlined
def _cover(sees, farthest, planned, plan, covers):
    """Write the samples (H + 1, W) that a plan covers; none if there is no plan."""
    for h in range(1, plan.shape[0]):
        for w in range(covers.shape[1]):
            covers[h, w] = sees[h, w, farthest + plan[h]] if planned else np.uint64(0)


@allocating
def _plan_scenes(pairs, mask, history, walk, search, weight, futures, values, own, low, high):
    """Write the values (n, 3) of the first turns, and the history for the next call, of the scenes `low` to `high` - 1.

    Args:
        pairs: (B, n, m, 8) features.
        mask: (B, n, m) valid pairs.
        history: arrays of the history, changed in place, except the observation.
        walk: rule of the targets' walk.
        search: options.
        weight: (H + 1,) float32 weight of a sample at each sub-step.
        futures: draws for the targets' futures: `first`, `later` and `wandering` of :func:`foresee`.
        values: (B, n, 3) result.
        own: window and result (B, n, m) of :func:`hitmac.agents.baselines.words.alone`; (0, 0, 0): not asked for.
        low: first scene.
        high: last scene + 1.
    """
    old_pairs, old_mask, memory, clock, steps, kept = history
    first, later, wandering = futures
    window, shares = own
    n, m, samples, horizon = mask.shape[1], mask.shape[2], first.shape[0], weight.shape[0] - 1
    words, headings = (m - 1) // (64 // samples) + 1, 2 * search.farthest + 1
    moves = np.empty(horizon + 1)
    entries, room = np.empty(m, np.int64), horizon * (samples + 1 if samples > 1 else 1)
    when, who = np.empty((m, room), np.int32), np.empty((m, room), np.uint64)
    where, sides = np.empty((m, 2, room), np.float32), np.empty((4, room), np.int32)
    sees = np.empty((n, horizon + 1, words, headings + 1), np.uint64)
    farthest, planned = np.empty(n, np.int64), np.empty(n, np.bool_)
    plans, best_plans = np.zeros((n, horizon + 1), np.int64), np.zeros((n, horizon + 1), np.int64)
    covers, own_values = np.zeros((n, horizon + 1, words), np.uint64), np.empty((n, 3))
    scratch = (
        np.empty((horizon + 1, words), np.uint64), np.empty((horizon + 2, headings + 2), np.float32),
        np.empty(headings, np.float32), np.empty(horizon + 1, np.int64),
    )  # fmt: skip
    for b in range(low, high):
        extra = walk.every > 0 and walk.exact and moved_twice(pairs[b], mask[b], old_pairs[b], old_mask[b], walk)
        remember(pairs[b], mask[b], old_pairs[b], old_mask[b], walk, 2.0 if extra else 1.0, memory[b])
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
            centre = middle(pairs[b], mask[b], j) if walk.goals and samples > 1 else (0.0, 0.0)
            entries[j] = foresee(memory[b, j], centre, walk, moves, first, later, wandering, when[j], who[j], where[j])
        most_gone = moves[horizon] * walk.step * max(1.0 + walk.noise, memory[b, :, SPEED].max())
        for i in range(n):
            turn = pairs[b, i, :, TURN].max() * 180.0
            farthest[i] = min(horizon, search.farthest, math.ceil(180.0 / turn)) if turn > 0.0 else 0
            _mark(pairs[b], mask[b], i, entries, when, who, where, most_gone, samples, farthest[i], sides, sees[i])
        highest = -np.inf
        for candidate in range(search.restarts + 1):
            planned[:] = candidate == 0 and steps[b] > 0
            for i in range(n):
                for h in range(1, horizon + 1):
                    plans[i, h] = min(max(kept[b, i, h], -farthest[i]), farthest[i]) if planned[i] else 0
            order = steps[b] * search.restarts + candidate
            total = improve(sees, weight, search, farthest, order, planned, plans, covers, own_values, scratch)
            if total > highest:
                highest = total
                best_plans[:] = plans
                values[b] = own_values
                if shares.size > 0:
                    alone(covers, window, samples, shares[b])
        for i in range(n):
            for h in range(1, horizon + 1):
                kept[b, i, h] = best_plans[i, min(h + 1, horizon)] - best_plans[i, 1]
        steps[b] += 1


@kernel
def plan(pairs, mask, history, walk, search, weight, futures, values, own, share):
    """Plan for the blocks of scenes that fall to this thread; see :func:`_plan_scenes`."""
    for low, high in blocks(pairs.shape[0], share):
        _plan_scenes(pairs, mask, history, walk, search, weight, futures, values, own, low, high)
