"""Policies that are shown the nearest targets: by name, watched and trained."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hitmac.agents.attention import AttentionWatch, attention_of, of_lists
from hitmac.agents.registry import load_agent, named_agents
from hitmac.agents.training.config import CoverageOptions
from hitmac.agents.training.imitation import select
from hitmac.agents.training.train import build
from hitmac.envs.observation import Observer
from hitmac.envs.scenario import load_scenario
from hitmac.envs.simulator import Simulator

SCENARIO = load_scenario("random").replace(num_targets=12)


def test_lists_are_part_of_the_name():
    agents = named_agents("pretrained:any-size:nearest=2/3,planner:turn_cost=0.5:nearest=4:radius=900", SCENARIO)
    assert [agent.name for agent in agents] == [
        "pretrained:any-size:nearest=2", "pretrained:any-size:nearest=3", "planner:turn_cost=0.5:nearest=4:radius=900",
    ]  # fmt: skip
    assert dict(agents[-1].nearness) == {"nearest": 4, "radius": 900.0}
    assert agents[-1].policy.turn_cost == 0.5
    for name, message in (
        ("assign-all:nearest=3", "given nearest; agents with a coordinator"),
        ("pretrained:flat:nearest=0", "nearest is 0; it must be a whole number, 1 or more"),
        ("planner:nearest=x", "nearest is 'x'; it must be a whole number"),
        ("planner:radius=3", "radius is 3; it needs nearest"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            load_agent(name, SCENARIO)


def test_attention_to_the_nearest_is_that_to_all_where_the_lists_hold_all():
    dense, listed = (load_agent(f"pretrained:any-size{end}", SCENARIO) for end in ("", ":nearest=11"))
    everything, nearest = Observer(SCENARIO, dense.features), Observer(SCENARIO, dense.features, nearest=11)
    simulator = Simulator(SCENARIO, 3, 0)
    one = attention_of(dense.policy, everything.observe(simulator))["policy"]
    with AttentionWatch(listed.policy) as watch:
        shown = nearest.observe(simulator)
        listed.policy.predict(shown, deterministic=True)
        other = of_lists(watch.shares(shown)["policy"], shown["targets"], 12)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_training_on_the_nearest():
    options = CoverageOptions(
        scenario="random", total_steps=16, num_envs=4, batch_size=4, rollout_steps=2, weight_dim=8, num_blocks=1,
        nearest=3, radius=1200.0, neighbours=2, teacher="planner-fast",
    )  # fmt: skip
    model, venv, made = build(options, SCENARIO)
    assert made.nearness == {"nearest": 3, "radius": 1200.0, "neighbours": 2}
    assert venv.observation_space["targets"] == spaces.Box(-1, 11, (6, 3), np.int32)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(16)
    assert any(not torch.equal(one, other) for one, other in zip(before, model.policy.parameters(), strict=True))


def test_a_part_of_a_batch_keeps_its_lists():
    mask = np.array([[[1, 1, 0], [1, 0, 0], [0, 0, 0]]] * 2, np.int8)
    lists = {
        "targets": np.where(mask, [4, 7, 0], -1),
        "neighbours": np.array([[[0, 2], [1, 2], [2, -1]]] * 2),
    }
    scenes = {"pairs": np.ones((2, 3, 3, 5), np.float32), "mask": mask, "values": np.ones((2, 3, 3), np.float32)}
    found = select(scenes | lists, np.array([1]), crop=True)
    assert found["pairs"].shape == (1, 2, 2, 5)
    assert found["targets"].tolist() == [[[4, 7], [4, -1]]]
    assert found["neighbours"].tolist() == [[[0, -1], [1, -1]]]
