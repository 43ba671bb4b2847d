"""Provenance of results: versions, commit, machine and command, for reproduction."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from hitmac.envs.kernels.threads import cores

PACKAGES = ("hitmac", "torch", "numpy", "numba", "stable-baselines3", "gymnasium")
ROOT = Path(__file__).resolve().parents[1]


def provenance() -> dict[str, Any]:
    """Return the provenance of the results of this process.

    Returns:
        ``versions`` of Python and of the packages, None for a package that is not installed; ``commit``, the hash of
        the checkout of this code, and ``modified``, True if a tracked file differs from that commit, both None without
        a checkout or git; ``threads`` of PyTorch and of the simulator, and the cores of the machine; ``platform``,
        ``processor``; ``command``, in which a path outside the current directory is reduced to its last name. Nothing
        in it names the host, the user or a directory outside the current one.
    """
    commit, modified = _commit(ROOT)
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "commit": commit,
        "modified": modified,
        "threads": {"torch": torch.get_num_threads(), "simulator": cores(), "cores": os.cpu_count()},
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
    """Return the commit of the checkout with the top directory `root`, and whether tracked files differ from it."""
    # A repository that the environment names, or one around an installed package, is not that of this code.
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
    """Return the name of the processor, or without one the system's description."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def _command(arguments: list[str], here: Path) -> str:
    """Return the command line without directories of the machine."""

    def shown(path: re.Match[str]) -> str:
        place = Path(path[0])
        return str(place.relative_to(here)) if place.is_relative_to(here) else place.name

    # An absolute path begins an argument, or follows a separator within one.
    program, *rest = arguments or [""]
    return " ".join([Path(program).name, *(re.sub(r"(?<![^,+=:])[/\\][^,+=:]*", shown, one) for one in rest)])
