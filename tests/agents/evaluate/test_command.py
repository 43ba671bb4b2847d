"""``hitmac evaluate``: agents and their trainings, parameters that are set or varied, and files."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.command import main
from hitmac.agents.learned.checkpoint import copy_executor
from tests.agents.evaluate.made import HIT_MAC, saved

FEW = ("--episodes", "2", "--max-episode-steps", "10")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder with two runs a and b, a copy of a, a coordinator c with its executor, and an executor e."""
    folder = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("a/checkpoint", "b/checkpoint")):
        saved(folder / name, number)
    saved(folder / "copy")
    saved(folder / "e", task="Executor")
    saved(folder / "c", task="Coordinator")
    copy_executor(folder / "e", folder / "c")
    return folder


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ("planner,greedy,planner", "agents has planner twice; leave one out"),
        ("ours=a+copy", "two trainings of ours, a and copy, are the same run"),
        ("ours=a+planner", "2 agents are named ours, and 1 of them were not trained"),
        ("assign-all:e,all=assign-all:e+assign-all:./e", "two trainings of all, assign-all:e and assign-all:./e, are"),
        ("ours=a+b,a,again=a,with=c:still+c", ""),  # the same coordinator with another executor
    ],
)
def test_a_run_counts_once_as_a_training(agents, message, runs, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    with pytest.raises(SystemExit) if message else nullcontext():
        main(["--agents", agents, *FEW])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "changes", "figures"),
    [
        (["--set", "knowledge=own", "--set", "turn_angle=[5, 6, 7, 8]", "--bounds"],
         [{"knowledge": "own", "turn_angle": (5, 6, 7, 8)}], []),
        (["--vary", "missed_detections=0/0.9", "--vary", "num_targets=2/3", "--curves", "curves.png"],
         [{"missed_detections": 0.0}, {"missed_detections": 0.9}, {"num_targets": 2}, {"num_targets": 3}],
         ["curves.png"]),
        (["--sizes", "2x3,3x2", "--pictures", "pictures"],
         [{"num_sensors": 2, "num_targets": 3}, {"num_sensors": 3, "num_targets": 2}],
         ["bars.png", "heat_maps.png", "over_time.png", "pareto.png"]),
    ],
)  # fmt: skip
def test_every_scenario_is_evaluated_as_if_alone(arguments, changes, figures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["--agents", "still,greedy", *arguments, "--json", "all.json", *FEW])
    shown = json.loads(Path("all.json").read_text())
    for one, change in zip(shown if len(changes) > 1 else [shown], changes, strict=True):
        assert len(one["agents"]) == 2 + 2 * ("--bounds" in arguments)
        alone = evaluate("greedy", HIT_MAC.replace(**change), episodes=2, max_episode_steps=10, progress=False)
        assert one["agents"]["greedy"]["per_episode"] == alone["agents"]["greedy"]["per_episode"]
    assert sorted(path.name for path in tmp_path.rglob("*.png")) == figures


@pytest.mark.parametrize(("arguments", "message"), [
    (["--vary", "missed_detection=0/1"], "--vary has 'missed_detection' (did you mean missed_detections?)"),
    (["--vary", "missed_detections"], "must have the form missed_detections=V1/V2/V3"),
    (["--vary", "missed_detections=0/0"], "with different numbers"),
    (["--vary", "hops=1/2", "--scenario", "hit-mac,random"], "--vary requires a single scenario; got 2"),
    (["--vary", "missed_detections=0/0.1", "--front", "f.png"], "--vary cannot be combined with --front or --pictures"),
    (["--curves", "f.png"], "--curves requires --vary"),
    (["--sizes", "4"], "sizes has '4'; it must have the form 4x5"),
    (["--film", "f.avi"], "its name must end in .gif or .mp4"),
    (["--json", "nodir/o.json"], "json is 'nodir/o.json'; there is no folder nodir"),
    (["--json", "."], "json is '.', a folder; name a file"),
    (["--film", "nodir/f.gif"], "film is 'nodir/f.gif'; there is no folder nodir"),
    (["--scenario", "hit-mac,hit-mac-4x5"], "two scenarios are named hit-mac with 4 sensors and 5 targets"),
    (["--agents", ""], "agents is ''; give one or more"),
    (["--cross", "mate:greedy", "--scenario", "mate-2v4-0", "--film", "a.gif"], "--film cannot be combined with"),
    (["--cross", "mate:greedy", "--scenario", "mate-2v4-0,mate-4v8-0"], "--cross requires a single scenario; got 2"),
    (["--cross", "mate:greedy", "--scenario", "mate-2v4-0", "--bounds"], "--bounds is not supported in a game of two"),
    (["--log", "run.jsonl", "--film", "a.gif"], "--film cannot be combined with --log"),
    (["--cross", "mate:greedy", "--against", "greedy", "--device", "cudda"], "device is cudda"),
])  # fmt: skip
def test_wrong_options_are_refused_before_anything_is_written(arguments, message, error_of):
    line = error_of(main, *arguments, *FEW)
    assert message in line
    assert line.startswith("hitmac evaluate: error: ")


@pytest.mark.parametrize(("missing", "arguments", "message"), [
    ("matplotlib.figure", ["--pictures", "pictures"], "figures require matplotlib"),
    ("PIL", ["--film", "film.gif"], "pictures require Pillow"),
    ("", ["--film", "film.gif", "--set", "background=absent.png"], "absent.png'; there is no such file"),
    ("", ["--film", "film.gif", "--agents", "still=a/checkpoint,still!=b/checkpoint"], "two films would be film-still"),
])  # fmt: skip
def test_files_that_cannot_be_made_are_refused_before_any_episode(
    missing, arguments, message, runs, monkeypatch, capsys
):
    monkeypatch.chdir(runs)
    monkeypatch.setattr("hitmac.agents.evaluate.command.evaluate", None)
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit):
        main([*arguments, *FEW])
    assert message in capsys.readouterr().err
