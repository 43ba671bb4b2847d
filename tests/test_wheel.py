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
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMES = ("agents", "envs", "perception")


def run(*arguments, cwd, path=None):
    """Run Python with the packages of `path` only; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    command = [sys.executable, *map(str, arguments)]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "tree").mkdir()
    for name in ("README.md", "LICENSE", "pyproject.toml", "train.py"):
        shutil.copy(ROOT / name, folder / "tree" / name)
    for name in ("hitmac", *NAMES):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / "tree" / name, symlinks=True, ignore=ignored)
    pip = "-m", "pip", "--disable-pip-version-check"
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, folder / "tree", cwd=folder)
    to = "--target", folder / "site"
    run(*pip, "install", "--no-deps", "--no-compile", "--no-index", "--find-links", folder, *to, "hitmac", cwd=folder)
    return folder / "site"


@pytest.mark.slow
def test_the_wheel_has_one_package_with_all_its_files(installed):
    assert {path.name for path in installed.iterdir()} - {"bin"} == {"hitmac", f"hitmac-{VERSION}.dist-info"}
    assert (installed / "bin" / "hitmac").is_file()
    package = installed / "hitmac"
    kinds = {".py", ".yaml", ".safetensors", ".json", ".js", ".html", ".css"}
    files = [path for name in NAMES for path in (ROOT / name).rglob("*") if path.suffix in kinds]
    assert {path.suffix for path in files} == kinds
    for path in (*files, *(ROOT / "agents/pretrained").rglob("card.md"), ROOT / "train.py"):
        assert (package / path.relative_to(ROOT)).is_file(), path
    assert (package / "py.typed").is_file()
    assert not any(path.is_symlink() for path in package.rglob("*"))


@pytest.mark.slow
def test_it_stands_beside_packages_of_another_project(installed, tmp_path):
    for file in ("train.py", *(f"{name}/__init__.py" for name in NAMES)):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("OWNER = 'another project'\n")
    code = (
        "import agents, contextlib, envs, perception, sys, train\n"
        "import hitmac, hitmac.__main__, hitmac.perception\n"
        "assert {one.OWNER for one in (agents, envs, perception, train)} == {'another project'}\n"
        "for words in (['scenarios'], ['train', 'coverage', '--help'], ['evaluate', '--help']):\n"
        "    sys.argv = ['hitmac', *words]\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        hitmac.__main__.main()\n"
        "assert hitmac.agents.load_agent('pretrained:flat', 'hit-mac-2x3').trained\n"
        "print(hitmac.__version__, hitmac.__file__)"
    )
    *helps, last = re.sub(r"\x1b\[[\d;]*m", "", run("-c", code, cwd=tmp_path, path=installed)).splitlines()
    assert last.split() == [VERSION, str(installed / "hitmac" / "__init__.py")]
    for words in ("hit-mac ", "usage: hitmac train coverage", "usage: hitmac evaluate"):
        assert any(line.strip().startswith(words) for line in helps), words
