"""Drivers of cameras, and the file that lists them.

``onvif-python`` (extra `cameras`) speaks ONVIF: it holds the schemas and limits every wait. VISCA over IP is spoken
here, since ``visca-over-ip`` supports one camera at a time: it receives on the device's own port.
"""

import dataclasses
import datetime
import json
import logging
import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hitmac.agents.deploy.run.cameras import BRAKING, Camera, names_of
from hitmac.envs import validation
from hitmac.envs.files import parse_yaml, read_text
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import Choice, Positive, Range, Row, in_short, over, shortly

Port = Annotated[int, Range(1, 65535)]


@dataclass(kw_only=True)
class _Driver(Camera):
    """Settings of a driver; an invalid one raises ``ValueError`` or ``TypeError``."""

    highest_rate: Positive = 60.0
    """Highest rate, degrees per second."""
    braking: Positive = BRAKING
    """Deceleration, degrees per second squared: the way that a camera needs to stop is left before a pan limit."""

    def __post_init__(self) -> None:
        converted, errors = validation.invalid_fields(self)
        validation.raise_together(list(errors.values()))
        vars(self).update(converted)

    def close(self) -> None:
        """Stop."""
        self.turn(0.0)


@dataclass(kw_only=True)
class Simulated(_Driver):
    """Camera without a device, which turns exactly as ordered."""

    start: float = 0.0
    """Heading at the start, degrees; in a file by default that of the site, or the middle of the pan limits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._heading, self._rate, self._since = self.start, 0.0, time.monotonic()

    def heading(self) -> float:
        """Return the heading that follows from the orders."""
        return self._heading + self._rate * (time.monotonic() - self._since)

    def turn(self, rate: float) -> None:
        """Turn at once at a rate."""
        self._heading, self._rate, self._since = self.heading(), rate, time.monotonic()


@dataclass(kw_only=True)
class Printed(Simulated):
    """Simulated camera whose orders are printed for another program, ``{"camera": "0", "rate": 12.5}`` a line."""

    camera: Any = "0"
    """Name in the orders; in a file by default that of the sensor."""

    def turn(self, rate: float) -> None:
        """Print the order."""
        print(json.dumps({"camera": self.camera, "rate": rate}) + "\n", end="", flush=True)
        super().turn(rate)


@dataclass(kw_only=True)
class _Device(_Driver):
    """Pan-tilt head in a network, with the heading zero + sign * pan, degrees."""

    host: str = ""
    """Name or address."""
    zero: float = 0.0
    """Heading of the device's pan 0, degrees."""
    sign: float = -1
    """-1: the pan grows clockwise, as seen from above; 1: counter-clockwise, as of most devices upside down."""
    pan_range: Annotated[tuple[float, float], Row(("low", "high"))] = (-180.0, 180.0)
    """Lowest and highest pan of the device, degrees; an answer beyond is nonsense."""
    answer_within: Positive = 0.4
    """Longest wait for an answer of the device, seconds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.pan_range
        if not self.host or self.sign not in (-1, 1) or low >= high:
            given = f"host is {self.host!r}, sign {self.sign:g}, pan_range {[low, high]}"
            raise ValueError(f"{given}; they must be a name or address, -1 or 1, and [low, high] with low under high")

    def _heading_of(self, pan: float) -> float:
        """Return the heading of a pan, degrees."""
        low, high = self.pan_range
        if not low - 1.0 <= pan <= high + 1.0:  # also NaN
            raise ValueError(f"the pan is {pan:g} degrees, beyond {low:g} to {high:g}")
        return self.zero + self.sign * pan


@dataclass(kw_only=True)
class Onvif(_Device):
    """Camera with ONVIF's PTZ service: GetStatus, ContinuousMove with a timeout, Stop.

    A device that refuses the timeout moves without one, and one that refuses Stop gets a velocity of 0. The normalized
    positions -1 and 1 are the ends of `pan_range`; the normalized velocity 1 is `highest_rate`.
    """

    port: Port = 80
    user: str = ""
    """User; empty: none."""
    password_env: str = ""
    """Name of the environment variable with the password."""
    digest: Annotated[str, Choice(("message", "http"))] = "message"
    """Authentication: `message`: WS-Security, for which the device's clock must be right; `http`: HTTP digest."""
    profile: str = ""
    """Token of the media profile; empty: the first with a pan-tilt head."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.user and self.password_env not in os.environ:
            raise ValueError(f"password_env is {self.password_env!r}; no environment variable has this name")
        self._service: Any = None
        self._moves: list[tuple[str, dict[str, Any]]]  # the ways that the device has not refused, best first
        self._moves = [("ContinuousMove", {"Timeout": datetime.timedelta(seconds=2)}), ("ContinuousMove", {})]
        self._stops = [("Stop", {"PanTilt": True, "Zoom": False}), *self._moves]

    def heading(self) -> float:
        """Ask for the heading, degrees."""
        status, (low, high) = self._call("GetStatus"), self.pan_range
        try:
            share = float(status.Position.PanTilt.x)
        except (AttributeError, TypeError, ValueError):
            raise ValueError("the answer holds no pan") from None
        return self._heading_of(low + (share + 1.0) / 2.0 * (high - low))

    def turn(self, rate: float) -> None:
        """Order a rate, degrees per second, for two seconds."""
        velocity = {"PanTilt": {"x": min(max(self.sign * rate / self.highest_rate, -1.0), 1.0), "y": 0.0}}
        ways = self._moves if rate else self._stops
        for number, (operation, arguments) in enumerate(ways):
            try:
                self._call(operation, **arguments | ({} if operation == "Stop" else {"Velocity": velocity}))
            except Exception as error:
                if number == len(ways) - 1 or not _is_fault(error):
                    raise
            else:
                del ways[:number]
                return

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Call an operation of the PTZ service, after connecting to it."""
        if self._service is None:
            try:
                from onvif import CacheMode, ONVIFClient
            except ModuleNotFoundError:
                raise ModuleNotFoundError("ONVIF requires onvif-python: pip install 'hitmac[cameras]'") from None
            logging.getLogger("zeep").addHandler(logging.NullHandler())  # else it prints what it cannot read
            client = ONVIFClient(
                self.host, self.port, self.user or None, os.environ.get(self.password_env),
                http_digest=self.digest == "http", timeout=self.answer_within, cache=CacheMode.NONE, apply_patch=False,
            )  # fmt: skip
            try:
                profiles = [] if self.profile else client.media().GetProfiles()
            except Exception as error:
                if self.user and _is_fault(error) and abs(ahead := _clock_of(client) - time.time()) > _CLOCKS:
                    raise PermissionError(f"{error}; the clock of the device is {ahead:+.0f} s off") from None
                raise
            with_head = [one for one in profiles if one.PTZConfiguration is not None]
            self._token = self.profile or (with_head or profiles)[0].token
            self._service = client.ptz()
        return getattr(self._service, operation)(ProfileToken=self._token, **arguments)


_CLOCKS = 5.0
"""Difference of two clocks that a refused login mentions, seconds."""


def _is_fault(error: Exception) -> bool:
    """Return True if the device has refused an operation, in an answer."""
    if (cause := getattr(error, "original_exception", None)) is None:  # not of onvif-python
        return False
    from zeep.exceptions import Fault

    return isinstance(cause, Fault)


def _clock_of(client: Any) -> float:
    """Return the time of a device, seconds since 1970."""
    now = client.devicemgmt().GetSystemDateAndTime().UTCDateTime
    date, clock = now.Date, now.Time
    parts = date.Year, date.Month, date.Day, clock.Hour, clock.Minute, clock.Second
    return datetime.datetime(*parts, tzinfo=datetime.UTC).timestamp()


@dataclass(kw_only=True)
class Visca(_Device):
    """Camera with VISCA over IP: Pan-tiltPosInq and Pan-tiltDrive of Sony's command list.

    A message without an answer is sent again under the next sequence number, up to three times.
    """

    port: Port = 52381
    """Port; devices without the header often have 1259 for UDP and 5678 for TCP."""
    framing: Annotated[str, Choice(("numbered", "unnumbered", "plain"))] = "numbered"
    """Messages: `numbered`: with Sony's header, whose numbers the answers repeat; `unnumbered`: with the header, but
    the numbers of the answers are ignored; `plain`: without the header."""
    transport: Annotated[str, Choice(("udp", "tcp"))] = "udp"
    """Transport; TCP is for plain messages."""
    units_per_degree: Positive = 14.4
    """Units of the pan in a degree."""
    speeds: Annotated[tuple[float, ...], over(0, None, "degrees per second")] = ()
    """Rates of the speeds 1, 2, ..., increasing, at most 24; an order takes the fastest speed that is not above it.
    Empty: k / 24 of highest_rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        speeds = self.speeds or tuple(self.highest_rate * k / 24 for k in range(1, 25))
        if len(speeds) > 24 or any(np.diff(speeds) <= 0.0):
            raise ValueError(f"speeds is {list(speeds)}; it must be at most 24 increasing rates")
        self.speeds, self.highest_rate = speeds, speeds[-1]
        if self.transport == "tcp" and self.framing != "plain":
            raise ValueError(f"framing is {self.framing}; it must be plain with transport tcp")
        self._socket: socket.socket | None = None

    def heading(self) -> float:
        """Ask for the heading, degrees."""
        answer = self._ask(b"\x01\x10", b"\x81\x09\x06\x12\xff")
        digits = answer[2:-5]  # 4 hexadecimal digits of the pan, 5 in newer devices, before 4 of the tilt
        if len(digits) not in (4, 5) or max(digits) > 0x0F:
            raise ValueError(f"the answer {answer.hex(' ')} holds no pan")
        units, whole = int(digits.hex()[1::2], 16), 16 ** len(digits)
        return self._heading_of((units - whole if units >= whole / 2 else units) / self.units_per_degree)

    def turn(self, rate: float) -> None:
        """Order a rate, degrees per second."""
        speed = int(np.searchsorted(self.speeds, abs(rate) * 1.001, "right"))
        way = 3 if speed == 0 else 2 if self.sign * rate > 0.0 else 1  # stop, right, left
        self._ask(b"\x01\x00", bytes((0x81, 0x01, 0x06, 0x01, max(speed, 1), 1, way, 3, 0xFF)))

    def _ask(self, kind: bytes, message: bytes) -> bytes:
        """Send a message and return its first answer."""
        if self._socket is None:
            kind_of_socket = socket.SOCK_STREAM if self.transport == "tcp" else socket.SOCK_DGRAM
            made = socket.socket(socket.AF_INET, kind_of_socket)
            try:
                made.settimeout(self.answer_within)
                made.connect((self.host, self.port))
                if self.framing != "plain":
                    made.send(b"\x02\x00\x00\x01\x00\x00\x00\x00\x01")  # RESET: the device counts from 0
            except OSError:
                made.close()
                raise
            self._socket, self._sequence, self._received = made, 0, b""
        try:
            return self._exchange(self._socket, kind, message)
        except TimeoutError:
            raise TimeoutError(f"no answer in {self.answer_within:g} s") from None
        except OSError:
            self._socket.close()
            self._socket = None
            raise

    def _exchange(self, connection: socket.socket, kind: bytes, message: bytes) -> bytes:
        """Send a message, again where no answer comes, and return its first answer."""
        first, inquires = self._sequence + 1, message[1] == 0x09
        for last in range(first, first + 3):
            self._sequence = last
            header = b"" if self.framing == "plain" else kind + struct.pack(">HI", len(message), last)
            connection.send(header + message)
            until = time.monotonic() + self.answer_within / 3.0
            while answer := self._receive(connection, until, range(first, last + 1)):
                if len(answer) < 3 or answer[1] >> 4 not in (4, 5):  # acknowledged, done
                    raise ValueError(f"the answer is {answer.hex(' ')}, an error of VISCA")
                # Without numbers, it may be the answer to an earlier message of the other kind.
                if self.framing == "numbered" or inquires == (len(answer) > 3):
                    return answer
        raise TimeoutError

    def _receive(self, connection: socket.socket, until: float, numbers: range) -> bytes:
        """Return the next answer, to a message of these numbers if they count; empty: none until a time."""
        while True:
            if b"\xff" in self._received:
                answer, end, self._received = self._received.partition(b"\xff")
                return answer + end
            if (left := until - time.monotonic()) <= 0.0:
                return b""
            connection.settimeout(left)
            try:
                received = connection.recv(64)
            except TimeoutError:
                return b""
            if self.framing == "plain":
                if not received and self.transport == "tcp":
                    raise ConnectionError("the device has closed the connection")
                self._received += received
            elif received[:2] == b"\x02\x01" and received[8:9] == b"\x0f":
                raise ConnectionError("the device has lost count of the messages")
            elif received[:2] == b"\x01\x11" and (
                self.framing == "unnumbered" or int.from_bytes(received[4:8]) in numbers
            ):
                return received[8:]

    def close(self) -> None:
        """Stop the camera, and close the socket."""
        try:
            super().close()
        finally:
            if self._socket:
                self._socket.close()
            self._socket = None


DRIVERS: dict[str, Any] = {"simulated": Simulated, "stdout": Printed, "onvif": Onvif, "visca": Visca}
"""Drivers by name."""


def load_cameras(kind: str | Path, scenario: Scenario) -> list[Camera]:
    """Return the driver of every sensor: `kind`, a name in :data:`DRIVERS`, or as in a YAML file.

    The file maps every sensor, by name or number from 0, to the driver's name, `driver`, and the driver's settings.
    Raises ``ValueError`` or ``TypeError``, which names the file, the camera and the setting.
    """
    names, cameras, where = names_of(scenario), [], f"{kind}"
    given: Any = {name: {"driver": kind} for name in names}
    try:
        if kind not in DRIVERS:
            given = parse_yaml(read_text(kind))
            rows = given.items() if isinstance(given, dict) else ()
            numbered: dict[Any, str] = dict(enumerate(names))
            given = {numbered.get(key, key): own for key, own in rows}
        if given.keys() != set(names):
            words = f"it must hold the settings of each sensor: {', '.join(names)}"
            raise ValueError(f"it holds {in_short(given) or 'no sensor'}; {words}")
        for i, name in enumerate(names):
            where = f"{kind}: camera {name}"
            cameras.append(_driver(given[name], name, scenario, i))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from None
    return cameras


def _driver(settings: Any, name: str, scenario: Scenario, i: int) -> Camera:
    """Return the driver of sensor i with these settings."""
    settings = dict(settings) if isinstance(settings, dict) else {}
    driver, _ = settings.pop("driver", None), settings.pop("view", None)  # see load_views
    if not validation.is_among(driver, DRIVERS):
        raise ValueError(f"driver is {shortly(driver)}; it must be one of {', '.join(DRIVERS)}")
    known = [field.name for field in dataclasses.fields(DRIVERS[driver])]
    if unknown := settings.keys() - set(known):
        raise ValueError(f"unknown setting {in_short(unknown, known)}: known are {', '.join(known)}")
    middle = np.nan_to_num(limits_of(scenario)[i], posinf=0.0, neginf=0.0).mean()
    defaults = {"camera": name, "start": scenario.sensor_headings[i] if scenario.sensor_headings else middle}
    return DRIVERS[driver](**{key: value for key, value in defaults.items() if key in known} | settings)
