"""Feed of detections: by hand, and equal to the simulator's observations."""

import re

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.tracking import DetectionFeed, Tracks
from hitmac.agents.tracking.features import update
from hitmac.envs import Simulator
from hitmac.envs.parts.detections import DetectionObserver
from tests.agents.tracking.test_tracks import EAST, HALL, OFF, WEST, found

PLACES, HEADINGS = [(-900.0, 0.0), (900.0, 0.0)], [0.0, 180.0]
WIDE = HALL.replace(field_of_view=90, sensing_range=1500)


def observed(feed, now, headings=HEADINGS):
    """The observation of the two cameras, without the axis of the scene."""
    return {name: array[0] for name, array in feed.observe(now, PLACES, headings).items()}


def test_the_simulators_scans_give_the_same_decisions():
    scenario = HALL.replace(failure_rate=0.01, num_sensors=4)
    simulator, observer = Simulator(scenario, 1, 9_000_000_003), DetectionObserver(scenario)
    agent, feed = load_agent("belief-planner-fastest", scenario), DetectionFeed(scenario)
    state = own = None
    failed = 0
    for step in range(30):
        now, shown, scene = 0.2 * step, observer.observe(simulator), simulator.state
        for i in np.flatnonzero(scene.working[0]):
            feed.add(int(i), now, shown["detections"][0, i][shown["mask"][0, i] != 0])
        got = feed.observe(now, scene.sensor_position[0], np.where(scene.working[0], scene.heading[0], np.nan))
        for name in ("detections", "mask"):
            np.testing.assert_array_equal(got[name], shown[name], err_msg=name)
        np.testing.assert_allclose(got["sensors"], shown["sensors"], rtol=1e-6, atol=1e-6)
        assert got["sensors"].dtype == np.float32
        np.testing.assert_array_equal(got["looked"], scene.working)
        action, state = agent.policy.predict(shown, state)
        same, own = agent.policy.predict(got, own)
        np.testing.assert_array_equal(same, action)
        failed += not scene.working.all()
        simulator.step(action)
    assert failed
    assert (state.beliefs.existence > 0.5).any()
    np.testing.assert_allclose(own.beliefs.existence, state.beliefs.existence, atol=1e-3)


def test_a_camera_that_is_silent_for_a_second_keeps_its_targets():
    tracker, states = Tracks(WIDE.replace(walk="still")), {}
    for silent in (True, False):
        feed, state = DetectionFeed(WIDE, timeout=0.7), None
        for step in range(20):
            now, gone = 0.2 * step, 10 <= step < 15
            if not gone:
                feed.add(0, now - 0.05, [(0.0, 0.0)])
            elif not silent:
                feed.add(0, now - 0.05, [])
            feed.add(1, now, [(500.0, 500.0)])
            shown = feed.observe(now, PLACES, HEADINGS)
            assert shown["looked"].tolist() == [[not (gone and silent), True]]
            assert shown["sensors"][0].any(-1).tolist() == [not (silent and 13 <= step < 15), True]
            shown["sensors"][0, 1] = OFF  # the other camera has no part in it
            _, state = update(tracker, shown, state)
            states[silent, step] = found(tracker, state)
    assert list(states[True, 14]) == list(states[True, 19]) == [1]
    assert not states[False, 14]


def test_sensors_and_errors_by_hand():
    feed = DetectionFeed(WIDE.replace(position_noise=(20.0, 5.0)))
    feed.add(0, 1.0, [(-800.0, 0.0), (-900.0, 300.0), (-800.0, 100.0)])
    feed.add(1, 1.0, [(0.0, 0.0, 9.0, 2.0, 4.0)])
    shown = observed(feed, 1.0)
    np.testing.assert_allclose(shown["sensors"], (EAST, WEST), atol=1e-6)
    expected = [(-800, 0, 400, 0, 25), (-900, 300, 25, 0, 400), (-800, 100, 212.5, 187.5, 212.5)]
    np.testing.assert_allclose(shown["detections"][0, :3], expected, atol=1e-4)
    np.testing.assert_array_equal(shown["detections"][1, 0], (0, 0, 9, 2, 4))
    assert shown["mask"].sum(-1).tolist() == [3, 1]
    assert not shown["detections"][shown["mask"] == 0].any()
    feed.add(1, 1.1, [(0.0, 0.0, 9.0, 2.0, 4.0)])
    feed.add(1, 1.4, [(0.0, 0.0, 9.0, 2.0, 4.0)])
    for now, apart in ((1.2, 0.1), (1.32, 0.08)):  # seconds after the scan, and before it
        moved = 0.5 * (apart * WIDE.top_speed) ** 2
        covariance = observed(feed, now)["detections"][1, 0, 2:]
        np.testing.assert_allclose(covariance, (9 + moved, 2, 4 + moved), rtol=1e-5)


def test_scans_count_once_by_their_times():
    feed = DetectionFeed(WIDE)
    assert not observed(feed, 0.0)["sensors"].any()  # no camera has been heard
    for time, x in ((0.1, 1.0), (0.2, 2.0), (0.29, 3.0), (0.31, 4.0), (0.9, 5.0)):
        feed.add(0, time, [(x, 0.0)])
    places = []
    for now in (0.2, 0.4, 0.6, 0.8, 1.0):
        shown = observed(feed, now)
        assert shown["sensors"].any(-1).tolist() == [True, False]
        assert (shown["mask"][0].sum() == 1) == shown["looked"][0]
        places.append(shown["detections"][0, 0, 0])
    assert places == [3, 4, 0, 5, 0]
    feed.add(1, 0.0, [(9.0, 0.0)])  # more than 5 sub-steps late
    assert not observed(feed, 1.2)["sensors"][1].any()
    feed.add(0, 1.4, [(1.0, 0.0)])
    shown = observed(feed, 1.4, [np.nan, 180.0])
    assert not shown["looked"].any()
    assert not shown["mask"].any()


def test_any_number_of_detections_is_kept():
    feed = DetectionFeed(WIDE)
    places = DetectionObserver(WIDE).space["mask"].shape[1]
    for now, number in ((0.2, places), (0.4, places + 1), (0.6, 0)):
        feed.add(0, now, [(x, 1.0) for x in range(number)])
        shown = observed(feed, now)
        assert shown["mask"].shape == (2, max(number, places))
        assert shown["mask"][0].sum() == number
        assert shown["looked"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("scan", "says"),
    [
        ((2, 2.0, []), "camera is 2; it must be a whole number, 0 to 1"),
        ((True, 2.0, []), "camera is True"),
        ((0, np.nan, []), "time of camera 0 is nan; it must be a finite number"),
        ((0, 1.25, [(0, 0)]), "the scan of camera 0 at 1.25 s follows one at 1.25 s; the times of a camera must rise"),
        ((0, 1.0, [(0, 0)]), "the scan of camera 0 at 1.0 s follows one at 1.25 s"),
        ((0, 2.0, [(0, 0, 0)]), "the scan of camera 0 at 2.0 s is int64 of shape (1, 3); it must be numbers (k, 2) or"),
        ((0, 2.0, [("a", "b")]), "of shape (1, 2); it must be numbers"),
        ((0, 2.0, [(0, 0), (1,)]), "the scan of camera 0 at 2.0 s is [(0, 0), (1,)]; it must be an array"),
        ((0, 2.0, [(0, 0), (0, np.nan)]), "detection 1 of camera 0 at 2.0 s is (0, nan, 25, 0, 25); every number"),
        ((1, 2.0, [(0, 0, 1, 2, 1)]), "detection 0 of camera 1 at 2.0 s is (0, 0, 1, 2, 1); xx, xy and yy must be a"),
        ((1, 2.0, [(0, -1060)]), "detection 0 of camera 1 at 2.0 s is (0, -1060, 25, 0, 25); it must be inside the"),
        (
            (0, 2.0, [(3, 4), (0, 0), (3, 4)]),
            "detection 2 of camera 0 at 2.0 s is (3, 4, 25, 0, 25); it is where detection 0 is; the",
        ),
    ],
)
def test_wrong_scans_are_named_and_change_nothing(scan, says):
    for waits in (False, True):
        feed = DetectionFeed(WIDE)
        feed.add(0, 1.25, [(1.0, 2.0)])
        if not waits:
            feed.observe(1.25, PLACES, HEADINGS)
        with pytest.raises((ValueError, TypeError), match=re.escape(says)):
            feed.add(*scan)
        shown = observed(feed, 1.3)
        assert shown["looked"].tolist() == [waits, False]
        assert shown["mask"].sum() == waits
        feed.add(0, 1.3, [(1.0, 2.0)])


def test_wrong_arguments_are_named():
    feed = DetectionFeed(WIDE)
    feed.add(0, 1.0, [(1.0, 2.0)])
    for call, says in (
        (
            lambda: DetectionFeed(WIDE.replace(identities=True, false_detections=0)),
            "identities is true; it must be false for a feed",
        ),
        (lambda: DetectionFeed(WIDE, timeout=0), "timeout is 0.0; it must be over 0"),
        (lambda: feed.observe(np.nan, PLACES, HEADINGS), "now is nan; it must be a finite number"),
        (lambda: feed.observe(1.0, PLACES[:1], [0.0]), "shapes ((1, 2), (1,)); they must be ((2, 2), (2,))"),
        (lambda: feed.observe(1.0, PLACES, HEADINGS, [90.0, 0.0]), "field_of_view is 0.0; it must be over 0"),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(says)):
            call()
    assert observed(feed, 1.0)["looked"].any()


def test_single_bad_detections_are_left_out_if_asked():
    """The rest of the scan counts; the same list of other shapes is refused whole."""
    feed, dropped = DetectionFeed(WIDE), []
    bad = [
        [],
        [1.0],
        [[1, 2]],
        "no",
        None,
        [True, 2.0],
        [-(10**400), 2],
        [float("nan"), 0.0],
        [1e300, 0.0],
        [9e5, 0.0],
        [30.0, 2.0],
    ]
    places = feed.add(0, 1.0, [[-5.0, 3.0], [30.0, 2.0], *bad, [7.0, 8.0]], dropped=dropped)
    np.testing.assert_array_equal(places, [[-5, 3], [30, 2], [7, 8]])
    assert len(dropped) == len(bad)
    assert dropped[-1] == "it is where detection 1 is; the places of a scan must differ"
    assert sum("inside the arena" in one for one in dropped) == 2
    assert feed.add(0, 2.0, [[]], dropped=[]).shape == (0, 2)
    for wrong in ({}, 3.0, "none", [[]]):
        with pytest.raises(ValueError, match="it must be numbers"):
            feed.add(0, 3.0, wrong)
    assert len(feed.add(0, 3.0, [[x, 0.5 * x] for x in np.linspace(-900, 900, 5000)])) == 5000
