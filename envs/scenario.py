"""Scenarios: all parameters of a scene with units and ranges, as YAML, and the presets of this package."""

import dataclasses
import inspect
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from hitmac.envs import validation
from hitmac.envs.deployment import KNOWLEDGE, walls_of
from hitmac.envs.files import dump_yaml, parse_yaml, read_text, write_text
from hitmac.envs.kernels.episode import PLACEMENTS
from hitmac.envs.kernels.rails import limits_of, make_rails, outside, within
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.recordings import columns_of, most_at_once
from hitmac.envs.validation import Choice, Count, Fraction, Natural, NotNegative, Positive, Range, Row, over, plain

HIT_MAC_ARENA = 1250.0
"""Half the side of HiT-MAC's arena, in which the defaults are HiT-MAC's."""

MOST_DEGREES = 1e9
"""Largest magnitude of a heading, degrees."""

_FILES = {"tracks", "past_tracks", "background"}
_NOT_IN_GAMES = (
    "min_sensors", "min_targets", "leave_rate", "tracks", "turn_rates", "rails", "pan_limits", "sensor_headings",
    "walls", "blocks", "extra_move_every",
)  # fmt: skip
_IN_HIT_MAC, _LEFT_OUT, _COUNTED = "in HiT-MAC's arena", "in proportion to the arena", "as in the tracks"


def scaled(value: Any) -> Any:
    """Return a dataclass field whose default `value` is that of HiT-MAC's arena; see :func:`_grown`."""
    return dataclasses.field(default=_LEFT_OUT, metadata={_IN_HIT_MAC: value})


def _grown(value: Any, width: float, height: float) -> Any:
    """Scale a default of HiT-MAC's arena to an arena of these half sides.

    Lengths grow with the shorter side, areas (x low, x high, y low, y high) with both; True holds in HiT-MAC's only.
    """
    if isinstance(value, bool):
        return value and width == height == HIT_MAC_ARENA
    if not isinstance(value, tuple):
        return value * min(width, height) / HIT_MAC_ARENA
    if isinstance(value[0], tuple) or len(value) != 4:
        return tuple(_grown(one, width, height) for one in value)
    sides = zip(value, (width, width, height, height), strict=True)
    return tuple(min(max(side * half / HIT_MAC_ARENA, -half), half) for side, half in sides)


def _two(numbers: float | tuple[float, ...]) -> tuple[float, float]:
    """Return two numbers, or one twice."""
    return numbers if isinstance(numbers, tuple) else (numbers, numbers)  # type: ignore[return-value]


def _meanings(functions: Mapping[str, Callable]) -> str:
    """Return the first line of each function's docstring, after its name."""
    lines = {name: (function.__doc__ or "").splitlines()[0] for name, function in functions.items()}
    return ";".join(f" `{name}`: {line[0].lower()}{line[1:-1]}" for name, line in lines.items()) + "."


def parameter_table(kind: type) -> str:
    """Return a Markdown table of the fields of a dataclass: name, default, what is allowed, meaning."""
    docs, hints = validation.field_docs(kind), validation.field_types(kind)
    docs["placement"] += _meanings(PLACEMENTS)
    docs["walk"] += _meanings({name: walk.move for name, walk in WALKS.items()})
    rows = ["| parameter | default | allowed | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        default = plain(field.metadata.get(_IN_HIT_MAC, field.default))
        default = re.sub(r"\.0\b", "", json.dumps(default)) if not isinstance(default, str) else default
        if field.default is _LEFT_OUT:
            default += f" if arena is {HIT_MAC_ARENA:g}" if default == "true" else f" * arena / {HIT_MAC_ARENA:g}"
        rows.append(f"| `{field.name}` | {default} | {validation.allowed(hints[field.name])} | {docs[field.name]} |")
    return "\n".join(rows)


Area = Annotated[tuple[float, float, float, float], Row(("x low", "x high", "y low", "y high"))]
Corner = Annotated[tuple[float, float], Row(("x", "y"))]
Disc = Annotated[tuple[float, float, float], Row(("x", "y", "radius"))]
Pan = Annotated[tuple[float, float], Row(("low", "high"))]
Wall = Annotated[tuple[float, float, float, float], Row(("x1", "y1", "x2", "y2"))]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Parameters of a directional sensor network and its targets in an arena.

    Lengths are in arena units, angles in degrees (counter-clockwise, 0 along +x), times in seconds.
    The defaults are the coordinator's scene of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020, section 4). Default lengths,
    speeds and areas are in proportion to the arena, HiT-MAC's in its own arena of 1250. They are fixed when a scenario
    is made; :meth:`replace` keeps them.

    Raises ``ValueError`` for a value out of its range or too extreme to compute with, ``TypeError`` for another type;
    messages name the parameter, the value and the allowed values. Several errors are raised as one, with a line each.
    """

    name: str = "custom"
    """Name in results and messages."""
    num_sensors: Count = 4
    """n, number of sensors."""
    sensor_names: tuple[str, ...] = ()
    """Names of the sensors, all different; empty: 0, 1, ..."""
    num_targets: Count = dataclasses.field(default=_COUNTED, metadata={_IN_HIT_MAC: 5})  # type: ignore[assignment]
    """m, number of targets; left out with tracks: as many as are present at once in any of the files."""
    min_sensors: Natural = 0
    """Fewest sensors of an episode, whose number is drawn from min_sensors to num_sensors; 0: always num_sensors."""
    min_targets: Natural = 0
    """Fewest targets of an episode, whose number is drawn from min_targets to num_targets; 0: always num_targets."""
    arena: Annotated[float | tuple[float, ...], over(0)] = 1250.0
    """Half the side of the arena: targets stay in [-arena, arena]^2; or [half the width, half the height] of a
    rectangle."""
    whole_numbers: bool = scaled(True)
    """Draw whole coordinates, headings and speeds, as in HiT-MAC; false: real numbers."""

    def _rules_of_numbers(self) -> validation.Rules:
        n, m, names = self.num_sensors, self.num_targets, self.sensor_names
        different = len(names) in (0, n) and len(set(names)) == len(names)
        yield "min_sensors", self.min_sensors <= n, f"0 to num_sensors ({n})"
        yield "sensor_names", different, f"empty, or different names, {self._each}"
        yield "min_targets", self.min_targets <= m, f"0 to num_targets ({m})"

    sensing_range: Annotated[float | tuple[float, ...], over(0)] = scaled(800.0)
    """Largest distance at which a sensor sees a target. One number, or one for each sensor."""
    field_of_view: Annotated[float | tuple[float, ...], over(0, 360, "degrees")] = 90.0
    """Full opening angle, 360 all round; a target is in view if strictly within half of it. One number, or one for each
    sensor."""
    turn_angle: Annotated[float | tuple[float, ...], over(0, 180, "degrees")] = 5.0
    """Angle that a sensor turns in one sub-step. One number, or one for each sensor."""

    def _rules_of_views(self) -> validation.Rules:
        for name in ("sensing_range", "field_of_view", "turn_angle"):
            yield name, np.size(getattr(self, name)) in (1, self.num_sensors), f"one number, or {self._each}"

    turn_rates: Annotated[float | tuple[float, ...], Range(0)] = 0.0
    """Highest rate of the sensors' motors, or [lowest, highest], degrees per second. A turn commands turn_angle per
    time_step, or the highest rate if that is lower. 0: no motors, a sensor turns by turn_angle at once."""
    acceleration: NotNegative = 0.0
    """Acceleration of the motors, degrees per second squared; 0: a rate is reached at once."""
    command_delay: Annotated[int, Range(0, 1000)] = 0
    """Sub-steps from a command to its effect on the motor."""
    dead_zone: NotNegative = 0.0
    """Highest commanded rate at which a motor does not move, degrees per second."""
    heading_noise: NotNegative = 0.0
    """Standard deviation of the error of a sensor's observed heading, degrees."""
    action: Annotated[str, Choice(("turn", "rate"))] = "turn"
    """Action of a sensor: `turn`: stay, left or right; `rate`: a share in [-1, 1] of the highest rate, left over
    0; with warehouses shares of `turn_angle` and `zoom_step`."""

    def _rules_of_motors(self) -> validation.Rules:
        given = self.turn_rates if isinstance(self.turn_rates, tuple) else (0.0, self.turn_rates)
        lowest, highest = self.rates if self.turn_rates and len(given) == 2 else (0.0, 0.0)
        yield "turn_rates", len(given) == 2 and lowest <= highest, "the highest rate, or [lowest, highest]"
        yield "acceleration", highest or not self.acceleration, "0 without turn_rates"
        yield "command_delay", highest or not self.command_delay, "0 without turn_rates"
        moves = not self.dead_zone or self.dead_zone < highest
        yield "dead_zone", moves, f"0, or under the highest of turn_rates ({highest:g})"
        turns = self.action == "turn" or self.warehouses or (highest and not self.zoom and not self.rails)
        yield "action", turns, "turn, without warehouses, and without turn_rates or with zoom or rails"

    zoom: Annotated[tuple[float, ...], over(0, 360, "degrees")] = ()
    """Narrowest and widest field of view of zooming lenses; empty: lenses do not zoom. The area of the view
    stays constant, so that a narrower view reaches farther."""
    zoom_step: Positive = 10.0
    """Change of the field of view in one sub-step of zooming, degrees."""

    def _rules_of_lenses(self) -> validation.Rules:
        zooms = len(self.zoom) == 2 and self.zoom[0] <= self.zoom[1]
        words = "the narrowest and the widest field of view"
        yield "zoom", zooms or not self.zoom, f"empty, or {words}, at most 360 degrees"
        yield "zoom", zooms or not self.warehouses, f"{words} with warehouses"
        if zooms:
            (narrowest, widest), view = self.zoom, self.field_of_view
            fits = narrowest <= np.min(view) and np.max(view) <= widest
            yield "field_of_view", fits, f"within zoom ({narrowest:g} to {widest:g} degrees)"

    rails: tuple[tuple[Corner, ...], ...] = ()
    """Polylines on which the sensors move, each a list of corners, closed if the last is the first: one for all
    sensors, or one for each (a rail of one corner is a fixed place); empty: no sensor moves."""
    rail_step: Positive = scaled(10.0)
    """Distance that a sensor moves along its rail in one sub-step."""
    rail_starts: Annotated[tuple[float, ...], Range(0)] = ()
    """Distances along the rail from its first corner at which sensors start: on a shared rail the first n, assigned at
    random, on rails of their own the i-th for sensor i; empty: anywhere."""

    def _rules_of_rails(self) -> validation.Rules:
        n, starts = self.num_sensors, self.rail_starts[: self.num_sensors] if self.rails else ()
        corners = all(self.rails) and all(one != other for rail in self.rails for one, other in pairwise(rail))
        yield "placement", (self.placement == "rails") == bool(self.rails), "rails if and only if rails are given"
        yield "rails", len(self.rails) in (0, 1, n), f"empty, one rail, or {self._each}"
        yield "rails", corners, "lists of corners [x, y], at least one each, and no two in a row the same"
        yield "rails", all(map(self._holds, self.rails)), self._inside
        yield "rail_starts", len(starts) in (0, n), f"empty, or a place for each of the {n} sensors"
        if starts and corners and len(self.rails) in (1, n):
            lengths = np.broadcast_to(make_rails(self.rails).length, n)[: len(starts)]
            yield "rail_starts", (np.array(starts) <= lengths).all(), "at most the lengths of the rails"

    failure_rate: Fraction = 0.0
    """Probability that a working sensor fails in a sub-step; it then neither sees nor turns."""
    recovery_rate: Fraction = 0.0
    """Probability that a failed sensor recovers in a sub-step."""
    identities: bool = True
    """Observe which target is which; false: the observation of a sensor is a list of detections, without names and in
    random order, see :class:`~hitmac.envs.observation.DetectionObserver`."""
    position_noise: Annotated[float | tuple[float, ...], Range(0)] = 0.0
    """Standard deviation, in each axis, of the error of a target's observed position; or without identities [along,
    across] the line of sight."""
    missed_detections: Annotated[float | tuple[float, ...], Range(0, 1)] = 0.0
    """Probability that a sensor misses a target that it sees, in one observation; or without identities [at the sensor,
    at its range], linear in the distance."""
    false_detections: Annotated[float, Range(0, 1000)] = 0.0
    """Mean number of detections of no target, of a sensor in one observation, without identities: a Poisson number,
    uniform in the view inside the arena and in front of obstacles, with full knowledge in the arena."""

    def _rules_of_detections(self) -> validation.Rules:
        for name, words in (("position_noise", "[along, across]"), ("missed_detections", "[near, far]")):
            two = not self.identities and np.size(getattr(self, name)) == 2
            single = not isinstance(getattr(self, name), tuple)
            yield name, single or two, f"one number, or without identities {words}"
        yield "false_detections", not (self.identities and self.false_detections), "0 with identities"

    knowledge: Annotated[str, Choice(KNOWLEDGE)] = "full"
    """Knowledge of the targets: `full`: the positions of all, as in HiT-MAC; `shared`: what any sensor sees;
    `neighbours`: what the sensor sees itself and what others report; `own`: what it sees itself. Of an unseen target
    the last seen position and velocity, and their age, are known."""
    communication_range: NotNegative = scaled(1000.0)
    """Largest distance between two sensors that exchange reports, with `neighbours`."""
    hops: Count = 1
    """Largest number of links that a report travels, with `neighbours`; a failed sensor forwards nothing."""
    message_loss_rate: Fraction = 0.0
    """Probability that the messages of a sub-step over a link, in one direction, are lost, with `neighbours`."""
    message_delay: Natural = 0
    """Sub-steps from a detection to its arrival at other sensors, with `neighbours`."""
    placement: Annotated[str, Choice(PLACEMENTS)] = "areas"
    """Placement of the sensors:"""
    sensor_positions: tuple[Corner, ...] = ()
    """(x, y) of each sensor, with the placement `fixed`."""
    sensor_headings: tuple[float, ...] = ()
    """Initial heading of each sensor, degrees; empty: by start_heading."""
    pan_limits: tuple[Pan, ...] = ()
    """Lowest and highest heading of a sensor, degrees; a turn beyond them counts as staying. One pair for all sensors,
    or one for each; a whole turn or more, or empty: no limits."""
    sensor_areas: tuple[Area, ...] = scaled((
        (250, 750, 250, 750), (250, 750, -750, -250), (-1250, -750, -250, 250),
        (-750, -250, 250, 750), (750, 1250, -250, 250), (-750, -250, -750, -250),
    ))  # fmt: skip
    """(x low, x high, y low, y high) of the areas of the sensors; the first n, or all again and again if fewer, are
    assigned to the sensors at random."""
    grid: Annotated[int, Range(1, 10_000)] = 10
    """Cells along a side of the grid."""
    spacing: NotNegative = 0.0
    """Least distance between sensors placed at random."""
    start_heading: Annotated[str, Choice(("random", "target"))] = "random"
    """Initial headings: `random`: uniform in [-180, 180] degrees; `target`: sensor i faces target i (modulo m).
    With pan_limits, uniform within them, or the nearest heading within."""

    def _rules_of_placements(self) -> validation.Rules:
        n, each, places, headings = self.num_sensors, self._each, self.sensor_positions, self.sensor_headings
        areas = self.sensor_areas if self.placement == "areas" else ()
        yield "sensor_areas", self.placement != "areas" or areas, "at least one area"
        yield "sensor_areas", all(map(self._holds_area, areas)), f"[x low, x high, y low, y high] {self._inside}"
        fits = self.placement != "grid" or self.grid**2 >= n
        yield "grid", fits, f"large enough for one cell for each of {n} sensors"
        taken = (n - 1) * self.spacing**2 + sum(radius**2 for *_, radius in self.discs)
        fits = self.placement != "random" or taken <= self._room
        yield "spacing", fits, f"smaller, since {n} sensors would fill the arena"
        fits = (self.placement == "fixed") == bool(places)
        yield "placement", fits, "fixed if and only if sensor_positions are given"
        yield "sensor_positions", len(places) in (0, n), f"[x, y] of each of the {n} sensors"
        yield "sensor_positions", self._holds(places), f"[x, y] of each of the {n} sensors, {self._inside}"
        pans = len(self.pan_limits) in (0, 1, n) and all(low <= high for low, high in self.pan_limits)
        yield "pan_limits", pans, f"empty, or [low, high] with low at most high, one pair or {each}"
        yield "sensor_headings", len(headings) in (0, n), f"empty, or {each}"
        if headings and pans and len(headings) == n:
            limits = limits_of(self)
            far = outside(within(np.array(headings), limits), limits)
            yield "sensor_headings", not far.any(), f"within pan_limits {self.pan_limits}"

    target_area: Area = scaled((-1000, 1000, -1000, 1000))
    """(x low, x high, y low, y high) of the area in which targets start and return."""
    walk: Annotated[str, Choice(WALKS)] = ""
    """Walk of the targets; empty: with tracks `recorded`, with warehouses `carry-greedy`, otherwise `goals`:"""
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

    def _rules_of_targets(self) -> validation.Rules:
        yield "max_speed", self.max_speed > self.min_speed, f"over min_speed ({self.min_speed:g})"
        yield "target_area", self._holds_area(self.target_area), f"[x low, x high, y low, y high] {self._inside}"

    tracks: tuple[str, ...] | str = ()
    """CSV files of recorded tracks that the targets follow instead of walking, with the columns time, id, x and y; an
    episode follows one of them. One file or a list; relative to the YAML file; empty: targets walk."""
    columns: str = ""
    """Names of these columns in files with others, such as time=t,id=track; their numbers in files without a header,
    time=1,id=2,x=3,y=4."""
    past_tracks: tuple[str, ...] | str = ()
    """CSV files of earlier tracks, from which planners and beliefs learn how targets move; empty: `tracks`."""

    def _rules_of_recordings(self) -> validation.Rules:
        for name in ("min_targets", "leave_rate"):
            yield name, not (self.tracks and getattr(self, name)), "0 with tracks, in which targets come and go"
        yield "walk", self.walk != "recorded" or self.tracks, "recorded only with tracks"
        fits = columns_of(self.columns)
        yield "columns", fits, "such as time=t,id=track, with different columns for time, id, x and y"

    discs: tuple[Disc, ...] = ()
    """(x, y, radius) of round obstacles, which block the view and not the targets."""
    random_discs: Natural = 0
    """Number of further discs at random positions, drawn for every episode, none over a sensor; fewer if space is
    short."""
    disc_radius: Annotated[tuple[float, ...], over(0)] = scaled((25.0, 100.0))
    """Lowest and highest radius of random discs, at most half the arena's shorter side."""
    disc_areas: tuple[Area, ...] = ()
    """(x low, x high, y low, y high) of the areas of random discs, with warehouses, dealt out as sensor_areas; empty:
    the arena."""

    def _rules_of_discs(self) -> validation.Rules:
        small, large, most = min(self.disc_radius, default=0), max(self.disc_radius, default=0), min(self.extent)
        yield "discs", all(radius > 0 for *_, radius in self.discs), "[x, y, radius] with a radius over 0"
        yield "disc_radius", self.disc_radius == (small, large), "the lowest and the highest radius"
        if self.random_discs:
            free = self.num_sensors * large**2 <= self._room
            yield "disc_radius", large <= most, f"at most the arena ({most:g})"
            yield "disc_radius", free, "smaller, since no disc may cover any sensor"
        yield "disc_areas", self.warehouses or not self.disc_areas, "empty without warehouses"
        fits = all(map(self._holds_area, self.disc_areas))
        yield "disc_areas", fits, f"[x low, x high, y low, y high] {self._inside}"

    walls: tuple[Wall, ...] = ()
    """(x1, y1, x2, y2) of straight walls, which block the view and not the targets."""
    blocks: Annotated[tuple[int, ...], Range(1, 10_000)] = ()
    """[rows, columns] of the blocks of a city, whose sides are further walls; the streets between and around them cross
    at (rows + 1) * (columns + 1) places; empty: no city."""
    street_width: Positive = scaled(50.0)
    """Width of the streets between blocks."""

    def _rules_of_streets(self) -> validation.Rules:
        n, (width, height) = self.num_sensors, self.extent
        yield "walk", self.walk != "streets" or self.blocks, "streets only with blocks"
        yield "placement", self.placement != "crossings" or self.blocks, "crossings only with blocks"
        yield "blocks", len(self.blocks) in (0, 2), "empty, or [rows, columns]"
        if len(self.blocks) == 2:
            rows, columns = self.blocks
            most = min(2 * width / (columns + 1), 2 * height / (rows + 1))
            fits = self.placement != "crossings" or (rows + 1) * (columns + 1) >= n
            yield "street_width", self.street_width < most, f"under {most:g} with these blocks"
            yield "blocks", fits, f"enough for a crossing for each of {n} sensors"

    zones: tuple[tuple[Corner, ...], ...] = ()
    """Polygons, each a list of corners, in which a target counts as often in the coverage as `zone_values` says; of
    several the last in the list. A point on the border is inside."""
    zone_values: Annotated[tuple[float, ...], Range(0, 1_000_000)] = ()
    """Value of each zone; outside, it is 1."""
    target_values: Annotated[tuple[float, ...], Range(0, 1_000_000)] = ()
    """Value of each target, multiplied by that of its zone; empty: 1."""
    seen_by: Count = 1
    """k, the number of sensors that must see a target to cover it, up to num_sensors."""

    def _rules_of_values(self) -> validation.Rules:
        zones, values, n, m = self.zones, self.target_values, self.num_sensors, self.num_targets
        yield "zones", all(len(zone) >= 3 for zone in zones), "lists of at least 3 corners [x, y]"
        yield "zones", all(map(self._holds, zones)), self._inside
        yield "zone_values", len(self.zone_values) == len(zones), f"one for each of the {len(zones)} zones"
        yield "target_values", len(values) in (0, m), f"empty, or one for each of the {m} targets"
        yield "target_values", not values or max(values) > 0, "over 0 for at least one target"
        named = self.identities and not self.tracks
        yield "target_values", named or not values, "empty without identities or with tracks"
        yield "seen_by", self.seen_by <= n, f"1 to num_sensors ({n})"

    warehouses: tuple[Corner, ...] = ()
    """(x, y) of the centres of square warehouses, at least 2: the scenario is a game of two teams, MATE's (Pan and
    others, NeurIPS 2022), in which targets carry cargoes between warehouses, see :class:`hitmac.envs.Game`; empty:
    no game."""
    warehouse_size: Positive = 75.0
    """Half the side of a warehouse."""
    cargoes: Count = 8
    """Cargoes of an episode for each target."""
    target_range: NotNegative = 500.0
    """Largest distance at which a target sees another; it sees discs and sensors from farther by their radius."""
    sensor_radius: NotNegative = 0.0
    """Radius of the sensors, along which targets slide as along discs, with warehouses."""
    transmittance: Fraction = 0.0
    """Probability that a sensor sees a target through discs in a step, with warehouses."""
    occlusion: Annotated[str, Choice(("exact", "rays"))] = "exact"
    """Discs that block a view, with warehouses: `exact`: those on the line of sight; `rays`: interpolated between rays,
    as in MATE."""

    def _rules_of_game(self) -> validation.Rules:
        alone = next((name for name in _NOT_IN_GAMES if getattr(self, name)), "")
        carries, many = self.walk.startswith("carry"), len(self.warehouses)
        yield "warehouses", many != 1, "empty, or at least 2"
        yield "warehouses", self._holds(self.warehouses), self._inside
        yield "warehouses", not (many and alone), f"empty with {alone}"
        yield "walk", carries == bool(many), "one of carry-... if and only if warehouses are given"
        yield "placement", self.placement == "areas" or not many, "areas with warehouses"

    background: str = ""
    """Picture of the whole arena, such as a floor plan, to draw under the scene in pictures and films; relative to the
    YAML file; empty: none."""

    distance_scale: Positive = scaled(2000.0)
    """Distance at which the observation feature `distance` is 1."""
    episode_steps: Natural = 0
    """Most sub-steps of an episode, in all tasks; 0: the task's default. With tracks, an episode starts at a
    random row that leaves as many to follow; 0: at the first."""

    def __post_init__(self) -> None:
        fields = {field.name: field.metadata.get(_IN_HIT_MAC) for field in dataclasses.fields(self)}
        left_out = {name: value for name, value in fields.items() if getattr(self, name) is _LEFT_OUT}
        vars(self).update(left_out)  # frozen: nothing is assigned
        if count := self.num_targets is _COUNTED:
            vars(self)["num_targets"] = fields["num_targets"]
        if self.walk == "":
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
            vars(self).update({name: _grown(value, *self.extent) for name, value in left_out.items()})
            for name, fits in validation.broken_rules(self):
                words = f"{name} is {plain(getattr(self, name))!r}; it must be {fits}"
                invalid.setdefault(name, ValueError(words))
        validation.raise_together([type(error)(f"scenario {self.name!r}: {error}") for error in invalid.values()])
        if count and self.tracks:
            vars(self)["num_targets"] = most_at_once(self)

    @property
    def extent(self) -> tuple[float, float]:
        """Half the width and half the height of the arena."""
        return _two(self.arena)

    @property
    def rates(self) -> tuple[float, float]:
        """Lowest and highest rate of the motors, degrees per second; (0, inf) without motors."""
        lowest, highest = self.turn_rates if isinstance(self.turn_rates, tuple) else (0.0, self.turn_rates)
        return (lowest, highest) if highest else (0.0, math.inf)

    @property
    def arena_words(self) -> str:
        """The arena in messages: ``+-1250``, or ``+-1200 x +-600``."""
        half_width, half_height = self.extent
        return f"+-{half_width:g}" if half_width == half_height else f"+-{half_width:g} x +-{half_height:g}"

    @property
    def _inside(self) -> str:
        return f"inside the arena of {self.arena_words}"

    @property
    def _each(self) -> str:
        return f"one for each of the {self.num_sensors} sensors"

    def _holds(self, points: Any) -> bool:
        """Return True if all points (k, 2) are in the arena."""
        return all(abs(x) <= half for point in points for x, half in zip(point, self.extent, strict=True))

    def _holds_area(self, area: Sequence[float]) -> bool:
        low_x, high_x, low_y, high_y = area
        return low_x <= high_x and low_y <= high_y and self._holds([(low_x, low_y), (high_x, high_y)])

    @property
    def _room(self) -> float:
        """Sum of squared radii that leaves a quarter of the arena free, in which a place is soon found."""
        width, height = self.extent
        return 3 * width * height / math.pi

    @property
    def all_walls(self) -> np.ndarray:
        """(w, 4) x1, y1, x2, y2 of `walls`, and of the sides of `blocks`."""
        return walls_of(self.walls, self.extent, self.blocks, self.street_width)

    @property
    def has_obstacles(self) -> bool:
        """True with walls, blocks or discs."""
        return bool(self.walls or self.blocks or self.discs or self.random_discs)

    @property
    def has_values(self) -> bool:
        """True with zones or values of targets."""
        return bool(self.zones or self.target_values)

    @property
    def highest_value(self) -> float:
        """Highest value that a target can have."""
        return max(self.target_values, default=1.0) * max((1.0, *self.zone_values))

    @property
    def decisions(self) -> tuple[str, ...]:
        """Decisions of each sensor in a sub-step, in the order of an action: `turn`, `zoom`, `move`."""
        return ("turn", *(("zoom",) if self.zoom else ()), *(("move",) if self.rails else ()))

    def sub_steps_of(self, most: int) -> int:
        """Return `most` sub-steps, or :attr:`episode_steps` if that is fewer."""
        return min(most, self.episode_steps or most)

    @property
    def top_speed(self) -> float:
        """Highest speed of a target, units per second."""
        return self.max_speed * (1.0 + self.speed_noise)

    @property
    def cargo_worth(self) -> float:
        """Value of delivering one cargo in a game: the number of full steps across the arena, rounded up."""
        return float(math.ceil(2.0 * min(self.extent) / (self.max_speed * self.time_step)))

    @property
    def position_errors(self) -> tuple[float, float]:
        """Standard deviation of the error of an observed position along and across the line of sight."""
        return _two(self.position_noise)

    @property
    def miss_rates(self) -> tuple[float, float]:
        """Probability that a sensor misses a target at its own place, and at its range."""
        return _two(self.missed_detections)

    @property
    def extra_move_interval(self) -> int:
        """Sub-steps between extra moves of the targets; 0 with tracks, of which every sub-step is a row."""
        return 0 if self.tracks else self.extra_move_every

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

    def of_each_sensor(self, name: str) -> np.ndarray:
        """Return `sensing_range`, `field_of_view` or `turn_angle` of every sensor, (n,)."""
        return np.broadcast_to(np.asarray(getattr(self, name), np.float64), (self.num_sensors,)).copy()

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Self:
        """Make a scenario from its parameters; unknown names and wrong values are reported as one error."""
        if not isinstance(parameters, Mapping):
            raise TypeError(f"scenario is {validation.shortly(parameters)}; it must be a mapping of parameters")
        known = [field.name for field in dataclasses.fields(cls)]
        errors: list[Exception] = []
        if unknown := [name for name in parameters if name not in known]:
            names = validation.in_short(unknown, known)
            errors.append(ValueError(f"unknown scenario parameter {names}: known are {', '.join(known)}"))
        with validation.collect(errors):
            scenario = cls(**{name: value for name, value in parameters.items() if name in known})
        validation.raise_together(errors)
        return scenario

    def save(self, path: str | Path) -> None:
        """Write the scenario as YAML."""
        write_text(path, dump_yaml(self.to_dict()))


Scenario.__doc__ = f"{inspect.getdoc(Scenario)}\n\n{parameter_table(Scenario)}\n"


SCENES = Path(__file__).parent / "scenes"


def presets() -> list[str]:
    """Return the names of the scenarios of this package."""
    return sorted(path.stem for path in SCENES.glob("*.yaml"))


def load_scenario(scenario: Scenario | str | Path) -> Scenario:
    """Load a scenario.

    Args:
        scenario: a :class:`Scenario` (returned as it is), a preset's name, a preset's name with sizes
            (``hit-mac-6x9``: 6 sensors, 9 targets; a city grows with its sensors; ``mate-6v10-4``: 6 sensors, 10
            targets, 4 discs), the path of a YAML file, or the directory of a training run or checkpoint, for the
            scenario of the training.

    Raises ``ValueError`` for an unknown name or a file that is not a scenario, ``FileNotFoundError`` for a missing one.
    """
    if isinstance(scenario, Scenario):
        return scenario
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
    changes = {}
    for text in settings:
        name, _, value = text.partition("=")
        if not (name and value) or name in changes:
            raise ValueError(f"{text!r} must be NAME=VALUE, and each name given once")
        try:
            changes[name] = parse_yaml(value)
        except ValueError as error:
            raise ValueError(f"{text} is not YAML: {error}") from None
    return Scenario.from_dict({**scenario.to_dict(), "name": ", ".join([scenario.name, *settings]), **changes})


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
