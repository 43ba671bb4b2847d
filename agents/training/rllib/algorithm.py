"""PPO of RLlib on the scenes of a training."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from hitmac.agents.learned.checkpoint import checked_device
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training.config import MAX_ENVS, Options
from hitmac.agents.training.resume import Moments
from hitmac.agents.training.rllib.learner import AttentionPPOLearner, TrainBatch, Weights
from hitmac.agents.training.rllib.module import AttentionRLModule
from hitmac.agents.training.rllib.runner import SceneEnvRunner, shares
from hitmac.envs.scenario import Scenario


class ScenePPO(PPO):
    """PPO of RLlib that tells each env runner the seeds of its scenes.

    No seed is used twice: an env runner that is started again gets further ones. Only after `MAX_ENVS` of them they
    begin again.

    Attributes:
        first_seed: first seed of the training.
        seeds_used: number of seeds used so far.
        lost: env runners that were started again, by number, since the list was emptied.
    """

    config: Any
    learner_group: Any
    env_runner_group: Any
    first_seed: int = 0
    seeds_used: int = 0
    lost: list[int]

    def begin_scenes(self, first_seed: int, seeds_used: int) -> None:
        """Start new episodes in all scenes, with seeds that follow those used so far."""
        self.first_seed, self.seeds_used, self.lost = first_seed, seeds_used, []
        if self.config.num_env_runners:
            self._begin_in(range(1, self.config.num_env_runners + 1))
        else:
            self.env_runner_group.local_env_runner.begin(self._take_seeds(self.config.env_config["options"].num_envs))

    def begin_learning(self, weights: Weights, moments: Moments, seed: int) -> None:
        """Give all learners and env runners the weights, and the learners the moments of the optimiser and a seed."""
        self.learner_group.foreach_learner(
            functools.partial(AttentionPPOLearner.begin, weights=weights, moments=moments, seed=seed)
        )
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)

    def set_rates(self, learning_rate: float, entropy: float) -> None:
        """Set the learning rate and the weight of the entropy bonus of all learners."""
        self.learner_group.foreach_learner(
            functools.partial(AttentionPPOLearner.set_rates, learning_rate=learning_rate, entropy=entropy)
        )

    def moments(self) -> Moments:
        """Return the moments of the optimiser, which those of all learners are equal to."""
        found: Any = self.learner_group.foreach_learner(AttentionPPOLearner.moments)
        return found.result_or_errors[0].get()

    @property
    def policy(self) -> AttentionPolicy:
        """The policy in this process, which has the weights of the last update."""
        return self.env_runner_group.local_env_runner.module.policy

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Take back env runners that were started again, with scenes of further seeds."""
        restored = super().restore_env_runners(env_runner_group)
        self.lost += restored
        self._begin_in(restored)
        return restored

    def _begin_in(self, runners: Iterable[int]) -> None:
        """Start new episodes in the scenes of some env runners."""
        options = self.config.env_config["options"]
        numbers = [number for _, number in shares(options.num_envs, options.num_env_runners)]
        for runner in runners:
            begin = functools.partial(SceneEnvRunner.begin, seed=self._take_seeds(numbers[runner - 1]))
            self.env_runner_group.foreach_env_runner(begin, remote_worker_ids=[runner], local_env_runner=False)

    def _take_seeds(self, number: int) -> int:
        """Return the first of a number of further seeds."""
        if self.seeds_used % MAX_ENVS + number > MAX_ENVS:
            self.seeds_used += MAX_ENVS - self.seeds_used % MAX_ENVS
        seed = self.first_seed + self.seeds_used % MAX_ENVS
        self.seeds_used += number
        return seed


def ppo_config(options: Options, scenario: Scenario, policy: AttentionPolicy) -> PPOConfig:
    """Return the configuration of RLlib for the options of a job, with the meaning that the other engine gives them.

    Args:
        options: of the job.
        scenario: the scene.
        policy: one like that to train.
    """
    rows = options.num_envs * (scenario.num_sensors if per_sensor(options) else 1)
    batch, learners = options.rollout_steps * rows, options.num_learners
    parts = max(learners, 1)
    gpu = checked_device(options.device).type != "cpu"
    connector = functools.partial(
        TrainBatch, gamma=options.gamma, gae_lambda=options.gae_lambda, rows=max(options.batch_size, 512)
    )
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
            create_local_env_runner=True,  # whose policy is saved and evaluated
        )
        .learners(num_learners=learners, num_gpus_per_learner=int(gpu))
        .rl_module(rl_module_spec=RLModuleSpec(AttentionRLModule, model_config=network))
        .training(
            learner_class=AttentionPPOLearner,
            learner_connector=connector,
            add_default_connectors_to_learner_pipeline=False,
            train_batch_size_per_learner=-(-batch // parts),
            minibatch_size=max(min(options.batch_size, batch) // parts, 1),
            num_epochs=options.epochs,
            shuffle_batch_per_epoch=True,
            gamma=options.gamma,
            lambda_=options.gae_lambda,
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


def per_sensor(options: Options) -> bool:
    """Return whether a row of the environments is a sensor."""
    return options.task.spec.role == "executor" or bool(getattr(options, "per_sensor", False))
