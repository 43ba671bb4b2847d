"""Faster equivalents equal what they replace, on both sides of the size that chooses: values, derivatives, memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from hitmac import perception
from hitmac.perception import AttentionLayer, attend, fast_paths, short_sequences, tanh_attention
from hitmac.perception.fast_paths import prefix_sums
from hitmac.perception.functional import Additive, Dot
from hitmac.perception.short_sequences import to_tanh
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


# ---- attention within short sequences ----


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(fast_paths, "_MANY_FROM", 1)
    monkeypatch.setattr(fast_paths, "_THREADS_TO", torch.get_num_threads())


@pytest.fixture(params=["few", "many"])
def threads(request, compiled, monkeypatch):
    if request.param == "many":
        monkeypatch.setattr(fast_paths, "_THREADS_TO", 0)


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
}


@pytest.mark.parametrize("change", CHANGES)
def test_maps_and_changed_maps_at_any_size(change):
    """Scenes of 4 tokens of 16 numbers, around 65,536 numbers; also those of lists, in chunks without gradients."""
    net = perception.AgentTargetEncoder(16, 16, attend_over="targets")
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


def test_tanh_of_any_float():
    """Of numbers of every size and both signs, of infinity, and of NaN."""
    x = np.concatenate((10.0 ** np.linspace(-37, 38, 100_000), np.linspace(0, 10, 100_000), [np.inf])).astype(
        np.float32
    )
    given = np.stack((x, -x))
    found = given.copy()
    to_tanh(found, np.zeros(given.shape[1], np.float32))
    np.testing.assert_allclose(found, np.tanh(given.astype(np.float64)), rtol=4e-7)
    assert np.abs(found).max() <= 1
    assert (np.abs(found[np.abs(given) > 9.01]) == 1).all()  # a saturated unit has no gradient, 1 - y^2
    numbers = np.array([[0.0, np.nan]], np.float32)
    to_tanh(numbers, np.array([1.0, 1.0], np.float32))
    np.testing.assert_allclose(numbers, [[np.tanh(1.0), np.nan]], rtol=4e-7)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_heads": 2}, {"num_heads": 4, "scaled": True}])
@pytest.mark.parametrize("length", [1, 2, 8, 9])
def test_short_sequences(length, options, masked, swapped, compiled, monkeypatch):
    """Values, first and second derivatives of the kernels; of 9 tokens on, of matrix products."""
    net, x = AttentionLayer(8, 8, **options), torch.randn(3, 2, length, 8)
    x = (torch.randn(3, length, 2, 8).transpose(1, 2) if swapped else x).requires_grad_()
    mask = torch.rand(3, 2, length) < 0.6 if masked else None
    calls, kernel = [], short_sequences.attend
    monkeypatch.setattr(short_sequences, "attend", lambda *given: calls.append(1) or kernel(*given))
    results = []
    for short in (8, 0):
        monkeypatch.setattr(tanh_attention, "SHORT_TO", short)
        z, pooled = net(x, mask)
        inputs = [x, *net.parameters()]
        once = torch.autograd.grad(z.pow(2).sum() + pooled.sum(), inputs, retain_graph=True)
        first = gradients([z, pooled], inputs)
        results.append([z, pooled, *once, *first, *gradients(first, inputs)])
        with torch.no_grad():
            same(net(x, mask), (z, pooled))
    assert len(calls) == 2 * (length <= 8)
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm() + 1e-6


def test_the_kernels_keep_tensors_of_autograd_alone_which_a_backward_pass_frees(compiled):
    shapes, x = [], torch.randn(3, 4, 16)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: shapes.append(kept.shape) or kept, lambda kept: kept):
        AttentionLayer(16, 16, num_heads=2)(x)
    assert (3, 2, 4, 4) in shapes  # the weights


def test_a_sequence_does_not_depend_on_the_others(compiled):
    net, x = layer(), torch.randn(5, 4, 16)
    whole = net(x)[0]
    assert all(torch.equal(net(one)[0], z) for one, z in zip(x, whole, strict=True))
    x[1, 2], x[3] = torch.nan, torch.inf
    found = net(x)[0]
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2, 4]], whole[[0, 2, 4]])
    mask = torch.ones(5, 4)
    mask[1, 2] = mask[3] = 0
    assert net(x, mask)[0].isfinite().all()


def test_defaults_of_type_and_device_do_not_matter(compiled):
    net, x = layer(), torch.randn(2, 4, 16, requires_grad=True)
    plain = net(x)[0]
    (expected,) = torch.autograd.grad(plain.sum(), x)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = net(x)[0]
            assert torch.equal(torch.autograd.grad(found.sum(), x)[0], expected)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, plain)


def test_the_maps_have_exact_derivatives_and_keep_small_numbers(threads):
    net, x = AttentionLayer(3, 4), torch.randn(2, 3, 3, requires_grad=True)
    inputs = [x, *net.parameters()]
    found = (gradients(gradients(maps, inputs), inputs) for maps in (net.project(x), plain_maps(net, x)))
    same(*found, rtol=1e-4, atol=1e-4)
    same(net.project(1e-8 * x), plain_maps(net, 1e-8 * x), rtol=1e-6, atol=0)


# ---- attention over long sequences ----

MASKS = ["none", "padding", "pairwise", "some gone", "nothing", "rows"]
PAIRS = [("none", False), ("padding", True), ("nothing", False), ("nothing", True)]
"""Masks, causal or not."""


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1)


def mask_of(name, length):
    """A mask for a batch of 2 by name: none, padding, for every query, queries without keys, all gone."""
    padding, pairwise = torch.rand(2, 1, length) > 0.3, torch.rand(2, length, length) > 0.5
    rows, there = torch.rand(2, length, 1) > 0.3, torch.tensor([False, True])[:, None, None]
    masks = {"padding": padding, "nothing": padding & there, "rows": rows, "pairwise": pairwise}
    return (masks | {"none": None, "some gone": (pairwise & rows)[0]})[name]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("bound", "lengths"), [(1, (1, 7)), (256 * 256, (255, 257))])
def test_every_form_of_attention(bound, lengths, name, causal, monkeypatch):
    """Values, first and second derivatives, on both sides of the length that decides."""
    monkeypatch.setattr(fast_paths, "_LONG_FROM", bound)
    for length in lengths:
        mask, inputs = mask_of(name, length), [random(2, length, width).requires_grad_() for width in (3, 3, 5)]
        found = []
        for output in (attend(*inputs, mask=mask, causal=causal)[0], written_out(*inputs, mask, causal)):
            first = gradients([output], inputs)
            found.append([output, *first, *gradients(first, inputs)])
        same(*found, rtol=1e-6, atol=1e-6)
        found[0][0].add_(1)  # an output may be changed in place


@pytest.mark.parametrize("length", [0, 3])
def test_an_empty_batch(length, fused):
    for mask in (None, torch.ones(1, 1, length)):
        empty = [random(0, length, 3).requires_grad_() for _ in range(3)]
        output, _ = attend(*empty, mask=mask, causal=True)
        assert output.shape == (0, length, 3)
        assert [one.shape for one in gradients(gradients([output], empty), empty)] == [(0, length, 3)] * 3


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


@pytest.mark.parametrize(("name", "causal"), PAIRS)
@pytest.mark.parametrize(
    ("dtype", "autocast", "bound"),
    [
        (torch.bfloat16, False, 0.02), (torch.float16, False, 0.003), (torch.float32, False, 1e-6),
        (torch.bfloat16, True, 0.02), (torch.float16, True, 0.02),
    ],
)  # fmt: skip
def test_precision_does_not_depend_on_the_length(dtype, autocast, bound, name, causal):
    for length in (255, 256):
        mask, given_dtype = mask_of(name, length), torch.float32 if autocast else dtype
        inputs = [torch.randn(2, length, 8).to(given_dtype).requires_grad_() for _ in range(3)]
        exact = [x.detach().double().requires_grad_() for x in inputs]
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            output = attend(*inputs, mask=mask, causal=causal)[0]
        expected = written_out(*exact, mask, causal)
        assert output.dtype == dtype
        assert (output.double() - expected).norm() < bound * expected.norm()
        for create_graph in (False, True):
            options = {"create_graph": create_graph, "retain_graph": True}
            found = torch.autograd.grad(output.sum(), inputs, **options)
            for one, other in zip(found, torch.autograd.grad(expected.sum(), exact, **options), strict=True):
                assert (one.double() - other).norm() < 2 * bound * other.norm()


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("leads", [
    ((1,), (2,), (2,), ()), ((2,), (1,), (1,), (2,)), ((), (2,), (2,), ()), ((2,), (), (2,), (1,)),
    ((2, 1), (3,), (2, 3), ()), ((1,), (1,), (1,), (2,)), ((1,), (1,), (3,), ()), ((), (), (), (3, 2)),
])  # fmt: skip
def test_leading_axes_broadcast(leads, long, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    query, key, value = random(*leads[0], 4, 4), random(*leads[1], 5, 4), random(*leads[2], 5, 3)
    some, every = torch.rand(*leads[3], 1, 5) > 0.3, torch.ones(1, 5, dtype=torch.bool)
    for score in (Dot(), Additive(4, hidden_dim=2).double()):
        for mask, shape in ((None, torch.broadcast_shapes(*leads[:3])), (some, torch.broadcast_shapes(*leads))):
            output, _ = attend(query, key, value, score=score, mask=mask)
            scores = score(query.expand(*shape, 4, 4), key.expand(*shape, 5, 4))
            weights = scores.masked_fill(~(every if mask is None else mask), -torch.inf).softmax(-1).nan_to_num()
            torch.testing.assert_close(output, weights @ value)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, there: attend(x, x, x, causal=True),
        lambda x, there: attend(x, x, x[..., :8], mask=there),
        lambda x, there: perception.MultiHeadAttention(32, 4, head_dim=3)(x, causal=True),
        lambda x, there: perception.EncoderBlock(32, 4, hidden_dim=32)(x, key_mask=there),
        lambda x, there: perception.AMCCritic(32)(x, there.expand(1, 1000)),
    ],
)
def test_no_tensor_grows_with_the_square_of_the_length(call):
    x, there = torch.randn(1, 1000, 32, requires_grad=True), torch.rand(1000) > 0.3
    with Largest() as largest:
        call(x, there)[0].sum().backward()
    assert 1000 * 32 <= largest.found <= 2**17 < 1000**2


# ---- attention within every prefix ----


def one_by_one(query, key, added, mask):
    """The loop, prefix by prefix."""
    sums = []
    for j in range(1, added.shape[-1] + 1):
        z = written_out(query[..., :j, :], key[..., :j, :], added[..., :j, None], mask[..., None, :j])
        sums.append((z.squeeze(-1) * mask[..., :j]).sum(-1))
    return torch.stack(sums, -1) if sums else added * 0.0


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
        theirs = one_by_one(*inputs, mask)
        torch.testing.assert_close(ours, theirs)
        if length:
            same(gradients([ours], inputs), gradients([theirs], inputs))


def test_the_critic_is_mapped_over_scenes_and_masks(monkeypatch):
    small_blocks(monkeypatch, 2, 256.0)
    made, z, mask = perception.AMCCritic(6).double(), random(4, 5, 6), torch.rand(4, 5) > 0.4
    mapped = torch.func.vmap(torch.func.grad(made))(z, mask)
    torch.testing.assert_close(mapped, torch.func.grad(lambda x: made(x, mask).sum())(z))
    torch.testing.assert_close(torch.func.vmap(made, (None, 0))(z[0], mask), made(z[:1].expand(4, 5, 6), mask))


def test_a_sequence_gives_the_same_in_every_batch():
    made, z = perception.AMCCritic(8).double(), random(3, 1100, 8)
    torch.testing.assert_close(made(z)[1], made(z[1]), atol=0, rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_do_not_round_the_scores(dtype):
    query, key, added = (x.to(dtype) for x in (*random(2, 2, 9, 64).tanh(), random(2, 9)))
    expected = prefix_sums(query.double(), key.double(), added.double(), None, 64.0)
    torch.testing.assert_close(prefix_sums(query, key, added, None, 64.0), expected)


# ---- derivatives ----


def along(shape, ours, theirs):
    """Two functions of x by three numbers t of x = base + t . directions."""
    base, directions = random(*shape), random(3, *shape)
    return [lambda t, form=form: form(base + torch.tensordot(t, directions, 1)) for form in (ours, theirs)]


def short(length):
    """A layer of float32, whose kernels take no other type."""
    net = layer()
    return along(
        (2, length, 16),
        lambda x: net(x.float())[0].double(),
        lambda x: written_out(*plain_maps(net, x.float())).double(),
    )


def attention(name, causal):
    mask = mask_of(name, 5)
    return along(
        (2, 5, 3),
        lambda x: attend(x, x.tanh(), x.sin(), mask=mask, causal=causal)[0],
        lambda x: written_out(x, x.tanh(), x.sin(), mask, causal),
    )


def prefixes():
    """Five tokens, in three blocks and three levels."""
    mask = torch.tensor([True, False, True, True, True])
    return along(
        (5, 3),
        lambda x: prefix_sums(x, x.tanh(), x.cos().sum(-1), mask, 9.0),
        lambda x: one_by_one(x, x.tanh(), x.cos().sum(-1), mask),
    )


FORMS = {
    "short sequences": lambda: short(4),
    "maps": lambda: short(9),
    "attention": lambda: attention("none", False),
    "causal and padded attention": lambda: attention("padding", True),
    "prefixes": prefixes,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_derivatives_in_every_way(form, way, compiled, fused, monkeypatch):
    small_blocks(monkeypatch, 2, 4.0)
    one, other = (WAYS[way](lambda t, f=f: f(t).pow(3).mean()) for f in FORMS[form]())
    torch.testing.assert_close(
        one, other, **{"rtol": 1e-4, "atol": 1e-4} if form in ("short sequences", "maps") else {}
    )
