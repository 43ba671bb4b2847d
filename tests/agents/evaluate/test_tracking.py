"""GOSPA against its definition, and identity switches by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitmac.agents.evaluate.tracking import gospa, identity_switches

C = 3.0
points = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), max_size=4).map(
    lambda rows: np.array(rows, float).reshape(-1, 2)
)
powers = st.sampled_from([1.0, 2.0, 3.5])


def defined(truth, estimate, p):
    """The definition: the least over all assignments, also partial ones."""
    totals = []
    for size in range(min(len(truth), len(estimate)) + 1):
        for rows in itertools.combinations(range(len(truth)), size):
            for columns in itertools.permutations(range(len(estimate)), size):
                apart = np.linalg.norm(truth[list(rows)] - estimate[list(columns)], axis=1)
                totals.append((apart**p).sum() + C**p / 2 * (len(truth) + len(estimate) - 2 * size))
    return min(totals) ** (1 / p)


@given(points, points, powers)
def test_gospa_is_the_least_over_all_assignments_and_the_sum_of_its_parts(truth, estimate, p):
    total, *parts = gospa(truth, estimate, C, p)
    assert total == pytest.approx(defined(truth, estimate, p), abs=1e-9)
    assert sum(parts) == pytest.approx(total**p, abs=1e-9)
    missed, false = (2 * part / C**p for part in parts[1:])
    assert len(truth) - missed == pytest.approx(len(estimate) - false)  # the assigned ones


def test_a_batch_is_its_scenes_with_absent_points():
    rng = np.random.default_rng(0)
    truth, estimate = rng.uniform(-4, 4, (2, 50, 4, 2)), rng.uniform(-4, 4, (2, 50, 6, 2))
    truth[rng.random((2, 50, 4)) < 0.3] = np.nan
    estimate[rng.random((2, 50, 6)) < 0.3] = np.nan
    together = gospa(truth, estimate, C)
    for scene in np.ndindex(2, 50):
        alone = gospa(*(array[scene][~np.isnan(array[scene]).any(-1)] for array in (truth, estimate)), C)
        np.testing.assert_allclose([part[scene] for part in together], alone, rtol=1e-12)


@pytest.mark.parametrize(("c", "p"), [(0.0, 2.0), (1.0, 0.9)])
def test_a_cutoff_or_power_out_of_range_is_refused(c, p):
    with pytest.raises(ValueError, match=rf"c is {c} and p is {p}; c must be over 0, and p 1 or more"):
        gospa(np.zeros((1, 2)), np.zeros((1, 2)), c, p)


@pytest.mark.parametrize(
    ("estimates", "identities", "switches"),
    [
        ([[0, 5], [0, 5]], [[7, 8], [7, 8]], [0, 0]),
        ([[0, 5], [5, 0]], [[7, 8], [8, 7]], [0, 0]),  # the order of tracks is none of their names
        ([[0, 5], [0, 5]], [[7, 8], [8, 7]], [0, 2]),
        ([[0, 5], [np.nan, 5], [0, 5]], [[7, 8], [9, 8], [9, 8]], [0, 0, 1]),  # lost, and found as another
        ([[0, 5], [9, 5], [0, 5]], [[7, 8], [7, 8], [7, 8]], [0, 0, 0]),  # too far for a while
        ([[0, 5], [2.9, 5, 0]], [[7, 8], [7, 8, 9]], [0, 0]),  # its own track, not the nearest
        ([[0, 5], [3, 5, 0]], [[7, 8], [7, 8, 9]], [0, 1]),  # as far as c
        ([[0], [0, 5]], [[0], [0, 1]], [0, 0]),  # the first track is no switch
        ([[0, 5], [0, 5], [0, 5]], [[7, 8], [9, 8], [7, 8]], [0, 1, 1]),
    ],
)
def test_identity_switches_by_hand(estimates, identities, switches):
    truth = np.array([(0.0, 0.0), (5.0, 0.0)])
    both = np.full((2, 2), -1)  # two equal scenes
    counts = []
    for places, identity in zip(estimates, identities, strict=True):
        rows = np.stack([places, np.zeros(len(places))], -1)
        number, both = identity_switches(truth, np.stack([rows] * 2), np.stack([identity] * 2), both, C)
        assert number[0] == number[1]
        counts.append(number[0])
    assert counts == switches
