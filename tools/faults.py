"""Kills: ``make faults`` prints a table of the outcomes.

Each job is killed at its k-th call of the file system, and at random moments, and then resumed: it must end with the
bits of the uninterrupted job and leave no other file.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hitmac import train
from hitmac.agents.deploy.export import folder as export_main
from hitmac.agents.evaluate import command as evaluate_main
from hitmac.envs.validation import known_unless_meant
from hitmac.signals import end_on_signal

_CALLS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.symlink", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_SMALL = ("--num-envs", "8", "--weight-dim", "8", "--episodes", "2", "--processes", "1", "--run-dir", "run")
_TINY = (
    *_SMALL, "--total-steps", "96", "--rollout-steps", "4", "--batch-size", "16", "--episode-steps", "20",
    "--curve-points", "2", "--save-every", "0",
)  # fmt: skip
_SAME = "the same bits"


class Job(NamedTuple):
    """Program to kill: arguments to begin and to resume it."""

    begin: tuple[str, ...]
    resume: tuple[str, ...]
    program: Callable[[], None] = train.main


def _run(*arguments: str) -> Job:
    return Job(arguments, (arguments[0], "--run-dir", "run", "--resume", "--processes", "1"))


def _repeated(program: Callable[[], None], *arguments: str) -> Job:
    return Job(arguments, arguments, program)


JOBS = {
    "coverage": _run("coverage", *_TINY),
    "coverage-ppo": _run("coverage-ppo", *_TINY),
    "recurrent": _run("coverage", "--memory", "recurrent", "--knowledge", "shared", *_TINY),
    "hit-mac": _run("hit-mac", "--executor-steps", "256", "--coordinator-steps", "16", *_SMALL),
    "group": _run("coverage-ppo", "--seeds", "2", *_TINY),
    "evaluation": _repeated(
        lambda: evaluate_main.main(sys.argv[1:]), "--agents", "random,nearest", "--episodes", "4",
        "--max-episode-steps", "20", "--json", "out.json",
    ),
    "export": _repeated(lambda: export_main.main(sys.argv[1:]), "pretrained:flat", "--to", "out", "--replace"),
}  # fmt: skip


def _kill_at_call(folder: Path, number: int | None, calls: list[int]) -> None:
    """Count this process's calls that change files in a folder; kill it before the call `number`."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if not (writes or event in _CALLS) or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        if os.path.abspath(os.fsdecode(arguments[0])).startswith(f"{folder}{os.sep}"):
            calls[0] += 1
            if calls[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _work(job: Job, folder: Path, arguments: tuple[str, ...], kill_at: int | None, calls: Any) -> None:
    """Run a job in this process, which :func:`run` has forked."""
    counted = [0]
    with folder.with_name("output").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    sys.argv = ["job", *arguments]
    _kill_at_call(folder, kill_at, counted)
    job.program()
    calls.value = counted[0]


def run(job: Job, folder: Path, *, resume: bool = False, kill_at: int | None = None, after: float | None = None) -> int:
    """Run a job in a forked process, in a folder; return the number of its calls, 0 if it was killed.

    Raises RuntimeError with the end of its output if it ended otherwise.
    """
    fork = multiprocessing.get_context("fork")
    calls = fork.Value("i", 0)
    child = fork.Process(target=_work, args=(job, folder, job.resume if resume else job.begin, kill_at, calls))
    child.start()
    try:
        child.join(after)
    finally:
        child.kill()
        child.join()
    if child.exitcode == -signal.SIGKILL:
        return 0
    if child.exitcode != 0:
        raise RuntimeError(folder.with_name("output").read_text()[-2000:])
    return int(calls.value)


def results(folder: Path) -> dict[str, Any]:
    """Return the result of a job: tensors as bytes, metrics of every episode, the names of other files."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if name.startswith(".") or "/." in name or "tensorboard" in path.parts:
            continue  # temporary files of a killed process, which nothing reads; event files, which hold times
        if path.name == "policy.safetensors" or path.suffix == ".onnx":
            found[name] = path.read_bytes()
        elif path.name in ("evaluation.json", "out.json"):
            agents = json.loads(path.read_text())["agents"]
            found[name] = {agent: values["per_episode"] for agent, values in agents.items()}
        else:
            found[name] = None
    return found


def killed(job: Job, expected: dict[str, Any], **when: Any) -> str:
    """Kill a job, resume it, and return the outcome."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "here").resolve()
        folder.mkdir()
        try:
            if run(job, folder, **when) == 0:
                run(job, folder, resume=(folder / "run").exists())
        except RuntimeError as error:
            return f"error: {error}"
        found = results(folder)
        wrong = [name for name in found.keys() | expected.keys() if found.get(name, 0) != expected.get(name, 0)]
        return f"differs in {', '.join(sorted(wrong))}" if wrong else _SAME


def kills(name: str, trials: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Kill a job at `trials` calls of the file system, evenly spread, and at as many random moments."""
    job, rng = JOBS[name], random.Random(seed)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "here").resolve()
        folder.mkdir()
        began = time.perf_counter()
        calls = run(job, folder)
        seconds, expected = time.perf_counter() - began, results(folder)
    for trial in range(trials):
        number = min(1 + calls * trial // trials + rng.randrange(max(calls // trials, 1)), calls)
        yield f"killed at call {number} of {calls}", killed(job, expected, kill_at=number)
    for _ in range(trials):
        after = rng.uniform(0, seconds)
        yield f"killed after {after:.1f} s", killed(job, expected, after=after)


def main() -> int:
    """Print the table; return the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"jobs out of {', '.join(JOBS)} (all)")
    parser.add_argument("--trials", type=int, default=20, help="kills of each job at calls, and at random moments (20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    parser.add_argument("--bare", action="store_true", help="train only, without evaluations, figures and films")
    options = parser.parse_args()
    if options.trials < 1:
        parser.error(f"--trials is {options.trials}; it must be at least 1")
    if unknown := [name for name in options.jobs if name not in JOBS]:
        parser.error(f"unknown job {known_unless_meant(unknown, JOBS)}")
    if options.bare:
        train.report = lambda *arguments: None  # type: ignore[assignment]
    failed = 0
    for name in options.jobs or JOBS:
        for fault, outcome in kills(name, options.trials, options.seed):
            failed += outcome != _SAME
            print(f"{name:<14}{fault:<28}{'' if outcome == _SAME else 'FAILED: '}{outcome}", flush=True)
    return failed


if __name__ == "__main__":
    with end_on_signal("python -m tools.faults"):
        sys.exit(main())
