"""Receding-horizon planner: every sensor turns towards the best predicted joint coverage."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from hitmac.agents.baselines.rule import RulePolicy
from hitmac.envs.kernels.compiled import inlined, kernel
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY
from hitmac.envs.kernels.threads import Threads, blocks, default_threads
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import check_cost

_SIN, _COS, _DISTANCE, _RADIAL, _TANGENTIAL, _VIEW, _RANGE, _TURN = range(8)


class PlannerAgent(RulePolicy):
    """Agent that replans at every sub-step, under the assumption that targets keep their velocity.

    A plan of a sensor is to turn by k steps, left or right, and then to hold. Its value is the number of targets that
    it covers and no other sensor's plan covers, summed over the sub-steps of the horizon, less a cost of turning. For
    some rounds, each sensor in order takes its best plan given those of the others. Then each sensor makes the first
    step of its plan. The planner does not take into account obstacles, zooming, or anything beyond its horizon,
    including headings too far to reach. It uses only the observation, so it plays any scenario.

    Args:
        scenario: the scenario to play.
        seed: unused; part of the agents' common interface.
        horizon: sub-steps to look ahead; 1 or more; default 30.
        stride: evaluate every `stride`-th sub-step of the horizon; 1 or more; default 1.
        rounds: number of times that each sensor revises its plan; 1 or more; default 3.
        turn_cost: cost of a sub-step of turning, in targets covered for a sub-step; 0 or more; default 0.05.
        discount: weight of a sub-step relative to the one before, since later predictions are less certain; over 0, to
            1; default 0.94.

    Raises:
        ValueError: an option out of its range.
    """

    features: ClassVar[tuple[str, ...]] = (
        "bearing_sin",
        "bearing_cos",
        "distance",
        "radial_velocity",
        "tangential_velocity",
        "field_of_view",
        "sensing_range",
        "turn",
    )

    def __init__(
        self,
        scenario: Scenario,
        seed: int = 0,
        *,
        horizon: int = 30,
        stride: int = 1,
        rounds: int = 3,
        turn_cost: float = 0.05,
        discount: float = 0.94,
    ) -> None:
        super().__init__(scenario, seed)
        self.horizon, self.stride = positive("horizon", horizon), positive("stride", stride)
        self.rounds = positive("rounds", rounds)
        if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0 < discount <= 1:
            raise ValueError(f"discount is {discount!r}; it must be a number over 0, to 1")
        self.turn_cost, self.discount = check_cost(turn_cost), float(discount)
        # Distance that a target of relative speed 1 moves in a sub-step, in units of the feature `distance`.
        moves = 1 + (1 / scenario.extra_move_every if scenario.extra_move_every else 0)
        self._step = scenario.top_speed * scenario.time_step * moves / scenario.distance_scale

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the first turn (B, n) of every sensor's plan."""
        actions = np.zeros(pairs.shape[:2], np.int64)
        options = (self._step, self.horizon, self.stride, self.rounds, self.turn_cost, self.discount, actions)
        Threads(len(pairs), default_threads(len(pairs)), block=8).run(_plan, pairs, mask, *options)
        return actions


@inlined
def _foresee(pairs, mask, b, i, j, moved):
    """Predict the bearing of target j from sensor i, degrees; NaN if the target is out of range or masked.

    `moved` is the distance that a target of relative speed 1 has moved.
    """
    seen = pairs[b, i, j]
    ahead = seen[_COS] * seen[_DISTANCE] + (seen[_COS] * seen[_RADIAL] - seen[_SIN] * seen[_TANGENTIAL]) * moved
    aside = seen[_SIN] * seen[_DISTANCE] + (seen[_SIN] * seen[_RADIAL] + seen[_COS] * seen[_TANGENTIAL]) * moved
    there = mask[b, i, j] != 0 and ahead * ahead + aside * aside <= seen[_RANGE] * seen[_RANGE]
    return math.degrees(math.atan2(aside, ahead)) if there else math.nan


@inlined
def _count(bearing, covering, plan, half_view, turn, stride, change):
    """Add `change` to the number of plans that cover a target at a time, wherever this plan covers it."""
    for t in range(bearing.shape[0]):
        steps = min((t + 1) * stride, abs(plan))
        turned = steps * turn if plan > 0 else -steps * turn
        for j in range(bearing.shape[1]):
            off = bearing[t, j] - turned  # NaN is never in view
            off -= 360.0 * math.floor((off + 180.0) / 360.0)
            if abs(off) < half_view:
                covering[t, j] += change


@inlined
def _best_plan(bearing, covering, worth, half_view, turn, stride, turn_cost, discount):
    """Return the plan with the highest value, given the targets that other plans cover; ties go to the shortest."""
    farthest = min((worth.shape[0] - 2) // 2, math.ceil(180.0 / turn)) if turn > 0.0 else 0
    worth[:] = 0.0
    for t in range(bearing.shape[0]):
        most = min((t + 1) * stride, farthest)
        value = stride * discount ** (t * stride)
        for j in range(bearing.shape[1]):
            if covering[t, j] > 0 or math.isnan(bearing[t, j]):
                continue
            for whole_turn in range(-1, 2):
                # The target is in view after `first` to `last` steps, within [-most, most], ...
                middle = bearing[t, j] + 360.0 * whole_turn
                first = max(math.floor((middle - half_view) / turn) + 1, -most)
                last = min(math.ceil((middle + half_view) / turn) - 1, most)
                if first <= last:
                    # ... and for all plans that have made that many steps by then; `worth` holds the differences.
                    first = -farthest if first == -most else first
                    last = farthest if last == most else last
                    worth[farthest + first] += value
                    worth[farthest + last + 1] -= value
    for k in range(2 * farthest):
        worth[k + 1] += worth[k]
    best = 0
    highest = worth[farthest]
    for steps in range(1, farthest + 1):
        for plan in (steps, -steps):
            value = worth[farthest + plan] - turn_cost * steps
            if value > highest:
                best = plan
                highest = value
    return best


@kernel
def _plan(pairs, mask, step, horizon, stride, rounds, turn_cost, discount, actions, share):
    """Write the first turns of the plans."""
    n, m = pairs.shape[1], pairs.shape[2]
    times = (horizon + stride - 1) // stride
    bearing = np.empty((n, times, m))
    covering = np.empty((times, m), np.int64)  # number of plans that cover a target at a time
    plan = np.empty(n, np.int64)
    half_view = np.empty(n)
    turn = np.empty(n)
    worth = np.empty(2 * horizon + 2)
    for low, high in blocks(pairs.shape[0], share):
        for b in range(low, high):
            covering[:] = 0
            for i in range(n):
                plan[i] = 0
                half_view[i] = pairs[b, i, :, _VIEW].max() * 180.0
                turn[i] = pairs[b, i, :, _TURN].max() * 180.0
                for t in range(times):
                    for j in range(m):
                        bearing[i, t, j] = _foresee(pairs, mask, b, i, j, step * (t + 1) * stride)
                _count(bearing[i], covering, plan[i], half_view[i], turn[i], stride, 1)
            for _ in range(rounds):
                for i in range(n):
                    _count(bearing[i], covering, plan[i], half_view[i], turn[i], stride, -1)
                    plan[i] = _best_plan(
                        bearing[i], covering, worth, half_view[i], turn[i], stride, turn_cost, discount
                    )
                    _count(bearing[i], covering, plan[i], half_view[i], turn[i], stride, 1)
            for i in range(n):
                actions[b, i] = LEFT if plan[i] > 0 else (RIGHT if plan[i] < 0 else STAY)
