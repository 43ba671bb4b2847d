"""Run directories: a training's configuration, and the state from which it continues as if never interrupted.

The state is one file of tensors (safetensors): policy, optimizer, simulator, both random generators, progress, and the
scenes in the learner's buffer.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
import yaml
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import nn
from torch.optim import Optimizer

from hitmac.agents.command_line import provenance
from hitmac.agents.learned.checkpoint import (
    EXECUTOR,
    copy_executor,
    put_tensors,
    tensors_of,
    trainings_in,
    variations_in,
)
from hitmac.agents.tracking.features import BeliefObserver
from hitmac.agents.training.config import CoordinatorOptions, Job, Options
from hitmac.agents.training.defaults import SIZES, AnyJob, check, check_on, completed, flag, with_limits
from hitmac.agents.training.imitation import Imitation
from hitmac.envs.files import (
    parse_yaml,
    read_text,
    whole_file,
    working_folder,
    write_text,
)
from hitmac.envs.recordings import make_recordings
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario, from_portable, load_scenario, portable
from hitmac.envs.validation import collect, in_short, raise_together
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

NOT_OF_A_RUN = ("run_dir", "resume", "processes", "ray", "address")
"""Options that specify where a training runs: the configuration of the run does not hold them."""

LIMITS = {*["minutes", "total_steps", "executor_minutes", "coordinator_minutes", "executor_steps", "coordinator_steps"]}
LIMITS |= {*["save_every", "curve_points", "episodes", "device", "num_env_runners", "num_learners"], *NOT_OF_A_RUN}
"""Options that may change when a run is resumed."""


def prepare(
    asked: AnyJob, given: Collection[str] | None = None, scenario: Scenario | None = None
) -> tuple[AnyJob, Scenario, Path]:
    """Return the whole options of a run, its scenario, and its directory, which is made or found.

    See :func:`resolve` and :func:`open_run`.
    """
    options, scenario = resolve(asked, given, scenario)
    options = open_run(options, scenario)
    assert options.run_dir is not None
    return options, scenario, options.run_dir


def resolve(
    asked: AnyJob, given: Collection[str] | None = None, scenario: Scenario | None = None
) -> tuple[AnyJob, Scenario]:
    """Return the whole options of a new run, or of the run to resume, and its scenario.

    Args:
        asked: options of the command line.
        given: names of those that it gives; the others have the run's values, or defaults that depend on these. None:
            all are given.
        scenario: scenario of a new run; None: the one that the options name.

    Raises:
        ValueError, TypeError, FileNotFoundError: options that are not allowed; nothing has been made.
    """
    if asked.resume:
        options, scenario = _resumed(asked, given)
    else:
        scenario = _scenario(asked) if scenario is None else scenario
        options = asked if given is None else completed(asked, given, scenario)
    check(options)
    if scenario.tracks:
        make_recordings(scenario, 1)
    if scenario.background:
        Picture(scenario)
    if isinstance(options, Options):
        if not options.resume:
            check_on(options, scenario)
        options = with_limits(options)
    return options, scenario


def open_run(options: AnyJob, scenario: Scenario) -> AnyJob:
    """Make the directory of a run, or note in that of a resumed one how it continues; return the options to use in it.

    A coordinator's executor is copied into the directory, and is used from there: a run depends on nothing outside it.

    Raises:
        FileExistsError: the directory of a new run exists.
    """
    run_dir = options.run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    if options.resume:
        _write(run_dir, options, scenario, [*_configuration(run_dir).get("sittings", ()), provenance()])
    elif run_dir.exists():
        raise FileExistsError(f"{run_dir} exists; name a new directory, or go on with that run by adding --resume")
    else:  # the directory appears with all that the run needs in it, so that whatever exists can be resumed
        staging = working_folder(run_dir)
        try:
            _write(staging, options, scenario, [provenance()])
            if _has_learned_executor(options):
                copy_executor(options.executor, staging / "checkpoint")  # type: ignore[union-attr]
            staging.rename(run_dir)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    options = dataclasses.replace(options, run_dir=run_dir)
    own = run_dir / "checkpoint" / EXECUTOR
    if _has_learned_executor(options) and own.is_dir():
        changes: dict[str, Any] = {"executor": str(own)}
        options = dataclasses.replace(options, **changes)
    return options


def contents(run_dir: Path) -> list[str]:
    """Return the files that a run has left, by path; of the trainings of a group their directories only."""
    groups = [folder for folder in (run_dir, *variations_in(run_dir)) if trainings_in(folder)]
    runs = {path for folder in groups for path in trainings_in(folder)}
    files = [path for path in run_dir.rglob("*") if path.is_file() and not path.name.startswith(".")]
    own = [str(path.relative_to(run_dir)) for path in files if runs.isdisjoint(path.parents)]
    return sorted([*own, *(f"{path.relative_to(run_dir)}/" for path in runs)])


def _has_learned_executor(options: Job) -> bool:
    return isinstance(options, CoordinatorOptions) and options.executor != "scripted"


def _scenario(options: Job) -> Scenario:
    """Return the scenario that the options name."""
    scenario = load_scenario(options.scenario)
    changes: dict[str, Any] = {} if options.knowledge is None else {"knowledge": options.knowledge}
    if options.tracks:
        changes["tracks"] = options.tracks
    return scenario.replace(**changes) if changes else scenario


def _write(folder: Path, options: Any, scenario: Scenario, sittings: list[Any]) -> None:
    """Write the configuration of a run; paths are relative to it, so that its files may move together."""
    plain = {name: value for name, value in dataclasses.asdict(options).items() if name not in NOT_OF_A_RUN}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    written = {"job": options.job, "options": plain, "scenario": portable(scenario, folder), "sittings": sittings}
    write_text(folder / "config.yaml", yaml.safe_dump(written, sort_keys=False, default_flow_style=None))


def _configuration(run_dir: Path) -> dict[str, Any]:
    """Return the configuration of a run as it was written."""
    path = run_dir / "config.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} is no run to resume: it has no config.yaml")
    try:
        written = parse_yaml(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path} is not the configuration of a run: {error}") from None
    if not isinstance(written, dict) or not isinstance(written.get("options"), dict):
        raise ValueError(f"{path} is not the configuration of a run: it must hold job, options and scenario")
    return written


def read_options(kind: type[AnyJob], written: Mapping[str, Any]) -> AnyJob:
    """Return the options in a run's configuration, checked.

    Raises:
        ValueError, TypeError: unknown options and values out of their range, all in one error.
    """
    errors: list[Exception] = []
    known = [field.name for field in dataclasses.fields(kind)]
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in written.items()
    }
    if unknown := [name for name in plain if name not in known]:
        errors.append(ValueError(f"unknown option {in_short(unknown, known)}: known are {', '.join(known)}"))
    options = kind(**{name: value for name, value in plain.items() if name in known})
    with collect(errors):
        check(options)
    raise_together(errors)
    return options


def _resumed(asked: AnyJob, given: Collection[str] | None) -> tuple[AnyJob, Scenario]:
    """Return the options and the scenario of the run to resume; only its limits may be given again."""
    if asked.run_dir is None:
        raise ValueError("--resume needs --run-dir, the directory of the run to go on with")
    written, job = _configuration(asked.run_dir), asked.job
    if written.get("job") != job:
        raise ValueError(f"{asked.run_dir} is a run of the job {written.get('job')}; {job} cannot go on with it")
    errors: list[Exception] = []
    try:
        with collect(errors):
            saved = read_options(type(asked), written["options"])
        with collect(errors):
            scenario = from_portable(written["scenario"], asked.run_dir)
        raise_together(errors)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{asked.run_dir / 'config.yaml'} is not the configuration of a run: {error}") from None
    if given is None:  # sizes, whose defaults may have been others, were not asked for; the executor has its own copy
        given = {field.name for field in dataclasses.fields(asked)} - {*SIZES, "executor"}
    for name in given:
        was, now = getattr(saved, name), getattr(asked, name)
        if name == "tracks" and now and [Path(one).name for one in now] == [Path(one).name for one in scenario.tracks]:
            scenario = scenario.replace(tracks=now)  # the same files in another place
        elif name not in LIMITS and was != now:
            raise ValueError(f"{flag(name)} is {now}, but the run in {asked.run_dir} has {was}; it cannot be changed")
    changes = {name: getattr(asked, name) for name in LIMITS.intersection(given) | {"run_dir", "resume"}}
    return dataclasses.replace(saved, **changes), scenario


DAMAGED = (safetensors.SafetensorError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError)
"""Errors of a state that is damaged, or of another run."""
Moments = dict[str, np.ndarray]
"""Moments of an optimizer, by the number of the parameter and their name, such as ``0/exp_avg``."""
POINT = ("steps", "seconds", "coverage", "rotation", "reward")
"""Numbers of a point of a curve: steps and seconds of training so far, and means over the rollout or the episodes."""


@dataclass
class Progress:
    """Progress of a training run."""

    seconds: float = 0.0
    """Training time so far."""
    curve: list[tuple[float, ...]] = field(default_factory=list)
    """Points of the exploring policy, one a rollout."""
    evaluations: list[tuple[float, ...]] = field(default_factory=list)
    """The same of the deterministic policy, from time to time."""


def state_file(run_dir: Path) -> Path:
    """Return the path of the training's state in a run."""
    return run_dir / "checkpoint" / "training.safetensors"


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
        temporary.write_bytes(
            safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        )


def read_groups(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of a file by the first part of their names, and the rest of them."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name, array in safetensors.numpy.load_file(path).items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = array
    return groups


def moments_of(optimizer: Optimizer) -> Moments:
    """Return the moments of an optimizer."""
    state = optimizer.state_dict()["state"]
    return {f"{number}/{name}": tensor.cpu().numpy() for number, one in state.items() for name, tensor in one.items()}


def put_moments(optimizer: Optimizer, moments: Moments) -> None:
    """Give an optimizer the moments of :func:`moments_of`."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, array in moments.items():
        number, _, moment = name.partition("/")
        state.setdefault(int(number), {})[moment] = torch.tensor(array)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def learned_arrays(policy: nn.Module, moments: Moments) -> dict[str, np.ndarray]:
    """Return the tensors of a policy and the moments of its optimizer as arrays by name."""
    arrays = {f"policy/{name}": tensor.cpu().numpy() for name, tensor in tensors_of(policy).items()}
    return arrays | {f"optimizer/{name}": array for name, array in moments.items()}


def read_learned(groups: Mapping[str, Mapping[str, np.ndarray]], policy: nn.Module, path: Path) -> Moments:
    """Put the tensors among the arrays of :func:`learned_arrays`, read from `path`, into a policy; return the moments.

    Raises:
        ValueError: they are not those of this policy.
    """
    put_tensors(policy, {name: torch.from_numpy(array) for name, array in groups["policy"].items()}, path)
    return dict(groups.get("optimizer", {}))


def progress_arrays(progress: Progress, steps: int) -> dict[str, np.ndarray]:
    """Return the progress of a run after these steps as arrays by name."""
    points = {"curve": progress.curve, "evaluations": progress.evaluations}
    return {"progress/steps": np.array([steps]), "progress/seconds": np.array([progress.seconds])} | {
        f"progress/{name}": np.array(rows, np.float64).reshape(-1, len(POINT)) for name, rows in points.items()
    }


def read_progress(groups: Mapping[str, Mapping[str, np.ndarray]]) -> Progress:
    """Return the progress from the arrays of :func:`progress_arrays`, as :func:`read_groups` gives them."""
    arrays = groups["progress"]
    curve, evaluations = ([tuple(row) for row in arrays[name].tolist()] for name in ("curve", "evaluations"))
    return Progress(float(arrays["seconds"][0]), curve, evaluations)


def saved_progress(path: Path) -> tuple[int, float]:
    """Return the steps and the seconds of training so far from the file of :func:`save_training`."""
    try:
        with safetensors.safe_open(path, "numpy") as arrays:
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
