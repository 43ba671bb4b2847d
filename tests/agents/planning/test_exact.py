"""The exact agent: by hand, and against enumeration."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.planning.exact import ExactAgent
from hitmac.envs import Scenario
from hitmac.envs.tasks import CoverageTask

STILL = {"walk": "still", "extra_move_every": 0}
ONE = Scenario(num_sensors=1, num_targets=1, **STILL)


def at(degrees, distance=500):
    return distance * np.cos(np.radians(degrees)), distance * np.sin(np.radians(degrees))


def plan(scenario, targets, sensors=((0, 0),), heading=(0,)):
    """The planned turns, of which the agent takes the first."""
    agent = ExactAgent(scenario)
    task = CoverageTask(scenario, 1, 0, features=agent.features)
    task.simulator.place(sensor_position=sensors, heading=heading, target_position=targets)
    shown = task.observe()
    turns = agent.plan(shown["pairs"], shown["mask"])[0]
    actions, _ = agent.predict(shown)
    assert actions[0, : len(turns)].tolist() == np.where(turns < 0, 2, np.sign(turns)).tolist()
    return turns.tolist()


def test_values_and_two_sensors_that_must_see_a_target():
    two = Scenario(num_sensors=2, num_targets=3, target_values=(1, 3, 1), **STILL)
    sensors, targets = [(0, 0), (10, 0)], [at(0), at(100), at(10)]
    for scenario, expected in ((two, ([0, 12], [12, 0])), (two.replace(seen_by=2), ([12, 12],))):
        assert plan(scenario, targets, sensors, (0, 0)) in expected


def test_it_turns_as_little_as_it_takes():
    for degrees, turns in ((0, 0), (44, 0), (47, 1), (64, 4), (-64, -4), (179, 27), (-179, -27)):
        assert plan(ONE, [at(degrees)]) == [turns]
        assert plan(ONE, [at(degrees, 900)]) == [0]  # out of range
    assert plan(ONE.replace(field_of_view=360), [(-500, 0)]) == [0]  # all round: exactly behind as well
    tilted = ONE.replace(tilt_limits=[(30, 30)], mount_height=100, vertical_view=20)  # from 119 to 275
    assert [plan(tilted, [at(64, away)]) for away in (110, 130)] == [[0], [4]]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 6))
def test_a_plan_is_that_of_enumeration(seed, n, m):
    """The most targets are covered, with as little turning as possible, of all combinations of turns.

    A sensor without a valid target, such as a failed one, stays.
    """
    rng = np.random.default_rng(seed)
    pairs = np.empty((1, n, m, 4), np.float32)
    pairs[..., 0] = rng.uniform(-1, 1, (n, m))
    pairs[..., 1] = rng.random((n, m)) < 0.7
    pairs[..., 2] = rng.choice([0.05, 0.2, 0.25, 0.7, 1.0], (n, 1))
    pairs[..., 3] = rng.choice([0.26, 0.4, 0.6], (n, 1))
    mask = (rng.random((1, n, m)) < 0.7).astype(np.int8)
    pairs[mask == 0] = 0.0
    bearing, between, view, turn = np.moveaxis(pairs[0].astype(float), -1, 0)

    def sees(i, turns):
        off = (180 * bearing[i] - turns * turn[i].max() * 180 + 180) % 360 - 180
        return ((np.abs(off) < 180 * view[i]) | (view[i] == 1)) & (between[i] == 1) & (mask[0, i] == 1)

    def worth(turns):
        seen = [sees(i, k) for i, k in enumerate(turns)]
        return np.any(seen, 0).sum(), -np.abs(turns).sum()

    most = [int(np.ceil(1 / turn[i].max())) if mask[0, i].any() else 0 for i in range(n)]  # half a circle
    headings = [range(-k, k + 1) for k in most]
    turns = ExactAgent(ONE).plan(pairs, mask)[0]  # not the scenario's numbers of sensors and targets
    assert worth(turns) == max(worth(each) for each in itertools.product(*headings))
