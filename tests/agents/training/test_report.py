"""Curves, warnings, and the files that a run leaves."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pytest

from hitmac.agents.names import load_agent
from hitmac.agents.training import report
from hitmac.agents.training.config import CoverageOptions
from hitmac.agents.training.report import CurveEvaluation, declined, diagnostics, save_points
from hitmac.agents.training.resume import Progress, contents
from hitmac.envs import load_scenario
from tests.agents.training.runs import SHORT, TINY, differences, state

PAGE = Path(__file__).parents[3] / "docs" / "train.md"
POINTS = [(0, 0.0, 0.3, 0.7, 0.2), (100, 9.5, 0.78, 0.3, 0.7), (200, 20.0, 0.74, 0.3, 0.7), (300, 31.0, 0.8, 0.2, 0.8)]


def test_the_points_of_both_policies_are_written(tmp_path):
    progress = Progress(40.0, [(50, 5.0, np.nan, 0.5, 0.4)], POINTS)  # without targets
    save_points(tmp_path / "curve.json", progress)
    written = json.loads((tmp_path / "curve.json").read_text())
    assert [tuple(point.values()) for point in written["deterministic"]] == POINTS
    assert written["exploring"] == [{"steps": 50, "seconds": 5.0, "coverage": None, "rotation": 0.5, "reward": 0.4}]


def test_the_points_of_a_curve_follow_the_steps_and_not_the_clock(monkeypatch):
    monkeypatch.setattr(report, "in_training", lambda options, policy, config: policy)
    scenario = load_scenario("hit-mac")
    options = CoverageOptions(curve_points=10, episode_steps=50, episodes=2)
    for seconds in (0.0, 1000.0):
        progress = Progress()
        for steps in range(0, 801, 20):
            progress.seconds += seconds
            # As in a run that is resumed after every rollout.
            still = load_agent("still", scenario)._replace(name=report.TRAINED)
            engine = SimpleNamespace(
                policies=[still], config=SimpleNamespace(scenario=scenario), steps=steps, progress=progress
            )
            clock = SimpleNamespace(fraction=steps / 800, fraction_at=lambda steps, seconds: steps / 800)
            CurveEvaluation(options, engine, clock).add_point(final=steps == 800)
        # Points are due after 800 (k / 10)^2 steps: 8, 32, 72, 128, 200, ...
        assert [row[0] for row in progress.evaluations] == [0, 20, 40, 80, 140, 200, 300, 400, 520, 660, 800]


def evaluation(metric="coverage", rotation=0.2, **means):
    return {"agents": {name: {metric: {"mean": mean}, "rotation": {"mean": rotation}} for name, mean in means.items()}}


def test_a_policy_that_got_worse_than_its_start_is_reported():
    better, worse = (Progress(evaluations=[(0, 0.0, 0.8, 0.2, 0.7), (9, 9.0, last, 0.2, 0.9)]) for last in (0.81, 0.79))
    assert declined("pretrained:flat", "coverage", better) == declined(None, "coverage", worse) == []
    assert declined("pretrained:flat", "coverage", Progress()) == []
    (line,) = declined("pretrained:flat", "coverage", worse)
    assert "0.790, lower than that of pretrained:flat, 0.800" in line
    assert declined("pretrained:flat", "reward", worse) == []


@pytest.mark.parametrize(
    ("found", "metric", "entropy", "name", "warned"),
    [
        (evaluation(trained=0.8, random=0.4, planner=0.9), "coverage", 0.3, "trained", []),
        (evaluation(trained=0.5, random=0.4, nearest=0.5, greedy=0.62, planner=0.9), "coverage", None, "trained",
         ["no better than nearest (0.500), greedy (0.620): its coverage is 0.500"]),
        (evaluation("reward", trained=-0.1, scripted=0.7), "reward", None, "trained", ["scripted (0.700)"]),
        (evaluation(trained=0.9, wide=0.1, random=0.4), "coverage", None, "wide", ["wide is no better than random"]),
        (evaluation(trained=0.5, still=0.1, rotation=0.97), "coverage", 0.0041, "trained",
         ["rotation 0.97", "0.4 % of the highest"]),
    ],
)  # fmt: skip
def test_warnings(found, metric, entropy, name, warned):
    lines = list(diagnostics(found, metric, entropy, name))
    assert len(lines) == len(warned)
    assert all(words in line for words, line in zip(warned, lines, strict=True))


@pytest.mark.slow
def test_a_run_leaves_the_results_of_the_page_whatever_its_name(here, capsys):
    run = Path("planner")  # also an agent
    here("coverage-ppo", "--run-dir", run, "--total-steps", 48, *TINY, *SHORT, "--curve-points", 2, reported=True)
    out, left = capsys.readouterr().out, contents(run)
    assert all(path in out for path in left)
    table = re.search(r"\| file \| content \|\n(.*?)\n\n", PAGE.read_text(), re.DOTALL)[1]
    listed = {name for row in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    (events,) = (path for path in left if path.startswith("tensorboard/events"))
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert files ^ {events, "tensorboard/"} == {name for name in listed if "executor" not in name}
    times = {name: (run / name).stat().st_mtime_ns for name in files}
    assert times["evaluation.json"] == max(times.values())  # by which a group knows that a run is finished
    agents = json.loads((run / "evaluation.json").read_text())["agents"]
    assert set(agents) == {"trained", "random", "still", "nearest", "greedy", "planner"}
    assert len(agents["trained"]["per_episode"]["coverage"]) == 2
    assert agents["trained"]["per_episode"] != agents["planner"]["per_episode"]
    curve = json.loads((run / "curve.json").read_text())
    assert [point["steps"] for point in curve["exploring"]] == [16, 32, 48]
    steps = [point["steps"] for point in curve["deterministic"]]
    assert (steps[0], steps[-1]) == (0, 48)
    warned = [line for line in out.splitlines() if line.startswith("Warning: ")]
    assert warned, "48 steps teach nothing"
    written = (run / "evaluation.md").read_text()
    assert all(line in written for line in warned)


def test_a_run_of_one_update_without_points_has_a_curve(here):
    """The points change no training."""
    for points in (0, 2):
        here("--run-dir", points, "--total-steps", 16, *TINY, *SHORT, "--curve-points", points, reported=points == 0)
    assert differences(state("0"), state("2")) == ["progress/evaluations"]
    trained = np.array([0x42, 0x7A, 0xC4]) / 255  # in every picture
    assert (np.abs(matplotlib.image.imread("0/curve.png")[..., :3] - trained).max(-1) < 0.02).sum() > 10
