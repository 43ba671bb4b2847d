"""Feed of detections from real cameras: scans at irregular times become the observation of a sub-step."""

import math
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.tracking.tracks import detection_faults
from hitmac.envs.deployment import sensor_rows
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import Positive, as_array, convert, whole_number


class Scan(NamedTuple):
    """Detections of one camera at one time."""

    time: float
    detections: np.ndarray  # (k, 5) float32: x, y, and the covariance xx, xy, yy
    measured: bool  # the covariances are measured; else those of the line of sight take their place


class DetectionFeed:
    """Feed of scans of real cameras to an agent of a scenario with `identities` false.

    A scan is a list of all that one camera detects at one time. Scans come at irregular times, late, or not at all;
    :meth:`observe`, called once a sub-step, makes of them the observation of one scene:

    - A scan counts in the first call that is no earlier than half a `time_step` before its time; a later one waits. Of
      several scans of a camera in one call, the last counts.
    - A detection dt seconds before or after the call has ``(v dt)^2 / 2`` more variance on both axes: that of a target
      with the top speed v in an unknown direction.
    - A camera without a new scan has not looked: it can be turned, and that it detects nothing is no evidence.
    - A camera whose last scan is older than `timeout` does not work, until its next scan.

    Args:
        scenario: the scenario, with `identities` false; camera i is its sensor i.
        timeout: seconds; None: 5 sub-steps.

    Raises:
        TypeError: a timeout that is not a finite number.
        ValueError: a timeout of 0 or less, or a scenario with identities.
    """

    def __init__(self, scenario: Scenario, *, timeout: float | None = None) -> None:
        if scenario.identities:
            raise ValueError("identities is true; it must be false for a feed of detections")
        self.scenario = scenario
        self.timeout = convert("timeout", Positive, 5.0 * scenario.time_step if timeout is None else timeout)
        self._places = DetectionObserver(scenario).space["mask"].shape[-1]  # type: ignore[index]
        n = scenario.num_sensors
        self._waiting: list[list[Scan]] = [[] for _ in range(n)]  # by camera
        self._last = [Scan(-math.inf, np.zeros((0, 5), np.float32), True)] * n  # that counted

    def add(self, camera: int, time: float, detections: Any, *, dropped: list[str] | None = None) -> np.ndarray:
        """Add a scan; return the places (k, 2) of its detections.

        Args:
            camera: index of the sensor.
            time: seconds, on a clock that all cameras share; later than the last scan of this camera.
            detections: (k, 2) places, whose errors are the scenario's `position_noise`, or (k, 5) places and the
                covariance xx, xy, yy of their errors, in the scenario's units; empty if nothing is detected. Any number
                is allowed: none is dropped.
            dropped: list to which the reasons are added why single detections are invalid, which are then left out;
                None: they raise an error.

        Raises:
            TypeError: a time that is not a finite number.
            ValueError: an unknown camera, a time out of order, as of a scan given twice, or an invalid detection:
                numbers that are not finite, a covariance that is none, a place outside the arena by more than its
                error, or twice the same. The message names it, and the feed is unchanged.
        """
        camera = whole_number("camera", camera, 0, self.scenario.num_sensors - 1)
        time = convert(f"time of camera {camera}", float, time)
        name = f"camera {camera} at {time} s"
        before = (self._waiting[camera] or self._last[camera : camera + 1])[-1].time
        if time <= before:
            raise ValueError(f"the scan of {name} follows one at {before} s; the times of a camera must rise")
        if dropped is not None:
            detections = _well_formed(detections, dropped)
        given = as_array(f"the scan of {name}", detections)
        given = given if given.shape != (0,) else np.zeros((0, 5))
        if given.ndim != 2 or given.shape[1] not in (2, 5) or given.dtype.kind not in "iuf":
            raise ValueError(
                f"the scan of {name} is {given.dtype} of shape {given.shape}; it must be numbers (k, 2) or (k, 5)"
            )
        exact = np.zeros((len(given), 5))
        exact[:, 2::2] = 0.5 * np.square(self.scenario.position_errors).sum()
        exact[:, : given.shape[1]] = given
        with np.errstate(over="ignore"):  # of numbers beyond float32, which are invalid
            rows = exact.astype(np.float32)
            reasons = detection_faults(self.scenario, np.where(np.isfinite(rows), rows, exact))
        first = dict[tuple[float, ...], int]()
        for k, place in enumerate(given[:, :2].tolist()):
            if (same := first.setdefault(tuple(place), k)) != k:
                reasons[k] = reasons[k] or f"it is where detection {same} is; the places of a scan must differ"
        for k in [k for k, reason in enumerate(reasons) if reason]:
            if dropped is None:
                numbers = ", ".join(f"{number:g}" for number in rows[k])
                raise ValueError(f"detection {k} of {name} is ({numbers}); {reasons[k]}")
            dropped.append(reasons[k])
        rows = rows[[not reason for reason in reasons]]
        self._waiting[camera].append(Scan(time, rows, given.shape[1] == 5))
        return rows[:, :2]

    def observe(
        self, now: float, position: Any, heading: Any, field_of_view: Any = None, along: Any = None, *,
        tilt: Any = None, rate: Any = None, commands: Any = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Return the observation at a time, from the scans since the last call.

        Args:
            now: seconds, on the clock of the scans.
            position: (n, 2), places of the sensors; NaN: the sensor does not work.
            heading: (n,), degrees, counter-clockwise, 0 along +x; NaN: the sensor does not work.
            field_of_view: (n,), degrees, of zooming lenses; None: those of the scenario.
            tilt: (n,), degrees below the horizon, of sensors that tilt; None: the middle of their limits.
            along: (n,), distances of the sensors along the scenario's rails, from their first corners.
            rate: (n,), rates at which motors turn the sensors, degrees per second; None: 0.
            commands: (D, n), rates commanded in the last `command_delay` sub-steps, oldest first; None: 0.

        Returns:
            ``detections`` (1, n, d, 5), ``mask`` (1, n, d) and ``sensors`` as those of
            :class:`~hitmac.envs.parts.detections.DetectionObserver`, where d is larger if a scan has more detections,
            and ``looked`` (1, n) bool, the sensors that work and have a new scan.

        Raises:
            TypeError: a time that is not a finite number.
            ValueError: arrays of other shapes, a field of view out of its range, or `along` missing. The feed is
                unchanged.
        """
        now, n = convert("now", float, now), self.scenario.num_sensors
        measured = {"field_of_view": field_of_view, "tilt": tilt, "along": along, "rate": rate, "commands": commands}
        sensors = sensor_rows(self.scenario, position, heading, **measured)
        if sensors.shape[:-1] != (n,):
            shapes = np.shape(position), np.shape(heading)
            raise ValueError(f"position and heading have shapes {shapes}; they must be (({n}, 2), ({n},))")
        looked = np.zeros(n, np.bool_)
        for camera, waiting in enumerate(self._waiting):
            due = [scan for scan in waiting if scan.time <= now + 0.5 * self.scenario.time_step]
            if due:
                self._last[camera], looked[camera] = due[-1], True
                self._waiting[camera] = waiting[len(due) :]
        heard = np.array([now - scan.time <= self.timeout for scan in self._last])
        sensors[~heard] = 0.0
        looked &= sensors.any(-1)
        d = max(self._places, *(len(scan.detections) for scan in self._last))
        detections, mask = np.zeros((1, n, d, 5), np.float32), np.zeros((1, n, d), np.int8)
        for camera in np.flatnonzero(looked).tolist():
            listed = self._detections(now, self._last[camera], sensors[camera])
            detections[0, camera, : len(listed)], mask[0, camera, : len(listed)] = listed, 1
        return {
            "detections": detections, "mask": mask, "sensors": sensors[None].astype(np.float32),
            "looked": looked[None],
        }  # fmt: skip

    def _detections(self, now: float, scan: Scan, sensor: np.ndarray) -> np.ndarray:
        """Return the detections (k, 5) of a scan with the covariances of their errors at the time `now`."""
        detections = scan.detections.copy()
        if not scan.measured:
            dx, dy = (detections[:, :2] - sensor[:2]).T
            angle = np.arctan2(dy, dx)
            east, north = np.cos(angle), np.sin(angle)
            along, across = np.square(self.scenario.position_errors)
            longer = along - across
            detections[:, 2:] = np.stack(
                (across + longer * east**2, longer * east * north, across + longer * north**2), -1
            )
        detections[:, 2::2] += 0.5 * (self.scenario.top_speed * (now - scan.time)) ** 2
        return detections


def _well_formed(detections: Any, dropped: list[str]) -> Any:
    """Return those of a list of detections that are numbers, of which the first says how many each has."""
    if not isinstance(detections, list):
        return detections
    kept: list[list[float]] = []
    for one in detections:
        fits = isinstance(one, list) and all(type(x) is float or (type(x) is int and abs(x) < 1e300) for x in one)
        if not fits or len(one) not in ((2, 5) if not kept else (len(kept[0]),)):
            dropped.append("a detection must be two numbers, or five, as the others of its scan")
        else:
            kept.append(one)
    return kept
