"""Speed of one large scene: simulated, and observed with the nearest targets."""

import resource
import subprocess
import sys
import time

import numpy as np

SIZES = (100, 1000, 10_000)
NEAREST = 16
SECONDS, ROUNDS = 0.5, 5


def scene(kind: str, size: int):
    """Return a scene of `size` sensors: a `city`, or `large` with as many targets as sensors in an arena that fits."""
    from hitmac import envs

    if kind == "city":
        return envs.load_scenario(f"city-{size}x{size}")
    half = 100 * (size / 50) ** 0.5
    area = (-half, half, -half, half)
    cells = int(np.ceil((2 * size) ** 0.5))
    return envs.load_scenario("large").replace(
        num_sensors=size, num_targets=size, arena=half, target_area=area, grid=cells
    )


def measure(kind: str, size: int) -> None:
    """Print the figures of one size, with one thread and with all."""
    import numba

    from hitmac import envs
    from hitmac.envs.observation import Observer

    scenario, figures = scene(kind, size), []
    actions = np.random.default_rng(0).integers(0, 3, (16, 1, size))
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        began = time.perf_counter()
        simulator = envs.Simulator(scenario, 1, seed=0, num_threads=threads)
        observer = Observer(scenario, nearest=NEAREST)
        made, rates, shares = time.perf_counter() - began, [], []
        for _ in range(ROUNDS + 1):
            began, worked, steps = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - began < SECONDS:
                simulator.step(actions[steps % 16])
                observer.observe(simulator)
                steps += 1
            rates.append(steps / (time.perf_counter() - began))
            shares.append((time.process_time() - worked) / steps / size)
        figures.append((threads, max(rates[1:]), 1e6 * min(shares[1:]), made))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for threads, rate, of_sensor, made in figures:
        print(f"  {kind:<6} {size:>6} {threads:>7} {rate:>10,.0f} {of_sensor:>13.2f} {made:>7.1f} {memory:>6,.0f}")


def city() -> None:
    """Print a table of all sizes, each in a process of its own."""
    print(f"\nsub-steps/s of one scene, with {NEAREST} nearest targets observed, random actions; best of {ROUNDS}")
    print("(us per sensor: processor time of all threads; made, s: the first also compiles or loads the kernels)")
    print(
        f"  {'scene':<6} {'n = m':>6} {'threads':>7} {'sub-steps':>10} {'us per sensor':>13} {'made, s':>7} {'MB':>6}"
    )
    for kind in ("large", "city"):
        for size in SIZES:
            subprocess.run([sys.executable, "-m", "benchmarks.city", kind, str(size)], check=True)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
