"""Networks of the published HiT-MAC program, built from the tensors of a checkpoint that the user provides.

This package contains no part of that program. Its checkpoints are read as tensors only, and no code in them runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hitmac.perception.amc import AMCCritic
from hitmac.perception.tanh_attention import AttentionLayer

Net = TypeVar("Net", bound=nn.Module)

TURNS = 3
"""The executor's actions: stay, left, right."""


class ReleasedCoordinator(nn.Module):
    """HiT-MAC's coordinator network: ``(..., n, m, d) -> logits (..., n * m, 2), value (...,)``.

    Two linear layers with ReLU for every pair, attention over all pairs as one sequence, two logits (after a ReLU) for
    each pair's z, and the AMC critic (Xu, Zhong, Wang, NeurIPS 2020, section 4).

    Args:
        feature_dim: d, width of a pair's features; 4 in the paper.
        weight_dim: width of all other layers.
    """

    def __init__(self, feature_dim: int = 4, weight_dim: int = 128) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(feature_dim, weight_dim), nn.ReLU(), nn.Linear(weight_dim, weight_dim), nn.ReLU()
        )
        self.attention = AttentionLayer(weight_dim, weight_dim)
        self.actor = nn.Linear(weight_dim, 2)
        self.critic = AMCCritic(weight_dim)

    def features(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return z (..., n * m, weight_dim) of every pair, and the global feature (..., weight_dim)."""
        return self.attention(self.encoder(observation.flatten(-3, -2)))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (not assigned, assigned) of every pair, in the order i * m + j, and the value."""
        z, _ = self.features(observation)
        return self.actor(z).relu(), self.critic(z)


class ReleasedExecutor(nn.Module):
    """HiT-MAC's executor network: ``(..., m, d) -> logits (..., 3), value (...,)``.

    The attention layer over the m rows of a sensor; logits (after a ReLU) and value from the global feature.

    Args:
        feature_dim: d, width of a row; 4 in the paper.
        weight_dim: width of the attention.
    """

    def __init__(self, feature_dim: int = 4, weight_dim: int = 128) -> None:
        super().__init__()
        self.attention = AttentionLayer(feature_dim, weight_dim)
        self.actor = nn.Linear(weight_dim, TURNS)
        self.critic = nn.Linear(weight_dim, 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of stay, left and right, and the value."""
        global_feature = self.attention.global_feature(observation)
        return self.actor(global_feature).relu(), self.critic(global_feature).squeeze(-1)


# Patterns of the tensors' names in the published program, and their names in the modules here.
_COORDINATOR = {
    r"encoder\.features\.(0|2)": r"encoder.\1",
    r"attention\.(Q|K|V)": r"attention.\1",
    r"actor\.actor_linear": r"actor",
    r"ShapleyVcritic\.attention\.(Q|K|V)": r"critic.attention.\1",
    r"ShapleyVcritic\.critic_linear": r"critic.linear",
}
_EXECUTOR = {
    r"(?:attention|encoder)\.(Q|K|V)": r"attention.\1",
    r"actor\.actor_linear": r"actor",
    r"critic\.critic_linear": r"critic",
}


def load_released(path: str | Path) -> ReleasedCoordinator | ReleasedExecutor:
    """Load the network of a published checkpoint: a ``.pth`` file (read as tensors only) or safetensors.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds anything other than the tensors of one of the two networks; the message names it.
        ModuleNotFoundError: safetensors is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ModuleNotFoundError:
            raise ModuleNotFoundError("safetensors files need safetensors: pip install safetensors") from None
        try:
            content: Any = load_file(path)
        except Exception as error:  # one of the library's own
            raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    else:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged or malicious file can raise anything in the unpickler
            # The library's own message tells how to run the code of the file.
            raise ValueError(
                f"{path} cannot be read as tensors only: it is damaged or holds other things ({type(error).__name__})"
            ) from None
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]
    if not isinstance(content, dict) or not all(_is_plain(value) for value in content.values()):
        raise ValueError(f"{path} does not hold a dictionary of tensors, all of floating-point numbers")
    build = coordinator_from_tensors if any("Shapley" in name for name in content) else executor_from_tensors
    try:
        return build(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _is_plain(value: Any) -> bool:
    """Return whether a value is a tensor of floating-point numbers, neither sparse nor quantised."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.is_floating_point()


def coordinator_from_tensors(tensors: Mapping[str, Tensor | np.ndarray]) -> ReleasedCoordinator:
    """Build the coordinator from tensors under the names that the published program gives them.

    Raises ``ValueError`` that names a tensor that is missing, unknown, of another shape or not finite.
    """
    found = _renamed(tensors, _COORDINATOR)
    first = _first(found, "encoder.0.weight")
    return _filled(ReleasedCoordinator(first.shape[1], first.shape[0]), found)


def executor_from_tensors(tensors: Mapping[str, Tensor | np.ndarray]) -> ReleasedExecutor:
    """Build the executor from tensors; see :func:`coordinator_from_tensors`."""
    found = _renamed(tensors, _EXECUTOR)
    first = _first(found, "attention.Q.weight")
    return _filled(ReleasedExecutor(first.shape[1], first.shape[0]), found)


def _renamed(tensors: Mapping[str, Tensor | np.ndarray], names: Mapping[str, str]) -> dict[str, tuple[str, Tensor]]:
    """Map each of our names to the program's name and the tensor."""
    found = {}
    for name, value in tensors.items():
        for pattern, ours in names.items():
            if matched := re.fullmatch(rf"{pattern}\.(weight|bias)", name):
                tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
                found[f"{matched.expand(ours)}.{matched.groups()[-1]}"] = (name, tensor)
                break
        else:
            raise ValueError(f"the tensor {name} belongs to no part of the network")
    return found


def _first(found: Mapping[str, tuple[str, Tensor]], name: str) -> Tensor:
    """Return the tensor whose shape determines the widths of the network."""
    if name not in found:
        raise ValueError(f"the tensor for {name} is missing")
    if found[name][1].ndim != 2:
        raise ValueError(f"{found[name][0]} has shape {tuple(found[name][1].shape)}; it must have two axes")
    return found[name][1]


def _filled(net: Net, found: Mapping[str, tuple[str, Tensor]]) -> Net:
    own = net.state_dict()
    for name, tensor in own.items():
        if name not in found:
            raise ValueError(f"the tensor for {name} is missing")
        theirs, value = found[name]
        if value.shape != tensor.shape:
            raise ValueError(f"{theirs} has shape {tuple(value.shape)}; it must be {tuple(tensor.shape)}")
        if not value.isfinite().all():
            raise ValueError(f"{theirs} holds a number that is not finite")
        tensor.copy_(value)
    return net
