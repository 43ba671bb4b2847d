"""Planning on beliefs: the futures of particles are the samples of the planner. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.futures import clear, close, empty_futures, foresee_courses, foresee_moves, spans
from hitmac.agents.baselines.nearest_futures import gather, link_likeliest
from hitmac.agents.baselines.search import ascend, farthest_turn, room_for, turns_within
from hitmac.agents.baselines.views import CHUNK, mark_entries
from hitmac.agents.tracking.belief_kernels import moves_at
from hitmac.agents.tracking.reports import AGE, SPEED_X, SPEED_Y
from hitmac.agents.tracking.views import VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y
from hitmac.envs.kernels.compiled import allocating, kernel
from hitmac.envs.kernels.rails import FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.threads import blocks


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
def _mark(view, half_view, turn, futures, last, farthest, moved, sides, sees):
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
def _mark_ways(sensors, motion, along, i, view, futures, middle, last, farthest, moved, sides, sees):
    """Write the samples in view of sensor i (see :func:`_mark`) for each of its ways to move (A, L + 1, W, K + CHUNK).

    On its way it is where it will be in the `middle` sub-step (L + 1,) of each look.
    """
    half_view, turn = sensors.half_view[i], sensors.turn[i]
    _mark(view, half_view, turn, futures, last, farthest, None, sides, sees[0])
    if motion is not None:
        r = rail_of(motion.rails, i)
        begin = along[i] * motion.rails.length[r]
        for way in range(1, sees.shape[0]):
            for look in range(1, moved.shape[0]):
                steps = middle[look] if way == FORWARD else -middle[look]
                place = gone_along(motion.rails, r, begin, steps * motion.rail_step)
                moved[look, 0], moved[look, 1] = way_between(motion.rails, r, begin, place)
            _mark(view, half_view, turn, futures, last, farthest, moved, sides, sees[way])


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
            _mark_ways(
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
