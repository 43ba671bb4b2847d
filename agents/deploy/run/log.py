"""Log of a run, and its faults."""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np


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


class Log:
    """Log of a run: JSON lines, a header and one for each step, each whole or not at all.

    When a line cannot be written, as on a full disk, it is left out, and the fault is reported until one can. A log of
    no step is deleted when it is closed.

    Raises:
        OSError: the file exists, or its header cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], faults: Faults) -> None:
        self._file, self._faults, self._whole, self._path = path.open("xb", buffering=0), faults, 0, path
        try:
            self._append(header)
            self._header = self._whole
        except OSError:
            self._file.close()
            path.unlink()
            raise

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
