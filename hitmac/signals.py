"""Ctrl-C, SIGTERM and SIGHUP: each ends a program of this package in one line, also while it is being imported."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that end a program, other than Ctrl-C."""

_PACKAGES = ("hitmac", "envs", "agents")  # with programs, as in ``python -m hitmac.agents.evaluate``
_SOON = 0.01  # seconds


class Interrupted(KeyboardInterrupt):
    """End of a program by a signal.

    Args:
        number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def end_on_signal(program: str, kept: str = "") -> Iterator[None]:
    """End the program on Ctrl-C, SIGTERM or SIGHUP with one line, and exit status 128 + the signal.

    Args:
        program: name of the program in the message.
        kept: rest of the message.
    """

    def end(number: int, frame: object) -> None:
        raise Interrupted(number)

    handlers = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(SIGNALS, end)}
    before = _set(handlers) if threading.current_thread() is threading.main_thread() else {}  # only it gets signals
    hook = sys.unraisablehook
    if before:
        sys.unraisablehook = lambda dropped: _send_again(dropped, hook)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"\n{program}: aborted{kept}", file=sys.stderr)
        sys.exit(128 + _number(interrupt))
    finally:
        if before:
            sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _number(interrupt: KeyboardInterrupt) -> int:
    return interrupt.number if isinstance(interrupt, Interrupted) else signal.SIGINT


def _send_again(dropped: Any, hook: Callable[[Any], object]) -> None:
    """Send a signal again soon whose exception Python has dropped, in a destructor or a callback of a weak reference.

    What would be raised here would be dropped, too.

    Args:
        dropped: what Python passes to ``sys.unraisablehook``.
        hook: what to call for any other exception.
    """
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
        hook(dropped)
    elif type(dropped.exc_value) in (KeyboardInterrupt, Interrupted):
        timer = threading.Timer(_SOON, os.kill, (os.getpid(), _number(dropped.exc_value)))
        timer.daemon = True
        timer.start()


def end_while_imported() -> None:
    """In a process that runs a program of this package, end at a signal that comes before :func:`end_on_signal`.

    An exception would not do: some libraries turn one that is raised while they are imported into another.
    """
    if _is_program():
        _set(dict.fromkeys((signal.SIGINT, *SIGNALS), _end_at_once))


def _end_at_once(number: int, frame: object) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, b"\nhitmac: aborted\n")
    os._exit(128 + number)


def _set(handlers: dict) -> dict:
    """Handle signals, other than those that are ignored, as nohup wants it; return the handlers that there were."""
    before = {number: signal.getsignal(number) for number in handlers}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handlers[number])
    return before


def _is_program() -> bool:
    """Return True while Python imports the modules of a program of this package, False if another imports them."""
    if not sys.argv:
        return False
    if sys.argv[0] == "-m":
        name = sys.orig_argv[-len(sys.argv)]  # after the options of Python itself: "-m", "hitmac", or "-mhitmac"
        return name.rpartition("-m")[2].split(".")[0] in _PACKAGES
    script, root = Path(sys.argv[0]).resolve(), Path(__file__).resolve().parents[1]
    return Path(sys.argv[0]).stem == "hitmac" or script == root / "train.py" or script.parent == root / "tests"
