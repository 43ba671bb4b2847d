"""Scenes beyond the paper's, by hand, and properties of any scene, preset and batch."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hitmac.envs import FEATURES, TASKS, Scenario, Simulator, presets
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import scenarios

ONE = Scenario(num_sensors=1, num_targets=1, extra_move_every=0, walk="still")


def placed(scenario, heading, sensors, targets, seed=0):
    simulator = Simulator(scenario, 1, seed)
    simulator.place(heading=heading, sensor_position=sensors, target_position=targets)
    return simulator


def stay(simulator):
    return np.zeros((simulator.num_envs, simulator.scenario.num_sensors), np.int64)


# --- sensors: view, zoom, obstacles, failures ---


def test_every_sensor_has_its_own_view_range_and_turn():
    scenario = ONE.replace(
        num_sensors=3, field_of_view=(90, 20, 90), sensing_range=(800, 800, 300), turn_angle=(5, 1, 30)
    )
    simulator = placed(scenario, [-30, -30, -30], [(0, 0)] * 3, [(500, 0)])
    assert simulator.state.visible[0, :, 0].tolist() == [True, False, False]
    simulator.step(np.array([[1, 1, 2]]))
    np.testing.assert_allclose(simulator.state.heading[0], [-25, -29, -60])
    for _ in range(20):
        simulator.step(np.array([[0, 1, 0]]))
    assert simulator.state.visible[0, :, 0].tolist() == [True, True, False]
    observer = Observer(scenario, ("field_of_view", "sensing_range", "turn"))
    shown = observer.observe(simulator)["pairs"][0, :, 0]
    np.testing.assert_allclose(shown[:, 0], [90 / 360, 20 / 360, 90 / 360], rtol=1e-6)
    np.testing.assert_allclose(shown[:, 1], [0.4, 0.4, 0.15], rtol=1e-6)
    np.testing.assert_allclose(shown[:, 2], [5 / 180, 1 / 180, 30 / 180], rtol=1e-6)


@pytest.mark.parametrize(
    ("obstacle", "visible"),
    [
        ({"discs": [(250, 0, 50)]}, False),  # in between
        ({"discs": [(250, 50, 50)]}, True),  # touches the line of sight
        ({"discs": [(250, 49.999, 50)]}, False),
        ({"discs": [(250, -50.001, 50)]}, True),
        ({"discs": [(600, 0, 50)]}, True),  # behind the target
        ({"discs": [(-100, 0, 50)]}, True),  # behind the sensor
        ({"discs": [(530, 0, 40)]}, False),  # over the target
        ({"discs": [(10, 0, 40)]}, False),  # over the sensor
        ({"walls": [(250, -10, 250, 10)]}, False),  # across
        ({"walls": [(250, 10, 250, -10)]}, False),
        ({"walls": [(200, 10, 300, -20)]}, False),  # aslant
        ({"walls": [(250, 1, 250, 10)]}, True),  # beside
        ({"walls": [(250, 0, 250, 10)]}, False),  # its end touches the line of sight
        ({"walls": [(600, -10, 600, 10)]}, True),  # behind the target
        ({"walls": [(-10, -10, -10, 10)]}, True),  # behind the sensor
        ({"walls": [(100, 5, 400, 5)]}, True),  # parallel
    ],
)
def test_obstacles_block_the_sight(obstacle, visible):
    assert placed(ONE.replace(**obstacle), [0], [(0, 0)], [(500, 0)]).state.visible.item() is visible


def test_zoom_trades_view_for_range():
    scenario = ONE.replace(zoom=(30, 120), zoom_step=20)
    simulator = placed(scenario, [0], [(0, 0)], [(1000, 0)])
    assert not simulator.state.visible.item()
    area = 800**2 * 90
    for view in (70, 50, 30, 30):
        simulator.step(np.array([[0, 1]]))
        assert simulator.state.field_of_view.item() == view
        assert simulator.state.range_squared.item() == pytest.approx(area / view)
    assert simulator.state.visible.item()
    assert simulator.state.turned.item() == 0
    for view in (50, 70, 90, 110, 120, 120):
        simulator.step(np.array([[1, 2]]))
        assert simulator.state.field_of_view.item() == view
    assert simulator.state.heading.item() == 30
    simulator.reset()
    assert simulator.state.field_of_view.item() == 90


def test_failed_sensors_neither_see_nor_turn():
    scenario = ONE.replace(failure_rate=1, recovery_rate=0)
    simulator = placed(scenario, [0], [(0, 0)], [(500, 0)])
    assert simulator.state.visible.item()
    simulator.step(np.array([[1]]))
    state = simulator.state
    assert not state.working.item()
    assert not state.visible.item()
    assert (state.heading.item(), state.turned.item()) == (0, 0)
    back = placed(ONE.replace(failure_rate=1, recovery_rate=1), [0], [(0, 0)], [(500, 0)])
    for working in (False, True, False, True):
        back.step(stay(back))
        assert back.state.working.item() is working
        assert back.state.visible.item() is working


# --- targets that come and go, and errors of observation ---


def test_comings_and_goings_have_their_rates():
    rates = {"failure_rate": 0.2, "recovery_rate": 0.1, "leave_rate": 0.2, "return_rate": 0.1}
    simulator = Simulator(Scenario(walk="still", **rates), 4000, 0)
    for steps, share in ((1, 0.8), (40, 0.1 / (0.1 + 0.2))):
        for _ in range(steps):
            simulator.step(stay(simulator))
        assert simulator.state.working.mean() == pytest.approx(share, abs=0.01)
        assert simulator.state.present.mean() == pytest.approx(share, abs=0.01)


def test_a_target_that_has_left_does_not_count():
    task = CoverageTask(ONE.replace(num_targets=2, leave_rate=1), 1, 0)
    task.simulator.place(heading=[0], sensor_position=[(0, 0)], target_position=[(500, 0), (-500, 0)])
    assert task.simulator.coverage == 0.5
    task.simulator.state.present[0, 1] = False
    task.simulator.place(heading=[0])
    assert task.simulator.coverage == 1  # the only one present is seen
    assert task.observe()["mask"].tolist() == [[[1, 0]]]
    assert not task.observe()["pairs"][0, 0, 1].any()
    task.step(np.zeros((1, 1), int))
    assert not task.simulator.state.present.any()
    assert task.simulator.coverage == 1
    assert not task.observe()["pairs"].any()


def test_targets_return_elsewhere_in_their_area():
    area = (-100, 100, 200, 300)
    simulator = Simulator(Scenario(leave_rate=1, return_rate=1, walk="still", target_area=area), 50, 0)
    before = simulator.state.target_position.copy()
    simulator.step(stay(simulator))
    simulator.step(stay(simulator))
    after = simulator.state.target_position
    assert simulator.state.present.all()
    assert (after != before).any(-1).all()
    assert ((after >= (-100, 200)) & (after <= (100, 300))).all()


def test_positions_are_observed_with_noise():
    noisy = Scenario(position_noise=30, walk="still")
    features = ("distance", "bearing_sin", "bearing_cos")
    clear = Observer(noisy.replace(position_noise=0), features)
    observer = Observer(noisy, features)
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


def test_missed_detections():
    scenario = Scenario(missed_detections=0.3)
    simulator = Simulator(scenario, 3000, 0)
    observer = Observer(scenario, ("visible", "others_seeing"))
    shown = observer.observe(simulator)["pairs"]
    seen, noticed = simulator.state.visible, shown[..., 0]
    assert not noticed[~seen].any()
    assert noticed[seen].mean() == pytest.approx(0.7, abs=0.01)
    np.testing.assert_array_equal(shown[..., 1], noticed.sum(1, keepdims=True) - noticed)


# --- walks ---


def walk(name, steps=1, **changes):
    """Positions (steps + 1, B, 2) of 500 targets that begin in the middle with the speed 50."""
    scenario = ONE.replace(walk=name, speed_noise=0, time_step=1, min_speed=50, max_speed=51, **changes)
    simulator = Simulator(scenario, 500, 0)
    simulator.place(target_position=[(0, 0)])
    track = [simulator.state.target_position[:, 0].copy()]
    for _ in range(steps):
        simulator.step(stay(simulator))
        track.append(simulator.state.target_position[:, 0].copy())
    np.testing.assert_allclose(simulator.state.velocity[:, 0], track[-1] - track[-2])
    return np.array(track)


def test_walks_by_their_steps():
    assert not walk("still", 5).any()
    steps = np.diff(walk("random", 10), axis=0)
    np.testing.assert_allclose(np.linalg.norm(steps, axis=-1), 50)
    assert np.abs(steps.mean((0, 1))).max() < 2
    assert abs((steps[1:] * steps[:-1]).sum(-1).mean()) / 2500 < 0.03  # no memory of the last direction
    track = walk("bounce", 10)
    np.testing.assert_allclose(np.diff(track, axis=0), np.broadcast_to(track[1], (10, 500, 2)), atol=1e-9)
    steps = np.diff(walk("bounce", 10, wander=20), axis=0)
    angles = np.degrees(np.arctan2(steps[..., 1], steps[..., 0]))
    swerve = (np.diff(angles, axis=0) + 180) % 360 - 180
    assert 19 < np.abs(swerve).max() <= 20 + 1e-6
    assert abs(swerve.mean()) < 1


def test_the_border_reflects_targets():
    simulator = Simulator(ONE.replace(walk="bounce", speed_noise=0, time_step=1, min_speed=50, max_speed=51), 1, 0)
    simulator.place(target_position=[(1230, 0)])
    simulator.state.course[:] = np.radians(30)
    for step in (1, 2):
        simulator.step(stay(simulator))
        x, y = simulator.state.target_position[0, 0]
        assert (x, y) == (pytest.approx(1270 - step * 50 * np.cos(np.radians(30))), pytest.approx(25 * step))


@pytest.mark.parametrize(("y", "direction"), [(10, 1), (-10, -1)])
def test_evading_targets_leave_the_view_sideways(y, direction):
    scenario = ONE.replace(walk="evade", speed_noise=0, time_step=1, min_speed=50, max_speed=51)
    simulator = placed(scenario, [0], [(0, 0)], [(500, y)])
    simulator.step(stay(simulator))
    moved = simulator.state.target_position[0, 0] - (500, y)
    sight = np.array([500, y]) / np.hypot(500, y)
    np.testing.assert_allclose(moved, direction * 50 * np.array([-sight[1], sight[0]]))
    hidden = placed(scenario, [180], [(0, 0)], [(500, y)])
    hidden.state.course[:] = 0
    hidden.step(stay(hidden))
    np.testing.assert_allclose(hidden.state.target_position[0, 0], [550, y])


# --- starts of episodes ---


def test_numbers_are_drawn_for_every_episode():
    task = CoverageTask("random", 3000, 0)
    state = task.simulator.state
    assert np.bincount(state.num_sensors, minlength=7)[2:].tolist() == pytest.approx([600] * 5, abs=80)
    assert np.bincount(state.num_targets, minlength=10)[2:].tolist() == pytest.approx([375] * 8, abs=80)
    sensors, targets = np.arange(6) < state.num_sensors[:, None], np.arange(9) < state.num_targets[:, None]
    np.testing.assert_array_equal(task.observe()["mask"], sensors[:, :, None] & targets[:, None])
    np.testing.assert_allclose(task.simulator.coverage, state.covered.sum(1) / state.num_targets)
    reward = task.step(np.ones((3000, 6), int))
    np.testing.assert_array_equal(state.turned, state.num_sensors)
    np.testing.assert_allclose(reward, task.simulator.coverage - 0.04)
    before = state.num_sensors.copy()
    task.reset()
    assert (state.num_sensors != before).mean() > 0.5


def test_sensors_keep_apart():
    simulator = Simulator("random", 300, 0)
    position = simulator.state.sensor_position
    apart = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1) + 1e9 * np.eye(6)
    assert 400 <= apart.min() < 420
    assert 0.9 * 1250 < np.abs(position).max() <= 1250


def test_sensors_stand_in_cells_of_the_grid():
    position = Simulator("large", 100, 0).state.sensor_position
    cell = (position + 100) / 20 - 0.5
    np.testing.assert_allclose(cell, np.round(cell), atol=1e-9)
    number = (np.round(cell[..., 0]) * 10 + np.round(cell[..., 1])).astype(int)
    assert all(len(set(row)) == 50 for row in number)
    assert np.bincount(number.ravel(), minlength=100).tolist() == pytest.approx([50] * 100, abs=25)


def test_random_discs_lie_inside_and_over_no_sensor():
    state = Simulator("obstacles", 300, 0).state
    assert state.disc.shape == (300, 9, 3)
    radius = state.disc[..., 2]
    assert ((radius >= 25) & (radius <= 100)).all()
    assert (np.abs(state.disc[..., :2]) + radius[..., None] <= 1000).all()
    away = np.linalg.norm(state.disc[:, :, None, :2] - state.sensor_position[:, None], axis=-1)
    assert (away > radius[..., None]).all()


# --- any scene ---


@pytest.mark.parametrize("name", [name for name in presets() if name != "city"])  # test_city
@pytest.mark.parametrize("task", TASKS.values())
def test_on_every_preset_a_batch_is_its_scenes_on_any_number_of_threads(task, name):
    one, two, last = task(name, 10, 0, num_threads=1), task(name, 10, 0, num_threads=3), task(name, 1, 9)
    rng = np.random.default_rng(0)
    for step in range(12):
        for batch in (one, two, last) if step == 7 else ():
            batch.reset()
        action = rng.integers(0, 2, (10, *one.action_space.shape))
        reward = one.step(action)
        np.testing.assert_array_equal(reward, two.step(action))
        assert last.step(action[-1:]) == reward[-1]
        shown = one.observe()
        assert one.observation_space.contains({key: value[7] for key, value in shown.items()})
        np.testing.assert_equal({key: value[-1:] for key, value in shown.items()}, last.observe())
        np.testing.assert_equal({key: value[-1:] for key, value in one.info().items()}, last.info())
    np.testing.assert_equal(one.simulator.get_state(), two.simulator.get_state())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_properties_of_any_scene(scenario):
    batch = Simulator(scenario, 5, seed=3)
    single = Simulator(scenario, 1, seed=7)
    observer = Observer(scenario, tuple(FEATURES))
    rng = np.random.default_rng(0)
    width = scenario.num_sensors * len(scenario.decisions)
    turn = scenario.of_each_sensor("turn_angle")
    for step in range(25):
        action = rng.integers(0, 3, (5, width))
        before = batch.state.heading.copy()
        batch.step(action)
        single.step(action[4:])
        if step == 12:
            batch.reset()
            single.reset()
            before = batch.state.heading.copy()
        state = batch.state
        assert ((batch.coverage >= 0) & (batch.coverage <= 1)).all()
        assert ((batch.rotation >= 0) & (batch.rotation <= 1)).all()
        assert (np.abs(state.target_position) <= scenario.extent).all()
        assert (np.linalg.norm(state.velocity, axis=-1) <= scenario.top_speed * (1 + 1e-9)).all()
        assert (np.abs(state.heading - before) <= turn * (1 + 1e-9)).all()
        assert not state.visible[~batch.valid_pairs].any()
        np.testing.assert_array_equal(state.covered, state.visible.any(1))
        assert (state.field_of_view <= 360).all()
        shown = observer.observe(batch)
        assert observer.space.contains({key: value[2] for key, value in shown.items()})
        np.testing.assert_array_equal(shown["mask"], batch.valid_pairs)
        np.testing.assert_equal({key: value[4:] for key, value in shown.items()}, observer.observe(single))
        np.testing.assert_equal({k: v[4:] for k, v in batch.get_state().items()}, single.get_state())
    for name, array in batch.get_state().items():
        assert name == "places" or np.isfinite(array).all(), name


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: s.reset(seed=[1, -2]), "seed is -2"),
        (lambda s: s.reset(seed=1, options={"heading": [1, 2, 3, 4, 5]}), r"heading has shape \(5,\); it must be"),
        (lambda s: s.reset(options={"sensor_position": [[9e9, 0]] * 4}), r"holds 9e\+09; the arena is \+-1250"),
        (lambda s: s.reset(options={"colour": 1}), "unknown place 'colour': known are sensor_position"),
        (lambda s: s.reset(options={"target_position": np.zeros((6, 2))}), "target_position has shape"),
        (lambda s: s.place(target_tracks=np.zeros((0, 5, 2))), "target_tracks has shape"),
        (lambda s: s.place(target_tracks=np.full((3, 5, 2), np.inf)), "target_tracks holds inf; .* must be finite"),
        (lambda s: s.reset(mask=np.ones(3, bool)), r"it must be a bool array of shape \(2,\)"),
        (lambda s: s.reset(mask=[True, False]), "mask is .True, False.; it must be a bool array"),
        (lambda s: s.step(np.zeros((2, 5), int)), r"of shape \(2, 5\); it must be whole numbers of shape \(2, 4\)"),
        (lambda s: s.step(np.zeros((2, 4))), "action is float64"),
        (lambda s: s.step(np.zeros((2, 4), int), np.ones(2, int)), "it must be a bool array"),
        (lambda s: s.set_state(s.get_state() | {"num_sensors": np.array([4, 5])}), "num_sensors.* not from 1 to 4"),
        (lambda s: s.set_state(s.get_state() | {"heading": np.full((2, 4), np.nan)}), "heading.* not finite"),
        (lambda s: s.set_state(s.get_state() | {"time": np.zeros(2)}), "'time' is float64; it must be int64"),
        (lambda s: Observer(Scenario(num_targets=4)).observe(s), "this observer is for"),
    ],
)
def test_a_refused_call_changes_nothing(call, says):
    simulator = Simulator("hit-mac", 2, 0)
    before = simulator.get_state()
    with pytest.raises(ValueError, match=says):
        call(simulator)
    np.testing.assert_equal(simulator.get_state(), before)
