"""Pictures, windows and films of all environments."""

import pickle
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from hitmac import envs

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make("dsn/Coverage-v0", render_mode="human"),
        lambda: gymnasium.make_vec("dsn/Coverage-v0", num_envs=2, render_mode="human"),
        lambda: envs.parallel_env("Coverage", render_mode="human"),
    ],
)
def test_a_window_shows_every_step(make, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    env = make()
    env.reset(seed=0)
    assert pygame.display.get_surface().get_size() == (600, 600)
    before = pygame.surfarray.array3d(pygame.display.get_surface())
    if hasattr(env, "possible_agents"):
        env.step(dict.fromkeys(env.agents, 1))
    else:
        env.step(np.ones(env.action_space.shape, int))
    assert (pygame.surfarray.array3d(pygame.display.get_surface()) != before).any()
    assert env.render() is None
    env.close()
    assert not pygame.display.get_init()


def test_an_environment_with_pictures_can_be_pickled():
    env = gymnasium.make("dsn/Coverage-v0", render_mode="rgb_array", scenario="obstacles")
    env.reset(seed=0)
    copy = pickle.loads(pickle.dumps(env))
    action = env.action_space.sample()
    env.step(action)
    copy.step(action)
    np.testing.assert_array_equal(env.render(), copy.render())


def test_a_vector_has_a_picture_of_every_scene():
    vector = gymnasium.make_vec("dsn/Coverage-v0", num_envs=2, render_mode="rgb_array")
    one, other = vector.render()
    assert one.shape == other.shape == (600, 600, 3)
    assert (one != other).any()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of imageio-ffmpeg's reader
def test_gymnasiums_record_video_records(tmp_path, frames_of):
    pytest.importorskip("moviepy", reason="moviepy, which RecordVideo writes with, is not installed")
    env = gymnasium.make("dsn/Coordinator-v0", scenario="hit-mac-2x3", render_mode="rgb_array", max_episode_steps=7)
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "films"), disable_logger=True)
    env.reset(seed=0)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
    env.close()
    (film,) = tmp_path.glob("films/*.mp4")
    about, frames = frames_of(film)
    assert about["fps"] == pytest.approx(env.metadata["render_fps"], rel=0.01)
    assert 7 <= len(frames) <= 9  # the start and each step


def test_envs_need_no_pillow_until_something_is_drawn():
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "import gymnasium, envs\n"
        "gymnasium.make('dsn/Coverage-v0').reset(seed=0)\n"
        "gymnasium.make('dsn/Coverage-v0', render_mode='rgb_array')"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: pictures need Pillow: pip install 'hitmac[render]'" in ended.stderr
