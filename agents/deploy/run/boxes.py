"""Messages of detectors that report boxes in pictures: one reader for each format.

| format | a message is known by | picture | its time |
|---|---|---|---|
| ours | `camera`, `boxes` | pixels, or of a `size`; `[1, 1]`: shares | `time`, Unix seconds |
| Frigate's events | `type`, `after` | pixels of its `detect` stream | `frame_time` |
| Axis' scene frames | `frame` with `observations` | shares | `timestamp` |
| DeepStream, minimal schema | `sensorId`, `objects` | pixels of its muxer | `@timestamp` |
| ONVIF analytics, XML | `<` | -1 to 1, upwards, after its `Transformation` | `UtcTime` |

A message names its camera, or else its MQTT topic does in one of its levels.
"""

import datetime
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

_TT = "{http://www.onvif.org/ver10/schema}"
_SIDES = ("left", "top", "right", "bottom")


class Boxes(NamedTuple):
    """Boxes of one picture."""

    box: np.ndarray  # (k, 4) left, top, right, bottom
    label: list[str]
    score: list[float]
    size: tuple[float, float] | None = None  # of the picture; (1, 1): shares; None: as the camera's view says
    pan: float = math.nan  # of the device, degrees, or from -1 to 1 if normalized; NaN: not reported
    tilt: float = math.nan
    zoom: float = math.nan
    normalized: bool = False
    event: str = ""  # id of an object, of which alone the message is
    ended: bool = False  # the object is gone
    stays: bool = False  # the object stands still


Read = tuple[Any, Any, Boxes]
"""Name of the camera, None where the message has none, its time in Unix seconds or None, and its boxes."""


def _time(text: Any) -> float:
    """Return a time of RFC 3339, in UTC unless it says otherwise, in Unix seconds."""
    found = datetime.datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()


def _made(rows: list[tuple[Any, ...]], **others: Any) -> Boxes:
    """Return boxes of rows of four numbers, a confidence and a class."""
    if any(len(row) != 6 for row in rows):
        raise ValueError("a box must be four numbers, and may have a confidence and a class")
    box = np.array([[float(side) for side in row[:4]] for row in rows], np.float64).reshape(-1, 4)
    if not np.isfinite(box).all():
        raise ValueError("a box must be four finite numbers")
    return Boxes(box, [str(row[5]) for row in rows], [float(row[4]) for row in rows], **others)


def read_own(given: dict[str, Any]) -> Read:
    """Read ``{"camera": "north", "time": 1700000000.25, "boxes": [[left, top, right, bottom, 0.9, "person"], ...]}``.

    Confidence and class may be left out; ``size`` is that of the picture, ``pan``, ``tilt`` and ``zoom`` those of the
    device when it was taken, in degrees and the device's unit.
    """
    rows = [(*box, *(1.0, "")[max(len(box) - 4, 0) :]) for box in given["boxes"]]
    size = given.get("size")
    width, height = map(float, size or (1, 1))
    if not (0.0 < width < math.inf and 0.0 < height < math.inf):
        raise ValueError("size must be a width and a height")
    pose = {name: float(given[name]) for name in ("pan", "tilt", "zoom") if name in given}
    return given["camera"], given.get("time"), _made(rows, size=(width, height) if size else None, **pose)


def read_frigate(given: dict[str, Any]) -> Read:
    """Read a message of the topic ``frigate/events``: one object, as it is `after` a change.

    Source: https://docs.frigate.video/integrations/mqtt/.
    """
    own = given["after"]
    made = _made([(*own["box"], own["score"], own["label"])] if not own.get("false_positive") else [])
    ended = given["type"] == "end" or own.get("end_time") is not None or not len(made.box)
    return (
        own["camera"], float(own["frame_time"]),
        made._replace(event=str(own["id"]), ended=ended, stays=bool(own.get("stationary"))),
    )  # fmt: skip


def read_axis(given: dict[str, Any]) -> Read:
    """Read a frame of ``com.axis.analytics_scene_description.v0.beta``, all objects of a picture.

    Source: https://developer.axis.com/acap/api/src/api/message-broker/html/standard_topics.html.
    """
    frame, rows = given["frame"], []
    for one in frame["observations"]:
        box, kind = one["bounding_box"], one.get("class") or {}
        rows.append((*(box[side] for side in _SIDES), kind.get("score", 1.0), kind.get("type", "")))
    return None, _time(frame["timestamp"]), _made(rows, size=(1.0, 1.0))


def read_deepstream(given: dict[str, Any]) -> Read:
    """Read a payload of Gst-nvmsgconv in the minimal schema, ``payload-type=1``: all objects of a picture.

    An object is ``id|left|top|right|bottom|class``, perhaps with more fields, of which the last may be the confidence.
    Source: https://docs.nvidia.com/metropolis/dev-guide, Gst-nvmsgconv.
    """
    rows = []
    for text in given["objects"]:
        fields = text.split("|")
        score = fields[-1] if len(fields) > 6 and re.fullmatch(r"[01]?\.\d+|[01]", fields[-1]) else 1.0
        rows.append((*fields[1:5], score, fields[5]))
    return str(given["sensorId"]), _time(given["@timestamp"]), _made(rows)


def read_onvif(text: bytes) -> Read:
    """Read the last `tt:Frame` of a metadata stream, all objects of a picture, with its pan, tilt and zoom.

    Positions of the head are normalized, unless their space is in degrees. No entity is expanded. Source: ONVIF,
    Analytics Service Specification, sections 5.2 (scene description) and 5.3.
    """
    if b"<!" in text.replace(b"<!--", b"") or b"\0" in text:
        raise ValueError("a document type or an entity is not allowed")
    frame, rows = [*ElementTree.fromstring(text).iter(_TT + "Frame")][-1], []

    def pair(path: str, missing: float) -> tuple[float, float]:
        one = frame.find("/".join(_TT + name for name in path.split("/")))
        return (missing, missing) if one is None else (float(one.get("x", missing)), float(one.get("y", missing)))

    (x, y), (across, up) = pair("Transformation/Translate", 0.0), pair("Transformation/Scale", 1.0)
    for one in frame.iter(_TT + "Object"):
        if (box := one.find(f"{_TT}Appearance/{_TT}Shape/{_TT}BoundingBox")) is None:  # it is only renamed or removed
            continue
        left, top, right, bottom = (float(box.attrib[side]) for side in _SIDES)
        u = sorted((1.0 + side * across + x) / 2.0 for side in (left, right))
        v = sorted((1.0 - side * up - y) / 2.0 for side in (top, bottom))
        kinds = [
            (float(kind.get("Likelihood") or own.findtext(_TT + "Likelihood") or 1.0), kind.text or "")
            for own in one.iter() if own.tag in (_TT + "Class", _TT + "ClassCandidate")
            for kind in own.findall(_TT + "Type")
        ]  # fmt: skip
        rows.append((u[0], v[0], u[1], v[1], *max(kinds, default=(1.0, ""))))
    (pan, tilt), (zoom, _) = pair("PTZStatus/Position/PanTilt", math.nan), pair("PTZStatus/Position/Zoom", math.nan)
    head = frame.find(f"{_TT}PTZStatus/{_TT}Position/{_TT}PanTilt")
    degrees = head is not None and "degrees" in head.get("space", "").lower()
    pose = {"pan": pan, "tilt": tilt, "zoom": zoom, "normalized": not degrees}
    return frame.get("Source"), _time(frame.attrib["UtcTime"]), _made(rows, size=(1.0, 1.0), **pose)


FORMATS: dict[str, tuple[frozenset[str], Callable[[dict[str, Any]], Read]]] = {
    "boxes": (frozenset({"camera", "boxes"}), read_own),
    "Frigate": (frozenset({"type", "after"}), read_frigate),
    "Axis": (frozenset({"frame"}), read_axis),
    "DeepStream": (frozenset({"sensorId", "objects"}), read_deepstream),
}
"""Keys by which a message of JSON is known, and its reader."""


def read_boxes(given: Any) -> Read | None:
    """Return what a message has, a mapping of JSON or the bytes of XML; None for another mapping.

    Raises ValueError, without the content, for a message that lacks a part or has a wrong one.
    """
    known: list[tuple[str, Callable[[Any], Read]]] = [("ONVIF", read_onvif)]
    if not isinstance(given, bytes):
        given = given["data"] if isinstance(given.get("data"), dict) else given  # of some versions of Axis
        known = [(name, read) for name, (keys, read) in FORMATS.items() if keys <= given.keys()]
    if not known:
        return None
    kind, read = known[0]
    try:
        return read(given)
    except ValueError as error:
        words = str(error) if str(error).startswith(("a box ", "a document ", "size ")) else "a wrong value"
        raise ValueError(f"it is no message of {kind}: {words}") from None
    except (LookupError, TypeError, AttributeError, OverflowError, ElementTree.ParseError) as error:
        words = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else "a part is missing or wrong"
        raise ValueError(f"it is no message of {kind}: {words}") from None
