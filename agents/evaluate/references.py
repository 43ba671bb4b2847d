"""References for what could be reached at most: solutions that know more than an agent may.

What an agent may miss has two causes: it does not know where the targets will go, and its sensors turn slowly. Free
turning takes both away, and is an upper bound. The clairvoyant takes only the first away. Its optimum would be the
tighter upper bound, and what is computed is a lower estimate of that optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.baselines.exact import choose, need_scipy, undominated
from agents.evaluate.reference_kernels import ascend, cover_freely, see_from_everywhere
from envs.scenario import Scenario, load_scenario
from envs.simulator import Simulator, positive
from envs.tasks import check_cost

_MOST_IN_A_TABLE = 16  # targets; for more, a table of all sets of them is slower than integer programming
_EPISODES_AT_ONCE, _PAIRS_AT_ONCE = 16, 2**22  # what is recorded before it looks for the best
_TIE = 1e-7  # what a turn costs at the least, in units of coverage: too little to change more than ties
_PACE = 20  # sub-steps for which a sensor does the same at a random start: long enough to get somewhere


class Reference(NamedTuple):
    """What a reference reaches in E episodes of T sub-steps."""

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
) -> Reference:
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
            cover_freely(record.bearing, view, covered)
        else:
            for e, t in np.ndindex(covered.shape):
                covered[e, t] = _most_covered(record.bearing[e, t], view)
        coverage = np.where(record.present > 0, covered / np.maximum(record.present, 1), 1.0)
        return coverage, np.full(len(seeds), np.nan)

    return _solved(solve, scenario, seeds, sub_steps, progress)


def clairvoyant_estimate(
    scenario: Scenario | str | Path,
    seeds: Sequence[int],
    sub_steps: int,
    progress: Progress | None = None,
    *,
    restarts: int = 8,
    seed: int = 0,
    turn_cost: float = 0.0,
) -> Reference:
    """A lower estimate of the most that sensors could cover if they knew the whole future and turned as they can.

    Sensor by sensor takes its best sequence of turns, given what the others cover, by dynamic programming over its
    headings; again and again, until none finds a better one. This is coordinate ascent from random starts, of which the
    best counts. What it gives can be reached, turn by turn. It is no bound, since the ascent may end below the optimum:
    in rare episodes an agent may cover more. Of equally good sequences the one with the fewest turns is taken. It
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

    return _solved(solve, scenario, seeds, sub_steps, progress)


REFERENCES: dict[str, Callable[..., Reference]] = {
    "free turning": free_turning_bound,
    "clairvoyant": clairvoyant_estimate,
}
"""The references, by name; each takes the scenario, the seeds, the sub-steps and whom to tell of the progress."""

KINDS = {"free turning": "upper bound", "clairvoyant": "lower estimate"}
"""What each is of the best that could be reached: no agent covers more than an upper bound in any episode; a lower
estimate of the clairvoyant optimum can be reached, and in rare episodes an agent may cover more."""


def _solved(
    solve: Callable[[list[int], _Record], tuple[np.ndarray, np.ndarray]],
    scenario: Scenario,
    seeds: Sequence[int],
    sub_steps: int,
    progress: Progress | None,
) -> Reference:
    """Record some episodes at a time and `solve` them: coverage (E, T) and rotation (E,)."""
    sub_steps, seeds = positive("sub_steps", sub_steps), list(seeds)
    if scenario.walk == "evade" or scenario.zoom:
        what = "walk is 'evade': the targets react" if scenario.walk == "evade" else "zoom is on: the range changes"
        raise ValueError(f"scenario {scenario.name!r}: {what} with what the sensors do, so that it has no references")
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
    return Reference(coverage.mean(-1), rotation, coverage.mean(0))


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
    """The best turns found (E, T, n), and what they are worth (E,): see :func:`clairvoyant_estimate`."""
    episodes, sub_steps, n, m = record.bearing.shape
    half_view, turn = _views(scenario) / 2, scenario.of_each_sensor("turn")
    count = np.array([_different_headings(one, sub_steps) for one in turn])
    sees = np.empty((n, sub_steps, count.max(), -(-m // 64)), np.uint64)
    turns, value = np.empty((episodes, sub_steps, n), np.int64), np.empty(episodes)
    for e in range(episodes):
        see_from_everywhere(record.bearing[e], record.heading[e], turn, count, half_view, sees)
        worth = (record.present[e] > 0) / np.maximum(record.present[e], 1)
        # An episode's starts are its own, whatever others it is solved with.
        generator = np.random.default_rng([seed, seeds[e]])
        order = generator.permuted(np.tile(np.arange(n), (restarts, 1)), axis=-1)
        tried = generator.integers(0, 3, (restarts, n, -(-sub_steps // _PACE)))
        tried = tried.repeat(_PACE, -1)[..., :sub_steps].copy()  # (R, n, T)
        values = np.empty(restarts)
        ascend(sees, record.working[e], worth, turn_cost / record.num_sensors[e] + _TIE, count, order, tried, values)
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
