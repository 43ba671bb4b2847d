"""Film of an episode, and the rewards of the released program."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hitmac.agents.evaluate.episodes import fitted
from hitmac.agents.hierarchy import assignment_of
from hitmac.agents.policy import Policy, started
from hitmac.agents.registry import Agent, load_agent
from hitmac.envs.files import check_ending
from hitmac.envs.load import load_scenario
from hitmac.envs.render import Picture, save_gif
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import SUB_STEPS, CoverageTask

_RELEASED = {
    (4, 5): 0.737, (2, 5): 0.476, (3, 5): 0.629, (5, 5): 0.786, (6, 5): 0.857,
    (4, 3): 0.797, (4, 7): 0.693, (4, 9): 0.665, (6, 9): 0.778,
}  # fmt: skip


def released_reward(scenario: str) -> dict[tuple[int, int], float] | None:
    """Return the mean decision rewards of the released HiT-MAC program, by (n, m); None for a scene other than its own.

    They were measured in its own environment with its own weights: 200 episodes at 4 x 5, 60 at other sizes.
    """
    return _RELEASED if re.fullmatch(r"hit-mac(-\d+x\d+)?", scenario) else None


def save_film(
    path: str | Path,
    agent: Agent | Policy | str | Path,
    scenario: Scenario | str | Path,
    *,
    seed: int,
    sub_steps: int = SUB_STEPS,
    every: int = 5,
    size: int = 400,
) -> None:
    """Film one episode as an animated GIF, with a frame every `every` sub-steps and assignments as lines.

    Args:
        path: file of the film; its name must end in .gif.
        agent: the agent, as accepted by :func:`hitmac.agents.load_agent`.
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file's path.
        seed: seed of the episode.
        sub_steps: length of the episode, sub-steps; default 1010, at most what the scenario allows.
        every: sub-steps between two frames; default 5.
        size: height and width, pixels; default 400.

    Raises:
        ValueError: `path` does not end in .gif.
    """
    check_ending("path", path, ".gif")
    scenario = load_scenario(scenario)
    agent = load_agent(agent, scenario)
    scenario, sub_steps = fitted(scenario, sub_steps)
    picture = Picture(scenario, size)
    task = CoverageTask(scenario, 1, seed, features=agent.features)
    pictures, total, state = [], 0.0, started(agent.policy, [seed])
    known = None if scenario.knowledge == "full" else task.simulator.known
    for step in range(1, sub_steps + 1):
        action, state = agent.policy.predict(task.observe(), state, np.array([step == 1]), deterministic=True)
        task.step(action)
        total += float(task.simulator.coverage[0])
        if step % every == 0 or step == sub_steps:
            caption = f"{agent.name}   coverage so far {total / step:.3f}   sub-step {step}"
            assigned = assignment_of(agent.policy, state)
            assigned = None if assigned is None else assigned[0]
            pictures.append(picture.draw(task.simulator.state, 0, caption, assigned, known))
    save_gif(path, pictures)
