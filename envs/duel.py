"""Simulator of two teams: sensors, and targets that carry cargoes between warehouses."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.envs.allocation import padded
from hitmac.envs.kernels import duel as kernels
from hitmac.envs.kernels.duel import Cargo, Game
from hitmac.envs.kernels.duel_rules import RULES, RuleMemory, act, make_memory
from hitmac.envs.kernels.state import TURN, core_of, scenes_first
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import PATHS, Simulator
from hitmac.envs.validation import as_array, did_you_mean, positive, shortly


class Duel(Simulator):
    """Batch of independent games of two teams, MATE (Pan and others, NeurIPS 2022, Datasets and Benchmarks).

    Sensors turn and zoom; targets carry cargoes between warehouses, and slide along discs and sensors. A load of w
    cargoes is worth 100 w to the targets when it arrives, and a bounty, which is 100 w at first and falls by 1 in every
    step in which a sensor sees the target. The game is zero-sum, and ends when all cargoes have arrived.

    Args:
        scenario: a :class:`Scenario` with `warehouses`, a preset's name such as ``mate-4v8-9`` or a YAML file's path.
        num_envs, seed, num_threads: see :class:`Simulator`.

    Attributes:
        cargo: the :class:`~hitmac.envs.kernels.duel.Cargo`, live arrays with the scenes along the first axis;
            values written to them are not checked.
        cargo_rows: the same arrays in the layout of the kernels, with the scenes along the last axis.
        game: the :class:`~hitmac.envs.kernels.duel.Game`, its constants.
        memory: the :class:`~hitmac.envs.kernels.duel_rules.RuleMemory` of :meth:`rule_actions`, live arrays.
        opponent: function ``(duel, chosen) -> (B, m, 2)`` that returns the action of the targets where a step has none;
            None: the scenario's `walk`.

    Raises:
        ValueError: a scenario without warehouses, and as :class:`Simulator`.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "mate-4v8-9",
        num_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        num_threads: int | None = None,
    ) -> None:
        scenario = load_scenario(scenario)
        if not scenario.warehouses:
            raise ValueError(f"scenario {scenario.name!r} has no warehouses; make its simulator by make_simulator")
        self.cargo_rows, self.game = _allocate(scenario, padded(positive("num_envs", num_envs)))
        self.cargo: Cargo = scenes_first(Cargo, self.cargo_rows, num_envs)
        n, m = scenario.num_sensors, scenario.num_targets
        self._memory_rows = make_memory(n, m, padded(num_envs))
        self.memory: RuleMemory = scenes_first(RuleMemory, self._memory_rows, num_envs)
        self.opponent: Callable[[Duel, np.ndarray], np.ndarray] | None = None
        super().__init__(scenario, num_envs, seed, num_threads=num_threads)
        self._action_shapes |= {(num_envs, n, 2): None}

    def _begin(self, chosen: np.ndarray) -> None:
        self.run(kernels.begin, self.cargo_rows, self.game, chosen, rows=core_of.py_func(self.rows))

    def _look(self, chosen: np.ndarray) -> None:
        self.run(kernels.look, self.cargo_rows, self.game, chosen)

    def step(self, action: np.ndarray, mask: np.ndarray | None = None, target_action: np.ndarray | None = None) -> None:
        """Advance the scenes of `mask` (B,), or all, by one step: the sensors turn, then the targets move.

        Args:
            action: (B, n, 2) degrees by which the sensors turn and zoom (over 0: left, and wider), limited to
                `turn_angle` and `zoom_step`; or whole numbers as in :meth:`Simulator.step`.
            mask: (B,) bool, the scenes to advance.
            target_action: (B, m, 2) displacements of the targets, scaled to the longest step where longer; None: those
                of `opponent`.

        Raises:
            ValueError: an action or a mask of another shape or type, or a number that is not finite; the state is then
                unchanged.
        """
        chosen, action, places = self.chosen(mask), as_array("action", action), self.state.target_position.shape
        if action.dtype.kind not in ("f" if action.ndim == 3 else "iu") or action.shape not in self._action_shapes:
            raise ValueError(
                f"action is {action.dtype} of shape {action.shape}; it must be floating-point degrees or whole numbers "
                f"of shape {' or '.join(map(str, self._action_shapes))}"
            )
        targets = None if target_action is None else as_array("target_action", target_action)
        if targets is not None and (targets.dtype.kind not in "iuf" or targets.shape != places):
            raise ValueError(
                f"target_action is {targets.dtype} of shape {targets.shape}; it must be numbers of shape {places}"
            )
        for name, array in (("action", action), ("target_action", targets)):
            if array is not None and not np.isfinite(array[chosen]).all():
                raise ValueError(f"{name} holds a number that is not finite: {shortly(array[chosen])}")
        self.advance(self.command(action, chosen), chosen, targets)

    def command(self, action: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return a valid action of :meth:`step` in degrees, (B, n, 2)."""
        if action.dtype.kind == "f":
            return action
        shape = self.state.heading.shape
        ways = ((action == 1).astype(np.float64) - (action == 2)).reshape(shape[0], -1, shape[1])
        degrees = np.zeros((*shape, 2))
        degrees[..., 0] = ways[:, 0] * self.rows.sensor[:, TURN, 0]
        degrees[..., 1] = ways[:, 1] * -self.scenario.zoom_step if ways.shape[1] > 1 else 0.0
        return degrees

    def advance(self, action: np.ndarray, chosen: np.ndarray, target_action: np.ndarray | None = None) -> None:
        """Advance the `chosen` scenes by one step, with an action of :meth:`command` and one of the targets."""
        if target_action is None:
            walk = self.scenario.walk.removeprefix("carry-")
            target_action = self.opponent(self, chosen) if self.opponent else self.rule_actions("targets", walk, chosen)
        actions = (np.require(one, np.float64, ["C", "A", "W"]) for one in (action, target_action))
        self.run(kernels.step, self.cargo_rows, self.game, *actions, False, chosen)

    def rule_actions(self, team: str, rule: str, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of a team by one of MATE's rules, with its memory; call it once before every step.

        Args:
            team: ``"sensors"`` or ``"targets"``.
            rule: ``"random"``, ``"naive"``, ``"greedy"`` or ``"heuristic"``, see
                :data:`hitmac.envs.kernels.duel_rules.RULES`.
            chosen: (B,) bool, the scenes that act; None: all. The others keep their memories.

        Returns:
            (B, n, 2) degrees or (B, m, 2) displacements, as :meth:`step` takes them, 0 in other scenes.
        """
        numbers = list(RULES).index(team), list(RULES[team]).index(rule)
        places = self.state.target_position if team == "targets" else self.state.sensor_position
        action, chosen = np.zeros_like(places, order="C"), self.chosen(chosen, "chosen")
        arguments = self.cargo_rows, self.game, self._memory_rows, *numbers, action, chosen
        self.run(act, *arguments, rows=core_of.py_func(self.rows))
        return action

    @property
    def target_reward(self) -> np.ndarray:
        """(B,) reward of the targets in the last step; that of the sensors is its negative."""
        return self.cargo.reward.sum(1)

    @property
    def transport_rate(self) -> np.ndarray:
        """(B,) share of the bounties that the targets have received, 0 before the first delivery."""
        most = 2.0 * self.game.worth * self.cargo.delivered
        return np.divide(self.cargo.paid, most, out=np.zeros(self.num_envs), where=most > 0)

    @property
    def real_coverage(self) -> np.ndarray:
        """(B,) share of the targets with a bounty that sensors see; 0 where no target has one."""
        owed = self.cargo.bounty > 0
        return (owed & self.state.covered).sum(1) / np.maximum(owed.sum(1), 1)

    @property
    def done(self) -> np.ndarray:
        """(B,) bool: all cargoes have arrived."""
        return (self.cargo.awaiting == 0).all(1)

    def _checked(self, places: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        checked = super()._checked(places)
        for name, array in checked.items():
            if name in PATHS or np.isnan(array).any():
                raise ValueError(f"{name} is {shortly(array)}; with warehouses no target is absent or follows tracks")
        return checked

    def _whole_state(self) -> dict[str, np.ndarray]:
        cargo = {f"cargo_{name}": array for name, array in self.cargo._asdict().items()}
        memory = {f"rule_{name}": array for name, array in self.memory._asdict().items() if name != "stream"}
        return super()._whole_state() | cargo | memory


def make_simulator(
    scenario: Scenario | str | Path = "hit-mac",
    num_envs: int = 1,
    seed: int | Sequence[int] | None = None,
    *,
    num_threads: int | None = None,
) -> Simulator:
    """Return the simulator of a scenario: a :class:`Duel` with warehouses, or a :class:`Simulator`."""
    scenario = load_scenario(scenario)
    kind = Duel if scenario.warehouses else Simulator
    return kind(scenario, num_envs, seed, num_threads=num_threads)


class RulePlayer:
    """Player of a team by one of MATE's rules, see :meth:`Duel.rule_actions`.

    Raises ``ValueError`` for an unknown rule.
    """

    def __init__(self, team: str, rule: str) -> None:
        if rule not in RULES[team]:
            known = ", ".join(RULES[team])
            raise ValueError(f"unknown rule {rule!r} of the {team}{did_you_mean(rule, RULES[team])}: known are {known}")
        self.team, self.rule = team, rule

    def act(self, duel: Duel, starts: np.ndarray | None = None, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of the team, 0 in scenes that are not `chosen`."""
        return duel.rule_actions(self.team, self.rule, chosen)


def _allocate(scenario: Scenario, b: int) -> tuple[Cargo, Game]:
    """Return the arrays of `b` scenes with the scenes along the last axis, zero, and the constants of the game."""
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
    cargo = Cargo(**{name: np.zeros((*shape, b), kind) for kind, of in shapes.items() for name, shape in of.items()})
    areas = scenario.disc_areas or ((-width, width, -height, height),)
    game = Game(
        warehouse=np.array(scenario.warehouses),
        size=scenario.warehouse_size,
        disc_area=np.resize(np.array(areas, np.float64), (scenario.random_discs, 4)),
        cargoes=scenario.cargoes * m,
        worth=scenario.cargo_worth,
        target_range=scenario.target_range,
        sensor_radius=scenario.sensor_radius,
        transmittance=scenario.transmittance,
        rays=scenario.occlusion == "rays",
        transmitted=np.zeros((n, m, b), np.bool_),
        chance=np.zeros((m, b)),
    )
    return cargo, game
