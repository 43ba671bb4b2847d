"""Walks of a target, as a tracker expects them: one move of one particle. Compiled by numba.

A particle is a column of rows: position, aim, speed, length of the last move, moves since its course began. The aim is
the goal of a particle that walks to goals, and else the unit vector of its direction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels.streams import uniform
from hitmac.envs.kernels.threads import inlined
from hitmac.envs.scenario import Scenario

X, Y, AIM_X, AIM_Y, SPEED, STEP, MOVES = range(7)  # rows of a particle
ROWS = 7
MODELS = ("goals", "constant velocity", "random")
"""The walk models; see :class:`~hitmac.agents.tracking.ParticleTracker`."""

GOALS, CONSTANT_VELOCITY, RANDOM = range(3)
_ONE, _TWO, _DRAWS = np.uint64(1), np.uint64(2), np.uint64(4)  # a move may draw 4 numbers


class WalkModel(NamedTuple):
    """Walk that a tracker expects; lengths in arena units, times in seconds."""

    model: int  # index in MODELS
    half_width: float  # of the arena
    half_height: float
    min_speed: float
    max_speed: float
    speed_noise: float  # largest relative increase of a move's length
    time_step: float
    swerve: float  # radians
    goal_radius: float
    stuck_distance: float
    patience: float
    x_low: float  # area in which an unknown target is at first
    x_high: float
    y_low: float
    y_high: float


class Rules(NamedTuple):
    """Rules of the scenario that beliefs follow."""

    walk: WalkModel
    every: int  # sub-steps between extra moves; 0: none
    deviation: float  # of observed positions
    all_known: bool  # a target that is not shown is absent
    returns: bool  # a target that has left can return


@inlined
def moves_at(rules, time):
    """Return the number of moves of the targets in the sub-step that begins at `time`."""
    return 2 if rules.every > 0 and time % rules.every == 0 else 1


def walk_model(scenario: Scenario) -> WalkModel:
    """Return the model of a scenario's walk; one that bounces, evades or stands still keeps its velocity."""
    model = {"goals": GOALS, "random": RANDOM}.get(scenario.walk, CONSTANT_VELOCITY)
    speeds = (0.0, 0.0) if scenario.walk == "still" else (scenario.min_speed, scenario.max_speed)
    return WalkModel(
        model, *scenario.extent, *speeds, scenario.speed_noise, scenario.time_step, math.radians(scenario.wander),
        scenario.goal_radius, scenario.stuck_distance, scenario.goal_patience, *scenario.target_area,
    )  # fmt: skip


@inlined
def begin_course(walk, body, p, key, counter):
    """Draw aim and speed of particle p: a goal anywhere in the arena, or a direction."""
    body[SPEED, p] = walk.min_speed + (walk.max_speed - walk.min_speed) * uniform(key, counter)
    body[MOVES, p] = 0.0
    if walk.model == GOALS:
        body[AIM_X, p] = walk.half_width * (2.0 * uniform(key, counter + _ONE) - 1.0)
        body[AIM_Y, p] = walk.half_height * (2.0 * uniform(key, counter + _TWO) - 1.0)
    else:
        angle = 2.0 * math.pi * uniform(key, counter + _ONE)
        body[AIM_X, p], body[AIM_Y, p] = math.cos(angle), math.sin(angle)


@inlined
def _length(walk, body, p, increase):
    return body[SPEED, p] * (1.0 + walk.speed_noise * increase) * walk.time_step


@inlined
def _to_goal(walk, body, p, key, counter, increase):
    """Move towards the goal; take a new one that is near, after a move that was too short, or out of patience."""
    dx, dy = body[AIM_X, p] - body[X, p], body[AIM_Y, p] - body[Y, p]
    body[MOVES, p] += 1.0
    near = max(walk.goal_radius, 0.5 * _length(walk, body, p, 0.5))  # a target that steps over its goal soon turns
    if dx * dx + dy * dy < near * near or body[STEP, p] < walk.stuck_distance or body[MOVES, p] > walk.patience:
        begin_course(walk, body, p, key, counter)
        counter += _DRAWS
        dx, dy = body[AIM_X, p] - body[X, p], body[AIM_Y, p] - body[Y, p]
    length = _length(walk, body, p, increase)
    away = math.sqrt(dx * dx + dy * dy)
    scale = length / away if away > 0.0 else 0.0
    body[X, p] = min(max(body[X, p] + dx * scale, -walk.half_width), walk.half_width)
    body[Y, p] = min(max(body[Y, p] + dy * scale, -walk.half_height), walk.half_height)
    body[STEP, p] = length
    return counter


@inlined
def _straight_on(walk, body, p, key, counter, increase):
    """Move on in the same direction, or a random one; the border reflects."""
    swerve = math.pi if walk.model == RANDOM else walk.swerve
    if swerve > 0.0:
        angle = swerve * (2.0 * uniform(key, counter) - 1.0)
        counter += _DRAWS
        c, s = math.cos(angle), math.sin(angle)
        x, y = body[AIM_X, p], body[AIM_Y, p]
        body[AIM_X, p], body[AIM_Y, p] = c * x - s * y, s * x + c * y
    length = _length(walk, body, p, increase)
    for axis in range(2):
        place = body[axis, p] + length * body[AIM_X + axis, p]
        border = walk.half_width if axis == 0 else walk.half_height
        if abs(place) > border:
            place = math.copysign(2.0 * border, place) - place
            body[AIM_X + axis, p] = -body[AIM_X + axis, p]
        body[axis, p] = min(max(place, -border), border)
    body[STEP, p] = length
    return counter


@inlined
def move(walk, body, p, key, counter, increase):
    """Move particle p once, by a draw `increase` in [0, 1) of its length; return the stream's next counter."""
    if walk.model == GOALS:
        return _to_goal(walk, body, p, key, counter, increase)
    return _straight_on(walk, body, p, key, counter, increase)


@inlined
def to_border(walk, x, y, ahead_x, ahead_y):
    """Return the distance from (x, y) in the arena to its border, in a direction."""
    along_x = (math.copysign(walk.half_width, ahead_x) - x) / ahead_x if ahead_x != 0.0 else math.inf
    along_y = (math.copysign(walk.half_height, ahead_y) - y) / ahead_y if ahead_y != 0.0 else math.inf
    return max(min(along_x, along_y), 0.0)
