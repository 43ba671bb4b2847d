"""Sensors that tilt: the edges of their views by hand, decisions, features and detections."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator
from hitmac.envs.observation import Observer
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.tasks import CoverageTask, ExecutorTask

ONE = Scenario(
    num_sensors=1, num_targets=1, arena=100, target_area=(-100, 100, -100, 100), sensing_range=60, field_of_view=60,
    walk="still", extra_move_every=0, tilt_limits=[(0, 80)], tilt_step=10, mount_height=4, vertical_view=30,
)  # fmt: skip
HERE = {"sensor_position": [(0, 0)], "heading": [0]}


def at(scenario, tilt, **places):
    """A scene whose sensor, at the origin, has this tilt."""
    scenario = scenario.replace(tilt_limits=[(tilt, tilt)])
    simulator = Simulator(scenario, 1, 0)
    simulator.place(**HERE, **places)
    return simulator


def edges(simulator):
    state = simulator.state
    return np.sqrt([state.near_squared[0, 0], state.range_squared[0, 0]]).tolist()


def test_edges_are_where_the_rays_meet_the_floor():
    """The rays 30 and 60 degrees below the horizon are sqrt(3) times the height away, and 1 / sqrt(3) times."""
    assert edges(at(ONE, 45)) == pytest.approx([4 / np.sqrt(3), 4 * np.sqrt(3)])
    assert edges(at(ONE, 15)) == pytest.approx([4 * np.sqrt(3), 60])  # up to the horizon: the range
    assert edges(at(ONE, 0)) == pytest.approx([4 / np.tan(np.radians(15)), 60])
    assert edges(at(ONE, 80)) == pytest.approx([0, 4 / np.tan(np.radians(65))], abs=1e-9)  # below its feet
    assert edges(at(ONE.replace(sensing_range=5), 45)) == pytest.approx([4 / np.sqrt(3), 5])


@pytest.mark.parametrize(("away", "seen"), [(2.3, 0), (2.32, 1), (6.9, 1), (6.95, 0)])
def test_a_target_is_seen_between_the_edges(away, seen):
    for bearing in (0, 29, 31):
        x, y = away * np.cos(np.radians(bearing)), away * np.sin(np.radians(bearing))
        simulator = at(ONE, 45, target_position=[(x, y)])
        assert simulator.state.visible.item() == (seen and bearing < 30)


def test_a_zoom_narrows_the_vertical_view_in_proportion():
    simulator = Simulator(ONE.replace(zoom=(20, 60), zoom_step=20, tilt_limits=[(45, 45)]), 1, 0)
    for _ in range(2):
        simulator.step(np.array([[0, 1, 0]]))
    assert simulator.state.field_of_view.item() == 20
    assert edges(simulator) == pytest.approx([4 / np.tan(np.radians(50)), 4 / np.tan(np.radians(40))])


def test_tilts_end_at_the_limits_and_count_as_turns_once():
    """Of four sensors one fails."""
    scenario = ONE.replace(num_sensors=4, placement="random", tilt_limits=[(40, 55), (50, 50), (0, 90), (0, 90)])
    task = CoverageTask(scenario, 1, 0, turn_cost=0.5)
    state = task.simulator.state
    assert state.tilt[0].tolist() == [47.5, 50, 45, 45]
    state.working[0, 3] = False
    coverage = task.simulator.coverage
    for tilts, after, turned in (([1] * 4, [55, 50, 55, 45], 2), ([1, 1, 2, 2], [55, 50, 45, 45], 1)):
        reward = task.step(np.array([[0] * 4 + tilts]))
        assert state.tilt[0].tolist() == after
        assert state.turned == turned == task.simulator.rotated.sum()
        coverage = task.simulator.coverage
        assert reward == pytest.approx(coverage - 0.5 * turned / 4)
        assert (task.difference_rewards() <= 1).all()
    task.step(np.array([[1] * 4 + [2] * 4]))  # those that turn and tilt
    assert state.turned == 3
    task.simulator.step(np.ones((1, 4), int))  # turns alone
    assert (state.turned, state.tilt[0].tolist()) == (3, [45, 50, 35, 45])


def test_the_executor_pays_for_tilts():
    rewards = []
    for tilt in (0, 1):
        task = ExecutorTask(ONE.replace(placement="fixed", sensor_positions=[(0, 0)]), 1, 0, turn_cost=0.25)
        task.reset(options=HERE | {"target_position": [(4, 0)]})
        rewards.append(task.step(np.array([[0, tilt]])).item())
    assert rewards[1] == pytest.approx(rewards[0] - 0.25)


@pytest.mark.parametrize("zoom", [(), (20, 60)])
def test_shares_of_a_step_are_commanded_beside_rates(zoom):
    scenario = ONE.replace(turn_rates=40, time_step=0.5, zoom=zoom)
    simulator = Simulator(scenario, 2, 0)
    start, field = simulator.state.heading.copy(), simulator.state.field_of_view.copy()
    simulator.step(np.array([[0.5, -0.25], [0.0, 3.0]]))
    assert simulator.state.tilt[:, 0].tolist() == [37.5, 50]
    np.testing.assert_allclose(simulator.state.heading - start, [[10], [0]], atol=1e-9)
    assert (simulator.state.field_of_view == field).all()
    if not zoom:
        task = CoverageTask(scenario.replace(action="rate"), 1, 0)
        assert task.action_space.shape == (2,)
        task.step(np.array([[0.0, 1.0]], np.float32))
        assert task.simulator.state.tilt.item() == 50


@pytest.mark.parametrize(
    ("away", "between", "beyond"), [(1, 0, 1 - 4 / np.sqrt(3)), (5, 1, 0), (10, 0, 10 - 4 * np.sqrt(3))]
)
def test_features_by_hand(away, between, beyond):
    scenario, names = ONE.replace(distance_scale=50), ("tilt", "between_edges", "beyond_edges", "in_range")
    simulator = at(scenario, 45, target_position=[(0, away)])
    expected = [0.5, between, beyond / 50, away < 4 * np.sqrt(3)]
    np.testing.assert_allclose(Observer(scenario, names).observe(simulator)["pairs"][0, 0, 0], expected, atol=1e-6)
    without = Simulator(scenario.replace(tilt_limits=()), 1, 0)
    without.place(**HERE, target_position=[(0, 70)])
    shown = Observer(without.scenario, names).observe(without)["pairs"][0, 0, 0]
    np.testing.assert_allclose(shown, [0, 0, 10 / 50, 0], atol=1e-6)


def test_detections_lie_between_the_edges_and_show_them():
    scenario = ONE.replace(identities=False, knowledge="shared", false_detections=5)
    simulator = at(scenario, 45, target_position=[(5, 0)])
    observer, near, far = DetectionObserver(scenario), 4 / np.sqrt(3), 4 * np.sqrt(3)
    for _ in range(20):
        shown = observer.observe(simulator)
        assert observer.space.contains({name: array[0] for name, array in shown.items()})
        np.testing.assert_allclose(shown["sensors"][0, 0, 5:], [far, 0, 45, near], rtol=1e-6)
        away = np.hypot(*shown["detections"][shown["mask"] != 0][:, :2].T)
        assert ((away > near - 1e-5) & (away < far + 1e-5)).all()
        simulator.step(np.array([[0, 0]]))
