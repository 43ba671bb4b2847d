"""Scenarios: all parameters of a scene with units and ranges."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml

from hitmac.envs.arena_defaults import in_arena, left_out, scaled
from hitmac.envs.contradictions import contradictions
from hitmac.envs.errors import raise_together
from hitmac.envs.field_docs import parameter_table
from hitmac.envs.files import whole_path, whole_paths, write_text
from hitmac.envs.kernels.placements import PLACEMENTS
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.measured import KNOWLEDGE, walls_of
from hitmac.envs.ranges import (
    Choice,
    Count,
    Fraction,
    Natural,
    NotNegative,
    Positive,
    Range,
    Row,
    from_known,
    invalid_fields,
    over,
    plain,
)  # fmt: skip

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
