"""Policies that a training starts from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from torch import nn

from hitmac.agents.learned.checkpoint import checkpoint_folder, load_policy, put_tensors, read_tensors, tensors_of
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import TASKS

CRITIC = "value_net."
"""Beginning of the names of a critic's tensors."""


def network_of(start: str, task: str, scenario: Scenario | None = None) -> dict[str, Any]:
    """Return the options of a policy's network by the names of a job's options: features and encoder.

    Args:
        start: directory of a run or a checkpoint, or the name of a pretrained policy.
        task: name of the task that the training is for.
        scenario: the scenario to train on; None: one that fits.

    Raises:
        FileNotFoundError, ValueError: no policy for the same role and decisions; the message names it.
    """
    config = load_policy(_folder(start))[1]
    if config.role != TASKS[task].spec.role:
        raise ValueError(f"--start is {start}, a policy for {config.task}; it must be one for {task}")
    decisions = config.scenario.decisions
    if config.role == "agent" and scenario is not None and decisions != scenario.decisions:
        raise ValueError(
            f"--start is {start}, a policy that decides on {', '.join(decisions)}; on the scenario {scenario.name!r} "
            f"it must decide on {', '.join(scenario.decisions)}"
        )
    memory = config.policy["memory"]
    network = dataclasses.asdict(config.encoder) | {"features": config.features}
    return network if memory == "none" else network | {"memory": memory}


def take_weights(policy: nn.Module, start: str) -> None:
    """Copy the weights of the policy `start` into `policy`; a critic of another kind stays fresh.

    Raises:
        FileNotFoundError, ValueError: no policy, or one whose weights do not fit; `policy` is unchanged.
    """
    path = checkpoint_folder(_folder(start)) / "policy.safetensors"
    own, found = tensors_of(policy), read_tensors(path)
    critics = [{name: tensor.shape for name, tensor in one.items() if name.startswith(CRITIC)} for one in (own, found)]
    if critics[0] != critics[1]:
        found = {name: tensor for name, tensor in found.items() if name not in critics[1]}
        found |= {name: own[name] for name in critics[0]}
    put_tensors(policy, found, path)


def _folder(start: str) -> Path:
    return pretrained_folder(start.removeprefix(PREFIX)) if start.startswith(PREFIX) else Path(start)
