"""Ray clusters, and training of a group on one with Ray Tune.

Each training is a trial with one CPU. All machines reach its run directory by the same path (a shared file system), so
that a trial whose machine is lost restarts elsewhere from the last checkpoint.
"""

import importlib.util
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitmac.agents.training.config import Job
from hitmac.agents.training.resume import locked
from hitmac.agents.training.sweep import LOG, last_line, raise_failures, start_training

LOCAL = "local"
"""Address of a new cluster on this machine, which ends with this process."""

MAX_FAILURES = 5
"""Maximum number of restarts of a training whose machine or process is lost."""

LEASE = 120.0
"""Maximum seconds for which a network folder keeps the lock of a machine that is lost."""


def connect(address: str, option: str = "--ray", **local: Any) -> None:
    """Connect to the Ray cluster at an address of ``ray.init``; ``"local"`` starts one on this machine.

    `option` is the name of the address in messages, `local` further arguments of ``ray.init`` for a new cluster.
    """
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(f"{option} needs Ray: pip install 'hitmac[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # normal priority: Ray's processes are the training
    import ray

    local = {"include_dashboard": False} | local if address == LOCAL else {}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray retries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ConnectionError(f"{option} is {address!r}; no Ray cluster answers: {reason}") from None


def train_on_ray(runs: Sequence[Job], run_dir: Path) -> bool:
    """Train the runs in `run_dir` on the connected cluster; return whether a signal stopped them."""
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
    """Train a run in its own process, which ends with this one."""
    folder = Path(config["run_dir"])
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is absent on {socket.gethostname()}; machines must share its file system")
    with locked(folder, LEASE):  # until that of a lost machine has ended
        pass
    with start_training(config["jobs"][str(folder)], folder, 1) as training:
        status = training.wait()
    if status:
        raise RuntimeError(last_line(folder / LOG))
