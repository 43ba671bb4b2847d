"""Checks of the trainings in an evaluation: none used the scenes of the evaluation, and none is given twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hitmac.agents.custom import digest
from hitmac.agents.registry import Agent


def check_seeds(name: str, trained_on: Sequence[tuple[int, int]], seeds: range) -> None:
    """Raise ValueError if evaluation seeds overlap with training seeds, given as pairs of first and last seed."""
    for first, last in trained_on:
        if first <= seeds[-1] and seeds[0] <= last:
            raise ValueError(
                f"evaluation seeds {seeds[0]} to {seeds[-1]} overlap with the seeds {first} to {last} that {name} was "
                "trained on; choose others"
            )


def check_runs(group: Sequence[Agent]) -> None:
    """Raise ValueError if agents of one name are not different trainings."""
    if len(group) == 1:
        return
    name = group[0].name
    if untrained := [agent for agent in group if not was_trained(agent)]:
        raise ValueError(
            f"{len(group)} agents are named {name}, and {len(untrained)} of them were not trained, so they are not "
            "trainings of one agent; leave out duplicates, or give each its own name"
        )
    seen: dict[str, Agent] = {}
    for agent in group:
        same = seen.setdefault(digest(agent.policy), agent)
        if same is not agent:
            which = f"{same.run or name} and {agent.run or name}"
            raise ValueError(f"two trainings of {name}, {which}, are the same run; leave one out")


def was_trained(agent: Agent) -> bool:
    """Return True if an agent was trained."""
    return agent.trained or bool(agent.training_seeds)


def trainings(number: int) -> dict[str, Any]:
    """Return the number of trainings of a result, and the source of variation of its intervals."""
    return {"trainings": number, "interval": "episodes and trainings" if number > 1 else "episodes"}
