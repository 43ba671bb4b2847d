"""Scenarios: all parameters of a scene with units and ranges."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml

from hitmac.envs.deployment import KNOWLEDGE, walls_of
from hitmac.envs.files import whole_path, whole_paths, write_text
from hitmac.envs.kernels.episode import PLACEMENTS
from hitmac.envs.kernels.features import farthest, most_speed
from hitmac.envs.kernels.rails import limits_of, make_rails, outside, within
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.validation import (
    Choice,
    Count,
    Fraction,
    Natural,
    NotNegative,
    Positive,
    Range,
    Row,
    from_known,
    in_arena,
    invalid_fields,
    left_out,
    over,
    parameter_table,
    plain,
    raise_together,
    scaled,
)

LEAST, MOST = 1e-30, 1e30
"""Least and largest magnitude of a length, a speed, a time or a ratio of an observation."""

MOST_DEGREES = 1e9
"""Largest heading, degrees: of a larger one, too few decimals are left."""

_DIVISORS = ("sensing_range", "field_of_view", "turn_angle", "zoom", "max_speed", "time_step", "distance_scale")
_LENGTHS = (
    "rails", "rail_step", "rail_starts", "position_noise", "communication_range", "sensor_positions", "sensor_areas",
    "spacing", "target_area", "min_speed", "speed_noise", "goal_radius", "stuck_distance", "discs", "disc_radius",
    "walls", "zoom_step", "pan_limits",
)  # fmt: skip
_HEADINGS = ("sensor_headings",)


def too_large_or_small(scenario: Any, valid: Callable[..., bool]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a scenario that are too large or too small to compute with, and what they must be.

    `valid` tells whether all parameters of the given names are valid so far; only those are read.
    """
    if valid("arena") and not LEAST <= min(scenario.extent) <= max(scenario.extent) <= MOST:
        yield "arena", f"{LEAST:g} to {MOST:g}"  # what grows with it is then wrong too
        return
    wrong = False
    limits = dict.fromkeys(_DIVISORS, (LEAST, MOST)) | dict.fromkeys(_LENGTHS, (0.0, MOST))
    for name, (least, most) in (limits | dict.fromkeys(_HEADINGS, (0.0, MOST_DEGREES))).items():
        sizes = np.abs(_numbers(getattr(scenario, name))) if valid(name) else np.zeros(0)
        if ((sizes < least) | (sizes > most)).any():
            wrong = True
            yield name, f"{least:g} to {most:g}" if least else f"at most {most:g} in magnitude"
    if wrong or not valid("arena", *limits):
        return
    if max(farthest(scenario), np.max(_numbers(scenario.sensing_range), initial=0.0) / scenario.distance_scale) > MOST:
        yield "distance_scale", f"larger: no range or distance may be over {MOST:g} times as much"
    if most_speed(scenario) > MOST:
        yield "position_noise", f"smaller: no observed speed may be over {MOST:g} times the top speed"


def _numbers(value: Any) -> np.ndarray:
    """Return all numbers of nested tuples, one after the other."""
    return np.fromiter(_flat(value), np.float64)


def _flat(value: Any) -> Iterator[float]:
    if not isinstance(value, tuple):
        yield value
        return
    for one in value:
        yield from _flat(one)


MOST_TOLD = 32_767
"""Most sensors of which a sensor can count those that report to see a target."""


def contradictions(scenario: Any, valid: Callable[..., bool]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a :class:`~hitmac.envs.scenario.Scenario` that do not fit the others, and what fits.

    `valid` tells whether all parameters of the given names are valid so far; only those are compared.
    """
    n = scenario.num_sensors
    if valid("arena") and isinstance(scenario.arena, tuple) and len(scenario.arena) != 2:
        yield "arena", "one number, or [half the width, half the height]"
        return
    if wrong := list(too_large_or_small(scenario, valid)):
        yield from wrong
        return
    half_width, half_height = scenario.extent if valid("arena") else (math.inf, math.inf)
    if valid("num_sensors", "knowledge") and scenario.knowledge != "full" and n > MOST_TOLD:
        yield "num_sensors", f"at most {MOST_TOLD}, unless knowledge is full"
    for name, most in (("min_sensors", "num_sensors"), ("min_targets", "num_targets")):
        if valid(name, most) and getattr(scenario, name) > getattr(scenario, most):
            yield name, f"0 to {most} ({getattr(scenario, most)})"
    for name in ("sensing_range", "field_of_view", "turn_angle"):
        if (
            valid(name, "num_sensors")
            and isinstance(getattr(scenario, name), tuple)
            and len(getattr(scenario, name)) != n
        ):
            yield name, f"one number, or one for each of the {n} sensors"
    if valid("zoom") and scenario.zoom and not (len(scenario.zoom) == 2 and scenario.zoom[0] <= scenario.zoom[1]):
        yield "zoom", "empty, or the narrowest and the widest field of view, over 0 and at most 360 degrees"
    if valid("zoom", "field_of_view", "num_sensors") and scenario.zoom:
        views = np.array(scenario.field_of_view)
        if views.min() < scenario.zoom[0] or views.max() > scenario.zoom[1]:
            yield "field_of_view", f"within zoom ({scenario.zoom[0]:g} to {scenario.zoom[1]:g} degrees)"
    in_areas = valid("placement") and scenario.placement == "areas"
    if in_areas and valid("sensor_areas", "num_sensors") and len(scenario.sensor_areas) < n:
        yield "sensor_areas", f"at least one area for each of the {n} sensors"
    if valid("placement", "grid", "num_sensors") and scenario.placement == "grid" and scenario.grid**2 < n:
        yield "grid", f"large enough for one cell for each of {n} sensors"
    areas = {"target_area": (scenario.target_area,), "sensor_areas": scenario.sensor_areas if in_areas else ()}
    for name in areas:
        if valid(name, "arena") and not all(
            -half_width <= a <= b <= half_width and -half_height <= c <= d <= half_height for a, b, c, d in areas[name]
        ):
            yield name, f"[x low, x high, y low, y high] inside the arena of {scenario.arena_words}"
    if valid("max_speed", "min_speed") and scenario.max_speed <= scenario.min_speed:
        yield "max_speed", f"over min_speed ({scenario.min_speed:g})"
    if valid("discs") and any(radius <= 0 for *_, radius in scenario.discs):
        yield "discs", "[x, y, radius] with a radius over 0"
    radii = scenario.disc_radius
    shorter = min(half_width, half_height)
    random_discs = valid("random_discs") and scenario.random_discs > 0
    longest = shorter if random_discs else math.inf
    fits = valid("disc_radius", "arena") and len(radii) == 2 and radii[0] <= radii[1] <= longest
    if valid("disc_radius", "arena") and not fits:
        yield "disc_radius", f"the lowest and the highest radius, over 0 and at most the arena ({shorter:g})"
    # Positions are drawn until one is free; a quarter of the arena must be free, so that this ends soon.
    if valid("placement", "spacing", "discs", "arena", "num_sensors") and scenario.placement == "random":
        taken = math.pi * ((n - 1) * scenario.spacing**2 + sum(radius**2 for *_, radius in scenario.discs))
        if taken > 3 * half_width * half_height:
            yield "spacing", f"smaller, since {n} sensors would otherwise fill the arena"
    if random_discs and fits and valid("num_sensors"):
        taken = math.pi * n * scenario.disc_radius[1] ** 2
        if taken > 3 * half_width * half_height:
            yield "disc_radius", f"smaller, since no disc may cover any of {n} sensors"
    if valid("rails", "rail_starts", "arena", "num_sensors", "placement"):
        yield from _contradictions_of_rails(scenario)
    yield from _contradictions_of_streets(scenario, valid)
    yield from _contradictions_of_mounts(scenario, valid)
    for name in ("min_targets", "leave_rate"):
        if valid("tracks", name) and scenario.tracks and getattr(scenario, name) > 0:
            yield name, "0 with tracks, which say which targets are there"


def _contradictions_of_streets(scenario: Any, valid: Callable[..., bool]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a city that do not fit the others, each with what it must be."""
    if not valid("blocks"):
        return
    if len(scenario.blocks) not in (0, 2):
        yield "blocks", "empty, or [rows, columns]"
        return
    for name, value in (("walk", "streets"), ("placement", "crossings")):
        if valid(name) and getattr(scenario, name) == value and not scenario.blocks:
            yield name, f"{value} only with blocks, between which the streets are"
    if not scenario.blocks:
        return
    rows, columns = scenario.blocks
    if valid("street_width", "arena"):
        half_width, half_height = scenario.extent
        widest = min(2 * half_width / (columns + 1), 2 * half_height / (rows + 1))
        if scenario.street_width >= widest:
            yield "street_width", f"under {widest:g}, since {rows} rows and {columns} columns of blocks are between"
    crossings = (rows + 1) * (columns + 1)
    at_crossings = valid("placement", "num_sensors") and scenario.placement == "crossings"
    if at_crossings and crossings < scenario.num_sensors:
        yield "blocks", f"enough for a crossing for each of the {scenario.num_sensors} sensors; there are {crossings}"


def _contradictions_of_mounts(scenario: Any, valid: Callable[..., bool]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of mounted sensors that do not fit the others, each with what it must be."""
    if not valid("num_sensors"):
        return
    n = scenario.num_sensors
    if valid("sensor_positions", "placement", "arena"):
        half_width, half_height = scenario.extent
        inside = all(abs(x) <= half_width and abs(y) <= half_height for x, y in scenario.sensor_positions)
        if (scenario.placement == "fixed") != bool(scenario.sensor_positions):
            yield "placement", "fixed if and only if sensor_positions are given"
        elif scenario.sensor_positions and not (len(scenario.sensor_positions) == n and inside):
            yield "sensor_positions", f"[x, y] of each of the {n} sensors, inside the arena of {scenario.arena_words}"
    limits = valid("pan_limits") and len(scenario.pan_limits) in (0, 1, n)
    limits = limits and all(low <= high for low, high in scenario.pan_limits)
    if valid("pan_limits") and not limits:
        yield "pan_limits", f"empty, or [low, high] with low at most high, one pair or one for each of the {n} sensors"
    if valid("sensor_headings") and scenario.sensor_headings:
        if len(scenario.sensor_headings) != n:
            yield "sensor_headings", f"empty, or one for each of the {n} sensors"
        elif limits:
            limit = limits_of(scenario)
            if outside(within(np.array(scenario.sensor_headings), limit), limit).any():
                yield "sensor_headings", f"within pan_limits ({plain(scenario.pan_limits)})"


def _contradictions_of_rails(scenario: Any) -> Iterator[tuple[str, str]]:
    """Yield the parameters of rails that do not fit the others, each with what it must be."""
    if (scenario.placement == "rails") != bool(scenario.rails):
        yield "placement", "rails if and only if rails are given"
    if not scenario.rails:
        return
    n, (half_width, half_height) = scenario.num_sensors, scenario.extent
    if len(scenario.rails) not in (1, n):
        yield "rails", f"empty, one rail, or one for each of the {n} sensors"
    elif not all(scenario.rails) or any(one == other for rail in scenario.rails for one, other in pairwise(rail)):
        yield "rails", "lists of corners [x, y], at least one each, and no two in a row the same"
    elif not all(abs(x) <= half_width and abs(y) <= half_height for rail in scenario.rails for x, y in rail):
        yield "rails", f"inside the arena of {scenario.arena_words}"
    elif scenario.rail_starts and not _are_on_rails(scenario.rail_starts[:n], scenario):
        yield "rail_starts", f"empty, or a place for each of the {n} sensors, at most the length of its rail"


def _are_on_rails(starts: tuple[float, ...], scenario: Any) -> bool:
    lengths = np.broadcast_to(make_rails(scenario.rails).length, scenario.num_sensors)
    return len(starts) == len(lengths) and bool((starts <= lengths).all())


FILES = {"tracks": whole_paths, "background": whole_path}
"""Parameters that name files, each with the function that returns their whole paths."""

Area = Annotated[tuple[float, float, float, float], Row(("x low", "x high", "y low", "y high"))]
Corner = Annotated[tuple[float, float], Row(("x", "y"))]
Disc = Annotated[tuple[float, float, float], Row(("x", "y", "radius"))]
Pan = Annotated[tuple[float, float], Row(("low", "high"))]
Wall = Annotated[tuple[float, float, float, float], Row(("x1", "y1", "x2", "y2"))]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Parameters of a directional sensor network and its targets in an arena.

    Lengths are in arena units, angles in degrees (counter-clockwise, 0 along +x), times in seconds.
    The defaults are the coordinator's scene of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4). Lengths, speeds and
    areas that are left out grow with the arena: they are HiT-MAC's in its own arena of 1250, and in proportion in any
    other. They are set once, when a scenario is made; :meth:`replace` keeps them.

    Raises ``ValueError`` for a value out of its range or too extreme to compute with, ``TypeError`` for another type;
    messages name the parameter, the value and what is allowed. Several errors are raised as one, with a line for each.
    """

    name: str = "custom"
    """Name in results and messages."""
    num_sensors: Count = 4
    """n, number of sensors."""
    num_targets: Count = 5
    """m, number of targets."""
    min_sensors: Natural = 0
    """Fewest sensors of an episode, whose number is drawn from min_sensors to num_sensors; 0: always num_sensors."""
    min_targets: Natural = 0
    """Fewest targets of an episode, whose number is drawn from min_targets to num_targets; 0: always num_targets."""
    arena: Annotated[float | tuple[float, ...], over(0)] = 1250.0
    """Half the side of the arena: targets stay in [-arena, arena]^2; or [half the width, half the height] of a
    rectangle."""
    whole_numbers: bool = scaled(True)
    """Draw whole coordinates, headings and speeds, as in HiT-MAC; false: real numbers."""

    sensing_range: Annotated[float | tuple[float, ...], over(0)] = scaled(800.0)
    """Largest distance at which a sensor sees a target. One number, or one for each sensor."""
    field_of_view: Annotated[float | tuple[float, ...], over(0, 360, "degrees")] = 90.0
    """Full opening angle, 360 all round; a target is in view if strictly within half of it. One number, or one for each
    sensor."""
    turn_angle: Annotated[float | tuple[float, ...], over(0, 180, "degrees")] = 5.0
    """Angle that a sensor turns in one sub-step. One number, or one for each sensor."""
    zoom: Annotated[tuple[float, ...], over(0, 360, "degrees")] = ()
    """Narrowest and widest field of view of zooming lenses; empty: lenses do not zoom. The area of the view
    stays constant, so that a narrower view reaches farther."""
    zoom_step: Positive = 10.0
    """Change of the field of view in one sub-step of zooming, degrees."""
    rails: tuple[tuple[Corner, ...], ...] = ()
    """Polylines on which the sensors move, each a list of corners, closed if the last is the first: one for all
    sensors, or one for each (a rail of one corner is a fixed place); empty: no sensor moves."""
    rail_step: Positive = scaled(10.0)
    """Distance that a sensor moves along its rail in one sub-step."""
    rail_starts: Annotated[tuple[float, ...], Range(0)] = ()
    """Distances along the rail from its first corner at which sensors start: on a shared rail the first n, dealt out at
    random, on rails of their own the i-th for sensor i; empty: anywhere."""
    failure_rate: Fraction = 0.0
    """Probability that a working sensor fails in a sub-step; it then neither sees nor turns."""
    recovery_rate: Fraction = 0.0
    """Probability that a failed sensor recovers in a sub-step."""
    position_noise: NotNegative = 0.0
    """Standard deviation, in each axis, of the error of a target's observed position."""
    missed_detections: Fraction = 0.0
    """Probability that a sensor misses a target that it sees, in one observation."""
    knowledge: Annotated[str, Choice(KNOWLEDGE)] = "full"
    """What a sensor knows of the targets: `full`: where all of them are, as in HiT-MAC; `shared`: what any sensor sees;
    `neighbours`: what it sees itself and what others report; `own`: what it sees itself. Of an unseen target the last
    seen position and velocity, and their age, are known."""
    communication_range: NotNegative = scaled(1000.0)
    """Largest distance between two sensors over which a report gets, with `neighbours`."""
    hops: Count = 1
    """Most links over which a report is passed on, with `neighbours`; a failed sensor passes nothing on."""
    message_loss_rate: Fraction = 0.0
    """Probability that the messages of a sub-step over a link, in one direction, are lost, with `neighbours`."""
    message_delay: Natural = 0
    """Sub-steps from a detection to its arrival at other sensors, with `neighbours`."""
    placement: Annotated[str, Choice(PLACEMENTS)] = "areas"
    """Placement of the sensors: `areas`: in those of sensor_areas; `grid`: in the middle of n random cells of a square
    grid over the arena; `random`: anywhere outside the discs, at least `spacing` apart; `rails`: on their rails;
    `fixed`: at sensor_positions; `crossings`: at different random crossings of the streets between `blocks`."""
    sensor_positions: tuple[Corner, ...] = ()
    """(x, y) of each sensor, with the placement `fixed`."""
    sensor_headings: tuple[float, ...] = ()
    """Initial heading of each sensor, degrees; empty: as start_heading says."""
    pan_limits: tuple[Pan, ...] = ()
    """Lowest and highest heading of a sensor, degrees, beyond which it does not turn: such an action is to stay. One
    pair for all sensors, or one for each; a whole turn or more, or empty: no limits."""
    sensor_areas: tuple[Area, ...] = scaled(
        (
            (250, 750, 250, 750),
            (250, 750, -750, -250),
            (-1250, -750, -250, 250),
            (-750, -250, 250, 750),
            (750, 1250, -250, 250),
            (-750, -250, -750, -250),
        )
    )
    """(x low, x high, y low, y high) of the areas of the sensors; the first n are assigned to the sensors at random."""
    grid: Annotated[int, Range(1, 10_000)] = 10
    """Cells along a side of the grid."""
    spacing: NotNegative = 0.0
    """Least distance between sensors placed at random."""
    start_heading: Annotated[str, Choice(("random", "target"))] = "random"
    """Initial headings: `random`: uniform in [-180, 180] degrees; `target`: sensor i faces target i (modulo m).
    With pan_limits, uniform within them, or the nearest heading within."""

    target_area: Area = scaled((-1000, 1000, -1000, 1000))
    """(x low, x high, y low, y high) of the area in which targets start and return."""
    walk: Annotated[str, Choice(WALKS)] = "goals"
    """Walk of the targets: `goals`: HiT-MAC's, from goal to goal; `random`: every move in a new direction; `bounce`:
    straight ahead, reflected at the border, swerving by `wander`; `still`: no moves; `evade`: as `bounce`, and out of
    the view of a sensor that sees the target; `streets`: along the streets between `blocks`, straight on from crossing
    to crossing, and there into any street but back."""
    wander: Annotated[float, Range(0, 180, "degrees")] = 0.0
    """Largest swerve of a `bounce` or `evade` target in a move, to either side."""
    time_step: Positive = 0.13
    """Duration of one move of the targets, seconds."""
    min_speed: NotNegative = scaled(50.0)
    """Lowest speed of a target, units per second."""
    max_speed: Positive = scaled(100.0)
    """Upper limit of speeds, units per second, which are drawn from [min_speed, max_speed); over min_speed."""
    speed_noise: NotNegative = 0.2
    """Largest relative increase of a move's length, drawn for every move."""
    goal_radius: NotNegative = scaled(5.0)
    """Distance below which a goal is reached, and the target takes a new one."""
    stuck_distance: NotNegative = scaled(10.0)
    """Distance to one of its two previous positions below which a target takes a new goal."""
    goal_patience: Count = 100
    """Most moves towards one goal, after which the target takes a new one."""
    extra_move_every: Natural = 10
    """Sub-steps between extra moves of the targets, the first before sub-step 0, in all tasks; 0, or with tracks: no
    extra moves."""
    leave_rate: Fraction = 0.0
    """Probability that a target leaves in a sub-step; a target that has left does not count."""
    return_rate: Fraction = 0.0
    """Probability that a target that has left returns in a sub-step, somewhere in target_area."""
    tracks: tuple[str, ...] | str = ()
    """CSV files of recorded tracks that the targets follow instead of walking, with the columns time, id, x and y; an
    episode follows one of them. One file or a list; relative to the YAML file; empty: targets walk."""

    discs: tuple[Disc, ...] = ()
    """(x, y, radius) of round obstacles, which block the view and not the targets."""
    random_discs: Natural = 0
    """Number of further discs at random positions, drawn for every episode, none over a sensor; fewer without room."""
    disc_radius: Annotated[tuple[float, ...], over(0)] = scaled((25.0, 100.0))
    """Lowest and highest radius of random discs, at most half the arena's shorter side."""
    walls: tuple[Wall, ...] = ()
    """(x1, y1, x2, y2) of straight walls, which block the view and not the targets."""
    blocks: Annotated[tuple[int, ...], Range(1, 10_000)] = ()
    """[rows, columns] of the blocks of a city, whose sides are further walls; the streets between and around them cross
    at (rows + 1) * (columns + 1) places; empty: no city."""
    street_width: Positive = scaled(50.0)
    """Width of the streets between blocks."""
    background: str = ""
    """Picture of the whole arena, such as a floor plan, to draw under the scene in pictures and films; relative to the
    YAML file; empty: none."""

    distance_scale: Positive = scaled(2000.0)
    """Distance at which the observation feature `distance` is 1."""
    episode_steps: Natural = 0
    """Most sub-steps of an episode, in all tasks; 0: as many as the task says. With tracks, an episode starts at a
    random row that as many rows follow; 0: at the first."""

    def __post_init__(self) -> None:
        defaults = left_out(self)
        vars(self).update(defaults)  # frozen: nothing is assigned
        wrong: dict[str, Exception] = {}
        for name, whole in FILES.items():
            try:
                vars(self)[name] = whole(name, getattr(self, name))
            except TypeError as error:
                wrong[name] = error
        converted, invalid = invalid_fields(self)
        vars(self).update(converted)
        invalid |= wrong

        def valid(*names: str) -> bool:
            return not invalid.keys() & set(names)

        if valid("arena") and len(self.extent) == 2:
            vars(self).update(in_arena(defaults, *self.extent))

        for name, allowed in contradictions(self, valid):
            invalid[name] = ValueError(f"{name} is {plain(getattr(self, name))!r}; it must be {allowed}")
        raise_together([type(error)(f"scenario {self.name!r}: {error}") for error in invalid.values()])

    @property
    def extent(self) -> tuple[float, float]:
        """Half the width and half the height of the arena."""
        return self.arena if isinstance(self.arena, tuple) else (self.arena, self.arena)  # type: ignore[return-value]

    @property
    def arena_words(self) -> str:
        """The arena in messages: ``+-1250``, or ``+-1200 x +-600``."""
        half_width, half_height = self.extent
        return f"+-{half_width:g}" if half_width == half_height else f"+-{half_width:g} x +-{half_height:g}"

    @property
    def all_walls(self) -> np.ndarray:
        """(w, 4) x1, y1, x2, y2 of `walls`, and of the sides of `blocks`."""
        return walls_of(self.walls, self.extent, self.blocks, self.street_width)

    @property
    def decisions(self) -> tuple[str, ...]:
        """Decisions of each sensor in a sub-step, in the order of an action: `turn`, `zoom`, `move`."""
        return ("turn", *(("zoom",) if self.zoom else ()), *(("move",) if self.rails else ()))

    def sub_steps_of(self, most: int) -> int:
        """Return the sub-steps of an episode of at most `most`: :attr:`episode_steps`, where it says fewer."""
        return min(most, self.episode_steps or most)

    @property
    def top_speed(self) -> float:
        """Highest speed of a target, units per second."""
        return self.max_speed * (1.0 + self.speed_noise)

    @property
    def extra_move_interval(self) -> int:
        """Sub-steps between extra moves of the targets; 0 with tracks, of which every sub-step is a row."""
        return 0 if self.tracks else self.extra_move_every

    @property
    def targets_leave(self) -> bool:
        """True if targets can leave and return."""
        return self.leave_rate > 0 or bool(self.tracks)

    @property
    def varies(self) -> bool:
        """True if sensors or targets can be absent: fewer in an episode, failed, or gone."""
        return self.min_sensors > 0 or self.min_targets > 0 or self.failure_rate > 0 or self.targets_leave

    def replace(self, **changes: Any) -> Scenario:
        """Return a copy of this scenario with some parameters changed (and checked again)."""
        return from_known(lambda **known: dataclasses.replace(self, **known), Scenario, changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain numbers, strings and lists."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def of_each_sensor(self, name: str) -> np.ndarray:
        """Return `sensing_range`, `field_of_view` or `turn_angle` of every sensor, (n,)."""
        return np.broadcast_to(np.asarray(getattr(self, name), np.float64), (self.num_sensors,)).copy()

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Scenario:
        """Make a scenario from its parameters; an unknown one raises a ``ValueError`` that lists the known."""
        return from_known(cls, Scenario, parameters)

    def save(self, path: str | Path) -> None:
        """Write the scenario as YAML."""
        write_text(path, yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None))


Scenario.__doc__ = f"{inspect.getdoc(Scenario)}\n\n{parameter_table(Scenario)}\n"
