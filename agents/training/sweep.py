"""Runs, each trained and reported; groups of them, with several seeds and values of options in one directory."""

import dataclasses
import itertools
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hitmac.agents.command_line import parse
from hitmac.agents.learned.checkpoint import SEED
from hitmac.agents.training.config import (
    AnyJob,
    DuelOptions,
    HitMacOptions,
    Job,
    check,
    check_held,
    flag,
    levels,
    with_limits,
)
from hitmac.agents.training.duel import train_duel
from hitmac.agents.training.learner import TrainingError
from hitmac.agents.training.report import TRAINED, evaluate_trainings, report
from hitmac.agents.training.resume import locked, open_run, resolve, saved_progress, state_file
from hitmac.agents.training.train import stop_on_signal, train
from hitmac.envs.base.threads import cores
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import did_you_mean
from hitmac.signals import PARENT

LOG = "training.log"
"""File in the directory of a run with the output of its training."""

LEASE = 120.0
"""Maximum seconds for which a network folder keeps the lock of a machine that is lost."""

# Options of the whole group, and options that change the defaults of others.
_FIXED = {"seed", "seeds", "sweep", "processes", "ray", "run_dir", "resume", "algorithm", "memory", "start"}
_FIXED |= {"scenario", "set", "knowledge", "tracks", "columns", "episodes", "nearest", "per_sensor"}
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # statuses of a training that SIGTERM ended before its first update


def train_run(options: Job, scenario: Scenario) -> bool:
    """Train, evaluate and report a policy, both levels of HiT-MAC or both teams; return whether a signal stopped it."""
    if isinstance(options, DuelOptions):
        return train_duel(options, scenario)
    if isinstance(options, HitMacOptions):
        return train_levels(options, scenario)
    print(
        f"{scenario.num_sensors} sensors, {scenario.num_targets} targets: {options.num_envs} parallel scenes, "
        f"rollouts of {options.rollout_steps} steps, batches of {options.batch_size}"
    )
    steps, rollout = options.total_steps or 0, options.num_envs * options.rollout_steps
    if steps % rollout:
        print(f"--total-steps {steps:,} ends with a whole rollout, after {-(-steps // rollout) * rollout:,} steps")
    engine, stopped = train(options, scenario)
    report(options, scenario, evaluate_trainings([(TRAINED, options)], scenario), engine.progress, engine.entropy)
    print(f"\n{engine.steps} steps in {engine.progress.seconds / 60:.1f} minutes of training")
    return stopped


def train_levels(options: HitMacOptions, scenario: Scenario) -> bool:
    """Train both levels of HiT-MAC, each in its own run; return whether a signal stopped a training."""
    used = (options.folder / "coordinator").exists()
    for level in levels(options, options.folder, scenario):
        print(f"{level.job}:")
        if used and level.job == "executor":
            print("unchanged, since the coordinator uses it")
            continue
        exists = (options.folder / level.job).exists()
        level, scenario = resolve(dataclasses.replace(level, resume=exists), None, scenario)
        with open_run(level, scenario) as opened:
            if train_run(opened, scenario):
                return True
    return False


def variations(options: AnyJob) -> dict[str, AnyJob]:
    """Return the options of every combination of the values of ``sweep``, by name, such as ``pooling=sum``."""
    varied: dict[str, dict[str, Any]] = {}
    known = [field.name for field in dataclasses.fields(options) if field.name not in _FIXED]
    for given in options.sweep:
        name, _, values = given.partition("=")
        name, texts = name.strip().replace("-", "_"), [value.strip() for value in values.split(",")]
        if not values:
            raise ValueError(f"--sweep is {given!r}; it must have the form pooling=sum,mean")
        if name in _FIXED:
            raise ValueError(f"--sweep names {name}, which is the same in all trainings of a group")
        if name not in known:
            raise ValueError(f"--sweep names the unknown option {name!r}{did_you_mean(name, known)}")
        if name in varied:
            raise ValueError(f"--sweep names {name} twice; list all its values once")
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise ValueError(f"--sweep {given!r} has {twice!r} twice")
        varied[name] = {text: _value(options, name, text) for text in texts}
    found = {}
    for combination in itertools.product(*(values.items() for values in varied.values())):
        words = " ".join(f"{name}={text}" for name, (text, _) in zip(varied, combination, strict=True))
        changes: dict[str, Any] = {name: value for name, (_, value) in zip(varied, combination, strict=True)}
        found[words] = dataclasses.replace(options, **(changes | {"sweep": (), "ray": None}))
        check_held(found[words], varied)
    return found


def _value(options: Job, name: str, text: str) -> Any:
    """Return the value of an option in the form of the command line."""
    if isinstance(getattr(options, name), bool):
        if text.lower() not in _TRUTH:
            raise ValueError(f"--sweep {name}={text}; it must be true or false")
        return _TRUTH[text.lower()]
    parsed = parse(type(options), f"--sweep {name}", [flag(name), *shlex.split(text)], default=options)
    return getattr(parsed, name)


def trainings(options: AnyJob, run_dir: Path) -> list[tuple[str, AnyJob]]:
    """Return the trainings of a group, all seeds of each variation, with the name of the variation."""
    return [
        (words, dataclasses.replace(varied, seed=seed, seeds=1, run_dir=run, resume=run.exists()))
        for words, varied in variations(options).items()
        for seed in range(options.seed, options.seed + options.seeds)
        for run in (run_dir / re.sub(r"[^\w.+]+", "-", words).strip("-") / f"{SEED}{seed}",)  # such as pooling-sum
    ]


def check_group(options: Job) -> None:
    """Raise an error if a training of the group has invalid options or no Ray cluster, before anything is written."""
    for words, varied in variations(options).items():
        try:
            check(varied)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{words}: {error}" if words else str(error)) from None
    for option, address in options.clusters.items():
        from hitmac.agents.training.rllib.cluster import connect

        connect(address, flag(option))


def train_group(options: Job, scenario: Scenario) -> bool:
    """Train with every seed and variation, then evaluate all together; return whether a signal stopped a training."""
    group, runs = trainings(options, options.folder), []
    for _, one in group:
        if one.resume and is_finished(one):
            print(f"{one.folder}: already done")
        else:
            runs.append(resolve(one, None, scenario)[0])
    processes, stopped = min(options.processes or cores(), len(runs)), False
    if processes > 1 or (options.ray is not None and runs):
        for run in runs:  # each is trained, and locked, by its own process
            with open_run(run, scenario):
                pass
        if options.ray is None:
            reasons = train_side_by_side(runs, processes)
        else:
            from hitmac.agents.training.rllib.cluster import run_trials

            jobs = {str(run.folder.resolve()): run.job for run in runs}
            reasons = run_trials(train_elsewhere, jobs, options.folder)
        if reasons:
            each = "; ".join(f"{run} ({reason})" for run, reason in reasons.items())
            raise TrainingError(f"{len(reasons)} of {len(runs)} trainings failed: {each}")
        stopped = not all(map(is_finished, runs))
    else:
        while runs and not stopped:
            print(f"\n{runs[0].folder}:")
            with open_run(runs.pop(0), scenario) as run:
                stopped = train_run(run, scenario)
    if not stopped:  # of HiT-MAC's two levels, the whole agents
        agents: list[Any] = [levels(one, one.folder)[1] if isinstance(one, HitMacOptions) else one for _, one in group]
        named = [(words or TRAINED, agent) for (words, _), agent in zip(group, agents, strict=True)]
        whole = dataclasses.replace(agents[0], run_dir=options.folder)
        report(whole, scenario, evaluate_trainings(named, scenario), names=[name for name, _ in named])
    return stopped


def is_finished(options: Job) -> bool:
    """Return whether the training of a run has reached a limit, and has been evaluated since."""
    if isinstance(options, HitMacOptions):
        return all(is_finished(level) for level in levels(options, options.folder))
    state, evaluated = state_file(options.folder), options.folder / "evaluation.json"
    if not (state.is_file() and evaluated.is_file() and evaluated.stat().st_mtime >= state.stat().st_mtime):
        return False
    steps, seconds = saved_progress(state)
    limited = with_limits(options)
    return steps >= (limited.total_steps or math.inf) or seconds >= 60 * (limited.minutes or math.inf)


def train_side_by_side(runs: Sequence[Job], processes: int) -> dict[str, str]:
    """Train the runs whose directories exist, `processes` at a time, which share the cores, until a signal stops them.

    Returns the reasons of failed trainings, by run.
    """
    threads, waiting = max(1, cores() // processes), [(run.job, run.folder) for run in runs]
    running: dict[Path, subprocess.Popen[bytes]] = {}
    reasons: dict[str, str] = {}
    with stop_on_signal() as stop, tqdm(total=len(runs), unit="training", smoothing=0) as bar:
        try:
            while running or waiting:
                while waiting and len(running) < processes:
                    job, folder = waiting.pop(0)
                    running[folder] = start_training(job, folder, threads)
                    bar.write(f"{folder}: training, with its output in {folder / LOG}")
                if stop.wait(0.2):
                    waiting.clear()
                    for process in running.values():
                        process.terminate()
                    for process in running.values():
                        process.wait()
                for folder in [folder for folder, process in running.items() if process.poll() is not None]:
                    with running.pop(folder) as ended:  # closes its standard input
                        status = ended.returncode
                    bar.update()
                    if failed := status and not (stop.is_set() and status in _STOPPED):
                        reasons[str(folder)] = last_line(folder / LOG)
                    bar.write(f"{folder}: {'failed' if failed else 'stopped' if stop.is_set() else 'done'}")
        except BaseException:
            for process in running.values():
                process.kill()
            raise
    return reasons


def train_elsewhere(run_dir: str, job: str) -> None:
    """Train a run in a process of its own, which ends with this one, perhaps on another machine than its directory."""
    folder = Path(run_dir)
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is absent on {socket.gethostname()}; machines must share its file system")
    with locked(folder, LEASE):  # until that of a lost machine has ended
        pass
    with start_training(job, folder, 1) as training:
        status = training.wait()
    if status:
        raise RuntimeError(last_line(folder / LOG))


def last_line(log: Path) -> str:
    """Return the last line of a training's output, without progress bars."""
    text = log.read_bytes()[-10_000:].decode(errors="replace")
    lines = [line.rsplit("\r", 1)[-1].strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "it printed nothing")


def start_training(job: str, run_dir: Path, threads: int) -> subprocess.Popen[bytes]:
    """Start, or continue, the training whose run directory exists, with its output in the :data:`LOG` there.

    SIGTERM stops it after an update, as it stops ``train.py``; Ctrl-C at the terminal does not reach it.
    """
    environment = os.environ | dict.fromkeys(_THREADS, str(threads)) | {PARENT: "1"}
    command = [sys.executable, "-m", "hitmac.train", job, f"--run-dir={run_dir}", "--resume"]
    with open(run_dir / LOG, "ab") as log:
        output: dict[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True, **output)
