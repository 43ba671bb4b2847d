"""Untrained policies that are sure of their decisions, and copies of exported folders."""

import json
import logging
import runpy
import shutil
import sys
from types import SimpleNamespace

import torch

from hitmac.agents import HierarchicalAgent, LevelPolicy, PolicyConfig, load_agent
from hitmac.agents.export import export_agent
from hitmac.agents.export.folder import CARD
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.registry import as_agent, as_level
from hitmac.envs import DEFAULT_FEATURES, PAPER_FEATURES, Scenario, load_scenario

ZOOMS = Scenario(zoom=(30, 120), rails=[[(0, 0), (500, 0), (500, 500)]], placement="rails", name="zooms")
BIASES = {"attended": (-1.5, -3.0, 5.4), "unfiltered": (1.2, -0.6, -2.0)}  # so that all turns are taken


def fresh(scenario="hit-mac", task="Coverage", options=None, features=DEFAULT_FEATURES, nearness=None, **policy):
    """An untrained policy that is sure of its decisions, with its configuration."""
    torch.manual_seed(0)
    scenario = load_scenario(scenario)
    config = PolicyConfig(
        policy={"weight_dim": 8} | policy,
        features=features,
        scenario=scenario,
        training_seeds=(2**40, 2**40),
        task=task,
        options=options or {},
        nearness=nearness or {},
    )
    made = build_policy(config, scenario)
    made.set_training_mode(False)
    with torch.no_grad():
        made.action_net[0][2].weight.mul_(500.0)
    return made, config


def agent_of(scenario="hit-mac", **options):
    """An agent with such a policy."""
    made, config = fresh(scenario, **options)
    return as_agent(made, config, config.scenario, name="tested")


def hierarchy(scenario="hit-mac", padding="attended", row_id=True, trained_on=None, coordinator=None):
    """A hierarchy of two untrained levels, the executor with the decisions of `trained_on`."""
    scenario = load_scenario(scenario)
    sizes = {"num_sensors": scenario.num_sensors, "num_targets": scenario.num_targets}
    first, of_first = fresh(scenario, "Coordinator", features=PAPER_FEATURES, **(coordinator or {}))
    features, options = ("bearing", "target_id", "distance"), {"padding": padding, "row_id": row_id}
    own = (trained_on or scenario).replace(**sizes)
    second, of_second = fresh(own, "Executor", options, features)
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


def runner(folder, monkeypatch):
    """Load run.py of a folder."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "observe", raising=False)
    return SimpleNamespace(**runpy.run_path(str(folder / "run.py")))
