"""Untrained policies, the configurations of their checkpoints, and observations."""

import numpy as np
import torch

from hitmac.agents import PolicyConfig
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.envs.tasks import CoverageTask


def config_of(scenario="hit-mac", task="Coverage", options=None, *, features=DEFAULT_FEATURES, nearness=None, **policy):
    return PolicyConfig(
        policy={"weight_dim": 8} | policy, features=features, scenario=load_scenario(scenario), task=task,
        training_seeds=(2**40, 2**40 + 9), options=options or {}, nearness=nearness or {},
    )  # fmt: skip


def untrained(*arguments, noise=0.0, seed=0, **options):
    """Return a policy of such a configuration, its weights moved by normal `noise`, and the configuration."""
    config = config_of(*arguments, **options)
    torch.manual_seed(seed)
    policy = build_policy(config, config.scenario)
    policy.set_training_mode(False)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return policy, config


def observed(scenario="hit-mac", scenes=3, features=DEFAULT_FEATURES):
    """Return the first observation of scenes."""
    return CoverageTask(scenario, scenes, 0, features=features).observe()


def permuted(observation, sensors, targets):
    return {name: array[:, sensors][:, :, targets] for name, array in observation.items()}


def of_lists(shares, targets, num_targets):
    """Return the shares (B, n, m) of all targets, from those of lists (B, n, k); -1 is an empty place."""
    every = np.zeros((*shares.shape[:2], num_targets + 1), shares.dtype)  # -1: the last column
    np.put_along_axis(every, targets, shares, -1)
    return every[..., :-1]
