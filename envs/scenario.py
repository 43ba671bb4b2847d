"""Scenarios: all parameters of a scene with units and ranges, as YAML, and the presets of this package."""

import dataclasses
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hitmac.envs import validation
from hitmac.envs.files import dump_yaml, parse_yaml, read_text, write_text
from hitmac.envs.parts import (
    arena,
    cargo,
    detections,
    knowledge,
    lenses,
    motors,
    obstacles,
    rails,
    recordings,
    sensors,
    streets,
    tilt,
    values,
    walks,
)
from hitmac.envs.parts.arena import scaled
from hitmac.envs.parts.recordings import most_at_once
from hitmac.envs.parts.sensors import PLACEMENTS
from hitmac.envs.parts.walks import WALKS
from hitmac.envs.validation import Natural, Positive, plain

MOST_DEGREES = 1e9
"""Largest magnitude of a heading, degrees."""

_FILES = {"tracks", "past_tracks", "background"}


def _meanings(docs: Mapping[str, str | None]) -> str:
    """Return the first line of each docstring, after its name; ``python -OO`` leaves none."""
    lines = {name: text.splitlines()[0] for name, text in docs.items() if text}
    return ";".join(f" `{name}`: {line[0].lower()}{line[1:-1]}" for name, line in lines.items()) + "."


def parameter_table(kind: type) -> str:
    """Return a Markdown table of the fields of a dataclass: name, default, what is allowed, meaning."""
    docs, hints = validation.field_docs(kind), validation.field_types(kind)
    docs["placement"] += _meanings({name: place.__doc__ for name, place in PLACEMENTS.items()})
    docs["walk"] += _meanings({name: walk.about or walk.move.__doc__ for name, walk in WALKS.items()})
    rows = ["| parameter | default | allowed | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        default = plain(field.metadata.get(arena.IN_HIT_MAC, field.default))
        default = re.sub(r"\.0\b", "", json.dumps(default)) if not isinstance(default, str) else default
        if field.default is arena.LEFT_OUT:
            default += (
                f" if arena is {arena.HIT_MAC_ARENA:g}" if default == "true" else f" * arena / {arena.HIT_MAC_ARENA:g}"
            )
        rows.append(f"| `{field.name}` | {default} | {validation.allowed(hints[field.name])} | {docs[field.name]} |")
    return "\n".join(rows)


def decision_table() -> str:
    """Return a Markdown table of the decisions of a sensor: name, parameter of the scenario, meanings of 0, 1 and 2."""
    rows = [f"| `{name}` | `{one.parameter}` | {' | '.join(one.actions)} |" for name, one in DECISIONS.items()]
    return "\n".join(["| decision | with | 0 | 1 | 2 |", "|---|---|---|---|---|", *rows])


@dataclass(frozen=True, kw_only=True)
class Scenario(
    cargo.Parameters, values.Parameters, streets.Parameters, obstacles.Parameters, recordings.Parameters,
    walks.Parameters, knowledge.Parameters, detections.Parameters, rails.Parameters, tilt.Parameters,
    lenses.Parameters, motors.Parameters, sensors.Parameters,
):  # fmt: skip # a dataclass has the fields of its last base first
    """Parameters of a directional sensor network and its targets in an arena.

    Lengths are in arena units, angles in degrees (counter-clockwise, 0 along +x), times in seconds.
    The defaults are the coordinator's scene of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4). Default lengths,
    speeds and areas are in proportion to the arena, HiT-MAC's in its own arena of 1250. They are fixed when a scenario
    is made; :meth:`replace` keeps them.

    Raises ``ValueError`` for a value out of its range or too extreme to compute with, ``TypeError`` for another type;
    messages name the parameter, the value and the allowed values. Several errors are raised as one, with a line each.
    """

    background: str = ""
    """Picture of the whole arena, such as a floor plan, to draw under the scene in pictures and films; relative to the
    YAML file; empty: none."""

    distance_scale: Positive = scaled(2000.0)
    """Distance at which the observation feature `distance` is 1."""
    episode_steps: Natural = 0
    """Most sub-steps of an episode, in all tasks; 0: the task's default. With tracks, an episode starts at a
    random row that leaves as many to follow; 0: at the first."""

    def __post_init__(self) -> None:
        fields = {field.name: field.metadata.get(arena.IN_HIT_MAC) for field in dataclasses.fields(self)}
        left_out = {name: value for name, value in fields.items() if getattr(self, name) is arena.LEFT_OUT}
        vars(self).update(left_out)  # frozen: nothing is assigned
        if count := self.num_targets is arena.COUNTED:
            vars(self)["num_targets"] = fields["num_targets"]
        if isinstance(self.walk, str) and not self.walk:
            vars(self)["walk"] = "recorded" if self.tracks else "carry-greedy" if self.warehouses else "goals"
        wrong: dict[str, Exception] = {}
        for name in _FILES:
            try:
                vars(self).update(_with_paths({name: getattr(self, name)}, os.path.abspath))
            except TypeError as error:
                wrong[name] = error
        converted, invalid = validation.invalid_fields(self)
        vars(self).update(converted)
        invalid |= wrong
        if "arena" not in invalid and len(self.extent) != 2:
            words = "it must be one number, or [half the width, half the height]"
            invalid["arena"] = ValueError(f"arena is {plain(self.arena)}; {words}")
        if not invalid:
            vars(self).update({name: arena.grown(value, *self.extent) for name, value in left_out.items()})
            for name, fits in validation.broken_rules(self):
                words = f"{name} is {plain(getattr(self, name))!r}; it must be {fits}"
                invalid.setdefault(name, ValueError(words))
        validation.raise_together([type(error)(f"scenario {self.name!r}: {error}") for error in invalid.values()])
        if count and self.tracks:
            vars(self)["num_targets"] = most_at_once(self)

    @property
    def decisions(self) -> tuple[str, ...]:
        """Decisions of each sensor in a sub-step, in the order of an action; names out of :data:`DECISIONS`."""
        return tuple(name for name, decision in DECISIONS.items() if getattr(self, decision.parameter))

    def sub_steps_of(self, most: int) -> int:
        """Return `most` sub-steps, or :attr:`episode_steps` if that is fewer."""
        return min(most, self.episode_steps or most)

    @property
    def varies(self) -> bool:
        """True if sensors or targets can be absent: fewer in an episode, failed, or gone."""
        return any((self.min_sensors, self.min_targets, self.failure_rate, self.leave_rate, self.tracks))

    def replace(self, **changes: Any) -> Self:
        """Return a copy of this scenario with some parameters changed (and checked again).

        With other `tracks`, `num_targets` grows to their number, unless it is given.
        """
        other = self.from_dict({**vars(self), **changes})
        if changes.get("tracks") and "num_targets" not in changes:
            vars(other)["num_targets"] = max(self.num_targets, most_at_once(other))
        return other

    def with_turns(self) -> Self:
        """Return this scenario with the action `turn`."""
        return self if self.action == "turn" else self.replace(action="turn")

    def following(self, tracks: Sequence[str] = (), columns: str = "") -> Self:
        """Return a copy with other `tracks` and `columns`, if given; agents expect motion as in the present tracks."""
        changes: dict[str, Any] = {"columns": columns} if columns else {}
        if tracks:
            changes |= {"tracks": tracks, "past_tracks": self.past_tracks or self.tracks}
        return self.replace(**changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain numbers, strings and lists."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Self:
        """Make a scenario from its parameters; unknown names and wrong values are reported as one error."""
        if not isinstance(parameters, Mapping):
            raise TypeError(f"scenario is {validation.shortly(parameters)}; it must be a mapping of parameters")
        known = [field.name for field in dataclasses.fields(cls)]
        errors: list[Exception] = []
        if unknown := [name for name in parameters if name not in known]:
            errors.append(ValueError(f"unknown scenario parameter {validation.known_unless_meant(unknown, known)}"))
        with validation.collect(errors):
            scenario = cls(**{name: value for name, value in parameters.items() if name in known})
        validation.raise_together(errors)
        return scenario

    def save(self, path: str | Path) -> None:
        """Write the scenario as YAML."""
        write_text(path, dump_yaml(self.to_dict()))


PARTS: tuple[Any, ...] = tuple(sys.modules[part.__module__] for part in reversed(Scenario.__bases__))
"""Parts of a scene, see :mod:`hitmac.envs.parts`."""

DECISIONS: dict[str, arena.Decision] = {
    part.DECISION.name: part.DECISION for part in PARTS if hasattr(part, "DECISION")
}  # fmt: skip
"""Decisions of sensors by name, in the order of an action."""


Scenario.__doc__ = f"{inspect.getdoc(Scenario)}\n\n{parameter_table(Scenario)}\n"


SCENES = Path(__file__).parent / "scenes"


def presets() -> list[str]:
    """Return the names of the scenarios of this package."""
    return sorted(path.stem for path in SCENES.glob("*.yaml"))


def load_scenario(scenario: Scenario | Mapping[str, Any] | str | Path) -> Scenario:
    """Load a scenario.

    Args:
        scenario: a :class:`Scenario` (returned as it is), its parameters, as in a gymnasium ``EnvSpec`` in JSON, a
            preset's name, a preset's name with sizes (``hit-mac-6x9``: 6 sensors, 9 targets; a city grows with its
            sensors; ``mate-6v10-4``: 6 sensors, 10 targets, 4 discs), the path of a YAML file, or the directory of a
            training run or checkpoint, for the scenario of the training.

    Raises ``ValueError`` for an unknown name or a file that is not a scenario, ``FileNotFoundError`` for a missing one.
    """
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, Mapping):
        return Scenario.from_dict(scenario)
    if not isinstance(scenario, str | Path):
        raise TypeError(f"scenario is {scenario!r}; it must be a Scenario, a preset's name or a YAML file's path")
    name = str(scenario)
    if name in presets():
        return _read(SCENES / f"{name}.yaml")
    if game := re.fullmatch(r"mate-(\d+)v(\d+)-(\d+)", name):
        n, m, k = map(int, game.groups())
        preset = _read(SCENES / f"mate-{4 if n <= 4 else 8}v8-9.yaml")
        return preset.replace(name=name, num_sensors=n, num_targets=m, random_discs=k)
    sized = re.fullmatch(r"(.+)-(\d+)x(\d+)", name)
    if sized and sized[1] in presets():
        preset, n = _read(SCENES / f"{sized[1]}.yaml"), int(sized[2])
        changes: dict[str, Any] = {"name": name, "num_sensors": n, "num_targets": int(sized[3])}
        if preset.placement == "crossings":  # a square city of the same streets and blocks, a crossing for each sensor
            count = max(math.ceil(math.sqrt(n)) - 1, 1)
            block = (2 * preset.extent[0] - preset.street_width) / preset.blocks[1]  # and a street
            half = (count * block + preset.street_width) / 2
            changes |= {"blocks": (count, count), "arena": half, "target_area": (-half, half, -half, half)}
        return preset.replace(**changes)
    if name.endswith((".yaml", ".yml", ".json")):
        return _read(Path(name))
    for file in ("config.yaml", "config.json", "checkpoint/config.json"):
        if (Path(name) / file).is_file():
            return _read(Path(name) / file)
    raise ValueError(
        f"unknown scenario {name!r}{validation.did_you_mean(sized[1] if sized else name, presets())}: known are "
        f"{', '.join(presets())}, each also with sizes as in hit-mac-6x9, paths of YAML files, and runs"
    )


def with_settings(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    """Return the scenario with parameters changed by texts such as ``knowledge=shared``, which its new name lists.

    Raises ``ValueError`` or ``TypeError`` for a text of another form, an unknown name or a value out of range.
    """
    given = {"name": ", ".join([scenario.name, *settings])} | values_of(settings)
    return Scenario.from_dict(scenario.to_dict() | given)


def values_of(settings: Sequence[str]) -> dict[str, Any]:
    """Return the values by name of texts NAME=VALUE in YAML; raise ValueError for other texts and for a name twice."""
    values: dict[str, Any] = {}
    for text in settings:
        name, _, value = text.partition("=")
        if not (name and value) or name in values:
            raise ValueError(f"{text!r} must be NAME=VALUE, and each name given once")
        try:
            values[name] = parse_yaml(value)
        except ValueError as error:
            raise ValueError(f"{text} is not YAML: {error}") from None
    return values


def portable(scenario: Scenario, folder: str | Path) -> dict[str, Any]:
    """Return a scenario's parameters with paths relative to a folder, so that both can move together."""
    folder = Path(folder).absolute()

    def relative(path: Path) -> str:  # unless they have only the root in common
        return os.path.relpath(path, folder) if path.parts[:2] == folder.parts[:2] else str(path)

    found = _with_paths(scenario.to_dict(), relative)
    return {name: plain(value) for name, value in found.items()}


def from_portable(parameters: Mapping[str, Any], folder: str | Path) -> Scenario:
    """Make a scenario from :func:`portable` parameters in a folder."""

    def found(path: Path) -> str:
        place = os.path.abspath(Path(folder, path))
        here = os.path.abspath(Path(*(part for part in path.parts if part != "..")))  # the folder has moved alone
        return here if os.path.isfile(here) and not os.path.isfile(place) else place

    return Scenario.from_dict(_with_paths(parameters, found) if isinstance(parameters, Mapping) else parameters)


def _with_paths(parameters: Mapping[str, Any], place: Callable[[Path], str]) -> dict[str, Any]:
    """Return a scenario's parameters with `place` applied to the paths of its files."""
    found = dict(parameters)
    for name in found.keys() & _FILES:
        given = found[name]
        files: Any = [given] if isinstance(given, str | Path) else given if name != "background" else None
        valid = isinstance(files, list | tuple) and all(isinstance(file, str | Path) for file in files)
        if not valid or (name != "background" and "" in files):
            words = "the name of a file" + ", or a list of names" * (name != "background")
            raise TypeError(f"{name} is {validation.shortly(given)}; it must be {words}")
        paths = [place(Path(file)) for file in files if str(file)]
        found[name] = tuple(paths) if name != "background" else "".join(paths)
    return found


def _read(path: Path) -> Scenario:
    kind, load = ("JSON", json.loads) if path.suffix == ".json" else ("YAML", parse_yaml)
    try:
        parameters = load(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a {kind} file: {error}") from None
    if isinstance(parameters, dict):
        parameters = parameters.get("scenario", parameters)  # of a run or a checkpoint
    if not isinstance(parameters, dict):
        raise ValueError(f"{path} is not a scenario: it must hold a mapping of parameters")
    try:
        return from_portable({"name": path.stem, **parameters}, path.parent)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
