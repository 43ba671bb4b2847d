"""The Stable-Baselines3 shell under its earlier name; see :mod:`envs.apis.sb3_env`."""

from envs.apis.sb3_env import CoordinatorVecEnv, CoverageVecEnv, DirectionalSensorVecEnv, ExecutorVecEnv

__all__ = ["CoordinatorVecEnv", "CoverageVecEnv", "DirectionalSensorVecEnv", "ExecutorVecEnv"]
