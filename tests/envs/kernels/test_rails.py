"""Sensors on rails, with fixed positions and with pan limits, by hand; the courts against recordings."""

import itertools

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator
from hitmac.envs.observation import Observer
from hitmac.envs.parts.rails import make_rails, point_on
from hitmac.envs.tasks import CoverageTask, ExecutorTask

COURTS = "courts_trajectories.npz"
SQUARE = [(-100, 100), (100, 100), (100, -100), (-100, -100), (-100, 100)]  # clockwise from the upper left corner
OPEN = [(-100, 0), (0, 0), (0, 50)]
ONE = Scenario(
    num_sensors=1, num_targets=1, arena=(200, 100), target_area=(-200, 200, -100, 100), rails=[SQUARE], rail_step=30,
    placement="rails", extra_move_every=0,
)  # fmt: skip


def move(simulator, *moves):
    """Advance with turns 0 and the given moves of all sensors."""
    action = np.zeros((simulator.num_envs, 2 * len(moves)), np.int64)
    action[:, len(moves) :] = moves
    simulator.step(action)
    return simulator.state.along[0].tolist(), simulator.state.sensor_position[0].tolist()


def test_a_sensor_moves_round_a_closed_rail():
    simulator = Simulator(ONE, 1, 0)
    simulator.place(along=[190])
    assert simulator.state.sensor_position[0].tolist() == [[90, 100]]
    assert move(simulator, 1) == ([220], [[100, 80]])
    assert move(simulator, 0) == ([220], [[100, 80]])
    simulator.place(along=[10])
    assert move(simulator, 2) == ([780], [[-100, 80]])
    assert move(simulator, 1) == ([10], [[-90, 100]])


def test_a_sensor_stops_at_the_ends_of_an_open_rail_and_when_it_fails():
    simulator = Simulator(ONE.replace(rails=[OPEN]), 1, 0)
    simulator.place(along=[90])
    assert move(simulator, 1) == ([120], [[0, 20]])
    assert move(simulator, 1) == ([150], [[0, 50]])
    assert move(simulator, 1) == ([150], [[0, 50]])
    assert simulator.state.rail_direction[0].tolist() == [[0, 1]]
    simulator.place(along=[0])
    assert move(simulator, 2) == ([0], [[-100, 0]])
    assert move(Simulator(ONE.replace(failure_rate=1.0, rail_starts=[50]), 1, 0), 1) == ([50], [[-50, 100]])


def test_every_sensor_can_have_its_own_rail_and_one_corner_is_a_fixed_place():
    scene = ONE.replace(num_sensors=3, rails=[SQUARE, OPEN, [(7, 8)]], rail_starts=[200, 30, 0])
    simulator = Simulator(scene, 5, 0)
    assert (simulator.state.sensor_position == [[100, 100], [-70, 0], [7, 8]]).all()
    assert move(simulator, 1, 2, 1) == ([230, 0, 0], [[100, 70], [-100, 0], [7, 8]])


def test_corners_too_close_to_tell_apart_are_one():
    close = [(0.0, 0.0), (300.0, 0.0), (300.0, 1e-14), (300.0, 0.0)]
    rails = make_rails([close, [(5.0, 5.0), (5.0, 5.0)]])
    assert rails.length.tolist() == [300, 0]
    for along in (0.0, 150.0, 300.0):
        assert point_on.py_func(rails, 0, along) == (along, 0, 1, 0)
    assert point_on.py_func(rails, 1, 0.0) == (5, 5, 0, 0)


def test_starts_on_a_shared_rail_are_dealt_out_and_without_any_sensors_start_anywhere():
    scene = ONE.replace(num_sensors=3, rail_starts=[0, 100, 300, 700])
    places = Simulator(scene, 200, 0).state.along
    assert {tuple(row) for row in places.tolist()} == set(itertools.permutations((0, 100, 300)))
    anywhere = Simulator(scene.replace(rail_starts=[]), 2000, 0).state.along
    assert 0 <= anywhere.min() < 5 < 795 < anywhere.max() <= 800
    assert abs(anywhere.mean() - 400) < 15


def test_a_sensor_may_zoom_and_move():
    simulator = Simulator(ONE.replace(zoom=[60, 120], rail_starts=[50]), 1, 0)
    state, start = simulator.state, simulator.state.heading.item()
    for action, reached in (([1, 1, 2], (start + 5, 80, 20)), ([1], (start + 10, 80, 20))):  # the last turns alone
        simulator.step(np.array([action]))
        assert (state.heading.item(), state.field_of_view.item(), state.along.item()) == reached
    with pytest.raises(ValueError, match=r"shape \(1, 1\) or \(1, 3\)"):
        simulator.step(np.array([[1, 1]]))


def test_features_of_the_rail():
    observer = Observer(ONE, ("along", "rail_sin", "rail_cos", "sensor_x", "sensor_y"))
    simulator = Simulator(ONE, 1, 0)
    simulator.place(along=[300], heading=[0])  # (100, 0), down: to the right of the heading
    np.testing.assert_allclose(observer.observe(simulator)["pairs"][0, 0, 0], [0.375, -1, 0, 0.5, 0], atol=1e-7)
    fixed = Simulator("hit-mac", 1, 0)
    assert not Observer(fixed.scenario, ("along", "rail_sin", "rail_cos")).observe(fixed)["pairs"].any()


@pytest.mark.parametrize(("recorded", "name"), [("Basketball_B", "basketball-4"), ("Football_A", "football-6")])
def test_the_courts_are_those_of_the_published_program(recording, recorded, name):
    """Given its actions and the tracks of its targets, cameras, visibility and rewards are its own."""
    record, parts = recording(COURTS), ("camera", "along", "target", "visible", "action", "reward")
    camera, along, target, visible, action, reward = (record[f"{recorded}/{part}"] for part in parts)
    task = CoverageTask(name, len(camera), 0, turn_cost=0.0)
    start = {"along": along[:, 0], "heading": camera[:, 0, :, 2], "target_position": target[:, 0]}
    task.reset(options=start | {"target_tracks": target[:, 1:]})
    state, numbers = task.simulator.state, np.where(action == -1, 2, action).astype(np.int64)
    for t in range(camera.shape[1]):
        np.testing.assert_allclose(state.sensor_position, camera[:, t, :, :2], atol=1e-9)
        np.testing.assert_allclose(state.along, along[:, t], atol=1e-9)
        np.testing.assert_allclose((state.heading - camera[:, t, :, 2] + 180) % 360, 180, atol=1e-9)
        np.testing.assert_array_equal(state.visible, visible[:, t])
        if t < action.shape[1]:
            turns, moves = numbers[:, t, :, 0], numbers[:, t, :, 1]
            np.testing.assert_allclose(task.step(np.concatenate((turns, moves), 1)), reward[:, t], atol=1e-9)
    assert task.simulator.track_ended.all()


@pytest.mark.parametrize(("recorded", "name"), [("Basketball_B", "basketball-4"), ("Football_A", "football-6")])
def test_the_targets_of_the_courts_walk_as_those_of_the_published_program(recording, recorded, name):
    """Lengths of moves, how often the direction changes, and where targets are, from many more episodes of ours."""
    simulator = Simulator(name, 300, 9_200_000_000)
    tracks = [simulator.state.target_position.copy()]
    for _ in range(100):
        simulator.step(np.zeros((300, simulator.scenario.num_sensors), np.int64))
        tracks.append(simulator.state.target_position.copy())

    def statistics(track):  # (E, T, m, 2)
        steps = np.diff(track, axis=1)
        length = np.linalg.norm(steps, axis=-1)
        turned = (steps[:, 1:] * steps[:, :-1]).sum(-1) < 0.99 * length[:, 1:] * length[:, :-1]
        # Mean over the episode of each target, so that its standard error counts targets as independent.
        return np.stack((length.mean(1), turned.mean(1), np.abs(track).mean((1, 3)) / 100), -1).reshape(-1, 3), length

    theirs, lengths = statistics(recording(COURTS)[f"{recorded}/target"])
    ours, own_lengths = statistics(np.stack(tracks, 1))
    error = theirs.std(0) / np.sqrt(len(theirs))
    assert (np.abs(theirs.mean(0) - ours.mean(0)) < 4 * error).all(), (theirs.mean(0), ours.mean(0), error)
    assert abs(lengths.max() - own_lengths.max()) < 0.3
    assert abs(lengths.min() - own_lengths.min()) < 0.4


LEFT, RIGHT = 1, 2
SITE = Scenario(
    name="site", arena=(20, 10), num_sensors=3, num_targets=4, placement="fixed",
    sensor_positions=[(-20, -10), (20, -10), (0, 10)], sensing_range=(25, 30, 12), field_of_view=(60, 50, 120),
    turn_angle=(5, 3, 10), sensor_headings=[45, 135, -90], pan_limits=[(0, 90), (90, 180), (-180, 180)],
    min_speed=1, max_speed=2, extra_move_every=0,
)  # fmt: skip


def turned(simulator, *actions):
    simulator.step(np.tile(actions, (simulator.num_envs, 1)))
    return simulator.state.heading[0].tolist(), int(simulator.state.turned[0])


def test_a_turn_beyond_a_limit_is_a_stay_that_costs_nothing():
    simulator = Simulator(SITE.replace(sensor_headings=(83, 90, 0)), 2, 0)
    assert turned(simulator, LEFT, RIGHT, LEFT) == ([88, 90, 10], 2)
    direction = simulator.state.direction.copy()
    assert turned(simulator, LEFT, RIGHT, 0) == ([88, 90, 10], 0)  # 93 and 87 are beyond
    np.testing.assert_array_equal(simulator.state.direction, direction)
    assert turned(simulator, RIGHT, LEFT, RIGHT) == ([83, 93, 0], 3)
    assert simulator.rotation.tolist() == [1, 1]
    scene = SITE.replace(sensor_headings=(88, 90, 0))
    coverage = CoverageTask(scene, 1, 0, turn_cost=0.3)
    np.testing.assert_allclose(coverage.step(np.array([[LEFT, RIGHT, 0]])), coverage.simulator.coverage)
    tilting = scene.replace(tilt_limits=[(0, 90)], mount_height=1)  # as in the preset, for which kernels are compiled
    stopped, moved = (ExecutorTask(tilting, 1, 0, turn_cost=0.25) for _ in range(2))
    stopped.step(np.array([[LEFT, RIGHT, 0, 0, 0, 0]]))
    moved.step(np.zeros((1, 6), int))
    np.testing.assert_array_equal(stopped.sensor_rewards(), moved.sensor_rewards())


def test_a_turn_that_ends_at_a_limit_is_made_in_spite_of_rounding():
    scene = SITE.replace(turn_angle=0.1, sensor_headings=(0, 90, 0), pan_limits=[(0, 0.3), (89.7, 90), (-180, 180)])
    simulator = Simulator(scene, 1, 0)
    assert [turned(simulator, LEFT, RIGHT, 0)[1] for _ in range(4)] == [2, 2, 2, 0]


def test_headings_start_as_given_or_within_the_limits():
    simulator = Simulator(SITE, 3, 0)
    for _ in range(2):
        assert (simulator.state.sensor_position == SITE.sensor_positions).all()
        assert (simulator.state.heading == [45, 135, -90]).all()
        simulator.reset()
    free = SITE.replace(sensor_headings=(), pan_limits=[(170, 190), (-3.5, 4.25), (-180, 180)])
    for whole in (True, False):
        heading = Simulator(free.replace(whole_numbers=whole), 500, 0).state.heading
        assert 170 <= heading[:, 0].min() < 172
        assert 188 < heading[:, 0].max() <= 190
        assert -3.5 <= heading[:, 1].min() < heading[:, 1].max() <= 4.25
        assert heading[:, 2].min() < -170
    facing = Simulator(free.replace(start_heading="target"), 500, 0).state
    offset = facing.target_position[:, 0] - facing.sensor_position[:, 0]
    bearing = np.degrees(np.arctan2(offset[:, 1], offset[:, 0]))  # of targets in front: -90 to 90, so at an end
    np.testing.assert_allclose(facing.heading[:, 0], np.where(bearing > 0, 170, 190))
    beyond = SITE.replace(sensor_headings=(-315, 495, 270))
    assert beyond.sensor_headings[0] == -315
    np.testing.assert_array_equal(Simulator(beyond, 1, 0).state.heading[0], [45, 135, 270])
