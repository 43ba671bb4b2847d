"""Training by PPO of RLlib: Ray's processes simulate and act, and RLlib's learner updates the policy."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import ray
import torch
import tree
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from stable_baselines3.common.logger import Logger, configure

from hitmac.agents.command_line import import_modules
from hitmac.agents.learned.checkpoint import PolicyConfig, build_policy, checked_device, save_policy
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training import learner, resume
from hitmac.agents.training.config import Options
from hitmac.agents.training.resume import Progress, state_file
from hitmac.agents.training.rllib.cluster import LOCAL, connect
from hitmac.agents.training.rllib.module import AttentionRLModule, Choices, put_weights, weights_of
from hitmac.envs.scenario import Scenario

PATIENCE = 300.0
"""Maximum seconds of a rollout, after which the training ends."""

WHOLE = 10**6
"""Time of RLlib's schedules at the end of a training; before, it is the completed share of it."""

_LOGGED = {"total_loss": "loss", "policy_loss": "policy_gradient_loss", "vf_loss": "value_loss", "entropy": "entropy"}


class RunnerRollout(NamedTuple):
    """Rollout of an env runner's scenes."""

    columns: dict[str, Any]  # of RLlib, (rows, ...)
    acting: np.ndarray  # (rows,) bool, the rows in which a sensor acts
    means: dict[str, float]  # of coverage, rotation and reward


class SceneEnvRunner:
    """Scenes of a training, in which a learner of the default engine collects rollouts.

    Args:
        options, scenario: those of the training.
        scenes: numbers of its scenes among those of the training.
        seed: seed of the actions, and of the first scene; the others have the next ones.
    """

    def __init__(self, options: Options, scenario: Scenario, scenes: range, seed: int) -> None:
        if ray.get_runtime_context().get_actor_id():  # one of several processes on its machine
            torch.set_num_threads(1)
            numba.set_num_threads(1)
            import_modules(())
        options = dataclasses.replace(options, num_envs=len(scenes), device="cpu")
        self._model: Any
        self._model, self._venv, _ = learner.build(options, scenario)
        learner.warm_up(self._venv)
        torch.manual_seed(seed)
        self._venv.seed(seed)
        self._model.set_logger(Logger(None, []))  # its default makes a folder among the temporary ones
        first_row = scenes[0] * (self._venv.num_envs // len(scenes))
        _, self._callback = self._model._setup_learn(0, learner.RolloutCallback(first_row=first_row))

    def sample(self, weights: Mapping[str, np.ndarray]) -> RunnerRollout:
        """Return a rollout of the policy with these weights, by name."""
        put_weights(self._model.policy, weights)
        rollout, shape = self._model.rollout_buffer, self._model.action_space.shape or ()
        self._model.collect_rollouts(self._venv, self._callback, rollout, self._model.n_steps)
        steps = {name: one.flatten(0, 1).numpy() for name, one in rollout.steps.items()}
        columns = {
            Columns.OBS: {name: one.flatten(0, 1).numpy() for name, one in rollout.observations.items()},
            Columns.ACTIONS: steps["actions"].reshape(-1, *shape),
            Columns.ACTION_LOGP: steps["log_probs"].ravel(),
            Postprocessing.ADVANTAGES: steps["advantages"].ravel(),
            Postprocessing.VALUE_TARGETS: steps["returns"].ravel(),
        }
        return RunnerRollout(columns, steps["acting"].ravel(), self._callback.means)


class EnvRunners:
    """Env runners that share the scenes of a training: processes of Ray or, without any, one in this process.

    A lost one is started again, with scenes of new seeds, while the others continue. No seed is used twice.
    """

    def __init__(self, options: Options, scenario: Scenario, next_seed: int) -> None:
        self._given, self._number = (options, scenario), options.num_env_runners
        self.next_seed = next_seed  # that no scene has used
        scenes = np.array_split(np.arange(options.num_envs), max(self._number, 1))
        self._scenes = [range(some[0], some[-1] + 1) for some in scenes]
        self._starting: dict[Any, int] = {}  # numbers of those that start, by the reference to their readiness
        self._runners: list[Any] = [None] * len(scenes)
        for number in range(len(scenes)):
            self._start(number)
        ray.get(list(self._starting))

    def _start(self, number: int) -> None:
        scenes, seed = self._scenes[number], self.next_seed
        self.next_seed += len(scenes)
        if not self._number:
            self._runners[number] = SceneEnvRunner(*self._given, scenes, seed)
            return
        process: Any = ray.remote(num_cpus=1)(SceneEnvRunner)
        self._runners[number] = process.remote(*self._given, scenes, seed)
        self._starting[self._runners[number].__ray_ready__.remote()] = number

    def sample(self, weights: Mapping[str, np.ndarray]) -> tuple[list[RunnerRollout], list[int]]:
        """Return the rollouts of the env runners that have started, and the numbers of those that are lost."""
        if not self._number:
            return [self._runners[0].sample(weights)], []
        if starting := list(self._starting):
            patience = PATIENCE if len(starting) == self._number else 0.0
            for reference in ray.wait(starting, num_returns=len(starting), timeout=patience)[0]:
                del self._starting[reference]
        shared = ray.put(weights)
        ready = set(range(self._number)) - set(self._starting.values())
        running = {self._runners[number].sample.remote(shared): number for number in sorted(ready)}
        answered = ray.wait(list(running), num_returns=len(running), timeout=PATIENCE)[0] if running else []
        if len(answered) < max(len(running), 1):
            raise learner.TrainingError(f"an env runner has not answered for {PATIENCE:.0f} seconds; see Ray's logs")
        found: list[RunnerRollout] = []
        lost: list[int] = []
        for reference in running:
            try:
                found.append(ray.get(reference))
            except RayActorError:
                lost.append(running[reference])
        for number in lost:
            self._start(number)
        return found, lost


def build_learner(options: Options, policy: AttentionPolicy) -> Any:
    """Return RLlib's learner of PPO for the options of a job and a policy's spaces."""
    spaces = policy.observation_space, policy.action_space
    network = {"encoder_config": options.encoder_config, "critic": options.critic}
    gpu = checked_device(options.device).type != "cpu"
    bonus: Any = [[0, options.entropy], [WHOLE, options.final_entropy]]
    config = (
        PPOConfig()
        .learners(num_gpus_per_learner=int(gpu))
        .rl_module(rl_module_spec=RLModuleSpec(AttentionRLModule, model_config=network))
        .training(
            lr=[[0, options.learning_rate], [WHOLE, 0.0]],
            entropy_coeff=bonus,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            vf_loss_coeff=0.5,
            use_kl_loss=False,
            grad_clip=options.max_grad_norm,
            grad_clip_by="global_norm",
        )
    )
    return config.build_learner(spaces={DEFAULT_MODULE_ID: spaces})


def train_batch(rollouts: Sequence[RunnerRollout], space: Any) -> MultiAgentBatch:
    """Return the rows of rollouts in which a sensor acts, in random order, for RLlib's learner."""
    acting = np.concatenate([one.acting for one in rollouts])
    rows = np.random.permutation(np.flatnonzero(acting | ~acting.any()))  # noqa: NPY002 - what RLlib shuffles with
    columns = tree.map_structure(lambda *parts: np.concatenate(parts)[rows], *(one.columns for one in rollouts))
    advantages = columns[Postprocessing.ADVANTAGES]
    columns[Postprocessing.ADVANTAGES] = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    # Only the penalty on the divergence, which is off, reads these logits.
    columns[Columns.ACTION_DIST_INPUTS] = np.zeros((len(rows), Choices.required_input_dim(space)), np.float32)
    return MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(columns)}, len(rows))


class RLlibEngine:
    """Training by RLlib, with the interface of :class:`hitmac.agents.training.learner.SB3Engine`.

    A resumed training begins with new episodes, of seeds that the run has not used.
    """

    def __init__(self, options: Options, scenario: Scenario, run_dir: Path) -> None:
        torch.manual_seed(options.seed)
        self.options, self.progress, self.steps, self._run_dir = options, Progress(), 0, run_dir
        self._seen: dict[str, np.ndarray] | None = None  # the observations of some rows in the last step
        self._first_config = learner.policy_config(options, scenario)
        policy = build_policy(self._first_config, scenario)
        self.policies = (policy,)
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
            learner.take_weights(policy, options.start)
        self._weights = weights_of(policy)
        self._logger = configure(str(run_dir / "tensorboard"), ["tensorboard"])
        _start_ray(options)
        try:
            for name in ("ray", "ray.rllib"):  # a lost env runner has its own line above the bar
                logging.getLogger(name).setLevel(logging.CRITICAL)
            self._learner = build_learner(options, policy)
            self._module.set_state(self._weights)
            resume.put_moments(self._optimizer, moments)
            np.random.seed(options.seed + self.steps)  # noqa: NPY002 - what RLlib shuffles with
            self._runners = EnvRunners(options, scenario, self._first_config.training_seeds[0] + used)
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> PolicyConfig:
        """Metadata of a checkpoint, with the training seeds so far."""
        seeds = self._first_config.training_seeds[0], self._runners.next_seed - 1
        return dataclasses.replace(self._first_config, training_seeds=seeds)

    @property
    def _module(self) -> Any:
        return self._learner.module[DEFAULT_MODULE_ID].unwrapped()

    @property
    def _optimizer(self) -> torch.optim.Optimizer:
        return self._learner.get_optimizers_for_module(DEFAULT_MODULE_ID)[0][1]

    def save(self) -> None:
        """Write a checkpoint; before the first update, when nothing can be resumed, only the policy."""
        save_policy(self._run_dir / "checkpoint", self.policies[0], self.config)
        if not self.steps:
            return
        moments = resume.moments_of(self._optimizer)
        groups = resume.learned_state(self.policies[0], moments, self.progress, self.steps)
        groups["seeds"] = {"used": np.array([self._runners.next_seed - self._first_config.training_seeds[0]])}
        resume.write_state(state_file(self._run_dir), groups)

    def close(self) -> None:
        """End the processes of this training, and the connection to the cluster."""
        if hasattr(self, "_learner"):
            self._learner.shutdown()
        self._logger.close()
        ray.shutdown()

    @property
    def entropy(self) -> float | None:
        """See :func:`~hitmac.agents.training.learner.entropy_on`; None before the first update."""
        return None if self._seen is None else learner.entropy_on(self.policies[0], self._seen)

    def update(self, clock: learner.TrainingClock) -> None:
        """Collect a rollout and learn from it; while all env runners are lost, do nothing."""
        with _one_line():
            rollouts, lost = self._runners.sample(self._weights)
            for number in lost:
                clock.bar.write(f"env runner {number + 1} was lost and restarted")
            if not rollouts:
                return
            batch = train_batch(rollouts, self.policies[0].action_space)
            metrics = MetricsLogger(root=True)
            found = self._learner.update(
                batch=batch,
                timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: int(WHOLE * clock.fraction)},
                num_epochs=self.options.epochs,
                minibatch_size=min(self.options.batch_size, len(batch)),
                shuffle_batch_per_epoch=True,
            )
            metrics.aggregate([found])
        self._weights = self._module.get_state()
        put_weights(self.policies[0], self._weights)
        sizes = [len(one.acting) for one in rollouts]
        self.steps += sum(sizes)
        logged = {short: float(metrics.peek((DEFAULT_MODULE_ID, name))) for name, short in _LOGGED.items()}
        learner.check_update(self.policies[0], logged)
        rows = sizes[-1] // self.options.rollout_steps
        self._seen = {name: one[-rows:].copy() for name, one in rollouts[-1].columns[Columns.OBS].items()}
        means = {name: np.average([one.means[name] for one in rollouts], weights=sizes) for name in learner.MEANS}
        for group, values in (("rollout", means), ("train", logged | {"learning_rate": clock.rates[0]})):
            for name, value in values.items():
                self._logger.record(f"{group}/{name}", value)
        self._logger.dump(self.steps)
        clock.add_point(**means)


def _start_ray(options: Options) -> None:
    """Connect to the cluster, or start one on this machine."""
    runners = options.num_env_runners
    if options.address is None:
        connect(LOCAL, "--address", num_cpus=max(runners, 1))
        return
    connect(options.address, "--address")
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if runners > cpus:
        ray.shutdown()
        raise ValueError(f"--num-env-runners is {runners}; the cluster at {options.address} has {cpus} CPUs")


@contextmanager
def _one_line() -> Iterator[None]:
    """Reduce an error of Ray, or of one of its processes, to one line."""
    try:
        yield
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, learner.TrainingError):
            raise cause from None
        raise learner.TrainingError(f"RLlib failed: {str(cause).strip().splitlines()[-1]}") from error
