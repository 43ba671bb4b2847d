"""Self-play in a duel: in turn, each team is trained against a growing population of the other team.

In iteration k the targets learn against the population of the sensors, then the sensors against that of the targets,
each from the weights of its last policy; every policy joins the population of its team. The weights of a population are
equal, as in fictitious play (Brown, "Iterative Solution of Games by Fictitious Play", 1951), or those of a Nash
equilibrium of the matches so far, as in policy-space response oracles (Lanctot and others, NeurIPS 2017).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.duel import POPULATION, members_of, within
from hitmac.agents.evaluate.cross import WHOLE, cross_table, evaluate_cross, save_matrix
from hitmac.agents.evaluate.figures import new_figure, plain_axis, write_figure
from hitmac.agents.training.config import JOBS, DuelOptions, Options, completed
from hitmac.agents.training.report import CURVE_SEED
from hitmac.agents.training.resume import open_run, resolve
from hitmac.agents.training.train import train
from hitmac.envs.files import read_text, write_text
from hitmac.envs.scenario import Scenario

JOB_OF = {"targets": "transport", "sensors": "coverage-ppo"}
"""Job that trains each team, in the order of an iteration."""


def train_duel(options: DuelOptions, scenario: Scenario) -> bool:
    """Train both teams in turn; return whether a signal stopped a training.

    The directory of the run has one for each training, ``targets-1``, ``sensors-1``, ``targets-2``, ..., and
    ``population.json``, the result of :func:`extended`, written whole after every training. A run that is resumed
    continues in the interrupted training, and equals the uninterrupted one.
    """
    folder, path = options.folder, options.folder / POPULATION
    if path.is_file():
        population = json.loads(read_text(path))
    else:
        first = {team: [*members_of(getattr(options, team), team)] for team in JOB_OF}
        population = extended({}, first, options, scenario)
    for number in range(1, options.iterations + 1):
        for team in JOB_OF:
            name, others = f"{team}-{number}", population["sensors" if team == "targets" else "targets"]
            if name in population[team]:
                continue
            print(f"\niteration {number} of {options.iterations}: {team} against {len(others)} of the other team")
            asked = response_to(others, options, scenario, team, number)
            response, scene = resolve(dataclasses.replace(asked, resume=asked.folder.exists()), None, scenario)
            with open_run(response, scene) as opened:  # at the present paths, also if the run has been moved
                opened = dataclasses.replace(opened, start=asked.start, opponent=asked.opponent)
                if train(opened, scene)[1]:
                    return True
            before, population = population, extended(population, {team: [name]}, options, scenario)
            population["losses"] = before.get("losses", {}) | {name: loss_to(team, before, population)}
            write_text(path, json.dumps(population) + "\n")
            print(f"\n{cross_table(population)}")
            save_matrix(folder / "matrix.png", population)
            save_losses(folder / "losses.png", population["losses"])
    return False


def response_to(
    others: Mapping[str, float], options: DuelOptions, scenario: Scenario, team: str, number: int
) -> Options:
    """Return the options of the training of a team in iteration `number`, from 1, against weighted agents."""
    folder, kind = options.folder, JOBS[JOB_OF[team]]
    before = str(folder / f"{team}-{number - 1}") if number > 1 else getattr(options, f"{team}_start")
    names = {within(folder, name): weight for name, weight in others.items() if weight > 0}
    population = "+".join(f"{name}={weight:.6f}" for name, weight in names.items())
    given: dict[str, Any] = {
        "start": before,
        "opponent": population if len(names) > 1 else min(names),
        "seed": 1000 * options.seed + number,
        "run_dir": folder / f"{team}-{number}",
        "curve_points": 0,
    }
    same = ["scenario", "knowledge", "device", "total_steps", "num_envs", *([] if before else ["weight_dim"])]
    given |= {name: value for name in same if (value := getattr(options, name)) is not None}
    return completed(kind(**given), given, scenario)


def extended(
    population: Mapping[str, Any], joins: Mapping[str, Sequence[str]], options: DuelOptions, scenario: Scenario
) -> dict[str, Any]:
    """Return a population which agents have joined, by team, after their matches.

    Returns:
        The result of :func:`hitmac.agents.evaluate.cross.evaluate_cross` for all agents; ``"sensors"`` and
        ``"targets"``, the weights by agent, names in the directory of the run or of other agents.
    """
    names = {team: [*population.get(team, ()), *joins.get(team, ())] for team in ("sensors", "targets")}
    found = evaluate_cross(
        *({name: within(options.folder, name) for name in of_team} for of_team in names.values()),
        scenario,
        episodes=options.episodes,
        seed=CURVE_SEED,
        max_episode_steps=WHOLE,
        known=population or None,
    )
    del found["provenance"]  # that of each session is in the configuration of the run
    nash = options.weights == "nash"
    return found | {
        team: {name: one["weight"] if nash else 1 / len(of_team) for name, one in found["transport"][team].items()}
        for team, of_team in names.items()
    }


def loss_to(team: str, before: Mapping[str, Any], population: Mapping[str, Any]) -> float:
    """Return how much transport rate the population `before` loses to the response of a team that has joined it.

    It is the gain of the response over the population of its own team, against that of the other team.
    """
    payoff = np.mean(population["transport"]["per_episode"], -1)
    x, y = (np.array([*before[name].values()]) for name in ("sensors", "targets"))
    value = x @ payoff[: len(x), : len(y)] @ y
    return float(x @ payoff[:, -1] - value if team == "targets" else value - payoff[-1] @ y)


def save_losses(path: Path, losses: Mapping[str, float]) -> None:
    """Draw what the population of each team loses to the response trained against it, over the iterations."""
    figure = new_figure((6.0, 3.4), "transport rate that a population loses to the response trained against it")
    axis = figure.subplots()
    for loser, team in (("sensors", "targets"), ("targets", "sensors")):
        points = [loss for name, loss in losses.items() if name.startswith(f"{team}-")]
        axis.plot(range(1, len(points) + 1), points, marker="o", ms=4, label=loser)
    axis.set_xlabel("iteration")
    axis.axhline(0.0, lw=0.7, color="#7d7d7d")
    axis.legend(frameon=False)
    plain_axis(axis, "both")
    write_figure(path, figure)
