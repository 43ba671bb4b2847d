"""Run directories: a training's configuration and lock, and the state from which it continues as if never interrupted.

The state is one file of tensors (safetensors): policy, optimizer, simulator, random generators, progress, and the
scenes in the learner's buffer.
"""

import dataclasses
import itertools
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from torch import nn
from torch.optim import Optimizer

from hitmac.agents.command_line import provenance
from hitmac.agents.learned import checkpoint
from hitmac.agents.tracking.features import BeliefObserver
from hitmac.agents.training import config
from hitmac.agents.training.config import AnyJob, CoordinatorOptions, DuelOptions, Job, Options, TransportOptions, flag
from hitmac.envs.files import dump_yaml, lock, parse_yaml, read_text, whole_file, working_folder, write_text
from hitmac.envs.parts.recordings import make_recordings
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario, from_portable, load_scenario, portable, with_settings
from hitmac.envs.validation import collect, known_unless_meant, raise_together
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

NOT_OF_A_RUN = ("run_dir", "resume", "processes", "ray", "address")
"""Options for the place of a training, which are not in the configuration of the run."""

LIMITS = {
    "minutes", "total_steps", "executor_minutes", "coordinator_minutes", "executor_steps", "coordinator_steps",
    "save_every", "curve_points", "episodes", "device", "num_env_runners", "iterations", *NOT_OF_A_RUN,
}  # fmt: skip
"""Options that may change when a run is resumed."""


# Configuration.


def resolve(
    asked: AnyJob, given: Collection[str] | None = None, scenario: Scenario | None = None
) -> tuple[AnyJob, Scenario]:
    """Return the complete options of a new run, or of the run to resume, and its scenario, without writing anything.

    Options that are not `given`, by name, have the run's values, or defaults that depend on those given. None: those of
    a new run are complete, and only the limits of a run to resume change.
    """
    options = asked
    if asked.resume:
        options, scenario = _resumed(asked, given)
    else:
        if scenario is None:
            names = ("knowledge", "tracks", "columns")
            scenario = _set(asked).replace(**{name: value for name in names if (value := getattr(asked, name))})
        if isinstance(asked, DuelOptions | TransportOptions):
            scenario = scenario.with_turns()  # a policy of targets has steps
        if given is not None:
            options = config.completed(asked, given, scenario)
    config.check(options)
    if scenario.tracks:
        make_recordings(scenario, 1)
    if scenario.background:
        Picture(scenario)
    if isinstance(options, Options):
        if not options.resume:
            config.check_on(options, scenario)
        options = config.with_limits(options)
    return options, scenario


def _set(asked: Job) -> Scenario:
    """Load the scenario of a new run, with the parameters that ``--set`` changes."""
    for text in asked.set:
        name = text.partition("=")[0].replace("-", "_")
        if name in {one.name for one in dataclasses.fields(asked)} and not hasattr(Scenario, name):
            raise ValueError(
                f"--set {text} names an option of the job, not of the scenario; give {flag(name)}, or to vary it "
                f"--sweep {text}"
            )
    scenario = load_scenario(asked.scenario)
    return with_settings(scenario, asked.set) if asked.set else scenario


def _resumed(asked: AnyJob, given: Collection[str] | None) -> tuple[AnyJob, Scenario]:
    """Return the options and the scenario of the run to resume, of which only the limits may change."""
    if asked.run_dir is None:
        raise ValueError("--resume requires --run-dir, the directory of the run to continue")
    path, errors = asked.run_dir / "config.yaml", list[Exception]()
    if not path.is_file():
        raise FileNotFoundError(f"{asked.run_dir} is not a run to resume: it has no config.yaml")
    try:
        written = parse_yaml(read_text(path))
        if not isinstance(written, dict) or not isinstance(written.get("options"), dict):
            raise ValueError("it must hold job, options and scenario")
        if (job := written.get("job")) == asked.job:
            known = [field.name for field in dataclasses.fields(asked)]
            if unknown := [name for name in written["options"] if name not in known]:
                errors.append(ValueError(f"unknown option {known_unless_meant(unknown, known)}"))
            plain: Any = {name: tuple(it) if isinstance(it, list) else it for name, it in written["options"].items()}
            saved = type(asked)(**{name: plain[name] for name in known if name in plain})
            with collect(errors):
                config.check(saved)
            with collect(errors):
                scenario = from_portable(written["scenario"], asked.run_dir)
        raise_together(errors)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the configuration of a run: {error}") from None
    if job != asked.job:
        raise ValueError(
            f"{asked.run_dir} is a run of the job {job}, which {asked.job} cannot continue; name {job} before --resume"
        )
    given = {*LIMITS.intersection(vars(asked)), "tracks"} if given is None else given
    for name in given:
        was, now = getattr(saved, name), getattr(asked, name)
        if name == "tracks" and now and [Path(one).name for one in now] == [Path(one).name for one in scenario.tracks]:
            scenario = scenario.replace(tracks=now, num_targets=scenario.num_targets)  # in another place
        elif name not in LIMITS and was != now:
            raise ValueError(f"{flag(name)} is {now}, but the run in {asked.run_dir} has {was}; it cannot be changed")
    changes = {name: getattr(asked, name) for name in LIMITS.intersection(given) | {"run_dir", "resume"}}
    return dataclasses.replace(saved, **changes), scenario


@contextmanager
def open_run(options: AnyJob, scenario: Scenario) -> Iterator[AnyJob]:
    """Create the directory of a run, or add the session of a resumed one; yield the options to use in it.

    The run is locked until the block or the process ends. A coordinator's executor is copied to the directory and used
    from there, so that a run depends on no other files.

    Raises:
        FileExistsError, BlockingIOError: the new directory exists, or another process holds the lock.
    """
    run_dir = options.folder if options.resume else _create(options, scenario)
    with locked(run_dir):
        if options.resume:
            sessions = parse_yaml(read_text(run_dir / "config.yaml")).get("sessions", ())
            _write(run_dir, options, scenario, [*sessions, provenance()])
        own = run_dir / "checkpoint" / checkpoint.EXECUTOR
        changes: dict[str, Any] = {"executor": str(own)} if own.is_dir() else {}
        yield dataclasses.replace(options, run_dir=run_dir, **changes)


def _create(options: Job, scenario: Scenario) -> Path:
    """Create the directory of a new run, whole or not at all, and return it."""
    default = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    others = (default.with_name(f"{default.name}-{number}") for number in itertools.count(2))
    executor = options.executor if isinstance(options, CoordinatorOptions) else "scripted"
    if options.run_dir:
        _remove_unused(options.run_dir)
    for run_dir in [options.run_dir] if options.run_dir else itertools.chain([default], others):
        if not run_dir.exists():
            staging = working_folder(run_dir)
            try:
                _write(staging, options, scenario, [provenance()])
                if executor != "scripted":
                    checkpoint.copy_executor(executor, staging / "checkpoint")
                return staging.rename(run_dir)
            except OSError:
                if not run_dir.exists():  # else another process has made it since
                    raise
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    raise FileExistsError(f"{options.run_dir} exists; name a new directory, or add --resume to continue that run")


def _remove_unused(run_dir: Path) -> None:
    """Remove the directory of a run that ended before its first checkpoint, unless a process still uses it."""
    files = {path.name for path in run_dir.rglob("*") if path.is_file()} if run_dir.is_dir() else set()
    if not files <= {"config.yaml", ".lock", "training.log"}:
        return
    with suppress(OSError, ValueError):  # without such a file, or in use: it stays
        config = parse_yaml(read_text(run_dir / "config.yaml"))
        if isinstance(config, dict) and {"job", "options", "scenario", "sessions"} == config.keys():
            with locked(run_dir):
                shutil.rmtree(run_dir)


@contextmanager
def locked(run_dir: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a run, which ends with this process; wait for it for `patience` seconds at most.

    Raises:
        BlockingIOError: another process holds it.
    """
    end = time.monotonic() + patience
    with open(run_dir / ".lock", "a") as file:
        while not lock(file.fileno()):
            if time.monotonic() >= end:
                raise BlockingIOError(f"{run_dir} is in use by another training; stop it, or wait for its end")
            time.sleep(0.5)
        yield


def _write(folder: Path, options: Job, scenario: Scenario, sessions: list[Any]) -> None:
    """Write the configuration of a run, with relative paths, so that its files may move together."""
    plain = {name: value for name, value in dataclasses.asdict(options).items() if name not in NOT_OF_A_RUN}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    written = {"job": options.job, "options": plain, "scenario": portable(scenario, folder), "sessions": sessions}
    write_text(folder / "config.yaml", dump_yaml(written))


def contents(run_dir: Path) -> list[str]:
    """Return the paths of the files of a run; of a group's trainings only the directories."""
    groups = [folder for folder in (run_dir, *checkpoint.variations_in(run_dir)) if checkpoint.trainings_in(folder)]
    runs = {path for folder in groups for path in checkpoint.trainings_in(folder)}
    files = [path for path in run_dir.rglob("*") if path.is_file() and runs.isdisjoint(path.parents)]
    found = [path.relative_to(run_dir) for path in files]
    own = [str(path) for path in found if not any(part.startswith(".") for part in path.parts)]  # such as Ray's, .ray/
    return sorted([*own, *(f"{path.relative_to(run_dir)}/" for path in runs)])


# State.

DAMAGED = (safetensors.SafetensorError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError)
"""Errors of a training state that is damaged or belongs to another run."""
Arrays = dict[str, np.ndarray]
POINT = ("steps", "seconds", "coverage", "rotation", "reward")
"""Values of a point of a curve: steps and seconds of training so far, and means over the rollout or the episodes."""


@dataclass
class Progress:
    """Progress of a training: its time so far, and points of the exploring and, at intervals, deterministic policy."""

    seconds: float = 0.0
    curve: list[tuple[float, ...]] = field(default_factory=list)
    evaluations: list[tuple[float, ...]] = field(default_factory=list)


def state_file(run_dir: Path) -> Path:
    """Return the path of the training's state in a run."""
    return run_dir / "checkpoint" / "training.safetensors"


def write_state(path: Path, groups: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write groups of arrays to a file, whole or not at all."""
    arrays = {f"{group}/{name}": array for group, own in groups.items() for name, array in own.items()}
    with whole_file(path) as temporary:
        temporary.write_bytes(safetensors.numpy.save({key: np.ascontiguousarray(one) for key, one in arrays.items()}))


def read_state(path: Path) -> dict[str, Arrays]:
    """Return the groups of arrays in a file of :func:`write_state`."""
    groups: dict[str, Arrays] = {}
    for name, array in safetensors.numpy.load_file(path).items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = array
    return groups


def learned_state(policy: nn.Module, moments: Arrays, progress: Progress, steps: int) -> dict[str, Arrays]:
    """Return the state common to all engines: weights, the optimizer's moments, and the progress after these steps."""
    curves = {"curve": progress.curve, "evaluations": progress.evaluations}
    points = {name: np.array(rows, np.float64).reshape(-1, len(POINT)) for name, rows in curves.items()}
    return {
        "policy": {name: tensor.cpu().numpy() for name, tensor in checkpoint.tensors_of(policy).items()},
        "optimizer": moments,
        "progress": {"steps": np.array([steps]), "seconds": np.array([progress.seconds])} | points,
    }


def put_learned(groups: Mapping[str, Arrays], policy: nn.Module, path: Path) -> tuple[Arrays, Progress, int]:
    """Load the weights of :func:`learned_state`, read from `path`, to a policy; return moments, progress and steps."""
    checkpoint.put_tensors(policy, {name: torch.from_numpy(array) for name, array in groups["policy"].items()}, path)
    made = groups["progress"]
    curve, evaluations = ([tuple(row) for row in made[name].tolist()] for name in ("curve", "evaluations"))
    return groups.get("optimizer", {}), Progress(float(made["seconds"][0]), curve, evaluations), int(made["steps"][0])


def moments_of(optimizer: Optimizer) -> Arrays:
    """Return the moments of an optimizer by parameter number and name, such as ``0/exp_avg``."""
    state = optimizer.state_dict()["state"]
    return {f"{number}/{name}": tensor.cpu().numpy() for number, one in state.items() for name, tensor in one.items()}


def put_moments(optimizer: Optimizer, moments: Arrays) -> None:
    """Load the moments of :func:`moments_of` to an optimizer."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, array in moments.items():
        number, _, moment = name.partition("/")
        state.setdefault(int(number), {})[moment] = torch.tensor(array)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def save_training(path: Path, model: Any, venv: DirectionalSensorVecEnv, progress: Progress) -> None:
    """Write the state that the rest of the run depends on; call it between two rollouts."""
    groups = learned_state(model.policy, moments_of(model.policy.optimizer), progress, model.num_timesteps)
    groups["progress"]["updates"] = np.array([model._n_updates])
    groups["simulator"] = venv.task.simulator.get_state()
    groups["venv"] = {
        "returns": venv.returns, "cut": venv.cut, "starts": venv.task.starts,
        "episode_starts": np.asarray(model._last_episode_starts),
    }  # fmt: skip
    if venv.task.assigned is not None:
        groups["venv"]["assigned"] = venv.task.assigned
    groups |= {name: observer.get_state() for name, observer in _observers_of(venv.task)}
    if hasattr(opponent := venv.task.opponent, "get_state"):
        groups["opponent"] = opponent.get_state()
    groups["learner"] = model.get_state()
    groups["random"] = {"torch": torch.get_rng_state().numpy()}
    if model.device.type != "cpu":
        state = torch.get_device_module(model.device).get_rng_state(model.device)
        groups["random"][model.device.type] = state.numpy()
    write_state(path, groups)


def _observers_of(task: Any) -> list[tuple[str, BeliefObserver]]:
    """Return the observers of a task that have a memory, with their names in a training state."""
    each = {"executor_beliefs": getattr(task, "executor_observer", None), "beliefs": task.observer}
    own = {id(one): (name, one) for name, one in each.items() if isinstance(one, BeliefObserver)}
    return [*own.values()]


def load_training(path: Path, model: Any, venv: DirectionalSensorVecEnv) -> Progress:
    """Restore a model and its environments, built with the run's options, from the file of :func:`save_training`."""
    try:
        groups = read_state(path)
        moments, progress, model.num_timesteps = put_learned(groups, model.policy, path)
        put_moments(model.policy.optimizer, moments)
        venv.task.simulator.set_state(groups["simulator"])
        venv.returns[:], venv.cut[:], venv.begun = groups["venv"]["returns"], groups["venv"]["cut"], True
        venv.task.starts[:] = groups["venv"]["starts"]
        if venv.task.assigned is not None:
            venv.task.assigned[:] = groups["venv"]["assigned"]
        for name, observer in _observers_of(venv.task):
            observer.set_state(groups[name])
        if hasattr(opponent := venv.task.opponent, "set_state"):
            opponent.set_state(groups.get("opponent", {}))
        model._last_obs = venv.observe()
        model._last_episode_starts = groups["venv"]["episode_starts"]
        torch.set_rng_state(torch.from_numpy(groups["random"]["torch"]))
        if model.device.type in groups["random"]:
            state = torch.from_numpy(groups["random"][model.device.type])
            torch.get_device_module(model.device).set_rng_state(state, model.device)
        model._n_updates = int(groups["progress"]["updates"][0])
        model.set_state(groups["learner"])
    except DAMAGED as error:
        raise ValueError(f"{path} is an incomplete training state, or that of another run: {error}") from None
    return progress


def saved_progress(path: Path) -> tuple[int, float]:
    """Return the steps and the seconds of training so far from the file of :func:`save_training`."""
    try:
        with safetensors.safe_open(path, "numpy") as arrays:
            return int(arrays.get_tensor("progress/steps")[0]), float(arrays.get_tensor("progress/seconds")[0])
    except DAMAGED as error:
        raise ValueError(f"{path} is an incomplete training state: {error}") from None
