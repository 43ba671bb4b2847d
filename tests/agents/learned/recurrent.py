"""Recurrent policies without training, and observations for them."""

import numpy as np
import torch

from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask
from tests.agents.untrained import untrained

SHARED = load_scenario("hit-mac").replace(knowledge="shared", failure_rate=0.02, recovery_rate=0.2)


def fresh():
    """Return a policy that is sure of its actions, each in about a third of the scenes, and its configuration."""
    policy, config = untrained(
        SHARED, features=RECURRENT_FEATURES, memory="recurrent", weight_dim=16, num_blocks=2, attend_over="axes"
    )
    last = policy.action_net[0][2]
    with torch.no_grad():
        last.weight.mul_(1000.0)
        logits, acting, _ = policy.unroll(torch.from_numpy(np.stack([one["pairs"] for one in observations()])))
        last.bias.copy_(-logits[:, 0][acting].mean(0))
    return policy, config


def observations(scenario=SHARED, scenes=5, steps=12):
    """Return observations of scenes in which the sensors turn at random."""
    task, shown = CoverageTask(scenario, scenes, 0, features=RECURRENT_FEATURES), []
    for action in np.random.default_rng(1).integers(0, 3, (steps, scenes, scenario.num_sensors)):
        shown.append(task.observe())
        task.step(action)
    return shown


def played(policy, shown, starts=None):
    """Return the deterministic actions (T, B, n) and the last state of a policy."""
    state, actions = None, []
    for step, observation in enumerate(shown):
        action, state = policy.predict(observation, state, None if starts is None else starts[step], deterministic=True)
        actions.append(action)
    return np.stack(actions), state
