"""Long runs of the environments with random actions and resets: ``make soak``.

The cases are every preset, task and kind of knowledge, recorded tracks, and random scenarios. Observations must be
finite and inside their space, rewards and coverage within their range, sensors and targets inside the arena, and the
memory constant. Prints a table with a row per case.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from hitmac.envs import FEATURES, TASKS, Scenario, load_scenario, presets
from hitmac.envs.tasks import CoverageTask, ExecutorTask, Task
from hitmac.signals import end_on_signal
from tests.envs.scenes import scenarios

_SCENES = 256
_OBSERVE_EVERY = 8  # steps
_GROWTH = 2**23  # bytes that a case may add after its first tenth
_NOISY = {"position_noise": 20.0, "missed_detections": 0.1, "failure_rate": 0.01, "recovery_rate": 0.1}


class Case(NamedTuple):
    """Task with its scenario and options."""

    name: str
    task: type[Task]
    scenario: Scenario
    options: dict[str, Any]


def cases(folder: Path, number: int = 12) -> Iterator[Case]:
    """Yield all cases, `number` of them random scenarios; write the files of tracks to `folder`."""
    every = {"features": tuple(FEATURES)}
    for name in presets():
        yield Case(name, CoverageTask, load_scenario(name), every)
    hit_mac = load_scenario("hit-mac")
    for task in (one for one in TASKS.values() if one.team == "sensors"):
        yield Case(f"hit-mac {task.spec.name}", task, load_scenario(task.spec.scenario), {})
    goals = {"features": tuple(FEATURES), "padding": "unfiltered", "goals_every": 3, "goal_share": 0.5}
    yield Case("goals unfiltered", ExecutorTask, hit_mac.replace(leave_rate=0.05, return_rate=0.2), goals)
    for knowledge in ("full", "shared", "neighbours", "own"):
        yield Case(f"noisy {knowledge}", CoverageTask, hit_mac.replace(knowledge=knowledge, **_NOISY), every)
    late = {"knowledge": "neighbours", "hops": 3, "message_delay": 4, "message_loss_rate": 0.3}
    yield Case("late reports", CoverageTask, hit_mac.replace(**late, **_NOISY, leave_rate=0.02, return_rate=0.1), every)
    path = folder / "tracks.csv"
    path.write_text("time,id,x,y\n" + "".join(
        f"{0.13 * k:.2f},{j},{1000 * np.sin(k / 40 + j):.1f},{900 * np.cos(k / 90 * (j + 1)):.1f}\n"
        for j in range(5) for k in range(1500) if (k + 300 * j) % 700 > 100
    ))  # fmt: skip
    tracked = hit_mac.replace(num_targets=8, tracks=(str(path),), episode_steps=300)
    yield Case("tracks", CoverageTask, tracked, every)
    yield Case("tracks own", CoverageTask, tracked.replace(knowledge="own"), every)
    drawn: list[Scenario] = []

    @settings(max_examples=max(number, 1), derandomize=True, database=None, phases=[Phase.generate], deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(scenarios())
    def draw(scenario: Scenario) -> None:
        drawn.append(scenario)

    draw()
    for k, scenario in enumerate(drawn[:number]):
        yield Case(f"random {k}", CoverageTask, scenario, every)


def memory() -> int:
    """Return the bytes of memory in use by this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def soak(case: Case, sub_steps: int, seed: int = 0) -> int:
    """Run a case for a number of sub-steps, summed over its scenes; return the growth of the memory in bytes.

    Raises AssertionError with the fault.
    """
    task = case.task(case.scenario, _SCENES, seed, **case.options)
    rng, space, simulator = np.random.default_rng(seed), task.observation_space["pairs"], task.simulator
    slack = 1e-5 * np.maximum(np.abs(space.low), np.abs(space.high))
    extent, choices = np.array(case.scenario.extent) * (1 + 1e-9), 3 if task.turning else 2
    steps = -(-sub_steps // (_SCENES * task.sub_steps))
    before = memory()
    for step in range(steps):
        reward = task.step(rng.integers(0, choices, (_SCENES, *task.action_space.shape)))
        ended = simulator.track_ended | (rng.random(_SCENES) < 0.002)
        if ended.any():
            task.reset(mask=ended)
        if step % 1000 == 999:
            simulator.set_state(simulator.get_state())  # checks the state
        if step % _OBSERVE_EVERY == 0:
            pairs = task.observe()["pairs"]
            assert np.isfinite(pairs).all(), "an observation is not finite"
            assert ((pairs >= space.low - slack) & (pairs <= space.high + slack)).all(), (
                "an observation is outside its space"
            )
            assert np.abs(reward).max() <= 3, f"a reward is {reward}"  # fails for NaN too
            assert ((simulator.coverage >= 0) & (simulator.coverage <= 1)).all(), "a coverage is outside [0, 1]"
            for places in (simulator.state.sensor_position, simulator.state.target_position):
                assert (np.abs(places) <= extent).all(), "a sensor or target is outside the arena"
        if step == steps // 10:
            before = memory()
    grown = memory() - before
    assert grown <= _GROWTH, f"the memory grew by {grown} bytes"
    return grown


def main() -> int:
    """Run all cases, or those named; return the number of failed cases."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="beginnings of the names of cases (all)")
    parser.add_argument("--million", type=float, default=500.0, help="million sub-steps; larger scenes get fewer")
    parser.add_argument("--random", type=int, default=12, help="number of random scenarios")
    parser.add_argument("--seed", type=int, default=0, help="seed of scenes and actions")
    options = parser.parse_args()
    if not options.million > 0:
        parser.error(f"--million is {options.million}; it must be greater than 0")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        every = list(cases(Path(folder), options.random))
        for beginning in options.cases:
            if not any(case.name.startswith(beginning) for case in every):
                parser.error(f"no case begins with {beginning!r}: known are {', '.join(case.name for case in every)}")
        chosen = [case for case in every if not options.cases or case.name.startswith(tuple(options.cases))]
        shares = np.array([(case.scenario.num_sensors * case.scenario.num_targets) ** -0.8 for case in chosen])
        print(f"{'case':<20}{'n x m':>8}{'million':>9}{'seconds':>9}{'grown MB':>10}  result")
        for case, share in zip(chosen, shares / shares.sum(), strict=True):
            sub_steps = int(1e6 * options.million * share)
            began, grown, result = time.perf_counter(), 0, "passed"
            try:
                grown = soak(case, sub_steps, options.seed)
            except AssertionError as error:
                failed, result = failed + 1, f"FAILED: {error}; {case.scenario.to_dict()}"
            size, seconds = f"{case.scenario.num_sensors}x{case.scenario.num_targets}", time.perf_counter() - began
            row = f"{case.name:<20}{size:>8}{sub_steps / 1e6:>9.2f}{seconds:>9.0f}{grown / 2**20:>10.1f}  {result}"
            print(row, flush=True)
    return failed


if __name__ == "__main__":
    with end_on_signal("python -m tools.soak"):
        sys.exit(main())
