"""Recurrent layers: PyTorch's GRU over the valid tokens, the memory of pairs by hand, noisy linear layers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hitmac.perception import NoisyLinear, RecurrentLayer
from hitmac.perception.recurrent import PairMemory
from tests.perception.numerics import LEADS, random, same

MASK = torch.tensor([[True, False, True, True], [False] * 4, [True, True, False, False]])


def pytorchs(made, x, mask):
    """PyTorch's module over the valid tokens, sequence by sequence."""
    theirs = nn.GRU(4, 3, batch_first=True, bidirectional=True).to(x.dtype)
    theirs.load_state_dict(made.gru.state_dict())
    rows = []
    for sequence, valid in zip(x.reshape(-1, *x.shape[-2:]), mask.reshape(-1, mask.shape[-1]), strict=True):
        row = torch.zeros(x.shape[-2], 6, dtype=x.dtype)
        if valid.any():
            row[valid] = theirs(sequence[valid])[0]
        rows.append(row)
    return torch.stack(rows).reshape(*x.shape[:-1], 6)


@settings(deadline=None, max_examples=30)
@given(lead=st.sampled_from([*LEADS, (2, 1, 2)]), length=st.integers(1, 5), masked=st.booleans())
def test_it_is_pytorchs_over_the_valid_tokens(lead, length, masked):
    made, x = RecurrentLayer(4, 6, pooling="mean").double(), random(*lead, length, 4)
    mask = torch.rand(*lead, length) > (0.4 if masked else -1)
    expected, count = pytorchs(made, x, mask), mask.sum(-1, keepdim=True).clamp(min=1)
    given_x = x.masked_fill(~mask.unsqueeze(-1), torch.nan)
    same(made(given_x, mask if masked else None), (expected, expected.sum(-2) / count))


def test_checkpoints_and_the_start_are_pytorchs():
    torch.manual_seed(3)
    reference = nn.GRU(4, 3, batch_first=True, bidirectional=True)
    torch.manual_seed(3)
    ours = RecurrentLayer(4, 6).state_dict()
    assert list(ours) == [f"gru.{name}" for name in reference.state_dict()]
    same(ours.values(), reference.state_dict().values(), atol=0, rtol=0)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0,), (2, 0, 3)])
def test_empty_inputs_have_zero_gradients(shape):
    made, x = RecurrentLayer(4, 6).double(), random(*shape, 4).requires_grad_()
    for mask in (None, torch.zeros(shape, dtype=torch.bool)):
        z, total = made(x, mask)
        assert z.shape == (*shape, 6)
        assert total.shape == (*shape[:-1], 6)
        gradients = torch.autograd.grad(z.sum() + total.sum(), [x, *made.parameters()])
        assert not any(gradient.any() for gradient in gradients)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # forward mode of PyTorch
def test_gradients_are_exact():
    made, x = RecurrentLayer(4, 6).double(), random(3, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda tokens: made(tokens, MASK), (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda tokens: made(tokens, MASK)[0], (x,))


def memory_and_scenes():
    """Five steps of three scenes with two agents and four targets."""
    angles = 6.3 * torch.rand(5, 3, 2, dtype=torch.float64)
    return PairMemory(6, 8).double(), random(5, 3, 2, 4, 6), torch.stack((angles.cos(), angles.sin()), -1)


def test_the_memory_of_an_agent_that_does_not_turn_is_a_gru():
    memory, pairs, _ = memory_and_scenes()
    cell = nn.GRUCell(8, 8, dtype=torch.float64)
    for name, linear in (("ih", memory.of_input), ("hh", memory.of_state)):
        getattr(cell, f"weight_{name}").data, getattr(cell, f"bias_{name}").data = linear.weight.data, linear.bias.data
    straight = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(*pairs.shape[:3], 2)
    states, last = memory(pairs, straight)
    expected = torch.zeros(24, 8, dtype=torch.float64)
    for step in range(5):
        expected = cell(memory.embed(pairs[step]).relu().reshape(24, 8), expected)
        torch.testing.assert_close(states[step].reshape(24, 8), expected)
    torch.testing.assert_close(last.reshape(24, 8), expected)


def test_a_hook_on_the_map_of_the_state_counts():
    memory, pairs, heading = memory_and_scenes()
    calls = []
    memory.of_state.register_forward_hook(lambda *given: calls.append(given))
    memory(pairs, heading)
    assert len(calls) == len(pairs)


def test_a_kept_vector_turns_against_the_agent():
    memory = PairMemory(1, 2)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.zero_()
        memory.of_state.bias[2:4] = 1e9  # keeps the state as it is
    east, angles = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([0.0, 30, 90]).deg2rad()
    heading = torch.stack((angles.cos(), angles.sin()), -1)  # (T, 2)
    states, last = memory(torch.zeros(3, 1, 1, 1, 1), heading[:, None, None], east)
    torch.testing.assert_close(states.reshape(3, 2), heading * torch.tensor([1, -1]))  # to the right of it
    torch.testing.assert_close(last, east)


def test_a_sequence_is_the_same_at_once_step_by_step_and_in_any_order_of_agents_and_targets():
    memory, pairs, heading = memory_and_scenes()
    starts = torch.zeros(5, 3, dtype=torch.bool)
    starts[2, 1] = starts[4, 0] = True
    whole, last = memory(pairs, heading, starts=starts)
    state = None
    for step in range(5):
        one, state = memory(pairs[step : step + 1], heading[step : step + 1], state, starts[step : step + 1])
        torch.testing.assert_close(one[0], whole[step])
    torch.testing.assert_close(state, last)
    fresh, _ = memory(pairs[2:4, 1:2], heading[2:4, 1:2])
    torch.testing.assert_close(fresh, whole[2:4, 1:2])  # an episode that begins at step 2
    permuted = memory(pairs[:, :, [1, 0]][..., [2, 0, 3, 1], :], heading[:, :, [1, 0]], starts=starts)
    same(permuted, (whole[:, :, [1, 0]][..., [2, 0, 3, 1], :], last[:, [1, 0]][..., [2, 0, 3, 1], :]))


def test_the_memory_learns_to_carry_a_direction_along():
    """A direction is shown once; after four random turns its bearing is asked for."""
    memory, read = PairMemory(2, 8), nn.Linear(8, 2)
    learner = torch.optim.Adam([*memory.parameters(), *read.parameters()], lr=3e-2)
    for _ in range(150):
        angle = (0.5 * torch.randn(5, 64, 1)).cumsum(0)
        bearing = 6.3 * torch.rand(64, 1) - angle
        heading, direction = (torch.stack((each.cos(), each.sin()), -1) for each in (angle, bearing))
        shown = torch.zeros(5, 64, 1, 1, 2)
        shown[0, :, :, 0], asked = direction[0], direction[-1]
        states, _ = memory(shown, heading)
        loss = (read(states[-1, :, :, 0]) - asked).square().mean()
        learner.zero_grad()
        loss.backward()
        learner.step()
    assert loss < 0.05  # 0.5 without a memory


def test_noise_is_drawn_and_absent_in_evaluation():
    layer, x = NoisyLinear(400, 300), torch.randn(5, 400)
    plain, noisy = nn.functional.linear(x, layer.weight, layer.bias), layer(x)
    assert (noisy - plain).abs().max() > 0.1
    torch.testing.assert_close(layer(x), noisy)  # the noise stays until it is drawn again
    drawn = []
    for _ in range(2):
        layer.sample_noise(torch.Generator().manual_seed(1))
        drawn.append(layer(x))
    assert torch.equal(*drawn)
    assert (drawn[0] - noisy).abs().max() > 0.1
    torch.testing.assert_close(layer.eval()(x), plain)
    layer.train()
    # f(e) has mean 0 and E f(e)^2 = E|e| = sqrt(2 / pi).
    assert layer.noise_in.square().mean().item() == pytest.approx((2 / math.pi) ** 0.5, abs=0.1)
    assert layer.noise_in.mean().item() == pytest.approx(0, abs=0.1)
    assert layer.weight_sigma.unique().item() == pytest.approx(0.5 / 20)
    layer(x).square().sum().backward()
    assert layer.weight_sigma.grad.abs().sum() > 0
