"""Compilation of the kernels, with a disk cache, so that only the first process compiles them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numba import njit

from hitmac.envs.kernels.cache import KernelCache
from hitmac.envs.kernels.parts import PartCompiler

# A division by zero follows IEEE 754 instead of raising: a check would prevent the vectorisation of loops.
_OPTIONS: dict[str, Any] = {"error_model": "numpy"}

# Only kernels, and what allocates, count references to arrays: elsewhere that would take longer than the arithmetic in
# between. A called function inherits the option unless it says otherwise.
_COUNTS: dict[str, Any] = {"_nrt": True}
_NO_COUNTS: dict[str, Any] = {"_nrt": False}

# Entries of a compiled function for C and for the interpreter: each takes longer to compile than a small function.
_NOT_FROM_C: dict[str, Any] = {"no_cfunc_wrapper": True}
_NOT_FROM_PYTHON: dict[str, Any] = {"no_cpython_wrapper": True}


def _called(**options: Any) -> Callable[[Callable], Any]:
    """Return a decorator that compiles a function for calls by kernels alone.

    The interpreter could not call it: numba would crash, so the function refuses.
    """

    def decorate(function: Callable) -> Any:
        dispatcher = njit(pipeline_class=PartCompiler, **_OPTIONS, **_NOT_FROM_C, **_NOT_FROM_PYTHON, **options)(
            function
        )

        def refuse(*arguments: Any, **keywords: Any) -> None:
            name = function.__name__
            raise TypeError(f"{name} is compiled for kernels alone; in Python, call {name}.py_func")

        def keep(compiled: Any) -> None:
            dispatcher.overloads[tuple(compiled.signature.args)] = compiled

        dispatcher._compile_for_args, dispatcher.add_overload = refuse, keep
        return dispatcher

    return decorate


compiled = _called(**_NO_COUNTS)
"""Decorator of a function that kernels call, and that allocates no array."""

allocating = _called(**_COUNTS)
"""Decorator of a function that kernels call, and that allocates arrays or assigns to slices of them."""

inlined = _called(forceinline=True, **_NO_COUNTS)
"""Decorator of a function that is inlined wherever a kernel calls it."""


def _sources(folder: Path | None = None) -> str:
    """Return a digest of every source file of a folder; None: of this one."""
    digest = hashlib.sha256()
    for path in sorted((folder or Path(__file__).parent).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _sources()


def kernel(function: Callable) -> Callable:
    """Compile `function`, to run without the interpreter's lock, with a disk cache for every version of the sources.

    They are those of this folder, of the function's folder, and of the folders whose compiled functions its module
    imports.

    numba itself checks only the file of the function: it would keep using an old kernel after an edit to a function
    that the kernel calls, and would fail to read an old kernel whose types no longer exist.
    """
    dispatcher = njit(nogil=True, **_OPTIONS, **_NOT_FROM_C)(function)
    called = [value.py_func for value in function.__globals__.values() if hasattr(value, "py_func")]
    files = {Path(one.__code__.co_filename) for one in (function, *called)}
    folders = sorted({file.parent for file in files if file.is_file()})  # no file holds what :func:`one_of` writes
    cache = KernelCache(function, SOURCES[:16] + "".join(_sources(folder)[:8] for folder in folders))
    dispatcher._cache, load_or_compile = cache, dispatcher.compile

    def compile_in_turn(signature: Any) -> Any:
        with cache.turn(signature):
            return load_or_compile(signature)

    dispatcher.compile = compile_in_turn
    return dispatcher


def one_of(variants: Sequence[Callable]) -> Callable:
    """Return a compiled function ``call(code, *arguments)`` that calls ``variants[code]``, and none for another code.

    Compiled code cannot look up a function in a table, but it can compare: the function is a chain of ``if``, written
    from the table.
    """
    names = [f"variant_{code}" for code in range(len(variants))]
    branches = [f"    if code == {code}:\n        {name}(*arguments)\n" for code, name in enumerate(names)]
    scope = dict(zip(names, variants, strict=True))
    exec("def call(code, *arguments):\n" + "".join(branches), scope)
    return inlined(scope["call"])
