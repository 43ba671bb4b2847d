"""State of a training run as one file, from which it goes on as if never interrupted.

The file holds tensors only (safetensors): policy, optimizer, simulator, both random generators, progress,
and the scenes that the learner remembers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import nn
from torch.optim import Optimizer

from hitmac.agents.learned.checkpoint import put_tensors, tensors_of
from hitmac.agents.tracking.features import BeliefObserver
from hitmac.agents.training.imitation import Imitation
from hitmac.envs.files import regular_file, whole_file
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

DAMAGED = (safetensors.SafetensorError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError)
"""Errors of a state that is damaged, or of another run."""
Moments = dict[int, dict[str, np.ndarray]]
"""Moments of an optimizer, by the number of the parameter and their name."""
CURVE = 5
"""Numbers in a point of a curve."""


@dataclass
class Progress:
    """Progress of a training run."""

    seconds: float = 0.0
    """Training time so far."""
    curve: list[tuple[float, ...]] = field(default_factory=list)
    """Points of the exploring policy, one a rollout: steps and seconds so far, mean coverage, rotation and reward."""
    evaluations: list[tuple[float, ...]] = field(default_factory=list)
    """The same of the deterministic policy, from time to time."""
    phases: list[tuple[str, int, float]] = field(default_factory=list)
    """Phases of the training in their order: name, and the steps and seconds before it."""

    def begin_phase(self, name: str, steps: int) -> None:
        """Record that a phase begins after these steps, unless it has begun already."""
        if not self.phases or self.phases[-1][0] != name:
            self.phases.append((name, steps, self.seconds))


def save_training(path: Path, model: BaseAlgorithm, venv: DirectionalSensorVecEnv, progress: Progress) -> None:
    """Write everything that the rest of the run depends on; call it between two rollouts."""
    arrays = learned_arrays(model.policy, moments_of(model.policy.optimizer))
    arrays |= {f"simulator/{name}": array for name, array in venv.task.simulator.get_state().items()}
    if venv.task.assigned is not None:
        arrays["venv/assigned"] = venv.task.assigned
    if isinstance(venv.task.observer, BeliefObserver):
        arrays |= {f"beliefs/{name}": array for name, array in venv.task.observer.get_state().items()}
    if isinstance(model, Imitation):
        arrays |= {f"buffer/{name}": array for name, array in model.get_state().items()}
    words, position = np.random.get_state(legacy=True)[1:3]  # type: ignore[index]  # noqa: NPY002 - what Stable-Baselines3 shuffles with
    arrays |= {
        "random/torch": torch.get_rng_state().numpy(),
        "random/numpy": np.append(words, np.uint32(position)),
        "venv/returns": venv.returns,
        "venv/episode_starts": np.asarray(model._last_episode_starts),
        "progress/updates": np.array([model._n_updates]),
    }
    arrays |= progress_arrays(progress, model.num_timesteps)
    if model.device.type != "cpu":
        state = torch.get_device_module(model.device).get_rng_state(model.device)
        arrays[f"random/{model.device.type}"] = state.numpy()
    write_arrays(path, arrays)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name to a file, which is whole or not there."""
    with whole_file(path) as temporary:
        content = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        temporary.write_bytes(content)


def read_groups(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of a file by the first part of their names, and the rest of them."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name, array in safetensors.numpy.load_file(regular_file(path)).items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = array
    return groups


def moments_of(optimizer: Optimizer) -> Moments:
    """Return the moments of an optimizer."""
    state = optimizer.state_dict()["state"]
    return {number: {name: tensor.cpu().numpy() for name, tensor in of_one.items()} for number, of_one in state.items()}


def put_moments(optimizer: Optimizer, moments: Moments) -> None:
    """Give an optimizer the moments of :func:`moments_of`."""
    state = {
        number: {name: torch.tensor(array) for name, array in of_one.items()} for number, of_one in moments.items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def learned_arrays(policy: nn.Module, moments: Moments) -> dict[str, np.ndarray]:
    """Return the tensors of a policy and the moments of its optimizer as arrays by name."""
    arrays = {f"policy/{name}": tensor.cpu().numpy() for name, tensor in tensors_of(policy).items()}
    for number, of_one in moments.items():
        arrays |= {f"optimizer/{number}/{name}": array for name, array in of_one.items()}
    return arrays


def read_learned(groups: Mapping[str, Mapping[str, np.ndarray]], policy: nn.Module, path: Path) -> Moments:
    """Put the tensors among the arrays of :func:`learned_arrays`, read from `path`, into a policy; return the moments.

    Raises:
        ValueError: they are not those of this policy.
    """
    put_tensors(policy, {name: torch.from_numpy(array) for name, array in groups["policy"].items()}, path)
    moments: Moments = {}
    for name, array in groups.get("optimizer", {}).items():
        number, _, moment = name.partition("/")
        moments.setdefault(int(number), {})[moment] = array
    return moments


def progress_arrays(progress: Progress, steps: int) -> dict[str, np.ndarray]:
    """Return the progress of a run after these steps as arrays by name."""
    arrays = {
        "progress/steps": np.array([steps]),
        "progress/seconds": np.array([progress.seconds]),
        "progress/curve": np.array(progress.curve, np.float64).reshape(-1, CURVE),
        "progress/evaluations": np.array(progress.evaluations, np.float64).reshape(-1, CURVE),
    }
    for number, (name, begin, seconds) in enumerate(progress.phases):
        arrays[f"phases/{number}/{name}"] = np.array([begin, seconds], np.float64)
    return arrays


def read_progress(groups: Mapping[str, Mapping[str, np.ndarray]]) -> Progress:
    """Return the progress from the arrays of :func:`progress_arrays`, as :func:`read_groups` gives them."""
    arrays = groups["progress"]
    curve, evaluations = (
        [tuple(point) for point in arrays.get(name, np.zeros(0)).reshape(-1, CURVE).tolist()]
        for name in ("curve", "evaluations")
    )
    phases = [
        (key.partition("/")[2], int(steps), float(seconds))
        for key, (steps, seconds) in sorted(groups.get("phases", {}).items(), key=lambda one: int(one[0].split("/")[0]))
    ]
    return Progress(float(arrays["seconds"][0]), curve, evaluations, phases)


def saved_progress(path: Path) -> tuple[int, float]:
    """Return the steps and the seconds of training so far from the file of :func:`save_training`."""
    try:
        with safetensors.safe_open(regular_file(path), "numpy") as arrays:
            return int(arrays.get_tensor("progress/steps")[0]), float(arrays.get_tensor("progress/seconds")[0])
    except DAMAGED as error:
        raise ValueError(f"{path} is not a whole training state: {error}") from None


def load_training(path: Path, model: BaseAlgorithm, venv: DirectionalSensorVecEnv) -> Progress:
    """Restore a model and its environments, made with the run's options, from the file of :func:`save_training`.

    Raises:
        ValueError: the file is damaged or belongs to another run; the message names file and reason.
    """
    try:
        groups = read_groups(path)
        put_moments(model.policy.optimizer, read_learned(groups, model.policy, path))
        venv.task.simulator.set_state(groups["simulator"])
        venv.returns[:] = groups["venv"]["returns"]
        if venv.task.assigned is not None:
            venv.task.assigned[:] = groups["venv"]["assigned"]
        if isinstance(venv.task.observer, BeliefObserver):
            venv.task.observer.set_state(groups["beliefs"])
        model._last_obs = venv.observe()
        model._last_episode_starts = groups["venv"]["episode_starts"]
        words = groups["random"]["numpy"]
        np.random.set_state(("MT19937", words[:-1], int(words[-1]), 0, 0.0))  # noqa: NPY002
        torch.set_rng_state(torch.from_numpy(groups["random"]["torch"]))
        if model.device.type in groups["random"]:
            state = torch.from_numpy(groups["random"][model.device.type])
            torch.get_device_module(model.device).set_rng_state(state, model.device)
        model.num_timesteps = int(groups["progress"]["steps"][0])
        model._n_updates = int(groups["progress"]["updates"][0])
        if isinstance(model, Imitation):
            model.set_state(groups["buffer"])
        return read_progress(groups)
    except DAMAGED as error:
        raise ValueError(f"{path} is not a whole training state of this run: {error}") from None


@contextmanager
def same_directory(run_dir: Path) -> Iterator[Callable[[], None]]:
    """Keep watch over the directory of a run, which others may delete or move while it trains.

    Yields:
        A check to call before saving. It raises FileNotFoundError if the directory is gone, or has lost its
        configuration, so that it does not come back without it, or if another one has taken its place.
    """
    first = run_dir.stat()
    held = os.open(run_dir, os.O_RDONLY) if os.name == "posix" else None  # no other directory gets its number

    def check() -> None:
        if not (run_dir / "config.yaml").is_file():
            raise FileNotFoundError(f"{run_dir} is gone, or has lost its config.yaml")
        if not os.path.samestat(first, run_dir.stat()):
            raise FileNotFoundError(f"{run_dir} is gone, and another directory is in its place")

    try:
        yield check
    finally:
        if held is not None:
            os.close(held)


@contextmanager
def rescue(run_dir: Path, save_to: Callable[[Path], None]) -> Iterator[Callable[[], None]]:
    """Save elsewhere if the block, which trains and saves to `run_dir`, cannot write.

    Args:
        run_dir: directory of the run.
        save_to: saves what can be saved to the directory that it is given.

    Yields:
        The check of :func:`same_directory`.

    Raises:
        OSError: the directory is gone, or a file could not be written; the message says where the policy was saved.
    """
    with _quiet_writers(), same_directory(run_dir) as check:
        try:
            yield check
        except OSError as error:
            reason = _reason(error, check)
            folder = None
            try:
                folder = Path(tempfile.mkdtemp(prefix="hitmac-"))
                save_to(folder)
            except OSError as other:
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                raise OSError(f"{reason}; nor could the policy be saved elsewhere: {other}") from None
            raise OSError(f"{reason}; the policy as it is now was saved to {folder}") from None


def _reason(error: OSError, check: Callable[[], None]) -> OSError:
    """Return why a file could not be written: because the directory is gone, or else the error itself."""
    try:
        check()
    except OSError as gone:
        return gone
    return error


@contextmanager
def _quiet_writers() -> Iterator[None]:
    """Leave errors of TensorBoard's writer, which has a thread of its own, to the thread that it writes for."""
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not isinstance(failed.exc_value, OSError):
            before(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
