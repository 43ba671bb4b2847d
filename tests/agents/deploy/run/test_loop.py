"""Loop of real cameras: its time, its orders, and its faults, one by one."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from hitmac.agents import Agent, load_agent
from tests.agents.deploy.run.fakes import NAMES, SITE, UNIX, Fleet, Turning, made, played, scan, scans

T = SITE.time_step
EVERY = [T * k for k in range(200)]


def times(frames):
    return [round(frame["time"] - UNIX, 3) for frame in frames]


def messages(frames):
    return [message for frame in frames for message in frame["messages"]]


def test_a_decision_follows_the_last_scan_of_a_step_at_once():
    events = [*scans(*EVERY, cameras=["west"]), *scans(*EVERY, cameras=["east"], late=0.09)]
    loop, _, policy = made(events)
    frames = played(loop, 6)
    np.testing.assert_allclose(times(frames)[1:], [T * k + 0.09 for k in range(1, 6)], atol=1e-3)
    assert [frame["latency"] for frame in frames] == [0.0] * 6
    assert all(seen["looked"].all() for seen in policy.seen[1:])
    assert frames[3]["detections"] == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert not messages(frames)


def test_a_camera_that_misses_a_step_is_waited_for_a_quarter_of_it():
    east = [event for event in scans(*EVERY, cameras=["east"]) if not 0.9 < event[0] < 1.1]
    loop, _, policy = made([*scans(*EVERY, cameras=["west"]), *east])
    frames = played(loop, 8)
    np.testing.assert_allclose(times(frames), [0.05 + T * k + 0.25 * T * (k == 5) for k in range(8)], atol=1e-3)
    assert [seen["looked"].tolist() for seen in policy.seen[4:7]] == [[True, True], [True, False], [True, True]]


def test_scans_more_often_than_steps_do_not_make_it_faster():
    loop, _, _ = made(scans(*(0.02 * k for k in range(300)), late=0.01))
    frames = played(loop, 20)
    assert times(frames)[-1] - times(frames)[0] == pytest.approx(19 * T, abs=0.3 * T)
    assert np.diff(times(frames)).min() > 0.5 * T


def test_without_detections_it_goes_on_in_its_own_time():
    frames = played(made([])[0], 12)
    np.testing.assert_allclose(np.diff(times(frames)), T, atol=1e-3)
    assert messages(frames) == [f"camera {name} sends no detections" for name in NAMES]


def test_turns_become_rates_and_a_camera_that_does_not_answer_gets_none():
    fleet = Fleet([3.0, np.nan])
    loop, _, policy = made(scans(*EVERY), fleet=fleet)
    frame = played(loop, 1)[0]
    np.testing.assert_array_equal(fleet.orders[0], [5.0 / T, np.nan])
    assert (frame["orders"], frame["heading"]) == ([25.0, None], [3.0, None])
    assert policy.seen[0]["sensors"][1].tolist() == [0.0] * 7
    json.dumps(frame, allow_nan=False)


class Steering(Turning):
    """Policy that turns left, narrows the view and tilts down."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        super().predict(observation)
        return np.ones((1, 6), np.int64), state


class PtzFleet(Fleet):
    """Cameras with tilts and fields of view."""

    tilts, views = np.array([45.0, 30.0]), np.array([90.0, 60.0])

    def order(self, rates, tilt_rates, views):
        self.orders.append(np.concatenate((rates, tilt_rates, views)))


def test_tilts_become_rates_and_zooms_fields_of_view_but_not_of_cameras_by_hand():
    site = SITE.replace(tilt_limits=[(10, 80)], mount_height=100, vertical_view=60, zoom=(30, 120), tilt_step=2)
    fleet, policy, hands = PtzFleet(), Steering(), SimpleNamespace(paused=False, by_hand={1: -7.5}, left={})
    agent = Agent("steering", policy, policy.features)
    loop, _, _ = made(scans(*EVERY), agent=agent, hands=hands, fleet=fleet, site=site)
    frame = played(loop, 1)[0]
    np.testing.assert_array_equal(fleet.orders[0], [5.0 / T, -7.5, 2.0 / T, 0.0, 80.0, np.nan])
    assert (frame["view"], frame["tilt"]) == ([90.0, 60.0], [45.0, 30.0])
    near = [100 / np.tan(np.radians(75)), 100 / np.tan(np.radians(50))]
    far = [100 / np.tan(np.radians(15)), 100 / np.tan(np.radians(10))]
    np.testing.assert_allclose(frame["near"], near, rtol=1e-5)
    np.testing.assert_allclose(frame["reach"], far, rtol=1e-5)
    sensors = policy.seen[0]["sensors"]
    np.testing.assert_allclose(sensors[:, [4, 5, 7, 8]], np.stack(([45, 30], far, [45, 30], near), -1), rtol=1e-5)
    json.dumps(frame, allow_nan=False)


def test_people_pause_the_agent_and_turn_cameras_by_hand():
    hands, fleet = SimpleNamespace(paused=False, by_hand={1: -7.5}, left={}), Fleet()
    loop, _, _ = made(scans(*EVERY), hands=hands, fleet=fleet)
    loop.inbox.events.insert(4, (0.44, lambda: setattr(hands, "paused", True)))
    frames = played(loop, 4)
    assert [order.tolist() for order in fleet.orders] == [[25.0, -7.5]] * 2 + [[0.0, -7.5]] * 2
    assert [frame["paused"] for frame in frames] == [False, False, True, True]
    assert frames[0]["by_hand"] == [1]


def long(line):
    """A fault of four steps from 1 s: a line in each."""
    return [(1.0 + T * k + 0.06, line) for k in range(4)]


FAULTS = {
    "no JSON": (b'{"camera": "west", [[1.5, 2.5]]', "lines of detections are invalid: it is not JSON"),
    "another camera": (
        scan("north", 1.0),
        "lines of detections are invalid: camera is 'north'; it must be one of west, east, or its index from 0",
    ),
    "the future": (scan("west", 3600.0), "camera west sends detections that are from the future: by 3598.9 s"),
    "the past": (scan("west", -60.0), "camera west sends detections that are too old: by 61.1 s"),
    "a place far away": (
        json.dumps({"camera": "west", "detections": [[1e300, 0.0]]}).encode(),
        "some detections of camera west are left out: it must be inside the arena of "
        f"{SITE.arena_words}, but for its error",
    ),
    "no place": (
        json.dumps({"camera": 0, "detections": [["12.75", "4.5"]]}).encode(),
        "some detections of camera west are left out: a detection must be two numbers, or five, as the others of its "
        "scan",
    ),
    "an empty detection": (
        json.dumps({"camera": "west", "detections": [[]]}).encode(),
        "some detections of camera west are left out: a detection must be two numbers, or five, as the others of its "
        "scan",
    ),
    "the same again": (scan("west", 0.8), "the detections of camera west are refused: the times of a camera must rise"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_detections_is_one_line_at_its_beginning_and_one_at_its_end(fault):
    line, message = FAULTS[fault]
    times_of_west = [time for time in EVERY if not (0.95 < time < 2.0 and b"north" not in line)]
    events = [*scans(*times_of_west, cameras=["west"]), *scans(*EVERY, cameras=["east"]), *long(line)]
    frames = played(made(events)[0], 30)
    said = [one for one in messages(frames) if "sends no" not in one]
    assert said[0] == message
    assert len(said) == 2
    assert said[1].startswith("over after 0.6 s (4 times): ")
    assert said[1].endswith(message.partition(": ")[0])
    assert not any("12.75" in one or "2.5" in one for one in said)  # no detection
    both = [{row[0] for row in frame["detections"]} == {0.0, 1.0} for frame in frames]
    assert both[:4] == [True] * 4
    assert both[-15:] == [True] * 15
    assert all(1.0 in {row[0] for row in frame["detections"]} for frame in frames)  # the other camera


@pytest.mark.parametrize("by", [-3600.0, 3600.0])
def test_a_clock_that_is_set_delays_nothing(by):
    loop, clock, policy = made([])
    before, after = scans(*EVERY[:10]), scans(*EVERY[10:])
    shifted = [
        (then, json.dumps({**json.loads(line), "time": json.loads(line)["time"] + by}).encode()) for then, line in after
    ]
    loop.inbox.events = [*before, (EVERY[10] - 0.01, lambda: setattr(clock, "unix", UNIX + by)), *shifted]
    frames = played(loop, 30)
    np.testing.assert_allclose(np.diff(times(frames)), T, atol=1e-3)
    assert messages(frames) == [f"the computer's clock was set by {by:+.1f} s"]
    assert all(seen["looked"].all() for seen in policy.seen)


def test_cameras_that_fall_silent_are_reported_once_and_again_when_they_are_back():
    loop, _, policy = made(scans(*EVERY[:10], *EVERY[50:]))
    frames = played(loop, 80)
    began = [f"camera {name} sends no detections" for name in NAMES]
    assert messages(frames)[:2] == began
    assert [line.rpartition(": ")[2] for line in messages(frames)[2:]] == began
    assert policy.seen[20]["sensors"].any() == policy.seen[20]["looked"].any() == False  # noqa: E712
    assert policy.seen[-1]["looked"].all()
    assert frames[-1]["latency"] == 0.0  # in time with them again


def test_a_flood_and_a_slow_computer_are_reported_and_steps_left_out():
    loop, clock, policy = made(scans(*EVERY))
    decide = policy.predict

    def slow(*arguments, **options):
        clock.now += 0.9 if len(policy.seen) == 5 else 0.0
        loop.inbox.dropped = 17 * (len(policy.seen) == 5)
        return decide(*arguments, **options)

    policy.predict = slow
    frames = played(loop, 30)
    said = messages(frames)
    assert said[:2] == [
        "the loop is late: 4 steps are left out",
        "detections come faster than they can be read: the oldest are dropped",
    ]
    assert len(said) == 4
    assert np.diff(times(frames))[-10:] == pytest.approx(T, abs=1e-3)


def test_a_planner_follows_the_tracks_of_a_walking_target():
    agent = load_agent("belief-planner-fastest", SITE)
    walking = [(time + 0.05, scan(name, time, [[-400.0 + 50.0 * time, 300.0]])) for time in EVERY for name in NAMES]
    loop, _, _ = made(walking, agent=agent)
    loop.warm_up()
    frame = played(loop, 40)[-1]
    x, y, xx, xy, yy, existence, label = max(frame["tracks"], key=lambda track: track[5])
    assert abs(x - (-400.0 + 50.0 * 39 * T)) < 30.0
    assert abs(y - 300.0) < 30.0
    assert min(xx, yy, xx * yy - xy * xy) > 0.0
    assert existence > 0.9
    assert label == int(label)
    assert frame["covered"] > 0.9  # it is in the view of the western camera
    assert frame["view"] == [90.0, 90.0]
