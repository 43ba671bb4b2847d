"""Transformer: PyTorch's own modules, masks, positional encoding, embedding, Fourier features."""

import numpy as np
import pytest
import torch
from torch import nn

from hitmac.perception import (
    AgentTargetEncoder,
    EncoderBlock,
    MultiHeadAttention,
    PositionalEncoding,
    TokenEmbedding,
    causal_mask,
    fast_paths,
)
from hitmac.perception.functional import SCORES
from hitmac.perception.transformer import FourierFeatures
from tests.perception.numerics import gradients, random, same

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-7, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
MAKES = {
    "attention": lambda **o: MultiHeadAttention(8, 2, **o),
    "one head": lambda **o: MultiHeadAttention(8, **o),
    "block": lambda **o: EncoderBlock(8, 2, **o),
    "norm first": lambda **o: EncoderBlock(8, 2, norm_first=True, **o),
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


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_is_pytorchs(num_heads, causal):
    ours = MultiHeadAttention(8, num_heads).double()
    theirs = nn.MultiheadAttention(8, num_heads, batch_first=True).double()
    copy_into_pytorchs(ours, theirs)
    query, key, value = random(3, 5, 8), random(3, 5, 8), random(3, 5, 8)
    padding = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, True, False, True]])
    blocked = ~causal_mask(5) if causal else None
    expected = theirs(
        query, key, value, key_padding_mask=~padding, attn_mask=blocked, average_attn_weights=False
    )  # fmt: skip
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
    assert ours(x, need_weights=True)[1].shape == (3, 2, 5, 5)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize(("batch", "length"), [(4, 4), (1, 4), (4, 1), (2, 257)])
def test_the_meaning_of_a_mask_does_not_depend_on_sizes(batch, length, make):
    module, x = make().double(), random(batch, length, 8)
    padding, triangle = torch.rand(batch, length) > 0.4, causal_mask(length)
    both = triangle & padding[:, None]
    with torch.no_grad():
        causal, padded = module(x, causal=True)[0], module(x, key_mask=padding)[0]
        masked = module(x, causal=True, key_mask=padding)[0]
        for expected, options in (
            (causal, {"mask": triangle}),
            (causal, {"mask": triangle.expand(batch, length, length)}),
            (padded, {"mask": padding[:, None]}),  # as Keras has it
            (masked, {"mask": both}),
            (masked, {"mask": triangle, "key_mask": padding}),
        ):
            torch.testing.assert_close(module(x, **options)[0], expected)
        for b in range(min(batch, 2)):  # a sequence of its own, without a batch
            torch.testing.assert_close(module(x[b], key_mask=padding[b])[0], padded[b])
            torch.testing.assert_close(module(x[b], mask=triangle, key_mask=padding[b])[0], masked[b])


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("long", [False, True])
def test_masked_tokens_may_hold_anything(make, long, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    module, x = make().double(), random(2, 5, 8)
    there = torch.tensor([[True, False, True, True, False], [False, True, True, False, True]])
    for options in (
        {"key_mask": there},
        {"mask": there[:, None]},
        {"mask": there[:, None] & there[..., None]},
        {"key_mask": there, "causal": True},
    ):
        results = []
        for wrong in (0.0, torch.nan, torch.inf, -torch.inf, 1e308):
            tokens = x.masked_fill(~there[..., None], wrong).requires_grad_()
            output = module(tokens, **options)[0]
            found = gradients([output * there[..., None]], (tokens, *module.parameters()))
            assert output.isfinite().all()
            results.append([output, *found])
        for result in results[1:]:
            same(result, results[0])


@pytest.mark.parametrize("score", SCORES)
def test_queries_keys_and_values_of_widths_and_leading_axes_of_their_own(score):
    module = MultiHeadAttention(8, 2, query_dim=3, key_dim=4, value_dim=5, score=score).double()
    key, value, there = random(3, 7, 4), random(3, 7, 5), torch.rand(3, 7) > 0.3
    for query in (random(6, 3), random(1, 6, 3), random(3, 6, 3)):
        output, weights = module(query, key, value, key_mask=there, need_weights=True)
        assert weights.shape == (3, 2, 6, 7)
        for b in range(3):
            own, valid = query if query.ndim == 2 else query[b % len(query)], there[b]
            torch.testing.assert_close(output[b], module(own, key[b, valid], value[b, valid])[0])
    key[0, ~there[0]], value[2, ~there[2]] = torch.nan, torch.inf
    torch.testing.assert_close(module(query, key, value, key_mask=there)[0], output)


@pytest.mark.parametrize("bias", [False, True])
def test_heads_of_a_width_of_their_own(bias):
    """8 heads of 3 on a width of 4: 4 -> 24 -> 4, by its equations."""
    module, x = MultiHeadAttention(4, 8, head_dim=3, bias=bias).double(), random(2, 5, 4)
    heads = []
    for i in range(8):
        q, k, v = (m(x)[..., 3 * i : 3 * i + 3] for m in (module.query, module.key, module.value))
        heads.append((q @ k.mT / 3**0.5).softmax(-1) @ v)
    side_by_side = torch.cat(heads, -1)
    torch.testing.assert_close(module(x)[0], module.output(side_by_side))
    bare = MultiHeadAttention(4, 8, head_dim=3, bias=bias, output_map=False).double()
    missing, unknown = bare.load_state_dict(module.state_dict(), strict=False)
    assert not missing
    assert all(name.startswith("output.") for name in unknown)
    torch.testing.assert_close(bare(x)[0], side_by_side)
    wide = MultiHeadAttention(4, 2, output_dim=7, key_dim=5).double()
    assert wide(x, random(2, 3, 5), random(2, 3, 4))[0].shape == (2, 5, 7)


def test_dropout_only_while_training():
    query, module = random(1, 400, 8), MultiHeadAttention(8, dropout=0.5).double()
    _, dropped = module(query, need_weights=True)
    assert 0.45 < (dropped == 0).double().mean() < 0.55
    assert (module(query)[0] != module(query)[0]).any()
    _, kept = module.eval()(query, need_weights=True)
    chosen = dropped != 0
    torch.testing.assert_close(dropped[chosen], 2 * kept[chosen])


def places_by_hand(length, width):
    """Sine and cosine of every position, column by column, in double precision."""
    places, table = np.arange(length), np.empty((length, width))
    for column in range(width):
        angles = places / 10000.0 ** (2 * (column // 2) / width)
        table[:, column] = np.cos(angles) if column % 2 else np.sin(angles)
    return torch.from_numpy(table)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("width", [1, 5, 64])
def test_positions_are_right_to_the_rounding_of_the_type(width, dtype):
    expected, zeros = places_by_hand(20000, width), torch.zeros(20000, width, dtype=dtype)
    module = PositionalEncoding(width).to(dtype)
    # The type of the module does not matter.
    for found in (module(zeros), PositionalEncoding(width)(zeros), module.encoding(20000, dtype=dtype)):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=ROUNDING[dtype], rtol=0)
    assert module.encoding(3).dtype == torch.float32
    x = torch.randn(3, 2, 7, width)
    torch.testing.assert_close(PositionalEncoding(width)(x), x + expected[:7].float())
    assert PositionalEncoding(width)(x[..., :0, :]).shape == (3, 2, 0, width)


@pytest.mark.parametrize("scaled", [True, False])
def test_tokens_with_and_without_the_factor(scaled):
    embedding, tokens = TokenEmbedding(1000, 16, scaled=scaled), torch.tensor([[1, 2], [999, 1]])
    torch.testing.assert_close(embedding(tokens), embedding.table.weight[tokens] * (4 if scaled else 1))
    assert embedding(torch.arange(1000)).var().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_fourier_features_are_right_to_the_rounding_of_the_type(dtype):
    by_hand = [0.5, -1.0, 1, 0, 0, 0, 0, -1, -1, 1]  # sin and cos of 1 and 2 half turns of each
    found = FourierFeatures(2).to(dtype)(torch.tensor([0.5, -1.0], dtype=dtype))
    torch.testing.assert_close(found, torch.tensor(by_hand, dtype=dtype), atol=1e-6, rtol=0)
    x, waves = (torch.rand(3, 50, 4) * 2 - 1).to(dtype), FourierFeatures(8).to(dtype)
    angles = np.pi * x.double().unsqueeze(-1).numpy() * np.arange(1, 9)
    expected = torch.cat((x.double(), *(torch.from_numpy(f(angles)).flatten(-2) for f in (np.sin, np.cos))), -1)
    # In single precision an angle itself is rounded, by its last bit.
    atol = max(ROUNDING[dtype], 2.0**-23 * np.pi * 8 if dtype != torch.float64 else 0.0)
    torch.testing.assert_close(waves(x).double(), expected, atol=atol, rtol=0)
    assert torch.autograd.gradcheck(waves, (random(3, 4).requires_grad_(),))


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: nn.Sequential(TokenEmbedding(10, 16), PositionalEncoding(16)), torch.arange(8).view(2, 4)),
        (lambda: AgentTargetEncoder(4, 8, num_frequencies=3), torch.rand(2, 3, 5, 4)),
    ],
)
def test_tensors_loaded_into_an_empty_module_are_the_whole_module(make, x):
    made = make()
    with torch.device("meta"):
        empty = make()
    empty = empty.to_empty(device="cpu")
    for tensor in (*empty.parameters(), *empty.buffers()):
        nn.init.constant_(tensor, torch.nan)  # whatever was in memory
    empty.load_state_dict(made.state_dict())
    same(empty(x), made(x), atol=0, rtol=0)


@pytest.mark.parametrize("make", [MAKES["attention"], MAKES["block"]])
def test_what_cannot_be_a_mask_is_refused_and_the_other_named(make):
    module, x = make(), torch.zeros(3, 5, 8)
    for mask in (torch.ones(3, 5), torch.ones(5, 4), torch.ones(3, 2, 5, 5), torch.ones(()), torch.ones(4)):
        with pytest.raises(ValueError, match=r"mask has shape .* must broadcast to \(\.\.\., 5, 5\).* use key_mask"):
            module(x, mask=mask)
    for mask in (torch.ones(3, 1, 5), torch.ones(3, 4), torch.ones(())):
        with pytest.raises(ValueError, match=r"key_mask has shape .*; it must be \(3, 5\)\. .* use mask"):
            module(x, key_mask=mask)
    with pytest.raises(TypeError, match="key_mask is a list"):
        module(x, key_mask=[1, 1])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: MultiHeadAttention(8, 3), "num_heads is 3; it must divide the width 8"),
        (lambda: MultiHeadAttention(8, 0, head_dim=3), "num_heads is 0"),
        (lambda: MultiHeadAttention(8, 3, head_dim=0), "head_dim is 0; it must be a whole number, 1 or more"),
        (lambda: MultiHeadAttention(8, dropout=1.0), "dropout is 1.0; it must be a number from 0"),
        (lambda: MultiHeadAttention(8, output_dim=0), "output_dim is 0"),
        (lambda: MultiHeadAttention(8, output_dim=4, output_map=False), "output_dim is 4; without the output map"),
        (lambda: MultiHeadAttention(8)(torch.zeros(3, 7)), r"query has shape \(3, 7\); it must be"),
        (lambda: MultiHeadAttention(8)(torch.zeros(3, 8), torch.zeros(4, 8), causal=True), r"keys \(4\) as queries"),
        (lambda: MultiHeadAttention(8, score="cosine"), "score is 'cosine'; it must be one of dot, scaled_dot"),
        (lambda: TokenEmbedding(0, 8), "num_tokens is 0"),
        (lambda: PositionalEncoding(8, dropout=-0.1), "dropout is -0.1"),
        (lambda: EncoderBlock(8, hidden_dim=0), "hidden_dim is 0"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()
