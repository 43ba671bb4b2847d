"""Directional sensor networks: a fast batched simulator and its environments.

``import envs`` registers ``dsn/Coverage-v0``, ``dsn/Executor-v0`` and ``dsn/Coordinator-v0`` with gymnasium, for
``gymnasium.make`` and ``gymnasium.make_vec``. The Stable-Baselines3 shells are in :mod:`envs.sb3_env` and are
imported from there, since Stable-Baselines3 brings torch.
"""

from gymnasium.envs.registration import register

from envs.observation import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES
from envs.scenario import Scenario, load_scenario, presets
from envs.simulator import Simulator
from envs.tasks import DECISIONS, SUB_STEPS

__all__ = [
    "DECISIONS",
    "DEFAULT_FEATURES",
    "FEATURES",
    "PAPER_FEATURES",
    "SUB_STEPS",
    "Scenario",
    "Simulator",
    "load_scenario",
    "presets",
]

for _task, _steps in (("Coverage", SUB_STEPS), ("Executor", DECISIONS), ("Coordinator", DECISIONS)):
    register(
        id=f"dsn/{_task}-v0",
        entry_point=f"envs.gym_env:{_task}Env",
        vector_entry_point=f"envs.vector_env:{_task}VectorEnv",
        max_episode_steps=_steps,
    )
