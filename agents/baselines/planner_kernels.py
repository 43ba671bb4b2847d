"""Plans of all sensors, given observations or beliefs. Compiled by numba.

For every scene: foresee the targets, mark for each sensor the samples of their futures that are in view from each of
its headings, and search for the best plans.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.forecast import (
    COS,
    COURSE_SPEED,
    DISTANCE,
    HEADING_COS,
    HEADING_SIN,
    RADIAL,
    RANGE,
    SIN,
    TANGENTIAL,
    TURN,
    VIEW,
    clear,
    close,
    empty_futures,
    foresee_believed,
    foresee_observed,
    gone_on_rail,
    middle,
    moved_twice,
    put,
    remember,
    spans,
)
from hitmac.agents.baselines.search import (
    CHUNK,
    ascend,
    bits_of,
    candidate_pairs,
    mark,
    room_for,
    write_reach,
    write_sides,
)
from hitmac.agents.tracking.motion import moves_at
from hitmac.agents.tracking.sight import AGE, SPEED_X, SPEED_Y, VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y
from hitmac.envs.kernels.knowledge import popcount
from hitmac.envs.kernels.nearest import box_of, sort_into_cells
from hitmac.envs.kernels.rails import FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.state import Cells
from hitmac.envs.kernels.threads import allocating, blocks, kernel

_PAD = 1.0 + 1e-5  # of a range; views are rounded to float32


class Near(NamedTuple):
    """Options of plans for the nearest targets."""

    cells: Cells
    most: int  # k, targets of a sensor
    moved: float  # the farthest that a sensor can go within the horizon


@allocating
def _mark_believed(headings, i, x, y, c, s, squared, half_view, turn, futures, moved, last, sides):
    """Write the samples that sensor i has in view, on each of its ways to move, from each heading at each look.

    A heading is stored from the farthest turn to the right on. Those that the sensor cannot reach by the `last`
    sub-step (L + 1,) of a look are left out. On its ways it goes by `moved` (A, L + 1, 2).
    """
    farthest, one = headings.farthest[i], np.float32
    pose = one(x), one(y), one(c), one(s)
    view = one(squared), one(half_view), one(1.0 / max(turn, 1e-6))
    for way in range(moved.shape[0]):
        for look in range(1, last.shape[0]):
            most = min(last[look], farthest)
            for word in range(futures.length.shape[1]):
                used = futures.length[look, word]
                mark(
                    futures.x[look, word, :used], futures.y[look, word, :used], futures.who[look, word, :used], pose,
                    moved[way, look], view, most, sides,
                    headings.sees[i, way, look, word, farthest - most : farthest + most + 2],
                )  # fmt: skip


@allocating
def _mark_observed(pairs, mask, candidates, i, foreseen, most_gone, samples, farthest, moved, sides, sees):
    """Write the samples that sensor i has in view from each heading at each sub-step into `sees` (H + 1, W, K + CHUNK).

    No target goes farther than `most_gone` with respect to the sensor, which goes by `moved` (H + 1, 2) ahead and to
    the left; None: nowhere. `foreseen` are the entries of each target, and `sides` (4, E) is scratch memory.
    """
    entries, when, who, where = foreseen
    sees[:] = 0
    half_view = np.float32(pairs[i, :, VIEW].max() * 180.0)
    per_turn = np.float32(1.0 / max(pairs[i, :, TURN].max() * 180.0, 1e-6))
    most = np.float32(farthest)
    for s in range(mask.shape[1]):
        own = pairs[i, s]
        if mask[i, s] == 0 or own[DISTANCE] > own[RANGE] + most_gone:
            continue
        speed = math.hypot(own[RADIAL], own[TANGENTIAL])
        east = np.float32((own[COS] * own[RADIAL] - own[SIN] * own[TANGENTIAL]) / speed if speed > 0.0 else 1.0)
        north = np.float32((own[SIN] * own[RADIAL] + own[COS] * own[TANGENTIAL]) / speed if speed > 0.0 else 0.0)
        at_x, at_y, squared = own[COS] * own[DISTANCE], own[SIN] * own[DISTANCE], own[RANGE] * own[RANGE]
        j = s if candidates is None else candidates.targets[i, s]
        ahead, aside = where[j, 0], where[j, 1]
        for e in range(entries[j]):
            x = at_x + east * ahead[e] - north * aside[e]
            y = at_y + north * ahead[e] + east * aside[e]
            if moved is not None:
                x -= moved[when[j, e], 0]
                y -= moved[when[j, e], 1]
            write_sides(sides, e, x, y, x * x + y * y <= squared, half_view, per_turn, most)
        word, bit = bits_of(s, samples)
        for e in range(entries[j]):
            row, members = sees[when[j, e], word], who[j, e] << bit
            for k in range(4):
                row[np.uint64(sides[k, e])] ^= members
    for h in range(1, sees.shape[0]):
        for w in range(sees.shape[1]):
            row, members = sees[h, w], np.uint64(0)
            for k in range(2 * farthest + 1):
                members ^= row[k]
                row[k] = members


@allocating
def _plan_scenes(pairs, mask, targets, history, walk, motion, limits, search, weight, draws, values, own, low, high):
    """Write the values of the next actions, and the history for the next call, of the scenes `low` to `high` - 1.

    Args:
        pairs: (B, n, m, 8) features, with limits (B, n, m, 10), on rails (B, n, m, 11).
        mask: (B, n, m) valid pairs.
        targets: (B, n, k) targets that pairs and mask, then (B, n, k, ...), list; None: all m, in their order.
        history: arrays of the :class:`~hitmac.agents.baselines.planner.PlannerState`, the memory changed in place.
        walk: rule of the targets' walk.
        motion: of the sensors; None: they do not move.
        limits: (n, 2) pan limits, degrees; None: there are none.
        search: options.
        weight: (H + 1,) float32 weight of a sample at each sub-step.
        draws: draws for the targets' futures; see :func:`hitmac.agents.baselines.forecast.foresee_observed`.
        values: (B, n, 3) result, on rails (B, 2 n, 3); see :func:`hitmac.agents.baselines.search.ascend`.
        own: window and result (B, n, m) of the shares that only one sensor covers; (0, 0, 0): not asked for.
        low: first scene.
        high: last scene + 1.
    """
    old_pairs, old_mask, memory, clock, steps, kept, kept_ways, old_targets = history
    n, m, samples, horizon = mask.shape[1], memory.shape[1], draws[0].shape[0], weight.shape[0] - 1
    words, most = (mask.shape[2] - 1) // (64 // samples) + 1, horizon * (samples + 1 if samples > 1 else 1)
    moves, sides = np.empty(horizon + 1), np.empty((4, most), np.int32)
    foreseen = (
        np.empty(m, np.int64), np.empty((m, most), np.int32), np.empty((m, most), np.uint64),
        np.empty((m, 2, most), np.float32),
    )  # fmt: skip
    entries, when, who, where = foreseen
    headings, room = room_for(n, horizon, horizon, words, search.farthest, values.shape[1])
    moved = np.zeros((horizon + 1, 2), np.float32)
    for b in range(low, high):
        new, valid, old, old_valid = pairs[b], mask[b], old_pairs[b], old_mask[b]
        candidates = None if targets is None else candidate_pairs(targets[b], valid, old_targets[b], old_valid, m)
        extra = walk.every > 0 and walk.exact and moved_twice(new, valid, old, old_valid, candidates, walk)
        remember(new, valid, old, old_valid, candidates, walk, motion, 2.0 if extra else 1.0, memory[b])
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
            centre = middle(new, valid, candidates, j) if walk.goals and samples > 1 else (0.0, 0.0)
            entries[j] = foresee_observed(memory[b, j], centre, walk, moves, draws, when[j], who[j], where[j])
        most_gone = moves[horizon] * walk.step * max(1.0 + walk.noise, memory[b, :, COURSE_SPEED].max())
        for i in range(n):
            turn, half_view = new[i, :, TURN].max() * 180.0, new[i, :, VIEW].max() * 180.0
            east, north = (1.0, 0.0) if limits is None else (new[i, 0, HEADING_COS], new[i, 0, HEADING_SIN])
            write_reach(headings, i, search, limits, half_view, turn, turn > 0.0, east, north)
            farthest, sees = headings.farthest[i], headings.sees[i]
            _mark_observed(
                new, valid, candidates, i, foreseen, most_gone, samples, farthest, None, sides, sees[0]
            )  # fmt: skip
            if motion is not None:
                for way in range(1, sees.shape[0]):
                    for h in range(1, horizon + 1):
                        moved[h] = gone_on_rail(motion, new[i, 0], i, h if way == FORWARD else -h)
                    _mark_observed(
                        new, valid, candidates, i, foreseen, most_gone + horizon * motion.step, samples, farthest,
                        moved, sides, sees[way],
                    )  # fmt: skip
        ascend(
            headings, room, weight, search, limits, candidates, steps[b], samples, kept[b], kept_ways[b], own[0],
            own[1][b : b + 1], values[b],
        )  # fmt: skip
        steps[b] += 1


@kernel
def plan(pairs, mask, targets, history, walk, motion, limits, search, weight, draws, values, own, share):
    """Plan for the blocks of scenes that fall to this thread; see :func:`_plan_scenes`."""
    for low, high in blocks(pairs.shape[0], share):
        _plan_scenes(pairs, mask, targets, history, walk, motion, limits, search, weight, draws, values, own, low, high)


@allocating
def _likeliest_pairs(near, views, futures):
    """Return the candidate pairs of every sensor's k likeliest targets, given its view (n, 7).

    They have the most samples in reach of the sensor, over all looks, of lists with a word for each target. Targets
    without any are left out.
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
                first_column, last_column, first_row, last_row = box_of(
                    cells, at_x - widest, at_x + widest, at_y - widest, at_y + widest
                )
                for row in range(first_row, last_row + 1):
                    before = row * cells.columns
                    for s in range(start[before + first_column], start[before + last_column + 1]):
                        i = order[s]
                        dx, dy = at_x - x[s], at_y - y[s]
                        if dx * dx + dy * dy <= reach[i] * reach[i]:
                            found[i, j] += np.int32(popcount(members))
    targets = np.full((n, near.most), -1, np.int32)
    for i in range(n):
        number = 0
        while number < near.most and found[i].max() > 0:
            j = found[i].argmax()  # the first of equals
            targets[i, number], found[i, j] = j, 0
            number += 1
        targets[i, :number].sort()
    return candidate_pairs(targets, targets >= 0, targets, np.zeros(targets.shape, np.bool_), m)


@allocating
def _gather_near(near, candidates, i, view, samples, every, futures):
    """Write the futures of the targets in the list of sensor i that are in its reach, as many in a word as fit."""
    clear(futures)
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
def _plan_rows(
    rules, sensors, motion, limits, along, sampling, near, search, weight, scene, history, values, low, high
):
    """Write the values of the next actions of the rows of knowledge `low` to `high` - 1; see :func:`_plan_scenes`.

    `sensors` are half the fields of view (n,) and the turns (n,), in degrees, `along` (R, n) the places on the rails /
    length of the rail, and `scene` is what the rows believe. With `near`, sensors plan for the nearest targets, else
    for all. `history` holds plans (R, n, H + 1) and their ways to move (R, n), changed in place.
    """
    (belief, known, all_views, present, time), (half_view, turn), (kept, kept_ways) = scene, sensors, history
    n, m, horizon, samples = all_views.shape[1], known.shape[1], weight.shape[0] - 1, sampling.samples
    middle_of, last = spans(search.looks)
    looks = last.shape[0] - 1
    every = empty_futures(looks, (m - 1) // sampling.per_word + 1, min(m, sampling.per_word) * (samples + 1))
    own = every  # of a sensor
    if near is not None:
        per_word = 64 // samples
        own = empty_futures(looks, (near.most - 1) // per_word + 1, min(near.most, per_word) * (samples + 1))
    moves, shared = np.empty(looks + 1), np.empty(looks + 1, np.int64)
    headings, room = room_for(n, horizon, looks, own.x.shape[1], search.farthest, values.shape[1])
    sides = np.empty((own.x.shape[2] // CHUNK, 4, CHUNK), np.int32)
    moved = np.zeros((headings.sees.shape[1], looks + 1, 2), np.float32)
    for r in range(low, high):
        views, gone = all_views[r], 0
        for h in range(1, horizon + 1):
            gone += moves_at(rules, time[r] + h - 1)
            if middle_of[search.looks[h]] == h:
                moves[search.looks[h]] = gone
        clear(every)
        for j in range(m):
            if present[r, j]:
                moving = known[r, j, SPEED_X] != 0.0 or known[r, j, SPEED_Y] != 0.0
                together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0
                foresee_believed(
                    rules, sampling, belief.body[r, j], belief.weight[r, j], together, time[r], j, search.looks,
                    middle_of, moves, shared, every,
                )  # fmt: skip
        close(every)
        candidates = None if near is None else _likeliest_pairs(near, views, every)
        for i in range(n):
            x, y, c, s = views[i, VIEW_X], views[i, VIEW_Y], views[i, VIEW_COS], views[i, VIEW_SIN]
            write_reach(headings, i, search, limits, half_view[i], turn[i], views[i, VIEW_RANGE] > 0.0, c, s)
            if motion is not None:
                rail = rail_of(motion.rails, i)
                begin = along[r, i] * motion.rails.length[rail]
                for way in range(1, moved.shape[0]):
                    for look in range(1, looks + 1):
                        steps = middle_of[look] if way == FORWARD else -middle_of[look]
                        place = gone_along(motion.rails, rail, begin, steps * motion.rail_step)
                        moved[way, look, 0], moved[way, look, 1] = way_between(motion.rails, rail, begin, place)
            if near is not None:
                _gather_near(near, candidates, i, views[i], samples, every, own)
            _mark_believed(
                headings, i, x, y, c, s, views[i, VIEW_RANGE], half_view[i], turn[i], own, moved, last, sides
            )  # fmt: skip
        ascend(
            headings, room, weight, search, limits, candidates, time[r], samples, kept[r], kept_ways[r], 0,
            np.empty((0, n, m), np.float32), values[r],
        )  # fmt: skip


@kernel
def plan_beliefs(rules, sensors, motion, limits, along, sampling, near, search, weight, scene, history, values, share):
    """Plan for the blocks of rows that fall to this thread; see :func:`_plan_rows`."""
    for low, high in blocks(values.shape[0], share):
        _plan_rows(
            rules, sensors, motion, limits, along, sampling, near, search, weight, scene, history, values, low, high
        )
