"""Log of a run, and lines about faults."""

import errno
import json
from pathlib import Path

import pytest

from hitmac.agents.deploy.run.log import Faults, Log
from tests.agents.deploy.run.fakes import Clock


def lines(path):
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


class Disk:
    """File whose disk has room for some bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        fits = min(len(data), self.room - self.file.tell())
        if fits <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data[:fits])


def test_a_full_disk_costs_whole_lines_and_is_said_once(tmp_path):
    clock, path = Clock(), tmp_path / "run.jsonl"
    faults = Faults(quiet=2.0, clock=clock.monotonic)
    log = Log(path, {"hitmac-run": 1}, faults)
    log._file = disk = Disk(log._file, 35)
    said = []
    for step in range(20):
        clock.now = float(step)
        disk.room = 1000 if step >= 10 else 35
        log.write({"step": step})
        assert lines(path)
        said += faults.messages()
    log.close()
    assert [line["step"] for line in lines(path)[1:]] == [0, *range(10, 20)]
    assert said == [
        "the log cannot be written: No space left on device",
        "over after 8.0 s (9 times): the log cannot be written",
    ]


HEADER = {"hitmac-run": 1, "agent": "random", "names": ("west", "east"), "scenario": {"time_step": 900.0}}


def step(time, **more):
    return {"time": time, "moves": [9, 9], **more}


def logged(path, *records, ending=""):
    """A log of some records, closed, and possibly an unfinished line."""
    log = Log(path, HEADER | {"start": 1.0, "version": "0.1"}, Faults())
    for record in records:
        log.write(record)
    log.close()
    with path.open("a") as file:
        file.write(ending)
    return path


@pytest.mark.parametrize("ending", ["", '{"time": 6', "\0\0"])
def test_a_run_that_is_started_again_continues_its_log(ending, tmp_path):
    path = logged(tmp_path / "run.jsonl", *(step(900.0 * k, begun=[k % 2]) for k in range(6)), ending=ending)
    log = Log(path, HEADER | {"start": 2.0, "version": "0.2"}, Faults())
    assert log.recent[-4:] == [(900.0 * k, [k % 2], False) for k in (2, 3, 4, 5)]
    log.write(step(5400.0, paused=True))
    with pytest.raises(BlockingIOError, match=r"run.jsonl is the log of a run in progress; name another file"):
        Log(path, HEADER, Faults())
    log.close()
    assert [line["time"] for line in lines(path)[1:]] == [900.0 * k for k in range(7)]
    again = Log(path, HEADER, Faults())
    assert again.recent[-1] == (5400.0, [], True)
    again.close()
    assert len(lines(path)) == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kept", "exists, and is not a log of hitmac run"),
        ("[1]\n", "exists, and is not a log of hitmac run"),
        (json.dumps(HEADER) + '\n{"paused": true}\n', "exists, and is not a log of hitmac run"),
        (
            json.dumps(HEADER | {"agent": "planner", "names": ["a"]}) + "\n",
            "is the log of a run with another agent, names",
        ),
    ],
)
def test_other_files_are_kept(text, words, tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        Log(path, HEADER, Faults())
    assert path.read_text() == text


def test_without_room_for_its_header_a_log_leaves_no_file(tmp_path, monkeypatch):
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how, **options: Disk(opened(path, *how, **options), 5))
    with pytest.raises(OSError, match="No space left on device"):
        Log(tmp_path / "run.jsonl", {"hitmac-run": 1}, Faults())
    assert list(tmp_path.iterdir()) == []


def test_a_fault_is_reported_again_after_it_was_over():
    clock = Clock()
    faults, said = Faults(quiet=2.0, clock=clock.monotonic), []
    for now in (0.0, 1.0, 2.5, 4.4, 6.5, 7.0, 7.5, 20.0):
        clock.now = now
        if now not in (6.5, 20.0):
            faults.report("no light", f"at {now} s")
        said.append(faults.messages())
    assert said == [
        ["no light: at 0.0 s"], [], [], [], ["over after 4.4 s (4 times): no light"], ["no light: at 7.0 s"], [],
        ["over after 0.5 s (2 times): no light"],
    ]  # fmt: skip
    faults.tell("an event")
    assert faults.messages() == ["an event"]
