"""Arrays of the kernels for a scenario, and checks of places and saved states."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import numpy as np

from hitmac.envs.kernels.cells import make_cells, sort_walls
from hitmac.envs.kernels.grid import Grid
from hitmac.envs.kernels.mounts import make_mounts, outside, within
from hitmac.envs.kernels.placements import PLACEMENTS
from hitmac.envs.kernels.rails import make_rails
from hitmac.envs.kernels.state import (
    COS_TURN,
    PARAMETERS,
    RAIL_LENGTH,
    SIN_TURN,
    START_VIEW,
    TURN,
    VIEW_AREA,
    KernelState,
    Knowledge,
    Tracks,
)  # fmt: skip
from hitmac.envs.kernels.streets import make_streets
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.recordings import make_recordings
from hitmac.envs.scenario import Scenario

GRID_FROM = 10_000
"""Fewest pairs of a sensor and a target of a scene in which sensors look only at what is near."""

SEEN_LISTED = 32
"""Most targets that a sensor of a large scene sees of which a list is kept; of more, all targets are looked through."""


def allocate(scenario: Scenario, num_envs: int) -> KernelState:
    """Allocate the arrays of `num_envs` scenes, zero except for the values that the scenario fixes."""
    n, m, k = scenario.num_sensors, scenario.num_targets, len(scenario.discs) + scenario.random_discs
    large = n * m >= GRID_FROM
    _check_memory(scenario, num_envs)
    # An odd number of cache lines per row: with a power of two, all rows of a scene would compete for the same few
    # cache sets. Large scenes are computed one by one, and only need the space.
    b = num_envs if large else 8 * (-(-num_envs // 8) | 1)
    walls = scenario.all_walls
    rows = KernelState(
        stream=np.zeros((3, b), np.uint64),
        scene=np.zeros((6, b), np.int64),
        coverage=np.zeros(b),
        sensor=np.zeros((n, 17, b)),
        working=np.zeros((n, b), np.bool_),
        target=np.zeros((m, 13, b)),
        present=np.zeros((m, b), np.bool_),
        disc=np.zeros((k, 3, b)),
        visible=np.zeros((n, m, b), np.bool_),
        covered=np.zeros((m, b), np.bool_),
        scratch_mask=np.zeros(b, np.bool_),
        scratch=np.zeros((9, b)),
        areas=np.array(scenario.sensor_areas, np.float64).reshape(-1, 4)[:n],
        walls=walls,
        parameters=_parameters(scenario),
        knowledge=None if scenario.knowledge == "full" else _knowledge(scenario, b),
        rails=make_rails(scenario.rails, scenario.rail_starts) if scenario.rails else None,
        recordings=make_recordings(scenario, num_envs) if scenario.tracks else None,
        mounts=make_mounts(scenario, num_envs),
        streets=make_streets(scenario),
        grid=_grid(scenario, walls, k, num_envs) if large else None,
    )
    view, turn = scenario.of_each_sensor("field_of_view"), scenario.of_each_sensor("turn_angle")
    rows.sensor[:, START_VIEW] = view[:, None]
    rows.sensor[:, VIEW_AREA] = (scenario.of_each_sensor("sensing_range") ** 2 * view)[:, None]
    rows.sensor[:, TURN] = turn[:, None]
    rows.sensor[:, COS_TURN] = np.cos(np.radians(turn))[:, None]
    rows.sensor[:, SIN_TURN] = np.sin(np.radians(turn))[:, None]
    if rows.rails is not None:
        rows.sensor[:, RAIL_LENGTH] = rows.rails.length[:, None]
    rows.disc[: len(scenario.discs)] = np.array(scenario.discs, np.float64).reshape(-1, 3, 1)
    return rows


def _check_memory(scenario: Scenario, num_envs: int) -> None:
    """Raise MemoryError if the arrays of all pairs need more memory than the machine has."""
    n, m, of_pair = scenario.num_sensors, scenario.num_targets, 1.0
    if scenario.knowledge != "full":
        of_pair += 1.0 + 43.0 / (n if scenario.knowledge == "shared" else 1)
    if scenario.knowledge == "neighbours":
        of_pair += 32.0 * scenario.message_delay
    needed = of_pair * n * m * num_envs
    if hasattr(os, "sysconf") and needed > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise MemoryError(
            f"{num_envs} scenes of {n} sensors and {m} targets with knowledge {scenario.knowledge!r} need "
            f"{needed / 2**30:.1f} GB, more than this machine has"
        )


def _grid(scenario: Scenario, walls: np.ndarray, discs: int, b: int) -> Grid:
    n, m = scenario.num_sensors, scenario.num_targets
    cells = make_cells(scenario, max(n, m))
    starts = b, cells.columns * cells.rows + 2
    wall_start, wall = sort_walls(cells, walls)
    return Grid(
        cells=cells,
        start=np.zeros(starts, np.int32),
        target=np.zeros((b, m), np.int32),
        target_x=np.zeros((b, m)),
        target_y=np.zeros((b, m)),
        disc_start=np.zeros(starts, np.int32),
        disc=np.zeros((b, discs), np.int32),
        disc_x=np.zeros((b, discs)),
        disc_y=np.zeros((b, discs)),
        wall_start=wall_start,
        wall=wall,
        seen=np.zeros((b, n, SEEN_LISTED), np.int32),
        num_seen=np.zeros((b, n), np.int32),
        seer=np.full((b, m), -1, np.int32),
    )


def _knowledge(scenario: Scenario, b: int) -> Knowledge:
    n, m = scenario.num_sensors, scenario.num_targets
    rows = 1 if scenario.knowledge == "shared" else n
    slots, words = (scenario.message_delay, (n - 1) // 64 + 1) if scenario.knowledge == "neighbours" else (0, 0)
    return Knowledge(
        known=np.zeros((rows, m, 5, b)),
        seeing=np.zeros((rows, m, b), np.int16),
        left=np.zeros((rows, m, b), np.bool_),
        noticed=np.zeros((n, m, b), np.bool_),
        reported=np.zeros((slots, m, words, b), np.uint64),
        report=np.zeros((slots, n, m, 4, b)),
        seers=np.zeros((m, words, b), np.uint64),
        heard=np.zeros((n, words, b), np.uint64),
    )


def _parameters(scenario: Scenario) -> np.ndarray:
    """Return the kernels' form of `scenario`, an array (1,) of :data:`PARAMETERS`."""
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
        "extra_move_every": scenario.extra_move_interval,
        "hops": scenario.hops if scenario.knowledge == "neighbours" else 0,
    }
    values = np.zeros(1, PARAMETERS)
    for name in PARAMETERS.names or ():
        values[name] = changed[name] if name in changed else getattr(scenario, name)
    return values


def checked_places(name: str, places: np.ndarray, scenario: Scenario, rows: KernelState) -> np.ndarray:
    """Return `places`, headings within their limits; raise ValueError for one that cannot be.

    It may not be outside the arena or off a sensor's rail, a heading not beyond its limits. NaN is for targets only:
    one that is not there.
    """
    finite = np.isfinite(places)
    if name.startswith("target_"):
        absent = np.isnan(places).all(-1)
        finite |= absent[..., None]
        if absent.any() and scenario.leave_rate > 0:
            raise ValueError(
                f"{name} holds nan; with a leave_rate ({scenario.leave_rate:g}) every number must be finite"
            )
    if not finite.all():
        raise ValueError(f"{name} holds {places[~finite][0]}; every number must be finite")
    if name == "sensor_position" and rows.rails is not None:
        raise ValueError("sensor_position is given; the sensors are on rails, give along")
    if name == "along" and rows.rails is None:
        raise ValueError("along is given; the sensors are on no rails, give sensor_position")
    if name == "along" and rows.rails is not None:
        if (wrong := (places < 0) | (places > rows.rails.length)).any():
            raise ValueError(f"along holds {places[wrong][0]:g}; it must be from 0 to the length of the rail")
    elif name == "heading":
        return places if rows.mounts is None else _within_limits(places, rows.mounts.limit)
    elif (wrong := np.abs(places) > scenario.extent).any():
        raise ValueError(f"{name} holds {places[wrong][0]:g}; the arena is {scenario.arena_words}")
    return places


def _within_limits(headings: np.ndarray, limit: np.ndarray) -> np.ndarray:
    headings = within(headings, limit)
    if (wrong := outside(headings, limit)).any():
        low, high = np.broadcast_to(limit, (*headings.shape, 2))[wrong][0]
        raise ValueError(f"heading holds {headings[wrong][0]:g}; it must be within the pan_limits {low:g} to {high:g}")
    return headings


def no_tracks(num_envs: int, num_targets: int) -> Tracks:
    """Return tracks that no scene follows."""
    places, none = np.zeros((num_envs, 0, num_targets, 2)), np.zeros(num_envs, np.int64)
    return Tracks(places, none, none.copy(), np.zeros(num_envs, np.bool_))


def with_tracks(old: Tracks, positions: np.ndarray, chosen: np.ndarray, extra: bool) -> Tracks:
    """Return tracks with which the chosen scenes follow `positions` (B, K, m, 2); the others keep theirs.

    With `extra`, the positions are those after each move, extra moves included.
    """
    b, length, m, _ = positions.shape
    kept = old.track_position[:, : int(old.track_length.max())]
    merged = np.zeros((b, max(length, kept.shape[1]), m, 2))
    merged[:, : kept.shape[1]] = kept
    merged[chosen, :length] = positions[chosen]
    own = length, 0, extra
    return Tracks(merged, *(np.where(chosen, new, was) for new, was in zip(own, old[1:], strict=True)))


def check_state(state: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray], rows: KernelState) -> None:
    """Raise ValueError unless `state` can replace `own`, the whole state of a simulator with the arrays `rows`."""
    if set(state) != set(own):
        raise ValueError(f"a state must have the names {', '.join(own)}; got {', '.join(map(str, state))}")
    for name, array in own.items():
        given, shape = np.shape(state[name]), array.shape
        if name == "track_position" and len(given) == 4:  # of any length
            shape = (shape[0], given[1], *shape[2:])
        if given != shape:
            raise ValueError(f"state {name!r} has shape {given}; it must be {shape}")
        if np.asarray(state[name]).dtype != array.dtype:
            raise ValueError(f"state {name!r} is {np.asarray(state[name]).dtype}; it must be {array.dtype}")
        endless = name in ("places", "known_age")
        holed = name == "track_position"  # NaN: not there
        if (np.isnan(state[name]).any() and not holed) or not (endless or holed or np.isfinite(state[name]).all()):
            raise ValueError(f"state {name!r} holds a number that is not finite")
    _, n, m = own["visible"].shape
    length = np.shape(state["track_position"])[1]
    limits = {
        "num_sensors": (1, n),
        "num_targets": (1, m),
        "field_of_view": (1e-9, 360),
        "along": (0, 0.0 if rows.rails is None else rows.rails.length.max()),
        "track_length": (0, length),
        "track_moves": (0, length),
    }
    if rows.recordings is not None:
        last = len(rows.recordings.place) - 1
        limits |= {"recording_row": (0, last), "recording_end": (0, last)}
    for name, (low, high) in limits.items():
        if ((state[name] < low) | (state[name] > high)).any():
            raise ValueError(f"state {name!r} holds a number that is not from {low} to {high}")
    if rows.mounts is not None and outside(np.asarray(state["heading"]), rows.mounts.limit).any():
        raise ValueError("state 'heading' holds a number that is not within the pan_limits")
