"""Metadata of trained policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hitmac.agents.learned.attention_policy import AttentionPolicy
from hitmac.agents.learned.extractor import check_lists
from hitmac.agents.learned.recurrent_policy import MEMORIES, RECURRENT_FEATURES, RecurrentPolicy
from hitmac.agents.nearness import checked, farthest_reach, is_large, rescaled
from hitmac.agents.tracking.belief_observer import BELIEFS
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import TASKS
from hitmac.perception import EncoderConfig
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import take_encoder_config

POLICY_DEFAULTS = {"critic": None, "credit": "team", "memory": "none"}
"""Options of a policy other than those of the encoder."""

NEAREST, REACHES = 8, 2.0
"""Most targets of a sensor that a policy is shown in a large scene, and their farthest distance in sensing ranges."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Policy metadata: all that a checkpoint holds but tensors."""

    policy: dict[str, Any]
    """Keyword arguments of :class:`hitmac.agents.learned.attention_policy.AttentionPolicy`: the encoder's options, as
    ``encoder_config`` or each by its name, ``critic`` and ``credit``; and ``memory``, which is ``"none"``, or
    ``"recurrent"`` for a :class:`hitmac.agents.learned.recurrent_policy.RecurrentPolicy`."""
    features: tuple[str, ...]
    """The observation features that it was trained on, in order, or
    :data:`hitmac.agents.tracking.belief_observer.BELIEFS`."""
    scenario: Scenario
    """The scenario that it was trained on."""
    training_seeds: tuple[int, int]
    """First and last seed of the scenes that it was trained on."""
    task: str = "Coverage"
    """Task that it was trained for, a name in :data:`hitmac.envs.TASKS`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the task that its :class:`hitmac.envs.tasks.TaskSpec` lists; those left out have their defaults."""
    nearness: dict[str, Any] = field(default_factory=dict)
    """Options of :class:`hitmac.envs.observation.Observer` for the nearest targets, by name: ``nearest``, ``radius`` in
    the scenario's units, ``neighbours``; {}: it observes all."""

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)
        known = TASKS[self.task].spec.options
        if not isinstance(self.options, dict) or not set(self.options) <= set(known):
            raise ValueError(f"options is {self.options!r}; for {self.task} it may hold {', '.join(known)}")
        object.__setattr__(self, "options", {**known, **self.options})
        rest = dict(self.policy) if isinstance(self.policy, dict) else {}
        encoder = take_encoder_config(rest)
        if not isinstance(self.policy, dict) or not set(rest) <= set(POLICY_DEFAULTS):
            allowed = [field.name for field in dataclasses.fields(encoder)] + list(POLICY_DEFAULTS)
            raise ValueError(f"policy is {self.policy!r}; it may hold {', '.join(allowed)}")
        memory = rest.get("memory", "none")
        check_choice("memory", memory, MEMORIES)
        if memory == "recurrent" and (self.role != "agent" or self.options.get("per_sensor")):
            raise ValueError("memory is 'recurrent'; it is for a policy that turns all sensors directly")
        if memory == "recurrent" and self.features != RECURRENT_FEATURES:
            raise ValueError(
                f"features is {self.features!r}; with the memory 'recurrent' it must be {RECURRENT_FEATURES}"
            )
        object.__setattr__(self, "policy", {"encoder_config": encoder} | POLICY_DEFAULTS | rest)
        object.__setattr__(self, "nearness", checked(self.nearness))
        if self.nearness and not self.can_list:
            raise ValueError(f"nearness is {self.nearness!r}; it must be empty, since {self._needs_all}")

    @property
    def _needs_all(self) -> str:
        """Words that say why the policy needs the observations of all targets; "" if it does not."""
        if self.role != "agent":
            return f"a policy for {self.task} is shown all targets"
        if self.policy.get("memory", "none") != "none":
            return "a recurrent memory is one of every pair"
        if self.features == BELIEFS:
            return "beliefs are of all targets"
        try:
            check_lists(self.encoder)
        except ValueError as error:
            return str(error)
        return ""

    @property
    def can_list(self) -> bool:
        """The policy can be shown the nearest targets only."""
        return not self._needs_all

    def shown(self, scenario: Scenario, nearness: Mapping[str, Any]) -> PolicyConfig:
        """Return the metadata of the policy in use on a scenario, with the nearest targets that it is shown there.

        They are those of `nearness`, if given, else those of its training. A policy that was trained on all targets is
        shown the nearest 8 within two sensing ranges if the scenario is large.
        """
        if not nearness and not (nearness := rescaled(self.nearness, self.scenario, scenario)):
            large = is_large(scenario) and self.can_list
            nearness = {"nearest": NEAREST, "radius": REACHES * farthest_reach(scenario)} if large else {}
        return dataclasses.replace(self, nearness=dict(nearness))

    @property
    def encoder(self) -> EncoderConfig:
        """Options of the policy's encoder."""
        return self.policy["encoder_config"]

    @property
    def kind(self) -> type[AttentionPolicy]:
        """Class of the policy."""
        return RecurrentPolicy if self.policy["memory"] == "recurrent" else AttentionPolicy

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        return {name: value for name, value in self.policy.items() if name != "memory"}

    @property
    def role(self) -> str:
        """Role of the policy; see :class:`hitmac.envs.tasks.TaskSpec`."""
        return TASKS[self.task].spec.role
