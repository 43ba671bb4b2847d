"""Cameras that turn: the protocol of their drivers, and the supervision of all cameras, one thread each."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import shortly

# In seconds, unless they say otherwise.
PERIOD = 0.1  # between two readings of a heading
OLDEST = 0.5  # age of an answer up to which the heading is extrapolated from it
STARTING = 3.0  # time to the first answer of a camera, before which its failures are not reported
CLOSING = 2.0  # longest time in which all cameras are stopped at the end
LONGEST_PAUSE = 2.0  # between two attempts to reach a camera
REPEAT = 0.5  # time after which the rate of a turning camera is sent again
SLOWEST = 0.1  # rate below which a camera is stopped, degrees per second
REST = 1.5  # time after a stop from which on an answer is that of a camera at rest
SLACK = 3.0  # largest difference of two answers of a camera at rest, degrees
PAST = 400  # number of answers that are kept
BRAKING = 90.0  # deceleration of a camera whose driver says none, degrees per second squared


class Camera(Protocol):
    """Protocol of the driver of a camera. Its calls may block and raise any error; one thread makes them all."""

    highest_rate: float
    """Degrees per second. A driver may also have `braking`, the deceleration in degrees per second squared, and `tilt`
    and `zoom`, those of the device at its last answer."""

    def heading(self) -> float:
        """Return the present heading of the device, degrees in the site's frame (counter-clockwise, 0 along +x)."""
        ...

    def turn(self, rate: float) -> None:
        """Turn at a rate, degrees per second counter-clockwise, until the next call; 0 stops."""
        ...

    def close(self) -> None:
        """Stop the camera and leave it."""
        ...


def names_of(scenario: Scenario) -> list[str]:
    """Return the names of the sensors, by default their numbers from 0."""
    return list(scenario.sensor_names) or [str(i) for i in range(scenario.num_sensors)]


class Cameras:
    """Cameras of a site, each supervised by a thread of its own, so that the caller never waits for a device.

    Every :data:`PERIOD` a thread reads the heading and sends the newest order, slower or not at all where the camera
    would leave its pan limits before the next reading, or could not brake before them. At a limit, the heading that
    follows from the orders counts as well as the reported one, which may lag or stand still. It stops a camera whose
    heading is unknown. An error, a late answer, or a heading that no motor reaches counts as no answer; the pauses
    between further attempts double up to :data:`LONGEST_PAUSE`.

    The `drivers` are those of the sensors of the scenario, whose ``pan_limits`` hold. `tell` takes a line when a camera
    goes wrong, and one when it works again, in any thread. A camera without an order for `timeout` seconds stops.
    """

    def __init__(
        self, drivers: Sequence[Camera], scenario: Scenario, tell: Callable[[str], None], *, timeout: float
    ) -> None:
        given = zip(names_of(scenario), drivers, limits_of(scenario).tolist(), strict=True)
        self._tell, self._all = tell, [_Supervisor(*one, timeout, tell) for one in given]
        self._threads = [threading.Thread(target=one.run, daemon=True) for one in self._all]
        for thread in self._threads:
            thread.start()

    @property
    def headings(self) -> np.ndarray:
        """Present headings (n,), degrees, extrapolated from the last answers; NaN where they are too old."""
        now = time.monotonic()
        return np.array([one.known.at(now) for one in self._all])

    def past(self, i: int) -> np.ndarray:
        """Return the last answers (k, 4) of a camera, and what follows from them for now.

        The columns are the time, the heading, and the device's tilt and zoom, NaN where they are unknown.
        """
        now, rows = time.monotonic(), [*self._all[i].past]
        heading = self._all[i].known.at(now)
        rows += [(now, heading, *rows[-1][2:])] if rows and not math.isnan(heading) else []
        return np.array(rows, np.float64).reshape(-1, 4)

    def order(self, rates: Iterable[float]) -> None:
        """Order rates (n,), degrees per second, NaN: none; return at once."""
        for one, rate in zip(self._all, rates, strict=True):
            if not math.isnan(rate):
                one.order(float(rate))

    def close(self) -> None:
        """Stop all cameras, within :data:`CLOSING` seconds even where a device hangs."""
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

    A camera at rest has turned as ordered if its answer has changed by at least half of it, in the same direction.
    """

    def __init__(self) -> None:
        self.doubtful = False  # the last answer at rest disagreed
        self._start, self._heading, self._rate, self._since = math.nan, math.nan, 0.0, math.inf  # time of the rate

    def at(self, now: float) -> float:
        """Return the heading at a time; NaN before the first answer."""
        return self._heading + self._rate * (now - self._since) if self._rate else self._heading

    def ordered(self, rate: float, now: float) -> None:
        """Take a new rate."""
        if rate != self._rate:
            self._heading, self._rate, self._since = self.at(now), rate, now

    def answered(self, heading: float, now: float) -> None:
        """Take a reported heading."""
        if math.isnan(self._start):
            self._start = self._heading = heading
            self._since = now
        elif not self._rate and now - self._since >= REST:
            turned = self._heading - self._start
            found = heading - self._start
            found += 360.0 * round((turned - found) / 360.0)
            self.doubtful = abs(turned) > SLACK and found * turned < 0.5 * turned**2
            if not self.doubtful:
                self._start = self._heading = self._start + found


class _Supervisor:
    """Supervision of one camera, in the thread that calls :meth:`run`; others call :meth:`order` and read `known`."""

    def __init__(
        self, name: str, camera: Camera, limits: Sequence[float], timeout: float, tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.name, self.known, self.wake, self.ends = name, _Known(), threading.Event(), False
        self._camera, self._limits, self._timeout = camera, limits, timeout
        self._tell, self._clock = tell, clock
        self._order = 0.0, -math.inf  # rate, time
        self._sent, self._sent_at = math.nan, -math.inf  # unknown: the first step stops the camera
        self._due, self._pause, self._delay = -math.inf, PERIOD, 0.0
        self._good, self._wrong = clock() + STARTING, False
        self._answer, self._answered, self._agreeing = math.nan, -math.inf, 1
        self.past: deque[tuple[float, ...]] = deque(maxlen=PAST)
        self._reckoned, self._braking = _Reckoned(), getattr(camera, "braking", BRAKING)

    def order(self, rate: float) -> None:
        """Replace the order by a rate, degrees per second."""
        self._order = rate, self._clock()
        self.wake.set()

    def run(self) -> None:
        """Supervise the camera until `ends`, then stop it."""
        while not self.ends:
            self.wake.wait(self.step())
            self.wake.clear()
        try:
            self._camera.close()
        except Exception as error:
            self._tell(f"camera {self.name} may still turn: {shortly(error, str)}")

    def step(self) -> float:
        """Send what is to be sent, read the heading if it is due, and return the seconds until the next step."""
        now = self._clock()
        reads = now >= self._due
        try:
            if reads or not self._wrong:
                self._turn()
            if reads:
                self._due = now + PERIOD
                self._read()
                self._turn()
                if self._wrong:
                    self._tell(f"camera {self.name} works again, after {self._clock() - self._good:.1f} s")
                self._good, self._wrong = self._clock(), False
        except Exception as error:  # of any library
            now, self._sent = self._clock(), math.nan
            self._due, self._pause = now + self._pause, min(2.0 * self._pause, LONGEST_PAUSE)
            if not self._wrong and now - self._good > OLDEST:
                self._wrong, self._due = True, now  # the next step stops the camera
                self._tell(f"camera {self.name} does not work: {shortly(error, str)}")
        now = self._clock()
        return max((self._due if self._wrong else min(self._due, now + PERIOD)) - now, 0.0)

    def _turn(self) -> None:
        """Send the rate that is allowed now, unless it is the last one, sent a moment ago."""
        now = self._clock()
        (rate, ordered), heading = self._order, self.known.at(now)
        if now - ordered > self._timeout or math.isnan(heading):
            rate = 0.0
        else:
            rate = min(max(rate, -self._camera.highest_rate), self._camera.highest_rate)
            for place in (heading, self._reckoned.at(now)):
                rate = limited(rate, place, self._limits, 1.5 * PERIOD + self._delay, self._braking)
            rate = rate if abs(rate) >= SLOWEST else 0.0
        if rate != self._sent or (rate and now - self._sent_at > REPEAT):
            self._camera.turn(rate)
            self._sent, self._sent_at = rate, now
            then = self._timed(now)
            self._reckoned.ordered(rate, then)
            self.known = _Known(self.known.at(then), then, rate, self.known.answered)

    def _read(self) -> None:
        """Read the heading; raise an error unless the answer is timely and within reach of those before it."""
        start = self._clock()
        heading = float(self._camera.heading())
        then = self._timed(start)
        if then - start > OLDEST / 2.0:
            raise TimeoutError(f"answers after {2.0 * (then - start):.1f} s")
        if not math.isfinite(heading):
            raise ValueError(f"its heading is {heading}")
        jump = abs((heading - self._answer + 180.0) % 360.0 - 180.0)
        reach = SLACK + 1.5 * self._camera.highest_rate * (then - self._answered)
        self._agreeing = 0 if jump > reach else self._agreeing + 1
        self._answer, self._answered, self._pause = heading, then, PERIOD
        if self._agreeing < (5 if self._wrong else 2):
            raise ValueError(f"its heading jumps, now to {heading:.0f} degrees")
        if self._wrong:  # it is not known which orders were followed
            self._reckoned = _Reckoned()
        before = self._reckoned.doubtful
        self._reckoned.answered(heading, then)
        if self._reckoned.doubtful:
            if not before:
                places = f"it reports {heading:.0f} degrees after orders to {self._reckoned.at(then):.0f}"
                self._tell(f"camera {self.name} does not turn as ordered: {places}; its limits count for both")
            heading = self._reckoned.at(then)
        self.known = _Known(heading, then, 0.0 if math.isnan(self._sent) else self._sent, then)
        self.past.append((then, heading, *(getattr(self._camera, name, math.nan) for name in ("tilt", "zoom"))))

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
