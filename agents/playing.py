"""Episodes of an agent, played sub-step by sub-step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from hitmac.agents.hierarchy import assignment_of
from hitmac.agents.policy import started
from hitmac.agents.registry import Agent
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import CoverageTask


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
        return assignment_of(self.agent.policy, self.state)
