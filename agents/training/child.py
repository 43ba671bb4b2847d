"""Training in a process of its own, which ends with the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

_PIPE = "HITMAC_ENDS_WITH_STANDARD_INPUT"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

LOG = "training.log"
"""File in the directory of a run with what its training printed."""


class TrainingFailedError(RuntimeError):
    """Trainings of a group failed.

    Args:
        reasons: the reasons, by run.
        number: number of the trainings.
    """

    def __init__(self, reasons: Mapping[str, str], number: int) -> None:
        each = "; ".join(f"{run} ({reason})" for run, reason in reasons.items())
        super().__init__(f"{len(reasons)} of {number} trainings failed: {each}")


def start_training(job: str, run_dir: Path, threads: int) -> subprocess.Popen[bytes]:
    """Start, or go on with, the training whose run directory is there; its output goes to the :data:`LOG` there.

    A SIGTERM stops it after an update, as it does with ``train.py``; a Ctrl-C at the terminal does not reach it.
    """
    environment = os.environ | dict.fromkeys(_THREADS, str(threads)) | {_PIPE: "1"}
    with open(run_dir / LOG, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "hitmac.train", job, "--run-dir", str(run_dir), "--resume"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def end_with_parent() -> None:
    """End this process, if :func:`start_training` started it, when the one that did so ends, even if it is killed.

    The standard input is a pipe to which nobody writes; it ends with the process at its other end.
    """
    if os.environ.pop(_PIPE, ""):
        threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()


def last_line(log: Path) -> str:
    """Return the last line that a training printed, without progress bars."""
    text = log.read_bytes()[-10_000:].decode(errors="replace")
    lines = [line.rsplit("\r", 1)[-1].strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "it printed nothing")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
