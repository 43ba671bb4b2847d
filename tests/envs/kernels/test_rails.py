"""Sensors on rails, rectangular arenas, and the courts, by hand and against recordings."""

import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hitmac import envs
from hitmac.envs import Scenario, Simulator
from hitmac.envs.kernels.rails import make_rails, point_on
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoverageTask

COURTS = [f"{court}-{n}" for court in ("volleyball", "basketball", "football") for n in (6, 4)]
RECORDINGS = Path(__file__).parents[4] / "shared" / "reference" / "courts_trajectories.npz"
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


def test_a_sensor_moves_round_and_round_a_closed_rail():
    simulator = Simulator(ONE, 1, 0)
    simulator.place(along=[190])
    assert simulator.state.sensor_position[0].tolist() == [[90, 100]]
    assert move(simulator, 1) == ([220], [[100, 80]])
    assert move(simulator, 0) == ([220], [[100, 80]])
    simulator.place(along=[10])
    assert move(simulator, 2) == ([780], [[-100, 80]])
    assert move(simulator, 1) == ([10], [[-90, 100]])


def test_a_sensor_stops_at_the_ends_of_an_open_rail():
    simulator = Simulator(ONE.replace(rails=[OPEN]), 1, 0)
    simulator.place(along=[90])
    assert move(simulator, 1) == ([120], [[0, 20]])
    assert move(simulator, 1) == ([150], [[0, 50]])
    assert move(simulator, 1) == ([150], [[0, 50]])
    assert simulator.state.rail_direction[0].tolist() == [[0, 1]]
    simulator.place(along=[0])
    assert move(simulator, 2) == ([0], [[-100, 0]])


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


def test_a_failed_sensor_does_not_move():
    simulator = Simulator(ONE.replace(failure_rate=1.0, rail_starts=[50]), 1, 0)
    assert move(simulator, 1) == ([50], [[-50, 100]])


def test_starts_on_a_shared_rail_are_dealt_out_and_without_any_sensors_start_anywhere():
    scene = ONE.replace(num_sensors=3, rail_starts=[0, 100, 300, 700])
    places = Simulator(scene, 200, 0).state.along
    assert (np.sort(places, -1) == [0, 100, 300]).all()
    assert {tuple(row) for row in places.tolist()} == {
        (a, b, c) for a in (0, 100, 300) for b in (0, 100, 300) for c in (0, 100, 300) if len({a, b, c}) == 3
    }
    anywhere = Simulator(scene.replace(rail_starts=[]), 2000, 0).state.along
    assert 0 <= anywhere.min() < 5 < 795 < anywhere.max() <= 800
    assert abs(anywhere.mean() - 400) < 15


def test_a_sensor_may_zoom_and_move():
    scene = ONE.replace(zoom=[60, 120], rail_starts=[50])
    simulator = Simulator(scene, 1, 0)
    heading = simulator.state.heading[0, 0]
    simulator.step(np.array([[1, 1, 2]]))
    state = simulator.state
    assert (state.heading[0, 0], state.field_of_view[0, 0], state.along[0, 0]) == (heading + 5, 80, 20)
    simulator.step(np.array([[1]]))  # turns alone
    assert (state.heading[0, 0], state.field_of_view[0, 0], state.along[0, 0]) == (heading + 10, 80, 20)
    with pytest.raises(ValueError, match=r"shape \(1, 1\) or \(1, 3\)"):
        simulator.step(np.array([[1, 1]]))


def test_features_of_the_rail():
    observer = Observer(ONE, ("along", "rail_sin", "rail_cos", "sensor_x", "sensor_y"))
    simulator = Simulator(ONE, 1, 0)
    simulator.place(along=[300], heading=[0])  # (100, 0), down: to the right of the heading
    np.testing.assert_allclose(observer.observe(simulator)["pairs"][0, 0, 0], [0.375, -1, 0, 0.5, 0], atol=1e-7)
    fixed = Simulator("hit-mac", 1, 0)
    assert not Observer(fixed.scenario, ("along", "rail_sin", "rail_cos")).observe(fixed)["pairs"].any()


@pytest.mark.parametrize("name", ["volleyball-4", "football-6"])
def test_a_scene_on_rails_is_the_same_in_any_batch_and_after_copies(name):
    batch = Simulator(envs.load_scenario(name).replace(failure_rate=0.05, recovery_rate=0.5), 300, 5, num_threads=2)
    single = Simulator(batch.scenario, 1, 5 + 7)
    n = batch.scenario.num_sensors
    rng = np.random.default_rng(0)
    for _ in range(30):
        action = rng.integers(0, 3, (300, 2 * n))
        batch.step(action)
        single.step(action[7:8])
    copies = [batch.clone(), pickle.loads(pickle.dumps(batch)), Simulator(batch.scenario, 300, 9)]
    copies[2].set_state(batch.get_state())
    action = rng.integers(0, 3, (300, 2 * n))
    for simulator in (batch, *copies):
        simulator.step(action)
    single.step(action[7:8])
    for key, value in batch.get_state().items():
        np.testing.assert_array_equal(value[7:8], single.get_state()[key], err_msg=key)
        for copy in copies:
            np.testing.assert_array_equal(value, copy.get_state()[key], err_msg=key)


def test_a_state_off_the_rails_is_refused():
    court = Simulator("football-4", 2, 0)
    with pytest.raises(ValueError, match="'along' holds a number that is not from 0 to 6920"):
        court.set_state(court.get_state() | {"along": np.full((2, 4), 7000.0)})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rails": []}, "placement is 'rails'; it must be rails if and only if"),
        ({"placement": "random"}, "placement is 'random'; it must be rails if and only if"),
        ({"rails": [SQUARE] * 3}, "rails is .*; it must be empty, one rail, or one for each of the 1 sensors"),
        ({"rails": [[]]}, "lists of corners"),
        ({"rails": [[(0, 0), (0, 0)]]}, "lists of corners"),
        ({"rails": [[(0, 0), (0, 101)]]}, r"rails is .*; it must be inside the arena of \+-200 x \+-100"),
        ({"rails": [[(0, 0, 1)]]}, r"rails holds .*; it must be \[x, y\]"),
        ({"rail_starts": [801]}, "rail_starts is .*; it must be at most the lengths of the rails"),
        ({"num_sensors": 2, "rail_starts": [1]}, "rail_starts is"),
        ({"rail_step": 0}, "rail_step is 0"),
        ({"arena": (1, 2, 3)}, "arena is .*; it must be one number, or"),
        ({"target_area": (-100, 100, -150, 150)}, r"target_area is .* inside the arena of \+-200 x \+-100"),
    ],
)
def test_wrong_rails_are_named(changes, says):
    with pytest.raises((ValueError, TypeError), match=says):
        ONE.replace(**changes)


def test_places_that_do_not_fit_are_named():
    court, fixed = Simulator("football-4", 1, 0), Simulator(ONE.replace(rails=[], placement="random"), 1, 0)
    with pytest.raises(ValueError, match="on rails, give along"):
        court.place(sensor_position=np.zeros((4, 2)))
    with pytest.raises(ValueError, match="along holds 7000; it must be from 0 to the length"):
        court.place(along=[0, 0, 7000, 0])
    with pytest.raises(ValueError, match="on no rails"):
        fixed.place(along=[0])
    with pytest.raises(ValueError, match=r"target_position holds 101; the arena is \+-200 x \+-100"):
        fixed.place(target_position=[(150, 101)])


@pytest.mark.parametrize("walk", ["goals", "random", "bounce", "evade"])
def test_targets_fill_a_rectangular_arena_and_stay_inside(walk):
    scene = Scenario(arena=(900, 300), target_area=(-900, 900, -300, 300), walk=walk, placement="random", time_step=1)
    simulator = Simulator(scene, 200, 0)
    places = []
    for _ in range(60):
        simulator.step(np.zeros((200, 4), np.int64))
        places.append(simulator.state.target_position.copy())
    most = np.abs(places).max((0, 1, 2))
    assert (most <= (900, 300)).all()
    assert (most > (850, 280)).all()
    observation = Observer(scene, ("sensor_x", "sensor_y", "distance", "spread")).observe(simulator)["pairs"]
    assert np.abs(observation[..., :2]).max() <= 1


def test_one_number_and_two_equal_numbers_are_the_same_arena():
    one, two = (Simulator(Scenario(arena=arena), 50, 3) for arena in (1250, (1250, 1250)))
    for _ in range(50):
        one.step(np.ones((50, 4), np.int64))
        two.step(np.ones((50, 4), np.int64))
    for key, value in one.get_state().items():
        np.testing.assert_array_equal(value, two.get_state()[key])


@pytest.mark.parametrize("name", COURTS)
def test_a_court(name):
    env = gymnasium.make("dsn/Coverage-v0", scenario=name)
    check_env(env.unwrapped, skip_render_check=True)
    scenario, (observation, _) = env.unwrapped.scenario, env.reset(seed=1)
    state = env.unwrapped.task.simulator.state
    assert sorted(state.along[0].tolist()) == list(scenario.rail_starts)
    assert observation["mask"].sum() == state.visible.any(1).sum() * scenario.num_sensors
    steps, ended = 0, False
    while not ended:
        *_, ended, _ = env.step(env.action_space.sample())
        steps += 1
    assert steps == 100


def test_the_length_of_an_episode_is_at_most_the_scenario_s():
    for shell in (
        envs.parallel_env(scenario="football-4"),
        gymnasium.make_vec("dsn/Coverage-v0", 2, scenario="football-4"),
    ):
        assert shell.max_episode_steps == 100
    short = envs.parallel_env(scenario="football-4", max_episode_steps=7)
    assert short.max_episode_steps == 7
    assert envs.parallel_env("Coordinator", scenario="football-4").max_episode_steps == 10


@pytest.fixture(scope="module")
def recordings():
    if not RECORDINGS.is_file():
        pytest.skip(f"needs the recordings {RECORDINGS.name}, which are not part of the package")
    return np.load(RECORDINGS)


@pytest.mark.parametrize(("recorded", "name"), [("Basketball_B", "basketball-4"), ("Football_A", "football-6")])
def test_the_courts_are_those_of_the_published_program(recordings, recorded, name):
    """Given its actions and the tracks of its targets, cameras, visibility and rewards are its own."""
    camera, along, target, visible, action, reward = (
        recordings[f"{recorded}/{part}"] for part in ("camera", "along", "target", "visible", "action", "reward")
    )
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
def test_the_targets_of_the_courts_walk_as_those_of_the_published_program(recordings, recorded, name):
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

    theirs, lengths = statistics(recordings[f"{recorded}/target"])
    ours, own_lengths = statistics(np.stack(tracks, 1))
    error = theirs.std(0) / np.sqrt(len(theirs))
    assert (np.abs(theirs.mean(0) - ours.mean(0)) < 4 * error).all(), (theirs.mean(0), ours.mean(0), error)
    assert abs(lengths.max() - own_lengths.max()) < 0.3
    assert abs(lengths.min() - own_lengths.min()) < 0.4
