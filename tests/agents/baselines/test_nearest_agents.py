"""Agents that are shown the nearest targets only: equal to those that are shown all where the lists hold all."""

import dataclasses
import json
import runpy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import MultiCategoricalDistribution

from hitmac.agents.attention import AttentionWatch, attention_of, of_lists
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.evaluate.compare import Episodes
from hitmac.agents.export import export_agent
from hitmac.agents.export.folder import CARD
from hitmac.agents.learned.checkpoint import PolicyConfig, build_policy, load_policy, save_policy
from hitmac.agents.learned.policy import SensorCategorical
from hitmac.agents.policy import padded_actions
from hitmac.agents.registry import SCRIPTED, as_agent, load_agent, named_agents, split_options
from hitmac.agents.training.config import CoverageOptions, CoverageRewardOptions, check
from hitmac.agents.training.imitation import select
from hitmac.agents.training.train import build
from hitmac.envs.observation import DEFAULT_FEATURES, FEATURE_SETS, Observer
from hitmac.envs.scenario import load_scenario
from hitmac.envs.simulator import Simulator

SCENARIO = load_scenario("random").replace(num_targets=12)
LARGE = load_scenario("large").replace(num_sensors=160, num_targets=160, arena=200, grid=15)


def both(features, nearest, scenes=3, seed=0, **options):
    """Return observers of all and of the nearest targets, and a simulator."""
    return (
        Observer(SCENARIO, features),
        Observer(SCENARIO, features, nearest=nearest, **options),
        Simulator(SCENARIO, scenes, seed),
    )


@pytest.mark.parametrize("name", ["random", "still", "nearest", "greedy"])
def test_rules_decide_as_with_all_targets(name):
    agent = load_agent(name, SCENARIO).policy
    everything, nearest, simulator = both(agent.features, 11, scenes=8)
    used = 0
    for _ in range(10):
        dense, listed = everything.observe(simulator), nearest.observe(simulator)
        held = dense["mask"].any(1).sum(-1) <= 11
        actions, _ = agent.predict(dense)
        np.testing.assert_array_equal(actions[held], agent.predict(listed)[0][held])
        used += held.sum()
        simulator.step(actions)
    assert used > 40


@pytest.mark.slow
def test_the_planner_plans_as_with_all_targets():
    agent = PlannerAgent(SCENARIO, horizon=20, samples=5, restarts=1)
    everything, nearest, simulator = both(agent.features, 11)
    one, other = None, None
    for step in range(6):
        dense, listed, starts = everything.observe(simulator), nearest.observe(simulator), np.full(3, step == 0)
        assert (dense["mask"].any(1).sum(-1) <= 11).all()
        expected, one = agent.plan(dense["pairs"], dense["mask"] != 0, one, starts)
        found, other = agent.plan(listed["pairs"], listed["mask"] != 0, other, starts, targets=listed["targets"])
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(other.plans, one.plans)
        simulator.step(padded_actions(expected.argmax(-1), agent.decides, agent.scenario.decisions))


def test_the_planner_plans_as_if_targets_beyond_the_list_were_absent():
    agent = PlannerAgent(SCENARIO, horizon=20, samples=5)
    everything, nearest, simulator = both(agent.features, 2)
    dense, listed = everything.observe(simulator), nearest.observe(simulator)
    shown = np.zeros_like(dense["mask"])
    np.put_along_axis(shown, np.maximum(listed["targets"], 0), listed["mask"], -1)
    assert 0 < shown.sum() < dense["mask"].sum()
    expected, _ = agent.plan(dense["pairs"], shown != 0)
    found, state = agent.plan(listed["pairs"], listed["mask"] != 0, targets=listed["targets"])
    np.testing.assert_array_equal(found, expected)
    assert state.listed.shape == listed["targets"].shape


def test_a_full_list_is_planned_as_an_observation_of_all():
    agent = PlannerAgent(SCENARIO, horizon=10, samples=2)
    everything, nearest, simulator = both(agent.features, 12)
    expected, state = agent.predict(everything.observe(simulator))
    found, own = agent.predict(nearest.observe(simulator))
    np.testing.assert_array_equal(found, expected)
    assert state.listed.size == own.listed.size == 0


def test_a_policy_that_learned_from_all_targets_takes_lists_of_all():
    dense, listed = (load_agent(f"pretrained:any-size{end}", SCENARIO) for end in ("", ":nearest=12"))
    assert (dict(dense.nearness), dict(listed.nearness)) == ({}, {"nearest": 12})
    one, other = (Episodes(agent, SCENARIO, range(3), 1) for agent in (dense, listed))
    for _ in range(5):
        next(one.steps(1))
        next(other.steps(1))
        assert "targets" in other.observation
        np.testing.assert_array_equal(one.task.simulator.state.heading, other.task.simulator.state.heading)


@pytest.mark.slow
def test_large_scenes_show_the_nearest():
    assert dict(load_agent("pretrained:any-size", LARGE).nearness) == {"nearest": 8, "radius": 36.0}
    assert load_agent("planner", LARGE).nearness["nearest"] == 16
    assert dict(load_agent("nearest", LARGE).nearness) == {"nearest": 1}
    for name in ("pretrained:any-size", "planner", "greedy", "random"):
        assert not load_agent(name, SCENARIO).nearness
    for name in ("greedy", "random", "still", "nearest"):
        episodes = Episodes(load_agent(name, LARGE), LARGE, range(1), 1)
        next(episodes.steps(1))
        assert episodes.observation["targets"].shape[-1] <= 16
    agent = load_agent("pretrained:any-size", LARGE)
    episodes = Episodes(agent, LARGE, range(1), 1)
    next(episodes.steps(1))
    assert episodes.observation["targets"].shape == (1, 160, 8)


@pytest.mark.parametrize("name", [name for name in SCRIPTED if load_agent(name, SCENARIO).policy.near() is None])
def test_agents_that_need_all_targets_refuse_lists(name):
    agent = load_agent(name, SCENARIO).policy
    with pytest.raises(ValueError, match=r"needs observations of all targets"):
        load_agent(f"{name}:nearest=3", SCENARIO)
    _, nearest, simulator = both(agent.features, 3)
    with pytest.raises(ValueError, match=r"lists the nearest targets .* needs those of all targets"):
        agent.predict(nearest.observe(simulator))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("assign-all:nearest=3", "given nearest; agents with a coordinator are shown all targets"),
        ("pretrained:flat:nearest=0", "nearest is 0; it must be a whole number, 1 or more"),
        ("planner:nearest=x", "nearest is 'x'; it must be a whole number"),
        ("planner:nearest=1:nearest=2", "nearest in .* is given twice"),
        ("planner:radius=3", "radius is 3; it needs nearest"),
    ],
)
def test_bad_names(name, says):
    with pytest.raises((ValueError, TypeError), match=says):
        load_agent(name, SCENARIO)


def test_names_with_lists():
    agents = named_agents("pretrained:any-size:nearest=2/3,planner:turn_cost=0.5:nearest=4:radius=900", SCENARIO)
    assert [agent.name for agent in agents] == [
        "pretrained:any-size:nearest=2", "pretrained:any-size:nearest=3", "planner:turn_cost=0.5:nearest=4:radius=900",
    ]  # fmt: skip
    assert dict(agents[-1].nearness) == {"nearest": 4, "radius": 900.0}
    assert agents[-1].policy.turn_cost == 0.5
    assert split_options("pretrained:any-size:nearest=2") == ("pretrained:any-size", "nearest=2")
    assert split_options("planner:turn_cost=0.5:nearest=4") == ("planner", "turn_cost=0.5:nearest=4")
    assert split_options("pretrained:flat") == ("pretrained:flat", "")


def config(**options):
    policy = {"weight_dim": 8, "attend_over": "axes"} | options.pop("policy", {})
    return PolicyConfig(
        policy=policy, features=DEFAULT_FEATURES, scenario=SCENARIO, training_seeds=(0, 1), **options
    )  # fmt: skip


def test_a_checkpoint_holds_what_is_shown(tmp_path):
    own = config(nearness={"nearest": 3, "radius": 500.0, "neighbours": None})
    assert own.nearness == {"nearest": 3, "radius": 500.0}
    save_policy(tmp_path / "near", build_policy(own, SCENARIO), own)
    save_policy(tmp_path / "all", build_policy(config(), SCENARIO), config())
    assert load_policy(tmp_path / "near")[1] == own
    assert "nearness" not in json.loads((tmp_path / "all/config.json").read_text())
    agent = load_agent(tmp_path / "near", SCENARIO)
    assert dict(agent.nearness) == own.nearness
    elsewhere = load_agent(tmp_path / "near", SCENARIO.replace(distance_scale=4000))
    assert dict(elsewhere.nearness) == {"nearest": 3, "radius": 1000.0}
    assert dict(load_agent(str(tmp_path / "near") + ":nearest=5", SCENARIO).nearness) == {"nearest": 5}
    episodes = Episodes(agent, SCENARIO, range(2), 1)
    next(episodes.steps(1))
    assert episodes.observation["targets"].shape == (2, 6, 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": {"attend_over": "pairs"}}, "attend_over is 'pairs'; over the nearest targets it must be one of"),
        ({"policy": {"encoder": "mlp"}}, "a plain network"),
        ({"task": "Coordinator"}, "a policy for Coordinator is shown all targets"),
    ],
)
def test_policies_that_need_all_targets(options, says):
    with pytest.raises(ValueError, match=says):
        config(nearness={"nearest": 3}, **options)


@pytest.mark.slow
def test_an_exported_policy_decides_alike(tmp_path, monkeypatch):
    scenario = load_scenario("hit-mac-6x9")
    torch.manual_seed(0)
    own = PolicyConfig(
        policy={"weight_dim": 8, "attend_over": "agents"}, features=FEATURE_SETS["frame"], scenario=scenario,
        training_seeds=(0, 1), nearness={"nearest": 4, "radius": 1500.0, "neighbours": 3},
    )  # fmt: skip
    policy = build_policy(own, scenario)
    policy.set_training_mode(False)
    with torch.no_grad():
        policy.action_net[0][2].weight.mul_(500.0)
    agent = as_agent(policy, own, scenario, name="tested")
    export_agent(agent, tmp_path / "made", scenario)
    card = json.loads((tmp_path / "made" / CARD).read_text())["networks"][0]
    assert card["inputs"] == ["pairs", "mask", "targets", "neighbours"]
    assert card["nearness"] == own.nearness
    monkeypatch.syspath_prepend(tmp_path / "made")
    runner = runpy.run_path(str(tmp_path / "made/run.py"))["Agent"]()
    simulator, observer = Simulator(scenario, 1, 0), Observer(scenario, own.features, **own.nearness)
    for _ in range(20):
        state = simulator.state
        shown = observer.observe(simulator)
        expected, _ = policy.predict(shown, deterministic=True)
        found = runner.decide(
            state.target_position[0], sensor_position=state.sensor_position[0], heading=state.heading[0]
        )
        np.testing.assert_array_equal(found[0], expected[0])
        simulator.step(expected)
    assert (shown["mask"].sum(-1) == 4).any()


def test_attention_to_the_nearest_is_that_to_all_where_the_lists_hold_all():
    dense, listed = (load_agent(f"pretrained:any-size{end}", SCENARIO) for end in ("", ":nearest=11"))
    everything, nearest, simulator = both(dense.features, 11)
    one = attention_of(dense.policy, everything.observe(simulator))["policy"]
    with AttentionWatch(listed.policy) as watch:
        shown = nearest.observe(simulator)
        listed.policy.predict(shown, deterministic=True)
        other = of_lists(watch.shares(shown)["policy"], shown["targets"], 12)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_distribution_of_many_sensors_is_stable_baselines3s():
    logits, actions = torch.randn(5, 4 * 3), torch.randint(3, (5, 4))
    theirs = MultiCategoricalDistribution([3] * 4).proba_distribution(logits)
    own = SensorCategorical(3).proba_distribution(logits)
    torch.testing.assert_close(own.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(own.entropy(), theirs.entropy())
    assert torch.equal(own.mode(), theirs.mode())
    assert own.sample().shape == (5, 4)


@pytest.mark.parametrize("kind", [CoverageOptions, CoverageRewardOptions])
def test_training_on_the_nearest(kind):
    options = kind(
        scenario="random", total_steps=16, num_envs=4, batch_size=4, rollout_steps=2, weight_dim=8, num_blocks=1,
        nearest=3, radius=1200.0, neighbours=2, teacher="planner-fast",
    )  # fmt: skip
    check(options)
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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"radius": 3.0}, "--radius is 3.0; it needs --nearest"),
        ({"nearest": 3, "attend_over": "pairs"}, "--nearest is 3; attend_over is 'pairs'"),
        ({"nearest": 3, "memory": "recurrent"}, "--nearest is 3; a policy with a memory or beliefs"),
        ({"nearest": 0}, "--nearest is 0; it must be 1 or more"),
    ],
)
def test_bad_options(changes, says):
    with pytest.raises(ValueError, match=says):
        check(dataclasses.replace(CoverageOptions(), **changes))
