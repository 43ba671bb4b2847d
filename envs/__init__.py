"""Directional sensor networks: a fast batched simulator and its environments.

``import envs`` registers ``dsn/Coverage-v0``, ``dsn/Executor-v0`` and ``dsn/Coordinator-v0`` with gymnasium, for
``gymnasium.make`` and ``gymnasium.make_vec``. The Stable-Baselines3 environments are imported from
:mod:`envs.apis.sb3_env`, since Stable-Baselines3 imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from envs.observation import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES
from envs.scenario import Scenario, load_scenario, presets
from envs.simulator import Simulator
from envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS, TASKS

if TYPE_CHECKING:
    from envs.apis.pettingzoo_env import DirectionalSensorParallelEnv

DECISIONS = DECISIONS_PER_EPISODE
"""Earlier name of :data:`DECISIONS_PER_EPISODE`."""

__all__ = [
    "DECISIONS",
    "DECISIONS_PER_EPISODE",
    "DEFAULT_FEATURES",
    "FEATURES",
    "PAPER_FEATURES",
    "SUB_STEPS",
    "TASKS",
    "Scenario",
    "Simulator",
    "load_scenario",
    "parallel_env",
    "presets",
]

for _spec in TASKS.values():
    register(
        id=f"dsn/{_spec.name}-v0",
        entry_point=f"envs.apis.gym_env:{_spec.name}Env",
        vector_entry_point=f"envs.apis.vector_env:{_spec.name}VectorEnv",
        max_episode_steps=_spec.episode_steps,
    )


def parallel_env(
    task: str = "Coverage", *, max_episode_steps: int | None = None, render_mode: str | None = None, **options: Any
) -> DirectionalSensorParallelEnv:
    """Make one scene as a PettingZoo ParallelEnv, every sensor an agent (requires the extra `pettingzoo`).

    Args:
        task: ``"Coverage"``, ``"Executor"`` or ``"Coordinator"``.
        max_episode_steps: steps after which an episode is truncated; None: the task's default, 1010, 101 or 101.
        render_mode: ``"rgb_array"``, ``"human"`` or None.
        **options: options of the task (see :mod:`envs.tasks`): `scenario`, `features`, ...

    Raises:
        ValueError: an unknown task (the message lists the known) or an option out of its range.
        ModuleNotFoundError: PettingZoo is missing; the message names the extra to install.
    """
    from envs.apis.pettingzoo_env import DirectionalSensorParallelEnv

    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: known are {', '.join(TASKS)}")
    spec = TASKS[task]
    return DirectionalSensorParallelEnv(
        spec.task(num_envs=1, num_threads=1, **options),
        max_episode_steps=spec.episode_steps if max_episode_steps is None else max_episode_steps,
        render_mode=render_mode,
    )
