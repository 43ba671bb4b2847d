"""Whole episodes of an agent, and their metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from hitmac.agents.hierarchy import HierarchicalAgent
from hitmac.agents.learned.policy import one_thread_each
from hitmac.agents.policy import Memoryless, started
from hitmac.agents.registry import Agent
from hitmac.envs.recordings import shortest_recording
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import UNSEEN_PENALTY, CoverageTask


class Episodes:
    """Batch of B episodes that an agent plays together, with its best actions.

    Args:
        agent: the agent.
        scenario: the scenario, of whole episodes (:func:`hitmac.agents.evaluate.episodes.fitted`).
        seeds: seeds of the episodes, (B,).
        num_threads: threads of the simulator.

    Attributes:
        task: the scenes, live; `task.simulator` has state, coverage and rotation after the last sub-step.
        observation: the observation that the agent has acted on last; {} before the first sub-step.
        state: the state of the policy.
        sub_step: number of sub-steps played.
        seconds: time of all decisions.
    """

    def __init__(self, agent: Agent, scenario: Scenario, seeds: Sequence[int], num_threads: int | None = None) -> None:
        self.agent = agent
        self.task = CoverageTask(
            scenario, len(seeds), list(seeds), features=agent.features, num_threads=num_threads, **agent.nearness
        )
        self.observation: dict[str, np.ndarray] = {}
        self.state = started(agent.policy, seeds)
        self.sub_step, self.seconds = 0, 0.0

    def step(self) -> None:
        """Play a sub-step."""
        self.observation = self.task.observe()
        starts = np.full(self.task.num_envs, self.sub_step == 0)
        began = time.perf_counter()
        action, self.state = self.agent.policy.predict(self.observation, self.state, starts, deterministic=True)
        self.seconds += time.perf_counter() - began
        self.task.step(action)
        self.sub_step += 1

    def steps(self, number: int) -> Iterator[int]:
        """Play `number` sub-steps; yield after each how many are played."""
        for _ in range(number):
            self.step()
            yield self.sub_step

    @property
    def assigned(self) -> np.ndarray | None:
        """(B, n, m) bool, the current assignment; None for an agent without assignments."""
        policy = self.agent.policy.policy if isinstance(self.agent.policy, Memoryless) else self.agent.policy
        return self.state[0] if self.state is not None and isinstance(policy, HierarchicalAgent) else None


MOMENTS = 101
"""Number of parts of an episode, for the coverage over time."""


class Record(NamedTuple):
    """Results of one agent on one batch of E episodes."""

    metrics: dict[str, np.ndarray]
    """Values (E,) of every metric, NaN for no value."""
    over_time: np.ndarray
    """(E, parts) coverage in equal parts of the episodes."""
    seconds: float
    """Time of all decisions."""


@one_thread_each()
def play(
    agent: Agent, scenario: Scenario, seeds: range, max_episode_steps: int, num_threads: int | None, bar: tqdm
) -> Record:
    """Run one agent on one batch of episodes; return their :class:`Record`."""
    scenes = len(seeds)
    episodes = Episodes(agent, scenario, seeds, num_threads)
    simulator = episodes.task.simulator
    live = simulator.state
    coverage, rotation, reward = np.zeros(scenes), np.zeros(scenes), np.zeros(scenes)
    covered, present = np.zeros(live.covered.shape), np.zeros(live.covered.shape)
    part, lengths = parts(max_episode_steps)
    over_time = np.zeros((scenes, len(lengths)))
    for step in episodes.steps(max_episode_steps):
        now, assigned = simulator.coverage, episodes.assigned
        coverage += now
        rotation += simulator.rotation
        seen = live.covered.any(1) if assigned is None else (live.visible & assigned).any((1, 2))
        reward += np.where(seen, now, UNSEEN_PENALTY)
        covered += live.covered
        present += live.present
        over_time[:, part[step - 1]] += now
        bar.update()
    share = np.divide(covered, present, out=np.full(covered.shape, np.inf), where=present > 0)
    least = share.min(-1)
    metrics = {
        "coverage": coverage / max_episode_steps,
        "decision_reward": reward / max_episode_steps,
        "rotation": rotation / max_episode_steps,
        "average_gain": np.divide(coverage, rotation, out=np.full(scenes, np.nan), where=rotation > 0),
        "least_covered": np.where(np.isfinite(least), least, np.nan),
    }
    return Record(metrics, over_time / lengths, episodes.seconds)


def fitted(scenario: Scenario, sub_steps: int) -> tuple[Scenario, int]:
    """Return the length of whole episodes, at most `sub_steps`, and the scenario, of recorded tracks with that length.

    The scenario and the shortest of its recordings may allow fewer.
    """
    sub_steps = scenario.sub_steps_of(sub_steps)
    if not scenario.tracks:
        return scenario, sub_steps
    sub_steps = min(sub_steps, shortest_recording(scenario))
    return scenario.replace(episode_steps=sub_steps), sub_steps


def parts(max_episode_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of an episode that each sub-step (T,) belongs to, and the lengths of the parts (parts,)."""
    part = np.arange(max_episode_steps) * min(MOMENTS, max_episode_steps) // max_episode_steps
    return part, np.bincount(part)
