"""Bidirectional recurrent networks that skip masked tokens and can be mapped, compiled and exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from hitmac.perception.checks import check_choice, check_widths


class Recurrence(nn.Module):
    """Stacked bidirectional GRUs or LSTMs, equal to ``nn.GRU`` and ``nn.LSTM`` over the valid tokens.

    A masked token leaves the states of both directions unchanged. The parameters have PyTorch's names, shapes and
    initialisation, so that the tensors of one load into the other. PyTorch's own modules cannot be mapped or compiled,
    nor exported for every length.

    GRU (Cho and others, EMNLP 2014), from the previous state h:
    ``r, z = sigmoid(W_i x + b_i + W_h h + b_h)``, ``n = tanh(W_i x + b_i + r (W_h h + b_h))``,
    ``h' = (1 - z) n + z h``. LSTM (Hochreiter and Schmidhuber, 1997, with forget gates), with a memory c:
    ``i, f, o = sigmoid(W_i x + b_i + W_h h + b_h)``, ``g = tanh(W_i x + b_i + W_h h + b_h)``, ``c' = f c + i g``,
    ``h' = o tanh(c')``. Each gate has its own rows in W_i, W_h, b_i and b_h.

    Args:
        input_dim: width of a token.
        hidden_dim: H, width of each direction's state.
        cell: ``"gru"`` or ``"lstm"``.
        num_layers: number of layers; each further layer reads both directions of the one before.

    Raises:
        ValueError: a number under 1 or an unknown cell.
    """

    def __init__(self, input_dim: int, hidden_dim: int, cell: str = "gru", num_layers: int = 1) -> None:
        super().__init__()
        check_widths(input_dim=input_dim, hidden_dim=hidden_dim, num_layers=num_layers)
        check_choice("cell", cell, CELLS)
        self.input_dim, self.hidden_dim, self.cell, self.num_layers = input_dim, hidden_dim, cell, num_layers
        rows, bound = CELLS[cell].gates * hidden_dim, hidden_dim**-0.5
        for layer in range(num_layers):
            width = 2 * hidden_dim if layer else input_dim
            for direction in ("", "_reverse"):
                for name, shape in (
                    ("weight_ih", (rows, width)), ("weight_hh", (rows, hidden_dim)), ("bias_ih", (rows,)),
                    ("bias_hh", (rows,)),
                ):  # fmt: skip
                    start = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
                    self.register_parameter(f"{name}_l{layer}{direction}", start)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x (N, L, input_dim), finite, and mask bool (N, L) to both directions' states (N, L, 2 * hidden_dim)."""
        if x.shape[1] == 0:  # an extra token, dropped again, keeps all parameters in the graph
            return self(functional.pad(x, (0, 0, 0, 1)))[:, :0]
        x = x.transpose(0, 1)  # (L, N, d)
        there = None if mask is None else _both_ways(mask.mT.unsqueeze(-1), mask.mT.unsqueeze(-1))  # (L, 2, N, 1)
        for layer in range(self.num_layers):
            x = self._layer(x, there, layer)
        return x.transpose(0, 1)

    def _layer(self, x: Tensor, there: Tensor | None, layer: int) -> Tensor:
        """Map x (L, N, d) through one layer to (L, N, 2 H)."""

        def pair(name: str) -> tuple[Tensor, Tensor]:
            return getattr(self, f"{name}_l{layer}"), getattr(self, f"{name}_l{layer}_reverse")

        both = zip(pair("weight_ih"), pair("bias_ih"), strict=True)
        inputs = [_both_ways(*(functional.linear(x, weight, bias) for weight, bias in both))]  # (L, 2, N, rows)
        if there is not None:
            inputs.append(there)
        weight, bias = torch.stack(pair("weight_hh")).mT, torch.stack(pair("bias_hh")).unsqueeze(1)
        cell = CELLS[self.cell]

        def advance(state: list[Tensor], token: list[Tensor]) -> list[Tensor]:
            new = cell.advance(state, token[0], torch.baddbmm(bias, state[0], weight))
            if len(token) == 1:
                return new
            return [torch.where(token[1], after, before) for after, before in zip(new, state, strict=True)]

        start = [x.new_zeros(2, x.shape[1], self.hidden_dim) for _ in range(cell.states)]
        ahead, behind = _states(advance, start, inputs).unbind(1)
        return torch.cat((ahead, behind.flip(0)), -1)

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"{self.input_dim}, {self.hidden_dim}, cell={self.cell!r}, num_layers={self.num_layers}"


class Cell(NamedTuple):
    """Recurrent cell."""

    gates: int
    """Number of blocks of rows in its matrices."""
    states: int
    """Number of tensors (2, N, H) that it hands on; the first is shown."""
    advance: Callable[[list[Tensor], Tensor, Tensor], list[Tensor]]
    """Function from the states, W_i x + b_i and W_h h + b_h to the next states."""


def gru(state: list[Tensor], of_input: Tensor, of_state: Tensor) -> list[Tensor]:
    """Advance a gated recurrent unit, whose state is h."""
    (h,) = state
    width = h.shape[-1]
    (gates, new), (gates_, new_) = (part.split((2 * width, width), -1) for part in (of_input, of_state))
    reset, keep = (gates + gates_).sigmoid().chunk(2, -1)
    new = (new + reset * new_).tanh()
    return [new + keep * (h - new)]


def lstm(state: list[Tensor], of_input: Tensor, of_state: Tensor) -> list[Tensor]:
    """Advance a long short-term memory, whose states are h and the memory c."""
    write, keep, new, show = (of_input + of_state).chunk(4, -1)
    memory = keep.sigmoid() * state[1] + write.sigmoid() * new.tanh()
    return [show.sigmoid() * memory.tanh(), memory]


CELLS = {"gru": Cell(3, 1, gru), "lstm": Cell(4, 2, lstm)}
"""Recurrent cells by name."""


def _both_ways(ahead: Tensor, behind: Tensor) -> Tensor:
    """Stack two sequences (L, N, d), one for each direction, in reading order: (L, 2, N, d)."""
    return torch.stack((ahead, behind.flip(0)), 1)


def _states(
    advance: Callable[[list[Tensor], list[Tensor]], list[Tensor]], state: list[Tensor], inputs: list[Tensor]
) -> Tensor:
    """Return the first part of the state after each token; the first axis of the inputs is that of the tokens."""
    if _exporting():
        # A loop is exported for one length only. torch.compile still gets the loop, once for each length, since
        # Inductor of PyTorch 2.13 gives wrong gradients of scan (https://github.com/pytorch/pytorch/issues/153679).
        from torch._higher_order_ops import scan

        def advance_and_show(state: list[Tensor], token: list[Tensor]) -> tuple[list[Tensor], Tensor]:
            new = advance(state, token)
            return new, new[0].clone()  # scan allows no aliases

        shown: Tensor = scan(advance_and_show, state, inputs)[1]
        return shown
    states = []
    for token in zip(*(each.unbind(0) for each in inputs), strict=True):
        state = advance(state, list(token))
        states.append(state[0])
    return torch.stack(states)


def _exporting() -> bool:
    return torch.compiler.is_exporting() if hasattr(torch.compiler, "is_exporting") else False
