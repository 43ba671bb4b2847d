"""HiT-MAC's executor task: every sensor keeps its own goal targets in view."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from gymnasium import spaces

from hitmac.envs.kernels import assignment
from hitmac.envs.observation import PAPER_FEATURES
from hitmac.envs.parts.sensors import STAY
from hitmac.envs.tasks import base
from hitmac.envs.tasks.base import (
    SUB_STEPS_PER_DECISION,
    Features,
    Task,
    TaskSpec,
    make_observer,
    marginal_coverage,
    unflatten_sensors,
)
from hitmac.envs.validation import Choice, Count, Fraction, NotNegative

Padding = Annotated[str, Choice(("attended", "masked", "unfiltered"))]
"""Layouts of the assigned targets in the m rows of a sensor; see :func:`mask_unassigned`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ExecutorTask(Task):
    """HiT-MAC's executor task, ``dsn/Executor-v0``: every sensor keeps its own goal targets in view.

    Source: Xu, Zhong, Wang, NeurIPS 2020, section 4, and the behaviour of its released program ("Pose-v0"). Actions
    and features are those of :class:`CoverageTask`, by default the paper's features.

    ## Observation: ``Dict``

    | key | space | meaning |
    |---|---|---|
    | `pairs` | Box, float32 (n, m, d) | each sensor's goal targets, packed to the front of its m rows, then zeros |
    | `mask` | MultiBinary (n, m) | 1 throughout; with `padding="masked"`, 1 for the packed rows |

    ## Reward

    The reward of sensor i is the mean over its goals, weighted by value, of ``1 - centring * abs(bearing) /
    (field_of_view / 2)`` if it sees the target, else -1; 0 if it has no goal or has failed; less `turn_cost` if it
    turned or tilted. The environment's reward is the mean over the sensors of the episode.

    ## Start and end of an episode

    Targets start in the middle of the arena and sensor i faces target i. At first every target is a goal of
    every sensor. After every tenth step, once its reward is taken, the goals become the targets in range.
    Episodes are truncated after 101 steps.

    ## Duels

    With `warehouses` of the scenario a sensor turns and zooms, as in :class:`CoverageTask`, and the option `opponent`
    moves the targets. The goals become the known targets whose last known places are within the range of the sensor's
    narrowest view. A goal that the sensor does not see now, even one whose place is unknown, costs 1 as above. An
    episode starts as that of :class:`CoverageTask`, and lasts as long as the scenario's.

    The info has that of :class:`CoverageTask`, and `rewards`, float (n,), and `assigned`, bool (n, m), the goals of
    each sensor.

    Args:
        scenario, num_envs, seed, features, nearest, radius, neighbours, num_threads, opponent: see :class:`Task`.
        turn_cost: cost of a turn for the sensor; 0 or more.
        centring: loss of reward for a goal at the edge of the view instead of its middle, 0 to 1. With the paper's 1,
            two goals at the edges are worth no more than one in the middle.
        goals_every: steps between two choices of goals; 1 or more.
        goal_share: probability that a target in range becomes a goal, 0 to 1. The paper's is 1, although a coordinator
            does not assign all targets in range.
        padding: layout of the goals, ``"attended"``, ``"masked"`` or ``"unfiltered"``; see :func:`mask_unassigned`.
        coordinator: policy that assigns the goals, as in :class:`CoordinatorTask`, given an observation of all pairs;
            its memory, if any, is not kept. The reward of a sensor is then its part of the coverage, see
            :meth:`CoverageTask.difference_rewards`, so that it learns what the goals are for. None: the targets in
            range are the goals.
        coordinator_features: features that it observes, or a function that returns their observer. None: its attribute
            ``features``, by default :data:`hitmac.envs.PAPER_FEATURES`.
        row_id: the feature `target_id` is the index of the goal's row / m, as the coordinator's task uses an executor.
            False: the target's own index j / m, as in the released program, which trains its executor on j / m and uses
            it on row indices.
    """

    spec = TaskSpec(
        name="Executor",
        episode_steps=base.DECISIONS_PER_EPISODE,
        summary="turn every sensor towards its own goal targets",
        scenario="hit-mac-executor",
        options={"padding": "masked", "row_id": False},
        role="executor",
    )

    features: Features = PAPER_FEATURES
    turn_cost: NotNegative = 0.01
    centring: Fraction = 1.0
    goals_every: Count = SUB_STEPS_PER_DECISION
    goal_share: Fraction = 1.0
    coordinator: Any = None
    coordinator_features: Features | None = None
    padding: Padding = "attended"
    row_id: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._row_id = place_of_row_id(self.observer.features) if self.row_id else -1
        self.observation_space = goals_space(self.observation_space, self.padding)
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        self.assigned: np.ndarray = np.zeros((self.num_envs, n, m), np.bool_)
        self.rewards = np.zeros((self.num_envs, n))
        if self.coordinator is not None:
            listed = getattr(self.coordinator, "features", PAPER_FEATURES)
            self._all_pairs = make_observer(self.scenario, self.coordinator_features or listed)
        self.begin(self.simulator.chosen(None))

    def begin(self, chosen: np.ndarray) -> None:
        """Choose the first goals: every target of every sensor, or the coordinator's."""
        self.assigned[chosen] = self.simulator.valid_pairs[chosen]
        self.rewards[chosen] = 0.0
        self._coordinate(chosen)

    def _coordinate(self, chosen: np.ndarray) -> None:
        """Let the coordinator, if there is one, assign the goals of the chosen scenes (B,)."""
        if self.coordinator is None or not chosen.any():
            return
        shown = {name: array[chosen] for name, array in self._all_pairs.observe(self.simulator).items()}
        assigned = np.asarray(self.coordinator.predict(shown, deterministic=True)[0])
        self.assigned[chosen] = assigned.reshape(-1, *self.assigned.shape[1:]) != 0

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance by one sub-step; see :meth:`Task.step`."""
        rules = assignment.ExecutorRules(self.turn_cost, self.centring, self.goals_every, self.goal_share)
        simulator, chosen = self.simulator, self.simulator.chosen(mask)
        turns = simulator.command(self.checked(action), chosen)
        goals = self.assigned if self.coordinator is None else self.assigned.copy()  # a coordinator's goals hold
        if self.scenario.is_game:
            simulator.advance(turns, chosen, self.opponent_action(chosen))
            simulator.run(assignment.executor_results, rules, goals, self.rewards, chosen)
        else:
            simulator.run(assignment.executor_step, rules, turns, goals, self.rewards, chosen)
        if self.coordinator is not None:
            own = marginal_coverage(simulator).sum(-1) - self.turn_cost * simulator.rotated
            self.rewards[chosen] = own[chosen]
            self._coordinate(chosen & (self.time % self.goals_every == 0))
        return self.rewards.sum(-1) / simulator.state.num_sensors

    def sensor_rewards(self) -> np.ndarray:
        """Return the reward of each sensor (B, n) in the last step, as a new array."""
        return self.rewards.copy()

    def observe(self) -> dict[str, np.ndarray]:
        """Return new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m) of each sensor's goals."""
        return mask_unassigned(self.observer.observe(self.simulator), self.assigned, self.padding, self._row_id)

    def info(self) -> dict[str, np.ndarray]:
        """Return new arrays, listed in the class's docstring, with the scenes along a first axis."""
        return super().info() | {"rewards": self.rewards.copy(), "assigned": self.assigned.copy()}


def mask_unassigned(
    shown: dict[str, np.ndarray], assigned: np.ndarray, padding: str, row_id: int = -1
) -> dict[str, np.ndarray]:
    """Return the observation of an executor: the assigned targets of every sensor.

    ``"attended"`` and ``"masked"`` pack each sensor's rows of assigned targets to the front, followed by zero rows.
    With ``"attended"`` the mask is 1 throughout, as in the released program; with ``"masked"`` it is 1 for the packed
    rows only. ``"unfiltered"``, the paper's ablation, keeps all rows in place and appends a feature that is 1 for
    assigned targets (B, n, m). The indices ``targets`` (B, n, k) of the k nearest move with the rows. The feature of
    index `row_id`, unless that is -1, becomes the index of the packed row / m.
    """
    pairs, there = shown["pairs"], shown["mask"]
    if "targets" in shown:
        assigned = np.take_along_axis(assigned, np.maximum(shown["targets"], 0), -1)
    assigned = assigned & (there != 0)
    if padding == "unfiltered":
        return shown | {"pairs": np.concatenate((pairs, assigned[..., None]), -1, dtype=np.float32)}
    packed = np.zeros_like(pairs)
    front = np.zeros(assigned.shape, np.int8)
    assignment.pack(pairs, assigned, row_id, packed, front)
    goals = shown | {"pairs": packed, "mask": front}
    if "targets" in shown:
        order = np.argsort(~assigned, -1, kind="stable")
        goals["targets"] = np.where(front, np.take_along_axis(shown["targets"], order, -1), -1).astype(np.int32)
    if padding == "attended":
        front.fill(1)
    return goals


def executed(
    chosen: np.ndarray, assigned: np.ndarray, mask: np.ndarray, decisions: int, *, by_rate: bool = False
) -> np.ndarray:
    """Return the actions (B, d n) of all sensors: an executor's for sensors with assigned targets, 0 for the others.

    The executor has `chosen` turns (B * n,) or decisions (B * n, k) for the rows of :func:`flatten_sensors`; `assigned`
    is (B, n, m) bool, and the `mask` (B, n, m) is 1 for valid pairs. Decisions are 0, 1, 2, or with `by_rate` also
    floating-point shares from -1 to 1. Raises ``ValueError`` for decisions of another size, type or range.
    """
    scenes, sensors = assigned.shape[:2]
    rows, chosen = scenes * sensors, np.asarray(chosen)
    least, most = (-1.0, 1.0) if chosen.dtype.kind == "f" else (0, 2)
    fits = chosen.size in (rows, 2 * rows, 3 * rows) and chosen.dtype.kind in ("iuf" if by_rate else "iu")
    if not fits or not (chosen.min() >= least and chosen.max() <= most):
        raise ValueError(
            f"the executor gave {chosen!r}; it must give {rows} numbers 0, 1 or 2, or the same number of pairs or "
            f"triples{', or shares from -1 to 1' * by_rate}"
        )
    actions = unflatten_sensors(chosen.reshape(rows, -1), sensors, decisions)
    nothing = ~(assigned & (mask != 0)).any(-1)
    return np.where(np.tile(nothing, decisions), STAY, actions)


def goals_space(space: spaces.Dict, padding: str) -> spaces.Dict:
    """Return the space of the observations that :func:`mask_unassigned` makes from those of `space`."""
    if padding != "unfiltered":
        return space
    pairs = space["pairs"]
    assert isinstance(pairs, spaces.Box)
    low, high = (np.insert(edge, edge.shape[-1], c, -1) for edge, c in ((pairs.low, 0), (pairs.high, 1)))
    return spaces.Dict({**space.spaces, "pairs": spaces.Box(low, high, dtype=np.float32)})


def place_of_row_id(features: Sequence[str]) -> int:
    """Return the index of the feature `target_id`, for :func:`mask_unassigned`; -1 if it is missing."""
    return list(features).index("target_id") if "target_id" in features else -1
