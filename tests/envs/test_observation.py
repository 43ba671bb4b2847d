import numpy as np
import pytest

from hitmac.envs import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES, Scenario, Simulator
from hitmac.envs.observation import Observer


def observed(simulator, *features):
    return Observer(simulator.scenario, features).observe(simulator)["pairs"]


def test_features_by_hand():
    scenario = Scenario(num_sensors=2, num_targets=3)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(
        sensor_position=[(0, 0), (100, 0)],
        heading=[90, 170],
        target_position=[(0, 400), (-600, 0), (100, -900)],
    )
    state = simulator.get_state()
    state["velocity"][0] = [(12, 0), (-60, 0), (0, -120)]
    simulator.set_state(state)
    features = dict(zip(FEATURES, np.moveaxis(observed(simulator, *FEATURES)[0], -1, 0), strict=True))
    expected = {
        "sensor_id": [[0, 0, 0], [0.5, 0.5, 0.5]],
        "target_id": [[0, 1 / 3, 2 / 3]] * 2,
        "distance": np.array([[400, 600, np.hypot(100, 900)], [np.hypot(100, 400), 700, 900]]) / 2000,
        "bearing": np.array(
            [
                [0, 90, np.degrees(np.arctan2(-900, 100)) - 90],
                [np.degrees(np.arctan2(400, -100)) - 170, 10, 100],
            ]
        )
        / 180,
        "in_range": [[1, 1, 0], [1, 1, 0]],
        "visible": [[1, 0, 0], [0, 1, 0]],  # the second sensor's first bearing is -66 degrees
        "others_seeing": [[0, 1, 0], [1, 0, 0]],
    }
    bearing = np.radians(expected["bearing"] * 180)
    expected |= {"bearing_sin": np.sin(bearing), "bearing_cos": np.cos(bearing)}
    away = np.array([[(0, 1), (-1, 0), (100, -900)], [(-100, 400), (-1, 0), (0, -1)]], float)
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    velocity = np.array([(12, 0), (-60, 0), (0, -120)]) / 120
    expected["radial_velocity"] = (away * velocity).sum(-1)
    expected["tangential_velocity"] = away[..., 0] * velocity[:, 1] - away[..., 1] * velocity[:, 0]
    expected["relative_distance"] = expected["distance"] * 2000 / 800
    expected["relative_bearing"] = expected["bearing"] * 180 / 45
    for name, values in expected.items():
        np.testing.assert_allclose(features[name], values, atol=1e-6, err_msg=name)


def test_relative_features_follow_each_sensors_range_and_view_within_their_bounds():
    scenario = Scenario(num_sensors=2, num_targets=1, sensing_range=(100, 600), field_of_view=(20, 360))
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0), (0, 0)], heading=[0, -30], target_position=[(0, 900)])
    values = observed(simulator, "relative_distance", "relative_bearing")[0, :, 0]
    np.testing.assert_allclose(values, [[4, 4], [1.5, 120 / 180]], atol=1e-6)
    simulator.place(heading=[135, 0], target_position=[(20, 0)])
    values = observed(simulator, "relative_distance", "relative_bearing")[0, :, 0]
    np.testing.assert_allclose(values, [[0.2, -4], [20 / 600, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("heading", "target", "degrees"), [(179, -179, 2), (-179, 179, -2), (725, 0, -5), (-900, 10, -170)]
)
def test_bearings_across_the_seam(heading, target, degrees):
    simulator = Simulator(Scenario(num_sensors=1, num_targets=1), 1, 0)
    place = 500 * np.cos(np.radians(target)), 500 * np.sin(np.radians(target))
    simulator.place(sensor_position=[(0, 0)], heading=[heading], target_position=[place])
    assert observed(simulator, "bearing").item() * 180 == pytest.approx(degrees, abs=1e-4)
    sine, cosine = observed(simulator, "bearing_sin", "bearing_cos").ravel()
    assert np.degrees(np.arctan2(sine, cosine)) == pytest.approx(degrees, abs=1e-4)


def test_a_target_on_the_sensor_gives_finite_numbers():
    simulator = Simulator(Scenario(num_sensors=1, num_targets=1), 1, 0)
    simulator.place(sensor_position=[(0, 0)], heading=[30], target_position=[(0, 0)])
    values = dict(zip(FEATURES, observed(simulator, *FEATURES).ravel(), strict=True))
    assert np.isfinite(list(values.values())).all()
    assert values["bearing"] * 180 == pytest.approx(-30, abs=1e-4)
    assert values["bearing_sin"] == pytest.approx(-0.5)


def test_the_order_is_the_callers_and_the_space_holds_it():
    simulator = Simulator("hit-mac", 200, 0)
    for _ in range(20):
        simulator.step(np.ones((200, 4), np.int64))
    everything = Observer(simulator.scenario, tuple(FEATURES))
    observation = everything.observe(simulator)
    assert all(everything.space.contains({k: v[b] for k, v in observation.items()}) for b in range(200))
    backwards = observed(simulator, *reversed(FEATURES))
    assert np.array_equal(backwards, observation["pairs"][..., ::-1])
    assert not np.shares_memory(everything.observe(simulator)["pairs"], observation["pairs"])


def test_unknown_features_are_named():
    scenario = Scenario()
    with pytest.raises(ValueError, match="unknown feature smell: known are sensor_id, target_id"):
        Observer(scenario, ("bearing", "smell"))
    with pytest.raises(ValueError, match="no feature given"):
        Observer(scenario, ())
    with pytest.raises(ValueError, match="name a feature twice"):
        Observer(scenario, ("bearing", "bearing"))
    assert set(DEFAULT_FEATURES) <= set(FEATURES)


@pytest.mark.parametrize("name", ["hitmac_coordinator_trajectories.npz", "hitmac_executor_trajectories.npz"])
def test_the_first_observations_of_the_released_program(trajectories, name):
    record = trajectories(name)
    simulator = Simulator("hit-mac", len(record["reward"]), 0)
    simulator.place(
        sensor_position=record["sensor_position"], heading=record["heading0"], target_position=record["target0"]
    )
    np.testing.assert_allclose(observed(simulator, *PAPER_FEATURES), record["obs0"], atol=1e-6)


def test_observations_and_coverage_after_recorded_decisions(trajectories):
    record = trajectories("hitmac_coordinator_trajectories.npz")
    simulator = Simulator("hit-mac", 101, 0)
    for episode in range(len(record["reward"])):
        simulator.place(
            sensor_position=np.broadcast_to(record["sensor_position"][episode], (101, 4, 2)),
            heading=record["headings"][episode, :, -1],
            target_position=record["target_moves"][episode, :, -1],
        )
        np.testing.assert_allclose(observed(simulator, *PAPER_FEATURES), record["obs"][episode], atol=1e-6)
        np.testing.assert_allclose(simulator.coverage, record["coverage"][episode])


def test_our_targets_walk_like_the_released_ones(trajectories):
    record = trajectories("hitmac_coordinator_trajectories.npz")
    moves = record["target_moves"].reshape(len(record["reward"]), -1, 5, 2)
    theirs = np.linalg.norm(np.diff(moves, axis=1), axis=-1).mean(1)  # (episode, target) mean length of a step
    simulator = Simulator(Scenario(extra_move_every=0), 200, 0)
    ours, before = [], simulator.state.target_position.copy()
    for _ in range(1000):
        simulator.step(np.zeros((200, 4), np.int64))
        ours.append(np.linalg.norm(simulator.state.target_position - before, axis=-1))
        before = simulator.state.target_position.copy()
    ours = np.mean(ours, 0)
    error = theirs.std() / np.sqrt(theirs.size)
    assert abs(ours.mean() - theirs.mean()) < 4 * error
