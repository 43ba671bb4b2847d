"""Sight, by hand: range, view, obstacles and coverage."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator

ONE = Scenario(num_sensors=1, num_targets=1, extra_move_every=0, walk="still")


def sees(scenario, heading, target):
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0)], heading=[heading], target_position=[target])
    return simulator.state.visible.item()


def at(degrees, distance=500):
    return distance * np.cos(np.radians(degrees)), distance * np.sin(np.radians(degrees))


@pytest.mark.parametrize(
    ("view", "heading", "target", "visible"),
    [
        (90, 0, (500, 0), True),
        (90, 0, (-500, 0), False),  # behind
        (90, 0, (800, 0), True),  # the range is inclusive
        (90, 0, (800.001, 0), False),
        (90, 0, at(44.999), True),
        (90, 0, at(45.001), False),
        (90, 0, at(-44.999), True),
        (90, 0, at(-45.001), False),
        (90, 179, at(-179), True),  # 2 degrees away, across the seam
        (90, -179, at(179), True),
        (90, 135, at(-179), False),  # 46 degrees away, across the seam
        (90, 720 + 90, (0, 500), True),  # headings may have any number of turns
        (180, 0, (0, 500), False),  # the edge of the view, exact in floating point, is not seen
        (180, 0, (1e-9, 500), True),
        (270, 0, at(134.9), True),
        (270, 0, at(135.1), False),
        (360, 0, (-500, 0), True),
        (360, 0, (0, 0), True),  # on the sensor: its bearing is minus the heading, since atan2(0, 0) = 0
        (90, 44, (0, 0), True),
        (90, 46, (0, 0), False),
    ],
)
def test_visibility(view, heading, target, visible):
    assert sees(ONE.replace(field_of_view=view), heading, target) is visible


@pytest.mark.parametrize(
    ("obstacle", "visible"),
    [
        ({"discs": [(250, 0, 50)]}, False),  # in between
        ({"discs": [(250, 50, 50)]}, True),  # touches the line of sight
        ({"discs": [(250, 49.999, 50)]}, False),
        ({"discs": [(250, -50.001, 50)]}, True),
        ({"discs": [(600, 0, 50)]}, True),  # behind the target
        ({"discs": [(-100, 0, 50)]}, True),  # behind the sensor
        ({"discs": [(530, 0, 40)]}, False),  # over the target
        ({"discs": [(10, 0, 40)]}, False),  # over the sensor
        ({"walls": [(250, -10, 250, 10)]}, False),  # across
        ({"walls": [(250, 10, 250, -10)]}, False),
        ({"walls": [(200, 10, 300, -20)]}, False),  # aslant
        ({"walls": [(250, 1, 250, 10)]}, True),  # beside
        ({"walls": [(250, 0, 250, 10)]}, False),  # its end touches the line of sight
        ({"walls": [(600, -10, 600, 10)]}, True),  # behind the target
        ({"walls": [(-10, -10, -10, 10)]}, True),  # behind the sensor
        ({"walls": [(100, 5, 400, 5)]}, True),  # parallel
    ],
)
def test_obstacles_block_the_sight(obstacle, visible):
    assert sees(ONE.replace(**obstacle), 0, (500, 0)) is visible


def test_every_sensor_has_its_own_view_range_and_turn():
    scenario = ONE.replace(
        num_sensors=3, field_of_view=(90, 20, 90), sensing_range=(800, 800, 300), turn_angle=(5, 1, 30)
    )
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0)] * 3, heading=[-30] * 3, target_position=[(500, 0)])
    assert simulator.state.visible[0, :, 0].tolist() == [True, False, False]
    simulator.step(np.array([[1, 1, 2]]))
    np.testing.assert_allclose(simulator.state.heading[0], [-25, -29, -60])
    for _ in range(20):
        simulator.step(np.array([[0, 1, 0]]))
    assert simulator.state.visible[0, :, 0].tolist() == [True, True, False]
