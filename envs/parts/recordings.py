"""Recorded tracks that targets follow instead of walking, from CSV files or given by users.

A file has the columns time, id, x and y, and is resampled to the sub-steps of a scenario. The kernels are compiled by
numba.
"""

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base.compile import inlined
from hitmac.envs.base.state import NUM_TARGETS, VELOCITY_X, VELOCITY_Y, X, Y
from hitmac.envs.base.streams import draw_integer
from hitmac.envs.files import read_table
from hitmac.envs.parts import arena


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of recorded tracks."""

    tracks: tuple[str, ...] | str = ()
    """CSV files of recorded tracks that the targets follow instead of walking, with the columns time, id, x and y; an
    episode follows one of them. One file or a list; relative to the YAML file; empty: targets walk."""
    columns: str = ""
    """Names of these columns in files with others, such as time=t,id=track; their numbers in files without a header,
    time=1,id=2,x=3,y=4."""
    past_tracks: tuple[str, ...] | str = ()
    """CSV files of earlier tracks, from which planners and beliefs learn how targets move; empty: `tracks`."""

    def _rules_of_recordings(self: Any) -> validation.Rules:
        for name in ("min_targets", "leave_rate"):
            yield name, not (self.tracks and getattr(self, name)), "0 with tracks, in which targets come and go"
        yield "walk", self.walk != "recorded" or self.tracks, "recorded only with tracks"
        fits = columns_of(self.columns)
        yield "columns", fits, "such as time=t,id=track, with different columns for time, id, x and y"


class Paths(NamedTuple):
    """Positions that the targets of a batch follow instead of walking.

    The scenes are along the first axis.
    """

    track_position: np.ndarray  # (B, K, m, 2) positions after each sub-step or move; NaN: absent
    track_length: np.ndarray  # (B,) int64: number of positions that the scene follows; 0: its targets walk
    track_moves: np.ndarray  # (B,) int64: number of positions followed so far
    track_extra: np.ndarray  # (B,) bool: the positions follow each move, extra moves included


class Recordings(NamedTuple):
    """Recordings of the scenario, resampled to sub-steps; an episode follows one of F files from one of its rows.

    The rows of all files are concatenated.
    """

    place: np.ndarray  # (R, m, 2); NaN: the target is absent
    first: np.ndarray  # (F,) int64 first row of each file
    last: np.ndarray  # (F,) int64 last row of each file
    row: np.ndarray  # (B,) int64 current row of the scene
    end: np.ndarray  # (B,) int64 last row of the scene's file


PATHS = ("target_tracks", "target_moves")
"""Names of recorded positions after every sub-step, and after every move, extra moves included."""


COLUMNS = ("time", "id", "x", "y")
MOST_POSITIONS = 5_000_000
"""Most positions of a file after it is resampled: of the most targets at once, as long as it lasts."""

LATEST = 1e11
"""Seconds over which a time is refused: it is in milliseconds since 1970."""

GAP = 1.5
"""A target is absent between two of its rows that are more than GAP times the file's median interval apart."""


class Track(NamedTuple):
    """Track of one target, at the sub-steps `first`, `first` + 1, ... of its file."""

    first: int
    place: np.ndarray  # (K, 2); NaN: absent; the first and the last are numbers


class Recording(NamedTuple):
    """File of recorded tracks, resampled."""

    path: str
    start: float  # seconds, of sub-step 0
    length: int  # number of positions: sub-steps + 1
    tracks: tuple[Track, ...]  # in the order of their first sub-steps


def make_recordings(scenario: Any, num_envs: int) -> Recordings:
    """Read the files of a scenario's `tracks` for the kernels; see :func:`read_recording` for errors."""
    places = [_places(recording, scenario) for recording in recordings(scenario, scenario.tracks)]
    lengths = np.array([len(place) for place in places])
    last = np.cumsum(lengths) - 1
    return Recordings(np.concatenate(places), last - lengths + 1, last, *np.zeros((2, num_envs), np.int64))


def shortest_recording(scenario: Any) -> int:
    """Return the number of sub-steps of the shortest file of a scenario's `tracks`."""
    return min(recording.length - 1 for recording in recordings(scenario, scenario.tracks))


def recordings(scenario: Any, paths: Sequence[str]) -> Iterator[Recording]:
    """Yield files of tracks, resampled for a scenario."""
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"no file of tracks {path}; the option --tracks, or the parameter tracks, names others"
            )
        stamp = os.stat(path)
        yield read_recording(path, scenario.time_step, scenario.columns, stamp.st_mtime_ns, stamp.st_size)


def columns_of(text: str) -> dict[str, str] | None:
    """Return the columns of time, id, x and y from a text such as ``time=t,id=track``; None for another form."""
    given = [part.partition("=") for part in text.lower().split(",") if text]
    named = dict(zip(COLUMNS, COLUMNS, strict=True)) | {name.strip(): column.strip() for name, _, column in given}
    once = len({name.strip() for name, *_ in given}) == len(given)
    return named if once and tuple(named) == COLUMNS and len({*named.values()} - {""}) == len(COLUMNS) else None


@functools.lru_cache(maxsize=64)
def read_recording(path: str, time_step: float, columns: str = "", changed: int = 0, size: int = 0) -> Recording:
    """Read a CSV file of tracks and resample it linearly, every `time_step` seconds from its first row.

    The file is a table, see :func:`hitmac.envs.files.read_table`, of any columns in any order; others are ignored.
    Times are seconds, or ISO 8601 with or without a zone. A target is absent where x and y are empty or NaN, and in
    gaps of :data:`GAP` times the median interval. For `columns` see :attr:`hitmac.envs.Scenario.columns`. A file is
    read again after its time of change (`changed`) or its `size` differs.

    Raises ``ValueError``, which names the file, the line and the column, or ``OSError`` for a file that cannot be read.
    """
    rows = read_rows(path, columns_of(columns) or {})
    ordered = [np.array([(time, *place) for time, place in sorted(track.items())]) for track in rows.values()]
    seen = [track[np.isfinite(track[:, 1]), 0] for track in ordered]
    if not any(map(len, seen)):
        raise ValueError(f"{path} has no row with a position")
    first, last = np.array([times[[0, -1]] for times in seen if len(times)]).T
    start, end = float(first.min()), float(last.max())
    at_once = (np.sort(first).searchsorted(first, "right") - np.sort(last).searchsorted(first - time_step)).max()
    sub_steps = (end - start) / time_step
    if sub_steps < 1 or sub_steps * at_once > MOST_POSITIONS:
        raise ValueError(
            f"{path} lasts {end - start:g} s with up to {at_once} targets at once; it must last at least a time_step "
            f"({time_step:g} s), and have at most {MOST_POSITIONS:,} positions, one for each of these and time_step"
        )
    rounding = 1e-6 * time_step + 2.0 * float(np.spacing(max(abs(start), abs(end))))  # seconds since 1970 are coarse
    length = int((end - start + rounding) / time_step) + 1
    intervals = np.concatenate([np.diff(track[:, 0]) for track in ordered])
    longest = GAP * float(np.median(intervals)) if len(intervals) else 0.0
    tracks = []
    for track, times in zip(ordered, seen, strict=True):
        low, high = ((times[[0, -1]] - start) / time_step).astype(int) if len(times) else (0, 0)
        own = np.arange(max(low - 1, 0), min(high + 2, length))  # sub-steps, and one for rounding on either side
        place = _resampled(track, start + time_step * own, longest, rounding)
        there = np.flatnonzero(np.isfinite(place[:, 0]))
        if len(there):
            tracks.append(Track(int(own[there[0]]), place[there[0] : there[-1] + 1]))
    tracks.sort(key=lambda track: track.first)
    return Recording(path, start, length, tuple(tracks))


def read_rows(path: str, columns: dict[str, str]) -> dict[str, dict[float, tuple[float, float]]]:
    """Return the position at every time of every id of a file as it is, not resampled; an absent one is NaN."""
    tracks: dict[str, dict[float, tuple[float, float]]] = {}
    kinds: set[str] = set()
    rows = read_table(path)
    line, first = next(rows, (1, [""]))
    header = [name.lower() for name in first]
    if not set(columns.values()) <= set(header) and set(COLUMNS) <= set(header):  # earlier tracks of a site
        columns = dict(zip(COLUMNS, COLUMNS, strict=True))
    shown = {name: name if name == column else f"{name} (column {column})" for name, column in columns.items()}
    if all(map(str.isdecimal, columns.values())):  # no header
        header, rows = [str(1 + k) for k in range(len(header))], chain([(line, first)], rows)
    if any(header.count(column) != 1 for column in columns.values()):
        *some, last = columns.values()
        raise ValueError(
            f"{path}, line {line}: the header is {', '.join(header)!r}; it must name {', '.join(some)} and {last} once "
            "each; the option --columns, or the parameter columns, names others, as in time=t,id=track, or numbers "
            "those of a file without a header: time=1,id=2,x=3,y=4"
        )
    places = {name: header.index(column) for name, column in columns.items()}
    for line, row in rows:
        try:
            if len(row) != len(header):
                raise ValueError(f"it has {len(row)} fields; line 1 has {len(header)}")
            fields = {name: row[place] for name, place in places.items()}
            time, kind = _seconds(shown["time"], fields["time"])
            x, y = (_number(shown[name], fields[name]) for name in ("x", "y"))
            kinds.add(kind)
            if len(kinds) > 1:
                raise ValueError(f"{shown['time']} is {fields['time']!r}, {kind}; earlier lines have another form")
            if not fields["id"]:
                raise ValueError(f"{shown['id']} is empty; every row must name its target")
            if math.isnan(x) != math.isnan(y):
                given = (f"{shown[name]} is {fields[name] or 'empty'}" for name in ("x", "y"))
                raise ValueError(f"{' and '.join(given)}; give both or neither")
            track = tracks.setdefault(fields["id"], {})
            if time in track:
                raise ValueError(f"target {fields['id']} has a row at {shown['time']} {fields['time']} already")
            track[time] = x, y
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
    return tracks


def _seconds(name: str, text: str) -> tuple[float, str]:
    """Return a time in seconds, of a date since 1970, and its form in words."""
    seconds, form = math.nan, "in seconds"
    try:
        seconds = float(text)
    except ValueError:
        with contextlib.suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(text)
            form = "a date without a zone" if moment.tzinfo is None else "a date with a zone"
            seconds = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()
    if not abs(seconds) < LATEST:
        raise ValueError(f"{name} is {text!r}; it must be in seconds, or a date such as 2026-03-01T12:00:00.5Z")
    return seconds, form


def _number(name: str, text: str) -> float:
    try:
        number = float(text or "nan")
    except ValueError:
        number = math.inf
    if math.isinf(number):
        raise ValueError(f"{name} is {text!r}; it must be a finite number")
    return number


def _resampled(track: np.ndarray, times: np.ndarray, longest: float, rounding: float) -> np.ndarray:
    """Return positions (K, 2) at `times` (K,) from rows (R, 3) of time, x, y; NaN outside the rows and in gaps."""
    place = np.full((len(times), 2), np.nan)
    seen = np.isfinite(track[:, 1])
    apart = np.flatnonzero(~(seen[1:] & seen[:-1]) | (np.diff(track[:, 0]) > longest * (1 + 1e-9))) + 1
    for part in np.split(track, apart):
        if np.isfinite(part[0, 1]):
            low = np.searchsorted(times, part[0, 0] - rounding)
            high = np.searchsorted(times, part[-1, 0] + rounding, "right")
            for axis in range(2):
                place[low:high, axis] = np.interp(times[low:high], part[:, 0], part[:, 1 + axis])
    return place


def most_at_once(scenario: Any) -> int:
    """Return the number of slots that a scenario's `tracks` need: the most targets at once in any of the files."""
    return max(1 + max(_slots(recording)) for recording in recordings(scenario, scenario.tracks))


def _slots(recording: Recording) -> list[int]:
    """Return the slot of each target of a recording, the first that is free.

    At least one sub-step separates two targets of a slot, so that a change shows as an absence.
    """
    slots: list[int] = []
    free_from: list[int] = []  # sub-step from which each slot is free
    for track in recording.tracks:
        slot = next((k for k, free in enumerate(free_from) if free <= track.first), len(free_from))
        free_from[slot : slot + 1] = [track.first + len(track.place) + 1]
        slots.append(slot)
    return slots


def _places(recording: Recording, scenario: Any) -> np.ndarray:
    """Return the positions (K, m, 2) of a recording's targets in the scenario's m slots."""
    m, slots = scenario.num_targets, _slots(recording)
    if (most := 1 + max(slots)) > m:
        raise ValueError(
            f"{recording.path} has up to {most} targets at once, counting absences between; num_targets is {m}, it "
            f"must be {most} or more"
        )
    places = np.full((recording.length, m, 2), np.nan)
    for track, slot in zip(recording.tracks, slots, strict=True):
        places[track.first : track.first + len(track.place), slot] = track.place
    if (wrong := np.abs(places) > scenario.extent).any():
        k, slot, axis = np.argwhere(wrong)[0]
        raise ValueError(
            f"{recording.path} has a target at {'xy'[axis]} = {places[k, slot, axis]:g} at "
            f"{k * scenario.time_step:g} s after its start; the arena is {scenario.arena_words}"
        )
    return places


def no_paths(num_envs: int, num_targets: int) -> Paths:
    """Return paths that no scene follows."""
    places, none = np.zeros((num_envs, 0, num_targets, 2)), np.zeros(num_envs, np.int64)
    return Paths(places, none, none.copy(), np.zeros(num_envs, np.bool_))


def with_paths(old: Paths, positions: np.ndarray, chosen: np.ndarray, extra: bool) -> Paths:
    """Return paths in which the chosen scenes follow `positions` (B, K, m, 2), and the others keep theirs.

    With `extra`, the positions follow each move, extra moves included.
    """
    b, length, m, _ = positions.shape
    kept = old.track_position[:, : int(old.track_length.max())]
    merged = np.zeros((b, max(length, kept.shape[1]), m, 2))
    merged[:, : kept.shape[1]] = kept
    merged[chosen, :length] = positions[chosen]
    new = {"track_length": length, "track_moves": 0, "track_extra": extra}
    return Paths(merged, **{name: np.where(chosen, value, getattr(old, name)) for name, value in new.items()})


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`."""
    return {"recordings": make_recordings(scenario, num_envs) if scenario.tracks else None}


@inlined
def _go_to(state, p, b, j, x, y):
    """Move target j of scene b to (x, y); with NaN, it is absent and keeps its place.

    Only the recordings and paths decide which targets are present, unless the scenario has a `leave_rate`.
    """
    here = not math.isnan(x)
    before_x, before_y = state.target[j, X, b], state.target[j, Y, b]
    comes = False
    if p.leave_rate == 0.0:
        comes = here and not state.present[j, b] and j < state.scene[NUM_TARGETS, b]
        state.present[j, b] = here and (comes or state.present[j, b])
    state.target[j, X, b] = x if here else before_x
    state.target[j, Y, b] = y if here else before_y
    goes = here and not comes
    state.target[j, VELOCITY_X, b] = (x - before_x) / p.time_step if goes else 0.0
    state.target[j, VELOCITY_Y, b] = (y - before_y) / p.time_step if goes else 0.0


@inlined
def begin_recording(state, p, recordings, b):
    """Draw a file and a start row for an episode of scene b, and place its targets.

    The start leaves as many rows as the episode has sub-steps, if the file is long enough; an episode without a length
    starts at the first row.
    """
    if recordings is not None:
        file = int(draw_integer(state.stream, b, 0, recordings.first.shape[0] - 1))
        first, last = recordings.first[file], recordings.last[file]
        latest = max(first, last - p.episode_steps) if p.episode_steps > 0 else first
        row = int(draw_integer(state.stream, b, first, latest))
        recordings.row[b], recordings.end[b] = row, last
        for j in range(state.target.shape[0]):
            state.present[j, b] = False
            _go_to(state, p, b, j, recordings.place[row, j, 0], recordings.place[row, j, 1])


@inlined
def follow_recording(state, p, recordings, b):
    """Move every target of scene b to the next row of its file; after the last row, it stays."""
    recordings.row[b] = min(recordings.row[b] + 1, recordings.end[b])
    row = recordings.row[b]
    for j in range(state.target.shape[0]):
        _go_to(state, p, b, j, recordings.place[row, j, 0], recordings.place[row, j, 1])


@inlined
def follow_path(state, p, paths, b):
    """Move every target of scene b to its next position of its path; return False if the scene has none."""
    if paths is None or paths.track_length[b] == 0:
        return False
    move = paths.track_moves[b]
    if move < paths.track_length[b]:
        for j in range(state.target.shape[0]):
            _go_to(state, p, b, j, paths.track_position[b, move, j, 0], paths.track_position[b, move, j, 1])
        paths.track_moves[b] = move + 1
    else:
        for j in range(state.target.shape[0]):
            state.target[j, VELOCITY_X, b] = 0.0
            state.target[j, VELOCITY_Y, b] = 0.0
    return True


@inlined
def leave_out_followers(state, paths, first, last):
    """Clear `scratch_mask` for the scenes that follow paths without extra moves."""
    if paths is not None:
        for b in range(first, last):
            state.scratch_mask[b] &= (paths.track_length[b] == 0) | paths.track_extra[b]
