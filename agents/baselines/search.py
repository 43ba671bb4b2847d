"""Search for the best joint plan of all sensors, given the samples in view from each heading.

A plan of a sensor is a heading for each sub-step of the horizon, in turns from its present heading, and a way: what it
does with its lens and on its rail. Samples of the targets' futures are bits of 64-bit words. Compiled by numba.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.tracking.sight import degrees
from hitmac.envs.kernels.knowledge import popcount
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY
from hitmac.envs.kernels.state import Rails, Values
from hitmac.envs.kernels.threads import allocating, inlined

CHUNK = 16  # entries or headings per iteration of a vectorised loop: 32-bit numbers in the widest registers


class Search(NamedTuple):
    """Options of the search."""

    samples: int  # of a target
    restarts: int
    rounds: int
    turn_cost: float
    looks: np.ndarray  # (H + 1,) int64: look of each sub-step, from 1
    weight: np.ndarray  # (H + 1,) float32: of a sample at a sub-step
    farthest: int  # most turns to either side of any sensor
    limited: bool  # a sensor has pan limits
    limits: np.ndarray  # (n, 2) pan limits, degrees
    first: np.ndarray  # (d, A) int64: first action of each way, for each decision after the turn
    then: np.ndarray  # (A,) int64: the way that continues it at the next sub-step


_CREDIT = 0.5  # of a target that too few sensors see, as a share of what it would be worth in proportion


def shares_of(seen_by: int) -> np.ndarray:
    """Return the share (k,) of a target's value that the first, second, ... k-th sensor gains, if k must see it.

    Those before the last gain something too, since plans change sensor by sensor.
    """
    shares = np.full(seen_by, _CREDIT / seen_by)
    shares[-1] += 1.0 - shares.sum()
    return shares


@allocating
def add_seen(layers, members):
    """Add what one more sensor sees (...) to the layers (k, ...) of what at least 1, 2, ... k sensors see."""
    for q in range(layers.shape[0] - 1, 0, -1):
        layer = layers[q]
        layer |= layers[q - 1] & members
    layer = layers[0]
    layer |= members


class Worth(NamedTuple):
    """Worth of samples where targets have values, or several sensors must see them."""

    values: Values
    planes: int  # bits of the highest level; values are rounded to whole levels
    per_value: float  # levels / value
    shares: np.ndarray  # (k,) see :func:`shares_of`


class Motion(NamedTuple):
    """Motion of sensors on rails."""

    rails: Rails
    rail_step: float


class Room(NamedTuple):
    """Working arrays of a search for n sensors."""

    sees: np.ndarray
    """(n, A, L + 1, W, K + CHUNK) uint64: samples in view at each look, by way, word and heading."""
    farthest: np.ndarray  # (n,) int64: most turns to either side
    reach: np.ndarray  # (n, 2) int64: most turns to the right and to the left within the pan limits
    plans: np.ndarray  # (n, H + 1) int64: of an ascent
    ways: np.ndarray  # (n,) int64: their ways
    covers: np.ndarray  # (n, L + 1, W) uint64: samples that each plan covers
    values: np.ndarray  # (n + d n, 3) of staying, turning left and right; then of the actions of the other decisions
    best_plans: np.ndarray  # of all ascents
    best_ways: np.ndarray
    layers: np.ndarray  # (k, L + 1, W) uint64: samples covered by at least 1, 2, ... k other sensors
    planes: np.ndarray  # (n, P, L + 1, W) uint64: samples whose level has bit p; P = 0 without values
    free: np.ndarray  # (T, L + 1, W) uint64: samples that the others leave, by term of their worth
    terms: np.ndarray  # (T,) float32: worth of a sample of each term
    value: np.ndarray  # (H + 2, K + 2 + CHUNK) float32: of the headings at the sub-steps
    gain: np.ndarray  # (K + CHUNK,) float32: worth of the samples in view at a look
    plan: np.ndarray  # (H + 1,) int64


@allocating
def make_room(search, worth, n, words):
    """Return uninitialised working arrays."""
    decisions, ways = search.first.shape
    planes, seen_by = (0, 1) if worth is None else (worth.planes, worth.shares.shape[0])
    terms = max(planes, 1) * min(seen_by, 2)
    horizon, looks, headings = search.looks.shape[0] - 1, search.looks[-1], 2 * search.farthest + 1
    return Room(
        np.empty((n, ways, looks + 1, words, headings + CHUNK), np.uint64), np.empty(n, np.int64),
        np.empty((n, 2), np.int64), np.empty((n, horizon + 1), np.int64), np.empty(n, np.int64),
        np.empty((n, looks + 1, words), np.uint64), np.empty((n + decisions * n, 3)),
        np.empty((n, horizon + 1), np.int64), np.empty(n, np.int64), np.empty((seen_by, looks + 1, words), np.uint64),
        np.empty((n, planes, looks + 1, words), np.uint64), np.empty((terms, looks + 1, words), np.uint64),
        np.empty(terms, np.float32), np.empty((horizon + 2, headings + 2 + CHUNK), np.float32),
        np.empty(headings + CHUNK, np.float32), np.empty(horizon + 1, np.int64),
    )  # fmt: skip


class Candidates(NamedTuple):
    """Candidate pairs of a scene: the sensors that list each target, and its place in their lists."""

    targets: np.ndarray  # (n, k) int32: the target in each place of a sensor's list; -1: none
    first: np.ndarray  # (m + 1,) int64: number of each target's first pair
    sensor: np.ndarray  # (n * k,) int32: sensor of each pair, in rising order for each target
    place: np.ndarray  # (n * k,) int32: place of the target in that sensor's list


@allocating
def candidate_pairs(targets, m):
    """Return the candidate pairs of lists (n, k) of m targets."""
    (n, k), first = targets.shape, np.zeros(m + 1, np.int64)
    for i in range(n):
        for s in range(k):
            if targets[i, s] >= 0:
                first[targets[i, s] + 1] += 1
    for j in range(m):
        first[j + 1] += first[j]
    sensor, place, filled = np.empty(n * k, np.int32), np.empty(n * k, np.int32), first[:-1].copy()
    for i in range(n):
        for s in range(k):
            if targets[i, s] >= 0:
                e = filled[targets[i, s]]
                sensor[e], place[e] = i, s
                filled[targets[i, s]] = e + 1
    return Candidates(targets, first, sensor, place)


@inlined
def everyone(samples):
    """Return the set of all samples of a target."""
    return ~np.uint64(0) >> np.uint64(64 - samples)


@inlined
def bits_of(place, samples):
    """Return the word and the first bit of a target's samples; a word holds as many targets as fit."""
    return place // (64 // samples), np.uint64(place % (64 // samples) * samples)


@allocating
def _covered_by_others(covers, i, candidates, samples, layers):
    """Write the samples (k, L + 1, W) covered by at least 1, 2, ... k other sensors, in the order of i's list."""
    layers[:] = 0
    if candidates is None:
        for other in range(covers.shape[0]):
            if other != i:
                add_seen(layers, covers[other])
    else:
        for s in range(candidates.targets.shape[1]):
            j = candidates.targets[i, s]
            if j >= 0:
                word, bit = bits_of(s, samples)
                for e in range(candidates.first[j], candidates.first[j + 1]):
                    other = candidates.sensor[e]
                    if other != i:
                        its_word, its_bit = bits_of(candidates.place[e], samples)
                        for look in range(1, layers.shape[1]):
                            members = ((covers[other, look, its_word] >> its_bit) & everyone(samples)) << bit
                            for q in range(layers.shape[0] - 1, 0, -1):
                                layers[q, look, word] |= layers[q - 1, look, word] & members
                            layers[0, look, word] |= members


@allocating
def _write_free(worth, layers, planes, free):
    """Write the samples (T, L + 1, W) that a sensor can gain: by plane those that lack it alone, then all others."""
    last = layers.shape[0] - 1
    if worth is None:
        for look in range(1, free.shape[1]):
            for w in range(free.shape[2]):
                free[0, look, w] = ~layers[0, look, w]
    else:
        for p in range(planes.shape[0]):
            free[p] = planes[p] & ~layers[last]
            if last > 0:
                free[planes.shape[0] + p] = free[p] & ~layers[last - 1]
                free[p] &= layers[last - 1]


@allocating
def _plus_coverage(total, worth, covers, look, candidates, samples):
    """Return `total` plus the worth of a sample times the number of samples covered at a look."""
    if candidates is None:
        for word in range(covers.shape[2]):
            members = np.uint64(0)
            for i in range(covers.shape[0]):
                members |= covers[i, look, word]
            total += worth * np.int32(popcount(members))
    else:
        number = np.int64(0)
        for j in range(candidates.first.shape[0] - 1):
            members = np.uint64(0)
            for e in range(candidates.first[j], candidates.first[j + 1]):
                word, bit = bits_of(candidates.place[e], samples)
                members |= covers[candidates.sensor[e], look, word] >> bit
            number += np.int32(popcount(members & everyone(samples)))
        total += worth * number
    return total


@allocating
def _plus_value(total, weight, worth, room, look, candidates, samples):
    """Return :func:`_plus_coverage` by value, and with shares of samples that too few sensors cover."""
    covers, planes, (n, levels) = room.covers, room.planes, room.planes.shape[:2]
    layers = np.empty((worth.shares.shape[0], 1), np.uint64)
    for group in range(covers.shape[2] if candidates is None else candidates.first.shape[0] - 1):  # words, or targets
        first, last = (0, n) if candidates is None else (candidates.first[group], candidates.first[group + 1])
        for p in range(levels):
            layers[:] = 0
            for e in range(first, last):
                if candidates is None:
                    members = covers[e, look, group] & planes[e, p, look, group]
                else:
                    i = candidates.sensor[e]
                    word, bit = bits_of(candidates.place[e], samples)
                    members = ((covers[i, look, word] & planes[i, p, look, word]) >> bit) & everyone(samples)
                add_seen(layers, members)
            for q in range(layers.shape[0]):
                term = p if q == layers.shape[0] - 1 else levels + p
                total += weight * room.terms[term] * np.int32(popcount(layers[q, 0]))
    return total


@allocating
def write_exclusive_shares(search, worth, room, window, shares):
    """Write the share (n, m) of a target's samples that need this sensor to be covered, with the best plans.

    A sample counts if this sensor covers it, with no more sensors than must see it, at any look of the first `window`
    sub-steps, and has a value.
    """
    (n, m), covers = shares.shape, room.covers
    for i in range(n):
        _cover(search.looks, room.sees[i, room.best_ways[i]], room.farthest[i], room.best_plans[i], covers[i])
    own, layers = np.zeros((n, covers.shape[2]), np.uint64), np.empty((room.layers.shape[0] + 1, 1), np.uint64)
    for look in range(1, search.looks[window] + 1):
        for w in range(covers.shape[2]):
            layers[:] = 0
            for i in range(n):
                add_seen(layers, covers[i, look, w])
            needed = ~layers[-1, 0]
            if worth is not None:
                valued = np.uint64(0)
                for p in range(worth.planes):
                    valued |= room.planes[0, p, look, w]
                needed &= valued
            for i in range(n):
                own[i, w] |= covers[i, look, w] & needed
    for i in range(n):
        for j in range(m):
            word, bit = bits_of(j, search.samples)
            members = (own[i, word] >> bit) & everyone(search.samples)
            shares[i, j] = np.int32(popcount(members)) / search.samples


@inlined
def write_sides(sides, e, x, y, near, half_view, per_turn, most):
    """Write the headings from which entry e at (x, y), ahead and to the left, is in view into `sides` (4, E).

    The rows are the first heading and the first beyond the last, and the same a full circle away; both are equal unless
    the entry is `near`. All numbers are float32.
    """
    full, zero, one = np.float32(360.0), np.float32(0.0), np.float32(1.0)
    bearing = degrees(y, x)
    again = bearing - full if bearing > zero else bearing + full
    half = half_view if near else zero
    first = np.floor((bearing - half) * per_turn) + one
    last = np.ceil((bearing + half) * per_turn) if half > zero else first
    other_first = np.floor((again - half) * per_turn) + one
    other_last = np.ceil((again + half) * per_turn) if half > zero else other_first
    sides[0, e] = np.int32(min(max(first, -most), most + one) + most)
    sides[1, e] = np.int32(min(max(last, -most), most + one) + most)
    sides[2, e] = np.int32(min(max(other_first, -most), most + one) + most)
    sides[3, e] = np.int32(min(max(other_last, -most), most + one) + most)


@inlined
def write_reach(search, room, i, half_view, turn, works, east, north):
    """Write the most turns of sensor i, which faces (east, north).

    Half a circle brings every target into view. With pan limits, where only the long way may be possible, it is a full
    circle minus half the view; within less, no direction is in view twice.
    """
    low, high = (search.limits[i, 0], search.limits[i, 1]) if search.limited else (-np.inf, np.inf)
    most = 360.0 - half_view if low > -np.inf else 180.0
    farthest = min(search.farthest, math.ceil(most / max(turn, 1e-6))) if works else 0
    room.farthest[i] = room.reach[i, 0] = room.reach[i, 1] = farthest
    if low > -np.inf and works:
        heading = math.degrees(math.atan2(north, east))
        heading -= 360.0 * math.floor((heading - (low + high) / 2.0 + 180.0) / 360.0)
        # Headings are observed with the precision of float32.
        room.reach[i, 0] = min(max(math.floor((heading - low) / turn + 1e-3), 0), farthest)
        room.reach[i, 1] = min(max(math.floor((high - heading) / turn + 1e-3), 0), farthest)


@allocating
def _best_plan(search, worth, sees, free, terms, farthest, most, value, gain, plan):
    """Write the best plan (H + 1,), given the samples that others leave; ties go to staying, then to the left.

    Headings are at most `most` (2,) turns to the right and to the left. The highest value from sub-step h on, with
    heading k at sub-step h, is ``value[h, k + farthest + 1]``::

        V_h(k) = weight_h * (worth of the samples in view that no other sensor covers)
                 + max(V_h+1(k), V_h+1(k + 1) - turn_cost, V_h+1(k - 1) - turn_cost)
    """
    looks, horizon, cost, middle = search.looks, plan.shape[0] - 1, np.float32(search.turn_cost), farthest + 1
    for h in range(1, horizon + 2):
        value[h, 0] = value[h, middle + middle] = -np.inf
    value[horizon + 1, 1 : middle + middle] = 0.0
    counted = 0
    for h in range(horizon, 0, -1):
        reach = min(h, farthest)
        low, number = farthest - reach, 2 * reach + 1
        # Loops over whole chunks have no remainder; values beyond the reach are not read.
        padded = (number + CHUNK - 1) // CHUNK * CHUNK
        if looks[h] != counted:
            counted = looks[h]
            gain[low : low + padded] = 0.0
            for t in range(free.shape[0]):
                for w in range(sees.shape[1]):
                    left, term = free[t, counted, w], terms[t]
                    found, members = gain[low : low + padded], sees[counted, w, low : low + padded]
                    for k in range(padded):
                        if worth is None:
                            found[k] += np.float32(np.int32(popcount(members[k] & left)))
                        else:
                            found[k] += term * np.float32(np.int32(popcount(members[k] & left)))
        right, stay, left = value[h + 1, low:], value[h + 1, low + 1 :], value[h + 1, low + 2 :]
        found, now, weight = gain[low:], value[h, low + 1 :], search.weight[h]
        for k in range(padded):
            turned = (left[k] if left[k] > right[k] else right[k]) - cost
            now[k] = (stay[k] if stay[k] >= turned else turned) + weight * found[k]
        value[h, middle + middle] = -np.inf
        if search.limited:
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


@inlined
def _cover(looks, sees, farthest, plan, covers):
    """Write the samples (L + 1, W) covered by a plan."""
    for h in range(1, plan.shape[0]):
        look = looks[h]
        if look > looks[h - 1]:
            for w in range(covers.shape[1]):
                covers[look, w] = sees[look, w, farthest + plan[h]]


@allocating
def _improve(search, worth, room, order, candidates):
    """Replace the plan of each sensor in turn by its best one until no plan changes; return the joint value.

    `room.covers` holds what the present plans cover. A turn beyond the limits has the value of staying. The sequence
    starts at sensor `order` % n; it runs backwards if `order` // n is odd.
    """
    plans, ways, covers, values, farthest, reach = (
        room.plans, room.ways, room.covers, room.values, room.farthest, room.reach
    )  # fmt: skip
    sees, value, plan, looks, cost = room.sees, room.value, room.plan, search.looks, search.turn_cost
    first = search.first
    n, horizon = len(plans), plans.shape[1] - 1
    for _ in range(search.rounds):
        changed = False
        for q in range(n):
            i = (order + q if order // n % 2 == 0 else order - q) % n
            _covered_by_others(covers, i, candidates, search.samples, room.layers)
            _write_free(worth, room.layers, room.planes[i], room.free)
            before, now, highest = ways[i], farthest[i] + 1, -np.inf
            values[n + i :: n] = -np.inf
            for way in range(sees.shape[1]):
                _best_plan(
                    search, worth, sees[i, way], room.free, room.terms, farthest[i], reach[i], value, room.gain, plan
                )  # fmt: skip
                stay, left, right = value[1, now], value[1, now + 1] - cost, value[1, now - 1] - cost
                best = max(stay, left, right)
                if search.limited:
                    left, right = (stay if reach[i, 1] == 0 else left), (stay if reach[i, 0] == 0 else right)
                for d in range(first.shape[0]):
                    row = n + d * n + i
                    values[row, first[d, way]] = max(values[row, first[d, way]], best)
                if best > highest:  # ties: staying
                    highest, ways[i] = best, way
                    values[i, STAY], values[i, LEFT], values[i, RIGHT] = stay, left, right
                    for h in range(1, horizon + 1):
                        changed |= plans[i, h] != plan[h]
                        plans[i, h] = plan[h]
            changed |= ways[i] != before
            _cover(looks, sees[i, ways[i]], farthest[i], plans[i], covers[i])
        if not changed:
            break
    total = 0.0
    for h in range(1, horizon + 1):
        if worth is None:
            total = _plus_coverage(total, search.weight[h], covers, looks[h], candidates, search.samples)
        else:
            total = _plus_value(total, search.weight[h], worth, room, looks[h], candidates, search.samples)
        for i in range(n):
            total -= cost * abs(plans[i, h] - plans[i, h - 1])
    return total


@allocating
def ascend(search, worth, room, candidates, step, kept, kept_ways, values):
    """Write the values (n + d n, 3) of the best of several ascents; see :func:`_improve`.

    At sub-step `step` of an episode after the first, the first ascent starts from the kept plans (n, H + 1) and ways
    (n,), the others from no plans. `candidates` is None if words hold all targets in order. The kept plans become the
    best ones, relative to the headings of the next sub-step.
    """
    plans, ways, best_plans = room.plans, room.ways, room.best_plans
    n, horizon, reach, highest = plans.shape[0], plans.shape[1] - 1, room.reach, -np.inf
    for ascent in range(search.restarts + 1):
        plans[:], ways[:], room.covers[:] = 0, 0, 0
        for i in range(n if ascent == 0 and step > 0 else 0):
            ways[i] = kept_ways[i]
            for h in range(1, horizon + 1):
                plans[i, h] = min(max(kept[i, h], -reach[i, 0]), reach[i, 1])
            _cover(search.looks, room.sees[i, ways[i]], room.farthest[i], plans[i], room.covers[i])
        total = _improve(search, worth, room, step * search.restarts + ascent, candidates)
        if total > highest:
            highest = total
            best_plans[:], room.best_ways[:], values[:] = plans, ways, room.values
    for i in range(n):
        kept_ways[i] = search.then[room.best_ways[i]]
        for h in range(1, horizon + 1):
            kept[i, h] = best_plans[i, min(h + 1, horizon)] - best_plans[i, 1]
