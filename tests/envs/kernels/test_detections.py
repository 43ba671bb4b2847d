"""Detections without names: what is listed, its errors and rates, and the order of a list."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from hitmac.envs import Scenario, Simulator
from hitmac.envs.parts.detections import DetectionObserver
from tests.envs.scenes import MOTORS, scenarios

ONE = Scenario(
    num_sensors=1, num_targets=3, placement="fixed", sensor_positions=[(0, 0)], sensor_headings=[0], walk="still",
    extra_move_every=0, whole_numbers=False, identities=False, knowledge="own",
)  # fmt: skip
"""A sensor in the middle of the arena, which looks along +x, 800 units far and 45 degrees to either side."""


def observed(scenario, targets, scenes=1):
    """The observation of `scenes` scenes with the targets at places."""
    simulator = Simulator(scenario.replace(num_targets=len(targets)), scenes, 0)
    simulator.place(target_position=np.array(targets, float))
    return DetectionObserver(simulator.scenario).observe(simulator)


def places(shown):
    """All places (count, 2), scene by scene."""
    return shown["detections"][shown["mask"] != 0][:, :2].astype(float)


def assert_share(count, total, probability):
    """A share within 5 standard errors of its probability."""
    assert abs(count / total - probability) < 5 * np.sqrt(probability * (1 - probability) / total), (count, total)


# --- what is detected ---


def test_the_sensors_are_shown():
    scenario = ONE.replace(zoom=(20, 120), zoom_step=30, turn_angle=30, failure_rate=0.5)
    simulator = Simulator(scenario, 50, 0)
    observer = DetectionObserver(scenario)
    assert observer.observe(simulator)["sensors"].tolist() == [[[0, 0, 0, 1, 45, 800, 0]]] * 50
    simulator.step(np.ones((50, 2), np.int64))  # turn left, narrower: 60 degrees
    works = simulator.state.working[:, 0]
    assert 10 < works.sum() < 40
    row = [0, 0, 0.5, np.sqrt(3) / 2, 30, 800 * np.sqrt(90 / 60), 0]
    np.testing.assert_allclose(observer.observe(simulator)["sensors"][:, 0], np.outer(works, row), rtol=1e-6)
    railed = ONE.replace(rails=[[(-100, 0), (100, 0)]], placement="rails", sensor_positions=(), sensor_headings=())
    simulator = Simulator(railed, 1, 0)
    simulator.place(along=[50])
    assert DetectionObserver(railed).observe(simulator)["sensors"][0, 0, [0, 6]].tolist() == [-50, 0.25]
    unnamed = MOTORS.replace(identities=False, failure_rate=0)
    simulator, observer = Simulator(unnamed, 1, 0), DetectionObserver(unnamed)
    for _ in range(5):
        simulator.step(np.ones((1, 4), np.int64))
    shown, state = observer.observe(simulator)["sensors"], simulator.state
    np.testing.assert_allclose(shown[..., 7:], np.stack((state.rate, state.pending_turn), -1), rtol=1e-6)
    assert state.rate.any()
    assert observer.space["sensors"].contains(shown[0])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from(["full", "shared", "neighbours", "own"]), st.booleans())
def test_detections_are_what_the_reward_counts_as_seen(scenario, knowledge, tracks):
    """With zooming lenses, rails, tilts, failures, departures, discs and walls, or with recorded tracks."""
    tracks &= not scenario.rails and not scenario.tilt_limits
    named = scenario.replace(position_noise=0, missed_detections=0, leave_rate=0 if tracks else scenario.leave_rate)
    scenario = named.replace(identities=False, knowledge=knowledge)
    simulators = Simulator(scenario, 4, 0), Simulator(named, 4, 0)
    observer, rng = DetectionObserver(scenario), np.random.default_rng(0)
    simulator, other = simulators
    if tracks:
        paths = rng.uniform(-1, 1, (6, scenario.num_targets, 2)) * scenario.extent
        paths[rng.random(paths.shape[:2]) < 0.3] = np.nan
        for one in simulators:
            one.reset(seed=0, options={"target_tracks": paths})
    for _ in range(4):
        shown, state = observer.observe(simulator), simulator.state
        assert not shown["detections"][shown["mask"] == 0].any()
        assert not shown["detections"][..., 2:].any()
        assert (np.diff(shown["mask"]) <= 0).all()  # the first places of a list
        seen = simulator.valid_pairs if knowledge == "full" else state.visible
        for b, i in itertools.product(range(4), range(scenario.num_sensors)):
            own = shown["detections"][b, i, shown["mask"][b, i] != 0, :2].tolist()
            assert sorted(own) == sorted(state.target_position[b, seen[b, i]].astype(np.float32).tolist())
        assert (shown["sensors"].any(-1) == state.working).all()
        action = rng.integers(0, 3, (4, len(scenario.decisions) * scenario.num_sensors))
        for one in simulators:
            one.step(action)
    np.testing.assert_equal(simulator.get_state(), other.get_state())  # neither names nor looks change the motion


# --- errors and rates ---


def test_errors_lie_along_and_across_the_line_of_sight():
    target = np.array([400.0, 300.0])  # 37 degrees to the left of the heading
    u = target / 500
    shown = observed(ONE.replace(position_noise=(40, 10)), [target], 20_000)
    errors = places(shown) - target
    assert len(errors) == 20_000
    errors = errors @ np.transpose([u, (-u[1], u[0])])
    for axis, deviation in enumerate((40, 10)):
        assert abs(errors[:, axis].mean()) < 5 * deviation / np.sqrt(20_000)
        assert errors[:, axis].std() == pytest.approx(deviation, rel=5 / np.sqrt(40_000))
    assert abs(np.corrcoef(errors.T)[0, 1]) < 5 / np.sqrt(20_000)


def test_the_covariance_is_that_of_the_line_of_sight_to_the_detection():
    shown = observed(ONE.replace(position_noise=(40, 10), false_detections=1), [(400, 300), (100, 0), (0, -300)], 100)
    rows = shown["detections"][shown["mask"] != 0].astype(float)
    u = rows[:, :2] / np.linalg.norm(rows[:, :2], axis=1, keepdims=True)
    outer = u[:, :, None] * u[:, None]
    exact = 40**2 * outer + 10**2 * (np.eye(2) - outer)
    np.testing.assert_allclose(rows[:, 2:], exact[:, [0, 0, 1], [0, 1, 1]], atol=1e-3)
    ((*_, xx, xy, yy),) = observed(ONE.replace(position_noise=3), [(400, 300)])["detections"][0, 0]
    assert (xx, xy, yy) == (9, 0, 9)


def test_every_sensor_and_sub_step_has_its_own_errors():
    scenario = ONE.replace(num_sensors=2, sensor_positions=[(0, 0)] * 2, sensor_headings=[0] * 2, position_noise=10)
    scenario = scenario.replace(num_targets=1)
    simulator, observer = Simulator(scenario, 4000, 0), DetectionObserver(scenario)
    simulator.place(target_position=np.array([[500.0, 0.0]]))
    looks = []
    for _ in range(2):
        looks += [observer.observe(simulator)["detections"][:, i, 0, :2] - (500, 0) for i in range(2)]
        simulator.step(np.zeros((4000, 2), np.int64))
    related = np.corrcoef(np.concatenate(looks, 1).T)
    assert np.abs(related - np.eye(8)).max() < 5 / np.sqrt(4000)


def test_misses_are_linear_in_the_distance():
    rates = {0: 0.1, 400: 0.35, 800: 0.6}
    for knowledge, more in (("own", {}), ("full", {1200: 0.6})):  # beyond the range as at the range
        for x, rate in (rates | more).items():
            shown = observed(ONE.replace(missed_detections=(0.1, 0.6), knowledge=knowledge), [(x, 0)], 4000)
            assert_share(4000 - shown["mask"].sum(), 4000, rate)


FALSE = ONE.replace(num_targets=1, false_detections=0.7, failure_rate=0.0)


@pytest.mark.parametrize("mean", [0.02, 0.7, 40])
def test_the_number_of_false_detections_is_poissons(mean):
    shown = observed(FALSE.replace(false_detections=mean), [(-9, 0)], 20_000)
    number = shown["mask"].sum((1, 2))
    for k in {0, 1, int(mean), int(mean) + 1}:
        assert_share((number <= k).sum(), 20_000, stats.poisson.cdf(k, mean))
    assert abs(number.mean() - mean) < 5 * np.sqrt(mean / 20_000)


@pytest.mark.parametrize("mean", [0, 1e-6, 0.02, 0.7, 12.3, 1000])
def test_a_list_has_places_for_all_targets_and_nearly_all_false_detections(mean):
    (_, d, _) = DetectionObserver(ONE.replace(false_detections=mean)).space["detections"].shape
    most = next(k for k in itertools.count() if stats.poisson.sf(k, mean) < 1e-6)
    assert d == 3 + most


def test_false_detections_are_uniform_in_the_view():
    found = places(observed(FALSE, [(-9, 0)], 20_000))
    away, angle = np.hypot(*found.T), np.degrees(np.arctan2(found[:, 1], found[:, 0]))
    assert away.max() <= 800
    assert np.abs(angle).max() < 45
    assert_share((away < 400).sum(), len(found), 1 / 4)
    assert_share((angle > 15).sum(), len(found), 1 / 3)
    assert_share(((angle > 0) & (away > 400)).sum(), len(found), 3 / 8)


def test_false_detections_lie_inside_the_arena_and_in_front_of_obstacles():
    """In the first view, towards 90 degrees from the right side, half of a quarter circle is inside."""
    edge = FALSE.replace(sensor_positions=[(1250, 0)], sensor_headings=[90], walls=[(0, 300, 1250, 300)])
    found = places(observed(edge, [(-9, 0)], 5000)) - (1250, 0)
    area = 300**2 / 2  # the triangle between the direction of 135 degrees, the side and the wall
    assert found[:, 0].max() <= 0
    assert found[:, 1].max() < 300
    assert (found[:, 1] > -found[:, 0]).all()
    assert_share((found[:, 1] < 150).sum(), len(found), 150**2 / 2 / area)
    disc = FALSE.replace(sensor_positions=[(-500, 200)], discs=[(-200, 200, 100)])
    found = places(observed(disc, [(-9, 9)], 5000)) - (-500, 200)
    behind = np.abs(np.arctan2(found[:, 1], found[:, 0])) < np.arcsin(100 / 300)
    assert 50 < behind.sum() < 0.2 * len(found)
    assert (np.hypot(*found[behind].T) < 300).all()
    outwards = FALSE.replace(sensor_positions=[(1250, 0)], false_detections=5)
    assert not observed(outwards, [(-9, 0)], 20)["mask"].any()
    everywhere = places(observed(outwards.replace(knowledge="full", missed_detections=1), [(-9, 0)], 2000))
    assert_share((np.abs(everywhere) < 625).sum(), 2 * len(everywhere), 1 / 2)


def test_a_sensor_that_does_not_work_detects_nothing():
    scenario = FALSE.replace(failure_rate=1, false_detections=9, knowledge="full")
    simulator = Simulator(scenario, 3, 0)
    simulator.step(np.zeros((3, 1), np.int64))
    assert not any(array.any() for array in DetectionObserver(scenario).observe(simulator).values())


# --- order ---


def test_all_orders_are_equally_likely():
    """Of two targets and one false detection, which lies off the axis."""
    shown = observed(ONE.replace(false_detections=1), [(100, 0), (200, 0)], 30_000)
    three = shown["detections"][shown["mask"].sum((1, 2)) == 3][:, 0, :3, :2]
    kind = np.where(three[..., 1] == 0, three[..., 0] // 100, 3)
    orders = (kind @ (100, 10, 1)).astype(int)
    assert set(orders) == {123, 132, 213, 231, 312, 321}
    for order in set(orders):
        assert_share((orders == order).sum(), len(orders), 1 / 6)


def test_large_scenes_are_observed_as_small_ones():
    """A sensor looks only nearby from 10,000 pairs on."""
    small = Scenario(
        num_sensors=20, num_targets=50, placement="random", identities=False, knowledge="shared", random_discs=9
    )
    simulator, large = Simulator(small, 2, 0), Simulator(small.replace(num_targets=500), 2, 0)
    assert (simulator.large, large.large) == (False, True)
    target = np.full((2, 500, 2), np.nan)
    target[:, :50] = simulator.state.target_position
    large.state.disc[...] = simulator.state.disc
    large.place(
        target_position=target, sensor_position=simulator.state.sensor_position, heading=simulator.state.heading
    )
    lists = []
    for one in (simulator, large):
        shown = DetectionObserver(one.scenario).observe(one)
        rows = shown["detections"].reshape(40, -1, 5), shown["mask"].reshape(40, -1)
        lists.append([sorted(row[there != 0].tolist()) for row, there in zip(*rows, strict=True)])
    assert lists[0] == lists[1]
    assert sum(map(len, lists[0])) > 50
