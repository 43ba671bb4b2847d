"""The planner and the greedy agent: by hand, and against enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from hitmac.agents import scripted_agent
from hitmac.agents.baselines.levels import AssignPlanned
from hitmac.agents.baselines.observed_plans import COURSE_MOVES as MOVES
from hitmac.agents.baselines.observed_plans import COURSE_SPEED as SPEED
from hitmac.agents.baselines.observed_plans import foresee_observed, middle, plan
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.baselines.search import candidate_pairs
from hitmac.envs import Scenario
from hitmac.envs.kernels.threads import Threads
from hitmac.envs.scenario import load_scenario, presets
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


@pytest.mark.parametrize("name", ["planner", "planner-fast", "greedy"])
@pytest.mark.parametrize(("degrees", "turn"), [(0, 0), (44, 0), (60, 1), (-60, 2), (120, 1), (-120, 2)])
def test_they_turn_the_short_way_to_a_target(name, degrees, turn):
    place = 500 * np.cos(np.radians(degrees)), 500 * np.sin(np.radians(degrees))
    assert first_turn(name, ONE, HERE | {"target_position": [place]}) == [turn]


@pytest.mark.parametrize("name", ["planner", "planner-fast", "greedy"])
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
    assert first_turn("planner", ONE, places, turn_cost=6.0, discount=1.0) == [0]


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


def test_a_sensor_turns_before_a_target_comes():
    # It is out of range, and enters it behind the sensor, so late that the sensor has to turn by then.
    places = HERE | {"target_position": [(-1000, 0)]}
    scenario = ONE.replace(walk="bounce", speed_noise=0, time_step=1)
    assert first_turn("planner", scenario, places, velocity=(20, 0), discount=1.0) == [1]  # in range after 10 sub-steps
    assert first_turn("planner", scenario, places, velocity=(4, 0), discount=1.0) == [0]  # after 50: there is time
    assert first_turn("planner", scenario, places, velocity=(-20, 0), discount=1.0) == [0]


def brute_force(scenario, sensor, target, velocity, horizon, cost, discount):
    """Values of the first turns: the best over all sequences of turns."""
    best = [-np.inf] * 3
    for turns in itertools.product((0, 1, 2), repeat=horizon):
        heading, value = 0.0, 0.0
        for h, turn in enumerate(turns):
            heading += (0, 1, -1)[turn] * scenario.turn_angle
            offset = target + velocity * (h + 1) * scenario.time_step - sensor
            bearing = np.degrees(np.arctan2(offset[:, 1], offset[:, 0])) - heading
            near = np.hypot(*offset.T) <= scenario.sensing_range
            seen = near & (np.abs((bearing + 180) % 360 - 180) < scenario.field_of_view / 2)
            value += discount**h * seen.sum() - cost * (turn != 0)
        best[turns[0]] = max(best[turns[0]], value)
    return best


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    turn=st.sampled_from([5.0, 7.0, 45.0, 80.0, 180.0]),
    view=st.sampled_from([3.0, 20.0, 90.0, 200.0, 360.0]),
    cost=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_values_are_those_of_enumeration(seed, turn, view, cost):
    rng = np.random.default_rng(seed)
    horizon, discount = 5, 0.9
    scenario = Scenario(
        num_sensors=1, num_targets=4, walk="bounce", extra_move_every=0, time_step=1, speed_noise=0,
        max_speed=150, turn_angle=turn, field_of_view=view, whole_numbers=False,
    )  # fmt: skip
    agent = PlannerAgent(scenario, horizon=horizon, turn_cost=cost, discount=discount)
    task = CoverageTask(scenario, 1, 0, features=agent.features)
    target, velocity = rng.uniform(-900, 900, (4, 2)), rng.uniform(-100, 100, (4, 2))
    task.simulator.place(sensor_position=[(0, 0)], heading=[0], target_position=target)
    task.simulator.state.velocity[:] = velocity
    shown = task.observe()
    values = agent.plan(shown["pairs"], shown["mask"] != 0)[0][0, 0]
    expected = brute_force(scenario, np.zeros(2), target, velocity, horizon, cost, discount)
    # A plan does not turn by more than half a circle.
    if horizon * turn <= 180:
        assert values == pytest.approx(expected, abs=1e-4)
    assert (values <= np.array(expected) + 1e-4).all()


def test_values_belong_to_the_actions():
    agent = scripted_agent("planner", "hit-mac")
    task = CoverageTask("hit-mac", 30, 5, features=agent.features)
    state, start = None, np.ones(30, bool)
    for _ in range(20):
        shown = task.observe()
        values, same = agent.plan(shown["pairs"], shown["mask"] != 0, state, start)
        actions, state = agent.predict(shown, state, start)
        assert values.shape == (30, 4, 3)
        assert values.dtype == np.float32
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(actions, values.argmax(-1))
        for one, other in zip(same, state, strict=True):
            np.testing.assert_array_equal(one, other)
        task.step(actions)
        start = np.zeros(30, bool)
    # Turning costs the same to either side, and both are worse than staying where nothing is to be gained.
    nothing, _ = agent.plan(np.zeros_like(shown["pairs"]), np.zeros_like(shown["mask"], bool))
    np.testing.assert_allclose(nothing[..., 0], 0)
    assert (nothing[..., 1:] < 0).all()


def test_shares_are_those_of_what_a_sensor_alone_covers():
    scenario = Scenario(num_sensors=2, num_targets=3, **STILL)
    task = CoverageTask(scenario, 1, 0, features=PlannerAgent.features)
    places = {"sensor_position": [(0, 0), (1000, 0)], "heading": [0, 180]}
    task.simulator.place(**places, target_position=[(500, 0), (1000, 800), (-1000, 0)])
    # Both see the first target, until sensor 1 has turned nine times, towards the second, which it sees after ten.
    # Nobody reaches the third.
    shown, agent, none = task.observe(), PlannerAgent(scenario), [0, 0, 0]
    for window, shares in ((8, [none, none]), (9, [[1, 0, 0], none]), (10, [[1, 0, 0], [0, 1, 0]])):
        assert agent.shares(shown["pairs"], shown["mask"] != 0, window)[0].tolist() == shares
    assigned = AssignPlanned(scenario).predict(shown)[0]
    assert assigned.tolist() == [[1, 0, 0, 0, 1, 0]]
    shown["mask"][0, 0] = 0
    assert not AssignPlanned(scenario).predict(shown)[0][0, :3].any()


def test_the_memory_holds_turns_speeds_and_extra_moves():
    agent = scripted_agent("planner-fast", "hit-mac")
    task = CoverageTask("hit-mac", 20, 7, features=agent.features)
    live = task.simulator.state
    actions, state = agent.predict(task.observe())  # not told that an episode begins
    assert (state.clock == -1).all()
    for step in range(1, 150):
        task.step(actions)
        actions, state = agent.predict(task.observe(), state)
        assert (state.clock % 10 == step % 10).all()
    moves, known = state.targets[..., MOVES], state.targets[..., MOVES] >= 0
    assert known.mean() > 0.9
    # The simulator counts the moves after the first, and has made one more.
    assert (moves == live.moves + 1)[known].mean() > 0.9
    steady = known & (moves > 20)
    top = task.scenario.top_speed
    relative = state.targets[..., SPEED][steady] * top / (live.speed[steady] * 1.1)
    assert (np.abs(relative - 1) < 0.04).mean() > 0.9  # one observation alone errs by up to 0.1


def test_targets_turn_as_often_as_foreseen():
    agent = PlannerAgent(load_scenario("hit-mac"), samples=64)
    task = CoverageTask("hit-mac", 200, 11, features=agent.features)
    live, state, start = task.simulator.state, None, np.ones(200, bool)
    for _ in range(60):
        shown = task.observe()
        actions, state = agent.predict(shown, state, start)
        task.step(np.zeros_like(actions))
        start = np.zeros(200, bool)
    shown = task.observe()
    _, state = agent.predict(shown, state)
    moves, mask = np.arange(61) * 1.1, shown["mask"] != 0
    when, who, where = np.empty(60 * 65, np.int32), np.empty(60 * 65, np.uint64), np.empty((2, 60 * 65), np.float32)
    foreseen = np.zeros((200, 5, 60))
    called = njit(lambda *arguments: foresee_observed(*arguments))
    for b, j in np.ndindex(200, 5):
        pairs = candidate_pairs.py_func(np.tile(np.arange(5), (4, 1)), mask[b], 5)
        centre = middle.py_func(shown["pairs"][b], mask[b], pairs, j)
        called(state.targets[b, j], centre, agent._walk, moves, agent._futures, when, who, where)
        foreseen[b, j] = np.bitwise_count(who[:60]) / 64  # that have not turned yet
    before, straight = live.moves.copy(), np.ones((200, 5), bool)
    for h in range(1, 51):
        task.step(np.zeros((200, 4), int))
        straight &= live.moves > before
        before = live.moves.copy()
        if h in (10, 30, 50):
            assert straight.mean() == pytest.approx(foreseen[..., h - 1].mean(), abs=0.06)


def test_the_memory_is_that_of_the_episode():
    agent = scripted_agent("planner", "hit-mac")
    task = CoverageTask("hit-mac", 6, 3, features=agent.features)
    state, start = None, np.ones(6, bool)
    for _ in range(15):
        actions, state = agent.predict(task.observe(), state, start)
        task.step(actions)
        start = np.zeros(6, bool)
    before = [array.copy() for array in state]
    shown, start = task.observe(), np.array([True, False] * 3)
    _, after = agent.predict(shown, state, start)
    for one, other in zip(before, state, strict=True):
        np.testing.assert_array_equal(one, other)  # a state can be used again
    fresh = agent.predict(shown, None, np.ones(6, bool))[1]
    on = agent.predict(shown, state)[1]
    for name in ("targets", "clock", "steps", "plans"):
        np.testing.assert_array_equal(getattr(after, name)[::2], getattr(fresh, name)[::2])
        np.testing.assert_array_equal(getattr(after, name)[1::2], getattr(on, name)[1::2])


def test_the_memory_helps():
    agent = scripted_agent("planner-fast", "hit-mac")
    totals = []
    for remember in (True, False):
        task, state, total = CoverageTask("hit-mac", 40, 9_000_000_000, features=agent.features), None, 0.0
        for _ in range(300):
            actions, new = agent.predict(task.observe(), state)
            state = new if remember else None
            task.step(actions)
            total += task.simulator.coverage.mean() / 300
        totals.append(total)
    assert totals[0] > totals[1] + 0.005


@pytest.mark.parametrize("name", ["planner", "planner-fast"])
@pytest.mark.parametrize(
    "scene", [*(name for name in presets() if name != "city"), "hit-mac-1x1", "hit-mac-2x14", "walks"]
)
def test_every_scene_can_be_played(name, scene):
    scenarios = [load_scenario(scene)] if scene != "walks" else [
        Scenario(walk=walk, wander=wander, failure_rate=0.1, recovery_rate=0.3, leave_rate=0.1, return_rate=0.3)
        for walk, wander in (("random", 0), ("bounce", 30), ("still", 0), ("evade", 10), ("goals", 0))
    ]  # fmt: skip
    for scenario in scenarios:
        agent = scripted_agent(name, scenario)
        task, state, start = CoverageTask(scenario, 3, 0, features=agent.features), None, np.ones(3, bool)
        for _ in range(6):
            shown = task.observe()
            actions, state = agent.predict(shown, state, start)
            assert (actions[:, : scenario.num_sensors][~shown["mask"].any(-1)] == 0).all()  # those that are not there
            task.step(actions)
            start = np.zeros(3, bool)


@pytest.mark.parametrize("scene", ["hit-mac", "random", "basketball-4"])
def test_threads_and_batches_change_nothing(scene):
    agent = scripted_agent("planner", scene)
    task = CoverageTask(scene, 60, 0, features=agent.features)
    state, alone = None, dict.fromkeys((0, 20, 59))
    for _ in range(5):
        shown = task.observe()
        together, state = agent.predict(shown, state)
        for b in alone:
            own, alone[b] = agent.predict({key: value[b : b + 1] for key, value in shown.items()}, alone[b])
            np.testing.assert_array_equal(own[0], together[b])
            np.testing.assert_array_equal(alone[b].plans[0], state.plans[b])
        task.step(together)
    shown, results = task.observe(), []
    for threads, block in ((1, 60), (2, 8), (2, 24)):
        history = tuple(array.copy() for array in state)
        values = np.empty((60, agent.scenario.num_sensors * len(agent.decides), 3), np.float32)
        options = agent._walk, agent._motion, agent._search, agent._futures
        shares = np.empty(shown["mask"].shape, np.float32)
        arguments = (shown["pairs"], shown["mask"] != 0, None, history, *options, values, (30, shares))
        Threads(60, threads, block).run(plan, *arguments)
        results.append((values, shares, *history))
    for first, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_another_seed_draws_other_futures():
    task = CoverageTask("hit-mac", 50, 0, features=PlannerAgent.features)
    for _ in range(12):
        task.step(np.zeros((50, 4), int))
    shown = task.observe()
    values = [PlannerAgent(task.scenario, seed).plan(shown["pairs"], shown["mask"] != 0)[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(values[0], values[1])
    assert (values[0] != values[2]).any()


def test_the_planner_covers_more_than_what_needs_no_foresight():
    means = {}
    for name in ("nearest", "greedy", "planner-fast"):
        agent = scripted_agent(name, CoverageTask("hit-mac").scenario)
        task = CoverageTask("hit-mac", 60, 10**6, features=agent.features)
        total, state = 0.0, None
        for _ in range(300):
            actions, state = agent.predict(task.observe(), state)
            task.step(actions)
            total += task.simulator.coverage.mean() / 300
        means[name] = total
    assert means["nearest"] < means["greedy"] < means["planner-fast"]
    assert means["planner-fast"] > 0.8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"horizon": 0}, "horizon is 0; it must be a whole number, 1 to 10000"),
        ({"samples": 65}, "samples is 65; it must be a whole number, 1 to 64"),
        ({"samples": 1.5}, "samples is 1.5"),
        ({"restarts": -1}, "restarts is -1; it must be a whole number, 0 to 1000"),
        ({"rounds": 0}, "rounds is 0"),
        ({"turn_cost": -1}, "turn_cost is -1.0; it must be 0 or more"),
        ({"discount": 0}, "discount is 0.0; it must be over 0 and at most 1"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ValueError, match=says):
        PlannerAgent(ONE, **options)
