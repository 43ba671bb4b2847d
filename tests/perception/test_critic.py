"""The AMC critic, the ablations and the released nets."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.perception import AMCCritic, AttentionLayer, NoisyLinear, RecurrentLayer
from hitmac.perception.released import from_tensors, load_released

LEADS = [(), (2,), (3, 2)]


def critic(**options):
    torch.manual_seed(0)
    made = AMCCritic(6, **options).double()
    torch.nn.init.normal_(made.linear.bias)
    return made


def one_by_one(made, z):
    """The paper's loop: one call of the attention for every prefix of one sequence (L, d)."""
    contributions = []
    for j in range(len(z)):
        before = made.attention(z[:j])[1] if j else torch.zeros(made.weight_dim, dtype=z.dtype)
        contributions.append(made.linear(torch.cat((before, z[j]))).squeeze())
    return torch.stack(contributions)


@pytest.mark.parametrize("length", [1, 2, 7, 20])
def test_one_pass_is_the_loop(length):
    made = critic()
    z = torch.randn(length, 6, dtype=torch.float64, requires_grad=True)
    value, contributions = made(z, return_contributions=True)
    expected = one_by_one(made, z)
    torch.testing.assert_close(contributions, expected)
    torch.testing.assert_close(value, expected.sum())
    parameters = [z, *made.parameters()]
    ours = torch.autograd.grad(value, parameters)
    theirs = torch.autograd.grad(expected.sum(), parameters, allow_unused=True)  # one alone needs no attention
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)


def test_single_precision_is_good_to_1e_5():
    torch.manual_seed(0)
    made, z = AMCCritic(128), torch.randn(20, 128)
    torch.testing.assert_close(made(z), one_by_one(made, z).sum(), atol=1e-5, rtol=1e-5)


def test_saturated_scores_do_not_overflow():
    made = AMCCritic(128)
    for linear in (made.attention.Q, made.attention.K):
        torch.nn.init.normal_(linear.weight, std=5)  # tanh saturates: scores up to +-128
    z = torch.randn(20, 128, requires_grad=True)
    value = made(z)
    torch.testing.assert_close(value, one_by_one(made, z).sum(), atol=1e-4, rtol=1e-4)
    value.backward()
    assert z.grad.isfinite().all()


def test_gradients_are_exact():
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    z = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda tokens: critic()(tokens, mask), (z,))


@pytest.mark.parametrize("kind", ["amc", "no_prefix", "value_head"])
@settings(deadline=None, max_examples=20)
@given(data=st.data(), lead=st.sampled_from(LEADS), length=st.integers(0, 6))
def test_masked_pairs_are_skipped(kind, data, lead, length):
    made = critic(kind=kind)
    there = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    mask = torch.tensor(there, dtype=torch.bool).expand(*lead, length)
    z = torch.randn(*lead, length, 6, dtype=torch.float64)
    spoiled = z.masked_fill(~mask.unsqueeze(-1), torch.nan).requires_grad_()
    short = z[..., torch.tensor(there, dtype=torch.bool), :].clone().requires_grad_()
    value, contributions = made(spoiled, mask, return_contributions=True)
    assert value.shape == lead
    torch.testing.assert_close(value, made(short))
    assert not contributions[~mask].any()
    ours, theirs = (torch.autograd.grad(v.sum(), x)[0] for v, x in ((value, spoiled), (made(short), short)))
    torch.testing.assert_close(ours[..., torch.tensor(there, dtype=torch.bool), :], theirs)
    assert not ours[~mask].any()


def test_the_ablations_by_their_equations():
    z = torch.randn(3, 5, 6, dtype=torch.float64)
    alone, head = critic(kind="no_prefix"), critic(kind="value_head")
    torch.testing.assert_close(alone(z), alone.linear(z).sum((-2, -1)))
    torch.testing.assert_close(head(z), head.linear(z.sum(-2)).squeeze(-1))
    value, contributions = head(z, return_contributions=True)
    torch.testing.assert_close(value, contributions.sum(-1) + head.linear.bias)


def test_the_order_of_the_pairs_counts_and_their_future_does_not():
    made, z = critic(), torch.randn(5, 6, dtype=torch.float64)
    _, contributions = made(z, return_contributions=True)
    changed = z.clone()
    changed[3] += 1
    _, others = made(changed, return_contributions=True)
    torch.testing.assert_close(others[:3], contributions[:3])
    assert (others[3:] - contributions[3:]).abs().min() > 1e-6
    assert (made(z.flip(0)) - made(z)).abs() > 1e-6


@pytest.mark.parametrize("lead", LEADS)
def test_the_recurrent_layer_skips_what_is_masked(lead):
    torch.manual_seed(0)
    layer = RecurrentLayer(4, 6, pooling="mean").double()
    there = torch.tensor([True, False, True, True, False])
    x = torch.randn(*lead, 5, 4, dtype=torch.float64)
    spoiled = x.masked_fill(~there.unsqueeze(-1), torch.nan)
    z, total = layer(spoiled, there.expand(*lead, 5))
    short, short_total = layer(x[..., there, :])
    torch.testing.assert_close(z[..., there, :], short)
    torch.testing.assert_close(total, short_total)
    assert not z[..., ~there, :].any()
    nothing, zero = layer(x, torch.zeros(*lead, 5, dtype=torch.bool))
    assert not nothing.any()
    assert not zero.any()
    assert layer(x[..., :0, :])[1].shape == (*lead, 6)
    reference = torch.nn.GRU(4, 3, batch_first=True, bidirectional=True).double()
    reference.load_state_dict(layer.gru.state_dict())
    torch.testing.assert_close(layer(x)[0], reference(x.reshape(-1, 5, 4))[0].reshape(*lead, 5, 6))


def test_noise_can_be_drawn_and_removed():
    layer = NoisyLinear(400, 300)
    x = torch.randn(5, 400)
    plain = torch.nn.functional.linear(x, layer.weight, layer.bias)
    noisy = layer(x)
    assert (noisy - plain).abs().max() > 0.1
    torch.testing.assert_close(layer(x), noisy)  # the noise stays until it is drawn anew
    layer.sample_noise(torch.Generator().manual_seed(1))
    again = layer(x)
    assert (again - noisy).abs().max() > 0.1
    layer.sample_noise(torch.Generator().manual_seed(1))
    torch.testing.assert_close(layer(x), again)
    torch.testing.assert_close(layer.eval()(x), plain)
    layer.train().remove_noise()
    torch.testing.assert_close(layer(x), plain)
    layer.sample_noise()
    # f(e) has mean 0 and E f(e)^2 = E|e| = sqrt(2 / pi).
    assert layer.noise_in.square().mean().item() == pytest.approx((2 / np.pi) ** 0.5, abs=0.1)
    assert layer.weight_sigma.unique().item() == pytest.approx(0.5 / 20)
    layer(x).square().sum().backward()
    assert layer.weight_sigma.grad.abs().sum() > 0


def test_the_released_coordinator(recording):
    record = recording("hitmac_coordinator_net.npz")
    net = from_tensors({k.removeprefix("weight/"): v for k, v in record.items() if k.startswith("weight/")})
    observation = torch.from_numpy(record["obs"])
    with torch.no_grad():
        logits, value = net(observation)
        z, global_feature = net.attention(net.encoder(observation.flatten(1, 2)))
        torch.testing.assert_close(net(observation[3])[1], value[3])
    for ours, name in ((logits, "logits"), (value.unsqueeze(-1), "value"), (z, "per_target")):
        torch.testing.assert_close(ours, torch.from_numpy(record[name]), atol=1e-5, rtol=0)
    torch.testing.assert_close(global_feature, torch.from_numpy(record["global_feature"]), atol=1e-5, rtol=1e-5)


def coordinator_tensors():
    shapes = {
        "encoder.features.0": (8, 4), "encoder.features.2": (8, 8), "attention.Q": (8, 8), "attention.K": (8, 8),
        "attention.V": (8, 8), "actor.actor_linear": (2, 8), "ShapleyVcritic.critic_linear": (1, 16),
        "ShapleyVcritic.attention.Q": (8, 8), "ShapleyVcritic.attention.K": (8, 8),
        "ShapleyVcritic.attention.V": (8, 8),
    }  # fmt: skip
    torch.manual_seed(0)
    tensors = {f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    return tensors | {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}


def executor_tensors():
    torch.manual_seed(0)
    shapes = dict.fromkeys(("attention.Q", "attention.K", "attention.V"), (8, 4))
    shapes |= {"actor.actor_linear": (3, 8), "critic.critic_linear": (1, 8)}
    tensors = {f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    return tensors | {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}


def test_released_nets_by_their_equations(tmp_path):
    tensors = executor_tensors()
    layer = AttentionLayer(4, 8)
    layer.load_state_dict({k.removeprefix("attention."): v for k, v in tensors.items() if k.startswith("attention.")})
    x = torch.randn(3, 2, 5, 4)
    total = layer(x)[1]
    logits, value = from_tensors(tensors)(x)
    actor, critic = (
        total @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
        for name in ("actor.actor_linear", "critic.critic_linear")
    )
    torch.testing.assert_close(logits, actor.relu())
    torch.testing.assert_close(value, critic.squeeze(-1))
    logits, value = from_tensors(coordinator_tensors())(torch.randn(2, 3, 5, 4))
    assert (logits.shape, value.shape) == ((2, 15, 2), (2,))
    for name, content in (("a.pth", tensors), ("b.pth", {"model": tensors})):
        torch.save(content, tmp_path / name)
        torch.testing.assert_close(load_released(tmp_path / name)(x)[0], from_tensors(tensors)(x)[0])
    torch.save(coordinator_tensors(), tmp_path / "c.pth")
    assert load_released(tmp_path / "c.pth")(torch.randn(4, 5, 4))[0].shape == (20, 2)


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch evil",)


def test_bad_checkpoints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = coordinator_tensors()
    for change, says in (
        ({"attention.Q.bias": None}, "tensor for attention.Q.bias is missing"),
        ({"encoder.features.0.weight": None}, "tensor for encoder.0.weight is missing"),
        ({"colour.weight": torch.zeros(1)}, "the tensor colour.weight belongs to no part of the network"),
        (
            {"actor.actor_linear.weight": torch.zeros(3, 8)},
            r"weight has shape \(3, 8\); it must be \(2, 8\)",
        ),
        ({"attention.V.bias": torch.full((8,), torch.nan)}, "attention.V.bias holds a number that is not finite"),
    ):
        with pytest.raises(ValueError, match=says):
            from_tensors({k: v for k, v in (good | change).items() if v is not None})
    with pytest.raises(FileNotFoundError, match="there is no file absent"):
        load_released("absent.pth")
    torch.save({"model": Evil()}, "evil.pth")
    with pytest.raises(ValueError, match=r"evil\.pth cannot be read as tensors only"):
        load_released("evil.pth")
    assert not (tmp_path / "evil").exists()
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ValueError, match=r"cut\.pth cannot be read"):
        load_released("cut.pth")
    torch.save([1, 2], "list.pth")
    with pytest.raises(ValueError, match="does not hold a dictionary of tensors"):
        load_released("list.pth")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: AMCCritic(6, kind="best"), ValueError, "kind is 'best'; it must be one of amc, no_prefix, value_head"),
        (lambda: AMCCritic(6)(torch.zeros(3, 5)), ValueError, r"x has shape \(3, 5\)"),
        (lambda: AMCCritic(6)(torch.zeros(3, 6), [1, 1, 1]), TypeError, "mask is a list; expected a tensor"),
        (lambda: RecurrentLayer(4, 5), ValueError, "weight_dim is 5; it must be even"),
        (lambda: NoisyLinear(4, 5, sigma=-1), ValueError, "sigma is -1; it must be a number, 0 or more"),
    ],
)
def test_bad_input(call, error, says):
    with pytest.raises(error, match=says):
        call()
