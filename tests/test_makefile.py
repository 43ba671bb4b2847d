"""The Makefile's virtual environment, with programs in the place of Python that only say what they were asked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
ROOT = Path(__file__).parents[1]
STUB = """#!/bin/sh
test "$1" = -c && exec "{real}" -c 'import sys; sys.version_info = ({version}); exec(sys.argv[1])' "$2"
echo "{version}: $*" >> "{log}"
test "$2" = venv || exit 0
for folder; do :; done
test "$3" = --clear && rm -rf "$folder"
mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python"
"""


@pytest.fixture
def make(tmp_path):
    """Runs make in a project of its own; gives its exit status and what the Pythons were asked."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    for name, version in (("python3", "3, 11"), ("python3.12", "3, 12"), ("python3.10", "3, 10")):
        stub = tmp_path / "bin" / name
        stub.write_text(STUB.format(real=sys.executable, version=version, log=log))
        stub.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"}

    def run(*arguments):
        log.write_text("")
        done = subprocess.run(["make", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
        asked = [line.split(" --quiet")[0] for line in log.read_text().splitlines()]
        return done.returncode, asked, done.stderr

    return run


TEST = {
    version: f"{version}: -m pytest -n auto --maxprocesses 4 --dist worksteal -m not slow"
    for version in ("3, 11", "3, 12")
}
INSTALL = {version: f"{version}: -m pip install" for version in TEST}
VENV = {version: f"{version}: -m venv --clear .venv" for version in TEST}


def test_another_python_than_the_one_in_the_environment_makes_it_again(make):
    for arguments, expected in (
        ([], [VENV["3, 11"], INSTALL["3, 11"], TEST["3, 11"]]),
        ([], [TEST["3, 11"]]),
        (["PYTHON=python3"], [TEST["3, 11"]]),
        (["PYTHON=python3.12"], [VENV["3, 12"], INSTALL["3, 12"], TEST["3, 12"]]),
        (["PYTHON=python3.12"], [TEST["3, 12"]]),
        ([], [TEST["3, 12"]]),  # whichever is there
        (["PYTHON=python3"], [VENV["3, 11"], INSTALL["3, 11"], TEST["3, 11"]]),
    ):
        assert make("test", *arguments)[:2] == (0, expected)


def test_an_environment_out_of_date_keeps_its_python(make, tmp_path):
    make("test", "PYTHON=python3.12")
    os.utime(tmp_path / ".venv" / ".installed", (0, 0))
    assert make("test")[:2] == (0, [INSTALL["3, 12"], TEST["3, 12"]])
    (tmp_path / ".venv" / ".installed").unlink()  # as if the install had been interrupted
    assert make("test")[:2] == (0, [INSTALL["3, 12"], TEST["3, 12"]])


def test_an_environment_whose_python_is_gone_is_made_again(make, tmp_path):
    make("test", "PYTHON=python3.12")
    (tmp_path / ".venv" / "bin" / "python").unlink()
    (tmp_path / ".venv" / "bin" / "python").symlink_to(tmp_path / "gone")
    assert make("test")[:2] == (0, [VENV["3, 11"], INSTALL["3, 11"], TEST["3, 11"]])


@pytest.mark.parametrize(
    ("python", "says"), [("python3.10", "hitmac needs Python 3.11 or newer"), ("python3.99", "python3.99")]
)
def test_a_python_that_cannot_be_used_leaves_the_environment_alone(make, python, says):
    make("test")
    status, asked, error = make("test", f"PYTHON={python}")
    assert status != 0
    assert asked == []
    assert says in error
    assert make("test")[:2] == (0, [TEST["3, 11"]])
