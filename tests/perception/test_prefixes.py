"""The AMC critic's sums over prefixes: any width, any length, in blocks, with every kind of derivative."""

import itertools
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hitmac.perception.fast_paths as prefixes
from hitmac.perception import AMCCritic
from hitmac.perception.fast_paths import prefix_sums
from tests.perception.derivatives import WAYS

LEADS = [(), (2,), (3, 2), (2, 1, 2)]
WIDTHS = [1, 2, 31, 32, 33, 128, 255, 256, 257, 511, 512, 513, 720, 1024, 2048]


def one_by_one(query, key, added, mask=None):
    """The literal loop, prefix by prefix, over one sequence (L, d)."""
    sums = []
    for j in range(1, len(query) + 1):
        there = slice(j) if mask is None else mask[:j].nonzero().squeeze(-1)
        weights = (query[there] @ key[there].mT).double().softmax(-1)
        sums.append((weights @ added[there].double()).sum())
    return torch.stack(sums) if sums else added.double() * 0.0


def loop(query, key, added, mask=None):
    """The loop over sequences with leading axes."""
    length, lead = query.shape[-2], query.shape[:-2]
    flat = [x.reshape(math.prod(lead), length, x.shape[-1]) for x in (query, key)]
    there = [None] * len(flat[0]) if mask is None else mask.reshape(math.prod(lead), length)
    results = map(one_by_one, *flat, added.reshape(math.prod(lead), length), there)
    return torch.stack(list(results)).reshape(*lead, length)


def inputs(lead, length, width=3):
    torch.manual_seed(length)
    query, key = (torch.randn(*lead, length, width, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return query, key, torch.randn(*lead, length, dtype=torch.float64, requires_grad=True)


def small_blocks(monkeypatch, rows=2, limit=256.0):
    monkeypatch.setattr(prefixes, "_PREFIX_BLOCK", 0)
    monkeypatch.setattr(prefixes, "_PREFIX_ROWS", rows)
    monkeypatch.setitem(prefixes._LIMIT, torch.float64, limit)


def critic(width, weights):
    torch.manual_seed(width)
    made = AMCCritic(3, width).double()
    with torch.no_grad():
        for linear, sign in ((made.attention.Q, 1), (made.attention.K, -1)):
            if weights == "saturated":
                linear.weight.normal_(std=50.0)
            elif weights == "opposed":
                linear.weight.fill_(sign * 50.0)
    return made


@pytest.mark.parametrize("weights", ["random", "saturated", "opposed"])
@pytest.mark.parametrize("width", WIDTHS)
def test_any_width_is_the_loop(width, weights):
    made, z = critic(width, weights), torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    query, key, value = made.attention.project(z)
    of_prefix, of_pair = made.linear.weight.squeeze(0).split((width, 3))
    sums = one_by_one(query, key, value @ of_prefix)
    expected = (torch.cat((sums[:0], sums.new_zeros(1), sums[:-1])) + z @ of_pair + made.linear.bias).sum()
    value = made(z)
    torch.testing.assert_close(value, expected)
    leaves = [z, *made.parameters()]
    ours, theirs = torch.autograd.grad(value, leaves, create_graph=True), torch.autograd.grad(expected, leaves)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    again = torch.autograd.grad(sum(one.square().sum() for one in ours), leaves, allow_unused=True)
    assert all(one.isfinite().all() for one in again if one is not None)
    torch.testing.assert_close(made.float()(z.detach().float()), expected.float(), atol=1e-6 * width, rtol=1e-4)


@pytest.mark.parametrize("width", [720, 2048])
def test_the_order_of_saturated_scores_does_not_matter(width):
    """The largest scores first, last, and in between; each prefix is where the one before it has underflowed."""
    for order in itertools.permutations((-1.0, 0.0, 0.5, 1.0)):
        key = torch.tensor(order, dtype=torch.float64).unsqueeze(-1).expand(4, width)
        query, added = torch.ones_like(key), torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
        expected = one_by_one(query, key, added)
        torch.testing.assert_close(prefix_sums(query, key, added, None, width), expected)


@pytest.mark.parametrize("limit", [256.0, 1.0])
@pytest.mark.parametrize("masked", ["none", "some", "all"])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 8, 9])
def test_blocks_are_the_loop(length, rows, masked, limit, monkeypatch):
    small_blocks(monkeypatch, rows, limit)
    for lead in LEADS:
        given = inputs(lead, length)
        bound = float((given[0].detach() @ given[1].detach().mT).abs().amax()) if length else 1.0
        mask = {"none": None, "some": torch.rand(*lead, length) > 0.4, "all": torch.zeros(*lead, length).bool()}[masked]
        ours, theirs = prefix_sums(*given, mask, bound), loop(*given, mask)
        torch.testing.assert_close(ours, theirs)
        if theirs.requires_grad and length:
            weights = torch.randn_like(ours)
            pairs = zip(
                torch.autograd.grad(ours, given, weights),
                torch.autograd.grad(theirs, given, weights, materialize_grads=True),
                strict=True,
            )
            for one, other in pairs:
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("limit", [256.0, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_every_kind_of_derivative(masked, limit, monkeypatch):
    small_blocks(monkeypatch, 2, limit)
    given = inputs((2,), 5)
    mask = torch.tensor([[True, False, True, True, False], [False, True, True, True, True]]) if masked else None

    def ours(query, key, added):
        return prefix_sums(query, key, added, mask, 9.0)

    def theirs(query, key, added):
        return loop(query, key, added, mask)

    assert torch.autograd.gradcheck(ours, given, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(ours, given, check_batched_grad=True)
    plain = tuple(x.detach() for x in given)
    tangents = tuple(torch.randn_like(x) for x in plain)
    for one, other in zip(torch.func.jvp(ours, plain, tangents), torch.func.jvp(theirs, plain, tangents), strict=True):
        torch.testing.assert_close(one, other)
    for argument in range(3):
        for jacobian in (torch.func.jacfwd, torch.func.jacrev):
            torch.testing.assert_close(
                jacobian(ours, argument)(*plain), torch.autograd.functional.jacobian(theirs, plain)[argument]
            )
        hessian = torch.func.hessian(lambda *x: ours(*x).sin().sum(), argument)(*plain)
        expected = torch.autograd.functional.hessian(lambda *x: theirs(*x).sin().sum(), plain)[argument][argument]
        torch.testing.assert_close(hessian, expected)


@pytest.mark.parametrize("length", [5, 40])
@pytest.mark.parametrize("way", WAYS)
def test_derivatives_in_every_way(way, length, monkeypatch):
    """By three numbers t of z = base + t . directions; derivatives of derivatives too."""
    small_blocks(monkeypatch, 16)
    made = AMCCritic(4).double()
    base, directions = torch.randn(length, 4).double(), torch.randn(3, length, 4).double()
    mask = torch.rand(length) > 0.3
    one, other = (
        WAYS[way](lambda t, form=form: form(base + torch.tensordot(t, directions, 1)).sin())
        for form in (lambda z: made(z, mask), lambda z: written_out(made, z, mask))
    )
    torch.testing.assert_close(one, other)


def written_out(made, z, mask):
    """The critic's value, whole tables at once."""
    query, key, value = made.attention.project(z)
    of_prefix, of_pair = made.linear.weight.squeeze(0).split((made.weight_dim, made.feature_dim))
    powers = (query @ key.mT).exp() * mask
    sums = (powers * (value @ of_prefix)).cumsum(-1) / powers.cumsum(-1).clamp(min=1e-30)
    prefixes = (sums.triu() * mask.unsqueeze(-1)).sum(-2)
    earlier = torch.cat((torch.zeros_like(prefixes[:1]), prefixes[:-1]))
    return ((earlier + z @ of_pair + made.linear.bias) * mask).sum()


@pytest.mark.parametrize("masked", [False, True])
def test_vmap_over_scenes(masked, monkeypatch):
    small_blocks(monkeypatch)
    made, z = AMCCritic(6).double(), torch.randn(4, 5, 6, dtype=torch.float64)
    mask = torch.rand(4, 5) > 0.4 if masked else None
    over = (0, 0 if masked else None)
    torch.testing.assert_close(torch.func.vmap(made, over)(z, mask), made(z, mask))
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(lambda x, there: made(x, there)), over)(z, mask),
        torch.func.grad(lambda x: made(x, mask).sum())(z),
    )
    if masked:  # one scene, several masks
        torch.testing.assert_close(torch.func.vmap(made, (None, 0))(z[0], mask), made(z[:1].expand(4, 5, 6), mask))


def test_a_sequence_gives_the_same_in_every_batch():
    torch.manual_seed(0)
    made, z = AMCCritic(8).double(), torch.randn(3, 1100, 8, dtype=torch.float64)
    torch.testing.assert_close(made(z)[1], made(z[1]), atol=0, rtol=1e-14)


class _Largest(TorchDispatchMode):
    """The size of the largest tensor that an operation gives."""

    found = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, torch.Tensor):
                self.found = max(self.found, one.numel())
        return result


@pytest.mark.parametrize("length", [1000, 2500])
def test_no_tensor_grows_with_the_square_of_the_length(length):
    made, z = AMCCritic(16), torch.randn(1, length, 16, requires_grad=True)
    with _Largest() as largest:
        made(z).sum().backward()
    assert length * 16 <= largest.found <= prefixes._PREFIX_BLOCK < length * length


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_do_not_round_the_scores(dtype):
    torch.manual_seed(0)
    query, key, added = (torch.randn(2, 9, 64).tanh().to(dtype), torch.randn(2, 9, 64).tanh().to(dtype),
                         torch.randn(2, 9).to(dtype))  # fmt: skip
    expected = prefix_sums(query.double(), key.double(), added.double(), None, 64.0)
    torch.testing.assert_close(prefix_sums(query, key, added, None, 64.0), expected)
    made, z = AMCCritic(64).to(dtype), torch.randn(9, 64).to(dtype).requires_grad_()
    value = made(z)
    assert value.dtype == dtype
    torch.testing.assert_close(value.double(), made.double()(z.detach().double()), atol=0.1, rtol=0.05)
    value.backward()
    assert z.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:# The axis name")
def test_compiled_and_exported_at_other_lengths(tmp_path):
    import onnxruntime
    from torch.export import Dim, export

    torch.manual_seed(0)
    made = AMCCritic(8, 300).eval()  # in two levels
    sizes = {0: Dim("batch", min=1, max=512), 1: Dim("length", min=2, max=4096)}
    example = (torch.randn(3, 5, 8), torch.rand(3, 5) > 0.3)
    exported = export(made, example, dynamic_shapes=(sizes, sizes)).module()
    program = torch.onnx.export(
        made, example, dynamo=True, dynamic_shapes=(sizes, sizes), input_names=["z", "mask"], output_names=["value"],
        verbose=False,
    )  # fmt: skip
    program.save(tmp_path / "critic.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "critic.onnx")
    compiled = torch.compile(made, backend="aot_eager", dynamic=True, fullgraph=True)
    for shape in ((2, 9), (1, 30)):
        z, mask = torch.randn(*shape, 8, requires_grad=True), torch.rand(shape) > 0.3
        mask[0, 0] = False
        expected = made(z, mask)
        (by_onnx,) = session.run(None, {"z": z.detach().numpy(), "mask": mask.numpy()})
        for one in (exported(z, mask), compiled(z, mask), torch.as_tensor(by_onnx)):
            torch.testing.assert_close(one, expected, atol=1e-4, rtol=1e-4)
        gradients = (torch.autograd.grad(one.sum(), z)[0] for one in (compiled(z, mask), expected))
        torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)
