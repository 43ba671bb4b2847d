"""Signals that come while a program is being imported, or in a destructor: it ends in one line, with their status."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hitmac.__main__ import COMMANDS
from hitmac.agents.training.train import stop_on_signal
from hitmac.signals import end_on_signal

ROOT = Path(__file__).resolve().parents[1]
LONG = {
    "train": ["--minutes", "60"],
    "evaluate": ["--episodes", "1000000"],
    "watch": ["planner", "--sub-steps", "1000000"],
    "attention": [],
    "export": ["pretrained:flat", "--to", "out"],
    "scenarios": ["hit-mac", "--film", "out.gif", "--steps", "100000"],
    "reproduce": [],
    "pretrained": ["name", "run", "--note", "none"],
}
PROGRAMS = {
    **{f"hitmac {name}": ["-m", "hitmac", name, *LONG[name]] for name in COMMANDS},
    "train.py": [str(ROOT / "train.py"), *LONG["train"]],
    "python -m agents.evaluate": ["-m", "agents.evaluate", *LONG["evaluate"]],
    "python -m envs": ["-menvs", *LONG["scenarios"]],
    **{f"python -m tests.{name}": ["-m", f"tests.{name}"] for name in ("fuzz", "soak", "faults")},
}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
MOMENTS = (0.0, 0.3, 0.7)  # seconds after the first module of the package is imported; torch alone takes longer
HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)
SIGNALS = (signal.SIGINT, signal.SIGTERM, HANGUP if signal.getsignal(HANGUP) is not signal.SIG_IGN else signal.SIGTERM)


def catches(process, number):
    """Return True once a process handles a signal itself, False if it has ended."""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
            if int(caught, 16) >> (number - 1) & 1:
                return True
        time.sleep(0.005)
    return False


def children(process):
    """Return the numbers of the processes that a process has started and that have not ended."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what a process handles")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_signal_ends_a_program_that_is_being_imported(program, tmp_path):
    for moment, number in zip(MOMENTS, SIGNALS, strict=True):
        process = subprocess.Popen(
            [sys.executable, *PROGRAMS[program]], cwd=tmp_path, text=True, env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert catches(process, signal.SIGTERM)
        time.sleep(moment)
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
        (line,) = [line for line in said.splitlines() if line]
        assert line.endswith(": aborted") if moment else line == "hitmac: aborted", said  # at first all are imported
        assert process.returncode == 128 + number
    assert {path.name for path in tmp_path.iterdir()} <= {".hypothesis"}  # in which that library keeps its own


@pytest.mark.skipif(not Path("/proc/thread-self/children").exists(), reason="the system does not tell")
@pytest.mark.parametrize("name", ["fuzz", "faults"])
def test_a_signal_ends_the_processes_that_a_long_test_has_started(name):
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.{name}"], cwd=ROOT, env=ENVIRONMENT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while process.poll() is None and not children(process):
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    try:
        _, said = process.communicate(timeout=60)
        assert (said, process.returncode) == (f"\npython -m tests.{name}: aborted\n", 128 + signal.SIGTERM)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        process.kill()


def test_a_program_that_imports_the_package_keeps_its_handlers(tmp_path):
    script = tmp_path / "train.py"  # as many are named
    script.write_text(
        "import signal\nbefore = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)\nimport hitmac\n"
        "assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))\n"
    )
    (tmp_path / "my_program.py").write_text(script.read_text())
    for arguments in ([str(script)], ["-m", "my_program"], ["-c", script.read_text()]):
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=ENVIRONMENT, check=True)


class Dropping:
    """Object whose destructor calls a function; Python drops what that raises."""

    def __init__(self, call):
        self.call = call

    def __del__(self):
        self.call()


def drop(call):
    """Call where exceptions are dropped, and give a signal that is sent again the time to arrive."""
    held = Dropping(call)
    del held
    time.sleep(0.5)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_in_a_destructor_ends_the_program(number, capsys):
    hook, reached = sys.unraisablehook, []

    def program():
        with end_on_signal("outer"), end_on_signal("inner"):
            drop(lambda: signal.raise_signal(number))
            reached.append("the end")

    with pytest.raises(SystemExit) as end:
        program()
    assert (end.value.code, reached) == (128 + number, [])
    assert capsys.readouterr().err == "\ninner: aborted\n"
    assert sys.unraisablehook is hook


def test_other_exceptions_of_destructors_are_shown_as_usual(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: shown.append(dropped.exc_type))
    with end_on_signal("outer"), end_on_signal("inner"):
        drop(lambda: [][0])
    drop(lambda: {}[0])
    assert shown == [IndexError, KeyError]


def test_two_signals_in_destructors_stop_a_training_and_then_end_it():
    reached = []

    def program():
        with end_on_signal("x"), stop_on_signal() as stop:
            stop.leaves(lambda: drop(lambda: signal.raise_signal(signal.SIGINT)))
            reached.append(stop.number)
            drop(lambda: signal.raise_signal(signal.SIGTERM))
            reached.append("the end")

    with pytest.raises(SystemExit) as end:
        program()
    assert (end.value.code, reached) == (128 + signal.SIGTERM, [signal.SIGINT])
