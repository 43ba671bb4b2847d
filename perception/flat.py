"""Plain network over all pairs at once, with the encoder's interface: the baseline for attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_tokens, check_widths
from hitmac.perception.features import Features
from hitmac.perception.functional import zero_masked


class FlatEncoder(nn.Module):
    """Encoder of n agents' features of m targets without attention, for one fixed n and m.

    Two linear layers with ReLU, which all agents share, map an agent's m concatenated pairs, each with its mask. Two
    others map the n * m pairs of the scene. The outputs depend on the order of agents and targets.

    Args:
        num_agents, num_targets: n and m.
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs.

    Raises:
        ValueError: a number under 1.
    """

    def __init__(self, num_agents: int, num_targets: int, feature_dim: int, weight_dim: int) -> None:
        super().__init__()
        check_widths(num_agents=num_agents, num_targets=num_targets, feature_dim=feature_dim, weight_dim=weight_dim)
        self.num_agents, self.num_targets = num_agents, num_targets
        self.feature_dim, self.weight_dim = feature_dim, weight_dim
        width = num_targets * (feature_dim + 1)
        self.of_pair = _relu_layers(feature_dim + 1, weight_dim)
        self.of_agent = _relu_layers(width, weight_dim)
        self.of_scene = _relu_layers(num_agents * width, weight_dim)

    def forward(self, pairs: Tensor, mask: Tensor | None = None) -> Features:
        """Encode scenes as :class:`hitmac.perception.AgentTargetEncoder` does; raise ValueError for another n or m."""
        mask = check_tokens(pairs, mask, self.feature_dim, axes=2)
        if pairs.shape[-3:-1] != (self.num_agents, self.num_targets):
            raise ValueError(
                f"pairs are of {pairs.shape[-3]} agents and {pairs.shape[-2]} targets; "
                f"this encoder is for {self.num_agents} and {self.num_targets}"
            )
        there = pairs.new_ones(pairs.shape[:-1]) if mask is None else mask.to(pairs.dtype)  # (..., n, m)
        tokens = torch.cat((zero_masked(pairs, mask), there.unsqueeze(-1)), -1)  # (..., n, m, d + 1)
        of_agent = tokens.flatten(-2)
        return Features(self.of_pair(tokens), self.of_agent(of_agent), self.of_scene(of_agent.flatten(-2)))

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"num_agents={self.num_agents}, num_targets={self.num_targets}"


def _relu_layers(width: int, hidden: int) -> nn.Sequential:
    """Build two linear layers, each with a ReLU."""
    layers = nn.Sequential()
    for inputs in (width, hidden):
        linear = nn.Linear(inputs, hidden)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers.extend((linear, nn.ReLU()))
    return layers
