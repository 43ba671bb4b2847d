"""Options of the engine that trains: the program that collects experience and takes the gradient steps."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from hitmac.envs.ranges import Choice, Natural

ENGINES = ("sb3", "rllib")
"""Engines by name: Stable-Baselines3 in this process, Ray's RLlib in several processes and on several machines."""

_PLACES = ("num_env_runners", "num_learners", "address")


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine that trains."""

    engine: Annotated[str, Choice(ENGINES)] = "sb3"
    """Engine: sb3, Stable-Baselines3 in this process; or rllib, Ray's RLlib, by PPO, whose scenes and gradient steps
    may be on several machines."""
    num_env_runners: Natural = 0
    """Processes of --engine rllib that share num_envs; 0: all scenes are in this process. One that is lost is started
    again."""
    num_learners: Natural = 0
    """Processes of --engine rllib that share each gradient step; 0: it is taken in this process."""
    address: str | None = None
    """Address of the Ray cluster for --engine rllib, such as auto or 10.0.0.1:6379. None: one on this machine, for
    this run only."""


def engine_problems(options: Any) -> Iterator[str]:
    """Yield what does not fit the engine among the options of a job; of a run to go on with, its own options say so."""
    if options.resume:
        return
    if options.engine != "rllib":
        for name in _PLACES:
            if getattr(options, name):
                yield f"--{name.replace('_', '-')} is {getattr(options, name)}; it needs --engine rllib"
        return
    if missing := [name for name in ("ray", "tree") if importlib.util.find_spec(name) is None]:
        yield f"--engine is rllib, which needs {missing[0]}: pip install 'hitmac[rllib]'"
    if options.algorithm != "ppo":
        yield (
            f"--engine is rllib, and --algorithm {options.algorithm}; RLlib trains by ppo here: give --algorithm ppo, "
            "or take the job coverage-ppo"
        )
    elif options.credit != "team":
        yield f"--engine is rllib, and the credit {options.credit}; it must be team (--no-difference-rewards)"
    if options.num_env_runners > options.num_envs:
        yield f"--num-env-runners is {options.num_env_runners}; there are --num-envs {options.num_envs} to share"
    if options.num_learners > options.batch_size:
        yield f"--num-learners is {options.num_learners}; there are --batch-size {options.batch_size} to share"
    if options.ray is not None:
        yield f"--ray is {options.ray}; a training with --engine rllib has a cluster of its own, at --address"
    if options.is_group and options.address is not None:
        yield f"--address is {options.address}; of several trainings (--seeds, --set) each has a cluster of its own"
