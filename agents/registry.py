"""Registry of agents: the grammar of their names."""

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from hitmac.agents.baselines import planner, rules
from hitmac.agents.baselines.exact import ExactAgent
from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS, scripted_level
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned import checkpoint
from hitmac.agents.learned.beliefs import BeliefPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig
from hitmac.agents.policy import (
    NEARNESS,
    Memoryless,
    PaddedActions,
    Policy,
    Rates,
    ReleasedPolicy,
    RuleAgent,
    checked_nearness,
    declared,
    has_learned,
)
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.tracking.beliefs import shown_to_beliefs
from hitmac.agents.tracking.features import BELIEFS
from hitmac.envs.observation import PAPER_FEATURES, DetectionObserver
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.validation import convert, did_you_mean, is_among
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor, load_released

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

_MEMORYLESS = "memoryless:"
_OPTIONS = re.compile(r"(?::[^:=]+=[^:=+]*)+$")
_IMPORT = re.compile(rf"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)(?:{_OPTIONS.pattern})?")
_VALUES = re.compile(r"(?<==)[-.\de]+(?:/[-.\de]+)+(?=:|$)")


def parse_name(name: str | Path) -> tuple[str | Path, str, dict[str, Any]]:
    """Parse the name of an agent, without ``memoryless:``; :func:`load_agent` lists the forms of a name.

    Returns:
        The directory of a run, as a ``Path``, or the name of another agent; the executor of a coordinator, "" for its
        own; and options of the observation, :data:`hitmac.agents.policy.NEARNESS`.
    """
    if isinstance(name, Path):
        return name, "", {}
    if Path(name).is_dir() and not {name.partition(":")[0]} & {*SCRIPTED, *COORDINATORS}:
        return Path(name), "", {}
    parts = name.removeprefix(_MEMORYLESS).split(":")
    shown = [part for part in parts if "=" in part and part.partition("=")[0] in NEARNESS]
    nearness = checked_nearness(_options(name, shown, dict.fromkeys(NEARNESS)))
    first, *rest = parts = [part for part in parts if part not in shown]
    whole, after = ":".join(parts), ":".join(rest)
    if first in COORDINATORS:
        return first, after, nearness
    if f"{first}:" == PREFIX:
        return pretrained_folder(after), "", nearness
    if first not in SCRIPTED:
        halves = [(Path(":".join(parts[:i])), ":".join(parts[i:])) for i in range(1, len(parts) + 1)]
        runs = [(folder, executor) for folder, executor in halves if folder.is_dir()]
        known = [two for two in runs if not two[1] or two[1] in EXECUTORS or Path(two[1]).is_dir()]
        if known or (len(rest) == 1 and runs and not _IMPORT.fullmatch(whole)):
            return *(known or runs)[0], nearness
    return whole, "", nearness


def _options(name: str, given: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
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
    return _options(name, given, known)


def number_of(text: str) -> int | float | None:
    """Return the number in a text; None if it is none."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def split_options(name: str) -> tuple[str, str]:
    """Return the family of an agent, its name without options, and the options; "" without any."""
    found = _OPTIONS.search(name)
    return (name[: found.start()], found[0][1:]) if found else (name, "")


def each_training(name: str) -> list[str]:
    """Return the names of all seeds in a directory of several trainings; for any other agent its name alone."""
    left, colon, right = name.partition(":")
    for folder, before, after in ((name, "", ""), (right, left + colon, ""), (left, "", colon + right)):
        if folder and (runs := checkpoint.trainings_in(folder)):
            return [f"{before}{run}{after}" for run in runs]
    return [name]


class Agent(NamedTuple):
    """Policy with its name, features and training metadata."""

    name: str
    policy: Policy
    features: tuple[str, ...]
    """Observation features of the policy."""
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


def load_agent(agent: Agent | Policy | str | Path, scenario: Scenario | str | Path, *, executor: Any = None) -> Agent:
    """Load an agent by name, or wrap a policy as an agent.

    ============================== ===========================================================================
    ``planner``                    scripted agent, see :data:`SCRIPTED`
    ``planner:turn_cost=0.5``      the same with options of its constructor, each after a colon
    ``runs/x``                     policy of a run or checkpoint; a coordinator comes with its executor
    ``assign-all``                 scripted coordinator with the scripted executor
    ``assign-all:runs/x``          the same with the executor of a run (or of a coordinator's run)
    ``runs/x:scripted``            trained coordinator with another executor
    ``pretrained:flat``            policy that comes with the package, see :mod:`hitmac.agents.pretrained`
    ``released:C.pth:E.pth``       released HiT-MAC, from its files of coordinator and executor
    ``released:assign-all:E.pth``  scripted coordinator with the released executor
    ``mate:greedy``                MATE's rule for the sensors of a duel: also ``random``, ``naive``, ``heuristic``
    ``my_module:MyPolicy:seed=1``  custom policy, here with an option, see :func:`import_policy`
    ``memoryless:planner``         any of these, observing only the targets in sight
    ``planner:nearest=16``         agent that turns all sensors, observing the 16 nearest targets of each; also
                                   ``radius=40``, their largest distance, and ``neighbours=8``
    ============================== ===========================================================================

    A ``Path`` is always a directory; a string only if it has none of these forms, such as ``./planner``. Any object
    with ``predict`` is an agent. It observes the features of its attribute ``features``, or
    :data:`hitmac.envs.DEFAULT_FEATURES` without one.

    Args:
        agent: a name, a directory, a policy, or an :class:`Agent`, which is returned unchanged.
        scenario: scenario to play: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or the path of a file.
        executor: executor for a coordinator, as accepted by :func:`load_executor`; None: the coordinator's own.

    Raises:
        ValueError: an unknown name (the message lists the known ones), a damaged checkpoint, or a checkpoint of
            another task.
        FileNotFoundError: the name is a path, without a directory.
        TypeError: an agent of another type, or an option of another type.
    """
    scenario = load_scenario(scenario)
    made = _load(agent, scenario, executor)
    if isinstance(made.policy, RuleAgent):
        return made
    if scenario.action == "rate":
        made = made._replace(policy=Rates(made.policy, scenario))
    if scenario.identities or made.features == DetectionObserver.features:
        return made
    if made.nearness:
        raise ValueError(
            f"{made.name} is given {', '.join(made.nearness)}; without identities agents observe all tracks"
        )
    tracking = BeliefPolicy(made.policy, scenario, made.features)
    return made._replace(policy=tracking, features=tracking.features)


def _load(agent: Agent | Policy | str | Path, scenario: Scenario, executor: Any) -> Agent:
    """Load an agent as :func:`load_agent` does; its features may be those of targets with identities."""
    if not isinstance(agent, str | Path):
        if executor is not None:
            raise ValueError("executor is given; only the name or the directory of a coordinator takes one")
        if isinstance(agent, Agent):
            return agent
        if isinstance(agent, type) or not callable(getattr(agent, "predict", None)):
            raise TypeError(f"agent is {agent!r}; it must be a name, a directory, an Agent or an object with predict()")
        return _custom(type(agent).__name__, agent)
    name = str(agent)
    if isinstance(agent, str) and name.startswith(_MEMORYLESS):
        whole = _load(name.removeprefix(_MEMORYLESS), scenario, executor)
        memoryless = Memoryless(whole.policy, whole.features)
        return whole._replace(name=name, policy=memoryless, features=memoryless.features)
    source, own, nearness = parse_name(agent)
    coordinates = isinstance(source, Path) or source in COORDINATORS
    if executor is not None and (own or not coordinates):
        raise ValueError(f"executor is given with {name}, which takes none")
    executor = own or None if executor is None else executor
    level = None if executor is None else load_executor(executor, scenario)
    first, *rest = str(source).split(":")
    if isinstance(source, Path):
        made = load_run(source, scenario, name=name, executor=level, **nearness)
    elif coordinates:
        rule = scripted_level(COORDINATORS[source], scenario)
        idle = {"idle": rule.idle} if hasattr(rule, "idle") else {}
        made = _hierarchy(name, scenario, LevelPolicy(rule, rule.features), level, **idle)
    elif first in SCRIPTED:
        scripted = scripted_agent(str(source), scenario)
        made = Agent(name, scripted, scripted.features, nearness=scripted.shown(nearness))
    elif first == "released" and len(rest) == 2:
        made = _released(name, scenario, *rest)
    elif first == "mate" and len(rest) == 1:
        if not scenario.warehouses:
            raise ValueError(f"{name} plays scenarios with warehouses, such as mate-4v8-9; got {scenario.name}")
        made = _custom(name, RuleAgent("sensors", *rest))
    elif _IMPORT.fullmatch(source) and rest[0] not in EXECUTORS:
        made = _custom(name, import_policy(source, scenario))._replace(nearness=nearness)
    elif "/" in first:
        raise FileNotFoundError(f"no such directory: {name}")
    else:
        names = (*SCRIPTED, *COORDINATORS)
        raise ValueError(
            f"unknown agent {name!r}{did_you_mean(first, names)}: known are {', '.join(names)}, folders of checkpoints "
            f"or runs, COORDINATOR:EXECUTOR, {PREFIX}NAME, mate:RULE, released:FILE:FILE, MODULE:CLASS and "
            f"{_MEMORYLESS}NAME"
        )
    if nearness and not made.nearness:
        raise ValueError(f"{name} is given {', '.join(nearness)}; agents with a coordinator observe all targets")
    return made


def _custom(name: str, policy: Any) -> Agent:
    """Return an agent for any object with ``predict``."""
    return Agent(name, policy, declared(policy), trained=has_learned(policy))


def _released(name: str, scenario: Scenario, coordinator: str, executor: str) -> Agent:
    """Load the released HiT-MAC from the files of its two networks; the coordinator may be scripted."""
    net = load_released(executor)
    if not isinstance(net, ReleasedExecutor):
        raise ValueError(f"{executor} is the released coordinator; give the released executor")
    level = LevelPolicy(ReleasedPolicy(net), PAPER_FEATURES, "attended")
    if coordinator in COORDINATORS:
        return load_agent(coordinator, scenario, executor=level)._replace(name=name)
    assigns = load_released(coordinator)
    if not isinstance(assigns, ReleasedCoordinator):
        raise ValueError(f"{coordinator} is the released executor; give the released coordinator")
    return _hierarchy(name, scenario, LevelPolicy(ReleasedPolicy(assigns), PAPER_FEATURES), level)


def _hierarchy(
    name: str, scenario: Scenario, coordinator: LevelPolicy, executor: LevelPolicy | None, **options: Any
) -> Agent:
    """Return an agent of a coordinator and an executor; None: the scripted executor."""
    executor = executor or load_executor("scripted", scenario)
    policy = HierarchicalAgent(scenario, coordinator, executor, **options)
    seeds = (*coordinator.training_seeds, *executor.training_seeds)
    return Agent(name, policy, policy.features, seeds, trained=has_learned(policy))


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
        executor = load_executor(own, scenario)
    return as_agent(policy, config, scenario, name=name or str(path), executor=executor)


def as_agent(
    policy: Policy, config: PolicyConfig, scenario: Scenario, *, name: str, executor: LevelPolicy | None = None
) -> Agent:
    """Return an agent for a trained policy, whose training may still run; a coordinator is given an executor."""
    seeds = (config.training_seeds,)
    if config.role == "coordinator":
        level = LevelPolicy(policy, config.features, training_seeds=seeds)
        return _hierarchy(name, scenario, level, executor, **config.options)
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
    if scenario is not None and config.scenario.decisions != scenario.decisions:
        policy = PaddedActions(policy, config.scenario.decisions, scenario.decisions)
    padding, row_id = config.options["padding"], config.options["row_id"]
    return LevelPolicy(policy, config.features, padding, row_id, (config.training_seeds,))


def load_executor(executor: LevelPolicy | Policy | str | Path, scenario: Scenario | str | Path) -> LevelPolicy:
    """Load an executor by name, or wrap a policy as one.

    Args:
        executor: a name in :data:`hitmac.agents.baselines.levels.EXECUTORS`, the directory of a run or checkpoint
            (always, for a ``Path``), ``my_module:MyPolicy``, a :class:`~hitmac.agents.hierarchy.LevelPolicy`, or an
            object with ``predict``. Attributes ``features`` and ``padding`` of an object specify its observation;
            without them it observes :data:`hitmac.envs.PAPER_FEATURES`, ``"attended"``.
        scenario: scenario to play.

    Raises:
        ValueError: an unknown name, a damaged checkpoint, or a checkpoint of another task.
        FileNotFoundError: the name is a path, without a directory.
        TypeError: an executor of another type.
    """
    scenario = load_scenario(scenario)
    if is_among(executor, EXECUTORS):
        rule = scripted_level(EXECUTORS[str(executor)], scenario)
        return LevelPolicy(rule, rule.features)
    if isinstance(executor, str) and executor.startswith(PREFIX):
        executor = pretrained_folder(executor.removeprefix(PREFIX))
    if isinstance(executor, Path) or (isinstance(executor, str) and Path(executor).is_dir()):
        policy, config = checkpoint.load_policy(checkpoint.executor_folder(executor), scenario)
        if config.role != "executor":
            raise ValueError(f"{executor} was trained for {config.task}; expected an executor")
        return as_level(policy, config, scenario)
    if isinstance(executor, str) and not _IMPORT.fullmatch(executor):
        if "/" in executor:
            raise FileNotFoundError(f"no such directory: {executor}")
        raise ValueError(
            f"unknown executor {executor!r}{did_you_mean(executor, EXECUTORS)}: known are {', '.join(EXECUTORS)}, "
            "and folders of checkpoints or runs, or MODULE:CLASS"
        )
    return LevelPolicy.of(import_policy(executor, scenario) if isinstance(executor, str) else executor)


def named_agents(names: str | Sequence[str], scenario: Scenario, device: str = "cpu") -> list[Agent]:
    """Load the agents `names`, networks on a device; the agents of a group have the group's name.

    `names` is a comma-separated text, or several of them.

    ============================== ===========================================================================
    ``planner``                    agent, see :func:`load_agent`
    ``planner:turn_cost=0.1/0.5``  an agent for each value of an option
    ``runs/x``                     directory of several seeds: a group of its runs; of several variations: a group
                                   for each
    ``NAME=runs/a+runs/b``         group: trainings of one agent, also of a custom one
    ============================== ===========================================================================
    """
    names = names if isinstance(names, str) else ",".join(names)
    agents: dict[tuple[str, str], Agent] = {}
    for several in filter(None, map(str.strip, names.split(","))):
        members = [*_members(several)]
        for group, run in members:
            if (key := (group or run, run)) in agents:
                raise ValueError(f"agents has {run} twice{f' in {group}' if group else ''}; leave one out")
            with checkpoint.checked_device(device):
                agent = load_agent(run, scenario)
            trained = agent.trained or (len(members) > 1 and _is_custom(run))
            agents[key] = agent._replace(name=group, run=run, trained=trained) if group else agent
    if not agents:
        raise ValueError(f"agents is {names!r}; give one or more")
    return [*agents.values()]


def named_agent(names: str | Sequence[str], scenario: Scenario) -> Agent:
    """Load the agent `names`, which must be a single one; see :func:`named_agents`."""
    first, *others = named_agents(names, scenario)
    if others:
        raise ValueError(f"agents has {1 + len(others)}: {first.run or first.name}, ...; give a single one")
    return first


def _members(names: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the group, "" for a single agent, and of the agent, in a text without commas."""
    first = names.partition("+")[0]
    family, options = split_options(first)
    agent = family.rpartition("=")[2]
    shown = any(one.partition("=")[0] in NEARNESS for one in options.split(":"))
    if not (agent.removeprefix(_MEMORYLESS) in SCRIPTED or _is_custom(agent) or shown):
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
        each = [str(path) for path in checkpoint.variations_in(names)] or [names]
    for name in each:
        yield from ((name if run != name else "", run) for run in each_training(name))


def _is_custom(name: str) -> bool:
    """Return True for ``MODULE:CLASS``, also memoryless, or as the executor of a scripted coordinator."""
    name = name.removeprefix(_MEMORYLESS)
    first, _, rest = name.partition(":")
    return f"{first}:" != PREFIX and bool(_IMPORT.fullmatch(rest if first in COORDINATORS else name))


def import_policy(name: str, scenario: Scenario) -> Policy:
    """Import the policy ``my_module:MyPolicy`` from the current directory or an installed package.

    A class or function is called, with the scenario if it has a parameter `scenario`, and with the options of a name
    such as ``my_module:MyPolicy:seed=1``, converted to the annotated types of its parameters; an object with
    ``predict`` is used unchanged. Raises ``ValueError`` for an unknown module, class or option, or a class without
    ``predict``, and ``TypeError`` for an option of another type.
    """
    place, attribute, *given = name.split(":")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its imports does not
        raise ValueError(f"{name}: no module {place} in the current directory, nor installed") from None
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
    options = _options(name, given, hints)
    if made:
        policy = policy(**({"scenario": scenario} if "scenario" in parameters else {}), **options)
    if not callable(getattr(policy, "predict", None)):
        raise ValueError(f"{name} is {policy!r}, which has no predict(); it must be a class or an object with it")
    return policy
