"""The encoder on listed pairs is the dense encoder whose mask is 1 for them; scenes of different sizes in one batch."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.perception import AgentTargetEncoder, fast_paths, pad_scenes, unpad_scenes
from hitmac.perception.encoder import ATTEND_OVER
from tests.envs.kernels.neighbourhoods import nearest_of
from tests.perception.numerics import disturbed, gradients, random, same

LISTABLE = [name for name, way in ATTEND_OVER.items() if way.takes_lists]
N, M, D = 5, 7, 6


def encoder(over="axes", **options):
    return disturbed(AgentTargetEncoder(D, 8, attend_over=over, num_blocks=2, **options))


def scene(lead=(2,)):
    """Scenes with absent pairs, and a first agent without any."""
    pairs, mask = random(*lead, N, M, D), torch.rand(*lead, N, M) > 0.3
    mask[..., 0, :] = False
    return pairs.requires_grad_(), mask


def everything(lead=(2,)):
    return torch.arange(M).expand(*lead, N, M), torch.arange(N).expand(*lead, N, N)


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize(
    ("layer", "heads", "lead", "pooling"),
    [("attention", 1, (2,), "sum"), ("attention", 2, (2, 3), "max"), ("recurrent", 1, (), "mean")],
)
def test_lists_of_everything_give_the_dense_values_gradients_and_weights(over, layer, heads, lead, pooling):
    net = encoder(over, encoder=layer, pooling=pooling, num_heads=heads, scaled=heads > 1)
    (pairs, mask), (targets, neighbours) = scene(lead), everything(lead)
    lists = {"targets": targets} | ({"neighbours": neighbours} if over == "agents" else {})
    for given_mask in (mask, None):
        dense, listed = net(pairs, given_mask), net(pairs, given_mask, **lists)
        same(dense, listed)
        leaves = [pairs, *net.parameters()]
        same(gradients(dense, leaves), gradients(listed, leaves))
    if layer == "attention":
        (dense, weights), (listed, found) = (net(pairs, mask, need_weights=True, **given) for given in ({}, lists))
        same(dense, listed)
        torch.testing.assert_close(weights.targets, found.targets)
        if over == "agents":
            torch.testing.assert_close(weights.agents, found.agents)
        if over == "axes":  # only the agents that list a target
            for own, every in zip(*(each.agents.flatten(0, -4) for each in (found, weights)), strict=True):
                some = every.sum((0, 1)) > 0
                count = int(some.sum())
                torch.testing.assert_close(own[:, :count, :count], every[:, some][:, :, some])


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize(("layer", "k"), [("attention", 1), ("attention", 3), ("recurrent", 3)])
def test_short_lists_are_a_mask_that_is_1_for_what_is_listed(over, layer, k):
    net, (pairs, mask) = encoder(over, encoder=layer, pooling="mean"), scene()
    distances = np.random.default_rng(0).random((2, N, M))
    lists = nearest_of(pairs.detach().numpy(), mask.numpy(), distances, k, radius=0.7)
    order = torch.randperm(k) if layer == "attention" else torch.arange(k)
    near, there, targets = (torch.from_numpy(each)[:, :, order] for each in lists)
    near, targets = near.requires_grad_(), targets.to(torch.int64)
    place = targets.clamp(min=0)
    shown = torch.zeros(2, N, M, dtype=torch.int64).scatter_add(-1, place, there.to(torch.int64)) > 0
    dense, listed = net(pairs, shown), net(near, there, targets=targets)

    def of_listed(x):
        return torch.take_along_dim(x, place.unsqueeze(-1), -2) * there.unsqueeze(-1)

    same((of_listed(dense.per_target), *dense[1:]), listed)
    of_pairs, *expected = gradients(dense, [pairs, *net.parameters()])
    of_near, *found = gradients(listed, [near, *net.parameters()])
    same((of_listed(of_pairs), *expected), (of_near, *found))


def test_targets_of_large_indices_are_any_others():
    """Numbers of tracks, say; those of masked places are not read at all."""
    net, (pairs, mask), (targets, _) = encoder("axes"), scene(), everything()
    same(net(pairs, mask, targets=targets * 10**14), net(pairs, mask))
    found = net(pairs, mask, targets=torch.where(mask, targets, 10**14), need_weights=True)
    same(found[0], net(pairs, mask))
    assert found[1].agents.shape[1] == M


def test_neighbours_are_a_mask_between_the_agents():
    net, (pairs, _) = AgentTargetEncoder(D, 8).double(), scene()
    near = torch.tensor([[0, 1, -1], [0, 1, 2], [1, 2, -1], [3, 4, -1], [3, 4, -1]]).expand(2, N, 3)
    features, weights = net(pairs, neighbours=near, need_weights=True)
    _, between = net(pairs, need_weights=True)
    allowed = torch.zeros(N, N, dtype=torch.bool)
    allowed[[0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4], [0, 1, 0, 1, 2, 1, 2, 3, 4, 3, 4]] = True
    expected = between.agents * allowed
    expected = expected / expected.sum(-1, keepdim=True)
    listed = torch.where(near.unsqueeze(1) >= 0, weights.agents, 0.0)
    found = torch.zeros(2, 1, N, N, dtype=torch.float64).scatter_add(-1, near.clamp(min=0).unsqueeze(1), listed)
    torch.testing.assert_close(found, expected)
    alone = net(pairs[:, 3:], neighbours=near[:, 3:] - 3)
    torch.testing.assert_close(features.per_agent[:, 3:], alone.per_agent)


@pytest.mark.parametrize("over", LISTABLE)
def test_nothing_listed_gives_finite_zeros(over):
    net = encoder(over)
    for shape in ((0, N, 3), (2, 0, 3), (2, N, 0), (2, N, 3)):
        targets, pairs = torch.full(shape, -1), torch.full((*shape, D), torch.nan, dtype=torch.float64)
        neighbours = torch.arange(shape[1]).unsqueeze(-1).expand(*shape[:2], 1)
        lists = {"targets": targets} | ({"neighbours": neighbours} if over == "agents" else {})
        for mask in (torch.zeros(shape), None):
            features, weights = net(pairs, mask, **lists, need_weights=True)
            same(features, net(pairs, mask, **lists))
            assert not any(found.any() for found in weights if found is not None)
            assert [tuple(one.shape) for one in features] == [(*shape, 8), (*shape[:2], 8), (shape[0], 8)]
            assert not any(feature.any() for feature in features)


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("options", [{"num_heads": 2}, {"encoder": "recurrent"}, {"scaled": True}])
def test_without_any_token_every_parameter_has_a_gradient_of_zero(over, options):
    """So that a process of DDP whose lists are all empty takes part in the sum of gradients."""
    net = encoder(over, **options)
    features = net(random(2, N, 3, D), targets=torch.full((2, N, 3), -1))
    sum(feature.sum() for feature in features).backward()
    assert all((parameter.grad == 0).all() for parameter in net.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_are_as_exact_as_in_the_dense_encoder(dtype):
    net, (pairs, mask), (targets, _) = encoder(), scene(), everything()
    exact = net(pairs, mask)
    net, pairs = net.to(dtype), pairs.detach().to(dtype)
    for one, dense, listed in zip(exact, net(pairs, mask), net(pairs, mask, targets=targets.int()), strict=True):
        assert listed.dtype == dtype
        assert (listed - one).abs().max() < 2 * (dense - one).abs().max() + 1e-6


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("tokens", [15, 16, 17, 35])
def test_without_gradients_as_with_them(over, tokens, monkeypatch):
    """Around the number of tokens, 16 here, from which each length has a bucket."""
    monkeypatch.setattr(fast_paths, "_PADDED_TO", 16)
    monkeypatch.setattr(fast_paths, "_MANY_FROM", 1)
    net, pairs = encoder(over, num_frequencies=1, embed_layers=2), random(-(-tokens // 4), 4, D)
    mask = torch.arange(len(pairs) * 4).reshape(-1, 4) < tokens
    agents = torch.arange(len(pairs))[:, None]
    lists = {"targets": torch.arange(4) + 3 * agents} | ({"neighbours": agents} if over == "agents" else {})
    with torch.no_grad():
        found = net(pairs, mask, **lists)
        agents = net(pairs, mask, **lists, need_pairs=False)
    same(found, net(pairs, mask, **lists))
    same(agents, found._replace(per_target=found.per_target[..., :0, :]))


@pytest.mark.parametrize("over", LISTABLE)
def test_hooks_and_residuals_of_the_layers_count_with_lists_too(over):
    net, (pairs, mask), (targets, _) = encoder(over), scene(), everything()
    plain = net(pairs, mask)
    net.attention.register_forward_hook(lambda module, inputs, output: (*(2.0 * each for each in output[:2]),))
    same(net(pairs, mask), net(pairs, mask, targets=targets))
    assert (net(pairs, mask).per_target - plain.per_target).abs().max() > 0.1
    net = encoder(over, pooling="sum")
    net.attention.residual = True
    same(net(pairs, mask), net(pairs, mask, targets=targets))


@pytest.mark.parametrize("over", ["agents", "targets"])
def test_lists_are_mapped_over_scenes(over):
    net, (pairs, mask), (targets, _) = encoder(over), scene(), everything()
    mapped = torch.func.vmap(lambda *given: net(*given[:2], targets=given[2]))(pairs, mask, targets)
    same(mapped, net(pairs, mask))


@pytest.mark.parametrize("over", LISTABLE)
def test_an_index_stands_in_a_list_once_except_where_masked(over):
    net, (pairs, _), (targets, neighbours) = encoder(over), scene(), everything()
    mask, doubled = torch.ones(2, N, M), targets.to(torch.uint8)
    doubled[1, 2, 3:] = 4
    says = "targets holds 4 twice in list (1, 2); expected each index once, and -1 in empty places"
    with pytest.raises(ValueError, match=re.escape(says)):
        net(pairs, mask, targets=doubled)
    mask[1, 2, 4:] = 0
    net(pairs, mask, targets=doubled)
    if over == "agents":
        with pytest.raises(ValueError, match=r"neighbours holds 0 twice in list \(0, 0\)"):
            net(pairs, neighbours=torch.zeros_like(neighbours))


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4))
def test_scenes_of_different_sizes_in_one_batch_and_back(sizes):
    scenes = [torch.randn(n, m, 3) for n, m in sizes]
    pairs, mask = pad_scenes(scenes)
    expected = [one if one.numel() else one.new_zeros(0, 0, 3) for one in scenes]
    same(unpad_scenes(pairs, mask), expected)
    wide = torch.nn.functional.pad(pairs, (0, 0, 1, 0, 1, 0), value=torch.nan)  # absent ones also come first
    same(unpad_scenes(wide, torch.nn.functional.pad(mask.float(), (1, 0, 1, 0))), expected)
