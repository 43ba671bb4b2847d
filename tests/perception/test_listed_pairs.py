"""The encoder on pairs listed by index: equal to the dense encoder whose mask is 1 for the listed pairs."""

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrize
from torch import nn
from torch.export import Dim, export

from hitmac.perception import AgentTargetEncoder
from hitmac.perception.encoder import ATTEND_OVER
from hitmac.perception.fast_paths import _CHUNK, group_tokens
from hitmac.perception.functional import FIXED_POOLINGS
from tests.envs.kernels.neighbourhoods import nearest_of

LISTABLE = [name for name, way in ATTEND_OVER.items() if way.takes_lists]
N, M, D = 5, 7, 6


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def encoder(over="axes", **options):
    net = AgentTargetEncoder(D, 8, attend_over=over, num_blocks=2, **options).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def scene(lead=(2,), n=N, m=M):
    """Scenes with absent pairs, and a first agent without any."""
    pairs, mask = torch.randn(*lead, n, m, D, dtype=torch.float64), torch.rand(*lead, n, m) > 0.3
    mask[..., 0, :] = False
    return pairs.requires_grad_(), mask


def everything(lead=(2,), n=N, m=M):
    return torch.arange(m).expand(*lead, n, m), torch.arange(n).expand(*lead, n, n)


def gradients(net, pairs, features):
    loss = sum((feature**2).sum() for feature in features)
    return torch.autograd.grad(loss, [pairs, *net.parameters()])


def same(one, other):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("layer", ["attention", "recurrent"])
@pytest.mark.parametrize(("heads", "lead"), [(1, (2,)), (2, ()), (2, (2, 3))])
def test_lists_of_everything_give_the_dense_values_and_gradients(over, layer, heads, lead):
    for pooling in FIXED_POOLINGS:
        net = encoder(over, encoder=layer, pooling=pooling, num_heads=heads, scaled=heads > 1)
        (pairs, mask), (targets, neighbours) = scene(lead), everything(lead)
        for given in (mask, None):
            dense = net(pairs, given)
            listed = net(pairs, given, targets=targets, neighbours=neighbours)
            same(dense, listed)
            same(gradients(net, pairs, dense), gradients(net, pairs, listed))


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("layer", ["attention", "recurrent"])
@pytest.mark.parametrize("k", [1, 3])
def test_short_lists_are_a_mask_that_is_1_for_what_is_listed(over, layer, k):
    net = encoder(over, encoder=layer, pooling="mean")
    pairs, mask = scene()
    near, there, targets = nearest_of(
        pairs.detach().numpy(), mask.numpy(), np.random.default_rng(0).random((2, N, M)), k, radius=0.7
    )
    near = torch.from_numpy(near).requires_grad_()
    there, targets = torch.from_numpy(there), torch.from_numpy(targets).to(torch.int64)
    place = targets.clamp(min=0)
    shown = torch.zeros(2, N, M, dtype=torch.int64).scatter_add(-1, place, there.to(torch.int64)) > 0
    dense, listed = net(pairs, shown), net(near, there, targets=targets)
    own = torch.take_along_dim(dense.per_target, place.unsqueeze(-1), -2) * there.unsqueeze(-1)
    same((own, *dense[1:]), listed)
    of_pairs, *expected = gradients(net, pairs, dense)
    of_near, *found = gradients(net, near, listed)
    same(expected, found)
    of_listed = torch.take_along_dim(of_pairs, place.unsqueeze(-1), -2) * there.unsqueeze(-1)
    torch.testing.assert_close(of_near, of_listed)


def test_neighbours_are_a_mask_between_the_agents():
    net = AgentTargetEncoder(D, 8).double()
    pairs = scene()[0]
    near = torch.tensor([[0, 1, -1], [0, 1, 2], [1, 2, -1], [3, 4, -1], [3, 4, -1]]).expand(2, N, 3)
    features, weights = net(pairs, neighbours=near, need_weights=True)
    _, between = net(pairs, need_weights=True)
    allowed = torch.zeros(N, N, dtype=torch.bool)
    allowed[[0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4], [0, 1, 0, 1, 2, 1, 2, 3, 4, 3, 4]] = True
    expected = between.agents * allowed
    expected = expected / expected.sum(-1, keepdim=True)
    found = torch.zeros(2, 1, N, N, dtype=torch.float64).scatter_add(
        -1, near.clamp(min=0).unsqueeze(1), torch.where(near.unsqueeze(1) >= 0, weights.agents, 0.0)
    )
    torch.testing.assert_close(found, expected)
    alone = net(pairs[:, 3:], neighbours=near[:, 3:] - 3)
    torch.testing.assert_close(features.per_agent[:, 3:], alone.per_agent)


@pytest.mark.parametrize("over", LISTABLE)
def test_the_order_of_agents_targets_and_places_does_not_matter(over):
    net = encoder(over, pooling="mean", num_heads=2)
    pairs, mask = scene()
    targets = torch.stack([torch.randperm(9)[:M] for _ in range(2 * N)]).view(2, N, M)
    neighbours = torch.stack([torch.randperm(N)[:3] for _ in range(2 * N)]).view(2, N, 3)
    features = net(pairs, mask, targets=targets, neighbours=neighbours)
    agents, places, names = torch.randperm(N), torch.randperm(M), torch.randperm(20)[:9]
    rank = agents.argsort()
    moved = net(
        pairs[:, agents][:, :, places],
        mask[:, agents][:, :, places],
        targets=names[targets[:, agents][:, :, places]],
        neighbours=rank[neighbours[:, agents]],
    )
    torch.testing.assert_close(moved.per_target, features.per_target[:, agents][:, :, places])
    torch.testing.assert_close(moved.per_agent, features.per_agent[:, agents])
    torch.testing.assert_close(moved.global_feature, features.global_feature)


@pytest.mark.parametrize("over", LISTABLE)
def test_weights_are_those_of_the_dense_encoder(over):
    net = encoder(over, num_heads=2)
    (pairs, mask), (targets, neighbours) = scene(), everything()
    features, weights = net(pairs, mask, need_weights=True)
    same(features, net(pairs, mask, targets=targets, neighbours=neighbours))
    listed, found = net(pairs, mask, targets=targets, neighbours=neighbours, need_weights=True)
    same(features, listed)
    torch.testing.assert_close(weights.targets, found.targets)
    if over == "agents":
        torch.testing.assert_close(weights.agents, found.agents)
    if over == "axes":  # only the agents that list a target
        for scene_of, by_target in zip(found.agents, weights.agents, strict=True):
            for own, dense in zip(scene_of, by_target, strict=True):
                some = dense.sum((0, 1)) > 0
                count = int(some.sum())
                torch.testing.assert_close(own[:, :count, :count], dense[:, some][:, :, some])


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("shape", [(0, N, 3), (2, 0, 3), (2, N, 0), (2, N, 3)])
def test_nothing_listed_gives_finite_zeros(over, shape):
    net = encoder(over)
    targets, pairs = torch.full(shape, -1), torch.full((*shape, D), torch.nan, dtype=torch.float64)
    neighbours = torch.arange(shape[1]).unsqueeze(-1).expand(*shape[:2], 1)
    for mask in (torch.zeros(shape), None):
        features = net(pairs, mask, targets=targets, neighbours=neighbours)
        assert [tuple(one.shape) for one in features] == [(*shape, 8), (*shape[:2], 8), (shape[0], 8)]
        assert all((feature == 0).all() for feature in features)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_are_as_exact_as_in_the_dense_encoder(dtype):
    net, (pairs, mask), (targets, _) = encoder(), scene(), everything()
    exact = net(pairs, mask)
    net, pairs = net.to(dtype), pairs.detach().to(dtype)
    for one, dense, listed in zip(exact, net(pairs, mask), net(pairs, mask, targets=targets.int()), strict=True):
        assert listed.dtype == dtype
        assert (listed - one).abs().max() < 2 * (dense - one).abs().max() + 1e-6


@pytest.mark.parametrize("layer", ["attention", "recurrent"])
def test_many_pairs_without_gradients(layer):
    """Large scenes go through chunks, and buckets of each size."""
    net = AgentTargetEncoder(D, 16, encoder=layer, attend_over="axes", pooling="mean", scaled=True, num_blocks=2)
    targets = torch.rand(1, 600, 40).argsort(-1)[..., :12].sort(-1).values
    mask = (torch.rand(1, 600, 12) > 0.3) & (targets > 2) | (targets == 5)
    pairs = torch.randn(1, 600, 12, D)
    with_gradients = net(pairs, mask, targets=targets)
    with torch.no_grad():
        features = net(pairs, mask, targets=targets)
        agents = net(pairs, mask, targets=targets, need_pairs=False)
        dense_mask = torch.zeros(1, 600, 40, dtype=torch.bool).scatter(-1, targets, mask)
        dense = net(torch.zeros(1, 600, 40, D).scatter(2, targets.unsqueeze(-1).expand_as(pairs), pairs), dense_mask)
    for one, other in zip(with_gradients, features, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(dense.per_agent, features.per_agent, atol=1e-4, rtol=1e-4)
    assert agents.per_target.shape == (1, 600, 0, 16)
    assert torch.equal(agents.per_agent, features.per_agent)


@pytest.mark.slow
def test_a_compiled_and_an_exported_encoder_take_any_lists():
    net = encoder()

    class Listed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, pairs, mask, targets):
            return tuple(self.net(pairs, mask, targets=targets))

    def lists(b, n, m, k):
        targets = torch.rand(b, n, m).argsort(-1)[..., :k].contiguous()
        targets[..., -1][torch.rand(b, n) > 0.5] = -1
        return torch.randn(b, n, k, D, dtype=torch.float64), targets >= 0, targets

    axes = {0: Dim("scenes", min=1), 1: Dim("n", min=1), 2: Dim("k", min=1)}
    program = export(Listed(), lists(2, 5, 7, 4), dynamic_shapes=(axes,) * 3)
    compiled = torch.compile(Listed(), backend="eager")
    for sizes in ((3, 6, 9, 5), (1, 2, 3, 2)):
        scenes = lists(*sizes)
        expected = Listed()(*scenes)
        same(expected, program.module()(*scenes))
        same(expected, compiled(*scenes))


def test_groups_keep_the_order_of_their_tokens():
    keys = torch.tensor([3, 1, 3, 0, 3, 1, 5, 3, 3])
    found = group_tokens(keys, 6, torch.arange(9), 9)
    members = [bucket.tokens[row][bucket.mask[row] if bucket.mask is not None else ...].tolist()
               for bucket in found.buckets for row in range(len(bucket.tokens))]  # fmt: skip
    assert sorted(members) == [[0, 2, 4, 7, 8], [1, 5], [3], [6]]
    x = torch.randn(9, 2)
    apart = torch.cat([bucket.of(x).flatten(0, 1) for bucket in found.buckets])
    assert torch.equal(apart[found.place], x)


@pytest.mark.parametrize(
    ("over", "lists", "error", "says"),
    [
        ("pairs", {"targets": torch.zeros(2, N, M, dtype=torch.int64)}, ValueError,
         "attend_over is 'pairs', .* must be one of agents, targets, axes"),
        ("axes", {"targets": torch.zeros(2, N, dtype=torch.int64)}, ValueError,
         r"targets has shape \(2, 5\); it must have shape \(2, 5, 7\)"),
        ("axes", {"targets": torch.zeros(2, N, M)}, TypeError, "targets is torch.float32; expected whole numbers"),
        ("axes", {"targets": [[0]]}, TypeError, "targets is a list; expected a tensor"),
        ("agents", {"neighbours": torch.zeros(2, M, 2, dtype=torch.int64)}, ValueError,
         r"neighbours has shape \(2, 7, 2\); it must have shape \(2, 5, any\)"),
    ],
)  # fmt: skip
def test_bad_lists(over, lists, error, says):
    with pytest.raises(error, match=says):
        encoder(over)(*scene(), **lists)


@pytest.mark.parametrize("over", LISTABLE)
@pytest.mark.parametrize("tokens", [_CHUNK - 1, _CHUNK, _CHUNK + 1, 2 * _CHUNK + 3])
def test_many_pairs_without_gradients_are_those_with_gradients(over, tokens):
    net = encoder(over, num_frequencies=1, embed_layers=2)
    pairs, targets = torch.randn(-(-tokens // 4), 4, D, dtype=torch.float64), torch.arange(4)
    mask = torch.arange(len(pairs) * 4).reshape(-1, 4) < tokens
    lists = {
        "targets": (targets + 3 * torch.arange(len(pairs))[:, None]),
        "neighbours": torch.arange(len(pairs))[:, None],
    }
    with torch.no_grad():
        found = net(pairs, mask, **lists)
    same(found, net(pairs, mask, **lists))


@pytest.mark.parametrize("change", ["hook", "subclass", "parametrization"])
def test_many_pairs_pass_through_changed_maps(change):
    class Adapted(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    net = encoder("targets")
    pairs, targets = torch.randn(2 * _CHUNK, 4, D, dtype=torch.float64), torch.arange(4).expand(2 * _CHUNK, 4)
    with torch.no_grad():
        before = net(pairs, targets=targets).per_target
    for layer in (net.attention, net.later_blocks[0].layers[0]):
        if change == "hook":
            layer.Q.register_forward_hook(lambda module, given, output: 2 * output)
        elif change == "subclass":
            layer.Q.__class__ = Adapted
        else:
            nn.utils.parametrize.register_parametrization(layer.Q, "weight", Doubled())
    with torch.no_grad():
        found = net(pairs, targets=targets).per_target
    assert (found - before).abs().max() > 1e-3
    torch.testing.assert_close(found, net(pairs, targets=targets).per_target)
