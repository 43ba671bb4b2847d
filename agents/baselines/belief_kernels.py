"""Planning on beliefs: the futures of particles are the samples of the planner. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.search import ascend, farthest_turn, room_for, turns_within
from hitmac.agents.baselines.views import fill_between, mark_sides, write_sides
from hitmac.agents.tracking.belief_kernels import AGE, SPEED_X, SPEED_Y, moves_at
from hitmac.agents.tracking.particle_kernels import VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y
from hitmac.agents.tracking.walk_models import MOVES, SPEED, STEP, X, Y, move
from hitmac.envs.kernels.compiled import allocating, kernel
from hitmac.envs.kernels.rails import FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform
from hitmac.envs.kernels.threads import blocks

_LENGTHS = np.uint64(1 << 32)  # where the draws of a future's lengths begin in its stream


class Sensors(NamedTuple):
    """Sensors of the scenario, in degrees."""

    half_view: np.ndarray  # (n,)
    turn: np.ndarray  # (n,)


@allocating
def _foresee(rules, futures, body, weight, together, time, j, horizon, samples, when, who, where):
    """Write where a target can be at each sub-step: the futures of particles, drawn at even steps of their weights.

    Entry e: at sub-step `when[e]`, the samples in the bits `who[e]` are at `where[:, e]`. If all particles go the same
    way, `together`, samples share an entry until they turn. The draws of a future depend only on target, sample, number
    of turns and time, so that plans of consecutive sub-steps are for the same futures.

    Returns:
        The number of entries.
    """
    one = np.empty((body.shape[0], 1))
    entries = horizon if together else 0
    when[:entries], who[:entries], where[:, :entries] = 1, 0, 0.0  # in case that no sample goes so far straight on
    total, source = weight[0], 0
    for s in range(samples):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        one[:, 0] = body[:, source]
        key, counter = mix(futures + np.uint64(j * 64 + s) * GOLDEN), np.uint64(0)
        bit, straight = np.uint64(1) << np.uint64(s), together
        for h in range(1, horizon + 1):
            for k in range(moves_at(rules, time + h - 1)):
                before = one[MOVES, 0]
                counter = move(rules.walk, one, 0, key, counter, 0.5)
                straight = straight and one[MOVES, 0] >= before
                draw = uniform(key, _LENGTHS + np.uint64(2 * (time + h) + k))
                one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
            e = h - 1 if straight else entries
            if not straight:
                who[e] = 0
                entries += 1
            if who[e] == 0:
                where[0, e], where[1, e] = one[X, 0], one[Y, 0]
            when[e] = h
            who[e] |= bit
    return entries


@allocating
def _mark(view, half_view, turn, entries, when, who, where, there, samples, farthest, moved, sides, sees):
    """Write the samples that a sensor has in view from each heading at each sub-step into `sees` (H + 1, W, K + 1).

    The sensor goes by `moved` (H + 1, 2); None:
    nowhere. `sides` (4, E) is scratch memory.
    """
    sees[:] = 0
    x, y = np.float32(view[VIEW_X]), np.float32(view[VIEW_Y])
    c, s = np.float32(view[VIEW_COS]), np.float32(view[VIEW_SIN])
    half_view, per_turn, squared = np.float32(half_view), np.float32(1.0 / turn), np.float32(view[VIEW_RANGE])
    most = np.float32(farthest)
    for j in range(there.shape[0]):
        if not there[j]:
            continue
        for e in range(entries[j]):
            dx, dy = where[j, 0, e] - x, where[j, 1, e] - y
            if moved is not None:
                dx -= moved[when[j, e], 0]
                dy -= moved[when[j, e], 1]
            near = dx * dx + dy * dy <= squared
            write_sides(sides, e, c * dx + s * dy, c * dy - s * dx, near, half_view, per_turn, most)
        mark_sides(sees, j, samples, entries[j], when[j], who[j], sides)
    fill_between(sees, farthest)


@allocating
def _mark_ways(
    sensors, motion, along, i, view, entries, when, who, where, there, samples, farthest, moved, sides, sees
):
    """Write the samples in view of sensor i (see :func:`_mark`) for each of its ways to move (A, H + 1, W, K + 1)."""
    half_view, turn = sensors.half_view[i], sensors.turn[i]
    _mark(view, half_view, turn, entries, when, who, where, there, samples, farthest, None, sides, sees[0])
    if motion is not None:
        r = rail_of(motion.rails, i)
        begin = along[i] * motion.rails.length[r]
        for way in range(1, sees.shape[0]):
            for h in range(1, moved.shape[0]):
                steps = h if way == FORWARD else -h
                place = gone_along(motion.rails, r, begin, steps * motion.rail_step)
                moved[h, 0], moved[h, 1] = way_between(motion.rails, r, begin, place)
            _mark(view, half_view, turn, entries, when, who, where, there, samples, farthest, moved, sides, sees[way])


@allocating
def _plan_rows(
    rules, sensors, motion, limits, along, futures, search, weight, samples, scene, history, values, low, high
):
    """Write the values of the next actions of the rows of knowledge `low` to `high` - 1.

    Args:
        rules: the scenario.
        sensors: its sensors.
        motion: the :class:`~hitmac.agents.baselines.forecast.Motion` of the sensors; None: they do not move.
        limits: (n, 2) pan limits, degrees; None: there are none.
        along: (R, n) places on the rails / length of the rail.
        futures: key of the draws of the futures.
        search: options.
        weight: (H + 1,) float32 weight of a sample at each sub-step.
        samples: number of futures of each target.
        scene: what the rows believe.
        history: (R, n, H + 1) plans and (R, n) their ways to move, changed in place.
        values: (R, n, 3) result, on rails (R, 2 n, 3); see :func:`hitmac.agents.baselines.search.improve`.
        low: first row.
        high: last row + 1.
    """
    belief, known, views, there, time = scene
    kept, kept_ways = history
    n, m, horizon = views.shape[1], known.shape[1], weight.shape[0] - 1
    words, headings, most_entries = (m - 1) // (64 // samples) + 1, 2 * search.farthest + 1, horizon * (samples + 1)
    entries, sides = np.empty(m, np.int64), np.empty((4, most_entries), np.int32)
    when, who = np.empty((m, most_entries), np.int32), np.empty((m, most_entries), np.uint64)
    where = np.empty((m, 2, most_entries), np.float32)
    sees = np.empty((n, values.shape[1] // n * 2 - 1, horizon + 1, words, headings + 1), np.uint64)
    moved = np.zeros((horizon + 1, 2), np.float32)
    farthest, reach, room = (
        np.empty(n, np.int64),
        np.empty((n, 2), np.int64),
        room_for(n, horizon, words, search.farthest, values.shape[1]),
    )
    nothing = 0, samples, np.empty((0, n, m), np.float32)
    for r in range(low, high):
        for j in range(m):
            if there[r, j]:
                moving = known[r, j, SPEED_X] != 0.0 or known[r, j, SPEED_Y] != 0.0
                together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0
                entries[j] = _foresee(
                    rules, futures, belief.body[r, j], belief.weight[r, j], together, time[r], j, horizon, samples,
                    when[j], who[j], where[j],
                )  # fmt: skip
        for i in range(n):
            works = views[r, i, VIEW_RANGE] > 0.0
            most = farthest_turn(limits, i, sensors.half_view[i])
            farthest[i] = min(search.farthest, math.ceil(most / sensors.turn[i])) if works else 0
            turns_within(limits, i, views[r, i, VIEW_COS], views[r, i, VIEW_SIN], sensors.turn[i], farthest[i], reach)
            _mark_ways(
                sensors, motion, along[r], i, views[r, i], entries, when, who, where, there[r], samples, farthest[i],
                moved, sides, sees[i],
            )  # fmt: skip
        ascend(
            sees, weight, search, farthest, limits, reach, time[r], kept[r], kept_ways[r], nothing, room, values[r]
        )  # fmt: skip


@kernel
def plan_beliefs(
    rules, sensors, motion, limits, along, futures, search, weight, samples, scene, history, values, share
):  # fmt: skip
    """Plan for the blocks of rows that fall to this thread; see :func:`_plan_rows`."""
    for low, high in blocks(values.shape[0], share):
        _plan_rows(
            rules, sensors, motion, limits, along, futures, search, weight, samples, scene, history, values, low, high
        )  # fmt: skip
