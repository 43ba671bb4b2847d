"""Speed of the simulator and of trainings while other programs take the cores."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SECONDS, ROUNDS = 0.5, 6
MINUTES = 0.2  # of a training


@contextlib.contextmanager
def _competitors(number: int) -> Iterator[None]:
    """Keep `number` cores busy, each with a process of its own."""
    processes = []
    try:
        for core in sorted(os.sched_getaffinity(0))[:number]:
            code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
            processes.append(subprocess.Popen([sys.executable, "-c", code]))
        time.sleep(0.3 if number else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _runner(scenario: str, batch: int, threads: int) -> Callable[[], float]:
    """Return a function that measures sub-steps/s, with observations written, for a while."""
    from hitmac import envs
    from hitmac.envs.observation import Observer

    simulator = envs.Simulator(scenario, batch, seed=0, num_threads=threads)
    observer = Observer(simulator.scenario)
    actions = np.random.default_rng(0).integers(0, 3, (16, batch, simulator.scenario.num_sensors))

    def run() -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < SECONDS:
            simulator.step(actions[steps % 16])
            observer.observe(simulator)
            steps += 1
        return steps * batch / (time.perf_counter() - began)

    run()
    return run


def _training(*job: str) -> float:
    """Return the steps/s of a short training, without its start and its evaluation."""
    from hitmac.agents.training.resume import saved_progress

    with tempfile.TemporaryDirectory() as folder:
        limits = ["--minutes", str(MINUTES), "--episodes", "1", "--curve-points", "0", "--save-every", "5"]
        command = [sys.executable, "train.py", *job, *limits, "--run-dir", str(Path(folder, "run"))]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        steps, seconds = saved_progress(Path(folder, "run", "checkpoint", "training.safetensors"))
    return steps / seconds


def _trainings(cores: int) -> None:
    """Print the speed of trainings with no core taken and with one, in turns."""
    print(f"\nsteps/s of trainings of {60 * MINUTES:.0f} s beside programs that take whole cores; medians of 3 turns")
    print(f"  {'job':<13} {'cores taken':>12} {'steps/s':>10} {'ratio':>6}")
    for job in ("coverage", "coverage-ppo"):
        rates: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(3):
            for taken, found in rates.items():
                with _competitors(min(taken, cores)):
                    found.append(_training(job))
        free = statistics.median(rates[0])
        for taken, found in rates.items():
            rate = statistics.median(found)
            print(f"  {job:<13} {taken:>12} {rate:>10,.0f} {rate / free:>6.2f}", flush=True)


def busy() -> None:
    """Print the speed on all cores and on one thread alone, in turns, with none, one and all cores taken."""
    if not hasattr(os, "sched_setaffinity"):
        sys.exit("benchmark busy needs a system that can bind a process to a core, such as Linux")
    cores = len(os.sched_getaffinity(0))
    print(f"\nsub-steps/s beside programs that take whole cores; medians of {ROUNDS} turns of {SECONDS} s")
    print(
        f"  {'scenario':<9} {'batch':>6} {'cores taken':>12} {'one thread':>12} {f'{cores} threads':>12} {'ratio':>6}"
    )
    for scenario, batch in (("hit-mac", 1024), ("hit-mac", 4096), ("large", 256)):
        alone, shared = _runner(scenario, batch, 1), _runner(scenario, batch, cores)
        for taken in dict.fromkeys((0, 1, cores)):
            with _competitors(taken):
                rates = [(alone(), shared()) for _ in range(ROUNDS)]
            one, all_cores = (statistics.median(column) for column in zip(*rates, strict=True))
            print(
                f"  {scenario:<9} {batch:>6} {taken:>12} {one:>12,.0f} {all_cores:>12,.0f} {all_cores / one:>6.2f}",
                flush=True,
            )
    _trainings(cores)
