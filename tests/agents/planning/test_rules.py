"""Random, still, nearest and greedy: by hand, and given lists of the nearest targets."""

import numpy as np
import pytest

from hitmac.agents import load_agent, scripted_agent
from hitmac.agents.planning.rules import BatchRandom
from hitmac.agents.registry import SCRIPTED
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.observation import Observer
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import CoverageTask
from tests.agents.play import first_actions, play

HIT_MAC = load_scenario("hit-mac")
MANY = load_scenario("random").replace(num_targets=12)
RULES = ("random", "still", "nearest", "greedy")


def test_the_nearest_agent_by_hand():
    scenario = Scenario(num_sensors=2, num_targets=2)
    agent = scripted_agent("nearest", scenario)
    places = {"sensor_position": [(0, 0), (900, 0)], "target_position": [(0, 100), (900, 700)]}
    for heading, expected in (([0, 91], [1, 0]), ([180, 93], [2, 2]), ([88, 87], [0, 1]), ([-100, -80], [2, 1])):
        assert first_actions(agent, scenario, **places, heading=heading) == expected, heading
    shown = CoverageTask(scenario, 1, 0, features=agent.features).observe()
    shown["mask"][:] = 0
    assert agent.predict(shown)[0].tolist() == [[0, 0]]


@pytest.mark.parametrize("name", ["nearest", "greedy"])
@pytest.mark.parametrize(("away", "tilt"), [(1, 1), (4, 0), (20, 2)])
def test_rules_tilt_towards_their_target(name, away, tilt):
    """At 45 degrees with a view of 53.13, it sees from 1 / 3 to 3 times its height."""
    scenario = Scenario(
        num_sensors=1, num_targets=2, tilt_limits=[(30, 60)], mount_height=6, sensing_range=40, vertical_view=53.13
    )
    places = {"sensor_position": [(0, 0)], "heading": [0], "target_position": [(away, 0), (0, 1000)]}
    assert first_actions(scripted_agent(name, scenario), scenario, **places) == [0, tilt]


def test_random_actions_are_uniform_and_belong_to_the_seed_of_the_scene():
    shown = CoverageTask(HIT_MAC, 2000, 0, features=("bearing", "distance")).observe()
    assert not scripted_agent("still", HIT_MAC).predict(shown)[0].any()
    agent = scripted_agent("random", HIT_MAC, seed=1)
    few = many = None
    for _ in range(3):
        some, few = agent.predict({key: value[:2] for key, value in shown.items()}, few)
        drawn, many = agent.predict(shown, many)
        np.testing.assert_array_equal(some, drawn[:2])
        assert np.abs(np.bincount(drawn.ravel()) / drawn.size - 1 / 3).max() < 0.03
    assert (drawn != agent.predict(shown, many)[0]).any()
    assert (drawn != scripted_agent("random", HIT_MAC, seed=2).predict(shown, many)[0]).any()
    with pytest.raises(ValueError, match="unknown agent 'genius': known are random, still, nearest"):
        scripted_agent("genius", HIT_MAC)


def test_tiny_turns_take_no_memory():
    scenario = Scenario(turn_angle=1e-6)
    *_, (_, actions, _) = play(scripted_agent("greedy", scenario), scenario, 1)
    assert actions.shape == (1, 4)


def test_the_greedy_agent_prefers_value_until_enough_sensors_have_chosen_it():
    scenario = Scenario(num_sensors=2, num_targets=3, target_values=(1, 3, 1))
    places = {
        "sensor_position": [(0, 0), (10, 0)], "heading": [0, 0], "target_position": [(500, 0), (0, 500), (490, 50)]
    }  # fmt: skip
    for seen_by, expected in ((1, [1, 0]), (2, [1, 1])):
        changed = scenario.replace(seen_by=seen_by)
        assert first_actions(scripted_agent("greedy", changed), changed, **places) == expected


@pytest.mark.parametrize("name", RULES[1:])
def test_sensors_on_rails_keep_their_places(name):
    court = load_scenario("basketball-4")
    for _, actions, _ in play(scripted_agent(name, court), court, 3):
        assert actions.shape == (1, 8)
        assert not actions[:, 4:].any()


@pytest.mark.parametrize("name", RULES)
def test_lists_that_hold_all_targets_in_range_decide_as_all_do(name):
    agent = load_agent(name, MANY).policy
    everything, nearest = Observer(MANY, agent.features), Observer(MANY, agent.features, nearest=11)
    simulator, used = Simulator(MANY, 8, 0), 0
    for _ in range(10):
        dense, listed = everything.observe(simulator), nearest.observe(simulator)
        held = dense["mask"].any(1).sum(-1) <= 11
        actions, _ = agent.predict(dense)
        np.testing.assert_array_equal(actions[held], agent.predict(listed)[0][held])
        used += held.sum()
        simulator.step(actions)
    assert used > 40


@pytest.mark.parametrize("name", [name for name in SCRIPTED if load_agent(name, MANY).policy.near() is None])
def test_agents_that_need_all_targets_refuse_lists(name):
    agent = load_agent(name, MANY).policy
    with pytest.raises(ValueError, match=r"is given, but .*Agent requires all targets"):
        load_agent(f"{name}:nearest=3", MANY)
    with pytest.raises(ValueError, match=r"lists the nearest targets .* requires all targets"):
        agent.predict(Observer(MANY, agent.features, nearest=3).observe(Simulator(MANY, 3, 0)))


def test_large_scenes_show_the_nearest():
    large = load_scenario("large").replace(num_sensors=130, num_targets=130, arena=200, grid=15)
    expected = {
        "pretrained:any-size": {"nearest": 8, "radius": 36.0},
        "nearest": {"nearest": 1},
        "belief-planner": {"nearest": 16},
    }
    assert {name: dict(load_agent(name, large).nearness) for name in expected} == expected
    assert load_agent("planner", large).nearness["nearest"] == 16
    assert dict(load_agent("belief-planner:nearest=5", large).nearness) == {"nearest": 5}
    assert not any(load_agent(name, MANY).nearness for name in (*expected, "planner"))


def test_the_random_numbers_of_scenes_agents_and_purposes_are_independent():
    starts = [(4, 0, "x"), (4, 1, "x"), (4, 0, "y"), (5, 0, "x")]
    assert len({BatchRandom.start([seed], own, why).integers(9, 12)[0].tobytes() for seed, own, why in starts}) == 4
    drawn, _ = BatchRandom.start(np.arange(4000), 0, "x").integers(6, 3)
    assert np.abs(np.corrcoef(drawn.T)[~np.eye(3, dtype=bool)]).max() < 0.05
