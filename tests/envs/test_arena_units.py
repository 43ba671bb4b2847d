"""Scenarios in the user's own units: what is left out grows with the arena, and only what is in use is checked."""

import copy
import pickle

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator, load_scenario

METRES = Scenario(arena=42)
LENGTHS = {
    "sensing_range": 800, "rail_step": 10, "communication_range": 1000, "min_speed": 50, "max_speed": 100,
    "goal_radius": 5, "stuck_distance": 10, "distance_scale": 2000,
}  # fmt: skip


def test_lengths_speeds_and_areas_that_are_left_out_grow_with_the_arena():
    for name, value in LENGTHS.items():
        assert getattr(METRES, name) == pytest.approx(value * 42 / 1250), name
    assert METRES.target_area == pytest.approx((-33.6, 33.6, -33.6, 33.6))
    assert METRES.sensor_areas[2] == pytest.approx((-42, -25.2, -8.4, 8.4))
    assert METRES.disc_radius == pytest.approx((0.84, 3.36))
    assert not METRES.whole_numbers


def test_what_is_given_stays():
    given = {name: 3 * value for name, value in LENGTHS.items()} | {"whole_numbers": True, "disc_radius": (1, 2)}
    scenario = Scenario(arena=42, **given)
    for name, value in given.items():
        assert getattr(scenario, name) == value, name


def test_in_a_rectangle_lengths_follow_the_shorter_side_and_areas_both():
    court = Scenario(arena=(1250, 625))
    assert (court.sensing_range, court.max_speed) == (400, 50)
    assert court.target_area == (-1000, 1000, -500, 500)
    assert court.sensor_areas[0] == (250, 750, 125, 375)


def test_the_defaults_are_hit_mac_s_in_its_own_arena():
    assert Scenario(arena=1250) == Scenario() == load_scenario("hit-mac").replace(name="custom")
    assert Scenario().whole_numbers
    assert Scenario().sensor_areas[0] == (250, 750, 250, 750)


def test_defaults_are_set_once(tmp_path):
    METRES.save(tmp_path / "metres.yaml")
    for same in (
        load_scenario(tmp_path / "metres.yaml"), Scenario.from_dict(METRES.to_dict()), METRES.replace(name="custom"),
        copy.deepcopy(METRES), pickle.loads(pickle.dumps(METRES)),
    ):  # fmt: skip
        assert same == METRES
        assert hash(same) == hash(METRES)
    assert METRES.replace(arena=84).sensing_range == METRES.sensing_range  # kept, since a copy names every parameter


@pytest.mark.parametrize("arena", [1e-3, 0.1, 1.7, 42, 333.3, 1e6, (14, 7.5), (1e-3, 50)])
@pytest.mark.parametrize("placement", ["areas", "grid", "random"])
def test_an_arena_of_any_size_is_hit_mac_s_game(arena, placement):
    """The same coverage and the same share of turns as in HiT-MAC's arena, in other units."""
    scenario = Scenario(arena=arena, placement=placement, random_discs=1)
    simulator = Simulator(scenario, 200, 0)
    turned = simulator.state.target_position.copy()
    for _ in range(20):
        simulator.step(np.zeros((200, 4), np.int64))
    assert (np.abs(simulator.state.target_position) <= scenario.extent).all()
    assert (simulator.state.target_position != turned).all((1, 2)).mean() > 0.9
    if isinstance(arena, int | float):
        own = Simulator(Scenario(whole_numbers=False, placement=placement, random_discs=1), 200, 0)
        for _ in range(20):
            own.step(np.zeros((200, 4), np.int64))
        np.testing.assert_allclose(simulator.state.target_position / arena, own.state.target_position / 1250, atol=1e-6)
        assert simulator.coverage.mean() == pytest.approx(own.coverage.mean(), abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sensor_areas": [(0, 50, 0, 1)] * 4}, r"sensor_areas is .*50.*; it must be .* inside the arena of \+-42"),
        ({"target_area": (0, 50, 0, 1)}, r"target_area is .*50.*; it must be .* inside the arena of \+-42"),
        ({"random_discs": 1, "disc_radius": (25, 100)}, r"disc_radius is \[25.0, 100.0\]; .* at most the arena \(42\)"),
        ({"max_speed": 1.5}, r"max_speed is 1.5; it must be over min_speed \(1.68\)"),
        ({"sensing_range": None}, "sensing_range is None; it must be a finite number, over 0"),
    ],
)
def test_what_is_in_use_is_checked(changes, says):
    with pytest.raises((TypeError, ValueError), match=says):
        Scenario(arena=42, **changes)


@pytest.mark.parametrize(
    "changes", [{"disc_radius": (25, 100)}, {"placement": "grid", "sensor_areas": [(0, 750, 0, 1)]}, {"arena": 0.5}]
)
def test_what_is_not_in_use_is_not_checked(changes):
    Scenario(**{"arena": 42} | changes)
