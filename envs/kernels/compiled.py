"""Compilation of the kernels, with a disk cache, so that only the first process compiles them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile

# A division by zero follows IEEE 754 instead of raising: a check would prevent the vectorisation of loops.
_OPTIONS: dict[str, Any] = {"error_model": "numpy"}

compiled = njit(**_OPTIONS)
"""Decorator of a function that kernels call."""

inlined = njit(inline="always", **_OPTIONS)
"""Decorator of a function that is inlined wherever a kernel calls it."""


def _sources() -> str:
    """Return a digest of every source file of the package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _sources()


def kernel(**options: Any) -> Callable[[Callable], Callable]:
    """Return `numba.njit` with a separate disk cache for every version of this package's sources.

    numba itself checks only the file of the function: it would keep using an old kernel after an edit to a function
    that the kernel calls, and would fail to read an old kernel whose types no longer exist.
    """

    def compile_cached(function: Callable) -> Callable:
        dispatcher = njit(cache=True, **_OPTIONS, **options)(function)
        cache = dispatcher._cache
        cache._cache_file = IndexDataCacheFile(
            cache._cache_path, f"{cache._impl.filename_base}.{SOURCES[:16]}", cache._impl.locator.get_source_stamp()
        )
        return dispatcher

    return compile_cached
