"""Recurrent memory of pairs: by hand, beside PyTorch's GRU, and that it carries a place along."""

import math

import pytest
import torch

from hitmac.perception.recurrent import PairMemory


def headings(*degrees):
    """Cosine and sine (T, 1, 1, 2) of the headings of one agent."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack((angles.cos(), angles.sin()), -1)[:, None, None]


def random(steps=5, scenes=3, n=2, m=4, d=6, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    memory = PairMemory(d, width).double()
    pairs = torch.randn(steps, scenes, n, m, d, generator=generator, dtype=torch.float64)
    angles = 6.3 * torch.rand(steps, scenes, n, generator=generator, dtype=torch.float64)
    return memory, pairs, torch.stack((angles.cos(), angles.sin()), -1)


def test_of_an_agent_that_does_not_turn_it_is_a_gru():
    memory, pairs, _ = random()
    cell = torch.nn.GRUCell(8, 8, dtype=torch.float64)
    for name, linear in (("ih", memory.of_input), ("hh", memory.of_state)):
        getattr(cell, f"weight_{name}").data, getattr(cell, f"bias_{name}").data = linear.weight.data, linear.bias.data
    straight = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(*pairs.shape[:3], 2)
    states, last = memory(pairs, straight)
    expected = torch.zeros(24, 8, dtype=torch.float64)
    for step in range(5):
        expected = cell(memory.embed(pairs[step]).relu().reshape(24, 8), expected)
        torch.testing.assert_close(states[step].reshape(24, 8), expected)
    torch.testing.assert_close(last.reshape(24, 8), expected)


def test_what_is_kept_turns_as_the_agent_does():
    memory, *_ = random(d=1, width=2)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.zero_()
        memory.of_state.bias[2:4] = 1e9  # keeps the state as it is
    east = torch.tensor([[[[1.0, 0.0]]]], dtype=torch.float64)
    states, last = memory(torch.zeros(3, 1, 1, 1, 1, dtype=torch.float64), headings(0, 30, 90), east)
    expected = [[math.cos(math.radians(a)), -math.sin(math.radians(a))] for a in (0, 30, 90)]  # to the right of it
    torch.testing.assert_close(states.reshape(3, 2), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(last, east)


def test_a_sequence_is_the_same_at_once_and_step_by_step():
    memory, pairs, heading = random()
    starts = torch.zeros(5, 3, dtype=torch.bool)
    starts[2, 1] = starts[4, 0] = True
    whole, last = memory(pairs, heading, starts=starts)
    state = None
    for step in range(5):
        one, state = memory(pairs[step : step + 1], heading[step : step + 1], state, starts[step : step + 1])
        torch.testing.assert_close(one[0], whole[step])
    torch.testing.assert_close(state, last)
    fresh, _ = memory(pairs[2:4, 1:2], heading[2:4, 1:2])
    torch.testing.assert_close(fresh, whole[2:4, 1:2])


def test_permuting_agents_and_targets_permutes_the_states():
    memory, pairs, heading = random()
    states, last = memory(pairs, heading)
    other, end = memory(pairs[:, :, [1, 0]][..., [2, 0, 3, 1], :], heading[:, :, [1, 0]])
    torch.testing.assert_close(other, states[:, :, [1, 0]][..., [2, 0, 3, 1], :])
    torch.testing.assert_close(end, last[:, [1, 0]][..., [2, 0, 3, 1], :])


def test_the_gradient_reaches_earlier_steps_and_stops_where_an_episode_begins():
    memory, pairs, heading = random()
    pairs.requires_grad_()
    starts = torch.zeros(5, 3, dtype=torch.bool)
    starts[3, 0] = True
    memory(pairs, heading, starts=starts)[0][-1].sum().backward()
    reached = pairs.grad.abs().sum((2, 3, 4)) > 0  # (T, B)
    assert reached[:, 1:].all()
    assert reached[:, 0].tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("width", [0, 7])
def test_a_wrong_width_is_refused(width):
    with pytest.raises(ValueError, match=f"width is {width}"):
        PairMemory(3, width)


@pytest.mark.slow
def test_it_learns_to_carry_a_place_along():
    """A direction is shown once; after eight turns by chance its bearing is asked for."""
    torch.manual_seed(0)
    memory, read = PairMemory(4, 16), torch.nn.Linear(16, 2)
    learner = torch.optim.Adam([*memory.parameters(), *read.parameters()], lr=1e-2)
    for _ in range(250):
        turns = 0.5 * torch.randn(9, 64, 1)
        angle, place = turns.cumsum(0), 6.3 * torch.rand(64, 1)
        heading = torch.stack((angle.cos(), angle.sin()), -1)
        bearing = place - angle
        shown = torch.zeros(9, 64, 1, 1, 4)
        shown[0, :, :, 0] = torch.stack((torch.ones(64, 1), bearing[0].cos(), bearing[0].sin(), place * 0), -1)
        states, _ = memory(shown, heading)
        asked = torch.stack((bearing[-1].cos(), bearing[-1].sin()), -1)
        loss = (read(states[-1, :, :, 0]) - asked).square().mean()
        learner.zero_grad()
        loss.backward()
        learner.step()
    assert loss < 0.05  # 0.5 without a memory
