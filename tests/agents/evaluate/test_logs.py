"""Logs of runs: what is refused, and their metrics by hand."""

import json

import numpy as np
import pytest

from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.logs import evaluate_log, read_log
from hitmac.envs.scenario import portable
from tests.agents.deploy.run.fakes import SITE, UNIX

TRACK = [100.0, 0.0, 4.0, 0.0, 4.0, 0.9, 7.0]


def header():
    about = {"hitmac-run": 1, "version": "0", "agent": "still", "names": ["west", "east"]}
    return about | {"scenario": portable(SITE, ".")}


def step(k, **changes):
    return {
        "time": UNIX + 0.2 * k, "heading": [0.0, 180.0], "view": [90.0, 90.0], "tracks": [TRACK], "orders": [0.0, 5.0],
        "covered": 0.5, "latency": 1.0 + k, "moves": [0, 0], **changes,
    }  # fmt: skip


def written(path, lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@pytest.fixture
def log(tmp_path):
    """Log of five steps, with a moment in which a camera does not answer and nothing is tracked."""
    away = step(2, heading=[None, 180.0], orders=[None, 0.0], tracks=[], covered=None, messages=["camera west"])
    return written(tmp_path / "run.jsonl", [header(), step(0), step(1), away, step(3), step(4)])


def truth(path, rows):
    return written(path, ["time,id,x,y", *(",".join(map(str, row)) for row in rows)])


def test_a_log_is_read_as_it_was_written(log):
    run = read_log(log)
    assert (run.agent, run.scenario) == ("still", SITE)
    np.testing.assert_allclose(run.time - UNIX, 0.2 * np.arange(5), atol=1e-6)
    assert np.isnan(run.heading[:, 0]).tolist() == [False, False, True, False, False]
    assert [len(rows) for rows in run.tracks] == [1, 1, 0, 1, 1]
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:-5].rpartition(b"\n")[2])  # the power failed
    assert len(read_log(log).time) == 5


@pytest.mark.parametrize(
    ("number", "line", "words"),
    [
        (0, '{"agent": "still"}', r"line 1 is not that of a log of hitmac run: KeyError\('hitmac-run'\)"),
        (0, "time,id,x,y", "line 1 is not that of a log"),
        (0, header() | {"hitmac-run": 2}, "line 1 .*hitmac-run is 2; it must be 1"),
        (0, header() | {"scenario": {"num_sensor": 2}}, "line 1 .*unknown scenario parameter num_sensor"),
        (2, step(1, heading=[0.0]), "line 3 is not that of a log"),
        (2, {"time": UNIX + 0.3}, r"line 3 .*KeyError\('heading'\)"),
    ],
)
def test_other_files_are_refused_by_line(number, line, words, log):
    lines = log.read_text().splitlines()
    lines[number] = line
    with pytest.raises(ValueError, match=words):
        read_log(written(log, lines))


def test_the_metrics_of_a_run_by_hand(log):
    found = evaluate_log(read_log(log))
    assert found == pytest.approx({
        "expected_coverage": 0.5, "rotation": 4 / 9, "off": 0.1, "latency_ms": 3.0, "latency_ms_99": 4.96,
        "latency_ms_most": 5.0,
    })  # fmt: skip


def test_the_metrics_against_the_truth_by_hand(log, tmp_path):
    # One target on its track, a second far away and behind both cameras; c is a tenth of the range, 150.
    rows = [(UNIX + 0.2 * k, one, *place) for k in range(4) for one, place in (("a", (103, 4)), ("b", (-950, 0)))]
    found = evaluate_log(read_log(log), truth(tmp_path / "truth.csv", rows))
    assert found["coverage"] == pytest.approx(0.5)
    assert (found["missed"], found["false"]) == (pytest.approx((1 + 1 + 2 + 1) / 4), 0.0)
    one, none = np.sqrt(25.0 + 150**2 / 2), 150.0
    assert found["gospa"] == pytest.approx((3 * one + none) / 4)
    assert found["switches"] == 0.0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[5]["tracks"][0][6] = 8.0  # in a step without truth
    lines[4]["tracks"][0][6] = 9.0
    again = evaluate_log(read_log(written(log, lines)), tmp_path / "truth.csv")
    assert again == pytest.approx(found | {"switches": 1.0})


def test_a_truth_of_another_time_is_refused(log, tmp_path):
    path = truth(tmp_path / "truth.csv", [(k, "a", 0, 0) for k in range(3)])
    with pytest.raises(ValueError, match=r"is from 0.0 to 2.0 s; the run is from 1700000000.0 to 1700000000.8 s"):
        evaluate_log(read_log(log), path)


def test_the_command_prints_and_writes_them(log, tmp_path, error_of, capsys):
    path = truth(tmp_path / "truth.csv", [(UNIX + 0.2 * k, "a", 103, 4) for k in range(5)])
    main(["--log", str(log), "--tracks", str(path), "--json", str(tmp_path / "run.json")])
    text = capsys.readouterr().out
    assert text.startswith("still, custom: 5 steps, 0.0 minutes\n\nexpected_coverage  0.500\n")
    found = json.loads((tmp_path / "run.json").read_text())
    assert f"\ncoverage           {found['coverage']:.3f}\n" in text
    empty = written(tmp_path / "empty.jsonl", [header(), *(step(k, tracks=[], covered=None) for k in range(2))])
    main(["--log", str(empty), "--json", str(tmp_path / "run.json")])
    assert "expected_coverage  -\n" in capsys.readouterr().out
    assert json.loads((tmp_path / "run.json").read_text())["expected_coverage"] is None
    assert "--log requires a single file of --tracks; got 2" in error_of(main, "--log", log, "--tracks", path, path)
