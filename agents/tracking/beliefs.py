"""Beliefs of a whole scene, updated from observations alone."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.policy import (
    Starts,
    State,
    checked_lists,
    checked_observation,
    checked_starts,
    copied_state,
    is_large,
)
from hitmac.agents.tracking import particles, recorded, sight, track_states
from hitmac.agents.tracking.particles import Belief
from hitmac.agents.tracking.recorded import NewPieces
from hitmac.agents.tracking.sight import VIEW_CHANCE, VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, Sight, watch_of
from hitmac.agents.tracking.walk_model import WalkModel, rows_of, walk_model
from hitmac.envs.base.compile import inlined, kernel
from hitmac.envs.base.nearest import make_cells
from hitmac.envs.base.streams import stream_keys
from hitmac.envs.base.threads import Threads, blocks, cores
from hitmac.envs.parts.lenses import squared_ranges
from hitmac.envs.parts.tilt import edges_of
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import positive

_FORGOTTEN = 1000.0  # sub-steps; older reports are ignored
_LEAST = 1e-3  # weight of the particles of a target that may be present
_ROUNDED, _ERRORS = 1e-6, 3.0  # of half the sides of the arena, and of the deviation of observed positions
X, Y, VELOCITY_X, VELOCITY_Y, AGE = range(5)
"""Columns of a report: position, velocity, sub-steps since then (inf: unknown)."""


class Rules(NamedTuple):
    """Rules of the scenario that determine beliefs."""

    walk: WalkModel
    every: int  # sub-steps between extra moves; 0: none
    deviation: float  # of observed positions
    all_known: bool  # targets that are not shown are absent
    returns: bool  # a target that has left can return


@inlined
def moves_at(rules, time):
    """Return the number of moves of the targets in the sub-step that begins at `time`."""
    return 2 if rules.every > 0 and time % rules.every == 0 else 1


class Reports(NamedTuple):
    """Lists of the nearest or of all targets in B scenes."""

    report: np.ndarray  # (B, n, k, 5) reports of the target in each place of a list
    targets: np.ndarray  # (B, n, k) int32
    mask: np.ndarray  # (B, n, k) bool
    position: np.ndarray  # (B, n, 2) of the sensors
    within: np.ndarray  # (B, n) distance up to which a sensor lists all known targets


@kernel
def merge_reports(reports, last_age, place, known, share):
    """Write the reports (R, m, 5) known to each row: those listed, and earlier ones that no list contradicts.

    A target that is not listed keeps its last known `place` (R, m, 2), changed in place, unless a sensor would list it
    there: then it is unknown. `last_age` (R, m) are the ages of the previous reports; inf: none. R is B, or B * n where
    every sensor has only its own list.
    """
    scenes, n = reports.within.shape
    rows = known.shape[0] // scenes
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b, listed = r // rows, False
            for j in range(known.shape[1]):
                for column in range(AGE):
                    known[r, j, column] = 0.0
                known[r, j, AGE] = np.inf
            # All lists are shared, or only the own one of the row's sensor.
            first, last = (r % rows, r % rows + 1) if rows > 1 else (0, n)
            for i in range(first, last):
                listed |= reports.within[b, i] > 0.0
                for s in range(reports.targets.shape[2]):
                    j = reports.targets[b, i, s]
                    if reports.mask[b, i, s] and known[r, j, AGE] == np.inf:
                        for column in range(AGE + 1):
                            known[r, j, column] = reports.report[b, i, s, column]
            for j in range(known.shape[1]):
                if known[r, j, AGE] < np.inf:
                    place[r, j, X], place[r, j, Y] = known[r, j, X], known[r, j, Y]
                elif last_age[r, j] < np.inf and listed:  # known before: unless a list should have it, it is beyond
                    missing = False
                    for i in range(first, last):
                        dx, dy = place[r, j, X] - reports.position[b, i, X], place[r, j, Y] - reports.position[b, i, Y]
                        missing |= dx * dx + dy * dy < reports.within[b, i] * reports.within[b, i]
                    if not missing:
                        known[r, j, X], known[r, j, Y] = place[r, j, X], place[r, j, Y]
                        known[r, j, AGE] = last_age[r, j] + 1.0


class Scene(NamedTuple):
    """Present knowledge and beliefs of R = B * g rows of knowledge."""

    belief: Belief
    known: np.ndarray  # (R, m, 5)
    views: np.ndarray  # (R, n, 7), with tilts (R, n, 8), range 0 of a sensor that does not work
    clear: np.ndarray  # (B or 1, n, DIRECTIONS) of :class:`~hitmac.agents.tracking.sight.Sight`
    present: np.ndarray  # (R, m) bool
    time: np.ndarray  # (R,) int64: sub-steps since the episode began
    ahead: np.ndarray  # the views once pending commands have taken effect, with the ranges of the lenses
    lens: np.ndarray  # (R, n) fields of view, degrees, as far as they are certain
    along: np.ndarray  # (R, n) places on the rails, divided by their lengths
    tilt: np.ndarray  # (R, n) degrees below the horizon


@kernel
def filter_all(rules, model, state, scene, draws, deviation, share):
    """Filter the new reports of all R rows, give particles to their targets, and replace them in `scene.known`.

    At the beginning of an episode, all targets are forgotten. `state` is the :class:`BeliefState` of the rows, with the
    filtered states at the last reports; after :data:`~.track_states.LOST` sub-steps without one, the particles give the
    velocity. With recorded motion, the standard deviations of the places are written into `deviation` (R, m) in place
    of particles; else it is (R, 0).
    """
    belief, known, time = scene.belief, scene.known, scene.time
    rounded = _ROUNDED * (rules.walk.half_width + rules.walk.half_height)
    variance = rules.deviation * rules.deviation + rounded * rounded
    detection, nobody = np.zeros(5), particles.nobody()
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            for j in range(known.shape[1] if time[r] == 0 and deviation.shape[1] == 0 else 0):
                particles.scatter(rules.walk, None, belief, r, j, nobody)
            for j in range(known.shape[1]):
                age, last = known[r, j, AGE], state.last_age[r, j]
                if age >= min(last + 1.0, _FORGOTTEN):  # no news: an old report is a sub-step older
                    continue
                body, weight = belief.body[r, j], belief.weight[r, j]
                modes = track_states.modes_of(state, r, j)
                detection[X], detection[Y], detection[track_states.XX], detection[track_states.YY] = (
                    known[r, j, X], known[r, j, Y], variance, variance,
                )  # fmt: skip
                if last + 1.0 - age <= track_states.LOST:  # the filter still follows: predict it to the report
                    for back in range(int(last) + 1, int(age), -1):
                        seconds = moves_at(rules, time[r] - back) * rules.walk.time_step
                        track_states.predict(model, modes, seconds)
                    track_states.update(modes, detection)
                else:
                    spread = track_states.spread_of(rules.walk, body, weight)
                    track_states.find_again(model, rules.walk, body, weight, spread, modes, detection)
                for a in range(4):
                    known[r, j, a] = modes.mode[0] * modes.mean[0, a] + modes.mode[1] * modes.mean[1, a]
                if deviation.shape[1] == 0:
                    track_states.scatter(rules.walk, body, weight, modes, 1.0, draws)
                else:
                    deviation[r, j] = track_states.deviation_of(modes)


@kernel
def track_all(rules, scene, views, cells, last_age, share):
    """Update the beliefs and the possibly present targets of all R rows of knowledge by an observation.

    `views` (R, n, 7) have the probability that a sensor detects a target in view and the row receives the report at
    once. `cells` accelerate the search for views near a particle. `last_age` (R, m), the ages of the previous reports
    (inf: none), is changed in place.
    """
    walk, belief, known, present = rules.walk, scene.belief, scene.known, scene.present
    loads, nobody, density = walk.loads, particles.nobody(), np.empty(particles.SPEEDS)
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            watch = watch_of(scene, r, views[r], cells)
            moves = moves_at(rules, scene.time[r] - 1) if scene.time[r] > 0 else 0
            for j in range(known.shape[1] if scene.time[r] == 0 and rules.deviation == 0.0 else 0):
                particles.scatter(walk, loads, belief, r, j, nobody)
            for j in range(known.shape[1]):
                age, last = known[r, j, AGE], last_age[r, j]
                present[r, j] = age < np.inf or (not rules.all_known and (rules.returns or present[r, j]))
                if age < min(last + 1.0, _FORGOTTEN):  # a newer report: begin there, and move on to the present
                    if rules.deviation == 0.0:
                        detection = known[r, j, X], known[r, j, Y], known[r, j, VELOCITY_X], known[r, j, VELOCITY_Y]
                        particles.pin(walk, loads, belief, r, j, detection, density)
                    for back in range(int(age), 0, -1):
                        for _ in range(moves_at(rules, scene.time[r] - back)):
                            particles.advance(walk, loads, belief, r, j, watch)
                else:
                    belief.course[r, j, particles.COUNT] = 0.0  # no report: move, and leave the views
                    if age == np.inf and last < np.inf:
                        present[r, j] = rules.returns and not rules.all_known
                        particles.scatter(walk, loads, belief, r, j, watch)
                    for _ in range(moves):
                        particles.advance(walk, loads, belief, r, j, watch)
                    particles.miss_target(walk, loads, belief, r, j, watch)
                last_age[r, j] = age


@kernel
def track_recorded_all(rules, scene, views, cells, last_age, new, share):
    """Update the beliefs of all rows with recorded motion; see :func:`track_all`.

    The pieces `new` are those of detected targets; the last beliefs are those about unseen targets.
    """
    belief, known, present, pieces = scene.belief, scene.known, scene.present, new.pieces
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            watch = watch_of(scene, r, views[r], cells)
            for j in range(known.shape[1]):
                age = known[r, j, AGE]
                if age < min(last_age[r, j] + 1.0, _FORGOTTEN):
                    present[r, j] = True
                    recorded.take_pieces(new, belief, r, j, known[r, j, X], known[r, j, Y])
                    for _ in range(int(age)):
                        recorded.follow_pieces(pieces, belief, r, j)
                elif present[r, j]:
                    recorded.follow_pieces(pieces, belief, r, j)
                    left = recorded.miss_recorded(belief, r, j, watch)
                    present[r, j] = age < np.inf and left > _LEAST
                    for p in range(belief.weight.shape[2] if present[r, j] else 0):  # somewhere else
                        belief.weight[r, j, p] /= left
                last_age[r, j] = age
            if not rules.all_known:
                unseen = known.shape[1]
                if scene.time[r] == 0:
                    recorded.start_unseen(pieces, belief, r, unseen)
                else:
                    recorded.follow_pieces(pieces, belief, r, unseen)
                    recorded.add_arrivals(pieces, belief, r, unseen, scene.time[r])
                recorded.miss_recorded(belief, r, unseen, watch)


def shown_to_beliefs(scenario: Scenario) -> dict[str, bool]:
    """Return the observer's options for beliefs about a scenario: in a game with random discs these, else {}."""
    return {"discs": True} if scenario.is_game and scenario.random_discs and scenario.identities else {}


class Frame(NamedTuple):
    """Update of beliefs or tracks in progress."""

    new: Any  # the state, of B scenes
    rows: Any  # the same arrays, of R rows of knowledge
    starts: np.ndarray  # (B,) bool, scenes in which an episode begins
    belief: Belief
    run: Callable[..., None]  # of a kernel on all threads


class Estimator:
    """Base class of beliefs and tracks, in rows of knowledge of a scene: one for all sensors, or one for each.

    Attributes:
        per_sensor: True if every sensor has its own row.
        rows: g, rows of knowledge of a scene: n if `per_sensor`, else 1. R is B * g.
        pieces: recorded motion; empty without it.
        shown: options of the observer, see :func:`shown_to_beliefs`.
    """

    def __init__(self, scenario: Scenario, particles: int, seed: int) -> None:
        self.scenario, self.particles = scenario, positive("particles", particles)
        self.per_sensor = scenario.knowledge in ("neighbours", "own")
        self.rows = scenario.num_sensors if self.per_sensor else 1
        self._sight = Sight(scenario)
        self.shown = shown_to_beliefs(scenario)
        self._finder = recorded.PieceFinder(scenario) if scenario.walk == "recorded" else None
        self.pieces = recorded.no_pieces() if self._finder is None else self._finder.pieces
        self._view = scenario.of_each_sensor("field_of_view")
        self._key = stream_keys(np.array([seed + 2**62]))[0]
        rng = np.random.default_rng(seed)
        normal = rng.standard_normal((self.particles, 4))
        self._draws = np.hstack((normal - normal.mean(0), rng.random((self.particles, 2))))

    def of_sensors(self, of_rows: np.ndarray) -> np.ndarray:
        """Return the values (B, k n, ...) of the sensors, each from its own row of `of_rows` (R, k n, ...)."""
        values = of_rows.reshape(-1, self.rows, *of_rows.shape[1:])
        numbers = np.arange(values.shape[2])
        owners = numbers % self.scenario.num_sensors if self.per_sensor else np.zeros_like(numbers)
        return np.ascontiguousarray(values[:, owners, numbers])

    def _particles_of(self, walk: WalkModel, beliefs: int) -> dict[str, tuple[Any, ...]]:
        """Return the shapes of the arrays of a row's particles in the state, for a number of beliefs."""
        rows = rows_of(walk.model, recorded=self._finder is not None)
        return {
            "body": (beliefs, rows, self.particles), "weight": (beliefs, self.particles),
            "course": (beliefs, particles.COURSE), "stream": (2,),
        }  # fmt: skip

    def _begin(
        self, kind: Any, shapes: Mapping[str, Any], discs: np.ndarray, state: State, episode_start: Starts
    ) -> Frame:
        """Return the frame of an update, with the `shapes` of the arrays of a row, by name, but for the time."""
        b, whole = len(discs) // self.rows, {"stream": np.uint64, "present": np.bool_}
        whole |= dict.fromkeys(("age", "label", "labels"), np.int64)
        starts = np.ones(b, np.bool_)
        if state is None:
            arrays = {
                name: np.zeros((b, self.rows, *shape), whole.get(name, np.float64)) for name, shape in shapes.items()
            }
            new = kind(**arrays, time=np.zeros(b, np.int64))
        else:
            new = kind(*copied_state(state, (b, self.rows, *shapes["body"])))
            starts = checked_starts(episode_start, b)
        new.stream[starts], new.time[starts] = np.array([self._key, 0], np.uint64), 0
        rows = {name: getattr(new, name).reshape(len(discs), *shape) for name, shape in shapes.items()}
        rows = kind(**rows, time=np.repeat(new.time, self.rows))
        belief = Belief(rows.body, rows.weight, rows.course, np.ascontiguousarray(rows.stream.T), discs)
        return Frame(new, rows, starts, belief, Threads(b * self.rows, cores(), block=8).run)

    @staticmethod
    def _end(frame: Frame) -> None:
        """Complete the state."""
        frame.new.stream[:] = frame.belief.stream.T.reshape(frame.new.stream.shape)
        frame.new.time[:] += 1

    def _scene(
        self, frame: Frame, known: np.ndarray, views: np.ndarray, clear: np.ndarray, present: np.ndarray, **now: Any
    ) -> Scene:
        """Return the scene, given the settings (B, n) of the sensors: lens, place on the rail, pending turn, tilt."""
        names = "lens", "along", "pending", "tilt"
        lens, along, pending, tilt = (np.repeat(now[name], self.rows, 0) for name in names)
        ahead = sight.turned_views(views, pending) if self.scenario.turn_rates else views
        lens = np.where(lens > 0.0, lens, self._view)
        if self.scenario.tilt_limits:
            ahead = ahead.copy()
            ahead[..., VIEW_RANGE] = np.where(views[..., VIEW_RANGE] > 0.0, squared_ranges(self.scenario, lens), 0.0)
        lens = sight.certain_view(lens, self.scenario)
        along, tilt = along.astype(np.float64), tilt.astype(np.float64)
        return Scene(frame.belief, known, views, clear, present, frame.rows.time, ahead, lens, along, tilt)


class BeliefState(NamedTuple):
    """Beliefs in B scenes, each with g rows of knowledge: one shared by all sensors, or one for each."""

    body: np.ndarray  # (B, g, m, d, P) rows of the particles, see walk_model
    weight: np.ndarray  # (B, g, m, P)
    course: np.ndarray  # (B, g, m, 8)
    stream: np.ndarray  # (B, g, 2) uint64
    last_age: np.ndarray  # (B, g, m) sub-steps, age of the report at the last call; inf: none
    present: np.ndarray  # (B, g, m) bool: targets that may be present
    time: np.ndarray  # (B,) int64: calls since the episode began
    place: np.ndarray  # (B, g, m, 2) last listed positions
    # Where positions have errors, the filtered states at the last reports, by mode; else m is 0.
    mean: np.ndarray  # (B, g, m, 2, 4)
    covariance: np.ndarray  # (B, g, m, 2, 4, 4)
    mode: np.ndarray  # (B, g, m, 2)


class Beliefs(Estimator):
    """Particle beliefs about the targets, as of a :class:`~hitmac.agents.tracking.ParticleTracker`, from observations.

    A belief extrapolates the last report of a target; a view without the target reduces the weight of the particles
    inside. A target that was never seen may be anywhere at first. With the knowledge ``"neighbours"`` or ``"own"``
    every sensor has its own beliefs; otherwise all share them. The positions and headings of all sensors are known to
    all, and so are walls, blocks and discs; where the discs are `random_discs`, a view is assumed to miss one target in
    ten, except in a game, where they are observed. Lenses that zoom show their fields of view.

    In a game, targets are believed to carry loads: to the warehouses that their course suggests, then to others, along
    discs and sensors, and out of view round the views, since those that enter one are seen.

    Where positions have errors, a belief extrapolates the states of two Kalman filters, of a quiet and a turning target
    as in :class:`~hitmac.agents.tracking.Tracks`, of all reports' positions.

    With the walk ``recorded``, the particles of a target are the recorded places nearest in position and velocity, and
    move as recorded; one whose track ends has left. A target without particles is forgotten. One more belief, after
    those of the targets, is about targets that were never seen: the sum of its weights is their expected number.

    Given lists of the nearest targets, beliefs still cover all targets. A list with an empty place is complete; a full
    one is complete up to its farthest target. Beyond, beliefs extrapolate the last listed report, and a view without
    the target is no evidence. With full knowledge, targets that no sensor lists are absent.

    Args:
        scenario: the scenario.
        particles: P, particles of a target; 1 or more.
        seed: seed of the particles, which is the same in all scenes.
        plans: True if the observations have the features that plans need also of rails and motors.

    Attributes:
        rules: the scenario, for kernels.
        unseen: expected number of targets that no belief is about, with recorded motion.
    """

    features: tuple[str, ...] = (
        "bearing_sin", "bearing_cos", "distance", "radial_velocity", "tangential_velocity", "age", "sensor_x",
        "sensor_y", "heading_sin", "heading_cos",
    )  # fmt: skip

    def __init__(self, scenario: Scenario, particles: int, seed: int = 0, *, plans: bool = False) -> None:
        more: dict[str, Any] = {"field_of_view": scenario.zoom, "tilt": scenario.tilt_limits}
        more |= {"along": scenario.rails, "pending_turn": scenario.turn_rates} if plans else {}
        self.features = (*Beliefs.features, *(name for name, given in more.items() if given))
        super().__init__(scenario, particles, seed)
        self.rules = Rules(
            walk=walk_model(scenario),
            every=scenario.extra_move_interval,
            deviation=max(scenario.position_errors),
            all_known=scenario.knowledge == "full",
            returns=scenario.return_rate > 0.0 or bool(scenario.tracks),
        )
        self.model = track_states.make_model(scenario, self.rules.walk, self.pieces, 0.0)
        self.unseen = 0.0 if self.rules.all_known else self.pieces.expected
        self._cells = make_cells(scenario, scenario.num_sensors) if is_large(scenario) else sight.NO_CELLS
        m, filtered = scenario.num_targets, scenario.num_targets * (self.rules.deviation > 0.0)
        unseen = self._finder is not None  # the last beliefs are about targets that were never seen
        self._shapes = self._particles_of(self.rules.walk, m + unseen) | {
            "last_age": (m,), "present": (m,), "place": (m, 2),
            "mean": (filtered, 2, 4), "covariance": (filtered, 2, 4, 4), "mode": (filtered, 2),
        }  # fmt: skip

    def update(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: State = None,
        episode_start: Starts = None,
        targets: np.ndarray | None = None,
        discs: np.ndarray | None = None,
    ) -> tuple[Scene, BeliefState]:
        """Return the beliefs after an observation, needed at every sub-step, and the state, which share their arrays.

        The arguments are those of :meth:`hitmac.agents.planning.planner.PlanningPolicy.plan`; features (B, n, m, 10),
        and `discs` (B, k, 3), those of the observation of a game.
        """
        scenario, g, m = self.scenario, self.rows, self.scenario.num_targets
        size = scenario.num_sensors, m if targets is None else np.shape(targets)[-1]
        pairs, mask = checked_observation(pairs, mask, self.features, size)
        if self.shown and discs is None:
            raise ValueError("the observation has no discs; a game requires the observer's option discs=True")
        if targets is not None:
            targets = checked_lists(targets, mask, m)
        pairs = pairs.astype(np.float32, copy=False)
        nothing = np.zeros(mask.shape[:2], np.float32)
        settings = dict(zip(self.features, np.moveaxis(pairs[:, :, 0], -1, 0), strict=True))  # (B, n) each
        shown = dict(zip(self.features, np.moveaxis(pairs.astype(np.float64), -1, 0), strict=True))  # (B, n, m) each
        lens = 360.0 * shown["field_of_view"][..., 0] if scenario.zoom else nothing
        tilt = 90.0 * settings.get("tilt", nothing)
        views = self._views(shown, lens, tilt)
        frame = self._begin(BeliefState, self._shapes, self._in_the_way(views, discs), state, episode_start)
        new, rows, run = frame.new, frame.rows, frame.run
        new.last_age[frame.starts], new.present[frame.starts] = np.inf, self._finder is None
        known = np.empty((len(views), m, 5))
        reports = self._reports(shown, mask, targets, views)
        run(merge_reports, reports, rows.last_age, rows.place, known)
        clear = self._sight.clear(views[::g, :, VIEW_X], views[::g, :, VIEW_Y], discs)
        scene = self._scene(
            frame, known, views, clear, rows.present, lens=lens, along=settings.get("along", nothing),
            pending=180.0 * settings.get("pending_turn", nothing), tilt=tilt,
        )  # fmt: skip
        deviation = np.zeros((len(views), m if self._finder is not None else 0))
        if self.rules.deviation > 0.0:
            run(filter_all, self.rules, self.model, rows, scene, self._draws, deviation)
        given = self.rules, scene, self._certain(views, reports.within), self._cells, rows.last_age
        if self._finder is None:
            run(track_all, *given)
        else:
            seen = known[..., AGE] < np.minimum(rows.last_age + 1.0, _FORGOTTEN)
            places = self._finder.nearest(known, seen, self.particles)
            run(track_recorded_all, *given, NewPieces(self.pieces, places, deviation))
        self._end(frame)
        return scene, new

    def _in_the_way(self, views: np.ndarray, discs: np.ndarray | None) -> np.ndarray:
        """Return the discs (R, k, 3) along which targets that carry loads slide: obstacles and sensors."""
        if not self.scenario.is_game:
            return np.zeros((len(views), 0, 3))
        radius = np.full(views.shape[:2], self.scenario.sensor_radius)
        sensors = np.stack((views[..., VIEW_X], views[..., VIEW_Y], radius), -1)
        known = self._sight.discs[None] if discs is None else np.repeat(discs, self.rows, 0)
        return np.concatenate((sensors, np.broadcast_to(known, (len(views), *known.shape[1:]))), 1)

    def _views(self, shown: Mapping[str, np.ndarray], lens: np.ndarray, tilt: np.ndarray) -> np.ndarray:
        """Return the views (R, n, 7 or 8) of the sensors, with the probabilities that they report to the rows."""
        scenario = self.scenario
        cos, sin, x, y = (shown[name][..., 0] for name in ("heading_cos", "heading_sin", "sensor_x", "sensor_y"))
        x, y = scenario.extent[0] * x, scenario.extent[1] * y
        working = cos**2 + sin**2 > 0.5
        view = np.where(lens > 0.0, lens, self._view)  # of a sensor that does not work, that of the start
        half = np.where(view < 360.0, np.cos(np.radians(0.5 * sight.certain_view(view, scenario))), -2.0)
        squared = squared_ranges(scenario, view)
        edges: tuple[np.ndarray, ...] = (squared,)
        if scenario.tilt_limits:
            edges = edges_of(scenario, squared, view, tilt)
        views = np.stack((x, y, cos, sin, half, edges[0] * working, working, *edges[1:]), -1)
        chance = 1.0 - float(np.mean(scenario.miss_rates))
        if scenario.random_discs and not self.shown:
            chance *= 0.9  # no random disc hides a target in view
        detects = chance * working[:, None, :]  # (B, 1, n)
        if self.per_sensor:
            reported = np.broadcast_to(np.eye(self.rows), (len(working), self.rows, self.rows))
            if scenario.knowledge == "neighbours" and scenario.message_delay == 0:
                squared = (x[:, :, None] - x[:, None]) ** 2 + (y[:, :, None] - y[:, None]) ** 2
                near = squared <= scenario.communication_range**2  # further links only add reports
                reported = np.maximum(reported, near * (1.0 - scenario.message_loss_rate))
            detects = detects * reported
        views = np.repeat(views, self.rows, 0)
        views[..., VIEW_CHANCE] = detects.reshape(-1, x.shape[1])
        return views

    def _reports(
        self, shown: Mapping[str, np.ndarray], mask: np.ndarray, targets: np.ndarray | None, views: np.ndarray
    ) -> Reports:
        """Return the reports in the sensors' lists."""
        scenario, every = self.scenario, views[:: self.rows]
        x, y, c, s = (every[..., k, None] for k in (VIEW_X, VIEW_Y, VIEW_COS, VIEW_SIN))
        # Unit vector of the line of sight, from the heading's and the bearing's.
        sin, cos = shown["bearing_sin"], shown["bearing_cos"]
        east, north = c * cos - s * sin, s * cos + c * sin
        away = scenario.distance_scale * shown["distance"]
        radial, tangential = (scenario.top_speed * shown[f"{name}_velocity"] for name in ("radial", "tangential"))
        age = np.where(mask, np.rint(100 * shown["age"]), np.inf)
        velocity = radial * east - tangential * north, radial * north + tangential * east
        report = np.stack((x + away * east, y + away * north, *velocity, age), -1)
        # A target as far as the farthest may not be listed; observations are rounded and have errors.
        farthest = np.where(mask, away, 0.0).max(-1)
        farthest = farthest - _ROUNDED * sum(scenario.extent) - _ERRORS * max(scenario.position_errors)
        full = mask.all(-1) & (mask.shape[-1] < scenario.num_targets)
        within = np.where(full, np.maximum(farthest, 0.0), np.inf)
        within = np.where((every[..., VIEW_RANGE] > 0.0) & (not self.rules.all_known), within, 0.0)
        if targets is None:
            targets = np.tile(np.arange(mask.shape[-1], dtype=np.int32), (*mask.shape[:2], 1))
        return Reports(report, targets, mask, np.ascontiguousarray(every[..., VIEW_X : VIEW_Y + 1]), within)

    def _certain(self, views: np.ndarray, within: np.ndarray) -> np.ndarray:
        """Return the views with ranges within which the lists show every target in view."""
        if self.rules.all_known:
            return views
        certain, most = views.copy(), within
        if self.per_sensor:  # the range of the view must be within the reach of the row's own list
            row = np.arange(len(views))
            own = views[row, row % views.shape[1]][:, None]
            reach = np.where(own[..., VIEW_RANGE] > 0.0, within.reshape(-1, 1), np.inf)  # else it has no list
            apart = np.hypot(views[..., VIEW_X] - own[..., VIEW_X], views[..., VIEW_Y] - own[..., VIEW_Y])
            most = np.maximum(reach - apart, 0.0)
        certain[..., VIEW_RANGE] = np.minimum(certain[..., VIEW_RANGE], most**2)
        return certain
