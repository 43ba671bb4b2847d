"""PettingZoo environments: the agents are the sensors of the joint environment."""

import gymnasium
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test, state_test
from pettingzoo.utils import parallel_to_aec

from hitmac import envs
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.envs.scenes import BY_RATE, UNNAMED

CASES = [(task, None) for task in envs.TASKS]
CASES += [("Coverage", "obstacles"), ("Coverage", "random"), ("Coverage", "basketball-4"), ("Coverage", UNNAMED)]
CASES += [("Coverage", BY_RATE)]


@pytest.mark.parametrize(("task", "scenario"), CASES)
def test_the_agents_are_the_sensors_of_the_joint_environment(task, scenario):
    """The rows of Stable-Baselines3's environment, too, in tasks that turn the sensors."""
    parallel_api_test(envs.parallel_env(task, scenario=scenario, max_episode_steps=30), num_cycles=100)
    parallel_seed_test(lambda: envs.parallel_env(task, scenario=scenario))
    joint, apart = gymnasium.make(f"dsn/{task}-v0", scenario=scenario), envs.parallel_env(task, scenario=scenario)
    rows = DirectionalSensorVecEnv(task, 1, scenario, per_sensor=apart.task.turning)
    rows.seed(4)
    lines = rows.reset()
    whole, _ = joint.reset(seed=4)
    shown, _ = apart.reset(seed=4)
    n, rng = len(apart.possible_agents), np.random.default_rng(0)
    for _ in range(15):
        for key in whole:
            np.testing.assert_array_equal([shown[agent][key] for agent in apart.agents], whole[key])
            np.testing.assert_array_equal(lines[key].reshape(whole[key].shape), whole[key])
        assert all(apart.observation_space(agent).contains(shown[agent]) for agent in apart.agents)
        spaces = [apart.action_space(agent) for agent in apart.agents]
        own = np.stack([rng.integers(0, 2, space.shape).astype(space.dtype) for space in spaces])
        action = own.reshape(n, -1).T.ravel() if apart.task.turning else own.ravel()
        whole, reward, _, _, info = joint.step(action)
        shown, rewards, _, _, infos = apart.step(dict(zip(apart.agents, own, strict=True)))
        lines, line_rewards, _, _ = rows.step(own if apart.task.turning else action[None])
        apart_rewards = apart.task.sensor_rewards()
        assert list(rewards.values()) == ([reward] * n if apart_rewards is None else apart_rewards[0].tolist())
        total = 100 * n if task == "Transport" else 1  # of a team, in units of a cargo's worth
        assert total * np.mean(list(rewards.values())) == pytest.approx(reward)
        np.testing.assert_array_equal(line_rewards, np.float32(list(rewards.values())[: len(line_rewards)]))
        np.testing.assert_equal(infos[apart.agents[-1]]["coverage"], info["coverage"])


def test_every_agent_observes_the_discs_of_its_scene():
    """There may be fewer discs than agents."""
    scenario = envs.load_scenario("obstacles").replace(random_discs=2)
    apart = envs.parallel_env(scenario=scenario, discs=True)
    rows = DirectionalSensorVecEnv("Coverage", 1, scenario, per_sensor=True, discs=True)
    rows.seed(4)
    lines, (shown, _) = rows.reset()["discs"], apart.reset(seed=4)
    whole = apart.task.observe()["discs"][0]
    assert whole.shape == (2, 3)
    assert rows.observation_space["discs"].shape == whole.shape
    for i, agent in enumerate(apart.agents):
        assert apart.observation_space(agent).contains(shown[agent])
        np.testing.assert_array_equal(shown[agent]["discs"], whole)
        np.testing.assert_array_equal(lines[i], whole)


def test_episodes_end_for_all_agents_at_once():
    env = envs.parallel_env(max_episode_steps=2)
    env.reset(seed=0, options={"heading": [0, 1, 2, 3], "another": 1})
    with pytest.raises(ValueError, match="actions are for sensor_0; they must be for"):
        env.step({"sensor_0": 1})
    assert env.task.simulator.state.heading.tolist() == [[0, 1, 2, 3]]
    assert len({id(env.action_space(agent)) for agent in env.possible_agents}) == 4  # with random numbers of their own
    for end in (False, True):
        _, _, terminations, truncations, _ = env.step(dict.fromkeys(env.agents, 0))
        assert set(terminations.values()) == {False}
        assert set(truncations.values()) == {end}
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})
    np.testing.assert_array_equal(env.state(), env.task.observe()["pairs"].ravel())


def test_the_state_has_the_detections_of_all_sensors():
    env = envs.parallel_env(scenario=UNNAMED)
    env.reset(seed=0)
    shown = env.task.observe()
    np.testing.assert_array_equal(env.state(), np.append(shown["detections"], shown["sensors"]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scenario": "large-6x9", "nearest": 3},
        {"scenario": envs.load_scenario("hit-mac").replace(identities=False, knowledge="shared")},
        {"scenario": "mate-2v4-0", "teams": True},
    ],
)
@pytest.mark.filterwarnings("ignore:Environment's m")  # both teams' state has no limits
def test_the_state_passes_the_test_of_pettingzoo(options):
    env = envs.parallel_env(**options)
    env.reset(seed=0)
    assert env.state_space.contains(env.state())
    state_test(parallel_to_aec(env), env, num_cycles=5)
