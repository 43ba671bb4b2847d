"""How well could anyone do: two bounds that know more than an agent may.

What an agent may miss has two causes: it does not know where the targets will go, and its sensors turn slowly. The
first bound takes both away, the second only the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import prange

from agents.exact import choose, need_scipy, undominated
from envs.compiled import compiled, inlined, kernel
from envs.physics import LEFT, RIGHT, STAY
from envs.scenario import Scenario, load_scenario
from envs.simulator import Simulator, positive
from envs.tasks import check_cost

_MOST_IN_A_TABLE = 16  # targets; for more, a table of all sets of them is slower than integer programming
_EPISODES_AT_ONCE, _PAIRS_AT_ONCE = 16, 2**22  # what a bound records before it looks for the best
_TIE = 1e-7  # what a turn costs at the least, in units of coverage: too little to change more than ties
_PACE = 20  # sub-steps for which a sensor does the same at a random start: long enough to get somewhere


class Bound(NamedTuple):
    """What a bound says of E episodes of T sub-steps."""

    coverage: np.ndarray  # (E,) share of the targets present that are covered, mean over the sub-steps
    rotation: np.ndarray  # (E,) share of (sensor, sub-step) in which a sensor turned; NaN where that has no meaning
    sub_step_coverage: np.ndarray  # (T,) coverage at every sub-step, mean over the episodes


Progress = Callable[[int], object]
"""Is told how many more episodes are done."""


class _Record(NamedTuple):
    """What happens in E episodes of T sub-steps whatever the sensors do."""

    bearing: np.ndarray  # (E, T, n, m) degrees; NaN: the sensor would not see the target if it faced it
    present: np.ndarray  # (E, T) how many targets
    working: np.ndarray  # (E, T, n) bool
    heading: np.ndarray  # (E, n) degrees, at the start
    num_sensors: np.ndarray  # (E,)


def free_turning_bound(
    scenario: Scenario | str | Path, seeds: Sequence[int], sub_steps: int, progress: Progress | None = None
) -> Bound:
    """The most that sensors could cover if they turned at once, to any heading; no agent covers more at any sub-step.

    Exact: of the sets of targets that a view can hold, the largest begin at the bearing of one of them. It has no
    rotation.

    Args:
        scenario: a :class:`Scenario`, a preset's name or a YAML file's path.
        seeds: episode k is that of the scene with the seed ``seeds[k]``.
        sub_steps: T, of an episode.
        progress: called whenever episodes are done, with how many.

    Raises:
        ValueError: targets that evade or lenses that zoom, for which it is no bound; no seed, or none that is one; no
            sub-step.
        ModuleNotFoundError: more than 16 targets, and scipy is missing.
    """
    scenario = load_scenario(scenario)
    if scenario.num_targets > _MOST_IN_A_TABLE:
        need_scipy(f"the free turning bound for more than {_MOST_IN_A_TABLE} targets")

    def solve(seeds: list[int], record: _Record) -> tuple[np.ndarray, np.ndarray]:
        covered, view = np.zeros(record.present.shape, np.int64), _views(scenario)
        if scenario.num_targets <= _MOST_IN_A_TABLE:
            _cover_freely(record.bearing, view, covered)
        else:
            for e, t in np.ndindex(covered.shape):
                covered[e, t] = _most_covered(record.bearing[e, t], view)
        coverage = np.where(record.present > 0, covered / np.maximum(record.present, 1), 1.0)
        return coverage, np.full(len(seeds), np.nan)

    return _bound(solve, scenario, seeds, sub_steps, progress)


def clairvoyant_bound(
    scenario: Scenario | str | Path,
    seeds: Sequence[int],
    sub_steps: int,
    progress: Progress | None = None,
    *,
    restarts: int = 8,
    seed: int = 0,
    turn_cost: float = 0.0,
) -> Bound:
    """What sensors that know the whole future and turn no faster than they can would cover.

    Sensor by sensor takes its best sequence of turns, given what the others cover, by dynamic programming over its
    headings; again and again, until none finds a better one. This is coordinate ascent from random starts, of which the
    best counts. So what it gives can be reached, turn by turn, and is a lower estimate of the best that a clairvoyant
    could do: an agent may, if hardly, cover more. Of equally good sequences the one with the fewest turns is taken. It
    takes longer where 360 degrees are not a whole number of turns.

    Args:
        scenario: see :func:`free_turning_bound`.
        seeds: likewise.
        sub_steps: likewise.
        progress: likewise.
        restarts: random starts; 1 or more. Time and, slowly, coverage grow with them.
        seed: of the random starts, together with that of the episode.
        turn_cost: what it costs if all sensors turn in a sub-step, in units of coverage; 0 or more.

    Raises:
        ValueError: see :func:`free_turning_bound`; an option out of its range.
    """
    restarts, turn_cost = positive("restarts", restarts), check_cost(turn_cost)
    scenario = load_scenario(scenario)

    def solve(seeds: list[int], record: _Record) -> tuple[np.ndarray, np.ndarray]:
        turns, _ = _foreseen_turns(scenario, seeds, record, restarts, seed, turn_cost)
        return _replay(scenario, seeds, turns)

    return _bound(solve, scenario, seeds, sub_steps, progress)


BOUNDS: dict[str, Callable[..., Bound]] = {"free turning": free_turning_bound, "clairvoyant": clairvoyant_bound}
"""The bounds, by name; each takes the scenario, the seeds, the sub-steps and whom to tell of the progress."""


def _bound(
    solve: Callable[[list[int], _Record], tuple[np.ndarray, np.ndarray]],
    scenario: Scenario,
    seeds: Sequence[int],
    sub_steps: int,
    progress: Progress | None,
) -> Bound:
    """Record some episodes at a time and `solve` them: coverage (E, T) and rotation (E,)."""
    sub_steps, seeds = positive("sub_steps", sub_steps), list(seeds)
    if scenario.walk == "evade" or scenario.zoom:
        what = "walk is 'evade': the targets react" if scenario.walk == "evade" else "zoom is on: the range changes"
        raise ValueError(f"scenario {scenario.name!r}: {what} with what the sensors do, so that nothing bounds it")
    if not seeds:
        raise ValueError("seeds is empty; give one for every episode")
    at_once = _PAIRS_AT_ONCE // (sub_steps * scenario.num_sensors * scenario.num_targets)
    at_once = min(max(at_once, 1), _EPISODES_AT_ONCE)
    parts = []
    for first in range(0, len(seeds), at_once):
        some = seeds[first : first + at_once]
        parts.append(solve(some, _record(scenario, some, sub_steps)))
        if progress is not None:
            progress(len(some))
    coverage, rotation = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Bound(coverage.mean(-1), rotation, coverage.mean(0))


def _record(scenario: Scenario, seeds: Sequence[int], sub_steps: int) -> _Record:
    """Run the episodes, with sensors that never turn."""
    simulator = Simulator(scenario, len(seeds), seeds)
    state, (n, m) = simulator.state, (scenario.num_sensors, scenario.num_targets)
    shape = len(seeds), sub_steps
    record = _Record(
        np.empty((*shape, n, m)), np.empty(shape), np.empty((*shape, n), bool), state.heading.copy(), state.num_sensors
    )
    state.cos_half_view[:] = -2.0  # below every cosine there is: all look all round, so that obstacles and range decide
    for t in range(sub_steps):
        simulator.step(np.zeros((len(seeds), n), np.int64))
        offset = state.target_position[:, None] - state.sensor_position[:, :, None]  # (E, n, m, 2)
        bearing = np.degrees(np.arctan2(offset[..., 1], offset[..., 0]))
        record.bearing[:, t] = np.where(state.visible, bearing, np.nan)
        record.present[:, t] = state.present.sum(-1)
        record.working[:, t] = state.working
    return record


def _views(scenario: Scenario) -> np.ndarray:
    """The fields of view (n,), degrees; infinite where it is all round, since that sees also what is exactly behind."""
    view = scenario.of_each_sensor("field_of_view")
    return np.where(view < 360, view, np.inf)


def _foreseen_turns(
    scenario: Scenario, seeds: Sequence[int], record: _Record, restarts: int, seed: int, turn_cost: float
) -> tuple[np.ndarray, np.ndarray]:
    """The best turns found (E, T, n), and what they are worth (E,): see :func:`clairvoyant_bound`."""
    episodes, sub_steps, n, m = record.bearing.shape
    half_view, turn = _views(scenario) / 2, scenario.of_each_sensor("turn")
    count = np.array([_different_headings(one, sub_steps) for one in turn])
    sees = np.empty((n, sub_steps, count.max(), -(-m // 64)), np.uint64)
    turns, value = np.empty((episodes, sub_steps, n), np.int64), np.empty(episodes)
    for e in range(episodes):
        _see_from_everywhere(record.bearing[e], record.heading[e], turn, count, half_view, sees)
        worth = (record.present[e] > 0) / np.maximum(record.present[e], 1)
        # An episode's starts are its own, whatever others it is solved with.
        generator = np.random.default_rng([seed, seeds[e]])
        order = generator.permuted(np.tile(np.arange(n), (restarts, 1)), axis=-1)
        tried = generator.integers(0, 3, (restarts, n, -(-sub_steps // _PACE)))
        tried = tried.repeat(_PACE, -1)[..., :sub_steps].copy()  # (R, n, T)
        values = np.empty(restarts)
        _ascend(sees, record.working[e], worth, turn_cost / record.num_sensors[e] + _TIE, count, order, tried, values)
        turns[e], value[e] = tried[values.argmax()].T, values.max()
    return turns, value


def _different_headings(turn: float, sub_steps: int) -> int:
    """After how many turns a sensor faces where it began: at most as many as it could visit, to both sides."""
    turned = np.arange(1, 2 * sub_steps + 1) * turn
    back = np.flatnonzero(np.abs((turned + 180) % 360 - 180) < 1e-9)
    return int(back[0]) + 1 if len(back) else 2 * sub_steps + 1


def _replay(scenario: Scenario, seeds: Sequence[int], turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coverage (E, T) and rotation (E,) when the sensors of the episodes make these turns (E, T, n)."""
    simulator = Simulator(scenario, len(seeds), seeds)
    coverage, rotation = np.empty(turns.shape[:2]), np.empty(turns.shape[:2])
    for t in range(turns.shape[1]):
        simulator.step(turns[:, t])
        coverage[:, t], rotation[:, t] = simulator.coverage, simulator.rotation
    return coverage, rotation.mean(-1)


def _most_covered(bearing: np.ndarray, view: np.ndarray) -> int:
    """The most targets that sensors with these views (n,) cover at once, targets at `bearing` (n, m); any number."""
    options = []
    for towards, opening in zip(bearing, view, strict=True):
        # A view that holds a set holds it also if it begins (almost) at the first of the set, counter-clockwise.
        sets = (towards - towards[:, None]) % 360 < opening  # (m, m); NaN is nowhere
        sets = sets[np.argsort(-sets.sum(-1), kind="stable")]
        sets = sets[undominated(sets)]
        options.append((sets, np.zeros(len(sets), np.int64)))
    return int(np.any([sets[k] for (sets, _), k in zip(options, choose(options), strict=True)], axis=0).sum())


@inlined
def _size(members):
    """How many bits of a uint64 are set."""
    members = members - ((members >> np.uint64(1)) & np.uint64(0x5555555555555555))
    members = (members & np.uint64(0x3333333333333333)) + ((members >> np.uint64(2)) & np.uint64(0x3333333333333333))
    members = (members + (members >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((members * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _windows(bearing, view, windows):
    """Write the sets of targets, as bits, that a view can hold and no earlier one holds; give their number."""
    found = 0
    for first in range(bearing.shape[0]):
        members = np.uint64(0)
        for j in range(bearing.shape[0]):
            off = bearing[j] - bearing[first]
            if off - 360.0 * math.floor(off / 360.0) < view:  # never for NaN
                members |= np.uint64(1) << np.uint64(j)
        within = members == 0
        for k in range(found):
            within |= members & ~windows[k] == 0
        if not within:
            windows[found] = members
            found += 1
    return found


@kernel(parallel=True)
def _cover_freely(bearing, view, covered):
    """Write how many targets (E, T) can be covered at most, for `bearing` (E, T, n, m) and views (n,), degrees.

    From sensor to sensor it keeps all unions of sets that can be had.
    """
    m = bearing.shape[3]
    for e in prange(bearing.shape[0]):
        windows = np.empty(m, np.uint64)
        unions = np.zeros((2, 1 << m), np.uint64)
        met = np.zeros(1 << m, np.int64)  # when a union was met last
        now = 0
        for t in range(bearing.shape[1]):
            unions[0, 0] = 0
            count = 1
            for i in range(bearing.shape[2]):
                found = _windows(bearing[e, t, i], view[i], windows)
                if found > 0:
                    now += 1
                    more = 0
                    old, new = unions[0], unions[1]
                    for a in range(count):
                        for k in range(found):
                            union = old[a] | windows[k]
                            if met[union] != now:
                                met[union] = now
                                new[more] = union
                                more += 1
                    old[:more] = new[:more]
                    count = more
            for a in range(count):
                covered[e, t] = max(covered[e, t], _size(unions[0, a]))


@kernel(nogil=True)
def _see_from_everywhere(bearing, heading, turn, count, half_view, sees):
    """Write which targets, as bits, each sensor sees from each heading at each time, into `sees` (n, T, K, words)."""
    sees[:] = 0
    for i in range(sees.shape[0]):
        for t in range(sees.shape[1]):
            for j in range(bearing.shape[2]):
                if math.isnan(bearing[t, i, j]):
                    continue
                bit = np.uint64(1) << np.uint64(j % 64)
                for k in range(count[i]):
                    steps = k if 2 * k <= count[i] else k - count[i]
                    off = bearing[t, i, j] - heading[i] - steps * turn[i]
                    off -= 360.0 * math.floor((off + 180.0) / 360.0)
                    if abs(off) < half_view[i]:
                        sees[i, t, k, j // 64] |= bit


@compiled
def _follow(sees, count, turns, seen):
    """Write what a sensor sees at each time, (T, words), when it makes these turns (T,)."""
    k = 0
    for t in range(turns.shape[0]):
        k = (k + (turns[t] == LEFT) - (turns[t] == RIGHT)) % count
        seen[t] = sees[t, k]


@compiled
def _best_turns(sees, others, working, worth, cost, count, value, ahead, choice, turns):
    """Write the best turns (T,) of one sensor, given what the others see; of equals those with the fewest turns.

    `value` (K,) is what can still be had from a heading after a sub-step, `ahead` (K,) likewise before it looks.
    """
    value[:] = 0.0
    for t in range(sees.shape[0] - 1, -1, -1):
        for k in range(count):
            new = 0
            for w in range(sees.shape[2]):
                new += _size(sees[t, k, w] & ~others[t, w])
            ahead[k] = value[k] + worth[t] * new
        for k in range(count):
            best, value[k] = STAY, ahead[k]
            if working[t]:
                left, right = ahead[k + 1 if k + 1 < count else 0], ahead[k - 1 if k > 0 else count - 1]
                if left - cost > value[k]:
                    best, value[k] = LEFT, left - cost
                if right - cost > value[k]:
                    best, value[k] = RIGHT, right - cost
            choice[t, k] = best
    k = 0
    for t in range(sees.shape[0]):
        turns[t] = choice[t, k]
        k = (k + (turns[t] == LEFT) - (turns[t] == RIGHT)) % count


@kernel(parallel=True)
def _ascend(sees, working, worth, cost, count, order, turns, value):
    """Improve the turns (R, n, T) of R starts, one sensor's after the other's, until nothing improves.

    Write into `value` (R,) what they are worth: `worth` (T,) for every target covered, less `cost` for every turn.
    """
    n, times, headings, words = sees.shape
    for r in prange(turns.shape[0]):
        seen = np.zeros((n, times, words), np.uint64)
        others = np.empty((times, words), np.uint64)
        after, ahead, choice = np.empty(headings), np.empty(headings), np.empty((times, headings), np.int8)
        for i in range(n):
            _follow(sees[i], count[i], turns[r, i], seen[i])
        value[r] = -np.inf
        better = True
        while better:
            for i in order[r]:
                others[:] = 0
                for other in range(n):
                    if other != i:
                        others |= seen[other]
                _best_turns(sees[i], others, working[:, i], worth, cost, count[i], after, ahead, choice, turns[r, i])
                _follow(sees[i], count[i], turns[r, i], seen[i])
            total = 0.0
            for t in range(times):
                for w in range(words):
                    union = np.uint64(0)
                    for i in range(n):
                        union |= seen[i, t, w]
                    total += worth[t] * _size(union)
                for i in range(n):
                    total -= cost * (turns[r, i, t] != STAY)
            better = total > value[r] + 1e-9
            value[r] = max(value[r], total)
