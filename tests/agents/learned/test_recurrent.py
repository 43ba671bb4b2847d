"""Recurrent policy: its input and its state."""

import numpy as np
import pytest
import torch

from hitmac.agents import load_agent, save_policy
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.learned.recurrent import OF_SENSOR, RECURRENT_FEATURES, SEEN
from hitmac.agents.registry import as_agent
from hitmac.envs import load_scenario
from tests.agents.learned.recurrent import SHARED, config_on, fresh, observations, played


def picked(shown, rows):
    return [{name: array[rows] for name, array in observation.items()} for observation in shown]


def test_a_scene_of_a_batch_is_played_as_alone():
    policy, shown = fresh(), observations()
    together, (state,) = played(policy, shown)
    assert len(np.unique(together)) == 3
    for scene in range(5):
        alone, (own,) = played(policy, picked(shown, slice(scene, scene + 1)))
        np.testing.assert_array_equal(alone[:, 0], together[:, scene])
        np.testing.assert_allclose(own[0], state[scene], atol=1e-5)
    action, _ = policy.predict({name: array[2] for name, array in shown[0].items()}, deterministic=True)
    np.testing.assert_array_equal(action, together[0, 2])


def test_it_is_equivariant_over_sensors_and_targets():
    policy, shown = fresh(), observations()
    actions, (state,) = played(policy, shown)
    sensors, targets = [2, 0, 3, 1], [4, 2, 0, 1, 3]
    permuted = [{name: array[:, sensors][:, :, targets] for name, array in one.items()} for one in shown]
    others, (other,) = played(policy, permuted)
    np.testing.assert_array_equal(others, actions[..., sensors])
    np.testing.assert_allclose(other, state[:, sensors][:, :, targets], atol=1e-5)


def test_a_sequence_at_once_is_the_loop_of_its_steps():
    policy, shown = fresh(), observations()
    starts = np.zeros((12, 5), bool)
    starts[0], starts[7, 1], starts[3, 4] = True, True, True
    actions, (state,) = played(policy, shown, starts)
    pairs = torch.from_numpy(np.stack([one["pairs"] for one in shown])).requires_grad_()
    logits, acting, last = policy.unroll(pairs, None, torch.from_numpy(starts))
    np.testing.assert_array_equal(logits[:, 0].argmax(-1).unflatten(0, (12, 5)), actions)
    np.testing.assert_allclose(last.detach(), state, atol=1e-5)
    works = np.stack([(one["pairs"][:, :, 0, -2:] != 0).any(-1) for one in shown])
    np.testing.assert_array_equal(acting.unflatten(0, (12, 5)), works)
    assert not works.all()
    assert (actions[~works] == 0).all()  # a failed sensor stays
    # The gradient of the last step reaches all steps of its episode, and none before it.
    logits.unflatten(0, (12, 5))[-1].clamp(-1e30).sum().backward()
    reached = pairs.grad.abs().sum((2, 3, 4)) > 0
    np.testing.assert_array_equal(reached, np.flip(np.cumsum(np.flip(np.roll(starts, -1, 0), 0), 0), 0) <= 1)


def test_an_episode_begins_with_an_empty_memory():
    policy, shown = fresh(), observations()
    starts = np.zeros((12, 5), bool)
    starts[6, [1, 3]] = True
    again, (state,) = played(policy, shown, starts)
    alone, (own,) = played(policy, picked(shown[6:], [1, 3]))
    np.testing.assert_array_equal(again[6:, [1, 3]], alone)
    np.testing.assert_allclose(state[[1, 3]], own, atol=1e-5)
    without, _ = played(policy, shown)
    assert (without[6:, [1, 3]] != alone).any()  # it does remember


def test_the_memory_is_given_what_is_seen_and_the_heading():
    policy, pairs = fresh(), torch.from_numpy(np.stack([one["pairs"] for one in observations()]))
    feature = dict(zip(RECURRENT_FEATURES, pairs.unbind(-1), strict=True))
    heading = torch.stack((feature["heading_cos"], feature["heading_sin"]), -1)[..., 0, :]
    heading[(heading == 0).all(-1)] = torch.tensor([1.0, 0.0])  # failed sensors
    seen = pairs.clone()
    seen[..., :OF_SENSOR] *= feature["seen_now"].unsqueeze(-1)
    _, expected = policy.features_extractor.memory(seen, heading, None, None)
    torch.testing.assert_close(policy.unroll(pairs)[2], expected)


def test_it_reads_only_what_is_seen_now():
    """Neither last known places and velocities, nor the mask, which shows what was ever seen."""
    policy, shown = fresh(), observations()
    changed = []
    for observation in shown:
        pairs, mask = observation["pairs"].copy(), observation["mask"].copy()
        unseen = pairs[..., SEEN] == 0
        for k in set(range(OF_SENSOR)) - {SEEN}:
            pairs[unseen, k] = 0.7
        mask[unseen] = 1 - mask[unseen]
        changed.append({"pairs": pairs, "mask": mask})
    assert np.mean([(one["pairs"][..., SEEN] == 0).mean() for one in shown]) > 0.2
    actions, (state,) = played(policy, shown)
    others, (other,) = played(policy, changed)
    np.testing.assert_array_equal(others, actions)
    np.testing.assert_array_equal(other, state)
    for observation in changed:
        observation["pairs"][..., SEEN] = 1
    assert (played(policy, changed)[0] != actions).any()  # what is seen is read


def test_a_saved_policy_plays_the_same_and_other_sizes(tmp_path):
    policy = fresh()
    save_policy(tmp_path, policy, config_on(SHARED))
    _, config = load_policy(tmp_path)
    agents = [as_agent(policy, config, SHARED, name="made"), load_agent(tmp_path, SHARED)._replace(name="read")]
    agents = evaluate(agents, SHARED, episodes=2, max_episode_steps=20, progress=False)["agents"]
    assert agents["made"]["coverage"] == agents["read"]["coverage"]
    larger = load_scenario("hit-mac-6x9").replace(knowledge="shared")
    assert played(load_agent(tmp_path, larger).policy, observations(larger))[0].shape == (12, 5, 6)
    with pytest.raises(ValueError, match="memory is 'lstm'"):
        config_on(SHARED, memory="lstm")
