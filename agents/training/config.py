"""Options of trainings, a flat dataclass for each job, and combinations that are refused.

Defaults that shape a training stand in ``presets.yaml``, whole for every job and situation.
"""

import dataclasses
import importlib.util
import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import tyro

from hitmac.agents.command_line import with_values_apart
from hitmac.agents.learned.checkpoint import checked_device, load_policy
from hitmac.agents.learned.entities import ENTITY_OPTIONS
from hitmac.agents.learned.policy import CRITICS, check_lists
from hitmac.agents.learned.recurrent import MEMORIES, RECURRENT_FEATURES
from hitmac.agents.names import load_executor, load_opponent
from hitmac.agents.planning.levels import EXECUTORS, in_place
from hitmac.agents.planning.planner import PlanningPolicy
from hitmac.agents.policy import NEARNESS, is_large
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.registry import SCRIPTED, scripted_agent
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features
from hitmac.envs import validation
from hitmac.envs.deployment import KNOWLEDGE
from hitmac.envs.entities import EntityObserver
from hitmac.envs.files import parse_yaml, read_text
from hitmac.envs.observation import DEFAULT_FEATURES, FEATURE_SETS, default_features
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import TASKS, CoordinatorTask, CoverageTask, ExecutorTask, Task, TransportTask
from hitmac.envs.tasks.base import Idle, SubSteps
from hitmac.envs.tasks.coverage import REWARDS
from hitmac.envs.tasks.executor import Padding
from hitmac.envs.validation import Choice, Count, Fraction, Natural, NotNegative, Positive, Range
from hitmac.perception import EncoderConfig

MAX_ENVS = 2**16

NumEnvs = Annotated[int, Range(1, MAX_ENVS)]

TEACHERS = tuple(name for name, agent in SCRIPTED.items() if issubclass(agent, PlanningPolicy))
"""Agents that a policy can imitate, by name."""

GOAL_FEATURES = tuple(name for name in DEFAULT_FEATURES if name != "others_seeing")
"""Default features of an executor that imitates: all but ``others_seeing``, since it observes only its goals."""

_FEATURES = {
    **FEATURE_SETS,
    "turns": tuple(name for name in FEATURE_SETS["frame"] if name != "others_seeing"),
    "goals": GOAL_FEATURES,
    "recurrent": RECURRENT_FEATURES,
    "beliefs": BELIEFS,
    "entities": EntityObserver.features,
}
"""Features by their names in ``presets.yaml``."""

_PRESETS: dict[str, dict[str, Any]] = parse_yaml(read_text(Path(__file__).with_name("presets.yaml")))

NO_LIMIT = {"minutes": None, "total_steps": None}
"""Limits of options that have none; those of their preset then apply, see :func:`with_limits`."""

AnyKind = TypeVar("AnyKind")
NONE: Any = None  # value of options in jobs without them


@dataclass_transform(frozen_default=True, kw_only_default=True)
def with_presets(job: str) -> Callable[[type[AnyKind]], type[AnyKind]]:
    """Make a class of options a frozen dataclass, with the presets of a job, and the first of them as its defaults."""

    def make(kind: Any) -> Any:
        hints, rows = get_type_hints(kind, include_extras=True), dict(_PRESETS[job])
        situations = rows.pop("situations")
        kind.job, kind.presets = job, {situation: {} for situation in situations}
        for name in hints.keys() & rows.keys():
            values = rows[name] if isinstance(rows[name], list) else [rows[name]] * len(situations)
            if name == "features" and issubclass(kind, EncoderConfig):
                values = [_FEATURES[value] for value in values]
            for situation, value in zip(situations, values, strict=True):
                kind.presets[situation][name] = value
            kind.__annotations__[name] = hints[name]
            setattr(kind, name, NO_LIMIT.get(name, values[0]))
        return dataclass(frozen=True, kw_only=True)(kind)

    return make


def preset_of(kind: Any, algorithm: str, situation: str) -> dict[str, Any]:
    """Return a job's preset: of the situation by imitation or by reward, of the situation, or the same for plain."""
    by = "by imitation" if algorithm == "imitation" else "by reward"
    names = f"{situation} {by}", situation, f"plain {by}", "plain"
    return next(kind.presets[name] for name in names if name in kind.presets)


def with_defaults(
    kind: type[AnyKind], algorithm: str, memory: str = "none", start: str | None = None, otherwise: str = "plain"
) -> AnyKind:
    """Return a job's options by its preset, without limits, and with the features and the network of `start`.

    The situation is memory or start if they are given, `otherwise` any other.
    """
    changes: dict[str, Any] = {"algorithm": algorithm}
    if start is not None:
        assert issubclass(kind, Options)
        changes |= {"start": start} | network_of(start, kind.task.spec.name)
    if (memory := changes.get("memory", memory)) != "none":
        changes["memory"] = memory
    situation = "memory" if memory != "none" else "start" if start is not None else otherwise
    values = preset_of(kind, algorithm, situation)
    return kind(**{name: NO_LIMIT.get(name, value) for name, value in values.items()} | changes)


def with_limits(options: Any, otherwise: str = "plain") -> Any:
    """Return the options with a limit: that of their preset if they have none."""
    if options.minutes is not None or options.total_steps is not None:
        return options
    situation = "memory" if options.memory != "none" else "game" if options.features == BELIEFS else otherwise
    preset = preset_of(options, options.algorithm, situation)
    return dataclasses.replace(options, **{name: preset[name] for name in NO_LIMIT})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every training."""

    job: ClassVar[str]
    presets: ClassVar[dict[str, dict[str, Any]]]
    """Defaults by situation."""
    address = NONE  # of jobs that train one policy

    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    knowledge: Annotated[str, Choice(KNOWLEDGE)] | None = None
    """Targets that a sensor knows: all (full), or those seen by any sensor (shared), by those nearby (neighbours) or by
    itself (own). None: the scenario's."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of the scenario, NAME=VALUE with the value in YAML, such as missed_detections=0.1; can be repeated."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks for the targets, one of them in each episode. Empty: the scenario's, if any."""
    columns: str = ""
    """Other names of their columns, such as time=t,id=track, or numbers without a header. Empty: the scenario's."""
    seed: Annotated[int, Range(0, 1_000_000)] = 0
    """Seed of networks and scenes."""
    seeds: Count = 1
    """Number of trainings with consecutive seeds, each in run_dir/seed-SEED; on the command line also a range, 0..9."""
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option to vary, such as pooling=sum,mean, in run_dir/pooling-sum/seed-SEED; several give all combinations."""
    processes: Count | None = None
    """Number of trainings that run at the same time. None: the number of cores."""
    ray: str | None = None
    """Address of a Ray cluster for several trainings, such as auto or 10.0.0.1:6379; local starts one. All its machines
    must reach run_dir by the same path."""
    device: str = "cpu"
    """Device of the networks: cpu, cuda, cuda:1, or auto, an accelerator if present. Simulations run on the CPU."""
    run_dir: Path | None = None
    """New directory for the results. None: a directory in runs/, named by the date and time."""
    resume: bool = False
    """Continue the run in run_dir, from its last checkpoint and with its options."""

    @property
    def folder(self) -> Path:
        """Directory of an open run."""
        assert self.run_dir is not None
        return self.run_dir

    @property
    def is_group(self) -> bool:
        """True for a group of trainings, each in a directory of its own."""
        return self.seeds > 1 or bool(self.sweep)

    @property
    def clusters(self) -> dict[str, str]:
        """Addresses of Ray clusters to use, by the options that name them."""
        return {name: value for name in ("ray", "address") if (value := getattr(self, name)) is not None}


@with_presets("coverage-ppo")
class Options(EncoderConfig, RunOptions):
    """Options of every job that trains one policy, with those of its encoder."""

    task: ClassVar[type[Task]]
    task_fields: ClassVar[tuple[str, ...]] = ()
    """Options of the task in training, in addition to those of its :class:`hitmac.envs.tasks.TaskSpec`."""

    # Options of some jobs, with their value in the others.
    memory, per_sensor, reward, decision, difference_rewards = "none", False, REWARDS[0], 1, False
    nearest = radius = neighbours = NONE

    minutes: Positive | None
    """Maximum training time, minutes. Without any limit: 5 for a coverage policy, 9 by PPO; 3500000 steps for an
    executor, 600000 for a coordinator, 400000 for targets that imitate."""
    total_steps: Count | None
    """Maximum number of environment steps, over all scenes; for executors, over all sensors. Without another limit, the
    same seed gives the same run."""
    num_envs: NumEnvs
    """Number of parallel scenes."""
    opponent: str | None = None
    """Player of the other team. Targets: a rule (random, naive, greedy or heuristic), evader, or a run; None: the
    scenario's walk. Sensors: an agent of hitmac evaluate; None: mate:greedy."""
    start: str | None = None
    """Policy to start from, with its features and network: directory of a run, or a pretrained policy such as
    pretrained:any-size. None: random weights."""
    features: tuple[str, ...]
    """Features of the observation: names, of which an error message lists all; beliefs, particles that show where
    targets may be, the default to imitate a planner with partial knowledge; or a set: hit-mac, the paper's; frame, of a
    single frame; motion, with velocities; last-known, with ages; site, with lines of sight and other sensors, the
    default with walls, blocks or discs. The default also has those of motors, zoom, tilts and values, if any."""
    algorithm: Annotated[str, Choice(("imitation", "ppo", "a2c"))]
    """Learning algorithm: imitation of a planner, for which a level of the hierarchy has other defaults; or from reward
    ppo, or a2c, the synchronous form of the paper's A3C, which ignores batch_size and epochs."""
    teacher: str
    """Planner to imitate, also with options, such as belief-planner-fast:spent=0.33. In games of two teams, this,
    features, planner_turn_cost, num_envs and episode_steps of a coverage policy have other defaults, with partial
    knowledge this and features, and where sensors also zoom, tilt or move this."""
    planner_turn_cost: NotNegative
    """Cost of turning for a sub-step in the planner's plans; 1 is the value of covering a target for a sub-step."""
    temperature: Positive
    """Temperature of the softmax of the planner's values, in the same unit."""
    critic: Annotated[str, Choice(CRITICS)] | None
    """Critic. None: amc for a coordinator, value_head for the others."""
    episode_steps: Count
    """Length of an episode, steps."""
    frame_skip: Count
    """Sub-steps for which an action holds in training, together one step; always 1 by imitation of a planner and with a
    learned memory. A trained policy decides at every sub-step."""
    rollout_steps: Annotated[int, Range(2)]
    """Steps of each scene between two updates."""
    batch_size: Annotated[int, Range(2)]
    """Samples in a gradient step."""
    epochs: Count
    """Passes over a rollout."""
    learning_rate: Positive
    """Learning rate at the start; it falls linearly to 0."""
    gamma: Fraction
    """Discount per step."""
    gae_lambda: Fraction
    """Lambda of the generalised advantage estimate."""
    entropy: NotNegative
    """Weight of the entropy bonus at the start."""
    final_entropy: NotNegative
    """The same at the end; it changes linearly."""
    max_grad_norm: Positive
    """Clip the gradient norm at this value."""
    normalize_values: bool
    """Learn values in units of the running deviation of returns from their mean, when learning from reward."""
    compiled: bool = False
    """Compile the updates by torch.compile when learning from reward, for a GPU."""
    save_every: NotNegative = 15.0
    """Seconds of training between two checkpoints."""
    curve_points: Natural
    """Evaluations of the deterministic policy during the training, for its curve; not counted as training time."""
    episodes: Count
    """Number of new episodes for the evaluation of the policy and the baselines; seeds from 0."""
    engine: Annotated[str, Choice(("sb3", "rllib"))] = "sb3"
    """Engine: sb3, Stable-Baselines3 in this process; or rllib, PPO of Ray's RLlib, also on several machines."""
    num_env_runners: Natural = 0
    """Processes of --engine rllib that share the scenes, and are restarted when lost; 0: all scenes in this process."""
    address: str | None = None
    """Address of the Ray cluster for --engine rllib, such as auto or 10.0.0.1:6379. None: a cluster for this run."""

    def _rules_of_engines(self) -> validation.Rules:
        rllib, runners = self.engine == "rllib", self.num_env_runners
        compiles = self.algorithm != "imitation" and not rllib
        yield "compiled", not self.compiled or compiles, "requires learning from reward by --engine sb3"
        for name in ("num_env_runners", "address"):
            yield name, rllib or not getattr(self, name), "requires --engine rllib"
        if rllib:
            installed = None not in map(importlib.util.find_spec, ("ray", "tree"))
            yield "engine", installed, "requires Ray: pip install 'hitmac[rllib]'"
            words = "cannot be combined with --engine rllib, which requires ppo, as in the job coverage-ppo"
            yield "algorithm", self.algorithm == "ppo", words
            yield "num_env_runners", runners <= self.num_envs, f"it must not exceed --num-envs, {self.num_envs}"
            yield "ray", not self.ray, "cannot be combined with --engine rllib, whose cluster is that of --address"
            yield "address", not (self.is_group and self.address), "cannot be combined with several trainings"

    def _rules_of_roles(self) -> validation.Rules:
        targets, known = self.task.spec.role == "targets", self.teacher.split(":")[0] in TEACHERS
        yield "teacher", targets or known, f"it must be one of {', '.join(TEACHERS)}"
        entities = self.features == EntityObserver.features
        words = "it must be entities for targets" if targets else "entities are only for targets, in the job transport"
        yield "features", entities == targets, words

    def __post_init__(self) -> None:
        """Skip the encoder's checks; those of :func:`check` name the options of the command line."""

    @property
    def encoder_config(self) -> EncoderConfig:
        """Options of the encoder."""
        return EncoderConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(EncoderConfig)})

    @property
    def sub_steps(self) -> int:
        """Length of an episode, sub-steps."""
        return self.episode_steps * self.decision

    @property
    def recurrent(self) -> bool:
        """True for a policy with a memory."""
        return self.memory == "recurrent"

    @property
    def credit(self) -> str:
        """Credit assignment: ``"team"`` or ``"difference_rewards"``."""
        own = self.difference_rewards and self.algorithm != "imitation" and self.engine == "sb3"
        return "difference_rewards" if own else "team"

    @property
    def held(self) -> int:
        """Sub-steps for which an action holds: `frame_skip`, or 1 with the memory of a policy or its planner."""
        plans = self.algorithm == "imitation" and self.task.spec.role != "targets"
        return 1 if plans or self.recurrent else self.frame_skip

    @property
    def nearness(self) -> dict[str, Any]:
        """Options in :data:`hitmac.agents.policy.NEARNESS` that are given; {}: the policy observes all targets."""
        return {name: value for name in NEARNESS if (value := getattr(self, name)) is not None}

    @property
    def acts_alone(self) -> bool:
        """True if a policy decides for one sensor or target at a time."""
        return self.per_sensor or self.task.spec.role in ("executor", "targets")

    def practice(self, scenario: Scenario) -> Scenario:
        """Return the scenario to learn in: on beliefs or tracks with shared knowledge, to play also with less."""
        remembers = self.features == BELIEFS or not scenario.identities
        return scenario.replace(knowledge="shared") if remembers and scenario.knowledge != "full" else scenario

    def rates(self, done: float) -> tuple[float, float]:
        """Return the learning rate and the weight of the entropy bonus after a share of the training, 0 to 1."""
        return self.learning_rate * (1.0 - done), self.entropy + done * (self.final_entropy - self.entropy)


@with_presets("coverage-ppo")
class CoverageRewardOptions(Options):
    """Train a policy that turns all sensors directly, by PPO from its reward alone."""

    task = CoverageTask
    task_fields = ("turn_cost", "reward")

    difference_rewards: bool
    """Reward every sensor for its own part of the reward; otherwise for the reward of the team, as in the paper."""
    turn_cost: NotNegative
    """Cost in the reward if all sensors turn, in units of coverage."""
    reward: Annotated[str, Choice(REWARDS)]
    """Reward; in games of two teams also duel, the game's, or real_coverage, in which only targets with a bounty
    count."""
    per_sensor: bool = False
    """Every sensor learns and acts on its own observation, with shared weights. With --encoder mlp this is independent
    PPO, otherwise PPO with a centralised critic."""
    memory: Annotated[str, Choice(MEMORIES)] = "none"
    """Memory of the policy: none; or recurrent, a learned state of every pair, for use with --knowledge shared; other
    options then have other defaults."""

    def _rules_of_memories(self) -> validation.Rules:
        if self.recurrent:
            yield "memory", self.engine == "sb3", "requires --engine sb3"
            yield "memory", not self.per_sensor, "cannot be combined with --per-sensor"
            fits = self.features == RECURRENT_FEATURES
            yield "features", fits, "cannot be combined with --memory recurrent, which has features of its own"
            yield "weight_dim", self.weight_dim % 2 == 0, "it must be even with --memory recurrent"

    nearest: Count | None = None
    """Number of nearest targets that each sensor observes. None: all; where the policy is used in a scene of 16384
    pairs or more, the nearest 8 within two sensing ranges."""
    radius: Positive | None = None
    """Maximum distance of these targets, in the scenario's units. None: any."""
    neighbours: Count | None = None
    """Sensors near each sensor that it attends to with --attend-over agents. None: all."""

    def _rules_of_lists(self) -> validation.Rules:
        yield from ((name, self.nearest is not None, "requires --nearest") for name in self.nearness)
        if self.nearest is not None:
            whole = not self.recurrent and self.features != BELIEFS
            yield "nearest", whole, "cannot be combined with --memory recurrent or --features beliefs"
            try:
                check_lists(self.encoder_config)
            except ValueError as error:
                yield "nearest", False, str(error)
            reads = self.neighbours is None or self.attend_over == "agents"
            yield "neighbours", reads, "requires --attend-over agents"


@with_presets("coverage")
class CoverageOptions(CoverageRewardOptions):
    """Train a policy that turns all sensors directly, by imitation of a planner's values of the actions."""


@with_presets("executor")
class ExecutorOptions(Options):
    """Train HiT-MAC's executor, shared by all sensors: it turns a sensor towards the targets assigned to it."""

    task = ExecutorTask
    task_fields = ("turn_cost", "centring", "goals_every", "goal_share")

    turn_cost: NotNegative
    """Cost of a turn in training; the official task, for evaluation, has 0.01."""
    centring: Fraction
    """Loss of reward for a goal at the edge of the view instead of its middle; the paper's is 1."""
    goals_every: Count
    """Steps between two choices of goals."""
    goal_share: Fraction
    """Probability that a target in range becomes a goal; the paper's is 1."""
    coordinator: str | None = None
    """Directory of the run of a coordinator that chooses the goals; every sensor is then rewarded for its own part of
    the coverage. The levels can so learn in turn, each with --start of its last run. None: targets in range."""
    padding: Padding
    """Form of the goals in the observation; attended is the released program's, unfiltered the paper's ablation."""
    row_id: bool
    """In training, the feature target_id is the number of the goal's row, as in evaluation; otherwise it is the number
    of the target, as in the released program."""


@with_presets("coordinator")
class CoordinatorOptions(Options):
    """Train HiT-MAC's coordinator: it assigns targets to sensors; a frozen executor turns them."""

    task = CoordinatorTask

    executor: str
    """Executor that turns the sensors: scripted, or the directory of an executor's run or checkpoint."""
    difference_rewards: bool
    """Reward every sensor for its own part of the coverage; otherwise for the task's reward, as in the paper."""
    idle: Idle
    """Action of a sensor without assigned targets: random turns, as in the released program, or none."""
    decision: SubSteps
    """Sub-steps for which an assignment holds."""


@with_presets("transport")
class TransportOptions(Options):
    """Train a policy of the targets, shared by all: each carries its cargo past the sensors of an opponent.

    Every target learns from its own part of the reward of the game.
    """

    task = TransportTask
    task_fields = ("share",)

    opponent: str
    teacher: str
    """Player of the targets to imitate: a rule, another agent's name, or the directory of a run."""
    share: Fraction
    """Share of the team's mean reward in that of each target in training."""

    def _rules_of_fixed(self) -> validation.Rules:
        encoder = dataclasses.asdict(EncoderConfig())
        fixed = {name: value for name, value in encoder.items() if name not in ENTITY_OPTIONS}
        for name, value in (fixed | {"engine": "sb3", "critic": None, "curve_points": 0}).items():
            yield name, getattr(self, name) == value, f"for targets it must be {value}"


@with_presets("hit-mac")
class HitMacOptions(RunOptions):
    """Train both levels of HiT-MAC: an executor, then a coordinator with it, and evaluate both together.

    Unlike in the paper, the executor trains on the coordinator's scene, whose targets are slower, with goals that hold
    for three decisions and are a random half of the targets in range, and less reward for centring them. Other options
    have the defaults of the two jobs; to change them, train the executor and then the coordinator.
    """

    executor_minutes: Positive | None = None
    """Maximum training time of the executor, minutes."""
    coordinator_minutes: Positive | None = None
    """Maximum training time of the coordinator, minutes."""
    executor_steps: Count | None = None
    """Maximum number of the executor's steps, over all sensors; 1000000 without any limit."""
    coordinator_steps: Count | None = None
    """Maximum number of the coordinator's decisions, over all scenes; 450000 without any limit."""
    algorithm: Annotated[str, Choice(("ppo", "imitation"))]
    """Learning algorithm of both levels: from reward, or imitation of a planner, with default limits of 512000 steps
    for the executor and 70400 for the coordinator."""
    features: Annotated[str, Choice((*FEATURE_SETS, "beliefs"))]
    """Set of features: frame, of a single frame; hit-mac, the paper's; motion, with velocities for the coordinator and
    an executor that imitates; beliefs, the default in games of two teams, with other defaults of both levels."""
    num_envs: NumEnvs
    """Number of parallel scenes."""
    weight_dim: Count
    """Width of the encoders."""
    episodes: Count
    """Number of new episodes for the evaluation; seeds from 0."""


@dataclass(frozen=True)
class DuelOptions(RunOptions):
    """Train both teams of a duel in turn, each against a growing population of policies of the other team."""

    job = "duel"

    scenario: str = "mate-4v8-9"
    seed: Annotated[int, Range(0, 999)] = 0
    """Seed of networks and scenes; the k-th training of a team has the seed 1000 * seed + k."""
    iterations: Count = 4
    """Number of iterations, in each of which the targets are trained, then the sensors."""
    total_steps: Count = 500_000
    """Environment steps of each training, over all scenes; for targets over all targets."""
    sensors: str = "mate:greedy"
    """First agents of the population of sensors: a name, A=0.5+B=0.5, or the directory of another duel."""
    targets: str = "greedy"
    """First agents of the population of targets: random, naive, greedy, heuristic, evader, or as for sensors."""
    sensors_start: str | None = None
    """Policy from which the first training of the sensors starts: directory of a run. None: random weights."""
    targets_start: str | None = None
    """The same for the targets."""
    num_envs: NumEnvs | None = None
    """Number of parallel scenes. None: that of each team's own job."""
    weight_dim: Count | None = None
    """Width of the encoders. None: that of each team's own job."""
    episodes: Count = 10
    """Episodes of each match between two agents, on seeds that are not those of an evaluation."""


def default_job(task: type[Task]) -> type[Options]:
    """Return a job for a registered task, with the options of its role and of its spec."""
    spec, levels = task.spec, {"executor": ExecutorOptions, "coordinator": CoordinatorOptions}
    base: type[Options] = {"agent": Options, "targets": TransportOptions, **levels}[spec.role]
    fields = {"scenario": spec.scenario, "episode_steps": spec.episode_steps, **spec.options}
    typed = [(name, type(value), value) for name, value in fields.items()]
    own = {"__doc__": f"Train a policy: {spec.summary}.", "job": spec.name.lower(), "task": task}
    own["presets"] = {situation: preset | fields for situation, preset in base.presets.items()}
    name = f"{spec.name}Options"
    return dataclasses.make_dataclass(name, typed, bases=(base,), namespace=own, frozen=True, kw_only=True)


JOBS: dict[str, type[Options]] = {
    job.job: job
    for job in (CoverageOptions, CoverageRewardOptions, ExecutorOptions, CoordinatorOptions, TransportOptions)
}
"""Jobs that train one policy, by name."""

Job = Options | HitMacOptions | DuelOptions
AnyJob = TypeVar("AnyJob", bound=Job)


# Defaults that depend on other options and on the scene.

PAIRS = {"imitation": 200, "ppo": 100, "a2c": 60}
"""Largest number of pairs of a sensor and a target in a scene with the default sizes, by algorithm."""

_SENSORS = 4  # of the scene that the defaults are for
_MULTIPLE = 8  # of a number of scenes and of a batch
_SHORTEST = 4  # steps of a rollout


def flag(name: str) -> str:
    """Return the name of an option on the command line."""
    return f"--{name.replace('_', '-')}"


def given_options(kind: type, arguments: Sequence[str]) -> set[str]:
    """Return the names of the options that a command line gives."""
    flags = {one.partition("=")[0].replace("_", "-") for one in arguments}
    names = (field.name for field in dataclasses.fields(kind))
    return {name for name in names if not flags.isdisjoint({flag(name), flag(f"no_{name}")})}


def with_seed_range(arguments: Sequence[str]) -> list[str]:
    """Return the command line with ``--seeds 2..4`` as ``--seed 2 --seeds 3``; raise ValueError for an empty range."""
    text = with_values_apart(arguments, "--seeds")
    for place, (option, given) in enumerate(itertools.pairwise(text)):
        if option == "--seeds" and (found := re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", given)):
            first, last = map(int, found.groups())
            if last < first:
                raise ValueError(f"--seeds is {given}; the first must not be over the last")
            if any(one.partition("=")[0] == "--seed" for one in text):
                raise ValueError(f"--seeds is {given}, which holds the first seed; leave out --seed")
            return [*text[:place], "--seed", str(first), "--seeds", str(last - first + 1), *text[place + 2 :]]
    return list(arguments)


def completed(asked: AnyJob, given: Collection[str], scenario: Scenario) -> AnyJob:
    """Return the options, where those not given have defaults that depend on the others and on the scenario."""
    if isinstance(asked, DuelOptions):
        if not scenario.is_game:
            raise ValueError(f"--scenario {scenario.name} is not a game of two teams, such as mate-4v8-9")
        return asked
    situation = plain = "plain" if len(scenario.decisions) == 1 else "decisions"
    if scenario.identities:  # beliefs are possible
        known = scenario.knowledge == "full" or is_large(scenario)
        situation = "game" if scenario.is_game else plain if known else "beliefs"
    if isinstance(asked, HitMacOptions):
        defaults: Any = with_defaults(HitMacOptions, asked.algorithm, otherwise=situation)
    else:
        situation = plain if asked.per_sensor or asked.nearest is not None else situation
        defaults = with_defaults(type(asked), asked.algorithm, asked.memory, asked.start, situation)
        if asked.start is None and defaults.features == DEFAULT_FEATURES:
            features = FEATURE_SETS["site"] if scenario.has_obstacles else DEFAULT_FEATURES
            defaults = dataclasses.replace(defaults, features=default_features(scenario, features))
    options: AnyJob = dataclasses.replace(defaults, **{name: getattr(asked, name) for name in given})
    check_held(options, given)
    return scaled(options, scenario, given)


def check_held(options: AnyJob, given: Collection[str]) -> None:
    """Raise ValueError if `frame_skip` is among the given options and does not apply."""
    if "frame_skip" in given and isinstance(options, Options) and options.held != options.frame_skip:
        words = "it is always 1 by imitation of a planner and with a learned memory"
        raise ValueError(f"--frame-skip is {options.frame_skip}; {words}")


def scaled(options: AnyJob, scenario: Scenario | None, given: Collection[str] = ()) -> AnyJob:
    """Return options with sizes for a scenario, except those given: the more pairs, the fewer scenes.

    This bounds time and memory: no step of all scenes and no gradient step has more pairs than with :data:`PAIRS` pairs
    in a scene.
    """
    if scenario is None or isinstance(options, DuelOptions) or options.algorithm not in PAIRS:  # refused later
        return options
    most, n, targets = PAIRS[options.algorithm], scenario.num_sensors, scenario.num_targets
    sizes: dict[str, Any] = {}
    if isinstance(options, Options):
        targets = min(options.nearest or targets, targets)
    shares = {"num_envs": (share := most / (n * targets))}
    if isinstance(options, Options):
        shares["batch_size"] = most / _SENSORS / targets if options.acts_alone else share
        learns_after_every_step = options.algorithm == "imitation" and not options.recurrent
        if learns_after_every_step and share < 1 and "rollout_steps" not in given:
            steps = options.rollout_steps
            sizes["rollout_steps"] = max(min(_SHORTEST, steps), int(steps * share))
    for name, part in shares.items():
        if name not in given and part < 1:
            size = getattr(options, name)
            sizes[name] = max(int(size * part) // _MULTIPLE * _MULTIPLE, min(size, _MULTIPLE))
    return dataclasses.replace(options, **sizes)


def levels(
    options: HitMacOptions, run_dir: Path, scenario: Scenario | None = None
) -> tuple[ExecutorOptions, CoordinatorOptions]:
    """Return the options of the two jobs of ``hit-mac``, with runs in `run_dir` and sizes for the scenario."""
    names = ("scenario", "seed", "num_envs", "weight_dim", "episodes", "device", "algorithm")
    shared: dict[str, Any] = {name: getattr(options, name) for name in names}
    if options.features == "hit-mac":
        shared |= {"embed_layers": 2, "num_frequencies": 4}
    features = {"hit-mac": FEATURE_SETS["hit-mac"], "frame": ExecutorOptions.features}
    situation = "game" if options.features == "beliefs" else "hit-mac"
    own = preset_of(ExecutorOptions, options.algorithm, situation) | {
        "minutes": options.executor_minutes,
        "total_steps": options.executor_steps,
        "run_dir": run_dir / "executor",
    }
    if options.features in features:
        own["features"] = features[options.features]
    of_coordinator = preset_of(CoordinatorOptions, options.algorithm, situation) | {
        "features": _FEATURES[options.features],
        "executor": str(run_dir / "executor"),
        "minutes": options.coordinator_minutes,
        "total_steps": options.coordinator_steps,
        "run_dir": run_dir / "coordinator",
    }
    executor = with_limits(ExecutorOptions(**own | shared), situation)
    return scaled(executor, scenario, shared), scaled(CoordinatorOptions(**of_coordinator | shared), scenario, shared)


def policy_folder(start: str) -> Path:
    """Return the directory of the policy `start`, an option of the jobs."""
    return pretrained_folder(start.removeprefix(PREFIX)) if start.startswith(PREFIX) else Path(start)


def network_of(start: str, task: str, scenario: Scenario | None = None) -> dict[str, Any]:
    """Return features, encoder and memory of the policy `start` by the names of a job's options.

    Raises:
        FileNotFoundError, ValueError: absent, or for another role than `task` or other decisions than `scenario`.
    """
    config = load_policy(policy_folder(start))[1]
    if config.role != TASKS[task].spec.role:
        raise ValueError(f"--start is {start}, a policy for {config.task}; it must be one for {task}")
    decisions = config.scenario.decisions
    if config.role in ("agent", "executor") and scenario is not None and config.scenario.action != scenario.action:
        raise ValueError(
            f"--start is {start}, a policy of the action {config.scenario.action}; the scenario {scenario.name!r} "
            f"requires {scenario.action}"
        )
    if config.role == "agent" and scenario is not None and decisions != scenario.decisions:
        raise ValueError(
            f"--start is {start}, a policy with the decisions {', '.join(decisions)}; the scenario {scenario.name!r} "
            f"requires {', '.join(scenario.decisions)}"
        )
    memory = config.policy["memory"]
    network = dataclasses.asdict(config.encoder) | {"features": config.features}
    return network if memory == "none" else network | {"memory": memory}


# Options that are refused.


def check(options: Job) -> None:
    """Raise ValueError or TypeError for invalid options, all in one error."""
    invalid = validation.invalid_fields(options, label=flag, show=str)[1]
    errors = list(invalid.values())
    if options.ray is not None and not options.is_group:
        errors.append(ValueError("--ray requires several trainings: add --seeds or --sweep"))
    if isinstance(options, DuelOptions):
        if options.is_group:
            errors.append(ValueError("--seeds and --sweep do not apply to the job duel; run it once for each seed"))
    elif isinstance(options, HitMacOptions):
        for level in () if errors else levels(options, Path()):
            with validation.collect(errors):
                check(level)
    else:
        found = [(name, what) for name, what in options.problems().items() if name not in invalid]
        errors += [ValueError(f"{flag(name)} is {getattr(options, name)}; {what}") for name, what in found]
        with validation.collect(errors):
            check_features(options.features)
        with validation.collect(errors):
            checked_device(options.device, flag("device"))
        for name, what in () if errors else validation.broken_rules(options):
            value = getattr(options, name)
            shown = " ".join(value) if isinstance(value, tuple) else value
            form = "{} {} {}" if what.startswith(("requires ", "cannot ")) else "{} is {}; {}"
            errors.append(ValueError(form.format(flag(name), shown, what)))
    validation.raise_together(errors)


def check_on(options: Options, scenario: Scenario) -> None:
    """Raise ValueError for options that conflict with the scenario, the policy to start from or the executor."""
    options = dataclasses.replace(options, features=check_features(options.features))
    if options.start is not None:
        network = network_of(options.start, options.task.spec.name, scenario)
        for name, value in network.items():
            if getattr(options, name) != value:
                raise ValueError(f"{flag(name)} is {getattr(options, name)}; the policy {options.start} has {value}")
    targets, plays = options.task.spec.role == "targets", options.opponent is not None or options.reward != REWARDS[0]
    if (targets or plays) and not scenario.is_game:
        raise ValueError(f"scenario {scenario.name!r} is not a game of two teams, such as mate-4v8-9")
    if options.opponent is not None:
        load_opponent(options.opponent, scenario, "sensors" if targets else "targets")
    if options.algorithm == "imitation" and targets:
        load_opponent(options.teacher, scenario, "targets")
    elif options.algorithm == "imitation":
        scripted_agent(options.teacher, in_place(scenario))
    if options.features == BELIEFS or not scenario.identities:
        level = options.task.spec.role in ("executor", "coordinator") and scenario.is_game and scenario.identities
        if (options.task.spec.role != "agent" and not level) or options.per_sensor:
            given = "--features is beliefs" if options.features == BELIEFS else "identities is false"
            raise ValueError(
                f"{given}, which is supported only for a policy that turns all sensors directly, or beliefs for the "
                "levels of HiT-MAC in a game"
            )
        BeliefObserver(options.practice(scenario), options.features)
    if options.engine == "rllib" and scenario.action == "rate" and options.task.spec.role != "coordinator":
        raise ValueError("--engine rllib learns no rates; choose --set action=turn, or leave the engine out")
    if options.recurrent and scenario.knowledge != "shared":
        raise ValueError(
            f"--memory recurrent requires --knowledge shared; the scenario has the knowledge {scenario.knowledge}"
        )
    if isinstance(options, ExecutorOptions) and options.coordinator is not None:
        metadata = load_policy(policy_folder(options.coordinator))[1]
        if metadata.role != "coordinator" or metadata.features == BELIEFS:
            kind = f"a policy for {metadata.task} on {' '.join(metadata.features)}"
            raise ValueError(
                f"--coordinator is {options.coordinator}, {kind}; it must be one for Coordinator, not on beliefs"
            )
        if options.algorithm == "imitation":
            raise ValueError(f"--coordinator is {options.coordinator}; it requires --algorithm ppo or a2c")
    if isinstance(options, CoordinatorOptions):
        executor = options.executor
        load_executor(executor, scenario)
        if executor != "scripted" and (executor in EXECUTORS or not Path(executor).is_dir()):
            raise ValueError(f"--executor is {executor}; it must be scripted or the directory of a run or checkpoint")
