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


def test_a_log_is_a_new_file(tmp_path):
    (tmp_path / "old.jsonl").write_text("kept")
    with pytest.raises(FileExistsError):
        Log(tmp_path / "old.jsonl", {}, Faults())
    assert (tmp_path / "old.jsonl").read_text() == "kept"


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
