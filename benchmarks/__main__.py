"""Benchmarks behind the speeds in the documentation: ``python -m benchmarks [NAME ...]``."""

import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attention import attention, critic
from benchmarks.beliefs import beliefs
from benchmarks.busy import busy
from benchmarks.city import city
from benchmarks.devices import devices
from benchmarks.duel import duel
from benchmarks.rllib import rllib
from benchmarks.tracking import tracking

ROOT = Path(__file__).parents[1]
REPEATS = 5


def best(run: Callable[[], float]) -> float:
    """Return the highest of several measured rates, since other load can only lower a rate."""
    return max(run() for _ in range(REPEATS))


def rate(scenario: str, batch: int, threads: int, features: tuple[str, ...], scenes: int) -> float:
    """Measure sub-steps/s with random actions and observations, over about `scenes` scene sub-steps in all."""
    from hitmac import envs
    from hitmac.envs.observation import Observer

    simulator = envs.Simulator(scenario, batch, seed=0, num_threads=threads)
    observer = Observer(simulator.scenario, features)
    actions = np.random.default_rng(0).integers(0, 3, (16, batch, simulator.scenario.num_sensors))
    steps = max(4, scenes // batch)

    def run() -> float:
        began = time.perf_counter()
        for step in range(steps):
            simulator.step(actions[step % 16])
            observer.observe(simulator)
        return steps * batch / (time.perf_counter() - began)

    run()
    return best(run)


def simulator() -> None:
    from hitmac import envs

    print("\nsub-steps/s with observations written, random actions; best of 5")
    print("(the released program: 4,900 of 4 x 5, one scene, one core)")
    print(
        f"  {'scenario':<9} {'batch':>6} {'threads':>7} {'default features':>17} {'paper features':>15} {'ns/pair':>8}"
    )
    cases = [("hit-mac", batch, threads) for batch in (1, 64, 1024) for threads in (1, 2) if threads <= batch]
    for scenario, batch, threads in [*cases, ("obstacles", 1024, 2), ("large", 256, 1), ("large", 256, 2)]:
        scene = envs.load_scenario(scenario)
        pairs = scene.num_sensors * scene.num_targets
        scenes = 4_000_000 // pairs if batch > 1 else 20_000
        shown = (envs.DEFAULT_FEATURES, envs.PAPER_FEATURES)
        rates = [rate(scenario, batch, threads, features, scenes) for features in shown]
        per_pair = 1e9 / rates[0] / pairs
        print(f"  {scenario:<9} {batch:>6} {threads:>7} {rates[0]:>17,.0f} {rates[1]:>15,.0f} {per_pair:>8.1f}")


def memory() -> None:
    import tracemalloc

    from hitmac.envs.tasks import CoverageTask

    CoverageTask("hit-mac", 2, 0, num_threads=2).observe()  # the kernels are loaded
    tracemalloc.start()
    task = CoverageTask("hit-mac", 4096, 0, num_threads=2)
    for _ in range(20):
        task.step(np.ones((task.num_envs, 4), int))
        task.observe()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    print(f"\nmemory: 4096 scenes of 4 x 5, stepped and observed: {peak:.0f} MB at most")


def plans(name: str, scenario: str, scenes: int, calls: int) -> float:
    """Measure plans per second of processor time of an agent with the memory of `calls` sub-steps, in as many calls."""
    from hitmac.agents import scripted_agent
    from hitmac.envs.tasks import CoverageTask

    agent = scripted_agent(name, scenario)
    task = CoverageTask(scenario, scenes, 0, features=agent.features)
    state = None
    for _ in range(calls):
        action, state = agent.predict(task.observe(), state)
        task.step(action)
    shown = task.observe()

    def run() -> float:
        began = time.process_time()
        for _ in range(calls):
            agent.predict(shown, state)
        return calls * scenes / (time.process_time() - began)

    return best(run)


def planner() -> None:
    print("\nplans of all sensors, 100 scenes, per second of processor time on one core; best of 5")
    for scenario, names in (
        ("hit-mac", ("planner", "planner-fast")),
        ("examples/site/site.yaml", ("planner", "belief-planner")),
    ):
        for name in names:
            print(f"  {scenario:<24} {name:<14} {plans(name, scenario, 100, 20):>8,.0f}")


def courts() -> None:
    from hitmac import envs

    names = "belief-planner-fast", "belief-planner-fastest"
    print("\nplans of all sensors of a court, 1024 scenes, per second of processor time on one core; best of 5")
    for court in (name for name in envs.presets() if envs.load_scenario(name).rails):
        rates = [f"{name} {plans(name, court, 1024, 5):,.0f}" for name in names]
        print(f"  {court:<13}", ", ".join(rates))


def export() -> None:
    import runpy

    import onnxruntime
    import torch

    import hitmac
    from hitmac.agents import load_agent
    from hitmac.agents.deploy.export import export_agent
    from hitmac.envs.tasks import CoverageTask

    print("\none scene of 4 x 5, one thread, ms of processor time a decision; best of 5")
    torch.set_num_threads(1)
    agent = load_agent("pretrained:flat", "hit-mac")
    task = CoverageTask("hit-mac", 1, 0, features=agent.features)
    shown, state = task.observe(), task.simulator.state
    target, before = state.target_position[0], state.target_position[0] - 1.0
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sensors = {"sensor_position": state.sensor_position[0], "heading": state.heading[0]}
    with tempfile.TemporaryDirectory() as folder:
        (file,) = export_agent("pretrained:flat", Path(folder) / "policy.onnx")
        session = onnxruntime.InferenceSession(file, options)
        runners = {}
        for name in ("pretrained:flat", "pretrained:hit-mac"):
            place = Path(folder, name.removeprefix("pretrained:"))
            export_agent(name, place)
            sys.path.insert(0, str(place))  # where its observe.py is
            runners[name] = runpy.run_path(str(place / "run.py"))["Agent"]()
            sys.path.remove(str(place))
    calls: dict[str, Callable[[], Any]] = {
        "predict of pretrained:flat": lambda: agent.policy.predict(shown, deterministic=True),
        "its network in onnxruntime": lambda: session.run(["actions"], shown),
        "hitmac.observe": lambda: hitmac.observe(
            task.scenario, agent.features, target_position=target, target_before=before, **sensors
        ),
        **{
            f"run.py of {name}, all of it": lambda runner=runner: runner.decide(target, **sensors)
            for name, runner in runners.items()
        },
    }
    for name, call in calls.items():

        def run(call: Callable[[], Any] = call) -> float:
            began = time.process_time()
            for _ in range(200):
                call()
            return 200 / (time.process_time() - began)

        run()
        print(f"  {name:<39} {1e3 / best(run):.2f}")


def coordinator() -> None:
    from hitmac.envs.tasks import CoordinatorTask

    print("\ndsn/Coordinator-v0, scripted executor, random assignments, with observations, decisions/s; best of 5")
    print("(the released program: 490, one scene, one core)")
    for batch, threads in ((1, 1), (1024, 1), (1024, 2)):
        task = CoordinatorTask("hit-mac", batch, 0, num_threads=threads)
        actions = np.random.default_rng(0).integers(0, 2, (16, batch, 20))
        decisions = max(8, 16_384 // batch)

        def run(task: CoordinatorTask = task, actions: np.ndarray = actions, decisions: int = decisions) -> float:
            began = time.perf_counter()
            for decision in range(decisions):
                task.step(actions[decision % 16])
                task.observe()
            return decisions * len(actions[0]) / (time.perf_counter() - began)

        run()
        print(f"  batch {batch:>5}, {threads} threads: {best(run):>10,.0f}")


def gymnasium() -> None:
    import gymnasium as gym

    from hitmac import envs  # noqa: F401 - registers the environments

    env = gym.make("dsn/Coverage-v0")
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 3, (1000, 4))

    def run() -> float:
        env.reset()
        began = time.perf_counter()
        for action in actions:
            env.step(action)
        return len(actions) / (time.perf_counter() - began)

    run()
    print(f'\ngymnasium.make("dsn/Coverage-v0"), used singly: {best(run):,.0f} steps/s; best of 5')


def start() -> None:
    code = (
        "import time; began = time.perf_counter()\n"
        "import gymnasium, envs\n"
        "env = gymnasium.make('dsn/Coverage-v0'); env.reset(seed=0); env.step(env.action_space.sample())\n"
        "print(time.perf_counter() - began)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {"NUMBA_CACHE_DIR": cache, "PATH": "/usr/bin:/bin"}
        seconds = [
            float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True).stdout)
            for _ in range(3)
        ]
    print(f"\nimport to first step: first process ever {seconds[0]:.1f} s, later ones {min(seconds[1:]):.2f} s")


def training() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "train.py", "--minutes", "0.5", "--episodes", "1", "--run-dir", str(run_dir)]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        steps = next(line for line in printed.splitlines() if "steps in" in line).split()[0]
    print(f"\ntrain.py --minutes 0.5: {int(steps) / 30:,.0f} environment steps/s end to end")


def hierarchy() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = str(Path(folder) / "run")
        limits = ["--executor-steps", "100000", "--coordinator-minutes", "0.5", "--episodes", "1"]
        command = [sys.executable, "train.py", "hit-mac", "--run-dir", run_dir, *limits]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        decisions = [line for line in printed.splitlines() if "steps in" in line][-1].split()[0]
        command = [sys.executable, "-m", "hitmac", "evaluate", "--agents", run_dir, "--episodes", "200"]
        began = time.perf_counter()
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        seconds = time.perf_counter() - began
    print(f"\ntraining of the coordinator with its executor: {int(decisions) / 30:,.0f} decisions/s end to end")
    print(f"200 episodes of both, evaluated: {seconds:.1f} s, the start of Python included")


BENCHMARKS: dict[str, Callable[[], None]] = {
    benchmark.__name__: benchmark
    for benchmark in (
        simulator, duel, busy, city, memory, coordinator, planner, beliefs, tracking, courts, export, attention,
        critic, devices, gymnasium, start, training, hierarchy, rllib,
    )
}  # fmt: skip


def main(names: list[str]) -> None:
    if unknown := [name for name in names if name not in BENCHMARKS]:
        sys.exit(f"unknown benchmark {unknown[0]!r}: known are {', '.join(BENCHMARKS)}")
    import numba

    print(
        f"{platform.processor() or platform.machine()}, {numba.config.NUMBA_NUM_THREADS} cores, {platform.platform()}"
    )
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
