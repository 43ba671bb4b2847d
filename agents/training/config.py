"""Options that all jobs of train.py share: one field and one line of help each."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import tyro
from torch import nn

from hitmac.agents.baselines.levels import AssignPlanned, PlannerExecutor, in_place
from hitmac.agents.baselines.planner import PlannerAgent, PlanningPolicy
from hitmac.agents.learned.checkpoint import (
    checked_device,
    checkpoint_folder,
    load_policy,
    put_tensors,
    read_tensors,
    tensors_of,
)
from hitmac.agents.learned.policy import CRITICS, check_lists
from hitmac.agents.nearness import OPTIONS, checked
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.registry import SCRIPTED, scripted_agent
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features, observed
from hitmac.envs.observation import DEFAULT_FEATURES
from hitmac.envs.scenario import KNOWLEDGE, Scenario
from hitmac.envs.tasks import SUB_STEPS, TASKS, Task
from hitmac.envs.validation import (
    Choice,
    Count,
    Fraction,
    Natural,
    NotNegative,
    Positive,
    Range,
    collect,
    in_short,
    invalid_fields,
    raise_together,
)
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.perception import EncoderConfig
from hitmac.perception.encoder import OLD_NAMES

Seed = Annotated[int, Range(0, 1_000_000)]

NOT_OF_A_RUN = ("run_dir", "resume", "processes", "ray", "address")
"""Options that say where a training runs: the configuration of the run does not hold them."""


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


ENGINES = ("sb3", "rllib")
"""Engines by name: Stable-Baselines3 in this process, Ray's RLlib in several processes and on several machines."""

_PLACES = ("num_env_runners", "num_learners", "address")


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine that trains."""

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


def engine_problems(options: Any) -> Iterator[str]:
    """Yield what does not fit the engine among the options of a job; of a run to go on with, its own options say so."""
    if options.resume:
        return
    if options.engine != "rllib":
        for name in _PLACES:
            if getattr(options, name):
                yield f"--{name.replace('_', '-')} is {getattr(options, name)}; it needs --engine rllib"
        return
    if missing := [name for name in ("ray", "tree") if importlib.util.find_spec(name) is None]:
        yield f"--engine is rllib, which needs {missing[0]}: pip install 'hitmac[rllib]'"
    if options.algorithm != "ppo":
        yield (
            f"--engine is rllib, and --algorithm {options.algorithm}; RLlib trains by ppo here: give --algorithm ppo, "
            "or take the job coverage-ppo"
        )
    elif options.credit != "team":
        yield f"--engine is rllib, and the credit {options.credit}; it must be team (--no-difference-rewards)"
    if options.num_env_runners > options.num_envs:
        yield f"--num-env-runners is {options.num_env_runners}; there are --num-envs {options.num_envs} to share"
    if options.num_learners > options.batch_size:
        yield f"--num-learners is {options.num_learners}; there are --batch-size {options.batch_size} to share"
    if options.ray is not None:
        yield f"--ray is {options.ray}; a training with --engine rllib has a cluster of its own, at --address"
    if options.is_group and options.address is not None:
        yield f"--address is {options.address}; of several trainings (--seeds, --set) each has a cluster of its own"


AnyOptions = TypeVar("AnyOptions")

SIZES = ("num_envs", "batch_size", "rollout_steps")
"""Options whose defaults depend on the scene."""

PAIRS = {"imitation": 200, "ppo": 100, "a2c": 60}
"""Most pairs of a sensor and a target in a scene for which the sizes are the defaults, by the algorithm.

A policy that learns from reward learns after whole rollouts only, and by A2C from whole rollouts at once.
"""

_SENSORS = 4  # of the scene that the defaults are for
_MULTIPLE = 8  # of every size
_SHORTEST = 4  # steps of a rollout by imitation, which learns after every step


def scaled(
    options: AnyOptions, scenario: Scenario | None, per_sensor: bool = False, nearest: int | None = None
) -> AnyOptions:
    """Return default options with sizes for a scenario: the more pairs its scenes have, the fewer scenes.

    The pairs in a step of all scenes and those in a gradient step do not grow beyond those of scenes with :data:`PAIRS`
    pairs, so neither do their time and memory.

    Args:
        options: the defaults of a job.
        scenario: the scene to train on; None leaves the options as they are.
        per_sensor: rows of a gradient step are sensors also where the job does not say so.
        nearest: targets that a sensor is shown; None: all.
    """
    given: Any = options
    if scenario is None or given.algorithm not in PAIRS:  # what is out of its range is refused later
        return options
    sensors, targets = scenario.num_sensors, min(nearest or scenario.num_targets, scenario.num_targets)
    most = PAIRS[given.algorithm]
    share = most / (sensors * targets)
    sizes = {"num_envs": _part(given.num_envs, share)}
    if hasattr(given, "batch_size"):
        rows_are_sensors = per_sensor or given.task.spec.role == "executor"
        sizes["batch_size"] = _part(given.batch_size, most / _SENSORS / targets if rows_are_sensors else share)
        if given.algorithm == "imitation" and getattr(given, "memory", "none") == "none":
            sizes["rollout_steps"] = max(min(_SHORTEST, given.rollout_steps), int(given.rollout_steps * min(share, 1)))
    return dataclasses.replace(given, **sizes)


def _part(size: int, share: float) -> int:
    """Return a share of a size, at least _MULTIPLE and one of its multiples; with a share of 1 or more, the size."""
    return size if share >= 1 else max(int(size * share) // _MULTIPLE * _MULTIPLE, min(size, _MULTIPLE))


def sizes_in_words(options: Any, scenario: Scenario) -> str:
    """Return the sizes of a training as a line."""
    return (
        f"{scenario.num_sensors} sensors, {scenario.num_targets} targets: {options.num_envs} scenes side by side, "
        f"rollouts of {options.rollout_steps} steps, batches of {options.batch_size}"
    )


CRITIC = "value_net."
"""Beginning of the names of a critic's tensors."""


def network_of(start: str, task: str, scenario: Scenario | None = None) -> dict[str, Any]:
    """Return the options of a policy's network by the names of a job's options: features and encoder.

    Args:
        start: directory of a run or a checkpoint, or the name of a pretrained policy.
        task: name of the task that the training is for.
        scenario: the scenario to train on; None: one that fits.

    Raises:
        FileNotFoundError, ValueError: no policy for the same role and decisions; the message names it.
    """
    config = load_policy(_folder(start))[1]
    if config.role != TASKS[task].spec.role:
        raise ValueError(f"--start is {start}, a policy for {config.task}; it must be one for {task}")
    decisions = config.scenario.decisions
    if config.role == "agent" and scenario is not None and decisions != scenario.decisions:
        raise ValueError(
            f"--start is {start}, a policy that decides on {', '.join(decisions)}; on the scenario {scenario.name!r} "
            f"it must decide on {', '.join(scenario.decisions)}"
        )
    memory = config.policy["memory"]
    network = dataclasses.asdict(config.encoder) | {"features": config.features}
    return network if memory == "none" else network | {"memory": memory}


def take_weights(policy: nn.Module, start: str) -> None:
    """Copy the weights of the policy `start` into `policy`; a critic of another kind stays fresh.

    Raises:
        FileNotFoundError, ValueError: no policy, or one whose weights do not fit; `policy` is unchanged.
    """
    path = checkpoint_folder(_folder(start)) / "policy.safetensors"
    own, found = tensors_of(policy), read_tensors(path)
    critics = [{name: tensor.shape for name, tensor in one.items() if name.startswith(CRITIC)} for one in (own, found)]
    if critics[0] != critics[1]:
        found = {name: tensor for name, tensor in found.items() if name not in critics[1]}
        found |= {name: own[name] for name in critics[0]}
    put_tensors(policy, found, path)


def _folder(start: str) -> Path:
    return pretrained_folder(start.removeprefix(PREFIX)) if start.startswith(PREFIX) else Path(start)


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
        """Return the task's entry in a checkpoint; see :class:`hitmac.agents.learned.checkpoint.PolicyConfig`."""
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
        _RENAMED.get(name, name): tuple(value) if isinstance(value, list) else value for name, value in written.items()
    }
    if unknown := [name for name in plain if name not in known]:
        errors.append(ValueError(f"unknown option {in_short(unknown, known)}: known are {', '.join(known)}"))
    options = kind(**{name: value for name, value in plain.items() if name in known})
    with collect(errors):
        options.check()
    raise_together(errors)
    return options


@dataclass(frozen=True)
class NearestOptions(Options):
    """Base class of the options of jobs whose policy may be shown the nearest targets only."""

    nearest: Count | None = None
    """Targets that each sensor is shown, the nearest ones, in training and use. None: all in training; in use those of
    a scene of 16384 pairs or more are the nearest 8 within two sensing ranges."""
    radius: Positive | None = None
    """Farthest distance of these targets, in the scenario's units. None: any."""
    neighbours: Count | None = None
    """Sensors near each sensor that it attends to with --attend-over agents. None: all."""

    def check(self) -> None:
        """See :meth:`Options.check`."""
        errors: list[Exception] = []
        with collect(errors):
            super().check()
        errors += map(ValueError, self._nearness_problems())
        raise_together(errors)

    def _nearness_problems(self) -> Iterator[str]:
        invalid = invalid_options(self)
        if self.nearest is None:
            for name in ("radius", "neighbours"):
                if getattr(self, name) is not None and name not in invalid:
                    yield f"--{name} is {getattr(self, name)}; it needs --nearest"
            return
        if getattr(self, "memory", "none") != "none" or tuple(self.features) == BELIEFS:
            yield f"--nearest is {self.nearest}; a policy with a memory or beliefs is shown all targets"
        if not self.problems():
            try:
                check_lists(self.encoder_config)
            except ValueError as error:
                yield f"--nearest is {self.nearest}; {error}"

    @property
    def nearness(self) -> dict[str, Any]:
        """See :attr:`Options.nearness`."""
        return checked({name: getattr(self, name) for name in OPTIONS})

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """See :meth:`Options.environment_options`."""
        return super().environment_options(scenario) | self.nearness


TEACHERS = tuple(name for name, agent in SCRIPTED.items() if issubclass(agent, PlanningPolicy))
"""Agents that a policy can imitate, by name."""


@dataclass(frozen=True)
class ImitationOptions(Options):
    """Base class of the options of jobs whose policy may imitate a planner."""

    imitation_defaults: ClassVar[dict[str, Any]] = {}
    """Defaults of other options with ``--algorithm imitation``."""
    imitation_limit: ClassVar[dict[str, Any]] = {}
    """Default limit with ``--algorithm imitation``; {}: that of the job."""

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


def teacher_of(options: ImitationOptions, scenario: Scenario) -> Any:
    """Return the planner as a teacher of turns, of turns towards goals, or of assignments, for the role of the task."""
    role, chosen = options.task.spec.role, {"turn_cost": options.planner_turn_cost}
    if role == "coordinator":
        chosen = AssignPlanned.planning | chosen
    if role == "agent":
        return scripted_agent(options.teacher, scenario, **chosen)
    planner = scripted_agent(options.teacher, in_place(scenario), **chosen)
    assert isinstance(planner, PlannerAgent)
    if role == "coordinator":
        return AssignPlanned(scenario, planner=planner)
    return PlannerExecutor(scenario, planner=planner)
