"""HiT-MAC's coordinator task: assign targets to sensors every ten sub-steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from hitmac.envs.kernels import assignment
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.tasks import base
from hitmac.envs.tasks.base import (
    SUB_STEPS_PER_DECISION,
    UNSEEN_PENALTY,
    Features,
    Idle,
    SubSteps,
    Task,
    TaskSpec,
    make_observer,
)
from hitmac.envs.tasks.executor import Padding, executed, mask_unassigned, place_of_row_id


@dataclass(kw_only=True, eq=False, repr=False)
class CoordinatorTask(Task):
    """HiT-MAC's coordinator task, ``dsn/Coordinator-v0``: assign targets to sensors every ten sub-steps.

    Source: Xu, Zhong, Wang, NeurIPS 2020, section 4, and the behaviour of its released program ("Pose-v1").

    ## Action: ``MultiBinary(n * m)``

    1 at index i * m + j assigns target j to sensor i, for one decision of ten sub-steps. Meanwhile an executor turns
    the sensors; a policy may also zoom and move them, the scripted one only turns.

    The observation is that of :class:`CoverageTask`, by default with the paper's features. The reward is the mean over
    the ten sub-steps of the coverage, or of -0.1 where no sensor sees a target assigned to it.

    ## Decision

    Each of the ten sub-steps has three parts: the executor turns every sensor, given the current positions of the
    targets; the targets move; the sub-step is rewarded. A sensor without assigned targets turns at random. The extra
    moves of the scenario (`extra_move_every`) precede the executor's observation: in `hit-mac` the targets move once at
    the start of a decision.

    With ``action: rate`` of the scenario a policy may also return shares from -1 to 1 as its turns and zooms, see
    :class:`CoverageTask`.

    An episode starts as that of :class:`CoverageTask`; it is truncated after 101 decisions. The info has
    `coverage` and `visible` of the last sub-step, `turned`, the sensors that turned per sub-step, mean over the
    decision, `sub_rewards`, float (10,), of the sub-steps, and the decision's assignment, `assigned`, bool (n, m).

    ## Duels

    With `warehouses` of the scenario the option `opponent` moves the targets in every sub-step. The reward is the same:
    the coverage of all targets, or -0.1 where no sensor sees a target assigned to it. A target that the scenario's
    `knowledge` has no place of may be assigned, but the scripted executor ignores it. An episode lasts as long as the
    scenario's, in decisions, or ends after the decision in which all cargoes have arrived.

    Args:
        scenario, num_envs, seed, features, nearest, radius, neighbours, num_threads, opponent: see :class:`Task`.
        executor: ``"scripted"``, which turns towards the mean position of the assigned targets, as in the released
            program; or a policy, whose ``predict`` is called in one batch for all sensors of all scenes. The policy
            observes ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), a row for every assigned target, packed (see
            `padding`), and returns (B * n,) turns 0, 1, 2, or (B * n, k) decisions, see
            :func:`~hitmac.envs.tasks.base.unflatten_sensors`.
        executor_features: features that such a policy observes, or a function that returns their observer;
            `target_id` is the index of the row. None: its attribute ``features``, by default
            :data:`hitmac.envs.PAPER_FEATURES`. The same function as `features` has one observer.
        padding: layout of the rows that such a policy observes, see :class:`ExecutorTask`. None: its attribute
            ``padding``, by default ``"attended"``.
        idle: turns of a sensor without assigned targets: ``"random"``, as in the released program, or ``"hold"``.
        decision: sub-steps of a decision; 1 to 10,000.
    """

    spec = TaskSpec(
        name="Coordinator",
        episode_steps=base.DECISIONS_PER_EPISODE,
        summary="assign targets to sensors for ten sub-steps",
        options={"decision": SUB_STEPS_PER_DECISION, "idle": "random"},
        role="coordinator",
    )

    features: Features = PAPER_FEATURES
    executor: Any = "scripted"
    executor_features: Features | None = None
    padding: Padding | None = None
    idle: Idle = "random"
    decision: SubSteps = SUB_STEPS_PER_DECISION

    def __post_init__(self) -> None:
        if self.executor != "scripted" and not callable(getattr(self.executor, "predict", None)):
            raise ValueError(f"executor is {self.executor!r}; it must be 'scripted' or a policy with predict()")
        if self.padding is None:
            self.padding = getattr(self.executor, "padding", "attended")
        super().__post_init__()
        if self.executor_features is None:
            listed = getattr(self.executor, "features", None)  # a network may use the name otherwise
            self.executor_features = listed if isinstance(listed, tuple | list) else PAPER_FEATURES
        same = callable(self.features) and self.executor_features is self.features
        self.executor_observer = self.observer if same else make_observer(self.scenario, self.executor_features)
        self._executor_state: Any = None
        self._executor_starts = np.ones(self.num_envs, np.bool_)  # scenes whose episode is new to the executor
        self.sub_steps = self.decision
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        self.action_space = spaces.MultiBinary(n * m)
        self.assigned: np.ndarray = np.zeros((self.num_envs, n, m), np.bool_)
        self.sub_rewards = np.zeros((self.num_envs, self.decision))
        self.marginal = np.zeros((self.num_envs, n, m))
        self.turned = np.zeros(self.num_envs, np.int64)

    def begin(self, chosen: np.ndarray) -> None:
        """Clear the assignments and rewards of the chosen scenes (B,)."""
        self._executor_starts[chosen] = True
        for array in (self.assigned, self.sub_rewards, self.marginal, self.turned):
            array[chosen] = 0

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance by one decision; see :meth:`Task.step`."""
        chosen = self.simulator.chosen(mask)
        self.assigned[chosen] = self.checked(action).reshape(self.assigned.shape)[chosen]
        self.marginal[chosen], self.turned[chosen] = 0.0, 0
        actions = np.zeros((self.num_envs, len(self.scenario.decisions) * self.scenario.num_sensors), np.int64)
        scripted = isinstance(self.executor, str)
        decision = assignment.CoordinatorStep(
            scripted, self.idle == "random", UNSEEN_PENALTY,
            self.assigned, actions, self.sub_rewards, self.marginal, self.turned,
        )  # fmt: skip
        run, sub_steps = self.simulator.run, assignment.decision_sub_steps
        if self.scenario.is_game:
            for k in range(self.sub_steps):
                self._sub_step_of_game(k, decision, chosen)
        elif scripted:
            run(sub_steps, 0, self.sub_steps, decision, chosen)
        else:
            for k in range(self.sub_steps):
                run(assignment.extra_moves, chosen)
                actions[...] = self.simulator.command(self._executed(chosen), chosen)
                run(sub_steps, k, k + 1, decision, chosen)
        return self.sub_rewards.mean(-1)

    def _sub_step_of_game(self, k: int, decision: assignment.CoordinatorStep, chosen: np.ndarray) -> None:
        """Play sub-step k of a decision of a game."""
        simulator, steps = self.simulator, decision.action
        if hasattr(self.observer, "get_state"):
            self.observer.observe(simulator)  # which has a memory of every sub-step
        shares = steps * 0.0
        if not decision.scripted:
            taken = self._executed(chosen)
            real = taken.dtype.kind == "f"
            steps[...], shares = (0, taken) if real else (taken, shares)
        if decision.scripted or decision.turn_at_random:
            simulator.run(assignment.turn_and_idle, decision, chosen)
        degrees = simulator.command(steps, chosen) + simulator.command(shares, chosen)  # one of them is 0
        simulator.advance(degrees, chosen, self.opponent_action(chosen))
        simulator.run(assignment.count_sub_step, k, decision, chosen)

    def difference_rewards(self) -> np.ndarray:
        """Return each sensor's contribution (B, n) to the last decision's coverage, mean over the sub-steps.

        See :meth:`CoverageTask.difference_rewards`.
        """
        return self.marginal.sum(-1) / self.sub_steps

    def _executed(self, chosen: np.ndarray) -> np.ndarray:
        """Return the executor's actions (B, d n), for the current positions of the targets.

        Its memory changes in the chosen scenes (B,) only.
        """
        shown = self.executor_observer.observe(self.simulator)
        row_id = place_of_row_id(self.executor_observer.features)
        assert self.padding is not None
        rows = base.flatten_sensors(mask_unassigned(shown, self.assigned, self.padding, row_id))
        carried: dict[str, Any] = {}
        if self._executor_state is not None:
            starts = np.repeat(self._executor_starts, self.scenario.num_sensors)
            carried = {"state": self._executor_state, "episode_start": starts}
        taken, state = self.executor.predict(rows, deterministic=True, **carried)
        self._executor_state = state if chosen.all() else base.with_rows(self._executor_state, state, chosen)
        self._executor_starts[chosen] = False
        decisions, by_rate = len(self.scenario.decisions), self.scenario.action == "rate"
        return executed(taken, self.assigned, shown["mask"], decisions, by_rate=by_rate)

    def info(self) -> dict[str, np.ndarray]:
        """Return new arrays, listed in the class's docstring, with the scenes along a first axis."""
        decision = {"sub_rewards": self.sub_rewards.copy(), "assigned": self.assigned.copy()}
        return super().info() | {"turned": self.turned / self.sub_steps} | decision
