"""Trainings of a group: whether they are finished, and their common evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitmac.agents.evaluate import save_evaluation
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import with_limits
from hitmac.agents.training.ray_cluster import connect
from hitmac.agents.training.remarks import remarks
from hitmac.agents.training.resume import saved_progress
from hitmac.agents.training.roles import TRAINED, Job
from hitmac.agents.training.run_directory import prepare
from hitmac.agents.training.variations import Training, variations
from hitmac.envs.scenario import Scenario


def check_group(options: Job | HitMacOptions) -> None:
    """Raise an error if a training of the group has options that are not allowed, before anything is made."""
    for words, varied in variations(options).items():
        try:
            varied.check()
        except (ValueError, TypeError) as error:
            raise type(error)(f"{words}: {error}" if words else str(error)) from None
    if options.ray is not None:
        if not options.is_group and not options.resume:
            raise ValueError("--ray is for several trainings; it needs --seeds or --set")
        connect(options.ray)
    if isinstance(options, Job) and options.address is not None:
        connect(options.address, "--address")


def prepared(group: Sequence[Training[Any]], scenario: Scenario) -> list[Any]:
    """Make the directories of the trainings that are not finished, and return their options."""
    found = []
    for _, options in group:
        if options.resume and is_finished(options):
            print(f"{options.run_dir}: done already")
        else:
            found.append(prepare(options, f"train.py {options.job}", None, scenario)[0])
    return found


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


def evaluate_trainings(
    group: Sequence[Training[Any]], scenario: Scenario, run_dir: Path
) -> tuple[dict[str, Any], list[str]]:
    """Evaluate all trainings together beside the baselines, and write tables and figures to `run_dir`.

    Of HiT-MAC's two levels, the whole agents are evaluated.

    Returns:
        The evaluation, and warnings of what looks wrong.
    """
    first, *others = (_whole(one.options) for one in group)
    names = [one.variation or TRAINED for one in group]
    evaluation = first.evaluate(scenario, others, names)
    save_evaluation(run_dir / "evaluation.json", evaluation)
    warned = [line for name in dict.fromkeys(names) for line in remarks(evaluation, first.metric, None, name)]
    first.save_pictures(run_dir, scenario, evaluation, "\n\n".join(warned))
    return evaluation, warned


def _whole(options: Job | HitMacOptions) -> Job:
    """Return the job whose evaluation is that of the whole agent."""
    if isinstance(options, Job):
        return options
    assert options.run_dir is not None
    return options.level_jobs(options.run_dir)[1]
