"""Planners for sensors with pan limits."""

import numpy as np
import pytest

from hitmac.agents.evaluate import evaluate
from hitmac.agents.registry import load_agent, scripted_agent
from hitmac.envs import Scenario
from hitmac.envs.tasks import CoverageTask


@pytest.mark.parametrize(("name", "knowledge"), [("planner", "full"), ("belief-planner", "shared")])
def test_planners_go_the_long_way_round_a_limit(name, knowledge):
    """From 300 degrees, the upper limit, a target at 30 degrees is near to the left, and reached to the right only."""
    scene = Scenario(
        num_sensors=1, num_targets=1, placement="fixed", sensor_positions=[(0, 0)], sensor_headings=[300],
        pan_limits=[(0, 300)], field_of_view=80, turn_angle=10, walk="still", knowledge=knowledge, extra_move_every=0,
    )  # fmt: skip
    policy = scripted_agent(name, scene, turn_cost=0.01)
    task, state, headings = CoverageTask(scene, 1, 0, features=policy.features), None, []
    task.reset(options={"target_position": [(100, 58)]})
    for step in range(60):
        action, state = policy.predict(task.observe(), state, np.array([step == 0]), deterministic=True)
        task.step(action)
        headings.append(task.simulator.state.heading[0, 0])
    assert task.simulator.coverage[0] == 1.0, headings
    assert min(headings) < 75
    assert max(headings) <= 300


def test_a_planner_with_limits_beats_one_without():
    """A target may pass behind the sensor, which then has to turn the long way round."""
    scene = Scenario(
        arena=20, num_sensors=1, num_targets=2, placement="fixed", sensor_positions=[(0, 0)], pan_limits=[(-150, 150)],
        sensing_range=20, field_of_view=50, turn_angle=10, walk="bounce", wander=20,
    )  # fmt: skip
    blind = load_agent("planner", scene.replace(pan_limits=()))
    coverage = [
        np.array(
            evaluate([agent], scene, episodes=60, max_episode_steps=100, progress=False)
            ["agents"]["planner"]["per_episode"]["coverage"]
        )
        for agent in (load_agent("planner", scene), blind)
    ]  # fmt: skip
    gain = coverage[0] - coverage[1]
    assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
