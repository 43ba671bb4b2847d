"""The wheel, installed beside packages of another project that are called `agents`, `envs` and `perception`."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
QUICK_STARTS = re.findall(r"```python\n(.*?)```", README.split("## Quick start")[1].split("\n## ")[0], re.DOTALL)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMES = ("agents", "envs", "perception")
SOURCES = ("README.md", "LICENSE", "pyproject.toml", "train.py", "hitmac", *NAMES)


def run(*arguments, cwd, path=None):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        one = ROOT / name
        if one.is_dir():
            shutil.copytree(one, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(one, tree / name)
    pip = "-m", "pip", "--disable-pip-version-check"
    for arguments in (
        (*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, tree),
        (*pip, "install", "--no-deps", "--no-index", "--find-links", folder, "--target", folder / "site", "hitmac"),
    ):
        ended = run(*arguments, cwd=folder)
        assert ended.returncode == 0, ended.stderr
    return folder / "site"


@pytest.fixture
def project(tmp_path):
    """The folder of another project, with packages of the same names and a file of its own called train.py."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'another project'\n")
    (tmp_path / "train.py").write_text("OWNER = 'another project'\n")
    return tmp_path


def test_the_wheel_has_one_package_with_all_its_files(installed):
    assert {path.name for path in installed.iterdir()} - {"bin"} == {"hitmac", f"hitmac-{VERSION}.dist-info"}
    package = installed / "hitmac"
    kinds = {".py", ".yaml", ".safetensors", ".json", ".js", ".html", ".css"}
    files = [path for name in NAMES for path in (ROOT / name).rglob("*") if path.suffix in kinds]
    assert {path.suffix for path in files} == kinds
    for path in (*files, *(ROOT / "agents/pretrained").rglob("card.md"), ROOT / "train.py"):
        assert (package / path.relative_to(ROOT)).is_file(), path
    assert (package / "py.typed").is_file()
    assert not any(path.is_symlink() for path in package.rglob("*"))


def test_it_stands_beside_another_project(installed, project):
    code = (
        "import gymnasium, hitmac, hitmac.agents, hitmac.perception, agents, envs, perception, train\n"
        "from importlib.metadata import version\n"
        "assert {one.OWNER for one in (agents, envs, perception, train)} == {'another project'}\n"
        "assert hitmac.__version__ == version('hitmac')\n"
        "assert gymnasium.spec('dsn/Coverage-v0')\n"
        "assert 'flat' in hitmac.agents.pretrained.pretrained()\n"
        "print(hitmac.__version__, hitmac.__file__)"
    )
    ended = run("-c", code, cwd=project, path=installed)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [VERSION, str(installed / "hitmac" / "__init__.py")]


def test_the_command_works(installed, project):
    for arguments in (("--help",), ("scenarios",), ("train", "coverage", "--help"), ("evaluate", "--help")):
        ended = run("-m", "hitmac", *arguments, cwd=project, path=installed)
        assert (ended.returncode, ended.stderr) == (0, "")
        named = ended.stdout.replace("hitmac scenarios NAME", "usage: hitmac scenarios")
        assert re.search(rf"usage: hitmac (COMMAND|{arguments[0]})", re.sub(r"\x1b\[[\d;]*m", "", named))
    assert (installed / "bin" / "hitmac").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(QUICK_STARTS)))
def test_a_quick_start_runs(number, installed, project):
    ended = run("-c", QUICK_STARTS[number], cwd=project, path=installed)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_policy_is_trained_on_the_site(installed, project):
    shutil.copytree(ROOT / "examples" / "site", project / "site", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--minutes", "0.02", "--num-envs", "4", "--episodes", "2", "--curve-points", "0", "--weight-dim", "8"]
    arguments = ["train", "coverage", "--scenario", "site/site.yaml", "--run-dir", "runs/site", *options]
    ended = run("-m", "hitmac", *arguments, cwd=project, path=installed)
    assert ended.returncode == 0, ended.stderr
    assert (project / "runs/site/episode.gif").is_file()
    evaluated = run(
        "-m", "hitmac", "evaluate", "--scenario", "runs/site", "--tracks", "site/tracks/day-6.csv", "--agents",
        "runs/site,still", "--episodes", "2", cwd=project, path=installed,
    )  # fmt: skip
    assert evaluated.returncode == 0, evaluated.stderr
    assert "runs/site" in evaluated.stdout
