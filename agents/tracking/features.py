"""Features of beliefs for learned policies."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from hitmac.agents.policy import Observation, Starts, State
from hitmac.agents.tracking import sight
from hitmac.agents.tracking.beliefs import AGE, Beliefs, BeliefState, Rules, Scene
from hitmac.agents.tracking.carriers import has_bounty
from hitmac.agents.tracking.recorded import Pieces
from hitmac.agents.tracking.sight import VIEW_COS, VIEW_HALF, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, in_view, is_clear
from hitmac.agents.tracking.tracks import Tracks, TracksState
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, GOALS, NOISE_X, NOISE_Y, PLACE, SPEED, X, Y
from hitmac.envs import observation
from hitmac.envs.base.compile import allocating, inlined, kernel
from hitmac.envs.base.formulas import value_of, wrapped
from hitmac.envs.base.state import DRAWS, KEY, TIME
from hitmac.envs.base.threads import Threads, blocks, cores
from hitmac.envs.deployment import observe
from hitmac.envs.entities import EntityObserver
from hitmac.envs.features import Values
from hitmac.envs.observation import Observer
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.parts.game import NOISE_CHANGE
from hitmac.envs.parts.values import make_values
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks.base import make_observer
from hitmac.envs.validation import IMPORT_HINT

BELIEFS = ("beliefs",)
"""Name that selects the features of beliefs in place of observation features; see :class:`BeliefFeatures`."""

PARTICLES = 96  # of a target
SECTORS = 18  # of the bearing
AHEAD = (0, 20, 40)  # sub-steps
SUMMARY = 11  # features of a pair before those of its sectors
OF_MEAN = 3  # features of a mean position
LENS = 2 + (len(AHEAD) - 1) * OF_MEAN  # features of a lens before those of its sectors and aims
ZOOMS, TURNS = np.array((-30.0, -10.0, 0.0, 10.0, 30.0)), np.array((-20.0, 0.0, 20.0))  # degrees: aims of a lens
AIMS_AHEAD = 2  # of AHEAD
AIMS = len(ZOOMS) * len(TURNS)
OF_LENS = SECTORS + 2 * AIMS
OF_TILT = 3  # features of a tilt
_MOST = 100.0  # bound of every feature
EQUAL = Values(np.ones(1), np.zeros((0, 2)), np.zeros(1, np.int64), np.zeros(0))
"""Values of targets that are all worth 1."""


@inlined
def _bearing(view, dx, dy):
    """Return the bearing of an offset from the heading of a view, radians."""
    return math.atan2(view[VIEW_COS] * dy - view[VIEW_SIN] * dx, view[VIEW_COS] * dx + view[VIEW_SIN] * dy)


@inlined
def _distribute(bearing, mass, sectors):
    """Distribute a mass linearly over the two sectors nearest to its bearing."""
    place = (bearing / (2.0 * math.pi) + 0.5) * SECTORS
    first = math.floor(place)
    part = place - first
    sectors[int(first) % SECTORS] += mass * (1.0 - part)
    sectors[(int(first) + 1) % SECTORS] += mass * part


@inlined
def _add_to_lens(opening, area, zoom, squared, bearing, mass, alone, row):
    """Add a mass in range of the narrowest view to its sectors, and to the aims of the lens that have it in view.

    If no other sensor sees it, the lens is `alone`, and its second row of aims gets the mass too.
    """
    _distribute(bearing, mass, row[:SECTORS])
    for h in range(len(TURNS)):
        away = abs(wrapped(math.degrees(bearing) - TURNS[h]))
        for k in range(len(ZOOMS)):
            then = min(max(opening + ZOOMS[k], zoom[0]), zoom[1])
            if squared * then <= area and away <= 0.5 * then:
                row[SECTORS + k * len(TURNS) + h] += mass
                if alone:
                    row[SECTORS + AIMS + k * len(TURNS) + h] += mass


@inlined
def _write_mean(view, x, y, scale, row):
    """Write sine and cosine of the bearing of (x, y), and its distance; return the unit vector towards it."""
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    away = math.sqrt(dx * dx + dy * dy)
    east, north = (dx / away, dy / away) if away > 0.0 else (1.0, 0.0)
    row[0] = view[VIEW_COS] * north - view[VIEW_SIN] * east
    row[1] = view[VIEW_COS] * east + view[VIEW_SIN] * north
    row[2] = away / scale
    return east, north


class Scales(NamedTuple):
    """Scenario and units of the features of beliefs."""

    rules: Rules
    pieces: Pieces
    values: Values
    zoom: tuple[float, float]  # narrowest and widest field of view; (0, 0): fixed lenses
    pace: float  # seconds of motion in a sub-step
    distance: float
    top_speed: float
    per_value: float
    tilts: bool  # sensors can change their tilt


@inlined
def _course_of(walk, loads, body, p):
    """Return the unit vector of particle p's course, the distance to its goal, and what noise adds to the vector."""
    dx, dy = body[AIM_X, p], body[AIM_Y, p]
    if loads is not None or walk.model == GOALS:
        dx, dy = dx - body[X, p], dy - body[Y, p]
    away = math.sqrt(dx * dx + dy * dy)
    unit_x, unit_y = (dx / away, dy / away) if away > 0.0 else (0.0, 0.0)
    noise_x, noise_y = 0.0, 0.0
    if loads is not None and body[NOISE_X, p] <= 1.0:  # else not drawn yet
        dx, dy = unit_x + body[NOISE_X, p], unit_y + body[NOISE_Y, p]
        shorter = 1.0 / max(math.sqrt(dx * dx + dy * dy), 1.0)
        noise_x, noise_y = dx * shorter - unit_x, dy * shorter - unit_y
    return unit_x, unit_y, away, noise_x, noise_y


@allocating
def _describe(scales, loads, j, body, weight, total_and_age, watch, reach, pairs):
    """Add the features (n, d) of target j to zeros, given the sum of its weights, its age, and the squared ranges."""
    total, age = total_and_age
    walk, pieces, zoom, views, pace = scales.rules.walk, scales.pieces, scales.zoom, watch.views, scales.pace
    lenses = SUMMARY + len(AHEAD) * SECTORS
    n, particles = views.shape[0], weight.shape[0]
    squares, velocity_x, velocity_y, owed = 0.0, 0.0, 0.0, 0.0
    mean = np.zeros((len(AHEAD), 2))  # of the positions, times the total
    seen, opening = np.zeros(n, np.bool_), np.zeros(n)  # by each sensor; fields of view of those that zoom, degrees
    for i in range(n if zoom[1] > 0.0 else 0):
        opening[i] = math.degrees(2.0 * math.acos(min(max(views[i, VIEW_HALF], -1.0), 1.0)))
    for p in range(particles):
        x, y, mass = body[X, p], body[Y, p], weight[p]
        unit_x, unit_y, away, noise_x, noise_y = _course_of(walk, loads, body, p)
        speed = body[SPEED, p] * (1.0 + 0.5 * walk.speed_noise)
        squares += mass * (x * x + y * y)
        velocity_x += mass * speed * (unit_x + noise_x)
        velocity_y += mass * speed * (unit_y + noise_y)
        if loads is not None:
            owed += mass * has_bounty(loads, body, p)
        for k in range(len(AHEAD)):
            gone = speed * pace * AHEAD[k]
            gone = min(gone, away) if loads is not None or walk.model == GOALS else gone
            kept = speed * pace * (1.0 - (1.0 - NOISE_CHANGE) ** AHEAD[k]) / NOISE_CHANGE  # expected way with the noise
            ahead_x, ahead_y, stays = x + gone * unit_x + kept * noise_x, y + gone * unit_y + kept * noise_y, True
            if pieces.rest.shape[0] > 0:
                place = int(body[PLACE, p])
                stays = pieces.rest[place] >= AHEAD[k]
                then = place + AHEAD[k] if stays else place
                ahead_x = x + pieces.position[then, 0] - pieces.position[place, 0]
                ahead_y = y + pieces.position[then, 1] - pieces.position[place, 1]
            mean[k, 0], mean[k, 1] = mean[k, 0] + mass * ahead_x, mean[k, 1] + mass * ahead_y
            first, share = SUMMARY + k * SECTORS, mass * value_of(scales.values, j, ahead_x, ahead_y) * scales.per_value
            aims, seen_by = zoom[1] > 0.0 and k < AIMS_AHEAD, 0
            for i in range(n if aims or k == 0 else 0):
                seen[i] = views[i, VIEW_RANGE] > 0.0 and in_view(views[i], watch, i, ahead_x, ahead_y)
                seen_by += seen[i]
                if k == 0:  # AHEAD begins with now
                    pairs[i, 4] += share * seen[i]
            for i in range(n if stays else 0):
                dx, dy, most = ahead_x - views[i, VIEW_X], ahead_y - views[i, VIEW_Y], reach[i]
                squared, area, clear = dx * dx + dy * dy, most * opening[i], watch.clear[i]
                near, far = squared <= most, aims and squared * zoom[0] <= area  # in range, or in that of some zoom
                if most > 0.0 and (near or far) and (clear.shape[0] == 0 or is_clear(clear, dx, dy)):
                    bearing = _bearing(views[i], dx, dy)
                    if near:
                        _distribute(bearing, share, pairs[i, first : first + SECTORS])
                    if far:
                        row, alone = pairs[i, lenses + LENS + k * OF_LENS :], seen_by == seen[i]
                        _add_to_lens(opening[i], area, zoom, squared, bearing, share, alone, row)
    mean_x, mean_y, squares = mean[0, 0] / total, mean[0, 1] / total, squares / total
    velocity_x, velocity_y = velocity_x / total, velocity_y / total
    together = 0.0
    for i in range(n):
        together += pairs[i, 4]
    for i in range(n):
        east, north = _write_mean(views[i], mean_x, mean_y, scales.distance, pairs[i])
        pairs[i, 3] = pairs[i, SUMMARY : SUMMARY + SECTORS].sum()
        pairs[i, 5] = together - pairs[i, 4]
        pairs[i, 6] = (velocity_x * east + velocity_y * north) / scales.top_speed
        pairs[i, 7] = (velocity_y * east - velocity_x * north) / scales.top_speed
        pairs[i, 8] = math.sqrt(max(squares - mean_x * mean_x - mean_y * mean_y, 0.0)) / scales.distance
        pairs[i, 9] = min(age * 0.01, 10.0)
        pairs[i, 10] = age == 0.0
        if loads is not None:
            pairs[i, -1] = owed / total
        if zoom[1] > 0.0:
            pairs[i, lenses], pairs[i, lenses + 1] = (
                opening[i] / 180.0, math.sqrt(reach[i]) / scales.distance,
            )  # fmt: skip
            for k in range(1, len(AHEAD)):
                row = pairs[i, lenses + LENS - (len(AHEAD) - k) * OF_MEAN :]
                _write_mean(views[i], mean[k, 0] / total, mean[k, 1] / total, scales.distance, row)


@kernel
def describe_all(scales, doubtful, scene, pairs, share):
    """Add the belief features (R, n, m, d) of every pair to zeros; see :class:`BeliefFeatures`.

    With recorded motion, a belief after those of the targets is about targets never seen. The weights of `doubtful`
    targets sum to the probability that they exist.
    """
    belief, known = scene.belief, scene.known
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            watch = sight.watch_of(scene, r, scene.views[r], sight.NO_CELLS)
            reach = (scene.ahead if scales.tilts else scene.views)[r, :, VIEW_RANGE]  # in reach at any tilt
            for j in range(pairs.shape[2]):
                body, weight, total, age = belief.body[r, j], belief.weight[r, j], 1.0, np.inf
                if j < known.shape[1]:
                    age = known[r, j, AGE]
                if doubtful or j >= known.shape[1]:
                    total = weight.sum()
                if scene.present[r, j] if j < known.shape[1] else total > 0.0:
                    _describe(
                        scales, scales.rules.walk.loads, j, body, weight, (total, age), watch, reach, pairs[r, :, j]
                    )


class BeliefFeatures:
    """Features of every pair of a sensor and a target, computed from the particles of the target.

    ============ ======================================================================================================
    0, 1         sine and cosine of the bearing of the mean position
    2            its distance / distance_scale
    3, 4         share of the particles within the sensor's range, at any tilt, and not behind an obstacle; and in its
                 view
    5            sum of the shares in the views of the other sensors
    6, 7         radial and tangential mean velocity / top speed
    8            standard deviation of the positions / distance_scale
    9, 10        sub-steps since the target was last seen / 100, at most 10 (never: 10); 1 if it is in view now
    11 ...       shares as in 3 in 18 sectors of the bearing, counter-clockwise from behind: now, and in 20 and 40
                 sub-steps if every particle moves straight to its goal, in a game with its noise, or as recorded
    then         with a zoom: field of view / 180 degrees, sensing range / distance_scale; 0, 1, 2 of the mean position
                 in 20 and 40 sub-steps; and now and in 20 sub-steps the shares of 11 ... at the narrowest field of
                 view, which has the longest range, and those in view after zooms by -30, -10, 0, 10, 30 degrees, each
                 with turns by -20, 0, 20 degrees, first of all particles, then of those that the other sensors do not
                 have in their present views
    last         in a game: share of the particles that carry a bounty; where tilts change: tilt below the horizon / 90
                 degrees, distances of the near and the far edge of the view / distance_scale
    ============ ======================================================================================================

    A pair is valid if the sensor works and the target may be present, even if it was never seen. With the walk
    ``recorded`` and shared knowledge, targets that were never seen are together one more target, whose shares are
    expected numbers. Without identities, the m tracks that are most likely to exist take the place of targets, with
    shares of their existence. In a scenario with values every share is by value / highest value, an expected value.

    Attributes:
        beliefs: :class:`~hitmac.agents.tracking.beliefs.Beliefs`, or :class:`~hitmac.agents.tracking.Tracks`.
        space: the space of the features of a scene.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.beliefs = Beliefs(scenario, PARTICLES) if scenario.identities else Tracks(scenario, PARTICLES)
        unseen = len(self.beliefs.pieces.rest) > 0 and not self.beliefs.rules.all_known
        shape = scenario.num_sensors, scenario.num_targets + unseen
        carries = self.beliefs.rules.walk.loads is not None
        count = SUMMARY + len(AHEAD) * SECTORS + (LENS + AIMS_AHEAD * OF_LENS if scenario.zoom else 0) + carries
        tilts = any(low < high for low, high in scenario.tilt_limits)
        count += OF_TILT * tilts
        pairs = spaces.Box(-_MOST, _MOST, (*shape, count), np.float32)
        self.space = spaces.Dict(pairs=pairs, mask=spaces.MultiBinary(shape))
        every = scenario.extra_move_interval
        pace = scenario.time_step * (1.0 + (1.0 / every if every else 0.0))  # seconds of motion in a sub-step
        values = (make_values(scenario) if scenario.has_values else None) or EQUAL
        narrow, wide = map(float, scenario.zoom or (0, 0))
        self._scales = Scales(
            self.beliefs.rules, self.beliefs.pieces, values, (narrow, wide), pace, scenario.distance_scale,
            scenario.top_speed, 1.0 / scenario.highest_value, tilts,
        )  # fmt: skip

    def describe(self, scene: Scene) -> dict[str, np.ndarray]:
        """Return ``pairs`` (R, n, m, d) and ``mask`` (R, n, m) of the beliefs of R rows of knowledge."""
        scene = likeliest(scene, self.scenario.num_targets)
        rows, (n, m, d) = len(scene.known), self.space["pairs"].shape  # type: ignore[misc]
        pairs = np.zeros((rows, n, m, d), np.float32)
        Threads(rows, cores(), block=8).run(describe_all, self._scales, not self.scenario.identities, scene, pairs)
        if self._scales.tilts:
            edges = np.sqrt(scene.views[..., (sight.VIEW_NEAR, VIEW_RANGE)]) / self.scenario.distance_scale
            shown = np.concatenate((scene.tilt[..., None] / 90.0, edges), -1)
            pairs[..., -OF_TILT:] = np.minimum(shown, _MOST)[:, :, None]
        works, present = scene.views[..., VIEW_RANGE] > 0.0, np.ones((rows, m), np.bool_)
        present[:, : scene.present.shape[1]] = scene.present
        return {"pairs": pairs, "mask": (works[:, :, None] & present[:, None]).astype(np.int8)}


def likeliest(scene: Scene, m: int) -> Scene:
    """Return the scene with the m tracks that are most likely to exist, in their order."""
    k = scene.known.shape[1]
    if k == m:
        return scene
    existence = np.where(scene.present, scene.belief.weight[:, :k].sum(-1), -1.0)
    chosen = np.sort(np.argsort(-existence, 1, "stable")[:, :m], 1)  # (R, m)
    rows, unseen = np.arange(len(chosen))[:, None], np.arange(k, scene.belief.weight.shape[1])
    believed = np.concatenate((chosen, np.broadcast_to(unseen, (len(chosen), len(unseen)))), 1)
    body, weight, course = (array[rows, believed] for array in scene.belief[:3])
    belief = scene.belief._replace(body=body, weight=weight, course=course)
    return scene._replace(belief=belief, known=scene.known[rows, chosen], present=scene.present[rows, chosen])


class TrackFeatures:
    """Observation features, out of :data:`hitmac.envs.FEATURES`, of the m tracks that are most likely to exist.

    A track takes the place of a target with its position, velocity and age at its last detection; one that exists with
    a probability below 1/2 is not valid.
    """

    def __init__(self, scenario: Scenario, features: Sequence[str]) -> None:
        self.scenario, self.features, self.beliefs = scenario, tuple(features), Tracks(scenario)
        error, missed = max(scenario.position_errors), float(np.mean(scenario.miss_rates))
        self._named = scenario.replace(
            identities=True, false_detections=0.0, position_noise=error, missed_detections=missed
        )  # fmt: skip
        self.space = Observer(self._named, features).space

    def describe(self, scene: Scene) -> dict[str, np.ndarray]:
        """Return ``pairs`` (R, n, m, d) and ``mask`` (R, n, m) of the tracks of R rows of knowledge."""
        scene = likeliest(scene, self.scenario.num_targets)
        views, m = scene.views, scene.known.shape[1]
        works = views[..., VIEW_RANGE] > 0.0
        known = np.where((scene.belief.weight[:, :m].sum(-1) >= 0.5)[..., None], scene.known, np.nan)
        place, velocity, age = known[..., :2], known[..., 2:4], known[..., AGE]
        heading = np.degrees(np.arctan2(views[..., VIEW_SIN], views[..., VIEW_COS]))
        zoomed = 2.0 * np.degrees(np.arccos(np.maximum(views[..., VIEW_HALF], -1.0)))
        zoomed = np.where(works, zoomed, 360.0)
        return observe(
            self._named, self.features, np.where(works[..., None], views[..., VIEW_X : VIEW_Y + 1], np.nan), heading,
            place, place - velocity * self.scenario.time_step, age=np.where(np.isnan(age), np.inf, age),
            field_of_view=zoomed if self.scenario.zoom else None,
            tilt=scene.tilt if self.scenario.tilt_limits else None,
        )  # fmt: skip


def features_of(scenario: Scenario, features: Sequence[str]) -> "BeliefFeatures | TrackFeatures":
    """Return the features of beliefs, or those of these names of tracks."""
    return BeliefFeatures(scenario) if tuple(features) == BELIEFS else TrackFeatures(scenario, features)


class BeliefObserver:
    """Observer of features that need a memory, in place of :class:`hitmac.envs.observation.Observer`.

    The features are :class:`BeliefFeatures`, or :class:`TrackFeatures` in a scenario without identities. Every sub-step
    must be observed. Raises ``ValueError`` unless the scenario's `knowledge` is ``"shared"`` or ``"full"``.
    """

    def __init__(self, scenario: Scenario, features: Sequence[str] = BELIEFS) -> None:
        self._features = features_of(scenario, features)
        if self._features.beliefs.per_sensor:
            raise ValueError(
                f"knowledge is {scenario.knowledge!r}; to learn on beliefs or tracks it must be full or shared"
            )
        self.features, self.space = tuple(features), self._features.space
        self._observer: Any = DetectionObserver(scenario)
        if scenario.identities:
            self._observer = Observer(scenario, self._features.beliefs.features, **self._features.beliefs.shown)
        self._state: BeliefState | TracksState | None = None
        self._moment = np.zeros((3, 0), np.int64)  # (3, B) key, draws and time of the scenes at the last call
        self._last: dict[str, np.ndarray] = {}

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return the observation of every scene: new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m).

        A scene that has not moved since the last call keeps its observation, unless its episode has just begun.
        """
        b, rows = simulator.num_envs, simulator.rows
        moment = np.stack((*rows.stream[[KEY, DRAWS], :b].view(np.int64), rows.scene[TIME, :b]))
        if self._moment.shape != moment.shape:
            self._state, self._moment = None, np.full_like(moment, -1)
        moved = (moment != self._moment).any(0) | (moment[2] == 0)  # a reset may have placed them elsewhere
        on = (moment[0] == self._moment[0]) & (moment[2] == self._moment[2] + 1)
        if moved.any():
            shown = self._observer.observe(simulator)
            scene, new = update(self._features.beliefs, shown, self._state, ~on)
            last = self._features.describe(scene)
            if self._state is not None:
                now, before = (*new, *last.values()), (*self._state, *self._last.values())
                for array, old in zip(now, before, strict=True):
                    array[~moved] = old[~moved]
            self._state, self._last, self._moment = new, last, moment
        return {name: array.copy() for name, array in self._last.items()}

    def get_state(self) -> dict[str, np.ndarray]:
        """Return copies of all arrays that determine the next observation."""
        assert self._state is not None
        arrays = self._state._asdict() | self._last | {"moment": self._moment}
        return {name: array.copy() for name, array in arrays.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from arrays of :meth:`get_state`."""
        copies = {name: array.copy() for name, array in state.items()}
        self._moment = copies.pop("moment")
        self._last = {name: copies.pop(name) for name in ("pairs", "mask")}
        kind = BeliefState if "last_age" in copies else TracksState
        self._state = kind(**copies)


def update(
    beliefs: Beliefs | Tracks, observation: Observation, state: State = None, episode_start: Starts = None
) -> tuple[Scene, Any]:
    """Return beliefs or tracks after an observation of their features, and their state."""
    mask = observation["mask"] != 0
    if isinstance(beliefs, Tracks):
        given = observation["detections"], mask, observation["sensors"]
        looked = observation.get("looked")
        return beliefs.update(*given, state, episode_start, looked)
    return beliefs.update(observation["pairs"], mask, state, episode_start, discs=observation.get("discs"))


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return `features` as :func:`hitmac.envs.observation.check_features` does, or the name of another observer."""
    known = (BELIEFS, EntityObserver.features, *((name,) for name in observation.OBSERVERS))
    try:
        return tuple(features) if tuple(features) in known else observation.check_features(features)
    except ValueError as error:
        hint = IMPORT_HINT if "unknown feature" in str(error) else ""
        raise ValueError(f"{error}{hint}") from None


def space_of(scenario: Scenario, features: tuple[str, ...], **nearness: Any) -> spaces.Dict:
    """Return the space of an observation of `features`; `nearness` are options of the observer."""
    believed = features == BELIEFS or not scenario.identities
    return features_of(scenario, features).space if believed else make_observer(scenario, features, **nearness).space
