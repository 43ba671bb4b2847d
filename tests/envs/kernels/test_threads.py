"""Compilation of kernels with their cache on disk, and calls of kernels that several threads share."""

import errno
import importlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from hitmac.envs import Simulator
from hitmac.envs.base import threads
from hitmac.envs.base.compile import _turn, compiled, kernel
from hitmac.envs.base.threads import Share, Threads, atomic_load, blocks

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import sys
sys.path[1:1] = sys.argv[1:]
from kernels_of_mine import double
import numpy as np
out = np.arange(3.0)
double(out, None)
assert out.tolist() == [0.0, 2.0, 4.0]
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""
KERNEL = """
from parts_of_mine import twice
from hitmac.envs.base.compile import kernel

@kernel
def double(numbers, share):
    for k in range(numbers.shape[0]):
        numbers[k] = twice(numbers[k])
"""
PARTS = """
from hitmac.envs.base.compile import compiled

@compiled
def twice(number):
    return 2.0 * number
"""


@pytest.mark.slow
def test_processes_compile_a_kernel_once_until_a_called_function_changes(tmp_path):
    """Processes in any folder that start together share the cache; without a place to write, each compiles."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernels_of_mine.py").write_text(KERNEL)
    (package / "parts_of_mine.py").write_text(PARTS)
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}

    def start(folder=tmp_path, **changes):
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, str(package), str(ROOT)], cwd=folder, text=True,
            env={**environment, "HOME": str(tmp_path / "home"), **changes}, stdout=subprocess.PIPE,
        )  # fmt: skip

    def hits_and_misses(process):
        printed, _ = process.communicate()
        assert process.returncode == 0
        return tuple(map(int, printed.split()))

    together = [hits_and_misses(process) for process in [start(), start(package)]]
    assert sorted(together) == [(0, 1), (1, 0)]
    (package / "parts_of_mine.py").write_text(PARTS.replace("2.0", "(1.0 + 1.0)"))
    assert hits_and_misses(start()) == (0, 1)
    shutil.rmtree(package / "__pycache__")
    (package / "__pycache__").write_text("")  # root may write into any folder, but into no file as a folder
    assert hits_and_misses(start(HOME="/dev/null", XDG_CACHE_HOME="/dev/null")) == (0, 1)


@pytest.mark.parametrize("lacking", ["builtins.open", "fcntl.flock"])
def test_a_kernel_is_compiled_where_files_cannot_be_locked(lacking, tmp_path, monkeypatch):
    refuse = Mock(side_effect=OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)))
    monkeypatch.setattr(lacking, refuse)
    with _turn(str(tmp_path / "lock")):
        assert refuse.call_count == 1


def test_kernels_that_may_not_be_compiled_are_refused(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    with pytest.raises(ImportError, match="unset NUMBA_DISABLE_JIT"):
        importlib.reload(sys.modules[compiled.__module__])


def test_functions_compiled_for_kernels_refuse_the_interpreter():
    one_more = compiled(lambda number: number + 1)
    assert njit(lambda number: one_more(number))(1) == 2 == one_more.py_func(1)
    with pytest.raises(TypeError, match="compiled only for kernels"):
        one_more(1)


@pytest.fixture(scope="module", autouse=True)
def _cores():
    """Let several threads run on any machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "cores", lambda: 5)
        yield


@kernel
def count(seen, share):
    for low, high in blocks(seen.shape[0], share):
        for b in range(low, high):
            seen[b] += 1


@settings(deadline=None, max_examples=60)
@given(scenes=st.integers(1, 1100), number=st.integers(1, 6), block=st.sampled_from([1, 8, 24, 1000]))
def test_every_scene_is_computed_once(scenes, number, block):
    seen, shared = np.zeros(scenes, np.int64), Threads(scenes, number, block)
    for _ in range(5):
        shared.run(count, seen)
    assert (seen == 5).all()


def test_the_caller_waits_for_no_helper_that_has_not_begun(monkeypatch):
    """A helper that never comes: the caller computes its blocks too, and offers it no second call."""
    Threads(64, 2, 8).run(count, np.zeros(64, np.int64))
    absent = threads.queue.SimpleQueue()
    monkeypatch.setattr(threads, "_helpers", [absent] * 2)
    seen, shared = np.zeros(640, np.int64), Threads(640, 3, 8)
    for _ in range(50):
        shared.run(count, seen)
    assert (seen == 50).all()
    assert absent.qsize() == 1
    threads._help(absent.get(), 1)  # too late: the call is over
    assert (seen == 50).all()


def test_several_callers_share_the_helpers():
    seen = np.zeros((4, 1000), np.int64)

    def call(row):
        shared = Threads(1000, 3, 8)
        for _ in range(200):
            shared.run(count, row)

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(call, seen))
    assert (seen == 200).all()


@pytest.mark.parametrize("guilty", [0, 1])
def test_an_error_of_any_thread_reaches_the_caller(guilty):
    failing = threading.Event()

    def kernel(share):
        if Share(*share).thread == guilty:
            failing.set()
            raise MemoryError
        failing.wait(10)
        time.sleep(0.1)

    with pytest.raises(MemoryError):
        Threads(1000, 2, 8).run(kernel)


@kernel
def wait(gate, share):
    for _ in blocks(64, share):
        while share[2] > 0 and atomic_load(gate, 0) == 0:
            pass


def test_an_interrupted_caller_waits_for_helpers():
    """They write into its arrays: a scene that is stepped again at once would be computed twice at the same time."""
    main, begun, gate = threading.main_thread(), threading.Event(), np.zeros(1, np.int64)

    def kernel(gate, share):
        if threading.current_thread() is not main:
            begun.set()
            wait(gate, share)
        elif begun.wait(10):
            time.sleep(0.1)
            wait(gate, share)
            signal.raise_signal(signal.SIGINT)

    wait(np.ones(1, np.int64), threads.ALONE)
    for _ in range(2):  # the first time compiles, too
        begun.clear()
        gate[:] = 0
        threading.Timer(0.3, signal.pthread_kill, (main.ident, signal.SIGINT)).start()  # while it waits
        threading.Timer(0.5, gate.fill, (1,)).start()
        with pytest.raises(KeyboardInterrupt):
            Threads(64, 2, 8).run(kernel, gate)
        assert gate[0] == 1


def test_without_further_threads_a_caller_computes_all(monkeypatch):
    monkeypatch.setattr(threads, "_helpers", [])
    monkeypatch.setattr("threading.Thread.start", Mock(side_effect=RuntimeError("can't start new thread")))
    seen = np.zeros(64, np.int64)
    Threads(64, 3, 8).run(count, seen)
    assert (seen == 1).all()


def test_helpers_sleep_between_calls():
    Threads(64, 3, 8).run(count, np.zeros(64, np.int64))
    time.sleep(0.05)
    began = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - began < 0.05


IN_FORKS = """
import multiprocessing, threading
import numpy as np
from hitmac.envs import Simulator
from hitmac.envs.base import threads

threads.cores = lambda: 3

def use(*_):
    simulator = Simulator("hit-mac", 600, 3, num_threads=3)
    simulator.step(np.ones((600, 4), np.int64))
    alive = sum(thread.name == "envs-kernels" for thread in threading.enumerate())
    return simulator.get_state()["target_position"].sum(), alive

expected = use()
assert expected[1] == 2 == len(threads._helpers)
fork, over = multiprocessing.get_context("fork"), threading.Event()
others = [threading.Thread(target=lambda: [use() for _ in iter(over.is_set, True)]) for _ in range(2)]
for other in others:
    other.start()  # a fork copies only the thread that forks, whatever the others do at that moment
for _ in range(5):
    with fork.Pool(2) as pool:
        assert pool.map(use, range(4)) == [expected] * 4
over.set()
for other in others:
    other.join()
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork")
def test_forks_have_helpers_of_their_own_and_end():
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", IN_FORKS], cwd=ROOT, env=environment, check=True, timeout=400)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_calls_keep_no_reference_to_their_arguments(num_threads):
    """Numba's generators may never give back what they count: a step of one scene kept 192 bytes for ever."""
    simulator, chosen = Simulator("hit-mac", 512, 0, num_threads=num_threads), np.ones(512, np.bool_)
    action = np.zeros((512, 4), np.int64)
    held = [action, chosen, simulator.rows.sensor, threads._calls, threads.ALONE[0]]
    before = [sys.getrefcount(array) for array in held]
    for _ in range(20):
        simulator.step(action, chosen)
        simulator.reset(mask=chosen)
    now = [sys.getrefcount(array) for array in held]
    assert max(np.subtract(now, before)) < 10  # a helper may still hold its last call
