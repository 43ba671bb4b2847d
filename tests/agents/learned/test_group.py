"""Policies of multi-agent libraries: written, read, refused, and played as agents."""

import json

import numpy as np
import pytest
import torch

from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.group import GroupConfig, GroupPolicy, save_group_policy
from hitmac.agents.names import load_agent, named_agents
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.envs.tasks import CoverageTask
from hitmac.envs.tasks.base import decisions_of, rows_of_sensors
from tests.agents.evaluate.made import SHORT

HIT_MAC = load_scenario("hit-mac")
MLP = {"widths": [5 * 9, 16, 3], "activation": "Tanh"}
ENCODER = {"weight_dim": 8, "attend_over": "axes"}


def made(folder=None, network=MLP, continuous=False, decisions=("turn",), seed=0):
    """A policy of hit-mac with random weights, written to a folder; returns its network and metadata."""
    torch.manual_seed(seed)
    config = GroupConfig(
        algorithm="mappo", scenario="hit-mac", features=DEFAULT_FEATURES, decisions=decisions, continuous=continuous,
        network=network, training_seeds=(2**40, 2**40 + 9),
    )  # fmt: skip
    net = config.build()
    if folder:
        save_group_policy(folder, net, config)
    return net, config


@pytest.mark.parametrize("network", [MLP, ENCODER], ids=["mlp", "encoder"])
def test_a_written_policy_takes_the_best_choices(network, tmp_path):
    net, _ = made(tmp_path, network)
    agent = load_agent(f"benchmarl:{tmp_path}", HIT_MAC)
    assert agent.trained
    assert agent.training_seeds == ((2**40, 2**40 + 9),)
    seen = CoverageTask(HIT_MAC, 6, 0, features=agent.features).observe()
    seen["mask"][0, 1] = False  # a sensor without a pair stays
    rows = np.concatenate((seen["pairs"] * seen["mask"][..., None], seen["mask"][..., None]), -1).reshape(6, 4, 45)
    with torch.no_grad():
        best = net(torch.as_tensor(rows, dtype=torch.float32)).argmax(-1).numpy()
    best[0, 1] = 0
    actions, state = agent.policy.predict(seen)
    assert state is None
    assert np.array_equal(actions, best)
    assert len(np.unique(actions)) > 1


def test_numbers_are_rounded_and_choices_of_several_decisions_taken_apart():
    assert decisions_of(np.array([[0, 1, 2, 3, 8]]), 2).tolist() == [[[0, 0], [1, 0], [2, 0], [0, 1], [2, 2]]]
    assert decisions_of(np.array([[[-1.0], [-0.4], [0.6]]]), 1).tolist() == [[[2], [0], [1]]]
    zooming = HIT_MAC.replace(zoom=(30, 120))
    net, config = made(network={"widths": [45, 2], "activation": "ReLU"}, continuous=True, decisions=("turn", "zoom"))
    seen = CoverageTask(zooming, 6, 0, features=DEFAULT_FEATURES).observe()
    with torch.no_grad():
        numbers = net(torch.as_tensor(rows_of_sensors(seen))).tanh()
    expected = torch.cat((numbers[..., 0], numbers[..., 1]), -1).round().long() % 3  # turns of all, then zooms
    assert np.array_equal(GroupPolicy(net, config, zooming).predict(seen)[0], expected)
    turns = GroupPolicy(net, config, HIT_MAC).predict(CoverageTask(HIT_MAC, 6, 0).observe())[0]
    assert turns.shape == (6, 4)  # of a scene without zooms


def test_it_is_an_agent_in_every_command(tmp_path):
    made(tmp_path / "hit-mac")
    made(tmp_path / "hit-mac-2x7", {"widths": [7 * 9, 3], "activation": "ReLU"})
    made(tmp_path / "b", ENCODER, seed=1)
    made(tmp_path / "c", ENCODER, seed=2)
    for scenario in ("hit-mac", "hit-mac-2x7"):
        names = f"benchmarl:{tmp_path}/{scenario},ours=benchmarl:{tmp_path}/b+benchmarl:{tmp_path}/c"
        found = evaluate(named_agents(names, load_scenario(scenario)), scenario, **SHORT)
        assert [result["trainings"] for result in found["agents"].values()] == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "hitmac-policy"}, "its format must be hitmac-group-policy, version 1"),
        ({"network": {"widths": [45, 3], "activation": "Module"}}, "KeyError.*Module"),
        ({"network": {"widths": [45, 4], "activation": "Tanh"}}, "holds the unknown tensor|lacks the tensor|has shape"),
        ({"network": {"widths": [45, -1, 3], "activation": "Tanh"}}, "config.json .* negative dimension -1"),
        ({"network": {"widths": [45, 10**6, 10**6], "activation": "Tanh"}}, "has shape"),
        ({"decisions": []}, r"decisions is \(\); it must hold turn"),
        ({"decisions": ["turn", "jump"]}, "jump"),
        ({"continuous": "no"}, "continuous is .*no.*; it must be True or False"),
        ({"features": ["colour"]}, "colour"),
        ({"algorithm": None, "more": 1}, "more"),
    ],
)
def test_a_damaged_policy_is_refused(change, message, tmp_path):
    made(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        load_agent(f"benchmarl:{tmp_path}", HIT_MAC)


def test_a_policy_for_another_number_of_targets_and_an_empty_folder_are_refused(tmp_path):
    made(tmp_path)
    with pytest.raises(ValueError, match="mappo was trained for 5 targets; scenario 'hit-mac-6x9' has 9"):
        load_agent(f"benchmarl:{tmp_path}", "hit-mac-6x9")
    with pytest.raises(FileNotFoundError, match=r"is not a policy of a group: it has no config.json"):
        load_agent(f"benchmarl:{tmp_path}/none", HIT_MAC)
