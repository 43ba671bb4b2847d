"""Encoders: by hand, masks, order, sizes, weights; their configuration from the command line to the network."""

import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.command_line import parse
from hitmac.agents.learned.checkpoint import load_policy, save_policy
from hitmac.agents.training.config import JOBS, check
from hitmac.agents.training.learner import build
from hitmac.envs import load_scenario
from hitmac.perception import AgentTargetEncoder, EncoderConfig, FlatEncoder
from hitmac.perception.encoder import ATTEND_OVER, ENCODERS, take_encoder_config
from tests.perception.numerics import disturbed, random, same

OTHER = {
    "encoder": "recurrent", "attend_over": "axes", "pooling": "mean", "num_heads": 2, "scaled": True,
    "embed_layers": 2, "num_blocks": 2, "num_frequencies": 3, "weight_dim": 8,
}  # fmt: skip
"""A value of every option that is not its default."""


def encoder(**options):
    return disturbed(AgentTargetEncoder(6, 8, **options))


def scene():
    """Two scenes with absent pairs, and an agent of the first absent."""
    pairs, mask = random(2, 3, 4, 6), torch.rand(2, 3, 4) > 0.3
    mask[0, 0] = False
    mask[:, -1, -1] = True
    return pairs, mask


@pytest.mark.parametrize("over", ATTEND_OVER)
@pytest.mark.parametrize(("pooling", "blocks"), [("sum", 1), ("mean", 2), ("max", 2)])
@settings(deadline=None, max_examples=10)
@given(n=st.integers(0, 4), m=st.integers(0, 4), lead=st.sampled_from([(), (2,), (3, 2)]), data=st.data())
def test_order_batches_and_padding_of_any_number_of_agents_and_targets(over, pooling, blocks, n, m, lead, data):
    net = encoder(attend_over=over, pooling=pooling, num_blocks=blocks, num_heads=2)
    pairs = random(*lead, n, m, 6)
    whole = net(pairs)
    assert [tuple(one.shape) for one in whole] == [(*lead, n, m, 8), (*lead, n, 8), (*lead, 8)]
    agents, targets = (data.draw(st.permutations(range(number))) for number in (n, m))
    shuffled = net(pairs[..., agents, :, :][..., targets, :])
    per_target = whole.per_target[..., agents, :, :][..., targets, :]
    same(shuffled, (per_target, whole.per_agent[..., agents, :], whole.global_feature))
    same(whole, net(pairs, torch.ones(*lead, n, m)))
    if lead:
        same(net(pairs[-1]), (feature[-1] for feature in whole))
    padded = torch.nn.functional.pad(pairs, (0, 0, 0, 2, 0, 1), value=torch.inf)  # one more agent, two more targets
    mask = torch.zeros(*lead, n + 1, m + 2, dtype=torch.bool)
    mask[..., :n, :m] = True
    more = net(padded, mask)
    found = more.per_target[..., :n, :m, :], more.per_agent[..., :n, :], more.global_feature
    same(found, whole)
    assert not more.per_target[~mask].any()
    assert not more.per_agent[..., n:, :].any()


@pytest.mark.parametrize("over", ["targets", "pairs"])
def test_over_the_targets_and_over_the_pairs_by_hand(over):
    net, pairs = encoder(attend_over=over), random(3, 4, 6)
    tokens = net.embed(pairs)
    sequences = tokens if over == "targets" else tokens.flatten(0, 1)
    z = net.attention(sequences)[0].reshape(3, 4, 8)
    same(net(pairs), (z, z.sum(1), z.sum((0, 1))))


def test_over_the_axes_by_hand():
    """A pair is its embedding plus what the others of its agent and of its target add."""
    net, pairs = encoder(attend_over="axes"), random(3, 4, 6)
    embedded, features = net.embed(pairs), net(pairs)
    for i in range(3):
        for j in range(4):
            row, column = net.attention(embedded[i])[0][j], net.between_agents(embedded[:, j])[0][i]
            torch.testing.assert_close(features.per_target[i, j], embedded[i, j] + row + column)
    per_target = features.per_target
    same(features, (per_target, per_target.sum(1), per_target.sum((0, 1))))


def test_blocks_by_hand():
    """The second block attends over the first one's features, after a feed-forward network."""
    net, pairs = encoder(num_blocks=2), random(3, 4, 6)
    z, agents = net.attention(net.embed(pairs))
    agents = agents + net.between_agents(agents)[0]
    block = net.later_blocks[0]
    one, relu, two = block.feed_forward
    z, agents = block.layers[0](z + two(relu(one(z + agents[:, None]))))
    others, global_feature = block.layers[1](agents)
    same(net(pairs), (z, agents + others, global_feature))


@pytest.mark.parametrize("over", ATTEND_OVER)
def test_weights(over):
    net, (pairs, mask) = encoder(attend_over=over, num_heads=2), scene()
    features, weights = net(pairs, mask, need_weights=True)
    same(features, net(pairs, mask))
    expected = {  # the shape, and the mask of the keys
        "targets": {"targets": ((2, 3, 2, 4, 4), mask)},
        "pairs": {"pairs": ((2, 2, 12, 12), mask.flatten(1))},
        "agents": {"targets": ((2, 3, 2, 4, 4), mask), "agents": ((2, 2, 3, 3), mask.any(-1))},
        "axes": {"targets": ((2, 3, 2, 4, 4), mask), "agents": ((2, 4, 2, 3, 3), mask.mT)},  # of every target
    }[over]
    assert {name for name, value in weights._asdict().items() if value is not None} == expected.keys()
    for name, (shape, keys) in expected.items():
        value, keys = getattr(weights, name), keys.unsqueeze(-2)  # (..., 1 head, keys)
        assert value.shape == shape
        torch.testing.assert_close(value.sum(-1), keys.expand(value.shape[:-1]).to(value))
        assert not value.masked_select(~keys.unsqueeze(-2)).any()


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_kind_of_encoder_takes_the_sizes_that_its_table_allows(kind):
    pairs, _ = scene()
    net = ENCODERS[kind].build(EncoderConfig(encoder=kind, weight_dim=8), 3, 4, 6).double()
    if ENCODERS[kind].any_size:
        assert net(pairs[:, :2]).per_agent.shape == (2, 2, 8)
    else:
        with pytest.raises(ValueError, match="pairs has 2 agents and 4 targets, but this encoder expects 3 and 4"):
            net(pairs[:, :2])


def test_agents_share_the_layers_of_the_flat_encoder():
    net, (pairs, mask), order = FlatEncoder(3, 4, 6, 8).double(), scene(), [2, 0, 1]
    features, moved = net(pairs, mask), net(pairs[:, order], mask[:, order])
    same(moved[:2], (feature[:, order] for feature in features[:2]))
    assert (moved.global_feature - features.global_feature).abs().max() > 1e-6


def test_options_reach_the_encoder_from_the_command_line_and_from_the_checkpoint(tmp_path):
    """A new field of the configuration needs no other line to get there."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in OTHER.items() if value is not True]
    arguments = [*flags, "--scaled", "--algorithm=ppo", "--num-envs=2", "--scenario=hit-mac-2x2"]
    options, expected = parse(JOBS["coverage"], "train.py", arguments), EncoderConfig(**OTHER)
    assert all(getattr(EncoderConfig(), name) != value for name, value in vars(expected).items())
    check(options)
    assert options.encoder_config == expected
    model, _, written = build(options, load_scenario("hit-mac-2x2"))
    assert model.policy.features_extractor.encoder.config == expected
    save_policy(tmp_path, model.policy, written)
    assert OTHER.items() <= json.loads((tmp_path / "config.json").read_text())["policy"].items()
    policy, read = load_policy(tmp_path)
    assert read == written
    assert read.encoder == policy.features_extractor.encoder.config == expected


def test_options_can_be_given_whole_or_one_by_one():
    whole = EncoderConfig(weight_dim=8, attend_over="axes")
    assert AgentTargetEncoder(4, 8, attend_over="axes").config == whole
    assert AgentTargetEncoder(4, config=EncoderConfig(weight_dim=8), attend_over="axes").config == whole
    for options in ({"weight_dim": 8, "attend_over": "axes"}, {"encoder_config": whole}):
        assert take_encoder_config(options) == whole
        assert not options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weight_dim": 7, "encoder": "recurrent"}, "weight_dim is 7; it must be even for a recurrent encoder"),
        ({"embed_layers": 10**15}, "embed_layers is 1000000000000000; it must be at most 4096"),
        ({"num_frequencies": -1}, "num_frequencies is -1; it must be a whole number, 0 or more"),
        ({"num_heads": 3}, "num_heads is 3; it must be a divisor of the width, 64"),
        ({"scaled": 1}, "scaled is 1; it must be True or False"),
        (
            {"attend_over": "axis", "pooling": "first"},
            "attend_over is 'axis'; it must be one of agents, targets, pairs, axes (did you mean axes?); "
            "pooling is 'first'; it must be one of sum, mean, max",
        ),
    ],
)
def test_options_out_of_their_range_are_refused(options, says):
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        EncoderConfig(**options)
    with pytest.raises((ValueError, TypeError), match="--"):
        check(JOBS["coverage"](**options))
