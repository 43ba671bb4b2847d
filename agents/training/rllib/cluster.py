"""Ray clusters, and the trainings of a group on one, by Ray Tune.

Each training is a trial with one CPU. It works in its run directory, which all machines reach by the same path (a
shared file system), so that a trial whose machine is lost starts again elsewhere from the last checkpoint.
"""

import importlib.util
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitmac.agents.training.config import Job
from hitmac.agents.training.sweep import LOG, last_line, raise_failures, start_training

LOCAL = "local"
"""Address of a cluster on this machine that ends with this process."""

MAX_FAILURES = 5
"""Times that a training starts again after its machine or process was lost."""


def connect(address: str, option: str = "--ray", **local: Any) -> None:
    """Connect to the Ray cluster at an address, as ``ray.init`` takes it; ``"local"`` starts one on this machine.

    The option names the address in messages; `local` are further arguments of ``ray.init`` for a cluster started here.
    """
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(f"{option} needs Ray: pip install 'hitmac[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's processes are the training, not its background
    import ray

    local = {"include_dashboard": False} | local if address == LOCAL else {}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ConnectionError(f"{option} is {address!r}; no Ray cluster answers there: {reason}") from None


def train_on_ray(runs: Sequence[Job], run_dir: Path) -> bool:
    """Train the runs, whose directories are in `run_dir`, on the connected cluster; return whether it was stopped."""
    from ray import tune

    jobs = {str(run.folder.resolve()): run.job for run in runs}
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
    failed = {
        one.config["run_dir"]: str(one.error).strip().rpartition("\n")[2] for one in results if one.error and one.config
    }
    raise_failures(failed, len(runs))
    return len(results) < len(runs)


def _trial(config: dict[str, Any]) -> None:
    """Train a run in a process of its own, which ends with this one."""
    folder = Path(config["run_dir"])
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is absent on {socket.gethostname()}; all machines must share its disk")
    if start_training(config["jobs"][str(folder)], folder, 1).wait():
        raise RuntimeError(last_line(folder / LOG))
