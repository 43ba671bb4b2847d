"""``make reproduce``: train and evaluate every row of the table of results in the README."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.evaluate import evaluate, save_evaluation
from hitmac.agents.evaluate.statistics import probability_of_improvement
from hitmac.agents.evaluate.tables import markdown
from hitmac.agents.names import each_training, load_agent
from hitmac.agents.training.config import HitMacOptions
from hitmac.agents.training.train import stop_on_signal
from hitmac.envs.files import read_text, write_text
from hitmac.envs.tasks import SUB_STEPS
from hitmac.envs.validation import Count, convert, did_you_mean, field_types
from hitmac.signals import end_on_signal

PROGRAM = "make reproduce"
SCENARIO = "hit-mac"
COMPARED = "hit-mac"
"""Row whose probability of covering more than each other row is in the table."""


class Row(NamedTuple):
    """Row of the table of results."""

    train: str = ""  # job and options of train.py; "" for an agent that is not trained
    agent: str = ""  # to evaluate; {ROW} is the directory of a row's trainings; "": the row's own trainings
    bounds: bool = False  # computes the bounds too


ROWS = {
    "planner": Row(agent="planner"),
    "planner-fast": Row(agent="planner-fast"),
    "coverage policy": Row("coverage --total-steps 450000"),
    "coverage policy, low rotation": Row("coverage --planner-turn-cost 1.2 --total-steps 450000"),
    "coverage policy, single frame": Row("coverage --features frame --total-steps 450000"),
    "coverage-ppo": Row("coverage-ppo --total-steps 1540000"),
    "hit-mac": Row("hit-mac"),
    "hit-mac, imitation": Row("hit-mac --algorithm imitation"),
    "hit-mac, paper features": Row("hit-mac --features hit-mac"),
    "assign-all, the executors of hit-mac": Row(agent="assign-all:{hit-mac}"),
    "assign-in-range, the executors of hit-mac": Row(agent="assign-in-range:{hit-mac}"),
    "exact": Row(agent="exact"),
    "greedy": Row(agent="greedy"),
    "nearest": Row(agent="nearest"),
    "random": Row(agent="random"),
    "still": Row(agent="still", bounds=True),
}
"""Rows of the table, by name."""


@dataclass(frozen=True)
class Options:
    """Train and evaluate the rows of the README's table of results, and write the table to run_dir/results.md.

    Evaluated rows are skipped unless --row names them, and an interrupted training continues.
    """

    row: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Name of a row; repeat it for several. None: all rows."""
    list: bool = False
    """List the rows with their commands, and exit."""
    seeds: Count = 3
    """Number of trainings of each row, with the seeds 0 and up."""
    episodes: Count = 200
    """Episodes of each agent; seeds 0 and up."""
    quick: bool = False
    """Train for seconds and evaluate on two short episodes, to try all rows; use another run_dir."""
    run_dir: Path = Path("runs/reproduce")
    """Directory of the trainings and the results."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(Options, PROGRAM, arguments)
    with stop_on_bad_input(PROGRAM):
        for name in ("seeds", "episodes"):
            convert(f"--{name}", field_types(Options)[name], getattr(options, name))
        for name in options.row:
            if name not in ROWS:
                raise ValueError(f"unknown row {name!r}{did_you_mean(name, ROWS)}: known are {'; '.join(ROWS)}")
        if options.list:
            print("\n".join(f"{name}: {_command(row)}" for name, row in ROWS.items()))
            return
        options.run_dir.mkdir(parents=True, exist_ok=True)
        for name in options.row or ROWS:
            if name in options.row or not _file(options.run_dir, name).is_file():
                print(f"\n{name}", flush=True)
                reproduce(name, options)
        results = table({name: _file(options.run_dir, name) for name in ROWS})
        write_text(options.run_dir / "results.md", results)
    print(f"\n{results}\nwritten to {options.run_dir / 'results.md'}")


def reproduce(name: str, options: Options) -> None:
    """Run the trainings that a row needs, evaluate it, and write its evaluation."""
    agent = ROWS[name].agent or f"{{{name}}}"
    for needed in re.findall(r"{(.*?)}", agent):
        train(needed, options)
        agent = agent.replace(f"{{{needed}}}", str(_file(options.run_dir, needed).with_suffix("")))
    runs = [load_agent(run, SCENARIO)._replace(name=name, run=run) for run in each_training(agent)]
    episodes, sub_steps = (2, 50) if options.quick else (options.episodes, SUB_STEPS)
    evaluation = evaluate(runs, SCENARIO, episodes=episodes, max_episode_steps=sub_steps, bounds=ROWS[name].bounds)
    save_evaluation(_file(options.run_dir, name), evaluation)


def train(name: str, options: Options) -> None:
    """Run or continue the trainings of a row that are not finished."""
    folder = _file(options.run_dir, name).with_suffix("")
    arguments = [*shlex.split(ROWS[name].train), "--seeds", str(options.seeds), "--run-dir", str(folder)]
    if options.quick:
        levels = ("executor-", "coordinator-") if arguments[0] == HitMacOptions.job else ("",)
        arguments += ["--episodes", "2", *(f"--{level}minutes=0.02" for level in levels)]
    command = [sys.executable, "-m", "hitmac.train", *arguments, *["--resume"] * folder.exists()]
    with stop_on_signal() as stop, subprocess.Popen(command) as training:
        while training.poll() is None and not stop.is_set():
            time.sleep(0.1)
        if stop.is_set() and stop.number != signal.SIGINT:  # a Ctrl-C has reached both
            training.terminate()
    if stop.is_set() or training.returncode:
        print(f"stopped in {name}; continue with the same command", file=sys.stderr)
        sys.exit(128 + stop.number if stop.is_set() else training.returncode)


def table(files: Mapping[str, Path]) -> str:
    """Return the table of the rows that have been evaluated, and their commands, as Markdown."""
    evaluations = {name: json.loads(read_text(file)) for name, file in files.items() if file.is_file()}
    if len({tuple(one["seeds"]) for one in evaluations.values()}) > 1:
        raise ValueError("rows were evaluated on different episodes; give the same --episodes, or another --run-dir")
    agents = {name: result for one in evaluations.values() for name, result in one["agents"].items()}
    whole: dict[str, Any] = next(iter(evaluations.values())) | {"agents": agents}

    def scores(name: str) -> np.ndarray:  # (S, E), the coverage of all trainings and episodes
        return np.array(agents[name]["per_episode"]["coverage"], float).reshape(-1, whole["episodes"])

    for name in agents if COMPARED in agents else ():
        if name != COMPARED and not agents[name].get("bound"):
            agents[name]["improvement"] = probability_of_improvement(scores(COMPARED), scores(name))
    made = {f"commit {one['provenance']['commit']}, {one['provenance']['processor']}" for one in evaluations.values()}
    about = f"P: probability that {COMPARED} covers more. Measured at {'; '.join(sorted(made))}."
    commands = [f"- {row}: `{_command(ROWS[row])}`" for row in evaluations]
    return "\n".join([markdown(whole), "", about, "", *commands, ""])


def _command(row: Row) -> str:
    return f"python train.py {row.train}" if row.train else f"--agents {row.agent}"


def _file(run_dir: Path, name: str) -> Path:
    """Return the file of a row's evaluation; the directory of its trainings has the same name without the ending."""
    return run_dir / (re.sub(r"\W+", "-", name) + ".json")


if __name__ == "__main__":
    with end_on_signal(PROGRAM):
        main()
