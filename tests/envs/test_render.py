"""Pictures of scenes by the colours at places of the arena, and films."""

import sys

import numpy as np
import pytest

from hitmac import envs
from hitmac.envs.render import Picture, check_film, save_pictures, save_png
from hitmac.envs.tasks import CoordinatorTask, CoverageTask

QUIET = {"num_sensors": 1, "num_targets": 1, "walk": "still", "extra_move_every": 0}


def colours(picture, scenario):
    """Return the colour of a picture at a place of the arena."""
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
    scenario = envs.Scenario(discs=[(300, 0, 60)], walls=[(0, -600, 0, -700)], **QUIET)
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


def test_a_view_has_its_width_and_range():
    scenario = envs.Scenario(field_of_view=30, zoom=(10, 40), zoom_step=20, **QUIET)
    at, task = draw(scenario, sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    assert shaded(at(700, 0))
    assert shaded(at(700, 150))
    assert not shaded(at(900, 0))
    task.step(np.array([[0, 1]]))
    at = colours(Picture(scenario, 300).of_task(task, 0), scenario)
    assert shaded(at(900, 0))
    assert not shaded(at(700, 150))


def test_failed_sensors_are_grey_and_absent_targets_are_not_drawn():
    scenario = envs.Scenario(failure_rate=1, leave_rate=1, **QUIET)
    at, task = draw(scenario, sensor_position=[(0, 0)], heading=[0], target_position=[(700, 0)])
    assert at(0, 0)[2] > at(0, 0)[0] + 50
    assert at(700, 0)[1] > at(700, 0)[0] + 50
    task.step(np.zeros((1, 1), int))
    at = colours(Picture(scenario, 300).of_task(task, 0), scenario)
    assert np.ptp(at(0, 0)) < 10
    assert at(700, 0).min() > 240
    assert at(300, 0).min() > 240


def test_assignments_are_lines():
    scenario = envs.Scenario(**QUIET | {"num_targets": 2})
    task = CoordinatorTask(scenario, 1, 0, idle="hold", decision=1)
    task.simulator.place(sensor_position=[(0, 0)], heading=[180], target_position=[(900, 900), (900, -900)])
    task.step(np.array([[1, 0]]))
    at = colours(Picture(scenario, 600).of_task(task, 0), scenario)
    assert at(450, 450).max() < 240
    assert at(450, -450).min() > 240


def test_seen_targets_are_discs_and_unseen_ones_rings():
    scenario = envs.Scenario(**QUIET | {"num_targets": 2})
    at, task = draw(scenario, sensor_position=[(0, 0)], heading=[0], target_position=[(500, 0), (-900, -900)])
    red, green, _ = at(500, 0)
    assert green > red + 50
    assert at(-900, -900).min() > 240  # the ring is empty
    assert shaded(at(300, 100))
    assert not shaded(at(-300, 100))
    task.simulator.place(heading=[180])
    assert colours(Picture(scenario, 300).of_task(task, 0), scenario)(500, 0).min() > 240


def test_pictures_have_any_size():
    for size in (64, 301):
        drawn = Picture(envs.load_scenario("large"), size).of_task(CoverageTask("large", 1, 0), 0)
        assert (drawn.shape, drawn.dtype) == ((size, size, 3), np.uint8)
    with pytest.raises(ValueError, match="size is 63; it must be 64 pixels or more"):
        Picture(envs.load_scenario("hit-mac"), 63)


def test_the_ending_of_a_name_is_the_format(tmp_path, monkeypatch):
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


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of imageio-ffmpeg's reader
def test_an_mp4_shows_the_pictures(tmp_path, frames_of):
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


def test_an_mp4_needs_ffmpeg(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ModuleNotFoundError, match=r"an MP4 film needs imageio-ffmpeg: pip install 'hitmac\[render\]'"):
        check_film("path", tmp_path / "film.mp4")
    check_film("path", tmp_path / "film.gif")
    with pytest.raises(ValueError, match=r"path is 'film.avi'; its name must end in .gif or .mp4"):
        save_pictures("film.avi", [])
