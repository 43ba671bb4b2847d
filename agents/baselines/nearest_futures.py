"""Futures of the targets that are likeliest to come into range of each sensor of a large scene. Compiled by numba."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.futures import clear, close, put
from hitmac.agents.baselines.links import link
from hitmac.agents.baselines.words import size
from hitmac.agents.tracking.views import VIEW_RANGE, VIEW_X, VIEW_Y
from hitmac.envs.kernels.cells import box_of, sort_into_cells
from hitmac.envs.kernels.compiled import allocating, inlined
from hitmac.envs.kernels.grid import Cells

_PAD = 1.0 + 1e-5  # of a range; views are rounded to float32


class Near(NamedTuple):
    """Options of plans for the nearest targets."""

    cells: Cells
    most: int  # k, targets of a sensor
    moved: float  # the farthest that a sensor can go within the horizon


@allocating
def _reaches(near, views):
    """Return the distance (n,) up to which each sensor can see within the horizon; 0 if it does not work."""
    reach = np.zeros(views.shape[0])
    for i in range(views.shape[0]):
        if views[i, VIEW_RANGE] > 0.0:
            reach[i] = (math.sqrt(views[i, VIEW_RANGE]) + near.moved) * _PAD
    return reach


@inlined
def _is_less(score, target, i, one, other):
    """Return whether place `one` of a sensor's list is worth less than another: of equals the higher number is."""
    if score[i, one] == score[i, other]:
        return target[i, one] > target[i, other]
    return score[i, one] < score[i, other]


@inlined
def _enter(score, target, length, i, j, found):
    """Enter target j, with `found` samples in reach, into the list of sensor i, in place of the least if it is full."""
    place = length[i]
    if place < target.shape[1]:
        length[i] = place + 1
    else:
        place = 0
        for s in range(1, target.shape[1]):
            place = s if _is_less(score, target, i, s, place) else place
        if score[i, place] >= found:
            return
    score[i, place], target[i, place] = found, j


@inlined
def _sort(target, number):
    """Sort the first places of a list by target."""
    for s in range(1, number):
        j, place = target[s], s
        while place > 0 and target[place - 1] > j:
            target[place] = target[place - 1]
            place -= 1
        target[place] = j


@allocating
def link_likeliest(near, views, futures):
    """Return the :class:`~hitmac.agents.baselines.links.Links` of every sensor's k likeliest targets.

    They have the most samples in reach of the sensor, over all looks; targets without any are left out.

    Args:
        near: options.
        views: (n, 7) views of the sensors.
        futures: lists with a word for every target.
    """
    n, m, k, cells = views.shape[0], futures.length.shape[1], near.most, near.cells
    reach = _reaches(near, views)
    works = (reach > 0.0).reshape(n, 1)
    start, order, x, y = (
        np.empty(cells.columns * cells.rows + 2, np.int32),
        np.empty(n, np.int32),
        np.empty(n),
        np.empty(n),
    )
    sort_into_cells(cells, views.reshape(n, 7, 1), works, 0, start, order, x, y)
    widest = reach.max()
    score, target, length = np.zeros((n, k), np.int64), np.full((n, k), -1, np.int32), np.zeros(n, np.int64)
    found, touched = np.zeros(n, np.int64), np.empty(n, np.int32)
    for j in range(m):
        number = 0
        for look in range(1, futures.length.shape[0]):
            for e in range(futures.length[look, j]):
                if futures.who[look, j, e] == 0:
                    continue
                at_x, at_y = futures.x[look, j, e], futures.y[look, j, e]
                first_column, last_column, first_row, last_row = box_of(
                    cells, at_x - widest, at_x + widest, at_y - widest, at_y + widest
                )
                for row in range(first_row, last_row + 1):
                    before = row * cells.columns
                    for s in range(start[before + first_column], start[before + last_column + 1]):
                        i = order[s]
                        dx, dy = at_x - x[s], at_y - y[s]
                        if dx * dx + dy * dy <= reach[i] * reach[i]:
                            if found[i] == 0:
                                touched[number] = i
                                number += 1
                            found[i] += size(futures.who[look, j, e])
        for s in range(number):
            _enter(score, target, length, touched[s], j, found[touched[s]])
            found[touched[s]] = 0
    for i in range(n):
        _sort(target[i], length[i])
    return link(target, target >= 0, target, np.zeros((n, k), np.bool_), m)


@allocating
def gather(near, links, i, view, samples, every, futures):
    """Write the futures of the targets in the list of sensor i that are in its reach.

    Args:
        near: options.
        links: links of the sensors and targets.
        i: number of the sensor.
        view: (7,) its view.
        samples: futures of a target.
        every: lists with a word for every target.
        futures: result: lists in which as many targets as fit share a word, in the order of the sensor's list.
    """
    clear(futures)
    reach, per_word = (math.sqrt(view[VIEW_RANGE]) + near.moved) * _PAD, 64 // samples
    for s in range(links.targets.shape[1]):
        j = links.targets[i, s]
        if not links.there[i, s]:
            continue
        word, shift = s // per_word, np.uint64(s % per_word * samples)
        for look in range(1, every.length.shape[0]):
            for e in range(every.length[look, j]):
                x, y, members = every.x[look, j, e], every.y[look, j, e], every.who[look, j, e]
                dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
                if members != 0 and dx * dx + dy * dy <= reach * reach:
                    put(futures, look, word, x, y, members << shift)
    close(futures)
