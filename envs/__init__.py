"""Directional sensor networks: a fast batched simulator and its environments.

``import envs`` registers ``dsn/Coverage-v0`` with gymnasium, for ``gymnasium.make`` and
``gymnasium.make_vec``. The Stable-Baselines3 shell is :class:`envs.sb3_env.CoverageVecEnv`; it is imported
from there, since Stable-Baselines3 brings torch.
"""

from gymnasium.envs.registration import register

from envs.observation import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES
from envs.scenario import Scenario, load_scenario, presets
from envs.simulator import Simulator
from envs.tasks import SUB_STEPS

__all__ = [
    "DEFAULT_FEATURES",
    "FEATURES",
    "PAPER_FEATURES",
    "SUB_STEPS",
    "Scenario",
    "Simulator",
    "load_scenario",
    "presets",
]

register(
    id="dsn/Coverage-v0",
    entry_point="envs.gym_env:CoverageEnv",
    vector_entry_point="envs.vector_env:CoverageVectorEnv",
    max_episode_steps=SUB_STEPS,
)
