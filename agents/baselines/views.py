"""Samples of the targets' futures that a sensor has in view from each heading, as bits. Compiled by numba.

The samples of as many targets as fit share a 64-bit word, from bit 0 on. A heading is counted in turns from the present
one, and stored from `farthest` turns to the right on.
"""

import numpy as np

from hitmac.envs.kernels.compiled import allocating, inlined

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
