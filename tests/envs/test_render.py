"""Pictures, the window, and ``hitmac scenarios``."""

import pickle
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image

from hitmac import envs
from hitmac.agents.scenarios import main
from hitmac.envs.render import Picture, check_film, save_pictures, save_png
from hitmac.envs.tasks import TASKS, CoordinatorTask, CoverageTask

ROOT = Path(__file__).parents[2]
QUIET = {"walk": "still", "extra_move_every": 0}


def colours(picture, scenario):
    """Looks up the colour at a place in the arena."""
    size = len(picture)
    scale = size * 0.88 / (2 * scenario.arena)

    def at(x, y):
        return picture[round(size / 2 - y * scale), round(size / 2 + x * scale)].astype(int)

    return at


def draw(scenario, **places):
    task = CoverageTask(scenario, 1, 0)
    task.simulator.place(**places)
    return colours(Picture(scenario, 300).of_task(task, 0), scenario), task


def shaded(colour):
    return colour[2] - colour[0] > 10


def test_obstacles_and_their_shadows():
    scenario = envs.Scenario(num_sensors=1, num_targets=1, discs=[(300, 0, 60)], walls=[(0, -600, 0, -700)], **QUIET)
    at, _ = draw(scenario, sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    assert shaded(at(150, 0))
    assert not shaded(at(300, 0))  # the disc itself
    assert at(300, 0).max() < 130
    assert not shaded(at(500, 0))  # its shadow
    assert at(500, 0).min() > 240
    assert shaded(at(500, 300))
    assert at(0, -650).max() < 130


def test_last_known_positions_fade_with_their_age():
    """The first target is seen only before the sensor turns away, the second always, the third never."""
    scenario = envs.Scenario(num_sensors=1, num_targets=3, knowledge="own", time_step=1, extra_move_every=0)
    task = CoverageTask(scenario, 1, 0)
    task.simulator.place(sensor_position=[(0, 0)], heading=[40], target_position=[(500, 0), (0, 400), (-900, -900)])
    picture, colour = Picture(scenario, 300), []
    task.step(np.zeros((1, 1), int))
    task.simulator.place(heading=[90])
    for steps in (1, 100):
        for _ in range(steps):
            task.step(np.zeros((1, 1), int))
        x, y = task.simulator.known.known_position[0, 0, 0]
        colour.append(colours(picture.of_task(task, 0), scenario)(x, y))
    first, last = colour
    assert first[2] > first[1] + 30  # purple
    assert last.sum() > first.sum() + 100
    assert last[2] > last[1] + 10
    task.simulator.known = None
    full = colours(picture.of_task(task, 0), scenario)
    assert full(x, y)[2] - full(x, y)[1] < 10


def test_a_view_is_as_wide_and_as_long_as_it_is():
    scenario = envs.Scenario(num_sensors=1, num_targets=1, field_of_view=30, zoom=(10, 40), zoom_step=20, **QUIET)
    at, task = draw(scenario, sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    assert shaded(at(700, 0))
    assert shaded(at(700, 150))
    assert not shaded(at(900, 0))
    task.step(np.array([[0, 1]]))
    at = colours(Picture(scenario, 300).of_task(task, 0), scenario)
    assert shaded(at(900, 0))
    assert not shaded(at(700, 150))


def test_the_failed_are_grey_and_the_gone_are_not_drawn():
    scenario = envs.Scenario(num_sensors=1, num_targets=1, failure_rate=1, leave_rate=1, **QUIET)
    at, task = draw(scenario, sensor_position=[(0, 0)], heading=[0], target_position=[(700, 0)])
    assert at(0, 0)[2] > at(0, 0)[0] + 50
    assert at(700, 0)[1] > at(700, 0)[0] + 50
    task.step(np.zeros((1, 1), int))
    at = colours(Picture(scenario, 300).of_task(task, 0), scenario)
    assert np.ptp(at(0, 0)) < 10
    assert at(700, 0).min() > 240
    assert at(300, 0).min() > 240


def test_assignments_are_lines():
    scenario = envs.Scenario(num_sensors=1, num_targets=2, **QUIET)
    task = CoordinatorTask(scenario, 1, 0, idle="hold", decision=1)
    task.simulator.place(sensor_position=[(0, 0)], heading=[180], target_position=[(900, 900), (900, -900)])
    task.step(np.array([[1, 0]]))
    at = colours(Picture(scenario, 600).of_task(task, 0), scenario)
    assert at(450, 450).max() < 240
    assert at(450, -450).min() > 240


def test_pictures_of_any_size():
    for size in (64, 301):
        assert Picture(envs.load_scenario("large"), size).of_task(CoverageTask("large", 1, 0), 0).shape == (
            size,
            size,
            3,
        )
    with pytest.raises(ValueError, match="size is 63; it must be 64 pixels or more"):
        Picture(envs.load_scenario("hit-mac"), 63)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make("dsn/Coverage-v0", render_mode="human"),
        lambda: gymnasium.make_vec("dsn/Coverage-v0", num_envs=2, render_mode="human"),
        lambda: envs.parallel_env("Coverage", render_mode="human"),
    ],
)
def test_a_window(make, monkeypatch):
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
    for _ in range(3):
        action = env.action_space.sample()
        env.step(action)
        copy.step(action)
    np.testing.assert_array_equal(env.render(), copy.render())


def test_the_command_line_lists(capsys):
    main([])
    listed = capsys.readouterr().out
    for name in [*envs.presets(), *(f"dsn/{task}-v0" for task in envs.TASKS)]:
        assert name in listed
    assert max(map(len, listed.splitlines())) <= 100


def test_the_command_line_films_and_draws(tmp_path, capsys):
    film, picture = tmp_path / "film.gif", tmp_path / "picture.png"
    main(["obstacles", "--film", str(film), "--picture", str(picture), "--steps", "5", "--size", "100"])
    with Image.open(film) as shown:
        assert (shown.n_frames, shown.size) == (5, (100, 100))
    with Image.open(picture) as shown:
        assert shown.size == (100, 100)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.gif", "picture.png"]


def test_an_agent_of_any_name_is_filmed(tmp_path):
    films = []
    for agent in ("pretrained:flat", "planner-fast:turn_cost=1", "assign-all", "still"):
        film = tmp_path / "film.gif"
        main(["hit-mac-3x4", "--agent", agent, "--film", str(film), "--steps", "8", "--size", "100"])
        films.append(film.read_bytes())
    assert len(set(films)) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["hit-mac", "--agent", "plannr", "--film", "x.gif"], "unknown agent 'plannr' (did you mean planner?)"),
        (["nowhere", "--film", "x.gif"], "unknown scenario 'nowhere': known are basketball-4"),
        (["hit-mac", "--film", "absent/x.gif", "--steps", "2"], "absent"),
        (["hit-mac", "--film", "x.gif", "--steps", "0"], "--steps is 0; it must be 1 to 100000"),
        (["hit-mac", "--film", "x.gif", "--size", "9"], "size is 9"),
        # Before anything is made, or the scenario would be what is wrong.
        (["nowhere", "--film", "out.avi"], "--film is 'out.avi'; its name must end in .gif or .mp4"),
        (["nowhere", "--film", "film"], "--film is 'film'; its name must end in .gif"),
        (["nowhere", "--film", "x.gif", "--picture", "x.jpg"], "--picture is 'x.jpg'; its name must end in .png"),
    ],
)
def test_a_bad_command_line_ends_with_one_line(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_is_what_its_name_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = np.zeros((64, 64, 3), np.uint8)
    save_pictures("FILM.GIF", [picture])
    save_png("picture.PNG", picture)
    for path in ("film", "film.gif.png"):
        with pytest.raises(ValueError, match=rf"path is '{path}'; its name must end in .gif"):
            save_pictures(path, [picture])
    with pytest.raises(ValueError, match=r"path is 'picture.jpg'; its name must end in .png"):
        save_png("picture.jpg", picture)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["FILM.GIF", "picture.PNG"]


def frames_of(path):
    reader = pytest.importorskip("imageio_ffmpeg").read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]


def test_an_mp4_shows_the_pictures(tmp_path):
    colours = [(200, 30, 30), (30, 160, 60), (40, 60, 200)]
    pictures = [np.full((63, 81, 3), colour, np.uint8) for colour in colours for _ in range(4)]
    save_pictures(tmp_path / "film.MP4", pictures, frames_per_second=10)
    about, frames = frames_of(tmp_path / "film.MP4")
    assert (about["codec"], about["fps"], about["size"]) == ("h264", 10.0, (82, 64))
    assert len(frames) == 12
    for frame, picture in zip(frames, pictures, strict=True):
        assert np.abs(frame[:63, :81].astype(int) - picture).max() < 12
    again = tmp_path / "again.mp4"
    save_pictures(again, pictures, frames_per_second=10)
    assert again.read_bytes() == (tmp_path / "film.MP4").read_bytes()


def test_a_film_that_breaks_leaves_nothing(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    with pytest.raises(Exception):  # noqa: B017, PT011 (of ffmpeg's choice)
        save_pictures(tmp_path / "film.mp4", [np.zeros((8, 8, 3), np.uint8), np.zeros((5, 5), np.uint8)])
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_an_mp4_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ModuleNotFoundError, match=r"an MP4 film needs imageio-ffmpeg: pip install 'hitmac\[render\]'"):
        check_film("path", tmp_path / "film.mp4")
    check_film("path", tmp_path / "film.gif")
    with pytest.raises(ValueError, match=r"path is 'film.avi'; its name must end in .gif or .mp4"):
        save_pictures("film.avi", [])


@pytest.mark.parametrize("task", sorted(TASKS))
def test_gymnasiums_record_video_records(task, tmp_path):
    pytest.importorskip("moviepy", reason="moviepy, which RecordVideo writes with, is not installed")
    env = gymnasium.make(TASKS[task].spec.id, scenario="hit-mac-2x3", render_mode="rgb_array", max_episode_steps=7)
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


def test_a_scenario_is_shown_on_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda page: None)
    main(["hit-mac", "--agent", "still", "--steps", "2"])
    assert capsys.readouterr().out.startswith("watch.html: still; ")
    assert Path("watch.html").is_file()


def test_every_preset_has_a_picture_that_the_pages_show():
    pages = (ROOT / "README.md").read_text() + (ROOT / "docs" / "environments.md").read_text()
    for name in envs.presets():
        path = f"envs/scenes/{name}.png"
        assert (ROOT / path).is_file()
        assert path in pages


def test_envs_need_no_pillow_until_something_is_drawn():
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "import gymnasium, envs\n"
        "gymnasium.make('dsn/Coverage-v0').reset(seed=0)\n"
        "gymnasium.make('dsn/Coverage-v0', render_mode='rgb_array')"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: pictures need Pillow: pip install 'hitmac[render]'" in ended.stderr
