"""Self-play in a duel: in turn, each team is trained against a growing population of the other team.

In iteration k the targets learn against the population of the sensors, then the sensors against that of the targets,
each from the weights of its last policy; every policy joins the population of its team. All agents of a population have
the same weight, as in fictitious play (Brown, "Iterative Solution of Games by Fictitious Play", 1951).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hitmac.agents.evaluate.cross import WHOLE, cross_table, evaluate_cross, save_matrix
from hitmac.agents.names import POPULATION, members_of, within
from hitmac.agents.training.config import JOBS, DuelOptions, Options, completed
from hitmac.agents.training.report import CURVE_SEED
from hitmac.agents.training.resume import open_run, resolve
from hitmac.agents.training.train import train
from hitmac.envs.files import read_text, write_text
from hitmac.envs.scenario import Scenario

TEAMS = ("sensors", "targets")
JOB_OF = {"targets": "transport", "sensors": "coverage-ppo"}
"""Job that trains each team, in the order of an iteration."""


def train_duel(options: DuelOptions, scenario: Scenario) -> bool:
    """Train both teams in turn; return whether a signal stopped a training.

    The directory of the run has one for each training, ``targets-1``, ``sensors-1``, ``targets-2``, ..., and
    ``population.json``, the result of :func:`extended`, written whole after every training. A run that is resumed
    continues in the interrupted training, and equals the uninterrupted one.
    """
    folder, path = options.folder, options.folder / POPULATION
    population: dict[str, Any] = {team: members_of(getattr(options, team), team) for team in TEAMS}
    if path.is_file():
        population = json.loads(read_text(path))
    for number in range(1, options.iterations + 1):
        for team in JOB_OF:
            name, (other,) = f"{team}-{number}", set(TEAMS) - {team}
            if name in population[team]:
                continue
            others = [*population[other]]
            print(f"\niteration {number} of {options.iterations}: {team} against {len(others)} of the other team")
            asked = response_to(others, options, scenario, team, number)
            response, scene = resolve(dataclasses.replace(asked, resume=asked.folder.exists()), None, scenario)
            with open_run(response, scene) as opened:  # at the present paths, also if the run has been moved
                opened = dataclasses.replace(opened, start=asked.start, opponent=asked.opponent)
                if train(opened, scene)[1]:
                    return True
            population = extended(population, team, name, options, scenario)
            write_text(path, json.dumps(population) + "\n")
            print(f"\n{cross_table(population)}")
            save_matrix(folder / "matrix.png", population)
    return False


def response_to(others: Sequence[str], options: DuelOptions, scenario: Scenario, team: str, number: int) -> Options:
    """Return the options of the training of a team in iteration `number`, from 1, against other agents."""
    folder, kind = options.folder, JOBS[JOB_OF[team]]
    before = str(folder / f"{team}-{number - 1}") if number > 1 else getattr(options, f"{team}_start")
    names = [within(folder, name) for name in others]
    given: dict[str, Any] = {
        "start": before,
        "opponent": "+".join(f"{name}=1" for name in names) if len(names) > 1 else names[0],
        "seed": 1000 * options.seed + number,
        "run_dir": folder / f"{team}-{number}",
        "curve_points": 0,
        **({"reward": "real_coverage"} if team == "sensors" else {}),
    }
    same = ["scenario", "knowledge", "device", "total_steps", "num_envs", *([] if before else ["weight_dim"])]
    given |= {name: value for name in same if (value := getattr(options, name)) is not None}
    return completed(kind(**given), given, scenario)


def extended(
    population: Mapping[str, Any], team: str, response: str, options: DuelOptions, scenario: Scenario
) -> dict[str, Any]:
    """Return a population which the response of a team has joined, after its matches.

    Returns:
        The result of :func:`hitmac.agents.evaluate.cross.evaluate_cross` for all agents, without its provenance; and
        ``"sensors"`` and ``"targets"``, the weights by agent, names in the directory of the run or of other agents.
    """
    names = {side: [*population[side], *([response] if side == team else ())] for side in TEAMS}
    sensors, targets = ({name: within(options.folder, name) for name in names[side]} for side in TEAMS)
    found = evaluate_cross(
        sensors,
        targets,
        scenario,
        episodes=options.episodes,
        seed=CURVE_SEED,
        max_episode_steps=WHOLE,
        known=population,
    )
    del found["provenance"]  # in the configuration of the run
    return found | {side: dict.fromkeys(names[side], 1 / len(names[side])) for side in TEAMS}
