"""The program behind ``make versions``, with programs in the place of Python."""

import runpy
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSIONS = runpy.run_path(str(ROOT / ".ci" / "versions.py"))
STUB = """#!/bin/sh
case "$2" in *metadata*) echo 1; echo 2; echo 3; echo 4; echo 5;; *version_info*) echo {version};; esac
test "$2" = venv && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
test "$2" = pip && exit {pip}
test "$2" = pytest && echo "== 2 passed in 1.00s ==" && exit {pytest}
exit 0
"""


@pytest.fixture
def python(tmp_path):
    def make(name, version="3.11.9", pip=0, pytest=0):
        path = tmp_path / name
        path.write_text(STUB.format(version=version, pip=pip, pytest=pytest))
        path.chmod(0o755)
        return str(path)

    return make


def versions(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["versions.py", *arguments])
    with pytest.raises(SystemExit) as end:
        VERSIONS["main"]()
    return int(end.value.code), capsys.readouterr().out


def test_the_lowest_versions_are_those_that_are_declared():
    lowest = VERSIONS["constraints"]("lowest", ["torch==2.13.0"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in project["dependencies"]:
        name, version = one.split(">=")
        assert (f"{name}=={version}" in lowest) == (name != "torch")
    assert "torch==2.13.0" in lowest
    assert VERSIONS["constraints"]("newest", ["torch==2.13.0"]) == ["torch==2.13.0"]
    assert not any("hitmac" in one for one in lowest)


def test_every_python_is_tried_and_a_failure_shows(python, monkeypatch, capsys):
    pythons = [python("a"), python("again"), python("b", "3.12.1"), "/nowhere/python3.13"]
    status, said = versions(monkeypatch, capsys, "--pythons", ",".join(pythons))
    rows = [line.split() for line in said.split("\n\n")[-1].splitlines()]
    assert status == 0
    assert [row[:2] for row in rows[1:]] == [[pythons[0], "lowest"], [pythons[0], "newest"], [pythons[2], "newest"]]
    assert "2 passed" in said
    assert "/nowhere/python3.13: not found" in said
    assert said.count("not found") == 1
    for wrong, word in (({"pytest": 1}, "failed: 2 passed"), ({"pip": 1}, "not installed")):
        status, said = versions(monkeypatch, capsys, "--pythons", python("c", **wrong), "--kinds", "newest")
        assert (status, word in said) == (1, True)


def test_the_part_that_runs_by_default_is_there():
    missing = [name for name in VERSIONS["SMOKE"] if not (ROOT / "tests" / f"test_{name}.py").is_file()]
    assert not missing
