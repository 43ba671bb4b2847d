"""Observations of a batch: their space and order; those of the released program are tested with the tasks."""

import numpy as np
import pytest

from hitmac.envs import FEATURES, Scenario, Simulator
from hitmac.envs.observation import Observer


def test_the_order_is_the_callers_and_the_space_holds_it():
    simulator = Simulator("hit-mac", 200, 0)
    for _ in range(20):
        simulator.step(np.ones((200, 4), np.int64))
    everything = Observer(simulator.scenario, tuple(FEATURES))
    observation = everything.observe(simulator)
    assert all(everything.space.contains({k: v[b] for k, v in observation.items()}) for b in range(200))
    backwards = Observer(simulator.scenario, (*reversed(FEATURES),)).observe(simulator)
    assert np.array_equal(backwards["pairs"], observation["pairs"][..., ::-1])
    assert not np.shares_memory(everything.observe(simulator)["pairs"], observation["pairs"])


def test_unknown_features_are_named():
    for features, says in (
        (("bearing", "bearng"), r"unknown feature bearng \(did you mean bearing\?\): known are sensor_id, target_id"),
        ((), "no feature given"),
        (("bearing", "bearing"), "name a feature twice"),
    ):
        with pytest.raises(ValueError, match=says):
            Observer(Scenario(), features)
