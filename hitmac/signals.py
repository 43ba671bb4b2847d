"""Ctrl-C, SIGTERM and SIGHUP end a program in one line; a reader that closes the pipe of its output ends it quietly."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that end a program."""

PARENT = "HITMAC_ENDS_WITH_STANDARD_INPUT"
"""Environment variable of a process that ends with its parent, see :func:`end_with_parent`."""


@contextlib.contextmanager
def end_on_signal(program: str, hint: str = "") -> Iterator[None]:
    """End the program on Ctrl-C, SIGTERM or SIGHUP with one line, `program` and `hint`, and status 128 + the signal.

    A signal that is ignored, as under ``nohup``, stays ignored. When the reader of the output closes the pipe, as
    ``head`` does, the program ends without a word, with the status of SIGPIPE.
    """
    received = [signal.SIGINT]  # and others after it: an interrupt may come without its signal, through a library

    def end(number: int, frame: object) -> None:
        received.append(signal.Signals(number))
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"\n{program}: aborted{hint}", file=sys.stderr)
        sys.exit(128 + received[-1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        unread = isinstance(sys.exception(), BrokenPipeError)  # or the pipe of another process is broken: an error
        try:
            print(end="\n" * unread, flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again as it ends
            sys.exit(128 + signal.SIGPIPE)


@contextlib.contextmanager
def ignored_signals() -> Iterator[None]:
    """Ignore :data:`SIGNALS` for what has to come to its end; in another thread than the main one it does nothing."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS} if main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """End this process when its parent ends, even if that is killed, provided that :data:`PARENT` is set.

    The standard input is a pipe to which the parent never writes; it closes when the parent ends.
    """
    if os.environ.pop(PARENT, ""):
        threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
