"""Starts of episodes: placements of sensors, headings, discs."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator
from hitmac.envs.kernels.episode import PLACEMENTS


@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_placement_is_documented_and_puts_different_sensors_into_the_arena(name):
    line = PLACEMENTS[name].__doc__.splitlines()[0]
    assert line.endswith(".")
    assert len(line) > 8
    assert f"`{name}`" in Scenario.__doc__
    own = {
        "rails": {"rails": [[(-1250, 0), (1250, 0)]]},
        "fixed": {"sensor_positions": [(100 * k, -100) for k in range(4)]},
        "crossings": {"blocks": (3, 4)},
    }
    simulator = Simulator(Scenario(placement=name, **own.get(name, {})), 50, 0)
    places = simulator.state.sensor_position
    assert np.abs(places).max() <= simulator.scenario.arena
    assert all(len(np.unique(of_one, axis=0)) == 4 for of_one in places)
    different = len(np.unique(places.reshape(50, -1), axis=0))
    assert different == 1 if name == "fixed" else different > 25


def test_the_start_is_the_papers():
    simulator = Simulator("hit-mac", 2000, 0)
    state, scenario = simulator.state, simulator.scenario
    areas = np.array(scenario.sensor_areas[:4])
    x, y = state.sensor_position[..., :1], state.sensor_position[..., 1:]
    inside = (areas[:, 0] <= x) & (x <= areas[:, 1]) & (areas[:, 2] <= y) & (y <= areas[:, 3])  # (B, n, area)
    assert (inside.sum(1) == 1).all()  # every area holds one sensor
    dealt = inside.mean(0)  # (n, area)
    assert np.abs(dealt - 0.25).max() < 0.04  # any sensor gets any area
    for values, bound in ((state.target_position, 1000), (state.heading, 180), (state.goal, 1250)):
        assert (values % 1 == 0).all()
        assert np.abs(values).max() <= bound
        assert np.abs(values.mean()) < 0.04 * bound
        np.testing.assert_allclose(values.std(), bound / np.sqrt(3), rtol=0.03)
    assert state.speed.min() == 50
    assert state.speed.max() == 99


def test_sensors_may_start_facing_their_targets():
    simulator = Simulator(Scenario(start_heading="target", num_targets=2), 10, 0)
    offset = simulator.state.target_position[:, [0, 1, 0, 1]] - simulator.state.sensor_position
    np.testing.assert_allclose(simulator.state.heading, np.degrees(np.arctan2(offset[..., 1], offset[..., 0])))


@pytest.mark.parametrize("placement", ["areas", "grid"])
def test_rounded_places_of_sensors_are_inside_the_arena(placement):
    area = (-0.7, 0.7, -0.8, -0.6)
    small = Scenario(
        num_sensors=1, arena=(1.0, 0.8), whole_numbers=True, placement=placement, sensor_areas=[area], grid=3,
        spacing=0, sensing_range=1.0, target_area=area, disc_radius=(0.1, 0.2),
    )  # fmt: skip
    assert (np.abs(Simulator(small, 200, seed=0).state.sensor_position) <= small.extent).all()


def test_a_disc_without_room_is_left_out():
    simulator = Simulator(Scenario(num_sensors=1, random_discs=3, disc_radius=(1200, 1200)), 8, 0)
    assert (simulator.state.disc[..., 2] == 0).all()
    free = Simulator(Scenario(random_discs=3), 8, 0).state.disc[..., 2]
    assert ((free >= 25) & (free <= 100)).all()
