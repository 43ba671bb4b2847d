"""Scores, attention, masks and poolings: worked numbers, equations, PyTorch's own."""

import numpy as np
import pytest
import torch

from hitmac.perception import attend, fast_paths
from hitmac.perception.functional import (
    FIXED_POOLINGS,
    POOLINGS,
    SCORES,
    Additive,
    Bilinear,
    Dot,
    ScaledDot,
    make_score,
    pool,
)
from tests.perception.numerics import LEADS, gradients, random, same


def three_inputs():
    """Worked example A: queries, keys and values of three inputs of width 4."""
    x = torch.tensor([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=torch.float64)
    keys = x @ torch.tensor([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.float64)
    queries = x @ torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=torch.float64)
    values = x @ torch.tensor([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], dtype=torch.float64)
    return queries, keys, values


def test_worked_example_unscaled():
    queries, keys, values = three_inputs()
    assert Dot()(queries, keys).tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    _, weights = attend(queries, keys, values, need_weights=True)
    rounded = torch.tensor([[0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]], dtype=torch.float64)
    np.testing.assert_allclose(rounded @ values, [[2.0, 7.0, 1.5], [2.0, 8.0, 0.0], [2.0, 7.8, 0.3]])
    assert (weights - rounded).abs().max() < 0.07


def test_worked_example_scaled():
    queries, keys, values = three_inputs()
    scores = [[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]]
    np.testing.assert_allclose(ScaledDot()(queries, keys), scores, atol=5e-5)
    output, weights = attend(queries, keys, values, score=ScaledDot(), need_weights=True)
    expected = [[0.13613, 0.43194, 0.43194], [8.9045e-04, 0.90884, 0.090267], [7.4449e-03, 0.75471, 0.23785]]
    np.testing.assert_allclose(weights, expected, rtol=5e-5)
    outputs = [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]
    np.testing.assert_allclose(output, outputs, atol=5e-5)


def test_worked_example_of_a_picture():
    """Worked example B: an 8 x 8 picture as four tokens of 16 pixels."""
    one = [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
    two = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
    tokens = torch.tensor([one, two, one, two], dtype=torch.float64)
    row, other = [1, 1, 1, 1], [1, 1.5, 1, 1.5]
    assert ScaledDot()(tokens, tokens).tolist() == [row, other, row, other]
    _, weights = attend(tokens, tokens, tokens, score=ScaledDot(), need_weights=True)
    share = np.exp(0.5) / (2 + 2 * np.exp(0.5))
    np.testing.assert_allclose(weights[:2], [[0.25] * 4, [0.5 - share, share, 0.5 - share, share]])


@pytest.mark.parametrize("lead", LEADS)
def test_scores_by_their_equations(lead):
    query, key = random(*lead, 3, 4), random(*lead, 5, 6)
    bilinear, additive = Bilinear(4, 6).double(), Additive(4, 6, 7).double()
    products = query[..., :, None, :, None] * bilinear.weight * key[..., None, :, None, :]
    torch.testing.assert_close(bilinear(query, key), products.sum((-2, -1)))
    of_query, of_key = query @ additive.query_weight.T, key @ additive.key_weight.T
    hidden = torch.tanh(of_query[..., :, None, :] + of_key[..., None, :, :])
    torch.testing.assert_close(additive(query, key), (hidden * additive.weight).sum(-1))


@pytest.mark.parametrize("score", [None, *SCORES])
@pytest.mark.parametrize(("long", "causal"), [(False, True), (True, False), (True, True)])
def test_masked_keys_may_hold_anything_and_rows_without_keys_are_zero(score, long, causal, monkeypatch):
    """With the matrix of scores and without, on both sides of the length that decides."""
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    score = None if score is None else make_score(score, 3).double()
    query, clean, values = random(2, 6, 3).requires_grad_(), random(2, 6, 3), random(2, 6, 4)
    of_keys = torch.tensor([[[True, False, True, True, False, True]], [[False] * 6]])
    by_query = of_keys & torch.tensor([True, False, True, True, True, True]).unsqueeze(-1)
    for mask in (of_keys, by_query):
        results = []
        for wrong in (0.0, torch.nan, torch.inf, -torch.inf, 1e308):
            unseen = ~mask.any(-2)[..., None]
            key, value = (x.masked_fill(unseen, wrong).requires_grad_() for x in (clean, values))
            for need_weights in (False, True):
                options = {"score": score, "mask": mask, "causal": causal, "need_weights": need_weights}
                output, weights = attend(query, key, value, **options)
                results.append((output, *gradients([output], (query, key, value))))
            assert not weights.masked_select(~mask).any()
            assert not output.masked_select(~mask.any(-1, keepdim=True)).any()
        for result in results[1:]:
            same(result, results[0])


def test_poolings_by_hand():
    tokens, mask = torch.tensor([[1.0, -4], [3, -2], [0, 0]]), torch.tensor([True, True, False])
    by_hand = {"sum": [4.0, -6], "mean": [2.0, -3], "max": [3.0, -2]}
    assert {name: pool(tokens, mask, name).tolist() for name in FIXED_POOLINGS} == by_hand
    weighted = POOLINGS["attention"](tokens, mask, torch.tensor([np.log(3) / 2, 0.0], dtype=torch.float32))
    torch.testing.assert_close(weighted, torch.tensor([2.5, -2.5]))  # weights 1/4 and 3/4


@pytest.mark.parametrize(
    ("inputs", "options", "says"),
    [
        (((2, 4, 3), (2, 4, 3), (2, 4, 3)), {"mask": torch.ones(2, 4)}, r"mask has shape \(2, 4\); it must broadcast"),
        (((4, 3), (5, 3), (5, 3)), {"causal": True}, r"as many keys \(5\) as queries \(4\)"),
        (((4, 3), (5, 3), (4, 3)), {}, r"value has shape \(4, 3\); expected \(..., 5, width\), like key"),
        (((3,), (5, 3), (5, 3)), {}, r"query has shape \(3,\)"),
        (((4, 3), (5, 2), (5, 3)), {"score": Dot()}, "requires equal widths; query has 3, key 2"),
    ],
)
def test_bad_input(inputs, options, says):
    with pytest.raises(ValueError, match=says):
        attend(*map(torch.zeros, inputs), **options)
