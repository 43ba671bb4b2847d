"""Registry of agents: the grammar of their names, and the agents that names stand for."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

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
    checked_device,
    checkpoint_folder,
    executor_folder,
    load_policy,
    trainings_in,
    variations_in,
)
from hitmac.agents.policy import (
    NEARNESS,
    Memoryless,
    PaddedActions,
    Policy,
    ReleasedPolicy,
    checked_nearness,
    declared,
    has_learned,
)
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.validation import did_you_mean, is_among
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor, load_released

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

_MEMORYLESS = "memoryless:"
_IMPORT = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
_OPTIONS = re.compile(r"(?::[^:=]+=[^:=+]*)+$")
_VALUES = re.compile(r"(?<==)[^:=+/]+(?:/[^:=+/]+)+")


class AgentName(NamedTuple):
    """Name of an agent, taken apart; :func:`load_agent` lists the forms of a name."""

    kind: str
    """``"scripted"``, ``"coordinator"`` (a scripted one), ``"run"``, ``"released"`` or ``"custom"``."""
    source: str
    """Scripted agent or coordinator, directory of a run, file of the released coordinator, or ``MODULE:CLASS``."""
    executor: str = ""
    """Executor of a coordinator; "": its own."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Arguments of a scripted agent's constructor."""
    nearness: Mapping[str, Any] = MappingProxyType({})
    """Options of the observation, :data:`hitmac.agents.policy.NEARNESS`."""
    memoryless: bool = False


def parse_name(name: str | Path) -> AgentName:
    """Take the name of an agent apart; a ``Path`` is always the directory of a run.

    Raises ``ValueError`` for an unknown name (the message lists the known), and for an option that is unknown, has no
    value or is given twice.
    """
    text = str(name)
    if isinstance(name, Path):
        return AgentName("run", text)
    plain, nearness = text.removeprefix(_MEMORYLESS), {}
    if not Path(text).is_dir():
        parts = plain.split(":")
        shown = [part for part in parts if "=" in part and part.partition("=")[0] in NEARNESS]
        nearness = checked_nearness(_options(text, shown, NEARNESS))
        plain = ":".join(part for part in parts if part not in shown)
    return _form(plain)._replace(nearness=nearness, memoryless=text.startswith(_MEMORYLESS))


def _form(name: str) -> AgentName:
    """Take a name apart that has no ``memoryless:`` and no options of the observation."""
    first, *rest = name.split(":")
    halves = [(":".join((first, *rest[:i])), ":".join(rest[i:])) for i in range(len(rest))]
    if first in SCRIPTED and ("=" in name or not rest):
        known = {  # of the constructor and of those of its bases
            option: None
            for kind in SCRIPTED[first].__mro__
            for option, how in inspect.signature(kind.__init__).parameters.items()  # type: ignore[misc]
            if how.default is not how.empty and option != "scenario"
        }
        return AgentName("scripted", first, options=_options(name, rest, known))
    if first in COORDINATORS:
        return AgentName("coordinator", first, ":".join(rest))
    if Path(name).is_dir():
        return AgentName("run", name)
    if name.startswith(PREFIX):
        return AgentName("run", str(pretrained_folder(":".join(rest))))
    if first == "released" and len(rest) == 2:
        return AgentName("released", rest[0], rest[1])
    runs = [two for two in halves if Path(two[0]).is_dir()]
    if known_executor := [two for two in runs if two[1] in EXECUTORS or Path(two[1]).is_dir()]:
        return AgentName("run", *known_executor[0])
    if _IMPORT.fullmatch(name) and rest[0] not in EXECUTORS:
        return AgentName("custom", name)
    if runs and len(rest) == 1:  # an error will name the executor
        return AgentName("run", *runs[0])
    names = (*SCRIPTED, *COORDINATORS)
    raise ValueError(
        f"unknown agent {name!r}{did_you_mean(first, names)}: known are {', '.join(names)}, folders of checkpoints or "
        f"runs, COORDINATOR:EXECUTOR, {PREFIX}NAME, released:FILE:FILE, MODULE:CLASS and {_MEMORYLESS}NAME"
    )


def _options(name: str, given: Iterable[str], known: Iterable[str]) -> dict[str, Any]:
    """Return the options `given` in a name, each ``OPTION=VALUE``, with numbers as numbers."""
    options: dict[str, Any] = {}
    for part in given:
        option, _, text = part.partition("=")
        if option not in known:
            raise ValueError(
                f"unknown option {option!r} in {name}{did_you_mean(option, known)}: known are {', '.join(known)}"
            )
        if not text or option in options:
            raise ValueError(f"{option} in {name} is given {'twice' if option in options else 'without a value'}")
        number = number_of(text)
        options[option] = text if number is None else number
    return options


def number_of(text: str) -> int | float | None:
    """Return the number that a text is; None if it is none."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def split_options(name: str) -> tuple[str, str]:
    """Return an agent's name without the options at its end, its family, and the options; "" without any."""
    found = _OPTIONS.search(name)
    return (name[: found.start()], found[0][1:]) if found else (name, "")


def each_training(name: str) -> list[str]:
    """Return the names of an agent's trainings: of several seeds in one directory, each; else the name alone."""
    left, colon, right = name.partition(":")
    for folder, before, after in ((name, "", ""), (right, left + colon, ""), (left, "", colon + right)):
        if folder and (runs := trainings_in(folder)):
            return [f"{before}{run}{after}" for run in runs]
    return [name]


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
    ``my_module:MyPolicy``         a custom policy, see :func:`import_policy`
    ``memoryless:planner``         any of these, which observes only the targets that are seen now
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
    if not isinstance(agent, str | Path):
        if executor is not None:
            raise ValueError("executor is given; only the name or the directory of a coordinator takes one")
        if isinstance(agent, Agent):
            return agent
        if isinstance(agent, type) or not callable(getattr(agent, "predict", None)):
            raise TypeError(f"agent is {agent!r}; it must be a name, a directory, an Agent or an object with predict()")
        return Agent(type(agent).__name__, agent, declared(agent), trained=has_learned(agent))
    name, text = parse_name(agent), str(agent)
    if executor is not None and (name.kind not in ("coordinator", "run") or name.executor):
        raise ValueError(f"executor is given with {text}, which takes none")
    if name.kind == "scripted":
        scripted = scripted_agent(name.source, scenario, **name.options)
        made = Agent(text, scripted, scripted.features, nearness=scripted.shown(name.nearness))
    elif name.kind == "custom":
        policy = import_policy(name.source, scenario)
        made = Agent(text, policy, declared(policy), trained=has_learned(policy), nearness=name.nearness)
    elif name.kind == "released":
        net = load_released(name.executor)
        if not isinstance(net, ReleasedExecutor):
            raise ValueError(f"{name.executor} is the released coordinator; give the released executor")
        turns = LevelPolicy(ReleasedPolicy(net), PAPER_FEATURES, "attended")
        made = _hierarchy(text, scenario, name.source, (turns, ()))
    else:
        chosen = name.executor or None if executor is None else executor
        level = None if chosen is None else load_executor(chosen, scenario)
        if name.kind == "run":
            made = load_run(name.source, scenario, name=text, executor=level, **name.nearness)
        else:
            made = _hierarchy(text, scenario, name.source, level)
    if name.nearness and not made.nearness:
        given = ", ".join(name.nearness)
        raise ValueError(f"{text} is given {given}; agents with a coordinator are shown all targets")
    if name.memoryless:
        memoryless = Memoryless(made.policy, made.features)
        made = made._replace(policy=memoryless, features=memoryless.features)
    return made


def load_run(
    path: str | Path,
    scenario: Scenario | str | Path,
    *,
    name: str = "",
    executor: Executor | None = None,
    **nearness: Any,
) -> Agent:
    """Load the policy of a run or checkpoint, by default under the name of its directory.

    A coordinator comes with `executor`, or with that of its training. `nearness` and errors are those of
    :func:`~hitmac.agents.load_policy`; also raises ``ValueError`` for a policy that is not a whole agent.
    """
    scenario = load_scenario(scenario)
    policy, config = load_policy(path, scenario, **nearness)
    own = checkpoint_folder(path) / EXECUTOR
    if executor is None and config.role == "coordinator" and own.is_dir():
        executor = load_executor(own, scenario)
    return as_agent(policy, config, scenario, name=name or str(path), executor=executor)


def as_agent(
    policy: Policy, config: PolicyConfig, scenario: Scenario, *, name: str, executor: Executor | None = None
) -> Agent:
    """Make an agent of a trained policy, whose training may still be running; a coordinator gets an executor."""
    seeds: Seeds = (config.training_seeds,)
    if config.role == "coordinator":
        level = LevelPolicy(policy, config.features)
        return _hierarchy(name, scenario, level, executor, seeds, **config.options)
    if executor is not None:
        raise ValueError(f"{name} was trained for {config.task}; only a coordinator takes an executor")
    if config.role == "executor":
        raise ValueError(f"{name} is an executor; name a coordinator too, as in assign-all:{name}")
    agent, features = adapt_policy(policy, config, scenario)
    return Agent(name, agent, features, seeds, trained=True, nearness=config.nearness)


def as_level(policy: Policy, config: PolicyConfig, scenario: Scenario | None = None) -> LevelPolicy:
    """Make a level of the hierarchy of a trained executor, for `scenario`; None: for that of its training."""
    if scenario is not None and config.scenario.decisions != scenario.decisions:
        policy = PaddedActions(policy, config.scenario.decisions, scenario.decisions)
    return LevelPolicy(policy, config.features, config.options["padding"], config.options["row_id"])


def _hierarchy(
    name: str,
    scenario: Scenario,
    coordinator: LevelPolicy | str,
    executor: Executor | None,
    seeds: Seeds = (),
    **options: Any,
) -> Agent:
    """Make an agent of a coordinator, also by the name or file of one, and an executor; None: the scripted one."""
    if isinstance(coordinator, str) and coordinator in COORDINATORS:
        rule = scripted_level(COORDINATORS[coordinator], scenario)
        coordinator, options = LevelPolicy(rule, rule.features), {"idle": rule.idle} if hasattr(rule, "idle") else {}
    elif isinstance(coordinator, str):
        net = load_released(coordinator)
        if not isinstance(net, ReleasedCoordinator):
            raise ValueError(f"{coordinator} is the released executor; give the released coordinator")
        coordinator = LevelPolicy(ReleasedPolicy(net), PAPER_FEATURES)
    turns, executor_seeds = executor or load_executor("scripted", scenario)
    policy = HierarchicalAgent(scenario, coordinator, turns, **options)
    return Agent(name, policy, policy.features, (*seeds, *executor_seeds), trained=has_learned(policy))


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
    if isinstance(executor, str) and executor.startswith(PREFIX):
        executor = pretrained_folder(executor.removeprefix(PREFIX))
    if isinstance(executor, Path) or (
        isinstance(executor, str) and executor not in EXECUTORS and Path(executor).is_dir()
    ):
        policy, config = load_policy(executor_folder(executor), scenario)
        if config.role != "executor":
            raise ValueError(f"{executor} was trained for {config.task}; expected an executor")
        return as_level(policy, config, scenario), (config.training_seeds,)
    if not isinstance(executor, str):
        return LevelPolicy.of(executor), ()
    if executor not in EXECUTORS and not _IMPORT.fullmatch(executor):
        raise ValueError(
            f"unknown executor {executor!r}{did_you_mean(executor, EXECUTORS)}: known are {', '.join(EXECUTORS)}, "
            "and folders of checkpoints or runs, or MODULE:CLASS"
        )
    if executor not in EXECUTORS:
        return LevelPolicy.of(import_policy(executor, scenario)), ()
    rule = scripted_level(EXECUTORS[executor], scenario)
    return LevelPolicy(rule, rule.features), ()


def named_agents(names: str, scenario: Scenario, device: str = "cpu") -> list[Agent]:
    """Load the comma-separated agents `names`, networks on a device; the agents of a group have the group's name.

    ============================== ===========================================================================
    ``planner``                    an agent, see :func:`load_agent`
    ``planner:turn_cost=0.1/0.5``  an agent for each value of an option
    ``runs/x``                     a directory of several seeds: the group of its runs; one of several variations:
                                   a group for each
    ``NAME=runs/a+runs/b``         a group: trainings of one agent
    ============================== ===========================================================================
    """
    agents: dict[tuple[str, str], Agent] = {}
    for several in filter(None, names.split(",")):
        for group, run in _members(several):
            if (key := (group or run, run)) in agents:
                raise ValueError(f"agents has {run} twice{f' in {group}' if group else ''}; leave one out")
            with checked_device(device):
                agent = load_agent(run, scenario)
            agents[key] = agent._replace(name=group, run=run) if group else agent
    if not agents:
        raise ValueError(f"agents is {names!r}; give one or more")
    return [*agents.values()]


def _members(names: str) -> Iterator[tuple[str, str]]:
    """Yield the name of the group, "" for a single agent, and that of the agent, of names without a comma."""
    first = names.partition("+")[0]
    family, options = split_options(first)
    scripted = family.rpartition("=")[2].removeprefix(_MEMORYLESS) in SCRIPTED
    if not scripted and not any(one.partition("=")[0] in NEARNESS for one in options.split(":")):
        family, options = first, ""  # the last = is that of a group
    if (place := family.rfind("=")) >= 0:
        for member in names[place + 1 :].split("+"):
            yield from ((names[:place], run) for run in each_training(member))
        return
    if "+" in names:
        raise ValueError(f"{names!r} joins several trainings without a name; write NAME={names}")
    if options and (values := _VALUES.search(names)):
        each = [names[: values.start()] + one + names[values.end() :] for one in values[0].split("/")]
    else:
        each = [str(path) for path in variations_in(names)] or [names]
    for name in each:
        yield from ((name if run != name else "", run) for run in each_training(name))


def import_policy(name: str, scenario: Scenario) -> Policy:
    """Import the policy ``my_module:MyPolicy`` from the current directory or an installed package.

    A class or function is called with the scenario if it takes one (a parameter of that name, or the only parameter
    without a default), else without arguments. An object with ``predict`` is used as it is.

    Raises:
        ValueError: no such module or class, more than one parameter without a default, or no ``predict``.
    """
    place, _, attribute = name.partition(":")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module exists, and one that it imports does not
        raise ValueError(f"{name}: there is no module {place} here, and none is installed") from None
    if not hasattr(module, attribute):
        raise ValueError(f"{name}: the module {place} has no {attribute}")
    policy: Any = getattr(module, attribute)
    if callable(policy) and (inspect.isclass(policy) or not hasattr(policy, "predict")):
        parameters = inspect.signature(policy).parameters
        several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        needed = [one for one, how in parameters.items() if how.default is how.empty and how.kind not in several]
        if len(needed) > 1:
            raise ValueError(f"{name} requires {', '.join(needed)}; it may require only the scenario")
        policy = policy(**dict.fromkeys(needed or {"scenario"} & parameters.keys(), scenario))
    if not callable(getattr(policy, "predict", None)):
        raise ValueError(f"{name} is {policy!r}, which has no predict(); it must be a class or an object with it")
    return policy
