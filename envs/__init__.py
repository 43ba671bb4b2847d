"""Directional sensor networks: a fast batched simulator and its environments.

``import hitmac`` registers ``dsn/<task>-v0`` for every task in :data:`TASKS` with gymnasium, for ``gymnasium.make`` and
``gymnasium.make_vec``: ``dsn/Coverage-v0``, ``dsn/Executor-v0``, ``dsn/Coordinator-v0``, ``dsn/Transport-v0``. The
Stable-Baselines3 environments are imported from :mod:`hitmac.envs.wrappers.sb3_env`, since Stable-Baselines3 imports
torch.
"""

from collections.abc import Callable
from typing import Any

import gymnasium

import hitmac
from hitmac.envs.deployment import Memory, observe
from hitmac.envs.observation import (
    DEFAULT_FEATURES,
    FEATURE_SETS,
    FEATURES,
    OBSERVERS,
    PAPER_FEATURES,
    default_features,
)
from hitmac.envs.parts.game import Game
from hitmac.envs.scenario import Scenario, load_scenario, presets
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS, TASKS, Task

__all__ = [
    "DECISIONS_PER_EPISODE",
    "DEFAULT_FEATURES",
    "FEATURES",
    "PAPER_FEATURES",
    "SUB_STEPS",
    "TASKS",
    "Game",
    "Memory",
    "Scenario",
    "Simulator",
    "default_features",
    "load_scenario",
    "observe",
    "parallel_env",
    "presets",
    "register_observer",
    "register_task",
]


def register_task(task: type[Task]) -> None:
    """Register a task in :data:`TASKS`, and in gymnasium as ``dsn/<name>-v0``; all shells then accept its name.

    A new definition of a registered class replaces it. Raises ``ValueError`` if another task has the name.
    """
    if _defined_as(TASKS.setdefault(task.spec.name, task)) != _defined_as(task):
        raise ValueError(f"{task.__name__} is named {task.spec.name!r}, which is the name of another task")
    TASKS[task.spec.name] = task
    if task.spec.id not in gymnasium.registry:
        hitmac.register_environment(task.spec.name)


def register_observer(name: str, observer: Callable[[Scenario], Any]) -> None:
    """Register a function from a scenario to its observer under a name, which then stands in place of features.

    A new definition of a registered function or class replaces it. Raises ``ValueError`` for a name that is no
    identifier, or that of a feature, a set or another observer.
    """
    if not name.isidentifier():
        raise ValueError(f"observer is named {name!r}; it must be a name such as crowded")
    taken = (*FEATURES, *FEATURE_SETS, "beliefs", "entities", "detections")
    if name in taken or _defined_as(OBSERVERS.setdefault(name, observer)) != _defined_as(observer):
        raise ValueError(f"observer is named {name!r}, which is the name of other features; give it another name")
    OBSERVERS[name] = observer


def _defined_as(made: Any) -> tuple[Any, Any]:
    """Return the module and the name of a definition, which stay the same if a notebook's cell is run again."""
    return getattr(made, "__module__", None), getattr(made, "__qualname__", made)


def parallel_env(task: str = "Coverage", *, teams: bool = False, **options: Any) -> Any:
    """Make one scene as a PettingZoo ParallelEnv, every sensor an agent (requires the extra `pettingzoo`).

    With `teams`, the sensors and targets of a duel are agents. The options are those of
    :class:`~hitmac.envs.wrappers.pettingzoo_env.DirectionalSensorParallelEnv`, or without `task` those of
    :class:`~hitmac.envs.wrappers.teams_env.DuelParallelEnv`.
    """
    if teams:
        from hitmac.envs.wrappers.teams_env import DuelParallelEnv

        return DuelParallelEnv(**options)
    from hitmac.envs.wrappers.pettingzoo_env import DirectionalSensorParallelEnv

    return DirectionalSensorParallelEnv(task, **options)
