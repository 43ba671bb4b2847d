"""A plain network over everything at once, with the interface of the encoder: what attention is compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perception.checks import check_tokens, check_widths
from perception.encoder import Features
from perception.functional import zero_masked


class FlatEncoder(nn.Module):
    """Encodes n agents' features of m targets without attention, for these n and m alone.

    An agent's m pairs, one after the other and each with its mask, go through two linear maps with ReLU that all agents
    share; the n * m pairs of the scene go through two others. The order of agents and targets matters.

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
        """See :meth:`perception.encoder.AgentTargetEncoder.forward`; n and m other than its own are a ValueError."""
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
        """What ``print`` shows."""
        return f"num_agents={self.num_agents}, num_targets={self.num_targets}"


def _relu_layers(width: int, hidden: int) -> nn.Sequential:
    """Two linear maps, each with a ReLU."""
    layers = nn.Sequential()
    for inputs in (width, hidden):
        linear = nn.Linear(inputs, hidden)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers.extend((linear, nn.ReLU()))
    return layers
