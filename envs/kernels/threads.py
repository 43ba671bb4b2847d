"""Calls of kernels that several threads share.

The scenes of a call are divided into segments for two threads each, and every segment into blocks. One of the two
takes blocks from the segment's beginning, the other from its end, until they meet; then both help the others.
So a thread computes nearly the same scenes in every call, which its cache still holds. The caller takes part from the
start and waits for no helper that has not begun: on a busy machine it also computes the blocks of the helpers that the
system does not run.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

from hitmac.envs.kernels.atomic import atomic_add, atomic_load
from hitmac.envs.kernels.compiled import allocating, compiled, kernel

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
