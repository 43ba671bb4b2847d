"""Registry of agents: the grammar of their names, and the agents that names stand for."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from hitmac.envs.validation import convert, did_you_mean, is_among
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

_WORDS = {"none": None, "true": True, "false": False}
_MEMORYLESS = "memoryless:"
_IMPORT = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
_OPTIONS = re.compile(r"(?::[^:=]+=[^:=+]*)+$")
_VALUES = re.compile(r"(?<==)[^:=+/]+(?:/[^:=+/]+)+")


@dataclass(frozen=True)
class AgentName:
    """Name of an agent, taken apart; :func:`load_agent` lists the forms of a name."""

    text: str
    """The whole name."""
    kind: str
    """``"scripted"``, ``"coordinator"`` (a scripted one), ``"run"``, ``"released"`` or ``"custom"``."""
    source: str
    """Scripted agent or coordinator, directory of a run, file of the released coordinator, or ``MODULE:CLASS``."""
    executor: str = ""
    """Executor of a coordinator; "": its own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of a scripted agent's constructor."""
    nearness: Mapping[str, Any] = field(default_factory=dict)
    """Options of the observation, :data:`hitmac.agents.policy.NEARNESS`."""
    memoryless: bool = False


def parse_name(name: str | Path) -> AgentName:
    """Take the name of an agent apart; a ``Path`` is always the directory of a run.

    Raises:
        ValueError: an unknown name (the message lists the known), or an option that is unknown, has no value, is given
            twice or out of its range.
        TypeError: an option of another type.
    """
    text, nearness = str(name), {}
    if isinstance(name, Path):
        return AgentName(text, "run", text)
    memoryless, plain = text.startswith(_MEMORYLESS), text.removeprefix(_MEMORYLESS)
    if not Path(text).is_dir():
        parts = plain.split(":")
        shown = [part for part in parts if "=" in part and part.partition("=")[0] in NEARNESS]
        nearness = checked_nearness(_options(text, shown, NEARNESS)) if shown else {}
        plain = ":".join(part for part in parts if part not in shown)
    kind, source, executor, options = _form(plain)
    return AgentName(text, kind, source, executor, options, nearness, memoryless)


def _form(name: str) -> tuple[str, str, str, dict[str, Any]]:
    """Return kind, source, executor and options of a name without ``memoryless:`` and options of the observation."""
    first, _, rest = name.partition(":")
    if first in SCRIPTED and (name == first or "=" in rest):
        return "scripted", first, "", _options(name, name.split(":")[1:], _options_of(SCRIPTED[first]))
    if first in COORDINATORS:
        return "coordinator", first, rest, {}
    if Path(name).is_dir():
        return "run", name, "", {}
    if name.startswith(PREFIX):
        return "run", str(pretrained_folder(rest)), "", {}
    if first == "released":
        files = _halves(rest)
        if found := [two for two in files if _is_net(two[0]) and _is_net(two[1])] or files[: len(files) == 1]:
            return "released", *found[0], {}
    runs = [two for two in _halves(name) if Path(two[0]).is_dir()]
    if found := [two for two in runs if _is_executor(two[1])]:
        return "run", *found[0], {}
    if _IMPORT.fullmatch(name):
        if not _is_executor(rest):
            return "custom", name, "", {}
    elif runs and name.count(":") == 1:  # an error will name the executor
        return "run", *runs[0], {}
    known = (*SCRIPTED, *COORDINATORS)
    raise ValueError(
        f"unknown agent {name!r}{did_you_mean(first, known)}: known are {', '.join(known)}, folders of checkpoints or "
        f"runs, COORDINATOR:EXECUTOR, {PREFIX}NAME, released:FILE:FILE, MODULE:CLASS and {_MEMORYLESS}NAME"
    )


def _halves(name: str) -> list[tuple[str, str]]:
    """Return the two parts of a name, for each of its colons."""
    return [(name[:place], name[place + 1 :]) for place, letter in enumerate(name) if letter == ":"]


def _is_executor(name: str) -> bool:
    return name in EXECUTORS or Path(name).is_dir()


def _is_net(name: str) -> bool:
    return name in COORDINATORS or Path(name).is_file()


def _options(name: str, given: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options `given` in a name, each ``OPTION=VALUE``, with the types that are known of them."""
    options: dict[str, Any] = {}
    for part in given:
        option, equals, text = part.partition("=")
        if option not in known:
            raise ValueError(
                f"unknown option {option!r} in {name}{did_you_mean(option, known)}: known are {', '.join(known)}"
            )
        if not (equals and text) or option in options:
            raise ValueError(f"{option} in {name} is given {'twice' if option in options else 'without a value'}")
        number = number_of(text)
        options[option] = convert(option, known[option], _WORDS.get(text, text) if number is None else number)
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


def parse_names(names: str) -> list[tuple[str, list[str]]]:
    """Return the comma-separated agents `names`: the name of each group, "" for a single agent, and its members.

    ============================== ===========================================================================
    ``planner:turn_cost=0.1/0.5``  an agent for each value of an option
    ``runs/x``                     a directory of several seeds: the group of its runs; one of several variations:
                                   a group for each
    ``NAME=runs/a+runs/b``         a group: trainings of one agent
    ============================== ===========================================================================
    """
    groups: list[tuple[str, list[str]]] = []
    for several in filter(None, names.split(",")):
        first = several.partition("+")[0]
        family, options = split_options(first)
        scripted = family.rpartition("=")[2].removeprefix(_MEMORYLESS) in SCRIPTED
        if not scripted and not any(one.partition("=")[0] in NEARNESS for one in options.split(":")):
            family, options = first, ""  # the last = is that of a group
        place = family.rfind("=")
        if place >= 0:
            members = several[place + 1 :].split("+")
            groups.append((several[:place], [run for one in members for run in each_training(one)]))
            continue
        if "+" in several:
            raise ValueError(f"{several!r} joins several trainings without a name; write NAME={several}")
        values = _VALUES.search(several) if options else None
        before, after = (several[: values.start()], several[values.end() :]) if values else ("", "")
        each = [before + one + after for one in values[0].split("/")] if values else map(str, variations_in(several))
        for name in [*each] or [several]:
            runs = each_training(name)
            groups.append((name if runs != [name] else "", runs))
    return groups


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
    if isinstance(agent, str | Path):
        name = parse_name(agent)
        if executor is not None and (name.kind not in ("coordinator", "run") or name.executor):
            raise ValueError(f"executor is given with {name.text}, which takes none")
        return _named(name, scenario, name.executor or None if executor is None else executor)
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
    """Load the policy of a run or checkpoint, by default under the name of its directory.

    A coordinator comes with `executor`, or with that of its training. The options `nearness` are those of
    :func:`~hitmac.agents.load_policy`. Raises ``FileNotFoundError`` without a checkpoint, ``ValueError`` for a damaged
    one, or one of a task that is not a whole agent.
    """
    scenario, name = load_scenario(scenario), str(path) if name is None else name
    policy, config = load_policy(path, scenario, **nearness)
    own = checkpoint_folder(path) / EXECUTOR
    if executor is None and config.role == "coordinator" and own.is_dir():
        executor = load_executor(own, scenario)
    return as_agent(policy, config, scenario, name=name, executor=executor)


def as_agent(
    policy: Policy, config: PolicyConfig, scenario: Scenario, *, name: str, executor: Executor | None = None
) -> Agent:
    """Make an agent of a trained policy, whose training may still be running, and its metadata.

    A coordinator gets `executor`, or the scripted one. Raises ``ValueError`` if the policy is an executor, or if
    `executor` is given and the policy is not a coordinator.
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
        policy = PaddedActions(policy, config.scenario.decisions, scenario.decisions)
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
    if isinstance(executor, str) and executor in EXECUTORS:
        rule = scripted_level(EXECUTORS[executor], scenario)
        return LevelPolicy(rule, rule.features), ()
    if isinstance(executor, str) and executor.startswith(PREFIX):
        executor = pretrained_folder(executor.removeprefix(PREFIX))
    if isinstance(executor, Path) or (isinstance(executor, str) and Path(executor).is_dir()):
        policy, config = load_policy(executor_folder(executor), scenario)
        if config.role != "executor":
            raise ValueError(f"{executor} was trained for {config.task}; expected an executor")
        return as_level(policy, config, scenario), (config.training_seeds,)
    if isinstance(executor, str):
        if not _IMPORT.fullmatch(executor):
            raise ValueError(
                f"unknown executor {executor!r}{did_you_mean(executor, EXECUTORS)}: known are {', '.join(EXECUTORS)}, "
                "and folders of checkpoints or runs, or MODULE:CLASS"
            )
        executor = import_policy(executor, scenario)
    return LevelPolicy.of(executor), ()


def _named(name: AgentName, scenario: Scenario, executor: Any) -> Agent:
    """Load the agent of a name, with an executor in place of its own unless it is None."""
    turns = None if executor is None or name.kind == "released" else load_executor(executor, scenario)
    if name.kind == "scripted":
        scripted = scripted_agent(name.source, scenario, **name.options)
        agent = Agent(name.text, scripted, scripted.features, nearness=scripted.shown(dict(name.nearness)))
    elif name.kind == "coordinator":
        agent = _assigned(name.text, scenario, name.source, turns or load_executor("scripted", scenario))
    elif name.kind == "run":
        agent = load_run(name.source, scenario, name=name.text, executor=turns, **name.nearness)
    elif name.kind == "released":
        agent = _released(name.text, scenario, name.source, name.executor)
    else:
        agent = _custom(name.text, import_policy(name.source, scenario))._replace(nearness=name.nearness)
    if name.nearness and not agent.nearness:
        given = ", ".join(name.nearness)
        raise ValueError(f"{name.text} is given {given}; agents with a coordinator are shown all targets")
    if name.memoryless:
        policy = Memoryless(agent.policy, agent.features)
        agent = agent._replace(policy=policy, features=policy.features)
    return agent


def named_agents(names: str, scenario: Scenario, device: str = "cpu") -> list[Agent]:
    """Load the comma-separated agents `names`, see :func:`parse_names`, networks on a device.

    The agents of a group have the group's name.
    """
    agents, given = [], set()
    for group, runs in parse_names(names):
        for run in runs:
            if (group or run, run) in given:
                raise ValueError(f"agents has {run} twice{f' in {group}' if group else ''}; leave one out")
            given.add((group or run, run))
            with checked_device(device):
                agent = load_agent(run, scenario)
            agents.append(agent._replace(name=group, run=run) if group else agent)
    if not agents:
        raise ValueError(f"agents is {names!r}; give one or more")
    return agents


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


def import_policy(name: str, scenario: Scenario) -> Policy:
    """Import the policy ``my_module:MyPolicy`` from the current directory or an installed package.

    A class or function is called with the scenario if it takes one (a parameter of that name, or the only parameter
    without a default), else without arguments. An object with ``predict`` is used as it is.

    Raises:
        ValueError: no such module or class, more than one parameter without a default, or no ``predict``.
    """
    found = _IMPORT.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not a policy to import; it must have the form my_module:MyPolicy")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(found[1])
    except ModuleNotFoundError as error:
        if error.name is None or not (found[1] == error.name or found[1].startswith(f"{error.name}.")):
            raise  # the module exists, and one that it imports does not
        raise ValueError(f"{name}: there is no module {found[1]} here, and none is installed") from None
    if not hasattr(module, found[2]):
        raise ValueError(f"{name}: the module {found[1]} has no {found[2]}")
    policy: Any = getattr(module, found[2])
    if inspect.isclass(policy) or not hasattr(policy, "predict"):
        if not callable(policy):
            raise ValueError(f"{name} is {policy!r}; it must be a class or an object with predict()")
        parameters = inspect.signature(policy).parameters
        several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        needed = [one for one, how in parameters.items() if how.default is how.empty and how.kind not in several]
        if len(needed) > 1:
            raise ValueError(f"{name} requires {', '.join(needed)}; it may require only the scenario")
        policy = policy(**dict.fromkeys(needed or {"scenario"} & parameters.keys(), scenario))
    if not callable(getattr(policy, "predict", None)):
        raise ValueError(f"{name} is {policy!r}, which has no predict()")
    return policy
