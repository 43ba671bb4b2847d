"""The directories of training runs: made with their configuration in them, and found again to go on."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from agents.command_line import parse
from agents.jobs import HitMacOptions, Options, with_limits
from envs.files import write_text
from envs.scenario import Scenario, load_scenario

# What may change when a run is resumed; all the rest is the run's own.
LIMITS = {
    "minutes",
    "total_steps",
    "executor_minutes",
    "coordinator_minutes",
    "executor_steps",
    "coordinator_steps",
    "save_every",
    "episodes",
    "run_dir",
    "resume",
}

AnyOptions = TypeVar("AnyOptions", Options, HitMacOptions)


def prepare(options: AnyOptions, program: str, arguments: Sequence[str] | None) -> tuple[AnyOptions, Scenario, Path]:
    """Make the run's directory, or find the one to go on with.

    Args:
        options: as parsed and checked.
        program: what the user typed, for the messages.
        arguments: the command line that they come from, so that what it leaves out comes from the run to go on with;
            None: they are whole already.

    Raises:
        ValueError, FileExistsError, FileNotFoundError: options or a directory that cannot be used; nothing is left.
    """
    if options.resume:
        return _resumed(options, program, arguments)
    scenario = load_scenario(options.scenario)
    if isinstance(options, Options):
        options.check_on(scenario)
        options = with_limits(options)
    run_dir = options.run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    if run_dir.exists():
        raise FileExistsError(f"{run_dir} exists; name a new directory, or go on with that run by adding --resume")
    # The directory appears with its configuration in it, so that whatever exists can be resumed.
    unborn = run_dir.with_name(f".{run_dir.name}.{os.getpid()}")
    unborn.mkdir(parents=True)
    plain = {name: value for name, value in dataclasses.asdict(options).items() if name not in ("run_dir", "resume")}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    written = {"job": options.job, "options": plain, "scenario": scenario.to_dict()}
    write_text(unborn / "config.yaml", yaml.safe_dump(written, sort_keys=False, default_flow_style=None))
    unborn.rename(run_dir)
    return dataclasses.replace(options, run_dir=run_dir), scenario, run_dir


def _resumed(asked: AnyOptions, program: str, arguments: Sequence[str] | None) -> tuple[AnyOptions, Scenario, Path]:
    """The options of the run to go on with; only its limits may be given anew."""
    assert asked.run_dir is not None
    path = asked.run_dir / "config.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{asked.run_dir} is no run to resume: it has no config.yaml")
    try:
        written: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        kept = {name: tuple(value) if isinstance(value, list) else value for name, value in written["options"].items()}
        job = written.get("job", "coverage")
        saved: AnyOptions | None = type(asked)(**kept) if job == asked.job else None  # type: ignore[arg-type]
        scenario = Scenario.from_dict(written["scenario"])
        if saved is not None:
            saved.check()
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not the configuration of a run: {error}") from None
    if saved is None:
        raise ValueError(f"{asked.run_dir} is a run of the job {job}; {asked.job} cannot go on with it")
    options = asked if arguments is None else parse(type(asked), program, arguments, default=saved)
    options.check()
    for field in dataclasses.fields(options):
        was, now = getattr(saved, field.name), getattr(options, field.name)
        if field.name not in LIMITS and was != now:
            name = field.name.replace("_", "-")
            raise ValueError(f"--{name} is {now}, but the run in {asked.run_dir} has {was}; it cannot be changed")
    return (with_limits(options) if isinstance(options, Options) else options), scenario, asked.run_dir
