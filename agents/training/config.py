"""Options of the trainings, a flat dataclass for each job; their defaults, and what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from hitmac.agents.baselines.levels import AssignPlanned
from hitmac.agents.baselines.planner import PlanningPolicy
from hitmac.agents.learned.policy import CRITICS
from hitmac.agents.learned.recurrent import MEMORIES, RECURRENT_FEATURES
from hitmac.agents.policy import NEARNESS, checked_nearness
from hitmac.agents.registry import SCRIPTED
from hitmac.envs.observation import DEFAULT_FEATURES, FEATURE_SETS
from hitmac.envs.scenario import KNOWLEDGE
from hitmac.envs.tasks import (
    LONGEST_DECISION,
    SUB_STEPS,
    SUB_STEPS_PER_DECISION,
    TASKS,
    CoordinatorTask,
    CoverageTask,
    ExecutorTask,
    Idle,
    Task,
)
from hitmac.envs.tasks.executor import Padding
from hitmac.envs.validation import (
    Choice,
    Count,
    Fraction,
    Natural,
    NotNegative,
    Positive,
    Range,
)
from hitmac.perception import EncoderConfig

MAX_ENVS = 2**16

Seed = Annotated[int, Range(0, 1_000_000)]
NumEnvs = Annotated[int, Range(1, MAX_ENVS)]

ENGINES = ("sb3", "rllib")
"""Engines by name: Stable-Baselines3 in this process, Ray's RLlib in several processes and on several machines."""

TEACHERS = tuple(name for name, agent in SCRIPTED.items() if issubclass(agent, PlanningPolicy))
"""Agents that a policy can imitate, by name."""

GOAL_FEATURES = tuple(name for name in DEFAULT_FEATURES if name != "others_seeing")
"""The default features without the one that tells of other sensors, for an executor, which sees its goals only."""


@dataclass(frozen=True)
class RunOptions:
    """Options of every training."""

    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    knowledge: Annotated[str, Choice(KNOWLEDGE)] | None = None
    """What sensors know of the targets: full, where all are; shared, what any sees; neighbours or own. None: as the
    scenario says."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks that the targets follow, in place of the scenario's; each episode follows one of
    them."""
    seed: Seed = 0
    """Seed of networks and scenes."""
    seeds: Count = 1
    """Trainings, with the seeds from seed up; of several, each is a run of its own in run_dir/seed-SEED. On the command
    line also as 0..9."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option to vary, such as pooling=sum,mean; may be given several times, for all combinations. Each is trained with
    every seed, in run_dir/pooling-sum/seed-SEED."""
    processes: Count | None = None
    """Trainings side by side, if there are several; they share the cores. None: as many as there are cores."""
    ray: str | None = None
    """Address of a Ray cluster that trains them instead, such as auto or 10.0.0.1:6379; local starts one. run_dir
    must lie where all its machines reach it by the same path."""
    device: str = "cpu"
    """Device of the networks: cpu, cuda, cuda:1, or auto, an accelerator if there is one. Scenes and planners are
    always on the CPU, and small networks are often faster there."""
    run_dir: Path | None = None
    """Directory of the results, which must not exist. None: runs/ and the date and time."""
    resume: bool = False
    """Go on with the run in run_dir, from its last checkpoint and with its options."""

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
    """Options of the task in training, in addition to those that its :class:`hitmac.envs.tasks.TaskSpec` lists."""
    default_limit: ClassVar[dict[str, Any]] = {"minutes": 9.0}
    imitation_limit: ClassVar[dict[str, Any]] = {}
    """Default limit with ``--algorithm imitation``; {}: that of the job."""
    imitation_defaults: ClassVar[dict[str, Any]] = {}
    """Defaults of other options with ``--algorithm imitation``."""

    minutes: Positive | None = None
    """Longest training time, minutes. With neither limit a coverage policy is trained for 5 minutes (9 by PPO), an
    executor for 3500000 steps, a coordinator for 600000."""
    total_steps: Count | None = None
    """Most environment steps over all scenes (of executors: over all sensors); a run limited by it alone is
    repeatable."""
    num_envs: NumEnvs = 512
    """Scenes simulated side by side."""
    start: str | None = None
    """Directory of a run, or a pretrained policy such as pretrained:any-size, whose weights the training starts from,
    and whose features and network it takes over. None: random weights."""
    features: tuple[str, ...] = DEFAULT_FEATURES
    """Observation features: the name of a set (hit-mac: the paper's; frame: those of a single frame;
    motion: velocities too; last-known: ages too), beliefs (of particles that say where a target may be), or names; a
    wrong one lists the known."""
    algorithm: Annotated[str, Choice(("imitation", "ppo", "a2c"))] = "ppo"
    """Learning algorithm: imitation of a planner, with some other defaults for a level of the hierarchy; or from reward
    alone: ppo, or a2c, the synchronous form of the paper's A3C, which knows no batch_size and no epochs."""
    teacher: Annotated[str, Choice(TEACHERS)] = "planner"
    """Planner to imitate."""
    planner_turn_cost: NotNegative = 0.1
    """Cost of a sub-step of turning in the planner's plans, in targets covered for a sub-step: the higher, the less the
    policy turns."""
    temperature: Positive = 0.1
    """Temperature of the distribution over actions that the planner's values are turned into, in targets covered for a
    sub-step."""
    critic: Annotated[str, Choice(CRITICS)] | None = None
    """Critic. None: amc for a coordinator, value_head for the others."""
    episode_steps: Count = SUB_STEPS
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
    """Evaluations of the deterministic policy during the training, for the curve. Each takes a second or
    two, which do not count as training time."""
    episodes: Count = 200
    """Fresh episodes that the policy and the baselines are evaluated on; seeds 0 and up."""
    engine: Annotated[str, Choice(ENGINES)] = "sb3"
    """Engine: sb3, Stable-Baselines3 in this process; or rllib, Ray's RLlib, by PPO, whose scenes and gradient steps
    may be on several machines."""
    num_env_runners: Natural = 0
    """Processes of --engine rllib that share num_envs; 0: all scenes are in this process. One that is lost is started
    again."""
    num_learners: Natural = 0
    """Processes of --engine rllib that share each gradient step; 0: it is taken in this process."""
    address: str | None = None
    """Address of the Ray cluster for --engine rllib, such as auto or 10.0.0.1:6379. None: one on this machine, for
    this run only."""

    def __post_init__(self) -> None:
        """Leave the checks to :func:`check`, so that errors name the options of the command line."""

    @property
    def encoder_config(self) -> EncoderConfig:
        """Options of the encoder."""
        return EncoderConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(EncoderConfig)})

    @property
    def max_seconds(self) -> float | None:
        """Longest training time, seconds; None: no limit."""
        return None if self.minutes is None else 60 * self.minutes

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
        """Options of the environments for the nearest targets that the policy is shown; {}: all."""
        return checked_nearness({name: getattr(self, name, None) for name in NEARNESS})

    def rates(self, done: float) -> tuple[float, float]:
        """Return the learning rate and the weight of the entropy bonus when this share of the training is done."""
        return self.learning_rate * (1.0 - done), self.entropy + done * (self.final_entropy - self.entropy)


@dataclass(frozen=True)
class CoverageOptions(Options):
    """Train a policy that turns all sensors directly, to imitate a planner's values of its actions."""

    job = "coverage"
    task = CoverageTask
    default_limit = {"minutes": 5.0}
    task_fields = ("turn_cost",)
    recurrent_defaults: ClassVar[dict[str, Any]] = {
        "features": RECURRENT_FEATURES,
        "teacher": "belief-planner",
        "num_envs": 128,
        "batch_size": 512,
    }
    """Defaults of other options with ``--memory recurrent``."""

    algorithm: str = "imitation"
    num_envs: int = 256
    batch_size: int = 128
    learning_rate: float = 2e-3
    max_grad_norm: float = 5.0
    attend_over: str = "axes"
    pooling: str = "mean"
    embed_layers: int = 2
    num_blocks: int = 2
    turn_cost: NotNegative = 0.04
    """Cost in the reward if all sensors turn, in units of coverage."""
    per_sensor: bool = False
    """Every sensor learns and acts on what it observes itself, with shared weights; with --encoder mlp this is
    independent PPO, and without it PPO with a centralised critic."""
    memory: Annotated[str, Choice(MEMORIES)] = "none"
    """Memory of the policy: none, or recurrent, a state of every pair that is fed with what is seen now; it learns by
    imitation what to remember, where sensors share what they see, and has some other defaults."""
    nearest: Count | None = None
    """Targets that each sensor is shown, the nearest ones, in training and use. None: all in training; in use those of
    a scene of 16384 pairs or more are the nearest 8 within two sensing ranges."""
    radius: Positive | None = None
    """Farthest distance of these targets, in the scenario's units. None: any."""
    neighbours: Count | None = None
    """Sensors near each sensor that it attends to with --attend-over agents. None: all."""


@dataclass(frozen=True)
class CoverageRewardOptions(CoverageOptions):
    """Train a policy that turns all sensors directly, by PPO from its reward alone."""

    job = "coverage-ppo"
    default_limit = {"minutes": 9.0}

    algorithm: str = "ppo"
    num_envs: int = 512
    batch_size: int = 512
    learning_rate: float = 1e-3
    max_grad_norm: float = 0.5
    attend_over: str = "agents"
    pooling: str = "sum"
    embed_layers: int = 1
    num_blocks: int = 1


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
    """Loss of reward if a goal is seen at the edge of the view instead of in its middle; the paper's, and the
    official task's, is 1."""
    goals_every: Count = 1
    """Steps between two choices of goals."""
    goal_share: Fraction = 1.0
    """Chance that a target in range becomes a goal; the paper's, and the official task's, is 1."""
    padding: Padding = "masked"
    """Form in which goals are shown; attended is that of the released program, unfiltered the paper's ablation."""
    row_id: bool = True
    """The feature target_id holds the number of the goal's row, as it does where the executor is used; no: the target's
    own in training, as in the released program."""


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
        "max_grad_norm": 5.0,
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
    """Credit assignment by difference rewards: every sensor is judged by what it adds to the coverage. No: all by the
    task's reward, as in the paper."""
    idle: Idle = "random"
    """Action of a sensor with nothing assigned: random turns, as in the released program, or none."""
    decision: Annotated[int, Range(1, LONGEST_DECISION)] = SUB_STEPS_PER_DECISION
    """Sub-steps for which an assignment holds."""


@dataclass(frozen=True)
class HitMacOptions(RunOptions):
    """Train both levels of HiT-MAC: an executor, then a coordinator with it, and evaluate both together.

    The executor learns for how it will be used and not as in the paper: on the coordinator's scene, where targets move
    more slowly; with goals that hold for a decision and are a part of what is in range; and for seeing its goals rather
    than for having them in the middle. With --algorithm imitation both levels imitate the planner instead. Ctrl-C ends
    the run; --resume goes on with it.

    What is not here keeps the default of the two jobs; train them one after the other to change it.
    """

    job = "hit-mac"
    imitation_defaults: ClassVar[dict[str, Any]] = {"features": "motion", "num_envs": 64}

    executor_minutes: Positive | None = None
    """Longest training of the executor, minutes."""
    coordinator_minutes: Positive | None = None
    """Longest training of the coordinator, minutes."""
    executor_steps: Count | None = None
    """Most steps of the executor's training, over all sensors; 1500000 if there is no limit."""
    coordinator_steps: Count | None = None
    """Most decisions of the coordinator's training, over all scenes; 600000 if there is no limit."""
    algorithm: Annotated[str, Choice(("ppo", "imitation"))] = "ppo"
    """Learning algorithm of both levels: from reward alone, or imitation of a planner, with default limits of
    512000 steps for the executor and 70400 for the coordinator."""
    features: Annotated[str, Choice(FEATURE_SETS)] = "frame"
    """Set of features: frame: those of a single frame; hit-mac: the paper's; motion, the default with imitation: the
    coordinator sees velocities too, and so does an executor that imitates."""
    num_envs: NumEnvs = 256
    """Scenes simulated side by side."""
    weight_dim: Count = 64
    """Width of the encoders."""
    episodes: Count = 200
    """Fresh episodes that they are evaluated on; seeds 0 and up."""


def default_job(task: type[Task]) -> type[Options]:
    """Return a job for a task that has none of its own, with the options of its role and of its spec."""
    spec = task.spec
    bases = {"agent": Options, "executor": ExecutorOptions, "coordinator": CoordinatorOptions}
    fields = {"scenario": spec.scenario, "episode_steps": spec.episode_steps, **spec.options}
    return dataclasses.make_dataclass(
        f"{spec.name}Options",
        [(name, type(value), value) for name, value in fields.items()],
        bases=(bases[spec.role],),
        frozen=True,
        namespace={"__doc__": f"Train a policy: {spec.summary}.", "job": spec.name.lower(), "task": task},
    )


_OWN: tuple[type[Options], ...] = (CoverageOptions, CoverageRewardOptions, ExecutorOptions, CoordinatorOptions)

JOBS: dict[str, type[Options]] = {job.job: job for job in _OWN} | {
    task.spec.name.lower(): default_job(task) for task in TASKS.values() if task not in [job.task for job in _OWN]
}
"""Jobs that train one policy, by name."""

Job = Options | HitMacOptions
