"""Memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def total_memory() -> int | None:
    """Return the bytes of memory of this machine, or of what this process may use of it; None if it does not say."""
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for limit in map(Path, _LIMITS):
        try:
            found.append(int(limit.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(found)


def check_memory(needed: float, what: str) -> None:
    """Raise ValueError if `what`, the beginning of the message, takes more bytes than there are."""
    there = total_memory()
    if there is not None and needed > there:
        raise ValueError(f"{what} takes {in_gigabytes(needed)} of memory or more, and there are {in_gigabytes(there)}")


def in_gigabytes(number: float) -> str:
    """Return a number of bytes in words."""
    return f"{number / 2**30:,.1f} GiB"
