"""Recorded tracks: the files, the targets that come and go with them, and every task and agent on them."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.utils.env_checker import check_env

from hitmac import envs
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.command import main as evaluate_main
from hitmac.agents.registry import SCRIPTED
from hitmac.agents.training.config import CoverageOptions
from hitmac.agents.training.train import make_environments
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.recordings import read_recording, shortest_recording
from hitmac.envs.scenario import KNOWLEDGE
from hitmac.envs.tasks import TASKS, CoverageTask

STILL = np.zeros((1, 2), np.int64)


def write(path, *rows, header="time,id,x,y"):
    path.write_text("\n".join((header, *rows)) + "\n")
    return str(path)


def scene(*paths, **changes):
    """Two sensors on a field of 20 m by 10 m, which see all that is not behind them, and sub-steps of a second."""
    return Scenario(
        **{
            "arena": (10, 5), "num_sensors": 2, "num_targets": 2, "placement": "fixed", "time_step": 1.0,
            "sensor_positions": [(-10, 0), (10, 0)], "sensor_headings": [0, 180], "sensing_range": 30,
            "field_of_view": 170, "max_speed": 5, "tracks": paths,
        }
        | changes
    )  # fmt: skip


@pytest.fixture
def walk(tmp_path):
    """Target a for 600 s along x; target b for two parts of it, in rows of another order."""
    rows = [f"{t},a,{-6 + 0.02 * t:.2f},1" for t in range(601)]
    rows += [f"{t},b,0,{t / 200:.3f}" for t in (*range(400, 501), *range(100, 201))]
    return write(tmp_path / "walk.csv", *rows)


def test_the_columns_and_the_rows_may_be_in_any_order(tmp_path):
    one = write(tmp_path / "one.csv", "0,7,1,2", "1,7,3,4", "2,7,5,4")
    rows = "4,x, 5 ,7,2", "2,x,1,7,0", "4,x,3,7,1", ""
    other = write(tmp_path / "other.csv", *rows, header="y, kind ,X,id,Time")
    for path in (one, other):
        (track,) = read_recording(path, 1.0).tracks
        np.testing.assert_array_equal(track.place, [[1, 2], [3, 4], [5, 4]])


def test_positions_between_rows_are_on_the_line(tmp_path):
    path = write(tmp_path / "a.csv", "10,a,0,0", "10.5,a,1,2", "11.1,a,1,8")
    recording = read_recording(path, 0.25)
    assert (recording.start, recording.length) == (10, 5)
    np.testing.assert_allclose(recording.tracks[0].place, [[0, 0], [0.5, 1], [1, 2], [1, 4.5], [1, 7]])


def test_rows_that_are_absent_or_empty_are_gaps(tmp_path):
    there = [[0, 0], [1, 0], [np.nan, np.nan], [3, 0], [4, 0]]
    for gap in ((), ("2,a,,",), ("2,a,nan,NaN",)):
        read_recording.cache_clear()
        path = write(tmp_path / "a.csv", "0,a,0,0", "1,a,1,0", *gap, "3,a,3,0", "4,a,4,0")
        np.testing.assert_array_equal(read_recording(path, 1.0).tracks[0].place, there)
    fine = read_recording(path, 0.5).tracks[0].place[:, 0]
    np.testing.assert_array_equal(fine, [0, 0.5, 1, np.nan, np.nan, np.nan, 3, 3.5, 4])


def test_an_episode_lasts_as_long_as_its_file(walk):
    simulator = Simulator(scene(walk), 1, 0)
    assert simulator.rows.recordings.place.shape == (601, 2, 2)
    for t in range(601):
        np.testing.assert_allclose(simulator.state.target_position[0, 0], (-6 + 0.02 * t, 1), atol=1e-9)
        assert simulator.state.present[0].tolist() == [True, 100 <= t <= 200 or 400 <= t <= 500], t
        assert simulator.track_ended[0] == (t == 600)
        if simulator.state.present[0, 1]:
            np.testing.assert_allclose(simulator.state.target_position[0, 1], (0, t / 200), atol=1e-9)
            came = t in (100, 400)
            np.testing.assert_allclose(simulator.state.velocity[0, 1], (0, 0 if came else 1 / 200), atol=1e-9)
        simulator.step(STILL)
    assert (simulator.state.velocity[0] == 0).all()


def test_who_is_not_there_does_not_count(walk):
    task = CoverageTask(scene(walk, sensor_headings=(180, 180)), 1, 0)  # sensor 0 looks out of the field
    for t in range(150):
        shown = task.observe()
        assert shown["mask"][0].sum(0).tolist() == [2, 2 * (t >= 100)]
        assert (shown["pairs"][0, :, 1] != 0).any() == (t >= 100)
        task.step(np.array([[0, 0]]))
        assert task.simulator.coverage[0] == 1.0
    away = CoverageTask(scene(walk, sensor_headings=(180, 0)), 1, 0)
    away.step(np.array([[0, 0]]))
    assert away.simulator.coverage[0] == 0.0


def test_a_target_takes_the_place_of_one_that_is_gone(tmp_path):
    times = {"a": (0, 10), "b": (2, 5), "c": (5, 10), "d": (7, 10)}
    rows = [f"{t},{name},{x},0" for x, (name, part) in enumerate(times.items()) for t in range(*part)]
    path = write(tmp_path / "a.csv", *rows)
    place = Simulator(scene(path, num_targets=3), 1, 0).rows.recordings.place
    np.testing.assert_array_equal(place[:, 0, 0], np.zeros(10))
    b, c, d, none = 1, 2, 3, np.nan
    np.testing.assert_array_equal(place[:, 1, 0], [none, none, b, b, b, none, none, d, d, d])
    np.testing.assert_array_equal(place[:, 2, 0], [none] * 5 + [c] * 5)  # not in place 1: it would look like a jump
    with pytest.raises(ValueError, match=r"a.csv has up to 3 targets at once, .*; num_targets is 2, it must be 3 or"):
        Simulator(scene(path), 1, 0)


def test_the_seed_of_a_scene_chooses_file_and_start(tmp_path):
    files = [
        write(tmp_path / f"{k}.csv", *(f"{t},a,{t / 100},{k}" for t in range(length)))
        for k, length in enumerate((101, 301))
    ]
    whole = scene(*files)
    batch = Simulator(whole, 400, 5, num_threads=2)
    file, start = batch.state.target_position[:, 0, 1], batch.state.target_position[:, 0, 0] * 100
    assert 120 < file.sum() < 280
    assert (start == 0).all()
    some = Simulator(whole.replace(episode_steps=100), 400, 5, num_threads=2)
    file, start = some.state.target_position[:, 0, 1], some.state.target_position[:, 0, 0] * 100
    assert (start[file == 0] == 0).all()
    assert start[file == 1].min() < 10
    assert 190 < start[file == 1].max() <= 200
    for k in (0, 7, 399):
        single = Simulator(whole.replace(episode_steps=100), 1, 5 + k)
        for _ in range(3):
            np.testing.assert_array_equal(single.state.target_position[0], some.state.target_position[k])
            single.step(STILL)
            some.step(np.zeros((400, 2), np.int64))
        some.reset(seed=5)
    before = some.state.target_position.copy()
    some.reset()
    assert (some.state.target_position != before).any()


def test_a_copy_has_the_same_future(walk):
    simulator = Simulator(scene(walk, episode_steps=50), 3, 0)
    simulator.step(np.zeros((3, 2), np.int64))
    state, copy = simulator.get_state(), simulator.clone()
    other = Simulator(scene(walk, episode_steps=50), 3, 9)
    other.set_state(state)
    for _ in range(20):
        for one in (simulator, copy, other):
            one.step(np.zeros((3, 2), np.int64))
    for name, value in simulator.get_state().items():
        np.testing.assert_array_equal(value, copy.get_state()[name], err_msg=name)
        np.testing.assert_array_equal(value, other.get_state()[name], err_msg=name)
    with pytest.raises(ValueError, match="state 'recording_row' holds a number that is not from 0 to 600"):
        other.set_state(state | {"recording_row": np.full(3, 601)})


def test_an_episode_ends_with_its_file(tmp_path):
    path = write(tmp_path / "a.csv", *(f"{t},a,0,{t / 100}" for t in range(8)))
    env = gymnasium.make("dsn/Coverage-v0", scenario=scene(path))
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(7)]
    assert ends == [False] * 6 + [True]
    vector = gymnasium.make_vec("dsn/Coverage-v0", 3, scenario=scene(path))
    vector.reset(seed=0)
    for t in range(20):
        *_, truncated, _ = vector.step(vector.action_space.sample())
        assert truncated.all() == truncated.any() == (t in (6, 14))  # then a step that resets


def test_placed_tracks_have_no_extra_moves_and_may_have_gaps():
    """600 rows last 600 sub-steps, also in a scenario whose targets move twice now and then."""
    simulator = Simulator("hit-mac", 2, 0)
    tracks = np.zeros((600, 5, 2)) + np.arange(600)[:, None, None]
    tracks[100:200, 1] = np.nan
    simulator.reset(options={"target_tracks": tracks})
    for t in range(600):
        assert not simulator.track_ended.any()
        simulator.step(np.zeros((2, 4), np.int64))
        there = np.arange(5) != 1 if 100 <= t < 200 else np.ones(5, bool)
        np.testing.assert_array_equal(simulator.state.present, [there, there])
        np.testing.assert_array_equal(simulator.state.target_position[:, there], t)
        assert np.isfinite(simulator.state.target_position).all()
    assert simulator.track_ended.all()
    simulator.step(np.zeros((2, 4), np.int64))
    np.testing.assert_array_equal(simulator.state.target_position, 599)


def test_a_target_can_be_absent_at_first():
    task = CoverageTask("hit-mac", 2, 0)
    assert task.observe()["mask"].all()
    places = np.zeros((5, 2))
    places[2] = np.nan
    task.reset(options={"target_position": places, "target_tracks": np.full((9, 5, 2), 50.0)})
    assert task.observe()["mask"].sum(1).tolist() == [[4, 4, 0, 4, 4]] * 2
    task.step(np.zeros((2, 4), np.int64))
    assert task.observe()["mask"].all()
    assert (task.simulator.state.velocity[:, 2] == 0).all()
    half = np.stack((np.zeros(5), np.full(5, np.nan)), -1)
    for name, wrong in (("target_position", half), ("target_tracks", half[None]), ("heading", np.full(4, np.nan))):
        with pytest.raises(ValueError, match=rf"{name} holds nan; every number must be finite"):
            task.simulator.place(**{name: wrong})
    leaving = Simulator(load_scenario("hit-mac").replace(leave_rate=0.1), 1, 0)
    with pytest.raises(ValueError, match=r"target_tracks holds nan; with a leave_rate \(0.1\) every number must be"):
        leaving.place(target_tracks=np.full((3, 5, 2), np.nan))


def test_a_file_is_relative_to_the_yaml(walk, tmp_path, monkeypatch):
    folder = tmp_path / "sites"
    folder.mkdir()
    given = scene(walk).to_dict()
    for tracks in ("../walk.csv", ["../walk.csv"], walk):
        (folder / "site.yaml").write_text(yaml.safe_dump(given | {"tracks": tracks}))
        loaded = load_scenario(folder / "site.yaml")
        assert loaded.tracks == (walk,)
        assert loaded.replace(name="custom") == scene(walk)
    monkeypatch.chdir(tmp_path)
    assert Scenario(tracks="walk.csv") == Scenario(tracks=[walk])
    loaded.save(tmp_path / "saved.yaml")
    assert load_scenario(tmp_path / "saved.yaml") == loaded
    assert hash(loaded)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: the header is ''; it must name time, id, x and y once each"),
        ("time,id,x\n", "line 1: the header is 'time, id, x'; it must name"),
        ("time,id,x,y,x\n", "once each"),
        ("time,id,x,y\n0,a,1,2\n1,a,1\n", "line 3: it has 3 fields; the header has 4"),
        ("time,id,x,y\nnoon,a,1,2\n", "line 2: time is 'noon'; it must be a finite number"),
        ("time,id,x,y\nnan,a,1,2\n", "line 2: time is nan; it must be a number of seconds"),
        ("time,id,x,y\n0,a,inf,2\n", "line 2: x is 'inf'; it must be a finite number"),
        ("time,id,x,y\n0,a,1,\n", "line 2: x is 1 and y is empty; give both or neither"),
        ("time,id,x,y\n0,,1,2\n", "line 2: id is empty; every row must name its target"),
        ("time,id,x,y\n0,a,1,2\n0.0,a,1,3\n", "line 3: target a has a row at 0.0 s already"),
        ("time,id,x,y\n", "has no row with a position"),
        ("time,id,x,y\n0,a,1,2\n0.5,a,1,2\n", r"lasts 0.5 s .*; it must last at least a time_step \(1 s\)"),
        ("time,id,x,y\n0,a,1,2\n1e9,a,1,2\n", "at most 5,000,000 positions"),
        ("time,id,x,y\n0,a,1,2\n1,a,11,2\n", r"has a target at x = 11 at 1 s; the arena is \+-10 x \+-5"),
        (b"time,id,x,y\n0,\xff,1,2\n", r"is no text in UTF-8: it has the byte 0xff"),
        ('time,id,x,y\n0,"a,1,2\n' + "z" * 200_000, "line 3: field larger than field limit"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(tmp_path, text, says):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=says) as raised:
        Simulator(scene(str(path)), 1, 0)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_or_changes(tmp_path, walk):
    absent = scene(str(tmp_path / "absent.csv"))  # a scenario can be loaded without its files
    with pytest.raises(FileNotFoundError, match=r"absent\.csv"):
        Simulator(absent, 1, 0)
    write(tmp_path / "walk.csv", "0,a,0,0", "5,a,1,1")
    assert shortest_recording(scene(walk)) == 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"leave_rate": 0.1}, "leave_rate is 0.1; it must be 0 with tracks"),
        ({"min_targets": 1}, "min_targets is 1; it must be 0 with tracks"),
    ],
)
def test_what_does_not_fit_tracks_is_named(walk, changes, says):
    with pytest.raises(ValueError, match=says):
        scene(walk, **changes)


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize("task", TASKS)
def test_every_task_with_every_knowledge(task, knowledge, walk):
    env = gymnasium.make(TASKS[task].spec.id, scenario=scene(walk, knowledge=knowledge, episode_steps=500))
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=3)
    for _ in range(30):
        env.step(env.action_space.sample())


def test_a_target_that_leaves_in_sight_is_known_to_have_left(walk):
    task = CoverageTask(scene(walk, knowledge="shared"), 1, 0)
    for t in range(210):
        assert task.observe()["mask"][0, 0].tolist() == [1, 100 <= t <= 200], t
        task.step(np.array([[0, 0]]))


@pytest.mark.parametrize("name", [name for name in SCRIPTED if name != "exact"])
def test_every_agent_plays(name, walk):
    result = evaluate(name, scene(walk), episodes=2, max_episode_steps=10, progress=False)
    assert 0 <= result["agents"][name]["coverage"]["mean"] <= 1


def test_evaluations_take_whole_episodes_of_the_files(walk, tmp_path, capsys):
    short = write(tmp_path / "short.csv", *(f"{t},a,0,{t / 100}" for t in range(31)))
    both = scene(walk, short)
    result = evaluate("still", both, episodes=5, max_episode_steps=40, bounds=True, progress=False)
    assert len(result["agents"]["still"]["over_time"]) == 30  # sub-steps of the shorter file
    assert result["agents"]["free turning"]["coverage"]["mean"] >= result["agents"]["still"]["coverage"]["mean"]
    assert evaluate_executors({"scripted": "scripted"}, both, episodes=2, max_episode_steps=40, progress=False)[
        "agents"
    ]
    scene(walk).save(tmp_path / "site.yaml")
    evaluate_main([
        "--scenario", str(tmp_path / "site.yaml"), "--tracks", short, "--agents", "still", "--episodes", "2",
        "--pictures", str(tmp_path / "pictures"),
    ])  # fmt: skip
    assert "still" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        evaluate_main(["--tracks", str(tmp_path / "no.csv"), "--agents", "still"])
    assert "no.csv" in capsys.readouterr().err
    for others in ([], ["--agents", "still"]):  # not those of the scenario
        with pytest.raises(SystemExit) as end:
            evaluate_main(["--scenario", str(tmp_path / "site.yaml"), "--tracks", *others])
        assert end.value.code == 2
        assert "--tracks is given without a value" in capsys.readouterr().err


def test_training_takes_episodes_from_anywhere_in_the_files(walk):
    options = CoverageOptions(scenario="hit-mac", episode_steps=20, num_envs=64, tracks=(walk,))
    venv = make_environments(options, scene(walk))
    venv.seed(0)
    venv.reset()
    row = venv.task.simulator.rows.recordings.row
    assert row.min() < 100
    assert 480 < row.max() <= 580
    assert venv.max_episode_steps == 20
    ended = np.array([venv.step(np.zeros((64, 2), np.int64))[2] for _ in range(40)])
    assert (ended.sum(0) == 2).all()


def test_the_installed_names():
    assert "tracks" in envs.Scenario.__doc__


def test_moves_that_are_placed_include_extra_moves():
    simulator = Simulator("hit-mac", 2, 0)
    simulator.place(target_moves=np.zeros((22, 5, 2)) + np.arange(22)[:, None, None], mask=np.array([True, False]))
    simulator.place(target_tracks=np.zeros((22, 5, 2)) + np.arange(22)[:, None, None], mask=np.array([False, True]))
    for t in range(20):
        simulator.step(np.zeros((2, 4), np.int64))
        assert simulator.state.target_position[:, 0, 0].tolist() == [t + 1 + (t >= 10), t]
    assert simulator.track_ended.tolist() == [True, False]


def test_the_site_of_the_documentation(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    (tmp_path / "site.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    tracks = re.search(r"```\n(time,id.*?)```", page, re.DOTALL)[1] + "9.00,17,0,0\n8.96,17,0,1\n"
    for day in ("monday", "tuesday"):
        (tmp_path / f"{day}.csv").write_text(tracks)
    simulator = Simulator(tmp_path / "site.yaml", 2, 0)
    np.testing.assert_allclose(simulator.state.target_position[:, 0], [(-20.1, 3.2)] * 2)
