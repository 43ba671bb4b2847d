"""Agents that plan sequences of headings from beliefs about the targets."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.baselines.plans import Hidden, Near, Sampling, Ways, plan_all
from hitmac.agents.baselines.rules import RulePolicy
from hitmac.agents.baselines.search import Motion, Search, Worth, shares_of
from hitmac.agents.policy import Observation, Starts, State
from hitmac.agents.tracking.beliefs import Beliefs, BeliefState, Scene
from hitmac.agents.tracking.features import update
from hitmac.agents.tracking.sight import Sight, certain_view, turned_views
from hitmac.agents.tracking.tracks import Estimate, Tracks, TracksState
from hitmac.envs.kernels.nearest import make_cells
from hitmac.envs.kernels.physics import KEEP, NARROWER, WIDER
from hitmac.envs.kernels.rails import STAND, limits_of, make_rails
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.kernels.values import make_values
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.validation import NotNegative, Range, convert, over, whole_number


class PlanningPolicy(RulePolicy):
    """Base class of policies that compute a value for every action; their state is their memory."""

    def plan(
        self, pairs: np.ndarray, mask: np.ndarray, state: State = None, episode_start: Starts = None
    ) -> tuple[np.ndarray, Any]:
        """Return the values (B, k n, 3) of the actions 0, 1 and 2 of each decision, and the state for the next call.

        The k decisions :attr:`decides` are ordered as in the actions: first the values of staying, turning left and
        turning right for all sensors; with zoom then those of keeping, narrowing and widening the view; on rails then
        those of staying in place, moving forward and moving back. The value of an action is that of the sensor's best
        plan that begins with it: the discounted coverage that the plans of the other sensors, as of its last revision,
        do not provide, minus the cost of turning.

        Planners of scenes also accept `targets` (B, n, k), int: the targets listed in pairs (B, n, k, d) and mask
        (B, n, k), the nearest to each sensor; -1 marks an empty place. None: place j is target j.

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


_DISTANCES = 128  # of which the share of hidden targets is known
_ZOOMED = 10.0, 30.0, 75.0  # degrees by which the lenses of ways change in a game, whose steps are small


class PlannerState(NamedTuple):
    """Memory of a planner for B scenes with g rows of knowledge between calls of ``predict``."""

    beliefs: BeliefState | TracksState
    plans: np.ndarray  # (B, g, n, H + 1) int64: planned headings, in turns from the heading of the next call
    ways: np.ndarray  # (B, g, n) int64: ways of these plans, 0 without zoom and rails


_NO_SHARES = 0, np.zeros((0, 0, 0), np.float32)


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
    or 75 degrees. Targets that evade are expected to react to
    the last plans. Plans respect the sensors' pan limits.

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
        per_length: sub-steps that share a look of the sensors become more with time: this many looks last one sub-step,
            as many two, and so on; all count by their middle sub-step. 0: every sub-step has its own look.
        restarts: ascents in addition to the first; 0 to 1,000.
        rounds: most revisions of a plan in an ascent; 1 to 1,000.
        turn_cost: cost of a turn by `turn_angle`, in targets covered for a sub-step; 0 or more.
        discount: weight of a sub-step relative to the previous one, since later forecasts are less certain; (0, 1].
        spent: in a game, value of a target that is believed to have no bounty, relative to others; 0 to 1.

    Raises:
        ValueError: an option out of its range.
    """

    features: ClassVar[tuple[str, ...]] = Beliefs.features
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
        scenario, limits, self._motion = self.scenario, limits_of(self.scenario), None
        if scenario.rails:
            self._motion = Motion(make_rails(scenario.rails), scenario.rail_step)
        self.decides = scenario.decisions
        limited = bool(np.isfinite(limits).any())
        circle = 360.0 if limited else 180.0  # degrees; within limits only the long way may be possible
        self._view = scenario.of_each_sensor("field_of_view")
        turn = scenario.of_each_sensor("turn_angle")
        self._turn = np.minimum(turn, scenario.rates[1] * scenario.time_step)
        share = float((self._turn / turn).mean())
        farthest = min(self.horizon, math.ceil(circle / self._turn.min()))
        looks = _looks(self.horizon, whole_number("per_length", per_length, 0, 10_000))
        weight = (self.discount ** np.arange(-1, self.horizon).clip(0) / self.samples).astype(np.float32)
        self._ways, first, then = _ways(scenario)
        self._search = Search(
            self.samples, self.restarts, self.rounds, self.turn_cost * share, looks, weight, farthest, limited, limits,
            first, then,
        )  # fmt: skip
        self._rail_clear = None
        if self._motion is not None:
            self._rail_clear = Sight(scenario).along(self._motion.rails, scenario.rail_step)
        self._worth = _worth(scenario)
        self._evades = True if scenario.walk == "evade" else None
        self._beliefs: Beliefs | Tracks
        if scenario.identities:
            more = (*(("along",) if scenario.rails else ()), *(("pending_turn",) if scenario.turn_rates else ()))
            self._beliefs = Beliefs(scenario, particles, seed, more)
        else:
            self._beliefs = Tracks(scenario, particles, seed)
        unknown = scenario.random_discs and not self._beliefs.shown
        self._hidden = _hidden(scenario, self.samples) if unknown else None
        self.features = self._beliefs.features  # type: ignore[misc]
        unseen = math.ceil(self._beliefs.unseen)
        self._sampling = Sampling(
            stream_keys(np.array([seed]))[0], 64 // self.samples, unseen, _delay(scenario), self.spent
        )
        self._cells = make_cells(scenario, scenario.num_sensors)

    def shown(self, nearness: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the given options, or in a large scene :meth:`near`, and discs; raise ValueError for a radius."""
        if "radius" in nearness:
            raise ValueError(f"radius is {nearness['radius']}; beliefs need lists without a radius")
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
        before = None if state is None else state[0]
        scene, new = self._beliefs.update(pairs, mask, before, episode_start, targets, discs)
        most = None if targets is None else targets.shape[-1]
        shown = dict(zip(self.features, np.moveaxis(pairs[:, :, 0], -1, 0), strict=True))
        at, pending = (shown.get(name, np.zeros(mask.shape[:2])) for name in ("along", "pending_turn"))
        return self._plan(scene, new, at, self._beliefs.fields_of_view(pairs), 180.0 * pending, state, most, own)

    def plan_tracks(
        self, observation: Observation, state: State = None, episode_start: Starts = None
    ) -> tuple[np.ndarray, PlannerState]:
        """Return the same for detections without identities, the observation of such scenarios."""
        scene, new = update(self._beliefs, observation, None if state is None else state[0], episode_start)
        sensors = observation["sensors"].astype(np.float64)
        pending = sensors[..., 8] if self.scenario.turn_rates else np.zeros(sensors.shape[:2])
        return self._plan(scene, new, sensors[..., 6], 2.0 * sensors[..., 4], pending, state)

    def decide(self, observation: Observation, state: State, episode_start: Starts) -> tuple[np.ndarray, State]:
        """Return the actions of the highest value."""
        if self.scenario.identities:
            return super().decide(observation, state, episode_start)
        values, new = self.plan_tracks(observation, state, episode_start)
        return values.argmax(-1), new

    def estimate(self, state: PlannerState, **options: float) -> Estimate:
        """Return the tracks; see :meth:`~hitmac.agents.tracking.Tracks.estimate`."""
        assert isinstance(self._beliefs, Tracks)
        assert isinstance(state.beliefs, TracksState)
        return self._beliefs.estimate(state.beliefs, **options)

    def _plan(
        self,
        scene: Scene,
        new: BeliefState | TracksState,
        at: np.ndarray,
        views: np.ndarray,
        pending: np.ndarray,
        state: State,
        most: int | None = None,
        own: tuple[int, np.ndarray] = _NO_SHARES,
    ) -> tuple[np.ndarray, PlannerState]:
        """Return the values and the state.

        The places on the rails, fields of view and pending turns of the sensors, degrees, are (B, n).
        """
        (b, n), g = at.shape, self._beliefs.rows
        if self.scenario.turn_rates:
            scene = scene._replace(views=turned_views(scene.views, np.repeat(pending, g, 0)))
        if state is None:
            plans, ways = np.zeros((b, g, n, self.horizon + 1), np.int64), np.zeros((b, g, n), np.int64)
        else:
            plans, ways = state[1].copy(), state[2].copy()
        plans[new.time == 1], ways[new.time == 1] = 0, 0
        rows = b * g
        history = plans.reshape(rows, n, self.horizon + 1), ways.reshape(rows, n)
        values = np.zeros((rows, n * len(self.decides), 3), np.float32)
        along = np.repeat(at.astype(np.float64), g, 0)  # unused without rails
        views = np.repeat(certain_view(np.where(views > 0.0, views, self._view), self.scenario), g, 0)
        near, sampling = None, self._sampling
        if most is not None:
            moved = 0.0 if self._motion is None else self.horizon * self._motion.rail_step
            near, sampling = Near(self._cells, most, moved), sampling._replace(per_word=1)
        Threads(rows, cores(), block=8).run(
            plan_all, self._beliefs.rules, (views, self._turn), self._ways, self._motion, along, self._search,
            self._worth, sampling, near, self._beliefs.pieces, self._evades, self._hidden, self._rail_clear,
            scene.clear, scene, history, values, own,
        )  # fmt: skip
        return self._beliefs.of_sensors(values), PlannerState(new, plans, ways)

    def shares(self, pairs: np.ndarray, mask: np.ndarray, window: int) -> np.ndarray:
        """Return the share (B, n, m) of the futures of target j in which only sensor i covers it.

        Plans are made without a memory and evaluated over the next `window` sub-steps, at most the horizon. Sensors
        must share their knowledge.
        """
        shares = np.zeros(mask.shape, np.float32)
        self.plan(pairs, mask, own=(min(window, self.horizon), shares))
        return shares


def _delay(scenario: Scenario) -> int:
    """Return the sub-steps until a turn takes effect: those of commands, and half those to and from its rate."""
    if not scenario.acceleration:
        return scenario.command_delay
    rate = min(scenario.of_each_sensor("turn_angle").max() / scenario.time_step, scenario.rates[1])
    return scenario.command_delay + round(0.5 * rate / scenario.acceleration / scenario.time_step)


def _ways(scenario: Scenario) -> tuple[Ways, np.ndarray, np.ndarray]:
    """Return the ways of plans, and their `first` and `then` of :class:`~hitmac.agents.baselines.search.Search`."""
    moves = range(3) if scenario.rails else (STAND,)
    zooms = [(KEEP, 0)]
    for degrees in (_ZOOMED if scenario.warehouses else (scenario.zoom_step,)) if scenario.zoom else ():
        zooms += [(zoom, math.ceil(degrees / scenario.zoom_step)) for zoom in (NARROWER, WIDER)]
    ways = [(*zoom, move) for zoom in zooms for move in moves]
    actions = dict(zip(("zoom", "zooms", "move"), np.array(ways).T, strict=True))
    first = np.array([actions[name] for name in scenario.decisions[1:]], np.int64).reshape(-1, len(ways))
    then = np.array([ways.index((KEEP, 0, move)) for *_, move in ways])
    limits = scenario.zoom or (0.0, 360.0)
    return Ways(actions["move"], actions["zoom"], actions["zooms"], scenario.zoom_step, *limits), first, then


def _worth(scenario: Scenario) -> Worth | None:
    """Return the worth of samples, with the fewest levels that are equal to all values within 1 %, 255 at most."""
    values, highest = make_values(scenario), scenario.highest_value
    if values is None:
        return None
    found = np.unique(np.outer((1.0, *scenario.zone_values), scenario.target_values or 1.0)) / highest
    for levels in range(1, 256):
        if (np.abs(found * levels - np.rint(found * levels)) <= 0.01 * found * levels).all():
            break
    return Worth(values, levels.bit_length(), levels / highest, shares_of(scenario.seen_by))


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


def _looks(horizon: int, per_length: int) -> np.ndarray:
    """Return the look (H + 1,) of each sub-step, from 1; `per_length` looks last 1 sub-step, as many 2, and so on."""
    lengths = 1 + np.arange(horizon) // (per_length or horizon)
    return np.r_[0, np.repeat(np.arange(1, horizon + 1), lengths)[:horizon]]


class FastPlannerAgent(PlannerAgent):
    """:class:`PlannerAgent` with fewer futures, a shorter horizon and fewer revisions."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fast = {
            "horizon": 45, "samples": 4, "particles": 4, "per_length": 10, "rounds": 1, "turn_cost": 0.12,
            "discount": 0.98,
        }  # fmt: skip
        super().__init__(scenario, seed, **fast | options)


class BeliefPlannerAgent(PlannerAgent):
    """:class:`PlannerAgent` with as many particles and futures as a target that is out of sight needs."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        super().__init__(scenario, seed, **{"particles": 168, "samples": 21} | options)


class FastBeliefPlannerAgent(PlannerAgent):
    """:class:`BeliefPlannerAgent` with half the particles, fewer futures, a shorter horizon and fewer revisions."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fast = {"horizon": 40, "particles": 84, "samples": 6, "rounds": 1, "turn_cost": 0.15, "discount": 0.98}
        super().__init__(scenario, seed, **fast | options)


class FastestBeliefPlannerAgent(PlannerAgent):
    """:class:`BeliefPlannerAgent` with fewer looks, and 2 to 6 futures, to fit a machine word."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fastest = {
            "horizon": 40, "particles": 42, "samples": min(max(64 // scenario.num_targets, 2), 6), "restarts": 0,
            "rounds": 1, "turn_cost": 0.05, "discount": 0.98, "per_length": 2,
        }  # fmt: skip
        super().__init__(scenario, seed, **fastest | options)
