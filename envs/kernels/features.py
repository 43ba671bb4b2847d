"""Observation features: numbers of a sensor and a target, each an equation. Compiled by numba.

To add one, write a function ``name(pair, scales, b)``, which returns the number in scene b, with a line that says what
it means, under :func:`feature` with its range.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.kernels.compiled import inlined, one_of
from hitmac.envs.kernels.state import DIRECTION_X, DIRECTION_Y, FIELD_OF_VIEW, RANGE_SQUARED, TURN


class Pair(NamedTuple):
    """Sensor i and target j, as observed in every scene of a batch."""

    i: int
    j: int
    n: int
    m: int
    sensor: np.ndarray  # (13, B) rows of the sensor
    dx: np.ndarray  # (B,) offset of the target
    dy: np.ndarray
    distance: np.ndarray
    east: np.ndarray  # (B,) unit vector to the target
    north: np.ndarray
    velocity_x: np.ndarray
    velocity_y: np.ndarray
    noticed: np.ndarray  # (B,) bool: the sensor sees the target and does not miss it
    seeing: np.ndarray  # (B,) number of sensors that do


class Scales(NamedTuple):
    """Scales and noise of the observation, from the scenario."""

    per_distance: float
    per_speed: float
    per_time: float
    most_speed: float  # scaled
    position_noise: float
    missed_detections: float
    noisy_velocity: bool  # a velocity is observed, and with errors
    all_there: bool  # no pair is ever masked


class Feature(NamedTuple):
    """Range and meaning of an observation feature, one number of a pair."""

    low: float
    high: float
    meaning: str
    highest: Callable[[Any], float] | None = None
    """Upper bound in a scenario, where `high` does not say it; `low` is 0 or minus that."""
    moving: bool = False
    """The feature depends on the target's velocity."""

    def bounds(self, scenario: Any) -> tuple[float, float]:
        """Return the lowest and the highest number in a scenario."""
        if self.highest is None:
            return self.low, self.high
        highest = self.highest(scenario)
        return self.low * highest, highest


FEATURES: dict[str, Feature] = {}
"""The observation features, by name."""

_WRITERS: list[Callable] = []


def feature(
    low: float, high: float, highest: Callable[[Any], float] | None = None, *, moving: bool = False
) -> Callable:
    """Return a decorator that puts a function into the table, with its range (see :class:`Feature`)."""

    def add(function: Callable) -> Callable:
        value = inlined(function)

        @inlined
        def write(out, pair, scales, first, last):
            for b in range(first, last):
                out[b] = value(pair, scales, b)

        meaning = (function.__doc__ or "").splitlines()[0].removesuffix(".")
        FEATURES[function.__name__] = Feature(low, high, meaning, highest, moving)
        _WRITERS.append(write)
        return value

    return add


def largest_error(scenario: Any) -> float:
    """Return a bound of the error of an observed position: Box and Muller's normal numbers stay under 9."""
    return 9 * scenario.position_noise


def most_speed(scenario: Any) -> float:
    """Return the highest observed speed / top speed; a velocity has the errors of two positions."""
    return 1 + 2 * largest_error(scenario) / scenario.time_step / scenario.top_speed


def _farthest(scenario: Any) -> float:
    return math.sqrt(8) * (scenario.arena + largest_error(scenario)) / scenario.distance_scale  # the diagonal


def _longest_range(scenario: Any) -> float:
    reach = scenario.of_each_sensor("sensing_range")
    if scenario.zoom:
        reach = reach * np.sqrt(scenario.of_each_sensor("field_of_view") / scenario.zoom[0])
    return reach.max() / scenario.distance_scale


def _num_sensors(scenario: Any) -> float:
    return scenario.num_sensors


@inlined
def _aside(pair, b):
    """Return the sine of the bearing."""
    return pair.sensor[DIRECTION_X, b] * pair.north[b] - pair.sensor[DIRECTION_Y, b] * pair.east[b]


@inlined
def _ahead(pair, b):
    """Return the cosine of the bearing."""
    return pair.sensor[DIRECTION_X, b] * pair.east[b] + pair.sensor[DIRECTION_Y, b] * pair.north[b]


@inlined
def _relative(speed, scales):
    """Return a speed / top speed, within the bound of the observation space."""
    return min(max(speed * scales.per_speed, -scales.most_speed), scales.most_speed)


@inlined
def _turns(y, x):
    """Return ``atan2(y, x) / pi`` in [-1, 1), to 1e-8, by a polynomial, which the compiler can vectorise.

    The polynomial for atan on [0, 1] is 4.4.49 of Abramowitz and Stegun, Handbook of Mathematical Functions (1964).
    """
    across, along = abs(y), abs(x)
    longer = max(across, along)
    ratio = min(across, along) / longer if longer > 0.0 else 0.0
    s = ratio * ratio
    angle = ratio * (
        1.0
        + s * (-0.3333314528 + s * (0.1999355085 + s * (-0.1420889944 + s * (0.1065626393
        + s * (-0.0752896400 + s * (0.0429096138 + s * (-0.0161657367 + s * 0.0028662257)))))))
    )  # fmt: skip
    angle = 0.5 * math.pi - angle if across > along else angle
    angle = math.pi - angle if x < 0.0 else angle
    turns = angle / math.pi
    return turns if (y >= 0.0) & (turns < 1.0) else -turns


@feature(0, 1)
def sensor_id(pair, scales, b):
    """I / n of the paper, i counted from 0."""
    return pair.i / pair.n


@feature(0, 1)
def target_id(pair, scales, b):
    """J / m of the paper, j counted from 0."""
    return pair.j / pair.m


@feature(-1, 1)
def bearing(pair, scales, b):
    """Angle from the heading to the target / 180 deg, counter-clockwise."""
    return _turns(_aside(pair, b), _ahead(pair, b))


@feature(0, math.inf, _farthest)
def distance(pair, scales, b):
    """Distance / distance_scale of the scenario."""
    return pair.distance[b] * scales.per_distance


@feature(-1, 1)
def bearing_sin(pair, scales, b):
    """Sine of the bearing."""
    return _aside(pair, b)


@feature(-1, 1)
def bearing_cos(pair, scales, b):
    """Cosine of the bearing."""
    return _ahead(pair, b)


@feature(0, 1)
def in_range(pair, scales, b):
    """1 if the target is within the sensing range."""
    return pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b] <= pair.sensor[RANGE_SQUARED, b]


@feature(0, 1)
def visible(pair, scales, b):
    """1 if the sensor sees the target."""
    return pair.noticed[b]


@feature(0, math.inf, _num_sensors)
def others_seeing(pair, scales, b):
    """Number of other sensors that see the target."""
    return pair.seeing[b] - pair.noticed[b]


@feature(-1, 1, most_speed, moving=True)
def radial_velocity(pair, scales, b):
    """Speed away from the sensor / top speed, in the last move."""
    return _relative(pair.velocity_x[b] * pair.east[b] + pair.velocity_y[b] * pair.north[b], scales)


@feature(-1, 1, most_speed, moving=True)
def tangential_velocity(pair, scales, b):
    """Speed counter-clockwise around the sensor / top speed, in the last move."""
    return _relative(pair.velocity_y[b] * pair.east[b] - pair.velocity_x[b] * pair.north[b], scales)


@feature(0, 1)
def field_of_view(pair, scales, b):
    """The sensor's field of view / 360 deg."""
    return pair.sensor[FIELD_OF_VIEW, b] / 360.0


@feature(0, math.inf, _longest_range)
def sensing_range(pair, scales, b):
    """The sensor's range / distance_scale of the scenario."""
    return math.sqrt(pair.sensor[RANGE_SQUARED, b]) * scales.per_distance


@feature(0, 1)
def turn(pair, scales, b):
    """Angle that the sensor turns in a sub-step / 180 deg."""
    return pair.sensor[TURN, b] / 180.0


write_feature = one_of(_WRITERS)
"""Write a feature, by its index in the table, of a pair in the scenes `first` to `last` - 1."""
