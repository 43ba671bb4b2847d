"""The tasks: what is observed, what is decided, and what is rewarded, for a whole batch of scenes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from envs.observation import DEFAULT_FEATURES, Observer
from envs.scenario import Scenario
from envs.simulator import Simulator

SUB_STEPS = 1010
"""The length of an episode, sub-steps: the 101 decisions of 10 sub-steps of HiT-MAC."""


class CoverageTask:
    """Every sensor turns at every sub-step, to cover as many targets with as little turning as possible.

    ``reward = coverage - turn_cost * (sensors that turned) / n``, where the coverage is the share of the m
    targets that at least one sensor sees after the sub-step.

    Args:
        scenario: a :class:`~envs.scenario.Scenario`, a preset's name or a YAML file's path.
        num_envs: B, how many scenes.
        seed: scene i gets ``seed + i``, or the i-th of a sequence; None draws from the system.
        features: names out of :data:`envs.observation.FEATURES`.
        turn_cost: what it costs if all sensors turn in a sub-step, in units of coverage; 0 or more.
        num_threads: threads to compute with; None takes as many as there are cores, one for small batches.

    Attributes:
        observation_space, action_space: of one scene.

    Raises:
        ValueError, TypeError: an option is out of its range; the message names it and what is allowed.
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
        if isinstance(turn_cost, bool) or not isinstance(turn_cost, int | float) or not 0 <= turn_cost < math.inf:
            raise ValueError(f"turn_cost is {turn_cost!r}; it must be a number, 0 or more")
        self.turn_cost = float(turn_cost)
        self.simulator = Simulator(scenario, num_envs, seed, num_threads=num_threads)
        self.scenario = self.simulator.scenario
        self.num_envs = self.simulator.num_envs
        self.observer = Observer(self.scenario, features)
        self.observation_space = self.observer.space
        self.action_space = spaces.MultiDiscrete([3] * self.scenario.num_sensors)

    def reset(self, *, seed: int | Sequence[int] | None = None, mask: np.ndarray | None = None) -> None:
        """Start a new episode in the scenes of `mask` (B,), or in all."""
        self.simulator.reset(seed=seed, mask=mask)

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """One sub-step of the scenes of `mask` (B,), or of all; gives the rewards (B,) float64.

        Raises ``ValueError`` or ``TypeError`` for an action of the wrong shape, type or range, before
        anything moves.
        """
        self.simulator.step(self._checked(action), mask)
        return self.simulator.coverage - self.turn_cost * self.simulator.rotation

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
        """(B,) sub-steps since each scene's reset."""
        return self.simulator.state.time

    def _checked(self, action: Any) -> np.ndarray:
        array = np.asarray(action)
        shape = (self.num_envs, self.scenario.num_sensors)
        if array.shape != shape:
            raise ValueError(f"action has shape {array.shape}; it must have shape {shape}")
        if array.dtype.kind not in "iu":
            raise TypeError(f"action is {array.dtype} ({array.flat[0]!r} first); it must be whole numbers 0, 1 or 2")
        if array.min() < 0 or array.max() > 2:
            wrong = array[(array < 0) | (array > 2)].flat[0]
            raise ValueError(f"action holds {wrong}; it must be 0 (stay), 1 (left) or 2 (right)")
        return array.astype(np.int64, copy=False)
