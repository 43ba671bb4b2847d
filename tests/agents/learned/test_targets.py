"""Learned targets as a player: from a checkpoint, in some of the scenes, at other sizes."""

import numpy as np
import pytest

from hitmac.agents import load_agent, load_policy, save_policy
from hitmac.agents.duel import load_opponent
from hitmac.envs.tasks import TransportTask
from hitmac.envs.tasks.base import flatten_sensors
from tests.agents.untrained import untrained

SMALL = "mate-2v4-0"


def test_a_saved_policy_plays_the_best_move_of_every_target_also_at_other_sizes(tmp_path):
    policy, config = untrained(SMALL, "Transport", features=("entities",), noise=1.0)
    save_policy(tmp_path, policy, config)
    assert load_policy(tmp_path)[1] == config
    for size in (SMALL, "mate-4v8-9"):
        task = TransportTask(size, 3, 0)
        rows = flatten_sensors(task.observe())
        best = load_policy(tmp_path, size)[0].predict(rows, deterministic=True)[0].reshape(3, -1)
        assert len(np.unique(best)) > 1
        player, everyone = load_opponent(tmp_path, size, "targets"), np.ones(3, bool)
        steps = player.act(task.duel, everyone)
        np.testing.assert_array_equal(steps, task.displacements(best))
        some = np.array([True, False, True])
        np.testing.assert_allclose(player.act(task.duel, everyone, some)[some], steps[some])
    with pytest.raises(ValueError, match="was trained for Transport; it plays the targets of a game of two teams"):
        load_agent(tmp_path, SMALL)
