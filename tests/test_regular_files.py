"""What is no regular file is refused by every reader before it is opened: a pipe without a writer never answers."""

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from hitmac.agents import load_policy
from hitmac.agents.learned.checkpoint import read_tensors
from hitmac.agents.pretrained import pretrained_folder
from hitmac.agents.pretrained.publish import publish
from hitmac.agents.replay.page import _picture
from hitmac.agents.training.config import JOBS
from hitmac.agents.training.resume import load_training, prepare, saved_progress
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.render import Picture
from hitmac.perception.released import load_released

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such files")


def _resume(path):
    prepare(JOBS["coverage"](run_dir=path.parent, resume=True))


def _publish(path):
    publish("of-a-test", path.parent, "note")


READERS = {
    "scene.yaml": load_scenario,
    "scene.json": load_scenario,
    "tracks.csv": lambda path: Simulator(Scenario(tracks=str(path)), 1, 0),
    "floor.png": lambda path: Picture(Scenario(background=str(path)), 64),
    "page.png": lambda path: _picture(str(path)),
    "config.json": lambda path: load_policy(path.parent),
    "policy.safetensors": lambda path: load_policy(path.parent),
    "tensors.safetensors": read_tensors,
    "released.safetensors": load_released,
    "released.pth": load_released,
    "config.yaml": _resume,
    "evaluation.json": _publish,
    "training.safetensors": saved_progress,
    "state.safetensors": lambda path: load_training(path, None, None),
}


def _device(path):
    path.symlink_to("/dev/zero")


def _socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {"a pipe": os.mkfifo, "a directory": Path.mkdir, "a device": _device, "a socket": _socket}


@pytest.fixture(autouse=True)
def _end():
    """End a test that waits."""

    def end(number, frame):
        raise AssertionError("the reader waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_refused(name, kind, tmp_path):
    run = pretrained_folder("flat")
    for file in ("config.json", "policy.safetensors"):  # of a checkpoint that is whole but for one file
        if name in ("config.json", "policy.safetensors", "evaluation.json"):
            shutil.copy(run / file, tmp_path)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    with pytest.raises((ValueError, OSError)) as refused:
        READERS[name](path)
    assert str(path.parent) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_the_message_names_the_kind(tmp_path):
    for kind, make in KINDS.items():
        path = tmp_path / f"{kind}.yaml"
        make(path)
        with pytest.raises(ValueError, match=f"{kind}; it must be a regular file"):
            load_scenario(path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a pipe"):
        load_scenario(tmp_path / "link.yaml")
