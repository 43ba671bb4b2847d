"""What people look at after a run: the training curve and a film of an episode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from agents.hierarchy import assignment_of
from agents.registry import Agent
from envs.files import check_ending, whole_file
from envs.render import Picture, save_gif
from envs.scenario import Scenario
from envs.tasks import SUB_STEPS, CoverageTask

_RELEASED = {
    (4, 5): 0.737, (2, 5): 0.476, (3, 5): 0.629, (5, 5): 0.786, (6, 5): 0.857,
    (4, 3): 0.797, (4, 7): 0.693, (4, 9): 0.665, (6, 9): 0.778,
}  # fmt: skip


def released_reward(scenario: str) -> dict[tuple[int, int], float] | None:
    """What the released HiT-MAC program reaches on its own scene, by (n, m); None for another scene.

    Mean decision rewards, measured on its own environment with its own weights: 200 episodes at 4 x 5, 60 elsewhere.
    """
    return _RELEASED if re.fullmatch(r"hit-mac(-\d+x\d+)?", scenario) else None


def save_curve(
    path: str | Path,
    steps: np.ndarray,
    minutes: np.ndarray,
    values: np.ndarray,
    metric: str,
    references: Mapping[str, float],
) -> None:
    """Draw a metric against steps and against minutes, with the references as lines.

    Args:
        path: the picture's file.
        steps: (k,) environment steps so far.
        minutes: (k,) minutes of training so far.
        values: (k,) means of the metric, of the exploring policy, since the last point.
        metric: its name.
        references: the metric of others by name, each a dashed line.

    Raises:
        ValueError: `path` does not end in .png.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("curves need matplotlib: pip install 'hitmac[train]'") from None
    check_ending("path", path, ".png")
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, x, label in ((axes[0], steps / 1e6, "million environment steps"), (axes[1], minutes, "minutes")):
        axis.plot(x, values, color="#427ac4", lw=1.8, label="in training, exploring")
        for number, (name, value) in enumerate(references.items()):
            axis.axhline(value, ls="--", lw=1.2, color=f"C{number + 1}", label=f"{name}: {value:.3f}")
        axis.set_xlabel(label)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel(metric)
    axes[1].legend(loc="lower right", fontsize=8)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=110)


def save_film(
    path: str | Path,
    agent: Agent,
    scenario: Scenario,
    *,
    seed: int,
    sub_steps: int = SUB_STEPS,
    every: int = 5,
    size: int = 400,
) -> None:
    """Film one episode as an animated GIF, a picture every so many sub-steps; lines show what a coordinator assigns.

    Args:
        path: the film's file.
        agent: who turns the sensors.
        scenario: on which scene.
        seed: of the episode.
        sub_steps: length of the episode.
        every: sub-steps between two pictures.
        size: height and width, pixels.

    Raises:
        ValueError: `path` does not end in .gif.
    """
    check_ending("path", path, ".gif")
    picture = Picture(scenario, size)
    task = CoverageTask(scenario, 1, seed, features=agent.features)
    pictures, total, state = [], 0.0, None
    for step in range(1, sub_steps + 1):
        action, state = agent.policy.predict(task.observe(), state, np.array([step == 1]), deterministic=True)
        task.step(action)
        total += float(task.simulator.coverage[0])
        if step % every == 0 or step == sub_steps:
            caption = f"{agent.name}   coverage so far {total / step:.3f}   sub-step {step}"
            assigned = assignment_of(agent.policy, state)
            pictures.append(picture.draw(task.simulator.state, 0, caption, None if assigned is None else assigned[0]))
    save_gif(path, pictures)
