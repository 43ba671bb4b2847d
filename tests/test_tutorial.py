"""The tutorial, from its first command to its last, as a reader runs it."""

import re

import pytest

from tests.documents import PAGES, Shell, steps

PAGE = "docs/tutorial.md"

FIGURE = re.compile(r"^(\w[\w/]*) .*?(0\.\d{3})\b", re.MULTILINE)
"""Name of an agent and its coverage, in a row of a table or in a line that a block of Python prints."""

LEARNED = {"runs/first", "MyPolicy"}
"""Agents whose figures depend on the processor, which rounds in its own way."""


def figures(text):
    """Return the agents in a text with their coverage, in order."""
    return [(name, float(coverage)) for name, coverage in FIGURE.findall(text)]


@pytest.mark.slow
def test_the_tutorial_runs_as_it_stands(tmp_path):
    """In one folder, each block of Python in a process of its own. What it leaves and prints is what the page says."""
    shell = Shell(tmp_path)
    shown = ""
    for kind, text in steps(PAGE):
        if ".venv" in text:  # the installation is that of the tests
            continue
        printed = shell(text if kind == "command" else f"python - <<'END'\n{text}\nEND")
        if "evaluate" in text:
            shown += printed
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"planner.gif", "first.gif", "yard.yaml", "yard.gif", "runs/first/episode.gif"} <= left
    said = "".join(re.findall(r"^```text\n(.*?)^```$", PAGES[PAGE], re.DOTALL | re.MULTILINE))
    assert len(figures(said)) == 11
    for (name, found), (same, expected) in zip(figures(shown), figures(said), strict=True):
        assert name == same
        assert found == pytest.approx(expected, abs=0.03 if name in LEARNED else 0)
