"""Train agents for directional sensor coverage, evaluate them and show what they learned.

``python train.py coverage`` trains a policy that turns the sensors directly, to imitate a planner (so does ``python
train.py`` alone), ``coverage-ppo`` trains it from reward alone,
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

from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.evaluate import save_evaluation, save_film
from hitmac.agents.evaluate.tables import table
from hitmac.agents.learned.checkpoint import PolicyConfig, save_policy
from hitmac.agents.training.callback import TrainingProgress, stop_on_signal
from hitmac.agents.training.child import TrainingFailedError, available_cores, end_with_parent
from hitmac.agents.training.curve import CurveEvaluation, reached_in_words, save_curve, save_points
from hitmac.agents.training.finite import NotFiniteError, finite_update
from hitmac.agents.training.group import check_group, evaluate_trainings, prepared
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import JOBS, with_defaults
from hitmac.agents.training.learner import Learner, build, learned_policy
from hitmac.agents.training.on_ray import train_on_ray
from hitmac.agents.training.remarks import entropy_share, remarks
from hitmac.agents.training.rescue import rescue
from hitmac.agents.training.resume import Progress, load_training, save_training
from hitmac.agents.training.roles import Job
from hitmac.agents.training.run_directory import contents, prepare
from hitmac.agents.training.side_by_side import train_side_by_side
from hitmac.agents.training.start import take_weights
from hitmac.agents.training.variations import trainings, with_seed_range
from hitmac.envs.apis.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.errors import did_you_mean
from hitmac.envs.scenario import Scenario

PROGRAM = "train.py"
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
    arguments = sys.argv[1:]
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
    except KeyboardInterrupt:
        print("\naborted; what the last checkpoint holds is kept, and --resume goes on from it", file=sys.stderr)
        sys.exit(130)
    except (NotFiniteError, TrainingFailedError, OSError) as error:
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
    executor, coordinator = options.level_jobs(run_dir)
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
    with stop_on_bad_input(PROGRAM):
        compile_kernels(options, scenario)
        model, venv, config = build(options, scenario)
        state = run_dir / "checkpoint" / "training.safetensors"
        progress = Progress()
        if options.resume and state.is_file():
            progress = load_training(state, model, venv)
        elif options.start is not None:
            take_weights(model.policy, options.start)
            take_weights(learned_policy(model), options.start)
    stopped = train(options, model, venv, config, progress, run_dir)
    report(options, scenario, progress, run_dir, entropy_share(model))
    print(f"\n{model.num_timesteps} steps in {progress.seconds / 60:.1f} minutes of training")
    return stopped


def compile_kernels(options: Job, scenario: Scenario) -> None:
    """Take a step in environments like those of the training: no kernel is compiled while the clock runs."""
    print("compiling, if it is the first time", flush=True)
    venv = options.make(scenario)
    venv.reset()
    venv.step(np.stack([venv.action_space.sample() for _ in range(venv.num_envs)]))


def train(
    options: Job,
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
        options.trained(learned_policy(model), config),
        config.scenario,
        progress,
        callback.fraction_at,
        points=options.curve_points,
        sub_steps=options.sub_steps,
        episodes=options.episodes,
    )

    def save() -> None:
        check()
        save_policy(run_dir / "checkpoint", learned_policy(model), config)
        save_training(run_dir / "checkpoint" / "training.safetensors", model, venv, progress)

    def rate(_: float) -> float:
        """Return the learning rate now; it and the entropy's weight follow the clock or the steps."""
        done = callback.fraction
        model.ent_coef = options.entropy + done * (options.final_entropy - options.entropy)
        return options.learning_rate * (1.0 - done)

    model.lr_schedule = rate
    saved = progress.seconds
    elsewhere = rescue(run_dir, lambda folder: save_policy(folder, learned_policy(model), config))
    with stop_on_signal() as stop, elsewhere as check:
        while callback.fraction < 1.0 and not stop.is_set():
            with callback.paused():
                add_to_curve(model.num_timesteps)
            with finite_update(model):
                model.learn(options.rollout_steps * venv.num_envs, callback, reset_num_timesteps=False)
            callback.tick()
            if progress.seconds - saved >= options.save_every:
                save()
                saved = progress.seconds
        add_to_curve(model.num_timesteps, final=True)
        callback.close()
        save()
    return stop.is_set()


def report(options: Job, scenario: Scenario, progress: Progress, run_dir: Path, entropy: float | None) -> None:
    """Evaluate the trained policy beside the baselines; write and print the results, and what looks wrong with them."""
    evaluation = options.evaluate(scenario)
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
