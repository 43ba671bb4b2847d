"""The encoder on listed pairs is the dense encoder whose mask is 1 for them; scenes of different sizes in one batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.perception import AgentTargetEncoder, fast_paths, pad_scenes, unpad_scenes
from hitmac.perception.encoder import ATTEND_OVER
from tests.envs.kernels.neighbourhoods import nearest_of
from tests.perception.numerics import OTHER_TYPES, gradients, random, same

LISTABLE = [name for name, way in ATTEND_OVER.items() if way.takes_lists]
N, M, D = 5, 7, 6


def encoder(over="axes", **options):
    net = AgentTargetEncoder(D, 8, attend_over=over, num_blocks=2, **options).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def scene(lead=(2,), n=N, m=M):
    """Scenes with absent pairs, and a first agent without any."""
    pairs, mask = random(*lead, n, m, D), torch.rand(*lead, n, m) > 0.3
    mask[..., 0, :] = False
    return pairs.requires_grad_(), mask


def everything(lead=(2,), n=N, m=M):
    return torch.arange(m).expand(*lead, n, m), torch.arange(n).expand(*lead, n, n)


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize(
    ("layer", "heads", "lead", "pooling"),
    [
        ("attention", 1, (2,), "sum"),
        ("attention", 2, (), "mean"),
        ("attention", 2, (2, 3), "max"),
        ("recurrent", 1, (2,), "mean"),
        ("recurrent", 1, (), "max"),
    ],
)
def test_lists_of_everything_give_the_dense_values_and_gradients(over, layer, heads, lead, pooling):
    net = encoder(over, encoder=layer, pooling=pooling, num_heads=heads, scaled=heads > 1)
    (pairs, mask), (targets, neighbours) = scene(lead), everything(lead)
    for given_mask in (mask, None):
        dense, listed = net(pairs, given_mask), net(pairs, given_mask, targets=targets, neighbours=neighbours)
        same(dense, listed)
        leaves = [pairs, *net.parameters()]
        same(gradients(dense, leaves), gradients(listed, leaves))


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize(("layer", "k"), [("attention", 1), ("attention", 3), ("recurrent", 3)])
def test_short_lists_are_a_mask_that_is_1_for_what_is_listed(over, layer, k):
    net, (pairs, mask) = encoder(over, encoder=layer, pooling="mean"), scene()
    distances = np.random.default_rng(0).random((2, N, M))
    near, there, targets = nearest_of(pairs.detach().numpy(), mask.numpy(), distances, k, radius=0.7)
    near, there = torch.from_numpy(near).requires_grad_(), torch.from_numpy(there)
    targets = torch.from_numpy(targets).to(torch.int64)
    place = targets.clamp(min=0)
    shown = torch.zeros(2, N, M, dtype=torch.int64).scatter_add(-1, place, there.to(torch.int64)) > 0
    dense, listed = net(pairs, shown), net(near, there, targets=targets)

    def of_listed(x):
        return torch.take_along_dim(x, place.unsqueeze(-1), -2) * there.unsqueeze(-1)

    same((of_listed(dense.per_target), *dense[1:]), listed)
    of_pairs, *expected = gradients(dense, [pairs, *net.parameters()])
    of_near, *found = gradients(listed, [near, *net.parameters()])
    same((of_listed(of_pairs), *expected), (of_near, *found))


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
def test_the_order_of_agents_targets_and_places_does_not_matter(over):
    net, (pairs, mask) = encoder(over, pooling="mean", num_heads=2), scene()
    targets = torch.stack([torch.randperm(9)[:M] for _ in range(2 * N)]).view(2, N, M)
    neighbours = torch.stack([torch.randperm(N)[:3] for _ in range(2 * N)]).view(2, N, 3)
    features = net(pairs, mask, targets=targets, neighbours=neighbours)
    agents, places, names = torch.randperm(N), torch.randperm(M), torch.randperm(20)[:9]

    def moved(x):
        return x[:, agents][:, :, places]

    lists = {"targets": names[moved(targets)], "neighbours": agents.argsort()[neighbours[:, agents]]}
    found = net(moved(pairs), moved(mask), **lists)
    same(found, (moved(features.per_target), features.per_agent[:, agents], features.global_feature))


@pytest.mark.parametrize("over", LISTABLE)
def test_weights_are_those_of_the_dense_encoder(over):
    net, (pairs, mask), (targets, neighbours) = encoder(over, num_heads=2), scene(), everything()
    features, weights = net(pairs, mask, need_weights=True)
    listed, found = net(pairs, mask, targets=targets, neighbours=neighbours, need_weights=True)
    same(features, listed)
    torch.testing.assert_close(weights.targets, found.targets)
    if over == "agents":
        torch.testing.assert_close(weights.agents, found.agents)
    if over == "axes":  # only the agents that list a target
        for own, dense in zip(found.agents.flatten(0, 1), weights.agents.flatten(0, 1), strict=True):
            some = dense.sum((0, 1)) > 0
            count = int(some.sum())
            torch.testing.assert_close(own[:, :count, :count], dense[:, some][:, :, some])


@pytest.mark.parametrize("over", LISTABLE)
def test_nothing_listed_gives_finite_zeros(over):
    net = encoder(over)
    for shape in ((0, N, 3), (2, 0, 3), (2, N, 0), (2, N, 3)):
        targets, pairs = torch.full(shape, -1), torch.full((*shape, D), torch.nan, dtype=torch.float64)
        neighbours = torch.arange(shape[1]).unsqueeze(-1).expand(*shape[:2], 1)
        for mask in (torch.zeros(shape), None):
            features = net(pairs, mask, targets=targets, neighbours=neighbours)
            assert [tuple(one.shape) for one in features] == [(*shape, 8), (*shape[:2], 8), (shape[0], 8)]
            assert not any(feature.any() for feature in features)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_are_as_exact_as_in_the_dense_encoder(dtype):
    net, (pairs, mask), (targets, _) = encoder(), scene(), everything()
    exact = net(pairs, mask)
    net, pairs = net.to(dtype), pairs.detach().to(dtype)
    for one, dense, listed in zip(exact, net(pairs, mask), net(pairs, mask, targets=targets.int()), strict=True):
        assert listed.dtype == dtype
        assert (listed - one).abs().max() < 2 * (dense - one).abs().max() + 1e-6


@pytest.mark.parametrize("layer", ["attention", "recurrent"])
def test_a_large_scene_without_gradients(layer):
    """At the thresholds as they are, from which on there are chunks, and a bucket for each size."""
    options = {"encoder": layer, "attend_over": "axes", "pooling": "mean", "scaled": True, "num_blocks": 2}
    net = AgentTargetEncoder(D, 16, **options)
    targets = torch.rand(1, 600, 40).argsort(-1)[..., :12].sort(-1).values
    mask = (torch.rand(1, 600, 12) > 0.3) & (targets > 2) | (targets == 5)
    pairs = torch.randn(1, 600, 12, D)
    dense_mask = torch.zeros(1, 600, 40, dtype=torch.bool).scatter(-1, targets, mask)
    dense_pairs = torch.zeros(1, 600, 40, D).scatter(2, targets.unsqueeze(-1).expand_as(pairs), pairs)
    with_gradients = net(pairs, mask, targets=targets)
    with torch.no_grad():
        features = net(pairs, mask, targets=targets)
        agents = net(pairs, mask, targets=targets, need_pairs=False)
        dense = net(dense_pairs, dense_mask)
    same(with_gradients, features, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(dense.per_agent, features.per_agent, atol=1e-4, rtol=1e-4)
    assert agents.per_target.shape == (1, 600, 0, 16)
    assert torch.equal(agents.per_agent, features.per_agent)


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("tokens", [15, 16, 17, 35])
def test_without_gradients_as_with_them(over, tokens, monkeypatch):
    """Around a chunk, of 16 tokens here."""
    monkeypatch.setattr(fast_paths, "_CHUNK", 16)
    monkeypatch.setattr(fast_paths, "_TANH_FROM", 1)
    net, pairs = encoder(over, num_frequencies=1, embed_layers=2), random(-(-tokens // 4), 4, D)
    mask = torch.arange(len(pairs) * 4).reshape(-1, 4) < tokens
    agents = torch.arange(len(pairs))[:, None]
    lists = {"targets": torch.arange(4) + 3 * agents, "neighbours": agents}
    with torch.no_grad():
        found = net(pairs, mask, **lists)
    same(found, net(pairs, mask, **lists))


def test_groups_keep_the_order_of_their_tokens():
    found = fast_paths.group_tokens(torch.tensor([3, 1, 3, 0, 3, 1, 5, 3, 3]), 6, torch.arange(9), 9)
    members = [
        row[mask].tolist()
        for bucket in found.buckets
        for row, mask in zip(bucket.tokens, torch.ones_like(bucket.tokens, dtype=torch.bool)
                             if bucket.mask is None else bucket.mask, strict=True)
    ]  # fmt: skip
    assert sorted(members) == [[0, 2, 4, 7, 8], [1, 5], [3], [6]]
    x = torch.randn(9, 2)
    assert torch.equal(found.together([bucket.of(x) for bucket in found.buckets], x), x)


@pytest.mark.parametrize(
    ("over", "lists", "error", "says"),
    [
        ("pairs", {"targets": torch.zeros(2, N, M).int()}, ValueError, "'pairs', .* one of agents, targets, axes"),
        ("axes", {"targets": torch.zeros(2, N).int()}, ValueError, r"targets has shape \(2, 5\); .* \(2, 5, 7\)"),
        ("axes", {"targets": torch.zeros(2, N, M)}, TypeError, "targets is torch.float32; expected whole numbers"),
        ("axes", {"targets": [[0]]}, TypeError, "targets is a list; expected a tensor"),
        (
            "agents",
            {"neighbours": torch.zeros(2, M, 2).int()},
            ValueError,
            r"neighbours .* \(2, 7, 2\); .* 5, any",
        ),
    ],
)
def test_bad_lists(over, lists, error, says):
    with pytest.raises(error, match=says):
        encoder(over)(*scene(), **lists)


SIZES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4)


@settings(deadline=None, max_examples=30)
@given(sizes=SIZES)
def test_scenes_of_different_sizes_in_one_batch_and_back(sizes):
    scenes = [torch.randn(n, m, 3) for n, m in sizes]
    for one, back in zip(scenes, unpad_scenes(*pad_scenes(scenes)), strict=True):
        torch.testing.assert_close(back, one if one.numel() else one.new_zeros(0, 0, 3))


@settings(deadline=None, max_examples=30)
@given(data=st.data(), sizes=SIZES, dtype=st.sampled_from([torch.bool, *OTHER_TYPES]))
def test_scenes_scattered_over_rows_and_columns_come_back(data, sizes, dtype):
    pairs, mask = torch.full((len(sizes), 6, 6, 3), torch.nan), torch.zeros(len(sizes), 6, 6).to(dtype)
    expected = []
    for number, (n, m) in enumerate(sizes):
        rows = sorted(data.draw(st.permutations(range(6)))[:n])
        columns = sorted(data.draw(st.permutations(range(6)))[:m])
        one, valid = torch.randn(n, m, 3), torch.rand(n, m) > 0.5
        pairs[number, torch.tensor(rows)[:, None].long(), torch.tensor(columns).long()] = one
        mask[number, torch.tensor(rows)[:, None].long(), torch.tensor(columns).long()] = valid.to(dtype)
        expected.append(one[valid.any(1)][:, valid.any(0)])
    same(unpad_scenes(pairs, mask), expected)


def test_scenes_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="scenes is empty"):
        pad_scenes([])
    with pytest.raises(ValueError, match=r"scene 1 has shape \(2, 3, 5\); it must be \(agents, targets, 6\)"):
        pad_scenes([torch.zeros(2, 3, 6), torch.zeros(2, 3, 5)])
