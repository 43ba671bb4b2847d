"""Options of trainings, a flat dataclass for each job: their defaults, and combinations that are refused."""

import dataclasses
import importlib.util
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import tyro

from hitmac.agents.baselines.levels import EXECUTORS, AssignPlanned, in_place
from hitmac.agents.baselines.planner import PlanningPolicy
from hitmac.agents.duel import load_opponent
from hitmac.agents.learned.checkpoint import checked_device, load_policy
from hitmac.agents.learned.entities import ENTITY_OPTIONS
from hitmac.agents.learned.policy import CRITICS, check_lists
from hitmac.agents.learned.recurrent import MEMORIES, RECURRENT_FEATURES
from hitmac.agents.policy import NEARNESS, checked_nearness
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.registry import SCRIPTED, load_executor, scripted_agent
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features
from hitmac.envs import tasks, validation
from hitmac.envs.entities import EntityObserver
from hitmac.envs.observation import DEFAULT_FEATURES, FEATURE_SETS
from hitmac.envs.scenario import KNOWLEDGE, Scenario
from hitmac.envs.tasks import TASKS, CoordinatorTask, CoverageTask, ExecutorTask, Task, TransportTask
from hitmac.envs.tasks.base import SUB_STEPS_PER_DECISION, Decision, Idle
from hitmac.envs.tasks.coverage import REWARDS
from hitmac.envs.tasks.executor import Padding
from hitmac.envs.validation import Choice, Count, Fraction, Natural, NotNegative, Positive, Range
from hitmac.perception import EncoderConfig

MAX_ENVS = 2**16

Seed = Annotated[int, Range(0, 1_000_000)]
NumEnvs = Annotated[int, Range(1, MAX_ENVS)]

TEACHERS = tuple(name for name, agent in SCRIPTED.items() if issubclass(agent, PlanningPolicy))
"""Agents that a policy can imitate, by name."""

GOAL_FEATURES = tuple(name for name in DEFAULT_FEATURES if name != "others_seeing")
"""Default features of an executor that imitates: all but ``others_seeing``, since it observes only its goals."""


@dataclass(frozen=True)
class RunOptions:
    """Options of every training."""

    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    knowledge: Annotated[str, Choice(KNOWLEDGE)] | None = None
    """Targets that a sensor knows: full, all; shared, those any sensor sees; neighbours; own. None: the scenario's."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks for the targets, one of them in each episode. Empty: the scenario's, if any."""
    columns: str = ""
    """Other names of their columns, such as time=t,id=track, or numbers without a header. Empty: the scenario's."""
    seed: Seed = 0
    """Seed of networks and scenes."""
    seeds: Count = 1
    """Number of trainings with consecutive seeds, each in run_dir/seed-SEED; on the command line also a range, 0..9."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option to vary, such as pooling=sum,mean, in run_dir/pooling-sum/seed-SEED; repeat it for all combinations."""
    processes: Count | None = None
    """Trainings that run at a time and share the cores. None: the number of cores."""
    ray: str | None = None
    """Address of a Ray cluster for several trainings, such as auto or 10.0.0.1:6379; local starts one. All its machines
    must reach run_dir by the same path."""
    device: str = "cpu"
    """Device of the networks: cpu, cuda, cuda:1, or auto, an accelerator if present. The simulation is on the CPU."""
    run_dir: Path | None = None
    """New directory for the results. None: runs/ and the date and time."""
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
        return self.seeds > 1 or bool(self.set)


@dataclass(frozen=True)
class Options(EncoderConfig, RunOptions):
    """Options of every job that trains one policy, with those of its encoder."""

    job: ClassVar[str]
    task: ClassVar[type[Task]]
    task_fields: ClassVar[tuple[str, ...]] = ()
    """Options of the task in training, in addition to those of its :class:`hitmac.envs.tasks.TaskSpec`."""
    default_limit: ClassVar[dict[str, Any]] = {"minutes": 9.0}
    imitation_limit: ClassVar[dict[str, Any]] = {}
    """Default limit with ``--algorithm imitation``; {}: that of the job."""
    imitation_defaults: ClassVar[dict[str, Any]] = {}
    """Defaults of other options with ``--algorithm imitation``."""

    minutes: Positive | None = None
    """Maximum training time, minutes. Without any limit: 5 for a coverage policy, 9 by PPO; 3500000 steps for an
    executor, 600000 for a coordinator, 400000 for targets that imitate."""
    total_steps: Count | None = None
    """Maximum of environment steps over all scenes, for executors over all sensors. Alone it makes runs repeatable."""
    num_envs: NumEnvs = 512
    """Number of parallel scenes."""
    opponent: str | None = None
    """Opposing team where there are two: a rule, another agent's name, or the directory of a run. None: targets follow
    the scenario's walk, sensors are greedy."""
    start: str | None = None
    """Policy to start from, with its features and network: directory of a run, or a pretrained policy such as
    pretrained:any-size. None: random weights."""
    features: tuple[str, ...] = DEFAULT_FEATURES
    """Observation features: a set (hit-mac: the paper's; frame: of a single frame; motion: velocities too; site: lines
    of sight and sensors too, the default with walls, blocks or discs; last-known: ages too), beliefs (particles: where
    a target may be), or names; an error lists them."""
    algorithm: Annotated[str, Choice(("imitation", "ppo", "a2c"))] = "ppo"
    """Learning algorithm: imitation of a planner, with other defaults for a level of the hierarchy; or from reward:
    ppo, or a2c, the synchronous form of the paper's A3C, which ignores batch_size and epochs."""
    teacher: str = "planner"
    """Planner to imitate, with or without options: belief-planner-fast:spent=0.33. A coverage policy of a game of two
    teams has other defaults of this, features, planner_turn_cost, num_envs and episode_steps."""
    planner_turn_cost: NotNegative = 0.1
    """Cost of turning for a sub-step in the planner's plans, in targets covered for a sub-step."""
    temperature: Positive = 0.1
    """Temperature of the softmax of the planner's values, in targets covered for a sub-step."""
    critic: Annotated[str, Choice(CRITICS)] | None = None
    """Critic. None: amc for a coordinator, value_head for the others."""
    episode_steps: Count = tasks.SUB_STEPS
    """Length of an episode, steps."""
    rollout_steps: Annotated[int, Range(2)] = 32
    """Steps of each scene between two updates."""
    batch_size: Annotated[int, Range(2)] = 512
    """Samples in a gradient step."""
    epochs: Count = 2
    """Passes over a rollout."""
    learning_rate: Positive = 1e-3
    """Learning rate at the start; it falls linearly to 0."""
    gamma: Fraction = 0.97
    """Discount per step."""
    gae_lambda: Fraction = 0.9
    """Lambda of the generalised advantage estimate."""
    entropy: NotNegative = 0.003
    """Weight of the entropy bonus at the start."""
    final_entropy: NotNegative = 0.003
    """The same at the end; it changes linearly."""
    max_grad_norm: Positive = 0.5
    """Clip the gradient norm at this value."""
    save_every: NotNegative = 15.0
    """Seconds of training between two checkpoints."""
    curve_points: Natural = 12
    """Evaluations of the deterministic policy during the training, for its curve; not counted as training time."""
    episodes: Count = 200
    """Episodes for the evaluation of the policy and the baselines, unseen in training; seeds 0 and up."""
    engine: Annotated[str, Choice(("sb3", "rllib"))] = "sb3"
    """Engine: sb3, Stable-Baselines3 in this process; or rllib, PPO of Ray's RLlib, also on several machines."""
    num_env_runners: Natural = 0
    """Processes of --engine rllib that share num_envs and are restarted when lost; 0: all scenes in this process."""
    num_learners: Natural = 0
    """Processes of --engine rllib that share each gradient step; 0: this process."""
    address: str | None = None
    """Address of the Ray cluster for --engine rllib, such as auto or 10.0.0.1:6379. None: a cluster for this run."""

    def __post_init__(self) -> None:
        """Skip the encoder's checks; those of :func:`check` name the options of the command line."""

    @property
    def encoder_config(self) -> EncoderConfig:
        """Options of the encoder."""
        return EncoderConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(EncoderConfig)})

    @property
    def sub_steps(self) -> int:
        """Length of an episode, sub-steps."""
        return self.episode_steps * getattr(self, "decision", 1)

    @property
    def recurrent(self) -> bool:
        """True for a policy with a memory."""
        return getattr(self, "memory", "none") == "recurrent"

    @property
    def credit(self) -> str:
        """Credit assignment: ``"team"`` or ``"difference_rewards"``."""
        differs = getattr(self, "difference_rewards", False) and self.algorithm != "imitation"
        return "difference_rewards" if differs else "team"

    @property
    def nearness(self) -> dict[str, Any]:
        """Options of the environments for the nearest targets that the policy observes; {}: all."""
        return checked_nearness({name: getattr(self, name, None) for name in NEARNESS})

    def rates(self, done: float) -> tuple[float, float]:
        """Return the learning rate and the weight of the entropy bonus after a share of the training, 0 to 1."""
        return self.learning_rate * (1.0 - done), self.entropy + done * (self.final_entropy - self.entropy)


@dataclass(frozen=True)
class CoverageRewardOptions(Options):
    """Train a policy that turns all sensors directly, by PPO from its reward alone."""

    job = "coverage-ppo"
    task = CoverageTask
    task_fields = ("turn_cost", "reward")
    recurrent_defaults: ClassVar[dict[str, Any]] = {
        "features": RECURRENT_FEATURES,
        "teacher": "belief-planner",
        "num_envs": 128,
        "batch_size": 512,
    }
    """Defaults of other options with ``--memory recurrent``."""

    turn_cost: NotNegative = 0.04
    """Cost in the reward if all sensors turn, in units of coverage."""
    reward: Annotated[str, Choice(REWARDS)] = REWARDS[0]
    """Reward; in games of two teams also duel, the game's, or real_coverage, in which only targets with a bounty
    count."""
    per_sensor: bool = False
    """Every sensor learns and acts on its own observation, with shared weights: independent PPO with --encoder mlp,
    else PPO with a centralised critic."""
    memory: Annotated[str, Choice(MEMORIES)] = "none"
    """Memory of the policy: none; or recurrent, a state of every pair, updated by the current observation and learned
    by imitation with --knowledge shared, with other defaults."""
    nearest: Count | None = None
    """Number of nearest targets that each sensor observes. None: all; where the policy is used in a scene of 16384
    pairs or more, the nearest 8 within two sensing ranges."""
    radius: Positive | None = None
    """Maximum distance of these targets, in the scenario's units. None: any."""
    neighbours: Count | None = None
    """Sensors near each sensor that it attends to with --attend-over agents. None: all."""


@dataclass(frozen=True)
class CoverageOptions(CoverageRewardOptions):
    """Train a policy that turns all sensors directly, by imitation of a planner's values of the actions."""

    job = "coverage"
    default_limit = {"minutes": 5.0}
    game_defaults: ClassVar[dict[str, Any]] = {
        "features": BELIEFS,
        "teacher": "belief-planner-fast",
        "planner_turn_cost": 0.02,
        "num_envs": 64,
        "episode_steps": 1300,
    }
    """Defaults of other options in a game of two teams, for a new policy of all sensors without a memory."""

    algorithm: str = "imitation"
    num_envs: int = 256
    batch_size: int = 128
    learning_rate: float = 2e-3
    max_grad_norm: float = 5.0
    attend_over: str = "axes"
    pooling: str = "mean"
    embed_layers: int = 2
    num_blocks: int = 2


@dataclass(frozen=True)
class ExecutorOptions(Options):
    """Train HiT-MAC's executor, shared by all sensors: it turns a sensor towards the targets assigned to it."""

    job = "executor"
    task = ExecutorTask
    task_fields = ("turn_cost", "centring", "goals_every", "goal_share")
    default_limit = {"total_steps": 3_500_000}
    imitation_limit = {"total_steps": 512_000}
    imitation_defaults = {
        "num_envs": 64,
        "features": GOAL_FEATURES,
        "embed_layers": 2,
        "rollout_steps": 32,
        "batch_size": 256,
        "epochs": 1,
        "max_grad_norm": 5.0,
        "goals_every": SUB_STEPS_PER_DECISION,
        "goal_share": 0.8,
        "planner_turn_cost": 0.25,
    }

    scenario: str = ExecutorTask.spec.scenario
    num_envs: int = 256
    features: tuple[str, ...] = ("bearing_sin", "bearing_cos", "bearing", "distance", "in_range", "visible")
    attend_over: str = "targets"
    pooling: str = "mean"
    episode_steps: int = ExecutorTask.spec.episode_steps
    rollout_steps: int = 16
    batch_size: int = 1024
    learning_rate: float = 2e-3
    gamma: float = 0.9
    turn_cost: NotNegative = 0.015
    """Cost of a turn in training; the official task, for evaluation, has 0.01."""
    centring: Fraction = 1.0
    """Loss of reward for a goal at the edge of the view instead of its middle; the paper's is 1."""
    goals_every: Count = 1
    """Steps between two choices of goals."""
    goal_share: Fraction = 1.0
    """Probability that a target in range becomes a goal; the paper's is 1."""
    padding: Padding = "masked"
    """Form of the goals in the observation; attended is the released program's, unfiltered the paper's ablation."""
    row_id: bool = True
    """The feature target_id is the number of the goal's row in training, as in evaluation; no: that of the target, as
    in the released program."""


@dataclass(frozen=True)
class CoordinatorOptions(Options):
    """Train HiT-MAC's coordinator: it assigns targets to sensors; a frozen executor turns them."""

    job = "coordinator"
    task = CoordinatorTask
    default_limit = {"total_steps": 600_000}
    imitation_limit = {"total_steps": 70_400}
    imitation_defaults = {
        "num_envs": 64,
        "features": DEFAULT_FEATURES,
        "embed_layers": 2,
        "batch_size": 64,
        "epochs": 8,
        "idle": AssignPlanned.idle,
    }

    executor: str = "scripted"
    """Executor that turns the sensors: scripted, or the directory of an executor's run or checkpoint."""
    num_envs: int = 256
    features: tuple[str, ...] = FEATURE_SETS["frame"]
    attend_over: str = "axes"
    pooling: str = "mean"
    episode_steps: int = CoordinatorTask.spec.episode_steps
    rollout_steps: int = 8
    batch_size: int = 256
    learning_rate: float = 2e-3
    gamma: float = 0.5
    entropy: float = 0.01
    final_entropy: float = 0.0
    max_grad_norm: float = 5.0
    difference_rewards: bool = True
    """Reward every sensor for its own part of the coverage. No: for the task's reward, as in the paper."""
    idle: Idle = "random"
    """Action of a sensor without assigned targets: random turns, as in the released program, or none."""
    decision: Decision = SUB_STEPS_PER_DECISION
    """Sub-steps for which an assignment holds."""


@dataclass(frozen=True)
class TransportOptions(Options):
    """Train a policy of the targets, shared by all: each carries its cargo past the sensors of an opponent.

    Every target learns from its own part of the reward of the game. In training a move holds for several steps.
    """

    job = "transport"
    task = TransportTask
    task_fields = ("hold", "share")
    imitation_limit = {"total_steps": 400_000}
    imitation_defaults = {
        "num_envs": 16,
        "batch_size": 128,
        "max_grad_norm": 5.0,
        "learning_rate": 2e-3,
        "episode_steps": 2500,
    }

    scenario: str = TransportTask.spec.scenario
    opponent: str = "mate:greedy"
    teacher: str = "evader"
    """Player of the targets to imitate: a rule, another agent's name, or the directory of a run."""
    features: tuple[str, ...] = EntityObserver.features
    weight_dim: int = 32
    pooling: str = "mean"
    num_envs: int = 32
    episode_steps: int = 400
    batch_size: int = 1024
    entropy: float = 0.01
    curve_points: int = 0
    episodes: int = 10
    hold: Count = 4
    """Steps for which a move holds in training."""
    share: Fraction = 0.3
    """Share of the team's mean reward in that of each target in training."""


@dataclass(frozen=True)
class HitMacOptions(RunOptions):
    """Train both levels of HiT-MAC: an executor, then a coordinator with it, and evaluate both together.

    Unlike in the paper, the executor trains on the coordinator's scene, whose targets are slower, with goals that hold
    for a decision and are a random part of the targets in range, and with less reward for centring them. Other options
    have the defaults of the two jobs; to change them, train the executor and then the coordinator.
    """

    job = "hit-mac"
    imitation_defaults: ClassVar[dict[str, Any]] = {"features": "motion", "num_envs": 64}

    executor_minutes: Positive | None = None
    """Maximum training time of the executor, minutes."""
    coordinator_minutes: Positive | None = None
    """Maximum training time of the coordinator, minutes."""
    executor_steps: Count | None = None
    """Maximum of the executor's steps over all sensors; 1500000 without any limit."""
    coordinator_steps: Count | None = None
    """Maximum of the coordinator's decisions over all scenes; 600000 without any limit."""
    algorithm: Annotated[str, Choice(("ppo", "imitation"))] = "ppo"
    """Learning algorithm of both levels: from reward, or imitation of a planner, with default limits of 512000 steps
    for the executor and 70400 for the coordinator."""
    features: Annotated[str, Choice(FEATURE_SETS)] = "frame"
    """Set of features: frame, of a single frame; hit-mac, the paper's; motion, the default with imitation, which adds
    velocities for the coordinator and an executor that imitates."""
    num_envs: NumEnvs = 256
    """Number of parallel scenes."""
    weight_dim: Count = 64
    """Width of the encoders."""
    episodes: Count = 200
    """Episodes for the evaluation, unseen in training; seeds 0 and up."""


@dataclass(frozen=True)
class DuelOptions(RunOptions):
    """Train both teams of a duel in turn, each against a growing population of policies of the other team."""

    job: ClassVar[str] = "duel"

    scenario: str = "mate-4v8-9"
    iterations: Count = 4
    """Number of iterations, in each of which the targets are trained, then the sensors."""
    total_steps: Count = 500_000
    """Environment steps of each training, over all scenes; for targets over all targets."""
    sensors: str = "mate:greedy"
    """First agents of the population of sensors: a name, A=0.5+B=0.5, or the directory of another duel."""
    targets: str = "greedy"
    """First agents of the population of targets."""
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
    spec = task.spec
    bases = {
        "agent": Options,
        "executor": ExecutorOptions,
        "coordinator": CoordinatorOptions,
        "targets": TransportOptions,
    }
    fields = {"scenario": spec.scenario, "episode_steps": spec.episode_steps, **spec.options}
    return dataclasses.make_dataclass(
        f"{spec.name}Options",
        [(name, type(value), value) for name, value in fields.items()],
        bases=(bases[spec.role],),
        frozen=True,
        namespace={"__doc__": f"Train a policy: {spec.summary}.", "job": spec.name.lower(), "task": task},
    )


JOBS: dict[str, type[Options]] = {
    job.job: job
    for job in (CoverageOptions, CoverageRewardOptions, ExecutorOptions, CoordinatorOptions, TransportOptions)
}
"""Jobs that train one policy, by name."""

JOBS |= {task.spec.name.lower(): default_job(task) for name, task in TASKS.items() if name.lower() not in JOBS}

Job = Options | HitMacOptions | DuelOptions
AnyJob = TypeVar("AnyJob", bound=Job)


# Defaults that depend on other options and on the scene.

EXECUTOR_STEPS = 1_500_000
"""Default length of the executor's training in `hit-mac`, steps over all sensors."""

HIT_MAC_EXECUTOR = {"goals_every": SUB_STEPS_PER_DECISION, "goal_share": 0.8, "centring": 0.2, "turn_cost": 0.03}
"""Options of the executor's task in `hit-mac` that differ from the paper's."""

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
    text = [part for one in arguments for part in (one.split("=", 1) if one.startswith("--seeds=") else (one,))]
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
        if not scenario.warehouses:
            raise ValueError(f"--scenario is {scenario.name}, which has no warehouses; two teams play in mate-4v8-9")
        return asked
    start, memory = getattr(asked, "start", None), getattr(asked, "memory", "none")
    defaults: Any = with_defaults(type(asked), asked.algorithm, memory, start)
    believes = scenario.knowledge in ("full", "shared") and memory == "none" and not getattr(asked, "per_sensor", False)
    game: dict[str, Any] = getattr(asked, "game_defaults", {}) if scenario.warehouses and believes else {}
    if game and start is None and asked.algorithm == "imitation":
        defaults = dataclasses.replace(defaults, **game)
    elif start is None and defaults.features == DEFAULT_FEATURES:
        features = FEATURE_SETS["site"] if scenario.has_obstacles else DEFAULT_FEATURES
        defaults = dataclasses.replace(defaults, features=features + ("value",) * scenario.has_values)
    options: AnyJob = dataclasses.replace(defaults, **{name: getattr(asked, name) for name in given})
    return scaled(options, scenario, given)


def with_defaults(kind: type[AnyJob], algorithm: str, memory: str = "none", start: str | None = None) -> AnyJob:
    """Return a job's default options for an algorithm, a memory and the policy `start`."""
    changes = getattr(kind, "imitation_defaults", {}) if algorithm == "imitation" else {}
    if start is not None:
        assert issubclass(kind, Options)
        network = network_of(start, kind.task.spec.name)
        memory, changes = network.get("memory", memory), changes | {"start": start} | network
    if memory != "none":
        changes = getattr(kind, "recurrent_defaults", {}) | {"memory": memory} | changes
    return kind(**{"algorithm": algorithm} | changes)


def with_limits(options: Any) -> Any:
    """Return the options with a limit: the job's default if they have none."""
    if options.minutes is not None or options.total_steps is not None:
        return options
    limit = options.imitation_limit if options.algorithm == "imitation" else {}
    return dataclasses.replace(options, **(limit or options.default_limit))


def scaled(options: AnyJob, scenario: Scenario | None, given: Collection[str] = ()) -> AnyJob:
    """Return options with sizes for a scenario, except those given: the more pairs, the fewer scenes.

    This bounds time and memory: no step of all scenes and no gradient step has more pairs than with :data:`PAIRS` pairs
    in a scene.
    """
    job: Any = options
    if scenario is None or job.algorithm not in PAIRS:  # refused later
        return options
    most = PAIRS[job.algorithm]
    targets = min(getattr(job, "nearest", None) or scenario.num_targets, scenario.num_targets)
    shares, sizes = {"num_envs": (share := most / (scenario.num_sensors * targets))}, {}
    if isinstance(options, Options):
        rows_are_sensors = getattr(job, "per_sensor", False) or job.task.spec.role in ("executor", "targets")
        shares["batch_size"] = most / _SENSORS / targets if rows_are_sensors else share
    for name, part in shares.items():
        if name not in given and part < 1:
            size = getattr(job, name)
            sizes[name] = max(int(size * part) // _MULTIPLE * _MULTIPLE, min(size, _MULTIPLE))
    learns_after_every_step = isinstance(options, Options) and job.algorithm == "imitation" and not job.recurrent
    if learns_after_every_step and share < 1 and "rollout_steps" not in given:
        sizes["rollout_steps"] = max(min(_SHORTEST, job.rollout_steps), int(job.rollout_steps * share))
    return dataclasses.replace(options, **sizes)


def levels(
    options: HitMacOptions, run_dir: Path, scenario: Scenario | None = None
) -> tuple[ExecutorOptions, CoordinatorOptions]:
    """Return the options of the two jobs of ``hit-mac``, with runs in `run_dir` and sizes for the scenario."""
    names = ("scenario", "seed", "num_envs", "weight_dim", "episodes", "device")
    shared: dict[str, Any] = {name: getattr(options, name) for name in names}
    if options.features == "hit-mac":
        shared |= {"features": FEATURE_SETS["hit-mac"], "embed_layers": 2, "num_frequencies": 4}
    own: dict[str, Any] = {"minutes": options.executor_minutes, "total_steps": options.executor_steps}
    if options.algorithm != "imitation":
        own |= HIT_MAC_EXECUTOR
        if options.executor_steps is None and options.executor_minutes is None:
            own["total_steps"] = EXECUTOR_STEPS
    if options.features == "frame":
        own["features"] = ExecutorOptions.features
    executor = scaled(with_defaults(ExecutorOptions, options.algorithm), scenario)
    coordinator = scaled(with_defaults(CoordinatorOptions, options.algorithm), scenario)
    return dataclasses.replace(executor, run_dir=run_dir / "executor", **(own | shared)), dataclasses.replace(
        coordinator,
        executor=str(run_dir / "executor"),
        minutes=options.coordinator_minutes,
        total_steps=options.coordinator_steps,
        run_dir=run_dir / "coordinator",
        **({"features": FEATURE_SETS[options.features]} | shared),
    )


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
    if config.role == "agent" and scenario is not None and decisions != scenario.decisions:
        raise ValueError(
            f"--start is {start}, a policy with the decisions {', '.join(decisions)}; the scenario {scenario.name!r} "
            f"needs {', '.join(scenario.decisions)}"
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
        errors.append(ValueError("--ray is for several trainings; it needs --seeds or --set"))
    if isinstance(options, DuelOptions):
        if options.is_group:
            errors.append(ValueError("--seeds and --set are for single policies; run the job duel once for each seed"))
        validation.raise_together(errors)
        return
    if isinstance(options, HitMacOptions):
        for level in () if errors else levels(options, Path()):
            with validation.collect(errors):
                check(level)
        validation.raise_together(errors)
        return
    found = [(name, what) for name, what in options.problems().items() if name not in invalid]
    errors += [ValueError(f"{flag(name)} is {getattr(options, name)}; {what}") for name, what in found]
    with validation.collect(errors):
        check_features(options.features)
    with validation.collect(errors):
        checked_device(options.device, flag("device"))
    for name, what in () if errors else _conflicts(options):
        value = getattr(options, name)
        shown = " ".join(value) if isinstance(value, tuple) else value
        errors.append(ValueError(f"{flag(name)} is {shown}; {what}"))
    validation.raise_together(errors)


FIXED_FOR_TARGETS = {
    **{name: value for name, value in dataclasses.asdict(EncoderConfig()).items() if name not in ENTITY_OPTIONS},
    "engine": "sb3",
    "critic": None,
    "curve_points": 0,
}
"""Options with a single value for policies of targets."""


def _conflicts(options: Options) -> Iterator[tuple[str, str]]:
    """Yield the options that conflict with others, each with the reason."""
    rllib, recurrent, batch = options.engine == "rllib", options.recurrent, options.batch_size
    missing = rllib and None in map(importlib.util.find_spec, ("ray", "tree"))
    wrong, runners, group = rllib and options.algorithm != "ppo", options.num_env_runners, options.is_group
    shown = [name for name in NEARNESS if getattr(options, name, None) is not None]
    remembered = recurrent and options.features != RECURRENT_FEATURES
    unknown = options.task.spec.role != "targets" and options.teacher.split(":")[0] not in TEACHERS
    targets, entities = options.task.spec.role == "targets", options.features == EntityObserver.features
    rules: list[tuple[Any, str, str]] = [
        (not rllib and runners, "num_env_runners", "it needs --engine rllib"),
        (not rllib and options.num_learners, "num_learners", "it needs --engine rllib"),
        (not rllib and options.address, "address", "it needs --engine rllib"),
        (missing, "engine", "it needs Ray: pip install 'hitmac[rllib]'"),
        (wrong, "algorithm", "--engine rllib needs ppo: add --algorithm ppo, or use the job coverage-ppo"),
        (rllib and options.credit != "team", "difference_rewards", "it must be False with --engine rllib"),
        (rllib and runners > options.num_envs, "num_env_runners", f"it must not exceed --num-envs, {options.num_envs}"),
        (rllib and options.num_learners > batch, "num_learners", f"it must not exceed --batch-size, {batch}"),
        (rllib and options.ray, "ray", "a training with --engine rllib has its own cluster, at --address"),
        (rllib and group and options.address, "address", "each of several trainings has its own cluster"),
        (recurrent and options.algorithm != "imitation", "algorithm", "a memory is learned by imitation"),
        (recurrent and getattr(options, "per_sensor", False), "memory", "it does not combine with --per-sensor"),
        (remembered, "features", "with --memory recurrent they must be left out"),
        (recurrent and options.weight_dim % 2, "weight_dim", "it must be even with --memory recurrent"),
        *((shown and "nearest" not in shown, name, "it needs --nearest") for name in shown),
        (unknown, "teacher", f"it must be one of {', '.join(TEACHERS)}"),
        (entities != targets, "features", "targets, and only they, learn on entities"),
        *(
            (targets and getattr(options, name) != value, name, f"for targets it must be {value}")
            for name, value in FIXED_FOR_TARGETS.items()
        ),
    ]
    yield from ((name, reason) for refused, name, reason in rules if refused)
    if "nearest" in shown:
        if recurrent or tuple(options.features) == BELIEFS:
            yield "nearest", "a policy with a memory or beliefs observes all targets"
        try:
            check_lists(options.encoder_config)
        except ValueError as error:
            yield "nearest", str(error)


def check_on(options: Options, scenario: Scenario) -> None:
    """Raise ValueError for options that conflict with the scenario, the policy to start from or the executor."""
    if options.start is not None:
        network = network_of(options.start, options.task.spec.name, scenario)
        for name, value in network.items():
            if getattr(options, name) != value:
                raise ValueError(f"{flag(name)} is {getattr(options, name)}; that of {options.start} is {value}")
    features = check_features(options.features)
    targets, reward = options.task.spec.role == "targets", getattr(options, "reward", REWARDS[0])
    if (targets or options.opponent is not None or reward != REWARDS[0]) and not scenario.warehouses:
        raise ValueError(f"scenario is {scenario.name!r}, which has no warehouses; two teams play in mate-4v8-9")
    if options.opponent is not None:
        load_opponent(options.opponent, scenario, "sensors" if targets else "targets")
    if options.algorithm == "imitation" and targets:
        load_opponent(options.teacher, scenario, "targets")
    elif options.algorithm == "imitation":
        scripted_agent(options.teacher, in_place(scenario))
    if features == BELIEFS or not scenario.identities:
        if options.task.spec.role != "agent" or getattr(options, "per_sensor", False):
            given = "--features is beliefs" if features == BELIEFS else "identities is false"
            raise ValueError(f"{given}; only a policy that turns all sensors directly can learn on it")
        BeliefObserver(scenario, features)
    if options.recurrent and scenario.knowledge != "shared":
        raise ValueError(
            f"--memory is recurrent, and the knowledge {scenario.knowledge}; it must be shared to learn a memory"
        )
    if isinstance(options, CoordinatorOptions):
        executor = options.executor
        load_executor(executor, scenario)
        if executor != "scripted" and (executor in EXECUTORS or not Path(executor).is_dir()):
            raise ValueError(f"--executor is {executor}; it must be scripted or the directory of a run or checkpoint")
