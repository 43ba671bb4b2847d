"""Which trainings an evaluation is of: none on the scenes that it is evaluated on, and none twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.custom import digest
from agents.registry import Agent


def check_seeds(name: str, trained_on: Sequence[tuple[int, int]], seeds: range) -> None:
    """Refuse to evaluate on seeds that an agent was trained on, each with its first and last."""
    for first, last in trained_on:
        if first <= seeds[-1] and seeds[0] <= last:
            raise ValueError(
                f"evaluation seeds {seeds[0]} to {seeds[-1]} overlap with the seeds {first} to {last} that {name} was "
                "trained on; choose others"
            )


def check_runs(group: Sequence[Agent]) -> None:
    """Refuse agents of one name that are not different trainings."""
    if len(group) == 1:
        return
    name = group[0].name
    if untrained := [agent for agent in group if not was_trained(agent)]:
        raise ValueError(
            f"{len(group)} agents are named {name}, and {len(untrained)} of them were not trained, so that they are no "
            "trainings of one agent; leave out what is there twice, or give each its own name"
        )
    seen: dict[str, Agent] = {}
    for agent in group:
        same = seen.setdefault(digest(agent.policy), agent)
        if same is not agent:
            which = f"{same.run or name} and {agent.run or name}"
            raise ValueError(f"two trainings of {name}, {which}, are the same run; leave one out")


def was_trained(agent: Agent) -> bool:
    """Whether an agent was trained."""
    return agent.trained or bool(agent.training_seeds)


def trainings(number: int) -> dict[str, Any]:
    """How many trainings a result is of, and what its intervals are over."""
    return {"trainings": number, "interval": "episodes and trainings" if number > 1 else "episodes"}
