"""Game of two teams: sensors, and targets that carry cargoes between warehouses."""

from typing import Any

import numpy as np

from hitmac.envs.kernels.duel import Cargo
from hitmac.envs.kernels.duel_rules import RULES, RuleMemory, act, make_memory
from hitmac.envs.kernels.state import TURN, core_of, scenes_first
from hitmac.envs.validation import as_array, did_you_mean, shortly


class Game:
    """Games of two teams in the scenes of a simulator, MATE (Pan and others, NeurIPS 2022, Datasets and Benchmarks).

    Sensors turn and zoom; targets carry cargoes between warehouses, and slide along discs and sensors. A load of w
    cargoes is worth 100 w to the targets when it arrives, and a bounty, which is 100 w at first and falls by 1 in every
    step in which a sensor sees the target. The game is zero-sum, and ends when all cargoes have arrived.

    Args:
        simulator: the :class:`~hitmac.envs.simulator.Simulator` of a scenario with `warehouses`, such as
            ``mate-4v8-9``, of which this is the attribute `game`.

    Attributes:
        cargo: the :class:`~hitmac.envs.kernels.duel.Cargo`, live arrays with the scenes along the first axis;
            values written to them are not checked.
        memory: the :class:`~hitmac.envs.kernels.duel_rules.RuleMemory` of :meth:`rule_actions`, live arrays.
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
        """Return a valid action of the sensors in degrees, (B, n, 2)."""
        if action.dtype.kind == "f":
            return action
        simulator, shape = self._simulator, self._simulator.state.heading.shape
        ways = ((action == 1).astype(np.float64) - (action == 2)).reshape(shape[0], -1, shape[1])
        degrees = np.zeros((*shape, 2))
        degrees[..., 0] = ways[:, 0] * simulator.rows.sensor[:, TURN, 0]
        degrees[..., 1] = ways[:, 1] * -simulator.scenario.zoom_step if ways.shape[1] > 1 else 0.0
        return degrees

    def walk(self, chosen: np.ndarray) -> np.ndarray:
        """Return the action of the targets by the scenario's `walk`."""
        return self.rule_actions("targets", self._simulator.scenario.walk.removeprefix("carry-"), chosen)

    def rule_actions(self, team: str, rule: str, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of a team by one of MATE's rules, with its memory; call it once before every step.

        Args:
            team: ``"sensors"`` or ``"targets"``.
            rule: ``"random"``, ``"naive"``, ``"greedy"`` or ``"heuristic"``, see
                :data:`hitmac.envs.kernels.duel_rules.RULES`.
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
        if rule not in RULES[team]:
            known = ", ".join(RULES[team])
            raise ValueError(f"unknown rule {rule!r} of the {team}{did_you_mean(rule, RULES[team])}: known are {known}")
        self.team, self.rule = team, rule

    def act(self, simulator: Any, starts: np.ndarray | None = None, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of the team, 0 in scenes that are not `chosen`."""
        return simulator.game.rule_actions(self.team, self.rule, chosen)
