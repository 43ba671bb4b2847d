"""Train agents for directional sensor coverage, evaluate them and show what they learned.

``python train.py coverage`` trains a policy that turns the sensors directly (so does ``python train.py`` alone),
``executor`` and ``coordinator`` train the two levels of HiT-MAC, ``hit-mac`` both in a row. ``--help`` after any of
them explains every option. A run leaves its results in ``runs/<name>/``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from stable_baselines3.common.logger import configure

from agents.checkpoint import PolicyConfig, copy_executor, save_policy
from agents.command_line import parse, stop_on_bad_input
from agents.evaluate import evaluate, evaluate_executors, save_evaluation, save_pictures
from agents.hierarchy import COORDINATORS
from agents.jobs import JOBS, CoordinatorOptions, ExecutorOptions, HitMacOptions, Learner, Options, build
from agents.progress import TrainingProgress, stop_on_signal
from agents.registry import load_agent, load_executor
from agents.report import released_reward, save_curve, save_film
from agents.resume import Progress, load_training, save_training
from agents.runs import prepare
from agents.tables import table
from envs.sb3_env import DirectionalSensorVecEnv
from envs.scenario import Scenario

PROGRAM = "train.py"
BASELINES = ("random", "still", "nearest", "greedy", "planner")


def main() -> None:
    """Train, evaluate, report."""
    arguments = sys.argv[1:]
    job = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "coverage"
    with stop_on_bad_input(PROGRAM):
        if job not in (*JOBS, HitMacOptions.job):
            raise ValueError(f"unknown job {job!r}: known are {', '.join((*JOBS, HitMacOptions.job))}")
        for module in ("matplotlib", "PIL", "tensorboard"):
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(f"training needs {module}: pip install 'hitmac[train]'")
    run_dir = whole(arguments) if job == HitMacOptions.job else one(parse_job(JOBS[job], arguments), arguments)
    print(f"\nleft in {run_dir}/:")
    for path in sorted(path for path in run_dir.rglob("*") if path.is_file() and not path.name.startswith(".")):
        print(f"  {path.relative_to(run_dir)}")


def parse_job(options: type[Options], arguments: Sequence[str]) -> Options:
    """The options of a job, checked."""
    parsed = parse(options, f"{PROGRAM} {options.job}", arguments)
    with stop_on_bad_input(PROGRAM):
        parsed.check()
    return parsed


def whole(arguments: Sequence[str]) -> Path:
    """HiT-MAC: train the executor, and then the coordinator with it; a resumed run goes on where it was."""
    program = f"{PROGRAM} {HitMacOptions.job}"
    asked = parse(HitMacOptions, program, arguments)
    with stop_on_bad_input(PROGRAM):
        asked.check()
        options, _, run_dir = prepare(asked, program, arguments)
    for part in options.parts(run_dir):
        assert part.run_dir is not None
        print(f"{part.job}:")
        one(part.going_on() if part.run_dir.exists() else part)
    return run_dir


def one(options: Options, arguments: Sequence[str] | None = None) -> Path:
    """Train one policy, evaluate it and report."""
    with stop_on_bad_input(PROGRAM):
        options, scenario, run_dir = prepare(options, f"{PROGRAM} {options.job}", arguments)
        model, venv, config = build(options, scenario)
        state = run_dir / "checkpoint" / "training.safetensors"
        progress = load_training(state, model, venv) if options.resume and state.is_file() else Progress()
    train(options, model, venv, config, progress, run_dir)
    report(options, scenario, progress, run_dir)
    print(f"\n{model.num_timesteps} steps in {progress.seconds / 60:.1f} minutes of training")
    return run_dir


def train(
    options: Options,
    model: Learner,
    venv: DirectionalSensorVecEnv,
    config: PolicyConfig,
    progress: Progress,
    run_dir: Path,
) -> None:
    """Train until a limit is reached or the user stops it, and leave a checkpoint."""
    model.set_logger(configure(str(run_dir / "tensorboard"), ["tensorboard"]))
    if isinstance(options, CoordinatorOptions) and options.executor != "scripted":
        copy_executor(options.executor, run_dir / "checkpoint")

    def save() -> None:
        save_policy(run_dir / "checkpoint", model.policy, config)
        save_training(run_dir / "checkpoint" / "training.safetensors", model, venv, progress)

    def rate(_: float) -> float:
        """The learning rate now; it and the entropy's weight follow the clock or the steps, whichever ends the run."""
        done = callback.fraction
        model.ent_coef = options.entropy + done * (options.final_entropy - options.entropy)
        return options.learning_rate * (1.0 - done)

    with stop_on_signal() as stop:
        callback = TrainingProgress(
            progress,
            max_seconds=options.minutes and 60 * options.minutes,
            max_steps=options.total_steps,
            stop=stop,
            save=save,
            save_every=options.save_every,
        )
        model.lr_schedule = rate
        to_go = max(0, options.total_steps - model.num_timesteps) if options.total_steps else sys.maxsize // 2
        model.learn(to_go, callback, reset_num_timesteps=False)
    save()


def report(options: Options, scenario: Scenario, progress: Progress, run_dir: Path) -> None:
    """Evaluate the trained policy beside the baselines; write and print what came of it."""
    steps, seconds, coverage, _, reward = np.array(progress.curve).reshape(-1, 5).T
    if isinstance(options, ExecutorOptions):
        names = [str(run_dir), "scripted", "random", "still"]
        levels = {"trained" if name == str(run_dir) else name: load_executor(name, scenario) for name in names}
        evaluation = evaluate_executors(
            {name: level for name, (level, _) in levels.items()},
            scenario,
            training_seeds=[seeds for _, every in levels.values() for seeds in every],
            episodes=options.episodes,
            max_episode_steps=options.episode_steps,
        )
        filmed, sub_steps = load_agent(f"assign-in-range:{run_dir}", scenario), options.episode_steps
    else:
        names = [*BASELINES]
        sub_steps = options.episode_steps
        if isinstance(options, CoordinatorOptions):
            sub_steps *= options.decision
            names += [f"{name}:{options.executor}" for name in COORDINATORS]
        filmed = load_agent(str(run_dir), scenario)._replace(name="trained")
        baselines = [load_agent(name, scenario)._replace(name=name.split(":")[0]) for name in names]
        evaluation = evaluate([filmed, *baselines], scenario, episodes=options.episodes, max_episode_steps=sub_steps)
        save_pictures(run_dir, {(scenario.num_sensors, scenario.num_targets): evaluation}, sub_steps)
    save_evaluation(run_dir / "evaluation.json", evaluation)
    metric, along = ("reward", reward) if isinstance(options, ExecutorOptions) else ("coverage", coverage)
    references = {name: result[metric]["mean"] for name, result in evaluation["agents"].items()}
    released = released_reward(scenario.name) or {}
    if metric == "coverage" and (size := (scenario.num_sensors, scenario.num_targets)) in released:
        references["released HiT-MAC"] = released[size]
    save_curve(run_dir / "curve.png", steps, seconds / 60, along, metric, references)
    save_film(run_dir / "episode.gif", filmed, scenario, seed=evaluation["seeds"][0], sub_steps=sub_steps)
    print(f"\n{table(evaluation)}")


if __name__ == "__main__":
    main()
