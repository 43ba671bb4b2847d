"""Exact joint assignment of headings by integer programming, without foresight."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hitmac.agents.planning.rules import RulePolicy, nearest_headings, towards
from hitmac.envs.features import wrapped


class ExactAgent(RulePolicy):
    """Agent that assigns headings to all sensors jointly, so that as many targets as possible, by value, are covered.

    At every sub-step it selects for every sensor i one heading h, a whole number of the sensor's turns away, at most
    10,000::

        maximise    sum_j y_j - w * sum_ih turns_h x_ih
        subject to  sum_h x_ih = 1,   y_j <= sum of x_ih over the headings from which i sees j,   x in {0, 1}

    with w so small that all turns together count less than one target. With values and `seen_by` of the scenario, y_j
    counts v_j times, and is 0 unless that many sensors see j. The plan assumes that targets stand still, and ignores
    obstacles and pan limits. The sensors turn towards their headings. The agent uses only the observation, so it plays
    any scenario; it never zooms or tilts. HiGHS solves the program (Huangfu and Hall, Mathematical Programming
    Computation 2018).
    """

    features: tuple[str, ...] = ("bearing", "between_edges", "field_of_view", "turn")
    by_value: ClassVar[bool] = True

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the turn (B, n) towards each sensor's heading."""
        return towards(self.plan(pairs, mask))

    def plan(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the planned number of turns (B, n), counter-clockwise; negative: clockwise."""
        bearing, between, view, turn, *values = np.moveaxis(pairs.astype(np.float64), -1, 0)
        in_range = (between > 0) & mask.astype(bool)  # (B, n, m)
        view, step = view.max(-1), 180 * turn.max(-1)  # (B, n): the features of a masked pair are 0
        half_view = np.where(view < 1, 180 * view, np.inf)
        plans = np.zeros(view.shape, np.int64)
        for b in range(len(pairs)):
            headings, options = [], []
            for i in range(pairs.shape[1]):
                turns = nearest_headings(step[b, i])
                off = wrapped(180 * bearing[b, i] - step[b, i] * turns[:, None])  # (headings, m)
                sees = (np.abs(off) < half_view[b, i]) & in_range[b, i]
                kept = undominated(sees)
                headings.append(turns[kept])
                options.append((sees[kept], np.abs(turns[kept])))
            worth = values[0][b].max(0) if values else np.ones(pairs.shape[2])
            chosen = choose(options, worth, self.scenario.seen_by)
            plans[b] = [turns[k] for turns, k in zip(headings, chosen, strict=True)]
        return plans


def undominated(sees: np.ndarray) -> np.ndarray:
    """Return the ascending indices of the rows of `sees` (h, m) that are subsets of no earlier row."""
    _, first = np.unique(sees, axis=0, return_index=True)
    first.sort()
    sets = sees[first]
    within = ~(sets[:, None] & ~sets).any(-1)  # (h, h): the row's set lies within the column's
    return first[~np.tril(within, -1).any(-1)]


def choose(options: Sequence[tuple[np.ndarray, np.ndarray]], value: np.ndarray, seen_by: int) -> list[int]:
    """Choose one option per sensor so that their targets are most; ties go to the lowest cost.

    The `options` of a sensor are sets (h, m) bool and their costs (h,), int, in ascending order. A target that is in at
    least `seen_by` chosen sets counts with its `value` (m,).
    """
    if all(len(cost) == 1 for _, cost in options):  # usually because no target is in reach
        return [0] * len(options)
    from scipy.optimize import Bounds, LinearConstraint, milp

    sets = np.concatenate([sets for sets, _ in options])  # (x, m)
    value = value / value.min(initial=np.inf, where=value > 0)
    sets, value = sets[:, sets.any(0)], value[sets.any(0)]
    cost = np.concatenate([cost for _, cost in options])
    sensor = np.repeat(np.arange(len(options)), [len(cost) for _, cost in options])
    x, m = sets.shape
    # With equal values, integers, and a target worth more than all costs: the solver's tolerance does not matter.
    worth = 1 + sum(int(cost.max()) for _, cost in options)
    one_each = np.pad(sensor == np.arange(len(options))[:, None], ((0, 0), (0, m)))
    covered = np.concatenate((-1.0 * sets.T, seen_by * np.eye(m)), -1)
    solution = milp(
        np.concatenate((cost, -worth * value)),
        integrality=np.arange(x + m) < (x if seen_by == 1 else x + m),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(covered, -np.inf, 0)],
        options={"mip_rel_gap": 0},
    )
    if solution.x is None:
        raise RuntimeError(f"the integer program was not solved: {solution.message}")
    return [int(solution.x[:x][sensor == i].argmax()) for i in range(len(options))]
