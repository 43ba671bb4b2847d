"""Recurrent policies where sensors share no knowledge; policies on beliefs: tests/agents/tracking/test_features.py."""

import numpy as np

from hitmac.agents.learned.beliefs import OwnKnowledge
from hitmac.agents.learned.recurrent import OF_SENSOR, RECURRENT_FEATURES, SEEN
from hitmac.agents.registry import as_agent
from hitmac.envs import load_scenario
from tests.agents.learned.recurrent import SHARED, fresh, observations, played


def test_with_its_own_knowledge_a_sensor_acts_on_that_alone():
    policy, config = fresh()
    scenario = SHARED.replace(knowledge="own")
    agent = as_agent(policy, config, scenario, name="trained")
    shown, changed = observations(scenario), observations(scenario)
    for one in changed:
        one["pairs"][:, 1:, :, :OF_SENSOR] = 0.3  # the others' knowledge, but not their positions
        one["mask"][:, 1:] = 1
    actions, others = played(agent.policy, shown)[0], played(agent.policy, changed)[0]
    np.testing.assert_array_equal(others[..., 0], actions[..., 0])
    assert (others[..., 1:] != actions[..., 1:]).any()


def test_every_sensor_describes_shared_knowledge_as_it_is_observed():
    scenario = load_scenario("hit-mac-3x5").replace(knowledge="shared", failure_rate=0.02, recovery_rate=0.2)
    for observation in observations(scenario, scenes=40):
        pairs = observation["pairs"]
        described = OwnKnowledge(None, scenario).describe(pairs)
        seen = pairs[:, :, :, SEEN, None] != 0
        expected = np.where(seen | (np.arange(len(RECURRENT_FEATURES)) >= OF_SENSOR), pairs, 0)
        works = (pairs[:, :, 0, -2:] != 0).any(-1)
        for sensor in range(3):
            rows = works[:, sensor]
            np.testing.assert_allclose(described[rows, sensor], expected[rows], atol=2e-4)
            assert (described[~rows, sensor, :, :, :OF_SENSOR] == 0).all()
