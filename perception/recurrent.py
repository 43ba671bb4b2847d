"""Recurrent layers: the paper's bidirectional GRU, the memory of pairs, and the paper's noisy linear layer."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from hitmac.perception.checks import check_choice, check_tokens, check_widths
from hitmac.perception.functional import FIXED_POOLINGS, pool, zero_masked


def gru(h: Tensor, of_input: Tensor, of_state: Tensor) -> Tensor:
    """Return the next state of a gated recurrent unit (Cho and others, EMNLP 2014) from ``W_i x + b_i, W_h h + b_h``.

    ``r, z = sigmoid(W_i x + b_i + W_h h + b_h)``, ``n = tanh(W_i x + b_i + r (W_h h + b_h))``,
    ``h' = (1 - z) n + z h``; r, z and n each have their own rows in the matrices.
    """
    width = h.shape[-1]
    (gates, new), (gates_, new_) = (part.split((2 * width, width), -1) for part in (of_input, of_state))
    reset, keep = (gates + gates_).sigmoid().chunk(2, -1)
    new = (new + reset * new_).tanh()
    return new + keep * (h - new)  # (1 - z) n + z h


class RecurrentLayer(nn.Module):
    """Bidirectional GRU with the interface of :class:`hitmac.perception.AttentionLayer`, the paper's ablation.

    ``z`` concatenates the states of both directions at each token, and ``global_feature`` pools z. The outputs depend
    on the order of the tokens. The layer equals ``nn.GRU`` over the valid tokens, and can also be mapped, compiled, and
    exported for any length.

    Args:
        feature_dim: width of an input token.
        weight_dim: width of z; even, half for each direction.
        pooling: ``"sum"``, ``"mean"`` or ``"max"``.

    Attributes:
        gru: the parameters, with the names, shapes and initialisation of ``nn.GRU``.
    """

    def __init__(self, feature_dim: int, weight_dim: int, *, pooling: str = "sum") -> None:
        super().__init__()
        feature_dim, weight_dim = check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_choice("pooling", pooling, FIXED_POOLINGS)
        if weight_dim % 2:
            raise ValueError(f"weight_dim is {weight_dim}; it must be even, half for each direction")
        self.feature_dim, self.weight_dim, self.pooling = feature_dim, weight_dim, pooling
        self.gru = nn.Module()
        for name, parameter in nn.GRU(feature_dim, weight_dim // 2, bidirectional=True).named_parameters():
            self.gru.register_parameter(name, parameter)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, need_weights: bool = False) -> tuple[Tensor, Tensor]:
        """Map x (..., L, feature_dim) and mask (..., L) to z (..., L, weight_dim) and global_feature (..., weight_dim).

        Raise ``ValueError`` if `need_weights` is True: the layer has no attention weights.
        """
        if need_weights:
            raise ValueError("need_weights is True; a recurrent layer has no attention weights")
        mask = check_tokens(x, mask, self.feature_dim, "x", "L")
        flat = zero_masked(x, mask).reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        z = self._states(flat, None if mask is None else mask.reshape(flat.shape[:-1]))
        z = zero_masked(z.reshape(*x.shape[:-1], self.weight_dim), mask)
        return z, pool(z, mask, self.pooling)

    def _states(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return both directions' states (N, L, 2 H) after each token of x (N, L, d); masked tokens are skipped."""
        if x.shape[1] == 0:  # an extra token, then dropped, keeps all parameters in the graph
            return self._states(functional.pad(x, (0, 0, 0, 1)), None)[:, :0]
        x = x.transpose(0, 1)  # (L, N, d)
        (w_in, w_state, b_in, b_state) = (
            [getattr(self.gru, f"{name}_l0{direction}") for direction in ("", "_reverse")]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        ahead, behind = (functional.linear(x, weight, bias) for weight, bias in zip(w_in, b_in, strict=True))
        inputs = [torch.stack((ahead, behind.flip(0)), 1)]  # (L, 2, N, 3 H), each direction in its reading order
        if mask is not None:
            valid = mask.mT.contiguous().unsqueeze(-1)  # the strides of mT exclude a length of 1 in exports
            inputs.append(torch.stack((valid, valid.flip(0)), 1))  # (L, 2, N, 1)
        weight, bias = torch.stack(w_state).mT, torch.stack(b_state).unsqueeze(1)

        def advance(state: Tensor, token: list[Tensor]) -> Tensor:
            new = gru(state, token[0], torch.baddbmm(bias, state, weight))
            return new if mask is None else torch.where(token[1], new, state)

        state = x.new_zeros(2, x.shape[1], self.weight_dim // 2)
        if getattr(torch.compiler, "is_exporting", bool)():  # PyTorch 2.4 has no such function
            # A loop is exported for one length only. torch.compile still unrolls the loop for each length, since
            # Inductor of PyTorch 2.13 gives wrong gradients of scan (https://github.com/pytorch/pytorch/issues/153679).
            from torch._higher_order_ops import scan

            def advance_and_show(state: Tensor, token: list[Tensor]) -> tuple[Tensor, Tensor]:
                new = advance(state, token)
                return new, new.clone()  # scan allows no aliases

            states = scan(advance_and_show, state, inputs)[1]
        else:
            found = []
            for token in zip(*(each.unbind(0) for each in inputs), strict=True):
                state = advance(state, list(token))
                found.append(state)
            states = torch.stack(found)  # (L, 2, N, H)
        return torch.cat((states[:, 0], states[:, 1].flip(0)), -1).transpose(0, 1)


class PairMemory(nn.Module):
    r"""Recurrent state of each pair of an agent and a target, which turns with the agent.

    A state is f / 2 vectors of the plane, stored in the world's frame, and read and advanced in the agent's.
    With the features x of a pair, the agent's heading :math:`\theta`, and :func:`hitmac.perception.recurrent.gru`,

    .. math:: h' = R(\theta) \; \mathrm{GRU}(\mathrm{relu}(W x + b), R(-\theta) \, h).

    All pairs share the weights; n and m may vary, and permuting agents or targets permutes the states.

    Args:
        feature_dim: d, width of a pair's features.
        width: f, width of the state; even.
    """

    def __init__(self, feature_dim: int, width: int) -> None:
        super().__init__()
        feature_dim, width = check_widths(feature_dim=feature_dim, width=width)
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
        nn.init.ones_(self.of_state.bias[width : 2 * width])  # keep the state for longer at first

    def forward(
        self, pairs: Tensor, heading: Tensor, state: Tensor | None = None, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Advance over T steps of pairs (T, ..., n, m, d) and heading (T, ..., n, 2), its cosine and sine.

        `state` (..., n, m, f) is that of the previous call, None: zero; the bool `starts` (T, ...) marks the scenes
        whose state is reset to zero before a step, None: none. Return the states (T, ..., n, m, f) after each step, in
        the agents' frames, and the last one in the world's, for the next call.
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
            state = gru(state, inputs[step], self.of_state(state))
            states.append(state)
        return torch.stack(states), _turned(state, cos[-1].unsqueeze(-1), -sin[-1].unsqueeze(-1))


def _turned(state: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return a state with its vectors, x in the first half and y in the second, turned clockwise."""
    x, y = state.chunk(2, -1)
    return torch.cat((cos * x + sin * y, cos * y - sin * x), -1)


class NoisyLinear(nn.Linear):
    """Linear layer with learned noise in its parameters (Fortunato and others, "Noisy networks", ICLR 2018).

    ``y = (w + sigma_w * e_w) x + b + sigma_b * e_b`` with factorised noise, ``e_w = f(e_out) f(e_in)^T``,
    ``e_b = f(e_out)``, ``f(e) = sign(e) sqrt(|e|)``, e standard normal (their section 3.1 (b)).

    The noise is constant between calls of :meth:`sample_noise`. In evaluation mode the layer computes ``w x + b``.

    Args:
        in_features, out_features: widths of input and output.
        sigma: initial scale of the noise: sigma_w and sigma_b start at ``sigma / sqrt(in_features)``; 0 or more.
    """

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, in_features: int, out_features: int, *, sigma: float = 0.5) -> None:
        in_features, out_features = check_widths(in_features=in_features, out_features=out_features)
        if not sigma >= 0:
            raise ValueError(f"sigma is {sigma!r}; it must be a number, 0 or more")
        super().__init__(in_features, out_features)
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight, sigma * in_features**-0.5))
        self.bias_sigma = nn.Parameter(torch.full_like(self.bias, sigma * in_features**-0.5))
        self.register_buffer("noise_in", torch.zeros(in_features), persistent=False)
        self.register_buffer("noise_out", torch.zeros(out_features), persistent=False)
        self.sample_noise()

    def sample_noise(self, generator: torch.Generator | None = None) -> None:
        """Draw new noise, from `generator` if one is given."""
        for noise in (self.noise_in, self.noise_out):
            drawn = torch.randn(noise.shape, generator=generator, dtype=noise.dtype, device=noise.device)
            noise.copy_(drawn.sign() * drawn.abs().sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to y (..., out_features)."""
        if not self.training:
            return super().forward(x)
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return functional.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)
