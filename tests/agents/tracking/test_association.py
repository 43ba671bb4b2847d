"""Assignments, against SciPy's."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from hitmac.agents.tracking.association import _assign_some, assign
from hitmac.envs.base.compile import kernel


def test_assignments_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for size, ties in ((1, False), (5, False), (6, True)):
        cost = rng.normal(size=(200, size, size))
        for one in np.minimum(cost.round(1), 0.0) if ties else cost:
            own = assign.py_func(one)
            assert len(set(own.tolist())) == size
            assert one[np.arange(size), own].sum() == pytest.approx(one[linear_sum_assignment(one)].sum(), abs=1e-9)


@kernel
def assign_some(cost, column):
    column[:] = _assign_some(cost, cost.shape[0], cost.shape[1])


@pytest.mark.parametrize(("detections", "tracks", "within"), [(1, 1, 1.0), (3, 6, 0.5), (40, 5, 0.9), (5000, 8, 0.3)])
def test_of_many_detections_those_near_a_track_are_assigned_as_in_the_whole_matrix(detections, tracks, within):
    """With a cost of 0 for none, also where thousands are near every track."""
    rng = np.random.default_rng(detections)
    cost = -rng.random((detections, tracks)) * (rng.random((detections, tracks)) < within)
    column = np.empty(detections, int)
    assign_some(cost, column)
    rows, best = linear_sum_assignment(cost)
    expected = {(d, j) for d, j in zip(rows.tolist(), best.tolist(), strict=True) if cost[d, j] < 0.0}
    assert {(d, j) for d, j in enumerate(column.tolist()) if j >= 0} == expected


def test_assignments_of_costs_without_bounds_end():
    """No column serves two rows, though some rows may have none."""
    rng = np.random.default_rng(0)
    for costs in ((-np.inf, 0.0), (np.inf, 0.0), (-np.inf, np.inf), (np.nan,), (-np.inf, -1.0, np.inf, np.nan)):
        with np.errstate(invalid="ignore"):
            column = np.array([assign.py_func(cost) for cost in rng.choice(costs, (200, 5, 5))])
        served = column[:, :, None] == np.arange(5)  # (200, row, column)
        assert served.sum() == (column >= 0).sum()
        assert served.sum(1).max() <= 1
