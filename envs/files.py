"""Atomic writes: every file is written to a temporary file beside it, which then replaces it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block succeeds and is deleted when it fails.

    The temporary path keeps the extension of `path`, since many writers choose their format by it.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_ending(name: str, path: str | Path, ending: str) -> None:
    """Raise a ValueError unless `path`, the argument `name` of the caller, ends in `ending`, such as ``.gif``."""
    if Path(path).suffix.lower() != ending:
        raise ValueError(f"{name} is {str(path)!r}; its name must end in {ending}")


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
