"""The agents without learning, by name."""

from __future__ import annotations

from typing import Any

from agents.planner import PlannerAgent
from agents.scripted import GreedyAgent, NearestAgent, RandomAgent, ScriptedAgent, StillAgent
from envs.scenario import Scenario

SCRIPTED: dict[str, type[ScriptedAgent]] = {
    "random": RandomAgent,
    "still": StillAgent,
    "nearest": NearestAgent,
    "greedy": GreedyAgent,
    "planner": PlannerAgent,
}
"""The scripted agents, by name."""


def scripted_agent(name: str, scenario: Scenario, **options: Any) -> ScriptedAgent:
    """The scripted agent of that name; an unknown one is a ValueError that lists the known."""
    if name not in SCRIPTED:
        raise ValueError(f"unknown agent {name!r}: known are {', '.join(SCRIPTED)}")
    return SCRIPTED[name](scenario, **options)
