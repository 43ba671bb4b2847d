"""Observations of measured positions, for real sensors; it can be copied with features.py and needs only NumPy."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

if __package__:  # a part of hitmac
    from hitmac.envs import features as at
    from hitmac.envs.features import FEATURES, SCALES
else:
    import features as at  # type: ignore[no-redef]
    from features import FEATURES, SCALES  # type: ignore[no-redef]

KNOWLEDGE = ("full", "shared", "neighbours", "own")
"""Kinds of knowledge of the targets, see :attr:`hitmac.envs.Scenario.knowledge`."""


def observe(
    site: Any,
    features: Sequence[str],
    sensor_position: Any,
    heading: Any,
    target_position: Any,
    target_before: Any = None,
    *,
    age: Any = None,
    seen: Any = None,
    field_of_view: Any = None,
    tilt: Any = None,
    along: Any = None,
    rate: Any = None,
    commands: Any = None,
    nearest: int | None = None,
    radius: float | None = None,
    neighbours: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the observation of measured positions, equal to that of :class:`~hitmac.envs.observation.Observer`.

    Lengths are in the units of the site, angles in degrees (counter-clockwise, 0 along +x), times in seconds. Arrays
    may have further leading axes, which broadcast. All sensors share the measurements. With partial knowledge, pass the
    result of :class:`Memory`.

    Args:
        site: the sensors and the arena: a :class:`hitmac.envs.Scenario`, or a mapping with the parameters of one that
            the features need (``sensing_range``, ``field_of_view``, ``distance_scale``, ...).
        features: names out of :data:`FEATURES`, in the order of the last axis.
        sensor_position: (..., n, 2); NaN: the sensor does not work.
        heading: (..., n); NaN: the sensor does not work.
        target_position: (..., m, 2); NaN: the target is absent, or its position unknown.
        target_before: (..., m, 2), the positions one `time_step` of the site earlier. NaN, or None in a first call:
            the velocity is 0, as in the first observation of an episode.
        age: (..., m), sub-steps since `target_position` was measured, inf: never; None: 0, all measured now.
        seen: (..., n, m) bool, True where sensor i detects target j; None: where `age` is 0 and the target is within
            range and view, with no disc or wall of the site in between.
        field_of_view: (..., n), current values of zooming lenses; None: those of the site.
        tilt: (..., n), current tilts below the horizon, degrees; None: the middle of the site's `tilt_limits`.
        along: (..., n), distances of the sensors along the site's rails, from their first corners.
        rate: (..., n), rates at which motors turn the sensors, degrees per second; None: 0.
        commands: (..., D, n), rates commanded in the last D sub-steps, oldest first, where D is the site's
            `command_delay`; None: 0.
        nearest: number of targets shown to each sensor, see the observer; None: all.
        radius: largest distance of such a target; None: any.
        neighbours: number of sensors listed as near each; None: no list.

    Returns:
        ``pairs`` (..., n, m, d) float32, and ``mask`` (..., n, m) int8: 1 where the sensor works and the target's
        position is known. Where the mask is 0, the features are 0, except those of a working sensor alone. With
        `nearest`, for k' = min(k, m) slots in place of m targets, and ``targets`` (..., n, k') int32, -1 in an empty
        one; with `neighbours` also these, (..., n, min(l, n)) int32, -1 for none.

    Raises ``ValueError`` or ``TypeError``, which name the argument, for unknown, missing or out-of-range values.
    """
    names = (features,) if isinstance(features, str) or not isinstance(features, Iterable) else tuple(features)
    if unknown := [name for name in names if not isinstance(name, str) or name not in FEATURES]:
        raise ValueError(f"unknown feature {', '.join(map(str, unknown))[:200]}: known are {', '.join(FEATURES)}")
    nearest, radius, neighbours = check_nearness(nearest, radius, neighbours)
    chosen, needs = [FEATURES[name] for name in names], ""
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = _Pairs(
            _Site(site), sensor_position, target_position,
            heading=heading, target_before=target_before, age=age, seen=seen, field_of_view=field_of_view, tilt=tilt,
            along=along, rate=rate, commands=commands,
        )  # fmt: skip
        observed = np.zeros((*pairs.mask.shape, len(names)), np.float32)
        shown = {"pairs": observed, "mask": pairs.mask.astype(np.int8)}
        try:
            for k, feature in enumerate(chosen):
                needs = f"the feature {names[k]}"
                values = feature.formula(pairs, pairs.site, ...)
                observed[..., k] = np.where(pairs.works if feature.of_sensor else pairs.mask, values, 0.0)
            if nearest is not None:
                targets = pairs.nearest(nearest, math.inf if radius is None else radius * radius)
                observed = np.take_along_axis(observed, np.maximum(targets, 0)[..., None], -2)
                observed[(targets < 0)[..., None] & [not feature.of_sensor for feature in chosen]] = 0.0
                shown = {"pairs": observed, "mask": (targets >= 0).astype(np.int8), "targets": targets}
            if neighbours is not None:
                needs = "the list of neighbours"
                shown["neighbours"] = pairs.neighbours(neighbours)
        except KeyError as error:
            raise ValueError(f"{needs} requires {error.args[0]}, which is missing") from None
    return shown


def sensor_rows(
    site: Any, sensor_position: Any, heading: Any, *, field_of_view: Any = None, tilt: Any = None, along: Any = None,
    rate: Any = None, commands: Any = None,
) -> np.ndarray:  # fmt: skip
    """Return the rows (..., n, 7) of the sensors in an observation of detections, with arguments as :func:`observe`.

    They are x, y, sine and cosine of the heading, half the field of view in degrees, range, and the place on the rail /
    length of the rail; with motors (..., n, 9), also the rate in degrees per second, and the pending turn in degrees;
    with tilts two more, the tilt in degrees and the distance of the near edge; 0 for a sensor that does not work.
    """
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            sensors = _Pairs(
                _Site(site), sensor_position, np.zeros((0, 2)),
                heading=heading, target_before=None, age=None, seen=None, field_of_view=field_of_view, tilt=tilt,
                along=along, rate=rate, commands=commands,
            )  # fmt: skip
            columns = (
                sensors.x, sensors.y, sensors.sin, sensors.cos, 0.5 * sensors.view, np.sqrt(sensors.range_squared),
                FEATURES["along"].formula(sensors, sensors.site, ...),
                *(sensors.motion if sensors.site.get("turn_rates") else ()),
                *((sensors.tilt, np.sqrt(sensors.near_squared)) if sensors.site.get("tilt_limits") else ()),
            )  # fmt: skip
    except KeyError as error:
        raise ValueError(f"the sensors require {error.args[0]}, which is missing") from None
    rows = np.concatenate([np.broadcast_to(column, sensors.works.shape) for column in columns], -1)
    return np.where(sensors.works, rows, 0.0)


def check_nearness(nearest: Any, radius: Any, neighbours: Any) -> tuple[int | None, float | None, int | None]:
    """Check and return the options of an observer of the nearest targets; raise ValueError for an invalid one."""
    whole: tuple[Any, ...] = (int, np.integer)
    for name, value in (("nearest", nearest), ("radius", radius), ("neighbours", neighbours)):
        kinds, limit = whole, "a whole number, 1 or more"
        if name == "radius":
            kinds, limit = (*whole, float, np.floating), "a finite number over 0"
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value < math.inf):
            raise ValueError(f"{name} is {repr(value)[:200]}; it must be {limit}")
        if value is not None and nearest is None:
            raise ValueError(f"{name} is {value!r}; it requires nearest, the number of targets shown to each sensor")
    return nearest, radius, neighbours


class Memory:
    """Memory of measured positions from one sub-step to the next, with leading axes as in :func:`observe`.

    Without ids, every target keeps its row. With ids, targets come and go: a new one takes a row without a known
    position, or else that of the target whose position is the oldest.

    Args:
        knowledge: that of a scenario. ``"full"``: a target without a position is absent; any other: it keeps its last
            seen position. All sensors share the memory.
        num_targets: rows for targets with ids. More are added where more are measured at once.

    Attributes:
        rows: row of each id, until another id takes it.

    Raises ``ValueError`` for an unknown kind of knowledge, positions of another shape than before, and ids that do not
    name every position once.
    """

    def __init__(self, knowledge: str = "full", num_targets: int = 0) -> None:
        if not isinstance(knowledge, str) or knowledge not in KNOWLEDGE:
            raise ValueError(f"knowledge is {repr(knowledge)[:200]}; it must be one of {', '.join(KNOWLEDGE)}")
        self._keeps = knowledge != "full"
        self.rows: dict[Hashable, int] = {}
        self._last = self._position = self._before = np.full((num_targets, 2), np.nan)
        self._age = np.full(num_targets, np.inf)

    def see(
        self,
        target_position: Any,
        left: Any = (),
        *,
        ids: Iterable[Hashable] | None = None,
        target_before: Any = None,
    ) -> dict[str, np.ndarray]:
        """Remember the positions of a sub-step.

        Args:
            target_position: (..., m, 2); NaN: not measured. With `ids` (k, 2), those of the targets measured now.
            left: (..., m) bool, targets to forget, such as those seen leaving. With `ids`, their ids.
            ids: names of the k targets, any hashable objects.
            target_before: positions one `time_step` earlier, if velocities are measured; None: those of the last call,
                NaN for a target that was not measured then.

        Returns:
            ``target_position``, ``target_before`` and ``age``, arguments of :func:`observe`, by row.
        """
        if ids is not None:
            target_position, target_before, left = self._by_row(list(ids), target_position, target_before, left)
        now = _array("target_position", target_position, *(self._last.shape if self._last.size else (None, 2))).copy()
        if not self._last.size:
            self._last = self._position = self._before = np.full(now.shape, np.nan)
            self._age = np.full(now.shape[:-1], np.inf)
        before = self._last if target_before is None else _array("target_before", target_before, *now.shape)
        gone = _array("left", left, now.shape[-2])[..., None] != 0.0 if len(left) else False
        fresh = np.isfinite(now).all(-1)[..., None]
        kept = ~(fresh | gone) & self._keeps
        self._position = np.where(kept, self._position, now)
        self._before = np.where(kept, self._before, before)
        self._age = np.where(fresh, 0.0, np.where(kept, self._age[..., None] + 1.0, np.inf))[..., 0]
        self._last = now
        return {"target_position": self._position, "target_before": self._before, "age": self._age}

    def _by_row(self, ids: list[Hashable], position: Any, before: Any, left: Iterable[Hashable]) -> tuple[Any, ...]:
        """Return positions (k, 2), those before, and the ids that left, by row."""
        position = _array("target_position", position if np.size(position) else np.zeros((0, 2)), None, 2)
        if position.shape != (len(ids), 2) or len(set(ids)) < len(ids):
            raise ValueError(f"ids is {repr(ids)[:200]}; it must name each of {len(position)} targets once")
        given = None if before is None else _array("target_before", before, *position.shape)
        forgotten = [self.rows[one] for one in left if one in self.rows]
        if new := [one for one in ids if one not in self.rows]:
            forgotten += self._take_rows(new, {self.rows[one] for one in ids if one in self.rows}, forgotten)
        rows, m = [self.rows[one] for one in ids], len(self._age)
        gone, placed = np.zeros(m, np.bool_), np.full((2, m, 2), np.nan)
        gone[forgotten] = True
        placed[0, rows] = position
        if given is not None:
            placed[1, rows] = given
        return placed[0], None if given is None else placed[1], gone

    def _take_rows(self, new: list[Hashable], used: set[int], forgotten: list[int]) -> list[int]:
        """Give rows to new ids and return them: those without an owner first, then by the age of their positions."""
        age, owners = self._age.copy(), {row: one for one, row in self.rows.items()}
        age[forgotten] = np.inf
        free = sorted(set(range(len(age))) - used, key=lambda row: (-age[row], row in owners, row))
        more = max(len(new) - len(free), 0)
        self._last, self._position, self._before = (
            np.pad(array, ((0, more), (0, 0)), constant_values=np.nan)
            for array in (self._last, self._position, self._before)
        )
        self._age = np.pad(age, (0, more), constant_values=np.inf)
        taken = [*free, *range(len(age), len(age) + more)][: len(new)]
        for one, row in zip(new, taken, strict=True):
            if row in owners:
                del self.rows[owners[row]]
            self.rows[one] = row
        self._last[taken] = np.nan
        return taken


def walls_of(walls: Any, extent: Any, blocks: Sequence[int], street_width: float) -> np.ndarray:
    """Return walls (w, 4) x1, y1, x2, y2, followed by the four sides of every block (rows, columns) of a city."""
    own = np.reshape(np.asarray(walls, np.float64), (-1, 4))
    if len(blocks) == 0:
        return own
    sides = []
    for half, count in zip(extent, (blocks[1], blocks[0]), strict=True):
        first = np.linspace(-half, half - street_width, count + 1)[:-1] + street_width
        sides.append((first, first + 2.0 * (half - street_width / 2.0) / count - street_width))
    (low_x, low_y), (high_x, high_y) = (np.meshgrid(*edges) for edges in zip(*sides, strict=True))
    corners = (low_x, low_y), (high_x, low_y), (high_x, high_y), (low_x, high_y)
    around = [np.stack((*corners[k], *corners[(k + 1) % 4]), -1) for k in range(4)]
    return np.concatenate((own, np.stack(around, -2).reshape(-1, 4)))


class _Site(dict):
    """Parameters of a site by name."""

    def __init__(self, site: Any) -> None:
        if not isinstance(site, Mapping) and not hasattr(site, "distance_scale"):
            raise TypeError(f"site is {repr(site)[:200]}; it must be a Scenario, or a mapping with its parameters")
        super().__init__(site if isinstance(site, Mapping) else vars(site))

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"the site's {name}")

    def number(self, name: str, size: int = 1, most: float = math.inf, missing: float | None = None) -> Any:
        """Return a positive number, or an array of `size` of them; 0 is allowed with a default, `missing`."""
        value = self[name] if missing is None else self.get(name, missing)
        if isinstance(value, float) and 0.0 <= value <= most and value < math.inf and (value or missing is not None):
            return value  # a plain number needs no array
        array = _array(f"the site's {name}", value)
        if array.shape not in ((), (1,), (size,)):
            raise ValueError(f"the site's {name} has shape {array.shape}; it must be a number, or {size} of them")
        enough, least = (array > 0, "over 0") if missing is None else (array >= 0, "0 or more")
        if not (enough & (array <= most) & (array < math.inf)).all():
            limit = "finite" if most == math.inf else f"at most {most:g}"
            raise ValueError(f"the site's {name} is {repr(value)[:200]}; it must be {least} and {limit}")
        return array if array.ndim else float(array)

    def rows(self, name: str, width: int) -> np.ndarray:
        """Return rows of numbers (k, width); k = 0 if they are missing."""
        rows = self.get(name, ())
        return _array(f"the site's {name}", rows, None, width) if len(rows) else np.zeros((0, width))

    def __getattr__(self, name: str) -> Any:
        """Return a scale of the features, or a positive parameter."""
        if name.startswith("_"):
            raise AttributeError(name)
        value = SCALES[name](self) if name in SCALES else self.number(name, missing=_OPTIONAL.get(name))
        self.__dict__[name] = value
        return value

    @cached_property
    def extent(self) -> np.ndarray:  # half the width, half the height
        return np.broadcast_to(self.number("arena", 2), (2,))

    @cached_property
    def walls(self) -> np.ndarray:
        own = self.rows("walls", 4)
        blocks = self.get("blocks")
        return walls_of(own, self.extent, blocks, self.number("street_width")) if blocks else own

    @cached_property
    def top_speed(self) -> float:
        return float(self.max_speed * (1.0 + self.speed_noise))

    @cached_property
    def extra_move_interval(self) -> float:
        return 0 if self.get("tracks") else self.extra_move_every

    @cached_property
    def position_errors(self) -> tuple[float]:
        return (self.position_noise,)

    @cached_property
    def rates(self) -> tuple[float, float]:
        rates = np.ravel(self.get("turn_rates", 0.0))
        return (float(rates[0]) if len(rates) == 2 else 0.0), float(max(rates)) or math.inf

    @cached_property
    def highest_value(self) -> float:
        return max(self.get("target_values", ()), default=1.0) * max((1.0, *self.get("zone_values", ())))


_OPTIONAL = {
    "speed_noise": 0.2, "extra_move_every": 10, "position_noise": 0.0, "acceleration": 0.0, "dead_zone": 0.0,
    "command_delay": 0.0,
}  # fmt: skip
"""Parameters of a site that may be missing, with their defaults in a scenario, which a copy of this file lacks."""


class _Pairs:
    """Quantities of all pairs of a sensor and a target, most of them computed on first use.

    Shapes are (..., n, 1) for sensors, (..., 1, m) for targets, (..., n, m) for pairs.
    """

    def __init__(self, site: _Site, sensor_position: Any, target_position: Any, **given: Any) -> None:
        sensor = _array("sensor_position", sensor_position, None, 2)
        target = _array("target_position", target_position, None, 2)
        self.site, self.n, self.m, self._sensor = site, sensor.shape[-2], target.shape[-2], sensor
        delay = int(site.get("command_delay", 0))
        shapes = {"target_before": (self.m, 2), "age": (self.m,), "seen": (self.n, self.m), "commands": (delay, self.n)}
        leading = {"sensor_position": sensor.shape[:-2], "target_position": target.shape[:-2]}
        for name, values in given.items():
            if values is not None or name == "heading":
                shape = shapes.get(name, (self.n,))
                given[name] = array = _array(name, values, *shape)
                leading[name] = array.shape[: array.ndim - len(shape)]
        try:
            lead = np.broadcast_shapes(*leading.values())
        except ValueError:
            words = ", ".join(f"{name} {shape}" for name, shape in leading.items())
            raise ValueError(f"the leading axes do not broadcast: {words}") from None
        self._given, heading, view = given, given["heading"], given["field_of_view"]
        age = np.zeros(self.m) if given["age"] is None else given["age"]
        if (age < 0.0).any():
            raise ValueError(f"age is {age.min()}; it must be 0 or more")
        if view is not None and (wrong := (view <= 0.0) | (view > 360.0)).any():
            raise ValueError(f"field_of_view is {view[wrong][0]}; it must be over 0, at most 360")
        if (tilt := given["tilt"]) is not None and (wrong := (tilt < 0.0) | (tilt > 90.0)).any():
            raise ValueError(f"tilt is {tilt[wrong][0]}; it must be from 0 to 90 degrees")
        self.works = (np.isfinite(sensor).all(-1) & np.isfinite(heading))[..., None]
        known = np.isfinite(target).all(-1) & np.isfinite(age)
        self.mask = np.logical_and(self.works, known[..., None, :], out=np.empty((*lead, self.n, self.m), np.bool_))
        self.age = np.where(known, age, 0.0)[..., None, :]
        self._target = np.where(known[..., None], target, 0.0)
        self.x, self.y = (np.where(self.works, sensor[..., :, None, axis], 0.0) for axis in range(2))
        self.to_x, self.to_y = self._target[..., None, :, 0], self._target[..., None, :, 1]
        radians = np.radians(np.where(self.works, heading[..., None], 0.0))
        self.cos, self.sin = np.cos(radians), np.sin(radians)
        self.dx, self.dy = self.to_x - self.x, self.to_y - self.y
        self.distance = np.sqrt(self.dx * self.dx + self.dy * self.dy)
        self.east, self.north = at.unit(self.dx, self.dy, self.distance)
        self.number = None
        self.sensor = self
        self.i, self.j = np.arange(self.n)[:, None], np.arange(self.m)

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        """Return a row of the sensors, as formulas read it."""
        return _ROWS[key[0]](self)

    def of_each_sensor(self, name: str, most: float = math.inf) -> np.ndarray:
        """Return a parameter of every sensor (n, 1), or of all of them (1, 1)."""
        return np.reshape(self.site.number(name, self.n, most), (-1, 1))

    def nearest(self, most: int, limit: float) -> np.ndarray:
        """Return the targets (..., n, k) in every sensor's slots, up to a squared distance of `limit`."""
        squared = self.dx * self.dx + self.dy * self.dy
        squared = np.where(self.mask & (squared <= limit), squared, math.inf)
        if most < self.m:
            return _lowest(squared, most)
        return np.where(np.isfinite(squared), np.arange(self.m), -1).astype(np.int32)

    def neighbours(self, most: int) -> np.ndarray:
        """Return each sensor and its nearest working ones (..., n, l) with ranges that can touch its own."""
        reach = np.sqrt(self.range_squared)[..., 0]
        offset = self._sensor[..., None, :, :] - self._sensor[..., :, None, :]
        squared = offset[..., 0] * offset[..., 0] + offset[..., 1] * offset[..., 1]
        together = reach[..., None, :] + reach[..., :, None]
        near = (squared <= together * together) & self.works[..., None, :, 0]
        listed = _lowest(np.where(np.eye(self.n, dtype=np.bool_), -1.0, np.where(near, squared, math.inf)), most)
        return np.broadcast_to(listed, (*self.mask.shape[:-1], listed.shape[-1])).copy()

    @cached_property
    def view(self) -> np.ndarray:
        present = self._given["field_of_view"]
        return self.of_each_sensor("field_of_view", 360.0) if present is None else present[..., None]

    @cached_property
    def range_squared(self) -> np.ndarray:
        return self.edges[0]

    @cached_property
    def near_squared(self) -> np.ndarray:
        return self.edges[1]

    @cached_property
    def tilt(self) -> np.ndarray:
        given, limits = self._given["tilt"], self.site.rows("tilt_limits", 2)
        if not len(limits):
            return np.zeros((1, 1))
        return limits.mean(-1)[:, None] if given is None else given[..., None]

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances of the far and the near edge of the view."""
        reach, view = self.of_each_sensor("sensing_range"), self.of_each_sensor("field_of_view", 360.0)
        squared = at.range_squared(at.view_area(reach, view), self.view)
        if not self.site.get("tilt_limits"):
            return squared, np.zeros((1, 1))
        half = 0.5 * self.of_each_sensor("vertical_view", 180.0) / view * self.view
        return at.floor_edges(squared, self.of_each_sensor("mount_height"), self.tilt, half)

    @cached_property
    def pans(self) -> tuple[Any, ...]:
        limits = self.site.rows("pan_limits", 2)
        low, high = limits.T[..., None] if len(limits) else np.array([[[-180.0]], [[180.0]]])
        return at.pan_rows(low, high)  # (n, 1) each, or (1, 1)

    @cached_property
    def noticed(self) -> np.ndarray:
        seen = self._given["seen"]
        if seen is not None:
            return self.works & (seen != 0.0)
        seen = at.in_view(self.cos, self.sin, self.range_squared, at.cos_half_view(self.view), self.dx, self.dy)
        seen &= self.dx * self.dx + self.dy * self.dy >= self.near_squared
        return seen & self.mask & (self.age == 0.0) & self.clear

    @cached_property
    def seeing(self) -> np.ndarray:
        return self.noticed.sum(-2, keepdims=True)

    @cached_property
    def clear(self) -> np.ndarray:
        clear = np.ones(self.dx.shape, np.bool_)
        for disc in self.site.rows("discs", 3):
            clear &= ~at.disc_blocks(self.x, self.y, self.dx, self.dy, disc)
        for wall in self.site.walls:
            clear &= ~at.wall_blocks(self.x, self.y, self.dx, self.dy, wall)
        return clear

    @cached_property
    def velocity(self) -> np.ndarray:
        before = self._given["target_before"]
        if before is None:
            return np.zeros((1, 1, 2))
        gone = np.where(np.isfinite(before).all(-1, keepdims=True), self._target - before, 0.0)
        return gone[..., None, :, :] / self.site.time_step

    @cached_property
    def velocity_x(self) -> np.ndarray:
        return self.velocity[..., 0]

    @cached_property
    def velocity_y(self) -> np.ndarray:
        return self.velocity[..., 1]

    @cached_property
    def values(self) -> Any:
        own, factors = self.site.get("target_values", ()), self.site.get("zone_values", ())
        zones = [_array("the site's zones", zone, None, 2) for zone in self.site.get("zones", ())]
        first, factor = np.cumsum([0, *map(len, zones)]), _array("the site's zone_values", factors, len(zones))
        target = _array("the site's target_values", own, self.m) if len(own) else np.ones(self.m)
        return at.Values(target, np.concatenate([np.zeros((0, 2)), *zones]), first, factor)

    @cached_property
    def rail(self) -> tuple[np.ndarray, ...]:
        """Distance along the rail, its length, and x and y of its unit vector at the sensor."""
        rails, along = self.site.get("rails", ()), self._given["along"]
        if not len(rails):
            return (np.zeros((1, 1)),) * 4
        if along is None:
            raise KeyError("the argument along")
        if len(rails) not in (1, self.n):
            raise ValueError(f"the site has {len(rails)} rails; it must have one, or {self.n}, one for each sensor")
        own = [_on_rail(rails[i if len(rails) > 1 else 0], along[..., i, None]) for i in range(self.n)]
        return tuple(np.stack(one, -2) for one in zip(*own, strict=True))

    @cached_property
    def motion(self) -> tuple[np.ndarray, np.ndarray]:
        """Rate, degrees per second, and the angle that a sensor still turns if no further rate is commanded."""
        rate, commands = self._given["rate"], self._given["commands"]
        start = rate = np.zeros((1, 1)) if rate is None else rate[..., None]
        if self.site.rates[1] == math.inf:
            return rate, np.zeros((1, 1))
        motor, turned = at.motor_of(self.site), 0.0
        for command in np.moveaxis(np.zeros((0, 1)) if commands is None else commands, -2, 0):
            rate, angle = at.follow_command(motor, self.site.time_step, rate, command[..., None])
            turned = turned + angle
        return start, turned + at.coasted(motor, rate)


_ROWS: dict[int, Callable[[_Pairs], Any]] = {
    at.X: lambda of: of.x, at.Y: lambda of: of.y,
    at.DIRECTION_X: lambda of: of.cos, at.DIRECTION_Y: lambda of: of.sin,
    at.FIELD_OF_VIEW: lambda of: of.view, at.COS_HALF_VIEW: lambda of: at.cos_half_view(of.view),
    at.RANGE_SQUARED: lambda of: of.range_squared, at.NEAR_SQUARED: lambda of: of.near_squared,
    at.TILT: lambda of: of.tilt, at.TURN: lambda of: of.of_each_sensor("turn_angle", 180.0),
    at.ALONG: lambda of: of.rail[0], at.RAIL_LENGTH: lambda of: of.rail[1],
    at.RAIL_X: lambda of: of.rail[2], at.RAIL_Y: lambda of: of.rail[3],
    at.RATE: lambda of: of.motion[0], at.PENDING: lambda of: of.motion[1],
    at.PAN_X: lambda of: of.pans[0], at.PAN_Y: lambda of: of.pans[1],
    at.COS_HALF_PAN: lambda of: of.pans[2], at.SIN_HALF_PAN: lambda of: of.pans[3],
}  # fmt: skip
"""Rows of the sensors (..., n, 1)."""


def _array(name: str, values: Any, *shape: int | None) -> np.ndarray:
    """Return `values` as float64 of a shape (..., *shape); None: any size."""
    try:
        array = np.asarray(values, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} is {repr(values)[:200]}; it must be an array of numbers") from None
    sizes = zip(shape[::-1], array.shape[::-1], strict=False)
    if array.ndim < len(shape) or any(size not in (None, given) for size, given in sizes):
        words = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {array.shape}; it must be (..., {words})")
    return array


def _lowest(values: np.ndarray, most: int) -> np.ndarray:
    """Return the indices of the lowest values along the last axis, ascending, ties to the first; -1 for inf."""
    number = values.shape[-1]
    chosen = values.argsort(-1, kind="stable")[..., :most]
    chosen = np.where(np.isfinite(np.take_along_axis(values, chosen, -1)), chosen, number)
    chosen.sort(-1)
    return np.where(chosen < number, chosen, -1).astype(np.int32)


def _on_rail(polyline: Any, along: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return places on a rail, its length, and x and y of its unit vector there."""
    _, _, gone, way_x, way_y = at.rail_corners(polyline).T
    corner = np.minimum(np.searchsorted(gone[1:], along, "right"), len(gone) - 1)
    return along, np.full(along.shape, gone[-1]), way_x[corner], way_y[corner]
