"""Beliefs of a whole scene, kept up from observations alone."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.nearness import is_large
from hitmac.agents.policy import (
    check_finite,
    check_range,
    checked_lists,
    checked_observation,
    checked_starts,
    copied_state,
)
from hitmac.agents.tracking.motion import AIM_X, AIM_Y, GOALS, ROWS, SPEED, STEP, WalkModel, X, Y, walk_model
from hitmac.agents.tracking.particles import COUNT, COURSE, Belief, advance, look_in_vain, pin, scatter, scatter_all
from hitmac.agents.tracking.sight import (
    AGE,
    PLACE_X,
    PLACE_Y,
    SPEED_X,
    SPEED_Y,
    VIEW_CHANCE,
    VIEW_COS,
    VIEW_RANGE,
    VIEW_SIN,
    VIEW_X,
    VIEW_Y,
    Reports,
    in_view,
    merge_reports,
    sort_views,
)
from hitmac.envs.allocation import check_memory
from hitmac.envs.kernels.nearest import make_cells
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, allocating, blocks, cores, inlined, kernel
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive

_FORGOTTEN = 1000.0  # sub-steps; a report that is older is no news

SECTORS = 18  # of the bearing
AHEAD = (0, 20, 40)  # sub-steps
SUMMARY = 11  # features of a pair before those of its sectors


class Rules(NamedTuple):
    """Rules of the scenario that beliefs follow."""

    walk: WalkModel
    every: int  # sub-steps between extra moves; 0: none
    deviation: float  # of observed positions
    all_known: bool  # a target that is not shown is not there
    returns: bool  # a target that has left can return


@inlined
def moves_at(rules, time):
    """Return the number of moves of the targets in the sub-step that begins at `time`."""
    return 2 if rules.every > 0 and time % rules.every == 0 else 1


@allocating
def _track(rules, belief, r, known, views, near, time, last_age, there):
    """Take an observation into the belief of row r; see :func:`track_all`."""
    moves = moves_at(rules, time - 1) if time > 0 else 0
    for j in range(known.shape[0]):
        age = known[j, AGE]
        there[j] = age < np.inf or (not rules.all_known and (rules.returns or there[j]))
        if age < min(last_age[j] + 1.0, _FORGOTTEN):
            x, y = known[j, PLACE_X], known[j, PLACE_Y]
            pin(rules.walk, belief, r, j, x, y, known[j, SPEED_X], known[j, SPEED_Y], rules.deviation)
            for back in range(int(age), 0, -1):
                for _ in range(moves_at(rules, time - back)):
                    advance(rules.walk, belief, r, j)
        else:
            belief.course[r, j, COUNT] = 0.0
            if age == np.inf and last_age[j] < np.inf:
                there[j] = rules.returns and not rules.all_known
                scatter(rules.walk, belief, r, j, views, near)
            for _ in range(moves):
                advance(rules.walk, belief, r, j)
            look_in_vain(rules.walk, belief, r, j, views, near)
        last_age[j] = age


@kernel
def track_all(rules, belief, known, views, cells, time, last_age, there, share):
    """Take an observation into the beliefs of all R rows of knowledge.

    Args:
        rules: the scenario.
        belief: beliefs of the rows, changed in place.
        known: (R, m, 5) what each row knows.
        views: (R, n, 7) views, with the probability that a sensor detects a target in view and the row is told at once.
        cells: cells by which views near a particle are found; None: all views are looked through.
        time: (R,) sub-steps since the episode began.
        last_age: (R, m) ages of what was known at the last observation, changed in place; inf: nothing.
        there: (R, m) bool, the targets that may be there, changed in place.
        share: part of this thread.
    """
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            near = None if cells is None else sort_views(cells, views[r])
            _track(rules, belief, r, known[r], views[r], near, time[r], last_age[r], there[r])


@inlined
def _add_to_sectors(view, x, y, mass, sectors):
    """Add a mass at (x, y), if within range, to the two sectors whose middles are next to its bearing, linearly."""
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    if dx * dx + dy * dy <= view[VIEW_RANGE]:
        aside, ahead = view[VIEW_COS] * dy - view[VIEW_SIN] * dx, view[VIEW_COS] * dx + view[VIEW_SIN] * dy
        place = (math.atan2(aside, ahead) / (2.0 * math.pi) + 0.5) * SECTORS
        first = math.floor(place)
        part = place - first
        sectors[int(first) % SECTORS] += mass * (1.0 - part)
        sectors[(int(first) + 1) % SECTORS] += mass * part


@allocating
def _describe(rules, pace, scale, top_speed, body, weight, known, views, j, pairs):
    """Write the features of target j, (n, d)."""
    n, particles, model = views.shape[0], weight.shape[0], rules.walk.model
    mean_x, mean_y, squares, velocity_x, velocity_y = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        pairs[i] = 0.0
    for p in range(particles):
        x, y, mass = body[X, p], body[Y, p], weight[p]
        dx, dy = body[AIM_X, p], body[AIM_Y, p]
        if model == GOALS:
            dx, dy = dx - x, dy - y
        away = math.sqrt(dx * dx + dy * dy)
        speed = body[SPEED, p] * (1.0 + 0.5 * rules.walk.speed_noise)
        unit_x, unit_y = (dx / away, dy / away) if away > 0.0 else (0.0, 0.0)
        mean_x, mean_y, squares = mean_x + mass * x, mean_y + mass * y, squares + mass * (x * x + y * y)
        velocity_x, velocity_y = velocity_x + mass * speed * unit_x, velocity_y + mass * speed * unit_y
        for i in range(n):
            if views[i, VIEW_RANGE] > 0.0:
                pairs[i, 4] += mass * in_view(views[i], x, y)
                for k in range(len(AHEAD)):
                    gone = speed * pace * AHEAD[k]
                    gone = min(gone, away) if model == GOALS else gone
                    first = SUMMARY + k * SECTORS
                    sectors = pairs[i, first : first + SECTORS]
                    _add_to_sectors(views[i], x + gone * unit_x, y + gone * unit_y, mass, sectors)
    together = 0.0
    for i in range(n):
        together += pairs[i, 4]
    for i in range(n):
        dx, dy = mean_x - views[i, VIEW_X], mean_y - views[i, VIEW_Y]
        away = math.sqrt(dx * dx + dy * dy)
        east, north = (dx / away, dy / away) if away > 0.0 else (1.0, 0.0)
        pairs[i, 0] = views[i, VIEW_COS] * north - views[i, VIEW_SIN] * east
        pairs[i, 1] = views[i, VIEW_COS] * east + views[i, VIEW_SIN] * north
        pairs[i, 2] = away / scale
        pairs[i, 3] = pairs[i, SUMMARY : SUMMARY + SECTORS].sum()
        pairs[i, 5] = together - pairs[i, 4]
        pairs[i, 6] = (velocity_x * east + velocity_y * north) / top_speed
        pairs[i, 7] = (velocity_y * east - velocity_x * north) / top_speed
        pairs[i, 8] = math.sqrt(max(squares - mean_x * mean_x - mean_y * mean_y, 0.0)) / scale
        pairs[i, 9] = min(known[AGE] * 0.01, 10.0)
        pairs[i, 10] = known[AGE] == 0.0


@kernel
def describe_all(rules, pace, scale, top_speed, belief, known, views, there, pairs, share):
    """Write the belief features of every pair, (R, n, m, d); see :data:`BELIEF_FEATURES`."""
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            for j in range(known.shape[1]):
                if there[r, j]:
                    _describe(
                        rules, pace, scale, top_speed, belief.body[r, j], belief.weight[r, j], known[r, j], views[r], j,
                        pairs[r, :, j],
                    )  # fmt: skip
                else:
                    pairs[r, :, j] = 0.0


FEATURES = (
    "bearing_sin",
    "bearing_cos",
    "distance",
    "radial_velocity",
    "tangential_velocity",
    "age",
    "sensor_x",
    "sensor_y",
    "heading_sin",
    "heading_cos",
)
"""Features of the observation that are read."""

(
    _SIN, _COS, _DISTANCE, _RADIAL, _TANGENTIAL, _AGE, _X, _Y, _HEADING_SIN, _HEADING_COS,
) = range(10)  # fmt: skip
_ROUNDED, _ERRORS = 1e-6, 3.0  # of half the sides of the arena, and of the deviation of observed positions
_OBSTRUCTED = 0.9
"""Chance that no obstacle hides a target in view, where a scenario has obstacles: beliefs do not know them."""


class Reader:
    """Reader of the observations of a scenario, features (B, n, m, 10) and masks (B, n, m).

    Args:
        scenario: the scenario.

    Attributes:
        alone: True if every sensor knows what it observes alone.
        rows: g, rows of knowledge of a scene: n if `alone`, else 1. R is B * g.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.alone = scenario.knowledge in ("neighbours", "own")
        self.rows = scenario.num_sensors if self.alone else 1
        self._all_known = scenario.knowledge == "full"
        view = scenario.of_each_sensor("field_of_view")
        self._half_view_cosine = np.where(view < 360.0, np.cos(np.radians(0.5 * view)), -2.0)
        self._range_squared = scenario.of_each_sensor("sensing_range") ** 2

    def views(self, pairs: np.ndarray) -> np.ndarray:
        """Return the views (R, n, 7) of the sensors, with the chances that they report to the rows."""
        pose = pairs[:, :, 0].astype(np.float64)
        cos, sin = pose[..., _HEADING_COS], pose[..., _HEADING_SIN]
        working = cos**2 + sin**2 > 0.5
        half = np.broadcast_to(self._half_view_cosine, cos.shape)
        half_width, half_height = self.scenario.extent
        x, y = half_width * pose[..., _X], half_height * pose[..., _Y]
        views = np.stack((x, y, cos, sin, half, self._range_squared * working, working), -1)
        views = np.repeat(views, self.rows, 0)
        views[..., VIEW_CHANCE] = self._chances(x, y, working).reshape(-1, x.shape[1])
        return views

    def knowledge(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return what the rows know (R, m, 5) of all targets."""
        pose = pairs[:, :, 0]
        if not self.alone:  # all sensors show the same; the first that works is as good as any
            first = np.argmax(mask, 1)[:, None]  # (B, 1, m)
            pairs, mask = np.take_along_axis(pairs, first[..., None], 1), np.take_along_axis(mask, first, 1)
            pose = np.take_along_axis(pose[:, :, None], first[..., None], 1)
        return self._located(pairs, mask, pose).reshape(-1, mask.shape[-1], 5)

    def _located(self, pairs: np.ndarray, mask: np.ndarray, pose: np.ndarray) -> np.ndarray:
        """Return places, velocities and ages (..., n, m, 5) of the targets of pairs (..., n, m, 10).

        Args:
            pairs: their features.
            mask: (..., n, m) bool, the valid pairs.
            pose: (..., n, 10) or (..., n, m, 10) features that show the pose of the sensor.
        """
        scenario, (half_width, half_height) = self.scenario, self.scenario.extent
        pose = (pose if pose.ndim == pairs.ndim else pose[..., None, :]).astype(np.float64)
        x, y, c, s = (
            half_width * pose[..., _X],
            half_height * pose[..., _Y],
            pose[..., _HEADING_COS],
            pose[..., _HEADING_SIN],
        )
        shown = pairs.astype(np.float64)
        # Unit vector of the line of sight, from the heading's and the bearing's.
        east = c * shown[..., _COS] - s * shown[..., _SIN]
        north = s * shown[..., _COS] + c * shown[..., _SIN]
        away = scenario.distance_scale * shown[..., _DISTANCE]
        radial, tangential = (scenario.top_speed * shown[..., k] for k in (_RADIAL, _TANGENTIAL))
        age = np.where(mask, np.rint(100 * shown[..., _AGE]), np.inf)
        velocity = radial * east - tangential * north, radial * north + tangential * east
        return np.stack((x + away * east, y + away * north, *velocity, age), -1)

    def reports(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray, views: np.ndarray) -> Reports:
        """Return what the sensors' lists tell."""
        every, scenario = views.reshape(len(mask), self.rows, -1, 7)[:, 0], self.scenario
        away = scenario.distance_scale * pairs[..., _DISTANCE].astype(np.float64)
        farthest = np.where(mask, away, 0.0).max(-1)
        # What is as far as the farthest may not be listed. Observations are rounded, and have errors.
        farthest = farthest - _ROUNDED * sum(scenario.extent) - _ERRORS * scenario.position_noise
        within = np.where(mask.all(-1), np.maximum(farthest, 0.0), np.inf)
        within = np.where((every[..., VIEW_RANGE] > 0.0) & (not self._all_known), within, 0.0)
        return Reports(
            np.ascontiguousarray(self._located(pairs, mask, pairs[:, :, 0])), targets, mask,
            np.ascontiguousarray(every[..., VIEW_X : VIEW_Y + 1]), within,
        )  # fmt: skip

    def looks(self, views: np.ndarray, within: np.ndarray) -> np.ndarray:
        """Return the views (R, n, 7) with the ranges in which the lists would show what is seen."""
        if self._all_known:
            return views
        looks, n = views.copy(), views.shape[1]
        if self.alone:  # all in range of the view must be within the reach of the row's own list
            own = views[np.arange(len(views)), np.arange(len(views)) % n][:, None]
            reach = np.where(own[..., VIEW_RANGE] > 0.0, within.reshape(-1, 1), np.inf)  # else it has no list
            apart = np.hypot(views[..., VIEW_X] - own[..., VIEW_X], views[..., VIEW_Y] - own[..., VIEW_Y])
            most = np.maximum(reach - apart, 0.0)
        else:
            most = within
        looks[..., VIEW_RANGE] = np.minimum(looks[..., VIEW_RANGE], most**2)
        return looks

    def _chances(self, x: np.ndarray, y: np.ndarray, working: np.ndarray) -> np.ndarray:
        """Return the probability (B, g, n) that a sensor detects a target in view and that the row is told at once."""
        scenario = self.scenario
        chance = 1.0 - scenario.missed_detections
        if scenario.discs or scenario.random_discs or scenario.walls or scenario.blocks:
            chance *= _OBSTRUCTED
        detects = chance * working[:, None, :]  # (B, 1, n)
        if not self.alone:
            return detects
        told = np.broadcast_to(np.eye(self.rows), (len(working), self.rows, self.rows))
        if scenario.knowledge == "neighbours" and scenario.message_delay == 0:
            squared = (x[:, :, None] - x[:, None]) ** 2 + (y[:, :, None] - y[:, None]) ** 2
            near = squared <= scenario.communication_range**2  # the other links only add reports
            told = np.maximum(told, near * (1.0 - scenario.message_loss_rate))
        return detects * told


_LATEST = 2**40  # sub-step


class BeliefState(NamedTuple):
    """Beliefs in B scenes, each with g rows of knowledge: one that all share, or one for each sensor."""

    body: np.ndarray  # (B, g, m, 7, P) rows of the particles
    weight: np.ndarray  # (B, g, m, P)
    course: np.ndarray  # (B, g, m, 8)
    stream: np.ndarray  # (B, g, 2) uint64
    last_age: np.ndarray  # (B, g, m) sub-steps, of what was known at the last call; inf: nothing
    there: np.ndarray  # (B, g, m) bool: targets that may be there
    time: np.ndarray  # (B,) int64: calls since the episode began
    place: np.ndarray  # (B, g, m, 2) last listed places; (B, g, 0, 2) where observations show all targets


class Scene(NamedTuple):
    """Present knowledge and beliefs of R = B * g rows of knowledge."""

    belief: Belief
    known: np.ndarray  # (R, m, 5)
    views: np.ndarray  # (R, n, 7), range 0 of a sensor that does not work
    there: np.ndarray  # (R, m) bool
    time: np.ndarray  # (R,) int64: sub-steps since the episode began


class Beliefs:
    """Beliefs about the targets of scenes, as of a :class:`~hitmac.agents.tracking.ParticleTracker`, from observations.

    A target is believed where it was last seen to go; a view in which it is not seen takes weight from the particles
    inside. A target that was never seen may be anywhere at first. With the knowledge ``"neighbours"`` or ``"own"``
    every sensor has its own beliefs; else all share them. Positions and headings of all sensors are known to all.
    Obstacles are not: where a scenario has some, a view is taken to miss one target in ten. Lenses are taken to keep
    their fields of view.

    Of observations that list the nearest targets, beliefs are about all targets too. A list with an empty place holds
    all that its sensor knows, and a full one all up to its farthest target. Beyond that, a target stays believed where
    it went when it was last listed, and a view that does not see it says nothing. With full knowledge a target that no
    sensor lists is taken to be absent.

    Args:
        scenario: the scenario.
        particles: P, particles of a target; 1 or more.
        seed: seed of the particles, which is the same in all scenes.

    Raises:
        ValueError: `particles` is under 1, or the beliefs of a scene do not fit into the memory of this machine.

    Attributes:
        features: the observation features that it reads.
        alone: True if every sensor has beliefs of its own.
        rows: g, rows of knowledge of a scene.
        rules: the scenario, for kernels.
    """

    features: ClassVar[tuple[str, ...]] = FEATURES

    def __init__(self, scenario: Scenario, particles: int, seed: int = 0) -> None:
        self.scenario, self.particles = scenario, positive("particles", particles)
        self._reader = Reader(scenario)
        self.alone, self.rows = self._reader.alone, self._reader.rows
        self.rules = Rules(
            walk=walk_model(scenario),
            every=scenario.extra_move_interval,
            deviation=scenario.position_noise,
            all_known=scenario.knowledge == "full",
            returns=scenario.return_rate > 0.0 or bool(scenario.tracks),
        )
        # The state of the last call, and the new one.
        check_memory(
            16.0 * (ROWS + 1) * self.particles * self.rows * scenario.num_targets,
            f"with knowledge {scenario.knowledge!r}, {self.rows} times a belief of {self.particles} particles about "
            f"{scenario.num_targets} targets",
        )
        self._cells = make_cells(scenario, scenario.num_sensors) if is_large(scenario) else None
        self._key = stream_keys(np.array([seed + 2**62]))[0]

    def take_in(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        targets: np.ndarray | None = None,
    ) -> tuple[Scene, BeliefState]:
        """Return what is believed after an observation, which must come at every sub-step, and the state.

        The arrays of the scene are those of the state.

        Args:
            pairs: (B, n, m, 10) features of the observation.
            mask: (B, n, m) bool, the known targets.
            state: state returned by the last call, which is not changed; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins, so that their state is not used.
            targets: (B, n, k) whole numbers: the targets that pairs (B, n, k, 10) and mask (B, n, k) list, those
                nearest to each sensor, -1 in an empty place. None: place j is target j.
        """
        m = self.scenario.num_targets
        size = self.scenario.num_sensors, m if targets is None else np.shape(targets)[-1]
        if pairs.shape[-1:] == (len(self.features),):  # else those of a planner, which has checked them
            pairs, mask = checked_observation(pairs, mask, self.features, size)
        if targets is not None:
            targets = checked_lists(targets, mask, m)
        b, listed = len(mask), targets is not None
        if state is None:
            new, starts = self._nothing(b, listed), np.ones(b, np.bool_)
        else:
            new, given = self.copied(state, b, listed), checked_starts(episode_start, b)
            starts = np.zeros(b, np.bool_) if given is None else given
        new.stream[starts] = np.array([self._key, 0], np.uint64)
        new.last_age[starts], new.there[starts], new.time[starts] = np.inf, True, 0
        rows = b * self.rows
        belief = Belief(
            new.body.reshape(rows, *new.body.shape[2:]),
            new.weight.reshape(rows, m, new.weight.shape[-1]),
            new.course.reshape(rows, m, new.course.shape[-1]),
            np.ascontiguousarray(new.stream.reshape(rows, 2).T),
        )
        threads = Threads(rows, cores(), block=8)
        if starts.any():
            threads.run(scatter_all, self.rules.walk, belief, np.repeat(starts, self.rows))
        views = self._reader.views(pairs)
        last_age = new.last_age.reshape(rows, m)
        if targets is None:
            known, looks = self._reader.knowledge(pairs, mask), views
        else:
            reports = self._reader.reports(pairs, mask, targets, views)
            check_finite("pairs, in units of the arena,", reports.report[mask])
            known, looks = np.empty((rows, m, 5)), self._reader.looks(views, reports.within)
            threads.run(merge_reports, reports, last_age, new.place.reshape(rows, m, 2), known)
        check_finite("pairs, in units of the arena,", known[..., :AGE])
        check_finite("pairs, in units of the arena,", views)
        scene = Scene(belief, known, views, new.there.reshape(rows, m), np.repeat(new.time, self.rows))
        threads.run(track_all, self.rules, belief, known, looks, self._cells, scene.time, last_age, scene.there)
        new.stream[:] = belief.stream.T.reshape(b, self.rows, 2)
        new.time[:] += 1
        return scene, new

    def copied(self, state: tuple[Any, ...], scenes: int, listed: bool = False) -> BeliefState:
        """Return a copy of a state of :meth:`take_in`; raise ValueError unless it is one of this number of scenes.

        `listed`: of observations that list the nearest targets.
        """
        new = copied_state(state, self._nothing(scenes, listed))
        check_finite("state body", new.body[..., [row for row in range(ROWS) if row != STEP], :])
        if np.isnan(new.body[..., STEP, :]).any() or np.isnan(new.last_age).any():
            raise ValueError("state holds nan; every number must be finite, or inf")
        check_finite("state course", new.course)
        check_finite("state place", new.place)
        check_range("state weight", new.weight, 0.0, 1.001)  # rounded
        check_range("state time", new.time, 0, _LATEST)
        return new

    def of_own(self, of_rows: np.ndarray) -> np.ndarray:
        """Return the values of the sensors (B, n, ...), each by its own row of knowledge, out of those of rows.

        Of several decisions they are (B, k n, ...), the first of every sensor, then the second.
        """
        values = of_rows.reshape(-1, self.rows, *of_rows.shape[1:])
        numbers = np.arange(values.shape[2])
        owners = numbers % self.scenario.num_sensors if self.alone else np.zeros_like(numbers)
        return np.ascontiguousarray(values[:, owners, numbers])

    def _nothing(self, b: int, listed: bool) -> BeliefState:
        """Return the state before the first call."""
        g, p, m = self.rows, self.particles, self.scenario.num_targets
        return BeliefState(
            body=np.zeros((b, g, m, ROWS, p)),
            weight=np.zeros((b, g, m, p)),
            course=np.zeros((b, g, m, COURSE)),
            stream=np.zeros((b, g, 2), np.uint64),
            last_age=np.full((b, g, m), np.inf),
            there=np.ones((b, g, m), np.bool_),
            time=np.zeros(b, np.int64),
            place=np.zeros((b, g, m if listed else 0, 2)),
        )
