"""Env runner of RLlib that steps a batch of scenes at once.

RLlib's own env runner goes over the scenes one by one at every step, in Python. This one keeps arrays over all scenes
and gives a scene its own record, an episode of RLlib, once in a rollout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import ray
import torch
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO

from hitmac.agents.training.config import Options
from hitmac.agents.training.learner import make_environments
from hitmac.envs.scenario import Scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

ACTING, ACTING_NEXT = "acting", "acting_next"
"""Columns that say whether a sensor of a row acts in a step, and in the one after it."""

MEANS = ("coverage", "rotation", "reward")
"""Metrics of a rollout, summed over its steps and rows."""


class SceneEnvRunner(EnvRunner):
    """Env runner with a share of the scenes of a training, in one batch.

    ``env_config`` holds ``options``, the job's, and ``scenario``. Before it samples, :meth:`begin` must tell it the
    seed of its first scene.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        options, scenario = self.config.env_config["options"], self.config.env_config["scenario"]
        self.rollout_steps: int = options.rollout_steps
        self.spaces = (self.config.observation_space, self.config.action_space)
        spec = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module: Any = spec.build()
        self.envs: DirectionalSensorVecEnv | None = None
        self._observation: Any = None
        self._weights_seq_no = 0
        if self.worker_index or not self.num_workers:
            if self.worker_index:  # a process of its own, one of several on its machine
                torch.set_num_threads(1)
                numba.set_num_threads(1)
            first, number = shares(options.num_envs, self.num_workers)[max(self.worker_index, 1) - 1]
            self.envs = make_scenes(options, scenario, number)
            self._first_row = first * (self.envs.num_envs // number)

    def begin(self, seed: int) -> None:
        """Start new episodes in all scenes, scene i with the seed ``seed + i``; `seed` is that of the actions, too."""
        if self.envs is not None:
            torch.manual_seed(seed)
            self.envs.seed(seed)
            self._observation = self.envs.reset()

    def sample(self, **kwargs: Any) -> list[SingleAgentEpisode]:
        """Return a rollout of all scenes, a chunk of an episode for each row, and another where an episode ended."""
        if self.envs is None or self._observation is None:  # started again, and not told its scenes yet
            return []
        rollout = Rollout(self.rollout_steps, self.envs.num_envs, self._first_row)
        sums = np.zeros(len(MEANS))
        for step in range(self.rollout_steps):
            acting = self.envs.acting()
            actions, columns = self._act(self._observation)
            observation, rewards, done, infos = self.envs.step(actions)
            simulator = self.envs.task.simulator
            sums += (simulator.coverage.mean(), simulator.rotation.mean(), rewards.mean())
            columns |= {Columns.ACTIONS: actions, Columns.REWARDS: rewards, ACTING: acting}
            rollout.add(step, self._observation, columns | {ACTING_NEXT: self.envs.acting()}, done)
            for row in np.flatnonzero(done):
                rollout.ends.append((step, int(row), infos[row]["terminal_observation"]))
            self._observation = observation
        rollout.add_last(self._observation)
        steps = self.rollout_steps * self.envs.num_envs
        self.num_env_steps_sampled_lifetime += steps
        for name, total in zip(MEANS, sums, strict=True):
            self.metrics.log_value(name, total * self.envs.num_envs, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum")
        return list(rollout.episodes())

    def _act(self, observation: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return actions of all rows, and what the learner needs to know of them."""
        device = next(self.module.parameters()).device
        tensors = {name: torch.as_tensor(array, device=device) for name, array in observation.items()}
        logits = self.module.forward_exploration({Columns.OBS: tensors})[Columns.ACTION_DIST_INPUTS]
        actions, log_likelihoods = self.module.action_dist_cls.from_logits(logits).sample_and_logp()
        columns = {Columns.ACTION_DIST_INPUTS: logits, Columns.ACTION_LOGP: log_likelihoods}
        return actions.cpu().numpy(), {name: tensor.cpu().numpy() for name, tensor in columns.items()}

    def get_metrics(self) -> Any:
        """Return the metrics since the last call, for RLlib."""
        return self.metrics.reduce()

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces of the policy, for RLlib."""
        return dict.fromkeys((INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, DEFAULT_MODULE_ID), self.spaces)

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the weights of the policy and their number, for RLlib."""
        return {COMPONENT_RL_MODULE: self.module.get_state(), WEIGHTS_SEQ_NO: self._weights_seq_no}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the weights of RLlib's learner."""
        if COMPONENT_RL_MODULE in state:
            weights = state[COMPONENT_RL_MODULE]
            if isinstance(weights, ray.ObjectRef):
                weights = ray.get(weights)
            self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
            self._weights_seq_no = state.get(WEIGHTS_SEQ_NO, 0)

    def assert_healthy(self) -> None:
        """Do nothing: an env runner that was made is whole."""


def shares(num_envs: int, runners: int) -> list[tuple[int, int]]:
    """Return the first scene and the number of scenes of each env runner; those that are over go to the first.

    Without env runners, this process has all scenes.
    """
    runners = max(runners, 1)
    share, over = divmod(num_envs, runners)
    return [(number * share + min(number, over), share + (number < over)) for number in range(runners)]


def make_scenes(options: Options, scenario: Scenario, number: int) -> DirectionalSensorVecEnv:
    """Return environments with this number of scenes, after a step in them: it compiles what there is to compile."""
    envs = make_environments(dataclasses.replace(options, num_envs=number), scenario)
    envs.reset()
    envs.step(np.stack([envs.action_space.sample() for _ in range(envs.num_envs)]))
    return envs


class Rollout:
    """Steps of all rows as arrays, row first.

    Args:
        steps: T, number of steps.
        rows: B, number of rows.
        first_row: number of the first row among those of all env runners.

    Attributes:
        observations: arrays (B, T + 1, ...) by name.
        columns: arrays (B, T, ...) by name.
        ends: where an episode ended: the step, the row and the last observation.
    """

    def __init__(self, steps: int, rows: int, first_row: int) -> None:
        self.steps, self.rows, self.first_row = steps, rows, first_row
        self.observations: dict[str, np.ndarray] = {}
        self.columns: dict[str, np.ndarray] = {}
        self.ends: list[tuple[int, int, dict[str, np.ndarray]]] = []

    def add(
        self, step: int, observation: dict[str, np.ndarray], columns: dict[str, np.ndarray], done: np.ndarray
    ) -> None:
        """Add a step: what was observed, and what followed."""
        if not self.columns:
            self.observations = {name: _empty(one, self.rows, self.steps + 1) for name, one in observation.items()}
            self.columns = {name: _empty(one, self.rows, self.steps) for name, one in columns.items()}
        for name, array in observation.items():
            self.observations[name][:, step] = array
        for name, array in columns.items():
            self.columns[name][:, step] = array

    def add_last(self, observation: dict[str, np.ndarray]) -> None:
        """Add what is observed after the last step."""
        for name, array in observation.items():
            self.observations[name][:, self.steps] = array

    def episodes(self) -> Iterator[SingleAgentEpisode]:
        """Yield the chunks of episodes, each with the number of its row as its name."""
        begins = [0] * self.rows
        for step, row, last in self.ends:
            yield self._chunk(row, begins[row], step + 1, last)
            begins[row] = step + 1
        for row, begin in enumerate(begins):
            if begin < self.steps:
                yield self._chunk(row, begin, self.steps, None)

    def _chunk(self, row: int, begin: int, end: int, last: dict[str, np.ndarray] | None) -> SingleAgentEpisode:
        """Return the steps from `begin` to `end` of a row; `last` was observed after them where an episode ended."""
        observations: Any = {name: array[row, begin : end + 1] for name, array in self.observations.items()}
        if last is not None:
            observations = {name: array.copy() for name, array in observations.items()}
            for name, array in last.items():
                observations[name][-1] = array
        columns = {name: InfiniteLookbackBuffer(array[row, begin:end]) for name, array in self.columns.items()}
        return SingleAgentEpisode(
            str(self.first_row + row),
            observations=InfiniteLookbackBuffer(observations),
            infos=InfiniteLookbackBuffer([{}] * (end - begin + 1)),
            actions=columns.pop(Columns.ACTIONS),
            rewards=columns.pop(Columns.REWARDS),
            extra_model_outputs=columns,
            truncated=last is not None,
            len_lookback_buffer=0,
        )


def _empty(array: np.ndarray, rows: int, steps: int) -> np.ndarray:
    """Return an array of `steps` for each row, with the shape and type of one step of all rows."""
    return np.empty((rows, steps, *array.shape[1:]), array.dtype)
