"""Transport task: every target of a duel moves at every step."""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.tasks.base import Task, TaskSpec
from hitmac.envs.validation import Fraction


@dataclass(kw_only=True, eq=False, repr=False)
class TransportTask(Task):
    """Transport of cargo past sensors, ``dsn/Transport-v0``: move every target of a duel at every step.

    The targets' side of :class:`hitmac.envs.Game`: m targets carry cargoes between warehouses, and earn more the
    less the sensors, the option `opponent`, see them. Source: MATE (Pan and others, NeurIPS 2022, Datasets and
    Benchmarks).

    ## Action: ``MultiDiscrete([17] * m)``, with ``action: rate`` of the scenario ``Box(-1, 1, (2m,))``

    0 stays, and 1 + k makes the target's longest step at 22.5 k degrees, counter-clockwise from +x; a target of
    capacity 2 has half the step of the others. Rates are shares of the longest step, m along x and then m along y; a
    longer displacement is scaled to that step. Targets slide along discs and sensors, and stop at the border.

    ## Observation: ``Dict``

    The entities that each target observes, :class:`~hitmac.envs.entities.EntityObserver`: of each kind, `own`,
    `sensors`, `targets`, `discs`, `warehouses`, and `moves`, the candidates of the action, an array float32
    (m, count, d) and a mask (m, count).

    ## Reward

    The game's: -1 for each target with a bounty that a sensor sees, and for the delivery of w cargoes 100 w and the
    bounty left, 100 w less the steps in which the load was seen.

    ## Start and end of an episode

    An episode terminates when all cargoes have arrived; it is truncated after the scenario's
    `episode_steps`.

    ## Info

    | key | value |
    |---|---|
    | `coverage` | float, share of the targets that a sensor sees |
    | `transport` | float, share of the bounties of all deliveries so far that the targets have received |
    | `turned` | int, number of sensors that turned in this step |
    | `visible` | bool (m,), True for targets that a sensor sees |

    Args:
        scenario, num_envs, seed, features, num_threads, opponent: see :class:`Task`; with the opponent None, the
            sensors follow MATE's rule ``"mate:greedy"``.
        share: share of the team's mean reward in that of each target, :meth:`sensor_rewards`, 0 to 1.
    """

    spec = TaskSpec(
        name="Transport",
        episode_steps=10_001,
        summary="move the targets of a duel at every step, to deliver cargo unseen",
        scenario="mate-4v8-9",
        role="targets",
    )
    team = "targets"
    choices = 16, "0 (stay) or a direction from 1 to 16"
    share: Fraction = 0.0

    def __post_init__(self) -> None:
        self.features = ("entities",) if self.features is None else self.features
        self.opponent = "mate:greedy" if self.opponent is None else self.opponent
        super().__post_init__()
        self.action_space = spaces.MultiDiscrete([len(MOVES)] * self.actors)
        if self.scenario.action == "rate":
            self.action_space = spaces.Box(-1.0, 1.0, (2 * self.actors,), np.float32)

    @property
    def actors(self) -> int:
        """Number of targets, each of which acts."""
        return self.scenario.num_targets

    @property
    def acting(self) -> np.ndarray:
        """(B, m) bool: every target acts."""
        return self.simulator.state.present.copy()

    @property
    def actor_space(self) -> spaces.Space:
        """Action space of one target."""
        rates = spaces.Box(-1.0, 1.0, (2,), np.float32)
        return rates if self.scenario.action == "rate" else spaces.Discrete(len(MOVES))

    def displacements(self, action: np.ndarray) -> np.ndarray:
        """Return the displacements (B, m, 2) of a valid action."""
        steps = self.simulator.state.speed[..., None] * self.scenario.time_step
        if action.dtype.kind == "f":
            return action.reshape(self.num_envs, 2, -1).swapaxes(1, 2) * steps
        return MOVES[action] * steps

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance by one step; see :meth:`Task.step`."""
        moves, chosen = self.displacements(self.checked(action)), self.simulator.chosen(mask)
        self.simulator.step(self.opponent_action(chosen), mask, moves)
        return self.simulator.game.target_reward

    def sensor_rewards(self) -> np.ndarray:
        """Return each target's reward (B, m) of the last step for a learner, in units of a cargo's worth."""
        own = self.simulator.game.cargo.reward
        return (own + self.share * (own.mean(-1, keepdims=True) - own)) / self.simulator.game.worth
