"""Hierarchy of HiT-MAC as one agent: a coordinator assigns targets to sensors, an executor turns the sensors."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hitmac.agents.planning.rules import BatchRandom, RulePolicy
from hitmac.agents.policy import Observation, Policy, Starts, State, declared, shares_of, started
from hitmac.agents.tracking.beliefs import shown_to_beliefs
from hitmac.agents.tracking.features import BELIEFS, BeliefFeatures, update
from hitmac.envs.base.streams import stream_keys
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.tasks.base import SUB_STEPS_PER_DECISION, Idle, SubSteps, flatten_sensors
from hitmac.envs.tasks.executor import Padding, executed, mask_unassigned, place_of_row_id
from hitmac.envs.validation import convert


class LevelPolicy(NamedTuple):
    """Level of the hierarchy: a policy and its observation."""

    policy: Policy
    features: tuple[str, ...]
    """Observation features of the policy, in order."""
    padding: str = "masked"
    """Layout of the targets assigned to a sensor, for an executor; see
    :func:`hitmac.envs.tasks.executor.mask_unassigned`."""
    row_id: bool = True
    """True if an executor was trained with the index of the row as `target_id`; see
    :class:`hitmac.envs.tasks.ExecutorTask`."""
    training_seeds: tuple[tuple[int, int], ...] = ()
    """First and last seeds of the training scenes; () for an untrained policy."""

    @classmethod
    def of(cls, policy: "LevelPolicy | Policy") -> "LevelPolicy":
        """Return the level of a policy, as :func:`hitmac.agents.load_executor` does; a level is returned unchanged."""
        if isinstance(policy, LevelPolicy):
            return policy
        if isinstance(policy, type) or not callable(getattr(policy, "predict", None)):
            raise TypeError(f"a level of a hierarchy is {policy!r}; it must be a LevelPolicy or have predict()")
        return cls(policy, declared(policy, PAPER_FEATURES), getattr(policy, "padding", "attended"))

    def start_sensors(self, seeds: Sequence[int] | np.ndarray, num_sensors: int) -> State:
        """Return the initial state of a policy of single sensors, with a row and a seed for each sensor."""
        keys = stream_keys(np.asarray(seeds))[:, None] + np.arange(num_sensors, dtype=np.uint64)
        return started(self.policy, keys.ravel())


class HierarchyState(NamedTuple):
    """State of a :class:`HierarchicalAgent` between sub-steps."""

    assigned: np.ndarray  # (B, n, m) bool, the current assignment
    age: np.ndarray  # (B,) sub-steps since the decision
    random: BatchRandom  # random numbers for the turns of idle sensors
    coordinator: State  # state of the coordinator, a row for each scene
    executor: State  # state of the executor, a row for each sensor
    beliefs: State = None  # BeliefState, where a level observes beliefs


class HierarchicalAgent:
    """Agent of a coordinator and an executor, for every task in which the sensors turn.

    Every `decision` sub-steps, and at the start of an episode, the coordinator assigns targets to sensors (Xu, Zhong,
    Wang, NeurIPS 2020, section 3). At every sub-step the executor, one policy for all sensors, turns each sensor given
    the observation of its assigned targets. The state is a :class:`HierarchyState`. Random numbers come from the seeds
    of the scenes, the argument of :meth:`start`; without a state, row i is the scene with the seed i.

    In ``dsn/Coordinator-v0`` the executor observes after the extra move of a sub-step (the scenario's
    `extra_move_every`), as in the released program. Here it observes before that move, like every agent.

    Args:
        scenario: the scenario to play; any n and m accepted by both policies.
        coordinator: policy that returns (B, n * m), 1 at i * m + j where target j is assigned to sensor i; see
            :meth:`LevelPolicy.of`.
        executor: policy that observes ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), and returns turns (B * n,), or
            several decisions (B * n, k), see :attr:`hitmac.envs.Scenario.decisions`; see :meth:`LevelPolicy.of`.
        decision: sub-steps for which an assignment holds; 1 to 10,000; default 10.
        idle: turns of a sensor without assigned targets: ``"random"``, as in the released program, or ``"hold"``.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        coordinator: LevelPolicy | Policy,
        executor: LevelPolicy | Policy,
        *,
        decision: int = SUB_STEPS_PER_DECISION,
        idle: str = "random",
    ) -> None:
        self.scenario = load_scenario(scenario)
        self.coordinator, self.executor = coordinator, executor = LevelPolicy.of(coordinator), LevelPolicy.of(executor)
        self.decision, self.idle = convert("decision", SubSteps, decision), convert("idle", Idle, idle)
        convert("padding", Padding, executor.padding)
        self._beliefs = BeliefFeatures(self.scenario) if BELIEFS in (coordinator.features, executor.features) else None
        observed = [self._beliefs.beliefs.features] if self._beliefs else []
        observed += [level.features for level in (coordinator, executor) if level.features != BELIEFS]
        self.features = tuple(dict.fromkeys(itertools.chain(*observed)))
        self.nearness = shown_to_beliefs(self.scenario)
        self._row_id = place_of_row_id(executor.features)

    def start(self, seeds: Sequence[int] | np.ndarray, size: tuple[int, int] | None = None) -> HierarchyState:
        """Return the initial state of scenes with the given seeds (B,); `size` is (n, m), by default the scenario's."""
        n, m = size or (self.scenario.num_sensors, self.scenario.num_targets)
        return HierarchyState(
            np.zeros((len(seeds), n, m), np.bool_),
            np.full(len(seeds), self.decision),
            BatchRandom.start(seeds, 0, "idle sensors"),
            started(self.coordinator.policy, seeds),
            self.executor.start_sensors(seeds, n),
        )

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, HierarchyState]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies."""
        scenes, n, m = observation["mask"].shape
        now = HierarchyState(*(self.start(np.arange(scenes), (n, m)) if state is None else state))
        assigned, age, coordinator = now.assigned.copy(), now.age.copy(), now.coordinator
        starts = np.zeros(scenes, np.bool_) if episode_start is None else episode_start
        replan = (age >= self.decision) | starts
        believed, beliefs = {}, now.beliefs
        if self._beliefs:
            shown = observation | self._columns(observation, self._beliefs.beliefs.features)
            scene, beliefs = update(self._beliefs.beliefs, shown, beliefs, episode_start)
            believed = self._beliefs.describe(scene)

        def shown_to(level: LevelPolicy) -> Observation:
            return believed if level.features == BELIEFS else self._columns(observation, level.features)

        if replan.any():
            shown = shown_to(self.coordinator)
            if "discs" in observation and isinstance(self.coordinator.policy, RulePolicy):
                shown = shown | {"discs": observation["discs"]}
            shown = {name: array[replan] for name, array in shown.items()}
            own = coordinator
            if coordinator is not None and not replan.all():
                own = tuple(array[replan] for array in coordinator)
            chosen, own = self.coordinator.policy.predict(shown, own, starts[replan], deterministic)
            assigned[replan], age[replan] = chosen.reshape(-1, n, m) != 0, 0
            if replan.all():
                coordinator = own
            elif coordinator is not None and own is not None:  # the first state must have all rows
                coordinator = tuple(array.copy() for array in coordinator)
                for array, part in zip(coordinator, own, strict=True):
                    array[replan] = part
        seen = shown_to(self.executor)
        # As in the coordinator's task, the executor takes its best action even while the coordinator explores.
        rows = flatten_sensors(mask_unassigned(seen, assigned, self.executor.padding, self._row_id))
        chosen, executor = self.executor.policy.predict(rows, now.executor, starts.repeat(n), deterministic=True)
        decisions, by_rate = len(self.scenario.decisions), self.scenario.action == "rate"
        actions = executed(chosen, assigned, seen["mask"], decisions, by_rate=by_rate)
        random = BatchRandom(*now.random)
        if self.idle == "random":
            free, random = random.integers(3, n)
            free = shares_of(free, self.scenario) if actions.dtype.kind == "f" else free
            actions[:, :n] = np.where((assigned & (seen["mask"] != 0)).any(-1), actions[:, :n], free)
        return actions, HierarchyState(assigned, age + 1, random, coordinator, executor, beliefs)

    def _columns(self, observation: Observation, features: Sequence[str]) -> Observation:
        """Return the observation of these features."""
        columns = [self.features.index(name) for name in features]
        return {"pairs": observation["pairs"][..., columns], "mask": observation["mask"]}
