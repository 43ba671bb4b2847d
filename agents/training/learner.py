"""Learners with the attention policy: imitation of a planner, and Stable-Baselines3's PPO and A2C."""

from __future__ import annotations

import warnings
from typing import Any

from stable_baselines3 import A2C, PPO
from torch import nn

from hitmac.agents.baselines.levels import AssignPlanned, PlannerExecutor, in_place
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.learned.checkpoint import (
    PolicyConfig,
    checked_device,
    checkpoint_folder,
    put_tensors,
    read_tensors,
    tensors_of,
)
from hitmac.agents.learned.difference_rewards import ActingRolloutBuffer, SensorRolloutBuffer
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.registry import load_executor, scripted_agent
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features
from hitmac.agents.training.config import MAX_ENVS, CoordinatorOptions, Options
from hitmac.agents.training.defaults import policy_folder
from hitmac.agents.training.imitation import Imitation, RecurrentImitation
from hitmac.envs.scenario import Scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

Learner = PPO | A2C | Imitation

FIRST_TRAINING_SEED = 2**40
"""Far from the seeds of evaluations, which count from 0: a run with seed s trains on the scenes
FIRST_TRAINING_SEED + s * MAX_ENVS and up."""

CRITIC = "value_net."
"""Beginning of the names of a critic's tensors."""


def build(options: Options, scenario: Scenario) -> tuple[Learner, DirectionalSensorVecEnv, PolicyConfig]:
    """Return the learner, its environments and the metadata of its checkpoints."""
    config, venv = policy_config(options, scenario), make_environments(options, scenario)
    shared: dict[str, Any] = {
        "policy_kwargs": policy_options(options),
        "n_steps": options.rollout_steps,
        "learning_rate": options.learning_rate,
        "max_grad_norm": options.max_grad_norm,
        "seed": options.seed,
        "device": checked_device(options.device),
    }
    if options.algorithm != "imitation":
        of_sensors = options.credit == "difference_rewards"
        shared |= {
            "gamma": options.gamma,
            "gae_lambda": options.gae_lambda,
            "ent_coef": options.entropy,
            "rollout_buffer_class": SensorRolloutBuffer if of_sensors else ActingRolloutBuffer,
            "rollout_buffer_kwargs": {"acting": venv.acting},
        }
    model: Learner
    if options.algorithm == "imitation":
        model = (RecurrentImitation if options.recurrent else Imitation)(
            config.kind,
            venv,
            teacher=teacher_of(options, scenario),
            batch_size=options.batch_size,
            n_epochs=options.epochs,
            temperature=options.temperature,
            **shared,
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


def make_environments(options: Options, scenario: Scenario) -> DirectionalSensorVecEnv:
    """Return the environments to train on, which begin in the midst of their episodes."""
    of_task = {name: getattr(options, name) for name in (*options.task.spec.options, *options.task_fields)}
    if isinstance(options, CoordinatorOptions):
        with checked_device(options.device):
            executor, _ = load_executor(options.executor, scenario)
        of_task |= {
            "executor": "scripted" if options.executor == "scripted" else executor.policy,  # that one is compiled
            "executor_features": executor.features,
            "padding": executor.padding,
            "credit": options.credit,
        }
    if scenario.tracks:  # the scenario defines the length of episodes on them
        scenario = scenario.replace(episode_steps=scenario.sub_steps_of(options.sub_steps))
    features = check_features(options.features)
    return DirectionalSensorVecEnv(
        options.task,
        options.num_envs,
        scenario,
        features=BeliefObserver if features == BELIEFS else features,
        max_episode_steps=options.episode_steps,
        stagger=True,
        **of_task,
        **options.nearness,
    )


def teacher_of(options: Options, scenario: Scenario) -> Any:
    """Return the planner as a teacher of turns, of turns towards goals, or of assignments, for the role of the task."""
    role, chosen = options.task.spec.role, {"turn_cost": options.planner_turn_cost}
    if role == "coordinator":
        chosen = AssignPlanned.planning | chosen
    if role == "agent":
        return scripted_agent(options.teacher, scenario, **chosen)
    planner = scripted_agent(options.teacher, in_place(scenario), **chosen)
    assert isinstance(planner, PlannerAgent)
    return (AssignPlanned if role == "coordinator" else PlannerExecutor)(scenario, planner=planner)


def take_weights(policy: nn.Module, start: str) -> None:
    """Copy the weights of the policy `start` into `policy`; a critic of another kind keeps its random weights.

    Raises:
        FileNotFoundError, ValueError: no policy, or one whose weights do not fit; `policy` is unchanged.
    """
    path = checkpoint_folder(policy_folder(start)) / "policy.safetensors"
    own, found = tensors_of(policy), read_tensors(path)
    critics = [{name: tensor.shape for name, tensor in one.items() if name.startswith(CRITIC)} for one in (own, found)]
    if critics[0] != critics[1]:
        found = {name: tensor for name, tensor in found.items() if name not in critics[1]}
        found |= {name: own[name] for name in critics[0]}
    put_tensors(policy, found, path)


def policy_options(options: Options) -> dict[str, Any]:
    """Return the keyword arguments of the policy to train."""
    return {"encoder_config": options.encoder_config, "critic": options.critic, "credit": options.credit}


def policy_config(options: Options, scenario: Scenario) -> PolicyConfig:
    """Return the metadata of the checkpoints of a training."""
    first_seed = FIRST_TRAINING_SEED + options.seed * MAX_ENVS
    return PolicyConfig(
        policy=policy_options(options) | {"memory": "recurrent" if options.recurrent else "none"},
        features=check_features(options.features),
        scenario=scenario,
        training_seeds=(first_seed, first_seed + options.num_envs - 1),
        task=options.task.spec.name,
        options={name: getattr(options, name) for name in options.task.spec.options},
        nearness=options.nearness,
    )


def learned_policy(model: Learner) -> AttentionPolicy:
    """Return the policy that a learner has learned: of imitation, with the average of the weights."""
    policy = model.learned if isinstance(model, Imitation) else model.policy
    assert isinstance(policy, AttentionPolicy)
    return policy
