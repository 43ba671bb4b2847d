"""The curve of a training: its points as numbers, and when it reached what."""

import json
import sys
from pathlib import Path

import pytest

from hitmac import train
from hitmac.agents.training.report import reached, reached_in_words, save_points
from hitmac.agents.training.resume import Progress

POINTS = [(0, 0.0, 0.3, 0.7, 0.2), (100, 9.5, 0.78, 0.3, 0.7), (200, 20.0, 0.74, 0.3, 0.7), (300, 31.0, 0.81, 0.2, 0.8)]
PROGRESS = Progress(40.0, [(50, 5.0, 0.5, 0.5, 0.4)], POINTS)


def test_the_first_point_that_reaches_a_coverage_counts():
    assert reached(PROGRESS) == {
        "0.749": {"steps": 100, "seconds": 9.5}, "0.8": {"steps": 300, "seconds": 31.0}, "0.83": None
    }  # fmt: skip
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
    assert written["reached"] == {"0.749": {"steps": 100, "seconds": 9.5}, "0.8": {"steps": 300, "seconds": 31.0},
                                  "0.83": None}  # fmt: skip


@pytest.mark.slow
def test_the_report_holds_the_curve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hitmac.agents.training.report.save_film", lambda *arguments, **options: None)
    small = ["--num-envs", "2", "--rollout-steps", "30", "--batch-size", "16", "--weight-dim", "8", "--episodes", "2"]
    small += ["--episode-steps", "20", "--curve-points", "2", "--run-dir", "run", "--total-steps", "180"]
    monkeypatch.setattr(sys, "argv", ["train.py", *small])
    train.main()
    assert [point["steps"] for point in json.loads(Path("run/curve.json").read_text())["exploring"]] == [60, 120, 180]
    assert "Coverage on the curve, seconds of training" in Path("run/evaluation.md").read_text()
