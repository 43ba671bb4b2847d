"""Documentation of dataclass fields: their docstrings, with the ranges of their annotations."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from hitmac.envs.arena_defaults import HIT_MAC_ARENA, default_of, is_scaled
from hitmac.envs.ranges import allowed, field_types


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring of every field of a dataclass, one line each; a subclass inherits those of its bases.

    A field without one has ``""``, and so do all fields where the source code is not installed.
    """
    docs = dict.fromkeys(field_types(kind), "")
    for base in reversed(kind.__mro__):
        for field, text in _own_docs(base):
            docs[field] = text
    return {name: docs[name] for name in field_types(kind)}


def help_texts(kind: type) -> dict[str, str]:
    """Return the help of every field: its docstring, and what is allowed."""
    hints = field_types(kind)
    return {
        name: f"{text} Allowed: {allowed(hints[name])}.".strip() if allowed(hints[name]) else text
        for name, text in field_docs(kind).items()
    }


def parameter_table(kind: type) -> str:
    """Return a Markdown table of the fields of a dataclass: name, default, what is allowed, meaning."""
    docs, hints = field_docs(kind), field_types(kind)
    rows = [
        f"| `{field.name}` | {_default(field)} | {allowed(hints[field.name])} | {docs[field.name]} |"
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(("| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows))


def _own_docs(kind: type) -> list[tuple[str, str]]:
    """Return the fields that a class documents itself, with the docstring below each."""
    if kind is object:
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # built in, or installed without its source
        return []
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return [
        (field.target.id, " ".join(below.value.value.split()))
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    ]


def _default(field: dataclasses.Field) -> str:
    """Return the default of a field in a table."""
    default = default_of(field)
    if not is_scaled(field):
        return _shown(default)
    if default is True:
        return f"true if arena is {HIT_MAC_ARENA:g}"
    return f"{_shown(default)} * arena / {HIT_MAC_ARENA:g}"


def _shown(default: Any) -> str:
    """Return a default as a file holds it."""
    if isinstance(default, tuple):
        return f"[{', '.join(map(_shown, default))}]"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
