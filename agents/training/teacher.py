"""Lessons of imitation: the answers that a teacher gives in scenes, and the loss of a policy given them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hitmac.agents.learned.policy import LISTS, AttentionPolicy
from hitmac.agents.policy import Policy, completed
from hitmac.envs.observation import Observer, flatten_sensors
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

_REGRET = 1.0  # of a decision that the teacher does not take, such as a zoom: it keeps all fields of view


class Teacher(Protocol):
    """Agent that values actions, such as :class:`hitmac.agents.baselines.planner.PlannerAgent`."""

    features: ClassVar[tuple[str, ...]]

    def plan(
        self,
        pairs: np.ndarray,
        mask: np.ndarray,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return the values (B, k n, 3) of the actions of each decision, and the state for the next call.

        The teacher's k decisions, its attribute ``decides`` (without one, turns only), follow each other. Of an
        executor the observation is that of rows (R, m, d), and the values are (R, 3). A teacher of large scenes has a
        method ``shown`` as :class:`~hitmac.agents.baselines.rules.RulePolicy` has, and the keyword `targets` (B, n, k).
        """
        ...


class Lesson:
    """Base class of the lessons.

    Args:
        teacher: the teacher; it observes the scenes by its own features.
        env: environments, whose rows the policy learns from.

    Attributes:
        memory: arrays that the teacher remembers; None at first.
    """

    def __init__(self, teacher: Any, env: DirectionalSensorVecEnv) -> None:
        self.teacher, self.env = teacher, env
        shown = getattr(teacher, "shown", None)
        self.observer = Observer(env.scenario, teacher.features, **({} if shown is None else shown({})))
        self.memory: tuple[np.ndarray, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer to a row."""
        raise NotImplementedError

    @property
    def of_scenes(self) -> bool:
        """A row is a whole scene, and its answer a value for each action of each sensor."""
        space = self.env.observation_space
        assert isinstance(space, spaces.Dict)
        return len(self.shape) == 2 and len(space["mask"].shape or ()) == 2

    def observe(self) -> dict[str, np.ndarray]:
        """Return the teacher's observation, ``pairs`` and ``mask``, of the present scenes."""
        return self.observer.observe(self.env.task.simulator)

    def warm_up(self) -> None:
        """Compile the teacher, before any clock starts."""
        self.answer(self.observe(), np.ones(self.env.num_envs, np.bool_))
        self.memory = None

    def answer(self, seen: dict[str, np.ndarray], starts: np.ndarray) -> np.ndarray:
        """Return the teacher's answers (rows, ...) float32 to its observation, and let it remember.

        Args:
            seen: result of :meth:`observe`.
            starts: (rows,) bool, those in which an episode begins.
        """
        raise NotImplementedError

    def best(self, answers: np.ndarray) -> np.ndarray:
        """Return the teacher's best actions of rows."""
        raise NotImplementedError

    def loss(
        self, policy: AttentionPolicy, pairs: Tensor, mask: Tensor, answers: Tensor, **lists: Tensor
    ) -> tuple[Tensor, int]:
        """Return the sum of the policy's losses over the decisions in rows, and the number of decisions.

        `lists` are the ``targets`` and ``neighbours`` of the rows, where they list the nearest.
        """
        raise NotImplementedError


class TurnLesson(Lesson):
    """Lesson in turning the sensors of whole scenes, by the values (n, 3 k) of the teacher's k decisions.

    The loss is that of :func:`imitation_loss`; sensors that act decide.

    Args:
        teacher: a :class:`Teacher`.
        env: environments of a task of turns.
        temperature: tau, in the unit of the teacher's values; over 0.
    """

    teacher: Teacher

    def __init__(self, teacher: Teacher, env: DirectionalSensorVecEnv, temperature: float) -> None:
        super().__init__(teacher, env)
        self.temperature = temperature
        self.decides: tuple[str, ...] = getattr(teacher, "decides", ("turn",))

    @property
    def shape(self) -> tuple[int, ...]:
        """See :attr:`Lesson.shape`."""
        space = self.env.observation_space
        assert isinstance(space, spaces.Dict)
        mask = space["mask"].shape
        assert mask is not None
        return (*(mask[:-1] or (1,)), 3 * len(self.decides))

    def answer(self, seen: dict[str, np.ndarray], starts: np.ndarray) -> np.ndarray:
        """See :meth:`Lesson.answer`."""
        starts = starts.reshape(len(seen["pairs"]), -1)[:, 0].astype(bool)
        lists = {"targets": seen["targets"]} if "targets" in seen else {}
        values, self.memory = self.teacher.plan(seen["pairs"], seen["mask"] != 0, self.memory, starts, **lists)
        if len(self.decides) > 1:  # every sensor's values together
            values = values.reshape(len(values), len(self.decides), -1, 3).swapaxes(1, 2)
        return values.reshape(self.env.num_envs, *self.shape)

    def best(self, answers: np.ndarray) -> np.ndarray:
        """See :meth:`Lesson.best`; decisions that the teacher does not take are 0."""
        actions = answers.reshape(*answers.shape[:2], -1, 3).argmax(-1)  # (rows, n, k)
        actions = actions.swapaxes(1, 2).reshape(len(actions), -1)
        return completed(actions, self.decides, self.env.scenario.decisions)

    def loss(
        self, policy: AttentionPolicy, pairs: Tensor, mask: Tensor, answers: Tensor, **lists: Tensor
    ) -> tuple[Tensor, int]:
        """See :meth:`Lesson.loss`."""
        acting = mask.bool().any(-1).reshape(answers.shape[:2])  # (S, n)
        return self.loss_of(policy.logits({"pairs": pairs, "mask": mask, **lists}), acting, answers)

    def loss_of(self, logits: Tensor, acting: Tensor, answers: Tensor) -> tuple[Tensor, int]:
        """Return the sum of the losses over the decisions of sensors that act, and their number.

        Args:
            logits: (S, j, n, 3).
            acting: (S, n) bool.
            answers: (S, n, 3 k).
        """
        values = dict(zip(self.decides, answers[acting].unflatten(-1, (-1, 3)).unbind(1), strict=True))
        kept = answers.new_tensor([0.0, -_REGRET, -_REGRET]).expand(int(acting.sum()), 3)
        losses = [
            imitation_loss(logits[:, k][acting], values.get(name, kept), self.temperature)
            for k, name in enumerate(self.env.scenario.decisions)
        ]
        return torch.stack(losses).sum(), len(kept)


class GoalLesson(TurnLesson):
    """Lesson in turning a sensor towards its goals, for executors: the teacher sees the goals only."""

    def observe(self) -> dict[str, np.ndarray]:
        """See :meth:`Lesson.observe`; a row for each sensor, and a valid pair for each goal, in its target's place."""
        seen = super().observe()
        assert self.env.task.assigned is not None
        return flatten_sensors({"pairs": seen["pairs"], "mask": seen["mask"] * self.env.task.assigned})


class AssignmentLesson(Lesson):
    """Lesson in assigning targets to sensors, for coordinators, by the teacher's assignments (n * m).

    The loss is the cross-entropy to the assignment; valid pairs are decided.

    Args:
        teacher: a coordinator without a state.
        env: environments of a task of assignments.
    """

    teacher: Policy

    @property
    def shape(self) -> tuple[int, ...]:
        """See :attr:`Lesson.shape`."""
        shape = self.env.action_space.shape
        assert shape is not None
        return shape

    def answer(self, seen: dict[str, np.ndarray], starts: np.ndarray) -> np.ndarray:
        """See :meth:`Lesson.answer`."""
        return self.teacher.predict(seen, deterministic=True)[0].astype(np.float32)

    def best(self, answers: np.ndarray) -> np.ndarray:
        """See :meth:`Lesson.best`."""
        return answers.astype(np.int8)

    def loss(
        self, policy: AttentionPolicy, pairs: Tensor, mask: Tensor, answers: Tensor, **lists: Tensor
    ) -> tuple[Tensor, int]:
        """See :meth:`Lesson.loss`."""
        there = mask.flatten(1).bool()
        logits = policy.logits({"pairs": pairs, "mask": mask}).flatten(1)[there]  # of S * n * m
        return binary_cross_entropy_with_logits(logits, answers[there], reduction="sum"), len(logits)


def lesson_of(teacher: Any, env: DirectionalSensorVecEnv, temperature: float) -> Lesson:
    """Return the lesson for the role of the environments' task."""
    if env.task.spec.role == "coordinator":
        return AssignmentLesson(teacher, env)
    return (GoalLesson if env.task.spec.role == "executor" else TurnLesson)(teacher, env, temperature)


def imitation_loss(logits: Tensor, values: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy to the softmax of the values, plus the expected regret, of each decision (...,).

    Args:
        logits: (..., k) of the policy's actions.
        values: (..., k) of the same actions, by the teacher.
        temperature: of the softmax, in the unit of the values.
    """
    log_policy = logits.log_softmax(-1)
    cross_entropy = -((values / temperature).softmax(-1) * log_policy).sum(-1)
    regret = (log_policy.exp() * (values.amax(-1, keepdim=True) - values)).sum(-1)
    return cross_entropy + regret


_Result = TypeVar("_Result")


class Scenes(NamedTuple):
    """Observations with the teacher's answers to them, a row for each row of the environments."""

    pairs: np.ndarray  # (K, n, m, d) float32, of one sensor (K, m, d)
    mask: np.ndarray  # (K, n, m) int8
    values: np.ndarray  # (K, ...) float32, see the lesson
    lists: dict[str, np.ndarray] = {}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {"pairs": self.pairs, "mask": self.mask, "values": self.values, **self.lists}

    @classmethod
    def of(cls, observation: Mapping[str, np.ndarray], values: np.ndarray) -> Scenes:
        """Return the rows of an observation with the teacher's answers."""
        lists = {name: observation[name] for name in LISTS if name in observation}
        return cls(observation["pairs"], observation["mask"], values, lists)

    @classmethod
    def empty(cls, size: int, space: spaces.Space, answer: tuple[int, ...]) -> Scenes:
        """Return `size` rows for observations of a space, with answers of a shape."""
        assert isinstance(space, spaces.Dict)
        shapes = {name: (size, *(one.shape or ())) for name, one in space.items()}
        return cls(
            np.zeros(shapes["pairs"], np.float32),
            np.zeros(shapes["mask"], np.int8),
            np.zeros((size, *answer), np.float32),
            {name: np.full(shapes[name], -1, np.int32) for name in LISTS if name in shapes},
        )


class PartGradient(NamedTuple):
    """Gradient and loss of part of a batch, summed over its decisions."""

    gradient: Iterable[Tensor | None]  # of each parameter
    loss: float
    decisions: int


def sizes(mask: np.ndarray) -> np.ndarray:
    """Return (K, 2), the numbers of sensors and targets up to the last with a valid pair, of masks (K, n, m)."""
    ends = [mask.any(axis) * np.arange(1, mask.shape[3 - axis] + 1) for axis in (2, 1)]
    return np.stack([end.max(-1) for end in ends], -1)


def part(scenes: Scenes, rows: np.ndarray, *, crop: bool) -> Scenes:
    """Return some rows, with `crop` without the last sensors and targets that have no valid pair in any of them."""
    if not crop:
        lists = {name: array[rows] for name, array in scenes.lists.items()}
        return Scenes(scenes.pairs[rows], scenes.mask[rows], scenes.values[rows], lists)
    n, m = np.maximum(sizes(scenes.mask[rows]).max(0, initial=0), 1)
    lists = {name: array[rows, :n] for name, array in scenes.lists.items()}
    if "targets" in lists:
        lists["targets"] = lists["targets"][:, :, :m]
    if "neighbours" in lists:  # those that are cropped have no pair, and so are not attended to
        lists["neighbours"] = np.where(lists["neighbours"] < n, lists["neighbours"], -1)
    return Scenes(scenes.pairs[rows, :n, :m], scenes.mask[rows, :n, :m], scenes.values[rows, :n], lists)


def halves(mask: np.ndarray) -> list[np.ndarray]:
    """Divide rows with their masks into two parts."""
    return np.array_split(np.arange(len(mask)), 2)


def of_like_size(mask: np.ndarray) -> list[np.ndarray]:
    """Divide rows with their masks into nine parts: by their numbers of sensors, and each by the numbers of targets."""
    n, m = sizes(mask).T
    parts = []
    for rows in np.array_split(np.argsort(n, kind="stable"), 3):
        parts += np.array_split(rows[np.argsort(m[rows], kind="stable")], 3)
    return parts


def spread(
    threads: ThreadPoolExecutor, function: Callable[[np.ndarray], _Result], parts: Sequence[np.ndarray]
) -> list[_Result]:
    """Return the results of a function of each part, computed by this thread and those of a pool.

    The pool begins with the first part and this thread with the last. It computes whatever the pool has not begun, so
    that it waits for one part at most.
    """
    futures = [threads.submit(function, one) for one in parts]
    own = {}
    for number in reversed(range(len(parts))):
        if futures[number].cancel():
            own[number] = function(parts[number])
    return [own[number] if number in own else future.result() for number, future in enumerate(futures)]
