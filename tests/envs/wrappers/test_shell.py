"""Pictures and windows of all environments."""

import pickle
import sys

import gymnasium
import numpy as np
import pytest

from hitmac import envs
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

ID = "dsn/Coverage-v0"


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make(ID, render_mode="human"),
        lambda: gymnasium.make_vec(ID, num_envs=2, render_mode="human"),
        lambda: envs.parallel_env("Coverage", render_mode="human"),
        lambda: DirectionalSensorVecEnv("Coverage", 2, render_mode="human"),
    ],
)
def test_a_window_shows_every_step(make, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    env = make()
    env.reset()
    assert pygame.display.get_surface().get_size() == (600, 600)
    before = pygame.surfarray.array3d(pygame.display.get_surface())
    if hasattr(env, "possible_agents"):
        env.step(dict.fromkeys(env.agents, 1))
    else:
        env.step(np.ones((getattr(env, "num_envs", 1), 4), int).squeeze())
    assert (pygame.surfarray.array3d(pygame.display.get_surface()) != before).any()
    assert env.render() is None
    env.close()
    assert not pygame.display.get_init()


def test_pictures_are_of_every_scene_and_of_copies():
    env = gymnasium.make(ID, render_mode="rgb_array", scenario="obstacles")
    env.reset(seed=0)
    copy = pickle.loads(pickle.dumps(env))
    for one in (env, copy):
        one.step(np.zeros(env.action_space.shape, int))
    np.testing.assert_array_equal(env.render(), copy.render())
    one, other = gymnasium.make_vec(ID, num_envs=2, render_mode="rgb_array").render()
    assert one.shape == other.shape == (600, 600, 3)
    assert (one != other).any()


def test_pictures_need_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"pictures require Pillow: pip install 'hitmac\[render\]'"):
        gymnasium.make(ID, render_mode="rgb_array")
