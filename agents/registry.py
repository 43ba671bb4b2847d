"""Registry of agents: scripted agents, training runs, coordinators with executors, and custom policies, by name."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

from hitmac.agents.baselines.exact import ExactAgent
from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS, scripted_level
from hitmac.agents.baselines.planner import (
    BeliefPlannerAgent,
    FastBeliefPlannerAgent,
    FastestBeliefPlannerAgent,
    FastPlannerAgent,
    PlannerAgent,
)
from hitmac.agents.baselines.rules import GreedyAgent, NearestAgent, RandomAgent, RulePolicy, StillAgent
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned.checkpoint import (
    EXECUTOR,
    PolicyConfig,
    adapt_policy,
    checkpoint_folder,
    executor_folder,
    load_policy,
)
from hitmac.agents.nearness import OPTIONS, split_options
from hitmac.agents.policy import (
    Completed,
    Memoryless,
    Policy,
    ReleasedPolicy,
    declared,
    has_learned,
    import_policy,
    is_import,
)
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.presets import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import convert, did_you_mean, is_among
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor, load_released

_WORDS = {"none": None, "true": True, "false": False}


def read_options(kind: type, name: str) -> dict[str, Any]:
    """Return the options in a name such as ``planner:turn_cost=0.5:horizon=30``, with their types.

    Args:
        kind: class of the agent, whose constructor's parameters are the options, those of its bases included.
        name: name with options, each ``:OPTION=VALUE``.

    Raises:
        ValueError: no such option, one given twice, or one without a value.
        TypeError: a value of another type.
    """
    known = _options_of(kind)
    options: dict[str, Any] = {}
    for part in name.split(":")[1:]:
        option, equals, text = part.partition("=")
        if option not in known:
            raise ValueError(
                f"unknown option {option!r} in {name}{did_you_mean(option, known)}: known are {', '.join(known)}"
            )
        if not (equals and text) or option in options:
            raise ValueError(f"{option} in {name} is given {'twice' if option in options else 'without a value'}")
        options[option] = convert(option, known[option], _value(text))
    return options


def _options_of(kind: type) -> dict[str, Any]:
    """Return the types of a constructor's options; those that it hands on are its base's."""
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    own = {
        name: hints[name]
        for name, how in parameters.items()
        if how.default is not how.empty and name != "scenario" and name in hints
    }
    handed_on = any(how.kind is how.VAR_KEYWORD for how in parameters.values())
    return own | (_options_of(kind.__mro__[1]) if handed_on else {})


def _value(text: str) -> Any:
    """Return the number, true, false or none that a text is, or the text."""
    number = number_of(text)
    return _WORDS.get(text, text) if number is None else number


def number_of(text: str) -> int | float | None:
    """Return the number that a text is; None if it is none."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def with_options(names: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of one of the names with options, at the end of an agent's name or before a ``+``.

    Options of the observation, such as ``nearest=16``, may follow any name.
    """
    scripted, shown = "|".join(map(re.escape, names)), "|".join(OPTIONS)
    own = rf"(?:memoryless:)?(?:{scripted})(?::\w+=[^:=+]+)+"
    return re.compile(rf"(?:^|(?<=[=+]))(?:{own}|[^=+]+?(?::(?:{shown})=[^:=+]+)+)(?=$|\+)")


def each_value(name: str) -> list[str]:
    """Return a name for each value of an option with several, as in ``planner:turn_cost=0.1/0.5``."""
    found = re.search(r"(?<==)[^:=+/]+(?:/[^:=+/]+)+", name)
    if found is None:
        return [name]
    return [name[: found.start()] + value + name[found.end() :] for value in found[0].split("/")]


def split_group(name: str, optional: re.Pattern[str]) -> tuple[str, str]:
    """Split ``NAME=MEMBERS`` at the last ``=`` that belongs to no option; without one, the name is empty."""
    hidden = optional.sub(lambda found: "." * len(found[0]), name)
    place = hidden.rfind("=")
    return name[: max(place, 0)], name[place + 1 :]


def family_of(name: str) -> tuple[str, str]:
    """Return the family of an agent's name and its options, which follow the first colon; "" without options."""
    found = re.search(r"(?::[^:=]+=[^:=]*)+$", name)
    return (name[: found.start()], found[0][1:]) if found else (name, "")


def halves(text: str, is_left: Callable[[str], bool], is_right: Callable[[str], bool]) -> tuple[str, str] | None:
    """Split `text` at a ':' into two names, each of which may contain further ':'.

    If only the left name is known, split at the only ':', so that an error can name the right one.
    """
    both = [(text[:place], text[place + 1 :]) for place, letter in enumerate(text) if letter == ":"]
    left = [two for two in both if is_left(two[0])]
    unknown = None if is_import(text) or not left else only_two(text)
    return next((two for two in left if is_right(two[1])), unknown)


def only_two(text: str) -> tuple[str, str] | None:
    """Split `text` at its only ':'; None if it has none or several."""
    left, _, right = text.partition(":")
    return (left, right) if text.count(":") == 1 else None


Seeds = tuple[tuple[int, int], ...]

Executor = tuple[LevelPolicy, Seeds]
"""Executor with the first and last seeds of its training scenes; () for an executor that was not trained."""


class Agent(NamedTuple):
    """Policy with its name, features and training metadata."""

    name: str
    policy: Policy
    features: tuple[str, ...]
    """Observation features that the policy reads."""
    training_seeds: Seeds = ()
    """First and last seeds of the training scenes; () for an agent that was not trained."""
    run: str = ""
    """Name of the training, where several trainings of one agent share its name."""
    trained: bool = False
    """True if the policy was trained, so that another training seed would give another policy."""
    nearness: Mapping[str, Any] = MappingProxyType({})
    """Options of the environment, ``nearest``, ``radius`` and ``neighbours``, with which the policy is shown the
    nearest targets; none: it is shown all."""


SCRIPTED: dict[str, type[RulePolicy]] = {
    "random": RandomAgent,
    "still": StillAgent,
    "nearest": NearestAgent,
    "greedy": GreedyAgent,
    "exact": ExactAgent,
    "planner": PlannerAgent,
    "planner-fast": FastPlannerAgent,
    "belief-planner": BeliefPlannerAgent,
    "belief-planner-fast": FastBeliefPlannerAgent,
    "belief-planner-fastest": FastestBeliefPlannerAgent,
}
"""Agents that decide by rule, by name."""


def scripted_agent(name: str, scenario: Scenario | str | Path, **options: Any) -> RulePolicy:
    """Make the scripted agent of a name; an unknown name raises a ValueError that lists the known."""
    if not is_among(name, SCRIPTED):
        raise ValueError(f"unknown agent {name!r}{did_you_mean(name, SCRIPTED)}: known are {', '.join(SCRIPTED)}")
    return SCRIPTED[name](load_scenario(scenario), **options)


def load_agent(agent: Agent | Policy | str | Path, scenario: Scenario | str | Path, *, executor: Any = None) -> Agent:
    """Load the agent that `agent` names, or wrap a policy as an agent.

    ============================== ===========================================================================
    ``planner``                    a scripted agent, see :data:`SCRIPTED`
    ``planner:turn_cost=0.5``      the same with options of its constructor, each after a colon
    ``runs/x``                     the policy of a run or checkpoint; a coordinator comes with its executor
    ``assign-all``                 a scripted coordinator with the scripted executor
    ``assign-all:runs/x``          the same with the executor of a run (or of a coordinator's run)
    ``runs/x:scripted``            a trained coordinator with another executor
    ``pretrained:flat``            a trained policy that comes with the package, see :mod:`hitmac.agents.pretrained`
    ``released:C.pth:E.pth``       the released HiT-MAC, from its own files of coordinator and executor
    ``released:assign-all:E.pth``  a scripted coordinator with the released executor
    ``my_module:MyPolicy``         a custom policy, see :func:`hitmac.agents.policy.import_policy`
    ``memoryless:planner``         any of these, to which targets that are not seen now are not there
    ``planner:nearest=16``         an agent that turns all sensors, shown the 16 nearest targets of each; also
                                   ``radius=40``, their farthest distance, and ``neighbours=8``
    ============================== ===========================================================================

    A ``Path`` is always a directory. A string is a directory only if it is none of these names, such as ``./planner``.
    Any object with ``predict`` is an agent. It observes the features of its attribute ``features``, or
    :data:`hitmac.envs.DEFAULT_FEATURES` without one.

    Args:
        agent: a name, a directory, a policy, or an :class:`Agent`, which is returned as it is.
        scenario: the scenario to play: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        executor: executor for a coordinator, as accepted by :func:`load_executor`; None: the coordinator's own.

    Raises:
        ValueError: an unknown name (the message lists the known), a damaged checkpoint, or a checkpoint of another
            task.
        TypeError: `agent` is none of these.
    """
    scenario = load_scenario(scenario)
    if isinstance(agent, str | Path):
        with_executor = None if executor is None else load_executor(executor, scenario)
        if isinstance(agent, Path) or Path(agent).is_dir():
            return _named(agent, scenario, with_executor, {})
        plain, nearness = split_options(agent)
        found = _named(plain, scenario, with_executor, nearness)._replace(name=agent)
        if nearness and not found.nearness:
            raise ValueError(f"{agent} is given {', '.join(nearness)}; agents with a coordinator are shown all targets")
        return found
    if executor is not None:
        raise ValueError("executor is given; only the name or the directory of a coordinator takes one")
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, type) or not callable(getattr(agent, "predict", None)):
        raise TypeError(f"agent is {agent!r}; it must be a name, a directory, an Agent or an object with predict()")
    return _custom(type(agent).__name__, agent)


def load_run(
    path: str | Path,
    scenario: Scenario | str | Path,
    *,
    name: str | None = None,
    executor: Executor | None = None,
    **nearness: Any,
) -> Agent:
    """Load the policy of a run or checkpoint; a coordinator comes with its executor.

    Args:
        path: directory of any name.
        scenario: the scenario to play.
        name: name of the agent; None: the path.
        executor: executor for a coordinator; None: the executor of its training.
        **nearness: the nearest targets that it is shown, see :func:`~hitmac.agents.load_policy`.

    Raises:
        FileNotFoundError: the directory holds no checkpoint.
        ValueError: a damaged checkpoint, or one of a task that is not a whole agent.
    """
    scenario, name = load_scenario(scenario), str(path) if name is None else name
    policy, config = load_policy(path, scenario, **nearness)
    own = checkpoint_folder(path) / EXECUTOR
    if executor is None and config.role == "coordinator" and own.is_dir():
        executor = load_executor_run(own, scenario)
    return as_agent(policy, config, scenario, name=name, executor=executor)


def as_agent(
    policy: Policy, config: PolicyConfig, scenario: Scenario, *, name: str, executor: Executor | None = None
) -> Agent:
    """Make an agent of a trained policy.

    Args:
        policy: the policy, whose training may still be running.
        config: metadata of the policy, as in a checkpoint.
        scenario: the scenario to play.
        name: name of the agent.
        executor: executor for a coordinator; None: the scripted one.

    Raises:
        ValueError: the policy is an executor, or `executor` is given and the policy is not a coordinator.
    """
    seeds: Seeds = (config.training_seeds,)
    if config.role == "coordinator":
        coordinator = LevelPolicy(policy, config.features), seeds
        turns = executor or load_executor("scripted", scenario)
        return _hierarchy(name, scenario, coordinator, turns, **config.options)
    if executor is not None:
        raise ValueError(f"{name} was trained for {config.task}; only a coordinator takes an executor")
    if config.role == "executor":
        raise ValueError(f"{name} is an executor; name a coordinator too, as in assign-all:{name}")
    agent, features = adapt_policy(policy, config, scenario)
    return Agent(name, agent, features, seeds, trained=True, nearness=config.nearness)


def as_level(policy: Policy, config: PolicyConfig, scenario: Scenario | None = None) -> LevelPolicy:
    """Make a level of the hierarchy of a trained executor, for `scenario`; None: for that of its training."""
    if scenario is not None and config.scenario.decisions != scenario.decisions:
        policy = Completed(policy, config.scenario.decisions, scenario.decisions)
    return LevelPolicy(policy, config.features, config.options["padding"], config.options["row_id"])


def load_executor(executor: LevelPolicy | Policy | str | Path, scenario: Scenario | str | Path) -> Executor:
    """Load the executor that `executor` names, or wrap a policy as one; also return the seeds of its training scenes.

    Args:
        executor: a name out of :data:`hitmac.agents.baselines.levels.EXECUTORS`, the directory of a run or checkpoint
            (a ``Path`` always is one), ``my_module:MyPolicy``, a :class:`~hitmac.agents.hierarchy.LevelPolicy`, or an
            object with ``predict``. Attributes ``features`` and ``padding`` of an object specify its observation;
            without them it observes :data:`hitmac.envs.PAPER_FEATURES`, ``"attended"``.
        scenario: the scenario to play.

    Raises:
        ValueError: an unknown name, a damaged checkpoint, or a checkpoint of another task.
        TypeError: `executor` is none of these.
    """
    scenario = load_scenario(scenario)
    if isinstance(executor, Path):
        return load_executor_run(executor, scenario)
    if isinstance(executor, str):
        if executor in EXECUTORS:
            return LevelPolicy(scripted_level(EXECUTORS[executor], scenario), EXECUTORS[executor].features), ()
        if Path(executor).is_dir():
            return load_executor_run(executor, scenario)
        if executor.startswith(PREFIX):
            return load_executor_run(pretrained_folder(executor.removeprefix(PREFIX)), scenario)
        if not is_import(executor):
            raise ValueError(
                f"unknown executor {executor!r}{did_you_mean(executor, EXECUTORS)}: known are {', '.join(EXECUTORS)}, "
                "and folders of checkpoints or runs, or MODULE:CLASS"
            )
        executor = import_policy(executor, scenario)
    if isinstance(executor, type) or not callable(getattr(executor, "predict", None)):
        raise TypeError(
            f"executor is {executor!r}; it must be a name, a directory, a LevelPolicy or an object with predict()"
        )
    return LevelPolicy.of(executor), ()


def load_executor_run(path: str | Path, scenario: Scenario | str | Path) -> Executor:
    """Load the executor, and its training seeds, from a run or checkpoint of an executor or a coordinator.

    Args:
        path: directory of any name.
        scenario: the scenario to play.

    Raises:
        FileNotFoundError: the directory holds no checkpoint.
        ValueError: a damaged checkpoint, or a checkpoint of another task.
    """
    scenario = load_scenario(scenario)
    policy, config = load_policy(executor_folder(path), scenario)
    if config.role != "executor":
        raise ValueError(f"{path} was trained for {config.task}; expected an executor")
    return as_level(policy, config, scenario), (config.training_seeds,)


def _named(name: str | Path, scenario: Scenario, executor: Executor | None, nearness: dict[str, Any]) -> Agent:
    """Load the agent of a name or directory."""
    if isinstance(name, Path):
        return load_run(name, scenario, executor=executor, **nearness)
    first, _, rest = name.partition(":")
    if first == "memoryless":
        agent = _named(rest, scenario, executor, nearness)
        policy = Memoryless(agent.policy, agent.features)
        return agent._replace(name=name, policy=policy, features=policy.features)
    if first in SCRIPTED and executor is None and (name == first or "=" in rest):
        scripted = scripted_agent(first, scenario, **read_options(SCRIPTED[first], name))
        return Agent(name, scripted, scripted.features, nearness=scripted.shown(nearness))
    if first in COORDINATORS and not (rest and executor):
        return _assigned(name, scenario, first, executor or load_executor(rest or "scripted", scenario))
    if Path(name).is_dir():
        return load_run(name, scenario, executor=executor, **nearness)
    if executor is None:
        if name.startswith(PREFIX):
            return load_run(pretrained_folder(rest), scenario, name=name, **nearness)
        if first == "released" and (files := halves(rest, _is_net, _is_net) or only_two(rest)):
            return _released(name, scenario, *files)
        if two := halves(name, lambda half: Path(half).is_dir(), _is_executor):
            return load_run(two[0], scenario, name=name, executor=load_executor(two[1], scenario))
        if is_import(name) and not _is_executor(rest):
            return _custom(name, import_policy(name, scenario))._replace(nearness=nearness)
    known = (*SCRIPTED, *COORDINATORS)
    raise ValueError(
        f"unknown agent {name!r}{did_you_mean(first, known)}: known are {', '.join(known)}, folders of checkpoints or "
        f"runs, COORDINATOR:EXECUTOR, {PREFIX}NAME, released:FILE:FILE, MODULE:CLASS and memoryless:NAME"
    )


def _is_executor(name: str) -> bool:
    return name in EXECUTORS or Path(name).is_dir()


def _is_net(name: str) -> bool:
    return name in COORDINATORS or Path(name).is_file()


def _custom(name: str, policy: Any) -> Agent:
    """Make an agent of any object with ``predict``."""
    return Agent(name, policy, declared(policy), trained=has_learned(policy))


def _assigned(name: str, scenario: Scenario, coordinator: str, executor: Executor) -> Agent:
    """Make an agent of a scripted coordinator, by its name, and an executor."""
    rule = scripted_level(COORDINATORS[coordinator], scenario)
    options = {"idle": rule.idle} if hasattr(rule, "idle") else {}
    return _hierarchy(name, scenario, (LevelPolicy(rule, rule.features), ()), executor, **options)


def _hierarchy(
    name: str, scenario: Scenario, coordinator: tuple[LevelPolicy, Seeds], executor: Executor, **options: Any
) -> Agent:
    policy = HierarchicalAgent(scenario, coordinator[0], executor[0], **options)
    seeds = (*coordinator[1], *executor[1])
    return Agent(name, policy, policy.features, seeds, trained=has_learned(policy))


def _released(name: str, scenario: Scenario, coordinator: str, executor: str) -> Agent:
    """Load the released HiT-MAC from the files of its two networks; the coordinator may be a scripted one."""
    net = load_released(executor)
    if not isinstance(net, ReleasedExecutor):
        raise ValueError(f"{executor} is the released coordinator; give the released executor")
    turns = LevelPolicy(ReleasedPolicy(net), PAPER_FEATURES, "attended"), ()
    if coordinator in COORDINATORS:
        return _assigned(name, scenario, coordinator, turns)
    assigns = load_released(coordinator)
    if not isinstance(assigns, ReleasedCoordinator):
        raise ValueError(f"{coordinator} is the released executor; give the released coordinator")
    return _hierarchy(name, scenario, (LevelPolicy(ReleasedPolicy(assigns), PAPER_FEATURES), ()), turns)
