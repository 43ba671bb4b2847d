"""Views of the sensors: samples of the targets' futures that each would see. Compiled by numba.

For every row of knowledge, sensor, lens, place on its rail and heading, the samples in view at each stage of a plan are
marked. In large scenes every sensor lists the targets that are most often in its reach.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.planning.futures import Horizon, close, put, row_of
from hitmac.agents.planning.search import CHUNK, bits_of
from hitmac.agents.tracking.sight import VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, degrees, is_clear
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.formulas import value_of, wrapped
from hitmac.envs.base.nearest import Cells, box_of, sort_into_cells
from hitmac.envs.base.threads import blocks
from hitmac.envs.features import Values
from hitmac.envs.parts.knowledge import popcount
from hitmac.envs.parts.lenses import Lens, view_ahead
from hitmac.envs.parts.rails import STAND, Rails, place_ahead, rail_of
from hitmac.envs.parts.tilt import Mount, edges_ahead

_PAD = 1.0 + 1e-5  # of a range; views are rounded to float32


class Ways(NamedTuple):
    """Ways of plans: the motion along the rail at every sub-step, and zoom and tilt at the first ones, then kept."""

    move: np.ndarray  # (A,) int64 actions
    zoom: np.ndarray  # (A,) int64 actions
    zooms: np.ndarray  # (A,) int64 sub-steps with that zoom
    tilt: np.ndarray  # (A,) int64 actions
    tilts: np.ndarray  # (A,) int64 sub-steps with that tilt
    lens: Lens
    mount: Mount
    rails: Rails
    rail_step: float
    rail_clear: np.ndarray  # (r, P, DIRECTIONS) obstacles around the rails' places; or empty: as at the present place


class Hidden(NamedTuple):
    """Samples of targets that random discs do not hide, by distance."""

    members: np.ndarray  # (n, D) uint64: the bits of those that each sensor sees at a distance; D = 0: all
    per_distance: float  # D / the largest distance


class Sensors(NamedTuple):
    """Sensors as planners know them; the ways are the same for all."""

    turn: np.ndarray  # (n,) degrees
    limits: np.ndarray  # (n, 2) pan limits, degrees
    farthest: int  # most turns to either side
    ways: Ways
    hidden: Hidden
    horizon: Horizon
    samples: int  # of a target


class Worth(NamedTuple):
    """Worth of samples where targets have values, or several sensors must see them."""

    values: Values
    levels: int  # bits of the highest level, to which values are rounded; 0: all samples are worth 1
    per_value: float  # levels / value
    shares: np.ndarray  # (k,) see :func:`~hitmac.agents.planning.search.shares_of`


class Near(NamedTuple):
    """Options of plans for the nearest targets."""

    cells: Cells
    moved: float  # largest distance that a sensor can move within the horizon
    worth: Worth


class _Lens(NamedTuple):
    """A sensor at one stage."""

    x: np.float32
    y: np.float32
    cos: np.float32
    sin: np.float32
    moved_x: np.float32  # from (x, y) on
    moved_y: np.float32
    squared: np.float32  # of the range
    near: np.float32  # squared distance of the near edge
    half_view: np.float32  # degrees
    per_turn: np.float32  # turns per degree


@inlined
def _write_sides(lens, dx, dy, near, most, sides, e):
    """Write the headings from which entry e, at an offset from the sensor, is in view into `sides` (4, E).

    The rows are the first heading and the first beyond the last, and the same a full circle away; both are equal unless
    the entry is `near`.
    """
    full, zero, one = np.float32(360.0), np.float32(0.0), np.float32(1.0)
    bearing = degrees(lens.cos * dy - lens.sin * dx, lens.cos * dx + lens.sin * dy)
    again = bearing - full if bearing > zero else bearing + full
    half = lens.half_view if near else zero
    # A target on the edge of a view is out of it: the next whole turn inside is the first, the next outside ends it.
    first = np.floor((bearing - half) * lens.per_turn) + one
    last = np.ceil((bearing + half) * lens.per_turn) if half > zero else first
    other_first = np.floor((again - half) * lens.per_turn) + one
    other_last = np.ceil((again + half) * lens.per_turn) if half > zero else other_first
    sides[0, e] = np.int32(min(max(first, -most), most + one) + most)
    sides[1, e] = np.int32(min(max(last, -most), most + one) + most)
    sides[2, e] = np.int32(min(max(other_first, -most), most + one) + most)
    sides[3, e] = np.int32(min(max(other_last, -most), most + one) + most)


@inlined
def _leave_out_near(lens, xs, ys, sides):
    """Bring the entries before the near edge of a sensor into view from no heading."""
    for k in range(CHUNK if lens.near > np.float32(0.0) else 0):
        dx, dy = xs[k] - lens.x - lens.moved_x, ys[k] - lens.y - lens.moved_y
        if dx * dx + dy * dy < lens.near:
            sides[1, k], sides[3, k] = sides[0, k], sides[2, k]


@compiled
def _mark(x, y, who, lens, clear, most, sides, row):
    """Write the samples in view of a sensor from each heading into `row` (2 * most + 2,).

    The entries (E,), E a multiple of CHUNK, are those of a list of futures. `clear` (DIRECTIONS,) are the obstacles in
    the way of the sensor, or (0,). A row begins `most` turns to the right; its last element is unused. `sides`
    (E / CHUNK, 4, CHUNK) is scratch memory.
    """
    # Loops over chunks have no remainder. All sides are written before any is read, since reading one element of a
    # vector that was just stored is slow.
    most, chunks = np.float32(most), x.shape[0] // CHUNK
    for chunk in range(chunks):
        first = chunk * CHUNK
        xs, ys, own = x[first : first + CHUNK], y[first : first + CHUNK], sides[chunk]
        if clear.shape[0] == 0:
            for k in range(CHUNK):
                dx, dy = xs[k] - lens.x - lens.moved_x, ys[k] - lens.y - lens.moved_y
                _write_sides(lens, dx, dy, dx * dx + dy * dy <= lens.squared, most, own, k)
            _leave_out_near(lens, xs, ys, own)
            continue
        closest = np.float32(np.inf)  # with obstacles, chunks out of range are worth a test
        for k in range(CHUNK):
            dx, dy = xs[k] - lens.x - lens.moved_x, ys[k] - lens.y - lens.moved_y
            closest = min(closest, dx * dx + dy * dy)
        if closest > lens.squared:
            for side in range(4):
                for k in range(CHUNK):
                    own[side, k] = 0
            continue
        for k in range(CHUNK):
            dx, dy = xs[k] - lens.x - lens.moved_x, ys[k] - lens.y - lens.moved_y
            near = (dx * dx + dy * dy <= lens.squared) & is_clear(clear, dx, dy)
            _write_sides(lens, dx, dy, near, most, own, k)
        _leave_out_near(lens, xs, ys, own)
    for k in range(row.shape[0]):
        row[k] = 0
    again = np.floor((np.float32(180.0) - lens.half_view) * lens.per_turn) <= most
    # A sample enters the row at its first heading and leaves it after its last: both toggle its bit, and the running
    # exclusive or below has it set in between.
    for chunk in range(chunks):
        own, members = sides[chunk], who[chunk * CHUNK : (chunk + 1) * CHUNK]
        for side in range(0, 4 if again else 2, 2):  # else nothing comes into view on the far side
            for k in range(CHUNK):
                if own[side, k] != own[side + 1, k]:
                    row[np.uint64(own[side, k])] ^= members[k]
                    row[np.uint64(own[side + 1, k])] ^= members[k]
    inside = np.uint64(0)
    for k in range(row.shape[0]):
        inside ^= row[k]
        row[k] = inside


@inlined
def _unhide(hidden, i, x, y, who, lens, seen):
    """Write the samples of the entries that are not hidden from sensor i into `seen`."""
    for e in range(who.shape[0]):
        dx, dy = x[e] - lens.x - lens.moved_x, y[e] - lens.y - lens.moved_y
        k = min(math.sqrt(dx * dx + dy * dy) * hidden.per_distance, hidden.members.shape[1] - 1.0)
        seen[e] = who[e] & hidden.members[i, int(k)]


@inlined
def _lens_ahead(ways, way, ahead, squared, view):
    """Return the squared range and half the field of view of a way after `ahead` sub-steps, from the present ones."""
    return view_ahead(ways.lens, ways.zoom[way], min(ahead, ways.zooms[way]), squared, view)


@inlined
def _write_reach(sensors, i, narrowest, view, reach):
    """Write the most turns of sensor i with a `view` (7,) to the right and to the left; return the most of both.

    Half a circle brings every target into view. With pan limits, where only the long way may be possible, it is a full
    circle minus half of the `narrowest` field of view; within less, no direction is in view twice.
    """
    low, high, turn, works = sensors.limits[i, 0], sensors.limits[i, 1], sensors.turn[i], view[VIEW_RANGE] > 0.0
    most = 360.0 - narrowest if low > -np.inf else 180.0
    farthest = min(sensors.farthest, math.ceil(most / max(turn, 1e-6))) if works else 0
    reach[0] = reach[1] = farthest
    if low > -np.inf and works:
        heading = math.degrees(math.atan2(view[VIEW_SIN], view[VIEW_COS]))
        heading = wrapped(heading, (low + high) / 2.0)
        # Headings are observed with the precision of float32.
        reach[0] = min(max(math.floor((heading - low) / turn + 1e-3), 0), farthest)
        reach[1] = min(max(math.floor((high - heading) / turn + 1e-3), 0), farthest)
    return farthest


@kernel
def mark_all(sensors, scene, first, futures, views, share):
    """Write the samples in view of all sensors, from row `first` of the scene's knowledge on.

    The `futures` of a row are one for all sensors, or one for each. Headings are ordered from the farthest turn to the
    right; those out of reach by the last sub-step of a stage are omitted.
    """
    ways, horizon, one, all_clear = sensors.ways, sensors.horizon, np.float32, scene.clear
    (rows, n, _), (_, _, number, stages, words, _) = scene.ahead.shape, views.sees.shape
    lists = futures.length.shape[0] // views.farthest.shape[0]  # of a row
    sides, seen = np.empty((futures.x.shape[3] // CHUNK, 4, CHUNK), np.int32), np.empty(futures.x.shape[3], np.uint64)
    for low, high in blocks(views.farthest.shape[0], share):
        for q in range(low, high):
            r = first + q
            clear = all_clear[r * all_clear.shape[0] // rows]  # of the row's scene, or of all
            for i in range(n):
                view, field, rail, f = scene.ahead[r, i], scene.lens[r, i], 0, q * lists + min(i, lists - 1)
                narrowest = np.inf  # half a view of any way, which decides how far round a turn may be of use
                for way in range(number):
                    for s in range(1, stages):
                        ahead = _lens_ahead(ways, way, horizon.middle[s], view[VIEW_RANGE], field)
                        narrowest = min(narrowest, ahead[1])
                farthest = _write_reach(sensors, i, narrowest, view, views.reach[q, i])
                views.farthest[q, i] = farthest
                for way in range(number):
                    for s in range(1, stages):
                        x, y, place, most = one(0.0), one(0.0), -1, min(horizon.last[s], farthest)
                        if ways.move[way] != STAND:
                            rail = rail_of(ways.rails, i)
                            begin, steps = scene.along[r, i], horizon.middle[s]
                            x, y, place = place_ahead(ways.rails, rail, ways.rail_step, ways.move[way], steps, begin)
                        squared, half = _lens_ahead(ways, way, horizon.middle[s], view[VIEW_RANGE], field)
                        times, tilt = min(horizon.middle[s], ways.tilts[way]), scene.tilt[r, i]
                        squared, near = edges_ahead(ways.mount, i, ways.tilt[way], times, tilt, half, squared)
                        lens = _Lens(
                            one(view[VIEW_X]), one(view[VIEW_Y]), one(view[VIEW_COS]), one(view[VIEW_SIN]), x, y,
                            one(squared), one(near), one(half), one(1.0 / max(sensors.turn[i], 1e-6)),
                        )  # fmt: skip
                        here = clear[i]
                        if place >= 0 and ways.rail_clear.shape[0] > 0:
                            here = ways.rail_clear[rail, place]
                        for word in range(words):
                            used = futures.length[f, s, word]
                            xs, ys = futures.x[f, s, word, :used], futures.y[f, s, word, :used]
                            who = futures.who[f, s, word, :used]
                            if sensors.hidden.members.shape[1] > 0:
                                _unhide(sensors.hidden, i, xs, ys, who, lens, seen)
                                who = seen[:used]
                            row = views.sees[q, i, way, s, word, farthest - most : farthest + most + 2]
                            _mark(xs, ys, who, lens, here, most, sides, row)


@inlined
def _level(worth, j, x, y):
    """Return the value of target j at (x, y) in levels, at least 1 unless it is 0; without values 1."""
    if worth.levels == 0:
        return np.int32(1)
    value = value_of(worth.values, j, x, y)
    return np.int32(max(value * worth.per_value + 0.5, 1.0 if value > 0.0 else 0.0))


@allocating
def _write_levels(worth, samples, per_word, listed, futures, levels):
    """Write the samples (P, S + 1, W) whose level has bit p; return the number of all samples and of their levels.

    `listed` (k,) are the targets of the places in words; k = 0: all in order.
    """
    levels[:] = 0
    number, total = 0, 0
    for s in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            for e in range(futures.length[s, word]):
                members = futures.who[s, word, e]  # of one target
                if members != 0:
                    # The number of the lowest bit that is set tells the target.
                    lowest = int(popcount((members & (~members + np.uint64(1))) - np.uint64(1)))
                    place = word * per_word + lowest // samples
                    j = place if listed.shape[0] == 0 else int(listed[place])
                    level = _level(worth, j, futures.x[s, word, e], futures.y[s, word, e])
                    for p in range(levels.shape[0]):
                        if level >> p & 1:
                            levels[p, s, word] |= members
                    count = int(popcount(members))
                    number, total = number + count, total + level * count
    return number, total


@kernel
def weigh_all(worth, sampling, every, own, views, share):
    """Write the levels and terms of the worth of samples in `views`: 1 is the mean worth of all samples of `every`.

    `own` are the futures that the sensors list, or `every` again.
    """
    lists, in_order = own.length.shape[0] // every.length.shape[0], np.empty(0, np.int32)
    nothing = np.empty((0, every.length.shape[1], every.length.shape[2]), np.uint64)
    for low, high in blocks(every.length.shape[0], share):
        for q in range(low, high):
            samples, per_word = sampling.samples, 64 // sampling.samples
            number, total = _write_levels(worth, samples, sampling.per_word, in_order, row_of(every, q), nothing)
            for t in range(views.terms.shape[1]):
                part = worth.shares[-1] if t < worth.levels else worth.shares[0]
                views.terms[q, t] = 2 ** (t % worth.levels) * part * (number / total if total > 0 else 1.0)
            for i in range(lists):
                future = row_of(own, q * lists + i)
                _write_levels(worth, samples, per_word, views.listed[q, i], future, views.levels[q, i])


@allocating
def _list_likeliest(near, views, futures, listed):
    """List the k targets with the most samples in reach of each sensor, given its view with the longest range.

    Samples of all stages count, by value, in lists with one target in a word. Targets without any are omitted.
    """
    n, m, cells = views.shape[0], futures.length.shape[1], near.cells
    reach, works, widest = np.zeros(n), np.zeros((n, 1), np.bool_), 0.0
    for i in range(n):
        if views[i, VIEW_RANGE] > 0.0:
            reach[i], works[i, 0] = (math.sqrt(views[i, VIEW_RANGE]) + near.moved) * _PAD, True
            widest = max(widest, reach[i])
    start, order = np.empty(cells.columns * cells.rows + 2, np.int32), np.empty(n, np.int32)
    x, y, found = np.empty(n), np.empty(n), np.zeros((n, m), np.int32)  # samples in reach of each sensor
    sort_into_cells(cells, views.reshape(n, views.shape[1], 1), works, 0, start, order, x, y)
    for j in range(m):
        for stage in range(1, futures.length.shape[0]):
            for e in range(futures.length[stage, j]):
                members = futures.who[stage, j, e]
                if members == 0:
                    continue
                at_x, at_y = futures.x[stage, j, e], futures.y[stage, j, e]
                level = _level(near.worth, j, at_x, at_y)
                first_column, last_column, first_row, last_row = box_of(
                    cells, at_x - widest, at_x + widest, at_y - widest, at_y + widest
                )
                for row in range(first_row, last_row + 1):
                    before = row * cells.columns
                    for s in range(start[before + first_column], start[before + last_column + 1]):
                        i = order[s]
                        dx, dy = at_x - x[s], at_y - y[s]
                        if dx * dx + dy * dy <= reach[i] * reach[i]:
                            found[i, j] += level * np.int32(popcount(members))
    for i in range(n):
        listed[i] = -1
        number = 0
        while number < listed.shape[1] and found[i].max() > 0:
            j = found[i].argmax()  # the first of equals
            listed[i, number], found[i, j] = j, 0
            number += 1
        listed[i, :number].sort()


@allocating
def _gather(near, listed, view, samples, every, own):
    """Write the futures in reach of a sensor of its `listed` targets (k,), with as many targets in a word as fit."""
    own.length[:] = 0
    reach = (math.sqrt(view[VIEW_RANGE]) + near.moved) * _PAD
    for place in range(listed.shape[0]):
        j = listed[place]
        if j < 0:
            continue
        word, bit = bits_of(place, samples)
        for s in range(1, every.length.shape[0]):
            for e in range(every.length[s, j]):
                x, y, members = every.x[s, j, e], every.y[s, j, e], every.who[s, j, e]
                dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
                if members != 0 and dx * dx + dy * dy <= reach * reach:
                    put(own, s, word, x, y, members << bit)
    close(own)


@kernel
def list_all(near, sensors, scene, first, every, own, listed, share):
    """List the likeliest targets of every sensor, and gather their futures."""
    (_, n, _), middle = scene.ahead.shape, sensors.horizon.middle
    for low, high in blocks(listed.shape[0], share):
        for q in range(low, high):
            longest, row = scene.ahead[first + q].copy(), row_of(every, q)
            for i in range(n):
                squared, field = longest[i, VIEW_RANGE], scene.lens[first + q, i]
                for way in range(sensors.ways.move.shape[0]):
                    for s in range(1, middle.shape[0]):
                        ahead = _lens_ahead(sensors.ways, way, middle[s], squared, field)
                        longest[i, VIEW_RANGE] = max(longest[i, VIEW_RANGE], ahead[0])
            _list_likeliest(near, longest, row, listed[q])
            for i in range(n):
                _gather(near, listed[q, i], longest[i], sensors.samples, row, row_of(own, q * n + i))
