"""Observation features and the laws of physics, each one formula for kernels and for measured positions.

Kernels compile the formulas for scene b of a batch, see :mod:`hitmac.envs.base.formulas`. For measured positions
NumPy evaluates the same formulas on arrays, with ``...`` as b, see :mod:`hitmac.envs.deployment`. So a formula calls
`choose`, `least` and `most` in place of ``if``, ``min`` and ``max``. The file can be copied with that module,
since it needs only NumPy.

To add a feature, add it to :data:`FEATURES`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

# Functions that kernels replace by those of numbers.
choose, least, most, sqrt, cos, tan, radians, floor, copysign = (
    np.where, np.minimum, np.maximum, np.sqrt, np.cos, np.tan, np.radians, np.floor, np.copysign,
)  # fmt: skip

# Rows of a sensor: first the variable ones, then those fixed by the scenario.
(
    X, Y, HEADING, DIRECTION_X, DIRECTION_Y, FIELD_OF_VIEW, RANGE_SQUARED, COS_HALF_VIEW, ALONG, RAIL_X, RAIL_Y, RATE,
    PENDING, START_VIEW, VIEW_AREA, TURN, COS_TURN, SIN_TURN, RAIL_LENGTH, PAN_X, PAN_Y, COS_HALF_PAN, SIN_HALF_PAN,
) = range(23)  # fmt: skip
NUM_ROWS = 23
TILT, NEAR_SQUARED = NUM_ROWS, NUM_ROWS + 1  # further rows of sensors that tilt


def wrapped(degrees, middle=0.0):
    """Return an angle in [middle - 180, middle + 180), degrees."""
    return degrees - 360.0 * floor((degrees - middle + 180.0) / 360.0)


def half_turns(y, x):
    """Return ``atan2(y, x) / pi`` in [-1, 1); kernels replace it by a polynomial."""
    turns = np.arctan2(y, x) / math.pi
    return np.where(turns < 1.0, turns, -1.0)


def unit(dx, dy, distance):
    """Return the unit vector of an offset; (1, 0) for none, since atan2(0, 0) = 0."""
    return choose(distance > 0.0, dx / distance, 1.0), choose(distance > 0.0, dy / distance, 0.0)


def view_area(sensing_range, field_of_view):
    """Return ``range^2 * field_of_view``, which a zooming lens keeps constant."""
    return sensing_range * sensing_range * field_of_view


def range_squared(area, field_of_view):
    """Return the squared range of a lens with the area of :func:`view_area`."""
    return area / field_of_view


def cos_half_view(field_of_view):
    """Return the cosine of half a field of view, degrees.

    That of 360 degrees is below every cosine, so that a target exactly behind is also seen.
    """
    return choose(field_of_view < 360.0, cos(radians(field_of_view / 2.0)), -2.0)


def in_view(direction_x, direction_y, squared_range, cosine, dx, dy):
    """Return True for an offset within the range (inclusive) and the field of view (exclusive) of a sensor."""
    dx = choose((dx == 0.0) & (dy == 0.0), 1.0, dx)
    squared = dx * dx + dy * dy
    return (squared <= squared_range) & (direction_x * dx + direction_y * dy > cosine * sqrt(squared))


def floor_edges(squared_range, height, tilt, half_view):
    """Return the squared distances of the far and the near edge of the floor in view, see :mod:`.parts.tilt`."""
    far = height / tan(radians(most(tilt - half_view, 0.0)))
    near = height / tan(radians(least(tilt + half_view, 90.0)))
    return least(far * far, squared_range), near * near


def row_or_0(sensor, row, b):
    """Return a row of a sensor that only some scenes have, 0 without it; kernels replace this function."""
    return sensor[row, b]


def disc_blocks(x, y, dx, dy, disc):
    """Return True if the line of sight from (x, y) to the offset (dx, dy) crosses a disc (x, y, radius)."""
    squared, (disc_x, disc_y, radius) = dx * dx + dy * dy, disc
    along = choose(squared > 0.0, ((disc_x - x) * dx + (disc_y - y) * dy) / squared, 0.0)
    along = least(most(along, 0.0), 1.0)
    off_x = disc_x - x - along * dx
    off_y = disc_y - y - along * dy
    return off_x * off_x + off_y * off_y < radius * radius


def wall_blocks(x, y, dx, dy, wall):
    """Return True if the line of sight from (x, y) to the offset (dx, dy) meets a wall (x1, y1, x2, y2)."""
    wall_x = wall[2] - wall[0]
    wall_y = wall[3] - wall[1]
    cross = dx * wall_y - dy * wall_x
    sight = (wall[0] - x) * wall_y - (wall[1] - y) * wall_x  # / cross: position on the line of sight
    place = (wall[0] - x) * dy - (wall[1] - y) * dx  # / cross: position on the wall
    sight = choose(cross > 0.0, sight, -sight)
    place = choose(cross > 0.0, place, -place)
    length = abs(cross)
    return (length > 0.0) & (sight >= 0.0) & (sight <= length) & (place >= 0.0) & (place <= length)


def meets_side(x1, y1, x2, y2, x, y):
    """Return True if (x, y) lies on a side of a polygon, and True if a ray from it along x crosses the side."""
    left = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)  # over 0: left of the side
    between = (least(x1, x2) <= x) & (x <= most(x1, x2)) & (least(y1, y2) <= y) & (y <= most(y1, y2))
    return (left == 0.0) & between, ((y1 > y) != (y2 > y)) & ((left > 0.0) == (y2 > y1))


def is_inside(corner, first, last, x, y):
    """Return True if (x, y) lies in the polygon of the corners `first` to `last` - 1 or on its border.

    A point is inside if a ray from it crosses an odd number of sides.
    """
    inside, border, before = False, False, last - 1
    for k in range(first, last):
        on_side, crossed = meets_side(corner[before, X], corner[before, Y], corner[k, X], corner[k, Y], x, y)
        border, inside, before = border | on_side, inside ^ crossed, k
    return inside | border


class Values(NamedTuple):
    """Values of targets by number and by place."""

    target: np.ndarray  # (m + 1,) value of each target outside all zones; then their mean
    corner: np.ndarray  # (C, 2) corners of all zones
    first: np.ndarray  # (Z + 1,) int64: first corner of each zone
    zone: np.ndarray  # (Z,) factor of each zone; of several, the last counts


def value_of(values, j, x, y):
    """Return the value of target j at (x, y); beyond the last target, of one that nobody has seen yet."""
    if values is None:
        return 1.0
    factor: Any = 1.0
    for zone in range(values.zone.shape[0]):
        inside = is_inside(values.corner, values.first[zone], values.first[zone + 1], x, y)
        factor = choose(inside, values.zone[zone], factor)
    return values.target[least(j, values.target.shape[0] - 1)] * factor


class Motor(NamedTuple):
    """Constants of the motors that turn sensors; rates are in degrees per second."""

    lowest: float
    highest: float
    dead_zone: float
    change: float  # largest change of the rate in a sub-step
    lag: float  # 1 / (2 * acceleration)


def motor_of(site: Any) -> Motor:
    """Return the constants of the motors of a scenario or site."""
    (lowest, highest), a = site.rates, site.acceleration
    change, lag = (a * site.time_step, 0.5 / a) if a else (math.inf, 0.0)
    return Motor(lowest, highest, site.dead_zone, change, lag)


def follow_command(motor, time_step, rate, command):
    """Return the rate of a motor after a sub-step in which it follows a command, and the angle turned.

    A commanded rate within the dead zone counts as 0, any other is limited to [lowest, highest]. The rate r changes by
    the acceleration a until it is the commanded one; with r' at the end of the sub-step, the angle is
    ``r' time_step - (r' - r) abs(r' - r) / (2 a)``.
    """
    size = abs(command)
    wanted = copysign(choose(size > motor.dead_zone, least(most(size, motor.lowest), motor.highest), 0.0), command)
    change = least(most(wanted - rate, -motor.change), motor.change)
    return rate + change, (rate + change) * time_step - motor.lag * change * abs(change)


def coasted(motor, rate):
    """Return the angle that a sensor turns from a rate until its motor has stopped."""
    return motor.lag * rate * abs(rate)


def pan_rows(low, high):
    """Return unit vector (x, y) of the middle of pan limits, degrees, and cosine and sine of half their width."""
    middle, half = np.radians((low + high) / 2.0), np.radians(np.minimum((high - low) / 2.0, 180.0))
    return np.cos(middle), np.sin(middle), np.cos(half), np.sin(half)


def rail_corners(polyline: Sequence[Sequence[float]]) -> np.ndarray:
    """Return the corners of a rail (c, 5): x, y, distance along the rail, and the unit vector to the next corner.

    Corners on their predecessors are left out. The last corner has the unit vector of the one before, or 0.
    """
    points = np.array(polyline, np.float64)
    gone = np.cumsum(np.append(0.0, np.hypot(*np.diff(points, axis=0).T)))
    apart = np.append(True, np.diff(gone) > 0)
    points, gone = points[apart], gone[apart]
    ways = np.diff(points, axis=0) / np.diff(gone)[:, None]
    return np.column_stack((points, gone, np.concatenate((ways, ways[-1:] if len(ways) else np.zeros((1, 2))))))


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
    values: Values | None  # of the scenario; None: 1
    number: np.ndarray | None = None  # (B,) the target, where it is not j throughout


class Feature(NamedTuple):
    """Range, meaning and formula of an observation feature, one number of a pair."""

    low: float
    high: float
    meaning: str
    formula: Callable[..., Any]
    """The number in scene b, ``formula(pair, scales, b)``."""
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


def largest_error(scenario: Any) -> float:
    """Return a bound of the error of an observed position: normal numbers of Box and Muller are below 9."""
    return 9 * max(scenario.position_errors)


def most_speed(scenario: Any) -> float:
    """Return the highest observed speed / top speed; a velocity has the errors of two positions."""
    error = largest_error(scenario)
    return 1 + 2 * error / scenario.time_step / scenario.top_speed if error else 1.0


def farthest(scenario: Any) -> float:
    """Return a bound of an observed distance / distance_scale."""
    error = largest_error(scenario)
    half_width, half_height = scenario.extent
    return 2 * math.hypot(half_width + error, half_height + error) / scenario.distance_scale


def most_pending(scenario: Any) -> float:
    """Return the largest angle that a sensor can still turn without a further command / 180 deg."""
    highest, a = scenario.turn_rates and scenario.rates[1], scenario.acceleration
    coasting = 0.5 * highest / a if a else 0.0  # seconds at the highest rate
    return highest * (scenario.command_delay * scenario.time_step + coasting) / 180.0 or 1.0  # a Box has a width


def longest_ranges(scenario: Any) -> np.ndarray:
    """Return the longest range (n,) of each sensor, at its narrowest view."""
    reach, view = scenario.of_each_sensor("sensing_range"), scenario.of_each_sensor("field_of_view")
    return np.sqrt(range_squared(view_area(reach, view), scenario.zoom[0])) if scenario.zoom else reach


def longest_range(scenario: Any) -> float:
    """Return the longest range of all sensors / distance_scale."""
    return longest_ranges(scenario).max() / scenario.distance_scale


SCALES: dict[str, Callable[[Any], float]] = {
    "per_distance": lambda site: 1.0 / site.distance_scale,
    "per_speed": lambda site: 1.0 / site.top_speed,
    "per_time": lambda site: 1.0 / site.time_step,
    "per_value": lambda site: 1.0 / site.highest_value,
    "per_rate": lambda site: 1.0 / site.rates[1],
    "most_speed": most_speed,
    "top_speed": lambda site: site.top_speed,
    "half_width": lambda site: site.extent[0],
    "half_height": lambda site: site.extent[1],
    "diagonal": lambda site: 2.0 * math.hypot(*site.extent),
    "pace": lambda site: site.time_step * (1.0 + 1.0 / site.extra_move_interval if site.extra_move_interval else 1.0),
}
"""Scales of the features, by name, from a scenario or site; `pace` is the mean time that a target walks in a sub-step,
`most_speed` the highest scaled speed."""


def _sine(pair, x, y, b):
    """Return the length of a vector times the sine of its angle from the heading."""
    return pair.sensor[DIRECTION_X, b] * y - pair.sensor[DIRECTION_Y, b] * x


def _cosine(pair, x, y, b):
    return pair.sensor[DIRECTION_X, b] * x + pair.sensor[DIRECTION_Y, b] * y


def _bearing(pair, b):
    """Return the angle from the heading to the target / 180 degrees."""
    return half_turns(_sine(pair, pair.east[b], pair.north[b], b), _cosine(pair, pair.east[b], pair.north[b], b))


def _squared(pair, b):
    return pair.dx[b] * pair.dx[b] + pair.dy[b] * pair.dy[b]


def _radial(pair, b):
    return pair.velocity_x[b] * pair.east[b] + pair.velocity_y[b] * pair.north[b]


def _tangential(pair, b):
    return pair.velocity_y[b] * pair.east[b] - pair.velocity_x[b] * pair.north[b]


def _relative(speed, scales):
    """Return a speed / top speed, within the bound of the observation space."""
    return least(most(speed * scales.per_speed, -scales.most_speed), scales.most_speed)


def _target(j, number, b):
    return j if number is None else number[b]


def _expected(pair, scales, b):
    """Return the offset (x, y) of the target if it has kept its last known velocity, inside the arena."""
    gone = pair.age[b] * scales.pace
    x, y = pair.sensor[X, b] + pair.dx[b], pair.sensor[Y, b] + pair.dy[b]
    ahead_x = least(most(x + gone * pair.velocity_x[b], -scales.half_width), scales.half_width) - pair.sensor[X, b]
    ahead_y = least(most(y + gone * pair.velocity_y[b], -scales.half_height), scales.half_height) - pair.sensor[Y, b]
    return choose(gone > 0.0, ahead_x, pair.dx[b]), choose(gone > 0.0, ahead_y, pair.dy[b])


def _expected_distance(pair, scales, b):
    dx, dy = _expected(pair, scales, b)
    return sqrt(dx * dx + dy * dy) * scales.per_distance


def _expected_sin(pair, scales, b):
    dx, dy = _expected(pair, scales, b)
    away = sqrt(dx * dx + dy * dy)
    return choose(away > 0.0, _sine(pair, dx, dy, b) / away, -pair.sensor[DIRECTION_Y, b])


def _expected_cos(pair, scales, b):
    dx, dy = _expected(pair, scales, b)
    away = sqrt(dx * dx + dy * dy)
    return choose(away > 0.0, _cosine(pair, dx, dy, b) / away, pair.sensor[DIRECTION_X, b])


def _share_of_rail(pair, scales, b):
    length = pair.sensor[RAIL_LENGTH, b]
    return choose(length > 0.0, pair.sensor[ALONG, b] / length, 0.0)


def _beyond_edges(pair, scales, b):
    before = sqrt(row_or_0(pair.sensor, NEAR_SQUARED, b)) - pair.distance[b]
    beyond = pair.distance[b] - sqrt(pair.sensor[RANGE_SQUARED, b])
    return scales.per_distance * choose(before > 0.0, -least(before, scales.diagonal), most(beyond, 0.0))


def _between_edges(pair, b):
    squared = _squared(pair, b)
    return (squared <= pair.sensor[RANGE_SQUARED, b]) & (squared >= row_or_0(pair.sensor, NEAR_SQUARED, b))


def _seen_if_turned(pair, scales, b):
    own = pair.sensor
    cos_view, cos_pan, sin_pan = most(own[COS_HALF_VIEW, b], -1.0), own[COS_HALF_PAN, b], own[SIN_HALF_PAN, b]
    sin_view = sqrt(1.0 - cos_view * cos_view)
    within_half_turn = sin_pan * cos_view + cos_pan * sin_view > 0.0  # the sine of both angles together
    lowest = choose(within_half_turn, cos_pan * cos_view - sin_pan * sin_view, -2.0)
    ahead = own[PAN_X, b] * pair.east[b] + own[PAN_Y, b] * pair.north[b]
    return pair.clear[b] * (_between_edges(pair, b) & (ahead > lowest))


def _value(pair, scales, b):
    x, y = pair.sensor[X, b] + pair.dx[b], pair.sensor[Y, b] + pair.dy[b]
    return value_of(pair.values, _target(pair.j, pair.number, b), x, y) * scales.per_value


FEATURES = {
    "sensor_id": Feature(0, 1, "I / n of the paper, i counted from 0", lambda pair, scales, b: pair.i / pair.n),
    "target_id": Feature(
        0, 1, "J / m of the paper, j counted from 0",
        lambda pair, scales, b: _target(pair.j, pair.number, b) / pair.m,
    ),
    "bearing": Feature(
        -1, 1, "Angle from the heading to the target / 180 deg, counter-clockwise",
        lambda pair, scales, b: _bearing(pair, b),
    ),
    "distance": Feature(
        0, math.inf, "Distance / distance_scale of the scenario",
        lambda pair, scales, b: pair.distance[b] * scales.per_distance, highest=farthest,
    ),
    "bearing_sin": Feature(
        -1, 1, "Sine of the bearing", lambda pair, scales, b: _sine(pair, pair.east[b], pair.north[b], b)
    ),
    "bearing_cos": Feature(
        -1, 1, "Cosine of the bearing", lambda pair, scales, b: _cosine(pair, pair.east[b], pair.north[b], b)
    ),
    "in_range": Feature(
        0, 1, "1 if the target is within the sensing range",
        lambda pair, scales, b: _squared(pair, b) <= pair.sensor[RANGE_SQUARED, b],
    ),
    "visible": Feature(0, 1, "1 if the sensor sees the target", lambda pair, scales, b: pair.noticed[b]),
    "others_seeing": Feature(
        0, math.inf, "Number of other sensors that see the target",
        lambda pair, scales, b: pair.seeing[b] - pair.noticed[b], highest=lambda scenario: scenario.num_sensors,
    ),
    "radial_velocity": Feature(
        -1, 1, "Speed away from the sensor / top speed, in the last move",
        lambda pair, scales, b: _relative(_radial(pair, b), scales), moving=True, highest=most_speed,
    ),
    "tangential_velocity": Feature(
        -1, 1, "Speed counter-clockwise around the sensor / top speed, in the last move",
        lambda pair, scales, b: _relative(_tangential(pair, b), scales), moving=True, highest=most_speed,
    ),
    "field_of_view": Feature(
        0, 1, "The sensor's field of view / 360 deg, also shown for unknown targets",
        lambda pair, scales, b: pair.sensor[FIELD_OF_VIEW, b] / 360.0, of_sensor=True,
    ),
    "sensing_range": Feature(
        0, math.inf, "The sensor's range / distance_scale of the scenario",
        lambda pair, scales, b: sqrt(pair.sensor[RANGE_SQUARED, b]) * scales.per_distance, highest=longest_range,
    ),
    "turn": Feature(
        0, 1, "Angle that the sensor turns in a sub-step / 180 deg",
        lambda pair, scales, b: pair.sensor[TURN, b] / 180.0,
    ),
    "relative_distance": Feature(
        0, 4, "Distance / the sensor's range, at most 4",
        lambda pair, scales, b: sqrt(least(_squared(pair, b) / pair.sensor[RANGE_SQUARED, b], 16.0)),
    ),
    "relative_bearing": Feature(
        -4, 4, "Angle from the heading to the target / half the sensor's field of view, within +-4",
        lambda pair, scales, b: least(most(_bearing(pair, b) * 360.0 / pair.sensor[FIELD_OF_VIEW, b], -4.0), 4.0),
    ),
    "age": Feature(
        0, 10, "Sub-steps since the target was last seen / 100, at most 10",
        lambda pair, scales, b: least(pair.age[b] * 0.01, 10.0),
    ),
    "seen_now": Feature(0, 1, "1 if the target is seen in this sub-step", lambda pair, scales, b: pair.age[b] == 0.0),
    "expected_distance": Feature(
        0, math.inf, "Distance of the expected position / distance_scale: the last seen one, extrapolated by "
        "the last seen velocity",
        _expected_distance, moving=True, highest=farthest,
    ),
    "expected_sin": Feature(-1, 1, "Sine of the bearing of the expected position", _expected_sin, moving=True),
    "expected_cos": Feature(-1, 1, "Cosine of the bearing of the expected position", _expected_cos, moving=True),
    "spread": Feature(
        0, math.inf, "Distance that the target can have moved since it was last seen, at top speed / distance_scale",
        lambda pair, scales, b: scales.per_distance
        * least(pair.age[b] * scales.pace * scales.top_speed, scales.diagonal),
        highest=lambda scenario: SCALES["diagonal"](scenario) / scenario.distance_scale,
    ),
    "sensor_x": Feature(
        -1, 1, "The sensor's x / half the width of the arena, also shown for unknown targets",
        lambda pair, scales, b: pair.sensor[X, b] / scales.half_width, of_sensor=True,
    ),
    "sensor_y": Feature(
        -1, 1, "The sensor's y / half the height of the arena, also shown for unknown targets",
        lambda pair, scales, b: pair.sensor[Y, b] / scales.half_height, of_sensor=True,
    ),
    "heading_sin": Feature(
        -1, 1, "Sine of the sensor's heading, also shown for unknown targets",
        lambda pair, scales, b: pair.sensor[DIRECTION_Y, b], of_sensor=True,
    ),
    "heading_cos": Feature(
        -1, 1, "Cosine of the sensor's heading, also shown for unknown targets",
        lambda pair, scales, b: pair.sensor[DIRECTION_X, b], of_sensor=True,
    ),
    "along": Feature(
        0, 1, "The sensor's place on its rail / length of the rail, also shown for unknown targets; 0 without a rail",
        _share_of_rail, of_sensor=True,
    ),
    "rail_sin": Feature(
        -1, 1, "Sine of the rail's bearing from the heading, also shown for unknown targets; 0 without a rail",
        lambda pair, scales, b: _sine(pair, pair.sensor[RAIL_X, b], pair.sensor[RAIL_Y, b], b), of_sensor=True,
    ),
    "rail_cos": Feature(
        -1, 1, "Cosine of the rail's bearing from the heading, also shown for unknown targets; 0 without a rail",
        lambda pair, scales, b: _cosine(pair, pair.sensor[RAIL_X, b], pair.sensor[RAIL_Y, b], b), of_sensor=True,
    ),
    "rate": Feature(
        -1, 1, "Rate of the sensor's motor / its highest rate, also shown for unknown targets; 0 without motors",
        lambda pair, scales, b: pair.sensor[RATE, b] * scales.per_rate, of_sensor=True,
    ),
    "pending_turn": Feature(
        -1, 1, "Angle that the sensor still turns if no further rate is commanded / 180 deg, also "
        "shown for unknown targets",
        lambda pair, scales, b: pair.sensor[PENDING, b] / 180.0, of_sensor=True, highest=most_pending,
    ),
    "tilt": Feature(
        0, 1, "The sensor's tilt below the horizon / 90 deg, also shown for unknown targets; 0 without tilts",
        lambda pair, scales, b: row_or_0(pair.sensor, TILT, b) / 90.0, of_sensor=True,
    ),
    "between_edges": Feature(
        0, 1, "1 if the target is between the near and the far edge of the sensor's view, at any heading",
        lambda pair, scales, b: _between_edges(pair, b),
    ),
    "beyond_edges": Feature(
        -1, math.inf, "Distance of the target beyond the far edge of the sensor's view, or before the near edge with a "
        "minus, / distance_scale; 0 in between",
        _beyond_edges, highest=farthest,
    ),
    "in_sight": Feature(
        0, 1, "1 if no wall, block or disc stands between sensor and target, at any distance and heading",
        lambda pair, scales, b: pair.clear[b], line_of_sight=True,
    ),
    "seen_if_turned": Feature(
        0, 1, "1 if the target is in sight and range, and the sensor has it in view at one of the headings in "
        "its pan limits",
        _seen_if_turned, line_of_sight=True,
    ),
    "value": Feature(
        0, 1, "Value of the target at its place / highest value in the scenario, see `zones` and `target_values`",
        _value,
    ),
}  # fmt: skip
"""The observation features, by name."""
