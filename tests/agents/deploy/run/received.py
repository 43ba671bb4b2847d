"""Random inputs for what ``hitmac run`` receives and ``hitmac site`` reads: parts of ``make fuzz``."""

import functools
import json
import math
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.detections import Line
from hitmac.agents.deploy.run.detections import _messages as _messages_of
from hitmac.agents.deploy.run.drivers import Onvif, Visca, load_sections
from hitmac.agents.deploy.run.live import Live, _Server
from hitmac.agents.deploy.run.operation import Operations, load_operations
from hitmac.agents.deploy.run.pictures import load_views
from hitmac.agents.deploy.run.stills import Still
from hitmac.agents.deploy.site.calibrate import walked
from hitmac.agents.deploy.site.command import Calibrate, _rows
from hitmac.agents.deploy.site.homography import fit_file, read_homography
from hitmac.agents.deploy.site.plan import Frame, read_plan
from hitmac.agents.deploy.site.recordings import READERS
from tests.agents.deploy.run import fakes
from tests.agents.deploy.run.camera_servers import Motor, OnvifServer
from tests.agents.deploy.run.test_detections import AXIS, DEEPSTREAM, FRIGATE, ONVIF
from tests.agents.deploy.run.test_pictures import HERE, Seen
from tests.agents.deploy.site.test_homography import OPENCV
from tests.agents.deploy.site.test_plan import HALL
from tests.agents.deploy.site.test_recordings import MOT, SUMO, events
from tools.fuzz_inputs import changed_bytes, junk, numbers, text_files

_TABLE = b"x;y;u;v;heading\n1,5;2;3;4;5\n2;9;0;4;5\n5;5;9;9;0\n7;1;2;8;0\n"
_VIEW = {"height": 5, "focal": [[1, 900], [2, 1800]], "ignore": [[[0, 0], [9, 0], [9, 9]]], "classes": ["car"]}
_ZONE = {"zone": [[0, 0], [9, 0], [9, 9]], "hours": "22:00-06:00", "days": ["mon"]}
_OPERATION = {"moves_an_hour": 9, "rest_after": 5, "rest_heading": 0, "private": [_ZONE]}
_CAMERAS = {
    "west": {"driver": "visca", "host": "a", "speeds": [1, 2], "operation": _OPERATION},
    1: {"driver": "onvif", "host": "b", "view": _VIEW, "page": {"picture": "http://b/still.jpg"}},
}
_SCAN = st.lists(st.one_of(junk, st.lists(numbers, min_size=2, max_size=2), st.just([3.0, 4.0])), max_size=4)
_SCANS = {
    "camera": st.sampled_from(["west", 1, True, 1.0]),
    "time": st.sampled_from([None, fakes.UNIX]),
    "detections": _SCAN,
}
_BOXES = {
    "camera": st.sampled_from(["west", 1]),
    "time": st.sampled_from([None, fakes.UNIX, fakes.UNIX + 0.2]),
    "boxes": st.lists(st.one_of(junk, st.just([600, 300, 640, 500]), st.just([6, 3, 7, 5, 0.5, "car"])), max_size=3),
    "size": st.sampled_from([[1280, 720], [1, 1], None]),
    "pan": numbers,
    "zoom": numbers,
}
_ORDERS = {"page": st.just("a"), "hands": st.dictionaries(st.sampled_from("01x"), numbers), "paused": junk}


def _messages(fields: dict[str, Any]) -> st.SearchStrategy[bytes]:
    some = st.fixed_dictionaries({name: st.one_of(values, values, junk) for name, values in fields.items()})
    return some.map(lambda message: json.dumps(message, default=str).encode())


_REPLY = bytes.fromhex("011100 0b0000000190500000090000000000ff 9050000f0f0f00000000ff 0201000200000001 0f01 904151ff")


def _refused(call: Callable[[], Any]) -> Any:
    """Return the value of a call; None for an error, of which the supervision of a camera takes any."""
    try:
        return call()
    except Exception:
        return None


def _flat(text: bytes) -> bytes:
    return text.replace(b"\n", b" ")


def lines(payload: bytes) -> None:
    """Run the loop on the lines of a UDP datagram, an MQTT message, or a file."""
    views = HERE, View(**vars(HERE) | {"events": True, "confidence": 0.5, "source": "front_door"})
    received = list(map(Line, _messages_of(payload)))
    for line in received:
        line.topic = "hall/west"
    events = [(0.1 * k, line) for k, line in enumerate(received)]
    loop, _, _ = fakes.made(events, fleet=Seen(), views=views)
    try:
        json.dumps(fakes.played(loop, 3), allow_nan=False)
    except Exception as error:
        raise AssertionError("the loop has ended") from error


@functools.cache
def _page() -> Live:
    return Live(fakes.SITE)


def order(body: bytes) -> None:
    """Send an order, or any bytes, to the page of a run; its server must answer without an error of its own."""
    page, errors = _page(), list[str]()
    head = f"POST /{page.token}/order HTTP/1.1\r\nContent-Length: "
    with mock.patch.object(_Server, "handle_error", lambda *_: errors.append("error")):  # noqa: PT008
        for text in (
            f"{head}{len(body)}\r\n\r\n".encode() + body,
            head.encode() + body + b"\r\n\r\n",
            body + b"\r\n\r\n",
        ):
            with socket.create_connection(page._server.server_address) as wire:
                wire.sendall(text)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(65536):
                    pass
    assert not errors
    assert all(0 <= i < 2 and math.isfinite(rate) for i, rate in page.by_hand.items())


def visca(answers: list[bytes]) -> None:
    """Ask a camera for its heading, and turn it, with any answers in each framing."""
    for framing in ("numbered", "unnumbered", "plain"):
        wire = mock.Mock(recv=mock.Mock(side_effect=[*answers, *[TimeoutError] * 9]))
        camera = Visca(host="a", framing=framing)
        with mock.patch("socket.socket", return_value=wire):
            heading = _refused(camera.heading)
            _refused(lambda: camera.turn(9.0))  # noqa: B023
        assert heading is None or abs(heading) <= 181.0


@functools.cache
def _onvif() -> tuple[Any, Onvif, bytes]:
    server = OnvifServer(Motor())
    server._knows = lambda envelope: True
    camera = Onvif(host="127.0.0.1", port=server.port)
    camera.heading()
    return server, camera, server._envelope(server.GetStatus(None))


def onvif(answer: bytes) -> None:
    """Ask a camera for its heading, with any answer."""
    server, camera, _ = _onvif()
    with mock.patch.object(server, "answer", return_value=(200, answer)):
        heading = _refused(camera.heading)
    assert heading is None or abs(heading) <= 181.0


def site_files(given: tuple[str, bytes]) -> None:
    """Read a file of a site, by the end of its name."""
    name, content = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        if name.startswith("points"):
            fit_file(path, Frame())
        elif name.startswith("matrix"):
            read_homography(path)
        elif name.endswith("geojson"):
            read_plan(path, HALL / "cameras.csv", True, 0.0)
        elif name == "table.csv":
            read_plan(HALL / "plan.geojson", path, True, 0.0)
        elif name == "cameras.yaml":
            hall = fakes.SITE.replace(sensor_names=fakes.NAMES)
            load_views(path, hall)
            load_sections(path, hall, "page", Still)
            Operations(load_operations(path, hall), hall).privacy()
        elif name == "rows.csv":
            _rows(Calibrate(path), HERE)
        elif name == "walked.jsonl":
            walked(path, fakes.SITE.replace(sensor_names=fakes.NAMES), [HERE, HERE], 0, 1)
        else:
            list(READERS[name.partition(".")[0]](path, 2.0, ""))


_FILES = {
    "points.csv": _TABLE, "table.csv": _TABLE, "matrix.yml": OPENCV.encode(), "matrix.txt": b"1 2 3\n4 5 6\n7 8 8\n",
    "plan.geojson": (HALL / "plan.geojson").read_bytes(), "mot.txt": MOT.encode(), "sumo.xml": SUMO.encode(),
    "deepstream.jsonl": json.dumps(DEEPSTREAM).encode(),
    "rows.csv": b"u,v,pan,tilt,zoom,x,y\n" + b"1,2,3,4,5,6,7\n" * 4,
    "walked.jsonl": b"\n".join(
        json.dumps({"camera": name, "time": 0.1 * k, "pan": 3, "boxes": [[600, 300, 640, 500]]}).encode()
        for k, name in enumerate(fakes.NAMES * 3)
    ),
    "frigate.json": json.dumps(events()).encode(), "csv.csv": b"time id x y\n0 a 1,5 2\n1 b 3 4\n",
}  # fmt: skip
_SITE_FILES = [st.tuples(st.just(name), changed_bytes(content)) for name, content in _FILES.items()]
_SITE_FILES += [st.tuples(st.just("cameras.yaml"), text_files(_CAMERAS))]
RUN_PARTS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], object]]] = {
    "lines": (st.lists(st.one_of(_messages(_SCANS), text_files()), max_size=4).map(b"\n".join), lines),
    "boxes": (
        st.one_of(
            changed_bytes(ONVIF),
            st.lists(
                st.one_of(_messages(_BOXES), *(text_files(one).map(_flat) for one in (FRIGATE, AXIS, DEEPSTREAM))),
                max_size=4,
            ).map(b"\n".join),
        ),
        lines,
    ),
    "page order": (
        st.one_of(_messages(_ORDERS), st.binary(max_size=40), st.sampled_from([b"1", b"-1", b"9" * 5000])),
        order,
    ),
    "visca answer": (st.lists(st.one_of(changed_bytes(_REPLY), st.binary(max_size=20)), max_size=4), visca),
    "onvif answer": (st.deferred(lambda: changed_bytes(_onvif()[2])), onvif),
    "site files": (st.one_of(_SITE_FILES), site_files),
}
