"""Random inputs for every reader, kernel, constructor and command line: ``make fuzz``.

An input is either accepted, and then gives finite numbers, or refused with a ValueError, TypeError or OSError that the
project raises itself, with a short message. No input may end or hang the process or exhaust the memory. Each part runs
in its own process; a failing part prints its smallest failing input and the command that repeats it.
"""

import argparse
import faulthandler
import linecache
import resource
import shlex
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from hitmac.envs.validation import known_unless_meant
from hitmac.signals import end_on_signal
from tests.agents.deploy.run.received import RUN_PARTS
from tools.fuzz_files import FILE_PARTS
from tools.fuzz_kernels import KERNEL_PARTS

PARTS = KERNEL_PARTS | FILE_PARTS | RUN_PARTS
"""Name -> strategy, and function of one of its values."""

_SECONDS = 300  # per input; the first may compile kernels
_MEMORY = 12 * 2**30  # bytes of address space, libraries included
_LONGEST = 3000  # characters of a message


class UnclearError(AssertionError):
    """Error of a library, or one without a clear message."""


def checked(call: Callable[[], Any]) -> None:
    """Call; raise UnclearError for a refusal that the project does not raise itself, or without a clear message."""
    try:
        call()
    except (OSError, MemoryError, ValueError, TypeError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        raised = isinstance(error, OSError | MemoryError) or line.startswith("raise ")
        if not raised or not 10 <= len(str(error)) <= _LONGEST:
            raise UnclearError(f"{frame.filename}:{frame.lineno} {line}: {error!r}"[:_LONGEST]) from error


def fuzz(part: str, inputs: int, start: int = 0, *, show: bool = False) -> None:
    """Pass random inputs to a part; raise the error of the smallest failing one.

    Args:
        part: key of :data:`PARTS`.
        inputs: number of inputs.
        start: seed.
        show: print each input to the standard error, so that the last one is known even if the process dies.
    """
    strategy, call = PARTS[part]

    @seed(start)
    @settings(
        max_examples=inputs, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(strategy)
    def give(value: Any) -> None:
        if show:
            print(repr(value)[:2000], file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        try:
            checked(lambda: call(value))
        finally:
            faulthandler.cancel_dump_traceback_later()

    give()


def _fuzz_alone(part: str, inputs: int, start: int) -> int:
    """Run a part in this process, with limited memory; return the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        fuzz(part, inputs, start, show=True)
    except BaseException as error:
        for one in getattr(error, "exceptions", (error,)):
            print("".join(traceback.format_tb(one.__traceback__)[-3:]), repr(one)[:2000], file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Run the parts, each in its own process; return the number of failed parts."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts out of {', '.join(PARTS)} (all)")
    parser.add_argument("--inputs", type=int, default=100_000, help="number of inputs, divided among the parts")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"unknown part {known_unless_meant(unknown, PARTS)}")
    parts = options.parts or list(PARTS)
    inputs = -(-options.inputs // len(parts))
    if options.alone:
        return _fuzz_alone(parts[0], inputs, options.seed)
    failed = 0
    print(f"{'part':<14}{'inputs':>8}{'seconds':>9}  result")
    for part in parts:
        began = time.perf_counter()
        command = ["-m", "tools.fuzz", part, "--inputs", str(inputs), "--seed", str(options.seed)]
        ended = subprocess.run(
            [sys.executable, *command, "--alone"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        result = f"FAILED ({ended.returncode})" if ended.returncode else "passed"
        print(f"{part:<14}{inputs:>8}{time.perf_counter() - began:>9.0f}  {result}", flush=True)
        if ended.returncode:
            failed += 1
            print(
                f"{ended.stderr[-4000:].decode(errors='replace')}\nrepeat with: {shlex.join(['python', *command])}",
                flush=True,
            )
    return failed


if __name__ == "__main__":
    with end_on_signal("python -m tools.fuzz"):
        sys.exit(main())
