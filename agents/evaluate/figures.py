"""Figures of evaluations: bars, coverage against rotation, coverage over time, heat maps over sizes.

Every function takes evaluations in the form of :func:`hitmac.agents.evaluate.evaluate`, and writes one PNG. A reference
(an entry with ``"reference"``, computed with more knowledge than an agent has) is grey, and its label names its kind.
The label of an agent with one training seed says so, since its intervals are over episodes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hitmac.agents.evaluate import style
from hitmac.agents.evaluate.families import family_lines, short_names
from hitmac.agents.evaluate.labels import Value, name_points, spread
from hitmac.agents.evaluate.style import colours_of, is_reference, label_of, new_figure, plain_axis, write_figure
from hitmac.agents.evaluate.tables import one_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = {metric: metric.replace("_", " ") for metric in ("coverage", "decision_reward", "rotation", "least_covered")}
_PANELS["rotation"] += " (less is better)"


def save_bars(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw a bar for every agent, best coverage first, with a panel for each of four metrics.

    The metrics are coverage, decision reward, rotation and least covered; missing ones are left out. Whiskers are 95 %
    intervals. References are hatched.

    Args:
        path: file of the figure.
        evaluation: evaluation of one or more agents.

    Raises:
        ValueError: the evaluation has none of the metrics.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    coverage = {name: _value(result, "coverage") for name, result in agents.items()}
    ranked = sorted(agents, key=lambda name: -np.inf if (value := coverage[name]) is None else value.mean)  # upwards
    panels = [metric for metric in _PANELS if any(_value(result, metric) for result in agents.values())]
    if not panels:
        raise ValueError(f"no agent has any of {', '.join(_PANELS)}")
    figure = new_figure((10, 1.3 + 0.36 * len(agents)))
    for metric, axis in zip(panels, figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], strict=True):
        ends = [0.0]
        for row, name in enumerate(ranked):
            value, reference = _value(agents[name], metric), is_reference(agents[name])
            if value is None:
                axis.annotate("\u2013", (0, row), (4, 0), textcoords="offset points", va="center", color=style.GREY)
                continue
            look = (
                {"color": "#e4e4e4", "hatch": "////", "edgecolor": "#a8a8a8"} if reference else {"color": colours[name]}
            )
            axis.barh(row, value.mean, height=0.66, lw=0, **look)
            axis.plot((value.low, value.high), (row, row), color=style.INK, lw=1.1, marker="|", ms=5)
            ends += [value.mean, value.low, value.high]
            axis.annotate(
                f"{value.mean:.3f}",
                (max(value.mean, value.high, 0), row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=style.INK,
            )
        width = (max(ends) - min(ends)) or 1.0
        axis.set_xlim(min(ends) - 0.06 * width * (min(ends) < 0), max(ends) + 0.34 * width)  # room for the numbers
        axis.set_ylim(-0.6, len(ranked) - 0.4)
        axis.set_yticks(range(len(ranked)), [label_of(name, agents[name]) for name in ranked])
        axis.set_title(_PANELS[metric], fontsize=10, loc="left")
        axis.locator_params(axis="x", nbins=4)
        left, right = axis.get_xlim()
        ticks = [tick for tick in axis.get_xticks() if left <= tick < right - 0.1 * width]
        axis.set_xticks(ticks)  # without labels that would overlap those of the next panel
        plain_axis(axis, "x", keep=("left",))
        axis.tick_params(axis="y", length=0)
    _title(figure, evaluation, f"whiskers: 95 % intervals{one_seed(agents)}")
    write_figure(path, figure)


def save_pareto(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw coverage against rotation, with both 95 % intervals of every agent and the Pareto front.

    The front joins the agents that no other agent dominates, by at least the same coverage with at most the same
    rotation, and a difference in one of them. Dominated agents are fainter. A line joins the agents of one name with
    several options. A result without rotation is a dashed line. A reference is a hollow diamond, not part of the front.

    Args:
        path: file of the figure.
        evaluation: evaluation of one or more agents.

    Raises:
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    figure = new_figure((10, 6.2))
    axis = figure.subplots()
    points, levels = {}, {}
    for name, result in agents.items():
        coverage, rotation = _value(result, "coverage"), _value(result, "rotation")
        if coverage is not None and rotation is not None:
            points[name] = rotation, coverage
        elif coverage is not None:
            levels[name] = coverage.mean
    front = _front({name: (x.mean, y.mean) for name, (x, y) in points.items() if not is_reference(agents[name])})
    for name, (x, y) in points.items():
        reference = is_reference(agents[name])
        look: dict[str, Any] = {
            "color": colours[name],
            "alpha": 1.0 if reference or name in front else 0.5,
            "zorder": 3,
        }
        axis.plot((x.low, x.high), (y.mean, y.mean), lw=1.3, **look)
        axis.plot((x.mean, x.mean), (y.low, y.high), lw=1.3, **look)
        axis.plot(x.mean, y.mean, "D" if reference else "o", ms=7, mfc="white" if reference else colours[name], **look)
    for name, line in (lines := family_lines(points)).items():
        axis.plot(*line.T, color=colours[name], lw=1.6, alpha=0.7, zorder=2.5)
    for name, level in levels.items():
        axis.axhline(level, ls="--", lw=1.2, color=colours[name])
    axis.margins(x=0.08, y=0.1)
    axis.autoscale_view()
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, -0.03 * right), right)  # no wide strip of negative rotation
    right = axis.get_xlim()[1]
    steps = np.array([(points[name][0].mean, points[name][1].mean) for name in front]).reshape(-1, 2)
    stairs = np.concatenate((steps, [(right, steps[-1, 1])])) if len(steps) else steps
    axis.step(*stairs.T, where="post", color=style.INK, lw=1.1, alpha=0.5, zorder=2)
    axis.set_xlabel("rotation: mean share of sensors that turn (less is better)")
    axis.set_ylabel("coverage")
    plain_axis(axis, "both")
    _title(figure, evaluation, f"crosses: 95 % intervals{one_seed(agents)}; stairs: the Pareto front")
    labels = {name: (label_of(short, agents[name]), colours[name]) for name, short in short_names(agents).items()}
    name_points(figure, axis, labels, points, levels, stairs, lines.values())
    write_figure(path, figure)


def save_over_time(path: str | Path, evaluation: Mapping[str, Any], sub_steps: int) -> None:
    """Draw the coverage over the time of an episode, a line for each agent; references are dashed.

    Args:
        path: file of the figure.
        evaluation: evaluation of agents with ``over_time``; agents without are left out.
        sub_steps: length of an episode, sub-steps.

    Raises:
        ValueError: no agent has ``over_time``.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    lines = {name: np.array(result["over_time"], float) for name, result in agents.items() if result.get("over_time")}
    lines = {name: line for name, line in lines.items() if not np.isnan(line).all()}
    if not lines:
        raise ValueError("no agent has over_time")
    figure = new_figure((10, 5.2))
    axis = figure.subplots()
    ends = {}
    for name, line in lines.items():
        reference = is_reference(agents[name])
        time = (np.arange(len(line)) + 0.5) * sub_steps / len(line)  # the middle of each slice
        axis.plot(
            time,
            line,
            color=colours[name],
            ls="--" if reference else "-",
            lw=1.4 if reference else 2,
            marker="" if len(line) > 1 else "o",
        )
        last = np.flatnonzero(~np.isnan(line))[-1]
        ends[name] = time[last], line[last]
    axis.set_xlim(0, sub_steps)
    axis.set_xlabel("sub-step")
    axis.set_ylabel("coverage")
    plain_axis(axis, "both")
    _title(figure, evaluation, "coverage over time")
    figure.draw_without_rendering()
    pixels = axis.transData.transform([(0, level) for _, level in ends.values()])[:, 1]
    apart = spread(pixels, 13 * figure.dpi / 72)  # height of a label
    levels = axis.transData.inverted().transform(np.stack((pixels, apart), -1))[:, 1]
    for (name, end), level in zip(ends.items(), levels, strict=True):
        axis.annotate(
            label_of(name, agents[name]),
            end,
            xytext=(1.015, level),
            textcoords=axis.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=colours[name],
            arrowprops={"arrowstyle": "-", "lw": 0.7, "color": colours[name], "alpha": 0.6, "shrinkA": 0, "shrinkB": 2},
        )
    write_figure(path, figure)


def save_heat_maps(
    path: str | Path,
    evaluations: Mapping[tuple[int, int], Mapping[str, Any]],
    reference: Mapping[tuple[int, int], float] | None = None,
) -> None:
    """Draw for every agent a heat map of its mean decision reward over n sensors (rows) and m targets (columns).

    Args:
        path: file of the figure.
        evaluations: evaluations by (n, m), each of all or some of the agents; a cell without a value is blank.
        reference: rewards by (n, m) to compare with; the difference is in brackets.

    Raises:
        ValueError: no agent has a decision reward.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents = {name: result for evaluation in evaluations.values() for name, result in evaluation["agents"].items()}
    colours = colours_of(agents)
    rows, columns = (sorted({size[place] for size in evaluations}) for place in (0, 1))
    maps: dict[str, np.ndarray] = {}
    for name in sorted(agents, key=lambda name: is_reference(agents[name])):
        values = np.full((len(rows), len(columns)), np.nan)
        for (n, m), evaluation in evaluations.items():
            value = _value(evaluation["agents"].get(name, {}), "decision_reward")
            values[rows.index(n), columns.index(m)] = np.nan if value is None else value.mean
        if not np.isnan(values).all():
            maps[name] = values
    if not maps:
        raise ValueError("no agent has a decision reward")
    longest = max(len(label_of(name, agents[name])) for name in maps)
    wide, tall = max(0.66 * len(columns) + 0.6, 0.09 * longest + 0.3), 0.5 * len(rows) + 0.75
    across = max(1, min(len(maps), 4, int(9.5 / wide)))
    down = -(-len(maps) // across)
    figure = new_figure((max(4.6, across * wide + 1.2), down * tall + 0.6))
    axes = figure.subplots(down, across, squeeze=False).ravel()
    low, high = (float(end) for end in (np.nanmin(list(maps.values())), np.nanmax(list(maps.values()))))
    span = (high - low) or 1.0
    image = None
    for axis, (name, values) in zip(axes, maps.items(), strict=False):
        image = axis.imshow(values, cmap="Blues", vmin=low - 0.2 * span, vmax=high + 0.1 * span, aspect="auto")
        for (i, j), number in np.ndenumerate(values):
            if np.isnan(number):
                continue
            ink = "white" if image.norm(number) > 0.55 else style.INK
            size = rows[i], columns[j]
            other = None if reference is None else reference.get(size)
            axis.text(j, i - (0.15 if other is not None else 0), f"{number:.3f}", ha="center", va="center", color=ink)
            if other is not None:
                axis.text(
                    j,
                    i + 0.24,
                    f"({round(number - other, 3) + 0.0:+.3f})",
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=7,
                )
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), rows)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(label_of(name, agents[name]), fontsize=10, color=colours[name])
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    figure.supxlabel("targets", fontsize=9)
    figure.supylabel("sensors", fontsize=9)
    figure.suptitle(
        "decision reward" + (" (difference to the reference)" if reference else ""),
        fontsize=10,
        x=0.01,
        ha="left",
    )
    if image is not None:
        bar = figure.colorbar(image, ax=axes, aspect=30, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.set_ylim(low - 0.05 * span, high + 0.05 * span)
    write_figure(path, figure)


def _value(result: Mapping[str, Any], metric: str) -> Value | None:
    """Return a metric of an agent, None without a value; without an interval both its ends are the mean."""
    entry = result.get(metric)
    if entry is None or entry["mean"] is None:
        return None
    low, high = entry.get("ci95") or (entry["mean"], entry["mean"])
    return Value(entry["mean"], low, high)


def _title(figure: Figure, evaluation: Mapping[str, Any], legend: str) -> None:
    scenario = str(evaluation["scenario"]).replace("$", r"\$")
    first, last = evaluation["seeds"]
    text = f"{scenario}: {evaluation['episodes']} episodes, seeds {first} to {last}; {legend}"
    figure.suptitle(text, fontsize=10, x=0.01, ha="left", color=style.INK)


def _front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points (rotation, coverage) that no other dominates, by rising rotation."""

    def beaten(x: float, y: float) -> bool:
        return any(a <= x and b >= y and (a, b) != (x, y) for a, b in points.values())

    return sorted((name for name, point in points.items() if not beaten(*point)), key=lambda name: points[name])
