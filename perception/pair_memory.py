"""Recurrent memory of every pair of an agent and a target."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hitmac.perception.checks import check_widths
from hitmac.perception.recurrent import gru

_KEPT = 1.0  # start of the bias of the gate that keeps the state, so that it is kept for longer at first


class PairMemory(nn.Module):
    r"""Recurrent state of every pair of an agent and a target, which turns with the agent.

    A state is f / 2 vectors of the plane. It is kept in the frame of the world, and read and advanced in that of the
    agent, so that what it says of a place stays true while the agent turns. With the features x of a pair and the
    agent's heading :math:`\theta`,

    .. math:: h' = R(\theta) \; \mathrm{GRU}(\mathrm{relu}(W x + b), R(-\theta) \, h).

    All pairs share the weights, so that permuting agents or targets permutes the states in the same way, and n and m
    are free. GRU: see :class:`hitmac.perception.recurrent.Recurrence`.

    Args:
        feature_dim: d, width of a pair's features.
        width: f, width of the state; even.

    Raises:
        ValueError: a width under 1, or an odd width of the state.
    """

    def __init__(self, feature_dim: int, width: int) -> None:
        super().__init__()
        check_widths(feature_dim=feature_dim, width=width)
        if width % 2:
            raise ValueError(f"width is {width}; it must be even, for vectors of the plane")
        self.width = width
        self.embed = nn.Linear(feature_dim, width)
        self.of_input, self.of_state = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        nn.init.xavier_uniform_(self.embed.weight)
        nn.init.zeros_(self.embed.bias)
        for linear in (self.of_input, self.of_state):
            for parameter in linear.parameters():
                nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)
        nn.init.constant_(self.of_state.bias[width : 2 * width], _KEPT)

    def forward(
        self, pairs: Tensor, heading: Tensor, state: Tensor | None = None, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Go through T steps.

        Args:
            pairs: (T, ..., n, m, d).
            heading: (T, ..., n, 2), cosine and sine of the headings.
            state: (..., n, m, f), the state that the last call returned; None: zero.
            starts: (T, ...) bool, the scenes whose state is zero before a step; None: none.

        Returns:
            The states (T, ..., n, m, f) after each step, in the frames of the agents, and the last one in that of the
            world, for the next call.
        """
        steps, *scenes, n, m, _ = pairs.shape
        inputs = self.of_input(self.embed(pairs).relu())  # (T, ..., n, m, 3 f)
        if state is None:
            state = inputs.new_zeros(*scenes, n, m, self.width)
        cos, sin = heading.unsqueeze(-2).unbind(-1)  # (T, ..., n, 1)
        # From the frame of one step to that of the next.
        along = torch.cat((cos[:1], cos[1:] * cos[:-1] + sin[1:] * sin[:-1])).unsqueeze(-1)  # (T, ..., n, 1, 1)
        across = torch.cat((sin[:1], sin[1:] * cos[:-1] - cos[1:] * sin[:-1])).unsqueeze(-1)
        again = None if starts is None else starts[..., None, None, None]
        states = []
        for step in range(steps):
            if again is not None:
                state = torch.where(again[step], 0.0, state)
            state = _turned(state, along[step], across[step])
            of_state = functional.linear(state, self.of_state.weight, self.of_state.bias)
            (state,) = gru([state], inputs[step], of_state)
            states.append(state)
        return torch.stack(states), _turned(state, cos[-1].unsqueeze(-1), -sin[-1].unsqueeze(-1))

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"width={self.width}"


def _turned(state: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return a state whose vectors, x in the first half and y in the second, are turned clockwise."""
    x, y = state.chunk(2, -1)
    return torch.cat((cos * x + sin * y, cos * y - sin * x), -1)
