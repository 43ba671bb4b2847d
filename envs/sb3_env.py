"""Earlier import path of the Stable-Baselines3 environments; see :mod:`hitmac.envs.apis.sb3_env`."""

from hitmac.envs.apis.sb3_env import CoordinatorVecEnv, CoverageVecEnv, DirectionalSensorVecEnv, ExecutorVecEnv

__all__ = ["CoordinatorVecEnv", "CoverageVecEnv", "DirectionalSensorVecEnv", "ExecutorVecEnv"]
