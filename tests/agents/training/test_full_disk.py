"""Trainings whose disk is full, or whose directory moves: one line, and the last checkpoint stays."""

import errno
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from hitmac import train
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training.resume import saved_progress, write_state

SMALL = ["--num-envs", "8", "--rollout-steps", "4", "--batch-size", "16", "--weight-dim", "8", "--total-steps", "512"]
SMALL += ["--episodes", "2", "--episode-steps", "20", "--curve-points", "0", "--save-every", "0", "--run-dir", "run"]


def test_a_run_that_was_moved_or_copied_goes_on(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        train.main()

    run("coverage-ppo", *SMALL[:-2], "--run-dir", "run")
    shutil.copytree("run", "copy")
    Path("run").rename("moved")
    for folder in ("copy", "moved"):
        run("coverage-ppo", "--run-dir", folder, "--resume", "--total-steps", "600")
        assert saved_progress(Path(folder, "checkpoint", "training.safetensors"))[0] >= 600


def test_a_full_disk_is_one_line_and_the_last_checkpoint_stays(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    saved, write = [], Path.write_bytes

    def fill(path, content):
        saved.append(path)
        if "training" not in path.name or len(saved) < 6:
            return write(path, content)
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fill)
    monkeypatch.setattr(sys, "argv", ["train.py", *SMALL])
    with pytest.raises(SystemExit) as end:
        train.main()
    assert end.value.code == 1
    out = capsys.readouterr()
    assert "Traceback" not in out.err + out.out
    (line,) = [line for line in out.err.splitlines() if "error:" in line]
    assert f"[Errno 28] No space left on device: '{Path('run/checkpoint/training.safetensors')}'" in line
    assert line.endswith("what the last checkpoint holds is kept")
    load_policy("run")
    names = sorted(path.name for path in Path("run/checkpoint").iterdir())
    assert names == ["config.json", "policy.safetensors", "training.safetensors"]


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX's")
def test_what_safetensors_cannot_write_is_an_error_of_the_file(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*one'$") as raised:
            write_state(tmp_path / "one", {"a": {"b": np.zeros(1000)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())
