"""Files that the build writes among the pages."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent


def write(path: Path, content: str | bytes) -> None:
    """Write a file, unless it has this content already: what has not changed is not built again."""
    data = content.encode() if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
