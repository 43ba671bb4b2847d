"""Stop of a training by a signal."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hitmac.signals import SIGNALS


class _Leave(KeyboardInterrupt):
    """End of a function of :meth:`Stop.leaves`; where Python drops it, the function goes on to its own end."""


class Stop:
    """Request to stop, which a signal makes.

    Attributes:
        number: number of the signal; 0: none has come.
    """

    def __init__(self) -> None:
        self.number = 0
        self._since = 0.0
        self._leaving = False
        self._leave: _Leave | None = None

    def is_set(self) -> bool:
        """Return whether the signal has come."""
        return self.number > 0

    @property
    def age(self) -> float:
        """Seconds since the signal; 0 before it."""
        return time.monotonic() - self._since if self.number else 0.0

    def set(self, number: int) -> None:
        """Make the request; leave the function of :meth:`leaves`."""
        self.number, self._since = number, time.monotonic()
        if self._leaving:
            self._leave = _Leave()
            raise self._leave

    def leaves(self, function: Callable[[], None]) -> None:
        """Call a function that computes something for the user only, and leave it when the signal comes."""
        try:
            self._leaving = True
            function()
        except KeyboardInterrupt as interrupt:
            if interrupt is not self._leave:
                raise
        finally:
            self._leaving = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Yield a request to stop that the first Ctrl-C, SIGTERM or SIGHUP makes; a second one interrupts as usual."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *SIGNALS)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: object) -> None:
        restore()
        if number not in (signal.SIGINT, signal.SIGTERM):
            _detach_output()
        with suppress(OSError):  # not by print, which the signal may have interrupted
            os.write(1, b"\nstopping after this update: evaluating and saving (Ctrl-C again to abort)\n")
        stop.set(number)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN or number in (signal.SIGINT, signal.SIGTERM):  # nohup ignores SIGHUP
            signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()


def _detach_output() -> None:
    """Let what is printed to a terminal, which has been closed, go nowhere."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
