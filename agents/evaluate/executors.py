"""Comparison of executors alone, on HiT-MAC's executor task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.custom import has_learned
from hitmac.agents.evaluate.comparison import evaluation_bar, evaluation_of
from hitmac.agents.evaluate.episodes import fitted
from hitmac.agents.evaluate.intervals import summary
from hitmac.agents.evaluate.trainings import check_seeds, trainings
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.policy import Policy
from hitmac.agents.registry import load_executor
from hitmac.envs.assigned_observation import flatten_sensors, unflatten_sensors
from hitmac.envs.load import load_scenario
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import DECISIONS_PER_EPISODE, ExecutorTask

Executing = LevelPolicy | Policy | str | Path
"""Argument of :func:`hitmac.agents.load_executor`."""

METRICS = ("reward", "rotation", "coverage")


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
            of_metric = dict(zip(METRICS, scores, strict=True))
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
    sums = np.zeros((len(METRICS), len(seeds)))
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
