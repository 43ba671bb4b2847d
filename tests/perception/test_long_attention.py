"""Attention on both sides of the length from which its scores are not written down: values, derivatives, memory."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hitmac.perception import AgentTargetEncoder, AttentionLayer, EncoderBlock, MultiHeadAttention, attend, causal_mask
from hitmac.perception.functional import Additive, Bilinear, Dot, ScaledDot
from tests.perception.derivatives import WAYS

LENGTHS = [7, 255, 256, 257, 520]  # written out below 256; blocks of 256
HALF = [(torch.bfloat16, 0.02), (torch.float16, 0.003), (torch.float32, 1e-6), (torch.float64, 1e-14)]


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def written_out(query, key, value, mask=None, causal=False):
    scores = query @ key.mT
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool) if mask is None else mask
    mask = mask & causal_mask(query.shape[-2]) if causal else mask
    weights = scores.masked_fill(~mask, -1e30).softmax(-1) * mask
    return weights @ value


def masks(length):
    """Masks by name for a batch of 2: none, padding, one for every query, queries without keys, all gone."""
    torch.manual_seed(1)
    padding = torch.rand(2, 1, length) > 0.3
    some_gone = torch.rand(length, length) > 0.5
    some_gone[::3] = False
    nothing = torch.stack((torch.zeros(1, length, dtype=torch.bool), padding[1]))
    return {
        "none": None, "padding": padding, "pairwise": torch.rand(2, length, length) > 0.5, "some gone": some_gone,
        "nothing": nothing, "rows": torch.rand(2, length, 1) > 0.3,
    }  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", masks(1))
def test_values_and_gradients_of_every_form(name, causal, length):
    torch.manual_seed(0)
    mask = masks(length)[name]
    inputs = [random(2, length, 3).requires_grad_(), random(2, length, 3).requires_grad_(), random(2, length, 5)]
    inputs[2].requires_grad_()
    output, _ = attend(*inputs, mask=mask, causal=causal)
    expected = written_out(*inputs, mask, causal)
    torch.testing.assert_close(output, expected)
    for order in (1, 2):
        ours, theirs = (
            torch.autograd.grad(y.pow(3).sum(), inputs, create_graph=order == 2, retain_graph=True)
            for y in (output, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)
    seconds = [
        torch.autograd.grad(sum(g.square().sum() for g in first), inputs, retain_graph=True) for first in (ours, theirs)
    ]
    for one, other in zip(*seconds, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["none", "padding", "pairwise"])
@pytest.mark.parametrize("causal", [False, True])
def test_batches_of_gradients(causal, name, length):
    torch.manual_seed(0)
    mask = masks(length)[name]
    inputs = [random(2, length, 3).requires_grad_() for _ in range(3)]
    vectors = random(3, 2, length, 3)
    ours, theirs = (
        torch.autograd.grad(y, inputs, vectors, is_grads_batched=True)
        for y in (attend(*inputs, mask=mask, causal=causal)[0], written_out(*inputs, mask, causal))
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("length", [255, 257])
@pytest.mark.parametrize("name", ["none", "padding"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_derivatives_in_every_way(way, causal, name, length):
    torch.manual_seed(0)
    mask = masks(length)[name]
    base, directions = random(2, length, 3), random(3, 2, length, 3)

    def by(form):
        def value(t):
            x = base + torch.tensordot(t, directions, 1)
            return form(x, x.tanh(), x.sin()).pow(3).sum(-1).mean()

        return WAYS[way](value)

    ours = by(lambda q, k, v: attend(q, k, v, mask=mask, causal=causal)[0])
    torch.testing.assert_close(ours, by(lambda q, k, v: written_out(q, k, v, mask, causal)))


@pytest.mark.parametrize("length", [255, 256, 257])
@pytest.mark.parametrize(
    "make",
    [
        lambda: AttentionLayer(4, 6, num_heads=2), lambda: AttentionLayer(4, 6, pooling="attention", layer_norm=True),
        lambda: MultiHeadAttention(4, 2), lambda: MultiHeadAttention(4, 2, score="bilinear"),
        lambda: EncoderBlock(4, 2),
    ],
)  # fmt: skip
def test_modules_have_second_derivatives_at_any_length(make, length):
    torch.manual_seed(0)
    module = make()
    getattr(module, "__self__", module).double()

    def loss(t):
        y = module(base + torch.tensordot(t, directions, 1))
        return (y[0] if isinstance(y, tuple) else y).pow(3).mean()

    base, directions = random(length, 4), random(3, length, 4)
    hessian, functional = WAYS["hessian"](loss), WAYS["autograd.functional.hessian"](loss)
    torch.testing.assert_close(hessian, functional)
    step = 1e-5 * torch.eye(3).double()
    slopes = [
        (WAYS["grad"](lambda t, s=s: loss(t + s)) - WAYS["grad"](lambda t, s=s: loss(t - s))) / 2e-5 for s in step
    ]
    torch.testing.assert_close(hessian, torch.stack(slopes), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [(15, 17), (16, 16), (1, 257)])
def test_the_encoder_over_pairs_has_second_derivatives_at_any_size(size):
    torch.manual_seed(0)
    net = AgentTargetEncoder(4, 6, attend_over="pairs").double()
    x = random(*size, 4).requires_grad_()
    for loss in (lambda f: f.per_target.pow(2).sum(), lambda f: f.global_feature.pow(2).sum()):
        (first,) = torch.autograd.grad(loss(net(x)), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        with torch.no_grad():
            step = 1e-6 * second / second.norm()
        slopes = [torch.autograd.grad(loss(net(x + sign * step)), x)[0].square().sum() for sign in (1.0, -1.0)]
        torch.testing.assert_close((slopes[0] - slopes[1]) / 2e-6, second.norm(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("length", [255, 257])
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_is_that_of_the_weights_and_its_derivatives_agree(causal, length):
    ones = torch.ones(2, length, 1).double().requires_grad_()
    query, key = random(2, length, 3).requires_grad_(), random(2, length, 3)
    torch.manual_seed(3)
    output, _ = attend(query, key, ones, dropout=0.5, causal=causal)
    assert 0.9 < output[:, 50:].mean() < 1.1
    assert output[:, 50:].std() > 0.01
    (first,) = torch.autograd.grad(output.pow(3).sum(), query, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), query)
    step = 1e-6 * second / second.norm()
    slopes = []
    for sign in (1.0, -1.0):
        torch.manual_seed(3)
        y, _ = attend(query + sign * step, key, ones, dropout=0.5, causal=causal)
        slopes.append(torch.autograd.grad(y.pow(3).sum(), query)[0].square().sum())
    torch.testing.assert_close((slopes[0] - slopes[1]) / 2e-6, second.norm(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("length", [255, 256, 257])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["none", "padding", "nothing"])
@pytest.mark.parametrize(("dtype", "bound"), HALF)
def test_precision_does_not_depend_on_the_length(dtype, bound, name, causal, length):
    torch.manual_seed(0)
    mask = masks(length)[name]
    inputs = [torch.randn(2, length, 8).to(dtype).requires_grad_() for _ in range(3)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    output, expected = attend(*inputs, mask=mask, causal=causal)[0], written_out(*exact, mask, causal)
    assert output.dtype == dtype
    assert (output.double() - expected).norm() < bound * expected.norm()
    gradients = torch.autograd.grad(output.sum(), inputs), torch.autograd.grad(expected.sum(), exact)
    for one, other in zip(*gradients, strict=True):
        assert (one.double() - other).norm() < 2 * bound * other.norm()


@pytest.mark.parametrize("length", [255, 256, 257])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["none", "padding", "nothing"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype, name, causal, length):
    torch.manual_seed(0)
    mask = masks(length)[name]
    inputs = [torch.randn(2, length, 8).requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", dtype=dtype):
        output = attend(*inputs, mask=mask, causal=causal)[0]
    expected = written_out(*inputs, mask, causal)
    assert (output - expected).norm() < 0.02 * expected.norm()
    for create_graph in (False, True):
        ours, theirs = (
            torch.autograd.grad(y.float().sum(), inputs, create_graph=create_graph, retain_graph=True)
            for y in (output, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            assert (one - other).norm() < 0.04 * other.norm()


@pytest.mark.parametrize("length", [4, 255, 256, 300])
@pytest.mark.parametrize("score", [None, Dot(), ScaledDot(), Bilinear(4), Additive(4, hidden_dim=2)])
@pytest.mark.parametrize(
    "leads",
    [
        ((1,), (2,), (2,), ()), ((2,), (1,), (1,), (2,)), ((), (2,), (2,), ()), ((2,), (), (2,), (1,)),
        ((2, 1), (3,), (2, 3), ()), ((1,), (1,), (1,), (2,)), ((1,), (1,), (3,), ()), ((), (), (), (3, 2)),
    ],
)  # fmt: skip
def test_leading_axes_broadcast(leads, score, length):
    torch.manual_seed(0)
    score = None if score is None else score.double()
    query, key, value = random(*leads[0], length, 4), random(*leads[1], length + 1, 4), random(*leads[2], length + 1, 3)
    mask = torch.rand(*leads[3], 1, length + 1) > 0.3
    lead = torch.broadcast_shapes(*leads)
    for there, shape in ((None, torch.broadcast_shapes(*leads[:3])), (mask, lead)):
        output, none = attend(query, key, value, score=score, mask=there)
        assert none is None
        assert output.shape == (*shape, length, 3)
        if there is None:
            there = torch.ones(length + 1, dtype=torch.bool)[None]
        q, k, v, m = (x.expand(*shape, *x.shape[-2:]) for x in (query, key, value, there))
        expected, weights = attend(q, k, v, score=score, mask=m, need_weights=True)
        torch.testing.assert_close(output, expected)
        scores = q @ k.mT if score is None else score(q, k)
        torch.testing.assert_close(weights, scores.masked_fill(~m, -torch.inf).softmax(-1).nan_to_num())


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257])
@pytest.mark.parametrize("name", masks(1))
@pytest.mark.parametrize("causal", [False, True])
def test_an_empty_batch_has_derivatives_of_any_order(causal, name, length):
    mask = masks(length)[name]
    inputs = [random(0, length, 3).requires_grad_() for _ in range(3)]
    output, _ = attend(*inputs, mask=mask if mask is None or mask.ndim == 2 else mask[:1], causal=causal)
    assert output.shape == (0, length, 3)
    for one in torch.autograd.grad(output.sum(), inputs, create_graph=True):
        assert one.shape == (0, length, 3)
        if one.requires_grad:
            torch.autograd.grad(one.sum(), inputs, retain_graph=True, allow_unused=True)


def test_the_output_may_be_changed_in_place():
    x = random(300, 4).requires_grad_()
    for causal in (False, True):
        output, _ = attend(x, x, x, causal=causal)
        output += 1
        output.sum().backward()


def test_memory_grows_with_the_length():
    """Forward and backward at 3000 tokens; their scores would take 36 MB a head, a mask of them 9 MB."""
    code = """
import re, torch
from pathlib import Path
from hitmac.perception import *

def memory(what):
    return int(re.search(what + r':\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) / 1024

torch.set_num_threads(1)
for call in (
    lambda x, there: attend(x, x, x, causal=True),
    lambda x, there: attend(x, x, x, causal=True, mask=there),
    lambda x, there: attend(x, x, x[..., :8], causal=True),
    lambda x, there: MultiHeadAttention(32, 4)(x, causal=True),
    lambda x, there: MultiHeadAttention(32, 4, head_dim=3)(x, causal=True, key_mask=there),
    lambda x, there: EncoderBlock(32, 4, hidden_dim=32)(x, causal=True, key_mask=there),
):
    for length in (300, 3000):
        before = memory('VmRSS')
        Path('/proc/self/clear_refs').write_text('5')  # the peak begins again
        x = torch.randn(1, length, 32, requires_grad=True)
        call(x, torch.rand(length) > 0.3)[0].sum().backward()
    print(memory('VmHWM') - before)
"""
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    taken = [float(line) for line in ended.stdout.split()]
    assert len(taken) == 6
    assert max(taken) < 40, taken
