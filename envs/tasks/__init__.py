"""Tasks: observations, actions and rewards, for a whole batch of scenes."""

from envs.tasks.base import (
    DECISIONS_PER_EPISODE,
    SUB_STEPS,
    SUB_STEPS_PER_DECISION,
    UNSEEN_PENALTY,
    Task,
    TaskSpec,
    check_cost,
    check_idle,
    own_observation_space,
    own_turning_space,
    turning_space,
)
from envs.tasks.coordinator import COORDINATOR, CoordinatorTask
from envs.tasks.coverage import COVERAGE, CoverageTask
from envs.tasks.executor import EXECUTOR, ExecutorTask

TASKS: dict[str, TaskSpec] = {spec.name: spec for spec in (COVERAGE, EXECUTOR, COORDINATOR)}
"""The tasks, by name."""

__all__ = [
    "DECISIONS_PER_EPISODE",
    "SUB_STEPS",
    "SUB_STEPS_PER_DECISION",
    "TASKS",
    "UNSEEN_PENALTY",
    "CoordinatorTask",
    "CoverageTask",
    "ExecutorTask",
    "Task",
    "TaskSpec",
    "check_cost",
    "check_idle",
    "own_observation_space",
    "own_turning_space",
    "turning_space",
]
