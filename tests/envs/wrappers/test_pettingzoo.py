import gymnasium
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from hitmac import envs

TASKS = list(envs.TASKS)


def act(env, rng):
    return {agent: rng.integers(0, 2, env.action_space(agent).shape) for agent in env.agents}


def trajectory(env, seed):
    rng = np.random.default_rng(0)
    steps = [env.reset(seed=seed)]
    for _ in range(12):
        steps.append(env.step(act(env, rng)))
    return steps


@pytest.mark.parametrize("task", TASKS)
def test_the_api(task):
    parallel_api_test(envs.parallel_env(task, max_episode_steps=30), num_cycles=100)
    parallel_seed_test(lambda: envs.parallel_env(task))


@pytest.mark.parametrize("task", TASKS)
def test_whole_trajectories_depend_on_the_seed_alone(task):
    env = envs.parallel_env(task)
    one = trajectory(env, 1)
    trajectory(env, 2)
    np.testing.assert_equal(trajectory(env, 1), one)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(trajectory(env, 2), one)


@pytest.mark.parametrize("task", TASKS)
def test_the_agents_are_the_sensors_of_the_joint_environment(task):
    joint, apart = gymnasium.make(f"dsn/{task}-v0"), envs.parallel_env(task)
    whole, _ = joint.reset(seed=4)
    shown, _ = apart.reset(seed=4)
    rng = np.random.default_rng(0)
    for _ in range(15):
        for i, agent in enumerate(apart.agents):
            for key in whole:
                np.testing.assert_array_equal(shown[agent][key], whole[key][i])
            assert apart.observation_space(agent).contains(shown[agent])
        actions = act(apart, rng)
        whole, reward, _, _, info = joint.step(np.stack(list(actions.values())).ravel())
        shown, rewards, _, _, infos = apart.step(actions)
        assert np.mean(list(rewards.values())) == pytest.approx(reward)
        np.testing.assert_equal(infos["sensor_2"]["coverage"], info["coverage"])
        if task == "Executor":
            assert list(rewards.values()) == info["rewards"].tolist()


def test_episodes_end_for_all_at_once():
    env = envs.parallel_env(max_episode_steps=2)
    env.reset(seed=0, options={"heading": [0, 1, 2, 3]})
    assert env.task.simulator.state.heading.tolist() == [[0, 1, 2, 3]]
    for end in (False, True):
        _, _, terminations, truncations, _ = env.step(dict.fromkeys(env.agents, 0))
        assert set(terminations.values()) == {False}
        assert set(truncations.values()) == {end}
    assert env.agents == []
    assert env.state().shape == (4 * 5 * 8,)


def test_every_agent_has_random_numbers_of_its_own():
    for task in TASKS:
        env = envs.parallel_env(task)
        assert len({id(env.action_space(agent)) for agent in env.possible_agents}) == 4


def test_bad_input():
    with pytest.raises(ValueError, match="unknown task 'Chess': known are Coverage, Executor, Coordinator"):
        envs.parallel_env("Chess")
    env = envs.parallel_env()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions are for sensor_0; they must be for"):
        env.step({"sensor_0": 1})
    with pytest.raises(ValueError, match="action holds 7"):
        env.step(dict.fromkeys(env.agents, 7))
