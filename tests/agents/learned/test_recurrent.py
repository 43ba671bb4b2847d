"""Recurrent policy: its input and its state, also where sensors share no knowledge."""

import numpy as np
import pytest
import torch

from hitmac.agents.learned.beliefs import OwnKnowledge
from hitmac.agents.learned.recurrent import OF_SENSOR, RECURRENT_FEATURES, SEEN
from hitmac.agents.registry import as_agent
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask
from tests.agents.untrained import permuted, untrained

SHARED = load_scenario("hit-mac").replace(knowledge="shared", failure_rate=0.02, recovery_rate=0.2)
STARTS = np.zeros((12, 5), bool)
STARTS[0], STARTS[7, 1], STARTS[3, 4], STARTS[6, 2] = True, True, True, True


def fresh():
    """Return a policy that is sure of its actions, each in about a third of the scenes, and its configuration."""
    policy, config = untrained(
        SHARED, features=RECURRENT_FEATURES, memory="recurrent", weight_dim=16, num_blocks=2, attend_over="axes"
    )
    last = policy.action_net[0][2]
    with torch.no_grad():
        last.weight.mul_(1000.0)
        logits, acting, _ = policy.unroll(torch.from_numpy(np.stack([one["pairs"] for one in observations()])))
        last.bias.copy_(-logits[:, 0][acting].mean(0))
    return policy, config


def observations(scenario=SHARED, scenes=5, steps=12):
    """Return observations of scenes in which the sensors turn at random."""
    task, shown = CoverageTask(scenario, scenes, 0, features=RECURRENT_FEATURES), []
    for action in np.random.default_rng(1).integers(0, 3, (steps, scenes, scenario.num_sensors)):
        shown.append(task.observe())
        task.step(action)
    return shown


def played(policy, shown, starts=None):
    """Return the deterministic actions (T, B, n) and the last state of a policy."""
    state, actions = None, []
    for step, observation in enumerate(shown):
        action, state = policy.predict(observation, state, None if starts is None else starts[step], deterministic=True)
        actions.append(action)
    return np.stack(actions), state


def scenes_of(shown, rows):
    return [{name: array[rows] for name, array in observation.items()} for observation in shown]


def test_a_scene_of_a_batch_is_played_as_alone_and_its_episode_begins_without_a_memory():
    (policy, _), shown = fresh(), observations()
    together, (state,) = played(policy, shown, STARTS)
    assert len(np.unique(together)) == 3
    for scene in range(5):
        first = np.flatnonzero(STARTS[:, scene])[-1]
        alone, (own,) = played(policy, scenes_of(shown[first:], slice(scene, scene + 1)))
        np.testing.assert_array_equal(alone[:, 0], together[first:, scene])
        np.testing.assert_allclose(own[0], state[scene], atol=1e-5)
    action, _ = policy.predict({name: array[2] for name, array in shown[0].items()}, deterministic=True)
    np.testing.assert_array_equal(action, together[0, 2])
    assert (played(policy, shown)[0] != together).any()  # it does remember


def test_a_state_or_starts_of_other_scenes_are_refused():
    (policy, _), (shown, *_) = fresh(), observations()
    for other in ({name: array[:1] for name, array in shown.items()}, {"pairs": shown["pairs"][:, :, :1]}):
        with pytest.raises(ValueError, match=r"state belongs to other scenes: .* expected \(5, 4, 5, 16\)"):
            policy.predict(shown, policy.predict(other)[1])
    with pytest.raises(ValueError, match=r"episode_start is bool of shape \(1,\); it must be bool of shape \(5,\)"):
        policy.predict(shown, policy.predict(shown)[1], np.array([True]))


def test_it_is_equivariant_over_sensors_and_targets():
    (policy, _), shown = fresh(), observations()
    actions, (state,) = played(policy, shown)
    sensors, targets = [2, 0, 3, 1], [4, 2, 0, 1, 3]
    others, (other,) = played(policy, [permuted(one, sensors, targets) for one in shown])
    np.testing.assert_array_equal(others, actions[..., sensors])
    np.testing.assert_allclose(other, state[:, sensors][:, :, targets], atol=1e-5)


def test_a_sequence_at_once_is_the_loop_of_its_steps():
    (policy, _), shown = fresh(), observations()
    actions, (state,) = played(policy, shown, STARTS)
    pairs = torch.from_numpy(np.stack([one["pairs"] for one in shown])).requires_grad_()
    logits, acting, last = policy.unroll(pairs, None, torch.from_numpy(STARTS))
    np.testing.assert_array_equal(logits[:, 0].argmax(-1).unflatten(0, (12, 5)), actions)
    np.testing.assert_allclose(last.detach(), state, atol=1e-5)
    works = np.stack([(one["pairs"][:, :, 0, -2:] != 0).any(-1) for one in shown])
    np.testing.assert_array_equal(acting.unflatten(0, (12, 5)), works)
    assert not works.all()
    assert (actions[~works] == 0).all()  # a failed sensor stays
    # The gradient of the last step reaches all steps of its episode, and none before it.
    logits.unflatten(0, (12, 5))[-1].clamp(-1e30).sum().backward()
    reached = pairs.grad.abs().sum((2, 3, 4)) > 0
    np.testing.assert_array_equal(reached, np.flip(np.cumsum(np.flip(np.roll(STARTS, -1, 0), 0), 0), 0) <= 1)


def test_the_memory_is_given_the_heading():
    (policy, _), pairs = fresh(), torch.from_numpy(np.stack([one["pairs"] for one in observations()]))
    heading = pairs[..., 0, [RECURRENT_FEATURES.index(name) for name in ("heading_cos", "heading_sin")]]
    heading[(heading == 0).all(-1)] = torch.tensor([1.0, 0.0])  # failed sensors
    pairs[..., :OF_SENSOR] *= pairs[..., SEEN, None]
    _, expected = policy.features_extractor.memory(pairs, heading, None, None)
    torch.testing.assert_close(policy.unroll(pairs)[2], expected)


def test_it_reads_only_what_is_seen_now():
    """Neither last known places and velocities, nor the mask, which shows what was ever seen."""
    (policy, _), shown, changed = fresh(), observations(), observations()
    for observation in changed:
        unseen = observation["pairs"][..., SEEN] == 0
        for k in set(range(OF_SENSOR)) - {SEEN}:
            observation["pairs"][unseen, k] = 0.7
        observation["mask"][unseen] ^= 1
    (actions, (state,)), (others, (other,)) = played(policy, shown), played(policy, changed)
    np.testing.assert_array_equal(others, actions)
    np.testing.assert_array_equal(other, state)
    for observation in changed:
        observation["pairs"][..., SEEN] = 1
    assert (played(policy, changed)[0] != actions).any()  # what is seen is read


# --- knowledge of a sensor alone; policies on beliefs: tests/agents/tracking/test_features.py ---


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
