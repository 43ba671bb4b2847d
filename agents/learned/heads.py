"""Heads on the encoder's features: logits of turns, logits of an assignment, values.

All start Xavier-uniform with biases 0. Each takes the :class:`hitmac.perception.Features` of a batch and its mask (B,
n, m), None where every pair is there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hitmac.perception import AMCCritic, Features
from hitmac.perception.functional import is_recorded


def perceptron(width: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a hidden layer with ReLU and a linear output whose start is scaled by `gain`."""
    first, last = nn.Linear(width, hidden), nn.Linear(hidden, outputs)
    for layer, layer_gain in ((first, 1.0), (last, gain)):
        nn.init.xavier_uniform_(layer.weight, layer_gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.ReLU(), last)


def beside_global(features: Features) -> Tensor:
    """Return each sensor's feature with the global one beside it (B, n, 2 f)."""
    sensors = features.per_agent
    return torch.cat((sensors, features.global_feature.unsqueeze(1).expand_as(sensors)), -1)


class TurnHead(nn.ModuleList):
    """Logits of every sensor's actions, by one perceptron on its feature and the global one.

    A sensor without any pair (absent, failed, or with no target present) takes action 0, to stay, with certainty: its
    likelihood is 1 and its entropy 0 whatever the parameters, so that it takes no part in the learning.

    Args:
        weight_dim: f, width of the features.
        num_actions: k, how many actions a sensor chooses from.
        decisions: j, how often each sensor chooses (twice where lenses zoom).
        masked: whether a sensor without any pair is treated so.
    """

    def __init__(self, weight_dim: int, num_actions: int, decisions: int, *, masked: bool = True) -> None:
        super().__init__([perceptron(2 * weight_dim, weight_dim, decisions * num_actions, gain=0.01)])
        self.decisions, self.masked = decisions, masked

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, j * n * k): the first decision of every sensor, then the second."""
        logits = self[0](beside_global(features)).unflatten(-1, (self.decisions, -1))  # (B, n, j, k)
        if mask is not None and self.masked:
            stay = torch.full_like(logits, torch.finfo(logits.dtype).min)
            stay[..., 0] = 0.0
            logits = torch.where(mask.any(-1)[:, :, None, None], logits, stay)
        return logits.transpose(1, 2).flatten(1)


class AssignmentHead(nn.ModuleList):
    """Logit of every pair's assignment, by one perceptron on its feature, its sensor's and the global one.

    Source: Xu, Zhong, Wang, NeurIPS 2020, section 3.2. A pair that is not there is never assigned: its likelihood is 1
    and its entropy 0.

    Args:
        weight_dim: f, width of the features.
    """

    def __init__(self, weight_dim: int) -> None:
        super().__init__([perceptron(3 * weight_dim, weight_dim, 1, gain=0.01)])

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, n * m), pair (i, j) at i * m + j."""
        pairs = features.per_target
        sensors = beside_global(features)
        if is_recorded():  # torch.onnx of PyTorch 2.13 mistranslates repeat_interleave for sizes of any number
            sensors = sensors.unsqueeze(2).expand(-1, -1, pairs.shape[2], -1).flatten(1, 2)
        else:
            sensors = sensors.repeat_interleave(pairs.shape[2], 1)
        logits = self[0](torch.cat((pairs.flatten(1, 2), sensors), -1)).flatten(1)
        if mask is None:
            return logits
        return torch.where(mask.flatten(1), logits, torch.finfo(logits.dtype).min)


class SceneValue(nn.Sequential):
    """Value of the scene, by a perceptron on the global feature.

    Args:
        weight_dim: f, width of the features.
    """

    def __init__(self, weight_dim: int) -> None:
        super().__init__(*perceptron(weight_dim, weight_dim, 1, gain=1.0))

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, 1)."""
        return super().forward(features.global_feature)


class SensorValues(nn.ModuleList):
    """Value of every sensor, by one perceptron on its feature and the global one.

    Args:
        weight_dim: f, width of the features.
    """

    def __init__(self, weight_dim: int) -> None:
        super().__init__([perceptron(2 * weight_dim, weight_dim, 1, gain=1.0)])

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, n)."""
        return self[0](beside_global(features)).flatten(1)


class PairsCritic(nn.Module):
    """Value of the scene by :class:`hitmac.perception.AMCCritic` on every pair's feature, or each sensor's share of it.

    Args:
        weight_dim: f, width of the features.
        kind: ``"amc"`` or ``"no_prefix"``.
        per_sensor: the values are the sums of each sensor's contributions.
    """

    def __init__(self, weight_dim: int, kind: str, *, per_sensor: bool) -> None:
        super().__init__()
        self.critic = AMCCritic(weight_dim, kind=kind)
        # The value is a sum over all pairs: started small, since its errors would drown the actor's gradient.
        nn.init.xavier_uniform_(self.critic.linear.weight, 0.01)
        self.per_sensor = per_sensor

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, 1), or every sensor's (B, n)."""
        pairs = features.per_target
        there = None if mask is None else mask.flatten(1)
        value, contributions = self.critic(pairs.flatten(1, 2), there, return_contributions=True)
        return contributions.unflatten(-1, pairs.shape[1:3]).sum(-1) if self.per_sensor else value.unsqueeze(-1)


def amc(weight_dim: int, per_sensor: bool) -> nn.Module:
    """Build the paper's critic: each pair counts by what it adds to the pairs before it."""
    return PairsCritic(weight_dim, "amc", per_sensor=per_sensor)


def no_prefix(weight_dim: int, per_sensor: bool) -> nn.Module:
    """Build the paper's ablation of its critic: each pair counts by itself."""
    return PairsCritic(weight_dim, "no_prefix", per_sensor=per_sensor)


def value_head(weight_dim: int, per_sensor: bool) -> nn.Module:
    """Build a perceptron on the global feature, and for each sensor's value also on the sensor's."""
    return SensorValues(weight_dim) if per_sensor else SceneValue(weight_dim)


CRITICS: dict[str, Callable[[int, bool], nn.Module]] = {"amc": amc, "no_prefix": no_prefix, "value_head": value_head}
"""Critics by name: functions from the width of the features, and whether every sensor has its own value."""
