"""Agents: the scripted ones by name, those of trainings, and those of custom code."""

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from hitmac.agents.command_line import import_own
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned import checkpoint
from hitmac.agents.learned.checkpoint import PolicyConfig
from hitmac.agents.planning import planner, rules
from hitmac.agents.planning.exact import ExactAgent
from hitmac.agents.planning.levels import EXECUTORS, scripted_level
from hitmac.agents.policy import Policy, declared, has_learned
from hitmac.agents.tracking.beliefs import shown_to_beliefs
from hitmac.agents.tracking.features import BELIEFS
from hitmac.envs.observation import default_features
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.validation import convert, did_you_mean, is_among

SCRIPTED: dict[str, type[rules.RulePolicy]] = {
    "random": rules.RandomAgent,
    "still": rules.StillAgent,
    "nearest": rules.NearestAgent,
    "greedy": rules.GreedyAgent,
    "exact": ExactAgent,
    "planner": planner.PlannerAgent,
    "planner-fast": planner.FastPlannerAgent,
    "belief-planner": planner.BeliefPlannerAgent,
    "belief-planner-fast": planner.FastBeliefPlannerAgent,
    "belief-planner-fastest": planner.FastestBeliefPlannerAgent,
}
"""Classes of the scripted agents, by name."""


def options_in(name: str, given: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options `given` in a name, each ``OPTION=VALUE``, in the types of `known`; None: numbers or text."""
    options: dict[str, Any] = {}
    for part in given:
        option, _, text = part.partition("=")
        if option not in known:
            names = f"known are {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"unknown option {option!r} in {name}{did_you_mean(option, known)}: {names}")
        if not text or option in options:
            raise ValueError(f"{option} in {name} is given {'twice' if option in options else 'without a value'}")
        hint = known[option]
        number = None if str in (hint, *get_args(hint)) else number_of(text)
        value = text if number is None else number
        if hint is bool:
            value = {"true": True, "false": False}.get(text, text)
        options[option] = value if hint is None else convert(f"{option} in {name}", hint, value)
    return options


def constructor_options(name: str, given: Iterable[str], kind: type) -> dict[str, Any]:
    """Return the options `given` in a name, each ``OPTION=VALUE``, of the constructor of a class and of its bases."""
    known = {
        option: None
        for base in kind.__mro__
        for option, how in inspect.signature(base.__init__).parameters.items()  # type: ignore[misc]
        if how.default is not how.empty and option != "scenario"
    }
    return options_in(name, given, known)


def number_of(text: str) -> int | float | None:
    """Return the number in a text; None if it is none."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


class Agent(NamedTuple):
    """Policy with its name, features and training metadata."""

    name: str
    policy: Policy
    features: Any
    """Observation features of the policy, a tuple; or a function that returns the observer of a scenario."""
    training_seeds: tuple[tuple[int, int], ...] = ()
    """First and last seeds of the training scenes; () for an agent that was not trained."""
    run: str = ""
    """Name of the training, where several trainings of one agent share its name."""
    trained: bool = False
    """True if the policy was trained, so that it depends on a training seed."""
    nearness: Mapping[str, Any] = MappingProxyType({})
    """Options ``nearest``, ``radius`` and ``neighbours`` of the observation; {}: all targets."""


def scripted_agent(name: str, scenario: Scenario | str | Path, **options: Any) -> rules.RulePolicy:
    """Return the scripted agent of a name, which may have options, ``planner:turn_cost=0.5``, before those given.

    Raises ``ValueError`` for an unknown name, with the known ones, or an unknown option.
    """
    first, *rest = name.split(":") if isinstance(name, str) else [name]
    if not is_among(first, SCRIPTED):
        raise ValueError(f"unknown agent {name!r}{did_you_mean(name, SCRIPTED)}: known are {', '.join(SCRIPTED)}")
    return SCRIPTED[first](load_scenario(scenario), **options | constructor_options(name, rest, SCRIPTED[first]))


def as_custom(name: str, policy: Any, scenario: Scenario) -> Agent:
    """Return an agent for any object with ``predict``, by default with the features of the environments."""
    return Agent(name, policy, declared(policy, default_features(scenario)), trained=has_learned(policy))


def scripted_executor(scenario: Scenario, name: str = "scripted") -> LevelPolicy:
    """Return a scripted executor as a level of the hierarchy."""
    rule = scripted_level(EXECUTORS[name], scenario)
    return LevelPolicy(rule, rule.features)


def as_hierarchy(
    name: str, scenario: Scenario, coordinator: LevelPolicy, executor: LevelPolicy | None, **options: Any
) -> Agent:
    """Return an agent of a coordinator and an executor; None: the scripted executor."""
    executor = executor or scripted_executor(scenario)
    policy = HierarchicalAgent(scenario, coordinator, executor, **options)
    seeds = (*coordinator.training_seeds, *executor.training_seeds)
    return Agent(name, policy, policy.features, seeds, trained=has_learned(policy), nearness=policy.nearness)


def load_run(
    path: str | Path,
    scenario: Scenario | str | Path,
    *,
    name: str = "",
    executor: LevelPolicy | None = None,
    **nearness: Any,
) -> Agent:
    """Load the policy of a run or checkpoint, by default under the name of its directory.

    A coordinator comes with `executor`, or with that of its training. `nearness` and errors are those of
    :func:`~hitmac.agents.load_policy`; also raises ``ValueError`` for a policy that is not a whole agent.
    """
    scenario = load_scenario(scenario)
    policy, config = checkpoint.load_policy(path, scenario, **nearness)
    own = checkpoint.checkpoint_folder(path) / checkpoint.EXECUTOR
    if executor is None and config.role == "coordinator" and own.is_dir():
        executor = load_level(own, scenario)
    return as_agent(policy, config, scenario, name=name or str(path), executor=executor)


def as_agent(
    policy: Policy, config: PolicyConfig, scenario: Scenario, *, name: str, executor: LevelPolicy | None = None
) -> Agent:
    """Return an agent for a trained policy, whose training may still run; a coordinator is given an executor."""
    seeds = (config.training_seeds,)
    if config.role == "coordinator":
        level = LevelPolicy(policy, config.features, training_seeds=seeds)
        return as_hierarchy(name, scenario, level, executor, **config.options)
    if executor is not None:
        raise ValueError(f"{name} was trained for {config.task}; only a coordinator takes an executor")
    if config.role == "targets":
        raise ValueError(f"{name} was trained for {config.task}; it plays the targets of a game of two teams")
    if config.role == "executor":
        raise ValueError(f"{name} is an executor; name a coordinator too, as in assign-all:{name}")
    agent, features = checkpoint.adapt_policy(policy, config, scenario)
    nearness = config.nearness | (shown_to_beliefs(scenario) if config.features == BELIEFS else {})
    return Agent(name, agent, features, seeds, trained=True, nearness=nearness)


def as_level(policy: Policy, config: PolicyConfig, scenario: Scenario | None = None) -> LevelPolicy:
    """Return a trained executor as a level of the hierarchy, for `scenario`; None: that of its training."""
    policy = checkpoint.fitted_actions(policy, config, scenario or config.scenario)
    padding, row_id = config.options["padding"], config.options["row_id"]
    return LevelPolicy(policy, config.features, padding, row_id, (config.training_seeds,))


def load_level(path: str | Path, scenario: Scenario) -> LevelPolicy:
    """Load the executor of a run or checkpoint, of an executor or a coordinator; raise ValueError for another task."""
    policy, config = checkpoint.load_policy(checkpoint.executor_folder(path), scenario)
    if config.role != "executor":
        raise ValueError(f"{path} was trained for {config.task}; expected an executor")
    return as_level(policy, config, scenario)


def import_policy(name: str, scenario: Scenario) -> Policy:
    """Import the policy ``my_module:MyPolicy`` from the current directory or an installed package.

    A class or function is called, with the scenario if it has a parameter `scenario`, and with the options of a name
    such as ``my_module:MyPolicy:seed=1``, converted to the annotated types of its parameters; an object with
    ``predict`` is used unchanged. Raises ``ValueError`` for an unknown module, class or option, or a class without
    ``predict``, and ``TypeError`` for an option of another type.
    """
    place, attribute, *given = name.split(":")
    module = import_own(place, name)
    if not hasattr(module, attribute):
        raise ValueError(f"{name}: the module {place} has no {attribute}")
    policy: Any = getattr(module, attribute)
    made = callable(policy) and (inspect.isclass(policy) or not hasattr(policy, "predict"))
    parameters = inspect.signature(policy).parameters if made else {}
    hints = {
        option: None if isinstance(how.annotation, str) or how.annotation is how.empty else how.annotation
        for option, how in parameters.items()
        if option != "scenario" and how.kind in (how.POSITIONAL_OR_KEYWORD, how.KEYWORD_ONLY)
    }
    options = options_in(name, given, hints)
    if made:
        policy = policy(**({"scenario": scenario} if "scenario" in parameters else {}), **options)
    if not callable(getattr(policy, "predict", None)):
        raise ValueError(f"{name} is {policy!r}, which has no predict(); it must be a class or an object with it")
    return policy
