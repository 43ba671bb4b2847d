"""Plans of all sensors for forecast targets. Compiled by numba.

For every row of knowledge: forecast each target, mark for each sensor the samples in view from each of its headings,
with each of its lenses and from each place on its rail, and search for the best plans. Every sample of a target's
futures is a bit; entries list the positions of samples at each look of the sensors.
"""

import math
from typing import NamedTuple

import numpy as np

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
from hitmac.agents.tracking import particles
from hitmac.agents.tracking.beliefs import AGE, moves_at
from hitmac.agents.tracking.particles import AIM_X, AIM_Y, CONSTANT_VELOCITY, GOALS, MOVES, SPEED, STEP, X, Y
from hitmac.agents.tracking.recorded import PLACE
from hitmac.agents.tracking.sight import VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, in_view, is_clear
from hitmac.envs.kernels.knowledge import popcount
from hitmac.envs.kernels.nearest import box_of, sort_into_cells
from hitmac.envs.kernels.physics import NARROWER, WIDER
from hitmac.envs.kernels.rails import BACK, FORWARD, gone_along, rail_of, way_between
from hitmac.envs.kernels.state import Cells
from hitmac.envs.kernels.streams import GOLDEN, mix, uniform
from hitmac.envs.kernels.threads import allocating, blocks, inlined, kernel
from hitmac.envs.kernels.values import value_of

_LENGTHS = np.uint64(1 << 32)  # first draw of the moves' lengths in the stream of a future
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_DRAWS = np.uint64(4)  # draws of a course
_NOWHERE = np.float32(1e18)  # out of every range; its square is finite
_PAD = 1.0 + 1e-5  # of a range; views are rounded to float32


class Futures(NamedTuple):
    """Lists of entries for each of L looks and W words; look 0 is unused.

    The samples in the bits ``who[look, word, e]`` of entry e are at (x, y) at that look.
    """

    x: np.ndarray  # (L + 1, W, E) float32
    y: np.ndarray  # (L + 1, W, E) float32
    who: np.ndarray  # (L + 1, W, E) uint64
    length: np.ndarray  # (L + 1, W) int64: number of entries


class Sampling(NamedTuple):
    """Options of sampled futures."""

    key: np.uint64  # of their draws
    per_word: int  # targets in a word
    unseen: int  # further targets, for those that no sensor has seen
    delay: int  # sub-steps from now to those of the plans
    spent: float  # share of the samples that count without a bounty


@allocating
def _empty_futures(looks, words, entries):
    """Return empty lists with space for `entries` each, rounded up to whole chunks."""
    shape = looks + 1, words, (entries + CHUNK - 1) // CHUNK * CHUNK
    return Futures(
        np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.uint64),
        np.zeros((looks + 1, words), np.int64),
    )  # fmt: skip


@inlined
def _put(futures, look, word, x, y, members):
    """Append an entry to a list."""
    e = futures.length[look, word]
    futures.x[look, word, e], futures.y[look, word, e], futures.who[look, word, e] = x, y, members
    futures.length[look, word] = e + 1


@allocating
def _close(futures):
    """Fill the last chunk of every list with entries out of every view."""
    for look in range(1, futures.length.shape[0]):
        for word in range(futures.length.shape[1]):
            while futures.length[look, word] % CHUNK != 0:
                _put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))


@inlined
def _add(futures, look, word, shared, straight, x, y, members):
    """Add samples to the shared entry, at the position of the first one, or as a new entry."""
    if straight:
        e = shared[look]
        if futures.who[look, word, e] == 0:
            futures.x[look, word, e], futures.y[look, word, e] = x, y
        futures.who[look, word, e] |= members
    else:
        _put(futures, look, word, x, y, members)


@allocating
def _spans(looks):
    """Return the middle and the last sub-step (L + 1,) of each look, given the look of each sub-step (H + 1,)."""
    last = np.searchsorted(looks, np.arange(looks[-1] + 1), side="right") - 1
    middle = last.copy()
    middle[1:] = (last[:-1] + 1 + last[1:]) // 2
    return middle, last


@allocating
def _planned_views(views, turn, plans, delay):
    """Return the views (D + H + 1, n, 7) of sensors that have `views` (n, 7), and after a delay turn by their plans."""
    planned = np.empty((delay + plans.shape[1], *views.shape))
    for h in range(planned.shape[0]):
        planned[h] = views
        for i in range(0 if h <= delay else views.shape[0]):
            angle = math.radians(plans[i, h - delay] * turn[i])
            c, s, x, y = math.cos(angle), math.sin(angle), views[i, VIEW_COS], views[i, VIEW_SIN]
            planned[h, i, VIEW_COS], planned[h, i, VIEW_SIN] = c * x - s * y, s * x + c * y
    return planned


@inlined
def _evade(one, x, y, before, now, clear):
    """Turn a particle out of the first of the views `before` (n, 7) with (x, y), which is `now` elsewhere."""
    for i in range(before.shape[0]):
        if in_view(before[i], None if clear is None else clear[i], x, y):
            dx, dy = one[X, 0] - now[i, VIEW_X], one[Y, 0] - now[i, VIEW_Y]
            away = math.sqrt(dx * dx + dy * dy)
            if away > 0.0:
                side = math.copysign(1.0, now[i, VIEW_COS] * dy - now[i, VIEW_SIN] * dx)
                one[AIM_X, 0], one[AIM_Y, 0] = -side * dy / away, side * dx / away
            return


@allocating
def _follow_moves(
    rules, discs, particle, key, time, word, bit, owed, straight, looks, middle, views, clear, shared, futures
):  # fmt: skip
    """Add the position of a particle at each look, forecast move by move, as one sample.

    If it carries loads, it slides along `discs` (k, 3), its draws are those of a time, and if `owed` it only counts
    while it has a bounty. Otherwise it moves out of the first of the `views` (H + 1, n, 7) that it is in, as the walk
    `evade`; None: it ignores them.
    """
    one, counter = particle.copy().reshape(-1, 1), np.uint64(0)
    for h in range(1, looks.shape[0]):
        seen_x, seen_y = one[X, 0], one[Y, 0]  # the walk sees views as of the last sub-step
        for k in range(moves_at(rules, time + h - 1)):
            if rules.walk.model == particles.CARRY:
                particles.carry(rules.walk, discs, None, None, one, 0, key, _DRAWS * np.uint64(2 * (time + h) + k))
                continue
            before = one[MOVES, 0]
            if views is not None:
                _evade(one, seen_x, seen_y, views[h - 1], views[h], clear)
            counter = particles.move(rules.walk, one, 0, key, counter, 0.5)
            straight = straight and one[MOVES, 0] >= before
            draw = uniform(key, _LENGTHS + np.uint64(2 * (time + h) + k))
            one[STEP, 0] = one[SPEED, 0] * (1.0 + rules.walk.speed_noise * draw) * rules.walk.time_step
        if middle[looks[h]] == h and (not owed or particles.has_bounty(rules.walk, one, 0)):
            _add(futures, looks[h], word, shared, straight, one[X, 0], one[Y, 0], bit)


@inlined
def _follow_piece(pieces, body, p, word, bit, middle, futures):
    """Add the position of particle p of a recorded place at each look until its track ends, as one sample."""
    place = int(body[PLACE, p])
    shift_x, shift_y = body[X, p] - pieces.position[place, 0], body[Y, p] - pieces.position[place, 1]
    for look in range(1, middle.shape[0]):
        if middle[look] > pieces.rest[place]:
            break
        x, y = pieces.position[place + middle[look], 0], pieces.position[place + middle[look], 1]
        _put(futures, look, word, x + shift_x, y + shift_y, bit)


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


@allocating
def _follow_courses(walk, particle, key, word, bit, straight, moves, shared, futures):
    """Add the position of a particle that walks to goals at each look, forecast course by course, as one sample.

    All moves of a course have the mean length. It ends at the goal, at the end of the target's patience, or after a
    move that is too short, whose time is random.
    """
    looks, counter = moves.shape[0] - 1, np.uint64(0)
    x, y, aim_x, aim_y = particle[X], particle[Y], particle[AIM_X], particle[AIM_Y]
    shortest, last, made = particle[SPEED] * walk.time_step, particle[STEP], particle[MOVES]
    look, gone, least, courses = 1, 0.0, 0.0, 0
    # Every course but the first has at least one move, so the bound on their number ends no finite forecast.
    while look <= looks and courses <= moves[looks] + 1:
        courses += 1
        dx, dy = aim_x - x, aim_y - y
        away = math.sqrt(dx * dx + dy * dy)
        number = max(_moves_on_course(walk, shortest, away, last, made, uniform(key, counter)), least)
        scale = shortest * (1.0 + 0.5 * walk.speed_noise) / away if away > 0.0 else 0.0
        dx, dy = dx * scale, dy * scale  # of a move
        while look <= looks and moves[look] <= gone + number:
            after = moves[look] - gone
            _add(futures, look, word, shared, straight, x + after * dx, y + after * dy, bit)
            look += 1
        x, y, gone = x + number * dx, y + number * dy, gone + number
        speed = walk.min_speed + (walk.max_speed - walk.min_speed) * uniform(key, counter + _ONE)
        aim_x = walk.half_width * (2.0 * uniform(key, counter + _TWO) - 1.0)
        aim_y = walk.half_height * (2.0 * uniform(key, counter + _THREE) - 1.0)
        counter += _DRAWS
        shortest, last, made, straight = speed * walk.time_step, np.inf, 0.0, False
        least = 1.0  # a target that takes a goal makes a move towards it


@allocating
def _foresee(
    rules, samples, sampling, pieces, scene, r, j, together, most, looks, middle, moves, views, clear, shared, futures
):  # fmt: skip
    """List the positions of target j of row r at each look, from particles sampled at even steps of their weights.

    A sample is a ``1 / samples`` of a target; those of a weight over 1 also take the words of the `most` - 1 next
    targets. The draws of a future depend only on target, sample, number of turns and time, so consecutive sub-steps
    plan for the same futures. If all particles move `together`, samples share an entry until they turn. `looks`
    (D + H + 1,) are the looks of the sub-steps from now, `middle` and `moves` (L + 1,) the middle sub-step of each look
    and the moves until then; `shared` (L + 1,) is scratch memory. With recorded motion, `pieces` are given; `views` and
    `clear` are those of targets that evade, see :func:`_follow_moves`.
    """
    belief, time = scene.belief, scene.time[r]
    body, weight = belief.body[r, j], belief.weight[r, j]
    if together:
        word = j // sampling.per_word
        for look in range(1, shared.shape[0]):
            shared[look] = futures.length[look, word]
            _put(futures, look, word, _NOWHERE, _NOWHERE, np.uint64(0))
    total, source = weight[0], 0
    for s in range(min(int(weight.sum() * samples + 0.5), most * samples)):
        while total < (s + 0.5) / samples and source < weight.shape[0] - 1:
            source += 1
            total += weight[source]
        k = j + s // samples
        word, bit = k // sampling.per_word, _ONE << np.uint64(k % sampling.per_word * samples + s % samples)
        key = mix(sampling.key + np.uint64(j * 64 + s) * GOLDEN)
        owed = int((s + 1) * sampling.spent + 0.5) == int(s * sampling.spent + 0.5)
        if pieces is not None:
            _follow_piece(pieces, body, source, word, bit, middle, futures)
        elif rules.walk.model == GOALS:
            _follow_courses(rules.walk, body[:, source], key, word, bit, together, moves, shared, futures)
        else:
            _follow_moves(
                rules, belief.discs[r], body[:, source], key, time, word, bit, owed, together, looks, middle, views,
                clear, shared, futures,
            )  # fmt: skip


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
def _mark(x, y, who, pose, moved, view, clear, most, sides, row):
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
    """Return the samples of the entries that are not hidden from sensor i; see :func:`_mark`."""
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
                _mark(x, y, seen, pose, moved[way, look], view, then_clear, most, sides, row)


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
    return candidate_pairs(targets, m)


@allocating
def _gather_near(near, candidates, i, view, samples, every, futures):
    """Write the futures in reach of sensor i of its listed targets, with as many targets in a word as fit."""
    futures.length[:] = 0
    reach = (math.sqrt(view[VIEW_RANGE]) + near.moved) * _PAD
    for s in range(candidates.targets.shape[1]):
        j = candidates.targets[i, s]
        if j < 0:
            continue
        word, bit = bits_of(s, samples)
        for look in range(1, every.length.shape[0]):
            for e in range(every.length[look, j]):
                x, y, members = every.x[look, j, e], every.y[look, j, e], every.who[look, j, e]
                dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
                if members != 0 and dx * dx + dy * dy <= reach * reach:
                    _put(futures, look, word, x, y, members << bit)
    _close(futures)


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
    (_, known, all_views, _, present, time), (field_of_view, turn), (kept, kept_ways) = scene, sensors, history
    n, m, samples = all_views.shape[1], known.shape[1], search.samples
    middle_of, last = _spans(search.looks)
    ahead = np.append(np.zeros(sampling.delay, np.int64), search.looks)  # the looks of the sub-steps from now
    middle_of += sampling.delay
    middle_of[0] = -1
    looks = last.shape[0] - 1
    most = m + sampling.unseen
    every = _empty_futures(looks, (most - 1) // sampling.per_word + 1, min(most, sampling.per_word) * (samples + 1))
    own = every  # of a sensor
    if near is not None:
        per_word = 64 // samples
        own = _empty_futures(looks, (near.most - 1) // per_word + 1, min(near.most, per_word) * (samples + 1))
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
            evaded = None if evades is None else _planned_views(views, turn, kept[r], sampling.delay)
            for j in range(m + min(sampling.unseen, 1)):
                together = False
                if j < m:
                    moving = known[r, j, 2] != 0.0 or known[r, j, 3] != 0.0  # the velocity
                    together = known[r, j, AGE] == 0.0 and moving and rules.deviation == 0.0 and keeps_course
                if j == m or present[r, j]:
                    _foresee(
                        rules, samples, sampling, pieces, scene, r, j, together, 1 if j < m else sampling.unseen, ahead,
                        middle_of, moves, evaded, row_clear, shared, every,
                    )  # fmt: skip
            _close(every)
            longest = views.copy()
            for i in range(n):
                _write_lens(ways, middle_of, views[i, VIEW_RANGE], field_of_view[r, i], lens[i])
                longest[i, VIEW_RANGE] = max(views[i, VIEW_RANGE], lens[i, :, 1:, 0].max())
            candidates = None if near is None else _likeliest_pairs(near, worth, longest, every)
            if worth is not None:
                number, total = _write_planes(worth, sampling.per_word, samples, None, every, room.planes[0, :0])
                for t in range(room.terms.shape[0]):  # the mean worth of all samples is 1
                    part = worth.shares[-1] if t < worth.planes else worth.shares[0]
                    room.terms[t] = 2 ** (t % worth.planes) * part * (number / total if total > 0 else 1.0)
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
