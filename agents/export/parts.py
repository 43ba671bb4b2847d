"""Parts of an agent that are exported: its networks, with what each reads and when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hitmac.agents.export.networks import AssignedTurns, Assignment, SensorTurns, scene_turns
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned.attention_policy import AttentionPolicy
from hitmac.agents.learned.belief_policy import BeliefPolicy
from hitmac.agents.learned.own_knowledge import OwnKnowledge
from hitmac.agents.learned.recurrent_policy import RecurrentPolicy
from hitmac.agents.policy import Completed, Memoryless, PerSensor, ReleasedPolicy
from hitmac.agents.registry import Agent
from hitmac.envs.assigned_observation import place_of_row_id
from hitmac.envs.scenario import Scenario
from hitmac.perception.flat import FlatEncoder


class Part(NamedTuple):
    """Network of an agent."""

    name: str
    """``"policy"``, ``"coordinator"`` or ``"executor"``."""
    network: nn.Module
    features: tuple[str, ...]
    """Observation features that it reads, in order."""
    inputs: tuple[str, ...] = ("pairs", "mask")
    every: int = 1
    """Sub-steps between two runs."""
    state_width: int = 0
    """Width of a pair's recurrent state; 0: none."""
    nearness: Mapping[str, Any] = MappingProxyType({})
    """Options for the nearest targets that it is shown; none: it is shown all."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.network.outputs  # type: ignore[return-value]

    def example(self) -> tuple[tuple[Tensor, ...], tuple[dict[int, Any], ...]]:
        """Return inputs of two scenes, and which of their axes may have any size."""
        n, m, fixed = 3, 4, set()
        for module in self.network.modules():
            if isinstance(module, FlatEncoder):
                of_one = isinstance(self.network, SensorTurns)
                n, m = n if of_one else module.num_agents, module.num_targets
                fixed = {2} if of_one else {1, 2}
        axes = {0: torch.export.Dim("scenes", min=1), 1: torch.export.Dim("n", min=1), 2: torch.export.Dim("m", min=1)}
        free = {axis: size for axis, size in axes.items() if axis not in fixed}
        inputs = {
            "pairs": torch.zeros(2, n, m, len(self.features)),
            "mask": torch.ones(2, n, m, dtype=torch.int8),
            "assigned": torch.ones(2, n, m, dtype=torch.int8),
            "state": torch.zeros(2, n, m, self.state_width),
            "targets": torch.arange(m, dtype=torch.int32).repeat(2, n, 1),
            "neighbours": torch.arange(2, dtype=torch.int32).repeat(2, n, 1),
        }
        of_lists = {0: axes[0], 1: axes[1], 2: torch.export.Dim("l", min=1)}
        shapes = tuple(of_lists if name == "neighbours" else free for name in self.inputs)
        return tuple(inputs[name] for name in self.inputs), shapes


def parts_of(agent: Agent, scenario: Scenario) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Return the networks of an agent in the order in which they run, and the names of its decisions.

    Raises:
        ValueError: the agent, or a level of it, is no network.
    """
    policy = agent.policy
    if not isinstance(policy, HierarchicalAgent):
        inner, kept, decisions = _decisions(policy, scenario)
        if isinstance(inner, PerSensor) and isinstance(inner.policy, AttentionPolicy):
            return (Part("policy", SensorTurns(inner.policy, kept), agent.features),), decisions
        if isinstance(inner, RecurrentPolicy):
            width = inner.features_extractor.memory.width
            inputs = ("pairs", "mask", "state")
            network = scene_turns(inner, kept)
            return (Part("policy", network, agent.features, inputs, state_width=width),), decisions
        if isinstance(inner, AttentionPolicy):
            lists = ("targets", *({"neighbours"} & set(agent.nearness))) if inner.listed else ()
            network = scene_turns(inner, kept)
            part = Part("policy", network, agent.features, ("pairs", "mask", *lists), nearness=agent.nearness)
            return (part,), decisions
        raise ValueError(f"{agent.name} cannot be exported: {_reason(inner)}")
    coordinator = _network(agent, policy.coordinator, "coordinator")
    inner, kept, decisions = _decisions(policy.executor.policy, scenario)
    executor = _network(agent, policy.executor._replace(policy=inner), "executor")
    row_id = place_of_row_id(policy.executor.features)
    turns = AssignedTurns(executor, kept, policy.executor.padding, row_id)
    return (
        Part("coordinator", Assignment(coordinator), policy.coordinator.features, every=policy.decision),
        Part("executor", turns, policy.executor.features, ("pairs", "mask", "assigned")),
    ), decisions


def _network(agent: Agent, level: LevelPolicy, name: str) -> Any:
    """Return the network of a level of a hierarchy."""
    if isinstance(level.policy, ReleasedPolicy):
        return level.policy.net
    if not isinstance(level.policy, AttentionPolicy):
        raise ValueError(f"{agent.name} cannot be exported: of its {name}, {_reason(level.policy)}")
    return level.policy


def _decisions(policy: Any, scenario: Scenario) -> tuple[Any, Sequence[int], tuple[str, ...]]:
    """Return a policy that decides for the scenario, the numbers of its decisions that count there, and their names."""
    if not isinstance(policy, Completed):
        names = scenario.decisions[: getattr(getattr(policy, "policy", policy), "decisions", 1)]
        return policy, range(len(names)), names
    kept = [number for number, name in enumerate(policy.own) if name in scenario.decisions]
    return policy.policy, kept, tuple(policy.own[number] for number in kept)


def _reason(policy: Any) -> str:
    """Return the words that say why a policy is not exported."""
    kind = type(policy).__name__
    if isinstance(policy, BeliefPolicy):
        return "it reads beliefs, which particles carry, and not measured positions"
    if isinstance(policy, OwnKnowledge):
        return "its memory is of shared knowledge; choose a --scenario with the knowledge shared or full"
    if isinstance(policy, Memoryless):
        return "memoryless agents change what is known; export the agent itself"
    return f"there is no network of this program in it, it is a {kind}"
