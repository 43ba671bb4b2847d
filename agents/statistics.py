"""How sure a comparison is: interquartile means, bootstrap intervals, the probability of improvement.

Scores are (S, E): S runs of training (one for an agent that does not learn), all on the same E episodes. NaN says
that there is no value, and is left out.

Source: Agarwal and others, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021),
whose tasks are the episodes here. It draws runs within tasks that stay as they are; here the episodes are a sample
too, so they are drawn as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

_CHUNK = 2**19  # numbers in the largest array of a chunk of resamples, so that it stays in the cache


def interquartile_mean(scores: np.ndarray, axis: int | tuple[int, ...] | None = None) -> np.ndarray:
    """The mean of the middle half.

    Of k values, floor(k / 4) are dropped at either end, as a mean trimmed by 25 % on both sides does; fewer than
    four are all kept.

    Args:
        scores: of any shape; NaN is left out, so k may differ along the axes that remain.
        axis: which axes the mean is over; None: all of them.

    Returns:
        The shape of the scores without these axes; NaN where no value is known.
    """
    scores = np.asarray(scores, np.float64)
    axes = tuple(range(scores.ndim)) if axis is None else tuple(np.atleast_1d(axis))
    moved = np.moveaxis(scores, axes, range(-len(axes), 0))
    remain = scores.ndim - len(axes)
    ordered = np.sort(moved.reshape(*moved.shape[:remain], math.prod(moved.shape[remain:])), -1)  # NaN comes last
    known = (~np.isnan(ordered)).sum(-1, keepdims=True)
    place = np.arange(ordered.shape[-1])
    middle = (place >= known // 4) & (place < known - known // 4)
    return _ratio(np.where(middle, ordered, 0.0).sum(-1), middle.sum(-1))


def summary(scores: np.ndarray, resamples: int = 10_000) -> dict[str, Any]:
    """What a metric comes to, with 95 % intervals for chance in both the training and the episodes.

    The intervals are percentile bootstraps. A resample draws S runs and E episodes with replacement, the same
    episodes for all its runs, since these ran on the same. With one run that is the plain bootstrap over the episodes.
    Episodes are drawn by ``default_rng(0)``, so that they are the same for every agent with as many. Runs and
    episodes without any value are left out before anything is drawn.

    With few runs the interval is rather too short: a bootstrap sees but (S - 1) / S of the variance between runs.

    Args:
        scores: (S, E).
        resamples: how many.

    Returns:
        ``mean``, ``std`` (of all values, divided by their number), ``ci95`` (low and high, of the mean), ``iqm``
        (:func:`interquartile_mean`) and ``iqm_ci95``: floats, and None where no value is known.

    Raises:
        ValueError: other shapes, infinite values, or no resample.
    """
    scores = _checked("scores", scores, resamples)
    known = ~np.isnan(scores)
    scores = scores[known.any(1)][:, known.any(0)]
    if scores.size == 0:
        return {"mean": None, "std": None, "ci95": None, "iqm": None, "iqm_ci95": None}
    values = scores[~np.isnan(scores)]  # (K,)
    means, iqms = _resampled_means(scores, resamples)
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "ci95": _interval(means),
        "iqm": float(interquartile_mean(scores)),
        "iqm_ci95": _interval(iqms),
    }


def probability_of_improvement(
    x: np.ndarray, y: np.ndarray, resamples: int = 2_000
) -> tuple[float, float, float] | tuple[None, None, None]:
    """How likely a run of X is to do better than one of Y: the mean over episodes of P(X > Y) + P(X = Y) / 2.

    P is over all pairs of a run of X and one of Y, of which both have a value. The interval is the bootstrap of
    :func:`summary`; the runs of X and of Y are drawn each on their own, the episodes for both together.

    Args:
        x: (S, E).
        y: (T, E), on the same episodes.
        resamples: how many.

    Returns:
        The probability and its 95 % interval, low and high; thrice None if no episode has a pair.

    Raises:
        ValueError: other shapes, different numbers of episodes, infinite values, or no resample.
    """
    x, y = _checked("x", x, resamples), _checked("y", y, resamples)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x has {x.shape[1]} episodes and y {y.shape[1]}; they must be the same")
    paired = ~np.isnan(x)[:, None] & ~np.isnan(y)  # (S, T, E)
    runs_x, runs_y, episodes = paired.any((1, 2)), paired.any((0, 2)), paired.any((0, 1))
    if not paired.any():
        return None, None, None
    x, y = x[runs_x][:, episodes], y[runs_y][:, episodes]
    paired = paired[runs_x][:, runs_y][:, :, episodes]
    better = np.where(paired, (x[:, None] > y) + 0.5 * (x[:, None] == y), 0.0)
    s, t, e = paired.shape
    drawn = []
    for of_episodes, of_x, of_y in _draws(resamples, max(e, s * t), e, s, t):
        pairs = (of_x[:, :, None] * of_y[:, None]).reshape(-1, s * t)  # (R, S * T)
        number = pairs @ paired.reshape(s * t, e).astype(np.float64)  # (R, E)
        share = _ratio(pairs @ better.reshape(s * t, e), number)
        drawn.append(
            _ratio(np.where(number > 0, of_episodes * share, 0.0).sum(-1), (of_episodes * (number > 0)).sum(-1))
        )
    low, high = _interval(np.concatenate(drawn))
    return float((better.sum((0, 1)) / paired.sum((0, 1))).mean()), low, high


def _resampled_means(scores: np.ndarray, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and interquartile mean (resamples,) of every resample of the scores (S, E).

    A resample is how often each value was drawn. The values are sorted once, and cumulated counts then say which
    of them lie in the middle half: no resample is sorted.
    """
    run, episode = np.nonzero(~np.isnan(scores))  # (K,)
    order = np.argsort(scores[run, episode])
    run, episode = run[order], episode[order]
    values = scores[run, episode]
    means, iqms = [], []
    for of_episodes, of_runs in _draws(resamples, len(values), scores.shape[1], scores.shape[0]):
        counts = of_episodes[:, episode] * of_runs[:, run]  # (R, K)
        up_to = counts.cumsum(-1)
        number = up_to[:, -1:]
        drop = np.floor(number / 4)
        middle = np.diff(up_to.clip(drop, number - drop), axis=-1, prepend=drop)
        means.append(_ratio((counts * values).sum(-1), number[:, 0]))
        iqms.append(_ratio((middle * values).sum(-1), (number - 2 * drop)[:, 0]))
    return np.concatenate(means), np.concatenate(iqms)


def _draws(resamples: int, width: int, *sizes: int) -> Iterator[list[np.ndarray]]:
    """In chunks of R resamples: for every size, how often each of so many was drawn, float64 (R, size).

    Each size has its own generator, so that what is drawn for one does not depend on the others.
    """
    generators = [np.random.default_rng(seed) for seed in range(len(sizes))]
    rows = max(1, _CHUNK // width)
    for first in range(0, resamples, rows):
        chunk = min(rows, resamples - first)
        counts = []
        for generator, size in zip(generators, sizes, strict=True):
            picks = generator.integers(0, size, (chunk, size)) + size * np.arange(chunk)[:, None]
            counts.append(np.bincount(picks.ravel(), minlength=chunk * size).reshape(chunk, size).astype(np.float64))
        yield counts


def _interval(drawn: np.ndarray) -> list[float]:
    """The middle 95 % of what the resamples gave; those without a value are left out."""
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return [float(low), float(high)]


def _ratio(total: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Total / number, NaN where there are none."""
    return np.divide(total, number, out=np.full(np.shape(total), np.nan), where=number > 0)


def _checked(name: str, scores: np.ndarray, resamples: int) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2:
        raise ValueError(f"{name} have shape {scores.shape}; they must be (runs, episodes)")
    if np.isinf(scores).any():
        raise ValueError(f"{name} have infinite values; they must be finite, or NaN for no value")
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; it must be 1 or more")
    return scores
