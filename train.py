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

from stable_baselines3.common.logger import configure

from agents.baselines.levels import COORDINATORS
from agents.command_line import parse, stop_on_bad_input
from agents.evaluate import evaluate, evaluate_executors, save_evaluation, save_pictures
from agents.evaluate.film import released_reward, save_film
from agents.evaluate.tables import table
from agents.hierarchy import LevelPolicy
from agents.learned.checkpoint import PolicyConfig, save_policy
from agents.registry import Agent, as_agent, as_level, load_agent, load_executor, load_run
from agents.training.callback import TrainingProgress, stop_on_signal
from agents.training.curve import CurveEvaluation, save_curve
from agents.training.jobs import JOBS, CoordinatorOptions, ExecutorOptions, HitMacOptions, Options
from agents.training.learner import Learner, build
from agents.training.resume import Progress, load_training, save_training
from agents.training.run_directory import prepare
from envs.apis.sb3_env import DirectionalSensorVecEnv
from envs.scenario import Scenario

PROGRAM = "train.py"
BASELINES = ("random", "still", "nearest", "greedy", "planner")
USAGE = "\n".join(
    (
        f"usage: {PROGRAM} [JOB] [OPTIONS]",
        "",
        "jobs (--help after one of them explains its options; without a job: coverage)",
        *(
            f"  {job:<12} {(options.__doc__ or '').splitlines()[0]}"
            for job, options in (*JOBS.items(), (HitMacOptions.job, HitMacOptions))
        ),
        "",
    )
)


def main() -> None:
    """Train, evaluate, report."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
    job = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "coverage"
    with stop_on_bad_input(PROGRAM):
        if job not in (*JOBS, HitMacOptions.job):
            raise ValueError(f"unknown job {job!r}: known are {', '.join((*JOBS, HitMacOptions.job))}")
        for module in ("matplotlib", "PIL", "tensorboard"):
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(f"training needs {module}: pip install 'hitmac[train]'")
    try:
        run_dir = train_hit_mac(arguments) if job == HitMacOptions.job else train_one(JOBS[job], arguments)
    except KeyboardInterrupt:
        print("\naborted; what the last checkpoint holds is kept, and --resume goes on from it", file=sys.stderr)
        sys.exit(130)
    print(f"\nleft in {run_dir}/:")
    for path in sorted(path for path in run_dir.rglob("*") if path.is_file() and not path.name.startswith(".")):
        print(f"  {path.relative_to(run_dir)}")


def train_one(kind: type[Options], arguments: Sequence[str]) -> Path:
    """Train one policy with the options of the command line."""
    options = parse(kind, f"{PROGRAM} {kind.job}", arguments)
    with stop_on_bad_input(PROGRAM):
        options.check()
    run_dir, _ = run_job(options, arguments)
    return run_dir


def train_hit_mac(arguments: Sequence[str]) -> Path:
    """Train HiT-MAC's executor, and then its coordinator; a resumed run goes on where it was."""
    program = f"{PROGRAM} {HitMacOptions.job}"
    asked = parse(HitMacOptions, program, arguments)
    with stop_on_bad_input(PROGRAM):
        asked.check()
        options, scenario, run_dir = prepare(asked, program, arguments)
    for level in options.level_jobs(run_dir):
        assert level.run_dir is not None
        print(f"{level.job}:")
        _, stopped = run_job(level.resumed() if level.run_dir.exists() else level, scenario=scenario)
        if stopped:
            print(f"\nstopped; go on with: {program} --run-dir {run_dir} --resume")
            break
    return run_dir


def run_job(
    options: Options, arguments: Sequence[str] | None = None, scenario: Scenario | None = None
) -> tuple[Path, bool]:
    """Train one policy, evaluate it and report; return the directory and whether the user stopped it."""
    with stop_on_bad_input(PROGRAM):
        options, scenario, run_dir = prepare(options, f"{PROGRAM} {options.job}", arguments, scenario)
        model, venv, config = build(options, scenario)
        state = run_dir / "checkpoint" / "training.safetensors"
        progress = load_training(state, model, venv) if options.resume and state.is_file() else Progress()
    stopped = train(options, model, venv, config, progress, run_dir)
    report(options, scenario, progress, run_dir)
    print(f"\n{model.num_timesteps} steps in {progress.seconds / 60:.1f} minutes of training")
    return run_dir, stopped


def train(
    options: Options,
    model: Learner,
    venv: DirectionalSensorVecEnv,
    config: PolicyConfig,
    progress: Progress,
    run_dir: Path,
) -> bool:
    """Train until a limit or the user stops it, and leave a checkpoint; return whether the user did.

    It ends, and checkpoints are saved, between two updates only, so that a resumed run is the uninterrupted one.
    """
    model.set_logger(configure(str(run_dir / "tensorboard"), ["tensorboard"]))
    callback = TrainingProgress(
        progress, max_seconds=options.minutes and 60 * options.minutes, max_steps=options.total_steps
    )
    callback.init_callback(model)
    add_to_curve = CurveEvaluation(
        trained_policy(options, model, config),
        config.scenario,
        progress,
        callback.fraction_at,
        points=options.curve_points,
        sub_steps=options.sub_steps,
        episodes=options.episodes,
    )

    def save() -> None:
        save_policy(run_dir / "checkpoint", model.policy, config)
        save_training(run_dir / "checkpoint" / "training.safetensors", model, venv, progress)

    def rate(_: float) -> float:
        """Return the learning rate now; it and the entropy's weight follow the clock or the steps."""
        done = callback.fraction
        model.ent_coef = options.entropy + done * (options.final_entropy - options.entropy)
        return options.learning_rate * (1.0 - done)

    model.lr_schedule = rate
    saved = progress.seconds
    with stop_on_signal() as stop:
        while callback.fraction < 1.0 and not stop.is_set():
            with callback.paused():
                add_to_curve(model.num_timesteps)
            model.learn(options.rollout_steps * venv.num_envs, callback, reset_num_timesteps=False)
            callback.tick()
            if progress.seconds - saved >= options.save_every:
                save()
                saved = progress.seconds
    add_to_curve(model.num_timesteps, final=True)
    callback.close()
    save()
    return stop.is_set()


def trained_policy(options: Options, model: Learner, config: PolicyConfig) -> Agent | LevelPolicy:
    """Return the policy in training as an agent, or as a level for an executor."""
    if isinstance(options, ExecutorOptions):
        return as_level(model.policy, config)
    scenario = config.scenario
    executor = load_executor(options.executor, scenario) if isinstance(options, CoordinatorOptions) else None
    return as_agent(model.policy, config, scenario, name="trained", executor=executor)


def report(options: Options, scenario: Scenario, progress: Progress, run_dir: Path) -> None:
    """Evaluate the trained policy beside the baselines; write and print the results."""
    if isinstance(options, ExecutorOptions):
        evaluation = evaluate_executors(
            {"trained": run_dir, "scripted": "scripted", "random": "random", "still": "still"},
            scenario,
            episodes=options.episodes,
            max_episode_steps=options.episode_steps,
        )
        filmed, metric = load_agent("assign-in-range", scenario, executor=run_dir), "reward"
    else:
        filmed, metric = load_run(run_dir, scenario, name="trained"), "coverage"
        others = [load_agent(name, scenario) for name in BASELINES]
        if isinstance(options, CoordinatorOptions):
            others += [load_agent(name, scenario, executor=options.executor) for name in COORDINATORS]
        evaluation = evaluate(
            [filmed, *others], scenario, episodes=options.episodes, max_episode_steps=options.sub_steps
        )
        save_pictures(run_dir, {(scenario.num_sensors, scenario.num_targets): evaluation}, options.sub_steps)
    save_evaluation(run_dir / "evaluation.json", evaluation)
    references = {name: result for name, result in evaluation["agents"].items() if name != "trained"}
    released = released_reward(scenario.name) or {}
    if metric == "coverage" and (size := (scenario.num_sensors, scenario.num_targets)) in released:
        references["released HiT-MAC"] = {"coverage": {"mean": released[size]}}
    save_curve(run_dir / "curve.png", progress, metric, references)
    save_film(run_dir / "episode.gif", filmed, scenario, seed=evaluation["seeds"][0], sub_steps=options.sub_steps)
    print(f"\n{table(evaluation)}")


if __name__ == "__main__":
    main()
