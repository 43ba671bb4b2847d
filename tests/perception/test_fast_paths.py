"""Faster equivalents equal what they replace, on both sides of the size that chooses: values, derivatives, memory."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from hitmac.perception import (
    AgentTargetEncoder,
    AMCCritic,
    AttentionLayer,
    EncoderBlock,
    MultiHeadAttention,
    attend,
    fast_paths,
)
from hitmac.perception.fast_paths import prefix_sums
from hitmac.perception.functional import Additive, Bilinear, Dot, ScaledDot
from tests.perception.numerics import LEADS, WAYS, gradients, random, same, written_out

# PyTorch's own, where forward-mode derivatives are first taken.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


class Largest(TorchDispatchMode):
    """Size of the largest tensor that an operation gives."""

    found = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, torch.Tensor):
                self.found = max(self.found, one.numel())
        return result


# ---- tanh ----


@pytest.fixture
def fast_tanh(monkeypatch):
    monkeypatch.setattr(fast_paths, "_TANH_FROM", 1)


def layer():
    return AttentionLayer(16, 16)


def plain_maps(net, x):
    return [linear(x).tanh() for linear in (net.Q, net.K, net.V)]


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class TwiceTheWeight(nn.Module):
    def forward(self, weight):
        return 2 * weight


CHANGES = {
    "none": lambda net: None,
    "subclass": lambda net: setattr(net, "Q", Doubled(16, 16)),
    "without bias": lambda net: setattr(net, "K", nn.Linear(16, 16, bias=False)),
    "parametrised": lambda net: parametrize.register_parametrization(net.Q, "weight", TwiceTheWeight()),
    "hook": lambda net: net.Q.register_forward_hook(lambda module, given, output: 2 * output),
    "hook before": lambda net: net.Q.register_forward_pre_hook(lambda module, given: (2 * given[0],)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_maps_and_changed_maps_at_any_size(change):
    """Scenes of 4 tokens of 16 numbers, around 65,536 numbers; also those of lists, in chunks without gradients."""
    net = AgentTargetEncoder(16, 16, attend_over="targets")
    CHANGES[change](net.attention)
    net.eval()
    for batch in (1023, 1024, 1025):
        x, targets = torch.randn(batch, 4, 16), torch.arange(4).expand(batch, 4)
        same(net.attention.project(x), plain_maps(net.attention, x))
        with torch.no_grad():
            found = net(x, targets=targets).per_target
        torch.testing.assert_close(found, net(x, targets=targets).per_target, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("batch", [1, 1024])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.006), (torch.float16, 0.0008), (torch.float32, 1e-6)])
def test_precision_does_not_depend_on_the_size(dtype, bound, batch):
    net, x = layer().to(dtype), (0.1 * torch.randn(batch, 4, 16)).to(dtype)
    z = net(x)[0]
    assert z.dtype == dtype
    expected = written_out(*plain_maps(net.double(), x.double()))
    assert (z.double() - expected).norm() < bound * expected.norm()


def test_the_maps_have_exact_derivatives(fast_tanh):
    net, x = AttentionLayer(3, 4).double(), random(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda tokens: net(tokens), (x,), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda tokens: net(tokens)[0], (x,), check_batched_grad=True)
    inputs = [x, *net.parameters()]
    same(*(gradients(gradients(maps, inputs), inputs) for maps in (net.project(x), plain_maps(net, x))))


# ---- attention over long sequences ----

SOME = [("none", False), ("padding", True), ("nothing", False), ("nothing", True)]
EVERY = [*itertools.product(["none", "padding", "pairwise", "some gone", "nothing", "rows"], [False, True])]


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1)


def mask_of(name, length):
    """A mask for a batch of 2 by name: none, padding, for every query, queries without keys, all gone."""
    padding = torch.rand(2, 1, length) > 0.3
    if name == "nothing":
        padding[0] = False
    pairwise = torch.rand(2, length, length) > 0.5
    if name == "some gone":
        pairwise = pairwise[0]
        pairwise[::3] = False
    rows = torch.rand(2, length, 1) > 0.3
    return {"none": None, "padding": padding, "nothing": padding, "rows": rows}.get(name, pairwise)


def check_derivatives(name, causal, length):
    mask, inputs = mask_of(name, length), [random(2, length, width).requires_grad_() for width in (3, 3, 5)]
    found = []
    for output in (attend(*inputs, mask=mask, causal=causal)[0], written_out(*inputs, mask, causal)):
        first = gradients([output], inputs)
        found.append([output, *first, *gradients(first, inputs)])
    same(*found, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "causal"), EVERY)
def test_every_form_of_attention(name, causal, fused):
    for length in (1, 7):
        check_derivatives(name, causal, length)
    for length in (0, 3):  # of an empty batch
        empty = [random(0, length, 3).requires_grad_() for _ in range(3)]
        mask = mask_of(name, length)
        output, _ = attend(*empty, mask=mask if mask is None or mask.ndim == 2 else mask[:1], causal=causal)
        assert output.shape == (0, length, 3)
        assert [one.shape for one in gradients(gradients([output], empty), empty)] == [(0, length, 3)] * 3


@pytest.mark.parametrize(("name", "causal"), [("none", True), ("padding", False), ("padding", True)])
@pytest.mark.parametrize("length", [255, 256, 520])
def test_long_sequences(length, name, causal):
    check_derivatives(name, causal, length)


def test_the_kernel_is_taken_for_long_sequences_and_masks_of_keys_only(monkeypatch):
    seen, kernel = [], functional.scaled_dot_product_attention
    counted = lambda *given, **options: seen.append(given[0].shape) or kernel(*given, **options)  # noqa: E731
    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    x, long = torch.randn(255, 4), torch.randn(2, 256, 4)
    query = torch.randn(1, 4, requires_grad=True)
    for of_query, of_key, options in (
        (x, x, {}),
        (long, long, {"mask": torch.ones(256, 256)}),
        (long, long, {"need_weights": True}),
        (long, long, {"dropout": 0.5}),
        (long, long, {"score": Additive(4, hidden_dim=2)}),
    ):
        attend(of_query, of_key, of_key, **options)
    torch.func.grad(lambda q: attend(q, long[0], long[0])[0].sum())(long[0])
    assert not seen
    AttentionLayer(4, 8)(long)
    attend(query, *torch.randn(2, 65_536, 4))
    assert seen == [(2, 1, 256, 8), (1, 1, 1, 4)]


MODULES = [
    lambda: AttentionLayer(4, 6, num_heads=2),
    lambda: AttentionLayer(4, 6, pooling="attention", layer_norm=True),
    lambda: MultiHeadAttention(4, 2, score="bilinear"),
    lambda: EncoderBlock(4, 2),
    lambda: AgentTargetEncoder(4, 6, attend_over="pairs"),
]


@pytest.mark.parametrize("make", MODULES)
def test_modules_have_the_same_derivatives_with_and_without_the_kernel(make, monkeypatch):
    module, x = make().double(), random(3, 5, 4).requires_grad_()
    found = []
    for bound in (1, 10**9):
        monkeypatch.setattr(fast_paths, "_LONG_FROM", bound)
        outputs = [output for output in module(x) if output is not None]
        first = gradients(outputs, [x, *module.parameters()])
        found.append([*outputs, *first, *gradients(first, [x, *module.parameters()])])
    same(*found)


@pytest.mark.parametrize(("name", "causal"), SOME)
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.bfloat16, 0.02), (torch.float16, 0.003), (torch.float32, 1e-6), (torch.float64, 1e-14)]
)
def test_precision_does_not_depend_on_the_length(dtype, bound, name, causal):
    for length in (255, 256):
        mask, inputs = mask_of(name, length), [torch.randn(2, length, 8).to(dtype).requires_grad_() for _ in range(3)]
        exact = [x.detach().double().requires_grad_() for x in inputs]
        output, expected = attend(*inputs, mask=mask, causal=causal)[0], written_out(*exact, mask, causal)
        assert output.dtype == dtype
        assert (output.double() - expected).norm() < bound * expected.norm()
        both = torch.autograd.grad(output.sum(), inputs), torch.autograd.grad(expected.sum(), exact)
        for one, other in zip(*both, strict=True):
            assert (one.double() - other).norm() < 2 * bound * other.norm()


@pytest.mark.parametrize(("name", "causal"), SOME)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype, name, causal):
    mask, inputs = mask_of(name, 256), [torch.randn(2, 256, 8).requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", dtype=dtype):
        output = attend(*inputs, mask=mask, causal=causal)[0]
    expected = written_out(*inputs, mask, causal)
    assert (output - expected).norm() < 0.02 * expected.norm()
    for create_graph in (False, True):
        options = {"create_graph": create_graph, "retain_graph": True}
        both = (torch.autograd.grad(y.float().sum(), inputs, **options) for y in (output, expected))
        for one, other in zip(*both, strict=True):
            assert (one - other).norm() < 0.04 * other.norm()


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("leads", [
    ((1,), (2,), (2,), ()), ((2,), (1,), (1,), (2,)), ((), (2,), (2,), ()), ((2,), (), (2,), (1,)),
    ((2, 1), (3,), (2, 3), ()), ((1,), (1,), (1,), (2,)), ((1,), (1,), (3,), ()), ((), (), (), (3, 2)),
])  # fmt: skip
def test_leading_axes_broadcast(leads, long, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    query, key, value = random(*leads[0], 4, 4), random(*leads[1], 5, 4), random(*leads[2], 5, 3)
    mask = torch.rand(*leads[3], 1, 5) > 0.3
    for score in (None, ScaledDot(), Bilinear(4).double(), Additive(4, hidden_dim=2).double()):
        for given_mask, shape in ((None, torch.broadcast_shapes(*leads[:3])), (mask, torch.broadcast_shapes(*leads))):
            output, _ = attend(query, key, value, score=score, mask=given_mask)
            assert output.shape == (*shape, 4, 3)
            there = torch.ones(1, 5, dtype=torch.bool) if given_mask is None else given_mask
            q, k, v, m = (x.expand(*shape, *x.shape[-2:]) for x in (query, key, value, there))
            scores = (Dot() if score is None else score)(q, k)
            weights = scores.masked_fill(~m, -torch.inf).softmax(-1).nan_to_num()
            torch.testing.assert_close(output, weights @ v)


def test_the_output_may_be_changed_in_place(fused):
    x = random(3, 4).requires_grad_()
    for causal in (False, True):
        output, _ = attend(x, x, x, causal=causal)
        output += 1
        output.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, there: attend(x, x, x, causal=True),
        lambda x, there: attend(x, x, x[..., :8], mask=there),
        lambda x, there: attend(x, x, x, causal=True, mask=there),
        lambda x, there: MultiHeadAttention(32, 4, head_dim=3)(x, causal=True, key_mask=there),
        lambda x, there: EncoderBlock(32, 4, hidden_dim=32)(x, causal=True, key_mask=there),
        lambda x, there: AMCCritic(32)(x, there.expand(1, 1000)),
    ],
)
def test_no_tensor_grows_with_the_square_of_the_length(call):
    x, there = torch.randn(1, 1000, 32, requires_grad=True), torch.rand(1000) > 0.3
    with Largest() as largest:
        call(x, there)[0].sum().backward()
    assert 1000 * 32 <= largest.found <= 2**17 < 1000**2


# ---- attention within every prefix ----


def one_by_one(query, key, added, mask):
    """The loop, prefix by prefix, over one sequence (L, d)."""
    sums = []
    for j in range(1, len(query) + 1):
        valid = mask[:j].nonzero().squeeze(-1)
        weights = (query[valid] @ key[valid].mT).softmax(-1)
        sums.append((weights @ added[valid]).sum())
    return torch.stack(sums) if sums else added * 0.0


def loop(query, key, added, mask):
    """The loop over sequences with leading axes."""
    *lead, length, _ = query.shape
    flat = [x.reshape(math.prod(lead), length, *x.shape[len(lead) + 1 :]) for x in (query, key, added, mask)]
    return torch.stack(list(map(one_by_one, *flat))).reshape(*lead, length)


def small_blocks(patch, rows, limit):
    patch.setattr(fast_paths, "_PREFIX_BLOCK", 0)
    patch.setattr(fast_paths, "_PREFIX_ROWS", rows)
    patch.setitem(fast_paths._LIMIT, torch.float64, limit)


def sequence(lead, length):
    query, key, added = random(*lead, length, 3), random(*lead, length, 3), random(*lead, length)
    return [x.requires_grad_() for x in (query, key, added)]


@settings(deadline=None, max_examples=60)
@given(
    length=st.integers(0, 9),
    rows=st.integers(1, 4),
    limit=st.sampled_from([256.0, 1.0]),
    masked=st.sampled_from([None, 0.4, 1.1]),
    lead=st.sampled_from([*LEADS, (2, 1, 2)]),
)
def test_blocks_and_levels_are_the_loop(length, rows, limit, masked, lead):
    inputs = sequence(lead, length)
    bound = float((inputs[0].detach() @ inputs[1].detach().mT).abs().amax()) if length else 1.0
    mask = torch.rand(*lead, length) > (masked or -1.0)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, rows, limit)
        ours = prefix_sums(*inputs, None if masked is None else mask, bound)
        theirs = loop(*inputs, mask)
        torch.testing.assert_close(ours, theirs)
        if length:
            same(gradients([ours], inputs), gradients([theirs], inputs))


@pytest.mark.parametrize("limit", [256.0, 4.0])
def test_prefixes_have_exact_derivatives(limit, monkeypatch):
    small_blocks(monkeypatch, 2, limit)
    inputs, mask = sequence((2,), 3), torch.tensor([[True, False, True], [False, True, True]])

    def sums(*given):
        return prefix_sums(*given, mask, 9.0)

    assert torch.autograd.gradcheck(sums, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(sums, inputs, check_batched_grad=True)


@pytest.mark.parametrize("masked", [False, True])
def test_the_critic_is_mapped_over_scenes(masked, monkeypatch):
    small_blocks(monkeypatch, 2, 256.0)
    made, z, mask = AMCCritic(6).double(), random(4, 5, 6), torch.rand(4, 5) > 0.4 if masked else None
    over = (0, 0 if masked else None)
    torch.testing.assert_close(torch.func.vmap(made, over)(z, mask), made(z, mask))
    one_by_one_scene = torch.func.vmap(torch.func.grad(made), over)(z, mask)
    torch.testing.assert_close(one_by_one_scene, torch.func.grad(lambda x: made(x, mask).sum())(z))
    if masked:  # one scene, several masks
        torch.testing.assert_close(torch.func.vmap(made, (None, 0))(z[0], mask), made(z[:1].expand(4, 5, 6), mask))


def test_a_sequence_gives_the_same_in_every_batch():
    made, z = AMCCritic(8).double(), random(3, 1100, 8)
    torch.testing.assert_close(made(z)[1], made(z[1]), atol=0, rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_do_not_round_the_scores(dtype):
    query, key, added = (x.to(dtype) for x in (*random(2, 2, 9, 64).tanh(), random(2, 9)))
    expected = prefix_sums(query.double(), key.double(), added.double(), None, 64.0)
    torch.testing.assert_close(prefix_sums(query, key, added, None, 64.0), expected)


# ---- derivatives ----


def maps_by_their_bias():
    net, x = layer().double(), random(2, 4, 16)

    def attended(maps, x):
        return (maps[0] @ maps[1].mT).softmax(-1) @ maps[2]

    def ours(t):
        return torch.func.functional_call(net, {"Q.bias": t.repeat(6)[:16]}, x)[0]

    return ours, lambda t: attended([(x @ net.Q.weight.T + t.repeat(6)[:16]).tanh(), *plain_maps(net, x)[1:]], x)


def along(shape, ours, theirs):
    """Two functions of x by three numbers t of x = base + t . directions."""
    base, directions = random(*shape), random(3, *shape)
    return [lambda t, form=form: form(base + torch.tensordot(t, directions, 1)) for form in (ours, theirs)]


def maps_by_their_input():
    net = layer().double()
    return along((2, 4, 16), lambda x: net(x)[0], lambda x: written_out(*plain_maps(net, x)))


def attention(name, causal):
    mask = mask_of(name, 5)
    return along(
        (2, 5, 3),
        lambda x: attend(x, x.tanh(), x.sin(), mask=mask, causal=causal)[0],
        lambda x: written_out(x, x.tanh(), x.sin(), mask, causal),
    )


def critic():
    """Five pairs, in three blocks."""
    made, mask = AMCCritic(4).double(), torch.tensor([True, False, True, True, True])

    def critic_written_out(z):
        query, key, value = made.attention.project(z)
        of_prefix, of_pair = made.linear.weight.squeeze(0).split((made.weight_dim, made.feature_dim))
        powers = (query @ key.mT).exp() * mask
        sums = (powers * (value @ of_prefix)).cumsum(-1) / powers.cumsum(-1).clamp(min=1e-30)
        prefixes = (sums.triu() * mask.unsqueeze(-1)).sum(-2)
        earlier = torch.cat((torch.zeros_like(prefixes[:1]), prefixes[:-1]))
        return ((earlier + z @ of_pair + made.linear.bias) * mask).sum()

    return along((5, 4), lambda z: made(z, mask), critic_written_out)


FORMS = {
    "maps by their input": maps_by_their_input,
    "maps by their bias": maps_by_their_bias,
    "attention": lambda: attention("none", False),
    "causal and padded attention": lambda: attention("padding", True),
    "attention to nothing": lambda: attention("nothing", False),
    "critic": critic,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_derivatives_in_every_way(form, way, fast_tanh, fused, monkeypatch):
    small_blocks(monkeypatch, 2, 256.0)
    one, other = (WAYS[way](lambda t, f=f: f(t).pow(3).mean()) for f in FORMS[form]())
    torch.testing.assert_close(one, other)
