"""Agents: policies with their names, what they observe, and what is known of their training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.policy import Policy

Seeds = tuple[tuple[int, int], ...]

Executor = tuple[LevelPolicy, Seeds]
"""Executor with the first and last seeds of its training scenes; () for an executor that was not trained."""


class Agent(NamedTuple):
    """Policy with its name, features and training metadata."""

    name: str
    policy: Policy
    features: tuple[str, ...]
    """Observation features that the policy reads."""
    training_seeds: Seeds = ()
    """First and last seeds of the training scenes; () for an agent that was not trained."""
    run: str = ""
    """Name of the training, where several trainings of one agent share its name."""
    trained: bool = False
    """True if the policy was trained, so that another training seed would give another policy."""
    nearness: Mapping[str, Any] = MappingProxyType({})
    """Options of the environment, ``nearest``, ``radius`` and ``neighbours``, with which the policy is shown the
    nearest targets; none: it is shown all."""
