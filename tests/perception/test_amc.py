"""AMC critic: one pass is the paper's loop, its ablations, masks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.perception import AMCCritic
from hitmac.perception.amc import CRITICS
from tests.perception.numerics import LEADS, gradients, random, same


def critic(feature_dim=6, weight_dim=None, **options):
    made = AMCCritic(feature_dim, weight_dim, **options).double()
    torch.nn.init.normal_(made.linear.bias)
    return made


def one_by_one(made, z):
    """The paper's loop: one call of the attention for every prefix of one sequence (L, d)."""
    contributions = []
    for j in range(len(z)):
        before = made.attention(z[:j])[1] if j else torch.zeros(made.weight_dim, dtype=z.dtype)
        contributions.append(made.linear(torch.cat((before, z[j]))).squeeze())
    return torch.stack(contributions)


# Scores of up to 256 fit into the range of exp(); wider layers split them into levels.
@pytest.mark.parametrize("weights", ["random", "saturated", "opposed"])
@pytest.mark.parametrize(("width", "length"), [(1, 1), (6, 2), (256, 9), (257, 9), (513, 9), (2048, 9)])
def test_one_pass_is_the_loop(width, length, weights):
    made, z = critic(3, width), random(length, 3).requires_grad_()
    with torch.no_grad():
        for linear, sign in ((made.attention.Q, 1), (made.attention.K, -1)):
            if weights == "saturated":
                linear.weight.normal_(std=50.0)
            elif weights == "opposed":
                linear.weight.fill_(sign * 50.0)
    value, contributions = made(z, return_contributions=True)
    expected = one_by_one(made, z)
    torch.testing.assert_close(contributions, expected)
    expected = expected.sum()
    leaves = [z, *made.parameters()]
    first = gradients([value], leaves)
    same((value, *first), (expected, *gradients([expected], leaves)))
    assert all(second.isfinite().all() for second in gradients(first, leaves))
    torch.testing.assert_close(made.float()(z.detach().float()), expected.float(), atol=1e-6 * width, rtol=1e-4)


@pytest.mark.parametrize("kind", CRITICS)
@settings(deadline=None, max_examples=20)
@given(there=st.lists(st.booleans(), max_size=6), lead=st.sampled_from(LEADS))
def test_masked_pairs_are_skipped(kind, there, lead):
    made, mask = critic(kind=kind), torch.tensor(there, dtype=torch.bool)
    z = random(*lead, len(there), 6)
    spoiled, short = z.masked_fill(~mask[:, None], torch.nan).requires_grad_(), z[..., mask, :].clone().requires_grad_()
    value, contributions = made(spoiled, mask.expand(*lead, len(there)), return_contributions=True)
    assert value.shape == lead
    torch.testing.assert_close(value, made(short))
    assert not contributions[..., ~mask].any()
    (of_spoiled,), (of_short,) = gradients([value], [spoiled]), gradients([made(short)], [short])
    torch.testing.assert_close(of_spoiled[..., mask, :], of_short)


def test_the_ablations_by_their_equations():
    z, alone, head = random(3, 5, 6), critic(kind="no_prefix"), critic(kind="value_head")
    torch.testing.assert_close(alone(z), alone.linear(z).sum((-2, -1)))
    torch.testing.assert_close(head(z), head.linear(z.sum(-2)).squeeze(-1))
    value, contributions = head(z, return_contributions=True)
    torch.testing.assert_close(value, contributions.sum(-1) + head.linear.bias)


def test_bad_input():
    with pytest.raises(ValueError, match="kind is 'best'; it must be one of amc, no_prefix, value_head"):
        AMCCritic(6, kind="best")
    with pytest.raises(ValueError, match=r"x has shape \(3, 5\)"):
        AMCCritic(6)(torch.zeros(3, 5))
