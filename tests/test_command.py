"""The command line ``hitmac``."""

import sys
import tomllib
from pathlib import Path

import pytest

from hitmac import __version__
from hitmac.__main__ import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["hitmac", *arguments])
    main()


def test_the_help_names_every_command_and_each_has_its_own(monkeypatch, capsys):
    run(monkeypatch)
    without = capsys.readouterr().out
    run(monkeypatch, "--help")
    assert capsys.readouterr().out == without
    for command in COMMANDS:
        assert f"\n  {command} " in without
        with pytest.raises(SystemExit) as end:
            run(monkeypatch, command, "--help")
        assert not end.value.code
        assert "--" in capsys.readouterr().out
    run(monkeypatch, "scenarios")
    assert "hit-mac" in capsys.readouterr().out


def test_an_unknown_command_is_refused_in_one_line(monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, "trian")
    assert end.value.code == 2
    assert "unknown command 'trian' (did you mean train?): known are train," in capsys.readouterr().err


def test_it_is_installed_under_its_name(monkeypatch, capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"hitmac": "hitmac.__main__:main"}
    run(monkeypatch, "--version")
    assert capsys.readouterr().out == f"hitmac {__version__}\n"
