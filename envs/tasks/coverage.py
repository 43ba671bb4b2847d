"""Coverage task: every sensor turns at every sub-step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from envs.observation import DEFAULT_FEATURES
from envs.scenario import Scenario
from envs.tasks.base import SUB_STEPS, Task, TaskSpec, check_cost, turning_space


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


COVERAGE = TaskSpec(
    "Coverage",
    CoverageTask,
    SUB_STEPS,
    "turn every sensor at every sub-step, to cover the targets",
    {"per_sensor": False},
)
