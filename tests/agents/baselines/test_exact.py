"""The exact agent: by hand, and against enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.baselines.exact import ExactAgent
from hitmac.envs import Scenario
from hitmac.envs.tasks import CoverageTask

STILL = {"walk": "still", "extra_move_every": 0}
ONE = Scenario(num_sensors=1, num_targets=1, **STILL)


def shown(scenario, **places):
    task = CoverageTask(scenario, 1, 0, features=ExactAgent(scenario).features)
    task.simulator.place(**places)
    return task.observe()


def at(degrees, distance=500):
    return distance * np.cos(np.radians(degrees)), distance * np.sin(np.radians(degrees))


def plan(scenario, targets, sensors=((0, 0),), heading=(0,), **options):
    seen = shown(scenario, sensor_position=sensors, heading=heading, target_position=targets)
    return ExactAgent(scenario, **options).plan(seen["pairs"], seen["mask"])[0].tolist()


def test_values_and_two_sensors_that_must_see_a_target():
    two = Scenario(num_sensors=2, num_targets=3, target_values=(1, 3, 1), **STILL)
    sensors, targets = [(0, 0), (10, 0)], [at(0), at(100), at(10)]
    for scenario, expected in ((two, ([0, 12], [12, 0])), (two.replace(seen_by=2), ([12, 12],))):
        seen = shown(scenario, sensor_position=sensors, heading=(0, 0), target_position=targets)
        agent = ExactAgent(scenario)
        assert agent.plan(seen["pairs"], seen["mask"])[0].tolist() in expected


def test_it_turns_as_little_as_it_takes():
    for degrees, turns in ((0, 0), (44, 0), (47, 1), (64, 4), (-64, -4), (179, 27), (-179, -27)):
        for reach in (None, 10, 2):  # of a plan
            assert plan(ONE, [at(degrees)], reach=reach) == [turns if abs(turns) <= (reach or 36) else 0]
        assert plan(ONE, [at(degrees, 900)], reach=None) == [0]  # out of range
    assert plan(ONE.replace(field_of_view=360), [(-500, 0)]) == [0]  # all round: exactly behind as well


def test_a_target_more_is_worth_any_turning_and_no_turn_is_made_for_nothing():
    two = Scenario(num_sensors=2, num_targets=2, **STILL)
    sensors = [(0, 0), (10, 0)]
    # Both see the first; the second is near the left edge of the one and far from that of the other.
    assert plan(two, [at(0), at(64)], sensors, heading=(0, 10)) == [0, 3]
    assert plan(two, [at(0), at(64)], sensors, heading=(10, 0)) == [2, 0]
    assert plan(two, [at(0), at(179)], sensors, heading=(0, 0), reach=None) in ([27, 0], [0, 27])
    assert plan(two, [at(0), at(179)], sensors, heading=(0, -40), reach=None) == [0, -20]
    assert plan(two, [at(0), at(0, 900)], sensors, heading=(0, 100), reach=None) == [0, 0]  # it is covered anyway


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 6), reach=st.integers(1, 4))
def test_a_plan_is_that_of_enumeration(seed, n, m, reach):
    """The most targets are covered, with as little turning as possible, of all combinations of turns."""
    rng = np.random.default_rng(seed)
    pairs = np.empty((1, n, m, 5), np.float32)
    pairs[..., 0] = rng.uniform(-1, 1, (n, m))
    pairs[..., 1] = rng.uniform(0, 1, (n, m))
    pairs[..., 2] = rng.choice([0.05, 0.2, 0.25, 0.7, 1.0], (n, 1))
    pairs[..., 3] = rng.choice([0.5, 0.8, 2.0], (n, 1))
    pairs[..., 4] = rng.choice([0.05, 0.1, 0.217], (n, 1))
    mask = (rng.random((1, n, m)) < 0.9).astype(np.int8)
    pairs[mask == 0] = 0.0
    bearing, distance, view, ranges, turn = np.moveaxis(pairs[0].astype(float), -1, 0)

    def sees(i, turns):
        off = (180 * bearing[i] - turns * turn[i].max() * 180 + 180) % 360 - 180
        return ((np.abs(off) < 180 * view[i]) | (view[i] == 1)) & (distance[i] <= ranges[i]) & (mask[0, i] == 1)

    def worth(turns):
        seen = [sees(i, k) for i, k in enumerate(turns)]
        return np.any(seen, 0).sum(), -np.abs(turns).sum()

    headings = [range(-reach, reach + 1) if mask[0, i].any() else [0] for i in range(n)]
    turns = ExactAgent(ONE, reach=reach).plan(pairs, mask)[0]  # not the scenario's numbers of sensors and targets
    assert np.abs(turns).max() <= reach
    assert worth(turns) == max(worth(each) for each in itertools.product(*headings))


def test_sensors_follow_their_plan_until_the_next():
    task = CoverageTask(ONE, 2, 0, features=ExactAgent.features)
    task.simulator.place(sensor_position=[(0, 0)], heading=[0], target_position=[at(52)])
    agent = ExactAgent(ONE, every=4)
    state, turns = None, []
    for t in range(10):
        if t == 3:  # too late for the plan
            task.simulator.place(target_position=[at(-60)])
        before = None if state is None else [array.copy() for array in state]
        # A new episode in the second scene at t = 6.
        action, after = agent.predict(task.observe(), state, np.array([t == 0, t in (0, 6)]))
        for array, copy in zip(state or (), before or (), strict=True):
            np.testing.assert_array_equal(array, copy)  # a state can be used again
        state = after
        turns.append(action[:, 0].tolist())
        task.step(action)
        if (
            t == 4
        ):  # beyond all views: the plan is followed all the same, in the second scene only until the next episode
            task.simulator.place(target_position=[(1000, 0)])
    assert turns == [[1, 1], [1, 1], [0, 0], [0, 0], [2, 2], [2, 2], [2, 0], [2, 0], [0, 0], [0, 0]]


def test_a_failed_sensor_gives_its_plan_up():
    scenario = Scenario(num_sensors=2, num_targets=1, min_sensors=1, **STILL)
    agent = ExactAgent(scenario, every=10)
    seen = shown(scenario, sensor_position=[(0, 0), (0, 10)], heading=[0, 170], target_position=[at(90)])
    seen["mask"][:] = 1
    action, state = agent.predict(seen)  # without a state a plan is made
    assert action.tolist() in ([[0, 2]], [[1, 0]])
    gone = {"pairs": np.zeros_like(seen["pairs"]), "mask": np.zeros_like(seen["mask"])}
    action, state = agent.predict(gone, state, np.array([False]))
    assert action.tolist() == [[0, 0]]
    assert agent.predict(seen, state, np.array([False]))[0].tolist() == [[0, 0]]  # until the next plan
    assert agent.predict(seen, state, np.array([True]))[0].any()


def test_options_out_of_range_are_named():
    for options, says in (({"every": 0}, "every is 0"), ({"reach": 0}, "reach is 0"), ({"reach": 1.5}, "reach is 1.5")):
        with pytest.raises(ValueError, match=says):
            ExactAgent(ONE, **options)
