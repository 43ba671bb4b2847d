"""Start of an episode of one scene: its sensors, targets and obstacles, and their positions. Compiled by numba."""

import math

import numpy as np

from hitmac.envs.kernels.compiled import compiled, inlined
from hitmac.envs.kernels.mounts import draw_heading, has_heading, kept_within, own_heading
from hitmac.envs.kernels.placements import place_sensors
from hitmac.envs.kernels.recordings import begin_recording
from hitmac.envs.kernels.state import (
    COS_HALF_VIEW,
    COURSE,
    DIRECTION_X,
    DIRECTION_Y,
    FIELD_OF_VIEW,
    GOAL_X,
    GOAL_Y,
    HEADING,
    LAST_X,
    MOVES,
    NUM_SENSORS,
    NUM_TARGETS,
    RADIUS,
    RANGE_SQUARED,
    SPEED,
    START_VIEW,
    TIME,
    TIME_BEFORE,
    TURNED,
    VELOCITY_X,
    VIEW_AREA,
    X,
    Y,
)  # fmt: skip
from hitmac.envs.kernels.streams import MOST_DRAWS, draw_between, draw_integer, draw_place, draw_uniform
from hitmac.envs.kernels.streets import step_onto_street


@inlined
def set_heading(state, b, i, heading):
    """Turn sensor i of scene b to `heading`, degrees."""
    state.sensor[i, HEADING, b] = heading
    radians = math.radians(heading)
    state.sensor[i, DIRECTION_X, b] = math.cos(radians)
    state.sensor[i, DIRECTION_Y, b] = math.sin(radians)


@inlined
def set_field_of_view(state, b, i, field_of_view):
    """Set the field of view of sensor i of scene b, degrees, and the range that follows from it.

    The area of the view stays constant: ``range^2 * field_of_view`` is that of the start.
    """
    state.sensor[i, FIELD_OF_VIEW, b] = field_of_view
    state.sensor[i, RANGE_SQUARED, b] = state.sensor[i, VIEW_AREA, b] / field_of_view
    # Below every cosine: a field of view of 360 degrees also sees a target exactly behind.
    state.sensor[i, COS_HALF_VIEW, b] = math.cos(math.radians(field_of_view / 2.0)) if field_of_view < 360.0 else -2.0


@compiled
def take_goal(state, p, b, j):
    """Give target j of scene b a goal anywhere in the arena and a speed in [min_speed, max_speed)."""
    state.target[j, GOAL_X, b] = draw_place(state.stream, b, -p.half_width, p.half_width, p.half_width, p.whole_numbers)
    state.target[j, GOAL_Y, b] = draw_place(
        state.stream, b, -p.half_height, p.half_height, p.half_height, p.whole_numbers
    )
    highest = p.max_speed - 1.0 if p.whole_numbers else p.max_speed
    state.target[j, SPEED, b] = draw_between(state.stream, b, p.min_speed, highest, p.whole_numbers)
    state.target[j, MOVES, b] = 0


@compiled
def enter(state, p, b, j):
    """Place target j of scene b at random in the targets' area."""
    state.present[j, b] = True
    state.target[j, X, b] = draw_place(
        state.stream, b, p.target_area[0], p.target_area[1], p.half_width, p.whole_numbers
    )
    state.target[j, Y, b] = draw_place(
        state.stream, b, p.target_area[2], p.target_area[3], p.half_height, p.whole_numbers
    )
    take_goal(state, p, b, j)
    step_onto_street(state, state.streets, b, j)
    # The direction of the goal is random, and needs no further draw.
    to_goal_x = state.target[j, GOAL_X, b] - state.target[j, X, b]
    to_goal_y = state.target[j, GOAL_Y, b] - state.target[j, Y, b]
    state.target[j, COURSE, b] = math.atan2(to_goal_y, to_goal_x)
    for axis in range(2):
        state.target[j, VELOCITY_X + axis, b] = 0.0
    for k in range(4):
        state.target[j, LAST_X + k, b] = np.inf


@inlined
def _place_discs(state, p, b):
    """Place the random discs of scene b inside the arena and over no sensor.

    One for which there is no such place, or none is found, is left out: its radius is 0, so that it blocks no view.
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
            state.disc[k, RADIUS, b] = radius if free else 0.0


@inlined
def begin(state, p, b):
    """Start an episode of scene b: sensors, targets and obstacles, headings, goals and speeds."""
    n = state.sensor.shape[0]
    m = state.target.shape[0]
    state.scene[TIME, b] = 0
    state.scene[TIME_BEFORE, b] = -1
    state.scene[TURNED, b] = 0
    state.scene[NUM_SENSORS, b] = n if p.min_sensors == n else int(draw_integer(state.stream, b, p.min_sensors, n))
    state.scene[NUM_TARGETS, b] = m if p.min_targets == m else int(draw_integer(state.stream, b, p.min_targets, m))
    place_sensors(p.placement, state, p, b)
    _place_discs(state, p, b)
    for j in range(m):
        enter(state, p, b, j)
        state.present[j, b] = j < state.scene[NUM_TARGETS, b]
    begin_recording(state, p, state.recordings, b)
    for i in range(n):
        state.working[i, b] = i < state.scene[NUM_SENSORS, b]
        set_field_of_view(state, b, i, state.sensor[i, START_VIEW, b])
        if has_heading(state.mounts):
            set_heading(state, b, i, kept_within(state.mounts, i, own_heading(state.mounts, i, 0.0)))
        elif p.start_facing_target:
            j = i % state.scene[NUM_TARGETS, b]
            dx = state.target[j, X, b] - state.sensor[i, X, b]
            dy = state.target[j, Y, b] - state.sensor[i, Y, b]
            set_heading(state, b, i, kept_within(state.mounts, i, math.degrees(math.atan2(dy, dx))))
        else:
            drawn = draw_heading(state, state.mounts, b, i, p.whole_numbers)
            set_heading(state, b, i, kept_within(state.mounts, i, drawn))


@inlined
def update_availability(state, p, first, last):
    """Let sensors fail and recover, and targets leave and return, with their probabilities per sub-step."""
    if p.failure_rate > 0.0:
        for b in range(first, last):
            for i in range(min(state.scene[NUM_SENSORS, b], state.working.shape[0])):
                u = draw_uniform(state.stream, b)
                state.working[i, b] = u >= p.failure_rate if state.working[i, b] else u < p.recovery_rate
    if p.leave_rate > 0.0:
        for b in range(first, last):
            for j in range(min(state.scene[NUM_TARGETS, b], state.present.shape[0])):
                u = draw_uniform(state.stream, b)
                if state.present[j, b]:
                    state.present[j, b] = u >= p.leave_rate
                elif u < p.return_rate:
                    enter(state, p, b, j)
