"""Compilation of kernels with numba.

A *kernel* is called from Python, without the interpreter's lock; machine code is cached on disk. Functions under
:func:`compiled`, :func:`allocating` and :func:`inlined` are parts of kernels.

Private parts of numba are used for two gains: a first call in 60 % of the time, by `_Part` and its compiler, and
a cache on disk that notices edits to called functions, by `kernel`.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering

try:
    import fcntl
except ImportError:  # Windows: processes that start together all compile
    fcntl = None  # type: ignore[assignment]

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("kernels cannot run uncompiled: unset NUMBA_DISABLE_JIT")


class _Part(JITCodeLibrary):
    """Intermediate code of a function without machine code of its own, which is linked into kernels.

    Inlined code is optimised only after it is inlined.
    """

    inlined = False

    def _optimize_final_module(self) -> None:
        if not self.inlined:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower a function, and register it under a key instead of a function for the interpreter."""
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        state.library.inlined = bool(state.flags.forceinline)
        super().run_pass(state)
        key = object()
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


class _PartCompiler(CompilerBase):
    """Compiler of parts of kernels, without machine code: the first step takes 29 s of a processor instead of 49 s."""

    def define_pipelines(self) -> list[PassManager]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(_PartLowering if one is NativeLowering else one, about) for one, about in manager.passes]
        manager.finalize()
        return [manager]


# A division by zero follows IEEE 754 instead of raising: a check would prevent the vectorisation of loops.
# No function needs an entry point for C, which takes longer to compile than a small function.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}


def _part(**options: Any) -> Callable[[Callable], Any]:
    """Return a decorator that compiles a function for kernels only; a call from Python is a TypeError."""
    options["no_cpython_wrapper"] = True

    def decorate(function: Callable) -> Any:
        dispatcher = njit(pipeline_class=_PartCompiler, **_OPTIONS, **options)(function)

        def refuse(*arguments: Any, **keywords: Any) -> None:
            name = function.__name__
            raise TypeError(f"{name} is compiled only for kernels; in Python, call {name}.py_func")

        def keep(compiled: Any) -> None:  # numba's `add_overload` would also register the key for calls from Python
            dispatcher.overloads[tuple(compiled.signature.args)] = compiled

        dispatcher._compile_for_args, dispatcher.add_overload = refuse, keep
        return dispatcher

    return decorate


# Only kernels, and functions that allocate, count references to arrays: elsewhere the counting would take longer than
# the arithmetic. A called function inherits the option unless it has its own.
compiled = _part(_nrt=False)
"""Decorator of a function for kernels that allocates no array."""

allocating = _part(_nrt=True)
"""Decorator of a function for kernels that allocates arrays, assigns to slices of them or returns tuples of them.

Loops assign arrays to arrays, here and in the other functions: ``a[:] = b``, ``a += b`` and ``a.sum(1)`` compile the
formatting of shapes for an error, which takes some 3 s for every kernel.
"""

inlined = _part(_nrt=False, forceinline=True)
"""Decorator of a function that is inlined into kernels."""


_HERE = Path(__file__).parent
_PARTS = _HERE.parent / "parts"
_FORMULAS = _HERE.parent / "features.py"  # compiled in this folder


@cache
def _digest(folder: Path) -> str:
    """Return a digest of every source file of a folder."""
    files = sorted(folder.glob("*.py")) + [_FORMULAS] * (folder == _HERE)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def kernel(function: Callable) -> Callable:
    """Compile `function` to run without the interpreter's lock, with numba's cache on disk.

    The cached files are named after a digest of the sources in this folder, of the parts, in the function's folder, and
    in those of the compiled functions that its module imports. Numba itself checks only the file of the function, and
    would use an outdated kernel after an edit to a called function.
    """
    dispatcher = njit(nogil=True, **_OPTIONS)(function)
    called = [value.py_func for value in function.__globals__.values() if hasattr(value, "py_func")]
    files = [Path(one.__code__.co_filename) for one in (function, *called)]
    folders = sorted({_HERE, _PARTS, *(file.parent for file in files if file.is_file() and file != _FORMULAS)})
    with suppress(RuntimeError):  # neither the folder nor the user's cache can be written: no cache
        disk = dispatcher._cache = FunctionCache(function)
        name = f"{disk._impl.filename_base}.{'.'.join(map(_digest, folders))}"
        disk._cache_file = IndexDataCacheFile(disk.cache_path, name, "")
        load_or_compile = dispatcher.compile

        def compile_in_turn(signature: Any) -> Any:
            with _turn(os.path.join(disk.cache_path, f"{name}.lock")):
                return load_or_compile(signature)

        dispatcher.compile = compile_in_turn
    return dispatcher


@contextmanager
def _turn(path: str) -> Iterator[None]:
    """Lock a file, so that of several processes that need a kernel at once, one compiles it and the others load it.

    On a file system without locks, as of some clusters, or with the file of another user, all compile.
    """
    with ExitStack() as turn:
        if fcntl is not None:
            with suppress(OSError):
                file = turn.enter_context(open(path, "w"))
                fcntl.flock(file, fcntl.LOCK_EX)
                turn.callback(fcntl.flock, file, fcntl.LOCK_UN)  # also for its copy in a forked process
        yield


def one_of(variants: Sequence[Callable], head: str = "call(*arguments)", body: str = "{}(*arguments)") -> Callable:
    """Return a compiled function ``call(code, *arguments)`` that calls ``variants[code]``, or nothing for other codes.

    Compiled code cannot look up functions in a table, so the function is a chain of ``if`` generated from the table.
    `head` gives the function another name and arguments, and `body` is what it does with the variant ``{}``.
    """
    names = [f"variant_{code}" for code in range(len(variants))]
    branches = [f"    if code == {code}:\n        {body.format(name)}\n" for code, name in enumerate(names)]
    scope = dict(zip(names, variants, strict=True))
    name, _, arguments = head.partition("(")
    exec(f"def {name}(code, {arguments}:\n" + "".join(branches), scope)
    return inlined(scope[name])


def maker(kind: Any, names: Sequence[str]) -> Callable:
    """Return a compiled function that makes a named tuple from fields of another one, or of a record; others are None.

    Compiled code cannot read a field by a name in a variable, so the function is generated.
    """
    fields = ", ".join(f"of.{name}" if name in names else "None" for name in kind._fields)
    scope = {"kind": kind}
    exec(f"def make(of):\n    return kind({fields})\n", scope)
    return inlined(scope["make"])
