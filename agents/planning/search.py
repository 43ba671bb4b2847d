"""Search for the best joint plan of all sensors, given the samples in view from each heading.

A plan of a sensor is a heading for each sub-step of the horizon, in turns from its present heading, and a way: what it
does with its lens and on its rail. Samples of the targets' futures are bits of 64-bit words. Compiled by numba.
"""

from typing import NamedTuple

import numpy as np

from hitmac.envs.base.compile import compiled, inlined, kernel
from hitmac.envs.base.threads import blocks
from hitmac.envs.parts.knowledge import popcount
from hitmac.envs.parts.sensors import LEFT, RIGHT, STAY

CHUNK = 16  # entries or headings per iteration of a vectorised loop: 32-bit numbers in the widest registers


class Search(NamedTuple):
    """Options of the search."""

    samples: int  # of a target
    targets: int
    restarts: int
    rounds: int
    turn_cost: float
    stage: np.ndarray  # (H + 1,) int64: stage of each sub-step, from 1
    weight: np.ndarray  # (H + 1,) float32: of a sample at a sub-step
    farthest: int  # most turns to either side of any sensor
    limited: bool  # a sensor has pan limits
    first: np.ndarray  # (d, A) int64: first action of each way, for each decision after the turn
    cost: np.ndarray  # (A,) of each way
    shares: np.ndarray  # (k,) of a sample's worth that the first, second, ... k-th sensor gains, see shares_of


class Views(NamedTuple):
    """Samples in view of n sensors in R rows of knowledge: all that a search depends on."""

    sees: np.ndarray
    """(R, n, A, S + 1, W, K + CHUNK) uint64: samples in view at each stage, by way, word and heading."""
    farthest: np.ndarray  # (R, n) int64: most turns to either side
    reach: np.ndarray  # (R, n, 2) int64: most turns to the right and to the left within the pan limits
    listed: np.ndarray  # (R, n, k) int32: target in each place of a sensor's words, -1: none; k = 0: all, in order
    levels: np.ndarray  # (R, g, P, S + 1, W) uint64: samples whose level of worth has bit p; P = 0: all are worth 1
    terms: np.ndarray  # (R, T) float32: worth of a sample of each level, and for the first of several sensors


class Plans(NamedTuple):
    """Plans of n sensors in R rows of knowledge."""

    turns: np.ndarray  # (R, n, H + 1) int64: headings at each sub-step, in turns from that of the next call
    way: np.ndarray  # (R, n) int64: 0 where sensors only turn


class _Pairs(NamedTuple):
    """Pairs of a sensor and a target in its list, by target; k = 0: none is listed."""

    first: np.ndarray  # (m + 1,) int64: number of each target's first pair
    filled: np.ndarray  # (m + 1,) int64: scratch memory
    sensor: np.ndarray  # (n * k,) int32: sensor of each pair, in rising order for each target
    place: np.ndarray  # (n * k,) int32: place of the target in that sensor's list


class _Room(NamedTuple):
    """Working arrays of a search."""

    plans: np.ndarray  # (n, H + 1) int64: of an ascent
    ways: np.ndarray  # (n,) int64: their ways
    covers: np.ndarray  # (n, S + 1, W) uint64: samples that each plan covers
    values: np.ndarray  # (n + d n, 3) of staying, turning left and right; then of the actions of the other decisions
    layers: np.ndarray  # (k, S + 1, W) uint64: samples covered by at least 1, 2, ... k other sensors
    free: np.ndarray  # (T, S + 1, W) uint64: samples that the others leave, by term of their worth
    value: np.ndarray  # (H + 2, K + 2 + CHUNK) float32: of the headings at the sub-steps
    gain: np.ndarray  # (K + CHUNK,) float32: worth of the samples in view at a stage
    plan: np.ndarray  # (H + 1,) int64
    best: np.ndarray  # (n, H + 1) int64: plans of the best ascent
    best_ways: np.ndarray  # (n,) int64
    pairs: _Pairs


_CREDIT = 0.5  # of a target that too few sensors see, as a share of what it would be worth in proportion


def shares_of(seen_by: int) -> np.ndarray:
    """Return the share (k,) of a target's value that the first, second, ... k-th sensor gains, if k must see it.

    Those before the last gain something too, since plans change sensor by sensor.
    """
    shares = np.full(seen_by, _CREDIT / seen_by)
    shares[-1] += 1.0 - shares.sum()
    return shares


@inlined
def add_seen(layers, s, w, members):
    """Add what one more sensor sees to the element (s, w) of the layers (k, S, W) of what at least 1, ... k see."""
    for q in range(layers.shape[0] - 1, 0, -1):
        layers[q, s, w] |= layers[q - 1, s, w] & members
    layers[0, s, w] |= members


@inlined
def everyone(samples):
    """Return the set of all samples of a target."""
    return ~np.uint64(0) >> np.uint64(64 - samples)


@inlined
def bits_of(place, samples):
    """Return the word and the first bit of a target's samples; a word holds as many targets as fit."""
    return place // (64 // samples), np.uint64(place % (64 // samples) * samples)


@compiled
def _pair(listed, pairs):
    """Write the pairs of lists (n, k)."""
    first, filled = pairs.first, pairs.filled
    for j in range(first.shape[0]):
        first[j] = 0
    for i in range(listed.shape[0]):
        for s in range(listed.shape[1]):
            if listed[i, s] >= 0:
                first[listed[i, s] + 1] += 1
    for j in range(1, first.shape[0]):
        first[j] += first[j - 1]
        filled[j - 1] = first[j - 1]
    for i in range(listed.shape[0]):
        for s in range(listed.shape[1]):
            if listed[i, s] >= 0:
                e = filled[listed[i, s]]
                pairs.sensor[e], pairs.place[e] = i, s
                filled[listed[i, s]] = e + 1


@compiled
def _covered_by_others(search, listed, i, room):
    """Write the samples covered by at least 1, 2, ... k other sensors, in the order of i's list."""
    covers, layers, samples, pairs = room.covers, room.layers, search.samples, room.pairs
    for q in range(layers.shape[0]):
        for s in range(layers.shape[1]):
            for w in range(layers.shape[2]):
                layers[q, s, w] = 0
    if listed.shape[1] == 0:
        for other in range(covers.shape[0]):
            for w in range(layers.shape[2] if other != i else 0):
                for s in range(1, layers.shape[1]):
                    add_seen(layers, s, w, covers[other, s, w])
    for place in range(listed.shape[1]):
        j = listed[i, place]
        if j >= 0:
            # Another sensor's words have this target at a place of its own.
            word, bit = bits_of(place, samples)
            for e in range(pairs.first[j], pairs.first[j + 1]):
                other = pairs.sensor[e]
                if other != i:
                    its_word, its_bit = bits_of(pairs.place[e], samples)
                    for s in range(1, layers.shape[1]):
                        members = (covers[other, s, its_word] >> its_bit) & everyone(samples)
                        add_seen(layers, s, word, members << bit)


@inlined
def _write_free(levels, layers, free):
    """Write the samples that a sensor can gain: by level those that lack it alone, then all others."""
    last = layers.shape[0] - 1
    for s in range(1, free.shape[1]):
        for w in range(free.shape[2]):
            left = ~layers[last, s, w]
            if levels.shape[0] == 0:
                free[0, s, w] = left
            for p in range(levels.shape[0]):
                members = levels[p, s, w] & left
                if last > 0:
                    free[levels.shape[0] + p, s, w] = members & ~layers[last - 1, s, w]
                    members &= layers[last - 1, s, w]
                free[p, s, w] = members


@compiled
def _value_of(search, levels, terms, room):
    """Return the joint value of the plans: the worth of the samples that they cover, less the cost of their turns.

    Samples that too few sensors cover have their shares.
    """
    samples, cost, total = search.samples, search.turn_cost, 0.0
    plans, pairs, covers, layers, number = room.plans, room.pairs, room.covers, room.layers, levels.shape[1]
    (n, _, words), groups, all_listed = covers.shape, levels.shape[0], pairs.sensor.shape[0] == 0
    plain = all_listed and number == 0  # the usual case is fast: all samples are worth 1, and lists equal
    for h in range(1, plans.shape[1]):
        s, weight = search.stage[h], search.weight[h]
        for word in range(words if plain else 0):
            members = np.uint64(0)
            for i in range(n):
                members |= covers[i, s, word]
            total += weight * np.int32(popcount(members))
        for group in range(0 if plain else words if all_listed else pairs.first.shape[0] - 1):  # words, or targets
            first, last = (0, n) if all_listed else (pairs.first[group], pairs.first[group + 1])
            for p in range(max(number, 1)):
                for q in range(layers.shape[0]):
                    layers[q, 0, 0] = 0  # stage 0 is free
                for e in range(first, last):
                    i = e if all_listed else pairs.sensor[e]
                    word, bit = (group, np.uint64(0)) if all_listed else bits_of(pairs.place[e], samples)
                    members = covers[i, s, word]
                    if number > 0:
                        members &= levels[min(i, groups - 1), p, s, word]
                    add_seen(layers, 0, 0, members if all_listed else (members >> bit) & everyone(samples))
                for q in range(layers.shape[0]):
                    term = p if q == layers.shape[0] - 1 else number + p
                    total += weight * terms[term] * np.int32(popcount(layers[q, 0, 0]))
        for i in range(n):
            total -= cost * abs(plans[i, h] - plans[i, h - 1])
    for i in range(n):
        total -= search.cost[room.ways[i]]
    return total


@compiled
def _best_plan(search, views, r, i, way, room):
    """Write the best plan of sensor i, given the samples that others leave; ties go to staying, then to the left.

    The highest value from sub-step h on, with heading k at sub-step h, is ``value[h, k + farthest + 1]``::

        V_h(k) = weight_h * (worth of the samples in view that no other sensor covers)
                 + max(V_h+1(k), V_h+1(k + 1) - turn_cost, V_h+1(k - 1) - turn_cost)
    """
    sees, terms, most, farthest = views.sees[r, i, way], views.terms[r], views.reach[r, i], views.farthest[r, i]
    stage, free, value, gain, plan = search.stage, room.free, room.value, room.gain, room.plan
    horizon, cost, middle = plan.shape[0] - 1, np.float32(search.turn_cost), farthest + 1
    for h in range(1, horizon + 2):
        value[h, 0] = value[h, middle + middle] = -np.inf
    for k in range(1, middle + middle):
        value[horizon + 1, k] = 0.0
    counted = 0  # stage whose gains are in `gain`: all sub-steps of a stage share them
    for h in range(horizon, 0, -1):
        reach = min(h, farthest)
        low, number = farthest - reach, 2 * reach + 1
        # Loops over whole chunks have no remainder; values beyond the reach are not read.
        padded = (number + CHUNK - 1) // CHUNK * CHUNK
        if stage[h] != counted:
            counted = stage[h]
            found = gain[low : low + padded]
            for k in range(padded):
                found[k] = 0.0
            for t in range(free.shape[0]):
                for w in range(sees.shape[1]):
                    left, term = free[t, counted, w], terms[t]
                    members = sees[counted, w, low : low + padded]
                    if term == np.float32(1.0):
                        for k in range(padded):
                            found[k] += np.float32(np.int32(popcount(members[k] & left)))
                    else:
                        for k in range(padded):
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
    heading = middle  # forwards again, along the highest values
    for h in range(1, horizon + 1):
        best = heading
        if value[h, heading + 1] - cost > value[h, best]:
            best = heading + 1
        if value[h, heading - 1] - cost > value[h, best] - (cost if best != heading else np.float32(0.0)):
            best = heading - 1
        heading = best
        plan[h] = heading - middle


@inlined
def _cover(stage, sees, farthest, plan, covers):
    """Write the samples (S + 1, W) covered by a plan."""
    for h in range(1, plan.shape[0]):
        s = stage[h]
        if s > stage[h - 1]:
            for w in range(covers.shape[1]):
                covers[s, w] = sees[s, w, farthest + plan[h]]


@compiled
def _improve(search, views, r, order, room):
    """Replace the plan of each sensor in turn by its best one until no plan changes; return the joint value.

    `room.covers` holds what the present plans cover. A turn beyond the limits has the value of staying. The sequence
    starts at sensor `order` % n; it runs backwards if `order` // n is odd.
    """
    plans, ways, covers, values, plan, value = room.plans, room.ways, room.covers, room.values, room.plan, room.value
    sees, farthest, reach, levels = views.sees[r], views.farthest[r], views.reach[r], views.levels[r]
    stage, cost, first, n, horizon = search.stage, search.turn_cost, search.first, len(plans), plans.shape[1] - 1
    for _ in range(search.rounds):
        changed = False
        for q in range(n):
            i = (order + q if order // n % 2 == 0 else order - q) % n
            _covered_by_others(search, views.listed[r], i, room)
            _write_free(levels[min(i, levels.shape[0] - 1)], room.layers, room.free)
            before, now, highest = ways[i], farthest[i] + 1, -np.inf  # `now` is the present heading in `value`
            for d in range(first.shape[0]):
                values[n + d * n + i] = -np.inf
            for way in range(sees.shape[1]):
                _best_plan(search, views, r, i, way, room)
                own = search.cost[way]
                stay, left, right = value[1, now] - own, value[1, now + 1] - cost - own, value[1, now - 1] - cost - own
                best = max(stay, left, right)
                if search.limited:
                    left, right = (stay if reach[i, 1] == 0 else left), (stay if reach[i, 0] == 0 else right)
                for d in range(first.shape[0]):  # an action is worth the best way that begins with it
                    row = n + d * n + i
                    values[row, first[d, way]] = max(values[row, first[d, way]], best)
                if best > highest:  # ties: staying
                    highest, ways[i] = best, way
                    values[i, STAY], values[i, LEFT], values[i, RIGHT] = stay, left, right
                    for h in range(1, horizon + 1):
                        changed |= plans[i, h] != plan[h]
                        plans[i, h] = plan[h]
            changed |= ways[i] != before
            _cover(stage, sees[i, ways[i]], farthest[i], plans[i], covers[i])
        if not changed:  # a further revision would repeat this one
            break
    return _value_of(search, levels, views.terms[r], room)


@compiled
def _ascend(search, views, r, step, plans, values, room):
    """Replace the plans of row r by the best of several ascents, and write its values; see :func:`_improve`.

    At sub-step `step` of an episode after the first, the first ascent starts from the given plans, the others from no
    plans.
    """
    turns, way, reach, highest = plans.turns, plans.way, views.reach, -np.inf
    (n, steps), (_, stages, words) = room.plans.shape, room.covers.shape
    _pair(views.listed[r], room.pairs)
    for ascent in range(search.restarts + 1):
        for i in range(n):  # from the last plans, else from none
            room.ways[i] = 0
            for h in range(steps):
                room.plans[i, h] = 0
            for s in range(stages):
                for w in range(words):
                    room.covers[i, s, w] = 0
            if ascent == 0 and step > 0:
                room.ways[i] = way[r, i]
                for h in range(1, steps):
                    room.plans[i, h] = min(max(turns[r, i, h], -reach[r, i, 0]), reach[r, i, 1])
                _cover(search.stage, views.sees[r, i, way[r, i]], views.farthest[r, i], room.plans[i], room.covers[i])
        total = _improve(search, views, r, step * search.restarts + ascent, room)
        if total > highest:
            highest = total
            for i in range(n):
                room.best_ways[i] = room.ways[i]
                for h in range(steps):
                    room.best[i, h] = room.plans[i, h]
            for row in range(values.shape[1]):
                for k in range(values.shape[2]):
                    values[r, row, k] = room.values[row, k]
    for i in range(n):
        way[r, i] = room.best_ways[i]
        for h in range(steps):
            turns[r, i, h] = room.best[i, h]


@kernel
def search_all(search, views, time, plans, values, share):
    """Replace the plans of R rows by the best ones, and write their values (R, n + d n, 3).

    The search of a row begins with its plans, unless its `time` (R,), sub-steps since the episode began, is 0.
    """
    _, n, _, stages, words, headings = views.sees.shape
    steps, terms, seen_by = search.stage.shape[0], views.terms.shape[1], search.shares.shape[0]
    listed = n * views.listed.shape[2]
    pairs = _Pairs(
        np.empty(search.targets + 1, np.int64), np.empty(search.targets + 1, np.int64), np.empty(listed, np.int32),
        np.empty(listed, np.int32),
    )  # fmt: skip
    room = _Room(
        np.empty((n, steps), np.int64), np.empty(n, np.int64), np.empty((n, stages, words), np.uint64),
        np.empty((values.shape[1], values.shape[2])), np.empty((seen_by, stages, words), np.uint64),
        np.empty((terms, stages, words), np.uint64), np.empty((steps + 1, headings + 2), np.float32),
        np.empty(headings, np.float32), np.empty(steps, np.int64), np.empty((n, steps), np.int64),
        np.empty(n, np.int64), pairs,
    )  # fmt: skip
    for low, high in blocks(values.shape[0], share):
        for r in range(low, high):
            _ascend(search, views, r, time[r], plans, values, room)


@kernel
def count_exclusive(search, views, plans, window, shares, share):
    """Write the share (R, n, m) of a target's samples that need this sensor to be covered, with the best plans.

    A sample counts if this sensor covers it, with no more sensors than must see it, at any stage of the first `window`
    sub-steps, and has a value.
    """
    _, n, _, stages, words, _ = views.sees.shape
    covers, own = np.zeros((n, stages, words), np.uint64), np.empty((n, words), np.uint64)
    layers = np.empty((search.shares.shape[0] + 1, 1, 1), np.uint64)
    for low, high in blocks(shares.shape[0], share):
        for r in range(low, high):
            own[:] = 0
            for i in range(n):
                sees = views.sees[r, i, plans.way[r, i]]
                _cover(search.stage, sees, views.farthest[r, i], plans.turns[r, i], covers[i])
            for s in range(1, search.stage[window] + 1):
                for w in range(words):
                    layers[:] = 0
                    for i in range(n):
                        add_seen(layers, 0, 0, covers[i, s, w])
                    needed = ~layers[search.shares.shape[0], 0, 0]
                    if views.levels.shape[2] > 0:
                        valued = np.uint64(0)
                        for p in range(views.levels.shape[2]):
                            valued |= views.levels[r, 0, p, s, w]
                        needed &= valued
                    for i in range(n):
                        own[i, w] |= covers[i, s, w] & needed
            for i in range(n):
                for j in range(shares.shape[2]):
                    word, bit = bits_of(j, search.samples)
                    members = (own[i, word] >> bit) & everyone(search.samples)
                    shares[r, i, j] = np.int32(popcount(members)) / search.samples
