"""PettingZoo environment of both teams of a duel: equal to the environments of each team."""

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from hitmac import envs
from hitmac.envs.entities import EntityObserver

SMALL = envs.load_scenario("mate-2v4-0")


@pytest.mark.parametrize("scenario", [SMALL, SMALL.replace(action="rate")])
def test_it_passes_the_tests_of_pettingzoo(scenario):
    parallel_api_test(envs.parallel_env(scenario=scenario, teams=True, max_episode_steps=30), num_cycles=100)
    parallel_seed_test(lambda: envs.parallel_env(scenario=scenario, teams=True, max_episode_steps=30))


def test_the_agents_are_both_teams_and_the_game_is_zero_sum():
    env = envs.parallel_env(scenario=SMALL, teams=True)
    shown, infos = env.reset(seed=3)
    assert env.agents == ["camera_0", "camera_1", "target_0", "target_1", "target_2", "target_3"]
    rng, duel, total = np.random.default_rng(0), envs.Simulator(SMALL, 1, 3), 0.0
    observers = {"camera": EntityObserver(SMALL, "sensors"), "target": EntityObserver(SMALL, "targets")}
    for _ in range(60):
        for agent in env.agents:
            word, number = agent.split("_")
            assert env.observation_space(agent).contains(shown[agent])
            wanted = {key: value[0, int(number)] for key, value in observers[word].observe(duel).items()}
            np.testing.assert_equal(shown[agent], wanted)
        turns, moves = rng.integers(0, 3, (2, 2)), rng.integers(0, 17, 4)
        actions = {f"camera_{i}": turns[i] for i in range(2)} | {f"target_{j}": moves[j] for j in range(4)}
        shown, rewards, _, _, infos = env.step(actions)
        angle, step = np.radians(22.5 * (moves - 1)), (moves > 0) * duel.state.speed[0]
        duel.step(turns.T.reshape(1, 4), target_action=(step * [np.cos(angle), np.sin(angle)]).T[None])
        np.testing.assert_allclose(env.task.simulator.state.target_position, duel.state.target_position, atol=1e-9)
        reward = duel.game.target_reward[0]
        assert list(rewards.values()) == [-reward] * 2 + [reward] * 4
        assert infos["target_3"]["transport"] == infos["camera_0"]["transport"] == duel.game.transport_rate[0]
        total += abs(reward)
    assert total > 0
    assert env.state().shape == (2 * 9 + 4 * 14 + 4 + 16,)
