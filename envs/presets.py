"""Scenarios by name: the presets of this package, and files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hitmac.envs.files import parse_yaml, read_text
from hitmac.envs.scenario import FILES, Scenario
from hitmac.envs.validation import did_you_mean, plain

SCENES = Path(__file__).parent / "scenes"


def presets() -> list[str]:
    """Return the names of the scenarios of this package."""
    return sorted(path.stem for path in SCENES.glob("*.yaml"))


def load_scenario(scenario: Scenario | str | Path) -> Scenario:
    """Return the scenario that `scenario` names.

    Args:
        scenario: a :class:`Scenario` (returned as it is), a preset's name, a preset's name with sizes
            (``hit-mac-6x9``: 6 sensors, 9 targets; a city grows with its sensors), or the path of a YAML file. The
            directory or ``config.yaml`` of a training run, or a checkpoint's directory, stands for the scenario of the
            training.

    Raises:
        ValueError: an unknown name (the message lists the known), or a file that is not a scenario.
        FileNotFoundError: the YAML file does not exist.
    """
    if isinstance(scenario, Scenario):
        return scenario
    if not isinstance(scenario, str | Path):
        raise TypeError(f"scenario is {scenario!r}; it must be a Scenario, a preset's name or a YAML file's path")
    name = str(scenario)
    if name in presets():
        return _read(SCENES / f"{name}.yaml")
    sized = re.fullmatch(r"(.+)-(\d+)x(\d+)", name)
    if sized and sized[1] in presets():
        preset = _read(SCENES / f"{sized[1]}.yaml")
        n, m = int(sized[2]), int(sized[3])
        return preset.replace(name=name, num_sensors=n, num_targets=m, **_crossings_for(preset, n))
    if name.endswith((".yaml", ".yml", ".json")):
        return _read(Path(name))
    for file in ("config.yaml", "config.json", "checkpoint/config.json"):
        if (Path(name) / file).is_file():
            return _read(Path(name) / file)
    raise ValueError(
        f"unknown scenario {name!r}{did_you_mean(sized[1] if sized else name, presets())}: known are "
        f"{', '.join(presets())}, each also with sizes as in hit-mac-6x9, paths of YAML files, and runs"
    )


def with_settings(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    """Return the scenario with other parameters, given as texts such as ``knowledge=shared`` with values in YAML.

    Its name lists them.

    Raises:
        ValueError: a text without a name or a value, a parameter given twice, an unknown one, or a value out of range.
        TypeError: a value of another type.
    """
    changes = {}
    for text in settings:
        name, _, value = text.partition("=")
        if not (name and value) or name in changes:
            raise ValueError(f"{text!r} must be NAME=VALUE, and each name given once")
        try:
            changes[name] = parse_yaml(value)
        except yaml.YAMLError as error:
            raise ValueError(f"{text} is not YAML: {' '.join(str(error).split())}") from None
    return Scenario.from_dict({**scenario.to_dict(), "name": ", ".join([scenario.name, *settings]), **changes})


def portable(scenario: Scenario, folder: str | Path) -> dict[str, Any]:
    """Return a scenario's parameters with paths relative to a folder, so that files are found where all have moved."""
    folder = Path(folder).absolute()

    def relative(path: Path) -> str:  # unless they have only the root in common
        return os.path.relpath(path, folder) if path.parts[:2] == folder.parts[:2] else str(path)

    return _with_paths(scenario.to_dict(), relative)


def from_portable(parameters: Mapping[str, Any], folder: str | Path) -> Scenario:
    """Return the scenario of :func:`portable` parameters, which were read from a folder.

    Where the folder has moved without the files, those at the same place below the current directory are taken.
    """

    def found(path: Path) -> str:
        place = os.path.abspath(Path(folder, path))
        here = os.path.abspath(Path(*(part for part in path.parts if part != "..")))
        return here if os.path.isfile(here) and not os.path.isfile(place) else place

    return Scenario.from_dict(_with_paths(parameters, found) if isinstance(parameters, Mapping) else parameters)


def _with_paths(parameters: Mapping[str, Any], place: Callable[[Path], str]) -> dict[str, Any]:
    """Return a scenario's parameters with the paths of its files as `place` gives them."""
    paths = {name: plain(whole(name, parameters[name], place)) for name, whole in FILES.items() if name in parameters}
    return {**parameters, **paths}


def _crossings_for(city: Scenario, num_sensors: int) -> dict[str, Any]:
    """Return the parameters of a square city with a crossing for each sensor, of the same streets and blocks as `city`.

    Any other scenario keeps its arena.
    """
    if city.placement != "crossings":
        return {}
    count = max(math.ceil(math.sqrt(num_sensors)) - 1, 1)
    block = (2 * city.extent[0] - city.street_width) / city.blocks[1]  # and a street
    half = (count * block + city.street_width) / 2
    return {"blocks": (count, count), "arena": half, "target_area": (-half, half, -half, half)}


def _read(path: Path) -> Scenario:
    kind, load = ("JSON", json.loads) if path.suffix == ".json" else ("YAML", parse_yaml)
    try:
        parameters = load(read_text(path))
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} is not a {kind} file: {' '.join(str(error).split())}") from None
    if isinstance(parameters, dict):
        parameters = parameters.get("scenario", parameters)  # of a run or a checkpoint
    if not isinstance(parameters, dict):
        raise ValueError(f"{path} is not a scenario: it must hold a mapping of parameters")
    try:
        return from_portable({"name": path.stem, **parameters}, path.parent)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
