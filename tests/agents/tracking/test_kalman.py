"""The Kalman filter, against least squares."""

import numpy as np
import pytest

from hitmac.agents.tracking import KalmanTracker


def test_the_kalman_filter_is_the_least_squares_line_without_acceleration():
    rng = np.random.default_rng(1)
    tracker = KalmanTracker(2000, 1, agility=1e-9, deviation=10.0)
    time = np.arange(20) * 0.5
    truth = rng.uniform(-500, 500, (2000, 1, 2)) + rng.uniform(-50, 50, (2000, 1, 2)) * time[:, None, None, None]
    errors = rng.normal(0, 10, truth.shape)
    for k in range(20):
        if k:
            tracker.move(0.5)
        tracker.see(truth[k] + errors[k], np.ones((2000, 1), bool))
    design = np.stack((np.ones(20), time - time[-1]), 1)
    line = np.linalg.lstsq(design, (truth + errors)[:, :, 0].reshape(20, -1), rcond=None)[0]
    np.testing.assert_allclose(tracker.mean[:, 0], line[0].reshape(2000, 2), atol=0.3)
    expected = 10 * np.sqrt(np.linalg.inv(design.T @ design)[0, 0])
    assert tracker.spread[0, 0] == pytest.approx(expected, rel=0.01)
    assert np.std(tracker.mean - truth[-1]) == pytest.approx(expected, rel=0.05)
    tracker.move(10.0)  # unseen: on in the same direction, less and less certain
    np.testing.assert_allclose(tracker.mean[:, 0], (line[0] + 10 * line[1]).reshape(2000, 2), atol=1)
    assert tracker.spread[0, 0] > 2 * expected
    assert tracker.map(1250).sum((-2, -1)) == pytest.approx(1)
    tracker.reset()
    assert tracker.spread == pytest.approx(1250)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"deviation is 0\.0; it must be over 0"):
        KalmanTracker(deviation=0)
    with pytest.raises(ValueError, match=r"they must be \(1, 1, 2\)"):
        KalmanTracker().see(np.zeros((1, 2, 2)), np.zeros((1, 2), bool))
