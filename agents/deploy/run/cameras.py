"""Cameras that turn: the interface of their drivers, and the supervision of all cameras, one thread each."""

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.features import wrapped
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.parts.tilt import make_mount
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import Checked, NotNegative, Positive, shortly
from hitmac.signals import ignored_signals

# In seconds, unless they say otherwise.
PERIOD = 0.1  # between two readings of a heading
OLDEST = 0.5  # age of an answer up to which the heading is extrapolated from it
STARTING = 3.0  # time to the first answer of a camera, before which its failures are not reported
CLOSING = 2.0  # longest time in which all cameras are stopped at the end
HANGING = 5.0  # time after which a camera is told whose driver does not return
LONGEST_PAUSE = 2.0  # between two attempts to reach a camera
REPEAT = 0.5  # time after which the rate of a turning camera is sent again
SLOWEST = 0.1  # rate below which a camera is stopped, degrees per second
REST = 1.5  # time after a stop from which on an answer is that of a camera at rest
SLACK = 3.0  # largest difference of two answers of a camera at rest, degrees
PAST = 400  # number of answers that are kept
ZOOM_SLACK = 0.05  # share of a field of view by which a reported one may differ from the order
ZOOM_REPEAT = 1.0  # time after which an order of a field of view is repeated that the camera does not report
LOST_ZOOM = 10.0  # time after which a camera is told not to zoom as ordered
LEAVING = 0.5  # time in which a camera leaves a heading that it must not have, if its motor can


@dataclass(kw_only=True)
class Camera(Checked):
    """Driver of a camera. Its calls may block and raise any error; one thread makes them all.

    Where the site's cameras tilt or zoom, :meth:`pose`, :meth:`move` and :meth:`zoom` take the place of `heading` and
    `turn`. An invalid setting raises ``ValueError`` or ``TypeError``.
    """

    highest_rate: Positive = 60.0
    """Highest rate, degrees per second."""
    highest_tilt_rate: NotNegative = 0.0
    """Highest rate of the tilt, degrees per second; 0: as of the pan."""
    braking: Positive = 90.0
    """Deceleration, degrees per second squared: the way that a camera needs to stop is left before a limit."""

    answer = math.nan, math.nan, math.nan
    """Pan, tilt and zoom of the device at its last answer, the angles in degrees; NaN: unknown."""
    sent = tuple[float, ...]()
    """Rates of turn and tilt that the device takes for the last ones ordered; empty: these."""

    @property
    def steps(self) -> bool:
        """True if the device was last moved by a step."""
        return False

    def heading(self) -> float:
        """Return the present heading of the device, degrees in the site's frame (counter-clockwise, 0 along +x)."""
        return self.pose()[0]

    def turn(self, rate: float) -> None:
        """Turn at a rate, degrees per second counter-clockwise, until the next call, and do not tilt; 0 stops."""
        self.move(rate, 0.0)

    def pose(self) -> tuple[float, float, float]:
        """Return heading, tilt below the horizon and horizontal field of view, degrees; NaN: not reported."""
        raise NotImplementedError

    def move(self, rate: float, tilt_rate: float) -> None:
        """Turn and tilt at rates, degrees per second counter-clockwise and down, until the next call."""
        raise NotImplementedError

    def zoom(self, view: float) -> None:
        """Zoom to a horizontal field of view, degrees."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the camera and leave it."""
        self.turn(0.0)


def names_of(scenario: Scenario) -> list[str]:
    """Return the names of the sensors, by default their numbers from 0."""
    return list(scenario.sensor_names) or [str(i) for i in range(scenario.num_sensors)]


class Cameras:
    """Cameras of a site, each supervised by a thread of its own, so that the caller never waits for a device.

    Every :data:`PERIOD` a thread reads the heading and sends the newest order, slower or not at all where the camera
    would leave its pan limits before the next reading, or could not brake before them. At a limit, the heading that
    follows from the orders counts as well as the reported one, which may lag or stand still. It stops a camera whose
    heading is unknown. An error, a late answer, or a heading that no motor reaches counts as no answer; the pauses
    between further attempts double up to :data:`LONGEST_PAUSE`. All this holds for the tilt, too. Orders of a field of
    view are limited to those of the site's `zoom`, and repeated until the camera reports it.

    The `drivers` are those of the sensors of the scenario, whose ``pan_limits`` and ``tilt_limits`` hold. `tell` takes
    a line when a camera goes wrong, and one when it works again, in any thread. A camera without an order for `timeout`
    seconds stops. Of each sensor `privacy` has its :class:`~hitmac.agents.deploy.run.privacy.Privacy`, None without
    one: where a zone is private, the headings at which the view covers it are beyond a limit as those of the pan are,
    a tilt or a zoom that would cover it is not sent, and a camera whose view covers it is turned away.
    """

    def __init__(
        self, drivers: Sequence[Camera], scenario: Scenario, tell: Callable[[str], None], *, timeout: float,
        privacy: Sequence[Any] = (), clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        pans, tilts = limits_of(scenario).tolist(), make_mount(scenario).limit.tolist()
        view = scenario.of_each_sensor("field_of_view")
        self._tell, self._clock = tell, clock
        self._all = [
            _Supervisor(
                name, driver, [pans[i], *tilts[i : i + 1]], timeout, tell, clock, zoom=scenario.zoom, view=view[i],
                privacy=privacy[i] if privacy else None,
            )
            for i, (name, driver) in enumerate(zip(names_of(scenario), drivers, strict=True))
        ]  # fmt: skip
        self._threads = [threading.Thread(target=one.run, daemon=True) for one in self._all]
        for thread in self._threads:
            thread.start()

    @property
    def headings(self) -> np.ndarray:
        """Present headings (n,), degrees, extrapolated from the last answers; NaN where they are too old."""
        return self._angles(0)

    def past(self, i: int, since: float = -math.inf) -> np.ndarray:
        """Return the answers (k, 4) of a camera from the last one before a time on, and what follows for now.

        The columns are the time, the heading, and the device's tilt and zoom, NaN where they are unknown.
        """
        rows, now = [*self._all[i].past], self._clock()  # in this order: an answer may come in between
        del rows[: max(bisect_left(rows, since, key=itemgetter(0)) - 1, 0)]
        heading = self._all[i].axes[0].known.at(now)
        rows += [(now, heading, *rows[-1][2:])] if rows and not math.isnan(heading) else []
        return np.array(rows, np.float64).reshape(-1, 4)

    @property
    def tilts(self) -> np.ndarray:
        """The same of the tilts (n,), of cameras that tilt."""
        return self._angles(1)

    @property
    def views(self) -> np.ndarray:
        """Last known fields of view (n,), degrees."""
        return np.array([one.view for one in self._all])

    @property
    def untouched(self) -> np.ndarray:
        """Seconds (n,) since a camera last moved without an order, as by its own joystick; infinite: it did not."""
        return self._clock() - np.array([max(axis.moved for axis in one.axes) for one in self._all])

    def _angles(self, axis: int) -> np.ndarray:
        now = self._clock()
        return np.array([one.axes[axis].known.at(now) for one in self._all])

    def order(
        self, rates: Iterable[float], tilt_rates: Iterable[float] | None = None, views: Iterable[float] | None = None
    ) -> None:
        """Order rates (n,), degrees per second, and fields of view (n,), degrees, NaN: none; return at once."""
        n = len(self._all)
        others = [0.0] * n if tilt_rates is None else tilt_rates, [math.nan] * n if views is None else views
        for one, rate, tilt_rate, view in zip(self._all, rates, *others, strict=True):
            one.look()
            if not math.isnan(rate):
                one.order(float(rate), float(tilt_rate), float(view))

    def close(self) -> None:
        """Stop all cameras, within :data:`CLOSING` seconds even where a device hangs; no signal interrupts it."""
        with ignored_signals():
            for one in self._all:
                one.ends = True
                one.wake.set()
            until = time.monotonic() + CLOSING
            for one, thread in zip(self._all, self._threads, strict=True):
                thread.join(max(until - time.monotonic(), 0.0))
                if thread.is_alive():
                    self._tell(f"camera {one.name} may still turn: it does not answer the order to stop")


class _Known(NamedTuple):
    """Heading at a time, the rate since then, and the time of the answer from which they derive."""

    heading: float = math.nan
    time: float = -math.inf
    rate: float = 0.0
    answered: float = -math.inf

    def at(self, now: float) -> float:
        """Return the heading extrapolated to `now`; NaN if the answer is too old."""
        return self.heading + self.rate * (now - self.time) if now - self.answered <= OLDEST else math.nan


class _Reckoned:
    """Heading that follows from the orders since the last answer at rest that agrees with them.

    A camera at rest has turned as ordered if its answer has changed by at least half of it, in the same direction, but
    for the way ``sum of |d| d / (2 a)`` that changes d of the rate cost at a deceleration a, not 0 after a reversal.
    """

    def __init__(self, braking: float) -> None:
        self.doubtful = False  # the last answer at rest disagreed
        self._braking, self._lag = braking, 0.0
        self._start, self._heading, self._rate, self._since = math.nan, math.nan, 0.0, math.inf  # time of the rate

    def at(self, now: float) -> float:
        """Return the heading at a time; NaN before the first answer."""
        return self._heading + self._rate * (now - self._since) if self._rate else self._heading

    def rests(self, now: float) -> bool:
        """Return True if a camera that follows its orders is at rest."""
        return not self._rate and now - self._since >= REST

    def ordered(self, rate: float, now: float) -> None:
        """Take a new rate."""
        if rate != self._rate:
            self._lag += (rate - self._rate) * abs(rate - self._rate) / (2.0 * self._braking)
            self._heading, self._rate, self._since = self.at(now), rate, now

    def answered(self, heading: float, now: float) -> None:
        """Take a reported heading."""
        if math.isnan(self._start):
            self._start = self._heading = heading
            self._since = now
        elif self.rests(now):
            turned = self._heading - self._start
            found = heading - self._start
            found += 360.0 * round((turned - found) / 360.0)
            least = 0.5 * abs(turned) - abs(self._lag)
            self.doubtful = abs(turned) > SLACK and found * turned < least * abs(turned)
            if not self.doubtful:
                self._start = self._heading = self._start + found
                self._lag = 0.0


class _Axis:
    """Turn or tilt of a camera: its angle, and the order for it."""

    def __init__(self, name: str, verb: str, highest: float, braking: float, limits: Sequence[float]) -> None:
        self.name, self.verb, self.known, self.sent, self._real = name, verb, _Known(), math.nan, 0.0
        self._highest, self._braking, self._limits = highest, braking, limits
        self._order = 0.0, -math.inf  # rate, time
        self._still, self.moved = math.nan, -math.inf  # answer at rest; time of one that is another without an order
        self._answer, self._answered, self._agreeing = math.nan, -math.inf, 1
        self._reckoned = _Reckoned(self._braking)

    def order(self, rate: float, now: float) -> None:
        """Replace the order by a rate."""
        self._order = rate, now

    def allowed(
        self, now: float, timeout: float, horizon: float, limits: Sequence[float] | None = None, away: float = 0.0
    ) -> float:
        """Return the rate that is allowed now, within further limits: that of the order, or less.

        A turn `away` is made whatever the order, unless that turns faster in this direction.
        """
        (rate, ordered), angle = self._order, self.known.at(now)
        if math.isnan(angle):
            return 0.0
        rate *= now - ordered <= timeout
        rate = max(rate, away / LEAVING) if away > 0.0 else min(rate, away / LEAVING) if away < 0.0 else rate
        rate = min(max(rate, -self._highest), self._highest)
        for place in (angle, self._reckoned.at(now)):
            for own in filter(None, (self._limits, limits)):
                rate = limited(rate, place, own, horizon, self._braking)
        return rate if abs(rate) >= SLOWEST else 0.0

    def span(self, now: float, horizon: float, rate: float = 0.0) -> tuple[float, float]:
        """Return the lowest and the highest angle until it rests again, after `horizon` seconds at a rate.

        Those of its answers and of its orders count, and its present rate.
        """
        angle, reckoned, sent = self.known.at(now), self._reckoned.at(now), 0.0 if math.isnan(self.sent) else self.sent
        places = angle, reckoned - 360.0 * round((reckoned - angle) / 360.0)
        ways = [0.0, *(one * horizon + one * abs(one) / (2.0 * self._braking) for one in (rate, sent))]
        return min(places) + min(ways), max(places) + max(ways)

    def sends(self, rate: float, then: float, real: float) -> None:
        """Note a rate that was ordered at a time, and the one that the device takes for it."""
        self.sent, self._real = rate, real
        self._reckoned.ordered(real, then)
        self.known = _Known(self.known.at(then), then, real, self.known.answered)

    def check(self, angle: float, then: float, least: int) -> None:
        """Raise an error unless an answer is within reach of the one before, as the last `least` ones were."""
        jump = abs(wrapped(angle - self._answer))
        reach = SLACK + 1.5 * self._highest * (then - self._answered)
        self._agreeing = 0 if jump > reach else self._agreeing + 1
        self._answer, self._answered = angle, then
        if self._agreeing < least:
            raise ValueError(f"its {self.name} jumps, now to {angle:.0f} degrees")

    def answered(self, angle: float, then: float, restarts: bool) -> str:
        """Take a checked answer; return a message if it is the first that contradicts the orders."""
        if restarts:  # it is not known which orders were followed
            self._reckoned = _Reckoned(self._braking)
        if restarts or not self._reckoned.rests(then):
            self._still = math.nan
        elif math.isnan(self._still):
            self._still = angle
        elif abs(wrapped(angle - self._still)) > SLACK:
            self._still, self.moved = angle, then
        before, words = self._reckoned.doubtful, ""
        self._reckoned.answered(angle, then)
        if self._reckoned.doubtful:
            if not before:
                places = f"it reports {angle:.0f} degrees after orders to {self._reckoned.at(then):.0f}"
                words = f"does not {self.verb} as ordered: {places}; its limits count for both"
            angle = self._reckoned.at(then)
        self.known = _Known(angle, then, 0.0 if math.isnan(self.sent) else self._real, then)
        return words


class _Supervisor:
    """Supervision of one camera, in the thread that calls :meth:`run`; others call :meth:`order` and read `axes`.

    `limits` are those of the pan, and of the tilt if the camera tilts; `zoom` the narrowest and the widest field of
    view if it zooms, from which it begins with `view`. `privacy` has its private zones.
    """

    def __init__(
        self, name: str, camera: Camera, limits: Sequence[Sequence[float]], timeout: float,
        tell: Callable[[str], None], clock: Callable[[], float], *, zoom: Sequence[float] = (), view: float = math.nan,
        privacy: Any = None,
    ) -> None:  # fmt: skip
        self.name, self.wake, self.ends, self.view = name, threading.Event(), False, view
        highest = camera.highest_rate
        both = ("heading", "turn", highest), ("tilt", "tilt", camera.highest_tilt_rate or highest)
        self.axes = [_Axis(*own, camera.braking, limit) for own, limit in zip(both, limits, strict=False)]
        self._camera, self._zoom, self._timeout = camera, zoom, timeout
        self._tell, self._clock = tell, clock
        self._sent_at = -math.inf
        self._asked = self._wanted = self._zoomed = math.nan  # fields of view: of the order, granted, sent
        self._privacy, self._trapped = privacy, False
        self._zoomed_at, self._zooming = -math.inf, math.inf
        self._due, self._pause, self._delay = -math.inf, PERIOD, 0.0
        self._good, self._wrong, self._doubts = clock() + STARTING, False, set[str]()
        self._returned = clock() + STARTING  # time at which the last step ended
        self.past: deque[tuple[float, ...]] = deque(maxlen=PAST)

    def order(self, rate: float, tilt_rate: float = 0.0, view: float = math.nan) -> None:
        """Replace the order by rates, degrees per second, and a field of view, degrees; NaN: as before."""
        now = self._clock()
        for axis, own in zip(self.axes, (rate, tilt_rate), strict=False):
            axis.order(own, now)
        if self._zoom and not math.isnan(view):
            self._asked = min(max(view, self._zoom[0]), self._zoom[1])
        self.wake.set()

    def look(self) -> None:
        """Tell it once if the driver does not return: nobody can stop such a camera, or knows its heading."""
        if not self._wrong and self._clock() - self._returned > HANGING:
            self._wrong = True
            self._tell(f"camera {self.name} may still turn: its driver has not returned for {HANGING:g} s")

    def run(self) -> None:
        """Supervise the camera until `ends`, then stop it, in several attempts."""
        while not self.ends:
            self.wake.wait(self.step())
            self.wake.clear()
        until = time.monotonic() + 0.75 * CLOSING  # the last attempt takes time, too
        while True:
            try:
                self._camera.close()
                return
            except Exception as error:
                if time.monotonic() >= until:
                    self._tell(f"camera {self.name} may still turn: {shortly(error, str)}")
                    return
            time.sleep(PERIOD)

    def step(self) -> float:
        """Send what is to be sent, read the pose if it is due, and return the seconds until the next step."""
        now = self._clock()
        reads = now >= self._due
        try:
            if reads or not self._wrong:
                self._turn()
            if reads:
                self._due = now + PERIOD
                self._read()
                self._turn()
                self._adjust()
                if self._wrong:
                    self._tell(f"camera {self.name} works again, after {self._clock() - self._good:.1f} s")
                self._good, self._wrong = self._clock(), False
        except Exception as error:  # of any library
            now = self._clock()
            for axis in self.axes:
                axis.sent = math.nan
            self._due, self._pause = now + self._pause, min(2.0 * self._pause, LONGEST_PAUSE)
            if not self._wrong and now - self._good > OLDEST:
                self._wrong, self._due = True, now  # the next step stops the camera
                self._tell(f"camera {self.name} does not work: {shortly(error, str)}")
        self._returned = now = self._clock()
        return max((self._due if self._wrong else min(self._due, now + PERIOD)) - now, 0.0)

    def _turn(self) -> None:
        """Send the rates that are allowed now, unless they are the last ones, sent a moment ago."""
        now = self._clock()
        rates = self._rates(now, 1.5 * PERIOD + self._delay)
        repeat = 0.0 if self._camera.steps else REPEAT  # at once to a device that moves by steps
        if rates != [axis.sent for axis in self.axes] or (any(rates) and now - self._sent_at > repeat):
            if len(rates) == 1 and not self._zoom:
                self._camera.turn(*rates)
            else:
                self._camera.move(rates[0], rates[1] if len(rates) > 1 else 0.0)
            self._sent_at, then = now, self._timed(now)
            for axis, rate, real in zip(self.axes, rates, self._camera.sent or rates, strict=False):
                axis.sends(rate, then, real)

    def _rates(self, now: float, horizon: float) -> list[float]:
        """Return the rates that are allowed now, and grant the field of view asked for if it is."""
        pan, rates = self.axes[0], [axis.allowed(now, self._timeout, horizon) for axis in self.axes]
        heading, zones = pan.known.at(now), self._privacy.now() if self._privacy else []
        if not zones or math.isnan(heading):
            self._wanted = self._wanted if zones else self._asked
            return rates if not zones else [0.0] * len(rates)
        # With the ordered tilt and zoom, if all headings that the pan may reach are free then; else as it is now.
        for tilting, view in ((rates[1:], self._asked), ([0.0] * len(rates[1:]), self._wanted)):
            views = [one for one in (self.view, self._zoomed, view) if not math.isnan(one)]
            tilts = [axis.span(now, horizon, rate) for axis, rate in zip(self.axes[1:], tilting, strict=True)]
            free = self._privacy.free(zones, (min(views), max(views)), (tilts or [(0.0, 0.0)])[0])
            room, away = self._privacy.nearest(free, heading)
            low, high = pan.span(now, horizon)
            if room and room[0] <= low and high <= room[1]:
                break
        self._asked = self._wanted = view
        if self._trapped != (room is None):
            self._trapped = room is None
            words = "at this tilt and zoom that spares its private zones"
            self._tell(f"camera {self.name} has {'no' if room is None else 'a'} heading {words}")
        if room is None:  # a steeper view covers less
            return [0.0, *(axis.allowed(now, self._timeout, horizon, away=90.0) for axis in self.axes[1:])]
        return [pan.allowed(now, self._timeout, horizon, room, away), *tilting]

    def _adjust(self) -> None:
        """Order the wanted field of view until the camera reports it, again and again where it does not."""
        now, off = self._clock(), abs(self.view - self._wanted) > ZOOM_SLACK * self._wanted  # False for NaN
        self._zooming = min(self._zooming, now) if off else math.inf
        if off and (self._wanted != self._zoomed or now - self._zoomed_at > ZOOM_REPEAT):
            self._camera.zoom(self._wanted)
            self._zoomed, self._zoomed_at = self._wanted, now
        if off and now - self._zooming > LOST_ZOOM:
            self._doubt(f"does not zoom as ordered: it reports {self.view:.0f} degrees, not {self._wanted:.0f}")

    def _doubt(self, words: str) -> None:
        """Tell once what a camera does not do."""
        if (kind := words.partition(":")[0]) not in self._doubts:
            self._doubts.add(kind)
            self._tell(f"camera {self.name} {words}")

    def _read(self) -> None:
        """Read the pose; raise an error unless the answer is timely and within reach of those before it."""
        start = self._clock()
        one = len(self.axes) == 1 and not self._zoom
        *angles, view = (self._camera.heading(), math.nan) if one else self._camera.pose()
        then = self._timed(start)
        if then - start > OLDEST / 2.0:
            raise TimeoutError(f"answers after {2.0 * (then - start):.1f} s")
        for axis, angle in zip(self.axes, angles, strict=False):
            if not math.isfinite(angle):
                raise ValueError(f"its {axis.name} is {angle}")
        self._pause = PERIOD
        for axis, angle in zip(self.axes, angles, strict=False):
            axis.check(float(angle), then, 5 if self._wrong else 2)
        for axis, angle in zip(self.axes, angles, strict=False):
            if words := axis.answered(float(angle), then, self._wrong):
                self._tell(f"camera {self.name} {words}")
        if self._zoom and math.isnan(view):
            self._doubt("does not report its zoom: its last known field of view counts")
        elif self._zoom:
            self.view = float(view)
        answer = self._camera.answer[1:]
        before = self.past[-1][2:] if self.past else answer  # which counts where a part is not reported any more
        device = (old if math.isnan(new) else new for new, old in zip(answer, before, strict=True))
        self.past.append((then, self.axes[0].known.heading, *device))

    def _timed(self, start: float) -> float:
        """Note how long the call took that began at `start`; return its middle."""
        end = self._clock()
        self._delay = min(max(end - start, 0.9 * self._delay), OLDEST)
        return (start + end) / 2.0


def limited(rate: float, heading: float, limits: Sequence[float], horizon: float, braking: float = math.inf) -> float:
    """Return the rate v, degrees per second, or a slower one that stays within pan limits.

    In `horizon` seconds and while it then brakes, ``|v| horizon + v^2 / (2 braking)``, the camera passes no limit.
    Beyond a limit, only rates back towards it remain, others become 0.
    """
    low, high = limits
    if math.isinf(low):
        return rate
    heading -= 360.0 * round((heading - (low + high) / 2.0) / 360.0)

    def fastest(room: float) -> float:  # the root of the equation above, also for an infinite deceleration
        room = 2.0 * max(room, 0.0)
        return room / (horizon + math.sqrt(horizon**2 + room / braking))

    return min(max(rate, -fastest(heading - low)), fastest(high - heading))
