"""Tasks: observations, actions and rewards, for a whole batch of scenes."""

from typing import Any

from hitmac.envs.tasks.base import DECISIONS_PER_EPISODE, SUB_STEPS, Task, TaskSpec
from hitmac.envs.tasks.coordinator import CoordinatorTask
from hitmac.envs.tasks.coverage import CoverageTask
from hitmac.envs.tasks.executor import ExecutorTask
from hitmac.envs.tasks.transport import TransportTask
from hitmac.envs.validation import did_you_mean

TASKS: dict[str, type[Task]] = {
    task.spec.name: task for task in (CoverageTask, ExecutorTask, CoordinatorTask, TransportTask)
}
"""Tasks by name. Ids, shells, training jobs, evaluation, checkpoints and help follow from their specs."""


def make_task(task: Any, scenario: Any = None, num_envs: int = 1, seed: Any = None, **options: Any) -> Task:
    """Make a task, given its name in :data:`TASKS` or its class; return a :class:`Task` unchanged.

    The other arguments are those of :class:`Task`, and are refused with an existing one. Raises ``ValueError`` or
    ``TypeError`` for an unknown task or option.
    """
    if isinstance(task, Task):
        for name, value in ({"scenario": scenario, "seed": seed} | options).items():
            if value is not None:
                raise TypeError(f"{name} is given with an existing {type(task).__name__}; pass it to the task")
        return task
    if isinstance(task, str):
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}{did_you_mean(task, TASKS)}: known are {', '.join(TASKS)}")
        task = TASKS[task]
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise TypeError(f"task is {task!r}; it must be the name of a task, its class, or a Task")
    return task(scenario, num_envs, seed, **options)


__all__ = [
    "DECISIONS_PER_EPISODE",
    "SUB_STEPS",
    "TASKS",
    "CoordinatorTask",
    "CoverageTask",
    "ExecutorTask",
    "Task",
    "TaskSpec",
    "TransportTask",
    "make_task",
]
