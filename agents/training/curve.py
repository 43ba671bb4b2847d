"""Training curve: evaluations of the deterministic policy during training, and their picture."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.figures import colours_of, label_of, new_figure, plain_axis, write_figure
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.registry import Agent
from hitmac.agents.training.config import Options
from hitmac.agents.training.resume import POINT, Progress
from hitmac.envs.files import write_text
from hitmac.envs.scenario import Scenario

CURVE_SEED = 2**41
"""First seed of the scenes of the curve, which are neither trained nor evaluated on."""

EPISODES = 32
_PAIRS = 32 * 20  # of EPISODES scenes of 4 x 5: larger scenes have fewer episodes, and 4 at least
_CHEAPER = 8  # steps of an evaluation for a step of a training

MILESTONES = (0.749, 0.8, 0.83)
"""Coverages whose times are reported; the first is that of the released executor with all targets assigned."""


class CurveEvaluation:
    """Evaluation of the deterministic policy from time to time: often at first, when it learns fast.

    Point k of K is due after the share (k / K)^2 of the training. It waits until the training has taken, since the last
    point, an eighth of the steps that the evaluation takes, since those cost far less, and no point depends on how fast
    the machine is.

    Args:
        options: of the training: K is ``curve_points``, 0 for none.
        trained: the policy, as an agent, or as a level for an executor.
        scenario: the scene.
        progress: stores the points.
        fraction: share of the training, 0 to 1, after these steps and seconds.
    """

    def __init__(
        self,
        options: Options,
        trained: Agent | LevelPolicy,
        scenario: Scenario,
        progress: Progress,
        fraction: Callable[[int, float], float],
    ) -> None:
        self._trained, self._scenario, self._progress, self._fraction = trained, scenario, progress, fraction
        self._points, self._sub_steps = options.curve_points, options.sub_steps
        pairs = scenario.num_sensors * scenario.num_targets
        self._episodes = min(EPISODES, options.episodes, max(4, _PAIRS // pairs))

    def __call__(self, steps: int, *, final: bool = False) -> None:
        """Add a point if one is due after these steps; the final one always is."""
        last = self._progress.evaluations[-1] if self._progress.evaluations else None
        if not self._points or (last and last[0] == steps) or not (final or last is None or self._is_due(steps, last)):
            return
        options: dict[str, Any] = {"episodes": self._episodes, "max_episode_steps": self._sub_steps}
        options |= {"seed": CURVE_SEED, "progress": False}
        if isinstance(self._trained, LevelPolicy):
            evaluation, reward = evaluate_executors({"trained": self._trained}, self._scenario, **options), "reward"
        else:
            agent = self._trained._replace(name="trained")
            evaluation, reward = evaluate(agent, self._scenario, **options), "decision_reward"
        result = evaluation["agents"]["trained"]
        means = (result[metric]["mean"] for metric in ("coverage", "rotation", reward))
        self._progress.evaluations.append((steps, self._progress.seconds, *means))

    def _is_due(self, steps: int, last: tuple[float, ...]) -> bool:
        passed = int(self._points * math.sqrt(self._fraction(int(last[0]), last[1])))
        due = int(self._points * math.sqrt(self._fraction(steps, self._progress.seconds)))
        return due > passed and steps - last[0] >= self._episodes * self._sub_steps / _CHEAPER


def reached(progress: Progress) -> dict[float, tuple[int, float] | None]:
    """Return for every milestone the steps and seconds of the first point of the deterministic policy that reaches it.

    The seconds are those of training, without compilation and evaluation. None: no point reaches it.
    """
    points = [(coverage, (int(steps), seconds)) for steps, seconds, coverage, *_ in progress.evaluations]
    return {least: next((when for coverage, when in points if coverage >= least), None) for least in MILESTONES}


def reached_in_words(progress: Progress) -> str:
    """Return the times of the milestones as a sentence; empty without points."""
    if not progress.evaluations:
        return ""
    times = [
        f"{least:g} {f'after {when[1]:.0f} s ({when[0]} steps)' if when else 'never'}"
        for least, when in reached(progress).items()
    ]
    return f"Coverage on the curve, seconds of training until it was first reached: {', '.join(times)}."


def save_points(path: str | Path, progress: Progress) -> None:
    """Write the points of a training's curve and the times of the milestones as JSON.

    The points ``deterministic`` and ``exploring`` of the policy have ``steps`` and ``seconds`` so far, ``coverage``,
    ``rotation`` and ``reward``.
    ``reached`` gives the steps and seconds at which the deterministic policy first reached a coverage, or null.
    """
    content = {
        "deterministic": [dict(zip(POINT, point, strict=True)) for point in progress.evaluations],
        "exploring": [dict(zip(POINT, point, strict=True)) for point in progress.curve],
        "reached": {
            f"{least:g}": when and {"steps": when[0], "seconds": when[1]} for least, when in reached(progress).items()
        },
    }
    write_text(path, json.dumps(content, indent=1) + "\n")


def save_curve(path: str | Path, progress: Progress, metric: str, references: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a metric, and rotation below it, against steps and minutes of training.

    Thick lines with dots are the deterministic policy, thin ones the exploring policy since the last point. Dashed
    lines are the references, in the legend.

    Args:
        path: the picture's file.
        progress: of the training.
        metric: ``"coverage"`` or ``"reward"``.
        references: the results of others by name, as :func:`hitmac.agents.evaluate.evaluate` gives them; what they lack
            is left out.

    Raises:
        ValueError: `path` does not end in .png.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    exploring, deterministic = (
        np.array(points, np.float64).reshape(-1, len(POINT)) for points in (progress.curve, progress.evaluations)
    )
    figure = new_figure((11, 6.4))
    colours = colours_of({"trained": {}, **references})
    look: dict[str, Any] = {"color": colours["trained"], "solid_capstyle": "round"}
    faint: dict[str, Any] = {"alpha": 0.5} if len(deterministic) else {}
    axes = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(3, 2))
    for row, shown in zip(axes, (metric, "rotation"), strict=True):
        y = POINT.index(shown)
        levels = {name: result[shown]["mean"] for name, result in references.items() if shown in result}
        for axis, x, scale in ((row[0], 0, 1e6), (row[1], 1, 60.0)):
            dots = "o" if len(exploring) == 1 else ""
            axis.plot(exploring[:, x] / scale, exploring[:, y], lw=0.8, marker=dots, **faint, **look)
            axis.plot(deterministic[:, x] / scale, deterministic[:, y], lw=2, marker="o", ms=4, **look)
            for name, level in levels.items():
                if level is not None:
                    label = f"{label_of(name, {})} {level:.3f}"
                    axis.axhline(level, ls="--", lw=1.1, color=colours[name], zorder=1, label=label)
            axis.set_xlim(left=0)
            plain_axis(axis, "both")
        row[0].set_ylabel(shown)
        if levels:
            row[1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8.5)
    axes[1, 0].set_xlabel("million environment steps")
    axes[1, 1].set_xlabel("minutes of training")
    title = "in training: thick, the deterministic policy; thin, exploring; dashed, others at the end"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    write_figure(path, figure)
