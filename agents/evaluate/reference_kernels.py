"""Compiled searches for the highest coverage of sensors. Sets of targets are bits of 64-bit words."""

import math

import numpy as np

from hitmac.envs.kernels.compiled import allocating, inlined, kernel
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY
from hitmac.envs.kernels.rails import gone_along, point_on, rail_of
from hitmac.envs.kernels.state import X, Y
from hitmac.envs.kernels.threads import blocks

_MOST_ROUNDS = 1000  # of an ascent; each improves, and few are made


@inlined
def _size(members):
    """Return the number of bits of a uint64 that are set."""
    members = members - ((members >> np.uint64(1)) & np.uint64(0x5555555555555555))
    members = (members & np.uint64(0x3333333333333333)) + ((members >> np.uint64(2)) & np.uint64(0x3333333333333333))
    members = (members + (members >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((members * np.uint64(0x0101010101010101)) >> np.uint64(56))


@allocating
def _windows(bearing, view, windows):
    """Write the sets of targets, as bits, that a view can contain and no earlier set contains; return their number."""
    found = 0
    for first in range(bearing.shape[0]):
        members = np.uint64(0)
        for j in range(bearing.shape[0]):
            off = bearing[j] - bearing[first]
            if off - 360.0 * math.floor(off / 360.0) < view:  # never for NaN
                members |= np.uint64(1) << np.uint64(j)
        within = members == 0
        for k in range(found):
            within |= members & ~windows[k] == 0
        if not within:
            windows[found] = members
            found += 1
    return found


@kernel
def cover_freely(bearing, view, covered, share):
    """Write the largest number (E, T) of covered targets, for `bearing` (E, T, n, m) and views (n,), degrees.

    The search goes from sensor to sensor and keeps all possible unions of sets.
    """
    m = bearing.shape[3]
    for low, high in blocks(bearing.shape[0], share):
        for e in range(low, high):
            windows = np.empty(m, np.uint64)
            unions = np.zeros((2, 1 << m), np.uint64)
            met = np.zeros(1 << m, np.int64)  # last search step in which a union was found
            now = 0
            for t in range(bearing.shape[1]):
                unions[0, 0] = 0
                count = 1
                for i in range(bearing.shape[2]):
                    found = _windows(bearing[e, t, i], view[i], windows)
                    if found > 0:
                        now += 1
                        more = 0
                        old, new = unions[0], unions[1]
                        for a in range(count):
                            for k in range(found):
                                union = old[a] | windows[k]
                                if met[union] != now:
                                    met[union] = now
                                    new[more] = union
                                    more += 1
                        old[:more] = new[:more]
                        count = more
                for a in range(count):
                    covered[e, t] = max(covered[e, t], _size(unions[0, a]))


@inlined
def _in_reach(rails, r, along, heading, sensor, step, sub_steps, target):
    """Return whether a sensor can have a point in view after some sub-steps; see :func:`count_within_reach`.

    The places within its reach are whole numbers of steps from its start and, where it can stop there, from both ends.
    """
    length, closed = rails.length[r], rails.closed[r]
    for origin in range(1 if closed else 3):
        start = along if origin == 0 else (origin - 1) * length
        steps = sub_steps - math.ceil(abs(start - along) / step)
        if not closed:
            steps = min(steps, math.ceil(length / step))
        for k in range(-steps, steps + 1):
            x, y, _, _ = point_on(rails, r, gone_along(rails, r, start, k * step))
            dx, dy = target[X] - x, target[Y] - y
            off = math.degrees(math.atan2(dy, dx)) - heading
            off -= 360.0 * math.floor((off + 180.0) / 360.0)
            if abs(off) <= sensor[1] + sub_steps * sensor[2] and dx * dx + dy * dy <= sensor[0] ** 2:
                return True
    return False


@kernel
def count_within_reach(rails, along, heading, sensors, step, position, present, covered, share):
    """Write the number (E, T) of targets that some sensor can have in view by then, if it goes and turns for it alone.

    Args:
        rails: rails of the sensors.
        along: (E, n) places on them at the start.
        heading: (E, n) headings at the start, degrees.
        sensors: (n, 3) range, half the field of view and turn angle, degrees.
        step: way along a rail in a sub-step.
        position: (E, T, m, 2) positions of the targets.
        present: (E, T, m) bool.
        covered: (E, T) result.
        share: see :func:`hitmac.envs.kernels.threads.blocks`.
    """
    for low, high in blocks(position.shape[0], share):
        for e in range(low, high):
            for t in range(position.shape[1]):
                for j in range(position.shape[2]):
                    found = False
                    for i in range(sensors.shape[0]):
                        if found or not present[e, t, j]:
                            break
                        found = _in_reach(rails, rail_of(rails, i), along[e, i], heading[e, i], sensors[i], step, t + 1,
                                          position[e, t, j])  # fmt: skip
                    covered[e, t] += found


@kernel
def see_from_everywhere(bearing, heading, turn, count, half_view, sees):
    """Write the targets, as bits, that each sensor sees from each heading at each time into `sees` (n, T, K, words)."""
    sees[:] = 0
    for i in range(sees.shape[0]):
        for t in range(sees.shape[1]):
            for j in range(bearing.shape[2]):
                if math.isnan(bearing[t, i, j]):
                    continue
                bit = np.uint64(1) << np.uint64(j % 64)
                for k in range(count[i]):
                    steps = k if 2 * k <= count[i] else k - count[i]
                    off = bearing[t, i, j] - heading[i] - steps * turn[i]
                    off -= 360.0 * math.floor((off + 180.0) / 360.0)
                    if abs(off) < half_view[i]:
                        sees[i, t, k, j // 64] |= bit


@inlined
def _turned(k, turn, count, ends):
    """Return the heading after a turn; at its ends (2,), to the right and to the left, a sensor stays. -1: no end."""
    if (turn == RIGHT and k == ends[0]) or (turn == LEFT and k == ends[1]):
        return k
    return (k + (turn == LEFT) - (turn == RIGHT)) % count


@allocating
def _follow(sees, count, ends, turns, seen):
    """Write the targets that a sensor sees at each time, (T, words), when it makes the turns (T,)."""
    k = 0
    for t in range(turns.shape[0]):
        k = _turned(k, turns[t], count, ends)
        seen[t] = sees[t, k]


@allocating
def _best_turns(sees, others, working, worth, cost, count, ends, value, ahead, choice, turns):
    """Write the best turns (T,) of one sensor, given the targets that the others see; ties go to the fewest turns.

    `value` (K,) is the future value of a heading after a sub-step, `ahead` (K,) that before the sensor sees in it.
    """
    value[:] = 0.0
    for t in range(sees.shape[0] - 1, -1, -1):
        for k in range(count):
            new = 0
            for w in range(sees.shape[2]):
                new += _size(sees[t, k, w] & ~others[t, w])
            ahead[k] = value[k] + worth[t] * new
        for k in range(count):
            best, value[k] = STAY, ahead[k]
            if working[t]:
                left, right = ahead[k + 1 if k + 1 < count else 0], ahead[k - 1 if k > 0 else count - 1]
                if left - cost > value[k] and k != ends[1]:
                    best, value[k] = LEFT, left - cost
                if right - cost > value[k] and k != ends[0]:
                    best, value[k] = RIGHT, right - cost
            choice[t, k] = best
    k = 0
    for t in range(sees.shape[0]):
        turns[t] = choice[t, k]
        k = _turned(k, turns[t], count, ends)


@kernel
def ascend(sees, working, worth, cost, count, ends, order, turns, value, share):
    """Improve the turns (R, n, T) of R starts, one sensor after the other, until no sensor improves.

    Write the value of the turns into `value` (R,): `worth` (T,) for every covered target, less `cost` for every turn.
    At its two ``ends[i]``, numbers of headings or -1, sensor i turns no further to the right and to the left.
    """
    n, times, headings, words = sees.shape
    for low, high in blocks(turns.shape[0], share):
        for r in range(low, high):
            seen = np.zeros((n, times, words), np.uint64)
            others = np.empty((times, words), np.uint64)
            after, ahead, choice = np.empty(headings), np.empty(headings), np.empty((times, headings), np.int8)
            for i in range(n):
                _follow(sees[i], count[i], ends[i], turns[r, i], seen[i])
            value[r] = -np.inf
            better, rounds = True, 0
            while better and rounds < _MOST_ROUNDS:
                rounds += 1
                for i in order[r]:
                    others[:] = 0
                    for other in range(n):
                        if other != i:
                            others |= seen[other]
                    _best_turns(sees[i], others, working[:, i], worth, cost, count[i], ends[i], after, ahead, choice,
                                turns[r, i])  # fmt: skip
                    _follow(sees[i], count[i], ends[i], turns[r, i], seen[i])
                total = 0.0
                for t in range(times):
                    for w in range(words):
                        union = np.uint64(0)
                        for i in range(n):
                            union |= seen[i, t, w]
                        total += worth[t] * _size(union)
                    for i in range(n):
                        total -= cost * (turns[r, i, t] != STAY)
                better = total > value[r] + 1e-9
                value[r] = max(value[r], total)
