"""Scores, attention, the Transformer's parts: worked numbers, equivalences with PyTorch's own, masks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import hitmac.perception.fast_paths as fast_paths
import hitmac.perception.tanh_attention as tanh_module
from hitmac.perception import (
    AttentionLayer,
    EncoderBlock,
    MultiHeadAttention,
    PositionalEncoding,
    TokenEmbedding,
    attend,
    causal_mask,
    check_finite,
)
from hitmac.perception.functional import SCORES, Additive, Bilinear, Dot, ScaledDot, make_score

LEADS = [(), (2,), (3, 2)]


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def three_inputs():
    """Worked example A: queries, keys and values of three inputs of width 4."""
    x = torch.tensor([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=torch.float64)
    keys = x @ torch.tensor([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.float64)
    queries = x @ torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=torch.float64)
    values = x @ torch.tensor([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], dtype=torch.float64)
    return queries, keys, values


def test_worked_example_unscaled():
    queries, keys, values = three_inputs()
    assert Dot()(queries, keys).tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    _, weights = attend(queries, keys, values, need_weights=True)
    rounded = torch.tensor([[0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]], dtype=torch.float64)
    np.testing.assert_allclose(rounded @ values, [[2.0, 7.0, 1.5], [2.0, 8.0, 0.0], [2.0, 7.8, 0.3]])
    assert (weights - rounded).abs().max() < 0.07


def test_worked_example_scaled():
    queries, keys, values = three_inputs()
    np.testing.assert_allclose(
        ScaledDot()(queries, keys),
        [[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]],
        atol=5e-5,
    )
    output, weights = attend(queries, keys, values, score=ScaledDot(), need_weights=True)
    np.testing.assert_allclose(
        weights,
        [[0.13613, 0.43194, 0.43194], [8.9045e-04, 0.90884, 0.090267], [7.4449e-03, 0.75471, 0.23785]],
        rtol=5e-5,
    )
    np.testing.assert_allclose(
        output, [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]], atol=5e-5
    )


def test_worked_example_of_a_picture():
    """Worked example B: an 8 x 8 picture as four tokens of 16 pixels."""
    one = [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
    two = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
    tokens = torch.tensor([one, two, one, two], dtype=torch.float64)
    scores = ScaledDot()(tokens, tokens)
    row, other = [1, 1, 1, 1], [1, 1.5, 1, 1.5]
    assert scores.tolist() == [row, other, row, other]
    _, weights = attend(tokens, tokens, tokens, score=ScaledDot(), need_weights=True)
    np.testing.assert_allclose(weights[0], [0.25] * 4)
    share = np.exp(0.5) / (2 + 2 * np.exp(0.5))
    np.testing.assert_allclose(weights[1], [0.5 - share, share, 0.5 - share, share])
    output, _ = MultiHeadAttention(16, 2, query_dim=10)(torch.zeros(32, 20, 10), torch.zeros(32, 20, 16))
    assert output.shape == (32, 20, 16)


@pytest.mark.parametrize("lead", LEADS)
def test_scores_by_their_equations(lead):
    query, key = random(*lead, 3, 4), random(*lead, 5, 6)
    bilinear, additive = Bilinear(4, 6).double(), Additive(4, 6, 7).double()
    expected = torch.einsum("...ld,de,...se->...ls", query, bilinear.weight, key)
    torch.testing.assert_close(bilinear(query, key), expected)
    hidden = torch.tanh(
        (query @ additive.query_weight.T)[..., :, None, :] + (key @ additive.key_weight.T)[..., None, :, :]
    )
    torch.testing.assert_close(additive(query, key), (hidden * additive.weight).sum(-1))
    for name in SCORES:
        score = make_score(name, 4).double()
        assert score(query, random(*lead, 5, 4)).shape == (*lead, 3, 5)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("long", [False, True])
def test_the_fused_path_is_the_written_out_one(name, long, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    score = make_score(name, 4).double()
    query, key, value = random(2, 3, 6, 4).requires_grad_(), random(2, 3, 5, 4), random(2, 3, 5, 7)
    mask = torch.rand(2, 1, 1, 5) > 0.3
    mask[0] = False
    full = torch.rand(6, 5) > 0.5
    full[2] = False
    for there in (None, mask, full):
        output, weights = attend(query, key, value, score=score, mask=there)
        assert weights is None
        expected, weights = attend(query, key, value, score=score, mask=there, need_weights=True)
        torch.testing.assert_close(output, expected)
        one = torch.autograd.grad(output.square().sum(), query)[0]
        torch.testing.assert_close(one, torch.autograd.grad(expected.square().sum(), query)[0])
        assert one.isfinite().all()
        if there is not None:
            assert not weights.masked_select(~there.expand_as(weights)).any()
            gone = ~there.any(-1, keepdim=True)
            assert not output.masked_select(gone.expand(2, 3, 6, 1)).any()


def test_dot_attention_is_pytorchs():
    query, key, value = random(2, 6, 4), random(2, 5, 4), random(2, 5, 7)
    mask = torch.rand(2, 6, 5) > 0.2
    mask[..., 0] = True
    output, _ = attend(query, key, value, score=ScaledDot(), mask=mask)
    torch.testing.assert_close(output, functional.scaled_dot_product_attention(query, key, value, attn_mask=mask))
    causal, _ = attend(query, random(2, 6, 4), random(2, 6, 7), mask=causal_mask(6), need_weights=True)
    assert causal.shape == (2, 6, 7)


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_is_pytorchs(num_heads, causal):
    ours, theirs = (
        MultiHeadAttention(8, num_heads).double(),
        nn.MultiheadAttention(8, num_heads, batch_first=True).double(),
    )
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        for linear in (ours.query, ours.key, ours.value, ours.output):
            linear.bias.normal_()
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.bias.copy_(ours.output.bias)
    query, key, value = random(3, 5, 8), random(3, 5, 8), random(3, 5, 8)
    padding = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, True, False, True]])
    output, weights = ours(query, key, value, key_mask=padding, causal=causal, need_weights=True)
    expected, expected_weights = theirs(
        query, key, value, key_padding_mask=~padding, attn_mask=~causal_mask(5) if causal else None,
        average_attn_weights=False,
    )  # fmt: skip
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(ours(query)[0], ours(query, query, query)[0])


@pytest.mark.parametrize("lead", LEADS)
def test_heads_masks_and_leading_axes(lead):
    module = MultiHeadAttention(8, 2, query_dim=3, key_dim=4, value_dim=5, score="additive").double()
    query, key, value = random(*lead, 6, 3), random(*lead, 7, 4), random(*lead, 7, 5)
    mask = torch.rand(*lead, 7) > 0.4
    output, weights = module(query, key, value, key_mask=mask, need_weights=True)
    assert output.shape == (*lead, 6, 8)
    assert weights.shape == (*lead, 2, 6, 7)
    assert not weights.masked_select(~mask[..., None, None, :]).any()
    pairwise = mask.unsqueeze(-2).expand(*lead, 6, 7)
    torch.testing.assert_close(module(query, key, value, mask=pairwise)[0], output)


def test_dropout_only_while_training():
    query = random(1, 400, 8)
    module = MultiHeadAttention(8, dropout=0.5).double()
    _, dropped = module(query, need_weights=True)
    assert 0.45 < (dropped == 0).double().mean() < 0.55
    _, kept = module.eval()(query, need_weights=True)
    np.testing.assert_allclose(kept.sum(-1).detach(), 1)
    chosen = dropped != 0
    torch.testing.assert_close(dropped[chosen], 2 * kept[chosen])
    layer = AttentionLayer(8, 8, dropout=0.5).double()
    assert (layer(query)[0] != layer(query)[0]).any()
    torch.testing.assert_close(layer.eval()(query)[0], layer(query)[0])


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("pooling", tanh_module.POOLINGS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_heads": 2},
        {"scaled": True, "num_heads": 4},
        {"residual": True},
        {"layer_norm": True, "residual": True},
    ],
)
def test_the_layers_options_by_their_equations(options, pooling, long, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    torch.manual_seed(0)
    layer = AttentionLayer(8, 8, pooling=pooling, **options).double()
    if layer.pool_query is not None:
        nn.init.normal_(layer.pool_query)
    x = random(2, 5, 8)
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
    ours, global_feature = layer(x, mask)
    torch.testing.assert_close(ours, z)
    torch.testing.assert_close(global_feature, pooled)
    *same, shown = layer(x, mask, need_weights=True)
    torch.testing.assert_close(same[0], z)
    torch.testing.assert_close(same[1], pooled)
    torch.testing.assert_close(shown, weights * mask[:, None, :, None])


@pytest.mark.parametrize("pooling", tanh_module.POOLINGS)
@settings(deadline=None, max_examples=15)
@given(length=st.integers(0, 4), there=st.integers(0, 4), lead=st.sampled_from(LEADS))
def test_padding_changes_nothing_for_any_pooling(pooling, length, there, lead):
    there = min(length, there)
    layer = AttentionLayer(6, 8, pooling=pooling, num_heads=2).double()
    x = random(*lead, length, 6)
    mask = (torch.arange(length) < there).expand(*lead, length)
    short, long = x[..., :there, :].clone().requires_grad_(), x.clone().requires_grad_()
    one, two = layer(short), layer(long, mask)
    torch.testing.assert_close(two[0][..., :there, :], one[0])
    torch.testing.assert_close(two[1], one[1])
    assert not two[0][..., there:, :].any()
    gradients = [torch.autograd.grad(z.sum() + g.square().sum(), x)[0] for (z, g), x in ((one, short), (two, long))]
    torch.testing.assert_close(gradients[1][..., :there, :], gradients[0])
    assert not gradients[1][..., there:, :].any()


def test_the_fused_path_takes_memory_that_grows_with_the_length(monkeypatch):
    seen = []
    original = functional.scaled_dot_product_attention
    monkeypatch.setattr(
        functional, "scaled_dot_product_attention", lambda *a, **o: seen.append(a[0].shape) or original(*a, **o)
    )
    layer = AttentionLayer(4, 8)
    layer(torch.randn(2, 20, 4))
    assert not seen
    layer(torch.randn(2, 300, 4))
    assert seen == [(2, 1, 300, 8)]  # what the fused kernel of PyTorch takes


def test_positional_encoding_by_hand():
    encoding = PositionalEncoding(4).encoding(3)
    places = np.arange(3)[:, None]
    expected = np.concatenate([np.sin(places), np.cos(places), np.sin(places / 100), np.cos(places / 100)], 1)
    np.testing.assert_allclose(encoding, expected, atol=1e-6)
    assert PositionalEncoding(5)(torch.zeros(2, 7, 5)).shape == (2, 7, 5)
    x = random(3, 4)
    torch.testing.assert_close(PositionalEncoding(4)(x), x + encoding.double())


def test_token_embedding_is_scaled():
    embedding = TokenEmbedding(10, 16)
    tokens = torch.tensor([[1, 2], [9, 1]])
    torch.testing.assert_close(embedding(tokens), embedding.table.weight[tokens] * 4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_encoder_block_is_pytorchs(norm_first):
    torch.manual_seed(0)
    ours = EncoderBlock(8, 2, hidden_dim=12, norm_first=norm_first).double()
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm_first).double()
    attention = ours.attention
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(
            torch.cat([attention.query.weight, attention.key.weight, attention.value.weight])
        )
        theirs.self_attn.in_proj_bias.zero_()
        theirs.self_attn.out_proj.load_state_dict(attention.output.state_dict())
        theirs.linear1.load_state_dict(ours.feed_forward[0].state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward[2].state_dict())
    x = random(3, 5, 8)
    padding = torch.tensor([[True] * 5, [True, True, True, False, False], [True] * 5])
    torch.testing.assert_close(ours(x, key_mask=padding)[0], theirs(x, src_key_padding_mask=~padding))
    assert ours(x, need_weights=True)[1].shape == (3, 2, 5, 5)


def test_finite_or_where_not():
    x = torch.zeros(2, 3)
    assert check_finite(x) is x
    x[1, 1:] = torch.tensor([-torch.inf, torch.nan])
    with pytest.raises(ValueError, match=r"pairs holds -inf at \(1, 1\), the first of 2; all must be finite"):
        check_finite(x, "pairs")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: AttentionLayer(6, 8, num_heads=3), ValueError, "num_heads is 3; it must divide the width 8"),
        (lambda: MultiHeadAttention(8, 0), ValueError, "num_heads is 0"),
        (
            lambda: MultiHeadAttention(8, dropout=1.0),
            ValueError,
            "dropout is 1.0; it must be a number from 0",
        ),
        (
            lambda: MultiHeadAttention(8, score="cosine"),
            ValueError,
            "score is 'cosine'; it must be one of dot, scaled",
        ),
        (lambda: AttentionLayer(6, 8, residual=True), ValueError, r"residual needs feature_dim \(6\)"),
        (lambda: AttentionLayer(6, 8)(torch.zeros(6)), ValueError, r"x has shape \(6,\)"),
        (lambda: Dot()(torch.zeros(3, 4), torch.zeros(3, 5)), ValueError, "query has width 4 and key 5"),
        (lambda: MultiHeadAttention(8)(torch.zeros(3, 7)), ValueError, r"query has shape \(3, 7\); it must be"),
        (
            lambda: MultiHeadAttention(8)(torch.zeros(3, 8), mask=torch.ones(4, dtype=torch.bool)),
            ValueError,
            r"mask has shape \(4,\); it must broadcast to \(\.\.\., 3, 3\).* is key_mask",
        ),
        (lambda: MultiHeadAttention(8)(torch.zeros(3, 8), mask=[1, 1, 1]), TypeError, "mask is a list; expected a ten"),
        (
            lambda: MultiHeadAttention(8)(torch.zeros(3, 8), torch.zeros(4, 8), causal=True),
            ValueError,
            r"as many keys \(4\) as queries \(3\)",
        ),
        (lambda: TokenEmbedding(0, 8), ValueError, "num_tokens is 0"),
    ],
)
def test_bad_input(call, error, says):
    with pytest.raises(error, match=says):
        call()
