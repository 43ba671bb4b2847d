"""Saving of a training whose directory cannot be written to any more."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def rescue(run_dir: Path, save_to: Callable[[Path], None]) -> Iterator[Callable[[], None]]:
    """Save elsewhere if the block, which trains and saves to `run_dir`, cannot write.

    Args:
        run_dir: directory of the run.
        save_to: saves what can be saved to the directory that it is given.

    Yields:
        A check to call before saving: it raises OSError if the directory is gone, so that it does not come back without
        its configuration.

    Raises:
        OSError: the directory is gone, or a file could not be written; the message says where the policy was saved.
    """
    gone = f"{run_dir} is gone, or has lost its config.yaml"

    def check() -> None:
        if not (run_dir / "config.yaml").is_file():
            raise FileNotFoundError(gone)

    with _quiet_writers():
        try:
            yield check
        except OSError as error:
            reason = str(error) if (run_dir / "config.yaml").is_file() else gone
            folder = None
            try:
                folder = Path(tempfile.mkdtemp(prefix="hitmac-"))
                save_to(folder)
            except OSError as other:
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                raise OSError(f"{reason}; nor could the policy be saved elsewhere: {other}") from None
            raise OSError(f"{reason}; the policy as it is now was saved to {folder}") from None


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
