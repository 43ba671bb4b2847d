"""MATE's rules by which each team of the game of two teams acts. Compiled by numba.

A rule uses only what its team sees and the messages of teammates, which are free and arrive at once, without the errors
of observations. It forgets where an episode begins (at time 0). Its random numbers are those of the scene at this time,
so that they do not depend on the other team's rule.
Source: Pan and others, "MATE: Benchmarking Multi-Agent Reinforcement Learning in Distributed Target Coverage Control",
NeurIPS 2022, Datasets and Benchmarks.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import allocating, compiled, inlined, kernel, one_of
from hitmac.envs.base.formulas import range_squared, wrapped
from hitmac.envs.base.state import KernelState, X, Y, core_of, scenes_first
from hitmac.envs.base.streams import draw_integer, draw_uniform, rule_key
from hitmac.envs.base.threads import runs
from hitmac.envs.parts.cargo import Cargo, choose, sector_of, warehouse_of
from hitmac.envs.parts.sensors import deal
from hitmac.envs.validation import as_array, did_you_mean, is_among, shortly

HOLD = 20  # steps for which a random action is held
NOISE_CHANGE, NOISE_CHANGE_STUCK, STUCK = 0.05, 0.75, 0.2  # probabilities of new noise; share of the longest step
MEMORY, REACH = 25, 1.1  # steps for which a sighting is remembered; largest distance, in longest sensing ranges
SHORTEST_WAIT, LONGEST_WAIT = 6, 49  # steps between two messages to the same teammate
SEARCH_CHANGE = 0.1  # probability of a new action while no target is known
NAIVE_SHARE = 0.4  # of the highest turn and zoom
HEADINGS, VIEWS, ORDERS = 36, 21, 32  # candidates of a sensor, and orders of the sensors
SECTOR_SCALE, DRIFT = 1.2, 0.5  # of the sectors that a target avoids; of its longest step

HELD_X, HELD_Y, WAREHOUSE, WAY = range(4)  # rows of a target: shares of the longest step, a warehouse or -1, +-1
TURN, ZOOM = range(2)  # rows of a sensor
SEEN_AT = 2  # row of a sighting after X and Y: its time


class RuleMemory(NamedTuple):
    """Memory of the rules, in scenes of n sensors and m targets.

    For users the scenes are along the first axis, for kernels along the last.
    """

    target: np.ndarray  # (B, m, 4) held noise or action x, y; warehouse where the target looks for a load; way
    sensor: np.ndarray  # (B, n, 2) last turn and zoom, degrees
    sighting: np.ndarray  # (B, n, m, 3) x, y, time of the last sighting known to the sensor
    next_message: np.ndarray  # (B, n, n) time from which sensor i sends its sightings to sensor k
    stream: np.ndarray  # (B, 2) uint64: random numbers of the current step


def make_memory(n: int, m: int, b: int) -> RuleMemory:
    """Return an empty memory of b scenes, for kernels."""
    target, sensor, sighting = np.zeros((m, 4, b)), np.zeros((n, 2, b)), np.full((n, m, 3, b), -MEMORY, np.float64)
    return RuleMemory(target, sensor, sighting, np.zeros((n, n, b)), np.zeros((2, b), np.uint64))


@inlined
def _hold(memory, j, b, size):
    """Draw new numbers of target j, uniform in [-size, size)."""
    for axis in range(2):
        memory.target[j, HELD_X + axis, b] = size * (2.0 * draw_uniform(memory.stream, b) - 1.0)


@inlined
def _step_to(state, game, memory, action, j, warehouse, b):
    """Move target j by its longest step to a warehouse, -1 for none, plus noise that it holds for a while."""
    target, place = state.target[j, :, b], game.warehouse[warehouse]
    stuck = math.hypot(target[at.VELOCITY_X], target[at.VELOCITY_Y]) <= STUCK * target[at.SPEED]
    change = draw_uniform(memory.stream, b) < (NOISE_CHANGE_STUCK if stuck else NOISE_CHANGE)
    if change or state.scene[at.TIME, b] == 0:
        _hold(memory, j, b, 0.5)
    distance = math.hypot(place[X] - target[X], place[Y] - target[Y])
    for axis in range(2):
        towards = (place[axis] - target[axis]) / distance if warehouse >= 0 and distance > 0.0 else 0.0
        action[b, j, axis] = min(max(towards + memory.target[j, HELD_X + axis, b], -1.0), 1.0)


@compiled
def _random_targets(state, cargo, game, memory, action, j, b):
    """A uniform step, held for 20 steps."""
    if state.scene[at.TIME, b] % HOLD == 0:
        _hold(memory, j, b, 1.0)
    action[b, j, X], action[b, j, Y] = memory.target[j, HELD_X, b], memory.target[j, HELD_Y, b]


@compiled
def _naive_targets(state, cargo, game, memory, action, j, b):
    """From warehouse to warehouse, each target clockwise or counter-clockwise, with noise."""
    own, count = memory.target[j, :, b], game.warehouse.shape[0]
    if state.scene[at.TIME, b] == 0:
        own[WAREHOUSE] = draw_integer(memory.stream, b, 0, count - 1)
        own[WAY] = 2.0 * draw_integer(memory.stream, b, 0, 1) - 1.0
    warehouse = int(own[WAREHOUSE]) % count
    if warehouse_of(state, game, j, b) == warehouse:
        warehouse = (warehouse + int(own[WAY])) % count
    own[WAREHOUSE] = warehouse
    _step_to(state, game, memory, action, j, warehouse, b)


@allocating
def _search(state, cargo, game, memory, j, b):
    """Return the warehouse where target j looks for a load: a random one not known to be empty, -1 without any."""
    stocked = np.ones(game.warehouse.shape[0], np.bool_)
    for other in range(state.target.shape[0]):
        for v in range(stocked.size):
            stocked[v] &= not cargo.empty[other, v, b]
    chosen = min(int(memory.target[j, WAREHOUSE, b]), stocked.size - 1)
    if state.scene[at.TIME, b] == 0 or chosen < 0 or not stocked[chosen]:
        chosen = choose(stocked, draw_uniform(memory.stream, b))
    return chosen


@compiled
def _greedy_targets(state, cargo, game, memory, action, j, b):
    """Straight to the goal, without a load to a random warehouse not known to be empty, with noise."""
    goal = int(cargo.goal[j, b])
    memory.target[j, WAREHOUSE, b] = -1 if goal >= 0 else _search(state, cargo, game, memory, j, b)
    _step_to(state, game, memory, action, j, goal if goal >= 0 else int(memory.target[j, WAREHOUSE, b]), b)


@inlined
def _drift(state, cargo, j, b):
    """Return the unit vector away from the centre of the view that holds target j the deepest; 0 outside all views.

    The centre is that of the largest circle in the sector. The depth is the distance to it, in radii of the circle.
    Views count 1.2 times as long, and only those of sensors that the target sees.
    """
    away_x, away_y, least = 0.0, 0.0, math.inf
    for i in range(state.sensor.shape[0]):
        x, y, east, north, cosine, sine, reach = sector_of(state.sensor, i, b)
        dx, dy = state.target[j, X, b] - x, state.target[j, Y, b] - y
        squared = dx * dx + dy * dy
        inside = squared <= (SECTOR_SCALE * reach) ** 2 and east * dx + north * dy >= cosine * math.sqrt(squared)
        if cargo.sees_sensor[j, i, b] and inside:
            middle = reach / (1.0 + sine)
            dx, dy = dx - middle * east, dy - middle * north
            distance = math.hypot(dx, dy)
            if 0.0 < distance < least * middle * sine:
                least, away_x, away_y = distance / (middle * sine), dx / distance, dy / distance
    return away_x, away_y


@compiled
def _heuristic_targets(state, cargo, game, memory, action, j, b):
    """As greedy, and away from the middle of the view of a sensor, unless that is a step back."""
    _greedy_targets(state, cargo, game, memory, action, j, b)
    away_x, away_y = _drift(state, cargo, j, b)
    if away_x * action[b, j, X] + away_y * action[b, j, Y] >= 0.0:
        action[b, j, X] += DRIFT * away_x
        action[b, j, Y] += DRIFT * away_y


@inlined
def _draw_action(state, memory, i, b):
    """Draw a turn and a zoom of sensor i."""
    memory.sensor[i, TURN, b] = state.sensor[i, at.TURN, b] * (2.0 * draw_uniform(memory.stream, b) - 1.0)
    memory.sensor[i, ZOOM, b] = state.parameters[0].zoom_step * (2.0 * draw_uniform(memory.stream, b) - 1.0)


@inlined
def _look_around(state, memory, i, b):
    """Let sensor i act as in the last step, in the first one not at all, or now and then at random."""
    if state.scene[at.TIME, b] == 0:
        memory.sensor[i, TURN, b] = memory.sensor[i, ZOOM, b] = 0.0
    if draw_uniform(memory.stream, b) < SEARCH_CHANGE:
        _draw_action(state, memory, i, b)


@inlined
def _aim(state, memory, i, heading, view, b):
    """Turn and zoom sensor i towards a heading and a view, degrees."""
    turn, zoom = state.sensor[i, at.TURN, b], state.parameters[0].zoom_step
    off = wrapped(heading - state.sensor[i, at.HEADING, b])
    memory.sensor[i, TURN, b] = min(max(off, -turn), turn)
    memory.sensor[i, ZOOM, b] = min(max(view - state.sensor[i, at.FIELD_OF_VIEW, b], -zoom), zoom)


@compiled
def _random_sensors(state, memory, b):
    """A uniform turn and zoom, held for 20 steps."""
    if state.scene[at.TIME, b] % HOLD == 0:
        for i in range(state.sensor.shape[0]):
            _draw_action(state, memory, i, b)


@compiled
def _naive_sensors(state, memory, b):
    """Counter-clockwise and wider, by a random share of up to 0.4 of the highest rates."""
    for i in range(state.sensor.shape[0]):
        share = NAIVE_SHARE * draw_uniform(memory.stream, b)
        memory.sensor[i, TURN, b] = share * state.sensor[i, at.TURN, b]
        memory.sensor[i, ZOOM, b] = share * state.parameters[0].zoom_step


@allocating
def _exchange(state, memory, b):
    """Remember the targets in view, and send them to the teammates whose turn it is."""
    n, time = state.sensor.shape[0], state.scene[at.TIME, b]
    if time == 0:
        memory.sighting[:, :, SEEN_AT, b] = -MEMORY
    for i in range(n):
        seeing = state.visible[i, :, b].any()
        for k in range(n):
            sends = i != k and time > 0 and time >= memory.next_message[i, k, b] and seeing
            for j in range(state.target.shape[0] if sends or i == k else 0):
                if state.visible[i, j, b]:
                    sighting = memory.sighting[k, j, :, b]
                    sighting[X], sighting[Y], sighting[SEEN_AT] = state.target[j, X, b], state.target[j, Y, b], time
            if sends or time == 0:
                memory.next_message[i, k, b] = time + draw_integer(memory.stream, b, SHORTEST_WAIT, LONGEST_WAIT)


@inlined
def _view_at(area, distance, narrowest, widest):
    """Return the view, degrees, at which the middle of the sector's largest circle is at this distance.

    It solves ``distance * (1 + sin(view / 2)) = sqrt(area / view)`` by bisection, to 0.01 degrees.
    """
    low, high = narrowest, widest
    while high - low > 0.01:
        view = 0.5 * (low + high)
        if distance * (1.0 + math.sin(math.radians(0.5 * view))) < math.sqrt(range_squared(area, view)):
            low = view
        else:
            high = view
    return widest if high == widest else low


@allocating
def _greedy_sensors(state, memory, b):
    """To the nearest target seen in the last 25 steps, with it in the middle of the view; else random actions."""
    p, sensor = state.parameters[0], state.sensor
    _exchange(state, memory, b)
    for i in range(sensor.shape[0]):
        nearest, to_x, to_y = REACH * math.sqrt(sensor[i, at.VIEW_AREA, b] / p.narrowest), math.nan, math.nan
        for j in range(state.target.shape[0]):
            seen = memory.sighting[i, j, :, b]
            dx, dy = seen[X] - sensor[i, X, b], seen[Y] - sensor[i, Y, b]
            if state.scene[at.TIME, b] - seen[SEEN_AT] < MEMORY and math.hypot(dx, dy) <= nearest:
                nearest, to_x, to_y = math.hypot(dx, dy), dx, dy
        if not math.isnan(to_x):
            view = _view_at(sensor[i, at.VIEW_AREA, b], nearest, p.narrowest, p.widest)
            _aim(state, memory, i, math.degrees(math.atan2(to_y, to_x)), view, b)
        else:
            _look_around(state, memory, i, b)


@inlined
def _weigh_candidates(state, score, covers, b):
    """Compute the score of each heading and view of every sensor, and which of the targets in view they cover.

    A target in the sector adds (distance to the sector's edge / radius of its largest circle) (1 - distance / range).
    """
    p, sensor, target = state.parameters[0], state.sensor, state.target
    for j in range(target.shape[0]):
        if state.covered[j, b]:
            for i in range(sensor.shape[0]):
                dx, dy = target[j, X, b] - sensor[i, X, b], target[j, Y, b] - sensor[i, Y, b]
                distance, bearing = math.hypot(dx, dy), math.atan2(dy, dx)
                for view in range(VIEWS):
                    opening = p.narrowest + (p.widest - p.narrowest) * view / (VIEWS - 1)
                    half = min(math.radians(0.5 * opening), 0.5 * math.pi)
                    reach = math.sqrt(sensor[i, at.VIEW_AREA, b] / opening)
                    radius = reach * math.sin(half) / (1.0 + math.sin(half))
                    for heading in range(HEADINGS if distance <= reach else 0):
                        off = bearing - 2.0 * math.pi * heading / HEADINGS
                        off = abs(off - 2.0 * math.pi * math.floor(off / (2.0 * math.pi) + 0.5))
                        if off <= half:
                            edge = min(reach - distance, distance * math.sin(half - off))
                            score[i, heading * VIEWS + view] += edge / radius * (1.0 - distance / reach)
                            covers[i, j, heading * VIEWS + view] = 1.0


@allocating
def _heuristic_sensors(state, memory, b):
    """Together: of 36 headings and 21 views each, those that hold the targets in view the deepest; else random actions.

    Of 32 random orders of the sensors the best counts. In each, a sensor takes the highest score plus number of targets
    that no earlier sensor covers. The sensors know which targets any of them sees now, and remember nothing.
    """
    p, n, m = state.parameters[0], state.sensor.shape[0], state.target.shape[0]
    score, covers = np.zeros((n, HEADINGS * VIEWS)), np.zeros((n, m, HEADINGS * VIEWS))
    chosen, best, most = np.zeros(n, np.int64), np.zeros(n, np.int64), -1.0
    worth, uncovered = np.empty(HEADINGS * VIEWS), np.empty(m)
    _weigh_candidates(state, score, covers, b)
    for _ in range(ORDERS):
        uncovered[:], total = 1.0, 0.0
        for i in deal(memory, b, n, n):
            for c in range(worth.size):
                worth[c] = score[i, c]
            for j in range(m):
                for c in range(worth.size):
                    worth[c] += uncovered[j] * covers[i, j, c]
            chosen[i] = worth.argmax()
            total += worth[chosen[i]]
            for j in range(m):
                uncovered[j] *= 1.0 - covers[i, j, chosen[i]]
        if total > most:
            most = total
            for i in range(n):
                best[i] = chosen[i]
    for i in range(n):
        if score[i, best[i]] > 0.0:
            view = p.narrowest + (p.widest - p.narrowest) * (best[i] % VIEWS) / (VIEWS - 1)
            _aim(state, memory, i, 360.0 / HEADINGS * (best[i] // VIEWS), view, b)
        else:
            _look_around(state, memory, i, b)


RULES = {
    "targets": {
        "random": _random_targets, "naive": _naive_targets, "greedy": _greedy_targets, "heuristic": _heuristic_targets,
    },
    "sensors": {
        "random": _random_sensors, "naive": _naive_sensors, "greedy": _greedy_sensors, "heuristic": _heuristic_sensors,
    },
}  # fmt: skip
"""Rules of each team, by name."""

_target, _sensors = one_of([*RULES["targets"].values()]), one_of([*RULES["sensors"].values()])


@kernel
def act(rows, cargo, game, memory, team, rule, action, chosen, share):
    """Compute the actions (B, m or n, 2) of a team in the chosen scenes by a rule, both as numbers in :data:`RULES`."""
    state = KernelState(*rows)
    for first, last in runs(chosen, share):
        for b in range(first, last):
            memory.stream[at.KEY, b], memory.stream[at.DRAWS, b] = rule_key(state, b, team), 0
            if team == 1:
                _sensors(rule, state, memory, b)
                for i in range(state.sensor.shape[0]):
                    action[b, i, 0], action[b, i, 1] = memory.sensor[i, TURN, b], memory.sensor[i, ZOOM, b]
            for j in range(state.target.shape[0] if team == 0 else 0):
                _target(rule, state, cargo, game, memory, action, j, b)
                for axis in range(2):
                    action[b, j, axis] *= state.target[j, at.SPEED, b] * state.parameters[0].time_step


class Game:
    """Games of two teams in the scenes of a simulator, MATE (Pan and others, NeurIPS 2022, Datasets and Benchmarks).

    Sensors turn and zoom; targets carry cargoes between warehouses, and slide along discs and sensors. A load of w
    cargoes is worth 100 w to the targets when it arrives, and a bounty, which is 100 w at first and falls by 1 in every
    step in which a sensor sees the target. The game is zero-sum, and ends when all cargoes have arrived.

    Args:
        simulator: the :class:`~hitmac.envs.simulator.Simulator` of a scenario with `warehouses`, such as
            ``mate-4v8-9``, of which this is the attribute `game`.

    Attributes:
        cargo: the :class:`~hitmac.envs.parts.cargo.Cargo`, live arrays with the scenes along the first axis;
            values written to them are not checked.
        memory: the :class:`~hitmac.envs.parts.game.RuleMemory` of :meth:`rule_actions`, live arrays.
        worth: value of the delivery of one cargo.
    """

    def __init__(self, simulator: Any) -> None:
        self._simulator, scenario = simulator, simulator.scenario
        self.cargo: Cargo = scenes_first(Cargo, simulator.rows.cargo, simulator.num_envs)
        padded = simulator.rows.stream.shape[-1]
        self._memory_rows = make_memory(scenario.num_sensors, scenario.num_targets, padded)
        self.memory: RuleMemory = scenes_first(RuleMemory, self._memory_rows, simulator.num_envs)
        self.worth: float = simulator.rows.game.worth

    def checked(self, target_action: Any, chosen: np.ndarray) -> np.ndarray:
        """Return the action of the targets; raise ValueError unless it is finite numbers (B, m, 2)."""
        action, shape = as_array("target_action", target_action), self._simulator.state.target_position.shape
        if action.dtype.kind not in "iuf" or action.shape != shape:
            raise ValueError(
                f"target_action is {action.dtype} of shape {action.shape}; it must be numbers of shape {shape}"
            )
        if not np.isfinite(action[chosen]).all():
            raise ValueError(f"target_action holds a number that is not finite: {shortly(action[chosen])}")
        return action

    def degrees(self, action: np.ndarray) -> np.ndarray:
        """Return an action of the sensors, steps or shares (B, 2 n), in degrees (B, n, 2); degrees are unchanged."""
        if action.ndim == 3:
            return action
        simulator, shape, real = self._simulator, self._simulator.state.heading.shape, action.dtype.kind == "f"
        ways = action if real else (action == 1).astype(np.float64) - (action == 2)
        ways, zoom_step = ways.reshape(shape[0], -1, shape[1]), simulator.scenario.zoom_step
        degrees = np.zeros((*shape, 2))
        degrees[..., 0] = ways[:, 0] * simulator.rows.sensor[:, at.TURN, 0]
        degrees[..., 1] = ways[:, 1] * (zoom_step if real else -zoom_step) if ways.shape[1] > 1 else 0.0
        return degrees

    def walk(self, chosen: np.ndarray) -> np.ndarray:
        """Return the action of the targets by the scenario's `walk`."""
        return self.rule_actions("targets", self._simulator.scenario.walk.removeprefix("carry-"), chosen)

    def rule_actions(self, team: str, rule: str, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of a team by one of MATE's rules, with its memory; call it once before every step.

        Args:
            team: ``"sensors"`` or ``"targets"``.
            rule: ``"random"``, ``"naive"``, ``"greedy"`` or ``"heuristic"``, see
                :data:`hitmac.envs.parts.game.RULES`.
            chosen: (B,) bool, the scenes that act; None: all. The others keep their memories.

        Returns:
            (B, n, 2) degrees or (B, m, 2) displacements, as :meth:`Simulator.step` takes them, 0 in other scenes.
        """
        simulator, rows = self._simulator, self._simulator.rows
        numbers = list(RULES).index(team), list(RULES[team]).index(rule)
        places = simulator.state.target_position if team == "targets" else simulator.state.sensor_position
        action, chosen = np.zeros_like(places, order="C"), simulator.chosen(chosen, "chosen")
        arguments = rows.cargo, rows.game, self._memory_rows, *numbers, action, chosen
        simulator.run(act, *arguments, rows=core_of.py_func(rows))
        return action

    @property
    def target_reward(self) -> np.ndarray:
        """(B,) reward of the targets in the last step; that of the sensors is its negative."""
        return self.cargo.reward.sum(1)

    @property
    def transport_rate(self) -> np.ndarray:
        """(B,) share of the bounties that the targets have received, 0 before the first delivery."""
        most = 2.0 * self.worth * self.cargo.delivered
        return np.divide(self.cargo.paid, most, out=np.zeros(len(most)), where=most > 0)

    @property
    def real_coverage(self) -> np.ndarray:
        """(B,) share of the targets with a bounty that sensors see; 0 where no target has one."""
        owed = self.cargo.bounty > 0
        return (owed & self._simulator.state.covered).sum(1) / np.maximum(owed.sum(1), 1)

    @property
    def done(self) -> np.ndarray:
        """(B,) bool: all cargoes have arrived."""
        return (self.cargo.awaiting == 0).all(1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the live arrays of the state, by name."""
        cargo = {f"cargo_{name}": array for name, array in self.cargo._asdict().items()}
        return cargo | {f"rule_{name}": array for name, array in self.memory._asdict().items() if name != "stream"}


class RulePlayer:
    """Player of a team by one of MATE's rules, see :meth:`Game.rule_actions`.

    Raises ``ValueError`` for an unknown rule.
    """

    def __init__(self, team: str, rule: str) -> None:
        if not is_among(rule, RULES[team]):
            known = ", ".join(RULES[team])
            raise ValueError(f"unknown rule {rule!r} of the {team}{did_you_mean(rule, RULES[team])}: known are {known}")
        self.team, self.rule = team, rule

    def act(self, simulator: Any, starts: np.ndarray | None = None, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of the team, 0 in scenes that are not `chosen`."""
        return simulator.game.rule_actions(self.team, self.rule, chosen)
