"""Base classes of the agents that plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hitmac.agents.baselines.forecast import Motion
from hitmac.agents.baselines.rule import RulePolicy
from hitmac.agents.baselines.search import Search
from hitmac.envs.kernels.mounts import limits_of
from hitmac.envs.kernels.rails import make_rails
from hitmac.envs.ranges import whole_number
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import check_cost

LONGEST_HORIZON = 10_000
"""Most sub-steps to look ahead."""

MOST_REVISIONS = 1_000
"""Most starts and rounds of an ascent."""


class PlanningPolicy(RulePolicy):
    """Base class of policies that value the turns, with a memory that is their state."""

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return the values (B, k n, 3) of the actions 0, 1 and 2 of each decision, and the state for the next call.

        The k :attr:`decides` of the sensors follow each other: first the values of all turns.
        """
        raise NotImplementedError

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies: take the actions of the highest value."""
        lists = self.lists_of(observation)
        values, new = self.plan(observation["pairs"], observation["mask"], state, episode_start, **lists)
        return self.completed(values.argmax(-1)), new


class HeadingPlanner(PlanningPolicy):
    """Base class of planners of sequences of headings: their options and their search.

    Args:
        scenario: the scenario to play.
        seed: seed of the sampled futures.
        horizon: sub-steps to look ahead; 1 to 10,000.
        samples: futures of each target; 1 to 64.
        restarts: starts of the ascent in addition to the first; 0 to 1,000.
        rounds: number of times that each sensor may revise its plan in an ascent; 1 to 1,000.
        turn_cost: cost of a sub-step of turning, in targets covered for a sub-step; 0 or more.
        discount: weight of a sub-step relative to the one before; over 0, to 1.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        horizon: int,
        samples: int,
        restarts: int,
        rounds: int,
        turn_cost: float,
        discount: float,
    ) -> None:
        super().__init__(scenario, seed)
        self.horizon = whole_number("horizon", horizon, 1, LONGEST_HORIZON)
        self.samples = whole_number("samples", samples, 1, 64)  # of which a machine word holds a bit each
        self.restarts = whole_number("restarts", restarts, 0, MOST_REVISIONS)
        self.rounds = whole_number("rounds", rounds, 1, MOST_REVISIONS)
        if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0 < discount <= 1:
            raise ValueError(f"discount is {discount!r}; it must be a number over 0, to 1")
        self.turn_cost, self.discount = check_cost(turn_cost), float(discount)
        self._motion, self._limits = _motion_of(self.scenario), _pan_limits_of(self.scenario)
        self._size = self.scenario.num_sensors, self.scenario.num_targets
        circle = 180.0 if self._limits is None else 360.0  # degrees; within limits the long way may be the only one
        farthest = min(self.horizon, math.ceil(circle / self.scenario.of_each_sensor("turn_angle").min()))
        self._search = Search(farthest, self.restarts, self.rounds, self.turn_cost, np.arange(self.horizon + 1))
        ages = np.arange(-1, self.horizon).clip(0)
        self._weight = (self.discount**ages / self.samples).astype(np.float32)  # (H + 1,), the first is not used

    @property
    def decides(self) -> tuple[str, ...]:
        """See :attr:`~hitmac.agents.baselines.rule.RulePolicy.decides`."""
        return ("turn",) if self._motion is None else ("turn", "move")

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the first turn (B, n) of every sensor's plan, and on rails its move (B, 2 n), without a memory."""
        return self.values(pairs, mask).argmax(-1)

    def values(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the values (B, n, 3) of staying, turning left and turning right, planned without a memory.

        The value of a turn is that of the sensor's best plan that begins with it: the discounted coverage that the
        others' plans do not give, less the cost of turning. The others' plans are those of the sensor's last revision.
        On rails the values are (B, 2 n, 3), followed by those of staying in place and of moving forward and back.
        """
        return self.plan(pairs, mask)[0]


def _pan_limits_of(scenario: Scenario) -> np.ndarray | None:
    """Return the lowest and the highest heading (n, 2) of the sensors, degrees; None if there are no limits."""
    limits = limits_of(scenario)
    return limits if np.isfinite(limits).any() else None


def _motion_of(scenario: Scenario) -> Motion | None:
    """Return the motion of the sensors on rails; None without rails."""
    if not scenario.rails:
        return None
    return Motion(make_rails(scenario.rails), scenario.rail_step / scenario.distance_scale, scenario.rail_step)
