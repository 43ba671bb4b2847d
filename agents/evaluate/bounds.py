"""Bounds of the coverage, computed with more knowledge or freedom than an agent has.

An agent misses targets for two reasons: their future is unknown, and sensors turn slowly. Free turning removes both
limits and is an upper bound. The clairvoyant removes only the first; its optimum would be a tighter upper bound, and
the clairvoyant estimate is a lower estimate of that optimum. Sensors on rails have another upper bound: they turn and
move as usual, but for each target separately.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hitmac.agents.evaluate.statistics import ratio
from hitmac.agents.planning.exact import choose, undominated
from hitmac.agents.planning.search import add_seen, shares_of
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.formulas import wrapped
from hitmac.envs.base.state import X, Y
from hitmac.envs.base.threads import Threads, blocks, cores
from hitmac.envs.parts.knowledge import popcount
from hitmac.envs.parts.rails import gone_along, make_rails, point_on, rail_of
from hitmac.envs.parts.sensors import LEFT, RIGHT, STAY, limits_of, turns_to_limits
from hitmac.envs.parts.walks import WALKS
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import Simulator

_MOST_IN_A_TABLE = 16  # targets; with more, integer programming is faster than a table of all their sets
_EPISODES_AT_ONCE = 16
_TIE = 1e-7  # cost of a turn, in units of coverage: decides ties only
_RESTARTS = 8  # random starts of the clairvoyant estimate
_PACE = 20  # sub-steps between changes of action in a random start, so that sensors turn far enough

Bound = tuple[np.ndarray, np.ndarray]
"""Coverage (E, T), NaN without targets, and rotation (E,), share of (sensor, sub-step) with a turn or NaN."""


def compute_bound(
    name: str,
    scenario: Scenario | str | Path,
    seeds: Sequence[int],
    sub_steps: int,
    progress: Callable[[int], object] = lambda number: None,
) -> Bound:
    """Compute the bound `name`, of :func:`bounds_of`, for E episodes of T sub-steps with these seeds.

    `progress` is called with the number of newly finished episodes. Raises ValueError as :func:`bounds_of` does.
    """
    scenario, parts = load_scenario(scenario), []
    bounds_of(scenario)
    for first in range(0, len(seeds), _EPISODES_AT_ONCE):
        some = list(seeds[first : first + _EPISODES_AT_ONCE])
        parts.append(BOUNDS[name][1](scenario, some, sub_steps))
        progress(len(some))
    coverage, rotation = map(np.concatenate, zip(*parts, strict=True))
    return coverage, rotation


def free_turning_bound(scenario: Scenario, seeds: list[int], sub_steps: int) -> Bound:
    """Return an upper bound of the coverage (E, T): the most that sensors cover if they turn to any heading at once.

    The solution is exact, since every largest set of targets in a view begins at the bearing of one of its targets. The
    rotation is NaN.
    """
    record, view = _record(scenario, seeds, sub_steps), _views(scenario)
    covered = np.zeros(record.value.shape[:2])
    if scenario.num_targets <= _MOST_IN_A_TABLE and scenario.seen_by == 1:
        Threads(len(covered), cores(), block=1).run(cover_freely, record.bearing, record.value, view, covered)
    else:
        for e, t in np.ndindex(covered.shape):
            covered[e, t] = _most_covered(record.bearing[e, t], record.value[e, t], view, scenario.seen_by)
    return ratio(covered, record.value.sum(-1)), np.full(len(seeds), np.nan)


def reach_bound(scenario: Scenario, seeds: list[int], sub_steps: int) -> Bound:
    """Return an upper bound of the coverage (E, T): the share of targets, by value, that sensors on rails can reach.

    A target counts at a sub-step if `seen_by` sensors can each have it in view by then, after turning and moving for
    this target alone. Other targets, knowledge, obstacles and failures are ignored, so the bound is tight only for many
    sensors and short episodes. The rotation is NaN.
    """
    names = ("sensing_range", "field_of_view", "turn_angle")
    sensors = np.stack([scenario.of_each_sensor(name) for name in names], -1) * (1.0, 0.5, 1.0)
    sensors[:, 2] = np.maximum(sensors[:, 2], scenario.rates[0] * scenario.time_step)  # a motor turns no slower
    record, rails = _record(scenario, seeds, sub_steps), make_rails(scenario.rails)
    covered, threads = np.zeros(record.value.shape[:2]), Threads(len(seeds), cores(), block=1)
    threads.run(count_within_reach, record, sensors, rails, float(scenario.rail_step), scenario.seen_by, covered)
    return ratio(covered, record.value.sum(-1)), np.full(len(seeds), np.nan)


def clairvoyant_estimate(scenario: Scenario, seeds: list[int], sub_steps: int) -> Bound:
    """Return coverage (E, T) and rotation (E,) of turns that are planned with the whole future known.

    Dynamic programming over the headings of one sensor after the other finds its best sequence of turns, given the
    targets that the others cover, until no sequence improves. Of 8 random starts of this coordinate ascent, the best
    counts. The ascent may end below the optimum, so that an agent may cover more in rare episodes. Ties go to the
    fewest turns.
    """
    turns, _ = _foreseen_turns(scenario, seeds, _record(scenario, seeds, sub_steps))
    simulator = Simulator(scenario, len(seeds), seeds)
    coverage, rotation = np.empty(turns.shape[:2]), np.empty(turns.shape[:2])
    for t in range(sub_steps):
        simulator.step(turns[:, t])
        coverage[:, t], rotation[:, t] = simulator.observed_coverage, simulator.rotation
    return coverage, rotation.mean(-1)


BOUNDS: dict[str, tuple[str, Callable[..., Bound]]] = {
    "free turning": ("upper bound", free_turning_bound),
    "clairvoyant": ("lower estimate", clairvoyant_estimate),
    "within reach": ("upper bound", reach_bound),
}
"""Bounds by name: kind, and function of the scenario, the seeds and the number of sub-steps."""


def bounds_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of the bounds of a scenario: with rails within reach, otherwise free turning and clairvoyant.

    The clairvoyant plans turns at once, so that with motors agents would cover more. Raises ValueError for targets that
    evade, and sensors with decisions other than turns and moves, which have no bounds.
    """
    reacts = WALKS[scenario.walk].reacts
    if reacts or (others := [one for one in scenario.decisions if one not in ("turn", "move")]):
        reason = f"walk is {scenario.walk!r}" if reacts else f"{others[0]} is on"
        raise ValueError(f"scenario {scenario.name!r} has no bounds: {reason}, so its events depend on the actions")
    if scenario.rails:
        return ("within reach",)
    return ("free turning",) if scenario.turn_rates else ("free turning", "clairvoyant")


class _Record(NamedTuple):
    """Events of E episodes of T sub-steps that do not depend on the actions."""

    bearing: np.ndarray  # (E, T, n, m) degrees; NaN: invisible from any heading
    position: np.ndarray  # (E, T, m, 2) of the targets
    value: np.ndarray  # (E, T, m) of the present targets; 0 of the others
    working: np.ndarray  # (E, T, n) bool
    along: np.ndarray  # (E, n) initial places on the rails
    heading: np.ndarray  # (E, n) degrees, initial headings


class _Future(NamedTuple):
    """Recorded future of an episode, in which headings are numbers of turns from the first, round the circle."""

    sees: np.ndarray  # (n, T, K, words) uint64: targets in view at each time from each heading
    working: np.ndarray  # (T, n) bool
    values: np.ndarray  # (T, m) of the targets
    worth: np.ndarray  # (T,) of a value of 1
    shares: np.ndarray  # (k,) of a target that the first, second, ... sensor that sees it gains
    different: np.ndarray  # (n,) int64: different headings of a sensor
    ends: np.ndarray  # (n, 2) int64: headings beyond which it cannot turn to the right and to the left; -1: none


def _record(scenario: Scenario, seeds: Sequence[int], sub_steps: int) -> _Record:
    """Return the record of episodes with sensors that neither turn nor move."""
    simulator = Simulator(scenario, len(seeds), seeds)
    state, n, m = simulator.state, scenario.num_sensors, scenario.num_targets
    start = state.along.copy(), state.heading.copy()
    still = np.zeros((len(seeds), len(scenario.decisions) * n), np.int64)
    state.cos_half_view[:] = -2.0  # below every cosine: all-round views, limited by obstacles and range only
    shapes = ((n, m), float), ((m, 2), float), ((m,), float), ((n,), bool)
    bearing, position, value, working = (np.empty((len(seeds), sub_steps, *of), kind) for of, kind in shapes)
    for t in range(sub_steps):
        simulator.step(still)
        offset = state.target_position[:, None] - state.sensor_position[:, :, None]  # (E, n, m, 2)
        bearing[:, t] = np.degrees(np.arctan2(offset[..., 1], offset[..., 0]))
        bearing[:, t][~state.visible] = np.nan
        position[:, t], working[:, t] = state.target_position, state.working
        value[:, t] = state.value * state.present
    return _Record(bearing, position, value, working, *start)


def _views(scenario: Scenario) -> np.ndarray:
    """Return the fields of view (n,), degrees; infinite if all round, since such a view includes the point behind."""
    view = scenario.of_each_sensor("field_of_view")
    return np.where(view < 360, view, np.inf)


def _most_covered(bearing: np.ndarray, value: np.ndarray, view: np.ndarray, seen_by: int) -> float:
    """Return the most `value` (m,) of targets at `bearing` (n, m) that sensors with views (n,) cover; any m."""
    # A view of a set can begin (almost) at its first target, counter-clockwise.
    every = (bearing[:, None] - bearing[..., None]) % 360 < view[:, None, None]  # (n, m, m); NaN is nowhere
    every = [sets[np.argsort(-sets.sum(-1), kind="stable")] for sets in every]
    every = [sets[undominated(sets)] for sets in every]
    chosen = choose([(sets, np.zeros(len(sets), np.int64)) for sets in every], value, seen_by)
    seeing = np.sum([sets[k] for sets, k in zip(every, chosen, strict=True)], axis=0)
    return float(value[seeing >= seen_by].sum())


def _foreseen_turns(scenario: Scenario, seeds: Sequence[int], record: _Record) -> tuple[np.ndarray, np.ndarray]:
    """Return the best turns found (E, T, n) and their values (E,); see :func:`clairvoyant_estimate`."""
    episodes, sub_steps, n, m = record.bearing.shape
    half_view, turn, limits = _views(scenario) / 2, scenario.of_each_sensor("turn_angle"), limits_of(scenario)
    count = np.array([_different_headings(one, sub_steps) for one in turn])
    sees = np.empty((n, sub_steps, count.max(), -(-m // 64)), np.uint64)
    turns, value = np.empty((episodes, sub_steps, n), np.int64), np.empty(episodes)
    threads, shares = Threads(_RESTARTS, cores(), block=1), shares_of(scenario.seen_by)
    for e in range(episodes):
        see_from_everywhere(record.bearing[e], record.heading[e], turn, count, half_view, sees)
        total = record.value[e].sum(-1)
        worth = (total > 0.0) / np.where(total > 0.0, total, 1.0)
        generator = np.random.default_rng([0, seeds[e]])
        order = generator.permuted(np.tile(np.arange(n), (_RESTARTS, 1)), axis=-1)
        tried = generator.integers(0, 3, (_RESTARTS, n, -(-sub_steps // _PACE)))
        tried = tried.repeat(_PACE, -1)[..., :sub_steps].copy()  # (R, n, T)
        most = np.minimum(turns_to_limits(record.heading[e], limits, turn), sub_steps).astype(np.int64)
        ends = np.where(np.isfinite(limits), most * (-1, 1) % count[:, None], -1)  # to the right, to the left
        future = _Future(sees, record.working[e], record.value[e], worth, shares, count, ends)
        values = np.empty(_RESTARTS)
        threads.run(ascend, future, order, tried, values)
        turns[e], value[e] = tried[values.argmax()].T, values.max()
    return turns, value


def _different_headings(turn: float, sub_steps: int) -> int:
    """Return the number of different headings of a sensor in an episode."""
    turned = np.arange(1, 2 * sub_steps + 1) * turn
    back = np.flatnonzero(np.abs((turned + 180) % 360 - 180) < 1e-9)
    return int(back[0]) + 1 if len(back) else 2 * sub_steps + 1


@inlined
def _value_of_set(members, value):
    """Return the sum of the values (m,) of the targets whose bits are set."""
    total = 0.0
    while members != 0:
        lowest = members & (~members + np.uint64(1))
        total += value[np.int64(popcount(lowest - np.uint64(1)))]
        members ^= lowest
    return total


@allocating
def _windows(bearing, view):
    """Return the sets of targets, as bits, in a view (degrees) that begins at a target, without most subsets."""
    windows, found = np.zeros(bearing.shape[0], np.int64), 0
    for first in range(bearing.shape[0]):
        members = 0
        for j in range(bearing.shape[0]):
            off = bearing[j] - bearing[first]
            if off - 360.0 * math.floor(off / 360.0) < view:  # never for NaN
                members |= 1 << j
        if (members & ~windows[:found]).all():
            windows[found] = members
            found += 1
    return windows[:found]


@kernel
def cover_freely(bearing, value, view, covered, share):
    """Write the most value (E, T) of covered targets, for `bearing` (E, T, n, m), `value` (E, T, m) and views (n,)."""
    m = bearing.shape[3]
    for low, high in blocks(bearing.shape[0], share):
        unions, listed = np.zeros(1 << m, np.int64), np.zeros(1 << m, np.bool_)
        for e in range(low, high):
            for t in range(bearing.shape[1]):
                listed[0], count = True, 1  # the empty set, then those that the sensors so far can cover
                for i in range(bearing.shape[2]):
                    windows, before = _windows(bearing[e, t, i], view[i]), count
                    for a in range(before):
                        for window in windows:
                            union = unions[a] | window
                            if not listed[union]:
                                listed[union], unions[count] = True, union
                                count += 1
                for a in range(count):
                    covered[e, t] = max(covered[e, t], _value_of_set(np.uint64(unions[a]), value[e, t]))
                    listed[unions[a]] = False


@inlined
def _in_reach(rails, r, along, heading, sensor, step, sub_steps, target):
    """Return True if a sensor can have a point in view after some sub-steps; see :func:`count_within_reach`."""
    length, closed = rails.length[r], rails.closed[r]
    # Places within reach: whole numbers of steps from the start and, on an open rail, from its ends.
    for origin in range(1 if closed else 3):
        start = along if origin == 0 else (origin - 1) * length
        steps = sub_steps - math.ceil(abs(start - along) / step)
        if not closed:
            steps = min(steps, math.ceil(length / step))
        for k in range(-steps, steps + 1):
            x, y, _, _ = point_on(rails, r, gone_along(rails, r, start, k * step))
            dx, dy = target[X] - x, target[Y] - y
            off = wrapped(math.degrees(math.atan2(dy, dx)) - heading)
            if abs(off) <= sensor[1] + sub_steps * sensor[2] and dx * dx + dy * dy <= sensor[0] ** 2:
                return True
    return False


@kernel
def count_within_reach(record, sensors, rails, step, seen_by, covered, share):
    """Write the value (E, T) of targets that `seen_by` sensors, each for one alone, can have in view by then.

    `sensors` (n, 3) are their range, half field of view and turn angle, and `step` is that along a rail.
    """
    position, value, along, heading = record.position, record.value, record.along, record.heading
    for low, high in blocks(position.shape[0], share):
        for e in range(low, high):
            for t in range(position.shape[1]):
                for j in range(position.shape[2]):
                    found = 0
                    for i in range(sensors.shape[0]):
                        if found == seen_by or value[e, t, j] == 0.0:
                            break
                        found += _in_reach(rails, rail_of(rails, i), along[e, i], heading[e, i], sensors[i], step,
                                           t + 1, position[e, t, j])  # fmt: skip
                    covered[e, t] += value[e, t, j] * (found == seen_by)


@kernel
def see_from_everywhere(bearing, heading, turn, count, half_view, sees):
    """Write the targets (bits) in view of each sensor at each time from each heading into `sees` (n, T, K, words)."""
    sees[:] = 0
    for i in range(sees.shape[0]):
        for t in range(sees.shape[1]):
            for j in range(bearing.shape[2]):
                for k in range(count[i]):
                    steps = k if 2 * k <= count[i] else k - count[i]
                    off = wrapped(bearing[t, i, j] - heading[i] - steps * turn[i])
                    if abs(off) < half_view[i]:  # never for NaN
                        sees[i, t, k, j // 64] |= np.uint64(1) << np.uint64(j % 64)


@inlined
def _follow(future, i, turns, seen):
    """Write the targets (T, words) that sensor i sees with the turns (T,), limited by its ends."""
    k = 0
    for t in range(turns.shape[0]):
        if turns[t] == LEFT and k != future.ends[i, 1]:
            k = (k + 1) % future.different[i]
        elif turns[t] == RIGHT and k != future.ends[i, 0]:
            k = (k - 1) % future.different[i]
        for w in range(seen.shape[1]):
            seen[t, w] = future.sees[i, t, k, w]


@compiled
def _best_turns(future, i, others, ahead, choice, turns):
    """Write the best turns (T,) of sensor i, given the targets that the others see; ties go to the fewest turns.

    The values of the headings `ahead` (2, K) are those before the sensor sees in them, and after a sub-step.
    """
    values, worth, shares, count = future.values, future.worth, future.shares, future.different[i]
    last, times = others.shape[0] - 1, turns.shape[0]  # enough with this sensor
    for k in range(count):
        ahead[1, k] = 0.0
    for t in range(times - 1, -1, -1):
        for k in range(count):
            new = 0.0
            for w in range(others.shape[2]):
                enough = others[last - 1, t, w] if last > 0 else ~np.uint64(0)
                now = future.sees[i, t, k, w] & ~others[last, t, w]
                new += shares[last] * _value_of_set(now & enough, values[t, 64 * w :])
                new += shares[0] * _value_of_set(now & ~enough, values[t, 64 * w :])
            ahead[0, k] = ahead[1, k] + worth[t] * new
        for k in range(count):
            choice[t, k], best = STAY, ahead[0, k]
            if future.working[t, i]:
                left, right = ahead[0, k + 1 if k + 1 < count else 0], ahead[0, k - 1 if k > 0 else count - 1]
                if left - _TIE > best and k != future.ends[i, 1]:
                    choice[t, k], best = LEFT, left - _TIE
                if right - _TIE > best and k != future.ends[i, 0]:
                    choice[t, k], best = RIGHT, right - _TIE
            ahead[1, k] = best
    k = 0
    for t in range(times):
        turns[t] = choice[t, k]
        k = (k + (turns[t] == LEFT) - (turns[t] == RIGHT)) % count


@inlined
def _add_all(others, seen):
    """Add what one more sensor sees (T, words) to the layers of what at least 1, 2, ... k others see."""
    for t in range(seen.shape[0]):
        for w in range(seen.shape[1]):
            add_seen(others, t, w, seen[t, w])


@kernel
def ascend(future, order, turns, value, share):
    """Improve the turns (R, n, T) of R starts, one sensor after the other, until none improves.

    Write the value of the turns into `value` (R,): the worth of the values of the covered targets, less the cost of
    every turn.
    """
    n, times, headings, words = future.sees.shape
    values, worth, shares = future.values, future.worth, future.shares
    for low, high in blocks(turns.shape[0], share):
        for r in range(low, high):
            seen = np.zeros((n, times, words), np.uint64)
            others = np.empty((shares.shape[0], times, words), np.uint64)  # seen by at least 1, 2, ... others
            ahead, choice = np.empty((2, headings)), np.empty((times, headings), np.int8)
            for i in range(n):
                _follow(future, i, turns[r, i], seen[i])
            value[r] = -np.inf
            better = True
            while better:
                for i in order[r]:
                    others[:] = 0
                    for other in range(n):
                        if other != i:
                            _add_all(others, seen[other])
                    _best_turns(future, i, others, ahead, choice, turns[r, i])
                    _follow(future, i, turns[r, i], seen[i])
                _add_all(others, seen[order[r, n - 1]])  # all sensors
                total = 0.0
                for t in range(times):
                    for w in range(words):
                        for k in range(shares.shape[0]):
                            total += worth[t] * shares[k] * _value_of_set(others[k, t, w], values[t, 64 * w :])
                    for i in range(n):
                        total -= _TIE * (turns[r, i, t] != STAY)
                better = total > value[r] + 1e-9
                value[r] = max(value[r], total)
