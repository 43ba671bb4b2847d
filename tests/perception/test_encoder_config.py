"""One configuration of the encoder, from the command line to the network; earlier files still load."""

import dataclasses
import json
import re

import pytest
from gymnasium import spaces

from hitmac.agents import AttentionExtractor, AttentionPolicy, PolicyConfig
from hitmac.agents.command_line import parse
from hitmac.agents.learned.checkpoint import load_policy, save_policy
from hitmac.agents.training.config import JOBS, check
from hitmac.agents.training.train import build
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.perception import AgentTargetEncoder, EncoderConfig
from hitmac.perception.encoder import ATTEND_OVER, ENCODERS
from hitmac.perception.functional import FIXED_POOLINGS

HIT_MAC = load_scenario("hit-mac")
NAMES = [field.name for field in dataclasses.fields(EncoderConfig)]
OTHER = {
    "encoder": "recurrent",
    "attend_over": "axes",
    "pooling": "mean",
    "num_heads": 2,
    "scaled": True,
    "embed_layers": 2,
    "num_blocks": 2,
    "num_frequencies": 3,
    "weight_dim": 8,
}
"""A value of every option that is no default."""
SPACE = spaces.Dict({"pairs": spaces.Box(-1, 1, (3, 2, 4)), "mask": spaces.MultiBinary((3, 2))})


def config(**changes):
    given = {"policy": {}, "features": DEFAULT_FEATURES, "scenario": HIT_MAC, "training_seeds": (2**40, 2**40)}
    return PolicyConfig(**given | changes)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_goes_from_the_command_line_through_the_checkpoint_to_the_encoder(name, tmp_path):
    """A new field of the configuration needs no other line to get there."""
    value = OTHER[name]
    flag = "--" + name.replace("_", "-")
    arguments = [*([flag] if value is True else [flag, str(value)]), "--algorithm", "ppo"]
    options = parse(JOBS["coverage"], "train.py", [*arguments, "--num-envs", "2", "--scenario", "hit-mac-2x2"])
    check(options)
    assert getattr(options, name) == value
    expected = dataclasses.replace(JOBS["coverage"]().encoder_config, **{name: value})
    assert options.encoder_config == expected
    model, _, written = build(options, load_scenario("hit-mac-2x2"))
    assert model.policy.features_extractor.encoder.config == expected
    save_policy(tmp_path, model.policy, written)
    assert json.loads((tmp_path / "config.json").read_text())["policy"][name] == value
    policy, read = load_policy(tmp_path)
    assert read == written
    assert read.encoder == expected
    assert policy.features_extractor.encoder.config == expected


def test_the_options_differ_from_their_defaults_and_every_one_is_tried():
    assert OTHER.keys() == set(NAMES)
    assert all(getattr(EncoderConfig(), name) != value for name, value in OTHER.items())


def test_every_name_of_a_choice_stands_in_the_help(capsys):
    with pytest.raises(SystemExit):
        parse(JOBS["coverage"], "train.py", ["--help"])
    shown = capsys.readouterr().out
    for known in (ENCODERS, ATTEND_OVER, FIXED_POOLINGS):
        assert not [name for name in known if name not in shown]


def test_options_can_be_given_whole_or_one_by_one():
    whole = EncoderConfig(weight_dim=8, attend_over="axes")
    for made in (
        AgentTargetEncoder(4, 8, attend_over="axes"),
        AgentTargetEncoder(4, config=whole),
        AgentTargetEncoder(4, config=EncoderConfig(weight_dim=8), attend_over="axes"),
        AttentionExtractor(SPACE, weight_dim=8, attend_over="axes").encoder,
        AttentionExtractor(SPACE, encoder_config=whole).encoder,
        *(
            AttentionPolicy(SPACE, spaces.MultiDiscrete([3] * 3), lambda _: 1e-3, **options).features_extractor.encoder
            for options in ({"weight_dim": 8, "attend_over": "axes"}, {"encoder_config": whole})
        ),
    ):
        assert made.config == whole


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weight_dim": 0}, "weight_dim is 0; it must be a whole number, 1 or more"),
        ({"weight_dim": 8.0}, "weight_dim is 8.0; it must be a whole number, 1 or more"),
        ({"weight_dim": 7, "encoder": "recurrent"}, "weight_dim is 7; it must be even for a recurrent encoder"),
        ({"num_frequencies": -1}, "num_frequencies is -1; it must be a whole number, 0 or more"),
        ({"embed_layers": True}, "embed_layers is True; it must be a whole number, 1 or more"),
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


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match=r"unknown encoder option 'wieght_dim'; it .* \(did you mean weight_dim"):
        AgentTargetEncoder(4, wieght_dim=8)
    with pytest.raises(ValueError, match=r"policy is {'wieght_dim': 8}; it may hold encoder, .*, critic, credit"):
        config(policy={"wieght_dim": 8})
    with pytest.raises(ValueError, match="encoder is 'mlp'; it must be one of attention, recurrent"):
        AgentTargetEncoder(4, 8, encoder="mlp")
