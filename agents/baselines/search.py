"""Search for the best plans of all sensors, given the samples of the targets that each can have in view.

A plan of a sensor is a heading for each sub-step of the horizon, in turns from its present heading, and on rails also a
way to move. Samples of the targets' futures are bits of 64-bit words, so that sets of samples in view are joined and
counted at once. Compiled by numba.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.links import covered_by_all, covered_by_others
from hitmac.agents.baselines.views import CHUNK
from hitmac.agents.baselines.words import alone, size
from hitmac.envs.kernels.compiled import allocating, inlined
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY


class Search(NamedTuple):
    """Options of the search."""

    farthest: int  # most turns to either side, of any sensor
    restarts: int
    rounds: int
    turn_cost: float
    looks: np.ndarray  # (H + 1,) int64: number of the look that counts for a sub-step, from 1 on


@allocating
def _best_plan(looks, sees, covered, weight, farthest, turn_cost, value, gain, plan, limits, most):
    """Write the best plan (H + 1,), given the samples that others cover; ties go to staying, then to the left.

    With `limits` no heading is more than `most` (2,) turns to the right and to the left.

    ``value[h, k + farthest + 1]`` is the highest value of the sub-steps from h on, with heading k at sub-step h: the
    samples that no other sensor covers, times `weight` (H + 1,), less `turn_cost` for every turn after h.
    """
    horizon = plan.shape[0] - 1
    cost = np.float32(turn_cost)
    middle = farthest + 1
    for h in range(1, horizon + 2):
        value[h, 0] = value[h, middle + middle] = -np.inf
    value[horizon + 1, 1 : middle + middle] = 0.0
    counted = 0
    for h in range(horizon, 0, -1):
        reach = min(h, farthest)
        low, number = farthest - reach, 2 * reach + 1
        # Loops over whole chunks have no remainder. What they write beyond the reach is not read.
        padded = (number + CHUNK - 1) // CHUNK * CHUNK
        if looks[h] != counted:
            counted = looks[h]
            gain[low : low + padded] = 0.0
            for w in range(sees.shape[1]):
                free = ~covered[counted, w]
                found, members = gain[low : low + padded], sees[counted, w, low : low + padded]
                for k in range(padded):
                    found[k] += np.float32(size(members[k] & free))
        right, stay, left = value[h + 1, low:], value[h + 1, low + 1 :], value[h + 1, low + 2 :]
        found, now, worth = gain[low:], value[h, low + 1 :], weight[h]
        for k in range(padded):
            turned = (left[k] if left[k] > right[k] else right[k]) - cost
            now[k] = (stay[k] if stay[k] >= turned else turned) + worth * found[k]
        value[h, middle + middle] = -np.inf
        if limits is not None:
            for k in range(number):
                if not -most[0] <= low + k - farthest <= most[1]:
                    value[h, low + 1 + k] = -np.inf
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
def improve(
    sees, weight, search, farthest, order, planned, ways, plans, covers, values, scratch, limits, reach, links, samples
):
    """Let each sensor in turn take its best plan, until no plan changes; return the joint value.

    Args:
        sees: (n, A, L + 1, W, K + CHUNK) samples in view, for each of the A ways to move: 1, to stay, or 3 on rails, to
            stay and to move forward or back at every sub-step.
        weight: (H + 1,) weight of a sample at a sub-step.
        search: options.
        farthest: (n,) most turns to either side.
        order: number of the order of the sensors; odd ones run backwards.
        planned: (n,) bool, the sensors that already have a plan; all have one afterwards.
        ways: (n,) ways to move of these plans, changed in place.
        plans: (n, H + 1) plans, changed in place.
        covers: (n, H + 1, W) samples that each sensor's plan covers, changed in place.
        values: (n, 3) result: value of staying, turning left and turning right; with 3 ways (2 n, 3), followed by those
            of the ways.
        scratch: arrays of undefined content.
        limits: (n, 2) pan limits; None: there are none. A turn beyond them is worth what staying is.
        reach: (n, 2) most turns to the right and to the left within them.
        links: :class:`~hitmac.agents.baselines.links.Links`, where the words of each sensor are those of the targets
            that it lists; None: those of all targets.
        samples: number of samples of a target, read with links only.
    """
    n, horizon = plans.shape[0], plans.shape[1] - 1
    covered, value, gain, trial = scratch
    cost = search.turn_cost
    for i in range(n):
        _cover(search.looks, sees[i, ways[i]], farthest[i], planned[i], plans[i], covers[i])
    for _ in range(search.rounds):
        changed = False
        for q in range(n):
            i = (order + q if order // n % 2 == 0 else order - q) % n
            if links is None:
                covered[:] = 0
                for other in range(n):
                    if other != i:
                        covered |= covers[other]
            else:
                covered_by_others(links, i, samples, covers, covered)
            before, now, highest = ways[i], farthest[i] + 1, -np.inf
            for way in range(sees.shape[1]):
                _best_plan(
                    search.looks, sees[i, way], covered, weight, farthest[i], cost, value, gain, trial, limits, reach[i]
                )
                stay, left, right = value[1, now], value[1, now + 1] - cost, value[1, now - 1] - cost
                best = max(stay, left, right)
                if limits is not None:
                    left, right = (stay if reach[i, 1] == 0 else left), (stay if reach[i, 0] == 0 else right)
                if sees.shape[1] > 1:
                    values[n + i, way] = best
                if best > highest:  # ties go to staying
                    highest, ways[i] = best, way
                    values[i, STAY], values[i, LEFT], values[i, RIGHT] = stay, left, right
                    for h in range(1, horizon + 1):
                        changed |= plans[i, h] != trial[h]
                        plans[i, h] = trial[h]
            changed |= ways[i] != before
            _cover(search.looks, sees[i, ways[i]], farthest[i], True, plans[i], covers[i])
        if not changed:
            break
    total = 0.0
    for h in range(1, horizon + 1):
        if links is None:
            for w in range(covers.shape[2]):
                members = np.uint64(0)
                for i in range(n):
                    members |= covers[i, search.looks[h], w]
                total += weight[h] * size(members)
        else:
            total += weight[h] * covered_by_all(links, samples, covers, search.looks[h])
        for i in range(n):
            total -= search.turn_cost * abs(plans[i, h] - plans[i, h - 1])
    return total


@allocating
def room_for(n, horizon, looks, words, farthest, number):
    """Return arrays of undefined content for :func:`ascend`, for `number` rows of values."""
    headings = 2 * farthest + 1
    trials = (
        np.empty((n, horizon + 1), np.int64), np.empty(n, np.int64), np.empty(n, np.bool_),
        np.empty((n, looks + 1, words), np.uint64), np.empty((number, 3)),
    )  # fmt: skip
    best = np.empty((n, horizon + 1), np.int64), np.empty(n, np.int64)
    scratch = (
        np.empty((looks + 1, words), np.uint64), np.empty((horizon + 2, headings + 2 + CHUNK), np.float32),
        np.empty(headings + CHUNK, np.float32), np.empty(horizon + 1, np.int64),
    )  # fmt: skip
    return trials, best, scratch


@allocating
def ascend(sees, weight, search, farthest, limits, reach, links, step, kept, kept_ways, own, room, values):
    """Write the values of the best of several ascents, see :func:`improve`, and keep its plans for the next sub-step.

    The first ascent starts from the kept plans, after the first sub-step, and the others from nothing.

    Args:
        sees: see :func:`improve`.
        weight: the same.
        search: the same.
        farthest: the same.
        limits: the same.
        reach: the same.
        links: the same.
        step: sub-steps since the start.
        kept: (n, H + 1) plans, changed in place: afterwards from the headings of the next sub-step.
        kept_ways: (n,) their ways to move, changed in place.
        own: window, samples and result (1, n, m) of :func:`hitmac.agents.baselines.words.alone`; (0, n, m): not asked
            for.
        room: arrays of :func:`room_for`.
        values: (n, 3) result, on rails (2 n, 3).
    """
    (plans, ways, planned, covers, trial_values), (best_plans, best_ways), scratch = room
    window, samples, shares = own
    n, horizon, highest = plans.shape[0], plans.shape[1] - 1, -np.inf
    plans[:, 0] = 0
    for candidate in range(search.restarts + 1):
        planned[:] = candidate == 0 and step > 0
        for i in range(n):
            ways[i] = kept_ways[i] if planned[i] else 0
            for h in range(1, horizon + 1):
                plans[i, h] = min(max(kept[i, h], -reach[i, 0]), reach[i, 1]) if planned[i] else 0
        order = step * search.restarts + candidate
        total = improve(
            sees, weight, search, farthest, order, planned, ways, plans, covers, trial_values, scratch, limits, reach,
            links, samples,
        )  # fmt: skip
        if total > highest:
            highest = total
            best_plans[:], best_ways[:] = plans, ways
            values[:] = trial_values
            if shares.shape[0] > 0:
                alone(covers, window, samples, shares[0])
    for i in range(n):
        kept_ways[i] = best_ways[i]
        for h in range(1, horizon + 1):
            kept[i, h] = best_plans[i, min(h + 1, horizon)] - best_plans[i, 1]


@inlined
def _cover(looks, sees, farthest, planned, plan, covers):
    """Write the samples (H + 1, W) that a plan covers; none if there is no plan."""
    for h in range(1, plan.shape[0]):
        look = looks[h]
        if look > looks[h - 1]:
            for w in range(covers.shape[1]):
                covers[look, w] = sees[look, w, farthest + plan[h]] if planned else np.uint64(0)


@inlined
def farthest_turn(limits, i, half_view):
    """Return the angle, degrees, by which sensor i may have to turn to see a target: half a circle.

    With limits, which can make the long way the only one, it is a circle less half the view: by less than that, no
    direction is in view twice.
    """
    if limits is None:
        return 180.0
    return 360.0 - half_view if limits[i, 0] > -np.inf else 180.0


@inlined
def turns_within(limits, i, east, north, turn, farthest, reach):
    """Write the most turns of sensor i, facing (east, north), to the right and to the left into `reach` (n, 2)."""
    reach[i, 0] = reach[i, 1] = farthest
    if limits is not None:
        low, high = limits[i, 0], limits[i, 1]
        middle = (low + high) / 2.0 if low > -np.inf else 0.0
        heading = math.degrees(math.atan2(north, east))
        heading -= 360.0 * math.floor((heading - middle + 180.0) / 360.0)
        # Headings are observed with the precision of float32.
        if low > -np.inf and turn > 0.0:
            reach[i, 0] = min(max(math.floor((heading - low) / turn + 1e-3), 0), farthest)
            reach[i, 1] = min(max(math.floor((high - heading) / turn + 1e-3), 0), farthest)
