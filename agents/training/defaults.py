"""Defaults of the options that depend on other options and on the scene, and options that are refused."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hitmac.agents.baselines.levels import EXECUTORS
from hitmac.agents.learned.checkpoint import checked_device, load_policy
from hitmac.agents.learned.policy import check_lists
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.agents.policy import NEARNESS
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.registry import load_executor
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features
from hitmac.agents.training.config import (
    CoordinatorOptions,
    ExecutorOptions,
    HitMacOptions,
    Job,
    Options,
)
from hitmac.envs.observation import FEATURE_SETS
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import SUB_STEPS_PER_DECISION, TASKS
from hitmac.envs.validation import collect, invalid_fields, raise_together

AnyJob = TypeVar("AnyJob", bound=Job)
AnyOptions = TypeVar("AnyOptions", bound=Options)

EXECUTOR_STEPS = 1_500_000
"""Default length of the executor's training in `hit-mac`, steps over all sensors."""

HIT_MAC_EXECUTOR_DEFAULTS: dict[str, Any] = {
    "goals_every": SUB_STEPS_PER_DECISION,
    "goal_share": 0.8,
    "centring": 0.2,
    "turn_cost": 0.03,
}
"""Options of the executor's task in `hit-mac` that differ from the paper's."""

PAIRS = {"imitation": 200, "ppo": 100, "a2c": 60}
"""Most pairs of a sensor and a target in a scene for which the sizes are the defaults, by the algorithm.

A policy that learns from reward learns after whole rollouts only, and by A2C from whole rollouts at once.
"""

SIZES = ("num_envs", "batch_size", "rollout_steps")
"""Options whose defaults depend on the scene."""

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


def completed(asked: AnyJob, given: Collection[str], scenario: Scenario) -> AnyJob:
    """Return the options with the defaults of all that are not given, which depend on others and on the scenario."""
    start, memory = getattr(asked, "start", None), getattr(asked, "memory", "none")
    defaults = with_defaults(type(asked), asked.algorithm, memory, start)
    options = dataclasses.replace(defaults, **{name: getattr(asked, name) for name in given})
    return scaled(options, scenario, given)


def with_defaults(kind: type[AnyJob], algorithm: str, memory: str = "none", start: str | None = None) -> AnyJob:
    """Return the default options of a job that learns by an algorithm, with a memory, from the weights of `start`."""
    changes = getattr(kind, "imitation_defaults", {}) if algorithm == "imitation" else {}
    if start is not None:
        assert issubclass(kind, Options)
        network = network_of(start, kind.task.spec.name)
        memory, changes = network.get("memory", memory), changes | {"start": start} | network
    if memory != "none":
        changes = getattr(kind, "recurrent_defaults", {}) | {"memory": memory} | changes
    return kind(**{"algorithm": algorithm} | changes)


def with_limits(options: AnyOptions) -> AnyOptions:
    """Return the options with the job's default limit if they have none."""
    if options.minutes is not None or options.total_steps is not None:
        return options
    limit = options.imitation_limit if options.algorithm == "imitation" else {}
    return dataclasses.replace(options, **(limit or options.default_limit))


def scaled(options: AnyJob, scenario: Scenario | None, given: Collection[str] = ()) -> AnyJob:
    """Return options with sizes for a scenario: the more pairs its scenes have, the fewer scenes.

    The pairs in a step of all scenes and those in a gradient step do not grow beyond those of scenes with :data:`PAIRS`
    pairs, so neither do their time and memory.

    Args:
        options: the options of a job.
        scenario: the scene to train on; None leaves the options as they are.
        given: options that stay as they are.
    """
    job: Any = options
    if scenario is None or job.algorithm not in PAIRS:  # refused later
        return options
    targets = min(getattr(job, "nearest", None) or scenario.num_targets, scenario.num_targets)
    most = PAIRS[job.algorithm]
    share = most / (scenario.num_sensors * targets)
    shares = {"num_envs": share}
    if isinstance(options, Options):
        rows_are_sensors = getattr(job, "per_sensor", False) or job.task.spec.role == "executor"
        shares["batch_size"] = most / _SENSORS / targets if rows_are_sensors else share
    sizes: dict[str, Any] = {
        name: _part(getattr(job, name), part) for name, part in shares.items() if name not in given
    }
    learns_after_every_step = isinstance(options, Options) and job.algorithm == "imitation" and not job.recurrent
    if learns_after_every_step and share < 1 and "rollout_steps" not in given:
        sizes["rollout_steps"] = max(min(_SHORTEST, job.rollout_steps), int(job.rollout_steps * share))
    return dataclasses.replace(options, **sizes)


def _part(size: int, share: float) -> int:
    """Return a share of a size, at least _MULTIPLE and one of its multiples; with a share of 1 or more, the size."""
    return size if share >= 1 else max(int(size * share) // _MULTIPLE * _MULTIPLE, min(size, _MULTIPLE))


def levels(
    options: HitMacOptions, run_dir: Path, scenario: Scenario | None = None
) -> tuple[ExecutorOptions, CoordinatorOptions]:
    """Return the options of the two jobs of ``hit-mac``, whose runs lie in `run_dir`, with sizes for the scenario."""
    imitates = options.algorithm == "imitation"
    shared: dict[str, Any] = {
        name: getattr(options, name) for name in ("scenario", "seed", "num_envs", "weight_dim", "episodes", "device")
    }
    if options.features == "hit-mac":
        shared |= {"features": FEATURE_SETS["hit-mac"], "embed_layers": 2, "num_frequencies": 4}
    of_executor: dict[str, Any] = {} if imitates else dict(HIT_MAC_EXECUTOR_DEFAULTS)
    if options.features == "frame":
        of_executor["features"] = ExecutorOptions.features
    of_executor["total_steps"] = options.executor_steps
    if options.executor_steps is None and options.executor_minutes is None and not imitates:
        of_executor["total_steps"] = EXECUTOR_STEPS
    executor = dataclasses.replace(
        scaled(with_defaults(ExecutorOptions, options.algorithm), scenario),
        minutes=options.executor_minutes,
        run_dir=run_dir / "executor",
        **(of_executor | shared),
    )
    coordinator = dataclasses.replace(
        scaled(with_defaults(CoordinatorOptions, options.algorithm), scenario),
        executor=str(run_dir / "executor"),
        minutes=options.coordinator_minutes,
        total_steps=options.coordinator_steps,
        run_dir=run_dir / "coordinator",
        **({"features": FEATURE_SETS[options.features]} | shared),
    )
    return executor, coordinator


def policy_folder(start: str) -> Path:
    """Return the directory of the policy that the option ``start`` names."""
    return pretrained_folder(start.removeprefix(PREFIX)) if start.startswith(PREFIX) else Path(start)


def network_of(start: str, task: str, scenario: Scenario | None = None) -> dict[str, Any]:
    """Return the options of a policy's network by the names of a job's options: features and encoder.

    Args:
        start: directory of a run or a checkpoint, or the name of a pretrained policy.
        task: name of the task that the training is for.
        scenario: the scenario to train on; None: one that fits.

    Raises:
        FileNotFoundError, ValueError: no policy for the same role and decisions; the message names it.
    """
    config = load_policy(policy_folder(start))[1]
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


def check(options: Job) -> None:
    """Raise ValueError or TypeError for options that are not allowed, all in one error."""
    invalid = invalid_fields(options, label=flag, show=str)[1]
    errors = list(invalid.values())
    if isinstance(options, HitMacOptions):
        for level in () if errors else levels(options, Path()):
            with collect(errors):
                check(level)
    else:
        for name, what in options.problems().items():
            if name not in invalid:
                errors.append(ValueError(f"{flag(name)} is {getattr(options, name)}; {what}"))
        with collect(errors):
            check_features(options.features)
        with collect(errors):
            checked_device(options.device, flag("device"))
        if not errors:
            problems = (*_engine_problems(options), *_memory_problems(options), *_nearness_problems(options))
            errors += map(ValueError, problems)
    raise_together(errors)


def _engine_problems(options: Options) -> Iterator[str]:
    """Yield the options that do not fit the engine."""
    if options.engine != "rllib":
        for name in ("num_env_runners", "num_learners", "address"):
            if getattr(options, name):
                yield f"{flag(name)} is {getattr(options, name)}; it needs --engine rllib"
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


def _memory_problems(options: Options) -> Iterator[str]:
    """Yield the options that do not fit a policy with a memory."""
    if not options.recurrent:
        return
    if options.algorithm != "imitation":
        yield f"--memory is recurrent, and --algorithm {options.algorithm}; a memory is learned by imitation"
    if getattr(options, "per_sensor", False):
        yield "--memory is recurrent; it is for a policy of all sensors, without --per-sensor"
    if options.features != RECURRENT_FEATURES:
        yield (
            f"--features is {' '.join(options.features)}; with --memory recurrent they must be left out, and are "
            f"{' '.join(RECURRENT_FEATURES)}"
        )
    if options.weight_dim % 2:
        yield f"--weight-dim is {options.weight_dim}; with --memory recurrent it must be even"


def _nearness_problems(options: Options) -> Iterator[str]:
    """Yield the options that do not fit a policy that is shown the nearest targets."""
    shown = {name: value for name in NEARNESS if (value := getattr(options, name, None)) is not None}
    if shown and "nearest" not in shown:
        for name, value in shown.items():
            yield f"{flag(name)} is {value}; it needs --nearest"
    elif shown:
        if options.recurrent or tuple(options.features) == BELIEFS:
            yield f"--nearest is {shown['nearest']}; a policy with a memory or beliefs is shown all targets"
        try:
            check_lists(options.encoder_config)
        except ValueError as error:
            yield f"--nearest is {shown['nearest']}; {error}"


def check_on(options: Options, scenario: Scenario) -> None:
    """Raise ValueError for options that do not fit the scenario, the policy to start from or the executor."""
    role = options.task.spec.role
    if options.start is not None:
        network = network_of(options.start, options.task.spec.name, scenario)
        raise_together(
            [
                ValueError(f"{flag(name)} is {getattr(options, name)}; that of {options.start} is {value}")
                for name, value in network.items()
                if getattr(options, name) != value
            ]
        )
    if check_features(options.features) == BELIEFS:
        if role != "agent" or getattr(options, "per_sensor", False):
            raise ValueError("--features is beliefs; they are for a policy that turns all sensors directly")
        BeliefObserver(scenario)
    if options.recurrent and scenario.knowledge != "shared":
        raise ValueError(
            f"--memory is recurrent, and the knowledge {scenario.knowledge}; to learn a memory it must be shared "
            "(--knowledge shared)"
        )
    if isinstance(options, CoordinatorOptions):
        executor = options.executor
        load_executor(executor, scenario)
        if executor != "scripted" and (executor in EXECUTORS or not Path(executor).is_dir()):
            raise ValueError(f"--executor is {executor}; it must be scripted or the directory of a run or checkpoint")
