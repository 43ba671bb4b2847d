"""Command line ``hitmac pretrained``: add a run's policy, with a card, to the pretrained ones."""

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitmac.agents import pretrained as home
from hitmac.agents.command_line import stop_on_bad_input
from hitmac.agents.evaluate.benchmark import training_amounts
from hitmac.agents.learned.checkpoint import EXECUTOR, FILES, checkpoint_folder, load_policy, trainings_in
from hitmac.envs.files import parse_yaml, read_text, working_folder, write_text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="hitmac pretrained",
        description="Copy the policy of a run to agents/pretrained/NAME, and write its card from the run's evaluation.",
    )
    parser.add_argument("name", help="name of the policy, as in pretrained:NAME")
    parser.add_argument("run", type=Path, help="directory of a run; of several seeds, the first is used")
    parser.add_argument("--note", required=True, help="description of the policy, the card's first paragraph")
    parser.add_argument("--limits", default="", help="limits of the policy, added to the scenario of its training")
    parser.add_argument("--replace", action="store_true", help="replace the policy of this name")
    options = parser.parse_args(arguments)
    with stop_on_bad_input(parser.prog):
        folder = publish(**vars(options))
    print(f"{read_text(folder / 'card.md')}\nin {folder}/, as {home.PREFIX}{options.name}")


def publish(name: str, run: Path, note: str, limits: str, replace: bool) -> Path:
    """Copy the policy of a run to the pretrained ones, with a card; return its folder."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ValueError(f"name is {name!r}; it must have lower-case letters, digits and hyphens only")
    folder = home.FOLDER / name
    if folder.exists() and not replace:
        raise FileExistsError(f"{folder} exists; choose another name, or add --replace")
    several = trainings_in(run)
    own = several[0] if several else run
    source = checkpoint_folder(own)
    if load_policy(source)[1].role == "executor":
        raise ValueError(f"{run} is an executor; give a whole agent, such as the run of a coordinator")
    text = card(name, own, note, limits, several)
    made = working_folder(folder)
    try:
        for level in ("", EXECUTOR) if (source / EXECUTOR).is_dir() else ("",):
            (made / level).mkdir(exist_ok=True)
            for file in FILES:
                shutil.copyfile(source / level / file, made / level / file)
        write_text(made / "card.md", text)
        shutil.rmtree(folder, ignore_errors=True)
        return made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def card(name: str, run: Path, note: str, limits: str, several: Sequence[Path]) -> str:
    """Return the card of the policy of a run, which may be one of `several` trainings in one directory."""
    config = parse_yaml(read_text(run / "config.yaml"))
    scene, sessions = config["scenario"], config["sessions"]
    levels = [run / level for level in ("executor", "coordinator") if (run / level / "curve.json").is_file()] or [run]
    amounts = " and ".join(
        f"{one['steps']:,.0f} steps in {one['seconds'] / 60:.1f} minutes" for one in training_amounts(run)
    )
    commands = "`, then `".join(dict.fromkeys(one["command"] for one in sessions))
    commits = ", ".join(dict.fromkeys(f"{one['commit']}{' with changes' * bool(one['modified'])}" for one in sessions))
    evaluation, figures = _figures(levels[-1])
    lines = [
        f"Trained by `{commands}`, seed {config['options']['seed']} ({amounts}, on `{scene['name']}` with "
        f"{scene['num_sensors']} sensors and {scene['num_targets']} targets), commit {commits}.",
        f"On `{evaluation['scenario']}`: {figures}, {evaluation['episodes']} fresh episodes, seeds "
        f"{' to '.join(map(str, evaluation['seeds']))}.",
    ]
    if several:
        seeds = ", ".join(path.name.rpartition("-")[2] for path in several)
        lines.append(f"Such trainings with the seeds {seeds}: {_figures(run.parent)[1]}.")
    lines.append(f"Limits: it was trained on sensors and targets as in `{scene['name']}`. {limits}".rstrip())
    return "\n".join([f"# {name}\n\n{note}\n", *(f"- {line}" for line in lines), ""])


def _figures(run: Path) -> tuple[dict[str, Any], str]:
    """Return a run's evaluation, and the figures of its first agent, the trained one."""
    path = run / "evaluation.json"
    if not path.is_file():
        raise FileNotFoundError(f"{run} has no evaluation.json; end its training with train.py --resume")
    evaluation: dict[str, Any] = json.loads(read_text(path))
    result = next(iter(evaluation["agents"].values()))
    coverage, ends = f"coverage {result['coverage']['mean']:.3f}", result["coverage"]["ci95"]
    if ends:  # not from a single recording
        coverage += f" ({ends[0]:.3f} .. {ends[1]:.3f} over {result['interval']})"
    return evaluation, f"{coverage}, rotation {result['rotation']['mean']:.3f}"
