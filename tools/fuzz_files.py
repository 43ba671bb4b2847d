"""Parts of :mod:`tools.fuzz` for files and command lines."""

import contextlib
import dataclasses
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
from hitmac.agents import scenarios as scenarios_main
from hitmac.agents.deploy.export import folder as export_main
from hitmac.agents.evaluate import command as evaluate_main
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.training.resume import resolve
from hitmac.envs import load_scenario
from hitmac.envs.parts.recordings import read_recording
from hitmac.envs.render import Picture
from hitmac.perception.released import load_released
from tools.fuzz_inputs import changed_bytes, command_lines, junk, text_files, tracks_files

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
    config = json.loads(files["config.json"])
    how = draw(st.sampled_from(["bytes", "text", "field"]))
    if how == "bytes":
        name = draw(st.sampled_from(sorted(files)))
        files[name] = draw(changed_bytes(files[name]))
    elif how == "text":
        files["config.json"] = draw(text_files(config))
    else:
        part = draw(st.sampled_from([config, config["policy"], config["scenario"], config["options"]]))
        part[draw(st.sampled_from(sorted(part)))] = draw(junk)
        files["config.json"] = json.dumps(config, default=str).encode()
    return files


def checkpoint(files: dict[str, bytes]) -> None:
    """Load a policy and a run's scenario."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        load_policy(folder)
        load_agent(folder, "hit-mac")


def run_directory(content: bytes) -> None:
    """Continue a run."""
    _in_folder("config.yaml", content, lambda path: resolve(train.JOBS["coverage"](run_dir=path.parent, resume=True)))


_RUN_CONFIG = {"job": "coverage", "options": {"weight_dim": 8}, "scenario": {"name": "x"}, "sessions": []}


@functools.cache
def _pickle() -> bytes:
    file = io.BytesIO()
    torch.save({"model": {"Q.weight": torch.zeros(2, 2)}, "os": os.getcwd}, file)
    return file.getvalue()


_PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
    "18dd8db00000000049454e44ae426082"
)


def background(content: bytes) -> None:
    """Draw a scene over a picture."""
    _in_folder("floor.png", content, lambda path: Picture(_HIT_MAC.replace(background=str(path)), 64))


def _options(dataclass: type) -> dict[str, list[str]]:
    """Return the options of a command with their defaults, and one other value of those that take a list."""
    fields = dataclasses.fields(dataclass)
    listed = {"agents": "nearest,planner:turn_cost=1/2", "scenario": "rails,large", "seeds": "1-2", "sizes": "4x5,6x9"}
    return {
        f"--{one.name.replace('_', '-')}": [str(one.default), *([listed[one.name]] if one.name in listed else [])]
        for one in fields
    }


_PROGRAMS = {name: _options(job) for name, job in train.COMMANDS.items()}
_PROGRAMS |= {
    "covrage": {},
    "evaluate": _options(evaluate_main.Options),
    "scenarios": {"--agent": ["still"], "--steps": ["2"], "--size": ["32"], "--seed": ["1"]},
    "export": {"--to": ["out", "out.onnx"], "--scenario": ["rails"], "--replace": []},
}
_COMMAND_LINES = st.one_of(*(st.tuples(st.just(name), command_lines(of)) for name, of in _PROGRAMS.items()))


def command_line(given: tuple[str, list[str]]) -> None:
    """Run a command line up to its training or evaluation; its output must be short and without a traceback."""
    program, arguments = given
    output, here, code = io.StringIO(), os.getcwd(), 0
    stop = mock.Mock(side_effect=SystemExit(0))
    with (
        tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(output), contextlib.redirect_stdout(output),
        mock.patch.object(train, "train_run", stop), mock.patch.object(train, "train_group", stop),
        mock.patch.object(evaluate_main, "evaluate", stop), mock.patch.object(export_main, "export_agent", stop),
        mock.patch("sys.argv", ["train.py", program, *arguments]),
    ):  # fmt: skip
        os.chdir(folder)
        try:
            if program == "evaluate":
                evaluate_main.main(arguments)
            elif program == "scenarios":
                scenarios_main.main(["hit-mac", "--picture", "a.png", "--steps", "1", *arguments])
            elif program == "export":
                export_main.main(["pretrained:flat", *arguments])
            else:
                train.main()
        except SystemExit as end:
            code = end.code
        finally:
            os.chdir(here)
    printed = output.getvalue()
    assert code in (0, 2), f"exit status {code}"
    assert code == 0 or "error" in printed
    assert len(printed.splitlines()) <= 60 or "--help" in arguments
    assert "Traceback" not in printed


FILE_PARTS = {
    "scenario file": (text_files(), lambda text: _in_folder("scene.yaml", text, load_scenario)),
    "json file": (text_files(), lambda text: _in_folder("scene.json", text, load_scenario)),
    "tracks": (tracks_files(), lambda text: _in_folder("a.csv", text, lambda path: read_recording(str(path), 0.13))),
    "checkpoint": (_checkpoints(), checkpoint),
    "run": (text_files(_RUN_CONFIG), run_directory),
    "released": (st.deferred(lambda: changed_bytes(_pickle())), lambda data: _in_folder("a.pth", data, load_released)),
    "background": (changed_bytes(_PICTURE), background),
    "command line": (_COMMAND_LINES, command_line),
}  # fmt: skip
