"""Attention of a policy's networks in a decision, and its picture."""

import numpy as np
import pytest
import torch

from hitmac.agents import HierarchicalAgent, LevelPolicy, load_agent
from hitmac.agents.attention import AttentionWatch, attention_of, to_targets
from hitmac.agents.learned.checkpoint import adapt_policy
from hitmac.agents.policy import Memoryless
from hitmac.envs import DEFAULT_FEATURES, Simulator, load_scenario
from hitmac.envs.observation import Observer
from hitmac.envs.render import Picture
from hitmac.envs.tasks import CoverageTask
from hitmac.perception import AgentTargetEncoder, Weights, plots
from hitmac.perception.encoder import ATTEND_OVER
from tests.agents.untrained import observed, of_lists, untrained

SCENARIO = load_scenario("hit-mac-3x4")
SHOWN = observed(SCENARIO, 2)


def policy(*arguments, **options):
    return untrained(SCENARIO, *arguments, **options)[0]


def level(*arguments, **options):
    return LevelPolicy(policy(*arguments, **options), DEFAULT_FEATURES)


def weights_of(own, pairs):
    """Return the weights of a policy's encoder for pairs."""
    with torch.no_grad():
        return own.features_extractor.encoder(torch.as_tensor(pairs), need_weights=True)[1]


@pytest.mark.parametrize("way", ["agents", "targets", "pairs", "axes"])
def test_shares_are_the_mean_over_heads_and_over_the_pairs_of_the_sensor(way):
    own = policy(attend_over=way, num_heads=2)
    found, weights, expected = attention_of(own, SHOWN), weights_of(own, SHOWN["pairs"]), np.zeros((2, 3, 4))
    for b, i, j in np.ndindex(2, 3, 4):
        if way == "pairs":
            of_sensor = weights.pairs[b, :, 4 * i : 4 * i + 4]  # (h, m, n * m)
            expected[b, i, j] = sum(of_sensor[..., 4 * k + j].mean() for k in range(3))
        else:
            expected[b, i, j] = weights.targets[b, i, :, :, j].mean()
    assert set(found) == {"policy"}
    np.testing.assert_allclose(found["policy"], expected, rtol=1e-5)
    np.testing.assert_allclose(found["policy"].sum(-1), 1, rtol=1e-5)


class Own:
    """Custom policy that calls an encoder by keywords, on the scenes or on something else."""

    def __init__(self, whole):
        self.net, self.whole = AgentTargetEncoder(len(DEFAULT_FEATURES), 8), whole

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        pairs, mask = (torch.as_tensor(observation[name]) for name in ("pairs", "mask"))
        self.net(pairs=pairs, mask=mask) if self.whole else self.net(pairs[:, :2], mask=mask[:, :2])
        return np.zeros(observation["mask"].shape[:2], int), None


def test_absent_sensors_and_targets_have_no_share():
    shown = SHOWN | {"mask": np.ones((2, 3, 4), np.int8)}
    shown["mask"][:, 1], shown["mask"][:, :, 2] = 0, 0
    for one in (policy(), Own(whole=True)):
        shares = attention_of(one, shown)["policy"]
        assert (shares[:, 1] == 0).all()
        assert (shares[:, :, 2] == 0).all()
        np.testing.assert_allclose(shares[:, [0, 2]].sum(-1), 1, rtol=1e-5)
    assert np.isnan(attention_of(Own(whole=False), shown)["policy"]).all()


def test_watching_changes_no_decision():
    own, shown = policy(), observed(SCENARIO, 64)
    plain = own.predict(shown, deterministic=True)[0]
    with AttentionWatch(own) as watch:
        np.testing.assert_array_equal(own.predict(shown, deterministic=True)[0], plain)
        assert np.isfinite(watch.shares(shown)["policy"]).all()
        assert np.isnan(watch.shares(shown)["policy"]).all()  # no decision since
    own.predict(shown, deterministic=True)
    assert np.isnan(watch.shares(shown)["policy"]).all()  # no longer watched


def test_a_policy_on_beliefs_attends_by_its_own_knowledge():
    scenario = load_scenario("hit-mac").replace(knowledge="own")
    agent = load_agent("pretrained:beliefs", scenario)
    shares = attention_of(agent.policy, observed(scenario, 2, agent.features))["policy"]
    assert shares.shape == (2, 4, 5)
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-5)


def test_a_policy_of_one_sensor_attends_for_each():
    own, config = untrained(SCENARIO, options={"per_sensor": True})
    shares = attention_of(adapt_policy(own, config, SCENARIO)[0], SHOWN)["policy"]
    for b, i in np.ndindex(2, 3):
        alone = to_targets(weights_of(own, SHOWN["pairs"][b, i][None, None]), 1)
        np.testing.assert_allclose(shares[b, i], alone[0, 0], rtol=1e-5)


class Fixed:
    """Coordinator that always makes the same assignment."""

    assigned = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]])

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.repeat(self.assigned.reshape(1, -1), len(observation["mask"]), 0), None


@pytest.mark.parametrize("padding", ["attended", "masked", "unfiltered"])
def test_an_executor_attends_to_its_goals(padding):
    executor = level("Executor", {"padding": padding})._replace(padding=padding)
    agent = HierarchicalAgent(SCENARIO, LevelPolicy(Fixed(), ()), executor)
    found = attention_of(agent, SHOWN, agent.start([0, 1]))
    assert set(found) == {"executor"}
    np.testing.assert_allclose(found["executor"].sum(-1), [[1, 0, 1]] * 2, rtol=1e-5)
    for b, i in np.ndindex(2, 3):
        goals = Fixed.assigned[i] != 0
        assert (found["executor"][b, i, ~goals] == 0).all()
        if padding == "masked" and goals.any():  # then its goals are all that it sees
            alone = to_targets(weights_of(executor.policy, SHOWN["pairs"][b, i][goals][None]), 1)
            np.testing.assert_allclose(found["executor"][b, i, goals], alone[0], rtol=1e-4)


def test_a_coordinator_attends_where_it_decides():
    coordinator = level("Coordinator", attend_over="axes")
    agent = HierarchicalAgent(SCENARIO, coordinator, level("Executor"), decision=3)
    state, expected = agent.start([0, 1]), attention_of(coordinator.policy, SHOWN)["policy"]
    with AttentionWatch(Memoryless(agent, agent.features)) as watch:
        assert watch.levels == ("coordinator", "executor")
        for starts, decides in (((1, 1), (1, 1)), ((0, 0), (0, 0)), ((0, 1), (0, 1)), ((0, 0), (1, 0))):
            _, state = agent.predict(SHOWN, state, np.array(starts, bool), deterministic=True)
            found, rows = watch.shares(SHOWN, state)["coordinator"], np.array(decides, bool)
            np.testing.assert_array_equal(np.isfinite(found).all((1, 2)), rows)
            np.testing.assert_allclose(found[rows], expected[rows], rtol=1e-4)


def test_the_levels_of_an_agent_in_several_adapters_are_found():
    scenario = SCENARIO.replace(action="rate", turn_rates=(1.0, 25.0))
    agent = load_agent("memoryless:pretrained:hit-mac", scenario)
    assert AttentionWatch(agent.policy).levels == ("coordinator", "executor")


def test_policies_without_attention_have_none():
    agent = load_agent("assign-all", SCENARIO)
    assert attention_of(agent.policy, observed(SCENARIO, features=agent.features)) == {}
    assert attention_of(policy(encoder="recurrent"), SHOWN) == {}
    with pytest.raises(ValueError, match="weights has neither targets nor pairs"):
        to_targets(Weights(), 2)


def test_an_own_way_of_attending_without_weights_is_played_without_attention(monkeypatch):
    plain = ATTEND_OVER["agents"]
    mean = plain._replace(attend=lambda layers, pairs, tokens: (plain.attend(layers, pairs, tokens)[0], Weights()))
    monkeypatch.setitem(ATTEND_OVER, "own", mean)
    own = policy(attend_over="own")
    found = attention_of(own, SHOWN)
    assert found["policy"].shape == SHOWN["mask"].shape
    assert np.isnan(found["policy"]).all()


def test_a_picture_of_a_scene_lies_under_the_lines():
    """Sensors are dark squares of the picture: it is dark where the plot places them."""
    scenario = load_scenario("volleyball-4")
    simulator = CoverageTask(scenario, 1, 0).simulator
    picture, sensors = Picture(scenario, 500), simulator.state.sensor_position[0]
    pixels = picture.draw(simulator, 0)
    left, right, bottom, top = picture.extent
    height, width, _ = pixels.shape
    for x, y in sensors:
        row, column = (top - y) / (top - bottom) * height, (x - left) / (right - left) * width
        np.testing.assert_allclose(pixels[int(row), int(column)], (27, 62, 115), atol=3)
    weights = np.ones((scenario.num_sensors, scenario.num_targets))
    shown = plots.lines(weights, sensors, simulator.state.target_position[0], extent=picture.extent, picture=pixels)
    np.testing.assert_allclose((*shown.axes[0].get_xlim(), *shown.axes[0].get_ylim()), picture.extent)


def test_attention_to_the_nearest_is_that_to_all_where_the_lists_hold_all():
    scenario = load_scenario("random").replace(num_targets=12)
    dense, listed = (load_agent(f"pretrained:any-size{end}", scenario) for end in ("", ":nearest=11"))
    simulator = Simulator(scenario, 3, 0)
    one = attention_of(dense.policy, Observer(scenario, dense.features).observe(simulator))["policy"]
    with AttentionWatch(listed.policy) as watch:
        shown = Observer(scenario, dense.features, nearest=11).observe(simulator)
        listed.policy.predict(shown, deterministic=True)
        other = of_lists(watch.shares(shown)["policy"], shown["targets"], 12)
    np.testing.assert_allclose(one, other, atol=1e-5)
