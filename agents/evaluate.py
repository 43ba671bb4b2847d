"""Agents on fresh episodes: per-episode records, intervals, a table. Also ``python -m agents.evaluate``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from agents.checkpoint import load_policy
from agents.policy import Policy
from agents.registry import SCRIPTED, scripted_agent
from envs.files import write_text
from envs.scenario import Scenario, load_scenario
from envs.simulator import positive
from envs.tasks import SUB_STEPS, CoverageTask

METRICS = {"coverage": "coverage", "rotation": "rotation", "average_gain": "average gain"}
SCENES_AT_ONCE = 256
_RESAMPLES = 10_000


class Agent(NamedTuple):
    """A policy with what it takes to run it."""

    name: str
    policy: Policy
    features: tuple[str, ...]
    """The observation features that it reads."""
    training_seeds: tuple[int, int] | None = None
    """First and last seed of the scenes that it was trained on; None for one that was not."""


def load_agent(name: str, scenario: Scenario) -> Agent:
    """The agent that `name` names: a scripted one, or the folder of a checkpoint or a run.

    Raises:
        ValueError: an unknown name (the known are listed) or a damaged checkpoint.
    """
    if name in SCRIPTED:
        policy = scripted_agent(name, scenario)
        return Agent(name, policy, policy.features)
    if not Path(name).is_dir():
        raise ValueError(f"unknown agent {name!r}: known are {', '.join(SCRIPTED)}, and folders of checkpoints or runs")
    learned, config = load_policy(name, scenario)
    return Agent(name, learned, config.features, config.training_seeds)


def evaluate(
    agents: Sequence[Agent],
    scenario: Scenario | str | Path = "hit-mac",
    *,
    episodes: int = 200,
    seed: int = 0,
    max_episode_steps: int = SUB_STEPS,
    num_threads: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Run every agent on the same whole episodes, with its best actions.

    Of every episode: ``coverage`` is the mean over all sub-steps of the share of targets that are seen,
    ``rotation`` the share of (sensor, sub-step) in which a sensor turned, ``average_gain`` the coverage per
    rotation, which is HiT-MAC's AG = n * sum of rewards / sum of turning sensors with the coverage as the
    reward (None if no sensor ever turned). Of every metric: mean, standard deviation over the episodes, and
    the 95 % percentile-bootstrap interval of the mean.

    Args:
        agents: what to compare.
        scenario: on which scene.
        episodes: E; scene k has the seed ``seed + k``.
        seed: first seed; with the episodes it must not overlap with the seeds that an agent was trained on.
        max_episode_steps: sub-steps of an episode.
        num_threads: threads of the simulator.
        progress: show a progress bar.

    Returns:
        ``{"scenario", "episodes", "seeds": [first, last], "agents": {name: {metric: {"mean", "std", "ci95"},
        "per_episode": {metric: [...]}}}}``.

    Raises:
        ValueError: no episode, or seeds that an agent was trained on.
    """
    scenario = load_scenario(scenario)
    episodes = positive("episodes", episodes)
    max_episode_steps = positive("max_episode_steps", max_episode_steps)
    last = seed + episodes - 1
    for agent in agents:
        if agent.training_seeds and agent.training_seeds[0] <= last and seed <= agent.training_seeds[1]:
            raise ValueError(
                f"evaluation seeds {seed} to {last} overlap with the seeds {agent.training_seeds[0]} to "
                f"{agent.training_seeds[1]} that {agent.name} was trained on; choose others"
            )
    results = {}
    steps = len(agents) * max_episode_steps * -(-episodes // SCENES_AT_ONCE)
    interval = 0.2 if sys.stdout.isatty() else 10.0  # a log needs no more
    with tqdm(total=steps, unit=" sub-steps", disable=not progress, file=sys.stdout, mininterval=interval) as bar:
        for agent in agents:
            bar.set_description(f"evaluating {agent.name}", refresh=False)
            records = [
                _run(agent, scenario, range(first, min(first + SCENES_AT_ONCE, last + 1)), max_episode_steps, bar)
                for first in range(seed, last + 1, SCENES_AT_ONCE)
            ]
            coverage, rotation = (np.concatenate(parts) for parts in zip(*records, strict=True))
            gain = [c / r if r > 0 else None for c, r in zip(coverage.tolist(), rotation.tolist(), strict=True)]
            results[agent.name] = _summary(
                {"coverage": coverage.tolist(), "rotation": rotation.tolist(), "average_gain": gain}
            )
    return {"scenario": scenario.name, "episodes": episodes, "seeds": [seed, last], "agents": results}


def _run(
    agent: Agent, scenario: Scenario, seeds: range, max_episode_steps: int, bar: tqdm
) -> tuple[np.ndarray, np.ndarray]:
    """Coverage and rotation (E,) of one agent on one batch of episodes."""
    task = CoverageTask(scenario, len(seeds), list(seeds), features=agent.features)
    coverage, rotation = np.zeros(len(seeds)), np.zeros(len(seeds))
    state, start = None, np.ones(len(seeds), np.bool_)
    for _ in range(max_episode_steps):
        action, state = agent.policy.predict(task.observe(), state, start, deterministic=True)
        task.step(action)
        coverage += task.simulator.coverage
        rotation += task.simulator.rotation
        start = np.zeros_like(start)
        bar.update()
    return coverage / max_episode_steps, rotation / max_episode_steps


def _summary(per_episode: dict[str, list[float | None]]) -> dict[str, Any]:
    """Mean, standard deviation and 95 % interval of every metric, and the episodes themselves."""
    summary: dict[str, Any] = {}
    for metric, values in per_episode.items():
        known = np.array([value for value in values if value is not None])
        if len(known) == 0:
            summary[metric] = {"mean": None, "std": None, "ci95": None}
            continue
        # The same resamples for every agent, as they ran on the same episodes.
        picks = np.random.default_rng(0).integers(0, len(known), (_RESAMPLES, len(known)))
        low, high = np.quantile(known[picks].mean(-1), (0.025, 0.975))
        summary[metric] = {"mean": float(known.mean()), "std": float(known.std()), "ci95": [float(low), float(high)]}
    return {**summary, "per_episode": per_episode}


def table(evaluation: dict[str, Any]) -> str:
    """The evaluation as a table for the terminal, best coverage first."""
    rows = [["agent", "coverage", "95 % interval", "rotation", METRICS["average_gain"]]]
    ranked = sorted(evaluation["agents"].items(), key=lambda item: -item[1]["coverage"]["mean"])
    for name, result in ranked:
        coverage, rotation, gain = (result[metric] for metric in METRICS)
        low, high = coverage["ci95"]
        rows.append(
            [
                name,
                f"{coverage['mean']:.3f}",
                f"{low:.3f} .. {high:.3f}",
                f"{rotation['mean']:.3f}",
                "-" if gain["mean"] is None else f"{gain['mean']:.2f}",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    first, last = evaluation["seeds"]
    title = f"{evaluation['scenario']}, {evaluation['episodes']} episodes, seeds {first} to {last}"
    return "\n".join([title, "", lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def save_evaluation(path: str | Path, evaluation: dict[str, Any]) -> None:
    """Write the evaluation as JSON, whole or not at all."""
    write_text(path, json.dumps(evaluation, indent=1) + "\n")


@dataclass(frozen=True)
class Options:
    """Compare agents on the same fresh episodes and print a table."""

    agents: str = "random,still,nearest"
    """Comma-separated: random, still, nearest, and folders of checkpoints or runs."""
    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    episodes: int = 200
    """How many episodes of each agent."""
    seed: int = 0
    """Seed of the first episode; the k-th has seed + k."""
    max_episode_steps: int = SUB_STEPS
    """Length of an episode, sub-steps."""
    json: Path | None = None
    """Write every episode's figures to this file."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    from agents.command_line import parse, stop_on_bad_input

    options = parse(Options, "python -m agents.evaluate", arguments)
    with stop_on_bad_input("python -m agents.evaluate"):
        scenario = load_scenario(options.scenario)
        agents = [load_agent(name, scenario) for name in options.agents.split(",") if name]
        if not agents:
            raise ValueError(f"agents is {options.agents!r}; give one or more")
        torch.manual_seed(0)
        evaluation = evaluate(
            agents,
            scenario,
            episodes=options.episodes,
            seed=options.seed,
            max_episode_steps=options.max_episode_steps,
        )
    print(table(evaluation))
    if options.json:
        save_evaluation(options.json, evaluation)
        print(f"\nevery episode: {options.json}")


if __name__ == "__main__":
    main()
