"""Detections of real cameras: lines from a source, and their meaning."""

import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hitmac.agents.deploy.run.boxes import read_boxes
from hitmac.agents.deploy.run.log import Faults
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.parts.sensors import limits_of, within
from hitmac.envs.parts.tilt import make_mount
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.validation import is_whole, shortly

LONGEST = 65536
"""Bytes of the longest line, those of a UDP datagram."""

USER, PASSWORD = "HITMAC_MQTT_USER", "HITMAC_MQTT_PASSWORD"
"""Environment variables of the MQTT broker's user and password."""

_POLL = 0.003  # seconds between looks at a file
_WAIT = 0.2  # seconds until a thread notices that it shall end


class Line(bytes):
    """Line of a source that names its `topic`."""

    topic = ""


def parse(line: bytes, names: Sequence[str], sources: Mapping[str, int] = {}) -> tuple[int, float | None, Any]:
    """Parse ``{"camera": "north", "time": 1700000000.25, "detections": [[x, y], ...]}``, or a message with boxes.

    The camera is one of the `names` or its index, or a key of `sources`, names that detectors use; ``time``, in Unix
    seconds, may be left out. Returns the index, the time or None, and the detections, which are not checked, or the
    :class:`~hitmac.agents.deploy.run.boxes.Boxes`. Raises ValueError, without the content.
    """
    given: Any = line
    if line.lstrip()[:1] != b"<":
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON") from None
    boxes = isinstance(given, bytes) or (isinstance(given, dict) and "detections" not in given)
    if (found := read_boxes(given) if boxes else None) is None:
        if not isinstance(given, dict) or not {"camera", "detections"} <= given.keys():
            raise ValueError("it must be a mapping with camera and detections, or a message with boxes")
        found = given["camera"], given.get("time"), given["detections"]
    camera, when, detections = found
    if camera is None:  # the topic names it
        levels = getattr(line, "topic", "").split("/")
        camera = next((level for level in levels if level in names or level in sources), "/".join(levels))
    if isinstance(camera, str):
        camera = names.index(camera) if camera in names else sources.get(camera, camera)
    if not is_whole(camera) or not 0 <= camera < len(names):
        known = ", ".join((*names, *sources))
        raise ValueError(f"camera is {shortly(camera)}; it must be one of {known}, or its index from 0")
    if when is not None and (isinstance(when, bool) or not isinstance(when, int | float) or not abs(when) < 1e15):
        raise ValueError("time must be a number of seconds")
    return camera, when, detections


class Inbox:
    """Bounded queue of lines from a source's thread to the loop; when it is full, the oldest lines are dropped.

    Attributes:
        dropped: number of dropped lines.
    """

    def __init__(self, most: int = 4096) -> None:
        self._lines: deque[tuple[float, bytes]] = deque(maxlen=most)
        self._new = threading.Condition()
        self.dropped = 0

    def put(self, line: bytes) -> None:
        """Add a line, which arrives now."""
        with self._new:
            self.dropped += len(self._lines) == self._lines.maxlen
            self._lines.append((time.monotonic(), line))
            self._new.notify()

    def clear(self) -> None:
        """Forget all lines so far."""
        with self._new:
            self._lines.clear()
            self.dropped = 0

    def get(self, until: float) -> list[tuple[float, bytes]]:
        """Return all lines and their times of arrival; without any, wait for one until a monotonic time."""
        with self._new:
            self._new.wait_for(lambda: self._lines, max(until - time.monotonic(), 0.0))
            lines = list(self._lines)
            self._lines.clear()
            return lines


class Source:
    """Thread that puts the lines of `read` into an inbox until it is closed; an error ends it, and is reported."""

    def __init__(self, read: Callable[[threading.Event], Iterable[bytes]], inbox: Inbox, faults: Faults) -> None:
        self._read, self._inbox, self._faults, self._end = read, inbox, faults, threading.Event()
        self._thread = threading.Thread(target=self._run, name="detections", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for line in self._read(self._end):
                self._inbox.put(line)
        except OSError as error:
            self._faults.tell(f"the source of detections has failed: {error}")
        if not self._end.is_set():
            self._faults.tell("the source of detections has ended")

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join(10 * _WAIT)


def open_source(source: str, inbox: Inbox, faults: Faults) -> Source:
    """Open a source of detections: ``-``, ``udp://host:port``, ``mqtt://host[:port]/topic`` or the path of a file.

    Raises ValueError for another form, OSError for an address that cannot be used, ModuleNotFoundError without MQTT.
    """
    if source == "-":  # not by sys.stdin, whose lock a waiting thread would keep when the program ends
        chunks = iter(partial(os.read, sys.stdin.fileno(), LONGEST), b"")
        return Source(lambda end: _lines(chunks), inbox, faults)
    if "://" not in source:
        return Source(_growing(Path(source), faults), inbox, faults)
    form = "it must be -, udp://HOST:PORT, mqtt://HOST[:PORT]/TOPIC or the path of a file"
    try:
        url = urlsplit(source)
        scheme, host, port = url.scheme, url.hostname or "127.0.0.1", url.port
        topic = source.partition("://")[2].partition("/")[2]  # with # and ?, which in a topic begin no other part
    except ValueError:
        raise ValueError(f"detections is an invalid address; {form}") from None
    if "@" in url.netloc:
        raise ValueError(f"detections has a user or a password; give them in the variables {USER} and {PASSWORD}")
    if scheme == "udp" and port is not None and not topic:
        return Source(_datagrams(host, port), inbox, faults)
    if scheme in ("mqtt", "mqtts") and topic:
        return Source(_published(host, port, topic, scheme == "mqtts", inbox, faults), inbox, faults)
    raise ValueError(f"detections is {shortly(source)}; {form}")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream that are not blank; one that is too long is cut."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(bytes.strip, lines)
        if len(rest) > LONGEST:
            yield rest
            rest = b""


def _messages(payload: bytes) -> Iterator[bytes]:
    """Yield the lines of a payload; XML is one message."""
    return iter([payload]) if payload.lstrip()[:1] == b"<" else _lines([payload, b"\n"])


_COMPARED = 64  # bytes


def _growing(path: Path, faults: Faults) -> Callable[[threading.Event], Iterator[bytes]]:
    """Return a reader of what is added to a file from now on; one that is replaced or made shorter is read whole.

    A file that was away for a while is the same as before if it has the same bytes before the place of reading.
    """

    def before(place: int) -> bytes:
        with path.open("rb") as file:
            file.seek(max(place - _COMPARED, 0))
            return file.read(min(place, _COMPARED))

    start = (path.stat().st_ino, path.stat().st_size) if path.exists() else (0, 0)
    known = before(start[1]) if start[1] else b""

    def read(end: threading.Event) -> Iterator[bytes]:
        (own, place), last, away = start, known, False
        while not end.wait(_POLL):
            try:
                now = path.stat()
                if now.st_ino != own or now.st_size < place or (away and before(place) != last):
                    own, place, last = now.st_ino, 0, b""
                away = False
                if now.st_size > place:
                    with path.open("rb") as file:
                        file.seek(place)
                        chunk = file.read(LONGEST)
                    place, last = place + len(chunk), (last + chunk)[-_COMPARED:]
                    yield chunk
            except OSError as error:
                away = True
                faults.report("the file of detections cannot be read", error.strerror or "")

    return lambda end: _lines(read(end))


def _datagrams(host: str, port: int) -> Callable[[threading.Event], Iterator[bytes]]:
    """Return a reader of UDP datagrams of one or more lines, already bound to its address."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise type(error)(error.errno, f"{error.strerror}: udp://{host}:{port}") from None
    bound.settimeout(_WAIT)

    def read(end: threading.Event) -> Iterator[bytes]:
        with bound:
            while not end.is_set():
                try:
                    yield from _messages(bound.recv(LONGEST))
                except TimeoutError:
                    continue

    return read


def _published(
    host: str, port: int | None, topic: str, secure: bool, inbox: Inbox, faults: Faults
) -> Callable[[threading.Event], Iterator[bytes]]:
    """Return a reader of the messages of an MQTT topic, which connects again whenever it has to."""
    try:
        from paho.mqtt import client as mqtt
    except ModuleNotFoundError:
        raise ModuleNotFoundError("detections by MQTT require paho-mqtt: pip install 'hitmac[run]'") from None
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    if os.environ.get(USER):
        client.username_pw_set(os.environ[USER], os.environ.get(PASSWORD))
    if secure:
        client.tls_set()
    refused: list[str] = []
    try:
        client.subscribe(topic)  # before a connection it is only checked
    except ValueError:
        raise ValueError(f"detections has the topic {shortly(topic)}; + and # must be levels, # the last") from None

    def connected(client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        refused[:] = [str(reason)] if reason.is_failure else []
        client.subscribe(topic)

    def subscribed(client: Any, data: Any, number: int, reasons: Any, properties: Any) -> None:
        refused[:] = [f"it refuses the topic {topic}" for reason in reasons if reason.is_failure]

    def failed(client: Any, data: Any) -> None:  # within the handling of an OSError
        refused[:] = [str(sys.exception())]

    def received(client: Any, data: Any, message: Any) -> None:
        if message.retain:  # from before the connection, of any age
            return
        for line in map(Line, _messages(message.payload[:LONGEST])):
            line.topic = message.topic
            inbox.put(line)

    client.on_connect, client.on_connect_fail = connected, failed
    client.on_subscribe, client.on_message = subscribed, received
    client.reconnect_delay_set(1, 10)
    client.connect_async(host, port or (8883 if secure else 1883))

    def read(end: threading.Event) -> Iterator[bytes]:
        client.loop_start()
        while not end.wait(_WAIT):
            if refused or not client.is_connected():
                faults.report("the MQTT broker sends nothing", "".join(refused))
        client.disconnect()
        client.loop_stop()
        yield from ()

    return read


def simulated(scenario: Scenario, cameras: Any) -> Callable[[threading.Event], Iterator[bytes]]:
    """Return a reader of the detections of simulated targets by cameras, once a time step.

    The cameras have the attributes `headings`, and where they tilt or zoom `tilts` and `views`, each (n,), degrees.
    """
    simulator, observer, limits = Simulator(scenario, 1, 0), DetectionObserver(scenario), limits_of(scenario)
    still = np.zeros((1, scenario.num_sensors), np.int64)
    simulator.step(still)
    observer.observe(simulator)  # compiled before the first detections are due

    def read(end: threading.Event) -> Iterator[bytes]:
        due = time.monotonic()
        while not end.wait(max(due - time.monotonic(), 0.0)):
            due = max(due, time.monotonic() - scenario.time_step) + scenario.time_step
            if simulator.track_ended[0]:
                simulator.reset()
            now, state = cameras.headings, simulator.state
            if scenario.zoom:
                state.field_of_view[0] = cameras.views
            if scenario.tilt_limits:
                state.tilt[0] = np.nan_to_num(cameras.tilts).clip(*make_mount(scenario).limit.T)
            simulator.place(heading=np.clip(within(np.nan_to_num(now), limits), *limits.T))
            simulator.step(still)
            shown, when = observer.observe(simulator), time.time()
            for i in np.flatnonzero(np.isfinite(now)).tolist():
                found = shown["detections"][0, i][shown["mask"][0, i] != 0].tolist()
                yield json.dumps({"camera": i, "time": when, "detections": found}).encode()

    return read
