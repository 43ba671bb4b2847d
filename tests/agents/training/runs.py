"""Small trainings: their options, those in processes of their own, and the tensors that they leave."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import safetensors.numpy

from tests.agents.training.brief import OWN_PROCESS

ROOT = Path(__file__).parents[3]
TINY = ["--num-envs", 4, "--rollout-steps", 4, "--batch-size", 8, "--weight-dim", 4, "--processes", 1]
TINY += ["--save-every", 0]
SHORT = ["--episodes", "2", "--episode-steps", "20"]
SMALL = [*TINY, *SHORT, "--curve-points", 0]
"""Options of a training with 16 steps of scenes in an update."""


def started(folder, arguments, runs, enough=all):
    """Start a training or a group in `folder`; return its process once all runs, or `enough` of them, have states.

    Its output is in the file `log`.
    """
    command = [sys.executable, str(ROOT / "train.py"), *map(str, arguments)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=os.environ | OWN_PROCESS)
    end = time.monotonic() + 900
    while not enough((folder / run / "checkpoint/training.safetensors").is_file() for run in runs):
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


def tensors(run):
    """Return the weights of a run's policy."""
    return safetensors.numpy.load_file(Path(run, "checkpoint", "policy.safetensors"))


def state(run):
    """Return the training state of a run, without the clock."""
    found = safetensors.numpy.load_file(Path(run, "checkpoint", "training.safetensors"))
    del found["progress/seconds"]
    for name in ("progress/curve", "progress/evaluations"):
        found[name] = found[name][:, [0, 2, 3, 4]]
    return found


def steps_of(run):
    """Return the environment steps of a run so far."""
    return state(run)["progress/steps"].item()


def differences(one, other):
    """Return the names of the tensors that are not equal bit for bit."""
    return [
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or not np.array_equal(one[name], other[name])
    ]
