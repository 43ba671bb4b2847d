"""Assignments, against SciPy's."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from hitmac.agents.tracking.association import assign
from hitmac.envs.base.compile import kernel


@kernel
def assign_all(cost, column):
    for k in range(len(cost)):
        column[k] = assign(cost[k])


def test_assignments_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for size, ties in ((1, False), (5, False), (6, True)):
        cost, column = rng.normal(size=(200, size, size)), np.empty((200, size), int)
        cost = np.minimum(cost.round(1), 0.0) if ties else cost
        assign_all(cost, column)
        for one, own in zip(cost, column, strict=True):
            assert len(set(own.tolist())) == size
            assert one[np.arange(size), own].sum() == pytest.approx(one[linear_sum_assignment(one)].sum(), abs=1e-9)


def test_assignments_of_costs_without_bounds_end():
    """No column serves two rows, though some rows may have none."""
    rng = np.random.default_rng(0)
    for costs in ((-np.inf, 0.0), (np.inf, 0.0), (-np.inf, np.inf), (np.nan,), (-np.inf, -1.0, np.inf, np.nan)):
        cost, column = rng.choice(costs, (200, 5, 5)), np.empty((200, 5), int)
        assign_all(cost, column)
        served = column[:, :, None] == np.arange(5)  # (200, row, column)
        assert served.sum() == (column >= 0).sum()
        assert served.sum(1).max() <= 1
