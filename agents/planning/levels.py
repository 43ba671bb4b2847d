"""Rule-based levels of the hierarchy: coordinators, and executors of single sensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hitmac.agents.planning.planner import FastBeliefPlannerAgent, PlannerAgent, PlanningPolicy
from hitmac.agents.planning.rules import RandomAgent, RulePolicy, StillAgent, towards
from hitmac.agents.policy import Observation, Starts, State
from hitmac.agents.tracking.beliefs import shown_to_beliefs
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.tasks.base import SUB_STEPS_PER_DECISION


class AssignAll(RulePolicy):
    """Coordinator that assigns every target to every sensor."""

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m), all 1."""
        return np.ones((len(mask), mask[0].size), np.int8)


class AssignInRange(RulePolicy):
    """Coordinator that assigns to every sensor the targets within its range."""

    features: tuple[str, ...] = ("in_range",)

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

    features: tuple[str, ...] = ("bearing_sin", "bearing_cos", "distance", "turn")
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
    """Return the scenario as the levels of the hierarchy know it: no sensor moves, and targets not shown are absent.

    A game is without its discs.
    """
    scenario = load_scenario(scenario)
    still = {"rails": (), "rail_starts": (), "placement": "random", "spacing": 0.0} if scenario.rails else {}
    return scenario.replace(knowledge="full", **still, **({"random_discs": 0} if scenario.is_game else {}))


class AssignPlanned(RulePolicy):
    """Coordinator that assigns to every sensor the targets that only this sensor covers according to the planner.

    Target j is assigned to sensor i if in more than 0.3 of its sampled futures, within the next 30 sub-steps (three
    decisions of HiT-MAC), only the plan of sensor i covers it. Targets that several sensors cover without a turn are
    assigned to none.

    In a game it plans from beliefs about all targets, with a memory, for the next sub-step only: it must be called at
    every sub-step. There the share is 0.1.

    Args:
        scenario: the scenario to play.
        planner: the planner; None: one with the options :attr:`planning`, in a game ``belief-planner-fast``.

    Attributes:
        decision: sub-steps for which an assignment holds.
    """

    needs_scenario: ClassVar[bool] = True
    planning: ClassVar[dict[str, Any]] = {"turn_cost": 0.1, "restarts": 4}  # depends less on the starts of the ascents
    idle: ClassVar[str] = "hold"  # the planner leaves sensors without assigned targets where they are

    def __init__(self, scenario: Scenario | str | Path, *, planner: PlannerAgent | None = None) -> None:
        super().__init__()
        scenario = load_scenario(scenario)
        self._discs = shown_to_beliefs(scenario)
        if planner is None and scenario.is_game:
            planner = FastBeliefPlannerAgent(scenario)
        self.planner = planner or PlannerAgent(in_place(scenario), **self.planning)
        self.features = self.planner.features
        self.decision = 1 if scenario.is_game else SUB_STEPS_PER_DECISION

    def shown(self, nearness: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the observation options, in a game with its discs."""
        return {**super().shown(nearness), **self._discs}

    def decide(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, State]:
        """Return the assignment (B, n * m), and the state, None without a memory."""
        if self.decision > 1:
            return super().decide(observation, state, episode_start)
        pairs, mask = self.checked(observation["pairs"], observation["mask"])
        lists = self.planner.lists_of(observation)
        _, assigned, new = plan_and_assign(self.planner, pairs, mask, state, episode_start, **lists)
        return assigned.reshape(len(mask), -1).astype(np.int8), new

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the assignment (B, n * m)."""
        shares = self.planner.shares(pairs, mask, window=30)
        return ((shares > 0.3) & mask).reshape(len(mask), -1).astype(np.int8)


def plan_and_assign(
    planner: PlannerAgent, pairs: np.ndarray, mask: np.ndarray, state: State, episode_start: Starts, **lists: Any
) -> tuple[np.ndarray, np.ndarray, State]:
    """Return the values of :meth:`PlannerAgent.plan` in a game, the assignment (B, n, m) bool by it, and the state."""
    shares = np.zeros(mask.shape, np.float32)
    values, new = planner.plan(pairs, mask, state, episode_start, own=(min(30, planner.horizon), shares), **lists)
    return values, shares > 0.1, new  # also of targets that were never seen


class PlannerExecutor(PlanningPolicy):
    """Executor that plans for each sensor alone to cover its goals; `planner` None: a :class:`PlannerAgent`.

    Row r is of sensor r modulo n. In a game it also zooms.
    """

    needs_scenario: ClassVar[bool] = True
    per_sensor: ClassVar[bool] = True

    def __init__(self, scenario: Scenario | str | Path, *, planner: PlannerAgent | None = None) -> None:
        super().__init__(None)
        self.planner = planner or PlannerAgent(in_place(scenario).replace(seen_by=1))
        self.features = self.planner.features
        if self.planner.scenario.is_game:
            self.decides = self.planner.decides

    def plan(
        self, pairs: np.ndarray, mask: np.ndarray, state: State = None, episode_start: Starts = None
    ) -> tuple[np.ndarray, State]:
        """Return the values (R, 3) of the turns of rows (R, m, d), or in a game (R, 2, 3) with zooms, and the state."""
        pairs, mask = self.checked(pairs, mask)
        (rows, n), (m, d) = (np.arange(len(mask)), self.planner.scenario.num_sensors), pairs.shape[1:]
        alone, known = np.zeros((len(mask), n, m, d), pairs.dtype), np.zeros((len(mask), n, m), np.bool_)
        alone[rows, rows % n], known[rows, rows % n] = pairs, mask  # the other sensors do not work
        values, new = self.planner.plan(alone, known, state, episode_start)
        of_rows = values.reshape(len(rows), len(self.planner.decides), n, 3)[rows, :, rows % n]  # (R, k, 3)
        return of_rows if len(self.decides) > 1 else of_rows[:, 0], new


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
