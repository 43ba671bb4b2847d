"""Plans of all sensors for forecast targets. Compiled by numba.

For every row of knowledge: forecast each target, mark for each sensor the samples in view from each of its headings,
with each of its lenses and from each place on its rail, and search for the best plans.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.forecasts import close, empty_futures, foresee, planned_views, put, spans
from hitmac.agents.baselines.search import (
    CHUNK,
    ascend,
    bits_of,
    candidate_pairs,
    make_room,
    write_exclusive_shares,
    write_reach,
    write_sides,
)
from hitmac.agents.tracking.beliefs import AGE, moves_at
from hitmac.agents.tracking.particles import CONSTANT_VELOCITY, GOALS
from hitmac.agents.tracking.sight import VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, is_clear
from hitmac.envs.kernels.knowledge import popcount
from hitmac.envs.kernels.nearest import box_of, sort_into_cells
from hitmac.envs.kernels.physics import NARROWER, WIDER
from hitmac.envs.kernels.rails import BACK, FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.state import Cells
from hitmac.envs.kernels.threads import allocating, blocks, inlined, kernel
from hitmac.envs.kernels.values import value_of

_PAD = 1.0 + 1e-5  # of a range; views are rounded to float32


class Ways(NamedTuple):
    """Ways of plans: the motion along the rail at every sub-step, and the zoom at the first ones, then kept."""

    move: np.ndarray  # (A,) int64 actions
    zoom: np.ndarray  # (A,) int64 actions
    zooms: np.ndarray  # (A,) int64 sub-steps with that zoom
    zoom_step: float  # degrees
    narrowest: float
    widest: float


class Hidden(NamedTuple):
    """Samples of targets that random discs do not hide, by distance."""

    members: np.ndarray  # (n, D) uint64: the bits of those that each sensor sees at a distance
    per_distance: float  # D / the largest distance


class Near(NamedTuple):
    """Options of plans for the nearest targets."""

    cells: Cells
    most: int  # k, targets of a sensor
    moved: float  # largest distance that a sensor can move within the horizon


@allocating
def mark(x, y, who, pose, moved, view, clear, most, sides, row):
    """Write the samples in view of a sensor from each heading into `row` (2 * most + 2,).

    The entries (E,), E a multiple of CHUNK, are those of :class:`Futures`. `pose` is the position of the sensor and the
    cosine and sine of its heading; it moves by `moved` (2,). `view` is its range squared, half its field of view in
    degrees, and its turns per degree; `clear` (DIRECTIONS,) are the obstacles in its way, or None. All are float32. A
    row begins `most` turns to the right; its last element is unused. `sides` (E / CHUNK, 4, CHUNK) is scratch memory.
    """
    # Loops over chunks have no remainder. All sides are written before any is read, since reading one element of a
    # vector that was just stored is slow.
    at_x, at_y, c, s = pose
    squared, half_view, per_turn = view
    moved_x, moved_y, most, chunks = moved[0], moved[1], np.float32(most), x.shape[0] // CHUNK
    for chunk in range(chunks):
        first = chunk * CHUNK
        xs, ys, own = x[first : first + CHUNK], y[first : first + CHUNK], sides[chunk]
        if clear is not None:  # with obstacles, chunks out of range are worth a test
            closest = np.float32(np.inf)
            for k in range(CHUNK):
                dx, dy = xs[k] - at_x - moved_x, ys[k] - at_y - moved_y
                closest = min(closest, dx * dx + dy * dy)
            if closest > squared:
                own[:] = 0
                continue
        for k in range(CHUNK):
            dx, dy = xs[k] - at_x - moved_x, ys[k] - at_y - moved_y
            near = dx * dx + dy * dy <= squared
            if clear is not None:
                near &= is_clear(clear, dx, dy)
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


@allocating
def _unhidden(hidden, i, x, y, who, pose, moved):
    """Return the samples of the entries that are not hidden from sensor i; see :func:`mark`."""
    members = np.empty_like(who)
    for e in range(who.shape[0]):
        dx, dy = x[e] - pose[0] - moved[0], y[e] - pose[1] - moved[1]
        k = min(math.sqrt(dx * dx + dy * dy) * hidden.per_distance, hidden.members.shape[1] - 1.0)
        members[e] = who[e] & hidden.members[i, int(k)]
    return members


@allocating
def _mark_all(room, i, hidden, seen_from, clear, on_rail, place, lens, turn, futures, moved, last, sides):
    """Write the samples in view of sensor i for each way, look and heading.

    Headings are ordered from the farthest turn to the right. Those out of reach by the `last` sub-step (L + 1,) of a
    look are omitted. The sensor starts with the view `seen_from` (7,), moves by `moved` (A, L + 1, 2), and has
    the squared range and half the field of view `lens` (A, L + 1, 2). `clear` are the obstacles in its way at first,
    `on_rail` (P, DIRECTIONS) those at the places of its rail, of which it is at `place` (A, L + 1); -1: the start.
    """
    farthest, one = room.farthest[i], np.float32
    pose = one(seen_from[VIEW_X]), one(seen_from[VIEW_Y]), one(seen_from[VIEW_COS]), one(seen_from[VIEW_SIN])
    per_turn = one(1.0 / max(turn, 1e-6))
    for way in range(moved.shape[0]):
        for look in range(1, last.shape[0]):
            at = place[way, look]
            then_clear = clear if on_rail is None else (clear if at < 0 else on_rail[at])
            most = min(last[look], farthest)
            view = one(lens[way, look, 0]), one(lens[way, look, 1]), per_turn
            for word in range(futures.length.shape[1]):
                used = futures.length[look, word]
                x, y, who = futures.x[look, word, :used], futures.y[look, word, :used], futures.who[look, word, :used]
                seen = who if hidden is None else _unhidden(hidden, i, x, y, who, pose, moved[way, look])
                row = room.sees[i, way, look, word, farthest - most : farthest + most + 2]
                mark(x, y, seen, pose, moved[way, look], view, then_clear, most, sides, row)


@inlined
def _level(worth, j, x, y):
    """Return the value of target j at (x, y) in levels, at least 1 unless it is 0."""
    value = value_of(worth.values, j, x, y)
    return np.int32(max(value * worth.per_value + 0.5, 1.0 if value > 0.0 else 0.0))


@allocating
def _write_planes(worth, per_word, samples, listed, futures, planes):
    """Write the samples (P, L + 1, W) whose level has bit p; return the number of all samples and of their levels.

    `listed` (k,) are the targets of the places in words; None: all in order.
    """
    planes[:] = 0
    number, total = 0, 0
    for look in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            for e in range(futures.length[look, word]):
                members = futures.who[look, word, e]  # of one target
                if members != 0:
                    lowest = int(popcount((members & (~members + np.uint64(1))) - np.uint64(1)))
                    place = word * per_word + lowest // samples
                    j = place if listed is None else int(listed[place])
                    level = _level(worth, j, futures.x[look, word, e], futures.y[look, word, e])
                    for p in range(planes.shape[0]):
                        if level >> p & 1:
                            planes[p, look, word] |= members
                    count = int(popcount(members))
                    number, total = number + count, total + level * count
    return number, total


@allocating
def _write_terms(worth, number, total, terms):
    """Write the worth of a sample of each term (T,); the mean worth of all samples is 1."""
    for t in range(terms.shape[0]):
        share = worth.shares[-1] if t < worth.planes else worth.shares[0]
        terms[t] = 2 ** (t % worth.planes) * share * (number / total if total > 0 else 1.0)


@allocating
def _likeliest_pairs(near, worth, views, futures):
    """Return the candidate pairs of the k targets with the most samples in reach of each sensor, given its view (n, 7).

    Samples of all looks count, by value, in lists with one target in a word. Targets without any are omitted.
    """
    n, m, cells = views.shape[0], futures.length.shape[1], near.cells
    reach = np.where(views[:, VIEW_RANGE] > 0.0, (np.sqrt(views[:, VIEW_RANGE]) + near.moved) * _PAD, 0.0)
    start, order = np.empty(cells.columns * cells.rows + 2, np.int32), np.empty(n, np.int32)
    x, y = np.empty(n), np.empty(n)
    sort_into_cells(cells, views.reshape(n, 7, 1), (reach > 0.0).reshape(n, 1), 0, start, order, x, y)
    widest, found = reach.max(), np.zeros((n, m), np.int32)  # samples in reach of each sensor
    for j in range(m):
        for look in range(1, futures.length.shape[0]):
            for e in range(futures.length[look, j]):
                members = futures.who[look, j, e]
                if members == 0:
                    continue
                at_x, at_y = futures.x[look, j, e], futures.y[look, j, e]
                level = np.int32(1) if worth is None else _level(worth, j, at_x, at_y)
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
    targets = np.full((n, near.most), -1, np.int32)
    for i in range(n):
        number = 0
        while number < near.most and found[i].max() > 0:
            j = found[i].argmax()  # the first of equals
            targets[i, number], found[i, j] = j, 0
            number += 1
        targets[i, :number].sort()
    return candidate_pairs(targets, targets >= 0, m)


@allocating
def _gather_near(near, candidates, i, view, samples, every, futures):
    """Write the futures in reach of sensor i of its listed targets, with as many targets in a word as fit."""
    futures.length[:] = 0
    reach = (math.sqrt(view[VIEW_RANGE]) + near.moved) * _PAD
    for s in range(candidates.targets.shape[1]):
        j = candidates.targets[i, s]
        if not candidates.valid[i, s]:
            continue
        word, bit = bits_of(s, samples)
        for look in range(1, every.length.shape[0]):
            for e in range(every.length[look, j]):
                x, y, members = every.x[look, j, e], every.y[look, j, e], every.who[look, j, e]
                dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
                if members != 0 and dx * dx + dy * dy <= reach * reach:
                    put(futures, look, word, x, y, members << bit)
    close(futures)


@allocating
def _write_lens(ways, middle, squared, view, lens):
    """Write the squared range and half the field of view (A, L + 1, 2) of each way at the `middle` of each look.

    Given are the present `squared` and `view`. The area of a view, ``range^2 * view``, is constant.
    """
    for way in range(lens.shape[0]):
        step = ways.zoom_step * (int(ways.zoom[way] == WIDER) - int(ways.zoom[way] == NARROWER))
        for look in range(1, lens.shape[1]):
            gone = step * min(middle[look], ways.zooms[way])
            then = min(max(view + gone, ways.narrowest), ways.widest) if step != 0.0 else view
            lens[way, look, 0] = squared * view / then if then != view else squared
            lens[way, look, 1] = 0.5 * then


@kernel
def plan_all(
    rules, sensors, ways, motion, along, search, worth, sampling, near, pieces, evades, hidden, rail_clear, all_clear,
    scene, history, values, own_shares, share,
):  # fmt: skip
    """Write the values (R, k n, 3) of the next actions of R rows of knowledge, for k decisions.

    `sensors` are the fields of view (R, n) and the turns (n,), in degrees, `along` (R, n) the positions on the rails
    divided by their lengths, and `scene` holds the beliefs. With `near`, sensors plan for the nearest targets, else for
    all. `worth` is None without values. If `evades` is not None, targets evade the views of the kept plans. `hidden` is
    None without random discs. `rail_clear` (r, P, DIRECTIONS) are the obstacles around the rails' places, or None.
    `history` holds plans (R, n, H + 1) and their ways (R, n), changed in place. `own_shares` are the window (0:
    disabled) and the output (R, n, m) of :func:`write_exclusive_shares`.
    """
    (belief, known, all_views, _, present, time), (field_of_view, turn), (kept, kept_ways) = scene, sensors, history
    n, m, samples = all_views.shape[1], known.shape[1], search.samples
    middle_of, last = spans(search.looks)
    ahead = np.append(np.zeros(sampling.delay, np.int64), search.looks)  # the looks of the sub-steps from now
    middle_of += sampling.delay
    middle_of[0] = -1
    looks = last.shape[0] - 1
    most = m + sampling.unseen
    every = empty_futures(looks, (most - 1) // sampling.per_word + 1, min(most, sampling.per_word) * (samples + 1))
    own = every  # of a sensor
    if near is not None:
        per_word = 64 // samples
        own = empty_futures(looks, (near.most - 1) // per_word + 1, min(near.most, per_word) * (samples + 1))
    moves, shared = np.empty(looks + 1), np.empty(looks + 1, np.int64)
    walk = rules.walk
    keeps_course = walk.model == GOALS or (walk.model == CONSTANT_VELOCITY and walk.swerve == 0.0)
    room = make_room(search, worth, n, own.x.shape[1])
    sides = np.empty((own.x.shape[2] // CHUNK, 4, CHUNK), np.int32)
    moved = np.zeros((room.sees.shape[1], looks + 1, 2), np.float32)
    place = np.full(moved.shape[:2], -1)
    lens = np.empty((n, moved.shape[0], looks + 1, 2))
    for low, high in blocks(values.shape[0], share):
        for r in range(low, high):
            views, gone = all_views[r], 0
            for h in range(1, ahead.shape[0]):
                gone += moves_at(rules, time[r] + h - 1)
                if middle_of[ahead[h]] == h:
                    moves[ahead[h]] = gone
            every.length[:] = 0
            row_clear = None if all_clear is None else all_clear[r * all_clear.shape[0] // known.shape[0]]
            evaded = None if evades is None else planned_views(views, turn, kept[r], sampling.delay)
            for j in range(m):
                if present[r, j]:
                    moving = known[r, j, 2] != 0.0 or known[r, j, 3] != 0.0  # the velocity
                    together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0 and keeps_course
                    body, weight = belief.body[r, j], belief.weight[r, j]
                    foresee(
                        rules, samples, sampling, pieces, belief.discs[r], body, weight, together, time[r], j, 1, ahead,
                        middle_of, moves, evaded, row_clear, shared, every,
                    )  # fmt: skip
            if sampling.unseen > 0:
                body, weight = belief.body[r, m], belief.weight[r, m]
                foresee(
                    rules, samples, sampling, pieces, belief.discs[r], body, weight, False, time[r], m, sampling.unseen,
                    ahead, middle_of, moves, evaded, row_clear, shared, every,
                )  # fmt: skip
            close(every)
            longest = views.copy()
            for i in range(n):
                _write_lens(ways, middle_of, views[i, VIEW_RANGE], field_of_view[r, i], lens[i])
                longest[i, VIEW_RANGE] = max(views[i, VIEW_RANGE], lens[i, :, 1:, 0].max())
            candidates = None if near is None else _likeliest_pairs(near, worth, longest, every)
            if worth is not None:
                number, total = _write_planes(worth, sampling.per_word, samples, None, every, room.planes[0, :0])
                _write_terms(worth, number, total, room.terms)
            for i in range(n):
                view = views[i]
                narrowest = lens[i, :, 1:, 1].min()
                write_reach(
                    search, room, i, narrowest, turn[i], view[VIEW_RANGE] > 0.0, view[VIEW_COS], view[VIEW_SIN]
                )  # fmt: skip
                rail = 0
                if motion is not None:
                    rail = rail_of(motion.rails, i)
                    begin = along[r, i] * motion.rails.length[rail]
                    for way in range(moved.shape[0]):
                        for look in range(1, looks + 1):
                            steps = middle_of[look] * (int(ways.move[way] == FORWARD) - int(ways.move[way] == BACK))
                            then = gone_along(motion.rails, rail, begin, steps * motion.rail_step)
                            moved[way, look, 0], moved[way, look, 1] = way_between(motion.rails, rail, begin, then)
                            place[way, look] = -1 if steps == 0 else round(then / motion.rail_step)
                if near is not None:
                    _gather_near(near, candidates, i, longest[i], samples, every, own)
                if worth is not None and (near is not None or i == 0):
                    listed = None if candidates is None else candidates.targets[i]
                    _write_planes(worth, 64 // samples, samples, listed, own, room.planes[i])
                elif worth is not None:
                    room.planes[i] = room.planes[0]
                clear = None if row_clear is None else row_clear[i]
                on_rail = None if rail_clear is None else rail_clear[rail]
                _mark_all(room, i, hidden, view, clear, on_rail, place, lens[i], turn[i], own, moved, last, sides)
            ascend(search, worth, room, candidates, time[r], kept[r], kept_ways[r], values[r])
            if own_shares[0] > 0:
                write_exclusive_shares(search, worth, room, own_shares[0], own_shares[1][r])
