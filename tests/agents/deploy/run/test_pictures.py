"""From boxes to places: the pose at the time of the picture, lags and clocks found from turns, filters, events."""

import json
import math
from fnmatch import fnmatch

import numpy as np
import pytest

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.boxes import Boxes
from hitmac.agents.deploy.run.cameras import Cameras
from hitmac.agents.deploy.run.drivers import Simulated
from hitmac.agents.deploy.run.log import Faults
from hitmac.agents.deploy.run.pictures import Pictures
from tests.agents.deploy.run.fakes import SITE, UNIX, Fleet, made, played

VIEW = View(height=5, position=(0, 0), focal=((1, 900), (2, 1800)), tilt_zero=20, picture=(1280, 720))
PEOPLE = np.array([[12.0, 1.0], [9.0, 6.0], [10.0, -5.0], [2.0, 11.0], [1.0, -9.0]])


class Turning:
    """Camera that rests, turns by 30 degrees a second for 2 s, rests, and turns back, over and over."""

    def __init__(self, zoom=math.nan):
        self.now, self.zoom = 0.0, zoom

    def heading(self, when):
        return 30.0 * np.interp(np.mod(when, 8.0), [0, 2, 4, 6, 8], [-1, -1, 1, 1, -1])

    def past(self, i, since=-math.inf):
        times = np.arange(max(self.now - 40.0, 0.0), self.now, 0.1)
        return np.column_stack((times, self.heading(times), *np.full((2, len(times)), [[math.nan], [self.zoom]])))


def boxes_at(when, *, view=VIEW, random=None, heading=None):
    """The boxes of people who stand still."""
    heading = heading or Turning().heading
    feet = view.pixels(PEOPLE, heading(when), 0.0, 1.0)
    if random is not None:
        feet = feet + random.normal(0.0, 2.0, feet.shape)
    feet = feet[((feet > 30) & (feet < np.array(view.picture) - 10)).all(1)]
    box = np.column_stack((feet[:, 0] - 15, np.maximum(feet[:, 1] - 90, 0), feet[:, 0] + 15, feet[:, 1]))
    return Boxes(box, ["person"] * len(box), [0.9] * len(box))


def nearest(rows):
    """Distances of places to the nearest of the people."""
    return np.linalg.norm(np.array(rows)[:, None, :2] - PEOPLE, axis=-1).min(-1)


def rig(view, **options):
    camera, faults = Turning(**options), Faults()
    return Pictures([view], camera, ["north"], faults, 1.5, 1.25), camera, faults


def test_a_box_is_placed_with_the_pose_of_its_picture():
    """0.3 s at 30 degrees a second are 9 degrees, 1.6 m at 10 m."""
    found = {}
    for latency in (0.0, 0.3):
        pictures, camera, _ = rig(View(**vars(VIEW) | {"latency": latency}))
        camera.now, boxes = 3.4, boxes_at(3.0)
        lag, boxes = pictures.take(0, 3.3, 3.35, boxes)
        assert lag == latency
        rows = pictures.place(0, 3.3 - lag, boxes)
        found[latency] = nearest(rows).max()
        along = np.array(rows)[0]
        assert max(along[2], along[4]) < 0.2
    assert found[0.3] < 0.02
    assert found[0.0] > 1.0


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (0.0, "its pictures are taken 0.* s before the times of their boxes"),
        (2.0, "its clock is 2.3 s ahead"),
        (-2.5, "its clock is 2.2 s behind"),
    ],
)
def test_the_lag_of_pictures_and_a_clock_that_is_off_are_found_from_turns(ahead, told):
    pictures, camera, faults = rig(VIEW)
    random, worst = np.random.default_rng(0), []
    for k in range(300):
        true = 0.5 + 0.2 * k
        boxes, stated, arrived = boxes_at(true, random=random), true + 0.3 + ahead, true + 0.4 + 0.05 * random.random()
        camera.now = arrived
        lag, boxes = pictures.take(0, stated, arrived, boxes)
        rows = pictures.place(0, stated - lag, boxes)
        if k > 150 and len(rows):
            worst.append(nearest(rows).max())
    assert abs(lag - ahead - 0.3) < 0.05
    said = [line for line in faults.messages() if "as its turns show" in line]
    assert len(said) == 1
    assert fnmatch(said[0], f"camera north: {told}, as its turns show")
    assert np.median(worst) < 0.3


@pytest.mark.parametrize("ahead", [lambda k: 3600.0 * (k == 15), lambda k: 10.0 * (k < 15), lambda k: 10.0 * (k >= 15)])
def test_a_wrong_time_and_a_clock_that_is_set_cost_few_pictures(ahead):
    pictures, _, _ = rig(VIEW)
    lags = [pictures.take(0, 0.2 * k - 0.05 + ahead(k), 0.2 * k, boxes_at(0.2 * k))[0] for k in range(40)]
    assert sum(lag != ahead(k) for k, lag in enumerate(lags)) <= 10


def test_a_camera_that_does_not_turn_tells_no_lag():
    pictures, camera, faults = rig(VIEW)
    camera.heading = lambda when: 0.0 * np.asarray(when)
    random = np.random.default_rng(0)
    for k in range(200):
        camera.now = 0.2 * k + 0.1
        boxes = boxes_at(0.2 * k, random=random, heading=camera.heading)
        lag, _ = pictures.take(0, 0.2 * k, 0.2 * k + 0.1, boxes)
    assert lag == 0.0
    assert not faults.messages()


def test_classes_confidence_and_ignored_regions_filter():
    view = View(**vars(VIEW) | {"classes": ("person",), "confidence": 0.5, "ignore": (((0, 0), (200, 0), (200, 720)),)})
    box = np.array([[600.0, 300, 640, 500]] * 3 + [[100.0, 100, 120, 150]])
    boxes = Boxes(box, ["person", "car", "person", "person"], [0.9, 0.9, math.nan, 0.9])
    pictures, _, _ = rig(view)
    assert len(pictures.take(0, 1.0, 1.1, boxes)[1].box) == 1


@pytest.mark.parametrize(
    ("change", "when", "says"),
    [
        ({"size": (640.0, 480.0)}, 1.0, "refused: its picture is 640 x 480; it must be in proportion to 1280 x 720"),
        ({"box": np.full((1, 4), 3000.0)}, 1.0, "refused: it has boxes that leave the picture of 1280 x 720"),
        ({"box": np.array([[0.0, 0, 9, 9]])}, 1.0, "left out: their feet are at the horizon or over it"),
        ({}, -5.0, "left out: its heading at their time is unknown"),
        ({}, 9.0, "left out: its heading at their time is unknown"),
        ({"zoom": 5.0}, 1.0, "left out: its zoom 5 is beyond the calibrated ones"),
    ],
)
def test_boxes_without_a_place_are_said(change, when, says):
    pictures, camera, faults = rig(VIEW)
    camera.now = 1.5
    boxes = Boxes(np.array([[600.0, 300, 640, 500]]), ["person"], [1.0])._replace(**change)
    boxes = pictures.take(0, when, when + 0.1, boxes)[1]
    assert len(pictures.place(0, when, boxes)) == 0
    assert says in faults.messages()[0]


def test_the_pose_of_a_message_comes_before_that_of_the_device():
    pictures, camera, _ = rig(View(**vars(VIEW) | {"zero": 10.0, "sign": -1.0, "tilt_range": (-30, 90)}), zoom=2.0)
    camera.now, box = 1.5, np.array([[600.0, 300, 640, 500]])
    plain = Boxes(box, [""], [1.0])
    rows = pictures.place(0, 1.0, plain)[0]
    np.testing.assert_allclose(rows[:2], VIEW.floor([620, 500], -30.0, 0.0, 2.0)[0])  # the device's zoom
    rows = pictures.place(0, 1.0, plain._replace(pan=45.0, tilt=5.0, zoom=1.0))[0]
    np.testing.assert_allclose(rows[:2], VIEW.floor([620, 500], 10.0 - 45.0, 5.0, 1.0)[0])
    rows = pictures.place(0, 1.0, plain._replace(pan=0.25, tilt=-0.4, zoom=1.0, normalized=True))[0]
    np.testing.assert_allclose(rows[:2], VIEW.floor([620, 500], 10.0 - 45.0, 6.0, 1.0)[0])


def test_answers_of_a_device_are_kept_with_their_times():
    driver = Simulated(start=20.0)
    driver.answer = math.nan, 5.0, 2.0
    cameras = Cameras([driver], SITE.replace(num_sensors=1, sensor_positions=[[0, 0]], pan_limits=[[-90, 90]],
                                             sensor_headings=[0], sensor_names=["a"]), print, timeout=5.0)  # fmt: skip
    try:
        while len(past := cameras.past(0)) < 4:
            cameras.order([10.0])
        assert (np.diff(past[:, 0]) >= 0).all()
        assert past[0, 1] == pytest.approx(20.0, abs=0.5)
        assert (np.diff(past[:, 1]) >= 0).all()
        assert (past[:, 2:] == (5.0, 2.0)).all()
    finally:
        cameras.close()


# In the loop

HERE = View(height=50, position=SITE.sensor_positions[0], focal=((1, 900),), tilt_zero=5, picture=(1280, 720))


def line(camera, time, **more):
    return json.dumps({"camera": camera, "time": UNIX + time, "boxes": [[600, 300, 640, 500, 0.9, "person"]]} | more)


class Seen(Fleet):
    def past(self, i, since=-math.inf):
        return np.array([[-9.0, self.headings[i], math.nan, math.nan], [99.0, self.headings[i], math.nan, math.nan]])


def test_boxes_reach_the_tracker_with_their_covariances():
    events = [(0.2 * k + 0.05, line("west", 0.2 * k).encode()) for k in range(20)]
    loop, _, policy = made(events, fleet=Seen(), views=[HERE, None])
    frames = played(loop, 8)
    row = HERE.place(np.array([[600.0, 300, 640, 500]]), 0.0, 0.0, 1.0)[0]
    np.testing.assert_allclose(frames[-1]["detections"][0], [0, *row[:2]], rtol=1e-5)
    found = policy.seen[-1]["detections"][0, 0]
    np.testing.assert_allclose(found[:2], row[:2], rtol=1e-5)
    assert found[2] > row[2]  # the lag, not known, and the age
    assert found[2] < row[2] + (0.3 * SITE.top_speed) ** 2


def test_a_frame_has_the_last_boxes_of_a_camera_until_it_falls_silent():
    """A detector with a picture every 0.6 s, in steps of 0.2 s."""
    events = [(0.6 * k + 0.05, line("west", 0.6 * k).encode()) for k in range(4)]
    frames = played(made(events, fleet=Seen(), views=[HERE, None])[0], 20)
    shown = [len(frame["boxes"]) for frame in frames]
    assert shown == sorted(shown, reverse=True)
    assert (shown[9], shown[-1]) == (1, 0)


def test_the_loop_places_boxes_with_the_heading_before_the_latency():
    class Swinging(Seen):
        def past(self, i, since=-math.inf):
            times = np.arange(-5.0, 50.0, 0.1)
            return np.column_stack((times, 30.0 * np.sin(times), *np.full((2, len(times)), math.nan)))

    events = [(0.2 * k + 0.05, line("west", 0.2 * k).encode()) for k in range(20)]
    views = [View(**vars(HERE) | {"latency": 0.3}), None]
    frames = played(made(events, fleet=Swinging(), views=views)[0], 12)
    shown = [frame["detections"][0][1:] for frame in frames[2:]]
    headings = [30.0 * np.sin(0.2 * k - 0.3) for k in range(20)]
    expected = HERE.floor(np.tile([620, 500], (20, 1)), headings, 0.0, 1.0)
    away = np.linalg.norm(np.array(shown)[:, None] - expected, axis=-1)
    assert away.min(1).max() < 0.5  # of 200 units; 0.2 s are 20
    assert len({*away.argmin(1).tolist()}) > 8


def test_boxes_without_a_view_and_events_unannounced_are_said():
    event = {"type": "new", "after": {"camera": "west", "id": "1", "frame_time": UNIX, "box": [1, 2, 3, 4], "score": 1,
                                      "label": "car"}}  # fmt: skip
    loop, _, _ = made(
        [(0.05, line("east", 0.0).encode()), (0.06, json.dumps(event).encode())], fleet=Seen(), views=[HERE, None]
    )
    said = [one for frame in played(loop, 2) for one in frame["messages"]]
    assert "camera east sends boxes and has no view: hitmac site calibrate finds one" in said
    assert "camera west sends events: its view must have events: true" in said


def test_objects_of_events_stay_until_they_end_and_the_camera_looks_meanwhile():
    view = View(**vars(HERE) | {"events": True})

    def event(kind, time, **more):
        own = {"camera": "west", "id": "7", "frame_time": UNIX + time, "box": [600, 300, 640, 500], "score": 0.8}
        return json.dumps({"type": kind, "after": own | {"label": "person", "false_positive": False} | more}).encode()

    # A detector gives an object up seconds after its last picture.
    events = [(0.05, event("new", 0.0)), (5.05, event("end", 3.0, end_time=UNIX + 3.0))]
    loop, _, policy = made(events, fleet=Seen(), views=[view, None])
    frames = played(loop, 30)
    shown = [len(frame["detections"]) for frame in frames]
    assert shown[1:10] == [1] * 9
    assert shown[-5:] == [0] * 5
    assert all(seen["looked"][0] for seen in policy.seen)
    spread = [seen["detections"][0, 0, 2] for seen in policy.seen[1:10]]
    assert (np.diff(spread) > 0).all()
    assert not any("west sends" in one for frame in frames for one in frame["messages"])


def test_an_object_whose_end_is_never_told_is_gone_in_time():
    pictures, camera, _ = rig(VIEW)
    camera.now = 2.0
    for name, stays in (("moves", False), ("stays", True)):
        pictures.change(0, 1.0, boxes_at(1.0)._replace(event=name, stays=stays))
    assert [len(pictures.present(0, 1.0 + age)) for age in (1.0, 31.0, 3599.0, 3601.0)] == [2, 1, 1, 0]
