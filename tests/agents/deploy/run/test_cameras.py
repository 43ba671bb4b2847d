"""Supervision of cameras, on a clock that only the test moves."""

import functools
import math
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.deploy.run.cameras import LONGEST_PAUSE, OLDEST, STARTING, Camera, Cameras, _Supervisor, limited
from hitmac.envs import Scenario
from tests.agents.deploy.run.camera_servers import Motor as InertMotor

FASTEST = Camera.highest_rate


class Motor(Camera):
    """Camera whose calls take `delay` seconds of the clock, and turn out as `fault` says."""

    def __init__(self, clock, heading=0.0):
        self.clock, self.place, self.rate, self.since = clock, heading, 0.0, clock.time
        self.delay, self.fault, self.deaf, self.orders, self.far = 0.0, None, False, [], 0.0

    def now(self):
        self.place, self.since = self.place + self.rate * (self.clock.time - self.since), self.clock.time
        self.far = max(self.far, abs(self.place))
        return self.place

    def heading(self):
        self.clock.time += self.delay / 2
        answer = self.now()
        self.clock.time += self.delay / 2
        if isinstance(self.fault, Exception):
            raise self.fault
        return answer if self.fault is None else self.fault()

    def turn(self, rate):
        self.clock.time += self.delay / 2
        if self.deaf:
            raise TimeoutError("no answer")
        self.now()
        self.rate = rate
        self.orders.append(rate)
        self.clock.time += self.delay / 2

    def close(self):
        self.turn(0.0)


class Clock:
    time = 1000.0

    def __call__(self):
        return self.time


class Rig:
    """A supervised motor; `run` steps for some seconds, with an order at each step."""

    def __init__(self, limits=(-math.inf, math.inf), timeout=1.0):
        self.clock, self.said = Clock(), []
        self.motor = Motor(self.clock)
        self.supervisor = _Supervisor("north", self.motor, [limits], timeout, self.said.append, self.clock)

    def run(self, seconds, rate=math.nan, *tilt_and_view):
        until = self.clock.time + seconds
        while self.clock.time < until - 1e-9:
            if not math.isnan(rate):
                self.supervisor.order(rate, *tilt_and_view)
            wait = self.supervisor.step()  # which takes time, too
            self.clock.time += max(wait, 1e-3)

    @property
    def heading(self):
        return self.supervisor.axes[0].known.at(self.clock.time)


def test_a_camera_is_stopped_first_and_follows_the_newest_order():
    rig = Rig()
    rig.supervisor.step()
    assert rig.motor.orders == [0.0]
    rig.supervisor.order(10.0)
    rig.supervisor.order(20.0)
    rig.run(0.3)
    assert rig.motor.orders == [0.0, 20.0]
    assert rig.motor.now() == pytest.approx(6.0, abs=0.1)
    rig.run(0.3, rate=1000.0)
    assert rig.motor.rate == FASTEST
    rig.run(0.3, rate=-1000.0)
    assert rig.motor.rate == -FASTEST


def test_a_turning_camera_is_told_again_and_stops_without_orders():
    rig = Rig(timeout=1.2)
    rig.run(0.1, rate=10.0)
    rig.run(0.9)
    assert rig.motor.orders == [0.0, 10.0, 10.0]
    rig.run(0.5)
    assert rig.motor.orders[-1] == 0.0
    assert rig.motor.now() == pytest.approx(12.0, abs=1.1)
    assert not rig.said


def test_between_answers_the_heading_goes_on_for_a_while():
    rig = Rig()
    rig.run(1.0, rate=20.0)
    start = rig.clock.time
    assert rig.heading == pytest.approx(rig.motor.now())
    rig.clock.time = start + 0.3
    assert rig.heading == pytest.approx(rig.motor.now())
    rig.clock.time = start + 0.7
    assert math.isnan(rig.heading)


FAULTS = {
    "silent": (TimeoutError("no answer"), "no answer"),
    "not a number": (lambda: math.nan, "its heading is nan"),
    "nonsense": (functools.partial(np.random.default_rng(0).uniform, -180.0, 180.0), "its heading jumps"),
    "garbled": (ValueError("the answer holds\nno pan"), "the answer holds no pan"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_camera_that_does_not_work_is_stopped_reported_once_and_recovers(fault):
    rig = Rig()
    rig.run(1.0, rate=20.0)
    rig.motor.fault, reason = FAULTS[fault]
    rig.run(2.0, rate=20.0)
    assert math.isnan(rig.heading)
    assert rig.motor.rate == 0.0
    rig.run(30.0, rate=20.0)
    assert len(rig.said) == 1
    assert rig.said[0].startswith(f"camera north does not work: {reason}")
    rig.motor.fault = None
    rig.run(LONGEST_PAUSE + 1.0, rate=20.0)
    assert rig.heading == pytest.approx(rig.motor.now())
    assert rig.motor.rate == 20.0
    assert rig.said[1:] == [f"camera north works again, after {float(rig.said[1].split()[-2]):.1f} s"]
    assert 32.0 <= float(rig.said[1].split()[-2]) <= 33.0 + LONGEST_PAUSE


def test_a_camera_that_answers_late_does_not_work_until_it_answers_in_time():
    rig = Rig()
    rig.run(1.0)
    rig.motor.delay = 0.9
    rig.run(10.0, rate=20.0)
    assert rig.said == ["camera north does not work: answers after 0.9 s"]
    assert math.isnan(rig.heading)
    rig.motor.delay = 0.1
    rig.run(4.0, rate=20.0)
    assert len(rig.said) == 2
    assert rig.heading == pytest.approx(rig.motor.now(), abs=0.01)


def test_a_camera_that_is_deaf_is_told_to_stop_when_it_hears_again():
    rig = Rig()
    rig.run(1.0, rate=20.0)
    rig.motor.deaf, rig.motor.fault = True, TimeoutError("no answer")
    rig.run(10.0)
    assert rig.motor.rate == 20.0
    rig.motor.deaf, rig.motor.fault = False, None
    rig.run(LONGEST_PAUSE + 0.2)
    assert rig.motor.rate == 0.0


def test_one_odd_answer_is_ignored():
    rig = Rig()
    rig.run(1.0, rate=20.0)
    rig.motor.fault = lambda: 170.0
    rig.run(0.1, rate=20.0)
    rig.motor.fault = None
    rig.run(2.0, rate=20.0)
    assert rig.heading == pytest.approx(rig.motor.now())
    assert not rig.said


def test_a_camera_has_time_to_start_and_its_absence_is_then_reported():
    rig = Rig()
    rig.motor.fault = ConnectionRefusedError("refused")
    rig.run(STARTING)
    assert not rig.said
    rig.run(OLDEST + LONGEST_PAUSE)
    assert rig.said == ["camera north does not work: refused"]


def test_headings_are_compared_modulo_whole_turns():
    rig = Rig(limits=(170.0, 190.0))
    rig.motor.place = -179.0
    rig.motor.fault = lambda: (rig.motor.place + 180.0) % 360.0 - 180.0
    rig.run(5.0, rate=-10.0)
    assert not rig.said
    assert rig.motor.now() == pytest.approx(-190.0, abs=0.1)


def test_rates_near_a_limit():
    assert limited(10.0, 40.0, (-50.0, 50.0), 0.5) == 10.0
    assert limited(30.0, 40.0, (-50.0, 50.0), 0.5) == 20.0
    assert limited(-300.0, 40.0, (-50.0, 50.0), 0.5) == -180.0
    assert limited(10.0, 60.0, (-50.0, 50.0), 0.5) == 0.0
    assert limited(-10.0, 60.0, (-50.0, 50.0), 0.5) == -10.0
    assert limited(10.0, 400.0, (-50.0, 50.0), 0.5) == 10.0
    assert limited(10.0, 1e6, (-math.inf, math.inf), 0.5) == 10.0


@settings(deadline=None, max_examples=100)
@given(
    orders=st.lists(st.tuples(st.floats(-200, 200), st.floats(0.05, 1.0)), min_size=1, max_size=12),
    delays=st.lists(st.sampled_from((0.0, 0.02, 0.2)), min_size=1, max_size=5),
    lost=st.lists(st.booleans(), min_size=2, max_size=7),
)
def test_no_order_takes_a_camera_beyond_its_limits(orders, delays, lost):
    rig = Rig(limits=(-30.0, 30.0))
    for k, (rate, seconds) in enumerate(orders):
        rig.motor.delay = delays[k % len(delays)]
        rig.motor.fault = TimeoutError("lost") if lost[k % len(lost)] and k else None
        rig.run(seconds, rate)
        rig.motor.now()
    step_of_latency = FASTEST * 3.0 * max(delays)  # an order, a reading and another order
    assert rig.motor.far <= 30.0 + step_of_latency + 1e-6


class Hanging(Camera):
    """Camera that never answers."""

    def __init__(self):
        self.asked, self.free = threading.Event(), threading.Event()

    def heading(self):
        self.asked.set()
        self.free.wait()
        raise TimeoutError

    def turn(self, rate):
        self.heading()

    close = heading


class Noted(Camera):
    """Camera that notes its orders."""

    def __init__(self):
        self.orders, self.turned, self.closed = [], threading.Event(), threading.Event()

    def heading(self):
        return 90.0

    def turn(self, rate):
        self.orders.append(rate)
        if rate:
            self.turned.set()

    def close(self):
        self.closed.set()


def test_a_hanging_camera_holds_up_neither_the_loop_nor_the_others(monkeypatch):
    monkeypatch.setattr("hitmac.agents.deploy.run.cameras.CLOSING", 0.2)
    hanging, other, said = Hanging(), Noted(), []
    site = Scenario(num_sensors=2, sensor_names=["north", "south"])
    cameras = Cameras([hanging, other], site, said.append, timeout=60.0)
    assert hanging.asked.wait(10)
    cameras.order(np.array([10.0, 10.0]))
    assert other.turned.wait(10)
    assert np.isnan(cameras.headings[0])
    cameras.order(np.array([np.nan, np.nan]))
    assert not said
    cameras.close()
    assert other.closed.is_set()
    assert said == ["camera north may still turn: it does not answer the order to stop"]
    monkeypatch.setattr("hitmac.agents.deploy.run.cameras.HANGING", -60.0)  # from the start on
    cameras.order([10.0, np.nan])
    cameras.order([10.0, np.nan])
    assert [line for line in said if "north may still turn: its driver has not returned" in line] == said[1:2]
    hanging.free.set()
    for thread in cameras._threads:
        thread.join(10)
    cameras.close()
    assert 10.0 in other.orders


def test_a_stop_that_gets_lost_as_the_run_ends_is_sent_again():
    class Lossy(Noted):
        lost = 3

        def close(self):
            self.lost -= 1
            if self.lost >= 0:
                raise TimeoutError("no answer")
            super().close()

    camera, said = Lossy(), []
    cameras = Cameras([camera], Scenario(num_sensors=1), said.append, timeout=60.0)
    before = signal.getsignal(signal.SIGINT)
    close = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    close.start()
    cameras.close()  # a second Ctrl-C does not end it
    assert camera.closed.is_set()
    assert not said
    assert signal.getsignal(signal.SIGINT) is before


class Liar(Rig):
    """A rig whose motor accelerates, and whose camera reports what `report` makes of the true heading and the time."""

    def __init__(self, report, acceleration=math.inf, limits=(-45.0, 45.0), start=0.0):
        super().__init__(limits)
        motor, self.past, self.start = self.motor, [], start
        motor.place = start
        motor.fault = lambda: report(self)
        self.acceleration = acceleration

    def run(self, seconds, rate=math.nan):
        until = self.clock.time + seconds
        while self.clock.time < until - 1e-9:
            super().run(1e-3, rate)
            self.past.append((self.clock.time, self.motor.now()))

    def before(self, seconds):
        """Return the true heading some seconds ago."""
        return next((place for time, place in reversed(self.past) if time <= self.clock.time - seconds), self.start)


REPORTS = {
    "honest": lambda rig: rig.motor.now(),
    "constant": lambda rig: rig.start,
    "at rest only": lambda rig: rig.motor.now() if rig.motor.rate == 0.0 else rig.before(1e9),
    "once a second": lambda rig: rig.before(rig.clock.time % 1.0),
    "late by a second": lambda rig: rig.before(1.0),
    "in other units": lambda rig: rig.motor.now() / 180.0,
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_camera_that_lies_about_its_heading_stays_within_its_limits(report):
    """Turned to and fro for a minute: beyond a limit by no more than one period at the ordered rate."""
    rig = Liar(REPORTS[report])
    rig.run(2.0)
    for k in range(12):
        rig.run(5.0, rate=30.0 * (-1) ** k)
    assert 40.0 < rig.motor.far <= 45.0 + 30.0 * 0.1
    doubted = [line for line in rig.said if line.startswith("camera north does not turn as ordered")]
    assert len(doubted) == (report in ("constant", "in other units"))


def test_a_device_that_takes_slower_rates_for_those_ordered_and_says_so_is_not_doubted():
    rig = Liar(REPORTS["honest"])
    turn, motor = rig.motor.turn, rig.motor

    def slower(rate):
        turn(0.4 * rate)
        motor.sent = 0.4 * rate, 0.0

    motor.turn = slower
    rig.run(2.0)
    for k in range(6):
        rig.run(1.0, rate=20.0 * (-1) ** k)
        rig.run(2.0, rate=0.0)
    assert not rig.said
    assert rig.heading == pytest.approx(rig.motor.now(), abs=0.1)


def test_a_motor_that_takes_its_time_to_reverse_is_not_doubted():
    """A reversal from 20 degrees a second loses 20^2 / 100 = 4 degrees."""
    rig, random = Rig(limits=(-45.0, 45.0)), np.random.default_rng(0)
    real = InertMotor(acceleration=100.0, clock=rig.clock)
    rig.motor.heading, rig.motor.turn = lambda: real.pan, real.order
    rig.run(2.0)
    for _ in range(100):
        for rate in random.choice((-20.0, 0.0, 20.0), 3):
            rig.run(0.25, rate=rate)
        rig.run(2.0, rate=0.0)
    assert not rig.said
    assert np.ptp((real.lowest, real.highest)) > 10.0


def test_what_a_camera_reports_and_how_it_turns_are_told_when_they_differ():
    rig = Liar(REPORTS["constant"])
    rig.run(2.0)
    rig.run(4.0, rate=20.0)
    rig.run(2.0, rate=0.0)
    assert rig.said == [
        "camera north does not turn as ordered: it reports 0 degrees after orders to 45; its limits count for both"
    ]
    assert rig.heading == pytest.approx(rig.motor.now(), abs=0.1)  # it is that of the orders


def test_room_to_brake_is_left():
    """By hand at 45 degrees per second, a motor that brakes at 180 degrees per second squared stays inside."""
    place, rate = 0.0, 0.0
    for _ in range(400):
        wanted = limited(45.0, place, (-45.0, 45.0), 0.15, 180.0)
        for _ in range(10):
            rate += min(max(wanted - rate, -1.8), 1.8)
            place += 0.01 * rate
    assert 44.0 < place <= 45.0 + 1e-6


class PtzRig(Rig):
    """A rig whose motor also tilts, from 30 degrees, and zooms; it stops at the tilt `stuck`."""

    def __init__(self):
        super().__init__()
        motor, clock = self.motor, self.clock
        self.tilt, self.stuck, self.lens, self.view, self.reported = Motor(clock, 30.0), math.inf, "good", 60.0, None
        motor.pose, motor.move, motor.zoom = self.pose, self.move, self.zoom
        limits = [(-math.inf, math.inf), (10.0, 50.0)]
        given = "north", motor, limits, 1.0, self.said.append, clock
        self.supervisor = _Supervisor(*given, zoom=(20.0, 60.0), view=60.0)

    def pose(self):
        self.tilt.place = min(self.tilt.now(), self.stuck)
        tilt = self.tilt.place if self.reported is None else self.reported
        return self.motor.heading(), tilt, math.nan if self.lens == "lost" else self.view

    def move(self, rate, tilt_rate):
        self.motor.turn(rate)
        self.tilt.turn(tilt_rate)

    def zoom(self, view):
        self.view = view if self.lens == "good" else self.view


def test_tilts_stay_within_their_limits_and_a_lens_within_its_own():
    rig = PtzRig()
    rig.run(4.0, 10.0, 30.0, 5.0)
    assert 49.0 < rig.tilt.now() <= 50.0 + 1e-6
    assert rig.supervisor.axes[1].known.at(rig.clock.time) == pytest.approx(rig.tilt.now())
    assert rig.view == rig.supervisor.view == 20.0
    for view in (30.0, 40.0):  # a new one is ordered at once
        rig.run(0.3, 10.0, 0.0, view)
        assert rig.view == view
    rig.run(4.0, 10.0, -30.0)
    assert 10.0 - 1e-6 <= rig.tilt.now() < 11.0
    assert rig.motor.now() == pytest.approx(86.0, abs=2.0)
    assert not rig.said
    rig.run(1.5)
    assert rig.tilt.orders[-1] == rig.motor.orders[-1] == 0.0  # without orders


def test_a_tilt_that_lies_counts_at_a_limit_as_its_orders_say():
    rig = PtzRig()
    rig.run(1.0)
    rig.reported = 30.0
    rig.run(6.0, 10.0, 10.0)
    assert rig.tilt.now() <= 50.0 + 1.0
    rig.run(4.0)
    assert rig.said == [
        "camera north does not tilt as ordered: it reports 30 degrees after orders to 50; its limits count for both"
    ]


def test_a_tilt_at_its_end_and_jumps_of_a_tilt_are_told():
    rig = PtzRig()
    rig.stuck = 31.0
    rig.run(4.0, 10.0, 10.0)
    rig.run(4.0)
    assert rig.said[0].startswith("camera north does not tilt as ordered: it reports 31 degrees after orders to 50")
    rig = PtzRig()
    rig.run(1.0, 10.0, 0.0)
    pose, random = rig.pose, np.random.default_rng(0)
    rig.motor.pose = lambda: (pose()[0], random.uniform(-90, 90), 60.0)
    rig.run(10.0, 10.0, 0.0)
    assert rig.said[0].startswith("camera north does not work: its tilt jumps, now to")


@pytest.mark.parametrize(
    ("lens", "words"),
    [
        ("stuck", "camera north does not zoom as ordered: it reports 60 degrees, not 30"),
        ("lost", "camera north does not report its zoom: its last known field of view counts"),
    ],
)
def test_a_lens_that_fails_is_told_once_and_the_camera_goes_on_turning(lens, words):
    rig = PtzRig()
    rig.motor.answer = 0.0, -30.0, 0.0
    rig.run(1.0, 10.0, 0.0)
    rig.lens = lens
    rig.motor.answer = 0.0, -30.0, 0.0 if lens == "stuck" else math.nan
    rig.run(29.0, 10.0, 0.0, 30.0)
    assert rig.supervisor.past[-1][2:] == (-30.0, 0.0)  # of the device
    assert words in rig.said
    assert len(rig.said) == len(set(rig.said))
    assert rig.supervisor.view == 60.0
    assert rig.motor.now() == pytest.approx(300.0, abs=3.0)
