"""Loop of real cameras: detections, tracks, decision, orders, once a time step."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.boxes import Boxes
from hitmac.agents.deploy.run.cameras import Cameras, names_of
from hitmac.agents.deploy.run.detections import Inbox, parse
from hitmac.agents.deploy.run.live import Live
from hitmac.agents.deploy.run.log import Faults, rounded
from hitmac.agents.deploy.run.operation import Operations
from hitmac.agents.deploy.run.pictures import Pictures
from hitmac.agents.policy import one_thread_each, pair_of, rates_of, settings_of, started
from hitmac.agents.registry import Agent
from hitmac.agents.tracking import DetectionFeed
from hitmac.agents.tracking.track_states import LOST
from hitmac.envs.deployment import observe
from hitmac.envs.parts.tilt import footprints
from hitmac.envs.scenario import Scenario

_EARLY = _LATE = 0.25  # time steps that a decision may be made before and after it is due
_LEAST, _LIKELY = 0.1, 0.5  # existence of a track that is shown, and of one that ends the rest of a camera
_CLOCK = 0.1  # seconds; smaller changes of the computer's clock are ignored


class Loop:
    """Loop of an agent that turns real cameras, once a time step of its scenario.

    Step k is due at ``t_0 + k time_step``. Its decision is made as soon as every camera that is heard has sent a scan
    since the last one, at most a quarter of a step early, else at the latest a quarter of a step late. Steps in which
    the computer was busy are left out. t_0 is the first time at which all scans are in.

    The times of scans are the computer's; everything else is measured on its monotonic clock. When the clock is set,
    the scans are only compared with the new one.

    Camera i is sensor i of the `scenario`, whose sensors are fixed and whose targets have no identities.
    Users of the page `hands` pause the agent and turn cameras by hand. What operators set, `operations`, changes the
    agent's orders. The boxes that a camera sends have places by its view, one of `views`. `monotonic` is also the clock
    of the `inbox`, `wall` that of the detections.
    """

    def __init__(
        self, agent: Agent, scenario: Scenario, cameras: Cameras, inbox: Inbox, faults: Faults, *,
        views: Sequence[View | None], operations: Operations, hands: Live | None = None,
        monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.agent, self.scenario, self.cameras, self.inbox, self.faults = agent, scenario, cameras, inbox, faults
        self.names, self.hands, self._monotonic, self._wall = names_of(scenario), hands, monotonic, wall
        n = len(self.names)
        self._positions = np.array(scenario.sensor_positions)
        self._operations = operations
        self._boxes: dict[int, list[list[float]]] = {}  # last ones: camera, left, top, right, bottom, as shares
        self._feed = DetectionFeed(scenario)
        speed, timeout = scenario.top_speed, self._feed.timeout
        self._pictures = Pictures(views, cameras, self.names, faults, speed, timeout)
        self._events: list[tuple[int, float, Boxes]] = []  # camera, time and object of each since the last step
        self._state = started(agent.policy, [0])
        delay = scenario.command_delay  # time steps
        self._sent_rates = deque(np.zeros((delay + 1, n)), maxlen=delay + 1)  # oldest first
        self._scans: dict[int, tuple[float, Any]] = {}  # time and detections of the last, by camera
        self._sent, self._heard = np.zeros((2, n))  # times of the last line, and of the last valid scan
        self._offset = self._start = wall() - monotonic()
        self._due, self._in_time = 0.0, False  # in time with the detections

    def warm_up(self) -> None:
        """Compile and load everything that a decision needs."""
        feed, state, n = DetectionFeed(self.scenario), self._state, len(self.names)
        with one_thread_each():
            for step in range(3):
                for camera, place in enumerate(self._positions.tolist()):
                    feed.add(camera, float(step), [place])
                pose = self._pose()
                shown = feed.observe(step, self._positions, np.zeros(n), **pose)
                _, state = self.agent.policy.predict(shown, state, np.array([step == 0]), deterministic=True)
                self._tracks(state, np.zeros(n), pose)

    def _pose(self) -> dict[str, np.ndarray]:
        """Return the present tilts and fields of view (n,), of those that the cameras have."""
        found = {}
        if self.scenario.tilt_limits:  # the tilt of a camera that does not answer does not matter
            found["tilt"] = np.nan_to_num(self.cameras.tilts).clip(0.0, 90.0)
        if self.scenario.zoom:
            found["field_of_view"] = self.cameras.views
        return found

    def _footprints(self, pose: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return the part of a frame that says where the cameras stand and what they see of the floor."""
        view = pose.get("field_of_view", self.scenario.of_each_sensor("field_of_view"))
        found = footprints(self.scenario, view, pose.get("tilt"))
        tilted = {name: rounded(part) for name, part in (found | pose).items() if name in ("near", "tilt")}
        return {"position": self._positions.tolist(), "view": view.tolist(), "reach": found["reach"].tolist(), **tilted}

    def steps(self) -> Iterator[dict[str, Any]]:
        """Decide, and yield the frame of each step, valid as JSON."""
        starts, t, n = np.ones(1, np.bool_), self.scenario.time_step, len(self.names)
        tracks, operations = list[Any](), self._operations
        self._sent[:] = self._heard[:] = self._monotonic()
        self._due = self._monotonic() + t
        with one_thread_each():
            while True:
                ready = self._gather()
                now = self._monotonic()
                headings, pose = np.array(self.cameras.headings, np.float64), self._pose()
                detections = self._feed_scans()
                motion = {"rate": self._sent_rates[0], "commands": np.array([*self._sent_rates][1:]).reshape(-1, n)}
                shown = self._feed.observe(now, self._positions, headings, **motion, **pose)
                operations.price(now)
                answer = self.agent.policy.predict(shown, self._state, starts, deterministic=True)
                actions, self._state = pair_of(answer, self.agent.name)
                starts = np.zeros(1, np.bool_)
                paused, (by_hand, left) = bool(self.hands and self.hands.paused), self._by_hand()
                held = np.isin(np.arange(n), [*by_hand]) | paused
                orders = self._orders(actions[0], pose, held)
                known = [row[:2] for row in tracks if row[5] >= _LIKELY]
                places = known if hasattr(self.agent.policy, "estimate") else [row[1:] for row in detections]
                operations.apply(now, orders, pose, headings, places, held)
                rates = orders["rates"]
                rates[list(by_hand)] = list(by_hand.values())
                rates[np.isnan(headings)] = np.nan
                self.cameras.order(**orders)
                self._sent_rates.append(np.nan_to_num(rates))
                latency = 1000.0 * (self._monotonic() - ready)
                tracks, covered = self._tracks(self._state, headings, pose)
                yield {
                    "time": round(self._start + now, 3),
                    "heading": rounded(headings),
                    **self._footprints(pose),
                    "tracks": tracks,
                    "detections": rounded(np.reshape(detections, (-1, 3))),
                    "orders": rounded(rates),
                    "covered": covered if covered is None else round(covered, 4),
                    "latency": round(latency, 2),
                    "paused": paused,
                    "by_hand": sorted(by_hand),
                    "left": [round(left[i], 1) if left[i] < math.inf else None for i in sorted(by_hand)],
                    "moves": [own.number(now) for own in operations.budgets],
                    "begun": [i for i, own in enumerate(operations.budgets) if own.begins(now)],
                    "rests": np.flatnonzero(operations.rests).tolist(),
                    "boxes": rounded([box for own in self._boxes.values() for box in own]),
                    "messages": self.faults.messages(),
                }
                self._due += t
                late = math.ceil((self._monotonic() - self._due) / t - _LATE)
                if late > 0:
                    self.faults.report("the loop is late", f"{late} steps are left out")
                    self._due += late * t

    def _by_hand(self) -> tuple[dict[int, float], dict[int, float]]:
        """Return the rates of cameras that people steer, by their numbers, and the seconds until the agent has them."""
        returns = self._operations.returns
        rates, left = dict[int, float](), dict[int, float]()
        if min(returns) < math.inf:  # only then joysticks count
            both = enumerate(zip(returns, self.cameras.untouched.tolist(), strict=True))
            left = {i: seconds - since for i, (seconds, since) in both if since < seconds < math.inf}
            rates = dict.fromkeys(left, 0.0)
        if self.hands:
            rates |= (page := self.hands.by_hand)
            left |= {i: max(self.hands.left.get(i, math.inf), left.get(i, 0.0)) for i in page}
        return rates, left

    def _orders(self, actions: np.ndarray, pose: dict[str, np.ndarray], held: np.ndarray) -> dict[str, np.ndarray]:
        """Return the rates of an action, and of cameras that tilt and zoom those and fields of view (n,).

        Cameras that are `held` (n,) bool stay.
        """
        changes = settings_of(actions, self.scenario)
        orders = {"rates": rates_of(actions, self.scenario) * ~held}
        if self.scenario.tilt_limits:
            orders["tilt_rates"] = changes.get("tilt", np.zeros(len(held))) * ~held / self.scenario.time_step
        if self.scenario.zoom:
            change = changes.get("zoom", np.zeros(len(held)))
            orders["views"] = np.where(held | (change == 0.0), np.nan, pose["field_of_view"] + change)
        return orders

    def _gather(self) -> float:
        """Read lines until it is time to decide; return that time."""
        t, complete, ready = self.scenario.time_step, False, -math.inf
        while True:
            until = self._due - _EARLY * t if complete else self._due + _LATE * t
            if self._monotonic() >= until:
                break
            for arrived, line in self.inbox.get(until):
                self._take(arrived, line)
                ready = arrived
            heard = self._monotonic() - self._heard <= self._feed.timeout
            heard[self._pictures.by_events] = False  # nobody waits for them
            complete = bool(heard.any()) and all(i in self._scans for i in np.flatnonzero(heard).tolist())
            if complete and not self._in_time:
                self._due = self._monotonic()
            self._in_time = (self._in_time or complete) and bool(heard.any())
        if self.inbox.dropped:
            self.inbox.dropped = 0
            self.faults.report("detections come faster than they can be read", "the oldest are dropped")
        self._sent[self._pictures.by_events] = self._monotonic()
        for camera in np.flatnonzero(self._monotonic() - self._sent > self._feed.timeout).tolist():
            self.faults.report(f"camera {self.names[camera]} sends no detections")
        return max(ready, until) if complete else until

    def _take(self, arrived: float, line: bytes) -> None:
        """Keep the scan of a line, if it is valid and the newest of its camera."""
        offset = self._wall() - self._monotonic()
        if abs(offset - self._offset) > _CLOCK:
            self.faults.tell(f"the computer's clock was set by {offset - self._offset:+.1f} s")
            self._offset = offset
        try:
            camera, when, detections = parse(line, self.names, self._pictures.sources)
        except ValueError as error:
            self.faults.report("lines of detections are invalid", str(error))
            return
        self._sent[camera] = arrived
        age = 0.0 if when is None else arrived + self._offset - when
        if isinstance(detections, Boxes):
            if (taken := self._pictures.take(camera, arrived - age, arrived, detections)) is None:
                return
            lag, detections = taken
            age += lag
            if bool(detections.event) != (camera in self._pictures.by_events):
                words = "its view must have events: true" if detections.event else "its view has events: true"
                kind = "events" if detections.event else "whole pictures"
                self.faults.report(f"camera {self.names[camera]} sends {kind}", words)
                return
        ended = isinstance(detections, Boxes) and detections.ended  # which counts whenever it is told
        if not ended and not -0.5 * self.scenario.time_step <= age <= self._feed.timeout:
            kind = "from the future" if age < 0.0 else "too old"
            self.faults.report(f"camera {self.names[camera]} sends detections that are {kind}", f"by {abs(age):.1f} s")
            return
        self._heard[camera] = arrived
        if isinstance(detections, Boxes) and detections.event:
            self._events.append((camera, arrived - age, detections))
        elif camera not in self._scans or arrived - age > self._scans[camera][0]:
            self._scans[camera] = arrived - age, detections

    def _feed_scans(self) -> list[list[float]]:
        """Add the scans of the step to the feed; return their detections, each [camera, x, y]."""
        added, now = [], self._monotonic()
        for camera, when, boxes in self._events:
            self._pictures.change(camera, when, boxes)
        self._events.clear()
        self._scans |= {camera: (now, self._pictures.present(camera, now)) for camera in self._pictures.by_events}
        heard = now - self._heard <= self._feed.timeout
        self._boxes = {camera: boxes for camera, boxes in self._boxes.items() if heard[camera]}
        for camera, (when, detections) in sorted(self._scans.items()):
            dropped: list[str] = []
            if isinstance(detections, Boxes):
                shares = self._pictures.shares(camera, detections).tolist()
                self._boxes[camera] = [[camera, *box] for box in shares]
                detections = self._pictures.place(camera, when, detections)
            try:
                places = self._feed.add(camera, when, detections, dropped=dropped)
            except Exception as error:  # without the detections, which are not for every reader
                why = str(error).rpartition("; ")[2]
                self.faults.report(f"the detections of camera {self.names[camera]} are refused", why)
            else:
                added += [[camera, *place] for place in places.tolist()]
            if dropped:
                self.faults.report(f"some detections of camera {self.names[camera]} are left out", dropped[0])
        self._scans.clear()
        return added

    def _tracks(self, state: Any, headings: np.ndarray, pose: dict[str, np.ndarray]) -> tuple[list[Any], float | None]:
        """Return the tracks, and the expected share of their targets that are in view; None without any."""
        estimate = getattr(self.agent.policy, "estimate", None)
        if estimate is None:
            return [], None
        found, own = estimate(state, least=_LEAST), state.beliefs
        shown = found.label[0, 0] > 0
        place, covariance, label, existence, lost = (
            array[0, 0][shown] for array in (*found, own.existence, own.age >= LOST)
        )
        rows = rounded(np.column_stack((place, covariance[:, (0, 0, 1), (0, 1, 1)], existence)))
        if not rows:
            return [], None
        rows = [[*row, float(own)] for row, own in zip(rows, label, strict=True)]  # a label is no measure
        particles, weight = own.body[0, 0, :-1, :2][shown].swapaxes(-1, -2), own.weight[0, 0, :-1][shown]
        places = np.where(lost[:, None, None], particles, place[:, None])  # (k, P, 2)
        weight = np.where(lost[:, None], weight, existence[:, None] / weight.shape[-1])
        given = self.scenario, ("visible",), self._positions, headings, places.reshape(-1, 2)
        pairs = observe(*given, **pose)["pairs"]  # type: ignore[arg-type]
        return rows, float((weight.ravel() * pairs[..., 0].any(0)).sum() / existence.sum())
