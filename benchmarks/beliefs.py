"""Belief planners in large scenes: processor time of a decision for all sensors, and memory."""

import resource
import subprocess
import sys
import time

from benchmarks.city import scene

STEPS = 5
CASES = (
    (100, "shared", "belief-planner:nearest=100"),
    (100, "shared", "belief-planner:nearest=16"),
    (100, "shared", "belief-planner-fastest:nearest=100"),
    (100, "shared", "belief-planner-fastest:nearest=16"),
    (1000, "shared", "belief-planner:nearest=16"),
    (1000, "shared", "belief-planner-fastest:nearest=16"),
    (100, "own", "belief-planner-fastest:nearest=16"),
)
"""Sensors and targets, their knowledge, and the agent; a list of all targets is read as an observation of all."""


def measure(size: int, knowledge: str, name: str) -> None:
    """Print the figures of one case."""
    from hitmac.agents import load_agent
    from hitmac.envs.tasks import CoverageTask

    scenario = scene("large", size).replace(knowledge=knowledge)
    agent = load_agent(name, scenario)
    task = CoverageTask(scenario, 1, 9_200_000_000, features=agent.features, **agent.nearness)
    state, seconds = None, []
    for _ in range(STEPS + 1):
        observation, began = task.observe(), time.process_time()
        actions, state = agent.policy.predict(observation, state, deterministic=True)
        seconds.append(time.process_time() - began)
        task.step(actions)
    held = sum(array.nbytes for array in state) / 1e6
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {size:>6} {knowledge:<7} {name:<34} {min(seconds[1:]):>10.3f} {held:>10.1f} {memory:>6,.0f}")


def beliefs() -> None:
    """Print a table of all cases, each in a process of its own."""
    print(f"\nbelief planners, as dense as `large`: s of processor time of a decision, best of {STEPS}; MB")
    print(f"  {'n = m':>6} {'knows':<7} {'agent':<34} {'decision':>10} {'state, MB':>10} {'all, MB':>6}")
    for case in CASES:
        subprocess.run([sys.executable, "-m", "benchmarks.beliefs", *map(str, case)], check=True)


if __name__ == "__main__":
    measure(int(sys.argv[1]), *sys.argv[2:])
