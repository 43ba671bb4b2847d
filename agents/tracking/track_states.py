"""State of a track: normal distributions in two modes, or particles. Compiled by numba."""

import math
from typing import NamedTuple

import numpy as np

from hitmac.agents.tracking.particles import Course, aim_ahead, to_border
from hitmac.agents.tracking.recorded import Pieces
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, GOALS, MOVES, RANDOM, SPEED, STEP, WalkModel, X, Y
from hitmac.envs.base.compile import allocating, inlined
from hitmac.envs.scenario import Scenario

QUIET, TURNING = range(2)
"""Modes of a track: a nearly constant velocity, and a velocity that is about to change."""

XX, XY, YY = 2, 3, 4
"""Columns of a detection after X and Y: the covariance of its error."""

LOST = 5  # sub-steps without a detection after which particles replace the normal distributions
_GATE = 16.0  # squared Mahalanobis distance
_STRAYED = 0.002  # share of the targets whose tracks end by mistake in a sub-step


class Model(NamedTuple):
    """Sensors, and motion of a target in a sub-step, as tracks assume them."""

    speed: float  # standard deviation of an unknown velocity, in each axis
    quiet: float  # power of the acceleration in each mode, units^2 / s^3
    turning: float
    begin: float  # probability that a quiet target begins to turn, and that a turning one ends
    end: float
    survival: float  # probability that a present target stays
    expected: float  # number of targets at first
    arrivals: float  # expected number of new targets
    missed_near: float  # probability of a missed detection at the sensor, and at its range
    missed_far: float
    false: float  # mean number of false detections of a sensor
    everywhere: bool  # all places are in view of all sensors


def make_model(scenario: Scenario, walk: WalkModel, pieces: Pieces, expected: float) -> Model:
    """Return the model of a scenario's sensors and targets, with their expected number at first."""
    s, area, t = scenario, math.prod(scenario.extent) * 4.0, scenario.time_step
    near, far = s.miss_rates
    stays, returns = 1.0 - s.leave_rate, s.leave_rate * s.return_rate
    arrivals = expected * (_STRAYED + (returns / (s.leave_rate + s.return_rate) if returns > 0.0 else 0.0))
    if len(pieces.rest):
        change = np.diff(pieces.velocity, axis=0)[pieces.rest[:-1] > 0]
        speed = float(np.sqrt(np.square(pieces.velocity).mean()))
        quiet = float(np.square(change).sum()) / max(change.size, 1) / t
        expected, stays = pieces.expected, 1.0 - min(pieces.rate / pieces.expected, 1.0)
    else:
        speed = 0.5 * (walk.min_speed + walk.max_speed) * (1.0 + 0.5 * s.speed_noise) / math.sqrt(2.0)
        swerve = walk.swerve if walk.model != RANDOM else math.pi
        # A swerve turns the velocity, and the noise of the length changes it.
        quiet = (2.0 * speed * speed * min(swerve * swerve / 3.0, 1.0) + (0.1 * s.speed_noise * speed) ** 2) / t
    return Model(
        max(speed, 1e-6 * math.sqrt(area)), quiet, 0.5 * speed * speed / t, 0.01, 0.3, stays, expected, arrivals,
        near, far, s.false_detections, s.knowledge == "full",
    )  # fmt: skip


class Modes(NamedTuple):
    """Normal distributions of a track."""

    mean: np.ndarray  # (2, 4) x, y and velocity in each mode
    covariance: np.ndarray  # (2, 4, 4)
    mode: np.ndarray  # (2,) probabilities of the modes


@allocating
def modes_of(state, r, j):
    """Return the normal distributions of target or track j of row r of a state."""
    return Modes(state.mean[r, j], state.covariance[r, j], state.mode[r, j])


@allocating
def predict(model, modes, t):
    """Predict the modes of a track after t seconds: mixing, then a random change of velocity; see :class:`Tracks`."""
    mean, covariance, mode = modes
    old_mean, old_covariance = mean.copy(), covariance.copy()
    first, second = mode[QUIET], mode[TURNING]
    for k in range(2):
        from_quiet = first * (model.begin if k == TURNING else 1.0 - model.begin)
        from_turning = second * (1.0 - model.end if k == TURNING else model.end)
        mode[k] = from_quiet + from_turning
        share = from_quiet / mode[k]
        q = model.turning if k == TURNING else model.quiet
        for a in range(4):
            mean[k, a] = share * old_mean[0, a] + (1.0 - share) * old_mean[1, a]
        for a in range(4):
            apart = share * (1.0 - share) * (old_mean[0, a] - old_mean[1, a])
            for b in range(4):
                covariance[k, a, b] = (
                    share * old_covariance[0, a, b] + (1.0 - share) * old_covariance[1, a, b]
                    + apart * (old_mean[0, b] - old_mean[1, b])
                )  # fmt: skip
        for a in range(2):
            mean[k, a] += t * mean[k, a + 2]
        own = covariance[k]
        for a in range(2):  # F C F^T, rows and then columns
            for b in range(4):
                own[a, b] += t * own[a + 2, b]
        for a in range(4):
            for b in range(2):
                own[a, b] += t * own[a, b + 2]
        for a in range(2):
            own[a, a] += q * t * t * t  # the velocity changes at the beginning
            own[a, a + 2] += q * t * t
            own[a + 2, a] += q * t * t
            own[a + 2, a + 2] += q * t


@inlined
def normal_density(dx, dy, xx, xy, yy):
    """Return the density of a normal distribution at an offset from its mean, and the squared Mahalanobis distance."""
    determinant = xx * yy - xy * xy
    squared = (yy * dx * dx - 2.0 * xy * dx * dy + xx * dy * dy) / determinant
    return math.exp(-0.5 * squared) / (2.0 * math.pi * math.sqrt(determinant)), squared


@inlined
def likelihood(modes, detection):
    """Return the density of a detection of a track in its modes, 0 out of all gates."""
    (mean, covariance, mode), total = modes, 0.0
    for k in range(2):
        own = covariance[k]
        density, squared = normal_density(
            detection[X] - mean[k, 0], detection[Y] - mean[k, 1],
            own[0, 0] + detection[XX], own[0, 1] + detection[XY], own[1, 1] + detection[YY],
        )  # fmt: skip
        if squared < _GATE:
            total += mode[k] * density
    return total


@allocating
def update(modes, detection):
    """Update the modes of a track by its detection, as the Kalman filter does."""
    (mean, covariance, mode), gain, total = modes, np.empty((4, 2)), 0.0
    for k in range(2):
        own = covariance[k]
        dx, dy = detection[X] - mean[k, 0], detection[Y] - mean[k, 1]
        xx, xy, yy = own[0, 0] + detection[XX], own[0, 1] + detection[XY], own[1, 1] + detection[YY]
        density, _ = normal_density(dx, dy, xx, xy, yy)
        mode[k] *= density
        total += mode[k]
        determinant = xx * yy - xy * xy
        for a in range(4):
            gain[a, 0] = (own[a, 0] * yy - own[a, 1] * xy) / determinant
            gain[a, 1] = (own[a, 1] * xx - own[a, 0] * xy) / determinant
            mean[k, a] += gain[a, 0] * dx + gain[a, 1] * dy
        row_x, row_y = own[0].copy(), own[1].copy()
        for a in range(4):
            for b in range(4):
                own[a, b] -= gain[a, 0] * row_x[b] + gain[a, 1] * row_y[b]
    for k in range(2):
        mode[k] = max(mode[k] / total, 1e-6) if total > 0.0 else 0.5
    total = mode[0] + mode[1]
    mode[0], mode[1] = mode[0] / total, mode[1] / total


@inlined
def begin(model, modes, detection, velocity_x, velocity_y, variance):
    """Start the modes of a track at a detection, with a mean velocity and its variance in each axis."""
    mean, covariance, mode = modes
    for k in range(2):
        mean[k, 0], mean[k, 1], mean[k, 2], mean[k, 3] = detection[X], detection[Y], velocity_x, velocity_y
        covariance[k] = 0.0
        covariance[k, 0, 0], covariance[k, 1, 1] = detection[XX], detection[YY]
        covariance[k, 0, 1] = covariance[k, 1, 0] = detection[XY]
        covariance[k, 2, 2] = covariance[k, 3, 3] = variance
    mode[QUIET], mode[TURNING] = 1.0 - model.begin, model.begin


@inlined
def spread_of(walk, body, weight):
    """Return the variance of the kernel at each particle, by Silverman's rule: that of the places times P^(-1/3)."""
    total, mean_x, mean_y, squares = 1e-300, 0.0, 0.0, 0.0
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            total += weight[p]
            mean_x += weight[p] * body[X, p]
            mean_y += weight[p] * body[Y, p]
            squares += weight[p] * (body[X, p] * body[X, p] + body[Y, p] * body[Y, p])
    mean_x, mean_y = mean_x / total, mean_y / total
    variance = 0.5 * (squares / total - mean_x * mean_x - mean_y * mean_y)
    least = min(4e-3 * walk.half_width * walk.half_height, 1.0)  # a thousandth of the arena
    return max(variance, least) * weight.shape[0] ** (-1.0 / 3.0)


@inlined
def likelihood_of_particles(body, weight, spread, detection):
    """Return the density of a detection of a target with these particles, as normal kernels."""
    density, total = 0.0, 1e-300
    xx, xy, yy = detection[XX] + spread, detection[XY], detection[YY] + spread
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            dx, dy = detection[X] - body[X, p], detection[Y] - body[Y, p]
            total += weight[p]
            if dx * dx + dy * dy < _GATE * (xx + yy):
                density += weight[p] * normal_density(dx, dy, xx, xy, yy)[0]
    return density / total


@inlined
def find_again(model, walk, body, weight, spread, modes, detection):
    """Start the modes of a track at a detection, with the velocities of the particles nearby."""
    total, velocity_x, velocity_y, squares = 1e-300, 0.0, 0.0, 0.0
    xx, xy, yy = detection[XX] + spread, detection[XY], detection[YY] + spread
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            near = weight[p] * normal_density(detection[X] - body[X, p], detection[Y] - body[Y, p], xx, xy, yy)[0]
            dx, dy = body[AIM_X, p], body[AIM_Y, p]
            if walk.model == GOALS:
                dx, dy = dx - body[X, p], dy - body[Y, p]
            away = math.sqrt(dx * dx + dy * dy)
            scale = body[SPEED, p] * (1.0 + 0.5 * walk.speed_noise) / away if away > 0.0 else 0.0
            vx, vy = scale * dx, scale * dy
            total += near
            velocity_x += near * vx
            velocity_y += near * vy
            squares += near * (vx * vx + vy * vy)
    velocity_x, velocity_y = velocity_x / total, velocity_y / total
    variance = 0.5 * (squares / total - velocity_x * velocity_x - velocity_y * velocity_y)
    variance = max(variance, 0.04 * model.speed * model.speed) if total > 1e-200 else np.inf
    variance = min(variance, model.speed * model.speed)
    begin(model, modes, detection, velocity_x, velocity_y, variance)


@inlined
def deviation_of(modes):
    """Return the standard deviation of a track's place, in its likelier mode."""
    own = modes.covariance[int(modes.mode[TURNING] > 0.5)]
    return math.sqrt(0.5 * (own[0, 0] + own[1, 1]))


@allocating
def _root(covariance):
    """Return the Cholesky factor of a covariance matrix (4, 4); a dimension without variance gets zeros."""
    lower = np.zeros((4, 4))
    for a in range(4):
        for b in range(a + 1):
            rest = covariance[a, b]
            for c in range(b):
                rest -= lower[a, c] * lower[b, c]
            if a == b:
                lower[a, a] = math.sqrt(max(rest, 0.0))
            else:
                lower[a, b] = rest / lower[b, b] if lower[b, b] > 1e-9 else 0.0
    return lower


@allocating
def scatter(walk, body, weight, modes, existence, draws):
    """Replace the particles of a track by quantiles of its normal distributions.

    `draws` (P, 6) are four normal numbers and two uniform ones for each particle, the same for all tracks. A particle
    that walks to goals gets one straight ahead, by :func:`~.particles.aim_ahead`.
    """
    (mean, covariance, mode), number, slowest = modes, weight.shape[0], walk.min_speed
    turning = number - int(number * mode[TURNING] + 0.5)
    factor = 1.0 + 0.5 * walk.speed_noise
    if walk.model == GOALS:  # slower targets get stuck at once
        slowest = max(slowest, walk.stuck_distance / (walk.time_step * (1.0 + walk.speed_noise)))
    for p in range(number):
        k = int(p >= turning)
        if p == 0 or p == turning:
            lower = _root(covariance[k])
        x = mean[k, 0] + lower[0, 0] * draws[p, 0]
        y = mean[k, 1] + lower[1, 0] * draws[p, 0] + lower[1, 1] * draws[p, 1]
        dx, dy = mean[k, 2], mean[k, 3]
        for a in range(3):
            dx += lower[2, a] * draws[p, a]
            dy += lower[3, a] * draws[p, a]
        dy += lower[3, 3] * draws[p, 3]
        x, y = min(max(x, -walk.half_width), walk.half_width), min(max(y, -walk.half_height), walk.half_height)
        speed = math.sqrt(dx * dx + dy * dy)
        dx, dy = (dx / speed, dy / speed) if speed > 0.0 else (1.0, 0.0)
        speed = min(max(speed / factor, slowest), walk.max_speed)
        body[X, p], body[Y, p], body[SPEED, p] = x, y, speed
        body[STEP, p], body[MOVES, p] = np.inf, 0.0
        body[AIM_X, p], body[AIM_Y, p] = dx, dy
        if walk.model == GOALS:
            pace = max(speed * factor * walk.time_step, 1e-9)
            ahead = to_border(walk, x, y, dx, dy)
            before = min(walk.patience * pace, to_border(walk, x, y, -dx, -dy))
            aim_ahead(body, p, Course(dx, dy, pace, 0.0, before, ahead), draws[p, 4], draws[p, 5])
    weight[:] = existence / number
