"""Scenarios: all parameters of a scene with units and range checks, presets by name, YAML files."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from envs.files import parse_yaml, write_text

SCENES = Path(__file__).parent / "scenes"

Area = tuple[float, float, float, float]
Disc = tuple[float, float, float]
Wall = tuple[float, float, float, float]

PLACEMENTS = ("areas", "grid", "random")
"""Placements of the sensors."""

WALKS = ("goals", "random", "bounce", "still", "evade")
"""Walks of the targets."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Parameters of a directional sensor network and its targets in a square arena.

    Lengths are in arena units, angles in degrees (counter-clockwise, 0 along +x), times in seconds.
    The defaults are the coordinator's scene of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    Raises ``ValueError`` for a value out of its range and ``TypeError`` for a value of another type. Both messages name
    the parameter, the value and what is allowed.
    """

    name: str = "custom"
    num_sensors: int = 4
    """n, number of sensors; 1 or more."""
    num_targets: int = 5
    """m, number of targets; 1 or more."""
    min_sensors: int = 0
    """Fewest sensors of an episode, whose number is drawn from min_sensors to num_sensors; 0: always num_sensors."""
    min_targets: int = 0
    """Fewest targets of an episode, whose number is drawn from min_targets to num_targets; 0: always num_targets."""
    arena: float = 1250.0
    """Half the side of the arena: targets stay in [-arena, arena]^2; over 0."""
    whole_numbers: bool = True
    """Draw whole coordinates, headings and speeds, as in HiT-MAC; false: real numbers."""

    sensing_range: float | tuple[float, ...] = 800.0
    """Largest distance at which a sensor sees a target; over 0. One number, or one for each sensor."""
    field_of_view: float | tuple[float, ...] = 90.0
    """Full opening angle, degrees; a target is in view if strictly within half of it; over 0, to 360 (all round).
    One number, or one for each sensor."""
    turn: float | tuple[float, ...] = 5.0
    """Angle that a sensor turns in one sub-step, degrees; over 0, to 180. One number, or one for each sensor."""
    zoom: tuple[float, ...] = ()
    """Narrowest and widest field of view of zooming lenses, degrees; empty: lenses do not zoom. The area of the view
    stays constant, so that a narrower view reaches farther."""
    zoom_step: float = 10.0
    """Change of the field of view in one sub-step of zooming, degrees; over 0."""
    failure_rate: float = 0.0
    """Probability that a working sensor fails in a sub-step; it then neither sees nor turns; 0 to 1."""
    recovery_rate: float = 0.0
    """Probability that a failed sensor recovers in a sub-step; 0 to 1."""
    position_noise: float = 0.0
    """Standard deviation, in each axis, of the error of a target's observed position; 0 or more."""
    missed_detections: float = 0.0
    """Probability that a sensor misses a target that it sees, in one observation; 0 to 1."""
    placement: str = "areas"
    """Placement of the sensors: `areas`: in those of sensor_areas; `grid`: in the middle of n random cells of a square
    grid over the arena; `random`: anywhere outside the discs, at least `spacing` apart."""
    sensor_areas: tuple[Area, ...] = (
        (250, 750, 250, 750),
        (250, 750, -750, -250),
        (-1250, -750, -250, 250),
        (-750, -250, 250, 750),
        (750, 1250, -250, 250),
        (-750, -250, -750, -250),
    )
    """(x low, x high, y low, y high) of the areas of the sensors; the first n are assigned to the sensors at random."""
    grid: int = 10
    """Cells along a side of the grid; 1 or more."""
    spacing: float = 0.0
    """Least distance between sensors placed at random; 0 or more."""
    start_heading: str = "random"
    """Initial headings: `random`: uniform in [-180, 180] degrees; `target`: sensor i faces target i (modulo m)."""

    target_area: Area = (-1000, 1000, -1000, 1000)
    """(x low, x high, y low, y high) of the area in which targets start and return."""
    walk: str = "goals"
    """Walk of the targets: `goals`: HiT-MAC's, from goal to goal; `random`: every move in a new direction; `bounce`:
    straight ahead, reflected at the border, swerving by `wander`; `still`: no moves; `evade`: as `bounce`, and out of
    the view of a sensor that sees the target."""
    wander: float = 0.0
    """Largest swerve of a `bounce` or `evade` target in a move, degrees to either side; 0 to 180."""
    time_step: float = 0.13
    """Duration of one move of the targets, seconds; over 0."""
    min_speed: float = 50.0
    """Lowest speed of a target, units per second; 0 or more."""
    max_speed: float = 100.0
    """Upper limit of speeds, units per second, which are drawn from [min_speed, max_speed); over min_speed."""
    speed_noise: float = 0.2
    """Largest relative increase of a move's length, drawn for every move; 0 or more."""
    goal_radius: float = 5.0
    """Distance below which a goal is reached, and the target takes a new one; 0 or more."""
    stuck_distance: float = 10.0
    """Distance to one of its two previous positions below which a target takes a new goal; 0 or more."""
    goal_patience: int = 100
    """Most moves towards one goal, after which the target takes a new one; 1 or more."""
    extra_move_every: int = 10
    """Sub-steps between extra moves of the targets, the first before sub-step 0, in all tasks; 0: no extra moves."""
    leave_rate: float = 0.0
    """Probability that a target leaves in a sub-step; a target that has left does not count; 0 to 1."""
    return_rate: float = 0.0
    """Probability that a target that has left returns in a sub-step, somewhere in target_area; 0 to 1."""

    discs: tuple[Disc, ...] = ()
    """(x, y, radius) of round obstacles, which block the view and not the targets."""
    random_discs: int = 0
    """Number of further discs at random positions, drawn for every episode, none over a sensor; 0 or more."""
    disc_radius: tuple[float, ...] = (25.0, 100.0)
    """Lowest and highest radius of random discs; over 0, at most the arena."""
    walls: tuple[Wall, ...] = ()
    """(x1, y1, x2, y2) of straight walls, which block the view and not the targets."""

    distance_scale: float = 2000.0
    """Distance at which the observation feature `distance` is 1; over 0."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _typed(field.name, field.type, getattr(self, field.name)))
        check = self._check
        check("num_sensors", self.num_sensors >= 1, "1 or more")
        check("num_targets", self.num_targets >= 1, "1 or more")
        check("min_sensors", 0 <= self.min_sensors <= self.num_sensors, f"0 to num_sensors ({self.num_sensors})")
        check("min_targets", 0 <= self.min_targets <= self.num_targets, f"0 to num_targets ({self.num_targets})")
        for name in ("arena", "time_step", "zoom_step", "distance_scale"):
            check(name, getattr(self, name) > 0, "over 0")
        for name, highest in (("sensing_range", math.inf), ("field_of_view", 360), ("turn", 180)):
            given = getattr(self, name)
            check(
                name,
                not isinstance(given, tuple) or len(given) == self.num_sensors,
                f"one number, or one for each of the {self.num_sensors} sensors",
            )
            allowed = "over 0" if highest == math.inf else f"over 0 and at most {highest} degrees"
            numbers = given if isinstance(given, tuple) else (given,)
            check(name, all(0 < number <= highest for number in numbers), allowed)
        check(
            "zoom",
            not self.zoom or (len(self.zoom) == 2 and 0 < self.zoom[0] <= self.zoom[1] <= 360),
            "empty, or the narrowest and the widest field of view, over 0 and at most 360 degrees",
        )
        if self.zoom:
            views = self.of_each_sensor("field_of_view")
            inside = (self.zoom[0] <= views).all() and (views <= self.zoom[1]).all()
            check("field_of_view", bool(inside), f"within zoom ({self.zoom[0]:g} to {self.zoom[1]:g} degrees)")
        for name in ("failure_rate", "recovery_rate", "leave_rate", "return_rate", "missed_detections"):
            check(name, 0 <= getattr(self, name) <= 1, "0 to 1")
        for name in ("position_noise", "spacing", "min_speed", "speed_noise", "goal_radius", "stuck_distance"):
            check(name, getattr(self, name) >= 0, "0 or more")
        check("placement", self.placement in PLACEMENTS, f"one of {', '.join(PLACEMENTS)}")
        if self.placement == "areas":
            check(
                "sensor_areas",
                len(self.sensor_areas) >= self.num_sensors,
                f"at least one area for each of the {self.num_sensors} sensors",
            )
        check("grid", self.grid >= 1, "1 or more")
        if self.placement == "grid":
            check(
                "grid",
                self.grid**2 >= self.num_sensors,
                f"large enough for one cell for each of {self.num_sensors} sensors",
            )
        for area in (*self.sensor_areas, self.target_area) if self.placement == "areas" else (self.target_area,):
            x_low, x_high, y_low, y_high = area
            if not (-self.arena <= x_low <= x_high <= self.arena and -self.arena <= y_low <= y_high <= self.arena):
                raise ValueError(
                    f"area {list(area)} must be [x low, x high, y low, y high] inside the arena of +-{self.arena:g}"
                )
        check("start_heading", self.start_heading in ("random", "target"), "random or target")
        check("walk", self.walk in WALKS, f"one of {', '.join(WALKS)}")
        check("wander", 0 <= self.wander <= 180, "0 to 180 degrees")
        check("max_speed", self.max_speed > self.min_speed, f"over min_speed ({self.min_speed:g})")
        check("goal_patience", self.goal_patience >= 1, "1 or more")
        check("extra_move_every", self.extra_move_every >= 0, "0 or more")
        check("discs", all(radius > 0 for *_, radius in self.discs), "[x, y, radius] with a radius over 0")
        check("random_discs", self.random_discs >= 0, "0 or more")
        check(
            "disc_radius",
            len(self.disc_radius) == 2 and 0 < self.disc_radius[0] <= self.disc_radius[1] <= self.arena,
            f"the lowest and the highest radius, over 0 and at most the arena ({self.arena:g})",
        )
        # Positions are drawn until one is free; a quarter of the arena must be free, so that this ends soon.
        most = 3 * self.arena**2
        if self.placement == "random":
            taken = math.pi * ((self.num_sensors - 1) * self.spacing**2 + sum(radius**2 for *_, radius in self.discs))
            check("spacing", taken <= most, f"smaller, since {self.num_sensors} sensors would otherwise fill the arena")
        if self.random_discs:
            taken = math.pi * self.num_sensors * self.disc_radius[1] ** 2
            check("disc_radius", taken <= most, f"smaller, since no disc may cover any of {self.num_sensors} sensors")

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise ValueError(f"scenario {self.name!r}: {name} is {_plain(getattr(self, name))!r}; it must be {allowed}")

    @property
    def top_speed(self) -> float:
        """Highest speed of a target, units per second."""
        return self.max_speed * (1.0 + self.speed_noise)

    @property
    def varies(self) -> bool:
        """True if sensors or targets can be absent: fewer in an episode, failed, or gone."""
        return self.min_sensors > 0 or self.min_targets > 0 or self.failure_rate > 0 or self.leave_rate > 0

    def replace(self, **changes: Any) -> Scenario:
        """Return a copy of this scenario with some parameters changed (and checked again)."""
        _refuse_unknown(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain numbers, strings and lists."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def of_each_sensor(self, name: str) -> np.ndarray:
        """Return `sensing_range`, `field_of_view` or `turn` of every sensor, (n,)."""
        return np.broadcast_to(np.asarray(getattr(self, name), np.float64), (self.num_sensors,)).copy()

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Scenario:
        """Make a scenario from its parameters; an unknown one raises a ``ValueError`` that lists the known."""
        _refuse_unknown(parameters)
        return cls(**parameters)

    def save(self, path: str | Path) -> None:
        """Write the scenario as YAML."""
        write_text(path, yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None))


def presets() -> list[str]:
    """Return the names of the scenarios of this package."""
    return sorted(path.stem for path in SCENES.glob("*.yaml"))


def load_scenario(scenario: Scenario | str | Path) -> Scenario:
    """Return the scenario that `scenario` names.

    Args:
        scenario: a :class:`Scenario` (returned as it is), a preset's name, a preset's name with sizes
            (``hit-mac-6x9``: 6 sensors, 9 targets), or the path of a YAML file. The directory or ``config.yaml`` of a
            training run, or a checkpoint's directory, stands for the scenario of the training.

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
        return _read(SCENES / f"{sized[1]}.yaml").replace(
            name=name, num_sensors=int(sized[2]), num_targets=int(sized[3])
        )
    if name.endswith((".yaml", ".yml", ".json")):
        return _read(Path(name))
    for file in ("config.yaml", "config.json", "checkpoint/config.json"):
        if (Path(name) / file).is_file():
            return _read(Path(name) / file)
    raise ValueError(
        f"unknown scenario {name!r}: known are {', '.join(presets())}, "
        f"each also with sizes as in {presets()[0]}-6x9, paths of YAML files, and runs"
    )


def _read(path: Path) -> Scenario:
    kind, load = ("JSON", json.loads) if path.suffix == ".json" else ("YAML", parse_yaml)
    try:
        parameters = load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a {kind} file: {' '.join(str(error).split())}") from None
    if isinstance(parameters, dict) and "scenario" in parameters:  # the configuration of a run or a checkpoint
        parameters = parameters["scenario"]
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
        close = difflib.get_close_matches(unknown[0], known, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"unknown scenario parameter {', '.join(unknown)}{hint}: known are {', '.join(known)}")


def _plain(value: Any) -> Any:
    """Convert tuples, also nested ones, to lists."""
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


_ROWS = {"Area": "[x low, x high, y low, y high]", "Disc": "[x, y, radius]", "Wall": "[x1, y1, x2, y2]"}


def _typed(name: str, kind: Any, value: Any) -> Any:
    """Convert `value` to the field's type, or raise TypeError; numbers must be finite."""
    several = isinstance(value, list | tuple | np.ndarray)
    if kind in ("str", "bool"):
        if not isinstance(value, str if kind == "str" else bool | np.bool_):
            raise TypeError(f"{name} is {value!r}; it must be {'a string' if kind == 'str' else 'true or false'}")
        return value if kind == "str" else bool(value)
    if kind in _ROWS:
        if not several or len(value) != _ROWS[kind].count(",") + 1:
            raise TypeError(f"{name} holds {value!r}; it must be {_ROWS[kind]}")
        return tuple(_typed(name, "float", number) for number in value)
    if kind.endswith(", ...]") and (several or not kind.startswith("float |")):
        one = kind.rpartition("[")[2].removesuffix(", ...]")
        if not several:
            raise TypeError(f"{name} is {value!r}; it must be a list of {_ROWS.get(one, 'numbers')}")
        return tuple(_typed(name, one, row) for row in value)
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise TypeError(f"{name} is {value!r}; it must be a finite number")
    if kind == "int":
        if number != int(number):
            raise TypeError(f"{name} is {value!r}; it must be a whole number")
        return int(number)
    return float(number)
