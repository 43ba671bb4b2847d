"""Agents by name: scripted ones, checkpoints, and coordinators with executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from agents.checkpoint import EXECUTOR, checkpoint_folder, executor_folder, load_policy
from agents.exact import ExactAgent
from agents.hierarchy import COORDINATORS, EXECUTORS, HierarchicalAgent, Level
from agents.planner import PlannerAgent
from agents.policy import PerSensor, Policy, ReleasedPolicy
from agents.scripted import GreedyAgent, NearestAgent, RandomAgent, ScriptedAgent, StillAgent
from envs.observation import PAPER_FEATURES
from envs.scenario import Scenario
from perception.released import ReleasedCoordinator, ReleasedExecutor, load_released

SCRIPTED: dict[str, type[ScriptedAgent]] = {
    "random": RandomAgent,
    "still": StillAgent,
    "nearest": NearestAgent,
    "greedy": GreedyAgent,
    "exact": ExactAgent,
    "planner": PlannerAgent,
}
"""The agents without learning, by name."""

Seeds = tuple[tuple[int, int], ...]


class Agent(NamedTuple):
    """A policy with what it takes to run it."""

    name: str
    policy: Policy
    features: tuple[str, ...]
    """The observation features that it reads."""
    training_seeds: Seeds = ()
    """First and last seed of all the scenes that it was trained on; () for one that was not."""
    run: str = ""
    """Which of several trainings of the same agent it is; they have the same name."""


def scripted_agent(name: str, scenario: Scenario, **options: Any) -> ScriptedAgent:
    """The scripted agent of that name; an unknown one is a ValueError that lists the known."""
    if name not in SCRIPTED:
        raise ValueError(f"unknown agent {name!r}: known are {', '.join(SCRIPTED)}")
    return SCRIPTED[name](scenario, **options)


def load_agent(name: str, scenario: Scenario) -> Agent:
    """The agent that `name` names.

    ============================== ===========================================================================
    ``planner``                    one without learning, see :data:`SCRIPTED`
    ``runs/x``                     the policy of a run or checkpoint; a coordinator comes with its executor
    ``assign-all``                 a coordinator of :data:`agents.hierarchy.COORDINATORS`, the scripted executor
    ``assign-all:runs/x``          the same with the executor of a run (or of a coordinator's run)
    ``runs/x:scripted``            a trained coordinator with another executor
    ``released:C.pth:E.pth``       the released HiT-MAC, from its own files of coordinator and executor
    ``released:assign-all:E.pth``  a coordinator without learning with the released executor
    ============================== ===========================================================================

    Raises:
        ValueError: an unknown name (the known are listed), a damaged checkpoint, or one of another task.
    """
    if name in SCRIPTED:
        scripted = scripted_agent(name, scenario)
        return Agent(name, scripted, scripted.features)
    first, *rest = name.split(":")
    if first == "released" and len(rest) == 2:
        return _released(name, scenario, *rest)
    if first in COORDINATORS and len(rest) <= 1:
        coordinator = Level(COORDINATORS[first](), COORDINATORS[first].features)
        executor, seeds = load_executor(rest[0] if rest else "scripted", scenario)
        return _hierarchy(name, scenario, coordinator, executor, seeds)
    if len(rest) > 1 or not Path(first).is_dir():
        raise ValueError(
            f"unknown agent {name!r}: known are {', '.join((*SCRIPTED, *COORDINATORS))}, folders of checkpoints or "
            "runs, COORDINATOR:EXECUTOR and released:FILE:FILE"
        )
    policy, config = load_policy(first, scenario)
    if config.task == "Coordinator":
        own = checkpoint_folder(first) / EXECUTOR
        turns_by = rest[0] if rest else str(own) if own.is_dir() else "scripted"
        executor, seeds = load_executor(turns_by, scenario)
        coordinator, seeds = Level(policy, config.features), (config.training_seeds, *seeds)
        return _hierarchy(name, scenario, coordinator, executor, seeds, **config.options)
    if rest:
        raise ValueError(f"{name}: {first} was trained for {config.task}; only a coordinator takes an executor")
    if config.task == "Executor":
        raise ValueError(f"{name} is an executor; say who assigns the targets, as in assign-all:{name}")
    agent: Policy = PerSensor(policy) if config.options["per_sensor"] else policy
    return Agent(name, agent, config.features, (config.training_seeds,))


def _hierarchy(
    name: str, scenario: Scenario, coordinator: Level, executor: Level, seeds: Seeds = (), **options: Any
) -> Agent:
    policy = HierarchicalAgent(scenario, coordinator, executor, **options)
    return Agent(name, policy, policy.features, seeds)


def _released(name: str, scenario: Scenario, coordinator: str, executor: str) -> Agent:
    """The released HiT-MAC from the files of its two nets; the coordinator may be one without learning."""
    net = load_released(executor)
    if not isinstance(net, ReleasedExecutor):
        raise ValueError(f"{executor} is not the released executor but its coordinator")
    turns = Level(ReleasedPolicy(net), PAPER_FEATURES, "attended")
    if coordinator in COORDINATORS:
        return _hierarchy(name, scenario, Level(COORDINATORS[coordinator](), COORDINATORS[coordinator].features), turns)
    assigns = load_released(coordinator)
    if not isinstance(assigns, ReleasedCoordinator):
        raise ValueError(f"{coordinator} is not the released coordinator but its executor")
    return _hierarchy(name, scenario, Level(ReleasedPolicy(assigns), PAPER_FEATURES), turns)


def load_executor(name: str, scenario: Scenario) -> tuple[Level, Seeds]:
    """The executor that `name` names, out of :data:`agents.hierarchy.EXECUTORS` or a folder, and its training seeds.

    Raises:
        ValueError: an unknown name, a damaged checkpoint, or one of another task.
    """
    if name in EXECUTORS:
        return Level(EXECUTORS[name](), EXECUTORS[name].features), ()
    if not Path(name).is_dir():
        raise ValueError(
            f"unknown executor {name!r}: known are {', '.join(EXECUTORS)}, and folders of checkpoints or runs"
        )
    policy, config = load_policy(executor_folder(name), scenario)
    if config.task != "Executor":
        raise ValueError(f"{name} was trained for {config.task}; an executor is needed")
    return Level(policy, config.features, config.options["padding"]), (config.training_seeds,)
