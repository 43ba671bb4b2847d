"""Tasks: observations, actions and rewards, for a whole batch of scenes."""

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
"""Sub-steps of a decision of HiT-MAC, and steps between two choices of its executor's goals."""

DECISIONS_PER_EPISODE = 101
"""Length of an episode of HiT-MAC, in decisions of the coordinator or steps of the executor."""

SUB_STEPS = SUB_STEPS_PER_DECISION * DECISIONS_PER_EPISODE
"""Length of an episode of HiT-MAC, in sub-steps."""

UNSEEN_PENALTY = -0.1
"""The coordinator's reward for a sub-step in which no sensor sees a target assigned to it."""


class Task:
    """Base class of the tasks: a simulator and an observer.

    Args:
        scenario: a :class:`~envs.scenario.Scenario`, a preset's name or a YAML file's path.
        num_envs: B, number of scenes; 1 or more.
        seed: scene i gets ``seed + i``, or the i-th of a sequence; None: a seed from the operating system.
        features: names out of :data:`envs.observation.FEATURES`.
        num_threads: number of threads, 1 or more; None: the number of cores, and 1 for small batches.

    Attributes:
        observation_space, action_space: spaces of one scene.
        assigned: (B, n, m) bool, the targets assigned to each sensor; None in a task without assignments.

    Raises:
        ValueError, TypeError: an option out of its range; the message names it and what is allowed.
    """

    sub_steps = 1  # length of a step
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
        """Reset the task's own state in the chosen scenes (B,), after the simulator's."""

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance the scenes of `mask` (B,), or all, by one step; return the rewards (B,) float64.

        Raises ``ValueError`` or ``TypeError`` for an action of the wrong shape, type or range, before
        anything moves.
        """
        raise NotImplementedError

    def observe(self) -> dict[str, np.ndarray]:
        """Return new arrays ``pairs`` (B, n, m, d) float32 and ``mask`` (B, n, m) int8."""
        return self.observer.observe(self.simulator)

    def info(self) -> dict[str, np.ndarray]:
        """Return new arrays: ``coverage`` (B,), ``turned`` (B,) sensors, ``visible`` (B, m), the targets seen."""
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
        """Return the batch's action as int64; raise an error that names the problem if it is not valid."""
        turning = isinstance(self.action_space, spaces.MultiDiscrete)
        highest, allowed = (2, "0 (stay), 1 (left) or 2 (right)") if turning else (1, "0 or 1")
        array = np.asarray(action)
        shape = (self.num_envs, *self.action_space.shape)
        if array.shape != shape:
            raise ValueError(f"action has shape {array.shape}; it must have shape {shape}")
        if array.dtype.kind not in "iub":
            raise TypeError(f"action is {array.dtype} ({array.flat[0]!r} first); it must be whole numbers, {allowed}")
        whole = array.astype(np.int64, copy=False)
        if whole.view(np.uint64).max() > highest:  # as unsigned, a negative number is huge
            wrong = array[(array < 0) | (array > highest)].flat[0]
            raise ValueError(f"action holds {wrong}; it must be {allowed}")
        return whole


class CoverageTask(Task):
    """Coverage task: turn every sensor at every sub-step, to cover many targets with little turning.

    ``reward = coverage - turn_cost * (sensors that turned) / n``, where the coverage is the share of the present
    targets that at least one sensor sees after the sub-step, and 1 where no target is present.

    With zooming lenses every sensor also decides on its zoom.

    Args:
        scenario, num_envs, seed, features, num_threads: see :class:`Task`.
        turn_cost: cost of a sub-step in which all sensors turn, in units of coverage; 0 or more.
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
        """Advance by one sub-step; see :meth:`Task.step`."""
        self.simulator.step(self.checked(action), mask)
        return self.simulator.coverage - self.turn_cost * self.simulator.rotation


class ExecutorTask(Task):
    """HiT-MAC's executor task: turn every sensor so that its own goal targets stay in the middle of its view.

    At a reset all targets are goals of every sensor. After every tenth step (`goals_every`), once its reward is taken,
    the goals of a sensor become the targets within its range (or some of them, see `goal_share`). The reward of a
    sensor is the mean over its goals of ``1 - centring * abs(bearing) / (field_of_view / 2)`` if it sees the target,
    else -1; 0 without a goal; less `turn_cost` if it turned. The task's reward is the mean over the sensors.

    Each sensor observes only its goals, packed to the front of its m rows (see `padding`).

    Args:
        scenario, num_envs, seed, features, num_threads: see :class:`Task`.
        turn_cost: cost of a turn for the sensor; 0 or more.
        centring: loss of a goal seen at the edge of the view instead of in its middle, 0 to 1. With the paper's 1, two
            goals seen at the edges are worth no more than one in the middle.
        goals_every: steps between two choices of goals; 1 or more.
        goal_share: probability that a target in range becomes a goal, 0 to 1. The paper's is 1, although a coordinator
            does not assign all targets in range.
        padding: layout of the goals, ``"attended"``, ``"masked"`` or ``"unfiltered"``; see
            :func:`envs.assigned_observation.mask_unassigned`.
        row_id: the feature `target_id` is the index of the goal's row / m, as where the executor is used. False: the
            target's own index j / m, as in the released program, which trains its executor on j / m and uses it on row
            indices.
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
        """Make every target a goal of every sensor."""
        self.assigned[chosen] = self.simulator.valid_pairs[chosen]
        self.rewards[chosen] = 0.0

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance by one sub-step; see :meth:`Task.step`."""
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
        """Return new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m): each sensor's goals."""
        return mask_unassigned(self.observer.observe(self.simulator), self.assigned, self.padding, self._row_id)

    def info(self) -> dict[str, np.ndarray]:
        """Return those of :class:`Task`, ``rewards`` (B, n) of the sensors and ``assigned`` (B, n, m), their goals."""
        return super().info() | {"rewards": self.rewards.copy(), "assigned": self.assigned.copy()}


class CoordinatorTask(Task):
    """HiT-MAC's coordinator task: assign targets to sensors every ten sub-steps; an executor turns the sensors.

    A decision lasts ten sub-steps. In each, the executor turns every sensor, the targets move, and the reward of the
    sub-step is the coverage, or -0.1 if no sensor sees a target assigned to it. The reward of the decision is the mean
    over its sub-steps. The extra moves of the scenario (`extra_move_every` sub-steps, as in ``dsn/Coverage-v0``)
    precede the executor's observation: in `hit-mac` the targets move once at the start of a decision, as in the paper.

    Args:
        scenario, num_envs, seed, features, num_threads: see :class:`Task`.
        executor: ``"scripted"``, which turns towards the mean position of the assigned targets, as in the released
            program; or a policy, whose ``predict`` is called in one batch for all sensors of all scenes. The policy
            observes ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), a row for every assigned target, packed (see
            `padding`), and returns (B * n,) turns 0, 1, 2, or (B * n, 2) turns and zooms. Without zooms, zooming lenses
            keep their field of view; without zooming lenses, zooms are dropped.
        executor_features: features that such a policy observes; `target_id` is the index of the row. None: those of its
            attribute ``features``, or :data:`envs.PAPER_FEATURES` without one.
        padding: layout of the rows that such a policy observes, see :class:`ExecutorTask`. None: that of its attribute
            ``padding``, or ``"attended"`` without one.
        idle: turns of a sensor without assigned targets: ``"random"``, as in the released program, or ``"holds"``.
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
            listed = getattr(executor, "features", None)  # a network may use the name for something else
            executor_features = listed if isinstance(listed, tuple | list) else PAPER_FEATURES
        self.sub_steps = positive("decision", decision)
        super().__init__(scenario, num_envs, seed, features=features, num_threads=num_threads)
        self.executor_observer = Observer(self.scenario, executor_features)
        self._executor_state: Any = None
        self._executor_starts = np.ones(self.num_envs, np.bool_)  # scenes whose episode is new to the executor
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        self.action_space = spaces.MultiBinary(n * m)
        self.assigned: np.ndarray = np.zeros((self.num_envs, n, m), np.bool_)
        self.sub_rewards = np.zeros((self.num_envs, self.sub_steps))
        self.marginal = np.zeros((self.num_envs, n, m))
        self.turned = np.zeros(self.num_envs, np.int64)

    def begin(self, chosen: np.ndarray) -> None:
        """Clear the assignments and rewards of the chosen scenes (B,)."""
        self._executor_starts[chosen] = True
        self.assigned[chosen] = False
        self.sub_rewards[chosen] = 0.0
        self.marginal[chosen] = 0.0
        self.turned[chosen] = 0

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance by one decision; see :meth:`Task.step`.

        In `action` (B, n * m), 1 at i * m + j assigns target j to sensor i.
        """
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
        """Return each sensor's contribution (B, n) to the last decision's coverage: the targets that it alone saw.

        This is the difference reward: the coverage less the coverage without the sensor (Wolpert and Tumer, "Optimal
        payoff functions for members of collectives", Advances in Complex Systems 2001), mean over the sub-steps. It
        equals the share of the present targets that only this sensor saw.
        """
        return self.marginal.sum(-1) / self.sub_steps

    def _executed(self) -> np.ndarray:
        """Return the executor's actions (B, n), or (B, 2 n) with zooms, for the current positions of the targets."""
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
        """Return new arrays: those of :class:`Task` for the last sub-step, and those of the decision.

        ``turned`` (B,) is the number of sensors that turned per sub-step, mean over the decision; ``sub_rewards``
        (B, decision) are the rewards of its sub-steps; ``assigned`` (B, n, m) is the assignment.
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
"""Class and length of an episode, in steps, of each task, by its name in the environments' ids."""


def turning_space(scenario: Scenario) -> spaces.MultiDiscrete:
    """Return the action space: a turn for every sensor, then with zooming lenses a zoom for every sensor."""
    return spaces.MultiDiscrete([3] * scenario.num_sensors * (2 if scenario.zoom else 1))


def own_turning_space(scenario: Scenario) -> spaces.Discrete | spaces.MultiDiscrete:
    """Return the action space of one turning sensor: a turn, and with zooming lenses a zoom."""
    return spaces.MultiDiscrete([3, 3]) if scenario.zoom else spaces.Discrete(3)


def own_observation_space(space: spaces.Dict) -> spaces.Dict:
    """Return the observation space of one sensor, ``pairs`` (m, d) and ``mask`` (m,), from that of a scene."""
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    return spaces.Dict(
        pairs=spaces.Box(pairs.low[0], pairs.high[0], dtype=np.float32), mask=spaces.MultiBinary(pairs.shape[1])
    )


def check_cost(turn_cost: float) -> float:
    """Return `turn_cost` as a float; raise ValueError unless it is a number, 0 or more."""
    return _checked("turn_cost", turn_cost, sys.float_info.max, "0 or more")


def _checked(name: str, value: float, most: float, allowed: str) -> float:
    """Return `value` as a float; raise ValueError that names what is allowed unless it is a number in [0, `most`]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be a number, {allowed}")
    return float(value)


def check_idle(idle: str) -> str:
    """Return `idle`; raise ValueError unless it is ``"random"`` or ``"holds"``."""
    if idle not in ("random", "holds"):
        raise ValueError(f"idle is {idle!r}; it must be random or holds")
    return idle
