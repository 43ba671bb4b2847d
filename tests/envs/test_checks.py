"""What a caller passes is checked before a kernel reads it, and every loop of a kernel ends."""

import numpy as np
import pytest

from hitmac.agents import scripted_agent
from hitmac.agents.tracking import ParticleTracker
from hitmac.envs import FEATURES, Scenario, Simulator, load_scenario
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoverageTask

HIT_MAC = load_scenario("hit-mac")
TINY = Scenario(
    arena=1.0, whole_numbers=False, num_sensors=1, sensing_range=2, disc_radius=(0.1, 0.2),
    target_area=(-1, 1, -1, 1), sensor_areas=((-1, 1, -1, 1),), min_speed=50, max_speed=100,
)  # fmt: skip


@pytest.mark.parametrize(
    "scenario",
    [
        TINY,
        HIT_MAC.replace(time_step=60),
        HIT_MAC.replace(speed_noise=1e6),
        HIT_MAC.replace(num_sensors=1, random_discs=2, disc_radius=(1200, 1200)),
        HIT_MAC.replace(random_discs=2, disc_radius=(600, 600)),
    ],
)
def test_an_extreme_scenario_ends_and_stays_within_its_arena(scenario):
    simulator, observer = Simulator(scenario, 40, 0), Observer(scenario, tuple(FEATURES))
    for _ in range(12):
        simulator.step(np.ones((40, scenario.num_sensors), np.int64))
        pairs = observer.observe(simulator)["pairs"]
        assert np.isfinite(pairs).all()
        assert (np.abs(simulator.state.target_position) <= scenario.extent).all()


def test_a_disc_without_room_is_left_out():
    simulator = Simulator(HIT_MAC.replace(num_sensors=1, random_discs=3, disc_radius=(1200, 1200)), 8, 0)
    assert (simulator.state.disc[..., 2] == 0).all()
    free = Simulator(HIT_MAC.replace(random_discs=3), 8, 0).state.disc[..., 2]
    assert ((free >= 25) & (free <= 100)).all()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("time", -5), ("heading", 1e12), ("target_position", 1251), ("sensor_position", 1e9), ("track_moves", 1),
        ("num_sensors", 5), ("along", 1),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_refused(name, number):
    simulator = Simulator("hit-mac", 2, 0)
    before = simulator.get_state()
    wrong = {**before, name: np.full_like(before[name], number)}
    with pytest.raises(ValueError, match=rf"state '{name}' holds a number that is not from"):
        simulator.set_state(wrong)
    assert all(np.array_equal(array, before[key]) for key, array in simulator.get_state().items())


@pytest.mark.parametrize("places", [{"heading": [[1, 2], [3]]}, {"heading": [1e12] * 4}, {"target_position": "x"}])
def test_places_that_cannot_be_are_refused(places):
    with pytest.raises(ValueError, match=rf"{next(iter(places))} "):
        Simulator("hit-mac", 1, 0).place(**places)


@pytest.fixture(scope="module")
def planning():
    agent = scripted_agent("planner-fast", "hit-mac")
    task = CoverageTask("hit-mac", 2, 0, features=agent.features)
    return agent, task.observe(), agent.predict(task.observe())[1]


@pytest.mark.parametrize(
    ("key", "change", "says"),
    [
        ("pairs", lambda array: array * np.nan, "pairs holds nan; every number must be finite"),
        ("pairs", lambda array: array.astype(str), "as floating-point numbers"),
        ("pairs", lambda array: array[:1], "mask is .* of shape"),
        ("mask", lambda array: array[..., :-1], "mask is .* of shape"),
        ("mask", lambda array: array.astype(object), "mask is object of shape"),
    ],
)
def test_a_planner_refuses_an_observation_that_cannot_be(planning, key, change, says):
    agent, observation, _ = planning
    with pytest.raises(ValueError, match=says):
        agent.predict({**observation, key: change(observation[key])})


def test_a_planner_refuses_starts_that_cannot_be(planning):
    agent, observation, state = planning
    with pytest.raises(ValueError, match="episode_start is int64 of shape"):
        agent.predict(observation, state, np.array([0, 10**9]))


def test_a_tracker_refuses_what_cannot_be():
    tracker = ParticleTracker("hit-mac", 2, particles=4)
    seen = np.ones((2, 5), np.bool_)
    for call, says in (
        (lambda: tracker.move(1.5), "moves has .* type float64; it must be .* int64"),
        (lambda: tracker.see(np.full((2, 5, 2), np.nan), seen), "position holds nan"),
        (
            lambda: tracker.see(np.zeros((2, 5, 2)), seen, deviation=-1.0),
            "deviation is -1.0; it must be 0 or more",
        ),
        (lambda: tracker.look(np.full((2, 4, 7), np.inf), seen), "views holds inf"),
        (lambda: tracker.map(0), "cells is 0; it must be a whole number, 1 or more"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    tracker.see(np.full((2, 5, 2), -1e9), seen)  # outside the arena
    assert np.allclose(tracker.map(4)[..., 0, 0], 1)


def test_headings_farther_than_any_agent_looks_take_no_memory():
    scenario = HIT_MAC.replace(turn_angle=1e-6)
    agent = scripted_agent("greedy", scenario)
    observation = CoverageTask(scenario, 1, 0, features=agent.features).observe()
    assert agent.predict(observation)[0].shape == (1, 4)
