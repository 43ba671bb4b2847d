"""Private zones: polygons of the plan that no view of a camera may cover, at all times or in some hours.

A footprint is the sector, or ring sector, between the distances near and far from the camera, and the bearings within
half the field of view of its heading. It is free of a zone if no ray at these bearings meets the zone between near and
far. The bearings of rays that do are arcs, between rays to the sides of the polygon, or to where they enter and leave
the ring; widened by half a view and a margin, they are the headings that a camera must not have, nor turn through.
Walls do not count.
"""

import functools
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hitmac.agents.deploy.run.cameras import SLACK, ZOOM_SLACK
from hitmac.envs import features, validation
from hitmac.envs.parts.lenses import squared_ranges
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.parts.tilt import make_mount
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import Row

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|24:00)")

Span = tuple[float, float]
"""Lowest and highest angle, degrees."""


@dataclass(frozen=True, kw_only=True)
class Zone(validation.Checked):
    """Private zone, one of the setting `private`; an invalid setting raises ``ValueError`` or ``TypeError``."""

    zone: tuple[Annotated[tuple[float, float], Row(("x", "y"))], ...]
    """Polygon, in the site's coordinates."""
    hours: str = ""
    """Local time in which it is private, as 22:00-06:00, over midnight if it ends before it begins. Empty: always."""
    days: tuple[str, ...] = ()
    """Days on which the hours begin: mon, tue, wed, thu, fri, sat, sun. Empty: every day."""

    def _rules_of_zones(self) -> validation.Rules:
        two = bool(_HOURS.fullmatch(self.hours)) and len({*self.hours.split("-")}) == 2
        yield "zone", len(self.zone) > 2, "three or more points"
        yield "hours", not self.hours or two, "HH:MM-HH:MM with two different times"
        yield "days", all(day in DAYS for day in self.days), ", ".join(DAYS)

    def holds(self, day: int, minute: int) -> bool:
        """Return True if the zone is private in a minute of a day, 0: Monday."""
        begin, end = 0, 24 * 60
        if self.hours:
            begin, end = (60 * int(part[:2]) + int(part[3:]) for part in self.hours.split("-"))
        since = minute
        if begin > end and minute < end:  # it began on the day before
            day, since = (day - 1) % 7, minute + 24 * 60
        end += 24 * 60 * (begin > end)
        return begin <= since < end and (not self.days or DAYS[day] in self.days)


def uncovered(arcs: Sequence[Span], limits: Sequence[float]) -> list[Span]:
    """Return the ranges of headings within pan limits that lie outside arcs, in whichever turn these are."""
    if not arcs:
        return [(limits[0], limits[1])]
    low, high = limits if math.isfinite(limits[0]) else (arcs[0][0], arcs[0][0] + 360.0)
    turns = [range(math.ceil((low - end) / 360.0), math.floor((high - start) / 360.0) + 1) for start, end in arcs]
    cuts = sorted(
        (start + 360.0 * k, end + 360.0 * k) for (start, end), own in zip(arcs, turns, strict=True) for k in own
    )
    free, place = [], low
    for start, end in cuts:
        if start > place:
            free.append((place, start))
        place = max(place, end)
    return [*free, (place, high)] if place <= high else free


def arcs_of(corners: np.ndarray, near: float, far: float) -> list[Span]:
    """Return the arcs of bearings, degrees, at which rays from the origin meet a polygon (c, 2) from near to far."""
    found: list[Span] = []
    if near == 0.0 and features.is_inside(corners, 0, len(corners), 0.0, 0.0):
        return [(0.0, 360.0)]
    for start, end in zip(corners, np.roll(corners, -1, 0), strict=True):
        side = end - start
        a, b, c = side @ side, start @ side, start @ start  # |start + s side|^2 = a s^2 + 2 b s + c

        def within(r: float, a: float = a, b: float = b, c: float = c) -> Span:  # the s with a distance of up to r
            root = b**2 - a * (c - r**2)
            return ((-b - math.sqrt(root)) / a, (-b + math.sqrt(root)) / a) if a and root > 0.0 else (1.0, 0.0)

        (first, last), inner = within(far), within(near)
        first, last = max(first, 0.0), min(last, 1.0)
        parts = [(first, min(last, inner[0])), (max(first, inner[1]), last)] if inner[0] < inner[1] else [(first, last)]
        for one, other in (part for part in parts if part[0] <= part[1]):
            (x, y), (u, v) = start + one * side, start + other * side
            bearing, turn = math.atan2(y, x), math.atan2(x * v - y * u, x * u + y * v)
            found.append((math.degrees(min(bearing, bearing + turn)), math.degrees(max(bearing, bearing + turn))))
    gaps = np.array(uncovered(found, (-math.inf, math.inf)) if found else [(0.0, 360.0)]).reshape(-1, 2)
    middle = np.radians(gaps.mean(-1))
    whole = features.is_inside(
        corners, 0, len(corners), far * np.cos(middle), far * np.sin(middle)
    )  # rays that meet no side
    return [*found, *map(tuple, gaps[whole].tolist())]


class Privacy:
    """Private zones of sensor i of a scenario, and the headings that spare them; local time is that of the computer."""

    def __init__(
        self, zones: Sequence[Zone], scenario: Scenario, i: int, wall: Callable[[], float] = time.time
    ) -> None:
        place = np.array(scenario.sensor_positions[i])
        self._zones, self._corners = zones, [np.array(zone.zone) - place for zone in zones]
        self._ranges, self._wall = lambda view: float(squared_ranges(scenario, view)[i]), wall
        self.limits: Sequence[float] = limits_of(scenario)[i].tolist()
        self.view = float(scenario.of_each_sensor("field_of_view")[i])
        self._zoom, mount = scenario.zoom, make_mount(scenario)
        self._mount = [float(part[i]) for part in mount[:2]] if len(mount.height) else []
        self._tilts = mount.limit[i].tolist() if len(mount.height) else [0.0, 0.0]
        self._known = functools.lru_cache(maxsize=256)(self._free)

    def now(self) -> tuple[int, ...]:
        """Return the numbers of the zones that are private now."""
        local = time.localtime(self._wall())
        return self._at(local.tm_wday, 60 * local.tm_hour + local.tm_min)

    def _at(self, day: int, minute: int) -> tuple[int, ...]:
        return tuple(k for k, zone in enumerate(self._zones) if zone.holds(day, minute))

    def free(self, zones: tuple[int, ...], views: Span, tilts: Span) -> list[Span]:
        """Return the ranges of headings at which no footprint with these fields of view and tilts covers a zone.

        An error of :data:`SLACK` degrees of heading and tilt, and of the share :data:`ZOOM_SLACK` of the field of view,
        is allowed for. Angles are rounded outwards, by less than 0.1 degrees or a degree of tilt.
        """
        (narrowest, widest), (low, high) = views, tilts
        rounded = math.floor(10.0 * narrowest) / 10.0 or narrowest, math.ceil(10.0 * widest) / 10.0
        return self._known(zones, rounded, (float(math.floor(low)), float(math.ceil(high))))

    def _free(self, zones: tuple[int, ...], views: Span, tilts: Span) -> list[Span]:
        narrowest, widest = views[0] * (1.0 - ZOOM_SLACK * bool(self._zoom)), views[1]
        widest *= 1.0 + ZOOM_SLACK * bool(self._zoom)
        squared, inner = self._ranges(narrowest), 0.0
        if self._mount:
            height, vertical = self._mount
            half = 0.5 * vertical * widest
            with np.errstate(divide="ignore"):
                squared, _ = features.floor_edges(squared, height, tilts[0] - SLACK, half)
                _, inner = features.floor_edges(squared, height, min(tilts[1] + SLACK, 90.0), half)
        near, far = math.sqrt(inner), math.sqrt(squared)
        found = [arc for k in zones if near <= far for arc in arcs_of(self._corners[k], near, far)]
        margin = widest / 2.0 + SLACK
        return uncovered([(low - margin, high + margin) for low, high in found], self.limits)

    def nearest(self, free: Sequence[Span], heading: float) -> tuple[Span | None, float]:
        """Return the free range nearest to a heading, None without any, and the turn to it; 0: it is inside.

        The range is shifted by whole turns to the heading; the turn stays within the pan limits.
        """
        best, least, limited = None, math.inf, math.isfinite(self.limits[0])
        for low, high in free:
            if math.isinf(low):
                return (low, high), 0.0
            middle = (sum(self.limits) if limited else low + high) / 2.0
            place = heading - 360.0 * round((heading - middle) / 360.0)
            if abs(turn := min(max(place, low), high) - place) < abs(least):
                best, least = (low + heading - place, high + heading - place), turn
        return best, least

    def fault(self) -> str:
        """Return the first time of a week at which no heading spares the zones, whatever tilt and zoom; "": none."""
        views = [(view, view) for view in (*self._zoom, *[self.view] * (not self._zoom))]
        for zones, minute in {self._at(*divmod(k, 24 * 60)): k for k in reversed(range(7 * 24 * 60))}.items():
            if not any(self.free(zones, view, (tilt, tilt)) for view in views for tilt in self._tilts):
                return f"{DAYS[minute // (24 * 60)]} {minute // 60 % 24:02}:{minute % 60:02}"
        return ""
