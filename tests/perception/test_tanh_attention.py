"""Tanh-projected attention of HiT-MAC: the paper's equations, padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from hitmac.perception import AttentionLayer, fast_paths
from hitmac.perception.functional import POOLINGS
from tests.perception.numerics import LEADS, gradients, random, same


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("options", "pooling"),
    [
        ({}, "sum"),
        ({"num_heads": 2}, "mean"),
        ({"scaled": True, "num_heads": 4}, "max"),
        ({"residual": True}, "attention"),
        ({"layer_norm": True, "residual": True}, "mean"),
        ({"scaled": True, "layer_norm": True}, "attention"),
    ],
)
def test_the_layer_by_its_equations(options, pooling, long, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    layer, x = AttentionLayer(8, 8, pooling=pooling, **options).double(), random(2, 5, 8)
    if layer.pool_query is not None:
        nn.init.normal_(layer.pool_query)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    heads = options.get("num_heads", 1)
    query, key, value = (
        torch.tanh(linear(x)).unflatten(-1, (heads, -1)).transpose(1, 2) for linear in (layer.Q, layer.K, layer.V)
    )
    scores = query @ key.transpose(-1, -2) / ((8 / heads) ** 0.5 if options.get("scaled") else 1)
    weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
    z = (weights @ value).transpose(1, 2).flatten(2)
    z = z + x if options.get("residual") else z
    z = functional.layer_norm(z, (8,)) if options.get("layer_norm") else z
    z = z * mask[..., None]
    pooled = {
        "sum": lambda: z.sum(1),
        "mean": lambda: z.sum(1) / mask.sum(1, keepdim=True),
        "max": lambda: z.masked_fill(~mask[..., None], -torch.inf).amax(1),
        "attention": lambda: ((z @ layer.pool_query).masked_fill(~mask, -torch.inf).softmax(-1)[..., None] * z).sum(1),
    }[pooling]()
    same(layer(x, mask), (z, pooled))
    same(layer(x, mask, need_weights=True), (z, pooled, weights * mask[:, None, :, None]))


@pytest.mark.parametrize("pooling", POOLINGS)
@settings(deadline=None, max_examples=15)
@given(there=st.lists(st.booleans(), max_size=5), lead=st.sampled_from(LEADS), heads=st.sampled_from([1, 2]))
def test_masked_tokens_change_neither_values_nor_gradients(pooling, there, lead, heads):
    layer, mask = AttentionLayer(6, 8, pooling=pooling, num_heads=heads).double(), torch.tensor(there, dtype=torch.bool)
    tokens = random(*lead, len(there), 6)
    short = tokens[..., mask, :].clone().requires_grad_()
    whole = tokens.masked_fill(~mask[:, None], torch.nan).requires_grad_()
    expected, found = layer(short), layer(whole, mask.expand(*lead, len(there)))
    torch.testing.assert_close(found[0][..., mask, :], expected[0])
    torch.testing.assert_close(found[1], expected[1])
    assert not found[0][..., ~mask, :].any()
    of_whole, *found = gradients(found, (whole, *layer.parameters()))
    of_short, *expected = gradients(expected, (short, *layer.parameters()))
    same(found, expected)
    torch.testing.assert_close(of_whole[..., mask, :], of_short)
    assert not of_whole[..., ~mask, :].any()


def test_dropout_only_while_training():
    layer, x = AttentionLayer(8, 8, dropout=0.5), torch.randn(5, 8)
    assert (layer(x)[0] != layer(x)[0]).any()
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])
