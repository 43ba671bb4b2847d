"""Views of sensors, and the obstacles in their way. Compiled by numba."""

import math
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.base.compile import allocating, inlined, kernel
from hitmac.envs.base.nearest import Cells, box_of, sort_into_cells
from hitmac.envs.base.threads import Threads, blocks, cores
from hitmac.envs.parts.rails import Rails, point_on
from hitmac.envs.scenario import Scenario

# A view: position, unit vector of the heading, cosine of half the field of view, range squared, chance to detect; where
# sensors tilt also the squared distance of the near edge, and the range is the far one.
VIEW_X, VIEW_Y, VIEW_COS, VIEW_SIN, VIEW_HALF, VIEW_RANGE, VIEW_CHANCE, VIEW_NEAR = range(8)
DIRECTIONS = 2048
"""Directions from a sensor in which the distance to the nearest obstacle is known."""

_MOST_PLACES = 4096  # 8 KiB each


NO_CELLS = Cells(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Watch(NamedTuple):
    """Views of a scene, and the obstacles in their way."""

    views: np.ndarray  # (n, 7 or 8)
    clear: np.ndarray  # (n, DIRECTIONS) of :class:`Sight`, or (n, 0) without obstacles
    cells: Cells  # by which only the views near a particle are tested; without columns: all are
    start: np.ndarray  # (C + 2,) int32: first view of each cell
    number: np.ndarray  # (n,) int32: views in the order of their cells
    reach: float  # the largest range


@allocating
def watch_from(views, clear, cells):
    """Return the views (n, 7) of a scene, those that can detect targets sorted into cells."""
    n, squared = views.shape[0], 0.0
    start = np.empty(cells.columns * cells.rows + 2, np.int32)
    number = np.empty(n if cells.columns > 0 else 0, np.int32)
    if cells.columns > 0:
        detects = np.empty((n, 1), np.bool_)
        for i in range(n):
            detects[i, 0] = views[i, VIEW_CHANCE] > 0.0 and views[i, VIEW_RANGE] > 0.0
            squared = max(squared, views[i, VIEW_RANGE] if detects[i, 0] else 0.0)
        sort_into_cells(cells, views.reshape(n, views.shape[1], 1), detects, 0, start, number, np.empty(n), np.empty(n))
    return Watch(views, clear, cells, start, number, math.sqrt(squared))


@allocating
def watch_of(scene, r, views, cells):
    """Return the :class:`Watch` of row r of a :class:`~.beliefs.Scene`, with these views (n, 7) of its sensors."""
    return watch_from(views, scene.clear[r * scene.clear.shape[0] // scene.time.shape[0]], cells)


@inlined
def degrees(y, x):
    """Return ``atan2(y, x)`` in degrees as float32, with an error of 1e-5, by a polynomial that can be vectorised.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 4.4.49, atan on [0, 1].
    """
    one = np.float32
    across, along = abs(y), abs(x)
    ratio = min(across, along) / max(max(across, along), one(1e-30))
    s = ratio * ratio
    angle = ratio * (
        one(57.29577951)
        + s * (one(-19.09848529) + s * (one(11.45546107) + s * (one(-8.14008784) + s * (one(6.10559287)
        + s * (one(-4.31378128) + s * (one(2.45854439) + s * (one(-0.92647698) + s * one(0.16422854))))))))
    )  # fmt: skip
    angle = one(90.0) - angle if across > along else angle
    angle = one(180.0) - angle if x < one(0.0) else angle
    return angle if y >= one(0.0) else -angle


@inlined
def is_clear(clear, dx, dy):
    """Return True if no obstacle of `clear` (DIRECTIONS,) is in the way to the offset (dx, dy) from a sensor."""
    x, y = np.float32(dx), np.float32(dy)
    k = np.int32((degrees(y, x) + np.float32(180.0)) * np.float32(DIRECTIONS / 360.0))
    return x * x + y * y < clear[min(k, np.int32(DIRECTIONS - 1))]


@inlined
def in_view(view, watch, i, x, y):
    """Return True if (x, y) is in range and field of view of a view (7 or 8,) of sensor i, and no obstacle hides it."""
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    squared = dx * dx + dy * dy
    ahead = view[VIEW_COS] * dx + view[VIEW_SIN] * dy
    seen = (squared <= view[VIEW_RANGE]) & (ahead > view[VIEW_HALF] * math.sqrt(squared))
    seen = seen and (view.shape[0] == VIEW_NEAR or squared >= view[VIEW_NEAR])
    return seen and (watch.clear.shape[1] == 0 or is_clear(watch.clear[i], dx, dy))


@inlined
def chance_of_none(watch, x, y):
    """Return the probability that no sensor of a :class:`Watch` detects a target at (x, y)."""
    missed, views = 1.0, watch.views
    if watch.cells.columns == 0:
        for i in range(views.shape[0]):
            if in_view(views[i], watch, i, x, y):
                missed *= 1.0 - views[i, VIEW_CHANCE]
    else:
        first_column, last_column, first_row, last_row = box_of(
            watch.cells, x - watch.reach, x + watch.reach, y - watch.reach, y + watch.reach
        )
        for row in range(first_row, last_row + 1):
            before = row * watch.cells.columns
            for s in range(watch.start[before + first_column], watch.start[before + last_column + 1]):
                i = watch.number[s]
                if in_view(views[i], watch, i, x, y):
                    missed *= 1.0 - views[i, VIEW_CHANCE]
    return missed


def certain_view(view: Any, scenario: Scenario) -> np.ndarray:
    """Return fields of view, degrees, less the heading's standard error on either side, and at least half of them."""
    return np.where(view < 360.0, np.maximum(view - 2.0 * scenario.heading_noise, 0.5 * view), view)


def turned_views(views: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return views (R, n, 7) turned by angles (R, n), degrees."""
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    x, y, turned = views[..., VIEW_COS], views[..., VIEW_SIN], views.copy()
    turned[..., VIEW_COS], turned[..., VIEW_SIN] = c * x - s * y, s * x + c * y
    return turned


@kernel
def measure_clear(walls, discs, places, clear, share):
    """Write the squared distances (P, DIRECTIONS) from places (P, 2) to walls (w, 4) and discs (d, 3); inf: none."""
    for low, high in blocks(places.shape[0] * DIRECTIONS, share):
        for item in range(low, high):
            p, k = item // DIRECTIONS, item % DIRECTIONS
            x, y = places[p, 0], places[p, 1]
            angle = ((k + 0.5) / DIRECTIONS * 2.0 - 1.0) * math.pi
            c, s, least = math.cos(angle), math.sin(angle), math.inf
            for w in range(walls.shape[0]):
                wall_x, wall_y = walls[w, 2] - walls[w, 0], walls[w, 3] - walls[w, 1]
                dx, dy = walls[w, 0] - x, walls[w, 1] - y
                cross = c * wall_y - s * wall_x
                if cross != 0.0:
                    away, place = (dx * wall_y - dy * wall_x) / cross, (dx * s - dy * c) / cross
                    if away >= 0.0 and 0.0 <= place <= 1.0:
                        least = min(least, away)
            for d in range(discs.shape[0]):
                dx, dy = discs[d, 0] - x, discs[d, 1] - y
                ahead, aside, radius = c * dx + s * dy, c * dy - s * dx, discs[d, 2]
                if dx * dx + dy * dy < radius * radius:
                    least = 0.0
                elif ahead > 0.0 and abs(aside) < radius:
                    least = min(least, ahead - math.sqrt(radius * radius - aside * aside))
            clear[p, k] = least * least


class Sight:
    """Squared distances to the nearest walls, blocks and fixed discs of a scenario in all directions from a place.

    Direction k of :data:`DIRECTIONS` = 2048 is at ``360 (k + 0.5) / 2048 - 180`` degrees, so that at the distance d the
    edges of shadows have errors up to 0.0016 d.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.walls, self.discs = scenario.all_walls, np.array(scenario.discs, np.float64).reshape(-1, 3)
        self._known: dict[tuple[float, float, bytes], np.ndarray] = {}  # by place and discs

    def clear(self, x: np.ndarray, y: np.ndarray, discs: np.ndarray | None = None) -> np.ndarray:
        """Return the squared distances (B, n, DIRECTIONS) float32 from places (B, n).

        Each scene can have `discs` (B, k, 3) in place of the fixed ones. Else, if all scenes have the same places, the
        first axis is 1. Without obstacles it is (1, n, 0).
        """
        if discs is not None:
            return np.stack([self._among(*scene) for scene in zip(x, y, np.asarray(discs, np.float64), strict=True)])
        if not len(self.walls) + len(self.discs):
            return np.zeros((1, x.shape[1], 0), np.float32)
        if (x == x[:1]).all() and (y == y[:1]).all():
            x, y = x[:1], y[:1]
        return self._among(x.ravel(), y.ravel(), self.discs).reshape(*x.shape, DIRECTIONS)

    def _among(self, x: np.ndarray, y: np.ndarray, discs: np.ndarray) -> np.ndarray:
        """Return the squared distances (P, DIRECTIONS) from places (P,) among discs (k, 3)."""
        places = [(*place, discs.tobytes()) for place in zip(x.tolist(), y.tolist(), strict=True)]
        if len(self._known) > _MOST_PLACES:
            self._known.clear()
        if new := list(set(places) - self._known.keys()):
            self._known.update(zip(new, self._measure(np.array([place[:2] for place in new]), discs), strict=True))
        return np.stack([self._known[place] for place in places])

    def along(self, rails: Rails, step: float) -> np.ndarray:
        """Return the squared distances (r, P, DIRECTIONS) float32 from r rails, every `step` from their first corners.

        The last places of a rail are its end. Without obstacles the result is empty, (0, 0, 0).
        """
        if not len(self.walls) + len(self.discs):
            return np.zeros((0, 0, 0), np.float32)
        along = step * np.arange(round(rails.length.max() / step) + 1)
        point = point_on.py_func
        places = [[point(rails, r, min(s, rails.length[r]))[:2] for s in along] for r in range(len(rails.length))]
        clear = self._measure(np.array(places).reshape(-1, 2), self.discs)
        return clear.reshape(len(places), len(along), DIRECTIONS)

    def _measure(self, places: np.ndarray, discs: np.ndarray) -> np.ndarray:
        """Return the squared distances (P, DIRECTIONS) from places (P, 2), among discs (k, 3)."""
        clear = np.empty((len(places), DIRECTIONS), np.float32)
        Threads(clear.size, cores(), block=256).run(measure_clear, self.walls, discs, places, clear)
        return clear
