"""Transformer: PyTorch's own modules, masks, positional encoding, embedding, Fourier features."""

import numpy as np
import pytest
import torch
from torch import nn

from hitmac.perception import EncoderBlock, MultiHeadAttention, PositionalEncoding, TokenEmbedding, causal_mask
from hitmac.perception.functional import SCORES
from hitmac.perception.transformer import FourierFeatures
from tests.perception.numerics import random, same

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-7, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
MAKES = {
    "attention": lambda: MultiHeadAttention(8, 2),
    "block": lambda: EncoderBlock(8),
    "norm first": lambda: EncoderBlock(8, 2, norm_first=True),
}


def copy_into_pytorchs(ours, theirs):
    """Copy our attention into PyTorch's."""
    maps = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        for linear in (*maps, ours.output):
            linear.bias.normal_()
        theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in maps]))
        theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in maps]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())


@pytest.mark.parametrize(("num_heads", "causal"), [(1, False), (2, True), (4, False)])
def test_multi_head_attention_is_pytorchs(num_heads, causal):
    ours = MultiHeadAttention(8, num_heads).double()
    theirs = nn.MultiheadAttention(8, num_heads, batch_first=True).double()
    copy_into_pytorchs(ours, theirs)
    query, key, value = random(3, 5, 8), random(3, 5, 8), random(3, 5, 8)
    padding = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, True, False, True]])
    blocked = ~causal_mask(5) if causal else None
    masks = {"key_padding_mask": ~padding, "attn_mask": blocked}
    expected = theirs(query, key, value, average_attn_weights=False, **masks)
    same(ours(query, key, value, key_mask=padding, causal=causal, need_weights=True), expected)
    torch.testing.assert_close(ours(query)[0], ours(query, query, query)[0])


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_encoder_block_is_pytorchs(norm_first):
    ours = EncoderBlock(8, 2, hidden_dim=12, norm_first=norm_first).double()
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm_first).double()
    copy_into_pytorchs(ours.attention, theirs.self_attn)
    with torch.no_grad():
        theirs.linear1.load_state_dict(ours.feed_forward[0].state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward[2].state_dict())
    x = random(3, 5, 8)
    padding = torch.tensor([[True] * 5, [True, True, True, False, False], [True] * 5])
    torch.testing.assert_close(ours(x, key_mask=padding)[0], theirs(x, src_key_padding_mask=~padding))


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize(("batch", "length"), [(4, 4), (1, 4), (4, 1), (2, 257)])
def test_the_meaning_of_a_mask_does_not_depend_on_sizes(batch, length, make):
    module, x = make().double(), random(batch, length, 8)
    padding, triangle = torch.rand(batch, length) > 0.4, causal_mask(length)
    with torch.no_grad():
        causal, padded = module(x, causal=True)[0], module(x, key_mask=padding)[0]
        masked = module(x, causal=True, key_mask=padding)[0]
        for expected, options in (
            (causal, {"mask": triangle}),
            (causal, {"mask": triangle.expand(batch, length, length)}),
            (padded, {"mask": padding[:, None]}),  # as Keras has it
            (masked, {"mask": triangle & padding[:, None]}),
            (masked, {"mask": triangle, "key_mask": padding}),
        ):
            torch.testing.assert_close(module(x, **options)[0], expected)
        for b in range(min(batch, 2)):  # a sequence of its own, without a batch
            torch.testing.assert_close(module(x[b], key_mask=padding[b])[0], padded[b])
            torch.testing.assert_close(module(x[b], mask=triangle, key_mask=padding[b])[0], masked[b])


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_half_precision_takes_large_numbers_that_no_query_sees(make):
    """Padding is ignored, also where autocast makes it infinite, and a query is not zeroed."""
    module, x, there = make(), torch.randn(1, 4, 8), torch.tensor([[1, 1, 1, 0]])
    expected = module(x, key_mask=there)[0]
    x[0, 3] = 1e5
    with torch.autocast("cpu", torch.float16):
        found = module(x, key_mask=there)[0].float()
    torch.testing.assert_close(found[:, :3], expected[:, :3], atol=0.02, rtol=0)
    found[:, :3].square().sum().backward()
    assert all(one.grad.isfinite().all() for one in module.parameters())
    x[0, 3], mask = 300.0 * torch.randn(8), torch.ones(4, 4).tril(-1)
    expected = module(x, mask=mask)[0]
    torch.testing.assert_close(module.half()(x.half(), mask=mask)[0].float(), expected, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("score", SCORES)
def test_queries_keys_and_values_of_widths_and_leading_axes_of_their_own(score):
    module = MultiHeadAttention(8, 2, query_dim=3, key_dim=4, value_dim=5, score=score).double()
    key, value, there = random(3, 7, 4), random(3, 7, 5), torch.rand(3, 7) > 0.3
    key[0, ~there[0]], value[2, ~there[2]] = torch.nan, torch.inf
    for query in (random(6, 3), random(1, 6, 3), random(3, 6, 3)):
        output, weights = module(query, key, value, key_mask=there, need_weights=True)
        assert weights.shape == (3, 2, 6, 7)
        for b in range(3):
            own, valid = query if query.ndim == 2 else query[b % len(query)], there[b]
            torch.testing.assert_close(output[b], module(own, key[b, valid], value[b, valid])[0])


@pytest.mark.parametrize("output_map", [False, True])
def test_heads_of_a_width_of_their_own(output_map):
    """8 heads of 3 on a width of 4: 4 -> 24 -> 7, by its equations."""
    output_dim = 7 if output_map else None
    module = MultiHeadAttention(4, 8, head_dim=3, output_dim=output_dim, bias=False, output_map=output_map).double()
    x, heads = random(2, 5, 4), []
    for i in range(8):
        q, k, v = (m(x)[..., 3 * i : 3 * i + 3] for m in (module.query, module.key, module.value))
        heads.append((q @ k.mT / 3**0.5).softmax(-1) @ v)
    expected = torch.cat(heads, -1)
    torch.testing.assert_close(module(x)[0], expected @ module.output.weight.T if output_map else expected)


def test_dropout_only_while_training():
    query, module = random(1, 400, 8), MultiHeadAttention(8, dropout=0.5).double()
    _, dropped = module(query, need_weights=True)
    assert 0.45 < (dropped == 0).double().mean() < 0.55
    assert (module(query)[0] != module(query)[0]).any()
    _, kept = module.eval()(query, need_weights=True)
    chosen = dropped != 0
    torch.testing.assert_close(dropped[chosen], 2 * kept[chosen])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("width", [1, 5])
def test_positions_are_right_to_the_rounding_of_the_type(width, dtype):
    column = torch.arange(width, dtype=torch.float64)
    angles = torch.arange(20000)[:, None] / 10000 ** (2 * (column // 2) / width)
    expected = torch.where(column % 2 == 0, angles.sin(), angles.cos())
    for module in (PositionalEncoding(width), PositionalEncoding(width).to(dtype)):  # whose type does not matter
        found = module(torch.zeros(20000, width, dtype=dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=ROUNDING[dtype], rtol=0)
    x = torch.randn(3, 2, 7, width)
    torch.testing.assert_close(module(x), x + expected[:7].float())
    assert module(x[..., :0, :]).shape == (3, 2, 0, width)
    assert module.encoding(3).dtype == torch.float32


@pytest.mark.parametrize("scaled", [True, False])
def test_tokens_with_and_without_the_factor(scaled):
    embedding, tokens = TokenEmbedding(1000, 16, scaled=scaled), torch.tensor([[1, 2], [999, 1]])
    torch.testing.assert_close(embedding(tokens), embedding.table.weight[tokens] * (4 if scaled else 1))
    assert embedding(torch.arange(1000)).var().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_fourier_features_are_right_to_the_rounding_of_the_type(dtype):
    x, waves = (torch.rand(3, 50, 4) * 2 - 1).to(dtype), FourierFeatures(8).to(dtype)
    angles = np.pi * x.double().unsqueeze(-1).numpy() * np.arange(1, 9)
    expected = torch.cat((x.double(), *(torch.from_numpy(f(angles)).flatten(-2) for f in (np.sin, np.cos))), -1)
    # In single precision an angle itself is rounded, by its last bit.
    atol = max(ROUNDING[dtype], 2.0**-23 * np.pi * 8 if dtype != torch.float64 else 0.0)
    torch.testing.assert_close(waves(x).double(), expected, atol=atol, rtol=0)


def test_a_module_made_without_memory_needs_no_tensors_but_its_parameters():
    whole = nn.Sequential(PositionalEncoding(4), FourierFeatures(3))
    with torch.device("meta"):
        empty = nn.Sequential(PositionalEncoding(4), FourierFeatures(3))
    x = torch.randn(2, 3, 4)
    same(empty.to_empty(device="cpu")(x), whole(x), atol=0, rtol=0)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_what_cannot_be_a_mask_is_refused_and_the_other_named(make):
    module, x = make(), torch.zeros(3, 5, 8)
    of_heads = torch.ones(2, 5, 5), torch.ones(3, 2, 5, 5)
    for mask in (torch.ones(3, 5), torch.ones(5, 4), *of_heads, torch.ones(()), torch.ones(4)):
        with pytest.raises(ValueError, match=r"mask has shape .* must broadcast to \(3, 5, 5\), .* use key_mask"):
            module(x, mask=mask)
    for one in (x[:1], x[0]):  # which a mask of heads would make a batch of two
        with pytest.raises(ValueError, match=r"mask has shape \(2, 5, 5\); .* to \((1, )?5, 5\), .* heads"):
            module(one, mask=of_heads[0])
        with pytest.raises(ValueError, match=r"key_mask has shape \(2, 5\); it must be \((1, )?5,?\)"):
            module(one, key_mask=torch.ones(2, 5))
    for mask in (torch.ones(3, 1, 5), torch.ones(3, 4), torch.ones(2, 5), torch.ones(())):
        with pytest.raises(ValueError, match=r"key_mask has shape .*; it must be \(3, 5\)\. .* use mask"):
            module(x, key_mask=mask)
    with pytest.raises(TypeError, match="key_mask is a list"):
        module(x, key_mask=[1, 1])
