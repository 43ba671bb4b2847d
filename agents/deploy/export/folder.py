"""Command line ``hitmac export``: export a learned policy as ONNX, with a runner, or as ``torch.export`` program."""

import hashlib
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import hitmac
from hitmac.agents import command_line
from hitmac.agents.deploy.export.networks import Part, parts_of
from hitmac.agents.hierarchy import HierarchicalAgent
from hitmac.agents.names import load_agent, parse
from hitmac.agents.policy import Policy, Rates
from hitmac.agents.registry import Agent
from hitmac.envs import deployment, features
from hitmac.envs.files import check_output, read_text, working_folder
from hitmac.envs.scenario import DECISIONS, Scenario, load_scenario
from hitmac.envs.validation import plain

PROGRAM = "hitmac export"
FORMAT, VERSION = "hitmac-export", 1
CARD, OBSERVE, FEATURES, RUN = "policy.json", "observe.py", "features.py", "run.py"
SHARES = {
    "turn": "share, -1 to 1, of the highest of turn_rates, without any of turn_angle in a step; left over 0",
    "zoom": "share, -1 to 1, of zoom_step; wider over 0",
}
"""Meanings of the decisions of a policy of rates."""
_RUNNER = Path(__file__).with_name(RUN)
_SITE = (
    "name", "num_sensors", "num_targets", "arena", "sensing_range", "field_of_view", "turn_angle", "zoom",
    "zoom_step", "tilt_limits", "tilt_step", "mount_height", "vertical_view", "rails", "rail_step",
    "sensor_positions", "sensor_headings", "pan_limits", "discs", "knowledge", "distance_scale", "max_speed",
    "speed_noise", "time_step", "position_noise", "turn_rates", "acceleration", "command_delay", "dead_zone",
    "zones", "zone_values", "target_values",
)  # fmt: skip


def export_agent(
    agent: Agent | Policy | str | Path,
    to: str | Path,
    scenario: Scenario | str | Path | None = None,
    *,
    replace: bool = False,
) -> list[Path]:
    """Export a learned policy, or both levels of a hierarchy; return the files.

    Args:
        agent: the agent, as accepted by :func:`hitmac.agents.load_agent`.
        to: a file, .onnx or .pt2; a hierarchy has two, ``NAME-coordinator.onnx`` and ``NAME-executor.onnx``. Any other
            name: a folder with the .onnx files, ``policy.json`` (features, decisions and the parameters of the site),
            ``observe.py`` (:func:`hitmac.envs.observe`) with its ``features.py``, and ``run.py``, a loop; they need
            numpy and onnxruntime only.
        scenario: the site: a :class:`hitmac.envs.Scenario`, a preset's name or a file's path; None: that of the
            training (of a hierarchy's coordinator, if trained), and ``"hit-mac"`` without one.
        replace: replace the files, or the exported folder, of this name. Other files in the folder, and a modified
            ``run.py``, are kept.

    Raises:
        ValueError: an agent without a network, an unknown name, or the ending of another format.
        FileExistsError: a file or folder of this name exists, and `replace` is False or it is not an earlier export.
        ModuleNotFoundError: onnxscript is missing; the message names the extra to install.
    """
    scenario = load_scenario(_own_scenario(agent) if scenario is None else scenario)
    agent, to = load_agent(agent, scenario), Path(to)
    parts, decisions = parts_of(agent, scenario)
    if to.suffix in (".pt", ".pth", ".ort"):
        check_output("to", to, ".onnx", ".pt2")
    alone = to.suffix in (".onnx", ".pt2")
    names = [f"{part.name}.onnx" for part in parts]
    if alone:
        names = [to.name if len(parts) == 1 else f"{to.stem}-{part.name}{to.suffix}" for part in parts]
    for target in [to.with_name(name) for name in names] if alone else [to]:
        if target.exists() and not (target.is_file() if alone else _is_exported(target)):
            raise FileExistsError(f"{target} is not an earlier export; choose another name")
        if target.exists() and not replace:
            raise FileExistsError(f"{target} exists; choose another name, or add --replace")
    card = json.dumps(_card(agent, scenario, dict(zip(names, parts, strict=True)), decisions), indent=2) + "\n"
    made = working_folder(to)
    try:
        for name, part in zip(names, parts, strict=True):
            _write(part, made / name, card)
        if alone:
            return [(made / name).replace(to.with_name(name)) for name in names]
        (made / CARD).write_text(card, encoding="utf-8")
        for source, name in ((deployment.__file__, OBSERVE), (features.__file__, FEATURES), (_RUNNER, RUN)):
            shutil.copyfile(source, made / name)
        if to.exists():
            before = json.loads(read_text(to / CARD))
            if (to / RUN).is_file() and _digest(to / RUN) != before["runner"]:
                (made / RUN).unlink()  # modified by the user
            for network in before["networks"]:
                (to / network["file"]).unlink(missing_ok=True)
            for file in made.iterdir():
                file.replace(to / file.name)
        else:
            made.rename(to)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return sorted(to.iterdir())


def _is_exported(folder: Path) -> bool:
    """Return True for a folder with the card of an export."""
    try:
        return json.loads(read_text(folder / CARD))["format"] == FORMAT
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _own_scenario(agent: Any) -> str | Path:
    """Return the folder of the training in an agent's name, ``"hit-mac"`` without one."""
    if not isinstance(agent, str | Path):
        return "hit-mac"
    name = parse(agent)
    return next((place for place in (*name.parts, name.executor) if place and Path(place).is_dir()), "hit-mac")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _card(agent: Agent, scenario: Scenario, parts: dict[str, Part], decisions: tuple[str, ...]) -> dict[str, Any]:
    """Return the content of ``policy.json``."""
    policy = agent.policy.policy if isinstance(agent.policy, Rates) else agent.policy
    by_rates = getattr([*parts.values()][-1].network, "rates", False)
    return {
        "format": FORMAT,
        "version": VERSION,
        "agent": agent.name,
        "hitmac": hitmac.__version__,
        "networks": [
            {"file": file}
            | {name: getattr(part, name) for name in ("features", "inputs", "outputs", "every", "state_width")}
            | ({"nearness": dict(part.nearness)} if part.nearness else {})
            for file, part in parts.items()
        ],
        "decisions": {name: SHARES[name] if by_rates else DECISIONS[name].actions for name in decisions},
        "idle": policy.idle if isinstance(policy, HierarchicalAgent) else "hold",
        "site": site_of(scenario),
        "runner": _digest(_RUNNER),
    }


def site_of(scenario: Scenario) -> dict[str, Any]:
    """Return the parameters of a scenario for observations and the runner."""
    others = {"walls": scenario.all_walls.tolist(), "extra_move_every": scenario.extra_move_interval}
    return {name: plain(getattr(scenario, name)) for name in _SITE} | others


def _write(part: Part, path: Path, card: str) -> None:
    """Write a network as ONNX, or as a program of ``torch.export``, with the card inside."""
    inputs, axes = part.example()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # the exporter logs its passes
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        program = torch.export.export(part.network.eval(), inputs, dynamic_shapes=axes)
        if path.suffix == ".pt2":
            torch.export.save(program, path, extra_files={CARD: card})
            return
        # PyTorch names the axes in ONNX only if it is given them again.
        names: dict[str, Any] = {"input_names": part.inputs, "output_names": part.outputs, "dynamic_shapes": axes}
        try:
            exported = torch.onnx.export(program, dynamo=True, verbose=False, **names)
        except ModuleNotFoundError:
            raise ModuleNotFoundError("ONNX files require onnx and onnxscript: pip install 'hitmac[export]'") from None
    assert exported is not None
    exported.model.metadata_props[FORMAT] = card
    exported.save(path)


@dataclass(frozen=True)
class Options:
    """Export a learned policy, to run without torch and without hitmac: hitmac export runs/x --to policy."""

    agent: str
    """Directory of a run or checkpoint, pretrained:NAME, or COORDINATOR:EXECUTOR; first, it needs no --agent."""
    to: Path
    """Folder for the networks and a runner that needs numpy and onnxruntime only; or file for the network alone, .onnx
    or .pt2 (for a hierarchy two, NAME-coordinator.onnx and NAME-executor.onnx)."""
    scenario: str | None = None
    """Preset or YAML file of the site. None: the scenario of the training."""
    replace: bool = False
    """Replace an earlier export of this name."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = command_line.parse(Options, PROGRAM, arguments, first="--agent")
    with command_line.stop_on_bad_input(PROGRAM):
        files = export_agent(**vars(options))
    print(*files, sep="\n")
    if options.to.is_dir():
        print(f"try it: {Path(sys.executable).name} {options.to / RUN}")
