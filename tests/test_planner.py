"""The planner and the greedy agent: by hand, and against enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents import scripted_agent
from hitmac.agents.baselines.planner import PlannerAgent, _best_plan
from hitmac.envs import Scenario
from hitmac.envs.tasks import CoverageTask

STILL = {"walk": "still", "extra_move_every": 0}


def first_turn(name, scenario, places, velocity=None, **options):
    agent = scripted_agent(name, scenario, **options)
    task = CoverageTask(scenario, 1, 0, features=agent.features)
    task.simulator.place(**places)
    if velocity is not None:
        task.simulator.state.velocity[:] = velocity
    return agent.predict(task.observe())[0][0].tolist()


ONE = Scenario(num_sensors=1, num_targets=1, **STILL)
HERE = {"sensor_position": [(0, 0)], "heading": [0]}


@pytest.mark.parametrize("name", ["planner", "greedy"])
@pytest.mark.parametrize(("degrees", "turn"), [(0, 0), (44, 0), (60, 1), (-60, 2), (120, 1), (-120, 2)])
def test_they_turn_the_short_way_to_a_target(name, degrees, turn):
    place = 500 * np.cos(np.radians(degrees)), 500 * np.sin(np.radians(degrees))
    assert first_turn(name, ONE, HERE | {"target_position": [place]}) == [turn]


@pytest.mark.parametrize("name", ["planner", "greedy"])
def test_they_leave_to_others_what_others_see(name):
    scenario = Scenario(num_sensors=2, num_targets=2, **STILL)
    places = {"sensor_position": [(0, 0), (10, 0)], "heading": [0, 0], "target_position": [(500, 0), (0, 500)]}
    assert sorted(first_turn(name, scenario, places)) == [0, 1]  # one holds the first, the other turns to the second
    places["target_position"] = [(500, 0), (900, 0)]  # nobody reaches the second
    assert first_turn(name, scenario, places) == [0, 0]


def test_the_planner_foresees_where_a_target_goes():
    # It stands in view near the left edge and moves out to the left: turn before it is gone.
    places = HERE | {"target_position": [(300, 290)]}
    scenario = ONE.replace(walk="bounce", speed_noise=0, time_step=1)
    assert first_turn("planner", scenario, places, velocity=(-30, 30)) == [1]
    assert first_turn("planner", scenario, places, velocity=(30, -30)) == [0]
    assert first_turn("greedy", scenario, places, velocity=(-30, 30)) == [0]


def test_a_turn_that_costs_more_than_it_brings_is_not_made():
    places = HERE | {"target_position": [(0, 500)]}
    assert first_turn("planner", ONE, places, turn_cost=0.5, discount=1.0) == [1]
    assert first_turn("planner", ONE, places, turn_cost=5.0, discount=1.0) == [0]


def test_sensors_that_differ_or_are_not_there():
    scenario = Scenario(num_sensors=2, num_targets=1, field_of_view=(30, 200), **STILL)
    places = {"sensor_position": [(0, 0), (0, 10)], "heading": [0, 0], "target_position": [(0, 400)]}
    assert first_turn("planner", scenario, places) == [0, 0]  # the wide one sees it already
    failed = Scenario(num_sensors=1, num_targets=1, failure_rate=1, **STILL)
    agent = scripted_agent("planner", failed)
    task = CoverageTask(failed, 1, 0, features=agent.features)
    task.step(np.zeros((1, 1), int))
    assert agent.predict(task.observe())[0].tolist() == [[0]]
    for name in ("planner", "greedy"):
        for scene in ("random", "obstacles"):
            agent = scripted_agent(name, CoverageTask(scene).scenario)
            task = CoverageTask(scene, 5, 0, features=agent.features)
            task.step(agent.predict(task.observe())[0])


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 10**6),
    turn=st.sampled_from([5.0, 7.0, 45.0]),
    half_view=st.sampled_from([10.0, 45.0, 100.0, 180.0]),
    stride=st.integers(1, 3),
    cost=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_the_best_plan_is_that_of_enumeration(seed, turn, half_view, stride, cost):
    rng = np.random.default_rng(seed)
    horizon, discount = 12, 0.9
    times = -(-horizon // stride)
    bearing = rng.uniform(-180, 180, (times, 4))
    bearing[rng.random((times, 4)) < 0.2] = np.nan
    covering = (rng.random((times, 4)) < 0.3).astype(np.int64)

    def value(plan):
        total = -cost * abs(plan)
        for t in range(times):
            turned = np.sign(plan) * min((t + 1) * stride, abs(plan)) * turn
            off = np.abs((bearing[t] - turned + 180) % 360 - 180)
            total += stride * discount ** (t * stride) * ((off < half_view) & (covering[t] == 0)).sum()
        return total

    worth = np.empty(2 * horizon + 2)
    chosen = _best_plan.py_func(bearing, covering, worth, half_view, turn, stride, cost, discount)
    most = min(horizon, int(np.ceil(180 / turn)))  # nobody turns by more than half a circle
    assert abs(chosen) <= most
    assert value(chosen) == pytest.approx(max(map(value, range(-most, most + 1))))


def test_threads_and_batches_change_nothing():
    agent = scripted_agent("planner", CoverageTask("hit-mac").scenario)
    task = CoverageTask("hit-mac", 400, 0, features=agent.features)
    shown = task.observe()
    together = agent.predict(shown)[0]
    for b in (0, 200, 399):
        alone = agent.predict({key: value[b : b + 1] for key, value in shown.items()})[0]
        np.testing.assert_array_equal(alone[0], together[b])


def test_the_planner_covers_more_than_what_needs_no_foresight():
    means = {}
    for name in ("nearest", "greedy", "planner"):
        agent = scripted_agent(name, CoverageTask("hit-mac").scenario)
        task = CoverageTask("hit-mac", 60, 10**6, features=agent.features)
        total = 0.0
        for _ in range(300):
            task.step(agent.predict(task.observe())[0])
            total += task.simulator.coverage.mean() / 300
        means[name] = total
    assert means["nearest"] < means["greedy"] < means["planner"]
    assert means["planner"] > 0.78


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"horizon": 0}, "horizon is 0; it must be a whole number, 1 or more"),
        ({"stride": 1.5}, "stride is 1.5"),
        ({"rounds": 0}, "rounds is 0"),
        ({"turn_cost": -1}, "turn_cost is -1; it must be a number, 0 or more"),
        ({"discount": 0}, "discount is 0; it must be a number over 0, to 1"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ValueError, match=says):
        PlannerAgent(ONE, **options)
