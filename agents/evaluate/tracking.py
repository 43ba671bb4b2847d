"""Metrics of tracking against the truth: GOSPA with its parts, and identity switches.

Points are (..., m, 2) and (..., k, 2) in units of length, with any leading axes; a point at NaN is absent.
"""

from typing import NamedTuple

import numpy as np

from hitmac.agents.evaluate.statistics import ratio
from hitmac.envs.scenario import Scenario


class Gospa(NamedTuple):
    """GOSPA and its parts (...,); ``total ** p`` is the sum of the parts."""

    total: np.ndarray
    """In units of length."""
    localisation: np.ndarray
    """Sum of the distances of assigned points, to the power p."""
    missed: np.ndarray
    """c^p / 2 for every point of the truth without an estimate."""
    false: np.ndarray
    """c^p / 2 for every estimate without a point of the truth."""


def gospa(truth: np.ndarray, estimate: np.ndarray, c: float, p: float = 2.0) -> Gospa:
    """Return the generalised optimal sub-pattern assignment metric with alpha = 2.

    ::

        GOSPA = min over assignments g of (sum over (i, j) in g of d(x_i, y_j)^p + c^p / 2 (m + k - 2 |g|))^(1 / p)

    Source: Rahmathullah, Garcia-Fernandez, Svensson, "Generalized optimal sub-pattern assignment metric" (FUSION 2017),
    definition 1 and proposition 1.

    Args:
        truth: (..., m, 2).
        estimate: (..., k, 2).
        c: distance from which on two points are not assigned to each other, over 0.
        p: power of distances, 1 or more; a higher one weighs outliers more.

    Raises ``ValueError`` for `c` or `p` out of range.
    """
    if not c > 0.0 or not p >= 1.0:
        raise ValueError(f"c is {c} and p is {p}; c must be over 0, and p 1 or more")
    near = _distances(truth, estimate, c)
    own = _chosen(near, _assignment(near**p), c)
    pairs, half = (own < c).sum(-1), 0.5 * c**p
    localisation = np.where(own < c, own**p, 0.0).sum(-1)
    missed, false = (half * (_number(points) - pairs) for points in (truth, estimate))
    return Gospa((localisation + missed + false) ** (1.0 / p), localisation, missed, false)


def identity_switches(
    truth: np.ndarray, estimate: np.ndarray, identity: np.ndarray, last: np.ndarray, c: float
) -> tuple[np.ndarray, np.ndarray]:
    """Count targets that are now tracked under another identity than before, as in CLEAR MOT.

    A target keeps the estimate of its last identity if that is nearer than `c`; the others are assigned so that the sum
    of the distances is least. Source: Bernardin, Stiefelhagen, "Evaluating multiple object tracking performance: the
    CLEAR MOT metrics" (EURASIP Journal on Image and Video Processing 2008).

    Args:
        truth: (..., m, 2) targets, the same one in every call at the same index.
        estimate: (..., k, 2).
        identity: (..., k) whole numbers, 0 or more, of the estimates.
        last: (..., m) last identity of each target, -1 before it is first tracked.
        c: distance from which on an estimate is not that of a target.

    Returns the number of switches (...,), and the new `last`.
    """
    near = _distances(truth, estimate, c)
    kept = (identity[..., None, :] == last[..., None]) & (near < c)
    match = _assignment(near - kept * c * (near.shape[-2] + 1))  # a kept pair outweighs all distances
    tracked = _chosen(near, match, c) < c
    now = np.where(tracked, _chosen(np.broadcast_to(identity[..., None, :], near.shape), match, -1), last)
    return (tracked & (last >= 0) & (now != last)).sum(-1), now


class Tracking:
    """Metrics of tracks in B episodes, means over their rows of knowledge; see :func:`hitmac.agents.evaluate.evaluate`.

    `c` is a tenth of the mean sensing range.
    """

    def __init__(self, scenario: Scenario, num_envs: int) -> None:
        self.c = 0.1 * float(scenario.of_each_sensor("sensing_range").mean())
        self._sums = np.zeros((6, num_envs))  # gospa, squared distances, pairs, missed, false, switches
        self._last, self._steps = np.array(-1), 0

    def add(self, truth: np.ndarray, places: np.ndarray, identity: np.ndarray) -> None:
        """Add a step: the targets (B, m, 2), and the tracks (B, g, k, 2) with their identities (B, g, k)."""
        truth = np.repeat(truth[:, None], places.shape[1], 1)  # (B, g, m, 2)
        total, squared, missed, false = gospa(truth, places, self.c)
        last = np.broadcast_to(self._last, truth.shape[:3])
        switches, self._last = identity_switches(truth, places, identity, last, self.c)
        half = 0.5 * self.c**2
        pairs = _number(places) - false / half
        for row, values in enumerate((total, squared, pairs, missed / half, false / half, switches)):
            self._sums[row] += values.mean(1)
        self._steps += 1

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the metrics (B,) by name."""
        total, squared, pairs, missed, false, switches = self._sums
        means = {"gospa": total, "missed": missed, "false": false}
        return {name: array / self._steps for name, array in means.items()} | {
            "localisation": np.sqrt(ratio(squared, pairs)),
            "switches": switches,
        }


def _number(points: np.ndarray) -> np.ndarray:
    """Return the number of points (...,) that are present."""
    return (~np.isnan(points).any(-1)).sum(-1)


def _distances(truth: np.ndarray, estimate: np.ndarray, c: float) -> np.ndarray:
    """Return the distances (..., m, k), at most c, and c from absent points."""
    distance = np.linalg.norm(truth[..., :, None, :] - estimate[..., None, :, :], axis=-1)
    return np.fmin(distance, c)


def _assignment(cost: np.ndarray) -> np.ndarray:
    """Return the column (..., m) assigned to each row at the least sum of the costs (..., m, k), -1 for none."""
    from scipy.optimize import linear_sum_assignment  # here, since its import takes half a second

    match = np.full(cost.shape[:-1], -1)
    for scene in np.ndindex(cost.shape[:-2]):
        rows, columns = linear_sum_assignment(cost[scene])
        match[(*scene, rows)] = columns
    return match


def _chosen(values: np.ndarray, match: np.ndarray, missing: float) -> np.ndarray:
    """Return the value (..., m) of each row in its column, `missing` without one."""
    padded = np.concatenate((values, np.full((*values.shape[:-1], 1), missing, values.dtype)), -1)
    return np.take_along_axis(padded, match[..., None], -1)[..., 0]
