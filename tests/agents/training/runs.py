"""Small trainings: their options, and the tensors that they leave."""

from pathlib import Path

import numpy as np
import safetensors.numpy

TINY = ["--num-envs", 4, "--rollout-steps", 4, "--batch-size", 8, "--weight-dim", 4, "--processes", 1]
TINY += ["--save-every", 0]
SHORT = ["--episodes", "2", "--episode-steps", "20"]
SMALL = [*TINY, *SHORT, "--curve-points", 0]
"""Options of a training with 16 steps of scenes in an update."""


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
