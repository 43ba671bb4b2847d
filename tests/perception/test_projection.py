"""The maps Q, K, V of the tanh-projected layer: the same whatever the size of the input, and whatever the maps are."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from hitmac.perception import AttentionLayer
from tests.perception.derivatives import WAYS

# Scenes of 4 tokens of 16 numbers, around 65,536 numbers, where one function takes the place of a map and its tanh.
BATCHES = [1, 1023, 1024, 1025]


def layer(**options):
    torch.manual_seed(0)
    return AttentionLayer(16, 6, **options)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class LowRank(nn.Module):
    """A linear map with a low-rank one beside it, as LoRA has it; the map's own names show through."""

    def __init__(self, linear):
        super().__init__()
        self.linear, self.down, self.up = linear, nn.Linear(16, 2, bias=False), nn.Linear(2, 6, bias=False)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


class TwiceTheWeight(nn.Module):
    def forward(self, weight):
        return 2 * weight


def other_forward(net):
    plain = net.Q.forward
    net.Q.forward = lambda x: 2 * plain(x)


CHANGES = {
    "subclass": lambda net: setattr(net, "Q", Doubled(16, 6)),
    "low rank": lambda net: setattr(net, "Q", LowRank(net.Q)),
    "without bias": lambda net: setattr(net, "K", nn.Linear(16, 6, bias=False)),
    "sequential": lambda net: setattr(net, "V", nn.Sequential(nn.Linear(16, 3), nn.Linear(3, 6))),
    "spectral norm": lambda net: parametrizations.spectral_norm(net.Q),
    "parametrised": lambda net: parametrize.register_parametrization(net.Q, "weight", TwiceTheWeight()),
    "pruned": lambda net: prune.random_unstructured(net.Q, "weight", 0.5),
    "hook that changes": lambda net: net.Q.register_forward_hook(lambda module, given, output: 2 * output),
    "hook before": lambda net: net.Q.register_forward_pre_hook(lambda module, given: (2 * given[0],)),
    "forward of its own": other_forward,
}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("change", CHANGES)
def test_changed_maps_count_at_any_size(change, batch):
    net = layer()
    CHANGES[change](net)
    net.eval()
    x = torch.randn(batch, 4, 16)
    expected = [net.Q(x).tanh(), net.K(x).tanh(), net.V(x).tanh()]
    for one, other in zip(net.project(x), expected, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(net(x)[0][:1], net(x[:1])[0])


@pytest.mark.filterwarnings("ignore")
def test_quantised_maps_work_at_any_size():
    net = layer()
    net = torch.ao.quantization.quantize_dynamic(net, {nn.Linear})
    x = torch.randn(1024, 4, 16)
    torch.testing.assert_close(net.project(x)[0], net.Q(x).tanh())


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_fire_at_any_size(everywhere, kind, batch):
    net, seen = layer(), []

    def hook(module, *rest):
        if isinstance(module, nn.Linear):
            seen.append(module)

    owners = [nn.modules.module] if everywhere else [net.Q, net.K, net.V]
    registered = f"register_module_{kind}_hook" if everywhere else f"register_{kind}_hook"
    handles = [getattr(owner, registered)(hook) for owner in owners]
    try:
        net(torch.randn(batch, 4, 16, requires_grad=True))[0].sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert set(seen) == {net.Q, net.K, net.V}


def reference(net, x):
    """The layer in float64, written out."""
    query, key, value = ((x.double() @ m.weight.double().T + m.bias.double()).tanh() for m in (net.Q, net.K, net.V))
    return (query @ key.mT).softmax(-1) @ value


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.006), (torch.float16, 0.0008), (torch.float32, 1e-6)])
def test_precision_does_not_depend_on_the_size(dtype, bound, batch):
    net = layer().to(dtype)
    x = (0.1 * torch.randn(batch, 4, 16)).to(dtype)
    expected = reference(net, x)
    z = net(x)[0]
    assert z.dtype == dtype
    assert (z.double() - expected).norm() < bound * expected.norm()


def written_out(net, x):
    query, key, value = net.Q(x).tanh(), net.K(x).tanh(), net.V(x).tanh()
    return (query @ key.mT).softmax(-1) @ value


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("way", WAYS)
def test_derivatives_in_every_way(way, batch):
    """By three numbers t of x = base + t . directions."""
    net = layer().double()
    base, directions = torch.randn(batch, 4, 16).double(), torch.randn(3, batch, 4, 16).double()
    one, other = (
        WAYS[way](lambda t, form=form: form(base + torch.tensordot(t, directions, 1)).pow(3).mean())
        for form in (lambda x: net(x)[0], lambda x: written_out(net, x))
    )
    torch.testing.assert_close(one, other)
    by_bias, other = (
        WAYS[way](lambda t, form=form: form(t).pow(3).mean())
        for form in (
            lambda t: torch.func.functional_call(net, {"Q.bias": t.repeat(2)}, base)[0],
            lambda t: torch.func.functional_call(Written(net), {"net.Q.bias": t.repeat(2)}, base),
        )
    )
    torch.testing.assert_close(by_bias, other)


class Written(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return written_out(self.net, x)


# Of one feature, so that the number of tokens is that of the numbers.
@pytest.mark.parametrize("length", [1, 65_535, 65_536, 65_537])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_batch_of_gradients_through_the_maps_alone(create_graph, length):
    torch.manual_seed(0)
    net = AttentionLayer(1, 2).double()
    x = torch.randn(length, 1).double().requires_grad_()
    inputs = [x, *net.parameters()]
    found = []
    for maps in (net.project, lambda x: (net.Q(x).tanh(), net.K(x).tanh(), net.V(x).tanh())):
        query, key, value = maps(x)
        for outputs in ((query, value), (key,)):  # not all of them have a gradient
            gradients = [torch.linspace(-1, 1, 3).double()[:, None, None].expand(3, *o.shape) for o in outputs]
            of = torch.autograd.grad(
                outputs, inputs, gradients, is_grads_batched=True, create_graph=create_graph, retain_graph=True,
                allow_unused=True, materialize_grads=True,
            )  # fmt: skip
            found.append(of)
            if create_graph:
                total = sum(gradient.square().sum() for gradient in of)
                found.append(torch.autograd.grad(total, inputs, retain_graph=True, materialize_grads=True))
    half = len(found) // 2
    for ours, theirs in zip(found[:half], found[half:], strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0), (1,)])
def test_maps_are_differentiated_one_after_the_other(order, batch):
    """As what was computed apart can be, without retaining the graph of the first for the second."""
    net, x = layer().double(), torch.randn(batch, 4, 16).double().requires_grad_()
    maps = net.project(x)
    for number in order:
        linear = (net.Q, net.K, net.V)[number]
        inputs = [x, linear.weight, linear.bias]
        found = torch.autograd.grad(maps[number].sum(), inputs)
        expected = torch.autograd.grad(linear(x).tanh().sum(), inputs)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("frozen", ["Q.weight", "K.bias", "V", ""])
def test_what_needs_no_gradient_gets_none(frozen):
    net, x = layer(), torch.randn(1024, 4, 16)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen or "Q."))
    net(x)[0].sum().backward()
    for name, parameter in net.named_parameters():
        assert (parameter.grad is None) == name.startswith(frozen or "Q.")
