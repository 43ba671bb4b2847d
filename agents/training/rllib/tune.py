"""Trainings of a group on a Ray cluster, by Ray Tune: a training whose machine is lost goes on elsewhere.

Each training is a trial with one CPU. It works in its run directory, which all machines reach by the same path (a
shared file system), so that a trial that starts again finds the last checkpoint there and goes on with it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitmac.agents.training.config import Job
from hitmac.agents.training.resume import saved_progress
from hitmac.agents.training.rllib.cluster import error_lines
from hitmac.agents.training.sweep import LOG, failure, last_line, start_training

MAX_FAILURES = 5
"""Times that a training starts again after its machine or process was lost."""

_PERIOD = 5.0  # seconds between two reports of a trial


def train_on_ray(runs: Sequence[Job], run_dir: Path) -> bool:
    """Train the runs, whose directories are in `run_dir`, on the connected cluster; return whether it was stopped.

    Raises:
        TrainingError: trainings failed, after all others ended.
    """
    from ray import tune

    jobs = {str(run.run_dir.resolve()): run.job for run in runs if run.run_dir is not None}
    tuner = tune.Tuner(
        tune.with_resources(_trial, {"cpu": 1}),
        param_space={"run_dir": tune.grid_search(list(jobs)), "jobs": jobs},
        run_config=tune.RunConfig(
            name=".ray",
            storage_path=str(run_dir.resolve()),
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
            verbose=1,
        ),
    )
    grid = tuner.fit()
    results = [grid[number] for number in range(len(grid))]
    failed = {one.config["run_dir"]: error_lines(one.error)[-1] for one in results if one.error and one.config}
    if failed:
        raise failure(failed, len(runs))
    return len(results) < len(runs)


def _trial(config: dict[str, Any]) -> None:
    """Train a run in a process of its own, which ends with this one; report its progress."""
    from ray import tune

    folder = Path(config["run_dir"])
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is not there on {socket.gethostname()}; all machines must share its disk")
    process = start_training(config["jobs"][str(folder)], folder, 1)
    while process.poll() is None:
        time.sleep(_PERIOD)
        tune.report(_progress(folder))
    if process.returncode:
        raise RuntimeError(last_line(folder / LOG))
    tune.report(_progress(folder))


def _progress(folder: Path) -> dict[str, float]:
    """Return the steps and seconds of training that the last checkpoints of a run hold."""
    states = folder.glob("**/checkpoint/training.safetensors")
    done = [saved_progress(state) for state in states]
    return {"steps": sum(steps for steps, _ in done), "seconds": sum(seconds for _, seconds in done)}
