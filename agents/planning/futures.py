"""Futures of the targets, sampled from beliefs. Compiled by numba.

For every row of knowledge each target is forecast by a few samples of its particles. A sample is a bit of a 64-bit
word; entries list the positions of samples at each stage of a plan.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.planning.search import CHUNK
from hitmac.agents.tracking import particles
from hitmac.agents.tracking.beliefs import AGE, VELOCITY_X, VELOCITY_Y, Rules, moves_at
from hitmac.agents.tracking.carriers import carry, has_bounty
from hitmac.agents.tracking.recorded import Pieces
from hitmac.agents.tracking.sight import NO_CELLS, VIEW_COS, VIEW_SIN, VIEW_X, VIEW_Y, Watch, in_view, watch_of
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, CONSTANT_VELOCITY, GOALS, MOVES, PLACE, SPEED, STEP, X, Y
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.streams import GOLDEN, mix, uniform
from hitmac.envs.base.threads import blocks

_LENGTHS = np.uint64(1 << 32)  # first draw of the moves' lengths in the stream of a future
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_DRAWS = np.uint64(4)  # draws of a course
_NOWHERE = np.float32(1e18)  # out of every range; its square is finite


class Horizon(NamedTuple):
    """Sub-steps ahead, and their stages; the middle sub-step of a stage counts for all of it."""

    stage: np.ndarray  # (D + H + 1,) int64: stage of each sub-step from now, 0 in the D before the plans begin
    middle: np.ndarray  # (S + 1,) int64: middle sub-step of each stage, from now
    last: np.ndarray  # (S + 1,) int64: last sub-step of each stage, from the beginning of the plans
    delay: int  # D


class Sampling(NamedTuple):
    """Options of sampled futures."""

    key: np.uint64  # of their draws
    samples: int  # of a target
    per_word: int  # targets in a word
    unseen: int  # further targets, for those that no sensor has seen
    spent: float  # share of the samples that count without a bounty
    evades: bool  # targets evade the views of the last plans


class Forecast(NamedTuple):
    """All that determines the futures of the targets, apart from the beliefs."""

    rules: Rules
    horizon: Horizon
    sampling: Sampling
    pieces: Pieces
    turn: np.ndarray  # (n,) degrees, of the sensors that targets evade


class Futures(NamedTuple):
    """Lists of entries for each of S stages and W words, of R rows or of one; stage 0 is unused.

    The samples in the bits ``who[r, s, word, e]`` of entry e are at (x, y) at that stage.
    """

    x: np.ndarray  # (R, S + 1, W, E) float32
    y: np.ndarray  # (R, S + 1, W, E) float32
    who: np.ndarray  # (R, S + 1, W, E) uint64
    length: np.ndarray  # (R, S + 1, W) int64: number of entries, whole chunks


def empty_futures(shape: tuple[int, ...], entries: int) -> Futures:
    """Return lists of this shape (..., S + 1, W) with space for `entries` each, rounded up to whole chunks."""
    full = *shape, -(-entries // CHUNK) * CHUNK
    return Futures(
        np.empty(full, np.float32), np.empty(full, np.float32), np.empty(full, np.uint64), np.empty(shape, np.int64)
    )


@allocating
def row_of(futures, f):
    """Return the futures of one row."""
    return Futures(futures.x[f], futures.y[f], futures.who[f], futures.length[f])


@inlined
def put(futures, s, word, x, y, members):
    """Append an entry to a list of one row."""
    e = futures.length[s, word]
    futures.x[s, word, e], futures.y[s, word, e], futures.who[s, word, e] = x, y, members
    futures.length[s, word] = e + 1


@inlined
def close(futures):
    """Fill the last chunk of every list of one row with entries out of every view."""
    for s in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            while futures.length[s, word] % CHUNK != 0:
                put(futures, s, word, _NOWHERE, _NOWHERE, np.uint64(0))


class _Ahead(NamedTuple):
    """Quantities that all futures of a row share."""

    moves: np.ndarray  # (S + 1,) moves of the targets until the middle of each stage
    planned: np.ndarray  # (D + H + 1, n, 7) views that targets evade; (0, n, 7): they evade none
    watch: Watch  # without views, since targets that carry loads ignore those to come; with the obstacles
    shared: np.ndarray  # (S + 1,) int64: entry of the samples of a target that move together
    one: np.ndarray  # (d, 1) rows of a particle, scratch memory


class _Sample(NamedTuple):
    """One future of a target, and where it is listed."""

    key: np.uint64  # of its draws
    word: int
    bit: np.uint64
    owed: bool  # it counts only while it has a bounty
    together: bool  # until it turns, it shares an entry with the others


@inlined
def _add(futures, s, sample, shared, x, y):
    """Add a sample to the entry `shared`, at the position of the first one, or as a new entry if that is below 0."""
    e = shared
    if e >= 0:
        if futures.who[s, sample.word, e] == 0:
            futures.x[s, sample.word, e], futures.y[s, sample.word, e] = x, y
        futures.who[s, sample.word, e] |= sample.bit
    else:
        put(futures, s, sample.word, x, y, sample.bit)


@inlined
def _plan_views(views, forecast, turns, planned):
    """Write the `planned` views of sensors that have `views` (n, 7), and after a delay turn by their plans."""
    delay = forecast.horizon.delay
    for h in range(planned.shape[0]):
        for i in range(views.shape[0]):
            for column in range(views.shape[1]):
                planned[h, i, column] = views[i, column]
            if h > delay:
                angle = math.radians(turns[i, h - delay] * forecast.turn[i])
                c, s, x, y = math.cos(angle), math.sin(angle), views[i, VIEW_COS], views[i, VIEW_SIN]
                planned[h, i, VIEW_COS], planned[h, i, VIEW_SIN] = c * x - s * y, s * x + c * y


@inlined
def _evade(one, x, y, before, now, watch):
    """Turn a particle out of the first of the views `before` (n, 7) with (x, y), which is `now` elsewhere."""
    for i in range(before.shape[0]):
        if in_view(before[i], watch, i, x, y):
            dx, dy = one[X, 0] - now[i, VIEW_X], one[Y, 0] - now[i, VIEW_Y]
            away = math.sqrt(dx * dx + dy * dy)
            if away > 0.0:
                side = math.copysign(1.0, now[i, VIEW_COS] * dy - now[i, VIEW_SIN] * dx)
                one[AIM_X, 0], one[AIM_Y, 0] = -side * dy / away, side * dx / away
            return


@compiled
def _follow_moves(forecast, loads, time, discs, ahead, one, sample, futures):
    """Add the position of the particle `one` (d, 1) at each stage, forecast move by move, as one sample.

    It moves out of the first of the planned views that it is in, as the walk `evade`. If it carries loads, it slides
    along `discs` (k, 3), and its draws are those of a time.
    """
    rules, horizon, straight, counter = forecast.rules, forecast.horizon, sample.together, np.uint64(0)
    for h in range(1, horizon.stage.shape[0]):
        seen_x, seen_y = one[X, 0], one[Y, 0]  # the walk sees views as of the last sub-step
        for k in range(moves_at(rules, time + h - 1)):
            if loads is not None:
                carry(rules.walk, loads, discs, ahead.watch, one, 0, sample.key, _DRAWS * np.uint64(2 * (time + h) + k))
                continue
            before = one[MOVES, 0]
            if ahead.planned.shape[0] > 0:
                _evade(one, seen_x, seen_y, ahead.planned[h - 1], ahead.planned[h], ahead.watch)
            counter = particles.move(rules.walk, one, 0, sample.key, counter, 0.5)
            straight = straight and one[MOVES, 0] >= before
            draw = uniform(sample.key, _LENGTHS + np.uint64(2 * (time + h) + k))
            one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
        counts = loads is None or not sample.owed or has_bounty(loads, one, 0)
        if counts and horizon.middle[horizon.stage[h]] == h:
            s = horizon.stage[h]
            _add(futures, s, sample, ahead.shared[s] if straight else -1, one[X, 0], one[Y, 0])


@inlined
def _follow_piece(pieces, body, p, sample, middle, futures):
    """Add the position of particle p of a recorded place at each stage until its track ends, as one sample."""
    place = int(body[PLACE, p])
    shift_x, shift_y = body[X, p] - pieces.position[place, 0], body[Y, p] - pieces.position[place, 1]
    for s in range(1, middle.shape[0]):
        if middle[s] > pieces.rest[place]:
            break
        x, y = pieces.position[place + middle[s], 0], pieces.position[place + middle[s], 1]
        put(futures, s, sample.word, x + shift_x, y + shift_y, sample.bit)


@inlined
def _moves_on_course(walk, shortest, away, last, made, draw):
    """Return the number of moves until a target takes a new goal.

    The target has `made` moves towards a goal at the distance `away`; its shortest move has the length `shortest`, the
    last one had the length `last`. `draw` in [0, 1) determines the move that is too short.
    """
    mean = shortest * (1.0 + 0.5 * walk.speed_noise)
    near = max(walk.goal_radius, 0.5 * mean)
    if last < walk.stuck_distance or away <= near:
        return 0.0
    left = walk.patience - made
    if mean > 0.0:
        left = min(left, math.ceil((away - near) / mean))
    if shortest < walk.stuck_distance:
        left = min(left, 1.0 + particles.moves_until_stuck(walk.stuck_distance, walk.speed_noise, shortest, 1.0 - draw))
    return max(left, 0.0)


@inlined
def _follow_courses(walk, body, p, sample, ahead, futures):
    """Add the position of particle p, which walks to goals, at each stage, forecast course by course, as one sample.

    All moves of a course have the mean length. It ends at the goal, at the end of the target's patience, or after a
    move that is too short, whose time is random.
    """
    moves, counter, key, straight = ahead.moves, np.uint64(0), sample.key, sample.together
    stages = moves.shape[0] - 1
    x, y, aim_x, aim_y = body[X, p], body[Y, p], body[AIM_X, p], body[AIM_Y, p]
    shortest, last, made = body[SPEED, p] * walk.time_step, body[STEP, p], body[MOVES, p]
    s, gone, least, courses = 1, 0.0, 0.0, 0
    # Every course but the first has at least one move, so the bound on their number ends no finite forecast.
    while s <= stages and courses <= moves[stages] + 1:
        courses += 1
        dx, dy = aim_x - x, aim_y - y
        away = math.sqrt(dx * dx + dy * dy)
        number = max(_moves_on_course(walk, shortest, away, last, made, uniform(key, counter)), least)
        scale = shortest * (1.0 + 0.5 * walk.speed_noise) / away if away > 0.0 else 0.0
        dx, dy = dx * scale, dy * scale  # of a move
        while s <= stages and moves[s] <= gone + number:
            after = moves[s] - gone
            _add(futures, s, sample, ahead.shared[s] if straight else -1, x + after * dx, y + after * dy)
            s += 1
        x, y, gone = x + number * dx, y + number * dy, gone + number
        speed = walk.min_speed + (walk.max_speed - walk.min_speed) * uniform(key, counter + _ONE)
        aim_x = walk.half_width * (2.0 * uniform(key, counter + _TWO) - 1.0)
        aim_y = walk.half_height * (2.0 * uniform(key, counter + _THREE) - 1.0)
        counter += _DRAWS
        shortest, last, made, straight = speed * walk.time_step, np.inf, 0.0, False
        least = 1.0  # a target that takes a goal makes a move towards it


@inlined
def _count_moves(rules, horizon, time, moves):
    """Write the number of moves of the targets until the middle of each stage."""
    gone = 0
    for h in range(1, horizon.stage.shape[0]):
        gone += moves_at(rules, time + h - 1)
        if horizon.middle[horizon.stage[h]] == h:
            moves[horizon.stage[h]] = gone


@compiled
def _foresee(forecast, loads, scene, r, j, most, ahead, futures):
    """List the positions of target j of row r at each stage, from particles sampled at even steps of their weights.

    A sample is a ``1 / samples`` of a target; those of a weight over 1 also take the words of the `most` - 1 next
    targets. The draws of a future depend only on target, sample, number of turns and time, so consecutive sub-steps
    plan for the same futures. If all particles move together, samples share an entry until they turn.
    """
    (rules, horizon, sampling, pieces, _), known, belief = forecast, scene.known, scene.belief
    body, weight, samples, walk = belief.body[r, j], belief.weight[r, j], sampling.samples, rules.walk
    together, total, source = False, 0.0, 0
    for p in range(weight.shape[0]):
        total += weight[p]
    number = min(int(total * samples + 0.5), most * samples)
    if j < known.shape[1]:
        moving = known[r, j, VELOCITY_X] != 0.0 or known[r, j, VELOCITY_Y] != 0.0
        keeps_course = walk.model == GOALS or (walk.model == CONSTANT_VELOCITY and walk.swerve == 0.0)
        together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0 and keeps_course
    # The entry that all samples share at each stage as long as they move together.
    for s in range(1, ahead.shared.shape[0] if together else 0):
        ahead.shared[s] = futures.length[s, j // sampling.per_word]
        put(futures, s, j // sampling.per_word, _NOWHERE, _NOWHERE, np.uint64(0))
    one, total = ahead.one, weight[0]  # the weight up to `source`, from which sample s is drawn
    for s in range(number):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        k = j + s // samples
        sample = _Sample(
            mix(sampling.key + np.uint64(j * 64 + s) * GOLDEN), k // sampling.per_word,
            _ONE << np.uint64(k % sampling.per_word * samples + s % samples),
            # Owed are samples in the gaps of an even spread of those that always count.
            int((s + 1) * sampling.spent + 0.5) == int(s * sampling.spent + 0.5), together,
        )  # fmt: skip
        if loads is None and pieces.rest.shape[0] > 0:
            _follow_piece(pieces, body, source, sample, horizon.middle, futures)
        elif loads is None and walk.model == GOALS:
            _follow_courses(walk, body, source, sample, ahead, futures)
        else:
            for row in range(body.shape[0]):
                one[row, 0] = body[row, source]
            _follow_moves(forecast, loads, scene.time[r], belief.discs[r], ahead, one, sample, futures)


@kernel
def foresee_all(forecast, scene, turns, first, futures, share):
    """Write the futures of the targets of the rows of a scene's knowledge from row `first` on.

    `turns` (R, n, H + 1) are those of the last plans, whose views targets may evade.
    """
    sampling, m, stages = forecast.sampling, scene.present.shape[1], forecast.horizon.middle.shape[0]
    moves, shared = np.empty(stages), np.empty(stages, np.int64)
    evaded = forecast.horizon.stage.shape[0] if sampling.evades else 0
    planned = np.empty((evaded, scene.ahead.shape[1], scene.ahead.shape[2]))
    nobody, one = np.empty((0, 7)), np.empty((scene.belief.body.shape[2], 1))
    for low, high in blocks(futures.length.shape[0], share):
        for k in range(low, high):
            r, row = first + k, row_of(futures, k)
            _count_moves(forecast.rules, forecast.horizon, scene.time[r], moves)
            _plan_views(scene.ahead[r], forecast, turns[r], planned)
            watch = watch_of(scene, r, nobody, NO_CELLS)
            ahead = _Ahead(moves, planned, watch, shared, one)
            row.length[:] = 0
            for j in range(m + min(sampling.unseen, 1)):
                if j == m or scene.present[r, j]:
                    most = 1 if j < m else sampling.unseen
                    _foresee(forecast, forecast.rules.walk.loads, scene, r, j, most, ahead, row)
            close(row)
