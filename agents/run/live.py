"""Live page of a running loop: frames to the browser, pause and cameras taken by hand from it."""

import ipaddress
import json
import math
import secrets
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hitmac.agents.replay.page import filled, world
from hitmac.envs.scenario import Scenario

SCRIPTS = ("tracks.js", "scene.js", "curves.js", "live.js")
"""Parts of the page's script, in order of use."""

STOPPED, GONE = 1.0, 5.0
"""Seconds without an order of the page until a camera taken by hand stops, and until it is given back."""

_MESSAGES = 50  # number of messages that a new page shows
_LARGEST = 2**14  # bytes of an order
_BUFFERED = 2**16  # bytes on their way to a page


class _Hand(NamedTuple):
    page: str
    rate: float  # degrees per second
    renewed: float  # time of the last order


class Live:
    """Server of the page that shows a running loop, on a port (0: a free one), and takes orders from it.

    `address` is that of the page; it contains a random token, without which nothing is shown and no order is taken.
    If `host` is ``0.0.0.0``, all networks of this computer, others open the page by one of its numerical addresses.
    `names` are those of the cameras, by default 1 to n. `paused` is True if a page has paused the loop.

    Raises OSError if the port is in use.
    """

    def __init__(
        self, scenario: Scenario, port: int = 0, host: str = "127.0.0.1", *, names: Sequence[str] = ()
    ) -> None:
        data = world(scenario) | {"discs": scenario.discs, "names": list(names), "episodes": []}
        self.html = filled("live.html", SCRIPTS, f"{scenario.name}, live", data).encode()
        self.token, self.host, self.paused = secrets.token_urlsafe(16), host, False
        self._cameras = scenario.num_sensors
        self._hands: dict[int, _Hand] = {}
        self._messages: deque[tuple[float, str]] = deque(maxlen=_MESSAGES)
        self._news = threading.Condition()  # guards what follows and the hands
        self._frame, self._number, self._closed = b"", 0, False
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OSError(f"the page cannot listen on {host}:{port}: {reason}") from None
        self._server.live = self
        shown = "127.0.0.1" if host == "0.0.0.0" else host
        self.address = f"http://{shown}:{self._server.server_address[1]}/{self.token}/"
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()

    @property
    def by_hand(self) -> dict[int, float]:
        """Rates of the cameras taken by hand, degrees per second, by their numbers.

        The rate is 0 after STOPPED seconds without an order of the page; the camera is given back after GONE seconds.
        """
        now = monotonic()
        with self._news:
            self._hands = {camera: hand for camera, hand in self._hands.items() if now - hand.renewed < GONE}
            return {i: hand.rate if now - hand.renewed < STOPPED else 0.0 for i, hand in self._hands.items()}

    def publish(self, frame: Mapping[str, Any]) -> None:
        """Show a frame on all pages; return at once. A slow page skips frames, and one that hangs is dropped."""
        self._messages.extend((frame["time"], text) for text in frame["messages"])
        data = json.dumps({**frame, "messages": list(self._messages)}, separators=(",", ":"), allow_nan=False).encode()
        with self._news:
            self._frame, self._number = data, self._number + 1
            self._news.notify_all()

    def close(self) -> None:
        """Stop listening; pages show that no frame arrives."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def after(self, number: int) -> tuple[int, bytes] | None:
        """Wait for a frame after this number; return the last number and its frame, b"" for none, or None if closed."""
        with self._news:
            new = self._news.wait_for(lambda: self._closed or self._number != number, timeout=GONE)
            return None if self._closed else (self._number, self._frame if new else b"")

    def order(self, order: Any) -> list[int]:
        """Carry out an order of a page; return the cameras that the page now has by hand.

        An order has the name of the ``page``, the rates of all its cameras by hand, ``hands``, and possibly
        ``paused``. Of two pages, the first to take a camera has it.
        """
        page, hands = str(order["page"]), {int(camera): float(rate) for camera, rate in order["hands"].items()}
        if not all(0 <= camera < self._cameras and math.isfinite(rate) for camera, rate in hands.items()):
            raise ValueError(f"hands is {order['hands']}; expected rates of cameras 0 to {self._cameras - 1}")
        now = monotonic()
        with self._news:
            others = {i: self._hands[i] for i in self.by_hand if self._hands[i].page != page}
            own = {i: _Hand(page, rate, now) for i, rate in hands.items() if i not in others}
            self._hands = others | own
            self.paused = bool(order.get("paused", self.paused))
        return list(own)

    def admits(self, host: str) -> bool:
        """Return whether a request is for this server, not for a site whose name points here (DNS rebinding)."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in ("localhost", self.host) or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


class _Server(ThreadingTCPServer):
    allow_reuse_address = True  # a port that a server has just left; one in use stays refused
    daemon_threads = True

    live: Live

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Drop the connection of a page that leaves or hangs."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = GONE  # of each read and write, seconds

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERED)
        super().setup()

    def do_GET(self) -> None:
        """Answer with the page or its events."""
        live = self.server.live
        if self._asks("events"):
            self._start(200, "text/event-stream")
            number = 0
            while (news := live.after(number)) is not None:
                number, frame = news
                self.wfile.write(b"data: %b\n\n" % frame if frame else b":\n\n")  # an empty one finds who has left
        elif self._asks(""):
            self._start(200, "text/html; charset=utf-8")
            self.wfile.write(live.html)
        else:
            self._start(404)

    def do_POST(self) -> None:
        """Carry out an order of the page."""
        size = self.headers.get("Content-Length", "")
        if not self._asks("order"):
            self._start(404)
        elif self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            self._start(403)
        elif not size.isdecimal() or int(size) > _LARGEST:
            self._start(413)
        else:
            try:
                held = self.server.live.order(json.loads(self.rfile.read(int(size))))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                self._start(400)
            else:
                self._start(200, "application/json")
                self.wfile.write(json.dumps(held).encode())

    def _asks(self, name: str) -> bool:
        """Return whether the request is for this name after the token, by an admitted host."""
        live = self.server.live
        right = secrets.compare_digest(self.path.encode(), f"/{live.token}/{name}".encode())
        return right and live.admits(self.headers.get("Host", ""))

    def _start(self, status: int, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing; the loop's messages have the terminal."""
