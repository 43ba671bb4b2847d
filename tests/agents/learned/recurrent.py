"""Recurrent policies without training, and observations for them."""

import numpy as np
import torch

from hitmac.agents import PolicyConfig
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask

SHARED = load_scenario("hit-mac").replace(knowledge="shared", failure_rate=0.02, recovery_rate=0.2)


def config_on(scenario, **policy):
    return PolicyConfig(
        policy={"memory": "recurrent", "weight_dim": 16, "num_blocks": 2, "attend_over": "axes"} | policy,
        features=RECURRENT_FEATURES,
        scenario=scenario,
        training_seeds=(2**40, 2**40),
    )


def fresh(scenario=SHARED):
    """Return an untrained policy that is sure of its actions, and takes each of them in about a third of the scenes."""
    torch.manual_seed(0)
    made = build_policy(config_on(scenario), scenario)
    last = made.action_net[0][2]
    with torch.no_grad():
        last.weight.mul_(1000.0)
        logits, acting, _ = made.unroll(torch.from_numpy(np.stack([one["pairs"] for one in observations(SHARED)])))
        last.bias.copy_(-logits[:, 0][acting].mean(0))
    return made


def observations(scenario=SHARED, scenes=5, steps=12):
    """Return observations of scenes in which the sensors turn at random."""
    task = CoverageTask(scenario, scenes, 0, features=RECURRENT_FEATURES)
    actions = np.random.default_rng(1).integers(0, 3, (steps, scenes, scenario.num_sensors))
    shown = []
    for action in actions:
        shown.append(task.observe())
        task.step(action)
    return shown


def played(policy, shown, starts=None):
    """Return the deterministic actions (T, B, n) and the last state of a policy."""
    state, actions = None, []
    for step, observation in enumerate(shown):
        start = None if starts is None else starts[step]
        action, state = policy.predict(observation, state, start, deterministic=True)
        actions.append(action)
    return np.stack(actions), state
