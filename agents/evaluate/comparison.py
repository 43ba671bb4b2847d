"""Comparison of agents on new episodes: metrics of every episode, intervals, tables, figures."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.evaluate.episodes import Record, fitted, parts, play
from hitmac.agents.evaluate.figures import save_bars, save_heat_maps, save_over_time, save_pareto
from hitmac.agents.evaluate.film import released_reward
from hitmac.agents.evaluate.intervals import probability_of_improvement, summary
from hitmac.agents.evaluate.references import KINDS, REFERENCES, references_of
from hitmac.agents.evaluate.tables import markdown
from hitmac.agents.evaluate.trainings import check_runs, check_seeds, trainings, was_trained
from hitmac.agents.policy import Policy
from hitmac.agents.provenance import provenance
from hitmac.agents.registry import Agent, load_agent
from hitmac.envs.files import write_text
from hitmac.envs.load import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import SUB_STEPS

METRICS = ("coverage", "decision_reward", "rotation", "average_gain", "least_covered")
SCENES_AT_ONCE = 256


def evaluate(
    agents: Sequence[Agent | Policy | str | Path] | Agent | Policy | str | Path,
    scenario: Scenario | str | Path = "hit-mac",
    *,
    episodes: int = 200,
    seed: int = 0,
    max_episode_steps: int = SUB_STEPS,
    references: bool = False,
    num_threads: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate every agent on the same whole episodes, with its best actions.

    The metrics of an episode are:

    - ``coverage``: share of the present targets that are seen, mean over all sub-steps;
    - ``decision_reward``: HiT-MAC's reward, the coverage, or -0.1 for a sub-step in which no sensor sees a target
      assigned to it; for an agent without assignments, all targets are assigned to all sensors;
    - ``rotation``: share of (sensor, sub-step) in which a sensor turned;
    - ``average_gain``: coverage per rotation, which is HiT-MAC's AG = n * sum of rewards / sum of turning sensors
      with the coverage as the reward; None if no sensor ever turned;
    - ``least_covered``: share of its time for which the least covered target was covered.

    Args:
        agents: the agents to compare, or a single agent, each as accepted by :func:`hitmac.agents.load_agent`:
            a name, a directory, an object with ``predict``, or an :class:`Agent`. Agents of the same name are trainings
            of one agent with different seeds.
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        episodes: E, number of episodes, 1 or more; episode k has the seed ``seed + k``.
        seed: first seed; the seeds must not overlap with the training seeds of an agent.
        max_episode_steps: sub-steps of an episode; 1 or more; at most what the scenario allows, and the shortest of
            its recorded tracks.
        references: also evaluate those of :func:`hitmac.agents.evaluate.references.references_of`.
        num_threads: threads of the simulator.
        progress: show a progress bar.

    Returns:
        ``{"scenario", "episodes", "seeds": [first, last], "provenance", "agents": {name: result}}``. A result holds

        - every metric, as returned by :func:`hitmac.agents.evaluate.intervals.summary`;
        - ``"trainings"``: number of trainings, 0 for an agent that was not trained;
        - ``"interval"``: source of variation of the intervals, ``"episodes and trainings"``, or with at most one
          training ``"episodes"``;
        - ``"runs"``: names of the trainings;
        - ``"per_episode"``: values of every metric for all episodes, run after run;
        - ``"over_time"``: coverage in equal parts of the episodes;
        - ``"inference_ms"``: time of the decisions, in batches, milliseconds per scene and sub-step;
        - ``"improvement"``: probability that the first agent covers more, with its interval; None for the first agent.

        The result of a reference also holds ``"reference"``, its kind. ``"provenance"`` is that of
        :func:`hitmac.agents.provenance.provenance`. Except for it and the time, equal arguments give equal results.

    Raises:
        ValueError: no agent, no episode, seeds that an agent was trained on, a run given twice, several agents of one
            name that were not trained, or a scenario that has no references.
        TypeError: an entry of `agents` is not an agent.
    """
    episodes = positive("episodes", episodes)
    scenario, max_episode_steps = fitted(load_scenario(scenario), positive("max_episode_steps", max_episode_steps))
    seeds = range(seed, seed + episodes)
    if isinstance(agents, Agent | str | Path) or hasattr(agents, "predict"):
        agents = [agents]
    loaded = [load_agent(agent, scenario) for agent in agents]
    if not loaded:
        raise ValueError("agents is empty; give one or more")
    for agent in loaded:
        check_seeds(agent.name, agent.training_seeds, seeds)
    groups: dict[str, list[Agent]] = {}
    for agent in loaded:
        groups.setdefault(agent.name, []).append(agent)
    for group in groups.values():
        check_runs(group)
    results: dict[str, Any] = {}
    scores: dict[str, np.ndarray] = {}
    batches = [seeds[k : k + SCENES_AT_ONCE] for k in range(0, episodes, SCENES_AT_ONCE)]
    total = len(loaded) * max_episode_steps * len(batches)
    with evaluation_bar(total, " sub-steps", progress) as bar:
        for name, group in groups.items():
            bar.set_description(f"evaluating {name}", refresh=False)
            records = [
                [play(agent, scenario, batch, max_episode_steps, num_threads, bar) for batch in batches]
                for agent in group
            ]
            results[name] = _result(records, max_episode_steps, group)
            scores[name] = np.stack([np.concatenate([record.metrics["coverage"] for record in run]) for run in records])
    first = next(iter(groups))
    for name, result in results.items():
        result["improvement"] = None if name == first else probability_of_improvement(scores[first], scores[name])
    for name in references_of(scenario) if references else ():
        results[name] = _reference(name, scenario, seeds, max_episode_steps, progress)
    return evaluation_of(scenario, seeds, results)


def evaluation_of(scenario: Scenario, seeds: range, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation: its scenario, seeds and provenance, with the results of the agents by name."""
    return {
        "scenario": scenario.name,
        "episodes": len(seeds),
        "seeds": [seeds[0], seeds[-1]],
        "provenance": provenance(),
        "agents": results,
    }


def evaluation_bar(total: int, unit: str, progress: bool) -> tqdm:
    """Return the progress bar of an evaluation."""
    interval = 0.2 if sys.stdout.isatty() else 10.0  # rarely in a log file
    return tqdm(total=total, unit=unit, disable=not progress, file=sys.stdout, mininterval=interval)


def _result(records: Sequence[Sequence[Record]], max_episode_steps: int, group: Sequence[Agent]) -> dict[str, Any]:
    """Return the result of an agent from its batches of episodes, those of every run."""
    result: dict[str, Any] = {}
    per_episode = {}
    for metric in METRICS:
        values = np.stack([np.concatenate([record.metrics[metric] for record in run]) for run in records])  # (S, E)
        result[metric] = summary(values)
        per_episode[metric] = [None if np.isnan(value) else value for value in values.ravel().tolist()]
    every = list(itertools.chain(*records))
    episodes = sum(len(record.metrics["coverage"]) for record in every)
    return result | {
        "inference_ms": 1000 * sum(record.seconds for record in every) / (episodes * max_episode_steps),
        "over_time": np.concatenate([record.over_time for record in every]).mean(0).tolist(),
        **trainings(sum(map(was_trained, group))),
        "runs": [agent.run for agent in group if agent.run],
        "per_episode": per_episode,
    }


def _reference(name: str, scenario: Scenario, seeds: range, max_episode_steps: int, progress: bool) -> dict[str, Any]:
    """Compute a reference; return its result."""
    with evaluation_bar(len(seeds), " episodes", progress) as bar:
        bar.set_description(f"reference: {name}", refresh=False)
        found = REFERENCES[name](scenario, seeds, max_episode_steps, bar.update)
    metrics = {"coverage": found.coverage, "rotation": found.rotation}
    part, lengths = parts(max_episode_steps)
    over_time = np.bincount(part, found.sub_step_coverage) / lengths
    return {
        **{metric: summary(values[None]) for metric, values in metrics.items()},
        "reference": KINDS[name],
        "over_time": over_time.tolist(),
        **trainings(0),
        "runs": [],
        "per_episode": {
            metric: [None if np.isnan(value) else value for value in values.tolist()]
            for metric, values in metrics.items()
        },
    }


def save_evaluation(path: str | Path, evaluation: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Write one or several evaluations as JSON, whole or not at all."""
    write_text(path, json.dumps(evaluation, indent=1) + "\n")


def save_pictures(
    folder: str | Path, evaluations: Mapping[tuple[int, int], Mapping[str, Any]], sub_steps: int, note: str = ""
) -> None:
    """Write tables and figures of evaluations, by (n, m), into `folder`, which is created if it does not exist.

    The files are ``evaluation.md``; ``bars.png``, ``pareto.png`` and ``over_time.png`` of the first evaluation; and for
    several sizes ``heat_maps.png``, on the released program's scene with a comparison to that program. The `note` is
    the last paragraph of ``evaluation.md``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    first = next(iter(evaluations.values()))
    paragraphs = [*map(markdown, evaluations.values()), *([note] if note else [])]
    write_text(folder / "evaluation.md", "\n\n".join(paragraphs) + "\n")
    save_bars(folder / "bars.png", first)
    save_pareto(folder / "pareto.png", first)
    save_over_time(folder / "over_time.png", first, sub_steps)
    if len(evaluations) > 1:
        save_heat_maps(folder / "heat_maps.png", evaluations, released_reward(first["scenario"]))
