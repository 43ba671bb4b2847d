"""Pictures of cameras: from the boxes that detectors find in them to places in the site.

A box is placed with the pose that its camera had when the picture was taken, ``t - lag``, where t is the time that its
message states. The lag is the `latency` of the camera's view, or is found from turns: with the right one, what stands
still has the same bearing in successive pictures, also where a turn begins and ends.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.deploy.camera import Head, View
from hitmac.agents.deploy.run.boxes import Boxes
from hitmac.agents.deploy.run.cameras import Camera, Cameras
from hitmac.agents.deploy.run.drivers import load_cameras, load_sections
from hitmac.agents.deploy.run.log import Faults
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import field_types


def load_views(kind: str | Path, scenario: Scenario) -> list[View | None]:
    """Return the settings `view` of every sensor in a file of cameras; None where it has none.

    The settings of its head are those of the driver. Raises ``ValueError`` or ``TypeError``, which names the file, the
    camera and the setting.
    """
    drivers = load_cameras(kind, scenario)
    return load_sections(kind, scenario, "view", View, lambda i: shared_with(drivers[i], scenario, i))


def shared_with(driver: Camera, scenario: Scenario, i: int) -> dict[str, Any]:
    """Return the settings that the view of sensor i has from its driver and from the site."""
    found = {name: getattr(driver, name) for name in field_types(Head)} if isinstance(driver, Head) else {}
    return found | {"position": scenario.sensor_positions[i]}


# In seconds, unless they say otherwise.
KNOWN, ASSUMED = 0.02, 0.2  # deviation of a lag that is known, and of one that is not
LAGS = np.arange(-0.5, 2.01, 0.1)  # lags among which the right one is found
PICTURES, EVERY = 200, 20  # pictures that are compared, and number of new ones after which they are again
MOST = 8  # boxes of a picture that are compared
APART = 1.0  # longest time between two pictures that are compared
FARTHEST = 10.0  # difference of two bearings above which it does not grow, degrees
SURE = 4.0  # deviations by which a lag must be better than one 0.2 s off
TOLD = 0.1  # change of a lag that is told
LOST, LEFT = 30.0, 3600.0  # time after its last event from which on an object that moves, or stays, counts as gone
RECENT = 10  # pictures by which a clock is judged


class _Object(NamedTuple):
    """Object of a detector that reports changes only."""

    time: float
    row: np.ndarray  # (5,)
    stays: bool


class _Lag:
    """Lag of a camera's pictures behind the times of their messages, found from turns."""

    def __init__(self, told: float, number: int) -> None:
        self.pictures: deque[tuple[float, np.ndarray]] = deque(maxlen=PICTURES)  # stated time, bearings
        self.behind: deque[float] = deque(maxlen=PICTURES)  # arrival - stated time
        self.found: float | None = None  # beyond the shift
        self.told, self.new = told, -(number % EVERY)  # cameras take turns

    def shift(self, timeout: float) -> float:
        """Return the seconds, whole or half, by which all recent stated times are in the future, or too old; else 0."""
        recent = [*self.behind][-RECENT:]
        if not recent or (max(recent) >= -0.1 * timeout and min(recent) <= timeout):
            return 0.0
        long, short = (math.ceil(-2.0 * min(those)) / 2.0 for those in (self.behind, recent))
        return long if min(recent) + long <= timeout else short  # the steadier one, unless the clock was set since

    def search(self, past: np.ndarray, shift: float) -> float | None:
        """Return the lag beyond a `shift`, from the answers (k, 4) of the camera; None if no turn shows it."""
        if len(past) < 2 or np.ptp(np.unwrap(past[:, 1], period=360.0)) < FARTHEST:
            return None
        pictures = [picture for picture in self.pictures if len(picture[1])]
        pairs = [pair for pair in pairwise(pictures) if 0.0 < pair[1][0] - pair[0][0] < APART]
        if len(pairs) < EVERY:
            return None
        # The turn of the camera between two pictures, if their times are late by each lag.
        when = np.array([(before[0], after[0]) for before, after in pairs]) - shift  # (p, 2)
        when = when[None] - LAGS[:, None, None]  # (L, p, 2)
        heading = np.interp(when, past[:, 0], np.unwrap(past[:, 1], period=360.0))
        turned: np.ndarray = np.where(
            (when[..., 0] >= past[0, 0]) & (when[..., 1] <= past[-1, 0]), heading[..., 1] - heading[..., 0], np.nan
        )
        # With the right lag, boxes at rest are after the turn where they were before: each has one near.
        cost = np.empty(turned.shape)
        for p, ((_, before), (_, after)) in enumerate(pairs):
            away = np.abs(turned[:, p, None, None] + after[:, None] - before)  # (L, k, k')
            cost[:, p] = np.minimum(away.min(-1), FARTHEST).mean(-1)
        cost = cost[:, np.isfinite(cost).all(0)]
        if len(cost.T) < EVERY:
            return None
        mean, near = cost.mean(-1), 2  # 0.2 s
        best = int(mean.argmin())
        if not near <= best < len(LAGS) - near:
            return None
        # It counts if lags 0.2 s off are worse for sure; then the parabola through the three says where between.
        for other in (best - near, best + near):
            worse = cost[other] - cost[best]
            if worse.mean() * math.sqrt(len(worse)) <= SURE * worse.std():
                return None
        low, middle, high = mean[best - near : best + near + 1 : near]
        return float(LAGS[best] + 0.2 * 0.5 * (low - high) / (low - 2.0 * middle + high))


class Pictures:
    """Pictures of the cameras of a site: what their boxes mean, by their `views` and poses.

    Faults are reported with the names of the cameras, and never end a run. `top_speed` is that of the targets, and
    `timeout` the age from which on scans do not count. All times are monotonic.
    """

    def __init__(
        self, views: Sequence[View | None], cameras: Cameras, names: Sequence[str], faults: Faults, top_speed: float,
        timeout: float,
    ) -> None:  # fmt: skip
        self._views, self._cameras, self._names, self._faults = views, cameras, names, faults
        self._top_speed, self._timeout = top_speed, timeout
        self._lags = [_Lag(view.latency or 0.0 if view else 0.0, i) for i, view in enumerate(views)]
        self._objects: list[dict[str, _Object]] = [{} for _ in views]
        self.sources = {view.source: i for i, view in enumerate(views) if view and view.source}
        self.by_events = [i for i, view in enumerate(views) if view and view.events]

    def take(self, i: int, stated: float, arrived: float, boxes: Boxes) -> tuple[float, Boxes] | None:
        """Take a picture; return the seconds from it to the time that its message states, and its boxes that count.

        These are in pixels of the calibrated picture. None, and report it, without a view. Where all times of a camera
        are in the future, or too old, its clock is off: the first to arrive counts as new.
        """
        view, own, name = self._views[i], self._lags[i], self._names[i]
        if view is None:
            self._faults.report(f"camera {name} sends boxes and has no view", "hitmac site calibrate finds one")
            return None
        if not boxes.ended:  # told when a detector has given an object up, seconds after its last picture
            own.behind.append(arrived - stated)
        if shift := own.shift(self._timeout):
            self._faults.report(f"the clock of camera {name} is off", f"by about {shift:+.1f} s")
        try:
            boxes = boxes._replace(box=view.kept(boxes))
        except ValueError as error:
            self._faults.report(f"the boxes of camera {name} are refused", str(error))
            return shift, boxes._replace(box=np.zeros((0, 4)))
        if math.isnan(boxes.pan):
            self._learn(i, view, stated, boxes, shift)
        return shift + ((own.found or 0.0) if view.latency is None else view.latency), boxes

    def _learn(self, i: int, view: View, stated: float, boxes: Boxes, shift: float) -> None:
        """Compare the pictures of a camera after some new ones, and tell if its lag is another than before."""
        own, name = self._lags[i], self._names[i]
        known = self._answers(i, stated - shift - (own.found or 0.0))[0]
        own.pictures.append((stated, view.bearings(boxes.box[:MOST], *view.pose(boxes, known)[1:])))
        own.new += 1
        if own.new < EVERY:
            return
        own.new = 0
        if (found := own.search(self._cameras.past(i), shift)) is None:
            return
        own.found, found = found, found + shift
        if abs(found - own.told) > TOLD:
            own.told = found
            words = f"its pictures are taken {found:.2f} s before the times of their boxes"
            if abs(found) > 1.0:
                words = f"its clock is {abs(found):.1f} s {'ahead' if found > 0.0 else 'behind'}"
            if view.latency is not None:
                words += f", not {view.latency:g} s as its view says"
            self._faults.tell(f"camera {name}: {words}, as its turns show")

    def place(self, i: int, when: float, boxes: Boxes) -> np.ndarray:
        """Return rows (k, 5) of x, y, xx, xy, yy of the boxes of a picture taken at a time, of those with a place."""
        view, name = self._views[i], self._names[i]
        assert view is not None  # by take()
        known, change = self._answers(i, when)
        heading, tilt, zoom = view.pose(boxes, known)
        why = "" if math.isfinite(heading + tilt) else "its heading at their time is unknown"
        if math.isnan(view.focal_at(zoom)):
            why = f"its zoom {zoom:g} is beyond the calibrated ones"
        if why:
            self._faults.report(f"boxes of camera {name} are left out", why)
            return np.zeros((0, 5))
        lag_error = KNOWN if view.latency is not None or self._lags[i].found is not None else ASSUMED
        moved = np.nan_to_num(change[:2]) * lag_error * math.isnan(boxes.pan)
        rows = view.place(boxes.box, heading, tilt, zoom, moved)
        rows[:, 2::2] += (self._top_speed * lag_error) ** 2 / 2.0
        if (lost := np.isnan(rows).any(1)).any():
            self._faults.report(f"some boxes of camera {name} are left out", "their feet are at the horizon or over it")
        return rows[~lost]

    def shares(self, i: int, boxes: Boxes) -> np.ndarray:
        """Return left, top, right and bottom (k, 4) of the boxes of a picture, shares of its width and height."""
        view = self._views[i]
        assert view is not None  # by take()
        return boxes.box / np.tile(view.picture, 2)

    def change(self, i: int, when: float, boxes: Boxes) -> None:
        """Take the event of an object, in a picture taken at a time."""
        self._objects[i].pop(boxes.event, None)
        if not boxes.ended and len(rows := self.place(i, when, boxes)):
            self._objects[i][boxes.event] = _Object(when, rows[0], boxes.stays)

    def present(self, i: int, now: float) -> list[list[float]]:
        """Return rows of the objects that are present by their events; those that move are ever less certain.

        One whose end never comes, as after a restart of the detector, is gone after :data:`LOST` or :data:`LEFT`.
        """
        own, rows = self._objects[i], []
        for key, one in [*own.items()]:
            if now - one.time > (LEFT if one.stays else LOST):
                del own[key]
                continue
            age = 0.0 if one.stays else max(now - one.time, 0.0)
            rows.append((one.row + np.array([0, 0, 1, 0, 1]) * (self._top_speed * age) ** 2 / 2.0).tolist())
        return rows

    def _answers(self, i: int, when: float) -> np.ndarray:
        """Return heading, tilt and zoom (3,) of a camera at a time, and how fast they change; NaN where unknown."""
        past = self._cameras.past(i, when - ASSUMED)
        if not len(past) or not past[0, 0] <= when <= past[-1, 0] + ASSUMED:
            return np.full((2, 3), np.nan)
        columns, near = (np.unwrap(past[:, 1], period=360.0), *past[:, 2:].T), (when - ASSUMED, when, when + ASSUMED)
        before, now, after = np.array([np.interp(near, past[:, 0], own) for own in columns]).T
        return np.array((now, (after - before) / (2.0 * ASSUMED)))
