"""Files are written whole or not at all: to a temporary file beside the target, then renamed over it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` when the block ends well and vanishes when it fails.

    It keeps the ending of `path`, since many writers choose their format by it.
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
    """Raise a ValueError unless `path`, which the caller knows as `name`, ends in `ending`, as in ``.gif``."""
    if Path(path).suffix.lower() != ending:
        raise ValueError(f"{name} is {str(path)!r}; its name must end in {ending}")


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
