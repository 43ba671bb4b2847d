"""The tasks: what is observed, what is decided, and what is rewarded, for a whole batch of scenes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from envs.assigned_observation import (
    check_padding,
    executed,
    flatten_sensors,
    goals_space,
    mask_unassigned,
    place_of_row_id,
)
from envs.kernels import assignment
from envs.observation import DEFAULT_FEATURES, PAPER_FEATURES, Observer
from envs.scenario import Scenario
from envs.simulator import Simulator, positive

SUB_STEPS_PER_DECISION = 10
"""Sub-steps of a decision of HiT-MAC, and steps between two of its executor's new goals."""

DECISIONS_PER_EPISODE = 101
"""The length of an episode of HiT-MAC, decisions (of the coordinator) or steps (of the executor)."""

SUB_STEPS = SUB_STEPS_PER_DECISION * DECISIONS_PER_EPISODE
"""The same in sub-steps."""

UNSEEN_PENALTY = -0.1
"""The coordinator's reward of a sub-step in which no sensor sees a target assigned to it."""


class Task:
    """What all tasks share: a simulator, an observer, and how they are used.

    Args:
        scenario: a :class:`~envs.scenario.Scenario`, a preset's name or a YAML file's path.
        num_envs: B, how many scenes.
        seed: scene i gets ``seed + i``, or the i-th of a sequence; None draws from the system.
        features: names out of :data:`envs.observation.FEATURES`.
        num_threads: threads to compute with; None takes as many as there are cores, one for small batches.

    Attributes:
        observation_space, action_space: of one scene.
        assigned: (B, n, m) bool, the targets that each sensor looks after; None in a task without assignments.

    Raises:
        ValueError, TypeError: an option is out of its range; the message names it and what is allowed.
    """

    sub_steps = 1  # that a step lasts
    action_space: spaces.MultiDiscrete | spaces.MultiBinary
    assigned: np.ndarray | None = None

    def __init__(
        self,
        scenario: Scenario | str | Path,
        num_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        features: Sequence[str],
        num_threads: int | None = None,
    ) -> None:
        self.simulator = Simulator(scenario, num_envs, seed, num_threads=num_threads)
        self.scenario = self.simulator.scenario
        self.num_envs = self.simulator.num_envs
        self.observer = Observer(self.scenario, features)
        self.observation_space = self.observer.space

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        mask: np.ndarray | None = None,
        options: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Start a new episode in the scenes of `mask` (B,), or in all; see :meth:`Simulator.reset`."""
        self.simulator.reset(seed=seed, mask=mask, options=options)
        self.begin(self.simulator.chosen(mask))

    def begin(self, chosen: np.ndarray) -> None:
        """What an episode of the chosen scenes (B,) begins with, besides the simulator's."""

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """One step of the scenes of `mask` (B,), or of all; gives the rewards (B,) float64.

        Raises ``ValueError`` or ``TypeError`` for an action of the wrong shape, type or range, before
        anything moves.
        """
        raise NotImplementedError

    def observe(self) -> dict[str, np.ndarray]:
        """Fresh arrays ``pairs`` (B, n, m, d) float32 and ``mask`` (B, n, m) int8."""
        return self.observer.observe(self.simulator)

    def info(self) -> dict[str, np.ndarray]:
        """Fresh arrays: ``coverage`` (B,), ``turned`` (B,) sensors, ``visible`` (B, m) whether a target is seen."""
        state = self.simulator.state
        return {
            "coverage": self.simulator.coverage,
            "turned": state.turned.copy(),
            "visible": state.covered.copy(),
        }

    @property
    def time(self) -> np.ndarray:
        """(B,) steps since each scene's reset."""
        return self.simulator.state.time // self.sub_steps

    def checked(self, action: Any) -> np.ndarray:
        """The batch's action as int64, or an error that names what is wrong with it."""
        turning = isinstance(self.action_space, spaces.MultiDiscrete)
        highest, allowed = (2, "0 (stay), 1 (left) or 2 (right)") if turning else (1, "0 or 1")
        array = np.asarray(action)
        shape = (self.num_envs, *self.action_space.shape)
        if array.shape != shape:
            raise ValueError(f"action has shape {array.shape}; it must have shape {shape}")
        if array.dtype.kind not in "iub":
            raise TypeError(f"action is {array.dtype} ({array.flat[0]!r} first); it must be whole numbers, {allowed}")
        whole = array.astype(np.int64, copy=False)
        if whole.view(np.uint64).max() > highest:  # without a sign a negative number is a huge one
            wrong = array[(array < 0) | (array > highest)].flat[0]
            raise ValueError(f"action holds {wrong}; it must be {allowed}")
        return whole


class CoverageTask(Task):
    """Every sensor turns at every sub-step, to cover as many targets with as little turning as possible.

    ``reward = coverage - turn_cost * (sensors that turned) / n``, where the coverage is the share of the
    targets present that at least one sensor sees after the sub-step, 1 where none is present.

    Where lenses zoom, every sensor also decides on its zoom.

    Args:
        scenario, num_envs, seed, features, num_threads: see :class:`Task`.
        turn_cost: what it costs if all sensors turn in a sub-step, in units of coverage; 0 or more.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "hit-mac",
        num_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        features: Sequence[str] = DEFAULT_FEATURES,
        turn_cost: float = 0.04,
        num_threads: int | None = None,
    ) -> None:
        self.turn_cost = check_cost(turn_cost)
        super().__init__(scenario, num_envs, seed, features=features, num_threads=num_threads)
        self.action_space = turning_space(self.scenario)

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """One sub-step; see :meth:`Task.step`."""
        self.simulator.step(self.checked(action), mask)
        return self.simulator.coverage - self.turn_cost * self.simulator.rotation


class ExecutorTask(Task):
    """HiT-MAC's executor task: every sensor turns to keep its own goal targets in the middle of its view.

    At a reset all targets are goals of every sensor; after every tenth step, once its reward is taken, the
    goals of a sensor become the targets within its range (or some of them, see `goal_share`). The reward of a
    sensor is the mean over its goals of ``1 - centring * abs(bearing) / (field_of_view / 2)`` if it sees the
    target, else -1; 0 without a goal; less `turn_cost` if it turned. The task's reward is the mean over the
    sensors.

    Each sensor is shown its goals only, packed to the front of its m rows (or as `padding` has it).

    Args:
        scenario, num_envs, seed, features, num_threads: see :class:`Task`.
        turn_cost: what a sensor's turn costs it; 0 or more.
        centring: what is lost if a goal is seen at the edge of the view instead of in its middle, 0 to 1; the
            paper's is 1, with which two goals seen at the edges are worth no more than one in the middle.
        goals_every: steps between two choices of goals; 1 or more.
        goal_share: the chance with which a target in range becomes a goal, 0 to 1; the paper's is 1, though a
            coordinator does not assign all that is in range.
        padding: how the goals are shown, ``"attended"``, ``"masked"`` or ``"unfiltered"``; see
            :func:`envs.assigned_observation.mask_unassigned`.
        row_id: the feature `target_id` holds the number of the goal's row / m, as it does where the executor is used;
            false: the target's own, j / m, as in the released program, which trains its executor on these and uses it
            on the others.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "hit-mac-executor",
        num_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        features: Sequence[str] = PAPER_FEATURES,
        turn_cost: float = 0.01,
        centring: float = 1.0,
        goals_every: int = SUB_STEPS_PER_DECISION,
        goal_share: float = 1.0,
        padding: str = "attended",
        row_id: bool = False,
        num_threads: int | None = None,
    ) -> None:
        self.turn_cost = check_cost(turn_cost)
        self.centring = _checked("centring", centring, 1.0, "0 to 1")
        self.goal_share = _checked("goal_share", goal_share, 1.0, "0 to 1")
        self.goals_every = positive("goals_every", goals_every)
        self.padding = check_padding(padding)
        super().__init__(scenario, num_envs, seed, features=features, num_threads=num_threads)
        self.row_id = row_id
        self._row_id = place_of_row_id(self.observer.features) if row_id else -1
        self.observation_space = goals_space(self.observation_space, self.padding)
        self.action_space = turning_space(self.scenario)
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        self.assigned: np.ndarray = np.zeros((self.num_envs, n, m), np.bool_)
        self.rewards = np.zeros((self.num_envs, n))
        self.begin(self.simulator.chosen(None))

    def begin(self, chosen: np.ndarray) -> None:
        """Every target is a goal of every sensor again."""
        self.assigned[chosen] = self.simulator.valid_pairs[chosen]
        self.rewards[chosen] = 0.0

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """One sub-step; see :meth:`Task.step`."""
        self.simulator.run(
            assignment.executor_step,
            assignment.executor_step_threads,
            self.turn_cost,
            self.centring,
            self.goals_every,
            self.goal_share,
            self.checked(action),
            self.assigned,
            self.rewards,
            self.simulator.chosen(mask),
        )
        return self.rewards.sum(-1) / self.simulator.state.num_sensors

    def observe(self) -> dict[str, np.ndarray]:
        """Fresh arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m): each sensor's goals."""
        return mask_unassigned(self.observer.observe(self.simulator), self.assigned, self.padding, self._row_id)

    def info(self) -> dict[str, np.ndarray]:
        """Those of :class:`Task`, ``rewards`` (B, n) of the sensors and ``assigned`` (B, n, m), their goals."""
        return super().info() | {"rewards": self.rewards.copy(), "assigned": self.assigned.copy()}


class CoordinatorTask(Task):
    """HiT-MAC's coordinator task: assign targets to sensors every ten sub-steps; an executor turns the sensors.

    A decision is ten sub-steps. In each, every sensor turns by the executor, the targets move, and the sub-step is
    rewarded by the coverage, or by -0.1 if no sensor sees a target assigned to it. The reward of the decision is the
    mean of the ten. The extra moves of the scenario (`extra_move_every` sub-steps, as in ``dsn/Coverage-v0``) come
    before the executor looks: in `hit-mac` the targets move once at the beginning of a decision, as in the paper.

    Args:
        scenario, num_envs, seed, features, num_threads: see :class:`Task`.
        executor: ``"scripted"``: towards the mean position of the assigned targets, as in the released
            program, or a policy whose ``predict`` is called in one batch for all sensors of all scenes: it
            is shown ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), a row for every assigned target, packed (or as
            `padding` has it), and gives (B * n,) turns 0, 1, 2, or (B * n, 2) turns and zooms. Lenses that zoom keep
            their field of view without zooms, and the zooms are left out where lenses do not zoom.
        executor_features: what such a policy is shown of an assigned target; `target_id` is there the row's. None: what
            its attribute ``features`` lists, or else :data:`envs.PAPER_FEATURES`.
        padding: see :class:`ExecutorTask`, for the rows that such a policy is shown. None: what its attribute
            ``padding`` says, or else ``"attended"``.
        idle: a sensor with nothing assigned turns at ``"random"``, as in the released program, or ``"holds"``.
        decision: sub-steps of a decision; 1 or more.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "hit-mac",
        num_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        features: Sequence[str] = PAPER_FEATURES,
        executor: Any = "scripted",
        executor_features: Sequence[str] | None = None,
        padding: str | None = None,
        idle: str = "random",
        decision: int = SUB_STEPS_PER_DECISION,
        num_threads: int | None = None,
    ) -> None:
        if executor != "scripted" and not callable(getattr(executor, "predict", None)):
            raise ValueError(f"executor is {executor!r}; it must be 'scripted' or a policy with predict()")
        self.executor, self.idle = executor, check_idle(idle)
        self.padding = check_padding(getattr(executor, "padding", "attended") if padding is None else padding)
        if executor_features is None:
            listed = getattr(executor, "features", None)  # which of a network may be something else
            executor_features = listed if isinstance(listed, tuple | list) else PAPER_FEATURES
        self.sub_steps = positive("decision", decision)
        super().__init__(scenario, num_envs, seed, features=features, num_threads=num_threads)
        self.executor_observer = Observer(self.scenario, executor_features)
        self._executor_state: Any = None
        self._executor_starts = np.ones(self.num_envs, np.bool_)  # the scenes whose episode it has not seen yet
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        self.action_space = spaces.MultiBinary(n * m)
        self.assigned: np.ndarray = np.zeros((self.num_envs, n, m), np.bool_)
        self.sub_rewards = np.zeros((self.num_envs, self.sub_steps))
        self.marginal = np.zeros((self.num_envs, n, m))
        self.turned = np.zeros(self.num_envs, np.int64)

    def begin(self, chosen: np.ndarray) -> None:
        """Nothing is assigned."""
        self._executor_starts[chosen] = True
        self.assigned[chosen] = False
        self.sub_rewards[chosen] = 0.0
        self.marginal[chosen] = 0.0
        self.turned[chosen] = 0

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """One decision; see :meth:`Task.step`. `action` (B, n * m): 1 at i * m + j assigns target j to sensor i."""
        chosen = self.simulator.chosen(mask)
        new = self.checked(action).reshape(self.assigned.shape)
        self.assigned[chosen] = new[chosen]
        self.marginal[chosen], self.turned[chosen] = 0.0, 0
        actions = np.zeros((self.num_envs, len(turning_space(self.scenario).nvec)), np.int64)
        scripted = isinstance(self.executor, str)
        run = self.simulator.run
        for k in range(self.sub_steps):
            if not scripted:
                run(assignment.extra_moves, assignment.extra_moves_threads, chosen)
                actions[...] = self._executed()
            run(
                assignment.goal_sub_step,
                assignment.goal_sub_step_threads,
                scripted,
                self.idle == "random",
                UNSEEN_PENALTY,
                k,
                self.assigned,
                actions,
                self.sub_rewards,
                self.marginal,
                self.turned,
                chosen,
            )
        return self.sub_rewards.mean(-1)

    def difference_rewards(self) -> np.ndarray:
        """(B, n) what each sensor added to the last decision's coverage: the share of the targets that it alone saw.

        This is the difference reward, coverage less the coverage without the sensor (Wolpert and Tumer, "Optimal payoff
        functions for members of collectives", Advances in Complex Systems 2001), mean over the sub-steps.
        """
        return self.marginal.sum(-1) / self.sub_steps

    def _executed(self) -> np.ndarray:
        """The actions (B, n), or (B, 2 n) with zooms, that the executor chooses for where the targets stand now."""
        shown = self.executor_observer.observe(self.simulator)
        row_id = place_of_row_id(self.executor_observer.features)
        rows = flatten_sensors(mask_unassigned(shown, self.assigned, self.padding, row_id))
        carried: dict[str, Any] = {}
        if self._executor_state is not None:
            starts = np.repeat(self._executor_starts, self.scenario.num_sensors)
            carried = {"state": self._executor_state, "episode_start": starts}
        chosen, self._executor_state = self.executor.predict(rows, deterministic=True, **carried)
        self._executor_starts[:] = False
        return executed(chosen, self.assigned, shown["mask"], bool(self.scenario.zoom))

    def info(self) -> dict[str, np.ndarray]:
        """Fresh arrays: those of :class:`Task` for the last sub-step, and of the decision.

        ``turned`` (B,) is the number of sensors that turned per sub-step, on average over the decision, and
        ``sub_rewards`` (B, decision) and ``assigned`` (B, n, m) are what they say.
        """
        return super().info() | {
            "turned": self.turned / self.sub_steps,
            "sub_rewards": self.sub_rewards.copy(),
            "assigned": self.assigned.copy(),
        }


TASKS: dict[str, tuple[Callable[..., Task], int]] = {
    "Coverage": (CoverageTask, SUB_STEPS),
    "Executor": (ExecutorTask, DECISIONS_PER_EPISODE),
    "Coordinator": (CoordinatorTask, DECISIONS_PER_EPISODE),
}
"""The tasks by the names that they have in the environments' ids, each with the length of an episode, steps."""


def turning_space(scenario: Scenario) -> spaces.MultiDiscrete:
    """A turn for every sensor; then, where lenses zoom, a zoom for every sensor."""
    return spaces.MultiDiscrete([3] * scenario.num_sensors * (2 if scenario.zoom else 1))


def own_turning_space(scenario: Scenario) -> spaces.Discrete | spaces.MultiDiscrete:
    """What one sensor decides on where it turns: a turn, and where lenses zoom a zoom."""
    return spaces.MultiDiscrete([3, 3]) if scenario.zoom else spaces.Discrete(3)


def own_observation_space(space: spaces.Dict) -> spaces.Dict:
    """What one sensor observes, ``pairs`` (m, d) and ``mask`` (m,), where all together observe `space`."""
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    return spaces.Dict(
        pairs=spaces.Box(pairs.low[0], pairs.high[0], dtype=np.float32), mask=spaces.MultiBinary(pairs.shape[1])
    )


def check_cost(turn_cost: float) -> float:
    """`turn_cost` as a float, or a ValueError that says what it may be."""
    return _checked("turn_cost", turn_cost, sys.float_info.max, "0 or more")


def _checked(name: str, value: float, most: float, allowed: str) -> float:
    """`value` as a float if it is a number from 0 to `most`, else a ValueError that says what is allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be a number, {allowed}")
    return float(value)


def check_idle(idle: str) -> str:
    """`idle`, or a ValueError that says what it may be."""
    if idle not in ("random", "holds"):
        raise ValueError(f"idle is {idle!r}; it must be random or holds")
    return idle
