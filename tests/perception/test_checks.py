"""Checks of arguments: masks of any dtype at every entrance, whole numbers, names, and all that is refused."""

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
    pad_scenes,
    unpad_scenes,
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


def test_an_unknown_name_gets_the_known_ones_and_the_nearest():
    known = "pooling is {}; it must be one of sum, mean, max{}"
    for value, hint in (("maen", " (did you mean mean?)"), ("zzz", ""), (None, ""), (3, ""), (["sum"], "")):
        says = f"^{re.escape(known.format(repr(value), hint))}"
        with pytest.raises(ValueError, match=says):
            check_choice("pooling", value, FIXED_POOLINGS)
        with pytest.raises(ValueError, match=says):
            EncoderConfig(pooling=value)


ONES, ZEROS = torch.ones, torch.zeros
KINDS = {"items": 3, "keys": 5}
ENTITIES = {kind: ZEROS(2, 3, width) for kind, width in KINDS.items()}


def listed(over, **lists):
    """Encode two scenes of 5 agents and 7 targets with lists."""
    return AgentTargetEncoder(6, 8, attend_over=over)(ZEROS(2, 5, 7, 6), **lists)


def layer(*given, **options):
    """Call a layer of tokens of width 6."""
    return AttentionLayer(**{"feature_dim": 6, "weight_dim": 8} | options)(*given)


@pytest.mark.parametrize(("call", "says"), [
    (lambda: attend(*[ZEROS(2, 4, 3)] * 3, mask=ONES(2, 4)), r"mask has shape \(2, 4\); it must broadcast"),
    (lambda: attend(ZEROS(4, 3), *[ZEROS(5, 3)] * 2, causal=True), r"as many keys \(5\) as queries \(4\)"),
    (lambda: attend(ZEROS(4, 3), ZEROS(5, 3), ZEROS(4, 3)), r"value .* \(4, 3\); expected \(..., 5, width\), like key"),
    (lambda: attend(ZEROS(3), *[ZEROS(5, 3)] * 2), r"query has shape \(3,\)"),
    (lambda: attend(ZEROS(4, 3), ZEROS(5, 2), ZEROS(5, 3), score=Dot()), "requires equal widths; query has 3, key 2"),
    (lambda: layer(num_heads=3), "num_heads is 3; it must divide the width 8"),
    (lambda: layer(pooling="best"), "pooling is 'best'; it must be one of sum, mean, max, attention"),
    (lambda: layer(pooling=np.array(["sum", "max"])), r"is array\(\['sum', 'max'\], .*; it must be one of sum, mean"),
    (lambda: layer(residual=True), r"residual requires feature_dim \(6\)"),
    (lambda: layer(dropout=1.0), "dropout is 1.0"),
    (lambda: layer(ZEROS(6)), r"x has shape \(6,\)"),
    (lambda: layer(ZEROS(3, 5)), r"x has shape \(3, 5\); expected .*L, 6"),
    (lambda: layer(ZEROS(3, 6), ONES(4)), r"mask has shape \(4,\); it must have shape \(3,\)"),
    (lambda: RecurrentLayer(4, 5), "weight_dim is 5; it must be even"),
    (lambda: RecurrentLayer(4, 6, pooling="attention"), "pooling is 'attention'"),
    (lambda: RecurrentLayer(4, 6)(ZEROS(3, 4), need_weights=True), "need_weights is True"),
    (lambda: PairMemory(3, 7), "width is 7; it must be even"),
    (lambda: NoisyLinear(4, 5, sigma=-1), "sigma is -1; it must be a number, 0 or more"),
    (lambda: AMCCritic(6, kind="best"), "kind is 'best'; it must be one of amc, no_prefix, value_head"),
    (lambda: AMCCritic(6)(ZEROS(3, 5)), r"z has shape \(3, 5\)"),
    (lambda: MultiHeadAttention(8, 3), "num_heads is 3; it must divide the width 8"),
    (lambda: MultiHeadAttention(8, dropout=1.0), "dropout is 1.0; it must be a number from 0"),
    (lambda: MultiHeadAttention(8, output_dim=4, output_map=False), "output_dim is 4; without the output map"),
    (lambda: MultiHeadAttention(8)(ZEROS(3, 7)), r"query has shape \(3, 7\); it must be"),
    (lambda: MultiHeadAttention(8)(ZEROS(3, 8), ZEROS(4, 8), causal=True), r"keys \(4\) as queries"),
    (lambda: MultiHeadAttention(8, score="cosine"), "score is 'cosine'; it must be one of dot, scaled_dot"),
    (lambda: PositionalEncoding(8, dropout=-0.1), "dropout is -0.1"),
    (lambda: PositionalEncoding(16)(ZEROS(2, 5, 1)), r"x has shape \(2, 5, 1\); expected \(..., L, 16\)"),
    (lambda: PositionalEncoding(16)(ZEROS(16)), r"x has shape \(16,\)"),
    (lambda: EncoderConfig(pooling=np.array([])), r"pooling is array\(\[\], .*; it must be one of sum, mean, max"),
    (lambda: AgentTargetEncoder(4, 8, encoder="mlp"), "encoder is 'mlp'; it must be one of attention, recurrent"),
    (lambda: AgentTargetEncoder(6)(ZEROS(3, 6)), r"pairs has shape \(3, 6\); expected \(..., agents, targets, 6\)"),
    (lambda: AgentTargetEncoder(6, 8, encoder="recurrent")(ZEROS(2, 3, 6), need_weights=True), "no attention weights"),
    (lambda: listed("pairs", targets=ZEROS(2, 5, 7).int()), "'pairs', .* one of agents, targets, axes"),
    (lambda: listed("axes", targets=ZEROS(2, 5).int()), r"targets has shape \(2, 5\); .* \(2, 5, 7\)"),
    (lambda: listed("axes", neighbours=ZEROS(2, 5, 2).int()), "attend_over='axes' does not use it"),
    (lambda: listed("agents", neighbours=ZEROS(2, 7, 2).int()), r"neighbours .* \(2, 7, 2\); .* 5, any"),
    (lambda: listed("agents", neighbours=torch.full((2, 5, 1), 5)), "neighbours holds 5; expected .* under 5"),
    (lambda: pad_scenes([]), "scenes is empty"),
    (lambda: pad_scenes([ZEROS(2, 3, 6), ZEROS(2, 3, 5)]), r"scene 1 .* \(2, 3, 5\); .* be \(agents, targets, 6\)"),
    (lambda: unpad_scenes(ZEROS(2, 3, 4, 8), ONES(2, 3, 5)), r"mask .* \(2, 3, 5\); it must have shape \(2, 3, 4\)"),
    (lambda: EntityEncoder({}), "kinds is empty; expected the width of one kind or more"),
    (lambda: EntityEncoder(KINDS, attention="dot"), "attention is 'dot'; it must be one of transformer, tanh"),
    (lambda: EntityEncoder(KINDS, num_heads=3), "num_heads is 3; it must be a divisor of the width"),
    (lambda: EntityEncoder(KINDS)({"items": ENTITIES["items"]}), "entities are of items, masks of none; expected the"),
    (lambda: EntityEncoder(KINDS)(ENTITIES, {"cats": ONES(2, 3)}), "masks of cats; expected the kinds items, keys"),
    (lambda: EntityEncoder(KINDS)(ENTITIES | {"keys": ZEROS(3, 5)}), r"keys has shape \(3, 5\); those of the other"),
    (lambda: EntityEncoder(KINDS)(ENTITIES, {"keys": -ONES(2, 3)}), r"of keys holds -1.0; expected 1 \(valid\) and 0"),
    (lambda: SelectionHead(8)(ZEROS(7), ZEROS(3, 8)), r"query has shape \(7,\); its last axis must be 8"),
    (lambda: SelectionHead(8)(ZEROS(8), ZEROS(3, 7)), r"candidates has shape \(3, 7\); expected \(..., c"),
])  # fmt: skip
def test_values_that_cannot_be_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize(("call", "says"), [
    (lambda: layer(ZEROS(3, 6), [1, 1, 1]), "mask is a list; expected a tensor"),
    (lambda: layer([[0.0] * 6]), "x is a list; expected a tensor"),
    (lambda: listed("axes", targets=ZEROS(2, 5, 7)), "targets is torch.float32; expected whole numbers"),
    (lambda: listed("axes", targets=[[0]]), "targets is a list; expected a tensor"),
    (lambda: AgentTargetEncoder(4, wieght_dim=8), r"unknown encoder option 'wieght_dim'; .* \(did you mean weight_dim"),
])  # fmt: skip
def test_types_that_cannot_be_are_refused(call, says):
    with pytest.raises(TypeError, match=says):
        call()


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
