"""The receding-horizon planner: every sensor turns to where the joint coverage is foreseen to be best."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numba import prange

from agents.baselines.rule import RulePolicy
from envs.kernels.compiled import inlined, kernel
from envs.kernels.physics import LEFT, RIGHT, STAY
from envs.scenario import Scenario
from envs.simulator import chunk_bounds, positive
from envs.tasks import check_cost

_SIN, _COS, _DISTANCE, _RADIAL, _TANGENTIAL, _VIEW, _RANGE, _TURN = range(8)


class PlannerAgent(RulePolicy):
    """Plans anew at every sub-step, with targets that keep their velocity.

    A plan of a sensor is to turn by k steps, to the left or to the right, and then to hold. It is worth the targets
    that it covers and no other sensor's plan does, summed over the sub-steps of the horizon, less a cost for turning.
    Sensor by sensor takes its best plan, given those of the others, for some rounds; then each makes the first step of
    its plan. It does not see past its horizon: obstacles, lenses that could zoom, and what is too far to turn to are
    not foreseen. It needs no more than the observation, so that it plays any scenario.

    Args:
        scenario: what it plays.
        seed: of nothing; for the agents' common interface.
        horizon: sub-steps that it looks ahead; 1 or more.
        stride: it looks at every so manieth of them; 1 or more.
        rounds: how often each sensor reconsiders; 1 or more.
        turn_cost: what a sub-step of turning costs, in targets covered for a sub-step; 0 or more.
        discount: how much less every further sub-step counts, since what is foreseen is less certain; over 0, to 1.

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
        # How far a target of relative speed 1 moves in a sub-step, in the units in which distances are shown.
        moves = 1 + (1 / scenario.extra_move_every if scenario.extra_move_every else 0)
        self._step = scenario.top_speed * scenario.time_step * moves / scenario.distance_scale

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The first turn of every sensor's plan."""
        actions = np.zeros(pairs.shape[:2], np.int64)
        options = (self._step, self.horizon, self.stride, self.rounds, self.turn_cost, self.discount, actions)
        bounds = chunk_bounds(len(pairs), None)
        if len(bounds) == 2:
            _plan(pairs, mask, *options, 0, len(pairs))
        else:
            _plan_threads(pairs, mask, *options, bounds)
        return actions


@inlined
def _foresee(pairs, mask, b, i, j, moved):
    """The bearing of target j from sensor i, degrees, when it has moved on; NaN where it is out of range or not there.

    `moved` is how far a target of relative speed 1 has moved.
    """
    seen = pairs[b, i, j]
    ahead = seen[_COS] * seen[_DISTANCE] + (seen[_COS] * seen[_RADIAL] - seen[_SIN] * seen[_TANGENTIAL]) * moved
    aside = seen[_SIN] * seen[_DISTANCE] + (seen[_SIN] * seen[_RADIAL] + seen[_COS] * seen[_TANGENTIAL]) * moved
    there = mask[b, i, j] != 0 and ahead * ahead + aside * aside <= seen[_RANGE] * seen[_RANGE]
    return math.degrees(math.atan2(aside, ahead)) if there else math.nan


@inlined
def _count(bearing, covering, plan, half_view, turn, stride, change):
    """Add `change` to the number of plans that cover a target at a time, where this plan does."""
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
    """The plan that covers most of what the others leave, less the cost of turning; of equals the shortest."""
    farthest = min((worth.shape[0] - 2) // 2, math.ceil(180.0 / turn)) if turn > 0.0 else 0
    worth[:] = 0.0
    for t in range(bearing.shape[0]):
        most = min((t + 1) * stride, farthest)
        value = stride * discount ** (t * stride)
        for j in range(bearing.shape[1]):
            if covering[t, j] > 0 or math.isnan(bearing[t, j]):
                continue
            for whole_turn in range(-1, 2):
                # After these numbers of steps, in [-most, most], the target is in view ...
                middle = bearing[t, j] + 360.0 * whole_turn
                first = max(math.floor((middle - half_view) / turn) + 1, -most)
                last = min(math.ceil((middle + half_view) / turn) - 1, most)
                if first <= last:
                    # ... and so it is for all plans that have made so many by then; `worth` holds the differences.
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


@kernel(nogil=True)
def _plan(pairs, mask, step, horizon, stride, rounds, turn_cost, discount, actions, low, high):
    """Write the first turns of the plans of the scenes from `low` to `high` - 1."""
    n, m = pairs.shape[1], pairs.shape[2]
    times = (horizon + stride - 1) // stride
    bearing = np.empty((n, times, m))
    covering = np.empty((times, m), np.int64)  # how many plans cover a target at a time
    plan = np.empty(n, np.int64)
    half_view = np.empty(n)
    turn = np.empty(n)
    worth = np.empty(2 * horizon + 2)
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
                plan[i] = _best_plan(bearing[i], covering, worth, half_view[i], turn[i], stride, turn_cost, discount)
                _count(bearing[i], covering, plan[i], half_view[i], turn[i], stride, 1)
        for i in range(n):
            actions[b, i] = LEFT if plan[i] > 0 else (RIGHT if plan[i] < 0 else STAY)


@kernel(parallel=True)
def _plan_threads(pairs, mask, step, horizon, stride, rounds, turn_cost, discount, actions, bounds):
    """`_plan` on several threads."""
    for c in prange(bounds.shape[0] - 1):
        _plan(pairs, mask, step, horizon, stride, rounds, turn_cost, discount, actions, bounds[c], bounds[c + 1])
