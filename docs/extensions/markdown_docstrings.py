"""Markdown in docstrings: tables and headings, which read better in ``help()`` than those of reStructuredText."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx


def restructured(lines: list[str]) -> list[str]:
    """Return the lines of a docstring with its Markdown tables and headings in reStructuredText."""
    found: list[str] = []
    for is_row, group in groupby(lines, key=lambda line: line.lstrip().startswith("|")):
        block = list(group)
        found += _table(block) if is_row and len(block) > 1 and _is_rule(block[1]) else map(_heading, block)
    return found


def _is_rule(line: str) -> bool:
    return re.fullmatch(r"\s*\|(-+\|)+\s*", line) is not None


def _heading(line: str) -> str:
    return re.sub(r"^#+ (.*)$", r".. rubric:: \1", line)


def _table(rows: list[str]) -> list[str]:
    """Return a table, whose second row is the rule below its head."""
    indent = rows[0][: len(rows[0]) - len(rows[0].lstrip())]
    cells = [re.split(r"(?<!\\)\|", row.strip().strip("|")) for row in (rows[0], *rows[2:])]
    listed = ["", f"{indent}.. list-table::", f"{indent}   :header-rows: 1", ""]
    for row in cells:
        bullets = ["* -", *["  -"] * (len(row) - 1)]
        listed += [f"{indent}   {bullet} {cell.strip()}" for bullet, cell in zip(bullets, row, strict=True)]
    return [*listed, ""]


def _process(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines)
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment: of the first line, napoleon takes what is before a colon for a type


def setup(app: Sphinx) -> dict[str, bool]:
    """Convert every docstring before its sections are read."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}
