"""The curve of a training: its phases, its points as numbers, and when it reached what."""

import json
import sys
from pathlib import Path

import pytest
import safetensors.numpy

from hitmac import train
from hitmac.agents.training import curve
from hitmac.agents.training.curve import reached, reached_in_words, save_curve, save_points
from hitmac.agents.training.resume import Progress

POINTS = [(0, 0.0, 0.3, 0.7, 0.2), (100, 9.5, 0.78, 0.3, 0.7), (200, 20.0, 0.74, 0.3, 0.7), (300, 31.0, 0.81, 0.2, 0.8)]
PROGRESS = Progress(40.0, [(50, 5.0, 0.5, 0.5, 0.4)], POINTS, [("mixed", 0, 0.0), ("alone", 120, 11.0)])


def test_the_first_point_that_reaches_a_coverage_counts():
    assert reached(PROGRESS) == {0.749: (100, 9.5), 0.8: (300, 31.0), 0.83: None}
    words = "0.749 after 10 s (100 steps), 0.8 after 31 s (300 steps), 0.83 never."
    assert reached_in_words(PROGRESS).endswith(words)
    assert reached_in_words(Progress()) == ""


def test_every_point_is_written(tmp_path):
    save_points(tmp_path / "curve.json", PROGRESS)
    written = json.loads((tmp_path / "curve.json").read_text())
    assert [tuple(point.values()) for point in written["deterministic"]] == POINTS
    assert written["exploring"] == [
        {"steps": 50, "seconds": 5.0, "coverage": 0.5, "rotation": 0.5, "reward": 0.4},
    ]
    assert written["phases"][1] == {"name": "alone", "steps": 120, "seconds": 11.0}
    assert written["reached"] == {"0.749": {"steps": 100, "seconds": 9.5}, "0.8": {"steps": 300, "seconds": 31.0},
                                  "0.83": None}  # fmt: skip


def test_a_phase_begins_once():
    progress = Progress(7.0)
    for name, steps in (("a", 0), ("a", 10), ("b", 20), ("b", 30)):
        progress.begin_phase(name, steps)
    assert progress.phases == [("a", 0, 7.0), ("b", 20, 7.0)]


@pytest.mark.parametrize(
    ("phases", "names"), [(PROGRESS.phases, ["mixed", "alone"]), (PROGRESS.phases[:1], []), ([], [])]
)
def test_phases_are_shaded_and_named(phases, names, monkeypatch):
    kept = []
    monkeypatch.setattr(curve, "write_figure", lambda path, figure: kept.append(figure))
    save_curve("unused.png", Progress(40.0, PROGRESS.curve, POINTS, phases), "coverage", {})
    upper, *_, lower = kept[0].axes
    assert [text.get_text() for text in upper.texts if text.get_rotation()] == names
    assert len(lower.patches) == bool(names)
    if names:
        assert lower.patches[0].get_extents().transformed(lower.transData.inverted()).x1 == pytest.approx(11 / 60)


@pytest.mark.slow
def test_a_resumed_training_keeps_its_phases(tmp_path, monkeypatch):
    """Mixed actions end after 100 steps of each scene; rollouts are of 30, and the run is stopped before and after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hitmac.agents.training.report.save_film", lambda *arguments, **options: None)
    small = ["--num-envs", "2", "--rollout-steps", "30", "--batch-size", "16", "--weight-dim", "8", "--episodes", "2"]
    small += ["--episode-steps", "20", "--curve-points", "2"]

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["train.py", "--run-dir", "run", *map(str, arguments)])
        train.main()
        state = safetensors.numpy.load_file("run/checkpoint/training.safetensors")
        return {name: int(began[0]) for name, began in state.items() if name.startswith("phases/")}

    assert run("--total-steps", 180, *small) == {"phases/0/mixed actions": 0}
    assert run("--total-steps", 300, "--resume") == {"phases/0/mixed actions": 0, "phases/1/own actions": 240}
    assert len(run("--total-steps", 360, "--resume")) == 2
    written = json.loads(Path("run/curve.json").read_text())
    assert [phase["name"] for phase in written["phases"]] == ["mixed actions", "own actions"]
    assert "Coverage on the curve, seconds of training" in Path("run/evaluation.md").read_text()
