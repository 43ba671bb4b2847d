"""Stable-Baselines3 environments: equal to the single environments, with a row for a scene or for a sensor."""

import copy

import gymnasium
import numpy as np
import pytest

from hitmac import envs
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv


def test_scenes_are_the_single_environments():
    venv = DirectionalSensorVecEnv("Coverage", 3, max_episode_steps=6)
    venv.seed(20)
    singles = [gymnasium.make("dsn/Coverage-v0", max_episode_steps=6) for _ in range(3)]
    observation = venv.reset()
    returns = np.zeros(3)
    for b, single in enumerate(singles):
        np.testing.assert_equal({k: v[b] for k, v in observation.items()}, single.reset(seed=20 + b)[0])
    rng = np.random.default_rng(0)
    for step in range(1, 15):
        action = rng.integers(0, 3, (3, 4))
        observation, rewards, dones, infos = venv.step(action)
        for b, single in enumerate(singles):
            shown, reward, _, truncated, info = single.step(action[b])
            returns[b] += reward
            assert rewards[b] == np.float32(reward)
            assert dones[b] == truncated == infos[b]["TimeLimit.truncated"] == (step % 6 == 0)
            own = ("coverage", "turned", "visible")
            np.testing.assert_equal({key: infos[b][key] for key in own}, {key: info[key] for key in own})
            if truncated:
                np.testing.assert_equal(infos[b]["terminal_observation"], shown)
                assert (infos[b]["episode"]["r"], infos[b]["episode"]["l"]) == (pytest.approx(returns[b]), 6)
                returns[b] = 0
                shown, _ = single.reset()
            np.testing.assert_equal({k: v[b] for k, v in observation.items()}, shown)


def test_a_row_for_every_sensor():
    """Rows are the sensors of the joint environment, each with its own reward and its own last observation."""
    joint = DirectionalSensorVecEnv("Executor", 3, seed=5, max_episode_steps=4, per_sensor=False)
    rows = DirectionalSensorVecEnv("Executor", 3, seed=5, max_episode_steps=4)
    joint.seed(5)
    rows.seed(5)
    assert rows.num_envs == 12
    assert rows.action_space == gymnasium.spaces.Discrete(3)
    rng = np.random.default_rng(0)
    whole, apart = joint.reset(), rows.reset()
    returns = np.zeros(12)
    for step in range(1, 10):
        for key in whole:
            np.testing.assert_array_equal(apart[key], whole[key].reshape(12, *whole[key].shape[2:]))
        assert rows.observation_space.contains({key: value[7] for key, value in apart.items()})
        action = rng.integers(0, 3, (3, 4))
        whole, _, dones, infos = joint.step(action)
        apart, rewards, row_dones, row_infos = rows.step(action.ravel())
        assert row_dones.tolist() == np.repeat(dones, 4).tolist()
        own = np.stack([info["rewards"] for info in infos]).ravel()
        np.testing.assert_array_equal(rewards, own.astype(np.float32))
        returns += own
        for row in range(12):
            if step % 4 == 0:
                last = infos[row // 4]["terminal_observation"]["pairs"][row % 4]
                np.testing.assert_array_equal(row_infos[row]["terminal_observation"]["pairs"], last)
                assert row_infos[row]["episode"]["r"] == pytest.approx(returns[row])
        if step % 4 == 0:
            returns[:] = 0


def test_staggered_scenes_end_one_after_another():
    venv = DirectionalSensorVecEnv("Coverage", 4, max_episode_steps=8, stagger=True)
    venv.reset()
    ends, lengths = [], []
    for _ in range(16):
        _, _, dones, infos = venv.step(np.zeros((4, 4), int))
        ends.append(np.flatnonzero(dones).tolist())
        lengths += [info["episode"]["l"] for info in infos if "episode" in info]
    assert ends == [[], [3], [], [2], [], [1], [], [0]] * 2
    assert lengths == [2, 4, 6, 8, 8, 8, 8, 8]


def test_the_other_calls_of_a_vec_env():
    venv = DirectionalSensorVecEnv("Coverage", 3)
    assert venv.get_attr("num_envs") == [3, 3, 3]
    assert venv.get_attr("features", [0]) == [envs.DEFAULT_FEATURES]
    assert venv.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    assert venv.has_attr("scenario")
    assert not venv.has_attr("nothing")
    venv.set_attr("note", 1)
    assert venv.get_attr("note", 2) == [1]
    venv.set_options([{"heading": np.full(4, 10 * b)} for b in range(3)])
    returned = venv.reset()
    assert venv.task.simulator.state.heading.tolist() == [[10 * b] * 4 for b in range(3)]
    copies = copy.deepcopy(returned)
    venv.step(np.ones((3, 4), int))
    np.testing.assert_equal(returned, copies)
    assert venv.get_images() == [None] * 3


def test_wrong_use_is_refused():
    venv = DirectionalSensorVecEnv("Coverage", 2, per_sensor=True)
    venv.reset()
    with pytest.raises(ValueError, match="cannot be set for"):
        venv.set_attr("note", 1, [0])
    with pytest.raises(AttributeError, match="have no method 'fly'"):
        venv.env_method("fly")
    with pytest.raises(ValueError, match=r"action has shape \(2, 4\); it must have shape \(8,\)"):
        venv.step(np.zeros((2, 4), int))
    for options, says in (
        ({"task": "Coverage", "credit": "tea"}, "credit is 'tea'; it must be team"),
        ({"task": "Coverage", "credit": "difference_rewards"}, "CoverageTask has no difference rewards"),
        ({"task": "Coordinator", "per_sensor": True}, "CoordinatorTask decides for all sensors at once"),
    ):
        with pytest.raises(ValueError, match=says):
            DirectionalSensorVecEnv(**options)
