"""Code and commands of the documentation's pages, in order."""

import os
import re
import subprocess
import sys
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

    _PROGRAMS = f'python() {{ "{sys.executable}" "$@"; }}\nhitmac() {{ python -m hitmac "$@"; }}\n'

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str) -> str:
        """Run a command, which must succeed; return what it prints."""
        ended = subprocess.run(
            ["bash", "-c", self._PROGRAMS + command],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout
