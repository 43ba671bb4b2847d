"""Base classes of the jobs, by the role of the policy: each knows how its policy is evaluated, shown and filmed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS
from hitmac.agents.custom import digest
from hitmac.agents.device import checked_device
from hitmac.agents.evaluate import evaluate, evaluate_executors, save_pictures
from hitmac.agents.evaluate.film import released_reward
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig
from hitmac.agents.policy import Policy
from hitmac.agents.registry import Agent, Executor, as_agent, as_level, load_agent, load_executor, load_run
from hitmac.agents.training.options import Options
from hitmac.envs.scenario import Scenario

BASELINES = ("random", "still", "nearest", "greedy", "planner")
"""Agents that every agent is compared with."""

TRAINED = "trained"
"""Name of the policy of the run in its evaluation."""


class Job(Options):
    """Base class of the jobs that train one policy."""

    metric: ClassVar[str] = "coverage"
    """Metric of the training's curve."""

    def trained(self, policy: Policy, config: PolicyConfig) -> Agent | LevelPolicy:
        """Return the policy in training, as an agent or as a level for an executor."""
        raise NotImplementedError

    def evaluate(self, scenario: Scenario, others: Sequence[Self] = (), names: Sequence[str] = ()) -> dict[str, Any]:
        """Evaluate the policy of the run in `run_dir` beside the baselines.

        `others` are the other trainings of a group, and `names` the names of all, this one first; by default all are
        trainings of one agent, with other seeds, as those of the same name are.
        """
        raise NotImplementedError

    def _named(self, others: Sequence[Self], names: Sequence[str]) -> Iterator[tuple[Self, str]]:
        """Return this training and the others, each with its name."""
        return zip((self, *others), names or [TRAINED] * (1 + len(others)), strict=True)

    def filmed(self, run_dir: Path, scenario: Scenario) -> Agent:
        """Return the agent that shows the policy of a run in a film."""
        raise NotImplementedError

    def save_pictures(self, run_dir: Path, scenario: Scenario, evaluation: Mapping[str, Any], note: str = "") -> None:
        """Write tables and figures of the evaluation, if the role has any; the note follows the tables."""

    def references(self, scenario: Scenario, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results of others, by name, that the curve is drawn with."""
        return {name: result for name, result in evaluation["agents"].items() if name != TRAINED}


class AgentJob(Job):
    """Job that trains an agent, which is evaluated by its coverage."""

    default_limit: ClassVar[dict[str, Any]] = {"minutes": 9.0}

    def trained(self, policy: Policy, config: PolicyConfig) -> Agent:
        """See :meth:`Job.trained`."""
        executor = self.own_executor(config.scenario)
        return as_agent(policy, config, config.scenario, name=TRAINED, executor=executor)

    def own_executor(self, scenario: Scenario) -> Executor | None:
        """Return the executor that the policy needs to act; None for a policy that turns the sensors itself."""
        return None

    def baselines(self, scenario: Scenario) -> list[Agent]:
        """Return the agents to compare with."""
        return [load_agent(name, scenario) for name in BASELINES]

    def evaluate(self, scenario: Scenario, others: Sequence[Self] = (), names: Sequence[str] = ()) -> dict[str, Any]:
        """See :meth:`Job.evaluate`."""
        agents: list[Agent] = []
        for job, name in self._named(others, names):
            assert job.run_dir is not None
            for agent in (job.filmed(job.run_dir, scenario)._replace(name=name), *job.baselines(scenario)):
                if agent.trained and name not in (TRAINED, agent.name):  # a rule with the training's executor
                    agent = agent._replace(name=f"{agent.name} {name}")
                same = [one for one in agents if one.name == agent.name]
                if not same or (agent.trained and digest(agent.policy) not in [digest(one.policy) for one in same]):
                    agents.append(agent._replace(run=f"seed {job.seed}") if others and agent.trained else agent)
        return evaluate(agents, scenario, episodes=self.episodes, max_episode_steps=self.sub_steps)

    def filmed(self, run_dir: Path, scenario: Scenario) -> Agent:
        """See :meth:`Job.filmed`."""
        with checked_device(self.device):
            return load_run(run_dir, scenario, name=TRAINED)

    def save_pictures(self, run_dir: Path, scenario: Scenario, evaluation: Mapping[str, Any], note: str = "") -> None:
        """See :meth:`Job.save_pictures`."""
        save_pictures(run_dir, {(scenario.num_sensors, scenario.num_targets): evaluation}, self.sub_steps, note)

    def references(self, scenario: Scenario, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """See :meth:`Job.references`; with the released program where it was measured."""
        references = super().references(scenario, evaluation)
        released = released_reward(scenario.name) or {}
        if (size := (scenario.num_sensors, scenario.num_targets)) in released:
            references["released HiT-MAC"] = {"coverage": {"mean": released[size]}}
        return references


class ExecutorJob(Job):
    """Job that trains an executor, which is evaluated by its reward."""

    metric: ClassVar[str] = "reward"

    def trained(self, policy: Policy, config: PolicyConfig) -> LevelPolicy:
        """See :meth:`Job.trained`."""
        return as_level(policy, config)

    def evaluate(self, scenario: Scenario, others: Sequence[Self] = (), names: Sequence[str] = ()) -> dict[str, Any]:
        """See :meth:`Job.evaluate`."""
        executors: dict[str, Any] = {}
        for job, name in self._named(others, names):
            executors.setdefault(name, []).append(job.run_dir)
        executors |= {name: name for name in EXECUTORS}
        with checked_device(self.device):
            return evaluate_executors(executors, scenario, episodes=self.episodes, max_episode_steps=self.episode_steps)

    def filmed(self, run_dir: Path, scenario: Scenario) -> Agent:
        """See :meth:`Job.filmed`; a scripted coordinator assigns the targets."""
        with checked_device(self.device):
            return load_agent("assign-in-range", scenario, executor=run_dir)


class CoordinatorJob(AgentJob):
    """Job that trains a coordinator, which is evaluated by its coverage with the executor that it was trained with."""

    executor: str

    def own_executor(self, scenario: Scenario) -> Executor:
        """See :meth:`AgentJob.own_executor`."""
        with checked_device(self.device):
            return load_executor(self.executor, scenario)

    def baselines(self, scenario: Scenario) -> list[Agent]:
        """See :meth:`AgentJob.baselines`; with the scripted coordinators, with the same executor."""
        with checked_device(self.device):
            coordinators = [load_agent(name, scenario, executor=self.executor) for name in COORDINATORS]
        return [*super().baselines(scenario), *coordinators]
