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
    EntityEncoder,
    FlatEncoder,
    MultiHeadAttention,
    NoisyLinear,
    PositionalEncoding,
    RecurrentLayer,
    SelectionHead,
    TokenEmbedding,
    attend,
    check_finite,
    fast_paths,
)
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import ATTEND_OVER
from hitmac.perception.functional import FIXED_POOLINGS, Additive, Dot
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


KINDS = EntityEncoder({"items": 3, "keys": 5}, 8)
ENTITIES = {"items": torch.zeros(2, 3, 3), "keys": torch.zeros(2, 3, 5)}
BAD = [
    (lambda: attend(*map(torch.zeros, [(2, 4, 3)] * 3), mask=torch.ones(2, 4)), r"mask has shape \(2, 4\); it must b"),
    (lambda: attend(*map(torch.zeros, [(4, 3), (5, 3), (5, 3)]), causal=True), r"as many keys \(5\) as queries \(4\)"),
    (
        lambda: attend(*map(torch.zeros, [(4, 3), (5, 3), (4, 3)])),
        r"value has shape \(4, 3\); expected \(..., 5",
    ),
    (lambda: attend(*map(torch.zeros, [(3,), (5, 3), (5, 3)])), r"query has shape \(3,\)"),
    (lambda: attend(*map(torch.zeros, [(4, 3), (5, 2), (5, 3)]), score=Dot()), "equal widths; query has 3, key 2"),
    (lambda: AttentionLayer(6, 8, num_heads=3), "num_heads is 3; it must divide the width 8"),
    (lambda: AttentionLayer(6, 8, pooling="best"), "pooling is 'best'; it must be one of sum, mean, max, attention"),
    (lambda: AttentionLayer(6, 8, residual=True), r"residual requires feature_dim \(6\)"),
    (lambda: AttentionLayer(6, 8, dropout=1.0), "dropout is 1.0"),
    (lambda: AttentionLayer(6, 8)(torch.zeros(6)), r"x has shape \(6,\)"),
    (lambda: AttentionLayer(6, 8)(torch.zeros(3, 5)), r"x has shape \(3, 5\); expected .*L, 6"),
    (
        lambda: AttentionLayer(6, 8)(torch.zeros(3, 6), torch.ones(4)),
        r"mask has shape \(4,\); it must have shape",
    ),
    (lambda: AttentionLayer(6, 8)(torch.zeros(3, 6), [1, 1, 1]), "mask is a list; expected a tensor"),
    (lambda: AttentionLayer(6, 8)([[0.0] * 6]), "x is a list; expected a tensor"),
    (lambda: MultiHeadAttention(8, 3), "num_heads is 3; it must divide the width 8"),
    (lambda: MultiHeadAttention(8, dropout=1.0), "dropout is 1.0; it must be a number from 0"),
    (lambda: MultiHeadAttention(8, output_dim=4, output_map=False), "output_dim is 4; without the output map"),
    (lambda: MultiHeadAttention(8)(torch.zeros(3, 7)), r"query has shape \(3, 7\); it must be"),
    (lambda: MultiHeadAttention(8)(torch.zeros(3, 8), torch.zeros(4, 8), causal=True), r"keys \(4\) as queries"),
    (lambda: MultiHeadAttention(8, score="cosine"), "score is 'cosine'; it must be one of dot, scaled_dot"),
    (lambda: PositionalEncoding(8, dropout=-0.1), "dropout is -0.1"),
    (lambda: RecurrentLayer(4, 5), "weight_dim is 5; it must be even"),
    (lambda: RecurrentLayer(4, 6, pooling="attention"), "pooling is 'attention'"),
    (lambda: RecurrentLayer(4, 6)(torch.zeros(3, 4), need_weights=True), "need_weights is True"),
    (lambda: PairMemory(3, 7), "width is 7; it must be even"),
    (lambda: NoisyLinear(4, 5, sigma=-1), "sigma is -1; it must be a number, 0 or more"),
    (lambda: AMCCritic(6, kind="best"), "kind is 'best'; it must be one of amc, no_prefix, value_head"),
    (lambda: AMCCritic(6)(torch.zeros(3, 5)), r"z has shape \(3, 5\)"),
    (lambda: EntityEncoder({"a": 3}, attention="dot"), "attention is 'dot'; it must be one of transformer, tanh"),
    (lambda: EntityEncoder({"a": 3}, num_heads=3), "num_heads is 3; it must be a divisor of the width"),
    (lambda: KINDS({"items": ENTITIES["items"]}), "entities are of items, masks of none; expected the"),
    (lambda: KINDS(ENTITIES, {"cats": torch.ones(2, 3)}), "masks of cats; expected the kinds items, keys"),
    (lambda: KINDS(ENTITIES | {"keys": torch.zeros(3, 5)}), r"keys has shape \(3, 5\); those of the other kinds"),
    (lambda: KINDS(ENTITIES, {"keys": -torch.ones(2, 3)}), r"mask of keys holds -1.0; expected 1 \(valid\) and 0"),
    (lambda: SelectionHead(8)(torch.zeros(7), torch.zeros(3, 8)), r"query has shape \(7,\); its last axis must be 8"),
    (lambda: SelectionHead(8)(torch.zeros(8), torch.zeros(3, 7)), r"candidates has shape \(3, 7\); expected \(..., c"),
]


@pytest.mark.parametrize(("call", "says"), BAD)
def test_arguments_that_do_not_fit_are_named(call, says):
    with pytest.raises((ValueError, TypeError), match=says):
        call()


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
