"""Streets of a city: walls along them, sensors at crossings, targets that keep to them."""

import numpy as np

from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.parts.streets import make_streets

SMALL = load_scenario("city-12x30").replace(leave_rate=0.05, return_rate=0.3, extra_move_every=3, speed_noise=0.2)


def lines(scenario):
    """The middle lines of the streets along y and along x."""
    rows, columns = scenario.blocks
    width, half = scenario.street_width, scenario.arena
    return tuple(-half + width / 2 + np.arange(k + 1) * (2 * half - width) / k for k in (columns, rows))


def test_blocks_leave_streets_of_the_width():
    scenario = Scenario(arena=(50, 30), blocks=(2, 3), street_width=4, walls=[(0, 0, 1, 1)])
    walls = scenario.all_walls
    assert walls.shape == (1 + 4 * 6, 4)
    assert walls[0].tolist() == [0, 0, 1, 1]
    x, y = (np.unique(np.round(walls[1:][:, axis::2], 9)) for axis in range(2))
    assert x.tolist() == [-46, -18, -14, 14, 18, 46]
    assert y.tolist() == [-26, -2, 2, 26]
    low, high = np.minimum(walls[1:, :2], walls[1:, 2:]), np.maximum(walls[1:, :2], walls[1:, 2:])
    assert np.isclose((high - low).sum(-1).reshape(6, 4), [28, 24, 28, 24]).all()


def test_targets_keep_to_the_streets_turn_at_crossings_and_cameras_stand_at_them():
    simulator = Simulator(SMALL, 20, 0)
    for axis, line in enumerate(lines(SMALL)):
        assert (np.abs(simulator.state.sensor_position[..., [axis]] - line).min(-1) < 1e-9).all()
    assert all(len(np.unique(one.round(6), axis=0)) == 12 for one in simulator.state.sensor_position)
    turned, straight, before = 0, 0, True
    for _ in range(100):
        place, present = simulator.state.target_position.copy(), simulator.state.present.copy()
        on_x, on_y = (np.abs(place[..., [axis]] - line).min(-1) < 1e-9 for axis, line in enumerate(lines(SMALL)))
        assert (on_x | on_y).all()
        along_x = simulator.state.velocity[..., 0] != 0
        turned += (along_x != before).sum()
        straight += (along_x == before).sum()
        before = along_x
        simulator.step(np.zeros((20, 12), int))
        assert (np.linalg.norm(simulator.state.velocity, axis=-1) <= SMALL.top_speed * (1 + 1e-9)).all()
        if simulator.state.time[0] % 3 != 1:  # no extra move
            moved = (simulator.state.target_position - place) / SMALL.time_step
            there = simulator.state.present & present
            np.testing.assert_allclose(simulator.state.velocity[there], moved[there], atol=1e-9)
    assert 0.01 * straight < turned < straight


def test_all_streets_are_equally_likely_except_the_way_back():
    """From a crossing in the middle, three of four ways."""
    scenario = SMALL.replace(num_sensors=1, num_targets=1, leave_rate=0, extra_move_every=0, blocks=(2, 2))
    x, y, _ = make_streets(scenario)
    simulator = Simulator(scenario, 600, 1)
    state = simulator.get_state()
    state["target_position"][:] = (x[1] - 0.1, y[1])
    state["goal"][:] = (x[1], y[1])
    simulator.set_state(state)
    simulator.step(np.zeros((600, 1), int))
    ways = [tuple(goal) for goal in simulator.state.goal[:, 0].round(6)]
    counts = [ways.count(tuple(np.round(goal, 6))) for goal in ((x[2], y[1]), (x[1], y[2]), (x[1], y[0]))]
    assert sum(counts) == 600
    assert min(counts) > 150


def test_a_target_that_is_placed_in_a_block_goes_to_the_nearest_crossing():
    scenario = SMALL.replace(leave_rate=0, num_targets=1)
    x, y = lines(scenario)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(target_position=[(x[1] + 3, y[1] + 8)])
    for _ in range(60):
        simulator.step(np.zeros((1, 12), int))
    place = simulator.state.target_position[0, 0]
    assert min(np.abs(place[0] - x).min(), np.abs(place[1] - y).min()) < 1e-9


def test_a_larger_city_has_the_same_blocks_and_a_crossing_for_each_camera():
    small, large = load_scenario("city"), load_scenario("city-1000x1200")
    assert (large.num_sensors, large.num_targets, large.blocks) == (1000, 1200, (31, 31))
    for scenario in (small, large):
        np.testing.assert_allclose(np.diff(lines(scenario)[0]), 40)
        assert scenario.target_area[1] == scenario.arena
