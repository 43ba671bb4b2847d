"""Options that all jobs of train.py share: one field and one line of help each."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from agents.learned.extractor import ENCODERS
from envs.apis.sb3_env import DirectionalSensorVecEnv
from envs.observation import DEFAULT_FEATURES, check_features
from envs.scenario import Scenario
from envs.tasks import SUB_STEPS
from perception.amc import CRITICS
from perception.encoder import ATTEND_OVER

# Far from the seeds of evaluations, which count from 0: a run with seed s trains on the scenes
# FIRST_TRAINING_SEED + s * MAX_ENVS and up.
FIRST_TRAINING_SEED = 2**40
MAX_ENVS = 2**16


@dataclass(frozen=True)
class Options:
    """Options of every job."""

    job: ClassVar[str]
    default_limit: ClassVar[dict[str, Any]]

    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    minutes: float | None = None
    """Longest training time, minutes, over 0. With neither limit a coverage policy is trained for 9 minutes, an
    executor for 3500000 steps, a coordinator for 600000."""
    total_steps: int | None = None
    """Most environment steps over all scenes (of executors: over all sensors), 1 or more; a run limited by it alone is
    repeatable."""
    num_envs: int = 512
    """Scenes simulated side by side, 1 to 65536."""
    seed: int = 0
    """Seed of networks and scenes, 0 to 1000000."""
    run_dir: Path | None = None
    """Directory of the results, which must not exist. None: runs/ and the date and time."""
    resume: bool = False
    """Go on with the run in run_dir, from its last checkpoint and with its options."""
    features: tuple[str, ...] = DEFAULT_FEATURES
    """Observation features: the name of a set (hit-mac: the paper's; frame: those of a single frame;
    motion: velocities too) or names; a wrong one lists the known."""
    algorithm: str = "ppo"
    """ppo, or a2c, the synchronous form of the paper's A3C; it knows no batch_size and no epochs."""
    encoder: str = "attention"
    """attention; recurrent, the paper's ablation with a bidirectional GRU; mlp, only for the numbers of sensors and
    targets that it was trained on."""
    attend_over: str = "agents"
    """Axis of attention: agents, targets, pairs or axes."""
    pooling: str = "sum"
    """Pooling of features: sum, the paper's, or mean."""
    embed_layers: int = 1
    """Linear maps before the attention, 1 or more."""
    frequencies: int = 0
    """Sines and cosines of every feature before them, 0 or more."""
    critic: str | None = None
    """amc, no_prefix or value_head. None: amc for a coordinator, value_head for the others."""
    weight_dim: int = 64
    """Width of the encoder, 1 or more."""
    episode_steps: int = SUB_STEPS
    """Length of an episode, steps, 1 or more."""
    rollout_steps: int = 32
    """Steps of each scene between two updates, 2 or more."""
    batch_size: int = 512
    """Samples in a gradient step, 2 or more."""
    epochs: int = 2
    """Passes over a rollout, 1 or more."""
    learning_rate: float = 1e-3
    """At the start, over 0; it falls linearly to 0."""
    gamma: float = 0.97
    """Discount per step, 0 to 1."""
    gae_lambda: float = 0.9
    """Lambda of the generalised advantage estimate, 0 to 1."""
    entropy: float = 0.003
    """Weight of the entropy bonus at the start, 0 or more."""
    final_entropy: float = 0.003
    """The same at the end; it changes linearly."""
    max_grad_norm: float = 0.5
    """Clip the gradient norm at this value, over 0."""
    save_every: float = 15.0
    """Seconds of training between two checkpoints, 0 or more."""
    curve_points: int = 12
    """Evaluations of the deterministic policy during the training, for the curve, 0 or more. Each takes a second or
    two, which do not count as training time."""
    episodes: int = 200
    """Fresh episodes that the policy and the baselines are evaluated on, 1 or more; seeds 0 and up."""

    def check(self) -> None:
        """Raise ValueError for an option out of its range."""
        for name, (holds, what) in self.allowed().items():
            if not holds:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be {what}")
        if self.encoder == "recurrent" and self.weight_dim % 2:
            raise ValueError(f"--weight-dim is {self.weight_dim}; it must be even for --encoder recurrent")
        check_features(self.features)
        if self.resume and self.run_dir is None:
            raise ValueError("--resume needs --run-dir, the directory of the run to go on with")

    def check_on(self, scenario: Scenario) -> None:
        """Raise ValueError for options that do not fit the scenario."""

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """Return for every option that has a range whether it is in it, and the range in words."""
        return {
            "minutes": (self.minutes is None or 0 < self.minutes < math.inf, "over 0"),
            "total_steps": (self.total_steps is None or self.total_steps >= 1, "1 or more"),
            "num_envs": (1 <= self.num_envs <= MAX_ENVS, f"1 to {MAX_ENVS}"),
            "seed": (0 <= self.seed <= 1_000_000, "0 to 1000000"),
            "algorithm": (self.algorithm in ("ppo", "a2c"), "ppo or a2c"),
            "encoder": (self.encoder in ENCODERS, one_of(ENCODERS)),
            "attend_over": (self.attend_over in ATTEND_OVER, one_of(ATTEND_OVER)),
            "pooling": (self.pooling in ("sum", "mean"), "sum or mean"),
            "embed_layers": (self.embed_layers >= 1, "1 or more"),
            "frequencies": (self.frequencies >= 0, "0 or more"),
            "critic": (self.critic is None or self.critic in CRITICS, one_of(CRITICS)),
            "weight_dim": (self.weight_dim >= 1, "1 or more"),
            "episode_steps": (self.episode_steps >= 1, "1 or more"),
            "rollout_steps": (self.rollout_steps >= 2, "2 or more"),
            "batch_size": (self.batch_size >= 2, "2 or more"),
            "epochs": (self.epochs >= 1, "1 or more"),
            "learning_rate": (0 < self.learning_rate < math.inf, "over 0"),
            "gamma": (0 <= self.gamma <= 1, "0 to 1"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
            "entropy": (0 <= self.entropy < math.inf, "0 or more"),
            "final_entropy": (0 <= self.final_entropy < math.inf, "0 or more"),
            "max_grad_norm": (0 < self.max_grad_norm < math.inf, "over 0"),
            "save_every": (0 <= self.save_every < math.inf, "0 or more"),
            "curve_points": (self.curve_points >= 0, "0 or more"),
            "episodes": (self.episodes >= 1, "1 or more"),
        }

    def resumed(self) -> Self:
        """Return the same options, to go on with the run."""
        return dataclasses.replace(self, resume=True)

    @property
    def credit(self) -> str:
        """Credit assignment: ``"team"`` or ``"sensors"``."""
        return "team"

    @property
    def sub_steps(self) -> int:
        """Length of an episode, sub-steps."""
        return self.episode_steps

    def task_options(self) -> dict[str, Any]:
        """Return the task's entry in a checkpoint; see :class:`agents.learned.checkpoint.PolicyConfig`."""
        return {}

    def make(self, scenario: Scenario) -> DirectionalSensorVecEnv:
        """Return the environments to train on."""
        raise NotImplementedError


def one_of(names: Any) -> str:
    """Return the words for a choice of names."""
    return f"one of {', '.join(names)}"
