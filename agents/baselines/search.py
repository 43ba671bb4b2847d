"""Search for the best plans of all sensors, given the samples of the targets that each can have in view.

A plan of a sensor is a heading for each sub-step of the horizon, in turns from its present heading, and on rails also a
way to move. Samples of the targets' futures are bits of 64-bit words, so that sets of samples in view are joined and
counted at once. Compiled by numba.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY
from hitmac.envs.kernels.threads import allocating, inlined


@inlined
def size(members):
    """Return the number of bits of a uint64 that are set."""
    members = members - ((members >> np.uint64(1)) & np.uint64(0x5555555555555555))
    members = (members & np.uint64(0x3333333333333333)) + ((members >> np.uint64(2)) & np.uint64(0x3333333333333333))
    members = (members + (members >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int32((members * np.uint64(0x0101010101010101)) >> np.uint64(56))


@allocating
def alone(covers, window, samples, shares):
    """Write the share (n, m) of the samples of a target in which a sensor covers it while no other sensor does.

    Args:
        covers: (n, H + 1, W) samples that each sensor's plan covers at each sub-step.
        window: sub-steps that count, from the first on; at most H.
        samples: number of samples of a target; as many targets as fit share a word, from bit 0 on.
        shares: (n, m) result.
    """
    n, m = shares.shape
    targets_per_word, everyone = 64 // samples, ~np.uint64(0) >> np.uint64(64 - samples)
    own = np.zeros((n, covers.shape[2]), np.uint64)
    for h in range(1, window + 1):
        for w in range(covers.shape[2]):
            once, twice = np.uint64(0), np.uint64(0)
            for i in range(n):
                twice |= once & covers[i, h, w]
                once |= covers[i, h, w]
            for i in range(n):
                own[i, w] |= covers[i, h, w] & ~twice
    for i in range(n):
        for j in range(m):
            members = own[i, j // targets_per_word] >> np.uint64(j % targets_per_word * samples)
            shares[i, j] = size(members & everyone) / samples


class Links(NamedTuple):
    """Links of a scene: the sensors that list each target, and where."""

    targets: np.ndarray  # (n, k) int32: the target in each place of a sensor's list
    there: np.ndarray  # (n, k) bool: the places that are valid
    before: np.ndarray  # (n, k) int32: its place in the sensor's list of the last observation; -1: none
    first: np.ndarray  # (m + 1,) int64: number of each target's first link
    sensor: np.ndarray  # (n * k,) int32: sensor of each link, in rising order for each target
    place: np.ndarray  # (n * k,) int32: place of the target in that sensor's list


@allocating
def link(targets, mask, old_targets, old_mask, m):
    """Return the links of lists (n, k) of m targets."""
    n, k = mask.shape
    first = np.zeros(m + 1, np.int64)
    before = np.full((n, k), -1, np.int32)
    for i in range(n):
        old = 0
        for s in range(k):
            if mask[i, s] == 0:
                continue
            j = targets[i, s]
            first[j + 1] += 1
            for one in range(k):  # mostly in the next place
                if old_mask[i, (old + one) % k] and old_targets[i, (old + one) % k] == j:
                    old = (old + one) % k
                    before[i, s] = old
                    break
    for j in range(m):
        first[j + 1] += first[j]
    sensor, place, filled = np.empty(n * k, np.int32), np.empty(n * k, np.int32), first[:-1].copy()
    for i in range(n):
        for s in range(k):
            if mask[i, s]:
                e = filled[targets[i, s]]
                sensor[e], place[e] = i, s
                filled[targets[i, s]] = e + 1
    return Links(targets, mask, before, first, sensor, place)


@allocating
def farthest_link(pairs, links, j):
    """Return the sensor farthest from target j that lists it, and its place there now and in the last observation.

    Sensors that listed it in the last observation too come first. Without any, all three are -1.
    """
    distance = 2  # number of the feature
    best, place, old_place = -1, -1, -1
    for e in range(links.first[j], links.first[j + 1]):
        i, s = links.sensor[e], links.place[e]
        before = links.before[i, s]
        better = best < 0 or (before >= 0) > (old_place >= 0)
        same = (before >= 0) == (old_place >= 0)
        if better or (same and pairs[i, s, distance] > pairs[best, place, distance]):
            best, place, old_place = i, s, before
    return best, place, old_place


@allocating
def covered_by_others(links, i, samples, covers, covered):
    """Write the samples (H + 1, W) of the targets that sensor i lists which other sensors cover, in its own order.

    Args:
        links: links of the scene.
        i: number of the sensor.
        samples: number of samples of a target; as many targets as fit share a word, from bit 0 on.
        covers: (n, H + 1, W) samples that each sensor's plan covers, of the targets that it lists.
        covered: (H + 1, W) result.
    """
    covered[:] = 0
    per_word, everyone = 64 // samples, ~np.uint64(0) >> np.uint64(64 - samples)
    for s in range(links.targets.shape[1]):
        j = links.targets[i, s]
        if not links.there[i, s]:
            continue
        word, shift = s // per_word, np.uint64(s % per_word * samples)
        for e in range(links.first[j], links.first[j + 1]):
            other = links.sensor[e]
            if other != i:
                from_word, from_shift = links.place[e] // per_word, np.uint64(links.place[e] % per_word * samples)
                for h in range(1, covered.shape[0]):
                    covered[h, word] |= ((covers[other, h, from_word] >> from_shift) & everyone) << shift


@allocating
def covered_by_all(links, samples, covers, h):
    """Return the number of samples of all targets that any sensor covers at look h."""
    per_word, everyone = 64 // samples, ~np.uint64(0) >> np.uint64(64 - samples)
    number = 0
    for j in range(links.first.shape[0] - 1):
        members = np.uint64(0)
        for e in range(links.first[j], links.first[j + 1]):
            place = links.place[e]
            members |= covers[links.sensor[e], h, place // per_word] >> np.uint64(place % per_word * samples)
        number += size(members & everyone)
    return number


CHUNK = 16
"""Entries or headings that a loop works on at once: as many numbers of 32 bits as the widest registers hold."""


@inlined
def _degrees(y, x):
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


@inlined
def write_sides(sides, e, x, y, near, half_view, per_turn, most):
    """Write the headings from which entry e comes into view and goes out of it into `sides` (4, E), twice.

    It is at (x, y), ahead and to the left, and a whole turn away once more. It is in view from the first side on, and
    no longer from the second on; the interval is empty if it is not `near`. All numbers are float32.
    """
    full, zero, one = np.float32(360.0), np.float32(0.0), np.float32(1.0)
    bearing = _degrees(y, x)
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
def mark_sides(sees, j, samples, entries, when, who, sides):
    """Flip the samples of target j in `sees` (H + 1, W, K + 1) at their sides; see :func:`write_sides`."""
    targets_per_word = 64 // samples
    word, shift = j // targets_per_word, np.uint64(j % targets_per_word * samples)
    for e in range(entries):
        row = sees[when[e], word]
        members = who[e] << shift
        for k in range(4):
            row[np.uint64(sides[k, e])] ^= members


@allocating
def fill_between(sees, farthest):
    """Turn the sides in `sees` into the samples in view from each heading."""
    for h in range(1, sees.shape[0]):
        for w in range(sees.shape[1]):
            row = sees[h, w]
            members = np.uint64(0)
            for k in range(2 * farthest + 1):
                members ^= row[k]
                row[k] = members


@allocating
def mark_entries(x, y, who, count, at_x, at_y, moved_x, moved_y, c, s, squared, half_view, per_turn, most, sides, row):
    """Write the samples of a list of entries that a sensor has in view from each heading into `row` (2 * most + 2,).

    Args:
        x: (E,) places of the entries.
        y: the same.
        who: (E,) their samples.
        count: number of entries, a multiple of CHUNK.
        at_x: present place of the sensor.
        at_y: the same.
        moved_x: way that it goes.
        moved_y: the same.
        c: cosine of its present heading.
        s: sine of it.
        squared: its range, squared.
        half_view: half its field of view, degrees.
        per_turn: turns in a degree.
        most: most turns to either side.
        sides: (E / CHUNK, 4, CHUNK) scratch memory.
        row: result, from `most` turns to the right on; the last is of no heading.
    """
    # A loop over a chunk has no remainder. All sides are written before any is read: a number that is read right after
    # it was written with others takes long.
    chunks = count // CHUNK
    for chunk in range(chunks):
        first = chunk * CHUNK
        xs, ys, own = x[first : first + CHUNK], y[first : first + CHUNK], sides[chunk]
        for k in range(CHUNK):
            dx, dy = xs[k] - at_x - moved_x, ys[k] - at_y - moved_y
            near = dx * dx + dy * dy <= squared
            write_sides(own, k, c * dx + s * dy, c * dy - s * dx, near, half_view, per_turn, most)
    row[:] = 0
    again = np.floor((np.float32(180.0) - half_view) * per_turn) <= most  # else nothing comes into view on the far side
    for chunk in range(chunks):
        own, members = sides[chunk], who[chunk * CHUNK : (chunk + 1) * CHUNK]
        for side in range(0, 4 if again else 2, 2):
            for k in range(CHUNK):
                if own[side, k] != own[side + 1, k]:
                    row[np.uint64(own[side, k])] ^= members[k]
                    row[np.uint64(own[side + 1, k])] ^= members[k]
    inside = np.uint64(0)
    for k in range(row.shape[0]):
        inside ^= row[k]
        row[k] = inside


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
        links: :class:`~hitmac.agents.baselines.search.Links`, where the words of each sensor are those of the targets
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
        own: window, samples and result (1, n, m) of :func:`hitmac.agents.baselines.search.alone`; (0, n, m): not asked
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
