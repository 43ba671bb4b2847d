"""Untrained policies that are sure of their decisions, and exports of them."""

import json
import logging
import shutil

import torch

from hitmac.agents import HierarchicalAgent, LevelPolicy, load_agent
from hitmac.agents.deploy.export import export_agent
from hitmac.agents.deploy.export.folder import CARD
from hitmac.agents.registry import as_agent, as_level
from hitmac.envs import PAPER_FEATURES, Scenario, load_scenario
from tests.agents.untrained import untrained

ZOOMS = Scenario(zoom=(30, 120), rails=[[(0, 0), (500, 0), (500, 500)]], placement="rails", name="zooms")
BIASES = {"attended": (-1.5, -3.0, 5.4), "unfiltered": (1.2, -0.6, -2.0)}  # so that all turns are taken


def fresh(*arguments, **options):
    """A policy that is sure of its decisions, with its configuration."""
    policy, config = untrained(*arguments, **options)
    with torch.no_grad():
        policy.action_net[0][2].weight.mul_(500.0)
    return policy, config


def agent_of(scenario="hit-mac", **options):
    """An agent with such a policy."""
    policy, config = fresh(scenario, **options)
    return as_agent(policy, config, config.scenario, name="tested")


def hierarchy(scenario="hit-mac", padding="attended", row_id=True, trained_on=None, coordinator=None):
    """A hierarchy of two untrained levels, the executor with the decisions of `trained_on`."""
    scenario = load_scenario(scenario)
    first, of_first = fresh(scenario, "Coordinator", features=PAPER_FEATURES, **(coordinator or {}))
    own = (trained_on or scenario).replace(num_sensors=scenario.num_sensors, num_targets=scenario.num_targets)
    options = {"padding": padding, "row_id": row_id}
    second, of_second = fresh(own, "Executor", options, features=("bearing", "target_id", "distance"))
    with torch.no_grad():
        first.action_net[0][2].bias.fill_(3.0)  # half of the pairs are assigned
        second.action_net[0][2].bias.copy_(torch.tensor(BIASES[padding]).repeat(second.decisions))
    levels = LevelPolicy(first, of_first.features), as_level(second, of_second, scenario)
    policy = HierarchicalAgent(scenario, *levels, idle="hold")
    return load_agent(policy, scenario)._replace(features=policy.features)


def exported(agent, to, scenario=None):
    """Export an agent without the trace of the exporter, which takes most of the time if pytest captures it."""
    logging.disable(logging.ERROR)
    try:
        return export_agent(agent, to, scenario)
    finally:
        logging.disable(logging.NOTSET)


def copied(folder, to, **changes):
    """Copy an exported folder, with changes of its card."""
    shutil.copytree(folder, to)
    card = json.loads((to / CARD).read_text())
    (to / CARD).write_text(json.dumps(card | changes))
    return to
