"""Cross-play in a duel: every team of sensors against every team of targets, on the same episodes.

A measure of the matches, the transport rate or the coverage, is the matrix M of a zero-sum game between the two teams.
With the weights x of its rows (sensors) and y of its columns (targets) in a Nash equilibrium, the value is v = x M y.
The loss of a team is what it gives away to the best response known, the best team of the other side in the matrix::

    loss of row i = max_j M[i, j] - v        loss of column j = v - min_i M[i, j]

for a measure that the targets maximise; both are 0 or more. Their sum over two teams that meet is NashConv (Lanctot and
others, "A Unified Game-Theoretic Approach to Multiagent Reinforcement Learning", NeurIPS 2017, section 2), where teams
outside the matrix are unknown: a lower bound of the exploitability in the whole game.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog
from tqdm import tqdm

from hitmac.agents.command_line import provenance
from hitmac.agents.duel import Player
from hitmac.agents.evaluate.compare import SCENES_AT_ONCE
from hitmac.agents.evaluate.figures import label_of, new_figure, write_figure
from hitmac.agents.evaluate.statistics import summary
from hitmac.agents.evaluate.tables import title
from hitmac.agents.names import load_opponent
from hitmac.agents.policy import one_thread_each
from hitmac.envs.duel import Duel
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import positive

MEASURES = {"transport": 1.0, "coverage": -1.0}
"""Measures of a match, with the sign of their worth to the targets."""

WHOLE = 10_001
"""Most steps of an episode of MATE."""

Teams = Sequence[str | Path] | Mapping[str, Any]

_WIDTH = 80  # of a terminal


@one_thread_each()
def play_match(
    sensors: Player, targets: Player, scenario: Scenario, seeds: Sequence[int], max_episode_steps: int
) -> dict[str, np.ndarray]:
    """Play episodes with these seeds (E,); each ends when all cargoes are delivered.

    Returns:
        ``"transport"`` (E,), the transport rate at the end, and ``"coverage"`` (E,), the mean over the sub-steps.
    """
    duel = Duel(scenario, len(seeds), list(seeds))
    plays = starts = np.ones(len(seeds), np.bool_)
    coverage, time = np.zeros((2, len(seeds)))
    for _ in range(max_episode_steps):
        actions = sensors.act(duel, starts, plays), targets.act(duel, starts, plays)
        duel.step(actions[0], plays, target_action=actions[1])
        coverage += np.where(plays, duel.coverage, 0.0)
        time += plays
        plays, starts = plays & ~duel.done, np.zeros_like(starts)
        if not plays.any():
            break
    return {"transport": duel.transport_rate.copy(), "coverage": coverage / time}


def equilibrium(payoff: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (R,) of the rows, which minimise, and (C,) of the columns, in a Nash equilibrium.

    The weights x of the rows minimise max_j (x payoff)_j, a linear program whose dual solution are those of the columns
    (Dantzig, "A Proof of the Equivalence of the Programming Problem and the Game Problem", 1951).
    """
    rows, columns = payoff.shape
    found = linprog(
        np.append(np.zeros(rows), 1.0),
        A_ub=np.column_stack((payoff.T, -np.ones(columns))),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * rows + [(None, None)],
    )
    x, y = (np.clip(weights, 0.0, None) for weights in (found.x[:-1], -found.ineqlin.marginals))
    return x / x.sum(), y / y.sum()


def solve(scores: np.ndarray, sign: float, sensors: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    """Return the game with the scores (R, C, E) of a measure; `sign` is that of its worth to the targets.

    Intervals are those of :func:`hitmac.agents.evaluate.statistics.summary` for the episodes of the game as it is: the
    weights and the best responses count as given, since the value of a game does not change with them to first order.

    Returns:
        ``"per_episode"``, the scores; ``"matrix"``, a summary for each match, row by row; ``"value"``, a summary; and
        ``"sensors"`` and ``"targets"``, for each team its ``weight``, its ``loss``, a summary, and its
        ``best_response``.
    """
    worth = sign * scores
    mean = worth.mean(-1)
    x, y = equilibrium(mean)
    value = np.einsum("r,rce,c->e", x, worth, y)  # (E,)
    rows, columns = mean.argmax(1), mean.argmin(0)
    return {
        "per_episode": scores.tolist(),
        "matrix": [[summary(match[None], (0.0, 1.0)) for match in row] for row in scores],
        "value": summary(sign * value[None], (0.0, 1.0)),
        "sensors": {
            name: {"weight": float(x[i]), "loss": summary((worth[i, j] - value)[None]), "best_response": targets[j]}
            for i, (name, j) in enumerate(zip(sensors, rows, strict=True))
        },
        "targets": {
            name: {"weight": float(y[j]), "loss": summary((value - worth[i, j])[None]), "best_response": sensors[i]}
            for j, (name, i) in enumerate(zip(targets, columns, strict=True))
        },
    }


def evaluate_cross(
    sensors: Teams,
    targets: Teams,
    scenario: Scenario | str | Path = "mate-4v8-9",
    *,
    episodes: int = 10,
    seed: int = 0,
    max_episode_steps: int = WHOLE,
    progress: bool = True,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluate every team of sensors against every team of targets, on the same whole episodes.

    Args:
        sensors: R names of teams of sensors, each as accepted by :func:`hitmac.agents.load_opponent`; or a mapping of
            other names to them.
        targets: C names of teams of targets.
        scenario: scenario with two teams: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        episodes: E, number of episodes, 1 or more; episode k has the seed ``seed + k``.
        seed: first seed.
        max_episode_steps: most sub-steps of an episode, 1 or more, limited by the scenario.
        progress: show a progress bar.
        known: result for the first of these teams, whose matches are not played again if the seeds are the same.

    Returns:
        A mapping of ``"scenario"``, ``"episodes"``, ``"seeds"`` (first, last), ``"sub_steps"``, ``"provenance"``, and
        the games ``"transport"`` and ``"coverage"``, results of :func:`solve`.

    Raises:
        ValueError: no episode, an unknown name, or a scenario without two teams.
    """
    scenario = load_scenario(scenario)
    if not scenario.warehouses:
        raise ValueError(f"scenario is {scenario.name!r}, which has no warehouses; two teams play in mate-4v8-9")
    rows, columns = _loaded("sensors", sensors, scenario), _loaded("targets", targets, scenario)
    seeds = range(seed, seed + positive("episodes", episodes))
    sub_steps = scenario.sub_steps_of(positive("max_episode_steps", max_episode_steps))
    about = {"scenario": scenario.name, "episodes": episodes, "seeds": [seeds[0], seeds[-1]], "sub_steps": sub_steps}
    scores = {name: np.full((len(rows), len(columns), episodes), np.nan) for name in MEASURES}
    if known and known.get("seeds") == about["seeds"]:
        for name, of_one in scores.items():
            first = np.array(known[name]["per_episode"])
            of_one[: first.shape[0], : first.shape[1]] = first
    batches = [seeds[k : k + SCENES_AT_ONCE] for k in range(0, episodes, SCENES_AT_ONCE)]
    missing = np.argwhere(np.isnan(scores["transport"]).any(-1)).tolist()
    for i, j in tqdm(missing, unit="match", disable=not progress):
        pair = [*rows.values()][i], [*columns.values()][j]
        matches = [play_match(*pair, scenario, batch, sub_steps) for batch in batches]
        for name, of_one in scores.items():
            of_one[i, j] = np.concatenate([match[name] for match in matches])
    games = {name: solve(scores[name], sign, [*rows], [*columns]) for name, sign in MEASURES.items()}
    return about | {"provenance": provenance()} | games


def _loaded(team: str, names: Teams, scenario: Scenario) -> dict[str, Player]:
    """Return the players of a team by name."""
    named = names if isinstance(names, Mapping) else {str(name): name for name in names}
    return {name: load_opponent(one, scenario, team) for name, one in named.items()}


def cross_table(evaluation: Mapping[str, Any]) -> str:
    """Return the games of :func:`evaluate_cross` as tables for the terminal, targets in columns."""
    letters = {name: chr(ord("A") + j) for j, name in enumerate(evaluation["transport"]["targets"])}
    lines = [title(evaluation), "", "targets:", *(f"  {letter}  {name}" for name, letter in letters.items())]
    for measure, sign in MEASURES.items():
        game = evaluation[measure]
        columns = game["targets"].values()
        rows = [["sensors", *letters.values(), "loss", "weight"]]
        for (name, one), cells in zip(game["sensors"].items(), game["matrix"], strict=True):
            rows.append([label_of(name, {}), *map(_cell, cells), _cell(one["loss"]), f"{one['weight']:.2f}"])
        rows.append(["loss", *(_cell(one["loss"]) for one in columns), "", ""])
        rows.append(["weight", *(f"{one['weight']:.2f}" for one in columns), "", ""])
        if sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2 > _WIDTH:  # without intervals
            rows = [[cell.partition(" \u00b1")[0] for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        higher = "targets" if sign > 0 else "sensors"
        lines += ["", f"{measure} (the {higher} want more), value {_cell(game['value'])}:", ""]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += ["", "\u00b1: half of the 95 % interval. weight: that of a Nash equilibrium."]
    return "\n".join([*lines, "loss: to the best response in the table, beyond the value of the game."])


def _cell(summed: Mapping[str, Any]) -> str:
    """Return a mean with half the length of its interval."""
    interval = summed["ci95"]
    return f"{summed['mean']:.3f}" + (f" \u00b1{(interval[1] - interval[0]) / 2:.3f}" if interval else "")


def save_matrix(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw the matrix of each measure, sensors in rows and targets in columns, with the weights of the equilibrium."""
    rows, columns = np.shape(evaluation["transport"]["matrix"])
    figure = new_figure((5.0 + 1.6 * columns, 2.2 + 0.5 * rows), title(evaluation))
    for axis, (measure, sign) in zip(figure.subplots(1, len(MEASURES)), MEASURES.items(), strict=True):
        game = evaluation[measure]
        means = np.mean(game["per_episode"], -1)
        image = axis.imshow(means, cmap="Reds" if sign > 0 else "Blues", aspect="auto")
        for i, j in np.ndindex(means.shape):
            colour = "white" if image.norm(means[i, j]) > 0.55 else "#333333"
            axis.text(j, i, f"{means[i, j]:.3f}", ha="center", va="center", fontsize=8, color=colour)
        sensors, targets = (
            [f"{label_of(name, {})}\n{one['weight']:.2f}" for name, one in game[team].items()]
            for team in ("sensors", "targets")
        )
        axis.set_xticks(range(columns), targets, fontsize=8, rotation=30, ha="right")
        axis.set_yticks(range(rows), sensors, fontsize=8)
        axis.set_title(f"{measure}, value {game['value']['mean']:.3f}", fontsize=10)
    write_figure(path, figure)
