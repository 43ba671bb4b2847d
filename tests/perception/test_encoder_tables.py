"""Every entry of every table of perception: described, runs, masks, keeps the order of agents and targets."""

import re

import pytest
import torch

from hitmac.agents.learned import policy as heads
from hitmac.perception import AgentTargetEncoder, AMCCritic, AttentionLayer, EncoderConfig, Features, Weights
from hitmac.perception.amc import CRITICS
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import ATTEND_OVER, ENCODERS
from hitmac.perception.functional import FIXED_POOLINGS, POOLINGS, SCORES, make_score, pool

DOCUMENTED = {
    "attending": {name: way.attend for name, way in ATTEND_OVER.items()},
    "pooling": POOLINGS,
    "score": {name: type(make_score(name, 4)) for name in SCORES},
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def scene(n=3, m=4, d=6):
    """Two scenes with absent pairs, and an agent of the first absent."""
    pairs, mask = torch.randn(2, n, m, d, dtype=torch.float64), torch.rand(2, n, m) > 0.3
    mask[0, 0] = False
    mask[:, -1, -1] = True
    return pairs, mask


@pytest.mark.parametrize("table", DOCUMENTED)
def test_every_entry_says_in_a_sentence_what_it_does(table):
    for name, entry in DOCUMENTED[table].items():
        line = (entry.__doc__ or "").split("\n\n")[0]
        assert re.fullmatch(r"[A-Z].{15,}[.:]", line, re.DOTALL), f"{table} {name}: {line!r}"


@pytest.mark.parametrize("over", ATTEND_OVER)
@pytest.mark.parametrize("pooling", FIXED_POOLINGS)
@pytest.mark.parametrize("layer", ["attention", "recurrent"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_way_of_attending_ignores_what_is_masked(over, pooling, layer, blocks):
    net = AgentTargetEncoder(6, 8, encoder=layer, attend_over=over, pooling=pooling, num_blocks=blocks).double()
    with torch.no_grad():  # biases start at 0, which would leave absent pairs 0 by themselves
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    pairs, mask = scene()
    hidden = torch.where(mask.unsqueeze(-1), pairs, torch.nan).requires_grad_()
    features, found = net(pairs, mask), net(hidden, mask)
    assert isinstance(found, Features)
    for one, other in zip(features, found, strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0)
    assert (found.per_target[~mask] == 0).all()
    assert (found.per_agent[~mask.any(-1)] == 0).all()
    sum(feature.square().sum() for feature in found).backward()
    assert (hidden.grad[~mask] == 0).all()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("over", ATTEND_OVER)
@pytest.mark.parametrize("pooling", FIXED_POOLINGS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_way_of_attending_keeps_the_order_of_agents_and_targets(over, pooling, blocks):
    net = AgentTargetEncoder(6, 8, attend_over=over, pooling=pooling, num_heads=2, num_blocks=blocks).double()
    pairs, mask = scene()
    agents, targets = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2])
    features, weights = net(pairs, mask, need_weights=True)
    assert isinstance(weights, Weights)
    assert any(kind is not None for kind in weights)
    moved = net(pairs[:, agents][:, :, targets], mask[:, agents][:, :, targets])
    torch.testing.assert_close(moved.per_target, features.per_target[:, agents][:, :, targets])
    torch.testing.assert_close(moved.per_agent, features.per_agent[:, agents])
    torch.testing.assert_close(moved.global_feature, features.global_feature)


@pytest.mark.parametrize("over", ATTEND_OVER)
def test_a_way_of_attending_has_the_layers_that_it_names_and_no_other(over):
    net = AgentTargetEncoder(6, 8, attend_over=over)
    assert [name for name, _ in net.named_children()] == ["embed", *ATTEND_OVER[over].layers, "later_blocks"]


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_kind_of_encoder_gives_features_of_its_size_and_says_whether_it_takes_others(kind):
    pairs, mask = scene()
    net = ENCODERS[kind].build(EncoderConfig(encoder=kind, weight_dim=8), 3, 4, 6).double()
    features = net(pairs, mask)
    assert [tuple(feature.shape) for feature in features] == [(2, 3, 4, 8), (2, 3, 8), (2, 8)]
    hidden = torch.where(mask.unsqueeze(-1), pairs, torch.nan)
    torch.testing.assert_close(net(hidden, mask).global_feature, features.global_feature)
    if ENCODERS[kind].any_size:
        net(pairs[:, :2])
    else:
        with pytest.raises(ValueError, match="pairs are of 2 agents"):
            net(pairs[:, :2])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_pooling_is_of_the_valid_tokens_in_any_order(pooling):
    tokens, order = torch.randn(5, 4, dtype=torch.float64), [3, 0, 4, 1, 2]
    query = () if pooling in FIXED_POOLINGS else (torch.randn(4, dtype=torch.float64),)
    expected = POOLINGS[pooling](tokens, None, *query)
    padded = torch.cat((tokens[order], torch.zeros(2, 4, dtype=torch.float64)))
    torch.testing.assert_close(POOLINGS[pooling](padded, torch.arange(7) < 5, *query), expected)
    empty = POOLINGS[pooling](torch.zeros(3, 4, dtype=torch.float64), torch.zeros(3, dtype=torch.bool), *query)
    assert (empty == 0).all()
    assert (POOLINGS[pooling](tokens[:0], None, *query) == 0).all()
    if pooling in FIXED_POOLINGS:
        torch.testing.assert_close(pool(tokens, None, pooling), expected)
    assert AttentionLayer(4, 6, pooling=pooling)(tokens.float())[1].shape == (6,)


def test_poolings_by_hand():
    tokens, mask = torch.tensor([[1.0, -4], [3, -2], [0, 0]]), torch.tensor([True, True, False])
    by_hand = {"sum": [4.0, -6], "mean": [2.0, -3], "max": [3.0, -2]}
    assert {name: pool(tokens, mask, name).tolist() for name in FIXED_POOLINGS} == by_hand


@pytest.mark.parametrize("score", SCORES)
def test_a_score_keeps_the_order_of_queries_and_keys(score):
    module, query, key = make_score(score, 4), torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    rows, columns = [2, 0, 1], [4, 2, 0, 1, 3]
    scores = module(query, key)
    assert scores.shape == (2, 3, 5)
    torch.testing.assert_close(module(query[:, rows], key[:, columns]), scores[:, rows][:, :, columns])


@pytest.mark.parametrize("kind", CRITICS)
def test_a_critic_skips_what_is_masked(kind):
    critic, z = AMCCritic(4, kind=kind), torch.randn(6, 4)
    mask = torch.tensor([True, False, True, True, False, True])
    value, contributions = critic(z, mask, return_contributions=True)
    torch.testing.assert_close(value, critic(z[mask]))
    assert (contributions[~mask] == 0).all()
    assert (critic.attention is not None) == (kind == "amc")


@pytest.mark.parametrize("kind", heads.CRITICS)
@pytest.mark.parametrize("per_sensor", [False, True])
def test_a_policys_critic_values_the_scene_or_every_sensor(kind, per_sensor):
    pairs, mask = scene()
    features = AgentTargetEncoder(6, 8).double()(pairs, mask)
    values = heads.CRITICS[kind](8, per_sensor).double()(features, mask)
    assert values.shape == ((2, 3) if per_sensor else (2, 1))


UNKNOWN = {
    "attend_over": (lambda name: AgentTargetEncoder(6, 8, attend_over=name), "agnets", ATTEND_OVER, "agents"),
    "encoder": (lambda name: EncoderConfig(encoder=name), "recurent", ENCODERS, "recurrent"),
    "pooling": (lambda name: EncoderConfig(pooling=name), "maen", FIXED_POOLINGS, "mean"),
    "pooling of a layer": (lambda name: AttentionLayer(6, 8, pooling=name), "atention", POOLINGS, "attention"),
    "score": (lambda name: make_score(name, 4), "scaled-dot", SCORES, "scaled_dot"),
    "kind": (lambda name: AMCCritic(4, kind=name), "no-prefix", CRITICS, "no_prefix"),
}


@pytest.mark.parametrize("table", UNKNOWN)
def test_an_unknown_name_gets_the_known_ones_and_the_nearest(table):
    make, wrong, known, meant = UNKNOWN[table]
    option = table.split()[0]
    with pytest.raises(
        ValueError, match=f"^{option} is '{wrong}'; it must be one of {', '.join(known)} \\(did you mean"
    ):
        make(wrong)
    with pytest.raises(ValueError, match=rf"did you mean {meant}\?\)$"):
        make(wrong)
    with pytest.raises(ValueError, match=rf"^{option} is 'zzz'; it must be one of {', '.join(known)}$"):
        make("zzz")


@pytest.mark.parametrize("value", [None, 3, ["sum"]])
def test_a_choice_that_is_no_name_is_refused(value):
    with pytest.raises(ValueError, match="it must be one of sum, mean"):
        check_choice("pooling", value, ("sum", "mean"))
    with pytest.raises(ValueError, match="pooling is "):
        EncoderConfig(pooling=value)
