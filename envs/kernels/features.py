"""Observation features: numbers of a sensor and a target, each an equation. Compiled by numba.

To add one, write a function ``name(pair, scales, b)``, which returns the number in scene b, with a line that says what
it means, under :func:`feature` with its range, and its line in :data:`hitmac.envs.measured.FEATURES`.
"""

import math

from hitmac.envs.kernels.compiled import inlined, one_of
from hitmac.envs.kernels.feature_table import (
    WRITERS,
    diagonal,
    farthest,
    feature,
    longest_range,
    most_speed,
    num_sensors,
)
from hitmac.envs.kernels.state import (
    ALONG,
    DIRECTION_X,
    DIRECTION_Y,
    FIELD_OF_VIEW,
    RAIL_LENGTH,
    RAIL_X,
    RAIL_Y,
    RANGE_SQUARED,
    TURN,
    X,
    Y,
)  # fmt: skip


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
    return pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b] <= pair.sensor[RANGE_SQUARED, b]


@feature(0, 1)
def visible(pair, scales, b):
    """1 if the sensor sees the target."""
    return pair.noticed[b]


@feature(0, math.inf, num_sensors)
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


@feature(0, math.inf, longest_range)
def sensing_range(pair, scales, b):
    """The sensor's range / distance_scale of the scenario."""
    return math.sqrt(pair.sensor[RANGE_SQUARED, b]) * scales.per_distance


@feature(0, 1)
def turn(pair, scales, b):
    """Angle that the sensor turns in a sub-step / 180 deg."""
    return pair.sensor[TURN, b] / 180.0


@feature(0, 4)
def relative_distance(pair, scales, b):
    """Distance / the sensor's range, at most 4."""
    squared = (pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b]) / pair.sensor[RANGE_SQUARED, b]
    return math.sqrt(min(squared, 16.0))


@feature(-4, 4)
def relative_bearing(pair, scales, b):
    """Angle from the heading to the target / half the sensor's field of view, within +-4."""
    angle = _turns(_aside(pair, b), _ahead(pair, b)) * 360.0 / pair.sensor[FIELD_OF_VIEW, b]
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
    """Return the offset of where the target is if it has kept its last known velocity, inside the arena."""
    gone = pair.age[b] * scales.pace
    x, y = pair.sensor[X, b] + pair.dx[b], pair.sensor[Y, b] + pair.dy[b]
    ahead_x = min(max(x + gone * pair.velocity_x[b], -scales.half_width), scales.half_width) - pair.sensor[X, b]
    ahead_y = min(max(y + gone * pair.velocity_y[b], -scales.half_height), scales.half_height) - pair.sensor[Y, b]
    return (ahead_x, ahead_y) if gone > 0.0 else (pair.dx[b], pair.dy[b])


@feature(0, math.inf, farthest, moving=True)
def expected_distance(pair, scales, b):
    """Distance of the expected position / distance_scale: the last seen one, moved on by the last seen velocity."""
    dx, dy = _expected(pair, scales, b)
    return math.sqrt(dx * dx + dy * dy) * scales.per_distance


@feature(-1, 1, moving=True)
def expected_sin(pair, scales, b):
    """Sine of the bearing of the expected position."""
    dx, dy = _expected(pair, scales, b)
    away = math.sqrt(dx * dx + dy * dy)
    aside = pair.sensor[DIRECTION_X, b] * dy - pair.sensor[DIRECTION_Y, b] * dx
    return aside / away if away > 0.0 else -pair.sensor[DIRECTION_Y, b]


@feature(-1, 1, moving=True)
def expected_cos(pair, scales, b):
    """Cosine of the bearing of the expected position."""
    dx, dy = _expected(pair, scales, b)
    away = math.sqrt(dx * dx + dy * dy)
    ahead = pair.sensor[DIRECTION_X, b] * dx + pair.sensor[DIRECTION_Y, b] * dy
    return ahead / away if away > 0.0 else pair.sensor[DIRECTION_X, b]


@feature(0, math.inf, diagonal)
def spread(pair, scales, b):
    """Distance that the target can have gone since it was last seen, at top speed / distance_scale."""
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
    return pair.sensor[DIRECTION_Y, b]


@feature(-1, 1, of_sensor=True)
def heading_cos(pair, scales, b):
    """Cosine of the sensor's heading, also shown for unknown targets."""
    return pair.sensor[DIRECTION_X, b]


@feature(0, 1, of_sensor=True)
def along(pair, scales, b):
    """The sensor's place on its rail / length of the rail, also shown for unknown targets; 0 without a rail."""
    return pair.sensor[ALONG, b] / pair.sensor[RAIL_LENGTH, b] if pair.sensor[RAIL_LENGTH, b] > 0.0 else 0.0


@feature(-1, 1, of_sensor=True)
def rail_sin(pair, scales, b):
    """Sine of the rail's bearing from the heading, also shown for unknown targets; 0 without a rail."""
    return pair.sensor[DIRECTION_X, b] * pair.sensor[RAIL_Y, b] - pair.sensor[DIRECTION_Y, b] * pair.sensor[RAIL_X, b]


@feature(-1, 1, of_sensor=True)
def rail_cos(pair, scales, b):
    """Cosine of the rail's bearing from the heading, also shown for unknown targets; 0 without a rail."""
    return pair.sensor[DIRECTION_X, b] * pair.sensor[RAIL_X, b] + pair.sensor[DIRECTION_Y, b] * pair.sensor[RAIL_Y, b]


write_feature = one_of(WRITERS)
"""Write a feature, by its index in the table, of a pair in the scenes `first` to `last` - 1."""
