"""Detections without names: lists of places, with misses, errors and false ones. Compiled by numba."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import compiled, inlined, kernel
from hitmac.envs.base.formulas import disc_blocks, row_or_0, unit, wall_blocks
from hitmac.envs.base.state import KernelState, X, Y
from hitmac.envs.base.streams import MOST_DRAWS, noise_key, pair_number, two_normals, uniform, word
from hitmac.envs.base.threads import blocks
from hitmac.envs.features import largest_error, longest_range, most_pending
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import check_sizes, two
from hitmac.envs.parts.obstacles import disc_at
from hitmac.envs.parts.tilt import nearest_edges
from hitmac.envs.validation import Range

_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the detections."""

    identities: bool = True
    """Observe which target is which; false: the observation of a sensor is a list of detections, without names and in
    random order, see :class:`~hitmac.envs.parts.detections.DetectionObserver`."""
    position_noise: Annotated[float | tuple[float, ...], Range(0)] = 0.0
    """Standard deviation, in each axis, of the error of a target's observed position; or without identities [along,
    across] the line of sight."""
    missed_detections: Annotated[float | tuple[float, ...], Range(0, 1)] = 0.0
    """Probability that a sensor misses a target that it sees, in one observation; or without identities [at the sensor,
    at its range, or with tilts at its far edge], linear in the distance."""
    false_detections: Annotated[float, Range(0, 1000)] = 0.0
    """Mean number of detections of no target, of a sensor in one observation, without identities: a Poisson number,
    uniform in the view inside the arena and in front of obstacles, with full knowledge in the arena."""

    def _rules_of_detections(self: Any) -> validation.Rules:
        for name, words in (("position_noise", "[along, across]"), ("missed_detections", "[near, far]")):
            two = not self.identities and np.size(getattr(self, name)) == 2
            single = not isinstance(getattr(self, name), tuple)
            yield name, single or two, f"one number, or without identities {words}"
        yield "false_detections", not (self.identities and self.false_detections), "0 with identities"

    @property
    def position_errors(self: Any) -> tuple[float, float]:
        """Standard deviation of the error of an observed position along and across the line of sight."""
        return two(self.position_noise)

    @property
    def miss_rates(self: Any) -> tuple[float, float]:
        """Probability that a sensor misses a target at its own place, and at its range."""
        return two(self.missed_detections)


class DetectionModel(NamedTuple):
    """Errors of detections."""

    noise: np.ndarray  # (2,) standard deviation along and across the line of sight
    missed: np.ndarray  # (2,) probability of a miss at the sensor, and at its range or beyond
    false: np.ndarray  # (K,) probability of at most 0, 1, ... K - 1 false detections
    everywhere: bool  # targets are detected wherever they are
    half_width: float  # of the arena
    half_height: float


@inlined
def _direction(dx, dy):
    """Return the unit vector of an offset."""
    return unit(dx, dy, math.sqrt(dx * dx + dy * dy))


@compiled
def _is_detected(state, model, key, i, j, b):
    """Return True if the working sensor i of scene b detects target j."""
    if not (state.visible[i, j, b] or (model.everywhere and state.present[j, b])):
        return False
    dx, dy = state.target[j, X, b] - state.sensor[i, X, b], state.target[j, Y, b] - state.sensor[i, Y, b]
    share = min(math.sqrt((dx * dx + dy * dy) / state.sensor[i, at.RANGE_SQUARED, b]), 1.0)
    missed = model.missed[0] + share * (model.missed[1] - model.missed[0])
    return uniform(key, _FOUR * pair_number(state, i, j) + _TWO) >= missed


@compiled
def _measure(state, model, key, i, j, b):
    """Return the place of target j that sensor i measures."""
    x, y = state.target[j, X, b], state.target[j, Y, b]
    if model.noise[0] > 0.0 or model.noise[1] > 0.0:
        east, north = _direction(x - state.sensor[i, X, b], y - state.sensor[i, Y, b])
        along, across = two_normals(1.0, key, pair_number(state, i, j))
        along, across = along * model.noise[0], across * model.noise[1]
        x += along * east - across * north
        y += along * north + across * east
    return x, y


@compiled
def _draw_place(state, model, key, counter, i, b):
    """Draw a place, uniform in the view of sensor i inside the arena and in front of obstacles.

    Returns the counter after the draw, True if a place was found, and x and y.
    """
    sensor = state.sensor[i]
    x, y = sensor[X, b], sensor[Y, b]
    for _ in range(MOST_DRAWS):
        first, second = uniform(key, counter), uniform(key, counter + _ONE)
        counter += _TWO
        if model.everywhere:
            return counter, True, (2.0 * first - 1.0) * model.half_width, (2.0 * second - 1.0) * model.half_height
        angle = math.radians(sensor[at.FIELD_OF_VIEW, b] * (first - 0.5))
        near = row_or_0(sensor, at.NEAR_SQUARED, b)
        distance = math.sqrt(near + max(sensor[at.RANGE_SQUARED, b] - near, 0.0) * second)
        ahead, aside = distance * math.cos(angle), distance * math.sin(angle)
        dx = ahead * sensor[at.DIRECTION_X, b] - aside * sensor[at.DIRECTION_Y, b]
        dy = ahead * sensor[at.DIRECTION_Y, b] + aside * sensor[at.DIRECTION_X, b]
        clear = abs(x + dx) <= model.half_width and abs(y + dy) <= model.half_height
        clear = clear and near <= sensor[at.RANGE_SQUARED, b]  # else it sees no floor
        for k in range(state.disc.shape[0]):
            clear = clear and not disc_blocks(x, y, dx, dy, disc_at(state.disc, k, b))
        for k in range(state.walls.shape[0]):
            clear = clear and not wall_blocks(x, y, dx, dy, state.walls[k])
        if clear:
            return counter, True, x + dx, y + dy
    return counter, False, 0.0, 0.0


@compiled
def _insert(model, sensor, b, x, y, chance, count, places):
    """Insert a detection at (x, y) at a random place of the first `count` + 1, as in a shuffle by Fisher and Yates.

    `chance` is a number in [0, 1). The covariance is that of the error about the line of sight to the detection.
    """
    chosen = int(chance * (count + 1))
    for c in range(places.shape[1]):
        places[count, c] = places[chosen, c]
    east, north = _direction(x - sensor[X, b], y - sensor[Y, b])
    across = model.noise[1] * model.noise[1]
    longer = model.noise[0] * model.noise[0] - across
    places[chosen, 0], places[chosen, 1] = x, y
    places[chosen, 2] = across + longer * east * east
    places[chosen, 3] = longer * east * north
    places[chosen, 4] = across + longer * north * north


@compiled
def _list_detections(state, model, i, b, places):
    """Write the detections of the working sensor i into zeros (d, 5); return their number."""
    n, m = state.sensor.shape[0], state.target.shape[0]
    key, count = noise_key(state, b), 0
    for j in range(m):
        if _is_detected(state, model, key, i, j, b):
            x, y = _measure(state, model, key, i, j, b)
            chance = uniform(key, _FOUR * pair_number(state, i, j) + _THREE)
            _insert(model, state.sensor[i], b, x, y, chance, count, places)
            count += 1
    if model.false.shape[0] > 0:
        # A stream of its own, since the number of its draws varies.
        key, counter = word(key, _FOUR * np.uint64(n * m) + np.uint64(i)), _ONE
        number, chance = 0, uniform(key, np.uint64(0))
        while number < model.false.shape[0] and model.false[number] <= chance:
            number += 1
        for _ in range(number):
            counter, found, x, y = _draw_place(state, model, key, counter, i, b)
            if not found:  # the view is empty
                break
            _insert(model, state.sensor[i], b, x, y, uniform(key, counter), count, places)
            counter += _ONE
            count += 1
    return count


@inlined
def _detect_scenes(state, model, detections, mask, sensors, first, last):
    """Write the observation of the scenes `first` to `last` - 1."""
    for b in range(first, last):
        for i in range(sensors.shape[1]):
            if state.working[i, b]:
                own, sensor = sensors[b, i], state.sensor[i]
                own[0], own[1] = sensor[X, b], sensor[Y, b]
                own[2], own[3] = sensor[at.DIRECTION_Y, b], sensor[at.DIRECTION_X, b]
                own[4], own[5] = 0.5 * sensor[at.FIELD_OF_VIEW, b], math.sqrt(sensor[at.RANGE_SQUARED, b])
                if sensor[at.RAIL_LENGTH, b] > 0.0:
                    own[6] = sensor[at.ALONG, b] / sensor[at.RAIL_LENGTH, b]
                tilts = sensor.shape[0] > at.NUM_ROWS
                if own.shape[0] > 7 + 2 * tilts:
                    own[7], own[8] = sensor[at.RATE, b], sensor[at.PENDING, b]
                if tilts:
                    own[-2], own[-1] = sensor[at.TILT, b], math.sqrt(sensor[at.NEAR_SQUARED, b])
                count = _list_detections(state, model, i, b, detections[b, i])
                for k in range(count):
                    mask[b, i, k] = 1


@kernel
def detect(rows, model, detections, mask, sensors, share):
    """Write lists of detections (B, n, d, 5), their mask (B, n, d) and the sensors (B, n, 7 or more) into zeros.

    See :class:`hitmac.envs.parts.detections.DetectionObserver`. The same state gives the same detections.
    """
    state = KernelState(*rows)
    for low, high in blocks(detections.shape[0], share):
        _detect_scenes(state, model, detections, mask, sensors, np.uint64(low), np.uint64(high))


def _at_most(mean: float) -> np.ndarray:
    """Return the probabilities that a Poisson number is at most 0, 1, ... K - 1, where P(more than K) < 1e-6."""
    most = 30 + int(mean + 10.0 * math.sqrt(mean))
    chances = np.array([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most) if mean > 0.0])
    cumulative = chances.cumsum()
    return cumulative[cumulative <= 1.0 - 1e-6]


class DetectionObserver:
    """Observer of detections without names, as real detectors make them, of a scenario with `identities` false.

    At every moment each working sensor lists the targets that it sees, except for missed ones, and false detections,
    in random order. The error of a place is normal, with the covariance
    ``along^2 u u' + across^2 (I - u u')``, where u is the unit vector of the line of sight and `position_noise` is
    (along, across); the covariance shown is that of the line of sight to the detection. A target at a share s of the
    sensor's range, or with tilts of the distance of its far edge, is missed with the probability
    ``near + s (far - near)``, where `missed_detections` is (near, far).
    Every sub-step has its own errors, the same in repeated observations, and the number of targets is not shown.

    With the knowledge ``"full"`` a sensor detects all targets, also out of view, and false detections are anywhere
    in the arena. The other kinds of `knowledge` have the same observation: sharing it is the agents' part.

    Attributes:
        features: ``("detections",)``.
        space: a ``Dict`` of

            - ``detections``, Box (n, d, 5) float32: x, y, and the covariance xx, xy, yy of their error, in the
              scenario's units and their square. The first places of a row are taken, the others 0. d is m + K, where K
              is the least number that false detections exceed with a probability under 1e-6; more are left out;
            - ``mask``, MultiBinary (n, d): 1 for a detection;
            - ``sensors``, Box (n, 7) float32: x, y, sine and cosine of the heading, half the field of view in degrees,
              range, and the place on its rail / length of the rail; with motors (n, 9), also the rate in degrees per
              second, and the pending turn in degrees; with tilts two more, the tilt in degrees and the distance of the
              near edge; 0 for a sensor that does not work.
    """

    features = ("detections",)

    def __init__(self, scenario: Any) -> None:
        n, m = scenario.num_sensors, scenario.num_targets
        self._model = DetectionModel(
            noise=np.array(scenario.position_errors),
            missed=np.array(scenario.miss_rates),
            false=_at_most(scenario.false_detections),
            everywhere=scenario.knowledge == "full",
            half_width=scenario.extent[0],
            half_height=scenario.extent[1],
        )
        self._shape = n, m, m + len(self._model.false)
        (width, height), error = scenario.extent, largest_error(scenario)
        spread = (2.0 * max(scenario.position_errors)) ** 2 or 1.0  # a Box has a width
        reach = longest_range(scenario) * scenario.distance_scale
        places = n, self._shape[2]
        high = np.tile(np.array([width + error, height + error, *[spread] * 3], np.float32), (*places, 1))
        moving = [scenario.rates[1], 180 * most_pending(scenario)] if scenario.turn_rates else []
        tilting = [90, nearest_edges(scenario)] if scenario.tilt_limits else []
        most = np.tile(np.array([width, height, 1, 1, 180, reach, 1, *moving, *tilting], np.float32), (n, 1))
        least = most * np.array([-1] * 4 + [0] * 3 + [-1] * len(moving) + [0] * len(tilting), np.float32)
        self.space = spaces.Dict(
            detections=spaces.Box(-high, high, dtype=np.float32),
            mask=spaces.MultiBinary(places),
            sensors=spaces.Box(least, most, dtype=np.float32),
        )

    def observe(self, simulator: Any) -> dict[str, np.ndarray]:
        """Return new arrays, those of :attr:`space` with the scenes along a first axis."""
        n, m, d = self._shape
        check_sizes(simulator, n, m)
        detections = np.zeros((simulator.num_envs, n, d, 5), np.float32)
        mask = np.zeros(detections.shape[:-1], np.int8)
        sensors = np.zeros((simulator.num_envs, *self.space["sensors"].shape), np.float32)  # type: ignore[misc]
        simulator.run(detect, self._model, detections, mask, sensors, rows=simulator.observed)
        return {"detections": detections, "mask": mask, "sensors": sensors}
