"""Base class of the tasks, their spaces and checks."""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from gymnasium import spaces

from hitmac import find_player
from hitmac.envs.base.state import core_of
from hitmac.envs.entities import EntityObserver
from hitmac.envs.kernels import assignment
from hitmac.envs.observation import Observer, default_features, registered
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.parts.game import RULES, RulePlayer
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.validation import Choice, Range, as_array, convert, field_types, is_among, positive

SUB_STEPS_PER_DECISION = 10
"""Sub-steps of a decision of HiT-MAC, and steps between two choices of its executor's goals."""

SubSteps = Annotated[int, Range(1, 10_000)]
"""Sub-steps of a decision."""

DECISIONS_PER_EPISODE = 101
"""Length of an episode of HiT-MAC, in decisions of the coordinator or steps of the executor."""

SUB_STEPS = SUB_STEPS_PER_DECISION * DECISIONS_PER_EPISODE
"""Length of an episode of HiT-MAC, in sub-steps."""

UNSEEN_PENALTY = -0.1
"""The coordinator's reward for a sub-step in which no sensor sees a target assigned to it."""

Idle = Annotated[str, Choice(("random", "hold"))]
"""Turns of a sensor without assigned targets: random ones, or none."""


class TaskSpec(NamedTuple):
    """Declaration of a task: its id, shells, training job, evaluation, checkpoints and help follow from it."""

    name: str
    """Name in the shells, in the environments' ids, ``dsn/<name>-v0``, and in checkpoints."""
    episode_steps: int
    """Default length of an episode, steps."""
    summary: str
    """One line of help."""
    scenario: str = "hit-mac"
    """Default scenario."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Options that a policy depends on, with their defaults; checkpoints contain them."""
    role: Literal["agent", "executor", "coordinator", "targets"] = "agent"
    """Role of a policy of the task. An ``"agent"`` turns the sensors of a scene (with the option `per_sensor`, one
    sensor), given the features of all pairs; it is evaluated by its coverage. An ``"executor"`` turns one sensor
    towards the targets assigned to it (options `padding` and `row_id`); it is evaluated by its reward in
    ``dsn/Executor-v0``. A ``"coordinator"`` assigns targets to sensors (options `decision` and `idle`); it is evaluated
    by its coverage with an executor. ``"targets"`` moves the targets of a duel."""

    @property
    def id(self) -> str:
        """Id of the environments."""
        return f"dsn/{self.name}-v0"


Features = Sequence[str] | Callable[[Scenario], Any]


def find_opponent(opponent: Any, scenario: Scenario, team: str) -> Any:
    """Return a player of a team, given its name or itself, which is copied if it has a memory; None for None."""
    if opponent is None or (scenario.is_game and callable(getattr(opponent, "act", None))):
        return copy.deepcopy(opponent) if hasattr(opponent, "get_state") else opponent
    if not scenario.is_game:
        raise ValueError(f"opponent is {opponent!r}; it must be None in a scenario without warehouses")
    rules = {f"mate:{rule}" if team == "sensors" else rule: rule for rule in RULES[team]}
    if isinstance(opponent, str | Path) and opponent not in rules:
        return find_player(opponent, scenario, team)
    return RulePlayer(team, rules[opponent] if is_among(opponent, rules) else opponent)


def marginal_coverage(simulator: Simulator) -> np.ndarray:
    """Return the share of the coverage, by value, that each sensor's view of a target adds now (B, n, m)."""
    marginal = np.zeros(simulator.state.visible.shape)
    rows = core_of.py_func(simulator.rows)  # the kernel is compiled once, for scenes with any parts
    simulator.run(assignment.marginal_coverage, marginal, simulator.chosen(None), rows=rows)
    return marginal


def make_observer(
    scenario: Scenario, features: Features | None, team: str = "sensors", **near: int | float | None
) -> Any:
    """Return the observer of `features`, and of `nearest`, `radius`, `neighbours` and `discs`; see :class:`Task`."""
    if features is None:
        features = default_features(scenario) if scenario.identities else DetectionObserver
    features = registered(features, detections=DetectionObserver, entities=functools.partial(EntityObserver, team=team))
    if not callable(features):
        return Observer(scenario, features, **near)  # type: ignore[arg-type]
    if given := {name: value for name, value in near.items() if value is not None}:
        words = " and ".join(f"{name} is {value}" for name, value in given.items())
        raise ValueError(f"{words}; it must be None where features is a function, or identities false")
    return features(scenario)


@dataclass(eq=False, repr=False)
class Task:
    """Base class of the tasks: a simulator and an observer.

    A subclass is a dataclass with the attribute `spec`, and its options as fields annotated with their ranges.
    :func:`hitmac.envs.register_task` adds it to :data:`hitmac.envs.TASKS`.

    Args:
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a YAML file's path; None: the task's
            default.
        num_envs: B, number of scenes; 1 or more.
        seed: scene i gets ``seed + i``, or the i-th of a sequence; None: a seed from the operating system.
        features, nearest, radius, neighbours, discs: see :class:`~hitmac.envs.observation.Observer`; or `features` is a
            function that returns the observer of a scenario, with the same interface; None: those of
            :func:`hitmac.envs.default_features`, or in a scenario without identities
            :class:`~hitmac.envs.parts.detections.DetectionObserver`.
        num_threads: number of threads, 1 or more; None: the number of cores, and 1 for small batches.
        opponent: the other team of a duel: one of MATE's rules, ``"random"``, ``"naive"``, ``"greedy"`` or
            ``"heuristic"``, for sensors ``"mate:random"`` and so on; the name of another player, see
            :func:`hitmac.agents.load_opponent`; or an object whose ``act(simulator, starts, chosen)`` returns the
            team's actions for :meth:`hitmac.envs.Simulator.step`, where `starts` (B,) marks the scenes in which an
            episode begins, and `chosen` those that will move. One with ``get_state``, a memory, is copied. None: the
            scenario's `walk`, or for sensors ``"mate:greedy"``.
        simulator: the simulator of another task of the same scenes, to share; None: a new one.

    Attributes:
        spec: the declaration of the task.
        team: the acting team, ``"sensors"`` or ``"targets"``.
        observation_space, action_space: spaces of one scene. An action is by default the decisions of all sensors,
            see :func:`turning_space`; in some tasks an assignment, ``MultiBinary(n * m)``.
        starts: (B,) bool, scenes in which the opponent has not acted since the reset.
        assigned: (B, n, m) bool, the targets assigned to each sensor; None in a task without assignments.

    Raises ``ValueError`` or ``TypeError`` for an option out of its range.
    """

    spec: ClassVar[TaskSpec]
    team: ClassVar[str] = "sensors"
    choices: ClassVar[tuple[int, str]] = (2, "0 (stay), 1 (left) or 2 (right)")
    sub_steps = 1  # length of a step
    scenario: Any = None
    num_envs: int = 1
    seed: int | Sequence[int] | None = None
    _: KW_ONLY
    features: Features | None = None
    nearest: int | None = None
    radius: float | None = None
    neighbours: int | None = None
    discs: bool | None = None
    num_threads: int | None = None
    opponent: Any = None
    simulator: Any = None

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in field_types(kind).items():
            if name not in Task.__dataclass_fields__:
                setattr(self, name, convert(name, hint, getattr(self, name)))
        scenario = self.spec.scenario if self.scenario is None else self.scenario
        if self.simulator is None:
            self.simulator = Simulator(scenario, self.num_envs, self.seed, num_threads=self.num_threads)
        self.scenario, self.num_envs = self.simulator.scenario, self.simulator.num_envs
        near = {name: getattr(self, name) for name in ("nearest", "radius", "neighbours", "discs")}
        self.observer = make_observer(self.scenario, self.features, self.team, **near)
        other = "sensors" if self.team == "targets" else "targets"
        self.opponent = find_opponent(self.opponent, self.scenario, other)
        self.starts = np.ones(self.num_envs, np.bool_)
        self.observation_space = self.observer.space
        self.action_space: spaces.Space = turning_space(self.scenario, self.scenario.num_sensors)
        self.assigned: np.ndarray | None = None

    def reset(self, *, seed: Any = None, mask: np.ndarray | None = None, options: Any = None) -> None:
        """Start a new episode in the scenes of `mask` (B,), or in all; see :meth:`Simulator.reset`."""
        chosen = self.simulator.chosen(mask)
        self.simulator.reset(seed=seed, mask=mask, options=options)
        self.starts = self.starts | chosen
        self.begin(chosen)

    def begin(self, chosen: np.ndarray) -> None:
        """Reset the task's own state in the chosen scenes (B,), after the simulator's."""

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Advance the scenes of `mask` (B,), or all, by one step; return the rewards (B,) float64.

        Raises ``ValueError`` or ``TypeError`` for a wrong action, before anything moves.
        """
        raise NotImplementedError

    def opponent_action(self, chosen: np.ndarray) -> np.ndarray | None:
        """Return the opponent's action in the chosen scenes (B,), for a step; None: that of the scenario's `walk`."""
        if self.opponent is None:
            return None
        action = self.opponent.act(self.simulator, self.starts, chosen)
        self.starts = self.starts & ~chosen
        return action

    def sensor_rewards(self) -> np.ndarray | None:
        """Return the reward of each sensor (B, n) in the last step; None in a task without them."""
        return None

    def difference_rewards(self) -> np.ndarray | None:
        """Return the part of the last reward that each actor is credited with (B, n); None in a task without them.

        It is the difference between the team's reward and that without the actor, or where actors have rewards of their
        own :meth:`sensor_rewards`.
        """
        return self.sensor_rewards()

    def observe(self) -> dict[str, np.ndarray]:
        """Return new arrays, those of the observation space with the scenes along a first axis."""
        return self.observer.observe(self.simulator)

    def info(self) -> dict[str, np.ndarray]:
        """Return new arrays: ``coverage`` (B,), ``turned`` (B,) sensors, ``visible`` (B, m), the targets covered.

        In a duel also ``transport`` (B,), the share of the bounties so far that the targets have received.
        """
        state = self.simulator.state
        info = {"coverage": state.coverage.copy(), "turned": state.turned.copy(), "visible": state.covered.copy()}
        return info | ({"transport": self.simulator.game.transport_rate} if self.simulator.game else {})

    def infos(self) -> list[dict[str, Any]]:
        """Return the info of every scene, numbers as Python's."""
        info = {key: value if value.ndim > 1 else value.tolist() for key, value in self.info().items()}
        return [{key: values[b] for key, values in info.items()} for b in range(self.num_envs)]

    @property
    def time(self) -> np.ndarray:
        """(B,) steps since each scene's reset."""
        time = self.simulator.state.time
        return time // self.sub_steps if self.sub_steps > 1 else time.copy()

    def episode_steps(self, given: int | None) -> int:
        """Return the length of an episode, steps: `given` or the default, in a duel the scenario's, which limits it."""
        default = self.scenario.episode_steps if self.scenario.is_game else self.spec.episode_steps
        steps = (default or self.spec.episode_steps) if given is None else positive("max_episode_steps", given)
        longest = self.scenario.episode_steps // self.sub_steps
        return int(min(steps, max(longest, 1))) if self.scenario.episode_steps else steps

    def ended(self, most: float | np.ndarray) -> np.ndarray:
        """Return True (B,) where an episode ends: after `most` steps, at the end of recorded tracks, or terminated.

        `most` is a number, or one for each scene.
        """
        ended = (self.time >= most) | self.terminated
        return ended | self.simulator.track_ended if self.scenario.tracks or self.simulator.rows.paths else ended

    @property
    def terminated(self) -> np.ndarray:
        """(B,) bool: a duel in which all cargoes have arrived."""
        return self.simulator.game.done if self.simulator.game else np.zeros(self.num_envs, np.bool_)

    @property
    def turning(self) -> bool:
        """True if an action turns the sensors, False if it assigns targets to them."""
        return not isinstance(self.action_space, spaces.MultiBinary)

    @property
    def actors(self) -> int:
        """Number of members of the acting team, each of which has a row of the observation."""
        return self.scenario.num_sensors

    @property
    def acting(self) -> np.ndarray:
        """(B, n) bool: the sensor works; in a task of targets, (B, m): the target is present."""
        return self.simulator.state.working.copy()

    @property
    def actor_space(self) -> spaces.Space:
        """Action space of one sensor: its decisions, or its targets."""
        return own_turning_space(self.scenario) if self.turning else spaces.MultiBinary(self.scenario.num_targets)

    def joint_action(self, actions: np.ndarray) -> np.ndarray:
        """Return the actions of scenes (B, d n or n m) from those of their sensors (B, n, k)."""
        return (actions.swapaxes(1, 2) if self.turning else actions).reshape(len(actions), -1)

    def checked(self, action: Any) -> np.ndarray:
        """Return the batch's action as int64, or rates as float64; raise an error that names what is not valid."""
        highest, allowed = self.choices if self.turning else (1, "0 or 1")
        array = action if isinstance(action, np.ndarray) else as_array("action", action)
        shape = (self.num_envs, *self.action_space.shape)  # type: ignore[misc]
        if array.shape != shape:
            raise ValueError(f"action has shape {array.shape}; it must have shape {shape}")
        if isinstance(self.action_space, spaces.Box):
            if array.dtype.kind != "f":
                raise TypeError(f"action is {array.dtype}; it must be floating-point rates from -1 to 1, left over 0")
            if not (fits := np.abs(array) <= 1.0).all():
                raise ValueError(f"action holds {array[~fits].flat[0]}; it must be rates from -1 to 1, left over 0")
            return array.astype(np.float64)
        # Assignments may be floats, as torch draws those of a Bernoulli distribution.
        if array.dtype.kind not in "iub" and (self.turning or not np.isin(array, (0, 1)).all()):
            raise TypeError(f"action is {array.dtype} ({array.flat[0]!r} first); it must be whole numbers, {allowed}")
        whole = np.array(array, np.int64, order="C")  # one compiled kernel for all
        if np.maximum.reduce(whole.view(np.uint64), None) > highest:  # as unsigned, a negative number is huge
            wrong = array[(array < 0) | (array > highest)].flat[0]
            raise ValueError(f"action holds {wrong}; it must be {allowed}")
        return whole


def turning_space(scenario: Scenario, sensors: int) -> spaces.MultiDiscrete | spaces.Box:
    """Return the action space of some sensors: turns, then their other decisions; or rates."""
    if scenario.action == "rate":
        return spaces.Box(-1.0, 1.0, (sensors * len(scenario.decisions),), np.float32)
    return spaces.MultiDiscrete([3] * sensors * len(scenario.decisions))


def own_turning_space(scenario: Scenario) -> spaces.Space:
    """Return the action space of one turning sensor, see :func:`turning_space`; a turn alone is ``Discrete(3)``."""
    return spaces.Discrete(3) if scenario.decisions == ("turn",) == (scenario.action,) else turning_space(scenario, 1)


def own_observation_space(space: spaces.Dict) -> spaces.Dict:
    """Return the observation space of one sensor, ``pairs`` (m, d), ``mask`` (m,), ..., from that of a scene."""

    def own(key: str, one: Any) -> spaces.Space:
        if isinstance(one, spaces.MultiBinary):
            return spaces.MultiBinary(one.shape[1])
        low, high = (one.low, one.high) if _is_of_scene(key, one.shape) else (one.low[0], one.high[0])
        return spaces.Box(low, high, dtype=one.dtype.type)

    return spaces.Dict({key: own(key, one) for key, one in space.items()})


def _is_of_scene(key: str, shape: tuple[int, ...]) -> bool:
    """Return True for the discs (k, 3) of an :class:`Observer`, which every sensor observes alike."""
    return key == "discs" and len(shape) == 2


def by_sensor(shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return observations of scenes, all with an axis of the sensors (B, n, ...): each has the discs of its scene."""
    return {
        key: value[:, None].repeat(shown["mask"].shape[1], 1) if _is_of_scene(key, value.shape[1:]) else value
        for key, value in shown.items()
    }


def flatten_sensors(shown: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reshape observations of scenes (B, n, ...) to rows of single sensors (B * n, ...)."""
    return {key: value.reshape(-1, *value.shape[2:]) for key, value in by_sensor(shown).items()}


def rows_of_sensors(shown: dict[str, np.ndarray]) -> np.ndarray:
    """Return an observation as rows (B, n, m (d + 1)): for each target its features times its mask, and its mask."""
    mask = shown["mask"].astype(np.float32)[..., None]
    return np.concatenate((shown["pairs"] * mask, mask), -1).reshape(*mask.shape[:2], -1)


def decisions_of(choices: np.ndarray, number: int) -> np.ndarray:
    """Return k decisions of each sensor (B, n, k), 0 to 2, of its choice (B, n), the sum of decision i times 3^i.

    Floating-point choices (B, n, k) from -1 to 1 are rounded: to 0 stay, 1 left, -1 right.
    """
    if choices.dtype.kind == "f":
        return np.rint(choices).astype(np.int64) % 3
    return choices[..., None] // 3 ** np.arange(number) % 3


def unflatten_sensors(actions: np.ndarray, num_sensors: int, decisions: int) -> np.ndarray:
    """Reshape actions of single sensors (B * n,), or (B * n, k) with k decisions each, to those of scenes (B, d n).

    d is the number of :attr:`hitmac.envs.Scenario.decisions`. Missing decisions are 0 (no change), further ones are
    dropped.
    """
    parts = actions.reshape(-1, num_sensors, 1 if actions.ndim == 1 else actions.shape[-1])[..., :decisions]
    parts = np.pad(parts, ((0, 0), (0, 0), (0, decisions - parts.shape[-1])))  # (B, n, d)
    return parts.swapaxes(1, 2).reshape(len(parts), -1)


def with_rows(state: Any, fresh: Any, chosen: np.ndarray) -> Any:
    """Return the memory of a policy with the rows, and the types, of `fresh` in the chosen scenes (B,).

    A scene has one row or several in each array; None has no rows, and the other is returned.
    """
    if state is None or fresh is None:
        return fresh if state is None else state
    if isinstance(fresh, np.ndarray):
        rows = np.repeat(chosen, len(fresh) // len(chosen))
        return np.where(rows.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, state)
    parts = [with_rows(*pair, chosen) for pair in zip(state, fresh, strict=True)]
    return type(fresh)(*parts) if hasattr(fresh, "_fields") else tuple(parts)
