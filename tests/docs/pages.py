"""Code and commands of the documentation's pages, in order."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tools/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`((?:python|hitmac|make)\s[^`]+)`(?!`)")


class Step(NamedTuple):
    """Block of Python, or command."""

    kind: str
    text: str


def steps(page: str) -> list[Step]:
    """Return the Python blocks of a page and the commands of its indented blocks, in order."""
    found = []
    text, end = PAGES[page], 0
    for block in _FENCED.finditer(text):
        found += [Step("command", command) for command in _indented(text[end : block.start()])]
        found += [Step("python", block[2])] * (block[1] == "python")
        end = block.end()
    return found + [Step("command", command) for command in _indented(text[end:])]


def inline_commands(page: str) -> list[str]:
    """Return the commands within the sentences of a page."""
    return [" ".join(command.split()) for command in _INLINE.findall(_FENCED.sub("", PAGES[page]))]


def _indented(text: str) -> list[str]:
    """Return the commands of the indented blocks, with continued lines joined."""
    blocks = re.findall(r"(?:\A|\n)\n((?: {4}\S.*\n(?: {5,}\S.*\n|\n(?= {4}\S))*)+)", text)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) if '"' not in line else line.strip() for line in lines if line.strip()]


class Shell:
    """Shell in which ``python`` and ``hitmac`` are those of the tests.

    Args:
        folder: the folder in which commands run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = tempfile.TemporaryDirectory()
        for name, words in {"python": "", "hitmac": "-m hitmac"}.items():
            program = Path(self._programs.name, name)
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            program.chmod(0o755)

    def __call__(self, command: str) -> str:
        """Run a command, which must succeed; return what it prints."""
        path = f"{self._programs.name}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout
