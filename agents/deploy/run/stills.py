"""Pictures of cameras for the page of a run: fetched while someone looks, at most one a second of each camera."""

import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hitmac.agents.deploy.run.log import Faults
from hitmac.envs import validation
from hitmac.envs.validation import shortly

# In seconds, unless they say otherwise.
EVERY = 1.0  # between two pictures of a camera
LOOKED = 5.0  # after the last request of a page up to which pictures are fetched
PAUSE = 4.0  # after a picture that could not be had
WAIT = 2.0  # longest wait for data
WHOLE = 5.0  # longest time of a picture
LARGEST = 2**22  # bytes of a picture
BEGIN = b"\xff\xd8"  # of a JPEG
_END = re.compile(rb"\xff\xd9\s*--")  # in MJPEG
_LONGEST_END = 16  # bytes


@dataclass(frozen=True, kw_only=True)
class Still(validation.Checked):
    """Setting `page` of a camera; an invalid one raises ``ValueError`` or ``TypeError``."""

    picture: str
    """Address, http or https, of a JPEG picture, or of MJPEG, of which the next picture is taken."""
    user: str = ""
    """User; empty: none."""
    password_env: str = ""
    """Name of the environment variable with the password."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            parts = urlsplit(self.picture)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid, parts = False, urlsplit("")
        if "@" in parts.netloc:
            raise ValueError("picture has a user or a password; give them as user and password_env")
        if not valid or not self.picture.isascii() or not self.picture.isprintable() or " " in self.picture:
            raise ValueError(f"picture is {shortly(self.picture)}; it must be an address, http://HOST/PATH or https")
        if self.user and self.password_env not in os.environ:
            raise ValueError(f"password_env is {self.password_env!r}; no environment variable has this name")

    def fetch(self) -> bytes:
        """Return the next picture; raise an error of the network, or ValueError, without the address.

        The password answers only what this host asks for, by HTTP's basic or digest authentication; a redirection
        to another host is refused, and no proxy is used.
        """
        known = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        if self.user:
            known.add_password(None, self.picture, self.user, os.environ[self.password_env])
        logins = [urllib.request.HTTPDigestAuthHandler(known), urllib.request.HTTPBasicAuthHandler(known)]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Same(), *logins)
        until, data, searched = time.monotonic() + WHOLE, bytearray(), 0
        with opener.open(self.picture, timeout=WAIT) as answer:
            stream = answer.headers.get_content_maintype() == "multipart"
            while chunk := answer.read1(2**16):
                data += chunk
                if stream and (begin := data.find(BEGIN)) >= 0:
                    if found := _END.search(data, max(searched, begin)):
                        return bytes(data[begin : found.start() + 2])
                    searched = len(data) - _LONGEST_END
                if len(data) > LARGEST:
                    raise ValueError(f"it has more than {LARGEST / 2**20:g} MB")
                if time.monotonic() > until:
                    raise TimeoutError(f"it is not there after {WHOLE:g} s")
        if stream or data[:2] != BEGIN:
            raise ValueError("the answer is no JPEG picture")
        return bytes(data)


class _Same(urllib.request.HTTPRedirectHandler):
    """Redirections within a host."""

    def redirect_request(self, request: Any, answer: Any, code: int, *others: Any) -> Any:
        """Follow, or raise the error of the answer."""
        if urlsplit(others[-1]).netloc != urlsplit(request.full_url).netloc:
            raise urllib.error.HTTPError("", code, "it is at another host", others[-2], answer)
        return super().redirect_request(request, answer, code, *others)


class Stills:
    """Last pictures of cameras, fetched by a thread for each camera that has an address, while a page looks."""

    def __init__(self, given: Sequence[Still | None], names: Sequence[str], faults: Faults) -> None:
        self.cameras = [i for i, own in enumerate(given) if own]
        self._last = dict[int, bytes]()
        self._looked, self._faults = dict.fromkeys(self.cameras, -LOOKED), faults
        self._wake, self._ends = {i: threading.Event() for i in self.cameras}, threading.Event()
        for i in self.cameras:
            threading.Thread(target=self._run, args=(i, given[i], names[i]), name="picture", daemon=True).start()

    def last(self, i: int) -> bytes:
        """Return the last picture of one of the `cameras`, b"" without one that is new, and ask for the next."""
        self._looked[i] = time.monotonic()
        self._wake[i].set()
        return self._last.get(i, b"")

    def _run(self, i: int, still: Still, name: str) -> None:
        works = True
        while not self._ends.is_set():
            if time.monotonic() - self._looked[i] > LOOKED:
                self._wake[i].clear()
                self._last.pop(i, None)
                self._wake[i].wait()
                continue
            why = ""
            try:
                self._last[i] = still.fetch()
            except Exception as error:  # urllib raises many kinds for a malformed answer
                self._last.pop(i, None)
                why = shortly(getattr(error, "reason", None) or error, str)
            if works != (not why):
                works = not why
                words = "is there again" if works else f"cannot be had: {why}"
                self._faults.tell(f"the picture of camera {name} {words}")
            self._ends.wait(PAUSE if why else EVERY)

    def close(self) -> None:
        """End the threads."""
        self._ends.set()
        for event in self._wake.values():
            event.set()
