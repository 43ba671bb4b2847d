"""Observations of the nearest targets, and neighbours of sensors."""

from __future__ import annotations

import math

import numpy as np

from hitmac.envs.simulator import Simulator, positive


def check_nearness(
    nearest: int | None, radius: float | None, neighbours: int | None
) -> tuple[int | None, float | None, int | None]:
    """Return the options of an observer of the nearest; raise ValueError that names the one that is not allowed."""
    if nearest is None:
        for name, value in (("radius", radius), ("neighbours", neighbours)):
            if value is not None:
                raise ValueError(f"{name} is {value!r}; it needs nearest, the number of targets shown to each sensor")
        return None, None, None
    nearest = positive("nearest", nearest)
    if radius is not None:
        number = isinstance(radius, int | float | np.integer | np.floating) and not isinstance(radius, bool)
        if not number or not 0 < radius < math.inf:
            raise ValueError(f"radius is {radius!r}; it must be a finite number over 0")
        radius = float(radius)
    return nearest, radius, None if neighbours is None else positive("neighbours", neighbours)


def nearest_pairs(
    simulator: Simulator, shown: dict[str, np.ndarray], of_sensor: np.ndarray, nearest: int, radius: float | None
) -> dict[str, np.ndarray]:
    """Return the part of the dense observation `shown` that :class:`~hitmac.envs.observation.Observer` specifies."""
    state, known = simulator.state, simulator.known
    places = state.target_position[:, None] if known is None else known.known_position  # (B, r, m, 2)
    away = places - state.sensor_position[:, :, None]
    squared = away[..., 0] * away[..., 0] + away[..., 1] * away[..., 1]  # (B, n, m)
    valid = simulator.shown_pairs
    if radius is not None:
        valid = valid & (squared <= radius * radius)
    m = valid.shape[-1]
    targets = np.where(valid, np.arange(m), -1)
    if nearest < m:
        order = np.argsort(np.where(valid, squared, np.inf), -1, kind="stable")[..., :nearest]
        there = np.take_along_axis(valid, order, -1)
        targets = np.sort(np.where(there, order, m), -1)
        targets[targets == m] = -1
    pairs = np.take_along_axis(shown["pairs"], np.maximum(targets, 0)[..., None], -2)
    always = of_sensor & state.working[:, :, None, None]
    pairs = np.where(always | (targets >= 0)[..., None], pairs, np.float32(0))
    return {"pairs": pairs, "mask": (targets >= 0).astype(np.int8), "targets": targets.astype(np.int32)}


def nearest_sensors(simulator: Simulator, neighbours: int) -> np.ndarray:
    """Return the neighbours of every sensor, (B, n, l) int32."""
    state = simulator.state
    place, reach = state.sensor_position, np.sqrt(state.range_squared)
    away = place[:, None] - place[:, :, None]
    squared = away[..., 0] * away[..., 0] + away[..., 1] * away[..., 1]  # (B, n, n)
    most = reach[:, None] + reach[:, :, None]
    near = (squared <= most * most) & state.working[:, None]
    n = near.shape[-1]
    itself = np.eye(n, dtype=np.bool_)
    squared = np.where(itself, -1.0, np.where(near, squared, np.inf))
    order = np.argsort(squared, -1, kind="stable")[..., :neighbours]
    there = np.take_along_axis(near | itself, order, -1)
    found = np.sort(np.where(there, order, n), -1)
    return np.where(found == n, -1, found).astype(np.int32)
