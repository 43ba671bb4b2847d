"""The worked sites: their files, a floor plan under the pictures, and runs that move together with their tracks."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from examples.site import make_site
from hitmac.agents.command_line import parse
from hitmac.agents.learned.checkpoint import load_policy, save_policy
from hitmac.agents.training.config import JOBS, given_options
from hitmac.agents.training.resume import open_run, resolve
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.parts.recordings import make_recordings, most_at_once, read_recording, recordings
from hitmac.envs.render import Picture, save_pictures, save_png
from hitmac.envs.tasks import CoverageTask
from tests.agents.untrained import untrained

SITE = Path(make_site.__file__).parent
CONCOURSE = SITE.parent / "concourse"
TRACKS = sorted((SITE / "tracks").glob("*.csv"))


def test_people_walk_from_door_to_door_past_the_walls():
    scenario = load_scenario(SITE / "site.yaml").replace(tracks=list(map(str, TRACKS)))
    assert len(TRACKS) == make_site.DAYS
    assert TRACKS[0].read_text().splitlines()[1:] == make_site.day(1, scenario)
    for recording in (read_recording(path, scenario.time_step) for path in scenario.tracks):
        for track in recording.tracks:
            assert make_site.distances_to_walls(track.place, np.array(scenario.walls)).min() > 0.1
            assert np.hypot(*np.diff(track.place, axis=0).T).max() <= scenario.max_speed * scenario.time_step
            ends = np.linalg.norm(track.place[[0, -1], None] - make_site.DOORS, axis=-1).min(-1)
            assert ends[0] < 2.0 or track.first == 0
            assert ends[1] < 2.0 or track.first + len(track.place) == recording.length
    make_recordings(scenario, 1)


def test_people_in_the_concourse_walk_around_the_columns():
    scenario = load_scenario(CONCOURSE / "concourse.yaml")
    files = sorted(str(path) for path in (CONCOURSE / "tracks").glob("*.csv"))
    assert scenario.tracks == tuple(files[:5])
    assert len(files) == 8
    for recording in recordings(scenario, files):
        assert recording.length == 240 / scenario.time_step + 1
        for track in recording.tracks:
            for x, y, radius in scenario.discs:
                assert np.hypot(*(track.place - (x, y)).T).min() > radius
            assert np.hypot(*np.diff(track.place, axis=0).T).max(initial=0) <= scenario.max_speed * scenario.time_step
    assert scenario.num_targets == most_at_once(scenario)
    make_recordings(scenario.following(files), 1)


def test_the_background_is_fitted_to_the_arena(tmp_path):
    floor = tmp_path / "floor.png"  # red on the left and transparent on the right, its upper half dark
    pixels = np.zeros((20, 40, 4), np.uint8)
    pixels[..., 0], pixels[:, :20, 3] = 200, 255
    pixels[:10, :, 0] = 100
    Image.fromarray(pixels).save(floor)
    site = Scenario(
        arena=(20, 10), num_sensors=1, num_targets=1, placement="fixed", sensor_positions=[(19, 9)], sensing_range=1
    )
    task = CoverageTask(site, 1, 0)
    task.simulator.place(target_position=[(15, 8)])
    drawn = Picture(site.replace(background=str(floor)), 400).of_task(task, 0).astype(int)
    scale = (drawn.shape[1] - 0.12 * 400) / 40

    def at(x, y):
        return drawn[round(drawn.shape[0] / 2 - y * scale), round(drawn.shape[1] / 2 + x * scale)]

    for x, y, red in ((-19, 9, 100), (-2, 2, 100), (-19, -9, 200), (-2, -2, 200)):
        np.testing.assert_allclose(at(x, y), (red, 0, 0), atol=12)
    for x, y in ((2, -2), (-20.5, 0), (0, 10.5)):  # transparent, and outside the arena
        assert at(x, y).min() > 240
    np.testing.assert_array_equal(drawn[:, 240:], Picture(site, 400).of_task(task, 0)[:, 240:])
    floor.write_text("no picture")
    for name, kind, says in (
        ("absent.png", FileNotFoundError, "there is no such file"),
        ("floor.png", ValueError, "it must be a picture that Pillow reads"),
    ):
        with pytest.raises(kind, match=f"background is .*{name}'; {says}"):
            Picture(site.replace(background=str(tmp_path / name)))


def test_marks_keep_their_colours_on_any_background(tmp_path):
    across, down = np.meshgrid(np.arange(200), np.arange(200))
    frame = np.stack((across, down, 255 - across), -1).astype(np.uint8)
    marks = {60: (34, 139, 74), 100: (208, 57, 43), 140: (120, 70, 150)}  # seen, unseen, last known
    for k, colour in marks.items():
        frame[k : k + 2, k : k + 2] = colour
    save_pictures(tmp_path / "film.gif", [frame, frame])
    save_png(tmp_path / "picture.png", frame)
    for name in ("film.gif", "picture.png"):
        with Image.open(tmp_path / name) as shown:
            drawn = np.asarray(shown.convert("RGB"))
        for k, colour in marks.items():
            np.testing.assert_array_equal(drawn[k, k], colour, err_msg=name)
        assert np.abs(drawn.astype(int) - frame).mean() < 25


def prepared(*arguments):
    asked = parse(JOBS["coverage"], "train.py", arguments)
    options, scenario = resolve(asked, given_options(JOBS["coverage"], arguments))
    with open_run(options, scenario):
        return scenario


def resumed(run_dir, *arguments):
    return prepared("--run-dir", str(run_dir), "--resume", *arguments)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Folder with the site and a run that was made in it."""
    here = tmp_path / "here"
    shutil.copytree(SITE, here / "site", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(here)
    prepared("--scenario", "site/site.yaml", "--run-dir", "runs/one")
    return here


def finds(scenario, folder):
    """Return whether the files of a scenario are those in the folder of a site."""
    files = {folder / "tracks" / f"day-{number}.csv" for number in range(1, 6)} | {folder / "floor.png"}
    return {Path(path) for path in (*scenario.tracks, scenario.background)} == files


@pytest.mark.parametrize("use", [resumed, load_scenario, lambda run: load_policy(run)[1].scenario])
def test_a_run_that_moves_with_its_files_finds_them(use, project, tmp_path, monkeypatch):
    save_policy("runs/one/checkpoint", *untrained("site/site.yaml", features=("distance",)))
    written = yaml.safe_load((project / "runs/one/config.yaml").read_text())["scenario"]
    assert (written["background"], written["tracks"][0]) == ("../../site/floor.png", "../../site/tracks/day-1.csv")
    for name in ("config.yaml", "checkpoint/config.json"):  # no folder of the machine
        assert str(tmp_path) not in (project / "runs/one" / name).read_text()
    assert finds(resumed("runs/one", "--scenario", "site/site.yaml"), project / "site")
    monkeypatch.chdir(tmp_path)
    assert finds(use(project / "runs/one"), project / "site")
    moved = project.rename(tmp_path / "moved")
    monkeypatch.chdir(moved)
    for _ in range(2):  # a resumed run is written again
        assert finds(use(Path("runs/one")), moved / "site")
    (moved / "runs/one").rename(tmp_path / "one")  # alone, used where the files are
    assert finds(use(tmp_path / "one"), moved / "site")


def test_a_run_whose_files_are_elsewhere_takes_tracks(project, tmp_path):
    (project / "site/tracks").rename(tmp_path / "tracks")
    with pytest.raises(FileNotFoundError, match=r"no file of tracks .*day-1.csv; the option --tracks"):
        resumed("runs/one")
    found = [str(tmp_path / "tracks" / f"day-{number}.csv") for number in range(1, 6)]
    assert resumed("runs/one", "--tracks", *found).tracks == tuple(found)
    assert resumed("runs/one").tracks == tuple(found)
    with pytest.raises(ValueError, match=r"--tracks is \(.*, but the run in runs/one has \(.*it cannot be changed"):
        resumed("runs/one", "--tracks", found[1], found[0], *found[2:])
    (project / "site/floor.png").unlink()
    with pytest.raises(FileNotFoundError, match="background"):
        prepared("--scenario", "site/site.yaml", "--run-dir", "runs/two", "--tracks", *found)
    assert not Path("runs/two").exists()
