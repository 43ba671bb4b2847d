"""Jobs of train.py: their options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from hitmac.agents.baselines.levels import EXECUTORS
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.registry import SCRIPTED, load_executor
from hitmac.agents.training.options import NumEnvs, Seed, invalid_options
from hitmac.agents.training.roles import AgentJob, CoordinatorJob, ExecutorJob, Job
from hitmac.envs.assigned_observation import PADDINGS
from hitmac.envs.errors import collect, raise_together
from hitmac.envs.observation import FEATURE_SETS
from hitmac.envs.ranges import Choice, Count, Fraction, NotNegative, Positive
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import IDLE, SUB_STEPS_PER_DECISION, TASKS, CoordinatorTask, CoverageTask, ExecutorTask, Task

AnyJob = TypeVar("AnyJob", bound=Job)

EXECUTOR_STEPS = 1_500_000
"""Default length of the executor's training in `hit-mac`, steps over all sensors."""

HIT_MAC_EXECUTOR_DEFAULTS: dict[str, Any] = {
    "goals_every": SUB_STEPS_PER_DECISION,
    "goal_share": 0.8,
    "centring": 0.2,
    "turn_cost": 0.03,
}
"""Options of the executor's task in `hit-mac` that differ from the paper's."""


TEACHERS = tuple(name for name, agent in SCRIPTED.items() if issubclass(agent, PlannerAgent))
"""Agents that a policy can imitate, by name."""


@dataclass(frozen=True)
class CoverageOptions(AgentJob):
    """Train a policy that turns all sensors directly, to imitate a planner's values of its actions."""

    job = "coverage"
    task = CoverageTask
    default_limit = {"minutes": 3.0}

    algorithm: Annotated[str, Choice(("imitation", "ppo", "a2c"))] = "imitation"
    """Learning algorithm: imitation of a planner, or from reward alone: ppo, or a2c, the synchronous form of the
    paper's A3C, which knows no batch_size and no epochs."""
    teacher: Annotated[str, Choice(TEACHERS)] = "planner"
    """Planner to imitate."""
    planner_turn_cost: NotNegative = 0.1
    """Cost of a sub-step of turning in the planner's plans, in targets covered for a sub-step: the higher, the less the
    policy turns."""
    temperature: Positive = 0.1
    """Temperature of the distribution over actions that the planner's values are turned into, in targets covered for a
    sub-step."""
    num_envs: int = 256
    batch_size: int = 128
    learning_rate: float = 2e-3
    max_grad_norm: float = 5.0
    embed_layers: int = 2
    turn_cost: NotNegative = 0.04
    """Cost in the reward if all sensors turn, in units of coverage."""
    per_sensor: bool = False
    """Every sensor learns and acts on what it observes itself, with shared weights; with --encoder mlp this is
    independent PPO, and without it PPO with a centralised critic."""

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
    embed_layers: int = 1


@dataclass(frozen=True)
class ExecutorOptions(ExecutorJob):
    """Train HiT-MAC's executor, shared by all sensors: it turns a sensor towards the targets assigned to it."""

    job = "executor"
    task = ExecutorTask
    default_limit = {"total_steps": 3_500_000}

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
class CoordinatorOptions(CoordinatorJob):
    """Train HiT-MAC's coordinator: it assigns targets to sensors; a frozen executor turns them."""

    job = "coordinator"
    task = CoordinatorTask
    default_limit = {"total_steps": 600_000}

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
    decision: Count = SUB_STEPS_PER_DECISION
    """Sub-steps for which an assignment holds."""

    def check_on(self, scenario: Scenario) -> None:
        """See :meth:`Options.check_on`."""
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
        return "difference_rewards" if self.difference_rewards else "team"

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """See :meth:`Options.environment_options`."""
        executor, _ = load_executor(self.executor, scenario)
        return super().environment_options(scenario) | {
            "executor": "scripted" if self.executor == "scripted" else executor.policy,  # that one is compiled
            "executor_features": executor.features,
            "padding": executor.padding,
            "credit": self.credit,
        }


@dataclass(frozen=True)
class HitMacOptions:
    """Train both levels of HiT-MAC: an executor, then a coordinator with it, and evaluate both together.

    The executor learns for how it will be used and not as in the paper: on the coordinator's scene, where targets move
    more slowly; with goals that hold for a decision and are a part of what is in range; and for seeing its goals rather
    than for having them in the middle. Ctrl-C ends the run; --resume goes on with it.

    What is not here keeps the default of the two jobs; train them one after the other to change it.
    """

    job = "hit-mac"

    scenario: str = "hit-mac"
    """The scene of both: a preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    executor_minutes: Positive | None = None
    """Longest training of the executor, minutes."""
    coordinator_minutes: Positive | None = None
    """Longest training of the coordinator, minutes."""
    executor_steps: Count | None = None
    """Most steps of the executor's training, over all sensors; 1500000 if there is no limit."""
    coordinator_steps: Count | None = None
    """Most decisions of the coordinator's training, over all scenes; 600000 if there is no limit."""
    seed: Seed = 0
    """Seed of networks and scenes."""
    seeds: Count = 1
    """Trainings, with the seeds from seed up; of several, each is a run of its own in run_dir/seed-SEED."""
    run_dir: Path | None = None
    """Directory of the results, which must not exist. None: runs/ and the date and time."""
    resume: bool = False
    """Go on with the run in run_dir."""
    features: Annotated[str, Choice(FEATURE_SETS)] = "frame"
    """Set of features: frame: those of a single frame; hit-mac: the paper's; motion: the coordinator sees velocities
    too."""
    num_envs: NumEnvs = 256
    """Scenes simulated side by side."""
    weight_dim: Count = 64
    """Width of the encoders."""
    episodes: Count = 200
    """Fresh episodes that they are evaluated on; seeds 0 and up."""

    def check(self) -> None:
        """Raise ValueError or TypeError for options out of their ranges, all in one error."""
        errors = list(invalid_options(self).values())
        if not errors:
            for level in self.level_jobs(Path()):
                with collect(errors):
                    level.check()
        if self.resume and self.run_dir is None:
            errors.append(ValueError("--resume needs --run-dir, the directory of the run to go on with"))
        raise_together(errors)

    def level_jobs(self, run_dir: Path) -> tuple[ExecutorOptions, CoordinatorOptions]:
        """Return the options of the two jobs, whose runs lie in `run_dir`."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in ("seed", "num_envs", "weight_dim", "episodes")}
        paper: dict[str, Any] = {}
        if self.features == "hit-mac":
            paper = {"features": FEATURE_SETS["hit-mac"], "embed_layers": 2, "num_frequencies": 4}
        executor_steps = self.executor_steps
        if executor_steps is None and self.executor_minutes is None:
            executor_steps = EXECUTOR_STEPS
        executor = ExecutorOptions(
            scenario=self.scenario,
            minutes=self.executor_minutes,
            total_steps=executor_steps,
            run_dir=run_dir / "executor",
            **HIT_MAC_EXECUTOR_DEFAULTS,
            **shared,
            **paper,
        )
        coordinator = CoordinatorOptions(
            scenario=self.scenario,
            executor=str(run_dir / "executor"),
            minutes=self.coordinator_minutes,
            total_steps=self.coordinator_steps,
            run_dir=run_dir / "coordinator",
            **shared,
            **({"features": FEATURE_SETS[self.features]} | paper),
        )
        return executor, coordinator


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
    if options.minutes is None and options.total_steps is None:
        return dataclasses.replace(options, **options.default_limit)
    return options
