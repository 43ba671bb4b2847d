"""Saving of a training whose directory cannot be written to any more."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def same_directory(run_dir: Path) -> Iterator[Callable[[], None]]:
    """Keep watch over the directory of a run, which others may delete or move while it trains.

    Yields:
        A check to call before saving. It raises FileNotFoundError if the directory is gone, or has lost its
        configuration, so that it does not come back without it, or if another one has taken its place.
    """
    first = run_dir.stat()
    held = os.open(run_dir, os.O_RDONLY) if os.name == "posix" else None  # no other directory gets its number

    def check() -> None:
        if not (run_dir / "config.yaml").is_file():
            raise FileNotFoundError(f"{run_dir} is gone, or has lost its config.yaml")
        if not os.path.samestat(first, run_dir.stat()):
            raise FileNotFoundError(f"{run_dir} is gone, and another directory is in its place")

    try:
        yield check
    finally:
        if held is not None:
            os.close(held)


@contextmanager
def rescue(run_dir: Path, save_to: Callable[[Path], None]) -> Iterator[Callable[[], None]]:
    """Save elsewhere if the block, which trains and saves to `run_dir`, cannot write.

    Args:
        run_dir: directory of the run.
        save_to: saves what can be saved to the directory that it is given.

    Yields:
        The check of :func:`same_directory`.

    Raises:
        OSError: the directory is gone, or a file could not be written; the message says where the policy was saved.
    """
    with _quiet_writers(), same_directory(run_dir) as check:
        try:
            yield check
        except OSError as error:
            reason = _reason(error, check)
            folder = None
            try:
                folder = Path(tempfile.mkdtemp(prefix="hitmac-"))
                save_to(folder)
            except OSError as other:
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                raise OSError(f"{reason}; nor could the policy be saved elsewhere: {other}") from None
            raise OSError(f"{reason}; the policy as it is now was saved to {folder}") from None


def _reason(error: OSError, check: Callable[[], None]) -> OSError:
    """Return why a file could not be written: because the directory is gone, or else the error itself."""
    try:
        check()
    except OSError as gone:
        return gone
    return error


@contextmanager
def _quiet_writers() -> Iterator[None]:
    """Leave errors of TensorBoard's writer, which has a thread of its own, to the thread that it writes for."""
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not isinstance(failed.exc_value, OSError):
            before(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
