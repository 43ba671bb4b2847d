"""Pictures of scenes by the colours at places of the arena, and films."""

import sys

import numpy as np
import pytest

from hitmac import envs
from hitmac.envs.render import Picture, check_film, save_pictures, save_png
from hitmac.envs.tasks import CoordinatorTask, CoverageTask

QUIET = {"num_sensors": 1, "num_targets": 1, "walk": "still", "extra_move_every": 0}
STAY = np.zeros((1, 1), int)


def drawn(task, **places):
    """Place sensors and targets, draw the scene, and return its colour at a place of the arena."""
    task.simulator.place(**places)
    picture = Picture(task.scenario, 400).of_task(task, 0)
    scale = 400 * 0.88 / (2 * task.scenario.arena)
    return lambda x, y: picture[round(200 - y * scale), round(200 + x * scale)].astype(int)


def task_of(**changes):
    return CoverageTask(envs.Scenario(**QUIET | changes), 1, 0)


def shaded(colour):
    return colour[2] - colour[0] > 10


def test_obstacles_and_their_shadows():
    task = task_of(discs=[(300, 0, 60)], walls=[(0, -600, 0, -700)])
    at = drawn(task, sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    assert at(300, 0).max() < 130  # the disc itself
    assert at(500, 0).min() > 240  # its shadow
    assert [shaded(at(x, y)) for x, y in ((150, 0), (300, 0), (500, 0), (500, 300))] == [True, False, False, True]
    assert at(0, -650).max() < 130


def test_last_known_positions_fade_with_their_age():
    """The first target is seen only before the sensor turns away, the second always, the third never."""
    task, colour = task_of(num_targets=3, knowledge="own", time_step=1, walk="goals"), []
    drawn(task, sensor_position=[(0, 0)], heading=[40], target_position=[(500, 0), (0, 400), (-900, -900)])
    task.step(STAY)
    for steps in (1, 100):
        at = drawn(task, heading=[90])
        for _ in range(steps):
            task.step(STAY)
        place = task.simulator.known.known_position[0, 0, 0]
        colour.append(drawn(task)(*place))
    first, last = colour
    assert first[2] > first[1] + 30  # purple
    assert last.sum() > first.sum() + 100
    assert last[2] > last[1] + 10
    task.simulator.known = None
    at = drawn(task)(*place)
    assert at[2] - at[1] < 10


def test_zones_are_tinted():
    task = task_of(zones=[[(-900, -900), (-500, -900), (-900, -500)]], zone_values=[2])
    at = drawn(task, sensor_position=[(0, 0)], heading=[0], target_position=[(500, 0)])
    assert [at(x, y)[2] < at(x, y)[0] - 10 for x, y in ((-850, -850), (-520, -520), (500, 500))] == [True, False, False]


def test_a_view_has_its_width_and_range():
    task = task_of(field_of_view=30, zoom=(10, 40), zoom_step=20)
    at = drawn(task, sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    assert [shaded(at(x, y)) for x, y in ((700, 0), (700, 150), (900, 0))] == [True, True, False]
    task.step(np.array([[0, 1]]))
    assert [shaded(drawn(task)(x, y)) for x, y in ((700, 0), (700, 150), (900, 0))] == [True, False, True]
    task = task_of(field_of_view=360, sensing_range=1900)
    at = drawn(task, sensor_position=[(-900, 0)], heading=[0], target_position=[(-1000, 0)])
    assert shaded(at(977, 247))  # 1893 away: a circle has no corners


def test_a_tilted_view_is_a_ring_sector():
    """Tilted by 45 degrees, a view of 53.13 degrees begins at 1/3 and ends at 3 times the height."""
    task = task_of(
        field_of_view=30, tilt_limits=[(45, 45)], mount_height=200, vertical_view=2 * np.degrees(np.arctan(0.5))
    )
    at = drawn(task, sensor_position=[(0, 0)], heading=[0], target_position=[(-1000, 0)])
    assert [shaded(at(x, 0)) for x in (40, 100, 550, 650)] == [False, True, True, False]


def test_seen_targets_are_discs_unseen_ones_rings_and_absent_ones_not_drawn():
    task = task_of(num_targets=2, failure_rate=1, leave_rate=1)
    at = drawn(task, sensor_position=[(0, 0)], heading=[0], target_position=[(500, 0), (-900, -900)])
    assert at(0, 0)[2] > at(0, 0)[0] + 50
    assert at(500, 0)[1] > at(500, 0)[0] + 50
    assert at(-900, -900).min() > 240  # the ring is empty
    assert shaded(at(300, 100))
    assert drawn(task, heading=[180])(500, 0).min() > 240
    task.step(STAY)
    at = drawn(task, heading=[0])
    assert np.ptp(at(0, 0)) < 10  # a failed sensor is grey
    assert at(500, 0).min() > 240
    assert at(300, 0).min() > 240


def test_assignments_are_lines():
    task = CoordinatorTask(envs.Scenario(**QUIET | {"num_targets": 2}), 1, 0, idle="hold", decision=1)
    drawn(task, sensor_position=[(0, 0)], heading=[180], target_position=[(900, 900), (900, -900)])
    task.step(np.array([[1, 0]]))
    at = drawn(task)
    assert at(450, 450).max() < 240
    assert at(450, -450).min() > 240


@pytest.mark.parametrize(
    "caption", ["", "still", "assign-in-range:pretrained:hit-mac   coverage so far 0.81   sub-step 1010"]
)
def test_a_caption_is_as_wide_as_the_picture_at_most(caption):
    task = task_of()
    shown, bare = (Picture(task.scenario, 300).draw(task.simulator, 0, one) for one in (caption, ""))
    columns = np.flatnonzero((shown != bare).any((0, 2)))
    assert columns.size == 0 if not caption else 2 < columns.min() < columns.max() < 297


def test_names_of_sensors_are_inside_the_picture_in_letters_that_the_font_has():
    def drawn_with(name):
        task = task_of(placement="fixed", sensor_positions=((-1000.0, 0.0),), sensor_names=(name,))
        return Picture(task.scenario, 300).draw(task.simulator, 0, "")

    columns = np.flatnonzero((drawn_with("the-entrance-hall-of-the-north-west") != drawn_with(".")).any((0, 2)))
    assert columns.min() < 3
    assert columns.max() > 130
    np.testing.assert_array_equal(drawn_with("Tür"), drawn_with("Tur"))
    np.testing.assert_array_equal(drawn_with("東京"), drawn_with("1"))


def test_the_name_of_a_sensor_on_the_upper_border_is_not_in_the_caption():
    task = task_of(placement="fixed", sensor_positions=((0.0, 1250.0),), sensor_names=("north",))
    task.simulator.place(heading=[-90])
    assert (Picture(task.scenario, 300).draw(task.simulator, 0, "")[:13] > 240).all()


def test_the_ending_of_a_name_is_the_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = np.zeros((64, 64, 3), np.uint8)
    save_pictures("FILM.GIF", [picture])
    save_png("picture.PNG", picture)
    for write, path, endings in ((save_pictures, "film.gif.png", ".gif or .mp4"), (save_png, "picture.jpg", ".png")):
        with pytest.raises(ValueError, match=rf"path is '{path}'; its name must end in {endings}"):
            write(path, [picture])
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ModuleNotFoundError, match=r"MP4 film requires imageio-ffmpeg: pip install 'hitmac\[render\]'"):
        check_film("path", "film.mp4")
    check_film("path", "film.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["FILM.GIF", "picture.PNG"]
    for size in (63, 4097):
        with pytest.raises(ValueError, match=f"size is {size}; it must be 64 to 4096 pixels"):
            Picture(envs.load_scenario("hit-mac"), size)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of imageio-ffmpeg's reader
def test_an_mp4_shows_the_pictures_or_leaves_nothing(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    film, again = tmp_path / "film.MP4", tmp_path / "again.mp4"
    colours = [(200, 30, 30), (30, 160, 60), (40, 60, 200)]
    pictures = [np.full((63, 81, 3), colour, np.uint8) for colour in colours for _ in range(4)]
    for path in (film, again):
        save_pictures(path, pictures, frames_per_second=10)
    assert again.read_bytes() == film.read_bytes()
    about, *frames = ffmpeg.read_frames(str(film))
    assert (about["codec"], about["fps"], about["size"]) == ("h264", 10.0, (82, 64))
    for frame, picture in zip(frames, pictures, strict=True):
        shown = np.frombuffer(frame, np.uint8).reshape(64, 82, 3)
        assert np.abs(shown[:63, :81].astype(int) - picture).max() < 12
    with pytest.raises(Exception):  # noqa: B017, PT011 (of ffmpeg's choice)
        save_pictures(tmp_path / "broken.mp4", [np.zeros((8, 8, 3), np.uint8), np.zeros((5, 5), np.uint8)])
    assert sorted(tmp_path.iterdir()) == sorted((film, again))
