"""Views that count for several sub-steps, and futures course by course: by hand, by brute force, and in use."""

import numpy as np
import pytest
from numba import njit

from hitmac.agents import load_agent, scripted_agent
from hitmac.agents.baselines import believed_plans as lists
from hitmac.agents.baselines.believed_plans import Sampling, mark
from hitmac.agents.baselines.planner import BeliefPlannerAgent, _looks
from hitmac.agents.tracking.beliefs import Rules
from hitmac.agents.tracking.particles import AIM_X, AIM_Y, MOVES, ROWS, SPEED, STEP, X, Y, walk_model
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask

SMALL = {"horizon": 20, "particles": 32, "samples": 8, "stride": 4}


@njit(error_model="numpy")
def mark_at_origin(x, y, who, angle, half_view, turn, reach, most, sides, row):
    """Write the samples in view of a sensor at the origin."""
    one = np.float32
    pose = one(0.0), one(0.0), one(np.cos(angle)), one(np.sin(angle))
    mark(x, y, who, pose, np.zeros(2, one), (one(reach * reach), one(half_view), one(1.0 / turn)), most, sides, row)


@njit(error_model="numpy")
def foresee(rules, search, sampling, body, weight, together):
    """Return the lists of one target."""
    looks = search.looks
    middle, _ = lists.spans(looks)
    futures, shared = lists.empty_futures(looks[-1], 1, search.samples + 1), np.empty(looks[-1] + 1, np.int64)
    moves = middle.astype(np.float64)
    lists.foresee_believed(rules, search, sampling, body, weight, together, 0, 0, middle, moves, shared, futures)
    lists.close(futures)
    return futures


def play(agent, scenario, steps, scenes=1, seed=0):
    """Play; return the actions of every sub-step, the mean coverage and the last state."""
    task = CoverageTask(scenario, scenes, seed, features=agent.features)
    state, start, played, coverage = None, np.ones(scenes, bool), [], []
    for _ in range(steps):
        actions, state = agent.predict(task.observe(), state, start)
        start = np.zeros(scenes, bool)
        task.step(actions)
        played.append(actions)
        coverage.append(task.simulator.coverage.mean())
    return np.array(played), np.mean(coverage), state


def test_looks_count_for_more_and_more_sub_steps():
    assert _looks(5, 1).tolist() == [0, 1, 2, 3, 4, 5]
    assert _looks(11, 3).tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6]
    for horizon in (1, 7, 40):
        looks = _looks(horizon, 6)
        assert len(looks) == horizon + 1
        assert looks[1] == 1
        assert set(np.diff(looks)) <= {0, 1}


@pytest.mark.parametrize("most", [0, 3, 9, 26, 27, 36])
@pytest.mark.parametrize("half_view", [20.0, 45.0, 100.0])
def test_samples_in_view_are_those_of_brute_force(most, half_view):
    rng = np.random.default_rng(most)
    x, y = rng.uniform(-1000, 1000, (2, 64)).astype(np.float32)
    who = np.uint64(1) << np.arange(64, dtype=np.uint64)
    angle, turn, reach = rng.uniform(-3, 3), 5.0, 800.0
    row = np.ones(2 * most + 2, np.uint64)
    mark_at_origin(x, y, who, angle, half_view, turn, reach, most, np.empty((4, 4, 16), np.int32), row)
    bearing = np.degrees(np.arctan2(y, x) - angle)
    for k in range(-most, most + 1):
        off = np.abs((bearing - k * turn + 180) % 360 - 180)
        clear = np.abs(off - half_view) > 1e-3
        expected = (off < half_view) & (np.hypot(x, y) <= reach)
        seen = (row[k + most] >> np.arange(64, dtype=np.uint64)) & np.uint64(1) == 1
        np.testing.assert_array_equal(seen[clear], expected[clear])


@pytest.mark.parametrize("scene", ["basketball-4", "hit-mac"])
@pytest.mark.parametrize("together", [True, False])
def test_courses_lead_where_moves_do(scene, together):
    """In the mean over many targets: the distance gone, and the share of the samples that are in one entry."""
    scenario = load_scenario(scene).replace(extra_move_every=0)
    walk, number, horizon = walk_model(scenario), 60, 30
    rules = Rules(walk, 0, 0.0, False, False)
    search = BeliefPlannerAgent(scenario, horizon=horizon, samples=number)._search
    rng, spread = np.random.default_rng(0), np.zeros((2, 400, 2))
    for target in range(len(spread[0])):
        body = np.zeros((ROWS, number))
        body[X], body[Y] = rng.uniform(-400, 400), rng.uniform(-400, 400)
        aim = rng.uniform(-500, 500, 2)
        body[AIM_X], body[AIM_Y] = aim[0], aim[1]
        body[SPEED] = rng.uniform(walk.min_speed, walk.max_speed)
        body[STEP], body[MOVES] = body[SPEED] * walk.time_step * 1.1, 3.0
        for kind, by_course in enumerate((False, True)):
            sampling = Sampling(np.uint64(target), by_course, 1)
            futures = foresee(rules, search, sampling, body, np.full(number, 1 / number), together)
            used = slice(futures.length[horizon, 0])
            place, members = np.stack((futures.x, futures.y), -1)[horizon, 0, used], futures.who[horizon, 0, used]
            size = np.array([bin(int(one)).count("1") for one in members])
            assert size.sum() == number
            moved = place[size > 0] - body[[X, Y], 0]
            spread[kind, target] = np.hypot(*moved.T) @ size[size > 0] / number, size.max() / number
    means = spread.mean(1)
    assert abs(means[0, 0] - means[1, 0]) < 0.04 * means[0, 0]
    assert abs(means[0, 1] - means[1, 1]) < 0.04


@pytest.mark.parametrize("scene", ["random", "basketball-4"])
def test_batches_and_threads_change_nothing_and_seeds_do(scene, monkeypatch):
    scenario = load_scenario(scene).replace(knowledge="shared")
    played = {}
    for seed, threads in ((1, 1), (1, 2), (2, 1)):
        monkeypatch.setattr("hitmac.agents.baselines.planner.cores", lambda threads=threads: threads)
        played[seed, threads] = play(BeliefPlannerAgent(scenario, seed, **SMALL), scenario, 12, 20, 5)
    for one, two in zip(played[1, 1][2], played[1, 2][2], strict=True):
        np.testing.assert_array_equal(one, two)
    assert (played[1, 1][0] != played[2, 1][0]).any()
    alone = play(BeliefPlannerAgent(scenario, 1, **SMALL), scenario, 12, 1, 12)[0]
    np.testing.assert_array_equal(played[1, 1][0][:, 7], alone[:, 0])


@pytest.mark.parametrize("scene", ["hit-mac", "obstacles", "basketball-4"])
def test_a_goal_that_is_everywhere_near_is_left_for_another(scene):
    """A course has at least one move, or the future would never end."""
    scenario = load_scenario(scene).replace(knowledge="own", goal_radius=5000.0)
    play(BeliefPlannerAgent(scenario, **SMALL), scenario, 3, 2)


def test_the_fastest_covers_nearly_as_much():
    scenario, covered = load_scenario("basketball-6"), {}
    for name in ("belief-planner-fast", "belief-planner-fastest"):
        covered[name] = play(scripted_agent(name, scenario), scenario, 100, 12, 9_200_000_000)[1]
    assert covered["belief-planner-fastest"] > covered["belief-planner-fast"] - 0.015
    assert covered["belief-planner-fastest"] > 0.9


def test_the_fastest_has_as_many_futures_as_share_a_word():
    of = {"hit-mac": 6, "volleyball-6": 5, "basketball-4": 6, "football-6": 2, "large": 2}
    assert {name: load_agent("belief-planner-fastest", name).policy.samples for name in of} == of
    own = load_agent("belief-planner-fastest:samples=3:stride=2", "football-6").policy
    assert (own.samples, own.horizon) == (3, 40)


@pytest.mark.parametrize("stride", [0, -1, 1.5, True])
def test_a_stride_out_of_range_is_named(stride):
    with pytest.raises(ValueError, match=f"stride is {stride}"):
        BeliefPlannerAgent(load_scenario("hit-mac"), stride=stride)
