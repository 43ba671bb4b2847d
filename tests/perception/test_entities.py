"""Entities of several kinds: by hand, order, padding, absent kinds and scenes, selection."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Categorical

from hitmac.perception import EncoderBlock, EntityEncoder, SelectionHead
from hitmac.perception.entities import ENTITY_BLOCKS
from tests.perception.numerics import LEADS, OTHER_TYPES, disturbed, gradients, random, same

KINDS = {"items": 3, "keys": 5, "walls.north": 2}
OPTIONS = [("transformer", "mean"), ("tanh", "max"), ("transformer", "sum")]


def encoder(attention="transformer", pooling="mean"):
    return disturbed(EntityEncoder(KINDS, 8, attention=attention, pooling=pooling, num_heads=2, num_blocks=2))


def scenes(lead, counts):
    return {kind: random(*lead, count, KINDS[kind]) for kind, count in zip(KINDS, counts, strict=True)}


def flat(features):
    return *features.per_entity.values(), features.global_feature


@pytest.mark.parametrize("attention", ENTITY_BLOCKS)
def test_the_encoder_by_its_equations(attention):
    net, entities = EntityEncoder(KINDS, 8, attention=attention, pooling="sum").double(), scenes((2,), (2, 1, 3))
    embedded = [
        (entities[kind] @ linear.weight.T + linear.bias).clamp(min=0) + of_kind
        for kind, (linear, _), of_kind in zip(KINDS, net.embed.values(), net.of_kind.values(), strict=True)
    ]
    (block,) = net.blocks
    x = torch.cat(embedded, 1)
    if isinstance(block, EncoderBlock):
        normed = block.norms[0](x)
        query, key, value = (f(normed) for f in (block.attention.query, block.attention.key, block.attention.value))
        y = x + block.attention.output((query @ key.mT / 8**0.5).softmax(-1) @ value)
        expected = y + block.feed_forward(block.norms[1](y))
    else:
        query, key, value = (f(x).tanh() for f in (block.Q, block.K, block.V))
        expected = block.norm((query @ key.mT / 8**0.5).softmax(-1) @ value + x)
    found = net(entities)
    assert list(found.per_entity) == list(KINDS)
    same(flat(found), (expected[:, :2], expected[:, 2:3], expected[:, 3:], expected.sum(1)))


@pytest.mark.parametrize("options", OPTIONS)
@settings(deadline=None, max_examples=15)
@given(there=st.tuples(*[st.lists(st.booleans(), max_size=3)] * 3), lead=st.sampled_from(LEADS), data=st.data())
def test_order_and_padding_within_a_kind_change_neither_values_nor_gradients(options, there, lead, data):
    net = encoder(*options)
    masks = {kind: torch.tensor(each, dtype=torch.bool) for kind, each in zip(KINDS, there, strict=True)}
    orders = {kind: data.draw(st.permutations(mask.nonzero().flatten().tolist())) for kind, mask in masks.items()}
    padded = scenes(lead, map(len, there))
    short = {kind: x[..., orders[kind], :].clone().requires_grad_() for kind, x in padded.items()}
    whole = {
        kind: x.masked_fill(~masks[kind][:, None], data.draw(st.sampled_from([torch.nan, torch.inf]))).requires_grad_()
        for kind, x in padded.items()
    }
    expected, found = net(short), net(whole, {kind: mask.expand(*lead, -1) for kind, mask in masks.items()})
    torch.testing.assert_close(found.global_feature, expected.global_feature)
    for kind, features in found.per_entity.items():
        torch.testing.assert_close(features[..., orders[kind], :], expected.per_entity[kind])
        assert not features[..., ~masks[kind], :].any()
    if not any(mask.any() for mask in masks.values()):
        assert not found.global_feature.any()
    of_whole = gradients(flat(found), (*whole.values(), *net.parameters()))
    of_short = gradients(flat(expected), (*short.values(), *net.parameters()))
    for kind, one, other in zip(KINDS, of_whole, of_short, strict=False):
        torch.testing.assert_close(one[..., orders[kind], :], other)
        assert not one[..., ~masks[kind], :].any()
    same(of_whole[3:], of_short[3:])


@pytest.mark.parametrize("options", OPTIONS)
def test_a_scene_of_a_batch_is_the_scene_alone(options):
    net, entities = encoder(*options), scenes((3, 2), (4, 0, 2))
    masks = {kind: torch.rand(x.shape[:-1]) > 0.4 for kind, x in entities.items()}
    masks["items"][1, 1] = masks["walls.north"][1, 1] = False  # a scene without entities
    together = flat(net(entities, masks))
    for scene in [(0, 0), (1, 1), (2, 1)]:
        alone = net(*({kind: x[scene] for kind, x in each.items()} for each in (entities, masks)))
        same(flat(alone), (feature[scene] for feature in together))
    same(flat(torch.func.vmap(net)(entities, masks)), together)
    for dtype in OTHER_TYPES:
        same(flat(net(entities, {kind: mask.to(dtype) for kind, mask in masks.items()})), together, rtol=0, atol=0)


def test_the_embedding_of_each_kind_has_its_own_memory():
    assert len({one.untyped_storage().data_ptr() for one in EntityEncoder(KINDS, 8).of_kind.values()}) == 3


def test_only_the_embeddings_tell_kinds_apart():
    net, (one, other) = EntityEncoder({"cats": 3, "dogs": 3}, 8), torch.randn(2, 2, 3)
    swapped = (net({"cats": a, "dogs": b}).global_feature for a, b in ((one, other), (other, one)))
    assert (next(swapped) - next(swapped)).abs().max() > 1e-3
    with torch.no_grad():
        net.of_kind["dogs_"].copy_(net.of_kind["cats_"])
        net.embed["dogs_"].load_state_dict(net.embed["cats_"].state_dict())
    parts, whole = net({"cats": one, "dogs": other}), net({"cats": torch.cat((one, other)), "dogs": one[:0]})
    same((torch.cat(tuple(parts.per_entity.values())), parts[1]), (whole.per_entity["cats"], whole[1]))


def test_a_state_is_of_kinds_by_name():
    one, other = EntityEncoder({"x.1": 6, "y": 6}, 8), EntityEncoder({"y": 6, "x.1": 6}, 8)
    other.load_state_dict(one.state_dict())
    entities = {"y": torch.randn(2, 6), "x.1": torch.randn(3, 6)}
    same(flat(one(entities)), flat(other(entities))[1::-1] + flat(other(entities))[2:])
    with pytest.raises(RuntimeError, match=r"embed\.z_"):
        EntityEncoder({"x.1": 6, "z": 6}, 8).load_state_dict(one.state_dict())


@pytest.mark.parametrize("attention", ENTITY_BLOCKS)
def test_a_wrapped_block_is_called_as_the_block(attention):
    class Wrapped(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block = block

        def forward(self, *given, **options):
            return self.block(*given, **options)

    net, entities, masks = encoder(attention), scenes((2,), (2, 1, 3)), {"walls.north": torch.tensor([[1, 0, 1]] * 2)}
    plain = net(entities, masks)
    net.blocks = nn.ModuleList(Wrapped(block) for block in net.blocks)
    same(flat(net(entities, masks)), flat(plain))


def test_a_tensordict_of_entities_and_masks():
    tensordict = pytest.importorskip("tensordict")
    net, entities = encoder(), scenes((2,), (2, 1, 3))
    masks = {kind: torch.rand(x.shape[:-1]) > 0.4 for kind, x in entities.items()}
    given = (tensordict.TensorDict(each, batch_size=2) for each in (entities, masks))
    same(flat(net(*given)), flat(net(entities, masks)), rtol=0, atol=0)


def test_options_reach_the_layers():
    net = EntityEncoder(KINDS, 8, embed_layers=2, num_frequencies=2, num_blocks=3, scaled=False)
    assert [one.in_features for one in next(iter(net.embed.values())) if isinstance(one, nn.Linear)] == [15, 8]
    assert len(net.blocks) == 3
    x = torch.randn(4, 8)
    torch.testing.assert_close(net.blocks[0].attention.score(x, x), x @ x.T)


# ---- selection ----


def test_selection_by_hand():
    """Three candidates, by the scaled scores of a query and three keys of width 3."""
    head = SelectionHead(3).double()
    for linear in (head.query, head.candidate):
        nn.init.eye_(linear.weight)
    query = torch.tensor([1.0, 0, 2]).double()
    candidates = torch.tensor([[0.0, 1, 1], [4, 4, 0], [2, 3, 1]]).double()
    logits = head(query, candidates)
    torch.testing.assert_close(logits, torch.tensor([2.0, 4, 4]).double() / 3**0.5)
    torch.testing.assert_close(logits.softmax(0).float(), torch.tensor([0.13613, 0.43194, 0.43194]), atol=1e-5, rtol=0)
    chances = head(query, candidates, torch.tensor([1, 0, 1])).softmax(0)
    torch.testing.assert_close(chances, torch.tensor([2.0, -torch.inf, 4]).double().div(3**0.5).softmax(0))


@pytest.mark.parametrize("none", [False, True])
@settings(deadline=None, max_examples=15)
@given(there=st.lists(st.booleans(), max_size=5), lead=st.sampled_from(LEADS), data=st.data())
def test_masked_candidates_are_never_chosen_and_change_nothing(none, there, lead, data):
    head, query, candidates = SelectionHead(8, none=none).double(), random(*lead, 8), random(*lead, 5, 8)
    mask = torch.tensor([*there, *[False] * (5 - len(there))])
    order = data.draw(st.permutations(mask.nonzero().flatten().tolist()))
    short = candidates[..., order, :].clone().requires_grad_()
    whole = candidates.masked_fill(~mask[:, None], torch.nan).requires_grad_()
    expected, found = head(query, short), head(query, whole, mask.expand(*lead, 5))
    left = [*order, *([5] if none else [])]
    torch.testing.assert_close(found[..., left], expected)
    masked = [place for place in range(5) if not mask[place]]
    assert (found[..., masked] == torch.finfo(found.dtype).min).all()
    if left:
        assert not found.softmax(-1)[..., masked].any()
        assert not torch.isin(Categorical(logits=found).sample((50,)), torch.tensor(masked)).any()
    of_whole, *found = gradients([found[..., left].log_softmax(-1)], (whole, *head.parameters()))
    of_short, *expected = gradients([expected.log_softmax(-1)], (short, *head.parameters()))
    same(found, expected)
    torch.testing.assert_close(of_whole[..., order, :], of_short)
    assert not of_whole[..., masked, :].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_where_nothing_can_be_chosen(dtype):
    """The distribution is uniform without gradients, or, with `none`, certain of no candidate."""
    query, candidates, mask = torch.randn(2, 8, dtype=dtype), torch.randn(2, 3, 8, dtype=dtype), torch.zeros(2, 3)
    head = SelectionHead(8).to(dtype)
    chosen = Categorical(logits=head(query, candidates, mask))
    torch.testing.assert_close(chosen.probs, torch.full((2, 3), 1 / 3, dtype=dtype))
    assert not chosen.entropy().any()
    (chosen.log_prob(torch.tensor([0, 2])).sum() + chosen.entropy().sum()).backward()
    assert not any(one.grad.any() for one in head.parameters())
    assert head(query, candidates[:, :0]).shape == (2, 0)
    head = SelectionHead(8, none=True).to(dtype)
    for logits in (head(query, candidates, mask), head(query, candidates[:, :0], mask[:, :0]), head(query, candidates)):
        assert logits.isfinite().all()
    assert head(query, candidates, mask).argmax(-1).tolist() == [3, 3]
    assert head(query, candidates[:, :0]).softmax(-1).tolist() == [[1.0], [1.0]]


def test_several_queries_select_among_the_same_candidates():
    head, queries, candidates = SelectionHead(8).double(), random(2, 4, 8), random(2, 1, 3, 8)
    mask = torch.tensor([[[1, 0, 1]], [[1, 1, 1]]])
    found = head(queries, candidates, mask)
    for number in range(4):
        torch.testing.assert_close(found[:, number], head(queries[:, number], candidates[:, 0], mask[:, 0]))
