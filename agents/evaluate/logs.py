"""Logs of ``hitmac run``: their form, and metrics of a run."""

import itertools
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.evaluate.statistics import mean_of, ratio
from hitmac.agents.evaluate.tracking import Tracking
from hitmac.envs.deployment import observe
from hitmac.envs.parts.recordings import read_recording
from hitmac.envs.scenario import Scenario, from_portable

FORMAT, VERSION = "hitmac-run", 1
ENDING = ".jsonl"
_AT_ONCE = 256  # steps


class Run(NamedTuple):
    """Logged run of F steps."""

    agent: str
    scenario: Scenario
    heading: np.ndarray  # (F, n) degrees, NaN: the camera does not answer
    view: np.ndarray  # (F, n) degrees
    orders: np.ndarray  # (F, n) degrees per second, NaN: none
    time: np.ndarray  # (F,) Unix seconds
    covered: np.ndarray  # (F,) expected share of the targets in view, NaN: no tracks
    latency: np.ndarray  # (F,) milliseconds from the last scan to the orders
    tracks: list[np.ndarray]  # F times (k, 7): x, y, the covariance xx, xy, yy, existence, id
    detections: list[np.ndarray]  # F times (k, 3): camera, x, y; k = 0 if they were not logged
    tilt: np.ndarray  # (F, n) degrees; (F, 0): the cameras do not tilt
    paused: np.ndarray  # (F,) 1 while people have paused the agent, else 0
    by_hand: np.ndarray  # (F, n) bool: people steer the camera
    left: np.ndarray  # (F, n) seconds until the agent has it back, NaN: no time is set
    rests: np.ndarray  # (F, n) bool: it is at its rest, or on its way there
    moves: np.ndarray  # (F, n) of the agent in the last hour
    messages: list[tuple[int, float, str]]  # step, time and text
    private: list[Any]  # polygons of the private zones


def read_log(path: str | Path) -> Run:
    """Read the log of a run; an unfinished last line, as after a power failure, is ignored.

    Raises ``ValueError``, which names the file and the line, for anything else that is not such a log.
    """
    with open(path, "rb") as file:
        steps = sum(line.endswith(b"\n") for line in file) - 1
    with open(path, "rb") as file:
        lines = enumerate(itertools.islice(file, 1 + steps), 1)
        number, first = next(lines, (1, b""))
        try:
            header = json.loads(first)
            if header[FORMAT] != VERSION:
                raise ValueError(f"{FORMAT} is {header[FORMAT]}; it must be {VERSION}")
            scenario = from_portable(header["scenario"], Path(path).parent)
            if not os.path.isfile(scenario.background):  # the log has moved
                scenario = scenario.replace(background="")
            n = scenario.num_sensors
            shapes = {
                "heading": (n,), "view": (n,), "orders": (n,), "time": (), "covered": (), "latency": (),
                "tilt": (n if scenario.tilt_limits else 0,), "paused": (), "moves": (n,),
            }  # fmt: skip
            absent: dict[str, Any] = {"detections": [], "tilt": [], "paused": 0, "by_hand": [], "left": [], "rests": []}
            found: dict[str, Any] = {name: np.empty((steps, *shape)) for name, shape in shapes.items()}
            found |= {"by_hand": np.zeros((steps, n), np.bool_), "rests": np.zeros((steps, n), np.bool_)}
            found |= {"left": np.full((steps, n), np.nan), "tracks": [], "detections": [], "messages": []}
            for number, line in lines:
                given, k = absent | json.loads(line), number - 2
                for name, shape in shapes.items():
                    found[name][k] = np.array(given[name], np.float64).reshape(shape)
                for name, columns in (("tracks", 7), ("detections", 3)):
                    found[name].append(np.array(given[name], np.float64).reshape(-1, columns))
                by_hand, rests = (np.array(given[name], np.int64) for name in ("by_hand", "rests"))
                found["by_hand"][k, by_hand], found["rests"][k, rests] = True, True
                found["left"][k, by_hand] = np.array(given["left"], np.float64)
                found["messages"] += [(k, float(given["time"]), str(text)) for text in given.get("messages", ())]
            polygons = [np.array(one, np.float64).reshape(-1, 2).tolist() for one in header.get("private", ())]
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise ValueError(f"{path}, line {number} is not that of a log of hitmac run: {error!r}") from None
    if steps < 1:
        raise ValueError(f"{path} has no step")
    return Run(header["agent"], scenario, **found | {"private": polygons, "moves": found["moves"].astype(np.int64)})


def evaluate_log(run: Run, truth: str | Path | None = None, columns: str = "") -> dict[str, float]:
    """Return the metrics of a run, means over its steps.

    - ``expected_coverage``: expected share of the targets of all tracks that are in view;
    - ``rotation``: share of (camera, step) with an order to turn; ``off``: share without an answer of the camera;
    - ``latency_ms``, ``latency_ms_99``, ``latency_ms_most``: median, 99th percentile and maximum of the time from the
      last scan of a step, or its deadline, to the orders;
    - with the `truth`, a CSV file of tracks on the clock of the run: ``coverage``, the share of the present targets in
      view; ``gospa``, ``missed``, ``false`` and ``switches`` as those of :func:`~hitmac.agents.evaluate.evaluate`.

    Raises ``ValueError`` for a `truth` without any step of the run.
    """
    found = {
        "expected_coverage": float(mean_of(run.covered, 0)),
        "rotation": float(mean_of(np.where(np.isnan(run.orders), np.nan, run.orders != 0.0).ravel(), 0)),
        "off": float(np.isnan(run.heading).mean()),
        "latency_ms": float(np.median(run.latency)),
        "latency_ms_99": float(np.quantile(run.latency, 0.99)),
        "latency_ms_most": float(run.latency.max()),
    }
    if truth is None:
        return found
    step = 0.25 * run.scenario.time_step
    recording = read_recording(str(truth), step, columns)
    row = np.rint((run.time - recording.start) / step).astype(np.int64)
    chosen = np.flatnonzero((row >= 0) & (row < recording.length))
    if not len(chosen):
        times = recording.start, recording.start + step * (recording.length - 1), run.time[0], run.time[-1]
        raise ValueError("{} is from {:.1f} to {:.1f} s; the run is from {:.1f} to {:.1f} s".format(truth, *times))
    tracking, coverage = Tracking(run.scenario, 1), []
    for part in np.array_split(chosen, range(_AT_ONCE, len(chosen), _AT_ONCE)):
        places = np.full((len(part), len(recording.tracks), 2), np.nan)
        for j, track in enumerate(recording.tracks):
            there = row[part] - track.first
            present = (there >= 0) & (there < len(track.place))
            places[present, j] = track.place[there[present]]
        sensors = run.scenario.sensor_positions
        given = run.scenario, ("visible",), sensors, run.heading[part], places
        lenses: dict[str, Any] = {"field_of_view": run.view[part]} if run.scenario.zoom else {}
        lenses |= {"tilt": run.tilt[part]} if run.scenario.tilt_limits else {}
        shown = observe(*given, **lenses)["pairs"][..., 0]
        coverage.append(ratio(shown.any(-2).sum(-1), (~np.isnan(places[..., 0])).sum(-1)))
        for now, k in zip(places, part, strict=True):
            tracks = run.tracks[k]
            near = -np.expm1(-(tracking.c**2) / np.maximum(tracks[:, 2] + tracks[:, 4], 1e-9))
            tracks = tracks[tracks[:, 5] * near >= 0.5]
            tracking.add(now[None], tracks[None, None, :, :2], tracks[None, None, :, 6].astype(np.int64))
    metrics = {name: float(values[0]) for name, values in tracking.metrics().items() if name != "localisation"}
    return found | {"coverage": float(mean_of(np.concatenate(coverage), 0)), **metrics}


def log_table(run: Run, metrics: Mapping[str, float]) -> str:
    """Return the metrics of a run as text."""
    minutes = (run.time[-1] - run.time[0]) / 60.0
    title = f"{run.agent}, {run.scenario.name}: {len(run.time)} steps, {minutes:.1f} minutes"
    shown = {name: "-" if math.isnan(value) else f"{value:.3f}" for name, value in metrics.items()}
    width = max(map(len, shown))
    return "\n".join([title, "", *(f"{name:<{width}}  {text}" for name, text in shown.items())])
