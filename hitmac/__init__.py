"""Perception and control for directional sensor networks: the open reference implementation of HiT-MAC.

``import hitmac`` registers the environments ``dsn/Coverage-v0``, ``dsn/Executor-v0``, ``dsn/Coordinator-v0`` and
``dsn/Transport-v0`` with gymnasium, by name. The packages are :mod:`hitmac.perception` (the attention encoder),
:mod:`hitmac.envs` (simulator and environments) and :mod:`hitmac.agents` (policies, training, evaluation);
:func:`hitmac.envs.observe` is also ``hitmac.observe``.
Source: Xu, Zhong, Wang, "Learning Multi-Agent Coordination for Enhancing Target Coverage in Directional Sensor
Networks", NeurIPS 2020.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium

if not Path(__file__).with_name("envs").is_dir():  # a checkout on a file system without symbolic links, as on Windows
    __path__.append(str(Path(__file__).parents[1]))

try:
    __version__ = version("hitmac")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = ["__version__", "agents", "envs", "observe", "perception", "register_environment"]


def register_environment(task: str) -> None:
    """Register the task ``dsn/<task>-v0`` with gymnasium, single and vectorized; the scenario limits its episodes."""
    gymnasium.register(
        id=f"dsn/{task}-v0",
        entry_point="hitmac.envs.wrappers.gym_env:DirectionalSensorEnv",
        vector_entry_point="hitmac.envs.wrappers.vector_env:DirectionalSensorVectorEnv",
        kwargs={"task": task},
    )


for _task in ("Coverage", "Executor", "Coordinator", "Transport"):
    register_environment(_task)


def find_player(name: Any, scenario: Any, team: str) -> Any:
    """Return the player of a team in a game by its name; the environments, which do not know the agents, call this."""
    return importlib.import_module("hitmac.agents").load_opponent(name, scenario, team)


def __getattr__(name: str) -> Any:
    """Import a package, or :func:`hitmac.envs.observe`, at its first use (PEP 562)."""
    if name == "observe":
        return importlib.import_module("hitmac.envs").observe
    if name in ("agents", "envs", "perception"):
        return importlib.import_module(f"hitmac.{name}")
    raise AttributeError(f"module 'hitmac' has no attribute {name!r}")
