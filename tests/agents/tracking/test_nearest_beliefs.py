"""Beliefs about all targets, of observations that list the nearest: by hand, and equal where the lists hold all."""

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.baselines.planner import BeliefPlannerAgent
from hitmac.agents.evaluate.compare import Episodes
from hitmac.agents.policy import padded_actions
from hitmac.agents.tracking import beliefs
from hitmac.agents.tracking.beliefs import Beliefs, BeliefState
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.observation import Observer
from hitmac.envs.scenario import KNOWLEDGE
from hitmac.envs.simulator import Simulator

SMALL = {"horizon": 12, "particles": 32, "samples": 8}
CHANGES = {
    "plain": {},
    "changing": {"leave_rate": 0.05, "return_rate": 0.1, "failure_rate": 0.1, "recovery_rate": 0.3},
    "noisy": {"position_noise": 10.0, "missed_detections": 0.2, "message_loss_rate": 0.2},
}
RAILS = load_scenario("volleyball-4").replace(sensing_range=150.0)


def scenes():
    """Pairs of a name and a scenario in which at most 11 of 12 targets can come into range of a sensor."""
    random = load_scenario("random").replace(num_targets=12, sensing_range=400.0)
    for knowledge in KNOWLEDGE:
        for name, changes in CHANGES.items():
            if knowledge != "full" or name == "changing":  # else all are always known
                yield f"{knowledge}, {name}", random.replace(knowledge=knowledge, **changes)
        if knowledge != "full":
            yield f"{knowledge}, on rails", RAILS.replace(knowledge=knowledge)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scenario"), [pytest.param(*one, id=one[0]) for one in scenes()])
def test_plans_are_those_of_all_targets_where_the_lists_hold_all(name, scenario):
    agent = BeliefPlannerAgent(scenario, **SMALL, stride=3 if "plain" in name else 1)
    everything, nearest = Observer(scenario, agent.features), Observer(scenario, agent.features, nearest=11)
    simulator = Simulator(scenario, 4, 7)
    held, one, other, compared = np.ones(4, bool), None, None, 0
    for step in range(10):
        dense, listed, starts = everything.observe(simulator), nearest.observe(simulator), np.full(4, step == 0)
        held &= (dense["mask"].sum(-1) <= 11).all(-1)
        expected, one = agent.plan(dense["pairs"], dense["mask"] != 0, one, starts)
        found, other = agent.plan(listed["pairs"], listed["mask"] != 0, other, starts, targets=listed["targets"])
        np.testing.assert_array_equal(found[held], expected[held])
        for kind, of_all, of_listed in zip(one._fields, one, other, strict=True):
            if kind != "place":
                np.testing.assert_array_equal(of_listed[held], of_all[held], err_msg=kind)
        compared += held.sum()
        simulator.step(padded_actions(expected.argmax(-1), agent.decides, agent.scenario.decisions))
    assert compared >= 20


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_a_full_list_is_an_observation_of_all(knowledge):
    scenario = load_scenario("random").replace(knowledge=knowledge)
    agent = BeliefPlannerAgent(scenario, **SMALL)
    simulator = Simulator(scenario, 2, 0)
    dense, listed = (Observer(scenario, agent.features, nearest=k).observe(simulator) for k in (None, 12))
    (actions, state), (same, own) = agent.predict(dense), agent.predict(listed)
    np.testing.assert_array_equal(actions, same)
    for one, other in zip(state, own, strict=True):
        np.testing.assert_array_equal(one, other)


def of_line(num_targets, heading):
    """Return a function that takes in an observation of targets along +x from a sensor at the origin."""
    scenario = Scenario(
        num_sensors=1,
        num_targets=num_targets,
        walk="still",
        extra_move_every=0,
        knowledge="own",
        arena=1000.0,
        sensing_range=800.0,
    )
    believed = Beliefs(scenario, 64)

    def update(known, k, state=None):
        """Take in the k nearest of `known`, distance and age by target."""
        nearest = sorted(sorted(known, key=lambda j: known[j][0])[:k])
        pairs, targets = np.zeros((1, 1, k, 10), np.float32), np.full((1, 1, k), -1, np.int32)
        pairs[..., 8:] = np.sin(np.radians(heading)), np.cos(np.radians(heading))
        pairs[..., 0], pairs[..., 1] = -np.sin(np.radians(heading)), np.cos(np.radians(heading))  # all along +x
        for place, j in enumerate(nearest):
            targets[0, 0, place] = j
            pairs[0, 0, place, 2] = known[j][0] / scenario.distance_scale
            pairs[0, 0, place, 5] = known[j][1] / 100
        return believed.update(pairs, targets >= 0, state, targets=targets)

    return update


def test_a_target_that_is_crowded_out_of_a_list_stays_believed():
    update = of_line(2, 180)
    _, state = update({1: (300, 2)}, 1)
    scene, state = update({0: (100, 0), 1: (300, 3)}, 1, state)
    assert scene.known[0, :, 4].tolist() == [0, 3]
    np.testing.assert_allclose(scene.belief.body[0, 1, 0], 300, atol=1e-3)
    np.testing.assert_allclose(state.place[0, 0], [(100, 0), (300, 0)], atol=1e-3)
    scene, _ = update({0: (100, 1), 1: (300, 0)}, 2, state)
    assert scene.known[0, :, 4].tolist() == [1, 0]


def test_a_target_that_a_list_would_show_is_gone():
    update = of_line(3, 180)
    _, state = update({0: (100, 2), 1: (300, 2)}, 2)
    scene, _ = update({1: (300, 3), 2: (500, 0)}, 2, state)  # 0 is nearer than the farthest that is listed
    assert scene.known[0, 0, 4] == np.inf
    assert not scene.present[0, 0]
    scene, _ = update({1: (300, 3)}, 2, state)  # a list with a free place holds all
    assert scene.known[0, :, 4].tolist() == [np.inf, 3, np.inf]
    assert scene.present[0].tolist() == [False, True, True]  # the last was never seen


def test_a_view_says_nothing_of_what_is_farther_than_the_list_reaches():
    """The second target was never seen, and the sensor sees as far as 800."""
    update = of_line(2, 0)
    for k, seen in ((1, 100.0), (2, 800.0)):
        scene, _ = update({0: (100, 0)}, k)
        x, y = scene.belief.body[0, 1, :2]
        weight = scene.belief.weight[0, 1]
        away, ahead = np.hypot(x, y), np.abs(np.degrees(np.arctan2(y, x))) < 45
        assert (weight[(away < 0.99 * seen) & ahead] == 0).all()
        assert (weight[(away > 1.01 * seen)] > 0).all()


def test_with_full_knowledge_targets_that_nobody_lists_are_absent():
    scenario = load_scenario("random").replace(num_targets=12)
    agent = BeliefPlannerAgent(scenario, **SMALL)
    everything, nearest = Observer(scenario, agent.features), Observer(scenario, agent.features, nearest=1)
    simulator = Simulator(scenario, 3, 0)
    dense, listed = everything.observe(simulator), nearest.observe(simulator)
    shown = np.zeros(dense["mask"].shape, bool)
    np.put_along_axis(shown, np.maximum(listed["targets"], 0), listed["mask"] != 0, -1)
    _, state = agent.plan(listed["pairs"], listed["mask"] != 0, targets=listed["targets"])
    np.testing.assert_array_equal(state.present[:, 0], shown.any(1))


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", ["shared", "neighbours", "own"])
def test_views_by_place_are_those_of_all(knowledge, monkeypatch):
    scenario = load_scenario("large-20x30").replace(knowledge=knowledge, missed_detections=0.1, message_loss_rate=0.3)
    states = {}
    for large in (False, True):
        monkeypatch.setattr(beliefs, "is_large", lambda _, large=large: large)
        believed, simulator, state = Beliefs(scenario, 40), Simulator(scenario, 2, 0), None
        observer = Observer(scenario, Beliefs.features)
        for _ in range(6):
            shown = observer.observe(simulator)
            _, state = believed.update(shown["pairs"], shown["mask"] != 0, state)
            simulator.step(np.ones((2, 20), int))
        states[large] = state
    for name, one, other in zip(BeliefState._fields, states[False], states[True], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["belief-planner", "belief-planner-fastest"])
def test_a_large_scene_is_planned_by_the_nearest(name):
    large = load_scenario("large").replace(num_sensors=160, num_targets=160, arena=200, grid=15, knowledge="shared")
    agent = load_agent(name, large)
    assert dict(agent.nearness) == {"nearest": 16}
    assert dict(load_agent(f"{name}:nearest=5", large).nearness) == {"nearest": 5}
    covered = {}
    for played in (agent, load_agent("still", large)):
        episodes, coverage = Episodes(played, large, [9_200_000_000], 1), []
        for _ in episodes.steps(25):
            coverage.append(episodes.task.simulator.coverage[0])
        covered[played.name] = np.mean(coverage[10:])
    assert covered[name] > covered["still"] + 0.05


def test_a_radius_is_refused():
    with pytest.raises(ValueError, match=r"radius is 40\.0; beliefs need lists without"):
        load_agent("belief-planner:nearest=3:radius=40", "hit-mac")
