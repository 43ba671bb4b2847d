"""Devices: by name, and with everything on a second one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from hitmac.agents import load_agent
from hitmac.agents.learned.checkpoint import checked_device, tensors_of

ROOT = Path(__file__).resolve().parents[2]


def test_the_processor_is_always_there_and_auto_prefers_an_accelerator(monkeypatch):
    assert checked_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    assert checked_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert checked_device("auto") == torch.device("cuda")
    assert checked_device("cuda:1") == torch.device("cuda:1")
    for name in ("cuda:2", "mps"):
        with pytest.raises(
            ValueError, match=f"device is {name}; on this machine it must be auto or one of cpu, cuda:0"
        ):
            checked_device(name)


@pytest.mark.parametrize("name", ["cuda:7", "mars", "", "cpu:x", "meta"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(ValueError, match=r"--device is .*; on this machine it must be auto or one of cpu"):
        checked_device(name, "--device")


@pytest.mark.parametrize("program", [("train",), ("hitmac", "evaluate", "--agents", "still"), ("hitmac", "watch")])
def test_programs_name_the_devices_that_there_are(tmp_path, program):
    command = [sys.executable, "-m", *program, "--device", "mars"]
    ended = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "device is mars; on this machine it must be auto or one of cpu" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_agents_are_loaded_onto_the_default_device():
    with torch.device("meta"):
        policy = load_agent("pretrained:flat", "hit-mac").policy
    assert {tensor.device.type for tensor in tensors_of(policy).values()} == {"meta"}


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this version of PyTorch cannot have a device written in Python",
)
def test_everything_on_a_second_device():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        "ignore",
        "tests/perception/on_second_device.py",
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:]
