"""Reports on the nearest targets, as beliefs about all of them take them in. Compiled by numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hitmac.envs.kernels.compiled import allocating, kernel
from hitmac.envs.kernels.threads import blocks

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
    """Write what the sensors `first` to `last` - 1 of scene b tell of all targets; see :func:`merge_reports`."""
    known[:, :] = 0.0
    known[:, AGE] = np.inf
    tells = False
    for i in range(first, last):
        tells |= reports.within[b, i] > 0.0
        for s in range(reports.targets.shape[2]):
            j = reports.targets[b, i, s]
            if reports.mask[b, i, s] and known[j, AGE] == np.inf:
                known[j] = reports.report[b, i, s]
    for j in range(known.shape[0]):
        if known[j, AGE] < np.inf:
            place[j, 0], place[j, 1] = known[j, PLACE_X], known[j, PLACE_Y]
        elif last_age[j] < np.inf and tells:
            missing = False
            for i in range(first, last):
                dx, dy = place[j, 0] - reports.position[b, i, 0], place[j, 1] - reports.position[b, i, 1]
                missing |= dx * dx + dy * dy < reports.within[b, i] * reports.within[b, i]
            if not missing:
                known[j, PLACE_X], known[j, PLACE_Y], known[j, AGE] = place[j, 0], place[j, 1], last_age[j] + 1.0


@kernel
def merge_reports(reports, last_age, place, known, share):
    """Write what every row of knowledge knows of all targets: what is listed, and what it has not seen to be gone.

    A target that is not listed stays where it was last known, unless a sensor would list it there: then it is not known
    any more.

    Args:
        reports: the lists.
        last_age: (R, m) ages of what was known at the last observation; inf: nothing. R is B, or B * n where every
            sensor knows its own list alone.
        place: (R, m, 2) last known places, changed in place.
        known: (R, m, 5) result.
        share: part of this thread.
    """
    scenes, n = reports.within.shape
    rows = known.shape[0] // scenes
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            b, i = r // rows, r % rows
            _merge(
                reports, b, i if rows > 1 else 0, i + 1 if rows > 1 else n, last_age[r], place[r], known[r]
            )  # fmt: skip
