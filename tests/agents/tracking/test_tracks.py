"""Tracks from detections without identities: by hand."""

import numpy as np
import pytest

from hitmac.agents.tracking import beliefs
from hitmac.agents.tracking.tracks import Tracks, TracksState
from hitmac.envs import Scenario, Simulator
from hitmac.envs.base.threads import Threads
from hitmac.envs.parts.detections import DetectionObserver
from tests.envs.scenes import write_tracks


def hall(unit=1.0):
    """Return a scenario in a unit of length."""
    return Scenario(
        num_sensors=2, num_targets=3, arena=1000 * unit, knowledge="shared", identities=False, position_noise=5 * unit,
        missed_detections=0.1, false_detections=0.02, min_speed=50 * unit, extra_move_every=0, time_step=0.2,
    )  # fmt: skip


HALL = hall()
EAST, WEST = (-900.0, 0.0, 0.0, 1.0, 45.0, 1500.0, 0.0), (900.0, 0.0, 0.0, -1.0, 45.0, 1500.0, 0.0)
OFF = (0.0,) * 7


def scan(tracker, places, state=None, sensors=(EAST, WEST), unit=1.0):
    """Take in places detected without errors of their own, by sensor, in a unit of length."""
    detections, mask = np.zeros((1, 2, 4, 5), np.float32), np.zeros((1, 2, 4), np.int8)
    for i, listed in enumerate(places):
        for d, place in enumerate(listed):
            detections[0, i, d], mask[0, i, d] = (*place, 25.0, 0.0, 25.0), 1
    detections *= unit ** np.array((1, 1, 2, 2, 2))
    sensors = np.array([sensors]) * unit ** np.isin(np.arange(len(sensors[0])), (0, 1, 5))
    return tracker.update(detections, mask, sensors, state)


def found(tracker, state, least=0.5):
    """Return the places of the tracks by label."""
    estimate = tracker.estimate(state, least)
    return {int(label): estimate.place[0, 0, j] for j, label in enumerate(estimate.label[0, 0]) if label > 0}


def test_a_target_seen_by_two_sensors_is_one_track():
    tracker, state = Tracks(HALL), None
    for step in range(10):
        place = (-200 + 16.0 * step, 100.0)
        scene, state = scan(tracker, [[place], [place]], state)
    assert list(found(tracker, state)) == [1]
    assert found(tracker, state)[1] == pytest.approx(place, abs=3)
    spread = np.sqrt(tracker.estimate(state).covariance[0, 0, int(state.existence.argmax()), 0, 0])
    for radii, located in ((0.5, False), (3.0, True)):
        assert tracker.estimate(state, within=radii * spread).label.any() == located
    j = int(state.existence.argmax())
    assert scene.known[0, j] == pytest.approx([*place, 80, 0, 0], abs=10)  # 16 units in 0.2 s
    assert scene.belief.weight[0, j].sum() == pytest.approx(state.existence[0, 0, j])
    assert scene.belief.body[0, j, :2].mean(-1) == pytest.approx(place, abs=3)
    assert scene.present[0].sum() == (state.existence > 0).sum()


def test_targets_that_cross_keep_their_labels():
    tracker, state = Tracks(HALL), None
    for step in range(30):
        along = -240 + 16.0 * step
        rising, falling = (along, 0.5 * along), (along, -0.5 * along)
        _, state = scan(tracker, [[rising, falling], [falling, rising]][:: 1 if step % 2 else -1], state)
        if step == 5:
            first = {label: place[1] < 0 for label, place in found(tracker, state).items()}
    last = found(tracker, state)
    assert len(first) == 2
    assert {label: place[1] > 0 for label, place in last.items()} == first


def test_a_false_detection_makes_no_lasting_track():
    tracker, state = Tracks(HALL), None
    for _ in range(5):
        _, state = scan(tracker, [[], []], state)
    _, state = scan(tracker, [[(0.0, 50.0)], []], state)
    assert not found(tracker, state)
    for _ in range(3):
        _, state = scan(tracker, [[], []], state)
    assert not (state.existence > 0).any()


@pytest.mark.parametrize(("apart", "detected"), [(1.0, True), (1.0, False), (0.0, True)])
def test_certain_tracks_of_exact_detections(apart, detected):
    """Two tracks that exist for certain: detected they stay; missed by a sensor that misses none they end."""
    scenario = HALL.replace(position_noise=0.0, missed_detections=0.0, false_detections=0.0)
    tracker, state = Tracks(scenario), None
    detections, mask = np.zeros((1, 2, 4, 5)), np.zeros((1, 2, 4), np.int8)
    detections[0, :, 1, 0], mask[0, :, :2], sensors = apart, 1, np.array([(EAST, WEST)])
    for _ in range(3):
        _, state = tracker.update(detections, mask, sensors, state)
    state = state._replace(existence=np.where(state.existence > 0.5, 1.0, 0.0), covariance=0.0 * state.covariance)
    assert state.existence.sum() == 2
    _, new = tracker.update(detections, mask * detected, sensors, state)
    assert np.sort(new.existence[0, 0])[-2:] == pytest.approx([0.999 * detected] * 2)
    np.testing.assert_array_equal(new.label, state.label)


def test_a_target_that_leaves_is_forgotten_and_one_that_nobody_looks_for_is_not():
    tracker = Tracks(HALL)
    for sensors, lasts in (((EAST, WEST), False), ((OFF, OFF), True)):
        state = None
        for step in range(10):
            _, state = scan(tracker, [[(16.0 * step, 0.0)]] * 2, state)
        for _ in range(12):
            _, state = scan(tracker, [[], []], state, sensors)
        assert (list(found(tracker, state)) == [1]) == lasts


@pytest.mark.parametrize("knowledge", ["shared", "neighbours"])
def test_a_sensor_that_has_not_looked_is_no_evidence_and_keeps_its_view(knowledge):
    tracker, state = Tracks(HALL.replace(knowledge=knowledge, walk="still", communication_range=2000.0)), None
    for _ in range(10):
        _, state = scan(tracker, [[(0.0, 0.0)]] * 2, state)
    left, nothing = [], (np.zeros((1, 2, 4, 5)), np.zeros((1, 2, 4)), np.array([(EAST, WEST)]))
    for looked in (None, [[True, True]], [[True, False]], [[False, False]]):
        scene, new = tracker.update(*nothing, state, looked=None if looked is None else np.array(looked))
        left.append(new.existence.max(-1).tolist()[0])
        assert (scene.views[..., 5] == 1500.0**2).all()
        assert (new.age[new.existence > 0.5] == 1).all()
    assert left[0] == left[1]
    assert left[1][0] < left[2][0] < left[3][0]
    assert left[3] == pytest.approx((state.existence.max(-1) * tracker.model.survival).tolist()[0])


def test_a_target_behind_a_wall_is_kept():
    left = []
    for walls in ((), ((-100.0, -300.0, -100.0, 300.0),)):
        tracker, state = Tracks(HALL.replace(walls=walls, walk="still")), None
        for _ in range(10):
            _, state = scan(tracker, [[], [(0.0, 0.0)]], state, (OFF, WEST))
        for _ in range(12):
            _, state = scan(tracker, [[], []], state, (EAST, OFF))
        left.append(state.existence.max())
    assert left[0] < 0.1 < 0.9 < left[1]


@pytest.mark.parametrize("unit", [1.0, 1e-5])
def test_a_lost_target_is_found_again_under_its_label(unit):
    tracker, state = Tracks(hall(unit)), None
    for step in range(10):
        _, state = scan(tracker, [[(-300.0 + 16 * step, 0.0)]] * 2, state, unit=unit)
    for _ in range(10):
        _, state = scan(tracker, [[], []], state, (OFF, OFF), unit)
    assert found(tracker, state)[1] / unit == pytest.approx((4, 0), abs=60)
    for within, located in ((5.0, False), (300.0, True)):  # the particles spread by some 60
        assert tracker.estimate(state, within=within * unit).label.any() == located
    for step in range(20, 24):
        _, state = scan(tracker, [[(-300.0 + 16 * step, 0.0)]] * 2, state, unit=unit)
    assert list(found(tracker, state)) == [1]
    assert found(tracker, state)[1] / unit == pytest.approx((68, 0), abs=5)


def test_false_detections_are_uniform_between_the_edges_of_a_tilted_view():
    """The existence b / (f + b) of a new track, where f is their mean number over the area in view."""
    tracker, odds = Tracks(HALL.replace(tilt_limits=[(10, 30)], mount_height=5, false_detections=1.0)), []
    for near in (0.0, 500.0):
        sensor = (0.0, 0.0, 0.0, 1.0, 45.0, 1000.0, 0.0, 20.0, near)
        _, state = scan(tracker, [[(600.0, 0.0)], []], None, (sensor, (0.0,) * 9))
        odds.append(1.0 / (1.0 / state.existence.max() - 1.0))
    assert odds[1] / odds[0] == pytest.approx(1.0 - 0.5**2, rel=1e-3)


def test_views_without_a_detection_leave_the_unseen_elsewhere():
    tracker = Tracks(HALL, 200)
    scene, _ = scan(tracker, [[], []], None, (EAST, OFF))
    x, y = scene.belief.body[0, -1, :2]
    weight = scene.belief.weight[0, -1]
    ahead = (np.hypot(x + 900, y) < 1500) & (np.abs(y) < x + 900)
    np.testing.assert_allclose(weight, 3.0 / 200 * np.where(ahead, 0.1, 1.0))


def test_new_unseen_targets_are_expected_at_a_constant_rate():
    tracker, state = Tracks(HALL, 200), None
    for _ in range(11):
        _, state = scan(tracker, [[], []], state, (OFF, OFF))
    assert state.weight[0, 0, -1].sum() == pytest.approx(3.0 + 10 * 0.002 * 3.0)


def test_neighbours_exchange_tracks_in_range():
    for reach, rows in ((2000.0, [0, 1]), (1000.0, [0])):
        tracker, state = Tracks(HALL.replace(knowledge="neighbours", communication_range=reach)), None
        for step in range(8):
            place = (16.0 * step, 0.0)
            _, state = scan(tracker, [[place], []], state, (EAST, (900.0, 0.0, 0.0, 1.0, 45.0, 1500.0, 0.0)))
        estimate = tracker.estimate(state)
        assert np.flatnonzero((estimate.label > 0).any(-1)[0]).tolist() == rows
        for row in rows:
            j = int(state.existence[0, row].argmax())
            assert estimate.place[0, row, j] == pytest.approx(place, abs=5)
            assert estimate.covariance[0, row, j, 0, 0] < 30.0


def played(monkeypatch, knowledge, seeds, threads, steps=12, split=None):
    """Return the last state of scenes with these seeds; before step `split` through copies of the state."""
    scenario = HALL.replace(knowledge=knowledge)
    simulator, observer = Simulator(scenario, len(seeds), seeds), DetectionObserver(scenario)
    tracker, state = Tracks(scenario, 20), None
    monkeypatch.setattr(beliefs, "Threads", lambda size, _, block: Threads(size, threads, 1))
    for step in range(steps):
        if step == split:
            tracker, state = Tracks(scenario, 20), tuple(array.copy() for array in state)
        before = None if state is None else [array.copy() for array in state]
        _, new = tracker.update(*observer.observe(simulator).values(), state)
        for array, kept in zip(state or (), before or (), strict=True):
            np.testing.assert_array_equal(array, kept)  # the given state is unchanged
        state = new
        simulator.step(np.ones((len(seeds), 2), int))
    return state


@pytest.mark.parametrize("knowledge", ["shared", "neighbours"])
def test_scenes_are_the_same_in_any_batch_and_on_any_thread(knowledge, monkeypatch):
    seeds = [9_000_000_000 + k for k in range(9)]
    many = played(monkeypatch, knowledge, seeds, 1)
    others = played(monkeypatch, knowledge, seeds, 2), played(monkeypatch, knowledge, seeds, 1, split=6)
    single = played(monkeypatch, knowledge, seeds[4:5], 1)
    assert (many.existence > 0.5).any()
    for name in TracksState._fields:
        for other in others:
            np.testing.assert_array_equal(getattr(many, name), getattr(other, name), err_msg=name)
        np.testing.assert_array_equal(getattr(many, name)[4:5], getattr(single, name), err_msg=name)


def test_an_episode_starts_without_tracks():
    tracker, state = Tracks(HALL), None
    for _ in range(3):
        _, state = scan(tracker, [[(0.0, 0.0)]] * 2, state)
    detections, mask, sensors = np.zeros((1, 2, 4, 5)), np.zeros((1, 2, 4)), np.array([(EAST, WEST)])
    fresh, first = (tracker.update(detections, mask, sensors, one, np.array([True]))[1] for one in (state, None))
    for name in ("existence", "weight", "time", "labels", "stream"):
        np.testing.assert_array_equal(getattr(fresh, name), getattr(first, name), err_msg=name)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((np.nan, 0, 1, 0, 1), r"detection 2 of sensor 1 in scene 0 is \(nan, 0, 1, 0, 1\); every number"),
        ((0, 0, -1, 0, 1), "xx, xy and yy must be a covariance"),
        ((0, 0, 1, 1.1, 1), "xx, xy and yy must be a covariance"),
        ((1006, 0, 0.25, 0, 0.25), r"\(1006, 0, 0.25, 0, 0.25\); it must be inside the arena of \+-1000, but for its"),
    ],
)
def test_wrong_detections_shapes_and_sensors_are_named(numbers, message):
    detections, mask, sensors = np.zeros((1, 2, 4, 5)), np.ones((1, 2, 4)), np.array([(EAST, WEST)])
    detections[0, 1, 2] = numbers
    with pytest.raises(ValueError, match=message):
        Tracks(HALL).checked(detections, mask, sensors)
    mask[0, 1, 2] = 0
    Tracks(HALL).checked(detections, mask, sensors)
    detections[0, 1, 2], mask[0, 1, 2] = (1007, 0, 0, 0, 1), 1  # an error of less than 8 standard deviations
    Tracks(HALL).checked(detections, mask, sensors)
    with pytest.raises(ValueError, match=r"shapes \(1, 2, 4, 5\), \(1, 2, 3\) and \(1, 2, 7\)"):
        Tracks(HALL).checked(detections, mask[..., :3], sensors)
    sensors[0, 1, 0] = np.inf
    with pytest.raises(ValueError, match="sensors holds inf"):
        Tracks(HALL).checked(detections, mask, sensors)


@pytest.mark.slow  # compiles for recorded motion
def test_a_lost_target_moves_as_recorded_and_leaves_with_its_track(tmp_path):
    """All recorded targets turn from +x to +y at the origin, and leave at y = 30."""
    ways = [[*((x, 0.1 * shift) for x in range(-40, 0, 2)), *((0, y + 0.1 * shift) for y in range(0, 32, 2))]
            for shift in range(4)]  # fmt: skip
    rows = [f"{20 * k + t},{k},{x},{y}" for k, way in enumerate(ways) for t, (x, y) in enumerate(way)]
    scenario = HALL.replace(time_step=1, tracks=write_tracks(tmp_path / "tracks.csv", *rows), walk="recorded")
    tracker, state, lost = Tracks(scenario), None, {}
    for t in range(40):
        seen = [[(-40.0 + 2 * t, 0.2)]] * 2 if t < 15 else [[], []]
        _, state = scan(tracker, seen, state, (EAST, WEST) if t < 15 else (OFF, OFF))
        lost[t] = found(tracker, state)
    assert lost[14][1] == pytest.approx((-12, 0), abs=3)
    assert lost[28][1] == pytest.approx((0, 16), abs=6)
    assert not lost[39]
