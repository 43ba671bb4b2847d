"""Command line ``hitmac attention``: what a learned policy attends to, as a picture or a film."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hitmac.agents.attention import AttentionWatch
from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.evaluate.episodes import fitted
from hitmac.agents.playing import Episodes
from hitmac.agents.registry import Agent, load_agent
from hitmac.envs.load import load_scenario
from hitmac.envs.ranges import Count
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario
from hitmac.perception import plots
from hitmac.signals import end_on_signal

PROGRAM = "hitmac attention"
_SIZE = 600  # longer side of the scene, pixels


@dataclass(frozen=True)
class Options:
    """Draw the attention of a learned policy as lines from sensors to targets: hitmac attention pretrained:flat.

    A thicker line is a larger share of the sensor's attention; see hitmac.agents.attention.
    """

    agent: str = "pretrained:flat"
    """Agent, as agents.evaluate takes it. It may stand first, without the name of the option."""
    scenario: str = "hit-mac"
    """Scenario: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run."""
    seed: int = 0
    """Seed of the episode."""
    at: Count = 60
    """Sub-step of the decision; a film shows all up to it."""
    level: str = ""
    """Level of a hierarchy, coordinator or executor; empty: the first that attends."""
    to: Path = Path("attention.png")
    """File of the picture; a name that ends in .gif: a film."""


class Moment(NamedTuple):
    """Scene in which an agent decides, and what it then attends to."""

    weights: np.ndarray  # (n, m)
    sensors: np.ndarray  # (n, 2)
    targets: np.ndarray  # (m, 2)
    picture: np.ndarray  # (height, width, 3)


def moments(agent: Agent, scenario: Scenario, seed: int, sub_steps: int, level: str, size: int) -> Iterator[Moment]:
    """Play an episode; yield the moments of all decisions.

    A level that has not decided in a sub-step attends to what it attended to in its last decision.

    Args:
        agent: the agent.
        scenario: the scenario, of whole episodes.
        seed: seed of the episode.
        sub_steps: length of the episode.
        level: what attends, one of :attr:`hitmac.agents.attention.AttentionWatch.levels`; "": the first.
        size: longer side of the pictures, pixels.

    Raises:
        ValueError: the agent attends to nothing, or has no such level.
    """
    episode, picture = Episodes(agent, scenario, [seed]), Picture(scenario, size)
    simulator = episode.task.simulator
    state = simulator.state
    with AttentionWatch(agent.policy) as watch:
        if not watch.levels:
            raise ValueError(f"agent is {agent.name!r}, which attends to nothing; expected a policy with an encoder")
        level = level or watch.levels[0]
        if level not in watch.levels:
            raise ValueError(f"level is {level!r}; it must be one of {', '.join(watch.levels)}")
        weights = np.zeros(state.visible.shape[1:], np.float32)
        for step in range(1, sub_steps + 1):
            drawn = picture.draw(state, 0, f"{agent.name}   sub-step {step}", known=simulator.known)
            sensors, targets = state.sensor_position[0].copy(), state.target_position[0].copy()
            episode.step()
            now = watch.shares(episode.observation, episode.state, num_targets=scenario.num_targets)[level][0]
            weights = np.where(np.isnan(now), weights, now)
            yield Moment(weights, sensors, targets, drawn)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and not given[0].startswith("-"):
        given.insert(0, "--agent")
    options = parse(Options, PROGRAM, given)
    with end_on_signal(PROGRAM), stop_on_bad_input(PROGRAM):
        if options.to.suffix.lower() not in (".png", ".gif"):
            raise ValueError(f"--to is {str(options.to)!r}; its name must end in .png or .gif")
        scenario, sub_steps = fitted(load_scenario(options.scenario), options.at)
        agent = load_agent(options.agent, scenario)
        found = moments(agent, scenario, options.seed, sub_steps, options.level, _SIZE)
        extent = Picture(scenario, _SIZE).extent
        if options.to.suffix.lower() == ".gif":
            weights, sensors, targets, pictures = (np.stack(parts) for parts in zip(*found, strict=True))
            plots.film(options.to, weights, sensors, targets, extent=extent, pictures=list(pictures))
        else:
            (last,) = deque(found, maxlen=1)
            plots.save(plots.lines(*last[:3], extent=extent, picture=last.picture), options.to)
        print(options.to)


if __name__ == "__main__":
    main()
