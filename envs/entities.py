"""Observations of the two teams of a duel: entities of several kinds, and MATE's flat vectors."""

from typing import Any

import numpy as np
from gymnasium import spaces

from hitmac.envs.base.state import core_of
from hitmac.envs.features import range_squared
from hitmac.envs.kernels.entities import MOVES, Entities, show
from hitmac.envs.parts.arena import check_sizes
from hitmac.envs.parts.cargo import see_sensors
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator

_SENSOR = ("x", "y", "heading_cos", "heading_sin", "view", "range")
_TARGET = ("x", "y", "velocity_x", "velocity_y", "loaded")
FEATURES = {
    "sensors": {
        "own": (*_SENSOR, "time"),
        "sensors": _SENSOR,
        "targets": (*_TARGET, "visible", "margin", "age", "others_seeing"),
        "discs": ("x", "y", "radius"),
        "warehouses": ("x", "y"),
    },
    "targets": {
        "own": ("x", "y", "aim_x", "aim_y", "loaded", "weight", "capacity", "bounty", "seen", "time"),
        "sensors": (*_SENSOR, "sees", "margin", "nearest"),
        "targets": (*_TARGET, "bounty"),
        "discs": ("x", "y", "radius"),
        "warehouses": ("x", "y", "goal", "empty"),
        "moves": ("x", "y", "toward_aim", "progress", "free", "seen_1", "seen_3", "seen_10", "margin"),
    },
}
"""Features of the entities of each kind that a member of a team observes."""


class EntityObserver:
    """Observer of the entities around every sensor or every target of a duel.

    Every member of a team observes sets of entities of several kinds, each with its features and a mask, in a frame of
    its own: its place, and for a sensor its heading as x. Lengths are in units of half the larger side of the arena,
    velocities in units of the top speed, views in units of 180 degrees, and all features lie in [-3, 3].

    Sensors observe targets by the scenario's `knowledge`, and know where all sensors and discs are. Targets share what
    any of them sees now, sensors and discs within `target_range`, the empty warehouses they found, and their bounties.
    The features are

    - ``aim``: offset of the load's goal; without load, of the nearest warehouse not known to be empty, else 0;
    - ``weight``, ``capacity``: cargoes / 2; ``bounty``: share left; ``time``: share of the episode;
    - ``margin``: signed distance to a sector, negative inside, in units of the longest way in 10 steps, clipped to
      [-1, 1]: of the target (`targets`, `sensors`) or of the end of the move, to the nearest known sector (`moves`);
    - ``visible``, ``sees``: 1 if the observing sensor sees the target, or the sensor the observing target, now;
      ``others_seeing``, ``seen``: 0, 0.5 or 1 for none, one or more other, or known, sensors that see the target now;
    - ``nearest``: 1 if no other target is nearer to the sensor;
    - ``age``: steps since the target was seen / 100, at most 1; ``loaded``: 0 for a target that is not seen;
    - `moves`, the candidates of :class:`~hitmac.envs.tasks.TransportTask`: ``toward_aim``: cosine to the aim;
      ``progress``: distance gained to the warehouse, and ``free``: way made after contact with discs, sensors and the
      border, in steps; ``seen_k``: 0, 0.5 or 1 for none, one or more known sensors whose sector holds the end of k such
      steps, in clear sight past the known discs.

    Args:
        scenario: a scenario with `warehouses`.
        team: ``"sensors"`` or ``"targets"``.

    Attributes:
        kinds: number and names of the features of the entities of each kind, by name.
        space: a ``Dict`` of each kind, Box (A, count, d) float32, and ``KIND_mask``, MultiBinary (A, count), for the A
            members of the team; where the mask is 0, the features are 0.
    """

    features = ("entities",)

    def __init__(self, scenario: Scenario, team: str = "sensors") -> None:
        if not scenario.is_game:
            raise ValueError(f"scenario {scenario.name!r} has no warehouses; only games have the features of entities")
        n, m = scenario.num_sensors, scenario.num_targets
        counts = {
            "own": 1,
            "sensors": n,
            "targets": m,
            "discs": max(len(scenario.discs) + scenario.random_discs, 1),  # so that a policy fits with and without
            "warehouses": len(scenario.warehouses),
            "moves": len(MOVES),
        }
        self.kinds = {kind: (counts[kind], names) for kind, names in FEATURES[team].items()}
        self._sizes = n, m
        self._per_time = 1.0 / (scenario.episode_steps or 10_000)
        boxes = {
            kind: spaces.Box(-3.0, 3.0, (counts[team], count, len(names)), np.float32)
            for kind, (count, names) in self.kinds.items()
        }
        masks = {f"{kind}_mask": spaces.MultiBinary(box.shape[:2]) for kind, box in boxes.items()}
        self.space = spaces.Dict({**boxes, **masks})

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return new arrays, those of :attr:`space` with the scenes along a first axis."""
        check_sizes(simulator, *self._sizes)
        terms = simulator.rows.game
        state, cargo, boxes, targets = simulator.state, simulator.game.cargo, self.space.items(), "moves" in self.kinds
        shown: dict[str, Any] = {key: np.zeros((simulator.num_envs, *box.shape), box.dtype) for key, box in boxes}  # type: ignore[misc]
        placed = state.disc[:, None, :, 2] > 0.0
        shown["own"][..., -1] = state.time[:, None, None] * self._per_time
        shown["own_mask"][:] = shown["warehouses_mask"][:] = 1
        others = shown["targets_mask" if targets else "sensors_mask"]
        others[:] = ~np.eye(others.shape[1], dtype=np.bool_)
        if targets:
            away = ((state.sensor_position[:, None] - state.target_position[:, :, None]) ** 2).sum(-1)  # (B, m, n)
            left = cargo.bounty / (terms.worth * np.maximum(cargo.weight, 1))
            load = cargo.goal >= 0, 0.5 * cargo.weight, 0.5 * cargo.capacity, left
            placed &= cargo.sees_disc.any(1, keepdims=True)
            shown["moves_mask"][:] = 1
            shown["sensors_mask"][:] = known = cargo.sees_sensor.any(1, keepdims=True)
            shown["own"][..., 0, 4:8] = np.stack(load, -1)
            shown["sensors"][..., 8] = known & (away == away.min(1, keepdims=True))
            shown["targets"][..., 5] = others * left[:, None]
            shown["warehouses"][..., 2] = cargo.goal[..., None] == np.arange(len(terms.warehouse))
            shown["warehouses"][..., 3] = cargo.empty.any(1, keepdims=True)
        else:
            shown["moves"] = np.zeros((0, 0, 0, 0), np.float32)
            shown["targets_mask"][:] = simulator.known_targets
        shown["discs_mask"][..., : placed.shape[-1]] = placed
        arrays = Entities(*(shown[name] for name in Entities._fields))
        rows = simulator.rows
        seen = simulator.observed._replace(covered=rows.covered, parameters=rows.parameters)
        simulator.run(show, rows.cargo, rows.game, arrays, rows=seen)
        return {name: shown[name] for name in self.space.spaces}


def mate_states(simulator: Simulator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the states of MATE's cameras (B, n, 9), targets (B, m, 14) and obstacles (B, k, 3); see its paper."""
    state, cargo, scenario, terms = simulator.state, simulator.game.cargo, simulator.scenario, simulator.rows.game
    reach = np.sqrt(state.range_squared)
    parts = (
        state.sensor_position, terms.sensor_radius, reach[..., None] * state.direction, state.field_of_view,
        np.sqrt(range_squared(state.range_squared * state.field_of_view, scenario.zoom[0])),
        scenario.of_each_sensor("turn_angle"), scenario.zoom_step,
    )  # fmt: skip
    goals = cargo.weight[..., None] * (cargo.goal[..., None] == np.arange(len(terms.warehouse)))
    loads = (
        state.target_position, terms.target_range, cargo.goal >= 0, state.speed * scenario.time_step,
        cargo.capacity, goals, cargo.empty,
    )  # fmt: skip
    return _columns(reach, *parts), _columns(cargo.goal, *loads), state.disc.copy()


def _columns(rows: np.ndarray, *parts: Any) -> np.ndarray:
    """Return quantities of each of the rows (B, A) side by side, (B, A, d)."""
    columns = [part if np.ndim(part) == 3 else np.broadcast_to(part, rows.shape)[..., None] for part in parts]
    return np.concatenate(columns, -1, dtype=np.float64)


def mate_observations(simulator: Simulator) -> tuple[np.ndarray, np.ndarray]:
    """Return MATE's observations of the sensors (B, n, 22 + 5 m + 4 k + 7 n) and targets (B, m, 27 + 7 n + 4 k + 5 m).

    Each has n, m, k, the own index, the centres of the warehouses and half their side, the own state, and then the
    public states of sensors, discs and targets, each followed by 1, or all 0 where the observer does not see it.
    Source: Pan and others, NeurIPS 2022, Datasets and Benchmarks.
    """
    sensors, targets, discs = mate_states(simulator)
    terms = simulator.rows.game
    (b, n), m, k = sensors.shape[:2], targets.shape[1], discs.shape[1]
    together = np.zeros((n, n, b), np.bool_)
    simulator.run(see_sensors, terms, together, rows=core_of.py_func(simulator.rows))

    def away(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        return np.linalg.norm(others[:, None, :, :2] - ones[:, :, None, :2], axis=-1)

    def view(own: np.ndarray, *others: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        parts = [own]
        for values, seen in others:
            flagged = np.insert(values, values.shape[-1], 1.0, axis=-1)
            parts.append((flagged[:, None] * seen[..., None]).reshape(*own.shape[:2], -1))
        common = [[n, m, k, i, *terms.warehouse.ravel(), terms.size] for i in range(own.shape[1])]
        return np.concatenate([np.broadcast_to(common, (b, *np.shape(common))), *parts], -1)

    cargo, cameras, carriers = simulator.game.cargo, sensors[..., :6], targets[..., :4]
    near = away(sensors, discs) < sensors[:, :, None, 6] + discs[:, None, :, 2]
    close = away(targets, targets) <= terms.target_range
    return (
        view(sensors, (carriers, simulator.state.visible), (discs, near), (cameras, together.transpose(2, 0, 1))),
        view(targets, (cameras, cargo.sees_sensor), (discs, cargo.sees_disc), (carriers, close)),
    )
