"""What a scene is: every parameter with its unit, checked when it is made; presets by name; YAML in and out."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from envs.files import write_text

SCENES = Path(__file__).parent / "scenes"

Area = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A directional sensor network and its targets in a square arena.

    Lengths are in arena units, angles in degrees (counter-clockwise, 0 along +x), times in seconds.
    The defaults are the coordinator's scene of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    Raises ``ValueError`` for a value out of its range and ``TypeError`` for one of another type; both
    name the parameter, the value and what is allowed.
    """

    name: str = "custom"
    num_sensors: int = 4
    """n, how many sensors stand in the arena; 1 or more."""
    num_targets: int = 5
    """m, how many targets walk about; 1 or more."""
    arena: float = 1250.0
    """Half the side of the arena: targets stay in [-arena, arena]^2; over 0."""
    sensing_range: float = 800.0
    """A target farther away than this is not seen; over 0."""
    field_of_view: float = 90.0
    """Full opening angle, degrees; a target is in view if strictly within half of it; over 0, to 360 (all round)."""
    turn: float = 5.0
    """How far a sensor turns in one sub-step, degrees; over 0, to 180."""
    sensor_areas: tuple[Area, ...] = (
        (250, 750, 250, 750),
        (250, 750, -750, -250),
        (-1250, -750, -250, 250),
        (-750, -250, 250, 750),
        (750, 1250, -250, 250),
        (-750, -250, -750, -250),
    )
    """(x low, x high, y low, y high) of the areas in which sensors stand; the first n are dealt out at random."""
    target_area: Area = (-1000, 1000, -1000, 1000)
    """(x low, x high, y low, y high) of the area in which targets start."""
    start_heading: str = "random"
    """`random`: whole degrees in [-180, 180]; `target`: sensor i faces target i (modulo m)."""
    time_step: float = 0.13
    """Seconds that one move of the targets lasts; over 0."""
    min_speed: float = 50.0
    """Lowest speed of a target, units per second; 0 or more."""
    max_speed: float = 100.0
    """Speeds are whole numbers from min_speed up to, but not including, this; over min_speed."""
    speed_noise: float = 0.2
    """A move is longer by up to this share, drawn anew for every move; 0 or more."""
    goal_radius: float = 5.0
    """A goal nearer than this is reached, and the target takes a new one; 0 or more."""
    stuck_distance: float = 10.0
    """A target nearer than this to one of its two previous places takes a new goal; 0 or more."""
    goal_patience: int = 100
    """A target takes a new goal after more moves than this; 1 or more."""
    extra_move_every: int = 10
    """The targets make one extra move before the first of every so many sub-steps (0: never)."""
    distance_scale: float = 2000.0
    """The distance that the observation feature `distance` shows as 1; over 0."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _typed(field.name, field.type, getattr(self, field.name)))
        check = self._check
        check("num_sensors", self.num_sensors >= 1, "1 or more")
        check("num_targets", self.num_targets >= 1, "1 or more")
        check("arena", self.arena > 0, "over 0")
        check("sensing_range", self.sensing_range > 0, "over 0")
        check("field_of_view", 0 < self.field_of_view <= 360, "over 0 and at most 360 degrees")
        check("turn", 0 < self.turn <= 180, "over 0 and at most 180 degrees")
        check(
            "sensor_areas",
            len(self.sensor_areas) >= self.num_sensors,
            f"at least one area for each of the {self.num_sensors} sensors",
        )
        for area in (*self.sensor_areas, self.target_area):
            x_low, x_high, y_low, y_high = area
            if not (-self.arena <= x_low <= x_high <= self.arena and -self.arena <= y_low <= y_high <= self.arena):
                raise ValueError(
                    f"area {list(area)} must be [x low, x high, y low, y high] inside the arena of +-{self.arena:g}"
                )
        check("start_heading", self.start_heading in ("random", "target"), "random or target")
        check("time_step", self.time_step > 0, "over 0")
        check("min_speed", self.min_speed >= 0, "0 or more")
        check("max_speed", self.max_speed > self.min_speed, f"over min_speed ({self.min_speed:g})")
        for name in ("speed_noise", "goal_radius", "stuck_distance"):
            check(name, getattr(self, name) >= 0, "0 or more")
        check("goal_patience", self.goal_patience >= 1, "1 or more")
        check("extra_move_every", self.extra_move_every >= 0, "0 or more")
        check("distance_scale", self.distance_scale > 0, "over 0")

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            value = getattr(self, name)
            shown = list(map(list, value)) if isinstance(value, tuple) else value
            raise ValueError(f"scenario {self.name!r}: {name} is {shown!r}; it must be {allowed}")

    @property
    def top_speed(self) -> float:
        """The fastest that a target ever moves, units per second."""
        return self.max_speed * (1.0 + self.speed_noise)

    def replace(self, **changes: Any) -> Scenario:
        """This scenario with some parameters changed (and checked again)."""
        _refuse_unknown(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The parameters as plain numbers, strings and lists."""
        plain = dataclasses.asdict(self)
        plain["sensor_areas"] = [list(area) for area in self.sensor_areas]
        plain["target_area"] = list(self.target_area)
        return plain

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Scenario:
        """The scenario with these parameters; an unknown one is a ``ValueError`` that lists the known."""
        _refuse_unknown(parameters)
        return cls(**parameters)

    def save(self, path: str | Path) -> None:
        """Write the scenario as YAML."""
        write_text(path, yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None))


def presets() -> list[str]:
    """The names of the scenarios that come with the package."""
    return sorted(path.stem for path in SCENES.glob("*.yaml"))


def load_scenario(scenario: Scenario | str | Path) -> Scenario:
    """The scenario that `scenario` names.

    Args:
        scenario: a :class:`Scenario` (returned as it is), a preset's name, a preset's name with sizes
            (``hit-mac-6x9``: 6 sensors, 9 targets), or the path of a YAML file.

    Raises:
        ValueError: the name is unknown (the known ones are listed), or the file is not a scenario.
        FileNotFoundError: a path to a YAML file that is not there.
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
        return _read(SCENES / f"{sized[1]}.yaml").replace(
            name=name, num_sensors=int(sized[2]), num_targets=int(sized[3])
        )
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    raise ValueError(
        f"unknown scenario {name!r}: known are {', '.join(presets())}, "
        f"each also with sizes as in {presets()[0]}-6x9, and paths of YAML files"
    )


def _read(path: Path) -> Scenario:
    try:
        parameters = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None
    if not isinstance(parameters, dict):
        raise ValueError(f"{path} is not a scenario: it must hold a mapping of parameters")
    try:
        return Scenario.from_dict({"name": path.stem, **parameters})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None


def _refuse_unknown(parameters: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(Scenario)]
    unknown = [str(name) for name in parameters if name not in known]
    if unknown:
        raise ValueError(f"unknown scenario parameter {', '.join(unknown)}: known are {', '.join(known)}")


def _typed(name: str, kind: Any, value: Any) -> Any:
    """`value` as the field's type, or a TypeError; numbers must be finite."""
    if kind == "str":
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}; it must be a string")
        return value
    if kind == "tuple[Area, ...]":
        if not isinstance(value, list | tuple):
            raise TypeError(f"{name} is {value!r}; it must be a list of areas [x low, x high, y low, y high]")
        return tuple(_typed(name, "Area", area) for area in value)
    if kind == "Area":
        if not isinstance(value, list | tuple) or len(value) != 4:
            raise TypeError(f"{name} holds {value!r}; an area is [x low, x high, y low, y high]")
        return tuple(_typed(name, "float", number) for number in value)
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise TypeError(f"{name} is {value!r}; it must be a finite number")
    if kind == "int":
        if number != int(number):
            raise TypeError(f"{name} is {value!r}; it must be a whole number")
        return int(number)
    return float(number)
