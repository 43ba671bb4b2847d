"""Lines of detections, and the sources that they come from."""

import os
import queue
import socket
import threading
import time

import numpy as np
import pytest

from hitmac.agents.deploy.run import detections
from hitmac.agents.deploy.run.detections import LONGEST, Inbox, Source, open_source, parse, simulated
from hitmac.agents.deploy.run.log import Faults
from tests.agents.deploy.run.fakes import NAMES, SITE

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
    ],
)
def test_other_lines_are_refused(line, words):
    with pytest.raises(ValueError, match=words):
        parse(line, NAMES)


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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    box = opened(f"udp://:{port}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(GOOD, ("127.0.0.1", port))  # the loopback, without a host
        sender.sendto(b"a\n\nb\n", ("127.0.0.1", port))
        assert [box.one(), box.one(), box.one()] == [GOOD, b"a", b"b"]
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
    """MQTT broker of one client, which it accepts, and to which it sends messages of one topic.

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
                client.sendall(b"\x90\x03" + body[:2] + b"\x00")
                for payload in payloads:
                    client.sendall(bytes((0x30, 2 + len(topic) + len(payload), 0, len(topic))) + topic + payload)
                self.received["last"] = payloads
        self.server.close()


def test_messages_of_an_mqtt_topic_also_after_the_broker_was_away(opened, monkeypatch):
    pytest.importorskip("paho.mqtt")
    monkeypatch.setenv(detections.USER, "operator")
    monkeypatch.setenv(detections.PASSWORD, "secret")
    broker = Broker([[GOOD], [b"again", b"and again"]])
    box = opened(f"mqtt://127.0.0.1:{broker.port}/hall/detections")
    assert [box.one() for _ in range(3)] == [GOOD, b"again", b"and again"]
    assert broker.received["topic"] == "hall/detections"
    broker.join(30)


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
    box = opened(simulated(SITE.replace(time_step=0.01, missed_detections=0), lambda: headings))
    for _ in range(3):
        camera, time, found = parse(box.one(), NAMES)
        assert camera == 0
        assert time is not None
        assert all(len(row) == 5 for row in found)
