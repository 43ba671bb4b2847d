"""Views of sensors, and their reports to beliefs. Compiled by numba."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels.nearest import box_of, sort_into_cells
from hitmac.envs.kernels.state import Cells
from hitmac.envs.kernels.threads import allocating, blocks, inlined, kernel

# A view: position, unit vector of the heading, cosine of half the field of view, range squared, chance to detect.
VIEW_X, VIEW_Y, VIEW_COS, VIEW_SIN, VIEW_HALF, VIEW_RANGE, VIEW_CHANCE = range(7)


class NearViews(NamedTuple):
    """Views of a scene by place, so that a particle is looked for only in those that are near."""

    cells: Cells
    start: np.ndarray  # (C + 2,) int32
    number: np.ndarray  # (n,) int32: numbers of the views in the order of their cells
    reach: float  # the largest range


@allocating
def sort_views(cells, views):
    """Return the views (n, 7) that can detect anything by cell."""
    n, detects = views.shape[0], (views[:, VIEW_CHANCE] > 0.0) & (views[:, VIEW_RANGE] > 0.0)
    reach = math.sqrt(np.where(detects, views[:, VIEW_RANGE], 0.0).max())
    start, number = np.empty(cells.columns * cells.rows + 2, np.int32), np.empty(n, np.int32)
    sort_into_cells(cells, views.reshape(n, 7, 1), detects.reshape(n, 1), 0, start, number, np.empty(n), np.empty(n))
    return NearViews(cells, start, number, reach)


@inlined
def in_view(view, x, y):
    """Return whether a view (7,) has (x, y) in range and in its field of view."""
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    squared = dx * dx + dy * dy
    ahead = view[VIEW_COS] * dx + view[VIEW_SIN] * dy
    return (squared <= view[VIEW_RANGE]) & (ahead > view[VIEW_HALF] * math.sqrt(squared))


@inlined
def chance_of_none(views, near, x, y):
    """Return the probability that none of the views (n, 7) of a scene detects a target at (x, y).

    `near` are the same views by place; None: all are looked through.
    """
    missed = 1.0
    if near is None:
        for i in range(views.shape[0]):
            if in_view(views[i], x, y):
                missed *= 1.0 - views[i, VIEW_CHANCE]
    else:
        first_column, last_column, first_row, last_row = box_of(
            near.cells, x - near.reach, x + near.reach, y - near.reach, y + near.reach
        )
        for row in range(first_row, last_row + 1):
            before = row * near.cells.columns
            for s in range(near.start[before + first_column], near.start[before + last_column + 1]):
                i = near.number[s]
                if in_view(views[i], x, y):
                    missed *= 1.0 - views[i, VIEW_CHANCE]
    return missed


PLACE_X, PLACE_Y, SPEED_X, SPEED_Y, AGE = range(5)
"""Columns of a report: place, velocity, sub-steps since then (inf: not known)."""


class Reports(NamedTuple):
    """Lists of the nearest targets in B scenes."""

    report: np.ndarray  # (B, n, k, 5) what is known of the target in each place of a list
    targets: np.ndarray  # (B, n, k) int32
    mask: np.ndarray  # (B, n, k) bool
    position: np.ndarray  # (B, n, 2) of the sensors
    within: np.ndarray  # (B, n) a sensor lists all known targets up to this distance


@allocating
def _merge(reports, b, first, last, last_age, place, known):
    """Write what the sensors `first` to `last` - 1 of scene b report of all targets; see :func:`merge_reports`."""
    known[:, :] = 0.0
    known[:, AGE] = np.inf
    listed = False
    for i in range(first, last):
        listed |= reports.within[b, i] > 0.0
        for s in range(reports.targets.shape[2]):
            j = reports.targets[b, i, s]
            if reports.mask[b, i, s] and known[j, AGE] == np.inf:
                known[j] = reports.report[b, i, s]
    for j in range(known.shape[0]):
        if known[j, AGE] < np.inf:
            place[j, 0], place[j, 1] = known[j, PLACE_X], known[j, PLACE_Y]
        elif last_age[j] < np.inf and listed:
            missing = False
            for i in range(first, last):
                dx, dy = place[j, 0] - reports.position[b, i, 0], place[j, 1] - reports.position[b, i, 1]
                missing |= dx * dx + dy * dy < reports.within[b, i] * reports.within[b, i]
            if not missing:
                known[j, PLACE_X], known[j, PLACE_Y], known[j, AGE] = place[j, 0], place[j, 1], last_age[j] + 1.0


@kernel
def merge_reports(reports, last_age, place, known, share):
    """Write the knowledge (R, m, 5) of each row about all targets: those listed, and those not seen to be gone.

    A target that is not listed stays at its last known `place` (R, m, 2), changed in place, unless a sensor would list
    it there: then it is not known any more. `last_age` (R, m) are the ages of what was known at the last observation;
    inf: nothing. R is B, or B * n where every sensor has its own list alone.
    """
    scenes, n = reports.within.shape
    rows = known.shape[0] // scenes
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b, i = r // rows, r % rows
            first, last = (i, i + 1) if rows > 1 else (0, n)
            _merge(reports, b, first, last, last_age[r], place[r], known[r])
