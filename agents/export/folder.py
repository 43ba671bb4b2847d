"""Files of an exported policy."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import hitmac
from hitmac.agents.export.networks import Part, parts_of
from hitmac.agents.hierarchy import HierarchicalAgent
from hitmac.agents.nearness import split_options
from hitmac.agents.policy import Policy
from hitmac.agents.pretrained import PREFIX, pretrained_folder
from hitmac.agents.registry import Agent, halves, load_agent
from hitmac.envs import deployment as measured
from hitmac.envs.files import check_ending, parse_json, read_text, working_folder
from hitmac.envs.presets import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import plain

FORMAT = "hitmac-export"
VERSION = 1
CARD = "policy.json"
OBSERVE, RUN = "observe.py", "run.py"
MEANINGS = {
    "turn": ("stay", "left (counter-clockwise) by turn_angle", "right (clockwise) by turn_angle"),
    "zoom": ("keep the field of view", "narrower by zoom_step", "wider by zoom_step"),
    "move": ("stay", "forward along the rail by rail_step", "back along the rail by rail_step"),
}
"""Meanings of the numbers 0, 1, 2 of each decision."""

_RUNNER = Path(__file__).with_name(RUN)
_SITE = (
    "name", "num_sensors", "num_targets", "arena", "sensing_range", "field_of_view", "turn_angle", "zoom", "zoom_step",
    "rails", "rail_step", "sensor_positions", "pan_limits", "discs", "knowledge", "distance_scale",
    "max_speed", "speed_noise", "time_step", "position_noise",
)  # fmt: skip


def export_agent(
    agent: Agent | Policy | str | Path,
    to: str | Path,
    scenario: Scenario | str | Path | None = None,
    *,
    replace: bool = False,
) -> list[Path]:
    """Export a learned policy, or both levels of a hierarchy.

    Args:
        agent: the agent, as accepted by :func:`hitmac.agents.load_agent`.
        to: a name ending in .onnx or .pt2: that file; of a hierarchy, two, ``NAME-coordinator.onnx`` and
            ``NAME-executor.onnx``. Any other name: a folder with the .onnx files, ``policy.json`` (features, decisions
            and the site's numbers), ``observe.py`` (:func:`hitmac.envs.observe`) and ``run.py``, a loop that needs
            numpy and onnxruntime only.
        scenario: the site: a :class:`hitmac.envs.Scenario`, a preset's name or a file's path; None: that of the
            training of a run or a pretrained policy, of a hierarchy's coordinator if it has learned, ``"hit-mac"`` for
            any other agent.
        replace: replace files, or an exported folder, of this name. What else is in the folder stays, and so does
            ``run.py`` if it has been changed.

    Returns:
        The files, or all files of the folder.

    Raises:
        ValueError: an agent that is no network, an unknown name, or the ending of another format.
        FileExistsError: there is a file of this name, or a folder that is not an exported policy's.
        ModuleNotFoundError: onnxscript is missing; the message names the extra to install.
    """
    scenario = load_scenario(_own_scenario(agent) if scenario is None else scenario)
    agent = load_agent(agent, scenario)
    parts, decisions = parts_of(agent, scenario)
    to = Path(to)
    if to.suffix in (".pt", ".pth", ".ort"):
        check_ending("to", to, ".onnx", ".pt2")
    ending = to.suffix if to.suffix in (".onnx", ".pt2") else ""
    if ending:
        names = [to.name if len(parts) == 1 else f"{to.stem}-{part.name}{ending}" for part in parts]
    else:
        names = [f"{part.name}.onnx" for part in parts]
    targets = [to.with_name(name) for name in names] if ending else [to]
    for target in targets:
        _check_free(target, replace)
    own = _own_files(to, names) if to.is_dir() else []
    card = json.dumps(_card(agent, scenario, dict(zip(names, parts, strict=True)), decisions), indent=2) + "\n"
    temporary = working_folder(to)
    try:
        made = temporary / "made"
        made.mkdir()
        for name, part in zip(names, parts, strict=True):
            _write(part, made / name, card)
        if ending:
            for target in targets:
                os.replace(made / target.name, target)
            return targets
        (made / CARD).write_text(card, encoding="utf-8")
        shutil.copyfile(measured.__file__, made / OBSERVE)
        shutil.copyfile(_RUNNER, made / RUN)
        for path in own:
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, made / path.name, symlinks=True)
            else:
                shutil.copy2(path, made / path.name, follow_symlinks=False)
        _put(made, to, temporary / "before")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(to.iterdir())


def _put(made: Path, to: Path, before: Path) -> None:
    """Rename a folder to `to`, and what is there to `before`."""
    there = to.exists()
    if there:
        os.replace(to, before)
    try:
        os.replace(made, to)
    except OSError:
        if there:
            os.replace(before, to)
        raise


def _own_scenario(agent: Any) -> str | Path:
    """Return the folder of an agent's training, which knows its scenario; ``"hit-mac"`` for an agent without one."""
    if not isinstance(agent, str | Path):
        return "hit-mac"
    name = str(agent) if Path(agent).is_dir() else split_options(str(agent))[0]
    if name.startswith(PREFIX):
        return pretrained_folder(name.removeprefix(PREFIX))
    names = (name, *(halves(name, _is_folder, bool) or halves(name, bool, _is_folder) or ()))
    return next(filter(_is_folder, names), "hit-mac")


def _is_folder(name: str) -> bool:
    return bool(name) and Path(name).is_dir()


def _check_free(target: Path, replace: bool) -> None:
    """Raise FileExistsError where a file or folder must not be written."""
    if target.is_dir() and not (target / CARD).is_file():
        raise FileExistsError(f"{target} is a folder that holds no {CARD}; choose another name")
    if target.exists() and not replace:
        raise FileExistsError(f"{target} exists; choose another name, or add --replace")


def _own_files(folder: Path, names: list[str]) -> list[Path]:
    """Return what a user has put into an exported folder, ``run.py`` among it if it is not as it was exported.

    Raises ``FileExistsError`` where one has the name of a network to be written.
    """
    try:
        card = parse_json(read_text(folder / CARD))
        written = {CARD, OBSERVE, "__pycache__", *(str(network["file"]) for network in card["networks"])}
        runner = card.get("runner")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{folder / CARD} is not that of an exported policy: {error!r}") from None
    if (folder / RUN).is_file() and _digest(folder / RUN) in (runner, _digest(_RUNNER)):
        written.add(RUN)
    own = [path for path in sorted(folder.iterdir()) if path.name not in written]
    for path in own:
        if path.name in names:
            raise FileExistsError(f"{path} is no part of the policy that was exported there; choose another name")
    return own


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _card(agent: Agent, scenario: Scenario, parts: dict[str, Part], decisions: tuple[str, ...]) -> dict[str, Any]:
    """Return the content of ``policy.json``."""
    policy = agent.policy
    return {
        "format": FORMAT,
        "version": VERSION,
        "agent": agent.name,
        "hitmac": hitmac.__version__,
        "networks": [
            {
                "file": file,
                "features": part.features,
                "inputs": part.inputs,
                "outputs": part.outputs,
                "every": part.every,
                "state_width": part.state_width,
            }
            | ({"nearness": dict(part.nearness)} if part.nearness else {})
            for file, part in parts.items()
        ],
        "decisions": {name: MEANINGS[name] for name in decisions},
        "idle": policy.idle if isinstance(policy, HierarchicalAgent) else "hold",
        "site": site_of(scenario),
        "runner": _digest(_RUNNER),
    }


def site_of(scenario: Scenario) -> dict[str, Any]:
    """Return the parameters of a scenario that observations and the runner need."""
    others = {"walls": scenario.all_walls.tolist(), "extra_move_every": scenario.extra_move_interval}
    return {name: plain(getattr(scenario, name)) for name in _SITE} | others


def _write(part: Part, path: Path, card: str) -> None:
    """Write a network as ONNX, or as a program of ``torch.export``, with the card inside."""
    inputs, axes = part.example()
    with torch.no_grad(), _quiet():
        program = torch.export.export(part.network.eval(), inputs, dynamic_shapes=axes)
        if path.suffix == ".pt2":
            torch.export.save(program, path, extra_files={CARD: card})
            return
        try:
            exported = torch.onnx.export(
                program, dynamo=True, input_names=part.inputs, output_names=part.outputs, verbose=False
            )
        except ModuleNotFoundError:
            raise ModuleNotFoundError("ONNX files need onnx and onnxscript: pip install 'hitmac[export]'") from None
    assert exported is not None
    exported.model.metadata_props[FORMAT] = card
    exported.save(path)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the exporter's remarks on its own passes."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
