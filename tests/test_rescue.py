"""Trainings whose directory vanishes, or can be written to no more: one line, and the policy is saved elsewhere."""

import errno
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hitmac import train
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training.jobs import CoverageRewardOptions
from hitmac.agents.training.resume import rescue, saved_progress, write_arrays
from hitmac.agents.training.train import TrainingProgress

SMALL = ["--num-envs", "8", "--rollout-steps", "4", "--batch-size", "16", "--weight-dim", "8", "--total-steps", "512"]
SMALL += ["--episodes", "2", "--episode-steps", "20", "--curve-points", "0", "--save-every", "0", "--run-dir", "run"]


@pytest.fixture
def broken(tmp_path, monkeypatch, capsys):
    """Trains, does something to the run after some steps, and returns the error and the directory saved elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def run(happens, at_step=20):
        steps, original = [], TrainingProgress._on_step

        def step(callback):
            steps.append(1)
            if len(steps) == at_step:
                happens()
            return original(callback)

        monkeypatch.setattr(TrainingProgress, "_on_step", step)
        monkeypatch.setattr(sys, "argv", ["train.py", *SMALL])
        with pytest.raises(SystemExit) as end:
            train.main()
        assert end.value.code == 1
        out = capsys.readouterr()
        assert "Traceback" not in out.err + out.out
        (line,) = [line for line in out.err.splitlines() if "error:" in line]
        found = re.search(r"the policy as it is now was saved to (\S+)$", line)
        return line, found and Path(found[1])

    return run


def test_a_directory_that_vanishes_does_not_come_back(broken):
    line, folder = broken(lambda: shutil.rmtree("run"))
    assert "run is gone, or has lost its config.yaml" in line
    assert not Path("run").exists()
    policy, config = load_policy(folder)
    assert config.policy["encoder_config"].weight_dim == 8
    assert policy is not None


def test_a_directory_that_is_replaced_is_left_alone(broken):
    def replace():
        shutil.rmtree("run")
        Path("run").mkdir()

    line, folder = broken(replace)
    assert "has lost its config.yaml" in line
    assert folder.is_dir()
    assert not (Path("run") / "checkpoint").exists()


def stranger(folder):
    """Make a run of another training, as far as a training looks at it."""
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "config.yaml").write_text("job: coverage\n")
    (folder / "checkpoint" / "policy.safetensors").write_text("another's")


def strange(folder):
    """Return whether the folder holds what the stranger had, and nothing else."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    policy = Path("checkpoint/policy.safetensors")
    return files == [str(policy), "config.yaml"] and (folder / policy).read_text() == "another's"


@pytest.mark.parametrize("deleted", [False, True])
def test_another_run_in_the_place_of_the_directory_is_left_alone(broken, deleted):
    def replace():
        if deleted:
            shutil.rmtree("run")  # its inode is free to be that of the next directory, unless it is held
        else:
            Path("run").rename("old")
        stranger(Path("run"))

    line, folder = broken(replace)
    assert "run is gone, and another directory is in its place" in line
    load_policy(folder)
    assert strange(Path("run"))


@pytest.mark.parametrize("when", ["compile_kernels", "evaluate"])
def test_a_directory_is_not_replaced_unseen_before_and_after_the_updates(when, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    owner = train if when == "compile_kernels" else CoverageRewardOptions
    original = getattr(owner, when)

    def replacing(*arguments):
        result = original(*arguments)
        Path("run").rename("old")
        stranger(Path("run"))
        return result

    monkeypatch.setattr(owner, when, replacing)
    monkeypatch.setattr(sys, "argv", ["train.py", "coverage-ppo", *SMALL[:-2], "--run-dir", "run"])
    with pytest.raises(SystemExit) as end:
        train.main()
    assert end.value.code == 1
    assert "run is gone, and another directory is in its place" in capsys.readouterr().err
    assert strange(Path("run"))


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


def test_a_full_disk_is_said_and_the_last_checkpoint_stays(broken, monkeypatch):
    def fill():
        write = Path.write_bytes

        def full(path, content):
            if "training" not in path.name:
                return write(path, content)
            path.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "write_bytes", full)

    line, folder = broken(fill)
    assert f"[Errno 28] No space left on device: '{Path('run/checkpoint/training.safetensors')}'" in line
    load_policy(folder)
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
            write_arrays(tmp_path / "one", {"a": np.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_saved_both_errors_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(folder):
        (folder / "config.json").touch()
        raise OSError("nor there")

    gone = r"^.*run is gone, or has lost its config.yaml; nor could the policy be saved elsewhere: nor there$"

    def vanish():
        (tmp_path / "run").rmdir()
        raise OSError("not here")

    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match=gone), rescue(tmp_path / "run", fail):
        vanish()
    assert not list(tmp_path.iterdir())
    before = threading.excepthook
    with pytest.raises(KeyError), rescue(tmp_path, fail):
        raise KeyError("others pass")
    assert threading.excepthook is before
