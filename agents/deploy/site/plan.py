"""Floor plans: the walls, doors, zones and cameras of GeoJSON and of a table, as the parameters of a scenario."""

import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np

from hitmac.envs.files import read_table, read_text
from hitmac.envs.validation import did_you_mean, shortly

FARTHEST = 50_000.0
"""Metres from the origin within which longitude and latitude are projected; farther ones are another origin's."""

GEOMETRIES = {
    "wall": ("LineString", "MultiLineString", "Polygon", "MultiPolygon"),
    "door": ("Point", "LineString", "MultiPoint", "MultiLineString"),
    "zone": ("Polygon", "MultiPolygon"),
    "camera": ("Point",),
}
"""Geometries of each kind of feature."""

CAMERA = {
    "heading": ("sensor_headings", 0.0),
    "range": ("sensing_range", 20.0),
    "field_of_view": ("field_of_view", 90.0),
    "turn_angle": ("turn_angle", 5.0),
}
"""Parameter and default of the numbers of a camera; between `pan_low` and `pan_high` the heading is the middle."""

_PLACES = 3  # decimals of metres


@dataclass(frozen=True)
class Frame:
    """Frame of a site: metres to the east (x) and the north (y) of the origin, the middle of its area.

    The `origin` is in the coordinates of the plan: (x, y) in metres, or if `geographic` longitude and latitude
    (WGS 84), of which the azimuthal equidistant projection about the origin is taken.
    """

    origin: tuple[float, float] = (0.0, 0.0)
    geographic: bool = False

    def place(self, points: Any) -> np.ndarray:
        """Return the places (k, 2) in the site of points (k, 2) in the coordinates of the plan; NaN stays NaN."""
        points = np.asarray(points, np.float64).reshape(-1, 2)
        if not self.geographic:
            return points - self.origin
        places = np.stack(_projection(*self.origin)(*points.T), 1)
        if (far := (np.abs(places) > FARTHEST).any(1)).any():
            (x, y), (longitude, latitude) = points[far][0], self.origin
            raise ValueError(
                f"({x:g}, {y:g}) is no longitude and latitude within {FARTHEST / 1000:g} km of ({longitude:g}, "
                f"{latitude:g}), the origin; of a plan in metres, give --metres or leave out --geographic"
            )
        return places


@functools.cache
def _projection(longitude: float, latitude: float) -> Any:
    try:
        from pyproj import Proj
    except ModuleNotFoundError:
        raise ModuleNotFoundError("longitude and latitude require pyproj: pip install 'hitmac[site]'") from None
    return Proj(proj="aeqd", lon_0=longitude, lat_0=min(max(latitude, -90.0), 90.0), datum="WGS84")


@contextmanager
def reading(path: str | Path, kind: str) -> Iterator[None]:
    """Context in which an error in the form of a file becomes a ValueError that names it, and what it must be."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path} is not {kind}: {error}") from None
    except (LookupError, TypeError, AttributeError, RecursionError, OverflowError, EOFError, ParseError) as error:
        raise ValueError(f"{path} is not {kind}: {error!r}") from None


_Convert = Callable[[np.ndarray], np.ndarray] | None


def read_columns(path: str | Path, needed: Sequence[str], convert: _Convert = None) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a table by column, each after its place in messages.

    For the form of tables see :func:`hitmac.envs.files.read_table`. Columns may be in any order; `longitude` and
    `latitude` are x and y, and others named x and y are converted to them. Raises ValueError for missing columns.
    """
    rows = [(f"{path}, line {line}", fields) for line, fields in read_table(path)]
    places = {"longitude": "x", "latitude": "y"}
    given = [name.lower() for name in (rows[0][1] if rows else [])]
    header = [places.get(name, name) for name in given]
    if any(header.count(name) != 1 for name in needed):
        raise ValueError(f"{path}: the header is {', '.join(header)!r}; it must name {', '.join(needed)} once each")
    for where, fields in rows:
        if len(fields) != len(header):
            raise ValueError(f"{where}: it has more or fewer fields than the header, {', '.join(header)!r}")
    found = [(where, dict[str, Any](zip(header, fields, strict=True))) for where, fields in rows[1:]]
    if convert and "x" in given:
        for where, row in found:
            ((row["x"], row["y"]),) = convert(np.array([[number(where, axis, row[axis]) for axis in "xy"]]))
    return found


def number(where: str, name: str, value: Any) -> float:
    """Return a finite number; raise ValueError, with its place and name, for anything else."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{where}: {name} is {shortly(value)}; it must be a finite number")
    return found


def read_plan(path: Path, cameras: Path | None, metres: bool, margin: float) -> tuple[dict, Frame, list[str]]:
    """Return a scenario's parameters, the frame of the site, and lines on what is odd, of a plan in GeoJSON (RFC 7946).

    The property `kind` of each feature is a key of :data:`GEOMETRIES`. A door cuts out of the walls what is within half
    its width of its middle: that of a Point is its property `width`, by default 1, that of a LineString its length. The
    cameras are features or rows of the table `cameras`, whose columns are the properties. With `metres` the plan is in
    metres, unless it declares a `crs`, from which it and the table are converted. Features of other kinds or geometries
    are left out, rings are closed, and holes of zones are filled; the lines say so. The area is the bounding box of the
    plan and its cameras, and a `margin` around it in metres.

    Raises ``ValueError``, which names the file and the feature or the line.
    """
    with reading(path, "GeoJSON, a FeatureCollection"):
        whole = json.loads(read_text(path))
        given, declared = [*whole["features"]], ((whole.get("crs") or {}).get("properties") or {}).get("name")
    odd: list[str] = []
    convert = _conversion(path, declared)
    metres = metres and convert is None
    of: dict[str, list[tuple[str, list[np.ndarray], dict[str, Any]]]] = {kind: [] for kind in GEOMETRIES}
    for k, feature in enumerate(given, 1):
        where = f"{path}, feature {k}"
        try:
            kind, parts, properties, notes = _feature(where, feature)
        except _ForeignError as error:
            odd.append(f"{where} is left out: {error}")
            continue
        odd += [f"{where}: {note}" for note in notes]
        for lines in parts:
            of[kind].append((where, [convert(line) for line in lines] if convert else lines, properties))
    rows = [(where, {**more, "x": lines[0][0, 0], "y": lines[0][0, 1]}) for where, lines, more in of["camera"]]
    rows += read_columns(cameras, ("x", "y"), convert) if cameras else []
    if not rows:
        raise ValueError(f"{path} has no feature of the kind camera; give --cameras, a CSV file with a row for each")
    sensors = [_camera(where, k, row) for k, (where, row) in enumerate(rows)]
    positions = np.array([sensor["position"] for sensor in sensors])
    points = np.concatenate([positions, *(line for found in of.values() for _, lines, _ in found for line in lines)])
    x, y = ((points.min(0) + points.max(0)) / 2).round(9).tolist()
    frame = Frame((x, y), not metres)
    places, arena = frame.place(positions), (np.abs(frame.place(points)).max(0) + margin).round(_PLACES).tolist()
    if not all(arena):
        raise ValueError(f"{path}: the plan and its cameras are on a line, in an area without a width; give --margin")
    placed = [frame.place(line) for _, lines, _ in of["wall"] for line in lines]
    walls = np.concatenate([np.zeros((0, 4)), *(np.hstack((line[:-1], line[1:])) for line in placed)])
    walls = walls[(walls[:, :2] != walls[:, 2:]).any(1)]
    for where, (line,), more in of["door"]:
        ends = frame.place(line)[[0, -1]]
        cut = without(walls, ends.mean(0), math.dist(*ends) or number(where, "width", more.get("width", 1)))
        odd += [f"{where}: the door is on no wall"] if cut is walls else []
        walls = cut
    around = [*placed, *(frame.place(line) for kind in ("door", "zone") for _, lines, _ in of[kind] for line in lines)]
    if around:
        corners = np.concatenate(around)
        beyond = np.maximum(corners.min(0) - places, places - corners.max(0)).max(1)
        for (where, _), far in zip(rows, beyond, strict=True):
            odd += [f"{where}: the camera is {far:.1f} m outside the plan"] if far > 1.0 else []
    unused = {name for _, row in rows for name in row} - {"kind", "name", "x", "y", "pan_low", "pan_high", *CAMERA}
    odd += [f"cameras: {name} is not used{did_you_mean(name, CAMERA)}" for name in sorted(unused)]
    parameters = {
        "num_sensors": len(sensors),
        "sensor_names": [sensor["name"] for sensor in sensors],
        "arena": arena,
        "placement": "fixed",
        "sensor_positions": places.round(_PLACES).tolist(),
        "pan_limits": [sensor["pan"] for sensor in sensors],
        **{parameter: [sensor[name] for sensor in sensors] for name, (parameter, _) in CAMERA.items()},
        "walls": walls.round(_PLACES).tolist(),
        "zones": [frame.place(ring[:-1]).round(_PLACES).tolist() for _, (ring, *_), _ in of["zone"]],
        "zone_values": [number(where, "value", more.get("value")) for where, _, more in of["zone"]],
    }
    return parameters, frame, odd


class _ForeignError(ValueError):
    """A feature that is none of a plan."""


def _feature(where: str, feature: Any) -> tuple[str, list[list[np.ndarray]], dict[str, Any], list[str]]:
    """Return the kind, the lines (k, 2) of each part, the properties, and what is odd, of a feature.

    Raises :class:`_ForeignError` for one of another kind or geometry, ValueError for wrong numbers.
    """
    with reading(where, "a feature of a plan"):
        properties, geometry = feature.get("properties") or {}, feature.get("geometry") or {}
        kind, shape = properties.get("kind"), geometry.get("type")
        lines: Any = geometry.get("coordinates")
    if not isinstance(kind, str) or kind not in GEOMETRIES:
        hint = did_you_mean(kind, GEOMETRIES) if kind else ""
        raise _ForeignError(f"its kind is {shortly(kind)}{hint}, not one of {', '.join(GEOMETRIES)}")
    if shape not in GEOMETRIES[kind]:
        raise _ForeignError(f"a {kind} must be a {' or '.join(GEOMETRIES[kind])}, not {shape or 'without a geometry'}")
    with reading(where, "a feature of a plan"):
        parts = lines if shape.startswith("Multi") else [lines]
        if shape.endswith("Point"):
            parts = [[[point]] for point in parts]
        elif shape.endswith("LineString"):
            parts = [[line] for line in parts]
        places = [
            [[[number(where, name, point[k]) for k, name in enumerate("xy")] for point in line] for line in part]
            for part in parts
        ]
        if not (places and all(part and all(part) for part in places)):
            raise ValueError(f"its {shape} has no coordinates")
    open_rings = [line for part in places for line in part if shape.endswith("Polygon") and line[0] != line[-1]]
    for line in open_rings:
        line.append(line[0])
    notes = ["a ring that is not closed is closed"] * bool(open_rings)
    notes += ["the holes of the zone are filled"] * (kind == "zone" and max(map(len, places)) > 1)
    return kind, [[np.array(line) for line in part] for part in places], properties, notes


def _conversion(path: Path, name: Any) -> _Convert:
    """Return the conversion to longitude and latitude from a declared coordinate system; None if it is none or these.

    Raises ValueError for an unknown one, ModuleNotFoundError without pyproj.
    """
    if name is None or str(name).upper().endswith(("CRS84", "EPSG::4326", "EPSG:4326")):
        return None
    try:
        from pyproj import Transformer
        from pyproj.exceptions import CRSError
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"the crs {name!r} requires pyproj: pip install 'hitmac[site]'") from None
    try:
        change = Transformer.from_crs(str(name), "EPSG:4326", always_xy=True)
    except CRSError:
        raise ValueError(f"{path}: its crs is {shortly(name)}, which is unknown") from None
    return lambda line: np.stack(change.transform(*line.T), 1)


def _camera(where: str, k: int, row: dict[str, Any]) -> dict[str, Any]:
    """Return the position, the name, the numbers and the pan limits of camera k from its row."""
    given = {name: value for name, value in row.items() if value not in ("", None)}
    pan = [number(where, name, given[name]) for name in ("pan_low", "pan_high") if name in given]
    if len(pan) == 1:
        raise ValueError(f"{where}: it has one of pan_low and pan_high; give both or neither")
    given = {"heading": sum(pan) / 2, **given} if pan else given
    found = {name: number(where, name, given.get(name, default)) for name, (_, default) in CAMERA.items()}
    position = [number(where, name, row[name]) for name in ("x", "y")]
    return {"position": position, "name": str(given.get("name", k)), "pan": pan or [-180.0, 180.0], **found}


def without(walls: np.ndarray, middle: np.ndarray, width: float) -> np.ndarray:
    """Return the walls (w, 4) without what is within half a width of the middle of a door; the same if nothing is."""
    start, run = walls[:, :2] - middle, walls[:, 2:] - walls[:, :2]
    squared = (run**2).sum(1)
    nearest = -(start * run).sum(1) / squared  # of the length of the wall
    chord = (width / 2) ** 2 - ((start + nearest[:, None] * run) ** 2).sum(1)
    half = np.sqrt(np.maximum(chord, 0.0) / squared)
    low, high = np.clip((nearest - half, nearest + half), 0.0, 1.0)
    if not (cut := high > low).any():
        return walls
    start, run, low, high = walls[cut, :2], run[cut], low[cut, None], high[cut, None]
    before, after = np.hstack((start, start + low * run)), np.hstack((start + high * run, start + run))
    parts = np.concatenate((walls[~cut], before, after))
    return parts[np.linalg.norm(parts[:, 2:] - parts[:, :2], axis=1) > 10.0**-_PLACES]
