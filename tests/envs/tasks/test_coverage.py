"""The coverage task: rewards, infos and zooms by hand."""

import numpy as np
import pytest

from hitmac.envs import FEATURES
from hitmac.envs.tasks import CoverageTask


def test_rewards_and_infos_by_hand():
    task = CoverageTask("hit-mac", 1, 0, turn_cost=0.1)
    for action in ([0, 0, 0, 0], [1, 2, 1, 0], [1, 1, 2, 2]):
        reward, turned = task.step(np.array([action])), np.count_nonzero(action)
        (info,) = task.infos()
        assert (info["turned"], info["coverage"]) == (turned, info["visible"].mean())
        assert reward == pytest.approx(info["coverage"] - 0.1 * turned / 4)


def test_zooms_follow_the_turns_in_an_action():
    task = CoverageTask("obstacles", 2, 0)
    assert task.action_space.nvec.tolist() == [3] * 8
    heading = task.simulator.state.heading.copy()
    task.step(np.tile([0, 2, 0, 0, 1, 2, 0, 0], (2, 1)))
    np.testing.assert_allclose(task.simulator.state.heading - heading, np.tile([0, -5, 0, 0], (2, 1)), atol=1e-9)
    np.testing.assert_allclose(task.simulator.state.field_of_view, np.tile([85.0, 95, 90, 90], (2, 1)))


def test_the_docstring_lists_every_feature():
    for name, feature in FEATURES.items():
        assert f"| `{name}` |" in CoverageTask.__doc__
        assert feature.meaning in CoverageTask.__doc__
