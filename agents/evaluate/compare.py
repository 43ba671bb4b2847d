"""Comparison of agents on new episodes: metrics of every episode, intervals, tables, figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.command_line import provenance
from hitmac.agents.evaluate.bounds import BOUNDS, bounds_of, compute_bound
from hitmac.agents.evaluate.episodes import fitted, parts, play
from hitmac.agents.evaluate.figures import save_bars, save_heat_maps, save_over_time, save_pareto
from hitmac.agents.evaluate.film import released_reward
from hitmac.agents.evaluate.statistics import probability_of_improvement, summary
from hitmac.agents.evaluate.tables import markdown
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.policy import Policy, digest, has_learned
from hitmac.agents.registry import Agent, load_agent, load_executor
from hitmac.envs.files import write_text
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS, ExecutorTask, flatten_sensors, unflatten_sensors

METRICS = ("coverage", "decision_reward", "rotation", "average_gain", "least_covered")
EXECUTOR_METRICS = ("reward", "rotation", "coverage")
SCENES_AT_ONCE = 256

Executing = LevelPolicy | Policy | str | Path
"""Argument of :func:`hitmac.agents.load_executor`."""


def evaluate(
    agents: Sequence[Agent | Policy | str | Path] | Agent | Policy | str | Path,
    scenario: Scenario | str | Path = "hit-mac",
    *,
    episodes: int = 200,
    seed: int = 0,
    max_episode_steps: int = SUB_STEPS,
    bounds: bool = False,
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
        bounds: also compute the bounds of the coverage, those of :func:`hitmac.agents.evaluate.bounds.bounds_of`.
        num_threads: threads of the simulator.
        progress: show a progress bar.

    Returns:
        ``{"scenario", "episodes", "seeds": [first, last], "provenance", "agents": {name: result}}``. A result holds

        - every metric, as returned by :func:`hitmac.agents.evaluate.statistics.summary`;
        - ``"trainings"``: number of trainings, 0 for an agent that was not trained;
        - ``"interval"``: source of variation of the intervals, ``"episodes and trainings"``, or with at most one
          training ``"episodes"``;
        - ``"runs"``: names of the trainings;
        - ``"per_episode"``: values of every metric for all episodes, run after run;
        - ``"over_time"``: coverage in equal parts of the episodes;
        - ``"inference_ms"``: time of the decisions, in batches, milliseconds per scene and sub-step;
        - ``"improvement"``: probability that the first agent covers more, with its interval; None for the first agent.

        The result of a bound also holds ``"bound"``, its kind. ``"provenance"`` is that of
        :func:`hitmac.agents.command_line.provenance`. Except for it and the time, equal arguments give equal results.

    Raises:
        ValueError: no agent, no episode, seeds that an agent was trained on, a run given twice, several agents of one
            name that were not trained, or a scenario that has no bounds.
        TypeError: an entry of `agents` is not an agent.
    """
    episodes = positive("episodes", episodes)
    scenario, max_episode_steps = fitted(load_scenario(scenario), positive("max_episode_steps", max_episode_steps))
    seeds = range(seed, seed + episodes)
    if isinstance(agents, Agent | str | Path) or hasattr(agents, "predict"):
        agents = [agents]
    groups: dict[str, list[Agent]] = {}
    for agent in [load_agent(agent, scenario) for agent in agents]:
        _check_seeds(agent.name, agent.training_seeds, seeds)
        groups.setdefault(agent.name, []).append(agent)
    if not groups:
        raise ValueError("agents is empty; give one or more")
    for group in groups.values():
        _check_runs(group)
    results: dict[str, Any] = {}
    scores: dict[str, np.ndarray] = {}
    batches = [seeds[k : k + SCENES_AT_ONCE] for k in range(0, episodes, SCENES_AT_ONCE)]
    total = sum(map(len, groups.values())) * max_episode_steps * len(batches)
    with _bar(total, " sub-steps", progress) as bar:
        for name, group in groups.items():
            bar.set_description(f"evaluating {name}", refresh=False)
            runs = [
                [play(agent, scenario, batch, max_episode_steps, num_threads, bar) for batch in batches]
                for agent in group
            ]
            values = {
                metric: np.stack([np.concatenate([record.metrics[metric] for record in run]) for run in runs])
                for metric in METRICS
            }  # (S, E)
            every = [record for run in runs for record in run]
            seconds, scores[name] = sum(record.seconds for record in every), values["coverage"]
            results[name] = _result(values, sum(map(_was_trained, group))) | {
                "inference_ms": 1000 * seconds / (scores[name].size * max_episode_steps),
                "over_time": np.concatenate([record.over_time for record in every]).mean(0).tolist(),
                "runs": [agent.run for agent in group if agent.run],
            }
    first = next(iter(groups))
    for name, result in results.items():
        result["improvement"] = None if name == first else probability_of_improvement(scores[first], scores[name])
    for name in bounds_of(scenario) if bounds else ():
        with _bar(episodes, " episodes", progress) as bar:
            bar.set_description(f"bound: {name}", refresh=False)
            bound = compute_bound(name, scenario, seeds, max_episode_steps, bar.update)
        part, lengths = parts(max_episode_steps)
        results[name] = _result({"coverage": bound.coverage[None], "rotation": bound.rotation[None]}, 0) | {
            "bound": BOUNDS[name][0],
            "over_time": (np.bincount(part, bound.sub_step_coverage) / lengths).tolist(),
            "runs": [],
        }
    return _evaluation(scenario, seeds, results)


def evaluate_executors(
    executors: Mapping[str, Executing | list[Executing]],
    scenario: Scenario | str | Path = "hit-mac-executor",
    *,
    training_seeds: Sequence[tuple[int, int]] = (),
    episodes: int = 200,
    seed: int = 0,
    max_episode_steps: int = DECISIONS_PER_EPISODE,
    goals_every: int = 1,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate executors on the same episodes of ``dsn/Executor-v0``, with their best actions.

    The metrics of an episode are ``reward``, HiT-MAC's executor reward, mean over sensors and steps; ``rotation``, the
    share of (sensor, step) in which a sensor turned; ``coverage``, the share of targets seen.

    Args:
        executors: executors by name, each as accepted by :func:`hitmac.agents.load_executor`; a list under a name is
            several trainings of one executor.
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        training_seeds: first and last seeds to avoid, in addition to the executors' training seeds.
        episodes: E, number of episodes, 1 or more; episode k has the seed ``seed + k``.
        seed: first seed.
        max_episode_steps: steps of an episode.
        goals_every: steps between two choices of goals.
        progress: show a progress bar.

    Returns:
        The results in the form of :func:`hitmac.agents.evaluate.evaluate`, with these metrics.

    Raises:
        ValueError: no executor, no episode, or seeds of a training.
        TypeError: an object that is no executor.
    """
    scenario, episodes = load_scenario(scenario), positive("episodes", episodes)
    if scenario.tracks:
        scenario, max_episode_steps = fitted(scenario, max_episode_steps)
    seeds = range(seed, seed + episodes)
    _check_seeds("an executor", training_seeds, seeds)
    groups = {
        name: [load_executor(one, scenario) for one in (several if isinstance(several, list) else [several])]
        for name, several in executors.items()
    }
    if not groups or not all(groups.values()):
        raise ValueError("executors is empty; give one or more")
    for name, group in groups.items():
        for _, trained_on in group:
            _check_seeds(name, trained_on, seeds)
    results: dict[str, Any] = {}
    with _bar(sum(map(len, groups.values())) * max_episode_steps, " steps", progress) as bar:
        for name, group in groups.items():
            bar.set_description(f"evaluating {name}", refresh=False)
            scores = [_play(level, scenario, seeds, max_episode_steps, goals_every, bar) for level, _ in group]
            values = dict(zip(EXECUTOR_METRICS, np.stack(scores, 1), strict=True))  # (S, E)
            trained = sum(bool(trained_on) or has_learned(level.policy) for level, trained_on in group)
            results[name] = _result(values, trained)
    return _evaluation(scenario, seeds, results)


def _play(
    level: LevelPolicy, scenario: Scenario, seeds: range, max_episode_steps: int, goals_every: int, bar: tqdm
) -> np.ndarray:
    """Run an executor on episodes with these seeds; return the values (metrics, E)."""
    task = ExecutorTask(
        scenario, len(seeds), list(seeds), features=level.features, goals_every=goals_every,
        padding=level.padding, row_id=level.row_id,
    )  # fmt: skip
    sums = np.zeros((len(EXECUTOR_METRICS), len(seeds)))
    state = level.start_sensors(seeds, scenario.num_sensors)
    start = np.ones(len(seeds) * scenario.num_sensors, np.bool_)
    for _ in range(max_episode_steps):
        rows = flatten_sensors(task.observe())
        action, state = level.predict(rows, state, start, deterministic=True)
        start = np.zeros_like(start)
        reward = task.step(unflatten_sensors(action, scenario.num_sensors, len(scenario.decisions)))
        sums += reward, task.simulator.rotation, task.simulator.coverage
        bar.update()
    return sums / max_episode_steps


def _check_seeds(name: str, trained_on: Sequence[tuple[int, int]], seeds: range) -> None:
    """Raise ValueError if evaluation seeds overlap with training seeds, given as pairs of first and last seed."""
    for first, last in trained_on:
        if first <= seeds[-1] and seeds[0] <= last:
            raise ValueError(
                f"evaluation seeds {seeds[0]} to {seeds[-1]} overlap with the seeds {first} to {last} that {name} was "
                "trained on; choose others"
            )


def _check_runs(group: Sequence[Agent]) -> None:
    """Raise ValueError if agents of one name are not different trainings."""
    if len(group) == 1:
        return
    name = group[0].name
    if untrained := [agent for agent in group if not _was_trained(agent)]:
        raise ValueError(
            f"{len(group)} agents are named {name}, and {len(untrained)} of them were not trained, so they are not "
            "trainings of one agent; leave out duplicates, or give each its own name"
        )
    seen: dict[str, Agent] = {}
    for agent in group:
        same = seen.setdefault(digest(agent.policy), agent)
        if same is not agent:
            which = f"{same.run or name} and {agent.run or name}"
            raise ValueError(f"two trainings of {name}, {which}, are the same run; leave one out")


def _was_trained(agent: Agent) -> bool:
    return agent.trained or bool(agent.training_seeds)


def _result(values: Mapping[str, np.ndarray], trained: int) -> dict[str, Any]:
    """Return the result of an agent with the values (S, E) of every metric, of which `trained` runs are trainings."""
    every = {metric: of_one.ravel().tolist() for metric, of_one in values.items()}
    return {metric: summary(of_one) for metric, of_one in values.items()} | {
        "trainings": trained,
        "interval": "episodes and trainings" if trained > 1 else "episodes",
        "per_episode": {metric: [None if np.isnan(x) else x for x in of_one] for metric, of_one in every.items()},
    }


def _evaluation(scenario: Scenario, seeds: range, results: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "scenario": scenario.name,
        "episodes": len(seeds),
        "seeds": [seeds[0], seeds[-1]],
        "provenance": provenance(),
        "agents": results,
    }


def _bar(total: int, unit: str, progress: bool) -> tqdm:
    interval = 0.2 if sys.stdout.isatty() else 10.0  # rarely in a log file
    return tqdm(total=total, unit=unit, disable=not progress, file=sys.stdout, mininterval=interval)


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
