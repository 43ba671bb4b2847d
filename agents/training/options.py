"""Options that all jobs of train.py share: one field and one line of help each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from hitmac.agents.device import checked_device
from hitmac.agents.learned.heads import CRITICS
from hitmac.agents.tracking.belief_observer import BELIEFS, BeliefObserver, check_features, observed
from hitmac.agents.training.engine_options import EngineOptions, engine_problems
from hitmac.agents.training.run_options import RunOptions
from hitmac.agents.training.start import network_of
from hitmac.envs.apis.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.errors import collect, in_short, raise_together
from hitmac.envs.observation import DEFAULT_FEATURES
from hitmac.envs.ranges import Choice, Count, Fraction, Natural, NotNegative, Positive, Range, invalid_fields
from hitmac.envs.renames import current_options
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import SUB_STEPS, Task
from hitmac.perception import EncoderConfig
from hitmac.perception.encoder import OLD_NAMES

# Far from the seeds of evaluations, which count from 0: a run with seed s trains on the scenes
# FIRST_TRAINING_SEED + s * MAX_ENVS and up.
FIRST_TRAINING_SEED = 2**40
MAX_ENVS = 2**16

_RENAMED = OLD_NAMES | {"by_sensor": "difference_rewards"}  # the files of earlier runs have the earlier names

NumEnvs = Annotated[int, Range(1, MAX_ENVS)]


@dataclass(frozen=True)
class TrainingOptions(EngineOptions, RunOptions):
    """Options of every job other than the encoder's."""

    job: ClassVar[str]
    task: ClassVar[type[Task]]
    default_limit: ClassVar[dict[str, Any]]

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
    algorithm: Annotated[str, Choice(("ppo", "a2c"))] = "ppo"
    """Learning algorithm; a2c, the synchronous form of the paper's A3C, knows no batch_size and no epochs."""
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


@dataclass(frozen=True)
class Options(EncoderConfig, TrainingOptions):
    """Options of every job; those of the encoder are the fields of :class:`hitmac.perception.EncoderConfig`."""

    def __post_init__(self) -> None:
        """Leave the checks to :meth:`check`, so that errors name the options of the command line."""

    def check(self) -> None:
        """Raise ValueError or TypeError for options out of their ranges, all in one error."""
        invalid = invalid_options(self)
        errors = list(invalid.values())
        for name, what in self.problems().items():
            if name not in invalid:
                errors.append(ValueError(f"{flag(name)} is {getattr(self, name)}; {what}"))
        if not invalid:
            errors += map(ValueError, engine_problems(self))
        with collect(errors):
            check_features(self.features)
        with collect(errors):
            checked_device(self.device, flag("device"))
        if self.resume and self.run_dir is None:
            errors.append(ValueError("--resume needs --run-dir, the directory of the run to go on with"))
        raise_together(errors)

    def check_on(self, scenario: Scenario) -> None:
        """Raise ValueError for options that do not fit the scenario, or the policy to start from."""
        if self.start is not None:
            taken = network_of(self.start, self.task.spec.name, scenario)
            raise_together(
                [
                    ValueError(f"{flag(name)} is {getattr(self, name)}; that of {self.start} is {value}")
                    for name, value in taken.items()
                    if getattr(self, name) != value
                ]
            )
        if check_features(self.features) == BELIEFS:
            if self.task.spec.role != "agent" or getattr(self, "per_sensor", False):
                raise ValueError("--features is beliefs; they are for a policy that turns all sensors directly")
            BeliefObserver(scenario)

    def resumed(self) -> Self:
        """Return the same options, to go on with the run."""
        return dataclasses.replace(self, resume=True)

    @property
    def encoder_config(self) -> EncoderConfig:
        """Options of the encoder."""
        return EncoderConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(EncoderConfig)})

    @property
    def max_seconds(self) -> float | None:
        """Longest training time, seconds; None: no limit."""
        return None if self.minutes is None else 60 * self.minutes

    def rates(self, done: float) -> tuple[float, float]:
        """Return the learning rate and the weight of the entropy bonus when this share of the training is done."""
        return self.learning_rate * (1.0 - done), self.entropy + done * (self.final_entropy - self.entropy)

    @property
    def credit(self) -> str:
        """Credit assignment: ``"team"`` or ``"difference_rewards"``."""
        return "team"

    @property
    def nearness(self) -> dict[str, Any]:
        """Options of the environments for the nearest targets that the policy is shown; {}: all."""
        return {}

    @property
    def sub_steps(self) -> int:
        """Length of an episode, sub-steps."""
        return self.episode_steps

    def task_options(self) -> dict[str, Any]:
        """Return the task's entry in a checkpoint; see :class:`hitmac.agents.learned.policy_config.PolicyConfig`."""
        return {name: getattr(self, name) for name in self.task.spec.options}

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """Return the options of the task, and of its environments, that :meth:`make` passes."""
        return self.task_options()

    def make(self, scenario: Scenario) -> DirectionalSensorVecEnv:
        """Return the environments to train on; on recorded tracks, the scenario knows how long episodes are."""
        if scenario.tracks:
            scenario = scenario.replace(episode_steps=scenario.sub_steps_of(self.sub_steps))
        return DirectionalSensorVecEnv(
            self.task,
            self.num_envs,
            scenario,
            features=observed(check_features(self.features)),
            max_episode_steps=self.episode_steps,
            stagger=True,
            **self.environment_options(scenario),
        )


def invalid_options(options: Any) -> dict[str, Exception]:
    """Return the errors of the options that are out of their range, by name; they name the command line's flags."""
    return invalid_fields(options, label=flag, show=str)[1]


def flag(name: str) -> str:
    """Return the name of an option on the command line."""
    return f"--{name.replace('_', '-')}"


def read_options(kind: Any, written: Mapping[str, Any]) -> Any:
    """Return the options that a run's configuration holds, checked; earlier names and values are understood.

    Raises:
        ValueError, TypeError: unknown options and values out of their range, all in one error.
    """
    errors: list[Exception] = []
    known = [field.name for field in dataclasses.fields(kind)]
    plain = {
        _RENAMED.get(name, name): tuple(value) if isinstance(value, list) else value
        for name, value in current_options(written).items()
    }
    if unknown := [name for name in plain if name not in known]:
        errors.append(ValueError(f"unknown option {in_short(unknown, known)}: known are {', '.join(known)}"))
    options = kind(**{name: value for name, value in plain.items() if name in known})
    with collect(errors):
        options.check()
    raise_together(errors)
    return options
