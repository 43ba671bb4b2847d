"""HiT-MAC's two levels as one agent: a coordinator assigns targets to sensors, an executor turns the sensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.baselines.rule import BatchRandom, needs_replanning
from agents.custom import declared
from agents.policy import Policy, started
from envs.assigned_observation import check_padding, executed, flatten_sensors, mask_unassigned, place_of_row_id
from envs.kernels.streams import stream_keys
from envs.observation import PAPER_FEATURES
from envs.scenario import Scenario, load_scenario
from envs.simulator import positive
from envs.tasks import SUB_STEPS_PER_DECISION, check_idle

LevelState = tuple[np.ndarray, ...] | None


class LevelPolicy(NamedTuple):
    """One level of the hierarchy: a policy and what it is shown."""

    policy: Policy
    features: tuple[str, ...]
    """The observation features that it reads, in order."""
    padding: str = "masked"
    """How an executor is shown the targets assigned to a sensor, see
    :func:`envs.assigned_observation.mask_unassigned`."""
    row_id: bool = True
    """Whether an executor was trained on rows whose `target_id` is the row's, as it is used; see
    :class:`envs.tasks.ExecutorTask`."""

    @classmethod
    def of(cls, policy: LevelPolicy | Policy) -> LevelPolicy:
        """A policy as a level; a level is returned as it is.

        The attributes ``features`` and ``padding`` of a policy say what it is shown, or else
        :data:`envs.PAPER_FEATURES` and ``"attended"``.

        Raises ``TypeError`` for an object without ``predict``.
        """
        if isinstance(policy, LevelPolicy):
            return policy
        if not callable(getattr(policy, "predict", None)):
            raise TypeError(
                f"{policy!r} is no level of a hierarchy; it must be a LevelPolicy or an object with predict()"
            )
        return cls(policy, declared(policy, PAPER_FEATURES), getattr(policy, "padding", "attended"))

    def start(self, seeds: Sequence[int] | np.ndarray) -> LevelState:
        """The policy's state at the start of scenes with these seeds (B,); see :func:`agents.policy.started`."""
        return started(self.policy, seeds)

    def start_sensors(self, seeds: Sequence[int] | np.ndarray, num_sensors: int) -> LevelState:
        """The same of a policy for single sensors: a row, and so a seed, for each of the n sensors of every scene."""
        keys = stream_keys(np.asarray(seeds))[:, None] + np.arange(num_sensors, dtype=np.uint64)
        return self.start(keys.ravel())

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: LevelState = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, LevelState]:
        """What the policy gives; one without a state is told of none."""
        carried: dict[str, Any] = {} if state is None else {"state": state, "episode_start": episode_start}
        return self.policy.predict(observation, deterministic=deterministic, **carried)


class HierarchyState(NamedTuple):
    """What a :class:`HierarchicalAgent` keeps between two sub-steps."""

    assigned: np.ndarray  # (B, n, m) bool, the assignment that is in force
    age: np.ndarray  # (B,) sub-steps since the decision
    random: BatchRandom
    """For the turns of idle sensors."""
    coordinator: LevelState
    """The coordinator's own, a row for each scene."""
    executor: LevelState
    """The executor's own, a row for each sensor."""


class HierarchicalAgent:
    """A coordinator and an executor as one agent, for every task in which the sensors turn.

    Every `decision` sub-steps, and when an episode begins, the coordinator assigns targets to sensors (Xu, Zhong, Wang,
    NeurIPS 2020, section 3). At every sub-step the executor, one policy for all sensors, turns each sensor by what it
    observes of the targets assigned to it. Its state is a :class:`HierarchyState`. Random numbers come from the seeds
    of the scenes, which :meth:`start` is told; without it, row i is the scene with the seed i.

    In ``dsn/Coordinator-v0`` the executor looks after the extra move of a sub-step (the scenario's `extra_move_every`),
    as in the released program; here it turns on what was observed before it, as every agent does.

    Args:
        scenario: what it plays; any n and m that the two policies take.
        coordinator: gives (B, n * m), 1 at i * m + j where target j is assigned to sensor i, see
            :meth:`LevelPolicy.of`.
        executor: is shown ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), and gives turns (B * n,), or turns and zooms
            (B * n, 2), which count where lenses zoom; see :meth:`LevelPolicy.of`.
        decision: sub-steps for which an assignment holds; 1 or more.
        idle: a sensor with nothing assigned turns at ``"random"``, as in the released program, or ``"holds"``.
        seed: of those random turns.

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
        seed: int = 0,
    ) -> None:
        self.scenario, self.seed = load_scenario(scenario), seed
        self.coordinator, self.executor = coordinator, executor = LevelPolicy.of(coordinator), LevelPolicy.of(executor)
        self.decision, self.idle = positive("decision", decision), check_idle(idle)
        check_padding(executor.padding)
        self.features = tuple(dict.fromkeys((*coordinator.features, *executor.features)))
        self._of_coordinator = [self.features.index(name) for name in coordinator.features]
        self._of_executor = [self.features.index(name) for name in executor.features]
        self._row_id = place_of_row_id(executor.features)

    def start(self, seeds: Sequence[int] | np.ndarray) -> HierarchyState:
        """The state in which the scenes with these seeds (B,) begin."""
        return self._start(seeds, (self.scenario.num_sensors, self.scenario.num_targets))

    def _start(self, seeds: Sequence[int] | np.ndarray, size: tuple[int, int]) -> HierarchyState:
        return HierarchyState(
            np.zeros((len(seeds), *size), np.bool_),
            np.full(len(seeds), self.decision),
            BatchRandom.start(seeds, self.seed, "idle sensors"),
            self.coordinator.start(seeds),
            self.executor.start_sensors(seeds, size[0]),
        )

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, HierarchyState]:
        """See :class:`agents.policy.Policy`."""
        pairs, mask = observation["pairs"], observation["mask"]
        scenes, n, m = mask.shape
        now = HierarchyState(*(self._start(np.arange(scenes), (n, m)) if state is None else state))
        assigned, age, random, coordinator, executor = now
        assigned, age = assigned.copy(), age.copy()
        started = np.zeros(scenes, np.bool_) if episode_start is None else episode_start
        anew = needs_replanning(age, self.decision, episode_start)
        if anew.any():
            seen = {"pairs": pairs[anew][..., self._of_coordinator], "mask": mask[anew]}
            own = None if coordinator is None else tuple(array[anew] for array in coordinator)
            chosen, own = self.coordinator.predict(seen, own, started[anew], deterministic)
            assigned[anew], age[anew] = chosen.reshape(-1, n, m) != 0, 0
            coordinator = _put(coordinator, own, anew)
        seen = {"pairs": pairs[..., self._of_executor], "mask": mask}
        # As in the coordinator's task, the executor takes its best action also while the coordinator explores.
        rows = flatten_sensors(mask_unassigned(seen, assigned, self.executor.padding, self._row_id))
        chosen, executor = self.executor.predict(rows, executor, started.repeat(n), deterministic=True)
        actions = executed(chosen, assigned, mask, bool(self.scenario.zoom))
        if self.idle == "random":
            free, random = random.integers(3, n)
            nothing = ~(assigned & (mask != 0)).any(-1)
            actions[:, :n] = np.where(nothing, free, actions[:, :n])
        return actions, HierarchyState(assigned, age + 1, random, coordinator, executor)


def _put(state: LevelState, rows: LevelState, chosen: np.ndarray) -> LevelState:
    """The state with these rows in place of the chosen (B,); what is kept of all rows begins with all of them."""
    if state is None or rows is None:
        return rows if chosen.all() else state
    new = tuple(array.copy() for array in state)
    for array, part in zip(new, rows, strict=True):
        array[chosen] = part
    return new


def assignment_of(policy: Policy, state: tuple[np.ndarray, ...] | None) -> np.ndarray | None:
    """The assignment (B, n, m) that is in force in a policy's state; None for a policy that assigns nothing."""
    return state[0] if state is not None and isinstance(policy, HierarchicalAgent) else None
