"""Assignments, against SciPy's."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from hitmac.agents.tracking.association import assign
from hitmac.envs.kernels.threads import kernel


@kernel
def assign_all(cost, column):
    for k in range(len(cost)):
        assign(cost[k], cost.shape[1], cost.shape[2], column[k])


def test_assignments_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for rows, columns, ties in ((1, 1, False), (1, 4, False), (5, 5, False), (4, 7, False), (6, 6, True)):
        cost = rng.normal(size=(200, rows, columns))
        cost = np.minimum(cost.round(1), 0.0) if ties else cost
        column = np.full((200, rows), -1)
        assign_all(cost, column)
        for one, own in zip(cost, column, strict=True):
            assert len(set(own.tolist())) == rows
            assert one[np.arange(rows), own].sum() == pytest.approx(one[linear_sum_assignment(one)].sum(), abs=1e-9)
