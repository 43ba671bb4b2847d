"""Beliefs of a whole scene, kept up from observations alone."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.observed import check_finite, check_range, checked_observation, checked_starts, copied_state
from hitmac.agents.tracking.belief_kernels import AGE, Rules, track_all
from hitmac.agents.tracking.particle_kernels import COURSE, VIEW_CHANCE, Belief, scatter_all
from hitmac.agents.tracking.walk_models import ROWS, STEP, walk_model
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive

(
    _SIN, _COS, _DISTANCE, _RADIAL, _TANGENTIAL, _AGE, _X, _Y, _HEADING_SIN, _HEADING_COS,
) = range(10)  # fmt: skip
_LATEST = 2**40  # sub-step
_OBSTRUCTED = 0.9
"""Chance that no obstacle hides a target in view, where a scenario has obstacles: beliefs do not know them."""


class BeliefState(NamedTuple):
    """Beliefs in B scenes, each with g rows of knowledge: one that all share, or one for each sensor."""

    body: np.ndarray  # (B, g, m, 7, P) rows of the particles
    weight: np.ndarray  # (B, g, m, P)
    course: np.ndarray  # (B, g, m, 8)
    stream: np.ndarray  # (B, g, 2) uint64
    last_age: np.ndarray  # (B, g, m) sub-steps, of what was known at the last call; inf: nothing
    there: np.ndarray  # (B, g, m) bool: targets that may be there
    time: np.ndarray  # (B,) int64: calls since the episode began


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

    Args:
        scenario: the scenario.
        particles: P, particles of a target; 1 or more.
        seed: seed of the particles, which is the same in all scenes.

    Attributes:
        features: the observation features that it reads.
        alone: True if every sensor has beliefs of its own.
        rows: g, rows of knowledge of a scene.
        rules: the scenario, for kernels.
    """

    features: ClassVar[tuple[str, ...]] = (
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

    def __init__(self, scenario: Scenario, particles: int, seed: int = 0) -> None:
        self.scenario, self.particles = scenario, positive("particles", particles)
        self.alone = scenario.knowledge in ("neighbours", "own")
        self.rows = scenario.num_sensors if self.alone else 1
        self.rules = Rules(
            walk=walk_model(scenario),
            every=scenario.extra_move_interval,
            deviation=scenario.position_noise,
            all_known=scenario.knowledge == "full",
            returns=scenario.return_rate > 0.0 or bool(scenario.tracks),
        )
        view = scenario.of_each_sensor("field_of_view")
        self._key = stream_keys(np.array([seed + 2**62]))[0]
        self._half_view_cosine = np.where(view < 360.0, np.cos(np.radians(0.5 * view)), -2.0)
        self._range_squared = scenario.of_each_sensor("sensing_range") ** 2

    def take_in(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
    ) -> tuple[Scene, BeliefState]:
        """Return what is believed after an observation, which must come at every sub-step, and the state.

        The arrays of the scene are those of the state.

        Args:
            pairs: (B, n, m, 10) features of the observation.
            mask: (B, n, m) bool, the known targets.
            state: state returned by the last call, which is not changed; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins, so that their state is not used.
        """
        size = self.scenario.num_sensors, self.scenario.num_targets
        if pairs.shape[-1:] == (len(self.features),):  # else those of a planner, which has checked them
            pairs, mask = checked_observation(pairs, mask, self.features, size)
        b, _, m = mask.shape
        if state is None:
            new, starts = self._nothing(b, m), np.ones(b, np.bool_)
        else:
            new, given = self.copied(state, b), checked_starts(episode_start, b)
            starts = np.zeros(b, np.bool_) if given is None else given
        new.stream[starts] = np.array([self._key, 0], np.uint64)
        new.last_age[starts], new.there[starts], new.time[starts] = np.inf, True, 0
        rows = b * self.rows
        belief = Belief(
            new.body.reshape(rows, *new.body.shape[2:]),
            new.weight.reshape(rows, m, -1),
            new.course.reshape(rows, m, -1),
            np.ascontiguousarray(new.stream.reshape(rows, 2).T),
        )
        threads = Threads(rows, cores(), block=8)
        if starts.any():
            threads.run(scatter_all, self.rules.walk, belief, np.repeat(starts, self.rows))
        known, views = self._read(pairs, mask)
        check_finite("pairs, in units of the arena,", known[..., :AGE])
        check_finite("pairs, in units of the arena,", views)
        scene = Scene(belief, known, views, new.there.reshape(rows, m), np.repeat(new.time, self.rows))
        last_age = new.last_age.reshape(rows, m)
        threads.run(track_all, self.rules, belief, known, views, scene.time, last_age, scene.there)
        new.stream[:] = belief.stream.T.reshape(b, self.rows, 2)
        new.time[:] += 1
        return scene, new

    def copied(self, state: tuple[Any, ...], scenes: int) -> BeliefState:
        """Return a copy of a state of :meth:`take_in`; raise ValueError unless it is one of this number of scenes."""
        new = copied_state(state, self._nothing(scenes, self.scenario.num_targets))
        check_finite("state body", new.body[..., [row for row in range(ROWS) if row != STEP], :])
        if np.isnan(new.body[..., STEP, :]).any() or np.isnan(new.last_age).any():
            raise ValueError("state holds nan; every number must be finite, or inf")
        check_finite("state course", new.course)
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

    def _nothing(self, b: int, m: int) -> BeliefState:
        """Return the state before the first call."""
        g, p = self.rows, self.particles
        return BeliefState(
            body=np.zeros((b, g, m, ROWS, p)),
            weight=np.zeros((b, g, m, p)),
            course=np.zeros((b, g, m, COURSE)),
            stream=np.zeros((b, g, 2), np.uint64),
            last_age=np.full((b, g, m), np.inf),
            there=np.ones((b, g, m), np.bool_),
            time=np.zeros(b, np.int64),
        )

    def _read(self, pairs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the rows know (R, m, 5), and the views (R, n, 7) of the sensors that report to them."""
        scenario = self.scenario
        _, n, m = mask.shape
        pose = pairs[:, :, 0].astype(np.float64)
        cos, sin = pose[..., _HEADING_COS], pose[..., _HEADING_SIN]
        working = cos**2 + sin**2 > 0.5
        half = np.broadcast_to(self._half_view_cosine, cos.shape)
        half_width, half_height = scenario.extent
        x, y = half_width * pose[..., _X], half_height * pose[..., _Y]
        views = np.stack((x, y, cos, sin, half, self._range_squared * working, working), -1)
        views = np.repeat(views, self.rows, 0)
        views[..., VIEW_CHANCE] = self._reports(x, y, working).reshape(-1, n)
        x, y, c, s = (np.broadcast_to(part[..., None], mask.shape) for part in (x, y, cos, sin))
        if not self.alone:  # all sensors show the same; the first that works is as good as any
            first = np.argmax(mask, 1)[:, None]  # (B, 1, m)
            pairs = np.take_along_axis(pairs, first[..., None], 1)
            mask, x, y, c, s = (np.take_along_axis(part, first, 1) for part in (mask, x, y, c, s))
        shown = pairs.astype(np.float64)
        # Unit vector of the line of sight, from the heading's and the bearing's.
        east = c * shown[..., _COS] - s * shown[..., _SIN]
        north = s * shown[..., _COS] + c * shown[..., _SIN]
        away = scenario.distance_scale * shown[..., _DISTANCE]
        radial, tangential = (scenario.top_speed * shown[..., k] for k in (_RADIAL, _TANGENTIAL))
        age = np.where(mask, np.rint(100 * shown[..., _AGE]), np.inf)
        velocity = radial * east - tangential * north, radial * north + tangential * east
        known = np.stack((x + away * east, y + away * north, *velocity, age), -1)
        return np.ascontiguousarray(known).reshape(-1, m, 5), views

    def _reports(self, x: np.ndarray, y: np.ndarray, working: np.ndarray) -> np.ndarray:
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
