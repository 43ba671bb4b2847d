"""``python -m agents.evaluate``: compare agents on the same fresh episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from agents.command_line import parse, stop_on_bad_input
from agents.evaluate.comparison import evaluate, save_evaluation, save_pictures
from agents.evaluate.selection import name_and_size, named_agents, scenarios
from agents.evaluate.tables import table
from envs.tasks import SUB_STEPS


@dataclass(frozen=True)
class Options:
    """Compare agents on the same fresh episodes: a table, every episode's figures, pictures."""

    agents: str = "random,still,nearest"
    """Comma-separated: random, still, nearest, greedy, exact, planner; folders of runs or checkpoints; assign-all,
    assign-in-range or assign-randomly, alone or with an executor, as in assign-all:runs/x; released:FILE:FILE;
    MODULE:CLASS, an agent of your own. Several trainings of one agent: NAME=runs/a+runs/b."""
    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run or its config.yaml; several
    comma-separated."""
    sizes: str = ""
    """Numbers of sensors and targets to set in the scenario, comma-separated: 4x5,6x9."""
    episodes: int = 200
    """How many episodes of each agent."""
    seed: int = 0
    """Seed of the first episode; the k-th has seed + k."""
    max_episode_steps: int = SUB_STEPS
    """Length of an episode, sub-steps."""
    references: Annotated[bool, tyro.conf.arg(aliases=["--bounds"])] = False
    """Show also an upper bound of what could be reached, and a lower estimate of what a clairvoyant could."""
    json: Path | None = None
    """Write every episode's figures to this file."""
    pictures: Path | None = None
    """Write tables and pictures into this directory; of several scenes into a directory for each."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    program = "python -m agents.evaluate"
    options = parse(Options, program, arguments)
    with stop_on_bad_input(program):
        scenes = scenarios(options.scenario, options.sizes)
        teams = [named_agents(options.agents, scenario) for scenario in scenes]
        evaluations = []
        for scenario, agents in zip(scenes, teams, strict=True):
            evaluation = evaluate(
                agents,
                scenario,
                episodes=options.episodes,
                seed=options.seed,
                max_episode_steps=options.max_episode_steps,
                references=options.references,
            )
            evaluations.append(evaluation)
            print(f"{table(evaluation)}\n")
        if options.json:
            save_evaluation(options.json, evaluations[0] if len(evaluations) == 1 else evaluations)
            print(f"every episode: {options.json}")
        if options.pictures:
            of_scene: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
            for scenario, evaluation in zip(scenes, evaluations, strict=True):
                name, n, m = name_and_size(scenario)
                of_scene.setdefault(name, {})[n, m] = evaluation
            for name, by_size in of_scene.items():
                folder = options.pictures / name if len(of_scene) > 1 else options.pictures
                save_pictures(folder, by_size, options.max_episode_steps)
            print(f"tables and pictures: {options.pictures}/")


if __name__ == "__main__":
    main()
