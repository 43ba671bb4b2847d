"""Train agents for directional sensor coverage, evaluate them and show what they learned.

``python train.py coverage`` trains a policy that turns the sensors directly, to imitate a planner (so does ``python
train.py`` alone), ``coverage-ppo`` trains it from reward alone,
``executor`` and ``coordinator`` train the two levels of HiT-MAC, ``hit-mac`` both in a row. ``--help`` after any of
them explains every option. A run leaves its results in ``runs/<name>/``.
"""

from __future__ import annotations

import os

# Threads of PyTorch that wait for each other sleep, and leave the cores to others; it reads this when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import contextlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.command_line import parse, program_name, stop_on_bad_input
from hitmac.agents.evaluate import save_evaluation, save_film
from hitmac.agents.evaluate.tables import table
from hitmac.agents.training.config import scaled, sizes_in_words
from hitmac.agents.training.curve import reached_in_words, save_curve, save_points
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import JOBS, Job, with_defaults
from hitmac.agents.training.report import remarks
from hitmac.agents.training.resume import Progress, same_directory
from hitmac.agents.training.rllib.tune import train_on_ray
from hitmac.agents.training.run_directory import contents, prepare
from hitmac.agents.training.sweep import (
    TrainingFailedError,
    available_cores,
    check_group,
    end_with_parent,
    evaluate_trainings,
    prepared,
    train_side_by_side,
    trainings,
    with_seed_range,
)
from hitmac.agents.training.train import EngineFailedError, NotFiniteError, compile_kernels, engine_of
from hitmac.envs.presets import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import did_you_mean
from hitmac.signals import end_on_signal

PROGRAM = program_name("train.py")
COMMANDS: dict[str, type[Job | HitMacOptions]] = {**JOBS, HitMacOptions.job: HitMacOptions}
USAGE = "\n".join(
    (
        f"usage: {PROGRAM} [JOB] [OPTIONS]",
        "",
        "jobs (--help after one of them explains its options; without a job: coverage)",
        *(f"  {job:<12} {(options.__doc__ or '').splitlines()[0]}" for job, options in COMMANDS.items()),
        "",
    )
)


def main() -> None:
    """Train, evaluate, report."""
    end_with_parent()
    with end_on_signal(PROGRAM, "; what the last checkpoint holds is kept, and --resume goes on from it"):
        run_command(sys.argv[1:])


def run_command(arguments: list[str]) -> None:
    """Run the job that the command line names."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
    job = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "coverage"
    with stop_on_bad_input(PROGRAM):
        if job not in COMMANDS:
            raise ValueError(f"unknown job {job!r}{did_you_mean(job, COMMANDS)}: known are {', '.join(COMMANDS)}")
        for module in ("matplotlib", "PIL", "tensorboard"):
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(f"training needs {module}: pip install 'hitmac[train]'")
    try:
        run_dir = run_job(COMMANDS[job], arguments)
    except (NotFiniteError, TrainingFailedError, EngineFailedError, OSError) as error:
        kept = "" if isinstance(error, OSError) else "; what the last checkpoint holds is kept"
        print(f"\n{PROGRAM}: error: {error}{kept}", file=sys.stderr)
        sys.exit(1)
    print(f"\nleft in {run_dir}/:")
    for line in contents(run_dir):
        print(f"  {line}")


def run_job(kind: type[Job | HitMacOptions], arguments: Sequence[str]) -> Path:
    """Train what the command line asks for, with one seed or several; a resumed run goes on."""
    program = f"{PROGRAM} {kind.job}"
    with stop_on_bad_input(PROGRAM):
        arguments = with_seed_range(arguments)
    asked = parse(kind, program, arguments)
    with stop_on_bad_input(PROGRAM):  # some defaults depend on the algorithm, the memory and the policy to start from
        defaults = with_defaults(
            kind, asked.algorithm, getattr(asked, "memory", "none"), getattr(asked, "start", None)
        )  # fmt: skip
        if not asked.resume:
            with contextlib.suppress(ValueError, TypeError, OSError):  # prepare() says what is wrong with the scenario
                scene, per_sensor = load_scenario(asked.scenario), getattr(asked, "per_sensor", False)
                defaults = scaled(defaults, scene, per_sensor, getattr(asked, "nearest", None))
    asked = parse(kind, program, arguments, default=defaults)
    with stop_on_bad_input(PROGRAM):
        asked.check()
        check_group(asked)
        options, scenario, run_dir = prepare(asked, program, arguments)
    stopped = (train_group if options.is_group else train_run)(options, scenario, run_dir)
    if stopped:
        print(f"\nstopped; go on with: {program} --run-dir {run_dir} --resume")
    return run_dir


def train_group(options: Job | HitMacOptions, scenario: Scenario, run_dir: Path) -> bool:
    """Train with every seed and variation, then evaluate all together; return whether the user stopped a training."""
    with stop_on_bad_input(PROGRAM):
        group = trainings(options, run_dir)
        runs = prepared(group, scenario)
    processes = min(options.processes or available_cores(), len(runs))
    if options.ray is not None and runs:
        stopped = train_on_ray(runs, run_dir)
    elif processes > 1:
        stopped = train_side_by_side(runs, processes)
    else:
        stopped = any(train_one(run, scenario) for run in runs)
    if not stopped:
        evaluation, warned = evaluate_trainings(group, scenario, run_dir)
        print("\n".join(["", table(evaluation), *warned]))
    return stopped


def train_one(run: Job | HitMacOptions, scenario: Scenario) -> bool:
    """Train one run of a group in this process; return whether the user stopped it."""
    assert run.run_dir is not None
    print(f"\n{run.run_dir}:")
    return train_run(run, scenario, run.run_dir)


def train_run(options: Job | HitMacOptions, scenario: Scenario, run_dir: Path) -> bool:
    """Train one policy, or both levels of HiT-MAC; return whether the user stopped the training."""
    if isinstance(options, Job):
        return train_policy(options, scenario, run_dir)
    executor, coordinator = options.level_jobs(run_dir, scenario)
    assert coordinator.run_dir is not None
    for level in (executor, coordinator):
        assert level.run_dir is not None
        print(f"{level.job}:")
        if level is executor and coordinator.run_dir.exists():
            print("the coordinator uses it, so it stays as it is")
            continue
        level = level.resumed() if level.run_dir.exists() else level
        with stop_on_bad_input(PROGRAM):
            level, scenario, level_dir = prepare(level, f"{PROGRAM} {level.job}", None, scenario)
        if train_policy(level, scenario, level_dir):
            return True
    return False


def train_policy(options: Job, scenario: Scenario, run_dir: Path) -> bool:
    """Build a policy, train it, evaluate it and report; return whether the user stopped the training."""
    engine = engine_of(options)
    with same_directory(run_dir) as check:
        with np.errstate(all="ignore"):  # a training ends at numbers that are not finite
            with stop_on_bad_input(PROGRAM):
                print(sizes_in_words(options, scenario))
                compile_kernels(options, scenario)
                sitting = engine.begin(options, scenario, run_dir)
            check()
            sitting, stopped = engine.train(options, scenario, run_dir, sitting)
        evaluation = options.evaluate(scenario)
        check()
    report(options, scenario, evaluation, sitting.progress, run_dir, sitting.entropy)
    print(f"\n{sitting.steps} steps in {sitting.progress.seconds / 60:.1f} minutes of training")
    return stopped


def report(
    options: Job,
    scenario: Scenario,
    evaluation: dict[str, Any],
    progress: Progress,
    run_dir: Path,
    entropy: float | None,
) -> None:
    """Write and print the evaluation of the trained policy beside the baselines, and what looks wrong with it."""
    save_evaluation(run_dir / "evaluation.json", evaluation)
    warned = list(remarks(evaluation, options.metric, entropy))
    options.save_pictures(run_dir, scenario, evaluation, "\n\n".join([reached_in_words(progress), *warned]).strip())
    save_points(run_dir / "curve.json", progress)
    save_curve(run_dir / "curve.png", progress, options.metric, options.references(scenario, evaluation))
    filmed = options.filmed(run_dir, scenario)
    save_film(run_dir / "episode.gif", filmed, scenario, seed=evaluation["seeds"][0], sub_steps=options.sub_steps)
    print("\n".join(["", table(evaluation), *warned]))


if __name__ == "__main__":
    main()
