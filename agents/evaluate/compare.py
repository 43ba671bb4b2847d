"""Comparison of agents on the same new episodes: their metrics, with intervals."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hitmac.agents.command_line import provenance
from hitmac.agents.evaluate.bounds import BOUNDS, bounds_of, compute_bound
from hitmac.agents.evaluate.statistics import mean_of, probability_of_improvement, ratio, summary
from hitmac.agents.evaluate.tracking import Tracking
from hitmac.agents.hierarchy import HierarchyState, LevelPolicy
from hitmac.agents.names import load_agent, load_executor
from hitmac.agents.policy import Policy, RuleAgent, digest, has_learned, one_thread_each, pair_of, shares_of, started
from hitmac.agents.registry import Agent
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver
from hitmac.envs.files import write_text
from hitmac.envs.parts.recordings import shortest_recording
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import DECISIONS_PER_EPISODE, SUB_STEPS, CoverageTask, ExecutorTask
from hitmac.envs.tasks.base import UNSEEN_PENALTY, flatten_sensors, unflatten_sensors
from hitmac.envs.validation import positive

SCENES_AT_ONCE = 256
MOMENTS = 101
"""Number of equal parts of an episode in which the coverage over time is averaged."""

SHARE, NOT_NEGATIVE = (0.0, 1.0), (0.0, math.inf)
RANGES = {
    "coverage": SHARE, "decision_reward": (UNSEEN_PENALTY, 1.0), "rotation": SHARE, "least_covered": SHARE,
    "reward": (-1.0 - ExecutorTask.turn_cost, 1.0),
}  # fmt: skip
"""Lowest and highest value of a metric, which its interval does not leave; of all others :data:`NOT_NEGATIVE`."""

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
            if isinstance(self.agent.policy, RuleAgent):
                moving: Any = self.task.simulator
                action = self.agent.policy.act(moving, starts)
            else:
                moving = self.task
                answer = self.agent.policy.predict(self.observation, self.state, starts, deterministic=True)
                action, self.state = pair_of(answer, self.agent.name)
            self.seconds += time.perf_counter() - began
            try:
                moving.step(action)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{self.agent.name}: {error}") from None
            self.sub_step += 1
            yield self.sub_step

    @property
    def assigned(self) -> np.ndarray | None:
        """(B, n, m) bool, the current assignment; None for an agent without assignments."""
        return self.state.assigned if isinstance(self.state, HierarchyState) else None


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

    - ``coverage``: share of the present targets that are covered, by value (:class:`~hitmac.envs.tasks.CoverageTask`),
      mean over the sub-steps with a value; None without any;
    - ``decision_reward``: HiT-MAC's reward, mean over all sub-steps: the coverage, or -0.1 if no sensor sees a target
      assigned to it; without assignments, all targets are assigned to all sensors;
    - ``rotation``: share of (sensor, sub-step) with a turn;
    - ``average_gain``: coverage / rotation, HiT-MAC's AG = n * sum of rewards / number of turns, with the coverage as
      the reward; None without any turn;
    - ``least_covered``: share of its time, by value, for which the least covered target is covered;
    - without identities, for an agent with tracks, means over the sub-steps, and over the sensors if each has its own:
      ``gospa`` of the tracks whose targets are probably within c (see :func:`hitmac.agents.evaluate.tracking.gospa`;
      p is 2, c a tenth of the mean sensing range), the numbers of ``missed`` targets and of ``false`` tracks,
      ``localisation``, the root mean square distance of the other targets to their tracks, and ``switches``, the
      identity switches in the episode.

    Intervals are over episodes. In recordings, whose episodes may overlap, they are over the recordings.

    Args:
        agents: agents to compare, or a single agent, each as accepted by :func:`hitmac.agents.load_agent`. Agents of
            the same name are trainings of one agent.
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        episodes: E, number of episodes, 1 or more; episode k has the seed ``seed + k``.
        seed: first seed; the seeds must not overlap with the training seeds of an agent.
        max_episode_steps: T, sub-steps of an episode, 1 or more, limited by the scenario and its recordings.
        bounds: also compute the bounds of the coverage; see :func:`hitmac.agents.evaluate.bounds.bounds_of`.
        progress: show a progress bar.

    Returns:
        A mapping of ``"scenario"``, ``"sub_steps"``, ``"episodes"``, ``"seeds"`` (first, last), ``"recordings"`` (their
        number, None without any), ``"empty"`` (share of sub-steps without targets), ``"provenance"``, and
        ``"agents"``, a result for each name. A result holds

        - every metric, as returned by :func:`hitmac.agents.evaluate.statistics.summary`;
        - ``"trainings"``: number of trainings, 0 for an untrained agent;
        - ``"interval"``: ``"episodes"`` or ``"recordings"``, with several trainings ``"episodes and trainings"``;
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
    several: Any = [agents] if isinstance(agents, Agent | str | Path) or hasattr(agents, "predict") else agents
    groups: dict[str, list[Agent]] = {}
    for agent in [load_agent(one, scenario) for one in several]:
        groups.setdefault(agent.name, []).append(agent)
    _check("agents", groups, seeds)
    bounding, recording = bounds_of(scenario) if bounds else (), recordings_of(scenario, seeds)
    found = _evaluation(groups, play, scenario, seeds, sub_steps, recording, progress)
    results = found["agents"]
    scores = {name: np.array(result["per_episode"]["coverage"], float) for name, result in results.items()}
    first = next(iter(scores))
    for name, group in groups.items():
        x, y = (scores[one].reshape(-1, episodes) for one in (first, name))
        results[name]["runs"] = [agent.run for agent in group if agent.run]
        results[name]["improvement"] = None if name == first else probability_of_improvement(x, y, recording)
    for name in bounding:
        with _Bar(episodes, " episodes", progress) as bar:
            bar.begin(f"bound: {name}")
            coverage, rotation = compute_bound(name, scenario, seeds, sub_steps, bar.update)
        parts = np.split(coverage, np.flatnonzero(np.diff(_part(sub_steps))) + 1, axis=1)
        over_time = np.stack([mean_of(part, 1) for part in parts], -1)
        values = {"coverage": mean_of(coverage, 1)[None], "rotation": rotation[None]}
        results[name] = _result(values, over_time, recording) | {"bound": BOUNDS[name][0], "runs": []}
    return found


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
    share of (sensor, step) with a turn; ``coverage``, as there.

    `executors` maps names to executors, each as accepted by :func:`hitmac.agents.load_executor`, or to lists of
    trainings of one executor. Goals change at every step. The other arguments, results and errors are those of
    :func:`evaluate`.
    """
    scenario, steps = fitted(load_scenario(scenario), positive("max_episode_steps", max_episode_steps))
    seeds = range(seed, seed + positive("episodes", episodes))
    groups: dict[str, list[Agent]] = {}
    for name, several in executors.items():
        levels = [load_executor(one, scenario) for one in (several if isinstance(several, list) else [several])]
        groups[name] = [
            Agent(name, level, level.features, level.training_seeds, trained=has_learned(level.policy))  # type: ignore
            for level in levels
        ]
    _check("executors", groups, seeds)
    recording = recordings_of(scenario, seeds)
    return _evaluation(groups, _play_executor, scenario, seeds, steps, recording, progress)


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


def _evaluation(
    groups: Groups, play_batch: Callable[..., dict[str, np.ndarray]], scenario: Scenario, seeds: range, steps: int,
    recording: np.ndarray | None, progress: bool,
) -> dict[str, Any]:  # fmt: skip
    """Play the episodes of all groups; return the evaluation, see :func:`evaluate`."""
    batches = [seeds[k : k + SCENES_AT_ONCE] for k in range(0, len(seeds), SCENES_AT_ONCE)]
    results: dict[str, Any] = {}
    with _Bar(sum(map(len, groups.values())) * steps * len(batches), " sub-steps", progress) as bar:
        for name, group in groups.items():
            bar.begin(name)
            runs = [[play_batch(agent, batch, bar, scenario, steps) for batch in batches] for agent in group]
            parts = {one: [np.concatenate([each[one] for each in run]) for run in runs] for one in runs[0][0]}
            values = {one: np.stack(of_runs) for one, of_runs in parts.items()}
            empty, over_time, ms = values.pop("empty"), values.pop("over_time", None), values.pop("inference_ms", None)
            results[name] = _result(values, over_time, recording, group)
            results[name] |= {} if ms is None else {"inference_ms": float(ms.mean())}
    return {
        "scenario": scenario.name,
        "sub_steps": steps,
        "episodes": len(seeds),
        "seeds": [seeds[0], seeds[-1]],
        "recordings": None if recording is None else len(np.unique(recording)),
        "empty": float(empty.mean()),  # the same of all groups
        "provenance": provenance(),
        "agents": results,
    }


@one_thread_each()
def play(agent: Agent, seeds: range, bar: tqdm, scenario: Scenario, sub_steps: int) -> dict[str, np.ndarray]:
    """Play E episodes; return the metrics (E,), NaN for no value, coverage over time (E, parts), and the time."""
    scenes, part = len(seeds), _part(sub_steps)
    episodes = Episodes(agent, scenario, seeds)
    simulator = episodes.task.simulator
    live = simulator.state
    coverage, rotation, reward, played = np.zeros((4, scenes))
    covered, present = np.zeros((2, *live.covered.shape))
    running = np.ones(scenes, np.bool_)  # a game ends when all cargoes have arrived
    over_time, observed = np.zeros((2, scenes, part[-1] + 1))
    tracking = Tracking(scenario, scenes) if hasattr(agent.policy, "estimate") and not scenario.identities else None
    truth = np.where(live.present[..., None], live.target_position, np.nan)
    for step in episodes.steps(sub_steps):
        now, assigned = simulator.observed_coverage, episodes.assigned
        there = ~np.isnan(now) & running
        now = np.where(there, now, 0.0)
        coverage += now
        rotation += simulator.rotation * running
        seen = live.visible.any((1, 2)) if assigned is None else (live.visible & assigned).any((1, 2))
        reward += np.where(seen, now, UNSEEN_PENALTY) * running
        covered += live.covered * live.value * running[:, None]
        present += live.present * live.value * running[:, None]
        played += running
        over_time[:, part[step - 1]] += now
        observed[:, part[step - 1]] += there
        if tracking is not None:
            tracks = agent.policy.estimate(episodes.state, within=tracking.c)  # type: ignore[attr-defined]
            tracking.add(truth, np.where(tracks.label[..., None] > 0, tracks.place, np.nan), tracks.label)
            truth = np.where(live.present[..., None], live.target_position, np.nan)
        if simulator.game:
            running &= ~simulator.game.done
        bar.update()
    time = observed.sum(1)
    return ({} if tracking is None else tracking.metrics()) | {
        "coverage": ratio(coverage, time),
        "decision_reward": reward / played,
        "rotation": rotation / played,
        "average_gain": ratio(coverage, rotation * (time / played)),
        "least_covered": np.fmin.reduce(ratio(covered, present), 1),
        "over_time": ratio(over_time, observed),
        "empty": 1.0 - time / played,
        "inference_ms": np.full(scenes, 1000 * episodes.seconds / (scenes * sub_steps)),
    }


@one_thread_each()
def _play_executor(agent: Agent, seeds: range, bar: tqdm, scenario: Scenario, steps: int) -> dict[str, np.ndarray]:
    """Play E episodes of an executor; return the metrics (E,)."""
    level = agent.policy
    assert isinstance(level, LevelPolicy)
    features: Any = BeliefObserver if level.features == BELIEFS else level.features
    options: dict[str, Any] = {"features": features, "padding": level.padding, "row_id": level.row_id}
    task = ExecutorTask(scenario, len(seeds), list(seeds), goals_every=1, **options)
    sums, time = np.zeros((3, len(seeds))), np.zeros(len(seeds))
    state = level.start_sensors(seeds, scenario.num_sensors)
    start = np.ones(len(seeds) * scenario.num_sensors, np.bool_)
    for _ in range(steps):
        action, state = level.policy.predict(flatten_sensors(task.observe()), state, start, deterministic=True)
        start = np.zeros_like(start)
        action = unflatten_sensors(action, scenario.num_sensors, len(scenario.decisions))
        reward = task.step(shares_of(action, scenario) if scenario.action == "rate" else action)
        now = task.simulator.observed_coverage
        sums += reward, task.simulator.rotation, np.nan_to_num(now)
        time += ~np.isnan(now)
        bar.update()
    reward, rotation = sums[:2] / steps
    return {"reward": reward, "rotation": rotation, "coverage": ratio(sums[2], time), "empty": 1.0 - time / steps}


def _part(sub_steps: int) -> np.ndarray:
    """Return the part of an episode (T,) to which each sub-step belongs."""
    return np.arange(sub_steps) * min(MOMENTS, sub_steps) // sub_steps


def _plain(values: np.ndarray) -> list[float | None]:
    """Return values as a list, None for NaN."""
    return [None if np.isnan(x) else x for x in values.ravel().tolist()]


def recordings_of(scenario: Scenario, seeds: range) -> np.ndarray | None:
    """Return the number (E,) of the recording of each episode; None without recordings."""
    return Simulator(scenario, len(seeds), seeds).recording if scenario.tracks else None


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


def _result(
    values: Mapping[str, np.ndarray], over_time: Any, recording: np.ndarray | None, group: Sequence[Agent] = ()
) -> dict[str, Any]:
    """Return the result of a group of agents: values (S, E) of every metric, coverage (S, E, parts) over time."""
    trained, samples = _trainings(group), "episodes" if recording is None else "recordings"
    result = {
        metric: summary(of_one, RANGES.get(metric, NOT_NEGATIVE), recording) for metric, of_one in values.items()
    } | {
        "trainings": trained,
        "interval": f"{samples} and trainings" if trained > 1 else samples,
        "per_episode": {metric: _plain(of_one) for metric, of_one in values.items()},
    }
    if over_time is not None:
        result["over_time"] = _plain(mean_of(over_time.reshape(-1, over_time.shape[-1]), 0))
    return result


class _Bar(tqdm):
    """Progress bar that says "compiling" until the first step of an agent is done, and does not count that time."""

    def __init__(self, total: int, unit: str, progress: bool) -> None:
        interval = 0.2 if os.isatty(2) else 10.0  # rarely in a log file
        hidden = not progress or sys.stderr is None
        super().__init__(total=total, unit=unit, disable=hidden, mininterval=interval)
        self.name = ""

    def begin(self, name: str) -> None:
        """Begin with the agent of this name."""
        self.name = name
        self.set_description(f"compiling {name}")

    def update(self, n: float | None = 1) -> bool | None:
        """Add finished steps."""
        if self.name:
            self.unpause()
            self.set_description(f"evaluating {self.name}", refresh=False)
            self.name = ""
        return super().update(n)
