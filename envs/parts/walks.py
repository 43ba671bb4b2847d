"""Targets: where they start, how they walk, leave and return, for many scenes at a time. Compiled by numba.

To add a walk, write a function whose first docstring line describes it, and add it to :data:`WALKS`.

Functions take the scenes ``first`` to ``last - 1`` (uint64, so that the compiler assumes no negative index). A loop
over scenes writes only one array; otherwise the compiler cannot exclude overlaps, and does not vectorise it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import compiled, inlined, one_of
from hitmac.envs.base.state import X, Y
from hitmac.envs.base.streams import MOST_DRAWS, draw_between, draw_point, draw_uniform, uniform
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Area, scaled
from hitmac.envs.parts.recordings import follow_path, follow_recording
from hitmac.envs.parts.streets import step_onto_street, walk_streets
from hitmac.envs.validation import Choice, Count, Fraction, Natural, NotNegative, Positive, Range


@compiled
def take_goal(state, p, b, j):
    """Give target j of scene b a goal anywhere in the arena and a speed in [min_speed, max_speed)."""
    goal = draw_point(state, p, b, -p.half_width, p.half_width, -p.half_height, p.half_height)
    state.target[j, at.GOAL_X, b], state.target[j, at.GOAL_Y, b] = goal
    highest = p.max_speed - 1.0 if p.whole_numbers else p.max_speed
    state.target[j, at.SPEED, b] = draw_between(state.stream, b, p.min_speed, highest, p.whole_numbers)
    state.target[j, at.MOVES, b] = 0


@compiled
def enter(state, p, streets, b, j):
    """Place target j of scene b at random in the targets' area."""
    state.present[j, b] = True
    area = p.target_area
    point = draw_point(state, p, b, area[0], area[1], area[2], area[3])
    state.target[j, X, b], state.target[j, Y, b] = point
    take_goal(state, p, b, j)
    step_onto_street(state, streets, b, j)
    # The direction of the goal is random already.
    to_goal_x = state.target[j, at.GOAL_X, b] - state.target[j, X, b]
    to_goal_y = state.target[j, at.GOAL_Y, b] - state.target[j, Y, b]
    state.target[j, at.COURSE, b] = math.atan2(to_goal_y, to_goal_x)
    state.target[j, at.VELOCITY_X, b] = state.target[j, at.VELOCITY_Y, b] = 0.0
    for row in range(at.LAST_X, at.OLDER_Y + 1):
        state.target[j, row, b] = np.inf


@inlined
def leave_and_return(state, p, streets, first, last):
    """Let targets leave and return, with their probabilities per sub-step."""
    if p.leave_rate > 0.0:
        for b in range(first, last):
            for j in range(min(state.scene[at.NUM_TARGETS, b], state.present.shape[0])):
                u = draw_uniform(state.stream, b)
                if state.present[j, b]:
                    state.present[j, b] = u >= p.leave_rate
                elif u < p.return_rate:
                    enter(state, p, streets, b, j)


_ONE = np.uint64(1)


@inlined
def _near(x, y, other_x, other_y, distance):
    """Return True if two points are less than `distance` apart."""
    dx = x - other_x
    dy = y - other_y
    return dx * dx + dy * dy < distance * distance


@compiled
def _pursue(state, p, j, first, last):
    """Move target j of the scenes towards its goal, as HiT-MAC's targets do.

    The target draws a new goal and speed if its goal is near, if it is near one of its two previous positions, or if it
    has pursued its goal for too long. Then it moves towards the goal by ``speed * (1 + noise * u) * time_step``.
    Source: Xu, Zhong, Wang, NeurIPS 2020, section 4.
    """
    target = state.target
    for b in range(first, last):
        target[j, at.MOVES, b] += 1
    for b in range(first, last):
        state.scratch_mask[b] = (target[j, at.MOVES, b] > p.goal_patience) | _near(
            target[j, X, b], target[j, Y, b], target[j, at.GOAL_X, b], target[j, at.GOAL_Y, b], p.goal_radius
        )
    for place in (at.LAST_X, at.OLDER_X):
        for b in range(first, last):
            state.scratch_mask[b] |= _near(
                target[j, X, b], target[j, Y, b], target[j, place, b], target[j, place + 1, b], p.stuck_distance
            )
    for b in range(first, last):
        if state.scratch_mask[b]:
            take_goal(state, p, b, j)
    for axis in range(2):
        for b in range(first, last):
            target[j, at.OLDER_X + axis, b] = target[j, at.LAST_X + axis, b]
        for b in range(first, last):
            target[j, at.LAST_X + axis, b] = target[j, X + axis, b]
    for b in range(first, last):
        to_goal_x = target[j, at.GOAL_X, b] - target[j, X, b]
        to_goal_y = target[j, at.GOAL_Y, b] - target[j, Y, b]
        distance = math.sqrt(to_goal_x * to_goal_x + to_goal_y * to_goal_y)
        speed = target[j, at.SPEED, b] * (
            1.0 + p.speed_noise * uniform(state.stream[at.KEY, b], state.stream[at.DRAWS, b])
        )
        state.scratch[0, b] = speed / distance if distance > 0.0 else 0.0
    for b in range(first, last):
        state.stream[at.DRAWS, b] += _ONE
    for axis in range(2):
        for b in range(first, last):
            to_goal = target[j, at.GOAL_X + axis, b] - target[j, X + axis, b]
            target[j, at.VELOCITY_X + axis, b] = to_goal * state.scratch[0, b]
        for b in range(first, last):
            target[j, X + axis, b] += target[j, at.VELOCITY_X + axis, b] * p.time_step


@inlined
def _outside(state, p, b, j):
    """Return True if target j of scene b is outside the arena."""
    return (abs(state.target[j, X, b]) > p.half_width) | (abs(state.target[j, Y, b]) > p.half_height)


@compiled
def _to_goals(state, p, streets, grid, first, last):
    """From goal to goal, as HiT-MAC's targets.

    A move out of the arena is repeated as a separate move, so that the current position also becomes the previous one.
    After MOST_DRAWS of :mod:`hitmac.envs.base.streams` moves, all too long for the arena, the target stops at its
    border.
    """
    for j in range(state.target.shape[0]):
        _pursue(state, p, j, first, last)
        for b in range(first, last):
            state.scratch_mask[b] = _outside(state, p, b, j)
        for b in range(first, last):
            if state.scratch_mask[b]:
                draws = 0
                while _outside(state, p, b, j) and draws < MOST_DRAWS:
                    draws += 1
                    state.target[j, X, b] = state.target[j, at.LAST_X, b]
                    state.target[j, Y, b] = state.target[j, at.LAST_Y, b]
                    _pursue(state, p, j, b, b + _ONE)
                state.target[j, X, b] = min(max(state.target[j, X, b], -p.half_width), p.half_width)
                state.target[j, Y, b] = min(max(state.target[j, Y, b], -p.half_height), p.half_height)


@inlined
def _way_out(state, grid, b, j):
    """Return the direction, radians, in which target j of scene b leaves the first view that it is in, or NaN.

    The direction is perpendicular to the line of sight, on the target's side of the view's axis.
    """
    i, n = 0, state.sensor.shape[0]
    if grid is not None:
        i = int(grid.seer[b, j])
    else:
        while i < n and not state.visible[i, j, b]:
            i += 1
    if i < 0 or i == n:
        return math.nan
    dx = state.target[j, X, b] - state.sensor[i, X, b]
    dy = state.target[j, Y, b] - state.sensor[i, Y, b]
    side = state.sensor[i, at.DIRECTION_X, b] * dy - state.sensor[i, at.DIRECTION_Y, b] * dx
    return math.atan2(dy, dx) + math.copysign(0.5 * math.pi, side)


@inlined
def _advance(target, stream, p, b, j, course):
    """Move target j of scene b in the direction `course`, radians; the border reflects it."""
    length = target[j, at.SPEED, b] * p.time_step
    if p.speed_noise > 0.0:
        length *= 1.0 + p.speed_noise * draw_uniform(stream, b)
    x = target[j, X, b]
    y = target[j, Y, b]
    new_x = x + length * math.cos(course)
    new_y = y + length * math.sin(course)
    if abs(new_x) > p.half_width:
        new_x = math.copysign(2.0 * p.half_width, new_x) - new_x
        course = math.pi - course
    if abs(new_y) > p.half_height:
        new_y = math.copysign(2.0 * p.half_height, new_y) - new_y
        course = -course
    new_x = min(max(new_x, -p.half_width), p.half_width)  # for a move longer than the arena
    new_y = min(max(new_y, -p.half_height), p.half_height)
    target[j, at.COURSE, b] = course
    target[j, X, b] = new_x
    target[j, Y, b] = new_y
    target[j, at.VELOCITY_X, b] = (new_x - x) / p.time_step
    target[j, at.VELOCITY_Y, b] = (new_y - y) / p.time_step


@inlined
def _swerved(target, stream, p, b, j):
    """Return the direction of target j of scene b, radians, changed at random by up to `wander` to either side."""
    course = target[j, at.COURSE, b]
    if p.wander > 0.0:
        course += p.wander * (2.0 * draw_uniform(stream, b) - 1.0)
    return course


@compiled
def _at_random(state, p, streets, grid, first, last):
    """Every move in a new direction."""
    target, stream = state.target, state.stream
    for b in range(first, last):
        for j in range(target.shape[0]):
            _advance(target, stream, p, b, j, 2.0 * math.pi * draw_uniform(stream, b))


@compiled
def _bounce(state, p, streets, grid, first, last):
    """Straight ahead, reflected at the border, swerving by `wander`."""
    target, stream = state.target, state.stream
    for b in range(first, last):
        for j in range(target.shape[0]):
            _advance(target, stream, p, b, j, _swerved(target, stream, p, b, j))


@compiled
def _stay(state, p, streets, grid, first, last):
    """No moves."""


@compiled
def _evade(state, p, streets, grid, first, last):
    """As `bounce`, and out of the view of a sensor that sees the target."""
    target, stream = state.target, state.stream
    for b in range(first, last):
        for j in range(target.shape[0]):
            course = _swerved(target, stream, p, b, j)  # a draw in any case
            way_out = _way_out(state, grid, b, j)
            _advance(target, stream, p, b, j, course if math.isnan(way_out) else way_out)


class Walk(NamedTuple):
    """Walk of the targets, and the assumptions of agents about it."""

    move: Callable | None
    """Move every target of some scenes once, as the first line of its docstring says; None: the recordings or the game
    do, and the walk is among the last of the table. Streets and grid are arguments of their own, since numba omits code
    under ``is not None`` only for arguments."""
    motion: Literal["goals", "constant velocity", "random", "carry"]
    """The most similar motion of those by which trackers and planners forecast the targets."""
    reacts: bool = False
    """The moves depend on the sensors, so that an episode has no bound of its coverage."""
    about: str = ""
    """Meaning of a walk without `move`."""


WALKS = {
    "goals": Walk(_to_goals, "goals"),
    "random": Walk(_at_random, "random"),
    "bounce": Walk(_bounce, "constant velocity"),
    "still": Walk(_stay, "constant velocity"),
    "evade": Walk(_evade, "constant velocity", reacts=True),
    "streets": Walk(walk_streets, "constant velocity"),
    "recorded": Walk(None, "constant velocity", about="Only with `tracks`, and expected as in `past_tracks`."),
    "carry-random": Walk(
        None, "constant velocity", about="With `warehouses`, in random directions, each held for 20 steps."
    ),
    "carry-naive": Walk(None, "carry", about="With `warehouses`, from one warehouse to the next."),
    "carry-greedy": Walk(None, "carry", about="With `warehouses`, straight to the goals of their loads, with noise."),
    "carry-heuristic": Walk(None, "carry", reacts=True, about="As `carry-greedy`, and away from the middle of views."),
}
"""The walks of the targets, by name."""

_walk = one_of([walk.move for walk in WALKS.values() if walk.move])


@compiled
def move_targets(state, p, paths, recordings, streets, grid, first, last):
    """Move every target of the scenes once: to its next recorded position if it has one, else by its walk."""
    if paths is None and recordings is None:
        _walk(p.walk, state, p, streets, grid, first, last)
    else:
        for b in range(first, last):
            if not follow_path(state, p, paths, b):
                if recordings is None:
                    _walk(p.walk, state, p, streets, grid, b, b + _ONE)
                else:
                    follow_recording(state, p, recordings, b)


def targets_may_leave(scenario: Any) -> bool:
    """Return True if targets of the scenario can leave, by chance or at the end of a recorded track."""
    return scenario.leave_rate > 0 or bool(scenario.tracks)


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the targets."""

    target_area: Area = scaled((-1000, 1000, -1000, 1000))
    """(x low, x high, y low, y high) of the area in which targets start and return."""
    walk: Annotated[str, Choice(WALKS)] = ""
    """Walk of the targets; empty: with tracks `recorded`, with warehouses `carry-greedy`, otherwise `goals`:"""
    wander: Annotated[float, Range(0, 180, "degrees")] = 0.0
    """Largest swerve of a `bounce` or `evade` target in a move, to either side."""
    time_step: Positive = 0.13
    """Duration of one move of the targets, seconds."""
    min_speed: NotNegative = scaled(50.0)
    """Lowest speed of a target, units per second."""
    max_speed: Positive = scaled(100.0)
    """Upper limit of speeds, units per second, which are drawn from [min_speed, max_speed); over min_speed."""
    speed_noise: NotNegative = 0.2
    """Largest relative increase of a move's length, drawn for every move."""
    goal_radius: NotNegative = scaled(5.0)
    """Distance below which a goal is reached, and the target takes a new one."""
    stuck_distance: NotNegative = scaled(10.0)
    """Distance to one of its two previous positions below which a target takes a new goal."""
    goal_patience: Count = 100
    """Most moves towards one goal, after which the target takes a new one."""
    extra_move_every: Natural = 10
    """Sub-steps between extra moves of the targets, the first before sub-step 0, in all tasks; 0, or with tracks: no
    extra moves."""
    leave_rate: Fraction = 0.0
    """Probability that a target leaves in a sub-step; a target that has left does not count."""
    return_rate: Fraction = 0.0
    """Probability that a target that has left returns in a sub-step, somewhere in target_area."""

    def _rules_of_targets(self: Any) -> validation.Rules:
        yield "max_speed", self.max_speed > self.min_speed, f"over min_speed ({self.min_speed:g})"
        yield "target_area", self._holds_area(self.target_area), f"[x low, x high, y low, y high] {self._inside}"

    @property
    def top_speed(self: Any) -> float:
        """Highest speed of a target, units per second."""
        return self.max_speed * (1.0 + self.speed_noise)

    @property
    def extra_move_interval(self: Any) -> int:
        """Sub-steps between extra moves of the targets; 0 with tracks, of which every sub-step is a row."""
        return 0 if self.tracks else self.extra_move_every
