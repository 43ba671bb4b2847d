"""Comparison of agents on new episodes: metrics of every episode, intervals, tables, figures."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.command_line import provenance
from hitmac.agents.evaluate.bounds import KINDS, REFERENCES, references_of
from hitmac.agents.evaluate.episodes import Record, fitted, parts, play
from hitmac.agents.evaluate.figures import save_bars, save_heat_maps, save_over_time, save_pareto
from hitmac.agents.evaluate.film import released_reward
from hitmac.agents.evaluate.statistics import probability_of_improvement, summary
from hitmac.agents.evaluate.tables import markdown
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned.checkpoint import checked_device, trainings_in, variations_in
from hitmac.agents.policy import Policy, digest, has_learned
from hitmac.agents.registry import SCRIPTED, Agent, each_value, load_agent, load_executor, split_group, with_options
from hitmac.envs.files import write_text
from hitmac.envs.observation import flatten_sensors, unflatten_sensors
from hitmac.envs.presets import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS, ExecutorTask


def scenarios(names: str, sizes: str) -> list[Scenario]:
    """Load the comma-separated scenarios `names`, each in all `sizes`, or without any in its own size."""
    chosen = []
    for name in names.split(","):
        scenario = load_scenario(name)
        for size in sizes.split(",") if sizes else [""]:
            numbers = size.split("x")
            if size and (len(numbers) != 2 or not all(number.isdecimal() for number in numbers)):
                raise ValueError(f"sizes has {size!r}; it must have the form 4x5: sensors x targets")
            chosen.append(
                scenario.replace(
                    name=f"{scenario.name}-{size}", num_sensors=int(numbers[0]), num_targets=int(numbers[1])
                )
                if size
                else scenario
            )
    given = [name_and_size(scenario) for scenario in chosen]
    if twice := next((one for one in given if given.count(one) > 1), None):
        raise ValueError(
            "two scenarios are named {} with {} sensors and {} targets; give each its own name".format(*twice)
        )
    return chosen


def name_and_size(scenario: Scenario) -> tuple[str, int, int]:
    """Return a scenario's name without its size, as a valid folder name, then n and m."""
    name = re.sub(r"\W+", "-", re.sub(r"-\d+x\d+$", "", scenario.name)).strip("-")
    return name or "scene", scenario.num_sensors, scenario.num_targets


def named_agents(names: str, scenario: Scenario, device: str = "cpu") -> list[Agent]:
    """Load the comma-separated agents `names`, networks on a device; the agents of a group have the group's name."""
    agents, given, optional = [], set(), with_options(SCRIPTED)
    for name in (one for several in filter(None, names.split(",")) for one in _each(several, optional)):
        group, members = split_group(name, optional)
        joined = members.split("+")
        if len(joined) > 1 and not group:
            raise ValueError(f"{name!r} joins several trainings without a name; write NAME={name}")
        runs = [run for one in joined for run in each_training(one)]
        group = group or (name if runs != joined else "")
        for run in runs:
            if (group or run, run) in given:
                raise ValueError(f"agents has {run} twice{f' in {group}' if group else ''}; leave one out")
            given.add((group or run, run))
            with checked_device(device):
                agent = load_agent(run, scenario)
            agents.append(agent._replace(name=group, run=run) if group else agent)
    if not agents:
        raise ValueError(f"agents is {names!r}; give one or more")
    return agents


def _each(name: str, optional: re.Pattern[str]) -> list[str]:
    """Return the name of an agent for each value of an option with several values, or for each variation of a group."""
    if optional.fullmatch(name):
        return each_value(name)
    return [str(path) for path in variations_in(name)] or [name]


def each_training(name: str) -> list[str]:
    """Return the names of an agent's trainings: of several seeds in one directory, each; else the name alone."""
    left, colon, right = name.partition(":")
    for folder, before, after in ((name, "", ""), (right, left + colon, ""), (left, "", colon + right)):
        if folder and (runs := trainings_in(folder)):
            return [f"{before}{run}{after}" for run in runs]
    return [name]


def check_seeds(name: str, trained_on: Sequence[tuple[int, int]], seeds: range) -> None:
    """Raise ValueError if evaluation seeds overlap with training seeds, given as pairs of first and last seed."""
    for first, last in trained_on:
        if first <= seeds[-1] and seeds[0] <= last:
            raise ValueError(
                f"evaluation seeds {seeds[0]} to {seeds[-1]} overlap with the seeds {first} to {last} that {name} was "
                "trained on; choose others"
            )


def check_runs(group: Sequence[Agent]) -> None:
    """Raise ValueError if agents of one name are not different trainings."""
    if len(group) == 1:
        return
    name = group[0].name
    if untrained := [agent for agent in group if not was_trained(agent)]:
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


def was_trained(agent: Agent) -> bool:
    """Return True if an agent was trained."""
    return agent.trained or bool(agent.training_seeds)


def trainings(number: int) -> dict[str, Any]:
    """Return the number of trainings of a result, and the source of variation of its intervals."""
    return {"trainings": number, "interval": "episodes and trainings" if number > 1 else "episodes"}


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
        references: also evaluate those of :func:`hitmac.agents.evaluate.bounds.references_of`.
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

        The result of a reference also holds ``"reference"``, its kind. ``"provenance"`` is that of
        :func:`hitmac.agents.command_line.provenance`. Except for it and the time, equal arguments give equal results.

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


Executing = LevelPolicy | Policy | str | Path
"""Argument of :func:`hitmac.agents.load_executor`."""

EXECUTOR_METRICS = ("reward", "rotation", "coverage")


def evaluate_executors(
    executors: Mapping[str, Executing | list[Executing]] | Sequence[Executing] | Executing,
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
        executors: one executor or several, each as accepted by :func:`hitmac.agents.load_executor`; a mapping
            gives them names, and a list under a name is several trainings of one executor.
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
        ValueError: no executor, two of one name, no episode, or seeds of a training.
        TypeError: an object that is no executor.
    """
    scenario, episodes = load_scenario(scenario), positive("episodes", episodes)
    if scenario.tracks:
        scenario, max_episode_steps = fitted(scenario, max_episode_steps)
    seeds = range(seed, seed + episodes)
    check_seeds("an executor", tuple(training_seeds), seeds)
    groups = {name: [load_executor(one, scenario) for one in several] for name, several in _by_name(executors).items()}
    for name, group in groups.items():
        for _, trained_on in group:
            check_seeds(name, trained_on, seeds)
    results: dict[str, Any] = {}
    with evaluation_bar(sum(map(len, groups.values())) * max_episode_steps, " steps", progress) as bar:
        for name, group in groups.items():
            bar.set_description(f"evaluating {name}", refresh=False)
            scores = np.stack(
                [_play(level, scenario, seeds, max_episode_steps, goals_every, bar) for level, _ in group], 1
            )  # (metrics, S, E)
            of_metric = dict(zip(EXECUTOR_METRICS, scores, strict=True))
            results[name] = {metric: summary(values) for metric, values in of_metric.items()}
            results[name]["per_episode"] = {metric: values.ravel().tolist() for metric, values in of_metric.items()}
            results[name] |= trainings(
                sum(bool(trained_on) or has_learned(level.policy) for level, trained_on in group)
            )
    return evaluation_of(scenario, seeds, results)


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


def _by_name(
    executors: Mapping[str, Executing | list[Executing]] | Sequence[Executing] | Executing,
) -> dict[str, list[Executing]]:
    """Return the executors of every name: what they are given as, or the class of an object."""
    named: dict[str, list[Executing]] = {}
    if isinstance(executors, Mapping):
        named = {name: one if isinstance(one, list) else [one] for name, one in executors.items()}
    else:
        alone = isinstance(executors, str | Path) or hasattr(executors, "predict")
        several: Any = [executors] if alone else executors
        for one in several:
            policy = one.policy if isinstance(one, LevelPolicy) else one
            name = str(one) if isinstance(one, str | Path) else type(policy).__name__
            if name in named:
                raise ValueError(f"executors has {name} twice; leave one out, or give each a name of its own")
            named[name] = [one]
    if not named or not all(named.values()):
        raise ValueError("executors is empty; give one or more")
    return named
