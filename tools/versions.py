"""Tests with every Python found, and with the lowest and newest versions of the dependencies: ``make versions``.

Each combination gets a fresh environment and a copy of the tree in a temporary folder. The lowest versions are those
declared with ``>=`` in ``pyproject.toml``, tried with the first Python only, since they are not built for newer ones.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHOWN = ("torch", "numpy", "numba", "gymnasium", "stable-baselines3")
SMOKE = ("tests/perception", "tests/envs/wrappers", "tests/agents/planning", "tests/agents/deploy/export")


def lowest() -> dict[str, str]:
    """Return the lowest version of every dependency that declares one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    bounds = [re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)(,.*)?", one) for one in declared]
    return {bound[1]: bound[2] for bound in bounds if bound}


def constraints(kind: str, pinned: list[str]) -> str:
    """Return the constraints of the ``lowest`` or ``newest`` versions; pinned ones take precedence."""
    versions = (lowest() if kind == "lowest" else {}) | dict(one.split("==") for one in pinned)
    return "".join(f"{name}=={version}\n" for name, version in versions.items())


def runs(python: str) -> bool:
    """Return True if a Python runs; those of pyenv that are not selected are found, and fail."""
    found = shutil.which(python)
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


def try_one(python: str, kind: str, pinned: list[str], tests: list[str]) -> list[str]:
    """Run the tests in a fresh environment; return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="hitmac-versions-") as folder:
        tree, inside, limits = Path(folder, "tree"), f"{folder}/venv/bin/python", Path(folder, "constraints.txt")
        left_out = shutil.ignore_patterns(".?*", "runs", "__pycache__", "_build", "*.egg-info")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
        limits.write_text(constraints(kind, pinned))
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

        def run(*command: str) -> subprocess.CompletedProcess[str]:
            done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print("\n".join((done.stdout + done.stderr).splitlines()[-25:]), flush=True)
            return done

        if (
            run(python, "-m", "venv", f"{folder}/venv").returncode
            or run(inside, "-m", "pip", "install", "-q", "-c", str(limits), "-e", ".[dev]").returncode
        ):
            return [python, kind, *("-" for _ in SHOWN), "FAILED: not installed"]
        asked = f"from importlib.metadata import version\nprint(*map(version, {SHOWN}), sep='\\n')"
        versions = run(inside, "-c", asked).stdout.splitlines()
        began = time.monotonic()
        old = ("-o", "filterwarnings=") if kind == "lowest" else ()  # old versions warn of newer Pythons and numpy
        ended = run(inside, "-m", "pytest", "-q", "-m", "not slow", *old, *tests)
        result = (ended.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
        failed = "FAILED: " * bool(ended.returncode)
        return [python, kind, *versions, f"{failed}{result.split(' in ')[0]}, {time.monotonic() - began:.0f} s"]


def main() -> int:
    """Try every combination of a Python and a set of versions; return the number of failures."""
    parser = argparse.ArgumentParser(prog="make versions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pythons", default="python3.11,python3.12,python3.13", help="names or paths of Pythons")
    parser.add_argument("--kinds", default="lowest,newest", help="versions of the dependencies (lowest,newest)")
    parser.add_argument("--pin", action="append", default=[], help="NAME==VERSION in every environment; repeatable")
    parser.add_argument("--all", action="store_true", help=f"run all fast tests, not only {', '.join(SMOKE)}")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    pythons = [name for name in options.pythons.split(",") if runs(name)]
    if unknown := set(kinds) - {"lowest", "newest"}:
        parser.error(f"--kinds is {options.kinds}; unknown is {', '.join(sorted(unknown))}: known are lowest, newest")
    if unpinned := [one for one in options.pin if not re.fullmatch(r"[\w.-]+==[\w.+]+", one)]:
        parser.error(f"--pin is {', '.join(unpinned)}; it must be NAME==VERSION")
    if not pythons:
        parser.error(f"--pythons is {options.pythons}; none of them runs")
    rows = [["Python", "versions", *SHOWN, "tests"]]
    for number, python in enumerate(pythons):
        for kind in kinds:
            if kind != "lowest" or number == 0:
                rows.append(try_one(python, kind, options.pin, [] if options.all else list(SMOKE)))
                print("  ".join(rows[-1]), flush=True)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return sum(row[-1].startswith("FAILED") for row in rows)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # removes the temporary folders
    sys.exit(main())
