"""References for the highest possible coverage: solutions that know more than an agent may.

An agent misses targets for two reasons: it does not know where they will go, and its sensors turn slowly. Free turning
removes both limits, and is an upper bound. The clairvoyant removes only the first limit. Its optimum would be a tighter
upper bound; the clairvoyant estimate is a lower estimate of that optimum. On rails the bound is another one: sensors
turn and move as they can, but each for every target alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.exact import choose, need_scipy, undominated
from hitmac.agents.evaluate.reference_kernels import ascend, count_within_reach, cover_freely, see_from_everywhere
from hitmac.envs.kernels.mounts import limits_of, turns_to_limits
from hitmac.envs.kernels.rails import make_rails
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.load import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator, positive
from hitmac.envs.tasks import check_cost

_MOST_IN_A_TABLE = 16  # targets; for more, a table of all their sets is slower than integer programming
_EPISODES_AT_ONCE, _PAIRS_AT_ONCE = 16, 2**22  # limits of the recording that is solved at once
_TIE = 1e-7  # least cost of a turn, in units of coverage: small enough to decide only ties
_PACE = 20  # sub-steps for which a sensor repeats an action in a random start, so that it turns far enough


class Reference(NamedTuple):
    """Coverage and rotation of a reference in E episodes of T sub-steps."""

    coverage: np.ndarray  # (E,) share of the present targets that are covered, mean over the sub-steps
    rotation: np.ndarray  # (E,) share of (sensor, sub-step) in which a sensor turned; NaN if undefined
    sub_step_coverage: np.ndarray  # (T,) coverage at every sub-step, mean over the episodes


Progress = Callable[[int], object]
"""Callback with the number of further episodes that are done."""


class _Record(NamedTuple):
    """Events of E episodes of T sub-steps that do not depend on the actions."""

    bearing: np.ndarray  # (E, T, n, m) degrees; NaN: the sensor would not see the target even if it faced it
    present: np.ndarray  # (E, T) number of present targets
    working: np.ndarray  # (E, T, n) bool
    heading: np.ndarray  # (E, n) degrees, initial headings
    num_sensors: np.ndarray  # (E,)


def free_turning_bound(
    scenario: Scenario | str | Path, seeds: Sequence[int], sub_steps: int, progress: Progress | None = None
) -> Reference:
    """Compute the highest coverage of sensors that turn to any heading at once, an upper bound at every sub-step.

    The solution is exact: of the sets of targets that a view can contain, the largest begin at the bearing of one of
    their targets. The bound has no rotation.

    Args:
        scenario: a :class:`Scenario`, a preset's name or a YAML file's path.
        seeds: episode k is that of the scene with the seed ``seeds[k]``.
        sub_steps: T, length of an episode; 1 or more.
        progress: called with the number of further episodes that are done.

    Raises:
        ValueError: targets that evade, lenses that zoom or sensors on rails, for which this is no bound; no seed, or
            an invalid one; no sub-step.
        ModuleNotFoundError: the scenario has more than 16 targets, and scipy is missing.
    """
    scenario = load_scenario(scenario)
    if scenario.num_targets > _MOST_IN_A_TABLE:
        need_scipy(f"the free turning bound for more than {_MOST_IN_A_TABLE} targets")

    def solve(seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        record = _record(scenario, seeds, sub_steps)
        covered, view = np.zeros(record.present.shape, np.int64), _views(scenario)
        if scenario.num_targets <= _MOST_IN_A_TABLE:
            Threads(len(covered), cores(), block=1).run(cover_freely, record.bearing, view, covered)
        else:
            for e, t in np.ndindex(covered.shape):
                covered[e, t] = _most_covered(record.bearing[e, t], view)
        return _share(covered, record.present), np.full(len(seeds), np.nan)

    return _solved(solve, scenario, seeds, sub_steps, progress)


def reach_bound(
    scenario: Scenario | str | Path, seeds: Sequence[int], sub_steps: int, progress: Progress | None = None
) -> Reference:
    """Compute an upper bound of the coverage of sensors on rails: the share of targets that any of them can reach.

    A target counts at a sub-step if some sensor can have it in its view by then, had it turned and moved for this
    target alone since the start. That it covers others meanwhile, and what it knows of them, is left out, so the bound
    is tight where sensors are many and episodes short. Obstacles and failures are left out too. It has no rotation.

    Args:
        scenario: a scenario with rails; else see :func:`free_turning_bound`.
        seeds: see :func:`free_turning_bound`.
        sub_steps: see :func:`free_turning_bound`.
        progress: see :func:`free_turning_bound`.

    Raises:
        ValueError: targets that evade, lenses that zoom, or no rails; no seed, or an invalid one; no sub-step.
    """
    scenario = load_scenario(scenario)
    names = ("sensing_range", "field_of_view", "turn_angle")
    sensors = np.stack([scenario.of_each_sensor(name) for name in names], -1) * (1.0, 0.5, 1.0)

    def solve(seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        simulator = Simulator(scenario, len(seeds), seeds)
        along, heading = simulator.state.along.copy(), simulator.state.heading.copy()
        position = np.empty((len(seeds), sub_steps, scenario.num_targets, 2))
        present = np.empty((len(seeds), sub_steps, scenario.num_targets), np.bool_)
        still = np.zeros((len(seeds), len(scenario.decisions) * scenario.num_sensors), np.int64)
        for t in range(sub_steps):
            simulator.step(still)
            position[:, t], present[:, t] = simulator.state.target_position, simulator.state.present
        covered, threads = np.zeros(present.shape[:2], np.int64), Threads(len(seeds), cores(), block=1)
        rails = make_rails(scenario.rails)
        threads.run(count_within_reach, rails, along, heading, sensors, scenario.rail_step, position, present, covered)
        return _share(covered, present.sum(-1)), np.full(len(seeds), np.nan)

    return _solved(solve, scenario, seeds, sub_steps, progress, on_rails=True)


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
    """Compute a lower estimate of the highest coverage of sensors that know the whole future and turn as usual.

    Each sensor in order takes its best sequence of turns, given the targets that the others cover, by dynamic
    programming over its headings, until no sensor finds a better sequence. This is coordinate ascent from random
    starts, of which the best counts. The turns that it finds reach its coverage. It is not a bound, since the ascent
    may end below the optimum: in rare episodes an agent may cover more. Ties go to the sequence with the fewest turns.
    The computation takes longer where 360 degrees are not a whole number of turns.

    Args:
        scenario: see :func:`free_turning_bound`.
        seeds: see :func:`free_turning_bound`.
        sub_steps: see :func:`free_turning_bound`.
        progress: see :func:`free_turning_bound`.
        restarts: number of random starts; 1 or more; default 8. Time and, slowly, coverage grow with it.
        seed: seed of the random starts, together with that of the episode.
        turn_cost: cost of a sub-step in which all sensors turn, in units of coverage; 0 or more.

    Raises:
        ValueError: see :func:`free_turning_bound`; an option out of its range.
    """
    restarts, turn_cost = positive("restarts", restarts), check_cost(turn_cost)
    scenario = load_scenario(scenario)

    def solve(seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        record = _record(scenario, seeds, sub_steps)
        turns, _ = _foreseen_turns(scenario, seeds, record, restarts, seed, turn_cost)
        return _replay(scenario, seeds, turns)

    return _solved(solve, scenario, seeds, sub_steps, progress)


REFERENCES: dict[str, Callable[..., Reference]] = {
    "free turning": free_turning_bound,
    "clairvoyant": clairvoyant_estimate,
    "within reach": reach_bound,
}
"""References by name, functions of the scenario, the seeds, the sub-steps and a progress callback."""

KINDS = {"free turning": "upper bound", "clairvoyant": "lower estimate", "within reach": "upper bound"}
"""Kinds of the references: no agent covers more than an upper bound in any episode; a lower estimate of the clairvoyant
optimum can be reached, and in rare episodes an agent may cover more."""


def references_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of the references of a scenario, with rails or without."""
    return ("within reach",) if scenario.rails else ("free turning", "clairvoyant")


def _solved(
    solve: Callable[[list[int]], tuple[np.ndarray, np.ndarray]],
    scenario: Scenario,
    seeds: Sequence[int],
    sub_steps: int,
    progress: Progress | None,
    on_rails: bool = False,
) -> Reference:
    """Call `solve` for a few episodes at a time; it returns coverage (E, T) and rotation (E,)."""
    sub_steps, seeds = positive("sub_steps", sub_steps), list(seeds)
    if bool(scenario.rails) != on_rails:
        how = "the sensors move on rails" if scenario.rails else "there are no rails"
        raise ValueError(f"scenario {scenario.name!r}: {how}, so it has no such reference")
    if scenario.walk == "evade" or scenario.zoom:
        what = "walk is 'evade': the targets react" if scenario.walk == "evade" else "zoom is on: the range changes"
        raise ValueError(f"scenario {scenario.name!r}: {what} with the sensors' actions, so it has no references")
    if not seeds:
        raise ValueError("seeds is empty; give one for every episode")
    at_once = _PAIRS_AT_ONCE // (sub_steps * scenario.num_sensors * scenario.num_targets)
    at_once = min(max(at_once, 1), _EPISODES_AT_ONCE)
    parts = []
    for first in range(0, len(seeds), at_once):
        some = seeds[first : first + at_once]
        parts.append(solve(some))
        if progress is not None:
            progress(len(some))
    coverage, rotation = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Reference(coverage.mean(-1), rotation, coverage.mean(0))


def _share(covered: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the coverage (E, T), 1 where no target is present."""
    return np.where(present > 0, covered / np.maximum(present, 1), 1.0)


def _record(scenario: Scenario, seeds: Sequence[int], sub_steps: int) -> _Record:
    """Run the episodes with sensors that never turn; return their record."""
    simulator = Simulator(scenario, len(seeds), seeds)
    state, (n, m) = simulator.state, (scenario.num_sensors, scenario.num_targets)
    shape = len(seeds), sub_steps
    record = _Record(
        np.empty((*shape, n, m)), np.empty(shape), np.empty((*shape, n), bool), state.heading.copy(), state.num_sensors
    )
    state.cos_half_view[:] = -2.0  # below every cosine: all views are all round, so only obstacles and range decide
    for t in range(sub_steps):
        simulator.step(np.zeros((len(seeds), n), np.int64))
        offset = state.target_position[:, None] - state.sensor_position[:, :, None]  # (E, n, m, 2)
        bearing = np.degrees(np.arctan2(offset[..., 1], offset[..., 0]))
        record.bearing[:, t] = np.where(state.visible, bearing, np.nan)
        record.present[:, t] = state.present.sum(-1)
        record.working[:, t] = state.working
    return record


def _views(scenario: Scenario) -> np.ndarray:
    """Return the fields of view (n,), degrees; infinite if all round, since such a view includes the point behind."""
    view = scenario.of_each_sensor("field_of_view")
    return np.where(view < 360, view, np.inf)


def _foreseen_turns(
    scenario: Scenario, seeds: Sequence[int], record: _Record, restarts: int, seed: int, turn_cost: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best turns found (E, T, n) and their values (E,); see :func:`clairvoyant_estimate`."""
    episodes, sub_steps, n, m = record.bearing.shape
    half_view, turn, limits = _views(scenario) / 2, scenario.of_each_sensor("turn_angle"), limits_of(scenario)
    count = np.array([_different_headings(one, sub_steps) for one in turn])
    sees = np.empty((n, sub_steps, count.max(), -(-m // 64)), np.uint64)
    turns, value = np.empty((episodes, sub_steps, n), np.int64), np.empty(episodes)
    threads = Threads(restarts, cores(), block=1)
    for e in range(episodes):
        see_from_everywhere(record.bearing[e], record.heading[e], turn, count, half_view, sees)
        worth = (record.present[e] > 0) / np.maximum(record.present[e], 1)
        # The starts of an episode do not depend on the episodes solved with it.
        generator = np.random.default_rng([seed, seeds[e]])
        order = generator.permuted(np.tile(np.arange(n), (restarts, 1)), axis=-1)
        tried = generator.integers(0, 3, (restarts, n, -(-sub_steps // _PACE)))
        tried = tried.repeat(_PACE, -1)[..., :sub_steps].copy()  # (R, n, T)
        most = np.minimum(turns_to_limits(record.heading[e], limits, turn), sub_steps).astype(np.int64)
        ends = np.where(np.isfinite(limits), most * (-1, 1) % count[:, None], -1)  # to the right, to the left
        values, cost = np.empty(restarts), turn_cost / record.num_sensors[e] + _TIE
        threads.run(ascend, sees, record.working[e], worth, cost, count, ends, order, tried, values)
        turns[e], value[e] = tried[values.argmax()].T, values.max()
    return turns, value


def _different_headings(turn: float, sub_steps: int) -> int:
    """Return the number of different headings of a sensor, at most those within reach on both sides."""
    turned = np.arange(1, 2 * sub_steps + 1) * turn
    back = np.flatnonzero(np.abs((turned + 180) % 360 - 180) < 1e-9)
    return int(back[0]) + 1 if len(back) else 2 * sub_steps + 1


def _replay(scenario: Scenario, seeds: Sequence[int], turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coverage (E, T) and rotation (E,) of episodes in which the sensors make the turns (E, T, n)."""
    simulator = Simulator(scenario, len(seeds), seeds)
    coverage, rotation = np.empty(turns.shape[:2]), np.empty(turns.shape[:2])
    for t in range(turns.shape[1]):
        simulator.step(turns[:, t])
        coverage[:, t], rotation[:, t] = simulator.coverage, simulator.rotation
    return coverage, rotation.mean(-1)


def _most_covered(bearing: np.ndarray, view: np.ndarray) -> int:
    """Return the largest number of targets at `bearing` (n, m) that sensors with views (n,) cover at once; any m."""
    options = []
    for towards, opening in zip(bearing, view, strict=True):
        # A view that contains a set still does if it begins (almost) at the set's first target, counter-clockwise.
        sets = (towards - towards[:, None]) % 360 < opening  # (m, m); NaN is nowhere
        sets = sets[np.argsort(-sets.sum(-1), kind="stable")]
        sets = sets[undominated(sets)]
        options.append((sets, np.zeros(len(sets), np.int64)))
    return int(np.any([sets[k] for (sets, _), k in zip(options, choose(options), strict=True)], axis=0).sum())
