"""Arena of a scenario, and the numbers of its sensors and targets, which all parts know."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.validation import Count, Natural, Row, over

HIT_MAC_ARENA = 1250.0
"""Half the side of HiT-MAC's arena, in which the defaults are HiT-MAC's."""

IN_HIT_MAC, LEFT_OUT, COUNTED = "in HiT-MAC's arena", "in proportion to the arena", "as in the tracks"


def scaled(value: Any) -> Any:
    """Return a dataclass field whose default `value` is that of HiT-MAC's arena; see :func:`grown`."""
    return dataclasses.field(default=LEFT_OUT, metadata={IN_HIT_MAC: value})


def grown(value: Any, width: float, height: float) -> Any:
    """Scale a default of HiT-MAC's arena to an arena of these half sides.

    Lengths grow with the shorter side, areas (x low, x high, y low, y high) with both; True holds in HiT-MAC's only.
    """
    if isinstance(value, bool):
        return value and width == height == HIT_MAC_ARENA
    if not isinstance(value, tuple):
        return value * min(width, height) / HIT_MAC_ARENA
    if isinstance(value[0], tuple) or len(value) != 4:
        return tuple(grown(one, width, height) for one in value)
    sides = zip(value, (width, width, height, height), strict=True)
    return tuple(min(max(side * half / HIT_MAC_ARENA, -half), half) for side, half in sides)


def two(numbers: float | tuple[float, ...]) -> tuple[float, float]:
    """Return two numbers, or one twice."""
    return numbers if isinstance(numbers, tuple) else (numbers, numbers)  # type: ignore[return-value]


Area = Annotated[tuple[float, float, float, float], Row(("x low", "x high", "y low", "y high"))]
Corner = Annotated[tuple[float, float], Row(("x", "y"))]
Disc = Annotated[tuple[float, float, float], Row(("x", "y", "radius"))]
Pan = Annotated[tuple[float, float], Row(("low", "high"))]
Wall = Annotated[tuple[float, float, float, float], Row(("x1", "y1", "x2", "y2"))]


Colour = tuple[int, ...]  # red, green, blue, 0 to 255, and perhaps alpha
OVER_VIEWS = 3


class Shape(NamedTuple):
    """Shape that does not change, in pictures: a line, a polygon, or a rectangle between two corners."""

    kind: Literal["line", "polygon", "rectangle"]
    layer: int  # from bottom to top; from OVER_VIEWS on, over the views of the sensors
    points: Any  # (k, 2)
    fill: Colour | None = None
    outline: Colour | None = None
    width: int = 0  # of a line or outline, pixels; 0: that of walls


class Decision(NamedTuple):
    """Decision of every sensor in a sub-step."""

    name: str
    parameter: str  # of the scenario; where it is empty, sensors have no such decision
    able: str  # what is so where they have
    actions: tuple[str, str, str]  # meanings of 0, 1 and 2


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Name and size of a scenario."""

    name: str = "custom"
    """Name in results and messages."""
    num_sensors: Count = 4
    """n, number of sensors."""
    sensor_names: tuple[str, ...] = ()
    """Names of the sensors, all different; empty: 0, 1, ..."""
    num_targets: Count = dataclasses.field(default=COUNTED, metadata={IN_HIT_MAC: 5})  # type: ignore[assignment]
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

    @property
    def extent(self) -> tuple[float, float]:
        """Half the width and half the height of the arena."""
        return two(self.arena)

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

    def of_each_sensor(self, name: str) -> np.ndarray:
        """Return `sensing_range`, `field_of_view` or `turn_angle` of every sensor, (n,)."""
        return np.broadcast_to(np.asarray(getattr(self, name), np.float64), (self.num_sensors,)).copy()


def check_sizes(simulator: Any, n: int, m: int) -> None:
    """Raise ValueError unless a simulator has n sensors and m targets, those of an observer."""
    if (shape := simulator.rows.visible.shape[:2]) != (n, m):
        raise ValueError(f"the simulator has {shape} sensors and targets; this observer is for {(n, m)}")
