"""Logs of ``hitmac run``: their form, and metrics of a run."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.evaluate.statistics import mean_of
from hitmac.agents.evaluate.tracking import gospa, identity_switches
from hitmac.envs.deployment import observe
from hitmac.envs.recordings import read_recording
from hitmac.envs.scenario import Scenario, from_portable
from hitmac.envs.validation import shortly

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
    messages: list[tuple[float, str]]  # time and text


def read_log(path: str | Path) -> Run:
    """Read the log of a run; an unfinished last line, as after a power failure, is ignored.

    Raises ``ValueError``, which names the file and the line, for anything else that is not such a log.
    """
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    number, last, frames, messages = 1, -math.inf, [], []
    try:
        header = _mapping(lines[0] if lines else b"")
        if header.get(FORMAT) != VERSION:
            raise ValueError(f"it is not the header of a log, whose {FORMAT} is {VERSION}")
        scenario = from_portable(header["scenario"], Path(path).parent)
        if not os.path.isfile(scenario.background):  # the log has moved
            scenario = scenario.replace(background="")
        n = scenario.num_sensors
        for number, line in enumerate(lines[1:], 2):  # noqa: B007
            frame = {"detections": []} | _mapping(line)
            now = float(_numbers(frame, "time"))
            if not now > last:
                raise ValueError(f"time is {now}; it must be later than {last}, that of the line before")
            last = now
            frames.append(
                [_numbers(frame, name, n) for name in ("heading", "view", "orders")]
                + [_numbers(frame, name) for name in ("time", "covered", "latency")]
                + [_numbers(frame, name, -1, size) for name, size in (("tracks", 7), ("detections", 3))]
            )
            messages += [(now, str(text)) for text in frame.get("messages", ())]
    except KeyError as error:
        raise ValueError(f"{path}, line {number}: {error.args[0]} is missing") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    if not frames:
        raise ValueError(f"{path} has no step")
    heading, view, orders, time, covered, latency, *lists = zip(*frames, strict=True)
    arrays = map(np.array, (heading, view, orders, time, covered, latency))
    return Run(str(header["agent"]), scenario, *arrays, *map(list, lists), messages)  # type: ignore[call-arg, arg-type]


def _mapping(line: bytes) -> dict[str, Any]:
    """Return the mapping of a line."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ValueError("it is not a mapping in JSON")
    return given


def _numbers(frame: Mapping[str, Any], name: str, *shape: int) -> np.ndarray:
    """Return the numbers of a part of a frame, NaN for null; a size of -1 stands for any."""
    try:
        array = np.array(frame[name], np.float64)
        array = array if array.size else np.zeros([max(size, 0) for size in shape])
    except (ValueError, TypeError, OverflowError):
        array = np.array(np.inf)
    fits = len(shape) == array.ndim and all(map(lambda want, size: want in (-1, size), shape, array.shape))
    if not fits or np.isinf(array).any():
        words = " x ".join("any" if size < 0 else str(size) for size in shape)
        raise ValueError(f"{name} is {shortly(frame[name])}; it must be {f'{words} numbers' if words else 'a number'}")
    return array


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
        "expected_coverage": _mean(run.covered),
        "rotation": _mean(np.where(np.isnan(run.orders), np.nan, run.orders != 0.0)),
        "off": float(np.isnan(run.heading).mean()),
        "latency_ms": float(np.median(run.latency)),
        "latency_ms_99": float(np.quantile(run.latency, 0.99)),
        "latency_ms_most": float(run.latency.max()),
    }
    return found if truth is None else found | _compared(run, truth, columns)


def _mean(values: np.ndarray) -> float:
    return float(mean_of(values.reshape(1, -1), 1)[0])


def _compared(run: Run, truth: str | Path, columns: str) -> dict[str, float]:
    """Return the metrics against the true tracks."""
    step = 0.25 * run.scenario.time_step
    recording = read_recording(str(truth), step, columns)
    row = np.rint((run.time - recording.start) / step).astype(np.int64)
    chosen = np.flatnonzero((row >= 0) & (row < recording.length))
    if not len(chosen):
        times = recording.start, recording.start + step * (recording.length - 1), run.time[0], run.time[-1]
        raise ValueError("{} is from {:.1f} to {:.1f} s; the run is from {:.1f} to {:.1f} s".format(truth, *times))
    c = 0.1 * float(run.scenario.of_each_sensor("sensing_range").mean())
    last, coverage = np.full(len(recording.tracks), -1), []
    sums = np.zeros(4)  # gospa, missed, false, switches
    for part in np.array_split(chosen, range(_AT_ONCE, len(chosen), _AT_ONCE)):
        places = np.full((len(part), len(recording.tracks), 2), np.nan)
        for j, track in enumerate(recording.tracks):
            there = row[part] - track.first
            present = (there >= 0) & (there < len(track.place))
            places[present, j] = track.place[there[present]]
        sensors = np.broadcast_to(np.array(run.scenario.sensor_positions), (len(part), run.scenario.num_sensors, 2))
        shown = observe(run.scenario, ("visible",), sensors, run.heading[part], places)["pairs"][..., 0]
        present = ~np.isnan(places[..., 0])
        coverage += [
            np.where(present.any(-1), (shown.any(-2) & present).sum(-1) / np.maximum(present.sum(-1), 1), np.nan)
        ]
        for now, k in zip(places, part, strict=True):
            tracks = run.tracks[k]
            near = -np.expm1(-(c**2) / np.maximum(tracks[:, 2] + tracks[:, 4], 1e-9))
            tracks = tracks[tracks[:, 5] * near >= 0.5]
            total, _, missed, false = gospa(now, tracks[:, :2], c)
            switches, last = identity_switches(now, tracks[:, :2], tracks[:, 6].astype(np.int64), last, c)
            sums += float(total), float(missed) / (0.5 * c**2), float(false) / (0.5 * c**2), float(switches)
    means = dict(zip(("gospa", "missed", "false"), (sums[:3] / len(chosen)).tolist(), strict=True))
    return {"coverage": _mean(np.concatenate(coverage)), **means, "switches": sums[3]}


def log_table(run: Run, metrics: Mapping[str, float]) -> str:
    """Return the metrics of a run as text."""
    minutes = (run.time[-1] - run.time[0]) / 60.0
    title = f"{run.agent}, {run.scenario.name}: {len(run.time)} steps, {minutes:.1f} minutes"
    width = max(map(len, metrics))
    return "\n".join([title, "", *(f"{name:<{width}}  {value:.3f}" for name, value in metrics.items())])
