"""Model of the targets' walk, and the layout of particles."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.parts.walks import WALKS
from hitmac.envs.scenario import Scenario

# Rows of a particle: position, aim, and speed. The aim is the goal or the warehouse of a particle that walks to one,
# otherwise the unit vector of its direction.
X, Y, AIM_X, AIM_Y, SPEED = range(5)
STEP, MOVES = 5, 6  # of a walk: length of the last move, moves since its course began
# Of a particle that carries loads: noise of its direction in steps (inf: not drawn yet), and the steps in which it was
# seen since it took its load.
NOISE_X, NOISE_Y, SEEN = 7, 8, 9
PLACE = 10  # of recorded motion: number of the recorded place

MODELS = ("goals", "constant velocity", "random", "carry")
"""The walk models; see :class:`~hitmac.agents.tracking.ParticleTracker`."""

GOALS, CONSTANT_VELOCITY, RANDOM, CARRY = range(4)


def rows_of(model: int, *, recorded: bool = False) -> int:
    """Return the number of rows of a particle."""
    return PLACE + 1 if recorded else SEEN + 1 if model == CARRY else MOVES + 1


class Loads(NamedTuple):
    """Loads that targets carry from warehouse to warehouse."""

    places: np.ndarray  # (W, 2) centres of the warehouses
    size: float  # half a side
    bounty: float  # steps in view, times the speed, that a load is worth


class WalkModel(NamedTuple):
    """Walk assumed by a tracker; lengths in arena units, times in seconds."""

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
    x_low: float  # initial area of an unknown target
    x_high: float
    y_low: float
    y_high: float
    loads: Loads | None  # of the model CARRY


def walk_model(scenario: Scenario, model: int | None = None) -> WalkModel:
    """Return the `model` of a scenario's walk; None: of its `motion` in :data:`hitmac.envs.parts.walks.WALKS`.

    Targets that carry loads and whose positions have errors keep a constant velocity, since their noise is not known.
    """
    if model is None:
        model = MODELS.index(WALKS[scenario.walk].motion)
        if model == CARRY and (max(scenario.position_errors) > 0.0 or not scenario.identities):
            model = CONSTANT_VELOCITY
    speeds = (0.0, 0.0) if scenario.walk == "still" else (scenario.min_speed, scenario.max_speed)
    loads = None
    if model == CARRY:
        places = np.array(scenario.warehouses, np.float64).reshape(-1, 2)
        loads = Loads(places, scenario.warehouse_size, scenario.cargo_worth * scenario.max_speed)
    return WalkModel(
        model, *scenario.extent, *speeds, scenario.speed_noise, scenario.time_step, math.radians(scenario.wander),
        scenario.goal_radius, scenario.stuck_distance, scenario.goal_patience, *scenario.target_area, loads,
    )  # fmt: skip
