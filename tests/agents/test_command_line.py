"""Options on the command line, and the provenance of results."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from hitmac.agents.command_line import _command, _commit, parse, provenance
from hitmac.envs.base.threads import cores


@dataclass(frozen=True)
class Options:
    """Options of a program."""

    agent: str = "still"
    """Name of an agent."""
    seed: int = 3
    """Seed of the first scene."""
    files: tuple[str, ...] = ()
    """Files to read."""
    rate: float = 1.0
    """Share of all scenes."""


def test_options_are_typed_and_the_first_may_stand_without_its_name():
    assert parse(Options, "program", []) == Options()
    assert parse(Options, "program", ["planner", "--seed", "5"], first="--agent") == Options("planner", 5)
    assert parse(Options, "program", ["--files", "a", "b"], default=Options(seed=7)) == Options("still", 7, ("a", "b"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed", "many"], "--seed is 'many'; it must be a whole number (see --help)"),
        (["--seed=2.5"], "--seed is '2.5'; it must be a whole number (see --help)"),
        (["--rate", "half"], "--rate is 'half'; it must be a number (see --help)"),
        (["--sed", "5"], "(did you mean --seed?)"),
        (["--seed", "5", "planner"], ": planner; without --agent it must be the first argument (see --help)"),
        (["--files", "--seed", "5"], "--files is given without a value"),
        (["--seed"], "'--seed'"),
        (["--import", "nowhere"], "--import: no module nowhere in the current directory, nor installed"),
    ],
)
def test_an_invalid_option_ends_the_program_in_one_line(arguments, says, error_of):
    line = error_of(lambda given: parse(Options, "program", given, first="--agent"), *arguments)
    assert line.startswith("program: error: ")
    assert says in line


def test_the_provenance_is_plain_and_whole():
    made = provenance()
    assert json.loads(json.dumps(made)) == made
    assert made["versions"]["torch"] == torch.__version__
    assert set(made["versions"]) == {"python", "hitmac", "torch", "numpy", "numba", "stable-baselines3", "gymnasium"}
    assert made["threads"] == {"torch": torch.get_num_threads(), "simulator": cores(), "cores": os.cpu_count()}
    assert set(made) == {"versions", "commit", "modified", "threads", "platform", "processor", "command"}


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        (["/venv/bin/python", "/venv/bin/hitmac"], "hitmac"),
        (["/srv/.venv/bin/python", "/srv/.venv/bin/hitmac"], ".venv/bin/hitmac"),
        ([".venv/bin/python", "-m", "hitmac"], ".venv/bin/python -m hitmac"),  # of make
        (["/usr/bin/python3.12", "train.py"], "python3.12 train.py"),
    ],
)
def test_the_command_is_one_for_a_shell_and_shows_no_directory_of_the_machine(started, expected):
    asked = ["--agents", "/srv/runs/a, /data/b", "ours=/data/x/1+/srv/y", "--json=/tmp/z", "x/y", "a=[1, 2]"]
    expected += " --agents 'runs/a, b' ours=1+y --json=z x/y 'a=[1, 2]'"
    assert _command([*started, *asked], Path("/srv")) == expected


def test_the_commit_is_that_of_the_own_checkout(tmp_path, monkeypatch):
    tmp_path /= "\udce9"  # a byte that is not UTF-8
    tmp_path.mkdir()

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    assert _commit(tmp_path) == (None, None)  # without a commit
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    (tmp_path / "untracked").write_text("1")
    commit, modified = _commit(tmp_path)
    assert (len(commit), modified) == (40, False)
    (tmp_path / "file").write_text("2")
    assert _commit(tmp_path) == (commit, True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    (tmp_path / "installed").mkdir()
    assert _commit(tmp_path / "installed") == (None, None)  # in another's checkout
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _commit(tmp_path) == (None, None)  # without git
