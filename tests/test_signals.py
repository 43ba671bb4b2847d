"""Signals end a program in one line, with its status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hitmac.signals import PARENT, SIGNALS, end_on_signal

ROOT = Path(__file__).resolve().parents[1]


def test_a_signal_ends_a_running_command_in_one_line(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "hitmac", "evaluate", "--agents", "still", "--episodes", "1000000"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stderr.read(1)  # the progress bar has begun
    process.send_signal(signal.SIGTERM)
    try:
        *_, line = process.communicate(timeout=60)[1].splitlines()
    finally:
        process.kill()
    assert (line, process.returncode) == ("hitmac evaluate: aborted", 128 + signal.SIGTERM)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_leaves_ends_a_command_quietly(buffered, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "hitmac", "--help"], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "" if buffered else "1"},
    )  # fmt: skip
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def test_another_broken_pipe_is_an_error(capsys):
    with pytest.raises(BrokenPipeError), end_on_signal("x"):
        raise BrokenPipeError


def test_the_status_is_that_of_the_signal_also_through_a_library_that_raises_anew():
    def library():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None

    with pytest.raises(SystemExit) as end, end_on_signal("x"):
        library()
    assert end.value.code == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", SIGNALS)
def test_handlers_are_restored_and_ignored_signals_stay_so(number, capsys):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with end_on_signal("x"):
            signal.raise_signal(number)
        signal.signal(number, signal.SIG_DFL)
        with pytest.raises(SystemExit) as end, end_on_signal("x", "; saved"):
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert (end.value.code, capsys.readouterr().err) == (128 + number, "\nx: aborted; saved\n")


def test_a_process_ends_with_the_one_that_started_it():
    code = "import sys, time; sys.path.append('hitmac'); import signals; signals.end_with_parent(); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, PARENT: "1"}, stdin=subprocess.PIPE
    )
    process.stdin.close()
    assert process.wait(30) == 1
