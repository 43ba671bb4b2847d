"""Connection to a Ray cluster."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOCAL = "local"
"""Address of a cluster on this machine that ends with this process."""

_QUIET: dict[str, Any] = {"ignore_reinit_error": True, "log_to_driver": False, "logging_level": logging.ERROR}

_LOCAL_CLUSTER = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it reports to nobody
    "RAY_worker_niceness": "0",  # its processes are the training, and give way to no other program
}


def connect(address: str, option: str = "--ray", **local: Any) -> None:
    """Connect to the Ray cluster at an address, as ``ray.init`` takes it; ``"local"`` starts one on this machine.

    Args:
        address: of the cluster.
        option: the command line's option that holds it.
        **local: further arguments of ``ray.init`` for a cluster on this machine.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ConnectionError: there is no cluster at `address`.
    """
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(f"{option} needs Ray: pip install 'hitmac[ray]'")
    if address == LOCAL:
        local = {"include_dashboard": False} | local
        for name, value in _LOCAL_CLUSTER.items():
            os.environ.setdefault(name, value)
    else:
        local = {}
    import ray

    try:
        if found := re.fullmatch(r"(?:\w+://)?\[?([^/\]]+)\]?:(\d{1,5})", address):  # Ray would try for minutes
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        with _own_handler():
            ray.init(address, **_QUIET, **local)
    except (OSError, ValueError, RuntimeError, OverflowError) as error:
        raise ConnectionError(
            f"{option} is {address!r}; no Ray cluster answers there: {error_lines(error)[0]}"
        ) from None


def error_lines(error: BaseException | None) -> list[str]:
    """Return the lines of an error of Ray; of a worker's, the last says what it was."""
    return str(error or "").strip().splitlines() or ["no reason is given"]


@contextmanager
def without_log() -> Iterator[None]:
    """Keep what Ray's core, which is not Python, writes to the terminal from it; errors are exceptions all the same."""
    sys.stderr.flush()
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


@contextmanager
def _own_handler() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is not before:
            signal.signal(signal.SIGTERM, before)
