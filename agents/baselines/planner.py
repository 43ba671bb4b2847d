"""Agents that plan sequences of headings: from the observation alone, or from beliefs about the targets."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.baselines.believed_plans import Near, Sampling, plan_beliefs
from hitmac.agents.baselines.observed_plans import Walk, plan
from hitmac.agents.baselines.rules import RulePolicy
from hitmac.agents.baselines.search import Motion, Search
from hitmac.agents.policy import (
    Observation,
    Size,
    Starts,
    State,
    checked_lists,
    checked_starts,
    copied_state,
    farthest_reach,
)
from hitmac.agents.tracking.beliefs import Beliefs, BeliefState
from hitmac.envs.kernels.nearest import make_cells
from hitmac.envs.kernels.rails import limits_of, make_rails
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.validation import NotNegative, convert, over, whole_number


class PlanningPolicy(RulePolicy):
    """Base class of policies that compute a value for every action; their state is their memory."""

    def plan(
        self, pairs: np.ndarray, mask: np.ndarray, state: State = None, episode_start: Starts = None
    ) -> tuple[np.ndarray, Any]:
        """Return the values (B, k n, 3) of the actions 0, 1 and 2 of each decision, and the state for the next call.

        The k decisions :attr:`decides` are ordered as in the actions: first the values of staying, turning left and
        turning right for all sensors; on rails then those of staying in place, moving forward and moving back. The
        value of an action is that of the sensor's best plan that begins with it: the discounted coverage that the plans
        of the other sensors, as of its last revision, do not provide, minus the cost of turning.

        Planners of scenes also accept `targets` (B, n, k), int: the targets listed in pairs (B, n, k, d) and mask
        (B, n, k), the nearest to each sensor; -1 marks an empty place. None: place j is target j. The planner without
        beliefs ignores targets that are not listed.

        Args:
            pairs: (B, n, m, d) features of the observation.
            mask: (B, n, m) bool, the valid pairs.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins; their memory is reset.
        """
        raise NotImplementedError

    def decide(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, State]:
        """Return the actions of the highest value."""
        lists = self.lists_of(observation)
        values, new = self.plan(observation["pairs"], observation["mask"], state, episode_start, **lists)
        return values.argmax(-1), new


class HeadingPlanner(PlanningPolicy):
    """Base class of planners of sequences of headings: their options and their search.

    A plan of a sensor is a heading for every sub-step of the horizon. The value of the plans of all sensors is

        sum over sub-steps h of discount^(h - 1) * (expected number of covered targets) - turn_cost * (turning sensors).

    The search is a coordinate ascent: each sensor in turn adopts its best plan given the plans of the others, found by
    dynamic programming over sub-steps and headings, until no plan changes. The first ascent starts from the plans of
    the previous sub-step; in the others, sensors plan in turn from no plans, each time in another order. The best
    result is kept.

    On rails, a plan also includes one motion for the whole horizon: stay, or move forward or back at every sub-step.
    Plans respect the sensors' pan limits.

    Args:
        scenario: the scenario to play.
        seed: seed of the sampled futures, which are the same in all scenes.
        horizon: sub-steps to look ahead; 1 to 10,000.
        samples: futures of each target; 1 to 64.
        restarts: ascents in addition to the first; 0 to 1,000.
        rounds: most revisions of a plan in an ascent; 1 to 1,000.
        turn_cost: cost of a sub-step of turning, in targets covered for a sub-step; 0 or more.
        discount: weight of a sub-step relative to the previous one, since later forecasts are less certain; (0, 1].

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int = 0,
        *,
        horizon: int = 60,
        samples: int = 12,
        restarts: int = 1,
        rounds: int = 2,
        turn_cost: float = 0.25,
        discount: float = 0.99,
    ) -> None:
        super().__init__(scenario, seed)
        self.horizon = whole_number("horizon", horizon, 1, 10_000)
        self.samples = whole_number("samples", samples, 1, 64)  # bits of a machine word
        self.restarts = whole_number("restarts", restarts, 0, 1_000)
        self.rounds = whole_number("rounds", rounds, 1, 1_000)
        self.turn_cost = convert("turn_cost", NotNegative, turn_cost)
        self.discount = convert("discount", Annotated[float, over(0, 1)], discount)
        scenario, limits, self._motion = self.scenario, limits_of(self.scenario), None
        if scenario.rails:
            step = scenario.rail_step / scenario.distance_scale
            self._motion = Motion(make_rails(scenario.rails), step, scenario.rail_step)
            self.decides = "turn", "move"
        limited = bool(np.isfinite(limits).any())
        circle = 360.0 if limited else 180.0  # degrees; within limits only the long way may be possible
        farthest = min(self.horizon, math.ceil(circle / scenario.of_each_sensor("turn_angle").min()))
        looks, ages = np.arange(self.horizon + 1), np.arange(-1, self.horizon).clip(0)
        weight = (self.discount**ages / self.samples).astype(np.float32)  # the first is unused
        self._search = Search(
            self.samples, self.restarts, self.rounds, self.turn_cost, looks, weight, farthest, limited, limits
        )  # fmt: skip


_COURSES = 6  # courses of a sampled future before its draws repeat


class PlannerState(NamedTuple):
    """Memory of the planner for B scenes between calls of ``predict``."""

    pairs: np.ndarray  # (B, n, m, 8) last observation
    mask: np.ndarray  # (B, n, m) bool
    targets: np.ndarray  # (B, m, 4) moves since the last turn, observations since then, mean and last speed
    clock: np.ndarray  # (B,) int64: sub-steps since the last extra move of the targets; -1: unknown
    steps: np.ndarray  # (B,) int64: calls since the start
    plans: np.ndarray  # (B, n, H + 1) int64: planned headings, in turns from the heading of the next call
    ways: np.ndarray  # (B, n) int64: ways to move of these plans, 0 without rails
    listed: np.ndarray  # (B, n, k) int32: the targets that `pairs` list; (B, n, 0): all, in order


class PlannerAgent(HeadingPlanner):
    """Agent that plans headings over a horizon at every sub-step and executes the first turn.

    The planner (:class:`HeadingPlanner`) uses only the observation, so it plays any scenario. It forecasts several
    futures of each target by the scenario's walk. A target that walks to goals turns when it reaches its goal, sampled
    given the distance already walked, or when its patience ends; other targets swerve at random. The state holds the
    plans, the time of each target's last turn, its mean speed, and the sub-step of the extra moves. Forecasts ignore
    obstacles, the arena's border, departures and evasion; lenses that zoom keep their fields of view. With one sample,
    targets keep their mean velocity.

    On rails the observation also has the features :attr:`rail_features`; with pan limits, the first two of them.
    """

    features: ClassVar[tuple[str, ...]] = (
        "bearing_sin", "bearing_cos", "distance", "radial_velocity", "tangential_velocity", "field_of_view",
        "sensing_range", "turn",
    )  # fmt: skip
    rail_features: ClassVar[tuple[str, ...]] = ("heading_sin", "heading_cos", "along")

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        super().__init__(scenario, seed, **options)
        scenario = self.scenario
        scale = scenario.distance_scale  # of the observation
        motion = WALKS[scenario.walk].motion
        self._walk = Walk(
            goals=motion == "goals",
            arena=2.0 * math.sqrt(math.prod(scenario.extent)) / math.sqrt(math.pi) / scale,
            step=scenario.top_speed * scenario.time_step / scale,
            slowest=scenario.min_speed / scenario.top_speed,
            fastest=scenario.max_speed / scenario.top_speed,
            noise=scenario.speed_noise,
            stuck=scenario.stuck_distance / scale,
            patience=float(scenario.goal_patience),
            every=scenario.extra_move_interval,
            exact=scenario.position_noise == 0.0,
        )
        if self._motion is not None:
            self.features = self.features + self.rail_features  # type: ignore[misc]
        elif self._search.limited:
            self.features = self.features + self.rail_features[:2]  # type: ignore[misc]
        rng = np.random.default_rng(seed)
        first = _stratified(rng, self.samples, 3)
        later = _stratified(rng, self.samples, _COURSES * 4).reshape(self.samples, _COURSES, 4)
        radius, angle = np.sqrt(later[..., 0]), 2 * np.pi * later[..., 1]  # goals, uniform in the unit disc
        later[..., 0], later[..., 1] = radius * np.cos(angle), radius * np.sin(angle)
        swerve = math.radians({"random": 180.0, "goals": 0.0}.get(motion, scenario.wander))
        wandering = _wander(rng, self.samples, 2 * self.horizon, swerve)
        self._futures = first, later, wandering

    @property
    def size(self) -> Size:
        """See :attr:`RulePolicy.size`; without rails and pan limits, the number of sensors is free as well."""
        return (None, None) if self._motion is None and not self._search.limited else super().size

    def near(self) -> dict[str, Any]:
        """Return the options for the targets that can come into range within the horizon, at most the nearest 16."""
        every = self.scenario.extra_move_interval
        moves = self.horizon * (1.0 + (1.0 / every if every else 0.0))
        way = moves * self.scenario.top_speed * self.scenario.time_step * (1.0 + self.scenario.speed_noise)
        if self._motion is not None:
            way += self.horizon * self.scenario.rail_step
        return {"nearest": 16, "radius": farthest_reach(self.scenario) + way}

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: State = None,
        episode_start: Starts = None,
        *,
        targets: np.ndarray | None = None,
        own: tuple[int, np.ndarray] = (0, np.zeros((0, 0, 0), np.float32)),
    ) -> tuple[np.ndarray, PlannerState]:
        """See :meth:`PlanningPolicy.plan`; `own` is the window of :meth:`shares` and its output array."""
        pairs, mask = self.checked(pairs, mask)
        if targets is not None:
            targets = checked_lists(targets, mask, self.scenario.num_targets)
        pairs = pairs.astype(np.float32, copy=False)  # one compiled kernel for all types
        new = self._nothing(pairs, targets) if state is None else PlannerState(*copied_state(state, pairs.shape))
        if (starts := checked_starts(episode_start, len(pairs))) is not None:
            new.mask[starts] = False
            new.clock[starts] = 0 if self._walk.every else -1
            new.steps[starts] = 0
        values = np.zeros((len(pairs), len(self.decides) * pairs.shape[1], 3), np.float32)
        Threads(len(pairs), cores(), block=8).run(
            plan, pairs, mask, targets, new, self._walk, self._motion, self._search, self._futures, values, own
        )  # fmt: skip
        listed = new.listed if targets is None else targets.copy()
        return values, new._replace(pairs=pairs.copy(), mask=mask.copy(), listed=listed)

    def shares(self, pairs: np.ndarray, mask: np.ndarray, window: int) -> np.ndarray:
        """Return the share (B, n, m) of the futures of target j in which only sensor i covers it.

        Plans are made without a memory and evaluated over the next `window` sub-steps, at most the horizon.
        """
        shares = np.zeros(mask.shape, np.float32)
        self.plan(pairs, mask, own=(min(window, self.horizon), shares))
        return shares

    def _nothing(self, pairs: np.ndarray, targets: np.ndarray | None) -> PlannerState:
        """Return the state before the first call."""
        b, n, k, _ = pairs.shape
        return PlannerState(
            np.zeros_like(pairs),
            np.zeros((b, n, k), np.bool_),
            np.zeros((b, k if targets is None else self.scenario.num_targets, 4)),
            np.full(b, -1),
            np.zeros(b, np.int64),
            np.zeros((b, n, self.horizon + 1), np.int64),
            np.zeros((b, n), np.int64),
            np.full((b, n, 0 if targets is None else k), -1, np.int32),
        )


class FastPlannerAgent(PlannerAgent):
    """:class:`PlannerAgent` with one future per target, a shorter horizon and fewer revisions."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fast = {"horizon": 45, "samples": 1, "rounds": 1, "turn_cost": 0.2, "discount": 0.98}
        super().__init__(scenario, seed, **fast | options)


def _wander(rng: np.random.Generator, samples: int, moves: int, swerve: float) -> np.ndarray:
    """Return positions (samples, moves + 1, 2) on swerving walks with moves of length 1; with one sample their mean."""
    if samples == 1:
        ahead = np.cumsum(np.append(0.0, np.sinc(swerve / np.pi) ** np.arange(1, moves + 1)))
        return np.stack((ahead, np.zeros_like(ahead)), -1)[None]
    course = np.cumsum(swerve * rng.uniform(-1, 1, (samples, moves)), 1)
    path = np.cumsum(np.stack((np.cos(course), np.sin(course)), -1), 1)
    return np.concatenate((np.zeros((samples, 1, 2)), path), 1)


def _stratified(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Draw numbers (rows, columns) in (0, 1), stratified in each column: one per interval of length 1 / rows."""
    order = rng.permuted(np.tile(np.arange(rows), (columns, 1)), axis=1).T
    return (order + rng.uniform(1e-6, 1.0, (rows, columns))) / rows


class BeliefPlannerState(NamedTuple):
    """Memory of the belief planner for B scenes with g rows of knowledge between calls of ``predict``."""

    body: np.ndarray  # the arrays of BeliefState
    weight: np.ndarray
    course: np.ndarray
    stream: np.ndarray
    last_age: np.ndarray
    present: np.ndarray
    time: np.ndarray
    place: np.ndarray
    plans: np.ndarray  # (B, g, n, H + 1) int64: planned headings, in turns from the heading of the next call
    ways: np.ndarray  # (B, g, n) int64: ways to move of these plans, 0 without rails


class BeliefPlannerAgent(HeadingPlanner):
    """Agent that plans headings from beliefs about the targets' positions and executes the first turn.

    The planner (:class:`HeadingPlanner`) samples futures of the particles of
    :class:`~hitmac.agents.tracking.beliefs.Beliefs`. A target that was never seen may be anywhere, so views of
    unobserved areas have a value. ``predict`` must be called at every sub-step of an episode. With the knowledge
    ``"neighbours"`` or ``"own"`` every sensor plans for all sensors from its own beliefs and executes its own turn: no
    decision depends on the knowledge of another sensor.

    Given observations that list the k nearest targets, the agent keeps beliefs about all targets and plans for each
    sensor with the k targets whose futures are most often in its range. The option `radius` is not allowed, since a
    list with an empty place counts as complete.

    Args:
        scenario: the scenario to play.
        seed: seed of the particles and the futures, which are the same in all scenes.
        particles: particles of a target; `samples` or more.
        stride: most sub-steps that share one view; 1 or more. With 1 every sub-step has its own view. Otherwise 1, 1,
            2, 2, 3, 3 and so on sub-steps share the view of their middle one, and targets that walk to goals are
            forecast course by course instead of move by move, which is faster.
        options: see :class:`HeadingPlanner`; the default of `samples` is 21.
    """

    features: ClassVar[tuple[str, ...]] = Beliefs.features
    nearest: ClassVar[int | None] = 16

    def __init__(
        self, scenario: Scenario, seed: int = 0, *, particles: int = 168, stride: int = 1, **options: Any
    ) -> None:
        super().__init__(scenario, seed, **{"samples": 21} | options)
        scenario = self.scenario
        if positive("particles", particles) < self.samples:
            raise ValueError(f"particles is {particles}; it must be at least samples, {self.samples}")
        self._search = self._search._replace(looks=_looks(self.horizon, positive("stride", stride)))
        by_course = stride > 1 and WALKS[scenario.walk].motion == "goals"
        self._sensors = 0.5 * scenario.of_each_sensor("field_of_view"), scenario.of_each_sensor("turn_angle")
        self._beliefs = Beliefs(scenario, particles, seed, () if self._motion is None else ("along",))
        self.features = self._beliefs.features  # type: ignore[misc]
        pieces, unseen = self._beliefs.pieces, 0
        if pieces is not None and not self._beliefs.rules.all_known:
            unseen = math.ceil(pieces.expected)
        self._sampling = Sampling(stream_keys(np.array([seed]))[0], by_course, 64 // self.samples, unseen)
        self._cells = make_cells(scenario, scenario.num_sensors)

    def shown(self, nearness: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the given options, or in a large scene :meth:`near`; raise ValueError for a radius."""
        if "radius" in nearness:
            raise ValueError(f"radius is {nearness['radius']}; beliefs need lists without a radius")
        return super().shown(nearness)

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: State = None,
        episode_start: Starts = None,
        *,
        targets: np.ndarray | None = None,
    ) -> tuple[np.ndarray, BeliefPlannerState]:
        """See :meth:`PlanningPolicy.plan`."""
        own = None if state is None else BeliefState(*state[:-2])
        scene, new = self._beliefs.update(pairs, mask, own, episode_start, targets)
        b, g, n = len(mask), self._beliefs.rows, self.scenario.num_sensors
        if state is None:
            plans, ways = np.zeros((b, g, n, self.horizon + 1), np.int64), np.zeros((b, g, n), np.int64)
        else:
            plans, ways = state[-2].copy(), state[-1].copy()
        plans[new.time == 1], ways[new.time == 1] = 0, 0
        rows = b * g
        history = plans.reshape(rows, n, self.horizon + 1), ways.reshape(rows, n)
        values = np.zeros((rows, n * len(self.decides), 3), np.float32)
        along = np.repeat(pairs[:, :, 0, -1].astype(np.float64), g, 0)  # unused without rails
        near, sampling = None, self._sampling
        if targets is not None:
            moved = 0.0 if self._motion is None else self.horizon * self._motion.rail_step
            near, sampling = Near(self._cells, targets.shape[-1], moved), sampling._replace(per_word=1)
        Threads(rows, cores(), block=8).run(
            plan_beliefs, self._beliefs.rules, self._sensors, self._motion, along, self._search, sampling, near,
            self._beliefs.pieces, scene.clear, scene, history, values,
        )  # fmt: skip
        return self._beliefs.of_sensors(values), BeliefPlannerState(*new, plans, ways)


def _looks(horizon: int, stride: int) -> np.ndarray:
    """Return the look (H + 1,) of each sub-step, numbered from 1; looks last 1, 1, 2, 2, ... sub-steps."""
    lengths = np.minimum(np.arange(horizon) // 2 + 1, stride)
    return np.r_[0, np.repeat(np.arange(1, horizon + 1), lengths)[:horizon]]


class FastBeliefPlannerAgent(BeliefPlannerAgent):
    """:class:`BeliefPlannerAgent` with half the particles, fewer futures, a shorter horizon and fewer revisions."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fast = {"horizon": 40, "particles": 84, "samples": 6, "rounds": 1, "turn_cost": 0.15, "discount": 0.98}
        super().__init__(scenario, seed, **fast | options)


class FastestBeliefPlannerAgent(BeliefPlannerAgent):
    """:class:`BeliefPlannerAgent` with views shared by several sub-steps, and 2 to 6 futures, to fit a machine word."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fastest = {
            "horizon": 40, "particles": 42, "samples": min(max(64 // scenario.num_targets, 2), 6), "restarts": 0,
            "rounds": 1, "turn_cost": 0.05, "discount": 0.98, "stride": 6,
        }  # fmt: skip
        super().__init__(scenario, seed, **fastest | options)
