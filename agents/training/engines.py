"""Engines that train a policy, and what they share.

An engine is a module with two functions, ``begin``, which builds a training as the last checkpoint of its run has it,
and ``train``, which trains it until a limit or a signal and leaves a checkpoint.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hitmac.agents.learned.checkpoint import PolicyConfig
from hitmac.agents.policy import Policy
from hitmac.agents.training.curve import CurveEvaluation
from hitmac.agents.training.resume import Progress
from hitmac.agents.training.roles import Job
from hitmac.envs.scenario import Scenario

_MODULES = {"sb3": "hitmac.agents.training.loop", "rllib": "hitmac.agents.training.rllib_engine"}


class EngineFailedError(RuntimeError):
    """Engine that cannot go on; the message says why in one line."""


class Sitting(Protocol):
    """Training of a run in this process, as it stands."""

    progress: Progress

    @property
    def steps(self) -> int:
        """Environment steps so far."""

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the policy at the end as a share of the highest; None where it says nothing."""


class Engine(Protocol):
    """Functions of an engine."""

    def begin(self, options: Job, scenario: Scenario, run_dir: Path) -> Any:
        """Return the :class:`Sitting` to train."""

    def train(self, options: Job, scenario: Scenario, run_dir: Path, sitting: Any) -> tuple[Any, bool]:
        """Return the sitting after the training, and whether the user stopped it."""


def engine_of(options: Job) -> Engine:
    """Return the engine that the options name."""
    return importlib.import_module(_MODULES[options.engine])


def state_file(run_dir: Path) -> Path:
    """Return the place of the training's state in a run."""
    return run_dir / "checkpoint" / "training.safetensors"


def compile_kernels(options: Job, scenario: Scenario) -> None:
    """Take a step in environments like those of the training: no kernel is compiled while the clock runs."""
    print("compiling, if it is the first time: a minute or more that does not count as training", flush=True)
    venv = options.make(scenario)
    venv.reset()
    venv.step(np.stack([venv.action_space.sample() for _ in range(venv.num_envs)]))


def curve_of(
    options: Job, policy: Policy, config: PolicyConfig, progress: Progress, fraction: Callable[[int, float], float]
) -> CurveEvaluation:
    """Return the evaluation that adds points to the training's curve."""
    return CurveEvaluation(
        options.trained(policy, config),
        config.scenario,
        progress,
        fraction,
        points=options.curve_points,
        sub_steps=options.sub_steps,
        episodes=options.episodes,
    )
