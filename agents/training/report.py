"""Warnings in the report of a training, about what a person would notice in its film and its curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.utils import obs_as_tensor

from hitmac.agents.training.imitation import Imitation
from hitmac.agents.training.jobs import TRAINED
from hitmac.agents.training.learner import Learner

SPINNING = 0.9
"""Rotation from which on sensors are said to turn all the time."""

DECIDED = 0.01
"""Share of the highest entropy below which a policy is said to explore no longer."""

MODEST = ("random", "still", "nearest", "greedy", "scripted")
"""Baselines that every policy should surpass."""


def remarks(evaluation: Mapping[str, Any], metric: str, entropy: float | None, name: str = TRAINED) -> Iterator[str]:
    """Yield a line for each thing that looks wrong with a trained policy.

    Args:
        evaluation: the evaluation of the policy beside the baselines.
        metric: ``"coverage"`` or ``"reward"``.
        entropy: of a policy that learned from reward, its mean entropy at the end as a share of the highest; or None.
        name: name of the policy in the evaluation.
    """
    agents = evaluation["agents"]
    own, rotation = agents[name][metric]["mean"], agents[name]["rotation"]["mean"]
    beaten_by = [
        f"{other} ({agents[other][metric]['mean']:.3f})"
        for other in MODEST
        if other in agents and agents[other][metric]["mean"] >= own
    ]
    if beaten_by:
        yield f"Warning: {name} is no better than {', '.join(beaten_by)}: its {metric} is {own:.3f}."
    if rotation > SPINNING:
        yield f"Warning: {name} turns its sensors nearly always (rotation {rotation:.2f}); --turn-cost makes it dear."
    if entropy is not None and entropy < DECIDED:
        yield (
            f"Warning: {name} has stopped exploring: its entropy is {100 * entropy:.1f} % of the highest; "
            "--entropy and --final-entropy reward it."
        )


def entropy_share(model: Learner) -> float | None:
    """Return the policy's mean entropy, on the last observations, as a share of the highest; None for imitation."""
    if isinstance(model, Imitation) or (observation := model._last_obs) is None:
        return None
    with torch.no_grad():
        tensors = obs_as_tensor(observation, model.device)
        entropy = model.policy.get_distribution(tensors).entropy()
    assert entropy is not None
    return float(entropy.reshape(len(entropy), -1).sum(1).mean()) / highest_entropy(model.action_space)


def highest_entropy(space: spaces.Space[Any]) -> float:
    """Return the entropy of the uniform distribution over a space of actions."""
    if isinstance(space, spaces.MultiBinary):
        return math.prod(space.shape) * math.log(2)
    if isinstance(space, spaces.MultiDiscrete):
        return sum(math.log(number) for number in space.nvec.reshape(-1))
    assert isinstance(space, spaces.Discrete)
    return math.log(space.n)
