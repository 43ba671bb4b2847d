"""Private zones: their hours, the headings that spare them, and cameras that keep to these."""

import math
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hitmac.agents.deploy.run.cameras import SLACK
from hitmac.agents.deploy.run.privacy import DAYS, Privacy, Zone, arcs_of, uncovered
from hitmac.envs import Scenario, features
from hitmac.envs.parts.tilt import footprints
from tests.agents.deploy.run.test_cameras import REPORTS, Liar, PtzRig, Rig

SQUARE = [(4, -2), (8, -2), (8, 2), (4, 2)]  # ahead of a camera at the origin with the heading 0


def is_inside(polygon, x, y):
    """Return True for points in a polygon (c, 2)."""
    return features.is_inside(polygon, 0, len(polygon), x, y)


def site(**changes):
    return Scenario(
        num_sensors=1, placement="fixed", sensor_positions=[(0, 0)], sensing_range=10, field_of_view=40, **changes
    )


@st.composite
def stars(draw):
    """A polygon around a place, which need not be convex."""
    middle, number = np.array([draw(st.floats(-12, 12)), draw(st.floats(-12, 12))]), draw(st.integers(3, 8))
    angles = np.linspace(0.0, 2.0 * np.pi, number, endpoint=False) + draw(st.floats(0, 3))
    radii = np.array([draw(st.floats(0.2, 9.0)) for _ in range(number)])
    return middle + radii[:, None] * np.stack((np.cos(angles), np.sin(angles)), -1)


@settings(deadline=None, max_examples=100)
@given(polygon=stars(), near=st.floats(0, 8) | st.just(0.0), depth=st.floats(0.1, 10), seed=st.integers(0, 99))
def test_rays_outside_the_arcs_meet_no_zone_and_rays_inside_do(polygon, near, depth, seed):
    arcs, random, far = arcs_of(polygon, near, near + depth), np.random.default_rng(seed), near + depth
    bearing, distance = random.uniform(0, 360, 300), random.uniform(near, far, 300)
    x, y = distance * np.cos(np.radians(bearing)), distance * np.sin(np.radians(bearing))

    def covered(slack):
        return np.array([any((one - low + slack) % 360 <= high - low + 2 * slack for low, high in arcs)
                         for one in bearing])  # fmt: skip

    assert not (is_inside(polygon, x, y) & ~covered(1e-6)).any()
    for one in bearing[covered(-1.0)][:20]:  # not at the edge of an arc
        along = np.linspace(near, far, 20000)
        assert is_inside(polygon, along * np.cos(np.radians(one)), along * np.sin(np.radians(one))).any()


@settings(deadline=None, max_examples=100)
@given(
    polygon=stars(), limits=st.none() | st.tuples(st.floats(-180, 180), st.floats(0, 350)), seed=st.integers(0, 99),
    views=st.tuples(st.floats(10, 90), st.floats(10, 90)).map(sorted),
    tilts=st.tuples(st.floats(0, 90), st.floats(0, 90)).map(sorted), error=st.floats(-SLACK, SLACK),
)  # fmt: skip
def test_no_permitted_footprint_nor_the_way_to_it_covers_a_zone(polygon, limits, seed, views, tilts, error):
    """Within a free range, any heading, and any tilt and zoom between the given ones, each with an error."""
    pan = [(limits[0], limits[0] + limits[1])] if limits else []
    hall = site(pan_limits=pan, zoom=(10, 90), tilt_limits=[(0, 90)], mount_height=3, vertical_view=30)
    privacy = Privacy([Zone(zone=polygon.tolist())], hall, 0)
    free, random = privacy.free(privacy.now(), tuple(views), tuple(tilts)), np.random.default_rng(seed)
    assume(free)
    for low, high in free:
        low, high = (low, high) if math.isfinite(low) else (-180.0, 180.0)
        assert low <= high
        assert not pan or pan[0][0] <= low <= high <= pan[0][1]
        heading, share = random.uniform(low, high, 300), random.uniform(-0.5, 0.5, 300)
        view, tilt = random.uniform(*views, 300), (random.uniform(*tilts, 300) + error).clip(0, 90)
        edges = footprints(hall, view[:, None], tilt[:, None])
        near, far = edges["near"][:, 0], edges["reach"][:, 0]
        bearing = np.radians(heading + error + share * view)
        distance = near + random.uniform(0, 1, 300) * (far - near)
        seen = (near < far) & is_inside(polygon, distance * np.cos(bearing), distance * np.sin(bearing))
        assert not seen.any()


def test_the_headings_that_spare_a_square():
    privacy = Privacy([Zone(zone=SQUARE)], site(), 0)
    edge = math.degrees(math.atan2(2, 4)) + 20 + SLACK
    np.testing.assert_allclose(privacy.free((0,), (40, 40), (0, 0)), [(edge, 360 - edge)], atol=0.1)
    assert privacy.free((), (40, 40), (0, 0)) == [(-math.inf, math.inf)]
    limited = Privacy([Zone(zone=SQUARE)], site(pan_limits=[(-90, 90)]), 0)
    np.testing.assert_allclose(limited.free((0,), (40, 40), (0, 0)), [(-90, -edge), (edge, 90)], atol=0.1)
    around = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    assert Privacy([Zone(zone=around)], site(), 0).free((0,), (40, 40), (0, 0)) == []
    assert uncovered([(350, 370)], (0, 90)) == [(10, 90)]


def test_a_camera_without_any_heading_is_known_before_with_its_time():
    night = Zone(zone=[(-1, -1), (1, -1), (1, 1), (-1, 1)], hours="22:00-06:00", days=["fri"])
    assert Privacy([night], site(), 0).fault() == "fri 22:00"
    assert Privacy([Zone(zone=SQUARE)], site(), 0).fault() == ""
    fixed = site(pan_limits=[(10, 10)])
    assert Privacy([Zone(zone=SQUARE)], fixed, 0).fault() == "mon 00:00"
    assert Privacy([Zone(zone=SQUARE)], site(pan_limits=[(90, 90)]), 0).fault() == ""


@given(begin=st.integers(0, 1439), end=st.integers(1, 1440), day=st.integers(0, 6), minute=st.integers(0, 1439))
def test_hours_hold_from_their_day_on_also_over_midnight(begin, end, day, minute):
    assume(begin != end)
    text = "-".join(f"{one // 60:02}:{one % 60:02}" for one in (begin, end))
    long = (end - begin) % 1440 or 1440
    for days in ([], ["tue"]):
        zone = Zone(zone=SQUARE, hours=text, days=days)
        since = [(1440 * day + minute - 1440 * k - begin) % (7 * 1440) < long for k in range(7)]
        assert zone.holds(day, minute) == (since[1] if days else any(since))
    assert Zone(zone=SQUARE).holds(day, minute)
    assert Zone(zone=SQUARE, days=[DAYS[day]]).holds(day, minute)
    assert not Zone(zone=SQUARE, days=[DAYS[day - 1]]).holds(day, minute)


def test_hours_are_those_of_clocks_on_the_wall_also_when_these_change(monkeypatch):
    """In Berlin, 2 o'clock is left out on 29 March 2026, and comes twice on 25 October."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for begins, holds in ((1774742400, [1, 1, 0]), (1792879200, [1, 1, 1, 1, 1, 0])):  # UTC, every hour
            now = [begins]
            privacy = Privacy([Zone(zone=SQUARE, hours="23:30-03:30")], site(), 0, lambda now=now: now[0])
            found = []
            for _ in holds:
                found.append(bool(privacy.now()))
                now[0] += 3600
            assert found == [bool(one) for one in holds], time.localtime(begins)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zone": SQUARE[:2]}, "three or more points"),
        ({"zone": [(1, 2, 3)]}, r"\[x, y\]"),
        ({"hours": "22-6"}, "hours is '22-6'; it must be HH:MM-HH:MM with two different times"),
        ({"hours": "06:00-06:00"}, "two different times"),
        ({"hours": "25:00-06:00"}, "HH:MM-HH:MM"),
        ({"days": ["Monday"]}, r"days is \['Monday'\]; it must be mon, tue, wed, thu, fri, sat, sun"),
    ],
)
def test_settings_of_zones_are_checked(settings, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Zone(**{"zone": SQUARE} | settings)


# Cameras


class Hours(Privacy):
    """Privacy of a camera at the origin, whose hours the test begins and ends."""

    holds = True

    def now(self):
        return (0,) if self.holds else ()


def guarded(rig, zone=SQUARE, **changes):
    """Let the supervisor of a rig spare a zone."""
    rig.supervisor.view, rig.supervisor._privacy = 40.0, Hours([Zone(zone=zone)], site(**changes), 0)
    return rig.supervisor._privacy


EDGE = math.degrees(math.atan2(2, 4)) + 20  # heading at which the view touches the square


@pytest.mark.parametrize("delay", [0.0, 0.2])
@pytest.mark.parametrize("way", [-1, 1])
def test_no_order_turns_a_view_over_a_zone(delay, way):
    rig = Rig()
    rig.motor.place, rig.motor.delay = 180.0, delay
    guarded(rig)
    rig.run(20.0, rate=way * 30.0)
    assert abs(rig.motor.now() - 180.0) > 100.0
    assert 180.0 - abs(rig.motor.now() - 180.0) >= EDGE
    rig.run(5.0, rate=-way * 30.0)
    assert abs(rig.motor.now() - 180.0) < 60.0


@pytest.mark.parametrize(("start", "ends"), [(10.0, EDGE), (-3.0, -EDGE)])
def test_a_view_is_turned_out_of_a_zone_the_shorter_way_when_its_hour_begins(start, ends):
    rig = Rig()
    rig.motor.place = start
    guarded(rig).holds = False
    rig.run(3.0)
    assert rig.motor.now() == start
    rig.supervisor._privacy.holds = True
    rig.run(6.0)  # without any order
    assert ends / rig.motor.now() == pytest.approx(EDGE / (EDGE + SLACK), abs=0.02)
    assert rig.motor.rate == 0.0
    assert not rig.said


def test_the_shorter_way_does_not_leave_the_pan_limits():
    rig = Rig(limits=(-170.0, 60.0))
    rig.motor.place = 59.0
    guarded(rig, [(3, 3), (4, 8), (5, 8)], pan_limits=[(-170, 60)])
    rig.run(10.0)
    assert rig.motor.far <= 59.0
    assert rig.motor.now() < 59.0 - 20.0


def test_a_camera_without_a_heading_that_spares_its_zones_stays_and_says_so():
    rig = Rig()
    guarded(rig, [(-1, -1), (1, -1), (1, 1), (-1, 1)])
    rig.run(3.0, rate=20.0)
    assert rig.motor.now() == 0.0
    words = "at this tilt and zoom that spares its private zones"
    assert rig.said == [f"camera north has no heading {words}"]
    rig.supervisor._privacy.holds = False
    rig.run(1.0, rate=20.0)
    rig.supervisor._privacy = None
    rig.run(1.0, rate=20.0)
    assert rig.motor.now() > 10.0


LIES = {
    **{name: REPORTS[name] for name in ("constant", "late by a second", "once a second")},
    "noisy": lambda rig: rig.motor.now() + 1.5 * math.sin(1e3 * rig.clock.time),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_camera_that_lies_about_its_heading_does_not_look_at_a_zone(lie):
    rig = Liar(LIES[lie], limits=(-math.inf, math.inf), start=180.0)
    guarded(rig)
    rig.run(2.0)
    for k in range(6):
        rig.run(6.0, rate=30.0 * (-1) ** k)
    assert min(place % 360 for _, place in rig.past) >= EDGE - 0.5
    assert max(place % 360 for _, place in rig.past) <= 360 - EDGE + 0.5


def test_a_camera_that_dies_while_a_zone_is_private_is_stopped_and_spares_it_afterwards():
    rig = Rig()
    rig.motor.place = 90.0
    guarded(rig)
    rig.run(1.0)
    rig.motor.fault = TimeoutError("no answer")
    rig.run(10.0, rate=-20.0)
    assert rig.motor.rate == 0.0
    assert rig.motor.now() >= EDGE
    rig.motor.fault = None
    rig.run(10.0, rate=-20.0)
    assert EDGE <= rig.motor.now() < 70.0


def test_neither_a_tilt_nor_a_zoom_covers_a_zone():
    """From 5 m, tilted down by 50 degrees and zoomed in, a camera looks below a zone; nothing leads into it."""
    hall = site(zoom=(20, 60), tilt_limits=[(10, 50)], mount_height=5, vertical_view=40)
    hall = hall.replace(field_of_view=60, sensing_range=20)
    polygon = np.array([(8, -9), (12, -9), (12, 9), (8, 9)], np.float64)
    rig, random = PtzRig(), np.random.default_rng(0)
    rig.tilt.place, rig.view, rig.supervisor.view = 50.0, 20.0, 20.0
    rig.supervisor._privacy = Hours([Zone(zone=polygon.tolist())], hall, 0)
    poses, orders = [], [(0.0, -20.0, math.nan), (0.0, 0.0, 60.0)]
    orders += [(random.uniform(-40, 40), random.uniform(-20, 20), random.choice([20.0, 40.0, 60.0])) for _ in range(40)]
    for order in orders:
        for _ in range(20):
            rig.run(0.1, *order)
            poses.append((rig.motor.now(), rig.tilt.now(), rig.view))
    assert np.ptp([pose[0] for pose in poses]) > 90.0
    assert np.ptp([pose[1] for pose in poses]) > 20.0
    assert np.ptp([pose[2] for pose in poses]) == 40.0
    for heading, tilt, view in poses:
        edges = footprints(hall, np.array([view]), np.array([tilt]))
        share, part = np.meshgrid(np.linspace(-0.5, 0.5, 21), np.linspace(0, 1, 21))
        distance = edges["near"] + part * (edges["reach"] - edges["near"])
        bearing = np.radians(heading + share * view)
        assert not is_inside(polygon, distance * np.cos(bearing), distance * np.sin(bearing)).any()


def test_a_camera_that_cannot_turn_away_tilts_down():
    hall = site(zoom=(20, 60), tilt_limits=[(10, 50)], mount_height=5, vertical_view=10, pan_limits=[(0, 0)])
    rig, zone = PtzRig(), [(12, -9), (16, -9), (16, 9), (12, 9)]
    rig.supervisor._privacy = Hours([Zone(zone=zone)], hall.replace(sensing_range=20), 0)
    rig.supervisor.axes[0]._limits = (0.0, 0.0)
    rig.tilt.place = 20.0
    rig.run(5.0)
    assert 25.0 < rig.tilt.now() < 50.0
    words = [line.removesuffix(" heading at this tilt and zoom that spares its private zones") for line in rig.said]
    assert words == ["camera north has no", "camera north has a"]
