"""Particles of targets that carry loads from warehouse to warehouse. Compiled by numba."""

import math

import numpy as np

from hitmac.agents.tracking.sight import chance_of_none
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, NOISE_X, NOISE_Y, SEEN, SPEED, X, Y
from hitmac.envs.base.compile import allocating, inlined
from hitmac.envs.base.streams import uniform
from hitmac.envs.parts.cargo import slide
from hitmac.envs.parts.game import NOISE_CHANGE, NOISE_CHANGE_STUCK, STUCK

_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_NOISE = 0.5  # largest one of a target that carries loads, in each axis, in steps
_EQUAL, _DOUBT = 1e-3, 0.02  # of speeds; probability of a warehouse that was excluded


@inlined
def _inside(loads, x, y, g):
    """Return True if (x, y) is in warehouse g."""
    return max(abs(x - loads.places[g, 0]), abs(y - loads.places[g, 1])) <= loads.size


@inlined
def _another(loads, x, y, draw):
    """Return a warehouse that (x, y) is not in, by a draw in [0, 1)."""
    places = loads.places
    first = int(draw * places.shape[0])
    if _inside(loads, x, y, first):
        again = (draw * places.shape[0] - first) * (places.shape[0] - 1)
        first = (first + 1 + int(again)) % places.shape[0]
    return places[first, 0], places[first, 1]


@inlined
def begin_carrying(walk, loads, body, p, key, counter):
    """Draw the speed and the warehouse of particle p, which takes a new load."""
    body[SPEED, p] = walk.max_speed if uniform(key, counter) < 0.5 else walk.min_speed
    body[AIM_X, p], body[AIM_Y, p] = _another(loads, np.inf, np.inf, uniform(key, counter + _ONE))
    body[NOISE_X, p], body[NOISE_Y, p], body[SEEN, p] = np.inf, 0.0, 0.0


@inlined
def has_bounty(loads, body, p):
    """Return True if particle p, whose pace tells its cargoes, was not seen as often as its load is worth."""
    return body[SEEN, p] * body[SPEED, p] < loads.bounty


@inlined
def _step_round(watch, x, y, dx, dy, side):
    """Return the step (dx, dy) from (x, y), turned by the fewest times 45 degrees by which it does not end in a view.

    It turns to the `side` 1 (left) or -1 first. If no step by at most 135 degrees does, it is (0, 0).
    """
    for turn in range(7):
        angle = side * 0.25 * math.pi * ((turn + 1) // 2) * (1.0 if turn % 2 == 1 else -1.0)
        c, s = math.cos(angle), math.sin(angle)
        to_x, to_y = c * dx - s * dy, s * dx + c * dy
        if chance_of_none(watch, x + to_x, y + to_y) == 1.0:
            return to_x, to_y
    return 0.0, 0.0


@inlined
def carry(walk, loads, discs, watch, body, p, key, counter):
    """Move particle p once, as a target that carries loads; it takes the draws from `counter` to ``counter + 3``.

    It moves towards its warehouse by a full step, with a noise that it keeps for some steps, slides along `discs`
    (k, 3), and steps round the views of `watch`. In its warehouse it takes another one, and a new load.
    """
    x, y, step = body[X, p], body[Y, p], body[SPEED, p] * walk.time_step
    if max(abs(x - body[AIM_X, p]), abs(y - body[AIM_Y, p])) <= loads.size:
        body[AIM_X, p], body[AIM_Y, p] = _another(loads, x, y, uniform(key, counter))
        body[SEEN, p] = 0.0
    if body[NOISE_X, p] > _NOISE or uniform(key, counter + _ONE) < NOISE_CHANGE:
        body[NOISE_X, p] = _NOISE * (2.0 * uniform(key, counter + _TWO) - 1.0)
        body[NOISE_Y, p] = _NOISE * (2.0 * uniform(key, counter + _THREE) - 1.0)
    dx, dy = body[AIM_X, p] - x, body[AIM_Y, p] - y
    away = max(math.sqrt(dx * dx + dy * dy), 1e-9)
    dx = min(max(dx / away + body[NOISE_X, p], -1.0), 1.0)
    dy = min(max(dy / away + body[NOISE_Y, p], -1.0), 1.0)
    scale = step / max(math.sqrt(dx * dx + dy * dy), 1.0)
    dx, dy = dx * scale, dy * scale
    for k in range(discs.shape[0]):
        dx, dy = slide(x, y, dx, dy, discs[k, 0], discs[k, 1], discs[k, 2])
    if watch.views.shape[0] > 0:
        dx, dy = _step_round(watch, x, y, dx, dy, math.copysign(1.0, body[NOISE_X, p]))
    if dx * dx + dy * dy <= (STUCK * step) ** 2 and uniform(key, counter + _TWO) < NOISE_CHANGE_STUCK:
        body[NOISE_X, p] = np.inf
    body[X, p] = min(max(x + dx, -walk.half_width), walk.half_width)
    body[Y, p] = min(max(y + dy, -walk.half_height), walk.half_height)


@allocating
def pin_carrier(walk, loads, body, weight, detection, turned):
    """Replace the belief about a target by a detection: its place and velocity (x, y, vx, vy).

    A warehouse is as likely as the particles on their way to it. If the target has `turned`, its noise is new, and the
    weights are multiplied by a normal density of the noise that each warehouse implies, of its variance. One more step
    in view counts, but for a new load if the target is in a warehouse.
    """
    x, y, velocity_x, velocity_y = detection
    places, number, pace = loads.places, body.shape[1], math.hypot(velocity_x, velocity_y)
    fastest, slowest, total, source = -np.inf, np.inf, weight[0], 0
    seen, share, noise = np.empty(number), np.zeros(places.shape[0]), np.empty((places.shape[0], 2))
    for p in range(number):  # steps in view, drawn by weight at even steps
        while total < (p + 0.5) / number and source < number - 1:
            source += 1
            total += weight[source]
        seen[p] = body[SEEN, source] + 1.0
        slowest, fastest = min(slowest, body[SPEED, p]), max(fastest, body[SPEED, p])
    speed = -1.0  # as before
    if pace > (1.0 + _EQUAL) * walk.min_speed:
        speed = walk.max_speed
    elif pace > (1.0 - _EQUAL) * walk.min_speed or (pace > 0.0 and slowest < fastest):
        speed = walk.min_speed
    for p in range(number if speed >= 0.0 else 0):
        body[SPEED, p] = speed
    for g in range(places.shape[0]):
        for p in range(number):
            if body[AIM_X, p] == places[g, 0] and body[AIM_Y, p] == places[g, 1]:
                share[g] += weight[p]
        dx, dy = places[g, 0] - x + velocity_x * walk.time_step, places[g, 1] - y + velocity_y * walk.time_step
        away = max(math.sqrt(dx * dx + dy * dy), 1e-9)
        dx, dy = velocity_x / body[SPEED, 0] - dx / away, velocity_y / body[SPEED, 0] - dy / away
        noise[g, 0], noise[g, 1] = min(max(dx, -_NOISE), _NOISE), min(max(dy, -_NOISE), _NOISE)
        if turned:
            share[g] = (share[g] + _DOUBT) * math.exp(-0.5 * (dx * dx + dy * dy) / (_NOISE * _NOISE / 3.0))
    for g in range(places.shape[0]):
        if _inside(loads, x, y, g):
            more = share[g] / (places.shape[0] - 1)
            for other in range(places.shape[0]):
                share[other] += more
            share[g], noise[:], seen[:] = 0.0, np.inf, 0.0
    if pace == 0.0:
        noise[:] = np.inf
    total = 0.0
    for g in range(places.shape[0]):
        total += share[g]
    for g in range(places.shape[0]):
        share[g] /= total
    g, total = 0, share[0]
    for p in range(number):
        while total < (p + 0.5) / number and g < places.shape[0] - 1:
            g += 1
            total += share[g]
        body[X, p], body[Y, p], body[AIM_X, p], body[AIM_Y, p] = x, y, places[g, 0], places[g, 1]
        body[NOISE_X, p], body[NOISE_Y, p], body[SEEN, p] = noise[g, 0], noise[g, 1], seen[p]
    weight[:] = 1.0 / number
