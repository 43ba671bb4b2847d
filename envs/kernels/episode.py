"""Start of an episode of one scene: its sensors, targets and obstacles, and their positions. Compiled by numba."""

import math

import numpy as np

from hitmac.envs.kernels import state as at
from hitmac.envs.kernels.formulas import cos_half_view, range_squared
from hitmac.envs.kernels.rails import put_on_rail
from hitmac.envs.kernels.recordings import begin_recording
from hitmac.envs.kernels.state import X, Y
from hitmac.envs.kernels.streams import MOST_DRAWS, draw_between, draw_integer, draw_point, draw_uniform
from hitmac.envs.kernels.streets import step_onto_street
from hitmac.envs.kernels.threads import allocating, compiled, inlined, one_of


@allocating
def deal(state, b, n, count):
    """Return n different ones of the numbers 0 to count - 1, drawn at random (Fisher and Yates)."""
    dealt = np.arange(count)
    for i in range(min(n, count - 1)):
        k = int(draw_integer(state.stream, b, i, count - 1))
        dealt[i], dealt[k] = dealt[k], dealt[i]
    return dealt[:n]


@allocating
def _in_areas(state, p, poses, rails, streets, b):
    """Anywhere in `sensor_areas`, dealt out to the sensors at random."""
    dealt = deal(state, b, state.sensor.shape[0], state.areas.shape[0])
    for i in range(state.sensor.shape[0]):
        area = state.areas[dealt[i]]
        point = draw_point(state, p, b, area[0], area[1], area[2], area[3])
        state.sensor[i, X, b], state.sensor[i, Y, b] = point


@allocating
def _on_grid(state, p, poses, rails, streets, b):
    """In the centres of different random cells of a grid over the arena, with `grid` cells along each side."""
    dealt = deal(state, b, state.sensor.shape[0], p.grid * p.grid)
    for i in range(state.sensor.shape[0]):
        x = ((dealt[i] % p.grid + 0.5) / p.grid * 2.0 - 1.0) * p.half_width
        y = ((dealt[i] // p.grid + 0.5) / p.grid * 2.0 - 1.0) * p.half_height
        state.sensor[i, X, b], state.sensor[i, Y, b] = draw_point(state, p, b, x, x, y, y)


@compiled
def _anywhere(state, p, poses, rails, streets, b):
    """Anywhere in the arena outside the discs, at least `spacing` from the other sensors."""
    for i in range(state.sensor.shape[0]):
        free, draws = False, 0
        while not free and draws < MOST_DRAWS:  # a valid scenario has a quarter of the arena free
            draws += 1
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
                free = free and dx * dx + dy * dy > state.disc[k, at.RADIUS, b] ** 2
            state.sensor[i, X, b] = x
            state.sensor[i, Y, b] = y


@allocating
def _on_rails(state, p, poses, rails, streets, b):
    """On their rails, at `rail_starts`, on a shared rail dealt out at random, or anywhere without starts."""
    if rails is not None:
        n, given, shared = state.sensor.shape[0], rails.start.shape[0] > 0, rails.length.shape[0] == 1
        dealt = deal(state, b, n, n) if given and shared else np.arange(n)
        for i in range(n):
            if given:
                along = rails.start[dealt[i]]
            else:
                along = draw_between(state.stream, b, 0.0, state.sensor[i, at.RAIL_LENGTH, b], False)
            put_on_rail(state, rails, b, i, along)


@compiled
def _fixed(state, p, poses, rails, streets, b):
    """At `sensor_positions`, sensor i at the i-th."""
    if poses is not None:
        for i in range(poses.position.shape[0]):
            state.sensor[i, X, b] = poses.position[i, 0]
            state.sensor[i, Y, b] = poses.position[i, 1]


@allocating
def _at_crossings(state, p, poses, rails, streets, b):
    """At different random crossings of the streets between `blocks`."""
    if streets is not None:
        columns = streets.x.shape[0]
        dealt = deal(state, b, state.sensor.shape[0], columns * streets.y.shape[0])
        for i in range(state.sensor.shape[0]):
            state.sensor[i, X, b] = streets.x[dealt[i] % columns]
            state.sensor[i, Y, b] = streets.y[dealt[i] // columns]


PLACEMENTS = {
    "areas": _in_areas, "grid": _on_grid, "random": _anywhere, "rails": _on_rails, "fixed": _fixed,
    "crossings": _at_crossings,
}  # fmt: skip
"""The placements of the sensors, by name: functions that place all sensors of a scene.

Poses, rails and streets are arguments of their own, since numba omits code under ``is not None`` only for arguments.
"""

place_sensors = one_of(tuple(PLACEMENTS.values()))
"""Place the sensors of a scene by the placement of a code, its index in the table."""


@inlined
def set_heading(state, b, i, heading):
    """Turn sensor i of scene b to `heading`, degrees."""
    state.sensor[i, at.HEADING, b] = heading
    radians = math.radians(heading)
    state.sensor[i, at.DIRECTION_X, b] = math.cos(radians)
    state.sensor[i, at.DIRECTION_Y, b] = math.sin(radians)


@inlined
def set_field_of_view(state, b, i, field_of_view):
    """Set the field of view of sensor i of scene b, degrees, and the range that follows from it."""
    state.sensor[i, at.FIELD_OF_VIEW, b] = field_of_view
    state.sensor[i, at.RANGE_SQUARED, b] = range_squared(state.sensor[i, at.VIEW_AREA, b], field_of_view)
    state.sensor[i, at.COS_HALF_VIEW, b] = cos_half_view(field_of_view)


@compiled
def take_goal(state, p, b, j):
    """Give target j of scene b a goal anywhere in the arena and a speed in [min_speed, max_speed)."""
    goal = draw_point(state, p, b, -p.half_width, p.half_width, -p.half_height, p.half_height)
    state.target[j, at.GOAL_X, b], state.target[j, at.GOAL_Y, b] = goal
    highest = p.max_speed - 1.0 if p.whole_numbers else p.max_speed
    state.target[j, at.SPEED, b] = draw_between(state.stream, b, p.min_speed, highest, p.whole_numbers)
    state.target[j, at.MOVES, b] = 0


@compiled
def enter(state, p, streets, b, j):
    """Place target j of scene b at random in the targets' area."""
    state.present[j, b] = True
    area = p.target_area
    point = draw_point(state, p, b, area[0], area[1], area[2], area[3])
    state.target[j, X, b], state.target[j, Y, b] = point
    take_goal(state, p, b, j)
    step_onto_street(state, streets, b, j)
    # The direction of the goal is random already.
    to_goal_x = state.target[j, at.GOAL_X, b] - state.target[j, X, b]
    to_goal_y = state.target[j, at.GOAL_Y, b] - state.target[j, Y, b]
    state.target[j, at.COURSE, b] = math.atan2(to_goal_y, to_goal_x)
    state.target[j, at.VELOCITY_X, b] = state.target[j, at.VELOCITY_Y, b] = 0.0
    for row in range(at.LAST_X, at.OLDER_Y + 1):
        state.target[j, row, b] = np.inf


@inlined
def _place_discs(state, p, b):
    """Place the random discs of scene b inside the arena and over no sensor.

    A disc for which no such place is found gets the radius 0, so that it blocks no view.
    """
    for k in range(p.fixed_discs, state.disc.shape[0]):
        free, draws = False, 0
        while not free and draws < MOST_DRAWS:
            draws += 1
            radius = draw_between(state.stream, b, p.disc_radius[0], p.disc_radius[1], False)
            x = draw_between(state.stream, b, radius - p.half_width, p.half_width - radius, False)
            y = draw_between(state.stream, b, radius - p.half_height, p.half_height - radius, False)
            free = True
            for i in range(state.sensor.shape[0]):
                dx = x - state.sensor[i, X, b]
                dy = y - state.sensor[i, Y, b]
                free = free and dx * dx + dy * dy > radius * radius
            state.disc[k, X, b] = x
            state.disc[k, Y, b] = y
            state.disc[k, at.RADIUS, b] = radius if free else 0.0


@inlined
def _start_heading(state, p, poses, b, i):
    """Return the start heading of sensor i, degrees: its own, towards a target, or random within its limits."""
    low, high = -180.0, 180.0
    if poses is not None:
        if poses.heading.shape[0] > 0:
            return poses.heading[i]
        if poses.pan_limit[i, 0] > -np.inf:
            low, high = poses.pan_limit[i, 0], poses.pan_limit[i, 1]
    if p.start_facing_target:
        j = i % state.scene[at.NUM_TARGETS, b]
        return math.degrees(
            math.atan2(state.target[j, Y, b] - state.sensor[i, Y, b], state.target[j, X, b] - state.sensor[i, X, b])
        )
    return draw_between(state.stream, b, low, high, p.whole_numbers)


@inlined
def begin(state, p, poses, rails, streets, recordings, b):
    """Start an episode of scene b: sensors, targets and obstacles, headings, goals and speeds.

    The state that depends on headings and fields of view is left to :func:`hitmac.envs.kernels.physics.look`.
    """
    n = state.sensor.shape[0]
    m = state.target.shape[0]
    state.scene[at.TIME, b] = 0
    state.scene[at.TIME_BEFORE, b] = -1
    state.scene[at.TURNED, b] = 0
    state.scene[at.NUM_SENSORS, b] = n if p.min_sensors == n else int(draw_integer(state.stream, b, p.min_sensors, n))
    state.scene[at.NUM_TARGETS, b] = m if p.min_targets == m else int(draw_integer(state.stream, b, p.min_targets, m))
    place_sensors(p.placement, state, p, poses, rails, streets, b)
    _place_discs(state, p, b)
    for j in range(m):
        enter(state, p, streets, b, j)
        state.present[j, b] = j < state.scene[at.NUM_TARGETS, b]
    begin_recording(state, p, recordings, b)
    for i in range(n):
        state.working[i, b] = i < state.scene[at.NUM_SENSORS, b]
        state.sensor[i, at.FIELD_OF_VIEW, b] = state.sensor[i, at.START_VIEW, b]
        state.sensor[i, at.HEADING, b] = _start_heading(state, p, poses, b, i)
        state.sensor[i, at.RATE, b] = state.sensor[i, at.PENDING, b] = 0.0


@inlined
def update_availability(state, p, streets, first, last):
    """Let sensors fail and recover, and targets leave and return, with their probabilities per sub-step."""
    if p.failure_rate > 0.0:
        for b in range(first, last):
            for i in range(min(state.scene[at.NUM_SENSORS, b], state.working.shape[0])):
                u = draw_uniform(state.stream, b)
                state.working[i, b] = u >= p.failure_rate if state.working[i, b] else u < p.recovery_rate
    if p.leave_rate > 0.0:
        for b in range(first, last):
            for j in range(min(state.scene[at.NUM_TARGETS, b], state.present.shape[0])):
                u = draw_uniform(state.stream, b)
                if state.present[j, b]:
                    state.present[j, b] = u >= p.leave_rate
                elif u < p.return_rate:
                    enter(state, p, streets, b, j)
