"""Settings of operators: the most moves of a camera in an hour, its rest, private zones, and its return from people.

Between the agent's decision and the order to the camera, :class:`Operations` holds or replaces the agent's order. A
move begins when a camera is ordered to turn or tilt that was not before, or the other way than before.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hitmac.agents.deploy.run.cameras import names_of
from hitmac.agents.deploy.run.drivers import load_sections
from hitmac.agents.deploy.run.privacy import Privacy, Zone
from hitmac.agents.planning.planner import PlannerAgent
from hitmac.envs import validation
from hitmac.envs.features import longest_ranges
from hitmac.envs.parts.sensors import limits_of, within
from hitmac.envs.parts.tilt import make_mount
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import Natural, NotNegative, Range, in_short, shortly

HOUR, PART = 3600.0, 600.0  # seconds in which moves are counted
PARTS = 6  # share of the moves of an hour, 1 / PARTS, that may be made in PART seconds
CLOSE = 1.0  # degrees from its rest at which a camera stays
PRICE = 4.0  # factor of a planner's cost of turning when its cameras have no moves left
PATIENCE = 10.0  # seconds for which the last move must be wanted before it begins


@dataclass(frozen=True, kw_only=True)
class Operation(validation.Checked):
    """Setting `operation` of a camera; an invalid one raises ``ValueError`` or ``TypeError``."""

    moves_an_hour: Natural | None = None
    """Most moves that the agent may begin in any hour. Left out: any number."""
    rest_after: NotNegative = 0.0
    """Seconds without a target in its reach after which it goes to its rest, until one appears; 0: never."""
    rest_heading: float | None = None
    """Heading at rest, degrees in the site's frame. Left out: the present one."""
    rest_tilt: Annotated[float, Range(0, 90, "degrees")] | None = None
    """Tilt at rest, degrees below the horizon. Left out: the present one."""
    rest_view: Annotated[float, Range(0, 360, "degrees")] | None = None
    """Field of view at rest, degrees. Left out: the present one."""
    manual_return: NotNegative = 0.0
    """Seconds after the last turn by hand, on the page or with its own joystick, after which the agent has it back;
    0: when the page gives it back, and its joystick does not count."""
    private: Any = ()
    """Zones that its view must not cover, each with the settings of :class:`~.privacy.Zone`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rest_after and self.rest == (None, None, None):
            raise ValueError(f"rest_after is {self.rest_after:g}; it requires rest_heading, rest_tilt or rest_view")
        if not isinstance(self.private, list | tuple):
            raise TypeError(f"private is {shortly(self.private)}; it must be a list of zones")
        vars(self)["private"] = tuple(_zone(number, one) for number, one in enumerate(self.private, 1))

    @property
    def rest(self) -> tuple[float | None, float | None, float | None]:
        """Heading, tilt and field of view at rest."""
        return self.rest_heading, self.rest_tilt, self.rest_view


def _zone(number: int, given: Any) -> Zone:
    known = list(validation.field_types(Zone))
    try:
        if not isinstance(given, dict) or "zone" not in given:
            raise TypeError(f"it is {shortly(given)}; it must have zone, and may have hours and days")
        if unknown := given.keys() - set(known):
            raise ValueError(f"unknown setting {in_short(unknown, known)}: known are {', '.join(known)}")
        return Zone(**given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"zone {number} of private: {error}") from None


def load_operations(kind: str | Path, scenario: Scenario) -> list[Operation]:
    """Return the settings `operation` of every sensor in a file of cameras, see :func:`~.drivers.load_sections`."""
    found = [own or Operation() for own in load_sections(kind, scenario, "operation", Operation)]
    limits, tilts = limits_of(scenario), make_mount(scenario).limit
    for i, (name, own) in enumerate(zip(names_of(scenario), found, strict=True)):
        heading, tilt, view = own.rest
        turned = None if heading is None else within(np.array([heading]), limits[i : i + 1])[0]
        for label, given, value, spans in (
            ("heading", heading, turned, limits[i : i + 1]),
            ("tilt", tilt, tilt, tilts[i : i + 1]),
            ("view", view, view, [scenario.zoom] if scenario.zoom else []),
        ):
            low, high = spans[0] if len(spans) else (math.inf, -math.inf)
            if value is not None and not low <= value <= high:
                words = f"within the site's, {low:g} to {high:g}" if low <= high else "left out, as the site's are"
                raise ValueError(f"{kind}: camera {name}: rest_{label} is {given:g}; it must be {words}")
    return found


class Budget:
    """Moves of a camera, at most `most` in any hour, and a share of them in ten minutes; None: any number.

    A move begins when it has been wanted, the same way, for a time in proportion to the share of the moves made.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most, self._way, self._asked = most, np.zeros(2), np.zeros(2)
        self._times: deque[float] = deque()
        self._since = 0.0  # time since which the agent wants to turn this way

    def passes(self, now: float, rates: Sequence[float]) -> bool:
        """Take an order at a monotonic time; return False if it begins a move too many, or too early."""
        way = np.sign(rates)
        if not way.any() or (way * self._asked).sum() <= 0.0:
            self._since = now
        self._asked = way
        begins = way.any() and (not self._way.any() or (way * self._way).min() < 0.0)
        if begins and ((used := self.used(now)) >= 1.0 or now - self._since < PATIENCE * used):
            self._way = np.zeros(2)
            return False
        if begins:
            self._times.append(now)
        self._way = np.where(way, way, self._way) if way.any() else way  # a pan that waits for a tilt is not at rest
        return True

    def recall(self, times: Iterable[float]) -> None:
        """Count moves of an earlier run, which began at these times, ascending."""
        self._times.extend(times)

    def begins(self, now: float) -> bool:
        """Return whether the order of this time began a move."""
        return bool(self._times) and self._times[-1] == now

    def number(self, now: float, seconds: float = HOUR) -> int:
        """Return the number of moves in the last seconds, up to an hour."""
        while self._times and now - self._times[0] > HOUR:
            self._times.popleft()
        return sum(now - time <= seconds for time in self._times)

    def used(self, now: float) -> float:
        """Return the larger share of the moves that were made, in the last hour and in the last ten minutes."""
        if self._most is None:
            return 0.0
        of_part = max(math.ceil(self._most / PARTS), 1)
        return max(self.number(now) / self._most, self.number(now, PART) / of_part) if self._most else 1.0


class Operations:
    """Settings of all cameras of a site, and what follows from them for the agent's orders at each step.

    `policy` is the agent's; a planner pays up to :data:`PRICE` times as much for a turn, the more of their moves the
    cameras with a budget have made.
    """

    def __init__(self, given: Sequence[Operation], scenario: Scenario, policy: Any = None) -> None:
        n, self._scenario, self.all = scenario.num_sensors, scenario, given
        self.budgets, self._seen = [Budget(own.moves_an_hour) for own in self.all], [-math.inf] * n
        self.returns = [own.manual_return or math.inf for own in self.all]
        self.rests = np.zeros(n, np.bool_)
        self._reach = longest_ranges(scenario)
        self._limits, self._highest = limits_of(scenario), scenario.of_each_sensor("turn_angle") / scenario.time_step
        while hasattr(policy, "policy"):  # adapted
            policy = policy.policy
        self._planner = policy if isinstance(policy, PlannerAgent) else None

    @property
    def zones(self) -> list[list[list[float]]]:
        """Polygons of all private zones, each once."""
        return [[*map(list, one)] for one in dict.fromkeys(zone.zone for own in self.all for zone in own.private)]

    def privacy(self) -> list[Privacy | None]:
        """Return the private zones of each camera, None without any."""
        return [Privacy(own.private, self._scenario, i) if own.private else None for i, own in enumerate(self.all)]

    def price(self, now: float) -> None:
        """Set the cost of turning of the agent's next decision."""
        used = [own.used(now) for own, given in zip(self.budgets, self.all, strict=True) if given.moves_an_hour]
        if self._planner and used:
            self._planner.price(PRICE ** min(float(np.mean(used)), 1.0))

    def apply(
        self, now: float, orders: Mapping[str, np.ndarray], pose: Mapping[str, np.ndarray], headings: np.ndarray,
        places: Any, held: np.ndarray,
    ) -> None:  # fmt: skip
        """Change the agent's orders (n,), `rates`, `tilt_rates` and `views`, in place, but for cameras held (n,) bool.

        `places` (k, 2) are those of targets; `pose` has the present tilts and fields of view.
        """
        away = np.linalg.norm(np.reshape(places, (-1, 1, 2)) - self._scenario.sensor_positions, axis=-1)
        for i, own in enumerate(self.all):
            if (away[:, i] <= self._reach[i]).any() or self._seen[i] == -math.inf:
                self._seen[i] = now
            self.rests[i] = own.rest_after and now - self._seen[i] >= own.rest_after and not held[i]
            if self.rests[i]:
                self._rest(i, orders, pose, headings)
            turn = [np.nan_to_num(orders[name][i]) for name in ("rates", "tilt_rates") if name in orders]
            turn = [0.0, 0.0] if held[i] else [*turn, 0.0][:2]
            if not self.budgets[i].passes(now, turn):
                for name in {"rates", "tilt_rates"} & orders.keys():
                    orders[name][i] *= 0.0

    def _rest(
        self, i: int, orders: Mapping[str, np.ndarray], pose: Mapping[str, np.ndarray], headings: np.ndarray
    ) -> None:
        """Order camera i towards its rest."""
        heading, tilt, view = self.all[i].rest
        ways = {"rates": 0.0, "tilt_rates": 0.0}
        if heading is not None:
            wanted, now = (within(np.array([one]), self._limits[i : i + 1])[0] for one in (heading, headings[i]))
            ways["rates"] = wanted - now
            if not np.isfinite(self._limits[i, 0]):
                ways["rates"] -= 360.0 * round(ways["rates"] / 360.0) if np.isfinite(headings[i]) else 0.0
        if tilt is not None:
            ways["tilt_rates"] = tilt - pose["tilt"][i]
        for name in ways.keys() & orders.keys():
            rate = np.clip(ways[name] / max(self._scenario.time_step, 0.5), -self._highest[i], self._highest[i])
            orders[name][i] = rate * (abs(ways[name]) > CLOSE)  # NaN of a camera that does not answer stays
        if "views" in orders:
            orders["views"][i] = math.nan if view is None else view
