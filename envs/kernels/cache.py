"""Disk cache of compiled kernels, which is never worse than none: a file that cannot be used is not used."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from hitmac.envs.files import regular_file

try:
    import fcntl
except ImportError:  # not on Windows: there, processes that start together all compile
    fcntl = None  # type: ignore[assignment]

_DIGEST = hashlib.sha256
_LONGEST_TURN = 120.0  # seconds that a process waits for another one, which may have been halted
_warned: set[str] = set()
_locks: dict[str, int] = {}  # descriptors of open files, by path: to close one would give up all its locks


class _ReadOnlyLocator(_CacheLocator):
    """The folder beside the sources, where it may be read only: a package that was compiled before it was installed."""

    def __init__(self, function: Callable, path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable, path: str) -> _ReadOnlyLocator | None:
        return cls(function, path) if os.path.isfile(path) else None

    def get_cache_path(self) -> str:
        return os.path.join(os.path.dirname(self._py_file), "__pycache__")

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._lineno)

    def ensure_cache_path(self) -> None:
        """Do nothing: what is there can be read, and what cannot be written is said when it is."""


class _Impl(CompileResultCacheImpl):
    _locator_classes = [*CompileResultCacheImpl._locator_classes, _ReadOnlyLocator]


class _CheckedFile(IndexDataCacheFile):
    """Index and data files, each with a digest, so that a cut or altered one is compiled again.

    The digest finds accidents. Who may write into the cache's folder may run code, as in any cache of numba's.
    """

    def load(self, key: Any) -> Any:
        try:
            return super().load(key)
        except OSError:  # saving says so
            return None
        except Exception as error:  # whatever a damaged file makes of unpickling
            _warn(f"a cached kernel cannot be used, and is compiled again: {error!r}")
            return None

    def save(self, key: Any, data: Any) -> None:
        try:
            try:
                super().save(key, data)
            except (ValueError, EOFError, pickle.UnpicklingError):  # a damaged index
                self.flush()
                super().save(key, data)
        except OSError as error:
            _warn(f"compiled kernels cannot be cached, so that every process compiles them: {error}")

    def _load_data(self, name: str) -> Any:
        with open(regular_file(self._data_path(name)), "rb") as file:
            return pickle.loads(_checked(file.read(), file.name))

    def _load_index(self) -> dict[Any, Any]:
        try:
            with open(regular_file(self._index_path), "rb") as file:
                version, data = pickle.load(file), file.read()
        except FileNotFoundError:
            return {}
        if version != self._version:
            return {}
        stamp, overloads = pickle.loads(_checked(data, self._index_path))
        return overloads if stamp == self._source_stamp else {}

    def _dump(self, obj: Any) -> bytes:
        data = super()._dump(obj)
        return data + _DIGEST(data).digest()


class KernelCache(FunctionCache):
    """Cache of a function's kernels.

    Args:
        function: the function.
        sources: digest of all that the kernels are compiled from; a kernel of other sources is not found.
    """

    _impl_class = _Impl

    def __init__(self, function: Callable, sources: str) -> None:
        super().__init__(function)
        self._name = f"{self._impl.filename_base}.{sources}"
        self._cache_file = _CheckedFile(self._cache_path, self._name, "")

    @contextmanager
    def turn(self, signature: Any) -> Iterator[None]:
        """Wait until no other process compiles the kernel of a signature, and make others wait meanwhile.

        Processes that start together on an empty cache so compile each kernel once.
        """
        digest = _DIGEST(f"{self._name} {signature}".encode()).digest()
        place = int.from_bytes(digest[:6], "little")  # of one byte, which stands for the kernel
        with suppress(OSError):
            os.makedirs(self._cache_path, exist_ok=True)
        lock = _lock(os.path.join(self._cache_path, "kernels.lock"), place)
        try:
            yield
        finally:
            if lock is not None:
                with suppress(OSError):
                    fcntl.lockf(lock, fcntl.LOCK_UN, 1, place)


def _lock(path: str, place: int) -> int | None:
    """Lock a byte of a file against other processes; return the open file, None where that cannot be done in time."""
    if fcntl is None:
        return None
    try:
        file = _locks.get(path)
        if file is None:
            file = _locks[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        until = time.monotonic() + _LONGEST_TURN
        while time.monotonic() < until:
            with suppress(BlockingIOError, PermissionError):  # another process has it
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                return file
            time.sleep(0.02)
    except OSError:  # a folder that can only be read, a file system without locks
        pass
    return None


def _checked(data: bytes, path: str) -> bytes:
    size = _DIGEST().digest_size
    if _DIGEST(data[:-size]).digest() != data[-size:]:
        raise ValueError(f"{path} is damaged")
    return data[:-size]


def _warn(text: str) -> None:
    """Warn once in a process of each kind of fault."""
    kind = text.split(":")[0]
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
