"""The table of results, made again: every row's command is one, rows are made once, and the table joins them."""

import json
import re
import shlex

import pytest

from hitmac.agents.command_line import parse
from hitmac.agents.evaluate import evaluate, save_evaluation
from hitmac.agents.training.config import JOBS, HitMacOptions, check
from tests.agents.training.brief import OWN_PROCESS
from tools import reproduce
from tools.reproduce import ROWS, Row, main, table


def test_every_row_can_be_made():
    for row in ROWS.values():
        assert row.train or row.agent
        assert all(ROWS[needed].train for needed in re.findall(r"{(.*?)}", row.agent))
        if row.train:
            job, *options = shlex.split(row.train)
            check(parse({**JOBS, HitMacOptions.job: HitMacOptions}[job], "train.py", options))


def test_rows_are_made_once_and_joined(tmp_path, error_of, capsys, monkeypatch):
    monkeypatch.setattr(reproduce, "ROWS", {name: ROWS[name] for name in ("greedy", "still")})
    place = ["--run-dir", str(tmp_path), "--quick"]
    main(["--row", "still", *place])
    first = (tmp_path / "still.json").stat().st_mtime_ns
    assert not (tmp_path / "greedy.json").exists()
    main(place)
    assert (tmp_path / "still.json").stat().st_mtime_ns == first
    results = (tmp_path / "results.md").read_text()
    for name in ("greedy", "still", "free turning (upper bound)", "clairvoyant (lower estimate)"):
        assert f"\n| {name} | " in results
    assert "- still: `--agents still`" in results
    main(["--row", "still", *place])
    assert (tmp_path / "still.json").stat().st_mtime_ns > first
    capsys.readouterr()
    main(["--list"])
    assert capsys.readouterr().out.splitlines() == ["greedy: --agents greedy", "still: --agents still"]
    for bad, message in (
        (["--row", "gredy"], "unknown row 'gredy' (did you mean greedy?): known are greedy; still"),
        (["--episodes", "0"], "--episodes is 0; it must be 1 or more"),
    ):
        assert message in error_of(main, *bad, *place)


def test_the_probability_is_that_of_one_evaluation(tmp_path, monkeypatch):
    few = {"max_episode_steps": 20, "progress": False}
    together = evaluate(["greedy", "nearest"], episodes=4, **few)
    monkeypatch.setattr(reproduce, "ROWS", {name: Row(agent=name) for name in ("nearest", "greedy")})
    monkeypatch.setattr(reproduce, "COMPARED", "greedy")
    files = {name: tmp_path / f"{name}.json" for name in ("nearest", "greedy")}
    for name, file in files.items():
        save_evaluation(file, evaluate([name], episodes=4, **few))
    row = next(line for line in table(files).splitlines() if line.startswith("| nearest |"))
    assert row.split(" | ")[-2] == f"{together['agents']['nearest']['improvement'][0]:.2f}"
    save_evaluation(files["nearest"], evaluate(["nearest"], episodes=3, **few))
    with pytest.raises(ValueError, match="evaluated on different episodes"):
        table(files)


@pytest.mark.slow
def test_trained_rows_are_made_and_shared(tmp_path, monkeypatch):
    for name, value in OWN_PROCESS.items():
        monkeypatch.setenv(name, value)
    small = "--num-envs 4 --weight-dim 4 --episode-steps 20 --curve-points 0 --processes 1"
    rows = {"trained": Row(f"coverage-ppo {small}"), "same": Row(agent="{trained}")}
    monkeypatch.setattr(reproduce, "ROWS", rows)
    place = ["--run-dir", str(tmp_path), "--quick", "--seeds", "2"]
    main(["--row", "same", *place])
    state = tmp_path / "trained" / "seed-1" / "checkpoint" / "training.safetensors"
    first = state.stat().st_mtime_ns
    main(["--row", "trained", *place])
    assert state.stat().st_mtime_ns == first
    found = json.loads((tmp_path / "trained.json").read_text())["agents"]
    assert found["trained"]["trainings"] == 2
    assert "same (2 seeds)" in (tmp_path / "results.md").read_text()
