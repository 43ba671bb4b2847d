"""Walls and discs in the way of views: against the simulator's own line of sight, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.planning.planner import BeliefPlannerAgent
from hitmac.agents.tracking import ParticleTracker
from hitmac.agents.tracking.sight import DIRECTIONS, Sight, certain_view, turned_views
from hitmac.envs import Scenario, Simulator
from hitmac.envs.tasks import CoverageTask

PLACE = st.floats(-95, 95)
HALL = Scenario(
    num_sensors=1, num_targets=2, arena=100, walk="still", extra_move_every=0, sensing_range=300, field_of_view=60,
    turn_angle=20, placement="fixed", sensor_positions=[(0, 0)], walls=[(20, -50, 20, 50)], whole_numbers=False,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    walls=st.lists(st.tuples(PLACE, PLACE, PLACE, PLACE), max_size=3),
    discs=st.lists(st.tuples(PLACE, PLACE, st.floats(1, 30)), max_size=2),
    sensor=st.tuples(PLACE, PLACE),
    seed=st.integers(0, 999),
)
def test_what_is_clear_is_what_the_simulator_sees(walls, discs, sensor, seed):
    scenario = Scenario(
        num_sensors=1, num_targets=100, arena=100, field_of_view=360, sensing_range=300, walls=walls, discs=discs,
        placement="fixed", sensor_positions=[sensor], whole_numbers=False,
    )  # fmt: skip
    simulator, targets = Simulator(scenario, 1, 0), np.random.default_rng(seed).uniform(-100, 100, (1, 100, 2))
    simulator.place(sensor_position=[[sensor]], heading=[[0]], target_position=targets)
    clear = Sight(scenario).clear(*np.array(sensor).reshape(2, 1, 1))
    if not walls and not discs:
        assert clear.shape == (1, 1, 0)
        return
    offset = targets[0] - sensor
    away = np.hypot(*offset.T)
    k = ((np.degrees(np.arctan2(offset[:, 1], offset[:, 0])) + 180) / 360 * DIRECTIONS).astype(int)
    # At the edge of a shadow the direction, or the distance along a wall, decides.
    beside = np.sqrt(clear[0, 0][np.stack((k - 1, k, k + 1)) % DIRECTIONS])
    sure = (np.sign(beside - away) == np.sign(beside[1] - away)).all(0) & (abs(beside[1] - away) > 0.01)
    assert ((away < beside[1]) == simulator.state.visible[0, 0])[sure].all()
    assert sure.mean() > 0.8


def test_each_scene_has_its_own_discs():
    discs = np.random.default_rng(0).uniform((-90, -90, 5), (90, 90, 30), (3, 4, 3))
    x, y = np.array([[0.0, 50], [0, 50], [10, 20]]), np.array([[0.0, -50], [0, -50], [-10, 70]])
    of_scenes = Sight(HALL)
    for _ in range(2):
        clear = of_scenes.clear(x, y, discs)
        for b in range(3):
            alone = Sight(HALL.replace(discs=[tuple(disc) for disc in discs[b]])).clear(x[b : b + 1], y[b : b + 1])
            np.testing.assert_array_equal(clear[b], alone[0])


def test_a_look_at_a_wall_is_no_evidence_of_what_is_behind():
    tracker = ParticleTracker(HALL, 1, particles=4000)
    tracker.look(np.array([[[0, 0, 1, 0, np.cos(np.radians(30)), 300**2, 1]]]), np.ones((1, 2), bool))
    x, y = np.moveaxis(tracker.positions[0, 0], -1, 0)
    in_view = abs(y) < np.tan(np.radians(30)) * x
    assert (tracker.weights[0, 0][in_view & (x < 20)] == 0).all()
    behind = in_view & (x > 20) & (x < 80)
    assert behind.any()
    assert (tracker.weights[0, 0][behind] > 0).all()


@pytest.mark.parametrize(("wall", "turn"), [((20, -50, 20, 50), 2), ((20, -50, 20, 10), 1)])
def test_a_camera_turns_to_the_target_that_no_wall_hides(wall, turn):
    """From its heading of 0 degrees the hidden targets are to the left, or the free ones; another is to the right."""
    scene = HALL.replace(walls=[wall], num_targets=3)
    agent = BeliefPlannerAgent(scene)
    task = CoverageTask(scene, 1, 0, features=agent.features)
    task.simulator.place(sensor_position=[[(0, 0)]], heading=[[0]], target_position=[[(50, 50), (55, 45), (15, -20)]])
    actions, _ = agent.predict(task.observe())
    assert actions.ravel().tolist() == [turn]


def test_views_turn_and_are_certain_within_the_error_of_the_heading():
    assert certain_view(np.array([90.0, 12.0, 360.0]), Scenario(heading_noise=5)).tolist() == [80, 6, 360]
    views = np.tile([1.0, 2.0, 0.6, 0.8, 0.5, 9.0, 1.0], (1, 2, 1))
    turned = turned_views(views, np.array([[90.0, -90.0]]))
    np.testing.assert_allclose(turned[0, :, 2:4], [(-0.8, 0.6), (0.8, -0.6)])
    np.testing.assert_array_equal(np.delete(turned, (2, 3), -1), np.delete(views, (2, 3), -1))
