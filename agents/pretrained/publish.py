"""Command line ``python -m agents.pretrained``: put a run's policy, with its card, among the pretrained ones."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hitmac.agents import pretrained as home
from hitmac.agents.command_line import program_name
from hitmac.agents.learned.checkpoint import EXECUTOR, checkpoint_folder, load_policy, trainings_in
from hitmac.envs.files import parse_yaml, read_text, write_text
from hitmac.signals import end_on_signal

LARGEST = 1_000_000
"""Most bytes of a pretrained policy."""

_FILES = ("config.json", "policy.safetensors")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog=program_name("python -m agents.pretrained"),
        description="Copy the policy of a run to agents/pretrained/NAME, and write its card from the run's evaluation.",
    )
    parser.add_argument("name", help="name of the policy, as in pretrained:NAME")
    parser.add_argument("run", type=Path, help="directory of a run; of one with several seeds, the first training")
    parser.add_argument("--note", required=True, help="what the policy is, the card's first paragraph")
    parser.add_argument("--limits", default="", help="what the policy cannot do, added to what it was trained on")
    parser.add_argument("--replace", action="store_true", help="replace the policy of this name")
    options = parser.parse_args(arguments)
    with end_on_signal(parser.prog):
        try:
            folder = publish(options.name, options.run, options.note, limits=options.limits, replace=options.replace)
        except (ValueError, TypeError, OSError, KeyError) as error:
            parser.exit(2, f"{parser.prog}: error: {error}\n")
    print((folder / "card.md").read_text(encoding="utf-8"))
    print(f"in {folder}/, as {home.PREFIX}{options.name}")


def publish(name: str, run: str | Path, note: str, *, limits: str = "", replace: bool = False) -> Path:
    """Copy the policy of a run among the pretrained ones, with a card; return its folder.

    Args:
        name: name of the policy: lower-case letters, digits and hyphens.
        run: directory of a run of a whole agent, or of several seeds, of which the first training is copied.
        note: first paragraph of the card.
        limits: sentences for the end of the card.
        replace: replace the policy of this name.

    Raises:
        ValueError: a name of another form, an executor alone, a policy over :data:`LARGEST`, or a damaged run.
        FileExistsError: there is a policy of this name.
        FileNotFoundError: the run is not whole.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ValueError(f"name is {name!r}; it must have lower-case letters, digits and hyphens only")
    folder = home.FOLDER / name
    if folder.exists() and not replace:
        raise FileExistsError(f"{folder} exists; choose another name, or add --replace")
    together = Path(run)
    several = trainings_in(together)
    own = several[0] if several else together
    source = checkpoint_folder(own)
    if load_policy(source)[1].role == "executor":
        raise ValueError(f"{run} is an executor; give a whole agent, such as the run of a coordinator")
    files = [Path(file) for file in _FILES]
    if (source / EXECUTOR).is_dir():
        files += [Path(EXECUTOR, file) for file in _FILES]
    size = sum((source / file).stat().st_size for file in files)
    if size > LARGEST:
        raise ValueError(f"{run} has {size} bytes; a pretrained policy may have {LARGEST}")
    text = card(name, own, note, limits, together if several else None)
    shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, folder / file)
    write_text(folder / "card.md", text)
    return folder


def card(name: str, run: Path, note: str, limits: str, together: Path | None) -> str:
    """Return the card of the policy of a run, which may be one of several trainings in the directory `together`."""
    config: dict[str, Any] = parse_yaml(read_text(run / "config.yaml"))
    scene = config["scenario"]
    levels = [run / level for level in ("executor", "coordinator") if (run / level / "curve.json").is_file()] or [run]
    trained = f"on `{scene['name']}` with {scene['num_sensors']} sensors and {scene['num_targets']} targets"
    amounts = " and ".join(map(_amount, levels))
    evaluation = _evaluation(levels[-1])
    episodes = f"{evaluation['episodes']} fresh episodes, seeds {' to '.join(map(str, evaluation['seeds']))}"
    lines = [
        f"# {name}",
        "",
        note,
        "",
        f"- Trained by `{_command(config)}` ({amounts}, {trained}), {_commit(config)}.",
        f"- On `{evaluation['scenario']}`: {_figures(evaluation)}, {episodes}.",
    ]
    if together is not None:
        all_seeds = ", ".join(path.name.rpartition("-")[2] for path in trainings_in(together))
        lines.append(f"- Such trainings with the seeds {all_seeds}: {_figures(_evaluation(together))}.")
    lines.append(f"- Limits: it was trained on sensors and targets as in `{scene['name']}`. {limits}".rstrip())
    return "\n".join([*lines, ""])


def _evaluation(run: Path) -> dict[str, Any]:
    path = run / "evaluation.json"
    if not path.is_file():
        raise FileNotFoundError(f"{run} has no evaluation.json; end its training with train.py --resume")
    return json.loads(read_text(path))


def _figures(evaluation: Mapping[str, Any]) -> str:
    """Return the coverage, its interval and the rotation of the trained policy, the first agent of the evaluation."""
    result = next(iter(evaluation["agents"].values()))
    low, high = result["coverage"]["ci95"]
    coverage = f"coverage {result['coverage']['mean']:.3f} ({low:.3f} .. {high:.3f} over {result['interval']})"
    return f"{coverage}, rotation {result['rotation']['mean']:.3f}"


def _amount(run: Path) -> str:
    """Return the steps and minutes of a training."""
    last = json.loads(read_text(run / "curve.json"))["exploring"][-1]
    return f"{last['steps']:,.0f} steps in {last['seconds'] / 60:.1f} minutes"


def _command(config: Mapping[str, Any]) -> str:
    """Return the commands of a run's sittings, each as that of a run with this seed alone."""
    commands: list[str] = []
    for sitting in config["sittings"]:
        asked = re.sub(r"^.*?(train\.py|-m hitmac\.train)", "", sitting["command"])
        asked = re.sub(r" --(seeds?|run-dir|resume|processes|ray)\b(?:[ =][^-]\S*)?", "", asked)
        if commands and asked.strip() in ("", config["job"]):  # it went on as it was
            continue
        varied = re.findall(r" --set[ =](\w[\w-]*)=", asked)
        asked = re.sub(r" --set[ =]\S+", "", asked)
        asked += "".join(f" --{name} {config['options'][name.replace('-', '_')]}" for name in varied)
        command = f"python train.py{asked} --seed {config['options']['seed']}"
        if command not in commands:
            commands.append(command)
    return "`, then `".join(commands)


def _commit(config: Mapping[str, Any]) -> str:
    """Return the commits of a run's sittings."""
    commits = dict.fromkeys(
        f"{sitting['commit'] or 'unknown'}{' with changes' if sitting['modified'] else ''}"
        for sitting in config["sittings"]
    )
    return f"commit {', '.join(commits)}"


if __name__ == "__main__":
    main()
