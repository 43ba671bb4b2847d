"""Calls of kernels that several threads share: the same numbers on any of them, forks."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from hitmac.envs import FEATURES, Simulator
from hitmac.envs.kernels import threads
from hitmac.envs.kernels.threads import Share, Threads, blocks, kernel
from hitmac.envs.observation import Observer

ROOT = Path(__file__).resolve().parents[3]

take = njit(lambda share: threads._take(share))


@pytest.fixture(autouse=True)
def _cores(monkeypatch):
    """Let there be several threads on any machine."""
    monkeypatch.setattr(threads, "cores", lambda: 3)


@kernel
def count(seen, share):
    for low, high in blocks(seen.shape[0], share):
        for b in range(low, high):
            seen[b] += 1


@pytest.mark.parametrize("block", [1, 8, 24, 1000])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_every_scene_is_computed_once(block, number):
    for scenes in (1, 7, 8, 9, 63, 64, 65, 257, 1000, 1001):
        seen, shared = np.zeros(scenes, np.int64), Threads(scenes, number, block)
        for _ in range(20):
            shared.run(count, seen)
        assert (seen == 20).all()


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("scenes", [17, 64, 100, 1001])
def test_the_blocks_of_all_threads_are_the_batch_in_any_order(scenes, number, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 8)
    rng = np.random.default_rng(scenes)
    for order in (np.zeros(500, int), np.full(500, number - 1), *rng.integers(0, number, (20, 500))):
        counters = Threads(scenes, number, 8)._counters.copy()
        taken = [take(Share(counters, np.zeros(1, np.int64), thread)) for thread in order]
        taken = sorted((low, high) for low, high in taken if low < high)
        assert taken == [(low, min(low + 8, scenes)) for low in range(0, scenes, 8)]


def test_a_thread_takes_blocks_of_its_own_segment_first():
    counters = Threads(100, 2, 8)._counters
    taken = [take(Share(counters, np.zeros(1, np.int64), thread)) for thread in (0, 1, 1, 0)]
    assert taken == [(0, 8), (48, 56), (56, 64), (8, 16)]


@pytest.mark.parametrize("scenes", [1, 7, 127, 128, 129, 255, 257, 385, 1025])
def test_batches_of_any_size_are_the_same_on_any_number_of_threads(scenes):
    results = []
    for number in (None, 1, 2, 3, 16):
        simulator = Simulator("hit-mac", scenes, 9, num_threads=number)
        observer, rng = Observer(simulator.scenario, tuple(FEATURES)), np.random.default_rng(1)
        for _ in range(6):
            simulator.step(rng.integers(0, 3, (scenes, 4)), rng.random(scenes) < 0.8)
            simulator.reset(mask=rng.random(scenes) < 0.1)
        results.append({**simulator.get_state(), **observer.observe(simulator)})
    for other in results[1:]:
        assert all(np.array_equal(results[0][name], other[name]) for name in other)


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

    callers = [threading.Thread(target=call, args=(row,)) for row in seen]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (seen == 200).all()


@pytest.mark.parametrize("guilty", [0, 1])
def test_an_error_of_any_thread_reaches_the_caller(guilty):
    failing = threading.Event()

    def kernel(share):
        if share.thread == guilty:
            failing.set()
            raise MemoryError
        failing.wait(10)
        time.sleep(0.1)

    with pytest.raises(MemoryError):
        Threads(1000, 2, 8).run(kernel)


def _in_a_child(answers):
    simulator = Simulator("hit-mac", 600, 3, num_threads=3)
    simulator.step(np.ones((600, 4), np.int64))
    alive = sum(thread.name == "envs-kernels" for thread in threading.enumerate())
    answers.put((alive, simulator.get_state()["target_position"].tobytes()))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork")
def test_a_fork_has_helpers_of_its_own():
    simulator = Simulator("hit-mac", 600, 3, num_threads=3)
    simulator.step(np.ones((600, 4), np.int64))
    assert threads._helpers
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_a_child, args=(answers,))
    child.start()
    helpers, positions = answers.get(timeout=60)
    child.join(60)
    assert (child.exitcode, helpers) == (0, 2)
    assert positions == simulator.get_state()["target_position"].tobytes()


FORKS = """
import multiprocessing, threading
import gymnasium, numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv
import hitmac
from hitmac.envs import Simulator
from hitmac.envs.kernels import threads

threads.cores = lambda: 3
make = [lambda: gymnasium.make("dsn/Coverage-v0")] * 2

def use(*_):
    simulator = Simulator("hit-mac", 600, 3, num_threads=3)
    simulator.step(np.ones((600, 4), np.int64))
    return simulator.get_state()["target_position"].sum()

expected = use()
make[0]().reset(seed=0)
assert threads._helpers
several = gymnasium.vector.AsyncVectorEnv(make, context="fork")
several.reset(seed=0)
several.step(several.action_space.sample())
use()
several.close()
of_sb3 = SubprocVecEnv(make, start_method="fork")
of_sb3.reset()
of_sb3.step(np.stack([of_sb3.action_space.sample() for _ in range(2)]))
of_sb3.close()
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


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork")
def test_environments_in_forks_step_and_end():
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", FORKS], cwd=ROOT, env=environment, check=True, timeout=400)


def test_helpers_sleep_between_calls():
    Threads(64, 3, 8).run(count, np.zeros(64, np.int64))
    time.sleep(0.05)
    began = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - began < 0.05
