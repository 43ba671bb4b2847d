"""Calls of kernels that several threads share.

The scenes of a call are divided into segments for two threads each, and every segment into blocks. One of the two
takes blocks from the segment's beginning, the other from its end, until they meet; then both help the others.
So a thread computes nearly the same scenes in every call, which its cache still holds. The caller takes part from the
start and waits for no helper that has not begun: on a busy machine it also computes the blocks of the helpers that the
system does not run.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import njit
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic


class _Part(JITCodeLibrary):
    """Code that is linked into that of kernels, in the intermediate language.

    What is inlined everywhere is optimised there, and would gain nothing from being optimised before.
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
class _Lowering(NativeLowering):
    _name = "lowering_of_parts"

    def run_pass(self, state: Any) -> bool:
        """Lower a function; callers know it by a key, in place of the function that the interpreter would call."""
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        state.library.inlined = bool(state.flags.forceinline)
        super().run_pass(state)
        key = object()
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


class PartCompiler(CompilerBase):
    """numba's compiler, as ``njit`` takes it in `pipeline_class`."""

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's usual passes, but for the one that makes and loads machine code."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(_Lowering if one is NativeLowering else one, about) for one, about in manager.passes]
        manager.finalize()
        return [manager]


try:
    import fcntl
except ImportError:  # not on Windows: there, processes that start together all compile
    fcntl = None  # type: ignore[assignment]

_DIGEST = hashlib.sha256
_LONGEST_TURN = 120.0  # seconds that a process waits for another one, which may have been halted
_warned: set[str] = set()
_locks: dict[str, int] = {}  # descriptors of open files, by path: to close one would give up all its locks


class _ReadOnlyLocator(_CacheLocator):
    """The folder beside the sources, where it may be read only: a package that was compiled before it was installed."""

    def __init__(self, function: Callable, path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable, path: str) -> _ReadOnlyLocator | None:
        return cls(function, path) if os.path.isfile(path) else None

    def get_cache_path(self) -> str:
        return os.path.join(os.path.dirname(self._py_file), "__pycache__")

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._lineno)

    def ensure_cache_path(self) -> None:
        """Do nothing: what is there can be read, and what cannot be written is said when it is."""


class _Impl(CompileResultCacheImpl):
    _locator_classes = [*CompileResultCacheImpl._locator_classes, _ReadOnlyLocator]


class _CheckedFile(IndexDataCacheFile):
    """Index and data files, each with a digest, so that a cut or altered one is compiled again.

    The digest finds accidents. Who may write into the cache's folder may run code, as in any cache of numba's.
    """

    def load(self, key: Any) -> Any:
        try:
            return super().load(key)
        except OSError:  # saving says so
            return None
        except Exception as error:  # whatever a damaged file makes of unpickling
            _warn(f"a cached kernel cannot be used, and is compiled again: {error!r}")
            return None

    def save(self, key: Any, data: Any) -> None:
        try:
            try:
                super().save(key, data)
            except (ValueError, EOFError, pickle.UnpicklingError):  # a damaged index
                self.flush()
                super().save(key, data)
        except OSError as error:
            _warn(f"compiled kernels cannot be cached, so that every process compiles them: {error}")

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            return pickle.loads(_checked(file.read(), file.name))

    def _load_index(self) -> dict[Any, Any]:
        try:
            with open(self._index_path, "rb") as file:
                version, data = pickle.load(file), file.read()
        except FileNotFoundError:
            return {}
        if version != self._version:
            return {}
        stamp, overloads = pickle.loads(_checked(data, self._index_path))
        return overloads if stamp == self._source_stamp else {}

    def _dump(self, obj: Any) -> bytes:
        data = super()._dump(obj)
        return data + _DIGEST(data).digest()


class KernelCache(FunctionCache):
    """Cache of a function's kernels.

    Args:
        function: the function.
        sources: digest of all that the kernels are compiled from; a kernel of other sources is not found.
    """

    _impl_class = _Impl

    def __init__(self, function: Callable, sources: str) -> None:
        super().__init__(function)
        self._name = f"{self._impl.filename_base}.{sources}"
        self._cache_file = _CheckedFile(self._cache_path, self._name, "")

    @contextmanager
    def turn(self, signature: Any) -> Iterator[None]:
        """Wait until no other process compiles the kernel of a signature, and make others wait meanwhile.

        Processes that start together on an empty cache so compile each kernel once.
        """
        digest = _DIGEST(f"{self._name} {signature}".encode()).digest()
        place = int.from_bytes(digest[:6], "little")  # of one byte, which stands for the kernel
        with suppress(OSError):
            os.makedirs(self._cache_path, exist_ok=True)
        lock = _lock(os.path.join(self._cache_path, "kernels.lock"), place)
        try:
            yield
        finally:
            if lock is not None:
                with suppress(OSError):
                    fcntl.lockf(lock, fcntl.LOCK_UN, 1, place)


def _lock(path: str, place: int) -> int | None:
    """Lock a byte of a file against other processes; return the open file, None where that cannot be done in time."""
    if fcntl is None:
        return None
    try:
        file = _locks.get(path)
        if file is None:
            file = _locks[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        until = time.monotonic() + _LONGEST_TURN
        while time.monotonic() < until:
            with suppress(BlockingIOError, PermissionError):  # another process has it
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                return file
            time.sleep(0.02)
    except OSError:  # a folder that can only be read, a file system without locks
        pass
    return None


def _checked(data: bytes, path: str) -> bytes:
    size = _DIGEST().digest_size
    if _DIGEST(data[:-size]).digest() != data[-size:]:
        raise ValueError(f"{path} is damaged")
    return data[:-size]


def _warn(text: str) -> None:
    """Warn once in a process of each kind of fault."""
    kind = text.split(":")[0]
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


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


_INDEX_AND_NUMBER = (types.Array(types.int64, 1, "C"), types.int64, types.int64)


def _element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return the pointer to element ``arguments[1]`` of the array ``arguments[0]``."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@intrinsic
def _add(typing_context, array, index, number):
    """Add `number` to element `index` of an array; return the element from before."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _element(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(*_INDEX_AND_NUMBER), generate


@intrinsic
def _load(typing_context, array, index):
    """Return element `index` of an array as other threads have left it."""

    def generate(context, builder, signature, arguments):
        element = _element(context, builder, signature, arguments)
        return builder.load_atomic(element, "seq_cst", 8)

    return types.int64(*_INDEX_AND_NUMBER[:2]), generate


atomic_add: Callable[..., Any] = _add
atomic_load: Callable[..., Any] = _load


_LINE = 8  # words of a cache line, in which only one thread should write
_SCENES, _SIZE, _SEGMENTS = range(3)  # scenes of the call, scenes of a block, segments
_JOINED, _FINISHED, _TAKEN = _LINE, 2 * _LINE, 3 * _LINE  # threads that have begun, and ended; first segment
_SEGMENT = 3 * _LINE  # words of a segment: its blocks taken, those from its beginning, those from its end
_CLOSED = 1 << 32  # added to _JOINED once no further thread may begin

SCENES_PER_THREAD = 128
"""Fewest scenes for each thread of a batch; with fewer, a second thread costs more than it saves."""

SENSORS_PER_THREAD = 256
"""Fewest sensors for each thread of large scenes."""

SCENES_PER_BLOCK = (128, 512)
"""Fewest and most scenes that a thread takes at a time: the loops of the kernels run over the scenes of a block."""

PAIRS_PER_BLOCK = 5120
"""Fewest pairs of a sensor and a target that a thread takes at a time: fewer are computed before another begins."""

SENSORS_PER_BLOCK = 64
"""Sensors that a thread takes at a time where the sensors of a scene are divided between threads."""

_LOOKS = 300_000  # at a counter before a thread sleeps, some 100 us: a few times as long as it takes to wake one


class Share(NamedTuple):
    """Part of one thread in a call of a kernel, the kernel's last argument.

    A call on the caller's thread alone has None instead, for which kernels are compiled separately.
    """

    counters: np.ndarray  # int64, of the call
    calls: np.ndarray  # (1,) int64: calls so far that called for helpers
    thread: int  # 0: the caller


@compiled
def _take(share):
    """Return the next block (low, high), first of the thread's own segment; (0, 0) if none is left."""
    counters = share.counters
    size, segments = counters[_SIZE], counters[_SEGMENTS]
    count = -(-counters[_SCENES] // size)
    for k in range(segments):
        k = (share.thread // 2 + k) % segments
        first, last = count * k // segments, count * (k + 1) // segments - 1
        taken = _TAKEN + k * _SEGMENT
        if atomic_add(counters, taken, 1) <= last - first:
            side = share.thread % 2
            i = atomic_add(counters, taken + (1 + side) * _LINE, 1)
            low = (first + i if side == 0 else last - i) * size
            return low, min(low + size, counters[_SCENES])
    return np.int64(0), np.int64(0)


@compiled
def _changes(counters, index, value):
    """Return True as soon as a counter is another number than `value`, False if that takes long."""
    looks = 0
    while looks < _LOOKS and atomic_load(counters, index) == value:
        looks += 1
    return looks < _LOOKS


@allocating
def blocks(num_scenes, share):
    """Yield the blocks of scenes (low, high) that fall to this thread; without a share, one block of all."""
    if share is None:
        yield 0, num_scenes
        return
    if share.thread == 0:
        atomic_add(share.calls, 0, 1)
    calls = atomic_load(share.calls, 0)
    if atomic_add(share.counters, _JOINED, 1) < _CLOSED:
        low, high = _take(share)
        while low < high:
            yield low, high
            low, high = _take(share)
        atomic_add(share.counters, _FINISHED, 1)
    if share.thread > 0:
        # To go on, a helper needs the interpreter's lock, which the caller releases when it begins the next call.
        _changes(share.calls, 0, calls)


@kernel
def _leave(counters):
    """Count a thread whose kernel has failed as finished, and leave no blocks to the others."""
    for k in range(counters[_SEGMENTS]):
        atomic_add(counters, _TAKEN + k * _SEGMENT, counters[_SCENES])
    atomic_add(counters, _FINISHED, 1)


@kernel
def _close(counters):
    """Let no further thread begin; return the number of those that have."""
    return atomic_add(counters, _JOINED, _CLOSED)


@kernel
def _finished(counters, joined):
    """Return True once all threads that have begun have ended, False if that takes long."""
    finished = atomic_load(counters, _FINISHED)
    while finished < joined and _changes(counters, _FINISHED, finished):
        finished = atomic_load(counters, _FINISHED)
    return finished >= joined


class _Call:
    """Call of a kernel, for the helpers."""

    def __init__(self, kernel: Callable, arguments: tuple[Any, ...], counters: np.ndarray) -> None:
        self.kernel, self.counters = kernel, counters
        self.arguments: tuple[Any, ...] | None = arguments  # None: the call is over
        self.ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # an item for each helper that took part
        self.error: BaseException | None = None

    def help(self, thread: int) -> None:
        """Compute blocks on the calling thread, unless the call is over."""
        arguments = self.arguments
        if arguments is None:
            return
        try:
            self.kernel(*arguments, Share(self.counters, _calls, thread))
        except BaseException as error:
            self.error = error
            _leave(self.counters)
        self.ended.put(None)

    def end(self) -> None:
        """Wait for the helpers that have begun, also if the user interrupts: they write into the caller's arrays."""
        self.arguments, interrupt = None, None
        joined = _close(self.counters)
        while not _finished(self.counters, joined):
            try:
                self.ended.get()
            except KeyboardInterrupt as caught:
                interrupt = caught
        if interrupt is not None:
            raise interrupt


_calls = np.zeros(1, np.int64)
_helpers: list[queue.SimpleQueue[_Call]] = []  # the calls for each helper, at most one that it has not begun


def _help(thread: int, inbox: queue.SimpleQueue[_Call]) -> None:
    """Take part in calls, for ever."""
    while True:
        inbox.get().help(thread)


def _start_helpers(number: int) -> None:
    while len(_helpers) < number:
        inbox: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        _helpers.append(inbox)
        threading.Thread(target=_help, args=(len(_helpers), inbox), daemon=True, name="envs-kernels").start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.clear)  # a fork copies only the calling thread


def cores() -> int:
    """Return the number of cores for kernels, which the environment variable NUMBA_NUM_THREADS can lower."""
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


def default_threads(num_scenes: int, num_sensors: int = 0) -> int:
    """Return the number of threads for a batch: that of the cores, and fewer for small batches.

    Args:
        num_scenes: number of scenes.
        num_sensors: number of sensors of all large scenes, which threads share.
    """
    return min(cores(), max(num_scenes // SCENES_PER_THREAD, num_sensors // SENSORS_PER_THREAD)) or 1


class Threads:
    """Division of a batch between threads.

    Args:
        num_scenes: number of scenes.
        num_threads: number of threads, 1 or more; there are never more than cores or blocks.
        block: scenes of a block; a multiple of 8 keeps every cache line to one thread.
    """

    def __init__(self, num_scenes: int, num_threads: int, block: int) -> None:
        self._threads = max(min(num_threads, cores(), -(-num_scenes // block)), 1)
        segments = (self._threads + 1) // 2
        self._counters = np.zeros(_TAKEN + segments * _SEGMENT, np.int64)
        self._counters[: _SEGMENTS + 1] = num_scenes, block, segments

    def run(self, kernel: Callable, *arguments: Any) -> None:
        """Call ``kernel(*arguments, share)`` on this thread, and on those of the helpers that are free."""
        if self._threads == 1:
            kernel(*arguments, None)
            return
        call = _Call(kernel, arguments, self._counters.copy())
        _start_helpers(self._threads - 1)
        for inbox in _helpers[: self._threads - 1]:
            if inbox.empty():
                inbox.put(call)
        try:
            kernel(*arguments, Share(call.counters, _calls, 0))
        except BaseException:
            _leave(call.counters)
            raise
        finally:
            call.end()
        if call.error is not None:
            raise call.error


def divide(scenes: int, n: int, m: int, num_threads: int | None, large: bool) -> tuple[int, Threads, Threads]:
    """Return the number of threads for scenes of n sensors and m targets, and how scenes and their sensors are divided.

    Args:
        scenes: number of scenes.
        n: sensors of a scene.
        m: targets of a scene.
        num_threads: number of threads, 1 or more; None: that of the cores, and fewer for small batches.
        large: threads share the sensors of a scene.
    """
    sensors = scenes * n
    number = default_threads(scenes, sensors if large else 0) if num_threads is None else num_threads
    number = min(number, sensors if large else scenes)
    fewest, most = SCENES_PER_BLOCK
    fewest = max(fewest, PAIRS_PER_BLOCK // (n * m))
    block = 8 if large else -(-max(min(-(-scenes // number), most), fewest) // 8) * 8
    return number, Threads(scenes, number, block), Threads(sensors, number, SENSORS_PER_BLOCK)
