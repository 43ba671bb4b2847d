"""Imitation of a planner's action values, as a learner of Stable-Baselines3's kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from hitmac.agents.learned.policy import AttentionPolicy, one_thread_each
from hitmac.agents.learned.recurrent import RecurrentPolicy
from hitmac.agents.training.teacher import (
    PartGradient,
    Scenes,
    TurnLesson,
    halves,
    lesson_of,
    of_like_size,
    part,
    spread,
)
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.perception import FlatEncoder

_LATE = 9  # eta: the higher, the more the latest weights count


def move_average(average: Sequence[Tensor], weights: Sequence[Tensor], updates: Tensor | int) -> None:
    """Move the average of weights after `updates` updates towards the next weights."""
    share = (_LATE + 1) / (int(updates) + 1 + _LATE)
    for one, new in zip(average, weights, strict=True):
        one.lerp_(new, share)


BUFFER_SCENES = 25_600
"""Most scenes that the learner remembers; of large scenes it remembers fewer."""

_BUFFER_BYTES = 2**28
_MIXED_STEPS = 100  # the share of scenes in which the teacher acts falls from 1 to 0


class Imitation(BaseAlgorithm):
    r"""Learner that imitates a teacher's values of the actions, in the scenes that the policy itself comes to.

    At every step the teacher values the actions of every sensor, :math:`Q(a)`, and the policy acts by its own
    distribution :math:`\pi` (in the first hundred steps, in some of the scenes the teacher does). After the step the
    policy is updated on scenes drawn from those of the recent past, by the gradient of

    .. math:: \sum_a -\mathrm{softmax}(Q / \tau)(a) \log \pi(a) + \sum_a \pi(a) (\max_b Q(b) - Q(a)),

    the cross-entropy to the teacher's distribution and the expected regret, averaged over the sensors that act. Values
    tell a mistake that matters from one that does not, which the best actions alone do not. Actions are those of the
    policy, as in DAgger (Ross, Gordon, Bagnell, "A reduction of imitation learning and structured prediction to
    no-regret online learning", AISTATS 2011), and values are imitated as in AggreVaTe (Ross, Bagnell, "Reinforcement
    and imitation learning via interactive no-regret learning", 2014). The policy never sees what the teacher sees
    beyond its own observation.

    The policy that is learned, :attr:`learned`, has the average of the weights after each update, weighted towards the
    later ones: after update k it moves by :math:`(\eta + 1) / (k + \eta)` towards the new weights, :math:`\eta = 9`
    (Shamir, Zhang, "Stochastic gradient descent for non-smooth optimization", ICML 2013, section 4).

    An executor is taught the values of turns towards its goals, and a coordinator the teacher's assignments, by their
    cross-entropy; see :mod:`hitmac.agents.training.teacher`.

    The teacher computes on a thread of its own while the policy is updated. Batches are divided into parts, of scenes
    of like size where sizes vary, which two threads share; their gradients are added up. The result does not depend on
    the threads.

    Args:
        policy: class of the policy.
        env: environments of any task.
        teacher: the teacher; it observes the same scenes, by its own features. It values turns; of a coordinator it is
            a coordinator.
        learning_rate: learning rate of Adam, or its schedule.
        n_steps: steps of each scene in a rollout.
        batch_size: scenes in a gradient step.
        n_epochs: draws from the buffer after each step, per scene of the batch.
        temperature: tau, in the unit of the teacher's values, targets covered for a sub-step; over 0.
        max_grad_norm: norm at which the gradient is clipped.
        policy_kwargs: further arguments of the policy.
        seed: seed of the network and of all draws.
        device: device of the network.
    """

    policy: AttentionPolicy
    env: DirectionalSensorVecEnv

    def __init__(
        self,
        policy: type[AttentionPolicy],
        env: DirectionalSensorVecEnv,
        *,
        teacher: Any,
        learning_rate: float | Schedule = 2e-3,
        n_steps: int = 32,
        batch_size: int = 128,
        n_epochs: int = 2,
        temperature: float = 0.1,
        max_grad_norm: float = 5.0,
        policy_kwargs: dict[str, Any] | None = None,
        seed: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(
            policy,
            env,
            learning_rate,
            policy_kwargs=policy_kwargs,
            seed=seed,
            device=device,
            support_multi_env=True,
            supported_action_spaces=(spaces.MultiDiscrete, spaces.Discrete, spaces.MultiBinary),
        )
        self.lesson = lesson_of(teacher, env, temperature)
        self.n_steps, self.max_grad_norm = n_steps, max_grad_norm
        self.batch_size = min(batch_size, env.num_envs)
        self.num_updates = max(1, round(n_epochs * env.num_envs / self.batch_size))  # after each step
        self.ent_coef = 0.0  # none; a training's schedule sets it
        self._setup_model()

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        self.policy = self.policy_class(  # type: ignore[assignment]
            self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs
        ).to(self.device)
        scenario, encoder = self.env.scenario, self.policy.features_extractor.encoder
        sizes_vary = max(scenario.min_sensors, scenario.min_targets) > 0
        self.varies = sizes_vary and self.lesson.of_scenes and not isinstance(encoder, FlatEncoder)
        self.divide = of_like_size if self.varies else halves
        self.average = AveragedModel(self.policy, multi_avg_fn=move_average)
        self.lesson.warm_up()
        self._allocate()

    def _allocate(self) -> None:
        """Make the buffer."""
        pairs, mask, answer = self._shapes()
        scene_bytes = 4 * int(np.prod(pairs)) + int(np.prod(mask)) + 4 * int(np.prod(answer))
        size = max(
            self.n_envs, min(BUFFER_SCENES * self.n_envs // self.env.task.num_envs, _BUFFER_BYTES // scene_bytes)
        )
        size = -(-size // self.n_envs) * self.n_envs
        self.buffer: Any = Scenes.empty(size, self.observation_space, answer)

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of a scene's pairs, mask and answer."""
        space = self.observation_space
        assert isinstance(space, spaces.Dict)
        pairs, mask = space["pairs"].shape, space["mask"].shape
        assert pairs is not None
        assert mask is not None
        return pairs, mask, self.lesson.shape

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "Imitation",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Learn for at least `total_timesteps` steps over all scenes, in whole rollouts; see Stable-Baselines3."""
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
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

    @property
    def learned(self) -> AttentionPolicy:
        """Policy with the average of the weights."""
        policy = self.average.module
        assert isinstance(policy, AttentionPolicy)
        return policy

    @property
    def phase(self) -> str:
        """Name of the phase of the training: the teacher acts in some of the scenes, or the policy in all."""
        return "mixed actions" if self.num_timesteps < _MIXED_STEPS * self.n_envs else "own actions"

    def _step(self, teaching: ThreadPoolExecutor, learning: ThreadPoolExecutor) -> tuple[np.ndarray, list[float]]:
        """Act, learn from scenes of the past, and remember the present ones; return rewards and losses."""
        assert isinstance(self._last_obs, dict)
        observation = self._last_obs
        assert self._last_episode_starts is not None
        taught = teaching.submit(self.lesson.answer, self.lesson.observe(), self._last_episode_starts)
        actions = self._act(observation, learning)
        step = self.num_timesteps // self.n_envs
        losses = [self._update(learning) for _ in range(self._updates_after(step))]
        values = taught.result()
        self._remember(Scenes.of(observation, values), step)
        if step < _MIXED_STEPS:
            taken = torch.rand(self.n_envs, device="cpu").numpy() < 1 - step / _MIXED_STEPS
            actions[taken] = self.lesson.best(values)[taken].reshape(actions[taken].shape)
        self._last_obs, rewards, dones, infos = self.env.step(actions)  # type: ignore[assignment]
        self._last_episode_starts = dones
        self._update_info_buffer(infos, dones)
        self.num_timesteps += self.n_envs
        return rewards, losses

    def _updates_after(self, step: int) -> int:
        """Return the number of updates after a step."""
        return self.num_updates if step else 0

    def _remember(self, scenes: Scenes, step: int) -> None:
        """Put the scenes of a step into the buffer, in place of the oldest."""
        first = step * self.n_envs % len(self.buffer.pairs)
        for name, array in self.buffer.arrays.items():
            array[first : first + self.n_envs] = scenes.arrays[name]

    def _act(self, observation: dict[str, np.ndarray], threads: ThreadPoolExecutor) -> np.ndarray:
        """Return actions of the policy's distribution."""
        answers = np.broadcast_to(np.float32(0.0), (self.n_envs, *self.lesson.shape))  # unknown yet
        scenes = Scenes.of(observation, answers)

        def logits_of(rows: np.ndarray) -> Tensor:
            tensors = self._tensors(part(scenes, rows, crop=self.varies))
            with torch.no_grad():
                return self.policy.logits({name: x for name, x in tensors.items() if name != "values"}).cpu()

        parts = self.divide(scenes.mask)
        found = spread(threads, logits_of, parts)
        _, j, _, k = found[0].shape
        logits = torch.zeros(self.n_envs, j, self.lesson.shape[0], k, device="cpu")
        logits[..., 1:] = torch.finfo(logits.dtype).min  # sensors that are cropped stay
        for rows, some in zip(parts, found, strict=True):
            logits[torch.from_numpy(rows), :, : some.shape[2]] = some
        return self._sampled(logits)

    def _sampled(self, logits: Tensor) -> np.ndarray:
        """Return actions of the distribution that logits (rows, j, n, k), on the CPU, give."""
        sample = self.policy.action_dist.proba_distribution(action_logits=logits.flatten(1)).sample()
        return sample.numpy().reshape(-1, *(self.action_space.shape or ())).astype(self.action_space.dtype)

    def _chosen(self, filled: int) -> np.ndarray:
        """Draw the scenes of a batch, out of the first `filled`."""
        return torch.randint(filled, (self.batch_size,), device="cpu").numpy()

    def _drawn(self) -> list[np.ndarray]:
        """Draw a batch; return its rows of the buffer in parts."""
        chosen = self._chosen(self._filled)
        return [chosen[rows] for rows in self.divide(self.buffer.mask[chosen])]

    @property
    def _filled(self) -> int:
        """Number of the buffer's rows that hold something."""
        return min(self.num_timesteps, len(self.buffer.pairs))

    def _update(self, threads: ThreadPoolExecutor) -> float:
        """Make one gradient step on scenes drawn from the buffer; return the loss."""
        parts = spread(threads, self._gradient, self._drawn())
        number = sum(one.decisions for one in parts)
        if number == 0:
            return 0.0
        for parameter, *gradients in zip(self.policy.parameters(), *(one.gradient for one in parts), strict=True):
            known = [gradient for gradient in gradients if gradient is not None]
            parameter.grad = sum(known[1:], known[0]) / number if known else None
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self.average.update_parameters(self.policy)
        self._n_updates += 1
        return sum(one.loss for one in parts) / number

    def _gradient(self, rows: np.ndarray) -> PartGradient:
        """Return the loss in remembered scenes and its gradient, summed over decisions."""
        tensors = self._tensors(part(self.buffer, rows, crop=self.varies))
        pairs, mask, answers = (tensors.pop(name) for name in ("pairs", "mask", "values"))
        loss, decisions = self.lesson.loss(self.policy, pairs, mask, answers, **tensors)
        gradient = torch.autograd.grad(loss, list(self.policy.parameters()), allow_unused=True)
        return PartGradient(gradient, loss.item(), decisions)

    def _tensors(self, scenes: Scenes) -> dict[str, Tensor]:
        return dict(zip(scenes.arrays, self._on_device(scenes.arrays.values()), strict=True))

    def _on_device(self, arrays: Iterable[np.ndarray]) -> list[Tensor]:
        return [torch.from_numpy(array).to(self.device) for array in arrays]

    def get_state(self) -> dict[str, np.ndarray]:
        """Return what is remembered, by name: scenes, the teacher's state and the average of the weights."""
        state = {name: array[: self._filled] for name, array in self.buffer.arrays.items()}
        state |= {f"teacher/{number}": array for number, array in enumerate(self.lesson.memory or ())}
        return state | {f"average/{name}": tensor.cpu().numpy() for name, tensor in self.average.state_dict().items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Remember what :meth:`get_state` returned."""
        for name, array in self.buffer.arrays.items():
            array[: len(state[name])] = state[name]
        number = sum(name.startswith("teacher/") for name in state)
        self.lesson.memory = tuple(state[f"teacher/{one}"] for one in range(number)) or None
        self.average.load_state_dict(
            {name: torch.from_numpy(state[f"average/{name}"]) for name in self.average.state_dict()}
        )


class Sequences(NamedTuple):
    """Observations of scenes at T steps in a row, with the teacher's answers to them."""

    pairs: np.ndarray  # (K, T, n, m, d) float32
    values: np.ndarray  # (K, T, n, 3 k) float32
    starts: np.ndarray  # (K, T) bool: steps with which an episode begins
    states: np.ndarray  # (K, n, m, f) float32: the policy's state before the first step

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return self._asdict()


class RecurrentImitation(Imitation):
    """Imitation by a policy with a recurrent state, by truncated backpropagation through time.

    It learns as :class:`~hitmac.agents.training.imitation.Imitation` does, from sequences in place of scenes: those of
    the last whole rollouts, each with the state that the policy had at its beginning. A gradient goes back to the
    beginning of the rollout; an episode that ends in it resets the state.

    Args:
        policy: class of the policy, :class:`~hitmac.agents.learned.recurrent.RecurrentPolicy`.
        env: environments of a task in which the policy turns all sensors.
        batch_size: scenes in a gradient step, of whole sequences of n_steps.
        n_epochs: draws from the buffer, per scene of a rollout.
        **options: as of :class:`~hitmac.agents.training.imitation.Imitation`.
    """

    policy: RecurrentPolicy
    lesson: TurnLesson

    def __init__(
        self,
        policy: type[AttentionPolicy],
        env: DirectionalSensorVecEnv,
        *,
        batch_size: int = 512,
        n_steps: int = 32,
        n_epochs: int = 2,
        **options: Any,
    ) -> None:
        self._state: Tensor | None = None  # the policy's, (B, n, m, f)
        self._state_before: Tensor | None = None
        sequences = max(1, batch_size // n_steps)
        super().__init__(policy, env, batch_size=sequences, n_steps=n_steps, n_epochs=n_epochs, **options)

    def _allocate(self) -> None:
        """Make the buffer: several whole rollouts, and the present one."""
        pairs, _, answer = self._shapes()
        self._rollouts = max(1, BUFFER_SCENES // (self.n_steps * self.n_envs)) + 1
        size = self._rollouts * self.n_envs
        self.buffer = Sequences(
            np.zeros((size, self.n_steps, *pairs), np.float32),
            np.zeros((size, self.n_steps, *answer), np.float32),
            np.zeros((size, self.n_steps), np.bool_),
            np.zeros((size, *pairs[:2], self.policy.features_extractor.memory.width), np.float32),
        )

    def _act(self, observation: dict[str, np.ndarray], threads: ThreadPoolExecutor) -> np.ndarray:
        """Return actions of the policy's distribution, and let the policy remember."""
        pairs, starts = self._on_device((observation["pairs"], self._starts))
        self._state_before = self._state
        with torch.no_grad():
            logits, _, self._state = self.policy.unroll(pairs[None], self._state, starts[None])
        return self._sampled(logits.cpu())

    @property
    def _starts(self) -> np.ndarray:
        """Scenes (B,) bool in which an episode begins."""
        return np.asarray(self._last_episode_starts, np.bool_)

    def _remember(self, scenes: Scenes, step: int) -> None:
        """Put the scenes of a step into the sequences of the present rollout, which replace the oldest."""
        rollout, at = divmod(step, self.n_steps)
        first = rollout % self._rollouts * self.n_envs
        rows = slice(first, first + self.n_envs)
        if at == 0:
            self.buffer.states[rows] = 0.0 if self._state_before is None else self._state_before.cpu().numpy()
        self.buffer.pairs[rows, at], self.buffer.values[rows, at] = scenes.pairs, scenes.values
        self.buffer.starts[rows, at] = self._starts

    def _updates_after(self, step: int) -> int:
        """Return the number of updates after a step: those of a rollout are spread over its steps."""
        rollout, at = divmod(step, self.n_steps)
        return (at + 1) * self.num_updates // self.n_steps - at * self.num_updates // self.n_steps if rollout else 0

    def _drawn(self) -> list[np.ndarray]:
        """Draw sequences of the whole rollouts that are remembered; return their rows of the buffer in two parts."""
        now = self.num_timesteps // (self.n_steps * self.n_envs)
        chosen = self._chosen(min(now, self._rollouts - 1) * self.n_envs)
        back, scene = np.divmod(chosen, self.n_envs)
        rows = (now - 1 - back) % self._rollouts * self.n_envs + scene
        return np.array_split(rows, 2)

    @property
    def _filled(self) -> int:
        """Number of the buffer's rows that hold a whole sequence."""
        return min(self.num_timesteps // self.n_steps, len(self.buffer.pairs))

    def _gradient(self, rows: np.ndarray) -> PartGradient:
        """Return the loss in remembered sequences and its gradient, summed over decisions."""
        arrays = self.buffer.arrays.values()
        pairs, values, starts, states = self._on_device(array[rows] for array in arrays)
        logits, acting, _ = self.policy.unroll(pairs.transpose(0, 1), states, starts.mT)
        values = values.transpose(0, 1).flatten(0, 1)
        acting = acting & values.isfinite().all(-1)  # a planner without beliefs has no values where no target is known
        loss, decisions = self.lesson.loss_of(logits, acting, values)
        gradient = torch.autograd.grad(loss, list(self.policy.parameters()), allow_unused=True)
        return PartGradient(gradient, loss.item(), decisions)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return what is remembered, by name; also the policy's state."""
        own = {} if self._state is None else {"state": self._state.cpu().numpy()}
        return super().get_state() | own

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Remember what :meth:`get_state` returned."""
        super().set_state(state)
        self._state = torch.from_numpy(state["state"]).to(self.device) if "state" in state else None
