"""Names of agents, executors and players: one grammar, with a table of the forms and their loaders.

:func:`parse` reads a single name, :func:`named_agents` a list of names, and :func:`members_of` a population.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hitmac.agents import registry
from hitmac.agents.duel import Player, Population, SensorPlayer, TargetPlayer
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned import checkpoint
from hitmac.agents.learned.beliefs import BeliefPolicy
from hitmac.agents.learned.group import load_group_policy
from hitmac.agents.planning.evader import EvaderAgent
from hitmac.agents.planning.levels import COORDINATORS, EXECUTORS, scripted_level
from hitmac.agents.policy import NEARNESS, Memoryless, Policy, Rates, ReleasedPolicy, RuleAgent, checked_nearness
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.registry import SCRIPTED, Agent
from hitmac.envs.files import read_text
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.parts.game import RULES, RulePlayer
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.validation import did_you_mean
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor, load_released

GROUP = "benchmarl:"
"""Prefix of policies of :mod:`hitmac.agents.learned.group`."""

POPULATION = "population.json"
"""File of a directory of ``hitmac train duel`` with the agents of both teams and their weights."""

_MEMORYLESS = "memoryless:"
_OPTIONS = r"(?::[^:=]+=[^:=+]*)+"
_IMPORT = rf"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:{_OPTIONS})?"
_VALUES = re.compile(r"(?<==)[-.\de]+(?:/[-.\de]+)+(?=:|$)")
_WEIGHTED = re.compile(r"(.+?)=(\d+\.?\d*|\.\d+)(?:\+|$)")


class Form(NamedTuple):
    """Form of a name; ``None`` as its pattern stands for the directory of a run."""

    words: str  # in error messages
    pattern: str | None  # of a whole name, with a group for each part
    load: Callable[["Name", Scenario, LevelPolicy | None], Any]
    takes_executor: bool = False


class Name(NamedTuple):
    """Name of one agent, taken apart."""

    text: str
    form: Form
    parts: tuple[Any, ...]
    """Groups of the form's pattern, or the directory of a run, as a ``Path``."""
    executor: str = ""
    """Executor of a coordinator; "" for its own."""
    nearness: Mapping[str, Any] = MappingProxyType({})
    """Options of the observation, :data:`hitmac.agents.policy.NEARNESS`."""
    memoryless: bool = False


# Loaders, for a scenario, with the executor of a coordinator; None: its own.


def _load_scripted(name: Name, scenario: Scenario, _: Any) -> Agent:
    scripted = registry.scripted_agent(name.parts[0], scenario)
    return Agent(name.text, scripted, scripted.features, nearness=scripted.shown(name.nearness))


def _load_coordinator(name: Name, scenario: Scenario, executor: LevelPolicy | None) -> Agent:
    rule = scripted_level(COORDINATORS[name.parts[0]], scenario)
    options = {option: getattr(rule, option) for option in ("idle", "decision") if hasattr(rule, option)}
    return registry.as_hierarchy(name.text, scenario, LevelPolicy(rule, rule.features), executor, **options)


def _load_run(name: Name, scenario: Scenario, executor: LevelPolicy | None) -> Agent:
    return registry.load_run(name.parts[0], scenario, name=name.text, executor=executor, **name.nearness)


def _load_released(name: Name, scenario: Scenario, _: Any) -> Agent:
    """Load the released HiT-MAC from the files of its two networks; the coordinator may be scripted."""
    coordinator, executor = name.parts
    net = load_released(executor)
    if not isinstance(net, ReleasedExecutor):
        raise ValueError(f"{executor} is the released coordinator; give the released executor")
    level = LevelPolicy(ReleasedPolicy(net), PAPER_FEATURES, "attended")
    if coordinator in COORDINATORS:
        return load_agent(coordinator, scenario, executor=level)._replace(name=name.text)
    assigns = load_released(coordinator)
    if not isinstance(assigns, ReleasedCoordinator):
        raise ValueError(f"{coordinator} is the released executor; give the released coordinator")
    return registry.as_hierarchy(name.text, scenario, LevelPolicy(ReleasedPolicy(assigns), PAPER_FEATURES), level)


def _load_mate(name: Name, scenario: Scenario, _: Any) -> Agent:
    if not scenario.is_game:
        raise ValueError(f"{name.text} requires a scenario with warehouses, such as mate-4v8-9; got {scenario.name}")
    return registry.as_custom(name.text, RuleAgent("sensors", name.parts[0]), scenario)


def _load_group(name: Name, scenario: Scenario, _: Any) -> Agent:
    policy = load_group_policy(name.parts[0], scenario)
    return Agent(name.text, policy, policy.features, (policy.training_seeds,), trained=True)


def _load_import(name: Name, scenario: Scenario, _: Any) -> Agent:
    policy = registry.import_policy(name.parts[0], scenario)
    return registry.as_custom(name.text, policy, scenario)._replace(nearness=name.nearness)


def _load_targets(name: Name, scenario: Scenario, _: Any) -> Player:
    policy, config = checkpoint.load_policy(name.parts[0], scenario)
    if config.role != "targets":
        raise ValueError(f"{name.text} was trained for {config.task}; expected a policy of targets")
    return TargetPlayer(policy, scenario)


def _load_evader(name: Name, scenario: Scenario, _: Any) -> Player:
    options = name.parts[0].split(":")[1:]
    return EvaderAgent(scenario, **registry.constructor_options(name.text, options, EvaderAgent))


def _one_of(names: Collection[str], after: str = "") -> tuple[str, str]:
    """Return words and pattern of a form that begins with one of `names`."""
    return ", ".join(names), f"((?:{'|'.join(names)}){after})"


_RUNS = "folders of checkpoints or runs"
FORMS = {
    "agent": (
        Form(*_one_of(SCRIPTED, "(?::.*)?"), _load_scripted),
        Form(*_one_of(COORDINATORS), _load_coordinator, takes_executor=True),
        Form("COORDINATOR:EXECUTOR", rf"({'|'.join(COORDINATORS)}):(?P<executor>.*)", _load_coordinator, True),
        Form(f"{PREFIX}NAME", f"{PREFIX}(.*)", _load_run, takes_executor=True),
        Form(_RUNS, None, _load_run, takes_executor=True),
        Form("mate:RULE", "mate:([^:]*)", _load_mate),
        Form("released:FILE:FILE", "released:([^:]*):([^:]*)", _load_released),
        Form(f"{GROUP}FOLDER", f"{GROUP}(.*)", _load_group),
        Form("MODULE:CLASS", rf"(?![\w.]*:(?:{'|'.join(EXECUTORS)})(?::|$))({_IMPORT})", _load_import),
    ),
    "executor": (
        Form(*_one_of(EXECUTORS), lambda name, scenario, _: registry.scripted_executor(scenario, name.parts[0])),
        Form(f"{PREFIX}NAME", f"{PREFIX}(.*)", lambda name, scenario, _: registry.load_level(name.parts[0], scenario)),
        Form(_RUNS, None, lambda name, scenario, _: registry.load_level(name.parts[0], scenario)),
        Form("MODULE:CLASS", f"({_IMPORT})", lambda name, *given: LevelPolicy.of(_load_import(name, *given).policy)),
    ),
    "team of targets": (
        Form(*_one_of(RULES["targets"]), lambda name, *_: RulePlayer("targets", name.parts[0])),
        Form(*_one_of(["evader"], "(?::.*)?"), _load_evader),
        Form(_RUNS, None, _load_targets),
        Form("populations, A=0.5+B=0.5", "(?!)", _load_targets),  # taken apart before
    ),
}
"""Forms of names, of which a name has the first that fits. Before those of agents, ``memoryless:`` can stand."""


def parse(name: str | Path, kind: str = "agent") -> Name:
    """Take a name apart, by the :data:`FORMS` of its kind.

    Raises:
        ValueError: an unknown name (the message lists the known ones), or a wrong option of the observation.
        FileNotFoundError: the name is a path, without a directory.
    """
    text, of_agent, forms = str(name), kind == "agent", FORMS[kind]
    first, *_ = given = text.split(":")
    if isinstance(name, Path):
        return Name(text, next(form for form in forms if form.pattern is None), (name,))
    if of_agent and text.startswith(_MEMORYLESS):
        return parse(text.removeprefix(_MEMORYLESS))._replace(text=text, memoryless=True)
    if of_agent and Path(text).is_dir() and first not in {*SCRIPTED, *COORDINATORS}:
        return parse(Path(text))._replace(text=text)
    shown = [part for part in given if of_agent and "=" in part and part.partition("=")[0] in NEARNESS]
    nearness = checked_nearness(registry.options_in(text, shown, dict.fromkeys(NEARNESS)))
    rest = ":".join(part for part in given if part not in shown)
    for form in forms:
        if form.pattern is None:
            run = _run_and_executor(rest) if of_agent else (Path(rest), "") if Path(rest).is_dir() else None
            if run is not None:
                return Name(text, form, run[:1], run[1], nearness)
        elif found := re.fullmatch(form.pattern, rest):
            parts: Any = found.groups("")
            if form.words.startswith(PREFIX):
                parts = (pretrained_folder(parts[0]),)
            elif form.words.startswith(GROUP):
                parts = (Path(parts[0]),)
            return Name(text, form, parts, found.groupdict().get("executor", ""), nearness)
    if "/" in (first if of_agent else text):
        raise FileNotFoundError(f"no such directory: {text}")
    known = ", ".join([*(form.words for form in forms), *([f"{_MEMORYLESS}NAME"] if of_agent else [])])
    fits = [
        other for other, forms in FORMS.items() if any(re.fullmatch(form.pattern or "(?!)", text) for form in forms)
    ]
    hint = (
        f" (it names {'an' if fits[0][0] in 'ae' else 'a'} {fits[0]})"
        if fits
        else did_you_mean(first, known.split(", "))
    )
    raise ValueError(f"unknown {kind} {text!r}{hint}: known are {known}")


def _run_and_executor(text: str) -> tuple[Path, str] | None:
    """Return the directory of a run, and the executor after it, "" without one; both may contain colons."""
    parts = text.split(":")
    halves = [(Path(":".join(parts[:i])), ":".join(parts[i:])) for i in range(1, len(parts) + 1)]
    runs = [(folder, executor) for folder, executor in halves if folder.is_dir()]
    known = [run for run in runs if not run[1] or run[1] in EXECUTORS or Path(run[1]).is_dir()]
    likely = runs if len(parts) == 2 and not re.fullmatch(_IMPORT, text) else []
    return next(iter(known or likely), None)


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
    ``benchmarl:runs/x``           policy that BenchMARL trained, see :mod:`hitmac.agents.learned.group`
    ``mate:greedy``                MATE's rule for the sensors of a duel: also ``random``, ``naive``, ``heuristic``
    ``my_module:MyPolicy:seed=1``  custom policy, here with an option, see :func:`hitmac.agents.registry.import_policy`
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
    if isinstance(agent, str | Path):
        made = _load(parse(agent), scenario, executor)
    elif executor is not None:
        raise ValueError("executor is given; only the name or the directory of a coordinator takes one")
    elif isinstance(agent, Agent):
        made = agent
    elif isinstance(agent, type) or not callable(getattr(agent, "predict", None)):
        raise TypeError(f"agent is {agent!r}; it must be a name, a directory, an Agent or an object with predict()")
    else:
        made = registry.as_custom(type(agent).__name__, agent, scenario)
    if isinstance(made.policy, RuleAgent):
        return made
    if scenario.action == "rate":
        made = made._replace(policy=Rates(made.policy, scenario))
    if scenario.identities or made.features == DetectionObserver.features:
        return made
    if made.nearness:
        raise ValueError(
            f"{made.name} has the option {', '.join(made.nearness)}, which is not supported without identities"
        )
    if callable(made.features):
        raise ValueError(f"{made.name} has its own observer, which is not supported in a scenario without identities")
    tracking = BeliefPolicy(made.policy, scenario, made.features)
    return made._replace(policy=tracking, features=tracking.features)


def _load(name: Name, scenario: Scenario, executor: Any) -> Agent:
    """Load an agent as :func:`load_agent` does; its features may be those of targets with identities."""
    if name.memoryless:
        whole = _load(name._replace(text=name.text.removeprefix(_MEMORYLESS), memoryless=False), scenario, executor)
        if callable(whole.features):
            raise ValueError(f"{name.text}: an agent with its own observer cannot be memoryless")
        memoryless = Memoryless(whole.policy, whole.features)
        return whole._replace(name=name.text, policy=memoryless, features=memoryless.features)
    if executor is not None and (name.executor or not name.form.takes_executor):
        raise ValueError(f"executor is given, but {name.text} does not take one")
    executor = name.executor or None if executor is None else executor
    made = name.form.load(name, scenario, None if executor is None else load_executor(executor, scenario))
    if not name.nearness.keys() <= made.nearness.keys():
        shown = ", ".join(name.nearness)
        raise ValueError(f"{name.text} has the option {shown}, which agents with a coordinator do not support")
    return made


def load_executor(executor: LevelPolicy | Policy | str | Path, scenario: Scenario | str | Path) -> LevelPolicy:
    """Load an executor by name, or wrap a policy as one.

    Args:
        executor: a name in :data:`hitmac.agents.planning.levels.EXECUTORS`, the directory of a run or checkpoint
            (always, for a ``Path``), ``my_module:MyPolicy``, a :class:`~hitmac.agents.hierarchy.LevelPolicy`, or an
            object with ``predict``. Attributes ``features`` and ``padding`` of an object specify its observation;
            without them it observes :data:`hitmac.envs.PAPER_FEATURES`, ``"attended"``.
        scenario: scenario to play.

    Errors are those of :func:`load_agent`.
    """
    scenario = load_scenario(scenario)
    if not isinstance(executor, str | Path):
        return LevelPolicy.of(executor)
    name = parse(executor, "executor")
    return name.form.load(name, scenario, None)


def load_opponent(name: Any, scenario: Scenario | str | Path, team: str) -> Player:
    """Load the player of a name for one team of a duel.

    ==================== =====================================================================================
    ``greedy``           rule of MATE for the targets: ``random``, ``naive``, ``greedy``, ``heuristic``
    ``evader:decoys=1``  :class:`hitmac.agents.planning.evader.EvaderAgent`, with or without options
    ``mate:greedy``      the same for the sensors
    ``belief-planner``   for the sensors any name of :func:`hitmac.agents.load_agent`
    ``runs/x``           run or checkpoint of a policy of the team
    ``A=0.5+B=0.5``      population: names with weights; a player is drawn for every episode
    ``runs/duel``        population of the team in a directory of ``hitmac train duel``
    ==================== =====================================================================================

    An object with ``act``, see :class:`Player`, is returned unchanged. Errors are those of :func:`load_agent`, and
    ``ValueError`` for a run of the other team.
    """
    if callable(getattr(name, "act", None)):
        return name
    scenario = load_scenario(scenario)
    members = members_of(name, team)
    players = [_load_player(one, scenario, team) for one in members]
    return players[0] if len(players) == 1 else Population(team, players, [*members.values()])


def _load_player(text: str, scenario: Scenario, team: str) -> Player:
    """Load the player of a name that is not a population."""
    if team == "targets":
        name = parse(text, "team of targets")
        return name.form.load(name, scenario, None)
    agent = load_agent(text, scenario)
    return agent.policy if isinstance(agent.policy, RuleAgent) else SensorPlayer(agent, scenario)


# Lists and populations.


def split_options(name: str) -> tuple[str, str]:
    """Return the family of an agent, its name without options, and the options; "" without any."""
    found = re.search(f"{_OPTIONS}$", name)
    return (name[: found.start()], found[0][1:]) if found else (name, "")


def each_training(name: str) -> list[str]:
    """Return the names of all seeds in a directory of several trainings; for any other agent its name alone."""
    left, colon, right = name.partition(":")
    for folder, before, after in ((name, "", ""), (right, left + colon, ""), (left, "", colon + right)):
        if folder and (runs := checkpoint.trainings_in(folder)):
            return [f"{before}{run}{after}" for run in runs]
    return [name]


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
    folder = Path(names).is_dir()  # whose name may hold = or +
    if not folder and (place := family.rfind("=")) >= 0:
        for member in names[place + 1 :].split("+"):
            yield from ((names[:place], run) for run in each_training(member))
        return
    if "+" in names and not folder:
        raise ValueError(f"{names!r} joins several trainings without a name; write NAME={names}")
    if not folder and options and (values := _VALUES.search(names)):
        each = [names[: values.start()] + one + names[values.end() :] for one in values[0].split("/")]
    else:
        each = [str(path) for path in checkpoint.variations_in(names)] or [names]
    for name in each:
        yield from ((name if run != name else "", run) for run in each_training(name))


def _is_custom(name: str) -> bool:
    """Return True for ``MODULE:CLASS``, also memoryless, or as the executor of a scripted coordinator."""
    name = name.removeprefix(_MEMORYLESS)
    first, _, rest = name.partition(":")
    return f"{first}:" != PREFIX and bool(re.fullmatch(_IMPORT, rest if first in COORDINATORS else name))


def members_of(name: str | Path, team: str) -> dict[str, float]:
    """Return the weights of the agents of one team by name: of a population, or 1 for any other agent.

    Raises ``ValueError`` for a population of another form or whose file cannot be read, or weights that are all 0.
    """
    text, path = str(name), Path(name) / POPULATION
    if path.is_file():
        try:
            listed = json.loads(read_text(path))[team]
            parts = [(within(path.parent, one), float(weight)) for one, weight in listed.items()]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is not a population: {error!r}") from None
    elif found := _WEIGHTED.findall(text) if "+" in text else []:
        parts = [(one, float(weight)) for one, weight in found]
        if "+".join(f"{one}={weight}" for one, weight in found) != text or not any(weight for _, weight in parts):
            raise ValueError(f"population is {text!r}; it must have the form A=0.5+B=0.5, with a weight over 0")
    else:
        return {text: 1.0}
    total, members = sum(weight for _, weight in parts), dict[str, float]()
    for one, weight in parts:
        for member, share in members_of(one, team).items() if weight else ():
            members[member] = members.get(member, 0.0) + share * weight / total
    return members


def within(folder: Path, name: str) -> str:
    """Return the path of an agent in a folder, or its name if the folder has none."""
    return str(folder / name) if (folder / name).is_dir() else name
