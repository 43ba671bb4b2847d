"""A policy as a folder: ``policy.safetensors`` and ``config.json``. Loading one never runs code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from agents.attention_policy import AttentionPolicy
from envs.files import whole_file, write_text
from envs.observation import Observer
from envs.scenario import Scenario, load_scenario
from envs.tasks import turning_space

FORMAT = "hitmac-policy"
VERSION = 1
_KEYS = {"format", "version", "policy", "features", "scenario", "training_seeds"}


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """What has to be known of a policy beside its tensors."""

    policy: dict[str, Any]
    """Keyword arguments of :class:`agents.attention_policy.AttentionPolicy`."""
    features: tuple[str, ...]
    """The observation features that it was trained on, in order."""
    scenario: Scenario
    """The scenario that it was trained on."""
    training_seeds: tuple[int, int]
    """First and last seed of the scenes that it was trained on."""


def build_policy(config: PolicyConfig, scenario: Scenario, learning_rate: float = 1e-3) -> AttentionPolicy:
    """A fresh policy for `scenario`; its tensors fit any number of sensors and targets."""
    space = Observer(scenario, config.features).space
    return AttentionPolicy(space, turning_space(scenario), lambda _: learning_rate, **config.policy)


def save_policy(folder: str | Path, policy: nn.Module, config: PolicyConfig) -> None:
    """Write the policy into `folder`, which is made if need be; each file is written whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "policy": config.policy,
        "features": list(config.features),
        "scenario": config.scenario.to_dict(),
        "training_seeds": list(config.training_seeds),
    }
    write_text(folder / "config.json", json.dumps(plain, indent=2) + "\n")
    with whole_file(folder / "policy.safetensors") as temporary:
        safetensors.torch.save_file(tensors_of(policy), temporary)


def load_policy(folder: str | Path, scenario: Scenario | str | None = None) -> tuple[AttentionPolicy, PolicyConfig]:
    """Read a policy.

    Args:
        folder: a checkpoint's folder, or a run directory that holds one as ``checkpoint/``.
        scenario: the scenario to use it on; None: the one that it was trained on.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: a file is damaged or is no checkpoint of this program; the message names file and reason.
    """
    folder = Path(folder)
    if (folder / "checkpoint").is_dir():
        folder = folder / "checkpoint"
    for name in ("config.json", "policy.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is not a checkpoint: it has no {name}")
    config = _read_config(folder / "config.json")
    policy = build_policy(config, config.scenario if scenario is None else load_scenario(scenario))
    path = folder / "policy.safetensors"
    put_tensors(policy, read_tensors(path), path)
    policy.set_training_mode(False)
    return policy, config


def tensors_of(policy: nn.Module) -> dict[str, torch.Tensor]:
    """Every tensor of the policy once (Stable-Baselines3 lists a shared encoder under three names)."""
    return {name: parameter.detach() for name, parameter in policy.named_parameters()}


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file; ValueError if it is none."""
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def put_tensors(policy: nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Put `tensors`, read from `path`, into the policy, or raise ValueError and leave it as it was."""
    own = tensors_of(policy)
    if missing := [name for name in own if name not in tensors]:
        raise ValueError(f"{path} lacks the tensor {missing[0]}")
    if extra := [name for name in tensors if name not in own]:
        raise ValueError(f"{path} holds the tensor {extra[0]}, which the policy does not have")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"{path}: {name} has shape {tuple(tensor.shape)}; it must be {tuple(own[name].shape)}")
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds something that is not a finite number")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def _read_config(path: Path) -> PolicyConfig:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError(f'{path} is not the configuration of a policy: its "format" must be {FORMAT!r}')
    if plain.get("version") != VERSION:
        raise ValueError(f"{path} has version {plain.get('version')!r}; this program reads version {VERSION}")
    if set(plain) != _KEYS:
        raise ValueError(f"{path} has the keys {', '.join(plain)}; it must have {', '.join(sorted(_KEYS))}")
    known = {"weight_dim", "attend_over", "pooling"}
    if not isinstance(plain["policy"], dict) or not set(plain["policy"]) <= known:
        raise ValueError(f'{path}: "policy" is {plain["policy"]!r}; it may hold {", ".join(sorted(known))}')
    try:
        first, last = plain["training_seeds"]
        return PolicyConfig(
            policy=plain["policy"],
            features=tuple(plain["features"]),
            scenario=Scenario.from_dict(plain["scenario"]),
            training_seeds=(int(first), int(last)),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
