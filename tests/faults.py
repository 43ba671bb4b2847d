"""Kills and hostile files: ``python -m tests.faults [--trials 20] [JOB ...]`` prints a table of what happened.

A job is killed at its k-th call of the file system and at random moments, and then goes on: it must end with the bits
of the uninterrupted one and leave no file of its own. A hostile file is given to every reader: its code may not run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hitmac import train
from hitmac.agents import load_policy
from hitmac.agents.evaluate import command as evaluate_main
from hitmac.agents.export import folder as export_main
from hitmac.envs import load_scenario
from hitmac.envs.recordings import read_recording
from hitmac.perception.released import load_released
from hitmac.signals import end_on_signal

_CALLS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.symlink", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_SMALL = ("--num-envs", "8", "--weight-dim", "8", "--episodes", "2", "--processes", "1", "--run-dir", "run")
_TINY = (
    *_SMALL, "--total-steps", "96", "--rollout-steps", "4", "--batch-size", "16", "--episode-steps", "20",
    "--curve-points", "2", "--save-every", "0",
)  # fmt: skip


class Job(NamedTuple):
    """Something to kill: how it begins, how it goes on, and what it must end with."""

    begin: tuple[str, ...]
    go_on: tuple[str, ...]
    program: Callable[[], None] = train.main
    alone: tuple[str, ...] = ()  # names of the results other than those of a run


def _of(*arguments: str) -> Job:
    return Job(arguments, (arguments[0], "--run-dir", "run", "--resume", "--processes", "1"))


def _again(program: Callable[[], None], result: str, *arguments: str) -> Job:
    return Job(arguments, arguments, program, (result,))


JOBS = {
    "coverage": _of("coverage", *_TINY),
    "coverage-ppo": _of("coverage-ppo", *_TINY),
    "recurrent": _of("coverage", "--memory", "recurrent", "--knowledge", "shared", *_TINY),
    "hit-mac": _of("hit-mac", "--executor-steps", "256", "--coordinator-steps", "16", *_SMALL),
    "group": _of("coverage-ppo", "--seeds", "2", *_TINY),
    "evaluation": _again(
        lambda: evaluate_main.main(sys.argv[1:]), "out.json", "--agents", "random,nearest", "--episodes", "4",
        "--max-episode-steps", "20", "--json", "out.json",
    ),
    "export": _again(lambda: export_main.main(sys.argv[1:]), "out", "pretrained:flat", "--to", "out", "--replace"),
}  # fmt: skip


class Row(NamedTuple):
    """Line of the table."""

    fault: str
    where: str
    happened: str
    must: str

    @property
    def holds(self) -> bool:
        """Whether what happened is what must."""
        return self.happened == self.must


def _count_calls(folder: Path, number: int | None, calls: list[int]) -> None:
    """Count the calls that change files in a folder, and end this process, as if killed, before a call."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
            return
        if event != "open" and event not in _CALLS:
            return
        if isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if path.startswith(f"{folder}{os.sep}"):
                calls[0] += 1
                if calls[0] == number:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def run(job: Job, folder: Path, go_on: bool = False, kill_at: int | None = None, after: float | None = None) -> int:
    """Run a job in a child of this process, in a folder; return its calls, 0 if it was killed.

    Raises RuntimeError, with all that it said, if it ended otherwise.
    """
    reading, writing = os.pipe()
    said = folder.with_name(f"{folder.name}.said")
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException), said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            calls = [0]
            try:
                os.chdir(folder)
                sys.argv = ["job", *(job.go_on if go_on else job.begin)]
                _count_calls(folder, kill_at, calls)
                job.program()
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            os.write(writing, b"%d" % calls[0])
        os._exit(status)
    os.close(writing)
    try:
        if after is not None:
            time.sleep(after)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    except BaseException:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise
    with os.fdopen(reading) as pipe:
        calls = int(pipe.read() or 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return 0
    if status != 0:
        raise RuntimeError(said.read_text()[-2000:])
    return calls


def results(job: Job, folder: Path) -> dict[str, Any]:
    """Return what a job left: tensors as bytes, metrics of every episode; the names of other files."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if any(part.startswith(".") for part in Path(name).parts):
            continue  # a temporary file of the killed process, which nothing reads
        if path.name == "policy.safetensors" or path.suffix == ".onnx":
            found[name] = path.read_bytes()
        elif path.name in ("evaluation.json", *job.alone) and path.is_file():
            agents = json.loads(path.read_text())["agents"]
            found[name] = {agent: values["per_episode"] for agent, values in agents.items()}
        elif path.is_file() and "tensorboard" not in path.parts:
            found[name] = None
    return found


def killed(job: Job, expected: dict[str, Any], **when: Any) -> str:
    """Kill a job, let it go on, and return in a word how that ended."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "here").resolve()
        folder.mkdir()
        try:
            if run(job, folder, **when):
                return "not killed"
            run(job, folder, go_on=(folder / "run").exists())
        except RuntimeError as error:
            return f"error: {error}"
        found = results(job, folder)
        if found != expected:
            wrong = [name for name in found.keys() | expected.keys() if found.get(name, 0) != expected.get(name, 0)]
            return f"differs in {', '.join(sorted(wrong))}"
        return "the same bits"


def kills(name: str, trials: int, seed: int = 0) -> Iterator[Row]:
    """Kill a job at some calls of the file system, evenly spread, and as often at random moments."""
    job, rng = JOBS[name], random.Random(seed)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "here").resolve()
        folder.mkdir()
        began = time.perf_counter()
        calls = run(job, folder)
        seconds, expected = time.perf_counter() - began, results(job, folder)
    for trial in range(trials):
        number = 1 + calls * trial // trials + rng.randrange(max(calls // trials, 1))
        happened = killed(job, expected, kill_at=min(number, calls))
        yield Row(f"killed at call {number} of {calls}", name, happened, "the same bits")
    for _ in range(trials):
        after = rng.uniform(0, seconds)
        happened = killed(job, expected, after=after)
        happened = "the same bits" if happened == "not killed" else happened  # it had ended
        yield Row(f"killed after {after:.1f} s", name, happened, "the same bits")


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def hostile() -> Iterator[Row]:
    """Give pickles and YAML that would run code to every reader."""
    with tempfile.TemporaryDirectory() as parent:
        folder, marker = Path(parent), Path(parent, "marker")
        files = {
            "pickle": pickle.dumps(_Evil(marker)),
            "tagged YAML": f"!!python/object/apply:os.mknod ['{marker}']\n".encode(),
            "tagged value": f"arena: !!python/object/apply:os.mknod ['{marker}']\n".encode(),
        }
        readers: dict[str, Callable[[Path], Any]] = {
            "scene.yaml": load_scenario,
            "scene.json": load_scenario,
            "net.pth": load_released,
            "tracks.csv": lambda path: read_recording(str(path), 0.1),
            "config.json": lambda path: load_policy(path.parent),
            "policy.safetensors": lambda path: load_policy(path.parent),
            "config.yaml": lambda path: load_scenario(path.parent),
        }
        whole = Path(train.__file__).parent / "agents" / "pretrained" / "flat"
        for kind, content in files.items():
            for name, read in readers.items():
                place = folder / f"{kind}-{name}"
                place.mkdir()
                for file in (
                    ("config.json", "policy.safetensors") if name in ("config.json", "policy.safetensors") else ()
                ):
                    shutil.copy(whole / file, place)
                (place / name).write_bytes(content)
                try:
                    read(place / name)
                    happened = "it was read"
                except (ValueError, OSError) as error:
                    happened = "refused" if len(str(error).splitlines()) == 1 else f"many lines: {error}"
                yield Row(f"hostile {kind}", name, "code ran" if marker.exists() else happened, "refused")


def main() -> int:
    """Print the table; return the number of rows that are not as they must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"jobs out of {', '.join(JOBS)} (all)")
    parser.add_argument("--trials", type=int, default=20, help="kills of each job at calls, and as many at random (20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    parser.add_argument("--bare", action="store_true", help="train only, without evaluations, figures and films")
    options = parser.parse_args()
    if options.bare:
        train.report = lambda *arguments: None  # type: ignore[assignment]
    failed = 0
    for rows in (*(kills(name, options.trials, options.seed) for name in options.jobs or JOBS), hostile()):
        for row in rows:
            failed += not row.holds
            print(
                f"{row.fault:<28}{row.where:<20}{row.happened}{'' if row.holds else f'  MUST: {row.must}'}", flush=True
            )
    return failed


if __name__ == "__main__":
    with end_on_signal("python -m tests.faults"):
        sys.exit(main())
