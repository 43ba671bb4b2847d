"""The command line ``hitmac``."""

import subprocess
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


def test_the_help_names_every_command(monkeypatch, capsys):
    run(monkeypatch)
    without = capsys.readouterr().out
    run(monkeypatch, "--help")
    assert capsys.readouterr().out == without
    for command in COMMANDS:
        assert f"\n  {command} " in without


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_its_options(command, monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, command, "--help")
    assert not end.value.code
    assert "--" in capsys.readouterr().out


def test_a_command_is_given_the_rest(monkeypatch, capsys):
    run(monkeypatch, "scenarios")
    assert "hit-mac" in capsys.readouterr().out


def test_an_unknown_command_is_refused_in_one_line(monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, "trian")
    assert end.value.code == 2
    assert "unknown command 'trian' (did you mean train?): known are train," in capsys.readouterr().err


def test_it_is_installed_under_its_name_and_as_a_module():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"hitmac": "hitmac.__main__:main"}
    shown = subprocess.run([sys.executable, "-m", "hitmac", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"hitmac {__version__}\n"
