"""Values of targets, by hand: zones, coverage by value and by several sensors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.envs import Scenario, Simulator, observe
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoverageTask, ExecutorTask

SQUARE = [(0, 0), (100, 0), (100, 100), (0, 100)]
ARROW = [(0, 0), (100, 100), (0, 50), (-100, 100)]  # concave: its notch is above (0, 50)
ALL_ROUND = {"field_of_view": 360, "sensing_range": 300, "walk": "still", "extra_move_every": 0, "speed_noise": 0}


@pytest.mark.parametrize(
    ("zones", "at", "value"),
    [
        ([SQUARE], (50, 50), 5),
        ([SQUARE[::-1]], (50, 50), 5),  # clockwise
        ([SQUARE], (-1e-9, 50), 1),
        ([SQUARE], (50, 100.001), 1),
        *(([SQUARE], at, 5) for at in [(0, 50), (100, 50), (50, 0), (50, 100), (0, 0), (100, 100)]),  # on the border
        ([SQUARE], (200, 100), 1),  # on the line through a side, not on the side
        ([SQUARE], (-50, 100), 1),
        ([ARROW], (0, 49), 5),
        ([ARROW], (0, 51), 1),  # in the notch
        ([ARROW], (0, 75), 1),
        ([ARROW], (60, 75), 5),
        ([ARROW], (50, 50), 5),  # on a slanted side
        ([ARROW], (51, 50), 1),
        ([SQUARE, ARROW], (50, 90), 5),
        ([SQUARE, ARROW], (50, 60), 7),  # in both: the last counts
        ([ARROW, SQUARE], (50, 60), 7),
        ([ARROW, SQUARE], (-50, 60), 5),
    ],
)
def test_the_value_is_that_of_the_last_zone_with_the_target(zones, at, value):
    scenario = Scenario(num_targets=2, zones=zones, zone_values=(5, 7)[: len(zones)], target_values=(1, 3), **ALL_ROUND)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(target_position=[at, at])
    assert simulator.state.value[0].tolist() == [value, 3 * value]
    shown = observe(scenario, ("value",), [(0, 0)], [0], [at, at])["pairs"][0, :, 0]
    np.testing.assert_allclose(shown, [value / (15 if len(zones) == 1 else 21), value / (5 if len(zones) == 1 else 7)])
    np.testing.assert_array_equal(Observer(scenario, ["value"]).observe(simulator)["pairs"][0, 0, :, 0], shown)


HAND = Scenario(
    num_sensors=3, num_targets=4, zones=[[(-1000, -1000), (-500, -1000), (-500, 1000), (-1000, 1000)]], zone_values=[4],
    target_values=(1, 2, 0, 3), **ALL_ROUND,
)  # fmt: skip
PLACES = {
    "sensor_position": [(0, 0), (100, 0), (200, 0)],
    "target_position": [(-150, 0), (50, 0), (50, 50), (-700, 0)],  # seen by 2, 3, 3 and no sensor
}


@pytest.mark.parametrize(
    ("seen_by", "covered", "coverage"),
    [(1, [1, 1, 1, 0], 3 / 15), (2, [1, 1, 1, 0], 3 / 15), (3, [0, 1, 1, 0], 2 / 15)],
)
def test_coverage_by_hand(seen_by, covered, coverage):
    scenario = HAND.replace(seen_by=seen_by)
    simulator = Simulator(scenario, 2, 0)
    simulator.place(**PLACES)
    state = simulator.state
    assert state.value[0].tolist() == [1, 2, 0, 12]
    assert state.covered[1].tolist() == covered
    assert state.num_covered[0] == sum(covered)
    np.testing.assert_allclose(simulator.coverage, coverage)
    task = CoverageTask(scenario, 1, 0)
    task.simulator.place(**PLACES)
    np.testing.assert_allclose(task.step(np.zeros((1, 3), np.int64)), coverage)
    value, seeing = np.array([1, 2, 0, 12]), state.visible[0]
    enough = {1: [], 2: [0], 3: [1, 2]}[seen_by]  # targets that just enough sensors see
    expected = [sum(value[j] for j in enough if seeing[i, j]) / 15 for i in range(3)]
    np.testing.assert_allclose(task.difference_rewards()[0], expected)


def test_without_a_value_coverage_is_one_and_not_observed():
    scenario = HAND.replace(target_values=(0, 0, 0, 1), min_targets=1, leave_rate=0)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=PLACES["sensor_position"], target_position=[(50, 0)] * 3 + [(np.nan, np.nan)])
    assert simulator.coverage[0] == 1
    assert np.isnan(simulator.observed_coverage[0])


def test_the_executors_goals_count_by_value():
    task = ExecutorTask(HAND.replace(field_of_view=90, target_values=(1, 2, 0, 0)), 1, 0, turn_cost=0)
    task.simulator.place(heading=[0, 0, 0], **PLACES)
    reward = task.step(np.zeros((1, 3), np.int64)), task.rewards[0]
    np.testing.assert_allclose(reward[1], [(2 * 1 - 1) / 3, -1, -1])  # the first sees the second target, right ahead


LARGE = {"num_sensors": 100, "num_targets": 100, "placement": "random", "arena": 1250.0}
SOME = {"zones": [[(-900, -800), (700, -300), (100, 900)], ARROW], "zone_values": (2.5, 0), "seen_by": 2}


def run(scenario, scenes=2, steps=12):
    simulator, rng = Simulator(scenario, scenes, 3), np.random.default_rng(0)
    for _ in range(steps):
        simulator.step(rng.integers(0, 3, (2, scenario.num_sensors))[:scenes])
    return simulator


@pytest.mark.parametrize("sizes", [{"num_sensors": 4, "num_targets": 6}, LARGE])
@settings(max_examples=4, deadline=None)
@given(seen_by=st.integers(1, 4), factor=st.sampled_from([0.125, 4, 3]))
def test_it_agrees_with_the_sum_over_targets_of_any_scene(sizes, seen_by, factor):
    targets = tuple(np.arange(sizes["num_targets"]) % 4)
    scenario = Scenario(**sizes | SOME | {"seen_by": seen_by}, target_values=targets, leave_rate=0.1, return_rate=0.3)
    state = (simulator := run(scenario)).state
    seen = state.visible.sum(1) >= seen_by
    worth = state.value * state.present
    np.testing.assert_array_equal(state.covered, seen)
    np.testing.assert_allclose(simulator.coverage, (seen * worth).sum(1) / worth.sum(1))
    scaled = run(scenario.replace(target_values=tuple(factor * np.array(targets))))
    np.testing.assert_allclose(scaled.coverage, simulator.coverage, rtol=1e-12)
    alone = run(scenario, 1)
    np.testing.assert_equal(alone.get_state(), {name: array[:1] for name, array in simulator.get_state().items()})


@pytest.mark.parametrize("sizes", [{}, LARGE])
def test_values_of_one_change_nothing(sizes):
    plain = Scenario(**sizes, leave_rate=0.1, return_rate=0.3)
    valued = plain.replace(zones=[SQUARE], zone_values=[1], target_values=(1,) * plain.num_targets)
    one, other = run(plain), run(valued)
    np.testing.assert_equal(one.get_state(), other.get_state())
    task, same = (CoverageTask(scenario, 1, 0) for scenario in (plain, valued))
    still = np.zeros((1, plain.num_sensors), np.int64)
    assert task.step(still) == same.step(still)
