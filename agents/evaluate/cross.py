"""Cross-play in a duel: every team of sensors against every team of targets, on the same episodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.command_line import provenance
from hitmac.agents.duel import Player
from hitmac.agents.evaluate.compare import SCENES_AT_ONCE
from hitmac.agents.evaluate.figures import label_of, new_figure, write_figure
from hitmac.agents.evaluate.statistics import summary
from hitmac.agents.evaluate.tables import WIDTH, aligned, folded, title
from hitmac.agents.names import load_opponent
from hitmac.agents.policy import one_thread_each
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.validation import positive

MEASURES = {"transport": "targets", "coverage": "sensors"}
"""Measures of a match, and the team that wants more of it."""

WHOLE = 10_001
"""Most steps of an episode of MATE."""

Teams = Sequence[str | Path] | Mapping[str, Any]


@one_thread_each()
def play_match(
    sensors: Player, targets: Player, scenario: Scenario, seeds: Sequence[int], max_episode_steps: int
) -> dict[str, np.ndarray]:
    """Play episodes with these seeds (E,); each ends when all cargoes are delivered.

    Returns:
        ``"transport"`` (E,), the transport rate at the end, and ``"coverage"`` (E,), the mean over the sub-steps.
    """
    simulator = Simulator(scenario, len(seeds), list(seeds))
    plays = starts = np.ones(len(seeds), np.bool_)
    coverage, time = np.zeros((2, len(seeds)))
    for _ in range(max_episode_steps):
        actions = sensors.act(simulator, starts, plays), targets.act(simulator, starts, plays)
        simulator.step(actions[0], plays, target_action=actions[1])
        coverage += np.where(plays, simulator.coverage, 0.0)
        time += plays
        plays, starts = plays & ~simulator.game.done, np.zeros_like(starts)
        if not plays.any():
            break
    return {"transport": simulator.game.transport_rate.copy(), "coverage": coverage / time}


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
        A mapping of ``"scenario"``, ``"episodes"``, ``"seeds"`` (first, last), ``"sub_steps"``, ``"provenance"``, the
        names of the ``"sensors"`` and ``"targets"``, and for each measure, ``"transport"`` and ``"coverage"``, the
        scores of the matches ``"per_episode"`` (R, C, E) and the ``"matrix"`` of their summaries, row by row.

    Raises:
        ValueError: no episode, an unknown name, or a scenario without two teams.
    """
    scenario = load_scenario(scenario)
    if not scenario.is_game:
        raise ValueError(f"scenario {scenario.name!r} is not a game of two teams, such as mate-4v8-9")
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
    games = {
        name: {
            "per_episode": of_one.tolist(),
            "matrix": [[summary(match[None], (0.0, 1.0)) for match in row] for row in of_one],
        }
        for name, of_one in scores.items()
    }
    return about | {"provenance": provenance(), "sensors": [*rows], "targets": [*columns]} | games


def _loaded(team: str, names: Teams, scenario: Scenario) -> dict[str, Player]:
    """Return the players of a team by name."""
    named = names if isinstance(names, Mapping) else {str(name): name for name in names}
    return {name: load_opponent(one, scenario, team) for name, one in named.items()}


def cross_table(evaluation: Mapping[str, Any]) -> str:
    """Return the matrices of :func:`evaluate_cross` as tables for the terminal, targets in columns."""
    letters = {name: chr(ord("A") + j) for j, name in enumerate(evaluation["targets"])}
    lines = [title(evaluation), "", "targets:", *(f"  {letter}  {name}" for name, letter in letters.items())]
    bracketed = False
    for measure, wanted_by in MEASURES.items():
        rows = [["sensors", *letters.values()]]
        for name, cells in zip(evaluation["sensors"], evaluation[measure]["matrix"], strict=True):
            rows.append([folded(name), *map(_cell, cells)])
        if max(map(len, aligned(rows, ruled=False))) > WIDTH:  # without intervals
            rows = [[cell.partition(" (")[0] for cell in row] for row in rows]
        bracketed |= any(" (" in cell for row in rows[1:] for cell in row[1:])
        lines += ["", f"{measure} (the {wanted_by} want more):", "", *aligned(rows, ruled=False)]
    return "\n".join([*lines, "", *(["In brackets: 95 % intervals."] if bracketed else [])]).rstrip()


def _cell(summed: Mapping[str, Any]) -> str:
    """Return a mean with its interval."""
    return f"{summed['mean']:.3f}" + (" ({:.3f} .. {:.3f})".format(*summed["ci95"]) if summed["ci95"] else "")


def save_matrix(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw the matrix of each measure, sensors in rows and targets in columns."""
    sensors, targets = ([label_of(name, {}) for name in evaluation[team]] for team in ("sensors", "targets"))
    figure = new_figure((5.0 + 1.6 * len(targets), 2.2 + 0.5 * len(sensors)), title(evaluation))
    for axis, (measure, wanted_by) in zip(figure.subplots(1, len(MEASURES)), MEASURES.items(), strict=True):
        means = np.mean(evaluation[measure]["per_episode"], -1)
        image = axis.imshow(means, cmap="Reds" if wanted_by == "targets" else "Blues", aspect="auto")
        for i, j in np.ndindex(means.shape):
            colour = "white" if image.norm(means[i, j]) > 0.55 else "#333333"
            axis.text(j, i, f"{means[i, j]:.3f}", ha="center", va="center", fontsize=8, color=colour)
        axis.set_xticks(range(len(targets)), targets, fontsize=8, rotation=30, ha="right")
        axis.set_yticks(range(len(sensors)), sensors, fontsize=8)
        axis.set_title(measure, fontsize=10)
    write_figure(path, figure)
