"""Recorded tracks: their files, the targets that follow them, and tasks, training and evaluation on them."""

import gymnasium
import numpy as np
import pytest

from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.command import main as evaluate_main
from hitmac.agents.training.config import CoverageOptions
from hitmac.agents.training.learner import make_environments
from hitmac.envs import Scenario, Simulator
from hitmac.envs.parts.recordings import read_recording, shortest_recording
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import write_tracks

STILL = np.zeros((1, 2), np.int64)
OWN = "time=t,id=track,x=px,y=py"
NUMBERS = "time=1,id=2,x=3,y=4"


def scene(*paths, **changes):
    """Two sensors that see everything in front of them, on a field of 20 m by 10 m, in sub-steps of a second."""
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
    """Target a for 60 s along x; target b in two parts, with rows in another order."""
    rows = [f"{t},a,{-6 + 0.2 * t:.2f},1" for t in range(61)]
    rows += [f"{t},b,0,{t / 20:.3f}" for t in (*range(40, 51), *range(10, 21))]
    return write_tracks(tmp_path / "walk.csv", *rows)


# --- files ---


NAN = [np.nan, np.nan]


@pytest.mark.parametrize(
    ("rows", "time_step", "places"),
    [
        ("10,a,0,0 10.5,a,1,2 11.1,a,1,8", 0.25, [[0, 0], [0.5, 1], [1, 2], [1, 4.5], [1, 7]]),
        ("0,a,0,0 1,a,1,0 3,a,3,0 4,a,4,0", 1, [[0, 0], [1, 0], NAN, [3, 0], [4, 0]]),
        ("0,a,0,0 1,a,1,0 2,a,, 3,a,3,0", 1, [[0, 0], [1, 0], NAN, [3, 0]]),
        ("0,a,0,0 1,a,1,0 2,a,nan,NaN 3,a,3,0", 0.5, [[0, 0], [0.5, 0], [1, 0], *[NAN] * 3, [3, 0]]),
    ],
)
def test_rows_are_resampled_on_lines_with_gaps(rows, time_step, places, tmp_path):
    recording = read_recording(write_tracks(tmp_path / "a.csv", *rows.split(" "), ""), time_step)
    assert (recording.start, recording.length) == (float(rows.startswith("10") and 10), len(places))
    np.testing.assert_allclose(recording.tracks[0].place, places)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("", "y, kind ,X,id,Time\n4,x,5.5,7,0.08\n2,x,1.5,7,0\n4,x,3.5,7,0.04"),
        (OWN, "t;track;px;py\n0;7;1,5;2\n0,04;7;3,5;4\n0,08;7;5,5;4"),
        (OWN, "T\tTrack\tpx\tpy\n0\t7\t1.5\t2\n0.04\t7\t3.5\t4\n.08\t7\t5.5\t4"),
        (OWN, "t  track px py\n0 7 1,5 2 \n0,04 7 3,5 4\n 0,08 7 5,5 4\n"),
        (NUMBERS, "1714564800.04,7,1.5,2,car\n1714564800.08,7,3.5,4,car\n1714564800.12,7,5.5,4,car"),
        *((other, "time,id,x,y\n0,7,1.5,2\n0.04,7,3.5,4\n0.08,7,5.5,4") for other in (OWN, NUMBERS)),
        (NUMBERS, "0,92;7;1,5;2\n0,96;7;3,5;4\n1,0;7;5,5;4"),
        ("", "time,id,x,y\n2026-03-29 01:59:59.96,7,1.5,2\n2026-03-29T02:00,7,3.5,4\n20260329T020000.04,7,5.5,4"),
        (
            "id=name",
            "time,name,x,y\n2026-03-01T11:59:59.96Z,7,1.5,2\n2026-03-01T13:00:00+01:00,7,3.5,4\n"
            "2026-03-01T12:00:00.040Z,7,5.5,4",
        ),
    ],
)
def test_files_of_any_form_have_the_same_tracks(columns, text, tmp_path):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8-sig")
    recording = read_recording(str(tmp_path / "a.csv"), 0.02, columns)
    assert recording.length == 5
    np.testing.assert_allclose(recording.tracks[0].place, [[1.5, 2], [2.5, 3], [3.5, 4], [4.5, 4], [5.5, 4]], atol=2e-5)


def test_a_target_takes_the_place_of_one_that_is_gone(tmp_path):
    times = {"a": (0, 10), "b": (2, 5), "c": (5, 10), "d": (7, 10)}
    rows = [f"{t},{name},{x},0" for x, (name, part) in enumerate(times.items()) for t in range(*part)]
    path = write_tracks(tmp_path / "a.csv", *rows)
    place = Simulator(scene(path, num_targets=3), 1, 0).rows.recordings.place
    np.testing.assert_array_equal(place[:, 0, 0], np.zeros(10))
    b, c, d, none = 1, 2, 3, np.nan
    np.testing.assert_array_equal(place[:, 1, 0], [none, none, b, b, b, none, none, d, d, d])
    np.testing.assert_array_equal(place[:, 2, 0], [none] * 5 + [c] * 5)  # not in place 1: it would look like a jump
    with pytest.raises(ValueError, match=r"a.csv has up to 3 targets at once, .*; num_targets is 2, it must be 3 or"):
        Simulator(scene(path), 1, 0)


def test_a_day_of_many_short_visits_is_read(tmp_path):
    """Positions count by the targets at once: 2 of 3000, for 6000 sub-steps."""
    rows = [f"{2 * k + t},{k},{k / 1e3},{t}" for k in range(3000) for t in range(3)]
    recording = read_recording(write_tracks(tmp_path / "a.csv", *rows), 1.0)
    assert (recording.length, len(recording.tracks)) == (6001, 3000)
    assert recording.tracks[2999].first == 5998
    np.testing.assert_array_equal(recording.tracks[2999].place, [(2.999, 0), (2.999, 1), (2.999, 2)])


def test_a_file_may_be_absent_until_it_is_used_and_is_read_again_when_it_changes(tmp_path, walk):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv"):
        Simulator(scene(str(tmp_path / "absent.csv")), 1, 0)
    assert shortest_recording(scene(walk)) == 60
    write_tracks(tmp_path / "walk.csv", "0,a,0,0", "5,a,1,1")
    assert shortest_recording(scene(walk)) == 5


@pytest.mark.parametrize(
    ("columns", "text", "says"),
    [
        ("", "", "line 1: the header is ''; it must name time, id, x and y once each; the option --columns"),
        ("", "time,id,x,y,x\n", "once each"),
        (OWN, "t,id,x,y\n", "line 1: the header is 't, id, x, y'; it must name t, track, px and py once"),
        (NUMBERS, "0,a,1\n", "line 1: the header is '1, 2, 3'; it must name 1, 2, 3 and 4 once"),
        (NUMBERS, "t,id,x,y\n", r"line 1: time \(column 1\) is 't'; it must be in seconds, or a date such as"),
        ("", "time,id,x,y\n0,a,1,2\n1,a,1\n", "line 3: it has 3 fields; line 1 has 4"),
        ("", "time,id,x,y\nnan,a,1,2\n", "line 2: time is 'nan'; it must be in seconds"),
        ("", "time,id,x,y\n1714564800000,a,1,2\n", "line 2: time is '1714564800000'; it must be in seconds"),
        ("", "time,id,x,y\n0,a,1,2\n2026-03-01,a,1,2\n", "line 3: time is '2026-03-01', a date without a zone; earl"),
        (OWN, "t,track,px,py\n0,a,inf,2\n", r"line 2: x \(column px\) is 'inf'; it must be a finite number"),
        ("", "time,id,x,y\n0,a,1,\n", "line 2: x is 1 and y is empty; give both or neither"),
        ("", "time,id,x,y\n0,,1,2\n", "line 2: id is empty; every row must name its target"),
        ("", "time,id,x,y\n0,a,1,2\n0.0,a,1,3\n", "line 3: target a has a row at time 0.0 already"),
        ("", "time,id,x,y\n", "has no row with a position"),
        ("", "time,id,x,y\n0,a,1,2\n0.5,a,1,2\n", r"lasts 0.5 s .*; it must last at least a time_step \(1 s\)"),
        ("", "time,id,x,y\n0,a,1,2\n1e9,a,1,2\n", "at most 5,000,000 positions"),
        ("", "time,id,x,y\n5,a,1,2\n6,a,11,2\n", r"has a target at x = 11 at 1 s after its start; the arena is \+-10"),
        ("", b"time,id,x,y\n0,\xff,1,2\n", r"is not UTF-8 text: it has the byte 0xff"),
        ("", 'time,id,x,y\n0,"a,1,2\n' + "z" * 200_000, "line 3: field larger than field limit"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(tmp_path, columns, text, says):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=says) as raised:
        Simulator(scene(str(path), columns=columns), 1, 0)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


# --- episodes ---


def test_targets_follow_their_file_and_are_absent_in_gaps(walk):
    task = CoverageTask(scene(walk, sensor_headings=(180, 180)), 1, 0)  # sensor 0 looks out of the field
    shared = CoverageTask(scene(walk, knowledge="shared"), 1, 0)
    state = task.simulator.state
    for t in range(61):
        there = 10 <= t <= 20 or 40 <= t <= 50
        np.testing.assert_allclose(state.target_position[0, 0], (-6 + 0.2 * t, 1), atol=1e-9)
        assert (state.present[0].tolist(), task.simulator.track_ended[0]) == ([True, there], t == 60)
        if there:
            np.testing.assert_allclose(state.target_position[0, 1], (0, t / 20), atol=1e-9)
            velocity = 0 if t in (10, 40) else 1 / 20  # 0 when it appears
            np.testing.assert_allclose(state.velocity[0, 1], (0, velocity), atol=1e-9)
        shown = task.observe()
        assert shown["mask"][0].sum(0).tolist() == [2, 2 * there]
        assert (shown["pairs"][0, :, 1] != 0).any() == there
        assert shared.observe()["mask"][0, 0].tolist() == [1, there], t  # it is seen leaving
        task.step(STILL)
        shared.step(STILL)
        assert task.simulator.coverage[0] == 1.0
    assert (state.velocity[0] == 0).all()


def test_the_seed_of_a_scene_chooses_file_and_start(tmp_path):
    lengths = {"0": 101, "1": 301}  # rows of each file, whose targets have y = 0 and y = 1
    files = [write_tracks(tmp_path / y, *(f"{t},a,{t / 100},{y}" for t in range(rows))) for y, rows in lengths.items()]
    whole, batch = (Simulator(scene(*files, episode_steps=steps), 400, 5, num_threads=2) for steps in (0, 100))
    assert 120 < whole.state.target_position[:, 0, 1].sum() < 280
    assert (whole.state.target_position[:, 0, 0] == 0).all()
    x, file = (batch.state.target_position[:, 0] * (100, 1)).T
    assert (x[file == 0] == 0).all()
    assert x[file == 1].min() < 10
    assert 190 < x[file == 1].max() <= 200
    singles = {k: Simulator(batch.scenario, 1, 5 + k) for k in (0, 7, 399)}
    other = Simulator(batch.scenario, 400, 9)
    other.set_state(batch.get_state())
    everyone = [batch, other, batch.clone()]
    for _ in range(20):
        for one in everyone:
            one.step(np.zeros((400, 2), np.int64))
        for k, single in singles.items():
            single.step(STILL)
            np.testing.assert_array_equal(single.state.target_position[0], batch.state.target_position[k])
    state = batch.get_state()
    np.testing.assert_equal([one.get_state() for one in everyone], [state] * 3)
    with pytest.raises(ValueError, match="state 'recording_row' holds a number that is not from 0 to 401"):
        other.set_state(state | {"recording_row": np.full(400, 402)})
    batch.reset()
    assert (batch.state.target_position != state["target_position"]).any()


def test_environments_end_with_the_file(tmp_path):
    path = write_tracks(tmp_path / "a.csv", *(f"{t},a,0,{t / 100}" for t in range(8)))
    vector = gymnasium.make_vec("dsn/Coverage-v0", 3, scenario=scene(path))
    vector.reset(seed=0)
    for t in range(20):
        *_, truncated, _ = vector.step(vector.action_space.sample())
        assert truncated.all() == truncated.any() == (t in (6, 14))  # then a step that resets


def test_placed_tracks_have_gaps_and_only_placed_moves_have_extra_moves():
    """30 rows last 30 sub-steps, also in a scenario whose targets move twice at every tenth sub-step."""
    simulator = Simulator("hit-mac", 2, 0)
    tracks = np.zeros((30, 5, 2)) + np.arange(30)[:, None, None]
    tracks[10:20, 1] = np.nan
    simulator.place(target_tracks=tracks, mask=np.array([True, False]))
    simulator.place(target_moves=np.nan_to_num(tracks), mask=np.array([False, True]))
    for t in range(30):
        assert simulator.track_ended.tolist() == [False, t >= 27]
        simulator.step(np.zeros((2, 4), np.int64))
        there = (np.arange(5) != 1) | (not 10 <= t < 20)
        np.testing.assert_array_equal(simulator.state.present, [there, [True] * 5])
        np.testing.assert_array_equal(simulator.state.target_position[0, there], t)
        assert np.isfinite(simulator.state.target_position).all()
        if t == 19:
            assert simulator.state.target_position[1, 0, 0] == 21
    assert simulator.track_ended.all()
    simulator.step(np.zeros((2, 4), np.int64))
    np.testing.assert_array_equal(simulator.state.target_position[0], 29)


def test_targets_without_a_position_are_absent():
    task = CoverageTask("hit-mac", 2, 0)
    places = np.zeros((5, 2))
    places[2] = np.nan
    task.reset(options={"target_position": places, "target_tracks": np.full((9, 5, 2), 50.0)})
    assert task.observe()["mask"].sum(1).tolist() == [[4, 4, 0, 4, 4]] * 2
    task.step(np.zeros((2, 4), np.int64))
    assert task.observe()["mask"].all()
    assert (task.simulator.state.velocity[:, 2] == 0).all()
    assert task.simulator.state.velocity[:, 0].all()
    task.simulator.place(target_position=np.zeros((5, 2)))
    assert not task.simulator.state.velocity.any()


# --- evaluation and training ---


def test_evaluations_play_whole_files(walk, tmp_path, capsys):
    short = write_tracks(tmp_path / "short.csv", *(f"{t};a;0;{t / 100}" for t in range(31)), header="t;id;x;y")
    scenario = scene(walk, write_tracks(tmp_path / "same.csv", *(f"{t},a,0,0" for t in range(31))))
    result = evaluate("still", scenario, episodes=3, max_episode_steps=40, progress=False)["agents"]
    assert len(result["still"]["over_time"]) == 30  # sub-steps of the shorter file
    scenario.save(tmp_path / "site.yaml")
    site = ["--scenario", str(tmp_path / "site.yaml"), "--agents", "still", "--episodes", "2", "--tracks", short]
    evaluate_main([*site, "--columns", "time=t"])
    assert "still" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        evaluate_main(site)
    assert "short.csv, line 1: the header is 't, id, x, y'" in capsys.readouterr().err


def test_training_starts_episodes_anywhere_in_the_files(walk):
    options = CoverageOptions(scenario="hit-mac", episode_steps=20, num_envs=64, tracks=(walk,))
    venv = make_environments(options, scene(walk))
    venv.seed(0)
    venv.reset()
    row = venv.task.simulator.rows.recordings.row
    assert row.min() < 4
    assert 36 < row.max() <= 40
    assert sum(venv.step(np.zeros((64, 2), np.int64))[2].astype(int) for _ in range(40)).tolist() == [2] * 64
