"""Beliefs that follow from observations, and features of them. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.tracking.particle_kernels import (
    COUNT,
    advance,
    look_in_vain,
    pin,
    scatter,
)  # fmt: skip
from hitmac.agents.tracking.reports import AGE, PLACE_X, PLACE_Y, SPEED_X, SPEED_Y
from hitmac.agents.tracking.views import VIEW_COS, VIEW_RANGE, VIEW_SIN, VIEW_X, VIEW_Y, in_view, sort_views
from hitmac.agents.tracking.walk_models import AIM_X, AIM_Y, GOALS, SPEED, WalkModel, X, Y
from hitmac.envs.kernels.compiled import allocating, inlined, kernel
from hitmac.envs.kernels.threads import blocks

_FORGOTTEN = 1000.0  # sub-steps; a report that is older is no news

SECTORS = 18  # of the bearing
AHEAD = (0, 20, 40)  # sub-steps
SUMMARY = 11  # features of a pair before those of its sectors


class Rules(NamedTuple):
    """Rules of the scenario that beliefs follow."""

    walk: WalkModel
    every: int  # sub-steps between extra moves; 0: none
    deviation: float  # of observed positions
    all_known: bool  # a target that is not shown is not there
    returns: bool  # a target that has left can return


@inlined
def moves_at(rules, time):
    """Return the number of moves of the targets in the sub-step that begins at `time`."""
    return 2 if rules.every > 0 and time % rules.every == 0 else 1


@allocating
def _track(rules, belief, r, known, views, near, time, last_age, there):
    """Take an observation into the belief of row r; see :func:`track_all`."""
    moves = moves_at(rules, time - 1) if time > 0 else 0
    for j in range(known.shape[0]):
        age = known[j, AGE]
        there[j] = age < np.inf or (not rules.all_known and (rules.returns or there[j]))
        if age < min(last_age[j] + 1.0, _FORGOTTEN):
            x, y = known[j, PLACE_X], known[j, PLACE_Y]
            pin(rules.walk, belief, r, j, x, y, known[j, SPEED_X], known[j, SPEED_Y], rules.deviation)
            for back in range(int(age), 0, -1):
                for _ in range(moves_at(rules, time - back)):
                    advance(rules.walk, belief, r, j)
        else:
            belief.course[r, j, COUNT] = 0.0
            if age == np.inf and last_age[j] < np.inf:
                there[j] = rules.returns and not rules.all_known
                scatter(rules.walk, belief, r, j, views, near)
            for _ in range(moves):
                advance(rules.walk, belief, r, j)
            look_in_vain(rules.walk, belief, r, j, views, near)
        last_age[j] = age


@kernel
def track_all(rules, belief, known, views, cells, time, last_age, there, share):
    """Take an observation into the beliefs of all R rows of knowledge.

    Args:
        rules: the scenario.
        belief: beliefs of the rows, changed in place.
        known: (R, m, 5) what each row knows.
        views: (R, n, 7) views, with the probability that a sensor detects a target in view and the row is told at once.
        cells: cells by which views near a particle are found; None: all views are looked through.
        time: (R,) sub-steps since the episode began.
        last_age: (R, m) ages of what was known at the last observation, changed in place; inf: nothing.
        there: (R, m) bool, the targets that may be there, changed in place.
        share: part of this thread.
    """
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            near = None if cells is None else sort_views(cells, views[r])
            _track(rules, belief, r, known[r], views[r], near, time[r], last_age[r], there[r])


@inlined
def _add_to_sectors(view, x, y, mass, sectors):
    """Add a mass at (x, y), if within range, to the two sectors whose middles are next to its bearing, linearly."""
    dx, dy = x - view[VIEW_X], y - view[VIEW_Y]
    if dx * dx + dy * dy <= view[VIEW_RANGE]:
        aside, ahead = view[VIEW_COS] * dy - view[VIEW_SIN] * dx, view[VIEW_COS] * dx + view[VIEW_SIN] * dy
        place = (math.atan2(aside, ahead) / (2.0 * math.pi) + 0.5) * SECTORS
        first = math.floor(place)
        part = place - first
        sectors[int(first) % SECTORS] += mass * (1.0 - part)
        sectors[(int(first) + 1) % SECTORS] += mass * part


@allocating
def _describe(rules, pace, scale, top_speed, body, weight, known, views, j, pairs):
    """Write the features of target j, (n, d)."""
    n, particles, model = views.shape[0], weight.shape[0], rules.walk.model
    mean_x, mean_y, squares, velocity_x, velocity_y = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        pairs[i] = 0.0
    for p in range(particles):
        x, y, mass = body[X, p], body[Y, p], weight[p]
        dx, dy = body[AIM_X, p], body[AIM_Y, p]
        if model == GOALS:
            dx, dy = dx - x, dy - y
        away = math.sqrt(dx * dx + dy * dy)
        speed = body[SPEED, p] * (1.0 + 0.5 * rules.walk.speed_noise)
        unit_x, unit_y = (dx / away, dy / away) if away > 0.0 else (0.0, 0.0)
        mean_x, mean_y, squares = mean_x + mass * x, mean_y + mass * y, squares + mass * (x * x + y * y)
        velocity_x, velocity_y = velocity_x + mass * speed * unit_x, velocity_y + mass * speed * unit_y
        for i in range(n):
            if views[i, VIEW_RANGE] > 0.0:
                pairs[i, 4] += mass * in_view(views[i], x, y)
                for k in range(len(AHEAD)):
                    gone = speed * pace * AHEAD[k]
                    gone = min(gone, away) if model == GOALS else gone
                    first = SUMMARY + k * SECTORS
                    sectors = pairs[i, first : first + SECTORS]
                    _add_to_sectors(views[i], x + gone * unit_x, y + gone * unit_y, mass, sectors)
    together = 0.0
    for i in range(n):
        together += pairs[i, 4]
    for i in range(n):
        dx, dy = mean_x - views[i, VIEW_X], mean_y - views[i, VIEW_Y]
        away = math.sqrt(dx * dx + dy * dy)
        east, north = (dx / away, dy / away) if away > 0.0 else (1.0, 0.0)
        pairs[i, 0] = views[i, VIEW_COS] * north - views[i, VIEW_SIN] * east
        pairs[i, 1] = views[i, VIEW_COS] * east + views[i, VIEW_SIN] * north
        pairs[i, 2] = away / scale
        pairs[i, 3] = pairs[i, SUMMARY : SUMMARY + SECTORS].sum()
        pairs[i, 5] = together - pairs[i, 4]
        pairs[i, 6] = (velocity_x * east + velocity_y * north) / top_speed
        pairs[i, 7] = (velocity_y * east - velocity_x * north) / top_speed
        pairs[i, 8] = math.sqrt(max(squares - mean_x * mean_x - mean_y * mean_y, 0.0)) / scale
        pairs[i, 9] = min(known[AGE] * 0.01, 10.0)
        pairs[i, 10] = known[AGE] == 0.0


@kernel
def describe_all(rules, pace, scale, top_speed, belief, known, views, there, pairs, share):
    """Write the belief features of every pair, (R, n, m, d); see :data:`BELIEF_FEATURES`."""
    for low, high in blocks(known.shape[0], share):
        for r in range(low, high):
            for j in range(known.shape[1]):
                if there[r, j]:
                    _describe(
                        rules, pace, scale, top_speed, belief.body[r, j], belief.weight[r, j], known[r, j], views[r], j,
                        pairs[r, :, j],
                    )  # fmt: skip
                else:
                    pairs[r, :, j] = 0.0
