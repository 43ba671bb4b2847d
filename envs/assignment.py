"""Targets assigned to sensors, one scene at a time: what HiT-MAC's executor and coordinator add to the physics.

An assignment is a bool array ``assigned`` (B, n, m). Source: Xu, Zhong, Wang, NeurIPS 2020, sections 3 and 4.
"""

import math

from numba import njit, prange

from envs import physics
from envs.compiled import kernel
from envs.physics import LEFT, RIGHT, STAY


@njit(inline="always")
def bearing_to(state, b, i, x, y):
    """Degrees in [-180, 180) from the heading of sensor i of scene b to the point (x, y), counter-clockwise."""
    dx = x - state.sensor_position[b, i, 0]
    dy = y - state.sensor_position[b, i, 1]
    degrees = math.degrees(math.atan2(dy, dx)) - state.heading[b, i]
    return degrees - 360.0 * math.floor((degrees + 180.0) / 360.0)


@njit
def assign_in_range(state, p, b, assigned):
    """Assign to every sensor of scene b the targets within its range."""
    for i in range(assigned.shape[1]):
        for j in range(assigned.shape[2]):
            dx = state.target_position[b, j, 0] - state.sensor_position[b, i, 0]
            dy = state.target_position[b, j, 1] - state.sensor_position[b, i, 1]
            assigned[b, i, j] = dx * dx + dy * dy <= p.range_squared


@njit
def executor_rewards(state, b, half_view, turn_cost, action, assigned, rewards):
    """Write the executor's reward of every sensor of scene b.

    The mean over its assigned targets of ``1 - abs(bearing) / half_view`` if the sensor sees the target, else
    -1; 0 without any; less `turn_cost` if the sensor turned.
    """
    for i in range(assigned.shape[1]):
        total = 0.0
        count = 0
        for j in range(assigned.shape[2]):
            if assigned[b, i, j]:
                count += 1
                if state.visible[b, i, j]:
                    x, y = state.target_position[b, j, 0], state.target_position[b, j, 1]
                    total += 1.0 - abs(bearing_to(state, b, i, x, y)) / half_view
                else:
                    total -= 1.0
        rewards[b, i] = total / count if count > 0 else 0.0
        if action[b, i] != STAY:
            rewards[b, i] -= turn_cost


@njit
def turn_to_mean(state, p, b, assigned, action):
    """The scripted executor: every sensor of scene b turns towards the mean position of its assigned targets.

    ``turn * clip(floor(bearing / turn), -1, 1)``: by the floor it turns right at any bearing under 0, and left
    only from a whole turn on. A sensor without any assigned target is left as it is in `action`.
    """
    for i in range(assigned.shape[1]):
        x = 0.0
        y = 0.0
        count = 0
        for j in range(assigned.shape[2]):
            if assigned[b, i, j]:
                x += state.target_position[b, j, 0]
                y += state.target_position[b, j, 1]
                count += 1
        if count > 0:
            turns = math.floor(bearing_to(state, b, i, x / count, y / count) / p.turn)
            action[b, i] = LEFT if turns > 0 else (RIGHT if turns < 0 else STAY)


@njit
def idle(state, b, assigned, turn_at_random, action):
    """The sensors of scene b without any assigned target: hold still, or turn at random (uniform over 3)."""
    for i in range(assigned.shape[1]):
        any_assigned = False
        for j in range(assigned.shape[2]):
            any_assigned = any_assigned or assigned[b, i, j]
        if not any_assigned:
            action[b, i] = int(physics.draw_integer(state, b, 0, 2)) if turn_at_random else STAY


@njit
def coordinator_reward(state, b, penalty, assigned):
    """The coverage of scene b, or `penalty` if no sensor sees a target assigned to it."""
    for i in range(assigned.shape[1]):
        for j in range(assigned.shape[2]):
            if assigned[b, i, j] and state.visible[b, i, j]:
                return state.num_covered[b] / assigned.shape[2]
    return penalty


@kernel(nogil=True)
def executor_step(state, p, tracks, half_view, turn_cost, every, action, assigned, rewards, chosen, low, high):
    """One step of the executor's task in the chosen scenes: sub-step, rewards, new goals when they are due."""
    for b in range(low, high):
        if chosen[b]:
            extra_move = physics.extra_move_due(state, p, b)
            if tracks is None:
                physics.sub_step(state, p, b, action, extra_move)
            else:
                physics.tracked_sub_step(state, p, tracks, b, action, extra_move)
            executor_rewards(state, b, half_view, turn_cost, action, assigned, rewards)
            if state.time[b] % every == 0:
                assign_in_range(state, p, b, assigned)


@kernel(parallel=True)
def executor_step_threads(state, p, tracks, half_view, turn_cost, every, action, assigned, rewards, chosen, bounds):
    """`executor_step` on several threads."""
    for c in prange(bounds.shape[0] - 1):
        executor_step(
            state, p, tracks, half_view, turn_cost, every, action, assigned, rewards, chosen, bounds[c], bounds[c + 1]
        )


@kernel(nogil=True)
def begin_decision(state, p, tracks, chosen, low, high):
    """The move of the targets with which a decision begins, in the chosen scenes."""
    for b in range(low, high):
        if chosen[b]:
            if tracks is None:
                physics.walk(state, p, b)
            else:
                physics.walk_or_follow(state, p, tracks, b)


@kernel(parallel=True)
def begin_decision_threads(state, p, tracks, chosen, bounds):
    """`begin_decision` on several threads."""
    for c in prange(bounds.shape[0] - 1):
        begin_decision(state, p, tracks, chosen, bounds[c], bounds[c + 1])


@kernel(nogil=True)
def goal_sub_step(
    state, p, tracks, scripted, turn_at_random, penalty, k, assigned, action, sub_rewards, turned, chosen, low, high
):
    """Sub-step k of a decision, by the scripted executor or as `action` has it, in the chosen scenes."""
    for b in range(low, high):
        if chosen[b]:
            if scripted:
                turn_to_mean(state, p, b, assigned, action)
            idle(state, b, assigned, turn_at_random, action)
            if tracks is None:
                physics.sub_step(state, p, b, action, False)
            else:
                physics.tracked_sub_step(state, p, tracks, b, action, False)
            sub_rewards[b, k] = coordinator_reward(state, b, penalty, assigned)
            turned[b] += state.turned[b]


@kernel(parallel=True)
def goal_sub_step_threads(
    state, p, tracks, scripted, turn_at_random, penalty, k, assigned, action, sub_rewards, turned, chosen, bounds
):
    """`goal_sub_step` on several threads."""
    for c in prange(bounds.shape[0] - 1):
        goal_sub_step(
            state, p, tracks, scripted, turn_at_random, penalty, k,
            assigned, action, sub_rewards, turned, chosen, bounds[c], bounds[c + 1],
        )  # fmt: skip


@kernel(nogil=True)
def pack(pairs, assigned, row_id, packed, there):
    """Copy the rows of the assigned targets to the front of `packed` and mark them in `there`; both are zero."""
    for b in range(pairs.shape[0]):
        for i in range(pairs.shape[1]):
            row = 0
            for j in range(pairs.shape[2]):
                if assigned[b, i, j]:
                    for k in range(pairs.shape[3]):
                        packed[b, i, row, k] = pairs[b, i, j, k]
                    if row_id >= 0:
                        packed[b, i, row, row_id] = row / pairs.shape[2]
                    there[b, i, row] = 1
                    row += 1
