"""Entities that both teams of a duel observe, by hand."""

import math

import numpy as np
import pytest

from hitmac.envs import Simulator, load_scenario
from hitmac.envs.entities import EntityObserver

GAME = load_scenario("mate-4v8-9").replace(num_sensors=2, num_targets=2, random_discs=0, transmittance=0)
HIDING = GAME.replace(discs=[(300, 0, 50)])
RANGE = 1500 * math.sqrt(0.5)  # with a view of 60 degrees


def scene(scenario, targets, heading=0.0, sensor=(0.0, 0.0)):
    """A sensor with a view of 60 degrees, another one far away, and fast targets with a cargo for warehouse 0."""
    duel = Simulator(scenario, 1, 0)
    duel.state.field_of_view[:] = 60
    duel.state.speed[:], duel.game.cargo.capacity[:], duel.game.cargo.goal[:], duel.game.cargo.weight[:] = 20, 1, 0, 1
    duel.game.cargo.bounty[:] = 75
    duel.place(sensor_position=[sensor, (-950, 0)], heading=[heading, 180], target_position=targets)
    return duel


def shown(duel, team, kind, *names):
    """Return features of a kind, (A, count) each, or the mask without names."""
    observer = EntityObserver(duel.scenario, team)
    observation = observer.observe(duel)
    if not names:
        return observation[f"{kind}_mask"][0]
    columns = [observation[kind][0, ..., observer.kinds[kind][1].index(name)] for name in names]
    return columns if len(names) > 1 else columns[0]


def test_a_target_sees_near_sensors_and_discs_also_by_the_eyes_of_others():
    duel = scene(HIDING, [(100, 0), (600, 0)])  # only the first one is within 540 of the sensor
    assert shown(duel, "targets", "sensors").tolist() == [[1, 0], [1, 0]]
    x, y, cosine, view, reach, sees, margin = shown(
        duel, "targets", "sensors", "x", "y", "heading_cos", "view", "range", "sees", "margin"
    )
    np.testing.assert_allclose(x, [[-0.1, 0], [-0.6, 0]], atol=1e-7)
    np.testing.assert_allclose([y[:, 0], cosine[:, 0], view[:, 0]], [[0, 0], [1, 1], [1 / 3, 1 / 3]], atol=1e-7)
    np.testing.assert_allclose(reach[:, 0], RANGE / 1000, rtol=1e-6)
    assert sees.tolist() == [[1, 0], [0, 0]]  # a disc hides the second one
    np.testing.assert_allclose(margin[:, 0], [-0.25, -1], atol=1e-7)  # 50 and 300 from the edge, in units of 200
    assert shown(duel, "targets", "discs").tolist() == [[1], [1]]
    x, radius = shown(duel, "targets", "discs", "x", "radius")
    np.testing.assert_allclose([x[:, 0], radius[:, 0]], [[0.2, -0.3], [0.05, 0.05]], atol=1e-7)
    duel.place(target_position=[(-600, 0), (300, 500)])
    assert shown(duel, "targets", "sensors").tolist() == [[0, 1], [0, 1]]
    assert shown(duel, "targets", "discs").tolist() == [[1], [1]]  # only the second one is near
    assert shown(duel, "targets", "targets").tolist() == [[0, 1], [1, 0]]
    np.testing.assert_allclose(shown(duel, "targets", "targets", "y"), [[0, 0.5], [-0.5, 0]], atol=1e-7)


@pytest.mark.parametrize(
    ("place", "heading", "margin"),
    [((-300, 0), 0, 1), ((-30, 40), 0, 0.25), ((0, 100), 0, 0.433), ((50, -100), -90, -0.034), ((1100, 0), 0, 0.197)],
)
def test_margins_are_signed_distances_to_the_sector(place, heading, margin):
    """Behind the sensor to its place, beside it to the edge of its view, and in front of it to its range."""
    place = place[0] - 500, place[1]
    duel = scene(GAME.replace(target_range=2000), [place, place], heading, (-500, 0))
    np.testing.assert_allclose(shown(duel, "targets", "sensors", "margin")[:, 0], margin, atol=1e-3)
    duel = scene(GAME.replace(knowledge="full"), [place, place], heading, (-500, 0))
    np.testing.assert_allclose(shown(duel, "sensors", "targets", "margin")[0], margin, atol=1e-3)


def test_moves_have_their_progress_and_the_views_to_which_they_lead():
    duel = scene(HIDING, [(100, 0), (400, 0)])
    names = ("x", "y", "toward_aim", "progress", "free", "seen_1", "seen_3", "seen_10", "margin")
    rows = np.stack(shown(duel, "targets", "moves", *names), -1)  # (2, 17, 9)
    way = math.hypot(750, 850)  # to the corner of the warehouse
    edge = 20 * math.cos(math.pi / 6) - 100 * math.sin(math.pi / 6)
    expected = {
        0: [0, 0, 0, 0, 0, 0.5, 0.5, 0.5, -0.25],
        1: [1, 0, 750 / way, (way - math.hypot(730, 850)) / 20, 1, 0.5, 0.5, 0, -0.3],  # in the end behind the disc
        5: [0, 1, 850 / way, (way - math.hypot(750, 830)) / 20, 1, 0.5, 0, 0, edge / 200],
        9: [-1, 0, -750 / way, (way - math.hypot(770, 850)) / 20, 1, 0.5, 0.5, 0, -0.2],
    }
    for move, row in expected.items():
        np.testing.assert_allclose(rows[0, move], row, atol=1e-6, err_msg=str(move))
    assert rows[1, 0, 5:8].tolist() == [0, 0, 0]
    assert rows[1, 5, 5:8].tolist() == [0, 0, 0.5]  # 200 to the side the disc does not hide it


def test_moves_stop_at_discs_sensors_and_the_border():
    duel = scene(HIDING, [(360, 0), (990, -500)])
    free = shown(duel, "targets", "moves", "free")
    assert free[0, [1, 5, 9]] == pytest.approx([1, 1, 0.5])  # head on, 10 from the disc
    assert free[1, [1, 5, 9]] == pytest.approx([0.5, 1, 1])
    duel.place(target_position=[(50, 0), (0, -45)])
    free = shown(duel, "targets", "moves", "free")
    assert free[:, [9, 5]] == pytest.approx(np.array([[0.5, 1], [1, 0.25]]))


def test_own_features_and_warehouses():
    duel = scene(GAME, [(500, 400), (100, -300)])
    x, aim_x, aim_y, loaded, weight, bounty, seen, time = shown(
        duel, "targets", "own", "x", "aim_x", "aim_y", "loaded", "weight", "bounty", "seen", "time"
    )
    np.testing.assert_allclose([aim_x[:, 0], aim_y[:, 0]], [[0.425, 0.825], [0.525, 1.225]], rtol=1e-6)
    np.testing.assert_allclose([x[0, 0], loaded[0, 0], weight[0, 0], bounty[0, 0]], [0.5, 1, 0.5, 0.75])
    assert (seen.tolist(), time.max()) == ([[0], [0]], 0)  # the sensors are too far away to be known
    assert shown(duel, "targets", "warehouses", "goal").tolist() == [[1, 0, 0, 0]] * 2
    duel.game.cargo.goal[0, 0], duel.game.cargo.weight[0, 0], duel.game.cargo.bounty[0, 0] = -1, 0, 0
    duel.game.cargo.empty[0, 1, 0] = True  # the other target found the nearest warehouse empty
    aim_x, aim_y, loaded = shown(duel, "targets", "own", "aim_x", "aim_y", "loaded")
    np.testing.assert_allclose([aim_x[0, 0], aim_y[0, 0], loaded[0, 0]], [0.425, -1.325, 0], rtol=1e-6)
    assert shown(duel, "targets", "warehouses", "empty").tolist() == [[1, 0, 0, 0]] * 2
    duel.game.cargo.empty[:] = True
    assert np.abs(shown(duel, "targets", "own", "aim_x")[0]) == 0


def test_a_sensor_observes_in_the_frame_of_its_heading_what_sensors_saw():
    duel = scene(GAME, [(100, 500), (500, 200)], heading=90.0, sensor=(100, 200))
    assert shown(duel, "sensors", "targets").tolist() == [[1, 0], [1, 0]]  # shared
    names = ("x", "y", "velocity_x", "loaded", "visible", "age", "others_seeing")
    first = np.stack(shown(duel, "sensors", "targets", *names), -1)
    np.testing.assert_allclose(first[0, 0], [0.3, 0, 0, 1, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(first[1, 0, [0, 1, 4, 6]], [-1.05, -0.5, 0, 0.5], atol=1e-6)
    duel.step(np.zeros((1, 2, 2)), target_action=np.array([[(0.0, 20), (0, 0)]]))
    np.testing.assert_allclose(shown(duel, "sensors", "targets", "x", "velocity_x")[0][0, 0], 0.32, rtol=1e-6)
    for _ in range(50):
        duel.step(np.array([[(5.0, 0), (0, 0)]]), target_action=np.zeros((1, 2, 2)))
    later = np.stack(shown(duel, "sensors", "targets", *names), -1)[0, 0]
    assert later[[3, 4]].tolist() == [0, 0]  # loaded: only while it is seen
    assert 0.3 < later[5] < 0.5
    x, y, cosine, sine = shown(duel, "sensors", "sensors", "x", "y", "heading_cos", "heading_sin")
    np.testing.assert_allclose([x[1, 0], y[1, 0]], [-1.05, -0.2], atol=1e-6)
    np.testing.assert_allclose(
        [cosine[1, 0], sine[1, 0]], [math.cos(math.radians(160)), math.sin(math.radians(160))], rtol=1e-5
    )
    np.testing.assert_allclose(shown(duel, "sensors", "own", "x", "time")[0], [[0.1], [-0.95]], rtol=1e-6)


@pytest.mark.parametrize("team", ["sensors", "targets"])
def test_observations_lie_in_their_space_and_are_zero_where_masked(team):
    scenario = load_scenario("mate-4v8-9")
    batch, single, observer = Simulator(scenario, 9, 0), Simulator(scenario, 1, 8), EntityObserver(scenario, team)
    rng = np.random.default_rng(0)
    for _ in range(150):
        action = rng.uniform(-5, 5, (9, 4, 2))
        batch.step(action)
        single.step(action[8:])
    batch.game.cargo.empty[:7] = True
    observation = observer.observe(batch)
    assert all(observer.space.contains({key: value[b] for key, value in observation.items()}) for b in range(9))
    np.testing.assert_equal({key: value[8:] for key, value in observation.items()}, observer.observe(single))
    for kind in observer.kinds:
        mask = observation[f"{kind}_mask"] > 0
        assert mask.any()
        assert (observation[kind][~mask] == 0).all()
        assert (observation[kind][mask] != 0).any(0).all(), kind  # no feature is always 0
