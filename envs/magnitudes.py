"""Magnitudes of a scenario's numbers: squares, ratios and float32 observations of what passes are finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hitmac.envs.kernels.feature_table import farthest, most_speed

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
