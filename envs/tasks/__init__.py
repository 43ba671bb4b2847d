"""Tasks: observations, actions and rewards, for a whole batch of scenes."""

from typing import Any

from hitmac.envs.tasks.base import DECISIONS_PER_EPISODE, SUB_STEPS, Task, TaskSpec
from hitmac.envs.tasks.coordinator import CoordinatorTask
from hitmac.envs.tasks.coverage import CoverageTask
from hitmac.envs.tasks.executor import ExecutorTask
from hitmac.envs.validation import did_you_mean

TASKS: dict[str, type[Task]] = {task.spec.name: task for task in (CoverageTask, ExecutorTask, CoordinatorTask)}
"""Tasks by name. Ids, shells, training jobs, evaluation, checkpoints and help follow from their specs."""


def make_task(task: Any, scenario: Any = None, num_envs: int = 1, seed: Any = None, **options: Any) -> Task:
    """Make a batch of scenes of a task: a name in :data:`TASKS`, a class, or a batch made already, which is returned.

    The other arguments are those of :class:`Task`; a batch made already has its own. Raises ``ValueError`` or
    ``TypeError`` for an unknown task, or an option that does not fit.
    """
    if isinstance(task, Task):
        for name, value in ({"scenario": scenario, "seed": seed} | options).items():
            if value is not None:
                raise TypeError(f"{name} is given with a {type(task).__name__} made already; give it to the task")
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
    "make_task",
]
