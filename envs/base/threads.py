"""Calls of kernels on several threads.

The scenes of a call are divided into one segment for each thread, and every segment into blocks. A thread that has
computed its segment takes blocks of the others. So a thread computes nearly the same scenes in every call, and finds
them in the processor's cache. The caller does not wait for helpers that have not begun; on a busy machine it computes
their blocks as well.
"""

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from hitmac.envs.base.compile import compiled, inlined, kernel

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
    """Return element `index` of an array, including writes of other threads."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_element(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(*_INDEX_AND_NUMBER[:2]), generate


atomic_add: Callable[..., Any] = _add
atomic_load: Callable[..., Any] = _load

_LINE = 8  # words of a cache line, to which only one thread should write
_SCENES, _SIZE, _THREADS = range(3)  # scenes of the call, scenes of a block, threads
_BEGUN, _ENDED, _TAKEN = _LINE, 2 * _LINE, 3 * _LINE  # helpers that have begun, and ended; blocks taken of segment 0
_CLOSED = 1 << 32  # added to _BEGUN: no further helper may begin

SCENES_PER_THREAD = 128
"""Minimum number of scenes per thread; with fewer, a second thread costs more than it saves."""

SENSORS_PER_THREAD = 256
"""Minimum number of sensors per thread in large scenes."""

SCENES_PER_BLOCK = (128, 512)
"""Minimum and maximum number of scenes in a block, over which the loops of the kernels run."""

PAIRS_PER_BLOCK = 5120
"""Minimum number of pairs of a sensor and a target in a block; fewer are computed before another thread begins."""

SENSORS_PER_BLOCK = 64
"""Sensors in a block where the sensors of a scene are divided between threads."""

SCENES_PER_RUN = 256
"""Scenes at a time: enough to amortise the start of loops, few enough for the processor's caches."""

_LOOKS = 300_000  # looks at a counter before a thread sleeps: about 100 us, a few times as long as waking it takes


class Share(NamedTuple):
    """Share of one thread in a call, the last argument of a kernel.

    Kernels take it, and all other tuples that every call passes, as plain tuples: numba reads a named one in twice the
    time.
    """

    counters: np.ndarray  # int64, of the call
    calls: np.ndarray  # (1,) int64: calls with helpers so far
    thread: int  # 0: the caller; -1: it computes all scenes alone


@compiled
def _take(share):
    """Return the next block (low, high), from the thread's own segment first; (0, 0) if none is left."""
    counters = share.counters
    size, threads = counters[_SIZE], counters[_THREADS]
    count = -(-counters[_SCENES] // size)
    for k in range(threads):
        k = (share.thread + k) % threads
        block = count * k // threads + atomic_add(counters, _TAKEN + k * _LINE, 1)
        if block < count * (k + 1) // threads:
            return block * size, min(block * size + size, counters[_SCENES])
    return np.int64(0), np.int64(0)


# Numba never gives back the references to arrays that a generator counts: these two must count none.


@compiled
def blocks(num_scenes, share):
    """Yield the blocks of scenes (low, high) of this thread; alone, one block of all scenes."""
    share = Share(*share)
    if share.thread < 0:
        yield 0, num_scenes
        return
    helpers = min(share.thread, 1)  # the caller is not counted: it may be interrupted after its end, or before
    atomic_add(share.calls, 0, 1 - helpers)
    calls = atomic_load(share.calls, 0)
    if atomic_add(share.counters, _BEGUN, helpers) < _CLOSED:
        low, high = _take(share)
        while low < high:
            yield low, high
            low, high = _take(share)
        atomic_add(share.counters, _ENDED, helpers)
    if share.thread > 0:
        # Returning needs the interpreter's lock, which the caller releases only when it begins the next call.
        looks = 0
        while looks < _LOOKS and atomic_load(share.calls, 0) == calls:
            looks += 1


@inlined
def next_run(chosen, low, high):
    """Return the next run of consecutive chosen scenes in [low, high), of at most SCENES_PER_RUN: first, last + 1."""
    first = np.int64(low)
    while first < high and not chosen[first]:
        first += 1
    last = first
    while last < high and last - first < SCENES_PER_RUN and chosen[last]:
        last += 1
    return np.uint64(first), np.uint64(last)


@compiled
def runs(chosen, share):
    """Yield runs of consecutive chosen scenes (first, last + 1) from the blocks of this thread."""
    for low, high in blocks(chosen.shape[0], share):
        first, last = next_run(chosen, low, high)
        while first < last:
            yield first, last
            first, last = next_run(chosen, last, high)


@kernel
def _leave(counters, helpers):
    """Discard the remaining blocks after an error, and count the helpers whose kernel has failed as ended."""
    for k in range(counters[_THREADS]):
        atomic_add(counters, _TAKEN + k * _LINE, counters[_SCENES])
    atomic_add(counters, _ENDED, helpers)


@kernel
def _close(counters):
    """Allow no further helper to begin; return the number of helpers that have, the same at every call."""
    begun = atomic_add(counters, _BEGUN, _CLOSED)
    if begun < _CLOSED:
        counters[_BEGUN + 1] = begun
    return counters[_BEGUN + 1]


@kernel
def _all_ended(counters, begun):
    """Return True when all helpers that have begun have ended, False after many looks."""
    looks = 0
    while looks < _LOOKS and atomic_load(counters, _ENDED) < begun:
        looks += 1
    return looks < _LOOKS


class _Call(NamedTuple):
    """Call of a kernel in which helpers take part."""

    kernel: Callable
    arguments: tuple[Any, ...]
    counters: np.ndarray
    ended: queue.SimpleQueue[None]  # an item for each helper that took part
    errors: list[BaseException]  # of helpers, such as a full disk while a kernel is compiled


_calls = np.zeros(1, np.int64)
ALONE = tuple(Share(np.zeros(_TAKEN, np.int64), _calls, -1))
"""Share of a call on a single thread."""

_helpers: list[queue.SimpleQueue[_Call]] = []  # queue of calls of each helper, at most one of them not begun


def _help(call: _Call, thread: int) -> None:
    """Compute blocks of a call on the current thread, unless the call is over."""
    try:
        call.kernel(*call.arguments, (call.counters, _calls, thread))
    except BaseException as error:
        call.errors.append(error)
        _leave(call.counters, 1)
    call.ended.put(None)


def _serve(thread: int, inbox: queue.SimpleQueue[_Call]) -> None:
    while True:
        _help(inbox.get(), thread)


def _wait(call: _Call) -> None:
    """Let no further helper begin, and wait for those that have, since they write into the caller's arrays."""
    begun = _close(call.counters)
    while not _all_ended(call.counters, begun):
        call.ended.get()


def _start_helpers(number: int) -> None:
    with suppress(RuntimeError):  # no further thread can start, as in a container with few processes: fewer help
        while len(_helpers) < number:
            inbox: queue.SimpleQueue[_Call] = queue.SimpleQueue()
            thread = len(_helpers) + 1
            threading.Thread(target=_serve, args=(thread, inbox), daemon=True, name="envs-kernels").start()
            _helpers.append(inbox)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.clear)  # a fork copies only the current thread


def cores() -> int:
    """Return the number of cores for kernels; the environment variable NUMBA_NUM_THREADS lowers it."""
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


class Threads:
    """Division of a batch between threads, at most one per core and block.

    With a `block` of a multiple of 8 scenes, only one thread writes to a cache line.
    """

    def __init__(self, num_scenes: int, num_threads: int, block: int) -> None:
        self._threads = max(min(num_threads, cores(), -(-num_scenes // block)), 1)
        self._counters = np.zeros(_TAKEN + self._threads * _LINE, np.int64)
        self._counters[: _THREADS + 1] = num_scenes, block, self._threads

    def run(self, kernel: Callable, *arguments: Any) -> None:
        """Call ``kernel(*arguments, share)`` on this thread and on idle helpers."""
        if self._threads == 1:
            kernel(*arguments, ALONE)
            return
        call = _Call(kernel, arguments, self._counters.copy(), queue.SimpleQueue(), [])
        _start_helpers(self._threads - 1)
        try:
            for inbox in _helpers[: self._threads - 1]:
                if inbox.empty():
                    inbox.put(call)
            kernel(*arguments, (call.counters, _calls, 0))
        except BaseException:
            _leave(call.counters, 0)
            raise
        finally:
            try:
                _wait(call)
            finally:  # also after an interrupt
                _wait(call)
        if call.errors:
            raise call.errors[0]


def divide(scenes: int, n: int, m: int, num_threads: int | None, large: bool) -> tuple[int, Threads, Threads]:
    """Return the number of threads for scenes of n sensors and m targets, and the divisions of scenes and of sensors.

    With `num_threads` None, one per core, or fewer for small batches; if `large`, threads share the sensors of a scene.
    """
    sensors = scenes * n
    useful = max(scenes // SCENES_PER_THREAD, sensors // SENSORS_PER_THREAD if large else 0)
    number = min(cores(), useful) or 1 if num_threads is None else num_threads
    number = min(number, sensors if large else scenes)
    fewest, most = SCENES_PER_BLOCK
    fewest = max(fewest, PAIRS_PER_BLOCK // (n * m))
    block = 8 if large else -(-max(min(-(-scenes // number), most), fewest) // 8) * 8
    return number, Threads(scenes, number, block), Threads(sensors, number, SENSORS_PER_BLOCK)
