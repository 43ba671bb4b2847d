"""Training by PPO of RLlib."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED
from stable_baselines3.common.logger import configure

from hitmac.agents.learned.checkpoint import PolicyConfig, build_policy, save_policy, tensors_of
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training import resume, train
from hitmac.agents.training.config import Options
from hitmac.agents.training.resume import Progress, state_file
from hitmac.agents.training.rllib.cluster import LOCAL, connect
from hitmac.agents.training.rllib.ppo import ppo_config
from hitmac.envs.scenario import Scenario

PATIENCE = 300.0
"""Seconds without a step after which a training without env runners ends."""

_LOGGED = {"total_loss": "loss", "policy_loss": "policy_gradient_loss", "vf_loss": "value_loss", "entropy": "entropy"}


class RLlibEngine:
    """Training by RLlib, with the interface of :class:`hitmac.agents.training.train.SB3Engine`.

    A resumed training begins with new episodes, of seeds that the run has not used.
    """

    def __init__(self, options: Options, scenario: Scenario, run_dir: Path) -> None:
        torch.manual_seed(options.seed)
        self.options, self.progress, self.steps, self._run_dir = options, Progress(), 0, run_dir
        self.entropy: float | None = None
        self._first_config = train.policy_config(options, scenario)
        policy = build_policy(self._first_config, scenario)
        moments: resume.Arrays = {}
        used = 0
        if (path := state_file(run_dir)).is_file():
            try:
                groups = resume.read_state(path)
                moments, self.progress, self.steps = resume.put_learned(groups, policy, path)
                used = int(groups["seeds"]["used"][0])
            except resume.DAMAGED as error:
                raise ValueError(f"{path} is an incomplete training state, or that of another run: {error}") from None
        elif options.start is not None:
            train.take_weights(policy, options.start)
        weights = {name: tensor.numpy() for name, tensor in tensors_of(policy).items()}
        seed = options.seed + self.steps
        self._logger = configure(str(run_dir / "tensorboard"), ["tensorboard"])
        self._answered = time.monotonic()
        _start_ray(options)
        try:
            for name in ("ray", "ray.rllib"):  # a lost env runner has its own line above the bar
                logging.getLogger(name).setLevel(logging.CRITICAL)
            self.algorithm: Any = ppo_config(options, scenario, policy).build_algo(use_copy=False)
            self._learners, runners = self.algorithm.learner_group, self.algorithm.env_runner_group
            self._learners.foreach_learner(lambda learner: learner.begin(weights, moments, seed))
            runners.sync_weights(from_worker_or_learner_group=self._learners, inference_only=True)
            self.algorithm.begin_scenes(self._first_config.training_seeds[0], used)
            self.policies: tuple[AttentionPolicy, ...] = (runners.local_env_runner.module.policy,)
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> PolicyConfig:
        """Metadata of a checkpoint, with the training seeds so far."""
        first = self._first_config.training_seeds[0]
        return replace(self._first_config, training_seeds=(first, first + self.algorithm.seeds_used - 1))

    def save(self) -> None:
        """Write a checkpoint; before the first update, when nothing can be resumed, only the policy."""
        save_policy(self._run_dir / "checkpoint", self.policies[0], self.config)
        if not self.steps:
            return
        with _one_line():  # all learners have equal moments
            moments = self._learners.foreach_learner(lambda learner: learner.moments()).result_or_errors[0].get()
        groups = resume.learned_state(self.policies[0], moments, self.progress, self.steps)
        groups["seeds"] = {"used": np.array([self.algorithm.seeds_used])}
        resume.write_state(state_file(self._run_dir), groups)

    def close(self) -> None:
        """End RLlib and its connection to the cluster."""
        if hasattr(self, "algorithm"):
            self.algorithm.stop()
        self._logger.close()
        ray.shutdown()

    def update(self, clock: train.TrainingClock) -> None:
        """Collect a rollout and learn from it; while all env runners are lost, do nothing."""
        rate, entropy = self.options.rates(clock.fraction)
        with _one_line():
            self._learners.foreach_learner(lambda learner: learner.set_rates(rate, entropy))
            result = self.algorithm.train()
        for number in self.algorithm.lost:
            clock.bar.write(f"env runner {number} was lost and restarted")
        self.algorithm.lost.clear()
        rollouts = result.get(ENV_RUNNER_RESULTS, {})
        steps = int(rollouts.get(NUM_ENV_STEPS_SAMPLED, 0))
        if not steps:
            if time.monotonic() - self._answered > PATIENCE:
                raise train.TrainingError(f"no env runner has answered for {PATIENCE:.0f} seconds; see Ray's logs")
            return
        self._answered = time.monotonic()
        self.steps += steps
        learned = result[LEARNER_RESULTS][DEFAULT_MODULE_ID]
        logged = {short: float(learned[name]) for name, short in _LOGGED.items()}
        train.check_update(self.policies[0], logged)
        self.entropy = logged["entropy"] / train.highest_entropy(self.policies[0].action_space)
        means = {name: float(rollouts[name]) / steps for name in train.MEANS}
        for group, values in (("rollout", means), ("train", logged | {"learning_rate": rate})):
            for name, value in values.items():
                self._logger.record(f"{group}/{name}", value)
        self._logger.dump(self.steps)
        clock.add_point(*means.values())


def _start_ray(options: Options) -> None:
    """Connect to the cluster, or start one on this machine."""
    needed = options.num_env_runners + options.num_learners
    if options.address is None:
        connect(LOCAL, "--address", num_cpus=max(needed, 1))
        return
    connect(options.address, "--address")
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if needed > cpus:
        ray.shutdown()
        raise ValueError(
            f"--num-env-runners is {options.num_env_runners} and --num-learners {options.num_learners}; the cluster at "
            f"{options.address} has {cpus} CPUs"
        )


@contextmanager
def _one_line() -> Iterator[None]:
    """Reduce an error of Ray, or of one of its processes, to one line."""
    try:
        yield
    except train.TrainingError as error:
        raise train.TrainingError(str(getattr(error, "cause", error))) from None
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        raise train.TrainingError(f"RLlib failed: {str(cause).strip().splitlines()[-1]}") from error
