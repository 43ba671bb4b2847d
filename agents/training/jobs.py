"""Jobs of train.py: the options of each and its environments."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.baselines.levels import EXECUTORS
from agents.registry import load_executor
from agents.training.options import Options, one_of
from envs.apis.sb3_env import CoordinatorVecEnv, CoverageVecEnv, DirectionalSensorVecEnv, ExecutorVecEnv
from envs.assigned_observation import PADDINGS
from envs.observation import FEATURE_SETS
from envs.scenario import Scenario
from envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS_PER_DECISION

EXECUTOR_STEPS = 1_500_000
"""Default length of the executor's training in `hit-mac`, steps over all sensors."""

HIT_MAC_EXECUTOR_DEFAULTS: dict[str, Any] = {
    "goals_every": SUB_STEPS_PER_DECISION,
    "goal_share": 0.8,
    "centring": 0.2,
    "turn_cost": 0.03,
}
"""Options of the executor's task in `hit-mac` that differ from the paper's."""


@dataclass(frozen=True)
class CoverageOptions(Options):
    """Train a policy that turns all sensors directly."""

    job = "coverage"
    default_limit = {"minutes": 9.0}

    turn_cost: float = 0.04
    """Cost in the reward if all sensors turn, in units of coverage, 0 or more."""
    per_sensor: bool = False
    """Every sensor learns and acts on what it observes itself, with shared weights; with --encoder mlp this is
    independent PPO, and without it PPO with a centralised critic."""

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """See :meth:`Options.allowed`."""
        return super().allowed() | {"turn_cost": (0 <= self.turn_cost < math.inf, "0 or more")}

    def task_options(self) -> dict[str, Any]:
        """See :meth:`Options.task_options`."""
        return {"per_sensor": self.per_sensor}

    def make(self, scenario: Scenario) -> DirectionalSensorVecEnv:
        """See :meth:`Options.make`."""
        return CoverageVecEnv(
            self.num_envs,
            scenario,
            features=self.features,
            turn_cost=self.turn_cost,
            max_episode_steps=self.episode_steps,
            per_sensor=self.per_sensor,
            stagger=True,
        )


@dataclass(frozen=True)
class ExecutorOptions(Options):
    """Train HiT-MAC's executor, shared by all sensors: it turns a sensor towards the targets assigned to it."""

    job = "executor"
    default_limit = {"total_steps": 3_500_000}

    scenario: str = "hit-mac-executor"
    num_envs: int = 256
    features: tuple[str, ...] = ("bearing_sin", "bearing_cos", "bearing", "distance", "in_range", "visible")
    attend_over: str = "targets"
    pooling: str = "mean"
    episode_steps: int = DECISIONS_PER_EPISODE
    rollout_steps: int = 16
    batch_size: int = 1024
    learning_rate: float = 2e-3
    gamma: float = 0.9
    turn_cost: float = 0.015
    """Cost of a turn in training, 0 or more; the official task, for evaluation, has 0.01."""
    centring: float = 1.0
    """Loss of reward if a goal is seen at the edge of the view instead of in its middle, 0 to 1; the paper's, and the
    official task's, is 1."""
    goals_every: int = 1
    """Steps between two choices of goals, 1 or more."""
    goal_share: float = 1.0
    """Chance that a target in range becomes a goal, 0 to 1; the paper's, and the official task's, is 1."""
    padding: str = "masked"
    """Form in which goals are shown: masked; attended, as in the released program; unfiltered, the paper's ablation."""
    row_id: bool = True
    """The feature target_id holds the number of the goal's row, as it does where the executor is used; no: the target's
    own in training, as in the released program."""

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """See :meth:`Options.allowed`."""
        return super().allowed() | {
            "turn_cost": (0 <= self.turn_cost < math.inf, "0 or more"),
            "centring": (0 <= self.centring <= 1, "0 to 1"),
            "goals_every": (self.goals_every >= 1, "1 or more"),
            "goal_share": (0 <= self.goal_share <= 1, "0 to 1"),
            "padding": (self.padding in PADDINGS, one_of(PADDINGS)),
        }

    def task_options(self) -> dict[str, Any]:
        """See :meth:`Options.task_options`."""
        return {"padding": self.padding, "row_id": self.row_id}

    def make(self, scenario: Scenario) -> DirectionalSensorVecEnv:
        """See :meth:`Options.make`."""
        return ExecutorVecEnv(
            self.num_envs,
            scenario,
            features=self.features,
            turn_cost=self.turn_cost,
            centring=self.centring,
            goals_every=self.goals_every,
            goal_share=self.goal_share,
            padding=self.padding,
            row_id=self.row_id,
            max_episode_steps=self.episode_steps,
            stagger=True,
        )


@dataclass(frozen=True)
class CoordinatorOptions(Options):
    """Train HiT-MAC's coordinator: it assigns targets to sensors; a frozen executor turns them."""

    job = "coordinator"
    default_limit = {"total_steps": 600_000}

    executor: str = "scripted"
    """Executor that turns the sensors: scripted, or the directory of an executor's run or checkpoint."""
    num_envs: int = 256
    features: tuple[str, ...] = FEATURE_SETS["frame"]
    attend_over: str = "axes"
    pooling: str = "mean"
    episode_steps: int = DECISIONS_PER_EPISODE
    rollout_steps: int = 8
    batch_size: int = 256
    learning_rate: float = 2e-3
    gamma: float = 0.5
    entropy: float = 0.01
    final_entropy: float = 0.0
    max_grad_norm: float = 5.0
    by_sensor: bool = True
    """Credit assignment by difference rewards: every sensor is judged by what it adds to the coverage. No: all by the
    task's reward, as in the paper."""
    idle: str = "random"
    """Action of a sensor with nothing assigned: random turns, as in the released program, or holds."""
    decision: int = SUB_STEPS_PER_DECISION
    """Sub-steps for which an assignment holds, 1 or more."""

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """See :meth:`Options.allowed`."""
        return super().allowed() | {
            "idle": (self.idle in ("random", "holds"), "random or holds"),
            "decision": (self.decision >= 1, "1 or more"),
        }

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
        return "sensors" if self.by_sensor else "team"

    def task_options(self) -> dict[str, Any]:
        """See :meth:`Options.task_options`."""
        return {"idle": self.idle, "decision": self.decision}

    def make(self, scenario: Scenario) -> DirectionalSensorVecEnv:
        """See :meth:`Options.make`."""
        executor, _ = load_executor(self.executor, scenario)
        return CoordinatorVecEnv(
            self.num_envs,
            scenario,
            features=self.features,
            executor="scripted" if self.executor == "scripted" else executor.policy,  # that one is compiled
            executor_features=executor.features,
            padding=executor.padding,
            idle=self.idle,
            decision=self.decision,
            credit=self.credit,
            max_episode_steps=self.episode_steps,
            stagger=True,
        )


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
    executor_minutes: float | None = None
    """Longest training of the executor, minutes, over 0."""
    coordinator_minutes: float | None = None
    """Longest training of the coordinator, minutes, over 0."""
    executor_steps: int | None = None
    """Most steps of the executor's training, over all sensors, 1 or more; 1500000 if there is no limit."""
    coordinator_steps: int | None = None
    """Most decisions of the coordinator's training, over all scenes, 1 or more; 600000 if there is no limit."""
    seed: int = 0
    """Seed of networks and scenes, 0 to 1000000."""
    run_dir: Path | None = None
    """Where the results go; a new directory. None: runs/ and the date and time."""
    resume: bool = False
    """Go on with the run in run_dir."""
    features: str = "frame"
    """frame: features of a single frame; hit-mac: the paper's features; motion: the coordinator sees velocities too."""
    num_envs: int = 256
    """Scenes simulated side by side, 1 to 65536."""
    weight_dim: int = 64
    """Width of the encoders, 1 or more."""
    episodes: int = 200
    """Fresh episodes that they are evaluated on, 1 or more; seeds 0 and up."""

    def check(self) -> None:
        """Raise ValueError for an option out of its range."""
        for part in self.level_jobs(Path()):
            part.check()
        if self.resume and self.run_dir is None:
            raise ValueError("--resume needs --run-dir, the directory of the run to go on with")

    def level_jobs(self, run_dir: Path) -> tuple[ExecutorOptions, CoordinatorOptions]:
        """Return the options of the two jobs, whose runs lie in `run_dir`."""
        if self.features not in FEATURE_SETS:
            raise ValueError(f"--features is {self.features}; it must be {one_of(FEATURE_SETS)}")
        shared: dict[str, Any] = {name: getattr(self, name) for name in ("seed", "num_envs", "weight_dim", "episodes")}
        paper: dict[str, Any] = {}
        if self.features == "hit-mac":
            paper = {"features": FEATURE_SETS["hit-mac"], "embed_layers": 2, "frequencies": 4}
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


JOBS: dict[str, type[Options]] = {job.job: job for job in (CoverageOptions, ExecutorOptions, CoordinatorOptions)}
"""Jobs that train one policy, by name."""


def with_limits(options: Options) -> Options:
    """Return the options with the job's default limit if they have none."""
    if options.minutes is None and options.total_steps is None:
        return dataclasses.replace(options, **options.default_limit)
    return options
