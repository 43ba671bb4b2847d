"""Particle tracker: motion, detections, and missed detections. Compiled by numba."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from hitmac.agents.policy import check_finite
from hitmac.agents.tracking import walk_model
from hitmac.agents.tracking.carriers import begin_carrying, carry, pin_carrier
from hitmac.agents.tracking.sight import NO_CELLS, VIEW_X, VIEW_Y, Sight, chance_of_none, watch_from
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, CARRY, GOALS, MODELS, MOVES, RANDOM, SPEED, STEP, X, Y
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.streams import draw_uniform, stream_keys, uniform
from hitmac.envs.base.threads import Threads, blocks, cores
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import scene_seeds
from hitmac.envs.validation import Choice, NotNegative, as_array, convert, positive, shortly

KEY, DRAWN = range(2)  # rows of a stream
# Course of a visible target: first position, mean velocity, detections (0: not visible), whether its start was seen,
# slowest and fastest move.
START_X, START_Y, MEAN_X, MEAN_Y, COUNT, BEGAN, SLOWEST, FASTEST = range(8)
COURSE = 8
STRAIGHT = 0.03  # largest sine of the angle between two velocities on one course
MOST_MOVES = 1_000_000  # between two looks
SPEEDS = 8  # intervals of the density of a target's speed
_ONE, _TWO, _DRAWS = np.uint64(1), np.uint64(2), np.uint64(4)  # a move may draw 4 numbers


@inlined
def begin_course(walk, loads, body, p, key, counter):
    """Draw the speed and the aim of particle p: a goal anywhere in the arena, a direction, or a warehouse."""
    if loads is not None:
        begin_carrying(walk, loads, body, p, key, counter)
        return
    body[SPEED, p] = walk.min_speed + (walk.max_speed - walk.min_speed) * uniform(key, counter)
    body[STEP, p], body[MOVES, p] = np.inf, 0.0
    if walk.model == GOALS:
        body[AIM_X, p] = walk.half_width * (2.0 * uniform(key, counter + _ONE) - 1.0)
        body[AIM_Y, p] = walk.half_height * (2.0 * uniform(key, counter + _TWO) - 1.0)
    else:
        angle = 2.0 * math.pi * uniform(key, counter + _ONE)
        body[AIM_X, p], body[AIM_Y, p] = math.cos(angle), math.sin(angle)


@inlined
def move(walk, body, p, key, counter, increase):
    """Move particle p once, by a draw `increase` in [0, 1) of its length; return the stream's next counter.

    On a walk to goals it takes a new goal near the old one, after a move that is too short, or at the end of its
    patience. Otherwise it keeps or changes its direction by the model, and the border reflects it.
    """
    if walk.model == GOALS:
        dx, dy = body[AIM_X, p] - body[X, p], body[AIM_Y, p] - body[Y, p]
        body[MOVES, p] += 1.0
        mean = body[SPEED, p] * (1.0 + walk.speed_noise * 0.5) * walk.time_step
        near = max(walk.goal_radius, 0.5 * mean)  # a target that overshoots its goal turns soon
        if dx * dx + dy * dy < near * near or body[STEP, p] < walk.stuck_distance or body[MOVES, p] > walk.patience:
            begin_course(walk, None, body, p, key, counter)
            counter += _DRAWS
            dx, dy = body[AIM_X, p] - body[X, p], body[AIM_Y, p] - body[Y, p]
        length = body[SPEED, p] * (1.0 + walk.speed_noise * increase) * walk.time_step
        away = math.sqrt(dx * dx + dy * dy)
        scale = length / away if away > 0.0 else 0.0
        body[X, p] = min(max(body[X, p] + dx * scale, -walk.half_width), walk.half_width)
        body[Y, p] = min(max(body[Y, p] + dy * scale, -walk.half_height), walk.half_height)
    else:
        swerve = math.pi if walk.model == RANDOM else walk.swerve
        if swerve > 0.0:
            angle = swerve * (2.0 * uniform(key, counter) - 1.0)
            counter += _DRAWS
            c, s = math.cos(angle), math.sin(angle)
            x, y = body[AIM_X, p], body[AIM_Y, p]
            body[AIM_X, p], body[AIM_Y, p] = c * x - s * y, s * x + c * y
        length = body[SPEED, p] * (1.0 + walk.speed_noise * increase) * walk.time_step
        for axis in range(2):
            place = body[axis, p] + length * body[AIM_X + axis, p]
            border = walk.half_width if axis == 0 else walk.half_height
            if abs(place) > border:
                place = math.copysign(2.0 * border, place) - place
                body[AIM_X + axis, p] = -body[AIM_X + axis, p]
            body[axis, p] = min(max(place, -border), border)
    body[STEP, p] = length
    return counter


@inlined
def to_border(walk, x, y, ahead_x, ahead_y):
    """Return the distance from (x, y) to the arena's border in a direction."""
    along_x = (math.copysign(walk.half_width, ahead_x) - x) / ahead_x if ahead_x != 0.0 else math.inf
    along_y = (math.copysign(walk.half_height, ahead_y) - y) / ahead_y if ahead_y != 0.0 else math.inf
    return max(min(along_x, along_y), 0.0)


@inlined
def moves_until_stuck(stuck, noise, step, draw):
    """Return the number of moves, of lengths from `step`, before one shorter than `stuck`, which ends a course.

    `draw` is in (0, 1].
    """
    rate = (stuck / step - 1.0) / noise if noise > 0.0 else (1.0 if step < stuck else 0.0)
    if rate <= 0.0:
        return math.inf
    return math.floor(math.log(draw) / math.log(1.0 - rate)) if rate < 1.0 else 0.0


class Belief(NamedTuple):
    """Beliefs about m targets in each of B scenes, as P particles each."""

    body: np.ndarray  # (B, m, d, P) rows of the particles, see walk_model
    weight: np.ndarray  # (B, m, P), sum 1 over the particles
    course: np.ndarray  # (B, m, 8)
    stream: np.ndarray  # (2, B) uint64
    discs: np.ndarray  # (B, k, 3) discs along which targets that carry loads slide


@inlined
def put_anywhere(walk, belief, b, j, p):
    """Put particle p of a target anywhere in the area of unknown targets."""
    body = belief.body[b, j]
    body[X, p] = walk.x_low + (walk.x_high - walk.x_low) * draw_uniform(belief.stream, b)
    body[Y, p] = walk.y_low + (walk.y_high - walk.y_low) * draw_uniform(belief.stream, b)


@inlined
def set_out(walk, loads, belief, b, j, p):
    """Begin a course of particle p of a target of which only the place is known."""
    begin_course(walk, loads, belief.body[b, j], p, belief.stream[KEY, b], belief.stream[DRAWN, b])
    belief.stream[DRAWN, b] += np.uint64(3)


@compiled
def scatter(walk, loads, belief, b, j, watch):
    """Spread the particles over the area of unknown targets, if possible out of view."""
    body = belief.body[b, j]
    for p in range(body.shape[1]):
        for _ in range(8):
            put_anywhere(walk, belief, b, j, p)
            if draw_uniform(belief.stream, b) < chance_of_none(watch, body[X, p], body[Y, p]):
                break
        set_out(walk, loads, belief, b, j, p)
        belief.weight[b, j, p] = 1.0 / body.shape[1]
    for k in range(COURSE):
        belief.course[b, j, k] = 0.0


@compiled
def advance(walk, loads, belief, b, j, watch):
    """Move all particles of a target once; those that carry loads step round the views of `watch`."""
    body, key = belief.body[b, j], belief.stream[KEY, b]
    counter = belief.stream[DRAWN, b]
    for p in range(body.shape[1]):
        if loads is not None:
            carry(walk, loads, belief.discs[b], watch, body, p, key, counter)
            counter += _DRAWS
        else:
            increase = uniform(key, counter)
            counter = move(walk, body, p, key, counter + _ONE, increase)
    belief.stream[DRAWN, b] = counter


@inlined
def _follow_course(walk, course, x, y, velocity_x, velocity_y):
    """Update the course of a target detected at (x, y)."""
    speed, before = math.hypot(velocity_x, velocity_y), math.hypot(course[MEAN_X], course[MEAN_Y])
    cross = abs(course[MEAN_X] * velocity_y - course[MEAN_Y] * velocity_x)
    dot = course[MEAN_X] * velocity_x + course[MEAN_Y] * velocity_y
    straight = (cross <= STRAIGHT * speed * before) & (dot > 0.0)
    seen_before = course[COUNT] > 0.0
    if seen_before and straight:
        course[COUNT] += 1.0
    else:
        course[BEGAN] = 1.0 if seen_before else 0.0
        course[START_X] = x - velocity_x * walk.time_step
        course[START_Y] = y - velocity_y * walk.time_step
        course[MEAN_X], course[MEAN_Y], course[COUNT] = 0.0, 0.0, 1.0
        course[SLOWEST], course[FASTEST] = math.inf, 0.0
    course[SLOWEST], course[FASTEST] = min(course[SLOWEST], speed), max(course[FASTEST], speed)
    course[MEAN_X] += (velocity_x - course[MEAN_X]) / course[COUNT]
    course[MEAN_Y] += (velocity_y - course[MEAN_Y]) / course[COUNT]


@inlined
def _fit_speeds(walk, course, density):
    """Write the density of the speed of a target, relative to the first interval, into `density`.

    Each of k moves had the speed ``s * (1 + noise * u)``, u uniform in [0, 1), so the density at s falls with ``s^-k``.
    On a course whose start was not seen, it is multiplied by the expected length of a course of that speed: a target
    with short moves soon gets stuck. Return the lowest speed and the width of an interval.
    """
    low = max(course[FASTEST] / (1.0 + walk.speed_noise), walk.min_speed)
    width = (min(course[SLOWEST], walk.max_speed) - low) / density.shape[0]
    for k in range(density.shape[0]):
        speed = low + (k + 0.5) * width
        density[k] = (low / speed) ** course[COUNT]
        if walk.model == GOALS and course[BEGAN] == 0.0:
            least = walk.stuck_distance / (speed * walk.time_step) - 1.0  # of noise * u, not to get stuck
            stuck = min(max(least / walk.speed_noise, 0.0), 1.0)
            density[k] /= stuck + 1.0 / walk.patience
    return low, width


@inlined
def _quantile(density, total, q):
    """Return the q-quantile of a density with the sum `total`, in intervals."""
    rest = q * total
    for k in range(density.shape[0]):
        if rest < density[k]:
            return k + rest / density[k]
        rest -= density[k]
    return float(density.shape[0])


@inlined
def _spread(p, step):
    """Return element p of a sequence evenly spread over [0, 1) by an irrational step."""
    x = 0.5 + step * p
    return x - np.floor(x)


@inlined
def add_errors(belief, b, j, deviation):
    """Add errors to the places of a target's particles, normal with this standard deviation in each axis."""
    body = belief.body[b, j]
    for p in range(body.shape[1] if deviation > 0.0 else 0):
        radius = deviation * math.sqrt(-2.0 * math.log(1.0 - draw_uniform(belief.stream, b)))
        angle = 2.0 * math.pi * draw_uniform(belief.stream, b)
        body[X, p] += radius * math.cos(angle)
        body[Y, p] += radius * math.sin(angle)


class Course(NamedTuple):
    """Course of a target that walks to goals."""

    ahead_x: float  # unit vector of its direction
    ahead_y: float
    pace: float  # length of a move
    seen: float  # distance gone, as far as known
    before: float  # most distance gone before
    ahead: float  # distance to the border


@inlined
def aim_ahead(body, p, course, first, second):
    """Give particle p, on a course to goals, a goal straight ahead.

    Goals are uniform in the arena, so the density of the goal's distance r from the start of the course grows with r.
    It is over the distance gone, g, of which `seen` is known. Where the start was not seen, but is at most `before`
    farther, the joint density is that of r over ``0 <= g <= r <= g + a``, with the distance a `ahead` to the border.
    `first` and `second` are the quantiles of g and r.
    """
    seen, before, ahead = course.seen, course.before, course.ahead
    half = seen + 0.5 * ahead
    gone = seen + (math.sqrt(half * half + first * before * (before + 2.0 * half)) - half)
    goal = math.sqrt(gone * gone + second * ahead * (ahead + 2.0 * gone)) - gone
    body[MOVES, p] = max(gone / course.pace - 1.0, 0.0)
    body[AIM_X, p], body[AIM_Y, p] = body[X, p] + course.ahead_x * goal, body[Y, p] + course.ahead_y * goal


@compiled
def pin(walk, loads, belief, b, j, detection, density):
    """Replace the belief about a target by a detection: its place and velocity (x, y, vx, vy).

    A particle that walks to goals gets one straight ahead, see :func:`aim_ahead`. Particle p takes fixed quantiles of
    speed and goal, so that the particles of a target that is seen for long change little.

    A particle that carries loads gets one of the likely warehouses, see :func:`~.carriers.pin_carrier`.
    `density` (SPEEDS,) is scratch memory.
    """
    body, weight, course = belief.body[b, j], belief.weight[b, j], belief.course[b, j]
    x, y, velocity_x, velocity_y = detection
    _follow_course(walk, course, x, y, velocity_x, velocity_y)
    if loads is not None:
        pin_carrier(walk, loads, body, weight, detection, course[COUNT] == 1.0)
        return
    speed, total = math.hypot(course[MEAN_X], course[MEAN_Y]), 0.0
    ahead_x = course[MEAN_X] / speed if speed > 0.0 else 0.0
    ahead_y = course[MEAN_Y] / speed if speed > 0.0 else 0.0
    mean = speed / (1.0 + 0.5 * walk.speed_noise)
    lowest, width = _fit_speeds(walk, course, density)
    for k in range(SPEEDS):
        total += density[k]
    varied = walk.speed_noise > 0.0 and width > 0.0
    pace = max(speed * walk.time_step, 1e-9)
    ahead = to_border(walk, x, y, ahead_x, ahead_y)
    seen = math.hypot(x - course[START_X], y - course[START_Y])
    before = 0.0  # of the start of the course, from where the target was first seen
    if course[BEGAN] == 0.0:
        before = max(min(walk.patience * pace, to_border(walk, x, y, -ahead_x, -ahead_y)) - seen, 0.0)
    length = math.hypot(velocity_x, velocity_y) * walk.time_step
    for p in range(body.shape[1]):
        body[X, p], body[Y, p], weight[p] = x, y, 1.0 / body.shape[1]
        if speed == 0.0:
            set_out(walk, loads, belief, b, j, p)
            continue
        third = _spread(p, 0.5497004779019702)  # with two below, steps that fill a cube evenly (Roberts's sequence R3)
        body[SPEED, p] = lowest + width * _quantile(density, total, third) if varied else mean
        body[STEP, p], body[MOVES, p] = length, 0.0
        body[AIM_X, p], body[AIM_Y, p] = ahead_x, ahead_y
        if walk.model == GOALS:
            first, second = _spread(p, 0.6710436067037893), _spread(p, 0.8191725133961645)
            aim_ahead(body, p, Course(ahead_x, ahead_y, pace, seen, before, ahead), first, second)


@allocating
def _resample(body, weight, start):
    """Resample the particles by their weights, at even steps from `start` in [0, 1)."""
    number, total, source, old = weight.shape[0], weight[0], 0, body.copy()
    for p in range(number):
        while total < (p + start) / number and source < number - 1:
            source += 1
            total += weight[source]
        for row in range(body.shape[0]):
            body[row, p] = old[row, source]
    for p in range(number):
        weight[p] = 1.0 / number


@compiled
def miss_target(walk, loads, belief, b, j, watch):
    """Multiply the weights by the probability that no sensor of `watch` detects the target.

    Particles are resampled if their effective number, ``1 / sum(weight^2)``, is below half of theirs. If no weight is
    left, the belief was wrong, and the target can be anywhere outside the views.
    """
    body, weight = belief.body[b, j], belief.weight[b, j]
    total, squares = 0.0, 0.0
    for p in range(weight.shape[0]):
        weight[p] *= chance_of_none(watch, body[X, p], body[Y, p])
        total += weight[p]
        squares += weight[p] * weight[p]
    if total < 1e-6:
        scatter(walk, loads, belief, b, j, watch)
        return
    for p in range(weight.shape[0]):
        weight[p] /= total
    if total * total < 0.5 * weight.shape[0] * squares:
        _resample(body, weight, draw_uniform(belief.stream, b))


@allocating
def nobody():
    """Return the :class:`~hitmac.agents.tracking.sight.Watch` of no sensors."""
    return watch_from(np.empty((0, 7)), np.empty((0, 0), np.float32), NO_CELLS)


@kernel
def scatter_all(walk, belief, chosen, share):
    """Forget all targets of the chosen scenes (B,)."""
    watch = nobody()
    for low, high in blocks(chosen.shape[0], share):
        for b in range(low, high):
            if chosen[b]:
                for j in range(belief.weight.shape[1]):
                    scatter(walk, walk.loads, belief, b, j, watch)


@kernel
def move_all(walk, belief, moves, share):
    """Move all particles of every scene `moves[b]` times."""
    watch = nobody()
    for low, high in blocks(moves.shape[0], share):
        for b in range(low, high):
            for _ in range(moves[b]):
                for j in range(belief.weight.shape[1]):
                    advance(walk, walk.loads, belief, b, j, watch)


@kernel
def see_all(walk, belief, seen, position, velocity, deviation, share):
    """Replace the beliefs about the targets of `seen` (B, m), and spread the particles by `deviation`."""
    density = np.empty(SPEEDS)
    for low, high in blocks(seen.shape[0], share):
        for b in range(low, high):
            for j in range(seen.shape[1]):
                if seen[b, j]:
                    (x, y), (velocity_x, velocity_y) = position[b, j], velocity[b, j]
                    pin(walk, walk.loads, belief, b, j, (x, y, velocity_x, velocity_y), density)
                    add_errors(belief, b, j, deviation)
                if not seen[b, j] or deviation > 0.0:  # velocities with errors make no course
                    belief.course[b, j, COUNT] = 0.0


@kernel
def miss_all(walk, belief, unseen, views, clear, share):
    """Update the beliefs by views (B, n, 7) that do not detect the targets of `unseen` (B, m)."""
    for low, high in blocks(unseen.shape[0], share):
        for b in range(low, high):
            watch = watch_from(views[b], clear[b % clear.shape[0]], NO_CELLS)
            for j in range(unseen.shape[1]):
                if unseen[b, j]:
                    miss_target(walk, walk.loads, belief, b, j, watch)


class ParticleTracker:
    """Belief about the positions of m targets in each of B scenes, as P weighted particles for each target.

    Between detections the particles follow a model of the targets' walk:

    ======================= ============================================================================================
    ``goals``               from goal to goal, uniform in the arena, like HiT-MAC's targets
    ``constant velocity``   straight ahead, swerving by the scenario's `wander`, reflected at the border
    ``random``              every move in a new direction
    ``carry``               from warehouse to warehouse, with noise, in scenarios with warehouses
    ======================= ============================================================================================

    Speeds, noise and the other parameters of the walk are the scenario's. A detection replaces the belief about its
    target: all particles take its position and velocity. A look without a detection is also evidence: with the
    probability `d` of a detection in a view, Bayes' rule multiplies the weight of a particle inside by ``1 - d``,
    except behind a wall, block or disc. Systematic resampling follows when the effective number of
    particles, ``1 / sum(weight^2)``, is below P / 2. The initial belief is uniform over the scenario's `target_area`.

    In a loop, call :meth:`move`, then :meth:`see`, then :meth:`look`. Source: Gordon, Salmond, Smith, "Novel approach
    to nonlinear/non-Gaussian Bayesian state estimation", IEE Proceedings F 1993.

    Args:
        scenario: the scenario of the targets: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file.
        num_scenes: B, 1 or more.
        particles: P, 1 or more.
        model: the walk, out of :data:`MODELS`; None: the one closest to the scenario's.
        seed: scene b uses the seed ``seed + b``, or the b-th of a sequence, independently of the batch.
        num_threads: number of threads, 1 or more; None: the number of cores.

    Attributes:
        belief: the :class:`~hitmac.agents.tracking.particles.Belief`, all arrays.

    Raises:
        ValueError: an unknown model, or a number out of its range.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "hit-mac",
        num_scenes: int = 1,
        *,
        particles: int = 256,
        model: str | None = None,
        seed: int | Sequence[int] = 0,
        num_threads: int | None = None,
    ) -> None:
        self.scenario = load_scenario(scenario)
        b, m, p = positive("num_scenes", num_scenes), self.scenario.num_targets, positive("particles", particles)
        given = convert("model", Annotated[str, Choice(MODELS)] | None, model)
        self._walk = walk_model.walk_model(self.scenario, None if given is None else MODELS.index(given))
        self._sight = Sight(self.scenario)
        if self._walk.model == CARRY and not self.scenario.is_game:
            raise ValueError(f"model is {model!r}; it requires a scenario with warehouses")
        keys = stream_keys(scene_seeds(seed, b))
        self.belief = Belief(
            np.zeros((b, m, walk_model.rows_of(self._walk.model), p)), np.zeros((b, m, p)), np.zeros((b, m, COURSE)),
            np.stack((keys, np.zeros_like(keys))), np.zeros((b, 0, 3)),
        )  # fmt: skip
        self._threads = Threads(b, cores() if num_threads is None else positive("num_threads", num_threads), block=8)
        self.reset()

    @property
    def positions(self) -> np.ndarray:
        """(B, m, P, 2) positions of the particles."""
        return np.stack((self.belief.body[:, :, X], self.belief.body[:, :, Y]), -1)

    @property
    def weights(self) -> np.ndarray:
        """(B, m, P) weights of the particles; their sum is 1 for each target."""
        return self.belief.weight.copy()

    @property
    def mean(self) -> np.ndarray:
        """(B, m, 2) mean positions."""
        return (self.positions * self.belief.weight[..., None]).sum(-2)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget all targets of the scenes of `mask` (B,) bool, or of all."""
        chosen = np.ones(len(self.belief.weight), np.bool_) if mask is None else mask
        self._threads.run(scatter_all, self._walk, self.belief, self._shaped("mask", chosen, 1, np.bool_))

    def move(self, moves: int | np.ndarray = 1) -> None:
        """Move all particles by a number of moves of the targets since the last call, (B,) or one for all scenes."""
        given = as_array("moves", moves)
        number = self._shaped("moves", given if given.ndim else np.full(len(self.belief.weight), given), 1, np.int64)
        if (number < 0).any() or (number > MOST_MOVES).any():
            raise ValueError(f"moves are {shortly(moves)}; they must be from 0 to {MOST_MOVES:,}")
        self._threads.run(move_all, self._walk, self.belief, number)

    def see(
        self, position: np.ndarray, seen: np.ndarray, velocity: np.ndarray | None = None, *, deviation: float = 0.0
    ) -> None:
        """Replace the belief about detected targets.

        Args:
            position: (B, m, 2) measured positions; those of unseen targets are ignored.
            seen: (B, m) bool.
            velocity: (B, m, 2) measured velocities, units per second; None or 0: unknown.
            deviation: standard deviation of the errors of the positions in each axis.
        """
        seen, position = self._shaped("seen", seen, 2, np.bool_), self._shaped("position", position, 3)
        velocity = np.zeros_like(position) if velocity is None else self._shaped("velocity", velocity, 3)
        check_finite("position", position[seen])
        check_finite("velocity", velocity[seen])
        deviation = convert("deviation", NotNegative, deviation)
        self._threads.run(see_all, self._walk, self.belief, seen, position, velocity, deviation)

    def look(self, views: np.ndarray, unseen: np.ndarray) -> None:
        """Update the beliefs by views that detect no target of `unseen`.

        Args:
            views: (B, n, 7) views of the sensors: x, y, cosine and sine of the heading, cosine of half the field of
                view (-2: all round), range squared, probability of detecting a target in view (0: no look); or (B, n,
                8), also the squared distance of a near edge.
            unseen: (B, m) bool.
        """
        given, b = as_array("views", views), len(self.belief.weight)
        if given.ndim != 3 or len(given) != b or given.shape[2] not in (7, 8) or given.dtype.kind not in "biuf":
            raise ValueError(
                f"views has shape {given.shape} and type {given.dtype}; it must be ({b}, n, 7), or ({b}, n, 8), float"
            )
        views = np.ascontiguousarray(given, np.float64)
        check_finite("views", views)
        clear = self._sight.clear(views[..., VIEW_X], views[..., VIEW_Y])
        self._threads.run(miss_all, self._walk, self.belief, self._shaped("unseen", unseen, 2, np.bool_), views, clear)

    def map(self, cells: int = 32) -> np.ndarray:
        """Return the probability (B, m, c, c) that a target is in each cell of a c x c grid over the arena, x first."""
        (b, m, _), c = self.belief.weight.shape, positive("cells", cells)
        at = (self.positions / (self._walk.half_width, self._walk.half_height) + 1.0) * 0.5 * c
        column, row = np.moveaxis(at.astype(np.int64).clip(0, c - 1), -1, 0)  # (B, m, P)
        found = np.zeros((b, m, c, c))
        np.add.at(found, (np.arange(b)[:, None, None], np.arange(m)[:, None], column, row), self.belief.weight)
        return found

    def _shaped(self, name: str, array: np.ndarray, axes: int, kind: type = np.float64) -> np.ndarray:
        """Return an array of type `kind` and shape (B,), (B, m) or (B, m, 2), by `axes`."""
        shape, given = (*self.belief.weight.shape[:2], 2)[:axes], as_array(name, array)
        if given.shape != shape or given.dtype.kind not in ("biu" if kind is np.int64 else "biuf"):
            raise ValueError(
                f"{name} has shape {given.shape} and type {given.dtype}; it must be {shape}, {kind.__name__}"
            )
        return np.ascontiguousarray(given, kind)
