"""Base classes of the jobs, by the role of the policy: each knows how its policy is evaluated, shown and filmed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS, AssignPlanned
from hitmac.agents.evaluate import evaluate, evaluate_executors, save_pictures
from hitmac.agents.evaluate.film import released_reward
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig, checked_device
from hitmac.agents.learned.recurrent import MEMORIES, RECURRENT_FEATURES
from hitmac.agents.policy import Policy, digest
from hitmac.agents.registry import Agent, Executor, as_agent, as_level, load_agent, load_executor, load_run
from hitmac.agents.training.config import ImitationOptions, NearestOptions, Options, network_of
from hitmac.envs.observation import DEFAULT_FEATURES, FEATURE_SETS, PADDINGS
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
from hitmac.envs.validation import Choice, Count, Fraction, NotNegative, Range, collect, raise_together
from hitmac.perception.checks import is_whole

BASELINES = ("random", "still", "nearest", "greedy", "planner")
"""Agents that every agent is compared with."""

TRAINED = "trained"
"""Name of the policy of the run in its evaluation."""


class Job(Options):
    """Base class of the jobs that train one policy."""

    metric: ClassVar[str] = "coverage"
    """Metric of the training's curve."""

    def trained(self, policy: Policy, config: PolicyConfig) -> Agent | LevelPolicy:
        """Return the policy in training, as an agent or as a level for an executor."""
        raise NotImplementedError

    def evaluate(self, scenario: Scenario, others: Sequence[Self] = (), names: Sequence[str] = ()) -> dict[str, Any]:
        """Evaluate the policy of the run in `run_dir` beside the baselines.

        `others` are the other trainings of a group, and `names` the names of all, this one first; by default all are
        trainings of one agent, with other seeds, as those of the same name are.
        """
        raise NotImplementedError

    def _named(self, others: Sequence[Self], names: Sequence[str]) -> Iterator[tuple[Self, str]]:
        """Return this training and the others, each with its name."""
        return zip((self, *others), names or [TRAINED] * (1 + len(others)), strict=True)

    def filmed(self, run_dir: Path, scenario: Scenario) -> Agent:
        """Return the agent that shows the policy of a run in a film."""
        raise NotImplementedError

    def save_pictures(self, run_dir: Path, scenario: Scenario, evaluation: Mapping[str, Any], note: str = "") -> None:
        """Write tables and figures of the evaluation, if the role has any; the note follows the tables."""

    def references(self, scenario: Scenario, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results of others, by name, that the curve is drawn with."""
        return {name: result for name, result in evaluation["agents"].items() if name != TRAINED}


class AgentJob(Job):
    """Job that trains an agent, which is evaluated by its coverage."""

    default_limit: ClassVar[dict[str, Any]] = {"minutes": 9.0}

    def trained(self, policy: Policy, config: PolicyConfig) -> Agent:
        """See :meth:`Job.trained`."""
        executor = self.own_executor(config.scenario)
        return as_agent(policy, config, config.scenario, name=TRAINED, executor=executor)

    def own_executor(self, scenario: Scenario) -> Executor | None:
        """Return the executor that the policy needs to act; None for a policy that turns the sensors itself."""
        return None

    def baselines(self, scenario: Scenario) -> list[Agent]:
        """Return the agents to compare with."""
        return [load_agent(name, scenario) for name in BASELINES]

    def evaluate(self, scenario: Scenario, others: Sequence[Self] = (), names: Sequence[str] = ()) -> dict[str, Any]:
        """See :meth:`Job.evaluate`."""
        agents: list[Agent] = []
        for job, name in self._named(others, names):
            assert job.run_dir is not None
            for agent in (job.filmed(job.run_dir, scenario)._replace(name=name), *job.baselines(scenario)):
                if agent.trained and name not in (TRAINED, agent.name):  # a rule with the training's executor
                    agent = agent._replace(name=f"{agent.name} {name}")
                same = [one for one in agents if one.name == agent.name]
                if not same or (agent.trained and digest(agent.policy) not in [digest(one.policy) for one in same]):
                    agents.append(agent._replace(run=f"seed {job.seed}") if others and agent.trained else agent)
        return evaluate(agents, scenario, episodes=self.episodes, max_episode_steps=self.sub_steps)

    def filmed(self, run_dir: Path, scenario: Scenario) -> Agent:
        """See :meth:`Job.filmed`."""
        with checked_device(self.device):
            return load_run(run_dir, scenario, name=TRAINED)

    def save_pictures(self, run_dir: Path, scenario: Scenario, evaluation: Mapping[str, Any], note: str = "") -> None:
        """See :meth:`Job.save_pictures`."""
        save_pictures(run_dir, {(scenario.num_sensors, scenario.num_targets): evaluation}, self.sub_steps, note)

    def references(self, scenario: Scenario, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """See :meth:`Job.references`; with the released program where it was measured."""
        references = super().references(scenario, evaluation)
        released = released_reward(scenario.name) or {}
        if (size := (scenario.num_sensors, scenario.num_targets)) in released:
            references["released HiT-MAC"] = {"coverage": {"mean": released[size]}}
        return references


class ExecutorJob(Job):
    """Job that trains an executor, which is evaluated by its reward."""

    metric: ClassVar[str] = "reward"

    def trained(self, policy: Policy, config: PolicyConfig) -> LevelPolicy:
        """See :meth:`Job.trained`."""
        return as_level(policy, config)

    def evaluate(self, scenario: Scenario, others: Sequence[Self] = (), names: Sequence[str] = ()) -> dict[str, Any]:
        """See :meth:`Job.evaluate`."""
        executors: dict[str, Any] = {}
        for job, name in self._named(others, names):
            executors.setdefault(name, []).append(job.run_dir)
        executors |= {name: name for name in EXECUTORS}
        with checked_device(self.device):
            return evaluate_executors(executors, scenario, episodes=self.episodes, max_episode_steps=self.episode_steps)

    def filmed(self, run_dir: Path, scenario: Scenario) -> Agent:
        """See :meth:`Job.filmed`; a scripted coordinator assigns the targets."""
        with checked_device(self.device):
            return load_agent("assign-in-range", scenario, executor=run_dir)


class CoordinatorJob(AgentJob):
    """Job that trains a coordinator, which is evaluated by its coverage with the executor that it was trained with."""

    executor: str

    def own_executor(self, scenario: Scenario) -> Executor:
        """See :meth:`AgentJob.own_executor`."""
        with checked_device(self.device):
            return load_executor(self.executor, scenario)

    def baselines(self, scenario: Scenario) -> list[Agent]:
        """See :meth:`AgentJob.baselines`; with the scripted coordinators, with the same executor."""
        with checked_device(self.device):
            coordinators = [load_agent(name, scenario, executor=self.executor) for name in COORDINATORS]
        return [*super().baselines(scenario), *coordinators]


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
