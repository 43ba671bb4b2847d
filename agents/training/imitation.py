"""Imitation of a planner: labels of a teacher, their loss, and learners of Stable-Baselines3's kind."""

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim.swa_utils import AveragedModel

from hitmac.agents.duel import memory_of, set_memory
from hitmac.agents.learned.policy import RATES, AttentionPolicy
from hitmac.agents.learned.recurrent import RecurrentPolicy
from hitmac.agents.planning.levels import plan_and_assign
from hitmac.agents.policy import named_arrays, nested_arrays, one_thread_each, padded_actions, units_of
from hitmac.agents.training.parts import by_size, halves, in_parallel, learn_from, select
from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.observation import Observer
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.tasks.base import flatten_sensors
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.perception import FlatEncoder

BUFFER_SCENES = 25_600
"""Maximum number of scenes in a learner's buffer; fewer if they are large."""

_BUFFER_BYTES = 2**28
_MIXED_STEPS = 100  # the share of scenes in which the teacher acts falls from 1 to 0
_LATE = 9  # eta: the higher, the more the latest weights count
_REGRET = 1.0  # of other actions than 0 in decisions without a teacher


# Labels.


class TurnLabels:
    """Values (n, 3 k) of a teacher's k decisions, for policies that turn the sensors of whole scenes.

    The loss is that of :func:`imitation_loss`, over the sensors that act. In rows of single sensors, also those that
    work and know no target act.

    The teacher is a :class:`~hitmac.agents.planning.planner.PlanningPolicy`, and observes the scenes with its own
    ``features``. Of an executor, it observes rows (R, m, d) and returns values (R, 3).
    """

    def __init__(self, teacher: Any, env: DirectionalSensorVecEnv, temperature: float) -> None:
        self.teacher, self.env, self.temperature = teacher, env, temperature
        self.observer: Any = DetectionObserver(env.scenario)
        if env.scenario.identities:
            self.observer = Observer(env.scenario, teacher.features, **teacher.shown({}))
        self.state: tuple[np.ndarray, ...] | None = None
        self.decides: tuple[str, ...] = teacher.decides
        # A single sensor without known targets decides where to look; in a whole scene it stays.
        self.searches = env.per_sensor and env.task.spec.role == "agent"
        sensors = env.observation_space["mask"].shape[:-1] or (1,)  # type: ignore[index]
        self.shape: tuple[int, ...] = (*sensors, 3 * len(self.decides))
        self.units: Tensor | None = None  # (j, n) shares that the steps 1 are, where the policy decides rates
        if isinstance(env.action_space, spaces.Box):
            units = units_of(env.scenario)
            self.units = torch.from_numpy(units.reshape(len(units), sensors[0], -1).mean(-1)).float()

    def observe(self) -> dict[str, np.ndarray]:
        """Return the teacher's observation of the present scenes, with ``pairs`` and ``mask``."""
        return self.observer.observe(self.env.task.simulator)

    def label(self, seen: dict[str, np.ndarray], starts: np.ndarray) -> np.ndarray:
        """Return the labels (rows, ...) float32 of a result of :meth:`observe`, and update the teacher's state.

        `starts` (rows,) bool marks the rows in which an episode begins.
        """
        starts = starts.reshape(len(seen["mask"]), -1)[:, 0].astype(bool)
        values, self.state = self.teacher.plan_on(seen, self.state, starts)
        return self._by_sensor(values)

    def _by_sensor(self, values: np.ndarray) -> np.ndarray:
        """Return the values of a plan, decision by decision, as labels, sensor by sensor."""
        return values.reshape(len(values), len(self.decides), -1, 3).swapaxes(1, 2).reshape(-1, *self.shape)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the arrays of the teacher's state."""
        return dict(named_arrays("teacher", self.state or ()))

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the result of :meth:`get_state`, out of `arrays`."""
        self.state = nested_arrays("teacher", arrays) or None

    def best(self, labels: np.ndarray) -> np.ndarray:
        """Return the teacher's best actions of rows, with 0 for decisions that it does not take."""
        actions = labels.reshape(*labels.shape[:2], -1, 3).argmax(-1)  # (rows, n, k)
        actions = actions.swapaxes(1, 2).reshape(len(actions), -1)
        actions = padded_actions(actions, self.decides, self.env.scenario.decisions)
        if self.units is None:
            return actions
        signs = np.array([0.0, 1.0, -1.0])[actions].reshape(len(actions), -1, self.shape[0])
        return (signs * self.units.numpy()).reshape(actions.shape)

    def loss(self, policy: AttentionPolicy, observation: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, int]:
        """Return the sum of the policy's losses over the decisions in rows, and their number."""
        acting = observation["mask"].bool().any(-1).reshape(labels.shape[:2])  # (S, n)
        if self.searches:
            acting = torch.ones_like(acting)
        return self.loss_of(policy.logits(observation), acting, labels)

    def loss_of(self, logits: Tensor, acting: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        """Return the same for logits (S, j, n, 3), sensors that act (S, n) bool and labels (S, n, 3 k).

        Labels are finite only for sensors that work and whose turns the teacher can value; the others do not count.
        """
        acting = acting & labels.isfinite().all(-1)
        values = dict(zip(self.decides, labels[acting].unflatten(-1, (-1, 3)).unbind(1), strict=True))
        kept = labels.new_tensor([0.0, -_REGRET, -_REGRET]).expand(int(acting.sum()), 3)
        losses = []
        for k, name in enumerate(self.env.scenario.decisions):
            taught = values.get(name, kept)
            if self.units is not None:
                units = self.units[k, : acting.shape[1]].to(logits.device).expand_as(acting)[acting]
                taught = values_of_rates(taught, units)
            losses.append(imitation_loss(logits[:, k][acting], taught, self.temperature))
        return torch.stack(losses).sum(), len(kept)


class GoalLabels(TurnLabels):
    """Values of the turns of a sensor towards its goals, for executors; the teacher observes the goals only.

    In a game the teacher is a planner of whole scenes, which also assigns the next goals,
    :func:`~hitmac.agents.planning.levels.plan_and_assign`.
    """

    def label(self, seen: dict[str, np.ndarray], starts: np.ndarray) -> np.ndarray:
        """See :meth:`TurnLabels.label`."""
        if not self.env.scenario.is_game:
            return super().label(seen, starts)
        starts = starts.reshape(len(seen["mask"]), -1)[:, 0].astype(bool)
        given = seen["pairs"], seen["mask"] != 0, self.state, starts
        values, goals, self.state = plan_and_assign(self.teacher, *given, **self.teacher.lists_of(seen))
        assert self.env.task.assigned is not None
        self.env.task.assigned[:] = goals
        return self._by_sensor(values)

    def observe(self) -> dict[str, np.ndarray]:
        """See :meth:`TurnLabels.observe`; with a row for each sensor, and a valid pair for each goal at its target."""
        seen = super().observe()
        if self.env.scenario.is_game:
            return seen
        assert self.env.task.assigned is not None
        return flatten_sensors({"pairs": seen["pairs"], "mask": seen["mask"] * self.env.task.assigned})


class AssignmentLabels(TurnLabels):
    """Assignments (n * m) of targets to sensors by a coordinator, for coordinators.

    The loss is the cross-entropy to the assignment, over the valid pairs.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shape = self.env.action_space.shape or ()

    def label(self, seen: dict[str, np.ndarray], starts: np.ndarray) -> np.ndarray:
        """See :meth:`TurnLabels.label`; the teacher's memory is kept if it decides at every sub-step."""
        labels, state = self.teacher.predict(seen, self.state, starts.astype(bool), deterministic=True)
        self.state = state if self.env.task.sub_steps == 1 else None
        return labels.astype(np.float32)

    def best(self, labels: np.ndarray) -> np.ndarray:
        """See :meth:`TurnLabels.best`."""
        return labels.astype(np.int8)

    def loss(self, policy: AttentionPolicy, observation: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, int]:
        """See :meth:`TurnLabels.loss`."""
        valid = observation["mask"].flatten(1).bool()
        logits = policy.logits(observation).flatten(1)[valid]  # of S * n * m
        return binary_cross_entropy_with_logits(logits, labels[valid], reduction="sum"), len(logits)


class MoveLabels:
    """Values (1, k) of the k moves of a target by a player of the targets, for policies of one target.

    They are those of its method ``values(duel, starts)``, (B, m, k); without one, minus the distance of a move from the
    player's, in steps.
    """

    def __init__(self, teacher: Any, env: DirectionalSensorVecEnv, temperature: float) -> None:
        self.teacher, self.env, self.temperature = teacher, env, temperature
        self.shape = (1, int(env.action_space.n))  # type: ignore[attr-defined]

    def observe(self) -> Any:
        """Return the game, which does not move before the labels are computed."""
        return self.env.task.simulator

    def label(self, seen: Any, starts: np.ndarray) -> np.ndarray:
        """See :meth:`TurnLabels.label`."""
        starts = starts.reshape(seen.num_envs, -1)[:, 0].astype(bool)
        if hasattr(self.teacher, "values"):
            values = self.teacher.values(seen, starts)
        else:
            step = seen.state.speed[..., None] * seen.scenario.time_step
            taken = self.teacher.act(seen, starts, np.ones_like(starts)) / step  # (B, m, 2)
            values = -np.linalg.norm(MOVES - taken[:, :, None], axis=-1)
        return values.reshape(-1, *self.shape).astype(np.float32)

    def get_state(self) -> dict[str, np.ndarray]:
        """See :meth:`TurnLabels.get_state`."""
        return memory_of(self.teacher, "teacher")

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """See :meth:`TurnLabels.set_state`."""
        set_memory(self.teacher, "teacher", arrays)

    def best(self, labels: np.ndarray) -> np.ndarray:
        """See :meth:`TurnLabels.best`."""
        return labels.argmax(-1)

    def loss(self, policy: AttentionPolicy, observation: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, int]:
        """See :meth:`TurnLabels.loss`."""
        return imitation_loss(policy.logits(observation)[:, 0], labels, self.temperature).sum(), len(labels)


LABELS = {"agent": TurnLabels, "executor": GoalLabels, "coordinator": AssignmentLabels, "targets": MoveLabels}
"""Labels by the role of the policy."""


def imitation_loss(logits: Tensor, values: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy to the softmax of the teacher's values, plus the expected regret, of each decision.

    The policy's logits and the values are (..., k), the result is (...,). The temperature has the unit of the values.
    """
    log_policy = logits.log_softmax(-1)
    cross_entropy = -((values / temperature).softmax(-1) * log_policy).sum(-1)
    regret = (log_policy.exp() * (values.amax(-1, keepdim=True) - values)).sum(-1)
    return cross_entropy + regret


def values_of_rates(values: Tensor, units: Tensor) -> Tensor:
    """Return the values (..., k) of the :data:`RATES`, given those of staying, of `units` and of its opposite (..., 3).

    Between these three rates they are linear. The rate just beyond `units` (...,) has the value of `units`, and others
    beyond it have the lowest of the three.
    """
    rates = values.new_tensor(RATES)
    share = rates / units.unsqueeze(-1)
    stay, ahead, back = values.unsqueeze(-1).unbind(-2)
    between = stay + share.clamp(0.0, 1.0) * (ahead - stay) + (-share).clamp(0.0, 1.0) * (back - stay)
    beyond = rates.abs() > units.abs().unsqueeze(-1) + (RATES[1] - 1e-6)
    return torch.where(beyond, values.amin(-1, keepdim=True), between)


# Learners.


class Imitation(BaseAlgorithm):
    r"""Learner that imitates a teacher's values of the actions, in the scenes that the policy itself reaches.

    At every step the teacher values the actions of every sensor, :math:`Q(a)`, and the policy acts by its own
    distribution :math:`\pi` (in the first hundred steps the teacher acts in some of the scenes). After the step the
    policy is updated on scenes drawn from recent ones, by the gradient of :func:`imitation_loss`,

    .. math:: \sum_a -\mathrm{softmax}(Q / \tau)(a) \log \pi(a) + \sum_a \pi(a) (\max_b Q(b) - Q(a)),

    averaged over the sensors that act. Values, unlike the best actions alone, distinguish mistakes that matter from
    those that do not. Actions are those of the policy, as in DAgger (Ross, Gordon, Bagnell, "A reduction of imitation
    learning and structured prediction to no-regret online learning", AISTATS 2011), and values are imitated as in
    AggreVaTe (Ross, Bagnell, "Reinforcement and imitation learning via interactive no-regret learning", 2014).

    The result, :attr:`learned`, has the average of the weights after each update, weighted towards the later ones:
    after update k it moves by :math:`(\eta + 1) / (k + \eta)` towards the new weights, :math:`\eta = 9` (Shamir,
    Zhang, "Stochastic gradient descent for non-smooth optimization", ICML 2013, section 4).

    The teacher computes in its own thread while the policy is updated. Two threads share the parts of a batch, which
    hold scenes of similar size where sizes vary, and whose gradients are summed. The result does not depend on the
    threads.

    Args:
        policy, env: class of the policy, and environments of any task.
        teacher: that of the :data:`LABELS` for the role of the policy.
        learning_rate, max_grad_norm: learning rate of Adam, or its schedule; norm at which the gradient is clipped.
        n_steps: steps of each scene in a rollout.
        batch_size: scenes in a gradient step.
        n_epochs: draws from the buffer after each step, per scene of the batch.
        temperature: tau, in the unit of the teacher's values, targets covered for a sub-step; above 0.
        **options: further arguments of Stable-Baselines3's learners: ``policy_kwargs``, ``seed``, ``device``.
    """

    policy: AttentionPolicy
    env: DirectionalSensorVecEnv
    _row_steps = 1  # steps in a row of the buffer

    def __init__(
        self,
        policy: type[AttentionPolicy],
        env: DirectionalSensorVecEnv,
        *,
        teacher: Any,
        learning_rate: float | Schedule,
        n_steps: int,
        batch_size: int,
        n_epochs: int,
        temperature: float,
        max_grad_norm: float,
        **options: Any,
    ) -> None:
        super().__init__(policy, env, learning_rate, support_multi_env=True, **options)
        self.labels = LABELS[env.task.spec.role](teacher, env, temperature)
        self.n_steps, self.max_grad_norm = n_steps, max_grad_norm
        self.batch_size = min(batch_size, env.num_envs)
        self.num_updates = max(1, round(n_epochs * env.num_envs / self.batch_size))  # after each step
        self._setup_model()

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        space: Any = self.observation_space
        policy: Any = self.policy_class(space, self.action_space, self.lr_schedule, **self.policy_kwargs)
        self.policy = policy.to(self.device)
        shapes = {name: one.shape for name, one in space.items()}
        rows_are_scenes = len(self.labels.shape) == len(shapes.get("mask", ())) == 2
        sizes_vary = max(self.env.scenario.min_sensors, self.env.scenario.min_targets) > 0
        any_size = not isinstance(self.policy.features_extractor.encoder, FlatEncoder)
        self.varies = sizes_vary and rows_are_scenes and any_size
        self.divide = by_size if self.varies else halves
        self._sizes = "mask" if "mask" in shapes else next(iter(shapes))  # the part that gives the sizes of rows
        self.average = AveragedModel(
            self.policy,
            avg_fn=lambda average, new, updates: average.lerp(new, (_LATE + 1) / (int(updates) + 1 + _LATE)),
        )
        self.learned: Any = self.average.module
        self.labels.label(self.labels.observe(), np.ones(self.n_envs, np.bool_))  # compiles before any clock starts
        self.labels.state = None
        self.buffer = self._empty_buffer(shapes)

    def _empty_buffer(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Return the buffer, for observations of these shapes with their labels: rows of the environments, by step."""
        space: Any = self.observation_space
        types = {name: one.dtype for name, one in space.items()} | {"values": np.dtype(np.float32)}
        shapes = shapes | {"values": self.labels.shape}
        lists = [name for name, kind in types.items() if kind == np.int32]
        row_bytes = sum(types[name].itemsize * math.prod(shapes[name]) for name in types.keys() - lists)
        most = min(BUFFER_SCENES * self.n_envs // self.env.task.num_envs, _BUFFER_BYTES // row_bytes)
        size = -(-max(self.n_envs, most) // self.n_envs) * self.n_envs
        return {name: np.zeros((size, *shape), types[name]) for name, shape in shapes.items()}

    def learn(self, total_timesteps: int, callback: MaybeCallback = None, *args: Any, **options: Any) -> Self:
        """Learn for at least `total_timesteps` steps over all scenes, in whole rollouts; see Stable-Baselines3."""
        total_timesteps, callback = self._setup_learn(total_timesteps, callback, *args, **options)
        callback.on_training_start(locals(), globals())
        with ThreadPoolExecutor(1) as teaching, ThreadPoolExecutor(1) as learning, one_thread_each():
            while self.num_timesteps < total_timesteps:
                callback.on_rollout_start()
                self._update_current_progress_remaining(self.num_timesteps, total_timesteps)
                self._update_learning_rate(self.policy.optimizer)
                losses = []
                for _ in range(self.n_steps):
                    rewards, loss = self._step(teaching, learning)
                    losses += loss
                    callback.update_locals({"rewards": rewards, "new_obs": self._last_obs})
                    if not callback.on_step():
                        return self
                callback.on_rollout_end()
                self.logger.record("train/loss", float(np.mean(losses)) if losses else 0.0)
                self.logger.dump(self.num_timesteps)
        callback.on_training_end()
        return self

    def _step(self, teaching: ThreadPoolExecutor, learning: ThreadPoolExecutor) -> tuple[np.ndarray, list[float]]:
        """Act, learn from scenes of the past, and store the present ones; return rewards and losses."""
        observation: Any = self._last_obs
        starts, step = np.asarray(self._last_episode_starts), self.num_timesteps // self.n_envs
        labelled = teaching.submit(self.labels.label, self.labels.observe(), starts)
        actions = self._act(observation, learning)
        losses = [self._update(learning) for _ in range(self._updates_after(step))]
        labels = labelled.result()
        self._store(observation, labels, step)
        if step < _MIXED_STEPS:
            taken = torch.rand(self.n_envs, device="cpu").numpy() < 1 - step / _MIXED_STEPS
            actions[taken] = self.labels.best(labels)[taken].reshape(actions[taken].shape)
        self._last_obs, rewards, self._last_episode_starts, _ = self.env.step(actions)  # type: ignore[assignment]
        self.num_timesteps += self.n_envs
        return rewards, losses

    def _act(self, observation: dict[str, np.ndarray], threads: ThreadPoolExecutor) -> np.ndarray:
        """Return actions of the policy's distribution."""

        def logits_of(rows: np.ndarray) -> Tensor:
            with torch.no_grad():
                return self.policy.logits(self._tensors(select(observation, rows, crop=self.varies))).cpu()

        parts = self.divide(observation[self._sizes])
        found = in_parallel(threads, logits_of, parts)
        _, j, _, k = found[0].shape
        logits = torch.zeros(self.n_envs, j, self.labels.shape[0], k, device="cpu")
        logits[..., 1:] = torch.finfo(logits.dtype).min  # cropped sensors stay
        for rows, some in zip(parts, found, strict=True):
            logits[torch.from_numpy(rows), :, : some.shape[2]] = some
        return self._sampled(logits)

    def _sampled(self, logits: Tensor) -> np.ndarray:  # (rows, j, n, k) on the CPU
        sample = self.policy.action_dist.proba_distribution(action_logits=logits.flatten(1)).sample()
        return sample.numpy().reshape(-1, *(self.action_space.shape or ())).astype(self.action_space.dtype)

    def _updates_after(self, step: int) -> int:
        return self.num_updates if step else 0  # the buffer is empty at first

    def _store(self, observation: dict[str, np.ndarray], labels: np.ndarray, step: int) -> None:
        """Store the scenes of a step in the buffer, in place of the oldest."""
        first = step * self.n_envs % len(self.buffer["values"])
        for name, array in self.buffer.items():
            array[first : first + self.n_envs] = labels if name == "values" else observation[name]

    @property
    def _filled(self) -> int:
        """Number of filled rows of the buffer; sequences count when they are complete."""
        return min(self.num_timesteps // self._row_steps, len(self.buffer["values"]))

    def _update(self, threads: ThreadPoolExecutor) -> float:
        """Make one gradient step on scenes drawn from the buffer; return the loss."""
        loss = learn_from(self._drawn(), self._loss, self.policy, self.max_grad_norm, threads)
        if loss is None:
            return 0.0
        self.average.update_parameters(self.policy)
        self._n_updates += 1
        return loss.item()

    def _drawn(self) -> list[np.ndarray]:
        """Draw a batch; return its rows of the buffer in parts."""
        chosen = self._chosen(self._filled)
        return [chosen[rows] for rows in self.divide(self.buffer[self._sizes][chosen])]

    def _chosen(self, filled: int) -> np.ndarray:
        return torch.randint(filled, (self.batch_size,), device="cpu").numpy()

    def _loss(self, rows: np.ndarray) -> tuple[Tensor, int]:
        observation = self._tensors(select(self.buffer, rows, crop=self.varies))
        labels = observation.pop("values")
        return self.labels.loss(self.policy, observation, labels)

    def _tensors(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the arrays that the rest of the training depends on: buffer, teacher's state, average of weights."""
        state = {name: array[: self._filled] for name, array in self.buffer.items()}
        state |= self.labels.get_state()
        return state | {f"average/{name}": tensor.cpu().numpy() for name, tensor in self.average.state_dict().items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the result of :meth:`get_state`."""
        for name, array in self.buffer.items():
            array[: len(state[name])] = state[name]
        self.labels.set_state(state)
        self.average.load_state_dict(
            {name: torch.from_numpy(state[f"average/{name}"]) for name in self.average.state_dict()}
        )


class RecurrentImitation(Imitation):
    """Imitation by a :class:`~hitmac.agents.learned.recurrent.RecurrentPolicy`, by truncated backpropagation in time.

    It learns from sequences: the last complete rollouts, each with the policy's state at its beginning, to which
    gradients reach back. The end of an episode resets the state. A gradient step is on `batch_size` scenes, in complete
    sequences of `n_steps`.
    """

    policy: RecurrentPolicy

    def __init__(self, *args: Any, batch_size: int, n_steps: int, **options: Any) -> None:
        self._row_steps = n_steps
        super().__init__(*args, batch_size=max(1, batch_size // n_steps), n_steps=n_steps, **options)
        shape = self.n_envs, *self.buffer["states"].shape[1:]
        self._state = torch.zeros(shape, device=self.device)  # the policy's

    def _empty_buffer(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Return the buffer: sequences of several complete rollouts, and of the present one."""
        n, m, d = shapes["pairs"]
        self._rollouts = max(1, BUFFER_SCENES // (self.n_steps * self.n_envs)) + 1
        size, width = self._rollouts * self.n_envs, self.policy.features_extractor.memory.width
        return {
            "pairs": np.zeros((size, self.n_steps, n, m, d), np.float32),
            "values": np.zeros((size, self.n_steps, *self.labels.shape), np.float32),
            "starts": np.zeros((size, self.n_steps), np.bool_),  # steps with which an episode begins
            "states": np.zeros((size, n, m, width), np.float32),  # the policy's state before the first step
        }

    def _act(self, observation: dict[str, np.ndarray], threads: ThreadPoolExecutor) -> np.ndarray:
        """Return actions of the policy's distribution, and update the policy's state."""
        observation["starts"] = np.asarray(self._last_episode_starts, np.bool_)  # (B,)
        seen = self._tensors({name: observation[name][None] for name in ("pairs", "starts")})
        self._state_before = self._state
        with torch.no_grad():
            logits, _, self._state = self.policy.unroll(seen["pairs"], self._state, seen["starts"])
        return self._sampled(logits.cpu())

    def _store(self, observation: dict[str, np.ndarray], labels: np.ndarray, step: int) -> None:
        """Store the scenes of a step in the sequences of the present rollout, which replace the oldest."""
        rollout, at = divmod(step, self.n_steps)
        first = rollout % self._rollouts * self.n_envs
        rows = slice(first, first + self.n_envs)
        if at == 0:
            self.buffer["states"][rows] = self._state_before.cpu().numpy()
        for name, array in (observation | {"values": labels}).items():
            if name in self.buffer:
                self.buffer[name][rows, at] = array

    def _updates_after(self, step: int) -> int:
        """Return the number of updates after a step, which distributes those of a rollout over its steps."""
        rollout, at = divmod(step, self.n_steps)
        return (at + 1) * self.num_updates // self.n_steps - at * self.num_updates // self.n_steps if rollout else 0

    def _drawn(self) -> list[np.ndarray]:
        """Draw sequences of the complete rollouts in the buffer; return their rows in two parts."""
        now = self.num_timesteps // (self.n_steps * self.n_envs)
        chosen = self._chosen(min(now, self._rollouts - 1) * self.n_envs)
        back, scene = np.divmod(chosen, self.n_envs)
        rows = (now - 1 - back) % self._rollouts * self.n_envs + scene
        return np.array_split(rows, 2)

    def _loss(self, rows: np.ndarray) -> tuple[Tensor, int]:
        found = self._tensors({name: array[rows] for name, array in self.buffer.items()})
        logits, acting, _ = self.policy.unroll(found["pairs"].transpose(0, 1), found["states"], found["starts"].mT)
        values = found["values"].transpose(0, 1).flatten(0, 1)
        return self.labels.loss_of(logits, acting, values)

    def get_state(self) -> dict[str, np.ndarray]:
        """See :meth:`Imitation.get_state`; with the policy's state."""
        return super().get_state() | {"state": self._state.cpu().numpy()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """See :meth:`Imitation.set_state`."""
        super().set_state(state)
        self._state = torch.from_numpy(state["state"]).to(self.device)
