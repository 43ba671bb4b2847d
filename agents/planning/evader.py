"""Agent of the targets that carry cargoes: hidden ways, and decoys. Compiled by numba."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel
from hitmac.envs.base.formulas import disc_blocks, range_squared, wrapped
from hitmac.envs.base.state import RADIUS, KernelState, X, Y
from hitmac.envs.base.threads import runs
from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.parts.cargo import end_of_step
from hitmac.envs.parts.obstacles import disc_at
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.validation import NotNegative, convert, whole_number

_CELLS = 40  # along the longer side of the arena
_SOFT_ANGLE, _SOFT_RANGE = 20.0, 100.0  # degrees and units over which an expected view ends
_MEMORY = 100.0  # steps after which the last heading seen counts by 1 / e
_DECOY_DISTANCE = 70.0  # from the centre of the sensor
_CARRIER_DISTANCE = 300.0  # over which a decoy heeds a carrier by 1 / e less
_INWARD = 3e-4  # weight of the centre of the arena, per unit of distance, as if a carrier were opposite
_BLOCKED = 2.0  # cost of a cell in a disc, in addition, relative to 1 + price
_EVERY = 10  # steps between two computations of the fields
_PATIENCE = 1000.0  # steps in which the price rises by its first value, so that no target waits forever
_HIDDEN, _SHORT = 0, 1  # kinds of ways
_CARRIES, _RETIRED = -1, -2  # instead of the sensor of a decoy


class TeamMemory(NamedTuple):
    """Knowledge and decisions of the team, in B scenes of n sensors, m targets, k discs and W warehouses."""

    clock: np.ndarray  # (B,) int64: steps of the episode
    age: np.ndarray  # (B, n) int64: steps since a target saw the sensor; -1: never
    seen: np.ndarray  # (B, n, 2) heading and field of view of the sensor at that time, degrees
    disc: np.ndarray  # (B, k) bool: a target has seen the disc
    empty: np.ndarray  # (B, W) bool: a target has found that the warehouse has nothing to send
    decoy: np.ndarray  # (B, m) int64: sensor that the target distracts; -1: none, -2: no more
    field: np.ndarray  # (B, 2, W, C, C) cost of the best way of each kind to each warehouse, by row and column


@inlined
def _cell(p):
    """Return the side of a cell of the fields."""
    return 2.0 * max(p.half_width, p.half_height) / _CELLS


@compiled
def _exposure(state, transmittance, memory, b, x, y):
    """Return the probability that a sensor sees a target at (x, y), from the views last seen."""
    sensor, hidden = state.sensor, 1.0
    for i in range(sensor.shape[0]):
        dx, dy, age = x - sensor[i, X, b], y - sensor[i, Y, b], memory.age[b, i]
        distance, view = math.sqrt(dx * dx + dy * dy), memory.seen[b, i, 1]
        beyond = distance - math.sqrt(range_squared(sensor[i, at.VIEW_AREA, b], view)) if age >= 0 else np.inf
        if beyond < _SOFT_RANGE:
            off = abs(wrapped(math.degrees(math.atan2(dy, dx)) - memory.seen[b, i, 0])) - view / 2.0
            ahead = min(max(1.0 - off / _SOFT_ANGLE, 0.0), 1.0)
            seen = (view / 360.0 + (ahead - view / 360.0) * math.exp(-age / _MEMORY)) * min(
                1.0 - beyond / _SOFT_RANGE, 1.0
            )
            clear = True
            for k in range(state.disc.shape[0]):
                clear &= not memory.disc[b, k] or not disc_blocks(
                    sensor[i, X, b], sensor[i, Y, b], dx, dy, disc_at(state.disc, k, b)
                )
            hidden *= 1.0 - seen * (1.0 if clear else transmittance)
    return 1.0 - hidden


@compiled
def _blocked(state, game, memory, margin, b, x, y):
    """Return True if (x, y) is within `margin` of a sensor or disc that the team knows."""
    blocked = False
    for k in range(state.disc.shape[0]):
        distance = math.hypot(x - state.disc[k, X, b], y - state.disc[k, Y, b])
        blocked |= memory.disc[b, k] and distance < state.disc[k, RADIUS, b] + margin
    for i in range(state.sensor.shape[0]):
        distance = math.hypot(x - state.sensor[i, X, b], y - state.sensor[i, Y, b])
        blocked |= memory.age[b, i] >= 0 and distance < game.sensor_radius + margin
    return blocked


@compiled
def _solve(p, cell, cost, warehouse, size, field):
    """Solve the eikonal equation |grad field| = cost, with 0 in a warehouse, by fast sweeping.

    Zhao, "A fast sweeping method for eikonal equations", Mathematics of Computation 2005.
    """
    count = field.shape[0]
    for row in range(count):
        for column in range(count):
            dx = (column + 0.5) * cell - p.half_width - warehouse[X]
            dy = (row + 0.5) * cell - p.half_height - warehouse[Y]
            field[row, column] = 0.0 if max(abs(dx), abs(dy)) <= max(size, cell) else np.inf
    change, sweep = True, 0
    while change or sweep % 4:
        change = change and sweep % 4 > 0
        for u in range(count):
            row = u if sweep & 1 else count - 1 - u
            for v in range(count):
                column = v if sweep & 2 else count - 1 - v
                below = field[row - 1, column] if row > 0 else np.inf
                above = field[row + 1, column] if row < count - 1 else np.inf
                left = field[row, column - 1] if column > 0 else np.inf
                right = field[row, column + 1] if column < count - 1 else np.inf
                one, two, rise = min(below, above), min(left, right), cost[row, column] * cell
                found = min(one, two) + rise
                if abs(one - two) < rise:
                    found = 0.5 * (one + two + math.sqrt(2.0 * rise * rise - (one - two) * (one - two)))
                change |= found < field[row, column] - 0.05 * rise
                field[row, column] = min(found, field[row, column])
        sweep += 1


@compiled
def _interpolate(p, cell, field, x, y):
    """Return the field at (x, y), bilinear between the centres of cells."""
    last = field.shape[0] - 1
    u, v = (x + p.half_width) / cell - 0.5, (y + p.half_height) / cell - 0.5
    column, row = min(max(int(u), 0), last - 1), min(max(int(v), 0), last - 1)
    u, v = min(max(u - column, 0.0), 1.0), min(max(v - row, 0.0), 1.0)
    return (1.0 - v) * ((1.0 - u) * field[row, column] + u * field[row, column + 1]) + v * (
        (1.0 - u) * field[row + 1, column] + u * field[row + 1, column + 1]
    )


@allocating
def _find_ways(state, p, game, price, memory, b):
    """Compute the fields of all warehouses."""
    cell = _cell(p)
    price *= 1.0 + memory.clock[b] / _PATIENCE
    cost = np.empty((_CELLS, _CELLS))  # of a unit of length in each cell
    for way in range(2):
        for row in range(_CELLS):
            for column in range(_CELLS):
                x, y = (column + 0.5) * cell - p.half_width, (row + 0.5) * cell - p.half_height
                hidden = way == _HIDDEN
                cost[row, column] = price + _exposure(state, game.transmittance, memory, b, x, y) if hidden else 1.0
                if _blocked(state, game, memory, 0.3 * cell, b, x, y):
                    cost[row, column] += _BLOCKED * (1.0 + price)
        for w in range(game.warehouse.shape[0]):
            _solve(p, cell, cost, game.warehouse[w], game.size, memory.field[b, way, w])


@compiled
def _appoint(state, p, cargo, price, most, memory, b):
    """Give each known sensor a decoy, the target that loses least."""
    m, decoys = memory.decoy.shape[1], 0
    for j in range(m):
        decoys += memory.decoy[b, j] >= 0
    for i in range(state.sensor.shape[0]):
        best, least = -1, np.inf
        for j in range(m if memory.age[b, i] >= 0 and decoys < most else 0):
            dx, dy = state.target[j, X, b] - state.sensor[i, X, b], state.target[j, Y, b] - state.sensor[i, Y, b]
            steps = math.hypot(dx, dy) / (state.target[j, at.SPEED, b] * p.time_step)
            loss = cargo.bounty[j, b] + price * steps
            if memory.decoy[b, j] == i:  # it has one
                best, least = -1, -np.inf
            elif memory.decoy[b, j] == _CARRIES and loss < least:
                best, least = j, loss
        if best >= 0:
            memory.decoy[b, best] = i
            decoys += 1


@allocating
def _post_of(state, cargo, memory, i, b):
    """Return the post (x, y) of the decoy of a sensor: the sensor is between it and the carriers nearby."""
    x, y = state.sensor[i, X, b], state.sensor[i, Y, b]
    away_x, away_y = -_INWARD * x, -_INWARD * y
    for j in range(state.target.shape[0]):
        if memory.decoy[b, j] < 0 and cargo.bounty[j, b] > 0.0:
            dx, dy = state.target[j, X, b] - x, state.target[j, Y, b] - y
            distance = max(math.hypot(dx, dy), 1.0)
            weight = math.exp(-distance / _CARRIER_DISTANCE) / distance
            away_x, away_y = away_x - weight * dx, away_y - weight * dy
    length = max(math.hypot(away_x, away_y), 1e-9)
    return x + _DECOY_DISTANCE * away_x / length, y + _DECOY_DISTANCE * away_y / length


@compiled
def _evaluate(state, p, cargo, game, memory, j, b, values):
    """Write the values (17,) of the moves of target j."""
    cell = _cell(p)
    x, y, longest = state.target[j, X, b], state.target[j, Y, b], state.target[j, at.SPEED, b] * p.time_step
    sensor, post_x, post_y = memory.decoy[b, j], 0.0, 0.0
    warehouse, least = cargo.goal[j, b], np.inf
    for w in range(memory.empty.shape[1] if warehouse < 0 else 0):  # without a load: to the nearest with cargoes
        distance = _interpolate(p, cell, memory.field[b, _SHORT, w], x, y)
        if not memory.empty[b, w] and distance < least:
            warehouse, least = w, distance
    way = _HIDDEN if cargo.bounty[j, b] > 0.0 else _SHORT
    if sensor >= 0:
        post_x, post_y = _post_of(state, cargo, memory, sensor, b)
    for move in range(MOVES.shape[0]):
        to_x, to_y = end_of_step(state, game, p, b, x, y, longest * MOVES[move, X], longest * MOVES[move, Y])
        cost = 0.0
        if sensor >= 0:
            cost = math.hypot(to_x - post_x, to_y - post_y)
        elif warehouse >= 0:
            cost = _interpolate(p, cell, memory.field[b, way, warehouse], to_x, to_y)
        values[move] = -cost / longest


@kernel
def _plan(rows, cargo, game, options, memory, chosen, values, share):
    """Find ways and decoys in the chosen scenes, and write the values (B, m, 17) of their moves."""
    state = KernelState(*rows)
    p, (price, decoys) = state.parameters[0], options
    for first, last in runs(chosen, share):
        for b in range(first, last):
            if memory.clock[b] % _EVERY == 0:
                _find_ways(state, p, game, price, memory, b)
            memory.clock[b] += 1
            _appoint(state, p, cargo, price, decoys, memory, b)
            for j in range(state.target.shape[0]):
                _evaluate(state, p, cargo, game, memory, j, b, values[b, j])


class EvaderAgent:
    """Agent of the team of targets that hides its carriers from the sensors, behind discs and behind decoys.

    A carrier follows the gradient of the field V of its goal, the least cost of a way there::

        |grad V| = price + P(a sensor sees the place),   V = 0 in the warehouse,

    so that V / step is the expected number of steps in view, plus `price` for each step, that remain. The sensors are
    those that a target has seen in the episode, with the heading and the view last seen; a heading is forgotten with
    time. Discs that targets have seen hide. Targets without a bounty take the shortest way.

    Decoys exploit that sensors follow targets whether these carry or not: each of the first `decoys` sensors that the
    targets find gets the target that loses least by it. It leaves its load undelivered, and stays close to the sensor,
    on the side opposite to the carriers nearby, until the others have nothing left to carry.

    The memory of B scenes is in the object. Every environment has its own, a copy.

    Args:
        scenario: scenario to play, with warehouses.
        price: price of a step, in steps in view; 0 or more.
        decoys: most decoys; None: one for each sensor, at most half of the targets.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(self, scenario: Scenario | str | Path, *, price: float = 0.2, decoys: int | None = None) -> None:
        self.scenario = load_scenario(scenario)
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        self.price = convert("price", NotNegative, price)
        self.decoys = min(n, m // 2) if decoys is None else whole_number("decoys", decoys, 0, m - 1)
        self._memory = self._forget(0)

    def values(self, simulator: Simulator, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the values (B, m, 17) float32 of the moves: minus the cost that remains after each, in steps.

        Call it once in every step of an episode.

        Args:
            simulator: the simulator.
            starts: (B,) bool, scenes in which an episode begins.
            chosen: (B,) bool, scenes to play; None: all. The values of the others are 0, their memory is unchanged.
        """
        if len(self._memory.clock) != simulator.num_envs:
            self._memory = self._forget(simulator.num_envs)
        chosen = simulator.chosen(chosen, "chosen")
        whole = simulator.rows
        rows = simulator.observed._replace(parameters=whole.parameters)
        self._observe(simulator, rows.sensor[..., : simulator.num_envs], starts & chosen, chosen)
        values = np.zeros((simulator.num_envs, self.scenario.num_targets, len(MOVES)), np.float32)
        options = self.price, self.decoys
        simulator.run(_plan, whole.cargo, whole.game, options, self._memory, chosen, values, rows=rows)
        return values

    def _observe(self, simulator: Simulator, sensor: np.ndarray, begins: np.ndarray, chosen: np.ndarray) -> None:
        """Update the knowledge of the team in the chosen scenes; decoys end where the others have nothing to carry."""
        memory, cargo = self._memory, simulator.game.cargo
        for array, first in zip(memory, self._forget(1), strict=True):
            array[begins] = first
        memory.age[chosen] += memory.age[chosen] >= 0
        seen = cargo.sees_sensor.any(1) & chosen[:, None]  # (B, n)
        memory.age[seen], memory.seen[seen] = 0, sensor[:, [at.HEADING, at.FIELD_OF_VIEW]].transpose(2, 0, 1)[seen]
        memory.disc[chosen] |= cargo.sees_disc[chosen].any(1)
        memory.empty[chosen] |= cargo.empty[chosen].any(1)
        carries = (memory.decoy == _CARRIES) & (cargo.weight > 0)
        memory.decoy[chosen & memory.empty.all(1) & ~carries.any(1)] = _RETIRED

    def act(self, simulator: Simulator, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the displacements (B, m, 2) of the moves of the highest value; see :meth:`values`."""
        longest = simulator.state.speed * self.scenario.time_step  # (B, m)
        return MOVES[self.values(simulator, starts, chosen).argmax(-1)] * longest[..., None]

    def get_state(self) -> dict[str, np.ndarray]:
        """Return a copy of the memory."""
        return {name: array.copy() for name, array in self._memory._asdict().items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a memory of :meth:`get_state`."""
        self._memory = TeamMemory(**{name: array.copy() for name, array in state.items()})

    def _forget(self, b: int) -> TeamMemory:
        """Return the memory of `b` scenes before an episode."""
        scenario = self.scenario
        n, m, w = scenario.num_sensors, scenario.num_targets, len(scenario.warehouses)
        return TeamMemory(
            np.zeros(b, np.int64), np.full((b, n), -1), np.zeros((b, n, 2)),
            np.zeros((b, scenario.random_discs + len(scenario.discs)), np.bool_), np.zeros((b, w), np.bool_),
            np.full((b, m), _CARRIES), np.zeros((b, 2, w, _CELLS, _CELLS)),
        )  # fmt: skip
