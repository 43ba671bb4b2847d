"""Random numbers, comparisons, attention written out, and ways to differentiate a function of three numbers."""

import torch
from torch import autograd, func
from torch.autograd import forward_ad

LEADS = [(), (2,), (3, 2)]
OTHER_TYPES = [
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64, torch.float16,
    torch.bfloat16,
]  # fmt: skip


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def disturbed(net):
    """Return a network in double precision whose weights have changed: biases that start at 0 would hide themselves."""
    net = net.double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def same(one, other, **tolerance):
    """Compare the tensors of two sequences, pair by pair."""
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def gradients(outputs, inputs):
    """Return the gradients of a nonlinear sum of all outputs, zero where an input does not count."""
    total = sum((output.pow(3) + output).sum() for output in outputs)
    return torch.autograd.grad(total, list(inputs), create_graph=True, materialize_grads=True)


def written_out(query, key, value, mask=None, causal=False):
    """Compute attention, all scores at once."""
    scores = query @ key.mT
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool) if mask is None else mask
    mask = mask & torch.ones(scores.shape[-2:], dtype=torch.bool).tril() if causal else mask
    return (scores.masked_fill(~mask, -1e30).softmax(-1) * mask) @ value


T, V = torch.tensor([0.3, -0.2, 0.1]).double(), torch.tensor([1.0, 0.5, -2.0]).double()


def forward_over_reverse(f):
    with forward_ad.dual_level():
        t = forward_ad.make_dual(T.clone().requires_grad_(), V)
        (gradient,) = autograd.grad(f(t), t, create_graph=True)
        return forward_ad.unpack_dual(gradient).tangent


def tangent_of_the_gradient(f):
    """The gradient given to the backward pass carries a tangent, the inputs do not."""
    t = T.clone().requires_grad_()
    y = f(t)
    with forward_ad.dual_level():
        (gradient,) = autograd.grad(y, t, forward_ad.make_dual(torch.ones_like(y), torch.full_like(y, 2.0)))
        return forward_ad.unpack_dual(gradient).tangent


WAYS = {
    "hessian": lambda f: func.hessian(f)(T),
    "jacfwd of jacfwd": lambda f: func.jacfwd(func.jacfwd(f))(T),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(f))(T),
    "jacrev of jacfwd": lambda f: func.jacrev(func.jacfwd(f))(T),
    "vmap of grad": lambda f: func.vmap(func.grad(f))(torch.stack((T, V))),
    "vectorised": lambda f: autograd.functional.hessian(f, T, vectorize=True),
    "forward over reverse": forward_over_reverse,
    "tangent of the gradient": tangent_of_the_gradient,
}
