"""Arrays of the kernels for a scenario, and checks of positions, headings and states given by a user."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.nearest import make_grid
from hitmac.envs.base.state import PARAMETERS, KernelState
from hitmac.envs.features import longest_ranges, most_pending, pan_rows, view_area
from hitmac.envs.parts.recordings import PATHS
from hitmac.envs.parts.sensors import PLACEMENTS, check_pan, limits_of, within
from hitmac.envs.parts.walks import WALKS, targets_may_leave
from hitmac.envs.scenario import MOST_DEGREES, PARTS, Scenario
from hitmac.envs.validation import shortly

GRID_FROM = 10_000
"""Minimum number of pairs of a sensor and a target of a large scene, in which sensors look only nearby."""


def allocate(scenario: Scenario, num_envs: int) -> KernelState:
    """Allocate the arrays of `num_envs` scenes, zero except for values fixed by the scenario."""
    n, m, k = scenario.num_sensors, scenario.num_targets, len(scenario.discs) + scenario.random_discs
    large = n * m >= GRID_FROM and not scenario.is_game
    b = num_envs if large else padded(num_envs)
    walls = scenario.all_walls
    parts: dict[str, Any] = {}
    for part in PARTS:
        parts |= part.allocate(scenario, num_envs, b) if hasattr(part, "allocate") else {}
    rows = KernelState(
        stream=np.zeros((3, b), np.uint64),
        scene=np.zeros((6, b), np.int64),
        coverage=np.zeros(b),
        sensor=np.zeros((n, at.NUM_ROWS + 2 * bool(scenario.tilt_limits), b)),
        working=np.zeros((n, b), np.bool_),
        target=np.zeros((m, 14, b)),
        present=np.zeros((m, b), np.bool_),
        disc=np.zeros((k, 3, b)),
        visible=np.zeros((n, m, b), np.bool_),
        covered=np.zeros((m, b), np.bool_),
        rotated=np.zeros((n, b), np.bool_),
        scratch_mask=np.zeros(b, np.bool_),
        scratch=np.zeros((10, b)),
        areas=np.resize(np.array(scenario.sensor_areas, np.float64), (n, 4)),  # again from the first, if too few
        walls=walls,
        parameters=_parameters(scenario),
        grid=make_grid(scenario, walls, k, num_envs) if large else None,
        **parts,
    )
    rows.target[:, at.VALUE] = 1.0
    view, turn = scenario.of_each_sensor("field_of_view"), scenario.of_each_sensor("turn_angle")
    rows.sensor[:, at.START_VIEW] = view[:, None]
    rows.sensor[:, at.VIEW_AREA] = view_area(scenario.of_each_sensor("sensing_range"), view)[:, None]
    rows.sensor[:, at.TURN] = turn[:, None]
    rows.sensor[:, at.COS_TURN] = np.cos(np.radians(turn))[:, None]
    rows.sensor[:, at.SIN_TURN] = np.sin(np.radians(turn))[:, None]
    low, high = np.clip(limits_of(scenario), -MOST_DEGREES, MOST_DEGREES).T[..., None]
    for row, values in zip((at.PAN_X, at.PAN_Y, at.COS_HALF_PAN, at.SIN_HALF_PAN), pan_rows(low, high), strict=True):
        rows.sensor[:, row] = values
    if rows.rails is not None:
        rows.sensor[:, at.RAIL_LENGTH] = rows.rails.length[:, None]
    rows.disc[: len(scenario.discs)] = np.array(scenario.discs, np.float64).reshape(-1, 3, 1)
    return rows


def padded(num_envs: int) -> int:
    """Return the length of a row of `num_envs` scenes: an odd number of cache lines.

    With a power of two, all rows of a scene would compete for the same few cache sets. Large scenes are computed one by
    one.
    """
    return 8 * (-(-num_envs // 8) | 1)


def _parameters(scenario: Scenario) -> np.ndarray:
    """Return `scenario` in the form of the kernels, an array (1,) of :data:`PARAMETERS`."""
    narrowest, widest = scenario.zoom or (0.0, 0.0)
    half_width, half_height = scenario.extent
    changed = {
        "half_width": half_width,
        "half_height": half_height,
        "min_sensors": scenario.min_sensors or scenario.num_sensors,
        "min_targets": scenario.min_targets or scenario.num_targets,
        "narrowest": narrowest,
        "widest": widest,
        "zoom_step": scenario.zoom_step if scenario.zoom else 0.0,
        "placement": list(PLACEMENTS).index(scenario.placement),
        "start_facing_target": scenario.start_heading == "target",
        "walk": list(WALKS).index(scenario.walk),
        "wander": math.radians(scenario.wander),
        "fixed_discs": len(scenario.discs),
        "departures": targets_may_leave(scenario),
        "extra_move_every": scenario.extra_move_interval,
        "hops": scenario.hops if scenario.knowledge == "neighbours" else 0,
    }
    if not scenario.identities:
        changed |= {"position_noise": 0.0, "missed_detections": 0.0}  # only detections have errors
    values = np.zeros(1, PARAMETERS)
    for name in PARAMETERS.names or ():
        values[name] = changed[name] if name in changed else getattr(scenario, name)
    return values


def checked_places(name: str, places: np.ndarray, scenario: Scenario, rows: KernelState) -> np.ndarray:
    """Return `places`, with headings shifted into their limits.

    Raises ValueError for a number that is not finite (NaN is allowed for absent targets), a place outside the arena or
    off its rail, or a heading beyond its limits.
    """
    finite = np.isfinite(places)
    if scenario.is_game and (name in PATHS or np.isnan(places).any()):
        raise ValueError(f"{name} is {shortly(places)}; with warehouses no target is absent or follows tracks")
    if name.startswith("target_"):
        absent = np.isnan(places).all(-1)
        finite |= absent[..., None]
        if absent.any() and (rate := scenario.leave_rate) > 0:
            raise ValueError(f"{name} holds nan; with a leave_rate ({rate:g}) every number must be finite")
    if not finite.all():
        raise ValueError(f"{name} holds {places[~finite][0]}; every number must be finite")
    if name == "sensor_position" and scenario.rails:
        raise ValueError("sensor_position is given; the sensors are on rails, give along")
    if name == "along" and not scenario.rails:
        raise ValueError("along is given; the sensors are on no rails, give sensor_position")
    if name == "along":
        if (wrong := (places < 0) | (places > rows.sensor[:, at.RAIL_LENGTH, 0])).any():
            raise ValueError(f"along holds {places[wrong][0]:g}; it must be from 0 to the length of the rail")
    elif name == "heading":
        if (wrong := np.abs(places) > MOST_DEGREES).any():
            raise ValueError(f"heading holds {places[wrong][0]:g}; it must be at most {MOST_DEGREES:g} degrees")
        if rows.poses is not None:
            places = within(places, rows.poses.pan_limit)
            check_pan(places, rows.poses.pan_limit, "heading")
    elif (wrong := np.abs(places) > scenario.extent).any():
        raise ValueError(f"{name} holds {places[wrong][0]:g}; the arena is {scenario.arena_words}")
    return places


def check_state(
    state: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray], rows: KernelState, scenario: Scenario
) -> None:
    """Raise ValueError unless `state` has the names, shapes, types and ranges of `own`, the state of a simulator."""
    if set(state) != set(own):
        raise ValueError(f"a state must have the names {', '.join(own)}; got {', '.join(map(str, state))}")
    for name, array in own.items():
        given, shape = state[name].shape, array.shape
        if name == "track_position" and len(given) == 4:  # of any length
            shape = (shape[0], given[1], *shape[2:])
        if given != shape:
            raise ValueError(f"state {name!r} has shape {given}; it must be {shape}")
        if state[name].dtype != array.dtype:
            raise ValueError(f"state {name!r} is {state[name].dtype}; it must be {array.dtype}")
        bad = np.isnan(state[name]) if name in ("places", "known_age") else ~np.isfinite(state[name])
        if bad.any() and name != "track_position":
            raise ValueError(f"state {name!r} holds a number that is not finite")
    _, n, m = own["visible"].shape
    rounded = 1 + 1e-9
    corner = np.array(scenario.extent) * rounded
    reach = (longest_ranges(scenario) * rounded) ** 2
    own_view = rows.sensor[:, at.START_VIEW, 0]
    rate, pending = (scenario.rates[1], 180 * most_pending(scenario)) if scenario.turn_rates else (0.0, 0.0)
    ranges: dict[str, tuple[Any, ...]] = {
        "time": (0, 2**62),
        "num_sensors": (1, n),
        "num_targets": (1, m),
        "heading": (-MOST_DEGREES, MOST_DEGREES),
        "sensor_position": (-corner, corner),
        "target_position": (-corner, corner),
        "along": (0, rows.sensor[:, at.RAIL_LENGTH].max()),
        "track_moves": (0, state["track_length"]),
        "track_length": (0, state["track_position"].shape[1]),
        "field_of_view": scenario.zoom or (own_view, own_view),
        "range_squared": (np.finfo(float).tiny, reach),
        "direction": (-2, 2),  # its length is checked below
        "rail_direction": (-rounded, rounded) if rows.rails is not None else (0, 0),
        "rate": (-rate * rounded, rate * rounded),
        "pending_turn": (-pending * rounded, pending * rounded),
    }
    if rows.tilts is not None:
        ranges["tilt"] = tuple(rows.tilts.mount.limit.T)
    if "cargo_goal" in own:
        ranges["cargo_goal"] = -1, own["cargo_awaiting"].shape[1] - 1
        ranges |= {f"cargo_{name}": (0, 2**31) for name in ("capacity", "weight", "remaining", "awaiting", "delivered")}
    if rows.recordings is not None:
        ranges["recording_row"] = ranges["recording_end"] = 0, len(rows.recordings.place) - 1
    for name, (low, high) in ranges.items():
        wrong = (state[name] < low) | (state[name] > high)
        if wrong.any():
            low, high = (np.broadcast_to(edge, wrong.shape)[wrong][0] for edge in (low, high))
            found = state[name][wrong][0]
            raise ValueError(f"state {name!r} holds a number that is not from {low} to {high}: {found}")
    if (abs(np.hypot(*state["direction"].T) - 1) > 1e-6).any():  # turns round it, by 1e-16 each
        raise ValueError("state 'direction' holds a vector whose length is not 1")
    if rows.poses is not None:
        check_pan(state["heading"], rows.poses.pan_limit, "state 'heading'")
