"""Beliefs about all targets, of observations that list the nearest: by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.tracking import beliefs
from hitmac.agents.tracking.beliefs import Beliefs, BeliefState
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, X, Y
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.observation import Observer


def of_line(num_targets, heading, **changes):
    """Return a function that takes in an observation of targets along +x from a sensor at the origin."""
    scenario = Scenario(
        num_sensors=1, num_targets=num_targets, walk="still", extra_move_every=0, knowledge="own", arena=1000,
        sensing_range=800,
    ).replace(**changes)  # fmt: skip
    believed = Beliefs(scenario, 64)

    def update(known, k, state=None):
        """Take in the k nearest of `known`, distance and age by target."""
        nearest = sorted(sorted(known, key=lambda j: known[j][0])[:k])
        pairs, targets = np.zeros((1, 1, k, 10), np.float32), np.full((1, 1, k), -1, np.int32)
        pairs[..., 8:] = np.sin(np.radians(heading)), np.cos(np.radians(heading))
        pairs[..., 0], pairs[..., 1] = -np.sin(np.radians(heading)), np.cos(np.radians(heading))  # all along +x
        for place, j in enumerate(nearest):
            targets[0, 0, place] = j
            pairs[0, 0, place, 2] = known[j][0] / scenario.distance_scale
            pairs[0, 0, place, 5] = known[j][1] / 100
        return believed.update(pairs, targets >= 0, state, targets=targets)

    return update


def test_a_target_that_is_crowded_out_of_a_list_stays_believed():
    update = of_line(2, 180)
    _, state = update({1: (300, 2)}, 1)
    scene, state = update({0: (100, 0), 1: (300, 3)}, 1, state)
    assert scene.known[0, :, 4].tolist() == [0, 3]
    np.testing.assert_allclose(scene.belief.body[0, 1, 0], 300, atol=1e-3)
    np.testing.assert_allclose(state.place[0, 0], [(100, 0), (300, 0)], atol=1e-3)
    scene, _ = update({0: (100, 1), 1: (300, 0)}, 2, state)
    assert scene.known[0, :, 4].tolist() == [1, 0]


def test_a_target_that_a_list_would_show_is_gone():
    update = of_line(3, 180)
    _, state = update({0: (100, 2), 1: (300, 2)}, 2)
    scene, _ = update({1: (300, 3), 2: (500, 0)}, 2, state)  # 0 is nearer than the farthest that is listed
    assert scene.known[0, 0, 4] == np.inf
    assert not scene.present[0, 0]
    scene, _ = update({1: (300, 3)}, 2, state)  # a list with a free place holds all
    assert scene.known[0, :, 4].tolist() == [np.inf, 3, np.inf]
    assert scene.present[0].tolist() == [False, True, True]  # the last was never seen


def test_a_target_that_was_looked_for_in_vain_is_elsewhere():
    update = of_line(1, 0)
    _, state = update({0: (100, 0)}, 1)
    for age in (1, 2):  # last seen where the sensor looks now
        scene, state = update({0: (100, age)}, 1, state)
        x, y = scene.belief.body[0, 0, :2]
        assert not ((x > abs(y)) & (np.hypot(x, y) < 800)).any()


def test_a_view_says_nothing_of_what_is_farther_than_the_list_reaches():
    """The second target was never seen, and the sensor sees as far as 800."""
    update = of_line(2, 0)
    for k, seen in ((1, 100.0), (2, 800.0)):
        scene, _ = update({0: (100, 0)}, k)
        x, y = scene.belief.body[0, 1, :2]
        weight = scene.belief.weight[0, 1]
        away, ahead = np.hypot(x, y), np.abs(np.degrees(np.arctan2(y, x))) < 45
        assert (weight[(away < 0.99 * seen) & ahead] == 0).all()
        assert (weight[(away > 1.01 * seen)] > 0).all()


def looked_in_vain(scenario, action=(), times=0):
    """Distances and angles of the particles of a target that was never seen, and whether the view excludes each."""
    believed, simulator = Beliefs(scenario, 2000), Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    for _ in range(times):
        simulator.step(np.array([action]))
    shown = Observer(scenario, believed.features).observe(simulator)
    scene, _ = believed.update(shown["pairs"], shown["mask"] != 0)
    x, y = scene.belief.body[0, 0, :2]
    return np.hypot(x, y), abs(np.degrees(np.arctan2(y, x))), scene.belief.weight[0, 0] == 0


@pytest.mark.parametrize(("view", "reach"), [(30, 800 * np.sqrt(3)), (90, 800), (120, 800 * np.sqrt(0.75))])
def test_a_view_is_that_of_the_present_lens(view, reach):
    """The lens, of 90 degrees at the start, has zoomed."""
    scenario = Scenario(num_sensors=1, num_targets=1, walk="still", knowledge="own", zoom=(30, 120))
    away, angle, excluded = looked_in_vain(scenario, (0, 1 if view < 90 else 2), abs(view - 90) // 10)
    seen = (away < reach) & (angle < view / 2)
    assert seen.any()
    np.testing.assert_array_equal(excluded, seen)


def test_a_tilted_view_says_nothing_of_what_is_before_its_near_edge():
    scenario = Scenario(
        num_sensors=1, num_targets=1, walk="still", knowledge="own", tilt_limits=[(30, 30)], mount_height=200,
        vertical_view=40,
    )  # fmt: skip
    away, angle, excluded = looked_in_vain(scenario)
    near, far = 200 / np.tan(np.radians([50, 10]))  # the view is from 10 to 50 degrees
    seen = (near <= away) & (away <= min(far, 800)) & (angle < 45)
    assert seen.any()
    np.testing.assert_array_equal(excluded, seen)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32), noise=st.floats(10, 100))
def test_a_belief_is_nearer_to_the_target_than_its_last_report_with_errors(seed, noise):
    """And it is the same for a scene alone."""
    scenario = Scenario(num_sensors=1, knowledge="own", field_of_view=360, sensing_range=5000, position_noise=noise)
    believed, simulator = Beliefs(scenario, 30), Simulator(scenario, 6, seed)
    observer, states, errors = Observer(scenario, Beliefs.features), [None, None], []
    for _ in range(60):
        shown, truth = observer.observe(simulator), simulator.state.target_position
        for k, rows in enumerate((slice(None), slice(2, 3))):
            scene, states[k] = believed.update(shown["pairs"][rows], shown["mask"][rows] != 0, states[k])
            if k == 0:
                means = (scene.belief.body[:, :, :2] * scene.belief.weight[:, :, None]).sum(-1)
                errors.append(np.stack((means, states[0].place[:, 0])) - truth)
        simulator.step(np.zeros((6, 1), int))
    believed_error, reported_error = np.linalg.norm(errors[20:], axis=-1).mean((0, 2, 3))
    assert believed_error < 0.9 * reported_error
    for name, one, every in zip(BeliefState._fields, states[1], states[0], strict=True):
        np.testing.assert_array_equal(one, every[2:3], err_msg=name)


@pytest.mark.parametrize(("delay", "gap"), [(0, 1), (3, 1), (3, 3), (0, 12)])
def test_reports_with_errors_may_be_late_or_rare(delay, gap):
    """Of a target at 50 units per second, the reports are those of places without errors."""
    motion = {"walk": "bounce", "min_speed": 30, "max_speed": 60, "speed_noise": 0, "time_step": 0.2}
    update, state = of_line(1, 180, position_noise=10.0, **motion), None
    for time in range(20 + gap + delay):
        made = time - delay
        made = 19 if 19 < made < 19 + gap else made  # no report for a while
        scene, state = update({0: (100 + 10 * made, time - made)} if made >= 0 else {}, 1, state)
    np.testing.assert_allclose(state.mean[0, 0, 0, 0, :2], (290 + 10 * gap, 0), atol=1)
    np.testing.assert_allclose(scene.known[0, 0, 2:4], (50, 0), atol=2)
    means = (scene.belief.body[0, 0, :2] * scene.belief.weight[0, 0]).sum(-1)
    np.testing.assert_allclose(means, (290 + 10 * (gap + delay), 0), atol=4)


def test_targets_that_carry_are_expected_to_go_round_views():
    """The way to the fourth warehouse is in view; some of those on it go round, and reach it."""
    scene = load_scenario("mate-2v4-0").replace(
        num_sensors=1, num_targets=1, knowledge="shared", sensing_range=600, field_of_view=90, zoom=(90, 90)
    )  # fmt: skip
    duel, believed, state, shares = Simulator(scene, 1, 0), Beliefs(scene, 200), None, []
    observer = Observer(scene, believed.features, **believed.shown)
    duel.place(sensor_position=[(0, 0)], heading=[90], target_position=[(200, 400)])
    for _ in range(100):
        shown = observer.observe(duel)
        scene_now, state = believed.update(shown["pairs"], shown["mask"] != 0, state, discs=shown.get("discs"))
        body, weight = scene_now.belief.body[0, 0], scene_now.belief.weight[0, 0]
        shares.append(weight @ ((body[AIM_X] == 925) & (body[AIM_Y] == -925)))
        duel.step(np.zeros((1, 2), int), target_action=np.zeros((1, 1, 2)))
        duel.place(heading=[0])
    assert shares[0] == pytest.approx(0.25, abs=0.1)
    assert min(shares[1:40]) > 0.1
    assert weight @ (np.hypot(body[X] - 925, body[Y] + 925) < 300) > 0.02


@pytest.mark.slow  # compiles for views by place
def test_views_by_place_are_those_of_all(monkeypatch):
    noisy = load_scenario("large-20x30").replace(missed_detections=0.1, message_loss_rate=0.3)
    for knowledge in ("shared", "neighbours"):
        scenario, states = noisy.replace(knowledge=knowledge), []
        for large in (False, True):
            monkeypatch.setattr(beliefs, "is_large", lambda _, large=large: large)
            believed, simulator, state = Beliefs(scenario, 40), Simulator(scenario, 2, 0), None
            observer = Observer(scenario, Beliefs.features)
            for _ in range(6):
                shown = observer.observe(simulator)
                _, state = believed.update(shown["pairs"], shown["mask"] != 0, state)
                simulator.step(np.ones((2, 20), int))
            states.append(state)
        for name, one, other in zip(BeliefState._fields, *states, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9, err_msg=name)
