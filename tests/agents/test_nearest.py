"""Policies that are shown the nearest targets: their attention, and their training."""

import numpy as np
from gymnasium import spaces

from hitmac.agents.attention import AttentionWatch, attention_of, of_lists
from hitmac.agents.registry import load_agent
from hitmac.agents.training.config import CoverageOptions
from hitmac.agents.training.imitation import select
from hitmac.agents.training.train import build
from hitmac.envs.observation import Observer
from hitmac.envs.scenario import load_scenario
from hitmac.envs.simulator import Simulator

SCENARIO = load_scenario("random").replace(num_targets=12)


def test_attention_to_the_nearest_is_that_to_all_where_the_lists_hold_all():
    dense, listed = (load_agent(f"pretrained:any-size{end}", SCENARIO) for end in ("", ":nearest=11"))
    simulator = Simulator(SCENARIO, 3, 0)
    one = attention_of(dense.policy, Observer(SCENARIO, dense.features).observe(simulator))["policy"]
    with AttentionWatch(listed.policy) as watch:
        shown = Observer(SCENARIO, dense.features, nearest=11).observe(simulator)
        listed.policy.predict(shown, deterministic=True)
        other = of_lists(watch.shares(shown)["policy"], shown["targets"], 12)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_training_is_shown_the_nearest():
    near = {"nearest": 3, "radius": 1200.0, "neighbours": 2}
    options = CoverageOptions(num_envs=4, batch_size=4, rollout_steps=2, weight_dim=8, teacher="planner-fast", **near)
    model, venv, made = build(options, SCENARIO)
    assert made.nearness == near
    assert venv.observation_space["targets"] == spaces.Box(-1, 11, (6, 3), np.int32)
    assert model.learn(8).num_timesteps == 8


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
