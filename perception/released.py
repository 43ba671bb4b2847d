"""Networks of the published HiT-MAC program, built from the tensors of a checkpoint that the user provides.

This package contains no part of that program. Its checkpoints are read as tensors only; no code in them runs.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hitmac.perception.amc import AMCCritic
from hitmac.perception.tanh_attention import AttentionLayer


class ReleasedCoordinator(nn.Module):
    """HiT-MAC's coordinator network: ``(..., n, m, d) -> logits (..., n * m, 2), value (...,)``.

    Two linear layers with ReLU for each pair, attention over all pairs as one sequence, two logits (after a ReLU) for
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

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (not assigned, assigned) of every pair, in the order i * m + j, and the value."""
        z, _ = self.attention(self.encoder(observation.flatten(-3, -2)))
        return self.actor(z).relu(), self.critic(z)


class ReleasedExecutor(nn.Module):
    """HiT-MAC's executor network: ``(..., m, d) -> logits (..., 3), value (...,)``.

    Attention over the m rows of a sensor; logits (after a ReLU) and value from the global feature.

    Args:
        feature_dim: d, width of a row; 4 in the paper.
        weight_dim: width of the attention.
    """

    def __init__(self, feature_dim: int = 4, weight_dim: int = 128) -> None:
        super().__init__()
        self.attention = AttentionLayer(feature_dim, weight_dim)
        self.actor = nn.Linear(weight_dim, 3)  # stay, left, right
        self.critic = nn.Linear(weight_dim, 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of stay, left and right, and the value."""
        _, global_feature = self.attention(observation)
        return self.actor(global_feature).relu(), self.critic(global_feature).squeeze(-1)


# Parts of the tensors' names in the published program, and their names in the modules here.
_COORDINATOR = {
    "encoder.features.": "encoder.",
    "actor.actor_linear": "actor",
    "ShapleyVcritic.critic_linear": "critic.linear",
    "ShapleyVcritic.": "critic.",
}
_EXECUTOR = {"encoder.": "attention.", "actor.actor_linear": "actor", "critic.critic_linear": "critic"}


def load_released(path: str | Path) -> ReleasedCoordinator | ReleasedExecutor:
    """Load the network of a published checkpoint, a ``.pth`` file, which is read as tensors only.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds anything other than the tensors of one of the two networks.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or malicious file can raise anything
        # PyTorch's own message explains how to run the code of the file.
        raise ValueError(
            f"{path} cannot be read as tensors only: it is damaged or holds other objects ({type(error).__name__})"
        ) from None
    if isinstance(content, dict):
        content = content.get("model", content)
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(x, Tensor) and x.layout == torch.strided and x.is_floating_point()
        and not x.is_nested and x.is_contiguous()  # each as large in the file as in the network
        for name, x in content.items()
    ):  # fmt: skip
        raise ValueError(f"{path} does not hold a dictionary of whole floating-point tensors")
    try:
        return from_tensors(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def from_tensors(tensors: Mapping[str, Tensor | np.ndarray]) -> ReleasedCoordinator | ReleasedExecutor:
    """Build the network from tensors with the names of the published program.

    Raises ``ValueError`` with the name of a tensor that is missing, unknown, given twice, of another shape or not
    finite in the network's type.
    """
    coordinator = any("Shapley" in name for name in tensors)
    found: dict[str, tuple[str, Tensor]] = {}
    for theirs, value in tensors.items():
        name = theirs
        for part, own_part in (_COORDINATOR if coordinator else _EXECUTOR).items():
            name = name.replace(part, own_part)
        if name in found:
            raise ValueError(f"{found[name][0]} and {theirs} are the same tensor; expected one of them")
        found[name] = theirs, torch.as_tensor(value)
    first = "encoder.0.weight" if coordinator else "attention.Q.weight"  # (weight_dim, feature_dim)
    _, weight = found.get(first, (first, torch.empty(1, 1)))
    if weight.ndim != 2:
        raise ValueError(f"{first} has shape {tuple(weight.shape)}; it must have two axes")
    build = partial(ReleasedCoordinator if coordinator else ReleasedExecutor, weight.shape[1], weight.shape[0])
    state = {name: value for name, (_, value) in found.items()}
    try:
        with torch.device("meta"):  # without memory: names and shapes may not fit
            build().load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from None
    net = build()
    net.load_state_dict(state)
    if bad := [found[name][0] for name, value in net.state_dict().items() if not value.isfinite().all()]:
        raise ValueError(f"{bad[0]} holds a number that is not finite")
    return net
