"""Geometry and walking, by hand."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator

ONE = Scenario(num_sensors=1, num_targets=1, extra_move_every=0)


def look(scenario, heading, target, sensor=(0, 0)):
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[sensor], heading=[heading], target_position=[target])
    return bool(simulator.state.visible[0, 0, 0])


def at(degrees, distance):
    return distance * np.cos(np.radians(degrees)), distance * np.sin(np.radians(degrees))


@pytest.mark.parametrize(
    ("heading", "target", "visible"),
    [
        (0, (500, 0), True),
        (0, (-500, 0), False),  # behind
        (0, (800, 0), True),  # the range is inclusive
        (0, (800.001, 0), False),
        (0, at(44.999, 500), True),
        (0, at(45.001, 500), False),
        (0, at(-44.999, 500), True),
        (0, at(-45.001, 500), False),
        (179, at(-179, 500), True),  # 2 degrees away, across the seam
        (-179, at(179, 500), True),
        (135, at(-179, 500), False),  # 46 degrees away, across the seam
        (720 + 90, (0, 500), True),  # headings may have any number of turns
    ],
)
def test_visibility(heading, target, visible):
    assert look(ONE, heading, target) is visible


def test_the_edge_of_the_view_is_not_seen():
    # 90 degrees to the left is on the edge of a half-plane view, and exact in floating point.
    assert not look(ONE.replace(field_of_view=180), 0, (0, 500))
    assert look(ONE.replace(field_of_view=180), 0, (1e-9, 500))

    simulator = Simulator(ONE.replace(walk="still"), 1, 0)
    for x, visible in ((300, False), (300.001, True)):
        simulator.place(sensor_position=[(0, 0)], heading=[0], target_position=[(x, 400)])
        simulator.state.cos_half_view[:] = 0.6  # 3, 4, 5: exact as well
        simulator.step(np.zeros((1, 1), int))
        assert simulator.state.visible.item() is visible


def test_wide_views():
    assert look(ONE.replace(field_of_view=270), 0, at(134.9, 500))
    assert not look(ONE.replace(field_of_view=270), 0, at(135.1, 500))
    assert look(ONE.replace(field_of_view=360), 0, (-500, 0))


def test_a_sensor_on_its_target():
    assert look(ONE.replace(field_of_view=360), 0, (0, 0)) is True
    # Its bearing is minus the heading, as atan2(0, 0) = 0 has it.
    assert look(ONE, 44, (0, 0)) is True
    assert look(ONE, 46, (0, 0)) is False


def test_coverage_counts_each_target_once():
    scenario = Scenario(num_sensors=2, num_targets=2, extra_move_every=0)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(
        sensor_position=[(0, 0), (10, 0)], heading=[0, 0], target_position=[(500, 0), (-500, 0)]
    )  # both see the first, none the second
    assert simulator.state.visible[0].tolist() == [[True, False], [True, False]]
    assert simulator.state.covered[0].tolist() == [True, False]
    assert simulator.coverage.tolist() == [0.5]


def test_turning():
    simulator = Simulator(Scenario(num_sensors=3), 1, 0)
    simulator.place(heading=[0, 178, -178])
    for _ in range(72):
        simulator.step(np.array([[0, 1, 2]]))
    np.testing.assert_allclose(simulator.state.heading[0], [0, 178 + 360, -178 - 360])
    radians = np.radians(simulator.state.heading[0])
    np.testing.assert_allclose(
        simulator.state.direction[0], np.stack([np.cos(radians), np.sin(radians)], -1), atol=1e-13
    )
    assert simulator.state.turned.tolist() == [2]
    assert simulator.rotation.tolist() == [2 / 3]


def walker(scenario, **state):
    simulator = Simulator(scenario, 1, 0)
    full = simulator.get_state()
    for name, value in state.items():
        full[name][...] = value
    simulator.set_state(full)
    return simulator


STAY = np.zeros((1, 1), np.int64)


def test_a_step_leads_towards_the_goal():
    calm = ONE.replace(speed_noise=0)
    simulator = walker(calm, target_position=(0, 0), goal=(300, 400), speed=80, moves=0, places=np.inf)
    simulator.step(STAY)
    np.testing.assert_allclose(simulator.state.target_position[0, 0], np.array([0.6, 0.8]) * 80 * 0.13)
    np.testing.assert_allclose(simulator.state.velocity[0, 0], [48, 64])
    assert simulator.state.goal[0, 0].tolist() == [300, 400]
    assert simulator.state.moves[0, 0] == 1


def test_noise_only_lengthens_a_step():
    steps = []
    for seed in range(200):
        simulator = walker(ONE, key=seed, target_position=(0, 0), goal=(300, 400), speed=80, moves=0, places=np.inf)
        simulator.step(STAY)
        steps.append(np.linalg.norm(simulator.state.target_position[0, 0]) / (80 * 0.13))
    assert 1 <= min(steps) < 1.02
    assert 1.18 < max(steps) < 1.2


@pytest.mark.parametrize(
    ("state", "new_goal"),
    [
        ({"goal": (4.9, 0)}, True),  # near the goal
        ({"goal": (5.1, 0)}, False),
        ({"places": (9.9, 0, np.inf, np.inf)}, True),  # near the last place
        ({"places": (np.inf, np.inf, 0, 9.9)}, True),  # near the one before
        ({"places": (10.1, 0, 0, 10.1)}, False),
        ({"moves": 100}, True),  # this is the 101st move
        ({"moves": 99}, False),
    ],
)
def test_when_a_target_takes_a_new_goal(state, new_goal):
    start = {"target_position": (0, 0), "goal": (300, 400), "speed": 80, "moves": 0, "places": np.inf}
    start |= state
    simulator = walker(ONE, **start)
    simulator.step(STAY)
    assert (simulator.state.goal[0, 0].tolist() != list(start["goal"])) is new_goal
    if new_goal:
        assert simulator.state.moves[0, 0] == 0
        assert 50 <= simulator.state.speed[0, 0] < 100
        assert simulator.state.speed[0, 0] % 1 == 0
        assert (simulator.state.goal % 1 == 0).all()
        assert (np.abs(simulator.state.goal) <= 1250).all()


def test_a_step_out_of_the_arena_is_drawn_anew():
    # The goal is 6 away and the step 13 long: it would end outside.
    simulator = walker(ONE, target_position=(1244, 0), goal=(1250, 0), speed=99, moves=0, places=np.inf)
    simulator.step(STAY)
    assert np.abs(simulator.state.target_position).max() <= 1250
    assert simulator.state.goal[0, 0].tolist() != [1250, 0]
    assert simulator.state.places[0, 0].tolist() == [1244, 0, 1244, 0]


def test_the_extra_move_comes_before_every_tenth_sub_step():
    simulator = walker(ONE.replace(extra_move_every=10), target_position=(0, 0), goal=(900, 900), moves=0, speed=80)
    moves = []
    for _ in range(21):
        before = int(simulator.state.moves[0, 0])
        simulator.step(STAY)
        moves.append(int(simulator.state.moves[0, 0]) - before)
    assert moves == [2] + [1] * 9 + [2] + [1] * 9 + [2]


def test_slow_targets_change_their_goals_all_the_time():
    # The paper's quirk: under about 77 a target never gets farther than 10 from its last places.
    simulator = Simulator("hit-mac", 200, 0)
    for _ in range(50):
        simulator.step(np.zeros((200, 4), np.int64))
    speed, moves = simulator.state.speed.ravel(), simulator.state.moves.ravel()
    assert moves[speed < 60].max() <= 1
    assert moves[speed > 80].mean() > 5


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
