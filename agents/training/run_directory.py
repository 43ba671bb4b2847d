"""Directories of training runs, made with their configuration in them and found again to go on."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hitmac.agents.command_line import parse, provenance
from hitmac.agents.learned.checkpoint import EXECUTOR, copy_executor, same_checkpoint, trainings_in, variations_in
from hitmac.agents.tracking.features import check_features
from hitmac.agents.training.config import NOT_OF_A_RUN, SIZES, Options, read_options
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import CoordinatorOptions, Job, with_limits
from hitmac.envs.allocation import in_gigabytes, total_memory
from hitmac.envs.files import delete_left_over, parse_yaml, read_text, whole_paths, working_folder, write_text
from hitmac.envs.presets import from_portable, load_scenario, portable
from hitmac.envs.recordings import make_recordings
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import collect, raise_together

_NUMBER = 4  # bytes
_COPIES = 5  # of every weight: itself, its gradient, two averages of the optimiser, one of imitation
_METRIC = 8  # bytes of a metric of an episode, and of the part of an episode that a sub-step belongs to


def check_memory(options: Options, scenario: Scenario) -> None:
    """Raise ValueError if a training needs more memory than there is; the message says what for.

    The estimate is a lower one: what passes may still be too much.
    """
    needed, there = memory_needed(options, scenario), total_memory()
    if there is not None and (total := sum(needed.values())) > there:
        parts = "; ".join(f"{what} {in_gigabytes(number)}" for what, number in needed.items())
        raise ValueError(
            f"this training needs {in_gigabytes(total)} of memory or more, and there are {in_gigabytes(there)}: {parts}"
        )


def memory_needed(options: Options, scenario: Scenario) -> dict[str, float]:
    """Return a lower estimate of the bytes that a training needs, by what for, with the options that it depends on."""
    width, blocks, layers = options.weight_dim, options.num_blocks, options.embed_layers
    pairs = scenario.num_sensors * min(options.nearness.get("nearest", scenario.num_targets), scenario.num_targets)
    features = len(check_features(options.features))
    weights = features * (1 + 2 * options.num_frequencies) * width + (layers - 1 + 4 * blocks) * width**2
    steps = options.rollout_steps * options.num_envs
    batch = min(options.batch_size, steps) if options.algorithm != "a2c" else steps
    length = "--episodes, --episode-steps" + ", --decision" * hasattr(options, "decision")
    return {
        "networks (--weight-dim, --embed-layers, --num-blocks, --num-frequencies)": float(_COPIES * _NUMBER * weights),
        "rollouts (--rollout-steps, --num-envs)": float(_NUMBER * steps * pairs * features),
        "gradient steps (--batch-size, --weight-dim)": float(_NUMBER * batch * pairs * width * (layers + blocks)),
        f"evaluation ({length})": float(_METRIC * (options.episodes + options.sub_steps)),
    }


# Options that may change when a run is resumed.
LIMITS = {
    "minutes",
    "total_steps",
    "executor_minutes",
    "coordinator_minutes",
    "executor_steps",
    "coordinator_steps",
    "save_every",
    "curve_points",
    "episodes",
    "device",
    "num_env_runners",
    "num_learners",
    *NOT_OF_A_RUN,
}

AnyOptions = TypeVar("AnyOptions", bound=Job | HitMacOptions)


def prepare(
    options: AnyOptions, program: str, arguments: Sequence[str] | None, scenario: Scenario | None = None
) -> tuple[AnyOptions, Scenario, Path]:
    """Make the run's directory, or find the one to go on with.

    A coordinator's executor is copied into the directory, and is used from there: a run depends on nothing outside it.

    Args:
        options: as parsed and checked.
        program: what the user typed, for the messages.
        arguments: the command line that they come from, so that what it leaves out comes from the run to go on with;
            None: they are whole already.
        scenario: what a new run is on; None: what the options name.

    Returns:
        The options to run with, the scenario and the directory.

    Raises:
        ValueError, FileExistsError, FileNotFoundError: options or a directory that cannot be used; nothing is left.
    """
    if options.resume:
        return _resumed(options, program, arguments)
    scenario = _scenario(options) if scenario is None else scenario
    _check_files(scenario)
    for level in options.level_jobs(Path(), scenario) if isinstance(options, HitMacOptions) else (options,):
        check_memory(level, scenario)
    if isinstance(options, Job):
        options.check_on(scenario)
        options = with_limits(options)
    run_dir = options.run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    if run_dir.exists():
        raise FileExistsError(f"{run_dir} exists; name a new directory, or go on with that run by adding --resume")
    # The directory appears with all that the run needs in it, so that whatever exists can be resumed.
    staging = working_folder(run_dir)
    try:
        _write(staging, options, scenario, [provenance()])
        if executor := _learned_executor(options):
            copy_executor(executor, staging / "checkpoint")
        staging.rename(run_dir)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return _with_own_executor(dataclasses.replace(options, run_dir=run_dir), run_dir), scenario, run_dir


def contents(run_dir: Path) -> list[str]:
    """Return the files that a run has left, by path; of the trainings of a group their directories only."""
    groups = [folder for folder in (run_dir, *variations_in(run_dir)) if trainings_in(folder)]
    runs = {path for folder in groups for path in trainings_in(folder)}
    files = [path for path in run_dir.rglob("*") if path.is_file() and not path.name.startswith(".")]
    own = [str(path.relative_to(run_dir)) for path in files if runs.isdisjoint(path.parents)]
    return sorted([*own, *(f"{path.relative_to(run_dir)}/" for path in runs)])


def _scenario(options: Job | HitMacOptions) -> Scenario:
    """Return the scenario that the options name."""
    scenario = load_scenario(options.scenario)
    changes: dict[str, Any] = {} if options.knowledge is None else {"knowledge": options.knowledge}
    if options.tracks:
        changes["tracks"] = options.tracks
    return scenario.replace(**changes) if changes else scenario


def _check_files(scenario: Scenario) -> None:
    """Raise an error for a file of the scenario that is not there or does not fit, before anything is made."""
    if scenario.tracks:
        make_recordings(scenario, 1)
    if scenario.background:
        Picture(scenario)


def _write(folder: Path, options: AnyOptions, scenario: Scenario, sittings: list[Any]) -> None:
    """Write the configuration of a run, without the place where it lies.

    Paths are relative to the run, so that its files are found again where they have moved together.
    """
    plain = {name: value for name, value in dataclasses.asdict(options).items() if name not in NOT_OF_A_RUN}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    written = {"job": options.job, "options": plain, "scenario": portable(scenario, folder), "sittings": sittings}
    write_text(folder / "config.yaml", yaml.safe_dump(written, sort_keys=False, default_flow_style=None))


def _learned_executor(options: Job | HitMacOptions) -> str | None:
    """Return the path of a coordinator's learned executor; None for other runs."""
    learned = isinstance(options, CoordinatorOptions) and options.executor != "scripted"
    return options.executor if learned else None  # type: ignore[union-attr]


def _with_own_executor(options: AnyOptions, run_dir: Path) -> AnyOptions:
    """Return the options with the run's own copy of its executor."""
    own = run_dir / "checkpoint" / EXECUTOR
    changes: dict[str, Any] = {"executor": str(own)} if _learned_executor(options) and own.is_dir() else {}
    return dataclasses.replace(options, **changes)


def _resumed(asked: AnyOptions, program: str, arguments: Sequence[str] | None) -> tuple[AnyOptions, Scenario, Path]:
    """Return the options of the run to go on with; only its limits may be given again."""
    assert asked.run_dir is not None
    path = asked.run_dir / "config.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{asked.run_dir} is no run to resume: it has no config.yaml")
    try:
        written: dict[str, Any] = parse_yaml(read_text(path))
        job = written.get("job", "coverage")
        sittings = [*written.get("sittings", ()), provenance()]
        saved: AnyOptions | None = None
        errors: list[Exception] = []
        if job == asked.job:
            with collect(errors):
                saved = read_options(type(asked), written["options"])
        with collect(errors):
            scenario = from_portable(written["scenario"], asked.run_dir)
        raise_together(errors)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not the configuration of a run: {' '.join(str(error).split())}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not the configuration of a run: {error}") from None
    if saved is None:
        raise ValueError(f"{asked.run_dir} is a run of the job {job}; {asked.job} cannot go on with it")
    delete_left_over(asked.run_dir)
    if arguments is None:  # nobody asked for its sizes, whose defaults may have been others
        sizes = {name: getattr(saved, name) for name in SIZES if hasattr(saved, name)}
        options = dataclasses.replace(asked, **sizes)
    else:
        options = parse(type(asked), program, arguments, default=saved)
    dataclasses.replace(options, resume=False).check()  # whole now: what is left out was that of the run
    if options.tracks != saved.tracks:
        scenario = _with_tracks(options.tracks, scenario)
    _check_files(scenario)
    for field in dataclasses.fields(options):
        name, was, now = field.name, getattr(saved, field.name), getattr(options, field.name)
        if name not in LIMITS and was != now and not _is_same(name, now, scenario, asked.run_dir):
            name, was = name.replace("_", "-"), scenario.tracks if name == "tracks" else was
            raise ValueError(f"--{name} is {now}, but the run in {asked.run_dir} has {was}; it cannot be changed")
    _write(asked.run_dir, dataclasses.replace(saved, **_limits(options)), scenario, sittings)
    options = with_limits(options) if isinstance(options, Job) else options
    return _with_own_executor(options, asked.run_dir), scenario, asked.run_dir


def _with_tracks(given: tuple[str, ...], scenario: Scenario) -> Scenario:
    """Return the scenario with its files of tracks in the given places, if they have the same names and order."""
    same = [Path(path).name for path in given] == [Path(path).name for path in scenario.tracks]
    return scenario.replace(tracks=given) if same else scenario


def _is_same(name: str, given: Any, scenario: Scenario, run_dir: Path) -> bool:
    """Return whether another name or path means the scenario, the tracks or the executor that the run has."""
    if name == "tracks":
        return whole_paths(name, given) == scenario.tracks
    if name == "scenario":
        return load_scenario(given).replace(tracks=scenario.tracks, background=scenario.background) == scenario
    own = run_dir / "checkpoint" / EXECUTOR
    return name == "executor" and own.is_dir() and Path(given).is_dir() and same_checkpoint(own, given)


def _limits(options: AnyOptions) -> dict[str, Any]:
    """Return the options that a sitting may change."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options) if field.name in LIMITS}
