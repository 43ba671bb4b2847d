"""Interquartile means, intervals and the probability of improvement, by hand and in simulations."""

import numpy as np
import pytest
import scipy.stats

from hitmac.agents.evaluate.statistics import (
    _interval,
    _spread,
    over_scenes,
    probability_of_improvement,
    summary,
    wins,
)
from tests.agents.evaluate.made import NOTHING

NAN = np.nan


def scores(runs=3, episodes=40, seed=5):
    return np.random.default_rng(seed).normal(0.7, 0.1, (runs, episodes))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 4.5),  # 3 4 5 6
        ([7, 6, 1, 2, 3, 4, 5], 4),  # floor(7 / 4) = 1 at either end: 2 3 4 5 6
        ([1, 2, 9], 4),  # all three
        ([[1, 2, 3, 4, 5, 6, 7, 80], [NAN, 4, NAN, 3, 2, 1, NAN, NAN]], (2 + 3 + 3 + 4 + 4 + 5) / 6),
    ],
)
def test_means_by_hand(values, expected):
    found = summary(np.atleast_2d(np.array(values, float)))
    assert found["iqm"] == pytest.approx(expected)
    assert found["mean"] == pytest.approx(np.nanmean(values))  # all values count alike
    assert found["std"] == pytest.approx(np.nanstd(values))


def test_one_run_has_students_interval_over_its_episodes_and_a_share_wilsons():
    values = scores(1)
    found = summary(values)
    half = scipy.stats.t.ppf(0.975, 39) * values.std(ddof=1) / np.sqrt(40)
    assert found["ci95"] == pytest.approx([values.mean() - half, values.mean() + half])
    p = values.mean()
    for end in summary(values, (0.0, 1.0))["ci95"]:
        assert (end - p) ** 2 == pytest.approx(half**2 * end * (1 - end) / (p * (1 - p)))
    wide = summary(3 * values - 1, (-1.0, 2.0))["ci95"]
    assert wide == pytest.approx([3 * end - 1 for end in summary(values, (0.0, 1.0))["ci95"]])


def test_the_variance_of_the_mean_by_hand():
    """Two runs on three episodes: the mean squares of the analysis of variance with two crossed effects."""
    values = np.array([[1.0, 4, 4], [3, 4, 8]])
    of_runs, of_episodes = 3 * 2.0, 2 * 4.0  # 3 * variance of (3, 5), 2 * variance of (2, 4, 6)
    rest = 2.0  # of -0, 1, -1 and their opposites: 4 / (1 * 2)
    t = (of_runs * scipy.stats.t.ppf(0.975, 1) + of_episodes * scipy.stats.t.ppf(0.975, 2)) / (of_runs + of_episodes)
    half = t * np.sqrt((of_runs + of_episodes - rest) / 6)
    assert summary(values)["ci95"] == pytest.approx([4 - half, 4 + half])


@pytest.mark.parametrize(("runs", "episodes", "of_rest"), [(2, 200, 0), (2, 50, 0.028), (5, 50, 0.028), (10, 50, 0)])
def test_the_intervals_contain_the_truth(runs, episodes, of_rest):
    of_episodes, least, most = (0.028, 0.92, 0.998) if of_rest else (0.04, 0.93, 0.985)
    rng = np.random.default_rng(3)
    shapes = (800, runs, 1), (800, 1, episodes), (800, runs, episodes)
    run, episode, rest = (rng.normal(size=shape) for shape in shapes)
    for of_runs in (0.0, 0.003, 0.01, 0.03):
        values = of_runs * run + of_episodes * episode + of_rest * rest  # the truth is 0
        low, high = _interval(values.mean((1, 2)), *_spread(values, 2), None)
        assert least <= ((low <= 0) & (high >= 0)).mean() <= most


@pytest.mark.parametrize("episodes", [2, 5, 50])
def test_the_intervals_of_shares_contain_the_truth_and_stay_within_their_range(episodes):
    values = np.random.default_rng(1).beta(0.85 * 20, 0.15 * 20, (4000, 1, episodes))
    low, high = _interval(values.mean((1, 2)), *_spread(values, 2), (0.0, 1.0))
    assert 0.93 <= ((low <= 0.85) & (high >= 0.85)).mean() <= 0.97
    assert ((low >= 0) & (high <= 1)).all()


@pytest.mark.parametrize(("limits", "values"), [((0.0, np.inf), [0.1, 3.0]), ((-1.01, 1.0), [0.47, 0.0])])
def test_two_episodes_have_no_interval_beyond_the_possible(limits, values):
    found = summary(np.array([values]), limits)
    low, high = found["ci95"]
    assert limits[0] <= low < found["mean"] < high <= limits[1]


def test_parts_of_a_recording_are_one_sample():
    x, y, files = scores(3, 8), scores(2, 8, seed=6), np.arange(8)
    thrice, parts = np.repeat(files, 3), np.random.default_rng(0).permutation(24)
    found, expected = summary(x[:, thrice[parts]], None, thrice[parts]), summary(x)
    assert found["ci95"] == pytest.approx(expected["ci95"])
    better = probability_of_improvement(x[:, thrice[parts]], y[:, thrice[parts]], thrice[parts])
    assert better == pytest.approx(probability_of_improvement(x, y))
    uneven = summary(np.array([[1.0, 2, 3, 7]]), None, np.array([5, 5, 5, 0]))  # deviations -3.75 and 3.75
    assert uneven["ci95"] == pytest.approx([3.25 - 12.7062 * 1.875, 3.25 + 12.7062 * 1.875])
    alone = np.zeros(8, int)
    assert summary(x, None, alone) == summary(x) | {"ci95": None}
    assert probability_of_improvement(x, y, alone)[1:] == (None, None)


def test_missing_values_are_left_out_and_one_episode_has_no_interval():
    values = scores(2, 6)
    holes = np.full((4, 9), NAN)
    holes[np.ix_([1, 3], [0, 2, 3, 5, 6, 8])] = values
    assert summary(holes) == summary(values)
    assert summary(np.full((2, 3), NAN)) == NOTHING
    values = scores(2, 30)
    values[1, 4] = NAN  # a single hole hardly matters
    assert summary(values)["ci95"] == pytest.approx(summary(scores(2, 30))["ci95"], abs=0.02)
    one = {"mean": 0.25, "std": 0, "ci95": None, "iqm": 0.25}
    assert summary(np.array([[0.25], [0.25]])) == one
    assert probability_of_improvement(np.ones((2, 1)), np.zeros((1, 1))) == (1, None, None)
    for limits in (None, (0.0, 1.0), (0.0, 0.25)):
        assert summary(np.full((2, 2), 0.25), limits) == one | {"ci95": [0.25, 0.25]}


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([[1]], [[1]], 1 / 2),
        ([[1], [2], [3]], [[2], [0]], (0 + 1 + 0.5 + 1 + 1 + 1) / 6),
        ([[1, 9], [2, 9]], [[0, 9], [2, 10]], ((1 + 0 + 1 + 0.5) / 4 + (0.5 + 0 + 0.5 + 0) / 4) / 2),
        ([[1, 0], [NAN, 5]], [[0, 3]], (1 + (0 + 1) / 2) / 2),  # both episodes count alike, however many their pairs
    ],
)
def test_the_probability_of_improvement_by_hand(x, y, expected):
    assert probability_of_improvement(np.array(x, float), np.array(y, float))[0] == pytest.approx(expected)


def test_the_probability_of_improvement_is_antisymmetric():
    x, y = scores(3, 30), np.round(scores(2, 30, seed=6), 1)
    x[0, :5] = y[1, 3] = x[:, 9] = NAN
    p, low, high = probability_of_improvement(x, y)
    assert probability_of_improvement(y, x) == pytest.approx((1 - p, 1 - high, 1 - low))
    never, low, high = probability_of_improvement(x, x + 9)
    assert (never, low) == (0, 0)
    assert 0.05 < high < 0.2  # 29 episodes of three runs do not exclude a defeat
    assert probability_of_improvement(x + 9, x) == pytest.approx((1, 1 - high, 1))


def test_the_interval_of_the_probability_of_improvement_by_hand():
    """One run each: Wilson's, with Student's quantile and the number of trials with the variance of the wins."""
    x, y = np.array([[1.0, 2, 3, 4, 5, 6]]), np.array([[0.0, 1, 2, 3, 6, 6]])
    won = np.array([1, 1, 1, 1, 0, 0.5])
    p, t = 0.75, scipy.stats.t.ppf(0.975, 5)
    trials = p * (1 - p) / (won.var(ddof=1) / 6)
    ends = (p + t**2 / (2 * trials)) / (1 + t**2 / trials)
    half = t / (1 + t**2 / trials) * np.sqrt(p * (1 - p) / trials + (t / (2 * trials)) ** 2)
    assert probability_of_improvement(x, y) == pytest.approx((p, ends - half, ends + half))
    _, low, high = probability_of_improvement(np.array([[0.5] * 20, [2.5] * 20]), np.tile([1.0, 2], (1, 10)))
    assert high - low > 0.9  # two runs, of which one always wins and one always loses
    assert probability_of_improvement(np.full((2, 3), NAN), scores(1, 3)) == (None, None, None)


def test_the_mean_over_scenes_by_hand():
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    constant = [np.full((1, 10), value) for value in values]
    assert over_scenes(constant, [None] * 5) == pytest.approx([14 / 3] * 3)  # 2 4 8; nothing varies within a scene
    assert over_scenes(constant, [None] * 5, trimmed=0.0)[0] == pytest.approx(31 / 5)
    missing = constant[0].copy()
    missing[0, :3] = NAN
    assert over_scenes([missing, *constant[1:]], [None] * 5) == pytest.approx([14 / 3] * 3)
    runs = [np.array([[1.0] * 4, [3.0] * 4])] * 2  # the same runs are drawn in all scenes
    assert over_scenes(runs, [None] * 2) == pytest.approx([2.0, 1.0, 3.0])
    one, two = np.ones((1, 9)), np.repeat([[0.0], [2.0]], 9, 1)
    for pair in ((one, two), (two, one)):  # the runs of both are drawn
        assert over_scenes([wins(*pair)] * 2, [None] * 2, trimmed=0.0) == (0.5, 0.0, 1.0)


def test_the_bootstrap_over_scenes_has_the_width_of_the_normal_interval_and_recordings_count_as_one():
    drawn = [np.random.default_rng(k).normal(0.7, 0.1, (1, 60)) for k in range(3)]
    error = np.sqrt(sum(one.var(ddof=1) / 60 for one in drawn)) / 3
    middle, low, high = over_scenes(drawn, [None] * 3, trimmed=0.0)
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.1)
    repeated, recording = [one.repeat(5, 1) for one in drawn], np.arange(60).repeat(5)
    clustered = over_scenes(repeated, [recording] * 3, trimmed=0.0)
    assert clustered[0] == pytest.approx(middle)
    assert clustered[2] - clustered[1] == pytest.approx(high - low, rel=0.1)
