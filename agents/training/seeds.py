"""Trainings of one job with several seeds: runs in one directory, evaluated together."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, TypeVar

from hitmac.agents.evaluate import save_evaluation
from hitmac.agents.learned.checkpoint import SEED
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import with_limits
from hitmac.agents.training.resume import saved_progress
from hitmac.agents.training.roles import Job
from hitmac.envs.scenario import Scenario

AnyOptions = TypeVar("AnyOptions", bound=Job | HitMacOptions)


def trainings(options: AnyOptions, run_dir: Path) -> list[AnyOptions]:
    """Return the options of the trainings, one for each seed; those whose run exists go on with it."""
    folders = {seed: run_dir / f"{SEED}{seed}" for seed in range(options.seed, options.seed + options.seeds)}
    return [
        dataclasses.replace(options, seed=seed, seeds=1, run_dir=folder, resume=folder.exists())
        for seed, folder in folders.items()
    ]


def is_finished(options: Job | HitMacOptions) -> bool:
    """Return whether the run in `run_dir` has reached a limit of its training, and has been evaluated since."""
    if isinstance(options, HitMacOptions):
        assert options.run_dir is not None
        return all(is_finished(level) for level in options.level_jobs(options.run_dir))
    assert options.run_dir is not None
    state, evaluated = options.run_dir / "checkpoint" / "training.safetensors", options.run_dir / "evaluation.json"
    if not (state.is_file() and evaluated.is_file() and evaluated.stat().st_mtime >= state.stat().st_mtime):
        return False
    steps, seconds = saved_progress(state)
    limited = with_limits(options)
    return steps >= (limited.total_steps or math.inf) or seconds >= 60 * (limited.minutes or math.inf)


def evaluate_trainings(options: Job | HitMacOptions, scenario: Scenario, run_dir: Path) -> dict[str, Any]:
    """Evaluate all trainings together beside the baselines, write tables and figures to `run_dir`, return the results.

    Of HiT-MAC's two levels, the whole agents are evaluated.
    """
    first, *others = map(_whole, trainings(options, run_dir))
    evaluation = first.evaluate(scenario, others)
    save_evaluation(run_dir / "evaluation.json", evaluation)
    first.save_pictures(run_dir, scenario, evaluation)
    return evaluation


def _whole(options: Job | HitMacOptions) -> Job:
    """Return the job whose evaluation is that of the whole agent."""
    if isinstance(options, Job):
        return options
    assert options.run_dir is not None
    return options.level_jobs(options.run_dir)[1]
