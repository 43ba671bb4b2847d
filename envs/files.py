"""Atomic writing of files, safe YAML, and tables."""

import csv
import io
import math
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hitmac.envs.validation import shortly


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block succeeds and is deleted when it fails.

    The temporary path keeps the extension of `path`, since many writers choose their format by it. Links stay: the
    files that they name are replaced. A replaced file keeps its permissions.
    """
    given, path = path, Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        temporary.touch()
        mode = stat.S_IMODE((path if path.exists() else temporary).stat().st_mode)  # some writers choose another
        yield temporary
        with temporary.open("r+b") as written:  # Windows flushes only files that can be written to
            os.fsync(written.fileno())
        temporary.chmod(mode)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno and error.filename in (None, str(temporary)):  # the message names what the user asked for
            raise type(error)(error.errno, error.strerror, str(given)) from None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def lock(file: int) -> bool:
    """Lock an open file, by its descriptor, until it is closed; return False if another process has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(file, 2**40, os.SEEK_SET)  # others could not read a locked byte
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        pass
    return True


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: str | Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark."""
    return Path(path).read_text(encoding="utf-8-sig")


_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


def read_table(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line, and the fields without blanks around them, of each row of a table but empty ones.

    Tabs, semicolons, commas or blanks separate the fields: the first of these that the first row has, but commas where
    there are too many to be decimal ones. Unless it is commas, a decimal comma in a number becomes a point. Raises
    ``ValueError``, which names the file, for other text.
    """
    try:
        text = read_text(path)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"{path} is not UTF-8 text: it has the byte 0x{byte:02x}; save it as UTF-8") from None
    first = re.sub('"[^"]*"', "", text.strip().partition("\n")[0].strip())
    commas = first.count(",")  # decimal ones are at most one more than separators
    separator = next((one for one in "\t;" if 0 < first.count(one) >= commas - 1), "," if commas else " ")
    lines = map(str.strip, io.StringIO(text)) if separator == " " else io.StringIO(text)
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        for row in rows:
            fields = [field.strip() for field in row]
            if separator != ",":
                fields = [field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field for field in fields]
            if any(fields):
                yield rows.line_num, fields
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: {error}") from None


def working_folder(path: Path) -> Path:
    """Make and return an empty folder beside `path`, to be renamed to it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"{error.filename} is a file, so that {path} cannot be made") from None
    folder = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def check_output(name: str, path: str | Path, *endings: str) -> None:
    """Raise an error unless a file can be made at `path`, the argument `name` of the caller, before any work is done.

    Raises ValueError for a name without one of the `endings`, such as ``.gif``, if there are any; IsADirectoryError for
    a folder; FileNotFoundError and PermissionError where its folder does not exist, or cannot be written to.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{name} is {str(path)!r}, a folder; name a file")
    if endings and path.suffix.lower() not in endings:
        raise ValueError(f"{name} is {str(path)!r}; its name must end in {' or '.join(endings)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name} is {str(path)!r}; there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{name} is {str(path)!r}; the folder {path.parent} cannot be written to")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is given twice instead of dropping the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping, or raise ``yaml.YAMLError`` that names the repeated key and its line."""
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                twice = f"key {shortly(key.value)} is given twice"
                raise yaml.constructor.ConstructorError(None, None, twice, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes text that :class:`_Loader` reads as a number."""


for _kind in (_Loader, _Dumper):  # numbers such as 1e3, as in YAML 1.2
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), [*"-+.0123456789"]
    )


def dump_yaml(value: Any) -> str:
    """Return mappings, lists, text and numbers as YAML, lines unfolded; :func:`parse_yaml` returns the same."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=math.inf)


def parse_yaml(text: str) -> Any:
    """Parse YAML without running code.

    Raises ``ValueError``, in one line, for invalid syntax, numbers or dates, and for a repeated key.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        end, start = error.problem_mark, error.context_mark
        begun = f" {error.context}, from line {start.line + 1}" if start else ""
        where = f"line {end.line + 1}: " if end else ""
        raise ValueError(f"{where}{error.problem}{begun}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None
