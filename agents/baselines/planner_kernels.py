"""Plans of all sensors, given observations: the samples of the targets' futures in view. Compiled by numba."""

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
    foresee,
    foresee_courses,
    foresee_moves,
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
    farthest_turn,
    fill_between,
    link,
    mark_entries,
    mark_sides,
    room_for,
    size,
    turns_within,
    write_sides,
)
from hitmac.agents.tracking.beliefs import moves_at
from hitmac.agents.tracking.sight import AGE, SPEED_X, SPEED_Y, VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y
from hitmac.envs.kernels.nearest import box_of, sort_into_cells
from hitmac.envs.kernels.rails import FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.state import Cells
from hitmac.envs.kernels.threads import allocating, blocks, inlined, kernel


@allocating
def _mark(pairs, mask, links, i, entries, when, who, where, most_gone, samples, farthest, moved, sides, sees):
    """Write the samples that sensor i has in view from each heading at each sub-step into `sees` (H + 1, W, K + CHUNK).

    No target goes farther than `most_gone` with respect to the sensor, which goes by `moved` (H + 1, 2) ahead and to
    the left; None: nowhere. `sides` (4, E) is scratch memory.
    """
    sees[:] = 0
    half_view = np.float32(pairs[i, :, VIEW].max() * 180.0)
    per_turn = np.float32(1.0 / max(pairs[i, :, TURN].max() * 180.0, 1e-6))
    most = np.float32(farthest)
    for j in range(mask.shape[1]):
        own = pairs[i, j]
        if mask[i, j] == 0 or own[DISTANCE] > own[RANGE] + most_gone:
            continue
        speed = math.hypot(own[RADIAL], own[TANGENTIAL])
        east = np.float32((own[COS] * own[RADIAL] - own[SIN] * own[TANGENTIAL]) / speed if speed > 0.0 else 1.0)
        north = np.float32((own[SIN] * own[RADIAL] + own[COS] * own[TANGENTIAL]) / speed if speed > 0.0 else 0.0)
        at_x, at_y, squared = own[COS] * own[DISTANCE], own[SIN] * own[DISTANCE], own[RANGE] * own[RANGE]
        t = j if links is None else links.targets[i, j]
        ahead, aside = where[t, 0], where[t, 1]
        for e in range(entries[t]):
            x = at_x + east * ahead[e] - north * aside[e]
            y = at_y + north * ahead[e] + east * aside[e]
            if moved is not None:
                x -= moved[when[t, e], 0]
                y -= moved[when[t, e], 1]
            write_sides(sides, e, x, y, x * x + y * y <= squared, half_view, per_turn, most)
        mark_sides(sees, j, samples, entries[t], when[t], who[t], sides)
    fill_between(sees, farthest)


@allocating
def _mark_ways(
    pairs, mask, links, motion, i, entries, when, who, where, most_gone, samples, farthest, moved, sides, sees
):
    """Write the samples in view of sensor i, see :func:`_mark`, for each way to move (A, H + 1, W, K + CHUNK)."""
    _mark(pairs, mask, links, i, entries, when, who, where, most_gone, samples, farthest, None, sides, sees[0])
    if motion is not None:
        most_gone += (moved.shape[0] - 1) * motion.step
        for way in range(1, sees.shape[0]):
            for h in range(1, moved.shape[0]):
                moved[h] = gone_on_rail(motion, pairs[i, 0], i, h if way == FORWARD else -h)
            _mark(
                pairs, mask, links, i, entries, when, who, where, most_gone, samples, farthest, moved, sides, sees[way]
            )


@allocating
def _plan_scenes(pairs, mask, targets, history, walk, motion, limits, search, weight, futures, values, own, low, high):
    """Write the values of the next actions, and the history for the next call, of the scenes `low` to `high` - 1.

    Args:
        pairs: (B, n, m, 8) features, with limits (B, n, m, 10), on rails (B, n, m, 11).
        mask: (B, n, m) valid pairs.
        targets: (B, n, k) targets that pairs and mask, then (B, n, k, ...), list; None: all m, in their order.
        history: arrays of the history, changed in place, except the observation.
        walk: rule of the targets' walk.
        motion: the :class:`~hitmac.agents.baselines.forecast.Motion` of the sensors; None: they do not move.
        limits: (n, 2) pan limits, degrees; None: there are none.
        search: options.
        weight: (H + 1,) float32 weight of a sample at each sub-step.
        futures: draws for the targets' futures: `first`, `later` and `wandering` of :func:`foresee`.
        values: (B, n, 3) result, on rails (B, 2 n, 3); see :func:`hitmac.agents.baselines.search.improve`.
        own: window and result (B, n, m) of :func:`hitmac.agents.baselines.search.alone`; (0, 0, 0): not asked for.
        low: first scene.
        high: last scene + 1.
    """
    old_pairs, old_mask, memory, clock, steps, kept, kept_ways, old_targets = history
    first, later, wandering = futures
    window, shares = own
    n, m, samples, horizon = mask.shape[1], memory.shape[1], first.shape[0], weight.shape[0] - 1
    words, headings = (mask.shape[2] - 1) // (64 // samples) + 1, 2 * search.farthest + 1
    moves = np.empty(horizon + 1)
    entries, most_entries = np.empty(m, np.int64), horizon * (samples + 1 if samples > 1 else 1)
    when, who = np.empty((m, most_entries), np.int32), np.empty((m, most_entries), np.uint64)
    where, sides = np.empty((m, 2, most_entries), np.float32), np.empty((4, most_entries), np.int32)
    sees = np.empty((n, values.shape[1] // n * 2 - 1, horizon + 1, words, headings + CHUNK), np.uint64)
    moved = np.zeros((horizon + 1, 2), np.float32)
    farthest, reach, room = (
        np.empty(n, np.int64),
        np.empty((n, 2), np.int64),
        room_for(n, horizon, horizon, words, search.farthest, values.shape[1]),
    )
    for b in range(low, high):
        links = None if targets is None else link(targets[b], mask[b], old_targets[b], old_mask[b], m)
        extra = walk.every > 0 and walk.exact and moved_twice(pairs[b], mask[b], old_pairs[b], old_mask[b], links, walk)
        remember(pairs[b], mask[b], old_pairs[b], old_mask[b], links, walk, motion, 2.0 if extra else 1.0, memory[b])
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
            centre = middle(pairs[b], mask[b], links, j) if walk.goals and samples > 1 else (0.0, 0.0)
            entries[j] = foresee(memory[b, j], centre, walk, moves, first, later, wandering, when[j], who[j], where[j])
        most_gone = moves[horizon] * walk.step * max(1.0 + walk.noise, memory[b, :, COURSE_SPEED].max())
        for i in range(n):
            turn = pairs[b, i, :, TURN].max() * 180.0
            turn = max(turn, 1e-6) if turn > 0.0 else 0.0
            most = farthest_turn(limits, i, pairs[b, i, :, VIEW].max() * 180.0)
            farthest[i] = min(horizon, search.farthest, math.ceil(most / turn)) if turn > 0.0 else 0
            if limits is None:
                reach[i] = farthest[i]
            else:
                east, north = pairs[b, i, 0, HEADING_COS], pairs[b, i, 0, HEADING_SIN]
                turns_within(limits, i, east, north, turn, farthest[i], reach)
            _mark_ways(
                pairs[b], mask[b], links, motion, i, entries, when, who, where, most_gone, samples, farthest[i], moved,
                sides, sees[i],
            )  # fmt: skip
        own_b = window, samples, shares[b : b + 1]
        ascend(
            sees, weight, search, farthest, limits, reach, links, steps[b], kept[b], kept_ways[b], own_b, room,
            values[b],
        )  # fmt: skip
        steps[b] += 1


@kernel
def plan(pairs, mask, targets, history, walk, motion, limits, search, weight, futures, values, own, share):
    """Plan for the blocks of scenes that fall to this thread; see :func:`_plan_scenes`."""
    for low, high in blocks(pairs.shape[0], share):
        _plan_scenes(
            pairs, mask, targets, history, walk, motion, limits, search, weight, futures, values, own, low, high
        )


_PAD = 1.0 + 1e-5  # of a range; views are rounded to float32


class Near(NamedTuple):
    """Options of plans for the nearest targets."""

    cells: Cells
    most: int  # k, targets of a sensor
    moved: float  # the farthest that a sensor can go within the horizon


@allocating
def _reaches(near, views):
    """Return the distance (n,) up to which each sensor can see within the horizon; 0 if it does not work."""
    reach = np.zeros(views.shape[0])
    for i in range(views.shape[0]):
        if views[i, VIEW_RANGE] > 0.0:
            reach[i] = (math.sqrt(views[i, VIEW_RANGE]) + near.moved) * _PAD
    return reach


@inlined
def _is_less(score, target, i, one, other):
    """Return whether place `one` of a sensor's list is worth less than another: of equals the higher number is."""
    if score[i, one] == score[i, other]:
        return target[i, one] > target[i, other]
    return score[i, one] < score[i, other]


@inlined
def _enter(score, target, length, i, j, found):
    """Enter target j, with `found` samples in reach, into the list of sensor i, in place of the least if it is full."""
    place = length[i]
    if place < target.shape[1]:
        length[i] = place + 1
    else:
        place = 0
        for s in range(1, target.shape[1]):
            place = s if _is_less(score, target, i, s, place) else place
        if score[i, place] >= found:
            return
    score[i, place], target[i, place] = found, j


@inlined
def _sort(target, number):
    """Sort the first places of a list by target."""
    for s in range(1, number):
        j, place = target[s], s
        while place > 0 and target[place - 1] > j:
            target[place] = target[place - 1]
            place -= 1
        target[place] = j


@allocating
def link_likeliest(near, views, futures):
    """Return the :class:`~hitmac.agents.baselines.search.Links` of every sensor's k likeliest targets.

    They have the most samples in reach of the sensor, over all looks; targets without any are left out.

    Args:
        near: options.
        views: (n, 7) views of the sensors.
        futures: lists with a word for every target.
    """
    n, m, k, cells = views.shape[0], futures.length.shape[1], near.most, near.cells
    reach = _reaches(near, views)
    works = (reach > 0.0).reshape(n, 1)
    start, order, x, y = (
        np.empty(cells.columns * cells.rows + 2, np.int32),
        np.empty(n, np.int32),
        np.empty(n),
        np.empty(n),
    )
    sort_into_cells(cells, views.reshape(n, 7, 1), works, 0, start, order, x, y)
    widest = reach.max()
    score, target, length = np.zeros((n, k), np.int64), np.full((n, k), -1, np.int32), np.zeros(n, np.int64)
    found, touched = np.zeros(n, np.int64), np.empty(n, np.int32)
    for j in range(m):
        number = 0
        for look in range(1, futures.length.shape[0]):
            for e in range(futures.length[look, j]):
                if futures.who[look, j, e] == 0:
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
                            if found[i] == 0:
                                touched[number] = i
                                number += 1
                            found[i] += size(futures.who[look, j, e])
        for s in range(number):
            _enter(score, target, length, touched[s], j, found[touched[s]])
            found[touched[s]] = 0
    for i in range(n):
        _sort(target[i], length[i])
    return link(target, target >= 0, target, np.zeros((n, k), np.bool_), m)


@allocating
def gather(near, links, i, view, samples, every, futures):
    """Write the futures of the targets in the list of sensor i that are in its reach.

    Args:
        near: options.
        links: links of the sensors and targets.
        i: number of the sensor.
        view: (7,) its view.
        samples: futures of a target.
        every: lists with a word for every target.
        futures: result: lists in which as many targets as fit share a word, in the order of the sensor's list.
    """
    clear(futures)
    reach, per_word = (math.sqrt(view[VIEW_RANGE]) + near.moved) * _PAD, 64 // samples
    for s in range(links.targets.shape[1]):
        j = links.targets[i, s]
        if not links.there[i, s]:
            continue
        word, shift = s // per_word, np.uint64(s % per_word * samples)
        for look in range(1, every.length.shape[0]):
            for e in range(every.length[look, j]):
                x, y, members = every.x[look, j, e], every.y[look, j, e], every.who[look, j, e]
                dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
                if members != 0 and dx * dx + dy * dy <= reach * reach:
                    put(futures, look, word, x, y, members << shift)
    close(futures)


class Sensors(NamedTuple):
    """Sensors of the scenario, in degrees."""

    half_view: np.ndarray  # (n,)
    turn: np.ndarray  # (n,)


class Sampling(NamedTuple):
    """Options of the futures."""

    key: np.uint64  # of their draws
    samples: int  # futures of each target
    by_course: bool  # foresee a target course by course, not move by move
    per_word: int  # targets whose samples share a word: as many as fit, or one


@allocating
def _foresee(rules, sampling, looks, middle, scene, r, moves, shared, futures):
    """List where the targets that may be there can be at each look, as row r believes.

    `moves` (L + 1,) and `shared` (L + 1,) are scratch memory.
    """
    belief, known, _, there, time = scene
    clear(futures)
    gone = 0
    for h in range(1, looks.shape[0]):
        gone += moves_at(rules, time[r] + h - 1)
        if middle[looks[h]] == h:
            moves[looks[h]] = gone
    for j in range(known.shape[1]):
        if there[r, j]:
            moving = known[r, j, SPEED_X] != 0.0 or known[r, j, SPEED_Y] != 0.0
            together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0
            body, weight = belief.body[r, j], belief.weight[r, j]
            if sampling.by_course:
                foresee_courses(rules.walk, sampling, body, weight, together, moves, j, shared, futures)
            else:
                foresee_moves(rules, sampling, body, weight, together, time[r], j, looks, middle, shared, futures)
    close(futures)


@allocating
def _mark_particles(view, half_view, turn, futures, last, farthest, moved, sides, sees):
    """Write the samples that a sensor has in view from each heading at each look into `sees` (L + 1, W, K + CHUNK).

    A heading is stored from `farthest` turns to the right on. Those that the sensor cannot reach by the `last` sub-step
    (L + 1,) of a look are left out. The sensor goes by `moved` (L + 1, 2); None: nowhere. `sides` is scratch memory.
    """
    x, y = np.float32(view[VIEW_X]), np.float32(view[VIEW_Y])
    c, s = np.float32(view[VIEW_COS]), np.float32(view[VIEW_SIN])
    half_view, per_turn, squared = (
        np.float32(half_view),
        np.float32(1.0 / max(turn, 1e-6)),
        np.float32(view[VIEW_RANGE]),
    )
    for look in range(1, sees.shape[0]):
        most = min(last[look], farthest)
        dx, dy = (np.float32(0.0), np.float32(0.0)) if moved is None else (moved[look, 0], moved[look, 1])
        for word in range(sees.shape[1]):
            mark_entries(
                futures.x[look, word], futures.y[look, word], futures.who[look, word], futures.length[look, word],
                x, y, dx, dy, c, s, squared, half_view, per_turn, np.float32(most), sides,
                sees[look, word, farthest - most : farthest + most + 2],
            )  # fmt: skip


@allocating
def _mark_particles_on_rails(sensors, motion, along, i, view, futures, middle, last, farthest, moved, sides, sees):
    """Write the samples in view of sensor i (see :func:`_mark`) for each of its ways to move (A, L + 1, W, K + CHUNK).

    On its way it is where it will be in the `middle` sub-step (L + 1,) of each look.
    """
    half_view, turn = sensors.half_view[i], sensors.turn[i]
    _mark_particles(view, half_view, turn, futures, last, farthest, None, sides, sees[0])
    if motion is not None:
        r = rail_of(motion.rails, i)
        begin = along[i] * motion.rails.length[r]
        for way in range(1, sees.shape[0]):
            for look in range(1, moved.shape[0]):
                steps = middle[look] if way == FORWARD else -middle[look]
                place = gone_along(motion.rails, r, begin, steps * motion.rail_step)
                moved[look, 0], moved[look, 1] = way_between(motion.rails, r, begin, place)
            _mark_particles(view, half_view, turn, futures, last, farthest, moved, sides, sees[way])


@allocating
def _plan_rows(
    rules, sensors, motion, limits, along, sampling, near, search, weight, scene, history, values, low, high
):
    """Write the values of the next actions of the rows of knowledge `low` to `high` - 1.

    Args:
        rules: the scenario.
        sensors: its sensors.
        motion: the :class:`~hitmac.agents.baselines.forecast.Motion` of the sensors; None: they do not move.
        limits: (n, 2) pan limits, degrees; None: there are none.
        along: (R, n) places on the rails / length of the rail.
        sampling: options of the futures.
        near: options of plans for the nearest targets; None: every sensor plans for all.
        search: options.
        weight: (H + 1,) float32 weight of a sample at each sub-step.
        scene: what the rows believe.
        history: (R, n, H + 1) plans and (R, n) their ways to move, changed in place.
        values: (R, n, 3) result, on rails (R, 2 n, 3); see :func:`hitmac.agents.baselines.search.improve`.
        low: first row.
        high: last row + 1.
    """
    _, known, views, _, time = scene
    kept, kept_ways = history
    n, m, horizon, samples = views.shape[1], known.shape[1], weight.shape[0] - 1, sampling.samples
    middle, last = spans(search.looks)
    looks, headings = last.shape[0] - 1, 2 * search.farthest + 1
    moves, shared = np.empty(looks + 1), np.empty(looks + 1, np.int64)
    futures = empty_futures(looks, m, samples, sampling.per_word)
    own = futures if near is None else empty_futures(looks, near.most, samples, 64 // samples)  # of a sensor
    words, sides = own.x.shape[1], np.empty((own.x.shape[2] // CHUNK, 4, CHUNK), np.int32)
    sees = np.empty((n, values.shape[1] // n * 2 - 1, looks + 1, words, headings + CHUNK), np.uint64)
    moved = np.zeros((looks + 1, 2), np.float32)
    farthest, reach, room = (
        np.empty(n, np.int64),
        np.empty((n, 2), np.int64),
        room_for(n, horizon, looks, words, search.farthest, values.shape[1]),
    )
    nothing = 0, samples, np.empty((0, n, m), np.float32)
    for r in range(low, high):
        _foresee(rules, sampling, search.looks, middle, scene, r, moves, shared, futures)
        links = None if near is None else link_likeliest(near, views[r], futures)
        for i in range(n):
            works = views[r, i, VIEW_RANGE] > 0.0
            most = farthest_turn(limits, i, sensors.half_view[i])
            farthest[i] = min(search.farthest, math.ceil(most / max(sensors.turn[i], 1e-6))) if works else 0
            turns_within(limits, i, views[r, i, VIEW_COS], views[r, i, VIEW_SIN], sensors.turn[i], farthest[i], reach)
            if near is not None:
                gather(near, links, i, views[r, i], samples, futures, own)
            _mark_particles_on_rails(
                sensors, motion, along[r], i, views[r, i], own, middle, last, farthest[i], moved, sides, sees[i]
            )  # fmt: skip
        ascend(
            sees, weight, search, farthest, limits, reach, links, time[r], kept[r], kept_ways[r], nothing, room,
            values[r],
        )  # fmt: skip


@kernel
def plan_beliefs(rules, sensors, motion, limits, along, sampling, near, search, weight, scene, history, values, share):
    """Plan for the blocks of rows that fall to this thread; see :func:`_plan_rows`."""
    for low, high in blocks(values.shape[0], share):
        _plan_rows(
            rules, sensors, motion, limits, along, sampling, near, search, weight, scene, history, values, low, high
        )
