"""Checks of arguments: masks of any dtype at every entrance, whole numbers, names, equations, finite numbers."""

import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hitmac.perception import (
    AgentTargetEncoder,
    AMCCritic,
    AttentionLayer,
    EncoderBlock,
    EncoderConfig,
    FlatEncoder,
    MultiHeadAttention,
    NoisyLinear,
    PositionalEncoding,
    RecurrentLayer,
    TokenEmbedding,
    attend,
    check_finite,
    fast_paths,
)
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import ATTEND_OVER
from hitmac.perception.functional import FIXED_POOLINGS, Additive
from hitmac.perception.recurrent import PairMemory
from tests.perception.numerics import OTHER_TYPES, gradients, same

TOKENS = torch.tensor([[True, True, False, True], [False, True, True, False]])
PAIRS = torch.tensor([[[True, True, False, True], [False] * 4, [True] * 4], [[True, False, False, True]] * 3])

# Entrances of masks, by name: the module, the mask, the call.
ENTRANCES = {
    "AttentionLayer": (AttentionLayer(6, 8, num_heads=2), TOKENS, lambda net, x, mask: net(x, mask)),
    "RecurrentLayer": (RecurrentLayer(6, 8), TOKENS, lambda net, x, mask: net(x, mask)),
    "AMCCritic": (AMCCritic(6), TOKENS, lambda net, x, mask: [net(x, mask)]),
    "MultiHeadAttention": (MultiHeadAttention(6, 2), TOKENS, lambda net, x, mask: net(x, key_mask=mask)[:1]),
    "EncoderBlock": (EncoderBlock(6, 2), TOKENS, lambda net, x, mask: net(x, mask=mask.unsqueeze(-2))[:1]),
    "attend": (nn.Identity(), TOKENS, lambda net, x, mask: attend(torch.ones_like(x), x, x, mask=mask[:, None])[:1]),
    "causal": (EncoderBlock(6), TOKENS, lambda net, x, mask: net(x, key_mask=mask, causal=True)[:1]),
    "FlatEncoder": (FlatEncoder(3, 4, 6, 8), PAIRS, lambda net, x, mask: net(x, mask)),
}
for kind, pooling in (("attention", "max"), ("recurrent", "mean")):
    for over in ATTEND_OVER:
        net = AgentTargetEncoder(6, 8, encoder=kind, attend_over=over, pooling=pooling, num_blocks=2)
        ENTRANCES[f"{kind} over {over}"] = net, PAIRS, lambda net, x, mask: net(x, mask)


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_mask_of_any_dtype_is_the_bool_mask_and_other_numbers_are_refused(name):
    net, mask, call = ENTRANCES[name]
    x = torch.randn(*mask.shape, 6)
    expected = call(net, x, mask)
    for dtype in OTHER_TYPES:
        for one, other in zip(call(net, x, mask.to(dtype)), expected, strict=True):
            assert torch.equal(one, other)
            assert one.dtype == other.dtype
    additive = torch.where(mask, 0.0, -torch.inf)
    for wrong, shown in ((additive, "-inf"), (mask * 0.5, "0.5"), (mask * 2, "2"), (mask * torch.nan, "nan")):
        says = f"mask holds {shown}; expected 1 (valid) and 0 (absent); for an additive mask, pass "
        with pytest.raises(ValueError, match=re.escape(says)):
            call(net, x, wrong)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", ENTRANCES)
def test_what_is_masked_may_hold_anything(name, long, monkeypatch):
    """Outputs and gradients do not depend on it, on both sides of the length that decides."""
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    net, mask, call = ENTRANCES[name]
    x, results = torch.randn(*mask.shape, 6), []
    for wrong in (0.0, torch.nan, torch.inf, -torch.inf, 1e38):
        tokens = x.masked_fill(~mask[..., None], wrong).requires_grad_()
        outputs = call(net, tokens, mask)
        valid = [one * mask[..., None] if one.shape[:-1] == mask.shape else one for one in outputs]
        results.append([*outputs, *gradients(valid, (tokens, *net.parameters()))])
    for result in results[1:]:
        same(result, results[0])


WHOLE = [
    (EncoderConfig, {"num_heads": 2, "embed_layers": 2, "num_blocks": 2, "num_frequencies": 2, "weight_dim": 8}),
    (AgentTargetEncoder, {"feature_dim": 200, "weight_dim": 8, "num_heads": 2, "num_frequencies": 2}),
    (FlatEncoder, {"num_agents": 20, "num_targets": 20, "feature_dim": 6, "weight_dim": 8}),
    (AttentionLayer, {"feature_dim": 200, "weight_dim": 8, "num_heads": 2}),
    (AMCCritic, {"feature_dim": 200, "weight_dim": 100}),
    (RecurrentLayer, {"feature_dim": 6, "weight_dim": 200}),
    (PairMemory, {"feature_dim": 6, "width": 200}),
    (NoisyLinear, {"in_features": 6, "out_features": 8}),
    (MultiHeadAttention, {"embed_dim": 200, "num_heads": 20, "key_dim": 3, "head_dim": 20, "output_dim": 7}),
    (EncoderBlock, {"embed_dim": 200, "num_heads": 2}),
    (TokenEmbedding, {"num_tokens": 200, "embed_dim": 8}),
    (PositionalEncoding, {"embed_dim": 200}),
    (Additive, {"query_dim": 4, "key_dim": 5, "hidden_dim": 6}),
]


@pytest.mark.parametrize(("make", "numbers"), WHOLE, ids=lambda one: getattr(one, "__name__", ""))
def test_whole_numbers_of_numpy_become_those_of_python_and_others_are_refused(make, numbers):
    """They neither overflow nor reach a configuration file."""
    made = make(**{name: np.uint8(number) for name, number in numbers.items()})
    assert str(made) == str(make(**numbers))
    parts = made.modules() if isinstance(made, nn.Module) else [made]
    assert not [name for part in parts for name, value in vars(part).items() if isinstance(value, np.generic)]
    for name, number in numbers.items():
        least = 0 if name == "num_frequencies" else 1
        for wrong in (least - 1, float(number), True):
            with pytest.raises(ValueError, match=f"{name} is {wrong}; it must be a whole number, {least} or more"):
                make(**numbers | {name: wrong})


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


def test_functions_cite_the_equations_of_the_page_that_names_them():
    page = (Path(__file__).parents[2] / "docs" / "mathematics.md").read_text()
    cited = set()
    for name in re.findall(r"`(perception\.\w+\.\w+)`", page):
        cited |= {int(number) for number in re.findall(r"\((\d)\)", pkgutil.resolve_name(f"hitmac.{name}").__doc__)}
    assert sorted(cited) == [int(number) for number in re.findall(r"\\text{\((\d)\)}", page)] == [*range(1, 8)]
