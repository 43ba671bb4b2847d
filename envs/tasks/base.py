"""Base class of the tasks, their spaces and checks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from envs.observation import Observer
from envs.scenario import Scenario
from envs.simulator import Simulator

SUB_STEPS_PER_DECISION = 10
"""Sub-steps of a decision of HiT-MAC, and steps between two choices of its executor's goals."""

DECISIONS_PER_EPISODE = 101
"""Length of an episode of HiT-MAC, in decisions of the coordinator or steps of the executor."""

SUB_STEPS = SUB_STEPS_PER_DECISION * DECISIONS_PER_EPISODE
"""Length of an episode of HiT-MAC, in sub-steps."""

UNSEEN_PENALTY = -0.1
"""The coordinator's reward for a sub-step in which no sensor sees a target assigned to it."""


class TaskSpec(NamedTuple):
    """Declaration of a task: all that ids, shells, help and checkpoints need of it."""

    name: str
    """Name in the environments' ids, ``dsn/<name>-v0``."""
    task: type[Task]
    episode_steps: int
    """Length of an episode, steps."""
    summary: str
    """One line of help."""
    options: dict[str, Any]
    """Options that a policy of the task must know in use, with the values that they have where none are given."""


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
    return check_number("turn_cost", turn_cost, sys.float_info.max, "0 or more")


def check_number(name: str, value: float, most: float, allowed: str) -> float:
    """Return `value` as a float; raise ValueError that names what is allowed unless it is a number in [0, `most`]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be a number, {allowed}")
    return float(value)


def check_idle(idle: str) -> str:
    """Return `idle`; raise ValueError unless it is ``"random"`` or ``"holds"``."""
    if idle not in ("random", "holds"):
        raise ValueError(f"idle is {idle!r}; it must be random or holds")
    return idle
