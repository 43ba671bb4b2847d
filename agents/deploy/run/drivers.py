"""Drivers of cameras, and the file that lists them.

``onvif-python`` (extra `cameras`) speaks ONVIF: it holds the schemas and limits every wait. VISCA over IP is spoken
here, since ``visca-over-ip`` supports one camera at a time: it receives on the device's own port.
"""

import contextlib
import dataclasses
import datetime
import json
import logging
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hitmac.agents.deploy.camera import Head
from hitmac.agents.deploy.run.cameras import PERIOD, Camera, names_of
from hitmac.envs import validation
from hitmac.envs.files import parse_yaml, read_text
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.parts.tilt import make_mount
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import Choice, Positive, Range, Row, in_short, over, shortly

Port = Annotated[int, Range(1, 65535)]


@dataclass(kw_only=True)
class Simulated(Camera):
    """Camera without a device, which turns, tilts and zooms exactly as ordered."""

    start: float = 0.0
    """Heading at the start, degrees; in a file by default that of the site, or the middle of the pan limits."""
    start_tilt: float = 0.0
    """Tilt at the start, degrees; in a file by default the middle of the tilt limits."""
    start_view: float = 0.0
    """Field of view at the start, degrees; in a file by default that of the site."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._angles, self._rates, self._since = (self.start, self.start_tilt), (0.0, 0.0), time.monotonic()
        self._view = self.start_view

    def pose(self) -> tuple[float, float, float]:
        """Return heading, tilt and field of view that follow from the orders."""
        seconds = time.monotonic() - self._since
        heading, tilt = (angle + rate * seconds for angle, rate in zip(self._angles, self._rates, strict=True))
        return heading, tilt, self._view

    def move(self, rate: float, tilt_rate: float) -> None:
        """Turn and tilt at once at rates."""
        *angles, _ = self.pose()
        self._angles, self._rates, self._since = (angles[0], angles[1]), (rate, tilt_rate), time.monotonic()

    def zoom(self, view: float) -> None:
        """Zoom at once."""
        self._view = view


@dataclass(kw_only=True)
class Printed(Simulated):
    """Simulated camera whose orders are printed for another program, ``{"camera": "0", "rate": 12.5}`` a line.

    Cameras that tilt or zoom also have ``"tilt_rate"``, and lines ``{"camera": "0", "field_of_view": 30.0}``.
    """

    camera: Any = "0"
    """Name in the orders; in a file by default that of the sensor."""

    def turn(self, rate: float) -> None:
        """Print the order."""
        self._print(rate=rate)
        Simulated.move(self, rate, 0.0)

    def move(self, rate: float, tilt_rate: float) -> None:
        """Print the order."""
        self._print(rate=rate, tilt_rate=tilt_rate)
        super().move(rate, tilt_rate)

    def zoom(self, view: float) -> None:
        """Print the order."""
        self._print(field_of_view=view)
        super().zoom(view)

    def _print(self, **order: float) -> None:
        print(json.dumps({"camera": self.camera, **order}) + "\n", end="", flush=True)


@dataclass(kw_only=True)
class _Device(Camera, Head):
    """Pan-tilt head in a network."""

    host: str = ""
    """Name or address."""
    zooms: tuple[Annotated[tuple[float, float], Row(("position", "field of view"))], ...] = ()
    """Zoom positions of the device, increasing, and their horizontal fields of view in degrees, decreasing, as
    [[0, 60], [1, 3]]; in between the focal length is linear. Empty: the camera does not zoom."""
    preset: str = ""
    """Preset to which the camera goes when the run ends, a token of ONVIF or a number of VISCA; empty: it stops."""
    answer_within: Positive = 0.4
    """Longest wait for an answer of the device, seconds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positions, views = np.array(self.zooms, np.float64).reshape(-1, 2).T
        self._focal = 1.0 / np.tan(np.radians(views / 2.0))

    def _rules_of_devices(self) -> validation.Rules:
        yield "host", self.host, "a name or address"
        positions, views = np.array(self.zooms, np.float64).reshape(-1, 2).T
        falls = (np.diff(positions) > 0).all() and (np.diff(views) < 0).all() and ((views > 0) & (views < 180)).all()
        words = "empty, or two or more rows with increasing positions and decreasing fields of view, 0 to 180"
        yield "zooms", len(self.zooms) != 1 and falls, words

    def _read(self) -> tuple[float, float, float]:
        """Ask for pan and tilt of the device, degrees, and its zoom; NaN where the answer has none."""
        raise NotImplementedError

    def heading(self) -> float:
        """Ask for the heading, degrees."""
        self.answer = self._read()
        return self._angle_of("pan", self.answer[0])

    def pose(self) -> tuple[float, float, float]:
        """Ask for heading, tilt and field of view, degrees."""
        pan, tilt, zoom = self.answer = self._read()
        return self._angle_of("pan", pan), self._angle_of("tilt", tilt), self._view_of(zoom)

    def _view_of(self, position: float) -> float:
        """Return the field of view at a zoom position; NaN without `zooms` or a position."""
        if not len(self._positions) or np.isnan(position):
            return math.nan
        low, high = self._positions[[0, -1]]
        if not low - (slack := 0.01 * (high - low)) <= position <= high + slack:
            raise ValueError(f"the zoom is {position:g}, beyond {low:g} to {high:g}")
        return float(2.0 * np.degrees(np.arctan(1.0 / np.interp(position, self._positions, self._focal))))

    def _position_of(self, view: float) -> float:
        """Return the zoom position of a field of view."""
        return float(np.interp(1.0 / np.tan(np.radians(view / 2.0)), self._focal, self._positions))

    def _angle_of(self, name: str, angle: float) -> float:
        """Return the heading of a device's pan, or the tilt below the horizon of its tilt, degrees."""
        pans, tilts = (self.pan_range, self.zero, self.sign), (self.tilt_range, self.tilt_zero, self.tilt_sign)
        (low, high), zero, sign = pans if name == "pan" else tilts
        if not low - 1.0 <= angle <= high + 1.0:  # also NaN
            raise ValueError(f"the {name} is {angle:g} degrees, beyond {low:g} to {high:g}")
        return zero + sign * angle


_REFUSALS = 3
"""Orders in a row that a device refuses one way and takes another, after which it is not asked this way any more."""


class _Ways:
    """Ways to give a device orders of one kind, best first, of which it may refuse the first ones."""

    def __init__(self, ways: list[Any]) -> None:
        self.left, self._used, self._refusals = ways, 0, 0

    @property
    def last(self) -> Any:
        """The way that the last order went; at first the best one."""
        return self.left[self._used]

    def take(self, call: Callable[[Any], object], refuses: Callable[[Exception], bool]) -> None:
        """Call the ways one after the other, until the device takes one; forget those that it always refused before."""
        for number, way in enumerate(self.left):
            try:
                call(way)
            except Exception as error:
                if number == len(self.left) - 1 or not refuses(error):
                    raise
            else:
                self._used, self._refusals = number, self._refusals + 1 if number else 0
                break
        if self._refusals == _REFUSALS:
            del self.left[: self._used]
            self._used = self._refusals = 0


_SPACES = "http://www.onvif.org/ver10/tptz/PanTiltSpaces/"
_DEGREES = {
    "Position": "SphericalPositionSpaceDegrees", "Translation": "SphericalTranslationSpaceDegrees",
    "Velocity": "VelocitySpaceDegrees",
}  # fmt: skip


@dataclass(kw_only=True)
class Onvif(_Device):
    """Camera with ONVIF's PTZ service: GetStatus, ContinuousMove with a timeout, Stop; AbsoluteMove for the zoom.

    A device that refuses the timeout moves without one; one that refuses ContinuousMove is moved by small steps, of
    RelativeMove or else AbsoluteMove; one that refuses Stop gets a velocity of 0. A device that refuses AbsoluteMove
    zooms by RelativeMove. The normalized positions -1 and 1 are the ends of `pan_range` and of `tilt_range`; the
    normalized velocity 1 is `highest_rate`.

    Source: ONVIF PTZ Service Specification, sections 5.3 (operations) and 5.7 (spaces).
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
    units: Annotated[str, Choice(("normalized", "degrees"))] = "normalized"
    """Space of positions and velocities."""
    status: bool = True
    """false: a device without GetStatus. It is moved by AbsoluteMove alone, at first to its pan and tilt 0 and its
    widest view, and counts as where it was sent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.user and self.password_env not in os.environ:
            raise ValueError(f"password_env is {self.password_env!r}; no environment variable has this name")
        self._service: Any = None
        moves = [("ContinuousMove", {"Timeout": datetime.timedelta(seconds=2)}), ("ContinuousMove", {})]
        self._stops = _Ways([("Stop", {"PanTilt": True, "Zoom": False}), *moves])
        self._moves = _Ways([*moves, ("RelativeMove", {}), ("AbsoluteMove", {})])
        self._zooming = _Ways([("AbsoluteMove", {}), ("RelativeMove", {})])
        widest = float(self._positions[0]) if self.zooms else math.nan
        self.answer = 0.0, 0.0, widest
        if not self.status:
            del self._moves.left[:-1]

    @property
    def steps(self) -> bool:
        """True if the device was last moved by a step."""
        return not self._moves.last[0].startswith("C")

    def _read(self) -> tuple[float, float, float]:
        if not self.status:
            if self._service is None:
                pan, tilt, zoom = self.answer
                self._call("AbsoluteMove", Position=self._vector("Position", pan, tilt) | self._zoom_at(zoom))
            return self.answer
        status = self._call("GetStatus")
        position = getattr(status, "Position", None)
        found, zoomed = (getattr(position, name, None) for name in ("PanTilt", "Zoom"))
        try:
            pan = float(found.x)  # type: ignore[union-attr]
        except (AttributeError, TypeError, ValueError):
            raise ValueError("the answer holds no pan") from None
        space = str(getattr(found, "space", None) or "")
        if "Space" in space and ("Degrees" in space) != (self.units == "degrees"):
            raise ValueError(f"the answer is in {space.rpartition('/')[2]}, but units is {self.units}")
        tilt, zoom = _number(getattr(found, "y", None)), _number(getattr(zoomed, "x", None))
        if self.units == "normalized" and max(abs(pan), abs(tilt)) > 1.01:
            raise ValueError(f"the answer is {pan:g}, {tilt:g}, beyond -1 to 1; units may have to be degrees")
        return self._degrees(pan, self.pan_range), self._degrees(tilt, self.tilt_range), zoom

    def _degrees(self, share: float, ends: tuple[float, float]) -> float:
        low, high = ends
        return share if self.units == "degrees" else low + (share + 1.0) / 2.0 * (high - low)

    def _vector(self, kind: str, x: float, y: float) -> dict[str, Any]:
        """Return pan and tilt, degrees or degrees per second, in the device's space of a kind."""
        if self.units == "degrees":
            return {"PanTilt": {"x": x, "y": y, "space": _SPACES + _DEGREES[kind]}}
        if kind == "Velocity":
            scales = self.highest_rate, self.highest_tilt_rate or self.highest_rate
            return {"PanTilt": {"x": min(max(x / scales[0], -1.0), 1.0), "y": min(max(y / scales[1], -1.0), 1.0)}}
        widths = [(high - low) / 2.0 for low, high in (self.pan_range, self.tilt_range)]
        middles = [sum(self.pan_range) / 2.0, sum(self.tilt_range) / 2.0] if kind == "Position" else [0.0, 0.0]
        shares = [(one - middle) / width for one, middle, width in zip((x, y), middles, widths, strict=True)]
        return {"PanTilt": dict(zip(("x", "y"), (min(max(share, -1.0), 1.0) for share in shares), strict=True))}

    def move(self, rate: float, tilt_rate: float) -> None:
        """Order rates, degrees per second, for two seconds, or a step."""
        x, y = self.sign * rate, self.tilt_sign * tilt_rate

        def arguments(operation: str) -> dict[str, Any]:
            if operation == "RelativeMove":
                return {"Translation": self._vector("Translation", x * PERIOD, y * PERIOD)}
            if operation == "AbsoluteMove":
                return {"Position": self._vector("Position", *self._stepped(x, y))}
            return {} if operation == "Stop" else {"Velocity": self._vector("Velocity", x, y)}

        self._try(self._moves if x or y else self._stops, arguments)
        if not self.status:
            self.answer = *self._stepped(x, y), self.answer[2]

    def _stepped(self, x: float, y: float) -> tuple[float, float]:
        pan, tilt, _ = self.answer
        return pan + x * PERIOD, (0.0 if np.isnan(tilt) else tilt) + y * PERIOD

    @staticmethod
    def _zoom_at(position: float) -> dict[str, Any]:
        return {} if np.isnan(position) else {"Zoom": {"x": position}}

    def zoom(self, view: float) -> None:
        """Zoom to a field of view, degrees."""
        position, now = self._position_of(view), self.answer[2]

        def arguments(operation: str) -> dict[str, Any]:
            if operation == "AbsoluteMove":
                return {"Position": self._zoom_at(position)}
            return {"Translation": self._zoom_at(position - now)}

        self._try(self._zooming, arguments)
        if not self.status:
            self.answer = *self.answer[:2], position

    def close(self) -> None:
        """Stop, and go to the preset."""
        super().close()
        if self.preset:
            self._call("GotoPreset", PresetToken=self.preset)

    def _try(self, ways: _Ways, arguments: Callable[[str], dict[str, Any]]) -> None:
        """Call the first operation of the ways that the device does not refuse."""
        ways.take(lambda way: self._call(way[0], **way[1] | arguments(way[0])), _is_fault)

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Call an operation of the PTZ service, after connecting to it."""
        if self._service is None:
            try:
                from onvif import CacheMode, ONVIFClient
            except ModuleNotFoundError:
                raise ModuleNotFoundError("ONVIF requires onvif-python: pip install 'hitmac[cameras]'") from None
            logging.getLogger("zeep").addHandler(logging.NullHandler())  # else it prints what it cannot read
            # Making a client takes half a second of the processor, which the other cameras would lack.
            socket.create_connection((self.host, self.port), self.answer_within).close()
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


def _number(value: Any) -> float:
    """Return a number of an answer, NaN for none."""
    return math.nan if value is None else float(value)


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
    """Camera with VISCA over IP: Pan-tiltPosInq, Pan-tiltDrive, CAM_ZoomPosInq, CAM_Zoom Direct of Sony's command list.

    A device that does not know the drive by speeds is moved by small steps, of its Absolute Position. A message without
    an answer is sent again under the next sequence number, up to three times.
    """

    port: Port = 52381
    """Port; devices without the header often have 1259 for UDP and 5678 for TCP."""
    framing: Annotated[str, Choice(("numbered", "unnumbered", "plain"))] = "numbered"
    """Messages: `numbered`: with Sony's header, whose numbers the answers repeat; `unnumbered`: with the header, but
    the numbers of the answers are ignored; `plain`: without the header."""
    transport: Annotated[str, Choice(("udp", "tcp"))] = "udp"
    """Transport; TCP is for plain messages."""
    units_per_degree: Positive = 14.4
    """Units of the pan and the tilt in a degree."""
    speeds: Annotated[tuple[float, ...], over(0, None, "degrees per second")] = ()
    """Rates of the speeds 1, 2, ..., increasing, at most 24; an order takes the fastest speed that is not above it.
    Empty: k / 24 of highest_rate."""
    tilt_speeds: tuple[Annotated[float, over(0, None, "degrees per second")], ...] = ()
    """The same of the tilt, at most 23; empty: as of the pan."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.speeds = self.speeds or tuple(self.highest_rate * k / 24 for k in range(1, 25))
        self.highest_rate, self._tilt_speeds = self.speeds[-1], self.tilt_speeds or self.speeds[:23]
        self._socket: socket.socket | None = None
        self.sent, self._digits = (0.0, 0.0), 4  # of the pan
        self._moves = _Ways([self._drive, self._step])

    def _rules_of_visca(self) -> validation.Rules:
        for name, most in (("speeds", 24), ("tilt_speeds", 23)):
            rates = getattr(self, name)
            yield name, len(rates) <= most and (np.diff(rates) > 0.0).all(), f"at most {most} increasing rates"
        numbered = self.preset.isdecimal() and int(self.preset) < 255
        yield "preset", not self.preset or numbered, "a number from 0 to 254"
        yield "framing", self.transport == "udp" or self.framing == "plain", "plain with transport tcp"

    def _read(self) -> tuple[float, float, float]:
        """Ask for pan and tilt of the device, degrees, and with `zooms` for its zoom, else NaN."""
        answer = self._ask(b"\x01\x10", b"\x81\x09\x06\x12\xff")
        digits = answer[2:-1]  # 4 hexadecimal digits of the pan, 5 in newer devices, before 4 of the tilt
        if len(digits) not in (8, 9):
            raise ValueError(f"the answer {answer.hex(' ')} holds no pan")
        parts = ((digits[:-4], "pan"), (digits[-4:], "tilt"))
        pan, tilt = (_units(part, name, answer, signed=True) / self.units_per_degree for part, name in parts)
        self._digits, zoom = len(digits) - 4, math.nan
        if self.zooms:
            with contextlib.suppress(_SyntaxError):  # of a device that does not report it
                zoom = _units(self._ask(b"\x01\x10", b"\x81\x09\x04\x47\xff")[2:-1], "zoom")
        return pan, tilt, zoom

    def move(self, rate: float, tilt_rate: float) -> None:
        """Order rates, degrees per second, or a step."""
        self.sent = rate, tilt_rate
        self._moves.take(lambda way: way(rate, tilt_rate), lambda error: isinstance(error, _SyntaxError))

    @property
    def steps(self) -> bool:
        """True if the device was last moved by a step."""
        return self._moves.last == self._step

    def _drive(self, rate: float, tilt_rate: float) -> None:
        """Turn and tilt at the fastest speeds that are not above rates."""
        speed, tilt_speed = self._speed(rate, self.speeds), self._speed(tilt_rate, self._tilt_speeds)
        way = 3 if speed == 0 else 2 if self.sign * rate > 0.0 else 1  # stop, right, left
        tilt_way = 3 if tilt_speed == 0 else 1 if self.tilt_sign * tilt_rate > 0.0 else 2  # stop, up, down
        drive = bytes((0x81, 0x01, 0x06, 0x01, max(speed, 1), max(tilt_speed, 1), way, tilt_way, 0xFF))
        self._ask(b"\x01\x00", drive)
        rates = [0.0, *self.speeds][speed], [0.0, *self._tilt_speeds][tilt_speed]
        self.sent = math.copysign(rates[0], rate), math.copysign(rates[1], tilt_rate)

    def _step(self, rate: float, tilt_rate: float) -> None:
        """Move as far as rates lead until the next order, at the highest speed; a device at rest stays there."""
        if not (rate or tilt_rate):
            return
        pan, tilt = self.answer[0] + self.sign * rate * PERIOD, self.answer[1] + self.tilt_sign * tilt_rate * PERIOD
        speeds = len(self.speeds), len(self._tilt_speeds) if self._digits == 4 else 0
        digits = _digits(pan * self.units_per_degree, self._digits) + _digits(tilt * self.units_per_degree, 4)
        self._ask(b"\x01\x00", bytes((0x81, 0x01, 0x06, 0x02, *speeds, *digits, 0xFF)))

    @staticmethod
    def _speed(rate: float, speeds: Sequence[float]) -> int:
        """Return the fastest speed that is not above a rate; 0: none."""
        return int(np.searchsorted(speeds, abs(rate) * 1.001, "right"))

    def zoom(self, view: float) -> None:
        """Zoom to a field of view, degrees."""
        self._ask(b"\x01\x00", bytes((0x81, 0x01, 0x04, 0x47, *_digits(self._position_of(view), 4), 0xFF)))

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
                self._check(answer)
                # Without numbers, it may be the answer to an earlier message of the other kind.
                if self.framing == "numbered" or inquires == (len(answer) > 3):
                    return answer
        raise TimeoutError

    @staticmethod
    def _check(answer: bytes) -> None:
        if len(answer) < 3 or answer[1] >> 4 not in (4, 5):  # acknowledged, done
            kind = _SyntaxError if answer[1:3] == b"\x60\x02" else ValueError
            raise kind(f"the answer is {answer.hex(' ')}, an error of VISCA")

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
                self._received = (self._received + received)[-_LONGEST:]
            elif received[:2] == b"\x02\x01" and received[8:9] == b"\x0f":
                raise ConnectionError("the device has lost count of the messages")
            elif received[:2] == b"\x01\x11" and (
                self.framing == "unnumbered" or int.from_bytes(received[4:8]) in numbers
            ):
                return received[8:]

    def close(self) -> None:
        """Stop the camera, send it to its preset, and close the socket."""
        try:
            super().close()
            if self.preset:
                self._ask(b"\x01\x00", bytes((0x81, 0x01, 0x04, 0x3F, 0x02, int(self.preset), 0xFF)))
        finally:
            if self._socket:
                self._socket.close()
            self._socket = None


_LONGEST = 64  # bytes that are kept of an answer without an end


class _SyntaxError(ValueError):
    """Answer of a device that does not know a command."""


def _digits(number: float, count: int) -> bytes:
    """Return the last hexadecimal digits of a whole number, one a byte."""
    return bytes(int(digit, 16) for digit in f"{round(number) % 16**count:0{count}x}")


def _units(digits: bytes, name: str, answer: bytes = b"", *, signed: bool = False) -> float:
    """Return the number of hexadecimal digits, one a byte; raise ValueError for other bytes."""
    if not digits or max(digits) > 0x0F:
        raise ValueError(f"the answer {(answer or digits).hex(' ')} holds no {name}")
    units, whole = int(digits.hex()[1::2], 16), 16 ** len(digits)
    return units - whole if signed and units >= whole / 2 else units


DRIVERS: dict[str, Any] = {"simulated": Simulated, "stdout": Printed, "onvif": Onvif, "visca": Visca}
"""Drivers by name."""

SECTIONS = ("view", "operation", "page")
"""Settings of a camera that are settings themselves, of other parts than its driver."""


def read_cameras(kind: str | Path, scenario: Scenario) -> list[dict[str, Any]]:
    """Return the settings of every sensor: the driver `kind`, a name in :data:`DRIVERS`, or as in a YAML file.

    The file maps every sensor, by name or number from 0, to the driver's name, `driver`, and the driver's settings.
    Raises ``ValueError``, which names the file, for another form.
    """
    names = names_of(scenario)
    if kind in DRIVERS:
        return [{"driver": kind} for _ in names]
    try:
        given = parse_yaml(read_text(kind))
        numbered: dict[Any, str] = dict(enumerate(names))
        given = {numbered.get(key, key): own for key, own in given.items()} if isinstance(given, dict) else {}
        if given.keys() != set(names):
            words = f"it must hold the settings of each sensor: {', '.join(names)}"
            raise ValueError(f"it holds {in_short(given) or 'no sensor'}; {words}")
    except ValueError as error:
        raise ValueError(f"{kind}: {error}") from None
    return [dict(given[name]) if isinstance(given[name], dict) else {} for name in names]


def load_cameras(kind: str | Path, scenario: Scenario) -> list[Camera]:
    """Return the driver of every sensor, see :func:`read_cameras`.

    Raises ``ValueError`` or ``TypeError``, which names the file, the camera and the setting.
    """
    cameras = []
    for i, (name, settings) in enumerate(zip(names_of(scenario), read_cameras(kind, scenario), strict=True)):
        try:
            cameras.append(_driver(settings, name, scenario, i))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{kind}: camera {name}: {error}") from None
    return cameras


def load_sections(
    kind: str | Path, scenario: Scenario, name: str, make: type, shared: Callable[[int], dict[str, Any]] = lambda i: {}
) -> list[Any]:
    """Return what a dataclass makes of a section, one of :data:`SECTIONS`, of every sensor in a file of cameras.

    It is None where a sensor has none. `shared` gives settings of sensor i that the section may override. Raises
    ``ValueError`` or ``TypeError``, which names the file, the camera and the setting.
    """
    found, known = [None] * scenario.num_sensors, [field.name for field in dataclasses.fields(make)]
    for i, (camera, settings) in enumerate(zip(names_of(scenario), read_cameras(kind, scenario), strict=True)):
        if (section := settings.get(name)) is None:
            continue
        try:
            if not isinstance(section, dict):
                raise ValueError(f"{name} is {shortly(section)}; it must be settings")
            if unknown := section.keys() - set(known):
                raise ValueError(f"unknown setting {in_short(unknown, known)} of {name}: known are {', '.join(known)}")
            found[i] = make(**shared(i) | section)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{kind}: camera {camera}: {error}") from None
    return found


def _driver(settings: dict[str, Any], name: str, scenario: Scenario, i: int) -> Camera:
    """Return the driver of sensor i with these settings."""
    driver, _ = settings.pop("driver", None), [settings.pop(name, None) for name in SECTIONS]  # see load_sections
    if not validation.is_among(driver, DRIVERS):
        raise ValueError(f"driver is {shortly(driver)}; it must be one of {', '.join(DRIVERS)}")
    known = [field.name for field in dataclasses.fields(DRIVERS[driver])]
    if unknown := settings.keys() - set(known):
        raise ValueError(f"unknown setting {in_short(unknown, known)}: known are {', '.join(known)}")
    middle = np.nan_to_num(limits_of(scenario)[i], posinf=0.0, neginf=0.0).mean()
    defaults = {"camera": name, "start": scenario.sensor_headings[i] if scenario.sensor_headings else middle}
    if scenario.tilt_limits:
        defaults["start_tilt"] = make_mount(scenario).limit[i].mean()
    if scenario.zoom:
        defaults["start_view"] = scenario.of_each_sensor("field_of_view")[i]
    made = DRIVERS[driver](**{key: value for key, value in defaults.items() if key in known} | settings)
    if scenario.zoom and isinstance(made, _Device):
        narrowest, widest = scenario.zoom
        if not made.zooms or made.zooms[-1][1] > narrowest + 1e-6 or made.zooms[0][1] < widest - 1e-6:
            rows = [list(row) for row in made.zooms]
            raise ValueError(
                f"zooms is {rows}; it must reach from {widest:g} to {narrowest:g} degrees, the site's zoom"
            )
    return made
