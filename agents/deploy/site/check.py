"""Checks of a site: a picture of its plan, views and recordings, what no camera can see, and what is odd."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.deploy.run.cameras import names_of
from hitmac.agents.evaluate.figures import new_figure, write_figure
from hitmac.envs.deployment import observe
from hitmac.envs.parts.recordings import GAP, columns_of, read_rows
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator

CLOSE = 0.05
"""Metres from a wall within which a camera is in it."""

REUSED = 60.0
"""Seconds of absence after which an id may be another target's."""

HIDDEN = 0.002
"""Share of what is in its range that a camera must see more of; one that faces out of the area sees a corner."""

_CELLS = 300  # along the longer side of the area
_AT_ONCE = 20_000  # points
_MOST_STEPS = 30  # between two limits of tilt or zoom
_MOST = 500_000  # recorded positions that are looked at, evenly spaced


class Recorded(NamedTuple):
    """Rows of a file of recorded positions, in the order of their targets and times."""

    path: str
    ids: list[str]
    owner: np.ndarray  # (R,) place of the target in ids
    time: np.ndarray  # (R,) seconds
    place: np.ndarray  # (R, 2); NaN: absent

    def at(self, k: int) -> str:
        """Return the target and the time of a row, for messages."""
        return f"target {self.ids[self.owner[k]]} at {self.time[k]:.10g} s"

    def intervals(self) -> np.ndarray:
        """Return the time from each row to the next of the same target (R - 1,); NaN where there is none."""
        same = (self.owner[1:] == self.owner[:-1]) & np.isfinite(self.place[1:] + self.place[:-1]).all(1)
        return np.where(same, np.diff(self.time), np.nan)


def read_recorded(path: str, columns: str = "") -> Recorded:
    """Read a file of recorded positions as it is, see :func:`hitmac.envs.parts.recordings.read_rows`."""
    rows = read_rows(path, columns_of(columns) or {})
    flat = np.array([(k, time, *at) for k, track in enumerate(rows.values()) for time, at in sorted(track.items())])
    flat = flat.reshape(-1, 4)
    return Recorded(path, list(rows), flat[:, 0].astype(np.int64), flat[:, 1], flat[:, 2:])


def proposed(files: Sequence[Recorded]) -> tuple[float, float]:
    """Return the time_step and the max_speed that recorded positions suggest.

    The `time_step` is the median interval, or a multiple or a part of it from 0.1 to 0.5 s; the `max_speed` is the
    99.9th percentile of the speeds over half a second, or over one interval if that is longer.
    """
    intervals = np.concatenate([file.intervals() for file in files])
    median = float(np.median(intervals[np.isfinite(intervals)])) if np.isfinite(intervals).any() else math.inf
    rows, speeds = max(1, round(0.5 / median)), []
    for file in files:
        time = file.time[rows:] - file.time[:-rows]
        same = (file.owner[rows:] == file.owner[:-rows]) & (time <= GAP * rows * median)
        speed = np.linalg.norm(file.place[rows:] - file.place[:-rows], axis=1)[same] / time[same]
        speeds += speed[np.isfinite(speed)].tolist()
    if not speeds:
        raise ValueError(f"{files[0].path} has no target that is present for half a second; ids must not change")
    step = median * math.ceil(0.1 / median) if median < 0.1 else median / math.ceil(median / 0.5)
    return round(step, 6), float(f"{np.quantile(speeds, 0.999):.2g}")


def visible(scenario: Scenario, points: np.ndarray) -> np.ndarray:
    """Return a mask (n, k) of the points (k, 2) that each camera can ever see by turning, tilting and zooming."""
    place, heading = scenario.sensor_positions, np.zeros(n := scenario.num_sensors)
    bare = vars(scenario) | {"walls": (), "blocks": (), "discs": ()}  # they hide the same at all tilts and zooms

    def seen(site: Any, feature: str, block: np.ndarray, **pose: Any) -> np.ndarray:
        return observe(site, (feature,), place, heading, block, **pose)["pairs"][..., 0] != 0.0

    found = []
    for block in np.array_split(points, range(_AT_ONCE, len(points), _AT_ONCE)):
        ever = np.zeros((n, len(block)), np.bool_)
        for tilt in _levels(scenario.tilt_limits, scenario.tilt_step, n):
            for view in _levels(scenario.zoom, scenario.zoom_step, n):
                ever |= seen(bare, "seen_if_turned", block, tilt=tilt, field_of_view=view)
        found.append(ever & seen(scenario, "in_sight", block))
    return np.concatenate(found, -1)


def _levels(limits: Any, step: float, n: int) -> Iterable[Any]:
    """Return values (L, n) of n cameras from their lower to their higher limits, about a `step` apart; else [None]."""
    if not limits:
        return [None]
    low, high = np.broadcast_to(limits, (n, 2)).T
    return np.linspace(low, high, 1 + min(math.ceil((high - low).max() / step), _MOST_STEPS))


def check(scenario: Scenario, to: Path) -> tuple[list[str], list[str]]:
    """Draw a site and its recordings as a PNG file; return facts about them, and what is odd, as lines of text.

    Raises ``ValueError`` unless the cameras have fixed places.
    """
    if scenario.placement != "fixed":
        raise ValueError(f"placement is {scenario.placement}; a site requires fixed, with sensor_positions")
    files = [read_recorded(path, scenario.columns) for path in scenario.tracks]
    half, walls, reaches = np.array(scenario.extent), scenario.all_walls, scenario.of_each_sensor("sensing_range")
    cell = 2 * half.max() / _CELLS
    x, y = (np.arange(-side + cell / 2, side, cell) for side in half)
    grid = np.stack(np.meshgrid(x, y), -1)  # (rows, columns, 2)
    seen = visible(scenario, grid.reshape(-1, 2))
    never = ~np.logical_or.reduce(seen)
    facts, odd = [f"no camera can ever see {never.mean():.1%} of the area"], list[str]()
    if files:
        recorded = np.concatenate([file.place[np.isfinite(file.place[:, 0])] for file in files])
        hidden = ~visible(scenario, recorded[:: 1 + len(recorded) // _MOST]).any(0)
        facts[0] += f" and {hidden.mean():.1%} of the recorded positions"
        facts.append("proposed: time_step: {:g}, max_speed: {:g}".format(*proposed(files)))
    for i, (place, reach) in enumerate(zip(np.array(scenario.sensor_positions), reaches, strict=True)):
        name = f"camera {names_of(scenario)[i]}"
        start, run = walls[:, :2] - place, walls[:, 2:] - walls[:, :2]
        along = np.clip(-(start * run).sum(1) / np.maximum((run**2).sum(1), 1e-12), 0.0, 1.0)
        away = np.linalg.norm(start + along[:, None] * run, axis=1).min(initial=np.inf)
        if away < CLOSE:
            odd.append(f"{name} is {away:.3f} m from a wall, which hides its view; mount it {CLOSE} m away or more")
        if seen[i].sum() <= HIDDEN * (np.linalg.norm(grid - place, axis=-1) <= reach).sum():
            odd.append(f"{name} sees nothing: walls hide what is in its range, or its limits lead out of the area")
    for file in files:
        odd += _of_file(scenario, file)
    _draw(to, scenario, files, never.reshape(grid.shape[:2]), facts[0])
    return facts, odd


def _of_file(scenario: Scenario, file: Recorded) -> list[str]:
    """Return what is odd about recorded positions."""
    intervals, start, end = file.intervals(), file.place[:-1], file.place[1:]
    median = float(np.nanmedian(intervals)) if np.isfinite(intervals).any() else np.nan
    speed = np.linalg.norm(end - start, axis=1) / intervals
    near = intervals <= GAP * median
    through, moves = np.zeros(len(intervals), bool), np.flatnonzero(near)
    clear = observe(scenario, ("in_sight",), start[moves, None], np.zeros((len(moves), 1)), end[moves, None])["pairs"]
    through[moves] = clear[:, 0, 0, 0] == 0.0
    fastest = 2 * scenario.top_speed
    found = (
        (through, "moves through walls"),
        (near & (speed > fastest), f"moves faster than {fastest:.3g} m/s, twice the speed of the scenario"),
        (~(near | (intervals > REUSED)) & np.isfinite(intervals), f"time steps jump, over {GAP} times {median:g} s"),
        (intervals > REUSED, f"ids return after more than {REUSED:g} s, perhaps as other targets"),
        ((np.abs(file.place) > scenario.extent).any(1), f"positions outside the area, {scenario.arena_words}"),
    )
    return [f"{file.path}: {mask.sum():,} {words}; first of {file.at(int(mask.argmax()))}"
            for mask, words in found if mask.any()]  # fmt: skip


def _draw(to: Path, scenario: Scenario, files: list[Recorded], never: np.ndarray, title: str) -> None:
    still = scenario.replace(tracks=(), past_tracks=(), walk="goals") if files else scenario  # tracks may be outside
    simulator = Simulator(still, seed=0)
    simulator.state.present[:] = False
    picture, (width, height) = Picture(still, 1000), scenario.extent
    figure = new_figure((9.0, 9.0 * picture.shape[0] / picture.shape[1] + 0.3), title)
    axis = figure.add_subplot()
    left, right, bottom, top = picture.extent
    axis.imshow(picture.draw(simulator, 0, caption=""), extent=(left, right, bottom, top))
    shade = np.where(never[..., None], (208, 57, 43, 50), 0).astype(np.uint8)
    axis.imshow(shade, extent=(-width, width, -height, height), origin="lower", interpolation="nearest")
    for file in files:
        line = np.insert(file.place, np.flatnonzero(np.diff(file.owner)) + 1, np.nan, axis=0)
        axis.plot(*line.T, color="#228b4a", lw=0.5, alpha=0.4)
    axis.set(xlim=(left, right), ylim=(bottom, top), xlabel="x, m", ylabel="y, m")
    write_figure(to, figure)
