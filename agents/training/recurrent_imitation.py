"""Imitation of a planner's action values by a policy that learns a memory."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hitmac.agents.learned.attention_policy import AttentionPolicy
from hitmac.agents.learned.recurrent_policy import RecurrentPolicy
from hitmac.agents.training.imitation import BUFFER_SCENES, Imitation
from hitmac.agents.training.lessons import TurnLesson
from hitmac.agents.training.parts import PartGradient, Scenes
from hitmac.envs.apis.sb3_env import DirectionalSensorVecEnv


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
        policy: class of the policy, :class:`~hitmac.agents.learned.recurrent_policy.RecurrentPolicy`.
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
