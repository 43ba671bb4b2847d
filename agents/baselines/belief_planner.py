"""Receding-horizon planner for sensors that know only what they see."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.baselines.belief_kernels import Rules, plan_beliefs
from hitmac.agents.baselines.planner_kernels import Search
from hitmac.agents.baselines.rule import PlanningPolicy
from hitmac.agents.tracking.particle_kernels import Belief, scatter_all
from hitmac.agents.tracking.walk_models import ROWS, walk_model
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import check_cost

(
    _SIN, _COS, _DISTANCE, _RADIAL, _TANGENTIAL, _AGE, _X, _Y, _HEADING_SIN, _HEADING_COS,
) = range(10)  # fmt: skip
_OBSTRUCTED = 0.9
"""Chance that no obstacle hides a target in view, where a scenario has obstacles: the planner does not know them."""


class BeliefPlannerState(NamedTuple):
    """Memory of the belief planner for B scenes with g rows of knowledge, between two calls of ``predict``."""

    body: np.ndarray  # (B, g, m, 7, P) rows of the particles
    weight: np.ndarray  # (B, g, m, P)
    course: np.ndarray  # (B, g, m, 6)
    stream: np.ndarray  # (B, g, 2) uint64
    last_age: np.ndarray  # (B, g, m) sub-steps, of what was known at the last call; inf: nothing
    there: np.ndarray  # (B, g, m) bool: targets to plan for
    plans: np.ndarray  # (B, g, n, H + 1) int64: planned headings, in turns from the heading of the next call
    time: np.ndarray  # (B,) int64: calls since the episode began


class BeliefPlannerAgent(PlanningPolicy):
    """Agent that plans headings on beliefs about where the targets may be, and makes the first turn of its plan.

    The belief about a target is that of :class:`~hitmac.agents.tracking.ParticleTracker`: particles that walk as the
    scenario's targets do, from where it was last seen; a view in which it is not seen takes weight from the particles
    inside. A target that was never seen may be anywhere at first, so that to look where nobody has looked is worth what
    it can be expected to find. The futures of particles are the samples of the planner; its search, and the value of
    the plans of all sensors, are those of :class:`~hitmac.agents.baselines.planner.PlannerAgent`.

    It decides from the observation alone, with a memory in the state of ``predict``, which must be called at every
    sub-step of an episode. With shared or full knowledge there is one belief for all sensors. With the knowledge
    ``"neighbours"`` or ``"own"`` every sensor has its own beliefs, plans for all sensors on them, and makes its own
    turn: nothing that a sensor does depends on what another one knows. Positions and headings of all sensors are known
    to all. Obstacles are not: where a scenario has some, a view is taken to miss one target in ten.

    Args:
        scenario: the scenario to play.
        seed: seed of the particles and the futures, which are the same in all scenes; the plans are deterministic.
        horizon: sub-steps to look ahead; 1 or more.
        particles: particles of a target; `samples` or more.
        samples: futures of each target that are planned for; 1 to 64.
        restarts, rounds, turn_cost, discount: see :class:`~hitmac.agents.baselines.planner.PlannerAgent`.

    Raises:
        ValueError: an option out of its range.
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

    def __init__(
        self,
        scenario: Scenario,
        seed: int = 0,
        *,
        horizon: int = 60,
        particles: int = 168,
        samples: int = 21,
        restarts: int = 1,
        rounds: int = 2,
        turn_cost: float = 0.25,
        discount: float = 0.99,
    ) -> None:
        super().__init__(scenario, seed)
        scenario = self.scenario
        self.horizon, self.samples = positive("horizon", horizon), positive("samples", samples)
        self.particles = positive("particles", particles)
        if samples > 64 or particles < samples:
            raise ValueError(f"samples is {samples}; it must be a whole number, 1 to 64 and at most particles")
        if isinstance(restarts, bool) or not isinstance(restarts, int) or restarts < 0:
            raise ValueError(f"restarts is {restarts!r}; it must be a whole number, 0 or more")
        if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0 < discount <= 1:
            raise ValueError(f"discount is {discount!r}; it must be a number over 0, to 1")
        turn, view = scenario.of_each_sensor("turn_angle"), scenario.of_each_sensor("field_of_view")
        farthest = min(horizon, math.ceil(180.0 / turn.min()))
        self._search = Search(farthest, restarts, positive("rounds", rounds), check_cost(turn_cost))
        self._weight = (float(discount) ** np.arange(-1, horizon) / samples).astype(np.float32)  # the first is not used
        keys = stream_keys(np.array([seed, seed + 2**62]))
        self._rules = Rules(
            walk=walk_model(scenario),
            every=scenario.extra_move_every,
            deviation=scenario.position_noise,
            all_known=scenario.knowledge == "full",
            returns=scenario.return_rate > 0.0,
            half_view=0.5 * view,
            turn=turn,
            key=keys[0],
        )
        self._key = keys[1]
        self._half_view_cosine = np.where(view < 360.0, np.cos(np.radians(0.5 * view)), -2.0)
        self._range_squared = scenario.of_each_sensor("sensing_range") ** 2

    @property
    def _alone(self) -> bool:
        """True if every sensor has beliefs of its own."""
        return self.scenario.knowledge in ("neighbours", "own")

    def act(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the first turn (B, n) of every sensor's plan, planned without a memory."""
        return self.plan(pairs, mask)[0].argmax(-1)

    def values(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the values (B, n, 3) of staying, turning left and turning right, planned without a memory."""
        return self.plan(pairs, mask)[0]

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, BeliefPlannerState]:
        """Return the values (B, n, 3) of staying, turning left and turning right, and the state for the next call.

        Args:
            pairs: (B, n, m, 10) features of the observation.
            mask: (B, n, m) bool, the known targets.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins, so that their memory is not used.
        """
        b, n, m = mask.shape
        if state is None:
            new, starts = self._nothing(b), np.ones(b, np.bool_)
        else:
            new = BeliefPlannerState(*(array.copy() for array in state))
            starts = np.zeros(b, np.bool_) if episode_start is None else np.asarray(episode_start, np.bool_)
        groups = new.weight.shape[1]
        new.stream[starts] = np.array([self._key, 0], np.uint64)
        new.last_age[starts], new.there[starts], new.plans[starts], new.time[starts] = np.inf, True, 0, 0
        rows = b * groups
        threads = Threads(rows, cores(), block=8)
        belief = Belief(
            new.body.reshape(rows, *new.body.shape[2:]),
            new.weight.reshape(rows, m, -1),
            new.course.reshape(rows, m, -1),
            np.ascontiguousarray(new.stream.reshape(rows, 2).T),
        )
        if starts.any():
            threads.run(scatter_all, self._rules.walk, belief, np.repeat(starts, groups))
        known, views, working = self._read(pairs, mask)
        reports = self._reports(views, working).reshape(rows, n)
        values = np.zeros((rows, n, 3), np.float32)
        memory = (new.last_age.reshape(rows, m), new.there.reshape(rows, m), new.plans.reshape(rows, n, -1))
        threads.run(
            plan_beliefs, self._rules, self._search, self._weight, self.samples, belief, known.reshape(rows, m, 5),
            np.repeat(views, groups, 0), reports, np.repeat(new.time, groups), memory, values,
        )  # fmt: skip
        new.stream[:] = belief.stream.T.reshape(b, groups, 2)
        new.time[:] += 1
        values = values.reshape(b, groups, n, 3)
        own = np.arange(n) if self._alone else np.zeros(n, np.int64)
        return np.ascontiguousarray(values[:, own, np.arange(n)]), new

    def _nothing(self, b: int) -> BeliefPlannerState:
        """Return the state before the first call."""
        n, m, p = self.scenario.num_sensors, self.scenario.num_targets, self.particles
        g = n if self._alone else 1
        return BeliefPlannerState(
            np.zeros((b, g, m, ROWS, p)),
            np.zeros((b, g, m, p)),
            np.zeros((b, g, m, 6)),
            np.zeros((b, g, 2), np.uint64),
            np.full((b, g, m), np.inf),
            np.ones((b, g, m), np.bool_),
            np.zeros((b, g, n, self.horizon + 1), np.int64),
            np.zeros(b, np.int64),
        )

    def _read(self, pairs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what the rows know (B, g, m, 5), the views (B, n, 7) and the working sensors (B, n)."""
        scenario, shown = self.scenario, pairs.astype(np.float64)
        pose = shown[:, :, 0]
        cos, sin = pose[..., _HEADING_COS], pose[..., _HEADING_SIN]
        working = cos**2 + sin**2 > 0.5
        views = np.stack(
            (
                scenario.arena * pose[..., _X],
                scenario.arena * pose[..., _Y],
                cos,
                sin,
                np.broadcast_to(self._half_view_cosine, cos.shape),
                self._range_squared * working,
                working,
            ),
            -1,
        )
        x, y, c, s = (views[:, :, None, k] for k in range(4))
        # Unit vector of the line of sight, from the heading's and the bearing's.
        east = c * shown[..., _COS] - s * shown[..., _SIN]
        north = s * shown[..., _COS] + c * shown[..., _SIN]
        away = scenario.distance_scale * shown[..., _DISTANCE]
        radial, tangential = (scenario.top_speed * shown[..., k] for k in (_RADIAL, _TANGENTIAL))
        known = np.stack(
            (
                x + away * east,
                y + away * north,
                radial * east - tangential * north,
                radial * north + tangential * east,
                np.where(mask, np.rint(100 * shown[..., _AGE]), np.inf),
            ),
            -1,
        )  # (B, n, m, 5)
        if not self._alone:  # all sensors show the same; the first that works is as good as any
            first = np.argmax(mask, 1)[:, None, :, None]
            known = np.take_along_axis(known, first, 1)
        return np.ascontiguousarray(known), np.ascontiguousarray(views), working

    def _reports(self, views: np.ndarray, working: np.ndarray) -> np.ndarray:
        """Return the probability (B, g, n) that a sensor detects a target in view and that the row is told at once."""
        scenario = self.scenario
        chance = 1.0 - scenario.missed_detections
        if scenario.discs or scenario.random_discs or scenario.walls:
            chance *= _OBSTRUCTED
        detects = chance * working[:, None, :]  # (B, 1, n)
        if not self._alone:
            return np.ascontiguousarray(detects)
        told = np.broadcast_to(np.eye(working.shape[1]), (len(working), *[working.shape[1]] * 2))
        if scenario.knowledge == "neighbours" and scenario.message_delay == 0:
            apart = views[:, :, None, :2] - views[:, None, :, :2]
            near = (apart**2).sum(-1) <= scenario.communication_range**2  # the other links only add reports
            told = np.maximum(told, near * (1.0 - scenario.message_loss_rate))
        return np.ascontiguousarray(detects * told)
