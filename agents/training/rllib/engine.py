"""Training by PPO of RLlib: its env runners, learners and fault tolerance, with the scenes of the default engine."""

import dataclasses
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import ray
import torch
import tree
from ray.exceptions import RayError, RayTaskError
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from stable_baselines3.common.logger import configure

from hitmac.agents.learned.checkpoint import PolicyConfig, build_policy, checked_device, save_policy, tensors_of
from hitmac.agents.learned.difference_rewards import acting_or_all
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training import learner, resume
from hitmac.agents.training.config import Options
from hitmac.agents.training.resume import Progress, state_file
from hitmac.agents.training.rllib.cluster import LOCAL, connect
from hitmac.agents.training.rllib.module import AttentionRLModule, Choices
from hitmac.envs.scenario import Scenario

PATIENCE = 300.0
"""Seconds without a step after which a training without env runners ends."""

WHOLE = 10**6
"""Time of RLlib's schedules at the end of a training; before, it is the completed share of it."""

_LOGGED = {"total_loss": "loss", "policy_loss": "policy_gradient_loss", "vf_loss": "value_loss", "entropy": "entropy"}


class Rollout(NamedTuple):
    """Rollout of an env runner's scenes."""

    columns: dict[str, Any]
    """Columns of RLlib, (rows, ...)."""
    acting: np.ndarray
    """(rows,) bool, the rows in which a sensor acts."""
    means: dict[str, float]
    """Means of coverage, rotation and reward."""


class SceneEnvRunner(EnvRunner):
    """Env runner with its share of a training's scenes, in which a learner of the default engine collects rollouts.

    ``env_config`` has the job's ``options`` and the ``scenario``. :meth:`begin` precedes the first rollout.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        spec: Any = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()
        self.callback: Any = None
        self._weights_seq_no = 0
        if self.num_workers and not self.worker_index:
            return  # the local one of several has only the policy
        if self.worker_index:  # one of several processes on its machine
            torch.set_num_threads(1)
            numba.set_num_threads(1)
        options, scenario = self.config.env_config["options"], self.config.env_config["scenario"]
        scenes = np.array_split(np.arange(options.num_envs), max(self.num_workers, 1))[max(self.worker_index, 1) - 1]
        self.model: Any
        options = dataclasses.replace(options, num_envs=len(scenes), device="cpu")
        self.model, self.envs, _ = learner.build(options, scenario)
        self.model.policy, self._first_row = self.module.policy, scenes[0] * (self.envs.num_envs // len(scenes))
        learner.warm_up(self.envs)

    def begin(self, seed: int) -> int:
        """Start new episodes in all scenes, with the seed ``seed + i`` in scene i; return their number."""
        torch.manual_seed(seed)  # of the actions
        self.envs.seed(seed)
        _, self.callback = self.model._setup_learn(0, learner.RolloutCallback(first_row=self._first_row))
        return self.envs.task.num_envs

    def sample(self, **kwargs: Any) -> Rollout | learner.TrainingError | None:
        """Return a rollout, or the error that ends it; None before :meth:`begin`."""
        if self.callback is None:
            return None
        buffer = self.model.rollout_buffer
        try:
            self.model.collect_rollouts(self.envs, self.callback, buffer, buffer.buffer_size)
        except learner.TrainingError as error:  # RLlib would restart the process
            return error
        flat, shape = buffer.swap_and_flatten, self.model.action_space.shape or ()
        columns = {
            Columns.OBS: {name: flat(array) for name, array in buffer.observations.items()},
            Columns.ACTIONS: flat(buffer.actions).reshape(-1, *shape),
            Columns.ACTION_LOGP: flat(buffer.log_probs).ravel(),
            Postprocessing.ADVANTAGES: flat(buffer.advantages).ravel(),
            Postprocessing.VALUE_TARGETS: flat(buffer.returns).ravel(),
        }
        return Rollout(columns, flat(buffer.acting).ravel(), self.callback.means)

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces of the policy, for RLlib."""
        spaces = self.config.observation_space, self.config.action_space
        return dict.fromkeys((INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, DEFAULT_MODULE_ID), spaces)

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the weights of the policy and their number, for RLlib."""
        return {COMPONENT_RL_MODULE: self.module.get_state(), WEIGHTS_SEQ_NO: self._weights_seq_no}

    def set_state(self, state: dict[str, Any]) -> None:
        """Load the weights of RLlib's learner."""
        if COMPONENT_RL_MODULE in state:
            weights = state[COMPONENT_RL_MODULE]
            weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
            self._weights_seq_no = state.get(WEIGHTS_SEQ_NO, 0)

    def assert_healthy(self) -> None:
        """Do nothing: an env runner is healthy once it is built."""


class ScenePPO(PPO):
    """PPO of RLlib on rollouts of :class:`SceneEnvRunner`.

    No seed of a scene is used twice: a restarted env runner gets new ones.
    """

    config: Any
    env_runner_group: Any
    learner_group: Any
    metrics: Any
    first_seed: int = 0
    seeds_used: int = 0
    done: float = 0.0  # share of the training, for learning rate and entropy bonus
    begun: list[int]  # numbers of the env runners that began in the last step
    rollouts: list[Rollout]  # of the last step

    def training_step(self) -> None:
        """Collect a rollout in all scenes, and learn from the rows in which a sensor acts."""
        options, where = self.config.env_config["options"], {"local_env_runner": not self.config.num_env_runners}
        each = self.env_runner_group.foreach_env_runner
        new = each(lambda runner: None if runner.callback else runner.worker_index, **where)
        self.begun = [number for number in new if number is not None]
        for number in self.begun:
            seed = self.first_seed + self.seeds_used
            (scenes,) = each(lambda runner, seed=seed: runner.begin(seed), remote_worker_ids=[number], **where) or [0]
            self.seeds_used += scenes
        found = each(lambda runner: runner.sample(), **where)
        for one in found:
            if isinstance(one, learner.TrainingError):
                raise one
        self.rollouts = [one for one in found if one is not None]
        if not self.rollouts:
            return
        acting = acting_or_all(np.concatenate([one.acting for one in self.rollouts]))
        rows = np.random.permutation(np.flatnonzero(acting))  # noqa: NPY002 - what RLlib shuffles with
        columns = tree.map_structure(
            lambda *arrays: np.concatenate(arrays)[rows], *(one.columns for one in self.rollouts)
        )
        advantages = columns[Postprocessing.ADVANTAGES]
        columns[Postprocessing.ADVANTAGES] = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        # Only the penalty on the divergence, which is off, reads these logits.
        logits = Choices.required_input_dim(self.config.action_space)
        columns[Columns.ACTION_DIST_INPUTS] = np.zeros((len(rows), logits), np.float32)
        learned = self.learner_group.update(
            batch=MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(columns)}, len(rows)),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: int(WHOLE * self.done)},
            num_epochs=options.epochs,
            minibatch_size=max(min(options.batch_size, len(rows)) // max(options.num_learners, 1), 1),
            shuffle_batch_per_epoch=True,
        )
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)


def ppo_config(options: Options, scenario: Scenario, policy: AttentionPolicy) -> Any:
    """Return the ``PPOConfig`` for the options of a job."""
    network = {"encoder_config": options.encoder_config, "critic": options.critic}
    gpu = checked_device(options.device).type != "cpu"
    bonus: Any = [[0, options.entropy], [WHOLE, options.final_entropy]]
    return (
        PPOConfig(algo_class=ScenePPO)
        .environment(
            observation_space=policy.observation_space,
            action_space=policy.action_space,
            env_config={"options": options, "scenario": scenario},
        )
        .env_runners(
            env_runner_cls=SceneEnvRunner,
            num_env_runners=options.num_env_runners,
            create_local_env_runner=True,  # its policy is saved and evaluated
        )
        .learners(num_learners=options.num_learners, num_gpus_per_learner=int(gpu))
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
        .fault_tolerance(restart_failed_env_runners=True, delay_between_env_runner_restarts_s=1.0)
        .debugging(log_level=None)  # the engine sets it
    )


def optimizer_of(learner: Any) -> torch.optim.Optimizer:
    """Return the optimizer of a learner of RLlib."""
    return learner.get_optimizers_for_module(DEFAULT_MODULE_ID)[0][1]


class RLlibEngine:
    """Training by RLlib, with the interface of :class:`hitmac.agents.training.learner.SB3Engine`.

    A resumed training begins with new episodes, of seeds that the run has not used.
    """

    def __init__(self, options: Options, scenario: Scenario, run_dir: Path) -> None:
        torch.manual_seed(options.seed)
        self.options, self.progress, self.steps, self._run_dir = options, Progress(), 0, run_dir
        self.entropy: float | None = None
        self._first_config = learner.policy_config(options, scenario)
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
            learner.take_weights(policy, options.start)
        weights = {name: tensor.numpy() for name, tensor in tensors_of(policy).items()}
        seed = options.seed + self.steps

        def begin(taught: Any) -> None:
            taught.module[DEFAULT_MODULE_ID].unwrapped().set_state(weights)
            resume.put_moments(optimizer_of(taught), moments)
            np.random.seed(seed)  # noqa: NPY002 - what RLlib shuffles with

        self._logger = configure(str(run_dir / "tensorboard"), ["tensorboard"])
        self._answered = time.monotonic()
        _start_ray(options)
        try:
            for name in ("ray", "ray.rllib"):  # a lost env runner has its own line above the bar
                logging.getLogger(name).setLevel(logging.CRITICAL)
            self.algorithm: Any = ppo_config(options, scenario, policy).build_algo(use_copy=False)
            self.algorithm.first_seed, self.algorithm.seeds_used = self._first_config.training_seeds[0], used
            self._learners, runners = self.algorithm.learner_group, self.algorithm.env_runner_group
            self._learners.foreach_learner(begin)
            runners.sync_weights(from_worker_or_learner_group=self._learners, inference_only=True)
            self.policies: tuple[AttentionPolicy, ...] = (runners.local_env_runner.module.policy,)
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> PolicyConfig:
        """Metadata of a checkpoint, with the training seeds so far."""
        first = self._first_config.training_seeds[0]
        used = self.algorithm.seeds_used or self.options.num_envs  # before the first rollout
        return dataclasses.replace(self._first_config, training_seeds=(first, first + used - 1))

    def save(self) -> None:
        """Write a checkpoint; before the first update, when nothing can be resumed, only the policy."""
        save_policy(self._run_dir / "checkpoint", self.policies[0], self.config)
        if not self.steps:
            return
        with _one_line():  # all learners have equal moments
            found = self._learners.foreach_learner(lambda taught: resume.moments_of(optimizer_of(taught)))
        moments = found.result_or_errors[0].get()
        groups = resume.learned_state(self.policies[0], moments, self.progress, self.steps)
        groups["seeds"] = {"used": np.array([self.algorithm.seeds_used])}
        resume.write_state(state_file(self._run_dir), groups)

    def close(self) -> None:
        """End RLlib and its connection to the cluster."""
        if hasattr(self, "algorithm"):
            self.algorithm.stop()
        self._logger.close()
        ray.shutdown()

    def update(self, clock: learner.TrainingClock) -> None:
        """Collect a rollout and learn from it; while all env runners are lost, do nothing."""
        self.algorithm.done, (rate, _) = clock.fraction, clock.rates
        with _one_line():
            result = self.algorithm.train()
        for number in self.algorithm.begun if self.algorithm.iteration > 1 else ():
            clock.bar.write(f"env runner {number} was lost and restarted")
        rollouts = self.algorithm.rollouts
        if not rollouts:
            if time.monotonic() - self._answered > PATIENCE:
                raise learner.TrainingError(f"no env runner has answered for {PATIENCE:.0f} seconds; see Ray's logs")
            return
        self._answered = time.monotonic()
        sizes = [len(one.acting) for one in rollouts]
        self.steps += sum(sizes)
        learned = result[LEARNER_RESULTS][DEFAULT_MODULE_ID]
        logged = {short: float(learned[name]) for name, short in _LOGGED.items()}
        learner.check_update(self.policies[0], logged)
        self.entropy = logged["entropy"] / learner.highest_entropy(self.policies[0].action_space)
        means = {
            name: float(np.average([one.means[name] for one in rollouts], weights=sizes)) for name in learner.MEANS
        }
        for group, values in (("rollout", means), ("train", logged | {"learning_rate": rate})):
            for name, value in values.items():
                self._logger.record(f"{group}/{name}", value)
        self._logger.dump(self.steps)
        clock.add_point(**means)


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
    except learner.TrainingError as error:
        raise learner.TrainingError(str(getattr(error, "cause", error))) from None
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        raise learner.TrainingError(f"RLlib failed: {str(cause).strip().splitlines()[-1]}") from error
