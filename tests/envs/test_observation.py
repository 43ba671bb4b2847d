"""Observations of a batch: their space and order, and those of the released program."""

import numpy as np
import pytest

from hitmac.envs import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES, Scenario, Simulator
from hitmac.envs.observation import Observer


def observed(simulator, *features):
    return Observer(simulator.scenario, features).observe(simulator)["pairs"]


def test_the_order_is_the_callers_and_the_space_holds_it():
    simulator = Simulator("hit-mac", 200, 0)
    for _ in range(20):
        simulator.step(np.ones((200, 4), np.int64))
    everything = Observer(simulator.scenario, tuple(FEATURES))
    observation = everything.observe(simulator)
    assert all(everything.space.contains({k: v[b] for k, v in observation.items()}) for b in range(200))
    backwards = observed(simulator, *reversed(FEATURES))
    assert np.array_equal(backwards, observation["pairs"][..., ::-1])
    assert not np.shares_memory(everything.observe(simulator)["pairs"], observation["pairs"])


def test_unknown_features_are_named():
    scenario = Scenario()
    with pytest.raises(ValueError, match="unknown feature smell: known are sensor_id, target_id"):
        Observer(scenario, ("bearing", "smell"))
    with pytest.raises(ValueError, match="no feature given"):
        Observer(scenario, ())
    with pytest.raises(ValueError, match="name a feature twice"):
        Observer(scenario, ("bearing", "bearing"))
    assert set(DEFAULT_FEATURES) <= set(FEATURES)


@pytest.mark.parametrize("name", ["hitmac_coordinator_trajectories.npz", "hitmac_executor_trajectories.npz"])
def test_the_first_observations_of_the_released_program(trajectories, name):
    record = trajectories(name)
    simulator = Simulator("hit-mac", len(record["reward"]), 0)
    simulator.place(
        sensor_position=record["sensor_position"], heading=record["heading0"], target_position=record["target0"]
    )
    np.testing.assert_allclose(observed(simulator, *PAPER_FEATURES), record["obs0"], atol=1e-6)


def test_observations_and_coverage_after_recorded_decisions(trajectories):
    record = trajectories("hitmac_coordinator_trajectories.npz")
    simulator = Simulator("hit-mac", 101, 0)
    for episode in range(len(record["reward"])):
        simulator.place(
            sensor_position=np.broadcast_to(record["sensor_position"][episode], (101, 4, 2)),
            heading=record["headings"][episode, :, -1],
            target_position=record["target_moves"][episode, :, -1],
        )
        np.testing.assert_allclose(observed(simulator, *PAPER_FEATURES), record["obs"][episode], atol=1e-6)
        np.testing.assert_allclose(simulator.coverage, record["coverage"][episode])
