"""Plans of all sensors, given observations: the samples of the targets' futures in view. Compiled by numba."""

import math

import numpy as np

from hitmac.agents.baselines.forecast import (
    COS,
    DISTANCE,
    HEADING_COS,
    HEADING_SIN,
    RADIAL,
    RANGE,
    SIN,
    SPEED,
    TANGENTIAL,
    TURN,
    VIEW,
    foresee,
    gone_on_rail,
    middle,
    moved_twice,
    remember,
)  # fmt: skip
from hitmac.agents.baselines.links import link
from hitmac.agents.baselines.search import ascend, farthest_turn, room_for, turns_within
from hitmac.agents.baselines.views import CHUNK, fill_between, mark_sides, write_sides
from hitmac.envs.kernels.compiled import allocating, kernel
from hitmac.envs.kernels.rails import FORWARD
from hitmac.envs.kernels.threads import blocks


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
        own: window and result (B, n, m) of :func:`hitmac.agents.baselines.words.alone`; (0, 0, 0): not asked for.
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
        most_gone = moves[horizon] * walk.step * max(1.0 + walk.noise, memory[b, :, SPEED].max())
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
