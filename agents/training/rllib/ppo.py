"""PPO of RLlib with the scenes, samples, advantages and rates of the default engine.

:class:`SceneEnvRunner` collects rollouts of a batch of scenes, :class:`TrainBatch` shuffles their rows,
:class:`AttentionPPOLearner` learns from them, and :class:`ScenePPO` sets the seeds of the scenes.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numba
import numpy as np
import ray
import torch
import tree
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor

from hitmac.agents.learned.checkpoint import checked_device
from hitmac.agents.learned.difference_rewards import ActingRolloutBuffer, acting_or_all
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training.config import Options
from hitmac.agents.training.resume import Arrays, moments_of, put_moments
from hitmac.agents.training.rllib.module import AttentionRLModule
from hitmac.agents.training.train import RolloutCallback, build, check_finite, warm_up
from hitmac.envs.scenario import Scenario

ACTING, ROW = "acting", "row"
"""Columns of every step of a row: whether a sensor of it acts, and its number over all env runners."""


class SceneEnvRunner(EnvRunner):
    """Env runner with a batch of a training's scenes, and a learner that collects rollouts in them.

    ``env_config`` has the job's ``options`` and the ``scenario``. :meth:`begin` precedes the first rollout.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.spaces = (self.config.observation_space, self.config.action_space)
        spec: Any = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()
        self._callback: Any = None
        self._weights_seq_no = 0
        if self.num_workers and not self.worker_index:
            return  # the local one of several has only the policy
        if self.worker_index:  # one of several processes on its machine
            torch.set_num_threads(1)
            numba.set_num_threads(1)
        options, scenario = self.config.env_config["options"], self.config.env_config["scenario"]
        scenes = np.array_split(np.arange(options.num_envs), max(self.num_workers, 1))[max(self.worker_index, 1) - 1]
        options = dataclasses.replace(options, num_envs=len(scenes), device="cpu")
        self.model: Any
        self.model, self.envs, _ = build(options, scenario)
        self.model.policy, self._first_row = self.module.policy, scenes[0] * (self.envs.num_envs // len(scenes))
        warm_up(self.envs)

    def begin(self, seed: int) -> None:
        """Start new episodes in all scenes, with the seed ``seed + i`` in scene i, and `seed` for the actions."""
        torch.manual_seed(seed)
        self.envs.seed(seed)
        _, self._callback = self.model._setup_learn(0, RolloutCallback())

    def sample(self, **kwargs: Any) -> list[SingleAgentEpisode]:
        """Return a rollout as one episode of RLlib: the steps of the first row, then those of the second, ..."""
        if self._callback is None:  # restarted, without scenes so far
            return []
        buffer = self.model.rollout_buffer
        assert isinstance(buffer, ActingRolloutBuffer)
        self.model.collect_rollouts(self.envs, self._callback, buffer, buffer.buffer_size)
        size = buffer.buffer_size * buffer.n_envs
        for name, mean in self._callback.means.items():
            self.metrics.log_value(name, mean * size, reduce="sum")
        self.num_env_steps_sampled_lifetime += size
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, size, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, size, reduce="lifetime_sum")
        columns = {
            ACTING: buffer.acting,
            ROW: np.tile(np.arange(buffer.n_envs), (buffer.buffer_size, 1)) + self._first_row,
            Columns.ACTION_LOGP: buffer.log_probs,
            Postprocessing.ADVANTAGES: buffer.advantages,
            Postprocessing.VALUE_TARGETS: buffer.returns,
        }
        # An episode has one more observation than steps: the first again, which is not read.
        flat = {name: buffer.swap_and_flatten(array) for name, array in buffer.observations.items()}
        observations: Any = {name: np.concatenate((array, array[:1])) for name, array in flat.items()}
        return [
            SingleAgentEpisode(
                observations=InfiniteLookbackBuffer(observations),
                infos=InfiniteLookbackBuffer([{}] * (size + 1)),
                actions=InfiniteLookbackBuffer(
                    buffer.actions.swapaxes(0, 1).reshape(size, *(self.model.action_space.shape or ()))
                ),
                rewards=_numbers(buffer.rewards),
                extra_model_outputs={name: _numbers(array) for name, array in columns.items()},
                len_lookback_buffer=0,
            )
        ]

    def get_metrics(self) -> Any:
        """Return the metrics since the last call, for RLlib."""
        return self.metrics.reduce()

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces of the policy, for RLlib."""
        return dict.fromkeys((INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, DEFAULT_MODULE_ID), self.spaces)

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


def _numbers(array: np.ndarray) -> InfiniteLookbackBuffer:
    """Return numbers (T, B) of a rollout as (B T,)."""
    return InfiniteLookbackBuffer(ActingRolloutBuffer.swap_and_flatten(array).ravel())


class AttentionPPOLearner(PPOTorchLearner):
    """Learner of RLlib with the policy's own optimizer, and advantages normalised in each minibatch."""

    @property
    def policy(self) -> AttentionPolicy:
        """The policy that learns."""
        module = self.module[DEFAULT_MODULE_ID].unwrapped()
        assert isinstance(module, AttentionRLModule)
        return module.policy

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register the policy's optimizer, whose learning rate :meth:`set_rates` sets."""
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(module_id=module_id, optimizer=self.policy.optimizer, params=params)

    def compute_loss_for_module(self, *, batch: dict[str, Any], fwd_out: dict[str, Any], **kwargs: Any) -> Tensor:
        """Return the loss of PPO."""
        advantages = batch[Postprocessing.ADVANTAGES]
        if len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        # The logits of the rollout are only for the penalty on the divergence, which is off.
        batch = {**batch, Postprocessing.ADVANTAGES: advantages} | {
            Columns.ACTION_DIST_INPUTS: fwd_out[Columns.ACTION_DIST_INPUTS].detach()
        }
        loss: Any = super().compute_loss_for_module(batch=batch, fwd_out=fwd_out, **kwargs)
        return loss

    def set_rates(self, learning_rate: float, entropy: float) -> None:
        """Set the learning rate and the weight of the entropy bonus."""
        for group in self.policy.optimizer.param_groups:
            group["lr"] = learning_rate
        self.entropy_coeff_schedulers_per_module[DEFAULT_MODULE_ID] = Scheduler(entropy)

    def begin(self, weights: dict[str, np.ndarray], moments: Arrays, seed: int) -> None:
        """Load a policy's weights, by name, and its optimizer's moments; `seed` is that of the minibatches."""
        self.module[DEFAULT_MODULE_ID].unwrapped().set_state(weights)
        put_moments(self.policy.optimizer, moments)
        np.random.seed(seed)  # noqa: NPY002 - what RLlib shuffles with

    def moments(self) -> Arrays:
        """Return the moments of the optimizer."""
        return moments_of(self.policy.optimizer)


class TrainBatch(ConnectorV2):
    """Connector from rollouts to the rows in which a sensor acts, in random order."""

    def __call__(self, *, rl_module: Any, episodes: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the batch of the module; raise TrainingError for a reward or a feature that is not finite."""

        def joined(part: Callable[[Any], Any]) -> Any:
            return tree.map_structure(lambda *arrays: np.concatenate(arrays), *map(part, rollouts))

        rollouts = sorted(episodes, key=lambda one: one.extra_model_outputs[ROW].data[0])  # not in order of arrival
        columns = joined(lambda one: {name: column.data for name, column in one.extra_model_outputs.items()})
        observations = joined(lambda one: {name: array[:-1] for name, array in one.observations.data.items()})
        row, acting, rewards = columns.pop(ROW), columns.pop(ACTING), joined(lambda one: one.rewards.data)
        check_finite("the reward", rewards, row)
        check_finite("the observation", observations["pairs"], row)
        columns |= {Columns.ACTIONS: joined(lambda one: one.actions.data), Columns.OBS: observations}
        chosen = np.random.permutation(np.flatnonzero(acting_or_all(acting)))  # noqa: NPY002 - RLlib's own stream
        device = next(rl_module[DEFAULT_MODULE_ID].parameters()).device
        return {
            DEFAULT_MODULE_ID: tree.map_structure(lambda array: torch.from_numpy(array[chosen]).to(device), columns)
        }


class ScenePPO(PPO):
    """PPO of RLlib that sets the seeds of each env runner's scenes.

    No seed is used twice: a restarted env runner gets new ones.
    """

    config: Any
    env_runner_group: Any
    first_seed: int = 0
    seeds_used: int = 0
    lost: list[int]  # numbers of restarted env runners, until the engine clears them

    def begin_scenes(self, first_seed: int, seeds_used: int) -> None:
        """Start new episodes in all scenes, with the seeds after those used so far."""
        self.first_seed, self.seeds_used, self.lost = first_seed, seeds_used, []
        self._begin_in(range(1, self.config.num_env_runners + 1) or [0])

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Restore restarted env runners, with scenes of new seeds."""
        restored = super().restore_env_runners(env_runner_group)
        self.lost += restored
        self._begin_in(restored)
        return restored

    def _begin_in(self, runners: Iterable[int]) -> None:
        """Start new episodes in the scenes of env runners; 0 is the local one."""
        share, over = divmod(self.config.env_config["options"].num_envs, max(self.config.num_env_runners, 1))
        for runner in runners:
            seed = self.first_seed + self.seeds_used
            self.seeds_used += share + (0 < runner <= over)
            self.env_runner_group.foreach_env_runner(
                functools.partial(SceneEnvRunner.begin, seed=seed),
                remote_worker_ids=[runner],
                local_env_runner=not runner,
            )


def ppo_config(options: Options, scenario: Scenario, policy: AttentionPolicy) -> Any:
    """Return the ``PPOConfig`` for the options of a job, with the meaning that they have in the default engine."""
    per_sensor = options.acts_alone
    batch = options.rollout_steps * options.num_envs * (scenario.num_sensors if per_sensor else 1)  # of rows
    parts = max(options.num_learners, 1)
    gpu = checked_device(options.device).type != "cpu"
    network = {"encoder_config": options.encoder_config, "critic": options.critic}
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
            learner_class=AttentionPPOLearner,
            learner_connector=TrainBatch,
            add_default_connectors_to_learner_pipeline=False,
            train_batch_size_per_learner=-(-batch // parts),
            minibatch_size=max(min(options.batch_size, batch) // parts, 1),
            num_epochs=options.epochs,
            shuffle_batch_per_epoch=True,
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
