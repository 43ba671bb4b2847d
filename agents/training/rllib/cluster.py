"""Ray clusters, and trials of Ray Tune on one."""

import importlib.util
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hitmac.agents.command_line import IMPORTS

LOCAL = "local"
"""Address of a new cluster on this machine, which ends with this process."""

MAX_FAILURES = 5
"""Maximum number of restarts of a training whose machine or process is lost."""


def connect(address: str, option: str = "--ray", **local: Any) -> None:
    """Connect to the Ray cluster at an address of ``ray.init``; ``"local"`` starts one on this machine.

    `option` is the name of the address in messages, `local` further arguments of ``ray.init`` for a new cluster.
    """
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(f"{option} requires Ray: pip install 'hitmac[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # normal priority: Ray's processes are the training
    import ray

    local = {"include_dashboard": False} | local if address == LOCAL else {}
    if IMPORTS in os.environ:
        local["runtime_env"] = {"env_vars": {name: os.environ[name] for name in (IMPORTS, "PYTHONPATH")}}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if port.isdigit():  # Ray retries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray raises it itself when a busy machine starts its processes too slowly
        reason = str(error).partition("\n")[0]
        raise ConnectionError(f"{option} is {address!r}; no Ray cluster answers: {reason}") from None
    signal.signal(signal.SIGTERM, on_sigterm)  # with Ray's own handler the program would crash


def run_trials(train: Callable[[str, str], None], jobs: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Train runs on the connected cluster, each as a trial of Ray Tune with one CPU, ``train(run, jobs[run])``.

    A trial whose machine is lost restarts elsewhere; a signal stops all trials, which keep their last checkpoints.
    Return the reasons of failed trials, by run. Tune's own files are in `folder`.
    """
    from ray import tune

    failures = tune.FailureConfig(max_failures=MAX_FAILURES)
    tuner = tune.Tuner(
        tune.with_resources(lambda trial: train(trial["run"], jobs[trial["run"]]), {"cpu": 1}),
        param_space={"run": tune.grid_search(list(jobs))},
        run_config=tune.RunConfig(name=".ray", storage_path=str(folder.resolve()), failure_config=failures, verbose=1),
    )
    on_sigterm = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # which Tune handles
    try:
        grid = tuner.fit()
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)
    results = [grid[number] for number in range(len(grid))]
    failed = {one.config["run"]: one.error for one in results if one.error and one.config}
    return {run: str(error).strip().rpartition("\n")[2] for run, error in failed.items()}
