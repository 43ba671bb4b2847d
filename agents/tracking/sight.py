"""Views of sensors. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels.nearest import box_of, sort_into_cells
from hitmac.envs.kernels.state import Cells
from hitmac.envs.kernels.threads import allocating, inlined

# A view: position, unit vector of the heading, cosine of half the field of view, range squared, chance to detect.
VIEW_X, VIEW_Y, VIEW_COS, VIEW_SIN, VIEW_HALF, VIEW_RANGE, VIEW_CHANCE = range(7)


class NearViews(NamedTuple):
    """Views of a scene by cell, so that only those near a particle are tested."""

    cells: Cells
    start: np.ndarray  # (C + 2,) int32
    number: np.ndarray  # (n,) int32: views in the order of their cells
    reach: float  # the largest range


@allocating
def sort_views(cells, views):
    """Return the views (n, 7) that can detect targets, by cell."""
    n, detects = views.shape[0], (views[:, VIEW_CHANCE] > 0.0) & (views[:, VIEW_RANGE] > 0.0)
    reach = math.sqrt(np.where(detects, views[:, VIEW_RANGE], 0.0).max())
    start, number = np.empty(cells.columns * cells.rows + 2, np.int32), np.empty(n, np.int32)
    sort_into_cells(cells, views.reshape(n, 7, 1), detects.reshape(n, 1), 0, start, number, np.empty(n), np.empty(n))
    return NearViews(cells, start, number, reach)


@inlined
def in_view(view, x, y):
    """Return True if (x, y) is in the range and the field of view of a view (7,)."""
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    squared = dx * dx + dy * dy
    ahead = view[VIEW_COS] * dx + view[VIEW_SIN] * dy
    return (squared <= view[VIEW_RANGE]) & (ahead > view[VIEW_HALF] * math.sqrt(squared))


@inlined
def chance_of_none(views, near, x, y):
    """Return the probability that none of the views (n, 7) of a scene detects a target at (x, y).

    `near` are the same views by cell; None: all are tested.
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
