"""Live page of a running loop: frames to the browser, pause and cameras taken by hand from it."""

import json
import math
import secrets
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from time import monotonic
from typing import Any, NamedTuple

from hitmac.agents.deploy.replay.page import filled, world
from hitmac.agents.deploy.run.stills import Stills
from hitmac.envs.scenario import Scenario

SCRIPTS = ("series.js", "scene.js", "curves.js", "live.js")
"""Parts of the page's script, in order of use."""

STOPPED, GONE = 1.0, 5.0
"""Seconds without an order of the page until a camera taken by hand stops, and until it is given back."""

_MESSAGES = 50  # number of messages that a new page shows
_LARGEST = 2**14  # bytes of an order


class _Hand(NamedTuple):
    page: str
    rate: float  # degrees per second
    renewed: float  # time of the last order
    turned: float  # time of the last order to turn, or when it was taken


class Live:
    """Server of the page that shows a running loop, on a port (0: a free one), and takes orders from it.

    `address` is that of the page; it contains a random token, without which nothing is shown and no order is taken.
    `paused` is True if a page has paused the loop. A page asks for the last frame several times a second, with its
    orders. It shows the polygons `private`, and of cameras the pictures of `stills`. A camera by hand that is not
    turned for its seconds of `returns`, by default infinite, is given back.

    Raises OSError if the port is in use.
    """

    def __init__(
        self, scenario: Scenario, port: int = 0, host: str = "127.0.0.1", *, returns: Sequence[float] = (),
        private: Sequence[Any] = (), stills: Stills | None = None,
    ) -> None:  # fmt: skip
        pictures = stills.cameras if stills else []
        data = world(scenario) | {"discs": scenario.discs, "episodes": [], "private": private, "pictures": pictures}
        self.stills, self._returns = stills, [*returns] or [math.inf] * scenario.num_sensors
        self.html = filled("live.html", SCRIPTS, f"{scenario.name}, live", data).encode()
        self.token, self.paused = secrets.token_urlsafe(16), False
        self._cameras = scenario.num_sensors
        self._hands, self._lock = dict[int, _Hand](), threading.Lock()
        self._frame: dict[str, Any] | None = None
        self._messages: deque[tuple[float, str]] = deque(maxlen=_MESSAGES)
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
        now, left = monotonic(), self.left
        return {i: hand.rate if now - hand.renewed < STOPPED else 0.0 for i, hand in self._hands.items() if i in left}

    @property
    def left(self) -> dict[int, float]:
        """Seconds until the cameras by hand are given back if they are not turned, by their numbers."""
        now = monotonic()
        held = {i: hand for i, hand in self._hands.items() if now - hand.renewed < GONE}
        left = {i: self._returns[i] - (now - hand.turned) for i, hand in held.items()}
        return {i: seconds for i, seconds in left.items() if seconds > 0.0}

    def publish(self, frame: Mapping[str, Any]) -> None:
        """Show a frame, valid as JSON, on all pages."""
        self._messages.extend((frame["time"], text) for text in frame["messages"])
        self._frame = {**frame, "messages": list(self._messages)}

    def close(self) -> None:
        """Stop listening; pages show that no frame arrives."""
        self._server.shutdown()
        self._server.server_close()

    def order(self, order: Any) -> dict[str, Any]:
        """Carry out an order of a page; return the cameras that the page now has by hand, ``held``, and the ``frame``.

        An order has the name of the ``page``, the rates of all its cameras by hand, ``hands``, and possibly
        ``paused``. Of two pages, the first to take a camera has it.
        """
        page, hands = str(order["page"]), {int(camera): float(rate) for camera, rate in order["hands"].items()}
        if not all(0 <= camera < self._cameras and math.isfinite(rate) for camera, rate in hands.items()):
            raise ValueError(f"hands is {order['hands']}; expected rates of cameras 0 to {self._cameras - 1}")
        now = monotonic()
        with self._lock:
            others = {i: self._hands[i] for i in self.by_hand if self._hands[i].page != page}
            own = {}
            for i, rate in hands.items():
                before = self._hands.get(i)
                turned = before.turned if before and before.page == page and not rate else now
                if i not in others and now - turned < self._returns[i]:  # else the agent has it back
                    own[i] = _Hand(page, rate, now, turned)
            self._hands = others | own
            self.paused = bool(order.get("paused", self.paused))
        return {"held": list(own), "frame": self._frame}


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

    def do_GET(self) -> None:
        """Answer with the page."""
        if self._asks(""):
            self._answer(200, self.server.live.html, "text/html; charset=utf-8")
        elif (stills := self.server.live.stills) and (i := next(filter(self._asks_picture, stills.cameras), -1)) >= 0:
            picture = stills.last(i)
            self._answer(200 if picture else 204, picture, "image/jpeg")
        else:
            self._answer(404)

    def do_POST(self) -> None:
        """Carry out an order of the page."""
        size = self.headers.get("Content-Length", "")
        if not self._asks("order"):
            self._answer(404)
        elif not size.isdecimal() or len(size) > 9 or int(size) > _LARGEST:
            self._answer(413)
        else:
            try:
                found = self.server.live.order(json.loads(self.rfile.read(int(size))))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
                self._answer(400)
            else:
                self._answer(200, json.dumps(found).encode(), "application/json")

    def _asks(self, name: str) -> bool:
        """Return whether the request is for this name after the token."""
        return secrets.compare_digest(self.path.encode(), f"/{self.server.live.token}/{name}".encode())

    def _asks_picture(self, i: int) -> bool:
        return self._asks(f"picture/{i}")

    def _answer(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing; the loop's messages have the terminal."""
