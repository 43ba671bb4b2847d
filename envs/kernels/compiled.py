"""How the kernels are compiled, and cached on disk so that only the first process ever pays for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile

# A division by zero gives what IEEE 754 says instead of raising; a check would keep loops from being vectorised.
_OPTIONS: dict[str, Any] = {"error_model": "numpy"}

compiled = njit(**_OPTIONS)
"""A function that kernels call."""

inlined = njit(inline="always", **_OPTIONS)
"""A function that is compiled in place wherever a kernel calls it."""


def _sources() -> str:
    """Return a digest of every source file of the package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _sources()


def kernel(**options: Any) -> Callable[[Callable], Callable]:
    """`numba.njit` with a disk cache of its own for every version of this package's sources.

    numba itself looks only at the file that a function stands in: it would go on using an old kernel after an
    edit to a function that the kernel calls, and fail on reading an old one whose types are gone.
    """

    def compile_cached(function: Callable) -> Callable:
        dispatcher = njit(cache=True, **_OPTIONS, **options)(function)
        cache = dispatcher._cache
        cache._cache_file = IndexDataCacheFile(
            cache._cache_path, f"{cache._impl.filename_base}.{SOURCES[:16]}", cache._impl.locator.get_source_stamp()
        )
        return dispatcher

    return compile_cached
