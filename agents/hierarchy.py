"""HiT-MAC's two levels as one agent: a coordinator assigns targets to sensors, an executor turns the sensors."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from agents.policy import Policy
from agents.scripted import Dice, ScriptedAgent, due
from envs.goals import by_sensor, check_padding, show_goals
from envs.physics import LEFT, RIGHT, STAY
from envs.scenario import Scenario
from envs.simulator import positive
from envs.tasks import DECISION, check_idle


class Level(NamedTuple):
    """One level of the hierarchy: a policy and what it is shown."""

    policy: Policy
    features: tuple[str, ...]
    """The observation features that it reads, in order."""
    padding: str = "masked"
    """How an executor is shown the targets assigned to a sensor; see :func:`envs.goals.show_goals`."""


class HierarchicalAgent(ScriptedAgent):
    """A coordinator and an executor as one agent, for every task in which the sensors turn.

    Every `decision` sub-steps, and when an episode begins, the coordinator assigns targets to sensors (Xu, Zhong, Wang,
    NeurIPS 2020, section 3). At every sub-step the executor, one policy for all sensors, turns each sensor by what it
    observes of the targets assigned to it. Its state is the assignment (B, n, m) bool and its age (B,), sub-steps.

    In ``dsn/Coordinator-v0`` the executor looks after the extra move of a sub-step (the scenario's `extra_move_every`),
    as in the released program; here it turns on what was observed before it, as every agent does.

    Args:
        scenario: what it plays; any n and m that the two policies take.
        coordinator: gives (B, n * m), 1 at i * m + j where target j is assigned to sensor i.
        executor: is shown ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), and gives (B * n,) turns.
        decision: sub-steps for which an assignment holds; 1 or more.
        idle: a sensor with nothing assigned turns at ``"random"``, as in the released program, or ``"holds"``.
        seed: of those random turns.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        scenario: Scenario,
        coordinator: Level,
        executor: Level,
        *,
        decision: int = DECISION,
        idle: str = "random",
        seed: int = 0,
    ) -> None:
        super().__init__(scenario, seed)
        self.coordinator, self.executor = coordinator, executor
        self.decision, self.idle = positive("decision", decision), check_idle(idle)
        check_padding(executor.padding)
        self.features = tuple(dict.fromkeys((*coordinator.features, *executor.features)))  # type: ignore[misc]
        self._of_coordinator = [self.features.index(name) for name in coordinator.features]
        self._of_executor = [self.features.index(name) for name in executor.features]
        self._row_id = executor.features.index("target_id") if "target_id" in executor.features else -1

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """See :class:`agents.policy.Policy`."""
        pairs, mask = observation["pairs"], observation["mask"]
        if state is None:
            state = np.zeros(mask.shape, np.bool_), np.full(len(mask), self.decision)
        assigned, age = state[0].copy(), state[1].copy()
        anew = due(age, self.decision, episode_start)
        if anew.any():
            seen = {"pairs": pairs[anew][..., self._of_coordinator], "mask": mask[anew]}
            chosen, _ = self.coordinator.policy.predict(seen, deterministic=deterministic)
            assigned[anew], age[anew] = chosen.reshape(-1, *mask.shape[1:]) != 0, 0
        seen = {"pairs": pairs[..., self._of_executor], "mask": mask}
        rows = by_sensor(show_goals(seen, assigned, self.executor.padding, self._row_id))
        # As in the coordinator's task, the executor takes its best action also while the coordinator explores.
        chosen = self.executor.policy.predict(rows, deterministic=True)[0]
        turns = chosen.reshape(*mask.shape[:2], -1)[..., 0]  # lenses that zoom stay as they are
        nothing = ~(assigned & (mask != 0)).any(-1)
        free = self.dice.throw(3, turns.shape) if self.idle == "random" else STAY
        return self.with_zoom(np.where(nothing, free, turns)), (assigned, age + 1)


def assignment_of(policy: Policy, state: tuple[np.ndarray, ...] | None) -> np.ndarray | None:
    """The assignment (B, n, m) that is in force in a policy's state; None for a policy that assigns nothing."""
    return state[0] if state is not None and isinstance(policy, HierarchicalAgent) else None


class _Rule:
    """A level that decides by rule and keeps nothing."""

    features: ClassVar[tuple[str, ...]] = ("distance",)

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """See :class:`agents.policy.Policy`."""
        return self.decide(observation["pairs"], observation["mask"] != 0), None


class AssignAll(_Rule):
    """Every target to every sensor."""

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(B, n * m), all 1."""
        return np.ones((len(mask), mask[0].size), np.int8)


class AssignInRange(_Rule):
    """To every sensor the targets within its range."""

    features: ClassVar[tuple[str, ...]] = ("in_range",)

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(B, n * m), 1 where the target is in range."""
        return ((pairs[..., 0] != 0) & mask).reshape(len(mask), -1).astype(np.int8)


class AssignRandomly(_Rule):
    """Every target to every sensor or not, by the toss of a coin."""

    def __init__(self, seed: int = 0) -> None:
        self.dice = Dice(seed)

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(B, n * m), 0 or 1 with equal chances."""
        return self.dice.throw(2, (len(mask), mask[0].size)).astype(np.int8)


class ScriptedExecutor(_Rule):
    """The scripted executor of ``dsn/Coordinator-v0``: towards the mean position of the assigned targets.

    ``turn * clip(floor(bearing / turn), -1, 1)``, where the bearing is that of the mean position.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing_sin", "bearing_cos", "distance", "turn")

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The turns (R,) of rows (R, m, d) with the mask (R, m); stay where nothing is assigned."""
        sin, cos, distance, turn = np.moveaxis(pairs.astype(np.float64), -1, 0)
        aside = (sin * distance * mask).sum(-1)
        ahead = (cos * distance * mask).sum(-1)
        step = np.where(mask, turn, 0.0).max(-1) * 180.0  # of masked rows all features are 0
        bearing = np.degrees(np.arctan2(aside, ahead))
        turns = np.floor(bearing / np.where(step > 0, step, np.inf))
        return np.where(mask.any(-1), np.where(turns > 0, LEFT, np.where(turns < 0, RIGHT, STAY)), STAY)


COORDINATORS: dict[str, type[_Rule]] = {
    "assign-all": AssignAll,
    "assign-in-range": AssignInRange,
    "assign-randomly": AssignRandomly,
}
"""The coordinators without learning, by name."""


class RandomExecutor(_Rule):
    """Every sensor takes one of the three actions at random."""

    def __init__(self, seed: int = 0) -> None:
        self.dice = Dice(seed)

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(R,) uniform over stay, left and right."""
        return self.dice.throw(3, (len(mask),))


class StillExecutor(_Rule):
    """No sensor ever turns."""

    def decide(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(R,) stay."""
        return np.full(len(mask), STAY)


EXECUTORS: dict[str, type[_Rule]] = {"scripted": ScriptedExecutor, "random": RandomExecutor, "still": StillExecutor}
"""The executors without learning, by name."""
