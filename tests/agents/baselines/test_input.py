"""Input of planners and trackers, checked before a kernel reads it."""

import numpy as np
import pytest

from hitmac.agents import scripted_agent
from hitmac.agents.tracking import ParticleTracker
from hitmac.envs import Scenario
from hitmac.envs.tasks import CoverageTask


def test_a_planner_refuses_impossible_observations():
    agent = scripted_agent("planner-fast", "hit-mac")
    observation = CoverageTask("hit-mac", 2, 0, features=agent.features).observe()
    state = agent.predict(observation)[1]
    pairs, mask = observation["pairs"], observation["mask"]
    for change, says in (
        ({"pairs": pairs * np.nan}, "pairs holds nan"),
        ({"pairs": pairs.astype(str)}, "as floating-point numbers"),
        ({"pairs": pairs[:1]}, "mask is .* of shape"),
        ({"mask": mask[..., :-1]}, "mask is .* of shape"),
        ({"mask": mask.astype(object)}, "mask is object of shape"),
    ):
        with pytest.raises(ValueError, match=says):
            agent.predict({**observation, **change})
    with pytest.raises(ValueError, match="episode_start is int64 of shape"):
        agent.predict(observation, state, np.array([0, 10**9]))


def test_a_tracker_refuses_impossible_detections():
    tracker = ParticleTracker("hit-mac", 2, particles=4)
    seen = np.ones((2, 5), np.bool_)
    for call, says in (
        (lambda: tracker.move(1.5), "moves has .* type float64"),
        (lambda: tracker.see(np.full((2, 5, 2), np.nan), seen), "position holds nan"),
        (lambda: tracker.see(np.zeros((2, 5, 2)), seen, deviation=-1.0), "deviation is -1.0"),
        (lambda: tracker.look(np.full((2, 4, 7), np.inf), seen), "views holds inf"),
        (lambda: tracker.map(0), "cells is 0"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    tracker.see(np.full((2, 5, 2), -1e9), seen)  # outside the arena
    assert np.allclose(tracker.map(4)[..., 0, 0], 1)


def test_tiny_turns_take_no_memory():
    scenario = Scenario(turn_angle=1e-6)
    agent = scripted_agent("greedy", scenario)
    observation = CoverageTask(scenario, 1, 0, features=agent.features).observe()
    assert agent.predict(observation)[0].shape == (1, 4)
