"""Servers on 127.0.0.1 that play cameras: they speak ONVIF or VISCA over IP, and turn a motor."""

import base64
import hashlib
import http.server
import math
import random
import socket
import socketserver
import threading
import time
import xml.etree.ElementTree as ET


class Motor:
    """Pan of a camera, degrees, that follows orders with a delay, a highest rate and an acceleration."""

    def __init__(self, pan=0.0, *, highest_rate=60.0, acceleration=180.0, delay=0.05, lie=None, clock=time.monotonic):
        self.lie, self._past, self.clock = lie, [(-math.inf, pan)], clock  # time and pan at each answer
        self.highest_rate, self.acceleration, self.delay = highest_rate, acceleration, delay
        self.orders, self.lowest, self.highest = [], pan, pan
        self._pan, self._rate, self._wanted, self._time = pan, 0.0, 0.0, clock()
        self._coming, self._lock, self.stops = [], threading.Condition(), (-math.inf, math.inf)

    @property
    def pan(self):
        with self._lock:
            self._go(self.clock())
            return self._pan

    @property
    def reported(self):
        """The pan that its camera reports: the true one, or that of a key of LIES."""
        now, pan, rate = self.clock(), self.pan, self.rate
        shown = LIES[self.lie](self._past, now, rate) if self.lie else pan
        self._past.append((now, pan if self.lie != "at rest only" or rate == 0.0 else self._past[-1][1]))
        return pan if shown is None else shown

    @property
    def rate(self):
        with self._lock:
            self._go(self.clock())
            return self._rate

    def order(self, rate, lasts=math.inf):
        """Turn at a rate for some seconds, or until the next order."""
        with self._lock:
            self._go(now := self.clock())
            start, rate = now + self.delay, min(max(rate, -self.highest_rate), self.highest_rate)
            self._coming = [one for one in self._coming if one[0] < start] + [(start, rate), (start + lasts, 0.0)]
            self.orders.append(rate)
            self._lock.notify_all()

    def jump(self, pan):
        """Be at a pan at once."""
        with self._lock:
            self._go(self.clock())
            self._pan = pan
            self.lowest, self.highest = min(self.lowest, pan), max(self.highest, pan)

    def wait_for(self, rate, seconds=20.0):
        """Return True once the last order is this rate."""
        with self._lock:
            return self._lock.wait_for(lambda: self.orders and self.orders[-1] == rate, seconds)

    def _go(self, now):
        while self._coming and self._coming[0][0] <= now:
            then, rate = self._coming.pop(0)
            self._coast(then)
            self._wanted = rate
        self._coast(now)

    def _coast(self, until):
        """Move on to a time, first with the acceleration, then at the rate that is wanted."""
        seconds, change = until - self._time, self._wanted - self._rate
        speeds_up = min(seconds, abs(change) / self.acceleration)
        end = self._rate + math.copysign(self.acceleration * speeds_up, change)
        self._pan += 0.5 * (self._rate + end) * speeds_up + self._wanted * (seconds - speeds_up)
        self._pan = min(max(self._pan, self.stops[0]), self.stops[1])
        self._rate, self._time = self._wanted if speeds_up < seconds else end, until
        self.lowest, self.highest = min(self.lowest, self._pan), max(self.highest, self._pan)


def _before(past, until):
    """Return the last pan until a time."""
    return next(pan for time, pan in reversed(past) if time <= until)


LIES = {
    "constant": lambda past, now, rate: past[0][1],
    "at rest only": lambda past, now, rate: past[-1][1] if rate else None,
    "once a second": lambda past, now, rate: _before(past, now // 1.0),
    "late by a second": lambda past, now, rate: _before(past, now - 1.0),
    "opposite": lambda past, now, rate: -past[-1][1],
}
"""Pan that a camera reports, from the times and pans of its answers, the time and its rate; None: the true one."""


class CameraServer:
    """Camera at a port of 127.0.0.1.

    `fault` is None, or ``"silent"``, ``"late"`` or ``"nonsense"``; `lost` is the share of messages that get lost. The
    tilt of the device grows upwards; `zoom` is its position, None: ONVIF reports none, and `stuck` that it keeps. It
    zooms by `zoom_rate` positions a second; VISCA reports the zoom if it `tells_zoom`.
    """

    LATE = 0.9  # seconds

    def __init__(self, motor, lost=0.0, seed=0):
        self.motor, self.lost, self.fault, self.random = motor, lost, None, random.Random(seed)
        self.tilt, self.stuck, self.zoom_rate, self.zoom, self.tells_zoom = Motor(), False, math.inf, 0.0, True

    @property
    def zoom(self):
        start, end, since = self._zoom
        if self.zoom_rate == math.inf or start is None:
            return end
        way = self.zoom_rate * (self.motor.clock() - since)
        return min(start + way, end) if end > start else max(start - way, end)

    @zoom.setter
    def zoom(self, position):
        self._zoom = position, position, 0.0

    def zooms(self, position):
        """Zoom to a position."""
        if not self.stuck:
            self._zoom = self.zoom, position, self.motor.clock()

    def loses(self):
        return self.random.random() < self.lost

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class PlainViscaServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Camera with VISCA without a header over TCP: it acknowledges drives, answers in pieces, and hangs up if told."""

    daemon_threads = True

    def __init__(self, motor):
        self.motor, self.hangs_up, self.tilt = motor, False, Motor()
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while message := self.rfile.read(5):
                while message[-1] != 0xFF:
                    message += self.rfile.read(1)
                if self.server.hangs_up:
                    return
                reply = ViscaServer._reply(self.server, message)
                for part in (reply[:2], reply[2:], b"" if len(reply) > 3 else b"\x90\x51\xff"):
                    self.wfile.write(part)
                    self.wfile.flush()
                    time.sleep(0.01)

    fault = None


class ViscaServer(CameraServer):
    """Camera with VISCA over IP."""

    def __init__(self, motor, *, lost=0.0, seed=0, host="127.0.0.1"):
        super().__init__(motor, lost, seed)
        self._last = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the other client binds the same port
        self._socket.bind((host, 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self):
        while True:
            message, sender = self._socket.recvfrom(64)
            if not message:
                return
            if self.fault == "silent" or self.loses():
                continue
            answer = self._answer(message)
            if self.fault == "late":
                time.sleep(self.LATE)
            if not self.loses():
                self._socket.sendto(answer, sender)

    def _answer(self, message):
        kind, number, payload = message[:2], int.from_bytes(message[4:8]), message[8:]
        assert int.from_bytes(message[2:4]) == len(payload)
        if kind == b"\x02\x00" and payload == b"\x01":
            self._last = 0
            return b"\x02\x01\x00\x01" + message[4:8] + b"\x01"
        if number <= self._last:
            return b"\x02\x01\x00\x02" + message[4:8] + b"\x0f\x01"
        self._last = number
        reply = self._reply(payload)
        return b"\x01\x11" + len(reply).to_bytes(2) + message[4:8] + reply

    def _reply(self, payload):
        if payload == b"\x81\x01\x00\x01\xff":  # clear the interface
            return b"\x90\x50\xff"
        if payload == b"\x81\x09\x06\x12\xff":
            units = round(self.motor.reported * 14.4) % 2**16
            if self.fault == "nonsense":
                units = self.random.randrange(2**16)
            tilt = round(self.tilt.reported * 14.4) % 2**16
            return bytes([0x90, 0x50, *(int(digit, 16) for digit in f"{units:04x}{tilt:04x}"), 0xFF])
        if payload == b"\x81\x09\x04\x47\xff" and self.tells_zoom:
            return bytes([0x90, 0x50, *(int(digit, 16) for digit in f"{round(self.zoom):04x}"), 0xFF])
        if payload[:4] == b"\x81\x01\x04\x47" and len(payload) == 9:
            self.zooms(int(payload[4:8].hex()[1::2], 16))
            return b"\x90\x41\xff"
        if payload[:4] == b"\x81\x01\x06\x01" and len(payload) == 9:
            way = {1: -1.0, 2: 1.0, 3: 0.0}[payload[6]]
            self.motor.order(way * self.motor.highest_rate * payload[4] / 24)
            self.tilt.order({1: 1.0, 2: -1.0, 3: 0.0}[payload[7]] * self.tilt.highest_rate * payload[5] / 24)
            return b"\x90\x41\xff"
        return b"\x90\x60\x02\xff"


SPACES = "http://www.onvif.org/ver10/tptz/PanTiltSpaces/"
SCHEMA = "http://www.onvif.org/ver10/schema"
SERVICES = {"device": "ver10/device", "media": "ver10/media", "ptz": "ver20/ptz"}


class OnvifServer(CameraServer):
    """Camera with ONVIF, whose user is "operator" with the password "open sesame"."""

    def __init__(self, motor, *, lost=0.0, seed=0):
        super().__init__(motor, lost, seed)
        self._ends, self.refused, self.ahead = threading.Event(), (), 0.0
        self.degrees, self.names_space = False, True  # of its answers
        camera = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = camera.answer(body)
                if answer is None:
                    self.close_connection = True
                    return
                status, text = answer
                self.send_response(status)
                self.send_header("Content-Type", "application/soap+xml; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # of a client that has left
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self):
        self._ends.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, body):
        """Return the status and the text of an answer, or None for none."""
        while self.fault == "silent" and not self._ends.wait(0.05):
            pass
        if self.loses():
            return None
        if self.fault == "late":
            self._ends.wait(self.LATE)
        envelope = ET.fromstring(body)
        call = envelope.find("{*}Body")[0]
        name = call.tag.partition("}")[2]
        parts = {part.tag.partition("}")[2] for part in call.iter()}
        known = self._knows(envelope) or name in ("GetServices", "GetSystemDateAndTime")
        if not known or parts & {*self.refused}:
            why = "refused" if known else "not authorized"
            return 400, self._envelope("<s:Fault><s:Code><s:Value>s:Sender</s:Value></s:Code><s:Reason>"
                f"<s:Text xml:lang='en'>{why}</s:Text></s:Reason></s:Fault>")  # fmt: skip
        return 200, self._envelope(getattr(self, name)(call))

    def _knows(self, envelope):
        """Return True if the WS-Security digest of an envelope is that of the password."""
        found = {part.tag.partition("}")[2]: part.text for part in envelope.iter()}
        if not {"Username", "Password", "Nonce", "Created"} <= found.keys():
            return False
        secret = base64.b64decode(found["Nonce"]) + found["Created"].encode() + b"open sesame"
        digest = base64.b64encode(hashlib.sha1(secret).digest()).decode()
        return (found["Username"], found["Password"]) == ("operator", digest)

    def _envelope(self, body):
        spaces = "".join(f' xmlns:{name}="http://www.onvif.org/{path}/wsdl"' for name, path in SERVICES.items())
        soap = f'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:tt="{SCHEMA}"{spaces}>'
        return f'<?xml version="1.0" encoding="UTF-8"?>{soap}<s:Body>{body}</s:Body></s:Envelope>'.encode()

    def GetServices(self, call):  # noqa: N802
        rows = "".join(
            f"<device:Service><device:Namespace>http://www.onvif.org/{path}/wsdl</device:Namespace><device:XAddr>"
            f"http://127.0.0.1:{self.port}/onvif/{name}</device:XAddr><device:Version><tt:Major>2</tt:Major>"
            "<tt:Minor>0</tt:Minor></device:Version></device:Service>"
            for name, path in SERVICES.items()
        )
        return f"<device:GetServicesResponse>{rows}</device:GetServicesResponse>"

    def GetProfiles(self, call):  # noqa: N802
        head = '<tt:PTZConfiguration token="head"><tt:Name>head</tt:Name><tt:UseCount>1</tt:UseCount><tt:NodeToken>n'
        head += "</tt:NodeToken></tt:PTZConfiguration>"
        profiles = "".join(
            f'<media:Profiles token="{token}" fixed="true"><tt:Name>{token}</tt:Name>{own}</media:Profiles>'
            for token, own in (("fixed", ""), ("main", head))
        )
        return f"<media:GetProfilesResponse>{profiles}</media:GetProfilesResponse>"

    def GetSystemDateAndTime(self, call):  # noqa: N802
        text = time.strftime(
            "<tt:Time><tt:Hour>%H</tt:Hour><tt:Minute>%M</tt:Minute><tt:Second>%S</tt:Second></tt:Time>"
            "<tt:Date><tt:Year>%Y</tt:Year><tt:Month>%m</tt:Month><tt:Day>%d</tt:Day></tt:Date>",
            time.gmtime(time.time() + self.ahead),
        )
        return (
            "<device:GetSystemDateAndTimeResponse><device:SystemDateAndTime><tt:DateTimeType>NTP</tt:DateTimeType>"
            f"<tt:DaylightSavings>false</tt:DaylightSavings><tt:UTCDateTime>{text}</tt:UTCDateTime>"
            "</device:SystemDateAndTime></device:GetSystemDateAndTimeResponse>"
        )

    def GetStatus(self, call):  # noqa: N802
        x = self.motor.reported / 180.0
        if self.fault == "nonsense":
            x = self.random.choice((math.nan, 7.5, "east", *(self.random.uniform(-1.0, 1.0) for _ in range(4))))
        y, space = self.tilt.reported / 90.0, ""
        if self.degrees:
            x, y = 180.0 * x, 90.0 * y
            space = f' space="{SPACES}SphericalPositionSpaceDegrees"' if self.names_space else ""
        zoom = "" if self.zoom is None else f'<tt:Zoom x="{self.zoom}"/>'
        return (
            f'<ptz:GetStatusResponse><ptz:PTZStatus><tt:Position><tt:PanTilt x="{x}" y="{y}"{space}/>{zoom}'
            "</tt:Position>"
            "<tt:UtcTime>2026-01-01T00:00:00Z</tt:UtcTime></ptz:PTZStatus></ptz:GetStatusResponse>"
        )

    def ContinuousMove(self, call):  # noqa: N802
        assert call.find("{*}ProfileToken").text == "main"
        timeout = call.find("{*}Timeout")
        lasts = math.inf if timeout is None else float(timeout.text.removeprefix("PT").removesuffix("S"))
        velocity = call.find(f"{{*}}Velocity/{{{SCHEMA}}}PanTilt")
        for motor, axis in ((self.motor, "x"), (self.tilt, "y")):
            motor.order(float(velocity.get(axis)) * (1.0 if self.degrees else motor.highest_rate), lasts)
        return "<ptz:ContinuousMoveResponse/>"

    def Stop(self, call):  # noqa: N802
        assert call.find("{*}PanTilt").text == "true"
        self.motor.order(0.0)
        self.tilt.order(0.0)
        return "<ptz:StopResponse/>"

    def AbsoluteMove(self, call):  # noqa: N802
        self._move(call.find("{*}Position"), 0.0, 0.0, 0.0)
        return "<ptz:AbsoluteMoveResponse/>"

    def RelativeMove(self, call):  # noqa: N802
        self._move(call.find("{*}Translation"), self.motor.pan, self.tilt.pan, self.zoom)
        return "<ptz:RelativeMoveResponse/>"

    def GotoPreset(self, call):  # noqa: N802
        self.motor.jump({"parking": 90.0}[call.find("{*}PresetToken").text])
        return "<ptz:GotoPresetResponse/>"

    def _move(self, vector, pan, tilt, zoom):
        """Move at once by a vector from a pose."""
        if (part := vector.find(f"{{{SCHEMA}}}PanTilt")) is not None:
            scales = (1.0, 1.0) if self.degrees else (180.0, 90.0)
            self.motor.jump(pan + scales[0] * float(part.get("x")))
            self.tilt.jump(tilt + scales[1] * float(part.get("y")))
        if (part := vector.find(f"{{{SCHEMA}}}Zoom")) is not None:
            self.zooms(zoom + float(part.get("x")))
