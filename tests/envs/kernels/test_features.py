"""Observation features: by hand, within their ranges, and velocities as differences of observed places."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hitmac.envs import FEATURES, Scenario, Simulator
from hitmac.envs.observation import Observer
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.tasks import TASKS, CoordinatorTask
from tests.envs.scenes import scenarios

PLACES = ("bearing_sin", "bearing_cos", "distance")
VELOCITIES = ("radial_velocity", "tangential_velocity")
ONE = Scenario(num_sensors=1, num_targets=1, extra_move_every=0, walk="still")
NOISY = Scenario(
    position_noise=8, whole_numbers=False, failure_rate=0.1, recovery_rate=0.3, leave_rate=0.1, return_rate=0.3
)


def stay(simulator):
    return np.zeros((simulator.num_envs, simulator.scenario.num_sensors), np.int64)


def observed(simulator, *features):
    return Observer(simulator.scenario, features).observe(simulator)["pairs"]


def test_features_by_hand():
    scenario = Scenario(num_sensors=2, num_targets=3)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(
        sensor_position=[(0, 0), (100, 0)], heading=[90, 170], target_position=[(0, 400), (-600, 0), (100, -900)]
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
            [[0, 90, np.degrees(np.arctan2(-900, 100)) - 90], [np.degrees(np.arctan2(400, -100)) - 170, 10, 100]]
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
    simulator.place(heading=[135, 722], target_position=[(20, 0)])
    values = observed(simulator, "relative_distance", "relative_bearing")[0, :, 0]
    np.testing.assert_allclose(values, [[0.2, -4], [20 / 600, -2 / 180]], atol=1e-6)


def test_the_line_of_sight_is_free_at_any_range_and_turns_stay_within_pan_limits():
    scenario = Scenario(
        num_sensors=2, num_targets=6, walls=[(100, -50, 100, 50)], discs=[(0, 200, 50)], field_of_view=60,
        sensing_range=500, pan_limits=[(-30, 30), (170, 190)],
    )  # fmt: skip
    simulator = Simulator(scenario, 1, 0)
    near, far = (400 * np.exp(1j * np.radians(degrees)) for degrees in (59, 61))  # the first sensor turns to 30 + 30
    targets = [(200, 0), (0, 300), (near.real, near.imag), (far.real, far.imag), (-600, 0), (-250, 200)]
    simulator.place(sensor_position=[(0, 0), (300, 0)], heading=[0, 180], target_position=targets)
    in_sight, seen = np.moveaxis(observed(simulator, "in_sight", "seen_if_turned")[0], -1, 0).tolist()
    assert in_sight == [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1]]  # behind wall or disc
    assert seen == [[0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]  # the last is out of the second sensor's range
    free = Simulator(scenario.replace(walls=(), discs=(), pan_limits=()), 1, 0)
    free.place(sensor_position=[(0, 0), (300, 0)], target_position=targets)
    in_sight, seen, in_range = np.moveaxis(observed(free, "in_sight", "seen_if_turned", "in_range"), -1, 0)
    assert in_sight.all()
    np.testing.assert_array_equal(seen, in_range)


def test_a_target_on_the_sensor_lies_east():
    simulator = Simulator(Scenario(num_sensors=1, num_targets=1), 1, 0)
    simulator.place(sensor_position=[(0, 0)], heading=[30], target_position=[(0, 0)])
    values = dict(zip(FEATURES, observed(simulator, *FEATURES).ravel(), strict=True))
    assert np.isfinite(list(values.values())).all()
    assert values["bearing"] * 180 == pytest.approx(-30, abs=1e-4)
    assert values["bearing_sin"] == pytest.approx(-0.5)


class Looking:
    """An executor that turns no sensor and keeps what it is shown, in the order of the scenes."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.shown = {"pairs": observation["pairs"][..., :-1].reshape(6, 4, 5, 5)}  # without the assignment
        self.shown["mask"] = observation["mask"].reshape(6, 4, 5)
        return np.zeros(24, int), None


@pytest.mark.parametrize(("name", "every"), [("goals", 1), ("random", 0), ("bounce", 3), ("tracks", 1)])
def test_a_velocity_observed_is_the_difference_of_places_observed(name, every):
    """At every look, also those of an executor between an extra move and the next."""
    scenario = NOISY.replace(walk="still" if name == "tracks" else name, extra_move_every=every)
    looking, features = Looking(), PLACES + VELOCITIES
    options = {"features": features, "executor_features": features, "padding": "unfiltered", "decision": 1}
    task = CoordinatorTask(scenario, 6, 0, executor=looking, **options)
    if name == "tracks":
        steps = np.random.default_rng(0).uniform(-8, 8, (60, 5, 2))
        task.reset(options={"target_position": np.zeros((5, 2)), "target_moves": steps.cumsum(0)})
    looks = [task.observe()]
    for step in range(24):
        task.step(np.ones((6, 20), int))
        extra = bool(every) and step % every == 0
        if not extra:
            np.testing.assert_equal(looking.shown, looks[-1])
        looks += [looking.shown] * extra + [task.observe()]

    checked = 0
    for before, now in itertools.pairwise(looks):
        there = (before["mask"] & now["mask"]) != 0
        (old_sin, old_cos, old_distance, *_), (sin, cos, distance, radial, tangential) = (
            np.moveaxis(look["pairs"][there].astype(np.float64), -1, 0) for look in (before, now)
        )
        per_speed = scenario.distance_scale / scenario.time_step / scenario.top_speed
        ahead = (distance * cos - old_distance * old_cos) * per_speed  # in the sensor's frame, which does not turn
        aside = (distance * sin - old_distance * old_sin) * per_speed
        np.testing.assert_allclose(radial, ahead * cos + aside * sin, atol=1e-4)
        np.testing.assert_allclose(tangential, aside * cos - ahead * sin, atol=1e-4)
        checked += there.sum()
    assert checked > 500
    clear = Observer(scenario.replace(position_noise=0), VELOCITIES).observe(task.simulator)["pairs"][there]
    assert np.abs(clear - np.stack([radial, tangential], -1)).std() > 0.2  # it errs


@pytest.mark.parametrize("walk", ["goals", "bounce"])
def test_the_velocity_observed_before_the_first_move_is_zero(walk):
    simulator = Simulator(NOISY.replace(walk=walk), 3, 0)
    observer = Observer(simulator.scenario, VELOCITIES)
    there = simulator.valid_pairs
    assert not observer.observe(simulator)["pairs"].any()
    simulator.step(stay(simulator))
    assert observer.observe(simulator)["pairs"][there & simulator.valid_pairs].all()
    simulator.reset(mask=np.array([True, False, True]))
    shown = observer.observe(simulator)["pairs"]
    assert shown[1].any()
    assert not shown[[0, 2]].any()
    simulator.place(target_position=np.zeros((5, 2)))
    assert not observer.observe(simulator)["pairs"].any()


@pytest.mark.parametrize("speed", [60, 119.99, 121, 9000])
def test_velocities_over_the_top_speed_are_shown_at_the_bound(speed):
    simulator = Simulator(ONE.replace(time_step=0.1), 1, 0)
    for direction in np.array([(1, 0), (0, -1)]):
        track = np.array([300, 0]) + 0.1 * speed * direction
        options = {"sensor_position": [(0, 0)], "heading": [0], "target_position": [(300, 0)]}
        simulator.reset(options={**options, "target_tracks": [[track]]})
        simulator.step(stay(simulator))
        np.testing.assert_allclose(simulator.state.velocity[0, 0], speed * direction, rtol=1e-9)
        sight = track / np.linalg.norm(track)
        exact = speed / 120 * np.array([direction @ sight, sight[0] * direction[1] - sight[1] * direction[0]])
        np.testing.assert_allclose(observed(simulator, *VELOCITIES).ravel(), np.clip(exact, -1, 1), atol=1e-6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scenarios(rails=False, tilts=False),
    st.sampled_from([task for task in TASKS.values() if task.team == "sensors"]),
    st.sampled_from([1, 0.1, 0.001]),
)
def test_observations_lie_in_their_space_on_tracks_of_any_speed(scenario, make, share):
    rng = np.random.default_rng(0)
    tracks = share * rng.uniform(-1, 1, (3, 30, scenario.num_targets, 2)) * scenario.extent
    task = make(scenario, 3, 0, features=tuple(FEATURES))
    task.reset(options={"target_tracks": tracks})
    for _ in range(24 // task.sub_steps + 1):
        shown = task.observe()
        assert all(task.observation_space.contains({k: v[b] for k, v in shown.items()}) for b in range(3))
        task.step(rng.integers(0, 2, (3, *task.action_space.shape)))


def test_positions_are_observed_with_noise():
    noisy = Scenario(position_noise=30, walk="still")
    features = ("distance", "bearing_sin", "bearing_cos")
    clear, observer = Observer(noisy.replace(position_noise=0), features), Observer(noisy, features)
    simulator = Simulator(noisy, 3000, 0)
    one = observer.observe(simulator)["pairs"]
    np.testing.assert_array_equal(one, observer.observe(simulator)["pairs"])  # looking twice shows the same

    def offsets(pairs):
        return pairs[..., :1].astype(np.float64) * 2000 * pairs[..., 1:]

    errors = offsets(one) - offsets(clear.observe(simulator)["pairs"])
    assert np.abs(errors.mean((0, 1, 2))).max() < 0.5
    np.testing.assert_allclose(errors.std((0, 1, 2)), 30, rtol=0.02)
    assert abs(np.corrcoef(errors[..., 0].ravel(), errors[..., 1].ravel())[0, 1]) < 0.02
    np.testing.assert_equal(simulator.get_state(), Simulator(noisy.replace(position_noise=0), 3000, 0).get_state())
    simulator.step(stay(simulator))
    later = offsets(observer.observe(simulator)["pairs"]) - offsets(clear.observe(simulator)["pairs"])
    # In directions that have turned by no more than rounding errors the new errors are independent of the old.
    assert abs(np.corrcoef(errors[..., 0].ravel(), later[..., 0].ravel())[0, 1]) < 0.02


def test_headings_are_observed_with_noise():
    noisy = Scenario(heading_noise=4, walk="still")
    observer = Observer(noisy, ("heading_sin", "heading_cos", "bearing_sin", "bearing_cos"))
    simulator = Simulator(noisy, 2000, 0)
    one = observer.observe(simulator)["pairs"].astype(np.float64)
    np.testing.assert_array_equal(one, observer.observe(simulator)["pairs"])  # looking twice shows the same
    c, s = np.moveaxis(simulator.state.direction, -1, 0)
    sin, cos = np.moveaxis(one[:, :, 0, :2], -1, 0)
    errors = np.degrees(np.arctan2(c * sin - s * cos, c * cos + s * sin))
    assert abs(errors.mean()) < 0.2
    assert errors.std() == pytest.approx(4, rel=0.03)
    assert np.abs(np.corrcoef(errors.T) - np.eye(4)).max() < 0.1  # of the sensors
    line = np.arctan2(one[..., 2], one[..., 3]) + np.arctan2(one[..., 0], one[..., 1])  # of sight: without errors
    offset = simulator.state.target_position[:, None] - simulator.state.sensor_position[:, :, None]
    off = line - np.arctan2(offset[..., 1], offset[..., 0])
    np.testing.assert_allclose(np.cos(off), 1, atol=1e-9)
    single = Simulator(noisy, 1, 7)
    np.testing.assert_array_equal(observer.observe(single)["pairs"][0], one[7])
    simulator.step(stay(simulator))
    later = observer.observe(simulator)["pairs"][:, :, 0, 0]
    assert abs(np.corrcoef(errors.ravel(), (later - s).ravel())[0, 1]) < 0.9
    rows = DetectionObserver(noisy.replace(identities=False)).observe(Simulator(noisy, 2000, 0))["sensors"]
    np.testing.assert_array_equal(rows[..., 2:4], np.float32(one[:, :, 0, :2]))


def test_missed_detections():
    scenario = Scenario(missed_detections=0.3)
    simulator = Simulator(scenario, 3000, 0)
    observer = Observer(scenario, ("visible", "others_seeing"))
    shown = observer.observe(simulator)["pairs"]
    seen, noticed = simulator.state.visible, shown[..., 0]
    assert not noticed[~seen].any()
    assert noticed[seen].mean() == pytest.approx(0.7, abs=0.01)
    np.testing.assert_array_equal(shown[..., 1], noticed.sum(1, keepdims=True) - noticed)
