"""Earlier import path of the Stable-Baselines3 environments; see :mod:`envs.apis.sb3_env`."""

from envs.apis.sb3_env import CoordinatorVecEnv, CoverageVecEnv, DirectionalSensorVecEnv, ExecutorVecEnv

__all__ = ["CoordinatorVecEnv", "CoverageVecEnv", "DirectionalSensorVecEnv", "ExecutorVecEnv"]
