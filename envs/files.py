"""Files: atomic writes, to a temporary file that then replaces the target, and YAML without surprises."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml


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


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is given twice instead of dropping the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping, or raise ``yaml.YAMLError`` that names the repeated key and its line."""
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Parse YAML without running code; a key given twice raises ``yaml.YAMLError``, as bad syntax does."""
    return yaml.load(text, Loader=_Loader)


def whole_path(name: str, path: Any, place: Callable[[Path], str] = os.path.abspath) -> str:
    """Return the whole path of a file, as `place` says; "" stands for no file.

    Raises ``TypeError`` for anything else than a path; the message calls it `name`.
    """
    if not isinstance(path, str | Path):
        raise TypeError(f"{name} is {path!r}; it must be the name of a file")
    return place(Path(path)) if str(path) else ""


def whole_paths(name: str, paths: Any, place: Callable[[Path], str] = os.path.abspath) -> tuple[str, ...]:
    """Return the whole paths of a file or a list of files; see :func:`whole_path`."""
    files = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(files, list | tuple) or not all(isinstance(file, str | Path) and str(file) for file in files):
        raise TypeError(f"{name} is {paths!r}; it must be the name of a file, or a list of names")
    return tuple(whole_path(name, file, place) for file in files)


def path_in(folder: str | Path, path: Path) -> str:
    """Return the whole path of a path that may be relative to a folder."""
    return os.path.abspath(Path(folder, path))


def path_from(folder: str | Path, path: str) -> str:
    """Return a whole path relative to a folder, if they have a folder in common other than the root."""
    folder = os.path.abspath(folder)
    return os.path.relpath(path, folder) if Path(path).parts[:2] == Path(folder).parts[:2] else path


def moved_path(folder: str | Path, path: Path) -> str:
    """Return the whole path of what :func:`path_from` gives.

    Where the folder has moved without the file, this is the file at the same place below the current directory, if
    there is one.
    """
    place = path_in(folder, path)
    here = os.path.abspath(Path(*(part for part in path.parts if part != "..")))
    return here if os.path.isfile(here) and not os.path.isfile(place) else place
