"""Jobs of train.py: their options."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from hitmac.agents.baselines.levels import EXECUTORS, AssignPlanned
from hitmac.agents.device import checked_device
from hitmac.agents.learned.recurrent_policy import MEMORIES, RECURRENT_FEATURES
from hitmac.agents.registry import load_executor
from hitmac.agents.training.nearest import NearestOptions
from hitmac.agents.training.roles import AgentJob, CoordinatorJob, ExecutorJob, Job
from hitmac.agents.training.start import network_of
from hitmac.agents.training.teaching import ImitationOptions
from hitmac.envs.assigned_observation import PADDINGS
from hitmac.envs.errors import collect, raise_together
from hitmac.envs.observation import DEFAULT_FEATURES, FEATURE_SETS
from hitmac.envs.ranges import Choice, Count, Fraction, NotNegative, Range
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import (
    IDLE,
    LONGEST_DECISION,
    SUB_STEPS_PER_DECISION,
    TASKS,
    CoordinatorTask,
    CoverageTask,
    ExecutorTask,
    Task,
)
from hitmac.perception.checks import is_whole

AnyJob = TypeVar("AnyJob", bound=Job)
AnyOptions = TypeVar("AnyOptions")

GOAL_FEATURES = tuple(name for name in DEFAULT_FEATURES if name != "others_seeing")
"""The default features without the one that tells of other sensors, for an executor, which sees its goals only."""


@dataclass(frozen=True)
class CoverageOptions(ImitationOptions, NearestOptions, AgentJob):
    """Train a policy that turns all sensors directly, to imitate a planner's values of its actions."""

    job = "coverage"
    task = CoverageTask
    default_limit = {"minutes": 5.0}
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

    def check(self) -> None:
        """See :meth:`Options.check`."""
        errors: list[Exception] = []
        with collect(errors):
            super().check()
        if self.memory == "recurrent":
            errors += map(ValueError, self._memory_problems())
        raise_together(errors)

    def check_on(self, scenario: Scenario) -> None:
        """See :meth:`Options.check_on`."""
        super().check_on(scenario)
        if self.memory == "recurrent" and scenario.knowledge != "shared":
            raise ValueError(
                f"--memory is recurrent, and the knowledge {scenario.knowledge}; to learn a memory it must be shared "
                "(--knowledge shared)"
            )

    def _memory_problems(self) -> Iterator[str]:
        if self.algorithm != "imitation":
            yield f"--memory is recurrent, and --algorithm {self.algorithm}; a memory is learned by imitation"
        if self.per_sensor:
            yield "--memory is recurrent; it is for a policy of all sensors, without --per-sensor"
        if self.features != RECURRENT_FEATURES:
            yield (
                f"--features is {' '.join(self.features)}; with --memory recurrent they must be left out, and are "
                f"{' '.join(RECURRENT_FEATURES)}"
            )
        if is_whole(self.weight_dim, 1) and self.weight_dim % 2:
            yield f"--weight-dim is {self.weight_dim}; with --memory recurrent it must be even"

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """See :meth:`Options.environment_options`."""
        return super().environment_options(scenario) | {"turn_cost": self.turn_cost}


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
class ExecutorOptions(ImitationOptions, ExecutorJob):
    """Train HiT-MAC's executor, shared by all sensors: it turns a sensor towards the targets assigned to it."""

    job = "executor"
    task = ExecutorTask
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
    padding: Annotated[str, Choice(PADDINGS)] = "masked"
    """Form in which goals are shown; attended is that of the released program, unfiltered the paper's ablation."""
    row_id: bool = True
    """The feature target_id holds the number of the goal's row, as it does where the executor is used; no: the target's
    own in training, as in the released program."""

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """See :meth:`Options.environment_options`."""
        names = ("turn_cost", "centring", "goals_every", "goal_share")
        return super().environment_options(scenario) | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class CoordinatorOptions(ImitationOptions, CoordinatorJob):
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
    idle: Annotated[str, Choice(IDLE)] = "random"
    """Action of a sensor with nothing assigned: random turns, as in the released program, or none."""
    decision: Annotated[int, Range(1, LONGEST_DECISION)] = SUB_STEPS_PER_DECISION
    """Sub-steps for which an assignment holds."""

    def check_on(self, scenario: Scenario) -> None:
        """See :meth:`Options.check_on`."""
        super().check_on(scenario)
        load_executor(self.executor, scenario)
        if self.executor != "scripted" and (self.executor in EXECUTORS or not Path(self.executor).is_dir()):
            raise ValueError(
                f"--executor is {self.executor}; it must be scripted or the directory of a run or checkpoint"
            )

    @property
    def sub_steps(self) -> int:
        """See :attr:`Options.sub_steps`."""
        return self.episode_steps * self.decision

    @property
    def credit(self) -> str:
        """See :attr:`Options.credit`."""
        return "difference_rewards" if self.difference_rewards and self.algorithm != "imitation" else "team"

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """See :meth:`Options.environment_options`."""
        with checked_device(self.device):
            executor, _ = load_executor(self.executor, scenario)
        return super().environment_options(scenario) | {
            "executor": "scripted" if self.executor == "scripted" else executor.policy,  # that one is compiled
            "executor_features": executor.features,
            "padding": executor.padding,
            "credit": self.credit,
        }


def default_job(task: type[Task]) -> type[Job]:
    """Return a job for a task that has none of its own, with the options of its role and of its spec."""
    spec = task.spec
    roles: dict[str, type[Job]] = {"agent": AgentJob, "executor": ExecutorOptions, "coordinator": CoordinatorOptions}
    fields = {"scenario": spec.scenario, "episode_steps": spec.episode_steps, **spec.options}
    return dataclasses.make_dataclass(
        f"{spec.name}Options",
        [(name, type(value), value) for name, value in fields.items()],
        bases=(roles[spec.role],),
        frozen=True,
        namespace={
            "__doc__": f"Train a policy: {spec.summary}.",
            "job": spec.name.lower(),
            "task": task,
        },
    )


_OWN: tuple[type[Job], ...] = (CoverageOptions, CoverageRewardOptions, ExecutorOptions, CoordinatorOptions)

JOBS: dict[str, type[Job]] = {job.job: job for job in _OWN} | {
    task.spec.name.lower(): default_job(task) for task in TASKS.values() if task not in [job.task for job in _OWN]
}
"""Jobs that train one policy, by name."""


def with_limits(options: AnyJob) -> AnyJob:
    """Return the options with the job's default limit if they have none."""
    if options.minutes is not None or options.total_steps is not None:
        return options
    limit = options.default_limit
    if isinstance(options, ImitationOptions) and options.algorithm == "imitation":
        limit = options.imitation_limit or limit
    return dataclasses.replace(options, **limit)


def with_defaults(kind: type[AnyOptions], algorithm: str, memory: str = "none", start: str | None = None) -> AnyOptions:
    """Return the default options of a job that learns by an algorithm, with a memory, from the weights of `start`."""
    changes = getattr(kind, "imitation_defaults", {}) if algorithm == "imitation" else {}
    if start is not None:
        assert issubclass(kind, Job)
        taken = network_of(start, kind.task.spec.name)
        memory, changes = taken.get("memory", memory), changes | {"start": start} | taken
    if memory != "none":
        changes = getattr(kind, "recurrent_defaults", {}) | {"memory": memory} | changes
    return kind(**{"algorithm": algorithm} | changes)
