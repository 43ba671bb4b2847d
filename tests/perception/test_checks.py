"""Checks of arguments: masks of any dtype at every entrance, names with the nearest known one, finite numbers."""

import re

import pytest
import torch

from hitmac.perception import (
    AgentTargetEncoder,
    AMCCritic,
    AttentionLayer,
    EncoderBlock,
    EncoderConfig,
    FlatEncoder,
    MultiHeadAttention,
    RecurrentLayer,
    attend,
    check_finite,
)
from hitmac.perception.checks import check_choice
from hitmac.perception.functional import FIXED_POOLINGS
from tests.perception.numerics import OTHER_TYPES

TOKENS = torch.tensor([[True, True, False, True], [False, True, True, False]])
PAIRS = torch.tensor([[[True, True, False, True], [False] * 4, [True] * 4], [[True, False, False, True]] * 3])

# Entrances of masks, by name: the module, the mask, the call.
ENTRANCES = {
    "AttentionLayer": (AttentionLayer(6, 8, num_heads=2), TOKENS, lambda net, x, mask: net(x, mask)),
    "RecurrentLayer": (RecurrentLayer(6, 8), TOKENS, lambda net, x, mask: net(x, mask)),
    "AMCCritic": (AMCCritic(6), TOKENS, lambda net, x, mask: [net(x, mask)]),
    "MultiHeadAttention": (MultiHeadAttention(6, 2), TOKENS, lambda net, x, mask: net(x, key_mask=mask)[:1]),
    "EncoderBlock": (EncoderBlock(6, 2), TOKENS, lambda net, x, mask: net(x, key_mask=mask)[:1]),
    "attend": (torch.nn.Identity(), TOKENS, lambda net, x, mask: attend(x, x, x, mask=mask.unsqueeze(-2))[:1]),
    "AgentTargetEncoder": (AgentTargetEncoder(6, 8), PAIRS, lambda net, x, mask: net(x, mask)),
    "FlatEncoder": (FlatEncoder(3, 4, 6, 8), PAIRS, lambda net, x, mask: net(x, mask)),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_mask_of_any_dtype_is_the_bool_mask(name):
    net, mask, call = ENTRANCES[name]
    x = torch.randn(*mask.shape, 6)
    expected = call(net, x, mask)
    for dtype in OTHER_TYPES:
        for one, other in zip(call(net, x, mask.to(dtype)), expected, strict=True):
            assert torch.equal(one, other)
            assert one.dtype == other.dtype


def test_an_unknown_name_gets_the_known_ones_and_the_nearest():
    known = "pooling is {}; it must be one of sum, mean, max{}"
    for value, hint in (("maen", " (did you mean mean?)"), ("zzz", ""), (None, ""), (3, ""), (["sum"], "")):
        says = f"^{re.escape(known.format(repr(value), hint))}"
        with pytest.raises(ValueError, match=says):
            check_choice("pooling", value, FIXED_POOLINGS)
        with pytest.raises(ValueError, match=says):
            EncoderConfig(pooling=value)


def test_the_first_number_that_is_not_finite_is_named():
    x = torch.zeros(2, 3)
    assert check_finite(x) is x
    x[1, 1:] = torch.tensor([-torch.inf, torch.nan])
    with pytest.raises(ValueError, match=r"pairs holds -inf at \(1, 1\), the first of 2; all must be finite"):
        check_finite(x, "pairs")
