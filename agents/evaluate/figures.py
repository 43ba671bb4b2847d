"""Figures of evaluations: bars, coverage against rotation, coverage over time, heat maps over sizes, sweeps.

Every function takes evaluations in the form of :func:`hitmac.agents.evaluate.evaluate`, writes one PNG at `path`, and
raises ModuleNotFoundError, which names the extra to install, without matplotlib. A bound (an entry with
``"bound"``, computed with more knowledge than an agent has) is grey, and its label names its kind. The label of an
agent with one training seed says so, since its intervals are over episodes only. Agents of one family, the same agent
with different options, share a colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hitmac.agents.evaluate.tables import note, one_seed, title
from hitmac.agents.registry import split_options
from hitmac.envs.files import check_ending, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WITHOUT_LEARNING = {
    "random": "#8c613c",
    "still": "#a3a02c",
    "nearest": "#e08a2e",
    "greedy": "#2aa3a3",
    "exact": "#4f6d7a",
    "planner": "#228b4a",
    "planner-fast": "#8fc66b",
    "belief-planner": "#0f7f8c",
    "belief-planner-fast": "#6fb7c2",
    "belief-planner-fastest": "#a9d3d8",
}
_OTHERS = ("#427ac4", "#d0392b", "#784696", "#d977b5", "#1b3e73", "#7a7fd1", "#5d8a00", "#b0305c")
GREY = "#7d7d7d"
INK = "#333333"
_LONGEST = 26  # characters of a name


def new_figure(size: tuple[float, float], title: str = "") -> Figure:
    """Make an empty figure of a size in inches; raise ModuleNotFoundError that names the extra to install."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'hitmac[train]'") from None
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    figure.suptitle(title.replace("$", r"\$"), fontsize=10, x=0.01, ha="left", color=INK)
    return figure


def write_figure(path: str | Path, figure: Figure) -> None:
    """Write a figure as PNG; raise ValueError if `path` does not end in .png."""
    check_ending("path", path, ".png")
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def colours_of(agents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the colour of every agent, by name, from their results."""
    families = {name: split_options(name)[0] for name, result in agents.items() if not result.get("bound")}
    others = [family for family in dict.fromkeys(families.values()) if family not in _WITHOUT_LEARNING]
    colours = {family: _OTHERS[place % len(_OTHERS)] for place, family in enumerate(others)} | _WITHOUT_LEARNING
    return {name: colours[families[name]] if name in families else GREY for name in agents}


def label_of(name: str, result: Mapping[str, Any]) -> str:
    """Return the label of an agent: its name and the note of its result.

    Of a long name only the end is kept, the most specific part of a folder. Dollar signs are escaped for matplotlib.
    """
    short = name if len(name) <= _LONGEST else "\u2026" + name[1 - _LONGEST :]
    return short.replace("$", r"\$") + note(result)


def plain_axis(axis: Axes, grid: str, keep: Sequence[str] = ("left", "bottom")) -> None:
    """Draw a thin grid behind the plot, and only the sides `keep` of the frame."""
    axis.grid(axis=grid, alpha=0.25, lw=0.7)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9, color=GREY)
    for side, spine in axis.spines.items():
        spine.set_visible(side in keep)
        spine.set_color(GREY)


def legend_beside(axis: Axes) -> None:
    """Write a legend to the right of the plot: the labels of its lines, highest last value first."""
    handles, labels = axis.get_legend_handles_labels()
    last = [float(line.get_ydata()[-1]) for line in handles]  # type: ignore[attr-defined]
    order = np.argsort(-np.nan_to_num(last), kind="stable")
    axis.legend(
        [handles[k] for k in order], [labels[k] for k in order], loc="center left", bbox_to_anchor=(1.02, 0.5),
        frameon=False, fontsize=9,
    )  # fmt: skip


class _Value(NamedTuple):
    """Mean of a metric and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def _value(result: Mapping[str, Any], metric: str) -> _Value | None:
    """Return a metric of an agent, None without a value; without an interval both its ends are the mean."""
    entry = result.get(metric)
    if entry is None or entry["mean"] is None:
        return None
    low, high = entry.get("ci95") or (entry["mean"], entry["mean"])
    return _Value(entry["mean"], low, high)


_PANELS = {metric: metric.replace("_", " ") for metric in ("coverage", "decision_reward", "rotation", "least_covered")}
_PANELS["rotation"] += " (less is better)"


def save_bars(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw a bar for every agent, best coverage first, with a panel for each of four metrics.

    The metrics are coverage, decision reward, rotation and least covered; missing ones are left out. Whiskers are 95 %
    intervals. Bounds are hatched.

    Raises:
        ValueError: the evaluation has none of the metrics.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    panels = [metric for metric in _PANELS if any(_value(result, metric) for result in agents.values())]
    if not panels:
        raise ValueError(f"no agent has any of {', '.join(_PANELS)}")
    coverage = {name: _value(result, "coverage") for name, result in agents.items()}
    ranked = sorted(agents, key=lambda name: -np.inf if (value := coverage[name]) is None else value.mean)  # upwards
    text = f"{title(evaluation)}; whiskers: 95 % intervals{one_seed(agents)}"
    figure = new_figure((10, 1.3 + 0.36 * len(agents)), text)
    for metric, axis in zip(panels, figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], strict=True):
        for row, name in enumerate(ranked):
            value = _value(agents[name], metric)
            if value is None:
                axis.annotate("\u2013", (0, row), (4, 0), textcoords="offset points", va="center", color=GREY)
                continue
            look = {"color": colours[name]}
            if agents[name].get("bound"):
                look = {"color": "#e4e4e4", "hatch": "////", "edgecolor": "#a8a8a8"}
            axis.barh(row, value.mean, height=0.66, lw=0, **look)
            axis.plot((value.low, value.high), (row, row), color=INK, lw=1.1, marker="|", ms=5)
            axis.annotate(
                f"{value.mean:.3f}", (max(value.mean, value.high, 0), row), xytext=(5, 0), textcoords="offset points",
                va="center", fontsize=8.5, color=INK,
            )  # fmt: skip
        left, right = axis.get_xlim()
        axis.set_xlim(left, right + 0.34 * (right - left))  # room for the numbers
        axis.set_ylim(-0.6, len(ranked) - 0.4)
        axis.set_yticks(range(len(ranked)), [label_of(name, agents[name]) for name in ranked])
        axis.set_title(_PANELS[metric], fontsize=10, loc="left")
        axis.locator_params(axis="x", nbins=3)
        plain_axis(axis, "x", keep=("left",))
        axis.tick_params(axis="y", length=0)
    write_figure(path, figure)


def save_pareto(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw coverage against rotation, with both 95 % intervals of every agent and the Pareto front.

    The front joins the agents that no other agent dominates, by at least the same coverage with at most the same
    rotation, and a difference in one of them. Dominated agents are fainter. A family, the agents of one name with
    several options, is one line, with its options at the points. A result without rotation is a dashed line. A bound is
    a hollow diamond, not part of the front.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    text = f"{title(evaluation)}; crosses: 95 % intervals{one_seed(agents)}; stairs: the Pareto front"
    figure = new_figure((10, 6.2), text)
    axis = figure.subplots()
    places = {name: (_value(result, "rotation"), _value(result, "coverage")) for name, result in agents.items()}
    points = {name: (x, y) for name, (x, y) in places.items() if x is not None and y is not None}
    front = _front({name: (x.mean, y.mean) for name, (x, y) in points.items() if not agents[name].get("bound")})
    families: dict[str, list[str]] = {}
    for name in sorted(points, key=lambda name: points[name][0].mean):
        families.setdefault(split_options(name)[0], []).append(name)
    for family, members in families.items():
        line = np.array([(points[name][0].mean, points[name][1].mean) for name in members])
        colour, several = colours[members[0]], len(members) > 1
        label = label_of(family if several else members[0], agents[members[0]])
        axis.plot(*line.T, color=colour, lw=1.6, alpha=0.7, zorder=2.5, label=label)
        for name in members:
            (x, y), bound, options = points[name], agents[name].get("bound"), split_options(name)[1]
            look: dict[str, Any] = {"color": colour, "alpha": 1.0 if bound or name in front else 0.5, "zorder": 3}
            axis.plot((x.low, x.high), (y.mean, y.mean), lw=1.3, **look)
            axis.plot((x.mean, x.mean), (y.low, y.high), lw=1.3, **look)
            axis.plot(x.mean, y.mean, "D" if bound else "o", ms=7, mfc="white" if bound else colour, **look)
            if several:
                text = options.partition("=")[2] if options.count("=") == 1 else options
                place: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8.5}
                axis.annotate(text, (x.mean, y.mean), color=colour, **place)
    for name, (rotation, coverage) in places.items():
        if rotation is None and coverage is not None:
            axis.axhline(coverage.mean, ls="--", lw=1.2, color=colours[name], label=label_of(name, agents[name]))
    axis.margins(x=0.08, y=0.1)
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, -0.03 * right), right)  # no wide strip of negative rotation
    if front:
        steps = [(points[name][0].mean, points[name][1].mean) for name in front]
        steps.append((axis.get_xlim()[1], steps[-1][1]))
        axis.step(*zip(*steps, strict=True), where="post", color=INK, lw=1.1, alpha=0.5, zorder=2)
    axis.set_xlabel("rotation: mean share of sensors that turn (less is better)")
    axis.set_ylabel("coverage")
    plain_axis(axis, "both")
    legend_beside(axis)
    write_figure(path, figure)


def _front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points (rotation, coverage) that no other dominates, by rising rotation."""

    def beaten(x: float, y: float) -> bool:
        return any(a <= x and b >= y and (a, b) != (x, y) for a, b in points.values())

    return sorted((name for name, point in points.items() if not beaten(*point)), key=lambda name: points[name])


def save_over_time(path: str | Path, evaluation: Mapping[str, Any], sub_steps: int) -> None:
    """Draw the coverage over the time of an episode, a line for each agent; bounds are dashed.

    Agents without ``over_time`` are left out. An episode has `sub_steps` sub-steps.

    Raises:
        ValueError: no agent has ``over_time``.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    lines = {name: np.array(result["over_time"], float) for name, result in agents.items() if result.get("over_time")}
    lines = {name: line for name, line in lines.items() if not np.isnan(line).all()}
    if not lines:
        raise ValueError("no agent has over_time")
    figure = new_figure((10, 5.2), f"{title(evaluation)}; coverage over time")
    axis = figure.subplots()
    for name, line in lines.items():
        time = (np.arange(len(line)) + 0.5) * sub_steps / len(line)  # the middle of each slice
        dashed = {"ls": "--", "lw": 1.4} if agents[name].get("bound") else {"lw": 2}
        marker, label = "" if len(line) > 1 else "o", label_of(name, agents[name])
        axis.plot(time, line, color=colours[name], marker=marker, label=label, **dashed)
    axis.set_xlim(0, sub_steps)
    axis.set_xlabel("sub-step")
    axis.set_ylabel("coverage")
    plain_axis(axis, "both")
    legend_beside(axis)
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
    """
    agents = {name: result for evaluation in evaluations.values() for name, result in evaluation["agents"].items()}
    colours = colours_of(agents)
    rows, columns = (sorted({size[place] for size in evaluations}) for place in (0, 1))
    maps: dict[str, np.ndarray] = {}
    for name in sorted(agents, key=lambda name: bool(agents[name].get("bound"))):
        values = np.full((len(rows), len(columns)), np.nan)
        for (n, m), evaluation in evaluations.items():
            if value := _value(evaluation["agents"].get(name, {}), "decision_reward"):
                values[rows.index(n), columns.index(m)] = value.mean
        if not np.isnan(values).all():
            maps[name] = values
    if not maps:
        raise ValueError("no agent has a decision reward")
    longest = max(len(label_of(name, agents[name])) for name in maps)
    wide, tall = max(0.66 * len(columns) + 0.6, 0.09 * longest + 0.3), 0.5 * len(rows) + 0.75
    across = max(1, min(len(maps), 4, int(9.5 / wide)))
    down = -(-len(maps) // across)
    text = "decision reward" + (" (difference to the reference)" if reference else "")
    figure = new_figure((max(4.6, across * wide + 1.2), down * tall + 0.6), text)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    every = np.array(list(maps.values()))
    low, span = np.nanmin(every), np.ptp(every[~np.isnan(every)]) or 1.0
    for axis, (name, values) in zip(axes, maps.items(), strict=False):
        image = axis.imshow(values, cmap="Blues", vmin=low - 0.2 * span, vmax=low + 1.1 * span, aspect="auto")
        for i, j in np.argwhere(~np.isnan(values)):
            other = (reference or {}).get((rows[i], columns[j]))
            look: dict[str, Any] = {"ha": "center", "va": "center"}
            look["color"] = "white" if image.norm(values[i, j]) > 0.55 else INK
            axis.text(j, i - (0.15 if other is not None else 0), f"{values[i, j]:.3f}", **look)
            if other is not None:
                difference = round(values[i, j] - other, 3) + 0.0  # without -0.0
                axis.text(j, i + 0.24, f"({difference:+.3f})", fontsize=7, **look)
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), rows)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(label_of(name, agents[name]), fontsize=10, color=colours[name])
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    figure.supxlabel("targets", fontsize=9)
    figure.supylabel("sensors", fontsize=9)
    figure.colorbar(image, ax=axes, aspect=30, pad=0.02).outline.set_visible(False)
    write_figure(path, figure)


def save_sweeps(path: str | Path, sweeps: Mapping[str, Mapping[float, Mapping[str, Any]]]) -> None:
    """Draw the coverage of every agent against each of the parameters that vary, in a panel for each parameter.

    Bands are 95 % intervals. Bounds are dashed.

    `sweeps` holds of each parameter the evaluations by value, all of the same agents.
    """
    first = next(iter(next(iter(sweeps.values())).values()))
    agents, colours = first["agents"], colours_of(first["agents"])
    start, end = first["seeds"]
    text = f"{first['episodes']} episodes, seeds {start} to {end}; bands: 95 % intervals{one_seed(agents)}"
    figure = new_figure((2.2 + 3.3 * len(sweeps), 3.9), text)
    axes = figure.subplots(1, len(sweeps), sharey=True, squeeze=False)[0]
    for axis, (parameter, evaluations) in zip(axes, sweeps.items(), strict=True):
        for name, result in agents.items():
            values = [_value(evaluation["agents"][name], "coverage") for evaluation in evaluations.values()]
            mean, low, high = np.array(values, float).T
            look: dict[str, Any] = {"color": colours[name], "ls": "--" if result.get("bound") else "-"}
            axis.fill_between(list(evaluations), low, high, color=colours[name], alpha=0.15, lw=0)
            axis.plot(list(evaluations), mean, marker="o", ms=3.5, label=label_of(name, result), **look)
        axis.set_xlabel(parameter.replace("_", " "))
        plain_axis(axis, "both")
        axis.locator_params(axis="x", nbins=4)
    axes[0].set_ylabel("coverage")
    legend_beside(axes[-1])
    write_figure(path, figure)
