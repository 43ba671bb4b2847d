"""Observation features: numbers of a sensor and a target, each an equation. Compiled by numba.

To add one, write a function ``name(pair, scales, b)`` that returns the number in scene b, with a docstring of one line
and the decorator :func:`feature`, and add it to :data:`hitmac.envs.deployment.FEATURES`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.state import X, Y
from hitmac.envs.kernels.threads import inlined, one_of


class Pair(NamedTuple):
    """Sensor i and target j, as observed in every scene of a batch: position and velocity are the last known ones."""

    i: int
    j: int
    n: int
    m: int
    sensor: np.ndarray  # (23, B) rows of the sensor
    dx: np.ndarray  # (B,) offset of the target
    dy: np.ndarray
    distance: np.ndarray
    east: np.ndarray  # (B,) unit vector to the target
    north: np.ndarray
    velocity_x: np.ndarray
    velocity_y: np.ndarray
    noticed: np.ndarray  # (B,) bool: the sensor detects the target
    seeing: np.ndarray  # (B,) number of sensors that detect it
    age: np.ndarray  # (B,) sub-steps since the position was measured
    clear: np.ndarray  # (B,) 1 if nothing stands between, else 0; undefined unless a feature needs it
    value: np.ndarray  # (B,) value of the target there / highest value; undefined unless a feature needs it
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
    line_of_sight: bool  # a feature needs it
    valued: bool  # a feature needs the value of the target
    per_value: float
    all_there: bool  # no pair is masked
    half_width: float
    half_height: float
    diagonal: float
    pace: float  # mean time that a target walks in a sub-step
    top_speed: float
    per_rate: float


SCALES = np.dtype(list(Scales.__annotations__.items()), align=True)
"""Record of :class:`Scales`: an array of one is a kernel's argument, since fewer arguments make a call faster."""


@inlined
def scales_of(scales):
    """Return the scales of an array of one record as scalars, which make loops faster."""
    s = scales[0]
    return Scales(
        s.per_distance, s.per_speed, s.per_time, s.most_speed, s.position_noise, s.missed_detections, s.noisy_velocity,
        s.line_of_sight, s.valued, s.per_value, s.all_there, s.half_width, s.half_height, s.diagonal, s.pace,
        s.top_speed, s.per_rate,
    )  # fmt: skip


@inlined
def measure_offsets(dx, dy, distance, east, north, first, last):
    """Write distance and unit vector (east, north) of offsets.

    A target at the position of the sensor counts as lying along +x, since atan2(0, 0) = 0.
    """
    for b in range(first, last):
        distance[b] = math.sqrt(dx[b] * dx[b] + dy[b] * dy[b])
    for b in range(first, last):
        east[b] = dx[b] / distance[b] if distance[b] > 0.0 else 1.0
    for b in range(first, last):
        north[b] = dy[b] / distance[b] if distance[b] > 0.0 else 0.0


class Feature(NamedTuple):
    """Range and meaning of an observation feature, one number of a pair."""

    low: float
    high: float
    meaning: str
    highest: Callable[[Any], float] | None = None
    """Upper bound in a scenario, in place of `high`; `low` is then 0 or -1 times that bound."""
    moving: bool = False
    """The feature depends on the target's velocity."""
    line_of_sight: bool = False
    """The feature depends on whether walls, blocks or discs stand between sensor and target."""
    of_sensor: bool = False
    """The feature depends only on the sensor, and is also shown for unknown targets."""

    def bounds(self, scenario: Any) -> tuple[float, float]:
        """Return the lowest and the highest number in a scenario."""
        if self.highest is None:
            return self.low, self.high
        highest = self.highest(scenario)
        return self.low * highest, highest


FEATURES: dict[str, Feature] = {}
"""The observation features, by name."""

WRITERS: list[Callable] = []
"""Functions that write a feature of a pair in the scenes `first` to `last` - 1, in order of the table."""


def feature(low: float, high: float, highest: Callable[[Any], float] | None = None, **kind: bool) -> Callable:
    """Return a decorator that adds a function to the table, with its range (see :class:`Feature`)."""

    def add(function: Callable) -> Callable:
        value = inlined(function)

        @inlined
        def write(out, pair, scales, first, last):
            for b in range(first, last):
                out[b] = value(pair, scales, b)

        meaning = (function.__doc__ or "").splitlines()[0].removesuffix(".")
        FEATURES[function.__name__] = Feature(low, high, meaning, highest, **kind)
        WRITERS.append(write)
        return value

    return add


def largest_error(scenario: Any) -> float:
    """Return a bound of the error of an observed position: normal numbers of Box and Muller are below 9."""
    return 9 * max(scenario.position_errors)


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


def most_pending(scenario: Any) -> float:
    """Return the largest angle that a sensor can still turn without a further command / 180 deg."""
    highest, a = scenario.turn_rates and scenario.rates[1], scenario.acceleration
    coasted = 0.5 * highest / a if a else 0.0  # seconds at the highest rate
    return highest * (scenario.command_delay * scenario.time_step + coasted) / 180.0 or 1.0  # a Box has a width


def longest_range(scenario: Any) -> float:
    """Return the longest range of a sensor, at its narrowest view / distance_scale."""
    reach = scenario.of_each_sensor("sensing_range")
    if scenario.zoom:
        reach = reach * np.sqrt(scenario.of_each_sensor("field_of_view") / scenario.zoom[0])
    return reach.max() / scenario.distance_scale


@inlined
def _aside(pair, b):
    """Return the sine of the bearing."""
    return pair.sensor[at.DIRECTION_X, b] * pair.north[b] - pair.sensor[at.DIRECTION_Y, b] * pair.east[b]


@inlined
def _ahead(pair, b):
    """Return the cosine of the bearing."""
    return pair.sensor[at.DIRECTION_X, b] * pair.east[b] + pair.sensor[at.DIRECTION_Y, b] * pair.north[b]


@inlined
def _relative(speed, scales):
    """Return a speed / top speed, within the bound of the observation space."""
    return min(max(speed * scales.per_speed, -scales.most_speed), scales.most_speed)


@inlined
def _turns(y, x):
    """Return ``atan2(y, x) / pi`` in [-1, 1), to 1e-8, by a polynomial that the compiler can vectorise.

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


@inlined
def _target(j, number, b):
    """Return the target of a pair."""
    if number is None:
        return j
    return number[b]


@feature(0, 1)
def sensor_id(pair, scales, b):
    """I / n of the paper, i counted from 0."""
    return pair.i / pair.n


@feature(0, 1)
def target_id(pair, scales, b):
    """J / m of the paper, j counted from 0."""
    return _target(pair.j, pair.number, b) / pair.m


@feature(-1, 1)
def bearing(pair, scales, b):
    """Angle from the heading to the target / 180 deg, counter-clockwise."""
    return _turns(_aside(pair, b), _ahead(pair, b))


@feature(0, math.inf, farthest)
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
    return pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b] <= pair.sensor[at.RANGE_SQUARED, b]


@feature(0, 1)
def visible(pair, scales, b):
    """1 if the sensor sees the target."""
    return pair.noticed[b]


@feature(0, math.inf, lambda scenario: scenario.num_sensors)
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


@feature(0, 1, of_sensor=True)
def field_of_view(pair, scales, b):
    """The sensor's field of view / 360 deg, also shown for unknown targets."""
    return pair.sensor[at.FIELD_OF_VIEW, b] / 360.0


@feature(0, math.inf, longest_range)
def sensing_range(pair, scales, b):
    """The sensor's range / distance_scale of the scenario."""
    return math.sqrt(pair.sensor[at.RANGE_SQUARED, b]) * scales.per_distance


@feature(0, 1)
def turn(pair, scales, b):
    """Angle that the sensor turns in a sub-step / 180 deg."""
    return pair.sensor[at.TURN, b] / 180.0


@feature(0, 4)
def relative_distance(pair, scales, b):
    """Distance / the sensor's range, at most 4."""
    squared = (pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b]) / pair.sensor[at.RANGE_SQUARED, b]
    return math.sqrt(min(squared, 16.0))


@feature(-4, 4)
def relative_bearing(pair, scales, b):
    """Angle from the heading to the target / half the sensor's field of view, within +-4."""
    angle = _turns(_aside(pair, b), _ahead(pair, b)) * 360.0 / pair.sensor[at.FIELD_OF_VIEW, b]
    return min(max(angle, -4.0), 4.0)


@feature(0, 10)
def age(pair, scales, b):
    """Sub-steps since the target was last seen / 100, at most 10."""
    return min(pair.age[b] * 0.01, 10.0)


@feature(0, 1)
def seen_now(pair, scales, b):
    """1 if the target is seen in this sub-step."""
    return pair.age[b] == 0.0


@inlined
def _expected(pair, scales, b):
    """Return the offset of the target if it has kept its last known velocity, inside the arena."""
    gone = pair.age[b] * scales.pace
    x, y = pair.sensor[X, b] + pair.dx[b], pair.sensor[Y, b] + pair.dy[b]
    ahead_x = min(max(x + gone * pair.velocity_x[b], -scales.half_width), scales.half_width) - pair.sensor[X, b]
    ahead_y = min(max(y + gone * pair.velocity_y[b], -scales.half_height), scales.half_height) - pair.sensor[Y, b]
    return (ahead_x, ahead_y) if gone > 0.0 else (pair.dx[b], pair.dy[b])


@feature(0, math.inf, farthest, moving=True)
def expected_distance(pair, scales, b):
    """Distance of the expected position / distance_scale: the last seen one, extrapolated by the last seen velocity."""
    dx, dy = _expected(pair, scales, b)
    return math.sqrt(dx * dx + dy * dy) * scales.per_distance


@feature(-1, 1, moving=True)
def expected_sin(pair, scales, b):
    """Sine of the bearing of the expected position."""
    dx, dy = _expected(pair, scales, b)
    away = math.sqrt(dx * dx + dy * dy)
    aside = pair.sensor[at.DIRECTION_X, b] * dy - pair.sensor[at.DIRECTION_Y, b] * dx
    return aside / away if away > 0.0 else -pair.sensor[at.DIRECTION_Y, b]


@feature(-1, 1, moving=True)
def expected_cos(pair, scales, b):
    """Cosine of the bearing of the expected position."""
    dx, dy = _expected(pair, scales, b)
    away = math.sqrt(dx * dx + dy * dy)
    ahead = pair.sensor[at.DIRECTION_X, b] * dx + pair.sensor[at.DIRECTION_Y, b] * dy
    return ahead / away if away > 0.0 else pair.sensor[at.DIRECTION_X, b]


@feature(0, math.inf, diagonal)
def spread(pair, scales, b):
    """Distance that the target can have moved since it was last seen, at top speed / distance_scale."""
    return min(pair.age[b] * scales.pace * scales.top_speed, scales.diagonal) * scales.per_distance


@feature(-1, 1, of_sensor=True)
def sensor_x(pair, scales, b):
    """The sensor's x / half the width of the arena, also shown for unknown targets."""
    return pair.sensor[X, b] / scales.half_width


@feature(-1, 1, of_sensor=True)
def sensor_y(pair, scales, b):
    """The sensor's y / half the height of the arena, also shown for unknown targets."""
    return pair.sensor[Y, b] / scales.half_height


@feature(-1, 1, of_sensor=True)
def heading_sin(pair, scales, b):
    """Sine of the sensor's heading, also shown for unknown targets."""
    return pair.sensor[at.DIRECTION_Y, b]


@feature(-1, 1, of_sensor=True)
def heading_cos(pair, scales, b):
    """Cosine of the sensor's heading, also shown for unknown targets."""
    return pair.sensor[at.DIRECTION_X, b]


@feature(0, 1, of_sensor=True)
def along(pair, scales, b):
    """The sensor's place on its rail / length of the rail, also shown for unknown targets; 0 without a rail."""
    return pair.sensor[at.ALONG, b] / pair.sensor[at.RAIL_LENGTH, b] if pair.sensor[at.RAIL_LENGTH, b] > 0.0 else 0.0


@feature(-1, 1, of_sensor=True)
def rail_sin(pair, scales, b):
    """Sine of the rail's bearing from the heading, also shown for unknown targets; 0 without a rail."""
    return (
        pair.sensor[at.DIRECTION_X, b] * pair.sensor[at.RAIL_Y, b]
        - pair.sensor[at.DIRECTION_Y, b] * pair.sensor[at.RAIL_X, b]
    )


@feature(-1, 1, of_sensor=True)
def rail_cos(pair, scales, b):
    """Cosine of the rail's bearing from the heading, also shown for unknown targets; 0 without a rail."""
    return (
        pair.sensor[at.DIRECTION_X, b] * pair.sensor[at.RAIL_X, b]
        + pair.sensor[at.DIRECTION_Y, b] * pair.sensor[at.RAIL_Y, b]
    )


@feature(-1, 1, of_sensor=True)
def rate(pair, scales, b):
    """Rate of the sensor's motor / its highest rate, also shown for unknown targets; 0 without motors."""
    return pair.sensor[at.RATE, b] * scales.per_rate


@feature(-1, 1, most_pending, of_sensor=True)
def pending_turn(pair, scales, b):
    """Angle that the sensor still turns if no further rate is commanded / 180 deg, also shown for unknown targets."""
    return pair.sensor[at.PENDING, b] / 180.0


@feature(0, 1, line_of_sight=True)
def in_sight(pair, scales, b):
    """1 if no wall, block or disc stands between sensor and target, at any distance and heading."""
    return pair.clear[b]


@feature(0, 1, line_of_sight=True)
def seen_if_turned(pair, scales, b):
    """1 if the target is in sight and range, and the sensor has it in view at one of the headings in its pan limits."""
    squared = pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b]
    cos_view, cos_pan, sin_pan = (
        max(pair.sensor[at.COS_HALF_VIEW, b], -1.0), pair.sensor[at.COS_HALF_PAN, b], pair.sensor[at.SIN_HALF_PAN, b],
    )  # fmt: skip
    sin_view = math.sqrt(1.0 - cos_view * cos_view)
    within_half_turn = sin_pan * cos_view + cos_pan * sin_view > 0.0  # the sine of both angles together
    least = cos_pan * cos_view - sin_pan * sin_view if within_half_turn else -2.0
    ahead = pair.sensor[at.PAN_X, b] * pair.east[b] + pair.sensor[at.PAN_Y, b] * pair.north[b]
    return pair.clear[b] * ((squared <= pair.sensor[at.RANGE_SQUARED, b]) & (ahead > least))


@feature(0, 1)
def value(pair, scales, b):
    """Value of the target at its place / highest value in the scenario, see `zones` and `target_values`."""
    return pair.value[b]


write_feature = one_of(WRITERS)
"""Write a feature, by its index in the table, of a pair in the scenes `first` to `last` - 1."""
