"""Game of two teams: sensors watch targets that carry cargoes between warehouses. Compiled by numba.

The rules are those of MATE (Pan and others, NeurIPS 2022, Datasets and Benchmarks). A step moves the sensors, then the
targets, computes all views, and then the rewards and cargoes.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.formulas import disc_blocks, range_squared, wrapped
from hitmac.envs.base.state import KernelState, X, Y
from hitmac.envs.base.streams import draw_between, draw_integer, draw_uniform
from hitmac.envs.base.threads import blocks
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Corner, Shape
from hitmac.envs.parts.lenses import set_field_of_view
from hitmac.envs.parts.obstacles import disc_at
from hitmac.envs.parts.sensors import deal, set_heading
from hitmac.envs.validation import Choice, Count, Fraction, NotNegative, Positive

MOST_PLACES = 500
"""Most draws of the place of a sensor, disc or target at the start of an episode."""

BROWN = (160, 100, 0)  # of warehouses and loads in pictures
_TOLERANCE = 1.0 + 1e-6
_NOT_IN_GAMES = (
    "min_sensors", "min_targets", "leave_rate", "tracks", "turn_rates", "rails", "pan_limits", "sensor_headings",
    "walls", "blocks", "extra_move_every",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of a game."""

    warehouses: tuple[Corner, ...] = ()
    """(x, y) of the centres of square warehouses, at least 2: the scenario is a game of two teams, MATE's (Pan and
    others, NeurIPS 2022), in which targets carry cargoes between warehouses, see :class:`hitmac.envs.Game`; empty:
    no game."""
    warehouse_size: Positive = 75.0
    """Half the side of a warehouse."""
    cargoes: Count = 8
    """Cargoes of an episode for each target."""
    target_range: NotNegative = 500.0
    """Largest distance at which a target sees another; it sees discs and sensors from farther by their radius."""
    sensor_radius: NotNegative = 0.0
    """Radius of the sensors, along which targets slide as along discs, with warehouses."""
    transmittance: Fraction = 0.0
    """Probability that a sensor sees a target through discs in a step, with warehouses."""
    occlusion: Annotated[str, Choice(("exact", "rays"))] = "exact"
    """Discs that block a view, with warehouses: `exact`: those on the line of sight; `rays`: interpolated between rays,
    as in MATE."""

    def _rules_of_game(self: Any) -> validation.Rules:
        alone = next((name for name in _NOT_IN_GAMES if getattr(self, name)), "")
        carries, many = self.walk.startswith("carry"), len(self.warehouses)
        yield "warehouses", many != 1, "empty, or at least 2"
        yield "warehouses", self._holds(self.warehouses), self._inside
        yield "warehouses", not (many and alone), f"empty with {alone}"
        yield "walk", carries == bool(many), "one of carry-... if and only if warehouses are given"
        yield "placement", self.placement == "areas" or not many, "areas with warehouses"

    @property
    def is_game(self) -> bool:
        """True with warehouses."""
        return bool(self.warehouses)

    @property
    def cargo_worth(self: Any) -> float:
        """Value of delivering one cargo in a game: the number of full steps across the arena, rounded up."""
        return float(math.ceil(2.0 * min(self.extent) / (self.max_speed * self.time_step)))


class Cargo(NamedTuple):
    """Cargoes, rewards, and what targets see, in scenes of n sensors, m targets, k discs and W warehouses.

    For users the scenes are along the first axis, for kernels along the last.
    """

    capacity: np.ndarray  # (B, m) int64: most cargoes of a load
    weight: np.ndarray  # (B, m) int64: cargoes of the load; 0: no load
    goal: np.ndarray  # (B, m) int64: warehouse to which the load goes; -1: no load
    bounty: np.ndarray  # (B, m) what the sensors have left of the load's delivery
    empty: np.ndarray  # (B, m, W) bool: the warehouse had none to send when the target was there last
    remaining: np.ndarray  # (B, W, W) int64: cargoes to load at v for w
    awaiting: np.ndarray  # (B, W) int64: cargoes that have not arrived
    delivered: np.ndarray  # (B,) int64: cargoes that have arrived
    paid: np.ndarray  # (B,) sum of MATE's sparse rewards: twice the bounty left of each load delivered
    reward: np.ndarray  # (B, m) each target's part of its team's reward in the last step; the sensors' is its negative
    sees_sensor: np.ndarray  # (B, m, n) bool: target j sees sensor i
    sees_disc: np.ndarray  # (B, m, k) bool


class Terms(NamedTuple):
    """Constants of the game, and the random numbers of a step."""

    warehouse: np.ndarray  # (W, 2) centres
    size: float  # half the side of a warehouse
    disc_area: np.ndarray  # (a, 4) areas of random discs
    cargoes: int  # at the start of an episode
    worth: float  # of the delivery of one cargo
    target_range: float
    sensor_radius: float
    transmittance: float
    rays: bool  # occlusion by MATE's table of rays
    drawn: bool  # the next step takes the random numbers below as they are
    # Undefined between two steps, for B scenes:
    transmitted: np.ndarray  # (n, m, B) bool: a disc between sensor i and target j does not block the view
    chance: np.ndarray  # (m, B) in [0, 1): choice of the goal of target j's next load


@inlined
def draw(state, game, first, last):
    """Draw the random numbers of a step."""
    if game is not None:
        n, m = state.visible.shape[0], state.visible.shape[1]
        for i in range(n if game.transmittance > 0.0 and state.disc.shape[0] > 0 else 0):
            for j in range(m):
                for b in range(first, last):
                    game.transmitted[i, j, b] = draw_uniform(state.stream, b) < game.transmittance
        for j in range(m):
            for b in range(first, last):
                game.chance[j, b] = draw_uniform(state.stream, b)


@inlined
def _turn(state, p, action, first, last):
    """Turn and zoom every working sensor i by ``action[b, i]``, degrees, within its limits."""
    sensor = state.sensor
    for b in range(first, last):
        for i in range(sensor.shape[0]):
            state.rotated[i, b] = False
            if state.working[i, b]:
                turn = min(max(action[b, i, 0], -sensor[i, at.TURN, b]), sensor[i, at.TURN, b])
                zoom = min(max(action[b, i, 1], -p.zoom_step), p.zoom_step)
                set_heading(state, b, i, wrapped(sensor[i, at.HEADING, b] + turn))
                view = sensor[i, at.FIELD_OF_VIEW, b] + zoom
                set_field_of_view(state, b, i, min(max(view, p.narrowest), p.widest))
                state.rotated[i, b] = turn != 0.0


@inlined
def _body(state, game, c, b):
    """Return place and radius of body c of those along which targets slide: the sensors, then the discs."""
    n = state.sensor.shape[0]
    if c < n:
        return state.sensor[c, X, b], state.sensor[c, Y, b], game.sensor_radius
    return state.disc[c - n, X, b], state.disc[c - n, Y, b], state.disc[c - n, at.RADIUS, b]


@inlined
def _is_near(state, game, j, c, reach, b):
    """Return True if target j is within `reach` of body c."""
    x, y, radius = _body(state, game, c, b)
    dx, dy, most = x - state.target[j, X, b], y - state.target[j, Y, b], reach + radius
    return dx * dx + dy * dy <= most * most


@inlined
def slide(x, y, step_x, step_y, disc_x, disc_y, radius):
    """Return a step from (x, y) after its contact with a disc: the rest keeps only its part along the tangent.

    A step from inside the disc is turned round.
    """
    to_x, to_y = disc_x - x, disc_y - y
    squared, length = to_x * to_x + to_y * to_y, math.sqrt(step_x * step_x + step_y * step_y)
    if length == 0.0 or squared < radius * radius:
        return -step_x, -step_y
    along = (to_x * step_x + to_y * step_y) / length
    half_squared = radius * radius - (squared - along * along)  # of the chord
    if along < 0.0 or half_squared <= 0.0:
        return step_x, step_y
    half = math.sqrt(half_squared)
    contact = max(along - half, 0.0)
    if contact >= length:
        return step_x, step_y
    rest, share = (length - contact) * half / (radius * radius), contact / length
    return step_x + (share * step_x - to_x) * rest, step_y + (share * step_y - to_y) * rest


@compiled
def end_of_step(state, game, p, b, x, y, dx, dy):
    """Return where a step from (x, y) ends, after its contacts with sensors, discs and the border."""
    longest = math.sqrt(dx * dx + dy * dy)
    for c in range(state.sensor.shape[0] + state.disc.shape[0]):
        disc_x, disc_y, radius = _body(state, game, c, b)
        if (disc_x - x) ** 2 + (disc_y - y) ** 2 < (longest + radius) ** 2:
            dx, dy = slide(x, y, dx, dy, disc_x, disc_y, radius)
    return min(max(x + dx, -p.half_width), p.half_width), min(max(y + dy, -p.half_height), p.half_height)


@inlined
def _move(state, p, game, action, first, last):
    """Move every target j by ``action[b, j]``, scaled to its longest step, along the bodies."""
    target, step, longest, near = state.target, state.scratch[0:2], state.scratch[2], state.scratch_mask
    for j in range(target.shape[0]):
        for b in range(first, last):
            wanted = math.sqrt(action[b, j, 0] * action[b, j, 0] + action[b, j, 1] * action[b, j, 1])
            longest[b] = target[j, at.SPEED, b] * p.time_step
            scale = longest[b] / wanted if wanted > longest[b] else 1.0
            step[X, b], step[Y, b], near[b] = action[b, j, 0] * scale, action[b, j, 1] * scale, False
        for c in range(state.sensor.shape[0] + state.disc.shape[0]):
            for b in range(first, last):
                near[b] |= _is_near(state, game, j, c, longest[b], b)
        for b in range(first, last):
            x, y = target[j, X, b], target[j, Y, b]
            end_x = min(max(x + step[X, b], -p.half_width), p.half_width)
            end_y = min(max(y + step[Y, b], -p.half_height), p.half_height)
            if near[b]:
                end_x, end_y = end_of_step(state, game, p, b, x, y, step[X, b], step[Y, b])
            target[j, X, b], target[j, at.VELOCITY_X, b] = end_x, (end_x - x) / p.time_step
            target[j, Y, b], target[j, at.VELOCITY_Y, b] = end_y, (end_y - y) / p.time_step


@inlined
def move_teams(state, p, game, action, moves, first, last):
    """Turn and zoom the sensors by `action`, then move the targets by `moves`."""
    if not game.drawn:
        draw(state, game, first, last)
    _turn(state, p, action, first, last)
    _move(state, p, game, moves, first, last)


@inlined
def sector_of(sensor, i, b):
    """Return place, direction, cosine and sine of half the view, and range of sensor i."""
    cosine, reach = sensor[i, at.COS_HALF_VIEW, b], math.sqrt(sensor[i, at.RANGE_SQUARED, b])
    sine, own = math.sqrt(max(1.0 - cosine * cosine, 0.0)), sensor[i]
    return own[X, b], own[Y, b], own[at.DIRECTION_X, b], own[at.DIRECTION_Y, b], cosine, sine, reach


@inlined
def _cut(state, i, b, reach, length, bearing):
    """Return the length of a ray from sensor i at a bearing, radians, cut by the discs within `reach`."""
    ray_x, ray_y = math.cos(bearing), math.sin(bearing)
    for k in range(state.disc.shape[0]):
        radius = state.disc[k, at.RADIUS, b]
        to_x, to_y = state.disc[k, X, b] - state.sensor[i, X, b], state.disc[k, Y, b] - state.sensor[i, Y, b]
        squared, along = to_x * to_x + to_y * to_y, to_x * ray_x + to_y * ray_y
        half_squared = radius * radius - (squared - along * along)
        counts = squared < (reach + radius) ** 2 and squared < (length + radius) ** 2
        if counts and along >= 0.0 and half_squared > 0.0:
            length = min(length, along - math.sqrt(half_squared))
    return length


@compiled
def _boundary(state, p, i, b, dx, dy):
    """Return how far sensor i of scene b sees towards (dx, dy) by MATE's table of rays.

    The table has rays at whole degrees, at the tangents of every disc +- 0.01 degrees, and evenly spaced between its
    tangents. All are cut by the discs; the length is linear in the bearing between neighbouring rays.
    """
    reach = math.sqrt(state.sensor[i, at.VIEW_AREA, b] / p.narrowest)
    bearing = math.degrees(math.atan2(dy, dx))
    low, high = math.floor(bearing) - bearing, math.floor(bearing) + 1.0 - bearing  # rays, relative to the bearing
    low_length, high_length = reach, reach
    for k in range(state.disc.shape[0]):
        to_x, to_y = state.disc[k, X, b] - state.sensor[i, X, b], state.disc[k, Y, b] - state.sensor[i, Y, b]
        radius, distance = state.disc[k, at.RADIUS, b], math.sqrt(to_x * to_x + to_y * to_y)
        if distance < reach + radius:
            if distance <= radius:
                return 0.0
            off = wrapped(math.degrees(math.atan2(to_y, to_x)) - bearing)
            half = math.degrees(math.asin(radius / distance))
            count = max(16, int(2.0 * half))
            below = min(max(math.floor((half - off) / (2.0 * half) * count), 0), count) if half > 0.0 else 0
            for ray in range(6):
                length = reach
                if ray < 4:
                    angle = off + (half if ray < 2 else -half) + (0.01 if ray % 2 else -0.01)
                else:
                    angle = off - half + 2.0 * half * min(below + ray - 4, count) / count
                    length = min(reach, distance + radius)
                if angle <= 0.0 and angle >= low:
                    low_length = min(length, low_length) if angle == low else length
                    low = angle
                if angle > 0.0 and angle <= high:
                    high_length = min(length, high_length) if angle == high else length
                    high = angle
    low_length = _cut(state, i, b, reach, low_length, math.radians(bearing + low))
    high_length = _cut(state, i, b, reach, high_length, math.radians(bearing + high))
    return low_length + (high_length - low_length) * (-low / (high - low))


@inlined
def _see_places(state, p, game, i, place, through, seen, first, last):
    """Compute whether sensor i sees the places (2, B), where `through` also through discs."""
    sensor, disc = state.sensor, state.disc
    for b in range(first, last):
        dx, dy = place[X, b] - sensor[i, X, b], place[Y, b] - sensor[i, Y, b]
        squared = dx * dx + dy * dy
        ahead = sensor[i, at.DIRECTION_X, b] * dx + sensor[i, at.DIRECTION_Y, b] * dy
        inside = ahead >= sensor[i, at.COS_HALF_VIEW, b] * math.sqrt(squared)
        seen[b] = (squared <= sensor[i, at.RANGE_SQUARED, b]) & inside & state.working[i, b]
    if game.rays:
        for b in range(first, last):
            if seen[b] and not through[b]:
                dx, dy = place[X, b] - sensor[i, X, b], place[Y, b] - sensor[i, Y, b]
                seen[b] = math.sqrt(dx * dx + dy * dy) <= _boundary(state, p, i, b, dx, dy) * _TOLERANCE
    else:
        for k in range(disc.shape[0]):
            for b in range(first, last):
                x, y = sensor[i, X, b], sensor[i, Y, b]
                dx, dy = place[X, b] - x, place[Y, b] - y
                seen[b] &= through[b] | (not disc_blocks(x, y, dx, dy, disc_at(disc, k, b)))


@inlined
def see(state, p, cargo, game, first, last):
    """Compute which targets the sensors see, coverage, and which bodies the targets see."""
    n, m = state.visible.shape[0], state.visible.shape[1]
    for b in range(first, last):
        state.scene[at.NUM_COVERED, b] = 0
    for j in range(m):
        for b in range(first, last):
            state.covered[j, b] = False
        for i in range(n):
            _see_places(state, p, game, i, state.target[j], game.transmitted[i, j], state.visible[i, j], first, last)
            for b in range(first, last):
                state.covered[j, b] |= state.visible[i, j, b]
        for b in range(first, last):
            state.scene[at.NUM_COVERED, b] += state.covered[j, b]
        for c in range(n + state.disc.shape[0]):
            seen = cargo.sees_sensor[j, c] if c < n else cargo.sees_disc[j, c - n]
            for b in range(first, last):
                seen[b] = _is_near(state, game, j, c, game.target_range, b)
    for b in range(first, last):
        state.coverage[b] = state.scene[at.NUM_COVERED, b] / m


@kernel
def see_sensors(rows, game, seen, share):
    """Compute the sensors k that each sensor i sees, ``seen[i, k]`` (n, n, B); each sees itself."""
    state = KernelState(*rows)
    through = np.zeros(seen.shape[2], np.bool_)
    for low, high in blocks(seen.shape[2], share):
        for i in range(seen.shape[0]):
            for k in range(seen.shape[0]):
                _see_places(state, state.parameters[0], game, i, state.sensor[k], through, seen[i, k], low, high)
            seen[i, i, low:high] = True


@inlined
def warehouse_of(state, game, j, b):
    """Return the warehouse in which target j of scene b is, -1 for none."""
    for v in range(game.warehouse.shape[0]):
        dx, dy = state.target[j, X, b] - game.warehouse[v, X], state.target[j, Y, b] - game.warehouse[v, Y]
        if max(abs(dx), abs(dy)) <= game.size:
            return v
    return -1


@compiled
def choose(valid, chance):
    """Return the index of an element that is not 0, by a number `chance` in [0, 1); -1 if all are."""
    count = 0
    for index in range(valid.size):
        count += valid[index] != 0
    before = int(chance * count)  # elements to skip that are not 0
    for index in range(valid.size):
        if valid[index] != 0:
            if before == 0:
                return index
            before -= 1
    return -1


@inlined
def _load(state, cargo, game, j, v, b, chance):
    """Replace the load of target j of scene b by one from warehouse v, if any is left; return True if so.

    The goal is uniform among those of the cargoes left, by a number `chance` in [0, 1).
    """
    w, target = choose(cargo.remaining[v, :, b], chance), state.target
    cargo.goal[j, b], cargo.weight[j, b], cargo.bounty[j, b] = w, 0, 0.0
    if w >= 0:
        weight = min(cargo.capacity[j, b], cargo.remaining[v, w, b])
        cargo.remaining[v, w, b] -= weight
        cargo.weight[j, b], cargo.bounty[j, b] = weight, game.worth * weight
        target[j, at.GOAL_X, b], target[j, at.GOAL_Y, b] = game.warehouse[w, X], game.warehouse[w, Y]
    return w >= 0


@inlined
def _visit(state, cargo, game, j, v, b):
    """Deliver the load of target j of scene b if its goal is warehouse v, and load there."""
    goal, weight = cargo.goal[j, b], cargo.weight[j, b]
    if goal == v:
        cargo.reward[j, b] += game.worth * weight + cargo.bounty[j, b]
        cargo.paid[b] += 2.0 * cargo.bounty[j, b]
        cargo.delivered[b] += weight
        cargo.awaiting[v, b] -= weight
    if goal == v or goal < 0:
        _load(state, cargo, game, j, v, b, game.chance[j, b])
    cargo.empty[j, v, b] = not cargo.remaining[v, :, b].any()


@inlined
def carry(state, cargo, game, first, last):
    """Compute the rewards, deliver and load."""
    if game is not None:
        for j in range(state.target.shape[0]):
            for b in range(first, last):
                seen = state.covered[j, b] & (cargo.bounty[j, b] > 0.0)
                cargo.reward[j, b] = -1.0 if seen else 0.0
                cargo.bounty[j, b] = max(cargo.bounty[j, b] - 1.0, 0.0) if seen else cargo.bounty[j, b]
            for b in range(first, last):
                v = warehouse_of(state, game, j, b)
                if v >= 0:
                    _visit(state, cargo, game, j, v, b)


@inlined
def _is_free(state, p, game, placed, b, disc, gap):
    """Return True if a disc (x, y, radius) is `gap` off all warehouses, fixed discs and the first `placed` bodies."""
    n, free, (x, y, radius) = state.sensor.shape[0], True, disc
    for v in range(game.warehouse.shape[0]):
        distance = math.hypot(x - game.warehouse[v, X], y - game.warehouse[v, Y])
        free &= distance * _TOLERANCE >= radius + 0.75 * game.size + gap
    for c in range(n + state.disc.shape[0]):
        other_x, other_y, other = _body(state, game, c, b)
        if c < placed or n <= c < n + p.fixed_discs:
            free &= math.hypot(x - other_x, y - other_y) * _TOLERANCE >= radius + other + gap
    return free


@inlined
def _draw_place(state, p, b, area, radius):
    """Draw a place in an area, inside the arena by 1.2 times the radius."""
    x = draw_between(state.stream, b, area[0], area[1], False)
    y = draw_between(state.stream, b, area[2], area[3], False)
    wide, high = p.half_width - 1.2 * radius, p.half_height - 1.2 * radius
    return min(max(x, -wide), wide), min(max(y, -high), high)


@allocating
def _place_sensors(state, p, game, gap, b):
    """Place and aim the sensors, none nearer to another than a tenth of the shorter range."""
    sensor, n = state.sensor, state.sensor.shape[0]
    dealt = deal(state, b, n, state.areas.shape[0])
    for i in range(n):
        state.working[i, b], turn = True, sensor[i, at.TURN, b]
        for _ in range(MOST_PLACES):
            x, y = _draw_place(state, p, b, state.areas[dealt[i]], game.sensor_radius)
            sensor[i, at.HEADING, b] = turn * draw_integer(state.stream, b, 0.0, math.ceil(360.0 / turn) - 1.0) - 180.0
            view = draw_between(state.stream, b, p.narrowest, p.widest, False)
            sensor[i, X, b], sensor[i, Y, b], sensor[i, at.FIELD_OF_VIEW, b] = x, y, view
            free = _is_free(state, p, game, i, b, (x, y, game.sensor_radius), gap)
            own = range_squared(sensor[i, at.VIEW_AREA, b], view)
            for k in range(i):
                other = range_squared(sensor[k, at.VIEW_AREA, b], sensor[k, at.FIELD_OF_VIEW, b])
                nearest = 0.1 * math.sqrt(min(own, other))
                free &= math.hypot(x - sensor[k, X, b], y - sensor[k, Y, b]) >= nearest
            if free:
                break


@allocating
def _place_discs(state, p, game, gap, b):
    """Place the random discs; one for which no place is found gets the radius 0."""
    n, dealt = state.sensor.shape[0], deal(state, b, game.disc_area.shape[0], game.disc_area.shape[0])
    for k in range(p.fixed_discs, state.disc.shape[0]):
        for _ in range(MOST_PLACES):
            radius = draw_between(state.stream, b, p.disc_radius[0], p.disc_radius[1], False)
            x, y = _draw_place(state, p, b, game.disc_area[dealt[k - p.fixed_discs]], radius)
            free = _is_free(state, p, game, n + k, b, (x, y, radius), gap)
            state.disc[k, X, b], state.disc[k, Y, b], state.disc[k, at.RADIUS, b] = x, y, radius if free else 0.0
            if free:
                break


@allocating
def _place_targets(state, p, cargo, game, b):
    """Place the targets; half of them, at random, carry two cargoes at half the speed."""
    target, m = state.target, state.target.shape[0]
    dealt = deal(state, b, m, m)
    for rank in range(m):
        cargo.capacity[dealt[rank], b] = 2 if rank < m // 2 else 1
    for j in range(m):
        for _ in range(MOST_PLACES):
            x, y = _draw_place(state, p, b, p.target_area, 0.0)
            if _is_free(state, p, game, state.sensor.shape[0] + state.disc.shape[0], b, (x, y, 0.0), 0.0):
                break
        for row in (X, at.GOAL_X):
            target[j, row, b], target[j, row + 1, b] = x, y
        target[j, at.VELOCITY_X, b] = target[j, at.VELOCITY_Y, b] = 0.0
        target[j, at.LAST_X : at.COURSE, b] = np.inf
        target[j, at.SPEED, b] = p.max_speed / cargo.capacity[j, b]
        state.present[j, b] = True


@allocating
def _deal_cargoes(state, cargo, game, b):
    """Draw the cargoes and the first loads."""
    count, remaining, fewest = game.warehouse.shape[0], cargo.remaining, 0
    remaining[:, :, b], cargo.empty[:, :, b] = 0, False
    while fewest == 0:
        for _ in range(game.cargoes):
            v, w = int(draw_integer(state.stream, b, 0, count - 1)), int(draw_integer(state.stream, b, 0, count - 2))
            remaining[v, w + (w >= v), b] += 1
        fewest = game.cargoes
        for v in range(count):
            fewest = min(fewest, remaining[v, :, b].sum())
    for w in range(count):
        cargo.awaiting[w, b] = remaining[:, w, b].sum()
    cargo.reward[:, b], cargo.delivered[b], cargo.paid[b] = 0.0, 0, 0.0
    for j in range(state.target.shape[0]):
        chance, v, order = draw_uniform(state.stream, b), warehouse_of(state, game, j, b), deal(state, b, count, count)
        if v >= 0:
            order[:] = v
        for v in order:
            if _load(state, cargo, game, j, v, b, chance):
                break


@inlined
def begin(state, p, cargo, game, b):
    """Start an episode of scene b: places and cargoes; :func:`hitmac.envs.kernels.step.settle` goes on."""
    gap = p.max_speed * p.time_step
    state.scene[at.NUM_SENSORS, b], state.scene[at.NUM_TARGETS, b] = state.sensor.shape[0], state.target.shape[0]
    _place_sensors(state, p, game, gap, b)
    _place_discs(state, p, game, gap, b)
    _place_targets(state, p, cargo, game, b)
    _deal_cargoes(state, cargo, game, b)


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`: zero, and the constants of the game."""
    if not scenario.is_game:
        return {}
    n, m, w = scenario.num_sensors, scenario.num_targets, len(scenario.warehouses)
    k = len(scenario.discs) + scenario.random_discs
    width, height = scenario.extent
    shapes: dict[Any, dict[str, tuple[int, ...]]] = {
        np.int64: {
            "capacity": (m,), "weight": (m,), "goal": (m,), "remaining": (w, w), "awaiting": (w,), "delivered": (),
        },
        np.float64: {"bounty": (m,), "paid": (), "reward": (m,)},
        np.bool_: {"empty": (m, w), "sees_sensor": (m, n), "sees_disc": (m, k)},
    }  # fmt: skip
    cargo = Cargo(
        **{name: np.zeros((*shape, padded), kind) for kind, of in shapes.items() for name, shape in of.items()}
    )
    areas = scenario.disc_areas or ((-width, width, -height, height),)
    game = Terms(
        warehouse=np.array(scenario.warehouses),
        size=scenario.warehouse_size,
        disc_area=np.resize(np.array(areas, np.float64), (scenario.random_discs, 4)),
        cargoes=scenario.cargoes * m,
        worth=scenario.cargo_worth,
        target_range=scenario.target_range,
        sensor_radius=scenario.sensor_radius,
        transmittance=scenario.transmittance,
        rays=scenario.occlusion == "rays",
        drawn=False,
        transmitted=np.zeros((n, m, padded), np.bool_),
        chance=np.zeros((m, padded)),
    )
    return {"cargo": cargo, "game": game, "no_game": None}


def shapes(scenario: Any) -> list[Shape]:
    """Return the warehouses."""
    centres = np.reshape(scenario.warehouses, (-1, 1, 2))
    corners = centres + scenario.warehouse_size * np.array([[-1.0, -1.0], [1.0, 1.0]])
    return [Shape("rectangle", 1, square, outline=BROWN, width=2) for square in corners]
