"""Comparison of agents on the same new episodes: their metrics, with intervals."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.command_line import provenance
from hitmac.agents.evaluate.bounds import BOUNDS, bounds_of, compute_bound
from hitmac.agents.evaluate.statistics import probability_of_improvement, summary
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.policy import Memoryless, Policy, digest, has_learned, one_thread_each, started
from hitmac.agents.registry import Agent, load_agent, load_executor
from hitmac.envs.files import write_text
from hitmac.envs.recordings import shortest_recording
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS, CoverageTask, ExecutorTask
from hitmac.envs.tasks.base import UNSEEN_PENALTY, flatten_sensors, unflatten_sensors

SCENES_AT_ONCE = 256
MOMENTS = 101
"""Number of equal parts of an episode in which the coverage over time is averaged."""

Groups = Mapping[str, Sequence[Agent]]
"""Agents by name; several of one name are trainings of one agent."""


class Episodes:
    """Batch of B episodes with these seeds, played together with an agent's best actions.

    The scenario is that of :func:`fitted`. After each sub-step, `task.simulator` has state, coverage and rotation,
    `observation` is the last input of the policy, `state` its state, and `seconds` the time of all decisions.
    """

    def __init__(self, agent: Agent, scenario: Scenario, seeds: Sequence[int]) -> None:
        self.agent = agent
        self.task = CoverageTask(scenario, len(seeds), list(seeds), features=agent.features, **agent.nearness)
        self.observation: dict[str, np.ndarray] = {}
        self.state = started(agent.policy, seeds)
        self.sub_step, self.seconds = 0, 0.0

    def steps(self, number: int) -> Iterator[int]:
        """Play `number` sub-steps; yield the number of sub-steps so far after each."""
        for _ in range(number):
            self.observation = self.task.observe()
            starts = np.full(self.task.num_envs, self.sub_step == 0)
            began = time.perf_counter()
            action, self.state = self.agent.policy.predict(self.observation, self.state, starts, deterministic=True)
            self.seconds += time.perf_counter() - began
            self.task.step(action)
            self.sub_step += 1
            yield self.sub_step

    @property
    def assigned(self) -> np.ndarray | None:
        """(B, n, m) bool, the current assignment; None for an agent without assignments."""
        policy = self.agent.policy.policy if isinstance(self.agent.policy, Memoryless) else self.agent.policy
        return self.state[0] if self.state is not None and isinstance(policy, HierarchicalAgent) else None


def evaluate(
    agents: Sequence[Agent | Policy | str | Path] | Agent | Policy | str | Path,
    scenario: Scenario | str | Path = "hit-mac",
    *,
    episodes: int = 200,
    seed: int = 0,
    max_episode_steps: int = SUB_STEPS,
    bounds: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate every agent on the same whole episodes, with its best actions.

    The metrics of an episode are:

    - ``coverage``: share of the present targets that are seen, mean over all sub-steps;
    - ``decision_reward``: HiT-MAC's reward, mean over all sub-steps: the coverage, or -0.1 if no sensor sees a target
      assigned to it; without assignments, all targets are assigned to all sensors;
    - ``rotation``: share of (sensor, sub-step) with a turn;
    - ``average_gain``: coverage / rotation, HiT-MAC's AG = n * sum of rewards / number of turns, with the coverage as
      the reward; None without any turn;
    - ``least_covered``: share of its time for which the least covered target is covered.

    Args:
        agents: agents to compare, or a single agent, each as accepted by :func:`hitmac.agents.load_agent`. Agents of
            the same name are trainings of one agent.
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        episodes: E, number of episodes, 1 or more; episode k has the seed ``seed + k``.
        seed: first seed; the seeds must not overlap with the training seeds of an agent.
        max_episode_steps: T, sub-steps of an episode, 1 or more, limited by the scenario and its recorded tracks.
        bounds: also compute the bounds of the coverage; see :func:`hitmac.agents.evaluate.bounds.bounds_of`.
        progress: show a progress bar.

    Returns:
        ``{"scenario", "sub_steps", "episodes", "seeds": [first, last], "provenance", "agents": {name: result}}``.
        A result holds

        - every metric, as returned by :func:`hitmac.agents.evaluate.statistics.summary`;
        - ``"trainings"``: number of trainings, 0 for an untrained agent;
        - ``"interval"``: ``"episodes and trainings"`` with several trainings, otherwise ``"episodes"``;
        - ``"runs"``: names of the trainings; ``"per_episode"``: values of every metric, run after run;
        - ``"over_time"``: coverage in equal parts of the episodes;
        - ``"inference_ms"``: time of the decisions, in batches, milliseconds per scene and sub-step;
        - ``"improvement"``: probability that the first agent covers more, with its interval; None for the first agent.

        The result of a bound also holds ``"bound"``, its kind. ``"provenance"`` is that of
        :func:`hitmac.agents.command_line.provenance`. Except for it and the time, equal arguments give equal results.

    Raises:
        ValueError: no agent or episode, training seeds of an agent, a run given twice, several untrained agents of one
            name, or a scenario without bounds.
        TypeError: an entry of `agents` is not an agent.
    """
    episodes = positive("episodes", episodes)
    scenario, sub_steps = fitted(load_scenario(scenario), positive("max_episode_steps", max_episode_steps))
    seeds = range(seed, seed + episodes)
    several = [agents] if isinstance(agents, Agent | str | Path) or hasattr(agents, "predict") else agents
    groups: dict[str, list[Agent]] = {}
    for agent in [load_agent(one, scenario) for one in several]:
        groups.setdefault(agent.name, []).append(agent)
    _check("agents", groups, seeds)
    play_batch = partial(play, scenario=scenario, sub_steps=sub_steps)
    results: dict[str, Any] = {}
    scores: dict[str, np.ndarray] = {}
    for name, values in _played(groups, seeds, sub_steps, progress, play_batch):
        scores[name], seconds, over_time = values["coverage"], values.pop("seconds"), values.pop("over_time")
        results[name] = _result(values, groups[name]) | {
            "inference_ms": 1000 * float(seconds.sum()) / (scores[name].size * sub_steps),
            "over_time": over_time.reshape(-1, over_time.shape[-1]).mean(0).tolist(),
            "runs": [agent.run for agent in groups[name] if agent.run],
        }
    first = next(iter(groups))
    for name, result in results.items():
        result["improvement"] = None if name == first else probability_of_improvement(scores[first], scores[name])
    for name in bounds_of(scenario) if bounds else ():
        with _bar(f"bound: {name}", episodes, " episodes", progress) as bar:
            coverage, rotation = compute_bound(name, scenario, seeds, sub_steps, bar.update)
        part, lengths = _parts(sub_steps)
        results[name] = _result({"coverage": coverage.mean(-1)[None], "rotation": rotation[None]}) | {
            "bound": BOUNDS[name][0],
            "over_time": (np.bincount(part, coverage.mean(0)) / lengths).tolist(),
            "runs": [],
        }
    return _evaluation(scenario, seeds, sub_steps, results)


def evaluate_executors(
    executors: Mapping[str, Any],
    scenario: Scenario | str | Path = "hit-mac-executor",
    *,
    episodes: int = 200,
    seed: int = 0,
    max_episode_steps: int = DECISIONS_PER_EPISODE,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate executors on the same episodes of ``dsn/Executor-v0``, with their best actions.

    The metrics of an episode are ``reward``, HiT-MAC's executor reward, mean over sensors and steps; ``rotation``, the
    share of (sensor, step) with a turn; ``coverage``, the share of targets seen.

    `executors` maps names to executors, each as accepted by :func:`hitmac.agents.load_executor`, or to lists of
    trainings of one executor. Goals change at every step. The other arguments, results and errors are those of
    :func:`evaluate`.
    """
    scenario, episodes = load_scenario(scenario), positive("episodes", episodes)
    if scenario.tracks:
        scenario, max_episode_steps = fitted(scenario, max_episode_steps)
    seeds = range(seed, seed + episodes)
    groups: dict[str, list[Agent]] = {}
    for name, several in executors.items():
        levels = [load_executor(one, scenario) for one in (several if isinstance(several, list) else [several])]
        groups[name] = [
            Agent(name, level, level.features, level.training_seeds, trained=has_learned(level.policy))
            for level in levels
        ]
    _check("executors", groups, seeds)
    play_batch = partial(_play_executor, scenario=scenario, steps=max_episode_steps)
    played = _played(groups, seeds, max_episode_steps, progress, play_batch)
    results = {name: _result(values, groups[name]) for name, values in played}
    return _evaluation(scenario, seeds, max_episode_steps, results)


def fitted(scenario: Scenario, sub_steps: int) -> tuple[Scenario, int]:
    """Return the scenario and the length of its whole episodes, `sub_steps` or fewer in shorter recordings."""
    sub_steps = scenario.sub_steps_of(sub_steps)
    if not scenario.tracks:
        return scenario, sub_steps
    sub_steps = min(sub_steps, shortest_recording(scenario))
    return scenario.replace(episode_steps=sub_steps), sub_steps


def save_evaluation(path: str | Path, evaluation: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Write one or several evaluations as JSON, whole or not at all."""
    write_text(path, json.dumps(evaluation, indent=1) + "\n")


def _played(
    groups: Groups, seeds: range, steps: int, progress: bool, play_batch: Callable[..., dict[str, np.ndarray]]
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Play the episodes; yield the name of each group and its values by name, (S, E, ...)."""
    batches = [seeds[k : k + SCENES_AT_ONCE] for k in range(0, len(seeds), SCENES_AT_ONCE)]
    with _bar("", sum(map(len, groups.values())) * steps * len(batches), " sub-steps", progress) as bar:
        for name, group in groups.items():
            bar.set_description(f"evaluating {name}", refresh=False)
            runs = [[play_batch(agent, batch, bar) for batch in batches] for agent in group]
            parts = {one: [np.concatenate([each[one] for each in run]) for run in runs] for one in runs[0][0]}
            yield name, {one: np.stack(of_runs) for one, of_runs in parts.items()}


@one_thread_each()
def play(agent: Agent, seeds: range, bar: tqdm, scenario: Scenario, sub_steps: int) -> dict[str, np.ndarray]:
    """Play E episodes; return the metrics (E,), NaN for no value, the coverage over time (E, parts) and the seconds."""
    scenes = len(seeds)
    episodes = Episodes(agent, scenario, seeds)
    simulator = episodes.task.simulator
    live = simulator.state
    coverage, rotation, reward = np.zeros(scenes), np.zeros(scenes), np.zeros(scenes)
    covered, present = np.zeros(live.covered.shape), np.zeros(live.covered.shape)
    part, lengths = _parts(sub_steps)
    over_time = np.zeros((scenes, len(lengths)))
    for step in episodes.steps(sub_steps):
        now, assigned = simulator.coverage, episodes.assigned
        coverage += now
        rotation += simulator.rotation
        seen = live.covered.any(1) if assigned is None else (live.visible & assigned).any((1, 2))
        reward += np.where(seen, now, UNSEEN_PENALTY)
        covered += live.covered
        present += live.present
        over_time[:, part[step - 1]] += now
        bar.update()
    share = np.divide(covered, present, out=np.full(covered.shape, np.inf), where=present > 0)
    least = share.min(-1)
    return {
        "coverage": coverage / sub_steps,
        "decision_reward": reward / sub_steps,
        "rotation": rotation / sub_steps,
        "average_gain": np.divide(coverage, rotation, out=np.full(scenes, np.nan), where=rotation > 0),
        "least_covered": np.where(np.isfinite(least), least, np.nan),
        "over_time": over_time / lengths,
        "seconds": np.array([episodes.seconds]),
    }


@one_thread_each()
def _play_executor(agent: Agent, seeds: range, bar: tqdm, scenario: Scenario, steps: int) -> dict[str, np.ndarray]:
    """Play E episodes of an executor; return the metrics (E,)."""
    level = agent.policy
    assert isinstance(level, LevelPolicy)
    options: dict[str, Any] = {"features": level.features, "padding": level.padding, "row_id": level.row_id}
    task = ExecutorTask(scenario, len(seeds), list(seeds), goals_every=1, **options)
    sums = np.zeros((3, len(seeds)))
    state = level.start_sensors(seeds, scenario.num_sensors)
    start = np.ones(len(seeds) * scenario.num_sensors, np.bool_)
    for _ in range(steps):
        action, state = level.predict(flatten_sensors(task.observe()), state, start, deterministic=True)
        start = np.zeros_like(start)
        reward = task.step(unflatten_sensors(action, scenario.num_sensors, len(scenario.decisions)))
        sums += reward, task.simulator.rotation, task.simulator.coverage
        bar.update()
    return dict(zip(("reward", "rotation", "coverage"), sums / steps, strict=True))


def _parts(sub_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of an episode of each sub-step (T,), and the lengths of the parts (parts,)."""
    part = np.arange(sub_steps) * min(MOMENTS, sub_steps) // sub_steps
    return part, np.bincount(part)


def _check(what: str, groups: Groups, seeds: range) -> None:
    """Raise ValueError without agents, for training seeds among `seeds`, or for equal names of untrained agents."""
    if not groups or not all(groups.values()):
        raise ValueError(f"{what} is empty; give one or more")
    for name, group in groups.items():
        for first, last in (pair for agent in group for pair in agent.training_seeds):
            if first <= seeds[-1] and seeds[0] <= last:
                raise ValueError(
                    f"evaluation seeds {seeds[0]} to {seeds[-1]} overlap with the seeds {first} to {last} that {name} "
                    "was trained on; choose others"
                )
        if len(group) > 1 and (untrained := len(group) - _trainings(group)):
            raise ValueError(
                f"{len(group)} agents are named {name}, and {untrained} of them were not trained, so they are not "
                "trainings of one agent; leave out duplicates, or give each its own name"
            )
        seen: dict[str, Agent] = {}
        for agent in group if len(group) > 1 else ():
            same = seen.setdefault(digest(agent.policy), agent)
            if same is not agent:
                which = f"{same.run or name} and {agent.run or name}"
                raise ValueError(f"two trainings of {name}, {which}, are the same run; leave one out")


def _trainings(group: Sequence[Agent]) -> int:
    return sum(agent.trained or bool(agent.training_seeds) for agent in group)


def _result(values: Mapping[str, np.ndarray], group: Sequence[Agent] = ()) -> dict[str, Any]:
    """Return the result of a group of agents with the values (S, E) of every metric."""
    trained = _trainings(group)
    return {metric: summary(of_one) for metric, of_one in values.items()} | {
        "trainings": trained,
        "interval": "episodes and trainings" if trained > 1 else "episodes",
        "per_episode": {
            metric: [None if np.isnan(x) else x for x in of_one.ravel().tolist()] for metric, of_one in values.items()
        },
    }


def _evaluation(scenario: Scenario, seeds: range, sub_steps: int, results: Mapping[str, Any]) -> dict[str, Any]:
    about = {"scenario": scenario.name, "sub_steps": sub_steps, "episodes": len(seeds), "seeds": [seeds[0], seeds[-1]]}
    return about | {"provenance": provenance(), "agents": results}


def _bar(about: str, total: int, unit: str, progress: bool) -> tqdm:
    interval = 0.2 if sys.stdout.isatty() else 10.0  # rarely in a log file
    return tqdm(desc=about, total=total, unit=unit, disable=not progress, file=sys.stdout, mininterval=interval)
