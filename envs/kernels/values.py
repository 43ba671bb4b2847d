"""Values of the targets, by number and by zone, and the coverage by value. Compiled by numba."""

from typing import Any

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.formulas import meets_side
from hitmac.envs.kernels.state import Values, X, Y
from hitmac.envs.kernels.threads import compiled, inlined


def make_values(scenario: Any) -> Values | None:
    """Return the values of a scenario in the form of the kernels; None if all are 1 and one sensor covers a target."""
    if not scenario.has_values and scenario.seen_by == 1:
        return None
    own = np.array(scenario.target_values or (1.0,) * scenario.num_targets)
    corners = np.array([corner for zone in scenario.zones for corner in zone], np.float64).reshape(-1, 2)
    first = np.cumsum([0, *map(len, scenario.zones)])
    return Values(np.append(own, own.mean()), corners, first, np.array(scenario.zone_values, np.float64))


@inlined
def is_inside(corner, first, last, x, y):
    """Return True if (x, y) lies in the polygon of the corners `first` to `last` - 1 or on its border.

    A point is inside if a ray from it crosses an odd number of sides.
    """
    inside, before = False, last - 1
    for k in range(first, last):
        x1, y1, x2, y2 = corner[before, X], corner[before, Y], corner[k, X], corner[k, Y]
        border, crossed = meets_side(x1, y1, x2, y2, x, y)
        if border:
            return True
        inside ^= crossed
        before = k
    return inside


@inlined
def value_of(values, j, x, y):
    """Return the value of target j at (x, y); beyond the last target, of one that nobody has seen yet."""
    value = values.target[min(j, values.target.shape[0] - 1)]
    for zone in range(values.zone.shape[0] - 1, -1, -1):
        if is_inside(values.corner, values.first[zone], values.first[zone + 1], x, y):
            return value * values.zone[zone]
    return value


@compiled
def weigh(state, p, values, first, last):
    """Compute the values of the targets, which ones are covered, and the coverage by value, after all sensors see."""
    if values is not None:
        for b in range(first, last):
            covered, present, number = 0.0, 0.0, 0
            for j in range(state.target.shape[0]):
                seeing = 0
                if state.covered[j, b]:  # by at least one sensor
                    for i in range(state.sensor.shape[0]):
                        seeing += state.visible[i, j, b]
                state.covered[j, b] = seeing >= p.seen_by
                value = value_of(values, j, state.target[j, X, b], state.target[j, Y, b])
                state.target[j, at.VALUE, b] = value
                number += state.covered[j, b]
                covered += value * state.covered[j, b]
                present += value * state.present[j, b]
            state.scene[at.NUM_COVERED, b] = number
            state.coverage[b] = covered / present if present > 0.0 else 1.0
