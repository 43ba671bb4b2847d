"""Run the tests with every Python that is found, and with the lowest and the newest versions of the dependencies.

``make versions`` makes a fresh environment in a temporary folder for each, runs a part of the tests in a copy of the
tree there, and prints a table. The lowest versions are those that ``pyproject.toml`` declares with ``>=``; they are
tried with the first Python only, since they are not built for newer ones. ``--all`` runs all tests; ``--pin
torch==2.13.0`` keeps one version in every environment, such as a build of PyTorch without CUDA.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
SHOWN = ("torch", "numpy", "numba", "gymnasium", "stable-baselines3")
SMOKE = (
    "agents", "attention", "command", "encoder_config", "envs", "export", "hierarchy", "imitation",
    "nearest_agents", "outside", "perception", "pettingzoo", "physics", "planner", "pretrained", "recordings",
    "references", "render", "scenario", "site", "statistics", "tasks", "train",
)  # fmt: skip


def requirements() -> list[str]:
    """Return the requirements of the project and of all its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    return sorted({one for one in (*project["dependencies"], *extras) if not one.startswith("hitmac[")})


def lowest(declared: list[str]) -> list[str]:
    """Return the constraint ``name==version`` of every requirement ``name>=version``."""
    bounds = [re.fullmatch(r"([\w.-]+)>=([\w.]+)(,.*)?", one) for one in declared]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


def constraints(kind: str, pinned: list[str]) -> list[str]:
    """Return the constraints of the ``lowest`` or the ``newest`` versions; those that are pinned take precedence."""
    names = {re.split(r"[=<>!~]", one)[0] for one in pinned}
    bounds = lowest(requirements()) if kind == "lowest" else []
    return [*(one for one in bounds if one.split("==")[0] not in names), *pinned]


def found(names: list[str]) -> Iterator[str]:
    """Yield the Pythons that there are, each of another version, of names or paths."""
    seen = set()
    for name in names:
        version = "import sys; print(*sys.version_info[:3], sep='.')"
        if shutil.which(name):
            asked = subprocess.run([name, "-c", version], capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                if asked.stdout not in seen:
                    yield name
                seen.add(asked.stdout)
                continue
        print(f"{name}: not found", flush=True)


def copy_tree(folder: Path) -> None:
    """Copy what git knows of the tree, or would add to it; a link stays one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().strip("\0").split("\0"):
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)


def last_lines(ended: subprocess.CompletedProcess[str], count: int = 25) -> str:
    """Return the end of what a program printed."""
    return "\n".join((ended.stdout + ended.stderr).splitlines()[-count:])


def try_one(python: str, kind: str, pinned: list[str], tests: list[str]) -> list[str]:
    """Make an environment and run the tests in it; return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="hitmac-versions-") as place:
        folder, tree = Path(place), Path(place, "tree")
        copy_tree(tree)
        (folder / "constraints.txt").write_text("\n".join(constraints(kind, pinned)) + "\n", encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

        def run(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)

        inside = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
        for command in (
            (python, "-m", "venv", str(folder / "venv")),
            (inside, "-m", "pip", "install", "--quiet", "-c", str(folder / "constraints.txt"), "-e", ".[dev]"),
        ):
            ended = run(*command)
            if ended.returncode:
                print(f"\n{last_lines(ended)}\n", flush=True)
                return [python, kind, *("-" for _ in SHOWN), "not installed"]
        asked = f"from importlib.metadata import version\nprint(*map(version, {SHOWN}), sep='\\n')"
        versions = run(inside, "-c", asked).stdout.splitlines()
        began = time.monotonic()
        # Warnings of old versions about new ones below them are no errors.
        ended = run(inside, "-m", "pytest", "-q", *(("-o", "filterwarnings=") if kind == "lowest" else ()), *tests)
        result = (ended.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
        if ended.returncode:
            print(f"\n{last_lines(ended)}\n", flush=True)
            return [python, kind, *versions, f"failed: {result}"]
        return [python, kind, *versions, f"{re.sub(r' in .*', '', result)}, {time.monotonic() - began:.0f} s"]


def main() -> None:
    """Try every pair of a Python and a set of versions; end with 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="make versions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="names or paths of Pythons, comma-separated")
    parser.add_argument("--kinds", default="lowest,newest", help="versions of the dependencies (lowest,newest)")
    parser.add_argument("--pin", action="append", default=[], help="NAME==VERSION to have everywhere; several times")
    parser.add_argument("--all", action="store_true", help="run all tests, not a part of them")
    parser.add_argument("--list", action="store_true", help="print the lowest versions, as constraints, and end")
    options = parser.parse_args()
    if options.list:
        print("\n".join(constraints("lowest", options.pin)))
        return
    smoke = [str(path.relative_to(ROOT)) for name in SMOKE for path in ROOT.glob(f"tests/**/test_{name}.py")]
    tests = [] if options.all else smoke
    rows = [["Python", "versions", *SHOWN, "tests"]]
    for number, python in enumerate(found(options.pythons.split(","))):
        for kind in options.kinds.split(","):
            if kind == "lowest" and number > 0:
                continue
            rows.append(try_one(python, kind, options.pin, tests))
            print("  ".join(rows[-1]), flush=True)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    sys.exit(any(row[-1].startswith(("failed", "not")) for row in rows[1:]))


if __name__ == "__main__":
    main()
