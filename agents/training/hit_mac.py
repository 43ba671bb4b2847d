"""Job of train.py that trains both levels of HiT-MAC: its options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hitmac.agents.training.config import NumEnvs, RunOptions, invalid_options, scaled
from hitmac.agents.training.jobs import CoordinatorOptions, ExecutorOptions, with_defaults
from hitmac.envs.observation import FEATURE_SETS
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import SUB_STEPS_PER_DECISION
from hitmac.envs.validation import Choice, Count, Positive, collect, raise_together

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

    def level_jobs(self, run_dir: Path, scenario: Scenario | None = None) -> tuple[ExecutorOptions, CoordinatorOptions]:
        """Return the options of the two jobs, whose runs lie in `run_dir`, with sizes for the scenario."""
        imitates = self.algorithm == "imitation"
        names = ("seed", "num_envs", "weight_dim", "episodes", "device")
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        paper: dict[str, Any] = {}
        if self.features == "hit-mac":
            paper = {"features": FEATURE_SETS["hit-mac"], "embed_layers": 2, "num_frequencies": 4}
        executor_steps = self.executor_steps
        if executor_steps is None and self.executor_minutes is None and not imitates:
            executor_steps = EXECUTOR_STEPS
        of_executor: dict[str, Any] = {} if imitates else dict(HIT_MAC_EXECUTOR_DEFAULTS)
        if self.features == "frame":
            of_executor["features"] = ExecutorOptions.features
        executor = dataclasses.replace(
            scaled(with_defaults(ExecutorOptions, self.algorithm), scenario),
            scenario=self.scenario,
            minutes=self.executor_minutes,
            total_steps=executor_steps,
            run_dir=run_dir / "executor",
            **(of_executor | shared | paper),
        )
        coordinator = dataclasses.replace(
            scaled(with_defaults(CoordinatorOptions, self.algorithm), scenario),
            scenario=self.scenario,
            executor=str(run_dir / "executor"),
            minutes=self.coordinator_minutes,
            total_steps=self.coordinator_steps,
            run_dir=run_dir / "coordinator",
            **shared,
            **({"features": FEATURE_SETS[self.features]} | paper),
        )
        return executor, coordinator
