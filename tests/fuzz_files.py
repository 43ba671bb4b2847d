"""Parts of :mod:`tests.fuzz` that give files to readers, and arguments to command lines."""

import contextlib
import functools
import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import strategies as st

from hitmac import train
from hitmac.agents import PolicyConfig, load_agent, load_policy, save_policy
from hitmac.agents import scenarios as envs_main
from hitmac.agents.evaluate import command as evaluate_main
from hitmac.agents.export import folder as export_main
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.training.resume import prepare
from hitmac.envs import load_scenario
from hitmac.envs.recordings import read_recording
from hitmac.envs.render import Picture
from hitmac.perception.released import load_released
from tests.fuzz_inputs import changed_bytes, command_lines, junk, text_files, tracks_files

_HIT_MAC = load_scenario("hit-mac")


def _in_folder(name: str, content: bytes, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        read(path)


@functools.cache
def _checkpoint() -> dict[str, bytes]:
    """Return the files of a small checkpoint."""
    config = PolicyConfig(
        policy={"weight_dim": 4}, features=("bearing", "distance"), scenario=_HIT_MAC, training_seeds=(5, 9)
    )
    with tempfile.TemporaryDirectory() as folder:
        save_policy(folder, build_policy(config, _HIT_MAC), config)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@st.composite
def _checkpoints(draw: Any) -> dict[str, bytes]:
    files = dict(_checkpoint())
    plain = json.loads(files["config.json"])
    how = draw(st.integers(0, 3))
    if how == 0:
        name = draw(st.sampled_from(sorted(files)))
        files[name] = draw(changed_bytes(files[name]))
    elif how == 1:
        plain[draw(st.sampled_from(sorted(plain)))] = draw(junk)
        files["config.json"] = json.dumps(plain, default=str).encode()
    elif how == 2:
        part = plain[draw(st.sampled_from(["policy", "scenario", "options"]))]
        part[draw(st.sampled_from(sorted(part)))] = draw(junk)
        files["config.json"] = json.dumps(plain, default=str).encode()
    else:
        files["config.json"] = draw(text_files(plain))
    return files


def checkpoint(files: dict[str, bytes]) -> None:
    """Load a policy and a run's scenario."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        load_policy(folder)
        load_agent(folder, "hit-mac")


def run_directory(content: bytes) -> None:
    """Go on with a run."""

    def read(path: Path) -> None:
        options = train.JOBS["coverage"](run_dir=path.parent, resume=True)
        prepare(options)

    _in_folder("config.yaml", content, read)


def _run_config() -> dict[str, Any]:
    return {"job": "coverage", "options": {"weight_dim": 8}, "scenario": {"name": "x"}, "sittings": []}


@functools.cache
def _pickle() -> bytes:
    file = io.BytesIO()
    torch.save({"model": {"Q.weight": torch.zeros(2, 2)}, "os": os.getcwd}, file)
    return file.getvalue()


PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077" "53de0000000c4944415408d763f8cfc00000030101"
    "00 18dd8db0 0000000049454e44ae426082".replace(" ", "")
)  # fmt: skip


def background(content: bytes) -> None:
    """Draw a scene over a picture."""
    _in_folder("floor.png", content, lambda path: Picture(_HIT_MAC.replace(background=str(path)), 64))


_TRAIN = {
    "--run-dir": ["run"], "--resume": [], "--total-steps": ["64"], "--minutes": ["1"], "--num-envs": ["8"],
    "--seed": ["3"], "--seeds": ["2", "1-2"], "--scenario": ["hit-mac", "rails"], "--features": ["frame"],
    "--weight-dim": ["8"], "--encoder": ["mlp"], "--memory": ["recurrent"], "--knowledge": ["own"], "--start": ["run"],
    "--executor": ["scripted"], "--tracks": ["a.csv"], "--set": ["gamma=0.9/0.8"], "--gamma": ["0.9"],
    "--rollout-steps": ["4"], "--batch-size": ["8"], "--algorithm": ["a2c"], "--num-heads": ["2"],
    "--executor-steps": ["8"], "--episode-steps": ["9"], "--curve-points": ["3"], "--critic": ["amc"],
}  # fmt: skip
_EVALUATE = {
    "--agents": ["nearest,still", "planner:turn_cost=1/2", "assign-all"], "--scenario": ["hit-mac", "rails,large"],
    "--set": ["knowledge=own"], "--vary": ["missed_detections=0/1"], "--sizes": ["4x5,6x9"], "--episodes": ["2"],
    "--seed": ["1"], "--max-episode-steps": ["3"], "--json": ["a.json"], "--film": ["a.gif"], "--tracks": ["a.csv"],
    "--curves": ["a.png"], "--front": ["a.png"], "--bounds": [],
}  # fmt: skip
_ENVS = {"--task": ["Executor"], "--agent": ["still"], "--steps": ["2"], "--size": ["32"], "--seed": ["1"]}
_EXPORT = {"--to": ["out", "out.onnx"], "--scenario": ["rails"], "--replace": []}


def _lines(job: str, options: dict[str, list[str]]) -> st.SearchStrategy[tuple[str, list[str]]]:
    return st.tuples(st.just(job), command_lines(options))


_JOBS = ["coverage", "coverage-ppo", "executor", "coordinator", "hit-mac"]
_COMMAND_LINES = st.one_of(
    *(_lines(job, _TRAIN) for job in _JOBS), _lines("evaluate", _EVALUATE), _lines("envs", _ENVS),
    _lines("export", _EXPORT), _lines("covrage", _TRAIN),
)  # fmt: skip


def command_line(given: tuple[str, list[str]]) -> None:
    """Run a command line, without the training or evaluation; what it prints is short and holds no traceback."""
    program, arguments = given
    said, here, code = io.StringIO(), os.getcwd(), 0
    stop = mock.Mock(side_effect=SystemExit(0))
    with (
        tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said),
        mock.patch.object(train, "train_run", stop), mock.patch.object(train, "train_group", stop),
        mock.patch.object(evaluate_main, "evaluate", stop), mock.patch.object(export_main, "export_agent", stop),
        mock.patch("sys.argv", ["train.py", program, *arguments]),
    ):  # fmt: skip
        os.chdir(folder)
        try:
            if program == "evaluate":
                evaluate_main.main(arguments)
            elif program == "envs":
                envs_main.main(["hit-mac", "--picture", "a.png", "--steps", "1", *arguments])
            elif program == "export":
                export_main.main(["pretrained:flat", *arguments])
            else:
                train.main()
        except SystemExit as end:
            code = end.code
        finally:
            os.chdir(here)
    assert code in (0, 2), f"it ended with {code}"
    assert code == 0 or "error" in said.getvalue()
    assert len(said.getvalue().splitlines()) <= 60 or "--help" in arguments
    assert "Traceback" not in said.getvalue()


FILE_PARTS = {
    "scenario file": (text_files(), lambda text: _in_folder("scene.yaml", text, load_scenario)),
    "json file": (text_files(), lambda text: _in_folder("scene.json", text, load_scenario)),
    "tracks": (tracks_files(), lambda text: _in_folder("a.csv", text, lambda path: read_recording(str(path), 0.13))),
    "checkpoint": (_checkpoints(), checkpoint),
    "run": (st.deferred(lambda: text_files(_run_config())), run_directory),
    "released": (
        st.deferred(lambda: changed_bytes(_pickle())), lambda data: _in_folder("a.pth", data, load_released),
    ),
    "background": (changed_bytes(PICTURE), background),
    "command line": (_COMMAND_LINES, command_line),
}  # fmt: skip
