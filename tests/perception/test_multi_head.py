"""Multi-head attention: what its masks mean, its widths, and what masked tokens may hold."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from hitmac.perception import EncoderBlock, MultiHeadAttention, attend, causal_mask
from hitmac.perception.functional import SCORES, make_score

SIZES = [(4, 4), (5, 4), (4, 5), (1, 4), (4, 1), (1, 1), (2, 255), (2, 257), (257, 257)]  # (batch, length)
MAKES = {
    "attention": lambda **o: MultiHeadAttention(8, 2, **o),
    "one head": lambda **o: MultiHeadAttention(8, **o),
    "block": lambda **o: EncoderBlock(8, 2, **o),
    "norm first": lambda **o: EncoderBlock(8, 2, norm_first=True, **o),
}


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize(("batch", "length"), SIZES)
def test_the_meaning_of_a_mask_does_not_depend_on_sizes(batch, length, make):
    torch.manual_seed(0)
    module, x = make().double(), random(batch, length, 8)
    padding = torch.rand(batch, length) > 0.4
    triangle = causal_mask(length)
    with torch.no_grad():
        causal = module(x, causal=True)[0]
        torch.testing.assert_close(module(x, mask=triangle)[0], causal)
        torch.testing.assert_close(module(x, mask=triangle.expand(batch, length, length))[0], causal)
        padded = module(x, key_mask=padding)[0]
        torch.testing.assert_close(module(x, mask=padding[:, None])[0], padded)  # as Keras has it
        torch.testing.assert_close(module(x, mask=padding[:, None].expand(batch, length, length))[0], padded)
        both = module(x, mask=triangle & padding[:, None])[0]
        torch.testing.assert_close(module(x, mask=triangle, key_mask=padding)[0], both)
        torch.testing.assert_close(module(x, causal=True, key_mask=padding)[0], both)
        for b in range(min(batch, 2)):  # a sequence of its own, without a batch
            torch.testing.assert_close(module(x[b], key_mask=padding[b])[0], padded[b])
            torch.testing.assert_close(module(x[b], mask=triangle, key_mask=padding[b])[0], both[b])


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_what_cannot_be_a_mask_is_refused_and_the_other_named(make):
    module, x = make(), torch.zeros(3, 5, 8)
    for mask in (torch.ones(3, 5), torch.ones(5, 4), torch.ones(3, 2, 5, 5), torch.ones(()), torch.ones(4)):
        with pytest.raises(ValueError, match=r"mask has shape .*; it must broadcast to \(\.\.\., 5, 5\).* is key_mask"):
            module(x, mask=mask)
    for mask in (torch.ones(3, 1, 5), torch.ones(3, 4), torch.ones(())):
        with pytest.raises(ValueError, match=r"key_mask has shape .*; it must be \(3, 5\)\. .* is mask"):
            module(x, key_mask=mask)
    with pytest.raises(TypeError, match="key_mask is a list"):
        module(x, key_mask=[1, 1])


@pytest.mark.parametrize("length", [5, 255, 257])
@pytest.mark.parametrize("score", SCORES)
def test_learned_queries_for_a_batch_of_keys(score, length):
    torch.manual_seed(0)
    module = MultiHeadAttention(8, 2, score=score).double()
    key, padding = random(3, length, 8), torch.rand(3, length) > 0.4
    for query in (random(1, 6, 8), random(6, 8)):
        ours, weights = module(query, key, key_mask=padding, need_weights=True)
        torch.testing.assert_close(ours, module(query.expand(3, 6, 8), key, key_mask=padding)[0])
        torch.testing.assert_close(ours, module(query, key, key_mask=padding)[0])
        assert weights.shape == (3, 2, 6, length)


@pytest.mark.parametrize("length", [5, 255, 257])
@pytest.mark.parametrize("what", [torch.nan, torch.inf, -torch.inf, 1e308])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("score", [None, *SCORES])
def test_masked_keys_may_hold_anything(score, causal, what, length):
    if score == "additive" and length > 5:
        return
    torch.manual_seed(0)
    score = None if score is None else make_score(score, 3).double()
    query, clean, values = random(2, length, 3).requires_grad_(), random(2, length, 3), random(2, length, 4)
    there = torch.rand(2, length) > 0.3
    results = []
    for key, value in (
        (clean, values),
        (clean.masked_fill(~there[..., None], what), values.masked_fill(~there[..., None], what)),
    ):
        key, value = key.clone().requires_grad_(), value.clone().requires_grad_()
        for need_weights in (False, True):
            output, _ = attend(
                query, key, value, score=score, mask=there[:, None], causal=causal, need_weights=need_weights
            )
            results.append((output, *torch.autograd.grad(output.pow(2).sum(), (query, key, value))))
    for result in results[1:]:
        for one, other in zip(result, results[0], strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("length", [5, 255, 257])
@pytest.mark.parametrize("what", [torch.nan, torch.inf, -torch.inf, 1e308])
@pytest.mark.parametrize("form", ["key_mask", "keras", "pairwise", "causal"])
def test_masked_tokens_may_hold_anything(form, what, length, make):
    torch.manual_seed(0)
    module, x = make().double(), random(2, length, 8)
    there = torch.rand(2, length) > 0.3
    options = {
        "key_mask": {"key_mask": there}, "keras": {"mask": there[:, None]},
        "pairwise": {"mask": there[:, None] & there[..., None]}, "causal": {"key_mask": there, "causal": True},
    }[form]  # fmt: skip
    results = []
    for tokens in (x.masked_fill(~there[..., None], 0.0), x.masked_fill(~there[..., None], what)):
        tokens = tokens.requires_grad_()
        output = module(tokens, **options)[0]
        assert output.isfinite().all()
        loss = (output * there[..., None]).pow(2).sum()
        results.append([output, *torch.autograd.grad(loss, (tokens, *module.parameters()))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
        assert one.isfinite().all()


def test_keys_and_values_of_their_own_may_hold_anything_where_masked():
    module = MultiHeadAttention(8, 2, key_dim=5, value_dim=6).double()
    query, key, value = random(2, 4, 8), random(2, 7, 5), random(2, 7, 6)
    there = torch.tensor([True, False, True, True, False, True, True])
    expected = module(query, key[:, there], value[:, there])[0]
    key[:, 1], value[:, 4] = torch.nan, torch.inf
    torch.testing.assert_close(module(query, key, value, key_mask=there)[0], expected)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("length", [5, 257])
def test_heads_of_a_width_of_their_own(length, bias):
    """8 heads of 3 on a width of 4: 4 -> 24 -> 4, by its equations."""
    torch.manual_seed(0)
    module = MultiHeadAttention(4, 8, head_dim=3, bias=bias).double()
    assert [tuple(linear.weight.shape) for linear in (module.query, module.key, module.value)] == [(24, 4)] * 3
    assert module.output.weight.shape == (4, 24)
    x = random(2, length, 4)
    heads = []
    for i in range(8):
        q, k, v = (m(x)[..., 3 * i : 3 * i + 3] for m in (module.query, module.key, module.value))
        heads.append((q @ k.mT / 3**0.5).softmax(-1) @ v)
    side_by_side = torch.cat(heads, -1)
    output, weights = module(x, need_weights=True)
    torch.testing.assert_close(output, module.output(side_by_side))
    assert weights.shape == (2, 8, length, length)
    bare = MultiHeadAttention(4, 8, head_dim=3, bias=bias, output_map=False).double()
    missing, unknown = bare.load_state_dict(module.state_dict(), strict=False)
    assert not missing
    assert all(name.startswith("output.") for name in unknown)
    torch.testing.assert_close(bare(x)[0], side_by_side)
    wide = MultiHeadAttention(4, 2, output_dim=7, key_dim=5).double()
    assert wide(x, random(2, 3, 5), random(2, 3, 4))[0].shape == (2, length, 7)


def test_the_default_widths_are_as_they_were():
    module = MultiHeadAttention(8, 2)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    both = {"weight": (8, 8), "bias": (8,)}
    assert shapes == {f"{m}.{k}": s for m in ("query", "key", "value", "output") for k, s in both.items()}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: MultiHeadAttention(8, 3), "num_heads is 3; it must divide the width 8"),
        (lambda: MultiHeadAttention(8, 3, head_dim=0), "head_dim is 0; it must be a whole number, 1 or more"),
        (lambda: MultiHeadAttention(8, 0, head_dim=3), "num_heads is 0"),
        (lambda: MultiHeadAttention(8, output_dim=0), "output_dim is 0"),
        (lambda: MultiHeadAttention(8, output_dim=4, output_map=False), "output_dim is 4; without the output map"),
        (lambda: attend(*torch.zeros(3, 2, 4, 3), mask=torch.ones(5)), r"mask has shape \(5,\); it must broad"),
        (lambda: attend(*torch.zeros(3, 2, 4, 3), mask=torch.ones(2, 4)), r"mask has shape \(2, 4\); it must broad"),
        (
            lambda: attend(torch.zeros(4, 3), torch.zeros(5, 3), torch.zeros(5, 3), causal=True),
            r"as many keys \(5\) as queries \(4\)",
        ),
        (
            lambda: attend(torch.zeros(4, 3), torch.zeros(5, 3), torch.zeros(4, 3)),
            r"value has shape \(4, 3\); key \(5, 3\) needs",
        ),
        (lambda: attend(torch.zeros(3), torch.zeros(5, 3), torch.zeros(5, 3)), r"query has shape \(3,\)"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


class Padded(nn.Module):
    """A module with its options, for those who record calls with tensors alone."""

    def __init__(self, module, causal):
        super().__init__()
        self.module, self.causal = module, causal

    def forward(self, x, there):
        return self.module(x, key_mask=there, causal=self.causal)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "causal"), [("attention", False), ("one head", True), ("norm first", True)])
def test_compiled_exported_and_mapped(make, causal):
    torch.manual_seed(0)
    torch._dynamo.reset()
    net, x, there = Padded(MAKES[make](), causal).eval(), torch.randn(3, 5, 8), torch.rand(3, 5) > 0.3
    sizes = {0: Dim("batch", min=1, max=99), 1: Dim("length", min=2, max=999)}
    exported = export(net, (x, there), dynamic_shapes=(sizes, sizes)).module()
    compiled = torch.compile(net, backend="aot_eager", dynamic=True, fullgraph=True)
    for batch, length in ((3, 5), (2, 9), (1, 300)):
        x, there = torch.randn(batch, length, 8), torch.rand(batch, length) > 0.3
        for form in (exported, compiled, torch.func.vmap(net)):
            torch.testing.assert_close(form(x, there), net(x, there), atol=1e-5, rtol=1e-5)
