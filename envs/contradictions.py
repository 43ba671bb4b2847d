"""Contradictions between the parameters of a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from hitmac.envs.kernels.mounts import limits_of, outside, within
from hitmac.envs.kernels.rails import make_rails
from hitmac.envs.ranges import plain


def contradictions(scenario: Any, valid: Callable[..., bool]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a :class:`~hitmac.envs.scenario.Scenario` that do not fit the others, and what fits.

    `valid` tells whether all parameters of the given names are valid so far; only those are compared.
    """
    n = scenario.num_sensors
    if valid("arena") and isinstance(scenario.arena, tuple) and len(scenario.arena) != 2:
        yield "arena", "one number, or [half the width, half the height]"
        return
    half_width, half_height = scenario.extent if valid("arena") else (math.inf, math.inf)
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
        views = scenario.of_each_sensor("field_of_view")
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
