"""Learned policies as modules from observations to decisions, for any number of scenes, sensors and targets.

The inputs are ``pairs`` (B, n, m, d) float32 and ``mask`` (B, n, m) int8 of :func:`hitmac.envs.observe`, with a scene
axis. The outputs are decisions (B, k, n), whole numbers 0, 1, 2, beginning with the turns of all sensors, and their
logits (B, k, n, 3). Decisions are the best, those of ``predict(..., deterministic=True)``. A policy of rates has
decisions from -1 to 1 and the logits of :data:`hitmac.agents.learned.policy.RATES`, (B, k, n, 11).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from hitmac.agents.hierarchy import HierarchicalAgent
from hitmac.agents.learned.beliefs import BeliefPolicy, OwnKnowledge
from hitmac.agents.learned.policy import AttentionPolicy, rates_at
from hitmac.agents.learned.recurrent import RecurrentPolicy
from hitmac.agents.policy import FittedActions, Memoryless, PerSensor, Rates
from hitmac.agents.registry import Agent
from hitmac.agents.tracking.features import BELIEFS
from hitmac.envs.observation import OBSERVERS
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks.executor import place_of_row_id
from hitmac.perception import Features
from hitmac.perception.encoder import FlatEncoder

Outputs = tuple[Tensor, ...]

AXES = "batch", "agents", "targets", "neighbours"
"""Names of the axes of any size; an agent is a sensor."""

_BELIEVES = "its inputs are particle beliefs or tracks, not measured positions"


class SceneTurns(nn.Module):
    """Decisions with the numbers `kept` of a policy of scenes.

    With observations of the nearest targets, see :class:`hitmac.envs.observation.Observer`, ``pairs`` and ``mask`` are
    (B, n, k, d) and (B, n, k), with any k, ``targets`` (B, n, k) and ``neighbours`` (B, n, l).
    """

    outputs: tuple[str, ...] = ("actions", "logits")

    def __init__(self, policy: AttentionPolicy, kept: Sequence[int]) -> None:
        super().__init__()
        self.extractor, self.head = policy.features_extractor, policy.action_net
        self.sizes, self.kept = (policy.decisions, -1, policy.num_actions), list(kept)
        self.rates = isinstance(policy.action_space, spaces.Box)

    def forward(
        self, pairs: Tensor, mask: Tensor, targets: Tensor | None = None, neighbours: Tensor | None = None
    ) -> Outputs:
        """Return the decisions and their logits."""
        shown = {"pairs": pairs, "mask": mask, "targets": targets, "neighbours": neighbours}
        return self._decide(*self.extractor.encode({name: part for name, part in shown.items() if part is not None}))

    def _decide(self, features: Features, mask: Tensor | None) -> Outputs:
        logits = self.head(features, mask).unflatten(1, self.sizes)[:, self.kept]
        return self._best(logits), logits

    def _best(self, logits: Tensor) -> Tensor:
        return rates_at(logits.argmax(-1)) if self.rates else logits.argmax(-1)


class RecurrentTurns(SceneTurns):
    """Decisions of a policy with a recurrent state (B, n, m, f), 0 at the start of an episode."""

    outputs = ("actions", "logits", "new_state")

    def forward(self, pairs: Tensor, mask: Tensor, state: Tensor) -> Outputs:  # type: ignore[override]
        """Return the decisions, their logits and the state for the next call."""
        features, some, new = self.extractor.unroll(pairs.unsqueeze(0), state)  # type: ignore[operator]
        return *self._decide(features, some), new


class SensorTurns(SceneTurns):
    """Decisions of a policy of single sensors, shared by all."""

    def forward(self, pairs: Tensor, mask: Tensor) -> Outputs:  # type: ignore[override]
        """Return the decisions and their logits."""
        _, of_rows = super().forward(pairs.flatten(0, 1), mask.flatten(0, 1))  # (B n, k, 1, 3)
        logits = of_rows.squeeze(2).unflatten(0, mask.shape[:2]).transpose(1, 2)
        return self._best(logits), logits


class AssignedTurns(SensorTurns):
    """Decisions of an executor, given the targets assigned to each sensor; sensors without targets stay.

    `padding` is the layout of the assigned targets, see :func:`hitmac.envs.tasks.executor.mask_unassigned`. The feature
    with the index `row_id` is replaced by (index of the packed row) / m; -1: none.
    """

    def __init__(self, policy: AttentionPolicy, kept: Sequence[int], padding: str, row_id: int) -> None:
        super().__init__(policy, kept)
        self.padding, self.row_id = padding, row_id

    def forward(self, pairs: Tensor, mask: Tensor, assigned: Tensor) -> Outputs:  # type: ignore[override]
        """Return the decisions and their logits; `assigned` is (B, n, m), 0 and 1."""
        own = assigned.bool() & mask.bool()  # ONNX Runtime before 1.21 compares no int8
        if self.padding == "unfiltered":
            shown, valid = torch.cat((pairs, own.unsqueeze(-1).to(pairs.dtype)), -1), mask
        else:
            shown, valid = self._packed(pairs, own)
        actions, logits = super().forward(shown, valid)
        return torch.where(own.any(-1).unsqueeze(1), actions, 0), logits

    def _packed(self, pairs: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of every sensor, assigned targets first, then zeros, and the mask of the rows."""
        row = torch.arange(own.shape[-1], device=own.device)
        goes = own.unsqueeze(-2) & (own.to(torch.int64).cumsum(-1).unsqueeze(-2) == row.unsqueeze(-1) + 1)
        packed = goes.to(pairs.dtype) @ pairs  # one 1 in each packed row: exact
        front = goes.any(-1)  # (B, n, m)
        if self.row_id >= 0:
            number = torch.where(front, row / own.shape[-1], 0.0).to(pairs.dtype)
            here = torch.arange(pairs.shape[-1], device=own.device) == self.row_id
            packed = torch.where(here, number.unsqueeze(-1), packed)
        return packed, front if self.padding == "masked" else torch.ones_like(front)


class Assignment(nn.Module):
    """Assignment of targets to sensors by a coordinator."""

    outputs: tuple[str, ...] = ("assigned", "logits")

    def __init__(self, policy: AttentionPolicy) -> None:
        super().__init__()
        self.extractor, self.head = policy.features_extractor, policy.action_net

    def forward(self, pairs: Tensor, mask: Tensor) -> Outputs:
        """Return the assignment (B, n, m) int8 and its logits."""
        logits = self.head(*self.extractor.encode({"pairs": pairs, "mask": mask})).unflatten(-1, mask.shape[1:])
        return (logits > 0.0).to(torch.int8), logits


class Part(NamedTuple):
    """Network of an agent, of the name ``"policy"``, ``"coordinator"`` or ``"executor"``."""

    name: str
    network: nn.Module
    features: tuple[str, ...]  # of the observation, in order
    inputs: tuple[str, ...] = ("pairs", "mask")
    every: int = 1  # sub-steps between two runs
    state_width: int = 0  # of a pair's recurrent state; 0: not recurrent
    nearness: Mapping[str, Any] = MappingProxyType({})  # options of the nearest targets; empty: all targets

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.network.outputs  # type: ignore[return-value]

    def example(self) -> tuple[tuple[Tensor, ...], tuple[dict[int, Any], ...]]:
        """Return inputs of two scenes, and the axes of any size of each."""
        n, m, fixed = 3, 4, set()
        for flat in (module for module in self.network.modules() if isinstance(module, FlatEncoder)):
            of_one = isinstance(self.network, SensorTurns)
            n, m, fixed = n if of_one else flat.num_agents, flat.num_targets, {2} if of_one else {1, 2}
        batch, agents, targets, neighbours = (torch.export.Dim(name, min=1) for name in AXES)
        free = {axis: size for axis, size in enumerate((batch, agents, targets)) if axis not in fixed}
        inputs = {
            "pairs": torch.zeros(2, n, m, len(self.features)),
            "mask": torch.ones(2, n, m, dtype=torch.int8),
            "assigned": torch.ones(2, n, m, dtype=torch.int8),
            "state": torch.zeros(2, n, m, self.state_width),
            "targets": torch.arange(m, dtype=torch.int32).repeat(2, n, 1),
            "neighbours": torch.arange(2, dtype=torch.int32).repeat(2, n, 1),
        }
        axes = {"neighbours": {0: batch, 1: agents, 2: neighbours}}
        return tuple(inputs[name] for name in self.inputs), tuple(axes.get(name, free) for name in self.inputs)


def parts_of(agent: Agent, scenario: Scenario) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Return the networks of an agent in their order of execution, and the names of its decisions.

    Raises ValueError if the agent, or one of its levels, has no network.
    """
    policy: Any = agent.policy.policy if isinstance(agent.policy, Rates) else agent.policy
    if isinstance(policy, HierarchicalAgent):
        coordinator: Any = policy.coordinator
        executor: Any = policy.executor
        if BELIEFS in (coordinator.features, executor.features):
            raise ValueError(f"{agent.name} cannot be exported: {_BELIEVES}")
        inner, kept, decisions = _decisions(executor.policy, scenario)
        _check(coordinator.policy, f"{agent.name} cannot be exported: of its coordinator,")
        _check(inner, f"{agent.name} cannot be exported: of its executor,")
        turns = AssignedTurns(inner, kept, executor.padding, place_of_row_id(executor.features))
        return (
            Part("coordinator", Assignment(coordinator.policy), coordinator.features, every=policy.decision),
            Part("executor", turns, executor.features, ("pairs", "mask", "assigned")),
        ), decisions
    if agent.features in [(name,) for name in OBSERVERS]:
        raise ValueError(f"{agent.name} cannot be exported: {agent.features[0]} is a custom observer")
    inner, kept, decisions = _decisions(policy, scenario)
    if isinstance(inner, PerSensor):
        return (Part("policy", SensorTurns(inner.policy, kept), agent.features),), decisions  # type: ignore[arg-type]
    _check(inner, f"{agent.name} cannot be exported:")
    if isinstance(inner, RecurrentPolicy):
        network, width = RecurrentTurns(inner, kept), inner.features_extractor.memory.width
        return (Part("policy", network, agent.features, ("pairs", "mask", "state"), state_width=width),), decisions
    inputs = "pairs", "mask", *(("targets", *({"neighbours"} & set(agent.nearness))) if inner.listed else ())
    return (Part("policy", SceneTurns(inner, kept), agent.features, inputs, nearness=agent.nearness),), decisions


def _decisions(policy: Any, scenario: Scenario) -> tuple[Any, Sequence[int], tuple[str, ...]]:
    """Return the policy, the numbers of its decisions that the scenario has, and their names.

    A policy of rates keeps them, whatever the scenario's action.
    """
    if not isinstance(policy, FittedActions):
        names = scenario.decisions[: getattr(getattr(policy, "policy", policy), "decisions", 1)]
        return policy, range(len(names)), names
    own = policy.trained.decisions
    kept = [number for number, name in enumerate(own) if name in scenario.decisions]
    return policy.policy, kept, tuple(own[number] for number in kept)


def _check(policy: Any, says: str) -> None:
    """Raise ValueError with the reason if a policy cannot be exported."""
    reasons = {
        BeliefPolicy: _BELIEVES,
        OwnKnowledge: "it requires shared knowledge; choose a --scenario with the knowledge shared or full",
        Memoryless: "memoryless agents modify the knowledge; export the agent itself",
    }
    if not isinstance(policy, AttentionPolicy):
        other = f"{type(policy).__name__} has no network of this program"
        raise ValueError(f"{says} {reasons.get(type(policy), other)}")
