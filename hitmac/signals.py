"""Ctrl-C, SIGTERM and SIGHUP: each ends a program in one line."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that end a program."""


class Interrupted(KeyboardInterrupt):
    """End of a program by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def end_on_signal(program: str, hint: str = "") -> Iterator[None]:
    """End the program on Ctrl-C, SIGTERM or SIGHUP with one line, and exit status 128 + the signal.

    A signal that is ignored, as under ``nohup``, stays ignored.

    Args:
        program: name of the program in the message.
        hint: rest of the message.
    """

    def end(number: int, frame: object) -> None:
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"\n{program}: aborted{hint}", file=sys.stderr)
        sys.exit(128 + getattr(interrupt, "number", signal.SIGINT))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
