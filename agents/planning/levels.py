"""Rule-based levels of the hierarchy: coordinators, and executors of single sensors."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hitmac.agents.planning.planner import PlannerAgent, PlanningPolicy
from hitmac.agents.planning.rules import RandomAgent, RulePolicy, StillAgent, towards
from hitmac.agents.policy import Starts, State
from hitmac.envs.scenario import Scenario, load_scenario


class AssignAll(RulePolicy):
    """Coordinator that assigns every target to every sensor."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m), all 1."""
        return np.ones((len(mask), mask[0].size), np.int8)


class AssignInRange(RulePolicy):
    """Coordinator that assigns to every sensor the targets within its range."""

    features: ClassVar[tuple[str, ...]] = ("in_range",)

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m), 1 where the target is in range."""
        return ((pairs[..., 0] != 0) & mask).reshape(len(mask), -1).astype(np.int8)


class AssignRandomly(RandomAgent):
    """Coordinator that assigns each target to each sensor with probability 1/2."""

    per_sensor: ClassVar[bool] = False
    nearest: ClassVar[int | None] = None
    high: ClassVar[int] = 2

    def decisions(self, mask: np.ndarray) -> int:
        """Return n * m, the number of pairs of a scene."""
        return mask[0].size


class ScriptedExecutor(RulePolicy):
    """Scripted executor of ``dsn/Coordinator-v0``: ``turn * clip(floor(bearing / turn), -1, 1)``.

    The bearing is that of the mean position of the assigned targets.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing_sin", "bearing_cos", "distance", "turn")
    per_sensor: ClassVar[bool] = True

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the turns (R,) of rows (R, m, d) with the mask (R, m); stay where no target is assigned."""
        sin, cos, distance, turn = np.moveaxis(pairs.astype(np.float64), -1, 0)
        aside = (sin * distance * mask).sum(-1)
        ahead = (cos * distance * mask).sum(-1)
        step = np.where(mask, turn, 0.0).max(-1) * 180.0  # the features of masked rows are 0
        bearing = np.degrees(np.arctan2(aside, ahead))
        turns = np.floor(bearing / np.where(step > 0, step, np.inf))
        return towards(np.where(mask.any(-1), turns, 0.0))


def in_place(scenario: Scenario | str | Path) -> Scenario:
    """Return the scenario as the levels of the hierarchy know it: no sensor moves, and targets not shown are absent."""
    scenario = load_scenario(scenario)
    still = {"rails": (), "rail_starts": (), "placement": "random", "spacing": 0.0} if scenario.rails else {}
    return scenario.replace(knowledge="full", **still)


class AssignPlanned(RulePolicy):
    """Coordinator that assigns to every sensor the targets that only this sensor covers according to the planner.

    Target j is assigned to sensor i if in more than 0.3 of its sampled futures, within the next 30 sub-steps (three
    decisions of HiT-MAC), only the plan of sensor i covers it. Targets that several sensors cover without a turn are
    assigned to none.

    Args:
        scenario: the scenario to play.
        seed: seed of the sampled futures.
        planner: the planner; None: one with the options :attr:`planning`.
    """

    features: ClassVar[tuple[str, ...]] = PlannerAgent.features
    needs_scenario: ClassVar[bool] = True
    planning: ClassVar[dict[str, Any]] = {"turn_cost": 0.1, "restarts": 4}  # depends less on the starts of the ascents
    idle: ClassVar[str] = "hold"  # the planner leaves sensors without assigned targets where they are

    def __init__(self, scenario: Scenario | str | Path, seed: int = 0, *, planner: PlannerAgent | None = None) -> None:
        super().__init__(seed=seed)
        self.planner = planner or PlannerAgent(in_place(scenario), seed, **self.planning)
        self.features = self.planner.features  # type: ignore[misc]

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m)."""
        shares = self.planner.shares(pairs, mask, window=30)
        return ((shares > 0.3) & mask).reshape(len(mask), -1).astype(np.int8)


class PlannerExecutor(PlanningPolicy):
    """Executor that plans for each sensor alone to cover its goals; `planner` None: a :class:`PlannerAgent`.

    Row r is of sensor r modulo n.
    """

    features: ClassVar[tuple[str, ...]] = PlannerAgent.features
    needs_scenario: ClassVar[bool] = True
    per_sensor: ClassVar[bool] = True

    def __init__(self, scenario: Scenario | str | Path, seed: int = 0, *, planner: PlannerAgent | None = None) -> None:
        super().__init__(None, seed)
        self.planner = planner or PlannerAgent(in_place(scenario).replace(seen_by=1), seed)
        self.features = self.planner.features  # type: ignore[misc]

    def plan(
        self, pairs: np.ndarray, mask: np.ndarray, state: State = None, episode_start: Starts = None
    ) -> tuple[np.ndarray, State]:
        """Return the values (R, 3) of the turns of rows (R, m, d), and the state."""
        pairs, mask = self.checked(pairs, mask)
        (rows, n), (m, d) = (np.arange(len(mask)), self.planner.scenario.num_sensors), pairs.shape[1:]
        alone, known = np.zeros((len(mask), n, m, d), pairs.dtype), np.zeros((len(mask), n, m), np.bool_)
        alone[rows, rows % n], known[rows, rows % n] = pairs, mask  # the other sensors do not work
        values, new = self.planner.plan(alone, known, state, episode_start)
        return values[rows, rows % n], new


COORDINATORS: dict[str, type[RulePolicy]] = {
    "assign-all": AssignAll,
    "assign-in-range": AssignInRange,
    "assign-randomly": AssignRandomly,
    "assign-planned": AssignPlanned,
}
"""Rule-based coordinators by name."""

EXECUTORS: dict[str, type[RulePolicy]] = {
    "scripted": ScriptedExecutor,
    "random": RandomAgent,
    "still": StillAgent,
    "planner": PlannerExecutor,
}
"""Rule-based executors by name."""


def scripted_level(kind: type[RulePolicy], scenario: Scenario) -> RulePolicy:
    """Return a rule-based level of the hierarchy, for the scenario if it needs one."""
    return kind(scenario) if kind.needs_scenario else kind()
