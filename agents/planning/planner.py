"""Agents that plan sequences of headings from beliefs about the targets."""

import math
from collections.abc import Mapping
from functools import partialmethod
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.planning.futures import Forecast, Futures, Horizon, Sampling, empty_futures, foresee_all
from hitmac.agents.planning.rules import RulePolicy
from hitmac.agents.planning.search import CHUNK, Plans, Search, Views, count_exclusive, search_all, shares_of
from hitmac.agents.planning.views import Hidden, Near, Sensors, Ways, Worth, list_all, mark_all, weigh_all
from hitmac.agents.policy import Observation, Starts, State
from hitmac.agents.tracking.beliefs import Beliefs, BeliefState, Scene
from hitmac.agents.tracking.features import EQUAL, update
from hitmac.agents.tracking.sight import Sight
from hitmac.agents.tracking.tracks import Estimate, Tracks, TracksState
from hitmac.envs.base.nearest import make_cells
from hitmac.envs.base.streams import stream_keys
from hitmac.envs.base.threads import Threads, cores
from hitmac.envs.parts.lenses import KEEP, NARROWER, WIDER, make_lens
from hitmac.envs.parts.motors import delay_of
from hitmac.envs.parts.rails import STAND, make_rails
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.parts.tilt import DOWN, UP, make_mount
from hitmac.envs.parts.values import make_values
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import NotNegative, Range, convert, over, positive, whole_number


class PlanningPolicy(RulePolicy):
    """Base class of policies that compute a value for every action; their state is their memory."""

    def plan(
        self, pairs: np.ndarray, mask: np.ndarray, state: State = None, episode_start: Starts = None
    ) -> tuple[np.ndarray, Any]:
        """Return the values (B, k n, 3) of the actions 0, 1 and 2 of each decision, and the state for the next call.

        The k decisions :attr:`decides` are ordered as in the actions: first the values of staying, turning left and
        turning right for all sensors, then those of the actions 0, 1 and 2 of the next decision, and so on. The value
        of an action is that of the sensor's best plan that begins with it, a turn's among those that zoom, tilt and
        move as the very best plan: the discounted coverage that the plans of the other sensors, as of its last
        revision, do not provide, minus the cost of turning.

        Planners of scenes also accept `targets` (B, n, k), int: the targets listed in pairs (B, n, k, d) and mask
        (B, n, k), the nearest to each sensor; -1 marks an empty place. None: place j is target j.

        Args:
            pairs: (B, n, m, d) features of the observation.
            mask: (B, n, m) bool, the valid pairs.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins; their memory is reset.
        """
        raise NotImplementedError

    def plan_on(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, Any]:
        """Return the values of :meth:`plan` for an observation, and the state."""
        lists = self.lists_of(observation)
        return self.plan(observation["pairs"], observation["mask"], state, episode_start, **lists)

    def decide(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, State]:
        """Return the actions of the highest value."""
        values, new = self.plan_on(observation, state, episode_start)
        return values.argmax(-1), new


_DISTANCES = 128  # of which the share of hidden targets is known
_TILTED = 15.0  # degrees by which tilts of ways change, unless one step is more
_ZOOMED = 10.0, 30.0, 75.0  # degrees by which the lenses of ways change in a game, whose steps are small
_BLOCK = 1 << 21  # bytes of the views and futures that a thread computes at a time, so that they stay in its cache


class PlannerState(NamedTuple):
    """Memory of a planner for B scenes with g rows of knowledge between calls of ``predict``."""

    beliefs: BeliefState | TracksState
    plans: np.ndarray  # (B, g, n, H + 1) int64: planned headings, in turns from the heading of the next call
    ways: np.ndarray  # (B, g, n) int64: ways of these plans, 0 where sensors only turn


class _Workspace(NamedTuple):
    """Working memory for some rows of knowledge, and the threads that share them."""

    rows: int
    every: Futures  # of all targets, of each row
    futures: Futures  # of those that the sensors look at: `every`, or of the targets listed for each sensor
    views: Views
    threads: int
    block: int  # rows that a thread takes at a time


def _size_of(targets: int, per_word: int, samples: int) -> tuple[int, int]:
    """Return the number of words for the samples of targets, and of entries of futures in a word."""
    return -(-targets // per_word), min(targets, per_word) * (samples + 1)


_NO_SHARES = 0, np.zeros((0, 0, 0), np.float32)


class Problem(NamedTuple):
    """All that a planner's scenario determines, grouped by the kernel that needs it."""

    forecast: Forecast
    sensors: Sensors
    worth: Worth
    search: Search
    then: np.ndarray  # (A,) int64: the way that continues each way at the next sub-step


class PlannerAgent(PlanningPolicy):
    """Agent that plans headings over a horizon at every sub-step and executes the first turn.

    A plan of a sensor is a heading for every sub-step of the horizon. The value of the plans of all sensors is

        sum over sub-steps h of discount^(h - 1) * (expected number of covered targets) - turn_cost * (turning sensors).

    In a scenario with values, targets count by value, in units of the mean value of the forecasts. If several sensors
    must see a target, the first ones gain a part of its value, so that the others can join them.

    The expectation is over sampled futures of the particles of :class:`~hitmac.agents.tracking.beliefs.Beliefs`, seen
    as :class:`~hitmac.agents.tracking.sight.Sight` says. Where all targets are known, particles differ only in their
    goals; with partial knowledge a target that was never seen may be anywhere, so views of unobserved areas have a
    value. ``predict`` must be called at every sub-step of an episode. With the knowledge ``"neighbours"`` or ``"own"``
    every sensor plans for all sensors from its own beliefs and executes its own turn: no decision depends on the
    knowledge of another sensor.

    The search is a coordinate ascent: each sensor in turn adopts its best plan given the plans of the others, found by
    dynamic programming over sub-steps and headings, until no plan changes. The first ascent starts from the plans of
    the previous sub-step; in the others, sensors plan in turn from no plans, each time in another order. The best
    result is kept.

    With motors, plans begin when the next command takes effect, from the headings at which pending commands leave the
    sensors, with turns of at most the highest rate; a lag of half the ramp stands for the acceleration. With
    `heading_noise`, views count as narrower by its standard deviation on either side.

    On rails, a plan also includes one motion for the whole horizon: stay, or move forward or back at every sub-step.
    With zoom it includes one step of the lens, narrower or wider, or none; with warehouses, steps that add up to 10, 30
    or 75 degrees. With `tilt_limits` it may instead include one step of the tilt, or steps that add up to 15 degrees,
    each at the cost of a turn. Targets that evade are expected to react to the last plans. Plans respect the sensors'
    pan limits.

    Given observations that list the k nearest targets, the agent keeps beliefs about all targets and plans for each
    sensor with the k targets whose futures are most often in its range. The option `radius` is not allowed, since a
    list with an empty place counts as complete. Without identities, the tracks of
    :class:`~hitmac.agents.tracking.Tracks` take the place of targets, with their existence as weight.

    Args:
        scenario: the scenario to play.
        seed: seed of the particles and the futures, which are the same in all scenes.
        horizon: sub-steps to look ahead; 1 to 10,000.
        samples: futures of each target; 1 to 64.
        particles: particles of a target; `samples` or more.
        per_length: sub-steps are joined in stages, ever more with time: this many stages last one sub-step, as many
            two, and so on; all count by their middle sub-step. 0: every sub-step is a stage.
        restarts: ascents in addition to the first; 0 to 1,000.
        rounds: most revisions of a plan in an ascent; 1 to 1,000.
        turn_cost: cost of a turn by `turn_angle`, in targets covered for a sub-step; 0 or more.
        discount: weight of a sub-step relative to the previous one, since later forecasts are less certain; (0, 1].
        spent: in a game, value of a target that is believed to have no bounty, relative to others; 0 to 1.

    Raises:
        ValueError: an option out of its range.
    """

    features: tuple[str, ...] = Beliefs.features
    nearest: ClassVar[int | None] = 16

    def __init__(
        self,
        scenario: Scenario,
        seed: int = 0,
        *,
        horizon: int = 60,
        samples: int = 12,
        particles: int = 12,
        per_length: int = 20,
        restarts: int = 1,
        rounds: int = 2,
        turn_cost: float = 0.25,
        discount: float = 0.99,
        spent: float = 1.0,
    ) -> None:
        super().__init__(scenario, seed)
        self.horizon = whole_number("horizon", horizon, 1, 10_000)
        self.samples = whole_number("samples", samples, 1, 64)  # bits of a machine word
        self.restarts = whole_number("restarts", restarts, 0, 1_000)
        self.rounds = whole_number("rounds", rounds, 1, 1_000)
        self.turn_cost = convert("turn_cost", NotNegative, turn_cost)
        self.discount = convert("discount", Annotated[float, over(0, 1)], discount)
        self.spent = convert("spent", Annotated[float, Range(0, 1)], spent)
        if positive("particles", particles) < self.samples:
            raise ValueError(f"particles is {particles}; it must be at least samples, {self.samples}")
        scenario = self.scenario
        self.decides = scenario.decisions
        self._beliefs: Beliefs | Tracks
        if scenario.identities:
            self._beliefs = Beliefs(scenario, particles, seed, plans=True)
        else:
            self._beliefs = Tracks(scenario, particles, seed)
        self.features = self._beliefs.features
        self._cells = make_cells(scenario, scenario.num_sensors)
        self._problem = self._pose(seed, whole_number("per_length", per_length, 0, 10_000))
        self._costs = self._problem.search.turn_cost, self._problem.search.cost

    def _pose(self, seed: int, per_length: int) -> Problem:
        """Return the problem that all plans solve."""
        scenario, beliefs, samples = self.scenario, self._beliefs, self.samples
        limits, turn = limits_of(scenario), scenario.of_each_sensor("turn_angle")
        turned = np.minimum(turn, scenario.rates[1] * scenario.time_step)
        limited = bool(np.isfinite(limits).any())
        circle = 360.0 if limited else 180.0  # degrees; within limits only the long way may be possible
        farthest = min(self.horizon, math.ceil(circle / turned.min()))
        stage, horizon = _stages(self.horizon, per_length, delay_of(scenario))
        weight = (self.discount ** np.arange(-1, self.horizon).clip(0) / samples).astype(np.float32)
        ways, first, then = _ways(scenario)
        unknown = scenario.random_discs and not beliefs.shown
        hidden = _hidden(scenario, samples) if unknown else Hidden(np.zeros((0, 0), np.uint64), 0.0)
        sampling = Sampling(
            stream_keys(np.array([seed]))[0], samples, 64 // samples, math.ceil(beliefs.unseen), self.spent,
            scenario.walk == "evade",
        )  # fmt: skip
        worth, m = _worth(scenario), beliefs.most if isinstance(beliefs, Tracks) else scenario.num_targets
        cost = self.turn_cost * float((turned / turn).mean())
        return Problem(
            Forecast(beliefs.rules, horizon, sampling, beliefs.pieces, turned),
            Sensors(turned, limits, farthest, ways, hidden, horizon, samples),
            worth,
            Search(
                samples, m, self.restarts, self.rounds, cost, stage, weight, farthest, limited, first,
                self.turn_cost * ways.tilts, worth.shares,
            ),
            then,
        )  # fmt: skip

    def price(self, factor: float) -> None:
        """Let turns and tilts of the next plans cost `factor` times as much as at first."""
        turn, ways = self._costs
        search = self._problem.search._replace(turn_cost=factor * turn, cost=factor * ways)
        self._problem = self._problem._replace(search=search)

    def shown(self, nearness: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the given options, or in a large scene :meth:`near`, and discs; raise ValueError for a radius."""
        if "radius" in nearness:
            raise ValueError(f"radius is {nearness['radius']}; it must be None for planners with beliefs")
        return {**super().shown(nearness), **self._beliefs.shown}

    def lists_of(self, observation: Observation) -> dict[str, np.ndarray]:
        """Return the arguments `targets` and `discs` of :meth:`plan`, if an observation has them."""
        lists = super().lists_of(observation)
        return lists | ({"discs": observation["discs"]} if "discs" in observation else {})

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: State = None,
        episode_start: Starts = None,
        *,
        targets: np.ndarray | None = None,
        discs: np.ndarray | None = None,
        own: tuple[int, np.ndarray] = _NO_SHARES,
    ) -> tuple[np.ndarray, PlannerState]:
        """See :meth:`PlanningPolicy.plan`.

        `discs` (B, k, 3) are those of the observation of a game, and `own` the window of :meth:`shares` and its output.
        """
        assert isinstance(self._beliefs, Beliefs)
        before = None if state is None else PlannerState(*state).beliefs
        scene, new = self._beliefs.update(pairs, mask, before, episode_start, targets, discs)
        return self._plan(scene, new, state, 0 if targets is None else np.shape(targets)[-1], own)

    def plan_on(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, Any]:
        """See :meth:`PlanningPolicy.plan_on`; also for detections without identities."""
        if self.scenario.identities:
            return super().plan_on(observation, state, episode_start)
        before = None if state is None else PlannerState(*state).beliefs
        scene, new = update(self._beliefs, observation, before, episode_start)
        return self._plan(scene, new, state)

    def estimate(self, state: PlannerState, **options: float) -> Estimate:
        """Return the tracks; see :meth:`~hitmac.agents.tracking.Tracks.estimate`."""
        assert isinstance(self._beliefs, Tracks)
        assert isinstance(state.beliefs, TracksState)
        return self._beliefs.estimate(state.beliefs, **options)

    def _plan(
        self,
        scene: Scene,
        new: BeliefState | TracksState,
        state: State,
        listed: int = 0,
        own: tuple[int, np.ndarray] = _NO_SHARES,
    ) -> tuple[np.ndarray, PlannerState]:
        """Return the values and the state, with plans for the `listed` nearest targets of each sensor; 0: for all."""
        (rows, n), g, steps = scene.lens.shape, self._beliefs.rows, self.horizon + 1
        plans = Plans(np.zeros((rows, n, steps), np.int64), np.zeros((rows, n), np.int64))
        if state is not None:
            before, on = PlannerState(*state), np.repeat(new.time > 1, g)
            plans.turns[on], plans.way[on] = before.plans.reshape(rows, n, steps)[on], before.ways.reshape(rows, n)[on]
        values = np.zeros((rows, n * len(self.decides), 3), np.float32)
        self._solve(scene, plans, values, listed, own)
        turns, way = plans.turns.reshape(-1, g, n, steps), self._problem.then[plans.way].reshape(-1, g, n)
        kept = np.concatenate((turns[..., 1:], turns[..., -1:]), -1) - turns[..., 1:2]
        return self._beliefs.of_sensors(values), PlannerState(new, kept, way)

    def _solve(self, scene: Scene, plans: Plans, values: np.ndarray, listed: int, own: tuple[int, np.ndarray]) -> None:
        """Replace the plans by the best ones, and write their values (R, k n, 3), some rows at a time."""
        forecast, sensors, worth, search, _ = self._problem
        if listed:
            forecast = forecast._replace(sampling=forecast.sampling._replace(per_word=1))
        (rows, m), ways = scene.present.shape, sensors.ways
        space = self._workspace(forecast.sampling, rows, m, listed)
        for first in range(0, rows, space.rows):
            last = min(first + space.rows, rows)
            space = space if last - first == space.rows else self._workspace(forecast.sampling, last - first, m, listed)
            every, futures, views = space.every, space.futures, space.views
            run = Threads(space.rows, space.threads, space.block).run
            run(foresee_all, forecast, scene, plans.turns, first, every)
            if listed:
                near = Near(self._cells, self.horizon * ways.rail_step if self.scenario.rails else 0.0, worth)
                run(list_all, near, sensors, scene, first, every, futures, views.listed)
            if worth.levels:
                run(weigh_all, worth, forecast.sampling, every, futures, views)
            run(mark_all, sensors, scene, first, futures, views)
            some = Plans(plans.turns[first:last], plans.way[first:last])
            run(search_all, search, views, scene.time[first:last], some, values[first:last])
            if own[0]:
                run(count_exclusive, search, views, some, own[0], own[1][first:last])

    def _workspace(self, sampling: Sampling, rows: int, m: int, listed: int) -> _Workspace:
        """Return the memory to plan some of `rows` rows with m targets at a time, as many as stay in the caches."""
        forecast, sensors, worth, search, _ = self._problem
        n, ways, stages = self.scenario.num_sensors, len(sensors.ways.move), len(forecast.horizon.middle)
        headings = 2 * search.farthest + 1 + CHUNK
        words, entries = _size_of(m + sampling.unseen, sampling.per_word, self.samples)
        lists, own_words, own_entries = 1, words, entries  # of a row
        if listed:
            lists, (own_words, own_entries) = n, _size_of(listed, 64 // self.samples, self.samples)
        # Per stage, a view is a machine word, and an entry of futures two.
        used = n * ways * own_words * headings + 2 * (words * entries + lists * own_words * own_entries)
        threads, block = cores(), max(_BLOCK // (8 * stages * used), 1)
        if block >= 8:
            block -= block % 8
        number = max(min(block * threads, rows), 1)
        every = futures = empty_futures((number, stages, words), entries)
        if listed:
            futures = empty_futures((number * n, stages, own_words), own_entries)
        terms = max(worth.levels, 1) * min(len(worth.shares), 2)
        views = Views(
            sees=np.empty((number, n, ways, stages, own_words, headings), np.uint64),
            farthest=np.empty((number, n), np.int64),
            reach=np.empty((number, n, 2), np.int64),
            listed=np.empty((number, n, listed), np.int32),
            levels=np.empty((number, lists, worth.levels, stages, own_words), np.uint64),
            terms=np.ones((number, terms), np.float32),
        )
        return _Workspace(number, every, futures, views, threads, min(block, 8))

    def shares(self, pairs: np.ndarray, mask: np.ndarray, window: int) -> np.ndarray:
        """Return the share (B, n, m) of the futures of target j in which only sensor i covers it.

        Plans are made without a memory and evaluated over the next `window` sub-steps, at most the horizon. Sensors
        must share their knowledge.
        """
        shares = np.zeros(mask.shape, np.float32)
        self.plan(pairs, mask, own=(min(window, self.horizon), shares))
        return shares


def _ways(scenario: Scenario) -> tuple[Ways, np.ndarray, np.ndarray]:
    """Return the ways of plans, their first actions (d, A), and the ways (A,) that continue them."""
    moves = range(3) if scenario.rails else (STAND,)
    zooms = [(KEEP, 0)]
    for degrees in (_ZOOMED if scenario.is_game else (scenario.zoom_step,)) if scenario.zoom else ():
        zooms += [(zoom, math.ceil(degrees / scenario.zoom_step)) for zoom in (NARROWER, WIDER)]
    counts = sorted({1, math.ceil(_TILTED / scenario.tilt_step)}) if scenario.tilt_limits else ()
    turned = [(*zoom, 0, 0) for zoom in zooms] + [(KEEP, 0, tilt, count) for count in counts for tilt in (DOWN, UP)]
    each = [(*one, move) for one in turned for move in moves]
    actions = dict(zip(("zoom", "zooms", "tilt", "tilts", "move"), np.array(each).T.copy(), strict=True))
    first = np.array([actions[name] for name in scenario.decisions[1:]], np.int64).reshape(-1, len(each))
    then = np.array([each.index((KEEP, 0, 0, 0, move)) for *_, move in each])
    rails, step = make_rails(scenario.rails or [[(0.0, 0.0)]]), float(scenario.rail_step)
    clear = Sight(scenario).along(rails, step) if scenario.rails else np.zeros((0, 0, 0), np.float32)
    mount = make_mount(scenario)
    ways = Ways(**actions, lens=make_lens(scenario), mount=mount, rails=rails, rail_step=step, rail_clear=clear)
    return ways, first, then


def _worth(scenario: Scenario) -> Worth:
    """Return the worth of samples, with the fewest levels that are equal to all values within 1 %, 255 at most."""
    values, highest, shares = make_values(scenario), scenario.highest_value, shares_of(scenario.seen_by)
    if values is None:
        return Worth(EQUAL, 0, 1.0, shares)
    found = np.unique(np.outer((1.0, *scenario.zone_values), scenario.target_values or 1.0)) / highest
    for levels in range(1, 256):
        if (np.abs(found * levels - np.rint(found * levels)) <= 0.01 * found * levels).all():
            break
    return Worth(values, levels.bit_length(), levels / highest, shares)


def _hidden(scenario: Scenario, samples: int) -> Hidden:
    """Return the samples of targets that random discs, which are unknown, hide from no sensor.

    With N discs of mean diameter w in an arena of area A, a sight of length r is free with probability exp(-N w r / A).
    """
    per_length = scenario.random_discs * sum(scenario.disc_radius) / (4.0 * math.prod(scenario.extent))
    longest, bits = 2.0 * math.hypot(*scenario.extent), np.arange(64)
    free = np.exp(-per_length * longest * (np.arange(_DISTANCES) + 0.5) / _DISTANCES)  # (D,)
    # Each sensor takes the samples of each target in an order of its own.
    even = np.tile((np.arange(samples) + 0.5) / samples, (scenario.num_sensors, -(-64 // samples), 1))
    draw = np.random.default_rng(0).permuted(even, axis=-1).reshape(len(even), -1)[:, :64]  # (n, 64)
    seen = (draw[:, None] < free[:, None]).astype(np.uint64) << bits.astype(np.uint64)  # (n, D, 64)
    return Hidden(np.bitwise_or.reduce(seen, -1), _DISTANCES / longest)


def _stages(horizon: int, per_length: int, delay: int) -> tuple[np.ndarray, Horizon]:
    """Return the stage (H + 1,) of each sub-step of a plan, from 1, and the horizon of plans that begin after a delay.

    `per_length` stages last 1 sub-step, as many 2, and so on.
    """
    lengths = 1 + np.arange(horizon) // (per_length or horizon)
    stage = np.r_[0, np.repeat(np.arange(1, horizon + 1), lengths)[:horizon]]
    last = np.searchsorted(stage, np.arange(stage[-1] + 1), side="right") - 1
    middle = np.r_[-1, (last[:-1] + 1 + last[1:]) // 2 + delay]  # no sub-step of stage 0 counts
    return stage, Horizon(np.r_[np.zeros(delay, np.int64), stage], middle, last, delay)


class FastPlannerAgent(PlannerAgent):
    """:class:`PlannerAgent` with fewer futures, a shorter horizon and fewer revisions."""

    __init__ = partialmethod(
        PlannerAgent.__init__, horizon=45, samples=4, particles=4, per_length=10, rounds=1, turn_cost=0.12,
        discount=0.98,
    )  # fmt: skip


class BeliefPlannerAgent(PlannerAgent):
    """:class:`PlannerAgent` with as many particles and futures as a target that is out of sight needs."""

    __init__ = partialmethod(PlannerAgent.__init__, particles=168, samples=21)


class FastBeliefPlannerAgent(PlannerAgent):
    """:class:`BeliefPlannerAgent` with half the particles, fewer futures, a shorter horizon and fewer revisions."""

    __init__ = partialmethod(
        PlannerAgent.__init__, horizon=40, particles=84, samples=6, rounds=1, turn_cost=0.15, discount=0.98
    )  # fmt: skip


class FastestBeliefPlannerAgent(PlannerAgent):
    """:class:`BeliefPlannerAgent` with fewer stages, and 2 to 6 futures, to fit a machine word."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fastest = {
            "horizon": 40, "particles": 42, "samples": min(max(64 // scenario.num_targets, 2), 6), "restarts": 0,
            "rounds": 1, "turn_cost": 0.05, "discount": 0.98, "per_length": 2,
        }  # fmt: skip
        super().__init__(scenario, seed, **fastest | options)
