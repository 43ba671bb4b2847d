"""Receding-horizon planner for sensors that know only what they see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hitmac.agents.baselines.belief_kernels import Sampling, Sensors, plan_beliefs
from hitmac.agents.baselines.nearest_futures import Near
from hitmac.agents.baselines.planning import HeadingPlanner
from hitmac.agents.observed import check_length, check_range, checked_observation, copied_state
from hitmac.agents.tracking.beliefs import Beliefs
from hitmac.envs.kernels.cells import make_cells
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive


class BeliefPlannerState(NamedTuple):
    """Memory of the belief planner for B scenes with g rows of knowledge, between two calls of ``predict``."""

    body: np.ndarray
    """First of the arrays of :class:`~hitmac.agents.tracking.beliefs.BeliefState`, then `plans` and `ways`."""
    weight: np.ndarray
    course: np.ndarray
    stream: np.ndarray
    last_age: np.ndarray
    there: np.ndarray
    time: np.ndarray
    place: np.ndarray
    plans: np.ndarray  # (B, g, n, H + 1) int64: planned headings, in turns from the heading of the next call
    ways: np.ndarray  # (B, g, n) int64: ways to move of these plans, 0 without rails


class BeliefPlannerAgent(HeadingPlanner):
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

    Of observations that list the k nearest targets, it keeps beliefs about all targets, and plans for each sensor on
    the k whose futures come into its range most. A list with an empty place holds all that its sensor knows, and a full
    one all up to its farthest target. Beyond that a target stays believed where it went when it was last listed, and a
    view that does not see it says nothing. The option `radius` is not allowed: it would empty places. With full
    knowledge a target that no sensor lists is taken to be absent.

    Args:
        scenario: the scenario to play.
        seed: seed of the particles and the futures, which are the same in all scenes; the plans are deterministic.
        horizon: sub-steps to look ahead; 1 to 10,000.
        particles: particles of a target; `samples` or more.
        samples: futures of each target that are planned for; 1 to 64.
        restarts, rounds, turn_cost, discount: see :class:`~hitmac.agents.baselines.planner.PlannerAgent`.
        stride: most sub-steps that are planned for by the views in one of them; 1 or more. With 1 every sub-step has
            views of its own. With more, 1, 1, 2, 2, 3, 3 and so on sub-steps share those of their middle one, and
            futures of targets that walk to goals are foreseen course by course, not move by move, which is faster.

    Raises:
        ValueError: an option out of its range.
    """

    features: ClassVar[tuple[str, ...]] = Beliefs.features

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
        stride: int = 1,
    ) -> None:
        super().__init__(
            scenario, seed, horizon=horizon, samples=samples, restarts=restarts, rounds=rounds, turn_cost=turn_cost,
            discount=discount,
        )  # fmt: skip
        scenario = self.scenario
        if positive("particles", particles) < samples:
            raise ValueError(f"particles is {particles}; it must be at least samples, {samples}")
        self._search = self._search._replace(looks=_looks(self.horizon, positive("stride", stride)))
        by_course = stride > 1 and scenario.walk == "goals"
        self._sampling = Sampling(stream_keys(np.array([seed]))[0], samples, by_course, 64 // samples)
        self._sensors = Sensors(0.5 * scenario.of_each_sensor("field_of_view"), scenario.of_each_sensor("turn_angle"))
        self._beliefs = Beliefs(scenario, particles, seed)
        self._cells = make_cells(scenario, scenario.num_sensors)
        if self._motion is not None:
            self.features = (*Beliefs.features, "along")  # type: ignore[misc]

    def near(self) -> dict[str, Any]:
        """Return the nearest 16 targets."""
        return {"nearest": 16}

    def shown(self, nearness: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options given, or in a large scene :meth:`near`; raise ValueError for a radius."""
        if "radius" in nearness:
            raise ValueError(
                f"radius is {nearness['radius']}; beliefs need lists without: a free place says that no more is known"
            )
        return super().shown(nearness)

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        *,
        targets: np.ndarray | None = None,
    ) -> tuple[np.ndarray, BeliefPlannerState]:
        """Return the values (B, n, 3) of staying, turning left and turning right, and the state for the next call.

        Args:
            pairs: (B, n, m, 10) features of the observation, on rails (B, n, m, 11).
            mask: (B, n, m) bool, the known targets.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins, so that their memory is not used.
            targets: (B, n, k) whole numbers: the targets that pairs (B, n, k, ...) and mask (B, n, k) list, the nearest
                to each sensor, -1 in an empty place. None: place j is target j.
        """
        n, m = self._size
        size = (n, m if targets is None else np.shape(targets)[-1])
        pairs, mask = checked_observation(pairs, mask, self.features, size)
        pairs = pairs.astype(np.float32, copy=False)
        b, g = len(mask), self._beliefs.rows
        nothing = np.zeros((b, g, n, self.horizon + 1), np.int64), np.zeros((b, g, n), np.int64)
        own, (plans, ways) = None, nothing
        if state is not None:
            check_length(state, len(BeliefPlannerState._fields))
            own, (plans, ways) = state[:-2], copied_state(state[-2:], nothing)
        check_range("state ways", ways, 0, 0 if self._motion is None else 2)
        scene, new = self._beliefs.take_in(pairs, mask, own, episode_start, targets)
        plans[new.time == 1], ways[new.time == 1] = 0, 0
        rows = b * g
        before = plans.reshape(rows, n, self.horizon + 1), ways.reshape(rows, n)
        values = np.zeros((rows, n * len(self.decides), 3), np.float32)
        along = np.repeat(pairs[:, :, 0, -1].astype(np.float64), g, 0)  # not read without rails
        near, sampling = None, self._sampling
        if targets is not None:
            near, sampling = Near(self._cells, size[1], self._farthest_move()), sampling._replace(per_word=1)
        Threads(rows, cores(), block=8).run(
            plan_beliefs, self._beliefs.rules, self._sensors, self._motion, self._limits, along, sampling, near,
            self._search, self._weight, scene, before, values,
        )  # fmt: skip
        return self._beliefs.of_own(values), BeliefPlannerState(*new, plans, ways)

    def _farthest_move(self) -> float:
        """Return how far a sensor can go within the horizon."""
        return 0.0 if self._motion is None else self.horizon * self._motion.rail_step


def _looks(horizon: int, stride: int) -> np.ndarray:
    """Return the number of the look (H + 1,) that counts for each sub-step, from 1 on, of 1, 1, 2, 2, ... sub-steps."""
    lengths = np.minimum(np.arange(horizon) // 2 + 1, stride)
    return np.r_[0, np.repeat(np.arange(1, horizon + 1), lengths)[:horizon]]


class FastBeliefPlannerAgent(BeliefPlannerAgent):
    """The belief planner with half the particles, fewer futures, a shorter horizon and fewer revisions."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fast = {"horizon": 40, "particles": 84, "samples": 6, "rounds": 1, "turn_cost": 0.15, "discount": 0.98}
        super().__init__(scenario, seed, **fast | options)


class FastestBeliefPlannerAgent(BeliefPlannerAgent):
    """The belief planner with views that count for several sub-steps, and as many futures as share a word, 2 to 6."""

    def __init__(self, scenario: Scenario, seed: int = 0, **options: Any) -> None:
        fastest = {
            "horizon": 40, "particles": 42, "samples": min(max(64 // scenario.num_targets, 2), 6), "restarts": 0,
            "rounds": 1, "turn_cost": 0.05, "discount": 0.98, "stride": 6,
        }  # fmt: skip
        super().__init__(scenario, seed, **fastest | options)
