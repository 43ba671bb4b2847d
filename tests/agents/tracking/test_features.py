"""Beliefs as features: by hand, in training and in use."""

from functools import partial

import gymnasium
import numpy as np
import pytest

from hitmac.agents.learned.beliefs import BeliefPolicy
from hitmac.agents.tracking.beliefs import Beliefs, Scene
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features, likeliest
from hitmac.agents.tracking.particles import Belief
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.observation import DEFAULT_FEATURES
from hitmac.envs.tasks import CoverageTask
from tests.agents.tracking.test_recorded import hall, written

ONE = Scenario(num_sensors=1, num_targets=1, walk="still", extra_move_every=0, knowledge="shared")
SHARED = load_scenario("hit-mac").replace(knowledge="shared", failure_rate=0.05, recovery_rate=0.2)
ERRORS = {"identities": False, "position_noise": (9, 5), "missed_detections": (0, 0.2), "false_detections": 0.1}
KINDS = [(SHARED, BELIEFS), (SHARED.replace(**ERRORS), BELIEFS), (SHARED.replace(**ERRORS), DEFAULT_FEATURES)]


class Searching:
    """Policy that turns a sensor by what it believes: a function of all features."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert observation["mask"].ndim == 3
        return np.floor(1e4 * observation["pairs"].astype(np.float64).sum((2, 3))).astype(np.int64) % 3, None


def test_features_of_a_target_that_is_seen_and_then_not():
    task = CoverageTask(ONE, 1, 0, features=BeliefObserver)
    task.reset(options={"sensor_position": [(0, 0)], "heading": [40], "target_position": [(500, 0)]})
    seen = task.observe()["pairs"][0, 0, 0]
    sin, cos = np.sin(np.radians(-40)), np.cos(np.radians(-40))
    np.testing.assert_allclose(seen[:11], [sin, cos, 0.25, 1, 1, 0, 0, 0, 0, 0, 1], atol=1e-5)
    np.testing.assert_allclose(seen[11:29], np.arange(18) == 9 - 40 / 20, atol=1e-5)
    task.step(np.array([[1]]))  # the target is 45 degrees to the right, at the edge of the view
    unseen = task.observe()["pairs"][0, 0, 0]
    root = np.sqrt(0.5)
    np.testing.assert_allclose(unseen[:11], [-root, root, 0.25, 1, 0, 0, 0, 0, 0, 0.01, 0], atol=1e-5)
    np.testing.assert_allclose(unseen[11 + 6 : 11 + 8], [0.25, 0.75], atol=1e-5)  # 2.25 sectors to the right


@pytest.mark.parametrize(
    ("away", "aims"),
    [
        (500, [[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]]),  # the widest has 120 degrees and a range of 693
        (900, [[1, 0, 0], *[[0, 0, 0]] * 4]),  # only the narrowest, of 60 degrees, has a range of 980
        (1400, np.zeros((5, 3))),
    ],
)
def test_a_lens_describes_what_zooms_and_turns_would_show(away, aims):
    """The target is 35 degrees to the right; the views have 60, 80, 90, 100, 120 degrees, turned by -20, 0, 20."""
    task = CoverageTask(ONE.replace(zoom=(30, 120), knowledge="full"), 1, 0, features=BeliefObserver)
    task.reset(options={"sensor_position": [(-600, 0)], "heading": [35], "target_position": [(away - 600, 0)]})
    pair = task.observe()["pairs"][0, 0, 0]
    assert pair[[65, 66]] == pytest.approx([90 / 180, 800 / task.scenario.distance_scale], abs=1e-5)
    for then in (67, 70):
        np.testing.assert_allclose(pair[then : then + 3], pair[:3])
    for now in (73, 73 + 18 + 30):  # and in 20 sub-steps: it stands still
        in_reach = away < 800 * np.sqrt(3)
        shares = np.maximum(1 - abs(np.arange(18) - (9 - 35 / 20)), 0)  # between two sectors
        np.testing.assert_allclose(pair[now : now + 18], in_reach * shares, atol=1e-5)
        np.testing.assert_allclose(pair[now + 18 : now + 48].reshape(2, 5, 3), [aims, aims], atol=1e-5)
    assert len(pair) == 73 + 2 * (18 + 30)


def test_a_lens_tells_what_it_would_see_alone():
    """Both of two sensors could see the first target, which the second one does; nobody sees the second target."""
    scene = ONE.replace(num_sensors=2, num_targets=2, zoom=(30, 120), knowledge="full")
    task = CoverageTask(scene, 1, 0, features=BeliefObserver)
    places = {"sensor_position": [(0, 0), (0, 100)], "target_position": [(500, 0), (0, -500)]}
    task.reset(options={"heading": [-45, 0], **places})
    task.simulator.place(heading=[[-46, 0]])
    pairs = task.observe()["pairs"][0]
    for lens, (first, second) in zip(pairs, ((0, 1), (1, 0)), strict=True):
        for now in (73, 73 + 18 + 30):
            every, alone = lens[:, now + 18 : now + 48].reshape(2, 2, 15).swapaxes(0, 1)
            assert every[0].any()
            np.testing.assert_array_equal(alone[0], first * every[0])
            assert alone[1].any() == second
            np.testing.assert_array_equal(alone[1], every[1])


def test_a_tilt_describes_the_edges_of_its_view():
    """From 100 up, a view of 30 degrees at 45 degrees down begins at 100 / sqrt(3) and ends at 100 sqrt(3)."""
    scene = ONE.replace(tilt_limits=[(0, 90)], mount_height=100, vertical_view=30, distance_scale=1000)
    task = CoverageTask(scene, 1, 0, features=BeliefObserver)
    expected, places = [0.5, 0.1 / np.sqrt(3), 0.1 * np.sqrt(3)], {"heading": [0], "target_position": [(500, 0)]}
    task.reset(options={"sensor_position": [(0, 0)], **places})
    changing = task.observe()["pairs"][0, 0, 0]
    np.testing.assert_allclose(changing[-3:], expected, rtol=1e-5)
    task = CoverageTask(scene.replace(tilt_limits=[(45, 45)]), 1, 0, features=BeliefObserver)
    task.reset(options={"sensor_position": [(0, 0)], **places})
    fixed = task.observe()["pairs"][0, 0, 0]
    assert len(fixed) == 65  # as without tilts
    # Beyond the far edge at 173, a target never seen may be anywhere in range; a fixed tilt never shows it.
    assert changing[3] > 10 * fixed[3]


def test_targets_of_a_game_are_expected_where_their_noise_takes_them():
    """The mean positions in 20 steps are nearer to the targets than those straight ahead."""
    scene = load_scenario("mate-4v8-0").replace(knowledge="full", min_speed=10, max_speed=20)
    task = CoverageTask(scene, 40, 0, features=BeliefObserver)
    for _ in range(30):
        task.step(np.zeros((40, 8), int))
    features, duel = task.observe()["pairs"], task.simulator
    sensor, place = duel.state.sensor_position[:, :1], duel.state.target_position.copy()
    ahead = place + 20 * duel.state.velocity
    for _ in range(20):
        task.step(np.zeros((40, 8), int))
    heading = duel.state.heading[:, :1]
    sin, cos, away = np.moveaxis(features[:, 0, :, 67:70].astype(float), -1, 0)
    bearing = np.radians(heading) + np.arctan2(sin, cos)
    expected = sensor + (scene.distance_scale * away)[..., None] * np.stack((np.cos(bearing), np.sin(bearing)), -1)
    error, straight = (np.linalg.norm(duel.state.target_position - one, axis=-1) for one in (expected, ahead))
    assert error.mean() < 0.9 * straight.mean()


def test_shares_count_by_value_where_the_target_will_be():
    half = [(0, -1250), (600, -1250), (600, 1250), (0, 1250)]
    scenario = ONE.replace(
        knowledge="full", zones=[half], zone_values=[0.5], target_values=[2], walk="bounce", speed_noise=0,
        max_speed=51, whole_numbers=False,
    )  # fmt: skip
    task = CoverageTask(scenario, 1, 0, features=BeliefObserver)
    task.reset(options={"sensor_position": [(0, 0)], "heading": [0], "target_position": [(500, 0)]})
    seen = task.observe()["pairs"][0, 0, 0]
    np.testing.assert_allclose(seen[[3, 4]], 0.5, atol=1e-5)
    now, soon, later = (seen[11 + 18 * k :][:18].sum() for k in range(3))
    assert now == pytest.approx(0.5, abs=1e-5)
    assert 0.5 < soon < later < 1.0  # more and more particles have left the zone


def test_a_target_that_was_never_seen_may_be_anywhere_but_in_view():
    task = CoverageTask(ONE, 1, 0, features=BeliefObserver)
    task.reset(options={"sensor_position": [(0, 0)], "heading": [0], "target_position": [(-900, 900)]})
    shown = task.observe()
    assert shown["mask"].all()
    never = shown["pairs"][0, 0, 0]
    np.testing.assert_array_equal(never[[4, 9, 10]], [0, 10, 0])
    np.testing.assert_array_equal(never[11 + 8 : 11 + 11], 0)  # in view
    in_view = 0.25 * np.pi * 800**2 / 2000**2
    assert never[11:29].sum() == pytest.approx(3 * in_view / (1 - in_view), rel=0.2)  # of 96 particles


def test_recorded_motion_and_walls_and_targets_never_seen(tmp_path):
    """One walks along x = 10, in view; three stand behind a wall, and three behind the sensor, out of view."""
    walk = {"walker": (0, [(10, y) for y in range(0, 62, 2)])}
    stand = {str(k): (0, [(90 if k < 3 else -90, k)] * 31) for k in range(6)}
    past, now = written(tmp_path / "past.csv", walk | stand), written(tmp_path / "now.csv", walk)
    scenario = hall([past], walls=[(20, -90, 20, 90)]).following([now])
    shown = CoverageTask(scenario, 1, 0, features=BeliefObserver).observe()
    assert shown["mask"][0, 0].tolist() == [1, 0, 0, 0, 1]  # the last are those never seen
    pair = shown["pairs"][0, 0]
    now, soon, later = pair[0, 11:].reshape(3, 18).sum(1)
    assert now == pytest.approx(1)
    assert soon == pytest.approx(11 / 31, abs=0.05)  # the others' tracks have ended
    assert later == 0
    assert pair[0, 11 + 18 + 12 : 11 + 18 + 14].sum() == pytest.approx(soon, abs=0.04)  # at (10, 40), to the left
    np.testing.assert_array_equal(pair[4, [4, 9, 10]], [0, 10, 0])
    assert pair[4, 3] == pytest.approx(3 + 26 / 31, abs=1)  # not in view, and not behind the wall
    assert pair[4, 8] * scenario.distance_scale == pytest.approx(83, rel=0.1)


@pytest.mark.parametrize(("scenario", "features"), KINDS)
def test_a_policy_acts_in_use_as_in_training(scenario, features):
    """Batch, restarts and failures included; a scene that is observed twice is observed once."""
    policy, net = BeliefPolicy(Searching(), scenario, features), Searching()
    training = CoverageTask(scenario, 12, 5, features=partial(BeliefObserver, features=features))
    use = CoverageTask(scenario, 12, 5, features=policy.features)
    state, start = None, np.ones(12, bool)
    for step in range(24):
        first, second = training.observe(), training.observe()
        np.testing.assert_array_equal(first["pairs"], second["pairs"])
        actions, state = policy.predict(use.observe(), state, start)
        np.testing.assert_array_equal(net.predict(first)[0], actions)
        start = np.arange(12) % 5 == step % 9
        for task in (training, use):
            task.step(actions)
            if task is training and step % 2:
                task.observe()  # the last observation of an episode
            if start.any():
                task.reset(mask=start)
    alone = CoverageTask(scenario, 1, 16, features=policy.features)
    again, many = policy.predict(alone.observe()), CoverageTask(scenario, 12, 5, features=policy.features)
    np.testing.assert_array_equal(again[0][0], policy.predict(many.observe())[0][11])


@pytest.mark.parametrize(("scenario", "features"), KINDS)
def test_an_observer_goes_on_from_its_state(scenario, features):
    observer = partial(BeliefObserver, features=features)
    task = CoverageTask(scenario, 4, 0, features=observer)
    actions = np.random.default_rng(0).integers(0, 3, (12, 4, 4))
    for action in actions[:6]:
        task.observe()
        task.step(action)
    task.observe()
    saved = task.observer.get_state()
    other = CoverageTask(scenario, 4, 1, features=observer)
    other.simulator.set_state(task.simulator.get_state())
    other.observer.set_state(saved)
    for action in actions[6:]:
        np.testing.assert_array_equal(task.observe()["pairs"], other.observe()["pairs"])
        task.step(action)
        other.step(action)


def test_a_reset_to_other_places_is_observed_also_with_the_same_seed():
    env = gymnasium.make("dsn/Coverage-v0", features=BeliefObserver, scenario=SHARED)
    first, _ = env.reset(seed=0)
    turned = {"heading": np.array([0.0, 90.0, 180.0, 270.0])}
    placed, _ = env.reset(seed=0, options=turned)
    fresh, _ = gymnasium.make("dsn/Coverage-v0", features=BeliefObserver, scenario=SHARED).reset(seed=0, options=turned)
    np.testing.assert_array_equal(placed["pairs"], fresh["pairs"])
    assert (placed["pairs"] != first["pairs"]).any()


def test_tracks_of_exact_detections_have_the_features_of_their_targets():
    """Slots are in another order, and the detections of a moment are rounded to float32."""
    names = ("distance", "bearing_sin", "in_range", "visible", "others_seeing", "age", "radial_velocity")
    known = load_scenario("hit-mac").replace(extra_move_every=0)
    task = CoverageTask(known.replace(identities=False), 20, 0, features=partial(BeliefObserver, features=names))
    twin = CoverageTask(known, 20, 0, features=names)
    for _ in range(12):
        tracks, targets = task.observe(), twin.observe()
        for one in (task, twin):
            one.step(np.zeros((20, 4), int))
    assert (tracks["mask"] == 1).mean() > 0.98
    found, expected = (np.take_along_axis(a, np.argsort(a[..., :1], 2), 2) for a in (tracks["pairs"], targets["pairs"]))
    near = np.isclose(found, expected, atol=1e-3)
    near[..., -1] = np.isclose(found[..., -1], expected[..., -1], atol=0.1)  # the velocity is estimated
    assert near.mean() > 0.95


def test_the_likeliest_tracks_take_the_place_of_targets_in_their_order():
    existence, k = np.array([[0.2, 0.9, 0.0, 0.7, 0.8]]), 5
    weight = np.concatenate((existence, [[3.0]]), 1)[..., None]  # the last are the unseen
    body = np.arange(6.0).reshape(1, 6, 1, 1) + np.zeros((1, 6, 7, 1))
    belief = Belief(body, weight, np.zeros((1, 6, 8)), np.zeros((2, 1), np.uint64), np.zeros((1, 0, 3)))
    known = np.arange(k)[None, :, None] + np.zeros((1, k, 5))
    nothing = np.zeros(1, np.int64)
    scene = Scene(belief, known, np.zeros((1, 2, 7)), nothing, existence > 0, *[nothing] * 5)
    few = likeliest(scene, 3)
    assert few.known[0, :, 0].tolist() == [1, 3, 4]
    assert few.belief.body[0, :, 0, 0].tolist() == [1, 3, 4, 5]
    assert few.belief.weight[0, :, 0].tolist() == [0.9, 0.7, 0.8, 3.0]
    assert likeliest(scene, k) is scene


def test_alone_every_sensor_acts_on_its_own_beliefs():
    scenario = load_scenario("hit-mac").replace(knowledge="own")
    for one in (scenario, scenario.replace(identities=False)):
        with pytest.raises(ValueError, match="knowledge is 'own'"):
            BeliefObserver(one)
    policy, task = BeliefPolicy(Searching(), scenario), CoverageTask(scenario, 40, 0, features=Beliefs.features)
    state = None
    for _ in range(8):
        shown = task.observe()
        changed = {name: array.copy() for name, array in shown.items()}
        changed["pairs"][:, 1:, :, :6] = 0.3  # what the others know; not where they are
        changed["mask"][:, 1:] = 1
        expected, new = policy.predict(shown, state)
        actions, _ = policy.predict(changed, state)
        np.testing.assert_array_equal(actions[:, 0], expected[:, 0])
        assert (actions[:, 1:] != expected[:, 1:]).any()
        task.step(expected)
        state = new


def test_beliefs_are_named_in_place_of_features():
    assert check_features(("beliefs",)) == ("beliefs",)
    with pytest.raises(ValueError, match="unknown feature beliefs"):
        check_features(("beliefs", "distance"))
