"""Gymnasium environments of one scene."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from hitmac.envs import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES, load_scenario, parallel_env
from hitmac.envs.wrappers.gym_env import DirectionalSensorEnv
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv
from tests.envs.scenes import BY_RATE, UNNAMED

DUEL = load_scenario("mate-2v4-0")
BY_SHARES = DUEL.replace(action="rate")
ID = "dsn/Coverage-v0"
CASES = [
    (ID, tuple(FEATURES), "obstacles"), (ID, PAPER_FEATURES, "basketball-4"), (ID, DEFAULT_FEATURES, "random"),
    ("dsn/Executor-v0", DEFAULT_FEATURES, "hit-mac-executor"), ("dsn/Coordinator-v0", PAPER_FEATURES, "hit-mac"),
    (ID, None, UNNAMED), (ID, None, BY_RATE), (ID, "entities", DUEL), ("dsn/Transport-v0", None, DUEL),
    (ID, None, BY_SHARES), ("dsn/Executor-v0", None, DUEL), ("dsn/Executor-v0", None, BY_SHARES),
    ("dsn/Coordinator-v0", None, DUEL), ("dsn/Transport-v0", None, BY_SHARES),
]  # fmt: skip


# Stable-Baselines3 treats every array of three axes as an image, which should be uint8 and large, and warns of two.
@pytest.mark.filterwarnings("ignore:It seems that your observation", "ignore:The minimal resolution for an image")
@pytest.mark.filterwarnings("ignore:Treating image space as channels-last")
@pytest.mark.filterwarnings("ignore:Your observation sensors has an unconventional shape")
@pytest.mark.parametrize(("env_id", "features", "scenario"), CASES)
def test_api_checkers(env_id, features, scenario):
    check_env(gymnasium.make(env_id, render_mode="rgb_array", features=features, scenario=scenario).unwrapped)
    check_env_for_sb3(gymnasium.make(env_id, features=features, scenario=scenario))


def test_episodes_are_truncated():
    whole, long = gymnasium.make(ID), DirectionalSensorEnv("Coverage", max_episode_steps=1200)
    game = gymnasium.make(ID, scenario=DUEL.replace(episode_steps=1100))
    short = gymnasium.make(ID, max_episode_steps=7)
    for env, length in ((whole, 1010), (long, 1200), (game, 1100), (short, 7)):
        env.reset(seed=0)
        ends = [env.step(np.zeros(env.action_space.shape, int))[2:4] for _ in range(length)]
        assert ends == [(False, False)] * (length - 1) + [(False, True)]


@pytest.mark.parametrize(
    ("task", "scenario", "steps"),
    [
        ("Coverage", None, 1010), ("Coverage", "mate-4v8-9", 10_001), ("Coverage", "hit-mac-6x9", 1010),
        ("Coverage", "football-4", 100), ("Coordinator", "football-4", 10),
    ],
)  # fmt: skip
def test_every_environment_has_one_length_of_an_episode(task, scenario, steps):
    assert DirectionalSensorVecEnv(task, 2, scenario).max_episode_steps == steps
    assert parallel_env(task, scenario=scenario).max_episode_steps == steps
    assert gymnasium.make(f"dsn/{task}-v0", scenario=scenario).unwrapped.max_episode_steps == steps
    for mode in (None, "sync"):
        vector = gymnasium.make_vec(f"dsn/{task}-v0", 2, vectorization_mode=mode, scenario=scenario)
        assert set(vector.get_attr("max_episode_steps") if mode else [vector.max_episode_steps]) == {steps}


def test_a_spec_in_json_makes_the_same_environment():
    spec = gymnasium.make(ID, scenario=DUEL).spec
    assert gymnasium.make(type(spec).from_json(spec.to_json())).unwrapped.scenario == DUEL


def test_a_step_needs_a_reset():
    for make in (DirectionalSensorEnv, DirectionalSensorVectorEnv, DirectionalSensorVecEnv, parallel_env):
        env = make("Coverage")
        turns = np.zeros(4, int) if make is DirectionalSensorEnv else np.zeros((1, 4), int)
        action = dict.fromkeys(getattr(env, "possible_agents", []), 0) or turns
        with pytest.raises(ResetNeeded, match="call reset"):
            env.step(action)
        env.reset()
        env.step(action)


def test_reset_options_are_places():
    env = gymnasium.make(ID)
    tracks = np.zeros((3, 5, 2)) + np.arange(3)[:, None, None]
    env.reset(seed=0, options={"heading": [0, 90, 180, 270], "target_tracks": tracks})
    state = env.unwrapped.task.simulator.state
    assert state.heading[0].tolist() == [0, 90, 180, 270]
    for step in range(3):
        _, _, _, truncated, _ = env.step(np.zeros(4, int))
        assert state.target_position[0].tolist() == [[step, step]] * 5
        assert truncated == (step == 2)  # the tracks have ended
    env.reset()
    env.step(np.zeros(4, int))
    assert len(np.unique(state.target_position)) == 10  # walking again


@pytest.mark.filterwarnings("ignore:.*render_mode")  # gymnasium warns of an unknown mode before our error
def test_wrong_options_are_refused():
    for make in (gymnasium.make, lambda *args, **given: gymnasium.make_vec(*args, num_envs=2, **given)):
        for options, says in (
            ({"features": ["smell"]}, "unknown feature smell: known are"),
            ({"turn_cost": -1}, "turn_cost is -1.0; it must be 0 or more"),
            ({"render_mode": "ascii"}, "render_mode is 'ascii'; it must be rgb_array or human"),
        ):
            with pytest.raises(ValueError, match=says):
                make(ID, **options)
    for one in (DirectionalSensorEnv, parallel_env):
        with pytest.raises(ValueError, match=r"num_envs is 4; a DirectionalSensor.*Env has 1 scene"):
            one("Coverage", num_envs=4)
