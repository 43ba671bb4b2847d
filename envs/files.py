"""Files: atomic writes, to a temporary file that then replaces the target, and YAML without surprises."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hitmac.envs.validation import shortly

_MOST_VALUES = 200_000  # of a document, keys among them
_MOST_REPEATED = 1_000_000  # the same with everything that a YAML document repeats by reference
_LONGEST_NUMBER = 1_000  # characters, in YAML; the time to convert one grows with the square of its length
_MOST_BYTES = 16 * 2**20  # of a file that is read whole


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block succeeds and is deleted when it fails.

    The temporary path keeps the extension of `path`, since many writers choose their format by it. A link stays, and
    the file that it names is replaced. A file that is replaced keeps its permissions. What is no file, such as
    ``/dev/null`` or a pipe, is written to.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder, path.name)
            yield temporary
            with temporary.open("rb") as written, path.open("wb") as device:
                shutil.copyfileobj(written, device)
        return
    given, path = path, Path(os.path.realpath(path))
    if path.is_symlink():  # a link to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    for other in _left_over(path.parent, path.stem, path.suffix):
        other.unlink(missing_ok=True)
    try:
        temporary.touch()
        mode = stat.S_IMODE((path if path.exists() else temporary).stat().st_mode)  # some writers choose another
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(mode)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno and error.filename in (None, str(temporary)):  # which nobody has asked for
            raise type(error)(error.errno, error.strerror, str(given)) from None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def delete_left_over(folder: Path) -> None:
    """Delete the temporary files of :func:`whole_file` in a directory whose processes are no more: they were killed."""
    for path in folder.rglob(".*"):
        if path.is_file() and _is_left_over(path, r".+", r"(\.\w+)?"):
            path.unlink(missing_ok=True)


def working_folder(path: Path) -> Path:
    """Make and return an empty folder beside `path`, to become it; delete those of processes that were killed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"{error.filename} is a file, so that {path} cannot be made") from None
    for other in _left_over(path.parent, path.name):
        shutil.rmtree(other, ignore_errors=True)
    folder = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        error.filename = str(path)
        raise
    return folder


def _left_over(folder: Path, name: str, suffix: str = "") -> list[Path]:
    """Return what processes that are no more have left of this name: ``.NAME.PROCESS`` and the suffix."""
    if not folder.is_dir():
        return []
    return [path for path in folder.glob(".*") if _is_left_over(path, re.escape(name), re.escape(suffix))]


def _is_left_over(path: Path, name: str, suffix: str) -> bool:
    """Return True if a path is ``.NAME.PROCESS`` and the suffix, both patterns, of a process that is no more."""
    found = re.fullmatch(rf"\.{name}\.(\d{{1,9}}){suffix}", path.name)
    return os.name == "posix" and found is not None and not _runs(int(found[1]))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def check_ending(name: str, path: str | Path, *endings: str) -> None:
    """Raise a ValueError unless `path`, the argument `name` of the caller, has one of the endings, such as ``.gif``."""
    if Path(path).suffix.lower() not in endings:
        raise ValueError(f"{name} is {str(path)!r}; its name must end in {' or '.join(endings)}")


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is given twice instead of dropping the first value.

    Every error is a ``yaml.YAMLError``, also that of a number or a date that cannot be.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._written = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node; raise ``yaml.YAMLError`` as soon as there are too many."""
        self._written += 1
        if self._written > _MOST_VALUES:
            raise yaml.YAMLError(f"it has more than {_MOST_VALUES} keys and values")
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct a value, or raise ``yaml.YAMLError`` that shows its line."""
        kind = node.tag.rpartition(":")[2]
        try:
            if kind in ("int", "float") and len(node.value) > _LONGEST_NUMBER:
                raise ValueError
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError):  # as PyYAML's constructors raise them
            raise yaml.constructor.ConstructorError(None, None, f"no valid {kind}", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping, or raise ``yaml.YAMLError`` that names the repeated key and its line."""
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                twice = f"key {shortly(key.value)} is given twice"
                raise yaml.constructor.ConstructorError(None, None, twice, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Parse YAML without running code.

    Raises:
        yaml.YAMLError: bad syntax, a key given twice, a number or a date that cannot be, or a document that is nested
            too deeply or that, also with all its references written out, is too long.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if _nodes(node, {}) > _MOST_REPEATED:
            raise yaml.YAMLError(f"its references stand for more than {_MOST_REPEATED} values")
        return None if node is None else loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    finally:
        loader.dispose()


def _nodes(node: yaml.Node | None, counted: dict[int, int]) -> int:
    """Return the number of nodes under a node, a node once for every reference to it."""
    if id(node) not in counted:
        counted[id(node)] = _MOST_REPEATED  # until it is known: what a node that holds itself would come to, at least
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
        counted[id(node)] = 1 + sum(_nodes(part, counted) for part in parts)
    return counted[id(node)]


def parse_json(text: str) -> Any:
    """Parse JSON; what is nested too deeply or too long raises a ``ValueError``, as bad syntax does."""
    if text.count(",") >= _MOST_VALUES:  # each but the first of a list has one
        raise ValueError(f"it has more than {_MOST_VALUES} keys and values")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def regular_file(path: str | Path) -> Path:
    """Return the path of a file to read, or raise a ``ValueError`` if it is a directory, a pipe or a device.

    To open a pipe may last for ever, and a device may have no end. A pipe could not be read again either, as files of a
    scenario are by every environment and every run that goes on.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        kinds = {"a directory": path.is_dir, "a pipe": path.is_fifo, "a socket": path.is_socket}
        kind = next((kind for kind, holds in kinds.items() if holds()), "a device")
        raise ValueError(f"{path} is {kind}; it must be a regular file")
    return path


def read_text(path: str | Path) -> str:
    """Read a text file that is no longer than any that the project writes.

    Raises:
        ValueError: a longer one, or what is no regular file.
        OSError: a file that cannot be read.
    """
    with regular_file(path).open(encoding="utf-8") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path} is longer than {_MOST_BYTES} characters")
    return text


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
