"""Training by PPO of RLlib: updates, points of the curve and checkpoints, until a limit or a signal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED
from stable_baselines3.common.logger import Logger, configure

from hitmac.agents.learned.checkpoint import PolicyConfig, build_policy, save_policy, tensors_of
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training.config import take_weights
from hitmac.agents.training.jobs import Job
from hitmac.agents.training.learner import policy_config
from hitmac.agents.training.report import highest_entropy
from hitmac.agents.training.resume import (
    DAMAGED,
    Moments,
    Progress,
    learned_arrays,
    progress_arrays,
    read_groups,
    read_learned,
    read_progress,
    rescue,
    write_arrays,
)
from hitmac.agents.training.rllib.algorithm import ScenePPO, ppo_config
from hitmac.agents.training.rllib.cluster import LOCAL, connect, error_lines, without_log
from hitmac.agents.training.rllib.runner import MEANS
from hitmac.agents.training.train import (
    EngineFailedError,
    NotFiniteError,
    Stop,
    TrainingClock,
    check_update,
    curve_of,
    finite_training,
    state_file,
    stop_on_signal,
)
from hitmac.envs.scenario import Scenario

PATIENCE = 300.0
"""Seconds without a step after which a training whose env runners are lost ends."""

_LOGGED = {"total_loss": "loss", "policy_loss": "policy_gradient_loss", "vf_loss": "value_loss", "entropy": "entropy"}


@dataclass
class Sitting:
    """Training of a run in this process, as it stands."""

    algorithm: ScenePPO
    policy: AttentionPolicy
    begun: PolicyConfig
    progress: Progress
    steps: int = 0
    entropy: float | None = None
    moments: Moments = field(default_factory=dict)

    @property
    def config(self) -> PolicyConfig:
        """Metadata of a checkpoint, with the training seeds used so far."""
        first = self.begun.training_seeds[0]
        return replace(self.begun, training_seeds=(first, first + self.algorithm.seeds_used - 1))

    def save(self, run_dir: Path) -> None:
        """Write a checkpoint; before the first update there is nothing to go on from, and it holds the policy alone."""
        save_policy(run_dir / "checkpoint", self.policy, self.config)
        if not self.steps:
            return
        arrays = learned_arrays(self.policy, self.moments) | progress_arrays(self.progress, self.steps)
        write_arrays(state_file(run_dir), arrays | {"seeds/used": np.array([self.algorithm.seeds_used])})


def begin(options: Job, scenario: Scenario, run_dir: Path) -> Sitting:
    """Start RLlib and build a training as the last checkpoint of the run has it, or if there is none, a fresh one.

    The scenes begin with new episodes, of seeds that the run has not used.

    Raises:
        ConnectionError, ValueError: there is no cluster, or it is too small, or the checkpoint is damaged.
    """
    torch.manual_seed(options.seed)
    config = policy_config(options, scenario)
    policy = build_policy(config, scenario)
    progress, moments = Progress(), Moments()
    steps = used = 0
    if (path := state_file(run_dir)).is_file():
        try:
            groups = read_groups(path)
            moments = read_learned(groups, policy, path)
            steps, used = int(groups["progress"]["steps"][0]), int(groups["seeds"]["used"][0])
            progress = read_progress(groups)
        except DAMAGED as error:
            raise ValueError(f"{path} is not a whole training state of this run: {error}") from None
    elif options.start is not None:
        take_weights(policy, options.start)
    _start_ray(options)
    algorithm = None
    try:
        for name in ("ray", "ray.rllib"):  # what is lost and started again is told by the bar
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with without_log():
            algorithm = ppo_config(options, scenario, policy).build_algo(use_copy=False)
        assert isinstance(algorithm, ScenePPO)
        weights = {name: tensor.numpy() for name, tensor in tensors_of(policy).items()}
        algorithm.begin_learning(weights, moments, options.seed + steps)
        algorithm.begin_scenes(config.training_seeds[0], used)
    except BaseException:
        if algorithm is not None:
            algorithm.stop()
        ray.shutdown()
        raise
    return Sitting(algorithm, algorithm.policy, config, progress, steps, moments=moments)


def train(options: Job, scenario: Scenario, run_dir: Path, sitting: Sitting) -> tuple[Sitting, bool]:
    """Train until a limit or the user stops it, and leave a checkpoint.

    Checkpoints are saved, and the training ends, between two updates only.

    Returns:
        The training as it was saved, and whether the user stopped it.
    """

    def save() -> None:
        check()
        sitting.save(run_dir)

    elsewhere = rescue(run_dir, lambda folder: save_policy(folder, sitting.policy, sitting.config))
    finite = finite_training(lambda: sitting.steps, sitting.policy)
    with stop_on_signal() as stop, elsewhere as check, finite:
        try:
            clock = EngineClock(options, sitting, stop)
            with _one_line():
                _update(options, sitting, run_dir, clock, save)
        finally:
            sitting.algorithm.stop()
            ray.shutdown()
        save()  # before the last point, which may take a while
        last = curve_of(options, sitting.policy, sitting.config, sitting.progress, lambda *_: 1.0)
        stop.leaves(lambda: last(sitting.steps, final=True))
        save()
    return sitting, stop.is_set()


class EngineClock(TrainingClock):
    """Clock of a training by RLlib."""

    def __init__(self, options: Job, sitting: Sitting, stop: Stop) -> None:
        self._sitting = sitting
        super().__init__(
            sitting.progress,
            max_seconds=options.max_seconds,
            max_steps=options.total_steps,
            stop=stop,
        )

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self._sitting.steps


def _update(options: Job, sitting: Sitting, run_dir: Path, clock: EngineClock, save: Callable[[], None]) -> None:
    """Update the policy until a limit or a signal."""
    progress, stop = sitting.progress, clock.stop
    logger = configure(str(run_dir / "tensorboard"), ["tensorboard"])
    curve = curve_of(options, sitting.policy, sitting.config, progress, clock.fraction_at)
    saved, told, heard = progress.seconds, False, time.monotonic()
    clock.tick()
    try:
        while clock.fraction < 1.0 and not stop.is_set():
            with clock.paused():
                stop.leaves(lambda: curve(sitting.steps))
            if stop.is_set():
                break
            seconds = progress.seconds
            steps = _iterate(options, sitting, clock, logger)
            clock.tick()
            for number in sitting.algorithm.lost:
                clock.write(f"env runner {number} was lost and started again")
            sitting.algorithm.lost.clear()
            if steps:
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                raise EngineFailedError(
                    f"no env runner has answered for {PATIENCE:.0f} seconds; Ray's logs, by default below "
                    "/tmp/ray/session_latest, say why"
                )
            if steps and not told and clock.fraction < 1.0:
                clock.write(clock.outlook(steps, progress.seconds - seconds))
                told = True
            if progress.seconds - saved >= options.save_every:
                sitting.moments = sitting.algorithm.moments()
                save()
                saved = progress.seconds
        sitting.moments = sitting.algorithm.moments()
    finally:
        clock.tick()
        clock.close()
        logger.close()


def _iterate(options: Job, sitting: Sitting, clock: EngineClock, logger: Logger) -> int:
    """Collect a rollout and learn from it; return its steps, 0 if all env runners are lost."""
    rate, entropy = options.rates(clock.fraction)
    sitting.algorithm.set_rates(rate, entropy)
    try:
        result = sitting.algorithm.train()
    except NotFiniteError as error:
        raise NotFiniteError(str(getattr(error, "cause", error))) from None
    rollouts = result.get(ENV_RUNNER_RESULTS, {})  # without any, all env runners are lost
    steps = int(rollouts.get(NUM_ENV_STEPS_SAMPLED, 0))
    if not steps:
        return 0
    sitting.steps += steps
    learned = result[LEARNER_RESULTS][DEFAULT_MODULE_ID]
    logged = {short: float(learned[name]) for name, short in _LOGGED.items()}
    check_update(sitting.policy, logged)
    sitting.entropy = float(learned["entropy"]) / highest_entropy(sitting.policy.action_space)
    means = [float(rollouts[name]) / steps for name in MEANS]
    for name, value in zip(MEANS, means, strict=True):
        logger.record(f"rollout/{name}", value)
    for name, value in logged.items():
        logger.record(f"train/{name}", value)
    logger.record("train/learning_rate", rate)
    logger.dump(sitting.steps)
    clock.add_point(*means)
    return steps


def _start_ray(options: Job) -> None:
    """Connect to the cluster, or start one on this machine."""
    needed = options.num_env_runners + options.num_learners
    if options.address is None:
        connect(LOCAL, "--address", num_cpus=max(needed, 1))
        return
    connect(options.address, "--address")
    there = int(ray.cluster_resources().get("CPU", 0))
    if needed > there:
        ray.shutdown()
        raise ValueError(
            f"--num-env-runners is {options.num_env_runners} and --num-learners {options.num_learners}; the cluster at "
            f"{options.address} has {there} CPUs"
        )


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn what Ray says of a failure into one line."""
    try:
        yield
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        raise EngineFailedError(f"RLlib failed: {error_lines(cause)[-1]}") from error
