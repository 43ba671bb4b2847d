"""Compilation of the kernels, cached on disk so that only the first process ever pays for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def _sources() -> str:
    """A digest of every source file beside this one."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _sources()


def kernel(**options: Any) -> Callable[[Callable], Callable]:
    """`numba.njit` with a disk cache that is void as soon as any source file of this package changes.

    numba itself looks only at the file that a function stands in, and would go on using an old kernel
    after an edit to a function that the kernel calls.
    """

    def compile_cached(function: Callable) -> Callable:
        dispatcher = njit(cache=True, **options)(function)
        dispatcher._cache._cache_file._source_stamp = SOURCES
        return dispatcher

    return compile_cached
