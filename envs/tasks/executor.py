"""HiT-MAC's executor task: every sensor keeps its own goal targets in view."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.envs.kernels import assignment
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks.base import (
    DECISIONS_PER_EPISODE,
    SUB_STEPS_PER_DECISION,
    Task,
    TaskSpec,
    turning_space,
)
from hitmac.envs.tasks.per_sensor import Padding, goals_space, mask_unassigned, place_of_row_id
from hitmac.envs.validation import Fraction, NotNegative, convert, positive


class ExecutorTask(Task):
    """HiT-MAC's executor task, ``dsn/Executor-v0``: every sensor keeps its own goal targets in view.

    Source: Xu, Zhong, Wang, NeurIPS 2020, section 4, and the behaviour of its released program ("Pose-v0").

    ## Action: ``MultiDiscrete([3] * n)``

    0 stay, 1 left, 2 right; zooms in a scenario with `zoom`, and moves in one with `rails`, as in ``dsn/Coverage-v0``.

    ## Observation: ``Dict``

    | key | space | meaning |
    |---|---|---|
    | `pairs` | Box, float32 (n, m, d) | each sensor's goal targets, packed to the front of its m rows, then zeros |
    | `mask` | MultiBinary (n, m) | 1 throughout; with `padding="masked"`, 1 for the packed rows |

    The features are those of ``dsn/Coverage-v0``; by default the paper features.

    ## Reward

    The reward of sensor i is the mean over its goals of ``1 - centring * abs(bearing) / (field_of_view / 2)`` if it
    sees the target, else -1; 0 if it has no goal or has failed; less `turn_cost` if it turned. The environment's reward
    is the mean over the sensors of the episode; ``info["rewards"]`` holds the reward of each sensor.

    ## Start and end of an episode

    Targets start in the middle of the arena and sensor i faces target i. At first every target is a goal of
    every sensor. After every tenth step, once its reward is taken, the goals become the targets in range.
    ``gymnasium.make`` truncates after 101 steps.

    ## Info

    | key | value |
    |---|---|
    | `coverage`, `turned`, `visible` | as in ``dsn/Coverage-v0`` |
    | `rewards` | float (n,), reward of each sensor |
    | `assigned` | bool (n, m), goals of each sensor |

    ## Versions

    * v0: first version.

    Args:
        scenario, num_envs, seed, features, nearest, radius, neighbours, num_threads: see :class:`Task`; the default
            scenario is ``"hit-mac-executor"``.
        turn_cost: cost of a turn for the sensor; 0 or more.
        centring: loss of a goal seen at the edge of the view instead of in its middle, 0 to 1. With the paper's 1, two
            goals seen at the edges are worth no more than one in the middle.
        goals_every: steps between two choices of goals; 1 or more.
        goal_share: probability that a target in range becomes a goal, 0 to 1. The paper's is 1, although a coordinator
            does not assign all targets in range.
        padding: layout of the goals, ``"attended"``, ``"masked"`` or ``"unfiltered"``; see
            :func:`hitmac.envs.tasks.per_sensor.mask_unassigned`.
        row_id: the feature `target_id` is the index of the goal's row / m, as where the executor is used. False: the
            target's own index j / m, as in the released program, which trains its executor on j / m and uses it on row
            indices.
    """

    spec = TaskSpec(
        name="Executor",
        episode_steps=DECISIONS_PER_EPISODE,
        summary="turn every sensor towards its own goal targets",
        scenario="hit-mac-executor",
        options={"padding": "masked", "row_id": False},
        role="executor",
    )

    def __init__(
        self,
        scenario: Scenario | str | Path | None = None,
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
        **options: Any,
    ) -> None:
        self.turn_cost = convert("turn_cost", NotNegative, turn_cost)
        self.centring = convert("centring", Fraction, centring)
        self.goal_share = convert("goal_share", Fraction, goal_share)
        self.goals_every = positive("goals_every", goals_every)
        self.padding = convert("padding", Padding, padding)
        super().__init__(scenario, num_envs, seed, features=features, **options)
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
        rules = assignment.ExecutorRules(self.turn_cost, self.centring, self.goals_every, self.goal_share)
        chosen = self.simulator.chosen(mask)
        self.simulator.run(assignment.executor_step, rules, self.checked(action), self.assigned, self.rewards, chosen)
        return self.rewards.sum(-1) / self.simulator.state.num_sensors

    def sensor_rewards(self) -> np.ndarray:
        """Return the reward of each sensor (B, n) in the last step, as a new array."""
        return self.rewards.copy()

    def observe(self) -> dict[str, np.ndarray]:
        """Return new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m): each sensor's goals among those."""
        return mask_unassigned(self.observer.observe(self.simulator), self.assigned, self.padding, self._row_id)

    def info(self) -> dict[str, np.ndarray]:
        """Return those of :class:`Task`, ``rewards`` (B, n) of the sensors and ``assigned`` (B, n, m), their goals."""
        return super().info() | {"rewards": self.rewards.copy(), "assigned": self.assigned.copy()}
