"""Velocities as observed: from places observed, with their errors, and within their bounds on tracks of any speed."""

import itertools
import warnings

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hitmac import envs  # noqa: F401 - registers the environments
from hitmac.envs import FEATURES, Scenario, Simulator
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask
from tests.envs.scenes import scenarios

PLACES = ("bearing_sin", "bearing_cos", "distance")
VELOCITIES = ("radial_velocity", "tangential_velocity")
ONE = Scenario(num_sensors=1, num_targets=1, extra_move_every=0, walk="still")
NOISY = Scenario(
    position_noise=8, whole_numbers=False, failure_rate=0.1, recovery_rate=0.3, leave_rate=0.1, return_rate=0.3
)


def stay(simulator):
    return np.zeros((simulator.num_envs, simulator.scenario.num_sensors), np.int64)


class Looking:
    """An executor that turns no sensor and keeps what it is shown."""

    def __init__(self):
        self.shown = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.shown.append(observation)
        return np.zeros(len(observation["pairs"]), int), None


@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("name", [*WALKS, "tracks"])
def test_a_velocity_observed_is_the_difference_of_places_observed(name, every):
    """At every look, also those of an executor between an extra move and the next."""
    blocks = (2, 3) if name == "streets" else ()
    scenario = NOISY.replace(walk="still" if name == "tracks" else name, extra_move_every=every, blocks=blocks)
    looking = Looking()
    task = CoordinatorTask(
        scenario, 6, 0, features=PLACES + VELOCITIES, executor=looking, executor_features=PLACES + VELOCITIES,
        padding="masked", decision=1,
    )  # fmt: skip
    if name == "tracks":
        steps = np.random.default_rng(0).uniform(-8, 8, (60, 5, 2))
        task.reset(options={"target_position": np.zeros((5, 2)), "target_moves": steps.cumsum(0)})
    looks = [task.observe()]
    for step in range(24):
        there = looks[-1]["mask"] != 0
        task.step(np.ones((6, 20), int))
        between = {key: np.zeros_like(value) for key, value in looks[-1].items()}  # unpacked again
        packed = looking.shown.pop()
        for key, value in between.items():
            value[there] = packed[key].reshape(6, 4, 5, *value.shape[3:])[packed["mask"].reshape(6, 4, 5) != 0]
        extra = bool(every) and step % every == 0
        if not extra:
            np.testing.assert_equal(between, looks[-1])
        looks += [between] * extra + [task.observe()]

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


@pytest.mark.parametrize("walk", WALKS)
def test_the_velocity_observed_before_the_first_move_is_zero(walk):
    simulator = Simulator(NOISY.replace(walk=walk, blocks=(2, 3) if walk == "streets" else ()), 3, 0)
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


def test_what_was_observed_goes_on_from_a_state():
    simulator = Simulator(NOISY, 4, 0)
    observer = Observer(NOISY, tuple(FEATURES))
    simulator.step(stay(simulator))
    shown, saved = observer.observe(simulator), simulator.get_state()
    np.testing.assert_equal(observer.observe(simulator.clone()), shown)
    other = Simulator(NOISY, 4, 99)
    other.set_state(saved)
    np.testing.assert_equal(observer.observe(other), shown)
    other.step(stay(other))
    simulator.step(stay(simulator))
    np.testing.assert_equal(observer.observe(other), observer.observe(simulator))


@pytest.mark.parametrize(("speed", "shown"), [(60, 0.5), (119.99, 119.99 / 120), (120, 1), (121, 1), (9000, 1)])
def test_what_moves_faster_than_it_may_is_shown_at_the_bound(speed, shown):
    scenario = ONE.replace(time_step=0.1)
    simulator = Simulator(scenario, 1, 0)
    for direction, expected in (((1, 0), (shown, 0)), ((0, -1), (0, -shown))):
        simulator.reset()
        start = np.array([300, 0.0])
        track = start + 0.1 * speed * np.array(direction)
        simulator.place(sensor_position=[(0, 0)], heading=[0], target_position=[start], target_tracks=[[track]])
        simulator.step(stay(simulator))
        np.testing.assert_allclose(simulator.state.velocity[0, 0], speed * np.array(direction), rtol=1e-9)
        angle = -np.arctan2(track[1], track[0])  # the line of sight has turned since
        expected = np.clip(
            speed / 120 * np.array([np.cos(angle), np.sin(angle)] if expected[0] else [np.sin(angle), -np.cos(angle)]),
            -1, 1,
        )  # fmt: skip
        values = Observer(scenario, VELOCITIES).observe(simulator)["pairs"].ravel()
        np.testing.assert_allclose(values, expected, atol=1e-6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from([1.0, 0.1, 0.001]))
def test_observations_lie_in_their_space_on_tracks_of_any_speed(scenario, share):
    rng = np.random.default_rng(0)
    tracks = share * rng.uniform(-1, 1, (3, 30, scenario.num_targets, 2)) * scenario.extent
    for make in (CoverageTask, ExecutorTask, CoordinatorTask):
        options = {"decision": 3} if make is CoordinatorTask else {}
        task = make(scenario, 3, 0, features=tuple(FEATURES), **options)
        task.reset(options={"target_tracks": tracks})
        for _ in range(24 // task.sub_steps):
            shown = task.observe()
            assert all(task.observation_space.contains({k: v[b] for k, v in shown.items()}) for b in range(3))
            task.step(rng.integers(0, 2, (3, *task.action_space.shape)))


def test_the_shells_take_tracks_of_any_speed():
    tracks = np.random.default_rng(0).uniform(-1250, 1250, (20, 5, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # gymnasium's checker warns of an observation outside its space
        env = gymnasium.make("dsn/Coverage-v0")
        env.reset(seed=0, options={"target_tracks": tracks})
        for _ in range(10):
            env.step(env.action_space.sample())
    batch = gymnasium.make_vec("dsn/Coverage-v0", num_envs=3)
    batch.reset(seed=0, options={"target_tracks": tracks})
    for _ in range(10):
        assert batch.observation_space.contains(batch.step(batch.action_space.sample())[0])
