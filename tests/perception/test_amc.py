"""AMC critic: one pass is the paper's loop, its ablations, masks."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from hitmac.perception import AMCCritic, AttentionLayer, RecurrentLayer
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


class Shifted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 100.0


@pytest.mark.parametrize("kind", CRITICS)
def test_what_replaces_or_changes_the_linear_layer_counts(kind):
    made, z = critic(kind=kind), random(4, 6)
    plain = made(z)
    made.linear.register_forward_hook(lambda module, inputs, output: output + 10.0)
    torch.testing.assert_close(made(z), plain + (10.0 if kind == "value_head" else 40.0))
    shifted = Shifted(made.linear.in_features, 1).double()
    shifted.load_state_dict(made.linear.state_dict())
    made.linear = shifted
    torch.testing.assert_close(made(z), plain + (100.0 if kind == "value_head" else 400.0))
    prune.l1_unstructured(made.linear, "weight", amount=0.5)
    for _ in range(2):
        made(z).backward()


class Wrapped(nn.Module):
    """Adapter around a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, mask=None, **options):
        z, pooled, *weights = self.layer(x, mask, **options)
        return z, 2.0 * pooled, *weights


CHANGES = {
    "hook": lambda made: made.attention.register_forward_hook(lambda module, given, output: (output[0], 2 * output[1])),
    "wrapped": lambda made: setattr(made, "attention", Wrapped(made.attention)),
    "patched": lambda made: setattr(made.attention, "forward", Wrapped(copy.copy(made.attention)).forward),
    "other": lambda made: setattr(
        made, "attention", AttentionLayer(6, 6, num_heads=2, pooling="mean", residual=True).double()
    ),
    "recurrent": lambda made: setattr(made, "attention", RecurrentLayer(6, 6).double()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_replaces_or_changes_the_attention_layer_counts(change):
    made, z = critic(), random(4, 6).requires_grad_()
    plain = made(z)
    CHANGES[change](made)
    value, contributions = made(z, return_contributions=True)
    assert (value - plain).abs() > 1e-3
    expected = one_by_one(made, z)
    torch.testing.assert_close(contributions, expected)
    leaves = [z, *made.parameters()]
    same(gradients([value], leaves), gradients([expected.sum()], leaves))
    mask = torch.tensor([False, True, True, False, True])
    spoiled = torch.cat((z, random(1, 6)))[[4, 0, 1, 4, 2]].masked_fill(~mask[:, None], torch.nan)
    torch.testing.assert_close(made(spoiled.expand(2, 5, 6), mask.expand(2, 5)), made(z[:3]).expand(2))
