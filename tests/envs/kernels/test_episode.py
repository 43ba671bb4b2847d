"""Starts of episodes: placements of sensors, headings, discs."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.parts.sensors import PLACEMENTS
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import assert_documented


@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_placement_is_documented_and_puts_different_sensors_into_the_arena(name):
    assert_documented(name, PLACEMENTS[name])
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


def test_areas_are_used_again_if_there_are_fewer_than_sensors():
    areas = [(-500, -400, 0, 100), (300, 400, 0, 100)]
    x = Simulator(Scenario(num_sensors=5, sensor_areas=areas), 200, 0).state.sensor_position[..., 0]
    assert ((x < 0).sum(1) == 3).all()  # the first holds three of the five, any of them
    assert (x < 0).mean(0).min() > 0.5
    assert load_scenario("hit-mac-9x2").num_sensors == 9


def test_sensors_may_start_facing_their_targets():
    simulator = Simulator(Scenario(start_heading="target", num_targets=2), 10, 0)
    offset = simulator.state.target_position[:, [0, 1, 0, 1]] - simulator.state.sensor_position
    np.testing.assert_allclose(simulator.state.heading, np.degrees(np.arctan2(offset[..., 1], offset[..., 0])))


@pytest.mark.parametrize("placement", ["areas", "grid"])
def test_rounded_places_of_sensors_are_inside_the_arena(placement):
    small = Scenario(
        num_sensors=1, arena=(1.0, 0.8), whole_numbers=True, placement=placement, sensor_areas=[(-0.7, 0.7, -0.8, -0.6)]
    )
    assert (np.abs(Simulator(small, 200, seed=0).state.sensor_position) <= small.extent).all()


def test_numbers_are_drawn_for_every_episode():
    task = CoverageTask("random", 3000, 0)
    state = task.simulator.state
    assert np.bincount(state.num_sensors, minlength=7)[2:].tolist() == pytest.approx([600] * 5, abs=80)
    assert np.bincount(state.num_targets, minlength=10)[2:].tolist() == pytest.approx([375] * 8, abs=80)
    sensors, targets = np.arange(6) < state.num_sensors[:, None], np.arange(9) < state.num_targets[:, None]
    np.testing.assert_array_equal(task.observe()["mask"], sensors[:, :, None] & targets[:, None])
    np.testing.assert_allclose(task.simulator.coverage, state.covered.sum(1) / state.num_targets)
    reward = task.step(np.ones((3000, 6), int))
    np.testing.assert_array_equal(state.turned, state.num_sensors)
    np.testing.assert_allclose(reward, task.simulator.coverage - 0.04)
    before = state.num_sensors.copy()
    task.reset()
    assert (state.num_sensors != before).mean() > 0.5


def test_sensors_keep_apart_and_out_of_discs():
    position = Simulator(load_scenario("random").replace(discs=[(0, 0, 500)]), 300, 0).state.sensor_position
    assert 500 < np.linalg.norm(position, axis=-1).min() < 510
    apart = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1) + 1e9 * np.eye(6)
    assert 400 <= apart.min() < 420
    assert 0.9 * 1250 < np.abs(position).max() <= 1250


def test_sensors_stand_in_cells_of_the_grid():
    position = Simulator("large", 100, 0).state.sensor_position
    cell = (position + 100) / 20 - 0.5
    np.testing.assert_allclose(cell, np.round(cell), atol=1e-9)
    number = (np.round(cell[..., 0]) * 10 + np.round(cell[..., 1])).astype(int)
    assert all(len(set(row)) == 50 for row in number)
    assert np.bincount(number.ravel(), minlength=100).tolist() == pytest.approx([50] * 100, abs=25)


def test_random_discs_lie_inside_and_over_no_sensor():
    state = Simulator("obstacles", 300, 0).state
    assert state.disc.shape == (300, 9, 3)
    radius = state.disc[..., 2]
    assert ((radius >= 25) & (radius <= 100)).all()
    assert (np.abs(state.disc[..., :2]) + radius[..., None] <= 1000).all()
    away = np.linalg.norm(state.disc[:, :, None, :2] - state.sensor_position[:, None], axis=-1)
    assert (away > radius[..., None]).all()
    without_room = Scenario(num_sensors=1, random_discs=3, disc_radius=(1200, 1200))
    assert (Simulator(without_room, 8, 0).state.disc[..., 2] == 0).all()
