"""What made a result: versions, commit, machine and command, so that it can be made again."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numba
import torch

PACKAGES = ("hitmac", "torch", "numpy", "numba", "stable-baselines3", "gymnasium")
ROOT = Path(__file__).resolve().parents[1]


def provenance() -> dict[str, Any]:
    """What makes the results of this process.

    Returns:
        ``versions`` of Python and of the packages, None for one that is not installed as a package; ``commit``, the
        hash of the checkout that this code lies in, and ``modified``, whether a file of it differs from that commit,
        both None where there is no checkout or no git; ``threads`` of PyTorch, of the simulator, and the cores of the
        machine; ``platform``, ``processor``; ``command``, in which a path outside the current directory is its last
        name only. Nothing in it names the host, the user or a place outside the current directory.
    """
    commit, modified = _commit(ROOT)
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "commit": commit,
        "modified": modified,
        "threads": {"torch": torch.get_num_threads(), "numba": numba.get_num_threads(), "cores": os.cpu_count()},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "command": _command(sys.orig_argv, Path.cwd()),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit(root: Path) -> tuple[str | None, bool | None]:
    """The commit of the checkout whose top is `root`, and whether tracked files differ from it."""
    # Another repository that the environment names, or one around an installed package, says nothing of this code.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None, None
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None, None


def _processor() -> str:
    """The processor's name; the system's word for it where there is no better."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def _command(arguments: list[str], here: Path) -> str:
    """The command line, without what says where on the machine it ran."""

    def shown(path: re.Match[str]) -> str:
        place = Path(path[0])
        return str(place.relative_to(here)) if place.is_relative_to(here) else place.name

    # An absolute path begins an argument, or follows what joins several in one.
    program, *rest = arguments or [""]
    return " ".join([Path(program).name, *(re.sub(r"(?<![^,+=:])[/\\][^,+=:]*", shown, one) for one in rest)])
