"""Recordings of other programs: MOTChallenge, SUMO, CSV, Frigate and DeepStream, as those of a scenario."""

import csv
import gzip
import json
import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from hitmac.agents.deploy.run.boxes import read_deepstream as boxes_of
from hitmac.agents.deploy.site.plan import number, reading
from hitmac.envs.files import read_table, read_text, whole_file
from hitmac.envs.parts.recordings import COLUMNS, columns_of, read_rows

Row = tuple[Any, ...]
"""Time in seconds, id, and position x, y: in pixels, in shares of the picture, or in the coordinates of the plan. That
of a box is the middle of its lower edge; then come the y of its upper edge, its class and its confidence."""

_BLOCK = 65_536


def read_mot(path: Path, fps: float, columns: str) -> Iterator[Row]:
    """Yield the rows of the boxes of MOTChallenge text, in pixels, without classes.

    A line is frame, id, left, top, width, height, confidence, ...; frame 1 is at 0 s; lines with the confidence 0 are
    ignored, and one under 0 is none. Source: https://motchallenge.net/instructions.
    """
    names = ("frame", "id", "left", "top", "width", "height", "confidence")
    for line, fields in read_table(path):
        where = f"{path}, line {line}"
        if len(fields) < 6:
            raise ValueError(f"{where}: it has {len(fields)} fields; it must have {', '.join(names)}")
        values = [number(where, name, text) for name, text in zip(names, fields, strict=False)]
        if values[1] < 0:
            raise ValueError(f"{where}: id is {values[1]:g}; tracks require an id for every detection")
        if values[6:] != [0.0]:
            left, top, width, height = values[2:6]
            score = next((value for value in values[6:] if value > 0.0), 1.0)
            yield (values[0] - 1) / fps, f"{values[1]:.15g}", left + width / 2, top + height, top, "", score


def read_sumo(path: Path, fps: float, columns: str) -> Iterator[Row]:
    """Yield the rows of SUMO's floating car data (FCD), .xml or .xml.gz, of vehicles, persons and containers.

    An id is such as vehicle:3. Source: https://sumo.dlr.de/docs/Simulation/Output/FCDOutput.html.
    """
    time = None
    with reading(path, "XML of SUMO"), gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        for event, element in ElementTree.iterparse(file, ("start", "end")):
            if event == "end":
                element.clear()
            elif element.tag == "timestep":
                time = element.get("time")
            elif element.tag in ("vehicle", "person", "container"):
                name = f"{element.tag}:{element.attrib['id']}"
                x, y = (number(name, axis, element.get(axis)) for axis in "xy")
                yield number(name, "time", time), name, x, y


def read_csv(path: Path, fps: float, columns: str) -> Iterator[Row]:
    """Yield the rows of a CSV file with any columns, see :attr:`hitmac.envs.Scenario.columns`."""
    if (names := columns_of(columns)) is None:
        raise ValueError(f"columns is {columns!r}; it must be such as time=t,id=track, or time=1,id=2,x=3,y=4")
    for name, track in read_rows(str(path), names).items():
        yield from ((time, name, x, y) for time, (x, y) in sorted(track.items()))


def read_frigate(path: Path, fps: float, columns: str) -> Iterator[Row]:
    """Yield the rows of the events of one camera of Frigate, 0.16 or newer, in shares of the picture, as flat boxes.

    The file is the list from ``/api/events?cameras=NAME``. The `path_data` of an event are the middles of the lower
    edge of its box with their times, where it has moved by a twentieth of the picture or more. Rows between them are
    interpolated; after the last the object stays until the event ends. Events without a path, such as manual ones and
    those of a sound, are left out.
    """
    with reading(path, "the list of Frigate's /api/events, 0.16 or newer"):
        events = json.loads(read_text(path))
        if len(cameras := {event["camera"] for event in events}) > 1:
            raise ValueError(f"it has the cameras {', '.join(sorted(cameras))}; it must have one: ?cameras=NAME")
        paths = [(event.get("data") or {}).get("path_data") or [] for event in events]
        if without := paths.count([]):
            print(f"{path}: {without} of {len(events)} events have no path and are left out")
        for event, own in zip(events, paths, strict=True):
            points = np.array([(time, *place) for place, time in own], np.float64).reshape(-1, 3)
            if not np.isfinite(points).all():
                raise ValueError(f"the path_data of {event['id']} has {points.tolist()}; its numbers must be finite")
            if len(points):
                end = max(points[-1, 0], number(event["id"], "end_time", event.get("end_time") or points[-1, 0]))
                times = np.arange(math.ceil(points[0, 0] * fps), math.floor(end * fps) + 1) / fps
                x, y = (np.interp(times, points[:, 0], points[:, k]).tolist() for k in (1, 2))
                kind, score = str(event.get("label", "")), number(event["id"], "score", event["data"].get("score", 1.0))
                for time, *at in zip(times.tolist(), x, y, strict=True):
                    yield time, str(event["id"]), *at, at[1], kind, score


def read_deepstream(path: Path, fps: float, columns: str) -> Iterator[Row]:
    """Yield the rows of the boxes in lines of DeepStream's minimal schema, in pixels.

    See :func:`hitmac.agents.deploy.run.boxes.read_deepstream`; the file is of one sensor.
    """
    with reading(path, "lines of DeepStream's minimal schema"):
        for line in filter(str.strip, read_text(path).splitlines()):
            _, time, boxes = boxes_of(given := json.loads(line))
            time, names = number("an object", "time", time), [text.partition("|")[0] for text in given["objects"]]
            for name, (left, top, right, bottom), kind, score in zip(names, *boxes[:3], strict=True):
                yield time, name, (left + right) / 2, bottom, top, kind, score


READERS: dict[str, Callable[[Path, float, str], Iterator[Row]]] = {
    "mot": read_mot, "sumo": read_sumo, "csv": read_csv, "frigate": read_frigate,
    "deepstream": read_deepstream,
}  # fmt: skip
"""Reader of each format: of a path, the frames or rows per second, and the names of columns."""

ENDINGS = {".txt": "mot", ".xml": "sumo", ".gz": "sumo", ".csv": "csv", ".json": "frigate", ".jsonl": "deepstream"}
"""Format of a file by the end of its name."""


def write_recorded(to: Path, rows: Iterator[Row], place: Callable, area: tuple[float, float]) -> tuple[int, ...]:
    """Write rows as a recording, whole or not at all.

    `place` maps rows, without their times and ids, to places (k, 2) in the site; NaN: the target is absent. Those
    outside half the width and half the height of an `area` are left out.

    Returns the numbers of positions, of targets that have one, of those left out, and of rows without a place. Raises
    ``ValueError`` if no row has a place in the area.
    """
    ids: set[str] = set()
    count = outside = absent = 0
    with whole_file(to) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            while block := list(islice(rows, _BLOCK)):
                for (time, name, *_), (x, y) in zip(block, place([row[2:] for row in block]).tolist(), strict=True):
                    if abs(x) > area[0] or abs(y) > area[1]:
                        outside += 1
                        continue
                    table.writerow((repr(round(time, 6)), name, f"{x:.3f}", f"{y:.3f}"))
                    if math.isnan(x):
                        absent += 1
                    else:
                        count += 1
                        ids.add(name)
        if not count:
            raise ValueError(f"{outside + absent} rows are read, of which none is in the area; {absent} have no place")
        try:  # it must be one that a scenario reads
            read_rows(str(temporary), {name: name for name in COLUMNS})
        except ValueError as error:
            raise ValueError(str(error).replace(str(temporary), str(to))) from None
    return count, len(ids), outside, absent
