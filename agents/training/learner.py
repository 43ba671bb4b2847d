"""Learners with the attention policy: imitation of a planner, and Stable-Baselines3's PPO and A2C."""

from __future__ import annotations

import warnings
from typing import Any

from stable_baselines3 import A2C, PPO

from hitmac.agents.learned.checkpoint import PolicyConfig, checked_device
from hitmac.agents.learned.difference_rewards import ActingRolloutBuffer, SensorRolloutBuffer
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.tracking.features import check_features
from hitmac.agents.training.config import FIRST_TRAINING_SEED, MAX_ENVS, ImitationOptions, Options, teacher_of
from hitmac.agents.training.imitation import Imitation, RecurrentImitation
from hitmac.envs.scenario import Scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

Learner = PPO | A2C | Imitation


def build(options: Options, scenario: Scenario) -> tuple[Learner, DirectionalSensorVecEnv, PolicyConfig]:
    """Return the learner, its environments and the metadata of its checkpoints."""
    config, memory = policy_config(options, scenario), getattr(options, "memory", "none")
    network = policy_options(options)
    venv, per_sensor = options.make(scenario), options.credit == "difference_rewards"
    shared: dict[str, Any] = {
        "policy_kwargs": dict(network),  # which A2C adds to
        "n_steps": options.rollout_steps,
        "learning_rate": options.learning_rate,
        "gamma": options.gamma,
        "gae_lambda": options.gae_lambda,
        "ent_coef": options.entropy,
        "max_grad_norm": options.max_grad_norm,
        "seed": options.seed,
        "device": checked_device(options.device),
        "rollout_buffer_class": SensorRolloutBuffer if per_sensor else ActingRolloutBuffer,
        "rollout_buffer_kwargs": {"acting": venv.acting},
    }
    model: Learner
    if options.algorithm == "imitation":
        assert isinstance(options, ImitationOptions)
        learner = RecurrentImitation if memory == "recurrent" else Imitation
        model = learner(
            config.kind,
            venv,
            teacher=teacher_of(options, scenario),
            learning_rate=options.learning_rate,
            n_steps=options.rollout_steps,
            batch_size=options.batch_size,
            n_epochs=options.epochs,
            temperature=options.temperature,
            max_grad_norm=options.max_grad_norm,
            policy_kwargs=dict(network),
            seed=options.seed,
            device=checked_device(options.device),
        )
    elif options.algorithm == "a2c":
        model = A2C(AttentionPolicy, venv, **shared)
    else:
        batch_size = min(options.batch_size, options.rollout_steps * venv.num_envs)
        with warnings.catch_warnings():  # a last minibatch may be smaller: also where sensors are absent
            warnings.filterwarnings("ignore", "You have specified a mini-batch size")
            model = PPO(AttentionPolicy, venv, batch_size=batch_size, n_epochs=options.epochs, **shared)
    # The learner has just given the scenes its own seed; these take effect with the next reset.
    venv.seed(config.training_seeds[0])
    return model, venv, config


def policy_options(options: Options) -> dict[str, Any]:
    """Return the keyword arguments of the policy to train."""
    return {"encoder_config": options.encoder_config, "critic": options.critic, "credit": options.credit}


def policy_config(options: Options, scenario: Scenario) -> PolicyConfig:
    """Return the metadata of the checkpoints of a training."""
    first_seed = FIRST_TRAINING_SEED + options.seed * MAX_ENVS
    return PolicyConfig(
        policy=policy_options(options) | {"memory": getattr(options, "memory", "none")},
        features=check_features(options.features),
        scenario=scenario,
        training_seeds=(first_seed, first_seed + options.num_envs - 1),
        task=options.task.spec.name,
        options=options.task_options(),
        nearness=options.nearness,
    )


def learned_policy(model: Learner) -> AttentionPolicy:
    """Return the policy that a learner has learned: of imitation, with the average of the weights."""
    policy = model.learned if isinstance(model, Imitation) else model.policy
    assert isinstance(policy, AttentionPolicy)
    return policy
