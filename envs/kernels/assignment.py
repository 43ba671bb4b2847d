"""Assignments of targets to sensors: goals, rewards and scripted turns of HiT-MAC's executor and coordinator.

An assignment is a bool array ``assigned`` (B, n, m). Source: Xu, Zhong, Wang, NeurIPS 2020, sections 3 and 4.
"""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import inlined, kernel
from hitmac.envs.base.formulas import wrapped
from hitmac.envs.base.state import KernelState, X, Y
from hitmac.envs.base.streams import draw_integer, draw_uniform
from hitmac.envs.base.threads import runs
from hitmac.envs.kernels import step
from hitmac.envs.parts.knowledge import place_of
from hitmac.envs.parts.sensors import LEFT, RIGHT, STAY


@inlined
def bearing_to(state, b, i, x, y):
    """Return the bearing of (x, y) from sensor i of scene b, counter-clockwise, degrees in [-180, 180)."""
    dx = x - state.sensor[i, X, b]
    dy = y - state.sensor[i, Y, b]
    return wrapped(math.degrees(math.atan2(dy, dx)) - state.sensor[i, at.HEADING, b])


@inlined
def assign_in_range(state, knowledge, b, share, narrowest, assigned):
    """Assign to every sensor of scene b the targets in range, each with probability `share`; 1 draws no numbers.

    Positions are the last known ones. The range is that of the field of view `narrowest`, degrees; 0: the present one.
    """
    for i in range(assigned.shape[1]):
        reach = state.sensor[i, at.RANGE_SQUARED, b]
        if narrowest > 0.0:
            reach = state.sensor[i, at.VIEW_AREA, b] / narrowest
        for j in range(assigned.shape[2]):
            known, x, y = place_of(state, knowledge, i, j, b)
            dx = x - state.sensor[i, X, b]
            dy = y - state.sensor[i, Y, b]
            in_range = dx * dx + dy * dy <= reach
            taken = share == 1.0 or draw_uniform(state.stream, b) < share
            assigned[b, i, j] = taken and in_range and state.working[i, b] and known


@inlined
def executor_rewards(state, b, rules, assigned, rewards):
    """Write the executor's reward of every sensor of scene b.

    The reward is the mean over the assigned targets that are present, weighted by value, of ``1 - centring *
    abs(bearing) / (field_of_view / 2)`` if the sensor sees the target, else -1; 0 without any, or if the sensor has
    failed; less `turn_cost` if it turned or tilted.
    """
    for i in range(assigned.shape[1]):
        total = 0.0
        whole = 0.0
        for j in range(assigned.shape[2]):
            if assigned[b, i, j] and state.present[j, b]:
                value = state.target[j, at.VALUE, b]
                whole += value
                if state.visible[i, j, b]:
                    x, y = state.target[j, X, b], state.target[j, Y, b]
                    aside = abs(bearing_to(state, b, i, x, y)) / (state.sensor[i, at.FIELD_OF_VIEW, b] / 2.0)
                    total += value * (1.0 - rules.centring * aside)
                else:
                    total -= value
        rewards[b, i] = total / whole if whole > 0.0 and state.working[i, b] else 0.0
        if state.rotated[i, b]:
            rewards[b, i] -= rules.turn_cost


@inlined
def turn_to_mean(state, knowledge, b, assigned, action):
    """Write the scripted executor's actions: turn towards the mean position of the assigned targets, in scene b.

    ``turn * clip(floor(bearing / turn), -1, 1)``: because of the floor, a sensor turns right at any negative bearing,
    and left only at bearings of at least one turn. Positions are the last known ones. A sensor without assigned targets
    keeps its action.
    """
    for i in range(assigned.shape[1]):
        x = 0.0
        y = 0.0
        count = 0
        for j in range(assigned.shape[2]):
            known, at_x, at_y = place_of(state, knowledge, i, j, b)
            if assigned[b, i, j] and known:
                x += at_x
                y += at_y
                count += 1
        if count > 0:
            turns = math.floor(bearing_to(state, b, i, x / count, y / count) / state.sensor[i, at.TURN, b])
            action[b, i] = LEFT if turns > 0 else (RIGHT if turns < 0 else STAY)


@inlined
def _add_marginal_coverage(state, p, b, marginal):
    """Add to `marginal` the share of the coverage of scene b by targets that just enough sensors see, at these."""
    present = 0.0
    for j in range(marginal.shape[2]):
        present += state.target[j, at.VALUE, b] * state.present[j, b]
    for j in range(marginal.shape[2]):
        seeing, value = 0, state.target[j, at.VALUE, b]
        for i in range(marginal.shape[1]):
            seeing += state.visible[i, j, b]
        for i in range(marginal.shape[1] if seeing == p.seen_by and value > 0.0 else 0):
            if state.visible[i, j, b]:
                marginal[b, i, j] += value / present


class ExecutorRules(NamedTuple):
    """Rewards and goals of the executor's task."""

    turn_cost: float
    centring: float
    every: int  # steps between assignments of goals
    share: float  # probability that a target in range becomes a goal


class CoordinatorStep(NamedTuple):
    """Step of the coordinator, one decision: its rules, and its results so far.

    A single tuple, since every further argument costs half a microsecond per call.
    """

    scripted: bool  # the scripted executor turns the sensors, instead of `action`
    turn_at_random: bool  # sensors without assigned targets turn at random instead of staying
    penalty: float  # reward of a sub-step in which no sensor sees a target assigned to it
    assigned: np.ndarray  # (B, n, m) bool
    action: np.ndarray  # (B, n) turns, or (B, 2 n) with zooms, of the next sub-step
    sub_rewards: np.ndarray  # (B, sub-steps)
    marginal: np.ndarray  # (B, n, m) share of the coverage that would be lost without that sensor at that target
    turned: np.ndarray  # (B,) int64


@kernel
def executor_step(rows, rules, action, assigned, rewards, chosen, share):
    """Advance the executor's task by one step in the chosen scenes: sub-step, rewards, new goals when due."""
    state = KernelState(*rows)
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        step.extra_moves(state, p, state.no_game, first, last)
        step.about_to_move(state, first, last)
        step.advance(state, p, action, None, first, last)
        for b in range(first, last):
            executor_rewards(state, b, rules, assigned, rewards)
            if state.scene[at.TIME, b] % rules.every == 0:
                assign_in_range(state, state.knowledge, b, rules.share, 0.0, assigned)


@kernel
def executor_results(rows, rules, assigned, rewards, chosen, share):
    """Write the executor's rewards of the chosen scenes after a sub-step of a game, and new goals when due.

    Goals may be as far away as the narrowest view reaches.
    """
    state = KernelState(*rows)
    for first, last in runs(chosen, share):
        for b in range(first, last):
            executor_rewards(state, b, rules, assigned, rewards)
            if state.scene[at.TIME, b] % rules.every == 0:
                narrowest = state.parameters[0].narrowest
                assign_in_range(state, state.knowledge, b, rules.share, narrowest, assigned)


@kernel
def extra_moves(rows, chosen, share):
    """Make the extra move of the targets before a sub-step, in the chosen scenes in which it is due."""
    state = KernelState(*rows)
    for first, last in runs(chosen, share):
        step.extra_moves(state, state.parameters[0], state.no_game, first, last)


@inlined
def _turn_and_idle(state, knowledge, b, decision):
    """Write the scripted executor's turns in scene b, and those of sensors without a known assigned target."""
    assigned, action = decision.assigned, decision.action
    if decision.scripted:
        turn_to_mean(state, knowledge, b, assigned, action)
    for i in range(assigned.shape[1]):
        idle = True
        for j in range(assigned.shape[2]):
            idle = idle and not (assigned[b, i, j] and place_of(state, knowledge, i, j, b)[0])
        if idle:
            action[b, i] = int(draw_integer(state.stream, b, 0, 2)) if decision.turn_at_random else STAY


@inlined
def _count_sub_step(state, p, b, k, decision):
    """Write the reward of sub-step k in scene b, and add the marginal coverage and the sensors that turned."""
    assigned, seen = decision.assigned, False
    for i in range(assigned.shape[1]):
        for j in range(assigned.shape[2]):
            seen = seen or (assigned[b, i, j] and state.visible[i, j, b])
    decision.sub_rewards[b, k] = state.coverage[b] if seen else decision.penalty
    _add_marginal_coverage(state, p, b, decision.marginal)
    decision.turned[b] += state.scene[at.TURNED, b]


@kernel
def turn_and_idle(rows, decision, chosen, share):
    """Write the actions of the chosen scenes that an executor does not decide; see :func:`decision_sub_steps`."""
    state = KernelState(*rows)
    for first, last in runs(chosen, share):
        for b in range(first, last):
            _turn_and_idle(state, state.knowledge, b, decision)


@kernel
def count_sub_step(rows, k, decision, chosen, share):
    """Write the results of sub-step k of a decision in the chosen scenes."""
    state = KernelState(*rows)
    for first, last in runs(chosen, share):
        for b in range(first, last):
            _count_sub_step(state, state.parameters[0], b, k, decision)


@kernel
def decision_sub_steps(rows, begin, end, decision, chosen, share):
    """Run the sub-steps `begin` to `end` - 1 of a decision in the chosen scenes.

    With the scripted executor, an extra move that is due comes first; a given action was decided after that move.
    A sensor without a known assigned target stays or turns at random.
    """
    state = KernelState(*rows)
    p = state.parameters[0]
    for first, last in runs(chosen, share):
        for k in range(begin, end):
            if decision.scripted:
                step.extra_moves(state, p, state.no_game, first, last)
            step.about_to_move(state, first, last)
            for b in range(first, last):
                _turn_and_idle(state, state.knowledge, b, decision)
            step.advance(state, p, decision.action, None, first, last)
            for b in range(first, last):
                _count_sub_step(state, p, b, k, decision)


@kernel
def marginal_coverage(rows, marginal, chosen, share):
    """Add to `marginal` (B, n, m) the coverage of the chosen scenes that would be lost without sensor i at target j."""
    state = KernelState(*rows)
    for first, last in runs(chosen, share):
        for b in range(first, last):
            _add_marginal_coverage(state, state.parameters[0], b, marginal)


@kernel
def pack(pairs, assigned, row_id, packed, mask):
    """Copy the rows of the assigned targets to the front of `packed` and mark them in `mask`; both start as zeros."""
    for b in range(pairs.shape[0]):
        for i in range(pairs.shape[1]):
            row = 0
            for j in range(pairs.shape[2]):
                if assigned[b, i, j]:
                    for k in range(pairs.shape[3]):
                        packed[b, i, row, k] = pairs[b, i, j, k]
                    if row_id >= 0:
                        packed[b, i, row, row_id] = row / pairs.shape[2]
                    mask[b, i, row] = 1
                    row += 1
