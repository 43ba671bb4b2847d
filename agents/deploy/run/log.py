"""Log of a run, and its faults."""

import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.deploy.run.operation import HOUR
from hitmac.envs.files import lock


def rounded(values: Any) -> Any:
    """Return an array as nested lists of numbers with 6 significant digits, None for NaN."""
    if isinstance(values, np.ndarray | list):
        return [rounded(value) for value in values]
    return None if math.isnan(values) else float(f"{values:.6g}")


class Faults:
    """Faults of a run, for people: one line when a fault begins, and one when it is over.

    A fault lasts as long as it is reported again within `quiet` seconds. Its name is also its key; the names are a
    small set.
    """

    def __init__(self, quiet: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet, self._clock = quiet, clock
        self._lines: list[str] = []
        self._present: dict[str, list[float]] = {}  # first and last time, number of reports
        self._lock = threading.Lock()

    def report(self, name: str, details: str = "") -> None:
        """Report a fault from any thread; `details` are those of its beginning."""
        with self._lock:
            now = self._clock()
            if name not in self._present:
                self._present[name] = [now, now, 0]
                self._lines.append(f"{name}: {details}" if details else name)
            self._present[name][1] = now
            self._present[name][2] += 1

    def tell(self, line: str) -> None:
        """Add a line about an event without an end."""
        with self._lock:
            self._lines.append(line)

    def messages(self) -> list[str]:
        """Return the lines since the last call."""
        with self._lock:
            for name, (first, last, count) in list(self._present.items()):
                if self._clock() - last > self._quiet:
                    del self._present[name]
                    self._lines.append(f"over after {last - first:.1f} s ({count:.0f} times): {name}")
            lines, self._lines = self._lines, []
            return lines


class Record(NamedTuple):
    """The part of a line of a log that a restarted run needs."""

    time: float  # Unix seconds
    begun: list[int]  # cameras that began a move
    paused: bool


class Log:
    """Log of a run: JSON lines, a header and one for each step, each whole or not at all.

    An existing log is continued if its header is the same but for the version and the start; `recent` has its records
    of the last hour of steps. When a line cannot be written, as on a full disk, it is left out, and the fault is
    reported until one can. A new log of no step is deleted when it is closed.

    Raises:
        ValueError: the file is not the log of such a run.
        OSError: another process writes to the file, or its header cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], faults: Faults) -> None:
        self._file, self._faults, self._path = path.open("ab", buffering=0), faults, path
        self._whole, self._header = self._file.tell(), 0
        self.recent: list[Record] = []
        if not lock(self._file.fileno()):
            self._file.close()
            raise BlockingIOError(f"{path} is the log of a run in progress; name another file")
        try:
            if self._whole:
                self._continue(header)
            else:
                self._append(header)
                self._header = self._whole
        except (OSError, ValueError):
            self._file.close()
            if not self._whole:
                path.unlink()
            raise

    def _continue(self, header: Mapping[str, Any]) -> None:
        """Read the recent records; an unfinished last line, as after a power failure, is removed."""
        with self._path.open("rb") as file:
            first, last = file.readline(), deque(file, 1 + math.ceil(HOUR / header["scenario"]["time_step"]))
        unfinished = last.pop() if last and not last[-1].endswith(b"\n") else b""
        try:
            found, asked = json.loads(first), json.loads(json.dumps(header))
            different = [name for name in found.keys() | asked.keys() if found.get(name) != asked.get(name)]
            for record in map(json.loads, last):
                begun = [int(one) for one in record.get("begun", ())]
                self.recent.append(Record(float(record["time"]), begun, bool(record.get("paused"))))
        except (ValueError, TypeError, LookupError, AttributeError):
            raise ValueError(f"{self._path} exists, and is not a log of hitmac run; name another file") from None
        if others := sorted({*different} - {"start", "version"}):
            raise ValueError(f"{self._path} is the log of a run with another {', '.join(others)}; name another file")
        self._whole = self._file.truncate(self._whole - len(unfinished))

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a line."""
        try:
            self._append(record)
        except OSError as error:
            self._faults.report("the log cannot be written", error.strerror or str(error))
            with suppress(OSError):
                self._file.seek(self._file.truncate(self._whole))

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if self._file.write(line) < len(line):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        self._whole += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._whole == self._header:
            self._path.unlink(missing_ok=True)
