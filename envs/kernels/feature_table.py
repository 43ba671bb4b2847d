"""Table of the observation features, filled by :mod:`hitmac.envs.kernels.features`, and bounds of their values."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.kernels.compiled import inlined


class Pair(NamedTuple):
    """Sensor i and target j, as observed in every scene of a batch: position and velocity are the last known ones."""

    i: int
    j: int
    n: int
    m: int
    sensor: np.ndarray  # (17, B) rows of the sensor
    dx: np.ndarray  # (B,) offset of the target
    dy: np.ndarray
    distance: np.ndarray
    east: np.ndarray  # (B,) unit vector to the target
    north: np.ndarray
    velocity_x: np.ndarray
    velocity_y: np.ndarray
    noticed: np.ndarray  # (B,) bool: the sensor sees the target and does not miss it
    seeing: np.ndarray  # (B,) number of sensors that do
    age: np.ndarray  # (B,) sub-steps since the position was measured
    number: np.ndarray | None = None  # (B,) the target, where it is not j throughout


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
    half_width: float
    half_height: float
    diagonal: float
    pace: float  # time that a target walks in a sub-step, on average
    top_speed: float


class Feature(NamedTuple):
    """Range and meaning of an observation feature, one number of a pair."""

    low: float
    high: float
    meaning: str
    highest: Callable[[Any], float] | None = None
    """Upper bound in a scenario, where `high` does not say it; `low` is 0 or minus that."""
    moving: bool = False
    """The feature depends on the target's velocity."""
    of_sensor: bool = False
    """The feature is the sensor's alone, and is shown wherever the sensor works, also for unknown targets."""

    def bounds(self, scenario: Any) -> tuple[float, float]:
        """Return the lowest and the highest number in a scenario."""
        if self.highest is None:
            return self.low, self.high
        highest = self.highest(scenario)
        return self.low * highest, highest


FEATURES: dict[str, Feature] = {}
"""The observation features, by name."""

WRITERS: list[Callable] = []
"""Functions that write a feature of a pair in the scenes `first` to `last` - 1, in the order of the table."""


def feature(
    low: float,
    high: float,
    highest: Callable[[Any], float] | None = None,
    *,
    moving: bool = False,
    of_sensor: bool = False,
) -> Callable:
    """Return a decorator that puts a function into the table, with its range (see :class:`Feature`)."""

    def add(function: Callable) -> Callable:
        value = inlined(function)

        @inlined
        def write(out, pair, scales, first, last):
            for b in range(first, last):
                out[b] = value(pair, scales, b)

        meaning = (function.__doc__ or "").splitlines()[0].removesuffix(".")
        FEATURES[function.__name__] = Feature(low, high, meaning, highest, moving, of_sensor)
        WRITERS.append(write)
        return value

    return add


def largest_error(scenario: Any) -> float:
    """Return a bound of the error of an observed position: Box and Muller's normal numbers stay under 9."""
    return 9 * scenario.position_noise


def most_speed(scenario: Any) -> float:
    """Return the highest observed speed / top speed; a velocity has the errors of two positions."""
    return 1 + 2 * largest_error(scenario) / scenario.time_step / scenario.top_speed


def farthest(scenario: Any) -> float:
    """Return a bound of an observed distance / distance_scale."""
    error = largest_error(scenario)
    half_width, half_height = scenario.extent
    return 2 * math.hypot(half_width + error, half_height + error) / scenario.distance_scale


def diagonal(scenario: Any) -> float:
    """Return the diagonal of the arena / distance_scale."""
    return 2 * math.hypot(*scenario.extent) / scenario.distance_scale


def longest_range(scenario: Any) -> float:
    """Return the longest range of a sensor, at its narrowest view, / distance_scale."""
    reach = scenario.of_each_sensor("sensing_range")
    if scenario.zoom:
        reach = reach * np.sqrt(scenario.of_each_sensor("field_of_view") / scenario.zoom[0])
    return reach.max() / scenario.distance_scale


def num_sensors(scenario: Any) -> float:
    """Return the number of sensors."""
    return scenario.num_sensors
