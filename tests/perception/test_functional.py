"""Scores, attention, masks and poolings: equations, PyTorch's own."""

import pytest
import torch

from hitmac.perception import attend, fast_paths, functional
from tests.perception.numerics import LEADS, gradients, random, same


@pytest.mark.parametrize("lead", LEADS)
def test_scores_by_their_equations(lead):
    query, key = random(*lead, 3, 4), random(*lead, 5, 6)
    bilinear, additive = functional.Bilinear(4, 6).double(), functional.Additive(4, 6, 7).double()
    products = query[..., :, None, :, None] * bilinear.weight * key[..., None, :, None, :]
    torch.testing.assert_close(bilinear(query, key), products.sum((-2, -1)))
    of_query, of_key = query @ additive.query_weight.T, key @ additive.key_weight.T
    hidden = torch.tanh(of_query[..., :, None, :] + of_key[..., None, :, :])
    torch.testing.assert_close(additive(query, key), (hidden * additive.weight).sum(-1))


@pytest.mark.parametrize("score", [None, *functional.SCORES])
@pytest.mark.parametrize(("long", "causal"), [(False, True), (True, False), (True, True)])
def test_masked_keys_may_hold_anything_and_rows_without_keys_are_zero(score, long, causal, monkeypatch):
    """With the matrix of scores and without, on both sides of the length that decides."""
    monkeypatch.setattr(fast_paths, "_LONG_FROM", 1 if long else 10**9)
    score = None if score is None else functional.make_score(score, 3).double()
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


@pytest.mark.parametrize("pooling", functional.FIXED_POOLINGS)
def test_autocast_pools_in_the_precision_of_the_tokens(pooling):
    x = torch.full((2, 9, 3), 3e4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(functional.pool(x, None, pooling), functional.pool(x.detach(), None, pooling))
