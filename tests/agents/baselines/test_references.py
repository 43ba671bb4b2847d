"""The exact agent and the references: by hand, against enumeration, and against what agents reach."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents import scripted_agent
from hitmac.agents.baselines.exact import ExactAgent
from hitmac.agents.evaluate import bounds as covering
from hitmac.agents.evaluate import bounds as references
from hitmac.agents.evaluate.bounds import bounds_of
from hitmac.envs import Scenario
from hitmac.envs.kernels.knowledge import popcount
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import scenarios

STILL = {"walk": "still", "extra_move_every": 0}
ONE = Scenario(num_sensors=1, num_targets=1, **STILL)


def compute_bound(*arguments, **options):
    """A bound's coverage (E,) and (T,), mean over the sub-steps and the episodes, and its rotation (E,)."""
    coverage, rotation = references.compute_bound(*arguments, **options)
    return SimpleNamespace(coverage=coverage.mean(-1), rotation=rotation, sub_step_coverage=coverage.mean(0))


def shown(scenario, **places):
    task = CoverageTask(scenario, 1, 0, features=ExactAgent.features)
    task.simulator.place(**places)
    return task.observe()


def at(degrees, distance=500):
    return distance * np.cos(np.radians(degrees)), distance * np.sin(np.radians(degrees))


def plan(scenario, targets, sensors=((0, 0),), heading=(0,), **options):
    seen = shown(scenario, sensor_position=sensors, heading=heading, target_position=targets)
    return ExactAgent(scenario, **options).plan(seen["pairs"], seen["mask"])[0].tolist()


# --- the exact agent ---


@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (44, 0), (47, 1), (64, 4), (-64, -4), (179, 27), (-179, -27)])
def test_it_turns_as_little_as_it_takes(degrees, turns):
    assert plan(ONE, [at(degrees)], reach=None) == [turns]
    assert plan(ONE, [at(degrees)], reach=10) == [turns if abs(turns) <= 10 else 0]  # not to be reached within the plan
    assert plan(ONE, [at(degrees)], reach=2) == [turns if abs(turns) <= 2 else 0]
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


def brute_force(pairs, mask, reach):
    """The most targets that are covered, and with how little turning: every combination of turns."""
    bearing, distance, view, ranges, turn = np.moveaxis(pairs.astype(float), -1, 0)
    n, m = mask.shape
    options = []
    for i in range(n):
        mine = []
        for k in range(-reach, reach + 1) if mask[i].any() else [0]:
            off = (bearing[i] * 180 - k * turn[i].max() * 180 + 180) % 360 - 180
            sees = [
                j
                for j in range(m)
                if mask[i, j] and distance[i, j] <= ranges[i, j] and (abs(off[j]) < 180 * view[i, j] or view[i, j] == 1)
            ]
            mine.append((frozenset(sees), abs(k)))
        options.append(mine)
    value = {(len(frozenset().union(*(o[0] for o in c))), -sum(o[1] for o in c)) for c in itertools.product(*options)}
    return max(value)


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 6), reach=st.integers(1, 4))
def test_a_plan_is_that_of_enumeration(seed, n, m, reach):
    rng = np.random.default_rng(seed)
    pairs = np.empty((1, n, m, 5), np.float32)
    pairs[..., 0] = rng.uniform(-1, 1, (n, m))
    pairs[..., 1] = rng.uniform(0, 1, (n, m))
    pairs[..., 2] = rng.choice([0.05, 0.2, 0.25, 0.7, 1.0], (n, 1))
    pairs[..., 3] = rng.choice([0.5, 0.8, 2.0], (n, 1))
    pairs[..., 4] = rng.choice([0.05, 0.1, 0.217], (n, 1))
    mask = (rng.random((1, n, m)) < 0.9).astype(np.int8)
    pairs[mask == 0] = 0.0
    # Not the scenario's numbers of sensors and targets.
    turns = ExactAgent(ONE, reach=reach).plan(pairs, mask)[0]
    assert np.abs(turns).max() <= reach
    options = []
    for i in range(n):
        off = (pairs[0, i, :, 0] * 180.0 - turns[i] * pairs[0, i, :, 4].max() * 180.0 + 180) % 360 - 180
        inside = (np.abs(off) < 180 * pairs[0, i, :, 2]) | (pairs[0, i, :, 2] == 1)
        options.append(inside & (pairs[0, i, :, 1] <= pairs[0, i, :, 3]) & (mask[0, i] == 1))
    assert (np.any(options, 0).sum(), -np.abs(turns).sum()) == brute_force(pairs[0], mask[0], reach)


def test_sensors_follow_their_plan_until_the_next():
    task = CoverageTask(ONE, 2, 0, features=ExactAgent.features)
    task.simulator.place(sensor_position=[(0, 0)], heading=[0], target_position=[at(52)])
    agent = ExactAgent(ONE, every=4)
    planned = []
    agent.plan = lambda pairs, mask: planned.append(len(pairs)) or ExactAgent.plan(agent, pairs, mask)
    state, turns = None, []
    for t in range(9):
        if t == 3:  # too late for the plan
            task.simulator.place(target_position=[at(-60)])
        before = None if state is None else [array.copy() for array in state]
        # A new episode in the second scene at t = 6.
        action, after = agent.predict(task.observe(), state, np.array([t == 0, t in (0, 6)]))
        if before is not None:
            for array, copy in zip(state, before, strict=True):
                np.testing.assert_array_equal(array, copy)  # what the caller keeps stays as it is
        assert all(len(array) == 2 for array in after)
        state = after
        turns.append(action[:, 0].tolist())
        task.step(action)
    assert [scenes for scenes in planned if scenes] == [
        2,
        2,
        1,
        1,
    ]  # at t = 0, 4, 6 in the second scene, 8 in the first
    assert turns[:4] == [[1, 1], [1, 1], [0, 0], [0, 0]]
    # From 10 degrees to -20: six turns, of which a plan of ten sub-steps may make all, but is made anew after four.
    assert turns[4:] == [[2, 2]] * 4 + [[2, 2]]


def test_without_a_state_a_plan_is_made_and_a_failed_sensor_gives_its_own_up():
    scenario = Scenario(num_sensors=2, num_targets=1, min_sensors=1, **STILL)
    agent = ExactAgent(scenario, every=10)
    seen = shown(scenario, sensor_position=[(0, 0), (0, 10)], heading=[0, 170], target_position=[at(90)])
    seen["mask"][:] = 1
    action, state = agent.predict(seen)
    assert action.tolist() == [[0, 2]] or action.tolist() == [[1, 0]]
    assert np.sign(agent.plan(seen["pairs"], seen["mask"])).tolist() == np.choose(action, (0, 1, -1)).tolist()
    gone = {"pairs": np.zeros_like(seen["pairs"]), "mask": np.zeros_like(seen["mask"])}
    action, state = agent.predict(gone, state, np.array([False]))
    assert action.tolist() == [[0, 0]]
    assert agent.predict(seen, state, np.array([False]))[0].tolist() == [[0, 0]]  # until the next plan
    assert agent.predict(seen, state, np.array([True]))[0].any()


@pytest.mark.parametrize("scene", ["random", "obstacles"])
def test_it_plays_any_scenario(scene):
    scenario = CoverageTask(scene).scenario
    agent = ExactAgent(scenario, every=2)
    task = CoverageTask(scenario, 3, 0, features=agent.features)
    state = None
    for _ in range(5):
        action, state = agent.predict(task.observe(), state)
        task.step(action)  # where lenses zoom, with an action for each
    assert not scenario.zoom or not action[:, scenario.num_sensors :].any()


# --- the references ---


def freely(bearing, view):
    """The most that the table and the integer program say can be covered; they must agree."""
    bearing, view = np.asarray(bearing, float), np.asarray(view, float)
    covered = np.zeros((1, 1), np.int64)
    covering.cover_freely(bearing[None, None], view, covered, None)
    assert covered[0, 0] == references._most_covered(bearing, view)
    return covered[0, 0]


def test_what_a_view_can_hold():
    nan = np.nan
    assert freely([[0, 89]], [90]) == 2
    assert freely([[0, 90]], [90]) == 1  # strictly within half the view
    assert freely([[-45, 45, 0]], [90]) == 2
    assert freely([[170, -170, -100]], [90]) == 2
    assert freely([[170, -170, -100]], [91]) == 3
    assert freely([[0, 120, 240]], [240]) == 2
    assert freely([[0, 120, 240]], [241]) == 3
    assert freely([[0, 180]], [np.inf]) == 2
    assert freely([[nan, nan]], [90]) == 0
    assert freely([[0, 89, nan], [0, nan, 180]], [90, 90]) == 3
    assert freely([[0, 20, 180, 200], [0, 20, 180, nan]], [30, 30]) == 4
    assert freely([[0, 20, 180, 200], [0, 20, nan, nan], [0, 20, 180, nan]], [30, 30, 10]) == 4


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 7))
def test_the_free_bound_is_that_of_enumeration(seed, n, m):
    rng = np.random.default_rng(seed)
    bearing, view = rng.uniform(-180, 180, (n, m)), rng.choice([20.0, 90.0, 200.0, 350.0], n)
    bearing[rng.random((n, m)) < 0.3] = np.nan
    options = []
    for i in range(n):
        # What a sensor sees changes only where a target enters or leaves: one heading between any two such.
        edges = np.sort(np.concatenate((bearing[i] - view[i] / 2, bearing[i] + view[i] / 2)) % 360)
        edges = edges[~np.isnan(edges)]
        between = (edges + np.append(edges[1:], edges[:1] + 360)) / 2
        off = np.abs((bearing[i] - between[:, None] + 180) % 360 - 180)
        options.append([*(off < view[i] / 2), np.zeros(m, bool)])
    assert freely(bearing, view) == max(np.any(sets, 0).sum() for sets in itertools.product(*options))


def test_targets_are_to_be_seen_as_the_simulator_says():
    scenario = Scenario(
        num_sensors=3, num_targets=4, min_targets=1, min_sensors=1, placement="random", random_discs=6,
        whole_numbers=False, disc_radius=(100, 200), walls=((-600, -600, 600, 500),), failure_rate=0.1,
        recovery_rate=0.5, leave_rate=0.1, return_rate=0.3, sensing_range=(500, 900, 2000), time_step=1,
    )  # fmt: skip
    record = references._record(scenario, list(range(20)), 15)
    task = CoverageTask(scenario.replace(field_of_view=360), 20, list(range(20)))
    seen = 0
    for t in range(15):
        task.step(np.random.default_rng(t).integers(0, 3, (20, 3)))  # the walk does not depend on it
        state = task.simulator.state
        np.testing.assert_array_equal(~np.isnan(record.bearing[:, t]), state.visible)
        np.testing.assert_array_equal(record.present[:, t], state.present)
        np.testing.assert_array_equal(record.working[:, t], state.working)
        for e, i, j in np.argwhere(state.visible):
            dx, dy = state.target_position[e, j] - state.sensor_position[e, i]
            assert record.bearing[e, t, i, j] == pytest.approx(np.degrees(np.arctan2(dy, dx)))
        seen += state.visible.sum()
    assert 0.05 < seen / record.bearing.size < 0.9


def bounded(scenario):
    """The scenario with what has no references left out, and with no target exactly on the edge of a view."""
    walk = "bounce" if scenario.walk == "evade" else scenario.walk
    fixed = {"rails": (), "placement": "grid"} if scenario.rails else {}
    return scenario.replace(zoom=(), walk=walk, whole_numbers=False, **fixed)


@settings(deadline=None, max_examples=60)
@given(scenario=scenarios().map(bounded), seed=st.integers(0, 10**9), cost=st.sampled_from([0.0, 0.1]))
def test_no_agent_beats_the_free_bound_and_the_foreseen_turns_are_worth_what_they_claim(scenario, seed, cost):
    seeds, sub_steps = [seed, seed + 7], 12
    most = [compute_bound("free turning", scenario, [one], sub_steps).sub_step_coverage for one in seeds]
    agent = scripted_agent("planner", scenario)
    for name in ("random", "planner"):
        task = CoverageTask(scenario, 2, seeds, features=agent.features)
        rng = np.random.default_rng(seed)
        for t in range(sub_steps):
            turns = rng.integers(0, 3, (2, scenario.num_sensors))
            task.step(turns if name == "random" else agent.predict(task.observe())[0])
            assert (task.simulator.coverage <= [one[t] + 1e-12 for one in most]).all()

    record = references._record(scenario, seeds, sub_steps)
    turns, value = references._foreseen_turns(scenario, seeds, record, 2, cost)
    task = CoverageTask(scenario, 2, seeds, turn_cost=cost)
    reward = covered = 0.0
    for t in range(sub_steps):
        reward += task.step(turns[:, t])
        assert ((turns[:, t] == 0) | task.simulator.state.working).all()  # none that cannot be made
        covered += task.simulator.coverage / sub_steps
    nobody = (~record.present.any(-1)).sum(-1)  # then the coverage is 1, for which no turn is worth anything
    np.testing.assert_allclose(value + nobody, reward, atol=1e-5)
    found = compute_bound("clairvoyant", scenario, seeds, sub_steps, restarts=2, turn_cost=cost)
    np.testing.assert_allclose(found.rotation, task_rotation(scenario, seeds, turns), atol=1e-12)
    np.testing.assert_allclose(found.coverage, covered, atol=1e-12)
    assert (covered <= np.mean(most, -1) + 1e-12).all()


def task_rotation(scenario, seeds, turns):
    task = CoverageTask(scenario, len(seeds), seeds)
    rotation = []
    for t in range(turns.shape[1]):
        task.step(turns[:, t])
        rotation.append(task.simulator.rotation)
    return np.mean(rotation, 0)


def everything(scenario, seed, sub_steps):
    """Coverage and rotation of every sequence of turns there is, (sequences,)."""
    n = scenario.num_sensors
    turns = np.array(list(itertools.product(range(3), repeat=n * sub_steps))).reshape(-1, sub_steps, n)
    simulator = Simulator(scenario, len(turns), [seed] * len(turns), num_threads=1)
    coverage = rotation = 0.0
    for t in range(sub_steps):
        simulator.step(turns[:, t])
        coverage, rotation = coverage + simulator.coverage / sub_steps, rotation + simulator.rotation / sub_steps
    return coverage, rotation


LIVELY = Scenario(
    num_sensors=1, num_targets=4, walk="bounce", wander=60, time_step=2, field_of_view=40, sensing_range=1200,
    whole_numbers=False,
)  # fmt: skip


@pytest.mark.parametrize("turn", [20.0, 50.0, 47.3, 120.0, 180.0])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"failure_rate": 0.2, "recovery_rate": 0.5, "leave_rate": 0.1},
        {"pan_limits": [(-60, 75)]},
        {"pan_limits": [(170, 470)], "failure_rate": 0.2, "recovery_rate": 0.5},
    ],
)
@pytest.mark.parametrize("cost", [0.0, 0.2])
def test_one_sensor_does_the_best_of_all_sequences(turn, changes, cost):
    scenario = LIVELY.replace(turn_angle=turn, **changes)
    for seed in range(4):
        coverage, rotation = everything(scenario, seed, 7)
        worth = np.round(coverage - cost * rotation, 9)
        found = compute_bound("clairvoyant", scenario, [seed], 7, restarts=1, turn_cost=cost)
        assert found.coverage[0] - cost * found.rotation[0] == pytest.approx(worth.max())
        assert found.rotation[0] == pytest.approx(rotation[worth == worth.max()].min())  # of equals the fewest turns


def test_turns_to_the_limits_are_those_that_the_simulator_makes():
    """The long way round too, in any number of sub-steps, and with a limit that a whole number of turns reaches."""
    scenario = Scenario(
        num_sensors=3, num_targets=3, turn_angle=(5, 0.1, 7.3), pan_limits=[(0, 300), (89.7, 90), (-30, 41)],
        sensor_headings=(290, 90, 40), extra_move_every=0,
    )  # fmt: skip
    seeds, record = [0, 1], references._record(scenario, [0, 1], 90)
    turns, value = references._foreseen_turns(scenario, seeds, record, 3, 0.0)
    simulator, turned = Simulator(scenario, 2, seeds), np.zeros(2)
    for t in range(90):
        before = simulator.state.heading.copy()
        simulator.step(turns[:, t])
        np.testing.assert_array_equal(simulator.state.heading != before, turns[:, t] != 0)  # none is stopped
        turned += (turns[:, t] != 0).sum(-1)
    assert (turned > 3).all()
    coverage, _ = references._replay(scenario, seeds, turns)
    np.testing.assert_allclose(value, coverage.sum(-1), atol=1e-4)


def test_several_sensors_come_close_to_the_best_of_all_sequences():
    scenario = LIVELY.replace(num_sensors=2, turn_angle=(40, 30))
    gaps = []
    for seed in range(12):
        found = compute_bound("clairvoyant", scenario, [seed], 4, restarts=10).coverage[0]
        gaps.append(everything(scenario, seed, 4)[0].max() - found)
    assert min(gaps) > -1e-12
    assert np.mean(np.abs(gaps) < 1e-12) > 0.8


def test_no_sensor_alone_finds_a_better_sequence():
    scenario, sub_steps = LIVELY.replace(num_sensors=2, turn_angle=(40, 30)), 5
    alone = np.array(list(itertools.product(range(3), repeat=sub_steps)))  # (243, T)
    for seed in range(8):
        record = references._record(scenario, [seed], sub_steps)
        found = references._foreseen_turns(scenario, [seed], record, 1, 0.0)[0]
        covered = references._replay(scenario, [seed], found)[0].mean()
        for i in range(2):
            turns = found.repeat(len(alone), 0)
            turns[:, :, i] = alone
            coverage, _ = references._replay(scenario, [seed] * len(alone), turns)
            assert coverage.mean(-1).max() == pytest.approx(covered)


def test_of_two_ways_the_one_that_needs_fewer_turns_later_is_taken():
    # The first target is in view one turn to the left and one to the right, the second, later, one turn to the right.
    scenario = Scenario(num_sensors=1, num_targets=2, field_of_view=250, turn_angle=60)
    bearing = np.full((1, 4, 1, 2), np.nan)
    bearing[0, 0, 0, 0], bearing[0, 3, 0, 1] = 180, -126
    always = np.ones((1, 4, 2), bool)
    record = references._Record(bearing, None, always, always[..., :1], None, np.zeros((1, 1)), np.ones(1))
    turns, value = references._foreseen_turns(scenario, [0], record, 1, 0.0)
    assert turns[0, :, 0].tolist() == [2, 0, 0, 0]
    assert value[0] == pytest.approx(1.0, abs=1e-5)


def test_the_clairvoyant_stands_between_the_planner_and_free_turning():
    seeds, sub_steps = [10**7, 10**7 + 5, 10**7 + 11], 300
    progress = []
    free = compute_bound("free turning", "hit-mac", seeds, sub_steps, progress.append)
    clairvoyant = compute_bound("clairvoyant", "hit-mac", seeds, sub_steps, progress.append)
    assert progress == [3, 3]
    agent = scripted_agent("planner", CoverageTask("hit-mac").scenario)
    task = CoverageTask("hit-mac", 3, seeds, features=agent.features)
    planner = 0.0
    for _ in range(sub_steps):
        task.step(agent.predict(task.observe())[0])
        planner += task.simulator.coverage / sub_steps
    assert (planner < clairvoyant.coverage).all()
    assert (clairvoyant.coverage < free.coverage).all()
    assert (clairvoyant.sub_step_coverage <= free.sub_step_coverage + 1e-12).all()
    assert np.isnan(free.rotation).all()
    assert ((clairvoyant.rotation > 0.05) & (clairvoyant.rotation < 0.3)).all()
    for found in (free, clairvoyant):
        assert found.sub_step_coverage.shape == (sub_steps,)
        assert found.sub_step_coverage.mean() == pytest.approx(found.coverage.mean())


@pytest.mark.parametrize("name", bounds_of(ONE))
def test_an_episode_is_the_same_in_any_company(name, monkeypatch):
    together = compute_bound(name, "random", [3, 4, 5, 6, 7], 30)
    monkeypatch.setattr(references, "_EPISODES_AT_ONCE", 2)
    progress = []
    parts = compute_bound(name, "random", [3, 4, 5, 6, 7], 30, progress.append)
    assert progress == [2, 2, 1]
    for one, other in zip(vars(together).values(), vars(parts).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    alone = compute_bound(name, "random", [5], 30)
    assert alone.coverage[0] == together.coverage[2]
    np.testing.assert_array_equal(alone.rotation, together.rotation[2:3])


def test_where_there_is_nothing_to_gain_nobody_turns():
    for scenario in (
        ONE.replace(num_sensors=3, field_of_view=360, sensing_range=4000),
        ONE.replace(num_sensors=3, leave_rate=1),  # no target is left
    ):
        assert compute_bound("free turning", scenario, [0, 1], 5).coverage.tolist() == [1, 1]
        found = compute_bound("clairvoyant", scenario, [0, 1], 5, restarts=2)
        assert (found.coverage.tolist(), found.rotation.tolist()) == ([1, 1], [0, 0])
    assert references._views(ONE.replace(field_of_view=360)).tolist() == [np.inf]  # exactly behind as well
    blind = ONE.replace(failure_rate=1)
    assert compute_bound("free turning", blind, [0], 5).coverage.tolist() == [0]
    assert compute_bound("clairvoyant", blind, [0], 5).coverage.tolist() == [0]


def test_many_targets():
    scenario = LIVELY.replace(num_sensors=2, num_targets=70, field_of_view=120)  # more than bits of a word
    free, clairvoyant = (compute_bound(name, scenario, [0], 20) for name in bounds_of(scenario))
    assert 0.2 < clairvoyant.coverage[0] <= free.coverage[0] < 0.9
    _, value = references._foreseen_turns(scenario, [0], references._record(scenario, [0], 20), 8, 0.0)
    assert value[0] / 20 == pytest.approx(clairvoyant.coverage[0], abs=1e-6)
    for size in (0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
        with np.errstate(over="ignore"):  # compiled, a product that is too large wraps
            assert popcount.py_func(np.uint64(size)) == size.bit_count()


@pytest.mark.parametrize(("turn", "count"), [(5, 72), (50, 36), (180, 2), (47.3, 201), (0.1, 201), (7.2, 50)])
def test_different_headings(turn, count):
    assert references._different_headings(turn, 100) == count


@pytest.mark.parametrize("name", bounds_of(ONE))
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((ONE.replace(walk="evade"), [0], 5), "walk is 'evade'"),
        ((ONE.replace(zoom=(30, 120)), [0], 5), "zoom is on"),
        ((ONE, [-1], 5), "seed is -1"),
        (("nowhere", [0], 5), "unknown scenario 'nowhere'"),
    ],
)
def test_what_has_no_reference(name, arguments, says):
    with pytest.raises(ValueError, match=says):
        compute_bound(name, *arguments)


def test_bad_options():
    for options, says in [({"every": 0}, "every is 0"), ({"reach": 0}, "reach is 0"), ({"reach": 1.5}, "reach is 1.5")]:
        with pytest.raises(ValueError, match=says):
            ExactAgent(ONE, **options)
