"""Placements of the sensors at the start of an episode. Compiled by numba.

To add one, write a function of one scene with a line that says what it does, and put it into the table.
"""

import numpy as np

from hitmac.envs.kernels.compiled import allocating, compiled, one_of
from hitmac.envs.kernels.mounts import place_at_mounts
from hitmac.envs.kernels.rails import put_on_rail
from hitmac.envs.kernels.state import RADIUS, RAIL_LENGTH, X, Y
from hitmac.envs.kernels.streams import draw_between, draw_integer, draw_place


@allocating
def _deal(state, b, n, count):
    """Return n different ones of the numbers 0 to count - 1, drawn at random (Fisher and Yates)."""
    dealt = np.arange(count)
    for i in range(min(n, count - 1)):
        k = int(draw_integer(state.stream, b, i, count - 1))
        dealt[i], dealt[k] = dealt[k], dealt[i]
    return dealt[:n]


@allocating
def _in_areas(state, p, b):
    """Anywhere in the areas of `sensor_areas`, of which every sensor gets another one of the first n."""
    dealt = _deal(state, b, state.sensor.shape[0], state.areas.shape[0])
    for i in range(state.sensor.shape[0]):
        area = state.areas[dealt[i]]
        state.sensor[i, X, b] = draw_place(state.stream, b, area[0], area[1], p.half_width, p.whole_numbers)
        state.sensor[i, Y, b] = draw_place(state.stream, b, area[2], area[3], p.half_height, p.whole_numbers)


@allocating
def _on_grid(state, p, b):
    """In the middle of different random cells of a square grid over the arena, of `grid` cells along a side."""
    dealt = _deal(state, b, state.sensor.shape[0], p.grid * p.grid)
    for i in range(state.sensor.shape[0]):
        x = ((dealt[i] % p.grid + 0.5) / p.grid * 2.0 - 1.0) * p.half_width
        y = ((dealt[i] // p.grid + 0.5) / p.grid * 2.0 - 1.0) * p.half_height
        state.sensor[i, X, b] = draw_place(state.stream, b, x, x, p.half_width, p.whole_numbers)
        state.sensor[i, Y, b] = draw_place(state.stream, b, y, y, p.half_height, p.whole_numbers)


@compiled
def _anywhere(state, p, b):
    """Anywhere in the arena outside the discs, at least `spacing` from the other sensors."""
    for i in range(state.sensor.shape[0]):
        free = False
        while not free:  # ends soon, since the scenario's check leaves enough free area
            x = draw_between(state.stream, b, -p.half_width, p.half_width, False)
            y = draw_between(state.stream, b, -p.half_height, p.half_height, False)
            free = True
            for other in range(i if p.spacing > 0.0 else 0):
                dx = x - state.sensor[other, X, b]
                dy = y - state.sensor[other, Y, b]
                free = free and dx * dx + dy * dy >= p.spacing * p.spacing
            for k in range(p.fixed_discs):
                dx = x - state.disc[k, X, b]
                dy = y - state.disc[k, Y, b]
                free = free and dx * dx + dy * dy > state.disc[k, RADIUS, b] ** 2
            state.sensor[i, X, b] = x
            state.sensor[i, Y, b] = y


@allocating
def _start_on_rails(state, p, rails, b):
    """Place the sensors on their rails; `rails` is an argument of its own, so that without any this is no code."""
    if rails is not None:
        n, given, shared = state.sensor.shape[0], rails.start.shape[0] > 0, rails.length.shape[0] == 1
        dealt = _deal(state, b, n, n) if given and shared else np.arange(n)
        for i in range(n):
            if given:
                along = rails.start[dealt[i]]
            else:
                along = draw_between(state.stream, b, 0.0, state.sensor[i, RAIL_LENGTH, b], False)
            put_on_rail(state, rails, b, i, along)


@allocating
def _on_rails(state, p, b):
    """On their rails, at `rail_starts`, which are dealt out at random on a shared rail; without any, anywhere."""
    _start_on_rails(state, p, state.rails, b)


@compiled
def _fixed(state, p, b):
    """At `sensor_positions`, sensor i at the i-th."""
    place_at_mounts(state, state.mounts, b)


@allocating
def _at_crossings_of(state, streets, b):
    """Place the sensors at crossings; `streets` is an argument of its own, so that without any this is no code."""
    if streets is not None:
        columns = streets.x.shape[0]
        dealt = _deal(state, b, state.sensor.shape[0], columns * streets.y.shape[0])
        for i in range(state.sensor.shape[0]):
            state.sensor[i, X, b] = streets.x[dealt[i] % columns]
            state.sensor[i, Y, b] = streets.y[dealt[i] // columns]


@allocating
def _at_crossings(state, p, b):
    """At different random crossings of the streets between `blocks`."""
    _at_crossings_of(state, state.streets, b)


PLACEMENTS = {
    "areas": _in_areas, "grid": _on_grid, "random": _anywhere, "rails": _on_rails, "fixed": _fixed,
    "crossings": _at_crossings,
}  # fmt: skip
"""The placements of the sensors, by name: functions that place all sensors of a scene."""

place_sensors = one_of(tuple(PLACEMENTS.values()))
"""Place the sensors of a scene by the placement of a code, its index in the table."""
