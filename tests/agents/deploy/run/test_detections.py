"""Lines of detections, and the sources that they come from."""

import json
import math
import os
import queue
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from hitmac.agents.deploy.run import detections
from hitmac.agents.deploy.run.detections import LONGEST, Inbox, Line, Source, open_source, parse, simulated
from hitmac.agents.deploy.run.log import Faults
from tests.agents.deploy.run.fakes import NAMES, SITE, free_address

GOOD = b'{"camera": "east", "time": 2.5, "detections": [[1, 2]], "more": 3}'


class Box(Inbox):
    """Inbox from which a test takes one line, for which it waits."""

    def __init__(self):
        super().__init__()
        self.lines = queue.Queue()

    def put(self, line):
        self.lines.put(line)

    def one(self):
        return self.lines.get(timeout=30)


@pytest.fixture
def opened():
    """Opens sources, and closes them."""
    sources, faults = [], Faults()

    def start(source):
        box = Box()
        sources.append(open_source(source, box, faults) if isinstance(source, str) else Source(source, box, faults))
        return box

    start.faults = faults
    yield start
    for source in sources:
        source.close()
        assert not source._thread.is_alive()


def test_a_line_names_its_camera_or_its_number():
    assert parse(GOOD, NAMES) == (1, 2.5, [[1, 2]])
    assert parse(b'{"camera": 0, "detections": []}', NAMES) == (0, None, [])


FRIGATE = {
    "type": "update", "before": {},
    "after": {
        "id": "1607123955.4-x", "camera": "front_door", "frame_time": 1607123961.8, "label": "person", "score": 0.79,
        "false_positive": False, "end_time": None, "box": [424, 500, 536, 712], "stationary": True,
    },
}  # fmt: skip
SIDES = {"left": 0.1, "top": 0.2, "right": 0.3, "bottom": 0.9}
AXIS = {
    "frame": {
        "timestamp": "2023-03-08T09:00:19.5Z",
        "observations": [
            {"track_id": "1", "bounding_box": SIDES, "class": {"type": "Human", "score": 0.6}},
            {"track_id": "2", "bounding_box": SIDES},
        ],
        "operations": [{"type": "DeleteOperation", "id": "3"}],
    }
}
DEEPSTREAM = {
    "version": "4.0", "id": "0", "@timestamp": "2018-04-11T04:59:59.5Z", "sensorId": "sensor-0",
    "objects": ["957|1834|150|1918|215|Vehicle|#|sedan|red|0.8", "3|1.5|2|3|4|Person"],
}  # fmt: skip
ONVIF = b"""<?xml version="1.0" encoding="UTF-8"?>
<tt:MetadataStream xmlns:tt="http://www.onvif.org/ver10/schema"><tt:VideoAnalytics>
<tt:Frame UtcTime="2024-05-01T12:00:00.5Z" Source="east"><tt:PTZStatus><tt:Position>
<tt:PanTilt x="0.5" y="-0.25" space="http://www.onvif.org/ver10/tptz/PanTiltSpaces/PositionGenericSpace"/>
<tt:Zoom x="0.1"/></tt:Position></tt:PTZStatus>
<tt:Transformation><tt:Translate x="-1" y="1"/><tt:Scale x="0.003125" y="-0.00416667"/></tt:Transformation>
<tt:Object ObjectId="12"><tt:Appearance>
<tt:Shape><tt:BoundingBox left="64" top="48" right="128" bottom="240"/><tt:CenterOfGravity x="96" y="144"/></tt:Shape>
<tt:Class><tt:ClassCandidate><tt:Type>Vehicle</tt:Type><tt:Likelihood>0.1</tt:Likelihood></tt:ClassCandidate>
<tt:Type Likelihood="0.7">Human</tt:Type></tt:Class>
</tt:Appearance></tt:Object><tt:Object ObjectId="13"/></tt:Frame></tt:VideoAnalytics></tt:MetadataStream>"""


def named(message, topic):
    line = Line(message if isinstance(message, bytes) else json.dumps(message).encode())
    line.topic = topic
    return line


def test_boxes_in_each_format_have_a_camera_a_time_and_sides():
    own = {"camera": "east", "time": 2.5, "size": [1, 1], "pan": 3, "boxes": [[0, 0, 1, 1], [0, 0, 1, 1, 0.5, "car"]]}
    camera, when, boxes = parse(json.dumps(own).encode(), NAMES)
    assert (camera, when, boxes.size, boxes.pan, boxes.label, boxes.score) == (1, 2.5, (1, 1), 3, ["", "car"], [1, 0.5])
    camera, when, boxes = parse(named(FRIGATE, "frigate/events"), NAMES, {"front_door": 1})
    assert (camera, when, boxes.event, boxes.stays, boxes.ended) == (1, 1607123961.8, "1607123955.4-x", True, False)
    assert boxes.box.tolist() == [[424, 500, 536, 712]]
    ended = {"type": "end", "after": FRIGATE["after"] | {"end_time": 1607123965.0}}
    assert parse(named(ended, "frigate/events"), NAMES, {"front_door": 1})[2].ended
    for message in (AXIS, {"data": AXIS}):
        camera, when, boxes = parse(named(message, "hall/west/frames"), NAMES)
        assert (camera, when, boxes.label, boxes.score) == (0, 1678266019.5, ["Human", ""], [0.6, 1.0])
        assert (boxes.box.tolist(), boxes.size) == ([[0.1, 0.2, 0.3, 0.9]] * 2, (1.0, 1.0))
    camera, when, boxes = parse(json.dumps(DEEPSTREAM).encode(), NAMES, {"sensor-0": 1})
    assert (camera, when, boxes.label, boxes.score) == (1, 1523422799.5, ["Vehicle", "Person"], [0.8, 1.0])
    assert boxes.box.tolist() == [[1834, 150, 1918, 215], [1.5, 2, 3, 4]]


def test_a_frame_of_onvif_has_the_pose_of_its_camera():
    for line in (ONVIF, named(ONVIF.replace(b' Source="east"', b""), "onvif-mqtt/east")):
        camera, when, boxes = parse(line, NAMES)
        assert (camera, when, boxes.pan, boxes.tilt, boxes.zoom) == (1, 1714564800.5, 0.5, -0.25, 0.1)
        assert (boxes.normalized, boxes.label, boxes.score) == (True, ["Human"], [0.7])
        np.testing.assert_allclose(boxes.box, [[0.1, 0.1, 0.2, 0.5]], atol=1e-5)  # of 640 x 480
    plain = ONVIF.replace(b'<tt:Scale x="0.003125" y="-0.00416667"/>', b"").replace(b'x="-1" y="1"', b'x="0" y="0"')
    sides = b'left="-1" top="1" right="0" bottom="-0.5"'
    plain = plain.replace(b'left="64" top="48" right="128" bottom="240"', sides).replace(
        b"GenericSpace", b"SpaceDegrees"
    )
    boxes = parse(plain, NAMES)[2]
    assert (boxes.box.tolist(), boxes.normalized) == ([[0, 0, 0.5, 0.75]], False)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "mapping with camera and detections"),
        (b'{"camera": 1}', "mapping with camera and detections"),
        (b'{"camera": 2, "detections": []}', "camera is 2; it must be one of west, east, or its index from 0"),
        (b'{"camera": true, "detections": []}', "camera is True"),
        (b'{"camera": ["west"], "detections": []}', r"camera is \['west'\]"),
        (b'{"camera": 1, "time": "12:00", "detections": []}', "time must be a number"),
        (b'{"camera": 1, "time": NaN, "detections": []}', "time must be a number"),
        (b'{"camera": 1, "time": 1' + b"0" * 400 + b', "detections": []}', "time must be a number"),
        ({"camera": "east", "boxes": [[1, 2, 3]]}, "it is no message of boxes: a box must be four numbers, and may"),
        ({"camera": "east", "boxes": [[1, 2, 3, "secret"]]}, "it is no message of boxes: a wrong value"),
        ({"camera": "east", "boxes": [[1, 2, 3, math.nan]]}, "a box must be four finite numbers"),
        ({"camera": "east", "boxes": [], "size": [0, 4]}, "size must be a width and a height"),
        ({"camera": "east", "boxes": [], "time": "noon"}, "time must be a number"),
        (AXIS, "camera is ''; it must be one of west, east, or its index from 0"),
        ({"frame": {"observations": []}}, "it is no message of Axis: it lacks timestamp"),
        ({"type": "new", "after": 3}, "it is no message of Frigate: a part is missing or wrong"),
        (DEEPSTREAM | {"objects": ["3|1"]}, "it is no message of DeepStream: a part is missing or wrong"),
        (DEEPSTREAM | {"object": {}, "objects": 3}, "it is no message of DeepStream"),
        (b"<tt:MetadataStream", "it is no message of ONVIF"),
        (b"<a/>", "it is no message of ONVIF: a part is missing or wrong"),
        (b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', "a document type or an entity is not"),
        (ONVIF.replace(b'"64"', b'"nan"'), "a box must be four finite numbers"),
    ],
)
def test_other_lines_are_refused_without_their_content(line, words):
    with pytest.raises(ValueError, match=words) as refused:
        parse(line if isinstance(line, bytes) else json.dumps(line).encode(), NAMES)
    assert "secret" not in str(refused.value)


def test_a_full_inbox_drops_its_oldest_lines_and_counts_them():
    inbox = Inbox(most=3)
    for number in range(5):
        inbox.put(b"%d" % number)
    assert [line for _, line in inbox.get(0.0)] == [b"2", b"3", b"4"]
    assert inbox.dropped == 2
    assert inbox.get(0.0) == []
    threading.Timer(0.01, inbox.put, [b"5"]).start()
    assert [line for _, line in inbox.get(time.monotonic() + 30)] == [b"5"]


def test_a_datagram_has_one_line_or_more(opened):
    _, port = address = free_address()
    box = opened(f"udp://:{port}")  # the loopback, without a host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in (GOOD, b"a\n\nb\n", ONVIF):
            sender.sendto(datagram, address)
    assert [box.one() for _ in range(4)] == [GOOD, b"a", b"b", ONVIF]
    with pytest.raises(OSError, match=f"in use: udp://127.0.0.1:{port}"):
        open_source(f"udp://127.0.0.1:{port}", box, opened.faults)


def test_a_file_is_read_as_it_grows_and_again_when_it_is_replaced(opened, tmp_path):
    path = tmp_path / "detections.jsonl"
    path.write_bytes(b"before\n")
    box = opened(str(path))
    with path.open("ab") as file:
        file.write(b"on")
        file.flush()
        file.write(b"e\ntwo\n")
    assert [box.one(), box.one()] == [b"one", b"two"]
    (tmp_path / "new").write_bytes(b"three\n")
    os.replace(tmp_path / "new", path)
    assert box.one() == b"three"
    path.write_bytes(b"4\n")  # shorter
    assert box.one() == b"4"
    path.unlink()
    while not opened.faults.messages():
        pass
    path.with_suffix(".later").write_bytes(b"five\n")
    path.with_suffix(".later").rename(path)
    assert box.one() == b"five"
    path.rename(tmp_path / "away")  # as the folder of a share
    time.sleep(0.3)
    (tmp_path / "away").rename(path)
    with path.open("ab") as file:
        file.write(b"six\n")
    assert box.one() == b"six"


def test_the_standard_input_ends_and_a_long_line_is_cut(opened, monkeypatch):
    end, begin = os.pipe()
    with os.fdopen(end) as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        box = opened("-")
        for part in (b"x" * LONGEST, b"x\n" + GOOD + b"\n"):  # the pipe is as long
            assert os.write(begin, part) == len(part)
        cut = box.one()
        while len(cut) < LONGEST + 1:
            cut += box.one()
        assert set(cut) == set(b"x")
        assert box.one() == GOOD
        os.close(begin)
        while not (said := opened.faults.messages()):
            pass
    assert said == ["the source of detections has ended"]


class Broker(threading.Thread):
    """MQTT broker of one client, which it accepts, and to which it sends messages of one topic; not of `secret`.

    Source: MQTT version 3.1.1, OASIS standard, sections 3.1 to 3.9.
    """

    def __init__(self, payloads):
        super().__init__(daemon=True)
        self.server, self.payloads, self.received = socket.create_server(("127.0.0.1", 0)), payloads, {}
        self.port = self.server.getsockname()[1]
        self.start()

    def packet(self, client):
        kind, size = client.recv(2)
        assert size < 128
        return kind >> 4, client.recv(size, socket.MSG_WAITALL)

    def run(self):
        for payloads in self.payloads:  # a connection for each
            with self.server.accept()[0] as client:
                assert self.packet(client)[0] == 1
                client.sendall(b"\x20\x02\x00\x00")
                kind, body = self.packet(client)
                assert kind == 8
                topic = body[4:-1]
                self.received["topic"] = topic.decode()
                client.sendall(b"\x90\x03" + body[:2] + (b"\x80" if topic == b"secret" else b"\x00"))
                for payload in payloads:
                    kind = 0x30 + payload.startswith(b"retained")
                    client.sendall(bytes((kind, 2 + len(topic) + len(payload), 0, len(topic))) + topic + payload)
                self.received["last"] = payloads
        self.server.close()


def test_messages_of_an_mqtt_topic_also_after_the_broker_was_away(opened, monkeypatch):
    pytest.importorskip("paho.mqtt")
    monkeypatch.setenv(detections.USER, "operator")
    monkeypatch.setenv(detections.PASSWORD, "secret")
    broker = Broker([[GOOD], [b"retained", b"again", b"<and\nagain>"]])
    box = opened(f"mqtt://127.0.0.1:{broker.port}/hall/detections")
    found = [box.one() for _ in range(3)]
    assert found == [GOOD, b"again", b"<and\nagain>"]
    assert {line.topic for line in found} == {"hall/detections"}
    assert broker.received["topic"] == "hall/detections"
    broker.join(30)


def test_a_topic_that_mqtt_or_the_broker_refuses():
    pytest.importorskip("paho.mqtt")
    with pytest.raises(ValueError, match=r"detections has the topic 'hall/#/x'; \+ and # must be levels, # the last"):
        open_source("mqtt://127.0.0.1/hall/#/x", Inbox(), Faults())
    faults, said = Faults(quiet=0.0), list[str]()
    source = open_source(f"mqtt://127.0.0.1:{Broker([[]]).port}/secret", Inbox(), faults)
    while "the MQTT broker sends nothing: it refuses the topic secret" not in said:
        said += faults.messages()
    source.close()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("udp://127.0.0.1", "udp://HOST:PORT"),
        ("udp://127.0.0.1:99999", "invalid address"),
        ("http://127.0.0.1:5005", "detections is 'http://127.0.0.1:5005'; it must be -, udp://HOST:PORT"),
        ("mqtt://127.0.0.1", "mqtt://HOST"),
        ("mqtt://me:secret@127.0.0.1/x", "give them in the variables HITMAC_MQTT_USER and HITMAC_MQTT_PASSWORD"),
    ],
)
def test_other_sources_are_refused_without_their_passwords(source, words):
    with pytest.raises(ValueError, match=words) as refused:
        open_source(source, Inbox(), Faults())
    assert "secret" not in str(refused.value)


def test_a_source_that_fails_is_reported_and_ends():
    faults = Faults()

    def read(end):
        yield b"one"
        raise OSError("the network is down")

    box = Box()
    source = Source(read, box, faults)
    assert box.one() == b"one"
    source.close()
    assert faults.messages()[0] == "the source of detections has failed: the network is down"


def test_simulated_detections_are_those_of_the_cameras_that_answer(opened):
    headings = np.array([0.0, np.nan])
    box = opened(simulated(SITE.replace(time_step=0.01, missed_detections=0), SimpleNamespace(headings=headings)))
    for _ in range(3):
        camera, time, found = parse(box.one(), NAMES)
        assert camera == 0
        assert time is not None
        assert all(len(row) == 5 for row in found)
