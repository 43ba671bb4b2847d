"""Turn, walk, see: the equations of one scene as scalar arithmetic, compiled by numba.

Every function takes the whole batch's :class:`State`, the :class:`Parameters` and the number `b` of the
scene that it works on, touches nothing of any other scene, allocates nothing and calls nothing of Python.
Angles are in degrees, counter-clockwise, 0 along +x. Source: Xu, Zhong, Wang, NeurIPS 2020.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envs.random import integer, uniform
from envs.scenario import Scenario

STAY, LEFT, RIGHT = 0, 1, 2  # the three actions of a sensor: hold still, turn counter-clockwise, clockwise
_ONE = np.uint64(1)


class State(NamedTuple):
    """The state of a batch of B scenes with n sensors and m targets, as plain arrays."""

    key: np.ndarray  # (B,) uint64: which random stream the scene draws from
    draws: np.ndarray  # (B,) uint64: numbers drawn from it so far
    time: np.ndarray  # (B,) int64: sub-steps since the reset
    sensor_position: np.ndarray  # (B, n, 2)
    heading: np.ndarray  # (B, n) degrees, not wrapped
    target_position: np.ndarray  # (B, m, 2)
    velocity: np.ndarray  # (B, m, 2) displacement in the last move, per second; 0 after a reset
    places: np.ndarray  # (B, m, 4) where the target stood at its last move (x, y) and at the one before; inf: nowhere
    goal: np.ndarray  # (B, m, 2)
    speed: np.ndarray  # (B, m) units per second
    moves: np.ndarray  # (B, m) int64: moves since the last new goal
    # What follows from the rest, kept because it is read often:
    direction: np.ndarray  # (B, n, 2) unit vector of the heading
    visible: np.ndarray  # (B, n, m) bool: sensor i sees target j
    covered: np.ndarray  # (B, m) bool: at least one sensor sees target j
    num_covered: np.ndarray  # (B,) int64: how many targets are covered
    turned: np.ndarray  # (B,) int64: sensors that turned in the last sub-step


class Tracks(NamedTuple):
    """Recorded positions that the targets of a batch follow instead of walking.

    The kernels take it beside the state, or None, for which they are compiled apart: scenes without tracks, the
    rule, do not pay for them.
    """

    track_position: np.ndarray  # (B, K, m, 2) after the 1st, 2nd, ... move
    track_length: np.ndarray  # (B,) int64: how many of them the scene follows; 0: its targets walk by themselves
    track_moves: np.ndarray  # (B,) int64: how many it has followed


class Parameters(NamedTuple):
    """What the kernels need of a scenario."""

    arena: float
    range_squared: float
    cos_half_view: float
    turn: float
    cos_turn: float
    sin_turn: float
    sensor_areas: np.ndarray  # (at least n, 4)
    target_area: np.ndarray  # (4,)
    start_facing_target: bool
    time_step: float
    min_speed: float
    max_speed: float
    speed_noise: float
    goal_radius_squared: float
    stuck_distance_squared: float
    goal_patience: int
    extra_move_every: int


def parameters(scenario: Scenario) -> Parameters:
    """The kernels' form of `scenario`."""
    return Parameters(
        arena=scenario.arena,
        range_squared=scenario.sensing_range**2,
        # Below every cosine there is: a field of view of 360 degrees also sees what is exactly behind.
        cos_half_view=math.cos(math.radians(scenario.field_of_view / 2)) if scenario.field_of_view < 360 else -2.0,
        turn=scenario.turn,
        cos_turn=math.cos(math.radians(scenario.turn)),
        sin_turn=math.sin(math.radians(scenario.turn)),
        sensor_areas=np.array(scenario.sensor_areas[: scenario.num_sensors], dtype=np.float64),
        target_area=np.array(scenario.target_area, dtype=np.float64),
        start_facing_target=scenario.start_heading == "target",
        time_step=scenario.time_step,
        min_speed=scenario.min_speed,
        max_speed=scenario.max_speed,
        speed_noise=scenario.speed_noise,
        goal_radius_squared=scenario.goal_radius**2,
        stuck_distance_squared=scenario.stuck_distance**2,
        goal_patience=scenario.goal_patience,
        extra_move_every=scenario.extra_move_every,
    )


def allocate(scenario: Scenario, num_envs: int) -> State:
    """The arrays of `num_envs` scenes, all zero."""
    b, n, m = num_envs, scenario.num_sensors, scenario.num_targets
    return State(
        key=np.zeros(b, np.uint64),
        draws=np.zeros(b, np.uint64),
        time=np.zeros(b, np.int64),
        sensor_position=np.zeros((b, n, 2)),
        heading=np.zeros((b, n)),
        target_position=np.zeros((b, m, 2)),
        velocity=np.zeros((b, m, 2)),
        places=np.zeros((b, m, 4)),
        goal=np.zeros((b, m, 2)),
        speed=np.zeros((b, m)),
        moves=np.zeros((b, m), np.int64),
        direction=np.zeros((b, n, 2)),
        visible=np.zeros((b, n, m), np.bool_),
        covered=np.zeros((b, m), np.bool_),
        num_covered=np.zeros(b, np.int64),
        turned=np.zeros(b, np.int64),
    )


@njit(inline="always")
def draw_uniform(state, b):
    """The next number of scene b's stream, in [0, 1)."""
    counter = state.draws[b]
    state.draws[b] = counter + _ONE
    return uniform(state.key[b], counter)


@njit(inline="always")
def draw_integer(state, b, low, high):
    """The next number of scene b's stream, a whole number in [low, high], both included."""
    counter = state.draws[b]
    state.draws[b] = counter + _ONE
    return integer(state.key[b], counter, low, high)


@njit(inline="always")
def point(state, b, i, heading):
    """Turn sensor i of scene b to `heading`, degrees."""
    state.heading[b, i] = heading
    radians = math.radians(heading)
    state.direction[b, i, 0] = math.cos(radians)
    state.direction[b, i, 1] = math.sin(radians)


@njit(inline="always")
def _take_goal(state, p, b, j):
    """Give target j a goal (whole coordinates anywhere in the arena) and a whole speed in [min, max)."""
    state.goal[b, j, 0] = draw_integer(state, b, -p.arena, p.arena)
    state.goal[b, j, 1] = draw_integer(state, b, -p.arena, p.arena)
    state.speed[b, j] = draw_integer(state, b, p.min_speed, p.max_speed - 1.0)
    state.moves[b, j] = 0


@njit
def begin(state, p, b):
    """Start an episode of scene b: place sensors and targets, choose headings, goals and speeds."""
    n = state.heading.shape[1]
    m = state.speed.shape[1]
    state.time[b] = 0
    state.turned[b] = 0
    # Deal the areas out in random order: sensor i gets a random one of those not yet dealt (Fisher and Yates).
    for i in range(n):
        state.sensor_position[b, i, 0] = i
    for i in range(n - 1):
        k = int(draw_integer(state, b, i, n - 1))
        area = state.sensor_position[b, k, 0]
        state.sensor_position[b, k, 0] = state.sensor_position[b, i, 0]
        state.sensor_position[b, i, 0] = area
    for i in range(n):
        area = int(state.sensor_position[b, i, 0])
        state.sensor_position[b, i, 0] = draw_integer(state, b, p.sensor_areas[area, 0], p.sensor_areas[area, 1])
        state.sensor_position[b, i, 1] = draw_integer(state, b, p.sensor_areas[area, 2], p.sensor_areas[area, 3])
    for j in range(m):
        state.target_position[b, j, 0] = draw_integer(state, b, p.target_area[0], p.target_area[1])
        state.target_position[b, j, 1] = draw_integer(state, b, p.target_area[2], p.target_area[3])
        _take_goal(state, p, b, j)
        for axis in range(2):
            state.velocity[b, j, axis] = 0.0
        for k in range(4):
            state.places[b, j, k] = np.inf
    for i in range(n):
        if p.start_facing_target:
            dx = state.target_position[b, i % m, 0] - state.sensor_position[b, i, 0]
            dy = state.target_position[b, i % m, 1] - state.sensor_position[b, i, 1]
            point(state, b, i, math.degrees(math.atan2(dy, dx)))
        else:
            point(state, b, i, draw_integer(state, b, -180.0, 180.0))


@njit
def turn(state, p, b, action):
    """Turn every sensor i of scene b by `action[b, i]` (stay, left, right); count those that turned."""
    turned = 0
    for i in range(state.heading.shape[1]):
        sign = 0.0
        if action[b, i] == LEFT:
            sign = 1.0
        elif action[b, i] == RIGHT:
            sign = -1.0
        if sign != 0.0:
            # The direction turns by the rotation matrix, which costs far less than a new cosine and sine; over
            # a thousand turns the rounding errors stay under 1e-13.
            x = state.direction[b, i, 0]
            y = state.direction[b, i, 1]
            state.heading[b, i] += sign * p.turn
            state.direction[b, i, 0] = p.cos_turn * x - sign * p.sin_turn * y
            state.direction[b, i, 1] = p.cos_turn * y + sign * p.sin_turn * x
            turned += 1
    state.turned[b] = turned


@njit
def walk(state, p, b):
    """Move every target of scene b once.

    A target takes a new goal and speed if its goal is near, if it stands near one of its two previous
    places, or if it has pursued its goal for too long. Then it steps towards the goal by
    ``speed * (1 + noise * u) * time_step``. A step out of the arena is drawn anew as a move of its own, so
    the place where the target stands is then also its previous one.
    """
    for j in range(state.speed.shape[1]):
        x = state.target_position[b, j, 0]
        y = state.target_position[b, j, 1]
        while True:
            state.moves[b, j] += 1
            goal_x = state.goal[b, j, 0] - x
            goal_y = state.goal[b, j, 1] - y
            last_x = x - state.places[b, j, 0]
            last_y = y - state.places[b, j, 1]
            older_x = x - state.places[b, j, 2]
            older_y = y - state.places[b, j, 3]
            if (
                goal_x * goal_x + goal_y * goal_y < p.goal_radius_squared
                or last_x * last_x + last_y * last_y < p.stuck_distance_squared
                or older_x * older_x + older_y * older_y < p.stuck_distance_squared
                or state.moves[b, j] > p.goal_patience
            ):
                _take_goal(state, p, b, j)
                goal_x = state.goal[b, j, 0] - x
                goal_y = state.goal[b, j, 1] - y
            state.places[b, j, 2] = state.places[b, j, 0]
            state.places[b, j, 3] = state.places[b, j, 1]
            state.places[b, j, 0] = x
            state.places[b, j, 1] = y
            distance = math.sqrt(goal_x * goal_x + goal_y * goal_y)
            speed = state.speed[b, j] * (1.0 + p.speed_noise * draw_uniform(state, b))
            ratio = speed / distance if distance > 0.0 else 0.0
            new_x = x + goal_x * ratio * p.time_step
            new_y = y + goal_y * ratio * p.time_step
            if -p.arena <= new_x <= p.arena and -p.arena <= new_y <= p.arena:
                break
        state.target_position[b, j, 0] = new_x
        state.target_position[b, j, 1] = new_y
        state.velocity[b, j, 0] = goal_x * ratio
        state.velocity[b, j, 1] = goal_y * ratio


@njit
def see(state, p, b):
    """Find which targets of scene b each sensor sees, and which of them are covered.

    A target is visible if ``distance <= range`` and ``abs(bearing) < field_of_view / 2``; the latter as
    ``dot(direction, offset) > cos(field_of_view / 2) * distance``.
    """
    n = state.heading.shape[1]
    num_covered = 0
    for j in range(state.speed.shape[1]):
        covered = False
        for i in range(n):
            dx = state.target_position[b, j, 0] - state.sensor_position[b, i, 0]
            dy = state.target_position[b, j, 1] - state.sensor_position[b, i, 1]
            if dx == 0.0 and dy == 0.0:
                dx = 1.0  # on the very place of the sensor: along +x, as atan2(0, 0) = 0 has it
            squared = dx * dx + dy * dy
            ahead = state.direction[b, i, 0] * dx + state.direction[b, i, 1] * dy
            visible = squared <= p.range_squared and ahead > p.cos_half_view * math.sqrt(squared)
            state.visible[b, i, j] = visible
            covered = covered or visible
        state.covered[b, j] = covered
        num_covered += covered
    state.num_covered[b] = num_covered


@njit
def walk_or_follow(state, p, tracks, b):
    """Move every target of scene b once: to its next recorded position where there are any, else as it walks.

    At the end of the record all stand still.
    """
    move = tracks.track_moves[b]
    if tracks.track_length[b] == 0:
        walk(state, p, b)
    else:
        on = move < tracks.track_length[b]
        for j in range(state.speed.shape[1]):
            for axis in range(2):
                before = state.target_position[b, j, axis]
                after = tracks.track_position[b, move, j, axis] if on else before
                state.target_position[b, j, axis] = after
                state.velocity[b, j, axis] = (after - before) / p.time_step
        if on:
            tracks.track_moves[b] = move + 1


@njit(inline="always")
def extra_move_due(state, p, b):
    """Whether the targets of scene b make an extra move before the next sub-step."""
    return p.extra_move_every > 0 and state.time[b] % p.extra_move_every == 0


@njit
def sub_step(state, p, b, action, extra_move):
    """One sub-step of scene b: perhaps an extra move, all sensors turn, all targets move, all look."""
    if extra_move:
        walk(state, p, b)
    turn(state, p, b, action)
    walk(state, p, b)
    see(state, p, b)
    state.time[b] += 1


@njit
def tracked_sub_step(state, p, tracks, b, action, extra_move):
    """A sub-step of scene b in a batch with recorded tracks."""
    if extra_move:
        walk_or_follow(state, p, tracks, b)
    turn(state, p, b, action)
    walk_or_follow(state, p, tracks, b)
    see(state, p, b)
    state.time[b] += 1
