"""Rails: polylines on which sensors move. Compiled by numba.

A place on a rail is its distance along the rail from the first corner. Without rails all of this compiles to nothing.
"""

import math
from collections.abc import Sequence

import numpy as np

from hitmac.envs.kernels.compiled import inlined
from hitmac.envs.kernels.state import (
    ALONG,
    CORNER_ALONG,
    RAIL_LENGTH,
    RAIL_X,
    RAIL_Y,
    TO_NEXT_X,
    TO_NEXT_Y,
    Rails,
    X,
    Y,
)  # fmt: skip

STAND, FORWARD, BACK = 0, 1, 2  # actions of a sensor on a rail: stay, move away from the first corner, towards it


def make_rails(polylines: Sequence[Sequence[Sequence[float]]], starts: Sequence[float] = ()) -> Rails:
    """Return the kernels' form of polylines, lists of one corner [x, y] or more; those that end where they begin close.

    A rail of one corner has the length 0.
    """
    most = max(map(len, polylines))
    corner = np.full((len(polylines), most, 5), np.inf)
    length, closed = np.zeros(len(polylines)), np.zeros(len(polylines), np.bool_)
    for r, polyline in enumerate(polylines):
        points = np.array(polyline, np.float64)
        closed[r] = len(points) > 1 and bool((points[0] == points[-1]).all())
        gone = np.cumsum(np.append(0.0, np.hypot(*np.diff(points, axis=0).T)))
        apart = np.append(True, np.diff(gone) > 0)  # a corner on the one before has no way to it
        points, gone = points[apart], gone[apart]
        ways = np.diff(points, axis=0) / np.diff(gone)[:, None]
        ways = np.concatenate((ways, ways[-1:] if len(ways) else np.zeros((1, 2))))
        corner[r, : len(points)] = np.column_stack((points, gone, ways))
        length[r] = gone[-1]
    return Rails(corner, length, closed, np.array(starts, np.float64))


@inlined
def rail_of(rails, i):
    """Return the number of the rail of sensor i: its own, or the only one, which all share."""
    return i if rails.length.shape[0] > 1 else 0


@inlined
def gone_along(rails, r, along, distance):
    """Return the place at a distance from `along`: round and round a closed rail, to the end of another."""
    along += distance
    if rails.closed[r]:
        return along - rails.length[r] * math.floor(along / rails.length[r])
    return min(max(along, 0.0), rails.length[r])


@inlined
def point_on(rails, r, along):
    """Return x and y of a place on rail r, and the unit vector of the rail there."""
    k = 0
    while k + 1 < rails.corner.shape[1] and rails.corner[r, k + 1, CORNER_ALONG] <= along:
        k += 1
    x, y, rest = rails.corner[r, k, X], rails.corner[r, k, Y], along - rails.corner[r, k, CORNER_ALONG]
    way_x, way_y = rails.corner[r, k, TO_NEXT_X], rails.corner[r, k, TO_NEXT_Y]
    return x + rest * way_x, y + rest * way_y, way_x, way_y


@inlined
def way_between(rails, r, along, other):
    """Return the way east and north from one place on rail r to another."""
    x, y, _, _ = point_on(rails, r, along)
    to_x, to_y, _, _ = point_on(rails, r, other)
    return to_x - x, to_y - y


@inlined
def put_on_rail(state, rails, b, i, along):
    """Put sensor i of scene b at a place on its rail; `rails` of the state."""
    if rails is not None:
        x, y, way_x, way_y = point_on(rails, rail_of(rails, i), along)
        state.sensor[i, ALONG, b] = along
        state.sensor[i, X, b] = x
        state.sensor[i, Y, b] = y
        state.sensor[i, RAIL_X, b] = way_x
        state.sensor[i, RAIL_Y, b] = way_y


@inlined
def move_along(state, p, rails, action, first, last):
    """Move every working sensor i along its rail by the last decision of `action[b]`, if the action has moves."""
    if rails is not None:
        n = state.sensor.shape[0]
        moves = action.shape[1] - n
        if moves > 0:
            for b in range(first, last):
                for i in range(n):
                    way = (action[b, moves + i] == FORWARD) * 1.0 - (action[b, moves + i] == BACK) * 1.0
                    if way != 0.0 and state.working[i, b] and state.sensor[i, RAIL_LENGTH, b] > 0.0:
                        along = state.sensor[i, ALONG, b]
                        put_on_rail(state, rails, b, i, gone_along(rails, rail_of(rails, i), along, way * p.rail_step))
