"""Statistics of a comparison: means, interquartile means, probability of improvement, with 95 % intervals.

Scores are (S, E): S training runs (one for an untrained agent) on the same E episodes. NaN marks a missing value,
which is left out.

The point estimates are those of Agarwal and others, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (NeurIPS 2021), whose tasks are the episodes here. Their bootstrap intervals are too short for few runs.
Here runs and episodes are both samples, whose variances add up (Searle, Casella, McCulloch, "Variance
Components", 1992, chapter 4)::

    score[s, e] = mean + run[s] + episode[e] + rest[s, e]
    variance of the mean = v_runs + v_episodes - v_rest,   v_runs = variance(mean score of a run) / S, and so on
    interval = mean -+ t * sqrt(variance),   t = (v_runs t[S - 1] + v_episodes t[E - 1]) / (v_runs + v_episodes)

with the quantiles t of Student's distribution, weighted as by Cochran ("Approximate significance levels of the
Behrens-Fisher test", Biometrics 1964). Two different runs therefore have a very wide interval, since they are little
evidence of the spread of others. The interval of one run is over episodes only.

A metric between 0 and 1 has the interval of Wilson ("Probable inference", JASA 1927), which stays between them, for the
number of trials with the same variance and with the quantile t, as recommended for proportions from few, clustered
observations (Franco, Little, Louis, Slud, "Comparative Study of Confidence Intervals for Proportions in Complex Sample
Surveys", Journal of Survey Statistics and Methodology 2019)::

    (interval - mean)^2 = t^2 * variance * interval (1 - interval) / (mean (1 - mean))

Episodes that are parts of the same recording are a cluster: the recordings take the place of the episodes, each with
the sum of the deviations of its episodes from the mean.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
"""Number of samples of a bootstrap."""


def ratio(total: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return `total` / `number`, NaN where `number` is 0."""
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)


def mean_of(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean along an axis of the values other than NaN, NaN without any."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(axis), known.sum(axis))


def summary(
    scores: np.ndarray, limits: tuple[float, float] | None = None, recording: np.ndarray | None = None
) -> dict[str, Any]:
    """Summarise a metric, with 95 % intervals over both trainings and episodes.

    A single missing value is replaced by the value expected from its run and episode.

    In simulations with normal spreads (2 to 10 runs, 50 or 200 episodes, a spread of runs 0 to 0.75 times that of
    episodes), the interval contains the truth in 93 to 98.5 % of cases if an episode is equally hard for all runs, and
    in 92 to 99.7 % otherwise.

    Args:
        scores: (S, E).
        limits: lowest and highest possible score, between which the intervals stay: Wilson's, or with an infinite
            limit Student's; None: any number.
        recording: (E,) number of the recording of each episode; None: the episodes are independent.

    Returns:
        ``mean``, ``std`` (over all values, divided by their number), ``ci95`` (low and high, of the mean) and
        ``iqm`` (interquartile mean, without floor(K / 4) of K values at either end), all floats. All are None without
        any value; the interval is None with values of only one episode, or recording.
    """
    scores = np.asarray(scores, np.float64)
    known = ~np.isnan(scores)
    valued = np.flatnonzero(known.any(0))
    scores, samples = scores[known.any(1)][:, valued], valued if recording is None else recording[valued]
    if scores.size == 0:
        return dict.fromkeys(("mean", "std", "ci95", "iqm"))
    values = scores[~np.isnan(scores)]  # (K,)
    drop = values.size // 4
    mean, iqm = values.mean(), np.sort(values)[drop : values.size - drop].mean()
    interval = None
    if len(np.unique(samples)) > 1:
        spread = _spread(_clustered(_filled(scores), samples), 2)
        interval = np.stack(_interval(mean, *spread, limits)).tolist()
    return {"mean": float(mean), "std": float(values.std()), "ci95": interval, "iqm": float(iqm)}


def probability_of_improvement(
    x: np.ndarray, y: np.ndarray, recording: np.ndarray | None = None
) -> tuple[float, float, float] | tuple[float, None, None] | tuple[None, None, None]:
    """Estimate the probability that a run of X beats a run of Y, the mean over episodes of P(X > Y) + P(X = Y) / 2.

    P is over all pairs of a run of X (S, E) and a run of Y (T, E) with values. The result is the probability and the
    ends of its 95 % interval; all three are None without any pair, the ends are None with pairs in only one episode, or
    recording.

    The interval is Wilson's, with the variance estimated as in :func:`summary` from the runs of X, the runs of Y and
    the episodes. In the simulations of :func:`summary` it contains the truth in at least 93 % of cases, if the spread
    of runs is at most half the spread of scores that the episode does not explain. With a larger spread of runs it can
    be much too short (57 % at worst) if few runs win almost every comparison. If one agent wins all comparisons, it is
    over episodes only.
    """
    better = wins(x, y)
    known = ~np.isnan(better)  # (S, T, E)
    if not known.any():
        return None, None, None
    valued = np.flatnonzero(known.any((0, 1)))
    better = better[known.any((1, 2))][:, known.any((0, 2))][:, :, valued]
    samples = valued if recording is None else recording[valued]
    p, number = float(np.nanmean(better, (0, 1)).mean()), len(np.unique(samples))
    if number < 2:
        return p, None, None
    if p in (0, 1):  # Wilson's interval for as many trials as samples, since no variance is seen
        width = 1 / (1 + number / float(_t_quantile(number - 1)) ** 2)
        return (p, 0.0, width) if p == 0 else (p, 1 - width, 1.0)
    low, high = _interval(p, *_spread(_clustered(_filled(better), samples), 3), (0.0, 1.0))
    return p, float(low), float(high)


def wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for every run of X (S, E), run of Y (T, E) and episode 1 if X is higher, 0.5 if equal, 0; (S, T, E)."""
    return np.where(np.isnan(x)[:, None] | np.isnan(y), np.nan, (x[:, None] > y) + 0.5 * (x[:, None] == y))


def over_scenes(
    scores: Sequence[np.ndarray], recordings: Sequence[np.ndarray | None], trimmed: float = 0.25
) -> tuple[float, float, float]:
    """Return the interquartile mean over K scenes, and the ends of its 95 % interval.

    It is the mean of the K S values, each the mean score of a run in a scene, without floor(`trimmed` K S) of them at
    either end; of comparisons, S is the number of pairs of runs. The interval is that of the stratified bootstrap of
    Agarwal and others, percentiles of 2000 samples, in which runs, and in each scene its episodes or recordings, are
    drawn with replacement; that of one run is over episodes only.

    Args:
        scores: (S, E) of each scene, or (S, T, E) of :func:`wins`, with the same S and T and any E; NaN marks a missing
            value.
        recordings: (E,) number of the recording of each episode, for each scene; None: the episodes are independent.
        trimmed: share of the values that are left out at either end; 0: the mean.
    """
    from scipy.stats import trim_mean  # here, since its import takes a second

    generator = np.random.default_rng(0)
    runs = [generator.integers(0, number, (RESAMPLES + 1, number)) for number in scores[0].shape[:-1]]
    for one in runs:
        one[0] = range(one.shape[1])  # the first sample is all values once
    means = []
    for values, recording in zip(scores, recordings, strict=True):
        samples = np.unique(np.arange(values.shape[-1]) if recording is None else recording, return_inverse=True)[1]
        clusters = samples[:, None] == range(samples.max() + 1)  # (E, G)
        known = ~np.isnan(values)
        drawn = generator.integers(0, clusters.shape[1], (RESAMPLES + 1, clusters.shape[1]))
        drawn[0] = range(clusters.shape[1])
        times = clusters @ np.stack([np.bincount(one, minlength=clusters.shape[1]) for one in drawn], 1)  # (E, samples)
        mean = np.moveaxis(ratio(np.where(known, values, 0.0) @ times, known @ times), -1, 0)
        for axis, one in enumerate(runs, 1):
            mean = np.take_along_axis(mean, np.expand_dims(one, tuple({*range(1, mean.ndim)} - {axis})), axis)
        means.append(mean.reshape(len(mean), -1))
    middles = trim_mean(np.concatenate(means, 1), trimmed, axis=1)
    low, high = np.quantile(middles[1:], (0.025, 0.975))
    return float(middles[0]), float(low), float(high)


def _t_quantile(freedom: Any) -> Any:
    """Return the 0.975 quantiles of Student's distributions."""
    from scipy.special import stdtrit  # here, since its import takes half a second

    return stdtrit(freedom, 0.975)


def _interval(middle: Any, variance: Any, t: Any, limits: tuple[float, float] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends (...) of the intervals of estimates `middle` (...), which stay within the limits.

    The intervals are Wilson's, with an infinite limit Student's, cut off.
    """
    lowest, highest = limits or (-math.inf, math.inf)
    span = highest - lowest
    if not math.isfinite(span):
        half = t * np.sqrt(variance)
        return np.clip(middle - half, lowest, highest), np.clip(middle + half, lowest, highest)
    p = np.clip((middle - lowest) / span, 0.0, 1.0)
    k = np.nan_to_num(ratio(np.asarray(t**2 * variance / span**2), np.asarray(p * (1 - p))))  # t^2 / number of trials
    centre, half = p + k / 2, np.sqrt(k * p * (1 - p) + k**2 / 4)
    low, high = (lowest + span * np.clip(end / (1 + k), 0.0, 1.0) for end in (centre - half, centre + half))
    return low, high


def _clustered(values: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return a value (..., G) for each of the G different numbers in `samples` (E,), of values (..., E)."""
    numbers = np.unique(samples)
    if len(numbers) == values.shape[-1]:
        return values
    middle = values.mean()
    sums = [(values[..., samples == number] - middle).sum(-1) for number in numbers]
    return middle + np.stack(sums, -1) * (len(numbers) / values.shape[-1])


def _spread(values: np.ndarray, crossed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance (...) of the mean over the last `crossed` axes, and the quantile t of its interval.

    The levels of each of these axes are a sample; a single level shows no variance. Let v[u] be the estimated variance
    of the mean due to the effects of the axes u: the marginal means along u without the effects of fewer axes. The
    variance is the sum of v over single axes, less that over pairs, plus that over triples, and at least the largest v
    of a single axis, since the sum may be too small by chance.
    """
    axes = [axis for axis in range(-crossed, 0) if values.shape[axis] > 1]
    all_axes = set(range(-crossed, 0))
    single, variance = [], np.zeros(values.shape[:-crossed])
    for number in range(1, len(axes) + 1):
        for chosen in itertools.combinations(axes, number):
            effect = values.mean(tuple(all_axes - set(chosen)), keepdims=True)
            for axis in chosen:
                effect = effect - effect.mean(axis, keepdims=True)
            levels = math.prod(values.shape[axis] * (values.shape[axis] - 1) for axis in chosen)
            seen = (effect**2).sum(tuple(all_axes)) / levels
            variance = variance - (-1) ** number * seen
            if number == 1:
                single.append(seen)
    if not axes:
        return variance, variance
    shown, t = np.stack(single), _t_quantile([values.shape[axis] - 1 for axis in axes])
    total = shown.sum(0)
    weighted = np.divide(np.tensordot(t, shown, 1), total, out=np.zeros_like(total), where=total > 0)
    return np.maximum(variance, shown.max(0)), weighted


def _filled(values: np.ndarray) -> np.ndarray:
    """Replace NaN by the sum of the effects of each axis, estimated from the other values."""
    if not np.isnan(values).any():
        return values
    expected = np.full(values.shape, middle := np.nanmean(values))
    for axis in range(values.ndim):
        others = tuple(set(range(values.ndim)) - {axis})
        expected += np.nanmean(values, others, keepdims=True) - middle
    return np.where(np.isnan(values), expected, values)
