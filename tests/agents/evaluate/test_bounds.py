"""Bounds: by hand, against enumeration, and against what agents reach."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents import scripted_agent
from hitmac.agents.evaluate import bounds
from hitmac.agents.evaluate.bounds import bounds_of, compute_bound
from hitmac.envs import Scenario
from hitmac.envs.base.threads import ALONE
from hitmac.envs.parts.walks import WALKS
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import scenarios

ONE = Scenario(num_sensors=1, num_targets=1, walk="still", extra_move_every=0)
LIVELY = Scenario(
    num_sensors=1, num_targets=4, walk="bounce", wander=60, time_step=2, field_of_view=40, sensing_range=1200,
    whole_numbers=False,
)  # fmt: skip


def found(name, scenario, seeds, sub_steps):
    """Mean coverage (E,) of a bound, with 1 in sub-steps without targets, as in rewards; its rotation (E,)."""
    coverage, rotation = compute_bound(name, scenario, seeds, sub_steps)
    return np.nan_to_num(coverage, nan=1.0).mean(-1), rotation


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 7))  # often exactly at the edge of a view
def test_free_turning_is_that_of_enumeration(seed, n, m):
    rng = np.random.default_rng(seed)
    bearing, view = 10.0 * rng.integers(-18, 18, (n, m)), rng.choice([20.0, 90.0, 200.0, 350.0], n)
    bearing[rng.random((n, m)) < 0.3] = np.nan
    options = []
    for i in range(n):
        # What a sensor sees changes only where a target enters or leaves: one heading between any two such.
        edges = np.sort(np.concatenate((bearing[i] - view[i] / 2, bearing[i] + view[i] / 2)) % 360)
        edges = edges[~np.isnan(edges)]
        between = (edges + np.append(edges[1:], edges[:1] + 360)) / 2
        off = np.abs((bearing[i] - between[:, None] + 180) % 360 - 180)
        options.append([*(off < view[i] / 2), np.zeros(m, bool)])
    for value, seen_by in ((np.ones(m), 1), (rng.integers(0, 4, m) * 1.0, 1), (rng.integers(0, 4, m) * 1.0, min(n, 2))):
        most = max(value @ (np.sum(sets, 0) >= seen_by) for sets in itertools.product(*options))
        assert bounds._most_covered(bearing, value, view, seen_by) == most  # by integer programming
        if seen_by == 1:
            covered = np.zeros((1, 1))
            bounds.cover_freely(bearing[None, None], value[None, None], view, covered, ALONE)
            assert covered[0, 0] == most  # by a table


def bounded(scenario):
    """The scenario with what has no bounds left out, and with no target exactly on the edge of a view."""
    walk = "bounce" if WALKS[scenario.walk].reacts else scenario.walk
    fixed = {"rails": (), "placement": "grid"} if scenario.rails else {}
    return scenario.replace(zoom=(), tilt_limits=(), walk=walk, whole_numbers=False, **fixed)


@settings(deadline=None, max_examples=30)
@given(scenario=scenarios().map(bounded), seed=st.integers(0, 10**9))
def test_no_agent_beats_free_turning_and_the_foreseen_turns_are_worth_what_they_claim(scenario, seed):
    seeds, sub_steps = [seed, seed + 7], 12
    most, _ = compute_bound("free turning", scenario, seeds, sub_steps)
    agent = scripted_agent("planner", scenario)
    task = CoverageTask(scenario, 2, seeds, features=agent.features)
    for t in range(sub_steps):
        task.step(agent.predict(task.observe())[0])
        now = task.simulator.observed_coverage
        assert ((now <= most[:, t] + 1e-12) | np.isnan(now) & np.isnan(most[:, t])).all()
    record = bounds._record(scenario, seeds, sub_steps)
    turns, value = bounds._foreseen_turns(scenario, seeds, record)
    simulator = Simulator(scenario, 2, seeds)
    covered = rotation = 0.0
    for t in range(sub_steps):
        simulator.step(turns[:, t])
        assert ((turns[:, t] == 0) | simulator.state.working).all()  # none that cannot be made
        covered += simulator.coverage
        rotation += simulator.rotation
    nobody = (~record.value.any(-1)).sum(-1)  # then the coverage is 1, for which no turn is worth anything
    np.testing.assert_allclose(value + nobody, covered, atol=1e-5)
    for expected, one in zip(found("clairvoyant", scenario, seeds, sub_steps), (covered, rotation), strict=True):
        np.testing.assert_allclose(one / sub_steps, expected, atol=1e-12)


def everything(scenario, seed, sub_steps):
    """Coverage and rotation (2, T, sequences) of all sequences of actions."""
    width = len(scenario.decisions) * scenario.num_sensors
    actions = np.array(list(itertools.product(range(3), repeat=width * sub_steps))).reshape(-1, sub_steps, width)
    simulator = Simulator(scenario, len(actions), [seed] * len(actions), num_threads=1)
    steps = (simulator.step(actions[:, t]) for t in range(sub_steps))
    return np.swapaxes([(simulator.coverage, simulator.rotation) for _ in steps], 0, 1)


FAILING = {"failure_rate": 0.2, "recovery_rate": 0.5}
VALUED = {"zones": [[(0, 0), (900, 0), (900, 900), (0, 900)]], "zone_values": [6], "target_values": (0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("turn", "changes"),
    [
        (20.0, {}),
        (180.0, FAILING | {"leave_rate": 0.1}),
        (120.0, {"pan_limits": [(-60, 75)]}),
        (47.3, FAILING | {"pan_limits": [(170, 470)]}),
        (20.0, VALUED),
    ],
)
def test_one_sensor_does_the_best_of_all_sequences(turn, changes):
    scenario = LIVELY.replace(turn_angle=turn, **changes)
    for seed in range(4):
        coverage, rotation = everything(scenario, seed, 7).mean(1)
        worth = np.round(coverage, 9)
        best, turned = found("clairvoyant", scenario, [seed], 7)
        assert best[0] == pytest.approx(worth.max())
        assert turned[0] == pytest.approx(rotation[worth == worth.max()].min())  # of equals the fewest turns


def test_several_sensors_come_close_to_the_best_of_all_sequences():
    scenario, seeds = LIVELY.replace(num_sensors=2, turn_angle=(40, 30)), list(range(10))
    best = np.array([everything(scenario, seed, 4)[0].mean(0).max() for seed in seeds])
    gaps = best - found("clairvoyant", scenario, seeds, 4)[0]
    assert (gaps > -1e-12).all()
    assert (gaps < 1e-12).mean() > 0.8
    both = scenario.replace(seen_by=2)
    best = np.array([everything(both, seed, 4)[0].mean(0).max() for seed in seeds])
    assert 0.0 < (best - found("clairvoyant", both, seeds, 4)[0]).mean() + 1e-9 < 0.05
    assert best.mean() > 0.1


@pytest.mark.parametrize("name", bounds_of(ONE))
def test_an_episode_is_the_same_in_any_company(name, monkeypatch):
    together = compute_bound(name, "random", [3, 4, 5, 6, 7], 30)
    monkeypatch.setattr(bounds, "_EPISODES_AT_ONCE", 2)
    progress = []
    parts = compute_bound(name, "random", [3, 4, 5, 6, 7], 30, progress.append)
    assert progress == [2, 2, 1]
    for one, other in zip(together, parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"field_of_view": 360, "sensing_range": 4000}, 1.0),  # exactly behind as well
        ({"leave_rate": 1}, np.nan),  # no target is left
        ({"failure_rate": 1}, 0.0),
    ],
)
def test_where_there_is_nothing_to_gain_nobody_turns(changes, expected):
    scenario = ONE.replace(num_sensors=3, **changes)
    for name in bounds_of(ONE):
        coverage, rotation = compute_bound(name, scenario, [0, 1], 5)
        np.testing.assert_array_equal(coverage, np.full((2, 5), expected))
        np.testing.assert_array_equal(rotation, [0, 0] if name == "clairvoyant" else [np.nan, np.nan])


def test_with_motors_a_plan_of_turns_at_once_is_no_estimate():
    assert bounds_of(ONE.replace(turn_rates=[40.0, 80.0])) == ("free turning",)


def test_more_targets_than_bits_of_a_word():
    scenario = LIVELY.replace(num_sensors=2, num_targets=70, field_of_view=120)
    free, clairvoyant = (found(name, scenario, [0], 20)[0] for name in bounds_of(scenario))
    assert 0.2 < clairvoyant <= free < 0.9
    _, value = bounds._foreseen_turns(scenario, [0], bounds._record(scenario, [0], 20))
    assert value / 20 == pytest.approx(clairvoyant, abs=1e-6)


def test_scenes_without_bounds_are_refused():
    tilts = ONE.replace(tilt_limits=[(0, 90)], mount_height=1)
    refused = (
        (ONE.replace(walk="evade"), "walk is 'evade'"),
        (ONE.replace(zoom=(30, 120)), "zoom is on"),
        (tilts, "tilt is on"),
    )
    for scenario, says in refused:
        with pytest.raises(ValueError, match=says):
            compute_bound("free turning", scenario, [0], 5)


# --- on rails: within reach ---

SQUARE = [(-400, -400), (400, -400), (400, 400), (-400, 400), (-400, -400)]
RAILS = Scenario(
    num_sensors=1, num_targets=1, rails=[SQUARE], rail_step=150, placement="rails", sensing_range=450, field_of_view=50,
    turn_angle=35, extra_move_every=0, time_step=0.5, whole_numbers=False,
)  # fmt: skip


@pytest.mark.parametrize("rail_step", [150, 700, 2500])
@pytest.mark.parametrize("rails", [[SQUARE], [SQUARE[:3]], [SQUARE[:1]]])
def test_one_target_is_within_reach_if_any_sequence_of_actions_covers_it(rails, rail_step):
    scene, best = RAILS.replace(rails=rails, rail_step=rail_step), []
    for seed in range(12):
        best.append(everything(scene, seed, 3)[0].max(1).tolist())
        assert compute_bound("within reach", scene, [seed], 3)[0][0].tolist() == best[-1]
    assert len(set(map(tuple, best))) > 2


def test_a_motor_turns_no_slower_than_its_lowest_rate():
    scenes = RAILS.replace(turn_angle=1, turn_rates=(150, 150)), RAILS.replace(turn_angle=75)  # degrees in 0.5 s
    np.testing.assert_array_equal(*(compute_bound("within reach", scene, range(12), 3)[0] for scene in scenes))


def test_a_target_that_two_must_see_is_within_the_reach_of_both():
    scene = RAILS.replace(rails=[SQUARE[:3]], num_sensors=2, num_targets=3, rail_step=700, target_values=(1, 0, 5))
    one, two = (compute_bound("within reach", scene.replace(seen_by=k), range(12), 2)[0] for k in (1, 2))
    assert set(two.ravel()) | set(one.ravel()) == {0, 1 / 6, 5 / 6, 1}
    assert 0 < (two < one).mean() < (two <= one).mean() == 1
