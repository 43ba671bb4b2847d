"""Inputs at random to all that takes inputs: ``make fuzz``, or ``python -m tests.fuzz [--inputs 100000] [PART ...]``.

An input may be accepted; else the error must be one that the project raises itself: a ValueError, TypeError or OSError
whose message is short. What is accepted must give finite numbers. No input may end or hang the process, or take much
memory. Each part runs in a process of its own; one that fails prints its smallest failing input, and a command that
fails again.
"""

from __future__ import annotations

import argparse
import faulthandler
import linecache
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from hitmac.signals import end_on_signal
from tests import fuzz_kernels
from tests.fuzz_files import FILE_PARTS

PARTS = fuzz_kernels.KERNEL_PARTS | FILE_PARTS
"""Each part: a strategy, and a function of one of its values."""

_SECONDS = 300  # of an input; the first may have kernels compiled
_MEMORY = 12 * 2**30  # bytes of addresses, of which the libraries take some
_LONGEST = 3000  # characters of a message


class UnclearError(AssertionError):
    """Error that is not one of the project's own, or has no clear message."""


def checked(call: Callable[[], Any]) -> None:
    """Call; raise UnclearError for an error other than a clear one."""
    try:
        call()
    except (OSError, MemoryError) as error:  # numpy's says what it could not allocate under the limit of this process
        _check_message(error)
    except (ValueError, TypeError) as error:
        _check_message(error)
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        assert frame is not None
        file, line = frame.tb_frame.f_code.co_filename, frame.tb_lineno
        said = linecache.getline(file, line).strip()
        if not said.startswith("raise "):
            raise UnclearError(f"{file}:{line} {said}: {type(error).__name__}: {error}") from error


def _check_message(error: Exception) -> None:
    if not 10 <= len(str(error)) <= _LONGEST:
        raise UnclearError(f"{type(error).__name__} with a message of {len(str(error))} characters") from error


def fuzz(part: str, inputs: int, start: int = 0, note: Path | None = None) -> None:
    """Give a part some inputs at random; raise the error of the smallest one that fails.

    Args:
        part: name out of :data:`PARTS`.
        inputs: number of inputs.
        start: seed.
        note: file that names the last input, for where the process ends.
    """
    strategy, call = PARTS[part]

    @seed(start)
    @settings(
        max_examples=inputs, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(strategy)
    def give(value: Any) -> None:
        if note is not None:
            note.write_text(repr(value)[:5000], errors="replace")
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        try:
            checked(lambda: call(value))
        finally:
            faulthandler.cancel_dump_traceback_later()

    give()


def _print_shortly(error: BaseException) -> None:
    """Print the errors of a part, each with the place where it was raised; the input is in the note."""
    for one in getattr(error, "exceptions", (error,)):
        frames = "".join(traceback.format_tb(one.__traceback__)[-3:])
        print(f"{frames}{type(one).__name__}: {str(one)[:1000]}", file=sys.stderr)


def main() -> int:
    """Run the parts, each in a process of its own; return the number of those that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts out of {', '.join(PARTS)} (all)")
    parser.add_argument("--inputs", type=int, default=100_000, help="number of inputs, divided between the parts")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs")
    parser.add_argument("--plain", action="store_true", help="leave out what has kernels of its own, to compile less")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    inputs = -(-options.inputs // len(parts))
    fuzz_kernels.ALL_KERNELS = not options.plain
    if options.alone:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        try:
            fuzz(parts[0], inputs, options.seed, options.alone)
        except BaseException as error:
            _print_shortly(error)
            return 1
        return 0
    failed = 0
    print(f"{'part':<14}{'inputs':>8}{'seconds':>9}{'GB':>6}  result")
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "last")
        for part in parts:
            began = time.perf_counter()
            note.write_text("")
            command = ["-m", "tests.fuzz", part, "--inputs", str(inputs), "--seed", str(options.seed)]
            command += ["--plain"] * options.plain
            process = subprocess.Popen(
                [sys.executable, *command, "--alone", str(note)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stderr is not None
            try:
                said = process.stderr.read()
                _, status, used = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                process.wait()
                raise
            seconds, memory = time.perf_counter() - began, used.ru_maxrss / 2**20
            failed += status != 0
            result = "clear" if status == 0 else f"FAILED ({status}), {said[-3000:]}\n{note.read_text()[:2000]}"
            print(f"{part:<14}{inputs:>8}{seconds:>9.0f}{memory:>6.1f}  {result}", flush=True)
            if status != 0:
                print(f"again: {shlex.join(['python', *command])}", flush=True)
    return failed


if __name__ == "__main__":
    with end_on_signal("python -m tests.fuzz"):
        sys.exit(main())
