"""Interquartile means, intervals and the probability of improvement, against numbers worked by hand."""

import json

import numpy as np
import pytest

import agents.statistics
from agents.statistics import interquartile_mean, probability_of_improvement, summary

NAN = np.nan


def scores(runs=3, episodes=40, between=0.0, seed=5):
    """(runs, episodes), normal within an episode, with means of the runs that differ."""
    rng = np.random.default_rng(seed)
    return rng.normal(0.7, 0.1, (runs, episodes)) + between * rng.normal(size=(runs, 1))


def width(interval):
    return interval[1] - interval[0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 4.5),  # 3 4 5 6
        ([1, 2, 3, 4, 5, 6, 7], 4),  # floor(7 / 4) = 1 at either end: 2 3 4 5 6
        ([1, 100, 2, 3, -50], 2),  # in any order; 1 2 3
        ([9, 2, 1, 5], 3.5),
        ([1, 2, 9], 4),  # all three
        ([3], 3),
        ([1, NAN, 2, 3, NAN, 4, 5, 6, 7, 8], 4.5),
        ([NAN, NAN], NAN),
        ([], NAN),
    ],
)
def test_the_interquartile_mean_by_hand(values, expected):
    assert float(interquartile_mean(np.array(values, float))) == pytest.approx(expected, nan_ok=True)


def test_the_interquartile_mean_along_axes():
    values = np.array([[1, 2, 3, 4, 5, 6, 7, 80], [NAN, 4, NAN, 3, 2, 1, NAN, NAN]])
    assert interquartile_mean(values, 1).tolist() == [4.5, 2.5]
    assert interquartile_mean(values.T, 0).tolist() == [4.5, 2.5]
    assert interquartile_mean(values[None], (0, -1)).tolist() == [4.5, 2.5]
    assert interquartile_mean(values, 0).tolist() == [1, 3, 3, 3.5, 3.5, 3.5, 7, 80]
    assert interquartile_mean(values, ()).tolist()[0] == values[0].tolist()
    assert float(interquartile_mean(values)) == pytest.approx((2 + 3 + 3 + 4 + 4 + 5) / 6)  # of 12, 3 at either end
    with pytest.raises(ValueError, match="axis"):
        interquartile_mean(values, 2)


def test_the_points_of_a_summary_by_hand():
    found = summary(np.array([[0.0, 700, 2, 3], [10, 4, 60, 1]]))
    assert found["mean"] == 780 / 8
    assert found["iqm"] == (2 + 3 + 4 + 10) / 4
    assert summary(np.array([[1, NAN], [2, 6]]))["mean"] == 3  # all values count alike
    assert summary(np.array([[1.0, 3]]))["std"] == 1  # of the values, not of a population behind them


def test_one_run_is_the_plain_bootstrap_over_episodes():
    values = scores(1)
    picks = np.random.default_rng(0).integers(0, 40, (10_000, 40))
    found = summary(values)
    assert found["ci95"] == pytest.approx(np.quantile(values[0][picks].mean(1), (0.025, 0.975)))
    middle = np.sort(values[0][picks], 1)[:, 10:30].mean(1)
    assert found["iqm_ci95"] == pytest.approx(np.quantile(middle, (0.025, 0.975)))
    for key in ("ci95", "iqm_ci95"):
        low, high = found[key]
        assert low < found[key.replace("ci95", "mean").replace("iqm_mean", "iqm")] < high


def test_runs_and_episodes_are_drawn_as_they_say():
    values = scores(3, 10, 0.1)
    values[0, 3] = values[2, 7] = NAN
    episodes = np.random.default_rng(0).integers(0, 10, (500, 10))
    runs = np.random.default_rng(1).integers(0, 3, (500, 3))
    drawn = [values[run][:, episode] for run, episode in zip(runs, episodes, strict=True)]
    found = summary(values, 500)
    assert found["ci95"] == pytest.approx(np.quantile([np.nanmean(each) for each in drawn], (0.025, 0.975)))
    assert found["iqm_ci95"] == pytest.approx(np.quantile([interquartile_mean(each) for each in drawn], (0.025, 0.975)))


def test_the_chunks_do_not_show(monkeypatch):
    values, other = scores(3, 11), scores(2, 11, seed=6)
    values[1, 4] = NAN
    whole = summary(values, 1001), probability_of_improvement(values, other, 1001)
    monkeypatch.setattr(agents.statistics, "_CHUNK", 100)
    assert (summary(values, 1001), probability_of_improvement(values, other, 1001)) == whole


def test_runs_that_differ_widen_the_intervals():
    alike, different = summary(scores()), summary(scores(between=0.1))
    for key in ("ci95", "iqm_ci95"):
        assert width(different[key]) > 2 * width(alike[key])
    within = summary(np.tile(scores(1), (3, 1)))  # three times the same run says no more about episodes than one
    assert within["ci95"] == pytest.approx(summary(scores(1))["ci95"])


@pytest.mark.parametrize("runs", [1, 8])
def test_the_interval_covers_what_it_should(runs):
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = 3 + rng.normal(size=(runs, 1)) * (runs > 1) + rng.normal(size=50) + rng.normal(size=(runs, 50))
        low, high = summary(values, 500)["ci95"]
        hits += low <= 3 <= high
    assert 176 <= hits <= 198


def test_what_has_no_value_is_left_out():
    values = scores(2, 6)
    holes = np.full((4, 9), NAN)
    holes[np.ix_([1, 3], [0, 2, 3, 5, 6, 8])] = values
    assert summary(holes) == summary(values)
    nothing = {"mean": None, "std": None, "ci95": None, "iqm": None, "iqm_ci95": None}
    assert summary(np.full((2, 3), NAN)) == summary(np.zeros((1, 0))) == nothing


def test_one_value_has_no_width():
    assert summary(np.array([[0.25]])) == {
        "mean": 0.25,
        "std": 0,
        "ci95": [0.25, 0.25],
        "iqm": 0.25,
        "iqm_ci95": [0.25, 0.25],
    }


def test_a_summary_survives_json():
    for values in (scores(), np.full((1, 2), NAN), np.array([[1, NAN]], np.float32), [[1, 2, 3]]):
        found = summary(values, 100)
        assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([[1, 2]], [[0, 3]], 1 / 2),
        ([[1]], [[1]], 1 / 2),
        ([[1], [2], [3]], [[2], [0]], (0 + 1 + 0.5 + 1 + 1 + 1) / 6),
        ([[1, 9], [2, 9]], [[0, 9], [2, 10]], ((1 + 0 + 1 + 0.5) / 4 + (0.5 + 0 + 0.5 + 0) / 4) / 2),
        ([[1, NAN, 5]], [[0, 3, 6]], 1 / 2),  # two episodes are left
        ([[1, 0], [NAN, 5]], [[0, 3]], (1 + (0 + 1) / 2) / 2),  # both episodes count alike, however many their pairs
    ],
)
def test_the_probability_of_improvement_by_hand(x, y, expected):
    p, low, high = probability_of_improvement(np.array(x, float), np.array(y, float))
    assert p == pytest.approx(expected)
    assert 0 <= low <= high <= 1


def test_the_probability_of_improvement_takes_turns():
    x, y = scores(3, 30), np.round(scores(2, 30, seed=6), 1)
    x[0, :5] = y[1, 3] = x[:, 9] = NAN
    x[1, 11] = y[0, 11]
    assert sum(probability_of_improvement(*pair)[0] for pair in ((x, y), (y, x))) == pytest.approx(1)
    assert probability_of_improvement(x, x)[0] == pytest.approx(0.5)
    assert probability_of_improvement(x, x + 9) == (0, 0, 0)
    assert probability_of_improvement(x + 9, x) == (1, 1, 1)
    one, other = x[2:], y[:1]  # with one run each, only the episodes are drawn
    _, low, high = probability_of_improvement(one, other)
    assert probability_of_improvement(other, one)[1:] == pytest.approx((1 - high, 1 - low))


def test_the_interval_of_the_probability_of_improvement():
    x, y = scores(3, 12), scores(2, 12, seed=6)
    x[0, 3] = y[1, 5] = NAN
    draw = [np.random.default_rng(k).integers(0, size, (300, size)) for k, size in enumerate((12, 3, 2))]
    drawn = []
    for episode, of_x, of_y in zip(*draw, strict=True):
        one, other = x[of_x][:, None, episode], y[of_y][None, :, episode]
        won = np.where(np.isnan(one) | np.isnan(other), NAN, (one > other) + 0.5 * (one == other))
        drawn.append(np.mean([won[..., e][~np.isnan(won[..., e])].mean() for e in range(12) if _any(won[..., e])]))
    assert probability_of_improvement(x, y, 300)[1:] == pytest.approx(np.quantile(drawn, (0.025, 0.975)))
    assert probability_of_improvement(np.full((2, 3), NAN), scores(1, 3)) == (None, None, None)


def _any(values):
    return bool((~np.isnan(values)).any())


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"scores have shape \(3,\); they must be \(runs, episodes\)"):
        summary(np.zeros(3))
    with pytest.raises(ValueError, match="scores have infinite values"):
        summary(np.array([[np.inf, 1]]))
    for number in (0, -1):
        with pytest.raises(ValueError, match=f"resamples is {number}"):
            summary(np.zeros((1, 3)), number)
    with pytest.raises(ValueError, match="x has 3 episodes and y 4"):
        probability_of_improvement(np.zeros((1, 3)), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="y have shape"):
        probability_of_improvement(np.zeros((1, 3)), np.zeros(3))
