"""Observations of the nearest targets, and neighbours of sensors."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hitmac.envs import FEATURES, Scenario, Simulator, load_scenario
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import TASKS, make_task
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

ALL = tuple(FEATURES)


def plain(simulator, dense, of_sensor, nearest, radius):
    """The specification, pair by pair: sorted by distance, then by index."""
    state, known = simulator.state, simulator.known
    sensor, valid = state.sensor_position, state.working[:, :, None] & simulator._known_targets
    scenes, n, m = valid.shape
    slots = min(nearest, m)
    pairs = np.zeros((scenes, n, slots, dense["pairs"].shape[-1]), np.float32)
    targets = np.full((scenes, n, slots), -1, np.int32)
    for b, i in itertools.product(range(scenes), range(n)):
        row = i if known is not None and known.known_position.shape[1] > 1 else 0
        place = state.target_position[b] if known is None else known.known_position[b, row]
        squared = [(x - sensor[b, i, 0]) ** 2 + (y - sensor[b, i, 1]) ** 2 for x, y in place]
        there = [j for j in range(m) if valid[b, i, j] and (radius is None or squared[j] <= radius**2)]
        taken = sorted(sorted(there, key=lambda j: (squared[j], j))[:slots])
        for slot, j in zip(taken if slots == m else range(slots), taken, strict=False):
            targets[b, i, slot] = j
            pairs[b, i, slot] = dense["pairs"][b, i, j]
        empty = np.ix_(targets[b, i] < 0, of_sensor)
        pairs[b, i][empty] = dense["pairs"][b, i, 0][of_sensor]
    return {"pairs": pairs, "mask": (targets >= 0).astype(np.int8), "targets": targets}


def plain_neighbours(state, most):
    scenes, n = state.working.shape
    lists = np.full((scenes, n, min(most, n)), -1, np.int32)
    for b, i in itertools.product(range(scenes), range(n)):
        away = ((state.sensor_position[b] - state.sensor_position[b, i]) ** 2).sum(-1)
        reach = np.sqrt(state.range_squared[b])
        near = [k for k in range(n) if k != i and away[k] <= (reach[k] + reach[i]) ** 2 and state.working[b, k]]
        taken = sorted([i, *sorted(near, key=lambda k: (away[k], k))][: lists.shape[-1]])
        lists[b, i, : len(taken)] = taken
    return lists


SCENES = {
    "hit-mac-6x9": {},
    "large-12x30": {},
    "obstacles": {},
    "mixed": {"position_noise": 5.0, "missed_detections": 0.2, "failure_rate": 0.1, "recovery_rate": 0.5},
    "random": {"knowledge": "own", "leave_rate": 0.05, "return_rate": 0.2},
    "volleyball-4": {"knowledge": "shared"},
    "large-7x20": {"knowledge": "neighbours", "communication_range": 50.0},
}


@pytest.mark.parametrize("name", SCENES)
def test_a_row_holds_the_nearest_targets_with_the_numbers_of_the_dense_row(name):
    scenario = load_scenario(name).replace(**SCENES[name])
    simulator, dense = Simulator(scenario, 3, 4), Observer(scenario, ALL)
    of_sensor = np.array([FEATURES[one].of_sensor for one in ALL])
    m, diagonal = scenario.num_targets, 2 * np.hypot(*scenario.extent)
    rng = np.random.default_rng(0)
    for _ in range(4):
        simulator.step(rng.integers(0, 3, (3, scenario.num_sensors)))
        everything = dense.observe(simulator)
        for nearest, radius in ((1, None), (4, None), (4, 0.1 * diagonal), (m, None), (m + 3, 0.2 * diagonal)):
            observer = Observer(scenario, ALL, nearest=nearest, radius=radius, neighbours=3)
            shown = observer.observe(simulator)
            expected = plain(simulator, everything, of_sensor, nearest, radius)
            if nearest >= m and radius is None:
                expected |= everything  # the arrays of the observation of all targets
            for key, array in expected.items():
                np.testing.assert_array_equal(shown[key], array, err_msg=f"{key} {nearest} {radius}")
                assert shown[key].dtype == array.dtype
            np.testing.assert_array_equal(shown["neighbours"], plain_neighbours(simulator.state, 3))
            assert observer.space.contains({key: array[0] for key, array in shown.items()})


def test_ties_go_to_the_lower_index_and_empty_slots_follow():
    scenario = Scenario(num_sensors=1, num_targets=5, walk="still", extra_move_every=0)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0)], target_position=[(300, 0), (0, 200), (-200, 0), (200, 0), (0, -200)])
    assert Observer(scenario, nearest=3).observe(simulator)["targets"].tolist() == [[[1, 2, 3]]]
    assert Observer(scenario, nearest=3, radius=200).observe(simulator)["targets"].tolist() == [[[1, 2, 3]]]
    assert Observer(scenario, nearest=4, radius=199.9).observe(simulator)["mask"].tolist() == [[[0] * 4]]
    simulator.place(target_position=[(300, 0), (np.nan, np.nan), (-200, 0), (200, 0), (0, 900)])
    shown = Observer(scenario, nearest=4, radius=400).observe(simulator)
    assert shown["targets"].tolist() == [[[0, 2, 3, -1]]]
    assert shown["mask"].tolist() == [[[1, 1, 1, 0]]]
    assert not shown["pairs"][0, 0, 3].any()


def test_neighbours_are_within_both_ranges_and_work():
    scenario = Scenario(num_sensors=4, num_targets=1, sensing_range=(100, 200, 50, 100))
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0), (300, 0), (0, 151), (450, 0)])
    lists = Observer(scenario, nearest=1, neighbours=9).observe(simulator)["neighbours"]
    assert lists.tolist() == [[[0, 1, -1, -1], [0, 1, 3, -1], [2, -1, -1, -1], [1, 3, -1, -1]]]
    state = simulator.get_state()
    state["working"][0, 1] = False
    simulator.set_state(state)
    lists = Observer(scenario, nearest=1, neighbours=2).observe(simulator)["neighbours"]
    assert lists.tolist() == [[[0, -1], [1, 3], [2, -1], [3, -1]]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nearest": 0}, "nearest is 0; it must be a whole number, 1 or more"),
        ({"nearest": True}, "nearest is True"),
        ({"nearest": 2.0}, "nearest is 2.0"),
        ({"nearest": 2, "neighbours": 0}, "neighbours is 0; it must be a whole number, 1 or more"),
        ({"nearest": 2, "radius": 0}, "radius is 0; it must be a finite number over 0"),
        ({"nearest": 2, "radius": np.inf}, "radius is inf; it must be"),
        ({"nearest": 2, "radius": np.nan}, "radius is nan; it must be"),
        ({"radius": 5.0}, "radius is 5.0; it needs nearest"),
        ({"neighbours": 5}, "neighbours is 5; it needs nearest"),
        ({"nearest": 2, "features": lambda scenario: Observer(scenario)}, "nearest is 2; it must be None where"),
    ],
)
def test_options_out_of_range_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        make_task("Coverage", **options)


@pytest.mark.parametrize("task", TASKS)
def test_every_shell_takes_the_options(task):
    options = {"scenario": "hit-mac-4x7", "nearest": 3, "radius": 1500.0, "neighbours": 2}
    single = gymnasium.make(f"dsn/{task}-v0", **options)
    check_env(single.unwrapped)
    batch = gymnasium.make_vec(f"dsn/{task}-v0", num_envs=2, **options)
    alone, _ = single.reset(seed=6)
    both, _ = batch.reset(seed=5)
    assert set(alone) == {"pairs", "mask", "targets", "neighbours"}
    assert batch.observation_space.contains(both)
    rows = DirectionalSensorVecEnv(task, 2, **options)
    rows.seed(5)
    stacked = rows.reset()
    own = stacked["targets"] if task != "Executor" else stacked["targets"].reshape(2, 4, 3)
    for _ in range(3):
        for key, array in alone.items():
            np.testing.assert_array_equal(both[key][1], array)
        np.testing.assert_array_equal(own[1], alone["targets"])
        action = single.action_space.sample()
        alone, *_ = single.step(action)
        both, *_ = batch.step(np.stack([action, action]))
        rowed = np.tile(action, (2, 1)).reshape(rows.num_envs, -1) if task == "Executor" else np.tile(action, (2, 1))
        stacked = rows.step(rowed.squeeze(-1) if task == "Executor" else rowed)[0]
        own = stacked["targets"].reshape(own.shape)


def test_goals_carry_the_index_of_their_target():
    task = make_task("Executor", "hit-mac-executor-3x6", 2, 0, nearest=4, padding="masked")
    for _ in range(10):
        task.step(np.ones((2, 3), int))
    shown, nearby = task.observe(), task.observer.observe(task.simulator)
    for b, i in itertools.product(range(2), range(3)):
        goals = [j for j in nearby["targets"][b, i] if j >= 0 and task.assigned[b, i, j]]
        assert shown["targets"][b, i].tolist() == goals + [-1] * (4 - len(goals))
        assert shown["mask"][b, i].tolist() == [1] * len(goals) + [0] * (4 - len(goals))
