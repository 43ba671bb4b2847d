"""Beliefs of a whole scene, kept up from observations alone."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.nearness import is_large
from hitmac.agents.observed import (
    check_finite,
    check_range,
    checked_lists,
    checked_observation,
    checked_starts,
    copied_state,
)
from hitmac.agents.tracking.belief_kernels import Rules, track_all
from hitmac.agents.tracking.particle_kernels import COURSE, Belief, scatter_all
from hitmac.agents.tracking.reading import FEATURES, Reader
from hitmac.agents.tracking.reports import AGE, merge_reports
from hitmac.agents.tracking.walk_models import ROWS, STEP, walk_model
from hitmac.envs.kernels.cells import make_cells
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.machine import check_memory
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive

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
