"""The worked site: its files, its floor plan under the pictures, and runs that move together with their tracks."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from examples.site import make_site
from hitmac.agents.command_line import parse
from hitmac.agents.evaluate import save_film
from hitmac.agents.learned.checkpoint import PolicyConfig, build_policy, load_policy, save_policy
from hitmac.agents.training.config import JOBS, given_options
from hitmac.agents.training.resume import prepare
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.kernels.rails import limits_of
from hitmac.envs.recordings import make_recordings, read_recording
from hitmac.envs.render import Picture, save_pictures, save_png
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import CoverageTask

SITE = Path(make_site.__file__).parent
TRACKS = sorted((SITE / "tracks").glob("*.csv"))


def test_the_site_is_what_its_program_makes():
    scenario = load_scenario(SITE / "site.yaml")
    assert len(TRACKS) == make_site.DAYS
    for number, path in enumerate(TRACKS, 1):
        assert path.read_text().splitlines()[1:] == make_site.day(number, scenario)
    assert sum(path.stat().st_size for path in TRACKS) < 300_000
    assert (SITE / "floor.png").stat().st_size < 100_000


def test_everybody_walks_from_door_to_door_past_the_walls():
    scenario = load_scenario(SITE / "site.yaml")
    walls, whole = np.array(scenario.walls), 0
    for path in TRACKS:
        recording = read_recording(str(path), scenario.time_step)
        for track in recording.tracks:
            assert np.isfinite(track.place).all()
            assert make_site.distances_to_walls(track.place, walls).min() > 0.1
            assert np.hypot(*np.diff(track.place, axis=0).T).max() <= scenario.max_speed * scenario.time_step
            ends = np.linalg.norm(track.place[[0, -1], None] - make_site.DOORS, axis=-1).min(-1)
            inside = track.first > 0, track.first + len(track.place) < recording.length
            assert all(end < 2.0 for end, known in zip(ends, inside, strict=True) if known)
            whole += all(inside)
    assert whole > 40


def test_the_cameras_differ_and_all_files_fit():
    scenario = load_scenario(SITE / "site.yaml")
    for name in ("sensing_range", "field_of_view", "turn_angle"):
        assert len(set(getattr(scenario, name))) > 2
    assert np.isfinite(limits_of(scenario)).all()
    make_recordings(scenario.replace(tracks=list(map(str, TRACKS))), 1)


@pytest.fixture
def floor(tmp_path):
    """A picture of 40 x 20 pixels, red on the left and transparent on the right, its upper half dark."""
    pixels = np.zeros((20, 40, 4), np.uint8)
    pixels[..., 0], pixels[:, :20, 3] = 200, 255
    pixels[:10, :, 0] = 100
    Image.fromarray(pixels).save(tmp_path / "floor.png")
    return tmp_path / "floor.png"


def scene(**changes):
    return Scenario(**{"arena": (20, 10), "num_sensors": 1, "num_targets": 1, "placement": "fixed"} | changes)


def test_the_background_is_fitted_to_the_arena(floor):
    placed = {"sensor_positions": [(19, 9)], "sensing_range": 1}
    task = CoverageTask(scene(background=str(floor), **placed), 1, 0)
    task.simulator.place(target_position=[(15, 8)])
    picture = Picture(task.scenario, 400)
    drawn = picture.of_task(task, 0).astype(int)
    scale = (drawn.shape[1] - 0.12 * 400) / 40

    def at(x, y):
        return drawn[round((drawn.shape[0]) / 2 - y * scale), round(drawn.shape[1] / 2 + x * scale)]

    for x, y, red in ((-19, 9, 100), (-2, 2, 100), (-19, -9, 200), (-2, -2, 200)):
        np.testing.assert_allclose(at(x, y), (red, 0, 0), atol=12)
    for x, y in ((2, -2), (-20.5, 0), (0, 10.5)):  # transparent, and outside the arena
        assert at(x, y).min() > 240
    plain = Picture(task.scenario.replace(background=""), 400).of_task(task, 0)
    np.testing.assert_array_equal(drawn[:, 240:], plain[:, 240:])


def test_the_background_changes_nothing_else(floor):
    one, other = (Simulator(load_scenario("hit-mac").replace(background=path), 2, 0) for path in ("", str(floor)))
    for name, value in one.get_state().items():
        np.testing.assert_array_equal(value, other.get_state()[name])


def test_a_background_is_relative_to_the_yaml(floor, monkeypatch):
    (floor.parent / "site.yaml").write_text("arena: 9\nbackground: floor.png\n")
    assert load_scenario(floor.parent / "site.yaml").background == str(floor)
    monkeypatch.chdir(floor.parent)
    made = Scenario(background="floor.png")
    assert made.background == str(floor)
    made.save(floor.parent / "saved.yaml")
    assert load_scenario("saved.yaml") == made
    assert Scenario(background=floor) == made


def test_a_background_that_cannot_be_drawn_is_named(tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    for name, kind, says in (
        ("absent.png", FileNotFoundError, r"absent.png'; there is no such file"),
        ("text.png", ValueError, r"text.png'; it must be a picture that Pillow reads"),
        (".", ValueError, "it must be a picture"),
    ):
        scenario = scene(background=str(tmp_path / name), sensor_positions=[(0, 0)])  # needs no picture
        Simulator(scenario, 1, 0)
        with pytest.raises(kind, match=f"background is .*{says}"):
            Picture(scenario)
    with pytest.raises(TypeError, match="background is 3; it must be the name of a file"):
        Scenario(background=3)


def test_a_film_shows_what_is_known(tmp_path):
    films = []
    for knowledge in ("full", "shared", "full"):
        scenario = load_scenario("hit-mac").replace(knowledge=knowledge)
        save_film(tmp_path / "film.gif", "still", scenario, seed=0, sub_steps=200, every=100, size=200)
        films.append((tmp_path / "film.gif").read_bytes())
    assert films[0] == films[2] != films[1]


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


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the site and a run on it, which was made there."""
    here = tmp_path / "here"
    shutil.copytree(SITE, here / "site", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(here)
    arguments = ["--scenario", "site/site.yaml", "--run-dir", "runs/one"]
    prepare(parse(JOBS["coverage"], "train.py", arguments), given_options(JOBS["coverage"], arguments))
    return here


def resumed(run_dir, *arguments):
    arguments = ["--run-dir", str(run_dir), "--resume", *arguments]
    return prepare(parse(JOBS["coverage"], "train.py", arguments), given_options(JOBS["coverage"], arguments))[1]


def files_of(scenario):
    return {Path(path) for path in (*scenario.tracks, scenario.background)}


def files_in(folder):
    return {folder / "tracks" / f"day-{number}.csv" for number in range(1, 6)} | {folder / "floor.png"}


def test_a_run_names_no_folder_of_the_machine(project):
    assert str(project.parent) not in (project / "runs/one/config.yaml").read_text()
    written = yaml.safe_load((project / "runs/one/config.yaml").read_text())["scenario"]
    assert (written["background"], written["tracks"][0]) == ("../../site/floor.png", "../../site/tracks/day-1.csv")


def test_a_checkpoint_names_no_folder_of_the_machine_and_moves_with_its_files(project, tmp_path):
    scenario = load_scenario(project / "site/site.yaml")
    config = PolicyConfig(
        policy={"weight_dim": 8}, features=("distance",), scenario=scenario, training_seeds=(2**40, 2**40)
    )
    save_policy(project / "runs/one/checkpoint", build_policy(config, scenario), config)
    assert str(tmp_path) not in (project / "runs/one/checkpoint/config.json").read_text()
    project.rename(tmp_path / "there")
    _, loaded = load_policy(tmp_path / "there/runs/one")
    assert files_of(loaded.scenario) == files_in(tmp_path / "there/site")


@pytest.mark.parametrize("use", [resumed, load_scenario])
def test_a_run_that_moves_with_its_files_finds_them(use, project, tmp_path, monkeypatch):
    assert files_of(use(project / "runs/one")) == files_in(project / "site")
    monkeypatch.chdir(tmp_path)
    assert files_of(use(project / "runs/one")) == files_in(project / "site")
    project.rename(tmp_path / "there")
    there = tmp_path / "there"
    assert files_of(use(there / "runs/one")) == files_in(there / "site")
    monkeypatch.chdir(there)
    assert files_of(use(Path("runs/one"))) == files_in(there / "site")
    assert files_of(use(Path("runs/one"))) == files_in(there / "site")  # written again
    (there / "runs/one").rename(tmp_path / "one")  # alone, used where the files are
    assert files_of(use(tmp_path / "one")) == files_in(there / "site")


def test_a_run_whose_files_are_elsewhere_takes_tracks(project, tmp_path, monkeypatch):
    (project / "site/tracks").rename(tmp_path / "tracks")
    with pytest.raises(FileNotFoundError, match=r"no file of tracks .*day-1.csv; the option --tracks"):
        resumed("runs/one")
    with pytest.raises(FileNotFoundError, match="--tracks"):
        Simulator("runs/one", 1, 0)
    found = [str(tmp_path / "tracks" / f"day-{number}.csv") for number in range(1, 6)]
    assert resumed("runs/one", "--tracks", *found).tracks == tuple(found)
    assert resumed("runs/one").tracks == tuple(found)
    with pytest.raises(ValueError, match=r"--tracks is \(.*, but the run in runs/one has \(.*it cannot be changed"):
        resumed("runs/one", "--tracks", found[1], found[0], *found[2:])


def test_the_same_scenario_may_be_named_again(project):
    assert files_of(resumed("runs/one", "--scenario", "site/site.yaml")) == files_in(project / "site")


def test_a_run_is_not_made_without_its_files(project):
    (project / "site/floor.png").unlink()
    arguments = ["--scenario", "site/site.yaml", "--run-dir", "runs/two"]
    with pytest.raises(FileNotFoundError, match="background"):
        prepare(parse(JOBS["coverage"], "train.py", arguments), given_options(JOBS["coverage"], arguments))
    assert not Path("runs/two").exists()
