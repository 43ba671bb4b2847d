"""Trainings of a group, several at a time, on the cores of this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from hitmac.agents.training.child import LOG, TrainingFailedError, available_cores, last_line, start_training
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.roles import Job
from hitmac.agents.training.stopping import stop_on_signal

_STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # statuses of a training that a SIGTERM ended before it began


def train_side_by_side(runs: Sequence[Job | HitMacOptions], processes: int) -> bool:
    """Train the runs whose directories are there, `processes` at a time; return whether the user stopped them.

    The processes share the cores. A training that fails does not stop the others.

    Raises:
        TrainingFailedError: trainings failed, after all others ended.
    """
    threads = max(1, available_cores() // processes)
    waiting, running = list(runs), dict[Path, subprocess.Popen[bytes]]()
    failed: dict[str, str] = {}
    told = False
    try:
        with stop_on_signal() as stop, tqdm(total=len(runs), unit="training", smoothing=0) as bar:
            while running or (waiting and not stop.is_set()):
                while waiting and len(running) < processes and not stop.is_set():
                    run = waiting.pop(0)
                    assert run.run_dir is not None
                    running[run.run_dir] = start_training(run.job, run.run_dir, threads)
                    bar.write(f"{run.run_dir}: training; it prints to {run.run_dir / LOG}")
                if stop.is_set() and not told:
                    told = True
                    for process in running.values():
                        process.terminate()
                for folder, process in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[folder]
                    bar.update()
                    ended = 0 if told and process.returncode in _STOPPED else process.returncode
                    if ended:
                        failed[str(folder)] = last_line(folder / LOG)
                    bar.write(f"{folder}: {'failed' if ended else _result(folder)}")
                time.sleep(0.2)
            stopped = stop.is_set()
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    if failed:
        raise TrainingFailedError(failed, len(runs))
    return stopped


def _result(folder: Path) -> str:
    """Return what a finished training reached, in words."""
    path = next((path for path in (folder / "coordinator", folder) if (path / "evaluation.json").is_file()), None)
    if path is None:
        return "stopped"
    agents = json.loads((path / "evaluation.json").read_text(encoding="utf-8"))["agents"]
    result = agents["trained"]
    metric = "coverage" if "coverage" in result else "reward"
    return f"{metric} {result[metric]['mean']:.3f}"
